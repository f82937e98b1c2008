# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for norms of groups of channels of images [N, C, H, W]: a block has a group, which lies together.

The group is read once for each of three sums (mean, what the rounded mean lacks, variance), and once more for the
results: what a block has of it mostly stays in L2. Bound: memory's rate of a read and a write, as long as there are
groups enough for the GPU's multiprocessors. Order of operations are those of norms of rows: f32 inside, rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import Index, Value, element_of, vec
from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter
from rlx_mlir.codegen.gpu.epilogue import elementwise
from rlx_mlir.codegen.gpu.kernel import Constants, DeviceKernel, HostEmitter, symbol_of, write_sized_kernel
from rlx_mlir.codegen.gpu.reduce import THREADS, Joins, Pass, PassBody, Sizes
from rlx_mlir.codegen.specs import GroupNormSpec


@dataclass(frozen=True)
class _Image:
    """Sizes of x: images, channels of a group, pixels of a channel."""

    images: Index
    channels: Index
    pixels: Index


def emit_group_norm(name: str, spec: GroupNormSpec, chip: str, constants: Constants = frozenset()) -> DeviceKernel:
    """The kernel of a `GroupNormSpec`.

    Raises UnsupportedByTemplate for f64.
    """
    types = [spec.x, *spec.factors]
    if any(element_of(type) not in IN_F32 for type in types):
        raise UnsupportedByTemplate(f"{name}: norms of groups of {', '.join(types)} have no schedule")
    em = DeviceEmitter(chip)

    def sizes(host: HostEmitter, buffers: list[Value]) -> _Image:
        images, channels, height, width = (host.dim(buffers[0], axis) for axis in range(4))
        return _Image(images, channels // spec.groups, height * width)

    def widths(known: _Image) -> tuple[int, ...]:
        """Vectors of 16 bytes, where channels are made of such."""
        lanes = 128 // BITS[element_of(spec.x)]
        if isinstance(known.pixels, int):
            return (1,) if known.pixels % lanes else (lanes,)
        return lanes, 1

    return write_sized_kernel(
        em,
        name,
        "group_norm",
        list(zip(("x", "gamma", "beta"), types, strict=False)),
        [("out", spec.x)],
        sizes,
        lambda buffers, own, lanes: _Group(em, spec, symbol_of(name), buffers, own, lanes).run(),
        lambda host, own, lanes: own.images * spec.groups,
        threads=THREADS,
        symbol="group",
        widths=widths,
        divisors=lambda own: [own.pixels],
        shared=lambda lanes: 4 * THREADS // 32,
        constants=constants,
        order=spec.order,
    )


@dataclass(frozen=True)
class _Group:
    """Emits a block; `buffers` are x, the factors and the result."""

    em: DeviceEmitter
    spec: GroupNormSpec
    symbol: str
    buffers: Sequence[Value]
    sizes: _Image
    lanes: int

    def run(self) -> None:
        """All sweeps over the block's group."""
        em, lanes, element = self.em, self.lanes, element_of(self.spec.x)
        channels, pixels = self.sizes.channels, self.sizes.pixels
        length = em.wide(channels * pixels)
        unit = em.wide(em.block())
        start, channel = em.wide(unit * length), em.wide(unit % self.spec.groups * channels)
        first, step = em.wide(em.thread() * lanes), THREADS * lanes
        kind = element if lanes == 1 else vec(lanes, element)
        means: list[Value] = []

        def centred(at: Value) -> list[Value]:
            values = em.lanes(em.widen(em.ld(self.buffers[0], kind, start + at)))
            for mean in means:
                values = [value - mean for value in values]
            return values

        count = em.cast("arith.uitofp", length, "f32")
        # The second one is what the first, rounded, lacks: without it groups of one large number aren't 0.
        for _ in range(2):
            means.append(self._sum(centred, first, length) / count)
        variance = self._sum(lambda at: [x * x for x in centred(at)], first, length) / count
        scale = 1.0 / elementwise(em, "sqrt", [variance + self.spec.eps])
        with em.loop(first, length, em.const(step, "i64")) as loop:
            gamma, *beta = self._factors(channel + loop.iv // pixels)
            values = [value * scale * gamma for value in centred(loop.iv)]
            values = [value + beta[0] for value in values] if beta else values
            value = em.vector(values) if lanes > 1 else values[0]
            em.st(em.narrow(value, element), self.buffers[-1], start + loop.iv)

    def _factors(self, channel: Value) -> list[Value]:
        """Gamma and beta of a channel, f32."""
        em = self.em
        pairs = zip(self.buffers[1:-1], self.spec.factors, strict=True)
        return [em.widen(em.ld(base, element_of(type), channel)) for base, type in pairs]

    def _sum(self, values: Callable[[Value], list[Value]], first: Value, length: Value) -> Value:
        """The sum over the group of what `values` gives of a vector at a place; each thread gets the same bits."""
        em, joins = self.em, Joins(self.em, "sum", "f32")
        sizes = Sizes(1, length, 1)
        own = Pass(self.symbol, sizes, element_of(self.spec.x), "f32", False)
        body = PassBody(em, joins, own, sizes, length, length, self.lanes, self.buffers[0], self.buffers[-1])
        total = joins.tree(body.accumulate(first, length, THREADS * self.lanes, values))
        return em.block_reduce("add", total, em.shared(), THREADS)
