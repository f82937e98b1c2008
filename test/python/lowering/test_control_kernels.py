# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops and choices whose bodies have kernels of their own: plans of calls that run again, or not at all."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_harness import emulated_device

import rlx_mlir as rlx
from rlx_mlir import Artifact, GraphModule, own_ops
from rlx_mlir.errors import ExecutionError, InputError, StageError
from rlx_mlir.runtime.artifact import repetitions

F32 = np.float32
N = 24


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.3).astype(F32)


def compiled(module: GraphModule, *, threads: int = 1, **options: Any) -> rlx.Executable:
    """The module, with loops or branches in its plan, which its artefact's bytes keep."""
    executable = rlx.compile(module, threads=threads, cache=False, **options)
    assert executable.artifact.blocks
    assert Artifact.from_bytes(executable.artifact.to_bytes()) == executable.artifact
    return executable


def check(module: GraphModule, inputs: dict[str, np.ndarray], *, threads: int = 1, **options: Any) -> dict[str, Any]:
    """The outputs of the compiled module, which are those of the interpreted one; a second run gives the same bits."""
    executable = compiled(module, threads=threads, **options)
    params = {own.name: inputs[own.name] for own in module.params}
    executable.set_params(params)
    given = {name: value for name, value in inputs.items() if name not in params}
    found = {name: value.copy() for name, value in executable.run(given).items()}
    for name, value in rlx.interpret(module, inputs).items():
        assert found[name].shape == value.shape
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
    for name, value in executable.run(given).items():
        np.testing.assert_array_equal(found[name], value)
    return found


def recurrent(*, reverse: bool = False, batch: int | str = 3) -> GraphModule:
    """h = tanh(x W + h U + b) for each of x: the last one, and all of them."""
    m = GraphModule.mir("recurrent")
    x, h = m.input("x", ["t", batch, 8]), m.input("h", [batch, N])
    w, u, b = m.param("w", [N, 8]), m.param("u", [N, N]), m.param("b", [N])

    def step(state: Any, own: Any) -> Any:
        following = m.tanh(m.matmul(own, w, transpose_rhs=True) + m.matmul(state, u, transpose_rhs=True) + b)
        return following, following

    last, every = m.scan(step, h, x, reverse=reverse)
    m.set_outputs({"last": last, "every": every})
    return m


def recurrent_inputs(steps: int, batch: int = 3) -> dict[str, np.ndarray]:
    return {
        "x": random(steps, batch, 8, seed=steps),
        "h": random(batch, N, seed=1),
        "w": random(N, 8, seed=2),
        "u": random(N, N, seed=3),
        "b": random(N, seed=4),
    }


@pytest.mark.parametrize("steps", [0, 1, 2, 7, 100])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.quick(20)
def test_a_recurrent_network(steps: int, threads: int, reverse: bool) -> None:
    given = recurrent_inputs(steps)
    found = check(recurrent(reverse=reverse), given, threads=threads)
    state, every = given["h"], np.zeros((steps, 3, N), F32)
    for t in range(steps)[::-1] if reverse else range(steps):
        state = every[t] = np.tanh(given["x"][t] @ given["w"].T + state @ given["u"].T + given["b"])
    np.testing.assert_allclose(found["last"], state, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["every"], every, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("batch", [0, 1, 5])
def test_sizes_in_loops(batch: int) -> None:
    executable = compiled(recurrent(batch="b"), maxima={"t": 40, "b": 8})
    for steps in (3, 0, 40, 1):
        given = recurrent_inputs(steps, batch)
        executable.set_params({name: given.pop(name) for name in "wub"})
        found = executable.run(given)
        expected = rlx.interpret(recurrent(batch="b"), recurrent_inputs(steps, batch))
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="'t'"):
        executable.run({**given, "x": random(41, batch, 8)})


def test_what_a_step_gives_stays_while_the_step_goes_on() -> None:
    """Nothing else of the step reads it; what is computed after it has memory of its own."""
    m = GraphModule.mir("beside")
    x, h, w = m.input("x", ["t", 3, N]), m.input("h", [3, N]), m.param("w", [N, N])

    def step(state: Any, own: Any) -> Any:
        following = m.matmul(state, w)
        for _ in range(3):
            own = m.matmul(own, w)
        return following, own

    last, every = m.scan(step, h, x)
    m.set_outputs({"last": last, "every": every})
    given = {"x": random(4, 3, N, seed=1), "h": random(3, N, seed=2), "w": random(N, N, seed=3) * F32(0.3)}
    found = check(m, given)
    power = np.linalg.matrix_power(given["w"].astype(np.float64), 4)
    np.testing.assert_allclose(found["last"], given["h"] @ power, rtol=1e-4, atol=1e-5)


def test_products_in_loops_have_kernels_and_prepared_weights() -> None:
    artifact = compiled(recurrent()).artifact
    products = [name for name, kind in artifact.kinds.items() if kind == "gemm"]
    assert products
    assert all("generic" not in artifact.templates[name] for name in products)
    assert {name for name, _ in artifact.preparation.results}  # in panels, once
    (block,) = artifact.blocks
    assert (block.kind, block.begin, block.end) == ("for", 1, len(artifact.calls))
    assert len(block.swaps) == 1  # what is carried, and what a step gives for it


def power(*, limit: int | None = None) -> GraphModule:
    """The eigenvector of the largest eigenvalue: products with a matrix until nothing changes."""
    m = GraphModule.mir("power")
    a, v = m.input("a", [N, N]), m.input("v", [N, 1])

    def goes_on(own: Any, change: Any) -> Any:
        return m.compare("gt", change, 1e-5)

    def step(own: Any, change: Any) -> Any:
        following = m.matmul(a, own)
        following = following / m.sqrt(m.sum(following * following))
        return following, m.max(m.abs(following - own))

    v, change = m.while_loop(goes_on, step, (v, m.reduce(v * 0.0 + 1.0, "max")), limit=limit)
    m.set_outputs({"v": v, "change": change})
    return m


@pytest.mark.parametrize("limit", [None, 0, 1, 2, 10_000])
def test_power_iteration(limit: int | None) -> None:
    root = random(N, N)
    a = root @ root.T + np.eye(N, dtype=F32)
    found = check(power(limit=limit), {"a": a, "v": np.ones((N, 1), F32)})
    if limit is None or limit > 2:
        values, vectors = np.linalg.eigh(a)
        np.testing.assert_allclose(np.abs(found["v"][:, 0]), np.abs(vectors[:, np.argmax(values)]), atol=1e-3)


@pytest.mark.parametrize("truth", [False, True])
def test_one_branch_runs(truth: bool) -> None:
    m = GraphModule.mir("choice")
    p, x = m.input("p", [], "i1"), m.input("x", ["s", N])
    w = m.param("w", [N, N])
    y, z = m.cond(
        p, lambda: (m.matmul(m.matmul(x, w), w), x + 1.0), lambda: (m.matmul(m.matmul(m.matmul(x, w), w), w), x)
    )
    m.set_outputs({"y": y, "z": z, "sum": y + z})
    executable = compiled(m)
    inputs = {"p": np.array(truth), "x": random(5, N), "w": random(N, N, seed=1)}
    executable.set_params({"w": inputs["w"]})
    executable.run({"p": inputs["p"], "x": inputs["x"]})
    check(m, inputs)
    (block,) = executable.artifact.blocks
    assert block.kind == "if"
    assert block.begin < block.middle < block.end
    first, second = (
        executable.artifact.calls[block.begin : block.middle],
        executable.artifact.calls[block.middle : block.end],
    )
    inside = [{b[1] for call in part for b in call[1] if b[0] == "arena"} for part in (first, second)]
    slots = executable.artifact.slots
    assert sum(size for _, size in slots) > executable.artifact.arena_bytes  # branches share memory
    assert all(inside)


def test_loops_in_loops_and_choices_in_these() -> None:
    """For each sequence: as long as its sum is small, multiplied; in each step one of two matrices."""
    m = GraphModule.mir("nested")
    x = m.input("x", ["t", "r", N])
    w, u = m.param("w", [N, N]), m.param("u", [N, N])

    def outer(total: Any, own: Any) -> Any:
        def inner(state: Any, row: Any) -> Any:
            state = m.cond(
                m.compare("gt", m.sum(row), 0.0),
                lambda: m.matmul(state, w) + m.reshape(row, [1, N]),
                lambda: m.matmul(state, u),
            )
            return state, m.reduce(state, "max")

        state, tops = m.scan(inner, total, own)

        def goes_on(value: Any, turns: Any) -> Any:
            return m.compare("lt", m.sum(m.abs(value)), 40.0)

        def again(value: Any, turns: Any) -> Any:
            return m.matmul(value, w) + value + 1.0, turns + 1.0

        state, turns = m.while_loop(goes_on, again, (state, m.reduce(own, "max") * 0.0), limit=30)
        return state, (tops, turns)

    last, (tops, turns) = m.scan(outer, m.constant(np.ones((1, N), F32)), x)
    m.set_outputs({"last": last, "tops": tops, "turns": turns})
    for steps, rows in ((0, 2), (1, 0), (1, 1), (5, 2), (2, 5)):
        given = {"x": random(steps, rows, N, seed=steps), "w": random(N, N, seed=2), "u": random(N, N, seed=3)}
        check(m, given, threads=2)
    kinds = [(own.kind, own.parent) for own in compiled(m).artifact.blocks]
    assert kinds == [("for", -1), ("for", 0), ("if", 1), ("while", 0)]


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 6])
def test_what_is_carried_changes_places(steps: int) -> None:
    m = GraphModule.mir("places")
    a, b, kept = m.input("a", [4, N]), m.input("b", [4, N]), m.input("kept", [N, N])

    def step(first: Any, second: Any, third: Any) -> Any:
        return (second, m.matmul(first, third) + second, third), None

    first, second, third = m.scan(step, (a, b, kept), length=steps)[0] if steps else (a, b, kept)
    m.set_outputs({"first": first, "second": second, "third": third, "whole": first + second})
    given = {"a": random(4, N), "b": random(4, N, seed=1), "kept": random(N, N, seed=2)}
    executable = rlx.compile(m, cache=False)
    found = executable.run(given)
    one, other = given["a"], given["b"]
    for _ in range(steps):
        one, other = other, one @ given["kept"] + other
    np.testing.assert_allclose(found["first"], one, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["second"], other, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found["third"], given["kept"])


def cached(steps: int | str) -> GraphModule:
    """Attention over a cache that a loop carries, and writes one row of in each step."""
    m = GraphModule.mir("cached")
    x, cache = m.input("x", [steps, 1, N]), m.input("cache", [40, N])
    at, w = m.input("at", [steps], "i64"), m.param("w", [N, N])

    def step(own: Any, row: Any, number: Any) -> Any:
        written = m.dynamic_update_slice(own, m.matmul(row, w), number)
        scores = m.softmax(m.matmul(row, written, transpose_rhs=True))
        return written, m.matmul(scores, written)

    last, read = m.scan(step, cache, (x, at))
    m.set_outputs({"cache": last, "read": read})
    return m


def test_caches_are_updated_in_place() -> None:
    m = cached("t")
    given = {
        "x": random(6, 1, N),
        "cache": random(40, N, seed=1),
        "at": np.array([3, 0, 39, 7, 8, 3]),
        "w": random(N, N, seed=2),
    }
    found = check(m, given)
    expected = given["cache"].copy()
    for row, at in zip(given["x"], given["at"], strict=True):
        expected[at] = (row @ given["w"])[0]
    np.testing.assert_allclose(found["cache"], expected, rtol=1e-5, atol=1e-5)
    (block,) = compiled(m).artifact.blocks
    assert not block.swaps  # the cache stays where it is


def test_a_cache_that_is_stacked_too() -> None:
    m = GraphModule.mir("stacked")
    x, cache = m.input("x", ["t", 1, N]), m.input("cache", [5, N])
    at, w = m.input("at", ["t"], "i64"), m.param("w", [N, N])

    def step(own: Any, row: Any, number: Any) -> Any:
        written = m.dynamic_update_slice(own, m.matmul(row, w), number)
        return written, (written, own)

    last, (every, before) = m.scan(step, cache, (x, at))
    m.set_outputs({"last": last, "every": every, "before": before})
    given = {
        "x": random(4, 1, N),
        "cache": random(5, N, seed=1),
        "at": np.array([3, 0, 4, 3]),
        "w": random(N, N, seed=2),
    }
    check(m, given)


def test_values_that_several_read() -> None:
    """What is given twice, what is a view, what is a constant, and what the loop began with and others read too."""
    m = GraphModule.mir("several")
    x, w = m.input("x", ["t", N]), m.input("w", [N, N])
    start = m.reduce(x, "sum", axes=[0])

    def step(state: Any, count: Any, row: Any) -> Any:
        row = m.reshape(row, [1, N])
        product = m.matmul(row, w)
        flat = m.reshape(product, [N])
        return (flat, count + 1.0), (flat, product, m.constant(F32(3.0)), state)

    (last, count), (flat, product, three, before) = m.scan(step, (start, m.constant(F32(0.0))), x)
    m.set_outputs(
        {
            "last": last,
            "count": count,
            "flat": flat,
            "product": product,
            "three": three,
            "before": before,
            "start": start,
        }
    )
    check(m, {"x": random(5, N), "w": random(N, N, seed=1)})


@pytest.mark.parametrize("stage", ["kernels", "lir", "linalg"])
def test_text_of_each_stage_goes_on(stage: str) -> None:
    m = recurrent()
    text = rlx.emit(m, stage)
    given = recurrent_inputs(4)
    executable = rlx.compile(GraphModule.from_text(text), cache=False)
    executable.set_params({own.name: given[own.name] for own in executable.params})
    found = executable.run({name: given[name] for name in "xh"})
    np.testing.assert_allclose(found["last"], rlx.interpret(m, given)["last"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("module", "pattern", "new", "message"),
    [
        ("recurrent", r"scf\.for (%\w+) = %c0", r"scf.for \1 = %c1", "count from 0, by 1"),
        (
            "recurrent",
            r"scf\.yield (%\w+), (%\w+)",
            r"scf.yield \1, \1",
            "stay where they are, or two of them take turns",
        ),
        ("recurrent", r"memref\.copy (%\w+)#0", r"memref.copy \1#1", "only what a loop carries, to where it began"),
        ("power", "cmpi slt", "cmpi sgt", "fewer steps than it may"),
        ("power", r"arith\.addi (%\w+), %c1", r"arith.addi \1, %c0", "starts at 0, and grows by 1"),
        ("power", r"memref\.load (%\w+)\[\] : memref<i1>", "arith.constant true", "is loaded from memory"),
    ],
)
def test_loops_that_a_plan_cannot_have(module: str, pattern: str, new: str, message: str) -> None:
    text = rlx.emit(recurrent() if module == "recurrent" else power(limit=5), "lir")
    changed = re.sub(pattern, new, text)
    assert changed != text
    with pytest.raises(StageError, match=message):
        rlx.compile(GraphModule.from_text(changed), cache=False)


def test_numeric_verification_and_reports() -> None:
    m = recurrent()
    assert rlx.compile(m, cache=False, verify="numeric").artifact.blocks
    text = str(rlx.inspect(m, "kernels")) + str(rlx.inspect(m, "lir"))
    assert "scan(" in text
    assert "scf" not in text
    assert "t times: calls 1 to 3; last and b1 take turns" in text
    executable = compiled(m)
    given = recurrent_inputs(9)
    executable.set_params({name: given.pop(name) for name in "wub"})
    executable.profile(True)
    executable.run(given)
    assert all(seconds > 0 for _, seconds in executable.timings())
    assert repetitions(executable.artifact, [100]) == [1, 100, 100, 100]


def endless() -> GraphModule:
    m = GraphModule.mir("endless")
    x, w = m.input("x", [1, N]), m.param("w", [N, N])
    m.set_outputs({"y": m.while_loop(lambda y: m.compare("eq", m.sum(y) * 0.0, 0.0), lambda y: m.matmul(y, w), x)})
    return m


def test_a_signal_ends_a_loop() -> None:
    executable = compiled(endless())
    executable.set_params({"w": np.zeros((N, N), F32)})

    def handler(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            executable.run({"x": np.ones((1, N), F32)})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    executable.set_params({"w": np.full((N, N), np.nan, F32)})  # it runs again, and ends
    assert np.isnan(executable.run({"x": np.ones((1, N), F32)})["y"]).all()


def test_a_function_that_fails_ends_a_loop() -> None:
    def fails(x: np.ndarray) -> np.ndarray:
        raise ValueError("mine")

    rlx.register_op("test.fails", infer=lambda x: x, reference=lambda x: x, kernel=fails)
    m = GraphModule.mir("fails")
    x = m.input("x", [4])
    body = lambda y: m.minimum(m.maximum(m.custom("test.fails", y), 0.0), 1.0)  # noqa: E731
    m.set_outputs({"y": m.while_loop(lambda y: m.compare("ge", m.sum(y), 0.0), body, x)})
    try:
        executable = compiled(m)
        with pytest.raises(ExecutionError, match=r"'kernel' of 'test\.fails' raised ValueError: mine"):
            executable.run({"x": np.ones(4, F32)})
    finally:
        own_ops.unregister_op("test.fails")


def test_the_interpreter_is_watched_in_regions() -> None:
    seen: list[str] = []
    rlx.interpret(recurrent(), recurrent_inputs(3), watch=lambda op, operands, results: seen.append(op.name))
    assert seen.count("mir.tanh") == 3
    assert seen[-1] == "mir.scan"


def on_gpu(module: GraphModule, *given: dict[str, np.ndarray]) -> Artifact:
    """The outputs on a GPU, by the emulator of PTX, are those of the interpreter."""
    with emulated_device("sm_80"):
        executable = rlx.compile(module, target="cuda", cache=False)
        for inputs in given:
            params = {own.name: inputs[own.name] for own in module.params}
            executable.set_params(params)
            found = executable.run({name: value for name, value in inputs.items() if name not in params})
            for name, value in rlx.interpret(module, inputs).items():
                np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
        artifact: Artifact = executable.artifact
        return artifact


@pytest.mark.parametrize("reverse", [False, True])
def test_recurrent_networks_on_gpus(reverse: bool) -> None:
    artifact = on_gpu(recurrent(reverse=reverse), *(recurrent_inputs(steps) for steps in (0, 1, 5)))
    assert [own.kind for own in artifact.blocks] == ["for"]
    assert "gemm" in artifact.kinds.values()


def test_loops_that_values_end_on_gpus() -> None:
    m = GraphModule.mir("newton")
    x = m.input("x", ["n"])

    def goes_on(y: Any, change: Any) -> Any:
        return m.compare("gt", m.max(change), 1e-6)

    def step(y: Any, change: Any) -> Any:
        following = (y + x / y) * 0.5
        return following, m.abs(following - y) / following

    y, _ = m.while_loop(goes_on, step, (x * 0.5 + 0.5, x * 0.0 + 1.0), limit=100)
    m.set_outputs({"y": y})
    artifact = on_gpu(m, *({"x": np.random.default_rng(n).uniform(0.01, 100, n).astype(F32)} for n in (1, 3, 70)))
    assert [own.kind for own in artifact.blocks] == ["while"]


@pytest.mark.parametrize("truth", [False, True])
def test_branches_with_loops_on_gpus(truth: bool) -> None:
    m = GraphModule.mir("branches")
    p, x = m.input("p", [], "i1"), m.input("x", [8])
    doubled = lambda: m.while_loop(lambda y: m.compare("lt", m.sum(y), 100.0), lambda y: y + y, x)  # noqa: E731
    m.set_outputs({"y": m.cond(p, doubled, lambda: -x)})
    artifact = on_gpu(m, {"p": np.array(truth), "x": np.arange(8, dtype=F32)})
    assert [own.kind for own in artifact.blocks] == ["if", "while"]


def damaged(change: Callable[[dict[str, Any]], None]) -> None:
    artifact = compiled(recurrent()).artifact
    words: dict[str, Any] = {own: getattr(artifact.blocks[0], own) for own in artifact.blocks[0].__dataclass_fields__}
    change(words)
    from dataclasses import replace

    rlx.Executable(replace(artifact, blocks=(replace(artifact.blocks[0], **words),)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "loop"}, "a for, a while or an if, but it is 'loop'"),
        ({"end": 1000}, "from 1 to 1000, must be among those from 0 to"),
        ({"begin": 2, "middle": 1}, "must be among those"),
        ({"parent": 0}, "it can't be in part 0 of block 0"),
        ({"part": 2}, "it can't be in part 2 of block -1"),
        ({"steps": None}, "loops that count have steps"),
        ({"steps": [(1, [7])]}, "names symbol 7"),
        ({"flag": ("arena", 0, 0)}, "no flag"),
        ({"swaps": ((("input", 0, 0), ("arena", 0, 0), 4),)}, "slots of the arena take turns"),
        ({"swaps": ((("arena", 0, 0), ("arena", 99, 0), 4),)}, "there is no slot 99"),
        ({"swaps": ((("arena", 0, 0), ("arena", 1, 0), 10**9),)}, "needs 1000000000 bytes"),
        ({"steps": 10**6}, "bytes from byte .* on, but there are"),
        ({"kind": "if"}, "moves with block 0, which is no loop"),
    ],
)
def test_damaged_blocks_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        damaged(lambda words: words.update(change))
