# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Handles of values: operators, shapes, and their end."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import pytest

from rlx_mlir import GraphModule, Value, interpret
from rlx_mlir.errors import BuildError, StageError


def run(m: GraphModule, result: Value, **inputs: np.ndarray) -> np.ndarray:
    m.set_outputs({"y": result})
    return interpret(m, inputs)["y"]


X = np.array([[1.0, -2.0, 4.0]], np.float32)
Y = np.array([[0.5], [2.0]], np.float32)


@pytest.mark.parametrize(
    "formula",
    [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: x / y,
        lambda x, y: -x,
        lambda x, y: y**2.0,
        lambda x, y: x + 1,
        lambda x, y: 1.5 + x,
        lambda x, y: 2 - x,
        lambda x, y: x * np.float32(3),
        lambda x, y: 8 / y,
        lambda x, y: Y + x,
        lambda x, y: x - np.ones(3, np.float32),
        lambda x, y: y @ x,
        lambda x, y: y @ np.ones((1, 2), np.float32),
        lambda x, y: np.ones((2, 1), np.float32) @ x,
        lambda x, y: x @ np.arange(3, dtype=np.float32),
        lambda x, y: np.arange(2, dtype=np.float32) @ y,
        lambda x, y: x[0] @ np.ones((4, 3, 2), np.float32),
        lambda x, y: x[0] @ x[0],
    ],
)
@pytest.mark.parametrize("stage", ["hir", "mir"])
def test_operators_are_numpys(stage, formula):
    m = getattr(GraphModule, stage)("m")
    result = run(m, formula(m.input("x", [1, 3]), m.input("y", [2, 1])), x=X, y=Y)
    np.testing.assert_array_equal(result, formula(X, Y))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64", "i32", "i64"])
def test_numbers_take_the_values_type(dtype):
    m = GraphModule.mir("m")
    x = m.input("x", [3], dtype)
    assert (x + 2).dtype == x.dtype
    assert (2 - x).dtype == x.dtype


@pytest.mark.parametrize(
    ("dtype", "number", "message"),
    [
        ("i32", 0.5, "0.5 can't be exact in i32"),
        ("i8", 128, "128 can't be exact in i8"),
        ("f16", 1e6, "out of range for f16"),
        ("i1", 1, "1 is not a bool"),
        ("f32", None, "a number, but got NoneType None"),
    ],
)
def test_numbers_that_are_refused(dtype, number, message):
    m = GraphModule.mir("m")
    x = m.input("x", [3], dtype)
    with pytest.raises(BuildError, match=message):
        x + number
    assert len(m) == 0


def test_infinities_and_nan_are_numbers():
    m = GraphModule.mir("m")
    x = m.input("x", [3], "bf16")
    y = run(m, x + float("inf"), x=np.zeros(3, ml_dtypes.bfloat16))
    assert np.isposinf(y.astype(np.float32)).all()
    x = m.value("x")
    assert np.isnan(run(m, x * float("nan"), x=np.ones(3, ml_dtypes.bfloat16)).astype(np.float32)).all()


def test_shapes_have_symbols():
    m = GraphModule.mir("m")
    x = m.input("x", ["batch", "seq", 8], "bf16")
    w = m.param("w", [8, 12], "bf16")
    assert x.shape == ("batch", "seq", 8)
    assert (x.ndim, x.dtype, x.name, x.packed) == (3, ml_dtypes.bfloat16, "x", None)
    assert (x @ w).shape == ("batch", "seq", 12)
    assert m.transpose(x, [1, 0, 2]).shape == ("seq", "batch", 8)
    assert m.transpose(x).shape == (8, "seq", "batch")
    assert m.reshape(x, ["batch", "seq", 2, 4]).shape == ("batch", "seq", 2, 4)
    assert m.reshape(x, [-1, 8]).shape == ("batch*seq", 8)
    assert m.reshape(x, [-1, 4]).shape == ("2*batch*seq", 4)
    assert m.concat([x, x], 1).shape == ("batch", "2*seq", 8)
    assert m.concat([x, x], -1).shape == ("batch", "seq", 16)
    assert m.mean(x, -1).shape == ("batch", "seq")
    assert m.sum(x, [0, 1], keep_dims=True).shape == (1, 1, 8)
    assert m.max(x).shape == ()
    assert m.narrow(x, 1, 0, 1).shape == ("batch", 1, 8)
    assert m.expand(m.reshape(x, ["batch", "seq", 1, 8]), ["batch", "seq", 5, 8]).shape == ("batch", "seq", 5, 8)
    assert m.gather(m.param("t", [100, 8]), m.input("i", ["batch", "seq"], "i32")).shape == ("batch", "seq", 8)
    assert m.cast(x, "f32").shape == ("batch", "seq", 8)
    assert m.lt(x, 0).dtype == np.bool_


def test_shapes_of_blocks_have_symbols():
    m = GraphModule.hir("m")
    x = m.input("x", ["batch", "seq", 8])
    w, t = m.param("w", [8, 12]), m.param("t", [12, 8])
    assert m.linear(x, w).shape == ("batch", "seq", 12)
    assert m.linear(x, t, transpose_weight=True).shape == ("batch", "seq", 12)
    first, second = m.shared_linear_pair(x, w, m.param("v", [8, 3]))
    assert (first.shape, second.shape) == (("batch", "seq", 12), ("batch", "seq", 3))
    assert m.swiglu(x, gate_w=w, up_w=w, down_w=t).shape == ("batch", "seq", 8)
    cache = m.input("cache", ["batch", 64, 8])
    pos = m.input("pos", ["batch"], "i32")
    y, keys, _ = m.attention(x, x, x, num_heads=2, head_dim=4, k_cache=cache, v_cache=cache, pos=pos)
    assert (y.shape, keys.shape) == (("batch", "seq", 8), ("batch", 64, 8))


def test_a_shape_that_divides_says_how():
    m = GraphModule.mir("m")
    x = m.input("x", ["n", 6])
    assert m.reshape(x, [-1, 4]).shape == ("floordiv(n, 2) + n", 4)


def test_declared_shapes_are_checked():
    m = GraphModule.mir("m")
    x = m.input("x", ["n", 6])
    assert m.silu(x, shape=["n", 6]).shape == ("n", 6)
    assert m.silu(x, shape=[None, 6]).shape == ("n", 6)
    with pytest.raises(BuildError, match=r"declared as \['m', 6\], but inferred to be \['n', 6\]"):
        m.silu(x, shape=["m", 6])
    assert len(m) == 2


def test_values_of_another_module():
    a, b = GraphModule.hir("a"), GraphModule.mir("b")
    x = a.input("x", [4])
    with pytest.raises(BuildError, match=r"value 'x' belongs to module 'a' \(stage hir\), but is used in module 'b'"):
        b.silu(x)
    with pytest.raises(BuildError, match="belongs to module 'a'"):
        b.input("y", [4]) + x
    with pytest.raises(BuildError, match="belongs to module 'a'"):
        b.set_outputs(x)


def test_values_of_a_module_that_was_lowered():
    a = GraphModule.hir("a")
    x = a.input("x", ["n", 4])
    lowered, bound = a.lower(), a.bind(n=2)
    assert a.silu(x).shape == ("n", 4)  # the module itself is as it was
    with pytest.raises(BuildError, match=r"'a' \(stage hir\), but is used in module 'a' \(stage mir\)"):
        lowered.silu(x)
    with pytest.raises(BuildError, match="belongs to module 'a'"):
        bound.silu(x)
    assert bound.silu(bound.value("x")).shape == (2, 4)


def test_stale_values_raise_whatever_is_asked():
    m = GraphModule.mir("m")
    x = m.input("x", [4])
    m.set_outputs(m.silu(x))
    node = m.nodes()[0]
    m.set_inputs(["x"])
    uses = [
        lambda: x + 1,
        lambda: x.shape,
        lambda: x.dtype,
        lambda: x.name,
        lambda: m.users(x),
        lambda: m.set_outputs(x),
        lambda: node.op,
        lambda: node.results,
    ]
    for use in uses:
        with pytest.raises(StageError, match=r"test_values\.py:\d+: .* is stale: set_inputs changed the module"):
            use()
    assert repr(x) == "<Value 'x': stale>"
    assert repr(node) == "<Node 0: stale>"
    assert x != m.value("x")


def test_a_value_keeps_its_module():
    x = GraphModule.mir("m").input("x", ["n", 4])
    gc.collect()
    assert x.shape == ("n", 4)
    assert repr(x) == "<Value 'x': [n, 4] f32>"


def test_values_are_equal_where_they_are_the_same():
    m = GraphModule.mir("m")
    x, y = m.input("x", [4]), m.input("y", [4])
    assert x == m.value("x")
    assert x != y
    assert len({x, m.value("x"), y}) == 2
    with pytest.raises(TypeError, match="has no truth value"):
        bool(x)
