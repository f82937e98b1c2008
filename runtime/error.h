// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The two ways in which the run-time part fails. module.cpp turns them into the classes of the same
// name in rlx_mlir.errors.
#ifndef RLX_RUNTIME_ERROR_H
#define RLX_RUNTIME_ERROR_H

#include <stdexcept>

namespace rlx::runtime {

/// A value given by the caller breaks a rule: a size, an address, an index, an environment
/// variable.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Code could not be loaded, or memory could not be had.
struct ExecutionError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

} // namespace rlx::runtime

#endif // RLX_RUNTIME_ERROR_H
