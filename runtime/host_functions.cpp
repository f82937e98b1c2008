// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host_functions.h"

#include "support_functions.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace rlx::runtime {
namespace {

/// To the nearest whole number, of two the even one, whatever the rounding mode is.
template <typename Float> Float roundToEven(Float x) {
  // From there on all numbers are whole; those that aren't finite compare as false, too.
  constexpr Float kWhole = Float(sizeof(Float) == 4 ? 0x1p23 : 0x1p52);
  if (!(std::fabs(x) < kWhole))
    return x;
  const Float below = std::floor(x), rest = x - below;
  Float result = below;
  if (rest > Float(0.5) || (rest == Float(0.5) && std::fmod(below, Float(2)) != 0))
    result += 1;
  return std::copysign(result, x);
}
float roundevenF32(float x) { return roundToEven(x); }
double roundevenF64(double x) { return roundToEven(x); }

//===----------------------------------------------------------------------===//
// All functions
//===----------------------------------------------------------------------===//

template <typename Function> HostSymbol symbol(const char *name, Function *function) {
  return {name, reinterpret_cast<void *>(function)};
}

// Functions of libm for f64 and f32, by the number of their operands. Names are overloaded in C++.
#define RLX_UNARY(name)                                                                            \
  symbol<double(double)>(#name, name), symbol<float(float)>(#name "f", name##f)
#define RLX_BINARY(name)                                                                           \
  symbol<double(double, double)>(#name, name), symbol<float(float, float)>(#name "f", name##f)

std::vector<HostSymbol> listed() {
  std::vector<HostSymbol> symbols = {
      RLX_UNARY(acos),
      RLX_UNARY(acosh),
      RLX_UNARY(asin),
      RLX_UNARY(asinh),
      RLX_UNARY(atan),
      RLX_UNARY(atanh),
      RLX_UNARY(cbrt),
      RLX_UNARY(ceil),
      RLX_UNARY(cos),
      RLX_UNARY(cosh),
      RLX_UNARY(erf),
      RLX_UNARY(erfc),
      RLX_UNARY(exp),
      RLX_UNARY(exp10),
      RLX_UNARY(exp2),
      RLX_UNARY(expm1),
      RLX_UNARY(fabs),
      RLX_UNARY(floor),
      RLX_UNARY(log),
      RLX_UNARY(log10),
      RLX_UNARY(log1p),
      RLX_UNARY(log2),
      RLX_UNARY(nearbyint),
      RLX_UNARY(rint),
      RLX_UNARY(round),
      RLX_UNARY(sin),
      RLX_UNARY(sinh),
      RLX_UNARY(sqrt),
      RLX_UNARY(tan),
      RLX_UNARY(tanh),
      RLX_UNARY(trunc),
      RLX_BINARY(atan2),
      RLX_BINARY(copysign),
      RLX_BINARY(fmax),
      RLX_BINARY(fmin),
      RLX_BINARY(fmod),
      RLX_BINARY(hypot),
      RLX_BINARY(pow),
      symbol<double(double, double, double)>("fma", fma),
      symbol<float(float, float, float)>("fmaf", fmaf),
      symbol<double(double, int *)>("frexp", frexp),
      symbol<float(float, int *)>("frexpf", frexpf),
      symbol<double(double, int)>("ldexp", ldexp),
      symbol<float(float, int)>("ldexpf", ldexpf),
      symbol<long long(double)>("llrint", llrint),
      symbol<long long(float)>("llrintf", llrintf),
      symbol<long long(double)>("llround", llround),
      symbol<long long(float)>("llroundf", llroundf),
      symbol<long(double)>("lrint", lrint),
      symbol<long(float)>("lrintf", lrintf),
      symbol<long(double)>("lround", lround),
      symbol<long(float)>("lroundf", lroundf),
      symbol<void(double, double *, double *)>("sincos", sincos),
      symbol<void(float, float *, float *)>("sincosf", sincosf),
      symbol("roundeven", roundevenF64),
      symbol("roundevenf", roundevenF32),
      symbol<void *(size_t, size_t)>("aligned_alloc", aligned_alloc),
      symbol<int(const void *, const void *, size_t)>("bcmp", memcmp),
      symbol<void(void *)>("free", free),
      symbol<void *(size_t)>("malloc", malloc),
      symbol<int(const void *, const void *, size_t)>("memcmp", memcmp),
      symbol<void *(void *, const void *, size_t)>("memcpy", memcpy),
      symbol<void *(void *, const void *, size_t)>("memmove", memmove),
      symbol<void *(void *, int, size_t)>("memset", memset),
      symbol<size_t(const char *)>("strlen", strlen),
      symbol("__truncsfhf2", support::truncsfhf2),
      symbol("__truncdfhf2", support::truncdfhf2),
      symbol("__truncsfbf2", support::truncsfbf2),
      symbol("__truncdfbf2", support::truncdfbf2),
      symbol("__extendhfsf2", support::extendhfsf2),
      symbol("__extendhfdf2", support::extendhfdf2),
      symbol("__gnu_f2h_ieee", support::halfOf),
      symbol("__gnu_h2f_ieee", widenHalf),
      symbol("__powisf2", support::powisf2),
      symbol("__powidf2", support::powidf2),
  };
  std::sort(symbols.begin(), symbols.end(), [](const HostSymbol &a, const HostSymbol &b) {
    return std::string_view(a.name) < std::string_view(b.name);
  });
  return symbols;
}

} // namespace

const std::vector<HostSymbol> &hostFunctions() {
  static const std::vector<HostSymbol> symbols = listed();
  return symbols;
}

void *findHostFunction(std::string_view name) {
  const std::vector<HostSymbol> &symbols = hostFunctions();
  auto found = std::lower_bound(symbols.begin(), symbols.end(), name,
                                [](const HostSymbol &symbol, std::string_view wanted) {
                                  return std::string_view(symbol.name) < wanted;
                                });
  return found != symbols.end() && found->name == name ? found->address : nullptr;
}

} // namespace rlx::runtime
