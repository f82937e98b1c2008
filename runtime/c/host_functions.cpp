// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions that compiled code calls by name where the target has no instruction, for code that is
// linked ahead of time: those that runtime/loader.cpp gives code that is loaded, with the same
// bits.
#include "runtime/float_conversions.h"

#include <cstdint>

namespace rlx::runtime::c {

// A 16-bit float is passed and returned in the low half of the register that holds a `float`.
#define RLX_NAMED(name) __asm__(name) __attribute__((used, visibility("hidden")))
float truncsfhf2(float x) RLX_NAMED("__truncsfhf2");
float truncdfhf2(double x) RLX_NAMED("__truncdfhf2");
float truncsfbf2(float x) RLX_NAMED("__truncsfbf2");
float truncdfbf2(double x) RLX_NAMED("__truncdfbf2");
float extendhfsf2(float half) RLX_NAMED("__extendhfsf2");
double extendhfdf2(float half) RLX_NAMED("__extendhfdf2");
uint16_t halfOf(float x) RLX_NAMED("__gnu_f2h_ieee");
float floatOf(uint16_t half) RLX_NAMED("__gnu_h2f_ieee");
float powisf2(float x, int n) RLX_NAMED("__powisf2");
double powidf2(double x, int n) RLX_NAMED("__powidf2");
#undef RLX_NAMED

namespace {

float returnedHalf(uint16_t bits) { return bitsOf<float>(uint32_t(bits)); }
uint16_t passedHalf(float half) { return uint16_t(bitsOf<uint32_t>(half)); }

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

} // namespace

uint16_t halfOf(float x) { return narrowFloat<32, 23, 10>(bitsOf<uint32_t>(x)); }
float floatOf(uint16_t half) { return widenHalf(half); }
float truncsfhf2(float x) { return returnedHalf(halfOf(x)); }
float truncdfhf2(double x) { return returnedHalf(narrowFloat<64, 52, 10>(bitsOf<uint64_t>(x))); }
float truncsfbf2(float x) { return returnedHalf(narrowFloat<32, 23, 7>(bitsOf<uint32_t>(x))); }
float truncdfbf2(double x) { return returnedHalf(narrowFloat<64, 52, 7>(bitsOf<uint64_t>(x))); }
float extendhfsf2(float half) { return widenHalf(passedHalf(half)); }
double extendhfdf2(float half) { return widenHalf(passedHalf(half)); }
float powisf2(float x, int n) { return powi(x, n); }
double powidf2(double x, int n) { return powi(x, n); }

} // namespace rlx::runtime::c
