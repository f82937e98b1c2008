// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions that LLVM calls by name where the target has no instruction. A compiler's support
// library has them from some version on; these are always there, and give the same bits everywhere.
#ifndef RLX_RUNTIME_SUPPORT_FUNCTIONS_H
#define RLX_RUNTIME_SUPPORT_FUNCTIONS_H

#include "float_conversions.h"

#include <cstdint>

namespace rlx::runtime::support {

// A 16-bit float is passed and returned in the low half of the register that holds a `float`, on
// x86-64 as on AArch64, so `float` stands for it here; older compilers have no type for it.
inline float returnedHalf(uint16_t bits) { return bitsOf<float>(uint32_t(bits)); }
inline uint16_t passedHalf(float half) { return uint16_t(bitsOf<uint32_t>(half)); }

inline uint16_t halfOf(float x) { return narrowFloat<32, 23, 10>(bitsOf<uint32_t>(x)); }
inline float truncsfhf2(float x) { return returnedHalf(halfOf(x)); }
inline float truncdfhf2(double x) {
  return returnedHalf(narrowFloat<64, 52, 10>(bitsOf<uint64_t>(x)));
}
inline float truncsfbf2(float x) {
  return returnedHalf(narrowFloat<32, 23, 7>(bitsOf<uint32_t>(x)));
}
inline float truncdfbf2(double x) {
  return returnedHalf(narrowFloat<64, 52, 7>(bitsOf<uint64_t>(x)));
}
inline float extendhfsf2(float half) { return widenHalf(passedHalf(half)); }
inline double extendhfdf2(float half) { return widenHalf(passedHalf(half)); }

/// x to a whole power by repeated squaring, for llvm.powi.
template <typename Float> Float powi(Float x, int n) {
  Float result = 1;
  for (unsigned rest = n < 0 ? 0u - unsigned(n) : unsigned(n);; x *= x) {
    if (rest & 1)
      result *= x;
    if ((rest >>= 1) == 0)
      return n < 0 ? 1 / result : result;
  }
}
inline float powisf2(float x, int n) { return powi(x, n); }
inline double powidf2(double x, int n) { return powi(x, n); }

} // namespace rlx::runtime::support

#endif // RLX_RUNTIME_SUPPORT_FUNCTIONS_H
