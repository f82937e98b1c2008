// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "elf_object.h"

#include "error.h"

#include <cstring>
#include <elf.h>

namespace rlx::runtime {
namespace {

// Newer than some headers.
constexpr uint32_t kTypeUnwind = 0x70000001; // SHT_X86_64_UNWIND

constexpr size_t kLongestName = 4096;

class Reader {
public:
  Reader(std::string_view bytes, Machine machine) : bytes(bytes), machine(machine) {}

  ElfObject read() {
    readHeader();
    readSections();
    readSymbols();
    readRelocations();
    return std::move(object);
  }

private:
  [[noreturn]] static void fail(const std::string &what) { throw ExecutionError(what); }

  template <typename Record> Record recordAt(uint64_t offset) const {
    Record record;
    std::memcpy(&record, bytes.data() + offset, sizeof(record));
    return record;
  }

  bool isInside(uint64_t offset, uint64_t size) const {
    return offset <= bytes.size() && size <= bytes.size() - offset;
  }

  std::string end() const { return "beyond its end at byte " + std::to_string(bytes.size()); }

  std::string sectionName(size_t number) const {
    return "section " + std::to_string(number) + " " + quoted(object.sections[number].name);
  }

  void readHeader();
  void readSections();
  void readSection(size_t number);
  ElfObject::Use useOf(size_t number) const;
  void readSymbols();
  ElfObject::Symbol readSymbol(size_t number, const Elf64_Sym &entry, std::string_view names) const;
  void readRelocations();
  void readRelocation(const Elf64_Shdr &table, size_t tableNumber, uint64_t number);

  std::string_view stringsOf(size_t section, const std::string &what) const;
  static std::string_view nameIn(std::string_view strings, uint32_t offset,
                                 const std::string &what);
  uint64_t countIn(const Elf64_Shdr &table, size_t number, uint64_t bytesOfEntry) const;

  std::string_view bytes;
  Machine machine;
  Elf64_Ehdr header{};
  std::vector<Elf64_Shdr> headers;
  size_t symbolTable = 0;
  ElfObject object;
};

void Reader::readHeader() {
  if (bytes.size() < sizeof(header))
    fail("it has " + std::to_string(bytes.size()) + " bytes, fewer than the " +
         std::to_string(sizeof(header)) + " of an ELF header");
  header = recordAt<Elf64_Ehdr>(0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    fail("it is not an ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    fail("it is ELF of class " + std::to_string(header.e_ident[EI_CLASS]) + " and data " +
         std::to_string(header.e_ident[EI_DATA]) + ", not of 64 bits (2), little-endian (1)");
  if (header.e_machine != uint16_t(machine))
    fail("it is for ELF machine " + std::to_string(header.e_machine) + ", this is machine " +
         std::to_string(uint16_t(machine)));
  if (header.e_type != ET_REL)
    fail("it is ELF type " + std::to_string(header.e_type) + ", not a relocatable object (type 1)");
  if (header.e_shentsize != sizeof(Elf64_Shdr))
    fail("its section headers have " + std::to_string(sizeof(Elf64_Shdr)) +
         " bytes each, but are said to have " + std::to_string(header.e_shentsize));
  const uint64_t size = uint64_t(header.e_shnum) * sizeof(Elf64_Shdr);
  if (header.e_shnum == 0 || !isInside(header.e_shoff, size))
    fail("its section table, " + std::to_string(header.e_shnum) + " entries at byte " +
         std::to_string(header.e_shoff) + ", is empty or lies " + end());
}

void Reader::readSections() {
  headers.reserve(header.e_shnum);
  for (size_t i = 0; i < header.e_shnum; ++i) {
    headers.push_back(recordAt<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr)));
    const Elf64_Shdr &own = headers.back();
    if (i != 0 && own.sh_type != SHT_NOBITS && !isInside(own.sh_offset, own.sh_size))
      fail("its section " + std::to_string(i) + ", " + std::to_string(own.sh_size) +
           " bytes at byte " + std::to_string(own.sh_offset) + ", lies " + end());
  }
  object.sections.resize(headers.size());
  std::string_view names = stringsOf(header.e_shstrndx, "the table of section names");
  for (size_t i = 1; i < headers.size(); ++i) {
    object.sections[i].name =
        nameIn(names, headers[i].sh_name, "the name of section " + std::to_string(i));
    readSection(i);
  }
}

void Reader::readSection(size_t number) {
  const Elf64_Shdr &own = headers[number];
  ElfObject::Section &section = object.sections[number];
  if (own.sh_type == SHT_SYMTAB) {
    if (symbolTable != 0)
      fail(sectionName(number) + " is a second symbol table, after section " +
           std::to_string(symbolTable));
    symbolTable = number;
  }
  section.use = useOf(number);
  if (section.use == ElfObject::Use::None)
    return;
  section.size = own.sh_size;
  section.alignment = own.sh_addralign == 0 ? 1 : own.sh_addralign;
  if ((section.alignment & (section.alignment - 1)) != 0 ||
      section.alignment > kMaxSectionAlignment)
    fail(sectionName(number) + " has the alignment " + std::to_string(section.alignment) +
         ", but it must be a power of two of at most " + std::to_string(kMaxSectionAlignment));
  if (own.sh_type != SHT_NOBITS)
    section.content = bytes.substr(own.sh_offset, own.sh_size);
}

/// What is done with a section. Unwind tables are left out: nothing unwinds through kernels.
ElfObject::Use Reader::useOf(size_t number) const {
  const Elf64_Shdr &own = headers[number];
  const std::string_view name = object.sections[number].name;
  if ((own.sh_flags & SHF_ALLOC) == 0 || own.sh_type == SHT_NOTE || own.sh_type == kTypeUnwind ||
      name == ".eh_frame")
    return ElfObject::Use::None;
  if ((own.sh_flags & SHF_TLS) != 0)
    fail(sectionName(number) + " is of thread-local storage, which compiled code can't have");
  const bool isArray = own.sh_type == SHT_INIT_ARRAY || own.sh_type == SHT_FINI_ARRAY ||
                       own.sh_type == SHT_PREINIT_ARRAY;
  const bool isNamed = name == ".init" || name == ".fini" || name == ".ctors" || name == ".dtors";
  if (isArray || isNamed)
    fail(sectionName(number) +
         " has functions that run when code is loaded or left, which compiled code can't have");
  if (own.sh_type != SHT_PROGBITS && own.sh_type != SHT_NOBITS)
    fail(sectionName(number) + " is to be loaded, but of type " + std::to_string(own.sh_type) +
         ", not 1 (bytes) or 8 (zeros)");
  if ((own.sh_flags & SHF_COMPRESSED) != 0)
    fail(sectionName(number) + " is to be loaded, but compressed");
  const bool isWritable = (own.sh_flags & SHF_WRITE) != 0;
  const bool isCode = (own.sh_flags & SHF_EXECINSTR) != 0;
  if (isWritable && isCode)
    fail(sectionName(number) + " is writable and executable at once");
  return isCode       ? ElfObject::Use::Code
         : isWritable ? ElfObject::Use::Data
                      : ElfObject::Use::Constants;
}

void Reader::readSymbols() {
  if (symbolTable == 0)
    return;
  const Elf64_Shdr &table = headers[symbolTable];
  const uint64_t count = countIn(table, symbolTable, sizeof(Elf64_Sym));
  std::string_view names = stringsOf(table.sh_link, "the table of symbol names");
  object.symbols.reserve(count);
  for (uint64_t i = 0; i < count; ++i)
    object.symbols.push_back(
        readSymbol(i, recordAt<Elf64_Sym>(table.sh_offset + i * sizeof(Elf64_Sym)), names));
}

ElfObject::Symbol Reader::readSymbol(size_t number, const Elf64_Sym &entry,
                                     std::string_view names) const {
  ElfObject::Symbol symbol;
  if (number == 0)
    return symbol;
  const std::string place = "symbol " + std::to_string(number);
  symbol.name = nameIn(names, entry.st_name, "the name of " + place);
  const std::string what = place + " " + quoted(symbol.name);
  const unsigned binding = ELF64_ST_BIND(entry.st_info), type = ELF64_ST_TYPE(entry.st_info);
  if (binding != STB_LOCAL && binding != STB_GLOBAL && binding != STB_WEAK)
    fail(what + " has the binding " + std::to_string(binding) + ", not 0 (local), 1 or 2 (weak)");
  if (type == STT_TLS)
    fail(what + " is of thread-local storage, which compiled code can't have");
  if (type == STT_GNU_IFUNC)
    fail(what + " is a function that chooses another one when code is loaded (type 10), which "
                "compiled code can't have");
  symbol.isGlobal = binding != STB_LOCAL;
  symbol.isWeak = binding == STB_WEAK;
  symbol.value = entry.st_value;
  symbol.size = entry.st_size;
  if (symbol.isGlobal && symbol.name.empty())
    fail(what + " is global, but has no name");
  if (entry.st_shndx == SHN_UNDEF)
    return symbol;
  if (entry.st_shndx == SHN_ABS) {
    symbol.place = ElfObject::Place::Absolute;
    return symbol;
  }
  if (entry.st_shndx == SHN_COMMON) {
    symbol.place = ElfObject::Place::Common;
    symbol.value = symbol.value == 0 ? 1 : symbol.value;
    if ((symbol.value & (symbol.value - 1)) != 0 || symbol.value > kMaxSectionAlignment)
      fail(what + " has the alignment " + std::to_string(symbol.value) +
           ", but it must be a power of two of at most " + std::to_string(kMaxSectionAlignment));
    return symbol;
  }
  if (entry.st_shndx >= object.sections.size())
    fail(what + " is in section " + std::to_string(entry.st_shndx) + ", but there are " +
         std::to_string(object.sections.size()));
  symbol.place = ElfObject::Place::Section;
  symbol.section = entry.st_shndx;
  const ElfObject::Section &section = object.sections[symbol.section];
  const bool isLoaded = section.use != ElfObject::Use::None;
  if (isLoaded && (symbol.value > section.size || symbol.size > section.size - symbol.value))
    fail(what + ", " + std::to_string(symbol.size) + " bytes at byte " +
         std::to_string(symbol.value) + ", lies beyond the " + std::to_string(section.size) +
         " bytes of " + sectionName(symbol.section));
  return symbol;
}

void Reader::readRelocations() {
  for (size_t i = 1; i < headers.size(); ++i) {
    const Elf64_Shdr &table = headers[i];
    if (table.sh_type != SHT_RELA && table.sh_type != SHT_REL)
      continue;
    if (table.sh_info == 0 || table.sh_info >= headers.size())
      fail(sectionName(i) + " has relocations of section " + std::to_string(table.sh_info) +
           ", but sections are 1 to " + std::to_string(headers.size() - 1));
    if (object.sections[table.sh_info].use == ElfObject::Use::None)
      continue;
    if (table.sh_type == SHT_REL)
      fail(sectionName(i) + " has relocations without addends (type 9), not with them (type 4)");
    if (table.sh_link != symbolTable)
      fail(sectionName(i) + " refers to the symbols of section " + std::to_string(table.sh_link) +
           ", but they are in section " + std::to_string(symbolTable));
    const uint64_t count = countIn(table, i, sizeof(Elf64_Rela));
    object.relocations.reserve(object.relocations.size() + count);
    for (uint64_t number = 0; number < count; ++number)
      readRelocation(table, i, number);
  }
}

void Reader::readRelocation(const Elf64_Shdr &table, size_t tableNumber, uint64_t number) {
  const auto entry = recordAt<Elf64_Rela>(table.sh_offset + number * sizeof(Elf64_Rela));
  const uint32_t type = ELF64_R_TYPE(entry.r_info);
  const uint64_t symbol = ELF64_R_SYM(entry.r_info);
  const ElfObject::Section &section = object.sections[table.sh_info];
  auto failHere = [&](const std::string &what) {
    fail("relocation " + std::to_string(number) + " of " + sectionName(tableNumber) + what);
  };
  if (isThreadLocal(machine, type))
    failHere(" (type " + std::to_string(type) +
             ") is of thread-local storage, which compiled code can't have");
  const RelocationType *known = findRelocationType(machine, type);
  if (known == nullptr)
    failHere(" has the type " + std::to_string(type) + ", which isn't known for machine " +
             std::to_string(uint16_t(machine)));
  if (entry.r_offset > section.size || known->bytes > section.size - entry.r_offset)
    failHere(" changes " + std::to_string(known->bytes) + " bytes at byte " +
             std::to_string(entry.r_offset) + ", but " + sectionName(table.sh_info) + " has " +
             std::to_string(section.size));
  if (known->operand == Operand::Nothing)
    return;
  if (section.content.empty())
    failHere(" changes " + sectionName(table.sh_info) + ", which has zeros alone");
  if (symbol >= object.symbols.size())
    failHere(" refers to symbol " + std::to_string(symbol) + ", but there are " +
             std::to_string(object.symbols.size()));
  object.relocations.push_back({table.sh_info, entry.r_offset, known, symbol, entry.r_addend});
}

std::string_view Reader::stringsOf(size_t section, const std::string &what) const {
  if (section == 0 || section >= headers.size() || headers[section].sh_type != SHT_STRTAB)
    fail(what + " is said to be in section " + std::to_string(section) +
         ", which isn't there or isn't one of names (type 3)");
  std::string_view strings = bytes.substr(headers[section].sh_offset, headers[section].sh_size);
  if (strings.empty() || strings.back() != '\0')
    fail(what + ", section " + std::to_string(section) + ", must end with a zero");
  return strings;
}

std::string_view Reader::nameIn(std::string_view strings, uint32_t offset,
                                const std::string &what) {
  if (offset >= strings.size())
    fail(what + " is at byte " + std::to_string(offset) + " of a table of " +
         std::to_string(strings.size()));
  // The table ends with a zero. Many symbols may share one long name, which each of them reads.
  const std::string_view rest = strings.substr(offset, kLongestName + 1);
  const size_t length = rest.find('\0');
  if (length == std::string_view::npos)
    fail(what + " has more than " + std::to_string(kLongestName) + " bytes");
  return rest.substr(0, length);
}

/// The entries of a table.
uint64_t Reader::countIn(const Elf64_Shdr &table, size_t number, uint64_t bytesOfEntry) const {
  if (table.sh_entsize != bytesOfEntry || table.sh_size % bytesOfEntry != 0)
    fail(sectionName(number) + " has entries of " + std::to_string(bytesOfEntry) +
         " bytes, but is said to have " + std::to_string(table.sh_size) + " bytes in entries of " +
         std::to_string(table.sh_entsize));
  return table.sh_size / bytesOfEntry;
}

} // namespace

std::string quoted(std::string_view name) {
  constexpr size_t kLongest = 80;
  std::string text = "'";
  for (char each : name.substr(0, kLongest))
    text += each >= ' ' && each <= '~' ? each : '?';
  return text + (name.size() > kLongest ? "…'" : "'");
}

ElfObject readElfObject(std::string_view bytes, Machine machine) {
  return Reader(bytes, machine).read();
}

} // namespace rlx::runtime
