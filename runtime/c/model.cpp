// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "model.h"

#include "runtime/error.h"
#include "runtime/features.h"
#include "runtime/pool.h"
#include "runtime/processor.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace rlx::runtime::c {
namespace {

/// Where empty arrays are said to be: nothing is read or written there.
alignas(64) std::byte nowhere[64];

std::string counted(size_t count, const char *what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

} // namespace

//===----------------------------------------------------------------------===//
// A function
//===----------------------------------------------------------------------===//

Function::Function(const FunctionSpec &spec, std::shared_ptr<Symbols> code, const Weights *weights,
                   int threads)
    : spec(spec) {
  for (size_t kind = 0; kind < shown.size(); ++kind)
    for (size_t i = 0; i < spec.buffers[kind].size(); ++i)
      shown[kind].push_back(describe(spec.buffers[kind][i], spec.nameOf(kind, i)));
  for (size_t i = 0; i < spec.buffers[kParameter].size(); ++i) {
    const std::optional<Buffer::Place> &place = spec.buffers[kParameter][i].place;
    const std::string what = spec.nameOf(kParameter, i);
    if (place && weights == nullptr)
      throw ExecutionError(what + " is in weights, which the library doesn't have");
    parameters.push_back(
        place ? Parameter{weights->at(*place, what), size_t(place->bytes), /*own=*/false}
              : Parameter{nullptr, 0, /*own=*/true});
  }
  plan = std::make_unique<Plan>(std::move(code), spec.plan, threads);
}

Function::Shown Function::describe(const Buffer &buffer, std::string name) const {
  std::vector<int64_t> maxima;
  for (const PlanSpec::Symbol &symbol : spec.symbols)
    maxima.push_back(symbol.maximum);
  Shown result;
  result.name = std::move(name);
  bool allFixed = true;
  for (size_t axis = 0; axis < buffer.dims.size(); ++axis) {
    const bool fixed = buffer.dims[axis].isFixed();
    const std::optional<int64_t> largest = buffer.dims[axis].evaluateChecked(maxima.data());
    if (fixed && !largest)
      throw InputError("dimension " + std::to_string(axis) + " of " + result.name +
                       " is too large");
    allFixed = allFixed && fixed;
    result.maximum.push_back(largest.value_or(std::numeric_limits<int64_t>::max()));
    result.shape.push_back(fixed ? *largest : -1);
    result.formulas.push_back(buffer.formulas[axis].c_str());
  }
  if (allFixed)
    result.bytes = buffer.bytes(maxima, result.name);
  return result;
}

size_t Function::bytesOf(size_t kind, size_t index, const std::vector<int64_t> &sizes) const {
  const Shown &own = shown[kind][index];
  return own.bytes ? *own.bytes : spec.buffers[kind][index].bytes(sizes, own.name);
}

rlx_symbol Function::symbol(size_t index) const {
  if (index >= spec.symbols.size())
    throw InputError("'" + spec.name + "' has " + counted(spec.symbols.size(), "symbol") +
                     ", but number " + std::to_string(index) + " was asked for");
  return {spec.symbols[index].name.c_str(), spec.symbols[index].maximum};
}

const Buffer &Function::checkedBuffer(size_t kind, size_t index) const {
  if (kind > kOutput)
    throw InputError("a kind is 0 (input), 1 (parameter) or 2 (output), but it is " +
                     std::to_string(kind));
  if (index >= spec.buffers[kind].size())
    throw InputError("'" + spec.name + "' has " +
                     counted(spec.buffers[kind].size(), kindName(kind)) + ", but number " +
                     std::to_string(index) + " was asked for");
  return spec.buffers[kind][index];
}

rlx_buffer Function::buffer(size_t kind, size_t index) const {
  const Buffer &own = checkedBuffer(kind, index);
  const Shown &lists = shown[kind][index];
  rlx_buffer result = {};
  result.name = own.name.c_str();
  result.dtype = own.dtype.c_str();
  result.element_bytes = own.elementBytes;
  result.alignment = own.alignment;
  result.rank = own.dims.size();
  result.shape = lists.shape.data();
  result.maximum = lists.maximum.data();
  result.formula = lists.formulas.data();
  if (own.tied) {
    result.tied = 1;
    result.tied_kind = rlx_kind(own.tied->kind);
    result.tied_index = own.tied->index;
  }
  if (kind == kParameter) {
    std::lock_guard<std::mutex> guard(turn);
    result.given = parameters[index].data != nullptr;
  }
  return result;
}

std::vector<int64_t> Function::checkedSizes(const int64_t *sizes, size_t count) const {
  if (count != spec.symbols.size())
    throw InputError("'" + spec.name + "' has " + counted(spec.symbols.size(), "symbol") +
                     ", but got " + counted(count, "size"));
  if (count > 0 && sizes == nullptr)
    throw InputError("the sizes of the symbols of '" + spec.name + "' are at a null address");
  for (size_t i = 0; i < count; ++i)
    if (sizes[i] < 0 || sizes[i] > spec.symbols[i].maximum)
      throw InputError("the size of '" + spec.symbols[i].name + "' of '" + spec.name +
                       "' must be from 0 to " + std::to_string(spec.symbols[i].maximum) +
                       ", but it is " + std::to_string(sizes[i]));
  return std::vector<int64_t>(sizes, sizes + count);
}

void Function::setParameter(size_t index, const void *data, size_t bytes) {
  const Buffer &buffer = checkedBuffer(kParameter, index);
  const std::string &what = shown[kParameter][index].name;
  if (!shown[kParameter][index].bytes) {
    if (bytes % buffer.elementBytes != 0)
      throw InputError(what + " has elements of " + std::to_string(buffer.elementBytes) +
                       " bytes, but got " + std::to_string(bytes) + " bytes");
    checkedMemory(kParameter, index, data, bytes, bytes); // each run says how large it has to be
  } else {
    checkedMemory(kParameter, index, data, bytes, *shown[kParameter][index].bytes);
  }
  std::lock_guard<std::mutex> guard(turn);
  parameters[index] = {bytes == 0 ? nowhere : static_cast<const std::byte *>(data), bytes, true};
}

uintptr_t Function::checkedMemory(size_t kind, size_t index, const void *data, size_t given,
                                  size_t expected) const {
  const Buffer &buffer = spec.buffers[kind][index];
  const uintptr_t address = reinterpret_cast<uintptr_t>(data);
  if (given != expected)
    throw InputError(shown[kind][index].name + " has " + std::to_string(expected) +
                     " bytes for these sizes, but got " + std::to_string(given));
  if (expected == 0)
    return reinterpret_cast<uintptr_t>(nowhere);
  if (data == nullptr)
    throw InputError(shown[kind][index].name + " is at a null address");
  if (address % buffer.alignment != 0)
    throw InputError(shown[kind][index].name + " must be at a multiple of " +
                     std::to_string(buffer.alignment) + " bytes, but its address is " +
                     std::to_string(address));
  if (expected > std::numeric_limits<uintptr_t>::max() - address)
    throw InputError(shown[kind][index].name + " reaches beyond the end of memory");
  return address;
}

//===----------------------------------------------------------------------===//
// Running it
//===----------------------------------------------------------------------===//

/// Sizes that meet in an operation fit each other: code relies on that.
void Function::checkConditions(const std::vector<int64_t> &sizes) const {
  for (const Condition &own : spec.conditions) {
    const std::optional<int64_t> left = own.left.evaluateChecked(sizes.data());
    const std::optional<int64_t> right = own.right.evaluateChecked(sizes.data());
    if (left && right && (own.atLeast ? *left >= *right : *left == *right))
      continue;
    auto text = [](const std::optional<int64_t> &value) {
      return value ? std::to_string(*value) : std::string("more than 64 bits");
    };
    throw InputError(own.where + " expects that " + own.leftText +
                     (own.atLeast ? " is at least " : " is equal to ") + own.rightText + ", but " +
                     text(left) + " and " + text(right) + " were given");
  }
}

void Function::takeParameters(Run &run) const {
  {
    std::lock_guard<std::mutex> guard(turn);
    run.parameters = parameters;
  }
  for (size_t i = 0; i < run.parameters.size(); ++i) {
    const Parameter &own = run.parameters[i];
    const std::string &what = shown[kParameter][i].name;
    if (own.data == nullptr)
      throw InputError(what + " isn't set: set_parameter has to give it before a run");
    const size_t expected = bytesOf(kParameter, i, run.sizes);
    if (own.bytes != expected)
      throw InputError(what + " has " + std::to_string(own.bytes) +
                       " bytes, but these sizes need " + std::to_string(expected));
    run.params.push_back(reinterpret_cast<uintptr_t>(own.data));
  }
}

bool Function::isInPlace(const Run &run, size_t output) const {
  const std::optional<Buffer::Tied> &tied = spec.buffers[kOutput][output].tied;
  if (!tied || run.outputBytes[output] == 0)
    return false;
  if (tied->kind == kInput)
    return run.inputs[tied->index] == run.outputs[output];
  return run.parameters[tied->index].own && run.params[tied->index] == run.outputs[output];
}

/// Throws InputError where memory that a run writes is read or written under another name, too.
void Function::checkApart(const Run &run) const {
  struct Span {
    uintptr_t begin, end;
    size_t kind, index;
  };
  std::vector<Span> spans;
  std::vector<bool> taken[2] = {std::vector<bool>(run.inputs.size()),
                                std::vector<bool>(run.params.size())};
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    if (run.outputBytes[i] > 0)
      spans.push_back({run.outputs[i], run.outputs[i] + run.outputBytes[i], kOutput, i});
    if (!isInPlace(run, i))
      continue;
    const Buffer::Tied &tied = *spec.buffers[kOutput][i].tied;
    taken[tied.kind][tied.index] = true;
  }
  for (size_t i = 0; i < run.inputs.size(); ++i)
    if (run.inputBytes[i] > 0 && !taken[kInput][i])
      spans.push_back({run.inputs[i], run.inputs[i] + run.inputBytes[i], kInput, i});
  for (size_t i = 0; i < run.params.size(); ++i)
    if (run.parameters[i].bytes > 0 && !taken[kParameter][i])
      spans.push_back({run.params[i], run.params[i] + run.parameters[i].bytes, kParameter, i});
  std::sort(spans.begin(), spans.end(),
            [](const Span &one, const Span &other) { return one.begin < other.begin; });
  // How far those before reach that are read, and written, and whose that is.
  const Span *read = nullptr, *written = nullptr;
  for (const Span &own : spans) {
    const bool writes = own.kind == kOutput;
    const Span *other = written != nullptr && own.begin < written->end       ? written
                        : writes && read != nullptr && own.begin < read->end ? read
                                                                             : nullptr;
    if (other != nullptr)
      throw InputError(shown[own.kind][own.index].name + " and " +
                       shown[other->kind][other->index].name +
                       " share memory, but what a run writes is its alone");
    const Span *&last = writes ? written : read;
    if (last == nullptr || own.end > last->end)
      last = &own;
  }
}

/// Copies what outputs start with that are updated somewhere else than in place.
void Function::startOutputs(const Run &run) const {
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    const std::optional<Buffer::Tied> &tied = spec.buffers[kOutput][i].tied;
    if (!tied || !tied->updated || run.outputBytes[i] == 0 || isInPlace(run, i))
      continue;
    const uintptr_t from = tied->kind == kInput ? run.inputs[tied->index] : run.params[tied->index];
    std::memcpy(reinterpret_cast<void *>(run.outputs[i]), reinterpret_cast<const void *>(from),
                run.outputBytes[i]);
  }
}

void Function::run(const int64_t *sizes, size_t sizeCount, const rlx_input *inputs,
                   size_t inputCount, const rlx_output *outputs, size_t outputCount) {
  Run run;
  run.sizes = checkedSizes(sizes, sizeCount);
  checkConditions(run.sizes);
  auto take = [&](size_t kind, const auto *given, size_t count, std::vector<uintptr_t> &addresses,
                  std::vector<size_t> &bytes) {
    const std::vector<Buffer> &buffers = spec.buffers[kind];
    if (count != buffers.size())
      throw InputError("'" + spec.name + "' has " + counted(buffers.size(), kindName(kind)) +
                       ", but got " + std::to_string(count));
    if (count > 0 && given == nullptr)
      throw InputError(std::string("the list of ") + kindName(kind) + "s of '" + spec.name +
                       "' is at a null address");
    for (size_t i = 0; i < count; ++i) {
      bytes.push_back(bytesOf(kind, i, run.sizes));
      addresses.push_back(checkedMemory(kind, i, given[i].data, given[i].bytes, bytes.back()));
    }
  };
  take(kInput, inputs, inputCount, run.inputs, run.inputBytes);
  take(kOutput, outputs, outputCount, run.outputs, run.outputBytes);
  takeParameters(run);
  for (size_t i = 0; i < outputCount; ++i) {
    // An output is as large as what it is tied to, which the compiler has seen to.
    const std::optional<Buffer::Tied> &tied = spec.buffers[kOutput][i].tied;
    if (tied && run.outputBytes[i] != (tied->kind == kInput ? run.inputBytes[tied->index]
                                                            : run.parameters[tied->index].bytes))
      throw InputError(shown[kOutput][i].name + " is tied to " +
                       shown[tied->kind][tied->index].name + ", which has another size");
  }
  checkApart(run);
  startOutputs(run);
  run.sizes.resize(spec.plan.symbols.size()); // those behind are of inputs that no code reads
  plan->run(run.inputs, run.params, run.outputs, run.sizes);
}

//===----------------------------------------------------------------------===//
// A library
//===----------------------------------------------------------------------===//

Function &Model::function(size_t number) const {
  if (number >= functions.size())
    throw InputError("'" + description->name + "' has " + counted(functions.size(), "function") +
                     ", but number " + std::to_string(number) + " was asked for");
  return *functions[number];
}

int Model::checkedThreads(int threads) {
  if (threads < 0 || threads > kMaxThreads)
    throw InputError("threads must be from 1 to " + std::to_string(kMaxThreads) +
                     ", or 0 for as many as the process may use, but it is " +
                     std::to_string(threads));
  return threads == 0 ? defaultThreads() : threads;
}

/// Code that has instructions which the processor lacks would end the process.
void Model::checkMachine(const Description &description) {
  const Processor &processor = hostProcessor();
  if (description.machine != processor.architecture)
    throw ExecutionError("'" + description.name + "' was compiled for " + description.machine +
                         ", but this machine is " + processor.architecture);
  const std::string missing = lackingFeatures(description.features);
  if (!missing.empty())
    throw ExecutionError("'" + description.name + "' was compiled for a processor with " + missing +
                         ", which this one (" + processor.name + ") lacks");
  if (description.tiles && !requestTiles())
    throw ExecutionError("the code of '" + description.name +
                         "' uses AMX tiles, which the operating system doesn't lend");
}

} // namespace rlx::runtime::c
