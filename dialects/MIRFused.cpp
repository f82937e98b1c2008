// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fused operations that belong to no other family: inference.

#include "dialects/MIR.h"

#include "llvm/ADT/STLExtras.h"

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

//===----------------------------------------------------------------------===//
// FusedAttentionBlockOp, FusedTransformerLayerOp
//===----------------------------------------------------------------------===//

namespace {

/// Checks the operands of an encoder's operation against `hidden`, [B, S, h].
class EncoderChecks {
public:
  EncoderChecks(std::optional<Location> location, StringRef op) : location(location), op(op) {}

  /// Reads `hidden` and the heads: C1, C2.
  LogicalResult read(Value value, int64_t numHeads, int64_t headDim) {
    FailureOr<RankedTensorType> type = tensorType(location, op, "hidden", value.getType());
    if (failed(type))
      return failure();
    hidden = *type;
    if (hidden.getRank() != 3) // C1
      return inferError(location, op, "expects 'hidden' to have three dimensions, but its rank is ",
                        hidden.getRank());
    if (numHeads <= 0 || headDim <= 0 || numHeads > INT32_MAX / 3 / headDim) // C2
      return inferError(location, op,
                        "expects positive 'num_heads' and 'head_dim', three times whose product is "
                        "below 2^31, but got ",
                        numHeads, " and ", headDim);
    heads = numHeads;
    width = numHeads * headDim;
    return success();
  }

  /// Checks the shape and element type of a weight; one that is absent is right.
  LogicalResult weight(StringRef name, Value value, ArrayRef<int64_t> shape) const { // C3
    if (!value)
      return success();
    FailureOr<RankedTensorType> type = tensorType(location, op, name, value.getType());
    if (failed(type))
      return failure();
    if (type->getElementType() == hidden.getElementType() &&
        llvm::equal(type->getShape(), shape, sizesAgree))
      return success();
    return inferError(location, op, "expects '", name, "' to be ", shapeText(shape), " of ",
                      hidden.getElementType(), ", but got ", *type);
  }

  LogicalResult mask(Value value) const { // C4
    FailureOr<RankedTensorType> type = tensorType(location, op, "mask", value.getType());
    if (failed(type))
      return failure();
    int64_t batch = hidden.getDimSize(0), length = hidden.getDimSize(1);
    SmallVector<int64_t> full{batch, heads, length, length};
    if (type->getRank() == 2)
      full = {batch, length};
    Type element = type->getElementType();
    if (type->getRank() == int64_t(full.size()) && broadcastsTo(type->getShape(), full) &&
        sizesAgree(type->getShape().back(), length) &&
        (element.isInteger(1) || element == hidden.getElementType()))
      return success();
    return inferError(location, op, "expects 'mask' to be ", shapeText(full),
                      ", where all but the last may be 1, of i1 or ", hidden.getElementType(),
                      ", but got ", *type);
  }

  LogicalResult tables(Value value, int64_t headDim) const { // C5
    FailureOr<RankedTensorType> type = tensorType(location, op, "cos", value.getType());
    if (failed(type))
      return failure();
    int64_t length = hidden.getDimSize(1);
    Type element = type->getElementType();
    bool isShort = type->getRank() > 0 && ShapedType::isStatic(type->getDimSize(0)) &&
                   type->getDimSize(0) < length;
    if (headDim % 2 == 0 && !isShort &&
        llvm::equal(type->getShape(), ArrayRef<int64_t>{ShapedType::kDynamic, headDim / 2},
                    sizesAgree) &&
        (element.isF32() || element == hidden.getElementType()))
      return success();
    return inferError(location, op, "expects 'cos' and 'sin' to be [P, head_dim / 2] of f32 or ",
                      hidden.getElementType(), ", with an even 'head_dim' and P at least ",
                      sizeText(length), ", but 'head_dim' is ", headDim, " and 'cos' ", *type);
  }

  /// The weights and the mask that both operations have.
  template <typename Adaptor> LogicalResult attention(Adaptor adaptor) const {
    return success(succeeded(weight("qkv_w", adaptor.getQkvW(), {inner(), 3 * width})) &&
                   succeeded(weight("out_w", adaptor.getOutW(), {width, inner()})) &&
                   succeeded(weight("qkv_b", adaptor.getQkvB(), {3 * width})) &&
                   succeeded(weight("out_b", adaptor.getOutB(), {inner()})) &&
                   succeeded(mask(adaptor.getMask())));
  }

  int64_t inner() const { return hidden.getDimSize(2); }
  RankedTensorType type() const { return hidden; }

private:
  std::optional<Location> location;
  StringRef op;
  RankedTensorType hidden;
  int64_t heads = 0, width = 0;
};

} // namespace

LogicalResult FusedAttentionBlockOp::inferReturnTypes(MLIRContext *,
                                                      std::optional<Location> location,
                                                      Adaptor adaptor,
                                                      SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  if (failed(requireAttributes(
          location, op,
          {{"num_heads", adaptor.getNumHeadsAttr()}, {"head_dim", adaptor.getHeadDimAttr()}})))
    return failure();
  EncoderChecks checks(location, op);
  int64_t headDim = adaptor.getHeadDim();
  if (failed(checks.read(adaptor.getHidden(), adaptor.getNumHeads(), headDim)) ||
      failed(checks.attention(adaptor)))
    return failure();
  if (bool(adaptor.getCos()) != bool(adaptor.getSin())) // C5
    return inferError(location, op, "expects 'cos' and 'sin' together, but got one of them");
  if (adaptor.getCos() && adaptor.getCos().getType() != adaptor.getSin().getType()) // C5
    return inferError(location, op, "expects 'cos' and 'sin' to have one type, but got ",
                      adaptor.getCos().getType(), " and ", adaptor.getSin().getType());
  if (adaptor.getCos() && failed(checks.tables(adaptor.getCos(), headDim)))
    return failure();
  results.push_back(checks.type());
  return success();
}

LogicalResult FusedTransformerLayerOp::inferReturnTypes(MLIRContext *context,
                                                        std::optional<Location> location,
                                                        Adaptor adaptor,
                                                        SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  if (failed(requireAttributes(location, op,
                               {{"num_heads", adaptor.getNumHeadsAttr()},
                                {"head_dim", adaptor.getHeadDimAttr()},
                                {"activation", adaptor.getActivationAttr()}})))
    return failure();
  EncoderChecks checks(location, op);
  if (failed(checks.read(adaptor.getHidden(), adaptor.getNumHeads(), adaptor.getHeadDim())) ||
      failed(checks.attention(adaptor)))
    return failure();
  FailureOr<RankedTensorType> fc1 = tensorType(location, op, "fc1_w", adaptor.getFc1W().getType());
  if (failed(fc1))
    return failure();
  if (fc1->getRank() != 2) // C1
    return inferError(location, op, "expects 'fc1_w' to have two dimensions, but its rank is ",
                      fc1->getRank());
  int64_t inner = checks.inner(), outer = fc1->getDimSize(1);
  std::tuple<StringRef, Value, SmallVector<int64_t>> weights[] = {
      {"fc1_w", adaptor.getFc1W(), {inner, outer}}, {"fc2_w", adaptor.getFc2W(), {outer, inner}},
      {"fc1_b", adaptor.getFc1B(), {outer}},        {"fc2_b", adaptor.getFc2B(), {inner}},
      {"ln1_g", adaptor.getLn1G(), {inner}},        {"ln1_b", adaptor.getLn1B(), {inner}},
      {"ln2_g", adaptor.getLn2G(), {inner}},        {"ln2_b", adaptor.getLn2B(), {inner}}};
  for (auto &[name, value, shape] : weights)
    if (failed(checks.weight(name, value, shape))) // C3
      return failure();
  // The parser infers before it fills in defaults.
  Properties properties = adaptor.getProperties();
  populateDefaultProperties({op, context}, properties);
  for (auto [name, eps] : {std::pair("eps1", properties.eps1), std::pair("eps2", properties.eps2)})
    if (!eps.getValue().isFinite() || eps.getValueAsDouble() <= 0) // C5
      return inferError(location, op, "expects a positive, finite '", name, "', but got ",
                        eps.getValueAsDouble());
  results.push_back(checks.type());
  return success();
}
