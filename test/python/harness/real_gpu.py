# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs scheduled kernels on the GPU of this machine, by the driver alone: tests of numbers then check it, too.

With RLX_TEST_GPU=1 in the environment, `gpu_emulated.emulate` lets the emulator run a kernel, as always, and then the
GPU, where it runs code for the chip; what tests look at are the GPU's numbers. `emulated_device` is the GPU itself
then.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_mlir.chips import sm_version

if TYPE_CHECKING:
    from gpu_host import Launch, Map, Number, Pointer

#: As the driver numbers them: dimensions of a launch, early starts, limit of dynamic shared memory, element types.
_EARLY, _DYNAMIC_SHARED = 6, 8
_ELEMENTS = {"i8": 0, "f8E4M3FN": 0, "f8E5M2": 0, "i16": 1, "i32": 3, "i64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_POINTER = ctypes.c_void_p
#: Bytes that scratch memory is filled with: NaN of every type.
_FILL = 0xFF


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class _Config(ctypes.Structure):
    _fields_ = (
        ("sizes", ctypes.c_uint * 6),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def is_wanted(chip: str = "") -> bool:
    """Whether kernels for a chip are to run on a GPU: the environment says so, and the GPU there runs them."""
    if os.environ.get("RLX_TEST_GPU", "") in ("", "0"):
        return False
    if not chip:
        return True
    gpu = _Gpu.here()
    own, theirs = 10 * gpu.major + gpu.minor, sm_version(chip)
    return own == theirs if chip.endswith("a") else own >= theirs


def run(ptx: str, launches: Sequence[Launch], arrays: dict[str, np.ndarray], scratch: int = 0) -> dict[str, np.ndarray]:
    """What arrays hold after launches, by the names that pointers have for them.

    scratch: bytes of the buffer of that name.
    """
    gpu = _Gpu.here()
    with gpu.module(ptx) as module, contextlib.ExitStack() as memory:
        held = {name: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for name, array in arrays.items()}
        places = {name: memory.enter_context(gpu.memory(max(data.nbytes, 16))) for name, data in held.items()}
        places["scratch"] = memory.enter_context(gpu.memory(max(scratch, 16)))
        for name, data in held.items():
            gpu.write(places[name], data)
        gpu.write(places["scratch"], np.full(max(scratch, 16), _FILL, np.uint8))
        for launch in launches:
            if 0 not in launch.grid:
                gpu.launch(module, launch, places)
        return {name: gpu.read(places[name], data.nbytes) for name, data in held.items()}


class _Gpu:
    """The driver's first GPU, by its primary context, which is made current in this thread."""

    def __init__(self, library: str) -> None:
        self._driver = ctypes.CDLL(library)
        self.call("cuInit", 0)
        device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self.major, self.minor = (self._attribute(75 + i, device) for i in range(2))
        self.stream = ctypes.c_void_p()

    @staticmethod
    def here() -> _Gpu:
        """The GPU of the driver that the environment names, as the run time has it."""
        return _Gpu(os.environ.get("RLX_CUDA_DRIVER", "") or "libcuda.so.1")

    def _attribute(self, number: int, device: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the driver; RuntimeError where it fails."""
        if result := getattr(self._driver, name)(*arguments):
            text = ctypes.c_char_p()
            self._driver.cuGetErrorName(result, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'').decode() or result}")

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """The context is that of this thread, and there is a stream."""
        self.call("cuCtxPushCurrent_v2", self._context)
        try:
            self.call("cuStreamCreate", ctypes.byref(self.stream), 1)
            yield
        finally:
            with contextlib.suppress(RuntimeError):
                self.call("cuStreamDestroy_v2", self.stream)
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    @contextlib.contextmanager
    def module(self, ptx: str) -> Iterator[ctypes.c_void_p]:
        """The kernels of a text."""
        module = ctypes.c_void_p()
        with self.current():
            self.call("cuModuleLoadDataEx", ctypes.byref(module), ptx.encode(), 0, None, None)
            yield module
            self.call("cuModuleUnload", module)

    @contextlib.contextmanager
    def memory(self, nbytes: int) -> Iterator[int]:
        """Memory of the GPU; a kernel that failed has made the context useless, so freeing it may fail."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        yield address.value
        with contextlib.suppress(RuntimeError):
            self.call("cuMemFree_v2", address)

    def write(self, address: int, data: np.ndarray) -> None:
        """Copies bytes to the GPU."""
        if data.nbytes:
            size = ctypes.c_size_t(data.nbytes)
            self.call(
                "cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), data.ctypes.data_as(_POINTER), size, self.stream
            )
            self.call("cuStreamSynchronize", self.stream)

    def read(self, address: int, nbytes: int) -> np.ndarray:
        """Bytes of the GPU, when all launches are over."""
        data = np.zeros(nbytes, np.uint8)
        if nbytes:
            size = ctypes.c_size_t(nbytes)
            self.call(
                "cuMemcpyDtoHAsync_v2", data.ctypes.data_as(_POINTER), ctypes.c_uint64(address), size, self.stream
            )
        self.call("cuStreamSynchronize", self.stream)
        return data

    def launch(self, module: ctypes.c_void_p, launch: Launch, places: dict[str, int]) -> None:
        """Starts a kernel, as the run time does."""
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, launch.kernel.encode())
        if launch.shared > 48 << 10:
            self.call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, launch.shared)
        values = [self._value(value, places) for value in launch.parameters]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        attribute = _Attribute(_EARLY, 0, 1)
        own = (ctypes.pointer(attribute), 1) if launch.pdl else (None, 0)
        config = _Config((ctypes.c_uint * 6)(*launch.grid, *launch.block), launch.shared, self.stream, *own)
        self.call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)

    def _value(self, value: Pointer | Number | Map, places: dict[str, int]) -> Any:
        if hasattr(value, "box"):
            return self._map(value, places)
        if hasattr(value, "buffer"):
            return ctypes.c_uint64(places[value.buffer] + value.offset)
        return (ctypes.c_int32 if value.type == "i32" else ctypes.c_int64)(value.value)

    def _map(self, value: Map, places: dict[str, int]) -> Any:
        room = (ctypes.c_uint64 * 24)()
        start = -(-ctypes.addressof(room) // 64) * 64
        map = (ctypes.c_uint64 * 16).from_buffer(room, start - ctypes.addressof(room))
        if 0 in value.sizes:  # which no map can describe
            return map
        rank, address = len(value.sizes), places[value.address.buffer] + value.address.offset
        sizes, strides = ((ctypes.c_uint64 * 5)(*own[::-1]) for own in (value.sizes, value.strides))
        box, steps = (ctypes.c_uint32 * 5)(*value.box[::-1]), (ctypes.c_uint32 * 5)(*[1] * 5)
        codes = (0, _SWIZZLES[value.swizzle], 2, 0)
        given = (_ELEMENTS[value.element], rank, ctypes.c_void_p(address), sizes, strides, box, steps, *codes)
        self.call("cuTensorMapEncodeTiled", ctypes.byref(map), *given)
        return map
