// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NVIDIA's driver, GPUs, and memory on them.
#ifndef RLX_RUNTIME_CUDA_DEVICE_H
#define RLX_RUNTIME_CUDA_DEVICE_H

#include "api.h"
#include "error.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace rlx::runtime::cuda {

/// The driver's library, loaded and initialised. Lives as long as the process.
class Driver {
public:
  /// The library that the environment's RLX_CUDA_DRIVER names, libcuda.so.1 where it says nothing.
  /// Throws DeviceError where it cannot be loaded, lacks a function, or finds no GPU.
  static Driver &open();

  const Api api;
  const std::string path;
  const int version; // 12080 for 12.8

  int deviceCount() const;

  /// Throws the DeviceError that `result` stands for, unless it is a success. `what` failed.
  void check(int result, const char *what) const {
    if (result != kSuccess)
      fail(result, what);
  }
  [[noreturn]] void fail(int result, const std::string &what) const;
  /// "CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)"
  std::string describe(int result) const;
  /// Whether this process is the one that loaded the driver: a forked one can't use it.
  bool isUsable() const;
  void checkUsable() const;

private:
  Driver(const Api &api, std::string path, int version);
  const uint64_t generation; // of forks
};

/// A GPU and its primary context, which other libraries of the process share. Lives as long as the
/// process.
class Device {
public:
  /// Throws DeviceError where there is no GPU of this number.
  static Device &open(int ordinal);

  Driver &driver;
  const Api &api;
  const int ordinal;
  std::string name;
  int major = 0, minor = 0; // compute capability
  int multiprocessors = 0;
  int maxSharedBytes = 0; // of a block
  size_t totalBytes = 0;
  /// Of memory that this process has from here: on the GPU, and pinned on the host.
  std::atomic<int64_t> allocatedBytes{0}, pinnedBytes{0};

  /// (free, total) bytes of the GPU's memory.
  std::pair<size_t, size_t> memory() const;

  /// Copy or clear memory of the GPU, after everything in its default stream, and wait for the end.
  void write(Address to, const void *from, size_t bytes);
  void read(void *to, Address from, size_t bytes);
  void copy(Address to, Address from, size_t bytes);
  void clear(Address from, size_t bytes);
  /// Waits for what other users of the GPU put into a stream.
  void synchronize(StreamHandle stream);
  /// Throws InputError where a stream is being captured to a graph: whatever is ordered by it would
  /// become a part of the graph, or end the capture.
  void checkOutsideCapture(StreamHandle stream) const;
  /// The number of the GPU whose memory an address is; -1 where it is memory of none.
  int ordinalOf(Address address) const;
  /// Lets a stream wait for what another one holds by now. Nobody waits here.
  void order(StreamHandle before, StreamHandle after);

  /// Makes the context current in this thread, and the one before it again at the end. What others
  /// capture in other threads doesn't matter to calls meanwhile, nor they to that.
  class Scope {
  public:
    /// Throws DeviceError where that is impossible, as in a forked process.
    explicit Scope(const Device &device);
    ~Scope();
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

  private:
    const Device &device;
    int captureMode = kCaptureThreadLocal; // then the one before it
  };

  /// The same where what fails is ignored, in destructors.
  template <typename Release> void release(Release call) const noexcept {
    if (!driver.isUsable() || api.cuCtxPushCurrent(context) != kSuccess)
      return;
    int captureMode = kCaptureThreadLocal;
    api.cuThreadExchangeStreamCaptureMode(&captureMode);
    call();
    api.cuThreadExchangeStreamCaptureMode(&captureMode);
    ContextHandle popped;
    api.cuCtxPopCurrent(&popped);
  }

private:
  Device(Driver &driver, int ordinal);
  template <typename Start> void transfer(size_t bytes, const char *what, Start start);
  ContextHandle context = nullptr;
};

/// Memory on a GPU, aligned to 256 bytes.
class DeviceMemory {
public:
  /// Throws DeviceError of kind Memory, which names `what` it is for, where there isn't enough.
  DeviceMemory(Device &device, size_t bytes, const std::string &what);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory &) = delete;
  DeviceMemory &operator=(const DeviceMemory &) = delete;

  Device &device() const { return owner; }
  Address address() const { return start; }
  size_t bytes() const { return size; }

private:
  Device &owner;
  const size_t size;
  Address start = 0;
};

/// A mark in a stream that can be waited for.
class Event {
public:
  Event(Device &device, StreamHandle stream, const char *what);
  ~Event();
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;

  /// Puts the mark at the stream's end, once more.
  void record(StreamHandle stream, const char *what);
  /// Lets a stream wait for the mark.
  void hold(StreamHandle stream, const char *what) const;
  EventHandle handle() const { return event; }

private:
  Device &owner;
  EventHandle event = nullptr;
};

/// Memory of the host that copies to and from a GPU are fastest with.
class PinnedMemory {
public:
  PinnedMemory(Device &device, size_t bytes, const std::string &what);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory &) = delete;
  PinnedMemory &operator=(const PinnedMemory &) = delete;
  std::byte *data() const { return start; }

private:
  Device &owner;
  const size_t size;
  std::byte *start = nullptr;
};

} // namespace rlx::runtime::cuda

#endif // RLX_RUNTIME_CUDA_DEVICE_H
