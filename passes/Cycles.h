// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef RLX_PASSES_CYCLES_H
#define RLX_PASSES_CYCLES_H

#include "mlir/IR/Operation.h"
#include "mlir/Pass/Pass.h"

#include <memory>

namespace rlx {

/// Emits an error for an operation that depends on its own result. Regions without dominance, such
/// as a module's, and blocks that nothing reaches may hold such ones; on them, the canonicalizer
/// doesn't end, or ends the process. So it does on the size of a dimension that a value doesn't
/// have, which is an error, too.
mlir::LogicalResult verifyAcyclic(mlir::Operation *root);

std::unique_ptr<mlir::Pass> createVerifyAcyclic();
void registerVerifyAcyclic();

} // namespace rlx

#endif // RLX_PASSES_CYCLES_H
