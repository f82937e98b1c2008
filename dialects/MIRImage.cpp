// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pooling, normalisation in groups of channels, pixels: inference, verifiers and folders.

#include "dialects/MIR.h"
#include "dialects/MIRWindows.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace rlx::mir;

/// A window's elements are neighbours.
static constexpr int64_t kNeighbours[] = {1, 1};

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

/// The shape of a pool's result, by the constraints of `mir.pool`.
static FailureOr<SmallVector<int64_t>> poolShape(std::optional<Location> location, StringRef op,
                                                 RankedTensorType x, const Windows &windows) {
  if (failed(checkPair(location, op, "kernel_size", windows.kernel, 1)) || // C2
      failed(checkSteps(location, op, windows)))
    return failure();
  FailureOr<SmallVector<int64_t>> counts = windowCounts(location, op, x, windows); // C4
  if (failed(counts))
    return failure();
  return SmallVector<int64_t>{x.getDimSize(0), x.getDimSize(1), (*counts)[0], (*counts)[1]};
}

LogicalResult PoolOp::inferReturnTypes(MLIRContext *context, std::optional<Location> location,
                                       Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  if (failed(x) ||
      failed(requireAttributes(location, op, {{"kernel_size", adaptor.getKernelSizeAttr()}})))
    return failure();
  // The parser infers before it fills in defaults.
  Properties properties = adaptor.getProperties();
  populateDefaultProperties({op, context}, properties);
  if (x->getRank() != 4) // C1
    return inferError(location, op, "expects 'x' to have four dimensions, but its rank is ",
                      x->getRank());
  FailureOr<SmallVector<int64_t>> shape =
      poolShape(location, op, *x,
                {properties.kernel_size, properties.stride, properties.padding, kNeighbours});
  if (failed(shape))
    return failure();
  results.push_back(RankedTensorType::get(*shape, x->getElementType()));
  return success();
}

LogicalResult PoolOp::verify() {
  const ReduceKind kind = getKind();
  Type element = getX().getType().getElementType();
  if (kind == ReduceKind::Any || kind == ReduceKind::All) // C3
    return emitOpError("expects kind max, mean, sum, min or prod, but got ")
           << stringifyReduceKind(kind);
  if (kind == ReduceKind::Mean && !isa<FloatType>(element)) // C3
    return emitOpError("expects 'x' to be of floats with kind mean, but its element type is ")
           << element;
  return success();
}

OpFoldResult PoolOp::fold(FoldAdaptor) {
  // Windows of one element each. A sum makes 0 of -0.
  auto are = [](ArrayRef<int64_t> pair, int64_t entry) {
    return llvm::all_of(pair, [&](int64_t own) { return own == entry; });
  };
  const ReduceKind kind = getKind();
  bool keeps = kind == ReduceKind::Max || kind == ReduceKind::Min || kind == ReduceKind::Prod;
  bool isSame = are(getKernelSize(), 1) && are(getStride(), 1) && are(getPadding(), 0);
  return keeps && isSame ? OpFoldResult(getX()) : OpFoldResult();
}

LogicalResult MaxPool2dBackwardOp::verify() {
  RankedTensorType x = getX().getType(), dy = getDy().getType();
  if (x.getRank() != 4 || dy.getRank() != 4) // C1
    return emitOpError("expects 'x' and 'dy' to have four dimensions, but their ranks are ")
           << x.getRank() << " and " << dy.getRank();
  ArrayRef<int64_t> kernel = getKernelSize();
  FailureOr<SmallVector<int64_t>> shape =
      poolShape(getLoc(), getOperationName(), x, {kernel, getStride(), getPadding(), kNeighbours});
  if (failed(shape)) // C2
    return failure();
  if (kernel[0] * kernel[1] > INT32_MAX) // C3
    return emitOpError("expects a window to have fewer than 2^31 elements, but it has ")
           << kernel[0] << " * " << kernel[1];
  if (!llvm::all_of(llvm::zip_equal(*shape, dy.getShape()), // C4
                    [](auto pair) { return sizesAgree(std::get<0>(pair), std::get<1>(pair)); }))
    return emitOpError("expects 'dy' to have the shape of the pool of 'x', ")
           << shapeText(*shape) << ", but got " << shapeText(dy.getShape());
  return success();
}

//===----------------------------------------------------------------------===//
// Normalisation
//===----------------------------------------------------------------------===//

/// Checks that `x` is an image whose channels are groups.
template <typename Op> static LogicalResult verifyGroups(Op op) {
  RankedTensorType x = op.getX().getType();
  if (x.getRank() != 4) // C1
    return op.emitOpError("expects 'x' to have four dimensions, but its rank is ") << x.getRank();
  int64_t groups = op.getNumGroups(), channels = x.getDimSize(1);
  if (groups <= 0 || (ShapedType::isStatic(channels) && channels % groups != 0)) // C2
    return op.emitOpError("expects a positive 'num_groups' that divides the ")
           << sizeText(channels) << " channels of 'x', but got " << groups;
  return success();
}

/// Checks that a vector, which may be absent, has an entry for each channel.
template <typename Op>
static LogicalResult verifyChannels(Op op, StringRef name, TypedValue<RankedTensorType> vector) {
  if (!vector)
    return success();
  int64_t length = vector.getType().getDimSize(0), channels = op.getX().getType().getDimSize(1);
  if (!sizesAgree(length, channels))
    return op.emitOpError("expects '")
           << name << "' to have an entry for each of the " << sizeText(channels)
           << " channels of 'x', but its length is " << sizeText(length);
  return success();
}

template <typename Op> static LogicalResult verifyEps(Op op) {
  FloatAttr eps = op.getEpsAttr();
  if (eps.getValue().isFinite() && eps.getValueAsDouble() > 0)
    return success();
  return op.emitOpError("expects a positive, finite 'eps', but got ") << eps.getValueAsDouble();
}

LogicalResult GroupNormOp::verify() {
  if (failed(verifyGroups(*this)) ||                        // C1, C2
      failed(verifyChannels(*this, "gamma", getGamma())) || // C3
      failed(verifyChannels(*this, "beta", getBeta())))     // C4
    return failure();
  Type element = getX().getType().getElementType();
  if (getBeta() && getBeta().getType().getElementType() != element) // C4
    return emitOpError("expects 'beta' to have the element type of 'x', ")
           << element << ", but got " << getBeta().getType().getElementType();
  return verifyEps(*this); // C5
}

LogicalResult GroupNormBackwardInputOp::verify() {
  if (failed(verifyGroups(*this)) ||                      // C1, C2
      failed(verifyChannels(*this, "gamma", getGamma()))) // C3
    return failure();
  return verifyEps(*this); // C4
}

/// The type of a vector with an entry for each channel of an image.
static LogicalResult inferChannels(std::optional<Location> location, StringRef op,
                                   StringRef operand, Value image, SmallVectorImpl<Type> &results) {
  FailureOr<RankedTensorType> type = tensorType(location, op, operand, image.getType());
  if (failed(type))
    return failure();
  if (type->getRank() != 4) // C1
    return inferError(location, op, "expects '", operand,
                      "' to have four dimensions, but its rank is ", type->getRank());
  results.push_back(RankedTensorType::get({type->getDimSize(1)}, type->getElementType()));
  return success();
}

LogicalResult GroupNormBackwardGammaOp::inferReturnTypes(MLIRContext *,
                                                         std::optional<Location> location,
                                                         Adaptor adaptor,
                                                         SmallVectorImpl<Type> &results) {
  return inferChannels(location, getOperationName(), "x", adaptor.getX(), results);
}

LogicalResult GroupNormBackwardGammaOp::verify() {
  if (failed(verifyGroups(*this))) // C2
    return failure();
  return verifyEps(*this); // C3
}

LogicalResult GroupNormBackwardBetaOp::inferReturnTypes(MLIRContext *,
                                                        std::optional<Location> location,
                                                        Adaptor adaptor,
                                                        SmallVectorImpl<Type> &results) {
  return inferChannels(location, getOperationName(), "dy", adaptor.getDy(), results);
}

//===----------------------------------------------------------------------===//
// Pixels
//===----------------------------------------------------------------------===//

LogicalResult ResizeNearest2xOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                                  Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  if (failed(x))
    return failure();
  if (x->getRank() != 4) // C1
    return inferError(location, op, "expects 'x' to have four dimensions, but its rank is ",
                      x->getRank());
  SmallVector<int64_t> shape(x->getShape());
  for (int64_t &size : MutableArrayRef(shape).drop_front(2))
    if (ShapedType::isStatic(size) && llvm::MulOverflow(size, int64_t(2), size)) // C2
      return inferError(location, op,
                        "expects twice the height and width of 'x' to be below 2^63, ",
                        "but its shape is ", shapeText(x->getShape()));
  results.push_back(RankedTensorType::get(shape, x->getElementType()));
  return success();
}

LogicalResult AxialRope2dOp::verify() {
  RankedTensorType x = getX().getType();
  if (x.getRank() != 3) // C1
    return emitOpError("expects 'x' to have three dimensions, but its rank is ") << x.getRank();
  int64_t headDim = getHeadDim(), width = x.getDimSize(2);
  if (headDim <= 0 || headDim % 4 != 0 ||
      (ShapedType::isStatic(width) && width % headDim != 0)) // C2
    return emitOpError("expects 'head_dim' to be a positive multiple of 4 that divides the last "
                       "dimension of 'x', ")
           << sizeText(width) << ", but got " << headDim;
  int64_t tokens = 1;
  for (int64_t size : {getEndX(), getEndY(), getRepeatFactor()})
    if (size <= 0 || llvm::MulOverflow(tokens, size, tokens) || tokens > INT32_MAX) // C3
      return emitOpError("expects 'end_x', 'end_y' and 'repeat_factor' to be positive, and their "
                         "product to be below 2^31, but got ")
             << int64_t(getEndX()) << ", " << int64_t(getEndY()) << " and "
             << int64_t(getRepeatFactor());
  if (!sizesAgree(x.getDimSize(1), tokens)) // C4
    return emitOpError("expects dimension 1 of 'x' to be end_x * end_y * repeat_factor, ")
           << tokens << ", but got " << sizeText(x.getDimSize(1));
  FloatAttr theta = getThetaAttr();
  if (!theta.getValue().isFinite() || theta.getValueAsDouble() <= 0) // C5
    return emitOpError("expects a positive, finite 'theta', but got ") << theta.getValueAsDouble();
  return success();
}
