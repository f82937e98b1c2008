// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element-wise operations: inference with broadcasting, verifiers and folders.

#include "dialects/MIR.h"

using namespace mlir;
using namespace rlx::mir;

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

//===----------------------------------------------------------------------===//
// CastOp
//===----------------------------------------------------------------------===//

LogicalResult CastOp::verify() {
  ArrayRef<int64_t> from = getX().getType().getShape(), to = getType().getShape();
  if (from != to) // C1
    return emitOpError("expects the result to have the shape of 'x', ")
           << shapeText(from) << ", but its shape is " << shapeText(to);
  return success();
}

OpFoldResult CastOp::fold(FoldAdaptor) {
  return getX().getType() == getType() ? OpFoldResult(getX()) : OpFoldResult();
}

//===----------------------------------------------------------------------===//
// Broadcasting
//===----------------------------------------------------------------------===//

/// Shape of `lhs` and `rhs` broadcast; the names are what a message calls them.
static FailureOr<SmallVector<int64_t>> inferBroadcast(std::optional<Location> location,
                                                      StringRef op, ArrayRef<int64_t> lhs,
                                                      ArrayRef<int64_t> rhs, StringRef lhsName,
                                                      StringRef rhsName) {
  FailureOr<SmallVector<int64_t>> shape = broadcastShapes(lhs, rhs);
  if (failed(shape)) // C1
    return inferError(location, op, "expects the shapes of ", lhsName, " and ", rhsName,
                      " to broadcast, but got ", shapeText(lhs), " and ", shapeText(rhs));
  return shape;
}

template <typename Op>
static LogicalResult inferBinary(std::optional<Location> location, typename Op::Adaptor adaptor,
                                 Type element, SmallVectorImpl<Type> &results) {
  StringRef op = Op::getOperationName();
  FailureOr<RankedTensorType> lhs = tensorType(location, op, "lhs", adaptor.getLhs().getType());
  FailureOr<RankedTensorType> rhs = tensorType(location, op, "rhs", adaptor.getRhs().getType());
  if (failed(lhs) || failed(rhs))
    return failure();
  FailureOr<SmallVector<int64_t>> shape =
      inferBroadcast(location, op, lhs->getShape(), rhs->getShape(), "'lhs'", "'rhs'");
  if (failed(shape))
    return failure();
  results.push_back(RankedTensorType::get(*shape, element ? element : lhs->getElementType()));
  return success();
}

#define INFER_BINARY(Op)                                                                           \
  LogicalResult Op::inferReturnTypes(MLIRContext *, std::optional<Location> location,              \
                                     Adaptor adaptor, SmallVectorImpl<Type> &results) {            \
    return inferBinary<Op>(location, adaptor, /*element=*/{}, results);                            \
  }
INFER_BINARY(AddOp)
INFER_BINARY(SubOp)
INFER_BINARY(MulOp)
INFER_BINARY(DivOp)
INFER_BINARY(MaxOp)
INFER_BINARY(MinOp)
INFER_BINARY(PowOp)
#undef INFER_BINARY

LogicalResult CompareOp::inferReturnTypes(MLIRContext *context, std::optional<Location> location,
                                          Adaptor adaptor, SmallVectorImpl<Type> &results) {
  return inferBinary<CompareOp>(location, adaptor, IntegerType::get(context, 1), results);
}

LogicalResult WhereOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                        Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> condition =
      tensorType(location, op, "condition", adaptor.getCondition().getType());
  FailureOr<RankedTensorType> onTrue =
      tensorType(location, op, "on_true", adaptor.getOnTrue().getType());
  FailureOr<RankedTensorType> onFalse =
      tensorType(location, op, "on_false", adaptor.getOnFalse().getType());
  if (failed(condition) || failed(onTrue) || failed(onFalse))
    return failure();
  FailureOr<SmallVector<int64_t>> sides = inferBroadcast(
      location, op, onTrue->getShape(), onFalse->getShape(), "'on_true'", "'on_false'");
  if (failed(sides))
    return failure();
  FailureOr<SmallVector<int64_t>> shape =
      inferBroadcast(location, op, condition->getShape(), *sides, "'condition'", "the choices");
  if (failed(shape))
    return failure();
  results.push_back(RankedTensorType::get(*shape, onTrue->getElementType()));
  return success();
}
