// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links relocatable objects with each other and with functions of the host program, into bytes that
// may be for any address and either machine.
#ifndef RLX_RUNTIME_LINKER_H
#define RLX_RUNTIME_LINKER_H

#include "elf_object.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rlx::runtime {

/// Segments begin at multiples of it: no page of any of the machines has more bytes.
constexpr uint64_t kSegmentAlignment = 65536;

/// Linked code has at most so many bytes, so that all of it is within reach of x86-64's
/// instructions.
constexpr uint64_t kMaxLinkedBytes = uint64_t(1) << 28;

/// Objects that fit each other, and where everything of them goes. The image has three segments,
/// in this order: code, which ends with stubs; constants, which end with slots; and data.
class Linker {
public:
  /// The address of a function of the host program, or nothing where it has none.
  using Resolver = std::function<std::optional<uint64_t>(std::string_view)>;

  struct Segment {
    uint64_t offset = 0, bytes = 0;
  };

  /// Where a symbol is in the image.
  struct Location {
    uint64_t offset = 0;
    ElfObject::Use use = ElfObject::Use::None;
    /// From there to the end of what it is in.
    uint64_t bytes = 0;
  };

  /// Reads the objects, whose bytes have to stay until the image is written, and decides what goes
  /// where. Throws ExecutionError, which names the object, where one is damaged or has what code
  /// can't have, two define one symbol, or a function is missing.
  Linker(Machine machine, const std::vector<std::string_view> &objects, const Resolver &resolver);

  /// Bytes of the image.
  uint64_t bytes() const { return imageBytes; }

  const Segment &code() const { return codeSegment; }
  const Segment &constants() const { return constantSegment; }
  const Segment &data() const { return dataSegment; }

  /// Writes the image.
  ///
  /// \param image zeros, as many as bytes() says.
  /// \param address where it will be, a multiple of kMaxSectionAlignment.
  ///
  /// Throws ExecutionError where a relocation doesn't fit.
  void write(std::byte *image, uint64_t address) const;

  /// Global symbols that the objects define, by name.
  const std::unordered_map<std::string, Location> &symbols() const { return defined; }

  /// Functions of the host program that the objects use, by name.
  const std::vector<std::string> &hostFunctions() const { return used; }

private:
  struct Definition;

  /// What a symbol stands for.
  struct Target {
    enum class Kind { None, Section, Common, Address } kind = Kind::None;
    /// Of a section: which one, of which object.
    size_t object = 0, section = 0;
    /// From the section's start, or the address.
    uint64_t value = 0;
    const Definition *common = nullptr;
  };

  /// What a global name stands for.
  struct Definition {
    int rank = 0; // of weak, common and strong ones
    Target target;
    /// Of a common symbol; `start` is in the image.
    uint64_t size = 0, alignment = 1, start = 0;
    bool isPlaced = false;
  };

  /// Numbers of a slot and a stub of a symbol; -1 where it has none.
  struct Detour {
    int32_t slot = -1, stub = -1;
  };

  struct Object {
    ElfObject elf;
    std::vector<Target> targets; // of symbols that relocations refer to
    std::vector<Detour> detours;
    std::vector<uint64_t> starts; // of sections, in the image
  };

  [[noreturn]] static void fail(size_t object, const std::string &what);
  void define(size_t number);
  void resolve(size_t number, const Resolver &resolver);
  Target resolveSymbol(size_t number, size_t symbol, const Resolver &resolver);
  void addDetour(Object &own, const ElfObject::Relocation &relocation);
  void place();
  uint64_t placeSections(ElfObject::Use use, uint64_t at);
  uint64_t placeCommon(uint64_t at);
  void listSymbols();
  /// Of what a target is in the image; it isn't one of kind Address.
  uint64_t offsetOf(const Target &target) const;
  uint64_t addressOf(const Target &target, uint64_t address) const;
  void writeDetours(const Object &own, std::byte *image, uint64_t address) const;
  void relocate(size_t number, std::byte *image, uint64_t address) const;

  Machine machine;
  std::vector<Object> objects;
  std::unordered_map<std::string_view, Definition> definitions;
  std::unordered_map<std::string_view, std::optional<uint64_t>> host;
  std::unordered_map<std::string, Location> defined;
  std::vector<std::string> used;
  Segment codeSegment, constantSegment, dataSegment;
  uint64_t imageBytes = 0;
  uint64_t stubsAt = 0, slotsAt = 0; // in the image
  int32_t stubCount = 0, slotCount = 0;
};

} // namespace rlx::runtime

#endif // RLX_RUNTIME_LINKER_H
