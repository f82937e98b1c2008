// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "description.h"

#include "runtime/error.h"
#include "runtime/plan_reader.h"

#include <algorithm>

namespace rlx::runtime::c {
namespace {

constexpr int64_t kVersion = 1;

size_t numberBelow(const Value &value, size_t limit, const char *what) {
  const size_t number = value.asCount(what);
  if (number >= limit)
    throw InputError(std::string(what) + " must be below " + std::to_string(limit) +
                     ", but it is " + std::to_string(number));
  return number;
}

void checkSymbols(const Expr &size, size_t count) {
  for (const Expr::Term &term : size.terms)
    for (const Expr::Factor &factor : term.factors) {
      if (factor.derived)
        checkSymbols(factor.derived->size, count);
      else if (factor.symbol < 0 || size_t(factor.symbol) >= count)
        throw InputError("a size names symbol " + std::to_string(factor.symbol) + " of " +
                         std::to_string(count));
    }
}

Expr readCheckedSize(const Value &value, size_t symbols) {
  Expr size = readSize(value);
  checkSymbols(size, symbols);
  return size;
}

Buffer readBuffer(const Value &value, size_t symbols) {
  const std::vector<Value> &parts =
      value.asList(8, "a buffer (name, dtype, alignment, bytes, formulas, sizes, tied, place)");
  Buffer buffer{parts[0].asText("a name"),
                parts[1].asText("an element type"),
                parts[2].asCount("an alignment"),
                parts[3].asCount("bytes of an element"),
                {},
                {},
                std::nullopt,
                std::nullopt};
  if (buffer.alignment == 0 || buffer.elementBytes == 0)
    throw InputError("alignment and bytes of an element of '" + buffer.name +
                     "' must be 1 or more");
  for (const Value &text : parts[4].asList(-1, "formulas"))
    buffer.formulas.push_back(text.asText("a formula"));
  for (const Value &size : parts[5].asList(ptrdiff_t(buffer.formulas.size()), "sizes"))
    buffer.dims.push_back(readCheckedSize(size, symbols));
  if (!parts[6].isNone()) {
    const std::vector<Value> &tied = parts[6].asList(3, "a tie (kind, index, updated)");
    buffer.tied = {numberBelow(tied[0], kOutput, "the kind of a tie"), tied[1].asCount("an index"),
                   tied[2].asInteger("whether it is updated") != 0};
  }
  if (!parts[7].isNone()) {
    const std::vector<Value> &place = parts[7].asList(2, "a place (offset, bytes)");
    buffer.place = {place[0].asCount("an offset"), place[1].asCount("a number of bytes")};
  }
  return buffer;
}

Condition readCondition(const Value &value, size_t symbols) {
  const std::vector<Value> &parts =
      value.asList(6, "a condition (text, size, text, size, at least, where)");
  return {parts[0].asText("a formula"),
          parts[2].asText("a formula"),
          parts[5].asText("what needs a condition"),
          readCheckedSize(parts[1], symbols),
          readCheckedSize(parts[3], symbols),
          parts[4].asInteger("the kind of a condition") != 0};
}

/// Throws InputError where lists of the plan and of the buffers don't fit each other.
void checkAgreement(const FunctionSpec &function) {
  const std::vector<std::string> *names[] = {&function.plan.inputs, &function.plan.params,
                                             &function.plan.outputs};
  const std::vector<PlanSpec::Extent> *extents[] = {
      &function.plan.inputExtents, &function.plan.paramExtents, &function.plan.outputExtents};
  for (size_t kind = 0; kind < 3; ++kind) {
    const std::vector<Buffer> &buffers = function.buffers[kind];
    if (buffers.size() != names[kind]->size() || buffers.size() != extents[kind]->size())
      throw InputError("'" + function.name + "' has " + std::to_string(buffers.size()) + " " +
                       kindName(kind) + "s, but its plan " + std::to_string(names[kind]->size()));
    for (const Buffer &buffer : buffers)
      if (buffer.tied && buffer.tied->index >= function.buffers[buffer.tied->kind].size())
        throw InputError("'" + buffer.name + "' is tied to " + kindName(buffer.tied->kind) + " " +
                         std::to_string(buffer.tied->index) + ", which isn't there");
  }
  const std::vector<PlanSpec::Symbol> &own = function.plan.symbols;
  bool fit = own.size() <= function.symbols.size();
  for (size_t i = 0; fit && i < own.size(); ++i)
    fit = own[i].name == function.symbols[i].name && own[i].maximum == function.symbols[i].maximum;
  if (!fit)
    throw InputError("the symbols of '" + function.name + "' aren't those of its plan");
}

} // namespace

const char *kindName(size_t kind) {
  constexpr const char *names[] = {"input", "parameter", "output"};
  return names[kind];
}

std::vector<int64_t> Buffer::shape(const std::vector<int64_t> &sizes,
                                   const std::string &where) const {
  std::vector<int64_t> shape;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    std::optional<int64_t> size = dims[axis].evaluateChecked(sizes.data());
    if (!size)
      throw InputError("dimension " + std::to_string(axis) + " of " + where + ", " +
                       formulas[axis] + ", has more than 64 bits for these sizes");
    shape.push_back(std::max<int64_t>(0, *size));
  }
  return shape;
}

size_t Buffer::bytes(const std::vector<int64_t> &sizes, const std::string &where) const {
  const std::vector<int64_t> own = shape(sizes, where);
  if (std::find(own.begin(), own.end(), 0) != own.end())
    return 0;
  int64_t bytes = int64_t(elementBytes);
  for (int64_t size : own)
    if (__builtin_mul_overflow(bytes, size, &bytes))
      throw InputError(where + " has more bytes than 63 bits can count for these sizes");
  return size_t(bytes);
}

std::string FunctionSpec::nameOf(size_t kind, size_t index) const {
  return std::string(kindName(kind)) + " '" + buffers[kind][index].name + "' of '" + name + "'";
}

FunctionSpec readFunction(const Value &value) {
  const std::vector<Value> &parts =
      value.asList(7, "a function (name, plan, symbols, inputs, params, outputs, conditions)");
  FunctionSpec function;
  function.name = parts[0].asText("the name of a function");
  function.plan = readPlanSpec(parts[1]);
  for (const Value &item : parts[2].asList(-1, "symbols")) {
    const std::vector<Value> &symbol = item.asList(2, "a symbol (name, maximum)");
    function.symbols.push_back(
        {symbol[0].asText("a name"), int64_t(symbol[1].asCount("the maximum of a symbol"))});
  }
  for (size_t kind = 0; kind < 3; ++kind)
    for (const Value &item : parts[3 + kind].asList(-1, "buffers"))
      function.buffers[kind].push_back(readBuffer(item, function.symbols.size()));
  for (const Value &item : parts[6].asList(-1, "conditions"))
    function.conditions.push_back(readCondition(item, function.symbols.size()));
  checkAgreement(function);
  return function;
}

Description readDescription(std::string_view bytes) {
  const Value value = readValue(bytes);
  // The version comes first, as what follows it depends on it.
  if (value.kind != Value::Kind::List || value.items.empty() ||
      value.items[0].asInteger("the version of a description") != kVersion)
    throw InputError("the description isn't of version " + std::to_string(kVersion));
  const std::vector<Value> &parts = value.asList(
      7, "a description (version, name, machine, features, tiles, weights, functions)");
  Description description{parts[1].asText("the name of a library"),
                          parts[2].asText("a machine"),
                          {},
                          parts[4].asInteger("whether tiles are used") != 0,
                          std::nullopt,
                          {}};
  for (const Value &feature : parts[3].asList(-1, "features"))
    description.features.push_back(feature.asText("a feature"));
  if (!parts[5].isNone()) {
    const std::vector<Value> &weights =
        parts[5].asList(4, "weights (embedded, file, bytes, digest)");
    description.weights = {weights[0].asInteger("whether weights are embedded") != 0,
                           weights[1].asText("the name of a file"),
                           weights[2].asCount("a number of bytes"), weights[3].asText("a digest")};
  }
  for (const Value &function : parts[6].asList(-1, "functions"))
    description.functions.push_back(readFunction(function));
  return description;
}

} // namespace rlx::runtime::c
