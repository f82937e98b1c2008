// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "normal_form.h"

#include "bytes.h"
#include "runtime/error.h"
#include "runtime/utf8.h"

#include <algorithm>

namespace rlx::runtime::library {
namespace {

constexpr uint32_t kMost = 0x10ffff;

// Hangul: syllables of a leading consonant, a vowel, and perhaps a trailing consonant.
constexpr uint32_t kSyllables = 0xac00, kLeading = 0x1100, kVowels = 0x1161, kTrailing = 0x11a7;
constexpr uint32_t kLeadingCount = 19, kVowelCount = 21, kTrailingCount = 28;
constexpr uint32_t kSyllableCount = kLeadingCount * kVowelCount * kTrailingCount;

uint64_t pairOf(uint32_t first, uint32_t second) { return uint64_t(first) << 32 | second; }

bool isAmong(uint32_t code, uint32_t first, uint32_t count) {
  return code >= first && code - first < count;
}

uint32_t checkedCharacter(uint32_t code) {
  if (code > kMost || (code >= 0xd800 && code < 0xe000))
    throw InputError("a character of a normal form is " + std::to_string(code));
  return code;
}

} // namespace

NormalForm::NormalForm(const Value &tables) {
  const std::vector<Value> &own = tables.asList(-1, "tables of a form of texts");
  if (own.size() != 2 && own.size() != 4)
    throw InputError("a form of texts has 2 or 4 tables, but these are " +
                     std::to_string(own.size()));
  const int64_t below = own[0].asInteger("below which characters stay as they are");
  if (below < 0 || below > int64_t(kMost))
    throw InputError("characters stay as they are below " + std::to_string(below));
  bound = uint32_t(below);
  readParts(own[1]);
  isNormal = own.size() == 4;
  if (isNormal)
    readComposition(own[2], own[3]);
}

void NormalForm::readParts(const Value &packed) {
  const std::vector<uint32_t> decomposed = packedWords(packed, "parts of characters");
  for (size_t i = 0; i < decomposed.size();) {
    if (decomposed.size() - i < 2 || decomposed[i + 1] == 0 ||
        decomposed[i + 1] > decomposed.size() - i - 2)
      throw InputError("parts of characters come with how many there are");
    firstParted = std::min(firstParted, checkedCharacter(decomposed[i]));
    std::vector<uint32_t> &found = parts[decomposed[i]];
    for (size_t j = 0; j < decomposed[i + 1]; ++j)
      found.push_back(checkedCharacter(decomposed[i + 2 + j]));
    i += 2 + decomposed[i + 1];
  }
}

void NormalForm::readComposition(const Value &pairs, const Value &ranges) {
  const std::vector<uint32_t> composed = packedWords(pairs, "compositions of characters");
  const std::vector<uint32_t> classes = packedWords(ranges, "classes of characters");
  if (composed.size() % 3 != 0 || classes.size() % 3 != 0)
    throw InputError("compositions and classes of characters are three numbers each");
  for (size_t i = 0; i < composed.size(); i += 3)
    compositions[pairOf(checkedCharacter(composed[i]), checkedCharacter(composed[i + 1]))] =
        checkedCharacter(composed[i + 2]);
  for (size_t i = 0; i < classes.size(); i += 3) {
    const bool follows = marks.empty() || classes[i] > marks.back().last;
    if (!follows || classes[i] > classes[i + 1] || classes[i + 2] == 0 || classes[i + 2] > 255)
      throw InputError("classes of characters come in order, and are from 1 to 255");
    marks.push_back({classes[i], classes[i + 1], uint8_t(classes[i + 2])});
  }
}

uint8_t NormalForm::orderOf(uint32_t code) const {
  const auto above =
      std::upper_bound(marks.begin(), marks.end(), code,
                       [](uint32_t wanted, const Marks &range) { return wanted < range.first; });
  return above != marks.begin() && code <= (above - 1)->last ? (above - 1)->order : 0;
}

void NormalForm::decompose(uint32_t code, std::vector<Character> &found) const {
  if (isNormal && isAmong(code, kSyllables, kSyllableCount)) {
    const uint32_t syllable = code - kSyllables;
    found.push_back({kLeading + syllable / (kVowelCount * kTrailingCount), 0});
    found.push_back({kVowels + syllable / kTrailingCount % kVowelCount, 0});
    if (const uint32_t trailing = syllable % kTrailingCount)
      found.push_back({kTrailing + trailing, 0});
    return;
  }
  const auto own = code < firstParted ? parts.end() : parts.find(code);
  if (own == parts.end())
    return found.push_back({code, orderOf(code)});
  for (uint32_t part : own->second)
    found.push_back({part, orderOf(part)});
}

bool NormalForm::compose(uint32_t first, uint32_t second, uint32_t &both) const {
  if (isAmong(first, kLeading, kLeadingCount) && isAmong(second, kVowels, kVowelCount)) {
    both = kSyllables + ((first - kLeading) * kVowelCount + (second - kVowels)) * kTrailingCount;
    return true;
  }
  if (isAmong(first, kSyllables, kSyllableCount) && (first - kSyllables) % kTrailingCount == 0 &&
      isAmong(second, kTrailing + 1, kTrailingCount - 1)) {
    both = first + (second - kTrailing);
    return true;
  }
  const auto found = compositions.find(pairOf(first, second));
  if (found == compositions.end())
    return false;
  both = found->second;
  return true;
}

/// Makes letters and marks behind them one, where nothing between stands in the way.
void NormalForm::composeAll(std::vector<Character> &characters) const {
  size_t kept = 0, letter = SIZE_MAX;
  for (size_t i = 0; i < characters.size(); ++i) {
    const Character own = characters[i];
    // Of what was kept behind the letter, the last one has the largest order.
    const bool isNext = letter != SIZE_MAX && kept == letter + 1;
    const bool isFree = letter != SIZE_MAX && (isNext || characters[kept - 1].order < own.order);
    uint32_t both;
    if (isFree && compose(characters[letter].code, own.code, both)) {
      characters[letter].code = both;
      continue;
    }
    if (own.order == 0)
      letter = kept;
    characters[kept++] = own;
  }
  characters.resize(kept);
}

std::string NormalForm::of(std::string_view text) const {
  std::vector<Character> characters;
  uint32_t code = 0, largest = 0;
  for (size_t at = 0; at < text.size(); at += readUtf8(text, at, code)) {
    (void)readUtf8(text, at, code);
    largest = std::max(largest, code);
    decompose(code, characters);
  }
  if (largest < bound)
    return std::string(text);
  for (auto at = characters.begin(); at != characters.end();) {
    const auto isLetter = [](const Character &own) { return own.order == 0; };
    const auto begin = std::find_if_not(at, characters.end(), isLetter);
    const auto end = std::find_if(begin, characters.end(), isLetter);
    std::stable_sort(begin, end, [](const Character &one, const Character &other) {
      return one.order < other.order;
    });
    at = end;
  }
  if (!compositions.empty())
    composeAll(characters);
  std::string found;
  for (const Character &own : characters)
    appendUtf8(found, own.code);
  return found;
}

} // namespace rlx::runtime::library
