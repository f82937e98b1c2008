# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators on elements: functions, arithmetic, comparisons, casts.

Operands are brought to the element type in which PyTorch computes: that of the result, and for comparisons the one that
both are promoted to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlx_mlir.frontends import functions
from rlx_mlir.hir.module import GraphModule
from rlx_mlir.hir.values import Value
from rlx_mlir.pytorch.graph import Entry, Handler, Importer, Operand, Unhandled, handles, static

#: Functions of one float that are one of ours: by the operator's name without overload.
_FUNCTIONS = {
    "atan": "atan",
    "cos": "cos",
    "erfc": "erfc",
    "exp": "exp",
    "log": "log",
    "rsqrt": "rsqrt",
    "sigmoid": "sigmoid",
    "silu": "silu",
    "sin": "sin",
    "sqrt": "sqrt",
    "tan": "tan",
    "tanh": "tanh",
}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _function(word: str) -> Handler:
    def build(im: Importer, x: Value) -> Value:
        return im.m._unary(word, im.cast(x, im.dtype()))

    return build


for _name, _word in _FUNCTIONS.items():
    handles(f"aten.{_name}.default")(_function(_word))


@handles("aten.neg.default")
def neg(im: Importer, x: Value) -> Value:
    """-x, of floats, complex numbers and integers."""
    return functions.negative(im.m, im.cast(x, im.dtype()))


@handles("aten.relu.default")
def relu(im: Importer, x: Value) -> Value:
    """x, or 0 where it is negative, of floats and integers."""
    x = im.cast(x, im.dtype())
    return im.m.relu(x) if x.dtype.kind not in "iu" else im.m.where(im.m.gt(x, 0), x, 0)


@handles("aten.round.default")
def nearest(im: Importer, x: Value) -> Value:
    """The nearest integer; integers are their own."""
    return x if x.dtype.kind in "iu" else im.m.round(im.cast(x, im.dtype()))


@handles("aten.gelu.default")
def gelu(im: Importer, x: Value, *, approximate: str = "none") -> Value:
    """By the error function, or by tanh."""
    return im.m.gelu(x) if approximate == "none" else im.m.gelu_approx(x)


@handles("aten.erf.default")
def erf(im: Importer, x: Value) -> Value:
    """1 - erfc(x)"""
    return 1.0 - im.m.erfc(im.cast(x, im.dtype()))


@handles("aten.log1p.default")
def log1p(im: Importer, x: Value) -> Value:
    """log(1 + x), of small x too."""
    return _log1p(im, im.cast(x, im.dtype()))


def _log1p(im: Importer, x: Value) -> Value:
    """x log(w) / (w - 1) for w = 1 + x, whose rounding both have: x, where that is 1."""
    m, w = im.m, x + 1.0
    rest = w - 1.0
    one = m.where(m.eq(rest, 0.0), 1.0, rest)
    exact = m.where(m.eq(rest, x), 1.0, x / one)  # of infinity, too
    return m.where(m.eq(rest, 0.0), x, m.log(w) * exact)


def _expm1(m: GraphModule, x: Value) -> Value:
    return m.exp(x) - 1.0


#: Functions of one float whose formulas cancel: computed in f64.
_OF_DOUBLES = {
    "acos": functions.acos,
    "acosh": functions.acosh,
    "asin": functions.asin,
    "asinh": functions.asinh,
    "atanh": functions.atanh,
    "cosh": functions.cosh,
    "expm1": _expm1,
    "sinh": functions.sinh,
}


def _of_doubles(function: Callable[[GraphModule, Value], Value]) -> Handler:
    def build(im: Importer, x: Value) -> Value:
        return im.cast(function(im.m, im.cast(x, "f64")), im.dtype())

    return build


for _name, _own in _OF_DOUBLES.items():
    handles(f"aten.{_name}.default")(_of_doubles(_own))


@handles("aten.atan2.default")
def atan2(im: Importer, y: Value, x: Value) -> Value:
    """The angle of the point (x, y)."""
    return im.cast(functions.atan2(im.m, im.cast(y, "f64"), im.cast(x, "f64")), im.dtype())


@handles("aten.hypot.default")
def hypot(im: Importer, x: Value, y: Value) -> Value:
    """sqrt(x^2 + y^2)"""
    squares = [each * each for each in (im.cast(x, "f64"), im.cast(y, "f64"))]
    return im.cast(im.m.sqrt(squares[0] + squares[1]), im.dtype())


@handles("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(im: Importer, x: Value, y: Operand) -> Value:
    """|x| with the sign of y."""
    size, sign_of = im.m.abs(im.cast(x, im.dtype())), im.scalar(y, im.dtype())
    return im.expanded(im.m.where(functions.is_negative(im.m, sign_of), -size, size))


@handles("aten.log2.default", "aten.log10.default")
def logarithm(im: Importer, x: Value) -> Value:
    """log(x) / log(base)"""
    base = 2 if "log2" in str(im.node.target) else 10
    return im.m.log(im.cast(x, im.dtype())) * (1 / math.log(base))


@handles("aten.exp2.default")
def exp2(im: Importer, x: Value) -> Value:
    """exp(x log(2))"""
    return im.m.exp(im.cast(x, im.dtype()) * math.log(2))


@handles("aten.reciprocal.default")
def reciprocal(im: Importer, x: Value) -> Value:
    """1 / x"""
    return 1.0 / im.cast(x, im.dtype())


@handles("aten.square.default")
def square(im: Importer, x: Value) -> Value:
    """x x"""
    return x * x


@handles("aten.softplus.default")
def softplus(im: Importer, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    """log(1 + exp(beta x)) / beta, by relu so that nothing is too large; the threshold's other case is as near."""
    scaled = x if beta == 1 else x * float(beta)
    found = im.m.relu(scaled) + _log1p(im, im.m.exp(-im.m.abs(scaled)))
    return found if beta == 1 else found / float(beta)


@handles("aten.leaky_relu.default")
def leaky_relu(im: Importer, x: Value, negative_slope: float = 0.01) -> Value:
    """x, or where it is negative a multiple."""
    return im.m.where(im.m.gt(x, 0.0), x, x * float(negative_slope))


@handles("aten.elu.default")
def elu(im: Importer, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    """scale x, or where it is negative scale alpha (exp(input_scale x) - 1)."""
    below = (im.m.exp(im.m.minimum(x, 0.0) * float(input_scale)) - 1.0) * float(alpha)
    found = im.m.where(im.m.gt(x, 0.0), x, below)
    return found if scale == 1 else found * float(scale)


@handles(
    "aten.hardtanh.default",
    "aten.clamp.default",
    "aten.clamp.Tensor",
    "aten.clamp_min.default",
    "aten.clamp_min.Tensor",
)
def clamp(
    im: Importer, x: Value, low: Operand | None = None, high: Operand | None = None, **named: Operand | None
) -> Value:
    """Within bounds, of which one may be missing."""
    low, high = named.get("min", named.get("min_val", low)), named.get("max", named.get("max_val", high))
    dtype = im.dtype()
    found = im.cast(x, dtype)
    for bound, build in ((low, im.m.maximum), (high, im.m.minimum)):
        if bound is not None:
            found = build(found, im.scalar(bound, dtype))
    return found


@handles("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(im: Importer, x: Value, high: Operand) -> Value:
    """At most a bound."""
    return clamp(im, x, None, high)


@handles("aten.hardsigmoid.default")
def hardsigmoid(im: Importer, x: Value) -> Value:
    """min(max(x + 3, 0), 6) / 6"""
    return im.m.minimum(im.m.relu(x + 3.0), 6.0) * (1 / 6)


@handles("aten.hardswish.default")
def hardswish(im: Importer, x: Value) -> Value:
    """x times its hard sigmoid."""
    return x * hardsigmoid(im, x)


@handles("aten.mish.default")
def mish(im: Importer, x: Value) -> Value:
    """x tanh(softplus(x))"""
    return x * im.m.tanh(softplus(im, x))


@handles("aten.sign.default", "aten.sgn.default")
def sign(im: Importer, x: Value) -> Value:
    """-1, 0 or 1; NaN stays."""
    return functions.sign(im.m, im.cast(x, im.dtype()))


@handles("aten.floor.default", "aten.ceil.default", "aten.trunc.default", "aten.fix.default")
def rounded(im: Importer, x: Value) -> Value:
    """The next integer below, above, or towards 0."""
    name = str(im.node.target).split(".")[1]
    function = {"floor": functions.floor, "ceil": functions.ceil}.get(name, functions.truncated)
    return x if x.dtype.kind in "iu" else function(im.m, x)


@handles("aten.frac.default")
def frac(im: Importer, x: Value) -> Value:
    """What is left of x where it is rounded towards 0."""
    return x - functions.truncated(im.m, x)


# -- of two operands ---------------------------------------------------------------------------------------------------


def _operands(im: Importer, x: Operand, y: Operand, dtype: str | None = None) -> tuple[Value, Value]:
    wanted = im.dtype() if dtype is None else dtype
    return im.scalar(x, wanted), im.scalar(y, wanted)


@handles("aten.add.Tensor", "aten.add.Scalar")
def add(im: Importer, x: Operand, y: Operand, alpha: Operand = 1) -> Value:
    """x + alpha y"""
    left, right = _operands(im, x, y)
    if im.dtype() == "i1":
        return im.m.bitwise_or(left, right)
    return left + (right if alpha == 1 else right * im.scalar(alpha, im.dtype()))


@handles("aten.sub.Tensor", "aten.sub.Scalar")
def sub(im: Importer, x: Operand, y: Operand, alpha: Operand = 1) -> Value:
    """x - alpha y"""
    left, right = _operands(im, x, y)
    return left - (right if alpha == 1 else right * im.scalar(alpha, im.dtype()))


@handles("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(im: Importer, x: Operand, y: Operand, alpha: Operand = 1) -> Value:
    """y - alpha x"""
    return sub(im, y, x, alpha)


@handles("aten.mul.Tensor", "aten.mul.Scalar")
def mul(im: Importer, x: Operand, y: Operand) -> Value:
    """x y; of truths, whether both hold."""
    left, right = _operands(im, x, y)
    return im.m.bitwise_and(left, right) if im.dtype() == "i1" else left * right


@handles("aten.div.Tensor", "aten.div.Scalar", "aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div(im: Importer, x: Operand, y: Operand, *, rounding_mode: str | None = None) -> Value:
    """x / y; integers become floats where nothing is rounded."""
    left, right = _operands(im, x, y)
    is_integer = im.dtype()[0] in "iu"
    if rounding_mode is None:
        return left / right
    if is_integer:
        return im.m.floor_div(left, right) if rounding_mode == "floor" else im.m.trunc_div(left, right)
    if rounding_mode == "floor":
        return functions.floor(im.m, left / right)
    return functions.truncated(im.m, left / right)


@handles("aten.floor_divide.default")
def floor_divide(im: Importer, x: Operand, y: Operand) -> Value:
    """x / y, rounded down."""
    return div(im, x, y, rounding_mode="floor")


@handles("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(im: Importer, x: Operand, y: Operand) -> Value:
    """x - y floor(x / y)"""
    return _remainder(im, x, y, towards_zero=False)


@handles("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(im: Importer, x: Operand, y: Operand) -> Value:
    """x - y trunc(x / y)"""
    return _remainder(im, x, y, towards_zero=True)


def _remainder(im: Importer, x: Operand, y: Operand, *, towards_zero: bool) -> Value:
    left, right = _operands(im, x, y)
    if im.dtype()[0] in "iu":
        return im.m.trunc_rem(left, right) if towards_zero else im.m.floor_rem(left, right)
    found = functions.remainder(im.m, im.cast(left, "f64"), im.cast(right, "f64"), towards_zero=towards_zero)
    return im.cast(found, im.dtype())


@handles("aten.maximum.default")
def maximum(im: Importer, x: Value, y: Value) -> Value:
    """The larger one, NaN where one is."""
    return im.m.maximum(*_operands(im, x, y))


@handles("aten.minimum.default")
def minimum(im: Importer, x: Value, y: Value) -> Value:
    """The smaller one, NaN where one is."""
    return im.m.minimum(*_operands(im, x, y))


@handles("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar")
def pow(im: Importer, x: Operand, y: Operand) -> Value:
    """x to the power y; squares, cubes and roots by what they are."""
    dtype = im.dtype()
    if isinstance(x, Value) and isinstance(y, int | float):
        base = im.cast(x, dtype)
        if y in (2, 3):
            return base * base if y == 2 else base * base * base
        if dtype[0] not in "iu" and y in (1, 0.5, -0.5, -1):
            return {1: lambda: base, 0.5: lambda: im.m.sqrt(base), -0.5: lambda: im.m.rsqrt(base)}.get(
                y, lambda: 1.0 / base
            )()
    return im.m.pow(*_operands(im, x, y))


@handles("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(im: Importer, x: Value, y: Value, weight: Operand) -> Value:
    """x + weight (y - x)"""
    return x + im.scalar(weight, im.dtype()) * (y - x)


@handles("aten.addcmul.default")
def addcmul(im: Importer, x: Value, a: Value, b: Value, *, value: Operand = 1) -> Value:
    """x + value a b"""
    product = a * b
    return x + (product if value == 1 else product * im.scalar(value, im.dtype()))


def _overloads(name: str) -> list[str]:
    """The overloads of an operator of two operands, one of which may be a number."""
    return [f"{name}.{each}" for each in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")]


# -- conditions --------------------------------------------------------------------------------------------------------


def _comparison(kind: str) -> Handler:
    def build(im: Importer, x: Operand, y: Operand) -> Value:
        own = im.promoted(*im.operand_meta(*im.node.args[:2]))
        if own == "i1" and kind in ("eq", "ne"):
            left, right = _operands(im, x, y, "i1")
            differs = im.m.bitwise_xor(left, right)
            return differs if kind == "ne" else im.m.bitwise_not(differs)
        return im.m.compare(kind, *_operands(im, x, y, "ui8" if own == "i1" else own))

    return build


for _kind in _COMPARISONS:
    handles(f"aten.{_kind}.Tensor", f"aten.{_kind}.Scalar")(_comparison(_kind))


@handles("aten.bitwise_and.Tensor", "aten.bitwise_and.Scalar", "aten.__and__.Tensor")
def bitwise_and(im: Importer, x: Operand, y: Operand) -> Value:
    """Bits, or truths, that both have."""
    return im.m.bitwise_and(*_operands(im, x, y))


@handles("aten.bitwise_or.Tensor", "aten.bitwise_or.Scalar", "aten.__or__.Tensor")
def bitwise_or(im: Importer, x: Operand, y: Operand) -> Value:
    """Bits, or truths, that one of them has."""
    return im.m.bitwise_or(*_operands(im, x, y))


@handles("aten.bitwise_xor.Tensor", "aten.bitwise_xor.Scalar")
def bitwise_xor(im: Importer, x: Operand, y: Operand) -> Value:
    """Bits, or truths, that differ."""
    return im.m.bitwise_xor(*_operands(im, x, y))


@handles("aten.__lshift__.Tensor", "aten.__lshift__.Scalar", *_overloads("aten.bitwise_left_shift"))
def shift_left(im: Importer, x: Operand, y: Operand) -> Value:
    """x 2^y"""
    return functions.shifted_left(im.m, *_operands(im, x, y))


@handles("aten.__rshift__.Tensor", "aten.__rshift__.Scalar", *_overloads("aten.bitwise_right_shift"))
def shift_right(im: Importer, x: Operand, y: Operand) -> Value:
    """floor(x / 2^y)"""
    return functions.shifted_right(im.m, *_operands(im, x, y))


@handles("aten.bitwise_not.default")
def bitwise_not(im: Importer, x: Value) -> Value:
    """The other bits, or truths."""
    return im.m.bitwise_not(x)


@handles("aten.logical_and.default")
def logical_and(im: Importer, x: Value, y: Value) -> Value:
    """Whether both aren't 0."""
    return im.m.bitwise_and(im.cast(x, "i1"), im.cast(y, "i1"))


@handles("aten.logical_or.default")
def logical_or(im: Importer, x: Value, y: Value) -> Value:
    """Whether one isn't 0."""
    return im.m.bitwise_or(im.cast(x, "i1"), im.cast(y, "i1"))


@handles("aten.logical_xor.default")
def logical_xor(im: Importer, x: Value, y: Value) -> Value:
    """Whether one of them is 0, and the other isn't."""
    return im.m.bitwise_xor(im.cast(x, "i1"), im.cast(y, "i1"))


@handles("aten.logical_not.default")
def logical_not(im: Importer, x: Value) -> Value:
    """Whether it is 0."""
    return im.m.bitwise_not(im.cast(x, "i1"))


@handles("aten.isnan.default")
def isnan(im: Importer, x: Value) -> Value:
    """Whether it isn't equal to itself."""
    return im.m.ne(x, x)


@handles("aten.isinf.default")
def isinf(im: Importer, x: Value) -> Value:
    """Whether its magnitude is infinite."""
    return im.m.eq(im.m.abs(x), im.number(math.inf, im.dtype(im.node.args[0].meta["val"])))


@handles("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(im: Importer, condition: Value, x: Operand, y: Operand) -> Value:
    """x where the condition holds, else y."""
    return im.expanded(im.m.where(condition, *_operands(im, x, y)))


@handles("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(im: Importer, x: Value, mask: Value, value: Operand) -> Value:
    """One number where the mask holds, else x."""
    return im.expanded(im.m.where(mask, im.scalar(value, im.dtype()), x))


# -- the same elements -------------------------------------------------------------------------------------------------


@handles("aten._to_copy.default", "aten.to.dtype", "prims.convert_element_type.default")
def to_copy(im: Importer, x: Value, *_: object, **__: object) -> Value:
    """In another element type; the layout in memory is the compiler's."""
    return im.cast(x, im.dtype())


@handles(
    "aten.clone.default",
    "aten.alias.default",
    "aten.detach.default",
    "aten.contiguous.default",
    "aten.lift_fresh_copy.default",
    "aten.lift_fresh.default",
    "aten.dropout.default",
    "aten.view_as.default",
)
def same(im: Importer, x: Value, *_: object, **__: object) -> Value:
    """x itself: values aren't written to, and dropout without training drops nothing."""
    if operator_trains(im):
        raise Unhandled("random numbers of training")
    return x


def operator_trains(im: Importer) -> bool:
    """Whether the node drops elements at random."""
    arguments = im.node.args
    return "dropout" in str(im.node.target) and len(arguments) > 2 and bool(arguments[2]) and arguments[1] != 0


@handles("aten.copy.default")
def copy(im: Importer, x: Value, source: Value, non_blocking: bool = False) -> Value:
    """What is written over x, in its shape and element type."""
    return im.expanded(im.cast(source, im.dtype()))


@handles("operator.getitem")
def getitem(im: Importer, values: Sequence[Entry], number: int) -> Entry:
    """One of several results; some are built where they are asked for."""
    found = values[static(number, "a number of a result")]
    found = found() if callable(found) else found
    if found is None:
        raise Unhandled(f"result {number} of {im.node.args[0].target}")
    return found
