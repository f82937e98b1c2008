// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The weights of a library: in it, or in a file that is mapped.
#ifndef RLX_RUNTIME_C_WEIGHTS_H
#define RLX_RUNTIME_C_WEIGHTS_H

#include "description.h"
#include "runtime/mapped_file.h"

#include <cstddef>
#include <memory>
#include <string>

namespace rlx::runtime::c {

/// Memory that can only be read.
class Weights {
public:
  /// Those that are embedded. Throws ExecutionError where they aren't what the description says.
  Weights(const std::byte *data, size_t bytes, const Description::Weights &expected);
  /// Maps a file. Throws ExecutionError where it can't be read, or is of something else.
  Weights(const std::string &path, const Description::Weights &expected);
  /// Those of a file that was checked by whoever mapped it.
  explicit Weights(std::shared_ptr<const MappedFile> file);

  /// Where a parameter is. Throws ExecutionError where it isn't in the weights.
  const std::byte *at(const Buffer::Place &place, const std::string &what) const;

private:
  std::shared_ptr<const MappedFile> file; // null for those that are embedded
  const std::byte *data;
  size_t bytes;
};

} // namespace rlx::runtime::c

#endif // RLX_RUNTIME_C_WEIGHTS_H
