# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products with weights whose scales are tensors of their own; `rlx_mlir.formats.scaled` says how they are stored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.formats.scaled import ScaledScheme, decode_scaled, scaled_scheme
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.linalg import (
    SizeLike,
    converted,
    element_type,
    empty,
    extract_slice,
    filled,
    for_each,
    generic,
    index_constant,
    sizes_of,
)
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, accumulator, decode_float8, element, extract, index, unsigned
from rlx_mlir.rewriting import Rewriter

#: Rows of the weight that are decoded at a time: what is decoded stays in the cache.
ROWS = 32


def scheme_of_op(scheme: str, block: int | None) -> ScaledScheme:
    """The scheme that an operation's attributes say."""
    return scaled_scheme(scheme if block is None else f"{scheme}/{block}")


@reference(mir.DequantMatmulScaledOp)
def dequant_matmul_scaled(
    x: np.ndarray,
    weight: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray | None = None,
    global_scale: np.ndarray | None = None,
    *,
    scheme: str,
    block: int | None = None,
) -> np.ndarray:
    """result[.., n] = sum_k x[.., k] W[k, n], with W the decoded weight."""
    kind, k, n = scheme_of_op(scheme, block), x.shape[-1], scale.shape[-1]
    w = decode_scaled(kind, weight, scale, zero_point, global_scale, k=k, n=n)
    wide = widen(x)
    return narrow(np.matmul(wide, w.astype(wide.dtype, copy=False)), x.dtype)


@cost(mir.DequantMatmulScaledOp)
def dequant_matmul_scaled_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 M N K; decoding, which a kernel does once for each element of the weight, isn't counted."""
    return Cost(2 * sizes.count(op.result) * sizes[op.x][-1])


@dim_rule(mir.DequantMatmulScaledOp)
def dequant_matmul_scaled_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[.., n]: scales end with n in every scheme."""
    return (*operands[0][:-1], operands[2][-1])


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


@TO_LINALG.pattern(mir.DequantMatmulScaledOp)
def lower_dequant_matmul_scaled(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """dequant_matmul_scaled(x, w) -> for each 32 rows of w: decode them; result[.., n] += x[.., k] * W[k, n]"""
    *outer, k = sizes_of(op.x)
    assert isinstance(k, int), "C1"
    n = ir.RankedTensorType(op.scale.type).shape[-1]
    total = filled([*outer, n], accumulator(element_type(op.x)), 0)
    whole = k // ROWS
    if whole and n:

        def step(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            first = (Scalar(number) * ROWS).value
            return [_accumulate(op, carried[0], outer, first, ROWS, n)]

        (total,) = for_each(0, whole, [total], step)
    if k % ROWS and n:
        total = _accumulate(op, total, outer, index_constant(whole * ROWS), k % ROWS, n)
    rewriter.replace(op, converted(total, op.result.type))


def _accumulate(
    op: ir.AnyOp, total: ir.Value, outer: Sequence[SizeLike], first: ir.Value, rows: int, n: int
) -> ir.Value:
    """total[.., n] + the products of `rows` columns of x, from `first` on, with those rows of the weight."""
    start = Scalar(first)
    weight = generic(
        2, [], [(empty([rows, n], element("f32")), [0, 1])], lambda _: _element(op, start + index(0), index(1), n)
    )
    x = extract_slice(op.x, [*(0 for _ in outer), first], [*outer, rows])
    loops = len(outer) + 2
    last, k = loops - 1, loops - 2
    lead = range(len(outer))
    return generic(
        loops,
        [(x, [*lead, k]), (weight, [k, last])],
        [(total, [*lead, last])],
        lambda x, w, total: total + x.to(total.type) * w.to(total.type),
        reduction=[k],
    )


def _element(op: ir.AnyOp, k: Scalar, n: Scalar, columns: int) -> Scalar:
    """Element (k, n) of the decoded weight, f32: what `formats.decode_scaled` gives, bit for bit."""
    kind = scheme_of_op(python_value(op.scheme), python_value(op.block))
    if kind.nibbles:
        flat = k * columns + n
        byte = unsigned(extract(op.weight, [flat // 2]), "i32")
        code = (byte >> ((flat % 2) * 4).to("i32")) & 15
    else:
        code = unsigned(extract(op.weight, [k, n]), "i32")
    if kind.block is None:
        return _fp8(code, kind.word) * extract(op.scale, [n])
    position = [k // kind.block, n]
    scale = extract(op.scale, position)
    if kind.word == "nvfp4":
        eighths = _fp8(unsigned(scale, "i32"), "fp8e4m3")
        return _nvfp4(code) * eighths * extract(op.global_scale, [k.like(0)])
    sign = 1 << (3 if kind.nibbles else 7)
    value = ((code ^ sign) - sign).to("f32")
    if op.zero_point is not None:
        value = value - extract(op.zero_point, position)
    return value * scale


def _fp8(code: Scalar, word: str) -> Scalar:
    """A float of 8 bits as f32, NaN as 0; the code is an unsigned i32."""
    value = decode_float8(code, {"fp8e4m3": "f8E4M3FN", "fp8e5m2": "f8E5M2"}[word])
    return value.compare("ne", value).select(0, value)


def _nvfp4(code: Scalar) -> Scalar:
    """A float of sign, two bits of exponent and one of mantissa, as f32; the code is an unsigned i32."""
    exponent, mantissa = (code >> 1) & 3, code & 1
    # Twice the value: 0, 1 without exponent; (2 + m) 2^(e - 1) with one.
    shift = exponent.max(1) - 1
    twice = (exponent.compare("eq", 0).select(mantissa, mantissa + 2) << shift).to("f32")
    value = twice * 0.5
    return (code >= 8).select(-value, value)
