// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef RLX_DIALECTS_HIR_H
#define RLX_DIALECTS_HIR_H

#include "dialects/MIR.h"

#include "dialects/HIRDialect.h.inc"

namespace rlx::hir {

/// Starts the diagnostic of a broken rule, in the verifier or in type inference.
using EmitError = llvm::function_ref<mlir::InFlightDiagnostic()>;

/// The diagnostic that inference of the operation starts: silent without a location.
mlir::InFlightDiagnostic emitInferenceError(std::optional<mlir::Location> location,
                                            llvm::StringRef operation);

} // namespace rlx::hir

#define GET_OP_CLASSES
#include "dialects/HIROps.h.inc"

#endif // RLX_DIALECTS_HIR_H
