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

/// The dimension that is normalised along, from the front.
template <typename Op> static FailureOr<int64_t> verifyAxis(Op op, RankedTensorType x) {
  if (std::optional<int64_t> axis = axisFromFront(int64_t(op.getAxis()), x.getRank()))
    return *axis;
  return op.emitOpError("expects 'axis' to be a dimension of 'x', whose rank is ")
         << x.getRank() << ", but got " << int64_t(op.getAxis());
}

template <typename Op> static LogicalResult verifyNorm(Op op) {
  RankedTensorType x = op.getX().getType();
  FailureOr<int64_t> axis = verifyAxis(op, x); // C1
  if (failed(axis))
    return failure();
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

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

template <typename Op> static LogicalResult verifyBackwardInput(Op op) {
  RankedTensorType x = op.getX().getType();
  FailureOr<int64_t> axis = verifyAxis(op, x);                                    // C1
  if (failed(axis) || failed(verifyVector(op, "gamma", op.getGamma(), x, *axis))) // C2
    return failure();
  return verifyEps(op, op.getEpsAttr()); // C3
}

LogicalResult LayerNormBackwardInputOp::verify() { return verifyBackwardInput(*this); }

LogicalResult RmsNormBackwardInputOp::verify() { return verifyBackwardInput(*this); }

template <typename Op>
static LogicalResult inferBackwardGamma(MLIRContext *context, std::optional<Location> location,
                                        typename Op::Adaptor adaptor,
                                        SmallVectorImpl<Type> &results) {
  StringRef op = Op::getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  if (failed(x))
    return failure();
  // The parser infers before it fills in defaults.
  typename Op::Properties properties = adaptor.getProperties();
  Op::populateDefaultProperties({op, context}, properties);
  int64_t given = properties.axis.getInt();
  std::optional<int64_t> axis = axisFromFront(given, x->getRank());
  if (!axis) // C1
    return inferError(location, op, "expects 'axis' to be a dimension of 'x', whose rank is ",
                      x->getRank(), ", but got ", given);
  APFloat eps = properties.eps.getValue();
  if (!eps.isFinite() || !(eps.convertToDouble() > 0)) // C2
    return inferError(location, op, "expects a positive, finite 'eps', but got ",
                      eps.convertToDouble());
  results.push_back(RankedTensorType::get({x->getDimSize(*axis)}, x->getElementType()));
  return success();
}

LogicalResult LayerNormBackwardGammaOp::inferReturnTypes(MLIRContext *context,
                                                         std::optional<Location> location,
                                                         Adaptor adaptor,
                                                         SmallVectorImpl<Type> &results) {
  return inferBackwardGamma<LayerNormBackwardGammaOp>(context, location, adaptor, results);
}

LogicalResult RmsNormBackwardGammaOp::inferReturnTypes(MLIRContext *context,
                                                       std::optional<Location> location,
                                                       Adaptor adaptor,
                                                       SmallVectorImpl<Type> &results) {
  return inferBackwardGamma<RmsNormBackwardGammaOp>(context, location, adaptor, results);
}
