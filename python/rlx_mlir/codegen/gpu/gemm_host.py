# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The host's part of matrix products: which kernel runs for the sizes of a call, with how many blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter, Index, Value
from rlx_mlir.codegen.gpu.gemm_base import SUM_THREADS, Access, Gemm, Sizes, sum_kernel
from rlx_mlir.codegen.gpu.gemm_config import Choice, Tile, choose_by_rows, for_products, resources
from rlx_mlir.codegen.gpu.gemm_ring import Core, ring_kernel, shared_bytes
from rlx_mlir.codegen.gpu.kernel import Buffers, DeviceKernel, HostEmitter, Scratch, symbol_of, write_device_kernel
from rlx_mlir.codegen.specs.products import argument_buffers, result_buffers

MakeCore = Callable[[Tile], Core]
"""What multiplies by a tile."""

ESTIMATE = 1024
"""A dynamic N or K, for the choice of a tile."""


def arguments_of(gemm: Gemm) -> Buffers:
    """The buffers of the program's arguments."""
    return argument_buffers(gemm.program, gemm.out_shape, gemm.element)


def results_of(gemm: Gemm) -> Buffers:
    """The buffers of the outputs."""
    return result_buffers(gemm.program, gemm.out_shape, gemm.element)


def dense_operands(gemm: Gemm) -> Buffers:
    """The buffers of x, of the weights and of the arguments, for dense weights; with a stride, these are bytes."""
    x_element, w_element = gemm.float8 or (gemm.element, gemm.element)
    type = memref(gemm.w_shape, w_element)
    if gemm.w_stride is not None:
        type = memref((gemm.n, gemm.w_stride * BITS[gemm.element] // 8), "i8")
    weights = [(f"w{i}", type) for i in range(gemm.program.accumulators)]
    return [("x", memref(gemm.x_shape, x_element)), *weights, *arguments_of(gemm)]


@dataclass(frozen=True)
class Variant:
    """Kernels for one kind of access: up to so many rows (None: any number), a choice, its kernel and shared memory."""

    access: Access
    kernels: tuple[tuple[int | None, Choice, str, int], ...]


class _Device:
    """Emits the kernels of a product, each once."""

    def __init__(self, chip: str, symbol: str, gemm: Gemm, core: MakeCore, more: int) -> None:
        self.em, self._symbol, self._gemm, self._core, self._more = DeviceEmitter(chip), symbol, gemm, core, more
        self._made: dict[str, int] = {}
        self._tiles: dict[str, Tile] = {}

    def fitted(self, tile: Tile) -> Tile:
        """The tile with as many stages as shared memory has room for, of less of K where that is little.

        Two blocks that share a multiprocessor hide more than a stage beyond the third does.
        """
        have, products = resources(self.em.chip), self._gemm.program.accumulators

        def kib(tile: Tile) -> float:
            return shared_bytes(self._core(tile), tile, products) / 1024 + 1

        while tile.stages > 3 and 2 * kib(tile) > have.processor_kib:
            tile = replace(tile, stages=tile.stages - 1)
        while kib(tile) > have.block_kib:
            if tile.stages > 2:
                tile = replace(tile, stages=tile.stages - 1)
            elif tile.bk >= 64:
                tile = replace(tile, bk=tile.bk // 2)
            else:
                raise UnsupportedByTemplate(
                    f"{self._gemm.name}: a tile needs {kib(tile):.0f} KiB, but blocks on {self.em.chip} have "
                    f"{have.block_kib}"
                )
        return tile

    def product(self, choice: Choice, access: Access, suffix: str) -> tuple[str, int]:
        tile = self.fitted(choice.tile)
        parts = f"_s{choice.splits}" if choice.splits > 1 else ""
        name = f"{self._symbol}_{tile.bm}x{tile.bn}x{tile.bk}{parts}{suffix}"
        if self._tiles.setdefault(name, tile) != tile:  # ranges of rows whose rings or sweeps differ
            name += f"_r{tile.stages}g{tile.group}"
        if name not in self._made:
            core = self._core(tile)
            ring_kernel(self.em, name, self._gemm, tile, access, choice.splits, core, self._more)
            self._made[name] = shared_bytes(core, tile, self._gemm.program.accumulators)
        return name, self._made[name]

    def sums(self, splits: int, columns: int) -> str:
        name = f"{self._symbol}_sum{splits}{'' if columns > 1 else '_e'}"
        if name not in self._made:
            sum_kernel(self.em, name, self._gemm, splits, columns)
            self._made[name] = 0
        return name


def product_kernel(
    chip: str,
    schedule: str,
    gemm: Gemm,
    operands: Buffers,
    tiles: Sequence[Tile],
    core: MakeCore,
    accesses: Sequence[Access],
    *,
    more: int = 0,
    modest: Tile | None = None,
    choices: Sequence[tuple[int | None, Choice]] | None = None,
) -> DeviceKernel:
    """A product's kernels and what launches them.

    Args:
        operands: x and what belongs to it, the weights, the arguments: in the order of the kernels' parameters, where
            the weights follow x.
        core: what multiplies by a tile.
        accesses: one, or two of which the first needs K and N to be multiples of 8, or of 16 for elements of 8 bits.
        more: operands that belong to x, after it.
        modest: the tile where single elements are copied, by default the last but one.
        choices: tiles by numbers of rows, as `choose_by_rows` gives them, in place of the rule's.
    """
    symbol = symbol_of(gemm.name)
    device = _Device(chip, symbol, gemm, core, more)
    # Where single elements are copied, they pass through registers: one tile, of few registers, serves such sizes.
    modest = modest or tiles[-2:][0]
    if min(accesses[0].x, accesses[0].w) < 4:
        tiles = [modest]
    choices = choices or choose_by_rows(
        gemm.m,
        gemm.n or ESTIMATE,
        gemm.k or ESTIMATE,
        tiles,
        chip,
        products=gemm.program.accumulators,
        batch=gemm.batch,
        choices=gemm.chosen,
    )
    plain: list[tuple[int | None, Choice]] = [(None, Choice(for_products(modest, gemm.program.accumulators)))]
    variants = []
    for access, suffix, own in zip(accesses, ("", "_e"), (choices, plain), strict=False):
        made = [(limit, choice, *device.product(choice, access, suffix)) for limit, choice in own]
        variants.append(Variant(access, tuple(made)))
    for variant in variants:
        for _, choice, _, _ in variant.kernels:
            if choice.splits > 1:
                device.sums(choice.splits, variant.access.columns)
    host = _Host(gemm, device, variants)
    return write_device_kernel(
        gemm.name,
        schedule,
        operands,
        results_of(gemm),
        device.em,
        host.launch,
        scratch=host.scratch,
        order=gemm.operand_order,
    )


class _Host:
    """The functions of the host."""

    def __init__(self, gemm: Gemm, device: _Device, variants: list[Variant]) -> None:
        self._gemm, self._device, self._variants = gemm, device, variants
        self._products = gemm.program.accumulators

    def _sizes(self, em: HostEmitter, operands: Sequence[Value]) -> Sizes:
        """The sizes of a call, of type index."""
        gemm = self._gemm
        x, w = operands[0], operands[-len(gemm.program.arguments) - self._products]
        rank = len(gemm.x_shape)
        m = em.dims(x, range(rank - 2 if gemm.batched else 0, rank - 1))
        inner, outer = len(gemm.w_shape) - 1, len(gemm.w_shape) - 2
        n = gemm.n if gemm.n is not None else em.dim(w, outer if gemm.transpose_rhs else inner)
        k = gemm.k if gemm.k is not None else em.dim(x, rank - 1)
        batch = []
        for axis, known in enumerate(gemm.batch_shape):
            batch.append(known if known is not None else self._batch_size(em, axis - len(gemm.out_shape), x, w))
        return Sizes(m, n, k, tuple(batch))

    def _batch_size(self, em: HostEmitter, axis: int, x: Value, w: Value) -> Index:
        """The size of a batch dimension, counted from the end: that of an operand which doesn't broadcast there."""
        for value, shape in ((x, self._gemm.x_shape), (w, self._gemm.w_shape)):
            if len(shape) >= -axis and shape[axis] is None:
                return em.dim(value, len(shape) + axis)
        raise UnsupportedByTemplate(f"{self._gemm.name}: no operand has the batch dimension {axis}")

    def _rows(self, sizes: Sizes) -> Index:
        rows = sizes.m
        for size in sizes.batch:
            rows = rows * size
        return rows

    def _sums(self, em: HostEmitter, operands: Sequence[Value], parts: Scratch) -> Value | None:
        """Room for the parts of K of any choice that the call may take; None where no choice cuts K."""
        gemm = self._gemm
        kernels = self._variants[0].kernels
        if all(choice.splits == 1 for _, choice, _, _ in kernels):
            return None
        sizes = self._sizes(em, operands)
        most: Index = 0
        for limit, choice, _, _ in kernels:
            if choice.splits > 1:
                rows = sizes.m if limit is None or gemm.m is not None else em.imin(sizes.m, limit)
                most = em.imax(most, rows * (choice.splits * self._products))
        for size in sizes.batch:
            most = most * size
        return parts.take([most, sizes.n], "f32")

    def scratch(self, em: HostEmitter, operands: list[Value], parts: Scratch) -> None:
        self._sums(em, operands, parts)

    def launch(self, em: HostEmitter, operands: list[Value], results: list[Value], parts: Scratch) -> None:
        sums = self._sums(em, operands, parts)
        sizes = self._sizes(em, operands)
        if len(self._variants) == 1:
            self._by_rows(em, self._variants[0], sizes, operands, results, sums)
            return
        whole, step = em.const(True, "i1"), max(8, 16 // self._gemm.operand_bytes)
        for size in (sizes.k, sizes.n):
            if isinstance(size, Value):
                whole = whole & em.cmpi("eq", size % step, 0)
        with em.if_(whole) as branch:
            self._by_rows(em, self._variants[0], sizes, operands, results, sums)
            branch.else_()
            self._by_rows(em, self._variants[1], sizes, operands, results, sums)

    def _by_rows(
        self,
        em: HostEmitter,
        variant: Variant,
        sizes: Sizes,
        operands: list[Value],
        results: list[Value],
        sums: Value | None,
    ) -> None:
        """Launches the kernel for the number of rows."""

        def choose(kernels: Sequence[tuple[int | None, Choice, str, int]]) -> None:
            limit, choice, name, shared = kernels[0]
            if len(kernels) == 1 or not isinstance(sizes.m, Value):
                self._run(em, variant, choice, (name, shared), sizes, operands, results, sums)
                return
            with em.if_(em.cmpi("ule", sizes.m, limit or 0)) as branch:
                self._run(em, variant, choice, (name, shared), sizes, operands, results, sums)
                branch.else_()
                choose(kernels[1:])

        choose(variant.kernels)

    def _run(
        self,
        em: HostEmitter,
        variant: Variant,
        choice: Choice,
        kernel: tuple[str, int],
        sizes: Sizes,
        operands: list[Value],
        results: list[Value],
        sums: Value | None,
    ) -> None:
        gemm, tile = self._gemm, choice.tile
        blocks = em.iceildiv(sizes.m, tile.bm) * em.iceildiv(sizes.n, tile.bn)
        for size in sizes.batch:
            blocks = blocks * size
        named = {"m": sizes.m, "n": sizes.n, "k": sizes.k, **{f"b{i}": size for i, size in enumerate(sizes.batch)}}
        given = [em.i32(named[name]) for name in Sizes.names(gemm)]
        name, shared = kernel
        count = len(operands) - len(gemm.program.arguments)
        inputs, arguments = operands[:count], operands[count:]
        if choice.splits == 1:
            em.launch(name, blocks, tile.threads, [*operands, *results, *given], shared=shared)
            return
        assert sums is not None
        em.launch(name, [blocks, choice.splits], tile.threads, [*inputs, sums, *given], shared=shared)
        rows = self._rows(sizes)
        width = variant.access.columns
        total = em.iceildiv(rows * (sizes.n // width), SUM_THREADS)
        last = [sums, *arguments, *results, em.i32(rows), em.i32(sizes.n)]
        em.launch(self._device.sums(choice.splits, variant.access.columns), total, SUM_THREADS, last)


def line_access(gemm: Gemm, nbytes: int) -> list[Access]:
    """How lines of x, of dense weights and of outputs can be read: as far as static sizes say; two where some are not.

    nbytes: of an element.
    """
    span = gemm.k if gemm.transpose_rhs else gemm.n

    def piece(size: int | None, whole: int) -> int:
        return whole if size is None else max(nbytes, math.gcd(size * nbytes, 16))

    width = 16 // nbytes
    fits = gemm.n is not None and gemm.n % width == 0
    if gemm.w_stride is not None:
        span = gemm.w_stride
    accesses = [Access(piece(gemm.k, 16), piece(span, 16), width if gemm.n is None or fits else 1)]
    if gemm.k is None or gemm.n is None:
        accesses.append(Access(piece(gemm.k, nbytes), piece(span, nbytes), width if fits else 1))
    return accesses
