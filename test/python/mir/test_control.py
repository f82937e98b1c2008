# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations with regions: what they compute, compiled and by reference, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda_harness import emulated_device

import rlx_mlir as rlx
from rlx_mlir import GraphModule, ir
from rlx_mlir.errors import BuildError, InputError, UnsupportedError
from rlx_mlir.rewriting import run_pipeline

F32 = np.float32
LENGTHS = (0, 1, 2, 3, 17, 1000)


def run(module: GraphModule, inputs: dict[str, Any], *, threads: int = 1, atol: float = 1e-6) -> dict[str, np.ndarray]:
    """The outputs, compiled; they are those of the interpreter, too, and of the module's text and bytecode."""
    text = module.to_text()
    assert GraphModule.from_text(text).to_text() == text
    assert GraphModule.from_bytecode(module.bytecode(), trusted=True).to_text() == text
    executable = rlx.compile(module, threads=threads, cache=False)
    params = {p.name: inputs[p.name] for p in module.params}
    executable.set_params(params)
    found = executable.run({name: value for name, value in inputs.items() if name not in params})
    expected = rlx.interpret(module, inputs)
    for name, value in expected.items():
        assert found[name].shape == value.shape
        np.testing.assert_allclose(
            found[name].astype(np.float64), value.astype(np.float64), rtol=2e-6, atol=atol, err_msg=name
        )
    return found


def newton(size: int) -> GraphModule:
    """Square roots of a vector: steps until no element changes by more than a part in a million."""
    m = GraphModule.mir("newton")
    x = m.input("x", [size])

    def goes_on(y: Any, change: Any) -> Any:
        return m.compare("gt", m.reduce(change, "max") if size else m.reduce(change, "sum"), 1e-6)

    def step(y: Any, change: Any) -> Any:
        following = m.mul(m.add(y, m.div(x, y)), 0.5)
        return following, m.div(m.abs(m.sub(following, y)), following)

    y, _ = m.while_loop(goes_on, step, (m.add(m.mul(x, 0.5), 0.5), m.add(m.mul(x, 0.0), 1.0)))
    m.set_outputs({"y": y})
    return m


@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.quick(2)
def test_newton_iteration_by_while(size: int) -> None:
    x = np.random.default_rng(size).uniform(0.01, 100, size).astype(F32)
    found = run(newton(size), {"x": x}, threads=2)["y"]
    np.testing.assert_allclose(found, np.sqrt(x), rtol=1e-6)


def running_mean() -> GraphModule:
    m = GraphModule.mir("running_mean")
    x, start = m.input("x", ["t", 4]), m.input("start", [4])
    decay = m.input("decay", [])

    def step(mean: Any, own: Any) -> Any:
        following = m.add(mean, m.mul(m.sub(own, mean), decay))
        return following, following

    last, every = m.scan(step, start, x)
    m.set_outputs({"last": last, "every": every})
    return m


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_running_mean_by_scan_of_any_length(threads: int) -> None:
    executable = rlx.compile(running_mean(), threads=threads, cache=False, maxima={"t": 10_000})
    rng = np.random.default_rng(1)
    start, decay = rng.standard_normal(4).astype(F32), np.array(0.25, F32)
    for length in (*LENGTHS, 10_000):
        x = rng.standard_normal((length, 4)).astype(F32)
        found = executable.run({"x": x, "start": start, "decay": decay})
        mean, every = start, []
        for own in x:
            mean = mean + (own - mean) * decay
            every.append(mean)
        np.testing.assert_allclose(found["every"], np.array(every).reshape(length, 4), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["last"], mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("truth", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64", "i32"])
@pytest.mark.quick(1)
def test_one_of_two(truth: bool, dtype: str) -> None:
    m = GraphModule.mir("choice")
    p, x, y = m.input("p", [], "i1"), m.input("x", ["n", 3], dtype), m.input("y", ["n", 3], dtype)
    first, second = m.cond(p, lambda: (m.add(x, y), x), lambda: (y, m.sub(x, y)))
    m.set_outputs({"first": first, "second": second})
    kind = {"f32": F32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64, "i32": np.int32}[dtype]
    for size in (0, 1, 5, 129):
        rng = np.random.default_rng(size)
        x_, y_ = (rng.integers(-50, 50, (size, 3)).astype(kind) for _ in range(2))
        found = run(m, {"p": np.array(truth), "x": x_, "y": y_})
        np.testing.assert_array_equal(found["first"], x_ + y_ if truth else y_)
        np.testing.assert_array_equal(found["second"], x_ if truth else x_ - y_)


def lazy() -> GraphModule:
    """A loop without end in a branch."""
    m = GraphModule.mir("lazy")
    p, x = m.input("p", [], "i1"), m.input("x", [4])
    forever = lambda: m.while_loop(lambda y: m.compare("eq", 0.0 * m.sum(x, [0]), 0.0), lambda y: y, x)  # noqa: E731
    m.set_outputs({"y": m.cond(p, forever, lambda: m.neg(x))})
    return m


def test_the_other_branch_does_not_run() -> None:
    x_ = np.arange(4, dtype=F32)
    np.testing.assert_array_equal(run(lazy(), {"p": np.array(False), "x": x_})["y"], -x_)


def test_carried_values_change_places() -> None:
    m = GraphModule.mir("fibonacci")
    a, b, n = m.input("a", [5], "i64"), m.input("b", [5], "i64"), m.input("n", [], "i32")
    zero = m.constant(np.array(0, np.int32))
    first, second, _ = m.while_loop(
        lambda a, b, i: m.compare("lt", i, n), lambda a, b, i: (b, m.add(a, b), m.add(i, 1)), (a, b, zero)
    )
    m.set_outputs({"first": first, "second": second})
    a_, b_ = np.arange(5), np.arange(5) + 1
    for steps in (0, 1, 2, 7, 50):
        found = run(m, {"a": a_, "b": b_, "n": np.array(steps, np.int32)})
        x, y = a_, b_
        for _ in range(steps):
            x, y = y, x + y
        np.testing.assert_array_equal(found["first"], x)
        np.testing.assert_array_equal(found["second"], y)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.quick(1)
def test_views_of_what_is_carried(steps: int) -> None:
    """Rows in other order, and parts joined again: what is written would overwrite what is read."""
    m = GraphModule.mir("turned")
    x = m.input("x", [3, 4])

    def step(x: Any) -> Any:
        return m.concat([x[1:], x[:1]], axis=0), None

    def turn(x: Any) -> Any:
        return m.reshape(m.transpose(m.reshape(x, [4, 3]), [1, 0]), [3, 4]), None

    first, _ = m.scan(step, x, length=steps)
    second, _ = m.scan(turn, x, length=steps)
    third, _ = m.scan(lambda x: (x[::-1, ::-1], None), x, length=steps)
    m.set_outputs({"first": first, "second": second, "third": third})
    x_ = np.arange(12, dtype=F32).reshape(3, 4)
    found = run(m, {"x": x_})
    turned = x_
    for _ in range(steps):
        turned = turned.reshape(4, 3).T.reshape(3, 4)
    np.testing.assert_array_equal(found["first"], np.roll(x_, -steps, axis=0))
    np.testing.assert_array_equal(found["second"], turned)
    np.testing.assert_array_equal(found["third"], x_[::-1, ::-1] if steps % 2 else x_)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.quick(1)
def test_scan_from_either_end(reverse: bool) -> None:
    m = GraphModule.mir("sums")
    x, w = m.input("x", ["t", "n"]), m.input("w", ["t"], "i32")

    def step(total: Any, own: Any, weight: Any) -> Any:
        following = m.add(total, m.mul(own, m.cast(weight, "f32")))
        return following, (following, m.sub(0, weight))

    last, (every, weights) = m.scan(step, m.mul(m.sum(x, [0]), 0.0), (x, w), reverse=reverse)
    m.set_outputs({"last": last, "every": every, "weights": weights})
    for t, n in ((0, 3), (1, 1), (5, 0), (7, 33)):
        rng = np.random.default_rng(t)
        x_, w_ = rng.integers(-9, 9, (t, n)).astype(F32), rng.integers(-9, 9, t).astype(np.int32)
        found = run(m, {"x": x_, "w": w_})
        terms = x_ * w_[:, None]
        sums = np.cumsum(terms[::-1], axis=0)[::-1] if reverse else np.cumsum(terms, axis=0)
        np.testing.assert_array_equal(found["every"], sums)
        np.testing.assert_array_equal(found["last"], terms.sum(axis=0))
        np.testing.assert_array_equal(found["weights"], -w_)


def test_regions_in_regions() -> None:
    """A loop in a loop in a choice; the innermost one reads what is outside of all."""
    m = GraphModule.mir("nested")
    p, x, w = m.input("p", [], "i1"), m.input("x", ["t", 4]), m.param("w", [4, 4])

    def power(value: Any) -> Any:
        row = m.reshape(value, [1, 4])
        found, _ = m.scan(lambda row: (m.tanh(m.matmul(row, w)), None), row, length=3)
        return m.reshape(found, [4])

    def then() -> Any:
        last, every = m.scan(lambda c, own: ((following := m.add(power(own), c)), following), x[0] * 0.0, x)
        return m.add(every, last)

    m.set_outputs({"y": m.cond(p, then, lambda: m.relu(x))})
    rng = np.random.default_rng(0)
    w_ = rng.standard_normal((4, 4)).astype(F32)
    for t in (1, 2, 9):
        x_ = rng.standard_normal((t, 4)).astype(F32)
        found = run(m, {"p": np.array(True), "x": x_, "w": w_}, atol=1e-5)["y"]
        rows, total, every = x_, np.zeros(4, F32), []
        for row in rows:
            for _ in range(3):
                row = np.tanh(row @ w_)
            total = row + total
            every.append(total)
        np.testing.assert_allclose(found, np.array(every) + total, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(run(m, {"p": np.array(False), "x": x_, "w": w_})["y"], np.maximum(x_, 0))


def test_blocks_and_packed_weights_in_a_loop() -> None:
    """A layer that is applied again and again: blocks of HIR lower inside, and the weight is captured as it is."""
    m = GraphModule.hir("depth")
    x = m.input("x", [2, 32])
    gamma, w = m.param("gamma", [32]), m.param("w", [32, 32], packed="q8_0")
    last, _ = m.scan(lambda x: (m.add(x, m.linear(m.rms_norm(x, gamma), w)), None), x, length=4)
    m.set_outputs({"y": last})
    rng = np.random.default_rng(5)
    weight = rlx.formats.encode("q8_0", rng.standard_normal((32, 32)).astype(F32) * 0.1)
    run(m, {"x": rng.standard_normal((2, 32)).astype(F32), "gamma": np.ones(32, F32), "w": weight})


def test_constants_are_built_again_inside() -> None:
    """Of the graph around a region, at two depths, and where building fails."""
    m = GraphModule.mir("constants")
    x, two = m.input("x", [3]), m.constant(np.array(2.0, F32))

    def outer(c: Any) -> Any:
        inner, _ = m.scan(lambda d: (m.mul(d, two), None), c, length=2)
        return m.add(inner, two), None

    with pytest.raises(BuildError, match="not to be negative"):
        m.while_loop(lambda x: m.constant(np.array(False)), lambda x: m.mul(x, two), x, limit=-1)
    m.set_outputs({"y": m.scan(outer, x, length=2)[0]})
    assert "with(" not in m.to_text()  # nothing is captured
    np.testing.assert_array_equal(run(m, {"x": np.arange(3, dtype=F32)})["y"], np.arange(3, dtype=F32) * 16 + 10)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_limit_ends_a_loop(limit: int) -> None:
    m = GraphModule.mir("limited")
    x = m.input("x", [3])
    m.set_outputs({"y": m.while_loop(lambda x: m.constant(np.array(True)), lambda x: m.add(x, 1.0), x, limit=limit)})
    np.testing.assert_array_equal(run(m, {"x": np.zeros(3, F32)})["y"], np.full(3, limit, F32))


def test_sizes_that_differ_between_steps_are_refused() -> None:
    """Rows of x and of y are of one size at run time, or the carried value changes its size."""
    m = GraphModule.mir("sizes")
    x, y = m.input("x", ["a"]), m.input("y", ["b"])
    m.set_outputs({"y": m.scan(lambda c: (m.neg(y), None), x, length=2)[0]})
    executable = rlx.compile(m, cache=False)
    same = np.arange(4, dtype=F32)
    np.testing.assert_array_equal(executable.run({"x": same, "y": same})["y"], -same)
    with pytest.raises(InputError, match=r"'mir.scan'.* 4 .* 5|'mir.scan'.*a.*b"):
        executable.run({"x": same, "y": np.zeros(5, F32)})
    with pytest.raises(InputError):
        rlx.interpret(m, {"x": same, "y": np.zeros(5, F32)})


def test_a_value_does_not_leave_its_region() -> None:
    m = GraphModule.mir("leak")
    x = m.input("x", [4])
    kept = []

    def body(x: Any) -> Any:
        kept.append(m.neg(x))
        return kept[0], None

    m.scan(body, x, length=2)
    with pytest.raises(BuildError, match="belongs to a region that is built already"):
        m.add(kept[0], x)


REFUSED = {
    "cond types": (
        lambda m, x, p: m.cond(p, lambda: x, lambda: m.cast(x, "f16")),
        r"'then' gives \(tensor<4xf32>\) and 'otherwise' \(tensor<4xf16>\)",
    ),
    "cond no value": (lambda m, x, p: m.cond(p, lambda: 1.0, lambda: x), "'then' of 'mir.if' is a Value"),
    "cond no function": (lambda m, x, p: m.cond(p, x, lambda: x), r"'then' is a function of \(\), but got"),
    "cond arguments": (lambda m, x, p: m.cond(p, lambda: x, lambda x: x), r"'otherwise' is a function of \(\)"),
    "while arguments": (
        lambda m, x, p: m.while_loop(lambda: p, lambda x: x, x),
        r"'cond' is a function of \(value0\)",
    ),
    "while number": (lambda m, x, p: m.while_loop(lambda x: p, lambda x: x, x, limit=[]), "'limit' is an integer"),
    "scan number": (lambda m, x, p: m.scan(lambda x: (x, None), x, length=2.0), "'length' is an integer"),
    "cond of vectors": (lambda m, x, p: m.cond(m.reshape(p, [1]), lambda: x, lambda: x), "0-d tensor of i1"),
    "while type": (
        lambda m, x, p: m.while_loop(lambda x: p, lambda x: m.cast(x, "f16"), x),
        r"expects region 'body' to yield \('tensor<4xf32>'\)",
    ),
    "while condition": (lambda m, x, p: m.while_loop(lambda x: x, lambda x: x, x), "0-d tensor of i1"),
    "while limit": (lambda m, x, p: m.while_loop(lambda x: p, lambda x: x, x, limit=-1), "not to be negative"),
    "scan no pair": (lambda m, x, p: m.scan(lambda x: x, x, length=2), r"gives \(carried, stacked\)"),
    "scan no length": (lambda m, x, p: m.scan(lambda x: (x, None), x), "expects 'length' or one of 'xs'"),
    "scan lengths": (
        lambda m, x, p: m.scan(lambda c, a: (c, a), x, x, length=3),
        "expects each of 'xs' to have 3 entries",
    ),
    "scan element": (lambda m, x, p: m.scan(lambda c, a: (c, a), x, p), "has a first dimension"),
    "outputs inside": (
        lambda m, x, p: m.scan(lambda c: (m.set_outputs({"y": c}), None), x, length=2),
        "a region of an operation is being built",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.quick(6)
def test_what_is_refused(case: str) -> None:
    build, message = REFUSED[case]
    m = GraphModule.mir("refused")
    x, p = m.input("x", [4]), m.input("p", [], "i1")
    with pytest.raises(BuildError, match=message):
        build(m, x, p)
    assert len(m) == ("reshape" in m.to_text())  # nothing else was added
    m.set_outputs({"y": m.neg(x)})
    x_ = np.arange(4, dtype=F32)
    np.testing.assert_array_equal(rlx.compile(m, cache=False).run({"x": x_, "p": np.array(True)})["y"], -x_)


def test_an_error_in_a_function_is_the_callers() -> None:
    m = GraphModule.mir("raises")
    x = m.input("x", [4])

    def body(c: Any) -> Any:
        m.neg(c)
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        m.scan(body, x, length=2)
    m.set_outputs({"y": m.neg(x)})
    assert len(m) == 1


def test_numeric_verification_knows_regions() -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(0.5, 2, 8).astype(F32)
    np.testing.assert_allclose(
        rlx.compile(newton(8), cache=False, verify="numeric").run({"x": x})["y"], np.sqrt(x), rtol=1e-6
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.quick(1)
def test_scans_on_gpus(reverse: bool) -> None:
    """The host takes the steps, each a few launches; run by the emulator of PTX."""
    m = GraphModule.mir("steps")
    x, w, start = m.input("x", ["t", 5]), m.param("w", [5, 5]), m.input("start", [1, 5])

    def step(state: Any, old: Any, own: Any) -> Any:
        following = m.tanh(m.add(m.matmul(state, w), own))
        return (following, state), m.sub(following, m.mul(old, 0.5))

    (last, before), every = m.scan(step, (start, start), x, reverse=reverse)
    m.set_outputs({"last": last, "before": before, "every": every})
    rng = np.random.default_rng(4)
    arrays = {"w": rng.standard_normal((5, 5)).astype(F32), "start": rng.standard_normal((1, 5)).astype(F32)}
    with emulated_device("sm_80"):
        executable = rlx.compile(m, target="cuda", cache=False)
        executable.set_params({"w": arrays["w"]})
        for steps in (0, 1, 2, 7):
            x_ = rng.standard_normal((steps, 5)).astype(F32)
            found = executable.run({"x": x_, "start": arrays["start"]})
            for name, value in rlx.interpret(m, {**arrays, "x": x_}).items():
                np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.quick(1)
def test_layers_of_a_scan_are_unrolled(steps: int, reverse: bool) -> None:
    """A body with a product becomes its steps: each has kernels of their classes, and no loop is left."""
    m = GraphModule.hir("layers")
    x = m.input("x", ["n", 32])
    gammas, w = m.input("gammas", [steps, 32]), m.param("w", [32, 32])

    def layer(x: Any, gamma: Any) -> Any:
        following = m.add(x, m.silu(m.linear(m.rms_norm(x, gamma), w)))
        return following, following[:, :8]

    last, every = m.scan(layer, x, gammas, reverse=reverse)
    m.set_outputs({"last": last, "every": every})
    rng = np.random.default_rng(steps)
    arrays = {
        "gammas": rng.uniform(0.5, 1.5, (steps, 32)).astype(F32),
        "w": (rng.standard_normal((32, 32)) * 0.1).astype(F32),
    }
    for n in (1, 3):
        x_ = rng.standard_normal((n, 32)).astype(F32)
        found = run(m, {**arrays, "x": x_}, threads=2, atol=1e-5)
        assert found["every"].shape == (steps, n, 8)
    kernels = rlx.emit(m, "kernels")
    assert ("mir.scan" in kernels) == (steps == 0)
    assert 'mir.kernel = "gemm"' in kernels


def test_scans_that_stay_loops_say_why() -> None:
    m = GraphModule.mir("stays")
    x, w = m.input("x", ["t", 1, 8]), m.param("w", [8, 8])
    m.set_outputs({"y": m.scan(lambda c, own: (m.matmul(m.add(c, own), w), None), x[0], x)[0]})
    text = m.transform("mir-unroll-scans").to_text()
    assert "mir.scan" in text
    nested = GraphModule.mir("nested")
    row = nested.input("row", [1, 8])

    def deep(depth: int) -> Any:
        if not depth:
            return lambda c: (nested.matmul(c, c_w), None)
        return lambda c: (nested.scan(deep(depth - 1), c, length=30)[0], None)

    c_w = nested.param("w", [8, 8])
    nested.set_outputs({"y": nested.scan(deep(4), row, length=30)[0]})
    assert nested.transform("mir-unroll-scans").to_text().count("mir.matmul") == 30 * 30  # steps multiply: not 30 ** 5
    run(m, {"x": np.ones((3, 1, 8), F32) * 0.1, "w": np.eye(8, dtype=F32)})


@pytest.mark.parametrize("truth", [False, True])
def test_choices_on_gpus(truth: bool) -> None:
    """Both branches run, and elements are chosen; NaN of the other branch doesn't matter."""
    m = GraphModule.mir("choice")
    p, x = m.input("p", [], "i1"), m.input("x", ["n", 4])
    first, second = m.cond(p, lambda: (m.log(x), m.add(x, 1.0)), lambda: (m.exp(x), x))
    m.set_outputs({"first": first, "second": second})
    x_ = np.random.default_rng(1).standard_normal((3, 4)).astype(F32)
    arrays = {"p": np.array(truth), "x": x_}
    with emulated_device("sm_80"):
        found = rlx.compile(m, target="cuda", cache=False).run(arrays)
    for name, value in rlx.interpret(m, arrays).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


def test_gpus_say_what_they_lack() -> None:
    m = GraphModule.mir("unaligned")
    x, start = m.input("x", [7, 3]), m.input("start", [3])
    inside = lambda own: m.while_loop(lambda y: m.compare("lt", m.sum(y), 1.0), lambda y: y + y, own)  # noqa: E731
    m.set_outputs({"y": m.scan(lambda c, own: (c + inside(own), None), start, x)[0]})
    with pytest.raises(UnsupportedError, match=r"mir\.while.*\n?.*in 'mir\.scan'.*a multiple of 16 bytes each"):
        rlx.compile(m, target="nvptx", cache=False)
    assert rlx.compile(m, cache=False)


def test_sizes_are_bound_in_regions() -> None:
    x = np.random.default_rng(1).standard_normal((8, 4)).astype(F32)
    arrays = {"x": x, "start": np.zeros(4, F32), "decay": np.array(0.5, F32)}
    bound = running_mean().bind({"t": 8})
    assert "?" not in bound.to_text()
    found, expected = run(bound, arrays), run(running_mean(), arrays)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize("stage", ["mir", "kernels", "lir"])
@pytest.mark.quick(2)
def test_text_of_each_stage_goes_on(stage: str) -> None:
    x = np.random.default_rng(2).standard_normal((5, 4)).astype(F32)
    arrays = {"x": x, "start": np.zeros(4, F32), "decay": np.array(0.5, F32)}
    resumed = GraphModule.from_text(rlx.emit(running_mean(), stage))
    found = rlx.compile(resumed, cache=False).run(arrays)
    np.testing.assert_array_equal(found["every"], rlx.compile(running_mean(), cache=False).run(arrays)["every"])


def test_reports_know_loops() -> None:
    executable = rlx.compile(running_mean(), cache=False)
    assert "scan_0" in str(executable.dispatch_report({"t": 5}))
    assert "mir.scan" in str(running_mean().inspect())


def test_scalars_in_regions_have_no_sizes() -> None:
    """Operations of other dialects may stand in a region, between passes."""
    with ir.new_context():
        module = ir.Module.parse(
            """
            func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
              %y = mir.scan (%x) length 2 : (tensor<4xf32>) -> tensor<4xf32> {
              ^bb0(%a: tensor<4xf32>):
                %c = arith.constant 1.0 : f32
                mir.yield %a : tensor<4xf32>
              }
              return %y : tensor<4xf32>
            }
            """
        )
        run_pipeline(module, "rlx-to-kernels")
        assert str(module).count("mir.scan") == 1


def test_sizes_of_loops_in_loops_take_no_time_that_doubles() -> None:
    """Of 30 scans in one another: what is found of the inner ones is found once."""
    m = GraphModule.mir("deep")
    x = m.input("x", ["n"])

    def body(depth: int) -> Any:
        return lambda c: (m.scan(body(depth - 1), c, length=2)[0] if depth else m.neg(c), None)

    y, _ = m.scan(body(29), x, length=2)
    m.set_outputs({"y": y})
    assert m.clone().outputs["y"].shape == ("n",)
