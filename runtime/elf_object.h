// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads relocatable ELF objects of 64 bits, little-endian. Objects are somebody's data: every
// offset, index, size and alignment is checked before it is used.
#ifndef RLX_RUNTIME_ELF_OBJECT_H
#define RLX_RUNTIME_ELF_OBJECT_H

#include "relocations.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rlx::runtime {

/// Sections begin at multiples of at most so many bytes.
constexpr uint64_t kMaxSectionAlignment = 4096;

/// What is checked of an object. It refers to the object's bytes.
struct ElfObject {
  /// Where a section goes.
  enum class Use { None, Code, Constants, Data };

  struct Section {
    std::string_view name;
    Use use = Use::None;
    uint64_t size = 0;
    uint64_t alignment = 1;
    /// `size` bytes, or empty where they are zeros.
    std::string_view content;
  };

  /// Where a symbol is.
  enum class Place { Undefined, Section, Absolute, Common };

  struct Symbol {
    std::string_view name;
    Place place = Place::Undefined;
    bool isGlobal = false;
    bool isWeak = false;
    size_t section = 0;
    /// From the section's start; the address, or of a common symbol the alignment.
    uint64_t value = 0;
    uint64_t size = 0;
  };

  struct Relocation {
    size_t section; // one that is loaded
    uint64_t offset;
    const RelocationType *type;
    size_t symbol;
    int64_t addend;
  };

  std::vector<Section> sections;
  std::vector<Symbol> symbols;
  /// Of sections that are loaded.
  std::vector<Relocation> relocations;
};

/// Reads an object. Throws ExecutionError, which says what is wrong without naming the object.
ElfObject readElfObject(std::string_view bytes, Machine machine);

/// A name of an object, of any length and any bytes, as messages show it.
std::string quoted(std::string_view name);

} // namespace rlx::runtime

#endif // RLX_RUNTIME_ELF_OBJECT_H
