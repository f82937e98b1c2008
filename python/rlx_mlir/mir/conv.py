# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.errors import InputError
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.linalg import (
    SizeLike,
    collapse,
    converted,
    divided,
    element_type,
    filled,
    plus,
    reduced,
    sizes_of,
    split_dims,
    write_slice,
)
from rlx_mlir.mir.numerics import narrow, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, accumulator
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


@reference(mir.ConvOp)
def conv(
    x: np.ndarray,
    weight: np.ndarray,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> np.ndarray:
    """Kernels [Co, Ci / groups, kH, kW] slid over x [N, Ci, H, W], one product for each of their positions."""
    outputs, inputs, *kernel = weight.shape
    wide, taps = widen(x), widen(weight).reshape(groups, outputs // groups, inputs, *kernel)
    padded = np.pad(wide, [(0, 0), (0, 0), *((p, p) for p in padding)])
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    if any(size < span - 1 for size, span in zip(padded.shape[2:], spans, strict=True)):
        raise InputError(
            f"mir.conv: 'x', {list(x.shape)} with padding {list(padding)}, must be at most one short of the kernel, "
            f"which spreads over {spans}"
        )
    counts = [(size - span) // s + 1 for size, span, s in zip(padded.shape[2:], spans, stride, strict=True)]
    grouped = padded.reshape(x.shape[0], groups, inputs, *padded.shape[2:])
    total = np.zeros((x.shape[0], groups, outputs // groups, *counts), wide.dtype)
    for u, v in np.ndindex(*kernel):
        rows, columns = (
            slice(at * d, at * d + max(s * (count - 1) + 1, 0), s)
            for at, d, s, count in zip((u, v), dilation, stride, counts, strict=True)
        )
        total += np.einsum("ngcij,goc->ngoij", grouped[..., rows, columns], taps[..., u, v])
    return narrow(total.reshape(x.shape[0], outputs, *counts), x.dtype)


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.ConvOp)
def conv_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """2 for each element of the result and of the kernel of its output."""
    return Cost(2 * sizes.count(op.result) * math.prod(sizes[op.weight][1:]))


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


@dim_rule(mir.ConvOp)
def conv_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[N, Co, Ho, Wo]"""
    x, weight = operands
    kernel = op.weight.type.shape[2:]
    sizes = [x[0], weight[0]]
    for size, k, padding, dilation, stride in zip(
        x[2:], kernel, *(python_value(a) for a in (op.padding, op.dilation, op.stride)), strict=True
    ):
        spread = dilation * (k - 1) + 1
        sizes.append((size + (2 * padding - spread + stride)) // stride)  # of what isn't negative, also for none
    return tuple(sizes)


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


def _padded(x: ir.Value, padding: Sequence[int], outside: int) -> ir.Value:
    """x [N, C, H, W] with a number around its last two dimensions."""
    if not any(padding):
        return x
    own = sizes_of(x)
    before = [0, 0, *padding]
    sizes = [plus(size, 2 * p) for size, p in zip(own, before, strict=True)]
    if 0 in own:  # a slice of nothing may not start at the end
        return filled(sizes, element_type(x), outside)
    return write_slice(x, filled(sizes, element_type(x), outside), before, own)


def convolved(
    op: ir.AnyOp, body: Callable[[Scalar, Scalar, Scalar], Scalar], type: ir.Type | None = None, *, outside: int = 0
) -> ir.Value:
    """The sums of a convolution: of x padded and split in groups; result[n, g, o, i, j] += x[..] w[g, o, c, u, v]

    The innermost loop runs along a row of the result, where neighbours are independent of each other.

    Args:
        op: the convolution, with operands x and weight.
        body: adds the product of an element and a weight to a sum.
        type: of the sums, by default that in which x is computed.
        outside: what is read outside of x.
    """
    stride, padding, dilation = (python_value(a) for a in (op.stride, op.padding, op.dilation))
    groups = python_value(op.groups)
    padded = _padded(op.x, padding, outside)
    batch, channels, *spatial = sizes_of(padded)
    outputs, inputs, *kernel = sizes_of(op.weight)
    if not isinstance(inputs, int):
        inputs = divided(channels, groups)
    counts: list[SizeLike] = [
        divided(plus(size, s - (d * (k - 1) + 1)), s)  # of what isn't negative, also where there is no position
        for size, k, d, s in zip(spatial, kernel, dilation, stride, strict=True)
    ]
    if 0 in counts:  # indices of no position would leave what they index
        return filled([batch, outputs, *counts], accumulator(element_type(op.x)) if type is None else type, 0)
    per_group = divided(outputs, groups)
    n, g, o, i, c, u, v, j = range(8)

    def window(position: int, tap: int, dim: int) -> ir.AffineExpr:
        return ir.AffineExpr.get_add(
            ir.AffineExpr.get_mul(ir.AffineDimExpr.get(position), stride[dim]),
            ir.AffineExpr.get_mul(ir.AffineDimExpr.get(tap), dilation[dim]),
        )

    split = [[0], [1, 2], [3], [4]]
    x = split_dims(padded, split, [batch, groups, inputs, *spatial])
    weight = split_dims(op.weight, [[0, 1], [2], [3], [4]], [groups, per_group, inputs, *kernel])
    total = reduced(
        8,
        [(x, [n, g, c, window(i, u, 0), window(j, v, 1)]), (weight, [g, o, c, u, v])],
        [batch, groups, per_group, *counts],
        [n, g, o, i, j],
        0,
        body,
        type=type,
    )
    return collapse(total, split)


@TO_LINALG.pattern(mir.ConvOp)
def lower_conv(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """conv(x, w) -> x padded with zeros; generic: result[n, g, o, i, j] += x[..] w[g, o, c, u, v]"""
    rewriter.replace(op, converted(convolved(op, lambda x, w, total: total + x * w), op.result.type))
