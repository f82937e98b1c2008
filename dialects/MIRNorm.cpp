// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Normalisations: verifiers.

#include "dialects/MIR.h"

using namespace mlir;
using namespace rlx::mir;

/// Checks that `vector` is as long as `size` and, where it's optional, of the element type of x.
static LogicalResult verifyVector(Operation *op, StringRef name, Value vector, RankedTensorType x,
                                  int64_t axis) {
  if (!vector)
    return success();
  auto type = cast<RankedTensorType>(vector.getType());
  if (!sizesAgree(type.getDimSize(0), x.getDimSize(axis)))
    return op->emitOpError("expects '")
           << name << "' to be as long as dimension " << axis << " of 'x', " << x.getDimSize(axis)
           << ", but its length is " << type.getDimSize(0);
  if (type.getElementType() != x.getElementType())
    return op->emitOpError("expects '")
           << name << "' to have the element type of 'x', " << x.getElementType() << ", but got "
           << type.getElementType();
  return success();
}

static LogicalResult verifyEps(Operation *op, FloatAttr eps) {
  if (eps.getValue().isFinite() && eps.getValueAsDouble() > 0)
    return success();
  return op->emitOpError("expects a positive, finite 'eps', but got ") << eps.getValueAsDouble();
}

template <typename Op> static LogicalResult verifyNorm(Op op) {
  RankedTensorType x = op.getX().getType();
  std::optional<int64_t> axis = axisFromFront(int64_t(op.getAxis()), x.getRank());
  if (!axis) // C1
    return op.emitOpError("expects 'axis' to be a dimension of 'x', whose rank is ")
           << x.getRank() << ", but got " << int64_t(op.getAxis());
  if (failed(verifyVector(op, "gamma", op.getGamma(), x, *axis)) || // C2
      failed(verifyVector(op, "beta", op.getBeta(), x, *axis)))     // C3
    return failure();
  return verifyEps(op, op.getEpsAttr()); // C4
}

LogicalResult LayerNormOp::verify() { return verifyNorm(*this); }

LogicalResult RmsNormOp::verify() { return verifyNorm(*this); }

template <typename Op> static LogicalResult verifyFusedNorm(Op op) {
  RankedTensorType x = op.getX().getType();
  if (x.getRank() == 0) // C1
    return op.emitOpError("expects 'x' to have at least one dimension, but its rank is 0");
  int64_t last = x.getRank() - 1;
  if (failed(verifyVector(op, "gamma", op.getGamma(), x, last)) || // C2
      failed(verifyVector(op, "bias", op.getBias(), x, last)) ||   // C3
      failed(verifyVector(op, "beta", op.getBeta(), x, last)))     // C3
    return failure();
  return verifyEps(op, op.getEpsAttr()); // C4
}

LogicalResult FusedResidualLayerNormOp::verify() { return verifyFusedNorm(*this); }

LogicalResult FusedResidualRmsNormOp::verify() { return verifyFusedNorm(*this); }
