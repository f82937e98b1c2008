// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Regular expressions by which texts are cut before they become tokens.
#ifndef RLX_RUNTIME_LIBRARY_PATTERN_H
#define RLX_RUNTIME_LIBRARY_PATTERN_H

#include "runtime/value.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rlx::runtime::library {

/// A regular expression. `rlx_mlir.models.text_patterns` parses it, and resolves what depends on
/// Unicode: here, characters are numbers in ranges.
class Pattern {
public:
  /// Reads a node: (0, first, last, …) for a character in one of some ranges, in order; (1, node,
  /// …) for nodes in turn; (2, node, …) for the first of them that leads on; (3, least, most, node)
  /// for as many as there are, most being -1 where nothing bounds it; (4, node) where the node
  /// doesn't follow; (5) at the end of a line. Throws InputError for anything else.
  explicit Pattern(const Value &node);

  /// Cuts a text of UTF-8 into what matches, and what is between; appends the pieces, none of them
  /// empty. Throws InputError where that takes too many steps.
  void split(std::string_view text, std::vector<std::string_view> &pieces) const;

  /// A text of UTF-8 in which what matches, and isn't empty, has become another one. Throws
  /// InputError where that takes too many steps.
  std::string replace(std::string_view text, std::string_view with) const;

private:
  struct Range {
    uint32_t first, last;
  };
  struct Instruction {
    enum class Kind : uint8_t { Set, Fork, Jump, Unless, LineEnd, Match } kind;
    /// Ranges [first, second); where to go on, and where if that fails; of Unless, where to go on
    /// if what follows it doesn't match.
    uint32_t first = 0, second = 0;
  };

  template <typename Between, typename Matching>
  void each(std::string_view text, const Between &between, const Matching &matching) const;
  void compile(const Value &node, int depth);
  void compileSet(const Value &node);
  void compileChoice(const Value &node, int depth);
  void compileRepetition(const Value &node, int depth);
  size_t add(Instruction instruction);
  bool contains(const Instruction &set, uint32_t code) const;
  /// Where a match that begins at a byte ends; npos where there is none.
  size_t match(std::string_view text, size_t at, size_t pc, uint64_t &steps) const;

  std::vector<Range> ranges;
  std::vector<Instruction> program;
};

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_PATTERN_H
