// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Types, formulas and fields are those of the psABI of x86-64 and of "ELF for the Arm 64-bit
// Architecture". Sums wrap, as addresses do.
#include "relocations.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace rlx::runtime {
namespace {

constexpr RelocationType kX86Types[] = {
    {0, "R_X86_64_NONE", Operand::Nothing, 0},
    {1, "R_X86_64_64", Operand::Symbol, 8},
    {2, "R_X86_64_PC32", Operand::Symbol, 4},
    {4, "R_X86_64_PLT32", Operand::Callee, 4},
    {9, "R_X86_64_GOTPCREL", Operand::Slot, 4},
    {10, "R_X86_64_32", Operand::Symbol, 4},
    {11, "R_X86_64_32S", Operand::Symbol, 4},
    {24, "R_X86_64_PC64", Operand::Symbol, 8},
    {41, "R_X86_64_GOTPCRELX", Operand::Slot, 4},
    {42, "R_X86_64_REX_GOTPCRELX", Operand::Slot, 4},
    {43, "R_X86_64_CODE_4_GOTPCRELX", Operand::Slot, 4},
};

constexpr RelocationType kArmTypes[] = {
    {0, "R_AARCH64_NONE", Operand::Nothing, 0},
    {257, "R_AARCH64_ABS64", Operand::Symbol, 8},
    {258, "R_AARCH64_ABS32", Operand::Symbol, 4},
    {259, "R_AARCH64_ABS16", Operand::Symbol, 2},
    {260, "R_AARCH64_PREL64", Operand::Symbol, 8},
    {261, "R_AARCH64_PREL32", Operand::Symbol, 4},
    {262, "R_AARCH64_PREL16", Operand::Symbol, 2},
    {263, "R_AARCH64_MOVW_UABS_G0", Operand::Symbol, 4},
    {264, "R_AARCH64_MOVW_UABS_G0_NC", Operand::Symbol, 4},
    {265, "R_AARCH64_MOVW_UABS_G1", Operand::Symbol, 4},
    {266, "R_AARCH64_MOVW_UABS_G1_NC", Operand::Symbol, 4},
    {267, "R_AARCH64_MOVW_UABS_G2", Operand::Symbol, 4},
    {268, "R_AARCH64_MOVW_UABS_G2_NC", Operand::Symbol, 4},
    {269, "R_AARCH64_MOVW_UABS_G3", Operand::Symbol, 4},
    {273, "R_AARCH64_LD_PREL_LO19", Operand::Symbol, 4},
    {274, "R_AARCH64_ADR_PREL_LO21", Operand::Symbol, 4},
    {275, "R_AARCH64_ADR_PREL_PG_HI21", Operand::Symbol, 4},
    {276, "R_AARCH64_ADR_PREL_PG_HI21_NC", Operand::Symbol, 4},
    {277, "R_AARCH64_ADD_ABS_LO12_NC", Operand::Symbol, 4},
    {278, "R_AARCH64_LDST8_ABS_LO12_NC", Operand::Symbol, 4},
    {279, "R_AARCH64_TSTBR14", Operand::Symbol, 4},
    {280, "R_AARCH64_CONDBR19", Operand::Symbol, 4},
    {282, "R_AARCH64_JUMP26", Operand::Callee, 4},
    {283, "R_AARCH64_CALL26", Operand::Callee, 4},
    {284, "R_AARCH64_LDST16_ABS_LO12_NC", Operand::Symbol, 4},
    {285, "R_AARCH64_LDST32_ABS_LO12_NC", Operand::Symbol, 4},
    {286, "R_AARCH64_LDST64_ABS_LO12_NC", Operand::Symbol, 4},
    {299, "R_AARCH64_LDST128_ABS_LO12_NC", Operand::Symbol, 4},
    {309, "R_AARCH64_GOT_LD_PREL19", Operand::Slot, 4},
    {311, "R_AARCH64_ADR_GOT_PAGE", Operand::Slot, 4},
    {312, "R_AARCH64_LD64_GOT_LO12_NC", Operand::Slot, 4},
    {314, "R_AARCH64_PLT32", Operand::Callee, 4},
};

template <size_t count>
const RelocationType *find(const RelocationType (&types)[count], uint32_t number) {
  auto found = std::lower_bound(
      std::begin(types), std::end(types), number,
      [](const RelocationType &type, uint32_t wanted) { return type.number < wanted; });
  return found != std::end(types) && found->number == number ? found : nullptr;
}

//===----------------------------------------------------------------------===//
// Fields
//===----------------------------------------------------------------------===//

template <typename Word> Word readWord(const std::byte *place) {
  Word word;
  std::memcpy(&word, place, sizeof(word));
  return word;
}

template <typename Word> void writeWord(std::byte *place, uint64_t value) {
  Word word = Word(value);
  std::memcpy(place, &word, sizeof(word));
}

/// Replaces `width` bits of an instruction from bit `low` on by the lowest ones of the value.
void setField(std::byte *place, unsigned low, unsigned width, uint64_t value) {
  const uint32_t mask = ((uint32_t(1) << width) - 1) << low;
  const uint32_t word = readWord<uint32_t>(place);
  writeWord<uint32_t>(place, (word & ~mask) | ((uint32_t(value) << low) & mask));
}

std::string hexadecimal(uint64_t value) {
  std::string text;
  do {
    text.insert(text.begin(), "0123456789abcdef"[value & 15]);
    value >>= 4;
  } while (value != 0);
  return "0x" + text;
}

std::string outOf(const std::string &range, uint64_t value) {
  return "its value lies in " + range + ", but is " + std::to_string(int64_t(value)) + " (" +
         hexadecimal(value) + ")";
}

/// "" where the value, as a signed number, has at most so many bits.
std::string checkSigned(uint64_t value, unsigned bits) {
  const int64_t number = int64_t(value), limit = int64_t(1) << (bits - 1);
  if (number >= -limit && number < limit)
    return "";
  const std::string power = "2^" + std::to_string(bits - 1);
  return outOf("[-" + power + ", " + power + ")", value);
}

/// "" where the value, as an unsigned number, has at most so many bits.
std::string checkUnsigned(uint64_t value, unsigned bits) {
  if (value >> bits == 0)
    return "";
  return outOf("[0, 2^" + std::to_string(bits) + ")", value);
}

/// "" where the value has so many bits, be it signed or not.
std::string checkEither(uint64_t value, unsigned bits) {
  const int64_t number = int64_t(value);
  if (number >= -(int64_t(1) << (bits - 1)) && number < int64_t(1) << bits)
    return "";
  return outOf("[-2^" + std::to_string(bits - 1) + ", 2^" + std::to_string(bits) + ")", value);
}

/// "" where the value is a multiple of 2^bits.
std::string checkMultiple(uint64_t value, unsigned bits) {
  if ((value & ((uint64_t(1) << bits) - 1)) == 0)
    return "";
  return "its value is a multiple of " + std::to_string(1 << bits) + ", but is " +
         hexadecimal(value);
}

//===----------------------------------------------------------------------===//
// x86-64
//===----------------------------------------------------------------------===//

std::string applyX86(uint32_t type, std::byte *place, uint64_t at, uint64_t sum) {
  std::string problem;
  switch (type) {
  case 1: // R_X86_64_64
    writeWord<uint64_t>(place, sum);
    return "";
  case 24: // R_X86_64_PC64
    writeWord<uint64_t>(place, sum - at);
    return "";
  case 10: // R_X86_64_32: extended with zeros
    problem = checkUnsigned(sum, 32);
    writeWord<uint32_t>(place, sum);
    return problem;
  case 11: // R_X86_64_32S: extended with its sign
    problem = checkSigned(sum, 32);
    writeWord<uint32_t>(place, sum);
    return problem;
  default: // relative to the place
    problem = checkSigned(sum - at, 32);
    writeWord<uint32_t>(place, sum - at);
    return problem;
  }
}

//===----------------------------------------------------------------------===//
// AArch64
//===----------------------------------------------------------------------===//

uint64_t page(uint64_t address) { return address & ~uint64_t(0xfff); }

/// The field of a load or store: the part of an address within its page, in units of its size.
std::string setLoad(std::byte *place, uint64_t sum, unsigned bits) {
  const uint64_t low = sum & 0xfff;
  setField(place, 10, 12 - bits, low >> bits);
  // The bits of the field that the scaled part doesn't have.
  setField(place, 22 - bits, bits, 0);
  return checkMultiple(low, bits);
}

/// A distance in instructions, of so many bits, in a field from bit `low` on.
std::string setBranch(std::byte *place, uint64_t distance, unsigned low, unsigned bits) {
  setField(place, low, bits, distance >> 2);
  std::string problem = checkSigned(distance, bits + 2);
  return problem.empty() ? checkMultiple(distance, 2) : problem;
}

/// The immediate of ADR and ADRP, whose lowest two bits lie elsewhere.
void setAdr(std::byte *place, uint64_t value) {
  setField(place, 29, 2, value);
  setField(place, 5, 19, value >> 2);
}

/// 16 of the bits of a value, for MOVZ and MOVK.
std::string setMove(std::byte *place, uint64_t value, unsigned group, bool isChecked) {
  setField(place, 5, 16, value >> (16 * group));
  return isChecked ? checkUnsigned(value, 16 * (group + 1)) : "";
}

std::string applyArmData(uint32_t type, std::byte *place, uint64_t at, uint64_t sum) {
  switch (type) {
  case 257: // R_AARCH64_ABS64
    writeWord<uint64_t>(place, sum);
    return "";
  case 258: // R_AARCH64_ABS32
    writeWord<uint32_t>(place, sum);
    return checkEither(sum, 32);
  case 259: // R_AARCH64_ABS16
    writeWord<uint16_t>(place, sum);
    return checkEither(sum, 16);
  case 260: // R_AARCH64_PREL64
    writeWord<uint64_t>(place, sum - at);
    return "";
  case 261: // R_AARCH64_PREL32
    writeWord<uint32_t>(place, sum - at);
    return checkEither(sum - at, 32);
  case 262: // R_AARCH64_PREL16
    writeWord<uint16_t>(place, sum - at);
    return checkEither(sum - at, 16);
  default: // R_AARCH64_PLT32
    writeWord<uint32_t>(place, sum - at);
    return checkSigned(sum - at, 32);
  }
}

std::string applyArm(uint32_t type, std::byte *place, uint64_t at, uint64_t sum) {
  const uint64_t distance = sum - at, pages = page(sum) - page(at);
  switch (type) {
  case 263: // R_AARCH64_MOVW_UABS_G0
    return setMove(place, sum, 0, true);
  case 264: // R_AARCH64_MOVW_UABS_G0_NC
    return setMove(place, sum, 0, false);
  case 265: // R_AARCH64_MOVW_UABS_G1
    return setMove(place, sum, 1, true);
  case 266: // R_AARCH64_MOVW_UABS_G1_NC
    return setMove(place, sum, 1, false);
  case 267: // R_AARCH64_MOVW_UABS_G2
    return setMove(place, sum, 2, true);
  case 268: // R_AARCH64_MOVW_UABS_G2_NC
    return setMove(place, sum, 2, false);
  case 269: // R_AARCH64_MOVW_UABS_G3
    return setMove(place, sum, 3, false);
  case 273: // R_AARCH64_LD_PREL_LO19
  case 280: // R_AARCH64_CONDBR19
  case 309: // R_AARCH64_GOT_LD_PREL19
    return setBranch(place, distance, 5, 19);
  case 279: // R_AARCH64_TSTBR14
    return setBranch(place, distance, 5, 14);
  case 282: // R_AARCH64_JUMP26
  case 283: // R_AARCH64_CALL26
    return setBranch(place, distance, 0, 26);
  case 274: // R_AARCH64_ADR_PREL_LO21
    setAdr(place, distance);
    return checkSigned(distance, 21);
  case 275: // R_AARCH64_ADR_PREL_PG_HI21
  case 311: // R_AARCH64_ADR_GOT_PAGE
    setAdr(place, pages >> 12);
    return checkSigned(pages, 33);
  case 276: // R_AARCH64_ADR_PREL_PG_HI21_NC
    setAdr(place, pages >> 12);
    return "";
  case 277: // R_AARCH64_ADD_ABS_LO12_NC
  case 278: // R_AARCH64_LDST8_ABS_LO12_NC
    return setLoad(place, sum, 0);
  case 284: // R_AARCH64_LDST16_ABS_LO12_NC
    return setLoad(place, sum, 1);
  case 285: // R_AARCH64_LDST32_ABS_LO12_NC
    return setLoad(place, sum, 2);
  case 286: // R_AARCH64_LDST64_ABS_LO12_NC
  case 312: // R_AARCH64_LD64_GOT_LO12_NC
    return setLoad(place, sum, 3);
  case 299: // R_AARCH64_LDST128_ABS_LO12_NC
    return setLoad(place, sum, 4);
  default:
    return applyArmData(type, place, at, sum);
  }
}

} // namespace

bool isMachine(uint16_t number) {
  return number == uint16_t(Machine::X86_64) || number == uint16_t(Machine::AArch64);
}

const RelocationType *findRelocationType(Machine machine, uint32_t number) {
  return machine == Machine::X86_64 ? find(kX86Types, number) : find(kArmTypes, number);
}

bool isThreadLocal(Machine machine, uint32_t number) {
  if (machine == Machine::AArch64) // those of objects, and those of what the linker makes
    return (number >= 512 && number < 1024) || (number >= 1028 && number <= 1031);
  constexpr uint32_t x86[] = {16, 17, 18, 19, 20, 21, 22, 23, 34, 35, 36, 44, 45, 47, 48, 50, 51};
  return std::find(std::begin(x86), std::end(x86), number) != std::end(x86);
}

std::string applyRelocation(Machine machine, const RelocationType &type, std::byte *place,
                            uint64_t at, uint64_t target, int64_t addend) {
  if (type.operand == Operand::Nothing)
    return "";
  if (machine == Machine::X86_64)
    return applyX86(type.number, place, at, target + uint64_t(addend));
  if (type.operand == Operand::Slot && addend != 0) // the slot would have to hold another address
    return "its addend is 0, but is " + std::to_string(addend);
  return applyArm(type.number, place, at, target + uint64_t(addend));
}

void writeSlot(std::byte *place, uint64_t address) { writeWord<uint64_t>(place, address); }

void writeStub(Machine machine, std::byte *place, uint64_t at, uint64_t slot) {
  if (machine == Machine::X86_64) {
    const uint8_t code[kStubBytes] = {
        0xff, 0x25, 0,    0,    0,    0,                            // jmp *slot(%rip)
        0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, // int3
    };
    std::memcpy(place, code, sizeof(code));
    applyX86(9, place + 2, at + 2, slot - 4);
    return;
  }
  const uint32_t code[kStubBytes / 4] = {
      0x90000010, // adrp x16, slot
      0xf9400210, // ldr x16, [x16, #:lo12:slot]
      0xd61f0200, // br x16
      0xd4200000, // brk #0
  };
  std::memcpy(place, code, sizeof(code));
  applyArm(311, place, at, slot);
  applyArm(312, place + 4, at + 4, slot);
}

} // namespace rlx::runtime
