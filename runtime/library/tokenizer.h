// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Texts to token ids and back, for the vocabularies of bundles.
#ifndef RLX_RUNTIME_LIBRARY_TOKENIZER_H
#define RLX_RUNTIME_LIBRARY_TOKENIZER_H

#include "added_tokens.h"
#include "pattern.h"
#include "runtime/value.h"
#include "text_form.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rlx::runtime::library {

/// The tokenizer that `rlx_mlir.models.tokenizer` has of the same vocabulary, with the same ids:
/// byte-level BPE, and SentencePiece's BPE; or that the library of `tokenizer.json` has, unigrams
/// among them. Never changes.
class Tokenizer {
public:
  /// Reads what `rlx_mlir.models.text_section` wrote; throws InputError where it makes no sense.
  explicit Tokenizer(const Value &described);

  size_t size() const { return types.size(); }
  bool endsText(int32_t id) const;

  /// Ids of a text of UTF-8.
  ///
  /// \param begin whether the id that begins texts comes first; nothing for what the vocabulary
  ///     asks for.
  /// \param special whether texts of control tokens are these.
  /// \param continued the text goes on behind another one: no space is put in front of it.
  ///
  /// Throws InputError where the text isn't UTF-8, or no id begins texts, but one is asked for.
  std::vector<int32_t> encode(std::string_view text, std::optional<bool> begin, bool special,
                              bool continued) const;

  /// Bytes of a token, which are UTF-8 once those of several are put together; none of a control
  /// token, but where `special` asks for its text.
  std::string_view bytes(int32_t id, bool special) const;

private:
  enum Type : uint8_t { Normal = 1, Unknown, Control, UserDefined, Unused, Byte };
  struct Merge {
    uint32_t rank;
    int32_t result;
  };
  /// Where a space is put first that the text doesn't have.
  enum class Space : uint8_t {
    Nowhere,
    Normal, // in front of each text between raw tokens
    Each,   // in front of each text between tokens that begins with none
    First,  // in front of the first one, where nothing is before it, and it begins with none
    Words   // in front of each word that begins with none; other white space goes
  };
  /// What vocabularies of `tokenizer.json` have beside.
  struct Rules {
    AddedTokens raw;    // that are found in texts as they are
    AddedTokens normal; // and in their form
    AddedTokens spaced; // the same behind a space that is put first: it belongs to their texts
    std::vector<std::unique_ptr<const TextForm>> forms; // of texts, one after the other
    Space space = Space::Nowhere;
    bool fuses = false; // characters in turn that are unknown become one token
  };
  /// A piece of a text while it is merged; those that are left are linked.
  struct Symbol {
    int32_t id;
    int32_t previous, next;
    std::string_view text; // empty once it is part of another one
  };

  void readTokens(const Value &bytes, const Value &offsets, const Value &kinds);
  void readMerges(const Value &packed);
  void readScores(const Value &packed);
  void readUnigrams(const Value &packed);
  void readRules(const Value &described);
  void readAdded(const Value &tokens, const Value &words, Rules &found);
  void listTexts();
  void listByteTexts();
  void checkId(int64_t id, const char *what) const;
  std::string_view raw(int32_t id) const;
  std::vector<Fragment> cut(std::string_view text, bool special) const;
  void encodeByRules(std::string_view text, bool asSpecial, bool continued,
                     std::vector<int32_t> &ids) const;
  void encodeWords(std::string_view text, bool continued, std::vector<int32_t> &ids) const;
  void encodePieces(std::string_view text, std::vector<int32_t> &ids) const;
  std::vector<Symbol> bytesOf(std::string_view piece) const;
  std::vector<Symbol> charactersOf(std::string_view piece) const;
  void encodePiece(std::string_view piece, std::vector<int32_t> &ids) const;
  void encodeUnigrams(std::string_view piece, std::vector<int32_t> &ids) const;
  void encodeSentence(const std::string &text, std::vector<int32_t> &ids) const;
  void append(const Symbol &symbol, bool &afterUnknown, std::vector<int32_t> &ids) const;

  bool sentences = false;  // SentencePiece's, not byte-level BPE
  bool characters = false; // BPE of characters, not of bytes
  bool unigrams = false;   // the likeliest tokens, of a vocabulary of characters
  bool wholePieces = false;
  bool addBegin = false, addSpace = false;
  std::optional<int32_t> begin;
  std::vector<int32_t> ends;
  std::vector<int32_t> ofByte; // of each byte its token, -1 where there is none
  std::vector<Pattern> patterns;
  std::string content, shown; // bytes of all tokens: as texts have them, and as they are shown
  std::vector<uint32_t> starts, shownStarts;
  std::vector<uint8_t> types;
  std::vector<bool> matched;                 // of each token, whether text becomes it by merging
  std::vector<int32_t> special, userDefined; // what is cut out, the longest first
  std::unordered_map<uint64_t, Merge> merges;
  std::vector<float> scores;
  std::vector<double> likelihoods; // logarithms, of unigrams
  double unknownLikelihood = 0;
  std::vector<std::string> byteTexts;                  // that unigrams have of bytes' tokens, too
  size_t longest = 0;                                  // bytes of a token that texts become
  std::unordered_map<std::string_view, int32_t> texts; // that merging makes
  std::unordered_map<std::string_view, int32_t> reserved;
  int32_t unknown = -1;
  std::optional<Rules> rules; // of `tokenizer.json`
};

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_TOKENIZER_H
