# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of 8 bits with given scales, their products, and what stands for them in training: by definition,
interpreted, and compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from compile_harness import compile_fresh, templates_of
from cuda_harness import emulated_device

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import BuildError, InputError
from rlx_mlir.mir.numerics import accumulator

LARGEST = {8: 127, 4: 7, 2: 1}
SCALES, ZERO_POINTS = [0.25, 0.1, 3.0], [0, -128, 5]
ESTIMATORS = ("identity", "clipped_identity", "tanh", "hard_tanh")
#: Of the dynamic dimensions: none, one, odd, and around the width of vectors.
SIZES = [(0, 4), (2, 0), (1, 1), (3, 7), (2, 8), (5, 9), (2, 33)]


def away(x: np.ndarray) -> np.ndarray:
    """Half away from zero, in f64, where adding a half to a number of f32 is exact."""
    wide = np.abs(x.astype(np.float64))
    floor = np.floor(wide)
    with np.errstate(invalid="ignore"):
        near = floor + (wide - floor >= 0.5)
    return np.where(np.isinf(wide), x, np.copysign(near, x)).astype(x.dtype)


def column(numbers: Any, axis: int | None, rank: int, dtype: Any) -> np.ndarray:
    array = np.asarray(numbers, dtype)
    return array.reshape([-1 if axis is not None and dim == axis % rank else 1 for dim in range(rank)])


def bytes_of(x: np.ndarray, zero: Any) -> np.ndarray:
    """Rounded floats with a zero point added, element by element in integers of any size."""
    whole = [0 if math.isnan(v) else int(max(-1e9, min(1e9, v))) for v in away(x).ravel().tolist()]
    zeros = np.broadcast_to(zero, x.shape).ravel().tolist()
    cut = [max(-128, min(127, v + z)) for v, z in zip(whole, zeros, strict=True)]
    return np.array(cut, np.int8).reshape(x.shape)


def by_definition(x: np.ndarray, g: np.ndarray, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What `every_operation` gives."""
    wide, gradient = x.astype(accumulator(x.dtype)), g.astype(accumulator(x.dtype))
    own, rank = wide.dtype.type, x.ndim
    many = [column(list_, 1, rank, type) for list_, type in ((SCALES, np.float32), (ZERO_POINTS, np.int64))]
    found = {
        "one": bytes_of(wide * (1 / own(np.float32(0.1))), 3),
        "many": bytes_of(wide * (1 / many[0].astype(own)), many[1]),
    }
    found["back"] = (found["one"].astype(np.float32) - 3) * np.float32(0.1)
    found["many_back"] = (found["many"].astype(np.float32) - many[1].astype(np.float32)) * many[0]

    def rounded(scale: np.ndarray, bits: int) -> np.ndarray:
        s = scale.astype(own)
        return (np.clip(away(wide / s), -LARGEST[bits], LARGEST[bits]) * s).astype(x.dtype)

    def current(bits: int, axes: tuple[int, ...]) -> np.ndarray:
        most = np.abs(wide).max(axis=axes, keepdims=True, initial=0).astype(np.float32)
        return np.maximum(most / np.float32(LARGEST[bits]), np.float32(1e-12))

    state, one = given["state"].reshape(1, 3, 1), given["one"].reshape(1, 1, 1)
    batch = current(8, (0, 1, 2))
    found |= {"batch": rounded(batch, 8), "batch_scale": batch.ravel()}
    cur, kept = current(4, (0, 2)), np.float32(0.9)
    moved = np.where(state <= 0, cur, kept * state + (np.float32(1) - kept) * cur)
    found |= {"ema": rounded(moved, 4), "ema_scale": moved.ravel()}
    fixed = np.maximum(one, np.float32(1e-12))
    found |= {"fixed": rounded(fixed, 2), "fixed_scale": fixed.ravel()}

    learned = np.maximum(state, np.float32(1e-12)).astype(own)
    ratio = wide / learned
    inside = np.abs(ratio) <= 7
    found["lsq"] = rounded(learned, 4)
    found["lsq_x"] = np.where(inside, gradient, 0).astype(x.dtype)
    terms = np.where(inside, away(ratio) - ratio, np.sign(ratio) * 7) * gradient
    found["lsq_scale"] = terms.astype(np.float64).sum(axis=(0, 2)).astype(np.float32)
    ratio = wide / fixed.astype(own)
    terms = np.where(np.abs(ratio) <= 127, away(ratio) - ratio, np.sign(ratio) * 127) * gradient
    found["lsq_one"] = terms.astype(np.float64).sum().astype(np.float32).reshape(1)

    s = batch.astype(own)
    slopes = {
        "identity": np.ones_like(wide),
        "clipped_identity": (np.abs(wide) <= 7 * s).astype(own),
        "tanh": 1 - np.tanh(wide / s) ** 2,
        "hard_tanh": np.maximum(1 - np.abs(wide / (7 * s)), 0),
    }
    return found | {ste: (gradient * slopes[ste]).astype(x.dtype) for ste in ESTIMATORS}


def every_operation(dtype: str, channels: int | str = 3) -> GraphModule:
    """All but the products, of x [n, channels, m]."""
    m = GraphModule.mir("every")
    x, g = (m.input(name, ["n", channels, "m"], dtype) for name in ("x", "g"))
    state, one = m.input("state", [3]), m.input("one", [1])
    found = {"one": m.quantize(x, 0.1, 3), "many": m.quantize_per_channel(x, SCALES, ZERO_POINTS, axis=1)}
    found["back"] = m.dequantize(found["one"], 0.1, 3)
    found["many_back"] = m.dequantize_per_channel(found["many"], SCALES, ZERO_POINTS, axis=-2)
    found["batch"], found["batch_scale"] = m.fake_quantize(x)
    found["ema"], found["ema_scale"] = m.fake_quantize(x, state, bits=4, axis=1, scale_mode="ema", decay=0.9)
    found["fixed"], found["fixed_scale"] = m.fake_quantize(x, one, bits=2, scale_mode="fixed")
    found["lsq"] = m.fake_quantize_lsq(x, state, bits=4, axis=-2)
    found["lsq_x"] = m.fake_quantize_lsq_backward_x(x, state, g, bits=4, axis=1)
    found["lsq_scale"] = m.fake_quantize_lsq_backward_scale(x, state, g, bits=4, axis=1)
    found["lsq_one"] = m.fake_quantize_lsq_backward_scale(x, one, g)
    for ste in ESTIMATORS:
        found[ste] = m.fake_quantize_backward(x, found["batch_scale"], g, bits=4, ste=ste)
    m.set_outputs(found)
    return m


def numbers(n: int, m: int, dtype: str, *, edges: bool = False) -> dict[str, np.ndarray]:
    """Arguments of `every_operation`: ties of several scales among them; with edges, numbers that aren't finite."""
    rng = np.random.default_rng([n, m])
    x = rng.standard_normal((n, 3, m)) * 2
    ties = (rng.integers(-9, 9, x.shape) + 0.5) * rng.choice([0.1, 0.25, 3.0], x.shape)
    x = np.where(rng.random(x.shape) < 0.3, ties, x)
    if edges:
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 0.49999997])
        x = np.where(rng.random(x.shape) < 0.2, rng.choice(special, x.shape), x)
    g = rng.standard_normal(x.shape)
    with np.errstate(over="ignore"):
        arrays = {"x": x.astype(DTYPES[dtype]), "g": g.astype(DTYPES[dtype])}
    state = np.array([0.5, -1.0, 0.25] if edges else [0.5, 0.0, 0.25], np.float32)
    return {**arrays, "state": state, "one": np.array([0.0 if edges else 0.3], np.float32)}


#: Relative errors: of sums and of a function; everything else is exact.
CLOSE = {"lsq_scale": 2e-5, "lsq_one": 2e-5, "tanh": 2e-6}


def check(found: dict[str, np.ndarray], given: dict[str, np.ndarray]) -> None:
    with np.errstate(all="ignore"):
        wanted = by_definition(given["x"], given["g"], given)
    assert found.keys() == wanted.keys()
    narrow = given["x"].dtype.itemsize == 2
    for name, want in wanted.items():
        got = found[name]
        assert (got.dtype, got.shape) == (want.dtype, want.shape), name
        if name in CLOSE:
            error = 1e-2 if narrow and name == "tanh" else CLOSE[name]
            np.testing.assert_allclose(got.astype(float), want.astype(float), error, 1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(got.astype(float), want.astype(float), err_msg=name)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
@pytest.mark.parametrize("edges", [False, True])
def test_references(dtype: str, edges: bool) -> None:
    for n, m in SIZES:
        given = numbers(n, m, dtype, edges=edges)
        check(interpret(every_operation(dtype), given), given)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
@pytest.mark.quick(1)
def test_compiled(dtype: str) -> None:
    """One executable for all sizes, for one thread and for two."""
    for threads in (1, 2) if dtype == "f32" else (1,):
        compiled = compile_fresh(every_operation(dtype), threads=threads)
        for n, m in SIZES:
            for edges in (False, True):
                given = numbers(n, m, dtype, edges=edges)
                check(compiled.run(given), given)


def test_channels_of_open_size() -> None:
    """The numbers of scales are checked against the size that a call gives, and are that of the result."""
    module = every_operation("f32", "c")
    assert module.outputs["many"].shape == ("n", 3, "m")
    assert module.outputs["ema"].shape == ("n", 3, "m")
    compiled = compile_fresh(module)
    given = numbers(2, 5, "f32")
    check(compiled.run(given), given)
    for run in (compiled.run, lambda inputs: interpret(module, inputs)):
        with pytest.raises(InputError, match=r"'mir.quantize'.* 2 and 3 were given"):
            run({**given, "x": given["x"][:, :2], "g": given["g"][:, :2]})


def test_no_dimension() -> None:
    m = GraphModule.mir("scalar")
    x = m.input("x", [], "f32")
    rounded, scale = m.fake_quantize(x, bits=4)
    q = m.quantize(x, 0.5, -1)
    m.set_outputs({"rounded": rounded, "scale": scale, "q": q, "back": m.dequantize(q, 0.5, -1)})
    for run in (compile_fresh(m).run, lambda inputs: interpret(m, inputs)):
        found = run({"x": np.float32(-1.25)})
        assert found["q"] == -4  # -2.5 is -3
        assert found["back"] == -1.5
        np.testing.assert_array_equal(found["scale"], np.array([np.float32(1.25) / np.float32(7)]))
        np.testing.assert_array_equal(found["rounded"], -7 * (np.float32(1.25) / np.float32(7)))


# -- products --------------------------------------------------------------------------------------------------------


def product(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, zeros: tuple[int, int, int], mult: float) -> Any:
    """Products of integers of any size, which wrap around as 32 bits do."""
    total = np.zeros((x.shape[0], w.shape[1]), np.int64)
    for k in range(x.shape[1]):
        total += (x[:, k : k + 1].astype(np.int64) - zeros[0]) * (w[k].astype(np.int64) - zeros[1])
    total += 0 if bias is None else bias
    wrapped = (total + 2**31) % 2**32 - 2**31
    return bytes_of(wrapped.astype(np.float32) * np.float32(mult), zeros[2])


def integers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(-128, 128, shape).astype(np.int8)


#: Sums times these are ties, ordinary, and saturated.
FACTORS = (0.5, 0.0007, 0.05)
ZEROS = ((0, 0, 0), (3, -128, 127), (-128, 127, -5))


def products() -> GraphModule:
    m = GraphModule.mir("products")
    x, w = m.input("x", ["m", "k"], "i8"), m.input("w", ["k", "n"], "i8")
    bias = m.input("bias", ["n"], "i32")
    found = {}
    for number, ((x_zp, w_zp, out_zp), mult) in enumerate(zip(ZEROS, FACTORS, strict=True)):
        options: dict[str, Any] = {"x_zp": x_zp, "w_zp": w_zp, "out_zp": out_zp, "mult": mult}
        found[f"bare{number}"] = m.q_matmul(x, w, **options)
        found[f"bias{number}"] = m.q_matmul(x, w, bias, **options)
    m.set_outputs(found)
    return m


def check_products(run: Any) -> None:
    for rows, depth, columns in [(1, 1, 1), (3, 17, 9), (0, 4, 3), (2, 0, 5), (4, 64, 33), (2, 3, 0)]:
        x, w = integers(rows, depth), integers(depth, columns, seed=1)
        bias = np.resize(np.array([2**31 - 1, -(2**31), 5, -7], np.int32), columns)
        found = run({"x": x, "w": w, "bias": bias})
        for number, (zeros, mult) in enumerate(zip(ZEROS, FACTORS, strict=True)):
            np.testing.assert_array_equal(found[f"bare{number}"], product(x, w, None, zeros, mult))
            np.testing.assert_array_equal(found[f"bias{number}"], product(x, w, bias, zeros, mult))


def test_products_interpreted() -> None:
    check_products(lambda given: interpret(products(), given))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.quick(1)
def test_products_compiled(threads: int) -> None:
    check_products(compile_fresh(products(), threads=threads).run)


GEOMETRY: dict[str, Any] = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}


def convolution(x: np.ndarray, w: np.ndarray, bias: np.ndarray, zeros: tuple[int, int, int], mult: float) -> Any:
    """Each window as a row of a matrix, with the zero point of x where nothing is."""
    edges = [(0, 0), (0, 0), *((p, p) for p in GEOMETRY["padding"])]
    padded = np.pad(x, edges, constant_values=zeros[0])
    outputs, inputs, height, width = w.shape
    counts = [
        (size - d * (k - 1) - 1) // s + 1
        for size, k, s, d in zip(
            padded.shape[2:], (height, width), GEOMETRY["stride"], GEOMETRY["dilation"], strict=True
        )
    ]
    result = np.zeros((x.shape[0], outputs, *counts), np.int8)
    per_group = outputs // GEOMETRY["groups"]
    for n, i, j in np.ndindex(x.shape[0], *counts):
        top, left = i * GEOMETRY["stride"][0], j * GEOMETRY["stride"][1]
        window = padded[n, :, top :: GEOMETRY["dilation"][0], left :: GEOMETRY["dilation"][1]][:, :height, :width]
        for o in range(outputs):
            own = window[o // per_group * inputs :][:inputs].reshape(1, -1)
            result[n, o, i, j] = product(own, w[o].reshape(-1, 1), bias[o : o + 1], zeros, mult)[0, 0]
    return result


def convolutions() -> GraphModule:
    m = GraphModule.mir("convolutions")
    x, w = m.input("x", ["n", 4, "h", 6], "i8"), m.param("w", [6, 2, 3, 2], "i8")
    bias = m.param("bias", [6], "i32")
    found = {}
    for number, ((x_zp, w_zp, out_zp), mult) in enumerate(zip(ZEROS, FACTORS, strict=True)):
        options: dict[str, Any] = {"x_zp": x_zp, "w_zp": w_zp, "out_zp": out_zp, "mult": mult}
        found[f"y{number}"] = m.q_conv2d(x, w, bias, **GEOMETRY, **options)
    m.set_outputs(found)
    return m


WEIGHTS = {"w": integers(6, 2, 3, 2, seed=3), "bias": np.array([0, 9, -700, 4, 2**31 - 1, 1], np.int32)}


def check_convolutions(run: Any) -> None:
    for batch, height in [(1, 1), (2, 5), (0, 3), (1, 9)]:
        x = integers(batch, 4, height, 6)
        found = run({"x": x})
        for number, (zeros, mult) in enumerate(zip(ZEROS, FACTORS, strict=True)):
            wanted = convolution(x, WEIGHTS["w"], WEIGHTS["bias"], zeros, mult)
            np.testing.assert_array_equal(found[f"y{number}"], wanted)


def test_convolutions_interpreted() -> None:
    check_convolutions(lambda given: interpret(convolutions(), given | WEIGHTS))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.quick(1)
def test_convolutions_compiled(threads: int) -> None:
    compiled = compile_fresh(convolutions(), threads=threads)
    compiled.set_params(WEIGHTS)
    check_convolutions(compiled.run)


@pytest.mark.parametrize(
    ("shape", "kernel", "geometry"),
    [
        ((2, 5, 9, 8), (7, 5, 3, 3), {"padding": [1, 1]}),
        ((1, 3, 11, 10), (18, 3, 4, 2), {"padding": [2, 0], "stride": [2, 3], "dilation": [1, 2]}),
        ((3, 8, 4, 5), (16, 8, 1, 1), {"stride": [2, 1]}),
        (("n", 9, "h", "w"), (4, 9, 1, 1), {}),
        (("n", 9, "h", 6), (5, 9, 2, 3), {"stride": [2, 3], "padding": [0, 1]}),
    ],
    ids=str,
)
@pytest.mark.quick(2)
def test_convolutions_by_columns(shape: Any, kernel: Any, geometry: Any) -> None:
    """Those of one group are products of the template, with the zero point where nothing is."""
    m = GraphModule.mir("columns")
    x, w, bias = m.input("x", shape, "i8"), m.param("w", kernel, "i8"), m.param("bias", kernel[:1], "i32")
    zeros = {"x_zp": 7, "w_zp": -3, "out_zp": -9, "mult": 0.002}
    m.set_outputs({"y": m.q_conv2d(x, w, bias, **geometry, **zeros), "bare": m.q_conv2d(x, w, **geometry, **zeros)})
    params = {"w": integers(*kernel), "bias": np.arange(kernel[0], dtype=np.int32) * 100 - 300}
    compiled = compile_fresh(m, threads=2)
    compiled.set_params(params)
    products = [name for name in templates_of(compiled).values() if "_bytes" in name]
    assert len(products) == 2
    for sizes in ({"n": 2, "h": 5, "w": 7}, {"n": 1, "h": 2, "w": 1}):
        given = {"x": integers(*(sizes[size] if isinstance(size, str) else size for size in shape))}
        wanted, found = interpret(m, given | params), compiled.run(given)
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array)


def test_a_product_is_one_kernel() -> None:
    for module in (products(), convolutions()):
        count = len(module.outputs)
        assert len(compile_fresh(module).artifact.kernels) <= count


# -- GPUs ------------------------------------------------------------------------------------------------------------


@pytest.mark.quick(1)
def test_emulated() -> None:
    """By the generic path, run by the emulator of PTX."""
    module = every_operation("f32")
    with emulated_device("sm_80") as cuda:
        executable = rlx.compile(module, target="cuda", chip="sm_80", cache=False)
        for n, m in [(1, 1), (2, 7)]:
            given = numbers(n, m, "f32", edges=True)
            check(executable.run(given), given)
        assert not cuda.errors
        del executable


def test_products_emulated() -> None:
    with emulated_device("sm_80") as cuda:
        executable = rlx.compile(products(), target="cuda", chip="sm_80", cache=False)
        check_products(executable.run)
        assert not cuda.errors
        del executable


# -- builders --------------------------------------------------------------------------------------------------------


def test_wrong_arguments() -> None:
    m = GraphModule.mir("wrong")
    x, q = m.input("x", [2, 3]), m.input("q", [2, 3], "i8")
    with pytest.raises(BuildError, match="'scales' is a number, but got 'a'"):
        m.quantize(x, "a")  # type: ignore[arg-type]
    with pytest.raises(BuildError, match=r"'zero_points' is a whole number from -2147483648 to 2147483647"):
        m.dequantize(q, 0.5, 0.5)  # type: ignore[arg-type]
    with pytest.raises(BuildError, match="expects the entries of 'zero_points' to be from -128 to 127, but got 300"):
        m.quantize(x, 0.5, 300)
    with pytest.raises(BuildError, match="expects 'state' with ema"):
        m.fake_quantize(x, scale_mode="ema", decay=0.5)
    with pytest.raises(BuildError, match="'w_zp' is a whole number"):
        m.q_matmul(q, m.input("w", [3, 2], "i8"), mult=0.5, w_zp="1")  # type: ignore[arg-type]
