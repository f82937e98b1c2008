// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers in the bytes of files, which are little-endian as the machines are that code is for.
#ifndef RLX_RUNTIME_LIBRARY_BYTES_H
#define RLX_RUNTIME_LIBRARY_BYTES_H

#include "runtime/error.h"
#include "runtime/value.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace rlx::runtime::library {

/// A number that begins at a byte, whatever that is a multiple of.
template <typename T> T numberAt(std::string_view bytes, size_t at) {
  T number;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

/// Numbers of 4 bytes that a value packs, `what` they are; throws InputError for anything else.
inline std::vector<uint32_t> packedWords(const Value &packed, const char *what) {
  const std::string &bytes = packed.asText(what);
  if (bytes.size() % 4 != 0)
    throw InputError(std::string(what) + " must be numbers of 4 bytes, but have " +
                     std::to_string(bytes.size()) + " bytes");
  std::vector<uint32_t> found(bytes.size() / 4);
  for (size_t i = 0; i < found.size(); ++i)
    found[i] = numberAt<uint32_t>(bytes, 4 * i);
  return found;
}

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_BYTES_H
