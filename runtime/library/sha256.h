// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Digests of files: SHA-256, as FIPS 180-4 defines it.
#ifndef RLX_RUNTIME_LIBRARY_SHA256_H
#define RLX_RUNTIME_LIBRARY_SHA256_H

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace rlx::runtime::library {

using Digest = std::array<uint8_t, 32>;

/// The digest of some bytes, which follow each other.
Digest sha256(std::initializer_list<std::string_view> parts);

/// As messages show it: its first 8 bytes in hexadecimal.
std::string shortDigest(const Digest &digest);

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_SHA256_H
