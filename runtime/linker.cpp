// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "linker.h"

#include "error.h"

#include <algorithm>

namespace rlx::runtime {
namespace {

constexpr uint64_t kSlotBytes = 8;

uint64_t alignedTo(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

/// `at` after so many bytes more; throws where that is more than code may have.
uint64_t advance(uint64_t at, uint64_t bytes) {
  if (bytes > kMaxLinkedBytes || at > kMaxLinkedBytes - bytes)
    throw ExecutionError("the objects cannot be loaded: they need " + std::to_string(at) +
                         " bytes and " + std::to_string(bytes) + " more, but code may have " +
                         std::to_string(kMaxLinkedBytes));
  return at + bytes;
}

std::string listed(const std::vector<std::string_view> &names) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i)
    text += (i == 0 ? "" : ", ") + quoted(names[i]);
  return names.size() <= kMost ? text
                               : text + " and " + std::to_string(names.size() - kMost) + " more";
}

/// Strong definitions win, then common symbols, then weak ones; of equals, the first one.
enum Rank { kWeak = 1, kCommon, kStrong };

Rank rankOf(const ElfObject::Symbol &symbol) {
  if (symbol.place == ElfObject::Place::Common)
    return kCommon;
  return symbol.isWeak ? kWeak : kStrong;
}

} // namespace

void Linker::fail(size_t object, const std::string &what) {
  throw ExecutionError("object " + std::to_string(object) + " cannot be loaded: " + what);
}

Linker::Linker(Machine machine, const std::vector<std::string_view> &given,
               const Resolver &resolver)
    : machine(machine) {
  objects.resize(given.size());
  for (size_t i = 0; i < objects.size(); ++i) {
    try {
      objects[i].elf = readElfObject(given[i], machine);
    } catch (const ExecutionError &error) {
      fail(i, error.what());
    }
    define(i);
  }
  for (size_t i = 0; i < objects.size(); ++i)
    resolve(i, resolver);
  place();
  listSymbols();
}

//===----------------------------------------------------------------------===//
// Symbols
//===----------------------------------------------------------------------===//

/// Notes what global names stand for.
void Linker::define(size_t number) {
  for (const ElfObject::Symbol &symbol : objects[number].elf.symbols) {
    if (!symbol.isGlobal || symbol.place == ElfObject::Place::Undefined)
      continue;
    const Rank rank = rankOf(symbol);
    Definition &known = definitions[symbol.name];
    if (rank == kStrong && known.rank == kStrong)
      fail(number, "duplicate definition of symbol " + quoted(symbol.name) + ", which object " +
                       std::to_string(known.target.object) + " has, too");
    if (rank == kCommon && known.rank == kCommon) { // one memory for both
      known.size = std::max(known.size, symbol.size);
      known.alignment = std::max(known.alignment, symbol.value);
    }
    if (rank <= known.rank)
      continue;
    known = {};
    known.rank = rank;
    known.target = {Target::Kind::Section, number, symbol.section, symbol.value, nullptr};
    if (rank == kCommon) {
      known.target = {Target::Kind::Common, number, 0, 0, &known};
      known.size = symbol.size;
      known.alignment = symbol.value;
    } else if (symbol.place == ElfObject::Place::Absolute) {
      known.target.kind = Target::Kind::Address;
    }
  }
}

/// Finds what the relocations of an object refer to, and the detours that they take.
void Linker::resolve(size_t number, const Resolver &resolver) {
  Object &own = objects[number];
  own.targets.resize(own.elf.symbols.size());
  own.detours.resize(own.elf.symbols.size());
  std::vector<std::string_view> missing;
  std::vector<bool> isAsked(own.elf.symbols.size());
  for (const ElfObject::Relocation &relocation : own.elf.relocations) {
    if (!isAsked[relocation.symbol]) {
      isAsked[relocation.symbol] = true;
      own.targets[relocation.symbol] = resolveSymbol(number, relocation.symbol, resolver);
      if (own.targets[relocation.symbol].kind == Target::Kind::None)
        missing.push_back(own.elf.symbols[relocation.symbol].name);
    }
    addDetour(own, relocation);
  }
  if (!missing.empty())
    fail(number, "it uses " + listed(missing) +
                     ", which no object defines and which compiled code may not call");
}

/// What a symbol of an object stands for; of kind None where nobody knows.
Linker::Target Linker::resolveSymbol(size_t number, size_t index, const Resolver &resolver) {
  const ElfObject &elf = objects[number].elf;
  const ElfObject::Symbol &symbol = elf.symbols[index];
  auto checked = [&](const Target &target) {
    const bool isSection = target.kind == Target::Kind::Section;
    if (isSection &&
        objects[target.object].elf.sections[target.section].use == ElfObject::Use::None)
      fail(number, "it uses symbol " + quoted(symbol.name) + " of section " +
                       std::to_string(target.section) + " of object " +
                       std::to_string(target.object) + ", which isn't loaded");
    return target;
  };
  if (!symbol.isGlobal) {
    if (symbol.place == ElfObject::Place::Section)
      return checked({Target::Kind::Section, number, symbol.section, symbol.value, nullptr});
    // The symbol of number 0 stands for the address 0.
    if (symbol.place == ElfObject::Place::Absolute || index == 0)
      return {Target::Kind::Address, number, 0, symbol.value, nullptr};
    return {};
  }
  if (auto found = definitions.find(symbol.name); found != definitions.end())
    return checked(found->second.target);
  auto [entry, isNew] = host.emplace(symbol.name, std::nullopt);
  if (isNew && (entry->second = resolver(symbol.name)))
    used.emplace_back(symbol.name);
  if (entry->second || symbol.isWeak) // a weak one needn't be there
    return {Target::Kind::Address, number, 0, entry->second.value_or(0), nullptr};
  return {};
}

/// Gives the symbol of a relocation a slot or a stub where that needs one.
void Linker::addDetour(Object &own, const ElfObject::Relocation &relocation) {
  Detour &detour = own.detours[relocation.symbol];
  // What isn't in the image may be too far away for an instruction.
  const bool isCall = relocation.type->operand == Operand::Callee &&
                      own.targets[relocation.symbol].kind == Target::Kind::Address;
  if ((isCall || relocation.type->operand == Operand::Slot) && detour.slot < 0)
    detour.slot = slotCount++;
  if (isCall && detour.stub < 0)
    detour.stub = stubCount++;
}

/// Lists what lookups find.
void Linker::listSymbols() {
  for (const auto &[name, definition] : definitions) {
    const Target &target = definition.target;
    if (target.kind == Target::Kind::Common) {
      defined.emplace(name, Location{definition.start, ElfObject::Use::Data, definition.size});
    } else if (target.kind == Target::Kind::Section) {
      const ElfObject::Section &section = objects[target.object].elf.sections[target.section];
      if (section.use != ElfObject::Use::None)
        defined.emplace(name, Location{offsetOf(target), section.use, section.size - target.value});
    }
  }
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

void Linker::place() {
  uint64_t at = placeSections(ElfObject::Use::Code, 0);
  stubsAt = alignedTo(at, kStubBytes);
  codeSegment = {0, advance(stubsAt, uint64_t(stubCount) * kStubBytes)};

  const uint64_t constantsAt = alignedTo(codeSegment.bytes, kSegmentAlignment);
  at = placeSections(ElfObject::Use::Constants, constantsAt);
  slotsAt = alignedTo(at, kSlotBytes);
  at = advance(slotsAt, uint64_t(slotCount) * kSlotBytes);
  constantSegment = {constantsAt, at - constantsAt};

  const uint64_t dataAt = alignedTo(at, kSegmentAlignment);
  at = placeCommon(placeSections(ElfObject::Use::Data, dataAt));
  dataSegment = {dataAt, at - dataAt};
  imageBytes = at;
}

/// Gives the sections of a use, in their order, places from `at` on; returns where they end.
uint64_t Linker::placeSections(ElfObject::Use use, uint64_t at) {
  for (Object &own : objects) {
    own.starts.resize(own.elf.sections.size());
    for (size_t i = 0; i < own.elf.sections.size(); ++i) {
      const ElfObject::Section &section = own.elf.sections[i];
      if (section.use != use)
        continue;
      own.starts[i] = alignedTo(at, section.alignment);
      at = advance(own.starts[i], section.size);
    }
  }
  return at;
}

/// The same for common symbols.
uint64_t Linker::placeCommon(uint64_t at) {
  for (const Object &own : objects) {
    for (const ElfObject::Symbol &symbol : own.elf.symbols) {
      if (symbol.place != ElfObject::Place::Common)
        continue;
      Definition &definition = definitions[symbol.name];
      if (definition.rank != kCommon || definition.isPlaced)
        continue;
      definition.start = alignedTo(at, definition.alignment);
      definition.isPlaced = true;
      at = advance(definition.start, definition.size);
    }
  }
  return at;
}

uint64_t Linker::offsetOf(const Target &target) const {
  if (target.kind == Target::Kind::Common)
    return target.common->start;
  return objects[target.object].starts[target.section] + target.value;
}

uint64_t Linker::addressOf(const Target &target, uint64_t address) const {
  return target.kind == Target::Kind::Address ? target.value : address + offsetOf(target);
}

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

void Linker::write(std::byte *image, uint64_t address) const {
  for (const Object &own : objects)
    for (size_t i = 0; i < own.elf.sections.size(); ++i) {
      const std::string_view content = own.elf.sections[i].content;
      std::copy_n(reinterpret_cast<const std::byte *>(content.data()), content.size(),
                  image + own.starts[i]);
    }
  for (size_t i = 0; i < objects.size(); ++i) {
    writeDetours(objects[i], image, address);
    relocate(i, image, address);
  }
}

/// Writes the slots and stubs of an object's symbols.
void Linker::writeDetours(const Object &own, std::byte *image, uint64_t address) const {
  for (size_t i = 0; i < own.detours.size(); ++i) {
    const Detour &detour = own.detours[i];
    if (detour.slot < 0)
      continue;
    const uint64_t slot = slotsAt + uint64_t(detour.slot) * kSlotBytes;
    writeSlot(image + slot, addressOf(own.targets[i], address));
    if (detour.stub < 0)
      continue;
    const uint64_t stub = stubsAt + uint64_t(detour.stub) * kStubBytes;
    writeStub(machine, image + stub, address + stub, address + slot);
  }
}

void Linker::relocate(size_t number, std::byte *image, uint64_t address) const {
  const Object &own = objects[number];
  for (const ElfObject::Relocation &relocation : own.elf.relocations) {
    const Detour &detour = own.detours[relocation.symbol];
    uint64_t target = addressOf(own.targets[relocation.symbol], address);
    if (relocation.type->operand == Operand::Slot)
      target = address + slotsAt + uint64_t(detour.slot) * kSlotBytes;
    else if (relocation.type->operand == Operand::Callee && detour.stub >= 0)
      target = address + stubsAt + uint64_t(detour.stub) * kStubBytes;
    const uint64_t at = own.starts[relocation.section] + relocation.offset;
    const std::string problem = applyRelocation(machine, *relocation.type, image + at, address + at,
                                                target, relocation.addend);
    if (problem.empty())
      continue;
    const ElfObject::Section &section = own.elf.sections[relocation.section];
    fail(number, std::string(relocation.type->name) + " at byte " +
                     std::to_string(relocation.offset) + " of section " + quoted(section.name) +
                     ", against symbol " + std::to_string(relocation.symbol) + " " +
                     quoted(own.elf.symbols[relocation.symbol].name) + ", doesn't fit: " + problem);
  }
}

} // namespace rlx::runtime
