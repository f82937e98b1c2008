// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan.h"

#include <algorithm>
#include <cstring>
#include <mutex>

namespace rlx::runtime::cuda {
namespace {

/// Arrays of the host up to this many bytes at the maxima share the block.
constexpr int64_t kBlockLimit = int64_t(1) << 20;
/// Parts of the block with less than this between them are copied at once: a copy costs about two
/// microseconds, in which this many bytes cross the bus.
constexpr size_t kMergeGap = 16384;
constexpr size_t kAlignment = 256;
/// Sizes and addresses that are remembered before they have a graph.
constexpr size_t kSeenLimit = 64;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

} // namespace

//===----------------------------------------------------------------------===//
// Making a plan
//===----------------------------------------------------------------------===//

CudaPlan::CudaPlan(std::shared_ptr<ObjectCode> givenHostCode,
                   std::shared_ptr<DeviceCode> givenDeviceCode, PlanSpec givenSpec,
                   Options givenOptions)
    : hostCode(std::move(givenHostCode)), deviceCode(std::move(givenDeviceCode)),
      device(deviceCode->device()), api(device.api),
      spec((givenSpec.validate(), std::move(givenSpec))), options(std::move(givenOptions)),
      layout(spec), operands(spec) {
  for (const PlanSpec::Block &block : spec.blocks)
    hostDecides |= block.kind != PlanSpec::Block::Kind::For;
  for (const std::string &name : spec.kernels)
    kernels.emplace_back(*hostCode, name);
  checkSignatures(spec, kernels);
  size_t blockBytes = 0;
  auto place = [&](const std::vector<int64_t> &capacities, const std::vector<std::string> &names,
                   const char *kind, std::vector<Staging> &into) {
    if (capacities.size() != names.size())
      throw InputError("expects the bytes of " + std::to_string(names.size()) + " " + kind +
                       "s, but got " + std::to_string(capacities.size()));
    for (int64_t bytes : capacities) {
      Staging &staging = into.emplace_back();
      staging.inBlock = bytes <= kBlockLimit;
      staging.offset = blockBytes;
      if (staging.inBlock)
        blockBytes += aligned(size_t(std::max<int64_t>(bytes, 1)));
    }
  };
  place(options.inputBytes, spec.inputs, "input", inputStaging);
  place(options.outputBytes, spec.outputs, "output", outputStaging);

  const std::string whose = " of '" + options.name + "'";
  arena.emplace(device, size_t(spec.arenaBytes), "the arena" + whose);
  device.clear(arena->address(), arena->bytes());
  block.emplace(device, blockBytes, "the inputs and outputs" + whose);
  pinned.emplace(device, blockBytes, "the inputs and outputs" + whose);
  layout.update(spec.maxima());
  growScratch(Sizes::Maxima);
  layout.forget();
  nanoseconds.resize(spec.calls.size());

  Device::Scope scope(device);
  check(api.cuStreamCreate(&stream, kStreamNonBlocking), "a stream cannot be made");
}

CudaPlan::~CudaPlan() {
  device.release([&] {
    if (stream != nullptr && *over < started)
      api.cuStreamSynchronize(stream); // it uses memory that goes now
    for (const Graph &graph : graphs)
      api.cuGraphExecDestroy(graph.exec);
    for (EventHandle event : events)
      api.cuEventDestroy(event);
    if (stream != nullptr)
      api.cuStreamDestroy(stream);
  });
}

void CudaPlan::fail(int result, const char *what) const {
  device.driver.fail(result, "'" + options.name + "': " + what + pendingText());
}

/// Says of which runs an error may be that nobody has waited for; empty where there are none.
std::string CudaPlan::pendingText() const {
  if (*over >= started)
    return "";
  const std::string last = std::to_string(started);
  return *over + 1 == started
             ? "; it may be an error of run " + last + ", which nobody has waited for"
             : "; it may be an error of one of the runs " + std::to_string(*over + 1) + " to " +
                   last + ", which nobody has waited for";
}

/// Waits for runs that may use what is about to go.
void CudaPlan::drain() {
  if (*over >= started)
    return;
  check(api.cuStreamSynchronize(stream), "earlier runs cannot be waited for");
  *over = started;
}

void CudaPlan::synchronize() {
  std::lock_guard<ForkSafeMutex> guard(turn);
  Device::Scope scope(device);
  drain();
}

/// Of a call, before what is wrong with it.
std::string CudaPlan::nameOf(size_t call) const {
  return "'" + options.name + "', " + spec.nameOf(call) + ": ";
}

/// Makes room for what the calls need for the current sizes.
void CudaPlan::growScratch(Sizes sizes) {
  checkExtents(spec, kernels, layout, sizes);
  int64_t needed = 1; // a kernel may hand the pointer on
  for (size_t i = 0; i < spec.calls.size(); ++i)
    needed = std::max(needed, kernels[spec.calls[i].kernel].scratch(layout.dims(i)));
  if (scratch && int64_t(scratch->bytes()) >= needed)
    return;
  drain();
  dropGraphs(); // they have its address
  scratch.reset();
  scratch.emplace(device, aligned(size_t(needed)), "scratch memory of '" + options.name + "'");
}

void CudaPlan::dropGraphs() {
  device.release([&] {
    for (const Graph &graph : graphs)
      api.cuGraphExecDestroy(graph.exec);
  });
  graphs.clear();
  seen.clear();
}

//===----------------------------------------------------------------------===//
// Arrays of the caller's
//===----------------------------------------------------------------------===//

void CudaPlan::checkArguments(const Arguments &arguments) const {
  auto addresses = [](const std::vector<Argument> &list) {
    std::vector<uintptr_t> result;
    for (const Argument &argument : list)
      result.push_back(argument.address);
    return result;
  };
  checkAddresses(addresses(arguments.inputs), spec.inputs, "input");
  checkAddresses(arguments.params, spec.params, "param");
  checkAddresses(addresses(arguments.outputs), spec.outputs, "output");
  if (arguments.paramValues.size() != spec.params.size())
    throw InputError("expects the values of " + std::to_string(spec.params.size()) +
                     " params, but got " + std::to_string(arguments.paramValues.size()));
  auto capacities = [](const std::vector<Argument> &list, const std::vector<int64_t> &most,
                       const std::vector<std::string> &names, const char *kind) {
    for (size_t i = 0; i < list.size(); ++i)
      if (list[i].bytes < 0 || list[i].bytes > most[i])
        throw InputError(std::string(kind) + " '" + names[i] + "' has " +
                         std::to_string(list[i].bytes) + " bytes, but at most " +
                         std::to_string(most[i]) + " were planned");
  };
  capacities(arguments.inputs, options.inputBytes, spec.inputs, "input");
  capacities(arguments.outputs, options.outputBytes, spec.outputs, "output");
  for (const Argument &output : arguments.outputs)
    if (output.tied >= int(spec.inputs.size() + spec.params.size()))
      throw InputError("there is no input or param " + std::to_string(output.tied) + " among " +
                       std::to_string(spec.inputs.size() + spec.params.size()));
}

/// Rows that kernels would write or read outside of their tables end the process's use of the GPU,
/// or worse: they are looked at on the host, wherever they are.
void CudaPlan::checkPositions(const Arguments &arguments) {
  std::vector<std::vector<std::byte>> fetched;
  held.resize(arguments.inputs.size());
  for (std::vector<std::byte> &values : held)
    values.clear();
  layout.checkPositions([&](const PlanSpec::Positions &own) -> const void * {
    if (own.source == Source::Param) {
      if (const uintptr_t values = arguments.paramValues[own.index])
        return reinterpret_cast<const void *>(values);
      throw InputError("the values of parameter '" + spec.params[own.index] + "' are needed");
    }
    const Argument &input = arguments.inputs[own.index];
    const int64_t count = layout.positionCount(own.source, own.index);
    if (count > input.bytes / int64_t(sizeof(int32_t)))
      throw InputError("input '" + spec.inputs[own.index] + "' has " + std::to_string(input.bytes) +
                       " bytes, but holds " + std::to_string(count) + " positions");
    if (!input.onDevice) {
      // A copy, which is also what goes to the GPU: the owner may change it meanwhile.
      const auto *values = reinterpret_cast<const std::byte *>(input.address);
      held[own.index].assign(values, values + input.bytes);
      return held[own.index].data();
    }
    if (input.known != 0)
      return reinterpret_cast<const void *>(input.known);
    std::vector<std::byte> &values = fetched.emplace_back(size_t(input.bytes));
    const char *what = "positions cannot be read from the GPU";
    check(api.cuMemcpyDtoHAsync(values.data(), input.address, values.size(), stream), what);
    check(api.cuStreamSynchronize(stream), what);
    return values.data();
  });
}

/// Where kernels find an array.
Address CudaPlan::stage(Staging &staging, const Argument &argument, int64_t capacity,
                        const char *kind, const std::string &name) {
  if (argument.onDevice)
    return argument.address;
  if (staging.inBlock)
    return block->address() + staging.offset;
  // Large arrays are often far from their maxima: memory grows as it is needed.
  if (!staging.own || int64_t(staging.own->bytes()) < argument.bytes) {
    drain();
    const int64_t doubled = staging.own ? 2 * int64_t(staging.own->bytes()) : 0;
    staging.own.reset();
    staging.own = std::make_unique<DeviceMemory>(
        device, size_t(std::min(std::max(argument.bytes, doubled), capacity)),
        std::string(kind) + " '" + name + "' of '" + options.name + "'");
  }
  return staging.own->address();
}

void CudaPlan::placeArguments(const Arguments &arguments) {
  inputs.clear();
  outputs.clear();
  params = &arguments.params;
  for (size_t i = 0; i < arguments.inputs.size(); ++i)
    inputs.push_back(stage(inputStaging[i], arguments.inputs[i], options.inputBytes[i], "input",
                           spec.inputs[i]));
  for (size_t i = 0; i < arguments.outputs.size(); ++i) {
    const Argument &output = arguments.outputs[i];
    // An output that is copied to the host may be where the input that it starts with was copied.
    const bool copied = !output.onDevice && output.tied >= 0 && output.tied < int(inputs.size()) &&
                        !arguments.inputs[output.tied].onDevice;
    if (copied && std::find(outputs.begin(), outputs.end(), inputs[output.tied]) == outputs.end())
      outputs.push_back(inputs[output.tied]);
    else
      outputs.push_back(
          stage(outputStaging[i], output, options.outputBytes[i], "output", spec.outputs[i]));
  }
}

namespace {

/// Joins parts of a block that lie close to each other; they come in order.
template <typename Span> void addSpan(std::vector<Span> &spans, size_t begin, size_t end) {
  if (begin == end)
    return;
  if (!spans.empty() && begin - spans.back().end <= kMergeGap)
    spans.back().end = end;
  else
    spans.push_back({begin, end});
}

} // namespace

void CudaPlan::upload(const Arguments &arguments, bool wait) {
  const char *what = "an input cannot be copied to the GPU";
  std::vector<Span> spans;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Argument &input = arguments.inputs[i];
    if (input.onDevice || input.bytes == 0)
      continue;
    const auto *from = held[i].empty() ? reinterpret_cast<const void *>(input.address)
                                       : static_cast<const void *>(held[i].data());
    if (inputStaging[i].inBlock) {
      if (uploading) // the run before may not have read the pinned memory yet
        check(api.cuEventSynchronize(uploaded->handle()), what);
      uploading = false;
      const size_t offset = inputStaging[i].offset;
      std::memcpy(pinned->data() + offset, from, size_t(input.bytes));
      addSpan(spans, offset, offset + size_t(input.bytes));
    } else {
      check(api.cuMemcpyHtoDAsync(inputs[i], from, size_t(input.bytes), stream), what);
    }
  }
  for (const Span &span : spans)
    check(api.cuMemcpyHtoDAsync(block->address() + span.begin, pinned->data() + span.begin,
                                span.end - span.begin, stream),
          what);
  if (!wait && !spans.empty()) {
    if (uploaded)
      uploaded->record(stream, what);
    else
      uploaded.emplace(device, stream, what);
    uploading = true;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int tied = arguments.outputs[i].tied;
    if (tied < 0 || arguments.outputs[i].bytes == 0)
      continue;
    const size_t number = size_t(tied);
    const Address from =
        number < inputs.size() ? inputs[number] : (*params)[number - inputs.size()];
    if (outputs[i] != from)
      check(api.cuMemcpyDtoDAsync(outputs[i], from, size_t(arguments.outputs[i].bytes), stream),
            what);
  }
}

/// Copies outputs that go to the host, and waits.
void CudaPlan::download(const Arguments &arguments) {
  const char *what = "an output cannot be copied from the GPU";
  std::vector<Span> spans;
  std::vector<std::pair<size_t, size_t>> inBlock; // (offset in the block, number of the output)
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Argument &output = arguments.outputs[i];
    if (output.onDevice || output.bytes == 0)
      continue;
    if (outputs[i] >= block->address() && outputs[i] < block->address() + block->bytes())
      inBlock.emplace_back(size_t(outputs[i] - block->address()), i);
    else
      check(api.cuMemcpyDtoHAsync(reinterpret_cast<void *>(output.address), outputs[i],
                                  size_t(output.bytes), stream),
            what);
  }
  std::sort(inBlock.begin(), inBlock.end());
  for (const auto &[offset, i] : inBlock)
    addSpan(spans, offset, offset + size_t(arguments.outputs[i].bytes));
  for (const Span &span : spans)
    check(api.cuMemcpyDtoHAsync(pinned->data() + span.begin, block->address() + span.begin,
                                span.end - span.begin, stream),
          what);
  check(api.cuStreamSynchronize(stream),
        options.wait ? "the run failed"
                     : "the run failed (RLX_CUDA_SYNC=1 in the environment names the kernel)");
  for (const auto &[offset, i] : inBlock)
    std::memcpy(reinterpret_cast<void *>(arguments.outputs[i].address), pinned->data() + offset,
                size_t(arguments.outputs[i].bytes));
}

//===----------------------------------------------------------------------===//
// Running it
//===----------------------------------------------------------------------===//

/// Lets host code launch the kernels of calls to the stream.
class CudaPlan::Issue {
public:
  Issue(CudaPlan &plan, bool measured, bool early)
      : plan(plan), measured(measured),
        launches(*plan.deviceCode, plan.stream, plan.options.wait, early) {}

  void runCalls(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      runCall(i);
      if (measured)
        plan.measureCall(i);
    }
  }
  bool holds(const void *flag) {
    const char *what = "a condition cannot be read from the GPU";
    uint8_t value = 0;
    plan.check(plan.api.cuMemcpyDtoHAsync(&value, reinterpret_cast<Address>(flag), 1, plan.stream),
               what);
    plan.check(plan.api.cuStreamSynchronize(plan.stream), what);
    return value != 0;
  }
  void copy(void *to, const void *from, size_t bytes) {
    if (bytes > 0)
      plan.check(plan.api.cuMemcpyDtoDAsync(reinterpret_cast<Address>(to),
                                            reinterpret_cast<Address>(from), bytes, plan.stream),
                 "what a loop carries cannot be copied");
  }

  void nextStep() { plan.poll.nextStep(); }

private:
  void runCall(size_t i) {
    const KernelFunctions &kernel = plan.kernels[plan.spec.calls[i].kernel];
    const int64_t *dims = plan.layout.dims(i);
    const int64_t units = kernel.units(dims);
    if (units > 0)
      kernel.compute(plan.operands.of(i), dims, 0, units,
                     reinterpret_cast<void *>(plan.scratch->address()));
    plan.askedEarly |= launches.askedEarly();
    try {
      launches.check();
    } catch (const DeviceError &error) {
      plan.refusedEarly = launches.refusedEarly();
      throw error.after(plan.nameOf(i));
    } catch (const ExecutionError &error) {
      throw ExecutionError(plan.nameOf(i) + error.what());
    }
  }

  CudaPlan &plan;
  const bool measured;
  Launches launches;
};

void CudaPlan::issue(bool measured, bool early) {
  Issue issue(*this, measured, early);
  if (measured)
    check(api.cuEventRecord(events[0], stream), "a call cannot be measured");
  operands.place({nullptr, inputs.data(), params->data(), outputs.data()});
  operands.run(issue);
}

/// Marks the end of a call. Where calls come again, their times are added at once.
void CudaPlan::measureCall(size_t call) {
  const char *what = "a call cannot be measured";
  check(api.cuEventRecord(events[call + 1], stream), what);
  if (spec.blocks.empty())
    return;
  check(api.cuEventSynchronize(events[call + 1]), what);
  addTime(call, events[0], events[call + 1]);
  check(api.cuEventRecord(events[0], stream), what);
}

/// Adds what lies between two events to the time of a call.
void CudaPlan::addTime(size_t call, EventHandle begin, EventHandle end) {
  float milliseconds = 0;
  check(api.cuEventElapsedTime(&milliseconds, begin, end), "a call cannot be measured");
  nanoseconds[call] += int64_t(double(milliseconds) * 1e6);
}

/// Launches as a graph. The stream is left as it was, whatever happens.
GraphExecHandle CudaPlan::capture(const Work &work) {
  try {
    askedEarly = refusedEarly = false;
    return captureOnce(work);
  } catch (const DeviceError &error) {
    // Some drivers don't take launches that start early where they capture; they may say so late.
    if (!refusedEarly || error.kind != DeviceError::Kind::Other)
      throw;
    earlyInGraphs = false;
  }
  return captureOnce(work);
}

GraphExecHandle CudaPlan::captureOnce(const Work &work) {
  const char *what =
      "the calls cannot be made a graph (RLX_CUDA_GRAPHS=0 in the environment does without)";
  check(api.cuStreamBeginCapture(stream, kCaptureThreadLocal), what);
  GraphHandle graph = nullptr;
  try {
    work(earlyInGraphs);
  } catch (...) {
    if (api.cuStreamEndCapture(stream, &graph) == kSuccess && graph != nullptr)
      api.cuGraphDestroy(graph);
    throw;
  }
  refusedEarly = askedEarly;
  check(api.cuStreamEndCapture(stream, &graph), what);
  GraphExecHandle exec = nullptr;
  const int result = api.cuGraphInstantiate(&exec, graph, 0);
  api.cuGraphDestroy(graph);
  check(result, what);
  ++captured;
  return exec;
}

/// What a graph of a run is good for: the same sizes and addresses.
void CudaPlan::appendKey(Key &key, const Arguments &arguments) const {
  key.insert(key.end(), arguments.sizes.begin(), arguments.sizes.end());
  key.insert(key.end(), inputs.begin(), inputs.end());
  key.insert(key.end(), outputs.begin(), outputs.end());
  key.insert(key.end(), arguments.params.begin(), arguments.params.end());
}

/// Starts a run whose arrays are in place.
void CudaPlan::start(const Arguments &arguments) {
  if (profiling || options.graphs == 0 || options.wait || hostDecides) {
    issue(profiling);
    return;
  }
  key.clear();
  appendKey(key, arguments);
  if (!replay(key, 1, [&](bool early) { issue(false, early); }))
    issue(false);
}

/// Launches a graph of `work`, so many runs: what comes a second time is captured, and later ones
/// replay it. False where it comes for the first time; then nothing was launched.
bool CudaPlan::replay(const Key &wanted, int64_t runs, const Work &work) {
  auto found = std::find_if(graphs.begin(), graphs.end(),
                            [&](const Graph &graph) { return graph.key == wanted; });
  if (found != graphs.end()) {
    graphs.splice(graphs.begin(), graphs, found);
  } else {
    auto known = std::find(seen.begin(), seen.end(), wanted);
    if (known == seen.end()) {
      seen.push_front(wanted);
      if (seen.size() > kSeenLimit)
        seen.pop_back();
      return false;
    }
    GraphExecHandle exec = capture(work);
    seen.erase(known);
    graphs.push_front({wanted, exec});
    if (graphs.size() > options.graphs) {
      api.cuGraphExecDestroy(graphs.back().exec);
      graphs.pop_back();
    }
  }
  check(api.cuGraphLaunch(graphs.front().exec, stream), "the graph cannot be launched");
  launched += runs;
  return true;
}

/// Lets the stream wait for what a run comes after.
void CudaPlan::follow(const Order &order) {
  if (order.stream)
    device.checkOutsideCapture(*order.stream);
  for (const std::shared_ptr<CudaRun> &run : order.after)
    run->hold(stream);
  if (order.stream)
    device.order(*order.stream, stream);
}

void CudaPlan::resize(const std::vector<int64_t> &sizes) {
  if (!layout.update(sizes))
    return;
  try {
    growScratch(Sizes::Given);
  } catch (...) {
    layout.forget();
    throw;
  }
  operands.resize(layout, arena->address());
}

namespace {

/// Until it is settled, whatever was started is over when this goes: it uses memory that may go
/// then.
struct Settle {
  const Api &api;
  StreamHandle stream;
  bool settled = false;
  ~Settle() {
    if (!settled)
      api.cuStreamSynchronize(stream);
  }
};

} // namespace

std::shared_ptr<CudaRun> CudaPlan::run(const Arguments &arguments, const Order &order) {
  checkArguments(arguments);
  for (size_t i = 0; i < arguments.outputs.size() && !order.wait; ++i)
    if (!arguments.outputs[i].onDevice)
      throw InputError("output '" + spec.outputs[i] +
                       "' goes to memory of the host, but nobody waits for the run");
  std::lock_guard<ForkSafeMutex> guard(turn);
  Device::Scope scope(device);
  follow(order);
  poll = Poll(order.ask ? &order.ask : nullptr);
  resize(arguments.sizes);
  checkPositions(arguments);
  placeArguments(arguments);
  Settle settle{api, stream};
  const bool wait = order.wait || profiling || options.wait;
  upload(arguments, wait);
  start(arguments);
  std::shared_ptr<CudaRun> run;
  if (wait) {
    download(arguments);
    *over = ++started;
    if (profiling)
      measure();
  }
  if (!order.wait) {
    started += wait ? 0 : 1;
    run = std::make_shared<CudaRun>(device, stream, options.name, started, over);
    if (order.stream)
      run->hold(*order.stream);
  }
  settle.settled = true;
  return run;
}

/// Throws InputError where a run can't be one of several that the host takes no part in.
void CudaPlan::checkRepeated(const Arguments &arguments, const Arguments &first) const {
  if (arguments.sizes != first.sizes)
    throw InputError("runs that are repeated in turn have the same sizes");
  auto onDevice = [](const std::vector<Argument> &list, const std::vector<std::string> &names) {
    for (size_t i = 0; i < list.size(); ++i)
      if (!list[i].onDevice)
        throw InputError("'" + names[i] +
                         "' is an array of the host, but those of runs that are "
                         "repeated are on the GPU");
  };
  onDevice(arguments.inputs, spec.inputs);
  onDevice(arguments.outputs, spec.outputs);
  for (size_t i = 0; i < arguments.outputs.size(); ++i)
    if (arguments.outputs[i].tied >= 0)
      throw InputError("output '" + spec.outputs[i] +
                       "' of runs that are repeated takes the place "
                       "of the input that it starts with: donate that");
  for (const PlanSpec::Positions &own : spec.positions)
    if (own.source == Source::Input && arguments.inputs[own.index].known == 0)
      throw InputError("input '" + spec.inputs[own.index] +
                       "' of runs that are repeated holds "
                       "positions: say what is known of them");
}

std::shared_ptr<CudaRun> CudaPlan::repeat(const std::vector<const Arguments *> &turns, size_t first,
                                          int64_t count, bool joined, const Order &order) {
  if (turns.empty() || first >= turns.size() || count < 1)
    throw InputError("runs are repeated at least once, from one of them on, but got " +
                     std::to_string(count) + " times, from number " + std::to_string(first) +
                     " of " + std::to_string(turns.size()));
  for (const Arguments *own : turns) {
    checkArguments(*own);
    checkRepeated(*own, *turns.front());
  }
  std::lock_guard<ForkSafeMutex> guard(turn);
  Device::Scope scope(device);
  follow(order);
  poll = Poll(order.ask ? &order.ask : nullptr);
  resize(turns.front()->sizes);
  for (const Arguments *own : turns)
    checkPositions(*own);
  Settle settle{api, stream};
  auto each = [&](auto begin) {
    for (int64_t step = 0; step < count; ++step) {
      const Arguments &own = *turns[(first + size_t(step)) % turns.size()];
      placeArguments(own);
      begin(own);
    }
  };
  bool done = false;
  const bool graphs = options.graphs > 0 && !profiling && !options.wait && !hostDecides;
  if (joined && joinsRuns && count > 1 && graphs) {
    Key whole; // longer than that of one run
    for (size_t i = 0; i < turns.size(); ++i) {
      const Arguments &own = *turns[(first + i) % turns.size()];
      placeArguments(own);
      appendKey(whole, own);
    }
    whole.push_back(count);
    try {
      done = replay(whole, count,
                    [&](bool early) { each([&](const Arguments &) { issue(false, early); }); });
    } catch (const DeviceError &error) {
      // Runs have graphs of their own, which are smaller.
      if (error.kind == DeviceError::Kind::Fault)
        throw;
      joinsRuns = false;
    }
  }
  if (!done)
    each([&](const Arguments &own) {
      start(own);
      if (profiling) {
        download(own);
        measure();
      }
    });
  if (profiling || options.wait) {
    download(*turns.front()); // nothing is copied
    *over = started + count;
  }
  started += count;
  auto last = std::make_shared<CudaRun>(device, stream, options.name, started, over);
  if (order.stream)
    last->hold(*order.stream);
  settle.settled = true;
  return last;
}

//===----------------------------------------------------------------------===//
// Runs that nobody has waited for
//===----------------------------------------------------------------------===//

CudaRun::CudaRun(Device &device, StreamHandle stream, std::string plan, int64_t number,
                 std::shared_ptr<Progress> over)
    : number(number), device(device), plan(std::move(plan)), over(std::move(over)),
      end(device, stream, "the end of a run cannot be marked") {}

/// Notes that runs up to this one are over, or throws what went wrong.
void CudaRun::finish(int result) {
  const int64_t known = *over;
  if (result != kSuccess) {
    const bool alone = known + 1 >= number;
    device.driver.fail(result, "'" + plan + "': " +
                                   (alone ? "run " + std::to_string(number) + " failed"
                                          : "one of the runs " + std::to_string(known + 1) +
                                                " to " + std::to_string(number) + " failed") +
                                   " (RLX_CUDA_SYNC=1 in the environment names the kernel)");
  }
  int64_t before = known;
  while (before < number && !over->compare_exchange_weak(before, number)) {
  }
}

void CudaRun::wait() {
  if (*over >= number)
    return;
  Device::Scope scope(device);
  finish(device.api.cuEventSynchronize(end.handle()));
}

bool CudaRun::isDone() {
  if (*over >= number)
    return true;
  Device::Scope scope(device);
  const int result = device.api.cuEventQuery(end.handle());
  if (result == kNotReady)
    return false;
  finish(result);
  return true;
}

void CudaRun::hold(StreamHandle stream) {
  if (*over >= number)
    return;
  Device::Scope scope(device);
  end.hold(stream, "a stream cannot wait for a run");
}

//===----------------------------------------------------------------------===//
// Measuring it
//===----------------------------------------------------------------------===//

/// Adds the times of the run that is over.
void CudaPlan::measure() {
  for (size_t i = 0; i < spec.calls.size() && spec.blocks.empty(); ++i)
    addTime(i, events[i], events[i + 1]);
  ++profiledRuns;
}

void CudaPlan::profile(bool enabled) {
  std::lock_guard<ForkSafeMutex> guard(turn);
  if (enabled) {
    Device::Scope scope(device);
    while (events.size() <= spec.calls.size()) {
      EventHandle event = nullptr;
      check(api.cuEventCreate(&event, kEventDefault), "an event cannot be made");
      events.push_back(event);
    }
    profiledRuns = 0;
    std::fill(nanoseconds.begin(), nanoseconds.end(), 0);
  }
  profiling = enabled;
}

CudaPlan::Timings CudaPlan::timings() {
  std::lock_guard<ForkSafeMutex> guard(turn);
  return {profiledRuns, nanoseconds};
}

CudaPlan::GraphCounts CudaPlan::graphCounts() {
  std::lock_guard<ForkSafeMutex> guard(turn);
  return {int64_t(graphs.size()), captured, launched};
}

} // namespace rlx::runtime::cuda
