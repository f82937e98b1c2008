// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How using a GPU fails. bindings.cpp turns a DeviceError into the class of rlx_mlir.errors that
// `kind` names.
#ifndef RLX_RUNTIME_CUDA_ERROR_H
#define RLX_RUNTIME_CUDA_ERROR_H

#include "runtime/error.h"

#include <cstdint>
#include <string>

namespace rlx::runtime::cuda {

struct DeviceError : ExecutionError {
  enum class Kind { Other, DriverMissing, NoDevice, DriverTooOld, WrongDevice, Memory, Fault };

  DeviceError(Kind kind, const std::string &message, std::string code = "")
      : ExecutionError(message), kind(kind), code(std::move(code)) {}

  /// The same, its message after `prefix`.
  DeviceError after(const std::string &prefix) const {
    DeviceError error(kind, prefix + what(), code);
    error.requested = requested;
    error.free = free;
    error.total = total;
    return error;
  }

  Kind kind;
  std::string code;                            // the driver's name for it, or empty
  uint64_t requested = 0, free = 0, total = 0; // bytes, of Kind::Memory
};

} // namespace rlx::runtime::cuda

#endif // RLX_RUNTIME_CUDA_ERROR_H
