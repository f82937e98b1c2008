// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "operands.h"

#include <algorithm>
#include <chrono>

namespace rlx::runtime {

int64_t nanosecondsNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Poll::nextStep() {
  constexpr int64_t kPause = 20'000'000;
  if (ask == nullptr)
    return;
  const int64_t now = nanosecondsNow();
  if (last != 0 && now - last < kPause)
    return;
  if (last != 0) // the first step begins to wait
    (*ask)();
  last = now;
}

Operands::Operands(const PlanSpec &givenSpec, void *shared) : spec(givenSpec) {
  std::vector<const PlanSpec::Buffer *> buffers;
  std::vector<Owner> owners;
  size_t call = 0;
  auto finishCalls = [&](size_t until) {
    for (; call < until; ++call) {
      pointers.push_back(shared);
      firstPointer.push_back(pointers.size());
    }
  };
  firstPointer.push_back(0);
  forEachOperand(spec, [&](const PlanSpec::Buffer &buffer, Owner owner) {
    finishCalls(owner.call >= 0 ? size_t(owner.call) : spec.calls.size());
    if (buffer.source != Source::Arena)
      patches.push_back({uint32_t(pointers.size()), buffer.source, uint32_t(buffer.index), 0});
    operands.push_back(uint32_t(pointers.size()));
    pointers.push_back(nullptr);
    buffers.push_back(&buffer);
    owners.push_back(owner);
  });
  finishCalls(spec.calls.size());
  states.resize(spec.blocks.size());
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    const PlanSpec::Block &block = spec.blocks[i];
    (block.parent < 0 ? outermost : states[block.parent].parts[block.part]).push_back(i);
    findSwapped(i, buffers, owners);
  }
}

void Operands::findSwapped(size_t number, const std::vector<const PlanSpec::Buffer *> &buffers,
                           const std::vector<Owner> &owners) {
  const PlanSpec::Block &block = spec.blocks[number];
  State &state = states[number];
  size_t own = 0;
  while (own < owners.size() && owners[own].block != int(number))
    ++own;
  if (block.flag)
    state.flag = operands[own++];
  const size_t firstSwap = own;
  auto isSame = [](const PlanSpec::Buffer &one, const PlanSpec::Buffer &other) {
    return one.source == other.source && one.index == other.index;
  };
  for (const PlanSpec::Swap &given : block.swaps) {
    Swap &swap = state.swaps.emplace_back();
    swap.current = operands[own++];
    swap.next = operands[own++];
    for (size_t i = 0; i < buffers.size(); ++i) {
      const bool inside = owners[i].call >= 0 ? size_t(owners[i].call) >= block.begin &&
                                                    size_t(owners[i].call) < block.end
                                              : spec.isWithin(owners[i].block, int(number));
      const bool isOfSwap = i >= firstSwap && i < firstSwap + 2 * block.swaps.size();
      if (!inside || isOfSwap)
        continue;
      if (isSame(*buffers[i], given.current))
        swap.currents.push_back(operands[i]);
      else if (isSame(*buffers[i], given.next))
        swap.nexts.push_back(operands[i]);
    }
  }
}

void Operands::resize(const PlanSizes &layout, uintptr_t arena) {
  for (State &state : states)
    state.moves.clear();
  size_t operand = 0, patch = 0, stride = 0;
  forEachOperand(spec, [&](const PlanSpec::Buffer &buffer, Owner) {
    const int64_t offset = layout.offsets()[operand];
    const uint32_t pointer = operands[operand++];
    if (buffer.source == Source::Arena)
      pointers[pointer] = reinterpret_cast<void *>(arena + uintptr_t(offset));
    else
      patches[patch++].offset = offset;
    for (const PlanSpec::Move &move : buffer.moves)
      states[move.block].moves.emplace_back(pointer, layout.strides()[stride++]);
  });
  size_t swap = 0;
  for (size_t i = 0; i < states.size(); ++i) {
    states[i].steps = layout.steps(i);
    for (Swap &own : states[i].swaps)
      own.bytes = layout.swapped()[swap++];
  }
  atFirst = pointers;
}

void Operands::place(const std::array<const uintptr_t *, 4> &starts) {
  if (!states.empty()) // a run that failed left them where it was
    std::copy(atFirst.begin(), atFirst.end(), pointers.begin());
  for (const Patch &patch : patches)
    pointers[patch.pointer] = reinterpret_cast<void *>(starts[size_t(patch.source)][patch.index] +
                                                       uintptr_t(patch.offset));
}

void Operands::move(const State &state, int64_t steps) {
  for (const auto &[pointer, stride] : state.moves)
    pointers[pointer] = static_cast<std::byte *>(pointers[pointer]) + stride * steps;
}

void Operands::exchange(const State &state, bool back) {
  for (const Swap &swap : state.swaps) {
    const auto current = reinterpret_cast<uintptr_t>(pointers[swap.current]);
    const auto next = reinterpret_cast<uintptr_t>(pointers[swap.next]);
    const uintptr_t way = back ? current - next : next - current;
    for (uint32_t own : swap.currents)
      pointers[own] = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(pointers[own]) + way);
    for (uint32_t own : swap.nexts)
      pointers[own] = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(pointers[own]) - way);
  }
}

} // namespace rlx::runtime
