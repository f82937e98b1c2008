// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan_spec.h"

#include "error.h"

#include <algorithm>
#include <limits>

namespace rlx::runtime {
namespace {

/// Slots of the arena start at its multiples.
constexpr int64_t kAlignment = 64;
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

/// elementBytes * dims; as much as there can be where that has more than 64 bits.
int64_t denseBytes(int64_t elementBytes, const std::vector<int64_t> &dims) {
  // A size of 0 makes it 0, whatever the others are.
  if (std::find(dims.begin(), dims.end(), 0) != dims.end())
    return 0;
  int64_t bytes = elementBytes;
  for (int64_t dim : dims)
    if (__builtin_mul_overflow(bytes, dim, &bytes))
      return kUnlimited;
  return bytes;
}

} // namespace

bool Expr::isFixed() const {
  return std::all_of(terms.begin(), terms.end(),
                     [](const Term &term) { return term.factors.empty(); });
}

int64_t Expr::evaluate(const std::vector<int64_t> &sizes) const {
  int64_t sum = 0;
  for (const Term &term : terms) {
    int64_t product = term.coefficient;
    for (const Factor &factor : term.factors)
      product *= factor.derived ? factor.derived->apply(factor.derived->size.evaluate(sizes))
                                : sizes[factor.symbol];
    sum += product;
  }
  return sum;
}

std::optional<int64_t> Expr::evaluateChecked(const int64_t *sizes) const {
  int64_t sum = 0;
  for (const Term &term : terms) {
    int64_t product = term.coefficient;
    for (const Factor &factor : term.factors) {
      std::optional<int64_t> value =
          factor.derived ? factor.derived->size.evaluateChecked(sizes) : sizes[factor.symbol];
      if (!value)
        return std::nullopt;
      if (factor.derived)
        value = factor.derived->apply(*value);
      if (__builtin_mul_overflow(product, *value, &product))
        return std::nullopt;
    }
    if (__builtin_add_overflow(sum, product, &sum))
      return std::nullopt;
  }
  return sum;
}

int64_t Expr::Derived::apply(int64_t value) const {
  if (kind == Kind::Max)
    return std::max(value, number);
  return value / number - (value % number < 0); // the number is positive
}

//===----------------------------------------------------------------------===//
// What a plan is made from
//===----------------------------------------------------------------------===//

std::vector<int64_t> PlanSpec::maxima() const {
  std::vector<int64_t> sizes;
  for (const Symbol &symbol : symbols)
    sizes.push_back(symbol.maximum);
  return sizes;
}

std::string PlanSpec::nameOf(size_t call) const {
  std::string name = "call " + std::to_string(call);
  int kernel = calls[call].kernel;
  if (kernel >= 0 && size_t(kernel) < kernels.size())
    name += " (" + kernels[kernel] + ")";
  return name;
}

void PlanSpec::fail(size_t call, const std::string &problem) const {
  throw InputError(nameOf(call) + ": " + problem);
}

void PlanSpec::failBlock(size_t block, const std::string &problem) const {
  throw InputError("block " + std::to_string(block) + ": " + problem);
}

void PlanSpec::fail(Owner owner, const std::string &problem) const {
  if (owner.call < 0)
    failBlock(owner.block, problem);
  fail(size_t(owner.call), problem);
}

bool PlanSpec::isWithin(int block, int other) const {
  while (block > other) // what is in a block comes after it
    block = blocks[block].parent;
  return block == other;
}

std::vector<int> PlanSpec::innermostBlocks() const {
  std::vector<int> innermost(calls.size(), -1);
  for (size_t i = 0; i < blocks.size(); ++i)
    std::fill(innermost.begin() + blocks[i].begin, innermost.begin() + blocks[i].end, int(i));
  return innermost;
}

namespace {

/// The largest magnitude that `expr` and its parts have for sizes up to `largest`; none where it
/// may exceed 64 bits. Its symbols exist.
std::optional<int64_t> magnitudeOf(const Expr &expr, const std::vector<int64_t> &largest) {
  int64_t sum = 0;
  for (const Expr::Term &term : expr.terms) {
    if (term.coefficient == std::numeric_limits<int64_t>::min())
      return std::nullopt;
    int64_t product = std::abs(term.coefficient);
    for (const Expr::Factor &factor : term.factors) {
      std::optional<int64_t> value =
          factor.derived ? magnitudeOf(factor.derived->size, largest) : largest[factor.symbol];
      // A quotient is at most as far from 0 as what is divided: the number is at least 1.
      if (value && factor.derived && factor.derived->kind == Expr::Derived::Kind::Max)
        value = std::max(*value, factor.derived->number);
      if (!value || __builtin_mul_overflow(product, *value, &product))
        return std::nullopt;
    }
    if (__builtin_add_overflow(sum, product, &sum))
      return std::nullopt;
  }
  return sum;
}

/// A symbol of `expr` that isn't one of `count`; none where all are.
std::optional<int> unknownSymbol(const Expr &expr, size_t count) {
  for (const Expr::Term &term : expr.terms)
    for (const Expr::Factor &factor : term.factors) {
      if (factor.derived) {
        if (std::optional<int> found = unknownSymbol(factor.derived->size, count))
          return found;
      } else if (factor.symbol < 0 || size_t(factor.symbol) >= count) {
        return factor.symbol;
      }
    }
  return std::nullopt;
}

} // namespace

/// What is wrong with `expr`, which stays within 64 bits for all sizes up to the maxima, names
/// symbols that exist, and at the maxima is from 0 to `limit`; empty where nothing is.
std::string PlanSpec::exprProblem(const Expr &expr, const char *what, int64_t limit) const {
  if (std::optional<int> symbol = unknownSymbol(expr, symbols.size()))
    return std::string(what) + " names symbol " + std::to_string(*symbol) + " of " +
           std::to_string(symbols.size());
  const std::vector<int64_t> largest = maxima();
  if (!magnitudeOf(expr, largest))
    return std::string(what) + " exceeds 64 bits at the maxima of the symbols";
  int64_t value = expr.evaluate(largest);
  if (value < 0 || value > limit)
    return std::string(what) + " must be from 0 to " + std::to_string(limit) +
           " at the maxima of the symbols, but it is " + std::to_string(value);
  return "";
}

void PlanSpec::checkExpr(const Expr &expr, size_t call, const char *what, int64_t limit) const {
  if (std::string problem = exprProblem(expr, what, limit); !problem.empty())
    fail(call, problem);
}

void PlanSpec::validate() const {
  if (arenaBytes < 0)
    throw InputError("the arena cannot have " + std::to_string(arenaBytes) + " bytes");
  for (const Symbol &symbol : symbols)
    if (symbol.maximum < 0)
      throw InputError("the maximum of '" + symbol.name + "' cannot be " +
                       std::to_string(symbol.maximum));
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot &slot = slots[i];
    if (slot.offset < 0 || slot.bytes < 0 || slot.offset % kAlignment != 0 ||
        slot.bytes > arenaBytes || slot.offset > arenaBytes - slot.bytes)
      throw InputError("slot " + std::to_string(i) + " (offset " + std::to_string(slot.offset) +
                       ", " + std::to_string(slot.bytes) + " bytes) must start at a multiple of " +
                       std::to_string(kAlignment) + " and lie in the arena of " +
                       std::to_string(arenaBytes) + " bytes");
  }
  validateCalls();
  validateBlocks();
  validateExtents(inputExtents, inputs, "input");
  validateExtents(paramExtents, params, "param");
  validateExtents(outputExtents, outputs, "output");
  validatePositions();
}

/// What is wrong with a buffer, but for where its moves belong; empty where nothing is.
std::string PlanSpec::bufferProblem(const Buffer &buffer) const {
  const size_t counts[] = {slots.size(), inputs.size(), params.size(), outputs.size()};
  const char *const kinds[] = {"slot", "input", "param", "output"};
  const size_t kind = size_t(buffer.source);
  if (buffer.index < 0 || size_t(buffer.index) >= counts[kind])
    return std::string("there is no ") + kinds[kind] + " " + std::to_string(buffer.index) +
           " among " + std::to_string(counts[kind]);
  const bool inArena = buffer.source == Source::Arena;
  std::string problem = exprProblem(buffer.offset, "a buffer's offset",
                                    inArena ? slots[buffer.index].bytes : kUnlimited);
  for (const Move &move : buffer.moves) {
    if (!problem.empty())
      break;
    if (move.block < 0 || size_t(move.block) >= blocks.size() ||
        blocks[move.block].kind != Block::Kind::For)
      problem = "a buffer moves with block " + std::to_string(move.block) + ", which is no loop";
    else if (std::optional<int> symbol = unknownSymbol(move.stride, symbols.size()))
      problem = "a stride names symbol " + std::to_string(*symbol) + " of " +
                std::to_string(symbols.size());
    else if (!magnitudeOf(move.stride, maxima()))
      problem = "a stride exceeds 64 bits at the maxima of the symbols";
  }
  return problem;
}

void PlanSpec::validateCalls() const {
  for (size_t i = 0; i < calls.size(); ++i) {
    const Call &call = calls[i];
    if (call.kernel < 0 || size_t(call.kernel) >= kernels.size())
      fail(i, "there is no kernel " + std::to_string(call.kernel) + " among " +
                  std::to_string(kernels.size()));
    for (const Buffer &buffer : call.buffers)
      if (std::string problem = bufferProblem(buffer); !problem.empty())
        fail(i, problem);
    for (const Expr &dim : call.dims)
      checkExpr(dim, i, "a dim", kUnlimited);
    if (call.work)
      checkExpr(*call.work, i, "work", kUnlimited);
  }
}

/// What is wrong with a block; empty where nothing is. `free` is the first call after the blocks
/// before it that are in the same part.
std::string PlanSpec::blockProblem(size_t number, size_t &free) const {
  const Block &block = blocks[number];
  if (block.parent < -1 || block.parent >= int(number) || block.part < 0 || block.part > 1)
    return "it can't be in part " + std::to_string(block.part) + " of block " +
           std::to_string(block.parent);
  size_t from = 0, to = calls.size();
  if (block.parent >= 0) {
    const Block &parent = blocks[block.parent];
    from = block.part == 0 ? parent.begin : parent.middle;
    to = block.part == 0 ? parent.middle : parent.end;
  }
  from = std::max(from, free);
  if (block.begin < from || block.middle < block.begin || block.end < block.middle ||
      block.end > to)
    return "its calls, from " + std::to_string(block.begin) + " to " + std::to_string(block.end) +
           ", must be among those from " + std::to_string(from) + " to " + std::to_string(to);
  free = block.end;
  const bool counts = block.kind == Block::Kind::For;
  if (counts != !block.flag || (counts && (!block.steps || block.begin != block.middle)) ||
      (block.kind == Block::Kind::If && (block.steps || !block.swaps.empty())))
    return "loops that count have steps and no flag, others a flag, and choices no steps or swaps";
  std::string problem;
  if (block.steps)
    problem = exprProblem(*block.steps, "a number of steps", kUnlimited);
  if (block.flag && problem.empty())
    problem = bufferProblem(*block.flag);
  for (const Swap &swap : block.swaps) {
    for (const Buffer *buffer : {&swap.current, &swap.next})
      if (problem.empty())
        problem = bufferProblem(*buffer);
    if (problem.empty())
      problem = exprProblem(swap.bytes, "the bytes of a swap", kUnlimited);
    if (problem.empty() &&
        (swap.next.source != Source::Arena ||
         (swap.current.source != Source::Arena && swap.current.source != Source::Output)))
      problem = "slots of the arena take turns with slots or outputs";
  }
  return problem;
}

void PlanSpec::validateBlocks() const {
  std::vector<size_t> free(2 * (blocks.size() + 1), 0); // by parent and part
  for (size_t i = 0; i < blocks.size(); ++i) {
    const int parent = std::clamp(blocks[i].parent, -1, int(i) - 1);
    size_t &own = free[2 * (parent + 1) + (blocks[i].part == 1)];
    if (std::string problem = blockProblem(i, own); !problem.empty())
      failBlock(i, problem);
  }
  const std::vector<int> innermost = innermostBlocks();
  forEachOperand(*this, [&](const Buffer &buffer, Owner owner) {
    const int inside = owner.call >= 0 ? innermost[owner.call] : owner.block;
    for (const Move &move : buffer.moves)
      if (!isWithin(inside, move.block))
        failBlock(move.block, "a buffer moves with it that isn't in it");
  });
}

void PlanSpec::validatePositions() const {
  for (size_t i = 0; i < positions.size(); ++i) {
    const Positions &own = positions[i];
    const size_t count = own.source == Source::Input ? inputs.size() : params.size();
    std::string problem;
    if ((own.source != Source::Input && own.source != Source::Param) || own.index < 0 ||
        size_t(own.index) >= count)
      problem = "they must be an input or a parameter that exists";
    for (const Expr *expr : {&own.count, &own.rows, &own.limit})
      if (problem.empty())
        problem = exprProblem(*expr, "a number of rows", kUnlimited);
    if (!problem.empty())
      throw InputError("positions " + std::to_string(i) + ": " + problem);
  }
}

void PlanSpec::validateExtents(const std::vector<Extent> &extents,
                               const std::vector<std::string> &names, const char *kind) const {
  if (!extents.empty() && extents.size() != names.size())
    throw InputError("expects the sizes of " + std::to_string(names.size()) + " " + kind +
                     "s, but got " + std::to_string(extents.size()));
  for (size_t i = 0; i < extents.size(); ++i) {
    std::string problem;
    if (extents[i].elementBytes < 1)
      problem = "an element cannot have " + std::to_string(extents[i].elementBytes) + " bytes";
    for (const Expr &dim : extents[i].dims)
      if (problem.empty())
        problem = exprProblem(dim, "a size", kUnlimited);
    if (!problem.empty())
      throw InputError(std::string(kind) + " '" + names[i] + "': " + problem);
  }
}

void checkAddresses(const std::vector<uintptr_t> &addresses, const std::vector<std::string> &names,
                    const char *kind) {
  if (addresses.size() != names.size())
    throw InputError("expects " + std::to_string(names.size()) + " " + kind +
                     " addresses, but got " + std::to_string(addresses.size()));
  for (size_t i = 0; i < addresses.size(); ++i)
    if (addresses[i] == 0)
      throw InputError(std::string("the address of ") + kind + " '" + names[i] + "' is null");
}

//===----------------------------------------------------------------------===//
// What depends on sizes
//===----------------------------------------------------------------------===//

PlanSizes::PlanSizes(const PlanSpec &spec) : spec(spec) {
  size_t dims = 0;
  for (const PlanSpec::Call &call : spec.calls) {
    firstDim.push_back(dims);
    dims += call.dims.size();
  }
  allDims.resize(dims);
}

bool PlanSizes::update(const std::vector<int64_t> &sizes) {
  if (known && sizes == current)
    return false;
  known = false;
  checkSizes(sizes);
  compute(sizes);
  current = sizes;
  known = true;
  return true;
}

void PlanSizes::checkSizes(const std::vector<int64_t> &sizes) const {
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

void PlanSizes::compute(const std::vector<int64_t> &sizes) {
  size_t dim = 0;
  for (size_t i = 0; i < spec.calls.size(); ++i) {
    for (const Expr &expr : spec.calls[i].dims) {
      allDims[dim] = expr.evaluate(sizes);
      if (allDims[dim] < 0)
        spec.fail(i, "a dim is " + std::to_string(allDims[dim]) + " for these sizes");
      ++dim;
    }
  }
  computeOperands(sizes);
  computeBytes(sizes);
  ranges.clear();
  for (const PlanSpec::Positions &own : spec.positions) {
    const Range range = {own.count.evaluate(sizes), own.rows.evaluate(sizes),
                         own.limit.evaluate(sizes)};
    std::optional<int64_t> bytes = bytesOf(own.source, own.index);
    if (bytes && range.count > *bytes / int64_t(sizeof(int32_t)))
      throw InputError("there are " + std::to_string(range.count) + " positions in " +
                       std::to_string(*bytes) + " bytes");
    ranges.push_back(range);
  }
}

void PlanSizes::computeOperands(const std::vector<int64_t> &sizes) {
  allOffsets.clear();
  allStrides.clear();
  allSteps.clear();
  allSwapped.clear();
  forEachOperand(spec, [&](const PlanSpec::Buffer &buffer, Owner owner) {
    const int64_t offset = buffer.offset.evaluate(sizes);
    const bool inArena = buffer.source == Source::Arena;
    if (offset < 0 || (inArena && offset > spec.slots[buffer.index].bytes))
      spec.fail(owner, "a buffer's offset is " + std::to_string(offset) + " bytes for these sizes");
    allOffsets.push_back(offset + (inArena ? spec.slots[buffer.index].offset : 0));
    for (const PlanSpec::Move &move : buffer.moves)
      allStrides.push_back(move.stride.evaluate(sizes));
  });
  for (const PlanSpec::Block &block : spec.blocks) {
    allSteps.push_back(block.steps ? block.steps->evaluate(sizes) : kUnlimited);
    for (const PlanSpec::Swap &swap : block.swaps)
      allSwapped.push_back(swap.bytes.evaluate(sizes));
  }
}

void PlanSizes::computeBytes(const std::vector<int64_t> &sizes) {
  const std::pair<Source, const std::vector<PlanSpec::Extent> *> kinds[] = {
      {Source::Input, &spec.inputExtents},
      {Source::Param, &spec.paramExtents},
      {Source::Output, &spec.outputExtents}};
  std::vector<int64_t> dims;
  for (const auto &[source, extents] : kinds) {
    std::vector<int64_t> &bytes = allBytes[size_t(source)];
    bytes.clear();
    for (const PlanSpec::Extent &extent : *extents) {
      dims.clear();
      for (const Expr &dim : extent.dims)
        dims.push_back(std::max<int64_t>(0, dim.evaluate(sizes)));
      bytes.push_back(denseBytes(extent.elementBytes, dims));
    }
  }
}

std::optional<int64_t> PlanSizes::bytesOf(Source source, int index) const {
  const std::vector<int64_t> &bytes = allBytes[size_t(source)];
  return bytes.empty() ? std::nullopt : std::optional(bytes[index]);
}

int64_t PlanSizes::positionCount(Source source, int index) const {
  if (std::optional<int64_t> bytes = bytesOf(source, index))
    return *bytes / int64_t(sizeof(int32_t));
  int64_t count = 0;
  for (size_t i = 0; i < ranges.size(); ++i)
    if (spec.positions[i].source == source && spec.positions[i].index == index)
      count = std::max(count, ranges[i].count);
  return count;
}

/// Code writes rows of caches, and reads rows of tables, where these numbers say.
void PlanSizes::checkRange(size_t number, const int32_t *values) const {
  const PlanSpec::Positions &own = spec.positions[number];
  const auto [count, rows, limit] = ranges[number];
  for (int64_t entry = 0; entry < count; ++entry) {
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

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

KernelFunctions::KernelFunctions(const Symbols &code, const std::string &name)
    : compute(reinterpret_cast<decltype(compute)>(code.function(name))),
      units(reinterpret_cast<decltype(units)>(code.function(name + "_units"))),
      scratch(reinterpret_cast<decltype(scratch)>(code.function(name + "_scratch"))) {
  if (code.find(name + "_shared"))
    shared = reinterpret_cast<decltype(shared)>(code.function(name + "_shared"));
  if (shared)
    finish = std::make_unique<KernelFunctions>(code, name + "_finish");
  if (void *words = code.find(name + "_signature"))
    signature.emplace(static_cast<const int64_t *>(words),
                      code.bytesFrom(name + "_signature") / sizeof(int64_t), name);
}

namespace {

/// Reads the words of a signature, of which the first says how many there are: at most as many as
/// there is memory for.
class Words {
public:
  Words(const int64_t *words, size_t most, const std::string &name) : words(words), name(name) {
    if (reinterpret_cast<uintptr_t>(words) % alignof(int64_t) != 0 || most == 0 || words[0] < 1 ||
        uint64_t(words[0]) > most)
      fail();
    left = words[0] - 1;
  }

  int64_t next() {
    if (left <= 0)
      fail();
    --left;
    return *++words;
  }
  /// The next word, which says how many of something follow.
  int64_t count() {
    int64_t value = next();
    if (value < 0 || value > left)
      fail();
    return value;
  }
  [[noreturn]] void fail() const {
    throw ExecutionError("the signature of kernel '" + name + "' makes no sense");
  }

private:
  const int64_t *words;
  int64_t left = 0;
  const std::string &name;
};

/// A size of `dimCount` dims, as `Signature` describes it, at so deep a place of another one.
Expr readExpr(Words &words, size_t dimCount, int depth) {
  if (depth > Expr::Derived::kDepth)
    words.fail();
  Expr expr;
  for (int64_t term = words.count(); term > 0; --term) {
    Expr::Term own{words.next(), {}};
    for (int64_t factor = words.count(); factor > 0; --factor) {
      const int64_t word = words.next();
      if (word >= 0) {
        if (size_t(word) >= dimCount)
          words.fail();
        own.factors.push_back({int(word), nullptr});
        continue;
      }
      const bool divides = word == -1;
      const int64_t number = words.next();
      if ((!divides && word != -2) || (divides && number < 1))
        words.fail();
      own.factors.push_back(
          {-1, std::make_shared<const Expr::Derived>(
                   Expr::Derived{divides ? Expr::Derived::Kind::FloorDiv : Expr::Derived::Kind::Max,
                                 number, readExpr(words, dimCount, depth + 1)})});
    }
    expr.terms.push_back(std::move(own));
  }
  return expr;
}

} // namespace

Signature::Signature(const int64_t *given, size_t most, const std::string &name) {
  Words words(given, most, name);
  for (int64_t i = words.count(); i > 0; --i) {
    Buffer buffer{words.next(), {}};
    if (buffer.elementBytes < 1)
      words.fail();
    for (int64_t axis = words.count(); axis > 0; --axis) {
      buffer.shape.push_back(words.next());
      dimCount += buffer.shape.back() < 0;
    }
    buffers.push_back(std::move(buffer));
  }
  for (int64_t i = words.count(); i > 0; --i) {
    const bool atLeast = words.next() != 0;
    relations.push_back({atLeast, readExpr(words, dimCount, 0)});
  }
}

//===----------------------------------------------------------------------===//
// Whether calls fit the code
//===----------------------------------------------------------------------===//

void checkSignatures(const PlanSpec &spec, const std::vector<KernelFunctions> &kernels) {
  for (size_t i = 0; i < spec.calls.size(); ++i) {
    const PlanSpec::Call &call = spec.calls[i];
    const std::optional<Signature> &signature = kernels[call.kernel].signature;
    if (!signature)
      continue;
    auto expect = [&](size_t expected, size_t given, const char *what) {
      if (expected != given)
        spec.fail(i, "its kernel takes " + std::to_string(expected) + " " + what + ", but got " +
                         std::to_string(given));
    };
    expect(signature->buffers.size(), call.buffers.size(), "buffers");
    expect(signature->dimCount, call.dims.size(), "dims");
  }
}

namespace {

/// Bytes that each operand has to have, in the order of `forEachOperand`; none where nothing says.
std::vector<std::optional<int64_t>> neededBytes(const PlanSpec &spec,
                                                const std::vector<KernelFunctions> &kernels,
                                                const PlanSizes &layout) {
  std::vector<std::optional<int64_t>> needed;
  std::vector<int64_t> shape;
  for (size_t i = 0; i < spec.calls.size(); ++i) {
    const PlanSpec::Call &call = spec.calls[i];
    const std::optional<Signature> &signature = kernels[call.kernel].signature;
    const int64_t *next = layout.dims(i);
    for (size_t b = 0; b < call.buffers.size(); ++b) {
      needed.emplace_back();
      if (!signature)
        continue;
      shape.clear();
      for (int64_t size : signature->buffers[b].shape)
        shape.push_back(size < 0 ? *next++ : size);
      needed.back() = denseBytes(signature->buffers[b].elementBytes, shape);
    }
  }
  size_t swap = 0;
  for (const PlanSpec::Block &block : spec.blocks) {
    if (block.flag)
      needed.emplace_back(1);
    for (size_t i = 0; i < block.swaps.size(); ++i, ++swap)
      needed.insert(needed.end(), 2, layout.swapped()[swap]);
  }
  return needed;
}

} // namespace

void checkExtents(const PlanSpec &spec, const std::vector<KernelFunctions> &kernels,
                  const PlanSizes &layout, Sizes sizes) {
  const std::vector<std::optional<int64_t>> needed = neededBytes(spec, kernels, layout);
  const std::vector<int> innermost = spec.innermostBlocks();
  // What is in a loop without steps uses nothing: an entry of an empty sequence isn't there.
  auto runsNever = [&](Owner owner) {
    int block = owner.call >= 0 ? innermost[owner.call] : owner.block;
    while (block >= 0 && layout.steps(block) > 0)
      block = spec.blocks[block].parent;
    return block >= 0;
  };
  size_t operand = 0, stride = 0, first = 0;
  Owner before = {-1, -1};
  forEachOperand(spec, [&](const PlanSpec::Buffer &buffer, Owner owner) {
    if (owner.call != before.call || owner.block != before.block)
      first = operand; // of the call or block
    before = owner;
    std::optional<int64_t> bytes = layout.bytesOf(buffer.source, buffer.index);
    int64_t offset = layout.offsets()[operand];
    if (buffer.source == Source::Arena) {
      bytes = spec.slots[buffer.index].bytes;
      offset -= spec.slots[buffer.index].offset;
    }
    // The least and the largest offset in any step.
    int64_t least = offset, largest = offset;
    bool known = true;
    for (const PlanSpec::Move &move : buffer.moves) {
      const int64_t last = std::max<int64_t>(layout.steps(move.block) - 1, 0);
      const int64_t own = layout.strides()[stride++];
      int64_t way = 0;
      known = known && !__builtin_mul_overflow(own, last, &way) &&
              !__builtin_add_overflow(way < 0 ? least : largest, way, way < 0 ? &least : &largest);
    }
    const std::optional<int64_t> own = needed[operand];
    const bool isOutside =
        !known || least < 0 || (bytes && own && (largest > *bytes || *own > *bytes - largest));
    if (isOutside && !runsNever(owner))
      spec.fail(owner, "buffer " + std::to_string(operand - first) + " needs " +
                           std::to_string(own.value_or(0)) + " bytes from byte " +
                           std::to_string(least < 0 ? least : largest) + " on, but there are " +
                           std::to_string(bytes.value_or(0)));
    ++operand;
  });
  if (sizes == Sizes::Maxima)
    return;
  for (size_t i = 0; i < spec.calls.size(); ++i) {
    const std::optional<Signature> &signature = kernels[spec.calls[i].kernel].signature;
    if (!signature)
      continue;
    for (const Signature::Relation &relation : signature->relations) {
      std::optional<int64_t> value = relation.value.evaluateChecked(layout.dims(i));
      if (!value || (relation.atLeast ? *value < 0 : *value != 0))
        spec.fail(i, "its dims don't fit each other");
    }
  }
}

} // namespace rlx::runtime
