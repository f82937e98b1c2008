// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions, softmax, running sums and largest elements: inference and verifiers.

#include "dialects/MIR.h"

#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace rlx::mir;

LogicalResult ReduceOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                         Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  if (failed(x) || failed(requireAttributes(location, op, {{"axes", adaptor.getAxesAttr()}})))
    return failure();
  llvm::SmallBitVector reduced(x->getRank());
  for (int64_t axis : adaptor.getAxes()) {
    if (axis < 0 || axis >= x->getRank() || reduced.test(axis)) // C1
      return inferError(location, op, "expects 'axes' to be different dimensions of 'x', whose ",
                        "rank is ", x->getRank(), ", but got ", shapeText(adaptor.getAxes()));
    reduced.set(axis);
  }
  SmallVector<int64_t> shape;
  for (auto [dim, size] : llvm::enumerate(x->getShape())) {
    if (!reduced.test(dim))
      shape.push_back(size);
    else if (adaptor.getKeepDims())
      shape.push_back(1);
  }
  results.push_back(RankedTensorType::get(shape, x->getElementType()));
  return success();
}

LogicalResult ReduceOp::verify() {
  Type element = getX().getType().getElementType();
  const ReduceKind kind = getKind();
  if (kind == ReduceKind::Mean && !isa<FloatType, ComplexType>(element)) // C2
    return emitOpError("expects 'x' to be of floats or complex numbers with kind mean, but its "
                       "element type is ")
           << element;
  bool ofConditions = kind == ReduceKind::Any || kind == ReduceKind::All;
  if (ofConditions != element.isInteger(1)) // C3
    return emitOpError("expects 'x' to be of ")
           << (ofConditions ? "i1" : "numbers") << " with kind " << stringifyReduceKind(kind)
           << ", but its element type is " << element;
  if (isa<ComplexType>(element) && kind != ReduceKind::Sum && kind != ReduceKind::Mean) // C4
    return emitOpError("expects kind sum or mean of complex numbers, but got ")
           << stringifyReduceKind(kind);
  return success();
}

/// Checks that `axis` is a dimension, counted from either end.
template <typename Op> static LogicalResult verifyAxis(Op op) {
  int64_t axis = op.getAxis(), rank = op.getX().getType().getRank();
  if (axisFromFront(axis, rank))
    return success();
  return op.emitOpError("expects 'axis' to be a dimension of 'x', whose rank is ")
         << rank << ", but got " << axis;
}

LogicalResult SoftmaxOp::verify() { return verifyAxis(*this); } // C1

LogicalResult CumsumOp::verify() { return verifyAxis(*this); } // C1

LogicalResult TopKOp::inferReturnTypes(MLIRContext *context, std::optional<Location> location,
                                       Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  if (failed(x) || failed(requireAttributes(location, op, {{"k", adaptor.getKAttr()}})))
    return failure();
  if (x->getRank() == 0) // C1
    return inferError(location, op, "expects 'x' to have at least one dimension, but it is ",
                      shapeText(x->getShape()));
  FailureOr<SmallVector<int64_t>> dims =
      likeSizes(location, op, adaptor.getLike(), adaptor.getLikeDimsAttr());
  if (failed(dims)) // C2
    return failure();
  FailureOr<KnownSize> k = sizeOf(location, op, "k", adaptor.getKAttr(), *dims);
  if (failed(k)) // C3
    return failure();
  SmallVector<int64_t> shape(x->getShape());
  const int64_t n = shape.back();
  if (*k && (**k < 0 || (ShapedType::isStatic(n) && **k > n))) // C4
    return inferError(location, op, "expects 'k' to be from 0 to the last dimension of 'x', ",
                      sizeText(n), ", but got ", **k);
  shape.back() = k->value_or(ShapedType::kDynamic);
  results.push_back(RankedTensorType::get(shape, x->getElementType()));
  results.push_back(RankedTensorType::get(shape, IntegerType::get(context, 32)));
  return success();
}

LogicalResult TopKOp::fold(FoldAdaptor, SmallVectorImpl<OpFoldResult> &) {
  FailureOr<SmallVector<int64_t>> dims =
      likeSizes(std::nullopt, getOperationName(), getLike(), getLikeDimsAttr());
  if (failed(dims) || getLike().empty())
    return failure();
  IntegerAttr k = knownSize(getKAttr(), *dims);
  if (!k)
    return failure();
  setKAttr(k);
  removeLikeDimsAttr();
  getLikeMutable().clear();
  return success();
}
