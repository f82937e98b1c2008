// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "text.h"

#include "runtime/error.h"
#include "runtime/utf8.h"

#include <algorithm>
#include <utility>

namespace rlx::runtime::library {
namespace {

constexpr int64_t kVersion = 3;
/// The oldest version that is read: 2 adds rules of tokenizers, and dates of chats; 3 several forms
/// of texts, and characters of words.
constexpr int64_t kOldest = 1;
/// Bytes of a date: formats have a thousand at most.
constexpr size_t kMostOfDate = 1 << 16;

/// What Python's `strip` takes away, as templates do.
bool isSpace(uint32_t code) { return isWhiteSpace(code) || (code >= 28 && code <= 31); }

std::string_view trimmed(std::string_view text) {
  size_t first = text.size(), last = 0; // of what isn't a space
  uint32_t code = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t count = std::max<size_t>(1, readUtf8(text, at, code));
    if (!isSpace(code)) {
      first = std::min(first, at);
      last = at + count;
    }
    at += count;
  }
  return first < last ? text.substr(first, last - first) : std::string_view();
}

ChatForm readForm(const Value &value) {
  const std::vector<Value> &parts =
      value.asList(7, "a chat's form (start, system's start, answer, begin, roles, alternates, "
                      "dates)");
  const auto text = [&](size_t i) { return parts[i].asText("a text of a chat's form"); };
  ChatForm form{text(0), text(1), text(2), text(3), {}, parts[5].asInteger("alternates") != 0, {}};
  for (const Value &own : parts[4].asList(-1, "roles")) {
    const std::vector<Value> &role = own.asList(4, "a role (name, before, after, trimmed)");
    form.roles.push_back({role[0].asText("a role's name"), role[1].asText("a role's text"),
                          role[2].asText("a role's text"),
                          role[3].asInteger("whether contents are trimmed") != 0});
  }
  for (const Value &own : parts[6].asList(-1, "dates")) {
    const std::vector<Value> &date = own.asList(2, "a date (mark, format)");
    form.dates.push_back({date[0].asText("the mark of a date"), date[1].asText("a date's format")});
    if (form.dates.back().mark.empty() || form.dates.back().format.empty())
      throw InputError("a date has a mark and a format");
  }
  return form;
}

/// A time here in the words of a format.
std::string written(std::time_t time, const std::string &format) {
  std::tm parts = {};
  if (localtime_r(&time, &parts) == nullptr)
    throw InputError("the time " + std::to_string(int64_t(time)) + " has no date");
  std::string found(format.size() + 128, '\0');
  for (; found.size() <= kMostOfDate; found.resize(2 * found.size()))
    if (const size_t count = std::strftime(found.data(), found.size(), format.c_str(), &parts))
      return found.substr(0, count);
  return {}; // formats such as %p may stand for nothing
}

/// Makes rules of version 2, which have one normal form, those of version 3.
void upgradeRules(Value &tokenizer) {
  if (tokenizer.kind != Value::Kind::List || tokenizer.items.empty())
    return;
  std::vector<Value> &rules = tokenizer.items.back().items;
  if (rules.size() != 5)
    return;
  std::vector<Value> forms;
  if (rules[1].kind == Value::Kind::List) {
    constexpr int64_t kFirstMark = 0x300; // NFC leaves texts without one as they are
    rules[1].items.insert(rules[1].items.begin(), Value::integer(kFirstMark));
    forms.push_back(rules[1]);
  }
  rules[1] = Value::list(std::move(forms));
  rules.push_back(Value::of(Value::Kind::Text, ""));
}

std::string replaced(std::string text, const std::string &mark, const std::string &with) {
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + with.size()))
    text.replace(at, mark.size(), with);
  return text;
}

} // namespace

//===----------------------------------------------------------------------===//
// Chats
//===----------------------------------------------------------------------===//

const ChatForm::Role &ChatForm::role(const std::string &name) const {
  std::string known;
  for (const Role &own : roles) {
    if (own.name == name)
      return own;
    known += (known.empty() ? "" : ", ") + own.name;
  }
  throw InputError("the chat template has no form for the role '" + name + "'; known are " + known);
}

void ChatForm::check(const std::vector<Message> &messages, bool behindAnswer) const {
  std::string last = behindAnswer ? "assistant" : "";
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string &own = messages[i].role;
    if (own == "system" && (i > 0 || behindAnswer))
      throw InputError("a system's message must be the first one of a conversation");
    if (alternates && own != "system" && own != (last == "user" ? "assistant" : "user"))
      throw InputError(
          "the chat template takes messages of users and answers in turn, but message " +
          std::to_string(i) + " is of the role '" + own + "'");
    if (own != "system")
      last = own;
  }
}

ChatForm ChatForm::at(std::time_t time) const {
  ChatForm found = *this;
  found.dates.clear();
  for (const Date &date : dates) {
    const std::string text = written(time, date.format);
    for (std::string *own : {&found.start, &found.systemStart, &found.answer})
      *own = replaced(*own, date.mark, text);
    for (Role &role : found.roles)
      for (std::string *own : {&role.before, &role.after})
        *own = replaced(*own, date.mark, text);
  }
  return found;
}

std::string ChatForm::render(const std::vector<Message> &messages, bool behindAnswer) const {
  check(messages, behindAnswer);
  const bool system = !messages.empty() && messages[0].role == "system";
  std::string text = behindAnswer ? role("assistant").after : system ? systemStart : start;
  for (const Message &message : messages) {
    const Role &own = role(message.role);
    text += own.before;
    text += own.trimmed ? trimmed(message.content) : std::string_view(message.content);
    text += own.after;
  }
  return text + answer;
}

//===----------------------------------------------------------------------===//
// The section
//===----------------------------------------------------------------------===//

std::unique_ptr<const Text> Text::none() {
  auto text = std::make_unique<Text>();
  text->noTokenizer = "the bundle has no section 'text': an earlier version wrote it; bundle the "
                      "model again, or give ids of tokens";
  text->noChat = text->noTokenizer;
  return text;
}

const Tokenizer &Text::tokenizer() const {
  if (!own)
    throw InputError("texts can't become ids of tokens: " + noTokenizer);
  return *own;
}

const ChatForm &Text::chat() const {
  if (!form)
    throw InputError("messages can't become a prompt: " + noChat +
                     "; give a prompt that is "
                     "formatted already");
  return *form;
}

std::vector<int32_t> Text::encode(const std::vector<Message> &messages, bool behindAnswer,
                                  std::time_t time) const {
  const std::string text = chat().at(time).render(messages, behindAnswer);
  const std::string &first = chat().beginText;
  const bool hasBegin = !first.empty() && text.compare(0, first.size(), first) == 0;
  return tokenizer().encode(text,
                            hasBegin || behindAnswer ? std::optional<bool>(false) : std::nullopt,
                            /*special=*/true, /*continued=*/behindAnswer);
}

std::unique_ptr<const Text> readText(const std::string &section) {
  Value value = readValue(section);
  const int64_t version = value.kind == Value::Kind::List && !value.items.empty()
                              ? value.items[0].asInteger("the version of section 'text'")
                              : 0;
  if (version < kOldest || version > kVersion)
    throw InputError("section 'text' isn't of version " + std::to_string(kVersion));
  (void)value.asList(3, "section 'text' (version, tokenizer, chat)");
  std::vector<Value> &parts = value.items;
  if (version == 1) {
    Value none;
    if (parts[1].kind == Value::Kind::List)
      parts[1].items.push_back(none);
    none.kind = Value::Kind::List;
    if (parts[2].kind == Value::Kind::List)
      parts[2].items.push_back(none);
  }
  if (version < 3)
    upgradeRules(parts[1]);
  auto text = std::make_unique<Text>();
  if (parts[1].kind == Value::Kind::Text)
    text->noTokenizer = parts[1].text;
  else
    text->own.emplace(parts[1]);
  if (parts[2].kind == Value::Kind::Text)
    text->noChat = parts[2].text;
  else
    text->form = readForm(parts[2]);
  return text;
}

} // namespace rlx::runtime::library
