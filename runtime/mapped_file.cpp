// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mapped_file.h"

#include "error.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rlx::runtime {

MappedFile::MappedFile(const std::string &path) {
  // Opening a FIFO would wait for a writer.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    throw ExecutionError(std::strerror(errno));
  struct stat status{};
  void *mapping = nullptr; // of a file without bytes
  std::string problem;
  if (fstat(file, &status) != 0)
    problem = std::strerror(errno);
  else if (!S_ISREG(status.st_mode))
    problem = "it is no regular file";
  else if (status.st_size > 0 && (mapping = mmap(nullptr, size_t(status.st_size), PROT_READ,
                                                 MAP_SHARED, file, 0)) == MAP_FAILED)
    problem = std::string("it can't be mapped: ") + std::strerror(errno);
  close(file);
  if (!problem.empty())
    throw ExecutionError(problem);
  start = static_cast<const std::byte *>(mapping);
  size = size_t(status.st_size);
}

MappedFile::~MappedFile() {
  if (size > 0)
    munmap(const_cast<std::byte *>(start), size);
}

} // namespace rlx::runtime
