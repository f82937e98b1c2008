# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms that are written out: by root mean square, and by mean and variance, along the last dimension.

Each is found without weights first, and takes these one after the other.
"""

from __future__ import annotations

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import elements_attribute, python_value
from rlx_mlir.dialects import mir
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.lowering.fuse import drops_rounding, only_user
from rlx_mlir.lowering.raising.matching import (
    Raising,
    element,
    factors,
    is_number,
    near,
    number,
    producer,
    same,
    sides,
    unrounded,
)
from rlx_mlir.rewriting import Rewriter

NORMS = (mir.RmsNormOp, mir.LayerNormOp)


def add_patterns(raising: Raising) -> None:
    """Adds the patterns of this family."""

    @raising.pattern(mir.MulOp, mir.DivOp)
    def raise_norm(op: ir.OpView, rewriter: Rewriter) -> None:
        """x / sqrt(mean(x^2) + eps) -> rms_norm(x); with x - mean(x) in place of x, layer_norm(x)"""
        for x, scale in sides(op) if isinstance(op, mir.MulOp) else ((op.lhs, op.rhs),):
            deviation = _deviation(scale, reciprocal=isinstance(op, mir.MulOp))
            if deviation is None or is_number(x, 1.0):  # an inverse by itself, which a product may read
                continue
            eps, squares = deviation
            if not _is_square(squares, x) or x.type != op.result.type:
                return rewriter.no_match("what is divided isn't what the mean of squares is of")
            if drops_rounding(op, rewriter):
                return None
            return _replaced(raising, op, rewriter, x, eps)
        return None

    @raising.pattern(mir.MulOp)
    def raise_weight(op: mir.MulOp, rewriter: Rewriter) -> None:
        """norm(x) * w -> norm(x, w), of a norm without a weight"""
        for normed, weight in sides(op):
            norm = producer(normed, *NORMS)
            if norm is None or normed.type != op.result.type or norm.beta is not None or not is_number(norm.gamma, 1.0):
                continue
            vector = _vector(raising, normed, weight)
            if vector is None:
                return None
            if only_user(normed) is None:
                return rewriter.no_match("the norm without its weight has other readers")
            kind = mir.rms_norm if isinstance(norm, mir.RmsNormOp) else mir.layer_norm
            return raising.replace(rewriter, op, kind(norm.x, vector, axis=-1, eps=norm.eps))
        return None

    @raising.pattern(mir.AddOp)
    def raise_shift(op: mir.AddOp, rewriter: Rewriter) -> None:
        """norm(x, w) + b -> norm(x, w, b)"""
        for normed, shift in sides(op):
            norm = producer(normed, *NORMS)
            if norm is None or norm.beta is not None or normed.type != op.result.type or only_user(normed) is None:
                continue
            vector = _vector(raising, normed, shift)
            if vector is None:
                return None
            kind = mir.rms_norm if isinstance(norm, mir.RmsNormOp) else mir.layer_norm
            return raising.replace(rewriter, op, kind(norm.x, norm.gamma, beta=vector, axis=-1, eps=norm.eps))
        return None


def _replaced(raising: Raising, op: ir.OpView, rewriter: Rewriter, x: ir.Value, eps: float) -> None:
    """Puts a norm without weights in the place of an operation."""
    size = raising.dims(x)[-1].constant
    if size is None:
        return rewriter.no_match("the last dimension is symbolic", hint="a norm has a weight of a known length")
    if not 0 < eps < np.inf:
        return rewriter.no_match("nothing is added to the mean of squares", hint="a norm has a positive eps")
    kind = ir.RankedTensorType(x.type).element_type
    ones = elements_attribute(np.ones(size, numpy_dtype(kind)), kind)
    gamma = mir.constant(ones)
    centred = producer(x, mir.SubOp)
    if centred is not None and _is_mean(centred.rhs, centred.lhs):
        return raising.replace(rewriter, op, mir.layer_norm(centred.lhs, gamma, axis=-1, eps=eps))
    return raising.replace(rewriter, op, mir.rms_norm(x, gamma, axis=-1, eps=eps))


def _deviation(scale: ir.Value, *, reciprocal: bool) -> tuple[float, ir.Value] | None:
    """(eps, squares) of 1 / sqrt(mean(squares) + eps), or of its inverse."""
    while (view := producer(scale, mir.ReshapeOp, mir.ExpandOp)) is not None:
        scale = view.x
    root = producer(scale, mir.RsqrtOp) if reciprocal else producer(scale, mir.SqrtOp)
    if root is None and reciprocal:
        quotient = producer(unrounded(scale, element(scale)), mir.DivOp)
        if quotient is not None and is_number(quotient.lhs, 1.0):
            root = producer(unrounded(quotient.rhs, element(scale)), mir.SqrtOp)
    total = producer(root.x, mir.AddOp) if root is not None else None
    for mean, small in sides(total) if total is not None else ():
        eps, squares = number(small), _mean_of(mean)
        if eps is not None and squares is not None:
            return eps, squares
    return None


def _mean_of(value: ir.Value) -> ir.Value | None:
    """What a value is the mean of, along the last dimension: by `reduce`, or as a sum divided by its length."""
    total, rest = factors(value)
    if len(rest) != 1:
        return None
    word = element(value)
    value = unrounded(rest[0], word)
    while (view := producer(value, mir.ReshapeOp)) is not None:
        value = view.x
    reduced = producer(value, mir.ReduceOp)
    if reduced is None:
        return None
    shape = ir.RankedTensorType(reduced.x.type).shape
    if list(reduced.axes) != [len(shape) - 1]:
        return None
    kind = str(python_value(reduced.kind))
    is_mean = kind == "mean" and total == 1.0
    is_sum = kind == "sum" and shape[-1] > 0 and near(total, 1.0 / shape[-1])
    return unrounded(reduced.x, word) if is_mean or is_sum else None


def _is_square(value: ir.Value, x: ir.Value) -> bool:
    product = producer(value, mir.MulOp, mir.PowOp)
    if isinstance(product, mir.PowOp):
        return same(product.lhs, x) and is_number(product.rhs, 2.0)
    return product is not None and same(product.lhs, x) and same(product.rhs, x)


def _is_mean(value: ir.Value, x: ir.Value) -> bool:
    found = _mean_of(value)
    return found is not None and found == x


def _vector(raising: Raising, normed: ir.Value, weight: ir.Value) -> ir.Value | None:
    """A value as a vector as long as the last dimension of what is normalised; None where it differs between rows."""
    size, own = raising.dims(normed)[-1], raising.dims(weight)
    if element(weight) != element(normed) or not own or own[-1] != size:
        return None
    if any(other.constant != 1 for other in own[:-1]):
        return None
    return raising.reshaped(weight, [size])
