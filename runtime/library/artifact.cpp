// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "artifact.h"

#include "bytes.h"
#include "json.h"
#include "runtime/error.h"
#include "runtime/features.h"
#include "sha256.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace rlx::runtime::library {
namespace {

constexpr std::string_view kMagic{"RLXMLIR\0", 8};
constexpr uint32_t kVersion = 11;
/// The oldest version that is read: 11 adds what calls do, which only profiles read.
constexpr uint32_t kOldest = 10;
constexpr size_t kHeader = 60, kLengths = 12, kDigest = 28;
/// What the names of templates begin with whose code uses tiles.
constexpr std::string_view kTiled[] = {"gemm_amx", "attention_amx"};

/// Bytes of an element, at a multiple of which its address is but for complex numbers.
struct ElementType {
  std::string_view name;
  int64_t bytes, alignment;
};
constexpr ElementType kTypes[] = {
    {"f32", 4, 4},    {"f16", 2, 2}, {"bf16", 2, 2}, {"f64", 8, 8},  {"f8E4M3FN", 1, 1},
    {"f8E5M2", 1, 1}, {"i1", 1, 1},  {"i8", 1, 1},   {"i16", 2, 2},  {"i32", 4, 4},
    {"i64", 8, 8},    {"ui8", 1, 1}, {"ui16", 2, 2}, {"ui32", 4, 4}, {"complex<f32>", 8, 4}};

const ElementType &typeNamed(std::string_view name) {
  for (const ElementType &type : kTypes)
    if (type.name == name)
      return type;
  throw InputError("'" + std::string(name) + "' is no element type");
}

const ElementType &typeOf(const Value &buffer) {
  return typeNamed(buffer.member("dtype", "a buffer").asText("an element type"));
}

Value textOf(std::string text) { return Value::of(Value::Kind::Text, std::move(text)); }

/// Turns what an artefact says of itself into what libraries say of a function.
class Translator {
public:
  explicit Translator(const Value &description) : description(description) {
    symbols = member("symbols");
    for (const Value &own : symbols.asList(-1, "symbols"))
      names.push_back(own.asList(2, "a symbol (name, maximum)")[0].asText("a name"));
    planSymbols = names.size();
  }

  Value function(const std::string &name) {
    // Those that only inputs have which no code reads may be of any size.
    for (const char *kind : {"inputs", "plan_parameters"})
      for (const Value &buffer : member(kind).asList(-1, kind))
        for (const Value &size : shapeOf(buffer))
          if (size.kind == Value::Kind::Text && numberOf(size.text) == names.size()) {
            names.push_back(size.text);
            symbols.items.push_back(
                Value::list({size, Value::integer(std::numeric_limits<int64_t>::max())}));
          }
    return Value::list({textOf(name), plan(), symbols, buffers("inputs"),
                        buffers("plan_parameters"), buffers("outputs"), conditions()});
  }

private:
  const Value &member(const char *name) const { return description.member(name, "the artefact"); }

  static const std::vector<Value> &shapeOf(const Value &buffer) {
    return buffer.member("shape", "a buffer").asList(-1, "a shape");
  }

  /// The number of symbols where it is none.
  size_t numberOf(const std::string &symbol) const {
    return size_t(std::find(names.begin(), names.end(), symbol) - names.begin());
  }

  /// A size of a shape, with so many symbols; nothing where it isn't known.
  std::optional<Value> sizeOf(const Value &size, size_t known) const {
    if (size.kind != Value::Kind::Text) {
      if (size.asInteger("a size") < 0)
        throw InputError("a size cannot be " + size.shown());
      return term(size, {});
    }
    const size_t number = numberOf(size.text);
    if (number >= known)
      return std::nullopt;
    return term(Value::integer(1), {Value::integer(int64_t(number))});
  }

  static Value term(Value coefficient, std::vector<Value> factors) {
    return Value::list({Value::list({std::move(coefficient), Value::list(std::move(factors))})});
  }

  Value buffers(const char *kind) const {
    std::vector<Value> found;
    for (const Value &buffer : member(kind).asList(-1, kind)) {
      const ElementType &type = typeOf(buffer);
      std::vector<Value> formulas;
      for (const Value &size : shapeOf(buffer))
        formulas.push_back(
            textOf(size.kind == Value::Kind::Text ? size.text : std::to_string(size.number)));
      found.push_back(Value::list({buffer.member("name", "a buffer"),
                                   textOf(std::string(type.name)), Value::integer(type.alignment),
                                   Value::integer(type.bytes), Value::list(std::move(formulas)),
                                   sizes(buffer, kind), tie(buffer), Value()}));
    }
    return Value::list(std::move(found));
  }

  /// An output's sizes are said; those of others follow from the shape.
  Value sizes(const Value &buffer, std::string_view kind) const {
    if (kind == "outputs")
      return buffer.member("sizes", "an output");
    std::vector<Value> found;
    for (const Value &size : shapeOf(buffer))
      found.push_back(*sizeOf(size, names.size()));
    return Value::list(std::move(found));
  }

  Value tie(const Value &buffer) const {
    const Value &tied = buffer.member("tied", "a buffer");
    if (tied.isNone())
      return Value();
    const std::string &name = tied.asText("what a buffer is tied to");
    for (int64_t kind = 0; kind < 2; ++kind) {
      const char *list = kind == 0 ? "inputs" : "plan_parameters";
      const std::vector<Value> &others = member(list).asList(-1, list);
      for (size_t i = 0; i < others.size(); ++i)
        if (others[i].member("name", "a buffer").text == name)
          return Value::list({Value::integer(kind), Value::integer(int64_t(i)),
                              buffer.member("updated", "a buffer")});
    }
    throw InputError("an output is tied to '" + name + "', which isn't there");
  }

  Value plan() const {
    return Value::list(
        {member("symbols"), member("arena_bytes"), member("slots"), member("kernels"),
         bufferNames("inputs"), bufferNames("plan_parameters"), bufferNames("outputs"),
         member("calls"), blocks(), positions(),
         Value::list({extents("inputs"), extents("plan_parameters"), extents("outputs")})});
  }

  Value bufferNames(const char *kind) const {
    std::vector<Value> found;
    for (const Value &buffer : member(kind).asList(-1, kind))
      found.push_back(buffer.member("name", "a buffer"));
    return Value::list(std::move(found));
  }

  /// How large buffers are for the plan, which knows its own symbols alone.
  Value extents(const char *kind) const {
    std::vector<Value> found;
    for (const Value &buffer : member(kind).asList(-1, kind)) {
      Value bytes = Value::integer(typeOf(buffer).bytes);
      std::vector<Value> own;
      bool known = true;
      if (std::strcmp(kind, "outputs") == 0)
        own = buffer.member("sizes", "an output").asList(-1, "sizes");
      else
        for (const Value &size : shapeOf(buffer)) {
          std::optional<Value> one = sizeOf(size, planSymbols);
          known = known && one;
          own.push_back(one ? std::move(*one) : Value());
        }
      if (!known) { // no call reads what has a symbol that the plan doesn't have
        bytes = Value::integer(1);
        own = {term(Value::integer(0), {})};
      }
      found.push_back(Value::list({std::move(bytes), Value::list(std::move(own))}));
    }
    return Value::list(std::move(found));
  }

  /// Objects as lists of some of their members.
  Value listed(const char *name, std::initializer_list<const char *> fields) const {
    std::vector<Value> found;
    for (const Value &own : member(name).asList(-1, name)) {
      std::vector<Value> values;
      for (const char *field : fields)
        values.push_back(own.member(field, name));
      found.push_back(Value::list(std::move(values)));
    }
    return Value::list(std::move(found));
  }

  Value blocks() const {
    return listed("blocks",
                  {"kind", "parent", "part", "begin", "middle", "end", "steps", "flag", "swaps"});
  }

  Value positions() const {
    Value found = listed("positions", {"kind", "index", "count", "rows", "limit", "where"});
    for (Value &own : found.items)
      for (size_t i = 2; i < 5; ++i) {
        Value size = own.items[i].asList(2, "a size (text, terms)")[1];
        own.items[i] = std::move(size);
      }
    return found;
  }

  Value conditions() const {
    std::vector<Value> found;
    for (const Value &own : member("conditions").asList(-1, "conditions")) {
      const auto side = [&](const char *name) -> const std::vector<Value> & {
        return own.member(name, "a condition").asList(2, "a size (text, terms)");
      };
      found.push_back(
          Value::list({side("left")[0], side("left")[1], side("right")[0], side("right")[1],
                       own.member("at_least", "a condition"), own.member("where", "a condition")}));
    }
    return Value::list(std::move(found));
  }

  const Value &description;
  Value symbols;
  std::vector<std::string> names;
  size_t planSymbols = 0;
};

/// Throws ExecutionError for what this library can't run.
void checkSupported(const Value &description, const std::string &name) {
  if (const std::string &chip = description.member("chip", "the artefact").asText("a chip");
      !chip.empty())
    throw ExecutionError("'" + name + "' was compiled for the GPU " + chip +
                         ", but this library runs code of CPUs");
  const std::vector<Value> &own = description.member("own", "the artefact").asList(-1, "own");
  if (!own.empty())
    throw ExecutionError("'" + name + "' calls an operation that its author registered, '" +
                         own[0].member("op", "an operation").asText("a name") +
                         "': the Python package runs those");
}

bool usesTiles(const Value &description) {
  const Value &templates = description.member("templates", "the artefact");
  (void)templates.find("", "templates"); // an object
  for (size_t i = 1; i < templates.items.size(); i += 2)
    for (std::string_view prefix : kTiled)
      if (templates.items[i].asText("a template").compare(0, prefix.size(), prefix) == 0)
        return true;
  return false;
}

Artifact translated(const Value &description, std::string code, const std::string &given) {
  const std::string &own = description.member("name", "the artefact").asText("a name");
  const std::string &name = given.empty() ? own : given;
  checkSupported(description, name);
  const Value &target = description.member("target", "the artefact");
  const std::string &triple = target.member("triple", "a target").asText("a triple");
  std::string architecture = triple.substr(0, triple.find('-'));
  std::vector<std::string> features =
      reliedOn(target.member("features", "a target").asText("features"), architecture);
  return {std::move(architecture), std::move(features), usesTiles(description),
          c::readFunction(Translator(description).function(name)), std::move(code)};
}

} // namespace

int64_t elementBytes(std::string_view type) { return typeNamed(type).bytes; }

bool isArtifact(std::string_view start) { return start.substr(0, kMagic.size()) == kMagic; }

Artifact readArtifact(std::string_view bytes, const std::string &name) {
  if (!isArtifact(bytes))
    throw ExecutionError("not an artefact: it doesn't start with 'RLXMLIR'");
  if (bytes.size() < kHeader)
    throw ExecutionError("an artefact has at least " + std::to_string(kHeader) +
                         " bytes, but this one has " + std::to_string(bytes.size()));
  if (const auto version = numberAt<uint32_t>(bytes, 8); version < kOldest || version > kVersion)
    throw ExecutionError("not an artefact of version " + std::to_string(kVersion) + ", but of " +
                         std::to_string(version) + ": compile the module again");
  const auto length = numberAt<uint64_t>(bytes, kLengths);
  const auto codeLength = numberAt<uint64_t>(bytes, kLengths + 8);
  const std::string_view rest = bytes.substr(kHeader);
  if (sha256({bytes.substr(kLengths, 16), rest}) != numberAt<Digest>(bytes, kDigest))
    throw ExecutionError("the artefact's checksum doesn't hold: it is damaged");
  if (length > rest.size() || codeLength > rest.size() - length)
    throw ExecutionError("the artefact has " + std::to_string(rest.size()) +
                         " bytes, but its description says " + std::to_string(length) + " and " +
                         std::to_string(codeLength));
  try {
    return translated(readJson(rest.substr(0, length)),
                      std::string(rest.substr(length, codeLength)), name);
  } catch (const InputError &error) {
    throw ExecutionError(std::string("the artefact's description can't be read: ") + error.what());
  }
}

} // namespace rlx::runtime::library
