// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions of `include/rlx.h` in a shared library that was linked for some models. What
// `rlx_mlir.runtime.c_library` writes has `rlx_library`, and one entry of the library's own name
// for each function here.
#define RLX_PREFIX rlx
#include "include/rlx.h"

#include "model.h"
#include "runtime/error.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <limits>
#include <new>

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

struct rlx_model {
  std::atomic<uint64_t> word;
  Model model;
};

namespace {

/// What handles of this library begin with, and none of another one or that was freed.
uint64_t handleWord() {
  return 0x6c65646f6d786c72 ^ uint64_t(reinterpret_cast<uintptr_t>(&rlx_library));
}

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

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

/// What this thread's last call that failed has to say, and of which handle.
struct LastError {
  const rlx_model *model;
  char text[2048];
};
thread_local LastError lastError = {nullptr, ""};

rlx_status failed(const rlx_model *model, rlx_status status, const char *text) {
  lastError.model = model;
  std::snprintf(lastError.text, sizeof(lastError.text), "%s", text);
  return status;
}

/// Calls something that may throw; what it throws becomes the text of the handle.
template <typename Call> rlx_status guarded(const rlx_model *model, Call call) noexcept {
  try {
    call();
    return RLX_OK;
  } catch (const InputError &error) {
    return failed(model, RLX_INPUT_ERROR, error.what());
  } catch (const std::bad_alloc &) {
    return failed(model, RLX_EXECUTION_ERROR, "there isn't enough memory");
  } catch (const std::exception &error) {
    return failed(model, RLX_EXECUTION_ERROR, error.what());
  } catch (...) {
    return failed(model, RLX_EXECUTION_ERROR, "an unknown error");
  }
}

bool isHandle(const rlx_model *model) {
  return model != nullptr && reinterpret_cast<uintptr_t>(model) % alignof(rlx_model) == 0 &&
         model->word.load(std::memory_order_relaxed) == handleWord();
}

const Model &modelOf(const rlx_model *model) {
  if (!isHandle(model))
    throw InputError(model == nullptr ? "the handle is null"
                                      : "the handle isn't one of this library, or was freed");
  return model->model;
}

template <typename T> T &target(T *address, const char *what) {
  if (address == nullptr)
    throw InputError(std::string("the address for ") + what + " is null");
  return *address;
}

/// The number of a name among others; throws InputError where it isn't one of them.
template <typename List>
size_t numberOf(const char *name, const List &list, const std::string &what) {
  const std::string wanted = &target(name, "a name");
  std::string known;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].name == wanted)
      return i;
    known += (i > 0 ? ", " : "") + list[i].name;
  }
  throw InputError(what + " '" + wanted + "'; known are " + (known.empty() ? "none" : known));
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

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

rlx_model *load(const rlx_options &options) {
  if (options.abi_version != RLX_ABI_VERSION)
    throw InputError("the library has version " + std::to_string(RLX_ABI_VERSION) +
                     " of its interface, but the program was compiled for version " +
                     std::to_string(options.abi_version));
  return new rlx_model{{handleWord()},
                       {description(), openWeights(options.weights),
                        [](size_t function) { return std::make_shared<LinkedCode>(function); },
                        options.threads}};
}

} // namespace

//===----------------------------------------------------------------------===//
// The interface
//===----------------------------------------------------------------------===//

uint32_t rlx_abi_version(void) { return RLX_ABI_VERSION; }

rlx_status rlx_load(const rlx_options *options, rlx_model **model) {
  if (model != nullptr)
    *model = nullptr;
  return guarded(nullptr, [&] {
    target(model, "the handle");
    *model = load(target(options, "the options"));
  });
}

void rlx_free(rlx_model *model) {
  if (!isHandle(model))
    return;
  model->word.store(0, std::memory_order_relaxed);
  delete model;
}

const char *rlx_error(const rlx_model *model) {
  return lastError.model == model ? lastError.text : "";
}

int32_t rlx_threads(const rlx_model *model) { return isHandle(model) ? model->model.threads : 0; }

size_t rlx_function_count(const rlx_model *model) {
  return isHandle(model) ? model->model.functions.size() : 0;
}

const char *rlx_function_name(const rlx_model *model, size_t function) {
  return function < rlx_function_count(model) ? model->model.functions[function]->spec.name.c_str()
                                              : nullptr;
}

size_t rlx_symbol_count(const rlx_model *model, size_t function) {
  return function < rlx_function_count(model)
             ? model->model.functions[function]->spec.symbols.size()
             : 0;
}

rlx_status rlx_describe_symbol(const rlx_model *model, size_t function, size_t index,
                               rlx_symbol *symbol) {
  return guarded(
      model, [&] { target(symbol, "a symbol") = modelOf(model).function(function).symbol(index); });
}

size_t rlx_buffer_count(const rlx_model *model, size_t function, rlx_kind kind) {
  return function < rlx_function_count(model) && size_t(kind) <= kOutput
             ? model->model.functions[function]->spec.buffers[kind].size()
             : 0;
}

rlx_status rlx_describe_buffer(const rlx_model *model, size_t function, rlx_kind kind, size_t index,
                               rlx_buffer *buffer) {
  return guarded(model, [&] {
    target(buffer, "a buffer") = modelOf(model).function(function).buffer(size_t(kind), index);
  });
}

rlx_status rlx_find_function(const rlx_model *model, const char *name, size_t *function) {
  return guarded(model, [&] {
    const Description &own = *modelOf(model).description;
    target(function, "the number of a function") =
        numberOf(name, own.functions, "'" + own.name + "' has no function");
  });
}

rlx_status rlx_find_buffer(const rlx_model *model, size_t function, rlx_kind kind, const char *name,
                           size_t *index) {
  return guarded(model, [&] {
    const FunctionSpec &own = modelOf(model).function(function).spec;
    if (size_t(kind) > kOutput)
      throw InputError("a kind is 0 (input), 1 (parameter) or 2 (output), but it is " +
                       std::to_string(int(kind)));
    target(index, "the number of a buffer") =
        numberOf(name, own.buffers[kind], "'" + own.name + "' has no " + kindName(size_t(kind)));
  });
}

rlx_status rlx_measure(const rlx_model *model, size_t function, rlx_kind kind, size_t index,
                       const int64_t *sizes, size_t size_count, int64_t *shape, size_t *bytes) {
  return guarded(model, [&] {
    const Function &own = modelOf(model).function(function);
    const Buffer &buffer = own.checkedBuffer(size_t(kind), index);
    const std::string name = own.spec.nameOf(size_t(kind), index);
    const std::vector<int64_t> checked = own.checkedSizes(sizes, size_count);
    const std::vector<int64_t> found = buffer.shape(checked, name);
    if (shape != nullptr)
      std::copy(found.begin(), found.end(), shape);
    if (bytes != nullptr)
      *bytes = buffer.bytes(checked, name);
  });
}

rlx_status rlx_set_parameter(rlx_model *model, size_t function, size_t index, const void *data,
                             size_t bytes) {
  return guarded(model,
                 [&] { modelOf(model).function(function).setParameter(index, data, bytes); });
}

rlx_status rlx_run(rlx_model *model, size_t function, const int64_t *sizes, size_t size_count,
                   const rlx_input *inputs, size_t input_count, const rlx_output *outputs,
                   size_t output_count) {
  return guarded(model, [&] {
    modelOf(model).function(function).run(sizes, size_count, inputs, input_count, outputs,
                                          output_count);
  });
}
