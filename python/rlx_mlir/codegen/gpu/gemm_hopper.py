# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of f16, bf16 and floats of 8 bits on Hopper (sm_90a): kernels by wgmma and TMA, and their host's part.

The tile follows from sizes (`gemm_hopper_config`). Products with a dynamic number of rows have a kernel for each of a
few ranges, between which the host chooses. `gemm_hopper_loop` has the loads and products, `gemm_hopper_epilogue` what
follows them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.emit import FLOAT8, DeviceEmitter, Index, Parameter, Value, pointer, tensor_map
from rlx_mlir.codegen.gpu.gemm_base import Gemm, Shape
from rlx_mlir.codegen.gpu.gemm_config import resources
from rlx_mlir.codegen.gpu.gemm_hopper_config import (
    ACCUMULATORS,
    PROMOTED_ACCUMULATORS,
    STEP_BYTES,
    Choice,
    Layout,
    choose_by_rows,
)
from rlx_mlir.codegen.gpu.gemm_hopper_epilogue import (
    REDUCE_COLUMNS,
    REDUCE_THREADS,
    DirectStorer,
    PartStorer,
    Storer,
    reduce_parts,
)
from rlx_mlir.codegen.gpu.gemm_hopper_loop import Finisher, Mainloop, Operands, warp_specialised
from rlx_mlir.codegen.gpu.gemm_host import dense_operands, results_of
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, HostEmitter, Scratch, symbol_of, write_device_kernel
from rlx_mlir.codegen.kernel import Buffers
from rlx_mlir.errors import InputError

STRIDE_BYTES = 16
"""TMA needs rows whose starts are multiples of this apart."""
UNKNOWN_BATCH = 16
"""Batches that a dynamic number of them counts as, where a tile is chosen."""

Limited = list[tuple[int | None, Choice]]


def gemm_hopper(
    gemm: Gemm, chip: str, *, constant_weights: bool = False, choices: Limited | None = None
) -> DeviceKernel:
    """The kernels of a product.

    Operands: x, the weights (one for each of the program's products), the program's arguments; then the outputs.

    Args:
        constant_weights: nothing writes the weights while the program runs: their first loads don't wait for the
            kernels before.
        choices: tiles by rising numbers of rows, up to which they serve; those of the cost model where None.

    Raises UnsupportedByTemplate where the chip isn't sm_90a, operands have neither 16 nor 8 bits, weights of 8 bits are
    [K, N], or N or K is dynamic or gives rows that TMA can't reach.
    """
    return Schedule(gemm, chip, constant_weights, choices).kernel()


def _check(gemm: Gemm, chip: str) -> None:
    if chip != "sm_90a":
        raise UnsupportedByTemplate(f"{gemm.name}: wgmma needs sm_90a, but the chip is {chip}")
    if gemm.float8 is None and gemm.element not in ("f16", "bf16"):
        raise UnsupportedByTemplate(f"{gemm.name}: wgmma multiplies f16 or bf16 here, but elements are {gemm.element}")
    if gemm.float8 is not None and not gemm.transpose_rhs:
        raise UnsupportedByTemplate(f"{gemm.name}: wgmma reads elements of 8 bits along K, but weights are [K, N]")
    for letter, size, nbytes in (("N", gemm.n, 2), ("K", gemm.k, gemm.operand_bytes)):
        if size is None:
            raise UnsupportedByTemplate(f"{gemm.name}: TMA needs rows of known length, but {letter} is dynamic")
        if size == 0 or nbytes * size % STRIDE_BYTES:
            raise UnsupportedByTemplate(
                f"{gemm.name}: TMA needs rows of a multiple of {STRIDE_BYTES} bytes, but {letter} is {size}, "
                f"{nbytes * size} bytes"
            )
    if 0 in (*gemm.x_shape, *gemm.out_shape):
        raise UnsupportedByTemplate(f"{gemm.name}: an operand is empty")


@dataclass(frozen=True)
class _Share:
    """How batch elements of an operand follow from those of the output: (number / inner) % count."""

    inner: Index
    count: Index


def _share(em: HostEmitter, gemm: Gemm, out: Value, shape: Shape) -> _Share:
    """The share of an operand of `shape`; UnsupportedByTemplate where it broadcasts between other dimensions."""
    batch = gemm.batch_shape
    own = (*([1] * (len(batch) - len(shape) + 2)), *shape[:-2])
    inner: Index = 1
    count: Index = 1
    state = "inner"
    for axis in reversed(range(len(batch))):
        if batch[axis] == 1:
            continue
        kept = own[axis] != 1
        if kept and state == "outer":
            raise UnsupportedByTemplate(f"{gemm.name}: batches {own} broadcast in the middle of {batch}")
        if kept:
            state = "own"
            count = count * em.dim(out, axis)
        elif state == "inner":
            inner = inner * em.dim(out, axis)
        else:
            state = "outer"
    return _Share(inner, count)


class Schedule:
    """The kernels of one product, and how the host launches them."""

    schedule = "gemm_hopper"

    def __init__(self, gemm: Gemm, chip: str, constant: bool, choices: Limited | None) -> None:
        _check(gemm, chip)
        assert gemm.n is not None
        assert gemm.k is not None
        self.gemm, self.chip, self.constant = gemm, chip, constant
        self.n, self.k = gemm.n, gemm.k
        self.program = gemm.program
        self.products, self.outputs = self.program.accumulators, len(self.program.results)
        self.n_major = not gemm.transpose_rhs
        # Outputs of 16 bits are stored by TMA, those of f32 by the threads that have them.
        self.staged = gemm.element != "f32"
        self.promote = gemm.float8 is not None and not gemm.chosen.take("fast_sums")
        self.processors = resources(chip).processors
        self.choices = choices or self.choose()
        self.stem = symbol_of(gemm.name)

    def choose(self) -> Limited:
        """The tiles by rising numbers of rows."""
        sizes = [UNKNOWN_BATCH if size is None else size for size in self.gemm.batch_shape]
        try:
            return choose_by_rows(
                self.gemm.m,
                self.n,
                -(-self.k * self.gemm.operand_bytes // 2),
                processors=self.processors,
                batch=math.prod(sizes),
                products=self.products,
                split=not self.gemm.batched,
                accumulators=PROMOTED_ACCUMULATORS if self.promote else ACCUMULATORS,
                choices=self.gemm.chosen,
            )
        except InputError:  # about a choice
            raise
        except ValueError as error:
            raise UnsupportedByTemplate(f"{self.gemm.name}: {error}") from None

    def operands(self, choice: Choice) -> Operands:
        """What the main loop has to know."""
        gemm = self.gemm
        outputs = self.outputs if choice.splits == 1 and self.staged else 0
        x, weight = gemm.float8 or (gemm.element, gemm.element)
        kinds = (FLOAT8.get(x, x), FLOAT8.get(weight, weight))
        return Operands(kinds, self.products, self.n_major, gemm.batched, outputs, self.constant, self.promote)

    def symbol(self, number: int) -> str:
        """The name of the kernel of a choice."""
        tile = self.choices[number][1].tile
        return f"{self.stem}_wgmma_{number}_{tile.out_rows}x{tile.out_columns}"

    # -- the device ---------------------------------------------------------------------------------------------------

    def parameters(self, choice: Choice) -> list[Parameter]:
        """The parameters of the multiplying kernel."""
        layout = self.layout(choice)
        maps = [f"left{i}" for i in range(layout.lefts)] + [f"right{i}" for i in range(layout.rights)]
        sizes = ["left_tiles", "right_tiles", "steps", "rows"]
        if self.gemm.batched:
            sizes += ["batches", "x_inner", "x_count", "weight_inner", "weight_count"]
        if choice.splits > 1:
            ends = [pointer("parts")]
        else:
            outputs = [f"out{i}" for i in range(self.outputs)]
            maps += outputs if self.staged else []
            # Not marked as read-only: loads of what kernels before write must stay behind the wait for them.
            ends = [pointer(f"arg{i}", readonly=True) for i in range(len(self.program.arguments))]
            ends += [] if self.staged else [pointer(name) for name in outputs]
        return [*map(tensor_map, maps), *ends, *((name, "i32") for name in sizes)]

    def layout(self, choice: Choice) -> Layout:
        """The shared memory of a choice's kernel."""
        operands = self.operands(choice)
        return Layout(choice.tile, operands.products, operands.n_major, operands.outputs)

    def device(self) -> DeviceEmitter:
        """All kernels."""
        em = DeviceEmitter(self.chip)
        for number, (_, choice) in enumerate(self.choices):
            parameters = self.parameters(choice)
            with em.kernel(self.symbol(number), parameters, choice.tile.threads, min_blocks=1) as values:
                named = {parameter[0]: value for parameter, value in zip(parameters, values, strict=True)}
                main = Mainloop(em, self.operands(choice), choice, named)
                kind = PartStorer if choice.splits > 1 else Storer if self.staged else DirectStorer
                finisher: Finisher = kind(em, self.gemm, main)
                warp_specialised(main, finisher)
            if choice.splits > 1:
                parameters = self.reduction_parameters()
                with em.kernel(self.symbol(number) + "_sum", parameters, REDUCE_THREADS, chained=True) as values:
                    named = {parameter[0]: value for parameter, value in zip(parameters, values, strict=True)}
                    reduce_parts(em, self.gemm, choice.splits, named)
        return em

    def reduction_parameters(self) -> list[Parameter]:
        """The parameters of the kernel that adds up parts of K."""
        return [
            pointer("parts"),
            *(pointer(f"arg{i}", readonly=True) for i in range(len(self.program.arguments))),
            *(pointer(f"out{i}") for i in range(self.outputs)),
            ("rows", "i32"),
        ]

    # -- the host -----------------------------------------------------------------------------------------------------

    def rows(self, em: HostEmitter, x: Value) -> Index:
        """M of a batch element."""
        if self.gemm.m is not None:
            return self.gemm.m
        rank = len(self.gemm.x_shape)
        return em.dims(x, range(rank - 2 if self.gemm.batched else 0, rank - 1))

    def take(self, em: HostEmitter, rows: Index, scratch: Scratch) -> list[Value | None]:
        """The scratch memory of each choice, where it cuts K."""
        parts: list[Value | None] = []
        for limit, choice in self.choices:
            if choice.splits == 1:
                parts.append(None)
                continue
            most = rows if limit is None else em.imin(rows, limit)
            parts.append(scratch.take([choice.splits * self.products, most, self.n], "f32"))
        return parts

    def host(self, em: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        """Chooses by the number of rows, and launches."""
        rows = self.rows(em, operands[0])
        parts, taken = self.take(em, rows, scratch), self.take_weights(scratch)
        end = 1 + self.products
        weights = self.ready_weights(em, operands[1:end], taken)
        self._chain(em, 0, rows, parts, [operands[0], *weights, *operands[end:]], results)

    def take_weights(self, scratch: Scratch) -> list[Value]:
        """Scratch memory for weights that have to be made ready."""
        return []

    def ready_weights(self, em: HostEmitter, weights: list[Value], taken: list[Value]) -> list[Value]:
        """The weights as buffers of elements, [N, K] or [K, N]."""
        gemm = self.gemm
        if gemm.w_stride is None:
            return weights
        return [em.view(em.flat(weight), 0, [self.n, gemm.w_stride], gemm.element) for weight in weights]

    def _chain(
        self,
        em: HostEmitter,
        number: int,
        rows: Index,
        parts: list[Value | None],
        operands: list[Value],
        results: list[Value],
    ) -> None:
        limit, choice = self.choices[number]
        if limit is None:
            self._launch(em, number, choice, rows, parts[number], operands, results)
            return
        with em.if_(em.cmpi("ule", rows, limit)) as branch:
            self._launch(em, number, choice, rows, parts[number], operands, results)
            branch.else_()
            self._chain(em, number + 1, rows, parts, operands, results)

    def _launch(
        self,
        em: HostEmitter,
        number: int,
        choice: Choice,
        rows: Index,
        parts: Value | None,
        operands: list[Value],
        results: list[Value],
    ) -> None:
        gemm, tile, layout = self.gemm, choice.tile, self.layout(choice)
        x, weights, arguments = operands[0], operands[1 : 1 + self.products], operands[1 + self.products :]
        x_share, weight_share = _Share(1, 1), _Share(1, 1)
        batches: Index = 1
        if gemm.batched:
            x_share = _share(em, gemm, results[0], gemm.x_shape)
            weight_share = _share(em, gemm, results[0], gemm.w_shape)
            for axis in range(len(gemm.batch_shape)):
                batches = batches * em.dim(results[0], axis)
        k_step = STEP_BYTES // gemm.operand_bytes
        x_map = self._map(em, x, (rows, self.k), x_share.count, (tile.out_rows, k_step))
        shape, box, span = (self.n, self.k), (tile.out_columns, k_step), STEP_BYTES
        if self.n_major:
            span = layout.span
            shape, box = (self.k, self.n), (k_step, span // 2)
        weight_maps = [self._map(em, weight, shape, weight_share.count, box, gemm.w_stride, span) for weight in weights]
        maps = [*weight_maps, x_map] if tile.swapped else [x_map, *weight_maps]
        row_tiles, column_tiles = em.iceildiv(rows, tile.out_rows), -(-self.n // tile.out_columns)
        left_tiles, right_tiles = (column_tiles, row_tiles) if tile.swapped else (row_tiles, column_tiles)
        steps = -(-self.k // k_step)
        sizes: list[Index] = [left_tiles, right_tiles, steps, rows]
        if gemm.batched:
            sizes += [batches, x_share.inner, x_share.count, weight_share.inner, weight_share.count]
        tiles = row_tiles * column_tiles * batches * choice.splits
        if parts is None and self.staged:
            out_box = (tile.columns if tile.swapped else 64, 64)
            maps += [self._map(em, result, (rows, self.n), batches, out_box) for result in results]
            pointers = arguments
        elif parts is None:
            pointers = [*arguments, *results]
        else:
            pointers = [parts]
        passed = [*maps, *pointers, *(em.i32(size) for size in sizes)]
        grid = em.imin(tiles, self.processors)
        em.launch(self.symbol(number), grid, tile.threads, passed, shared=layout.bytes)
        if parts is not None:
            threads = rows * (self.n // REDUCE_COLUMNS)
            passed = [parts, *arguments, *results, em.i32(rows)]
            blocks = em.iceildiv(threads, REDUCE_THREADS)
            em.launch(self.symbol(number) + "_sum", blocks, REDUCE_THREADS, passed)

    def _map(
        self,
        em: HostEmitter,
        buffer: Value,
        shape: tuple[Index, Index],
        count: Index,
        box: tuple[int, int],
        stride: int | None = None,
        span: int = STEP_BYTES,
    ) -> Value:
        """The map of a matrix, or of `count` matrices where products are batched.

        stride: elements between rows, where that isn't their length. span: bytes of a box's rows, and of its swizzle.
        """
        rows, columns = shape
        between: Index = columns if stride is None else stride
        if not self.gemm.batched:
            return em.tensor_map(buffer, [rows, columns], [between, 1], box, swizzle=span, promotion=128)
        each = rows * between
        sizes, strides = [count, rows, columns], [each, between, 1]
        return em.tensor_map(buffer, sizes, strides, [1, *box], swizzle=span, promotion=128)

    def buffers(self) -> Buffers:
        """The operands: x, the weights, the arguments."""
        return dense_operands(self.gemm)

    def kernel(self) -> DeviceKernel:
        """The text of all."""

        def scratch(em: HostEmitter, operands: Sequence[Value], parts: Scratch) -> None:
            self.take(em, self.rows(em, operands[0]), parts)
            self.take_weights(parts)

        return write_device_kernel(
            self.gemm.name,
            self.schedule,
            self.buffers(),
            results_of(self.gemm),
            self.device(),
            self.host,
            scratch=scratch,
            order=self.gemm.operand_order,
        )
