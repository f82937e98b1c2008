// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A file as memory that can only be read.
#ifndef RLX_RUNTIME_MAPPED_FILE_H
#define RLX_RUNTIME_MAPPED_FILE_H

#include <cstddef>
#include <string>
#include <string_view>

namespace rlx::runtime {

/// A regular file that is mapped as long as this object lives; processes share its pages.
class MappedFile {
public:
  /// Throws ExecutionError, which doesn't name the file, where it can't be read or mapped.
  explicit MappedFile(const std::string &path);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  const std::byte *data() const { return start; }
  size_t bytes() const { return size; }
  std::string_view text() const { return {reinterpret_cast<const char *>(start), size}; }

private:
  const std::byte *start = nullptr;
  size_t size = 0;
};

} // namespace rlx::runtime

#endif // RLX_RUNTIME_MAPPED_FILE_H
