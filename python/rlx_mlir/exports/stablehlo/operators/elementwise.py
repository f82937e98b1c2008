# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of elements. What is made of several operations is computed in f32 for 16 bits, and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rlx_mlir.exports.stablehlo.builder import Builder, Writing
from rlx_mlir.exports.stablehlo.registry import register, writes
from rlx_mlir.exports.stablehlo.tensors import Tensor


def _unary(name: str) -> Callable[[Builder, Tensor], Tensor]:
    return lambda b, x: b.unary(name, x)


register(
    {
        "abs": "abs",
        "cos": "cosine",
        "exp": "exponential",
        "log": "log",
        "neg": "negate",
        "not": "not",
        "round": "round_nearest_even",
        "rsqrt": "rsqrt",
        "sigmoid": "logistic",
        "sin": "sine",
        "sqrt": "sqrt",
        "tan": "tan",
        "tanh": "tanh",
        "erfc": "chlo.erfc",
        "barrier": "optimization_barrier",
    },
    _unary,
)


def _binary(name: str) -> Callable[[Builder, Tensor, Tensor], Tensor]:
    return lambda b, lhs, rhs: b.binary(name, lhs, rhs)


register(
    {
        "add": "add",
        "sub": "subtract",
        "mul": "multiply",
        "div": "divide",
        "max": "maximum",
        "min": "minimum",
        "pow": "power",
        "and": "and",
        "or": "or",
        "xor": "xor",
    },
    _binary,
)


@writes("atan")
def _atan(b: Builder, x: Tensor) -> Tensor:
    return b.binary("atan2", x, 1.0)


@writes("relu")
def _relu(b: Builder, x: Tensor) -> Tensor:
    return b.binary("maximum", x, 0.0)


def _wide(function: Callable[[Builder, Tensor], Tensor]) -> Callable[[Builder, Tensor], Tensor]:
    """A function of floats that is rounded once."""

    def run(b: Builder, x: Tensor) -> Tensor:
        return b.cast(function(b, b.wide(x)), x.word)

    return run


@writes("silu")
@_wide
def _silu(b: Builder, x: Tensor) -> Tensor:
    return b.mul(x, b.unary("logistic", x))


@writes("gelu")
@_wide
def _gelu(b: Builder, x: Tensor) -> Tensor:
    return b.mul(b.mul(x, 0.5), b.unary("chlo.erfc", b.mul(x, -math.sqrt(0.5))))


@writes("gelu_approx")
@_wide
def _gelu_approx(b: Builder, x: Tensor) -> Tensor:
    cube = b.mul(b.mul(x, x), x)
    inner = b.mul(b.add(x, b.mul(cube, 0.044715)), math.sqrt(2 / math.pi))
    return b.mul(b.mul(x, 0.5), b.add(b.unary("tanh", inner), 1.0))


@writes("gelu_slope")
@_wide
def _gelu_slope(b: Builder, x: Tensor) -> Tensor:
    # Beyond these numbers the power is 0, and an infinity times 0 would be NaN.
    near = b.binary("minimum", b.binary("maximum", x, -40.0), 40.0)
    power = b.unary("exponential", b.mul(b.mul(near, near), -0.5))
    normal = b.mul(b.unary("chlo.erfc", b.mul(near, -math.sqrt(0.5))), 0.5)
    return b.add(normal, b.mul(b.mul(near, power), 1 / math.sqrt(2 * math.pi)))


@writes("compare")
def _compare(b: Builder, lhs: Tensor, rhs: Tensor, *, kind: str) -> Tensor:
    return b.compare(kind, lhs, rhs)


@writes("where")
def _where(b: Builder, condition: Tensor, on_true: Tensor, on_false: Tensor) -> Tensor:
    return b.where(condition, on_true, on_false)


@writes("trunc_div")
def _trunc_div(b: Builder, lhs: Tensor, rhs: Tensor) -> Tensor:
    return _by_no_zero(b, "divide", lhs, rhs)


@writes("trunc_rem")
def _trunc_rem(b: Builder, lhs: Tensor, rhs: Tensor) -> Tensor:
    return _by_no_zero(b, "remainder", lhs, rhs)


def _by_no_zero(b: Builder, name: str, lhs: Tensor, rhs: Tensor) -> Tensor:
    """An operation on integers that gives 0 where the second one is 0."""
    lhs, rhs = b.pair(lhs, rhs)
    is_zero = b.compare("eq", rhs, 0)
    return b.where(is_zero, 0, b.binary(name, lhs, b.where(is_zero, 1, rhs)))


@writes("floor_div")
def _floor_div(b: Builder, lhs: Tensor, rhs: Tensor) -> Tensor:
    quotient, rest = _trunc_div(b, lhs, rhs), _trunc_rem(b, lhs, rhs)
    return b.where(_is_below(b, rest, rhs), b.sub(quotient, 1), quotient) if _is_signed(rhs) else quotient


@writes("floor_rem")
def _floor_rem(b: Builder, lhs: Tensor, rhs: Tensor) -> Tensor:
    rest = _trunc_rem(b, lhs, rhs)
    return b.where(_is_below(b, rest, rhs), b.add(rest, rhs), rest) if _is_signed(rhs) else rest


def _is_signed(x: Tensor) -> bool:
    return not x.word.startswith("u")


def _is_below(b: Builder, rest: Tensor, rhs: Tensor) -> Tensor:
    """Whether a quotient that was rounded towards 0 is above what it is of: there is a rest, of the other sign."""
    differs = b.compare("ne", b.compare("lt", rest, 0), b.compare("lt", b.spread(rhs, rest.shape), 0))
    return b.binary("and", b.compare("ne", rest, 0), differs)


@writes("cast")
def _cast(b: Writing, x: Tensor) -> Tensor:
    _, word = b.types[0]
    target = Tensor("", (), word)
    if word == "i1" or x.word == "i1" or target.is_float or x.word.startswith("complex"):
        return b.cast(x, word)
    limits = np.iinfo(target.dtype)
    if x.is_float:
        wide = b.cast(x, "f64")
        kept = b.where(b.compare("ne", wide, wide), 0.0, wide)
        largest = float(limits.max) if limits.max < 1 << 53 else float(np.nextafter(float(limits.max), 0))
        found = b.cast(b.binary("maximum", b.binary("minimum", kept, largest), float(limits.min)), word)
        at_end = b.compare("ge", kept, float(limits.max))
        return b.where(at_end, limits.max, found)
    own = np.iinfo(x.dtype)
    if own.max > limits.max:
        x = b.binary("minimum", x, limits.max)
    if own.min < limits.min:
        x = b.binary("maximum", x, limits.min)
    return b.cast(x, word)


# Complex numbers ------------------------------------------------------------------------------------


@writes("real")
def _real(b: Builder, z: Tensor) -> Tensor:
    return b.op("real", [z], z.shape, "f32")


@writes("imag")
def _imag(b: Builder, z: Tensor) -> Tensor:
    return b.op("imag", [z], z.shape, "f32")


@writes("complex")
def _complex(b: Builder, re: Tensor, im: Tensor) -> Tensor:
    re, im = b.pair(re, im)
    return b.op("complex", [re, im], re.shape, "complex<f32>")


@writes("conjugate")
def _conjugate(b: Builder, z: Tensor) -> Tensor:
    return _complex(b, _real(b, z), b.unary("negate", _imag(b, z)))


@writes("complex_norm_sq")
def _norm_sq(b: Builder, z: Tensor) -> Tensor:
    re, im = _real(b, z), _imag(b, z)
    return b.add(b.mul(re, re), b.mul(im, im))
