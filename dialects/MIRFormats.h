// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The block formats of packed weights, by name. What they are is described in Python, which
// registers each here with the numbers that types are checked by.

#ifndef RLX_DIALECTS_MIRFORMATS_H
#define RLX_DIALECTS_MIRFORMATS_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>

namespace rlx::mir {

/// A part of a row in layout planes: for every `length` elements, `bytes` bytes.
struct RowPlane {
  int64_t length, bytes;
  bool operator==(const RowPlane &other) const {
    return length == other.length && bytes == other.bytes;
  }
};

struct BlockFormat {
  /// Elements of a block of one row, and the bytes that it takes.
  int64_t length, bytes;
  /// Bytes that it takes in a panel; 0 where the format has no panels.
  int64_t panelBytes;
  /// Whether products of integers can read it (see `mir.block_dot`).
  bool integers;
  /// The parts of a row in layout planes; empty where the format has no planes.
  llvm::SmallVector<RowPlane, 6> planes;

  /// Bytes of a row of `k` elements in layout planes.
  int64_t getPlaneBytes(int64_t k) const;
};

/// Makes a format known to the process, for all contexts and for ever. Gives the text of an error
/// where the name is no keyword, a number is out of range, or another format has the name.
std::string registerBlockFormat(llvm::StringRef name, const BlockFormat &format);

/// The format of a name, where there is one.
std::optional<BlockFormat> findBlockFormat(llvm::StringRef name);

/// The names of all formats, in the order of their registration, separated by commas.
std::string blockFormatNames();

} // namespace rlx::mir

#endif // RLX_DIALECTS_MIRFORMATS_H
