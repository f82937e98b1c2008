// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolutions: inference.

#include "dialects/MIR.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace rlx::mir;

/// Checks that an attribute has two entries from `least` to 2^31 - 1.
static LogicalResult checkPair(std::optional<Location> location, StringRef op, StringRef name,
                               ArrayRef<int64_t> pair, int64_t least) {
  if (pair.size() == 2 &&
      llvm::all_of(pair, [&](int64_t entry) { return entry >= least && entry <= INT32_MAX; }))
    return success();
  return inferError(location, op, "expects '", name, "' to have two entries that are at least ",
                    least, " and below 2^31, but got ", shapeText(pair));
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
  if (failed(checkPair(location, op, "stride", stride, 1)) || // C2
      failed(checkPair(location, op, "padding", padding, 0)) ||
      failed(checkPair(location, op, "dilation", dilation, 1)))
    return failure();
  int64_t outputs = weight.getDimSize(0), inputs = weight.getDimSize(1);
  if (groups <= 0 || (ShapedType::isStatic(outputs) && outputs % groups != 0)) // C3
    return inferError(location, op, "expects a positive 'groups' that divides the ",
                      sizeText(outputs), " output channels of 'weight', but got ", groups);
  int64_t channels = x.getDimSize(1), wanted = ShapedType::kDynamic;
  bool overflow = ShapedType::isStatic(inputs) && llvm::MulOverflow(inputs, groups, wanted);
  if (overflow || !sizesAgree(channels, wanted)) // C4
    return inferError(location, op, "expects 'x' to have 'groups' times dimension 1 of 'weight' ",
                      "channels, ", groups, " * ", sizeText(inputs), ", but got ",
                      sizeText(channels));

  SmallVector<int64_t> shape{x.getDimSize(0), outputs};
  for (int64_t dim : {0, 1}) {
    int64_t kernel = weight.getDimSize(2 + dim), size = x.getDimSize(2 + dim);
    if (kernel <= 0 || kernel > INT32_MAX) // C5, and the mark of a dynamic size is negative
      return inferError(location, op, "expects dimension ", 2 + dim,
                        " of 'weight' to be static, positive and below 2^31, but got ",
                        sizeText(kernel));
    if (ShapedType::isDynamic(size)) {
      shape.push_back(size);
      continue;
    }
    int64_t spread = dilation[dim] * (kernel - 1) + 1, padded;
    if (llvm::AddOverflow(size, 2 * padding[dim], padded) || padded < spread - 1) // C6
      return inferError(location, op, "expects dimension ", 2 + dim, " of 'x', ", size,
                        ", with padding of ", padding[dim],
                        " at both ends to be below 2^63 and at most one short of the kernel, which "
                        "spreads over ",
                        spread);
    shape.push_back(padded < spread ? 0 : (padded - spread) / stride[dim] + 1);
  }
  return shape;
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
