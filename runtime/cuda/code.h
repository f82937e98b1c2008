// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels on a GPU, and the functions by which compiled host code launches them.
#ifndef RLX_RUNTIME_CUDA_CODE_H
#define RLX_RUNTIME_CUDA_CODE_H

#include "device.h"

#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace rlx::runtime {
struct HostSymbol;
}

namespace rlx::runtime::cuda {

/// Kernels that are loaded to a GPU.
class DeviceCode {
public:
  /// Loads PTX or a cubin, and looks up its kernels. Throws DeviceError, with what the driver's
  /// compiler says, where that fails.
  DeviceCode(Device &device, std::string_view image, const std::vector<std::string> &kernels);
  ~DeviceCode();
  DeviceCode(const DeviceCode &) = delete;
  DeviceCode &operator=(const DeviceCode &) = delete;

  struct Kernel {
    std::string name;
    FunctionHandle function;
    int64_t parameters;                  // -1 where the driver doesn't tell
    int64_t staticShared, dynamicShared; // bytes of a block; the second is what may be asked for
    int64_t maxThreads;                  // of a block
  };

  Device &device() const { return owner; }
  size_t kernelCount() const { return kernels.size(); }
  const Kernel &kernel(size_t number) const { return kernels[number]; }
  /// Lets launches of a kernel ask for as much dynamic shared memory. Throws DeviceError where a
  /// block of this GPU has less. The caller holds the context, and launches from one thread.
  void allowShared(size_t number, int64_t bytes);

private:
  Device &owner;
  ModuleHandle module = nullptr;
  std::vector<Kernel> kernels;
};

/// What the launches of one thread go to. The functions that host code calls can't throw through
/// it: the first error is kept here, and launches after it do nothing.
class Launches {
public:
  /// Launches of this thread go to `stream`, until the object is gone. `wait`: after each launch
  /// for its end, so that errors are of the kernel that makes them. `early`: kernels may start
  /// before their predecessors' ends.
  Launches(DeviceCode &code, StreamHandle stream, bool wait, bool early);
  ~Launches();
  Launches(const Launches &) = delete;
  Launches &operator=(const Launches &) = delete;

  /// Throws the error that was kept, if there is one.
  void check();
  /// Whether that is of a launch that may start early.
  bool refusedEarly() const { return refused; }
  /// Whether any launch was of that kind.
  bool askedEarly() const { return asked; }

private:
  friend void launchKernel(const int64_t *, void *const *) noexcept;
  friend void encodeTensorMap(void *, void *, const int64_t *) noexcept;
  friend void checkCounts(const int64_t *, const char *) noexcept;
  void launch(const int64_t *launch, void *const *params);
  void tensorMap(void *map, void *address, const int64_t *spec);
  void checkCounts(const int64_t *counts, const char *names) const;

  DeviceCode &code;
  const StreamHandle stream;
  const bool wait, early;
  bool refused = false, asked = false;
  Launches *const before; // of this thread
  std::exception_ptr error;
};

/// The functions that compiled host code calls, by the names that it has for them:
///
///     void rlx_cuda_launch(const int64_t *launch, void *const *params)
///
/// launches a kernel. `launch` is its number, the grid (x, y, z), the block (x, y, z), bytes of
/// dynamic shared memory, flags and the number of parameters; each of `params` points to a value.
/// Flag 1 starts the kernel before its predecessor's end (programmatic dependent launch). A grid
/// of no blocks launches nothing.
///
///     void rlx_cuda_tensor_map(void *map, void *address, const int64_t *spec)
///
/// writes the 128 bytes by which kernels copy boxes of a tensor in device memory. `spec` is the
/// element type, the rank, swizzle, promotion to L2 and the fill outside of the tensor, as the
/// driver numbers them, then sizes (elements), strides (bytes, but of the first dimension) and the
/// box (elements), the innermost dimension first. The map of a tensor without elements is zeros.
///
///     void rlx_cuda_check_counts(const int64_t *counts, const char *names)
///
/// makes sizes that are too large for a kernel, which counts in 32 bits, an error before it is
/// launched. `counts` is the kernel's number, how many sizes there are, the largest that is
/// allowed, and the sizes; `names` are theirs, each of which a zero ends.
std::vector<HostSymbol> hostSymbols();

} // namespace rlx::runtime::cuda

#endif // RLX_RUNTIME_CUDA_CODE_H
