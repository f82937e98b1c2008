# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensor maps: what describes a tensor in global memory to the tensor memory accelerator."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx_mlir.errors import InputError

#: Element types by the numbers of `CUtensorMapDataType`: bytes.
ELEMENT_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 10: 4, 11: 4, 12: 4}
ELEMENT_TYPES = {
    "u8": 0, "i8": 0, "e4m3": 0, "u16": 1, "u32": 2, "i32": 3, "u64": 4, "i64": 5, "f16": 6, "f32": 7, "f64": 8,
    "bf16": 9, "tf32": 11,
}  # fmt: skip
#: Bytes of a row of each swizzle, by its number.
SWIZZLE_BYTES = {0: 0, 1: 32, 2: 64, 3: 128}
_MAGIC = b"RLXTMAP1"
_LAYOUT = struct.Struct("<8sQ5B3x5I5H2x4Q40x")


@dataclass(frozen=True)
class TensorMap:
    """A map as `cuTensorMapEncodeTiled` makes it. Dimensions are innermost first.

    The 128 bytes, little-endian, which the emulator reads (a GPU's are other ones, and secret):

        0    u8[8]   RLXTMAP1
        8    u64     address
        16   u8      element type (CUtensorMapDataType)
        17   u8      rank, 1 to 5
        18   u8      swizzle (0 none, 1 32 bytes, 2 64 bytes, 3 128 bytes)
        19   u8      L2 promotion (not used)
        20   u8      fill of elements outside (0 zeros, 1 NaN)
        21   u8[3]   0
        24   u32[5]  sizes in elements less one; 0 beyond the rank
        44   u16[5]  box in elements; 0 beyond the rank
        54   u8[2]   0
        56   u64[4]  strides in bytes of dimensions 1 to 4; 0 beyond the rank
        88   u8[40]  0

    Attributes:
        dtype: the element type, a name of `ELEMENT_TYPES` or a number.
        address: of the tensor, a multiple of 16.
        sizes: elements of each dimension.
        strides: bytes of each dimension but the first, multiples of 16.
        box: elements that one copy moves, at most 256 in each dimension.
        swizzle: bytes of the swizzle: 0, 32, 64 or 128.
        fill_nan: whether elements outside are NaN instead of 0.
    """

    dtype: str | int
    address: int
    sizes: Sequence[int]
    strides: Sequence[int]
    box: Sequence[int]
    swizzle: int = 0
    fill_nan: bool = False

    def __post_init__(self) -> None:
        """Raises InputError where the driver would refuse the map."""
        rank = len(self.sizes)
        if self.element not in ELEMENT_BYTES:
            raise InputError(f"'dtype' expects one of {', '.join(ELEMENT_TYPES)}, but got {self.dtype}")
        if not 1 <= rank <= 5 or len(self.strides) != rank - 1 or len(self.box) != rank:
            raise InputError(
                f"'sizes', 'strides' and 'box' expect n, n - 1 and n numbers for n of 1 to 5, but got {rank},"
                f" {len(self.strides)} and {len(self.box)}"
            )
        if self.swizzle not in SWIZZLE_BYTES.values():
            raise InputError(f"'swizzle' expects 0, 32, 64 or 128, but got {self.swizzle}")
        if self.address % 16:
            raise InputError(f"'address' expects a multiple of 16, but got {self.address:#x}")
        if any(not 1 <= size <= 1 << 32 for size in self.sizes):
            raise InputError(f"'sizes' expects 1 to 2^32 elements, but got {tuple(self.sizes)}")
        if any(stride % 16 or not 0 <= stride < 1 << 40 for stride in self.strides):
            raise InputError(f"'strides' expects multiples of 16 below 2^40, but got {tuple(self.strides)}")
        if any(not 1 <= size <= 256 for size in self.box):
            raise InputError(f"'box' expects 1 to 256 elements, but got {tuple(self.box)}")
        inner = self.box[0] * self.element_bytes
        if inner % 16:
            raise InputError(f"'box' expects rows of a multiple of 16 bytes, but got {inner}")
        if self.swizzle and inner > self.swizzle:
            raise InputError(f"'box' expects rows of at most {self.swizzle} bytes for this swizzle, but got {inner}")

    @property
    def element(self) -> int:
        """The number of the element type."""
        return ELEMENT_TYPES.get(self.dtype, -1) if isinstance(self.dtype, str) else self.dtype

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return ELEMENT_BYTES[self.element]

    @property
    def box_bytes(self) -> int:
        """Bytes that a copy moves, those outside of the tensor included."""
        return int(np.prod(self.box)) * self.element_bytes

    def to_bytes(self) -> bytes:
        """The 128 bytes of the map."""
        swizzle = next(number for number, size in SWIZZLE_BYTES.items() if size == self.swizzle)

        def padded(values: Sequence[int], count: int) -> list[int]:
            return [*values, *[0] * (count - len(values))]

        sizes = padded([size - 1 for size in self.sizes], 5)
        kinds = (self.element, len(self.sizes), swizzle, 0, int(self.fill_nan))
        return _LAYOUT.pack(_MAGIC, self.address, *kinds, *sizes, *padded(self.box, 5), *padded(self.strides, 4))

    @classmethod
    def from_bytes(cls, data: bytes) -> TensorMap:
        """Reads 128 bytes; InputError where they are no map."""
        if len(data) != 128:
            raise InputError(f"'data' expects 128 bytes, but got {len(data)}")
        magic, address, element, rank, swizzle, _, fill, *rest = _LAYOUT.unpack(data)
        if not any(data):
            raise InputError("the bytes are zeros, as for a tensor without elements")
        if magic != _MAGIC or not 1 <= rank <= 5:
            raise InputError("the bytes aren't a tensor map")
        sizes, box, strides = [size + 1 for size in rest[:rank]], rest[5 : 5 + rank], rest[10 : 10 + rank - 1]
        return cls(element, address, sizes, strides, box, SWIZZLE_BYTES.get(swizzle, -1), bool(fill))

    @classmethod
    def of(cls, array: np.ndarray, box: Sequence[int], *, dtype: str, swizzle: int = 0) -> TensorMap:
        """The map of an array; `box` is innermost first, as the map's dimensions are."""
        strides = [int(stride) for stride in array.strides[::-1]]
        if strides[0] != array.itemsize:
            raise InputError("'array' expects contiguous rows")
        return cls(dtype, array.ctypes.data, array.shape[::-1], strides[1:], box, swizzle)
