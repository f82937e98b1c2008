# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The one place where what a caller gives as an array becomes one of numpy. Needs no MLIR.

Arrays come from numpy, from libraries with DLPack (PyTorch, JAX, CuPy), or as numbers and lists. Nothing is converted
on the way: element types and byte order stay, and whoever declared another one refuses them by name. Masked arrays are
refused everywhere, since no compiled code knows of their masks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from rlx_mlir.boundary import foreign_errors
from rlx_mlir.dtypes import DTYPES, word_of
from rlx_mlir.errors import InputError

Array = np.ndarray

#: An array of another library: what it has depends on that, such as `__dlpack__` or `__cuda_array_interface__`.
Foreign: TypeAlias = Any

#: Kinds of devices, as DLPack numbers them: memory of the host, of a GPU, of the host but pinned.
CPU, CUDA, CUDA_HOST = 1, 2, 3
_UNSIGNED_64 = np.dtype(np.uint64)  # no element type, but DLPack has it
#: (type code, bits) of DLPack by the word of an element type.
_DLPACK = {
    "i1": (6, 8),
    "bf16": (4, 16),
    "f8E4M3FN": (10, 8),
    "f8E5M2": (12, 8),
    **{f"i{bits}": (0, bits) for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": (1, bits) for bits in (8, 16, 32)},
    **{f"f{bits}": (2, bits) for bits in (16, 32, 64)},
    "complex<f32>": (5, 64),
}
_FROM_DLPACK = {key: word for word, key in _DLPACK.items()}


def dlpack_type(dtype: np.dtype) -> tuple[int, int] | None:
    """(type code, bits) of DLPack; None where it has no such type."""
    return (1, 64) if dtype == _UNSIGNED_64 else _DLPACK.get(word_of(dtype) or "")


def from_dlpack_type(code: int, bits: int) -> np.dtype | None:
    """The type of numpy for a type of DLPack; None where there is none."""
    if (code, bits) == (1, 64):
        return _UNSIGNED_64
    word = _FROM_DLPACK.get((code, bits))
    return None if word is None else DTYPES[word]


def as_array(what: str, value: object) -> Array:
    """The value as an array of numpy: without a copy where it is one, or has DLPack and is on the host.

    Args:
        what: names it in errors, such as ``"input 'x'"``.

    Raises InputError for masked arrays, arrays on other devices, element types that numpy and `ml_dtypes` don't have,
    and whatever can't be read as an array.
    """
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):  # which numpy loads where it is asked for
        raise InputError(f"{what} is an array of numpy, but got a masked one: fill it first")
    if isinstance(value, np.ndarray):
        return value
    with foreign_errors(f"{what} can't be read as an array (got {type(value).__name__})"):
        if isinstance(value, np.generic) or not hasattr(value, "__dlpack__"):
            return np.asarray(value)
        return _from_dlpack(what, value)


def host_arrays(what: str, values: Mapping[str, object]) -> Mapping[str, Any]:
    """The same values; those that other libraries have in the host's memory as arrays of numpy over that memory.

    Args:
        what: they are, such as ``"input"``.
    """
    if not isinstance(values, Mapping):
        return values  # whoever reads them says so
    theirs = {
        name: as_array(f"{what} '{name}'", value)
        for name, value in values.items()
        if type(value) is not np.ndarray and _is_on_host(value)
    }
    return {**values, **theirs} if theirs else values


def _is_on_host(value: object) -> bool:
    """Whether it is an array of another library that has its elements in the host's memory."""
    place = None if isinstance(value, (np.ndarray, np.generic)) else getattr(value, "__dlpack_device__", None)
    return place is not None and place()[0] in (CPU, CUDA_HOST)


def element_word(dtype: np.dtype) -> str:
    """The name of an element type; it says where bytes are in the order that this machine doesn't have."""
    if dtype.kind in "OSUVmM" and dlpack_type(dtype) is None:  # no numbers
        return str(dtype)
    if dtype.isnative:
        return str(dtype.name)
    return f"{dtype.name} with its bytes in the other order ({dtype.str})"


class _Memory:
    """Memory of another library, for numpy to read: it keeps what keeps the memory."""

    def __init__(self, interface: dict[str, object], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def _from_dlpack(what: str, value: Foreign) -> Array:
    """The array of an object that has `__dlpack__`, writeable where its library says so. Numpy's own reader has no bf16
    and no f8."""
    from rlx_mlir import native

    kind = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else CPU
    if kind not in (CPU, CUDA_HOST):
        raise InputError(f"{what} is on another device (of DLPack's type {kind}): bring it to the host first")
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:  # of libraries from before that version
        capsule = value.__dlpack__()
    address, shape, strides, code, bits, _, _, writeable, owner = native.dlpack_import(capsule)
    dtype = from_dlpack_type(code, bits)
    if dtype is None:
        raise InputError(f"{what} has an element type that is not supported: DLPack's code {code}, {bits} bits")
    if 0 in shape:
        return np.empty(shape, dtype)
    carrier = np.dtype(f"u{dtype.itemsize}")
    interface = {
        "version": 3,
        "shape": tuple(shape),
        "strides": tuple(stride * dtype.itemsize for stride in strides),
        "typestr": carrier.str,
        "data": (address, not writeable),
    }
    return np.asarray(_Memory(interface, owner)).view(dtype)


class HostArray:
    """An array of numpy as other libraries take it, without a copy: ``torch.from_dlpack(rlx.as_dlpack(y))``.

    Attributes:
        array: the array, whose memory it is.
    """

    def __init__(self, array: Array) -> None:
        self.array = array

    def __repr__(self) -> str:
        return f"HostArray({'x'.join([*map(str, self.array.shape), self.array.dtype.name])})"

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0

    def __dlpack__(self, **wanted: object) -> object:
        """A capsule of DLPack, of the version and to the device that the keywords of its standard ask for.

        Raises BufferError where it can't be had without a copy.
        """
        from rlx_mlir import native

        array = self.array
        code, bits = dlpack_type(array.dtype) or (0, 0)  # `as_dlpack` has checked it
        exported: Foreign = native.dlpack_export_host(
            owner=array,
            address=array.ctypes.data,
            shape=list(array.shape),
            strides=[stride // array.itemsize for stride in array.strides],
            code=code,
            bits=bits,
            writable=array.flags.writeable,
        )
        return exported.__dlpack__(**wanted)


def as_dlpack(array: object) -> HostArray:
    """An array for other libraries, whose `from_dlpack` takes it without a copy.

    Args:
        array: of numpy, such as a result; also of bf16 and f8, which numpy's own `__dlpack__` refuses.

    Raises InputError where DLPack has no such element type or byte order, or elements lie apart by no whole number of
    elements.
    """
    given = as_array("'array'", array)
    if dlpack_type(given.dtype) is None or not given.dtype.isnative:
        raise InputError(f"'array' has element type {element_word(given.dtype)}, which DLPack doesn't have")
    if any(stride % given.itemsize for stride in given.strides):
        raise InputError(
            f"'array' has strides of {list(given.strides)} bytes, but DLPack's are multiples of an element's "
            f"{given.itemsize}"
        )
    return HostArray(given)


__all__ = [
    "CPU",
    "CUDA",
    "CUDA_HOST",
    "HostArray",
    "as_array",
    "as_dlpack",
    "dlpack_type",
    "element_word",
    "from_dlpack_type",
    "host_arrays",
]
