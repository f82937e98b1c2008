# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Between which numbers values lie: intervals, from those of arguments through every operation of a function.

An interval holds for all elements of a value, and for every input within the bounds that were given: it is proved, not
measured. So it may be far too wide, as nothing is known of how elements go together, and it says nothing of rounding,
nor of reductions of nothing, which may be infinite. An operation without a rule here gives anything.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import elements_array, python_value
from rlx_mlir.dialects import mir
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.mir.control import REGIONS, captured, region_arguments, run_regions, yielded
from rlx_mlir.mir.functions import FUNCTIONS, Elementwise
from rlx_mlir.mir.intervals import ANYTHING, Interval, product, times
from rlx_mlir.mir.quantize import LARGEST, LEAST_SCALE
from rlx_mlir.mir.scalars import integer_range


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

    intervals: dict[ir.Value, Interval]
    weights: dict[ir.Value, Weight]
    grows: frozenset[ir.Value] = frozenset()

    def __getitem__(self, value: ir.Value) -> Interval:
        return self.intervals.get(value, ANYTHING)


Rule = Callable[[ir.AnyOp, Known], "Interval | Sequence[Interval]"]
_RULES: dict[str, Rule] = {}


def _rule(*ops: type[ir.OpView]) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for op in ops:
            _RULES[op.OPERATION_NAME] = function
        return function

    return register


def intervals_of(op: ir.AnyOp, known: Known) -> list[Interval]:
    """The intervals of an operation's results."""
    operation = op.operation
    rule = _RULES.get(operation.name)
    found: Interval | Sequence[Interval] = ANYTHING if rule is None else rule(operation.opview, known)
    listed = [found] * len(operation.results) if isinstance(found, Interval) else list(found)
    # Scalars that code on buffers has are their own element type; the bytes of a packed weight are no numbers.
    kinds = [
        result.type if getattr(result.type, "encoding", None) else getattr(result.type, "element_type", result.type)
        for result in operation.results
    ]
    return [_fitted(own, kind) for own, kind in zip(listed, kinds, strict=True)]


def _fitted(interval: Interval, element: ir.Type) -> Interval:
    """The interval, its ends numbers of the element type; all of these where integers wrap around.

    Anything for ends that are no numbers.
    """
    if math.isnan(interval.low) or math.isnan(interval.high):
        return ANYTHING
    if isinstance(element, ir.ComplexType):  # a product's parts are more than those of its factors
        return ANYTHING
    if str(element) in _NARROW:  # what is stored is rounded, outward at most
        dtype = numpy_dtype(element)
        return Interval(-_rounded_up(-interval.low, dtype), _rounded_up(interval.high, dtype))
    if not isinstance(element, ir.IntegerType):
        return interval
    least, most = map(float, integer_range(element))
    return interval if least <= interval.low and interval.high <= most else Interval(least, most)


#: Element types of which ends of intervals mostly aren't numbers.
_NARROW = ("f16", "bf16")


def _rounded_up(end: float, dtype: np.dtype) -> float:
    """The least number of a type that isn't below another one; that itself where it is beyond all of them."""
    with np.errstate(over="ignore"):
        near = np.array(end).astype(dtype)
    if not np.isfinite(near):
        return end
    if float(near) < end:
        near = np.nextafter(near, np.array(np.inf).astype(dtype))
    return float(near) if np.isfinite(near) else end


def _hull(listed: Iterable[Interval]) -> Interval:
    every = list(listed)
    return Interval(min(own.low for own in every), max(own.high for own in every))


def _within(magnitude: float) -> Interval:
    return Interval(-magnitude, magnitude)


def _size(value: ir.Value, axis: int) -> float:
    """The length of a dimension; infinite where it is dynamic."""
    type = value.type
    axis %= type.rank
    return math.inf if type.is_dynamic_dim(axis) else float(type.get_dim_size(axis))


# Element by element -------------------------------------------------------------------------------


def _function(record: Elementwise) -> Rule:
    return lambda op, known: record.interval(*(known[operand] for operand in op.operation.operands))


for _record in FUNCTIONS.values():
    _rule(_record.op)(_function(_record))


@_rule(mir.MulOp)
def _of_mul(op: ir.AnyOp, known: Known) -> Interval:
    found = product(known[op.lhs], known[op.rhs])
    return Interval(max(found.low, 0.0), found.high) if op.lhs == op.rhs else found


@_rule(mir.CompareOp)
def _of_compare(op: ir.AnyOp, known: Known) -> Interval:
    return Interval(0.0, 1.0)


@_rule(mir.WhereOp)
def _of_where(op: ir.AnyOp, known: Known) -> Interval:
    return _hull([known[op.on_true], known[op.on_false]])


@_rule(mir.ConstantOp)
def _of_constant(op: ir.AnyOp, known: Known) -> Interval:
    return interval_of_array(elements_array(op.value))


@_rule(mir.IotaOp)
def _of_iota(op: ir.AnyOp, known: Known) -> Interval:
    last = max(_size(op.result, python_value(op.axis)) - 1, 0.0)
    kind = op.result.type.element_type
    return Interval(0.0, min(last, float(integer_range(kind)[1]) if isinstance(kind, ir.IntegerType) else 2.0**63 - 1))


# What moves elements ------------------------------------------------------------------------------


@_rule(mir.CastOp)
def _of_cast(op: ir.AnyOp, known: Known) -> Interval:
    x = known[op.x]
    if x.is_known and isinstance(op.result.type.element_type, ir.IntegerType):  # rounds towards 0
        return Interval(math.floor(x.low), math.ceil(x.high))
    return x


@_rule(
    *(mir.BarrierOp, mir.ResizeNearest2xOp, mir.ReshapeOp, mir.TransposeOp, mir.NarrowOp, mir.SliceOp),
    *(mir.DynamicSliceOp, mir.ExpandOp),
)
def _of_move(op: ir.AnyOp, known: Known) -> Interval:
    return known[op.operation.operands[0]]


@_rule(mir.GatherOp)
def _of_gather(op: ir.AnyOp, known: Known) -> Interval:
    return known[op.table]


@_rule(mir.DynamicUpdateSliceOp)
def _of_update(op: ir.AnyOp, known: Known) -> Interval:
    return _hull([known[op.x], known[op.update]])


@_rule(mir.ConcatOp)
def _of_concat(op: ir.AnyOp, known: Known) -> Interval:
    return _hull(known[operand] for operand in op.operation.operands)


@_rule(mir.CacheUpdateOp)
def _of_cache(op: ir.AnyOp, known: Known) -> Interval:
    if op.scheme is not None:
        return ANYTHING  # any byte
    # Where the cache is what the call before gave, it holds zeros and rows that were within the same bounds.
    old = known[op.cache]
    if op.result in known.grows and not old.is_known:
        old = Interval(0.0, 0.0)
    return _hull([old, known[op.new]])


# Products -----------------------------------------------------------------------------------------


def _contract(x: Interval, weight: ir.Value, length: float, transposed: bool, known: Known) -> Interval:
    """A product along a dimension of the given length: magnitudes of a weight's elements may be summed exactly."""
    if (parts := known.weights.get(weight)) is not None:
        return _within(times(x.magnitude, parts.rows if transposed else parts.columns))
    return _within(times(times(x.magnitude, known[weight].magnitude), length))


@_rule(mir.MatmulOp)
def _of_matmul(op: ir.AnyOp, known: Known) -> Interval:
    return _contract(known[op.lhs], op.rhs, _size(op.lhs, -1), bool(op.transpose_rhs), known)


@_rule(mir.FusedMatmulBiasActOp)
def _of_fused_matmul(op: ir.AnyOp, known: Known) -> Interval:
    own = _contract(known[op.x], op.weight, _size(op.x, -1), bool(op.transpose_rhs), known)
    bias = known[op.bias]
    total = Interval(own.low + bias.low, own.high + bias.high)
    kind = python_value(op.activation)
    return total if kind is None else FUNCTIONS[kind].interval(total)


@_rule(mir.DequantMatmulOp)
def _of_dequant_matmul(op: ir.AnyOp, known: Known) -> Interval:
    return _contract(known[op.x], op.weight, _size(op.x, -1), True, known)


def _sums(x: Interval, y: Interval, length: float) -> Interval:
    """Sums of so many products."""
    return _within(times(times(x.magnitude, y.magnitude), length))


@_rule(mir.DotGeneralOp)
def _of_dot_general(op: ir.AnyOp, known: Known) -> Interval:
    length = math.prod(_size(op.lhs, axis) for axis in python_value(op.lhs_contracting))
    return _sums(known[op.lhs], known[op.rhs], length)


@_rule(mir.GroupedMatmulOp)
def _of_grouped_matmul(op: ir.AnyOp, known: Known) -> Interval:
    return _sums(known[op.x], known[op.weight], _size(op.x, -1))


@_rule(mir.ScatterAddOp)
def _of_scatter_add(op: ir.AnyOp, known: Known) -> Interval:
    # All entries may have one index, and where there is none it is 0.
    x, count = known[op.updates], math.prod(_size(op.indices, axis) for axis in range(op.indices.type.rank))
    return Interval(times(min(x.low, 0.0), count), times(max(x.high, 0.0), count))


@_rule(mir.SoftmaxCrossEntropyBackwardOp)
def _of_cross_entropy_backward(op: ir.AnyOp, known: Known) -> Interval:
    return _within(known[op.d_loss].magnitude)


@_rule(mir.FusedSwigluOp)
def _of_swiglu(op: ir.AnyOp, known: Known) -> Interval:
    x = known[op.x]
    return product(x, FUNCTIONS["silu"].interval(x))


# Rounding to few bits -----------------------------------------------------------------------------


@_rule(mir.DequantizeOp)
def _of_dequantize(op: ir.AnyOp, known: Known) -> Interval:
    q = known[op.q] if known[op.q].is_known else Interval(-128.0, 127.0)
    channels = zip(python_value(op.scales), python_value(op.zero_points), strict=True)
    return _hull(Interval((q.low - zero) * scale, (q.high - zero) * scale) for scale, zero in channels)


@_rule(mir.FakeQuantizeOp)
def _of_fake_quantize(op: ir.AnyOp, known: Known) -> list[Interval]:
    x, largest = known[op.x].magnitude, LARGEST[python_value(op.bits)]
    mode = python_value(op.scale_mode)
    scale = 0.0 if mode == "fixed" else x / largest
    if mode != "per_batch":
        scale = max(scale, known[op.state].magnitude)
    scale = max(scale, LEAST_SCALE)
    return [_within(times(scale, largest)), Interval(LEAST_SCALE, scale) if mode != "ema" else _within(scale)]


@_rule(mir.FakeQuantizeLsqOp)
def _of_fake_quantize_lsq(op: ir.AnyOp, known: Known) -> Interval:
    return _within(times(max(known[op.scale].magnitude, LEAST_SCALE), LARGEST[python_value(op.bits)]))


# Rows ---------------------------------------------------------------------------------------------


@_rule(mir.SoftmaxOp)
def _of_softmax(op: ir.AnyOp, known: Known) -> Interval:
    return Interval(0.0, 1.0)


@_rule(mir.ReduceOp)
def _of_reduce(op: ir.AnyOp, known: Known) -> Interval:
    x, kind = known[op.x], python_value(op.kind)
    if kind in ("mean", "any", "all"):
        return x if kind == "mean" else Interval(0.0, 1.0)
    if kind == "prod":
        return ANYTHING
    count = math.prod(_size(op.x, axis) for axis in python_value(op.axes))
    if kind == "sum":
        return Interval(times(min(x.low, 0.0), count), times(max(x.high, 0.0), count))
    return x if count else ANYTHING  # of nothing, max and min are infinite


@_rule(mir.CumsumOp)
def _of_cumsum(op: ir.AnyOp, known: Known) -> Interval:
    x, count = known[op.x], _size(op.x, python_value(op.axis))
    return Interval(times(min(x.low, 0.0), count), times(max(x.high, 0.0), count))


def _norm(x: ir.Value, axis: int, gamma: ir.Value, beta: ir.Value | None, known: Known) -> Interval:
    """Elements of a row that is divided by its root mean square are at most the root of its length."""
    scaled = _within(times(math.sqrt(_size(x, axis)), known[gamma].magnitude))
    return scaled if beta is None else Interval(scaled.low + known[beta].low, scaled.high + known[beta].high)


@_rule(mir.RmsNormOp, mir.LayerNormOp)
def _of_norm(op: ir.AnyOp, known: Known) -> Interval:
    return _norm(op.x, python_value(op.axis), op.gamma, op.beta, known)


@_rule(mir.FusedResidualRmsNormOp, mir.FusedResidualLayerNormOp)
def _of_residual_norm(op: ir.AnyOp, known: Known) -> Interval:
    return _norm(op.x, -1, op.gamma, op.beta, known)


@_rule(mir.AttentionOp)
def _of_attention(op: ir.AnyOp, known: Known) -> Interval:
    values = known[op.v] if op.v_scheme is None else _of_blocks(op.v, known)
    return _hull([values, Interval(0.0, 0.0)])  # weights that sum to 1, or no key at all


def _of_blocks(kept: ir.Value, known: Known) -> Interval:
    """What blocks stand for, where their cache is what the call before gave: zeros, and rows that were rounded."""
    if kept not in known.grows:
        return ANYTHING
    # No code is larger than that of the largest magnitude, which differs by the rounding of its scale.
    magnitude = known[kept.owner.opview.new].magnitude
    return _within(magnitude * (1 + 2.0**-10) + 127 * 2.0**-25)


@_rule(mir.RopeOp)
def _of_rope(op: ir.AnyOp, known: Known) -> Interval:
    x, tables = known[op.x].magnitude, known[op.cos].magnitude + known[op.sin].magnitude
    return _within(max(x, times(x, tables)))


@_rule(mir.AxialRope2dOp)
def _of_axial_rope(op: ir.AnyOp, known: Known) -> Interval:
    return _within(times(known[op.x].magnitude, 2.0))  # x cos + y sin


# Images -------------------------------------------------------------------------------------------


@_rule(mir.PoolOp)
def _of_pool(op: ir.AnyOp, known: Known) -> Interval:
    x, kind = known[op.x], python_value(op.kind)
    kernel = python_value(op.kernel_size)
    if kind == "mean":
        return _hull([x, Interval(0.0, 0.0)])  # the padding counts
    if kind == "sum":
        count = float(math.prod(kernel))
        return Interval(times(min(x.low, 0.0), count), times(max(x.high, 0.0), count))
    # Each window has a pixel where the padding is less than a window.
    return x if kind != "prod" and all(map(int.__lt__, python_value(op.padding), kernel)) else ANYTHING


@_rule(mir.GroupNormOp)
def _of_group_norm(op: ir.AnyOp, known: Known) -> Interval:
    count = math.prod(_size(op.x, axis) for axis in (1, 2, 3)) / python_value(op.num_groups)
    scaled = _within(times(math.sqrt(count), known[op.gamma].magnitude))
    return scaled if op.beta is None else Interval(scaled.low + known[op.beta].low, scaled.high + known[op.beta].high)


# Arguments ----------------------------------------------------------------------------------------


def interval_of_array(array: np.ndarray) -> Interval:
    """The interval of an array's elements; anything where one of them is no number."""
    if not array.size:
        return Interval(0.0, 0.0)
    if array.dtype.kind == "c":
        return ANYTHING
    wide = (
        array
        if array.dtype.kind in "biu"
        else np.asarray(array, np.float64 if array.dtype == np.float64 else np.float32)
    )
    low, high = float(wide.min()), float(wide.max())
    return Interval(low, high) if math.isfinite(low) and math.isfinite(high) else ANYTHING


def weight_of(array: np.ndarray) -> Weight | None:
    """Sums of magnitudes along both dimensions of a matrix; None where it is none, or has other than numbers."""
    if array.ndim != 2 or array.dtype.kind in "biuc":
        return None
    sums = np.abs(np.asarray(array, np.float32))
    columns, rows = (float(sums.sum(axis, dtype=np.float64).max(initial=0.0)) for axis in (0, 1))
    return Weight(columns, rows) if math.isfinite(columns + rows) else None


def analyse(operations: Iterable[ir.AnyOp], known: Known) -> Iterator[tuple[ir.AnyOp, list[Interval]]]:
    """Follows the operations of a block in order; gives each, and the intervals of its results.

    What is in regions comes before the operation that has them, with intervals that hold in every step.
    """
    for op in operations:
        operation = op.operation
        if operation.name in REGIONS:
            found = yield from _analyse_regions(operation, known)
        else:
            found = intervals_of(operation, known)
        known.intervals.update(zip(operation.results, found, strict=True))
        yield operation, found


#: Steps that intervals of what a loop carries are followed for; ends that still grow then are infinite.
_STEPS = 4


def _analyse_regions(
    op: ir.Operation, known: Known
) -> Generator[tuple[ir.AnyOp, list[Interval]], None, list[Interval]]:
    """The same of what is in regions; returns the intervals of the results."""
    view = op.opview
    given = region_arguments(op, list(op.operands), lambda value: value)
    for region in run_regions(op):
        for argument, operand in zip(region.blocks[0].arguments, given, strict=True):
            known.intervals[argument] = known[operand]
            if operand in known.weights and captured(argument) is not None:
                known.weights[argument] = known.weights[operand]
    if isinstance(view, mir.CustomFnOp):
        yield from analyse(_without_end(view.function), known)
        return [known[value] for value in yielded(view.function)]
    if isinstance(view, mir.IfOp):
        for region in op.regions:
            yield from analyse(_without_end(region), known)
        branches = zip(yielded(view.then_region), yielded(view.else_region), strict=True)
        return [_hull([known[first], known[second]]) for first, second in branches]
    carried = [known[value] for value in view.inits]
    for step in itertools.count():  # ends: each one from _STEPS on makes another end infinite
        for region in op.regions:
            known.intervals.update(zip(region.blocks[0].arguments, carried, strict=False))
        for _ in analyse(_without_end(view.body), known):
            pass
        following = [_hull([own, known[value]]) for own, value in zip(carried, yielded(view.body), strict=False)]
        if following == carried:
            break
        carried = [_widened(*pair) for pair in zip(carried, following, strict=True)] if step >= _STEPS else following
    for region in op.regions:
        known.intervals.update(zip(region.blocks[0].arguments, carried, strict=False))
        yield from analyse(_without_end(region), known)
    return [*carried, *(known[value] for value in yielded(view.body)[len(carried) :])]


def _widened(before: Interval, after: Interval) -> Interval:
    """An interval whose ends go on to grow as they did."""
    low = after.low if after.low >= before.low else -math.inf
    return Interval(low, after.high if after.high <= before.high else math.inf)


def _without_end(region: ir.Region) -> list[ir.AnyOp]:
    return list(region.blocks[0].operations)[:-1]


__all__ = [
    "ANYTHING",
    "Interval",
    "Known",
    "Weight",
    "analyse",
    "interval_of_array",
    "intervals_of",
    "weight_of",
]
