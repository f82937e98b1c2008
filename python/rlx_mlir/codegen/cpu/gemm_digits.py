# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of f32 with block-quantised weights by integer dot products: as exact as in floats, and faster.

Rows of x are quantised to 22 bits, block by block of 32 (`quantized_rows.ExactRows`): what rounding loses is 2^-23 of a
block's largest element, about what a chain of multiply-adds in f32 loses. Products with weights are exact integers, so
that an output takes one rounding for each block in place of one for each element: where x has no outliers, errors are
half of those of a chain in floats. An integer is three signed bytes, whose products with four bytes of weights are one
instruction each: three where floats take four.

Rows that can't be quantised, since they hold NaN, an infinity, or nothing but tiny numbers, are computed again in f32.
A row's result is the same bits in any batch, and for any cut of the units.
"""

from __future__ import annotations

from rlx_mlir.codegen.emit import Emitter, Index, Value
from rlx_mlir.codegen.specs import ProductSpec
from rlx_mlir.tuning.cpu import SHARED

from .gemm_int8 import IntegerProduct
from .gemm_packed import REGISTER_TILES, TiledPanels
from .kernel import Accumulators, Product, RowReader, Scratch, row_count, write_product
from .panels import find_layout, panel_product
from .quantized_rows import ExactRows
from .registry import Generator
from .target import Target

NAME = "gemm_digits"


def gemm_digits(target: Target, product: Product, scheme: str) -> str:
    """The kernel of a product with weights in panels; operands are those of `gemm_panels`, x of f32."""
    layout = find_layout(scheme, product.k)
    rows = ExactRows(target, product.k, layout)
    integers = IntegerProduct(target, product, layout, rows)
    floats = TiledPanels(target, product, layout, integers.per_unit)
    weights = product.program.accumulators

    def parts(em: Emitter, values: list[Value], scratch: Scratch) -> object:
        return integers.parts(em, values, scratch), floats_parts(em, scratch)

    def floats_parts(em: Emitter, scratch: Scratch) -> tuple[Accumulators, RowReader, Value]:
        reader = RowReader(em, target, product.element, scratch, 1, floats.block)
        sums = Accumulators(em, target, product, floats.columns, scratch, 1)
        return sums, reader, floats.decoded(scratch)

    def body(
        em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        own = integers.parts(em, values, scratch)
        others = floats_parts(em, scratch)

        def again(first: Index, count: Index) -> None:
            """Computes flagged rows of a block in f32."""
            assert own.rows.flags is not None
            with em.loop(0, count, hint="row") as row:
                flagged = em.cmpi("ne", em.load(own.rows.flags, [row.iv]), 0)
                with em.if_(flagged):
                    floats.run(em, values, outputs, (begin, end), others, first + row.iv)

        def finish(unit: Value, first: Index, count: Index) -> None:
            own.accumulators.finish(values[1 + weights :], outputs, unit, first, count)

        integers.multiply(em, values, row_count(em, values[0]), (begin, end), own, finish, again)

    return write_product(product, integers.operands, lambda em, values: integers.units, parts, body)


def _configure(name: str, spec: ProductSpec, target: Target) -> tuple[Product, str] | None:
    # Tiles of bf16 are faster still, and rows of a prompt and of a token shall be computed alike.
    if not target.vnni or target.tiles("bf16") or spec.element != "f32":
        return None
    product = panel_product(spec, "dequant_matmul")
    if product is None or find_layout(spec.scheme, product.k).dense:
        return None
    return product, spec.scheme


GENERATORS = (
    Generator(
        NAME,
        "gemm",
        _configure,
        lambda name, config, target: gemm_digits(target, *config),
        switch=NAME,
        knobs=SHARED,
        candidates=REGISTER_TILES,
    ),
)
