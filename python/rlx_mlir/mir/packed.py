# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packed weights as values: what numpy references take and give where the IR has a `#mir.packed` tensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlx_mlir import formats, ir
from rlx_mlir.errors import InputError

#: Orders of a packed weight's bytes.
LAYOUTS = ("rows", "panels", "planes")


@dataclass(frozen=True)
class Packing:
    """The `#mir.packed` encoding of a tensor type.

    Attributes:
        scheme: name of the block format, as in `rlx_mlir.formats`.
        k: columns (inputs) of the weight.
        n: rows (outputs); None where the number of rows is dynamic.
        layout: `rows` (GGUF order), `panels` (16 rows interleaved) or `planes` (rows sorted for GPUs).
    """

    scheme: str
    k: int
    n: int | None
    layout: str = "rows"

    @property
    def format(self) -> formats.BlockFormat:
        """The description of the scheme."""
        return formats.get_format(self.scheme)


def packing(type: ir.Type) -> Packing | None:
    """The encoding of a tensor type, or None where the tensor is dense."""
    encoding = getattr(type, "encoding", None)
    if not isinstance(encoding, ir.native.PackedAttr):
        return None
    n = encoding.n
    if n is None and not type.is_dynamic_dim(0):
        n = type.get_dim_size(0)
    return Packing(encoding.scheme, encoding.k, n, encoding.layout)


def packing_of(weight: ir.Value) -> Packing:
    """The encoding of a weight whose type has one."""
    found = packing(weight.type)
    assert found is not None, "a packed weight"
    return found


@dataclass(frozen=True, eq=False)
class QuantParts:
    """A weight as integers and factors: value[n, e] = scales[n, e // run] * integers[n, e] + minima[n, e // run].

    Attributes:
        integers: int16 [n, k], the offset of the format subtracted.
        scales: f32 [n, k / run].
        minima: f32 [n, k / run], or None where the format has none.
        run: elements that share a scale.
    """

    integers: npt.NDArray[np.int16]
    scales: npt.NDArray[np.float32]
    minima: npt.NDArray[np.float32] | None
    run: int


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """A weight of `n` rows (outputs) and `k` columns (inputs) in a block format.

    Attributes:
        scheme: name of the block format, as in `rlx_mlir.formats`.
        k: columns.
        n: rows.
        layout: `rows`: `bytes` is [n, bytes of a row]; `panels`: [ceil(n / 16), bytes of a panel]; `planes`: [n, bytes
            of a row in planes].
        bytes: uint8, C-contiguous or a view of such rows.
    """

    scheme: str
    k: int
    n: int
    layout: str
    bytes: npt.NDArray[np.uint8]

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise InputError(f"'layout' must be one of {', '.join(LAYOUTS)}, but is {self.layout!r}")
        fmt = formats.get_format(self.scheme)
        if self.layout == "rows":
            expected = (self.n, fmt.row_bytes(self.k))
        elif self.layout == "planes":
            expected = (self.n, formats.planes_row_bytes(fmt, self.k))
        else:
            expected = (-(-self.n // formats.PANEL_ROWS), formats.panel_bytes(fmt, self.k))
        if self.bytes.dtype != np.uint8 or self.bytes.shape != expected:
            raise InputError(
                f"{self.scheme} {self.layout} of k = {self.k}, n = {self.n} are uint8 {list(expected)}, "
                f"but these are {self.bytes.dtype} {list(self.bytes.shape)}"
            )

    @classmethod
    def of(cls, type: ir.Type, data: np.ndarray) -> PackedWeight:
        """The weight that a tensor of a packed type holds; `data` is its array, int8 or uint8."""
        encoding = packing(type)
        if encoding is None:
            raise InputError(f"expects a type with a packed encoding, but got {type}")
        raw = data.view(np.uint8)
        n = raw.shape[0] if encoding.n is None else encoding.n
        return cls(encoding.scheme, encoding.k, n, encoding.layout, raw)

    @classmethod
    def encode(cls, scheme: str, values: np.ndarray, layout: str = "rows") -> PackedWeight:
        """Packs f32 [n, k]; for tests and tools, see `formats.encode`."""
        n, k = values.shape
        weight = cls(scheme, k, n, "rows", formats.encode(scheme, values))
        return weight.repacked(layout) if layout != "rows" else weight

    @property
    def format(self) -> formats.BlockFormat:
        """The description of the scheme."""
        return formats.get_format(self.scheme)

    @property
    def rows(self) -> npt.NDArray[np.uint8]:
        """The bytes in GGUF order, [n, bytes of a row]."""
        if self.layout == "rows":
            return self.bytes
        if self.layout == "planes":
            return formats.unpack_planes(self.scheme, self.bytes, self.k)
        return formats.unpack_panels(self.scheme, self.bytes, self.k, self.n)

    def dequantize(self) -> npt.NDArray[np.float32]:
        """The decoded weight, f32 [n, k]."""
        if not self.n:
            return np.zeros((0, self.k), np.float32)
        return formats.decode(self.scheme, self.rows, self.k)

    def take(self, indices: np.ndarray) -> npt.NDArray[np.float32]:
        """The decoded rows of the given numbers, f32 [*indices, k]; only those are decoded."""
        if self.layout == "panels":
            flat = np.ascontiguousarray(self.rows[indices.reshape(-1)])
        else:
            flat = np.ascontiguousarray(self.bytes[indices.reshape(-1)])
            if self.layout == "planes":
                flat = formats.unpack_planes(self.scheme, flat, self.k)
        decoded = formats.decode(self.scheme, flat, self.k) if len(flat) else np.zeros((0, self.k), np.float32)
        return decoded.reshape(*indices.shape, self.k)

    def parts(self) -> QuantParts:
        """The integers and factors of a quantised format; UnsupportedError for a dense one."""
        integers, scales, minima = formats.quant_parts(self.scheme, self.rows, self.k)
        return QuantParts(integers, scales, minima, self.format.sub)

    def repacked(self, layout: str = "panels") -> PackedWeight:
        """The same weight in panels or planes."""
        if self.layout == layout:
            return self
        pack = formats.pack_planes if layout == "planes" else formats.pack_panels
        return PackedWeight(self.scheme, self.k, self.n, layout, pack(self.scheme, self.rows, self.k))
