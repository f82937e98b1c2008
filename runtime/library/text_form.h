// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps that change texts before they are cut and become tokens.
#ifndef RLX_RUNTIME_LIBRARY_TEXT_FORM_H
#define RLX_RUNTIME_LIBRARY_TEXT_FORM_H

#include "runtime/value.h"

#include <memory>
#include <string>
#include <string_view>

namespace rlx::runtime::library {

/// Brings texts to a form. Never changes.
class TextForm {
public:
  virtual ~TextForm() = default;

  /// The text, which is UTF-8, in the form. Throws InputError where that takes too many steps.
  virtual std::string of(std::string_view text) const = 0;
};

/// Reads ("strip", left, right), of texts without the spaces at the ends that are named,
/// ("replace", pattern, text), of what matches becoming a text, ("characters", …), which is a
/// `CharacterMap`, or the tables of a `NormalForm`. Throws InputError for anything else.
std::unique_ptr<const TextForm> readTextForm(const Value &described);

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_TEXT_FORM_H
