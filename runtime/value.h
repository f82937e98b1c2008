// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plain data, as descriptions of plans are made of it: in Python as objects, in files as bytes.
#ifndef RLX_RUNTIME_VALUE_H
#define RLX_RUNTIME_VALUE_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rlx::runtime {

/// Nothing, a number, a text, a list or an object of named values.
struct Value {
  enum class Kind : uint8_t { None, Integer, Text, List, Object, Other };
  /// How deep lists may be in each other. Sizes, the deepest of what is described, are at most
  /// `Expr::Derived::kDepth` deep in each other, in four lists each.
  static constexpr int kDepth = 512;

  Kind kind = Kind::None;
  int64_t number = 0;
  std::string text;         // of something that is none of these: how it is shown
  std::vector<Value> items; // of an object: names and values by turns

  static Value integer(int64_t number);
  static Value of(Kind kind, std::string text);
  static Value list(std::vector<Value> items);

  bool isNone() const { return kind == Kind::None; }
  /// For messages, as Python writes it.
  std::string shown() const;

  /// What each of these is; throws InputError, which says what it should be, where it isn't.
  int64_t asInteger(const char *what) const;
  int asIndex(const char *what) const; // of 32 bits
  size_t asCount(const char *what) const;
  const std::string &asText(const char *what) const;
  /// The items of a list that has `count` of them; of any number where it is negative.
  const std::vector<Value> &asList(ptrdiff_t count, const char *what) const;
  /// The value of a name; null where an object has none of it. Of names that are there twice, the
  /// last one counts.
  const Value *find(std::string_view name, const char *what) const;
  /// The same, where it has to be there.
  const Value &member(std::string_view name, const char *what) const;
};

/// Reads what `rlx_mlir.runtime.encoding.encode` wrote. A value begins with a number of at most 64
/// bits, seven of them in each byte, the lowest first; all bytes but the last have the highest bit.
/// Its two lowest bits say what follows, the rest is n: 0, the number n / 2, or -(n + 1) / 2 where
/// n is odd; 1, a text of n bytes in UTF-8; 2, a list of n values; 3, nothing for n = 0, a number
/// of 8 bytes, the lowest first, for n = 1. Throws InputError, which names the byte, where the
/// bytes are something else, or more than one value.
Value readValue(std::string_view bytes);

} // namespace rlx::runtime

#endif // RLX_RUNTIME_VALUE_H
