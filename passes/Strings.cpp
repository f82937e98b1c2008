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

/// Looks for strings that aren't UTF-8 in attributes, locations and types, each of which is looked
/// at once, however many operations have it.
class StringSearch {
public:
  StringSearch() {
    // Machine code is no text.
    walker.addWalk([](gpu::ObjectAttr) { return WalkResult::skip(); });
    walker.addWalk([this](StringAttr text) { return visit(text.getValue()); });
    // Walks don't go into those that aren't made of attributes and types.
    walker.addWalk([this](FileLineColRange file) { return visit(file.getFilename().getValue()); });
    walker.addWalk([this](OpaqueAttr opaque) { return visit(opaque.getAttrData()); });
    walker.addWalk([this](OpaqueType opaque) { return visit(opaque.getTypeData()); });
    walker.addWalk([this](DenseStringElementsAttr elements) {
      for (StringRef text : elements.getRawStringData())
        if (visit(text).wasInterrupted())
          return WalkResult::interrupt();
      return WalkResult::advance();
    });
  }

  /// Whether an operation has such a string, which `found` is then; its regions are left out.
  bool visit(Operation *op) {
    if (visit(op->getName().getStringRef()).wasInterrupted())
      return true;
    if (interrupts(op->getAttrDictionary()) || interrupts(op->getLoc()))
      return true;
    for (Type type : op->getResultTypes())
      if (interrupts(type))
        return true;
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (BlockArgument argument : block.getArguments())
          if (interrupts(argument.getType()) || interrupts(argument.getLoc()))
            return true;
    return false;
  }

  StringRef found;

private:
  WalkResult visit(StringRef text) {
    if (isUTF8(text))
      return WalkResult::advance();
    found = text;
    return WalkResult::interrupt();
  }
  template <typename T> bool interrupts(T element) {
    return walker.walk<WalkOrder::PreOrder>(element).wasInterrupted();
  }

  AttrTypeWalker walker;
};
} // namespace

std::string rlx::foreignString(MlirOperation root) {
  std::string message;
  StringSearch search;
  unwrap(root)->walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (!search.visit(op))
      return WalkResult::advance();
    llvm::raw_string_ostream stream(message);
    stream << '"';
    llvm::printEscapedString(search.found, stream);
    stream << "\" is no text in UTF-8, a string of '";
    llvm::printEscapedString(op->getName().getStringRef(), stream);
    stream << "'";
    return WalkResult::interrupt();
  });
  return message;
}
