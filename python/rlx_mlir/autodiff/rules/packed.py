# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products with weights that stay packed, of which nothing has a gradient, and with floats of 8 bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Reverse, linear, none, unbroadcast, vjp
from rlx_mlir.dialects import mir
from rlx_mlir.formats.scaled import NVFP4_BLOCK, NVFP4_VALUES
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size


def _product(m: Builders, dy: Value, weight: Value, x: Value, *, transposed: bool = False) -> Value:
    """dy times a decoded weight, in the type that products of x are summed in, as a gradient by x."""
    type = "f64" if x.dtype == np.float64 else "f32"
    rows = m.reshape(dy, [1, -1]) if dy.ndim == 1 else dy
    found = m.matmul(m.cast(rows, type), m.cast(weight, type), transpose_rhs=transposed)
    return m.cast(m.reshape(found, m.sizes_of(x)), x.dtype)


@vjp(mir.DequantMatmulOp)
def dequant_matmul(m: Builders, at: Reverse, x: Value, weight: Value) -> Value:
    """dy times the decoded weight, which stays packed: its rows are decoded where the product reads them."""
    decoded = m.gather(weight, m.iota([Size.of(weight.shape[0])], 0, "i32"), 0)
    return _product(m, at.dy, decoded, x)


@vjp(mir.DequantGroupedMatmulOp)
def dequant_grouped_matmul(m: Builders, at: Reverse, x: Value, weight: Value, expert: Value, *, experts: int) -> Value:
    """Each row of dy by the decoded weight of its expert."""
    type = "f64" if x.dtype == np.float64 else "f32"
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
) -> Value:
    """dy times the decoded weight."""
    decoded = _decoded(m, weight, scale, zero_point, global_scale, scheme, block, int(x.shape[-1]))
    return _product(m, at.dy, decoded, x, transposed=True)


linear(mir.DequantMatmulOp, mir.DequantGroupedMatmulOp, mir.DequantMatmulScaledOp)

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
