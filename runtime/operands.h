// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the operands of a plan are while it runs, and in which order its calls come.
#ifndef RLX_RUNTIME_OPERANDS_H
#define RLX_RUNTIME_OPERANDS_H

#include "plan_spec.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace rlx::runtime {

/// Of a clock that never goes back.
int64_t nanosecondsNow();

/// Asks, now and then, whether to go on with a loop, whose steps may never end.
class Poll {
public:
  /// `ask` throws where not; null asks nobody.
  explicit Poll(const std::function<void()> *ask) : ask(ask) {}
  void nextStep();

private:
  const std::function<void()> *ask;
  int64_t last = 0; // nanoseconds
};

/// The addresses of a plan's operands, which move as its blocks run.
///
/// After the buffers of each call comes one more pointer, to what the units of its kernel share.
class Operands {
public:
  /// `spec` is valid and outlives this.
  explicit Operands(const PlanSpec &spec, void *shared = nullptr);

  /// Computes what depends on sizes; `arena` is where it starts.
  void resize(const PlanSizes &layout, uintptr_t arena);
  /// Sets where inputs, parameters and outputs are; by source.
  void place(const std::array<const uintptr_t *, 4> &starts);
  /// The buffers of a call. They stay where they are, and what is in them changes.
  void **of(size_t call) { return pointers.data() + firstPointer[call]; }

  /// Runs all calls: `runner.runCalls(begin, end)` does some in order, `runner.holds(flag)` reads a
  /// flag, `runner.copy(to, from, bytes)` copies, and `runner.nextStep()` comes before each step of
  /// a loop: it may throw.
  template <typename Runner> void run(Runner &runner) {
    runPart(0, spec.calls.size(), outermost, runner);
  }

private:
  /// Takes turns with what is `next`.
  struct Swap {
    uint32_t current, next;                // pointers of the block's own
    std::vector<uint32_t> currents, nexts; // those of what is in the block
    int64_t bytes;
  };
  struct State {
    int64_t steps;
    uint32_t flag;
    std::vector<std::pair<uint32_t, int64_t>> moves; // pointer, bytes
    std::vector<Swap> swaps;
    std::vector<size_t> parts[2]; // the blocks in it
  };
  /// A pointer into an input, parameter or output.
  struct Patch {
    uint32_t pointer;
    Source source;
    uint32_t index;
    int64_t offset;
  };

  /// Finds the flag of a block, and the pointers into what its swaps exchange. `buffers` and
  /// `owners` are those of all operands.
  void findSwapped(size_t block, const std::vector<const PlanSpec::Buffer *> &buffers,
                   const std::vector<Owner> &owners);
  void move(const State &state, int64_t steps);
  /// Exchanges what the pointers of what is in the block point to; `back` undoes it.
  void exchange(const State &state, bool back);

  template <typename Runner>
  void runPart(size_t begin, size_t end, const std::vector<size_t> &inside, Runner &runner) {
    for (size_t block : inside) {
      runner.runCalls(begin, spec.blocks[block].begin);
      runBlock(block, runner);
      begin = spec.blocks[block].end;
    }
    runner.runCalls(begin, end);
  }

  template <typename Runner> void runBlock(size_t number, Runner &runner) {
    using Kind = PlanSpec::Block::Kind;
    const PlanSpec::Block &block = spec.blocks[number];
    const State &state = states[number];
    if (block.kind == Kind::If) {
      const bool first = runner.holds(pointers[state.flag]);
      runPart(first ? block.begin : block.middle, first ? block.middle : block.end,
              state.parts[first ? 0 : 1], runner);
      return;
    }
    int64_t step = 0;
    for (; step < state.steps; ++step) {
      runner.nextStep();
      if (block.kind == Kind::While) {
        runPart(block.begin, block.middle, state.parts[0], runner);
        if (!runner.holds(pointers[state.flag]))
          break;
      } else if (step > 0) {
        move(state, 1);
      }
      runPart(block.middle, block.end, state.parts[1], runner);
      exchange(state, step % 2 != 0);
    }
    if (block.kind == Kind::For && step > 0)
      move(state, 1 - step);
    if (step % 2 == 0)
      return;
    exchange(state, /*back=*/true);
    for (const Swap &swap : state.swaps)
      runner.copy(pointers[swap.current], pointers[swap.next], size_t(swap.bytes));
  }

  const PlanSpec &spec;
  std::vector<void *> pointers, atFirst;
  std::vector<size_t> firstPointer; // of each call
  std::vector<uint32_t> operands;   // the pointer of each, in the order of `forEachOperand`
  std::vector<Patch> patches;
  std::vector<State> states; // of each block
  std::vector<size_t> outermost;
};

} // namespace rlx::runtime

#endif // RLX_RUNTIME_OPERANDS_H
