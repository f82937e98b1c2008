// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "added_tokens.h"

#include "runtime/error.h"
#include "runtime/utf8.h"

#include <algorithm>
#include <utility>

namespace rlx::runtime::library {
namespace {

/// Where the spaces that a text begins with end.
size_t spacesBegin(std::string_view text) {
  uint32_t code = 0;
  size_t at = 0;
  while (at < text.size()) {
    const size_t count = readUtf8(text, at, code);
    if (count == 0 || !isWhiteSpace(code))
      break;
    at += count;
  }
  return at;
}

/// Where the spaces that a text ends with begin.
size_t spacesEnd(std::string_view text) {
  uint32_t code = 0;
  size_t end = text.size();
  while (end > 0) {
    size_t at = end - 1;
    while (at > 0 && (uint8_t(text[at]) & 0xc0) == 0x80)
      --at;
    if (readUtf8(text, at, code) == 0 || !isWhiteSpace(code))
      break;
    end = at;
  }
  return end;
}

} // namespace

void AddedTokens::add(std::string text, int32_t id, bool control, bool left, bool right,
                      bool alone) {
  if (text.empty())
    return;
  std::vector<size_t> &known = sizes[uint8_t(text[0])];
  const auto place =
      std::lower_bound(known.begin(), known.end(), text.size(), std::greater<size_t>());
  if (place == known.end() || *place != text.size())
    known.insert(place, text.size());
  tokens.insert_or_assign(std::move(text), Token{id, control, left, right, alone});
}

void AddedTokens::setWordCharacters(std::vector<uint32_t> ranges) {
  if (ranges.size() % 2 != 0 || !std::is_sorted(ranges.begin(), ranges.end()))
    throw InputError("characters of words are ranges in order");
  words = std::move(ranges);
}

bool AddedTokens::isOfWord(uint32_t code) const {
  // Of the ends below the character, an odd number is within a range; the last ones belong to it.
  const auto above = std::lower_bound(words.begin(), words.end(), code);
  return (above - words.begin()) % 2 == 1 || (above != words.end() && *above == code);
}

bool AddedTokens::standsAlone(std::string_view text, size_t first, size_t last) const {
  uint32_t code = 0;
  if (last < text.size() && readUtf8(text, last, code) > 0 && isOfWord(code))
    return false;
  if (first == 0)
    return true;
  size_t before = first - 1;
  while (before > 0 && (uint8_t(text[before]) & 0xc0) == 0x80)
    --before;
  return readUtf8(text, before, code) == 0 || !isOfWord(code);
}

const AddedTokens::Token *AddedTokens::longestAt(std::string_view text, size_t at,
                                                 bool withControls, size_t &size) const {
  for (size_t own : sizes[uint8_t(text[at])]) {
    if (own > text.size() - at)
      continue;
    const auto found = tokens.find(std::string(text.substr(at, own)));
    if (found == tokens.end() || (found->second.control && !withControls))
      continue;
    size = own;
    return &found->second;
  }
  return nullptr;
}

std::vector<Fragment> AddedTokens::cut(std::string_view text, bool withControls) const {
  std::vector<Fragment> fragments;
  size_t begin = 0; // of what no token has taken
  for (size_t at = 0; at < text.size();) {
    size_t size = 0;
    const Token *token = longestAt(text, at, withControls, size);
    if (!token) {
      ++at;
      continue;
    }
    size_t first = at, last = at + size;
    at = last;
    if (token->alone && !standsAlone(text, first, last))
      continue;
    if (token->left)
      first = std::max(begin, spacesEnd(text.substr(0, first)));
    if (token->right)
      last += spacesBegin(text.substr(last));
    if (begin < first)
      fragments.push_back({text.substr(begin, first - begin), -1});
    fragments.push_back({text.substr(first, last - first), token->id});
    begin = last;
  }
  if (begin < text.size())
    fragments.push_back({text.substr(begin), -1});
  return fragments;
}

} // namespace rlx::runtime::library
