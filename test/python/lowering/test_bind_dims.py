# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Binding of symbolic dimensions."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_mlir import GraphModule, interpret
from rlx_mlir.errors import InputError, PassError


def template(stage: str = "hir") -> GraphModule:
    m = getattr(GraphModule, stage)("m")
    x = m.input_batch_seq("x", 8)
    heads = m.reshape(x, ["batch", "seq", 2, 4])
    y = m.cast(m.transpose(heads, [0, 2, 1, 3]), "bf16")
    z = m.reshape(m.mm(x, m.param("w", [8, 6])), [-1, 6])
    e = m.expand(m.mean(x, -1, keep_dims=True), ["batch", "seq", 3])
    m.set_outputs({"y": y, "z": z, "e": e, "n": m.rms_norm(x, m.param("g", [8]))})
    return m


def shapes(m: GraphModule) -> dict[str, tuple[int | str, ...]]:
    return {name: value.shape for name, value in m.outputs.items()}


@pytest.mark.parametrize("stage", ["hir", "mir"])
def test_bind_all(stage):
    m = template(stage)
    bound = m.bind({"batch": 2, "seq": 5})
    assert shapes(bound) == {"y": (2, 2, 5, 4), "z": (10, 6), "e": (2, 5, 3), "n": (2, 5, 8)}
    assert bound.value("x").shape == (2, 5, 8)
    assert (bound.dynamic_symbols, bound.has_dynamic_dims) == ([], False)
    assert (m.dynamic_symbols, m.has_dynamic_dims) == (["batch", "seq"], True)
    assert "?" not in bound.to_text()
    assert "mir.dims" not in bound.to_text()
    assert bound.stage == stage


def test_bind_in_two_steps():
    once = template().bind(seq=5)
    assert shapes(once) == {"y": ("batch", 2, 5, 4), "z": ("5*batch", 6), "e": ("batch", 5, 3), "n": ("batch", 5, 8)}
    assert once.dynamic_symbols == ["batch"]
    assert 'mir.dims = ["batch", "", ""]' in once.to_text()
    assert once.bind(batch=2) == template().bind(batch=2, seq=5)
    assert template().bind() == template()


def test_binding_and_lowering_commute():
    assert template().bind(batch=2, seq=5).lower() == template().lower().bind(batch=2, seq=5)


def test_values_stay():
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((2, 5, 8), np.float32), "w": rng.standard_normal((8, 6), np.float32)}
    inputs["g"] = np.ones(8, np.float32)
    dynamic, static = interpret(template(), inputs), interpret(template().bind(batch=2, seq=5), inputs)
    for name, value in dynamic.items():
        np.testing.assert_array_equal(value, static[name])


def test_names_lines_and_ties_stay():
    m = GraphModule.hir("m")
    cache = m.input("cache", ["batch", 16, 8])
    new, pos = m.input("new", ["batch", "seq", 8]), m.input("pos", ["batch"], "i32")
    m.set_outputs({"out": m.cache_update(cache, new, pos, name="blk.0.k")}, tied={"out": cache})
    bound = m.bind(batch=1, seq=4)
    assert 'mir.ties = {out = "cache"}' in bound.to_text()
    assert bound.nodes()[0].name == "blk.0.k"
    assert bound.nodes()[0].source == m.nodes()[0].source


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"rows": 2}, "module 'm' has no symbol 'rows', it has batch, seq"),
        ({"batch": 0}, "symbol 'batch' of module 'm' is bound to a size >= 1, but got 0"),
        ({"batch": 1.5}, "but got 1.5"),
        ({"batch": True}, "but got True"),
    ],
)
def test_bindings_that_are_refused(sizes, message):
    with pytest.raises(InputError, match=message):
        template().bind(sizes)


def test_a_size_that_an_operation_refuses():
    m = GraphModule.mir("m")
    x, y = m.input("x", ["n", 4]), m.input("y", ["k", 4])
    m.set_outputs(m.add(x, y, name="sum"))
    with pytest.raises(PassError, match=r"with n = 2, k = 3: 'mir.add' op.*2, 4.*3, 4.*\"sum\".*test_bind_dims"):
        m.bind(n=2, k=3)
    assert m.bind(n=2, k=2).outputs["output0"].shape == (2, 4)


def test_functions_that_are_called():
    text = """
    func.func private @twice(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
      %y = mir.add %x, %x : tensor<?x4xf32>, tensor<?x4xf32>
      return %y : tensor<?x4xf32>
    }
    func.func @f(%x: tensor<?x4xf32> {mir.name = "x", mir.dims = ["n", ""]},
                 %y: tensor<?x4xf32> {mir.name = "y", mir.dims = ["m", ""]}) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
      %0 = call @twice(%x) : (tensor<?x4xf32>) -> tensor<?x4xf32>
      %1 = call @twice(%y) : (tensor<?x4xf32>) -> tensor<?x4xf32>
      return %0, %1 : tensor<?x4xf32>, tensor<?x4xf32>
    }"""
    m = GraphModule.from_text(text)
    assert shapes(m.bind(n=3, m=3)) == {"output0": (3, 4), "output1": (3, 4)}
    with pytest.raises(PassError, match=r"'twice' is called with two types, \(tensor<3x4xf32>\) and.*tensor<2x4xf32>"):
        m.bind(n=3, m=2)


@pytest.mark.parametrize("sizes", [{"t": 3, "n": 4}, {"n": 1}, {"t": 1}])
def test_regions_of_loops_and_choices(sizes):
    m = GraphModule.mir("m")
    x, start = m.input("x", ["t", "n"]), m.input("start", ["n"])

    def step(state, row):
        following = m.tanh(m.add(state, row))
        return following, m.mul(following, 2.0)

    last, every = m.scan(step, start, x)
    chosen = m.cond(m.compare("gt", m.max(last), 0.5), lambda: m.mul(last, 2.0), lambda: m.neg(last))
    grown = m.while_loop(lambda v: m.compare("lt", m.max(v), 3.0), lambda v: m.add(v, 1.0), chosen, limit=9)
    m.set_outputs({"every": every, "grown": grown})
    bound = m.bind(sizes)
    t, n = sizes.get("t", "t"), sizes.get("n", "n")
    assert shapes(bound) == {"every": (t, n), "grown": (n,)}
    if len(sizes) == 2:
        assert "?" not in bound.to_text()
    rng = np.random.default_rng(0)
    t, n = sizes.get("t", 5), sizes.get("n", 7)
    inputs = {"x": rng.standard_normal((t, n), np.float32), "start": rng.standard_normal(n, np.float32)}
    for name, value in interpret(m, inputs).items():
        np.testing.assert_array_equal(interpret(bound, inputs)[name], value)


@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        ("n", "expects symbol:size with size >= 1, separated by commas, but got 'n'"),
        ("n:0", "but got 'n:0'"),
        ("n:x", "but got 'n:x'"),
        ("n:1,n:2", "binds 'n' twice, to 1 and 2"),
        ("k:1", "no argument has a dimension 'k', the symbols are batch, seq"),
    ],
)
def test_options_that_are_refused(symbols, message):
    with pytest.raises(PassError, match=message):
        template().transform(f"rlx-bind-dims{{symbols={symbols}}}")
