// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rules of the causal convolution and of the gated delta rule.

#include "dialects/HIRRules.h"

using namespace mlir;
using namespace rlx;
using namespace rlx::hir;

/// Whether a tensor has this shape, as far as both are known.
static bool hasShape(RankedTensorType type, ArrayRef<int64_t> shape) {
  return type.getRank() == int64_t(shape.size()) &&
         llvm::all_of(llvm::zip_equal(type.getShape(), shape),
                      [](auto pair) { return !differ(std::get<0>(pair), std::get<1>(pair)); });
}

LogicalResult DepthwiseConv1dCausalOp::check(Adaptor op, EmitError error,
                                             SmallVectorImpl<Type> &results) {
  if (failed(expectTensors(error, op.getOperands())))
    return failure();
  RankedTensorType input = tensor(op.getInput()), weight = tensor(op.getWeight()),
                   pad = tensor(op.getLeftPad());
  if (input.getRank() != 3) // C1
    return error() << "expects 'input' to have three dimensions, but got " << input.getRank();
  ArrayRef<int64_t> kernel = weight.getShape();
  if (kernel.size() != 4 || !weight.hasStaticShape() || kernel[1] != 1 || kernel[2] != 1 ||
      kernel[0] == 0 || kernel[3] == 0 || kernel[3] > INT32_MAX) // C2
    return error() << "expects 'weight' to be [C, 1, 1, K], static, with C and K positive and K "
                      "below 2^31, but got "
                   << mir::shapeText(kernel);
  int64_t channels = kernel[0], before = kernel[3] - 1;
  if (differ(input.getDimSize(2), channels)) // C3
    return error() << "expects 'weight' to have as many channels as 'input', "
                   << input.getDimSize(2) << ", but got " << channels;
  int64_t wanted[] = {input.getDimSize(0), before, channels};
  if (!hasShape(pad, wanted) || pad.getDimSize(1) != before) // C4
    return error() << "expects 'left_pad' to be " << mir::shapeText(wanted) << ", but got "
                   << mir::shapeText(pad.getShape());
  for (auto [name, type] : {std::pair("weight", weight), std::pair("left_pad", pad)})
    if (type.getElementType() != input.getElementType()) // C5
      return error() << "expects '" << name << "' to have the element type of 'input', "
                     << input.getElementType() << ", but got " << type.getElementType();
  int64_t batch =
      ShapedType::isDynamic(input.getDimSize(0)) ? pad.getDimSize(0) : input.getDimSize(0);
  int64_t shape[] = {batch, input.getDimSize(1), channels};
  results.push_back(RankedTensorType::get(shape, input.getElementType()));
  return success();
}

LogicalResult GatedDeltaNetOp::check(Adaptor op, EmitError error, SmallVectorImpl<Type> &results) {
  if (failed(expectTensors(error, op.getOperands())))
    return failure();
  RankedTensorType q = tensor(op.getQ()), g = tensor(op.getG());
  if (q.getRank() != 4 || q != op.getK().getType() || q != op.getV().getType()) // C1
    return error() << "expects 'q', 'k' and 'v' to have four dimensions and one type, but got " << q
                   << ", " << op.getK().getType() << " and " << op.getV().getType();
  ArrayRef<int64_t> shape = q.getShape(), gates = shape.drop_back();
  Type element = q.getElementType();
  if (g != op.getBeta().getType() || !hasShape(g, gates) || g.getElementType() != element) // C2
    return error() << "expects 'g' and 'beta' to have one type, " << mir::shapeText(gates) << " of "
                   << element << ", but got " << g << " and " << op.getBeta().getType();
  int64_t memory[] = {shape[0], shape[2], shape[3], shape[3]};
  Type wide = element.isF64() ? element : Type(Float32Type::get(q.getContext()));
  results.push_back(q);
  if (!op.getState()) {
    results.push_back(RankedTensorType::get(memory, wide));
    return success();
  }
  RankedTensorType state = tensor(op.getState());
  if (!hasShape(state, memory)) // C3
    return error() << "expects 'state' to be " << mir::shapeText(memory) << ", but got "
                   << mir::shapeText(state.getShape());
  if (state.getElementType() != wide) // C4
    return error() << "expects 'state' to be of " << wide << " where 'q' is of " << element
                   << ", but got " << state.getElementType();
  results.push_back(state);
  return success();
}
