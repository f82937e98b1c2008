// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sha256.h"

#include <algorithm>
#include <cstring>

namespace rlx::runtime::library {
namespace {

constexpr size_t kBlock = 64;

/// The fractions of the cube roots of the first 64 primes.
constexpr uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t rotated(uint32_t word, int count) { return word >> count | word << (32 - count); }

class Hasher {
public:
  void add(std::string_view bytes) {
    total += bytes.size();
    while (!bytes.empty()) {
      const size_t count = std::min(kBlock - filled, bytes.size());
      std::memcpy(block + filled, bytes.data(), count);
      bytes.remove_prefix(count);
      filled += count;
      if (filled == kBlock)
        compress();
    }
  }

  Digest finish() {
    const uint64_t bits = total * 8;
    add({"\x80", 1});
    while (filled != kBlock - 8)
      add({"\0", 1});
    for (int i = 0; i < 8; ++i)
      block[kBlock - 8 + i] = uint8_t(bits >> (56 - 8 * i));
    compress();
    Digest digest;
    for (size_t i = 0; i < digest.size(); ++i)
      digest[i] = uint8_t(state[i / 4] >> (24 - 8 * (i % 4)));
    return digest;
  }

private:
  void compress() {
    uint32_t words[64];
    for (int i = 0; i < 16; ++i)
      words[i] = uint32_t(block[4 * i]) << 24 | uint32_t(block[4 * i + 1]) << 16 |
                 uint32_t(block[4 * i + 2]) << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; ++i) {
      const uint32_t a = words[i - 15], b = words[i - 2];
      words[i] = words[i - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) + words[i - 7] +
                 (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; ++i) {
      const uint32_t first = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
                             ((e & f) ^ (~e & g)) + kRounds[i] + words[i];
      const uint32_t second =
          (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = d + first;
      d = c;
      c = b;
      b = a;
      a = first + second;
    }
    const uint32_t added[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i)
      state[i] += added[i];
    filled = 0;
  }

  /// The fractions of the square roots of the first 8 primes.
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint8_t block[kBlock];
  size_t filled = 0;
  uint64_t total = 0;
};

} // namespace

Digest sha256(std::initializer_list<std::string_view> parts) {
  Hasher hasher;
  for (std::string_view part : parts)
    hasher.add(part);
  return hasher.finish();
}

std::string shortDigest(const Digest &digest) {
  std::string text;
  for (size_t i = 0; i < 8; ++i)
    for (int half : {digest[i] >> 4, digest[i] & 15})
      text += "0123456789abcdef"[half];
  return text;
}

} // namespace rlx::runtime::library
