# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What operations are made of means the same as they do, for every operation that is made of others."""

from __future__ import annotations

import numpy as np
import pytest
import seeds

from rlx_mlir import GraphModule, interpret
from rlx_mlir.errors import RlxError
from rlx_mlir.fuzz.draft import Draft, Skip, make_value
from rlx_mlir.fuzz.operations import GENERATORS
from rlx_mlir.fuzz.sensitivity import expected
from rlx_mlir.mir import COMPOSITIONS, TO_LINALG

SIZES = [{"a": 0, "b": 3}, {"a": 5, "b": 1}]


def drawn(name: str, seed: int) -> Draft | None:
    """A module with an operation that the fuzzer draws; None where it can't."""
    rng = np.random.default_rng([seed, seeds.seed()])
    draft = Draft(rng, GraphModule.mir("f"), SIZES)
    draft.floats = ("f32", "bf16", "f16", "f64")
    try:
        GENERATORS[name](draft)
    except Skip:
        return None
    node = next(node for node in draft.module if node.op == name)
    draft.module.set_outputs({f"y{i}": value for i, value in enumerate(node.results)})
    return draft


@pytest.mark.parametrize("name", sorted(COMPOSITIONS))
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.quick(96)
def test_compositions_mean_the_same(name: str, seed: int) -> None:
    draft = drawn(name, seed)
    if draft is None:
        pytest.skip("the fuzzer skips it")
    module = draft.module
    parts = module.transform(f"mir-decompose{{only={name.removeprefix('mir.')}}}")
    assert name not in {node.op for node in parts}
    for number, sizes in enumerate(draft.assignments):
        values = np.random.default_rng([seed, number])
        run = {n: make_value(r, sizes, values, False) for n, r in draft.recipes.items()}
        found = interpret(module, run)
        for output, own in expected(parts.ir_module, run, runs=20).items():  # with errors of what is in between
            problem = own.difference(found[output])
            assert problem is None, f"{output} with {sizes}: {problem}\n{module}\n{parts}"


@pytest.mark.parametrize("seed", range(12))
def test_contractions_are_products(seed: int) -> None:
    draft = drawn("mir.dot_general", seed)
    if draft is None:
        pytest.skip("the fuzzer skips it")
    parts = draft.module.transform("mir-dot-to-matmul")
    for number, sizes in enumerate(draft.assignments):
        values = np.random.default_rng([seed, number])
        run = {n: make_value(r, sizes, values, False) for n, r in draft.recipes.items()}
        found = interpret(draft.module, run)
        for output, own in expected(parts.ir_module, run, runs=6).items():
            assert own.difference(found[output]) is None, f"{output} with {sizes}\n{parts}"


def test_operations_with_kernels_stay_unless_asked_for() -> None:
    m = GraphModule.mir("f")
    m.set_outputs({"y": m.fused_swiglu(m.input("x", ["n", 8]))})
    assert "mir.fused_swiglu" in {pattern.root for pattern in TO_LINALG}
    assert "fused_swiglu" in m.transform("mir-decompose").to_text()
    for options in ("all=true", "only=fused_swiglu"):
        assert "fused_swiglu" not in m.transform(f"mir-decompose{{{options}}}").to_text()


def test_names_of_others_are_refused() -> None:
    m = GraphModule.mir("f")
    m.set_outputs({"y": m.relu(m.input("x", [2]))})
    with pytest.raises(RlxError, match=r"'only' names operations that are made of others, but mir\.relu is none"):
        m.transform("mir-decompose{only=relu}")


def test_compositions_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    m = GraphModule.mir("f")
    m.set_outputs({"y": m.fused_swiglu(m.input("x", [3, 8]))})
    for build, message in (
        (lambda m, x, gate_first=False: m.relu(x), r"gives tensor<3x8xf32>, but it has tensor<3x4xf32>"),
        (lambda m, x, gate_first=False: m.matmul(x, x), r"mir\.fused_swiglu.*'mir\.matmul'"),
    ):
        monkeypatch.setitem(COMPOSITIONS, "mir.fused_swiglu", build)
        with pytest.raises(RlxError, match=message):
            m.transform("mir-decompose{all=true}")


def test_sizes_of_compositions_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dimension that is as dynamic as the operation's, but another one."""
    m = GraphModule.mir("f")
    x = m.input("x", ["n", "k"])
    m.set_outputs({"y": m.activation("relu", m.fused_swiglu(x))})
    monkeypatch.setitem(COMPOSITIONS, "mir.fused_swiglu", lambda m, x, gate_first=False: m.relu(x))
    with pytest.raises(RlxError, match=r"dimension 1 of its composition is k, but its own is floordiv\(k, 2\)"):
        m.transform("mir-decompose{all=true}")


def test_operations_in_regions_are_decomposed() -> None:
    m = GraphModule.mir("f")
    x = m.input("x", [4, 8])
    carried, _ = m.scan(lambda c, e: (m.add(c, m.fused_swiglu(e)), None), m.constant(np.zeros(4, np.float32)), x)
    m.set_outputs({"y": carried})
    parts = m.transform("mir-decompose{all=true}")
    assert "fused" not in parts.to_text()
    values = np.random.default_rng(3).standard_normal((4, 8)).astype(np.float32)
    np.testing.assert_allclose(interpret(parts, {"x": values})["y"], interpret(m, {"x": values})["y"], rtol=1e-6)
