// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "value.h"

#include "error.h"

#include <limits>

namespace rlx::runtime {

Value Value::integer(int64_t number) {
  Value value;
  value.kind = Kind::Integer;
  value.number = number;
  return value;
}

Value Value::of(Kind kind, std::string text) {
  Value value;
  value.kind = kind;
  value.text = std::move(text);
  return value;
}

Value Value::list(std::vector<Value> items) {
  Value value;
  value.kind = Kind::List;
  value.items = std::move(items);
  return value;
}

std::string Value::shown() const {
  switch (kind) {
  case Kind::None:
    return "None";
  case Kind::Integer:
    return std::to_string(number);
  case Kind::Text:
    return "'" + text + "'";
  case Kind::Other:
    return text;
  case Kind::Object:
    return "an object";
  case Kind::List:
    break;
  }
  std::string shown = "[";
  for (size_t i = 0; i < items.size(); ++i)
    shown += (i > 0 ? ", " : "") + items[i].shown();
  return shown + "]";
}

int64_t Value::asInteger(const char *what) const {
  if (kind != Kind::Integer)
    throw InputError(std::string(what) + " cannot be " + shown());
  return number;
}

int Value::asIndex(const char *what) const {
  const int64_t found = asInteger(what);
  if (found < std::numeric_limits<int>::min() || found > std::numeric_limits<int>::max())
    throw InputError(std::string(what) + " cannot be " + shown());
  return int(found);
}

size_t Value::asCount(const char *what) const {
  if (asInteger(what) < 0)
    throw InputError(std::string(what) + " cannot be " + shown());
  return size_t(number);
}

const std::string &Value::asText(const char *what) const {
  if (kind != Kind::Text)
    throw InputError(std::string(what) + " cannot be " + shown());
  return text;
}

const std::vector<Value> &Value::asList(ptrdiff_t count, const char *what) const {
  if (kind != Kind::List)
    throw InputError(std::string(what) + " must be a list or tuple, but it is " + shown());
  if (count >= 0 && ptrdiff_t(items.size()) != count)
    throw InputError(std::string(what) + " must have " + std::to_string(count) +
                     " items, but it is " + shown());
  return items;
}

const Value *Value::find(std::string_view name, const char *what) const {
  if (kind != Kind::Object)
    throw InputError(std::string(what) + " must be an object, but it is " + shown());
  for (size_t i = items.size(); i >= 2; i -= 2)
    if (items[i - 2].text == name)
      return &items[i - 1];
  return nullptr;
}

const Value &Value::member(std::string_view name, const char *what) const {
  if (const Value *found = find(name, what))
    return *found;
  throw InputError(std::string(what) + " has no '" + std::string(name) + "'");
}

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

namespace {

class Reader {
public:
  explicit Reader(std::string_view bytes) : bytes(bytes) {}

  Value value(int depth) {
    if (depth > Value::kDepth)
      fail("lists are more than " + std::to_string(Value::kDepth) + " deep in each other");
    const uint64_t head = word();
    const uint64_t rest = head >> 2;
    switch (head & 3) {
    case 0:
      return Value::integer(int64_t(rest >> 1) ^ -int64_t(rest & 1));
    case 1:
      return Value::of(Value::Kind::Text, std::string(take(rest, "a text")));
    case 2:
      return list(rest, depth);
    default:
      break;
    }
    if (rest == 0)
      return {};
    if (rest != 1)
      fail("no kind of value has the number " + std::to_string(rest));
    uint64_t number = 0;
    for (unsigned char byte : take(8, "a number"))
      number = number >> 8 | uint64_t(byte) << 56;
    return Value::integer(int64_t(number));
  }

  void finish() {
    if (at != bytes.size())
      fail("the value ends, but there are " + std::to_string(bytes.size()) + " bytes");
  }

private:
  Value list(uint64_t count, int depth) {
    if (count > bytes.size() - at) // of which each item has one at least
      fail("a list of " + std::to_string(count) + " items can't be in the " +
           std::to_string(bytes.size() - at) + " bytes that are left");
    std::vector<Value> items;
    for (uint64_t i = 0; i < count; ++i)
      items.push_back(value(depth + 1));
    return Value::list(std::move(items));
  }

  uint64_t word() {
    uint64_t word = 0;
    for (unsigned shift = 0;; shift += 7) {
      const unsigned char byte = (unsigned char)take(1, "a value")[0];
      if (shift == 63 && byte > 1)
        fail("a number has more than 64 bits");
      word |= uint64_t(byte & 127) << shift;
      if (byte < 128)
        return word;
    }
  }

  std::string_view take(uint64_t count, const char *what) {
    if (count > bytes.size() - at)
      fail(std::string(what) + " of " + std::to_string(count) + " bytes can't be in the " +
           std::to_string(bytes.size() - at) + " that are left");
    at += count;
    return bytes.substr(at - count, count);
  }

  [[noreturn]] void fail(const std::string &problem) const {
    throw InputError("byte " + std::to_string(at) + ": " + problem);
  }

  std::string_view bytes;
  size_t at = 0;
};

} // namespace

Value readValue(std::string_view bytes) {
  Reader reader(bytes);
  Value value = reader.value(0);
  reader.finish();
  return value;
}

} // namespace rlx::runtime
