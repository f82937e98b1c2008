// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "features.h"

#include "processor.h"

#include <algorithm>
#include <sys/syscall.h>
#include <unistd.h>

namespace rlx::runtime {

const std::vector<std::string_view> &unneededFeatures() {
  static const std::vector<std::string_view> names = {
      // What every processor has, and what is no instruction, though no CPU of LLVM's has it as a
      // hint.
      "64bit-mode", "x87", "nopl", "ermsb", "fsrm", "evex512", "prefer-128-bit",
      "prefer-legacy-setcc", "prefer-no-gather", "prefer-no-scatter", "harden-sls-ijmp",
      "harden-sls-ret", "lvi-cfi", "lvi-load-hardening", "seses", "retpoline",
      "retpoline-external-thunk", "retpoline-indirect-branches", "retpoline-indirect-calls",
      // Instructions that no code of ours has: there is no operation that they are chosen for.
      "cldemote", "clflushopt", "clwb", "clzero", "enqcmd", "fsgsbase", "fxsr", "hreset", "invpcid",
      "kl", "lwp", "movdir64b", "movdiri", "movrs", "mwaitx", "pconfig", "pku", "prefetchi",
      "ptwrite", "rdpid", "rdpru", "rdrnd", "rdseed", "rtm", "serialize", "sgx", "shstk",
      "tsxldtrk", "uintr", "usermsr", "waitpkg", "wbnoinvd", "widekl", "xsave", "xsavec",
      "xsaveopt", "xsaves"};
  return names;
}

std::vector<std::string> reliedOn(std::string_view features, std::string_view architecture) {
  std::vector<std::string> wanted;
  const std::vector<std::string_view> &unneeded = unneededFeatures();
  for (size_t at = 0; at < features.size();) {
    const size_t end = std::min(features.find(',', at), features.size());
    const std::string_view word = features.substr(at, end - at);
    at = end + 1;
    if (word.empty() || word[0] != '+')
      continue;
    const std::string_view name = word.substr(1);
    // Of what is listed of an AArch64 processor, only what is absent counts.
    if (architecture == "aarch64" ||
        std::find(unneeded.begin(), unneeded.end(), name) == unneeded.end())
      wanted.emplace_back(name);
  }
  return wanted;
}

std::string lackingFeatures(const std::vector<std::string> &needed) {
  const Processor &processor = hostProcessor();
  const std::string known = "," + processor.features + ",";
  auto says = [&](char sign, const std::string &feature) {
    return known.find(std::string(",") + sign + feature + ",") != std::string::npos;
  };
  // Of AArch64, what is listed is all that code generation chooses.
  const bool listsAll = processor.architecture == "x86_64";
  std::string missing;
  for (const std::string &feature : needed)
    if (listsAll ? !says('+', feature) : says('-', feature))
      missing += (missing.empty() ? "" : ", ") + feature;
  return missing;
}

bool requestTiles() {
#if defined(__x86_64__)
  constexpr long kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}

} // namespace rlx::runtime
