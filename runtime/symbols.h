// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where compiled code is, whatever brought it into the process.
#ifndef RLX_RUNTIME_SYMBOLS_H
#define RLX_RUNTIME_SYMBOLS_H

#include <cstddef>
#include <string>

namespace rlx::runtime {

/// Compiled code by the names of its symbols; it stays where it is as long as this object lives.
class Symbols {
public:
  Symbols() = default;
  virtual ~Symbols() = default;
  Symbols(const Symbols &) = delete;
  Symbols &operator=(const Symbols &) = delete;

  /// The address of a symbol. Throws ExecutionError, which names it, where there is none.
  virtual void *lookup(const std::string &name) const = 0;
  /// The same; null where there is no such symbol.
  virtual void *find(const std::string &name) const = 0;
  /// The same for a function: throws, too, where the symbol is known not to be code.
  virtual void *function(const std::string &name) const = 0;
  /// The bytes from an address of a symbol on that may be read; 0 where there is no such symbol.
  virtual size_t bytesFrom(const std::string &name) const = 0;
};

} // namespace rlx::runtime

#endif // RLX_RUNTIME_SYMBOLS_H
