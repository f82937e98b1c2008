// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a bundle has for texts: the section that `rlx_mlir.models.text_section` writes.
#ifndef RLX_RUNTIME_LIBRARY_TEXT_H
#define RLX_RUNTIME_LIBRARY_TEXT_H

#include "tokenizer.h"

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlx::runtime::library {

struct Message {
  std::string role, content;
};

/// How messages become a prompt, where that is to put fixed texts around them: the bundle was made
/// where this gives what the model's template does.
struct ChatForm {
  struct Role {
    std::string name, before, after;
    bool trimmed; // of its content, spaces at both ends are left out
  };
  /// The date, which templates write as a format says.
  struct Date {
    std::string mark, format; // what stands for it in the texts here
  };
  std::string start, systemStart; // where another message comes first, and where a system's does
  std::string answer;             // where an answer begins
  std::string beginText;          // of the token that begins texts, as the template writes it
  std::vector<Role> roles;
  bool alternates; // users and answers take turns
  std::vector<Date> dates;

  /// The form with the date of a time, in seconds since 1970, in the place of marks. Throws
  /// InputError where the calendar doesn't reach.
  ChatForm at(std::time_t time) const;

  /// The text of messages, up to where an answer begins; behind an answer, what ends that comes
  /// first. Throws InputError for messages that the template doesn't take.
  std::string render(const std::vector<Message> &messages, bool behindAnswer) const;

private:
  const Role &role(const std::string &name) const;
  void check(const std::vector<Message> &messages, bool behindAnswer) const;
};

/// What a decoder's bundle has. Never changes.
class Text {
public:
  /// Of a bundle without the section.
  static std::unique_ptr<const Text> none();

  /// These throw InputError, which says why there is none.
  const Tokenizer &tokenizer() const;
  const ChatForm &chat() const;

  /// Null where there is none.
  const Tokenizer *findTokenizer() const { return own ? &*own : nullptr; }

  bool hasChat() const { return form.has_value(); }

  /// Ids of messages that begin a conversation, or that come behind an answer.
  /// \param time of the date that templates write, in seconds since 1970.
  std::vector<int32_t> encode(const std::vector<Message> &messages, bool behindAnswer,
                              std::time_t time) const;

private:
  friend std::unique_ptr<const Text> readText(const std::string &section);

  std::optional<Tokenizer> own;
  std::optional<ChatForm> form;
  std::string noTokenizer, noChat; // why
};

/// Reads the section; throws InputError where it makes no sense.
std::unique_ptr<const Text> readText(const std::string &section);

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_TEXT_H
