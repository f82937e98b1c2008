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
  results.push_back(RankedTensorType::get(*shape, lhs->getElementType()));
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
