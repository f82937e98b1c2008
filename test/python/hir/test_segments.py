# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations by name, blocks in graphs of primitives, and graphs cut into parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_mlir import GraphModule, compile, interpret
from rlx_mlir.errors import BuildError


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_operations_by_name():
    m = GraphModule.mir("m")
    x = m.input("x", ["n", 4])
    (largest,) = m.append_node(
        "mir.reduce", {"x": x}, {"kind": "#mir<reduce_kind max>", "axes": [1], "keep_dims": True}
    )
    (near,) = m.append_node(
        "mir.expand", {"x": largest, "like": x}, {"like_dims": [0, -1]}, results=["tensor<?x3xf32>"]
    )
    assert largest.shape == ("n", 1)
    m.append_node("mir.layer_norm", {"x": x, "gamma": m.input("g", [4])}, {"eps": 0.25}, name="norm")
    m.set_outputs({"y": near})
    assert "eps 2.500000e-01" in m.to_text()
    values = random(3, 4)
    found = interpret(m, {"x": values, "g": random(4)})["y"]
    np.testing.assert_array_equal(found, np.repeat(values.max(1, keepdims=True), 3, 1))


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "results", "message"),
    [
        ("mir.redce", {}, {}, None, r"there is no operation 'mir\.redce'"),
        (None, {}, {}, None, "there is no operation None"),
        (
            "mir.reduce",
            {"x": "x"},
            {"kind": "max", "axes": [1]},
            None,
            r"'kind' is text of an attribute.* but got 'max'",
        ),
        ("mir.reduce", {"x": "x"}, {"axes": [1]}, None, r"'kind' is needed, but got None"),
        ("mir.relu", {"y": "x"}, {}, None, r"'x' is needed"),
        ("mir.expand", {"x": "x"}, {}, ["tensor<"], r"'results' are types of MLIR as text, but got \['tensor<'\]"),
    ],
)
def test_operations_that_are_wrong(op, operands, attributes, results, message):
    m = GraphModule.mir("m")
    x = m.input("x", [3, 4])
    given: dict[str, Any] = dict.fromkeys(operands, x)
    with pytest.raises(BuildError, match=message):
        m.append_node(op, given, attributes, results=results)
    assert not len(m)


@pytest.mark.parametrize("stage", ["mir", "hir"])
def test_blocks_in_graphs_of_primitives(stage):
    """The same as the block, which lowers later."""
    weights = {name: random(8, 8, seed=i) for i, name in enumerate(("gate_w", "up_w", "down_w"))}
    whole, parts = GraphModule.hir("whole"), getattr(GraphModule, stage)("parts")
    for m, build in ((whole, whole.swiglu), (parts, lambda *a, **k: parts.expand_block("swiglu", *a, **k))):
        x = m.relu(m.input("x", ["n", 8]))
        y = build(x, **{name: m.param(name, [8, 8]) for name in weights})
        assert y.shape == ("n", 8)
        m.set_outputs({"y": m.add(y, x)})
    assert "hir.swiglu" not in parts.to_text()
    assert parts.nodes()[2].name == "swiglu"
    given = {"x": random(5, 8, seed=7), **weights}
    np.testing.assert_array_equal(interpret(parts, given)["y"], interpret(whole, given)["y"])


def test_blocks_that_are_none():
    m = GraphModule.mir("m")
    x = m.input("x", [2, 8])
    with pytest.raises(BuildError, match="there is no block 'swigl'"):
        m.expand_block("swigl", x)
    with pytest.raises(BuildError, match="there is no block '_emit'"):
        m.expand_block("_emit", x)
    assert not len(m)


def chain() -> GraphModule:
    m = GraphModule.mir("chain")
    x, w = m.input("x", ["n", 8]), m.param("w", [8, 8])
    a = m.relu(m.matmul(x, w))
    b = m.softmax(a)
    m.set_outputs({"c": m.add(b, x), "a": a, "again": a, "x": x})
    return m


def test_cuts():
    m = chain()
    nodes = m.nodes()
    parts = m.segments(nodes[1], nodes[2].results[0])
    assert [[node.op for node in part] for part in parts] == [["mir.matmul", "mir.relu"], ["mir.softmax"], ["mir.add"]]
    assert [part.name for part in parts] == ["chain_0", "chain_1", "chain_2"]
    assert [list(part.outputs) for part in parts] == [["a", "again"], ["value1"], ["x", "c"]]
    assert [[v.name for v in part.params] for part in parts] == [["w"], [], []]
    given = {"x": random(3, 8), "w": random(8, 8, seed=1)}
    known = dict(given)
    for part in parts:
        part.verify()
        executable = compile(part)
        executable.set_params({value.name: known[value.name] for value in part.params})
        known |= executable.run({value.name: known[value.name] for value in part.inputs})
    whole = compile(m)
    whole.set_params({"w": given["w"]})
    for name, expected in whole.run({"x": given["x"]}).items():
        np.testing.assert_array_equal(known[name], expected)


def test_cuts_keep_sizes_and_loops():
    m = GraphModule.mir("m")
    x = m.input("x", ["n", 4])
    half = m.slice(x, 0, 0, m.size("n") // 2)
    last, _ = m.scan(lambda c, e: (m.add(c, e), None), m.constant(np.zeros(4, np.float32)), half)
    m.set_outputs({"y": m.mul(last, 2.0)})
    first, second = m.segments(half)
    assert "mir.scan" in second.to_text()
    given = random(5, 4)
    between = interpret(first, {"x": given})
    np.testing.assert_allclose(interpret(second, between)["y"], 2 * given[:2].sum(0), rtol=1e-6)


def test_cuts_that_are_none():
    m = chain()
    assert len(m.segments()) == 1
    assert m.segments()[0].nodes()[0].op == "mir.matmul"
    with pytest.raises(BuildError, match="a module is cut after an operation, but 'x' is an argument"):
        m.segments(m.value("x"))
    other = chain()
    with pytest.raises(BuildError, match="belongs to module 'chain'"):
        m.segments(other.nodes()[0].results[0])
    with pytest.raises(BuildError, match="is expected"):
        m.segments("x")


# -- one module in another ---------------------------------------------------------------------------------------------


def inner() -> GraphModule:
    m = GraphModule.mir("inner")
    x, w = m.input("x", ["n", 8]), m.param("w", [8, 8])
    y = m.relu(m.matmul(x, w))
    m.set_outputs({"y": y, "x": x})
    return m


def test_modules_in_others():
    m = GraphModule.mir("outer")
    x = m.input("x", ["n", 8])
    first = m.inline(inner(), {"x": x}, prefix="first.")
    second = m.inline(inner(), {"x": first["y"], "w": m.value("first.w")})
    assert [value.name for value in m.params] == ["first.w"]
    m.set_outputs({"z": m.add(second["y"], second["x"])})
    m.verify()
    given, w = random(3, 8), random(8, 8, seed=1)
    hidden = np.maximum(given @ w, 0)
    found = interpret(m, {"x": given, "first.w": w})["z"]
    np.testing.assert_allclose(found, np.maximum(hidden @ w, 0) + hidden, rtol=1e-5, atol=1e-5)


def test_modules_that_do_not_fit():
    m = GraphModule.mir("outer")
    x, y = m.input("x", ["n", 8]), m.input("y", ["n", 9])
    m.param("w", [8, 8])
    hir = GraphModule.hir("blocks")
    for other, operands, message in (
        (inner(), {}, "input 'x' of module 'inner' has no operand"),
        (inner(), {"x": y, "w": x}, r"'x' of module 'inner' is of tensor<\?x8xf32>, but got tensor<\?x9xf32>"),
        (inner(), {"x": x, "v": y}, r"module 'inner' has no argument \['v'\]"),
        (inner(), {"x": x}, "module 'outer' already has an argument 'w'"),
        (hir, {}, "module 'blocks' is at stage hir, but 'outer' at mir"),
        (m, {}, "another module is expected"),
        (None, {}, "another module is expected, but got None"),
    ):
        with pytest.raises(BuildError, match=message):
            m.inline(other, operands)
    assert not len(m)
