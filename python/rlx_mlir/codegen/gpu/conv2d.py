# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for convolutions of images: each group of channels is a product, whose right side is never written.

    result[o, p] = sum_k weight[o, k] x[k, p]

with k = (channel, row, column) of a kernel and p a pixel of the result. A block has a tile of output channels times
pixels, and goes along k: the weights of a step are copied to shared memory, and so are the pixels that they meet, each
thread finding those of its own pixel; what lies outside of the image is zero. A thread multiplies 4 channels by 4
pixels, one chain of additions for each, in f32. The next step's elements are on their way meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import Index, Value, element_of, shape_of, vec
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Parameter, pointer
from rlx_mlir.codegen.gpu.kernel import (
    Constants,
    DeviceKernel,
    HostEmitter,
    Numbers,
    Scratch,
    symbol_of,
    write_device_kernel,
)
from rlx_mlir.codegen.specs import Conv2dSpec

#: Pixels of a tile, steps along k, and what a thread has of each side.
PIXELS, STEP, OWN = 64, 16, 4
#: Elements between lines of a tile of weights: what threads copy together goes to different banks.
PAD = 4
#: Outputs of a group below which tiles would be mostly empty, and blocks that a grid has along y.
LEAST, MOST_BLOCKS = 16, 65535
_ALONG = 8
"""Neighbours along k that threads copy together: a sector of 32 bytes."""


@dataclass(frozen=True)
class Conv2dConfig:
    """channels: output channels of a tile, 32 or 64."""

    channels: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.channels * PIXELS // OWN**2

    @property
    def weights(self) -> int:
        """Elements of a tile of weights."""
        return STEP * (self.channels + PAD)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: two tiles of each side."""
        return 4 * 2 * (self.weights + STEP * PIXELS)


def conv2d_config(outputs: int) -> Conv2dConfig:
    """For a number of output channels of a group."""
    return Conv2dConfig(64 if outputs > 32 else 32)


def emit_conv2d(
    name: str,
    spec: Conv2dSpec,
    chip: str,
    constants: Constants = frozenset(),
    config: Conv2dConfig | None = None,
) -> DeviceKernel:
    """The kernel of a convolution.

    Raises UnsupportedByTemplate for other element types than f32, f16 and bf16, dynamic numbers of channels, and groups
    of few outputs.
    """
    element, weight = element_of(spec.x), shape_of(spec.weight)
    if element not in IN_F32:
        raise UnsupportedByTemplate(f"{name}: convolutions of {element} have no schedule")
    if None in weight:
        raise UnsupportedByTemplate(f"{name}: expects known numbers of channels, but the weight is {spec.weight}")
    outputs, inputs, rows, columns = (size or 0 for size in weight)
    per_group = outputs // spec.groups
    config = config or conv2d_config(per_group)
    tiles = -(-per_group // config.channels) * spec.groups
    if per_group < LEAST or tiles > MOST_BLOCKS:
        raise UnsupportedByTemplate(f"{name}: tiles of channels don't fit {spec.groups} groups of {per_group} outputs")
    em = DeviceEmitter(chip)
    operands, results = [("x", spec.x), ("weight", spec.weight)], [("out", spec.result)]
    sizes = _sizes(HostEmitter(), Value("%x", spec.x), Value("%out", spec.result))
    numbers = Numbers(sizes, "i32")
    parameters: list[Parameter] = [
        *(pointer(own, readonly=True, constant=spec.order[i] in constants) for i, (own, _) in enumerate(operands)),
        pointer("out"),
        *numbers.parameters,
    ]
    symbol = symbol_of(f"{name}_conv2d")
    with em.kernel(symbol, parameters, config.threads, chained=True) as values:
        known = numbers.filled(values[3:])
        _Conv2d(em, spec, element, config, (per_group, inputs, rows, columns), values[:3], known).run()

    def host(host: HostEmitter, sources: list[Value], targets: list[Value], scratch: Scratch) -> None:
        own = _sizes(host, sources[0], targets[0])
        pixels = host.iceildiv(own["pixels"], PIXELS)
        arguments = [*sources, *targets, *numbers.arguments(host, own)]
        grid = [pixels * host.dim(targets[0], 0), tiles]
        host.launch(symbol, grid, config.threads, arguments, shared=config.shared_bytes)

    return write_device_kernel(name, "conv2d", operands, results, em, host, order=spec.order)


def _sizes(em: HostEmitter, x: Value, out: Value) -> dict[str, Index]:
    """The sizes of images: of x, the width of the result, and how many pixels it has."""
    named = (("height", x, 2), ("width", x, 3), ("wide", out, 3))
    sizes = {name: em.dim(buffer, axis) for name, buffer, axis in named}
    return {**sizes, "pixels": em.dim(out, 2) * sizes["wide"]}


class _Conv2d:
    """Emits the tile of one block."""

    def __init__(
        self,
        em: DeviceEmitter,
        spec: Conv2dSpec,
        element: str,
        config: Conv2dConfig,
        weight: tuple[int, int, int, int],
        buffers: list[Value],
        sizes: dict[str, Index],
    ) -> None:
        self.em, self.spec, self.element, self.config, self.sizes = em, spec, element, config, sizes
        self.outputs, self.inputs, self.rows, self.columns = weight
        self.k = self.inputs * self.rows * self.columns
        self.x, self.weight, self.out = buffers
        self.pixels = sizes["pixels"]
        tiles = em.iceildiv(self.pixels, PIXELS)
        self.image = em.index(em.block() // tiles)
        self.first_pixel = em.block() % tiles * PIXELS
        per_group = -(-self.outputs // config.channels)
        self.group = em.index(em.block("y") // per_group)
        self.first_channel = em.block("y") % per_group * config.channels

    # -- operands -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The whole tile."""
        em = self.em
        self._place(em.thread())
        self._put(em.const(0), self._fetch(em.const(0)))
        em.barrier()
        zeros = [em.zero("f32")] * OWN**2
        steps = -(-self.k // STEP)
        with em.loop(0, steps, 1, (zeros, em.const(0)), hint="step") as loop:
            totals, turn = loop.carry
            ahead = self._fetch(loop.iv + 1)
            totals = self._multiply(turn, totals)
            other = turn ^ 1
            self._put(other, ahead)
            em.barrier()
            loop.yield_((totals, other))
        self._store(loop.result[0])

    def _place(self, thread: Value) -> None:
        """What the thread copies: of weights a few channels and places along k, of the image what meets its pixel."""
        em, sizes, spec = self.em, self.sizes, self.spec
        self.along, self.channel = em.index(thread % _ALONG), em.index(thread // _ALONG)
        self.pixel, self.deep = em.index(thread % PIXELS), em.index(thread // PIXELS)
        own = em.index(self.first_pixel + self.pixel)
        self.inside = em.cmpi("ult", own, self.pixels)
        i, j = own // sizes["wide"], own % sizes["wide"]
        self.top = em.index(i * spec.stride[0] - spec.padding[0])
        self.left = em.index(j * spec.stride[1] - spec.padding[1])
        channels = em.wide(self.image) * (self.inputs * spec.groups)
        self.first_input = channels + em.wide(self.group * self.inputs)

    def _fetch(self, step: Value) -> list[Value]:
        """The thread's elements of a step, weights first; zeros where there are none."""
        em, config = self.em, self.config
        start = em.index(step * STEP)
        found = []
        rows = config.threads // _ALONG
        for at in range(0, STEP, _ALONG):
            k = em.index(start + (self.along + at))
            for first in range(0, config.channels, rows):
                channel = em.index(self.first_channel + (self.channel + first))
                exists = em.cmpi("ult", k, self.k) & em.cmpi("ult", channel, self.outputs)
                line = em.wide(channel) + em.wide(self.group * self.outputs)
                place = line * self.k + em.wide(k)
                found.append(em.widen(em.ld_if(exists, self.weight, self.element, place)))
        for at in range(0, STEP, config.threads // PIXELS):
            found.append(self._pixel(em.index(start + (self.deep + at))))
        return found

    def _pixel(self, k: Value) -> Value:
        """What meets the thread's pixel at a place along k."""
        em, sizes, spec = self.em, self.sizes, self.spec
        taps = self.rows * self.columns
        channel, tap = k // taps, k % taps
        row = self.top + tap // self.columns * spec.dilation[0]
        column = self.left + tap % self.columns * spec.dilation[1]
        # Places before the image are large as unsigned numbers.
        exists = em.cmpi("ult", row, sizes["height"]) & em.cmpi("ult", column, sizes["width"])
        exists = exists & (self.inside & em.cmpi("ult", k, self.k))
        line = (self.first_input + em.wide(channel)) * self._wide("height") + em.wide(row)
        place = line * self._wide("width") + em.wide(column)
        return em.widen(em.ld_if(exists, self.x, self.element, place))

    def _wide(self, name: str) -> Index:
        size = self.sizes[name]
        return self.em.wide(size) if isinstance(size, Value) else size

    def _put(self, turn: Value, values: list[Value]) -> None:
        """The thread's elements of a step into shared memory, k outermost."""
        em, config = self.em, self.config
        weights, pixels = self._tiles(turn)
        left = list(values)
        rows = config.threads // _ALONG
        for at in range(0, STEP, _ALONG):
            for first in range(0, config.channels, rows):
                line = (self.along + at) * (config.channels + PAD)
                em.st(left.pop(0), weights, line + (self.channel + first))
        for at in range(0, STEP, config.threads // PIXELS):
            line = (self.deep + at) * PIXELS
            em.st(left.pop(0), pixels, line + self.pixel)

    def _tiles(self, turn: Value) -> tuple[Value, Value]:
        """The addresses of a step's tiles."""
        em, config = self.em, self.config
        memory = em.shared()
        weights = em.at(memory, turn * config.weights, "f32")
        pixels = em.at(memory, turn * (STEP * PIXELS) + 2 * config.weights, "f32")
        return weights, pixels

    # -- products -----------------------------------------------------------------------------------------------------

    def _multiply(self, turn: Value, totals: list[Value]) -> list[Value]:
        """Adds a step's products."""
        em, config = self.em, self.config
        weights, pixels = self._tiles(turn)
        across = PIXELS // OWN
        channel = em.thread() // across * OWN
        pixel = em.thread() % across * OWN
        for k in range(STEP):
            x = em.lanes(em.ld(weights, vec(OWN, "f32"), channel + k * (config.channels + PAD)))
            y = em.lanes(em.ld(pixels, vec(OWN, "f32"), pixel + k * PIXELS))
            totals = [em.fmaf(x[at // OWN], y[at % OWN], total) for at, total in enumerate(totals)]
        return totals

    def _store(self, totals: list[Value]) -> None:
        """Rounds and writes the thread's channels and pixels that exist."""
        em = self.em
        across = PIXELS // OWN
        first = self.first_channel + em.thread() // across * OWN
        pixel = em.index(self.first_pixel + em.thread() % across * OWN)
        images = em.wide(self.image) * (self.outputs * self.spec.groups)
        base = images + em.wide(self.group * self.outputs)
        pixels = self.pixels if isinstance(self.pixels, int) else em.wide(self.pixels)
        whole = isinstance(self.pixels, int) and self.pixels % OWN == 0
        for row in range(OWN):
            channel = em.index(first + row)
            own = totals[row * OWN : (row + 1) * OWN]
            with em.if_(em.cmpi("ult", channel, self.outputs)):
                start = (base + em.wide(channel)) * pixels + em.wide(pixel)
                if whole:
                    with em.if_(em.cmpi("ult", pixel, self.pixels)):
                        em.st(em.narrow(em.vector(own), self.element), self.out, start)
                    continue
                for lane, value in enumerate(own):
                    with em.if_(em.cmpi("ult", pixel + lane, self.pixels)):
                        em.st(em.narrow(value, self.element), self.out, start + lane)
