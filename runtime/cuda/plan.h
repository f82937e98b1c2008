// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a compiled entry function on a GPU: host code launches its kernels, on views into an arena
// in the GPU's memory. What is repeated becomes a CUDA graph.
#ifndef RLX_RUNTIME_CUDA_PLAN_H
#define RLX_RUNTIME_CUDA_PLAN_H

#include "code.h"

#include "runtime/loader.h"
#include "runtime/operands.h"
#include "runtime/plan_spec.h"
#include "runtime/pool.h"

#include <atomic>
#include <functional>
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
  /// Of an input on the GPU that holds positions, where the host has what it will hold when the run
  /// reads it; 0 where nobody knows: then it is fetched.
  uintptr_t known = 0;
  /// Of an output, the number of the input whose contents it starts with, those of params following
  /// those of inputs; -1 where it has none, or where they are there already.
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

/// Which runs of a plan are known to be over: all up to this one. The first has the number 1.
using Progress = std::atomic<int64_t>;

/// A run that was started, and not waited for. It may outlive its plan.
class CudaRun {
public:
  /// What `stream` holds by now is the run.
  CudaRun(Device &device, StreamHandle stream, std::string plan, int64_t number,
          std::shared_ptr<Progress> over);

  /// Waits for its end. Throws DeviceError, which names the run, where something failed by then.
  void wait();
  /// Whether it is over; throws likewise.
  bool isDone();
  /// Lets a stream wait for its end.
  void hold(StreamHandle stream);
  /// As that of `Device`, for a stream of the caller's.
  void checkOutsideCapture(StreamHandle other) const { device.checkOutsideCapture(other); }

  const int64_t number;

private:
  void finish(int result);

  Device &device;
  const std::string plan;
  const std::shared_ptr<Progress> over;
  Event end;
};

/// When a run takes place, and who waits for it.
struct Order {
  bool wait = true;
  /// Of the caller: the run comes after what it holds, and what it gets later after the run.
  std::optional<StreamHandle> stream;
  /// Runs of other plans that come before.
  std::vector<std::shared_ptr<CudaRun>> after;
  /// Throws, between steps of loops, where the run is to end.
  std::function<void()> ask;
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

  /// Runs every call in order, and waits for the end; or, without `order.wait`, starts them and
  /// returns the run: then outputs have to be on the GPU. Throws InputError, before anything ran,
  /// where a count, an address, a size or a position is wrong.
  std::shared_ptr<CudaRun> run(const Arguments &arguments, const Order &order = {});
  /// Starts `count` runs, one after the other: of the arguments in turn, from number `first` on.
  /// Arrays are on the GPU, where runs may write what the next ones read, and sizes are the same in
  /// all of them. What is known of positions on the GPU is how large they become at most.
  /// `joined`: what is repeated like that becomes one CUDA graph. Gives the last run. Throws as
  /// `run` does.
  std::shared_ptr<CudaRun> repeat(const std::vector<const Arguments *> &turns, size_t first,
                                  int64_t count, bool joined, const Order &order);
  /// Waits for all runs. Throws DeviceError where one failed.
  void synchronize();

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
  void checkRepeated(const Arguments &arguments, const Arguments &first) const;
  void checkPositions(const Arguments &arguments);
  void follow(const Order &order);
  void resize(const std::vector<int64_t> &sizes);
  void drain();
  std::string pendingText() const;
  Address stage(Staging &staging, const Argument &argument, int64_t capacity, const char *kind,
                const std::string &name);
  void placeArguments(const Arguments &arguments);
  void upload(const Arguments &arguments, bool wait);
  void download(const Arguments &arguments);
  void growScratch(Sizes sizes);
  void issue(bool measured, bool early = true);
  class Issue;
  void measureCall(size_t call);
  void addTime(size_t call, EventHandle begin, EventHandle end);
  /// What a graph is made of: launches, which may start early where that is asked for.
  using Work = std::function<void(bool early)>;
  void start(const Arguments &arguments);
  void appendKey(Key &key, const Arguments &arguments) const;
  bool replay(const Key &key, int64_t runs, const Work &work);
  GraphExecHandle capture(const Work &work);
  GraphExecHandle captureOnce(const Work &work);
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
  Operands operands;
  Poll poll{nullptr};
  bool hostDecides = false; // by values: what such a plan launches is no graph
  std::vector<KernelFunctions> kernels;
  StreamHandle stream = nullptr;
  std::optional<DeviceMemory> arena, scratch, block;
  std::optional<PinnedMemory> pinned;
  std::vector<Staging> inputStaging, outputStaging;

  // Of the run: addresses on the GPU.
  std::vector<Address> inputs, outputs;
  const std::vector<uintptr_t> *params = nullptr;
  /// Of inputs of the host with positions, the values that were checked; empty of others.
  std::vector<std::vector<std::byte>> held;
  Key key;

  int64_t started = 0;
  const std::shared_ptr<Progress> over = std::make_shared<Progress>(0);
  /// The last copy from pinned memory that nobody waited for.
  std::optional<Event> uploaded;
  bool uploading = false;

  std::list<Graph> graphs; // the last used first
  std::list<Key> seen;     // that ran without one, likewise
  int64_t captured = 0, launched = 0;
  /// Whether kernels in graphs may start before their predecessors' ends; whether the last capture
  /// asked for that, and whether it may have been refused for it.
  bool earlyInGraphs = device.driver.version >= kProgrammaticEdges;
  bool askedEarly = false, refusedEarly = false;
  bool joinsRuns = true; // until a graph of several can't be made

  bool profiling = false;
  int64_t profiledRuns = 0;
  std::vector<int64_t> nanoseconds;
  std::vector<EventHandle> events; // before the first call, and after each
};

} // namespace rlx::runtime::cuda

#endif // RLX_RUNTIME_CUDA_PLAN_H
