# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Between which numbers values lie: intervals, from those of arguments through every operation of a function.

An interval holds for all elements of a value, and for every input within the bounds that were given: it is proved, not
measured. So it may be far too wide, as nothing is known of how elements go together, and it says nothing of rounding,
nor of reductions of nothing, which may be infinite. An operation without a rule here gives anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import elements_array, python_value
from rlx_mlir.dialects import mir


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`; no infinity and no NaN is among them, but where an end is infinite."""

    low: float
    high: float

    @property
    def magnitude(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    @property
    def is_known(self) -> bool:
        """Whether both ends are numbers."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def __str__(self) -> str:
        return f"{self.low:.3g} to {self.high:.3g}" if self.is_known else "anything"

    @classmethod
    def of(cls, bound: Interval | float | tuple[float, float]) -> Interval:
        """From a bound of the magnitude, or both ends."""
        if isinstance(bound, Interval):
            return bound
        if isinstance(bound, tuple):
            return cls(float(bound[0]), float(bound[1]))
        return cls(-float(bound), float(bound))


ANYTHING = Interval(-math.inf, math.inf)


@dataclass(frozen=True)
class Weight:
    """What is known of a matrix whose elements are at hand: by how much a product with it grows magnitudes at most.

    Attributes:
        columns: the largest sum of magnitudes of a column: of a product with [K, N].
        rows: that of a row: of a product with [N, K].
    """

    columns: float
    rows: float


@dataclass
class Known:
    """What is known of a function's values.

    Attributes:
        intervals: by value.
        weights: of parameters, by value.
        grows: results of `mir.cache_update` whose cache is what the call before gave, and at first zeros.
    """

    intervals: dict[Any, Interval]
    weights: dict[Any, Weight]
    grows: frozenset[Any] = frozenset()

    def __getitem__(self, value: Any) -> Interval:
        return self.intervals.get(value, ANYTHING)


Rule = Callable[[Any, Known], "Interval | Sequence[Interval]"]
_RULES: dict[str, Rule] = {}


def _rule(*ops: Any) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for op in ops:
            _RULES[op.OPERATION_NAME] = function
        return function

    return register


def intervals_of(op: Any, known: Known) -> list[Interval]:
    """The intervals of an operation's results."""
    operation = op.operation
    rule = _RULES.get(operation.name)
    found: Any = ANYTHING if rule is None else rule(operation.opview, known)
    listed = [found] * len(operation.results) if isinstance(found, Interval) else list(found)
    # Scalars that code on buffers has are their own element type.
    kinds = [getattr(result.type, "element_type", result.type) for result in operation.results]
    return [_fitted(own, kind) for own, kind in zip(listed, kinds, strict=True)]


def _fitted(interval: Interval, element: Any) -> Interval:
    """The interval, or that of the element type where integers wrap around; anything for ends that are no numbers."""
    if math.isnan(interval.low) or math.isnan(interval.high):
        return ANYTHING
    if not isinstance(element, ir.IntegerType):
        return interval
    width = element.width
    least, most = (0.0, 1.0) if width == 1 else (-(2.0 ** (width - 1)), 2.0 ** (width - 1) - 1)
    return interval if least <= interval.low and interval.high <= most else Interval(least, most)


def _hull(listed: Iterable[Interval]) -> Interval:
    every = list(listed)
    return Interval(min(own.low for own in every), max(own.high for own in every))


def _times(a: float, b: float) -> float:
    """A product in which 0 wins over infinity, which stands for any number."""
    return 0.0 if a == 0 or b == 0 else a * b


def _product(x: Interval, y: Interval) -> Interval:
    ends = [_times(a, b) for a in (x.low, x.high) for b in (y.low, y.high)]
    return Interval(min(ends), max(ends))


def _within(magnitude: float) -> Interval:
    return Interval(-magnitude, magnitude)


def _size(value: Any, axis: int) -> float:
    """The length of a dimension; infinite where it is dynamic."""
    type = value.type
    axis %= type.rank
    return math.inf if type.is_dynamic_dim(axis) else float(type.get_dim_size(axis))


# Element by element -------------------------------------------------------------------------------


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf


def _sigmoid(x: float) -> float:
    return 1 / (1 + _exp(-x)) if x > -700 else 0.0


#: The least values of x * sigmoid(x) and of x * Phi(x), a little below.
_LEAST = {"silu": -0.2785, "gelu": -0.17, "gelu_approx": -0.1701}


def activate(kind: str, x: Interval) -> Interval:
    """The interval of an activation."""
    if kind in _LEAST:  # for x > 0 they grow, and are between 0 and x
        return Interval(max(_LEAST[kind], min(x.low, 0.0)), max(x.high, 0.0))
    if kind == "relu":
        return Interval(max(x.low, 0.0), max(x.high, 0.0))
    if kind == "sigmoid":
        return Interval(_sigmoid(x.low), _sigmoid(x.high))
    if kind == "tanh":
        return Interval(math.tanh(x.low), math.tanh(x.high))
    return ANYTHING


def _activation(kind: str) -> Rule:
    return lambda op, known: activate(kind, known[op.x])


for _name, _op in (
    ("silu", mir.SiluOp),
    ("gelu", mir.GeluOp),
    ("gelu_approx", mir.GeluApproxOp),
    ("relu", mir.ReluOp),
    ("sigmoid", mir.SigmoidOp),
    ("tanh", mir.TanhOp),
):
    _rule(_op)(_activation(_name))


@_rule(mir.ExpOp)
def _of_exp(op: Any, known: Known) -> Interval:
    x = known[op.x]
    return Interval(_exp(x.low), _exp(x.high))


@_rule(mir.NegOp)
def _of_neg(op: Any, known: Known) -> Interval:
    x = known[op.x]
    return Interval(-x.high, -x.low)


@_rule(mir.AbsOp)
def _of_abs(op: Any, known: Known) -> Interval:
    x = known[op.x]
    return Interval(0.0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high)), x.magnitude)


@_rule(mir.SqrtOp)
def _of_sqrt(op: Any, known: Known) -> Interval:
    x = known[op.x]
    return Interval(math.sqrt(x.low), math.sqrt(x.high)) if x.low >= 0 else ANYTHING


@_rule(mir.RsqrtOp)
def _of_rsqrt(op: Any, known: Known) -> Interval:
    x = known[op.x]
    return (
        Interval(0.0 if x.high == math.inf else 1 / math.sqrt(x.high), 1 / math.sqrt(x.low)) if x.low > 0 else ANYTHING
    )


@_rule(mir.SinOp, mir.CosOp)
def _of_wave(op: Any, known: Known) -> Interval:
    return Interval(-1.0, 1.0) if known[op.x].is_known else ANYTHING


@_rule(mir.AtanOp)
def _of_atan(op: Any, known: Known) -> Interval:
    x = known[op.x]
    return Interval(math.atan(x.low), math.atan(x.high))


@_rule(mir.RoundOp)
def _of_round(op: Any, known: Known) -> Interval:
    x = known[op.x]
    return Interval(x.low - 0.5, x.high + 0.5)


@_rule(mir.AddOp)
def _of_add(op: Any, known: Known) -> Interval:
    x, y = known[op.lhs], known[op.rhs]
    return Interval(x.low + y.low, x.high + y.high)


@_rule(mir.SubOp)
def _of_sub(op: Any, known: Known) -> Interval:
    x, y = known[op.lhs], known[op.rhs]
    return Interval(x.low - y.high, x.high - y.low)


@_rule(mir.MulOp)
def _of_mul(op: Any, known: Known) -> Interval:
    product = _product(known[op.lhs], known[op.rhs])
    return Interval(max(product.low, 0.0), product.high) if op.lhs == op.rhs else product


@_rule(mir.DivOp)
def _of_div(op: Any, known: Known) -> Interval:
    x, y = known[op.lhs], known[op.rhs]
    if y.low <= 0 <= y.high:
        return ANYTHING
    inverse = Interval(*sorted((0.0 if math.isinf(end) else 1 / end) for end in (y.low, y.high)))
    return _product(x, inverse)


@_rule(mir.MaxOp)
def _of_max(op: Any, known: Known) -> Interval:
    x, y = known[op.lhs], known[op.rhs]
    return Interval(max(x.low, y.low), max(x.high, y.high))


@_rule(mir.MinOp)
def _of_min(op: Any, known: Known) -> Interval:
    x, y = known[op.lhs], known[op.rhs]
    return Interval(min(x.low, y.low), min(x.high, y.high))


@_rule(mir.CompareOp)
def _of_compare(op: Any, known: Known) -> Interval:
    return Interval(0.0, 1.0)


@_rule(mir.WhereOp)
def _of_where(op: Any, known: Known) -> Interval:
    return _hull([known[op.on_true], known[op.on_false]])


@_rule(mir.ConstantOp)
def _of_constant(op: Any, known: Known) -> Interval:
    return interval_of_array(elements_array(op.value))


# What moves elements ------------------------------------------------------------------------------


@_rule(mir.CastOp)
def _of_cast(op: Any, known: Known) -> Interval:
    x = known[op.x]
    if x.is_known and isinstance(op.result.type.element_type, ir.IntegerType):  # rounds towards 0
        return Interval(math.floor(x.low), math.ceil(x.high))
    return x


@_rule(mir.ReshapeOp, mir.TransposeOp, mir.NarrowOp, mir.ExpandOp)
def _of_move(op: Any, known: Known) -> Interval:
    return known[op.operation.operands[0]]


@_rule(mir.GatherOp)
def _of_gather(op: Any, known: Known) -> Interval:
    return known[op.table]


@_rule(mir.ConcatOp)
def _of_concat(op: Any, known: Known) -> Interval:
    return _hull(known[operand] for operand in op.operation.operands)


@_rule(mir.CacheUpdateOp)
def _of_cache(op: Any, known: Known) -> Interval:
    # Where the cache is what the call before gave, it holds zeros and rows that were within the same bounds.
    old = known[op.cache]
    if op.result in known.grows and not old.is_known:
        old = Interval(0.0, 0.0)
    return _hull([old, known[op.new]])


# Products -----------------------------------------------------------------------------------------


def _contract(x: Interval, weight: Any, length: float, transposed: bool, known: Known) -> Interval:
    """A product along a dimension of the given length: magnitudes of a weight's elements may be summed exactly."""
    if (parts := known.weights.get(weight)) is not None:
        return _within(_times(x.magnitude, parts.rows if transposed else parts.columns))
    return _within(_times(_times(x.magnitude, known[weight].magnitude), length))


@_rule(mir.MatmulOp)
def _of_matmul(op: Any, known: Known) -> Interval:
    return _contract(known[op.lhs], op.rhs, _size(op.lhs, -1), bool(op.transpose_rhs), known)


@_rule(mir.FusedMatmulBiasActOp)
def _of_fused_matmul(op: Any, known: Known) -> Interval:
    product = _contract(known[op.x], op.weight, _size(op.x, -1), bool(op.transpose_rhs), known)
    bias = known[op.bias]
    total = Interval(product.low + bias.low, product.high + bias.high)
    kind = python_value(op.activation)
    return total if kind is None else activate(kind, total)


@_rule(mir.DequantMatmulOp)
def _of_dequant_matmul(op: Any, known: Known) -> Interval:
    return _contract(known[op.x], op.weight, _size(op.x, -1), True, known)


@_rule(mir.FusedSwigluOp)
def _of_swiglu(op: Any, known: Known) -> Interval:
    x = known[op.x]
    return _product(x, activate("silu", x))


# Rows ---------------------------------------------------------------------------------------------


@_rule(mir.SoftmaxOp)
def _of_softmax(op: Any, known: Known) -> Interval:
    return Interval(0.0, 1.0)


@_rule(mir.ReduceOp)
def _of_reduce(op: Any, known: Known) -> Interval:
    x, kind = known[op.x], python_value(op.kind)
    if kind == "mean":
        return x
    if kind == "prod":
        return ANYTHING
    count = math.prod(_size(op.x, axis) for axis in python_value(op.axes))
    if kind == "sum":
        return Interval(_times(min(x.low, 0.0), count), _times(max(x.high, 0.0), count))
    return x if count else ANYTHING  # of nothing, max and min are infinite


@_rule(mir.CumsumOp)
def _of_cumsum(op: Any, known: Known) -> Interval:
    x, count = known[op.x], _size(op.x, python_value(op.axis))
    return Interval(_times(min(x.low, 0.0), count), _times(max(x.high, 0.0), count))


def _norm(x: Any, axis: int, gamma: Any, beta: Any, known: Known) -> Interval:
    """Elements of a row that is divided by its root mean square are at most the root of its length."""
    scaled = _within(_times(math.sqrt(_size(x, axis)), known[gamma].magnitude))
    return scaled if beta is None else Interval(scaled.low + known[beta].low, scaled.high + known[beta].high)


@_rule(mir.RmsNormOp, mir.LayerNormOp)
def _of_norm(op: Any, known: Known) -> Interval:
    return _norm(op.x, python_value(op.axis), op.gamma, op.beta, known)


@_rule(mir.FusedResidualRmsNormOp, mir.FusedResidualLayerNormOp)
def _of_residual_norm(op: Any, known: Known) -> Interval:
    return _norm(op.x, -1, op.gamma, op.beta, known)


@_rule(mir.AttentionOp)
def _of_attention(op: Any, known: Known) -> Interval:
    return _hull([known[op.v], Interval(0.0, 0.0)])  # weights that sum to 1, or no key at all


@_rule(mir.RopeOp)
def _of_rope(op: Any, known: Known) -> Interval:
    x, tables = known[op.x].magnitude, known[op.cos].magnitude + known[op.sin].magnitude
    return _within(max(x, _times(x, tables)))


# Arguments ----------------------------------------------------------------------------------------


def interval_of_array(array: np.ndarray) -> Interval:
    """The interval of an array's elements; anything where one of them is no number."""
    if not array.size:
        return Interval(0.0, 0.0)
    wide = (
        array
        if array.dtype.kind in "biu"
        else np.asarray(array, np.float64 if array.dtype == np.float64 else np.float32)
    )
    low, high = float(wide.min()), float(wide.max())
    return Interval(low, high) if math.isfinite(low) and math.isfinite(high) else ANYTHING


def weight_of(array: np.ndarray) -> Weight | None:
    """Sums of magnitudes along both dimensions of a matrix; None where it is none, or has other than numbers."""
    if array.ndim != 2 or array.dtype.kind in "biu":
        return None
    sums = np.abs(np.asarray(array, np.float32))
    columns, rows = (float(sums.sum(axis, dtype=np.float64).max(initial=0.0)) for axis in (0, 1))
    return Weight(columns, rows) if math.isfinite(columns + rows) else None


def analyse(operations: Iterable[Any], known: Known) -> Iterator[tuple[Any, list[Interval]]]:
    """Follows the operations of a function in order; gives each, and the intervals of its results."""
    for op in operations:
        operation = op.operation
        found = intervals_of(operation, known)
        known.intervals.update(zip(operation.results, found, strict=True))
        yield operation, found


__all__ = [
    "ANYTHING",
    "Interval",
    "Known",
    "Weight",
    "activate",
    "analyse",
    "interval_of_array",
    "intervals_of",
    "weight_of",
]
