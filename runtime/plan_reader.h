// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans from plain data: what they mean is said here alone, whether Python or a file gives them.
#ifndef RLX_RUNTIME_PLAN_READER_H
#define RLX_RUNTIME_PLAN_READER_H

#include "plan_spec.h"
#include "value.h"

namespace rlx::runtime {

/// A plan of eleven items: symbols, arena_bytes, slots, kernels, inputs, params, outputs, calls,
/// blocks, positions, extents, as `rlx_mlir._runtime.Plan` describes them. Throws InputError where
/// they are something else; `PlanSpec::validate` says whether they agree with each other.
PlanSpec readPlanSpec(const Value &plan);

/// A size: an integer, or a list of (coefficient, [factor, ...]).
Expr readSize(const Value &size);
std::vector<Expr> readSizes(const Value &sizes);

} // namespace rlx::runtime

#endif // RLX_RUNTIME_PLAN_READER_H
