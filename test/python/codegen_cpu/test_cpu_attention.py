# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The attention template against a plain f64 reference."""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from attention_cases import Problem
from cpu_harness import TARGETS as VECTORS
from cpu_harness import Kernel, compiled, guarded, protect
from test_cpu_gemm import TILE_TARGETS, need

from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.attention_decode import CHUNK
from rlx_mlir.codegen.cpu.registry import generate
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs.attention import LAYOUTS, AttentionSpec
from rlx_mlir.dtypes import DTYPES

TARGETS = {**VECTORS, "tiles": TILE_TARGETS["bf16"]}
"""By the bits of vectors, and the one with tiles, where prompts take another schedule."""

DEFAULT: dict[str, int | str] = {"bits": 512}
"""The target of cases that don't say."""


@dataclass(frozen=True)
class Case(Problem):
    """One problem; `dynamic` types have `?` for B, Sq (unless 1) and Sk."""

    size: int = 8
    dynamic: bool = True
    bits: int | str | None = None
    broadcast: bool = False
    full: bool = False
    one_row: bool = False  # of a mask, which is every query's

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of queries, masks and the result."""
        return DTYPES[self.element]

    def heads_first(self, array: np.ndarray, heads: int) -> np.ndarray:
        """[B, heads, S, D] of an array in this layout."""
        if self.layout == "bhsd":
            return array
        return array.reshape(self.batch, -1, heads, self.size).swapaxes(1, 2)

    @property
    def mask_shape(self) -> tuple[int, ...] | None:
        batch = 1 if self.broadcast else self.batch
        if self.kind == "bias" or self.full:
            return (batch, 1 if self.broadcast else self.heads, 1 if self.one_row else self.queries, self.keys)
        return (batch, self.keys) if self.kind == "custom" else None

    def spec(self) -> AttentionSpec:
        def type(length: int, heads: int, element: str = self.element) -> str:
            sizes: list[int | None] = list(self.shape(length, heads))
            if self.dynamic:
                if len(sizes) > 2:
                    sizes[0] = None
                if length == self.keys or self.queries != 1:
                    sizes[2 if self.layout == "bhsd" else len(sizes) - (2 if self.layout == "packed" else 3)] = None
            return memref(sizes, element)

        mask = None
        if self.mask_shape is not None:
            sizes: list[int | None] = list(self.mask_shape)
            if self.dynamic:
                sizes[-1] = None
                sizes[0] = sizes[0] if self.broadcast else None
                if len(sizes) == 4 and self.queries != 1 and not self.one_row:
                    sizes[2] = None
            mask = memref(sizes, self.element)
        # Sq of 1 stays static: it selects the row schedule.
        q = memref(self.shape(1, self.heads), self.element) if self.queries == 1 else type(self.queries, self.heads)
        k = type(self.keys, self.kv_heads, self.stored or self.element)
        return self.spec_of(q, k, mask)

    def kernel(self) -> Kernel:
        target = TARGETS[DEFAULT["bits"] if self.bits is None else self.bits]
        need(target)
        return compiled("k", generate("attention", "k", self.spec(), target)[1])

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)

        def normal(shape: tuple[int, ...], dtype: np.dtype[Any] = self.dtype) -> np.ndarray:
            return rng.standard_normal(shape).astype(dtype)

        stored = DTYPES[self.stored or self.element]
        arrays = [normal(self.shape(self.queries, self.heads))]
        arrays += [normal(self.shape(self.keys, self.kv_heads), stored) for _ in range(2)]
        if self.kind == "bias":
            arrays.append(normal(self.mask_shape or ()))
        if self.kind == "custom":
            arrays.append((rng.random(self.mask_shape) < 0.7).astype(self.dtype))
        if self.pos is not None:
            arrays.append(np.array(self.pos, np.int32))
        if self.sinks is not None:
            arrays.append(np.array(self.sinks, self.dtype))
        return arrays

    def run(self, arrays: list[np.ndarray], cuts: list[int] | None = None) -> np.ndarray:
        (result,) = self.kernel()(arrays, [arrays[0]], cuts)
        return result

    def reference(self, arrays: list[np.ndarray]) -> np.ndarray:
        """In f64, with loops over heads and queries, and nothing but the visible keys."""
        q, k, v, *rest = arrays
        q = self.heads_first(q, self.heads).astype(np.float64)
        k = self.heads_first(k, self.kv_heads).astype(np.float64)
        v = self.heads_first(v, self.kv_heads).astype(np.float64)
        scale = self.size**-0.5 if self.scale is None else self.scale
        out = np.zeros(q.shape)
        for b, h, i in np.ndindex(q.shape[:3]):
            position = self.keys - self.queries + i if self.pos is None else self.pos[b] + i
            filled = self.keys if self.pos is None else min(self.keys, self.pos[b] + self.queries)
            seen = np.arange(max(filled, 0))
            if self.kind in ("causal", "sliding_window"):
                seen = seen[seen <= position]
            if self.kind == "sliding_window":
                seen = seen[seen > position - (self.window or 0)]
            if self.kind == "custom":
                rows = (0 if self.broadcast else b,)
                if self.full:
                    rows += (0 if self.broadcast else h, 0 if self.one_row else i)
                seen = seen[rest[0][rows][seen] >= 0.5]
            if seen.size == 0:
                continue
            group = h // (self.heads // self.kv_heads)
            score = k[b, group, seen] @ q[b, h, i] * scale
            if self.softcap is not None:
                score = self.softcap * np.tanh(score / self.softcap)
            if self.kind == "bias":
                own = rest[0][(0, 0) if self.broadcast else (b, h)]
                score = score + own[0 if self.one_row else i, seen].astype(np.float64)
            sink = -np.inf if self.sinks is None else self.sinks[h]
            largest = max(score.max(), sink)
            weight = np.exp(score - largest)
            out[b, h, i] = weight / (weight.sum() + np.exp(sink - largest)) @ v[b, group, seen]
        if self.layout == "bhsd":
            return out
        return out.swapaxes(1, 2).reshape(self.shape(self.queries, self.heads))

    def check(self) -> np.ndarray:
        arrays = self.inputs()
        result = self.run(arrays)
        # A narrow result is rounded once.
        tolerance = {"f32": 2e-5, "f16": 1e-3, "bf16": 8e-3}[self.element]
        np.testing.assert_allclose(result.astype(np.float64), self.reference(arrays), rtol=tolerance, atol=tolerance)
        return result


SHAPES = [(1, 1), (1, 7), (2, 5), (5, 2), (33, 33), (70, 131), (1, 600)]
KINDS: list[dict[str, Any]] = [
    {"kind": "none"},
    {"kind": "causal"},
    {"kind": "sliding_window", "window": 3},
    {"kind": "custom"},
    {"kind": "bias"},
]
BITS = sorted(VECTORS)


@pytest.fixture(params=[512, "tiles"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases that don't say which target have one without tiles, and one with them."""
    monkeypatch.setitem(DEFAULT, "bits", request.param)


def quick(bits: int | str, *numbers: int) -> bool:
    """Whether a combination runs by default: all of them with vectors of 256 bits, which most machines have.

    The others take turns, a fifth of them each, so that every kind of mask meets every target.
    """
    return bits == 256 or sum(numbers) % len(KINDS) == [*BITS, "tiles"].index(bits)


@pytest.mark.parametrize(
    ("queries", "keys", "kind", "bits"),
    [
        pytest.param(*shape, kind, bits, marks=[pytest.mark.slow] * (not quick(bits, i, j)))
        for i, shape in enumerate(SHAPES)
        for j, kind in enumerate(KINDS)
        for bits in (*BITS, "tiles")
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else None,
)
@pytest.mark.quick(2)
def test_mask_kinds(queries: int, keys: int, kind: dict[str, Any], bits: int | str) -> None:
    Case(queries, keys, heads=4, kv_heads=2, size=20, batch=2, bits=bits, **kind).check()


@pytest.mark.parametrize(
    ("size", "bits"),
    [
        (size, bits)
        for i, size in enumerate((1, 3, 8, 20, 64, 80, 128, 256))
        for bits in (BITS[i % 3], BITS[(i + 1) % 3], "tiles")
    ],
)
@pytest.mark.parametrize(("queries", "keys"), [(1, 37), (18, 67)])
@pytest.mark.quick(3)
def test_head_sizes(queries: int, keys: int, size: int, bits: int | str) -> None:
    Case(queries, keys, heads=2, kv_heads=1, size=size, kind="causal", bits=bits).check()


@pytest.mark.parametrize("bits", [*BITS, "tiles"])
@pytest.mark.parametrize("broadcast", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(1, 37), (40, 70)])
@pytest.mark.quick(2)
def test_custom_masks_of_every_query(queries: int, keys: int, broadcast: bool, bits: int | str) -> None:
    Case(queries, keys, 4, 2, batch=2, kind="custom", full=True, broadcast=broadcast, bits=bits).check()


#: Of queries and results, and of keys and values.
NARROW = [("f32", "f16"), ("f32", "bf16"), ("f16", "f16"), ("bf16", "bf16")]


@pytest.mark.parametrize(
    ("queries", "keys", "bits", "kind", "element", "stored"),
    [
        pytest.param(*sizes, kind, *types, marks=[pytest.mark.slow] * (sizes[-1] != 256 and (i + j) % 3 > 0))
        for sizes in ((1, 300, 512), (1, 37, 128), (70, 131, 256), (70, 131, "tiles"))
        for i, kind in enumerate(KINDS)
        for j, types in enumerate(NARROW)
        if sizes[-1] != "tiles" or kind["kind"] in ("causal", "bias")
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else None,
)
@pytest.mark.quick(2)
def test_narrow_elements(
    queries: int, keys: int, bits: int | str, kind: dict[str, Any], element: str, stored: str
) -> None:
    case = Case(queries, keys, heads=6, kv_heads=2, size=40, batch=2, bits=bits, element=element, stored=stored, **kind)
    case.check()
    if kind["kind"] in ("none", "causal") and bits != "tiles":
        replace(case, kv_heads=6, size=32, batch=1).check()


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("stored", ["f16", "bf16"])
def test_narrow_keys_are_widened_without_loss(queries: int, stored: str) -> None:
    narrow = Case(queries, 300, heads=4, kv_heads=2, size=64, kind="causal", stored=stored, scale=0.25)
    q, k, v = narrow.inputs()
    k[0, 3, :5] = [0, -0.0, 65504, 2**-24, 2**-14]  # zeros, the largest number of f16, subnormals
    wide = replace(narrow, stored=None)
    result = wide.run([q, k.astype(np.float32), v.astype(np.float32)])
    assert narrow.run([q, k, v]).tobytes() == result.tobytes()


@pytest.mark.parametrize("bits", [*BITS, "tiles"])
@pytest.mark.parametrize("stored", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("queries", [1, 5, 70])
@pytest.mark.quick(6)
def test_keys_that_are_values_are_one_operand(queries: int, stored: str, bits: int | str) -> None:
    """The same bits as of a copy, at widths with and without a rest, of many heads on one of keys."""
    for size, heads in ((40, 6), (96, 16)):
        case = Case(queries, 131, heads, 1, size, batch=2, kind="causal", pos=(30, 61), stored=stored, bits=bits)
        q, keys, _, pos = case.inputs()
        wanted = case.run([q, keys, keys.copy(), pos])
        np.testing.assert_allclose(wanted, case.reference([q, keys, keys, pos]), rtol=2e-5, atol=2e-5)
        spec = replace(case.spec(), shared=True)
        kernel = compiled("k", generate("attention", "k", spec, TARGETS[bits])[1])
        assert kernel([q, keys, pos], [q])[0].tobytes() == wanted.tobytes()


def test_keys_that_are_values_have_one_type() -> None:
    spec = replace(Case(5, 9, stored="f16").spec(), shared=True)
    with pytest.raises(UnsupportedByTemplate, match="k and v of one type where they are one operand"):
        generate("attention", "k", replace(spec, v=memref([1, None, 16], "bf16")), TARGETS[512])


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (9, 3), (4, 1), (12, 12), (32, 8), (28, 4)])
@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.quick(24)
def test_every_kv_head_serves_its_own_group(queries: int, heads: int, kv_heads: int) -> None:
    case = Case(queries, 6, heads=heads, kv_heads=kv_heads, size=16, batch=2)
    case.check()
    q, k, v = case.inputs()
    v[...] = np.repeat(np.arange(kv_heads), case.size)  # the value of a head is its number
    result = case.run([q, k, v])
    expected = np.repeat(np.arange(heads) // (heads // kv_heads), case.size)
    np.testing.assert_allclose(result, np.broadcast_to(expected, result.shape), rtol=1e-6)


@pytest.mark.parametrize("kind", [{"kind": "causal"}, {"kind": "sliding_window", "window": 300}, {"kind": "none"}])
def test_keys_of_one_query_are_cut_the_same_for_any_threads(kind: dict[str, Any]) -> None:
    """Parts of the keys of a KV head are units; the bits say neither who did them nor how long the cache is."""
    for heads, kv_heads, size in ((8, 2, 64), (9, 3, 20), (4, 1, 256)):
        case = Case(1, 700, heads=heads, kv_heads=kv_heads, size=size, batch=2, pos=(699, 300), **kind)
        arrays = case.inputs()
        result = case.check()
        units = case.kernel().units([*arrays, result])
        assert units == 2 * kv_heads * -(-700 // CHUNK)
        for cuts in (list(range(units)), [units // 2], [units // 3, units // 2 + 1], [1, units - 1]):
            assert case.run(arrays, cuts).tobytes() == result.tobytes()
        longer = [arrays[0], *(np.pad(array, ((0, 0), (0, 900), (0, 0))) for array in arrays[1:3]), arrays[3]]
        assert replace(case, keys=1600).run(longer).tobytes() == result.tobytes()


def test_units_have_equal_shares_of_the_keys() -> None:
    """Half of the units reads half of the keys, to half a part: what isn't filled is no work."""
    size = mmap.PAGESIZE // 4
    case = Case(1, 8 * CHUNK, heads=1, kv_heads=1, size=size, pos=(3 * CHUNK + 5,), kind="causal")
    q, k, v, pos = case.inputs()
    buffers = [guarded(array) for array in (q, k, v, pos)]
    out = guarded(q, 0xFF)
    kernel = case.kernel()
    for first, last, units in ((2 * CHUNK, 8 * CHUNK, (0, 4)), (0, 2 * CHUNK, (4, 8))):
        for cache in buffers[1:3]:
            protect(cache, first * mmap.PAGESIZE, last * mmap.PAGESIZE)
        kernel.run([*buffers, out], only=units)
        for cache in buffers[1:3]:
            protect(cache, first * mmap.PAGESIZE, last * mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dynamic", "bits"), [(True, 512), (False, 512), (True, "tiles")])
@pytest.mark.parametrize(("queries", "keys"), [(1, 19), (5, 19)])
def test_layouts(queries: int, keys: int, dynamic: bool, bits: int | str, layout: str) -> None:
    for kind in ("causal", "bias"):
        Case(queries, keys, 4, 2, batch=2, layout=layout, dynamic=dynamic, kind=kind, bits=bits).check()


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("queries", [1, 5])
def test_rank_two(queries: int) -> None:
    Case(queries, 9, rank=2, kind="causal").check()
    Case(queries, 9, rank=2, kind="custom").check()


@pytest.mark.usefixtures("either")
def test_single_head_in_every_layout() -> None:
    for layout in LAYOUTS:
        Case(3, 5, heads=1, kv_heads=1, batch=2, layout=layout).check()


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["kind"])
@pytest.mark.quick(20)
def test_scale_and_softcap(queries: int, kind: dict[str, Any]) -> None:
    Case(queries, 11, softcap=1.5, scale=2.0, **kind).check()


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("kind", ["causal", "custom"])
@pytest.mark.parametrize("queries", [1, 5])
def test_a_sink_that_is_no_number_is_seen_in_its_own_head(queries: int, kind: str) -> None:
    """Also where a query sees no key."""
    case = Case(queries, 9, 4, 2, kind=kind, sinks=(0.0, np.nan, 0.0, 0.0))
    arrays = case.inputs()
    if kind == "custom":
        arrays[3][...] = 0
    by_head = np.isnan(case.run(arrays)).reshape(queries, 4, case.size)
    assert by_head[:, 1].all()
    assert not by_head[:, [0, 2, 3]].any()


#: Of four heads: none, one below all scores, one among them, and one above them.
SINKS = (-np.inf, -20.0, 0.5, 20.0)


@pytest.mark.parametrize("bits", [*BITS, "tiles"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["kind"])
@pytest.mark.parametrize(("queries", "keys"), [(1, 300), (5, 2), (70, 131)])
@pytest.mark.quick(3)
def test_sinks(queries: int, keys: int, kind: dict[str, Any], bits: int | str) -> None:
    case = Case(queries, keys, heads=4, kv_heads=2, size=20, batch=2, bits=bits, sinks=SINKS, **kind)
    result = case.check()
    units = case.kernel().units([*case.inputs(), result])
    assert case.run(case.inputs(), list(range(units))).tobytes() == result.tobytes()


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("queries", [1, 4, 9])
def test_sinks_beside_a_cache(queries: int, element: str) -> None:
    """Few queries are each computed alone, more in blocks; some positions see one key."""
    kind: dict[str, Any] = {"kind": "sliding_window", "window": 7}
    Case(queries, 150, 4, 2, batch=2, pos=(0, 140), element=element, sinks=(-2.0, 3.0, 0.0, 5.0), **kind).check()


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("queries", [1, 40])
def test_a_sink_of_minus_infinity_changes_no_bit(queries: int) -> None:
    without = Case(queries, 200, 4, 2, size=24, kind="causal")
    case = replace(without, sinks=(-np.inf,) * 4)
    assert case.run(case.inputs()).tobytes() == without.run(without.inputs()).tobytes()


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("queries", [1, 5])
def test_a_sink_takes_all_weight_of_queries_that_see_nothing(queries: int) -> None:
    case = Case(queries, 3, 4, 2, kind="custom", sinks=SINKS)
    arrays = case.inputs()
    arrays[3][...] = 0
    assert not case.run(arrays).any()


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("kind", ["custom", "bias"])
@pytest.mark.parametrize("queries", [1, 4])
def test_mask_of_size_one_broadcasts(queries: int, kind: str) -> None:
    Case(queries, 11, batch=3, kind=kind, broadcast=True).check()


@pytest.mark.parametrize("bits", [256, "tiles"])
@pytest.mark.parametrize("kind", ["custom", "bias"])
def test_masks_of_one_row_are_every_query_s(kind: str, bits: int | str) -> None:
    Case(19, 11, 4, 2, batch=2, kind=kind, full=True, one_row=True, bits=bits).check()


@pytest.mark.parametrize(
    ("window", "bits"), [*((window, 256) for window in (1, 16, 50, 1000, 1 << 40)), (50, "tiles"), (1 << 40, "tiles")]
)
@pytest.mark.parametrize(("queries", "keys"), [(1, 200), (40, 200), (200, 200)])
@pytest.mark.quick(5)
def test_windows(queries: int, keys: int, window: int, bits: int | str) -> None:
    Case(queries, keys, kind="sliding_window", window=window, bits=bits).check()


@pytest.mark.usefixtures("either")
def test_causal_rows_without_keys_are_zero() -> None:
    result = Case(5, 2, kind="causal").check()
    assert (result[:, :3] == 0).all()
    assert (result[:, 3:] != 0).any(axis=-1).all()


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("queries", [1, 5])
def test_fully_masked_rows_are_zero(queries: int) -> None:
    case = Case(queries, 7, batch=2, kind="custom")
    q, k, v, mask = case.inputs()
    mask[1] = 0
    result = case.run([q, k, v, mask])
    assert (result[1] == 0).all()
    np.testing.assert_allclose(result, case.reference([q, k, v, mask]), rtol=2e-5, atol=2e-5)
    case = replace(case, kind="bias")
    q, k, v, bias = case.inputs()
    bias[0, 1] = -np.inf
    result = case.run([q, k, v, bias])
    assert (case.heads_first(result, 2)[0, 1] == 0).all()
    assert np.isfinite(result).all()


@pytest.mark.parametrize("bits", [*BITS, "tiles"])
@pytest.mark.parametrize(("queries", "keys"), [(1, 300), (5, 40)])
def test_a_bias_is_added_to_capped_scores(queries: int, keys: int, bits: int | str) -> None:
    case = Case(queries, keys, kind="bias", softcap=5.0, bits=bits)
    q, k, v, bias = case.inputs()
    bias[..., 1::2] = -np.inf
    v[..., 1::2, :] = 1e6  # a weight of what the cap leaves of -inf would show
    result = case.run([q, k, v, bias])
    assert np.abs(result).max() < 10
    np.testing.assert_allclose(result, case.reference([q, k, v, bias]), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("bits", [*BITS, "tiles"])
@pytest.mark.parametrize("element", ["f32", "f16"])
@pytest.mark.parametrize(("queries", "keys"), [(1, 300), (5, 40)])
@pytest.mark.quick(2)
def test_a_row_of_the_least_bias_gives_the_mean(queries: int, keys: int, element: str, bits: int | str) -> None:
    case = Case(queries, keys, kind="bias", element=element, bits=bits)
    q, k, v, bias = case.inputs()
    least = np.finfo(bias.dtype).min
    bias[0, 0, -1] = least
    bias[0, 1, 0, 1:] = least  # the first key is left
    want = case.reference([q, k, v, bias])
    result = case.run([q, k, v, bias])
    values, own = case.heads_first(v, case.kv_heads).astype(np.float64), case.heads_first(result, case.heads)
    if element == "f32":  # scores have no bits beside this number
        np.testing.assert_allclose(own[0, 0, -1], values[0, 0].mean(axis=0), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(own[0, 1, 0], values[0, 1 // (case.heads // case.kv_heads), 0], rtol=1e-3)
    exact = np.ones(own.shape, np.bool_)
    exact[0, 0, -1] = element != "f32"
    tolerance = 2e-5 if element == "f32" else 1e-3
    np.testing.assert_allclose(own[exact], case.heads_first(want, case.heads)[exact], rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("queries", [1, 5, 40])
@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf])
@pytest.mark.quick(18)
def test_masked_keys_may_hold_garbage(queries: int, garbage: float) -> None:
    for kind in ({"kind": "custom"}, {"kind": "causal"}, {"kind": "sliding_window", "window": 4}):
        case = Case(queries, 90, heads=4, **kind)
        clean = case.inputs()
        expected = case.run(clean)
        dirty = [array.copy() for array in clean]
        if case.kind == "custom":
            dirty[1][0, clean[3][0] < 0.5] = dirty[2][0, clean[3][0] < 0.5] = garbage
        else:  # what only the last query sees, and what no query sees any more
            dirty[1][0, -1] = dirty[2][0, -1] = garbage
        if case.kind == "sliding_window":
            dirty[1][0, : 90 - queries - 3] = dirty[2][0, : 90 - queries - 3] = garbage
        result = case.run(dirty)
        rows = slice(None) if case.kind == "custom" else slice(0, -1)
        assert result[:, rows].tobytes() == expected[:, rows].tobytes()


@pytest.mark.usefixtures("either")
def test_visible_nan_reaches_its_rows_only() -> None:
    for queries, keys in ((1, 20), (20, 20)):
        case = Case(queries, keys, heads=2, kind="causal")
        q, k, v = case.inputs()
        k[0, keys - 1, 0] = np.nan  # head 0 of the last key
        result = case.heads_first(case.run([q, k, v]), 2)
        assert np.isnan(result[0, 0, -1]).all()
        assert np.isfinite(result[0, 1]).all()
        assert np.isfinite(result[0, 0, :-1]).all()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["kind"])
@pytest.mark.parametrize(("queries", "bits"), [(1, 512), (1, 256), (6, 512), (6, 128), (6, "tiles")])
@pytest.mark.quick(3)
def test_cached_form(queries: int, kind: dict[str, Any], bits: int | str) -> None:
    case = Case(queries, 80, heads=4, kv_heads=2, batch=3, pos=(0, 33, 80 - queries), bits=bits, **kind)
    arrays = case.inputs()
    for b, pos in enumerate(case.pos or ()):
        arrays[1][b, pos + queries :] = arrays[2][b, pos + queries :] = np.nan
    np.testing.assert_allclose(case.run(arrays), case.reference(arrays), rtol=2e-5, atol=2e-5)


@pytest.mark.usefixtures("either")
def test_cached_positions_out_of_range_touch_nothing_else() -> None:
    for queries in (1, 4):
        case = Case(queries, 8, batch=4, pos=(-9, -2, 7, 100), kind="causal")
        arrays = case.inputs()
        np.testing.assert_allclose(case.run(arrays), case.reference(arrays), rtol=2e-5, atol=2e-5)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("queries", [1, 3])
def test_unfilled_cache_is_not_read(queries: int) -> None:
    case = Case(queries, 64, heads=8, kv_heads=4, size=mmap.PAGESIZE // 16, pos=(20,), kind="causal")  # a page a key
    q, k, v, pos = case.inputs()
    buffers = [guarded(array) for array in (q, k, v, pos)]
    out = guarded(q, 0xFF)
    for cache in buffers[1:3]:
        protect(cache, (20 + queries) * mmap.PAGESIZE, 64 * mmap.PAGESIZE)
    case.kernel().run([*buffers, out])
    np.testing.assert_allclose(out, case.reference([q, k, v, pos]), rtol=2e-5, atol=2e-5)


def test_keys_behind_the_window_are_not_read() -> None:
    case = Case(1, 64, heads=4, kv_heads=4, size=mmap.PAGESIZE // 16, kind="sliding_window", window=5)
    q, k, v = case.inputs()
    buffers = [guarded(array) for array in (q, k, v)]
    out = guarded(q, 0xFF)
    for cache in buffers[1:3]:
        protect(cache, 0, 59 * mmap.PAGESIZE)
    case.kernel().run([*buffers, out])
    np.testing.assert_allclose(out, case.reference([q, k, v]), rtol=2e-5, atol=2e-5)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(
    "case",
    [
        Case(0, 5),
        Case(3, 5, batch=0),
        Case(1, 5, batch=0),
        Case(3, 0),
        Case(1, 0),
        Case(0, 0, kind="causal"),
    ],
    ids=str,
)
def test_empty_dimensions(case: Case) -> None:
    arrays = case.inputs()
    result = case.run(arrays)
    assert result.shape == arrays[0].shape
    assert (result == 0).all()
    if arrays[0].size == 0:
        assert case.kernel().units([*arrays, result]) == 0


@pytest.mark.parametrize("bits", [*BITS, "tiles"])
@pytest.mark.parametrize("queries", [1, 70])
def test_bits_do_not_depend_on_the_cut(queries: int, bits: int | str) -> None:
    case = Case(queries, 100, heads=6, kv_heads=3, size=64, batch=2, kind="causal", bits=bits)
    arrays = case.inputs()
    whole = case.run(arrays)
    for cuts in ([1], [5, 7], list(range(1000))):
        assert case.run(arrays, cuts).tobytes() == whole.tobytes()


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("kind", [{"kind": "causal"}, {"kind": "sliding_window", "window": 100}])
def test_bits_do_not_depend_on_prompt_chunks(kind: dict[str, Any]) -> None:
    whole = Case(300, 300, pos=(0,), size=16, **kind)
    q, k, v, pos = whole.inputs()
    expected = whole.run([q, k, v, pos])
    for start, stop in ((0, 70), (70, 203), (203, 300)):
        part = replace(whole, queries=stop - start)
        result = part.run([q[:, start:stop], k, v, np.array([start], np.int32)])
        assert result.tobytes() == expected[:, start:stop].tobytes()


@pytest.mark.usefixtures("either")
def test_bits_do_not_depend_on_the_batch() -> None:
    for queries in (1, 9):
        case = Case(queries, 50, batch=3, kind="causal")
        arrays = case.inputs()
        together = case.run(arrays)
        alone = replace(case, batch=1)
        for b in range(3):
            assert alone.run([array[b : b + 1] for array in arrays]).tobytes() == together[b : b + 1].tobytes()


@pytest.mark.usefixtures("either")
def test_large_scores_stay_finite() -> None:
    for queries in (1, 4):
        case = Case(queries, 9, scale=1e4)
        arrays = case.inputs()
        result = case.run(arrays)
        assert np.isfinite(result).all()
        np.testing.assert_allclose(result, case.reference(arrays), rtol=2e-3, atol=2e-3)


def test_code_size_is_independent_of_the_problem() -> None:
    small = generate("attention", "k", Case(64, 64, size=64, dynamic=False).spec(), TARGETS[256])[1]
    spec = Case(4096, 4096, heads=32, size=128, dynamic=False).spec()
    large = generate("attention", "k", spec, TARGETS[256])[1]
    assert math.isclose(len(small.splitlines()), len(large.splitlines()), rel_tol=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": "memref<?x?x16xf64>"}, "buffers of .*, but got memref<\\?x\\?x16xf64>"),
        ({"q": "memref<?x?x16xf16>", "result": "memref<?x?x16xf16>"}, "k and v of f16, as q is, or q of f32, but got"),
        ({"k": "memref<?x?x?xf32>"}, "2 heads of size 8 in the static dimensions"),
        ({"num_kv_heads": 3}, "multiple of num_kv_heads, but got \\(2, 3\\)"),
        ({"mask_kind": "custom"}, "a mask for custom and bias, but got None"),
        ({"mask_kind": "sliding_window"}, "window of at least 1 key, but got None"),
        ({"softcap": -1.0}, "positive softcap, but got -1.0"),
        ({"layout": "sbhd"}, "layout in"),
        ({"sinks": "memref<3xf32>"}, "a sink for each of 2 heads, but got memref<3xf32>"),
        ({"sinks": "memref<2xf16>"}, "sinks of f32, or of f32 as q is, but got memref<2xf16>"),
    ],
)
def test_unsupported(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedByTemplate, match=message):
        generate("attention", "k", replace(Case(3, 5).spec(), **change), TARGETS[256])
