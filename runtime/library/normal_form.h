// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Unicode's form NFC, in which a letter and its accents are one character where there is one.
#ifndef RLX_RUNTIME_LIBRARY_NORMAL_FORM_H
#define RLX_RUNTIME_LIBRARY_NORMAL_FORM_H

#include "runtime/value.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rlx::runtime::library {

/// Brings texts to the form NFC, by tables that the bundle has: of Hangul, whose syllables are
/// computed, there is nothing in them. Never changes.
class NormalForm {
public:
  /// Reads (parts, compositions, classes), packed numbers of 4 bytes: of each character that has
  /// parts its number, how many there are and these, none of which has parts; (first, second, both)
  /// of characters that become one; (first, last, class) of characters that aren't first in a
  /// letter, in order. Throws InputError for anything else.
  explicit NormalForm(const Value &tables);

  /// The text, which is UTF-8, in the form.
  std::string of(std::string_view text) const;

private:
  struct Marks {
    uint32_t first, last;
    uint8_t order;
  };
  struct Character {
    uint32_t code;
    uint8_t order; // of marks behind a letter; 0 of letters
  };

  uint8_t orderOf(uint32_t code) const;
  void decompose(uint32_t code, std::vector<Character> &found) const;
  bool compose(uint32_t first, uint32_t second, uint32_t &both) const;
  void composeAll(std::vector<Character> &characters) const;

  std::unordered_map<uint32_t, std::vector<uint32_t>> parts;
  std::unordered_map<uint64_t, uint32_t> compositions;
  std::vector<Marks> marks;
};

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_NORMAL_FORM_H
