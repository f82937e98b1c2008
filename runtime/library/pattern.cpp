// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "pattern.h"

#include "runtime/error.h"
#include "runtime/utf8.h"

#include <algorithm>
#include <string>

namespace rlx::runtime::library {
namespace {

constexpr int kDepth = 32;
constexpr size_t kMostInstructions = 1 << 14;
/// Steps that a text may take for each of its bytes: expressions of tokenizers take less than a
/// hundred, and runs of spaces as many as they are long.
constexpr uint64_t kSteps = 1 << 16;

/// Whether a part that was compiled takes a character at least: what doesn't can't come again and
/// again.
bool takesSome(const Value &node) {
  const auto begin = node.items.begin() + 1, end = node.items.end();
  switch (node.items[0].number) {
  case 0:
    return true;
  case 1:
    return std::any_of(begin, end, takesSome);
  case 2:
    return begin != end && std::all_of(begin, end, takesSome);
  case 3:
    return node.items[1].number > 0 && takesSome(node.items[3]);
  default:
    return false;
  }
}

} // namespace

Pattern::Pattern(const Value &node) {
  compile(node, 0);
  add({Instruction::Kind::Match});
}

size_t Pattern::add(Instruction instruction) {
  if (program.size() >= kMostInstructions)
    throw InputError("a pattern has at most " + std::to_string(kMostInstructions) +
                     " instructions");
  program.push_back(instruction);
  return program.size() - 1;
}

void Pattern::compile(const Value &node, int depth) {
  if (depth > kDepth)
    throw InputError("a pattern's parts are at most " + std::to_string(kDepth) +
                     " deep in each other");
  const std::vector<Value> &parts = node.asList(-1, "a part of a pattern");
  const int64_t kind = parts.empty() ? -1 : parts[0].asInteger("the kind of a part");
  switch (kind) {
  case 0:
    return compileSet(node);
  case 1:
    for (size_t i = 1; i < parts.size(); ++i)
      compile(parts[i], depth + 1);
    return;
  case 2:
    return compileChoice(node, depth);
  case 3:
    return compileRepetition(node, depth);
  case 4: {
    const size_t unless = add({Instruction::Kind::Unless});
    compile(node.asList(2, "what mustn't follow")[1], depth + 1);
    add({Instruction::Kind::Match});
    program[unless].first = uint32_t(program.size());
    return;
  }
  case 5:
    add({Instruction::Kind::LineEnd});
    return;
  default:
    throw InputError("a part of a pattern is of a kind from 0 to 5, but is " + node.shown());
  }
}

void Pattern::compileSet(const Value &node) {
  const size_t begin = ranges.size();
  if (node.items.size() % 2 == 0)
    throw InputError("characters of a pattern come in ranges, of which each has two ends");
  for (size_t i = 1; i + 1 < node.items.size(); i += 2) {
    const size_t first = node.items[i].asCount("a character");
    const size_t last = node.items[i + 1].asCount("a character");
    if (first > last || last > 0x10ffff || (i > 1 && first <= ranges.back().last))
      throw InputError("characters of a pattern must come in order");
    ranges.push_back({uint32_t(first), uint32_t(last)});
  }
  add({Instruction::Kind::Set, uint32_t(begin), uint32_t(ranges.size())});
}

void Pattern::compileChoice(const Value &node, int depth) {
  std::vector<size_t> ends;
  for (size_t i = 1; i < node.items.size(); ++i) {
    const bool last = i + 1 == node.items.size();
    const size_t fork = last ? 0 : add({Instruction::Kind::Fork});
    if (!last)
      program[fork].first = uint32_t(program.size());
    compile(node.items[i], depth + 1);
    if (last)
      break;
    ends.push_back(add({Instruction::Kind::Jump}));
    program[fork].second = uint32_t(program.size());
  }
  for (size_t end : ends)
    program[end].first = uint32_t(program.size());
}

void Pattern::compileRepetition(const Value &node, int depth) {
  const std::vector<Value> &parts = node.asList(4, "a repetition (3, least, most, part)");
  const size_t least = parts[1].asCount("how often a part comes");
  const int64_t most = parts[2].asInteger("how often a part comes");
  for (size_t i = 0; i < least; ++i)
    compile(parts[3], depth + 1);
  if (most < 0) {
    const size_t fork = add({Instruction::Kind::Fork});
    program[fork].first = uint32_t(program.size());
    compile(parts[3], depth + 1);
    if (!takesSome(parts[3]))
      throw InputError("a part that comes again and again must take a character");
    add({Instruction::Kind::Jump, uint32_t(fork)});
    program[fork].second = uint32_t(program.size());
    return;
  }
  std::vector<size_t> forks;
  for (size_t i = least; i < size_t(most); ++i) {
    forks.push_back(add({Instruction::Kind::Fork}));
    program[forks.back()].first = uint32_t(program.size());
    compile(parts[3], depth + 1);
  }
  for (size_t fork : forks)
    program[fork].second = uint32_t(program.size());
}

bool Pattern::contains(const Instruction &set, uint32_t code) const {
  const auto begin = ranges.begin() + set.first, end = ranges.begin() + set.second;
  const auto above = std::upper_bound(
      begin, end, code, [](uint32_t wanted, const Range &own) { return wanted < own.first; });
  return above != begin && code <= (above - 1)->last;
}

size_t Pattern::match(std::string_view text, size_t at, size_t pc, uint64_t &steps) const {
  struct State {
    size_t at, pc;
  };
  std::vector<State> left; // what is tried where this doesn't lead on, the last one first
  for (;;) {
    if (steps-- == 0)
      throw InputError("the text takes too many steps to be cut into pieces");
    const Instruction &own = program[pc];
    bool leads = true;
    switch (own.kind) {
    case Instruction::Kind::Match:
      return at;
    case Instruction::Kind::Set: {
      uint32_t code = 0;
      const size_t count = at < text.size() ? readUtf8(text, at, code) : 0;
      leads = count > 0 && contains(own, code);
      at += count;
      ++pc;
      break;
    }
    case Instruction::Kind::Fork:
      left.push_back({at, own.second});
      pc = own.first;
      break;
    case Instruction::Kind::Jump:
      pc = own.first;
      break;
    case Instruction::Kind::Unless:
      leads = match(text, at, pc + 1, steps) == std::string_view::npos;
      pc = own.first;
      break;
    case Instruction::Kind::LineEnd:
      leads = at == text.size() || text[at] == '\n';
      ++pc;
      break;
    }
    if (leads)
      continue;
    if (left.empty())
      return std::string_view::npos;
    at = left.back().at;
    pc = left.back().pc;
    left.pop_back();
  }
}

/// Calls one function for each text between matches, which isn't empty, and another for each match.
template <typename Between, typename Matching>
void Pattern::each(std::string_view text, const Between &between, const Matching &matching) const {
  uint64_t steps = kSteps * (text.size() + 1);
  size_t begin = 0; // of what doesn't match
  for (size_t at = 0; at < text.size();) {
    const size_t end = match(text, at, 0, steps);
    if (end == std::string_view::npos || end == at) {
      uint32_t code;
      at += std::max<size_t>(1, readUtf8(text, at, code));
      continue;
    }
    if (begin < at)
      between(text.substr(begin, at - begin));
    matching(text.substr(at, end - at));
    begin = at = end;
  }
  if (begin < text.size())
    between(text.substr(begin));
}

void Pattern::split(std::string_view text, std::vector<std::string_view> &pieces) const {
  const auto add = [&](std::string_view piece) { pieces.push_back(piece); };
  each(text, add, add);
}

std::string Pattern::replace(std::string_view text, std::string_view with) const {
  std::string found;
  each(
      text, [&](std::string_view piece) { found += piece; },
      [&](std::string_view) { found += with; });
  return found;
}

} // namespace rlx::runtime::library
