// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Characters of texts.
#ifndef RLX_RUNTIME_UTF8_H
#define RLX_RUNTIME_UTF8_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rlx::runtime {

/// Bytes of the character that begins at a byte, from 1 to 4, and which one it is; 0 where there is
/// none, or it isn't written as Unicode has it.
inline size_t readUtf8(std::string_view text, size_t at, uint32_t &code) {
  const auto byte = [&](size_t i) { return uint32_t(uint8_t(text[i])); };
  const uint32_t first = byte(at);
  if (first < 0x80) {
    code = first;
    return 1;
  }
  const size_t count = first < 0xc2   ? 0
                       : first < 0xe0 ? 2
                       : first < 0xf0 ? 3
                       : first < 0xf5 ? 4
                                      : 0;
  if (count == 0 || count > text.size() - at)
    return 0;
  code = first & (0x7fu >> count);
  for (size_t i = 1; i < count; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80)
      return 0;
    code = code << 6 | (byte(at + i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < kLeast[count] || surrogate || code > 0x10ffff ? 0 : count;
}

/// The first byte that is no character; the number of bytes where all are.
inline size_t invalidUtf8(std::string_view text) {
  uint32_t code;
  for (size_t at = 0, count; at < text.size(); at += count)
    if ((count = readUtf8(text, at, code)) == 0)
      return at;
  return text.size();
}

/// Whether Unicode says that a character is white space.
inline bool isWhiteSpace(uint32_t code) {
  return (code >= 9 && code <= 13) || code == 32 || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

/// Writes a character of up to 0x10ffff behind a text.
inline void appendUtf8(std::string &text, uint32_t code) {
  if (code < 0x80) {
    text += char(code);
    return;
  }
  constexpr uint32_t kFirst[] = {0, 0xc0, 0xe0, 0xf0};
  const int rest = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3; // bytes behind the first one
  text += char(kFirst[rest] | code >> (6 * rest));
  for (int i = rest - 1; i >= 0; --i)
    text += char(0x80 | (code >> (6 * i) & 0x3f));
}

} // namespace rlx::runtime

#endif // RLX_RUNTIME_UTF8_H
