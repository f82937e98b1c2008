// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "device.h"

#include "runtime/pool.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <mutex>

namespace rlx::runtime::cuda {
namespace {

using Kind = DeviceError::Kind;

Kind kindOf(int result) {
  switch (result) {
  case kOutOfMemory:
    return Kind::Memory;
  case kNoDevice:
  case kInvalidDevice:
    return Kind::NoDevice;
  case kStubLibrary:
    return Kind::DriverMissing;
  case kNeedsNewerDriver:
  case kUnsupportedPtxVersion:
  case kSystemDriverMismatch:
  case kCompatNotSupported:
    return Kind::DriverTooOld;
  case kNoBinaryForGpu:
    return Kind::WrongDevice;
  case kUncorrectableEcc:
  case kUncorrectableNvlink:
  case kContained:
  case kIllegalAddress:
  case kLaunchTimeout:
  case kAssert:
  case kHardwareStackError:
  case kIllegalInstruction:
  case kMisalignedAddress:
  case kInvalidAddressSpace:
  case kInvalidPc:
  case kLaunchFailed:
  case kTensorMemoryLeak:
  case kMpsClientTerminated:
    return Kind::Fault;
  default:
    return Kind::Other;
  }
}

std::string versionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Reads a library's functions into `api`; the name of a required one that is missing, or "".
std::string readFunctions(void *library, Api &api) {
  std::string missing;
  auto read = [&](auto &function, const char *symbol, bool required) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
    if (function == nullptr && required && missing.empty())
      missing = symbol;
  };
#define RLX_CUDA_READ(name, symbol, ...) read(api.name, symbol, true);
  RLX_CUDA_REQUIRED(RLX_CUDA_READ)
#undef RLX_CUDA_READ
#define RLX_CUDA_READ(name, symbol, ...) read(api.name, symbol, false);
  RLX_CUDA_OPTIONAL(RLX_CUDA_READ)
#undef RLX_CUDA_READ
  return missing;
}

/// Guards the drivers and devices below, which are never destroyed.
ForkSafeMutex &registryMutex() {
  static auto *mutex = new ForkSafeMutex;
  return *mutex;
}

} // namespace

//===----------------------------------------------------------------------===//
// Driver
//===----------------------------------------------------------------------===//

Driver::Driver(const Api &api, std::string path, int version)
    : api(api), path(std::move(path)), version(version), generation(forkGeneration()) {}

Driver &Driver::open() {
  static auto *drivers = new std::map<std::string, std::unique_ptr<Driver>>;
  const char *own = std::getenv("RLX_CUDA_DRIVER");
  const std::string path = own != nullptr && *own != '\0' ? own : "libcuda.so.1";
  std::lock_guard<ForkSafeMutex> guard(registryMutex());
  if (auto found = drivers->find(path); found != drivers->end()) {
    found->second->checkUsable();
    return *found->second;
  }
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw DeviceError(Kind::DriverMissing,
                      std::string("NVIDIA's driver cannot be loaded: ") + dlerror());
  // From here on the library stays loaded: it may have started threads.
  Api api;
  if (std::string missing = readFunctions(library, api); !missing.empty())
    throw DeviceError(Kind::DriverTooOld, "the driver " + path + " has no function " + missing +
                                              ": release 525 (CUDA 12.0) or later is needed");
  int version = 0;
  const int versionResult = api.cuDriverGetVersion(&version);
  std::unique_ptr<Driver> driver(new Driver(api, path, version));
  driver->check(versionResult, "the driver doesn't tell its version");
  driver->check(api.cuInit(0), "the driver cannot be initialised");
  if (version < 12000)
    throw DeviceError(Kind::DriverTooOld, "the driver " + path + " is for CUDA " +
                                              versionText(version) + ", but 12.0 is needed");
  return *(drivers->emplace(path, std::move(driver)).first->second);
}

bool Driver::isUsable() const { return generation == forkGeneration(); }

void Driver::checkUsable() const {
  if (!isUsable())
    throw DeviceError(Kind::Other,
                      "this process was forked after its parent had used the GPU, which it cannot "
                      "use: start processes by 'spawn', or use the GPU in the child alone");
}

int Driver::deviceCount() const {
  checkUsable();
  int count = 0;
  check(api.cuDeviceGetCount(&count), "the driver doesn't tell how many GPUs there are");
  return count;
}

std::string Driver::describe(int result) const {
  const char *name = nullptr, *text = nullptr;
  if (api.cuGetErrorName(result, &name) != kSuccess || name == nullptr)
    return "error " + std::to_string(result);
  if (api.cuGetErrorString(result, &text) != kSuccess || text == nullptr)
    return name;
  return std::string(name) + " (" + text + ")";
}

void Driver::fail(int result, const std::string &what) const {
  const Kind kind = kindOf(result);
  std::string message = what + ": " + describe(result);
  if (kind == Kind::DriverTooOld)
    message += "; the driver " + path + " is for CUDA " + versionText(version);
  if (kind == Kind::Fault)
    message += "; this process can't use the GPU any more";
  const char *name = nullptr;
  if (api.cuGetErrorName(result, &name) != kSuccess || name == nullptr)
    name = "";
  throw DeviceError(kind, message, name);
}

//===----------------------------------------------------------------------===//
// Device
//===----------------------------------------------------------------------===//

Device::Device(Driver &driver, int ordinal) : driver(driver), api(driver.api), ordinal(ordinal) {
  const std::string what = "GPU " + std::to_string(ordinal) + " cannot be used";
  int device = 0;
  auto attribute = [&](int which) {
    int value = 0;
    driver.check(api.cuDeviceGetAttribute(&value, which, device), what.c_str());
    return value;
  };
  driver.check(api.cuDeviceGet(&device, ordinal), what.c_str());
  char text[256] = "";
  driver.check(api.cuDeviceGetName(text, sizeof(text) - 1, device), what.c_str());
  name = text;
  major = attribute(kComputeCapabilityMajor);
  minor = attribute(kComputeCapabilityMinor);
  multiprocessors = attribute(kMultiprocessorCount);
  maxSharedBytes = attribute(kMaxSharedMemoryPerBlockOptin);
  driver.check(api.cuDeviceTotalMem(&totalBytes, device), what.c_str());
  driver.check(api.cuDevicePrimaryCtxRetain(&context, device), what.c_str());
}

Device &Device::open(int ordinal) {
  static auto *devices = new std::map<std::pair<Driver *, int>, std::unique_ptr<Device>>;
  Driver &driver = Driver::open();
  const int count = driver.deviceCount();
  if (ordinal < 0 || ordinal >= count)
    throw DeviceError(Kind::NoDevice, "there is no GPU " + std::to_string(ordinal) +
                                          ": the driver " + driver.path + " shows " +
                                          (count == 0 ? "none" : std::to_string(count)) +
                                          (count > 0 ? ", from 0 on" : ""));
  std::lock_guard<ForkSafeMutex> guard(registryMutex());
  auto &device = (*devices)[{&driver, ordinal}];
  if (device == nullptr)
    device.reset(new Device(driver, ordinal));
  return *device;
}

std::pair<size_t, size_t> Device::memory() const {
  Scope scope(*this);
  size_t free = 0, total = 0;
  driver.check(api.cuMemGetInfo(&free, &total), "the driver doesn't tell how much memory is free");
  return {free, total};
}

Device::Scope::Scope(const Device &device) : device(device) {
  device.driver.checkUsable();
  device.driver.check(device.api.cuCtxPushCurrent(device.context), "the GPU cannot be selected");
  device.api.cuThreadExchangeStreamCaptureMode(&captureMode);
}

Device::Scope::~Scope() {
  device.api.cuThreadExchangeStreamCaptureMode(&captureMode);
  ContextHandle popped;
  device.api.cuCtxPopCurrent(&popped);
}

/// A copy from pageable memory may return before its bytes have arrived, and streams that plans run
/// on don't wait for it: this does.
template <typename Start> void Device::transfer(size_t bytes, const char *what, Start start) {
  Scope scope(*this);
  if (bytes == 0)
    return;
  driver.check(start(), what);
  driver.check(api.cuStreamSynchronize(nullptr), what);
}

void Device::write(Address to, const void *from, size_t bytes) {
  transfer(bytes, "memory cannot be copied to the GPU",
           [&] { return api.cuMemcpyHtoDAsync(to, from, bytes, nullptr); });
}

void Device::read(void *to, Address from, size_t bytes) {
  transfer(bytes, "memory cannot be copied from the GPU",
           [&] { return api.cuMemcpyDtoHAsync(to, from, bytes, nullptr); });
}

void Device::copy(Address to, Address from, size_t bytes) {
  transfer(bytes, "memory cannot be copied on the GPU",
           [&] { return api.cuMemcpyDtoDAsync(to, from, bytes, nullptr); });
}

void Device::clear(Address from, size_t bytes) {
  transfer(bytes, "the GPU's memory cannot be cleared",
           [&] { return api.cuMemsetD8Async(from, 0, bytes, nullptr); });
}

void Device::synchronize(StreamHandle stream) {
  Scope scope(*this);
  driver.check(api.cuStreamSynchronize(stream), "a stream cannot be waited for");
}

void Device::checkOutsideCapture(StreamHandle stream) const {
  Scope scope(*this);
  int status = kNotCapturing;
  driver.check(api.cuStreamIsCapturing(stream, &status), "a stream cannot be used");
  if (status != kNotCapturing)
    throw InputError("a run cannot be a part of a CUDA graph: the stream that it is ordered by is "
                     "being captured");
}

int Device::ordinalOf(Address address) const {
  Scope scope(*this);
  int found = 0;
  const int result = api.cuPointerGetAttribute(&found, kDeviceOrdinal, address);
  if (result == kInvalidValue)
    return -1;
  driver.check(result, "the driver doesn't tell whose memory an array is");
  return found;
}

void Device::order(StreamHandle before, StreamHandle after) {
  if (before == after)
    return;
  Scope scope(*this);
  const char *what = "a stream cannot wait for another one";
  Event(*this, before, what).hold(after, what);
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

Event::Event(Device &device, StreamHandle stream, const char *what) : owner(device) {
  device.driver.check(device.api.cuEventCreate(&event, kEventDisableTiming), what);
  const int result = device.api.cuEventRecord(event, stream);
  if (result != kSuccess) {
    device.api.cuEventDestroy(event);
    device.driver.fail(result, what);
  }
}

Event::~Event() {
  owner.release([&] { owner.api.cuEventDestroy(event); });
}

void Event::record(StreamHandle stream, const char *what) {
  owner.driver.check(owner.api.cuEventRecord(event, stream), what);
}

void Event::hold(StreamHandle stream, const char *what) const {
  owner.driver.check(owner.api.cuStreamWaitEvent(stream, event, 0), what);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

namespace {

/// Throws what a failed allocation means; of too little memory, with the numbers.
[[noreturn]] void failAllocation(const Device &device, int result, size_t bytes, const char *where,
                                 const std::string &what) {
  const std::string wanted =
      "cannot have " + std::to_string(bytes) + " bytes of " + where + " for " + what;
  if (result != kOutOfMemory)
    device.driver.fail(result, wanted);
  size_t free = 0, total = 0;
  const bool known = device.api.cuMemGetInfo(&free, &total) == kSuccess;
  DeviceError error(Kind::Memory,
                    wanted + (known ? ": " + std::to_string(free) + " of the " +
                                          std::to_string(total) + " bytes of the GPU's are free"
                                    : ": " + device.driver.describe(result)),
                    "CUDA_ERROR_OUT_OF_MEMORY");
  error.requested = bytes;
  error.free = free;
  error.total = total;
  throw error;
}

} // namespace

DeviceMemory::DeviceMemory(Device &device, size_t bytes, const std::string &what)
    : owner(device), size(bytes) {
  Device::Scope scope(device);
  // Nobody reads memory of no bytes, but it has an address.
  const int result = device.api.cuMemAlloc(&start, std::max<size_t>(bytes, 1));
  if (result != kSuccess)
    failAllocation(device, result, bytes, "the GPU's memory", what);
  device.allocatedBytes += int64_t(bytes);
}

DeviceMemory::~DeviceMemory() {
  owner.allocatedBytes -= int64_t(size);
  owner.release([&] { owner.api.cuMemFree(start); });
}

PinnedMemory::PinnedMemory(Device &device, size_t bytes, const std::string &what)
    : owner(device), size(bytes) {
  Device::Scope scope(device);
  void *address = nullptr;
  const int result = device.api.cuMemHostAlloc(&address, std::max<size_t>(bytes, 1), 0);
  if (result != kSuccess)
    failAllocation(device, result, bytes, "pinned memory of the host", what);
  start = static_cast<std::byte *>(address);
  device.pinnedBytes += int64_t(bytes);
}

PinnedMemory::~PinnedMemory() {
  owner.pinnedBytes -= int64_t(size);
  owner.release([&] { owner.api.cuMemFreeHost(start); });
}

} // namespace rlx::runtime::cuda
