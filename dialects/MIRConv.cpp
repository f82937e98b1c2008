// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolutions, transposed ones, and their gradients: inference and verifiers.

#include "dialects/MIR.h"
#include "dialects/MIRWindows.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace rlx::mir;

/// Checks that kernels have sizes that loops can be made of.
static LogicalResult checkKernel(std::optional<Location> location, StringRef op,
                                 ArrayRef<int64_t> weight) {
  for (int64_t dim : {2, 3})
    if (weight[dim] <= 0 || weight[dim] > INT32_MAX) // The mark of a dynamic size is negative.
      return inferError(location, op, "expects dimension ", dim,
                        " of 'weight' to be static, positive and below 2^31, but got ",
                        sizeText(weight[dim]));
  return success();
}

/// The shape of a convolution's result, by the constraints of `mir.conv`.
static FailureOr<SmallVector<int64_t>> convShape(std::optional<Location> location, StringRef op,
                                                 RankedTensorType x, ArrayRef<int64_t> weight,
                                                 Windows windows, int64_t groups) {
  if (failed(checkSteps(location, op, windows))) // C2
    return failure();
  int64_t outputs = weight[0], inputs = weight[1];
  if (groups <= 0 || (ShapedType::isStatic(outputs) && outputs % groups != 0)) // C3
    return inferError(location, op, "expects a positive 'groups' that divides the ",
                      sizeText(outputs), " output channels of 'weight', but got ", groups);
  int64_t channels = x.getDimSize(1), wanted = ShapedType::kDynamic;
  bool overflow = ShapedType::isStatic(inputs) && llvm::MulOverflow(inputs, groups, wanted);
  if (overflow || !sizesAgree(channels, wanted)) // C4
    return inferError(location, op, "expects 'x' to have 'groups' times dimension 1 of 'weight' ",
                      "channels, ", groups, " * ", sizeText(inputs), ", but got ",
                      sizeText(channels));
  if (failed(checkKernel(location, op, weight))) // C5
    return failure();
  windows.kernel = weight.drop_front(2);
  FailureOr<SmallVector<int64_t>> counts = windowCounts(location, op, x, windows); // C6
  if (failed(counts))
    return failure();
  return SmallVector<int64_t>{x.getDimSize(0), outputs, (*counts)[0], (*counts)[1]};
}

FailureOr<SmallVector<int64_t>> rlx::mir::inferConvShape(std::optional<Location> location,
                                                         StringRef op, RankedTensorType x,
                                                         RankedTensorType weight,
                                                         const ConvGeometry &geometry) {
  auto [stride, padding, dilation, groups] = geometry;
  if (x.getRank() != 4 || weight.getRank() != 4) // C1
    return inferError(location, op,
                      "expects 'x' and 'weight' to have four dimensions, but their ranks are ",
                      x.getRank(), " and ", weight.getRank());
  return convShape(location, op, x, weight.getShape(), {{}, stride, padding, dilation}, groups);
}

LogicalResult ConvOp::inferReturnTypes(MLIRContext *context, std::optional<Location> location,
                                       Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  FailureOr<RankedTensorType> weight =
      tensorType(location, op, "weight", adaptor.getWeight().getType());
  if (failed(x) || failed(weight))
    return failure();
  // The parser infers before it fills in defaults.
  Properties properties = adaptor.getProperties();
  populateDefaultProperties({op, context}, properties);
  FailureOr<SmallVector<int64_t>> shape = inferConvShape(
      location, op, *x, *weight,
      {properties.stride, properties.padding, properties.dilation, properties.groups.getInt()});
  if (failed(shape))
    return failure();
  results.push_back(RankedTensorType::get(*shape, x->getElementType()));
  return success();
}

LogicalResult ConvTranspose2dOp::inferReturnTypes(MLIRContext *context,
                                                  std::optional<Location> location, Adaptor adaptor,
                                                  SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  FailureOr<RankedTensorType> weight =
      tensorType(location, op, "weight", adaptor.getWeight().getType());
  if (failed(x) || failed(weight))
    return failure();
  // The parser infers before it fills in defaults.
  Properties properties = adaptor.getProperties();
  populateDefaultProperties({op, context}, properties);
  ArrayRef<int64_t> stride = properties.stride, padding = properties.padding,
                    dilation = properties.dilation, more = properties.output_padding;
  int64_t groups = properties.groups.getInt();

  if (x->getRank() != 4 || weight->getRank() != 4) // C1
    return inferError(location, op,
                      "expects 'x' and 'weight' to have four dimensions, but their ranks are ",
                      x->getRank(), " and ", weight->getRank());
  if (failed(checkSteps(location, op, {{}, stride, padding, dilation})) || // C2
      failed(checkPair(location, op, "output_padding", more, 0)))
    return failure();
  FailureOr<int64_t> channels = joinSizes(x->getDimSize(1), weight->getDimSize(0));
  if (failed(channels)) // C3
    return inferError(location, op, "expects 'x' to have as many channels as dimension 0 of ",
                      "'weight' has, ", sizeText(weight->getDimSize(0)), ", but got ",
                      sizeText(x->getDimSize(1)));
  int64_t perGroup = weight->getDimSize(1), outputs = ShapedType::kDynamic;
  if (groups <= 0 || (ShapedType::isStatic(*channels) && *channels % groups != 0) ||
      (ShapedType::isStatic(perGroup) && llvm::MulOverflow(perGroup, groups, outputs))) // C4
    return inferError(location, op, "expects a positive 'groups' that divides the ",
                      sizeText(*channels), " channels of 'x' and, times dimension 1 of 'weight', ",
                      sizeText(perGroup), ", is below 2^63, but got ", groups);
  if (failed(checkKernel(location, op, weight->getShape()))) // C5
    return failure();

  SmallVector<int64_t> shape{x->getDimSize(0), outputs};
  for (int64_t dim : {0, 1}) {
    int64_t size = x->getDimSize(2 + dim);
    if (ShapedType::isDynamic(size)) {
      shape.push_back(size);
      continue;
    }
    int64_t own =
        dilation[dim] * (weight->getDimSize(2 + dim) - 1) + 1 + more[dim] - 2 * padding[dim];
    int64_t steps, extent;
    if (llvm::MulOverflow(size - 1, stride[dim], steps) || llvm::AddOverflow(steps, own, extent) ||
        extent < 0) // C6
      return inferError(location, op, "expects dimension ", 2 + dim,
                        " of the result not to be negative, and to be below 2^63, but it is (",
                        size, " - 1) * ", stride[dim], " + ", own);
    shape.push_back(extent);
  }
  results.push_back(RankedTensorType::get(shape, x->getElementType()));
  return success();
}

LogicalResult Conv2dBackwardInputOp::verify() {
  RankedTensorType dy = getDy().getType(), weight = getWeight().getType(), x = getX().getType();
  if (dy.getRank() != 4 || weight.getRank() != 4 || x.getRank() != 4) // C1
    return emitOpError("expects 'dy', 'weight' and 'x' to have four dimensions, but their ranks "
                       "are ")
           << dy.getRank() << ", " << weight.getRank() << " and " << x.getRank();
  FailureOr<SmallVector<int64_t>> shape =
      convShape(getLoc(), getOperationName(), x, weight.getShape(),
                {{}, getStride(), getPadding(), getDilation()}, getGroups()); // C2, C3
  if (failed(shape))
    return failure();
  if (!llvm::all_of(llvm::zip_equal(*shape, dy.getShape()), // C3
                    [](auto pair) { return sizesAgree(std::get<0>(pair), std::get<1>(pair)); }))
    return emitOpError("expects 'dy' to have the shape of the convolution of 'x' with 'weight', ")
           << shapeText(*shape) << ", but got " << shapeText(dy.getShape());
  return success();
}

LogicalResult Conv2dBackwardWeightOp::inferReturnTypes(MLIRContext *context,
                                                       std::optional<Location> location,
                                                       Adaptor adaptor,
                                                       SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  FailureOr<RankedTensorType> dy = tensorType(location, op, "dy", adaptor.getDy().getType());
  if (failed(x) || failed(dy) ||
      failed(requireAttributes(location, op, {{"kernel_size", adaptor.getKernelSizeAttr()}})))
    return failure();
  // The parser infers before it fills in defaults.
  Properties properties = adaptor.getProperties();
  populateDefaultProperties({op, context}, properties);
  Windows windows{properties.kernel_size, properties.stride, properties.padding,
                  properties.dilation};
  int64_t groups = properties.groups.getInt();

  if (x->getRank() != 4 || dy->getRank() != 4) // C1
    return inferError(location, op,
                      "expects 'x' and 'dy' to have four dimensions, but their ranks are ",
                      x->getRank(), " and ", dy->getRank());
  if (failed(checkPair(location, op, "kernel_size", windows.kernel, 1)) || // C2
      failed(checkSteps(location, op, windows)))
    return failure();
  int64_t inputs = x->getDimSize(1), outputs = dy->getDimSize(1);
  if (groups <= 0 || (ShapedType::isStatic(inputs) && inputs % groups != 0) ||
      (ShapedType::isStatic(outputs) && outputs % groups != 0)) // C3
    return inferError(location, op, "expects a positive 'groups' that divides the ",
                      sizeText(inputs), " channels of 'x' and the ", sizeText(outputs),
                      " channels of 'dy', but got ", groups);
  FailureOr<SmallVector<int64_t>> counts = windowCounts(location, op, *x, windows); // C4
  if (failed(counts))
    return failure();
  SmallVector<int64_t> wanted{x->getDimSize(0), outputs, (*counts)[0], (*counts)[1]};
  if (!llvm::all_of(llvm::zip_equal(wanted, dy->getShape()), // C4
                    [](auto pair) { return sizesAgree(std::get<0>(pair), std::get<1>(pair)); }))
    return inferError(location, op, "expects 'dy' to have the shape of the convolution of 'x', ",
                      shapeText(wanted), ", but got ", shapeText(dy->getShape()));
  int64_t perGroup = ShapedType::isDynamic(inputs) ? inputs : inputs / groups;
  results.push_back(RankedTensorType::get({outputs, perGroup, windows.kernel[0], windows.kernel[1]},
                                          x->getElementType()));
  return success();
}
