// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Choosing tokens: inference.

#include "dialects/MIR.h"

using namespace mlir;
using namespace rlx::mir;

LogicalResult SampleOp::inferReturnTypes(MLIRContext *context, std::optional<Location> location,
                                         Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> values =
      tensorType(location, op, "values", adaptor.getValues().getType());
  FailureOr<RankedTensorType> indices =
      tensorType(location, op, "indices", adaptor.getIndices().getType());
  FailureOr<RankedTensorType> controls =
      tensorType(location, op, "controls", adaptor.getControls().getType());
  FailureOr<RankedTensorType> draws =
      tensorType(location, op, "draws", adaptor.getDraws().getType());
  FailureOr<RankedTensorType> chosen =
      tensorType(location, op, "chosen", adaptor.getChosen().getType());
  FailureOr<RankedTensorType> pos = tensorType(location, op, "pos", adaptor.getPos().getType());
  if (failed(values) || failed(indices) || failed(controls) || failed(draws) || failed(chosen) ||
      failed(pos))
    return failure();
  ArrayRef<int64_t> shape = values->getShape();
  if (shape.size() != 2 || ShapedType::isDynamic(shape[1]) || shape[1] < 1) // C1
    return inferError(location, op, "expects 'values' to be [B, k] with a static k of at least 1, ",
                      "but it is ", shapeText(shape));
  if (indices->getShape() != shape) // C2
    return inferError(location, op, "expects 'indices' to have the shape of 'values', ",
                      shapeText(shape), ", but it is ", shapeText(indices->getShape()));
  const int64_t batch = shape[0];
  auto isMatrix = [&](RankedTensorType type) {
    return type.getRank() == 2 && sizesAgree(type.getDimSize(0), batch);
  };
  if (!isMatrix(*controls) || !sizesAgree(controls->getDimSize(1), 3)) // C3
    return inferError(location, op, "expects 'controls' to be [", sizeText(batch),
                      ", 3], but it is ", shapeText(controls->getShape()));
  if (!isMatrix(*chosen) || !isMatrix(*draws) || chosen->getDimSize(1) == 0 ||
      !sizesAgree(chosen->getDimSize(1), draws->getDimSize(1))) // C4
    return inferError(location, op, "expects 'chosen' and 'draws' to be [", sizeText(batch),
                      ", P] with P of at least 1, but they are ", shapeText(chosen->getShape()),
                      " and ", shapeText(draws->getShape()));
  if (pos->getRank() != 1 || !sizesAgree(pos->getDimSize(0), batch)) // C5
    return inferError(location, op, "expects 'pos' to have one entry per sequence, ",
                      sizeText(batch), ", but it is ", shapeText(pos->getShape()));
  const Type integer = IntegerType::get(context, 32);
  results.push_back(RankedTensorType::get({batch, 1}, integer));
  results.push_back(RankedTensorType::get({batch}, integer));
  results.push_back(*chosen);
  return success();
}
