// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Puts linked objects into the memory of this process, as code.
#ifndef RLX_RUNTIME_LOADER_H
#define RLX_RUNTIME_LOADER_H

#include "host_functions.h"
#include "linker.h"
#include "symbols.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rlx::runtime {

/// Relocatable ELF objects for this machine, linked with each other, the functions of
/// host_functions.h and others of the host program. The code stays where it is as long as this
/// object lives. Never changes, so it may be used from several threads.
class ObjectCode final : public Symbols {
public:
  /// Links the objects, and copies what is needed of them. No page is ever writable and executable
  /// at once. Throws ExecutionError, which says what is wrong and where, where an object is
  /// damaged, for another machine or has what code can't have, two define one symbol, a function
  /// is missing, or the memory cannot be had.
  explicit ObjectCode(const std::vector<std::string_view> &objects,
                      const std::vector<HostSymbol> &functions = {});
  ~ObjectCode() override;

  /// The address of a global symbol that one of the objects defines. Throws ExecutionError, which
  /// names the symbol, where there is none.
  void *lookup(const std::string &name) const override;

  /// The same; null where there is no such symbol.
  void *find(const std::string &name) const override;

  /// The same for a function: throws, too, where the symbol isn't code.
  void *function(const std::string &name) const override;

  /// The bytes from an address of a symbol on to the end of the section that it is in; 0 where
  /// there is no such symbol.
  size_t bytesFrom(const std::string &name) const override;

private:
  const Linker::Location *locate(const std::string &name) const;

  std::byte *memory = nullptr;
  size_t bytes = 0;
  std::unordered_map<std::string, Linker::Location> symbols;
};

} // namespace rlx::runtime

#endif // RLX_RUNTIME_LOADER_H
