# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays in the memory of an NVIDIA GPU, and their exchange with numpy and other libraries, without copies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rlx_mlir import native
from rlx_mlir.arrays import CPU, CUDA, CUDA_HOST, Foreign, as_array, dlpack_type, from_dlpack_type
from rlx_mlir.checks import Unpicklable
from rlx_mlir.errors import InputError
from rlx_mlir.runtime.runs import Run, stream_handle

Array = np.ndarray

#: Addresses that kernels may read 16 bytes at once from.
ALIGNMENT = 16


class DeviceArray(Unpicklable):
    """A contiguous array in a GPU's memory.

    The memory is given back when the last array on it goes. Other libraries (PyTorch, CuPy, JAX) take one by
    `__dlpack__` or `__cuda_array_interface__`, without a copy. Where a run that nobody has waited for uses it, reading,
    writing and handing it over wait first; DLPack's consumers may name a stream that waits instead.

    Attributes:
        shape, dtype: as of an array of numpy.
        address: where it starts, on the GPU.
        device: the GPU's number.
        owner: what keeps the memory.
        run: the last run with ``wait=False`` that uses it; None where there is none.
    """

    _instead = "read it into an array of numpy"

    __slots__ = ("address", "device", "dtype", "owner", "run", "shape")

    def __init__(self, address: int, shape: Sequence[int], dtype: npt.DTypeLike, *, device: int, owner: object) -> None:
        self.address = address
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.device = device
        self.owner = owner
        self.run: Run | None = None

    # Making one ------------------------------------------------------------------------------------------------------

    @classmethod
    def empty(
        cls, shape: Sequence[int], dtype: npt.DTypeLike, *, device: int = 0, what: str = "an array"
    ) -> DeviceArray:
        """An array whose contents are undefined.

        Args:
            shape, dtype: as for numpy.
            device: the GPU's number.
            what: what it is for, in the message where there isn't enough memory.

        Raises DeviceMemoryError with the bytes that were asked for and those that are free.
        """
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise InputError(f"an array on a GPU has numbers for elements, but got {kind}")
        memory = native.CudaMemory(native.CudaDevice(device), math.prod(shape) * kind.itemsize, what)
        return cls(memory.address, shape, kind, device=device, owner=memory)

    @classmethod
    def zeros(cls, shape: Sequence[int], dtype: npt.DTypeLike, *, device: int = 0) -> DeviceArray:
        """An array of zeros; raises as `empty` does."""
        array = cls.empty(shape, dtype, device=device)
        array.clear()
        return array

    @classmethod
    def from_numpy(cls, array: object, *, device: int = 0, what: str = "an array") -> DeviceArray:
        """A copy of an array of numpy; raises as `empty` does."""
        source = np.asarray(array, order="C")
        copy = cls.empty(source.shape, source.dtype, device=device, what=what)
        copy.write(source)
        return copy

    @classmethod
    def from_dlpack(cls, array: Foreign, *, stream: object = None) -> DeviceArray:
        """The array of another library, in its memory, by DLPack; a copy where it is in memory of the host.

        Args:
            array: an object that has `__dlpack__`.
            stream: a CUDA stream that its library lets wait for the array; without one, the call waits.

        Raises InputError where it isn't contiguous, or has elements that numpy has no type for.
        """
        given = array
        if is_device_array(array):
            # DLPack numbers the default stream 1. Unasked, some libraries (PyTorch) let no stream wait.
            given = array.__dlpack__(stream=1 if stream is None else stream_handle(stream) or 1)
        address, shape, strides, code, bits, kind, ordinal, _, owner = native.dlpack_import(given)
        dtype = from_dlpack_type(code, bits)
        if dtype is None:
            raise InputError(f"DLPack's element type {code} of {bits} bits is not supported")
        if kind in (CPU, CUDA_HOST):
            return cls.from_numpy(as_array("the array", array))
        if kind != CUDA:
            raise InputError(f"an array on a GPU of NVIDIA is needed, but DLPack says device type {kind}")
        _check_contiguous(shape, strides)
        if stream is None:
            # The other library has made its default stream wait for the array: this waits for that stream.
            native.CudaDevice(ordinal).synchronize()
        return cls(address, shape, dtype, device=ordinal, owner=owner)

    @classmethod
    def from_interface(cls, array: Foreign, *, device: int = 0, stream: object = None) -> DeviceArray:
        """The array of another library, in its memory, by `__cuda_array_interface__` (version 2 or 3).

        Args:
            array: an object that has it.
            device: the number of its GPU, where it has no elements; else the driver is asked.
            stream: a CUDA stream that waits for the array; without one, the call waits.

        Raises InputError where it isn't contiguous, can't be read, or isn't in a GPU's memory.
        """
        try:
            interface = array.__cuda_array_interface__
            shape = tuple(int(size) for size in interface["shape"])
            dtype = np.dtype(interface["typestr"])
            address = int(interface["data"][0] or 0)
            strides = interface.get("strides")
            produced = interface.get("stream") or 0
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(f"__cuda_array_interface__ of {type(array).__name__} can't be read: {error}") from None
        if interface.get("mask") is not None:
            raise InputError("an array with a mask can't be used on a GPU")
        if strides is not None:
            _check_contiguous(shape, [stride // dtype.itemsize for stride in strides])
        if 0 in shape:
            return cls.empty(shape, dtype, device=device)
        ordinal = native.CudaDevice(device).ordinal_of(address)
        if ordinal is None:
            raise InputError(f"{address:#x}, the address in __cuda_array_interface__, isn't memory of a GPU")
        device = ordinal
        if stream is None:
            native.CudaDevice(device).synchronize(produced)
        else:
            native.CudaDevice(device).order(produced, stream_handle(stream))
        return cls(address, shape, dtype, device=device, owner=array)

    # Reading and writing it ------------------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    def wait(self) -> None:
        """Waits for the last run that uses the array; raises what `Run.wait` raises."""
        run = self.run
        if run is not None:
            run.wait()
            if self.run is run:
                self.run = None

    def part(self, start: int, stop: int) -> DeviceArray:
        """Elements `start` to `stop` (exclusive) in C order, [stop - start], in the same memory.

        Reading it waits for the runs that use the array so far, not for those that come later: they may write to other
        elements meanwhile. Raises InputError where it has no such elements.
        """
        if not 0 <= start <= stop <= self.size:
            raise InputError(f"an array of {self.size} elements has no part from {start} to {stop}")
        at = self.address + start * self.dtype.itemsize
        found = DeviceArray(at, (stop - start,), self.dtype, device=self.device, owner=self.owner)
        found.run = self.run
        return found

    def numpy(self) -> Array:
        """A copy on the host."""
        self.wait()
        array = np.empty(self.shape, self.dtype)
        if array.nbytes:
            native.CudaDevice(self.device).read(self.address, _bytes(array))
        return array

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """What numpy makes of it: a copy, which InputError refuses where `copy` is False."""
        if copy is False:
            raise InputError("an array on a GPU can't become one of numpy without a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def clear(self) -> None:
        """Sets all elements to zero, after the runs that use the array."""
        self.wait()
        native.CudaDevice(self.device).clear(self.address, self.nbytes)

    def write(self, source: object) -> None:
        """Copies an array of the same shape and element type into it, from the host or from this GPU.

        Raises InputError where shape, element type or GPU differ.
        """
        if not isinstance(source, DeviceArray):
            source = np.asarray(source, order="C")
        if source.shape != self.shape or source.dtype != self.dtype:
            raise InputError(
                f"an array of shape {list(self.shape)} and element type {self.dtype} is expected, but got "
                f"{list(source.shape)} and {source.dtype}"
            )
        device = native.CudaDevice(self.device)
        self.wait()
        if not isinstance(source, DeviceArray):
            if source.nbytes:
                device.write(self.address, _bytes(source))
        elif source.device != self.device:
            raise InputError(f"an array on GPU {self.device} can't be written from one on GPU {source.device}")
        else:
            source.wait()
            device.copy(self.address, source.address, self.nbytes)

    def __repr__(self) -> str:
        return f"DeviceArray({'x'.join([*map(str, self.shape), self.dtype.name])} on GPU {self.device})"

    # Other libraries -------------------------------------------------------------------------------------------------

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        # An AttributeError says that there is none: then libraries ask for DLPack.
        if self.dtype.kind not in "biuf" or self.dtype.isbuiltin != 1:
            raise AttributeError(f"__cuda_array_interface__ has no element type {self.dtype}")
        self.wait()
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address if self.size else 0, False),
            "strides": None,
            "stream": None,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule of DLPack; on the host where `dl_device` asks for that.

        Args:
            stream: of the consumer, as DLPack numbers it (1 for the default stream): it waits for the last run that
                uses the array. -1: nobody waits. None: the call waits.
        """
        if dl_device is not None and tuple(dl_device) == (CPU, 0):
            if copy is False:
                raise BufferError("an array on a GPU can't be given to the host without a copy")
            return self.numpy().__dlpack__()
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"an array on GPU {self.device} can't be given to device {tuple(dl_device)}")
        if stream is None:
            self.wait()
        elif isinstance(stream, bool) or not isinstance(stream, int) or stream < -1 or stream == 0:
            raise BufferError(f"DLPack's stream is -1, or the handle of a stream that isn't 0, but got {stream!r}")
        elif stream > 0 and self.run is not None:
            self.run.hold(stream)
        source = self
        if copy:
            source = DeviceArray.empty(self.shape, self.dtype, device=self.device)
            source.write(self)
        kind = dlpack_type(self.dtype)
        if kind is None:
            raise BufferError(f"DLPack has no element type {self.dtype}")
        code, bits = kind
        return native.dlpack_export(
            owner=source.owner,
            address=source.address,
            shape=list(source.shape),
            code=code,
            bits=bits,
            ordinal=source.device,
        )


def is_device_array(value: object) -> bool:
    """Whether an object says that its elements are in a GPU's memory."""
    if isinstance(value, DeviceArray):
        return True
    if isinstance(value, np.ndarray):
        return False
    if hasattr(value, "__cuda_array_interface__"):
        return True
    place = getattr(value, "__dlpack_device__", None)
    return place is not None and place()[0] == CUDA


def as_device_array(value: object, *, device: int, stream: object = None) -> DeviceArray:
    """An object for which `is_device_array` holds, as one of our arrays on the same memory.

    `stream` is a CUDA stream that waits for an array of another library; without one, the call waits.

    Raises InputError where it can't be read, or isn't on that GPU.
    """
    if isinstance(value, DeviceArray):
        array = value
    elif hasattr(value, "__dlpack_device__"):  # which says the GPU's number
        array = DeviceArray.from_dlpack(value, stream=stream)
    else:
        array = DeviceArray.from_interface(value, device=device, stream=stream)
    if array.device != device:
        raise InputError(f"an array on GPU {device} is needed, but it is on GPU {array.device}")
    return array


def _bytes(array: Array) -> Array:
    """The same memory as bytes: not every element type has a buffer of Python."""
    return array.reshape(-1).view(np.uint8)


def _check_contiguous(shape: Sequence[int], strides: Sequence[int]) -> None:
    """Raises InputError where strides, in elements, aren't those of C order."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != expected and 0 not in shape:
            raise InputError(
                f"an array on a GPU is contiguous, but got shape {list(shape)} and strides {list(strides)}"
            )
        expected *= size
