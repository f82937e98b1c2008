// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan_reader.h"

#include "error.h"

namespace rlx::runtime {
namespace {

Expr parseExpr(const Value &object, int depth = 0);

/// The index of a symbol, or (kind, number, size) of what is computed of another size.
Expr::Factor parseFactor(const Value &object, int depth) {
  if (object.kind == Value::Kind::Integer)
    return {object.asIndex("a symbol"), nullptr};
  const std::vector<Value> &parts = object.asList(3, "a factor (kind, number, size)");
  const std::string kind = parts[0].asText("the kind of a factor");
  const int64_t number = parts[1].asInteger("the number of a factor");
  const bool divides = kind == "floordiv";
  if (!divides && kind != "max")
    throw InputError("a factor must be a floordiv or a max, but it is '" + kind + "'");
  if (divides && number < 1)
    throw InputError("a size must be divided by 1 or more, but it is by " + std::to_string(number));
  return {-1, std::make_shared<const Expr::Derived>(
                  Expr::Derived{divides ? Expr::Derived::Kind::FloorDiv : Expr::Derived::Kind::Max,
                                number, parseExpr(parts[2], depth + 1)})};
}

/// An int, or a list of (coefficient, [factor, ...]), at so deep a place of another one.
Expr parseExpr(const Value &object, int depth) {
  if (depth > Expr::Derived::kDepth)
    throw InputError("sizes may be computed of others at most " +
                     std::to_string(Expr::Derived::kDepth) + " deep");
  Expr expr;
  if (object.kind == Value::Kind::Integer) {
    expr.terms.push_back({object.asInteger("an expression"), {}});
    return expr;
  }
  for (const Value &item : object.asList(-1, "an expression")) {
    const std::vector<Value> &term = item.asList(2, "a term (coefficient, factors)");
    Expr::Term own{term[0].asInteger("a coefficient"), {}};
    for (const Value &factor : term[1].asList(-1, "the factors of a term"))
      own.factors.push_back(parseFactor(factor, depth));
    expr.terms.push_back(std::move(own));
  }
  return expr;
}

std::vector<Expr> parseExprs(const Value &list) {
  std::vector<Expr> exprs;
  for (const Value &item : list.asList(-1, "dims"))
    exprs.push_back(parseExpr(item));
  return exprs;
}

/// (kind, index, offset), or with what it moves by as well: [(block, stride), ...].
PlanSpec::Buffer parseBuffer(const Value &object) {
  const bool moves = object.kind == Value::Kind::List && object.items.size() == 4;
  const std::vector<Value> &parts = object.asList(moves ? 4 : 3, "a buffer (kind, index, offset)");
  const std::string kind = parts[0].asText("the kind of a buffer");
  Source source;
  if (kind == "arena")
    source = Source::Arena;
  else if (kind == "input")
    source = Source::Input;
  else if (kind == "param")
    source = Source::Param;
  else if (kind == "output")
    source = Source::Output;
  else
    throw InputError("the kind of a buffer must be arena, input, param or output, but it is '" +
                     kind + "'");
  PlanSpec::Buffer buffer{source, parts[1].asIndex("the index of a buffer"), parseExpr(parts[2])};
  if (moves)
    for (const Value &item : parts[3].asList(-1, "the moves of a buffer")) {
      const std::vector<Value> &move = item.asList(2, "a move (block, stride)");
      buffer.moves.push_back({move[0].asIndex("a block"), parseExpr(move[1])});
    }
  return buffer;
}

PlanSpec::Block parseBlock(const Value &object) {
  const std::vector<Value> &parts =
      object.asList(9, "a block (kind, parent, part, begin, middle, end, steps, flag, swaps)");
  const std::string kind = parts[0].asText("the kind of a block");
  if (kind != "for" && kind != "while" && kind != "if")
    throw InputError("a block must be a for, a while or an if, but it is '" + kind + "'");
  using Kind = PlanSpec::Block::Kind;
  PlanSpec::Block block{kind == "for"     ? Kind::For
                        : kind == "while" ? Kind::While
                                          : Kind::If,
                        parts[1].asIndex("the parent of a block"),
                        parts[2].asIndex("the part of a block"),
                        parts[3].asCount("the first call of a block"),
                        parts[4].asCount("the middle of a block"),
                        parts[5].asCount("the end of a block"),
                        std::nullopt,
                        std::nullopt,
                        {}};
  if (!parts[6].isNone())
    block.steps = parseExpr(parts[6]);
  if (!parts[7].isNone())
    block.flag = parseBuffer(parts[7]);
  for (const Value &item : parts[8].asList(-1, "the swaps of a block")) {
    const std::vector<Value> &swap = item.asList(3, "a swap (current, next, bytes)");
    block.swaps.push_back({parseBuffer(swap[0]), parseBuffer(swap[1]), parseExpr(swap[2])});
  }
  return block;
}

PlanSpec::Call parseCall(const Value &object) {
  const std::vector<Value> &parts = object.asList(4, "a call (kernel, buffers, dims, work)");
  PlanSpec::Call call{parts[0].asIndex("a kernel"), {}, parseExprs(parts[2]), std::nullopt};
  for (const Value &item : parts[1].asList(-1, "buffers"))
    call.buffers.push_back(parseBuffer(item));
  if (!parts[3].isNone())
    call.work = parseExpr(parts[3]);
  return call;
}

std::vector<PlanSpec::Extent> parseExtents(const Value &list) {
  std::vector<PlanSpec::Extent> extents;
  for (const Value &item : list.asList(-1, "extents")) {
    const std::vector<Value> &parts = item.asList(2, "an extent (element bytes, sizes)");
    extents.push_back({parts[0].asInteger("bytes of an element"), parseExprs(parts[1])});
  }
  return extents;
}

PlanSpec::Positions parsePositions(const Value &object) {
  const std::vector<Value> &parts =
      object.asList(6, "positions (kind, index, count, rows, limit, where)");
  std::string kind = parts[0].asText("the kind of positions");
  if (kind != "input" && kind != "param")
    throw InputError("the kind of positions must be input or param, but it is '" + kind + "'");
  return {kind == "input" ? Source::Input : Source::Param,
          parts[1].asIndex("the index of positions"),
          parseExpr(parts[2]),
          parseExpr(parts[3]),
          parseExpr(parts[4]),
          parts[5].asText("what needs positions")};
}

std::vector<std::string> parseNames(const Value &list, const char *what) {
  std::vector<std::string> names;
  for (const Value &item : list.asList(-1, what))
    names.push_back(item.asText("a name"));
  return names;
}

} // namespace

Expr readSize(const Value &size) { return parseExpr(size); }

std::vector<Expr> readSizes(const Value &sizes) { return parseExprs(sizes); }

PlanSpec readPlanSpec(const Value &plan) {
  const std::vector<Value> &parts = plan.asList(11, "a plan");
  PlanSpec spec;
  for (const Value &item : parts[0].asList(-1, "symbols")) {
    const std::vector<Value> &symbol = item.asList(2, "a symbol (name, maximum)");
    spec.symbols.push_back(
        {symbol[0].asText("a name"), symbol[1].asInteger("the maximum of a symbol")});
  }
  spec.arenaBytes = parts[1].asInteger("the bytes of the arena");
  for (const Value &item : parts[2].asList(-1, "slots")) {
    const std::vector<Value> &slot = item.asList(2, "a slot (offset, bytes)");
    spec.slots.push_back({slot[0].asInteger("an offset"), slot[1].asInteger("a number of bytes")});
  }
  spec.kernels = parseNames(parts[3], "kernels");
  spec.inputs = parseNames(parts[4], "inputs");
  spec.params = parseNames(parts[5], "params");
  spec.outputs = parseNames(parts[6], "outputs");
  for (const Value &call : parts[7].asList(-1, "calls"))
    spec.calls.push_back(parseCall(call));
  for (const Value &block : parts[8].asList(-1, "blocks"))
    spec.blocks.push_back(parseBlock(block));
  for (const Value &own : parts[9].asList(-1, "positions"))
    spec.positions.push_back(parsePositions(own));
  if (parts[10].isNone())
    return spec;
  const std::vector<Value> &kinds = parts[10].asList(3, "extents (inputs, params, outputs)");
  spec.inputExtents = parseExtents(kinds[0]);
  spec.paramExtents = parseExtents(kinds[1]);
  spec.outputExtents = parseExtents(kinds[2]);
  return spec;
}

} // namespace rlx::runtime
