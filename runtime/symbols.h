// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where compiled code is, whatever brought it into the process.
#ifndef RLX_RUNTIME_SYMBOLS_H
#define RLX_RUNTIME_SYMBOLS_H

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
  virtual void *lookup(const std::string &name) = 0;
  /// The same; null where there is no such symbol.
  virtual void *find(const std::string &name) = 0;
};

} // namespace rlx::runtime

#endif // RLX_RUNTIME_SYMBOLS_H
