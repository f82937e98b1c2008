# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms and the GELU that older files write as arithmetic: they become operations of ours, which mean the same."""

from __future__ import annotations

import math

from rlx_mlir.frontends.tensors import Tensor
from rlx_mlir.hir import Value

from .call import Call
from .patterns import made_by, unscaled
from .types import FLOATS, HALVES


def _number(tensor: Tensor) -> float | None:
    """The one number that a tensor is; None where it isn't."""
    numbers = tensor.numbers
    return float(numbers.reshape(-1)[0]) if numbers is not None and numbers.size == 1 else None


def _is_same(a: Tensor, b: Tensor) -> bool:
    return a.handle is not None and a.handle is b.handle


# GELU -----------------------------------------------------------------------------------------------


def gelu(call: Call) -> Value | None:
    """x (1 + erf(x / sqrt 2)) / 2 where a product is that, with its factors in any order; else None."""
    a, b = call.tensor(0), call.tensor(1)
    for x, other in ((a, b), (b, a)):
        half = _number(other)
        if half is not None:
            inner = made_by(call, x, "Mul")
            pairs = [] if inner is None else [(inner.tensor(0), inner.tensor(1)), (inner.tensor(1), inner.tensor(0))]
            pairs = [(*pair, half) for pair in pairs]  # type: ignore[misc]
        else:
            (left, first), (right, second) = unscaled(call, x), unscaled(call, other)
            pairs = [(left, right, first * second)]  # type: ignore[list-item]
        for value, rest, factor in pairs:  # type: ignore[misc]
            if factor == 0.5 and value.dtype in FLOATS and _is_one_plus_erf(call, rest, value):
                return call.m.gelu(call.importer.value(value))
    return None


def _is_one_plus_erf(call: Call, tensor: Tensor, x: Tensor) -> bool:
    add = made_by(call, tensor, "Add")
    if add is None:
        return False
    for number in (0, 1):
        erf = made_by(call, add.tensor(number), "Erf")
        if erf is None or _number(add.tensor(1 - number)) != 1.0:
            continue
        inner, factor = unscaled(call, erf.tensor(0))
        near = 1e-3 if x.dtype in HALVES else 1e-6
        return _is_same(inner, x) and abs(factor * math.sqrt(2) - 1) < near
    return False


# Norms ----------------------------------------------------------------------------------------------


def _mean(call: Call, tensor: Tensor) -> Tensor | None:
    """What a tensor is the mean of, along the last dimension, which stays."""
    made = made_by(call, tensor, "ReduceMean")
    if made is None or not made.flag("keepdims", True):
        return None
    axes = made.axes(1)
    rank = made.rank(0)
    return made.tensor(0) if axes is not None and len(axes) == 1 and axes[0] in (-1, rank - 1) else None


def _root(call: Call, tensor: Tensor) -> tuple[Tensor, float] | None:
    """x and eps where a tensor is sqrt(mean(x^2) + eps)."""
    root = made_by(call, tensor, "Sqrt")
    add = None if root is None else made_by(call, root.tensor(0), "Add")
    if add is None:
        return None
    for number in (0, 1):
        eps, squares = _number(add.tensor(1 - number)), _mean(call, add.tensor(number))
        x = None if squares is None else _squared(call, squares)
        if eps is not None and eps > 0 and math.isfinite(eps) and x is not None:
            return x, eps
    return None


def _squared(call: Call, tensor: Tensor) -> Tensor | None:
    """What a tensor is the square of."""
    made = made_by(call, tensor, "Pow", "Mul")
    if made is None:
        return None
    if made.op == "Pow":
        return made.tensor(0) if _number(made.tensor(1)) == 2.0 else None
    return made.tensor(0) if _is_same(made.tensor(0), made.tensor(1)) else None


def _is_row(tensor: Tensor, x: Tensor) -> bool:
    """Whether a tensor has a number for each entry of the last dimension."""
    return tensor.rank == 1 and tensor.shape[0] == x.shape[-1] and tensor.dtype == x.dtype


def layer_norm(call: Call) -> Value | None:
    """(x - mean) / sqrt(variance + eps) * gamma + beta where a sum is that; else None."""
    for number in (0, 1):
        beta, scaled = call.tensor(1 - number), made_by(call, call.tensor(number), "Mul")
        if scaled is None:
            continue
        for side in (0, 1):
            gamma, normed = scaled.tensor(1 - side), made_by(call, scaled.tensor(side), "Div")
            root = None if normed is None else _root(call, normed.tensor(1))
            if normed is None or root is None or not _is_same(root[0], normed.tensor(0)):
                continue
            difference = made_by(call, root[0], "Sub")
            mean = None if difference is None else _mean(call, difference.tensor(1))
            if difference is None or mean is None or not _is_same(mean, difference.tensor(0)):
                continue
            if _is_row(gamma, mean) and _is_row(beta, mean) and mean.dtype in FLOATS:
                x, factor, summand = (call.importer.value(each) for each in (mean, gamma, beta))
                return call.m.layer_norm(x, factor, summand, eps=root[1])
    return None


def rms_norm(call: Call) -> Value | None:
    """x / sqrt(mean(x^2) + eps) * gamma where a product is that; else None."""
    for number in (0, 1):
        gamma, found = call.tensor(1 - number), _normed(call, call.tensor(number))
        if found is not None and _is_row(gamma, found[0]) and found[0].dtype in FLOATS:
            x, factor = (call.importer.value(each) for each in (found[0], gamma))
            return call.m.rms_norm(x, factor, eps=found[1])
    return None


def _normed(call: Call, tensor: Tensor) -> tuple[Tensor, float] | None:
    """x and eps where a tensor is x / sqrt(mean(x^2) + eps), written as a quotient or as a product."""
    made = made_by(call, tensor, "Div", "Mul")
    if made is None:
        return None
    if made.op == "Div":
        root = _root(call, made.tensor(1))
        return root if root is not None and _is_same(root[0], made.tensor(0)) else None
    for number in (0, 1):
        inverse = made_by(call, made.tensor(number), "Reciprocal", "Div")
        if inverse is None or (inverse.op == "Div" and _number(inverse.tensor(0)) != 1.0):
            continue
        root = _root(call, inverse.tensor(1 if inverse.op == "Div" else 0))
        if root is not None and _is_same(root[0], made.tensor(1 - number)):
            return root
    return None


__all__ = ["gelu", "layer_norm", "rms_norm"]
