# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients that have names: against differences of the operations they are of, and compiled against the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx_mlir import GraphModule, compile, interpret
from rlx_mlir.errors import BuildError
from rlx_mlir.fuzz.primitives import ACTIVATIONS
from rlx_mlir.hir import Value

Arrays = Mapping[str, np.ndarray]


def module(build: Callable[..., Any], arrays: Arrays, *, dynamic: bool = False) -> GraphModule:
    """A module of inputs like the arrays, whose outputs are what the function builds."""
    m = GraphModule.mir("m")
    values = []
    for name, array in arrays.items():
        shape = [f"s{size}" if dynamic and size > 1 else size for size in array.shape]
        values.append(m.input(name, shape, array.dtype))
    built = build(m, *values)
    listed = built if isinstance(built, tuple) else (built,)
    m.set_outputs({f"y{i}": value for i, value in enumerate(listed)})
    return m


def values(build: Callable[..., Any], arrays: Arrays) -> list[np.ndarray]:
    """What a function of builders gives of arrays, by the references."""
    return list(interpret(module(build, arrays), arrays).values())


def differences(build: Callable[..., Any], arrays: Arrays, name: str, upstream: np.ndarray) -> np.ndarray:
    """The gradient of <upstream, result> by an array of f64, by central differences."""
    found, step, m = np.zeros_like(arrays[name]), 1e-6, module(build, arrays)
    for index in np.ndindex(*found.shape):
        ends = []
        for sign in (step, -step):
            moved = arrays[name].copy()
            moved[index] += sign
            ends.append(float(np.sum(upstream * interpret(m, {**arrays, name: moved})["y0"])))
        found[index] = (ends[0] - ends[1]) / (2 * step)
    return found


def random(*shape: int, seed: int = 0, dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.quick(4)
def test_activations(kind):
    positive = kind in ("log", "sqrt", "rsqrt")
    x = np.abs(random(7)) + 0.3 if positive else random(7) * 2
    dy = random(7, seed=1)
    (found,) = values(lambda m, x, dy: m.activation_backward(kind, x, dy), {"x": x, "dy": dy})
    expected = dy if kind == "round" else differences(lambda m, x: m.activation(kind, x), {"x": x}, "x", dy)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_activations_where_there_is_no_slope():
    x = np.array([0.0, -1.0, np.nan, np.inf, -np.inf, 4.0], np.float32)
    dy = np.full(6, 2.0, np.float32)
    for kind, expected in (
        ("relu", [0, 0, np.nan, 2, 0, 2]),
        ("sqrt", [0, 0, 0, 0, 0, 0.5]),
        ("rsqrt", [0, 0, 0, 0, 0, -0.125]),
        ("abs", [0, -2, np.nan, 2, -2, 2]),
    ):
        m = module(lambda m, x, dy, kind=kind: m.activation_backward(kind, x, dy), {"x": x, "dy": dy})
        for found in (interpret(m, {"x": x, "dy": dy}), compile(m).run({"x": x, "dy": dy})):
            np.testing.assert_array_equal(found["y0"], np.array(expected, np.float32), err_msg=kind)
    (relu,) = values(lambda m, x, dy: m.relu_backward(x, dy), {"x": x, "dy": dy})
    np.testing.assert_array_equal(relu, np.array([0, 0, np.nan, 2, 0, 2], np.float32))


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_norms(norm, axis):
    x, dy = random(3, 4, 5) * 2, random(3, 4, 5, seed=1)
    gamma, beta = random(x.shape[axis], seed=2), random(x.shape[axis], seed=3)
    given = {"x": x, "gamma": gamma, "beta": beta}

    def forward(m: Any, x: Value, gamma: Value, beta: Value) -> Value:
        build = m.layer_norm if norm == "layer_norm" else m.primitives.rms_norm
        return build(x, gamma, beta, axis=axis, eps=0.25)

    def backward(m: Any, x: Value, gamma: Value, dy: Value) -> tuple[Value, ...]:
        return (
            getattr(m, f"{norm}_backward_input")(x, gamma, dy, axis=axis, eps=0.25),
            getattr(m, f"{norm}_backward_gamma")(x, dy, axis=axis, eps=0.25),
            getattr(m, f"{norm}_backward_beta")(dy, axis=axis),
        )

    found = values(backward, {"x": x, "gamma": gamma, "dy": dy})
    for own, name in zip(found, given, strict=True):
        np.testing.assert_allclose(own, differences(forward, given, name, dy), rtol=1e-6, atol=1e-8)


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped": {"num_kv_heads": 1},
    "causal, capped": {"mask_kind": "causal", "softcap": 1.5, "scale": 0.7},
    "window": {"mask_kind": "sliding_window", "window": 2},
    "bias": {"mask_kind": "bias", "softcap": 2.0},
    "custom": {"mask_kind": "custom"},
    "position": {"mask_kind": "causal", "num_kv_heads": 1},
}
SHAPES = {"packed": (1, 3, 4), "bhsd": (1, 2, 3, 2), "bshd": (1, 3, 2, 2)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", SHAPES)
@pytest.mark.quick(7)
def test_attention(kind, layout):
    options = {"num_heads": 2, "head_dim": 2, "layout": layout, **KINDS[kind]}
    keys, kv = 4, options.get("num_kv_heads", 2)
    shapes = {"packed": (1, keys, kv * 2), "bhsd": (1, kv, keys, 2), "bshd": (1, keys, kv, 2)}
    given = {"q": random(*SHAPES[layout]), "k": random(*shapes[layout], seed=1), "v": random(*shapes[layout], seed=2)}
    others: dict[str, np.ndarray] = {}
    if kind == "bias":
        others["mask"] = random(1, 2, 3, keys, seed=3)
    elif kind == "custom":
        others["mask"] = np.array([[True, False, True, True]])
    elif kind == "position":
        others["pos"] = np.array([1], np.int32)

    def forward(m: Any, q: Value, k: Value, v: Value, *rest: Value) -> Value:
        return m.primitives.attention(q, k, v, **dict(zip(others, rest, strict=True)), **options)

    def backward(m: Any, q: Value, k: Value, v: Value, dy: Value, *rest: Value) -> tuple[Value, ...]:
        return m.attention_backward_all(q, k, v, dy, **dict(zip(others, rest, strict=True)), **options)

    dy = random(*SHAPES[layout], seed=4)
    arrays = {**given, "dy": dy, **others}
    found = values(backward, arrays)
    for own, name in zip(found, given, strict=True):
        slopes = differences(forward, {**given, **others}, name, dy)
        np.testing.assert_allclose(own, slopes, rtol=1e-5, atol=1e-7, err_msg=name)
    compiled = compile(module(backward, arrays)).run(arrays)
    for own, each in zip(found, compiled.values(), strict=True):
        np.testing.assert_allclose(each, own, rtol=1e-9, atol=1e-11)


def test_attention_by_one_operand():
    q, k, dy = random(1, 3, 4, dtype=np.float32), random(1, 3, 4, seed=1, dtype=np.float32), random(1, 3, 4, seed=2)
    arrays = {"q": q, "k": k, "dy": dy.astype(np.float32)}

    def build(m: Any, q: Value, k: Value, dy: Value) -> tuple[Value, ...]:
        single = [m.attention_backward(q, k, k, dy, wrt=w, num_heads=2, head_dim=2) for w in ("query", "key", "value")]
        return (*single, *m.attention_backward_all(q, k, k, dy, num_heads=2, head_dim=2))

    found = values(build, arrays)
    for one, of_all in zip(found[:3], found[3:], strict=True):
        np.testing.assert_array_equal(one, of_all)
    with pytest.raises(BuildError, match="'wrt' is one of query, key, value, but got 'mask'"):
        module(lambda m, q, k, dy: m.attention_backward(q, k, k, dy, wrt="mask", num_heads=2, head_dim=2), arrays)


def test_queries_that_see_nothing_have_no_gradient():
    """Here those of the first two rows: two queries more than keys."""
    q, k, dy = random(1, 4, 2, dtype=np.float32), random(1, 2, 2, dtype=np.float32), np.ones((1, 4, 2), np.float32)

    def build(m: Any, q: Value, k: Value, dy: Value) -> tuple[Value, ...]:
        return m.attention_backward_all(q, k, k, dy, num_heads=1, head_dim=2, mask_kind="causal")

    arrays = {"q": q, "k": k, "dy": dy}
    for found in (interpret(module(build, arrays), arrays), compile(module(build, arrays)).run(arrays)):
        assert np.isfinite(found["y1"]).all()
        np.testing.assert_array_equal(found["y0"][0, :2], 0)


@pytest.mark.parametrize("style", ["half", "interleaved"])
def test_rotations(style):
    x, dy = random(3, 8), random(3, 8, seed=1)
    angles = random(5, 2, seed=2)
    tables = {"cos": np.cos(angles), "sin": np.sin(angles)}
    options: dict[str, Any] = {"head_dim": 4, "style": style}
    (found,) = values(lambda m, dy, cos, sin: m.rope_backward(dy, cos, sin, **options), {"dy": dy, **tables})

    def forward(m: Any, x: Value, cos: Value, sin: Value) -> Value:
        return m.primitives.rope(x, cos, sin, **options)

    np.testing.assert_allclose(found, differences(forward, {"x": x, **tables}, "x", dy), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("axis", [-1, 0])
def test_running_sums(exclusive, axis):
    dy = random(3, 4)

    def backward(m: Any, dy: Value) -> Value:
        return m.cumsum_backward(dy, axis, exclusive=exclusive)

    (found,) = values(backward, {"dy": dy})
    slopes = differences(lambda m, x: m.cumsum(x, axis, exclusive=exclusive), {"x": random(3, 4, seed=1)}, "x", dy)
    np.testing.assert_allclose(found, slopes, rtol=1e-6, atol=1e-8)
    dynamic = compile(module(backward, {"dy": dy}, dynamic=True))
    for shape in ((3, 4), (1, 7), (0, 2)):
        own = random(*shape, seed=2)
        expected = np.flip(np.cumsum(np.flip(own, axis), axis), axis) - (own if exclusive else 0)
        np.testing.assert_allclose(dynamic.run({"dy": own})["y0"], expected, rtol=1e-12, atol=1e-12)


DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
TOLERANCES = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-5, "f64": 1e-12}


def gradients(m: Any, x: Value, gamma: Value, dy: Value) -> tuple[Value, ...]:
    """All gradients of a norm, of a function and of attention by one operand."""
    width = x.shape[-1]
    flat = m.reshape(x, [1, *x.shape])
    by = m.reshape(dy, [1, *dy.shape])
    return (
        m.activation_backward("silu", x, dy),
        m.layer_norm_backward_input(x, gamma, dy),
        m.layer_norm_backward_gamma(x, dy),
        m.rms_norm_backward_input(x, gamma, dy),
        m.rms_norm_backward_gamma(x, dy),
        *m.attention_backward_all(flat, flat, flat, by, num_heads=2, head_dim=width // 2, mask_kind="causal"),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.quick(4)
def test_compiled(dtype, threads):
    """One executable for several numbers of rows, 0 among them."""
    m = GraphModule.mir("m")
    x, dy = (m.input(name, ["rows", 34], dtype) for name in ("x", "dy"))
    built = gradients(m, x, m.input("gamma", [34], dtype), dy)
    m.set_outputs({f"y{i}": value for i, value in enumerate(built)})
    executable = compile(m, threads=threads)
    for rows in (0, 1, 5, 33):
        run = {
            "x": random(rows, 34, dtype=DTYPES[dtype]),
            "gamma": random(34, seed=1, dtype=DTYPES[dtype]),
            "dy": random(rows, 34, seed=2, dtype=DTYPES[dtype]),
        }
        expected, found = interpret(m, run), executable.run(run)
        for name, own in expected.items():
            assert found[name].dtype == own.dtype
            largest = float(np.max(np.abs(own.astype(np.float64)), initial=1.0))
            np.testing.assert_allclose(
                found[name].astype(np.float64), own.astype(np.float64), atol=TOLERANCES[dtype] * largest, rtol=0
            )


@pytest.mark.parametrize("layout", ["packed", "bhsd"])
def test_causal_gradients_in_blocks_are_those_of_the_whole(layout: str) -> None:
    """Of many queries, which go in blocks with the keys that they see; one key head serves two."""
    rows, heads, size = 387, 4, 8
    rng = np.random.default_rng(0)

    def drawn(count: int) -> np.ndarray:
        shape = (1, rows, count * size) if layout == "packed" else (1, count, rows, size)
        return rng.standard_normal(shape).astype(np.float32)

    values = {"q": drawn(heads), "k": drawn(2), "v": drawn(2), "dy": drawn(heads)}
    m = GraphModule.mir("attention")
    given = [m.input(name, array.shape) for name, array in values.items()]
    options = {"num_heads": heads, "num_kv_heads": 2, "head_dim": size, "mask_kind": "causal", "layout": layout}
    found = m.attention_backward_all(*given, **options)
    m.set_outputs(dict(zip(("dq", "dk", "dv"), found, strict=True)))
    decomposed = m.transform("mir-decompose")
    assert [node.op for node in decomposed.nodes()].count("mir.softmax") == 3, "a block has 128 queries at least"
    expected = interpret(m, values)
    for name, array in compile(m, cache=False).run(values).items():
        scale = np.abs(expected[name]).max()
        np.testing.assert_allclose(array, expected[name], atol=2e-6 * scale, rtol=1e-4, err_msg=name)
