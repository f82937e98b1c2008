// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Artefacts: compiled modules as `rlx_mlir.runtime.artifact` writes them.
#ifndef RLX_RUNTIME_LIBRARY_ARTIFACT_H
#define RLX_RUNTIME_LIBRARY_ARTIFACT_H

#include "runtime/c/description.h"

#include <string>
#include <string_view>
#include <vector>

namespace rlx::runtime::library {

struct Artifact {
  std::string architecture;          // that the code is for
  std::vector<std::string> features; // that the code relies on
  bool tiles;                        // it uses the tile registers of AMX
  c::FunctionSpec function;
  std::string code;
};

/// Whether a file that begins with these bytes says that it is an artefact.
bool isArtifact(std::string_view start);

/// Bytes of an element of a type; throws InputError where there is no such type.
int64_t elementBytes(std::string_view type);

/// Reads an artefact, whose function gets a name; by default its own. Throws ExecutionError where
/// it is damaged, of another version, contradicts itself, or can't be run by this library.
Artifact readArtifact(std::string_view bytes, const std::string &name = "");

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_ARTIFACT_H
