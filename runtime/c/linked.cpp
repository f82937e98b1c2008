// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loading of a shared library that was linked for some models. What `rlx_mlir.runtime.c_library`
// writes has `rlx_library`, and one entry of the library's own name for each function of
// `include/rlx.h`.
#define RLX_PREFIX rlx
#include "api.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <limits>

using namespace rlx::runtime;
using namespace rlx::runtime::c;

extern "C" {
/// A symbol of the code: the number of its function before a colon, and its name.
struct rlx_code_symbol {
  const char *name;
  void *address;
};
/// What this copy of the run time was linked with; symbols are in the order of their names' bytes.
struct rlx_library_data {
  const char *description;
  uint64_t descriptionBytes;
  const std::byte *weights;
  uint64_t weightsBytes;
  const rlx_code_symbol *symbols;
  uint64_t symbolCount;
};
extern const rlx_library_data rlx_library;
}

namespace {

class LinkedCode : public Symbols {
public:
  explicit LinkedCode(size_t function) : prefix(std::to_string(function) + ":") {}

  void *find(const std::string &name) const override {
    const rlx_code_symbol *end = rlx_library.symbols + rlx_library.symbolCount;
    const std::string full = prefix + name;
    const rlx_code_symbol *found =
        std::lower_bound(rlx_library.symbols, end, full.c_str(),
                         [](const rlx_code_symbol &symbol, const char *wanted) {
                           return std::strcmp(symbol.name, wanted) < 0;
                         });
    return found != end && full == found->name ? found->address : nullptr;
  }
  void *lookup(const std::string &name) const override {
    if (void *found = find(name))
      return found;
    throw ExecutionError("the library has no symbol '" + name + "' of function " +
                         prefix.substr(0, prefix.size() - 1));
  }
  void *function(const std::string &name) const override { return lookup(name); }
  /// The linker has placed it: what it says of itself holds.
  size_t bytesFrom(const std::string &name) const override {
    return find(name) == nullptr ? 0 : std::numeric_limits<size_t>::max();
  }

private:
  const std::string prefix;
};

/// The folder that the library was loaded from: relative paths mean nothing once the process has
/// another working directory, so it is looked up when the library is loaded.
const std::string &homeFolder() {
  static const std::string folder = [] {
    Dl_info info;
    if (dladdr(&rlx_library, &info) == 0 || info.dli_fname == nullptr)
      return std::string(".");
    char *absolute = realpath(info.dli_fname, nullptr);
    const std::string path = absolute != nullptr ? absolute : info.dli_fname;
    std::free(absolute);
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
  }();
  return folder;
}
const bool homeKnown = (homeFolder(), true);

const std::shared_ptr<const Description> &description() {
  static const std::shared_ptr<const Description> read = std::make_shared<const Description>(
      readDescription({rlx_library.description, size_t(rlx_library.descriptionBytes)}));
  return read;
}

std::unique_ptr<Weights> openWeights(const char *path) {
  const std::optional<Description::Weights> &own = description()->weights;
  if (path != nullptr && (!own || own->embedded))
    throw InputError("'" + description()->name + "' has " +
                     (own ? "its weights in itself" : "no weights: set_parameter gives them") +
                     ", but the file '" + path + "' was given");
  if (!own)
    return nullptr;
  if (own->embedded)
    return std::make_unique<Weights>(rlx_library.weights, rlx_library.weightsBytes, *own);
  return std::make_unique<Weights>(path != nullptr ? path : homeFolder() + "/" + own->file, *own);
}

std::unique_ptr<Model> load(const rlx_options &options) {
  checkVersion(options.abi_version, RLX_ABI_VERSION);
  return std::make_unique<Model>(
      description(), openWeights(options.weights),
      [](size_t function) { return std::make_shared<LinkedCode>(function); }, options.threads);
}

} // namespace

rlx_status rlx_load(const rlx_options *options, rlx_model **model) {
  if (model != nullptr)
    *model = nullptr;
  return guarded(nullptr, [&] {
    target(model, "the handle");
    *model = newHandle(load(target(options, "the options")));
  });
}
