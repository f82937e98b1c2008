// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Forms of texts: Unicode's normal forms, such as NFC, in which a letter and its accents are one
// character where there is one, and texts without upper case.
#ifndef RLX_RUNTIME_LIBRARY_NORMAL_FORM_H
#define RLX_RUNTIME_LIBRARY_NORMAL_FORM_H

#include "text_form.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rlx::runtime::library {

/// Brings texts to a form by tables that the bundle has: of Hangul, whose syllables are computed,
/// there is nothing in those of normal forms. Never changes.
class NormalForm : public TextForm {
public:
  /// Reads (bound, parts), of characters that become others, or (bound, parts, compositions,
  /// classes), of a normal form. A text whose characters are all below the bound stays as it is.
  /// The others are packed numbers of 4 bytes: of each character that has parts its number, how
  /// many there are and these, none of which has parts; (first, second, both) of characters that
  /// become one, none where the form is of parts; (first, last, class) of characters that aren't
  /// first in a letter, in order. Throws InputError for anything else.
  explicit NormalForm(const Value &tables);

  std::string of(std::string_view text) const override;

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

  void readParts(const Value &packed);
  void readComposition(const Value &pairs, const Value &ranges);

  bool isNormal = false; // a normal form, not characters by themselves
  uint32_t bound = 0;
  uint32_t firstParted = 0xffffffff; // the first character that has parts
  std::unordered_map<uint32_t, std::vector<uint32_t>> parts;
  std::unordered_map<uint64_t, uint32_t> compositions;
  std::vector<Marks> marks;
};

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_NORMAL_FORM_H
