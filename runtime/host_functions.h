// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions of the host program that compiled code may call, whoever compiled it: those of libm and
// libc that LLVM calls by name, and conversions of 16-bit floats.
#ifndef RLX_RUNTIME_HOST_FUNCTIONS_H
#define RLX_RUNTIME_HOST_FUNCTIONS_H

#include <string_view>
#include <vector>

namespace rlx::runtime {

/// A function of the host program.
struct HostSymbol {
  const char *name;
  void *address;
};

/// The address of a function of this name, or null where compiled code may call none.
void *findHostFunction(std::string_view name);

/// All of them, in the order of their names.
const std::vector<HostSymbol> &hostFunctions();

} // namespace rlx::runtime

#endif // RLX_RUNTIME_HOST_FUNCTIONS_H
