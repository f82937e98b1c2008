// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether this processor has what code was compiled for. LLVM's names of features are of three
// kinds: instructions that code generation chooses, instructions that only programs which ask for
// them by name have, such as those of operating systems, and hints about what is fast. Only the
// first kind can end a process.
#ifndef RLX_RUNTIME_FEATURES_H
#define RLX_RUNTIME_FEATURES_H

#include <string>
#include <string_view>
#include <vector>

namespace rlx::runtime {

/// Features of x86-64 that a processor may lack which runs code compiled for them: what every
/// processor has, hints, and instructions that no code of ours has.
const std::vector<std::string_view> &unneededFeatures();

/// Those features of "+avx2,-sse4a,…" that end a process whose processor lacks them, in order.
std::vector<std::string> reliedOn(std::string_view features, std::string_view architecture);

/// Those of some features of this machine's architecture that its processor lacks, with commas
/// between; empty where it has them all.
std::string lackingFeatures(const std::vector<std::string> &needed);

/// Asks Linux for the tile registers of AMX, for all threads of the process.
bool requestTiles();

} // namespace rlx::runtime

#endif // RLX_RUNTIME_FEATURES_H
