// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Containers: files of named sections, as `rlx_mlir.runtime.container` writes and checks them.
#ifndef RLX_RUNTIME_LIBRARY_CONTAINER_H
#define RLX_RUNTIME_LIBRARY_CONTAINER_H

#include "runtime/mapped_file.h"
#include "sha256.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rlx::runtime::library {

/// Whether a file that begins with these bytes says that it is a container.
bool isContainer(std::string_view start);

/// A container that is open for reading; never changes.
class Container {
public:
  struct Section {
    std::string name;
    uint64_t offset, bytes;
    Digest digest;
    bool isCode; // an artefact
  };

  /// Checks header and table. Errors, here and below, are ExecutionErrors that don't name the file:
  /// where it is cut off, damaged or of another version.
  explicit Container(std::shared_ptr<const MappedFile> file);

  const std::vector<Section> &sections() const { return table; }
  /// Throws where there is no such section.
  const Section &section(std::string_view name) const;
  /// Null where there is none.
  const Section *find(std::string_view name) const;
  /// A copy of a section's bytes, which has its digest.
  std::string read(const Section &section) const;
  /// Reads all of a section; throws where it doesn't have its digest.
  void check(const Section &section) const;

  const std::shared_ptr<const MappedFile> &file() const { return mapped; }

private:
  std::vector<Section> readTable() const;
  std::string_view content(const Section &section) const;

  std::shared_ptr<const MappedFile> mapped;
  std::vector<Section> table;
};

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_CONTAINER_H
