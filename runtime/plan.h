// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a compiled entry function: kernel calls, some of them in loops and branches, on views into
// one arena and the caller's buffers.
#ifndef RLX_RUNTIME_PLAN_H
#define RLX_RUNTIME_PLAN_H

#include "operands.h"
#include "plan_spec.h"
#include "pool.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rlx::runtime {

/// Zeroed memory, aligned to 64 bytes, in huge pages where that pays.
class Memory {
public:
  Memory() = default;
  /// Throws ExecutionError, which names `what` and the bytes, where there isn't enough.
  Memory(size_t bytes, const char *what);
  ~Memory();
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  std::byte *data() const { return start; }

private:
  void *mapping = nullptr;
  size_t mappedBytes = 0;
  std::byte *start = nullptr;
};

/// Owns the arena and the scratch memory. Concurrent runs of one plan take turns.
class Plan {
public:
  /// Looks all kernels up and plans memory for the maxima of the symbols. Throws InputError where
  /// the description contradicts itself, ExecutionError where a kernel is missing.
  Plan(std::shared_ptr<Symbols> code, PlanSpec spec, int threads);

  /// Runs every call in order. What holds positions is copied first. Addresses come in the order of
  /// the spec's names; `sizes` in the order of its symbols. Throws InputError, before anything ran,
  /// where a count, an address or a size or a position is wrong, or inside a range of the host
  /// program. Runs in the default floating-point environment, whatever the caller's is. What `ask`
  /// throws between steps of loops ends the run.
  void run(const std::vector<uintptr_t> &inputs, const std::vector<uintptr_t> &params,
           const std::vector<uintptr_t> &outputs, const std::vector<int64_t> &sizes,
           const std::function<void()> *ask = nullptr);

  /// Starts to measure each call, from zero; or stops.
  void profile(bool enabled);

  struct Timings {
    int64_t runs;                     // since profiling was switched on
    std::vector<int64_t> nanoseconds; // per call, summed over the runs
  };
  Timings timings();

  int threads() const { return maxThreads; }
  int64_t arenaBytes() const { return spec.arenaBytes; }
  int64_t scratchBytes() const { return scratchStride; } // of one thread
  size_t callCount() const { return spec.calls.size(); }
  const std::string &kernelOf(size_t call) const { return spec.kernels[spec.calls[call].kernel]; }

private:
  /// A call as it is executed, or what finishes one.
  struct Step {
    size_t call;
    const KernelFunctions *kernel;
    void *const *buffers;
    const int64_t *dims;
    std::byte *scratch;
    int64_t scratchStride;
    int64_t units;
    int team; // threads
  };
  /// What an input or parameter with positions holds, copied before it is checked: its owner may
  /// change it while the calls run.
  struct Copy {
    Source source;
    int index;
    std::vector<int32_t> values;
  };

  void prepare();
  /// The addresses that calls read inputs and parameters at, whose positions are copied and
  /// checked.
  void copyPositions(const std::vector<uintptr_t> &inputs, const std::vector<uintptr_t> &params);
  /// Computes what depends on sizes only: pointers, units, teams.
  void resize(const std::vector<int64_t> &sizes);
  static void runRange(void *step, int64_t begin, int64_t end, int thread);

  class Runner;

  ForkSafeMutex turn;
  const std::shared_ptr<Symbols> code;
  const PlanSpec spec;
  const int maxThreads;
  PlanSizes layout;
  std::vector<KernelFunctions> kernels;
  std::vector<Step> steps;
  std::vector<size_t> firstStep; // of each call
  std::optional<Operands> operands;
  std::vector<Copy> copies;
  std::vector<uintptr_t> inputAddresses, paramAddresses;
  std::optional<Memory> arena, scratch, shared;
  int64_t scratchStride = 0, sharedBytes = 0;

  uint64_t generation = 0; // of forks

  bool profiling = false;
  int64_t profiledRuns = 0;
  std::vector<int64_t> nanoseconds;
};

} // namespace rlx::runtime

#endif // RLX_RUNTIME_PLAN_H
