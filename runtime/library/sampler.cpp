// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sampler.h"

#include "runtime/error.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace rlx::runtime::library {

//===----------------------------------------------------------------------===//
// Random numbers
//===----------------------------------------------------------------------===//

namespace {

constexpr size_t kPool = 4; // words of `SeedSequence`

/// A hash of 32 bits whose constant goes on with each word.
struct Hash {
  uint32_t constant, factor;

  uint32_t operator()(uint32_t word) {
    word ^= constant;
    constant *= factor;
    word *= constant;
    return word ^ word >> 16;
  }
};

uint32_t mixed(uint32_t one, uint32_t other) {
  const uint32_t word = 0xca01f9dd * one - 0x4973f715 * other;
  return word ^ word >> 16;
}

/// The first words of `SeedSequence(seed).generate_state(…, uint64)`.
void spread(uint64_t seed, uint64_t (&words)[4]) {
  uint32_t pool[kPool] = {uint32_t(seed), uint32_t(seed >> 32), 0, 0};
  Hash in{0x43b0d7e5, 0x931e8875};
  for (uint32_t &word : pool)
    word = in(word);
  for (size_t from = 0; from < kPool; ++from)
    for (size_t to = 0; to < kPool; ++to)
      if (from != to)
        pool[to] = mixed(pool[to], in(pool[from]));
  Hash out{0x8b51f9dd, 0x58f38ded};
  for (size_t i = 0; i < 4; ++i) {
    const uint64_t low = out(pool[2 * i % kPool]), high = out(pool[(2 * i + 1) % kPool]);
    words[i] = high << 32 | low;
  }
}

} // namespace

RandomNumbers::RandomNumbers(uint64_t seed) {
  uint64_t words[4];
  spread(seed, words);
  increment = (Wide(words[2]) << 64 | words[3]) << 1 | 1;
  step();
  state += Wide(words[0]) << 64 | words[1];
  step();
}

void RandomNumbers::step() {
  constexpr Wide kFactor = Wide(0x2360ed051fc65da4) << 64 | 0x4385df649fccf645;
  state = state * kFactor + increment;
}

double RandomNumbers::next() {
  step();
  const uint64_t word = uint64_t(state >> 64) ^ uint64_t(state);
  const unsigned count = unsigned(state >> 122);
  const uint64_t rotated = word >> count | word << (-count & 63);
  return double(rotated >> 11) * 0x1p-53;
}

//===----------------------------------------------------------------------===//
// Choices
//===----------------------------------------------------------------------===//

Sampler::Sampler(const rlx_sampling &given) : parameters(given), random(given.seed) {
  const auto fail = [](const char *name, const char *rule, double value) {
    throw InputError(std::string("'") + name + "' must be " + rule + ", but is " +
                     std::to_string(value));
  };
  if (!std::isfinite(given.temperature) || given.temperature < 0)
    fail("temperature", "finite and at least 0", given.temperature);
  if (given.top_k < 0)
    fail("top_k", "at least 0", given.top_k);
  if (!(given.top_p > 0 && given.top_p <= 1))
    fail("top_p", "in (0, 1]", given.top_p);
  if (!(given.min_p >= 0 && given.min_p <= 1))
    fail("min_p", "in [0, 1]", given.min_p);
}

/// What can be drawn, the likeliest first, and weights that need not add up to 1.
std::vector<Sampler::Choice> Sampler::candidates(const float *logits, size_t count) const {
  std::vector<Choice> found;
  found.reserve(count);
  for (size_t i = 0; i < count; ++i)
    found.push_back({int32_t(i), double(logits[i]), 0});
  const auto likelier = [](const Choice &one, const Choice &other) {
    return one.logit != other.logit ? one.logit > other.logit : one.id < other.id;
  };
  if (const size_t kept = size_t(parameters.top_k); kept > 0 && kept < count) {
    std::nth_element(found.begin(), found.begin() + ptrdiff_t(kept), found.end(), likelier);
    found.resize(kept);
  }
  std::sort(found.begin(), found.end(), likelier);
  double total = 0;
  for (Choice &own : found) {
    own.weight = std::exp((own.logit - found[0].logit) / parameters.temperature);
    total += own.weight;
  }
  // Both bounds are of what is likely before either is applied.
  double reached = 0;
  size_t last = 0;
  while (last < found.size() && found[last].weight >= parameters.min_p) {
    reached += found[last++].weight / total;
    if (parameters.top_p < 1 && reached >= parameters.top_p)
      break;
  }
  found.resize(std::max<size_t>(last, 1));
  return found;
}

int32_t Sampler::choose(const float *logits, size_t count) {
  if (parameters.temperature == 0)
    return int32_t(std::max_element(logits, logits + count) - logits);
  const std::vector<Choice> found = candidates(logits, count);
  double total = 0;
  for (const Choice &own : found)
    total += own.weight;
  const double drawn = random.next() * total;
  double reached = 0;
  for (const Choice &own : found) {
    reached += own.weight;
    if (drawn < reached)
      return own.id;
  }
  return found.back().id;
}

} // namespace rlx::runtime::library
