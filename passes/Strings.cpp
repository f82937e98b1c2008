// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Strings of IR are bytes, and those of Python are Unicode: a name that isn't UTF-8 can't be read
// there.

#include "passes/Bridge.h"

#include "mlir/CAPI/IR.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/Operation.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ConvertUTF.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace {
bool isUTF8(StringRef text) {
  const auto *begin = reinterpret_cast<const llvm::UTF8 *>(text.begin());
  return llvm::isLegalUTF8String(&begin, reinterpret_cast<const llvm::UTF8 *>(text.end()));
}

/// The first string of an operation's attributes that isn't UTF-8. Machine code is no text.
std::optional<StringRef> foreignString(Operation *op) {
  std::optional<StringRef> found;
  AttrTypeWalker walker;
  walker.addWalk([](gpu::ObjectAttr) { return WalkResult::skip(); });
  walker.addWalk([&](StringAttr text) {
    if (isUTF8(text.getValue()))
      return WalkResult::advance();
    found = text.getValue();
    return WalkResult::interrupt();
  });
  walker.walk<WalkOrder::PreOrder>(op->getAttrDictionary());
  return found;
}
} // namespace

std::string rlx::foreignString(MlirOperation root) {
  std::string message;
  unwrap(root)->walk<WalkOrder::PreOrder>([&](Operation *op) {
    std::optional<StringRef> found = ::foreignString(op);
    if (!found)
      return WalkResult::advance();
    llvm::raw_string_ostream stream(message);
    stream << '"';
    llvm::printEscapedString(*found, stream);
    stream << "\" is no text in UTF-8, a string of '" << op->getName() << "'";
    return WalkResult::interrupt();
  });
  return message;
}
