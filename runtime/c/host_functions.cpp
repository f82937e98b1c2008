// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions that compiled code calls by name where the target has no instruction, for code that is
// linked ahead of time: those of runtime/host_functions.cpp, with the same bits.
#include "runtime/support_functions.h"

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

uint16_t halfOf(float x) { return support::halfOf(x); }
float floatOf(uint16_t half) { return widenHalf(half); }
float truncsfhf2(float x) { return support::truncsfhf2(x); }
float truncdfhf2(double x) { return support::truncdfhf2(x); }
float truncsfbf2(float x) { return support::truncsfbf2(x); }
float truncdfbf2(double x) { return support::truncdfbf2(x); }
float extendhfsf2(float half) { return support::extendhfsf2(half); }
double extendhfdf2(float half) { return support::extendhfdf2(half); }
float powisf2(float x, int n) { return support::powisf2(x, n); }
double powidf2(double x, int n) { return support::powidf2(x, n); }

} // namespace rlx::runtime::c
