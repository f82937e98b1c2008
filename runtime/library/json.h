// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// JSON, as descriptions and manifests are written.
#ifndef RLX_RUNTIME_LIBRARY_JSON_H
#define RLX_RUNTIME_LIBRARY_JSON_H

#include "runtime/value.h"

#include <string_view>

namespace rlx::runtime::library {

/// Reads a document of JSON. True and false become 1 and 0; numbers that are no integers of 64 bits
/// are of no kind. Throws InputError, which names the byte, where it is none, or larger than what
/// reading one may take.
Value readJson(std::string_view text);

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_JSON_H
