// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What relocations of ELF objects mean on x86-64 and AArch64: arithmetic on bytes and addresses,
// which is the same on every machine that it is done on.
#ifndef RLX_RUNTIME_RELOCATIONS_H
#define RLX_RUNTIME_RELOCATIONS_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace rlx::runtime {

/// ELF's number of a machine.
enum class Machine : uint16_t { X86_64 = 62, AArch64 = 183 };

/// The machine that this process runs on.
#if defined(__x86_64__)
constexpr Machine kMachine = Machine::X86_64;
#elif defined(__aarch64__)
constexpr Machine kMachine = Machine::AArch64;
#else
#error "rlx_mlir runs on x86-64 and AArch64"
#endif

/// Whether it is one of them.
bool isMachine(uint16_t number);

/// Whose address a relocation is made of.
enum class Operand {
  Nothing, // there is nothing to do
  Symbol,  // the symbol's
  Callee,  // the symbol's, or that of a stub that jumps to it
  Slot,    // that of a slot of 8 bytes that holds the symbol's
};

/// A type of relocations that is known.
struct RelocationType {
  uint32_t number;
  const char *name;
  Operand operand;
  uint8_t bytes; // that it changes
};

/// The type of a number, or null where it isn't known.
const RelocationType *findRelocationType(Machine machine, uint32_t number);

/// Whether the number is that of a relocation of thread-local storage.
bool isThreadLocal(Machine machine, uint32_t number);

/// Changes the bytes of a relocation.
///
/// \param type a type of this machine.
/// \param place what it changes, as many bytes as the type says.
/// \param at where these bytes will be.
/// \param target the address of its operand.
/// \param addend what is added to that.
/// \returns what doesn't fit, with the rule and the value, or "".
std::string applyRelocation(Machine machine, const RelocationType &type, std::byte *place,
                            uint64_t at, uint64_t target, int64_t addend);

/// Bytes of a stub.
constexpr size_t kStubBytes = 16;

/// Writes the 8 bytes of a slot, which holds an address.
void writeSlot(std::byte *place, uint64_t address);

/// Writes a stub, which jumps to the address in a slot.
///
/// \param place kStubBytes.
/// \param at where they will be.
/// \param slot where the slot will be, within 2 GiB.
void writeStub(Machine machine, std::byte *place, uint64_t at, uint64_t slot);

} // namespace rlx::runtime

#endif // RLX_RUNTIME_RELOCATIONS_H
