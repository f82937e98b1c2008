# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element-wise operations: functions of one and two elements, one record each; constants, positions, comparison,
selection, casts.

A function is added here, by a record, and in `dialects/mir/elementwise.td`; everything else follows from the record.
Those of integers and conditions alone have theirs in `mir/integers.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from mlir.dialects import arith

from rlx_mlir import ir
from rlx_mlir.attributes import elements_array, python_value
from rlx_mlir.dialects import mir
from rlx_mlir.formats.affine import saturate
from rlx_mlir.mir import scalars
from rlx_mlir.mir.algebra import (
    Primitive,
    Symbol,
    fma,
    formula,
    maximum,
    minimum,
    multiply_add,
    polynomial,
    select,
)
from rlx_mlir.mir.cost import Cost, Sizes, cost, per_element
from rlx_mlir.mir.dims import Size, broadcast
from rlx_mlir.mir.formulas import (
    ABSOLUTE,
    ATAN,
    COMPLEX_EXP,
    COMPLEX_LOG,
    COMPLEX_SQRT,
    COS,
    EXP,
    LOG,
    ROUND,
    RSQRT,
    SIN,
    SQRT,
    TAN,
    TANH,
)
from rlx_mlir.mir.functions import FUNCTIONS, Elementwise, Rounding, register
from rlx_mlir.mir.integers import DIVISION, LOGIC, integer_power, integer_power_formula, unsigned_power_formula
from rlx_mlir.mir.intervals import (
    ANYTHING,
    Interval,
    anything,
    decreasing,
    increasing,
    product,
    quotient,
    within,
)
from rlx_mlir.mir.linalg import SizeLike, as_index, elementwise, empty, generic, size_of
from rlx_mlir.mir.numerics import F32, F64, is_float, joined_parts, narrow, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# Functions of one element
# ----------------------------------------------------------------------------------------------------------------------


def _erfc(x: np.ndarray) -> np.ndarray:
    """The complementary error function, by way of f64."""
    values = np.frompyfunc(math.erfc, 1, 1)(x.astype(F64))
    return np.asarray(values).astype(x.dtype)


ERFC = Primitive("erfc", _erfc)


def _sign(x: Symbol) -> Symbol:
    """-1, 0 or 1."""
    return select(x < 0, -1.0, select(0 - x < 0, 1.0, x * 0.0))


#: Of f32: Phi(-t) = e^(-t^2 / 2) s (p_0 + p_1 s + ...) with s = 1 / (1 + NORMAL_TAIL t), for t >= 0 and Phi the
#: distribution of normal numbers; fitted for the least relative error, 3e-8, where Phi(-t) is a number of f32.
NORMAL_TAIL = 0.26
NORMAL_TAIL_FACTORS = (
    0.10375663496872642,
    0.10305752000884857,
    0.10274220544804159,
    0.0521460153628589,
    0.15833373141718143,
    -0.14717372098210152,
    0.24819423184596287,
    -0.15123303077815362,
    0.03017639833838438,
)


def _gelu(x: Symbol) -> Symbol:
    """x Phi(x). Its error is relative: 1 + erf(x / sqrt(2)) would have no digits for x far below 0."""
    t = ABSOLUTE(x)
    s = 1 / (t * NORMAL_TAIL + 1)
    tail = polynomial(s, NORMAL_TAIL_FACTORS)
    power = t * t * -0.5
    tail = tail * s * EXP(power)
    return x * select(x < 0, tail, 1 - tail)


def _gelu_reference(x: np.ndarray) -> np.ndarray:
    """0.5 x erfc(-x / sqrt(2)), of f64."""
    wide = x.astype(F64)
    return np.asarray(0.5 * wide * _erfc(wide * -math.sqrt(0.5))).astype(x.dtype)


#: Factor of the density of normal numbers, e^(-x^2 / 2) / sqrt(2 pi).
_DENSITY = 1 / math.sqrt(2 * math.pi)


def _gelu_slope(x: Symbol) -> Symbol:
    """Phi(x) + x phi(x), with phi the density of normal numbers: one power serves both."""
    t = minimum(ABSOLUTE(x), 20.0)  # from there on the power is 0
    s = 1 / (t * NORMAL_TAIL + 1)
    below = (polynomial(s, NORMAL_TAIL_FACTORS) * s - t * _DENSITY) * EXP(t * t * -0.5)
    return select(x < 0, below, 1 - below)


def _wide_gelu_slope(x: Symbol) -> Symbol:
    """The same in f64."""
    t = maximum(minimum(x, 40.0), -40.0)
    return ERFC(t * -math.sqrt(0.5)) * 0.5 + t * EXP(t * t * -0.5) * _DENSITY


def _gelu_slope_reference(x: np.ndarray) -> np.ndarray:
    """By f64."""
    return formula(_wide_gelu_slope).evaluate(x.astype(F64)).astype(x.dtype)


_DERIVATIVE = Primitive("gelu_slope", _gelu_slope_reference)


GELU = register(
    Elementwise(
        mir.GeluOp,
        "x / 2 * (1 + erf(x / sqrt(2))).",
        formula(_gelu),
        lambda x: Interval(max(-0.17, min(x.low, 0.0)), max(x.high, 0.0)),  # the least value, a little below
        precise=formula(lambda x: x * 0.5 * ERFC(x * -math.sqrt(0.5))),
        reference=_gelu_reference,
        derivatives=(formula(_DERIVATIVE),),
        activation=True,
    )
)

register(
    Elementwise(
        mir.GeluSlopeOp,
        "The derivative of gelu.",
        formula(_gelu_slope),
        lambda x: Interval(-0.13, 1.13),  # at -sqrt(2) and sqrt(2), a little beyond
        precise=formula(_wide_gelu_slope),
        reference=_gelu_slope_reference,
        derivatives=(formula(lambda x: (2 - x * x) * EXP(x * x * -0.5) * _DENSITY),),
    )
)

#: gelu_approx is x sigmoid(GELU_SLOPE (x + GELU_CUBE x^3)).
GELU_SLOPE, GELU_CUBE = 2 * math.sqrt(2 / math.pi), 0.044715


def _gelu_approx(x: Symbol) -> Symbol:
    """(1 + tanh u) / 2 = 1 / (1 + e^-2u), which keeps its digits where tanh u is near -1."""
    inner = multiply_add(x * x * x, GELU_CUBE, x)
    return x / (EXP(-(inner * GELU_SLOPE)) + 1)


def _gelu_approx_reference(x: np.ndarray) -> np.ndarray:
    """x / (1 + exp(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), of f64."""
    wide = x.astype(F64)
    twice = GELU_SLOPE * (wide + GELU_CUBE * wide * wide * wide)
    return np.asarray(wide / (1 + np.exp(-twice))).astype(x.dtype)


def _gelu_approx_slope(x: Symbol) -> Symbol:
    """s + x s (1 - s) u' with s = sigmoid(u)."""
    square = x * x
    s = 1 / (EXP(-(x * (square * GELU_CUBE + 1) * GELU_SLOPE)) + 1)
    return s + x * s * (1 - s) * ((square * (3 * GELU_CUBE) + 1) * GELU_SLOPE)


GELU_APPROX = register(
    Elementwise(
        mir.GeluApproxOp,
        "gelu with erf approximated by tanh.",
        formula(_gelu_approx),
        lambda x: Interval(max(-0.1701, min(x.low, 0.0)), max(x.high, 0.0)),
        reference=_gelu_approx_reference,
        derivatives=(formula(_gelu_approx_slope),),
        activation=True,
    )
)


def _silu_slope(x: Symbol) -> Symbol:
    s = 1 / (EXP(-x) + 1)
    return s + x * s * (1 - s)


SILU = register(
    Elementwise(
        mir.SiluOp,
        "x * sigmoid(x).",
        formula(lambda x: x / (EXP(-x) + 1)),
        lambda x: Interval(max(-0.2785, min(x.low, 0.0)), max(x.high, 0.0)),
        derivatives=(formula(_silu_slope),),
        activation=True,
    )
)

RELU = register(
    Elementwise(
        mir.ReluOp,
        "max(x, 0); NaN stays NaN.",
        formula(lambda x: maximum(x, 0.0)),
        lambda x: Interval(max(x.low, 0.0), max(x.high, 0.0)),
        Rounding.EXACT,
        derivatives=(formula(lambda x: select(0 - x < 0, 1.0, maximum(minimum(x, 0.0), 0.0))),),  # NaN stays NaN
        activation=True,
    )
)


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf


def _sigmoid_slope(x: Symbol) -> Symbol:
    s = 1 / (EXP(-x) + 1)
    return s * (1 - s)


SIGMOID = register(
    Elementwise(
        mir.SigmoidOp,
        "1 / (1 + exp(-x)).",
        formula(lambda x: 1 / (EXP(-x) + 1)),
        increasing(lambda x: 1 / (1 + _exp(-x)) if x > -700 else 0.0),
        derivatives=(formula(_sigmoid_slope),),
        activation=True,
    )
)


def _tanh_slope(x: Symbol) -> Symbol:
    y = TANH(x)
    return 1 - y * y


register(
    Elementwise(
        mir.TanhOp,
        "Hyperbolic tangent.",
        formula(TANH),
        increasing(math.tanh),
        derivatives=(formula(_tanh_slope),),
        activation=True,
    )
)

register(
    Elementwise(
        mir.ExpOp,
        "Exponential function.",
        formula(EXP),
        increasing(_exp),
        derivatives=(formula(EXP),),
        complexes=True,
        of_complex=COMPLEX_EXP,
    )
)

register(
    Elementwise(
        mir.LogOp,
        "Natural logarithm.",
        formula(LOG),
        anything,
        derivatives=(formula(lambda x: 1 / x),),
        complexes=True,
        of_complex=COMPLEX_LOG,
        domain="positive",
    )
)

#: Of f32, for t >= 0: erfc(t) = e^(-t^2) / (1 + 2 t) (p_0 + p_1 q + ...) with q = (t - 2) / (t + 2); fitted for the
#: least relative error, 2e-8, where erfc(t) is a number of f32, each factor rounded to f32 before the next.
ERFC_FACTORS = (
    1.2769783735275269,
    -0.09276386350393295,
    -0.1660308986902237,
    0.1640528440475464,
    -0.05420825257897377,
    -0.00804449524730444,
    0.008646305650472641,
    0.001276761875487864,
    -0.0012597366003319621,
    -0.0003699056978803128,
    2.5550250938977115e-05,
)
#: Where t^2 is beyond 36, e^(ERFC_SHIFT - t^2) is a normal number. The difference is exact, as the shift has few bits,
#: and e^-ERFC_SHIFT is nearly a number of f32.
ERFC_SHIFT = 24.654296875


def _complementary(x: Symbol) -> Symbol:
    """erfc(x) with a relative error: 1 - erf(x) would have no digits for large x."""
    t = minimum(ABSOLUTE(x), 11.0)  # from there on it is less than any number of f32
    near = polynomial((t - 2.0) / (t + 2.0), ERFC_FACTORS)
    square = t * t
    lost = fma(t, t, -square)  # what rounding took from the square is a relative error of the power
    is_near = square < 36.0
    power = EXP(select(is_near, -square, ERFC_SHIFT - square))
    power = power - power * lost
    tail = near * power / (t * 2.0 + 1.0)
    tail = select(is_near, tail, tail * math.exp(-ERFC_SHIFT))
    return select(x < 0, 2.0 - tail, tail)


register(
    Elementwise(
        mir.ErfcOp,
        "Complementary error function, 1 - erf(x), with all its digits for large x.",
        formula(_complementary),
        decreasing(math.erfc),
        precise=formula(ERFC),
        reference=_erfc,
        derivatives=(formula(lambda x: EXP(-(x * x)) * (-2 / math.sqrt(math.pi))),),
    )
)

register(
    Elementwise(
        mir.SqrtOp,
        "Square root.",
        formula(SQRT),
        lambda x: Interval(math.sqrt(x.low), math.sqrt(x.high)) if x.low >= 0 else ANYTHING,
        Rounding.ROUNDED,
        derivatives=(formula(lambda x: select(0 - x < 0, 0.5 / SQRT(x), 0.0)),),  # 0 where there is no slope
        complexes=True,
        of_complex=COMPLEX_SQRT,
        domain="positive",
    )
)


def _rsqrt_interval(x: Interval) -> Interval:
    if x.low <= 0:
        return ANYTHING
    return Interval(0.0 if x.high == math.inf else 1 / math.sqrt(x.high), 1 / math.sqrt(x.low))


register(
    Elementwise(
        mir.RsqrtOp,
        "1 / sqrt(x).",
        formula(RSQRT),
        _rsqrt_interval,
        derivatives=(formula(lambda x: select(0 - x < 0, RSQRT(x) * -0.5 / x, 0.0)),),
        domain="positive",
    )
)

register(
    Elementwise(
        mir.NegOp,
        "-x.",
        formula(lambda x: -x),
        decreasing(lambda x: -x),
        Rounding.EXACT,
        derivatives=(formula(lambda x: -1.0),),
        complexes=True,
    )
)

register(
    Elementwise(
        mir.AbsOp,
        "|x|.",
        formula(ABSOLUTE),
        lambda x: Interval(0.0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high)), x.magnitude),
        Rounding.EXACT,
        derivatives=(formula(_sign),),
    )
)

register(
    Elementwise(
        mir.SinOp,
        "Sine of radians.",
        formula(SIN),
        within(-1.0, 1.0),
        derivatives=(formula(COS),),
        periodic=True,
    )
)

register(
    Elementwise(
        mir.CosOp,
        "Cosine of radians.",
        formula(COS),
        within(-1.0, 1.0),
        derivatives=(formula(lambda x: -SIN(x)),),
        periodic=True,
    )
)


def _tan_slope(x: Symbol) -> Symbol:
    y = TAN(x)
    return y * y + 1


register(
    Elementwise(
        mir.TanOp,
        "Tangent of radians.",
        formula(TAN),
        anything,
        derivatives=(formula(_tan_slope),),
        periodic=True,
    )
)

register(
    Elementwise(
        mir.AtanOp,
        "Inverse tangent, in radians.",
        formula(ATAN),
        increasing(math.atan),
        derivatives=(formula(lambda x: 1 / (x * x + 1)),),
    )
)

register(
    Elementwise(
        mir.RoundOp,
        "The nearest integer, ties to even.",
        formula(ROUND),
        lambda x: Interval(x.low - 0.5, x.high + 0.5),
        Rounding.STEP,
        derivatives=(formula(lambda x: 0.0),),
    )
)

# ----------------------------------------------------------------------------------------------------------------------
# Functions of two elements
# ----------------------------------------------------------------------------------------------------------------------


def power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x^y as C's pow, elements of -inf and -0 included: numpy takes one exponent of 0.5 for a square root."""
    if x.dtype.kind in "iu":
        return integer_power(x, y)
    x, y = np.broadcast_arrays(x, y)
    pairs = (np.append(a, a.dtype.type(1)) for a in (x, y))  # with one more exponent there are several, one a base
    return np.asarray(np.power(*pairs)[:-1].reshape(x.shape))


def divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x / y; of complex numbers by the parts of y, the larger of which divides first."""
    if x.dtype.kind != "c":
        return np.asarray(np.divide(x, y))
    is_real = np.abs(y.real) >= np.abs(y.imag)
    large, small = np.where(is_real, y.real, y.imag), np.where(is_real, y.imag, y.real)
    ratio = small / large
    total = large + small * ratio
    re = np.where(is_real, x.real + x.imag * ratio, x.real * ratio + x.imag)
    im = np.where(is_real, x.imag - x.real * ratio, x.imag * ratio - x.real)
    return joined_parts(re / total, im / total)


POWER = Primitive("powf", power, arity=2)

register(
    Elementwise(
        mir.AddOp,
        "lhs + rhs.",
        formula(lambda x, y: x + y),
        lambda x, y: Interval(x.low + y.low, x.high + y.high),
        Rounding.ROUNDED,
        derivatives=(formula(lambda x, y: 1.0), formula(lambda x, y: 1.0)),
        integers=True,
        complexes=True,
    )
)

register(
    Elementwise(
        mir.SubOp,
        "lhs - rhs.",
        formula(lambda x, y: x - y),
        lambda x, y: Interval(x.low - y.high, x.high - y.low),
        Rounding.ROUNDED,
        derivatives=(formula(lambda x, y: 1.0), formula(lambda x, y: -1.0)),
        integers=True,
        complexes=True,
    )
)

register(
    Elementwise(
        mir.MulOp,
        "lhs * rhs, element by element.",
        formula(lambda x, y: x * y),
        product,
        Rounding.ROUNDED,
        derivatives=(formula(lambda x, y: y), formula(lambda x, y: x)),
        integers=True,
        complexes=True,
    )
)

register(
    Elementwise(
        mir.DivOp,
        "lhs / rhs.",
        formula(lambda x, y: x / y),
        quotient,
        Rounding.ROUNDED,
        reference=divide,
        derivatives=(formula(lambda x, y: 1 / y), formula(lambda x, y: -(x / (y * y)))),
        complexes=True,
        domain="positive",
    )
)

register(
    Elementwise(
        mir.MaxOp,
        "The larger of two elements; NaN where one is NaN. (`max` reduces dimensions.)",
        formula(maximum),
        lambda x, y: Interval(max(x.low, y.low), max(x.high, y.high)),
        Rounding.EXACT,
        derivatives=(formula(lambda x, y: select(x < y, 0.0, 1.0)), formula(lambda x, y: select(x < y, 1.0, 0.0))),
        integers=True,
        builder="maximum",
    )
)

register(
    Elementwise(
        mir.MinOp,
        "The smaller of two elements; NaN where one is NaN. (`min` reduces dimensions.)",
        formula(minimum),
        lambda x, y: Interval(min(x.low, y.low), min(x.high, y.high)),
        Rounding.EXACT,
        derivatives=(formula(lambda x, y: select(y < x, 0.0, 1.0)), formula(lambda x, y: select(y < x, 1.0, 0.0))),
        integers=True,
        builder="minimum",
    )
)

register(
    Elementwise(
        mir.PowOp,
        "lhs to the power of rhs; of integers, 1 / lhs^-rhs drops its fraction.",
        formula(POWER),
        anything,
        reference=power,
        derivatives=(
            formula(lambda x, y: y * POWER(x, y - 1)),
            formula(lambda x, y: POWER(x, y) * LOG(x)),
        ),
        integers=True,
        of_integers=integer_power_formula,
        of_unsigned=unsigned_power_formula,
        domain="positive",
    )
)


for _record in (*LOGIC, *DIVISION):
    register(_record)


def _reference(record: Elementwise) -> Callable[..., np.ndarray]:
    """The function on tensors: computed in the accumulation type, and rounded once."""

    def unary(x: np.ndarray) -> np.ndarray:
        return narrow(record.apply(widen(x)), x.dtype)

    def binary(lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        return narrow(record.apply(widen(lhs), widen(rhs)), lhs.dtype)

    return unary if record.arity == 1 else binary


def _lowering(record: Elementwise) -> Callable[[ir.AnyOp, Rewriter], None]:
    """function(x, ...) -> generic: the formula of each element"""

    def lower(op: ir.AnyOp, rewriter: Rewriter) -> None:
        operands = list(op.operation.operands)
        rewriter.replace(op, elementwise(op.result.type, operands, partial(scalars.compute, record)))

    lower.__name__ = f"lower_{record.word}"
    return lower


def same_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`."""
    return operands[0]


def broadcast_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of all operands, broadcast."""
    return broadcast(*operands)


for _record in FUNCTIONS.values():
    reference(_record.op)(_reference(_record))
    cost(_record.op)(per_element(_record.flops))
    dim_rule(_record.op)(same_dims if _record.arity == 1 else broadcast_dims)
    TO_LINALG.pattern(_record.op)(_lowering(_record))

# ----------------------------------------------------------------------------------------------------------------------
# Constants, positions, comparison, selection, conversion: references
# ----------------------------------------------------------------------------------------------------------------------


@reference(mir.ConstantOp)
def constant(*, value: ir.Attribute) -> np.ndarray:
    """The tensor that the elements attribute holds."""
    return elements_array(value)


@reference(mir.IotaOp)
def iota(
    like: np.ndarray | None = None,
    *,
    axis: int,
    like_dims: Sequence[int] | None = None,
    result_shape: Sequence[int],
    result_dtype: np.dtype,
) -> np.ndarray:
    """result[i_0, .., i_n] = i_axis; sizes of -1 are those of `like`, by its dimensions in `like_dims`."""
    shape = list(result_shape)
    for dim, size in enumerate(shape):
        if size < 0:
            assert like is not None, "the verifier's rule"
            assert like_dims is not None, "the verifier's rule"
            shape[dim] = like.shape[like_dims[dim]]
    line = np.arange(shape[axis], dtype=np.int64)
    line = line.astype(F32) if is_float(result_dtype) else saturate(line, result_dtype)
    return np.broadcast_to(line.reshape(-1, *[1] * (len(shape) - axis - 1)), shape)


#: What compares arrays, by the word of a comparison.
COMPARISONS: dict[str, np.ufunc] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@reference(mir.CompareOp)
def compare(lhs: np.ndarray, rhs: np.ndarray, *, kind: str) -> np.ndarray:
    """Whether `lhs kind rhs`; false with NaN, but for `ne`."""
    return np.asarray(COMPARISONS[kind](widen(lhs), widen(rhs)))


@reference(mir.WhereOp)
def where(condition: np.ndarray, on_true: np.ndarray, on_false: np.ndarray) -> np.ndarray:
    """`on_true` where the condition holds, else `on_false`."""
    return np.where(condition, on_true, on_false)


@reference(mir.CastOp)
def cast(x: np.ndarray, *, result_dtype: np.dtype) -> np.ndarray:
    """Conversion: floats round to nearest even, integers and floats of 8 bits saturate, to bool is `x != 0`.

    Complex numbers have an imaginary part of 0, or lose it.
    """
    if x.dtype == result_dtype:
        return x
    if result_dtype.kind == "c":
        re = cast(x, result_dtype=F32)
        return joined_parts(re, np.zeros_like(re))
    if x.dtype.kind == "c" and result_dtype != np.bool_:
        return cast(x.real, result_dtype=result_dtype)
    if result_dtype == np.bool_:
        return np.not_equal(widen(x), 0)
    if not is_float(result_dtype):
        return saturate(x, result_dtype)
    if is_float(x.dtype):
        return narrow(widen(x), result_dtype)
    if result_dtype == F32:
        return x.astype(F32)
    return narrow(x.astype(F64), result_dtype)


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------


cost(mir.CompareOp, mir.WhereOp)(per_element(1))


@cost(mir.IotaOp)
def iota_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """One conversion for each element; of `like`, nothing but the sizes is read."""
    return Cost(sizes.count(op.result), reads={} if op.like is None else {op.like: 0})


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


@dim_rule(mir.ConstantOp)
def constant_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of the value."""
    return tuple(Size.of(size) for size in op.result.type.shape)


@dim_rule(mir.IotaOp)
def iota_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of the type; where it is dynamic, those of `like` that `like_dims` names."""
    type, dims = op.result.type, python_value(op.like_dims)
    return tuple(
        operands[0][dims[dim]] if type.is_dynamic_dim(dim) else Size.of(type.get_dim_size(dim))
        for dim in range(type.rank)
    )


dim_rule(mir.CastOp)(same_dims)
dim_rule(mir.CompareOp, mir.WhereOp)(broadcast_dims)


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------


@TO_LINALG.pattern(mir.ConstantOp)
def lower_constant(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """constant value -> arith.constant value"""
    rewriter.replace(op, arith.ConstantOp(op.result.type, op.value))


@TO_LINALG.pattern(mir.IotaOp)
def lower_iota(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """iota -> generic: linalg.index of the axis"""
    type, dims, axis = op.result.type, python_value(op.like_dims), python_value(op.axis)
    sizes: list[SizeLike] = [
        as_index(size_of(op.like, dims[dim])) if type.is_dynamic_dim(dim) else int(type.get_dim_size(dim))
        for dim in range(type.rank)
    ]
    destination = (empty(sizes, type.element_type), range(type.rank))
    rewriter.replace(op, generic(type.rank, [], [destination], lambda _: scalars.index(axis).to(type.element_type)))


@TO_LINALG.pattern(mir.CompareOp)
def lower_compare(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """compare(lhs, rhs) -> generic: arith.cmp of each pair"""
    kind = python_value(op.kind)
    rewriter.replace(op, elementwise(op.result.type, [op.lhs, op.rhs], lambda lhs, rhs: lhs.compare(kind, rhs)))


@TO_LINALG.pattern(mir.WhereOp)
def lower_where(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """where(c, x, y) -> generic: arith.select of each triple"""
    operands = [op.condition, op.on_true, op.on_false]
    rewriter.replace(op, elementwise(op.result.type, operands, lambda c, x, y: c.select(x, y)))


@TO_LINALG.pattern(mir.CastOp)
def lower_cast(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """cast(x) -> generic: conversion of each element"""
    target = op.result.type.element_type
    rewriter.replace(op, elementwise(op.result.type, [op.x], lambda x: x.to(target)))
