# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The driver's interface as this package declares it, against NVIDIA's header, where a toolkit is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from documents import ROOT

COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")

SOURCE = r"""
#include <cuda.h>
#include <cudaTypedefs.h>
#include <array>
#include <cstring>
#include <type_traits>

// The header renames functions to their newest versions: what is declared has the name that it gives.
#include "runtime/cuda/api.h"
using namespace rlx::runtime::cuda;

/// Of a function, bytes of what it returns and of each parameter, and which of them are pointers.
template <typename R, typename... A> constexpr auto shape(R (*)(A...)) {
  return std::array<size_t, 1 + sizeof...(A)>{sizeof(R), (sizeof(A) + 100 * std::is_pointer_v<A>)...};
}
template <size_t N, size_t M> constexpr bool equal(std::array<size_t, N> a, std::array<size_t, M> b) {
  if (N != M)
    return false;
  for (size_t i = 0; i < N; ++i)
    // An enumeration is as good as an int.
    if (a[i] != b[i])
      return false;
  return true;
}
#define TEXT(x) #x
#define EXPANDED(x) TEXT(x)
#define SAME(name, symbol, ...) \
  static_assert(equal(shape(static_cast<decltype(Api::name)>(nullptr)), shape(&::name)), symbol);
RLX_CUDA_REQUIRED(SAME)
RLX_CUDA_OPTIONAL(SAME)

constexpr bool same(const char *a, const char *b) {
  while (*a && *a == *b) ++a, ++b;
  return *a == *b;
}
// The newest version of these does the same, but needs a newer driver.
constexpr bool kept(const char *symbol) { return same(symbol, "cuEventElapsedTime"); }
#define NAMED(name, symbol, ...) static_assert(same(EXPANDED(name), symbol) || kept(symbol), symbol);
RLX_CUDA_REQUIRED(NAMED)
RLX_CUDA_OPTIONAL(NAMED)

static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute) && offsetof(CUlaunchAttribute, id) == 0);
static_assert(alignof(LaunchAttribute) <= alignof(CUlaunchAttribute));
static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(alignof(LaunchConfig) == alignof(CUlaunchConfig));
static_assert(offsetof(LaunchConfig, gridX) == offsetof(CUlaunchConfig, gridDimX));
static_assert(offsetof(LaunchConfig, gridZ) == offsetof(CUlaunchConfig, gridDimZ));
static_assert(offsetof(LaunchConfig, blockX) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(LaunchConfig, blockZ) == offsetof(CUlaunchConfig, blockDimZ));
static_assert(offsetof(LaunchConfig, sharedBytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(LaunchConfig, attributeCount) == offsetof(CUlaunchConfig, numAttrs));
static_assert(offsetof(CUlaunchAttributeValue, programmaticStreamSerializationAllowed) == 0);
static_assert(sizeof(CUtensorMap) == 128 && alignof(CUtensorMap) >= 64);
static_assert(sizeof(Address) == sizeof(CUdeviceptr));

static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && kNoBinaryForGpu == CUDA_ERROR_NO_BINARY_FOR_GPU);
static_assert(kStubLibrary == CUDA_ERROR_STUB_LIBRARY && kNeedsNewerDriver == CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
static_assert(kNoDevice == CUDA_ERROR_NO_DEVICE && kInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kUncorrectableEcc == CUDA_ERROR_ECC_UNCORRECTABLE);
static_assert(kUncorrectableNvlink == CUDA_ERROR_NVLINK_UNCORRECTABLE);
static_assert(kUnsupportedPtxVersion == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
static_assert(kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS && kLaunchTimeout == CUDA_ERROR_LAUNCH_TIMEOUT);
static_assert(kAssert == CUDA_ERROR_ASSERT && kHardwareStackError == CUDA_ERROR_HARDWARE_STACK_ERROR);
static_assert(kIllegalInstruction == CUDA_ERROR_ILLEGAL_INSTRUCTION);
static_assert(kMisalignedAddress == CUDA_ERROR_MISALIGNED_ADDRESS);
static_assert(kInvalidAddressSpace == CUDA_ERROR_INVALID_ADDRESS_SPACE && kInvalidPc == CUDA_ERROR_INVALID_PC);
static_assert(kLaunchFailed == CUDA_ERROR_LAUNCH_FAILED);
static_assert(kSystemDriverMismatch == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
static_assert(kCompatNotSupported == CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);

static_assert(kMultiprocessorCount == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kComputeCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kComputeCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kMaxSharedMemoryPerBlockOptin == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(kMaxThreadsPerBlock == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
static_assert(kSharedSizeBytes == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
static_assert(kMaxDynamicSharedSizeBytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kJitErrorLogBuffer == CU_JIT_ERROR_LOG_BUFFER);
static_assert(kJitErrorLogBufferSizeBytes == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING && kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING && kSuccess == CUDA_SUCCESS);
static_assert(kEventDefault == CU_EVENT_DEFAULT && kCaptureThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(kProgrammaticStreamSerialization == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);

// Codes of tensor maps, by which host code asks for them: docs/gpu.md.
static_assert(CU_TENSOR_MAP_DATA_TYPE_UINT8 == 0 && CU_TENSOR_MAP_DATA_TYPE_UINT16 == 1);
static_assert(CU_TENSOR_MAP_DATA_TYPE_INT32 == 3 && CU_TENSOR_MAP_DATA_TYPE_INT64 == 5);
static_assert(CU_TENSOR_MAP_DATA_TYPE_FLOAT16 == 6 && CU_TENSOR_MAP_SWIZZLE_NONE == 0);
static_assert(CU_TENSOR_MAP_L2_PROMOTION_NONE == 0 && CU_TENSOR_MAP_L2_PROMOTION_L2_128B == 2);
static_assert(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE == 0);
static_assert(CU_TENSOR_MAP_DATA_TYPE_FLOAT32 == 7 && CU_TENSOR_MAP_DATA_TYPE_FLOAT64 == 8);
static_assert(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 == 9 && CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 == 11);
static_assert(CU_TENSOR_MAP_SWIZZLE_128B == 3 && CU_TENSOR_MAP_SWIZZLE_64B == 2 && CU_TENSOR_MAP_SWIZZLE_32B == 1);
static_assert(CU_TENSOR_MAP_L2_PROMOTION_L2_64B == 1 && CU_TENSOR_MAP_L2_PROMOTION_L2_256B == 3);
static_assert(CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA == 1 && CU_TENSOR_MAP_INTERLEAVE_NONE == 0);
"""


#: The driver that everything but optional functions must be in: release 525.
OLDEST = 12000


def header_folder() -> Path:
    """Where `cuda.h` is, of a toolkit or a wheel (nvidia-cuda-runtime); skips the test where there is none."""
    folders = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", *map(str, Path("/usr/local").glob("cuda-*"))]
    for wheels in filter(None, (os.environ.get("RLX_CUDA_WHEELS", ""), sysconfig.get_path("purelib"))):
        folders += map(str, Path(wheels).glob("nvidia/*"))
    for folder in filter(None, folders):
        if (Path(folder) / "include" / "cuda.h").is_file():
            return Path(folder) / "include"
    pytest.skip("no CUDA toolkit: its header isn't there")


def declared() -> dict[str, tuple[str, bool]]:
    """The functions that are declared: symbol and whether it is optional, by the name in `Api`."""
    text = (ROOT / "runtime/cuda/api.h").read_text()
    split = text.index("#define RLX_CUDA_OPTIONAL")
    return {
        found.group(1): (found.group(2), found.start() > split) for found in re.finditer(r'X\((\w+), "(\w+)"', text)
    }


def test_declarations_are_those_of_the_header(tmp_path: Path) -> None:
    include = header_folder()
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    # NVIDIA's header of typedefs has one for each version of a function, named by the driver that came with it.
    header, typedefs = ((include / name).read_text() for name in ("cuda.h", "cudaTypedefs.h"))
    checks = []
    for name, (symbol, optional) in declared().items():
        stem = re.sub(r"_v\d+$", "", symbol)
        versions = sorted({int(version) for version in re.findall(rf"\bPFN_{stem}_v(\d+)\)", typedefs)})
        newest = [*re.findall(rf"#define {stem}\s+(?:\w+\()?(\w+)", header), stem][0] == symbol
        known = versions[-1:] if newest else [version for version in versions if version <= OLDEST]
        assert optional or known[-1] <= OLDEST, f"{symbol} is of {known[-1]}, but drivers may be of {OLDEST}"
        typedef = f"PFN_{stem}_v{known[-1]}"
        checks.append(
            f"static_assert(equal(shape(static_cast<decltype(Api::{name})>(nullptr)), "
            f'shape(static_cast<{typedef}>(nullptr))), "{typedef}");'
        )
    assert len(checks) > 40
    source = tmp_path / "abi.cpp"
    source.write_text("\n".join([SOURCE, *checks]))
    command = [COMPILER, "-std=c++17", "-fsyntax-only", f"-I{ROOT}", f"-I{include}", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
