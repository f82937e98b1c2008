// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fourier transforms: verifier.

#include "dialects/MIR.h"

using namespace mlir;
using namespace rlx::mir;

LogicalResult FftOp::verify() {
  RankedTensorType x = getX().getType();
  if (x.getRank() == 0) // C1
    return emitOpError("expects 'x' to have at least one dimension, but its rank is 0");
  int64_t extent = x.getShape().back();
  if (extent <= 0) // C2, and the mark of a dynamic size is negative
    return emitOpError("expects the last dimension of 'x' to be static and positive, but got ")
           << sizeText(extent);
  if (isa<FloatType>(x.getElementType()) && extent % 2 != 0) // C3
    return emitOpError("expects the last dimension of 'x' to be even, real parts and as many "
                       "imaginary ones, but got ")
           << extent;
  return success();
}
