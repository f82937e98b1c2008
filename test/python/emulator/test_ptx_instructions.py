# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions of the PTX emulator, each against numpy or Python on random bits and on the corners of its types."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx_harness import each_lane

RNG = np.random.default_rng(7)
COUNT = 300
PREFIX = {2: "h", 4: "r", 8: "d"}
BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = {"f16": np.dtype(np.float16), "bf16": BF16, "f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
INTEGERS = {f"{k}{b}": np.dtype(f"{'i' if k == 's' else 'u'}{b // 8}") for k in "su" for b in (16, 32, 64)}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Random bits are signalling NaNs too."""
    with np.errstate(all="ignore"):
        yield


def corners(dtype: np.dtype) -> np.ndarray:
    """Values that break things."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([0, 1, 2, 3, info.max, info.min, info.max - 1, info.min + 1], dtype)
    bits = {2: [0, 0x8000, 1, 0x3C00, 0x7C00, 0xFC00, 0x7E00, 0x7BFF], 4: [0, 1 << 31, 1, 0x3F800000, 0x7F800000,
            0xFF800000, 0x7FC00000, 0x7F7FFFFF], 8: [0, 1 << 63, 1, 0x3FF << 52, 0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48,
            0x7FEFFFFFFFFFFFFF]}[dtype.itemsize]  # fmt: skip
    if dtype == BF16:
        bits = [0, 0x8000, 1, 0x3F80, 0x7F80, 0xFF80, 0x7FC0, 0x7F7F]
    return np.array(bits, np.dtype(f"u{dtype.itemsize}")).view(dtype)


def values(dtype: np.dtype, seed: int, tame: bool = False) -> np.ndarray:
    """Random bits, then pairs of corners, in an order that depends on the seed."""
    rng = np.random.default_rng(seed)
    if tame:
        return (rng.standard_normal(COUNT) * 10.0 ** rng.integers(-3, 3, COUNT)).astype(dtype)
    words = rng.integers(0, 1 << 8 * dtype.itemsize, COUNT, dtype=np.dtype(f"u{dtype.itemsize}"))
    special = corners(dtype)
    pairs = np.repeat(special, len(special)) if seed % 2 else np.tile(special, len(special))
    return np.concatenate([words.view(dtype), pairs])


def raw(array: np.ndarray) -> np.ndarray:
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal bits; all NaNs are equal."""
    if want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want.astype(got.dtype))
        return
    got = got.view(want.dtype)
    nan = want != want
    np.testing.assert_array_equal(got != got, nan)
    np.testing.assert_array_equal(raw(got)[~nan], raw(want)[~nan])


def apply(instruction: str, *operands: np.ndarray, result: Any) -> np.ndarray:
    """Runs `instruction d, a, b...;` on arrays."""
    kinds = ["p" if a.dtype.kind == "b" else PREFIX[a.dtype.itemsize] for a in operands]
    names = [f"%{kind}{i + 1}" for i, kind in enumerate(kinds)]
    dtype = np.dtype(result)
    flag = dtype.kind == "b"
    to = "%p0" if flag else f"%{PREFIX[dtype.itemsize]}0"
    sources = {name: a if a.dtype.kind == "b" else raw(a) for name, a in zip(names, operands, strict=True)}
    word = dtype if flag else np.dtype(f"u{dtype.itemsize}")
    got = each_lane(f"{instruction} {', '.join([to, *names])};", sources, {to: word})[to]
    return got if flag else got.view(dtype)


def truncating(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


INTEGER_OPERATIONS: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, n: a + b,
    "sub": lambda a, b, n: a - b,
    "mul.lo": lambda a, b, n: a * b,
    "mul.hi": lambda a, b, n: a * b >> n,
    "min": lambda a, b, n: min(a, b),
    "max": lambda a, b, n: max(a, b),
    "div": lambda a, b, n: truncating(a, b),
    "rem": lambda a, b, n: a - b * truncating(a, b),
}


def wrap(numbers: list[int], dtype: np.dtype) -> np.ndarray:
    bits = dtype.itemsize * 8
    return np.array([n & (1 << bits) - 1 for n in numbers], np.dtype(f"u{dtype.itemsize}")).view(dtype)


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("name", INTEGER_OPERATIONS)
def test_integers(name: str, kind: str) -> None:
    dtype = INTEGERS[kind]
    a, b = values(dtype, 1), values(dtype, 2)
    if name in ("div", "rem"):
        b[b == 0] = 3
    function = INTEGER_OPERATIONS[name]
    want = wrap([function(int(x), int(y), dtype.itemsize * 8) for x, y in zip(a, b, strict=True)], dtype)
    same(apply(f"{name}.{kind}", a, b, result=dtype), want)


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32"])
def test_wide_products(kind: str) -> None:
    dtype = INTEGERS[kind]
    wide = INTEGERS[f"{kind[0]}{int(kind[1:]) * 2}"]
    a, b, c = values(dtype, 1), values(dtype, 2), values(wide, 3)
    same(apply(f"mul.wide.{kind}", a, b, result=wide), a.astype(wide) * b.astype(wide))
    same(apply(f"mad.wide.{kind}", a, b, c, result=wide), a.astype(wide) * b.astype(wide) + c)


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
def test_mad_and_unary_integers(kind: str) -> None:
    dtype = INTEGERS[kind]
    a, b, c = (values(dtype, seed) for seed in (1, 2, 3))
    with np.errstate(all="ignore"):
        same(apply(f"mad.lo.{kind}", a, b, c, result=dtype), a * b + c)
        if kind[0] == "s":
            same(apply(f"neg.{kind}", a, result=dtype), -a)
            same(apply(f"abs.{kind}", a, result=dtype), np.abs(a))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_bits(bits: int) -> None:
    dtype = INTEGERS[f"u{bits}"]
    a, b = values(dtype, 1), values(dtype, 2)
    for name, function in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        same(apply(f"{name}.b{bits}", a, b, result=dtype), function(a, b))
    same(apply(f"not.b{bits}", a, result=dtype), ~a)
    amounts = np.concatenate([np.arange(80), RNG.integers(0, 2**32, len(a) - 80)]).astype(np.uint32)
    for name, kind, shift in (
        ("shl.b", dtype, lambda x, s: x << s),
        ("shr.u", dtype, lambda x, s: x >> s),
        ("shr.s", INTEGERS[f"s{bits}"], lambda x, s: x >> min(s, bits)),
    ):
        operand = a.view(kind)
        want = wrap([shift(int(x), min(int(s), bits)) for x, s in zip(operand, amounts, strict=True)], dtype)
        same(apply(f"{name}{bits}", operand, amounts, result=dtype), want)


@pytest.mark.parametrize("bits", [32, 64])
def test_counts_of_bits(bits: int) -> None:
    dtype = INTEGERS[f"u{bits}"]
    a = values(dtype, 1)
    numbers = [int(x) for x in a]
    u32 = np.dtype(np.uint32)
    same(apply(f"popc.b{bits}", a, result=u32), wrap([bin(n).count("1") for n in numbers], u32))
    same(apply(f"clz.b{bits}", a, result=u32), wrap([bits - n.bit_length() for n in numbers], u32))
    same(apply(f"bfind.u{bits}", a, result=u32), wrap([n.bit_length() - 1 for n in numbers], u32))
    same(apply(f"brev.b{bits}", a, result=dtype), wrap([int(f"{n:0{bits}b}"[::-1], 2) for n in numbers], dtype))


def field(value: int, position: int, length: int, bits: int, signed: bool) -> int:
    last = bits - 1
    sign = 0 if not signed or length == 0 else value >> min(position + length - 1, last) & 1
    result = 0
    for i in range(bits):
        bit = value >> position + i & 1 if i < length and position + i <= last else sign
        result |= bit << i
    return result


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_fields(kind: str) -> None:
    dtype = INTEGERS[kind]
    bits = dtype.itemsize * 8
    a, b = values(dtype, 1), values(dtype, 2)
    position, length = (RNG.integers(0, 80, len(a)).astype(np.uint32) for _ in range(2))
    words = zip(raw(a), position, length, strict=True)
    want = [field(int(x), int(p), int(n), bits, kind[0] == "s") for x, p, n in words]
    same(apply(f"bfe.{kind}", a, position, length, result=dtype), wrap(want, dtype))
    inserted = []
    for x, y, p, n in zip(raw(a), raw(b), position, length, strict=True):
        result = int(y)
        for i in range(int(n)):
            if p + i < bits:
                result = result & ~(1 << int(p) + i) | (int(x) >> i & 1) << int(p) + i
        inserted.append(result)
    same(apply(f"bfi.b{bits}", raw(a), raw(b), position, length, result=raw(a).dtype), wrap(inserted, raw(a).dtype))


def test_bytes_and_words() -> None:
    u32 = np.dtype(np.uint32)
    a, b, c = (values(u32, seed) for seed in (1, 2, 3))
    want = []
    for x, y, s in zip(a, b, c, strict=True):
        pool = int(y) << 32 | int(x)
        result = 0
        for i in range(4):
            nibble = int(s) >> 4 * i & 15
            byte = pool >> 8 * (nibble & 7) & 255
            result |= (255 if byte & 128 else 0 if nibble & 8 else byte) << 8 * i if nibble & 8 else byte << 8 * i
        want.append(result)
    same(apply("prmt.b32", a, b, c, result=u32), wrap(want, u32))
    both = [(int(y) << 32 | int(x)) for x, y in zip(a, b, strict=True)]
    same(
        apply("shf.l.wrap.b32", a, b, c, result=u32),
        wrap([n << (int(s) & 31) >> 32 for n, s in zip(both, c, strict=True)], u32),
    )
    same(
        apply("shf.r.clamp.b32", a, b, c, result=u32),
        wrap([n >> min(int(s), 32) for n, s in zip(both, c, strict=True)], u32),
    )
    names = {"%r1": a, "%r2": b, "%r3": c}
    got = each_lane("lop3.b32 %r0, %r1, %r2, %r3, 0xE2;", names, {"%r0": u32})["%r0"]
    np.testing.assert_array_equal(got, _lop(a, b, c, 0xE2))
    got = each_lane("dp4a.s32.u32 %r0, %r1, %r2, %r3;", names, {"%r0": u32})["%r0"]
    products = a.view(np.int8).reshape(-1, 4).astype(int) * b.view(np.uint8).reshape(-1, 4)
    np.testing.assert_array_equal(got, (products.sum(1) + c.view(np.int32)).astype(u32))


def _lop(a: np.ndarray, b: np.ndarray, c: np.ndarray, table: int) -> np.ndarray:
    result = np.zeros(len(a), np.uint32)
    for bit in range(32):
        row = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1)
        result |= (table >> row & 1).astype(np.uint32) << np.uint32(bit)
    return result


def test_carries() -> None:
    u64 = np.dtype(np.uint64)
    a, b = values(u64, 1), values(u64, 2)
    code = "add.cc.u64 %d3, %d1, %d2; addc.u64 %d4, %d1, %d2; sub.cc.u64 %d5, %d1, %d2; subc.u64 %d6, %d1, %d2;"
    got = each_lane(code, {"%d1": a, "%d2": b}, {f"%d{i}": u64 for i in (3, 4, 5, 6)})
    pairs = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    same(got["%d3"], wrap([x + y for x, y in pairs], u64))
    same(got["%d4"], wrap([x + y + (x + y >> 64) for x, y in pairs], u64))
    same(got["%d5"], wrap([x - y for x, y in pairs], u64))
    same(got["%d6"], wrap([x - y - (x < y) for x, y in pairs], u64))


# Floats ---------------------------------------------------------------------------------------------------------------

FLOAT_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add.rn": np.add, "sub.rn": np.subtract, "mul.rn": np.multiply, "div.rn": np.divide, "min": np.fmin, "max": np.fmax,
    "min.NaN": np.minimum, "max.NaN": np.maximum,
}  # fmt: skip


#: PTX has no division of 16-bit floats, and no such extrema of f64.
MISSING = {("div.rn", "f16"), ("div.rn", "bf16"), ("min.NaN", "f64"), ("max.NaN", "f64")}


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in FLOAT_OPERATIONS for kind in FLOATS if (name, kind) not in MISSING]
)
def test_floats(name: str, kind: str) -> None:
    dtype = FLOATS[kind]
    a, b = values(dtype, 1), values(dtype, 2)
    with np.errstate(all="ignore"):
        wide = np.float64 if kind == "f64" else np.float32
        want = FLOAT_OPERATIONS[name](a.astype(wide), b.astype(wide)).astype(dtype)
    zeros = (a.astype(wide) == 0) & (b.astype(wide) == 0)
    got = apply(f"{name}.{kind}", a, b, result=dtype)
    if name.startswith(("min", "max")):
        signs = np.signbit(a.astype(wide)), np.signbit(b.astype(wide))
        negative = signs[0] | signs[1] if name.startswith("min") else signs[0] & signs[1]
        np.testing.assert_array_equal(np.signbit(got.astype(wide))[zeros], negative[zeros])
        got, want = got[~zeros], want[~zeros]
    same(got, want)


def exact_fma(a: float, b: float, c: float, dtype: np.dtype) -> float:
    """a * b + c rounded once, by rational numbers; NaN stands for what isn't finite."""
    if not all(map(math.isfinite, (a, b, c))):
        return math.nan
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return math.nan
    bits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype.name]
    least = {"float16": -24, "bfloat16": -133, "float32": -149, "float64": -1074}[dtype.name]
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    exponent = exponent if abs(exact) >= Fraction(2) ** exponent else exponent - 1
    unit = Fraction(2) ** max(exponent - bits + 1, least)
    scaled = exact / unit
    rounded = scaled.numerator // scaled.denominator
    rest = scaled - rounded
    rounded += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and rounded % 2 == 1)
    try:
        return float(rounded * unit)
    except OverflowError:
        return math.copysign(math.inf, rounded)


@pytest.mark.parametrize("kind", FLOATS)
def test_fma_rounds_once(kind: str) -> None:
    dtype = FLOATS[kind]
    rng = np.random.default_rng(3)
    a, b, c = (values(dtype, seed, tame=True) for seed in (1, 2, 3))
    # Sums that lie close to the middle between two numbers.
    unit = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}[kind]
    a[:100], c[:100] = 1 + unit * 2 * rng.integers(0, 8, 100), 1
    b[:100] = unit * (1 + 2 * unit * rng.integers(-2, 3, 100))
    got = apply(f"fma.rn.{kind}", a, b, c, result=dtype)
    want = np.array([exact_fma(float(x), float(y), float(z), dtype) for x, y, z in zip(a, b, c, strict=True)])
    with np.errstate(all="ignore"):
        want = want.astype(dtype)
    known = want == want
    same(got[known], want[known])
    assert known.sum() > COUNT // 2


@pytest.mark.parametrize("sign", [1, -1])
def test_fma_where_rounding_twice_differs(sign: int) -> None:
    """The sum lies just below the middle between two f32 numbers, and in f64 on it."""
    unit = 2.0**-23
    a, b, c = (np.full(1, sign * x, np.float32) for x in ((1 + unit) / 4096, (1 - unit) / 4096, 1 + unit))
    got = apply("fma.rn.f32", a, np.abs(b), c, result=FLOATS["f32"])
    assert got[0] == np.float32(sign * (1 + unit))


def test_fma_of_corners() -> None:
    a, b = values(FLOATS["f32"], 1), values(FLOATS["f32"], 2)
    c = np.roll(a, 5)
    with np.errstate(all="ignore"):
        want = (a.astype(np.float64) * b + c).astype(np.float32)
        risky = (a.astype(np.float64) * b + c).view(np.uint64) << np.uint64(35) == np.uint64(1 << 63)
    keep = ~risky & ~(np.abs(want) < 2.0**-125)
    same(apply("fma.rn.f32", a, b, c, result=FLOATS["f32"])[keep], want[keep])


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_pairs(kind: str) -> None:
    dtype = FLOATS[kind[:-2]]
    a, b, c = (values(np.dtype(np.uint32), seed) for seed in (1, 2, 3))
    x, y, z = (v.view(dtype).astype(np.float32) for v in (a, b, c))
    with np.errstate(all="ignore"):
        for name, want in (("add.rn", x + y), ("mul.rn", x * y), ("max.NaN", np.maximum(x, y))):
            got = apply(f"{name}.{kind}", a, b, result=np.dtype(np.uint32)).view(dtype)
            zero = want == 0
            same(got[~zero], want.astype(dtype)[~zero])
        got = apply(f"fma.rn.{kind}", a, b, c, result=np.dtype(np.uint32)).view(dtype)
        near = (x.astype(np.float64) * y + z).astype(np.float32).astype(dtype).astype(np.float32)
    finite = np.isfinite(near) & np.isfinite(got.astype(np.float32))
    np.testing.assert_allclose(got.astype(np.float32)[finite], near[finite], rtol=2e-2, atol=1e-7)


UNARY = {
    "sqrt.rn": np.sqrt, "rcp.rn": lambda x: 1 / x, "ex2.approx": np.exp2, "lg2.approx": np.log2, "sin.approx": np.sin,
    "cos.approx": np.cos, "tanh.approx": np.tanh, "rsqrt.approx": lambda x: 1 / np.sqrt(x), "neg": np.negative,
    "abs": np.abs,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_f32(name: str) -> None:
    x = np.concatenate([values(np.dtype(np.float32), 1, tame=True), corners(np.dtype(np.float32))])
    with np.errstate(all="ignore"):
        want = UNARY[name](x.astype(np.float64)).astype(np.float32)
    same(apply(f"{name}.f32", x, result=np.dtype(np.float32)), want)


def test_flushing_to_zero() -> None:
    tiny = np.array([1e-40, -1e-40, 1e-38, 2e-38, 1.0], np.float32)
    got = apply("add.ftz.f32", tiny, tiny, result=np.dtype(np.float32))
    np.testing.assert_array_equal(got, np.array([0, -0.0, 0, 4e-38, 2], np.float32))
    assert np.signbit(got[1])
    same(apply("add.f32", tiny, tiny, result=np.dtype(np.float32)), tiny + tiny)


def test_saturation() -> None:
    x = np.array([-1, 0.25, 2, np.nan], np.float32)
    got = apply("add.sat.f32", x, np.zeros(4, np.float32), result=np.dtype(np.float32))
    np.testing.assert_array_equal(got, np.array([0, 0.25, 1, 0], np.float32))


# Comparisons ----------------------------------------------------------------------------------------------------------

ORDERED = {"eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_comparisons_of_floats(kind: str) -> None:
    dtype = FLOATS[kind]
    a, b = values(dtype, 1), values(dtype, 2)
    b[::3] = a[::3]
    x, y = a.astype(np.float64), b.astype(np.float64)
    nan = (x != x) | (y != y)
    for name, function in ORDERED.items():
        same(apply(f"setp.{name}.{kind}", a, b, result=bool), function(x, y))
        same(apply(f"setp.{name}u.{kind}", a, b, result=bool), function(x, y) | nan)
    same(apply(f"setp.ne.{kind}", a, b, result=bool), (x != y) & ~nan)
    same(apply(f"setp.neu.{kind}", a, b, result=bool), x != y)
    same(apply(f"setp.nan.{kind}", a, b, result=bool), nan)
    same(apply(f"setp.num.{kind}", a, b, result=bool), ~nan)


@pytest.mark.parametrize("kind", INTEGERS)
def test_comparisons_of_integers(kind: str) -> None:
    a, b = values(INTEGERS[kind], 1), values(INTEGERS[kind], 2)
    b[::3] = a[::3]
    for name, function in {**ORDERED, "ne": np.not_equal}.items():
        same(apply(f"setp.{name}.{kind}", a, b, result=bool), function(a, b))


def test_two_results_and_combinations() -> None:
    a, b = values(np.dtype(np.int32), 1), values(np.dtype(np.int32), 2)
    c = RNG.integers(0, 2, len(a)).astype(bool)
    sources = {"%r1": raw(a), "%r2": raw(b), "%p3": c}
    got = each_lane("setp.lt.and.s32 %p0|%p1, %r1, %r2, !%p3;", sources, {"%p0": bool, "%p1": bool})
    np.testing.assert_array_equal(got["%p0"], (a < b) & ~c)
    np.testing.assert_array_equal(got["%p1"], ~(a < b) & ~c)
    got = each_lane("selp.b32 %r0, %r1, %r2, %p3; @!%p3 mov.b32 %r0, 5;", sources, {"%r0": np.int32})
    np.testing.assert_array_equal(got["%r0"], np.where(c, a, 5))


# Conversions ----------------------------------------------------------------------------------------------------------

ROUNDINGS = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", INTEGERS)
def test_floats_to_integers(source: str, target: str) -> None:
    dtype, to = FLOATS[source], INTEGERS[target]
    x = np.concatenate([values(dtype, 1), values(dtype, 2, tame=True)])
    wide = x.astype(np.float64)
    info = np.iinfo(to)
    for mode, function in ROUNDINGS.items():
        rounded = function(wide)
        want = []
        for number in rounded:
            if number != number:
                # By PTX: 0, or the upper bit where one of the types has 64 bits.
                want.append(1 << to.itemsize * 8 - 1 if source == "f64" or to.itemsize == 8 else 0)
            else:
                want.append(int(min(max(Fraction(number), info.min), info.max)) if math.isfinite(number) else
                            (info.max if number > 0 else info.min))  # fmt: skip
        same(apply(f"cvt.{mode}.{target}.{source}", x, result=to), wrap(want, to))


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", FLOATS)
def test_integers_to_floats(source: str, target: str) -> None:
    x = values(INTEGERS[source], 1)
    want = []
    for number in x:
        rounded = exact_fma(1.0, 0.0, 0.0, FLOATS[target]) if number == 0 else _round(int(number), FLOATS[target])
        want.append(0.0 if number == 0 else rounded)
    with np.errstate(over="ignore"):
        same(apply(f"cvt.rn.{target}.{source}", x, result=FLOATS[target]), np.array(want).astype(FLOATS[target]))


def _round(number: int, dtype: np.dtype) -> float:
    bits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype.name]
    extra = abs(number).bit_length() - bits
    if extra <= 0:
        return float(number)
    half, magnitude = 1 << extra - 1, abs(number)
    kept, rest = magnitude >> extra, magnitude & (1 << extra) - 1
    kept += rest > half or (rest == half and kept % 2 == 1)
    return math.copysign(float(kept << extra), number)


def test_between_floats() -> None:
    wide = np.concatenate([values(np.dtype(np.float32), 1), values(np.dtype(np.float32), 2, tame=True)])
    with np.errstate(all="ignore"):
        same(apply("cvt.rn.f16.f32", wide, result=FLOATS["f16"]), wide.astype(np.float16))
        same(apply("cvt.rn.bf16.f32", wide, result=BF16), wide.astype(BF16))
        same(apply("cvt.f64.f32", wide, result=FLOATS["f64"]), wide.astype(np.float64))
        double = values(np.dtype(np.float64), 1)
        same(apply("cvt.rn.f32.f64", double, result=FLOATS["f32"]), double.astype(np.float32))
    half = values(np.dtype(np.float16), 1)
    same(apply("cvt.f32.f16", half, result=FLOATS["f32"]), half.astype(np.float32))
    brain = values(BF16, 1)
    same(apply("cvt.f32.bf16", brain, result=FLOATS["f32"]), brain.astype(np.float32))
    for mode, function in ROUNDINGS.items():
        same(apply(f"cvt.{mode}.f32.f32", wide, result=FLOATS["f32"]), function(wide))


def test_directed_roundings() -> None:
    x = values(np.dtype(np.float64), 2, tame=True)
    exact = [Fraction(v) for v in x]
    for mode, test in (("rz", lambda g, e: abs(g) <= abs(e)), ("rm", lambda g, e: g <= e), ("rp", lambda g, e: g >= e)):
        got = apply(f"cvt.{mode}.f32.f64", x, result=FLOATS["f32"])
        assert all(test(Fraction(float(g)), e) for g, e in zip(got, exact, strict=True))
        assert np.all(np.abs(got.astype(np.float64) - x) <= np.spacing(np.abs(got)).astype(np.float64) * 1.0001)


def test_pairs_from_f32() -> None:
    a, b = values(np.dtype(np.float32), 1, tame=True), values(np.dtype(np.float32), 2, tame=True)
    sources = {"%r1": raw(a), "%r2": raw(b)}
    got = each_lane("cvt.rn.bf16x2.f32 %r0, %r1, %r2;", sources, {"%r0": np.uint32})["%r0"].view(BF16).reshape(-1, 2)
    same(np.ascontiguousarray(got[:, 0]), b.astype(BF16))
    same(np.ascontiguousarray(got[:, 1]), a.astype(BF16))
    got = each_lane("cvt.rn.satfinite.e4m3x2.f32 %h0, %r1, %r2;", sources, {"%h0": np.uint16}, "sm_89")["%h0"]
    want = np.clip(b, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    np.testing.assert_array_equal(got.view(np.uint8).reshape(-1, 2)[:, 0], want)
    got = each_lane("cvt.rna.tf32.f32 %r0, %r1;", {"%r1": raw(a)}, {"%r0": np.uint32})["%r0"].view(np.float32)
    assert not (raw(got) & 0x1FFF).any()
    assert np.all(np.abs(got - a) <= np.abs(a) * 2.0**-11)


def test_narrow_integers() -> None:
    x = values(np.dtype(np.int32), 1)
    same(apply("cvt.s32.s8", raw(x), result=np.dtype(np.int32)), x.astype(np.int8).astype(np.int32))
    same(apply("cvt.u32.u16", x.astype(np.uint16), result=np.dtype(np.uint32)), x.astype(np.uint16).astype(np.uint32))
    same(apply("cvt.sat.s8.s32", x, result=np.dtype(np.int32)), np.clip(x, -128, 127))
    same(apply("cvt.s64.s32", x, result=np.dtype(np.int64)), x.astype(np.int64))
    same(apply("cvt.u32.u64", x.astype(np.int64).view(np.uint64), result=np.dtype(np.uint32)), raw(x))


def test_moves_of_parts() -> None:
    a, b = values(np.dtype(np.uint32), 1), values(np.dtype(np.uint32), 2)
    code = "mov.b64 %d0, {%r1, %r2}; mov.b64 {_, %r3}, %d0; mov.b32 {%h1, %h2}, %r1; mov.b32 %r4, {%h2, %h1};"
    results = {"%d0": np.uint64, "%r3": np.uint32, "%r4": np.uint32}
    got = each_lane(code, {"%r1": a, "%r2": b}, results)
    np.testing.assert_array_equal(got["%d0"], a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32))
    np.testing.assert_array_equal(got["%r3"], b)
    np.testing.assert_array_equal(got["%r4"], a >> np.uint32(16) | a << np.uint32(16))
