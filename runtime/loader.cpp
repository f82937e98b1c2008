// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "loader.h"

#include "error.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <utility>

namespace rlx::runtime {
namespace {

/// Memory of this process for an image, until it is given away.
class Mapping {
public:
  explicit Mapping(size_t bytes) : bytes(bytes) {
    if (bytes == 0)
      return;
    void *address =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED)
      throw ExecutionError("the memory for code, " + std::to_string(bytes) +
                           " bytes, cannot be had: " + std::strerror(errno));
    start = static_cast<std::byte *>(address);
  }
  ~Mapping() {
    if (start != nullptr)
      munmap(start, bytes);
  }
  Mapping(const Mapping &) = delete;
  Mapping &operator=(const Mapping &) = delete;

  /// What may be done with a segment from now on.
  void protect(const Linker::Segment &segment, int protection, const char *what) {
    if (segment.bytes != 0 && mprotect(start + segment.offset, segment.bytes, protection) != 0)
      throw ExecutionError("the memory for code cannot be made " + std::string(what) + ": " +
                           std::strerror(errno));
  }

  std::byte *data() { return start; }
  std::byte *release() { return std::exchange(start, nullptr); }

private:
  std::byte *start = nullptr;
  size_t bytes;
};

} // namespace

ObjectCode::ObjectCode(const std::vector<std::string_view> &objects,
                       const std::vector<HostSymbol> &functions) {
  auto resolve = [&](std::string_view name) -> std::optional<uint64_t> {
    for (const HostSymbol &symbol : functions)
      if (name == symbol.name)
        return reinterpret_cast<uint64_t>(symbol.address);
    if (void *address = findHostFunction(name))
      return reinterpret_cast<uint64_t>(address);
    return std::nullopt;
  };
  const Linker linker(kMachine, objects, resolve);
  Mapping mapping(linker.bytes());
  linker.write(mapping.data(), reinterpret_cast<uint64_t>(mapping.data()));
  mapping.protect(linker.code(), PROT_READ | PROT_EXEC, "executable");
  mapping.protect(linker.constants(), PROT_READ, "read-only");
  auto *code = reinterpret_cast<char *>(mapping.data());
  __builtin___clear_cache(code, code + linker.code().bytes); // on AArch64
  symbols = linker.symbols();
  bytes = linker.bytes();
  memory = mapping.release();
}

ObjectCode::~ObjectCode() {
  if (memory != nullptr)
    munmap(memory, bytes);
}

const Linker::Location *ObjectCode::locate(const std::string &name) const {
  auto found = symbols.find(name);
  return found == symbols.end() ? nullptr : &found->second;
}

void *ObjectCode::lookup(const std::string &name) const {
  if (void *address = find(name))
    return address;
  throw ExecutionError("symbol '" + name + "' cannot be loaded: no object defines it");
}

void *ObjectCode::find(const std::string &name) const {
  const Linker::Location *location = locate(name);
  return location == nullptr ? nullptr : memory + location->offset;
}

void *ObjectCode::function(const std::string &name) const {
  void *address = lookup(name);
  if (locate(name)->use != ElfObject::Use::Code)
    throw ExecutionError("symbol '" + name + "' cannot be called: it is data, not code");
  return address;
}

size_t ObjectCode::bytesFrom(const std::string &name) const {
  const Linker::Location *location = locate(name);
  return location == nullptr ? 0 : location->bytes;
}

} // namespace rlx::runtime
