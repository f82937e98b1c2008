# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of elements: arithmetic, comparisons, activations, logic, bits, casts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx_mlir.errors import OnnxError
from rlx_mlir.frontends import functions
from rlx_mlir.frontends.tensors import Tensor
from rlx_mlir.hir import GraphModule, Value

from ..call import Call
from ..registry import MICROSOFT, Refused, operator
from ..types import FLOATS, NUMPY, in_graphs, is_integer, name_of

#: A function of one value.
Function = Callable[[GraphModule, Value], Value]

_F64 = np.dtype(np.float64)

# Functions of one element ---------------------------------------------------------------------------


def _plain(name: str, kind: str) -> None:
    """An operator that is one of ours."""

    @operator(name)
    def run(call: Call) -> Tensor:
        call.needs_floats()
        return call.out(call.m.activation(kind, call.value(0)))


for _name, _kind in (
    ("Sigmoid", "sigmoid"),
    ("Tanh", "tanh"),
    ("Exp", "exp"),
    ("Log", "log"),
    ("Sqrt", "sqrt"),
    ("Sin", "sin"),
    ("Cos", "cos"),
    ("Tan", "tan"),
    ("Atan", "atan"),
    ("Round", "round"),
):
    _plain(_name, _kind)


def _composed(
    *names: str, domain: str = ""
) -> Callable[[Callable[[Call, Value], Value]], Callable[[Call, Value], Value]]:
    """An operator of floats that is made of several of ours, computed in f32 for 16 bits."""

    def add(function: Callable[[Call, Value], Value]) -> Callable[[Call, Value], Value]:
        @operator(*names, domain=domain)
        def run(call: Call) -> Tensor:
            call.needs_floats()
            x = call.value(0)
            return call.out(call.narrowed(function(call, call.wide(x)), x.dtype))

        return function

    return add


def _doubled(name: str) -> Callable[[Callable[[Call, Value], Value]], Callable[[Call, Value], Value]]:
    """An operator whose formula cancels: it is computed in f64."""

    def add(function: Callable[[Call, Value], Value]) -> Callable[[Call, Value], Value]:
        @operator(name)
        def run(call: Call) -> Tensor:
            call.needs_floats()
            x = call.value(0)
            return call.out(call.narrowed(function(call, call.narrowed(x, _F64)), x.dtype))

        return function

    return add


@operator("Relu")
def _relu(call: Call) -> Tensor:
    x = call.value(0)
    return call.out(call.m.relu(x) if x.dtype in FLOATS else call.m.maximum(x, call.scalar(0, x)))


@operator("Abs")
def _abs(call: Call) -> Tensor:
    return call.out(functions.magnitude(call.m, call.value(0)))


@operator("Neg")
def _neg(call: Call) -> Tensor:
    return call.out(functions.negative(call.m, call.value(0)))


@operator("Sign")
def _sign(call: Call) -> Tensor:
    return call.out(functions.sign(call.m, call.value(0)))


@_composed("Reciprocal")
def _reciprocal(call: Call, x: Value) -> Value:
    return call.m.div(call.scalar(1, x), x)


@_composed("Floor")
def _floor(call: Call, x: Value) -> Value:
    return functions.floor(call.m, x)


@_composed("Ceil")
def _ceil(call: Call, x: Value) -> Value:
    return functions.ceil(call.m, x)


@_composed("Erf")
def _erf(call: Call, x: Value) -> Value:
    return 1.0 - call.m.erfc(x)


for _name, _function in (
    ("Sinh", functions.sinh),
    ("Cosh", functions.cosh),
    ("Asinh", functions.asinh),
    ("Acosh", functions.acosh),
    ("Atanh", functions.atanh),
    ("Asin", functions.asin),
    ("Acos", functions.acos),
):

    @_doubled(_name)
    def _of_doubles(call: Call, x: Value, function: Function = _function) -> Value:
        return function(call.m, x)


@operator("IsNaN")
def _is_nan(call: Call) -> Tensor:
    call.needs_floats()
    x = call.value(0)
    return call.out(call.m.ne(x, x))


@operator("IsInf")
def _is_inf(call: Call) -> Tensor:
    call.needs_floats()
    x, m = call.wide(call.value(0)), call.m
    above, below = m.eq(x, float("inf")), m.eq(x, float("-inf"))
    found = [own for own, name in ((above, "detect_positive"), (below, "detect_negative")) if call.flag(name, True)]
    if not found:
        return call.out(above & ~above)
    return call.out(found[0] if len(found) == 1 else found[0] | found[1])


# Activations ----------------------------------------------------------------------------------------


@operator("Gelu")
def _gelu(call: Call) -> Tensor:
    call.needs_floats()
    kind = call.choice("approximate", "none", ("none", "tanh"))
    x = call.value(0)
    return call.out(call.m.gelu(x) if kind == "none" else call.m.gelu_approx(x))


@_composed("Elu")
def _elu(call: Call, x: Value) -> Value:
    return call.m.where(call.m.lt(x, 0.0), (call.m.exp(x) - 1.0) * call.number("alpha", 1.0), x)


@_composed("Celu")
def _celu(call: Call, x: Value) -> Value:
    alpha, m = call.number("alpha", 1.0), call.m
    return m.maximum(x, 0.0) + m.minimum((m.exp(x / alpha) - 1.0) * alpha, 0.0)


@_composed("Selu")
def _selu(call: Call, x: Value) -> Value:
    alpha, gamma = call.number("alpha", 1.67326319217681884765625), call.number("gamma", 1.05070102214813232421875)
    return call.m.where(call.m.gt(x, 0.0), x, (call.m.exp(x) - 1.0) * alpha) * gamma


@_composed("LeakyRelu")
def _leaky_relu(call: Call, x: Value) -> Value:
    return call.m.where(call.m.lt(x, 0.0), x * call.number("alpha", 0.01), x)


@_composed("ThresholdedRelu")
def _thresholded_relu(call: Call, x: Value) -> Value:
    return call.m.where(call.m.gt(x, call.number("alpha", 1.0)), x, 0.0)


@operator("PRelu")
def _prelu(call: Call) -> Tensor:
    x, slope, m = call.value(0), call.value(1), call.m
    return call.out(m.where(m.lt(x, call.scalar(0, x)), m.mul(x, slope), x))


@_composed("HardSigmoid")
def _hard_sigmoid(call: Call, x: Value) -> Value:
    y = x * call.number("alpha", 0.2) + call.number("beta", 0.5)
    return call.m.maximum(call.m.minimum(y, 1.0), 0.0)


@_composed("HardSwish")
def _hard_swish(call: Call, x: Value) -> Value:
    return x * call.m.maximum(call.m.minimum(x * (1 / 6) + 0.5, 1.0), 0.0)


def softplus(m: GraphModule, x: Value) -> Value:
    """log(1 + e^x), which neither overflows nor, for small results, cancels."""
    return m.maximum(x, 0.0) + m.log(m.exp(-m.abs(x)) + 1.0)


@_composed("Softplus")
def _softplus(call: Call, x: Value) -> Value:
    return softplus(call.m, x)


@_composed("Softsign")
def _softsign(call: Call, x: Value) -> Value:
    return x / (call.m.abs(x) + 1.0)


@_composed("Mish")
def _mish(call: Call, x: Value) -> Value:
    return x * call.m.tanh(softplus(call.m, x))


@_composed("Swish")
def _swish(call: Call, x: Value) -> Value:
    return x * call.m.sigmoid(x * call.number("alpha", 1.0))


@_composed("QuickGelu", domain=MICROSOFT)
def _quick_gelu(call: Call, x: Value) -> Value:
    return x * call.m.sigmoid(x * call.number("alpha", 1.702))


@operator("Shrink")
def _shrink(call: Call) -> Tensor:
    bias, limit, m = call.number("bias", 0.0), call.number("lambd", 0.5), call.m
    x = call.wide(call.value(0))
    if x.dtype not in FLOATS:
        raise Refused(f"elements of type {x.dtype}")
    y = m.where(m.lt(x, -limit), x + bias, m.where(m.gt(x, limit), x - bias, x * 0.0))
    return call.out(call.narrowed(y, call.dtype(0)))


@operator("Clip")
def _clip(call: Call) -> Tensor:
    x, m = call.value(0), call.m
    low, high = call.maybe_value(1), call.maybe_value(2)
    if call.version < 11:
        found = (call.maybe_float("min"), call.maybe_float("max"))
        low, high = (None if limit is None else m.constant(call.scalar(limit, x)) for limit in found)
    x = x if low is None else m.maximum(x, low)
    return call.out(x if high is None else m.minimum(x, high))


@operator("Hardmax")
def _hardmax(call: Call) -> Tensor:
    x, m = call.value(0), call.m
    call.needs_floats()
    if call.version < 13:
        raise Refused("Hardmax before version 13, which joins dimensions")
    axis = call.axis(-1, call.rank(0))
    shape = call.shape(0)
    places = call.iota(shape, axis)
    largest = m.eq(x, m.max(x, axis, keep_dims=True))
    first = m.min(m.where(largest, places, np.int64(np.iinfo(np.int64).max)), axis, keep_dims=True)
    return call.out(m.cast(m.eq(places, first), x.dtype))


# Functions of two elements --------------------------------------------------------------------------


def _pair(call: Call) -> tuple[Value, Value]:
    """Both operands of a function of two elements."""
    return call.value(0), call.value(1)


@operator("Add")
def _add(call: Call) -> Tensor:
    return call.out(call.m.add(*_pair(call)))


@operator("Sub")
def _sub(call: Call) -> Tensor:
    return call.out(call.m.sub(*_pair(call)))


@operator("Mul")
def _mul(call: Call) -> Tensor:
    return call.out(call.m.mul(*_pair(call)))


@operator("Div")
def _div(call: Call) -> Tensor:
    a, b = _pair(call)
    return call.out(call.m.trunc_div(a, b) if is_integer(a.dtype) else call.m.div(a, b))


@operator("Mod")
def _mod(call: Call) -> Tensor:
    a, b = _pair(call)
    m, like_c = call.m, call.flag("fmod")
    if is_integer(a.dtype):
        return call.out(m.trunc_rem(a, b) if like_c else m.floor_rem(a, b))
    x, y = m.cast(a, _F64), m.cast(b, _F64)
    return call.out(m.cast(functions.remainder(m, x, y, towards_zero=like_c), a.dtype))


@operator("Pow")
def _pow(call: Call) -> Tensor:
    a, b = _pair(call)
    m, dtype = call.m, a.dtype
    if a.dtype == b.dtype:
        return call.out(m.pow(a, b))
    if is_integer(a.dtype) and is_integer(b.dtype):
        return call.out(
            call.narrowed(m.pow(call.narrowed(a, np.dtype(np.int64)), call.narrowed(b, np.dtype(np.int64))), dtype)
        )
    if dtype in FLOATS:
        wide = np.dtype(np.float64) if is_integer(b.dtype) or b.dtype == _F64 else np.dtype(np.float32)
        wide = _F64 if dtype == _F64 else wide
        number = call.tensor(1).numbers
        if is_integer(b.dtype) and number is not None and np.all(np.abs(number.astype(np.float64)) < 2**11):
            return call.out(m.pow(a, m.cast(b, dtype)))  # the exponent is exact in the type of the base
        return call.out(m.cast(m.pow(m.cast(a, wide), m.cast(b, wide)), dtype))
    return call.out(m.cast(m.pow(m.cast(a, _F64), m.cast(b, _F64)), dtype))


def _variadic(name: str, combine: Callable[[GraphModule, Value, Value], Value]) -> None:
    """An operator of any number of operands, which are combined one after the other."""

    @operator(name)
    def run(call: Call) -> Tensor:
        if not call.inputs:
            raise OnnxError(f"node '{call.name}' ({call.op}) has no operand")
        y = call.wide(call.value(0))
        for number in range(1, len(call.inputs)):
            y = combine(call.m, y, call.wide(call.value(number)))
        if name == "Mean":
            y = call.m.div(y, call.scalar(len(call.inputs), y))
        return call.out(call.narrowed(y, call.dtype(0)))


for _name, _combine in (
    ("Max", GraphModule.maximum),
    ("Min", GraphModule.minimum),
    ("Sum", GraphModule.add),
    ("Mean", GraphModule.add),
):
    _variadic(_name, _combine)


# Comparisons, logic, bits ---------------------------------------------------------------------------

for _name, _kind in (
    ("Equal", "eq"),
    ("Less", "lt"),
    ("LessOrEqual", "le"),
    ("Greater", "gt"),
    ("GreaterOrEqual", "ge"),
):

    @operator(_name)
    def _compare(call: Call, kind: str = _kind) -> Tensor:
        a, b = _pair(call)
        if a.dtype == np.bool_ and b.dtype == np.bool_:
            a, b = call.m.cast(a, "i8"), call.m.cast(b, "i8")
        return call.out(call.m.compare(kind, a, b))


for _names, _kind in ((("And", "BitwiseAnd"), "and"), (("Or", "BitwiseOr"), "or"), (("Xor", "BitwiseXor"), "xor")):

    @operator(*_names)
    def _logic(call: Call, kind: str = _kind) -> Tensor:
        return call.out(call.m.binary(kind, *_pair(call)))


@operator("Not", "BitwiseNot")
def _not(call: Call) -> Tensor:
    return call.out(call.m.bitwise_not(call.value(0)))


@operator("BitShift")
def _bit_shift(call: Call) -> Tensor:
    left = call.choice("direction", "", ("LEFT", "RIGHT")) == "LEFT"
    a, b = _pair(call)
    shifted = functions.shifted_left if left else functions.shifted_right
    return call.out(shifted(call.m, a, b))


@operator("Where")
def _where(call: Call) -> Tensor:
    return call.out(call.m.where(call.value(0), call.value(1), call.value(2)))


# Casts ----------------------------------------------------------------------------------------------


def cast(call: Call, x: Value, dtype: np.dtype) -> Value:
    """A value in another element type; integers that don't fit lose their high bits."""
    if x.dtype == dtype:
        return x
    m = call.m
    if is_integer(x.dtype) and is_integer(dtype):
        return functions.wrapped(m, x, dtype)
    return m.cast(x, dtype)


def _checked(call: Call, dtype: np.dtype | None, number: int) -> np.dtype:
    if dtype is None or not in_graphs(dtype):
        raise Refused(f"values of graphs can't have elements of type {name_of(number)}")
    if dtype.itemsize == 1 and dtype.kind not in "iub" and not call.flag("saturate", True):
        raise Refused(f"a cast to {name_of(number)} saturates, but 'saturate' is 0")
    return dtype


@operator("Cast")
def _cast(call: Call) -> Tensor:
    number = call.integer("to", 0)
    dtype = _checked(call, NUMPY.get(number), number)
    return call.out(cast(call, call.value(0), dtype))


@operator("CastLike")
def _cast_like(call: Call) -> Tensor:
    dtype = call.dtype(1)
    number = next(number for number, own in NUMPY.items() if own == dtype)
    return call.out(cast(call, call.value(0), _checked(call, dtype, number)))


@operator("BitCast")
def _bit_cast(call: Call) -> Tensor:
    if NUMPY.get(call.integer("to", 0)) != call.dtype(0):
        raise Refused("bits of one element type that are read as another")
    return call.out(call.value(0))
