// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "text_form.h"

#include "character_map.h"
#include "normal_form.h"
#include "pattern.h"
#include "runtime/error.h"
#include "runtime/utf8.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace rlx::runtime::library {
namespace {

/// Without spaces at its ends.
class Stripped : public TextForm {
public:
  Stripped(bool left, bool right) : left(left), right(right) {}

  std::string of(std::string_view text) const override {
    size_t first = text.size(), last = 0; // of what isn't a space
    uint32_t code = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t count = readUtf8(text, at, code);
      if (!isWhiteSpace(code)) {
        first = std::min(first, at);
        last = at + count;
      }
      at += count;
    }
    // Of spaces alone, either end takes all.
    if (last == 0)
      return left || right ? std::string() : std::string(text);
    const size_t begin = left ? first : 0, end = right ? last : text.size();
    return std::string(text.substr(begin, end - begin));
  }

private:
  bool left, right;
};

/// What matches a pattern becomes a text.
class Replaced : public TextForm {
public:
  Replaced(const Value &pattern, std::string with) : pattern(pattern), with(std::move(with)) {}

  std::string of(std::string_view text) const override { return pattern.replace(text, with); }

private:
  Pattern pattern;
  std::string with;
};

} // namespace

std::unique_ptr<const TextForm> readTextForm(const Value &described) {
  const std::vector<Value> &parts = described.asList(-1, "a form of texts");
  if (parts.empty() || parts[0].kind != Value::Kind::Text)
    return std::make_unique<NormalForm>(described);
  const std::string &name = parts[0].text;
  if (name == "characters")
    return std::make_unique<CharacterMap>(described);
  (void)described.asList(3, "a form of texts (name, two operands)");
  if (name == "strip")
    return std::make_unique<Stripped>(parts[1].asInteger("whether spaces go on the left") != 0,
                                      parts[2].asInteger("whether spaces go on the right") != 0);
  if (name != "replace")
    throw InputError("a form of texts is characters, replace or strip, but is '" + name + "'");
  const std::string &with = parts[2].asText("what replaces a pattern");
  if (invalidUtf8(with) != with.size())
    throw InputError("what replaces a pattern must be UTF-8");
  return std::make_unique<Replaced>(parts[1], with);
}

} // namespace rlx::runtime::library
