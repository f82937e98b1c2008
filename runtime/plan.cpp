// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan.h"

#include "error.h"

#include <algorithm>
#include <cfenv>
#include <chrono>
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

int64_t nanosecondsNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
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
// Expr, Memory
//===----------------------------------------------------------------------===//

bool Expr::isConstant() const {
  return std::all_of(terms.begin(), terms.end(), [](const Term &t) { return t.symbols.empty(); });
}

int64_t Expr::evaluate(const std::vector<int64_t> &sizes) const {
  int64_t sum = 0;
  for (const Term &term : terms) {
    int64_t product = term.coefficient;
    for (int symbol : term.symbols)
      product *= sizes[symbol];
    sum += product;
  }
  return sum;
}

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

Plan::Plan(std::shared_ptr<ObjectCode> givenCode, PlanSpec givenSpec)
    : code(std::move(givenCode)), spec(std::move(givenSpec)) {
  validate();
  for (const std::string &name : spec.kernels) {
    kernels.push_back({reinterpret_cast<KernelFn>(code->lookup(name)),
                       reinterpret_cast<CountFn>(code->lookup(name + "_units")),
                       reinterpret_cast<CountFn>(code->lookup(name + "_scratch"))});
  }
  prepare();
}

void Plan::fail(size_t call, const std::string &problem) const {
  std::string name = "call " + std::to_string(call);
  int kernel = spec.calls[call].kernel;
  if (kernel >= 0 && size_t(kernel) < spec.kernels.size())
    name += " (" + spec.kernels[kernel] + ")";
  throw InputError(name + ": " + problem);
}

/// What is wrong with `expr`, which stays within 64 bits for all sizes up to the maxima, names
/// symbols that exist, and at the maxima is from 0 to `limit`; empty where nothing is.
std::string Plan::exprProblem(const Expr &expr, const char *what, int64_t limit) const {
  int64_t magnitude = 0;
  std::vector<int64_t> maxima;
  for (const PlanSpec::Symbol &symbol : spec.symbols)
    maxima.push_back(symbol.maximum);
  for (const Expr::Term &term : expr.terms) {
    bool overflow = term.coefficient == std::numeric_limits<int64_t>::min();
    int64_t product = overflow ? 0 : std::abs(term.coefficient);
    for (int symbol : term.symbols) {
      if (symbol < 0 || size_t(symbol) >= spec.symbols.size())
        return std::string(what) + " names symbol " + std::to_string(symbol) + " of " +
               std::to_string(spec.symbols.size());
      overflow |= __builtin_mul_overflow(product, maxima[symbol], &product);
    }
    overflow |= __builtin_add_overflow(magnitude, product, &magnitude);
    if (overflow)
      return std::string(what) + " exceeds 64 bits at the maxima of the symbols";
  }
  int64_t value = expr.evaluate(maxima);
  if (value < 0 || value > limit)
    return std::string(what) + " must be from 0 to " + std::to_string(limit) +
           " at the maxima of the symbols, but it is " + std::to_string(value);
  return "";
}

void Plan::checkExpr(const Expr &expr, size_t call, const char *what, int64_t limit) const {
  if (std::string problem = exprProblem(expr, what, limit); !problem.empty())
    fail(call, problem);
}

void Plan::validate() const {
  constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();
  if (spec.threads < 1 || spec.threads > kMaxThreads)
    throw InputError("threads must be from 1 to " + std::to_string(kMaxThreads) + ", but it is " +
                     std::to_string(spec.threads));
  if (spec.arenaBytes < 0)
    throw InputError("the arena cannot have " + std::to_string(spec.arenaBytes) + " bytes");
  for (const PlanSpec::Symbol &symbol : spec.symbols)
    if (symbol.maximum < 0)
      throw InputError("the maximum of '" + symbol.name + "' cannot be " +
                       std::to_string(symbol.maximum));
  for (size_t i = 0; i < spec.slots.size(); ++i) {
    const PlanSpec::Slot &slot = spec.slots[i];
    if (slot.offset < 0 || slot.bytes < 0 || slot.offset % kAlignment != 0 ||
        slot.bytes > spec.arenaBytes || slot.offset > spec.arenaBytes - slot.bytes)
      throw InputError("slot " + std::to_string(i) + " (offset " + std::to_string(slot.offset) +
                       ", " + std::to_string(slot.bytes) + " bytes) must start at a multiple of " +
                       std::to_string(kAlignment) + " and lie in the arena of " +
                       std::to_string(spec.arenaBytes) + " bytes");
  }
  for (size_t i = 0; i < spec.calls.size(); ++i) {
    const PlanSpec::Call &call = spec.calls[i];
    if (call.kernel < 0 || size_t(call.kernel) >= spec.kernels.size())
      fail(i, "there is no kernel " + std::to_string(call.kernel) + " among " +
                  std::to_string(spec.kernels.size()));
    for (const PlanSpec::Buffer &buffer : call.buffers) {
      const size_t counts[] = {spec.slots.size(), spec.inputs.size(), spec.params.size(),
                               spec.outputs.size()};
      const char *const kinds[] = {"slot", "input", "param", "output"};
      const size_t kind = size_t(buffer.source);
      if (buffer.index < 0 || size_t(buffer.index) >= counts[kind])
        fail(i, std::string("there is no ") + kinds[kind] + " " + std::to_string(buffer.index) +
                    " among " + std::to_string(counts[kind]));
      bool inArena = buffer.source == Source::Arena;
      checkExpr(buffer.offset, i, "a buffer's offset",
                inArena ? spec.slots[buffer.index].bytes : unlimited);
    }
    for (const Expr &dim : call.dims)
      checkExpr(dim, i, "a dim", unlimited);
    if (call.work)
      checkExpr(*call.work, i, "work", unlimited);
  }
  for (size_t i = 0; i < spec.positions.size(); ++i) {
    const PlanSpec::Positions &own = spec.positions[i];
    const size_t count = own.source == Source::Input ? spec.inputs.size() : spec.params.size();
    std::string problem;
    if ((own.source != Source::Input && own.source != Source::Param) || own.index < 0 ||
        size_t(own.index) >= count)
      problem = "they must be an input or a parameter that exists";
    for (const Expr *expr : {&own.count, &own.rows, &own.limit})
      if (problem.empty())
        problem = exprProblem(*expr, "a number of rows", unlimited);
    if (!problem.empty())
      throw InputError("positions " + std::to_string(i) + ": " + problem);
  }
}

void Plan::prepare() {
  size_t bufferCount = 0, dimCount = 0;
  for (const PlanSpec::Call &call : spec.calls) {
    bufferCount += call.buffers.size();
    dimCount += call.dims.size();
  }
  pointers.resize(bufferCount);
  dims.resize(dimCount);

  std::vector<int64_t> maxima;
  for (const PlanSpec::Symbol &symbol : spec.symbols)
    maxima.push_back(symbol.maximum);
  // Not less than one line even where no kernel needs any: a kernel may hand the pointer on.
  scratchStride = kAlignment;
  size_t dim = 0;
  for (const PlanSpec::Call &call : spec.calls) {
    const int64_t *callDims = dims.data() + dim;
    for (const Expr &expr : call.dims)
      dims[dim++] = expr.evaluate(maxima);
    scratchStride = std::max(scratchStride, kernels[call.kernel].scratch(callDims));
  }
  if (scratchStride > std::numeric_limits<int64_t>::max() / 2 / spec.threads)
    throw ExecutionError("the kernels ask for " + std::to_string(scratchStride) +
                         " bytes of scratch memory per thread");
  scratchStride = roundUp(scratchStride, 2 * kAlignment); // no line is shared by two threads
  arena.emplace(size_t(spec.arenaBytes), "arena");
  scratch.emplace(size_t(scratchStride) * size_t(spec.threads), "scratch memory");

  size_t pointer = 0;
  dim = 0;
  for (const PlanSpec::Call &call : spec.calls) {
    steps.push_back({kernels[call.kernel].compute, pointers.data() + pointer, dims.data() + dim,
                     scratch->data(), scratchStride, 0, 1});
    dim += call.dims.size();
    for (const PlanSpec::Buffer &buffer : call.buffers) {
      if (buffer.source != Source::Arena)
        patches.push_back({uint32_t(pointer), buffer.source, uint32_t(buffer.index), 0});
      ++pointer;
    }
  }
  nanoseconds.resize(spec.calls.size());
}

//===----------------------------------------------------------------------===//
// Running it
//===----------------------------------------------------------------------===//

void Plan::resize(const std::vector<int64_t> &sizes) {
  sized = false;
  size_t dim = 0, pointer = 0, patch = 0;
  for (size_t i = 0; i < spec.calls.size(); ++i) {
    const PlanSpec::Call &call = spec.calls[i];
    const Kernel &kernel = kernels[call.kernel];
    Step &step = steps[i];
    for (const Expr &expr : call.dims) {
      dims[dim] = expr.evaluate(sizes);
      if (dims[dim] < 0)
        fail(i, "a dim is " + std::to_string(dims[dim]) + " for these sizes");
      ++dim;
    }
    for (const PlanSpec::Buffer &buffer : call.buffers) {
      int64_t offset = buffer.offset.evaluate(sizes);
      bool inArena = buffer.source == Source::Arena;
      if (offset < 0 || (inArena && offset > spec.slots[buffer.index].bytes))
        fail(i, "a buffer's offset is " + std::to_string(offset) + " bytes for these sizes");
      if (inArena)
        pointers[pointer] = arena->data() + spec.slots[buffer.index].offset + offset;
      else
        patches[patch++].offset = offset;
      ++pointer;
    }
    int64_t needed = kernel.scratch(step.dims);
    if (needed > scratchStride)
      fail(i, "it needs " + std::to_string(needed) +
                  " bytes of scratch memory for these sizes, more than the " +
                  std::to_string(scratchStride) + " planned for the maxima");
    step.units = kernel.units(step.dims);
    int64_t useful = spec.threads;
    if (call.work)
      useful = std::max<int64_t>(1, call.work->evaluate(sizes) / kWorkPerThread);
    step.team = int(std::min<int64_t>({useful, spec.threads, std::max<int64_t>(step.units, 1)}));
  }
  ranges.clear();
  for (const PlanSpec::Positions &own : spec.positions)
    ranges.push_back(
        {own.count.evaluate(sizes), own.rows.evaluate(sizes), own.limit.evaluate(sizes)});
  currentSizes = sizes;
  sized = true;
}

void Plan::checkAddresses(const std::vector<uintptr_t> &addresses,
                          const std::vector<std::string> &names, const char *kind) const {
  if (addresses.size() != names.size())
    throw InputError("expects " + std::to_string(names.size()) + " " + kind +
                     " addresses, but got " + std::to_string(addresses.size()));
  for (size_t i = 0; i < addresses.size(); ++i)
    if (addresses[i] == 0)
      throw InputError(std::string("the address of ") + kind + " '" + names[i] + "' is null");
}

void Plan::checkSizes(const std::vector<int64_t> &sizes) const {
  if (sizes.size() != spec.symbols.size())
    throw InputError("expects " + std::to_string(spec.symbols.size()) + " sizes, but got " +
                     std::to_string(sizes.size()));
  for (size_t i = 0; i < sizes.size(); ++i) {
    const PlanSpec::Symbol &symbol = spec.symbols[i];
    if (sizes[i] < 0 || sizes[i] > symbol.maximum)
      throw InputError("the size of '" + symbol.name + "' must be from 0 to its maximum " +
                       std::to_string(symbol.maximum) + ", but it is " + std::to_string(sizes[i]));
  }
}

/// Code writes rows of caches, and reads rows of tables, where these numbers say.
void Plan::checkPositions(const uintptr_t *const *sources) const {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const PlanSpec::Positions &own = spec.positions[i];
    const auto [count, rows, limit] = ranges[i];
    const auto *values =
        reinterpret_cast<const int32_t *>(sources[size_t(own.source)][size_t(own.index)]);
    for (int64_t entry = 0; rows > 0 && entry < count; ++entry) {
      const int64_t value = values[entry];
      if (value >= 0 && value <= limit - rows)
        continue;
      const bool isInput = own.source == Source::Input;
      throw InputError(
          (isInput ? "input '" + spec.inputs[own.index] : "parameter '" + spec.params[own.index]) +
          "' is " + std::to_string(value) + " at index " + std::to_string(entry) + ", but rows " +
          std::to_string(value) + " to " + std::to_string(value + rows - 1) +
          " have to be among the " + std::to_string(limit) + " rows that " + own.where + " has");
    }
  }
}

void Plan::runRange(void *context, int64_t begin, int64_t end, int thread) {
  const Step &step = *static_cast<const Step *>(context);
  step.compute(step.buffers, step.dims, begin, end, step.scratch + thread * step.scratchStride);
}

void Plan::run(const std::vector<uintptr_t> &inputs, const std::vector<uintptr_t> &params,
               const std::vector<uintptr_t> &outputs, const std::vector<int64_t> &sizes) {
  checkAddresses(inputs, spec.inputs, "input");
  checkAddresses(params, spec.params, "param");
  checkAddresses(outputs, spec.outputs, "output");
  std::lock_guard<ForkSafeMutex> guard(turn);
  if (generation != forkGeneration()) {
    // The parent's other thread may have been in `resize`.
    generation = forkGeneration();
    sized = false;
  }
  if (!sized || sizes != currentSizes) {
    checkSizes(sizes);
    resize(sizes);
  }
  const uintptr_t *const sources[] = {nullptr, inputs.data(), params.data(), outputs.data()};
  checkPositions(sources);
  for (const Patch &patch : patches)
    pointers[patch.pointer] =
        reinterpret_cast<void *>(sources[size_t(patch.source)][patch.index] + patch.offset);

  DefaultFloatEnvironment environment;
  int64_t before = profiling ? nanosecondsNow() : 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    Step &step = steps[i];
    if (step.team > 1)
      parallelFor(runRange, &step, step.units, step.team);
    else if (step.units > 0)
      step.compute(step.buffers, step.dims, 0, step.units, step.scratch);
    if (profiling) {
      int64_t now = nanosecondsNow();
      nanoseconds[i] += now - before;
      before = now;
    }
  }
  profiledRuns += profiling;
}

void Plan::profile(bool enabled) {
  std::lock_guard<ForkSafeMutex> guard(turn);
  profiling = enabled;
  if (enabled) {
    profiledRuns = 0;
    std::fill(nanoseconds.begin(), nanoseconds.end(), 0);
  }
}

Plan::Timings Plan::timings() {
  std::lock_guard<ForkSafeMutex> guard(turn);
  return {profiledRuns, nanoseconds};
}

} // namespace rlx::runtime
