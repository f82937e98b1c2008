# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values that say where memory is read or written: what is out of range is refused, clamped, or touches nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compile_harness import compile_fresh

from rlx_mlir import Artifact, Executable, GraphModule, formats, interpret
from rlx_mlir.errors import InputError

GENERIC = {"disable_templates": ("rows", "attention", "gemm")}
LARGEST = np.iinfo(np.int32).max


def guarded(array: np.ndarray, pattern: int = 0xA5, guard: int = 4096) -> tuple[np.ndarray, np.ndarray]:
    """A copy of the array in the middle of memory with a pattern, and all of that memory."""
    memory = np.full(array.nbytes + 2 * guard, pattern, np.uint8)
    start = guard + -(memory.ctypes.data + guard) % 64
    inner = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    inner[...] = array
    return inner, memory


def intact(inner: np.ndarray, memory: np.ndarray, pattern: int = 0xA5) -> bool:
    """Whether only the array in the middle changed."""
    start = inner.ctypes.data - memory.ctypes.data
    return bool((memory[:start] == pattern).all() and (memory[start + inner.nbytes :] == pattern).all())


def cached(computed: bool = False) -> GraphModule:
    m = GraphModule.mir("cached")
    cache, new, pos = m.input("cache", ["b", "rows", 4]), m.input("new", ["b", "s", 4]), m.input("pos", ["b"], "i32")
    m.set_outputs({"cache_out": m.cache_update(cache, new, m.minimum(pos, pos) if computed else pos)})
    return m


def rotated(table: int | str = 6, computed: bool = False) -> GraphModule:
    m = GraphModule.mir("rotated")
    x, pos = m.input("x", ["b", "s", 16]), m.input("pos", ["b"], "i32")
    cos, sin = m.input("cos", [table, 4]), m.input("sin", [table, 4])
    m.set_outputs({"y": m.rope(x, cos, sin, pos=m.minimum(pos, pos) if computed else pos, head_dim=8, style="half")})
    return m


def values(module: GraphModule, positions: list[int], tokens: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    sizes = {"b": len(positions), "s": tokens, "rows": 6, "table": 6}
    found: dict[str, np.ndarray] = {}
    for argument in module.inputs:
        shape = [sizes.get(str(d), d) for d in argument.shape]
        found[argument.name] = rng.standard_normal([int(d) for d in shape]).astype(np.float32)
    found["pos"] = np.array(positions, np.int32)
    return found


MAXIMA = {"b": 4, "s": 8}
OUTSIDE: list[tuple[list[int], int]] = [
    ([-1], 1),
    ([6], 1),
    ([4], 3),
    ([0, 5], 2),
    ([2, -2, 1], 3),
    ([LARGEST], 2),
    ([-LARGEST - 1], 2),
    ([0], 7),
]


@pytest.fixture(scope="module")
def executables() -> dict[str, Executable]:
    return {
        "cache": compile_fresh(cached(), maxima={**MAXIMA, "rows": 8}),
        "generic cache": compile_fresh(cached(), maxima={**MAXIMA, "rows": 8}, **GENERIC),
        "table": compile_fresh(rotated(), maxima=MAXIMA),
        "dynamic table": compile_fresh(rotated("table"), maxima={**MAXIMA, "table": 8}),
        "generic table": compile_fresh(rotated(), maxima=MAXIMA, **GENERIC),
    }


WHAT = ("cache", "generic cache", "table", "dynamic table", "generic table")


def module_of(what: str) -> GraphModule:
    return cached() if "cache" in what else rotated("table" if "dynamic" in what else 6)


@pytest.mark.parametrize(("positions", "tokens"), OUTSIDE, ids=str)
@pytest.mark.parametrize("what", WHAT)
def test_rows_outside_are_refused_as_the_interpreter_does(
    executables: dict[str, Executable], what: str, positions: list[int], tokens: int
) -> None:
    module, executable = module_of(what), executables[what]
    inputs = values(module, positions, tokens)
    with pytest.raises(InputError, match=r"rows -?\d+ to -?\d+ of batch"):
        interpret(module, inputs)
    number = next(i for i, p in enumerate(positions) if not 0 <= p <= 6 - tokens)
    first, last = positions[number], positions[number] + tokens - 1
    op = "the cache of 'mir.cache_update'" if "cache" in what else "the table of 'mir.rope'"
    message = (
        rf"test_positions\.py:\d+: input 'pos' is {first} at index {number}, but rows {first} to {last} have to be "
        rf"among the 6 rows that {op} at .*test_positions\.py:\d+ has"
    )
    if tokens > 6 and "cache" in what:  # They fit nowhere, which sizes say.
        message = "'mir.cache_update' at .* expects that rows is at least s, but 6 and 7 were given"
    with pytest.raises(InputError, match=message):
        executable.run(inputs)


@pytest.mark.parametrize("what", WHAT)
def test_rows_inside_are_not_refused(executables: dict[str, Executable], what: str) -> None:
    module = module_of(what)
    for positions, tokens in (([0], 6), ([5], 1), ([3, 0, 2], 3), ([0, 4], 2)):
        inputs = values(module, positions, tokens)
        (got,), (want,) = executables[what].run(inputs).values(), interpret(module, inputs).values()
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("positions", [[-1, LARGEST], [7, 100]])
def test_no_row_is_nowhere(executables: dict[str, Executable], positions: list[int]) -> None:
    """Without new rows, positions say nothing."""
    for what in ("cache", "table"):
        inputs = values(module_of(what), positions, 0)
        (got,), (want,) = executables[what].run(inputs).values(), interpret(module_of(what), inputs).values()
        np.testing.assert_array_equal(got, want)


def test_bound_calls_check_what_is_written_into_them(executables: dict[str, Executable]) -> None:
    """Nothing is written where they refuse, and the next call is right."""
    inputs = values(cached(), [0], 1)
    call = executables["cache"].bind(inputs, donate=["cache"])
    call()
    before = inputs["cache"].copy()
    inputs["pos"][0] = 6
    with pytest.raises(InputError, match=r"test_positions\.py:\d+: input 'pos' is 6 at index 0, but rows 6 to 6"):
        call()
    np.testing.assert_array_equal(inputs["cache"], before)
    inputs["pos"][0] = 5
    call()
    np.testing.assert_array_equal(inputs["cache"][:, 5], inputs["new"][:, 0])


def test_positions_that_are_parameters_are_checked() -> None:
    m = GraphModule.mir("constant_place")
    cache, new = m.input("cache", [1, 6, 4]), m.input("new", [1, 2, 4])
    m.set_outputs({"cache_out": m.cache_update(cache, new, m.param("pos", [1], "i32"))})
    executable = compile_fresh(m)
    inputs = {"cache": np.zeros((1, 6, 4), np.float32), "new": np.ones((1, 2, 4), np.float32)}
    executable.set_params({"pos": np.array([5], np.int32)})
    with pytest.raises(InputError, match="parameter 'pos' is 5 at index 0, but rows 5 to 6 have to be among"):
        executable.run(inputs)
    executable.set_params({"pos": np.array([4], np.int32)})
    assert executable.run(inputs)["cache_out"][0, 4:].all()


def test_conditions_survive_a_file(executables: dict[str, Executable]) -> None:
    artifact = executables["dynamic table"].artifact
    again = Artifact.from_bytes(artifact.to_bytes())
    assert again.positions == artifact.positions
    (own,) = again.positions
    assert (own.name, own.kind, own.count[0], own.rows[0], own.limit[0]) == ("pos", "input", "b", "s", "table")


def test_tables_without_positions_are_long_enough() -> None:
    m = GraphModule.mir("from_the_start")
    x, cos, sin = m.input("x", [1, "s", 8]), m.input("cos", ["table", 4]), m.input("sin", ["table", 4])
    m.set_outputs({"y": m.rope(x, cos, sin, head_dim=8, style="half")})
    inputs = {"x": np.ones((1, 5, 8), np.float32), **{name: np.ones((4, 4), np.float32) for name in ("cos", "sin")}}
    with pytest.raises(InputError, match="rows 0 to 4 of batch 0 must lie in a table of 4 rows"):
        interpret(m, inputs)
    with pytest.raises(InputError, match="expects that table is at least s, but 4 and 5 were given"):
        compile_fresh(m).run(inputs)


@pytest.mark.parametrize("options", [{}, GENERIC], ids=["template", "generic"])
@pytest.mark.parametrize("positions", [[-1, 6], [4, 1], [LARGEST, -LARGEST - 1], [100, -100]])
@pytest.mark.quick(2)
def test_computed_positions_touch_nothing_outside(positions: list[int], options: dict[str, Any]) -> None:
    """They can't be seen before the call; then memory around caches and tables is neither written nor read."""
    module = cached(computed=True)
    executable = compile_fresh(module, maxima={**MAXIMA, "rows": 8}, **options)
    inputs = values(module, positions, 3)
    inputs["cache"], memory = guarded(inputs["cache"])
    executable.run(inputs, donate=["cache"])
    assert intact(inputs["cache"], memory)

    module = rotated(computed=True)
    executable = compile_fresh(module, maxima=MAXIMA, **options)
    inputs = values(module, positions, 3)
    found = []
    for pattern in (0xFF, 0x3F):  # NaN, and a number
        inputs["cos"], inputs["sin"] = (guarded(inputs[name], pattern)[0] for name in ("cos", "sin"))
        found.append(executable.run(inputs)["y"])
    assert np.isfinite(found[0]).all()
    np.testing.assert_array_equal(*found)


# Indices --------------------------------------------------------------------------------------------------------------

EDGES = {
    "i32": [0, 4, 5, -1, 100, LARGEST, -LARGEST - 1],
    "i64": [0, 4, 5, -1, 2**31, -(2**31) - 1, 2**32, np.iinfo(np.int64).max, np.iinfo(np.int64).min],
    "f32": [0.0, 4.9, -0.5, 5.0, -1.0, 1e10, -1e10, 3e38, np.inf, -np.inf, np.nan, 2.0**31, 2.0**63],
}


@pytest.mark.parametrize("options", [{}, GENERIC], ids=["template", "generic"])
@pytest.mark.parametrize("dtype", EDGES)
@pytest.mark.parametrize("table", ["rows", "columns", "packed", "dynamic", "batched"])
@pytest.mark.quick(4)
def test_indices_are_clamped_as_the_interpreter_does(dtype: str, table: str, options: dict[str, Any]) -> None:
    """The rule is that of the operation: an index outside is the nearest inside, and nothing else is read."""
    rng = np.random.default_rng(1)
    m = GraphModule.mir("picked")
    count = len(EDGES[dtype])
    shape: list[int | str] = {"columns": [32, 5], "dynamic": ["n", 32], "batched": [2, 5, 3]}.get(table, [5, 32])
    batched = table == "batched"
    ids = m.input("ids", [2, count] if batched else [count], dtype)
    axis = 1 if table in ("columns", "batched") else 0
    if table == "packed":
        source = m.param("table", [5, 32], packed="q8_0")
    else:
        source = m.input("table", shape)
    y = m.gather(source, ids, axis=axis, batch_dims=1) if batched else m.gather(source, ids, axis=axis)
    m.set_outputs({"y": y})
    executable = compile_fresh(m, **({"maxima": {"n": 8}} if table == "dynamic" else {}), **options)
    edges = np.array(EDGES[dtype], {"i32": np.int32, "i64": np.int64, "f32": np.float32}[dtype])
    inputs = {"ids": np.stack([edges, edges[::-1]]) if batched else edges}
    dense = rng.standard_normal([5 if d == "n" else int(d) for d in shape]).astype(np.float32)
    data = formats.encode("q8_0", dense) if table == "packed" else dense
    want = interpret(m, {**inputs, "table": data})["y"]
    for pattern in (0xFF, 0x3F):
        inner, _ = guarded(data, pattern)
        if table == "packed":
            executable.set_params({"table": inner})
            got = executable.run(inputs)["y"]
        else:
            got = executable.run({**inputs, "table": inner})["y"]
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("options", [{}, GENERIC], ids=["template", "generic"])
@pytest.mark.parametrize("mask", ["none", "causal", "sliding_window"])
@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.quick(1)
def test_attention_anywhere_is_what_the_interpreter_gives(tokens: int, mask: str, options: dict[str, Any]) -> None:
    """Any position has a meaning there: keys that aren't in memory don't exist."""
    m = GraphModule.mir("attended")
    q, k, v = m.input("q", ["b", "s", 32]), m.input("k", ["b", "keys", 32]), m.input("v", ["b", "keys", 32])
    more = {"window": 3} if mask == "sliding_window" else {}
    pos = m.input("pos", ["b"], "i32")
    m.set_outputs({"y": m.attention(q, k, v, pos=pos, num_heads=2, head_dim=16, mask_kind=mask, **more)})
    executable = compile_fresh(m, maxima={"b": 8, "s": 8, "keys": 16}, **options)
    positions = np.array([-tokens - 3, -1, 0, 8, 12, 13, 1000, 2**30], np.int32)
    rng = np.random.default_rng(4)
    shapes = {"q": (8, tokens, 32), "k": (8, 12, 32), "v": (8, 12, 32)}
    inputs = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    want = interpret(m, {**inputs, "pos": positions})["y"]
    for pattern in (0xFF, 0x3F):
        guards = {name: guarded(array, pattern)[0] for name, array in inputs.items()}
        got = executable.run({**guards, "pos": positions})["y"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
