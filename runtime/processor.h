// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the processor of this machine is and has, in LLVM's words, as far as compiled code can
// depend on it.
#ifndef RLX_RUNTIME_PROCESSOR_H
#define RLX_RUNTIME_PROCESSOR_H

#include <string>

namespace rlx::runtime {

struct Processor {
  std::string architecture; // as target triples begin: "x86_64" or "aarch64"
  std::string name;         // for people
  /// Who made it, family, model and stepping: what LLVM's name of it follows from, together with
  /// the features.
  std::string model;
  /// "+avx2,-sse4a,…" in LLVM's names: what is there, and may be used, and what isn't.
  std::string features;
};

/// The processor that this process runs on.
const Processor &hostProcessor();

} // namespace rlx::runtime

#endif // RLX_RUNTIME_PROCESSOR_H
