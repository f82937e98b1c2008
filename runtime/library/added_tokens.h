// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens that are cut out of texts before anything else becomes tokens.
#ifndef RLX_RUNTIME_LIBRARY_ADDED_TOKENS_H
#define RLX_RUNTIME_LIBRARY_ADDED_TOKENS_H

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rlx::runtime::library {

/// A text, or the token that was cut out of one.
struct Fragment {
  std::string_view text;
  int32_t id; // -1 for a text
};

/// Tokens that are found as the library of `tokenizer.json` finds them: from the first character
/// on, at each the longest one that begins there.
class AddedTokens {
public:
  /// Adds a token.
  ///
  /// \param control whether it is found only where control tokens are asked for.
  /// \param left,right whether it takes the spaces before it, or behind it.
  /// \param alone whether it is found only where no character of words is beside it.
  void add(std::string text, int32_t id, bool control, bool left, bool right, bool alone);

  /// Says which characters are those of words: first and last of ranges, in order. Throws
  /// InputError where they aren't in order.
  void setWordCharacters(std::vector<uint32_t> ranges);

  /// Cuts a text; texts between tokens are never empty.
  std::vector<Fragment> cut(std::string_view text, bool withControls) const;

private:
  struct Token {
    int32_t id;
    bool control, left, right, alone;
  };

  const Token *longestAt(std::string_view text, size_t at, bool withControls, size_t &size) const;

  bool isOfWord(uint32_t code) const;
  bool standsAlone(std::string_view text, size_t first, size_t last) const;

  std::unordered_map<std::string, Token> tokens;
  std::vector<uint32_t> words;    // first and last of ranges
  std::vector<size_t> sizes[256]; // of those that begin with a byte, the largest first
};

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_ADDED_TOKENS_H
