// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "processor.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <cstring>
#include <map>
#include <utility>
#else
#include <fstream>
#include <set>
#include <sys/auxv.h>
#endif

namespace rlx::runtime {
namespace {

void addFeature(std::string &features, const char *name, bool isThere) {
  features += features.empty() ? "" : ",";
  features += isThere ? '+' : '-';
  features += name;
}

#if defined(__x86_64__)

//===----------------------------------------------------------------------===//
// x86-64: the instruction CPUID, as Intel's and AMD's manuals have it
//===----------------------------------------------------------------------===//

enum Register { A, B, C, D };
struct Registers {
  uint32_t values[4] = {}; // EAX, EBX, ECX, EDX
};

/// What leaves say, each of which is asked for once: a hypervisor takes its time to answer.
class Cpuid {
public:
  /// A leaf's registers; zeros where the processor doesn't have it.
  const Registers &operator()(uint32_t leaf, uint32_t subleaf = 0) {
    auto [entry, isNew] = known.try_emplace({leaf, subleaf});
    uint32_t *values = entry->second.values;
    if (isNew && leaf <= most(leaf & 0x80000000u))
      __cpuid_count(leaf, subleaf, values[A], values[B], values[C], values[D]);
    return entry->second;
  }

private:
  /// The last leaf of those from a number on.
  uint32_t most(uint32_t first) {
    uint32_t &found = first == 0 ? lastBasic : lastExtended;
    if (found == 0)
      found = __get_cpuid_max(first, nullptr);
    return found;
  }

  std::map<std::pair<uint32_t, uint32_t>, Registers> known;
  uint32_t lastBasic = 0, lastExtended = 0;
};

/// Registers that the operating system keeps for each thread; others may not be used.
enum class State { None, Xsave, Avx, Avx512, Amx, Apx };

/// Bits of XCR0 that a state needs.
uint64_t bitsOf(State state) {
  switch (state) {
  case State::None:
  case State::Xsave:
    return 0;
  case State::Avx:
    return 0x6;
  case State::Avx512:
    return 0xe6;
  case State::Amx:
    return 0x60000;
  case State::Apx:
    return 0x80000;
  }
  return 0;
}

struct Feature {
  const char *name;
  uint32_t leaf, subleaf;
  Register which;
  unsigned bit;
  State state = State::None;
};

constexpr uint32_t kMore = 0x80000001u;

constexpr Feature kFeatures[] = {
    {"cx8", 1, 0, D, 8},
    {"cmov", 1, 0, D, 15},
    {"mmx", 1, 0, D, 23},
    {"fxsr", 1, 0, D, 24},
    {"sse", 1, 0, D, 25},
    {"sse2", 1, 0, D, 26},
    {"sse3", 1, 0, C, 0},
    {"pclmul", 1, 0, C, 1},
    {"ssse3", 1, 0, C, 9},
    {"fma", 1, 0, C, 12, State::Avx},
    {"cx16", 1, 0, C, 13},
    {"sse4.1", 1, 0, C, 19},
    {"sse4.2", 1, 0, C, 20},
    {"crc32", 1, 0, C, 20},
    {"movbe", 1, 0, C, 22},
    {"popcnt", 1, 0, C, 23},
    {"aes", 1, 0, C, 25},
    {"xsave", 1, 0, C, 26, State::Xsave},
    {"avx", 1, 0, C, 28, State::Avx},
    {"f16c", 1, 0, C, 29, State::Avx},
    {"rdrnd", 1, 0, C, 30},
    {"sahf", kMore, 0, C, 0},
    {"lzcnt", kMore, 0, C, 5},
    {"sse4a", kMore, 0, C, 6},
    {"prfchw", kMore, 0, C, 8},
    {"xop", kMore, 0, C, 11, State::Avx},
    {"lwp", kMore, 0, C, 15},
    {"fma4", kMore, 0, C, 16, State::Avx},
    {"tbm", kMore, 0, C, 21},
    {"mwaitx", kMore, 0, C, 29},
    {"64bit", kMore, 0, D, 29},
    {"clzero", 0x80000008u, 0, B, 0},
    {"rdpru", 0x80000008u, 0, B, 4},
    {"wbnoinvd", 0x80000008u, 0, B, 9},
    {"fsgsbase", 7, 0, B, 0},
    {"sgx", 7, 0, B, 2},
    {"bmi", 7, 0, B, 3},
    {"avx2", 7, 0, B, 5, State::Avx},
    {"bmi2", 7, 0, B, 8},
    {"invpcid", 7, 0, B, 10},
    {"rtm", 7, 0, B, 11},
    {"avx512f", 7, 0, B, 16, State::Avx512},
    {"avx512dq", 7, 0, B, 17, State::Avx512},
    {"rdseed", 7, 0, B, 18},
    {"adx", 7, 0, B, 19},
    {"avx512ifma", 7, 0, B, 21, State::Avx512},
    {"clflushopt", 7, 0, B, 23},
    {"clwb", 7, 0, B, 24},
    {"avx512cd", 7, 0, B, 28, State::Avx512},
    {"sha", 7, 0, B, 29},
    {"avx512bw", 7, 0, B, 30, State::Avx512},
    {"avx512vl", 7, 0, B, 31, State::Avx512},
    {"avx512vbmi", 7, 0, C, 1, State::Avx512},
    {"pku", 7, 0, C, 4},
    {"waitpkg", 7, 0, C, 5},
    {"avx512vbmi2", 7, 0, C, 6, State::Avx512},
    {"shstk", 7, 0, C, 7},
    {"gfni", 7, 0, C, 8},
    {"vaes", 7, 0, C, 9, State::Avx},
    {"vpclmulqdq", 7, 0, C, 10, State::Avx},
    {"avx512vnni", 7, 0, C, 11, State::Avx512},
    {"avx512bitalg", 7, 0, C, 12, State::Avx512},
    {"avx512vpopcntdq", 7, 0, C, 14, State::Avx512},
    {"rdpid", 7, 0, C, 22},
    {"kl", 7, 0, C, 23},
    {"cldemote", 7, 0, C, 25},
    {"movdiri", 7, 0, C, 27},
    {"movdir64b", 7, 0, C, 28},
    {"enqcmd", 7, 0, C, 29},
    {"uintr", 7, 0, D, 5},
    {"avx512vp2intersect", 7, 0, D, 8, State::Avx512},
    {"serialize", 7, 0, D, 14},
    {"tsxldtrk", 7, 0, D, 16},
    {"pconfig", 7, 0, D, 18},
    {"amx-bf16", 7, 0, D, 22, State::Amx},
    {"avx512fp16", 7, 0, D, 23, State::Avx512},
    {"amx-tile", 7, 0, D, 24, State::Amx},
    {"amx-int8", 7, 0, D, 25, State::Amx},
    {"sha512", 7, 1, A, 0, State::Avx},
    {"sm3", 7, 1, A, 1, State::Avx},
    {"sm4", 7, 1, A, 2, State::Avx},
    {"raoint", 7, 1, A, 3},
    {"avxvnni", 7, 1, A, 4, State::Avx},
    {"avx512bf16", 7, 1, A, 5, State::Avx512},
    {"cmpccxadd", 7, 1, A, 7},
    {"amx-fp16", 7, 1, A, 21, State::Amx},
    {"hreset", 7, 1, A, 22},
    {"avxifma", 7, 1, A, 23, State::Avx},
    {"movrs", 7, 1, A, 31},
    {"avxvnniint8", 7, 1, D, 4, State::Avx},
    {"avxneconvert", 7, 1, D, 5, State::Avx},
    {"amx-complex", 7, 1, D, 8, State::Amx},
    {"avxvnniint16", 7, 1, D, 10, State::Avx},
    {"usermsr", 7, 1, D, 15},
    {"egpr", 7, 1, D, 21, State::Apx},
    {"push2pop2", 7, 1, D, 21, State::Apx},
    {"ppx", 7, 1, D, 21, State::Apx},
    {"ndd", 7, 1, D, 21, State::Apx},
    {"ccmp", 7, 1, D, 21, State::Apx},
    {"nf", 7, 1, D, 21, State::Apx},
    {"cf", 7, 1, D, 21, State::Apx},
    {"zu", 7, 1, D, 21, State::Apx},
    {"xsaveopt", 0xd, 1, A, 0, State::Xsave},
    {"xsavec", 0xd, 1, A, 1, State::Xsave},
    {"xsaves", 0xd, 1, A, 3, State::Xsave},
    {"ptwrite", 0x14, 0, B, 4},
    {"widekl", 0x19, 0, B, 2},
    {"amx-fp8", 0x1e, 1, A, 4, State::Amx},
    {"amx-tf32", 0x1e, 1, A, 6, State::Amx},
    {"amx-avx512", 0x1e, 1, A, 7, State::Amx},
    {"amx-movrs", 0x1e, 1, A, 8, State::Amx},
};

/// What the operating system keeps: XCR0 and one bit more, or 0 where it keeps nothing.
uint64_t keptState(Cpuid &cpuid) {
  constexpr uint64_t kXsave = uint64_t(1) << 63;
  if ((cpuid(1).values[C] >> 27 & 1) == 0)
    return 0;
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return kXsave | low;
}

bool keeps(uint64_t kept, State state) {
  return state == State::None || (kept != 0 && (kept & bitsOf(state)) == bitsOf(state));
}

bool has(Cpuid &cpuid, uint64_t kept, const Feature &feature) {
  // Leaf 7 says how many subleaves there are; of others, those that aren't there are zeros.
  if (feature.leaf == 7 && feature.subleaf > cpuid(7).values[A])
    return false;
  const Registers &found = cpuid(feature.leaf, feature.subleaf);
  return (found.values[feature.which] >> feature.bit & 1) != 0 && keeps(kept, feature.state);
}

std::string features(Cpuid &cpuid) {
  const uint64_t kept = keptState(cpuid);
  std::string found;
  for (const Feature &feature : kFeatures)
    addFeature(found, feature.name, has(cpuid, kept, feature));
  // Two bits say it, Intel's and AMD's.
  const bool prefetches = has(cpuid, kept, {"prefetchi", 7, 1, D, 14}) ||
                          has(cpuid, kept, {"prefetchi", 0x80000021u, 0, A, 20});
  addFeature(found, "prefetchi", prefetches);
  const bool isAvx10 = has(cpuid, kept, {"avx10", 7, 1, D, 19, State::Avx512});
  const uint32_t version = isAvx10 ? cpuid(0x24).values[B] & 0xff : 0;
  addFeature(found, "avx10.1", version >= 1);
  addFeature(found, "avx10.2", version >= 2);
  return found;
}

/// The text that registers hold.
std::string textOf(const uint32_t *values, size_t count) {
  std::string text(count * sizeof(uint32_t), '\0');
  std::memcpy(text.data(), values, text.size());
  return text.substr(0, text.find('\0'));
}

std::string model(Cpuid &cpuid) {
  const Registers first = cpuid(0), second = cpuid(1);
  const uint32_t maker[3] = {first.values[B], first.values[D], first.values[C]};
  const uint32_t word = second.values[A];
  uint32_t family = word >> 8 & 15, number = word >> 4 & 15;
  if (family == 6 || family == 15)
    number |= (word >> 16 & 15) << 4;
  if (family == 15)
    family += word >> 20 & 255;
  return textOf(maker, 3) + " " + std::to_string(family) + "/" + std::to_string(number) + "/" +
         std::to_string(word & 15);
}

std::string name(Cpuid &cpuid) {
  std::string text;
  for (uint32_t leaf = 0x80000002u; leaf <= 0x80000004u; ++leaf)
    text += textOf(cpuid(leaf).values, 4);
  const size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  return first == std::string::npos ? model(cpuid) : text.substr(first, last - first + 1);
}

Processor findProcessor() {
  Cpuid cpuid;
  return {"x86_64", name(cpuid), model(cpuid), features(cpuid)};
}

#else

//===----------------------------------------------------------------------===//
// AArch64: what Linux says
//===----------------------------------------------------------------------===//

struct Feature {
  const char *name;
  unsigned long first, second; // bits of AT_HWCAP and AT_HWCAP2 that have to be set
};

constexpr unsigned long bit(unsigned number) { return 1ul << number; }

/// The bits are part of Linux's interface, and never change.
constexpr Feature kFeatures[] = {
    {"aes", bit(3) | bit(4), 0},
    {"bf16", 0, bit(14)},
    {"complxnum", bit(14), 0},
    {"crc", bit(7), 0},
    {"dotprod", bit(20), 0},
    {"fp-armv8", bit(0), 0},
    {"fp16fml", bit(23), 0},
    {"fullfp16", bit(9) | bit(10), 0},
    {"i8mm", 0, bit(13)},
    {"jsconv", bit(13), 0},
    {"lse", bit(8), 0},
    {"neon", bit(1), 0},
    {"rcpc", bit(15), 0},
    {"rdm", bit(12), 0},
    {"sha2", bit(5) | bit(6), 0},
    {"sha3", bit(17) | bit(21), 0},
    {"sm4", bit(18) | bit(19), 0},
    {"sme", 0, bit(23)},
    {"sve", bit(22), 0},
    {"sve2", 0, bit(1)},
};

std::string features() {
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  std::string found;
  for (const Feature &feature : kFeatures)
    addFeature(found, feature.name,
               (first & feature.first) == feature.first &&
                   (second & feature.second) == feature.second);
  return found;
}

/// The numbers of every kind of core that there is.
std::string model() {
  std::set<std::string> kinds;
  std::string line, kind;
  std::ifstream file("/proc/cpuinfo");
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.rfind("CPU ", 0) == 0 && colon != std::string::npos)
      kind += (kind.empty() ? "" : "/") + line.substr(colon + 2);
    if (line.rfind("CPU revision", 0) == 0) { // the last one of a core
      kinds.insert(kind);
      kind.clear();
    }
  }
  std::string text;
  for (const std::string &own : kinds)
    text += (text.empty() ? "" : " ") + own;
  return text.empty() ? "unknown" : text;
}

Processor findProcessor() { return {"aarch64", model(), model(), features()}; }

#endif

} // namespace

const Processor &hostProcessor() {
  static const Processor found = findProcessor();
  return found;
}

} // namespace rlx::runtime
