# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention, rotary positions and cache updates, compiled through linalg, give what their references give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from linalg_harness import FLOATS, Case, case, check, dyn, normal, word

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.mir.numerics import BF16

by_dtype = pytest.mark.parametrize("dtype", FLOATS, ids=word)


def attention(
    kind: str = "none", *, heads: int, kv_heads: int | None = None, layout: str = "packed", **rest: Any
) -> Any:
    """A function that makes an attention from q, k, v and, as the kind, `pos` and `sinks` say, what else there is."""
    has_pos, has_sinks = rest.pop("pos", False), rest.pop("sinks", False)

    def build(q: Any, k: Any, v: Any, *more: Any) -> Any:
        operands = list(more)
        mask = operands.pop(0) if kind in ("custom", "bias") else None
        return mir.AttentionOp(
            q,
            k,
            v,
            heads,
            4,
            mask=mask,
            pos=operands.pop(0) if has_pos else None,
            sinks=operands.pop(0) if has_sinks else None,
            num_kv_heads=kv_heads,
            mask_kind=ir.Attribute.parse(f"#mir<mask_kind {kind}>"),
            layout=ir.Attribute.parse(f"#mir<head_layout {layout}>"),
            **rest,
        )

    return build


def heads_first(x: np.ndarray, heads: int) -> np.ndarray:
    """[B, S, heads * 4] as [B, heads, S, 4]."""
    return np.ascontiguousarray(x.reshape(*x.shape[:2], heads, 4).transpose(0, 2, 1, 3))


def attention_cases(dtype: Any, b: int, h: int, kv: int, sq: int, sk: int, kind: str, dynamic: bool) -> Iterator[Case]:
    seed = sq * 7 + sk
    q = normal(b, sq, h * 4, dtype=dtype, seed=seed)
    k, v = (normal(b, sk, kv * 4, dtype=dtype, seed=seed + i) for i in (1, 2))
    name = f"{kind} b{b} h{h}/{kv} {sq}x{sk}"

    def wrap(x: np.ndarray, *dims: int) -> Any:
        return dyn(x, *dims) if dynamic else x

    masks: list[tuple[str, list[Any]]] = [("", [])]
    rng = np.random.default_rng(seed)
    if kind == "custom":
        keys = rng.random((b, sk)) < 0.6
        full = rng.random((b, h, sq, sk)) < 0.5
        masks = [
            ("keys", [wrap(keys.astype(dtype), 0, 1)]),
            ("keys i1", [keys[:1]]),
            ("full i1", [wrap(full, 0, 2, 3)]),
            ("all heads", [full[:, :1]]),
            ("all queries", [full[:, :, :1].astype(dtype)]),
        ]
    if kind == "bias":
        bias = normal(b, h, sq, sk, dtype=dtype, seed=seed + 3)
        holes = np.where(rng.random(bias.shape) < 0.4, -np.inf, bias.astype(np.float32)).astype(dtype)
        masks = [("full", [wrap(bias, 0, 2, 3)]), ("one", [bias[:1, :1]]), ("-inf", [holes])]
    options = {"window": 2} if kind == "sliding_window" else {}
    for label, mask in masks:
        operands = [wrap(q, 0, 1), wrap(k, 0, 1), wrap(v, 0, 1), *mask]
        yield case(f"{name} {label}", attention(kind, heads=h, kv_heads=kv, **options), *operands)
    mask = masks[0][1]
    pos = np.array([max(0, sk - sq - i) for i in range(b)], np.int32)
    operands = [wrap(q, 0, 1), wrap(k, 0, 1), wrap(v, 0, 1), *mask, wrap(pos, 0)]
    yield case(
        f"{name} pos", attention(kind, heads=h, kv_heads=kv, pos=True, scale=0.25, softcap=2.0, **options), *operands
    )
    sinks = np.array([(-np.inf, 1.0, 8.0, -8.0)[i % 4] for i in range(h)]).astype(dtype)
    yield case(
        f"{name} sinks", attention(kind, heads=h, kv_heads=kv, sinks=True, **options), *operands[:-1], wrap(sinks, 0)
    )
    first = [heads_first(q, h), heads_first(k, kv), heads_first(v, kv)]
    operands = [wrap(x, 0, 2) for x in first] + mask
    yield case(f"{name} bhsd", attention(kind, heads=h, kv_heads=kv, layout="bhsd", scale=0.7, **options), *operands)
    operands = [wrap(np.ascontiguousarray(x.transpose(0, 2, 1, 3)), 0, 1) for x in first] + mask
    yield case(f"{name} bshd", attention(kind, heads=h, kv_heads=kv, layout="bshd", softcap=1.5, **options), *operands)
    if b == 1:
        flat = [wrap(x[0], 0) for x in (q, k, v)]
        yield case(f"{name} rank 2", attention(kind, heads=h, kv_heads=kv, **options), *flat, *mask)


@pytest.mark.parametrize("kind", ["none", "causal", "sliding_window", "custom", "bias"])
@pytest.mark.quick(1)
def test_attention_f32(kind):
    cases = [
        c
        for b, h, kv, sq, sk, dynamic in [
            (2, 4, 2, 3, 5, False),
            (1, 6, 2, 5, 2, True),
            (2, 3, 3, 1, 7, True),
            (1, 2, 1, 4, 4, False),
        ]
        for c in attention_cases(np.dtype(np.float32), b, h, kv, sq, sk, kind, dynamic)
    ]
    check(cases)


@pytest.mark.parametrize("dtype", FLOATS[1:], ids=word)
@pytest.mark.quick(1)
def test_attention_types(dtype):
    cases = [
        c
        for kind in ("none", "causal", "sliding_window", "custom", "bias")
        for c in attention_cases(dtype, 1, 4, 2, 3, 5, kind, True)
    ]
    check(cases)


@pytest.mark.parametrize("stored", [np.dtype(np.float16), BF16], ids=word)
@pytest.mark.parametrize("kind", ["causal", "custom", "bias"])
@pytest.mark.quick(3)
def test_keys_narrower_than_queries(kind, stored):
    q, k, v = normal(2, 3, 16), normal(2, 5, 8, dtype=stored, seed=1), normal(2, 5, 8, dtype=stored, seed=2)
    mask = {"custom": [normal(2, 5, seed=3)], "bias": [normal(1, 4, 3, 5, seed=3)]}.get(kind, [])
    pos = np.array([1, 2], np.int32)
    check(
        [
            case("plain", attention(kind, heads=4, kv_heads=2), dyn(q, 1), dyn(k, 1), dyn(v, 1), *mask),
            case("pos", attention(kind, heads=4, kv_heads=2, pos=True), q, k, v, *mask, pos),
        ]
    )


@pytest.mark.parametrize("stored", [np.dtype(np.float16), BF16], ids=word)
def test_cache_update_rounds_to_the_type_of_the_cache(stored):
    cache, new = normal(2, 7, 4, dtype=stored), normal(2, 3, 4, seed=1)
    new[0, 0] = [np.inf, np.nan, 70000, 1e-8]
    check(
        [
            case(
                "narrow",
                lambda *operands: mir.CacheUpdateOp(*operands),
                dyn(cache),
                dyn(new),
                np.array([4, 1], np.int32),
            )
        ]
    )


def test_attention_edges():
    q, k, v = normal(1, 3, 8), normal(1, 6, 4, seed=1), normal(1, 6, 4, seed=2)
    hole = np.where(np.arange(6)[:, None] < 4, v, np.nan).astype(np.float32)
    hole_k = np.where(np.arange(6)[:, None] < 4, k, np.nan).astype(np.float32)
    pos = np.array([1], np.int32)
    none = np.zeros((1, 6), np.bool_)
    keys = np.arange(6)[None] < 4
    holes = np.where(np.arange(6) % 2, -np.inf, 0).astype(np.float32)[None, None, None]
    bias = attention("bias", heads=2, kv_heads=1)
    cases = [
        case("no query", attention("causal", heads=2, kv_heads=1), dyn(q[:, :0], 1), dyn(k, 1), dyn(v, 1)),
        case("no key", attention(heads=2, kv_heads=1), dyn(q, 1), dyn(k[:, :0], 1), dyn(v[:, :0], 1)),
        case("all masked", attention("custom", heads=2, kv_heads=1), q, k, v, none),
        case("cache beyond pos is NaN", attention(heads=2, kv_heads=1, pos=True), q, hole_k, hole, pos),
        case(
            "causal cache beyond pos is NaN", attention("causal", heads=2, kv_heads=1, pos=True), q, hole_k, hole, pos
        ),
        case("masked keys are NaN", attention("custom", heads=2, kv_heads=1), q, hole_k, hole, keys),
        case("seen keys are NaN", attention("causal", heads=2, kv_heads=1), q, k, hole),
        *(
            case(f"bias {value}", bias, q, k, v, np.full((1, 1, 1, 6), value, np.float32))
            for value in (-np.inf, np.finfo(np.float32).min)
        ),
        case("capped bias", attention("bias", heads=2, kv_heads=1, softcap=5.0), q, k, v, holes),
    ]
    check(cases)


@by_dtype
@pytest.mark.quick(2)
def test_rope(dtype):
    x = normal(2, 3, 16, dtype=dtype)
    angle = normal(9, 4, seed=1, scale=3)
    cos, sin = np.cos(angle), np.sin(angle)
    pos = np.array([4, 1], np.int32)
    cases = []
    for style in ("half", "interleaved"):

        def rope(*operands, style=style, **rest):
            x, c, s, *pos = operands
            attribute = ir.Attribute.parse(f"#mir<rope_style {style}>")
            return mir.RopeOp(x, c, s, 8, pos=pos[0] if pos else None, style=attribute, **rest)

        def partial(*operands, rope=rope):
            return rope(*operands, n_rot=4)

        cases += [
            case(style, rope, x, cos, sin),
            case(f"{style} tables of the same type", rope, dyn(x, 0, 1), cos.astype(dtype), sin.astype(dtype)),
            case(f"{style} pos", rope, dyn(x), dyn(cos, 0), dyn(sin, 0), dyn(pos)),
            case(f"{style} partial", partial, x, cos, sin, pos),
            case(f"{style} rank 2", rope, x[0], cos, sin),
            case(f"{style} rank 2, pos", rope, x[0], cos, sin, pos[:1]),
            case(f"{style} rank 4", rope, dyn(x.reshape(2, 1, 3, 16), 2), cos, sin, pos),
            case(f"{style} empty", rope, dyn(x[:, :0]), cos, sin, pos),
        ]
    check(cases)


@by_dtype
def test_cache_update(dtype):
    cache, new = normal(2, 7, 4, dtype=dtype), normal(2, 3, 4, dtype=dtype, seed=1)
    pos = np.array([4, 1], np.int32)

    def build(*operands):
        return mir.CacheUpdateOp(*operands)

    check(
        [
            case("static", build, cache, new, pos),
            case("dynamic", build, dyn(cache), dyn(new), dyn(pos)),
            case("one row", build, cache, dyn(new[:, :1], 1), pos),
            case("no row", build, cache, dyn(new[:, :0], 1), np.array([7, 0], np.int32)),
        ]
    )


def test_optimised_attention_agrees():
    """LLVM's optimiser gets to use what fast arithmetic allows; rows without keys must survive that."""
    q, k = normal(1, 3, 16, seed=2), normal(1, 6, 8, seed=3)
    check(
        [
            case("causal", attention("causal", heads=4, kv_heads=2), dyn(q, 1), dyn(k, 1), dyn(k, 1)),
            case("no key", attention("custom", heads=4, kv_heads=2), q, k, k, np.zeros((1, 6), np.bool_)),
            case("before the first key", attention("causal", heads=4, kv_heads=2), q, k[:, :2], k[:, :2]),
        ],
        level=2,
    )
