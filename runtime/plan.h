// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a compiled entry function: a list of kernel calls on views into one arena and the caller's
// buffers.
#ifndef RLX_RUNTIME_PLAN_H
#define RLX_RUNTIME_PLAN_H

#include "loader.h"
#include "pool.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rlx::runtime {

/// A polynomial in the sizes of the dynamic dimensions: the sum of coefficient * product of
/// symbols.
struct Expr {
  struct Term {
    int64_t coefficient;
    std::vector<int> symbols; // indices; a symbol may recur
  };
  std::vector<Term> terms; // none: 0

  bool isConstant() const;
  /// The value for `sizes`, one per symbol. Does not overflow for sizes within the maxima of a
  /// plan.
  int64_t evaluate(const std::vector<int64_t> &sizes) const;
};

enum class Source : uint8_t { Arena, Input, Param, Output };

/// What a plan is made from. Indices refer to the lists in here.
struct PlanSpec {
  struct Symbol {
    std::string name;
    int64_t maximum;
  };
  /// A piece of the arena, in bytes; offsets are multiples of 64. Pieces may overlap.
  struct Slot {
    int64_t offset, bytes;
  };
  struct Buffer {
    Source source;
    int index;   // of the slot, input, parameter or output
    Expr offset; // bytes from its start
  };
  struct Call {
    int kernel;
    std::vector<Buffer> buffers;
    std::vector<Expr> dims;   // every `?` of the kernel's memrefs, in order
    std::optional<Expr> work; // bytes or operations, whichever is more; unknown counts as much
  };
  /// An input or parameter whose elements, i32, are numbers of rows: those from each on, `rows` of
  /// them, are in [0, limit).
  struct Positions {
    Source source;
    int index;  // of the input or parameter
    Expr count; // of elements
    Expr rows, limit;
    std::string where; // what needs it
  };
  std::vector<Symbol> symbols;
  std::vector<std::string> kernels, inputs, params, outputs; // names
  std::vector<Slot> slots;
  std::vector<Call> calls;
  std::vector<Positions> positions;
  int64_t arenaBytes;
  int threads;
};

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
  Plan(std::shared_ptr<ObjectCode> code, PlanSpec spec);

  /// Runs every call in order. Addresses come in the order of the spec's names; `sizes` in the
  /// order of its symbols. Throws InputError, before anything ran, where a count, an address or a
  /// size or a position is wrong. Runs in the default floating-point environment, whatever the
  /// caller's is.
  void run(const std::vector<uintptr_t> &inputs, const std::vector<uintptr_t> &params,
           const std::vector<uintptr_t> &outputs, const std::vector<int64_t> &sizes);

  /// Starts to measure each call, from zero; or stops.
  void profile(bool enabled);

  struct Timings {
    int64_t runs;                     // since profiling was switched on
    std::vector<int64_t> nanoseconds; // per call, summed over the runs
  };
  Timings timings();

  int threads() const { return spec.threads; }
  int64_t arenaBytes() const { return spec.arenaBytes; }
  int64_t scratchBytes() const { return scratchStride; } // of one thread
  size_t callCount() const { return spec.calls.size(); }
  const std::string &kernelOf(size_t call) const { return spec.kernels[spec.calls[call].kernel]; }

private:
  using KernelFn = void (*)(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end,
                            void *scratch);
  using CountFn = int64_t (*)(const int64_t *dims);
  struct Kernel {
    KernelFn compute;
    CountFn units;
    CountFn scratch;
  };
  /// A call as it is executed. Buffers and dims lie in the flat lists below.
  struct Step {
    KernelFn compute;
    void *const *buffers;
    const int64_t *dims;
    std::byte *scratch;
    int64_t scratchStride;
    int64_t units;
    int team; // threads
  };
  /// A pointer that is set in each run.
  struct Patch {
    uint32_t pointer; // index in `pointers`
    Source source;
    uint32_t index;
    int64_t offset;
  };

  [[noreturn]] void fail(size_t call, const std::string &problem) const;
  void validate() const;
  std::string exprProblem(const Expr &expr, const char *what, int64_t limit) const;
  void checkExpr(const Expr &expr, size_t call, const char *what, int64_t limit) const;
  void prepare();
  /// Computes what depends on sizes only: dims, offsets, units, teams.
  void resize(const std::vector<int64_t> &sizes);
  void checkAddresses(const std::vector<uintptr_t> &addresses,
                      const std::vector<std::string> &names, const char *kind) const;
  void checkSizes(const std::vector<int64_t> &sizes) const;
  void checkPositions(const uintptr_t *const *sources) const;
  static void runRange(void *step, int64_t begin, int64_t end, int thread);

  ForkSafeMutex turn;
  const std::shared_ptr<ObjectCode> code;
  const PlanSpec spec;
  std::vector<Kernel> kernels;
  std::vector<Step> steps;
  std::vector<Patch> patches;
  std::vector<void *> pointers;
  std::vector<int64_t> dims;
  std::optional<Memory> arena, scratch;
  int64_t scratchStride = 0;

  /// How many elements each of the spec's positions has, and the range of theirs.
  struct Range {
    int64_t count, rows, limit;
  };
  std::vector<Range> ranges;
  std::vector<int64_t> currentSizes; // that `steps` and `ranges` hold for
  bool sized = false;
  uint64_t generation = 0; // of forks

  bool profiling = false;
  int64_t profiledRuns = 0;
  std::vector<int64_t> nanoseconds;
};

} // namespace rlx::runtime

#endif // RLX_RUNTIME_PLAN_H
