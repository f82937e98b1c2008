// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gaussian splats: inference.

#include "dialects/MIR.h"

#include "llvm/ADT/APFloat.h"

using namespace mlir;
using namespace rlx::mir;

/// The most that sides of images and tiles, and entries of all lists, may be: indices stay small.
static constexpr int64_t kMaxSide = 1 << 14, kMaxEntries = 1 << 22;
/// Numbers of the camera, and of what each splat is in the vector that is prepared.
static constexpr int64_t kMeta = 23, kOfSplat = 15, kParameters = 11;

static LogicalResult checkRange(std::optional<Location> location, StringRef op, StringRef name,
                                int64_t value, int64_t most) {
  if (value >= 1 && value <= most)
    return success();
  return inferError(location, op, "expects '", name, "' to be from 1 to ", most, ", but got ",
                    value);
}

static LogicalResult checkFloat(std::optional<Location> location, StringRef op, StringRef name,
                                FloatAttr attribute, StringRef rule, bool (*holds)(double)) {
  double value = attribute.getValueAsDouble();
  if (holds(value))
    return success();
  return inferError(location, op, "expects '", name, "' to be ", rule, ", but got ",
                    std::to_string(value));
}

static bool isPositive(double value) { return value > 0 && value < HUGE_VAL; }
static bool isFraction(double value) { return value >= 0 && value <= 1; }

/// Length of a vector; nothing where the type isn't one.
static FailureOr<int64_t> lengthOf(std::optional<Location> location, StringRef op, StringRef name,
                                   Value operand) {
  FailureOr<RankedTensorType> type = tensorType(location, op, name, operand.getType());
  if (failed(type))
    return failure();
  if (type->getRank() != 1)
    return inferError(location, op, "expects '", name, "' to be a vector, but its rank is ",
                      type->getRank());
  return type->getDimSize(0);
}

template <typename Op>
static LogicalResult checkImage(std::optional<Location> location,
                                const typename Op::Properties &own) {
  StringRef op = Op::getOperationName();
  if (failed(checkRange(location, op, "width", own.width.getInt(), kMaxSide)) ||
      failed(checkRange(location, op, "height", own.height.getInt(), kMaxSide)) ||
      failed(checkRange(location, op, "tile_size", own.tile_size.getInt(), kMaxSide)) ||
      failed(
          checkRange(location, op, "max_list_entries", own.max_list_entries.getInt(), kMaxEntries)))
    return failure();
  return checkFloat(location, op, "alpha_cutoff", own.alpha_cutoff, "above 0 and at most 1",
                    [](double value) { return value > 0 && value <= 1; });
}

static LogicalResult checkMeta(std::optional<Location> location, StringRef op, Value meta) {
  FailureOr<int64_t> length = lengthOf(location, op, "meta", meta);
  if (failed(length))
    return failure();
  if (sizesAgree(*length, kMeta))
    return success();
  return inferError(location, op, "expects 'meta' to have ", kMeta, " numbers, but got ", *length);
}

template <typename Properties> static int64_t imageSize(const Properties &own) {
  return 4 * own.width.getInt() * own.height.getInt();
}

/// What a vector that is prepared has beside the numbers of splats.
template <typename Properties> static int64_t sharedSize(const Properties &own) {
  int64_t width = own.width.getInt(), height = own.height.getInt(), side = own.tile_size.getInt();
  int64_t tiles = llvm::divideCeil(width, side) * llvm::divideCeil(height, side);
  return own.max_list_entries.getInt() + 2 * tiles + 3 * width * height + kParameters;
}

namespace {
/// The number of splats and of numbers of their coefficients, dynamic where no operand says it.
struct Scene {
  int64_t splats, coefficients;
};
} // namespace

/// Checks the operands and attributes that all operations on splats share.
template <typename Op>
static FailureOr<Scene> checkScene(std::optional<Location> location, typename Op::Adaptor adaptor,
                                   const typename Op::Properties &own) {
  StringRef op = Op::getOperationName();
  std::tuple<StringRef, Value, int64_t> operands[] = {{"positions", adaptor.getPositions(), 3},
                                                      {"scales", adaptor.getScales(), 3},
                                                      {"rotations", adaptor.getRotations(), 4},
                                                      {"opacities", adaptor.getOpacities(), 1},
                                                      {"colors", adaptor.getColors(), 3}};
  int64_t splats = ShapedType::kDynamic;
  for (auto [name, operand, count] : operands) {
    FailureOr<int64_t> length = lengthOf(location, op, name, operand);
    if (failed(length))
      return failure();
    if (ShapedType::isDynamic(*length))
      continue;
    if (*length % count != 0 || !sizesAgree(splats, *length / count)) // C1
      return inferError(location, op, "expects '", name, "' to have ", count,
                        " numbers for each of ", sizeText(splats), " splats, but got ", *length);
    splats = *length / count;
  }
  FailureOr<int64_t> coefficients = lengthOf(location, op, "sh_coeffs", adaptor.getShCoeffs());
  if (failed(coefficients))
    return failure();
  if (ShapedType::isStatic(*coefficients)) { // C2
    int64_t unit = ShapedType::isDynamic(splats) ? 3 : 3 * splats;
    if (unit == 0 ? *coefficients != 0 : *coefficients % unit != 0)
      return inferError(location, op, "expects 'sh_coeffs' to have a multiple of 3 numbers for ",
                        "each of ", sizeText(splats), " splats, but got ", *coefficients);
  }
  if (failed(checkMeta(location, op, adaptor.getMeta())) || // C3
      failed(checkImage<Op>(location, own)) ||              // C4, C5
      failed(checkFloat(location, op, "radius_scale", own.radius_scale, "positive and finite",
                        isPositive)) || // C6
      failed(checkFloat(location, op, "transmittance_threshold", own.transmittance_threshold,
                        "from 0 to 1", isFraction))) // C7
    return failure();
  return Scene{splats, *coefficients};
}

/// The attributes of an operation: the parser infers before it fills in defaults.
template <typename Op>
static typename Op::Properties propertiesOf(MLIRContext *context, typename Op::Adaptor adaptor) {
  typename Op::Properties own = adaptor.getProperties();
  Op::populateDefaultProperties({Op::getOperationName(), context}, own);
  return own;
}

static RankedTensorType vectorOf(MLIRContext *context, int64_t length) {
  return RankedTensorType::get({length}, Float32Type::get(context));
}

LogicalResult GaussianSplatPrepareOp::inferReturnTypes(MLIRContext *context,
                                                       std::optional<Location> location,
                                                       Adaptor adaptor,
                                                       SmallVectorImpl<Type> &results) {
  Properties own = propertiesOf<GaussianSplatPrepareOp>(context, adaptor);
  FailureOr<Scene> scene = checkScene<GaussianSplatPrepareOp>(location, adaptor, own);
  if (failed(scene))
    return failure();
  int64_t splats = scene->splats, length = ShapedType::kDynamic;
  if (ShapedType::isStatic(splats))
    length = kOfSplat * std::max<int64_t>(splats, 1) + sharedSize(own);
  results.push_back(vectorOf(context, length));
  return success();
}

LogicalResult GaussianSplatRasterizeOp::inferReturnTypes(MLIRContext *context,
                                                         std::optional<Location> location,
                                                         Adaptor adaptor,
                                                         SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  Properties own = propertiesOf<GaussianSplatRasterizeOp>(context, adaptor);
  FailureOr<int64_t> length = lengthOf(location, op, "prepared", adaptor.getPrepared());
  if (failed(length) || failed(checkMeta(location, op, adaptor.getMeta())) || // C2
      failed(checkImage<GaussianSplatRasterizeOp>(location, own)) ||          // C3, C4
      failed(checkFloat(location, op, "transmittance_threshold", own.transmittance_threshold,
                        "from 0 to 1", isFraction))) // C5
    return failure();
  int64_t ofSplats = ShapedType::isDynamic(*length) ? kOfSplat : *length - sharedSize(own);
  if (ofSplats < kOfSplat || ofSplats % kOfSplat != 0) // C1
    return inferError(location, op, "expects 'prepared' to have ", sharedSize(own), " numbers and ",
                      kOfSplat, " for each splat, but got ", *length);
  results.push_back(vectorOf(context, imageSize(own)));
  return success();
}

LogicalResult GaussianSplatRenderOp::inferReturnTypes(MLIRContext *context,
                                                      std::optional<Location> location,
                                                      Adaptor adaptor,
                                                      SmallVectorImpl<Type> &results) {
  Properties own = propertiesOf<GaussianSplatRenderOp>(context, adaptor);
  if (failed(checkScene<GaussianSplatRenderOp>(location, adaptor, own)))
    return failure();
  results.push_back(vectorOf(context, imageSize(own)));
  return success();
}

LogicalResult GaussianSplatRenderBackwardOp::inferReturnTypes(MLIRContext *context,
                                                              std::optional<Location> location,
                                                              Adaptor adaptor,
                                                              SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  Properties own = propertiesOf<GaussianSplatRenderBackwardOp>(context, adaptor);
  FailureOr<Scene> scene = checkScene<GaussianSplatRenderBackwardOp>(location, adaptor, own);
  if (failed(scene))
    return failure();
  FailureOr<int64_t> length = lengthOf(location, op, "d_rgba", adaptor.getDRgba());
  if (failed(length))
    return failure();
  if (!sizesAgree(*length, imageSize(own))) // C8
    return inferError(location, op, "expects 'd_rgba' to have 4 numbers for each pixel, ",
                      imageSize(own), ", but got ", *length);
  if (own.loss_grad_clip && failed(checkFloat(location, op, "loss_grad_clip", own.loss_grad_clip,
                                              "positive and finite", isPositive))) // C9
    return failure();
  int64_t splats = scene->splats, coefficients = scene->coefficients;
  int64_t total = ShapedType::kDynamic;
  if (ShapedType::isStatic(splats) && ShapedType::isStatic(coefficients))
    total = 14 * splats + std::max(coefficients, 3 * splats);
  results.push_back(vectorOf(context, total));
  return success();
}
