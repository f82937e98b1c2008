// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "container.h"

#include "bytes.h"
#include "runtime/error.h"
#include "runtime/utf8.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rlx::runtime::library {
namespace {

constexpr std::string_view kMagic{"RLXBNDL\0", 8};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kAlignment = 4096;
constexpr size_t kDigested = 48, kHeader = kDigested + sizeof(Digest), kEntry = 128, kName = 64;
/// The table's bytes: Python's reader has the same bound by default.
constexpr uint64_t kMostTable = uint64_t(256) << 20;

Digest digestAt(std::string_view bytes, size_t at) { return numberAt<Digest>(bytes, at); }

bool isZero(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte == 0; });
}

[[noreturn]] void fail(const std::string &problem) { throw ExecutionError(problem); }

std::string text(uint64_t number) { return std::to_string(number); }

/// An entry of the table, checked by itself.
Container::Section readEntry(size_t number, std::string_view entry, uint64_t fileBytes) {
  const std::string_view raw = entry.substr(0, kName);
  const std::string_view name = raw.substr(0, raw.find('\0'));
  if (name.empty() || name.size() == kName || !isZero(raw.substr(name.size())) ||
      invalidUtf8(name) != name.size())
    fail("entry " + text(number) +
         " of the table: its name must have 1 to 63 bytes of UTF-8, and zeros up to 64");
  const std::string where = "section '" + std::string(name) + "': ";
  const auto kind = numberAt<uint32_t>(entry, 112);
  if (kind > 1)
    fail(where + "its kind is one of 0, 1, but is " + text(kind));
  if (!isZero(entry.substr(116)))
    fail(where + "flags and reserved bytes must be zero");
  const auto offset = numberAt<uint64_t>(entry, 64), bytes = numberAt<uint64_t>(entry, 72);
  if (offset % kAlignment != 0)
    fail(where + "it begins at a multiple of " + text(kAlignment) + ", but is said to be at byte " +
         text(offset));
  if (offset > fileBytes || bytes > fileBytes - offset)
    fail(where + "its " + text(bytes) + " bytes at byte " + text(offset) +
         " lie beyond the file's end at byte " + text(fileBytes));
  return {std::string(name), offset, bytes, digestAt(entry, 80), kind == 1};
}

/// Throws where sections, header and table share bytes.
void checkApart(const std::vector<Container::Section> &sections, uint64_t tableAt,
                uint64_t tableBytes) {
  struct Span {
    uint64_t begin, end;
    std::string name;
  };
  std::vector<Span> spans = {{0, kHeader, "the header"},
                             {tableAt, tableAt + tableBytes, "the table"}};
  for (const Container::Section &own : sections)
    spans.push_back({own.offset, own.offset + own.bytes, "section '" + own.name + "'"});
  spans.erase(std::remove_if(spans.begin(), spans.end(),
                             [](const Span &own) { return own.begin == own.end; }),
              spans.end());
  std::sort(spans.begin(), spans.end(),
            [](const Span &one, const Span &other) { return one.begin < other.begin; });
  for (size_t i = 1; i < spans.size(); ++i)
    if (spans[i].begin < spans[i - 1].end)
      fail(spans[i - 1].name + " [" + text(spans[i - 1].begin) + ", " + text(spans[i - 1].end) +
           ") and " + spans[i].name + " [" + text(spans[i].begin) + ", " + text(spans[i].end) +
           ") overlap, but sections lie apart");
}

void compare(const Container::Section &section, const Digest &found) {
  if (found != section.digest)
    fail("section '" + section.name + "' has the digest " + shortDigest(found) +
         "…, but the table says " + shortDigest(section.digest) + "…: the file is damaged");
}

} // namespace

bool isContainer(std::string_view start) { return start.substr(0, kMagic.size()) == kMagic; }

Container::Container(std::shared_ptr<const MappedFile> file)
    : mapped(std::move(file)), table(readTable()) {}

std::vector<Container::Section> Container::readTable() const {
  const std::string_view bytes = mapped->text();
  if (!isContainer(bytes))
    fail("not a container: it doesn't start with 'RLXBNDL'");
  if (bytes.size() < kHeader)
    fail("a container has at least " + text(kHeader) + " bytes, but this one has " +
         text(bytes.size()) + ": it is cut off");
  if (const auto version = numberAt<uint32_t>(bytes, 8); version != kVersion)
    fail("not a container of version " + text(kVersion) + ", but of " + text(version) +
         ": make it again");
  const auto count = numberAt<uint32_t>(bytes, 12);
  const auto tableAt = numberAt<uint64_t>(bytes, 16), said = numberAt<uint64_t>(bytes, 24);
  if (said != bytes.size())
    fail("the file has " + text(bytes.size()) + " bytes, but its header says " + text(said) + ": " +
         (bytes.size() < said ? "it is cut off" : "something was appended"));
  const uint64_t tableBytes = uint64_t(count) * kEntry;
  if (tableBytes > bytes.size() || tableAt < kHeader || tableAt > bytes.size() - tableBytes)
    fail("the table of " + text(count) + " sections has " + text(tableBytes) +
         " bytes and lies between the header's " + text(kHeader) + " and the file's " +
         text(bytes.size()) + ", but it is said to be at byte " + text(tableAt));
  if (tableBytes > kMostTable)
    fail("the table has " + text(tableBytes) + " bytes, but may have " + text(kMostTable));
  // A copy: what was checked can't change any more, whatever becomes of the file.
  const std::string entries(bytes.substr(tableAt, tableBytes));
  if (const Digest found = sha256({bytes.substr(0, kDigested), entries});
      found != digestAt(bytes, kDigested))
    fail("header and table have the digest " + shortDigest(found) + "…, but the header says " +
         shortDigest(digestAt(bytes, kDigested)) + "…: the file is damaged");
  if (!isZero(bytes.substr(32, 16)))
    fail("the header's reserved bytes must be zero in version " + text(kVersion));
  std::vector<Section> sections;
  std::vector<std::string_view> names;
  for (size_t i = 0; i < count; ++i)
    sections.push_back(
        readEntry(i, std::string_view(entries).substr(i * kEntry, kEntry), bytes.size()));
  for (const Section &own : sections)
    names.push_back(own.name);
  std::sort(names.begin(), names.end());
  if (auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    fail("there are two sections '" + std::string(*twice) + "'");
  checkApart(sections, tableAt, tableBytes);
  return sections;
}

const Container::Section *Container::find(std::string_view name) const {
  for (const Section &own : table)
    if (own.name == name)
      return &own;
  return nullptr;
}

const Container::Section &Container::section(std::string_view name) const {
  if (const Section *found = find(name))
    return *found;
  fail("there is no section '" + std::string(name) + "'");
}

std::string_view Container::content(const Section &section) const {
  return mapped->text().substr(section.offset, section.bytes);
}

std::string Container::read(const Section &section) const {
  std::string bytes(content(section));
  compare(section, sha256({bytes}));
  return bytes;
}

void Container::check(const Section &section) const {
  compare(section, sha256({content(section)}));
}

} // namespace rlx::runtime::library
