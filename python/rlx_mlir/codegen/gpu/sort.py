# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The GPU schedule of sorted rows, whole or their first k elements, of any type and in any order, of any length.

Elements become pairs of a key and a position, all of which differ, so that the order of equal keys is kept. A block
sorts a tile of a row in shared memory, by a bitonic network. Rows of more tiles are merged: each launch makes runs of
twice the length, whose elements find themselves, each by bisection. Of a run no more than k elements are made, and the
last launch reads the elements themselves.

Bound: a tile of 2^p pairs takes p (p + 1) / 2 steps in shared memory. Beyond, each launch of log2(tiles) reads and
writes every pair once in global memory, 8 or 12 bytes, beside the reads of bisections, which caches serve.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Index, Value, element_of, shape_of
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Parameter, pointer
from rlx_mlir.codegen.gpu.kernel import (
    DeviceKernel,
    HostEmitter,
    Numbers,
    Scratch,
    check_counts,
    symbol_of,
    write_device_kernel,
)
from rlx_mlir.codegen.gpu.order import Order
from rlx_mlir.codegen.kernel import row_count
from rlx_mlir.codegen.specs import TopKSpec

#: Elements of a tile, and threads of a block, at most.
TILE, THREADS = 2048, 256
#: The least of both that a block has.
LEAST_TILE, WARP = 64, 32
#: Launches that merge, at most: positions are below 2^31.
MERGES = 31 - TILE.bit_length() + 1

Pair = tuple[Value, Value]
"""A key, and the position that has it, i32."""


def emit_sort(name: str, spec: TopKSpec, chip: str) -> DeviceKernel:
    """The kernel; UnsupportedByTemplate for elements that are no numbers, and where no element is wanted."""
    n = shape_of(spec.x)[-1]
    if spec.k == 0 or n == 0:
        raise UnsupportedByTemplate(f"{name}: no element is wanted")
    check_counts(name, n)
    order = Order.of(name, element_of(spec.x), spec.smallest, spec.nan_largest)
    return _Sort(name, spec, DeviceEmitter(chip), order, n).kernel()


def _in_order(em: DeviceEmitter, a: Pair, b: Pair) -> Value:
    """Whether a pair stands before another one."""
    equal = em.cmpi("eq", a[0], b[0])
    return em.cmpi("sgt", a[0], b[0]) | (equal & em.cmpi("slt", a[1], b[1]))


@dataclass(frozen=True)
class _Sort:
    """Emits the kernels of a spec; rows have n elements, None where calls say it."""

    name: str
    spec: TopKSpec
    em: DeviceEmitter
    order: Order
    n: int | None

    @property
    def tile(self) -> int:
        """Elements of a tile."""
        return TILE if self.n is None else min(max(1 << (self.n - 1).bit_length(), LEAST_TILE), TILE)

    @property
    def threads(self) -> int:
        """Threads of a block that sorts a tile."""
        return min(self.tile // 2, THREADS)

    @property
    def whole(self) -> bool:
        """Whether a tile is a row."""
        return self.n is not None and self.n <= TILE

    @property
    def results(self) -> list[tuple[str, str]]:
        """Names and types of what is wanted."""
        found = (("values", self.spec.values), ("indices", self.spec.indices))
        return [(word, type) for word, type in found if type is not None]

    def kernel(self) -> DeviceKernel:
        """The kernel."""
        symbol, em, spec = symbol_of(self.name), self.em, self.spec
        known: tuple[Index, Index] = (self._known(self.n, "n"), self._known(spec.k, "k"))
        sizes = Numbers(known)
        words = [word for word, _ in self.results]
        x, outs = pointer("x", readonly=True), [pointer(word) for word in words]
        pairs = [pointer("keys"), pointer("positions")]
        given = [pointer("from_keys", readonly=True), pointer("from_positions", readonly=True)]
        written = outs if self.whole else pairs
        with em.kernel(f"{symbol}_tiles", [x, *written, *sizes.parameters], self.threads, chained=True) as values:
            self._tiles(values[0], values[1 : 1 + len(written)], *sizes.filled(values[1 + len(written) :]))
        if not self.whole:
            run: list[Parameter] = [("run", "i64"), ("steps", "i64")]
            parameters = [*given, *pairs, *run, *sizes.parameters]
            with em.kernel(f"{symbol}_merge", parameters, THREADS, chained=True) as values:
                n, k = sizes.filled(values[6:])
                _Merge(em, values[0:2], values[2:4], values[4], values[5], n, k).run_all(self.order.key_type)
            kept = [pointer("even", readonly=True), pointer("odd", readonly=True)]
            parameters = [x, *kept, *outs, ("merges", "i64"), *sizes.parameters]
            with em.kernel(f"{symbol}_take", parameters, THREADS, chained=True) as values:
                at = 3 + len(outs)
                self._take(values[0], values[1:3], values[3:at], values[at], *sizes.filled(values[at + 1 :]))
        operands = [("x", spec.x), *((f"other{number}", type) for number, type in enumerate(spec.others))]
        host = functools.partial(self._host, symbol, sizes)
        return write_device_kernel(
            self.name, "sort", operands, self.results, em, host, scratch=self._scratch, order=spec.order
        )

    @staticmethod
    def _known(size: int | None, name: str) -> Index:
        return Value(f"%{name}", "index") if size is None else size

    # -- the host's part ---------------------------------------------------------------------------------------------

    def _scratch(self, host: HostEmitter, operands: list[Value], scratch: Scratch) -> list[Value]:
        """Keys, positions, and room for both once more; none where tiles are rows."""
        if self.whole:
            return []
        shape = [row_count(host, operands[0]), _length(host, operands[0])]
        return [scratch.take(shape, f"i{bits}", bits // 8) for bits in (self.order.bits, 32) * 2]

    def _host(
        self,
        symbol: str,
        sizes: Numbers[tuple[Index, Index]],
        host: HostEmitter,
        operands: list[Value],
        results: list[Value],
        scratch: Scratch,
    ) -> None:
        buffers = self._scratch(host, operands, scratch)
        rows, n, k = row_count(host, operands[0]), _length(host, operands[0]), _length(host, results[0])
        numbers = sizes.arguments(host, (n, k))
        tiles = host.iceildiv(n, self.tile)
        written = results if self.whole else buffers[:2]
        shared = self.tile * (self.order.bits // 8 + 4)
        arguments = [operands[0], *written, *numbers]
        host.launch(f"{symbol}_tiles", rows * tiles, self.threads, arguments, shared=shared)
        if self.whole:
            return
        merges: Index = 0
        for number in range(MERGES):
            run = self.tile << number
            if self.n is not None and self.n <= run:
                break
            sides = (buffers[:2], buffers[2:]) if number % 2 == 0 else (buffers[2:], buffers[:2])
            arguments = [*sides[0], *sides[1], *(host.const(own, "i64") for own in (run, run.bit_length())), *numbers]
            launch = functools.partial(
                host.launch, f"{symbol}_merge", rows * host.iceildiv(n, THREADS), THREADS, arguments
            )
            if isinstance(n, int):
                launch()
                merges = number + 1
                continue
            longer = host.cmpi("ugt", n, run)
            with host.if_(longer):
                launch()
            merges = merges + host.select(longer, host.const(1), host.const(0))
        arguments = [operands[0], buffers[1], buffers[3], *results, host.i64(merges), *numbers]
        host.launch(f"{symbol}_take", rows * host.iceildiv(k, THREADS), THREADS, arguments)

    # -- kernels -----------------------------------------------------------------------------------------------------

    def _tiles(self, x: Value, outs: Sequence[Value], n: Index, k: Index) -> None:
        """Sorts a tile, and writes its pairs, or what is wanted of it."""
        em, order, threads = self.em, self.order, self.threads
        tiles = em.iceildiv(n, self.tile)
        row, begin = em.wide(em.block()) // tiles, em.wide(em.block()) % tiles * self.tile
        start = em.wide(row * n)
        keys, positions = em.shared(), em.shared(self.tile * order.bits // 8)
        for number in range(self.tile // threads):
            at = em.index(em.thread() + number * threads)
            place = em.wide(begin + em.wide(at))
            exists = em.cmpi("ult", place, n)
            element = em.ld_if(exists, x, order.element, start + place)
            em.st(em.select(exists, order.key(em, element), order.least), keys, at)
            em.st(em.short(place), positions, at)
        self._network(keys, positions)
        em.barrier()
        wanted = k if self.whole else n - begin
        for number in range(self.tile // threads):
            at = em.index(em.thread() + number * threads)
            with em.if_(em.cmpi("ult", em.wide(at), wanted)):
                position = em.ld(positions, "i32", at)
                if self.whole:
                    self._write(x, outs, start, em.wide(row * k + em.wide(at)), position)
                else:
                    place = em.wide(start + begin + em.wide(at))
                    em.st(em.ld(keys, order.key_type, at), outs[0], place)
                    em.st(position, outs[1], place)

    def _network(self, keys: Value, positions: Value) -> None:
        """Sorts the tile in shared memory: runs of 2, 4, 8, … by exchanges over half of a run, a quarter, … ."""
        em = self.em

        def pair(at: Value) -> Pair:
            return em.ld(keys, self.order.key_type, at), em.ld(positions, "i32", at)

        with em.loop(0, self.tile.bit_length() - 1, hint="run") as run, em.loop(0, run.iv + 1, hint="step") as step:
            far = em.index(run.iv - step.iv)
            distance = em.index(em.const(1) << far)
            em.barrier()
            for number in range(self.tile // 2 // self.threads):
                own = em.index(em.thread() + number * self.threads)
                low = em.index(own * 2 - (own & (distance - 1)))
                high = em.index(low + distance)
                a, b = pair(low), pair(high)
                # Every second run goes the other way, so that two of them are one of twice the length.
                turned = em.cmpi("ne", (low >> (run.iv + 1)) & 1, 0)
                with em.if_(em.cmpi("eq", _in_order(em, a, b), turned)):
                    for value, base, at in ((a[0], keys, high), (b[0], keys, low)):
                        em.st(value, base, at)
                    for value, at in ((a[1], high), (b[1], low)):
                        em.st(value, positions, at)

    def _take(self, x: Value, kept: Sequence[Value], outs: Sequence[Value], merges: Value, n: Index, k: Index) -> None:
        """Writes what is wanted of rows whose positions are in order, in the buffer that the last launch wrote."""
        em = self.em
        row, at = _place_in_row(em, k)
        with em.if_(em.cmpi("ult", at, k)):
            start = em.wide(row * n)
            with em.if_(em.cmpi("eq", merges & 1, 0), "i32") as branch:
                branch.yield_(em.ld(kept[0], "i32", start + at))
                branch.else_()
                branch.yield_(em.ld(kept[1], "i32", start + at))
            self._write(x, outs, start, em.wide(row * k + at), branch.result)

    def _write(self, x: Value, outs: Sequence[Value], start: Value, place: Value, position: Value) -> None:
        """Writes the element at a position of the row that begins at `start`, and the position, where wanted."""
        em, order = self.em, self.order
        for (word, _), out in zip(self.results, outs, strict=True):
            if word == "indices":
                em.st(position, out, place)
                continue
            value = em.ld(x, order.element, start + em.wide(position))
            # -0 + 0 is 0; of halves in f32, which is exact.
            if order.is_float:
                value = value + 0.0 if order.element == "f64" else em.narrow(em.widen(value) + 0.0, order.element)
            em.st(value, out, place)


def _length(host: HostEmitter, buffer: Value) -> Index:
    return host.dim(buffer, len(shape_of(buffer.type)) - 1)


def _place_in_row(em: DeviceEmitter, length: Index) -> tuple[Value, Value]:
    """(the row, the place in it) of a thread, where blocks go along rows of some length."""
    per_row = em.iceildiv(length, THREADS)
    row, part = em.wide(em.block()) // per_row, em.wide(em.block()) % per_row
    return row, em.wide(part * THREADS + em.wide(em.thread()))


@dataclass(frozen=True)
class _Merge:
    """Emits a launch that makes runs of `2 run` elements of runs of `run`; no more than k of each count.

    A bisection takes `steps`.
    """

    em: DeviceEmitter
    source: Sequence[Value]
    target: Sequence[Value]
    run: Value
    steps: Value
    n: Index
    k: Index

    def run_all(self, key_type: str) -> None:
        """One element for each thread."""
        em, run = self.em, self.run
        row, at = _place_in_row(em, self.n)
        start = em.wide(row * self.n)
        begin = em.wide(at - (at & (run * 2 - 1)))
        middle, end = em.imin(begin + run, self.n), em.imin(begin + run * 2, self.n)
        first, second = em.imin(middle - begin, self.k), em.imin(end - middle, self.k)
        place = em.wide(at - begin)
        with em.if_(em.cmpi("ult", at, self.n) & em.cmpi("ult", place, em.imin(first + second, self.k))):

            def of_first(at: Value) -> Value:
                return em.ld(self.source[0], key_type, start + begin + at)

            def of_second(at: Value) -> Value:
                return em.ld(self.source[0], key_type, start + middle + at)

            low = self._taken(place, first, second, of_first, of_second)
            rest = em.wide(place - low)
            with em.if_(em.cmpi("ult", low, first), "i1") as branch:
                with em.if_(em.cmpi("ult", rest, second), "i1") as both:
                    both.yield_(em.cmpi("sge", of_first(low), of_second(rest)))
                    both.else_()
                    both.yield_(em.const(True, "i1"))
                branch.yield_(both.result)
                branch.else_()
                branch.yield_(em.const(False, "i1"))
            found = em.wide(start + em.select(branch.result, begin + low, middle + rest))
            for source, target, type in zip(self.source, self.target, (key_type, "i32"), strict=True):
                em.st(em.ld(source, type, found), target, start + at)

    def _taken(
        self,
        place: Value,
        first: Index,
        second: Index,
        of_first: Callable[[Value], Value],
        of_second: Callable[[Value], Value],
    ) -> Value:
        """How many elements of the first run come before a place; of equal keys, those of the first run do."""
        em = self.em
        none = em.const(0, "i64")
        least = em.select(em.cmpi("ugt", place, second), place - second, none)
        with em.loop(none, self.steps, em.const(1, "i64"), [least, em.imin(place, first)]) as loop:
            low, high = loop.carry
            half = em.wide((low + high) >> 1)
            with em.if_(em.cmpi("ult", low, high), [low, high]) as branch:
                earlier = em.cmpi("sge", of_first(half), of_second(em.wide(place - half - 1)))
                branch.yield_([em.select(earlier, half + 1, low), em.select(earlier, high, half)])
                branch.else_()
                branch.yield_([low, high])
            loop.yield_(branch.result)
        return em.wide(loop.result[0])
