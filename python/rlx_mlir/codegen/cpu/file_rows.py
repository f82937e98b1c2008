# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of packed weights in the order of files, decoded by vectors: bit for bit what `formats.decode` gives.

Which bytes an element's bits are in, and where in them, follows from the format's description, and is known when code
is printed: a vector of elements is a load of the bytes that hold them, a shuffle where these aren't neighbours, a shift
and a mask.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.codegen.emit import Emitter, Index, Value, vec
from rlx_mlir.formats import get_format
from rlx_mlir.formats.descriptions import Plane, Scaled

from . import UnsupportedByTemplate
from .target import Target

_FLOATS = {"<f2": "f16", "<f4": "f32"}
_LEAST = 4
"""Elements of a vector at least: those of formats whose scales are for fewer, or for an odd number, are left alone."""


class FileRows:
    """What decodes rows of a format.

    Attributes:
        step, step_bytes: elements that are decoded together, and their bytes: a block; a vector of a dense format.
        lanes: elements of a vector: they share a scale.
    """

    def __init__(self, target: Target, scheme: str) -> None:
        """Raises UnsupportedByTemplate for formats whose integers aren't in planes, or whose scales aren't plain."""
        self._target, self._format = target, get_format(scheme)
        fmt = self._format
        if fmt.dense is None and not fmt.is_plain:
            raise UnsupportedByTemplate(f"{scheme} isn't of integers in planes")
        self.lanes = target.lanes("f32")
        self.step = self.lanes if fmt.dense is not None else fmt.block
        self.step_bytes = self.step // fmt.block * fmt.nbytes
        if fmt.dense is None:
            while fmt.sub % self.lanes:
                self.lanes //= 2
            if self.lanes < _LEAST:
                raise UnsupportedByTemplate(f"{scheme} has scales for {fmt.sub} elements, not for whole vectors")

    def elements(self, em: Emitter, data: Value, at: Index) -> list[Value]:
        """`step` elements, of which the first begins at byte `at` of a flat buffer of i8, as vectors of f32."""
        fmt = self._format
        if fmt.dense is not None:
            word = "bf16" if fmt.name == "bf16" else f"f{8 * fmt.nbytes}"
            stored = em.vload(data, [at], vec(fmt.nbytes * self.lanes, "i8"))
            return [self._target.widen(em, em.bitcast(stored, vec(self.lanes, word)))]
        block = _Block(em, data, at)
        floats = vec(self.lanes, "f32")
        found = []
        assert fmt.scale is not None, "a quantised format"
        for sub in range(fmt.block // fmt.sub):
            scale = em.broadcast(self._factor(block, fmt.scale, sub), floats)
            minimum = None
            if fmt.minimum is not None:
                minimum = self._factor(block, fmt.minimum, sub)
                minimum = em.broadcast(-minimum if fmt.minimum_sign < 0 else minimum, floats)
            for first in range(sub * fmt.sub, (sub + 1) * fmt.sub, self.lanes):
                integers = self._integers(block, fmt.quants, range(first, first + self.lanes), fmt.signed, fmt.offset)
                value = em.cast("arith.sitofp", integers, floats) * scale
                found.append(value if minimum is None else value + minimum)
        return found

    def _factor(self, block: _Block, what: Scaled, sub: int) -> Value:
        """A scale or minimum of a sub-block, f32."""
        em, field = block.em, self._format.field(what.field)
        element = _FLOATS[field.dtype]
        stored = em.bitcast(block.bytes(field.offset, field.nbytes), vec(1, element))
        factor = self._target.widen(em, em.extract(stored, 0))
        if not what.planes:
            return factor
        integer = em.extract(self._integers(block, what.planes, range(sub, sub + 1), what.signed, what.offset), 0)
        return factor * em.cast("arith.sitofp", integer, "f32")

    def _integers(self, block: _Block, planes: Sequence[Plane], which: range, signed: bool, offset: int) -> Value:
        """Some integers of a sequence, i32, the offset subtracted: their planes joined."""
        em, wide = block.em, vec(len(which), "i32")
        total: Value | None = None
        for plane in planes:
            places = plane.bytes_.reshape(-1)[which.start : which.stop]
            shifts = [int(shift) for shift in plane.shifts.reshape(-1)[which.start : which.stop]]
            first = int(places.min())
            stored = block.bytes(self._format.field(plane.field).offset + first, int(places.max()) - first + 1)
            order = [int(place) - first for place in places]
            if order != list(range(len(which))):
                stored = em.shuffle(stored, stored, order)
            here = em.cast("arith.extui", stored, wide)
            if any(shifts):
                here = here >> (shifts[0] if min(shifts) == max(shifts) else em.const(shifts, wide))
            if min(shifts) + plane.bits < 8:
                here = here & ((1 << plane.bits) - 1)
            here = here << plane.into if plane.into else here
            total = here if total is None else total | here
        assert total is not None, "a format with planes"
        if signed:
            total = (total ^ 0x80) - 0x80
        return total - offset if offset else total


class _Block:
    """The bytes of a block, each range of which is loaded once."""

    def __init__(self, em: Emitter, data: Value, at: Index) -> None:
        self.em, self._data, self._at = em, data, at
        self._loaded: dict[tuple[int, int], Value] = {}

    def bytes(self, first: int, count: int) -> Value:
        """So many bytes, i8."""
        if (first, count) not in self._loaded:
            self._loaded[first, count] = self.em.vload(self._data, [self._at + first], vec(count, "i8"))
        return self._loaded[first, count]
