# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Four neighbouring elements of a row of a packed weight as a thread decodes them: of rows in planes, and as in files.

Both follow from the format's description, and give what `formats.decode` gives, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value
from rlx_mlir.codegen.gpu.planes import QUAD, PlaneRows, dense_quad
from rlx_mlir.formats import BlockFormat, get_format, plane_layout
from rlx_mlir.formats.descriptions import Plane, Scaled

_FLOATS = {"<f2": "f16", "<f4": "f32"}


def elements_of(em: DeviceEmitter, scheme: str, layout: str, k: int) -> FileRows | PlaneRows:
    """What decodes rows of `k` elements of a format, in layout `rows` or `planes`.

    Raises UnsupportedByTemplate for formats whose blocks or scales aren't of whole quads, or that aren't plain.
    """
    fmt = get_format(scheme)
    if layout == "planes":
        return PlaneRows(em, plane_layout(fmt), k)
    if fmt.dense is None and not fmt.is_plain:
        raise UnsupportedByTemplate(f"{scheme} isn't of integers in planes")
    if fmt.dense is None and (fmt.block % QUAD or fmt.sub % QUAD):
        raise UnsupportedByTemplate(f"blocks of {fmt.block} elements with scales for {fmt.sub} aren't whole quads")
    return FileRows(em, fmt, k)


@dataclass(frozen=True)
class FileRows:
    """Rows in the order of files: blocks one after the other, which start at any byte."""

    em: DeviceEmitter
    format: BlockFormat
    k: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.format.row_bytes(self.k)

    def quad(self, row: Value, column: Value) -> list[Value]:
        """The elements from `column`, a multiple of four, on, as f32; `row` is the row's address."""
        em, fmt = self.em, self.format
        if fmt.dense is not None:
            return dense_quad(em, row, fmt.name, column)
        block = em.at(row, column // fmt.block * fmt.nbytes, "i8")
        inside = em.index(column % fmt.block)
        sub = inside // fmt.sub
        assert fmt.scale is not None, "a quantised format"
        scale = self._factor(block, fmt.scale, sub)
        minimum = None if fmt.minimum is None else self._factor(block, fmt.minimum, sub)
        if minimum is not None and fmt.minimum_sign < 0:
            minimum = -minimum
        found = []
        for lane in range(QUAD):
            stored = self._integer(block, fmt.quants, inside + lane, signed=fmt.signed, offset=fmt.offset)
            value = em.cast("arith.sitofp", stored, "f32") * scale
            found.append(value if minimum is None else value + minimum)
        return found

    def _factor(self, block: Value, what: Scaled, sub: Index) -> Value:
        """A scale or minimum of a sub-block."""
        em, field = self.em, self.format.field(what.field)
        element = _FLOATS[field.dtype]
        # A block's bytes may be odd, so floats are read as their bytes are aligned.
        aligned = 2 if self.format.nbytes % 2 == 0 and field.offset % 2 == 0 else 1
        factor = em.widen(em.ld(em.at(block, field.offset, "i8"), element, align=aligned))
        if not what.planes:
            return factor
        integer = self._integer(block, what.planes, sub, signed=what.signed, offset=what.offset)
        return factor * em.cast("arith.sitofp", integer, "f32")

    def _integer(self, block: Value, planes: tuple[Plane, ...], position: Index, *, signed: bool, offset: int) -> Value:
        """An integer of a sequence, the offset subtracted: its planes joined."""
        em = self.em
        total: Value | None = None
        for plane in planes:
            place: Index = self.format.field(plane.field).offset + plane.byte0
            shift: Index = plane.shift0
            rest: Index = position
            for size, byte, bits in reversed(list(zip(plane.digits, plane.byte, plane.shift, strict=True))):
                digit, rest = rest % size, rest // size
                place, shift = place + digit * byte, shift + digit * bits
            stored = em.cast("arith.extui", em.ld(em.at(block, place, "i8"), "i8"), "i32")
            here = (stored >> em.index(shift)) & ((1 << plane.bits) - 1)
            here = here << plane.into if plane.into else here
            total = here if total is None else total | here
        assert total is not None, "a format with planes"
        if signed:
            total = (total ^ 0x80) - 0x80
        return total - offset if offset else total
