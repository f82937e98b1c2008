// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Losses and their gradients: inference.

#include "dialects/MIR.h"

using namespace mlir;
using namespace rlx::mir;

/// Logits [n, c] with what has an entry for each row.
static FailureOr<SmallVector<int64_t>> logitsShape(std::optional<Location> location, StringRef op,
                                                   Type logitsType,
                                                   ArrayRef<std::pair<StringRef, Type>> others) {
  FailureOr<RankedTensorType> logits = tensorType(location, op, "logits", logitsType);
  if (failed(logits))
    return failure();
  if (logits->getRank() != 2) // C1
    return inferError(location, op, "expects 'logits' to have two dimensions, but its rank is ",
                      logits->getRank());
  SmallVector<int64_t> shape(logits->getShape());
  for (auto [name, type] : others) {
    FailureOr<RankedTensorType> own = tensorType(location, op, name, type);
    if (failed(own))
      return failure();
    if (own->getRank() != 1) // C1
      return inferError(location, op, "expects '", name,
                        "' to have one dimension, but its rank is ", own->getRank());
    FailureOr<int64_t> rows = joinSizes(shape[0], own->getDimSize(0));
    if (failed(rows)) // C2
      return inferError(location, op, "expects '", name, "' to have an entry for each of the ",
                        shape[0], " rows of 'logits', but got ", own->getDimSize(0));
    shape[0] = *rows;
  }
  return shape;
}

LogicalResult SoftmaxCrossEntropyWithLogitsOp::inferReturnTypes(MLIRContext *,
                                                                std::optional<Location> location,
                                                                Adaptor adaptor,
                                                                SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  Type logits = adaptor.getLogits().getType();
  FailureOr<SmallVector<int64_t>> shape =
      logitsShape(location, op, logits, {{"labels", adaptor.getLabels().getType()}});
  if (failed(shape))
    return failure();
  if ((*shape)[1] == 0 && (*shape)[0] > 0) // C3
    return inferError(location, op, "expects a class for the ", (*shape)[0],
                      " rows of 'logits', but got none");
  results.push_back(
      RankedTensorType::get((*shape)[0], cast<RankedTensorType>(logits).getElementType()));
  return success();
}

LogicalResult SoftmaxCrossEntropyBackwardOp::inferReturnTypes(MLIRContext *,
                                                              std::optional<Location> location,
                                                              Adaptor adaptor,
                                                              SmallVectorImpl<Type> &results) {
  Type logits = adaptor.getLogits().getType();
  FailureOr<SmallVector<int64_t>> shape = logitsShape(
      location, getOperationName(), logits,
      {{"labels", adaptor.getLabels().getType()}, {"d_loss", adaptor.getDLoss().getType()}});
  if (failed(shape))
    return failure();
  results.push_back(RankedTensorType::get(*shape, cast<RankedTensorType>(logits).getElementType()));
  return success();
}
