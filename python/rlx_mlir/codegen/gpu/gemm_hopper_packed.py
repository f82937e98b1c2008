# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of many rows with packed weights on Hopper: one kernel decodes the weights, then wgmma multiplies.

Decoding writes the weights once in 16 bits, which takes about as long as the products of some hundred rows. Beyond
that, the speed of wgmma should be worth more than what decoding on the way saves (`gemm_quant`, which multiplies by
mma). Where the line lies is an estimate.
"""

from __future__ import annotations

from dataclasses import replace

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Value, pointer
from rlx_mlir.codegen.gpu.gemm_base import Gemm
from rlx_mlir.codegen.gpu.gemm_hopper import Limited, Schedule
from rlx_mlir.codegen.gpu.gemm_host import arguments_of
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, HostEmitter, Scratch
from rlx_mlir.codegen.gpu.planes import PackedRows, quads_of, values
from rlx_mlir.formats.descriptions import RUN
from rlx_mlir.formats.planes import PlaneLayout, plane_layout

FEW_ROWS = 768
"""Rows up to which decoding beforehand doesn't pay."""
MOST_BYTES = 512 << 20
"""Scratch memory for decoded weights at most."""
THREADS, PIECE = 256, 8
"""Threads of a block that decodes, and elements of one thread: 16 bytes."""


def gemm_hopper_packed(
    gemm: Gemm,
    scheme: str,
    chip: str,
    *,
    constant_weights: bool = False,
    choices: Limited | None = None,
    few_rows: int = FEW_ROWS,
) -> DeviceKernel:
    """The kernels of a product with weights [N, K] in layout `planes`, which are rounded to the type of x.

    Operands: x, the weights (bytes), the program's arguments; then the outputs.

    Raises UnsupportedByTemplate where `gemm_hopper` does, for up to `few_rows` rows, and for more weights than scratch
    memory may take.
    """
    if gemm.m is not None and gemm.m <= few_rows:
        raise UnsupportedByTemplate(f"{gemm.name}: decoding beforehand pays beyond {few_rows} rows, but M is {gemm.m}")
    return _Packed(gemm, plane_layout(scheme), chip, constant_weights, choices, few_rows).kernel()


class _Packed(Schedule):
    """The product of a `Schedule`, with weights that a kernel before it decodes into scratch memory."""

    schedule = "gemm_hopper_packed"

    def __init__(
        self, gemm: Gemm, layout: PlaneLayout, chip: str, constant: bool, choices: Limited | None, few_rows: int
    ) -> None:
        self._few_rows = few_rows
        # What is multiplied was written by the kernel before: it isn't constant.
        super().__init__(replace(gemm, transpose_rhs=True, w_stride=None), chip, False, choices)
        self.packed, self.fixed = layout, constant
        size = 2 * self.products * self.n * self.k
        if size > MOST_BYTES:
            raise UnsupportedByTemplate(f"{gemm.name}: decoded weights take {size} bytes, more than {MOST_BYTES}")

    def choose(self) -> Limited:
        """Tiles for many rows alone."""
        return [(limit, choice) for limit, choice in super().choose() if limit is None or limit > self._few_rows]

    def buffers(self) -> list[tuple[str, str]]:
        """x, the packed weights, and the arguments."""
        type = memref((self.n, self.packed.row_bytes(self.k)), "i8")
        weights = [(f"w{i}", type) for i in range(self.products)]
        return [("x", memref(self.gemm.x_shape, self.gemm.element)), *weights, *arguments_of(self.gemm)]

    def device(self) -> DeviceEmitter:
        """The kernels of the product, and the one that decodes a weight."""
        em = super().device()
        parameters = [pointer("packed", constant=self.fixed, readonly=True), pointer("decoded")]
        with em.kernel(self._symbol, parameters, THREADS) as (packed, decoded):
            _decode(em, PackedRows(em, self.packed, self.k, packed, self.n), decoded, self.gemm.element, self.fixed)
        return em

    @property
    def _symbol(self) -> str:
        return f"{self.stem}_decode"

    def take_weights(self, scratch: Scratch) -> list[Value]:
        """The decoded weights."""
        return [scratch.take([self.n, self.k], self.gemm.element, 2) for _ in range(self.products)]

    def ready_weights(self, em: HostEmitter, weights: list[Value], taken: list[Value]) -> list[Value]:
        """Decodes."""
        blocks = -(-self.n * self.k // (THREADS * PIECE))
        for weight, decoded in zip(weights, taken, strict=True):
            em.launch(self._symbol, blocks, THREADS, [weight, decoded])
        return taken


def _decode(em: DeviceEmitter, rows: PackedRows, decoded: Value, element: str, constant: bool) -> None:
    """The body of the kernel that decodes: a thread writes 8 neighbouring elements of a row."""
    em.launch_dependents()
    if not constant:
        em.wait_dependencies()
    number = em.block() * THREADS + em.thread()
    per_row = rows.k // PIECE
    row, place = number // per_row, number % per_row
    run, part = place // (RUN // PIECE), em.index(place % (RUN // PIECE))
    made = _piece(em, rows, rows.row(row), em.index(run), part)
    if constant:
        em.wait_dependencies()
    with em.if_(em.cmpi("ult", number, rows.n * per_row)):
        words = [em.pack(made[i], made[i + 1], element) for i in range(0, PIECE, 2)]
        em.st(em.vector(words), em.at(decoded, em.wide(number) * PIECE, element))


def _piece(em: DeviceEmitter, rows: PackedRows, row: Value, run: Value, part: Value) -> list[Value]:
    """Elements 8 part, ... of a run of 32, f32."""

    def chosen(given: list[Value]) -> Value:
        """The one of as many equal parts of the run in which the piece is."""
        result = given[0]
        for i, value in enumerate(given[1:], 1):
            result = em.select(em.cmpi("ult", part, i * (RUN // PIECE) // len(given)), result, value)
        return result

    if rows.layout.dense:
        elements = rows.elements(row, run)
        return [chosen(elements[i::PIECE]) for i in range(PIECE)]
    quads = quads_of(rows.layout, rows.records(row, run))
    integers = [x for i in range(2) for x in values(em, chosen(quads[i::2]), rows.layout)]
    assert rows.layout.scale is not None
    scale = chosen([rows.factor(row, run, sub, rows.layout.scale) for sub in range(rows.per_run)])
    scaled = [x * scale for x in integers]
    if rows.layout.minimum is None:
        return scaled
    minimum = chosen([rows.factor(row, run, sub, rows.layout.minimum) for sub in range(rows.per_run)])
    return [x + minimum for x in scaled]
