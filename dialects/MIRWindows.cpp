// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Windows of images: their geometry.

#include "dialects/MIRWindows.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

LogicalResult rlx::mir::checkPair(std::optional<Location> location, StringRef op, StringRef name,
                                  ArrayRef<int64_t> pair, int64_t least) {
  if (pair.size() == 2 &&
      llvm::all_of(pair, [&](int64_t entry) { return entry >= least && entry <= INT32_MAX; }))
    return success();
  return inferError(location, op, "expects '", name, "' to have two entries that are at least ",
                    least, " and below 2^31, but got ", shapeText(pair));
}

LogicalResult rlx::mir::checkSteps(std::optional<Location> location, StringRef op,
                                   const Windows &windows) {
  return success(succeeded(checkPair(location, op, "stride", windows.stride, 1)) &&
                 succeeded(checkPair(location, op, "padding", windows.padding, 0)) &&
                 succeeded(checkPair(location, op, "dilation", windows.dilation, 1)));
}

FailureOr<SmallVector<int64_t>> rlx::mir::windowCounts(std::optional<Location> location,
                                                       StringRef op, RankedTensorType x,
                                                       const Windows &windows) {
  SmallVector<int64_t> counts;
  for (int64_t dim : {0, 1}) {
    int64_t size = x.getDimSize(2 + dim), padding = windows.padding[dim];
    if (ShapedType::isDynamic(size)) {
      counts.push_back(size);
      continue;
    }
    int64_t spread = windows.dilation[dim] * (windows.kernel[dim] - 1) + 1, padded;
    if (llvm::AddOverflow(size, 2 * padding, padded) || padded < spread - 1)
      return inferError(location, op, "expects dimension ", 2 + dim, " of 'x', ", size,
                        ", with padding of ", padding,
                        " at both ends to be below 2^63 and at most one short of the kernel, which "
                        "spreads over ",
                        spread);
    counts.push_back(padded < spread ? 0 : (padded - spread) / windows.stride[dim] + 1);
  }
  return counts;
}
