// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fused operations that belong to no other family: inference.

#include "dialects/MIR.h"

using namespace mlir;
using namespace rlx::mir;

LogicalResult FusedSwigluOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                              Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  if (failed(x))
    return failure();
  SmallVector<int64_t> shape(x->getShape());
  if (shape.empty() || (ShapedType::isStatic(shape.back()) && shape.back() % 2 != 0)) // C1
    return inferError(location, op, "expects the last dimension of 'x' to be even, but 'x' is ",
                      shapeText(shape));
  if (ShapedType::isStatic(shape.back()))
    shape.back() /= 2;
  results.push_back(RankedTensorType::get(shape, x->getElementType()));
  return success();
}
