# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention by tiles beside attention by multiply-adds: shapes, accuracy, what isn't finite, which one is chosen."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compile_harness import Program, compile_fresh
from test_cpu_attention import Case
from test_cpu_gemm import TILE_TARGETS, need

from rlx_mlir import Executable
from rlx_mlir.codegen.cpu.registry import generate


@pytest.fixture(autouse=True)
def _tiles() -> None:
    need(TILE_TARGETS["bf16"])


def both(case: Case, arrays: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Results by tiles, and by multiply-adds."""
    with np.errstate(all="ignore"):
        return replace(case, bits="tiles").run(arrays), replace(case, bits=512).run(arrays)


SPECS: list[dict[str, Any]] = [
    {"heads": 2, "kv_heads": 2, "size": 64, "kind": "causal"},
    {"heads": 6, "kv_heads": 2, "size": 40, "kind": "sliding_window", "window": 37},
    {"heads": 8, "kv_heads": 1, "size": 33, "kind": "causal", "layout": "bhsd", "softcap": 3.0},
    {"heads": 3, "kv_heads": 3, "size": 17, "kind": "none", "layout": "bshd", "element": "bf16"},
    {"heads": 2, "kv_heads": 1, "size": 64, "kind": "causal", "sinks": (3.0, -1.0)},
    {"heads": 4, "kv_heads": 2, "size": 96, "kind": "sliding_window", "window": 150, "element": "f16"},
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec['kind']}-{spec['size']}")
def test_lengths(spec: dict[str, Any]) -> None:
    """Units of several blocks, tiles of keys and steps that begin and end anywhere; cached and plain."""
    rng = np.random.default_rng(spec["size"])
    for queries, keys in ((2, 1), (31, 64), (33, 129), (97, 257), (230, 230), (65, 300)):
        Case(queries, keys, bits="tiles", **spec).check()
    for _ in range(4):
        queries, keys = int(rng.integers(2, 90)), int(rng.integers(90, 320))
        pos = tuple(int(p) for p in rng.integers(-20, keys + 30, 2))
        case = Case(queries, keys, batch=2, pos=pos, bits="tiles", **spec)
        arrays = case.inputs()
        for b, p in enumerate(pos):  # what isn't filled
            arrays[1][b] = fill(case, arrays[1][b], p + queries)
            arrays[2][b] = fill(case, arrays[2][b], p + queries)
        result = case.run(arrays)
        limit = {"f32": 2e-5, "f16": 1e-3, "bf16": 8e-3}[case.element]
        np.testing.assert_allclose(result.astype(np.float64), case.reference(arrays), rtol=limit, atol=limit)
        assert case.run(arrays, [1, 3, 4]).tobytes() == result.tobytes()


def fill(case: Case, cache: np.ndarray, first: int) -> np.ndarray:
    """NaN in the rows from `first` on."""
    rows = cache.swapaxes(0, 1) if case.layout == "bhsd" else cache
    rows[max(first, 0) :] = np.nan
    return cache


# -- accuracy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stored", "size"), [("f32", 64), ("f32", 256), ("f16", 64), ("bf16", 64)])
@pytest.mark.parametrize("kind", ["normal", "positive", "peaked"])
def test_errors_are_no_larger_than_those_of_multiply_adds(kind: str, stored: str, size: int) -> None:
    case = Case(96, 400, heads=2, kv_heads=1, size=size, stored=stored)
    q, k, v = case.inputs()
    if kind == "positive":
        k, v = np.abs(k), np.abs(v) + v.dtype.type(0.5)
    if kind == "peaked":
        q = q * np.float32(8)
    exact = case.reference([q, k, v])
    found, other = (np.abs(result - exact) for result in both(case, [q, k, v]))
    assert found.mean() <= other.mean(), (found.mean(), other.mean())
    assert found.max() <= 1.5 * other.max(), (found.max(), other.max())


@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_narrow_results_are_rounded_once(element: str) -> None:
    """Products of parts are so exact that results are those of multiply-adds, but for few that lie between numbers."""
    case = Case(64, 300, heads=2, kv_heads=1, size=64, kind="causal", element=element)
    arrays = case.inputs()
    found, other = both(case, arrays)
    assert (found == other).mean() > {"f16": 0.93, "bf16": 0.99}[element]
    ulps = np.abs(found.view(np.int16).astype(np.int32) - other.view(np.int16).astype(np.int32))
    large = np.abs(other.astype(np.float32)) > 1e-2
    assert ulps[large].max() <= 1


def test_scores_that_rise_and_fall() -> None:
    """The running maximum rises late, more than once, and for some queries alone; rows don't feel their neighbours."""
    case = Case(40, 300, heads=1, kv_heads=1, size=32, scale=1.0)
    q, k, v = case.inputs()
    q[...], k[...] = 0.1 * q, 0.1 * k
    q[0, :, 0] = np.linspace(-1, 4, 40)
    k[0, :, 0] = np.where(np.arange(300) < 200, np.arange(300) * 0.2, 5)
    result = replace(case, bits="tiles").run([q, k, v])
    np.testing.assert_allclose(result, case.reference([q, k, v]), rtol=2e-5, atol=2e-5)
    for large in (0.0, 3.4e38):  # infinite as bf16, and added by itself; about 1000 after its weight for row 10
        v[0, 70, 3] = large
        k[0, 70, 0] = -112 * math.log(2) / q[0, 10, 0]
        result = replace(case, bits="tiles").run([q, k, v])
        for row in (0, 10, 17, 39):
            alone = q.copy()
            alone[0, np.arange(40) != row] = 0
            again = replace(case, bits="tiles").run([alone, k, v])
            assert again[0, row].tobytes() == result[0, row].tobytes()


def test_units_of_long_prompts() -> None:
    """They have twice as many blocks from some length on: the bits are those of shorter pieces."""
    whole = Case(600, 600, heads=6, kv_heads=2, size=16, kind="causal", pos=(0,), bits="tiles")
    q, k, v, pos = whole.inputs()
    expected = whole.check()
    assert whole.kernel().units([q, k, v, pos, expected]) == 2 * -(-600 // 128)
    piece = replace(whole, queries=300)
    assert piece.kernel().units([q[:, :300], k, v, pos, expected[:, :300]]) == 2 * -(-300 // 64)
    for start in (0, 300):
        result = piece.run([q[:, start : start + 300], k, v, np.array([start], np.int32)])
        assert result.tobytes() == expected[:, start : start + 300].tobytes()


# -- what isn't finite ------------------------------------------------------------------------------------------------

SPECIALS = [np.inf, -np.inf, np.nan, 3.4e38, -3.4e38]


@pytest.mark.parametrize("kind", ["none", "causal"])
def test_values_that_are_not_finite(kind: str) -> None:
    """As multiply-adds have it, in the queries that see them; the others keep their bits."""
    case = Case(70, 150, heads=2, kv_heads=2, size=24, kind=kind)
    q, k, v = case.inputs()
    clean, _ = both(case, [q, k, v])
    for number, value in enumerate([np.inf, -np.inf, np.nan]):
        v[0, 85 + 13 * number, 5 * number] = value
    found, other = both(case, [q, k, v])
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(other))
    np.testing.assert_array_equal(found[~np.isfinite(found)], other[~np.isfinite(other)])
    finite = np.isfinite(other)
    np.testing.assert_allclose(found[finite], other[finite], rtol=1e-5, atol=1e-5)
    columns = np.setdiff1d(np.arange(48), [0, 5, 10])
    assert found[..., columns].tobytes() == clean[..., columns].tobytes()
    if kind == "causal":
        assert found[0, :5].tobytes() == clean[0, :5].tobytes()


def test_the_largest_values() -> None:
    """They are infinite as bf16."""
    case = Case(40, 70, heads=1, kv_heads=1, size=24)
    q, k, v = case.inputs()
    k[...] = 0
    v[0, 33, 7], v[0, 34, 8] = 3.4e38, -3.4e38
    found, other = both(case, [q, k, v])
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, other, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[0, :, 7], 3.4e38 / 70, rtol=1e-6)


@pytest.mark.parametrize("value", SPECIALS)
@pytest.mark.parametrize("where", ["q", "k"])
def test_scores_that_are_not_finite(where: str, value: float) -> None:
    """A key of -inf has weight 0 where the query is positive, as with multiply-adds; other rows keep their bits."""
    case = Case(40, 70, heads=2, kv_heads=2, size=24)
    q, k, v = case.inputs()
    clean, _ = both(case, [q, k, v])
    (q if where == "q" else k)[0, 33, 7] = value
    found, other = both(case, [q, k, v])
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(other))
    finite = np.isfinite(other)
    np.testing.assert_allclose(found[finite], other[finite], rtol=1e-5, atol=1e-5)
    if where == "k" and np.isinf(value):
        assert 0 < np.isfinite(found[0, :, :24]).all(axis=-1).sum() < 40
    untouched = found[..., 24:] if where == "k" else np.delete(found, 33, axis=1)
    before = clean[..., 24:] if where == "k" else np.delete(clean, 33, axis=1)
    assert untouched.tobytes() == before.tobytes()


# -- choice -----------------------------------------------------------------------------------------------------------


def test_which_attention_has_tiles() -> None:
    tiles = TILE_TARGETS["bf16"]
    prompt, single = Case(3, 5).spec(), Case(1, 5).spec()
    assert generate("attention", "k", prompt, tiles)[0] == "attention_amx"
    assert generate("attention", "k", single, tiles)[0] == "attention"
    assert generate("attention", "k", prompt, tiles, {"attention_amx"})[0] == "attention"
    assert generate("attention", "k", prompt, TILE_TARGETS["f16"])[0] == "attention"


def network() -> Program:
    """Attention of a prompt of any length."""
    p = Program()
    q, k, v = (p.input(name, [1, "s", heads * 32], "f32") for name, heads in (("q", 6), ("k", 2), ("v", 2)))
    p.output(y=p.m.attention(q, k, v, num_heads=6, num_kv_heads=2, head_dim=32, mask_kind="causal"))
    return p


def test_threads_and_turning_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    program = network()
    module = program.finish()
    executable = compile_fresh(module)
    assert set(executable.artifact.templates.values()) == {"attention_amx"}
    artifact: Any = executable.artifact
    # Calls of little work stay on one thread: here they have a lot of it.
    artifact = replace(artifact, calls=tuple((*call[:3], [(10**12, [])]) for call in artifact.calls))
    inputs, _ = program.values({"s": 300})
    results = [Executable(artifact, threads=threads).run(inputs)["y"] for threads in (1, 2, 3)]
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()
    off = compile_fresh(module, disable_templates=("attention_amx",))
    assert set(off.artifact.templates.values()) == {"attention"}
    np.testing.assert_allclose(off.run(inputs)["y"], results[0], rtol=1e-5, atol=1e-5)
    monkeypatch.setattr("rlx_mlir.lowering.cpu.request_tiles", lambda: False)
    assert set(compile_fresh(module).artifact.templates.values()) == {"attention"}
