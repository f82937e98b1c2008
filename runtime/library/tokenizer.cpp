// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tokenizer.h"

#include "bytes.h"
#include "runtime/error.h"
#include "runtime/utf8.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace rlx::runtime::library {
namespace {

/// How SentencePiece writes a space.
constexpr std::string_view kSpace = "\xe2\x96\x81";
constexpr uint32_t kNone = 0xffffffff;
constexpr uint8_t kUnmatched = 0x80;
/// Ids have 32 bits.
constexpr size_t kMostTokens = size_t(1) << 31;

uint64_t pairOf(int32_t left, int32_t right) {
  return uint64_t(uint32_t(left)) << 32 | uint32_t(right);
}

std::string withSpaces(std::string_view text) {
  std::string found;
  for (size_t at = 0;;) {
    const size_t next = text.find(kSpace, at);
    found += text.substr(at, next - at);
    if (next == std::string_view::npos)
      return found;
    found += ' ';
    at = next + kSpace.size();
  }
}

/// Two neighbours that may become one.
struct Candidate {
  double order = 0; // less comes first
  int32_t left = 0;
  int32_t result = 0; // of BPE: the token
  size_t bytes = 0;   // of SentencePiece: of both together

  bool operator<(const Candidate &other) const { // for a queue, whose largest comes first
    return order != other.order ? order > other.order : left > other.left;
  }
};

/// Merges symbols that are in a row: the best two neighbours first, of equal ones the first.
/// `isCandidate(left, right, found)` says whether two may become one, and notes in `found` what;
/// `merge(left, right, best)` makes that of `left`, or says that they are others by now.
template <typename Symbol, typename IsCandidate, typename Merge>
void mergeAll(std::vector<Symbol> &symbols, IsCandidate isCandidate, Merge merge) {
  std::priority_queue<Candidate> queue;
  const auto propose = [&](int32_t left, int32_t right) {
    Candidate found;
    found.left = left;
    if (left >= 0 && right >= 0 &&
        isCandidate(symbols[size_t(left)], symbols[size_t(right)], found))
      queue.push(found);
  };
  if (!symbols.empty())
    symbols.back().next = -1;
  for (size_t i = 0; i + 1 < symbols.size(); ++i)
    propose(int32_t(i), int32_t(i) + 1);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol &left = symbols[size_t(best.left)];
    if (left.text.empty() || left.next < 0)
      continue;
    Symbol &right = symbols[size_t(left.next)];
    if (!merge(left, right, best))
      continue;
    right.text = {};
    left.next = right.next;
    if (left.next >= 0)
      symbols[size_t(left.next)].previous = best.left;
    propose(left.previous, best.left);
    propose(best.left, left.next);
  }
}

} // namespace

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

Tokenizer::Tokenizer(const Value &described) {
  const std::vector<Value> &parts = described.asList(
      13, "a tokenizer (kind, bytes, offsets, types, merges or scores, patterns, whole pieces, "
          "bytes' tokens, begin, add begin, add space, ends, rules)");
  const std::string &kind = parts[0].asText("the kind of a tokenizer");
  sentences = kind == "llama";
  unigrams = kind == "unigrams";
  characters = unigrams || kind == "characters";
  if (!sentences && !characters && kind != "gpt2")
    throw InputError("a tokenizer is of the kind gpt2, llama, characters or unigrams, but is '" +
                     kind + "'");
  readTokens(parts[1], parts[2], parts[3]);
  if (unigrams)
    readUnigrams(parts[4]);
  else
    sentences ? readScores(parts[4]) : readMerges(parts[4]);
  for (const Value &pattern : parts[5].asList(-1, "patterns"))
    patterns.emplace_back(pattern);
  wholePieces = parts[6].asInteger("whether pieces may be whole tokens") != 0;
  for (uint32_t id : packedWords(parts[7], "tokens of bytes")) {
    if (id != kNone || sentences || characters)
      checkId(id, "a byte's token");
    ofByte.push_back(int32_t(id));
  }
  if (ofByte.size() != 256 && !((sentences || characters) && ofByte.empty()))
    throw InputError("there are 256 bytes, but " + std::to_string(ofByte.size()) +
                     " tokens of them");
  if (!parts[8].isNone()) {
    checkId(parts[8].asInteger("the id that begins texts"), "the id that begins texts");
    begin = int32_t(parts[8].number);
  }
  addBegin = parts[9].asInteger("whether an id begins texts") != 0;
  addSpace = parts[10].asInteger("whether a space is put first") != 0;
  for (const Value &id : parts[11].asList(-1, "ids that end texts")) {
    checkId(id.asInteger("an id that ends texts"), "an id that ends texts");
    ends.push_back(int32_t(id.number));
  }
  if (!parts[12].isNone())
    readRules(parts[12]);
  else if (characters)
    throw InputError("a tokenizer of characters has rules");
  listTexts();
}

void Tokenizer::readRules(const Value &described) {
  const std::vector<Value> &parts = described.asList(
      6, "rules (added tokens, forms, space, unknown, fuse unknown, characters of words)");
  Rules found;
  readAdded(parts[0], parts[5], found);
  for (const Value &form : parts[1].asList(-1, "forms of texts"))
    found.forms.push_back(readTextForm(form));
  const int64_t space = parts[2].asInteger("where a space is put first");
  if (space < 0 || space > int64_t(Space::Words))
    throw InputError("where a space is put first is from 0 to 4, but is " + std::to_string(space));
  found.space = Space(space);
  if (!parts[3].isNone()) {
    checkId(parts[3].asInteger("the unknown token"), "the unknown token");
    unknown = int32_t(parts[3].number);
  } else if (unigrams) {
    throw InputError("a vocabulary of unigrams has an unknown token");
  }
  found.fuses = parts[4].asInteger("whether unknown tokens become one") != 0;
  rules.emplace(std::move(found));
}

void Tokenizer::readAdded(const Value &tokens, const Value &words, Rules &found) {
  for (const Value &token : tokens.asList(-1, "added tokens")) {
    const std::vector<Value> &own = token.asList(3, "an added token (text, id, flags)");
    const int64_t id = own[1].asInteger("an added token's id");
    const int64_t flags = own[2].asInteger("an added token's flags");
    checkId(id, "an added token's id");
    if (flags < 0 || flags > 31)
      throw InputError("an added token's flags are from 0 to 31, but are " + std::to_string(flags));
    const std::string &text = own[0].asText("an added token's text");
    const auto add = [&](AddedTokens &list, const std::string &own) {
      list.add(own, int32_t(id), flags & 1, flags & 4, flags & 8, flags & 16);
    };
    add(flags & 2 ? found.normal : found.raw, text);
    if (flags & 2)
      add(found.spaced, " " + text);
  }
  const std::vector<uint32_t> ranges = packedWords(words, "characters of words");
  for (AddedTokens *list : {&found.raw, &found.normal, &found.spaced})
    list->setWordCharacters(ranges);
}

void Tokenizer::checkId(int64_t id, const char *what) const {
  if (id < 0 || size_t(id) >= size())
    throw InputError(std::string(what) + " must be in [0, " + std::to_string(size()) +
                     "), but is " + std::to_string(id));
}

void Tokenizer::readTokens(const Value &bytes, const Value &offsets, const Value &kinds) {
  content = bytes.asText("bytes of tokens");
  starts = packedWords(offsets, "offsets of tokens");
  const std::string &packed = kinds.asText("types of tokens");
  if (packed.empty() || packed.size() >= kMostTokens || starts.size() != packed.size() + 1)
    throw InputError("there are " + std::to_string(starts.size()) + " offsets of " +
                     std::to_string(packed.size()) + " tokens");
  if (!std::is_sorted(starts.begin(), starts.end()) || starts.back() != content.size())
    throw InputError("offsets of tokens must go up to the " + std::to_string(content.size()) +
                     " bytes that there are");
  for (char word : packed) {
    types.push_back(uint8_t(word) & ~kUnmatched);
    matched.push_back((uint8_t(word) & kUnmatched) == 0);
    if (types.back() < Normal || types.back() > Byte)
      throw InputError("a token's type is from 1 to 6, but is " + std::to_string(types.back()));
  }
}

void Tokenizer::readMerges(const Value &packed) {
  const std::vector<uint32_t> found = packedWords(packed, "merges");
  if (found.size() % 3 != 0)
    throw InputError("merges have three ids each, but there are " + std::to_string(found.size()));
  for (size_t i = 0; i < found.size(); i += 3) {
    for (size_t j = 0; j < 3; ++j)
      checkId(found[i + j], "an id of a merge");
    merges[pairOf(int32_t(found[i]), int32_t(found[i + 1]))] = {uint32_t(i / 3),
                                                                int32_t(found[i + 2])};
  }
}

void Tokenizer::readScores(const Value &packed) {
  for (uint32_t word : packedWords(packed, "scores")) {
    float score;
    std::memcpy(&score, &word, sizeof(score));
    scores.push_back(score);
  }
  if (scores.size() != size())
    throw InputError("there are " + std::to_string(size()) + " tokens, but " +
                     std::to_string(scores.size()) + " scores");
}

void Tokenizer::readUnigrams(const Value &packed) {
  const std::string &bytes = packed.asText("likelihoods of tokens");
  if (bytes.size() != size() * sizeof(double))
    throw InputError("there are " + std::to_string(size()) + " tokens, but " +
                     std::to_string(bytes.size()) + " bytes of likelihoods");
  likelihoods.resize(size());
  std::memcpy(likelihoods.data(), bytes.data(), bytes.size());
  // What SentencePiece takes from the least one.
  constexpr double kUnknownPenalty = 10;
  unknownLikelihood = *std::min_element(likelihoods.begin(), likelihoods.end()) - kUnknownPenalty;
}

/// Finds tokens by their texts, and makes a list of those that are cut out of texts.
void Tokenizer::listTexts() {
  for (size_t i = 0; i < size(); ++i) {
    const int32_t id = int32_t(i);
    shownStarts.push_back(uint32_t(shown.size()));
    // Users' tokens are cut out as they are written, and shown with spaces.
    shown += sentences && types[i] == UserDefined ? withSpaces(raw(id)) : std::string(raw(id));
    const bool merged = !sentences || types[i] == Normal;
    if (matched[i])
      (merged ? texts : reserved)[raw(id)] = id;
    if (matched[i])
      longest = std::max(longest, raw(id).size());
    if (types[i] == Unknown && unknown < 0 && !rules)
      unknown = id;
    if ((types[i] == Control || types[i] == UserDefined || types[i] == Unknown) &&
        !raw(id).empty()) {
      special.push_back(id);
      if (types[i] == UserDefined)
        userDefined.push_back(id);
    }
  }
  shownStarts.push_back(uint32_t(shown.size()));
  if (unigrams)
    listByteTexts();
  // What is unknown is written as bytes where there are tokens of them, as in Gemma's vocabulary.
  if (sentences && unknown < 0 && ofByte.empty())
    throw InputError("no token stands for what is unknown, nor for bytes of it");
  const auto longer = [&](int32_t one, int32_t other) {
    return raw(one).size() > raw(other).size();
  };
  std::stable_sort(special.begin(), special.end(), longer);
  std::stable_sort(userDefined.begin(), userDefined.end(), longer);
}

/// Of unigrams, a text such as <0x0A> is the token that stands for this byte.
void Tokenizer::listByteTexts() {
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (size_t byte = 0; byte < ofByte.size(); ++byte)
    byteTexts.push_back(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">");
  for (size_t byte = 0; byte < byteTexts.size(); ++byte) {
    texts[byteTexts[byte]] = ofByte[byte];
    longest = std::max(longest, byteTexts[byte].size());
  }
}

std::string_view Tokenizer::raw(int32_t id) const {
  return std::string_view(content).substr(starts[size_t(id)],
                                          starts[size_t(id) + 1] - starts[size_t(id)]);
}

bool Tokenizer::endsText(int32_t id) const {
  return std::find(ends.begin(), ends.end(), id) != ends.end();
}

std::string_view Tokenizer::bytes(int32_t id, bool asText) const {
  checkId(id, "a token id");
  const size_t i = size_t(id);
  if (!asText && (types[i] == Control || types[i] == Unknown))
    return {};
  return std::string_view(shown).substr(shownStarts[i], shownStarts[i + 1] - shownStarts[i]);
}

//===----------------------------------------------------------------------===//
// Texts
//===----------------------------------------------------------------------===//

std::vector<int32_t> Tokenizer::encode(std::string_view text, std::optional<bool> withBegin,
                                       bool asSpecial, bool continued) const {
  if (const size_t at = invalidUtf8(text); at != text.size())
    throw InputError("the text must be UTF-8, but isn't at byte " + std::to_string(at));
  std::vector<int32_t> ids;
  if (withBegin.value_or(addBegin) && begin)
    ids.push_back(*begin);
  else if (withBegin.value_or(false))
    throw InputError("an id that begins texts is asked for, but the vocabulary names none");
  if (rules) {
    encodeByRules(text, asSpecial, continued, ids);
    return ids;
  }
  bool afterSpecial = !continued; // the start of a text counts as one
  for (const Fragment &fragment : cut(text, asSpecial)) {
    if (fragment.id >= 0) {
      ids.push_back(fragment.id);
      afterSpecial = true;
      continue;
    }
    if (sentences) {
      encodeSentence((addSpace && afterSpecial ? " " : "") + withSpaces(fragment.text), ids);
    } else {
      encodePieces(fragment.text, ids);
    }
    afterSpecial = false;
  }
  return ids;
}

/// The ids that the library of `tokenizer.json` gives: tokens that were added are cut out, some
/// before a text is brought to its form, some behind that.
void Tokenizer::encodeByRules(std::string_view text, bool asSpecial, bool continued,
                              std::vector<int32_t> &ids) const {
  for (const Fragment &fragment : rules->raw.cut(text, asSpecial)) {
    if (fragment.id >= 0) {
      ids.push_back(fragment.id);
      continue;
    }
    std::string normal(fragment.text);
    for (const std::unique_ptr<const TextForm> &form : rules->forms)
      normal = form->of(normal);
    const bool isOfWords = rules->space == Space::Words; // which are cut before U+2581 is a space
    if (characters && !isOfWords)
      normal = withSpaces(normal);
    const bool isSpaced = rules->space == Space::Normal && !continued;
    if (isSpaced)
      normal.insert(0, 1, ' ');
    const AddedTokens &added = isSpaced ? rules->spaced : rules->normal;
    for (const Fragment &own : added.cut(normal, asSpecial)) {
      if (own.id >= 0) {
        ids.push_back(own.id);
        continue;
      }
      if (isOfWords) {
        encodeWords(own.text, continued, ids);
        continue;
      }
      const bool isFirst = fragment.text.data() == text.data() && own.text.data() == normal.data();
      const bool needsSpace =
          rules->space == Space::Each || (rules->space == Space::First && isFirst);
      if (needsSpace && !continued && own.text[0] != ' ')
        encodePieces(" " + std::string(own.text), ids);
      else
        encodePieces(own.text, ids);
    }
  }
}

/// Cuts a text at white space, and encodes each word with a space in front; without one the first
/// of a text that goes on behind another one, and begins with none.
void Tokenizer::encodeWords(std::string_view text, bool continued,
                            std::vector<int32_t> &ids) const {
  bool isSpaced = !continued;
  uint32_t code = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = at, count = readUtf8(text, at, code);
    for (; !isWhiteSpace(code); count = readUtf8(text, end, code))
      if ((end += count) == text.size())
        break;
    if (end > at) {
      const std::string word = withSpaces(text.substr(at, end - at));
      encodePieces(isSpaced && word[0] != ' ' ? " " + word : word, ids);
    }
    isSpaced = true;
    at = end < text.size() ? end + count : end;
  }
}

/// Cuts a text by the patterns, each of which cuts what those before it left, and encodes pieces.
void Tokenizer::encodePieces(std::string_view text, std::vector<int32_t> &ids) const {
  std::vector<std::string_view> pieces = {text}, next;
  for (const Pattern &pattern : patterns) {
    next.clear();
    for (std::string_view piece : pieces)
      pattern.split(piece, next);
    pieces.swap(next);
  }
  for (std::string_view piece : pieces)
    unigrams ? encodeUnigrams(piece, ids) : encodePiece(piece, ids);
}

/// Cuts tokens out of a text, the longest first; texts between them are never empty.
std::vector<Fragment> Tokenizer::cut(std::string_view text, bool asSpecial) const {
  std::vector<Fragment> fragments, next;
  if (!text.empty())
    fragments.push_back({text, -1});
  for (int32_t id : asSpecial ? special : userDefined) {
    const std::string_view token = raw(id);
    if (text.find(token) == std::string_view::npos)
      continue;
    next.clear();
    for (const Fragment &fragment : fragments) {
      if (fragment.id >= 0) {
        next.push_back(fragment);
        continue;
      }
      for (size_t at = 0;;) {
        const size_t found = fragment.text.find(token, at);
        const std::string_view piece = fragment.text.substr(at, found - at);
        if (!piece.empty())
          next.push_back({piece, -1});
        if (found == std::string_view::npos)
          break;
        next.push_back({token, id});
        at = found + token.size();
      }
    }
    fragments.swap(next);
  }
  return fragments;
}

/// What merging of a piece begins with: a token for each byte; others are left out.
std::vector<Tokenizer::Symbol> Tokenizer::bytesOf(std::string_view piece) const {
  std::vector<Symbol> symbols;
  for (size_t i = 0; i < piece.size(); ++i)
    if (const int32_t id = ofByte[uint8_t(piece[i])]; id >= 0) {
      const int32_t number = int32_t(symbols.size());
      symbols.push_back({id, number - 1, number + 1, piece.substr(i, 1)});
    }
  return symbols;
}

/// The same of a vocabulary of characters: a token for each, or for each byte of one that it lacks,
/// or the unknown one, once for several in turn where the rules say so.
std::vector<Tokenizer::Symbol> Tokenizer::charactersOf(std::string_view piece) const {
  std::vector<Symbol> symbols;
  const auto add = [&](int32_t id, std::string_view text) {
    const int32_t number = int32_t(symbols.size());
    symbols.push_back({id, number - 1, number + 1, text});
  };
  bool afterUnknown = false;
  uint32_t code;
  for (size_t at = 0, count; at < piece.size(); at += count) {
    count = readUtf8(piece, at, code);
    const std::string_view character = piece.substr(at, count);
    const auto found = texts.find(character);
    const bool isUnknown = found == texts.end() && ofByte.empty();
    if (found != texts.end())
      add(found->second, character);
    else if (!isUnknown)
      for (size_t i = 0; i < count; ++i)
        add(ofByte[uint8_t(character[i])], character.substr(i, 1));
    else if (unknown >= 0 && !(rules->fuses && afterUnknown))
      add(unknown, character);
    afterUnknown = isUnknown;
  }
  return symbols;
}

/// BPE of a piece: the best merge first, of equal ones the first.
void Tokenizer::encodePiece(std::string_view piece, std::vector<int32_t> &ids) const {
  if (wholePieces)
    if (auto found = texts.find(piece); found != texts.end()) {
      ids.push_back(found->second);
      return;
    }
  std::vector<Symbol> symbols = characters ? charactersOf(piece) : bytesOf(piece);
  const auto isCandidate = [&](const Symbol &left, const Symbol &right, Candidate &found) {
    const auto merge = merges.find(pairOf(left.id, right.id));
    if (merge == merges.end())
      return false;
    found.order = double(merge->second.rank);
    found.result = merge->second.result;
    return true;
  };
  mergeAll(symbols, isCandidate, [&](Symbol &left, const Symbol &right, const Candidate &best) {
    // Neighbours may have become others since, with which it is one merge or none.
    Candidate now;
    if (!isCandidate(left, right, now) || now.result != best.result)
      return false;
    left.id = best.result;
    return true;
  });
  for (int32_t i = 0; !symbols.empty() && i >= 0; i = symbols[size_t(i)].next)
    ids.push_back(symbols[size_t(i)].id);
}

/// Unigrams: of all ways to cut a piece into tokens, the likeliest one; of equal ones the first
/// that is found. Characters that begin no token of one character may be unknown; those in turn are
/// one text, which is a token, or bytes, or unknown.
void Tokenizer::encodeUnigrams(std::string_view piece, std::vector<int32_t> &ids) const {
  struct End {
    double likelihood = 0;
    size_t begin = 0;
    int32_t id = -1; // -1 where no way ends
  };
  std::vector<End> ends(piece.size() + 1);
  const auto propose = [&](size_t begin, size_t end, int32_t id, double own) {
    const double likelihood = own + ends[begin].likelihood;
    if (ends[end].id < 0 || likelihood > ends[end].likelihood)
      ends[end] = {likelihood, begin, id};
  };
  uint32_t code = 0;
  for (size_t begin = 0, count; begin < piece.size(); begin += count) {
    count = readUtf8(piece, begin, code);
    bool isKnown = false;
    const size_t most = std::min(piece.size(), begin + longest);
    for (size_t end = begin + count; end <= most;
         end += end < piece.size() ? readUtf8(piece, end, code) : 1) {
      const auto found = texts.find(piece.substr(begin, end - begin));
      if (found == texts.end())
        continue;
      propose(begin, end, found->second, likelihoods[size_t(found->second)]);
      isKnown |= end == begin + count;
    }
    if (!isKnown)
      propose(begin, begin + count, unknown, unknownLikelihood);
  }
  std::vector<std::string_view> cut; // the last one first
  for (size_t end = piece.size(); end > 0;) {
    size_t begin = ends[end].begin;
    while (ends[end].id == unknown && begin > 0 && ends[begin].id == unknown)
      begin = ends[begin].begin;
    cut.push_back(piece.substr(begin, end - begin));
    end = begin;
  }
  for (auto text = cut.rbegin(); text != cut.rend(); ++text) {
    if (const auto found = texts.find(*text); found != texts.end())
      ids.push_back(found->second);
    else if (ofByte.empty())
      ids.push_back(unknown);
    else
      for (char byte : *text)
        ids.push_back(ofByte[uint8_t(byte)]);
  }
}

/// SentencePiece's BPE: of all neighbours that are a token together, those with the largest score
/// become one first, of equal ones the first.
void Tokenizer::encodeSentence(const std::string &text, std::vector<int32_t> &ids) const {
  std::vector<Symbol> symbols;
  uint32_t code;
  for (size_t at = 0, count; at < text.size(); at += count) {
    count = readUtf8(text, at, code);
    const int32_t number = int32_t(symbols.size());
    symbols.push_back({-1, number - 1, number + 1, std::string_view(text).substr(at, count)});
  }
  const auto isCandidate = [&](const Symbol &left, const Symbol &right, Candidate &found) {
    found.bytes = left.text.size() + right.text.size();
    const auto token = texts.find({left.text.data(), found.bytes});
    if (token == texts.end())
      return false;
    found.order = -double(scores[size_t(token->second)]);
    return true;
  };
  mergeAll(symbols, isCandidate, [](Symbol &left, const Symbol &right, const Candidate &best) {
    if (left.text.size() + right.text.size() != best.bytes)
      return false; // one of them has become longer since
    left.text = {left.text.data(), best.bytes};
    return true;
  });
  bool afterUnknown = false;
  for (int32_t i = 0; !symbols.empty() && i >= 0; i = symbols[size_t(i)].next)
    append(symbols[size_t(i)], afterUnknown, ids);
}

/// The id of what is left of a sentence; or bytes of it, or one unknown token for several.
void Tokenizer::append(const Symbol &symbol, bool &afterUnknown, std::vector<int32_t> &ids) const {
  int32_t id = unknown;
  if (auto found = reserved.find(symbol.text); found != reserved.end())
    id = found->second;
  else if (auto own = texts.find(symbol.text); own != texts.end())
    id = own->second;
  const bool isUnknown = id == unknown;
  if (isUnknown && !ofByte.empty()) {
    for (char byte : symbol.text)
      ids.push_back(ofByte[uint8_t(byte)]);
  } else if (!isUnknown || !afterUnknown) {
    ids.push_back(id);
  }
  afterUnknown = isUnknown;
}

} // namespace rlx::runtime::library
