// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of NVIDIA's driver interface that is used, as its ABI has it: no toolkit is needed to
// build this. Each function of `Api` has the name that it has in the library.
#ifndef RLX_RUNTIME_CUDA_API_H
#define RLX_RUNTIME_CUDA_API_H

#include <cstddef>
#include <cstdint>

namespace rlx::runtime::cuda {

using Address = uint64_t; // of device memory

// What the driver hands out, to be given back to it.
using ContextHandle = struct ContextOpaque *;
using ModuleHandle = struct ModuleOpaque *;
using FunctionHandle = struct FunctionOpaque *;
using StreamHandle = struct StreamOpaque *;
using EventHandle = struct EventOpaque *;
using GraphHandle = struct GraphOpaque *;
using GraphExecHandle = struct GraphExecOpaque *;

/// Results that are told apart.
enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kStubLibrary = 34,
  kNeedsNewerDriver = 36,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kNoBinaryForGpu = 209,
  kUncorrectableEcc = 214,
  kUncorrectableNvlink = 220,
  kUnsupportedPtxVersion = 222,
  kContained = 226,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kAssert = 710,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
  kLaunchFailed = 719,
  kTensorMemoryLeak = 721,
  kSystemDriverMismatch = 803,
  kCompatNotSupported = 804,
  kMpsClientTerminated = 810,
};

enum DeviceAttribute : int {
  kMultiprocessorCount = 16,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryPerBlockOptin = 97,
};

enum FunctionAttribute : int {
  kMaxThreadsPerBlock = 0,
  kSharedSizeBytes = 1, // static shared memory
  kMaxDynamicSharedSizeBytes = 8,
};

enum PointerAttribute : int {
  kDeviceOrdinal = 9,
};

enum JitOption : int {
  kJitErrorLogBuffer = 5,
  kJitErrorLogBufferSizeBytes = 6,
};

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDefault = 0;
constexpr unsigned kEventDisableTiming = 2;
constexpr int kCaptureThreadLocal = 1;
constexpr int kNotCapturing = 0;

/// An attribute of a launch; `value` is a union of 64 bytes.
struct LaunchAttribute {
  int id;
  int padding;
  union {
    int number;
    char bytes[64];
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72);
constexpr int kProgrammaticStreamSerialization = 6;
/// The first version whose graphs have edges for that; before, captured launches do without.
constexpr int kProgrammaticEdges = 12030;

struct LaunchConfig {
  unsigned gridX, gridY, gridZ;
  unsigned blockX, blockY, blockZ;
  unsigned sharedBytes;
  StreamHandle stream;
  LaunchAttribute *attributes;
  unsigned attributeCount;
};
static_assert(sizeof(LaunchConfig) == 56);

/// The functions: name in `Api`, symbol in the library, parameters. All return a Result.
#define RLX_CUDA_REQUIRED(X)                                                                       \
  X(cuInit, "cuInit", unsigned)                                                                    \
  X(cuDriverGetVersion, "cuDriverGetVersion", int *)                                               \
  X(cuGetErrorName, "cuGetErrorName", int, const char **)                                          \
  X(cuGetErrorString, "cuGetErrorString", int, const char **)                                      \
  X(cuDeviceGetCount, "cuDeviceGetCount", int *)                                                   \
  X(cuDeviceGet, "cuDeviceGet", int *, int)                                                        \
  X(cuDeviceGetName, "cuDeviceGetName", char *, int, int)                                          \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute", int *, int, int)                                 \
  X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", size_t *, int)                                        \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", ContextHandle *, int)                    \
  X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", ContextHandle)                                        \
  X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", ContextHandle *)                                        \
  X(cuMemGetInfo, "cuMemGetInfo_v2", size_t *, size_t *)                                           \
  X(cuMemAlloc, "cuMemAlloc_v2", Address *, size_t)                                                \
  X(cuMemFree, "cuMemFree_v2", Address)                                                            \
  X(cuPointerGetAttribute, "cuPointerGetAttribute", void *, int, Address)                          \
  X(cuMemHostAlloc, "cuMemHostAlloc", void **, size_t, unsigned)                                   \
  X(cuMemFreeHost, "cuMemFreeHost", void *)                                                        \
  X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", Address, const void *, size_t, StreamHandle)        \
  X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", void *, Address, size_t, StreamHandle)              \
  X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", Address, Address, size_t, StreamHandle)             \
  X(cuMemsetD8Async, "cuMemsetD8Async", Address, unsigned char, size_t, StreamHandle)              \
  X(cuStreamCreate, "cuStreamCreate", StreamHandle *, unsigned)                                    \
  X(cuStreamDestroy, "cuStreamDestroy_v2", StreamHandle)                                           \
  X(cuStreamSynchronize, "cuStreamSynchronize", StreamHandle)                                      \
  X(cuStreamWaitEvent, "cuStreamWaitEvent", StreamHandle, EventHandle, unsigned)                   \
  X(cuStreamBeginCapture, "cuStreamBeginCapture_v2", StreamHandle, int)                            \
  X(cuStreamEndCapture, "cuStreamEndCapture", StreamHandle, GraphHandle *)                         \
  X(cuStreamIsCapturing, "cuStreamIsCapturing", StreamHandle, int *)                               \
  X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", int *)                 \
  X(cuGraphInstantiate, "cuGraphInstantiateWithFlags", GraphExecHandle *, GraphHandle,             \
    unsigned long long)                                                                            \
  X(cuGraphLaunch, "cuGraphLaunch", GraphExecHandle, StreamHandle)                                 \
  X(cuGraphDestroy, "cuGraphDestroy", GraphHandle)                                                 \
  X(cuGraphExecDestroy, "cuGraphExecDestroy", GraphExecHandle)                                     \
  X(cuEventCreate, "cuEventCreate", EventHandle *, unsigned)                                       \
  X(cuEventDestroy, "cuEventDestroy_v2", EventHandle)                                              \
  X(cuEventRecord, "cuEventRecord", EventHandle, StreamHandle)                                     \
  X(cuEventQuery, "cuEventQuery", EventHandle)                                                     \
  X(cuEventSynchronize, "cuEventSynchronize", EventHandle)                                         \
  X(cuEventElapsedTime, "cuEventElapsedTime", float *, EventHandle, EventHandle)                   \
  X(cuModuleLoadDataEx, "cuModuleLoadDataEx", ModuleHandle *, const void *, unsigned, int *,       \
    void **)                                                                                       \
  X(cuModuleUnload, "cuModuleUnload", ModuleHandle)                                                \
  X(cuModuleGetFunction, "cuModuleGetFunction", FunctionHandle *, ModuleHandle, const char *)      \
  X(cuFuncGetAttribute, "cuFuncGetAttribute", int *, int, FunctionHandle)                          \
  X(cuFuncSetAttribute, "cuFuncSetAttribute", FunctionHandle, int, int)                            \
  X(cuLaunchKernelEx, "cuLaunchKernelEx", const LaunchConfig *, FunctionHandle, void **, void **)

/// Those that older drivers lack; null there.
#define RLX_CUDA_OPTIONAL(X)                                                                       \
  X(cuFuncGetParamInfo, "cuFuncGetParamInfo", FunctionHandle, size_t, size_t *, size_t *)          \
  X(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled", void *, int, uint32_t, void *,               \
    const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *, int, int, int, int)

struct Api {
#define RLX_CUDA_DECLARE(name, symbol, ...) int (*name)(__VA_ARGS__) = nullptr;
  RLX_CUDA_REQUIRED(RLX_CUDA_DECLARE)
  RLX_CUDA_OPTIONAL(RLX_CUDA_DECLARE)
#undef RLX_CUDA_DECLARE
};

} // namespace rlx::runtime::cuda

#endif // RLX_RUNTIME_CUDA_API_H
