// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "json.h"

#include "runtime/error.h"
#include "runtime/utf8.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace rlx::runtime::library {
namespace {

/// What a document may take: Python's readers have the same bound of bytes by default.
constexpr size_t kMostBytes = size_t(256) << 20, kMostValues = size_t(1) << 24;

class Reader {
public:
  explicit Reader(std::string_view text) : text(text) {}

  Value document() {
    if (text.size() > kMostBytes)
      fail("a document has at most " + std::to_string(kMostBytes) + " bytes, but this one has " +
           std::to_string(text.size()));
    if ((at = invalidUtf8(text)) != text.size())
      fail("a document must be UTF-8");
    at = 0;
    Value value = any(0);
    space();
    if (at != text.size())
      fail("the document ends, but there are " + std::to_string(text.size()) + " bytes");
    return value;
  }

private:
  Value any(int depth) {
    if (depth > Value::kDepth)
      fail("values are more than " + std::to_string(Value::kDepth) + " deep in each other");
    if (++values > kMostValues)
      fail("a document has at most " + std::to_string(kMostValues) + " values");
    space();
    switch (peek()) {
    case '{':
      return object(depth);
    case '[':
      return list(depth);
    case '"':
      return Value::of(Value::Kind::Text, quoted());
    case 't':
      return word("true", Value::integer(1));
    case 'f':
      return word("false", Value::integer(0));
    case 'n':
      return word("null", Value());
    default:
      return number();
    }
  }

  Value object(int depth) {
    Value value;
    value.kind = Value::Kind::Object;
    for (++at; !closed('}', value.items.empty());) {
      space();
      value.items.push_back(Value::of(Value::Kind::Text, quoted()));
      space();
      if (peek() != ':')
        fail("a name must be followed by ':'");
      ++at;
      value.items.push_back(any(depth + 1));
    }
    return value;
  }

  Value list(int depth) {
    std::vector<Value> items;
    for (++at; !closed(']', items.empty());)
      items.push_back(any(depth + 1));
    return Value::list(std::move(items));
  }

  /// Whether a list or object ends here; else what comes next is behind a comma, but for the first.
  bool closed(char bracket, bool first) {
    space();
    if (peek() == bracket) {
      ++at;
      return true;
    }
    if (first)
      return false;
    if (peek() != ',')
      fail(std::string("values must be followed by ',' or '") + bracket + "'");
    ++at;
    return false;
  }

  Value word(std::string_view expected, Value value) {
    if (text.substr(at, expected.size()) != expected)
      fail("a value must begin here");
    at += expected.size();
    return value;
  }

  Value number() {
    const size_t begin = at;
    const size_t end = std::min(text.find_first_not_of("+-.eE0123456789", at), text.size());
    const std::string digits(text.substr(begin, end - begin));
    if (digits.empty() || (digits[0] != '-' && (digits[0] < '0' || digits[0] > '9')))
      fail("a value must begin here");
    at = end;
    char *rest = nullptr;
    errno = 0;
    const long long whole = std::strtoll(digits.c_str(), &rest, 10);
    if (*rest == '\0' && errno == 0 && digits != "-")
      return Value::integer(whole);
    (void)std::strtod(digits.c_str(), &rest);
    if (*rest != '\0')
      fail("no number is written like " + digits.substr(0, 32));
    return Value::of(Value::Kind::Other, digits);
  }

  std::string quoted() {
    if (peek() != '"')
      fail("a text must begin here");
    std::string found;
    for (++at;;) {
      const size_t end = text.find_first_of("\"\\", at);
      if (end == std::string_view::npos)
        fail("a text isn't closed");
      for (size_t i = at; i < end; ++i)
        if (uint8_t(text[i]) < 0x20)
          fail("a text has a control character");
      found += text.substr(at, end - at);
      at = end + 1;
      if (text[end] == '"')
        return found;
      escape(found);
    }
  }

  void escape(std::string &into) {
    constexpr std::string_view kLetters = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    const char letter = peek();
    ++at;
    if (letter != 'u') {
      const size_t index = kLetters.find(letter);
      if (index == std::string_view::npos)
        fail("no character is escaped like this");
      into += kMeant[index];
      return;
    }
    uint32_t code = hexadecimal();
    if (code >= 0xd800 && code < 0xdc00 && text.substr(at, 2) == "\\u") {
      at += 2;
      const uint32_t low = hexadecimal();
      if (low < 0xdc00 || low > 0xdfff)
        fail("half of a character is missing");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code >= 0xd800 && code < 0xe000)
      fail("half of a character is missing");
    appendUtf8(into, code);
  }

  uint32_t hexadecimal() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at) {
      const char digit = peek();
      const bool letter = (digit >= 'a' && digit <= 'f') || (digit >= 'A' && digit <= 'F');
      if (!letter && (digit < '0' || digit > '9'))
        fail("a character must have four digits");
      code = code * 16 + uint32_t(letter ? (digit | 32) - 'a' + 10 : digit - '0');
    }
    return code;
  }

  void space() {
    while (at < text.size() &&
           (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t'))
      ++at;
  }

  char peek() const {
    if (at >= text.size())
      fail("the document is cut off");
    return text[at];
  }

  [[noreturn]] void fail(const std::string &problem) const {
    throw InputError("byte " + std::to_string(at) + ": " + problem);
  }

  std::string_view text;
  size_t at = 0, values = 0;
};

} // namespace

Value readJson(std::string_view text) { return Reader(text).document(); }

} // namespace rlx::runtime::library
