# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The exponentials of a softmax, whose arguments are no larger than 0, and the maximum that they are taken below."""

from __future__ import annotations

from rlx_mlir.codegen.emit import Emitter, Value, shape_of, with_element

from .target import Target

#: e^r between -log(2)/2 and log(2)/2: coefficients of 1, r, r^2, ...; the relative error is 1.6 * 2^-24, e^0 is exact.
_EXP = (1.0, 0.9999997019767761, 0.4999914765357971, 0.16667653620243073, 0.041898179799318314, 0.00828920491039753)

#: log(2) as f32, for multiplications that round once; else in two parts, of which the first has so few bits that its
#: products with exponents are exact.
_LOG_2 = 0.6931471824645996
_LOG_2_PARTS = (0.693359375, -2.12194440e-4)

#: Adding 1.5 * 2^23 to a number rounds it to an integer, which stands in the low bits; 127 makes an exponent of it.
_SHIFT = 12582912.0 + 127.0


def larger(em: Emitter, new: Value, running: Value) -> Value:
    """The larger one of two, `running` where `new` is NaN: one instruction, where a maximum that NaN goes through takes
    four."""
    return em.select(em.cmpf("ogt", new, running), new, running)


def peak_of(em: Emitter, x: Value) -> Value:
    """The largest lane of a vector without NaN, a power of two of them."""
    (lanes,) = shape_of(x.type)
    assert lanes is not None, "vectors have lanes"
    while lanes > 1:
        lanes //= 2
        x = larger(em, em.shuffle(x, x, [lane ^ lanes for lane in range(shape_of(x.type)[0] or 0)]), x)
    return em.extract(x, 0)


def exp_below(em: Emitter, target: Target, x: Value) -> Value:
    """e^x of f32, a vector or a scalar, for x of at most 0: 0 from -88 down, NaN where x is NaN.

    The relative error is at most 3 * 2^-24 near 0, and 7 * 2^-24 at the lower end.
    """
    above = larger(em, em.const(-88.0, x.type), x)
    shifted = target.fma(em, above, em.const(1.4426950408889634, x.type), em.const(_SHIFT, x.type))
    exponent = shifted - _SHIFT
    rest = above
    for part in (_LOG_2,) if target.fused else _LOG_2_PARTS:
        rest = target.fma(em, exponent, em.const(-part, x.type), rest)
    value = em.const(_EXP[-1], x.type)
    for coefficient in reversed(_EXP[:-1]):
        value = target.fma(em, value, rest, em.const(coefficient, x.type))
    # At -88 the exponent's bits are 0, which makes the factor 0.0.
    bits = em.bitcast(shifted, with_element(x.type, "i32")) << 23
    return value * em.bitcast(bits, x.type)
