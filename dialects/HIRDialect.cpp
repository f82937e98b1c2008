// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The HIR dialect: registration and constants.

#include "dialects/HIR.h"

#include "mlir/IR/Builders.h"
#include "mlir/Transforms/InliningUtils.h"

using namespace mlir;
using namespace rlx::hir;

#include "dialects/HIRDialect.cpp.inc"

namespace {
/// Functions of this dialect's operations may be inlined: no operation depends on where it stands.
struct InliningRules final : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const override { return true; }
};
} // namespace

void HIRDialect::initialize() {
  registerHIRDialectOperations(this);
  addInterfaces<InliningRules>();
}

Operation *HIRDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type,
                                           Location loc) {
  auto elements = dyn_cast<ElementsAttr>(value);
  return elements && elements.getType() == type ? ConstantOp::create(builder, loc, type, elements)
                                                : nullptr;
}

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

InFlightDiagnostic rlx::hir::emitInferenceError(std::optional<Location> location,
                                                StringRef operation) {
  if (!location)
    return {};
  return mlir::emitError(*location) << "'" << operation << "' op ";
}
