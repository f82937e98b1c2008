// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef RLX_PASSES_VERIFYINPUT_H
#define RLX_PASSES_VERIFYINPUT_H

#include "mlir/IR/Operation.h"
#include "mlir/Pass/Pass.h"

#include <memory>

namespace rlx {

/// Emits an error for valid IR that passes don't survive.
///
/// An operation that depends on its own result is such: regions without dominance, such as a
/// module's, and blocks that nothing reaches may hold it; on it, the canonicalizer doesn't end, or
/// ends the process. So it does on the size of a dimension that a value doesn't have. A string that
/// isn't UTF-8 can't be read in Python.
mlir::LogicalResult verifyInput(mlir::Operation *root);

std::unique_ptr<mlir::Pass> createVerifyInput();
void registerVerifyInput();

} // namespace rlx

#endif // RLX_PASSES_VERIFYINPUT_H
