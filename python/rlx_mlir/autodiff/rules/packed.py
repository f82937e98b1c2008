# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products with weights that stay packed, of which nothing has a gradient, and with floats of 8 bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from rlx_mlir import ir
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.folding import folded
from rlx_mlir.autodiff.forward import push_forward
from rlx_mlir.autodiff.registry import Forward, Reverse, jvp, linear, none, reshaped, unbroadcast, vjp
from rlx_mlir.autodiff.reverse import pull_back
from rlx_mlir.dialects import mir
from rlx_mlir.formats.scaled import NVFP4_BLOCK, NVFP4_VALUES
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.packed import packing


def read_in_rows(m: Builders) -> None:
    """Lets products read weights as they are before `mir.repack`, which changes their order alone.

    So rows are there to be decoded, and weights of floats have gradients.
    """
    for op in [each.operation for each in m._block.operations if each.operation.name == "mir.dequant_matmul"]:
        weight = op.operands[1]
        made = None if isinstance(weight, ir.BlockArgument) else ir.OpResult(weight).owner.operation
        if made is None or made.name != "mir.repack":
            continue
        x, source, y = m.values([op.operands[0], made.operands[0], op.results[0]])
        with m.stemming_from(op), m.before(op):
            if packing(made.operands[0].type) is None:
                found = reshaped(m, _rows_times(m, x, source, transposed=True), y)
            else:
                (found,) = m.rebuilt(op, [x, source])
        m.replace_results(op, [found])
        op.erase()
        if not any(True for _ in made.results[0].uses):
            made.erase()


def _product(m: Builders, dy: Value, weight: Value, x: Value, *, transposed: bool = False) -> Value:
    """dy times a decoded weight, as a gradient by x."""
    return m.reshape(_rows_times(m, dy, weight, transposed=transposed), m.sizes_of(x))


def _wide(x: Value) -> str:
    """The type that products of x are summed in."""
    return "f64" if x.dtype == np.float64 else "f32"


def _rows_times(m: Builders, x: Value, weight: Value, *, transposed: bool = False) -> Value:
    """Rows, or a single one, times a decoded weight, summed in a wide type, in that of the rows."""
    rows = m.reshape(x, [1, *m.sizes_of(x)]) if x.ndim == 1 else x
    return m.cast(m.matmul(m.cast(rows, _wide(x)), m.cast(weight, _wide(x)), transpose_rhs=transposed), x.dtype)


@vjp(mir.DequantMatmulOp)
def dequant_matmul(m: Builders, at: Reverse, x: Value, weight: Value) -> Value:
    """dy times the decoded weight, which stays packed: its rows are decoded where the product reads them."""
    decoded = m.gather(weight, m.iota([Size.of(weight.shape[0])], 0, "i32"), 0)
    return _product(m, at.dy, decoded, x)


@vjp(mir.DequantGroupedMatmulOp)
def dequant_grouped_matmul(m: Builders, at: Reverse, x: Value, weight: Value, expert: Value, *, experts: int) -> Value:
    """Each row of dy by the decoded weight of its expert."""
    type = _wide(x)
    decoded = m.transpose(m.cast(m.dequant_moe_weights(weight, experts=experts), type), [0, 2, 1])
    return m.cast(m.grouped_matmul(m.cast(at.dy, type), decoded, expert), x.dtype)


none(mir.DequantMoeWeightsOp)

# ----------------------------------------------------------------------------------------------------------------------
# Weights whose scales are tensors
# ----------------------------------------------------------------------------------------------------------------------


def _looked_up(m: Builders, table: np.ndarray, codes: Value) -> Value:
    """Entries of a table of f32 by bytes of i8, as numbers from 0 to 255."""
    return m.gather(m.constant(table.astype(np.float32)), m.bitwise_and(m.cast(codes, "i32"), 255))


def _floats(kind: type) -> np.ndarray:
    """The numbers that bytes are as floats of 8 bits; NaN is 0."""
    numbers = np.arange(256, dtype=np.uint8).view(kind).astype(np.float32)
    return np.where(np.isnan(numbers), np.float32(0), numbers)


def _nibbles(m: Builders, table: np.ndarray, codes: Value, rows: int, columns: int) -> Value:
    """Entries of a table of 16 numbers by the halves of bytes, the low one first, as [rows, columns]."""
    low, high = np.meshgrid(table, table)  # [high, low]
    pairs = np.stack([low.reshape(-1), high.reshape(-1)], -1)
    both = m.reshape(_looked_up(m, pairs, codes), [-1])
    return m.reshape(m.narrow(both, 0, 0, rows * columns), [rows, columns])


def _decoded(
    m: Builders,
    weight: Value,
    scale: Value,
    zero_point: Value | None,
    global_scale: Value | None,
    scheme: str,
    block: int | None,
    rows: int,
) -> Value:
    """The weight [K, N] of a scheme, in f32."""
    columns = int(scale.shape[-1])

    def of_rows(factors: Value, length: int) -> Value:
        return m.gather(factors, m.constant(np.arange(rows, dtype=np.int32) // length), 0)

    if scheme == "nvfp4":
        values = np.concatenate([NVFP4_VALUES, -NVFP4_VALUES])
        factors = of_rows(_looked_up(m, _floats(ml_dtypes.float8_e4m3fn), scale), NVFP4_BLOCK)
        assert global_scale is not None, "C3"
        return m.mul(m.mul(_nibbles(m, values, weight, rows, columns), factors), global_scale)
    if block is None:
        kind = ml_dtypes.float8_e4m3fn if scheme == "fp8e4m3" else ml_dtypes.float8_e5m2
        return m.mul(_looked_up(m, _floats(kind), weight), scale)
    if scheme == "int4":
        signed = np.concatenate([np.arange(8), np.arange(-8, 0)])
        return m.mul(_nibbles(m, signed, weight, rows, columns), of_rows(scale, block))
    numbers = m.cast(weight, "f32")
    if zero_point is not None:
        numbers = m.sub(numbers, of_rows(zero_point, block))
    return m.mul(numbers, of_rows(scale, block))


@vjp(mir.DequantMatmulScaledOp)
def dequant_matmul_scaled(
    m: Builders,
    at: Reverse,
    x: Value,
    weight: Value,
    scale: Value,
    zero_point: Value | None = None,
    global_scale: Value | None = None,
    *,
    scheme: str,
    block: int | None = None,
) -> tuple[Value | None, ...]:
    """By x, dy times the decoded weight; by scales and zero points, what decodes with them of x^T dy."""
    with m.recording() as parts:
        decoded = _decoded(m, weight, scale, zero_point, global_scale, scheme, block, int(x.shape[-1]))
    by_x = _product(m, at.dy, decoded, x, transposed=True)
    factors = [own for own in (scale, zero_point, global_scale) if own is not None]
    if not any(at.active[2:]):
        return (by_x,)
    type = _wide(x)
    rows, changes = (
        m.cast(m.reshape(own, [1, *m.sizes_of(own)]) if own.ndim == 1 else folded(m, own, 0, own.ndim - 1), type)
        for own in (x, at.dy)
    )
    by_weight = m.cast(m.matmul(m.transpose(rows, [1, 0]), changes), "f32")
    found = iter(pull_back(m, parts, {m._read(decoded): by_weight}, [m._read(own) for own in factors]))
    return by_x, None, *(None if own is None else next(found) for own in (scale, zero_point, global_scale))


@jvp(mir.DequantMatmulScaledOp)
def dequant_matmul_scaled_forward(
    m: Builders,
    at: Forward,
    x: Value,
    weight: Value,
    scale: Value,
    zero_point: Value | None = None,
    global_scale: Value | None = None,
    *,
    scheme: str,
    block: int | None = None,
) -> Value:
    """The product of the tangent, and of x with what decodes with the tangents of scales and zero points."""
    tangent, _, *tangents = at.tangents
    operands = m.values(at.op.operands)
    total = None if tangent is None else m.copied(at.op, [tangent, *operands[1:]])[0]
    factors = zip((scale, zero_point, global_scale), tangents, strict=True)
    given = {m._read(own): change for own, change in factors if own is not None and change is not None}
    if not given:
        assert total is not None, "one of the tangents isn't zeros"
        return total
    with m.recording() as parts:
        decoded = _decoded(m, weight, scale, zero_point, global_scale, scheme, block, int(x.shape[-1]))
    (change,) = push_forward(m, parts, given, [m._read(decoded)])
    assert change is not None, "the weight depends on each of its scales"
    term = m.reshape(_rows_times(m, x, change), m.sizes_of(at.y))
    return term if total is None else m.add(total, term)


linear(mir.DequantMatmulOp, mir.DequantGroupedMatmulOp)

# ----------------------------------------------------------------------------------------------------------------------
# Floats of 8 bits
# ----------------------------------------------------------------------------------------------------------------------


@vjp(mir.ScaledMatmulOp)
def scaled_matmul(
    m: Builders,
    at: Reverse,
    lhs: Value,
    rhs: Value,
    lhs_scale: Value | None = None,
    rhs_scale: Value | None = None,
    *,
    transpose_rhs: bool = False,
) -> tuple[Value | None, ...]:
    """By the scales: sums of dy times the product and the other scale."""
    product = m.mul(m.cast(at.dy, "f32"), m.scaled_matmul(lhs, rhs, transpose_rhs=transpose_rhs))

    def across(scale: Value | None, operand: Value, *, of_rows: bool) -> Value | None:
        """A scale as it multiplies the product."""
        if scale is None or scale.ndim != operand.ndim - 1:
            return scale
        *batch, own = m.sizes_of(scale)
        return m.reshape(scale, [*batch, own, 1] if of_rows else [*batch, 1, own])

    first, second = across(lhs_scale, lhs, of_rows=True), across(rhs_scale, rhs, of_rows=False)

    def by(scale: Value | None, own: Value | None, other: Value | None) -> Value | None:
        if scale is None or own is None:
            return None
        found = unbroadcast(m, product if other is None else m.mul(product, other), own)
        return m.reshape(found, m.sizes_of(scale))

    return None, None, by(lhs_scale, first, second), by(rhs_scale, second, first)
