# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gated delta rule in chunks, and its kernel template, against a loop over steps in f64."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import compile_fresh, templates_of
from cpu_harness import TARGETS, compiled
from linalg_harness import FLOATS, case, check, dyn, word

from rlx_mlir import GraphModule, interpret
from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.recurrence import BLOCK, emit_recurrence
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs import RecurrenceSpec
from rlx_mlir.dialects import mir
from rlx_mlir.errors import PassError
from rlx_mlir.mir import REFERENCES

CHUNK = 4
DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def operands_of(
    batch: int, steps: int, heads: int, n: int, dtype: Any = np.float32, *, state: bool = False, decay: float = 1.0
) -> list[np.ndarray]:
    """q, k, v, g, beta and maybe a state; keys and queries of unit length, g from -decay to 0."""
    rng = np.random.default_rng([batch, steps, heads, n])
    q, k, v = (rng.standard_normal((batch, steps, heads, n)) for _ in range(3))
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    g, beta = -rng.random((batch, steps, heads)) * decay, rng.random((batch, steps, heads))
    found = [x.astype(dtype) for x in (q, k, v, g, beta)]
    if state:
        wide = np.float64 if dtype == np.float64 else np.float32
        found.append(rng.standard_normal((batch, heads, n, n)).astype(wide))
    return found


def loop(q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """The definition, one head and one step at a time, in f64."""
    batch, steps, heads, n = q.shape
    result, last = np.zeros(q.shape), np.zeros((batch, heads, n, n))
    q, k, v, g, beta = (np.asarray(x, np.float64) for x in (q, k, v, g, beta))
    for b, h in np.ndindex(batch, heads):
        m = np.zeros((n, n)) if state is None else state[b, h].astype(np.float64)
        for t in range(steps):
            m = m * np.exp(g[b, t, h])
            m = m + np.outer(k[b, t, h], beta[b, t, h] * (v[b, t, h] - k[b, t, h] @ m))
            result[b, t, h] = q[b, t, h] @ m / np.sqrt(n)
        last[b, h] = m
    return result, last


def chunked(chunk: int) -> Any:
    return lambda *operands: mir.GatedDeltaNetOp(*operands[:5], state=[*operands, None][5], chunk=chunk)


def reference(*operands: np.ndarray, chunk: int | None = None) -> Any:
    return REFERENCES["mir.gated_delta_net"](*operands, chunk=chunk)


STEPS = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5]

# -- chunks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("state", [False, True])
def test_reference_in_chunks(steps, state):
    operands = operands_of(2, steps, 3, 8, np.float64, state=state)
    for got, want in zip(reference(*operands, chunk=CHUNK), loop(*operands), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", FLOATS, ids=word)
@pytest.mark.quick(1)
def test_compiled_in_chunks(dtype):
    """The numpy loop in the type of computation is what `check` compares with, where `chunk` is of one step."""
    cases = []
    for steps, state in itertools.product(STEPS, [False, True]):
        operands = operands_of(2, steps, 2, 8, dtype, state=state)
        name = f"{steps} steps, state {state}"
        cases += [case(name, chunked(CHUNK), *operands), case(f"{name}, ?", chunked(CHUNK), *map(dyn, operands))]
    odd = operands_of(1, 7, 1, 5, dtype)
    cases += [case("odd", chunked(3), *odd), case("larger than the sequence", chunked(64), *(dyn(x, 1) for x in odd))]
    check(cases)


EXTREMES = {
    "strong decay": lambda g: g * 200 - 20,
    "no decay": lambda g: g * 0,
    "some above one": lambda g: np.where(np.arange(g.shape[1])[:, None] % 7 == 5, 3, g),
    "all above one": lambda g: g * 0 + 0.25,
    "forgets all": lambda g: np.where(np.arange(g.shape[1])[:, None] % 5 == 2, -np.inf, g),
}


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.quick(1)
def test_decays_of_any_size(name):
    """Reference in chunks, generic code in chunks and the template; decays whose logarithms are large sums."""
    q, k, v, g, beta, state = operands_of(2, 3 * BLOCK + 1, 2, 16, state=True)
    g = EXTREMES[name](g).astype(np.float32)
    want = loop(q, k, v, g, beta, state)
    largest = max(np.abs(x).max() for x in want)
    assert np.isfinite(largest)
    check([case("generic", chunked(CHUNK), q, k, v, g, beta, state, tolerance=1e-4)])
    for found in (reference(q, k, v, g, beta, state, chunk=CHUNK), template(512, q, k, v, g, beta, state)):
        for x, y in zip(found, want, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6 * largest)


@pytest.mark.parametrize("operand", range(5))
@pytest.mark.quick(1)
def test_later_steps_leave_results(operand):
    """NaN at one step isn't in results before it, though steps of a block are computed together."""
    operands = operands_of(1, 2 * BLOCK, 1, 8)
    want = loop(*operands)[0]
    t = BLOCK + 3
    operands[operand][:, t] = np.nan
    for found, _ in (reference(*operands, chunk=BLOCK), template(256, *operands), compiled_in_chunks(*operands)):
        np.testing.assert_allclose(found[:, :t], want[:, :t], rtol=1e-4, atol=1e-5)
        assert np.isnan(found[:, t]).any()


def delta_module(batch: Any, steps: Any, heads: int, n: int, *, state: bool = True, dtype: str = "f32") -> GraphModule:
    m = GraphModule.mir("m")
    rows = [m.input(name, [batch, steps, heads, n], dtype) for name in "qkv"]
    gates = [m.input(name, [batch, steps, heads], dtype) for name in ("g", "beta")]
    y, last = m.gated_delta_net(*rows, *gates, *([m.input("state", [batch, heads, n, n])] if state else []))
    m.set_outputs({"y": y, "last": last})
    return m


def named(*operands: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(["q", "k", "v", "g", "beta", "state"], operands, strict=False))


def compiled_in_chunks(*operands: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    module = delta_module(*operands[0].shape, state=len(operands) == 6).transform("mir-chunk-recurrence{chunk=6}")
    found = compile_fresh(module, disable_templates=("all",)).run(named(*operands))
    return found["y"], found["last"]


def test_the_pass():
    """Sets what isn't set, where there may be as many steps; the module's meaning stays."""
    for steps, want in ((8, 8), (7, None), ("s", 8)):
        module = delta_module(1, steps, 2, 4).transform("mir-chunk-recurrence{chunk=8}")
        (node,) = module.nodes()
        assert node.attributes.get("chunk") == want
    again = module.transform("mir-chunk-recurrence{chunk=3}")
    assert again.nodes()[0].attributes["chunk"] == 8
    values = named(*operands_of(1, 19, 2, 4, state=True))
    for name, want in interpret(delta_module(1, "s", 2, 4), values).items():
        np.testing.assert_allclose(interpret(module, values)[name], want, rtol=1e-5, atol=1e-6)
    with pytest.raises(PassError, match=r"'chunk' expects a number of steps of at least 1, but got 0"):
        module.transform("mir-chunk-recurrence{chunk=0}")


# -- the template ------------------------------------------------------------------------------------------------------


def template(
    bits: int,
    *operands: np.ndarray,
    dynamic: bool = False,
    cuts: Any = None,
    word: str = "f32",
    by_step: bool = False,
) -> Any:
    batch, steps, heads, n = operands[0].shape
    sizes = (None, None, None) if dynamic else (batch, steps, heads)
    rows, gates = memref((*sizes, n), word), memref(sizes, word)
    memory = memref((sizes[0], sizes[2], n, n), "f32")
    state = memory if len(operands) == 6 else None
    spec = RecurrenceSpec(rows, rows, rows, gates, gates, state, rows, memory, by_step=by_step)
    kernel = compiled("delta", emit_recurrence("delta", spec, TARGETS[bits]))
    return kernel(operands, [np.empty_like(operands[0]), np.empty((batch, heads, n, n), np.float32)], cuts)


SHAPES = [
    (1, 1, 2, 64),
    (2, BLOCK, 1, 16),
    (1, 2 * BLOCK + 5, 2, 3),
    (2, BLOCK + 1, 3, 40),
    (1, 7, 1, 130),
    (2, 0, 1, 8),
]


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.quick(1)
def test_template(bits, shape):
    for state, dynamic in itertools.product([False, True], repeat=2):
        operands = operands_of(*shape, state=state)
        want = loop(*operands)
        for x, y in zip(template(bits, *operands, dynamic=dynamic), want, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("word", ["f16", "bf16"])
@pytest.mark.quick(1)
def test_template_of_halves(bits, word):
    """Computed in f32, rounded once: the state is as exact as that of f32."""
    operands = operands_of(1, 2 * BLOCK + 1, 2, 24, DTYPES[word], state=True)
    result, last = template(bits, *operands, word=word)
    want, final = loop(*operands)
    np.testing.assert_allclose(last, final, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.astype(np.float64), want, rtol=2**-8 if word == "bf16" else 2**-11, atol=1e-6)


def test_bits_do_not_depend_on_cuts():
    """Nor on whether the sequence's length is known, which decides whether one step goes through scratch."""
    for steps in (1, 2 * BLOCK + 3):
        operands = operands_of(2, steps, 3, 128, state=True)
        whole = template(512, *operands)
        for cuts, dynamic in (([1, 2, 7], False), (range(12), False), ([5], True)):
            for x, y in zip(template(512, *operands, cuts=cuts, dynamic=dynamic), whole, strict=True):
                np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("bits", sorted(TARGETS))
def test_single_steps_have_the_bits_of_their_own(bits):
    """With a chunk of 1, wherever the sequence is cut; in blocks they agree to rounding."""
    for n in (3, 24, 128):
        operands = operands_of(2, BLOCK + 2, 3, n, state=True)
        whole, last = template(bits, *operands, by_step=True)
        state, rows = operands[5], []
        for part in (slice(0, 1), slice(1, BLOCK + 1), slice(BLOCK + 1, None)):
            result, state = template(bits, *(x[:, part] for x in operands[:5]), state, by_step=True)
            rows.append(result)
        np.testing.assert_array_equal(np.concatenate(rows, axis=1), whole)
        np.testing.assert_array_equal(state, last)
        for x, y in zip((whole, last), loop(*operands), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_a_chunk_of_one_reaches_the_kernel():
    """By the builder, in which it is the primitive; a model's graph has blocks beside it."""
    m = GraphModule.hir("m")
    x, g = m.input("x", ["b", "s", 3, 32]), m.input("g", ["b", "s", 3])
    y, last = m.gated_delta_net(x, x, x, g, g, m.input("state", ["b", 3, 32, 32]), chunk=1)
    m.set_outputs({"y": y, "last": last})
    run = compile_fresh(m)
    q, *_, decay, _, state = operands_of(1, 2 * BLOCK + 1, 3, 32, state=True)
    whole, parts = run.run({"x": q, "g": decay, "state": state}), []
    for part in (slice(0, 2), slice(2, None)):
        found = run.run({"x": q[:, part], "g": decay[:, part], "state": state})
        parts.append(found["y"])
        state = found["last"]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole["y"])
    np.testing.assert_array_equal(state, whole["last"])


@pytest.mark.parametrize("disabled", [(), ("recurrence",)], ids=["template", "generic"])
@pytest.mark.parametrize("chunk", [None, 1])
def test_a_state_is_updated_in_place(disabled, chunk):
    """Where it is tied to the result: columns are read before they are written, in one step and in several."""
    m = GraphModule.mir("m")
    x, g = m.input("x", ["b", "s", 2, 24]), m.input("g", ["b", "s", 2])
    state = m.input("state", ["b", 2, 24, 24])
    y, last = m.gated_delta_net(x, x, x, g, g, state, chunk=chunk)
    m.set_outputs({"y": y, "last": last}, tied={"last": state})
    run = compile_fresh(m, disable_templates=disabled, threads=2)
    for steps in (0, 1, BLOCK + 1):
        q, *_, decay, _, first = operands_of(2, steps, 2, 24, state=True)
        wanted, memory = loop(q, q, q, decay, decay, first)
        found = run.run({"x": q, "g": decay, "state": first}, donate=["state"])
        assert found["last"] is first
        np.testing.assert_allclose(found["y"], wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(first, memory, rtol=1e-4, atol=1e-5)


def test_template_is_taken_and_equals_generic():
    """One value as several operands, results that nothing reads, any number of threads."""
    m = GraphModule.mir("m")
    x, g = m.input("x", ["b", "s", 3, 32]), m.input("g", ["b", "s", 3])
    y, _ = m.gated_delta_net(x, x, x, g, g)
    _, last = m.gated_delta_net(x * 0.5, x, x, g, g, m.input("state", ["b", 3, 32, 32]))
    m.set_outputs({"y": y, "last": last})
    ways = [compile_fresh(m, threads=threads) for threads in (1, 2)]
    assert sorted(set(templates_of(ways[0]).values())) == ["recurrence", "rows"]
    generic = compile_fresh(m, disable_templates=("recurrence",))
    assert "generic" in templates_of(generic).values()
    for batch, steps in ((1, 1), (2, 20), (1, 0), (0, 3)):
        q, *_, g_values, _, state = operands_of(batch, steps, 3, 32, state=True)
        values = {"x": q, "g": g_values, "state": state}
        one, two = (way.run(values) for way in ways)
        for name, want in generic.run(values).items():
            np.testing.assert_array_equal(one[name], two[name])
            np.testing.assert_allclose(one[name], want, rtol=1e-4, atol=1e-5)


def test_f64_and_unknown_sizes_are_generic():
    with pytest.raises(UnsupportedByTemplate, match="f64"):
        emit_recurrence("x", RecurrenceSpec(*["memref<1x2x3x4xf64>"] * 5, None, None, None), TARGETS[256])
    with pytest.raises(UnsupportedByTemplate, match="static state size"):
        emit_recurrence("x", RecurrenceSpec(*["memref<1x2x3x?xf32>"] * 5, None, None, None), TARGETS[256])
