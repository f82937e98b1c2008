// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The process's one fork-join thread pool, and how many threads it should use.
#ifndef RLX_RUNTIME_POOL_H
#define RLX_RUNTIME_POOL_H

#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <string>

namespace rlx::runtime {

/// The largest team of threads that a region can have.
constexpr int kMaxThreads = 1024;

/// Computes the units [begin, end). `thread`, in [0, threads), names the thread that does it: no
/// two ranges run at one time with one `thread`, so it may index scratch memory. Must not throw.
using RangeFn = void (*)(void *context, int64_t begin, int64_t end, int thread);

/// Cuts `units` into T = min(threads, units) contiguous ranges, range t being
/// [units*t/T, units*(t+1)/T), runs each range exactly once and returns when all are done.
///
/// The caller does range 0, and worker t does range t; when the caller is done and a worker has not
/// woken up yet, the caller does that worker's range too, so that a sleeping worker costs
/// parallelism but never a wait. Workers are created when first needed, spin for about 50 us after
/// their last range and then sleep; they are never pinned to a CPU.
///
/// There is one pool per process. Calls from several host threads take turns, so that they cannot
/// oversubscribe the machine; a call from inside a range runs its units on the calling thread. A
/// child of fork() starts with a fresh pool.
void parallelFor(RangeFn fn, void *context, int64_t units, int threads);

/// Workers that exist now, not counting the callers.
int workerCount();

/// Marks, while it lives, that this thread does a range which may call anything: host code, not a
/// kernel. Such a range must not wait for a turn that another thread may hold while that waits for
/// its region in the pool.
class HostRange {
public:
  HostRange();
  ~HostRange();
  HostRange(const HostRange &) = delete;
  HostRange &operator=(const HostRange &) = delete;

  /// Throws InputError where this thread is in one; `what` can't be done there.
  static void refuse(const char *what);

private:
  bool outer;
};

/// Logical CPUs in the affinity mask of the process; at least 1.
int availableCpus();

/// The tightest CPU quota of the cgroups (v1 and v2) that the process is in, in CPUs: 1.5 means
/// 150 ms of CPU time per 100 ms. No value where there is no limit. `root` stands before every path
/// that is read ("" outside tests).
std::optional<double> cpuQuota(const std::string &root);

/// How many threads to use where the caller doesn't say: RLX_NUM_THREADS where it is set, otherwise
/// min(availableCpus, whole CPUs of the quota, OMP_NUM_THREADS where that is a number).
/// Throws InputError where RLX_NUM_THREADS is not a number from 1 to kMaxThreads.
int defaultThreads();

/// Goes up by one in each child of fork(): state that another thread of the parent may have left
/// half written is recognised by it.
uint64_t forkGeneration();

/// A mutex that is free again in a child of fork(), whatever the parent's other threads held.
class ForkSafeMutex {
public:
  ForkSafeMutex();
  ~ForkSafeMutex();
  ForkSafeMutex(const ForkSafeMutex &) = delete;
  ForkSafeMutex &operator=(const ForkSafeMutex &) = delete;

  void lock() { mutex.lock(); }
  void unlock() { mutex.unlock(); }

private:
  friend void resetMutexesAfterFork();
  std::mutex mutex;
  ForkSafeMutex *previous = nullptr;
  ForkSafeMutex *next = nullptr;
};

} // namespace rlx::runtime

#endif // RLX_RUNTIME_POOL_H
