// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links compiled objects into the process.
#ifndef RLX_RUNTIME_LOADER_H
#define RLX_RUNTIME_LOADER_H

#include "symbols.h"

#include <string>
#include <string_view>
#include <vector>

namespace rlx::runtime {

/// A function of the host program that compiled code may call.
struct HostSymbol {
  const char *name;
  void *address;
};

/// Relocatable ELF objects for this machine, linked with each other, libc, libm, the conversions of
/// 16-bit floats and functions of the host program. The code stays where it is as long as this
/// object lives. Thread-safe.
class ObjectCode : public Symbols {
public:
  /// Copies the objects. Throws ExecutionError where one is cut off, no object or for another
  /// machine, or where two define one symbol. Bytes changed inside an object may pass, or end the
  /// process in one of LLVM's assertions: whoever stores objects keeps a checksum.
  explicit ObjectCode(const std::vector<std::string_view> &objects,
                      const std::vector<HostSymbol> &functions = {});
  ~ObjectCode() override;

  /// The address of a symbol that one of the objects defines. Throws ExecutionError, which names
  /// the symbol and what else is missing, where there is none or its object uses an unknown symbol.
  void *lookup(const std::string &name) override;

  /// The same; null where there is no such symbol.
  void *find(const std::string &name) override;

private:
  struct Session;
  Session *session;
};

struct HostTarget {
  std::string triple;
  std::string cpu;      // LLVM's name, such as "sapphirerapids"
  std::string features; // "+avx2,-sse4a,..."
};

/// The machine that this process runs on, as LLVM sees it.
HostTarget hostTarget();

} // namespace rlx::runtime

#endif // RLX_RUNTIME_LOADER_H
