# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights whose scales are tensors: quantisers, decoders by definition, products interpreted and compiled."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import Program, check, compile_fresh, every

from rlx_mlir import GraphModule, Value, interpret
from rlx_mlir.errors import BuildError, InputError
from rlx_mlir.formats import ScaledWeight, decode_scaled, quantize_scaled, scaled_scheme

SCHEMES = ("int8/16", "int8a/16", "int4/16", "fp8e4m3", "fp8e5m2", "nvfp4")
LARGEST = np.finfo(np.float32).max


def random_weight(scheme: str, k: int, n: int, seed: int = 0) -> ScaledWeight:
    """Random codes, among them NaN, with scales of ordinary size; infinities apart, which make sums meaningless."""
    rng = np.random.default_rng([seed, k, n])
    kind = scaled_scheme(scheme)
    codes = rng.integers(-128, 128, kind.code_shape(k, n)).astype(np.int8)
    if kind.word == "fp8e5m2":
        codes[(codes & 0x7F) == 0x7C] = 0x7D  # infinity becomes NaN
    shape = kind.scale_shape(k, n)
    scale: Any = rng.uniform(-0.1, 0.1, shape).astype(np.float32)
    if kind.word == "nvfp4":
        stored = rng.integers(-128, 128, shape).astype(np.int8)
        return ScaledWeight(kind, k, n, codes, stored, global_scale=np.array([0.015], np.float32))
    zero_point = rng.integers(-9, 10, shape).astype(np.float32) + 0.25 if kind.word == "int8a" else None
    return ScaledWeight(kind, k, n, codes, scale, zero_point)


def by_definition(w: ScaledWeight) -> np.ndarray:
    """The decoded weight, element by element, from the documented formulas."""

    def fp8(byte: int, exponents: int, mantissas: int) -> float:
        sign = -1.0 if byte & 0x80 else 1.0
        exponent, mantissa = (byte >> mantissas) & ((1 << exponents) - 1), byte & ((1 << mantissas) - 1)
        bias = (1 << (exponents - 1)) - 1
        if exponents == 4 and byte & 0x7F == 0x7F:
            return 0.0
        if exponents == 5 and exponent == 31:
            return 0.0 if mantissa else sign * np.inf
        if exponent == 0:
            return sign * mantissa * 2.0 ** (1 - bias - mantissas)
        return sign * (1 + mantissa / (1 << mantissas)) * 2.0 ** (exponent - bias)

    def nibble(f: int) -> int:
        byte = int(w.codes[f // 2]) & 0xFF
        return byte >> 4 if f % 2 else byte & 15

    word, block = w.scheme.word, w.scheme.block
    out = np.zeros((w.k, w.n), np.float32)
    for k in range(w.k):
        for n in range(w.n):
            if block is None:
                exponents = 4 if word == "fp8e4m3" else 5
                value = np.float32(fp8(int(w.codes[k, n]) & 0xFF, exponents, 7 - exponents)) * w.scale[n]
            elif word == "nvfp4":
                assert w.global_scale is not None
                code = nibble(k * w.n + n)
                number = [0, 0.5, 1, 1.5, 2, 3, 4, 6][code & 7] * (-1 if code & 8 else 1)
                scale = np.float32(fp8(int(w.scale[k // 16, n]) & 0xFF, 4, 3))
                value = np.float32(number) * scale * w.global_scale[0]
            else:
                q = nibble(k * w.n + n) if word == "int4" else int(w.codes[k, n])
                q = q - 16 if word == "int4" and q >= 8 else q
                zero = np.float32(0) if w.zero_point is None else w.zero_point[k // block, n]
                value = (np.float32(q) - zero) * w.scale[k // block, n]
            out[k, n] = value
    return out


# ----------------------------------------------------------------------------------------------------------------------
# Decoders and quantisers
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", [*SCHEMES, "int8/1", "int4/7", "int8a/100"])
@pytest.mark.parametrize(("k", "n"), [(1, 1), (37, 5), (64, 6), (33, 17)])
def test_decode_follows_its_definition(scheme: str, k: int, n: int) -> None:
    weight = random_weight(scheme, k, n)
    np.testing.assert_array_equal(weight.decode(), by_definition(weight))


@pytest.mark.parametrize(
    ("scheme", "dtype", "most"),
    [("fp8e4m3", ml_dtypes.float8_e4m3fn, 448), ("fp8e5m2", ml_dtypes.float8_e5m2, 57344)],
)
def test_every_code_of_fp8(scheme: str, dtype: Any, most: float) -> None:
    codes = np.arange(256, dtype=np.uint8).reshape(256, 1)
    got = decode_scaled(scheme, codes, np.ones(1, np.float32), k=256, n=1)
    want = codes.view(dtype).astype(np.float32)
    nans = np.isnan(want)
    assert nans.sum() == (2 if scheme == "fp8e4m3" else 6)
    np.testing.assert_array_equal(got, np.where(nans, np.float32(0), want))
    assert got[np.isfinite(got)].max() == most
    doubled = decode_scaled(scheme, codes, np.full(1, 2, np.float32), k=256, n=1)
    np.testing.assert_array_equal(doubled, 2 * got)


def test_every_code_of_nvfp4() -> None:
    codes = np.array([lo | (lo + 1) << 4 for lo in range(0, 16, 2)], np.uint8)
    scale = np.array([[0x38]], np.uint8)  # 1
    got = decode_scaled("nvfp4", codes, scale, global_scale=np.array([0.5], np.float32), k=16, n=1)
    magnitudes = np.array([0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3], np.float32)
    np.testing.assert_array_equal(got[:, 0], np.concatenate([magnitudes, -magnitudes]))
    broken = np.array([[0x7F]], np.uint8)  # NaN
    assert not decode_scaled("nvfp4", codes, broken, global_scale=np.ones(1, np.float32), k=16, n=1).any()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("k", "n"), [(1, 1), (37, 5), (64, 6)])
def test_quantising_is_off_by_half_a_step(scheme: str, k: int, n: int) -> None:
    x = np.random.default_rng(1).standard_normal((k, n)).astype(np.float32)
    x[:, 0] *= 40
    weight = quantize_scaled(scheme, x)
    assert weight.codes.shape == weight.scheme.code_shape(k, n)
    assert weight.scale.shape == weight.scheme.scale_shape(k, n)
    error = np.abs(weight.decode() - x)
    block = weight.scheme.block or k
    blocks = np.repeat(np.stack([np.abs(x[i : i + block]).max(0) for i in range(0, k, block)]), block, axis=0)[:k]
    if weight.scheme.word in ("int8", "int8a", "int4"):
        assert (
            error <= blocks * {"int8": 0.5 / 127, "int8a": 1.01 / 127.5, "int4": 0.5 / 7}[weight.scheme.word] * 1.001
        ).all()
    else:  # relative to the number, with a floor for those without exponent
        relative, least = {"fp8e4m3": (1 / 16, 2**-10 / 448), "fp8e5m2": (1 / 8, 0), "nvfp4": (1 / 4, 0.25 / 6)}[
            weight.scheme.word
        ]
        assert (error <= 1.08 * (relative * np.abs(x) + least * blocks) + 1e-7).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_quantising_what_was_quantised_changes_nothing(scheme: str) -> None:
    x = np.random.default_rng(2).standard_normal((40, 6)).astype(np.float32)
    once = quantize_scaled(scheme, x).decode()
    np.testing.assert_allclose(quantize_scaled(scheme, once).decode(), once, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_edges_of_quantisers(scheme: str) -> None:
    x = np.zeros((48, 6), np.float32)
    x[:, 1] = -0.0
    x[:16, 2] = LARGEST
    x[16:32, 2] = -LARGEST
    x[::2, 3], x[1::2, 3] = LARGEST, -LARGEST
    decoded = quantize_scaled(scheme, x).decode()
    assert np.isfinite(decoded).all()
    assert not decoded[:, [0, 1, 4, 5]].any()
    np.testing.assert_allclose(decoded[:, 2:4], x[:, 2:4], rtol=0.005)
    small = np.zeros((32, 3), np.float32)
    small[:, 0], small[::3, 1], small[1, 2] = 1e-40, -3e-39, 1e-45
    decoded = quantize_scaled(scheme, small).decode()
    assert np.isfinite(decoded).all()
    assert np.abs(decoded - small).max() <= 1e-40, "a subnormal scale has few bits"
    assert quantize_scaled(scheme, np.zeros((0, 3), np.float32)).decode().shape == (0, 3)
    assert quantize_scaled(scheme, np.zeros((3, 0), np.float32)).decode().shape == (3, 0)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_named(scheme: str, value: float) -> None:
    x = np.ones((9, 4), np.float32)
    x[7, 2] = value
    with pytest.raises(InputError, match=rf"holds finite f32 values, but values\[7, 2\] is {value}"):
        quantize_scaled(scheme, x)
    with pytest.raises(InputError, match=r"values\[1, 0\] is 1e\+300"):
        quantize_scaled(scheme, np.array([[1.0], [1e300]]))


def test_rounding_of_codes() -> None:
    """Integers away from zero, floats to even."""
    x = np.array([[127], [0.5], [-0.5], [1.5], [-2.5]], np.float32)
    np.testing.assert_array_equal(quantize_scaled("int8/8", x).codes[:, 0], [127, 1, -1, 2, -3])
    halves = np.array([[6], [0.25], [0.75], [1.25], [1.75], [2.5], [3.5], [-5], [5.1]], np.float32)
    decoded = quantize_scaled("nvfp4", halves * 448).decode()[:, 0] / 448
    np.testing.assert_array_equal(decoded, [6, 0, 1, 1, 2, 2, 4, -4, 6])
    eight = np.array([[448], [17], [19], [-17]], np.float32)
    np.testing.assert_array_equal(quantize_scaled("fp8e4m3", eight).decode()[:, 0], [448, 16, 20, -16])


def test_texts_of_schemes() -> None:
    assert [str(scaled_scheme(text)) for text in (*SCHEMES, "nvfp4/16")] == [*SCHEMES[:-1], "nvfp4/16", "nvfp4/16"]
    for wrong in ("int8", "int8/0", "int8/-1", "int4/x", "fp8e4m3/8", "nvfp4/32", "q4_0", ""):
        with pytest.raises(InputError, match=f"unknown scheme '{wrong}', known are int8/B"):
            scaled_scheme(wrong)
    with pytest.raises(InputError, match=r"'codes' of int4/16 is \[8\] for \[5, 3\], but is \[7\]"):
        decode_scaled("int4/16", np.zeros(7, np.int8), np.zeros((1, 3), np.float32), k=5, n=3)
    with pytest.raises(InputError, match="int8/16 has no 'zero_point'"):
        decode_scaled("int8/16", *[np.zeros((1, 1), np.int8)] * 3, k=1, n=1)
    with pytest.raises(InputError, match="nvfp4/16 has a 'global_scale'"):
        decode_scaled("nvfp4", np.zeros(1, np.int8), np.zeros((1, 1), np.int8), k=1, n=1)


# ----------------------------------------------------------------------------------------------------------------------
# Products
# ----------------------------------------------------------------------------------------------------------------------


def product(p: Program, name: str, x: Value, weight: ScaledWeight, *, primitive: bool = False) -> Value:
    """The product with a weight whose parts are parameters."""
    m = p.m.primitives if primitive else p.m

    def param(what: str, array: np.ndarray) -> Value:
        dtype = "i8" if array.dtype == np.int8 else "f32"
        return p.param(f"{name}_{what}", array.shape, dtype, lambda rng, shape: array)

    codes, scale = param("codes", weight.codes), param("scale", weight.scale)
    if weight.global_scale is not None:
        return m.dequant_matmul_nvfp4(x, codes, scale, param("global", weight.global_scale))
    zp = None if weight.zero_point is None else param("zp", weight.zero_point)
    return m.dequant_matmul(x, codes, scale, zp, str(weight.scheme))


#: K and N: odd, fewer rows than are decoded at a time, whole and broken chunks, rows of nibbles across bytes, empty.
SIZES = [(1, 1), (37, 5), (64, 6), (95, 17), (16, 1), (0, 3), (5, 0)]


@pytest.mark.parametrize(("stage", "schemes"), [("hir", SCHEMES[:3]), ("mir", SCHEMES[3:])])
@pytest.mark.quick(1)
def test_compiled_products(stage: str, schemes: tuple[str, ...]) -> None:
    p = Program(stage)
    inputs = {k: p.input(f"x{k}", ["m", k]) for k, _ in SIZES}
    stacked = p.input("stacked", [2, "m", 37])
    for scheme in schemes:
        word = scaled_scheme(scheme).word
        for k, n in SIZES:
            weight = random_weight(scheme, k, n)
            p.output(**{f"{word}_{k}_{n}": product(p, f"{word}{k}", inputs[k], weight, primitive=stage == "mir")})
        p.output(**{f"{word}_stacked": product(p, f"{word}_stacked", stacked, random_weight(scheme, 37, 5, seed=1))})
    check(p, every(m=[5, 0, 1]), maxima={"m": 5}, templates={"generic"})


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
@pytest.mark.quick(1)
def test_other_types_of_activations(dtype: str) -> None:
    p = Program()
    x = p.input("x", ["m", 37], dtype)
    for scheme in SCHEMES:
        word = scaled_scheme(scheme).word
        p.output(**{word: product(p, word, x, random_weight(scheme, 37, 5))})
    check(p, [{"m": 3}], maxima={"m": 3}, level=0)  # what LLVM does is tested with f32


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.quick(4)
def test_compiled_elements_are_decoded_bit_for_bit(scheme: str) -> None:
    """The product with the unit matrix is the weight: every code, and scales of every kind with nvfp4."""
    k, n = 256, 3
    kind = scaled_scheme(scheme)
    weight = random_weight(scheme, k, n)
    if kind.nibbles:
        weight.codes[:256] = np.arange(256, dtype=np.uint8).view(np.int8)
    else:
        weight.codes[:, 1] = np.arange(256, dtype=np.uint8).view(np.int8)
        if kind.word == "fp8e5m2":
            weight.codes[[0x7C, 0xFC], 1] = 0
    p = Program("mir")
    p.output(y=product(p, "w", p.input("x", [k, k]), weight))
    executable = compile_fresh(p.finish())
    executable.set_params(p.values({})[1])
    unit = np.eye(k, dtype=np.float32)
    np.testing.assert_array_equal(executable.run({"x": unit})["y"], weight.decode())


def test_infinities_of_fp8e5m2_stay() -> None:
    p = Program("mir")
    codes = np.array([[0x7C, 0xFC, 0x7D, 0x3C]], np.uint8).view(np.int8)
    p.output(
        y=product(
            p, "w", p.input("x", [1, 1]), ScaledWeight(scaled_scheme("fp8e5m2"), 1, 4, codes, np.ones(4, np.float32))
        )
    )
    executable = compile_fresh(p.finish())
    executable.set_params(p.values({})[1])
    np.testing.assert_array_equal(executable.run({"x": np.ones((1, 1), np.float32)})["y"], [[np.inf, -np.inf, 0, 1]])


def test_fp8_without_scale() -> None:
    m = GraphModule.hir("plain")
    codes = np.array([[0x38, 0xB8], [0x40, 0x30]], np.uint8).view(np.int8)
    m.set_outputs({"y": m.dequant_matmul(m.input("x", [1, 2]), m.param("w", [2, 2], "i8"), scheme="fp8e4m3")})
    found = interpret(m, {"x": np.array([[1, 2]], np.float32), "w": codes})["y"]
    np.testing.assert_array_equal(found, [[5, 0]])


def test_the_weight_is_decoded_in_parts() -> None:
    """The kernel's memory holds 32 rows of the decoded weight, not all of it."""
    p = Program("mir")
    k, n = 1024, 5000
    p.output(y=product(p, "w", p.input("x", [1, k]), random_weight("int4/32", k, n)))
    plan = compile_fresh(p.finish())._plan
    assert plan.arena_bytes + plan.scratch_bytes < 2 * 32 * n * 4


def test_mistakes_are_named() -> None:
    m = GraphModule.hir("wrong")
    x, w, s = m.input("x", ["m", 32]), m.param("w", [32, 4], "i8"), m.param("s", [2, 4])
    with pytest.raises(BuildError, match="expects 'scale' to be \\[1, 4\\] x f32 with int8, K = 32 and N = 4"):
        m.dequant_matmul(x, w, s, scheme="int8/32")
    with pytest.raises(BuildError, match="expects 'zero_point' with int8a"):
        m.dequant_matmul(x, w, s, scheme="int8a/16")
    with pytest.raises(BuildError, match="has no 'zero_point' with int8"):
        m.dequant_matmul(x, w, s, s, scheme="int8/16")
    with pytest.raises(BuildError, match="'dequant_matmul' takes 'scale' and 'zp' with a 'scheme' only"):
        m.dequant_matmul(x, w, s)
    with pytest.raises(BuildError, match="'dequant_matmul' needs a 'scale' with int4/16"):
        m.dequant_matmul(x, w, scheme="int4/16")
    with pytest.raises(BuildError, match="unknown scheme 'int3/16', known are int8/B"):
        m.dequant_matmul(x, w, s, scheme="int3/16")
    with pytest.raises(BuildError, match="have a builder of their own, 'dequant_matmul_nvfp4'"):
        m.dequant_matmul(x, w, s, scheme="nvfp4")
    with pytest.raises(BuildError, match=r"expects 'weight' to be \[64\] x i8 with nvfp4, K = 32 and N = 4"):
        m.dequant_matmul_nvfp4(x, w, m.param("b", [2, 4], "i8"), m.param("g", [1]))


def test_blocks_are_named_by_their_scheme() -> None:
    m = GraphModule.hir("named")
    y = m.dequant_matmul(m.input("x", ["m", 32]), m.param("w", [32, 4], "i8"), m.param("s", [2, 4]), scheme="int8/16")
    m.set_outputs({"y": y})
    (node,) = [node for node in m.lower().nodes() if node.op == "mir.dequant_matmul_scaled"]
    assert node.name == "dequant_matmul(int8/16)"


def test_quantised_products_are_close() -> None:
    """From floats to results: the error of the product is that of the weight."""
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((4, 96)).astype(np.float32), rng.standard_normal((96, 24)).astype(np.float32)
    for scheme, error in (("int8/32", 0.006), ("int8a/32", 0.006), ("int4/32", 0.12), ("fp8e4m3", 0.04),
                          ("fp8e5m2", 0.08), ("nvfp4", 0.13)):  # fmt: skip
        p = Program()
        p.output(y=product(p, "w", p.input("x", [4, 96]), quantize_scaled(scheme, w)))
        found = interpret(p.finish(), {"x": x, **p.values({})[1]})["y"]
        relative = np.linalg.norm(found - x @ w) / np.linalg.norm(x @ w)
        assert error / 4 < relative < error, (scheme, relative)
