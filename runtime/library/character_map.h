// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// SentencePiece's table of characters and what they become, as the library of `tokenizer.json` uses
// it: by what a reader takes for one character.
#ifndef RLX_RUNTIME_LIBRARY_CHARACTER_MAP_H
#define RLX_RUNTIME_LIBRARY_CHARACTER_MAP_H

#include "text_form.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace rlx::runtime::library {

/// Texts whose characters become others. A cluster, which is a letter with all that belongs to it,
/// becomes what the shortest entry says that it begins with, where it has fewer than 6 bytes and
/// there is one; otherwise each of its characters does.
class CharacterMap : public TextForm {
public:
  /// Reads ("characters", entries, texts, classes), which `rlx_mlir.models.character_map` wrote:
  /// packed numbers of 4 bytes, four of each entry, which are its first 4 bytes, the fifth one and
  /// 256 times how many there are, and where its text begins and ends; these texts; and of ranges
  /// of characters the first, the last and their `Class`, in order. Throws InputError for anything
  /// else.
  explicit CharacterMap(const Value &described);

  std::string of(std::string_view text) const override;

private:
  /// How characters stand together, as bits.
  enum Class : uint32_t {
    Joins = 1,      // belongs to what is before it
    Control = 2,    // belongs to nothing
    Prepended = 4,  // what is behind it belongs to it
    Pictograph = 8, // a joiner joins it to another one
    Extends = 16,   // may stand between a pictograph and a joiner
    Consonant = 32, // a linker joins it to another one
    Links = 64,
    Linked = 128, // may stand between consonants and linkers
    Leading = 256,
    Vowel = 512,
    Trailing = 1024,
    Known = 2047
  };
  struct Range {
    uint32_t first, last, own;
  };
  struct Span {
    uint32_t begin, end;
  };

  uint32_t classOf(uint32_t code) const;
  size_t clusterAt(std::string_view text, size_t at) const;
  bool map(std::string_view text, std::string &found) const;

  std::unordered_map<uint64_t, Span> entries;
  std::string texts;
  std::vector<Range> classes;
};

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_CHARACTER_MAP_H
