// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers in the bytes of files, which are little-endian as the machines are that code is for.
#ifndef RLX_RUNTIME_LIBRARY_BYTES_H
#define RLX_RUNTIME_LIBRARY_BYTES_H

#include <cstddef>
#include <cstring>
#include <string_view>

namespace rlx::runtime::library {

/// A number that begins at a byte, whatever that is a multiple of.
template <typename T> T numberAt(std::string_view bytes, size_t at) {
  T number;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_BYTES_H
