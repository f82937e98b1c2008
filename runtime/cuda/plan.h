// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a compiled entry function on a GPU: host code launches its kernels, on views into an arena
// in the GPU's memory. What is repeated becomes a CUDA graph.
#ifndef RLX_RUNTIME_CUDA_PLAN_H
#define RLX_RUNTIME_CUDA_PLAN_H

#include "code.h"

#include "runtime/loader.h"
#include "runtime/plan_spec.h"
#include "runtime/pool.h"

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rlx::runtime::cuda {

/// An array of the caller's. `onDevice`: its address is of the GPU's memory, and kernels use it
/// there; otherwise a run copies it to or from memory of the plan's.
struct Argument {
  uintptr_t address;
  int64_t bytes;
  bool onDevice;
  /// Of an output, the number of the input whose contents it starts with; -1 where it has none, or
  /// where they are there already.
  int tied = -1;
};

/// What a run is given, in the order of the spec's names and symbols.
struct Arguments {
  std::vector<Argument> inputs, outputs;
  std::vector<uintptr_t> params; // addresses on the GPU
  /// Where a copy of a parameter lies on the host, for those that hold positions; otherwise 0.
  std::vector<uintptr_t> paramValues;
  std::vector<int64_t> sizes;
};

/// Owns the arena, the scratch memory and the memory for arrays of the host. Concurrent runs of one
/// plan take turns.
class CudaPlan {
public:
  struct Options {
    std::string name;                             // in messages
    std::vector<int64_t> inputBytes, outputBytes; // at the maxima
    size_t graphs;                                // kept at most; 0: none are made
    bool wait;                                    // after each launch
  };

  /// Looks all kernels up and allocates memory for the maxima of the symbols. Throws InputError
  /// where the description contradicts itself, ExecutionError where a kernel is missing,
  /// DeviceError where there isn't enough memory.
  CudaPlan(std::shared_ptr<ObjectCode> hostCode, std::shared_ptr<DeviceCode> deviceCode,
           PlanSpec spec, Options options);
  ~CudaPlan();

  /// Runs every call in order, and waits for the end. Throws InputError, before anything ran,
  /// where a count, an address, a size or a position is wrong.
  void run(const Arguments &arguments);

  /// Starts to measure each call, from zero; or stops. Runs that are measured use no graphs.
  void profile(bool enabled);

  struct Timings {
    int64_t runs;                     // since profiling was switched on
    std::vector<int64_t> nanoseconds; // per call, summed over the runs
  };
  Timings timings();

  struct GraphCounts {
    int64_t kept, captured, launched;
  };
  GraphCounts graphCounts();

  int64_t arenaBytes() const { return spec.arenaBytes; }
  int64_t scratchBytes() const { return scratch ? int64_t(scratch->bytes()) : 0; }
  size_t callCount() const { return spec.calls.size(); }
  const std::string &kernelOf(size_t call) const { return spec.kernels[spec.calls[call].kernel]; }

private:
  /// Sizes and addresses: what a graph is good for.
  using Key = std::vector<int64_t>;
  struct Graph {
    Key key;
    GraphExecHandle exec;
  };
  /// Where an array of the host is on its way to or from the GPU. Small ones lie in one block,
  /// beside a pinned copy of it, and are copied together; others have memory of their own.
  struct Staging {
    bool inBlock;
    size_t offset; // in the block
    std::unique_ptr<DeviceMemory> own;
  };
  struct Span {
    size_t begin, end; // in the block
  };

  void checkArguments(const Arguments &arguments) const;
  void checkPositions(const Arguments &arguments);
  Address stage(Staging &staging, const Argument &argument, int64_t capacity, const char *kind,
                const std::string &name);
  void placeArguments(const Arguments &arguments);
  void upload(const Arguments &arguments);
  void download(const Arguments &arguments);
  void growScratch();
  void issue(bool measured);
  void replay(const Key &key);
  GraphExecHandle capture();
  void dropGraphs();
  void measure();
  void check(int result, const char *what) const {
    if (result != kSuccess)
      fail(result, what);
  }
  [[noreturn]] void fail(int result, const char *what) const;
  std::string nameOf(size_t call) const;

  ForkSafeMutex turn;
  const std::shared_ptr<ObjectCode> hostCode;
  const std::shared_ptr<DeviceCode> deviceCode;
  Device &device;
  const Api &api;
  const PlanSpec spec;
  const Options options;
  PlanSizes layout;
  std::vector<KernelFunctions> kernels;
  StreamHandle stream = nullptr;
  std::optional<DeviceMemory> arena, scratch, block;
  std::optional<PinnedMemory> pinned;
  std::vector<Staging> inputStaging, outputStaging;

  // Of the run: addresses on the GPU.
  std::vector<Address> inputs, outputs;
  const std::vector<uintptr_t> *params = nullptr;
  std::vector<void *> pointers; // of one call
  Key key;

  std::list<Graph> graphs; // the last used first
  std::list<Key> seen;     // that ran without one, likewise
  int64_t captured = 0, launched = 0;

  bool profiling = false;
  int64_t profiledRuns = 0;
  std::vector<int64_t> nanoseconds;
  std::vector<EventHandle> events; // before the first call, and after each
};

} // namespace rlx::runtime::cuda

#endif // RLX_RUNTIME_CUDA_PLAN_H
