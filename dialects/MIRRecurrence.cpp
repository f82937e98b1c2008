// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recurrences: inference.

#include "dialects/MIR.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace rlx::mir;

/// Whether two shapes can be one.
static bool shapesAgree(ArrayRef<int64_t> lhs, ArrayRef<int64_t> rhs) {
  return llvm::equal(lhs, rhs, sizesAgree);
}

/// Adds the type of the result, which is that of the first operand, and that of the last state.
///
/// \p name of the first operand.
/// \p state that the recurrence starts from, or none.
/// \p shape of states.
static LogicalResult inferWithState(std::optional<Location> location, StringRef op, StringRef name,
                                    RankedTensorType first, Value state, ArrayRef<int64_t> shape,
                                    SmallVectorImpl<Type> &results) {
  Type element = first.getElementType();
  Type wide = element.isF64() ? element : Type(Float32Type::get(first.getContext()));
  results.push_back(first);
  if (!state) {
    results.push_back(RankedTensorType::get(shape, wide));
    return success();
  }
  FailureOr<RankedTensorType> type = tensorType(location, op, "state", state.getType());
  if (failed(type))
    return failure();
  if (!shapesAgree(type->getShape(), shape)) // C3, C4
    return inferError(location, op, "expects 'state' to be ", shapeText(shape), ", but got ",
                      shapeText(type->getShape()));
  if (type->getElementType() != wide) // C4, C5
    return inferError(location, op, "expects 'state' to be of ", wide, " where '", name, "' is of ",
                      element, ", but got ", type->getElementType());
  results.push_back(*type);
  return success();
}

LogicalResult GatedDeltaNetOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                                Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> q = tensorType(location, op, "q", adaptor.getQ().getType());
  FailureOr<RankedTensorType> g = tensorType(location, op, "g", adaptor.getG().getType());
  if (failed(q) || failed(g))
    return failure();
  if (q->getRank() != 4) // C1
    return inferError(location, op, "expects 'q' to have four dimensions, but its rank is ",
                      q->getRank());
  ArrayRef<int64_t> shape = q->getShape(), gates = shape.drop_back();
  Type element = q->getElementType();
  if (!shapesAgree(g->getShape(), gates) || g->getElementType() != element) // C2
    return inferError(location, op, "expects 'g' and 'beta' to be ", shapeText(gates), " of ",
                      element, ", but got ", *g);
  if (IntegerAttr chunk = adaptor.getChunkAttr(); chunk && chunk.getInt() < 1) // C5
    return inferError(location, op, "expects 'chunk' to be positive, but got ", chunk.getInt());
  int64_t n = shape[3];
  int64_t memory[] = {shape[0], shape[2], n, n};
  return inferWithState(location, op, "q", *q, adaptor.getState(), memory, results);
}

LogicalResult SelectiveScanOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                                Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  FailureOr<RankedTensorType> a = tensorType(location, op, "a", adaptor.getA().getType());
  FailureOr<RankedTensorType> b = tensorType(location, op, "b", adaptor.getB().getType());
  if (failed(x) || failed(a) || failed(b))
    return failure();
  if (x->getRank() != 3) // C1
    return inferError(location, op, "expects 'x' to have three dimensions, but its rank is ",
                      x->getRank());
  ArrayRef<int64_t> shape = x->getShape();
  Type element = x->getElementType();
  int64_t dynamic = ShapedType::kDynamic;
  if (!shapesAgree(a->getShape(), {shape[2], dynamic}) || a->getElementType() != element) // C2
    return inferError(location, op, "expects 'a' to be [", sizeText(shape[2]), ", n] of ", element,
                      ", but got ", *a);
  int64_t n = a->getDimSize(1);
  int64_t inputs[] = {shape[0], shape[1], n};
  if (!shapesAgree(b->getShape(), inputs) || b->getElementType() != element) // C3
    return inferError(location, op, "expects 'b' and 'c' to be ", shapeText(inputs), " of ",
                      element, ", but got ", *b);
  int64_t memory[] = {shape[0], shape[2], ShapedType::isDynamic(n) ? b->getDimSize(2) : n};
  return inferWithState(location, op, "x", *x, adaptor.getState(), memory, results);
}
