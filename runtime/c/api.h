// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What functions of C share that are given handles: errors that become a status and a text, and
// checks of addresses. Each library has its own copy, and knows its own handles alone.
#ifndef RLX_RUNTIME_C_API_H
#define RLX_RUNTIME_C_API_H

#include "include/rlx.h"
#include "model.h"
#include "runtime/error.h"

#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <string>

struct rlx_model {
  std::atomic<uint64_t> word;
  std::unique_ptr<rlx::runtime::c::Model> model;
};

namespace rlx::runtime::c {

/// Gives a handle to a model.
rlx_model *newHandle(std::unique_ptr<Model> model);

/// Whether a handle is one of this library, and wasn't freed.
bool isHandle(const rlx_model *model);

/// Throws InputError where the handle is null, another library's, or was freed.
Model &modelOf(const rlx_model *model);

/// Keeps the text of an error of this thread, of a handle or of none; gives the status back.
rlx_status failed(const rlx_model *model, rlx_status status, const char *text);

/// Throws InputError where a program was compiled for another version of the interface.
void checkVersion(uint32_t given, uint32_t own);

/// Calls something that may throw; what it throws becomes the text of the handle.
template <typename Call> rlx_status guarded(const rlx_model *model, Call call) noexcept {
  try {
    call();
    return RLX_OK;
  } catch (const InputError &error) {
    return failed(model, RLX_INPUT_ERROR, error.what());
  } catch (const std::bad_alloc &) {
    return failed(model, RLX_EXECUTION_ERROR, "there isn't enough memory");
  } catch (const std::exception &error) {
    return failed(model, RLX_EXECUTION_ERROR, error.what());
  } catch (...) {
    return failed(model, RLX_EXECUTION_ERROR, "an unknown error");
  }
}

/// What is at an address that a caller gave; throws InputError where that is null.
template <typename T> T &target(T *address, const char *what) {
  if (address == nullptr)
    throw InputError(std::string("the address for ") + what + " is null");
  return *address;
}

} // namespace rlx::runtime::c

#endif // RLX_RUNTIME_C_API_H
