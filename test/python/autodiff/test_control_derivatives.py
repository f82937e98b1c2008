# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Derivatives of choices, loops, and functions with derivatives of their own; compiled, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from derivatives import check

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.errors import BuildError

Arrays = dict[str, np.ndarray]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def network(**options: Any) -> GraphModule:
    """A recurrent network over x: [L, 3], which gives its last state and something of every step."""
    m = GraphModule.mir("network")
    x, h, w = m.input("x", ["L", 3], "f64"), m.input("h", [3], "f64"), m.param("w", [3, 3], "f64")

    def step(state: rlx.Value, entry: rlx.Value) -> tuple[rlx.Value, rlx.Value]:
        following = m.tanh(m.reshape(m.matmul(m.reshape(state, [1, 3]), w), [3]) + entry)
        return following, following * state

    last, each = m.scan(step, h, x, **options)
    m.set_outputs({"last": last, "each": each})
    return m


def of_network(length: int) -> Arrays:
    return {"x": numbers(length, 3), "h": numbers(3, seed=1), "w": numbers(3, 3, seed=2)}


def runs_compiled(module: GraphModule, values: Arrays) -> None:
    """What compiled code gives of a module's gradients, which is what they are by the definitions, for any seed."""
    pulled = rlx.vjp(module, [name for name in values if values[name].dtype == np.float64])
    outputs = rlx.interpret(module, values)
    seeds = {f"d_{name}": numbers(*array.shape, seed=3) for name, array in outputs.items()}
    expected = rlx.interpret(pulled, values | seeds)
    executable = rlx.compile(pulled, cache=False)
    params = {own.name for own in pulled.params}
    executable.set_params({name: values[name] for name in params})
    found = executable.run({k: v for k, v in (values | seeds).items() if k not in params})
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 4])
def test_scans(length, reverse):
    check(network(reverse=reverse), of_network(length), ["x", "h", "w"])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("count", "length"), [(1, 5), (2, 6), (2, 7), (3, 3), (3, 8)])
def test_checkpoints_change_no_bit(count, length, reverse):
    values = of_network(length)
    seeds = {"d_last": numbers(3, seed=5), "d_each": numbers(length, 3, seed=6)}
    kept = rlx.interpret(rlx.vjp(network(reverse=reverse)), values | seeds)
    computed = rlx.vjp(network(reverse=reverse, checkpoints=count))
    for name, array in rlx.interpret(computed, values | seeds).items():
        np.testing.assert_array_equal(array, kept[name], err_msg=name)


def test_what_reads_the_entries_of_a_scan_with_checkpoints_follows_them():
    m = GraphModule.mir("read")
    x, h = m.input("x", [5, 3], "f64"), m.input("h", [3], "f64")
    last, each = m.scan(lambda state, entry: (m.tanh(state + entry), state * entry), h, x, checkpoints=2)
    m.set_outputs({"last": m.exp(last), "each": m.cumsum(each, 0)})
    check(m, {"x": numbers(5, 3), "h": numbers(3, seed=1)}, ["x", "h"])


def test_checkpoints_need_less_memory():
    m = GraphModule.mir("long")
    x, h = m.input("x", [4096, 64]), m.param("h", [64])
    last, _ = m.scan(lambda state, entry: (m.tanh(state + entry), None), h, x)
    m.set_outputs({"loss": m.sum(last)})
    few = GraphModule.mir("few")
    x, h = few.input("x", [4096, 64]), few.param("h", [64])
    last, _ = few.scan(lambda state, entry: (few.tanh(state + entry), None), h, x, checkpoints=64)
    few.set_outputs({"loss": few.sum(last)})
    bytes_of = [rlx.compile(rlx.grad(own), cache=False).artifact.arena_bytes for own in (m, few)]
    assert bytes_of[1] < bytes_of[0] / 8


def test_scans_compile():
    runs_compiled(network(), of_network(5))
    runs_compiled(network(reverse=True, checkpoints=2), of_network(5))


def test_second_derivatives_of_scans():
    m = network()
    m.set_outputs({"loss": m.sum(m.outputs["last"]) + m.sum(m.outputs["each"])})
    check(rlx.grad(m, ["h", "w"]), of_network(4), ["x", "h", "w"])


def test_nothing_is_carried_for_what_no_gradient_needs():
    pulled = rlx.vjp(network(), ["x"])
    sweep = pulled.nodes()[-1]
    assert sweep.op == "mir.scan"
    assert [value.shape for value in sweep.results] == [(3,), ("L", 3)], "no sum for the weights"


def chosen() -> GraphModule:
    """exp(x) y where the sum of x is positive, else sin(y)."""
    m = GraphModule.mir("chosen")
    x, y = m.input("x", [3], "f64"), m.input("y", [3], "f64")
    m.set_outputs({"z": m.cond(m.sum(x) > 0.0, lambda: m.exp(x) * y, lambda: m.sin(y))})
    return m


@pytest.mark.parametrize("sign", [1, -1])
def test_choices(sign):
    values = {"x": sign * np.full(3, 0.3), "y": numbers(3)}
    check(chosen(), values, orders=2)
    runs_compiled(chosen(), values)


def test_the_other_branch_of_a_choice_does_not_matter():
    m = GraphModule.mir("root")
    x = m.input("x", [], "f64")
    m.set_outputs({"y": m.cond(x > 0.0, lambda: m.log(x), lambda: x * 2.0)})
    found = rlx.interpret(rlx.grad(m), {"x": np.float64(-1)})
    assert found["d_x"] == 2


def loop(limit: int | None) -> GraphModule:
    """x = x y + 1/2, until the squares of x sum to 10."""
    m = GraphModule.mir("loop")
    x, y = m.input("x", [3], "f64"), m.input("y", [3], "f64")
    m.set_outputs({"z": m.while_loop(lambda v: m.sum(v * v) < 10.0, lambda v: v * y + 0.5, x, limit=limit)})
    return m


@pytest.mark.parametrize("start", [0.3, 5.0])
def test_loops_with_a_bound(start):
    values = {"x": np.full(3, start), "y": 1 + np.abs(numbers(3))}
    check(loop(8), values)
    runs_compiled(loop(8), values)


def test_loops_without_a_bound_have_forward_mode_alone():
    values = {"x": np.full(3, 0.3), "y": np.full(3, 1.5), "t_x": np.ones(3), "t_y": np.zeros(3)}
    found = rlx.interpret(rlx.jvp(loop(None)), values)
    steps = np.log(found["t_z"]) / np.log(1.5)
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-9)
    wanted = r"'mir.while'.*test_control_derivatives.py.*give it a 'limit', or use forward mode"
    with pytest.raises(BuildError, match=wanted):
        rlx.vjp(loop(None))


def counted(build: Callable[[GraphModule, rlx.Value, rlx.Value], Any]) -> GraphModule:
    m = GraphModule.mir("own")
    x, y = m.input("x", [3], "f64"), m.input("y", [3], "f64")
    m.set_outputs({"z": build(m, x, y)})
    return m


def test_functions_without_derivatives_of_their_own():
    values = {"x": numbers(3), "y": numbers(3, seed=1)}
    check(counted(lambda m, x, y: m.custom_fn(lambda a, b: m.sin(a) * b, x, y)), values, orders=2)


def test_derivatives_of_a_functions_own():
    """One of both rules is enough: the other mode takes its transpose."""
    values = {"x": numbers(3), "y": numbers(3, seed=1)}
    seed, direction = numbers(3, seed=2), numbers(3, seed=3)

    def twice_back(m: GraphModule, x: rlx.Value, y: rlx.Value) -> Any:
        return m.custom_fn(lambda a: m.round(a), x, vjp=lambda a, r, d: d * m.cos(a))

    def thrice_forth(m: GraphModule, x: rlx.Value, y: rlx.Value) -> Any:
        return m.custom_fn(lambda a, b: m.round(a) + b, x, y, jvp=lambda a, b, s, t: s * m.cos(a) + t * 3.0)

    for build, by_y in ((twice_back, 0.0), (thrice_forth, 3.0)):
        m = counted(build)
        pulled = rlx.interpret(rlx.vjp(m, ["x", "y"] if by_y else ["x"]), values | {"d_z": seed})
        np.testing.assert_allclose(pulled["d_x"], seed * np.cos(values["x"]))
        pushed = rlx.interpret(rlx.jvp(m, ["x"]), values | {"t_x": direction})
        np.testing.assert_allclose(pushed["t_z"], direction * np.cos(values["x"]))
        if by_y:
            np.testing.assert_allclose(pulled["d_y"], seed * by_y)


def test_loops_in_loops_and_choices_in_loops():
    m = GraphModule.mir("nested")
    x, h = m.input("x", ["L", 2, 3], "f64"), m.input("h", [3], "f64")

    def inner(state: rlx.Value, entry: rlx.Value) -> tuple[rlx.Value, None]:
        return m.cond(m.sum(state) > 0.0, lambda: m.sin(state) + entry, lambda: state * entry), None

    def outer(state: rlx.Value, entries: rlx.Value) -> tuple[rlx.Value, rlx.Value]:
        last, _ = m.scan(inner, state, entries)
        return last, last * 2.0

    last, each = m.scan(outer, h, x)
    m.set_outputs({"last": last, "each": each})
    values = {"x": numbers(3, 2, 3), "h": numbers(3, seed=1)}
    check(m, values)
    runs_compiled(m, values)
