# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products with packed weights, and the quantisation of activations that serves them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.activations import BITS, DIGITS, INTEGERS, largest_integer
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.decode import element_integer, element_minimum, element_scale, element_value
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.linalg import (
    Map,
    SizeLike,
    collapse,
    converted,
    divided,
    elementwise,
    empty,
    generic,
    reduced,
    size_of,
    sizes_of,
    split_dims,
)
from rlx_mlir.mir.matmul import contract
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.packed import PackedWeight, Packing, QuantParts, packing_of
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, absolute, element, index, round_even
from rlx_mlir.rewriting import Rewriter

#: Name of the scheme in which a dense weight of an element type is repacked.
DENSE_SCHEMES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}

#: Elements of an activation block of `mir.block_dot`.
BLOCK = 32

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


@reference(mir.DequantMatmulOp)
def dequant_matmul(x: np.ndarray, weight: PackedWeight) -> np.ndarray:
    """result[.., n] = sum_k x[.., k] W[n, k], with W the decoded weight."""
    wide = widen(x)
    return narrow(np.matmul(wide, weight.dequantize().T.astype(wide.dtype, copy=False)), x.dtype)


@reference(mir.BlockQuantizeOp)
def block_quantize(x: np.ndarray, *, block: int = BLOCK, bits: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(q, scale, sum) of each block: scale = max|x| / limit, q = round(x / scale), sum = the sum of q.

    The limit is `largest_integer`. A block with NaN or an infinity has scale NaN and q 0. Where the scale is subnormal,
    x / scale may exceed the limit; q then saturates.
    """
    limit = largest_integer(bits)
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], x.shape[-1] // block, block)
    largest = np.max(np.abs(blocks), axis=-1, keepdims=True)
    scale = np.where(np.isfinite(largest), largest / np.float32(limit), np.float32(np.nan))
    exists = scale > 0
    ratio = np.divide(blocks, scale, out=np.zeros_like(blocks), where=exists)
    q = np.clip(np.rint(ratio), -limit, limit).astype(DTYPES[INTEGERS[bits]])
    total = np.asarray(np.sum(q, axis=-1, dtype=np.int32))
    return q.reshape(x.shape), scale[..., 0], total


@reference(mir.BlockDotOp)
def block_dot(q: np.ndarray, scale: np.ndarray, sum: np.ndarray, weight: PackedWeight) -> np.ndarray:
    """sum over blocks of scale (d <q_w, q> + m sum); the integer products are exact."""
    return dot_of_parts(q, scale, sum, weight.parts())


def dot_of_parts(q: np.ndarray, scale: np.ndarray, sum: np.ndarray, parts: QuantParts) -> np.ndarray:
    """`block_dot` with the parts of a weight [n, k]."""
    rows_of_weight = len(parts.integers)
    run = min(parts.run, BLOCK)
    count, k = math.prod(q.shape[:-1]), q.shape[-1]
    # Integers are exact in either type, in any order of summation: below 2^24 (32 * 128 * 255) with bytes, below 2^53
    # with more bits.
    exact = np.float32 if q.dtype == np.int8 else np.float64
    rows = q.astype(exact).reshape(count, k)
    scales, sums = (x.astype(np.float32).reshape(count, k // BLOCK) for x in (scale, sum))
    result = np.zeros((count, rows_of_weight), np.float32)
    for start in range(0, k, run):
        part = slice(start, start + run)
        integer = (rows[:, part] @ parts.integers[:, part].T.astype(exact)).astype(np.float32)
        value = parts.scales[:, start // parts.run] * integer
        if parts.minima is not None:
            total = sums[:, start // BLOCK] if run == BLOCK else rows[:, part].sum(axis=-1).astype(np.float32)
            value = value + parts.minima[:, start // parts.run] * total[:, None]
        result += scales[:, start // BLOCK, None] * value
    return result.reshape(*q.shape[:-1], rows_of_weight)


@reference(mir.RepackOp)
def repack(weight: np.ndarray | PackedWeight, *, layout: str = "panels") -> PackedWeight:
    """The weight in panels or planes; a dense [n, k] keeps its element type."""
    if isinstance(weight, PackedWeight):
        return weight.repacked(layout)
    n, k = weight.shape
    rows = np.ascontiguousarray(weight).view(np.uint8).reshape(n, -1)
    return PackedWeight(DENSE_SCHEMES[weight.dtype.name], k, n, "rows", rows).repacked(layout)


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.DequantMatmulOp)
def dequant_matmul_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 M N K; decoding, which depends on the format and on how often a kernel does it, isn't counted."""
    return Cost(2 * sizes.count(op.result) * sizes[op.x][-1])


@cost(mir.BlockQuantizeOp)
def block_quantize_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Magnitude, largest, scale, round and sum of each element."""
    return Cost(5 * sizes.count(op.x))


@cost(mir.BlockDotOp)
def block_dot_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """See `block_dot_work`."""
    return Cost(block_dot_work(op, sizes))


def block_dot_work(op: ir.AnyOp, sizes: Sizes) -> Size:
    """2 M N K of bytes for each digit of q, and four for each block and output, of scales and minima."""
    outputs, k = sizes.count(op.result), sizes[op.q][-1]
    digits = DIGITS[BITS[str(ir.RankedTensorType(op.q.type).element_type)]]
    return 2 * digits * outputs * k + 4 * outputs * (k // BLOCK)


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


def packed_rows(weight: ir.Value, dims: tuple[Size, ...]) -> Size:
    """n of a packed weight: in panels it is in the type, in rows it is the first dimension."""
    encoding = packing_of(weight)
    return dims[0] if encoding.n is None else Size.of(encoding.n)


@dim_rule(mir.DequantMatmulOp)
def dequant_matmul_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[.., n]"""
    x, weight = operands
    return (*x[:-1], packed_rows(op.weight, weight))


@dim_rule(mir.BlockQuantizeOp)
def block_quantize_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> list[tuple[Size, ...]]:
    """[.., k], and twice [.., k / block]"""
    *rest, width = operands[0]
    blocks = width.divided_by(Size.of(python_value(op.block)))
    assert blocks is not None, "C1, C3"
    return [operands[0], (*rest, blocks), (*rest, blocks)]


@dim_rule(mir.BlockDotOp)
def block_dot_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[.., n]"""
    return (*operands[0][:-1], packed_rows(op.weight, operands[3]))


@dim_rule(mir.RepackOp)
def repack_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """The static dimensions of the packed weight."""
    return tuple(Size.of(size) for size in op.result.type.shape)


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


@TO_LINALG.pattern(mir.DequantMatmulOp)
def lower_dequant_matmul(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """dequant_matmul(x, w) -> generic: W[n, k] decoded; generic: result[.., n] += x[.., k] * W[n, k]"""
    *outer, _ = sizes_of(op.x)
    weight = decoded(op.weight, "f32", 1, element_value)
    sizes = [*outer, size_of(weight, 0)]
    product = contract(op.x, range(len(outer)), weight, [], sizes, transpose_rhs=True)
    rewriter.replace(op, converted(product, op.result.type))


def decoded(
    weight: ir.Value, type: str, run: int, read: Callable[[ir.Value, Packing, Scalar, Scalar], Scalar]
) -> ir.Value:
    """What `read` gives for elements (n, 0), (n, run), (n, 2 run) .. of a packed weight: [n, k / run]."""
    encoding = packing_of(weight)
    rows = size_of(weight, 0) if encoding.n is None else encoding.n
    destination = empty([rows, encoding.k // run], element(type))

    def at(_: Scalar) -> Scalar:
        return read(weight, encoding, index(0), index(1) * run if run > 1 else index(1)).to(type)

    return generic(2, [], [(destination, [0, 1])], at)


@TO_LINALG.pattern(mir.BlockQuantizeOp)
def lower_block_quantize(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """block_quantize(x) -> scale = max|x| / limit; q = round(x / scale); sum += q"""
    block, bits = python_value(op.block), python_value(op.bits)
    limit = largest_integer(bits)
    *outer, width = sizes_of(op.x)
    rank = len(outer) + 2
    inner = range(rank)
    blocks = [*outer, divided(width, block)]
    groups = [*([dim] for dim in range(rank - 2)), [rank - 2, rank - 1]]
    x = split_dims(op.x, groups, [*blocks, block])
    f32, integer = element("f32"), element(INTEGERS[bits])
    largest = reduced(
        rank, [(x, inner)], blocks, inner[:-1], 0, lambda x, most: most.max(absolute(x.to("f32"))), type=f32
    )

    def scale_of(most: Scalar) -> Scalar:
        return (most < math.inf).select(most / limit, math.nan)

    def quantised(x: Scalar, scale: Scalar, _: Scalar) -> Scalar:
        q = round_even(x.to("f32") / scale).max(-limit).min(limit)
        return (scale > 0).select(q, 0).to(INTEGERS[bits])

    scale = elementwise(largest.type, [largest], scale_of)
    destination = (empty([*blocks, block], integer), inner)
    q = generic(rank, [(x, inner), (scale, inner[:-1])], [destination], quantised)
    rewriter.replace(op, collapse(q, groups), scale, run_sums(q, blocks))


@TO_LINALG.pattern(mir.BlockDotOp)
def lower_block_dot(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """block_dot(q, scale, sum, w) -> p += q_w * q, exact; result += scale * (d * p + m * sum)"""
    encoding = packing_of(op.weight)
    run = min(encoding.format.sub, BLOCK)
    per_block = BLOCK // run
    *outer, width = sizes_of(op.q)
    rank = len(outer)
    runs = divided(width, run)
    groups = [*([dim] for dim in range(rank)), [rank, rank + 1]]
    q = split_dims(op.q, groups, [*outer, runs, run])
    integers = split_dims(
        decoded(op.weight, "i8", 1, element_integer), [[0], [1, 2]], [rows := _row_count(op), runs, run]
    )
    n, r, e = rank, rank + 1, rank + 2
    lead = range(rank)
    f32 = element("f32")
    wide = product_type(op.q)
    products = reduced(
        rank + 3,
        [(q, [*lead, r, e]), (integers, [n, r, e])],
        [*outer, rows, runs],
        [*lead, n, r],
        0,
        lambda q, w, total: total + q.to(wide) * w.to(wide),
        type=wide,
    )
    # The scales and sums of blocks, seen from runs: run r belongs to block r / per_block.
    shape = [*outer, divided(runs, per_block), per_block]
    inputs: list[tuple[ir.Value, Map]] = [
        (
            split_dims(
                products, [*([dim] for dim in range(rank + 1)), [rank + 1, rank + 2]], [*outer, rows, *shape[-2:]]
            ),
            [*lead, n, r, e],
        ),
        (op.scale, [*lead, r]),
    ]
    scales = decoded(op.weight, "f32", run, element_scale)
    inputs.append((split_dims(scales, [[0], [1, 2]], [rows, *shape[-2:]]), [n, r, e]))
    if encoding.format.minimum is not None:
        minima = decoded(op.weight, "f32", run, element_minimum)
        inputs.append((split_dims(minima, [[0], [1, 2]], [rows, *shape[-2:]]), [n, r, e]))
        if per_block == 1:
            inputs.append((op.sum, [*lead, r]))
        else:
            inputs.append((split_dims(run_sums(q, [*outer, runs]), groups, shape), [*lead, r, e]))

    def combine(product: Scalar, scale: Scalar, d: Scalar, *rest: Scalar) -> Scalar:
        *minimum, total = rest
        value = d * product.to("f32")
        if minimum:
            value = value + minimum[0] * minimum[1].to("f32")
        return total + scale * value

    result = reduced(rank + 3, inputs, [*outer, rows], [*lead, n], 0, combine, type=f32)
    rewriter.replace(op, result)


def product_type(q: ir.Value) -> ir.Type:
    """In which sums of products of a block of q with integers of a weight are exact."""
    # 255 * 2^14 * 32 fits in 32 bits, three digits with 8-bit weights don't.
    return element("i64" if str(ir.RankedTensorType(q.type).element_type) == "i32" else "i32")


def run_sums(q: ir.Value, outer: Sequence[SizeLike]) -> ir.Value:
    """The sums of q along its last dimension, i32 [outer]."""
    dims = range(len(outer) + 1)
    return reduced(
        len(dims), [(q, dims)], outer, dims[:-1], 0, lambda q, total: total + q.to("i32"), type=element("i32")
    )


def _row_count(op: ir.AnyOp) -> SizeLike:
    encoding = packing_of(op.weight)
    return size_of(op.weight, 0) if encoding.n is None else encoding.n
