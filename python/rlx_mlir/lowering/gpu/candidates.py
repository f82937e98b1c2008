# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Choices of a kernel's schedule that are worth a measurement on a GPU, for the sizes of a call."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import shape_of
from rlx_mlir.codegen.specs import AttentionSpec, ProductSpec
from rlx_mlir.lowering.functions import CLASS
from rlx_mlir.lowering.kernel_specs import read_attention, read_product
from rlx_mlir.tuning.choices import AT, changes_bits
from rlx_mlir.tuning.gpu import CHANGE_BITS

Shape = tuple[int, ...]
#: Parts of the keys that are tried.
_PARTS = (2, 4, 8, 16, 32, 64, 128)


def list_candidates(
    name: str, kernel: ir.AnyOp, chip: str, shapes: Sequence[Shape], schedule: str, *, same_bits: bool = False
) -> list[dict[str, int]]:
    """Choices beside the rule's, the most promising first; none for kernels without choices.

    Args:
        name, kernel: the kernel, which holds its primitives.
        chip: compute capability.
        shapes: of its operands at a call. Where the number of rows is dynamic, choices are for the range of rows that
            the call's is in, by the last one in it: they are the same names for all calls of that range. Second is the
            choice of another schedule, for all rows, where there is one.
        schedule: what the kernel got by rule.
        same_bits: leave out what changes results.
    """
    kind = python_value(kernel.operation.attributes[CLASS])
    try:
        if kind == "gemm":
            product = read_product(name, kernel)
            found = list(_product(product, chip, shapes, schedule.split("|")))
            # All warps of a block add up the squares of a norm.
            changing = CHANGE_BITS if product.norm is None else CHANGE_BITS | {"gemv_warps"}
        elif kind == "attention":
            found, changing = list(_attention(read_attention(name, kernel), chip, shapes, schedule)), CHANGE_BITS
        else:
            return []
    except UnsupportedByTemplate:
        return []  # then it got no schedule either
    return [own for own in found if not (same_bits and changes_bits(own, changing))]


def _product(
    spec: ProductSpec, chip: str, shapes: Sequence[Shape], schedules: Sequence[str]
) -> Iterator[dict[str, int]]:
    from rlx_mlir.codegen.gpu.gemm_config import ROW_STEPS
    from rlx_mlir.codegen.gpu.gemm_hopper_config import ROW_LIMITS
    from rlx_mlir.codegen.gpu.gemm_hopper_packed import FEW_ROWS
    from rlx_mlir.codegen.gpu.gemv import MAX_ROWS
    from rlx_mlir.codegen.gpu.gemv_config import tiles

    x = shapes[spec.order[0]]
    matrix = len([size for size in spec.weight[:-2] if size != 1]) == 0
    rows, batch = (math.prod(x[:-1]), 1) if matrix else (x[-2], math.prod(x[:-2]))
    if rows == 0 or batch == 0:
        return
    if rows <= MAX_ROWS and "gemv" in schedules:
        found, limits = _few_rows(spec, chip, rows), tiles(None)
    elif "gemm_hopper" in schedules or ("gemm_hopper_packed" in schedules and rows > FEW_ROWS):
        found, limits = _hopper(spec, chip, (rows, *_sizes(spec, shapes)), batch, split=matrix), ROW_LIMITS
    else:
        found, limits = _portable(spec, chip, (rows, *_sizes(spec, shapes)), batch, schedules), ROW_STEPS
    dynamic = None in (spec.x[:-1] if matrix else spec.x[-2:-1])
    last = next((limit for limit in limits if rows <= limit), limits[-1] + 1)
    borders = list(_borders(spec, rows, schedules)) if batch == 1 else []
    for own in found:
        yield {f"{key}{AT}{last}" if dynamic else key: value for key, value in own.items()}
        yield from borders
        borders = []


def _borders(spec: ProductSpec, rows: int, schedules: Sequence[str]) -> Iterator[dict[str, int]]:
    """Other ranges of rows for schedules, such that another one is for the call's: these choices are for all rows."""
    from rlx_mlir.codegen.gpu.gemm_hopper_packed import FEW_ROWS
    from rlx_mlir.codegen.gpu.gemv import MAX_ROWS

    others = [schedule for schedule in schedules if schedule != "gemv"]
    # A norm or quantisation that is part of the kernel is of the schedule for few rows alone.
    alone = spec.norm is not None or spec.quantises
    if rows <= MAX_ROWS and "gemv" in schedules and not alone and (others or spec.rows is not None):
        yield {"few_rows": rows - 1}
    elif "gemm_hopper_packed" in schedules and spec.kind == "dequant_matmul":
        yield {"decode_rows": rows - 1 if rows <= FEW_ROWS else rows}


def _sizes(spec: ProductSpec, shapes: Sequence[Shape]) -> tuple[int, int]:
    """N and K."""
    k = shapes[spec.order[0]][-1]
    if spec.result[-1] is not None:
        return spec.result[-1], k
    weight = shapes[spec.order[1]]
    return weight[-2 if spec.transposed else -1], k


def _few_rows(spec: ProductSpec, chip: str, rows: int) -> Iterator[dict[str, int]]:
    from rlx_mlir.codegen.gpu.gemv import candidates
    from rlx_mlir.lowering.gpu.schedules import Request, few_rows_of

    return candidates(few_rows_of(Request(spec.name, spec, chip)), chip, rows)


def _hopper(
    spec: ProductSpec, chip: str, sizes: tuple[int, int, int], batch: int, *, split: bool
) -> Iterator[dict[str, int]]:
    from rlx_mlir.codegen.gpu.gemm_config import Sizes, resources
    from rlx_mlir.codegen.gpu.gemm_hopper_config import ACCUMULATORS, PROMOTED_ACCUMULATORS, candidates

    m, n, k = sizes
    processors, products, accumulators = resources(chip).processors, spec.program.accumulators, ACCUMULATORS
    if spec.float8 is not None:  # a step has twice as many elements of 8 bits
        k, accumulators = -(-k // 2), PROMOTED_ACCUMULATORS
    return candidates(Sizes(m, n, k, products, batch), processors, accumulators=accumulators, split=split)


def _portable(
    spec: ProductSpec, chip: str, sizes: tuple[int, int, int], batch: int, schedules: Sequence[str]
) -> Iterator[dict[str, int]]:
    from rlx_mlir.codegen.gpu import gemm_config
    from rlx_mlir.codegen.gpu.gemm_float8 import FLOAT8_TILES

    tiles = {
        "gemm_mma": gemm_config.MMA_TILES,
        "gemm_tf32": gemm_config.TF32_TILES,
        "gemm_fma": gemm_config.FMA_TILES,
        "gemm_float8": FLOAT8_TILES,
        "gemm_block_dot": gemm_config.QUANT_TILES,
        "gemm_decoded": gemm_config.DECODE_FMA_TILES if spec.element == "f32" else gemm_config.EXACT_TILES,
    }
    for schedule in schedules:
        if schedule in tiles:
            yield from gemm_config.candidates(
                gemm_config.Sizes(*sizes, spec.program.accumulators, batch), tiles[schedule], chip
            )


def _attention(spec: AttentionSpec, chip: str, shapes: Sequence[Shape], schedule: str) -> Iterator[dict[str, int]]:
    from rlx_mlir.codegen.gpu.attention_decode import decode_config
    from rlx_mlir.codegen.gpu.attention_f32 import f32_config
    from rlx_mlir.codegen.gpu.attention_hopper import hopper_config
    from rlx_mlir.codegen.gpu.attention_mma import KEY_TILES, mma_config

    keys = shapes[1][spec.sequence_axis]
    if schedule == "attention_decode":
        queries = shape_of(spec.q)[spec.sequence_axis] or 1
        steps = -(-keys // decode_config(spec, queries).step(spec))
        yield from ({"key_parts": parts} for parts in _PARTS if parts <= steps)
        return
    if schedule == "attention_hopper":
        most = hopper_config(spec).keys
        yield from ({"key_tile": tile} for tile in (most // 2, most * 3 // 4))
    elif schedule == "attention_f32":
        most = f32_config(spec).keys
        yield from ({"key_tile": tile} for tile in (32, 16) if tile < most)
    elif schedule == "attention_mma":
        most = mma_config(spec, chip).keys
        yield from ({"key_tile": tile} for tile in KEY_TILES if tile != most)
        return
    if schedule in ("attention_hopper", "attention_f32"):
        yield from ({"key_parts": parts} for parts in (1, 2, 4))
