// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What of a text MLIR's parser doesn't survive. It calls itself for each bracket: nothing limits
// that, and a stack that overflows ends the process. So does a constant whose elements it can't
// count; and where it stops at an error, an operation of a region that is used outside of it, which
// only a use before the definition can make.

#include "passes/Bridge.h"

#include "llvm/ADT/APInt.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <array>
#include <vector>

using namespace llvm;

namespace {
constexpr StringRef kOpening = "([{<", kClosing = ")]}>";

bool isName(char c) { return isAlnum(c) || c == '_' || c == '$' || c == '.' || c == '-'; }

/// The names of values that are defined where the text has come to. What it takes for a definition
/// is one: `%x =`, `%x, %y:2 =`, and the arguments of functions and blocks. Some operations define
/// names in other ways, which count as uses before a definition.
class Names {
public:
  void enter() { scopes.emplace_back(); }
  void leave() {
    if (scopes.size() > 1)
      scopes.pop_back();
  }

  /// Reads the value that a text begins with; whether nothing has defined it.
  bool isUndefined(StringRef text, bool isArgument) {
    StringRef name = text.drop_front().take_while(isName);
    StringRef rest = text.drop_front(1 + name.size()).ltrim();
    if (isArgument ? rest.starts_with(":") : isAssigned(text)) {
      scopes.back().insert(name);
      return false;
    }
    return llvm::none_of(scopes, [&](const StringSet<> &scope) { return scope.contains(name); });
  }

private:
  /// Whether a list of values that a text begins with has `=` after it.
  static bool isAssigned(StringRef text) {
    while (text.consume_front("%")) {
      text = text.drop_while(isName).ltrim();
      if (text.consume_front(":"))
        text = text.ltrim().drop_while(isDigit).ltrim();
      if (text.consume_front("="))
        return !text.starts_with("=");
      if (!text.consume_front(","))
        return false;
      text = text.ltrim();
    }
    return false;
  }

  std::vector<StringSet<>> scopes{1};
};

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
    if (c == '%')
      return value();
    if (c == '@' || (c == '^' && beginsLine))
      return declared();
    beginsLine = c == '\n' || (beginsLine && isSpace(c));
    if (size_t kind = kOpening.find(c); kind != StringRef::npos)
      open(kind);
    else if (size_t kind = kClosing.find(c); kind != StringRef::npos)
      close(kind);
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

  /// The name of a function or a block, which arguments may follow.
  void declared() {
    skip(1);
    if (rest.starts_with("\""))
      skipString();
    else
      skip(rest.take_while(isName).size());
    arguments = rest.ltrim().starts_with("(") ? depths[0] + 1 : arguments;
    beginsLine = false;
  }

  void value() {
    found.forward |= names.isUndefined(rest, depths[0] > 0 && depths[0] == arguments);
    beginsLine = false;
    skip(1 + rest.drop_front().take_while(isName).size());
  }

  void word() {
    beginsLine = false;
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

  void close(size_t kind) {
    if (kClosing[kind] == '}')
      names.leave();
    if (kClosing[kind] == ')' && depths[kind] == arguments)
      arguments = 0;
    depths[kind] -= depths[kind] > 0;
  }

  void open(size_t kind) {
    ++depths[kind];
    if (kOpening[kind] == '{')
      names.enter();
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
  /// Whether nothing but spaces stands before in the line.
  bool beginsLine = true;
  /// How deep the brackets around the arguments of a function or block are, or 0.
  size_t arguments = 0;
  Names names;
  rlx::TextMeasure found;
};
} // namespace

rlx::TextMeasure rlx::measureText(const char *text, size_t size) {
  return Measure(StringRef(text, size)).run();
}
