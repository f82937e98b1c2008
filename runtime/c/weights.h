// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The weights of a library: in it, or in a file that is mapped.
#ifndef RLX_RUNTIME_C_WEIGHTS_H
#define RLX_RUNTIME_C_WEIGHTS_H

#include "description.h"

#include <cstddef>
#include <string>

namespace rlx::runtime::c {

/// Memory that can only be read.
class Weights {
public:
  /// Those that are embedded. Throws ExecutionError where they aren't what the description says.
  Weights(const std::byte *data, size_t bytes, const Description::Weights &expected);
  /// Maps a file. Throws ExecutionError where it can't be read, or is of something else.
  Weights(const std::string &path, const Description::Weights &expected);
  ~Weights();
  Weights(const Weights &) = delete;
  Weights &operator=(const Weights &) = delete;

  /// Where a parameter is. Throws ExecutionError where it isn't in the weights.
  const std::byte *at(const Buffer::Place &place, const std::string &what) const;

private:
  const std::byte *data;
  size_t bytes;
  bool mapped;
};

} // namespace rlx::runtime::c

#endif // RLX_RUNTIME_C_WEIGHTS_H
