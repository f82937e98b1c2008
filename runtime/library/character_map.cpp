// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "character_map.h"

#include "bytes.h"
#include "runtime/error.h"
#include "runtime/utf8.h"

#include <algorithm>

namespace rlx::runtime::library {
namespace {

/// Bytes of the longest cluster that becomes something as a whole, and so of entries.
constexpr size_t kLongest = 5;
constexpr uint32_t kJoiner = 0x200d;
/// Bytes of what an entry becomes: no text grows by more, and reading entries takes no longer.
constexpr uint32_t kMostBytes = 255;
// Syllables of Hangul, every 28th of which has no trailing consonant.
constexpr uint32_t kSyllables = 0xac00, kSyllableCount = 11172, kTrailingCount = 28;

/// The first bytes of a text, and how many these are.
uint64_t keyOf(std::string_view text, size_t count) {
  uint64_t key = 0;
  for (size_t i = 0; i < count; ++i)
    key |= uint64_t(uint8_t(text[i])) << (8 * i);
  return key | uint64_t(count) << 40;
}

} // namespace

CharacterMap::CharacterMap(const Value &described) {
  const std::vector<Value> &parts =
      described.asList(4, "a map of characters (name, entries, texts, classes)");
  const std::vector<uint32_t> packed = packedWords(parts[1], "entries of a map of characters");
  texts = parts[2].asText("texts of a map of characters");
  const std::vector<uint32_t> ranges = packedWords(parts[3], "classes of characters");
  if (packed.size() % 4 != 0 || ranges.size() % 3 != 0)
    throw InputError("entries of a map of characters are four numbers each, classes three");
  for (size_t i = 0; i < packed.size(); i += 4) {
    const uint32_t count = packed[i + 1] >> 8, begin = packed[i + 2], end = packed[i + 3];
    if (count < 1 || count > kLongest)
      throw InputError("an entry of a map of characters has 1 to 5 bytes, but one has " +
                       std::to_string(count));
    if (begin > end || end > texts.size() || end - begin > kMostBytes ||
        invalidUtf8(std::string_view(texts).substr(begin, end - begin)) != end - begin)
      throw InputError("an entry of a map of characters becomes a text of UTF-8 of at most " +
                       std::to_string(kMostBytes) + " bytes");
    const uint64_t bytes = uint64_t(packed[i + 1] & 0xff) << 32 | packed[i];
    entries[bytes | uint64_t(count) << 40] = {begin, end};
  }
  for (size_t i = 0; i < ranges.size(); i += 3) {
    const bool follows = classes.empty() || ranges[i] > classes.back().last;
    if (!follows || ranges[i] > ranges[i + 1] || ranges[i + 2] > Known)
      throw InputError("classes of characters come in order, and are up to 2047");
    classes.push_back({ranges[i], ranges[i + 1], ranges[i + 2]});
  }
}

uint32_t CharacterMap::classOf(uint32_t code) const {
  if (code >= kSyllables && code - kSyllables < kSyllableCount)
    return Leading | ((code - kSyllables) % kTrailingCount == 0 ? Vowel : Trailing);
  const auto above =
      std::upper_bound(classes.begin(), classes.end(), code,
                       [](uint32_t wanted, const Range &range) { return wanted < range.first; });
  return above != classes.begin() && code <= (above - 1)->last ? (above - 1)->own : 0;
}

/// Where the cluster that begins at a byte ends, by Unicode's rules of extended ones. Pairs of
/// regional indicators aren't looked for: any cluster with one of them and something else has more
/// bytes than what becomes something as a whole.
size_t CharacterMap::clusterAt(std::string_view text, size_t at) const {
  bool isLinking = false, hasLinker = false;     // behind a consonant, and a linker
  bool isPictured = false, isJoining = false;    // behind a pictograph, and a joiner
  uint32_t before = 0, codeBefore = 0, code = 0; // of the character before
  for (bool isFirst = true; at < text.size(); isFirst = false) {
    const size_t count = readUtf8(text, at, code);
    const uint32_t own = classOf(code);
    if (!isFirst) {
      const bool isLine = codeBefore == '\r' && code == '\n';
      const bool isSyllable =
          // A leading consonant, but no syllable, takes any of them.
          ((before & (Leading | Vowel | Trailing)) == Leading && (own & (Leading | Vowel))) ||
          // Syllables have the class of what they begin with, too, and go on as what they end with.
          ((own & (Leading | Vowel | Trailing)) == Vowel && (before & Vowel)) ||
          ((own & (Leading | Vowel | Trailing)) == Trailing && (before & (Vowel | Trailing)));
      const bool isOne = isSyllable || (own & Joins) || (before & Prepended) ||
                         ((own & Consonant) && hasLinker) || ((own & Pictograph) && isJoining);
      if (!isLine && (((before | own) & Control) || !isOne))
        return at;
    }
    isLinking = (own & Consonant) || (isLinking && (own & (Links | Linked)));
    hasLinker = isLinking && !(own & Consonant) && (hasLinker || (own & Links));
    isJoining = isPictured && code == kJoiner;
    isPictured = (own & Pictograph) || (isPictured && (own & Extends));
    before = own;
    codeBefore = code;
    at += count;
  }
  return at;
}

/// Appends what a text becomes; whether an entry says so.
bool CharacterMap::map(std::string_view text, std::string &found) const {
  for (size_t count = 1; count <= std::min(text.size(), kLongest); ++count)
    if (const auto entry = entries.find(keyOf(text, count)); entry != entries.end()) {
      found.append(texts, entry->second.begin, entry->second.end - entry->second.begin);
      return true;
    }
  return false;
}

std::string CharacterMap::of(std::string_view text) const {
  std::string found;
  uint32_t code = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = clusterAt(text, at);
    if (end - at <= kLongest && map(text.substr(at, end - at), found)) {
      at = end;
      continue;
    }
    for (size_t count; at < end; at += count) {
      count = readUtf8(text, at, code);
      if (!map(text.substr(at, count), found))
        found += text.substr(at, count);
    }
  }
  return found;
}

} // namespace rlx::runtime::library
