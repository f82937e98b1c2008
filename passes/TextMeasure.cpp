// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How deep a text makes MLIR's parser call itself. Nothing limits that, and a stack that overflows
// ends the process.

#include "passes/Bridge.h"

#include "llvm/ADT/APInt.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <array>

using namespace llvm;

namespace {
constexpr StringRef kOpening = "([{<", kClosing = ")]}>";

class Measure {
public:
  explicit Measure(StringRef text) : rest(text) {}

  rlx::TextMeasure run() {
    while (!rest.empty())
      step();
    return found;
  }

private:
  void step() {
    char c = rest.front();
    if (c == '"')
      return skipString();
    isDense &= c != '\n';
    if (rest.starts_with("//"))
      return skip(std::min(rest.find('\n'), rest.size()));
    // Neither closes what `<` has opened.
    if (rest.starts_with("->") || rest.starts_with(">="))
      return skip(2);
    if (isAlnum(c) || c == '_')
      return word();
    if (size_t kind = kOpening.find(c); kind != StringRef::npos)
      open(kind);
    else if (size_t kind = kClosing.find(c); kind != StringRef::npos)
      depths[kind] -= depths[kind] > 0;
    else if (c == '+' || c == '-' || c == '*')
      operation();
    if (c == ',' || c == ':' || c == '=' || c == '{' || c == '}')
      operations = 0;
    skip(1);
  }

  void skip(size_t count) { rest = rest.drop_front(count); }

  /// Strings end at the end of their line at the latest.
  void skipString() {
    size_t at = 1;
    while (at < rest.size() && rest[at] != '"' && rest[at] != '\n')
      at += rest[at] == '\\' ? 2 : 1;
    skip(std::min(at + 1, rest.size()));
  }

  void word() {
    StringRef own = rest.take_while([](char c) { return isAlnum(c) || c == '_' || c == '.'; });
    // Of a number, hexadecimal ones and shapes such as 1x1x8 included, everything counts: MLIR
    // reads a shape again from each `x` on. Of a name, its digits, as in i32.
    size_t digits = 0;
    for (char c : own) {
      digits = isDigit(c) || isDigit(own.front()) ? digits + 1 : 0;
      found.digits = std::max(found.digits, digits);
    }
    if (own == "mod" || own == "floordiv" || own == "ceildiv")
      operation();
    if (own == "dense")
      isDense = true;
    if (isDense && isDigit(own.front()))
      shape(own);
    skip(own.size());
  }

  /// MLIR counts the elements of a constant, and ends the process where 64 bits don't hold them.
  void shape(StringRef own) {
    APInt elements(128, 1);
    for (uint64_t size; !own.consumeInteger(10, size) && own.consume_front("x");)
      elements =
          elements.ult(APInt::getOneBitSet(128, 63)) ? elements * APInt(128, size) : elements;
    found.overflows |= elements.uge(APInt::getOneBitSet(128, 63));
  }

  void open(size_t kind) {
    ++depths[kind];
    size_t depth = 0;
    for (size_t own : depths)
      depth += own;
    found.nesting = std::max(found.nesting, depth);
  }

  /// Terms of an affine expression are parsed one inside the other.
  void operation() { found.nesting = std::max(found.nesting, ++operations); }

  StringRef rest;
  std::array<size_t, 4> depths{};
  size_t operations = 0;
  /// Whether elements of a constant stood before in this line: its type follows.
  bool isDense = false;
  rlx::TextMeasure found;
};
} // namespace

rlx::TextMeasure rlx::measureText(const char *text, size_t size) {
  return Measure(StringRef(text, size)).run();
}
