// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors of 8 bits with given scales: inference.

#include "dialects/MIR.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace mlir;
using namespace rlx::mir;

namespace {

/// Where an inference is: for its messages.
struct Site {
  std::optional<Location> location;
  StringRef op;

  template <typename... Parts> LogicalResult error(Parts &&...parts) const {
    return inferError(location, op, std::forward<Parts>(parts)...);
  }
};

/// The dimension that has scales of its own for each index, from the front, and its size.
struct Channels {
  std::optional<int64_t> axis;
  int64_t count = 1;

  /// `shape` with the size of the dimension, where that is known.
  SmallVector<int64_t> in(ArrayRef<int64_t> shape) const {
    SmallVector<int64_t> result(shape);
    if (axis)
      result[*axis] = count;
    return result;
  }
};

} // namespace

/// The channels of a tensor by the attribute `axis`.
static FailureOr<Channels> channelsOf(const Site &site, StringRef name, RankedTensorType type,
                                      IntegerAttr axis) {
  if (!axis)
    return Channels{};
  std::optional<int64_t> dim = axisFromFront(axis.getInt(), type.getRank());
  if (!dim)
    return site.error("expects 'axis' to be a dimension of '", name, "', whose rank is ",
                      type.getRank(), ", but got ", axis.getInt());
  return Channels{dim, type.getDimSize(*dim)};
}

/// Checks that an operand has one entry for each channel, and adds what it tells of their number.
static LogicalResult joinChannels(const Site &site, StringRef name, Value operand,
                                  Channels &channels) {
  FailureOr<RankedTensorType> type = tensorType(site.location, site.op, name, operand.getType());
  if (failed(type))
    return failure();
  FailureOr<int64_t> joined =
      type->getRank() == 1 ? joinSizes(channels.count, type->getDimSize(0)) : FailureOr<int64_t>();
  if (failed(joined))
    return site.error("expects '", name, "' to be ", shapeText(channels.count),
                      channels.axis ? ", as 'axis' is long" : " where there is no 'axis'",
                      ", but got ", shapeText(type->getShape()));
  // Of two that are one at run time, the static size holds.
  channels.count = *joined;
  return success();
}

static bool isZeroPoint(int64_t number) { return number >= -128 && number <= 127; }
static bool isScale(float number) { return std::isfinite(number) && number > 0; }

static LogicalResult checkZeroPoint(const Site &site, StringRef name, int64_t number) {
  if (isZeroPoint(number))
    return success();
  return site.error("expects '", name, "' to be from -128 to 127, but got ", number);
}

//===----------------------------------------------------------------------===//
// QuantizeOp and DequantizeOp
//===----------------------------------------------------------------------===//

/// Type of a tensor that becomes one of 8 bits, or was one, by scales in attributes.
template <typename Adaptor>
static LogicalResult inferByScales(const Site &site, StringRef name, Value operand, Adaptor adaptor,
                                   Type element, SmallVectorImpl<Type> &results) {
  if (failed(requireAttributes(
          site.location, site.op,
          {{"scales", adaptor.getScalesAttr()}, {"zero_points", adaptor.getZeroPointsAttr()}})))
    return failure();
  FailureOr<RankedTensorType> type = tensorType(site.location, site.op, name, operand.getType());
  if (failed(type))
    return failure();
  FailureOr<Channels> channels = channelsOf(site, name, *type, adaptor.getAxisAttr()); // C1
  if (failed(channels))
    return failure();
  SmallVector<float> scales;
  for (Attribute entry : adaptor.getScales()) {
    auto scale = dyn_cast<FloatAttr>(entry);
    if (!scale || !scale.getType().isF32())
      return site.error("expects the entries of 'scales' to be of f32, but got ", entry);
    scales.push_back(scale.getValue().convertToFloat());
  }
  ArrayRef<int32_t> zeroPoints = adaptor.getZeroPoints();
  int64_t count = scales.size();
  if (scales.size() != zeroPoints.size() || !sizesAgree(channels->count, count)) // C2
    return site.error("expects 'scales' and 'zero_points' to have ", sizeText(channels->count),
                      " entries", channels->axis ? ", as 'axis' is long" : " without 'axis'",
                      ", but got ", scales.size(), " and ", zeroPoints.size());
  for (float scale : scales) // C3
    if (!isScale(scale))
      return site.error("expects the entries of 'scales' to be finite and positive, but got ",
                        scale);
  for (int32_t zeroPoint : zeroPoints) // C4
    if (!isZeroPoint(zeroPoint))
      return site.error("expects the entries of 'zero_points' to be from -128 to 127, but got ",
                        zeroPoint);
  channels->count = count;
  results.push_back(RankedTensorType::get(channels->in(type->getShape()), element));
  return success();
}

LogicalResult QuantizeOp::inferReturnTypes(MLIRContext *context, std::optional<Location> location,
                                           Adaptor adaptor, SmallVectorImpl<Type> &results) {
  return inferByScales({location, getOperationName()}, "x", adaptor.getX(), adaptor,
                       IntegerType::get(context, 8), results);
}

LogicalResult DequantizeOp::inferReturnTypes(MLIRContext *context, std::optional<Location> location,
                                             Adaptor adaptor, SmallVectorImpl<Type> &results) {
  return inferByScales({location, getOperationName()}, "q", adaptor.getQ(), adaptor,
                       Float32Type::get(context), results);
}

//===----------------------------------------------------------------------===//
// FakeQuantizeOp, FakeQuantizeLsqOp, and their gradients
//===----------------------------------------------------------------------===//

/// The type of `x`, and its channels, of an operation with `bits` and `axis`.
template <typename Adaptor>
static LogicalResult readRounding(const Site &site, Adaptor adaptor, RankedTensorType &x,
                                  Channels &channels) {
  if (failed(requireAttributes(site.location, site.op, {{"bits", adaptor.getBitsAttr()}})))
    return failure();
  FailureOr<RankedTensorType> type =
      tensorType(site.location, site.op, "x", adaptor.getX().getType());
  if (failed(type))
    return failure();
  int64_t bits = adaptor.getBitsAttr().getInt();
  if (bits != 8 && bits != 4 && bits != 2) // C1
    return site.error("expects 'bits' to be 8, 4 or 2, but got ", bits);
  FailureOr<Channels> found = channelsOf(site, "x", *type, adaptor.getAxisAttr()); // C2
  if (failed(found))
    return failure();
  x = *type;
  channels = *found;
  return success();
}

static Type vectorOf(const Channels &channels, MLIRContext *context) {
  return RankedTensorType::get(channels.count, Float32Type::get(context));
}

LogicalResult FakeQuantizeOp::inferReturnTypes(MLIRContext *context,
                                               std::optional<Location> location, Adaptor adaptor,
                                               SmallVectorImpl<Type> &results) {
  Site site{location, getOperationName()};
  RankedTensorType x;
  Channels channels;
  if (failed(readRounding(site, adaptor, x, channels)))
    return failure();
  // The parser infers before it fills in defaults.
  Properties properties = adaptor.getProperties();
  populateDefaultProperties({site.op, context}, properties);
  ScaleMode mode = properties.scale_mode.getValue();
  StringRef word = stringifyScaleMode(mode);
  if (bool(adaptor.getState()) != (mode != ScaleMode::PerBatch)) // C3
    return site.error(adaptor.getState() ? "has no 'state' with " : "expects 'state' with ", word);
  FloatAttr decay = adaptor.getDecayAttr();
  if (bool(decay) != (mode == ScaleMode::Ema)) // C3
    return site.error(decay ? "has no 'decay' with " : "expects 'decay' with ", word);
  if (adaptor.getState() && failed(joinChannels(site, "state", adaptor.getState(), channels))) // C4
    return failure();
  if (decay && !(decay.getValueAsDouble() >= 0 && decay.getValueAsDouble() <= 1)) // C5
    return site.error("expects 'decay' to be from 0 to 1, but got ", decay.getValueAsDouble());
  results.push_back(RankedTensorType::get(channels.in(x.getShape()), x.getElementType()));
  results.push_back(vectorOf(channels, context));
  return success();
}

/// Type of `x` and that of the scales, of an operation that has them as operand.
template <typename Adaptor>
static FailureOr<std::pair<Type, Type>> inferRounding(const Site &site, Adaptor adaptor) {
  RankedTensorType x;
  Channels channels;
  if (failed(readRounding(site, adaptor, x, channels)) ||
      failed(joinChannels(site, "scale", adaptor.getScale(), channels))) // C3
    return failure();
  Type result = RankedTensorType::get(channels.in(x.getShape()), x.getElementType());
  return std::pair(result, vectorOf(channels, x.getContext()));
}

/// Adds the type of `x`, or else that of the scales, to `results`.
template <typename Adaptor>
static LogicalResult inferAsX(const Site &site, Adaptor adaptor, bool asX,
                              SmallVectorImpl<Type> &results) {
  FailureOr<std::pair<Type, Type>> types = inferRounding(site, adaptor);
  if (failed(types))
    return failure();
  results.push_back(asX ? types->first : types->second);
  return success();
}

LogicalResult FakeQuantizeBackwardOp::inferReturnTypes(MLIRContext *,
                                                       std::optional<Location> location,
                                                       Adaptor adaptor,
                                                       SmallVectorImpl<Type> &results) {
  return inferAsX({location, getOperationName()}, adaptor, /*asX=*/true, results);
}

LogicalResult FakeQuantizeLsqOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                                  Adaptor adaptor, SmallVectorImpl<Type> &results) {
  return inferAsX({location, getOperationName()}, adaptor, /*asX=*/true, results);
}

LogicalResult FakeQuantizeLsqBackwardXOp::inferReturnTypes(MLIRContext *,
                                                           std::optional<Location> location,
                                                           Adaptor adaptor,
                                                           SmallVectorImpl<Type> &results) {
  return inferAsX({location, getOperationName()}, adaptor, /*asX=*/true, results);
}

LogicalResult FakeQuantizeLsqBackwardScaleOp::inferReturnTypes(MLIRContext *,
                                                               std::optional<Location> location,
                                                               Adaptor adaptor,
                                                               SmallVectorImpl<Type> &results) {
  return inferAsX({location, getOperationName()}, adaptor, /*asX=*/false, results);
}

//===----------------------------------------------------------------------===//
// QMatmulOp and QConv2dOp
//===----------------------------------------------------------------------===//

/// The types of `x` and `weight`, and the properties of a product with their defaults.
template <typename Properties> struct ProductParts {
  RankedTensorType x, weight;
  Properties properties;
};

/// Reads what both products have.
template <typename Op>
static FailureOr<ProductParts<typename Op::Properties>>
readProduct(const Site &site, MLIRContext *context, typename Op::Adaptor adaptor) {
  FailureOr<RankedTensorType> x = tensorType(site.location, site.op, "x", adaptor.getX().getType());
  FailureOr<RankedTensorType> weight =
      tensorType(site.location, site.op, "weight", adaptor.getWeight().getType());
  if (failed(x) || failed(weight))
    return failure();
  // The parser infers before it fills in defaults.
  typename Op::Properties properties = adaptor.getProperties();
  Op::populateDefaultProperties({site.op, context}, properties);
  return ProductParts<typename Op::Properties>{*x, *weight, properties};
}

/// Checks `bias`, the zero points and `mult` of a product, and gives the number of outputs.
template <typename Adaptor, typename Properties>
static FailureOr<int64_t> checkProduct(const Site &site, Adaptor adaptor,
                                       const Properties &properties, int64_t outputs) {
  if (Value bias = adaptor.getBias()) {
    FailureOr<RankedTensorType> type = tensorType(site.location, site.op, "bias", bias.getType());
    if (failed(type))
      return failure();
    FailureOr<int64_t> joined =
        type->getRank() == 1 ? joinSizes(outputs, type->getDimSize(0)) : FailureOr<int64_t>();
    if (failed(joined)) // C2, C7
      return site.error("expects 'bias' to be ", shapeText(outputs),
                        ", an entry for each output, but got ", shapeText(type->getShape()));
    outputs = *joined;
  }
  if (failed(checkZeroPoint(site, "x_zp", properties.x_zp.getInt())) || // C3, C8
      failed(checkZeroPoint(site, "w_zp", properties.w_zp.getInt())) ||
      failed(checkZeroPoint(site, "out_zp", properties.out_zp.getInt())))
    return failure();
  if (failed(requireAttributes(site.location, site.op, {{"mult", properties.mult}})))
    return failure();
  double mult = properties.mult.getValueAsDouble();
  if (!isScale(mult)) // C4, C9
    return site.error("expects 'mult' to be finite and positive, but got ", mult);
  return outputs;
}

LogicalResult QMatmulOp::inferReturnTypes(MLIRContext *context, std::optional<Location> location,
                                          Adaptor adaptor, SmallVectorImpl<Type> &results) {
  Site site{location, getOperationName()};
  auto read = readProduct<QMatmulOp>(site, context, adaptor);
  if (failed(read))
    return failure();
  auto &[x, weight, properties] = *read;
  if (x.getRank() != 2 || weight.getRank() != 2 ||
      !sizesAgree(x.getDimSize(1), weight.getDimSize(0))) // C1
    return site.error("expects 'x' and 'weight' to be [M, K] and [K, N], but got ",
                      shapeText(x.getShape()), " and ", shapeText(weight.getShape()));
  FailureOr<int64_t> outputs = checkProduct(site, adaptor, properties, weight.getDimSize(1));
  if (failed(outputs))
    return failure();
  results.push_back(
      RankedTensorType::get({x.getDimSize(0), *outputs}, IntegerType::get(context, 8)));
  return success();
}

LogicalResult QConv2dOp::inferReturnTypes(MLIRContext *context, std::optional<Location> location,
                                          Adaptor adaptor, SmallVectorImpl<Type> &results) {
  Site site{location, getOperationName()};
  auto read = readProduct<QConv2dOp>(site, context, adaptor);
  if (failed(read))
    return failure();
  auto &[x, weight, properties] = *read;
  FailureOr<SmallVector<int64_t>> shape = inferConvShape(
      location, site.op, x, weight,
      {properties.stride, properties.padding, properties.dilation, properties.groups.getInt()});
  if (failed(shape))
    return failure();
  FailureOr<int64_t> outputs = checkProduct(site, adaptor, properties, (*shape)[1]);
  if (failed(outputs))
    return failure();
  (*shape)[1] = *outputs;
  results.push_back(RankedTensorType::get(*shape, IntegerType::get(context, 8)));
  return success();
}
