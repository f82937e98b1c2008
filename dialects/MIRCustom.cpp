// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations that users register from Python: what can be said of them without knowing which.

#include "dialects/MIR.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace rlx::mir;

/// Whether the text is a name of Python's, in ASCII.
static bool isIdentifier(StringRef text) {
  auto isPart = [](char c) { return llvm::isAlnum(c) || c == '_'; };
  return !text.empty() && !llvm::isDigit(text.front()) && llvm::all_of(text, isPart);
}

/// Whether the text is two or more such names joined by dots, and not in a dialect of ours.
static bool isOwnName(StringRef text) {
  SmallVector<StringRef> words;
  text.split(words, '.');
  return words.size() > 1 && llvm::all_of(words, isIdentifier) && words[0] != "mir" &&
         words[0] != "hir";
}

static bool isParameter(Attribute value) {
  if (auto array = dyn_cast<ArrayAttr>(value))
    return llvm::all_of(array,
                        [](Attribute item) { return !isa<ArrayAttr>(item) && isParameter(item); });
  if (auto integer = dyn_cast<IntegerAttr>(value))
    return integer.getType().isSignlessInteger(1) || integer.getType().isSignlessInteger(64);
  if (auto number = dyn_cast<FloatAttr>(value))
    return number.getType().isF64();
  return isa<StringAttr>(value);
}

LogicalResult CustomOp::verify() {
  if (!isOwnName(getOp())) // C1
    return emitOpError() << "expects 'op' to be a name such as \"my.op\", but got \"" << getOp()
                         << "\"";
  if (getInputs().empty() || getOutputs().empty()) // C2
    return emitOpError() << "expects an input and a result, but got " << getInputs().size()
                         << " and " << getOutputs().size();
  DictionaryAttr parameters = getParametersAttr();
  if (!parameters)
    return success();
  for (NamedAttribute parameter : parameters) {
    if (!isIdentifier(parameter.getName())) // C3
      return emitOpError() << "expects the name of a parameter to be a word, but got \""
                           << parameter.getName().getValue() << "\"";
    if (!isParameter(parameter.getValue())) // C3
      return emitOpError() << "expects parameter '" << parameter.getName().getValue()
                           << "' to be a boolean, an i64, an f64, a string or an array of these, "
                              "but got "
                           << parameter.getValue();
  }
  return success();
}
