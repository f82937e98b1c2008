// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The conversions of 16-bit floats that LLVM calls by name where the target has no instruction. A
// compiler's support library has them from some version on; these are always there, and give the
// same bits on every machine: round to nearest even, subnormals kept, NaNs quiet.
#ifndef RLX_RUNTIME_FLOAT_CONVERSIONS_H
#define RLX_RUNTIME_FLOAT_CONVERSIONS_H

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace rlx::runtime {

template <typename To, typename From> To bitsOf(From value) {
  To result = 0;
  static_assert(sizeof(To) == sizeof(From));
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

/// Rounds an IEEE float with `fromMantissa` stored mantissa bits, given and returned as bits, to
/// one of 16 bits with `toMantissa`.
template <int fromBits, int fromMantissa, int toMantissa> uint16_t narrowFloat(uint64_t bits) {
  constexpr int toExponent = 15 - toMantissa, fromExponent = fromBits - 1 - fromMantissa;
  constexpr int64_t toBias = (1 << (toExponent - 1)) - 1, fromBias = (1 << (fromExponent - 1)) - 1;
  constexpr uint64_t infinity = uint64_t((1 << toExponent) - 1) << toMantissa;
  const uint64_t sign = (bits >> (fromBits - 1)) << 15;
  const uint64_t mantissa = bits & ((uint64_t(1) << fromMantissa) - 1);
  const int64_t exponent = int64_t(bits >> fromMantissa) & ((1 << fromExponent) - 1);
  if (exponent == (1 << fromExponent) - 1) {
    uint64_t quiet = uint64_t(1) << (toMantissa - 1);
    uint64_t payload = mantissa ? quiet | (mantissa >> (fromMantissa - toMantissa)) : 0;
    return uint16_t(sign | infinity | payload);
  }
  uint64_t significand = exponent ? mantissa | (uint64_t(1) << fromMantissa) : mantissa;
  int64_t newExponent = std::max<int64_t>(exponent, 1) - fromBias + toBias;
  // A subnormal result has its last bit where the smallest normal one has it.
  int64_t shift = fromMantissa - toMantissa + std::max<int64_t>(1 - newExponent, 0);
  shift = std::min<int64_t>(shift, 63);
  uint64_t kept = significand >> shift, rest = significand & ((uint64_t(1) << shift) - 1);
  uint64_t half = uint64_t(1) << (shift - 1);
  kept += rest > half || (rest == half && (kept & 1));
  // The leading bit of `kept` counts as one in the exponent, and a carry out of it as one more.
  uint64_t result =
      kept + (newExponent > 1 ? uint64_t(newExponent - 1) << toMantissa : uint64_t(0));
  return uint16_t(sign | std::min(result, infinity));
}

/// The f32 that an f16, given as bits, stands for; exact.
inline float widenHalf(uint16_t bits) {
  uint32_t sign = uint32_t(bits >> 15) << 31, exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  if (exponent == 31) // a NaN gets quiet
    return bitsOf<float>(sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0));
  if (exponent != 0)
    return bitsOf<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  float magnitude = float(mantissa) * 0x1p-24f; // subnormal: mantissa * 2^-24
  return sign ? -magnitude : magnitude;
}

} // namespace rlx::runtime

#endif // RLX_RUNTIME_FLOAT_CONVERSIONS_H
