# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for products of rows with the weight of their expert, dense ones: result[m] = x[m] weight[expert[m]].

A block has some columns of one expert. It lists the expert's rows among the next 2048, and takes them eight at a time:
its warps share K, each thread has a vector of neighbouring columns, and sums of warps are joined in shared memory, in a
fixed order. Sums are f32. An expert without rows costs the search for them.

Bound: each weight of an expert that has rows is read once for eight of its rows, from memory the first time. That is
all that few tokens need; many are bound by multiply-adds of f32, 2 M K N operations, without tensor cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import Index, Value, element_of, vec
from rlx_mlir.codegen.gpu.emit import DeviceEmitter
from rlx_mlir.codegen.gpu.kernel import Constants, DeviceKernel, HostEmitter, write_sized_kernel
from rlx_mlir.codegen.gpu.reduce import THREADS, WARP, Joins
from rlx_mlir.codegen.gpu.scan import running_of_block
from rlx_mlir.codegen.specs import GroupedSpec, PackedGroupedSpec
from rlx_mlir.codegen.structures import pairwise

#: Rows that are looked at for those of the expert, and that are multiplied together.
LISTED, ROWS = 2048, 8
#: Elements along K that stand in shared memory, of which each warp has a part, and that a warp reads at once.
DEPTH, STEPS = THREADS, 8
WARPS = THREADS // WARP
#: Where parts of shared memory begin: sums of counts, the list, rows of x, sums of products; in bytes.
_LIST = 64
_X = _LIST + 4 * LISTED
_SUMS = _X + 4 * ROWS * DEPTH


@dataclass(frozen=True)
class _Sizes:
    """Rows, elements along K, columns, experts."""

    m: Index
    k: Index
    n: Index
    experts: Index


def emit_grouped(
    name: str, spec: GroupedSpec | PackedGroupedSpec, chip: str, constants: Constants = frozenset()
) -> DeviceKernel:
    """The kernel of a `GroupedSpec`.

    Raises UnsupportedByTemplate for packed weights, and for other types than f32, f16 and bf16 with numbers of experts
    of i32 or i64.
    """
    if isinstance(spec, PackedGroupedSpec):
        raise UnsupportedByTemplate(f"{name}: products by experts with packed weights have no schedule")
    element, number = element_of(spec.x), element_of(spec.expert)
    if element not in IN_F32 or element_of(spec.weight) != element or number not in ("i32", "i64"):
        raise UnsupportedByTemplate(f"{name}: products of {spec.x} by experts of {number} have no schedule")
    em = DeviceEmitter(chip)
    lanes = 4  # eight sums each for eight rows would leave a multiprocessor one block

    def sizes(host: HostEmitter, buffers: list[Value]) -> _Sizes:
        x, weight, *_ = buffers
        return _Sizes(host.dim(x, 0), host.dim(weight, 1), host.dim(weight, 2), host.dim(weight, 0))

    def widths(known: _Sizes) -> tuple[int, ...]:
        """Vectors, where rows of weights are made of such."""
        if isinstance(known.n, int):
            return (1,) if known.n % lanes else (lanes,)
        return lanes, 1

    return write_sized_kernel(
        em,
        name,
        "grouped",
        [("x", spec.x), ("weight", spec.weight), ("expert", spec.expert)],
        [("out", spec.result)],
        sizes,
        lambda buffers, own, width: _Grouped(em, element, number, buffers, own, width).run(),
        lambda host, own, width: own.experts * host.iceildiv(own.n, WARP * width),
        threads=THREADS,
        symbol="grouped",
        widths=widths,
        divisors=lambda own: [own.n],
        shared=lambda width: _SUMS + 4 * THREADS * width,
        constants=constants,
        order=spec.operand_order,
        type="i32",
    )


@dataclass(frozen=True)
class _Grouped:
    """Emits a block; threads have `lanes` columns each. `buffers` are x, weight, expert and the result."""

    em: DeviceEmitter
    element: str
    number: str
    buffers: Sequence[Value]
    sizes: _Sizes
    lanes: int

    def run(self) -> None:
        """All rows of the block's expert."""
        em, sizes, width = self.em, self.sizes, WARP * self.lanes
        parts = em.iceildiv(em.index(sizes.n), width)
        own, first = em.index(em.block() // parts), em.index(em.block() % parts * width)
        with em.loop(0, em.index(sizes.m), LISTED, hint="begin") as begin:
            count = self._list(own, begin.iv)
            with em.loop(0, count, ROWS, hint="group") as group:
                self._rows(own, first, group.iv, count)

    def _list(self, own: Value, begin: Value) -> Value:
        """Writes the numbers of the expert's rows, among `LISTED` from `begin` on, to shared memory: how many."""
        em, sizes = self.em, self.sizes
        own = own if self.number == "i32" else em.wide(own)
        last = em.index(sizes.experts - 1) if self.number == "i32" else em.wide(sizes.experts) - 1
        found = []
        for turn in range(LISTED // THREADS):
            row = em.index(begin + em.thread() + turn * THREADS)
            exists = em.cmpi("ult", row, sizes.m)
            entry = em.imin(em.imax(em.ld_if(exists, self.buffers[2], self.number, row), 0), last)
            found.append((row, exists & em.cmpi("eq", entry, own)))
        counts = [em.cast("arith.extui", is_own, "i32") for _, is_own in found]
        place, count = running_of_block(em, Joins(em, "sum", "i32"), pairwise(lambda a, b: a + b, counts))
        for (row, is_own), one in zip(found, counts, strict=True):
            with em.if_(is_own):
                em.st(row, em.shared(_LIST), place)
            place = em.index(place + one)
        return count

    def _rows(self, own: Value, first: Value, group: Value, count: Value) -> None:
        """`ROWS` rows of the list, from `group` on, times the block's columns."""
        em, sizes, lanes = self.em, self.sizes, self.lanes
        em.barrier()  # the list is there, and what the rows before have shared was read
        exist = [em.cmpi("ult", group + row, count) for row in range(ROWS)]
        rows = [em.wide(em.ld_if(known, em.shared(_LIST), "i32", group + row)) for row, known in enumerate(exist)]
        column = em.index(first + em.lane() * lanes)
        inside = em.cmpi("ult", column, sizes.n)
        zeros = [[em.const(0.0, "f32")] * lanes] * ROWS
        with em.loop(0, em.index(sizes.k), DEPTH, carry=zeros, hint="depth") as depth:
            em.barrier()
            k = em.index(depth.iv + em.thread())
            for number, (row, known) in enumerate(zip(rows, exist, strict=True)):
                place = row * em.wide(sizes.k) + em.wide(k)
                value = em.ld_if(known & em.cmpi("ult", k, sizes.k), self.buffers[0], self.element, place)
                em.st(em.widen(value), em.shared(_X), em.thread() + number * DEPTH)
            em.barrier()
            depth.yield_(self._products(own, depth.iv, column, inside, depth.carry))
        self._join(rows, exist, first, depth.result)

    def _products(
        self, own: Value, begin: Value, column: Value, inside: Value, sums: list[list[Value]]
    ) -> list[list[Value]]:
        """The sums with what the warp has of `DEPTH` elements along K from `begin` on."""
        em, sizes, lanes = self.em, self.sizes, self.lanes
        part = DEPTH // WARPS
        start = em.index((em.thread() >> 5) * part)
        kind = self.element if lanes == 1 else vec(lanes, self.element)
        with em.loop(0, part, STEPS, carry=sums, hint="step") as step:
            weights = []
            for more in range(STEPS):
                k = em.index(begin + start + step.iv + more)
                place = (em.wide(own) * em.wide(sizes.k) + em.wide(k)) * em.wide(sizes.n) + em.wide(column)
                exists = inside & em.cmpi("ult", k, sizes.k)
                weights.append(em.floats(em.ld_if(exists, self.buffers[1], kind, place)))
            found = []
            for row, totals in enumerate(step.carry):
                for four in range(0, STEPS, 4):
                    at = em.index(start + step.iv + (row * DEPTH + four))
                    xs = em.lanes(em.ld(em.shared(_X), vec(4, "f32"), at))
                    for x, weight in zip(xs, weights[four : four + 4], strict=True):
                        totals = [em.fmaf(x, w, total) for w, total in zip(weight, totals, strict=True)]
                found.append(totals)
            step.yield_(found)
        return step.result

    def _join(self, rows: list[Value], exist: list[Value], first: Value, sums: list[list[Value]]) -> None:
        """Joins what the warps have, and writes it, a column for each thread."""
        em, sizes, lanes = self.em, self.sizes, self.lanes
        width, memory = WARP * lanes, em.shared(_SUMS)
        own = em.index((em.thread() >> 5) * width + em.lane() * lanes)
        column = em.index(first + em.thread())
        writes = em.cmpi("ult", em.thread(), width) & em.cmpi("ult", column, sizes.n)
        for row, known, totals in zip(rows, exist, sums, strict=True):
            em.barrier()
            em.st(em.vector(totals) if lanes > 1 else totals[0], memory, own)
            em.barrier()
            with em.if_(writes & known):
                total = pairwise(
                    lambda a, b: a + b, [em.ld(memory, "f32", em.thread() + warp * width) for warp in range(WARPS)]
                )
                em.st(em.narrow(total, self.element), self.buffers[3], row * em.wide(sizes.n) + em.wide(column))
