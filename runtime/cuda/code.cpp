// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "code.h"

#include "runtime/loader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

namespace rlx::runtime::cuda {
namespace {

using Kind = DeviceError::Kind;

//===----------------------------------------------------------------------===//
// What the driver's compiler says
//===----------------------------------------------------------------------===//

/// Buffers for messages of the compiler, as options of the functions that compile.
class JitLog {
public:
  unsigned count() const { return unsigned(options.size()); }
  int *keys() { return options.data(); }
  void **values() { return pointers.data(); }

  /// Throws what `result` stands for, with the compiler's messages.
  void check(const Driver &driver, int result, const std::string &what) const {
    if (result == kSuccess)
      return;
    std::string messages(errors, strnlen(errors, sizeof(errors)));
    while (!messages.empty() && std::isspace(static_cast<unsigned char>(messages.back())))
      messages.pop_back();
    driver.fail(result, messages.empty() ? what : what + ":\n" + messages + "\n");
  }

private:
  char errors[8192] = "";
  std::array<int, 2> options{kJitErrorLogBuffer, kJitErrorLogBufferSizeBytes};
  std::array<void *, 2> pointers{errors, reinterpret_cast<void *>(sizeof(errors))};
};

std::string tripleText(const int64_t *sizes) {
  return std::to_string(sizes[0]) + " x " + std::to_string(sizes[1]) + " x " +
         std::to_string(sizes[2]);
}

} // namespace

//===----------------------------------------------------------------------===//
// DeviceCode
//===----------------------------------------------------------------------===//

DeviceCode::DeviceCode(Device &device, std::string_view image,
                       const std::vector<std::string> &names)
    : owner(device) {
  Device::Scope scope(device);
  const Api &api = device.api;
  const Driver &driver = device.driver;
  const std::string text(image); // ends with a zero, as PTX has to
  JitLog log;
  log.check(driver,
            api.cuModuleLoadDataEx(&module, text.data(), log.count(), log.keys(), log.values()),
            "kernels cannot be loaded to GPU " + std::to_string(device.ordinal) + " (" +
                device.name + ")");
  try {
    for (const std::string &name : names) {
      const std::string what = "kernel '" + name + "' cannot be loaded";
      Kernel kernel{name, nullptr, -1, 0, 0, 0};
      driver.check(api.cuModuleGetFunction(&kernel.function, module, name.c_str()), what.c_str());
      auto attribute = [&](int which) {
        int value = 0;
        driver.check(api.cuFuncGetAttribute(&value, which, kernel.function), what.c_str());
        return int64_t(value);
      };
      kernel.staticShared = attribute(kSharedSizeBytes);
      kernel.dynamicShared = attribute(kMaxDynamicSharedSizeBytes);
      kernel.maxThreads = attribute(kMaxThreadsPerBlock);
      if (api.cuFuncGetParamInfo != nullptr) {
        size_t offset = 0, bytes = 0;
        kernel.parameters = 0;
        while (api.cuFuncGetParamInfo(kernel.function, size_t(kernel.parameters), &offset,
                                      &bytes) == kSuccess)
          ++kernel.parameters;
      }
      kernels.push_back(std::move(kernel));
    }
  } catch (...) {
    api.cuModuleUnload(module);
    throw;
  }
}

DeviceCode::~DeviceCode() {
  owner.release([&] { owner.api.cuModuleUnload(module); });
}

void DeviceCode::allowShared(size_t number, int64_t bytes) {
  Kernel &kernel = kernels[number];
  if (bytes <= kernel.dynamicShared)
    return;
  const std::string what = "kernel '" + kernel.name + "' asks for " + std::to_string(bytes) +
                           " bytes of dynamic shared memory";
  const int64_t most = owner.maxSharedBytes - kernel.staticShared;
  if (bytes > most)
    throw DeviceError(Kind::WrongDevice, what + ", but a block of GPU " +
                                             std::to_string(owner.ordinal) + " (" + owner.name +
                                             ") has " + std::to_string(most));
  const int result =
      owner.api.cuFuncSetAttribute(kernel.function, kMaxDynamicSharedSizeBytes, int(bytes));
  if (result != kSuccess)
    owner.driver.fail(result, what);
  kernel.dynamicShared = bytes;
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

namespace {

thread_local Launches *current = nullptr;

} // namespace

Launches::Launches(DeviceCode &code, StreamHandle stream, bool wait, bool early)
    : code(code), stream(stream), wait(wait), early(early), before(current) {
  current = this;
}

Launches::~Launches() { current = before; }

void Launches::check() {
  if (error)
    std::rethrow_exception(std::exchange(error, nullptr));
}

void Launches::launch(const int64_t *launch, void *const *params) {
  const auto [number, shared, flags, parameters] =
      std::array<int64_t, 4>{launch[0], launch[7], launch[8], launch[9]};
  const int64_t *grid = launch + 1, *block = launch + 4;
  if (number < 0 || size_t(number) >= code.kernelCount())
    throw ExecutionError("host code launches kernel " + std::to_string(number) + " of " +
                         std::to_string(code.kernelCount()));
  const DeviceCode::Kernel &kernel = code.kernel(size_t(number));
  auto what = [&] {
    return "kernel '" + kernel.name + "' (grid " + tripleText(grid) + ", block " +
           tripleText(block) + ", " + std::to_string(shared) + " bytes of shared memory)";
  };
  if (*std::min_element(grid, grid + 3) < 0 || *std::min_element(block, block + 3) < 1 ||
      grid[0] > std::numeric_limits<int32_t>::max() || std::max(grid[1], grid[2]) > 65535 ||
      *std::max_element(block, block + 3) > 1024 ||
      block[0] * block[1] * block[2] > kernel.maxThreads || shared < 0 || (flags & ~1) != 0)
    throw ExecutionError(what() +
                         ": a grid has at most 2147483647 x 65535 x 65535 blocks, a block "
                         "from 1 to " +
                         std::to_string(kernel.maxThreads) + " threads; flags are " +
                         std::to_string(flags));
  if (kernel.parameters >= 0 && parameters != kernel.parameters)
    throw ExecutionError(what() + ": host code passes " + std::to_string(parameters) + " of " +
                         std::to_string(kernel.parameters) + " parameters");
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0)
    return;
  code.allowShared(size_t(number), shared);

  const bool programmatic = flags != 0 && early;
  asked |= programmatic;
  LaunchAttribute attribute;
  std::memset(&attribute, 0, sizeof(attribute));
  attribute.id = kProgrammaticStreamSerialization;
  attribute.value.number = 1;
  const LaunchConfig config{unsigned(grid[0]),
                            unsigned(grid[1]),
                            unsigned(grid[2]),
                            unsigned(block[0]),
                            unsigned(block[1]),
                            unsigned(block[2]),
                            unsigned(shared),
                            stream,
                            programmatic ? &attribute : nullptr,
                            programmatic ? 1u : 0u};
  const Device &device = code.device();
  int result =
      device.api.cuLaunchKernelEx(&config, kernel.function, const_cast<void **>(params), nullptr);
  refused = result != kSuccess && programmatic;
  if (result == kSuccess && wait)
    result = device.api.cuStreamSynchronize(stream);
  if (result != kSuccess)
    device.driver.fail(result, what());
}

void Launches::checkCounts(const int64_t *counts, const char *names) const {
  const int64_t most = counts[2], *values = counts + 3;
  for (int64_t i = 0; i < counts[1]; ++i, names += std::strlen(names) + 1) {
    if (values[i] >= 0 && values[i] <= most)
      continue;
    const size_t number = size_t(counts[0]);
    const std::string kernel =
        number < code.kernelCount() ? code.kernel(number).name : std::to_string(counts[0]);
    throw ExecutionError("kernel '" + kernel + "': size '" + names + "' is " +
                         std::to_string(values[i]) + ", but may be at most " +
                         std::to_string(most));
  }
}

void Launches::tensorMap(void *map, void *address, const int64_t *spec) {
  const Device &device = code.device();
  const int64_t rank = spec[1];
  if (rank < 1 || rank > 5)
    throw ExecutionError("a tensor map has from 1 to 5 dimensions, but host code asks for " +
                         std::to_string(rank));
  const int64_t *sizes = spec + 5, *strides = sizes + rank, *boxes = strides + rank - 1;
  if (std::find(sizes, sizes + rank, 0) != sizes + rank) {
    std::memset(map, 0, 128);
    return;
  }
  auto what = [&] {
    std::string text = "tensor map (element type " + std::to_string(spec[0]) + ", swizzle " +
                       std::to_string(spec[2]) + ", address " +
                       std::to_string(reinterpret_cast<uintptr_t>(address)) + ", sizes";
    for (int64_t i = 0; i < rank; ++i)
      text += " " + std::to_string(sizes[i]);
    text += ", strides";
    for (int64_t i = 0; i + 1 < rank; ++i)
      text += " " + std::to_string(strides[i]);
    text += ", box";
    for (int64_t i = 0; i < rank; ++i)
      text += " " + std::to_string(boxes[i]);
    return text + ", the innermost dimension first)";
  };
  constexpr int64_t most = int64_t(1) << 31;
  bool fits = reinterpret_cast<uintptr_t>(address) % 16 == 0;
  for (int64_t i = 0; i < rank; ++i)
    fits &= sizes[i] > 0 && sizes[i] <= most && boxes[i] > 0 && boxes[i] <= 256;
  for (int64_t i = 0; i + 1 < rank; ++i)
    fits &= strides[i] >= 0 && strides[i] % 16 == 0 && strides[i] < (int64_t(1) << 40);
  if (!fits)
    throw ExecutionError(what() +
                         ": addresses and strides are multiples of 16 bytes, strides below "
                         "2^40, sizes from 1 to 2^31, boxes from 1 to 256");
  if (device.api.cuTensorMapEncodeTiled == nullptr)
    throw DeviceError(Kind::DriverTooOld,
                      "the driver " + device.driver.path + " has no function for tensor maps");
  uint64_t ownSizes[5], ownStrides[5];
  uint32_t box[5], steps[5];
  for (int64_t i = 0; i < rank; ++i) {
    ownSizes[i] = uint64_t(sizes[i]);
    ownStrides[i] = i + 1 < rank ? uint64_t(strides[i]) : 0;
    box[i] = uint32_t(boxes[i]);
    steps[i] = 1;
  }
  const int result = device.api.cuTensorMapEncodeTiled(
      map, int(spec[0]), uint32_t(rank), address, ownSizes, ownStrides, box, steps,
      /*interleave=*/0, int(spec[2]), int(spec[3]), int(spec[4]));
  if (result != kSuccess)
    device.driver.fail(result, what());
}

namespace {

/// Calls `action` on what this thread launches to, and keeps what it throws.
template <typename Action> void guarded(std::exception_ptr &error, Action action) noexcept {
  if (error)
    return;
  try {
    action();
  } catch (...) {
    error = std::current_exception();
  }
}

} // namespace

void launchKernel(const int64_t *launch, void *const *params) noexcept {
  // Nobody but a plan calls compiled host code.
  if (Launches *own = current)
    guarded(own->error, [&] { own->launch(launch, params); });
}

void encodeTensorMap(void *map, void *address, const int64_t *spec) noexcept {
  if (Launches *own = current)
    guarded(own->error, [&] { own->tensorMap(map, address, spec); });
}

void checkCounts(const int64_t *counts, const char *names) noexcept {
  if (Launches *own = current)
    guarded(own->error, [&] { own->checkCounts(counts, names); });
}

std::vector<HostSymbol> hostSymbols() {
  return {{"rlx_cuda_launch", reinterpret_cast<void *>(launchKernel)},
          {"rlx_cuda_check_counts", reinterpret_cast<void *>(checkCounts)},
          {"rlx_cuda_tensor_map", reinterpret_cast<void *>(encodeTensorMap)}};
}

} // namespace rlx::runtime::cuda
