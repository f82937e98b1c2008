# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keys and values that are kept as blocks: writing them, attention that reads them, beside references of numpy."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from cpu_harness import TARGETS, Kernel, compiled
from test_cpu_attention import Case
from test_cpu_gemm import need

import rlx_mlir as rlx
from rlx_mlir import GraphModule, formats
from rlx_mlir.codegen.cpu.registry import generate
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs import AttentionSpec, CacheSpec
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import InputError
from rlx_mlir.interpreter import interpret
from rlx_mlir.mir import kept

BITS = sorted(TARGETS)
SCHEMES = kept.SCHEMES


def stored(x: np.ndarray, kind: str) -> np.ndarray:
    """Numbers [..., E] as rows of a cache of that type."""
    return kept.encoded(x, kind) if kind in SCHEMES else x.astype(DTYPES[kind])


def numbers(x: np.ndarray, kind: str) -> np.ndarray:
    """What rows of a cache stand for, f32."""
    return kept.decoded(x, kind) if kind in SCHEMES else x.astype(np.float32)


def scheme_of(kind: str) -> str | None:
    return kind if kind in SCHEMES else None


def cache_dims(kind: str, width: int) -> tuple[int, str]:
    """Elements of a row of a cache, and their type."""
    return (kept.row_bytes(kind, width), "i8") if kind in SCHEMES else (width, kind)


# Writing ------------------------------------------------------------------------------------------


def hard_rows(rng: np.random.Generator, width: int) -> np.ndarray:
    """Rows at which quantisers break, f32 [n, width]: of all magnitudes, ties, zeros, and what no scale holds."""
    signs = np.array([1, -1], np.float32)
    rows = [rng.standard_normal(width) * 10.0**power for power in range(-44, 39, 3)]
    rows += [rng.integers(-16, 17, width) / 2 for _ in range(8)]  # halves: ties
    rows += [np.tile(signs * sign * 3, width // 2) for sign in (1, -1)]  # two elements of the largest magnitude
    rows += [np.zeros(width), np.full(width, -0.0), np.full(width, np.finfo(np.float32).max)]
    for limit in (127 * 65504, 127 * 65520, 8 * 65504, 8 * 65520):  # about the largest scale of f16
        rows += [rng.uniform(-1, 1, width) * limit * factor for factor in (1, 1.0001)]
    rows += [np.full(width, limit) for limit in (127 * 65504, 127 * 65520, 8 * 65504, 8 * 65520)]
    rows += [np.full(width, 127 * 2.0**-126), np.full(width, 8 * 2.0**-126), np.full(width, 2.0**-149)]
    for bad in (np.nan, np.inf, -np.inf):
        row = rng.standard_normal(width)
        row[rng.integers(0, width)] = bad
        rows.append(row)
    with np.errstate(over="ignore"):
        return np.array(rows).astype(np.float32)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_blocks_of_finite_numbers_are_those_of_files(scheme: str) -> None:
    x = hard_rows(np.random.default_rng(0), 64)
    limit = (127 if scheme == "q8_0" else 8) * 65000
    x = x[(np.abs(x) < limit).all(axis=1)]
    assert len(x) > 20
    assert kept.encoded(x, scheme).tobytes() == formats.encode(scheme, x).tobytes()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_blocks_without_a_scale_are_nan(scheme: str) -> None:
    x = np.ones((4, 96), np.float32)
    x[0, 40], x[1, 0], x[2, 95], x[3, 64:] = np.nan, np.inf, -np.inf, 3e38
    found = kept.decoded(kept.encoded(x, scheme), scheme).reshape(4, 3, 32)
    bad = np.zeros((4, 3), np.bool_)
    bad[[0, 1, 2, 3], [1, 0, 2, 2]] = True
    assert np.isnan(found[bad]).all()
    np.testing.assert_allclose(found[~bad], 1, rtol=1e-3)


def writer(scheme: str, batch: int, positions: int, width: int, bits: int) -> Kernel:
    target = TARGETS[bits]
    need(target)
    cache = memref([batch, positions, kept.row_bytes(scheme, width)], "i8")
    spec = CacheSpec(cache, memref([batch, None, width], "f32"), memref([batch], "i32"), scheme, (0, 1, 2))
    return compiled("k", generate("cache", "k", spec, target)[1])


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_rows_become_the_blocks_of_the_reference(scheme: str, bits: int) -> None:
    """Rows that the cache doesn't have are left out, and no others are touched."""
    rng = np.random.default_rng(1)
    for width in (32, 96):
        hard = hard_rows(rng, width)
        positions, batch = len(hard) + 3, 3
        kernel = writer(scheme, batch, positions, width, bits)
        for rows in (0, 1, 7, len(hard)):
            new = np.stack([rng.permutation(hard)[:rows] for _ in range(batch)])
            pos = np.array([0, positions - rows, positions - rows + 2 if rows else 1], np.int32)
            cache = rng.integers(-128, 128, (batch, positions, kept.row_bytes(scheme, width))).astype(np.int8)
            want = cache.copy()
            for b, start in enumerate(pos):
                own = min(rows, positions - start)
                want[b, start : start + own] = kept.encoded(new[b, :own], scheme)
            # Its result is the cache's memory: what is given as operand isn't read.
            units = kernel.units([cache, new, pos, cache])
            assert units == batch * rows
            found = cache.copy()
            kernel.run([found, new, pos, found])
            assert found.tobytes() == want.tobytes()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("disabled", [(), ("cache",)], ids=["template", "loops"])
def test_updates_are_the_same_bytes_by_template_and_by_loops(scheme: str, disabled: tuple[str, ...]) -> None:
    rng = np.random.default_rng(2)
    new = hard_rows(rng, 96)[None]
    m = GraphModule.hir("update")
    cache = m.input("cache", [1, 200, kept.row_bytes(scheme, 96)], "i8")
    new_rows, pos = m.input("new", [1, "rows", 96]), m.input("pos", [1], "i32")
    m.set_outputs({"out": m.cache_update(cache, new_rows, pos, scheme=scheme)}, tied={"out": cache})
    executable = rlx.compile(m, disable_templates=disabled, maxima={"rows": new.shape[1]})
    inputs = {"new": new, "pos": np.array([5], np.int32)}
    inputs["cache"] = rng.integers(-128, 128, (1, 200, kept.row_bytes(scheme, 96))).astype(np.int8)
    assert executable.run(inputs)["out"].tobytes() == interpret(m, inputs)["out"].tobytes()
    (how,) = executable.artifact.templates.values()
    assert how.startswith("generic" if disabled else "cache_update")


# Reading: kernels ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept(Case):
    """A problem of attention whose keys and values are kept as these types."""

    k: str = "q8_0"
    v: str = "q8_0"

    def spec(self) -> AttentionSpec:
        base = super().spec()

        def buffer(kind: str) -> str:
            width, element = cache_dims(kind, self.kv_heads * self.size)
            return memref([None, None, width], element)

        return replace(base, k=buffer(self.k), v=buffer(self.v), k_scheme=scheme_of(self.k), v_scheme=scheme_of(self.v))

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        q, k, v, *rest = super().inputs(seed)
        return [q, stored(k, self.k), stored(v, self.v), *rest]

    def reference(self, arrays: list[np.ndarray]) -> np.ndarray:
        q, k, v, *rest = arrays
        return super().reference([q, numbers(k, self.k), numbers(v, self.v), *rest])


PAIRS = list(itertools.product(("f32", "f16", "bf16", *SCHEMES), repeat=2))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("pair", PAIRS, ids="/".join)
@pytest.mark.quick(8)
def test_attention_reads_every_pair_of_types(pair: tuple[str, str], bits: int) -> None:
    k, v = pair
    for queries, keys, kv_heads in ((1, 300, 2), (1, 37, 6), (37, 70, 2)):
        kind = "causal" if (BITS.index(bits) + len(k)) % 2 else "sliding_window"
        window = 33 if kind == "sliding_window" else None
        case = Kept(queries, keys, 6, kv_heads, 64, batch=2, k=k, v=v, bits=bits, kind=kind, window=window)
        case.check()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("kind", ["none", "custom", "bias"])
@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.quick(3)
def test_attention_with_blocks_and_masks(queries: int, kind: str, bits: int) -> None:
    Kept(queries, 140, 4, 2, 32, batch=2, k="q4_0", v="q8_0", bits=bits, kind=kind, softcap=3.0).check()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.quick(12)
def test_blocks_are_read_as_what_they_decode_to(scheme: str, queries: int, bits: int) -> None:
    """The bits are those of attention to the decoded numbers."""
    for kv_heads in (2, 4):
        case = Kept(queries, 300, 4, kv_heads, 64, k=scheme, v=scheme, kind="causal", scale=0.25, bits=bits)
        q, k, v = case.inputs()
        wide = Case(queries, 300, 4, kv_heads, 64, kind="causal", scale=0.25, bits=bits)
        expected = wide.run([q, kept.decoded(k, scheme), kept.decoded(v, scheme)])
        assert case.run([q, k, v]).tobytes() == expected.tobytes()


@pytest.mark.parametrize("queries", [1, 5])
def test_keys_that_are_not_there_have_no_influence(queries: int) -> None:
    case = Kept(queries, 200, 4, 2, 32, batch=2, pos=(0, 150), kind="causal", k="q8_0", v="q4_0")
    q, k, v, pos = case.inputs()
    clean = case.run([q, k, v, pos])
    for b, start in enumerate(case.pos or ()):
        for cache in (k, v):
            cache[b, start + queries :] = -1  # scales that are NaN
    assert case.run([q, k, v, pos]).tobytes() == clean.tobytes()
    np.testing.assert_allclose(clean, case.reference([q, k, v, pos]), rtol=2e-5, atol=2e-5)


# Whole programs -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cached:
    """`hir.attention` with caches, at sizes that are drawn."""

    k: str
    v: str
    batch: int
    queries: int
    positions: int
    heads: int
    kv_heads: int
    size: int
    window: int | None

    @classmethod
    def drawn(cls, rng: np.random.Generator, k: str, v: str) -> Cached:
        queries = int(rng.choice([1, 1, 2, 7, 33, 130]))
        kv_heads = int(rng.choice([1, 2, 3]))
        return cls(
            k,
            v,
            int(rng.choice([1, 2, 3])),
            queries,
            queries + int(rng.choice([0, 1, 8, 127, 301])),
            kv_heads * int(rng.choice([1, 2, 3, 4])),
            kv_heads,
            int(rng.choice([32, 64, 96])),
            [None, 1, 20, 128][rng.integers(4)],
        )

    def module(self) -> GraphModule:
        m = GraphModule.hir("cached")
        q = m.input("q", [self.batch, self.queries, self.heads * self.size])
        k, v = (m.input(name, [self.batch, self.queries, self.kv_heads * self.size]) for name in "kv")

        def cache(name: str, kind: str) -> rlx.Value:
            width, element = cache_dims(kind, self.kv_heads * self.size)
            return m.input(name, [self.batch, self.positions, width], element)

        caches = {"k_cache": cache("k_cache", self.k), "v_cache": cache("v_cache", self.v)}
        out, new_k, new_v = m.attention(
            *(q, k, v),
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            head_dim=self.size,
            mask_kind="causal" if self.window is None else "sliding_window",
            window=self.window,
            **caches,
            pos=m.input("pos", [self.batch], "i32"),
            k_scheme=scheme_of(self.k),
            v_scheme=scheme_of(self.v),
        )
        m.set_outputs(
            {"out": out, "new_k": new_k, "new_v": new_v},
            tied=dict(zip(("new_k", "new_v"), caches.values(), strict=True)),
        )
        return m

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        def normal(rows: int, heads: int) -> np.ndarray:
            return rng.standard_normal((self.batch, rows, heads * self.size), np.float32)

        room = self.positions - self.queries
        return {
            "q": normal(self.queries, self.heads),
            "k": normal(self.queries, self.kv_heads),
            "v": normal(self.queries, self.kv_heads),
            "k_cache": stored(normal(self.positions, self.kv_heads), self.k),
            "v_cache": stored(normal(self.positions, self.kv_heads), self.v),
            "pos": rng.integers(0, room + 1, self.batch).astype(np.int32),
        }


def alike(found: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]) -> None:
    np.testing.assert_allclose(found["out"], want["out"], rtol=2e-5, atol=2e-5)
    for name in ("new_k", "new_v"):
        assert found[name].tobytes() == want[name].tobytes()


@pytest.mark.parametrize("pair", PAIRS, ids="/".join)
@pytest.mark.quick(9)
def test_cached_attention_is_that_of_the_reference(pair: tuple[str, str]) -> None:
    rng = np.random.default_rng(PAIRS.index(pair))
    for threads in (1, 2):
        case = Cached.drawn(rng, *pair)
        executable = rlx.compile(case.module(), threads=threads, cache=False)
        assert not any(how.startswith("generic") for how in executable.artifact.templates.values()), case
        inputs = case.inputs(rng)
        alike(executable.run(inputs), interpret(case.module(), inputs))
        alike(interpret(case.module().lower(), inputs), interpret(case.module(), inputs))


@pytest.mark.parametrize("pair", [("q8_0", "q4_0"), ("f16", "q8_0"), ("bf16", "f32")], ids="/".join)
@pytest.mark.quick(1)
def test_cached_attention_by_loops(pair: tuple[str, str]) -> None:
    rng = np.random.default_rng(7)
    case = Cached(*pair, 2, 3, 9, 4, 2, 32, None)
    executable = rlx.compile(case.module(), disable_templates=("all",), cache=False)
    inputs = case.inputs(rng)
    alike(executable.run(inputs), interpret(case.module(), inputs))


def test_bytes_of_rows_may_be_dynamic() -> None:
    """Then they are those that the heads need, which is checked before anything runs."""
    m = GraphModule.mir("dynamic")
    q, new, pos = m.input("q", [1, 1, 64]), m.input("new", [1, 1, 64]), m.input("pos", [1], "i32")
    cache = m.input("cache", [1, 9, "bytes"], "i8")
    kept_rows = m.cache_update(cache, new, pos, scheme="q8_0")
    heads = {"num_heads": 2, "head_dim": 32}
    out = m.attention(q, kept_rows, kept_rows, pos=pos, k_scheme="q8_0", v_scheme="q8_0", **heads)
    m.set_outputs({"out": out, "rows": kept_rows}, tied={"rows": cache})
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal((1, 1, 64), np.float32) for name in ("q", "new")}
    inputs["cache"] = kept.encoded(rng.standard_normal((1, 9, 64), np.float32), "q8_0")
    inputs["pos"] = np.array([4], np.int32)
    executable = rlx.compile(m, maxima={"bytes": 68})
    found, want = executable.run(inputs), interpret(m, inputs)
    np.testing.assert_allclose(found["out"], want["out"], rtol=2e-5, atol=2e-5)
    assert found["rows"].tobytes() == want["rows"].tobytes()
    with pytest.raises(InputError, match="bytes"):
        executable.run({**inputs, "cache": inputs["cache"][..., :34].copy()})


@pytest.mark.parametrize("pair", [("f32", "f32"), ("f16", "f16"), ("q8_0", "q4_0")], ids="/".join)
@pytest.mark.parametrize("window", [None, 150])
@pytest.mark.quick(3)
def test_results_of_a_sequence_are_the_same_bits_whatever_runs_beside_it(
    pair: tuple[str, str], window: int | None
) -> None:
    """Of decoding: keys are cut by their own numbers, whatever the batch, the other rows, and the threads."""
    whole = Cached(*pair, 8, 1, 700, 6, 2, 64, window)
    inputs = whole.inputs(np.random.default_rng(3))
    inputs["pos"] = np.array([0, 699, 130, 128, 127, 511, 3, 300], np.int32)
    seen: dict[int, bytes] = {}
    for threads, batch in itertools.product((1, 2, 3), (1, 2, 3, 8)):
        executable = rlx.compile(replace(whole, batch=batch).module(), threads=threads)
        for start in range(0, 9 - batch, max(1, batch - 1)):
            own = {name: array[start : start + batch].copy() for name, array in inputs.items()}
            for row, out in enumerate(executable.run(own)["out"], start):
                assert seen.setdefault(row, out.tobytes()) == out.tobytes(), (threads, batch, row)
    assert len(seen) == 8
