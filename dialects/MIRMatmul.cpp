// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products of dense tensors: inference.

#include "dialects/MIR.h"

using namespace mlir;
using namespace rlx::mir;

//===----------------------------------------------------------------------===//
// MatmulOp
//===----------------------------------------------------------------------===//

LogicalResult MatmulOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                         Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> lhs = tensorType(location, op, "lhs", adaptor.getLhs().getType());
  FailureOr<RankedTensorType> rhs = tensorType(location, op, "rhs", adaptor.getRhs().getType());
  if (failed(lhs) || failed(rhs))
    return failure();
  ArrayRef<int64_t> left = lhs->getShape(), right = rhs->getShape();
  if (left.size() < 2 || right.size() < 2) // C1
    return inferError(location, op,
                      "expects 'lhs' and 'rhs' to have at least two dimensions, but got ",
                      shapeText(left), " and ", shapeText(right));
  auto [n, k] = std::pair(right[right.size() - 1], right[right.size() - 2]);
  if (adaptor.getTransposeRhs())
    std::swap(n, k);
  if (!sizesAgree(left.back(), k)) // C2
    return inferError(location, op, "expects 'lhs' and 'rhs' to have the same k, but got ",
                      sizeText(left.back()), " and ", sizeText(k));
  FailureOr<SmallVector<int64_t>> shape = broadcastShapes(left.drop_back(2), right.drop_back(2));
  if (failed(shape)) // C3
    return inferError(location, op,
                      "expects the batch dimensions of 'lhs' and 'rhs' to broadcast, but got ",
                      shapeText(left.drop_back(2)), " and ", shapeText(right.drop_back(2)));
  shape->append({left[left.size() - 2], n});
  Type element = lhs->getElementType(), other = rhs->getElementType();
  bool ofBytes = element.isInteger(8) && other.isInteger(8);
  if (element != other && !ofBytes) // C4
    return inferError(location, op,
                      "expects 'lhs' and 'rhs' to be of one element type or of bytes, but got ",
                      element, " and ", other);
  if (ofBytes) // Their sums would overflow.
    element = IntegerType::get(element.getContext(), 32);
  results.push_back(RankedTensorType::get(*shape, element));
  return success();
}

//===----------------------------------------------------------------------===//
// FusedMatmulBiasActOp
//===----------------------------------------------------------------------===//

LogicalResult FusedMatmulBiasActOp::inferReturnTypes(MLIRContext *,
                                                     std::optional<Location> location,
                                                     Adaptor adaptor,
                                                     SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  FailureOr<RankedTensorType> weight =
      tensorType(location, op, "weight", adaptor.getWeight().getType());
  FailureOr<RankedTensorType> bias = tensorType(location, op, "bias", adaptor.getBias().getType());
  if (failed(x) || failed(weight) || failed(bias))
    return failure();
  if (x->getRank() < 1 || weight->getRank() != 2) // C1
    return inferError(
        location, op,
        "expects 'x' to have at least one dimension and 'weight' two, but their ranks are ",
        x->getRank(), " and ", weight->getRank());
  int64_t k = weight->getDimSize(0), n = weight->getDimSize(1);
  if (adaptor.getTransposeRhs())
    std::swap(n, k);
  if (!sizesAgree(x->getShape().back(), k)) // C2
    return inferError(location, op, "expects 'x' and 'weight' to have the same k, but got ",
                      sizeText(x->getShape().back()), " and ", sizeText(k));
  FailureOr<int64_t> width =
      bias->getRank() == 1 ? joinSizes(n, bias->getDimSize(0)) : FailureOr<int64_t>(failure());
  if (failed(width)) // C3
    return inferError(location, op, "expects 'bias' to be as long as the n of 'weight', ",
                      sizeText(n), ", but its shape is ", shapeText(bias->getShape()));
  SmallVector<int64_t> shape(x->getShape());
  shape.back() = *width;
  results.push_back(RankedTensorType::get(shape, x->getElementType()));
  return success();
}

//===----------------------------------------------------------------------===//
// ScaledMatmulOp
//===----------------------------------------------------------------------===//

/// Whether a scale is one number, or has one for each entry of `entries`.
static bool isScaleOf(RankedTensorType scale, ArrayRef<int64_t> entries) {
  ArrayRef<int64_t> shape = scale.getShape();
  if (shape.empty() || (shape.size() == 1 && shape.front() == 1))
    return true;
  return shape.size() == entries.size() && llvm::equal(shape, entries, sizesAgree);
}

LogicalResult ScaledMatmulOp::verify() {
  ArrayRef<int64_t> left = getLhs().getType().getShape(), right = getRhs().getType().getShape();
  if (left.size() < 2 || right.size() < 2) // C1
    return emitOpError("expects 'lhs' and 'rhs' to have at least two dimensions, but got ")
           << shapeText(left) << " and " << shapeText(right);
  ArrayRef<int64_t> batches = right.drop_back(2), leftRows = left.drop_back();
  auto [n, k] = std::pair(right[right.size() - 1], right[right.size() - 2]);
  if (getTransposeRhs())
    std::swap(n, k);
  if (!sizesAgree(left.back(), k)) // C2
    return emitOpError("expects 'lhs' and 'rhs' to have the same k, but got ")
           << sizeText(left.back()) << " and " << sizeText(k);
  FailureOr<SmallVector<int64_t>> shape = broadcastShapes(leftRows.drop_back(), batches);
  if (failed(shape)) // C3
    return emitOpError("expects the batch dimensions of 'lhs' and 'rhs' to broadcast, but got ")
           << shapeText(leftRows.drop_back()) << " and " << shapeText(batches);
  SmallVector<int64_t> columns(batches);
  columns.push_back(n);
  std::tuple<StringRef, Value, ArrayRef<int64_t>> scales[] = {{"lhs", getLhsScale(), leftRows},
                                                              {"rhs", getRhsScale(), columns}};
  for (auto [name, scale, entries] : scales) { // C4, C5
    if (!scale || isScaleOf(cast<RankedTensorType>(scale.getType()), entries))
      continue;
    return emitOpError("expects '")
           << name << "_scale' to be [], [1] or " << shapeText(entries) << ", as '" << name
           << "' without k, but it is "
           << shapeText(cast<RankedTensorType>(scale.getType()).getShape());
  }
  shape->append({leftRows.back(), n});
  if (getType().getShape() != ArrayRef<int64_t>(*shape)) // C6
    return emitOpError("expects the result to be ")
           << shapeText(*shape) << ", but it is " << shapeText(getType().getShape());
  return success();
}
