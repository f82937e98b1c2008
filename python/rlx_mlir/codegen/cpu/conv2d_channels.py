# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions of images with few products for each pixel, such as those of a channel each: **lanes run over places**.

A unit is one output at the places of some rows of an image's result, or of a part of one row. For one channel at a time
it copies the pixels that these see into scratch, with zeros where nothing is seen, and every `stride`-th column side by
side: then neighbouring places see neighbouring pixels with each tap, which one vector of scratch holds. Every output is
one chain of operations along the sum, whatever units are.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Emitter, Index, Value
from rlx_mlir.codegen.specs import Conv2dSpec
from rlx_mlir.codegen.specs.tensors import why_no_convolution

from .conv2d import Convolution, Cut, copy_pixels, repeated, write_convolution, zeros
from .kernel import Accumulators, Scratch
from .registry import Generator
from .target import Target

PLACES = 1024
"""Places of a unit at most: their sums, and what they see of a channel, stay in the nearest cache."""

UNROLLED = 32
"""Taps that stand one after the other in the code at most; the rows of larger kernels go in loops."""


@dataclass(frozen=True)
class _Parts:
    """Scratch memory of a thread.

    Attributes:
        seen: rows of pixels of a channel; of each row, the columns 0, stride, .. and then 1, 1 + stride, ..
        columns: how many of each of these.
        sums: in one row, place by place.
    """

    seen: Value
    columns: Index
    sums: Accumulators


def emit_conv2d_channels(name: str, spec: Conv2dSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text.

    Raises UnsupportedByTemplate for elements other than f32, f16 and bf16, and for dynamic kernels or channels.
    """
    if reason := why_no_convolution(spec.x, spec.weight, spec.result):
        raise UnsupportedByTemplate(f"{name}: {reason}")
    return write_convolution(name, spec, _Convolution(spec, target))


class _Convolution(Convolution):
    def units(self, em: Emitter, x: Value) -> Index:
        """Parts of rows, for each block of rows, each output, each image."""
        cut = Cut.of(em, self.spec, x, PLACES)
        return cut.blocks * cut.parts * self.outputs * em.dim(x, 0)

    def parts(self, em: Emitter, x: Value, scratch: Scratch) -> _Parts:
        """Takes the scratch memory; the last vectors of rows may reach beyond it."""
        cut, stride = Cut.of(em, self.spec, x, PLACES), self.spec.stride[1]
        more = self.spec.dilation[1] * (self.kernel[1] - 1) // stride
        room = cut.room(PLACES, lambda tall, wide: self.reach(tall, 0) * (wide + more) * stride)
        seen = scratch.take([room + self.lanes], "f32")
        sums = Accumulators(em, self.target, self.finishing, PLACES + self.lanes, scratch, 1)
        return _Parts(seen, cut.wide + more, sums)

    def body(
        self, em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        """Computes a range of units."""
        x, weight, *arguments = values
        arguments, outputs = self.finishing.flat(em, arguments), self.finishing.flat(em, outputs)
        parts, cut = self.parts(em, x, scratch), Cut.of(em, self.spec, x, PLACES)
        with em.loop(begin, end, hint="unit") as unit:
            part, rest = unit.iv % cut.parts, unit.iv // cut.parts
            block, output = rest % cut.blocks, rest // cut.blocks  # outputs of all images
            at, sizes = cut.area(em, block, part)
            own = output % self.outputs
            image, group = output // self.outputs, own // self.per_group
            if self.inputs > 1:
                parts.sums.clear(1)
            with em.loop(0, self.inputs, hint="c") as c:
                channel = (image * self.spec.groups + group) * self.inputs + c.iv
                self._copy(em, parts, x, channel, at, sizes)
                self._multiply(em, parts, (weight, own, c.iv), sizes)
            start = at[0] * cut.places[1] + at[1]
            columns, above = (start, start + sizes[0] * sizes[1]), image * self.outputs
            parts.sums.finish(arguments, outputs, 0, output, 1, columns=columns, above=above)

    def _copy(
        self, em: Emitter, parts: _Parts, x: Value, channel: Index, at: tuple[Index, Index], sizes: tuple[Index, Index]
    ) -> None:
        """Pixels of a channel, counted through all images, that the places from `at` on see."""
        spec, flat = self.spec, em.rows(x)
        height, width = em.dim(x, 2), em.dim(x, 3)
        top, left = (own * stride - padding for own, stride, padding in zip(at, spec.stride, spec.padding, strict=True))
        with em.loop(0, self.reach(sizes[0], 0), hint="i") as i:
            y = i.iv + top
            inside = em.cmpi("ult", em.index(y), height)
            for phase in range(spec.stride[1]):
                to = (i.iv * spec.stride[1] + phase) * parts.columns
                first = left + phase
                # Of stride s, column j is pixel first + s j.
                low, high = (self._at_least(em, edge - first, parts.columns) for edge in (0, width))
                low, high = em.select(inside, low, parts.columns), em.select(inside, high, parts.columns)
                zeros(em, self.target, parts.seen, to, to + low)
                source = (channel * height + y, 0 - first)
                copy_pixels(em, self.target, flat, source, (low, high), spec.stride[1], parts.seen, 0 - to)
                zeros(em, self.target, parts.seen, to + high, to + parts.columns)

    def _at_least(self, em: Emitter, pixels: Index, most: Index) -> Index:
        """The first column that lies so many pixels behind the first one, or further; `most` at most."""
        stride = self.spec.stride[1]
        return em.imin(em.iceildiv(em.imax(pixels, 0), stride), most)

    def _multiply(
        self, em: Emitter, parts: _Parts, weight: tuple[Value, Index, Index], sizes: tuple[Index, Index]
    ) -> None:
        """Adds the products of a channel to the sums; weight: of all outputs, the output and the channel of its group.

        Sums of one channel begin with it: vectors may reach beyond their row, into sums that are written afterwards.
        """
        spec, (down, across), data = self.spec, self.kernel, parts.sums.data
        kernels, *own = weight
        unrolled = UNROLLED if down * across <= UNROLLED else 0

        def at(row: Index, column: Index, mask: Value | None) -> None:
            place = row * sizes[1] + column

            def along(u: Index, total: Value) -> Value:
                line = (row * spec.stride[0] + u * spec.dilation[0]) * spec.stride[1]

                def tap(v: Index, total: Value) -> Value:
                    phase, shift = v * spec.dilation[1] % spec.stride[1], v * spec.dilation[1] // spec.stride[1]
                    pixels = em.vload(parts.seen, [(line + phase) * parts.columns + (column + shift)], self.type)
                    factor = self.target.widen(em, em.load(kernels, [*own, u, v]))
                    return self.target.fma(em, em.broadcast(factor, self.type), pixels, total)

                return repeated(em, (0, across), unrolled, total, tap)

            old = em.zero(self.type)
            if mask is not None:
                old = em.masked_load(data, [0, place], mask, old)
            elif self.inputs > 1:
                old = em.vload(data, [0, place], self.type)
            total = repeated(em, (0, down), unrolled, old, along)
            em.vstore(total, data, [0, place], mask)

        whole = sizes[1] if self.inputs == 1 else sizes[1] // self.lanes * self.lanes
        with em.loop(0, sizes[0], hint="row") as row:
            with em.loop(0, whole, self.lanes, hint="col") as column:
                at(row.iv, column.iv, None)
            if self.inputs > 1:
                with em.loop(whole, sizes[1], self.lanes, hint="col") as column:
                    at(row.iv, column.iv, em.mask(sizes[1] - column.iv, self.lanes))


def _configure(name: str, spec: Conv2dSpec, target: Target) -> Conv2dSpec | None:
    return None if spec.in_panels else spec


GENERATORS = (Generator("conv2d_channels", "conv2d", _configure, emit_conv2d_channels),)
