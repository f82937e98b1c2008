// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rules of the blocks that multiply activations by weights, and of the norms.

#include "dialects/HIRRules.h"

using namespace mlir;
using namespace rlx::hir;

static constexpr StringLiteral columnsOfX = "'x' has columns";

/// The type of `x` with its last dimension replaced.
static Type withColumns(RankedTensorType x, int64_t columns) {
  SmallVector<int64_t> shape(x.getShape());
  shape.back() = columns;
  return RankedTensorType::get(shape, x.getElementType());
}

static LogicalResult expectRows(EmitError error, RankedTensorType x) {
  if (x.getRank() < 2) // C1
    return error() << "expects 'x' to have at least two dimensions, but got " << x.getRank();
  return success();
}

/// The rules of `linear` and `linear_fused`, which have the same numbers.
template <typename Adaptor>
static LogicalResult checkLinear(Adaptor op, EmitError error, SmallVectorImpl<Type> &results) {
  if (failed(expectTensors(error, op.getOperands())))
    return failure();
  RankedTensorType x = tensor(op.getX());
  if (failed(expectRows(error, x))) // C1
    return failure();
  Weights weights(error, x.getElementType(), op.getTransposeWeight());
  FailureOr<int64_t> outputs = // C2 to C5
      weights.outputs("weight", op.getWeight(), x.getShape().back(), columnsOfX);
  if (failed(outputs) || failed(weights.finish())) // C6
    return failure();
  if (Value bias = op.getBias()) {
    RankedTensorType type = tensor(bias);
    if (type.getRank() != 1) // C7
      return error() << "expects 'bias' to have one dimension, but got " << type.getRank();
    if (differ(type.getDimSize(0), *outputs)) // C7
      return error() << "expects 'bias' to be as long as 'weight' has outputs, " << *outputs
                     << ", but its length is " << type.getDimSize(0);
    if (type.getElementType() != x.getElementType()) // C8
      return error() << "expects 'bias' to have the element type of 'x', " << x.getElementType()
                     << ", but got " << type.getElementType();
    if (ShapedType::isDynamic(*outputs)) // The size that is known is the size of both.
      outputs = type.getDimSize(0);
  }
  results.push_back(withColumns(x, *outputs));
  return success();
}

LogicalResult LinearOp::check(Adaptor op, EmitError error, SmallVectorImpl<Type> &results) {
  return checkLinear(op, error, results);
}

LogicalResult LinearFusedOp::check(Adaptor op, EmitError error, SmallVectorImpl<Type> &results) {
  return checkLinear(op, error, results);
}

LogicalResult SharedLinearPairOp::check(Adaptor op, EmitError error,
                                        SmallVectorImpl<Type> &results) {
  if (failed(expectTensors(error, op.getOperands())))
    return failure();
  RankedTensorType x = tensor(op.getX());
  if (failed(expectRows(error, x))) // C1
    return failure();
  Weights weights(error, x.getElementType(), op.getTransposeWeight());
  int64_t inputs = x.getShape().back();
  FailureOr<int64_t> first = weights.outputs("w_first", op.getWFirst(), inputs, columnsOfX);
  if (failed(first)) // C2 to C5
    return failure();
  FailureOr<int64_t> second = weights.outputs("w_second", op.getWSecond(), inputs, columnsOfX);
  if (failed(second) || failed(weights.finish())) // C6
    return failure();
  results.push_back(withColumns(x, *first));
  results.push_back(withColumns(x, *second));
  return success();
}

LogicalResult SwigluOp::check(Adaptor op, EmitError error, SmallVectorImpl<Type> &results) {
  if (failed(expectTensors(error, op.getOperands())))
    return failure();
  RankedTensorType x = tensor(op.getX());
  if (failed(expectRows(error, x))) // C1
    return failure();
  Weights weights(error, x.getElementType(), op.getTransposeWeight());
  int64_t inputs = x.getShape().back();
  FailureOr<int64_t> hidden = weights.outputs("gate_w", op.getGateW(), inputs, columnsOfX);
  if (failed(hidden)) // C2 to C5
    return failure();
  StringRef outputsOfGate = "'gate_w' has outputs";
  if (failed(weights.check("up_w", op.getUpW(), inputs, columnsOfX, *hidden, outputsOfGate)))
    return failure(); // C7
  FailureOr<int64_t> outputs = weights.outputs("down_w", op.getDownW(), *hidden, outputsOfGate);
  if (failed(outputs) || failed(weights.finish())) // C7, C6
    return failure();
  results.push_back(withColumns(x, *outputs));
  return success();
}

LogicalResult DequantMatmulOp::check(Adaptor op, EmitError error, SmallVectorImpl<Type> &results) {
  if (failed(expectTensors(error, op.getOperands())))
    return failure();
  RankedTensorType x = tensor(op.getX());
  if (failed(expectRows(error, x))) // C1
    return failure();
  Weights weights(error, x.getElementType(), /*transpose=*/false);
  FailureOr<int64_t> outputs = // C2, C3
      weights.outputs("weight", op.getWeight(), x.getShape().back(), columnsOfX);
  if (failed(outputs))
    return failure();
  results.push_back(withColumns(x, *outputs));
  return success();
}

LogicalResult DequantMatmulScaledOp::check(Adaptor op, EmitError error,
                                           SmallVectorImpl<Type> &results) {
  if (!op.getSchemeAttr()) // Inference runs before the presence of attributes is verified.
    return error() << "requires attribute 'scheme'";
  if (failed(expectTensors(error, op.getOperands())) ||
      failed(expectRows(error, tensor(op.getX()))))
    return failure();                                                           // C1
  FailureOr<RankedTensorType> result = rlx::mir::inferScaledProduct(op, error); // C1 to C7
  if (failed(result))
    return failure();
  results.push_back(*result);
  return success();
}

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

/// The rules of both norms, which have the same numbers.
template <typename Adaptor>
static LogicalResult checkNorm(Adaptor op, EmitError error, SmallVectorImpl<Type> &results) {
  if (failed(expectTensors(error, op.getOperands())))
    return failure();
  RankedTensorType x = tensor(op.getX());
  if (x.getRank() == 0) // C1
    return error() << "expects 'x' to have at least one dimension, but got 0";
  if (failed(checkNormVector(error, "gamma", op.getGamma(), x)) || // C2, C3
      failed(checkNormVector(error, "beta", op.getBeta(), x)) ||
      failed(checkEps(error, op.getEps()))) // C4
    return failure();
  results.push_back(x);
  return success();
}

LogicalResult RmsNormOp::check(Adaptor op, EmitError error, SmallVectorImpl<Type> &results) {
  return checkNorm(op, error, results);
}

LogicalResult ResidualRmsNormOp::check(Adaptor op, EmitError error,
                                       SmallVectorImpl<Type> &results) {
  if (failed(checkNorm(op, error, results)))
    return failure();
  Type x = op.getX().getType(), residual = op.getResidual().getType();
  if (x != residual) // C5
    return error() << "expects 'residual' to have the type of 'x', " << x << ", but got "
                   << residual;
  return success();
}
