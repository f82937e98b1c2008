// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan.h"

#include "error.h"

#include <algorithm>
#include <cfenv>
#include <cstring>
#include <limits>
#include <sys/mman.h>

namespace rlx::runtime {
namespace {

constexpr int64_t kAlignment = 64;
constexpr size_t kHugePage = size_t(2) << 20;
/// Work below which another thread costs more (about half a microsecond) than it saves.
constexpr int64_t kWorkPerThread = 16384;

int64_t roundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Results must not depend on a rounding or flush-to-zero mode that some library left in this
/// thread.
class DefaultFloatEnvironment {
public:
  DefaultFloatEnvironment() {
    std::fegetenv(&saved);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&saved); }

private:
  std::fenv_t saved;
};

} // namespace

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Memory::Memory(size_t bytes, const char *what) {
  if (bytes == 0)
    return;
  const bool huge = bytes >= 2 * kHugePage;
  const size_t slack = huge ? kHugePage : 0;
  mappedBytes = bytes + slack;
  mapping = mappedBytes < bytes ? MAP_FAILED
                                : mmap(nullptr, mappedBytes, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    mapping = nullptr;
    throw ExecutionError("cannot have " + std::to_string(bytes) + " bytes of memory for the " +
                         what);
  }
  uintptr_t address = reinterpret_cast<uintptr_t>(mapping);
  if (huge)
    address = (address + kHugePage - 1) / kHugePage * kHugePage;
  start = reinterpret_cast<std::byte *>(address);
  if (huge)
    madvise(start, bytes, MADV_HUGEPAGE); // only advice: it may well be refused
}

Memory::~Memory() {
  if (mapping != nullptr)
    munmap(mapping, mappedBytes);
}

//===----------------------------------------------------------------------===//
// Making a plan
//===----------------------------------------------------------------------===//

Plan::Plan(std::shared_ptr<Symbols> givenCode, PlanSpec givenSpec, int threads)
    : code(std::move(givenCode)), spec((givenSpec.validate(), std::move(givenSpec))),
      maxThreads(threads), layout(spec) {
  if (threads < 1 || threads > kMaxThreads)
    throw InputError("threads must be from 1 to " + std::to_string(kMaxThreads) + ", but it is " +
                     std::to_string(threads));
  for (const std::string &name : spec.kernels)
    kernels.emplace_back(*code, name);
  checkSignatures(spec, kernels);
  for (const PlanSpec::Positions &own : spec.positions) {
    auto isSame = [&](const Copy &copy) {
      return copy.source == own.source && copy.index == own.index;
    };
    if (std::none_of(copies.begin(), copies.end(), isSame))
      copies.push_back({own.source, own.index, {}});
  }
  prepare();
}

void Plan::prepare() {
  // Not less than one line even where no kernel needs any: a kernel may hand the pointer on.
  scratchStride = kAlignment;
  layout.update(spec.maxima());
  checkExtents(spec, kernels, layout, Sizes::Maxima);
  for (size_t i = 0; i < spec.calls.size(); ++i) {
    const KernelFunctions &kernel = kernels[spec.calls[i].kernel];
    scratchStride = std::max(scratchStride, kernel.scratch(layout.dims(i)));
    if (!kernel.shared)
      continue;
    scratchStride = std::max(scratchStride, kernel.finish->scratch(layout.dims(i)));
    sharedBytes = std::max(sharedBytes, kernel.shared(layout.dims(i)));
  }
  layout.forget();
  if (scratchStride > std::numeric_limits<int64_t>::max() / 2 / maxThreads)
    throw ExecutionError("the kernels ask for " + std::to_string(scratchStride) +
                         " bytes of scratch memory per thread");
  scratchStride = roundUp(scratchStride, 2 * kAlignment); // no line is shared by two threads
  arena.emplace(size_t(spec.arenaBytes), "arena");
  scratch.emplace(size_t(scratchStride) * size_t(maxThreads), "scratch memory");
  shared.emplace(size_t(sharedBytes), "memory that the units of a kernel share");

  operands.emplace(spec, shared->data());
  for (size_t i = 0; i < spec.calls.size(); ++i) {
    const KernelFunctions &kernel = kernels[spec.calls[i].kernel];
    Step step = {i, &kernel, operands->of(i), layout.dims(i), scratch->data(), scratchStride, 0, 1};
    firstStep.push_back(steps.size());
    steps.push_back(step);
    if (kernel.shared) {
      step.kernel = kernel.finish.get();
      steps.push_back(step);
    }
  }
  firstStep.push_back(steps.size());
  nanoseconds.resize(spec.calls.size());
}

//===----------------------------------------------------------------------===//
// Running it
//===----------------------------------------------------------------------===//

void Plan::resize(const std::vector<int64_t> &sizes) {
  try {
    checkExtents(spec, kernels, layout, Sizes::Given);
  } catch (...) {
    layout.forget();
    throw;
  }
  operands->resize(layout, reinterpret_cast<uintptr_t>(arena->data()));
  auto need = [&](size_t call, int64_t needed, int64_t planned, const char *what) {
    if (needed <= planned)
      return;
    layout.forget();
    spec.fail(call, "it needs " + std::to_string(needed) + " bytes of " + what +
                        " for these sizes, more than the " + std::to_string(planned) +
                        " planned for the maxima");
  };
  for (Step &step : steps) {
    const PlanSpec::Call &call = spec.calls[step.call];
    const KernelFunctions &kernel = kernels[call.kernel];
    need(step.call, step.kernel->scratch(step.dims), scratchStride, "scratch memory");
    const int64_t together = kernel.shared ? kernel.shared(step.dims) : 0;
    need(step.call, together, sharedBytes, "shared memory");
    step.units = step.kernel->units(step.dims);
    int64_t useful = maxThreads;
    if (step.kernel != &kernel)
      useful = std::max<int64_t>(1, together / kWorkPerThread);
    else if (call.work)
      useful = std::max<int64_t>(1, call.work->evaluate(sizes) / kWorkPerThread);
    step.team = int(std::min<int64_t>({useful, maxThreads, std::max<int64_t>(step.units, 1)}));
  }
}

void Plan::copyPositions(const std::vector<uintptr_t> &inputs,
                         const std::vector<uintptr_t> &params) {
  inputAddresses = inputs;
  paramAddresses = params;
  for (Copy &copy : copies) {
    uintptr_t &address =
        (copy.source == Source::Input ? inputAddresses : paramAddresses)[copy.index];
    const auto *values = reinterpret_cast<const int32_t *>(address);
    const int64_t count = layout.positionCount(copy.source, copy.index);
    copy.values.assign(values, values + count);
    if (count > 0)
      address = reinterpret_cast<uintptr_t>(copy.values.data());
  }
  layout.checkPositions([&](const PlanSpec::Positions &own) {
    const auto &addresses = own.source == Source::Input ? inputAddresses : paramAddresses;
    return reinterpret_cast<const void *>(addresses[own.index]);
  });
}

void Plan::runRange(void *context, int64_t begin, int64_t end, int thread) {
  const Step &step = *static_cast<const Step *>(context);
  step.kernel->compute(step.buffers, step.dims, begin, end,
                       step.scratch + thread * step.scratchStride);
}

/// One run, as `Operands` asks for it.
class Plan::Runner {
public:
  Runner(Plan &plan, const std::function<void()> *ask)
      : plan(plan), poll(ask), before(plan.profiling ? nanosecondsNow() : 0) {}

  void runCalls(size_t begin, size_t end) {
    for (size_t i = plan.firstStep[begin]; i < plan.firstStep[end]; ++i) {
      Step &step = plan.steps[i];
      if (step.team > 1)
        parallelFor(runRange, &step, step.units, step.team);
      else if (step.units > 0)
        step.kernel->compute(step.buffers, step.dims, 0, step.units, step.scratch);
      if (plan.profiling) {
        int64_t now = nanosecondsNow();
        plan.nanoseconds[step.call] += now - before;
        before = now;
      }
    }
  }
  bool holds(const void *flag) { return *static_cast<const uint8_t *>(flag) != 0; }
  void copy(void *to, const void *from, size_t bytes) { std::memcpy(to, from, bytes); }
  void nextStep() { poll.nextStep(); }

private:
  Plan &plan;
  Poll poll;
  int64_t before; // the end of the last call, where calls are measured
};

void Plan::run(const std::vector<uintptr_t> &inputs, const std::vector<uintptr_t> &params,
               const std::vector<uintptr_t> &outputs, const std::vector<int64_t> &sizes,
               const std::function<void()> *ask) {
  HostRange::refuse("a plan can't run");
  checkAddresses(inputs, spec.inputs, "input");
  checkAddresses(params, spec.params, "param");
  checkAddresses(outputs, spec.outputs, "output");
  std::lock_guard<ForkSafeMutex> guard(turn);
  if (generation != forkGeneration()) {
    // The parent's other thread may have been in `resize`.
    generation = forkGeneration();
    layout.forget();
  }
  if (layout.update(sizes))
    resize(sizes);
  copyPositions(inputs, params);
  operands->place({nullptr, inputAddresses.data(), paramAddresses.data(), outputs.data()});
  DefaultFloatEnvironment environment;
  Runner runner(*this, ask);
  operands->run(runner);
  profiledRuns += profiling;
}

void Plan::profile(bool enabled) {
  HostRange::refuse("a plan can't be measured");
  std::lock_guard<ForkSafeMutex> guard(turn);
  profiling = enabled;
  if (enabled) {
    profiledRuns = 0;
    std::fill(nanoseconds.begin(), nanoseconds.end(), 0);
  }
}

Plan::Timings Plan::timings() {
  HostRange::refuse("a plan can't be measured");
  std::lock_guard<ForkSafeMutex> guard(turn);
  return {profiledRuns, nanoseconds};
}

} // namespace rlx::runtime
