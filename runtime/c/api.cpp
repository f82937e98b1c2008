// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions of `include/rlx.h`, but for how a handle comes about.
#define RLX_PREFIX rlx
#include "api.h"

#include "runtime/utf8.h"

#include <algorithm>
#include <cstring>
#include <string_view>

using namespace rlx::runtime;
using namespace rlx::runtime::c;

namespace rlx::runtime::c {
namespace {

/// What this thread's last call that failed has to say, and of which handle.
struct LastError {
  const rlx_model *model;
  char text[2048];
};
thread_local LastError lastError = {nullptr, ""};

/// What handles of this library begin with, and none of another one or that was freed.
uint64_t handleWord() {
  static const char own = 0; // each library has one
  return 0x6c65646f6d786c72 ^ uint64_t(reinterpret_cast<uintptr_t>(&own));
}

} // namespace

rlx_status failed(const rlx_model *model, rlx_status status, const char *text) {
  lastError.model = model;
  // What files say is in texts: these stay UTF-8, and end with a whole character.
  const std::string_view given(text);
  size_t filled = 0;
  uint32_t code;
  for (size_t at = 0, count; at < given.size(); at += count) {
    const size_t valid = readUtf8(given, at, code);
    count = valid == 0 ? 1 : valid;
    if (filled + count >= sizeof(lastError.text))
      break;
    std::memcpy(lastError.text + filled, valid == 0 ? "?" : text + at, count);
    filled += count;
  }
  lastError.text[filled] = '\0';
  return status;
}

bool isHandle(const rlx_model *model) {
  return model != nullptr && reinterpret_cast<uintptr_t>(model) % alignof(rlx_model) == 0 &&
         model->word.load(std::memory_order_relaxed) == handleWord();
}

Model &modelOf(const rlx_model *model) {
  if (!isHandle(model))
    throw InputError(model == nullptr ? "the handle is null"
                                      : "the handle isn't one of this library, or was freed");
  return *model->model;
}

rlx_model *newHandle(std::unique_ptr<Model> model) {
  return new rlx_model{{handleWord()}, std::move(model)};
}

void checkVersion(uint32_t given, uint32_t own) {
  if (given != own)
    throw InputError("the library has version " + std::to_string(own) +
                     " of its interface, but the program was compiled for version " +
                     std::to_string(given));
}

} // namespace rlx::runtime::c

namespace {

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

} // namespace

uint32_t rlx_abi_version(void) { return RLX_ABI_VERSION; }

void rlx_free(rlx_model *model) {
  if (!isHandle(model))
    return;
  model->word.store(0, std::memory_order_relaxed);
  delete model;
}

const char *rlx_error(const rlx_model *model) {
  return lastError.model == model ? lastError.text : "";
}

int32_t rlx_threads(const rlx_model *model) { return isHandle(model) ? model->model->threads : 0; }

size_t rlx_function_count(const rlx_model *model) {
  return isHandle(model) ? model->model->functions.size() : 0;
}

const char *rlx_function_name(const rlx_model *model, size_t function) {
  return function < rlx_function_count(model) ? model->model->functions[function]->spec.name.c_str()
                                              : nullptr;
}

size_t rlx_symbol_count(const rlx_model *model, size_t function) {
  return function < rlx_function_count(model)
             ? model->model->functions[function]->spec.symbols.size()
             : 0;
}

rlx_status rlx_describe_symbol(const rlx_model *model, size_t function, size_t index,
                               rlx_symbol *symbol) {
  return guarded(
      model, [&] { target(symbol, "a symbol") = modelOf(model).function(function).symbol(index); });
}

size_t rlx_buffer_count(const rlx_model *model, size_t function, rlx_kind kind) {
  return function < rlx_function_count(model) && size_t(kind) <= kOutput
             ? model->model->functions[function]->spec.buffers[kind].size()
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
