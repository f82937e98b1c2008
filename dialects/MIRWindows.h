// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What operations on windows of images share: checks of their geometry, and the sizes of results.

#ifndef RLX_DIALECTS_MIRWINDOWS_H
#define RLX_DIALECTS_MIRWINDOWS_H

#include "dialects/MIRShape.h"

namespace rlx::mir {

/// Where windows begin, and how far apart their elements are, in height and width.
struct Windows {
  llvm::ArrayRef<int64_t> kernel, stride, padding, dilation;
};

/// Checks that an attribute has two entries from `least` to 2^31 - 1.
llvm::LogicalResult checkPair(std::optional<mlir::Location> location, llvm::StringRef op,
                              llvm::StringRef name, llvm::ArrayRef<int64_t> pair, int64_t least);

/// Checks the entries of stride, padding and dilation.
llvm::LogicalResult checkSteps(std::optional<mlir::Location> location, llvm::StringRef op,
                               const Windows &windows);

/// How many windows there are in height and width of `x`, [N, C, H, W]; failure where `x` with its
/// padding is more than one short of a window. Dynamic sizes give dynamic numbers.
llvm::FailureOr<llvm::SmallVector<int64_t>> windowCounts(std::optional<mlir::Location> location,
                                                         llvm::StringRef op,
                                                         mlir::RankedTensorType x,
                                                         const Windows &windows);

} // namespace rlx::mir

#endif // RLX_DIALECTS_MIRWINDOWS_H
