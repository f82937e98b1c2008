// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the parts of the Python module rlx_mlir._runtime share: python/rlx_mlir/_runtime.pyi is its
// documentation.
#ifndef RLX_RUNTIME_BINDINGS_H
#define RLX_RUNTIME_BINDINGS_H

#include "plan_spec.h"

#include <functional>
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace rlx::runtime {

/// What Python gives of a plan: the eleven parts that `readPlanSpec` reads.
PlanSpec parsePlanSpec(const std::vector<nanobind::object> &parts);

/// What loops ask between steps: raises what a signal's handler raises, such as KeyboardInterrupt,
/// and what `check` does, if it is given and not None. Called without Python's lock, as this may be
/// where there is no `check`.
std::function<void()> asking(nanobind::handle check = {});

/// Raises the class of rlx_mlir.errors of this name, with the error's message and attributes.
void raiseError(const char *name, const std::exception &error, nanobind::dict attributes = {});

/// Adds arrays of other libraries.
void bindDlpack(nanobind::module_ &module);

namespace cuda {
/// Adds what uses NVIDIA GPUs.
void bind(nanobind::module_ &module);
} // namespace cuda

} // namespace rlx::runtime

#endif // RLX_RUNTIME_BINDINGS_H
