// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "bundle.h"

#include "artifact.h"
#include "container.h"
#include "json.h"
#include "runtime/error.h"
#include "runtime/features.h"
#include "runtime/loader.h"
#include "runtime/processor.h"

#include <algorithm>
#include <set>
#include <utility>

namespace rlx::runtime::library {
namespace {

constexpr int64_t kVersion = 1; // of the manifest
constexpr size_t kMostLevels = 64;
constexpr int64_t kMostContext = 1 << 24; // positions of a sequence
constexpr uint64_t kAlignment = 64;       // of parameters
/// Sizes and offsets are below it, so that products of two don't wrap.
constexpr int64_t kMostSize = int64_t(1) << 48;

/// Runs something that throws, and has its errors begin with the file's name. What a file says
/// wrongly is an error of the file's, not of the caller's.
template <typename Call> auto named(const std::string &path, Call call) {
  try {
    return call();
  } catch (const InputError &error) {
    throw ExecutionError(path + ": " + error.what());
  } catch (const ExecutionError &error) {
    throw ExecutionError(path + ": " + error.what());
  }
}

/// A CPU that a bundle has code for.
struct Level {
  std::string name, architecture, features;

  /// What this machine lacks for the code, in words; empty where nothing.
  std::string missing() const {
    const Processor &host = hostProcessor();
    if (architecture != host.architecture)
      return architecture + ", where this machine is " + host.architecture;
    const std::vector<std::string> needed = reliedOn(features, architecture);
    if (const std::string names = lackingFeatures(needed); !names.empty())
      return names + ", which " + host.name + " lacks";
    if (std::find(needed.begin(), needed.end(), "amx-tile") != needed.end() && !requestTiles())
      return "AMX tiles, which the operating system doesn't lend";
    return "";
  }
};

/// Where a parameter is in the file, and what it is.
struct Place {
  c::Buffer::Place span;
  std::vector<int64_t> shape;
  int64_t elementBytes;
};

/// The manifest of a bundle, checked.
class Manifest {
public:
  explicit Manifest(const Container &container)
      : container(container), document(readJson(container.read(container.section("manifest")))) {
    const Value *version = document.find("version", "the manifest");
    if (version == nullptr || version->kind != Value::Kind::Integer || version->number != kVersion)
      throw ExecutionError("its manifest must be of version " + std::to_string(kVersion) +
                           ", but is of " + (version ? version->shown() : "none") +
                           ": bundle the model again");
    kind = member("kind").asText("'kind'");
    if (kind != "decoder" && kind != "encoder")
      throw InputError("'kind' must be one of decoder, encoder, but is '" + kind + "'");
    readLevels();
    readPlaces();
    for (size_t i = 0; i + 1 < member("modules").items.size(); i += 2)
      checkModule(member("modules").items[i].text, member("modules").items[i + 1]);
  }

  const Value &member(const char *name) const { return document.member(name, "the manifest"); }

  /// The level to run. Throws InputError where there is none of that name, ExecutionError where the
  /// machine can't run it, or any of them.
  const Level &level(const std::string &asked, const std::string &path) const {
    std::string known, lacking;
    size_t tried = 0;
    for (const Level &own : levels) {
      known += (known.empty() ? "" : ", ") + own.name;
      if (!asked.empty() && asked != own.name)
        continue;
      ++tried;
      const std::string missing = own.missing();
      if (missing.empty())
        return own;
      lacking += (lacking.empty() ? "" : "; ") + own.name + " needs " + missing;
    }
    if (tried == 0)
      throw InputError("'" + path + "' has code for " + known + ", but the level '" + asked +
                       "' is asked for");
    throw ExecutionError("'" + path + "' has code for " + known + ", but this machine can't run " +
                         (tried == 1 ? "that" : "any of them") + ": " + lacking);
  }

  /// The modules with their code for a level, and where their parameters are.
  std::vector<Artifact> artifacts(const std::string &level) const {
    std::vector<Artifact> found;
    const Value &modules = member("modules");
    for (size_t i = 0; i + 1 < modules.items.size(); i += 2) {
      const std::string &name = modules.items[i].text;
      const Container::Section &section = container.section("artifact/" + name + "/" + level);
      if (!section.isCode)
        throw ExecutionError("section '" + section.name + "' is of kind 0, but code is of kind 1");
      Artifact own = readArtifact(container.read(section), name);
      placeParameters(own.function, modules.items[i + 1].member(level, "a module"));
      found.push_back(std::move(own));
    }
    return found;
  }

  std::string kind;

private:
  void readLevels() {
    const std::vector<Value> &found = member("levels").asList(-1, "'levels'");
    if (found.empty() || found.size() > kMostLevels)
      throw InputError("'levels' must be 1 to " + std::to_string(kMostLevels) + ", but there are " +
                       std::to_string(found.size()));
    std::set<std::string> names;
    for (const Value &own : found) {
      const std::string &triple = own.member("triple", "a level").asText("a triple");
      levels.push_back({own.member("name", "a level").asText("a name"),
                        triple.substr(0, triple.find('-')),
                        own.member("features", "a level").asText("features")});
      if (!names.insert(levels.back().name).second)
        throw InputError("the level '" + levels.back().name + "' is named twice");
    }
  }

  void readPlaces() {
    const std::vector<Value> &found = member("parameters").asList(-1, "'parameters'");
    for (size_t i = 0; i < found.size(); ++i)
      places.push_back(readPlace(found[i], "parameter " + std::to_string(i) + " of the manifest"));
  }

  Place readPlace(const Value &value, const std::string &what) const {
    const std::vector<Value> &parts = value.asList(4, "a parameter (section, offset, type, shape)");
    const auto bounded = [&](const Value &own) {
      const int64_t number = own.asInteger(what.c_str());
      if (number < 0 || number >= kMostSize)
        throw InputError(what + " has " + std::to_string(number) + ", but numbers are from 0 to " +
                         std::to_string(kMostSize - 1));
      return number;
    };
    Place place{{}, {}, elementBytes(parts[2].asText("an element type"))};
    int64_t bytes = place.elementBytes;
    bool empty = false;
    for (const Value &size : parts[3].asList(-1, "a shape")) {
      place.shape.push_back(bounded(size));
      empty = empty || size.number == 0;
      if (size.number != 0 && __builtin_mul_overflow(bytes, size.number, &bytes))
        throw InputError(what + " has more bytes than 63 bits can count");
    }
    bytes = empty ? 0 : bytes;
    const Container::Section &section =
        container.section("weights/" + std::to_string(bounded(parts[0])));
    const uint64_t offset = uint64_t(bounded(parts[1]));
    if (offset % kAlignment != 0 || offset > section.bytes ||
        uint64_t(bytes) > section.bytes - offset)
      throw InputError(what + " must begin at a multiple of " + std::to_string(kAlignment) +
                       " and lie within the " + std::to_string(section.bytes) + " bytes of '" +
                       section.name + "', but is " + std::to_string(bytes) + " bytes at byte " +
                       std::to_string(offset));
    place.span = {section.offset + offset, uint64_t(bytes)};
    return place;
  }

  void checkModule(const std::string &name, const Value &byLevel) const {
    for (const Level &level : levels)
      for (const Value &number : byLevel.member(level.name, ("module '" + name + "'").c_str())
                                     .asList(-1, "the parameters of a module"))
        if (number.asInteger("a parameter's number") < 0 || size_t(number.number) >= places.size())
          throw InputError("module '" + name + "' for '" + level.name +
                           "' must list parameters below " + std::to_string(places.size()) +
                           ", but lists " + std::to_string(number.number));
  }

  void placeParameters(c::FunctionSpec &function, const Value &numbers) const {
    std::vector<c::Buffer> &buffers = function.buffers[c::kParameter];
    if (numbers.items.size() != buffers.size())
      throw ExecutionError("'" + function.name + "' reads " + std::to_string(buffers.size()) +
                           " prepared parameters, but got " + std::to_string(numbers.items.size()));
    for (size_t i = 0; i < buffers.size(); ++i) {
      const Place &place = places[size_t(numbers.items[i].number)];
      bool fits = buffers[i].elementBytes == size_t(place.elementBytes) &&
                  buffers[i].dims.size() == place.shape.size();
      for (size_t axis = 0; fits && axis < place.shape.size(); ++axis)
        if (buffers[i].dims[axis].isFixed())
          fits = buffers[i].dims[axis].evaluateChecked(nullptr) == place.shape[axis];
      if (!fits)
        throw ExecutionError(function.nameOf(c::kParameter, i) +
                             " has another shape or type in the manifest than in the code");
      buffers[i].place = place.span;
    }
  }

  const Container &container;
  const Value document;
  std::vector<Level> levels;
  std::vector<Place> places;
};

std::string lastPart(const std::string &path) { return path.substr(path.rfind('/') + 1); }

/// A model of some artefacts, whose code stays as long as it lives.
std::unique_ptr<OpenedModel> loaded(std::string name, std::vector<Artifact> artifacts,
                                    std::unique_ptr<c::Weights> weights, FileInfo info,
                                    int threads) {
  auto description = std::make_shared<c::Description>();
  description->name = std::move(name);
  description->tiles = false;
  std::set<std::string> features;
  for (Artifact &own : artifacts) {
    description->machine = own.architecture;
    description->tiles = description->tiles || own.tiles;
    features.insert(own.features.begin(), own.features.end());
    description->functions.push_back(std::move(own.function));
  }
  description->features.assign(features.begin(), features.end());
  const auto codeOf = [&](size_t number) {
    return std::make_shared<ObjectCode>(std::vector<std::string_view>{artifacts[number].code});
  };
  return std::make_unique<OpenedModel>(std::move(info),
                                       std::shared_ptr<const c::Description>(description),
                                       std::move(weights), codeOf, threads);
}

std::unique_ptr<OpenedModel> openBundle(const std::string &path,
                                        std::shared_ptr<const MappedFile> file,
                                        const std::string &asked, int threads) {
  const auto container =
      named(path, [&] { return std::make_unique<const Container>(std::move(file)); });
  const auto manifest = named(path, [&] { return std::make_unique<const Manifest>(*container); });
  const Level &level = manifest->level(asked, path);
  return named(path, [&] {
    FileInfo info;
    info.level = level.name;
    info.kind = manifest->kind;
    if (info.kind == "decoder") {
      const Value &options = manifest->member("options");
      info.context = options.member("context", "'options'").asIndex("'context'");
      info.chunk = options.member("chunk", "'options'").asIndex("'chunk'");
      if (std::min(info.context, info.chunk) < 1 ||
          std::max(info.context, info.chunk) > kMostContext)
        throw InputError("'context' and 'chunk' must be from 1 to " + std::to_string(kMostContext) +
                         ", but are " + std::to_string(info.context) + " and " +
                         std::to_string(info.chunk));
      const Container::Section *text = container->find("text");
      info.text = text == nullptr ? Text::none() : readText(container->read(*text));
    }
    return loaded(lastPart(path), manifest->artifacts(level.name),
                  std::make_unique<c::Weights>(container->file()), std::move(info), threads);
  });
}

std::shared_ptr<const MappedFile> mapped(const std::string &path) {
  return named(path, [&] { return std::make_shared<const MappedFile>(path); });
}

} // namespace

std::unique_ptr<OpenedModel> openModel(const std::string &path, const std::string &level,
                                       int threads) {
  (void)c::Model::checkedThreads(threads); // an error of the caller's, not of the file's
  std::shared_ptr<const MappedFile> file = mapped(path);
  const std::string_view start = file->text();
  if (isContainer(start))
    return openBundle(path, std::move(file), level, threads);
  if (!level.empty())
    throw InputError("'" + path + "' is no bundle, which has levels, but the level '" + level +
                     "' is asked for");
  return named(path, [&] {
    if (!isArtifact(start))
      throw ExecutionError("neither a bundle nor an artefact: it starts with neither 'RLXBNDL' nor "
                           "'RLXMLIR'");
    std::vector<Artifact> artifacts;
    // A copy: what was checked can't change any more.
    artifacts.push_back(readArtifact(std::string(start)));
    return loaded(lastPart(path), std::move(artifacts), nullptr, {}, threads);
  });
}

void verifyFile(const std::string &path) {
  std::shared_ptr<const MappedFile> file = mapped(path);
  named(path, [&] {
    if (!isContainer(file->text())) {
      (void)readArtifact(file->text());
      return;
    }
    const Container container(std::move(file));
    for (const Container::Section &section : container.sections())
      container.check(section);
  });
}

} // namespace rlx::runtime::library
