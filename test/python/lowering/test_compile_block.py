# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole layers against plain numpy in f64: masks, shared heads, caches, both kinds of rope, every kind of weight."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from compile_harness import Program, Ways, compare, integers, normal, templates_of

from rlx_mlir import formats

E, F, D, P = 64, 96, 8, 40
PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")


@dataclass(frozen=True)
class Layer:
    """A decoder block: its attributes, and how each of its weights is stored.

    Attributes:
        packed: block format by projection; the others are dense.
        mask_shape: of custom masks and biases: sizes, `b` for the batch, `s` for queries and for keys.
    """

    heads: int
    kv_heads: int
    mask_kind: str = "causal"
    style: str = "interleaved"
    window: int | None = None
    mask_shape: tuple[int | str, ...] = ()
    mask_dtype: str = "f32"
    cached: bool = False
    betas: bool = False
    transposed: bool = False
    packed: dict[str, str] = field(default_factory=dict)

    def sizes(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of each projection."""
        q, kv = self.heads * D, self.kv_heads * D
        return dict(zip(PROJECTIONS, ((E, q), (E, kv), (E, kv), (q, E), (E, F), (E, F), (F, E)), strict=True))

    def program(self) -> Program:
        """The module of the block, with batch `b` and sequence `s`."""
        p = Program()
        given: dict[str, Any] = {}
        for name, (inputs, outputs) in self.sizes().items():
            if name in self.packed:
                given[f"{name}_w"] = p.param(name, [outputs, inputs], packed=self.packed[name])
            else:
                given[f"{name}_w"] = p.param(name, [outputs, inputs] if self.transposed else [inputs, outputs])
        for name in ("ln1_gamma", "ln2_gamma", *(("ln1_beta", "ln2_beta") if self.betas else ())):
            given[name] = p.param(name, [E])
        for name in ("cos", "sin"):
            given[name] = p.param(name, [P, D // 2])
        if self.mask_kind in ("custom", "bias"):
            make = integers(0, 2) if self.mask_kind == "custom" else normal
            given["mask"] = p.input("mask", self.mask_shape, self.mask_dtype, make)
        if self.cached:
            given["k_cache"], given["v_cache"] = (p.input(f"{n}_cache", ["b", P, self.kv_heads * D]) for n in "kv")
            given["pos"] = p.input("pos", ["b"], "i32", integers(0, 12))
        results = p.m.llama_decoder_block(
            p.input("x", ["b", "s", E]),
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            head_dim=D,
            mask_kind=self.mask_kind,
            window=self.window,
            style=self.style,
            eps=0.01,
            transpose_weight=self.transposed,
            **given,
        )
        names = ("y", "k_out", "v_out") if self.cached else ("y",)
        p.output(**dict(zip(names, results if self.cached else (results,), strict=True)))
        return p

    def expected(self, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The results in f64."""
        w = {}
        for name, (inputs, _) in self.sizes().items():
            if name in self.packed:
                w[name] = formats.decode(self.packed[name], values[name], inputs).astype(float).T
            else:
                w[name] = values[name].astype(float).T if self.transposed else values[name].astype(float)
        x = values["x"].astype(float)
        n = norm(x, values["ln1_gamma"], values.get("ln1_beta"))
        pos = values["pos"] if self.cached else np.zeros(len(x), int)
        q, k = (rotated(n @ w[name], values["cos"], values["sin"], pos, self.style) for name in "qk")
        v = n @ w["v"]
        results = {}
        if self.cached:
            k, v = stored(values["k_cache"], k, pos), stored(values["v_cache"], v, pos)
            results = {"k_out": k.astype(np.float32), "v_out": v.astype(np.float32)}
        h = x + attended(q, k, v, pos, values.get("mask"), self) @ w["o"]
        n = norm(h, values["ln2_gamma"], values.get("ln2_beta"))
        gate = n @ w["gate"]
        y = h + (gate / (1 + np.exp(-gate)) * (n @ w["up"])) @ w["down"]
        return {"y": y.astype(np.float32), **results}


def norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None) -> np.ndarray:
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.01) * gamma
    return y if beta is None else y + beta


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, pos: np.ndarray, style: str, n_rot: int = D) -> np.ndarray:
    """Pairs of elements of each head as complex numbers, turned."""
    y = x.reshape(*x.shape[:2], x.shape[2] // D, D).copy()
    pairs = np.arange(n_rot // 2)
    first, second = (pairs, pairs + n_rot // 2) if style == "half" else (2 * pairs, 2 * pairs + 1)
    rows = np.asarray(pos)[:, None] + np.arange(x.shape[1])
    turn = (cos + 1j * sin)[rows][:, :, None, : n_rot // 2]
    turned = (y[..., first] + 1j * y[..., second]) * turn
    y[..., first], y[..., second] = turned.real, turned.imag
    return y.reshape(x.shape)


def stored(cache: np.ndarray, new: np.ndarray, pos: np.ndarray) -> np.ndarray:
    result = cache.astype(float)
    for b, start in enumerate(pos):
        result[b, start : start + new.shape[1]] = new[b]
    return result


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, pos: np.ndarray, mask: Any, layer: Layer) -> np.ndarray:
    """One query of one head at a time; what sees no key is zero."""
    batch, queries, _ = q.shape
    result = np.zeros((batch, queries, layer.heads, D))
    shape = (batch, layer.heads, queries, k.shape[1])
    if mask is not None:
        mask = np.broadcast_to(mask[:, None, None] if mask.ndim == 2 else mask, shape).astype(float)
    for b, h, i in np.ndindex(batch, layer.heads, queries):
        own = slice(h // (layer.heads // layer.kv_heads) * D, (h // (layer.heads // layer.kv_heads) + 1) * D)
        at = pos[b] + i if layer.cached else i
        keys = np.arange(pos[b] + queries if layer.cached else queries)
        if layer.mask_kind in ("causal", "sliding_window"):
            keys = keys[keys <= at]
        if layer.mask_kind == "sliding_window":
            keys = keys[keys > at - layer.window]
        if layer.mask_kind == "custom":
            keys = keys[mask[b, h, i, keys] >= 0.5]
        if not len(keys):
            continue
        scores = k[b, keys, own] @ q[b, i, h * D : (h + 1) * D] / np.sqrt(D)
        scores = scores + mask[b, h, i, keys] if layer.mask_kind == "bias" else scores
        weights = np.exp(scores - scores.max())
        result[b, i, h] = weights @ v[b, keys, own] / weights.sum()
    return result.reshape(batch, queries, layer.heads * D)


LAYERS = {
    "none": Layer(4, 1, "none", "half"),
    "causal": Layer(9, 3, betas=True),
    "causal, many heads": Layer(32, 8, style="half", transposed=True),
    "window": Layer(4, 2, "sliding_window", window=3),
    "custom": Layer(4, 4, "custom", mask_shape=("b", "s")),
    "custom, all heads": Layer(4, 1, "custom", "half", mask_shape=("b", 1, "s", "s"), mask_dtype="i1"),
    "bias": Layer(4, 2, "bias", mask_shape=("b", 4, "s", "s")),
    "cached": Layer(9, 3, cached=True),
    "cached window": Layer(4, 1, "sliding_window", "half", window=4, cached=True, transposed=True, betas=True),
    "packed": Layer(4, 2, packed=dict.fromkeys(PROJECTIONS, "q4_1")),
    "mixed": Layer(
        4,
        2,
        cached=True,
        transposed=True,
        packed={"q": "q8_0", "k": "q8_0", "o": "q4_0", "gate": "q5_0", "up": "q5_0", "down": "q5_1"},
    ),
}
SLOW = ("none", "custom", "causal, many heads", "cached window", "window", "packed")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in LAYERS])
@pytest.mark.quick(1)
def test_decoder_block(name: str) -> None:
    """One executable for batches and sequences of several sizes, empty ones included."""
    layer = LAYERS[name]
    program = layer.program()
    ways = Ways(program.finish(), maxima={"b": 3, "s": 17})
    used = set(templates_of(ways.templates).values())
    widened = {"broadcast"} if name == "custom, all heads" else set()  # a mask of booleans
    assert used == {"gemm_panels", "rows", "attention"} | widened
    _, params = program.values({"b": 1, "s": 1})
    ways.set_params(params)
    failures = []
    for b, s in ((1, 1), (2, 2), (3, 5), (2, 17), (0, 3), (2, 0)):
        inputs, _ = program.values({"b": b, "s": s}, seed=b + s)
        inputs["x"] = np.random.default_rng(s).standard_normal((b, s, E)).astype(np.float32)
        expected = layer.expected({**inputs, **params})
        for way, results in ways.run(inputs).items():
            failures += compare(expected, results, f"{way} {b}x{s}", 1e-4)
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("scheme", ["q4_1", pytest.param("q8_0", marks=pytest.mark.slow)])
def test_decoder_block_with_activations_of_8_bits(scheme: str) -> None:
    """Like the interpreted module whose activations are quantised; near the exact one."""
    layer = Layer(4, 2, cached=True, packed=dict.fromkeys(PROJECTIONS, scheme))
    program = layer.program()
    ways = Ways(program.finish(), activations="int8")
    assert set(templates_of(ways.templates).values()) == {
        "gemm_int8",
        "block_quantize",
        "rows",
        "attention",
    }
    _, params = program.values({"b": 1, "s": 1})
    ways.set_params(params)
    failures = []
    for b, s in ((1, 1), (2, 5), (2, 17)):
        inputs, _ = program.values({"b": b, "s": s}, seed=1)
        (_, expected), *others = ways.run(inputs).items()
        for way, results in others:
            failures += compare(expected, results, f"{way} {b}x{s}", 1e-2)
        exact = layer.expected({**inputs, **params})["y"]
        assert np.abs(expected["y"] - exact).max() < 0.05 * np.abs(exact).max()
    assert not failures, "\n".join(failures)


def test_prefill_then_steps_equal_numpy() -> None:
    """A cache that grows, in place, at another position in each item of the batch."""
    layer = Layer(4, 2, "causal", cached=True)
    program = layer.program()
    executable = Ways(program.finish()).templates
    _, params = program.values({"b": 3, "s": 1})
    executable.set_params(params)
    rng = np.random.default_rng(3)
    state = {name: np.zeros((3, P, layer.kv_heads * D), np.float32) for name in ("k_cache", "v_cache")}
    numpy_state = {name: array.copy() for name, array in state.items()}
    pos = np.array([0, 7, 3], np.int32)
    for s in (5, 1, 1, 4, 1):
        x = rng.standard_normal((3, s, E)).astype(np.float32)
        expected = layer.expected({**params, **numpy_state, "x": x, "pos": pos})
        results = executable.run({"x": x, "pos": pos, **state}, donate=state.keys())
        assert results["k_out"] is state["k_cache"]
        assert results["v_out"] is state["v_cache"]
        assert not compare(expected, results, f"{s} at {pos}", 1e-4)
        numpy_state = {"k_cache": expected["k_out"], "v_cache": expected["v_out"]}
        pos = pos + np.int32(s)


@pytest.mark.parametrize("style", [pytest.param("half", marks=pytest.mark.slow), "interleaved"])
def test_partial_rope_with_caches(style: str) -> None:
    """Only the first 4 of 8 elements of each head are rotated."""
    layer = Layer(4, 2, cached=True, style=style)
    p = Program()
    m = p.m
    q, k, v = (p.input(name, ["b", "s", width]) for name, width in (("q", 32), ("k", 16), ("v", 16)))
    given: dict[str, Any] = {f"{name}_cache": p.input(f"{name}_cache", ["b", P, 16]) for name in "kv"}
    pos = p.input("pos", ["b"], "i32", integers(0, 12))
    cos, sin = p.param("cos", [P, 4], make=normal), p.param("sin", [P, 4], make=normal)
    q, k = (m.rope(x, cos, sin, head_dim=8, n_rot=4, style=style, pos=pos) for x in (q, k))
    given |= {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8}
    y, keys, values = m.attention(q, k, v, pos=pos, mask_kind="causal", **given)
    p.output(y=y, keys=keys, values=values)
    ways = Ways(p.finish())
    assert set(templates_of(ways.templates).values()) == {"rows", "attention"}
    _, params = p.values({"b": 1, "s": 1})
    ways.set_params(params)
    for b, s in ((1, 1), (2, 5), (3, 17)):
        inputs, _ = p.values({"b": b, "s": s})
        at = inputs["pos"]
        turned = [rotated(inputs[name].astype(float), params["cos"], params["sin"], at, style, 4) for name in "qk"]
        filled = [stored(inputs[f"{name}_cache"], new, at) for name, new in (("k", turned[1]), ("v", inputs["v"]))]
        found = {
            "y": attended(turned[0], filled[0], filled[1], at, None, layer),
            "keys": filled[0],
            "values": filled[1],
        }
        expected = {name: array.astype(np.float32) for name, array in found.items()}
        for way, results in ways.run(inputs).items():
            assert not compare(expected, results, f"{way} {b}x{s}")


def test_swiglu_and_residual_norms() -> None:
    """A feed-forward part with its residual stream: dense and packed weights of one product."""
    p = Program()
    m = p.m
    x, r, gamma = p.input("x", ["b", "s", E]), p.input("r", ["b", "s", E]), p.param("gamma", [E])
    gate, up = p.param("gate", [F, E], packed="q4_0"), p.param("up", [F, E])
    down = p.param("down", [E, F], packed="q8_0")
    n = m.residual_rms_norm(x, r, gamma, eps=0.01)
    y = (x + r) + m.swiglu(n, gate_w=gate, up_w=up, down_w=down, transpose_weight=True)
    p.output(y=y, again=m.rms_norm(y, gamma, eps=0.01))
    ways = Ways(p.finish())
    _, params = p.values({"b": 1, "s": 1})
    ways.set_params(params)
    w = {
        name: formats.decode(s, params[name], k).astype(float)
        for name, s, k in (("gate", "q4_0", E), ("down", "q8_0", F))
    }
    for b, s in ((1, 1), (2, 5), (0, 2)):
        inputs, _ = p.values({"b": b, "s": s})
        total = inputs["x"].astype(float) + inputs["r"]
        rows = norm(total, params["gamma"], None)
        gated = rows @ w["gate"].T
        stream = total + (gated / (1 + np.exp(-gated)) * (rows @ params["up"].T)) @ w["down"].T
        expected = {"y": stream.astype(np.float32), "again": norm(stream, params["gamma"], None).astype(np.float32)}
        for way, results in ways.run(inputs).items():
            assert not compare(expected, results, f"{way} {b}x{s}", 1e-4)


@pytest.mark.slow  # test_mtp_head.py has others
def test_multi_token_prediction_head() -> None:
    """The reference of the block is written from its definition: compiled code agrees."""
    p = Program()
    vocab, width, heads, kv = 11, 32, 4, 2
    shapes: dict[str, list[int]] = {
        "embed_w": [vocab, width],
        "hnorm_w": [width],
        "enorm_w": [width],
        "eh_w": [2 * width, width],
        "attn_norm_w": [width],
        "q_gate_w": [width, heads * 2 * D],
        "k_w": [width, kv * D],
        "v_w": [width, kv * D],
        "q_norm_w": [D],
        "k_norm_w": [D],
        "o_w": [heads * D, width],
        "post_norm_w": [width],
        "gate_w": [width, F],
        "up_w": [width, F],
        "down_w": [F, width],
        "head_norm_w": [width],
        "lm_head_w": [width, vocab],
    }
    weights: dict[str, Any] = {name: p.param(name, shape) for name, shape in shapes.items()}
    y = p.m.qwen35_mtp_head(
        p.input("hidden", ["b", "s", width]),
        input_ids=p.input("ids", ["b", "s"], "i32", integers(0, vocab)),
        last_token_idx=p.input("last", ["b"], "i32", integers(0, 1)),
        cos=p.param("cos", [P, D // 2]),
        sin=p.param("sin", [P, D // 2]),
        num_heads=heads,
        num_kv_heads=kv,
        head_dim=D,
        n_rot=4,
        **weights,
    )
    p.output(y=y)
    ways = Ways(p.finish())
    _, params = p.values({"b": 1, "s": 1})
    ways.set_params(params)
    for b, s in ((1, 1), (3, 5), (2, 17)):
        inputs, _ = p.values({"b": b, "s": s})
        inputs["last"] = np.random.default_rng(b).integers(0, s, b).astype(np.int32)
        (_, expected), *others = ways.run(inputs).items()
        for way, results in others:
            assert not compare(expected, results, f"{way} {b}x{s}", 1e-4)
