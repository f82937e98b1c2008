# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of one element that are written out: sigmoid, SiLU, and GELU in its two forms."""

from __future__ import annotations

import math

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.fuse import drops_rounding
from rlx_mlir.lowering.raising.matching import (
    Raising,
    element,
    factors,
    is_number,
    near,
    number,
    producer,
    sides,
    unrounded,
)
from rlx_mlir.rewriting import Rewriter

#: Of what tanh is taken of, in the approximate GELU.
_SLOPE = math.sqrt(2 / math.pi)


def add_patterns(raising: Raising) -> None:
    """Adds the patterns of this family."""

    @raising.pattern(mir.DivOp)
    def raise_sigmoid(op: mir.DivOp, rewriter: Rewriter) -> None:
        """1 / (1 + exp(-x)) -> sigmoid(x), and x / (1 + exp(-x)) -> x sigmoid(x)"""
        x = _logistic(op.rhs)
        if x is None or x.type != op.result.type or drops_rounding(op, rewriter):
            return None
        sigmoid = mir.sigmoid(x)
        return raising.replace(rewriter, op, sigmoid if is_number(op.lhs, 1.0) else mir.mul(op.lhs, sigmoid))

    @raising.pattern(mir.MulOp)
    def raise_silu(op: mir.MulOp, rewriter: Rewriter) -> None:
        """x sigmoid(x) -> silu(x)"""
        for x, other in sides(op):
            sigmoid = producer(other, mir.SigmoidOp)
            if sigmoid is not None and sigmoid.x == x and not drops_rounding(op, rewriter):
                return raising.replace(rewriter, op, mir.silu(x))
        return None

    @raising.pattern(mir.MulOp)
    def raise_gelu(op: mir.MulOp, rewriter: Rewriter) -> None:
        """x / 2 (1 + erf(x / sqrt(2))) -> gelu(x), and x / 2 (1 + tanh(a (x + b x^3))) -> gelu_approx(x)"""
        total, rest = factors(op.result)
        if len(rest) != 2 or not near(total, 0.5):
            return None
        for x, sum in (rest, rest[::-1]):
            if x.type != op.result.type:
                continue
            for kind, found in ((mir.gelu, _is_exact(x, sum)), (mir.gelu_approx, _is_approximate(x, sum))):
                if found and not drops_rounding(op, rewriter):
                    return raising.replace(rewriter, op, kind(x))
        return None


def _logistic(value: ir.Value) -> ir.Value | None:
    """x of 1 + exp(-x)."""
    add = producer(value, mir.AddOp)
    for one, other in sides(add) if add is not None else ():
        power = producer(other, mir.ExpOp) if is_number(one, 1.0) else None
        negative = producer(power.x, mir.NegOp) if power is not None else None
        if negative is not None:
            return negative.x
    return None


def _is_exact(x: ir.Value, sum: ir.Value) -> bool:
    """Whether a sum is 1 + erf(x / sqrt(2)), with erf as 1 - erfc."""
    add = producer(sum, mir.AddOp)
    for one, other in sides(add) if add is not None else ():
        erf = producer(unrounded(other, element(x)), mir.SubOp) if is_number(one, 1.0) else None
        rest = producer(erf.rhs, mir.ErfcOp) if erf is not None and is_number(erf.lhs, 1.0) else None
        if rest is not None and _is_multiple(unrounded(rest.x, element(x)), x, math.sqrt(0.5)):
            return True
    return False


def _is_approximate(x: ir.Value, sum: ir.Value) -> bool:
    """Whether a sum is 1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))."""
    add = producer(sum, mir.AddOp)
    for one, other in sides(add) if add is not None else ():
        tanh = producer(other, mir.TanhOp) if is_number(one, 1.0) else None
        if tanh is None:
            continue
        total, rest = factors(tanh.x)
        inner = producer(rest[0], mir.AddOp) if len(rest) == 1 and near(total, _SLOPE, element(x)) else None
        if inner is not None and any(own == x and _is_cube(cube, x) for own, cube in sides(inner)):
            return True
    return False


def _is_multiple(value: ir.Value, x: ir.Value, by: float) -> bool:
    total, rest = factors(value)
    return rest == [x] and near(total, by, element(x))


def _is_cube(value: ir.Value, x: ir.Value) -> bool:
    """Whether a value is 0.044715 x^3."""
    total, rest = factors(value)
    power = producer(rest[0], mir.PowOp) if len(rest) == 1 else None
    is_cube = rest == [x, x, x] or (power is not None and power.lhs == x and near(number(power.rhs), 3.0))
    return is_cube and near(total, 0.044715, element(x))
