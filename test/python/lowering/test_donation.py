# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Outputs that are tied to arguments: which ties are refused, and that results are right where memory is donated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain, combinations
from pathlib import Path

import numpy as np
import pytest
import seeds
from cuda_harness import emulated_device

import rlx_mlir as rlx
from rlx_mlir import CudaExecutable, DeviceArray, GraphModule
from rlx_mlir.compiler import CompileOptions, build_artifact
from rlx_mlir.errors import BuildError, InputError, UnsupportedError
from rlx_mlir.hir.values import Value
from rlx_mlir.interpreter import interpret
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.runtime.executable import Executable
from rlx_mlir.semantics.function import body, entry_function, is_parameter, unchanged_parameters

#: Rows and columns of the random graphs: less than a vector, vectors with tails, and enough for several threads.
SIZES = ((5, 3), (19, 37), (6, 6), (300, 70))
REFUSED = "can't take the memory of '[a-z0-9]+', to which it is tied: "


@dataclass
class Drawn:
    """A random graph with ties.

    Attributes:
        arrays: what its arguments get.
        values: of the graph, each with what numpy gives for it.
        expected: the results.
        tied: by output, the argument.
    """

    module: GraphModule
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    values: list[tuple[Value, np.ndarray]] = field(default_factory=list)
    expected: dict[str, np.ndarray] = field(default_factory=dict)
    tied: dict[str, str] = field(default_factory=dict)


def softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def step(drawn: Drawn, rng: np.random.Generator, square: tuple[Value, np.ndarray], fixed: bool) -> None:
    """Adds one operation, or a few, on values that are there."""
    m = drawn.module
    (a, x), (b, y) = (drawn.values[i] for i in rng.integers(0, len(drawn.values), 2))
    if x.shape != y.shape:
        y, b = x, a
    kind = rng.integers(0, 12)
    if kind == 0:
        made = a + b, x + y
    elif kind == 1:
        made = a - b, x - y
    elif kind == 2:
        made = a * b, x * y
    elif kind == 3:
        made = m.maximum(a, b), np.maximum(x, y)
    elif kind == 4:
        made = m.tanh(a), np.tanh(x)
    elif kind == 5:
        made = m.where(m.lt(a, b), a, b * 0.5), np.where(x < y, x, y * np.float32(0.5))
    elif kind == 6:
        made = a - m.mean(a, -1, keep_dims=True), x - x.mean(-1, keepdims=True)
    elif kind == 7:
        made = m.softmax(a), softmax(x)
    elif kind == 8 and x.shape[-1] == square[1].shape[0]:
        made = a @ square[0] * 0.1, x @ square[1] * np.float32(0.1)
    elif kind == 9 and fixed:
        made = m.reshape(a, list(x.shape[::-1])), x.reshape(x.shape[::-1])
    elif kind == 10 and fixed and x.shape[0] > 1:
        rolled = m.concat([m.narrow(a, 0, 1, x.shape[0] - 1), m.narrow(a, 0, 0, 1)], axis=0)
        made = rolled, np.concatenate([x[1:], x[:1]])
    elif kind == 11 and fixed:
        made = m.transpose(a), x.T
    else:
        made = m.tanh(a * b), np.tanh(x * y)
    drawn.values.append((made[0], np.asarray(made[1], np.float32)))


def draw(seed: int) -> Drawn:
    """A random graph of element-wise operations, reductions, products and views, some of whose outputs are tied."""
    rng = np.random.default_rng([seed, seeds.seed()])
    rows, columns = SIZES[rng.integers(0, len(SIZES))]
    fixed = bool(rng.integers(0, 3))
    shape = [rows if fixed else "s", columns]
    drawn = Drawn(GraphModule.hir("ties"))
    m = drawn.module

    def argument(name: str, shape: list[int | str], sizes: tuple[int, int]) -> tuple[Value, np.ndarray]:
        drawn.arrays[name] = rng.uniform(-1, 1, sizes).astype(np.float32)
        return (m.param if rng.integers(0, 2) and fixed else m.input)(name, shape), drawn.arrays[name]

    square = argument("q", [columns, columns], (columns, columns))
    given = [argument(f"a{i}", shape, (rows, columns)) for i in range(rng.integers(2, 5))]
    drawn.values += given
    for _ in range(rng.integers(2, 9)):
        step(drawn, rng, square, fixed)
    chosen = rng.permutation(len(drawn.values))[: rng.integers(1, 4)]
    outputs = {f"o{i}": drawn.values[at] for i, at in enumerate(chosen)}
    free = [name for name in drawn.arrays if name != "q" or fixed]
    for name, (_, array) in outputs.items():
        fits = [own for own in free if drawn.arrays[own].shape == array.shape]
        if fits and rng.integers(0, 4):
            drawn.tied[name] = fits[rng.integers(0, len(fits))]
            free.remove(drawn.tied[name])
    m.set_outputs({name: value for name, (value, _) in outputs.items()}, tied=drawn.tied)
    drawn.expected = {name: array for name, (_, array) in outputs.items()}
    return drawn


def check(drawn: Drawn, executable: Executable, donate: tuple[str, ...], name: str) -> None:
    """Runs it, compares with numpy, and looks at which memory has what."""
    copies = {own: array.copy() for own, array in drawn.arrays.items()}
    executable.set_params({spec.name: copies[spec.name] for spec in executable.params})
    results = executable.run({spec.name: copies[spec.name] for spec in executable.inputs}, donate=donate)
    for output, array in drawn.expected.items():
        np.testing.assert_allclose(results[output], array, rtol=1e-4, atol=1e-5, err_msg=f"{name}: {output}")
        assert (results[output] is copies.get(drawn.tied.get(output, ""))) == (drawn.tied.get(output) in donate)
    for own, array in drawn.arrays.items():
        if own not in donate:
            np.testing.assert_array_equal(copies[own], array, err_msg=f"{name}: {own} was written")


def subsets(names: list[str]) -> list[tuple[str, ...]]:
    return list(chain.from_iterable(combinations(names, count) for count in range(len(names) + 1)))


@pytest.mark.parametrize("disabled", [(), ("all",)], ids=["templates", "generic"])
@pytest.mark.quick(1)
def test_random_ties(disabled: tuple[str, ...]) -> None:
    found: Counter[str] = Counter()
    for seed in range(24):
        drawn = draw(seed)
        try:
            artifact = build_artifact(drawn.module, CompileOptions(disable_templates=disabled))
        except UnsupportedError as error:
            if "to which it is tied: " not in str(error):
                raise
            continue
        found["accepted"] += bool(drawn.tied)
        for threads in (1, 2, 3):
            executable = Executable(artifact, threads=threads)
            for donate in subsets(list(drawn.tied.values())):
                check(drawn, executable, donate, f"seed {seed}, {threads} threads, donate {donate}")
    assert found["accepted"] >= 5


#: Graphs whose kernels have to be cut, ordered or left whole for `new` to take the memory of `x`; all [257, 257].
ACCEPTED: dict[str, Callable[[GraphModule, Value, Value], dict[str, Value]]] = {
    "beside a later result": lambda m, x, y: {"new": y + 1, "other": m.tanh(x) + 1},
    "beside an earlier result": lambda m, x, y: {"other": m.tanh(x) + 1, "new": y + 1},
    "before readers": lambda m, x, y: {"new": x - y, "other": m.transpose(x) * 2, "third": m.softmax(x)},
    "after a product of itself": lambda m, x, y: {"new": x - x @ y * 0.01},
    "of a product": lambda m, x, y: {"new": y @ y * 0.01 + x, "other": y @ x},
    "after a norm of itself": lambda m, x, y: {"new": m.softmax(x) * x - y},
    "a norm of a sum": lambda m, x, y: {"new": m.softmax(x + y)},
    "a centre": lambda m, x, y: {"new": x - m.mean(x, -1, keep_dims=True)},
    "a choice": lambda m, x, y: {"new": m.where(m.lt(x, y), x, y * 2)},
    "a view": lambda m, x, y: {"new": m.reshape(m.reshape(x, [257 * 257]) * 2, [257, 257]) + y},
    "twice": lambda m, x, y: {"new": x * x + x},
    "a move of it": lambda m, x, y: {"new": m.transpose(x) + y},
}


@pytest.mark.parametrize("disabled", [(), ("all",)], ids=["templates", "generic"])
@pytest.mark.parametrize("name", ACCEPTED)
@pytest.mark.quick(1)
def test_kernels_are_cut_for_ties(name: str, disabled: tuple[str, ...]) -> None:
    m = GraphModule.hir("accepted")
    x, y = m.input("x", [257, 257]), m.input("y", [257, 257])
    m.set_outputs(ACCEPTED[name](m, x, y), tied={"new": "x"})
    rng = np.random.default_rng(0)
    given = {word: rng.uniform(-1, 1, (257, 257)).astype(np.float32) for word in "xy"}
    wanted = interpret(m, given)
    artifact = build_artifact(m, CompileOptions(disable_templates=disabled))
    for threads in (1, 2, 3):
        executable = Executable(artifact, threads=threads)
        for donate in ((), ("x",)):
            copies = {word: array.copy() for word, array in given.items()}
            results = executable.run(copies, donate=donate)
            assert (results["new"] is copies["x"]) == bool(donate)
            for output, array in results.items():
                np.testing.assert_allclose(array, wanted[output], rtol=1e-4, atol=1e-5, err_msg=f"{output}, {donate}")


# -- an optimiser's step ----------------------------------------------------------------------------------------------


ADAM = {"w2": "w", "m2": "m", "v2": "v"}
RATES = {"keep": 0.9, "keep2": 0.99, "rate": 0.01, "epsilon": 1e-8}


def adam(shape: list[int | str], kind: str = "param", dtype: str = "f32") -> GraphModule:
    """One step of Adam for one tensor: the parameter, and the means of gradients and of their squares."""
    graph = GraphModule.hir("adam")
    w, m, v = (getattr(graph, kind)(name, shape, dtype) for name in "wmv")
    g = graph.input("g", shape, dtype)
    m2 = m * RATES["keep"] + g * (1 - RATES["keep"])
    v2 = v * RATES["keep2"] + g * g * (1 - RATES["keep2"])
    w2 = w - m2 / (graph.sqrt(v2) + RATES["epsilon"]) * RATES["rate"]
    graph.set_outputs({"w2": w2, "m2": m2, "v2": v2}, tied=ADAM)
    return graph


def adam_step(state: dict[str, np.ndarray], g: np.ndarray) -> None:
    """The same in numpy."""
    state["m"] = state["m"] * RATES["keep"] + g * (1 - RATES["keep"])
    state["v"] = state["v"] * RATES["keep2"] + g * g * (1 - RATES["keep2"])
    state["w"] = state["w"] - state["m"] / (np.sqrt(state["v"]) + RATES["epsilon"]) * RATES["rate"]


def state_of(shape: tuple[int, ...], dtype: type = np.float32) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {name: rng.uniform(0.1, 1, shape).astype(dtype) for name in "wmv"}


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("kind", "dtype", "disabled"),
    [("param", "f32", ()), ("input", "f32", ()), ("param", "f64", ()), ("param", "f32", ("all",))],
    ids=["params", "inputs", "f64", "generic"],
)
@pytest.mark.quick(2)
def test_adam_takes_no_copies(threads: int, kind: str, dtype: str, disabled: tuple[str, ...]) -> None:
    shape, numpy_dtype = (301, 70), np.float32 if dtype == "f32" else np.float64
    executable = rlx.compile(adam(list(shape), kind, dtype), cache=False, threads=threads, disable_templates=disabled)
    own = state_of(shape, numpy_dtype)
    wanted = {name: array.astype(np.float64) for name, array in own.items()}
    g = np.zeros(shape, numpy_dtype)
    given = own if kind == "input" else {}
    executable.set_params({} if given else own)
    call = executable.bind({**given, "g": g}, donate=["w", "m", "v"])
    addresses = {name: array.ctypes.data for name, array in own.items()}
    assert all(call.results[output] is own[name] for output, name in ADAM.items())
    for number in range(10):
        g[...] = np.random.default_rng(number).standard_normal(shape)
        call()
        adam_step(wanted, g.astype(np.float64))
        for name in "wmv":
            np.testing.assert_allclose(own[name], wanted[name], rtol=2e-5, atol=2e-6, err_msg=f"{name}, step {number}")
    assert addresses == {name: array.ctypes.data for name, array in own.items()}
    assert all(call.results[output] is own[name] for output, name in ADAM.items())


def test_parameters_that_are_donated_are_read_by_the_next_run() -> None:
    graph = GraphModule.hir("descend")
    w, x = graph.param("w", [4, 4]), graph.input("x", [2, 4])
    y = x @ w  # a product with a parameter that changes: its panels aren't kept
    graph.set_outputs({"y": y, "w2": w - graph.transpose(x) @ y * 0.25}, tied={"w2": "w"})
    executable = rlx.compile(graph, cache=False)
    own, rows = np.eye(4, dtype=np.float32), np.arange(8, dtype=np.float32).reshape(2, 4) / 8
    executable.set_params({"w": own})
    wanted = own.copy()
    for _ in range(3):
        results = executable.run({"x": rows}, donate=["w"])
        assert results["w2"] is own
        np.testing.assert_allclose(results["y"], rows @ wanted, rtol=1e-6)
        wanted = wanted - rows.T @ (rows @ wanted) * np.float32(0.25)
        np.testing.assert_allclose(own, wanted, rtol=1e-5)
    kept = own.copy()
    results = executable.run({"x": rows})
    np.testing.assert_array_equal(own, kept)
    np.testing.assert_allclose(results["w2"], wanted - rows.T @ (rows @ wanted) * np.float32(0.25), rtol=1e-5)


def test_ties_go_through_artefacts(tmp_path: Path) -> None:
    executable = rlx.compile(adam(["n", 5], "input"), cache=False, maxima={"n": 9})
    executable.artifact.save(tmp_path / "adam.rlx")
    loaded = Executable(Artifact.load(tmp_path / "adam.rlx"))
    assert {spec.name: spec.tied for spec in loaded.outputs} == ADAM
    assert not any(spec.updated for spec in loaded.outputs)
    for rows in (0, 1, 7):
        own, g = state_of((rows, 5)), np.ones((rows, 5), np.float32)
        wanted = dict(own)
        adam_step(wanted, g)
        copies = {name: array.copy() for name, array in own.items()}
        results = loaded.run({**copies, "g": g}, donate=["m"])
        assert results["m2"] is copies["m"]
        for output, name in ADAM.items():
            np.testing.assert_allclose(results[output], wanted[name], rtol=2e-5, atol=2e-6)
        np.testing.assert_array_equal(copies["w"], own["w"])


def test_an_output_may_be_what_it_is_tied_to() -> None:
    m = GraphModule.hir("same")
    x, w, packed = m.input("x", [6]), m.param("w", [2, 3]), m.param("p", [4, 32], packed="q8_0")
    outputs = {"x2": x, "w2": w, "p2": packed, "y": x * m.reshape(w, [6])}
    m.set_outputs(outputs, tied={"x2": x, "w2": w, "p2": packed})
    executable = rlx.compile(m, cache=False)
    assert [spec.updated for spec in executable.outputs] == [True, True, True, False]
    assert len(executable.artifact.kernels) == 1
    given, own = np.arange(6, dtype=np.float32), np.ones((2, 3), np.float32)
    blocks = rlx.formats.encode("q8_0", np.ones((4, 32), np.float32))
    executable.set_params({"w": own, "p": blocks})
    results = executable.run({"x": given}, donate=["x"])
    assert results["x2"] is given
    assert not np.shares_memory(results["w2"], own)
    np.testing.assert_array_equal(results["w2"], own)
    np.testing.assert_array_equal(results["p2"].view(np.uint8), blocks)
    assert executable.run({"x": given}, donate=["w", "p"])["w2"] is own


# -- what is refused --------------------------------------------------------------------------------------------------


def read_later(m: GraphModule, x: Value, y: Value) -> dict[str, Value]:
    new = x + y
    return {"new": new, "other": new @ x}


def read_beside(m: GraphModule, x: Value, y: Value) -> dict[str, Value]:
    new = m.tanh(x)
    return {"new": new, "other": new - x}


def read_by_a_loop(m: GraphModule, x: Value, start: Value) -> Value:
    return m.while_loop(
        lambda state: m.compare("lt", m.max(state), 3.0), lambda state: m.tanh(state @ x), start, limit=3
    )


def read_by_a_loop_later(m: GraphModule, x: Value, y: Value) -> dict[str, Value]:
    new = x + y
    return {"new": new, "other": read_by_a_loop(m, x, new)}


def read_by_its_loop(m: GraphModule, x: Value, y: Value) -> dict[str, Value]:
    return {"new": read_by_a_loop(m, x, y)}


def read_by_its_branch(m: GraphModule, x: Value, y: Value) -> dict[str, Value]:
    return {"new": m.cond(m.compare("gt", m.max(y), 0.0), lambda: m.tanh(y @ x), lambda: y)}


REFUSALS: dict[str, tuple[Callable[[GraphModule, Value, Value], dict[str, Value]], str]] = {
    "a product": (lambda m, x, y: {"new": y @ x}, "'mir.matmul' .*reads or writes elements in other places"),
    "a transpose": (lambda m, x, y: {"new": m.transpose(x)}, "'mir.transpose' .*in other places"),
    "a reversal": (lambda m, x, y: {"new": x[::-1]}, "'mir.slice' .*in other places"),
    "a sum": (lambda m, x, y: {"new": m.cumsum(x)}, "'mir.cumsum' .*in other places"),
    "a norm": (lambda m, x, y: {"new": m.softmax(x)}, "'mir.softmax' .*in other places"),
    "a reader after it": (read_later, "'mir.matmul' .*reads 'x' after the result is there"),
    "a loop after it": (read_by_a_loop_later, "'mir.while' .*reads 'x' after the result is there"),
    "its own loop": (read_by_its_loop, "'mir.while' .*reads 'x' after the result is there"),
    "its own branch": (read_by_its_branch, "'mir.if' .*may read it after a step has written the result"),
    "a reader beside it": (read_beside, "'mir.sub' .*may read it after the result is there, in one kernel"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_ties_that_do_not_hold(name: str) -> None:
    build, message = REFUSALS[name]
    m = GraphModule.hir("refused")
    x, y = m.input("x", [4, 4]), m.param("y", [4, 4])
    m.set_outputs(build(m, x, y), tied={"new": "x"})
    with pytest.raises(UnsupportedError, match="output 'new' " + REFUSED + message) as caught:
        rlx.compile(m, cache=False)
    assert "test_donation.py:" in str(caught.value)


def test_an_argument_that_is_returned_keeps_its_memory() -> None:
    m = GraphModule.hir("swap")
    x, y = m.input("x", [4]), m.input("y", [4])
    m.set_outputs({"a": x, "b": y}, tied={"a": y, "b": x})
    with pytest.raises(UnsupportedError, match=REFUSED + "output '[ab]' is '[xy]' as it was given"):
        rlx.compile(m, cache=False)


def test_an_update_has_the_memory_of_its_cache_alone() -> None:
    m = GraphModule.hir("caches")
    cache, other = m.input("cache", [1, 4, 2]), m.input("other", [1, 4, 2])
    new = m.cache_update(cache, m.input("row", [1, 1, 2]), m.input("pos", [1], "i32"))
    m.set_outputs({"new": new, "z": other + 1}, tied={"new": other})
    with pytest.raises(UnsupportedError, match=r"to which it is tied: it is an update of 'cache', in place"):
        rlx.compile(m, cache=False)
    m.set_outputs({"new": new, "z": other + 1}, tied={"z": cache})
    with pytest.raises(UnsupportedError, match=r"'z' can't .*'cache', to which it is tied: output 'new' has it"):
        rlx.compile(m, cache=False)


def test_sizes_of_ties_are_equal() -> None:
    m = GraphModule.hir("sizes")
    x, y = m.input("x", ["n", 2]), m.input("y", ["k", 2])
    m.set_outputs({"new": y + 1}, tied={"new": x})
    with pytest.raises(UnsupportedError, match=REFUSED + r"it is \[k, 2\] of f32, but 'x' is \[n, 2\] of f32"):
        rlx.compile(m, cache=False)


def test_an_argument_has_one_output() -> None:
    m = GraphModule.hir("two")
    x = m.input("x", [4])
    with pytest.raises(BuildError, match=r"outputs 'a' and 'b' are tied to 'x', but its memory is one's"):
        m.set_outputs({"a": x + 1, "b": x + 2}, tied={"a": x, "b": "x"})


def test_packed_weights_are_not_made_at_run_time() -> None:
    m = GraphModule.hir("packed")
    w = m.param("w", [4, 32], packed="q8_0")
    for value in (w, m.repack(w)):
        m.set_outputs({"w2": value})
        with pytest.raises(UnsupportedError, match=r"'w2' is a packed weight, but no operation makes packed values at"):
            rlx.compile(m, cache=False)


def shared(executable: Executable) -> None:
    own = state_of((4, 3))
    executable.set_params({**own, "v": own["w"]})


def read_only(executable: Executable) -> None:
    own = state_of((4, 3))
    own["w"].flags.writeable = False
    executable.set_params(own)


@pytest.mark.parametrize(
    ("prepare", "donate", "g", "message"),
    [
        (shared, ["w"], None, "output 'w2' shares memory with a parameter"),
        (read_only, ["w"], None, "parameter 'w' can't be donated: only a contiguous, writeable array"),
        (None, ["g"], None, "input 'g' can't be donated: no output of 'adam' is tied to it"),
        (None, ["x"], None, "'adam' has no input 'x' to donate; it has g, w, m, v"),
        (None, ["w"], "w", "output 'w2' and input 'g' share memory"),
    ],
    ids=["one array for two", "read-only", "not tied", "unknown", "read too"],
)
def test_donations_that_are_refused(
    prepare: Callable[[Executable], None] | None, donate: list[str], g: str | None, message: str
) -> None:
    executable = rlx.compile(adam([4, 3]), cache=False)
    own = state_of((4, 3))
    executable.set_params(own)
    if prepare is not None:
        prepare(executable)
    given = {"g": np.ones((4, 3), np.float32) if g is None else own[g]}
    with pytest.raises(InputError, match=message):
        executable.run(given, donate=donate)
    executable.set_params(own)
    executable.run({"g": np.ones((4, 3), np.float32)}, donate=["w", "m"])


def test_outputs_of_donated_parameters_have_no_other_array() -> None:
    executable = rlx.compile(adam([4, 3]), cache=False)
    own, g = state_of((4, 3)), np.ones((4, 3), np.float32)
    executable.set_params(own)
    out = np.zeros((4, 3), np.float32)
    with pytest.raises(InputError, match="output 'w2' goes to the memory of 'w', which is donated, but an array was"):
        executable.run({"g": g}, donate=["w"], outputs={"w2": out})
    with pytest.raises(InputError, match="output 'w2' shares memory with a parameter"):
        executable.run({"g": g}, outputs={"w2": own["w"]})
    assert executable.run({"g": g}, donate=["m"], outputs={"w2": out})["w2"] is out


# -- GPUs -------------------------------------------------------------------------------------------------------------


def on_gpu(module: GraphModule) -> CudaExecutable:
    found = rlx.compile(module, target="cuda", cache=False)
    assert isinstance(found, CudaExecutable)
    return found


@pytest.mark.parametrize("where", ["host", "gpu"])
@pytest.mark.quick(1)
def test_adam_on_a_gpu(where: str) -> None:
    with emulated_device() as cuda:
        executable = on_gpu(adam([9, 20]))
        own, g = state_of((9, 20)), np.zeros((9, 20), np.float32)
        wanted = {name: array.astype(np.float64) for name, array in own.items()}
        executable.set_params(own)
        there = DeviceArray.from_numpy(g)
        given = {"g": there if where == "gpu" else g}
        call = executable.bind(given, donate=["w", "m", "v"])
        addresses = {name: array.address for name, array in call.results.items()}
        for number in range(4):
            g[...] = np.random.default_rng(number).standard_normal(g.shape)
            there.write(g)
            cuda.trace()
            call()
            assert not [line for line in cuda.trace() if line.startswith(("copy", "download"))]
            adam_step(wanted, g.astype(np.float64))
        for output, name in ADAM.items():
            np.testing.assert_allclose(call.results[output].numpy(), wanted[name], rtol=2e-5, atol=2e-6)
        assert addresses == {name: array.address for name, array in call.results.items()}
        plain = executable.run(given)
        adam_step(wanted, g.astype(np.float64))
        np.testing.assert_allclose(plain["w2"], wanted["w"], rtol=2e-5, atol=2e-6)
        assert not np.allclose(plain["w2"], call.results["w2"].numpy())


def test_parameters_that_no_call_changes() -> None:
    """One by one as all together: those that aren't tied, and one that its own output gives back, through a view."""
    m = GraphModule.mir("ties")
    x, same, view, changed, free = m.input("x", [6]), *(m.param(name, [6]) for name in ("a", "b", "c", "d"))
    outputs = {"same": same, "view": m.reshape(view, [6]), "changed": changed + x, "y": free + x}
    m.set_outputs(outputs, tied={"same": same, "view": view, "changed": changed})
    function = entry_function(m.ir_module)
    one_by_one = {own.arg_number for own in body(function).arguments if is_parameter(own)}
    assert unchanged_parameters(function) == one_by_one == {1, 2, 4}


def test_unchanged_parameters_on_a_gpu() -> None:
    m = GraphModule.hir("same")
    w, x = m.param("w", [5]), m.input("x", [5])
    m.set_outputs({"w2": w, "x2": x, "y": w + x}, tied={"w2": w, "x2": x})
    with emulated_device():
        executable = on_gpu(m)
        own, given = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
        executable.set_params({"w": own})
        for on_device in (False, True):
            results = executable.run({"x": given}, device_outputs=on_device)
            for name, wanted in (("w2", own), ("x2", given), ("y", own + given)):
                found = results[name].numpy() if on_device else results[name]
                np.testing.assert_array_equal(found, wanted, err_msg=name)
        donated = executable.run({"x": given}, donate=["w", "x"])
        assert donated["x2"] is given
        assert donated["w2"].address == executable.run({"x": given}, donate=["w"])["w2"].address


def test_positions_that_are_parameters_stay_on_a_gpu() -> None:
    m = GraphModule.hir("count")
    table, pos = m.input("cache", [1, 4, 2]), m.param("pos", [1], "i32")
    outputs = {"cache2": m.cache_update(table, m.input("row", [1, 1, 2]), pos), "pos2": pos + 1}
    m.set_outputs(outputs, tied={"cache2": table, "pos2": pos})
    given = {"cache": np.zeros((1, 4, 2), np.float32), "row": np.ones((1, 1, 2), np.float32)}
    executable = rlx.compile(m, cache=False)
    executable.set_params({"pos": np.zeros(1, np.int32)})
    for step in range(4):
        executable.run(given, donate=["cache", "pos"])
        np.testing.assert_array_equal(given["cache"][0, :, 0], np.arange(4) <= step)
    with pytest.raises(InputError, match="'pos' is 4 at index 0"):
        executable.run(given, donate=["cache", "pos"])
    with emulated_device():
        there = on_gpu(m)
        there.set_params({"pos": np.zeros(1, np.int32)})
        with pytest.raises(InputError, match="parameter 'pos' can't be donated: it holds positions, which the host"):
            there.run(given, donate=["cache", "pos"])
        assert there.run(given, donate=["cache"])["pos2"][0] == 1
