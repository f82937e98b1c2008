// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "weights.h"

#include "runtime/error.h"

#include <cstring>
#include <utility>

namespace rlx::runtime::c {
namespace {

/// What weights begin with: the word, the version, nothing, how many bytes there are, and a digest
/// of what comes behind; parameters come from `kStart` on.
struct Header {
  char magic[8];
  uint32_t version, reserved;
  uint64_t bytes;
  unsigned char digest[32];
};
constexpr char kMagic[8] = {'R', 'L', 'X', 'W', 'G', 'H', 'T', 0};
constexpr uint32_t kVersion = 1;
constexpr size_t kStart = 4096;

std::string hexadecimal(const unsigned char (&digest)[32]) {
  std::string text;
  for (unsigned char byte : digest)
    for (int half : {byte >> 4, byte & 15})
      text += "0123456789abcdef"[half];
  return text;
}

/// What is wrong with weights; empty where nothing is.
std::string problemOf(const std::byte *data, size_t bytes, const Description::Weights &expected) {
  Header header;
  if (bytes < kStart)
    return "it has " + std::to_string(bytes) + " bytes, but at least " + std::to_string(kStart) +
           " are needed";
  std::memcpy(&header, data, sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    return "it isn't a file of weights";
  if (header.version != kVersion)
    return "it is of version " + std::to_string(header.version) + ", but this library reads " +
           std::to_string(kVersion);
  if (header.bytes != bytes || bytes != expected.bytes)
    return "it has " + std::to_string(bytes) + " bytes, its header says " +
           std::to_string(header.bytes) + ", and the library expects " +
           std::to_string(expected.bytes);
  if (std::string digest = hexadecimal(header.digest); digest != expected.digest)
    return "it is of another model: its digest is " + digest + ", but the library expects " +
           expected.digest;
  return "";
}

} // namespace

Weights::Weights(const std::byte *data, size_t bytes, const Description::Weights &expected)
    : data(data), bytes(bytes) {
  if (std::string problem = problemOf(data, bytes, expected); !problem.empty())
    throw ExecutionError("the weights in the library can't be used: " + problem);
}

Weights::Weights(const std::string &path, const Description::Weights &expected) {
  try {
    file = std::make_shared<const MappedFile>(path);
    data = file->data();
    bytes = file->bytes();
    if (bytes != expected.bytes)
      throw ExecutionError("it has " + std::to_string(bytes) + " bytes, but the library expects " +
                           std::to_string(expected.bytes));
    if (std::string problem = problemOf(data, bytes, expected); !problem.empty())
      throw ExecutionError(problem);
  } catch (const ExecutionError &error) {
    throw ExecutionError("the file of weights '" + path + "' can't be used: " + error.what());
  }
}

Weights::Weights(std::shared_ptr<const MappedFile> given)
    : file(std::move(given)), data(file->data()), bytes(file->bytes()) {}

const std::byte *Weights::at(const Buffer::Place &place, const std::string &what) const {
  if (place.offset < kStart || place.offset > bytes || place.bytes > bytes - place.offset)
    throw ExecutionError(what + ", " + std::to_string(place.bytes) + " bytes from byte " +
                         std::to_string(place.offset) + " on, can't be in " +
                         std::to_string(bytes) + " bytes of weights");
  return data + place.offset;
}

} // namespace rlx::runtime::c
