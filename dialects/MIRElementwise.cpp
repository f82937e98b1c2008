// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element-wise operations: inference with broadcasting, verifiers and folders.

#include "dialects/MIR.h"

using namespace mlir;
using namespace rlx::mir;

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

//===----------------------------------------------------------------------===//
// IotaOp
//===----------------------------------------------------------------------===//

LogicalResult IotaOp::verify() {
  ArrayRef<int64_t> shape = getType().getShape();
  int64_t rank = shape.size(), axis = getAxis();
  if (axis < 0 || axis >= rank) // C1
    return emitOpError("expects 'axis' to be a dimension of the result, whose rank is ")
           << rank << ", but got " << axis;
  ArrayRef<int64_t> like = getLike() ? getLike().getType().getShape() : ArrayRef<int64_t>();
  ArrayRef<int64_t> dims = getLikeDims().value_or(ArrayRef<int64_t>());
  if (bool(getLike()) != bool(getLikeDims()) || (getLike() && int64_t(dims.size()) != rank)) // C2
    return emitOpError("expects 'like_dims' to have an entry for each of the result's ")
           << rank << " dimensions with 'like' and to be absent without it, but "
           << (getLikeDims() ? "it is " + shapeText(dims) : "it is absent")
           << (getLike() ? " with 'like'" : " without 'like'");
  for (auto [dim, size] : llvm::enumerate(shape)) {
    int64_t source = dims.empty() ? -1 : dims[dim];
    if (source < -1 || source >= int64_t(like.size())) // C3
      return emitOpError(
                 "expects entries of 'like_dims' to be -1 or dimensions of 'like', whose rank is ")
             << like.size() << ", but got " << shapeText(dims);
    if (source < 0 ? ShapedType::isDynamic(size) : !sizesAgree(size, like[source])) // C4
      return emitOpError("expects dimension ")
             << dim << " of the result to be "
             << (source < 0 ? "static without an entry of 'like_dims'"
                            : "as long as dimension " + std::to_string(source) + " of 'like', " +
                                  sizeText(like[source]))
             << ", but it is " << sizeText(size);
  }
  return success();
}

OpFoldResult IotaOp::fold(FoldAdaptor) {
  // Along a dimension of size 1 there is but position 0.
  if (!getType().hasStaticShape() || getType().getDimSize(getAxis()) > 1)
    return {};
  return DenseElementsAttr::get(getType(),
                                Builder(getContext()).getZeroAttr(getType().getElementType()));
}

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
INFER_BINARY(AndOp)
INFER_BINARY(OrOp)
INFER_BINARY(XorOp)
INFER_BINARY(FloorDivOp)
INFER_BINARY(FloorRemOp)
INFER_BINARY(TruncDivOp)
INFER_BINARY(TruncRemOp)
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

//===----------------------------------------------------------------------===//
// Folders of functions of bits and integers
//===----------------------------------------------------------------------===//

/// The one number that a constant's elements are, or nothing.
static std::optional<APInt> splatOf(Attribute constant) {
  auto elements = dyn_cast_or_null<DenseIntElementsAttr>(constant);
  return elements && elements.isSplat() ? std::optional(elements.getSplatValue<APInt>())
                                        : std::nullopt;
}

/// A constant of one number, or nothing where the shape is dynamic.
static OpFoldResult splat(RankedTensorType type, const APInt &number) {
  return type.hasStaticShape() ? OpFoldResult(DenseElementsAttr::get(type, number))
                               : OpFoldResult();
}

static OpFoldResult zeros(RankedTensorType type) {
  return splat(type, APInt::getZero(type.getElementTypeBitWidth()));
}

/// The operand that isn't a constant for which `holds`, where one is such a constant, and the
/// other has the result's shape.
template <typename Op>
static Value besideConstant(Op op, typename Op::FoldAdaptor adaptor,
                            llvm::function_ref<bool(const APInt &)> holds) {
  auto is = [&](Attribute constant) {
    std::optional<APInt> number = splatOf(constant);
    return number && holds(*number);
  };
  if (is(adaptor.getRhs()) && op.getLhs().getType() == op.getType())
    return op.getLhs();
  if (is(adaptor.getLhs()) && op.getRhs().getType() == op.getType())
    return op.getRhs();
  return {};
}

/// The number for which `holds`, where an operand is a constant of it.
template <typename Adaptor>
static std::optional<APInt> constantOperand(Adaptor adaptor,
                                            llvm::function_ref<bool(const APInt &)> holds) {
  for (Attribute operand : {adaptor.getLhs(), adaptor.getRhs()})
    if (std::optional<APInt> number = splatOf(operand); number && holds(*number))
      return number;
  return std::nullopt;
}

static bool isZero(const APInt &number) { return number.isZero(); }
static bool isAllOnes(const APInt &number) { return number.isAllOnes(); }

OpFoldResult NotOp::fold(FoldAdaptor) {
  auto inner = getX().getDefiningOp<NotOp>(); // not(not(x)) -> x
  return inner ? OpFoldResult(inner.getX()) : OpFoldResult();
}

OpFoldResult AndOp::fold(FoldAdaptor adaptor) {
  if (getLhs() == getRhs()) // and(x, x) -> x
    return getLhs();
  if (Value other = besideConstant(*this, adaptor, isAllOnes)) // and(x, ones) -> x
    return other;
  if (std::optional<APInt> zero = constantOperand(adaptor, isZero)) // and(x, 0) -> 0
    return splat(getType(), *zero);
  return {};
}

OpFoldResult OrOp::fold(FoldAdaptor adaptor) {
  if (getLhs() == getRhs()) // or(x, x) -> x
    return getLhs();
  if (Value other = besideConstant(*this, adaptor, isZero)) // or(x, 0) -> x
    return other;
  if (std::optional<APInt> ones = constantOperand(adaptor, isAllOnes)) // or(x, ones) -> ones
    return splat(getType(), *ones);
  return {};
}

OpFoldResult XorOp::fold(FoldAdaptor adaptor) {
  if (getLhs() == getRhs()) // xor(x, x) -> 0
    return zeros(getType());
  return besideConstant(*this, adaptor, isZero); // xor(x, 0) -> x
}

/// x / 1 -> x
template <typename Op> static OpFoldResult foldQuotient(Op op, typename Op::FoldAdaptor adaptor) {
  std::optional<APInt> divisor = splatOf(adaptor.getRhs());
  bool same = divisor && divisor->isOne() && op.getLhs().getType() == op.getType();
  return same ? OpFoldResult(op.getLhs()) : OpFoldResult();
}

/// x % 1, x % -1, x % 0 -> 0; all ones are -1 where there is a sign.
template <typename Op> static OpFoldResult foldRemainder(Op op, typename Op::FoldAdaptor adaptor) {
  std::optional<APInt> divisor = splatOf(adaptor.getRhs());
  bool isSigned = !op.getType().getElementType().isUnsignedInteger();
  bool isNone =
      divisor && (divisor->isOne() || divisor->isZero() || (isSigned && divisor->isAllOnes()));
  return isNone ? zeros(op.getType()) : OpFoldResult();
}

OpFoldResult FloorDivOp::fold(FoldAdaptor adaptor) { return foldQuotient(*this, adaptor); }
OpFoldResult TruncDivOp::fold(FoldAdaptor adaptor) { return foldQuotient(*this, adaptor); }
OpFoldResult FloorRemOp::fold(FoldAdaptor adaptor) { return foldRemainder(*this, adaptor); }
OpFoldResult TruncRemOp::fold(FoldAdaptor adaptor) { return foldRemainder(*this, adaptor); }
