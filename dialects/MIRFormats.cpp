// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The block formats of packed weights, by name.

#include "dialects/MIRFormats.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/MathExtras.h"

#include <mutex>
#include <shared_mutex>

using namespace llvm;
using namespace rlx::mir;

namespace {
/// Types are verified on many threads; formats are registered on any.
struct Registry {
  std::shared_mutex mutex;
  StringMap<BlockFormat> formats;
  SmallVector<StringRef> names; // Keys of the map, which stay where they are.
};
} // namespace

static Registry &registry() {
  static Registry instance;
  return instance;
}

/// Whether the name is what the assembly reads as one word.
static bool isKeyword(StringRef name) {
  return !name.empty() && (isAlpha(name.front()) || name.front() == '_') &&
         all_of(name, [](char c) { return isAlnum(c) || c == '_'; });
}

int64_t BlockFormat::getPlaneBytes(int64_t k) const {
  constexpr int64_t alignment = 16;
  int64_t bytes = 0;
  for (RowPlane plane : planes)
    bytes += llvm::alignTo(k / plane.length * plane.bytes, alignment);
  return bytes;
}

std::string rlx::mir::registerBlockFormat(StringRef name, const BlockFormat &format) {
  if (!isKeyword(name))
    return ("expects the name of a format to consist of letters, digits and '_', but got '" + name +
            "'")
        .str();
  auto isSize = [](int64_t size) { return size > 0 && size <= INT32_MAX; };
  if (!isSize(format.length) || !isSize(format.bytes) || format.panelBytes < 0 ||
      format.panelBytes > INT32_MAX)
    return ("expects sizes of format '" + name + "' from 1 to 2^31 - 1, but got " +
            Twine(format.length) + " elements in " + Twine(format.bytes) + " bytes, in panels " +
            Twine(format.panelBytes))
        .str();
  for (RowPlane plane : format.planes)
    if (!isSize(plane.length) || !isSize(plane.bytes) || plane.length > format.length)
      return ("expects planes of format '" + name + "' of 1 to " + Twine(format.length) +
              " elements and positive sizes, but got " + Twine(plane.length) + " elements in " +
              Twine(plane.bytes) + " bytes")
          .str();
  Registry &known = registry();
  std::unique_lock lock(known.mutex);
  auto [entry, added] = known.formats.try_emplace(name, format);
  if (added) {
    known.names.push_back(entry->getKey());
    return "";
  }
  const BlockFormat &other = entry->getValue();
  if (other.length == format.length && other.bytes == format.bytes &&
      other.panelBytes == format.panelBytes && other.integers == format.integers &&
      other.planes == format.planes)
    return "";
  return ("format '" + name + "' is already registered, with blocks of " + Twine(other.length) +
          " elements in " + Twine(other.bytes) + " bytes; now they are of " + Twine(format.length) +
          " in " + Twine(format.bytes))
      .str();
}

std::optional<BlockFormat> rlx::mir::findBlockFormat(StringRef name) {
  Registry &known = registry();
  std::shared_lock lock(known.mutex);
  auto entry = known.formats.find(name);
  if (entry == known.formats.end())
    return std::nullopt;
  return entry->getValue();
}

std::string rlx::mir::blockFormatNames() {
  Registry &known = registry();
  std::shared_lock lock(known.mutex);
  return join(known.names, ", ");
}
