# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small computations that every compiler of models has to do well, as graphs and as numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import InputError

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule

Array = np.ndarray

_EPS = 1e-5


@dataclass(frozen=True)
class Workload:
    """One computation with one result, at fixed sizes.

    Attributes:
        name: what `rlx bench --kernels` calls it.
        kind: gemm, linear, mlp, gelu_mlp, attention, self_attention, rms_norm, layer_norm or softmax: what rivals look
            at.
        sizes: its numbers, by name.
        inputs, params: arrays of f32, or of f16 where the name ends so, by name; params are what stays the same between
            calls.
        build: makes the graph, with inputs and then params of these names, and the result `y`.
        reference: the result in numpy.
    """

    name: str
    kind: str
    sizes: Mapping[str, int]
    inputs: Mapping[str, Array]
    params: Mapping[str, Array]
    build: Callable[[], GraphModule]
    reference: Callable[[], Array]


def gelu(x: Array) -> Array:
    """x / 2 * (1 + erf(x / sqrt(2)))"""
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def _random(*shape: int) -> Array:
    scale = 1 / math.sqrt(shape[-2]) if len(shape) == 2 else 1.0
    return (np.random.default_rng(0).standard_normal(shape, np.float32) * np.float32(scale)).astype(np.float32)


def silu(x: Array) -> Array:
    """x / (1 + exp(-x))"""
    return x / (1 + np.exp(-x))


def softmax(x: Array) -> Array:
    """Over the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _gemm(m: int, k: int, n: int) -> Workload:
    x, w = _random(m, k), _random(k, n)

    def build() -> GraphModule:
        from rlx_mlir.hir import GraphModule

        graph = GraphModule.mir("gemm")
        graph.set_outputs({"y": graph.matmul(graph.input("x", [m, k]), graph.param("w", [k, n]))})
        return graph

    return Workload(f"gemm-{m}x{n}x{k}", "gemm", {"m": m, "n": n, "k": k}, {"x": x}, {"w": w}, build, lambda: x @ w)


def _mlp(m: int, hidden: int, ffn: int) -> Workload:
    x = _random(m, hidden)
    weights = {"gate": _random(hidden, ffn), "up": _random(hidden, ffn)[:, ::-1].copy(), "down": _random(ffn, hidden)}

    def build() -> GraphModule:
        from rlx_mlir.hir import GraphModule

        graph = GraphModule.hir("mlp")
        x_in = graph.input("x", [m, hidden])
        gate, up, down = (graph.param(name, array.shape) for name, array in weights.items())
        graph.set_outputs({"y": graph.swiglu(x_in, gate_w=gate, up_w=up, down_w=down)})
        return graph

    def reference() -> Array:
        found: Array = (silu(x @ weights["gate"]) * (x @ weights["up"])) @ weights["down"]
        return found

    sizes = {"m": m, "hidden": hidden, "ffn": ffn}
    return Workload(f"mlp-{m}x{hidden}x{ffn}", "mlp", sizes, {"x": x}, weights, build, reference)


def _linear(m: int, k: int, n: int, *, down: bool) -> Workload:
    """gelu(x W + b); where `down` is set, that times another matrix, back to k columns, plus a bias."""
    x = _random(m, k)
    params = {"w": _random(k, n), "b": _random(n)}
    if down:
        params |= {"w2": _random(n, k), "b2": _random(k)}

    def build() -> GraphModule:
        from rlx_mlir.hir import GraphModule

        graph = GraphModule.hir("linear")
        x_in = graph.input("x", [m, k])
        weights = {name: graph.param(name, array.shape) for name, array in params.items()}
        y = graph.linear(x_in, weights["w"], weights["b"], activation="gelu")
        graph.set_outputs({"y": graph.linear(y, weights["w2"], weights["b2"]) if down else y})
        return graph

    def reference() -> Array:
        y = gelu(x.astype(np.float64) @ params["w"] + params["b"])
        return (y @ params["w2"] + params["b2"] if down else y).astype(np.float32)

    kind = "gelu_mlp" if down else "linear"
    return Workload(f"{kind}-{m}x{k}x{n}", kind, {"m": m, "k": k, "n": n}, {"x": x}, params, build, reference)


def _self_attention(heads: int, tokens: int, head_dim: int) -> Workload:
    """Without a mask; heads before tokens."""
    shape = (1, heads, tokens, head_dim)
    q, k, v = np.random.default_rng(0).standard_normal((3, *shape), np.float32)

    def build() -> GraphModule:
        from rlx_mlir.hir import GraphModule

        graph = GraphModule.mir("attention")
        values = [graph.input(name, shape) for name in "qkv"]
        graph.set_outputs({"y": graph.attention(*values, num_heads=heads, head_dim=head_dim, layout="bhsd")})
        return graph

    def reference() -> Array:
        return softmax(q @ k.swapaxes(-1, -2) / np.float32(math.sqrt(head_dim))) @ v

    sizes = {"heads": heads, "tokens": tokens, "head_dim": head_dim}
    name = f"self_attention-{heads}x{tokens}x{head_dim}"
    return Workload(name, "self_attention", sizes, {"q": q, "k": k, "v": v}, {}, build, reference)


def _attention(
    queries: int, keys: int, heads: int, kv_heads: int, head_dim: int, element: Literal["f32", "f16"] = "f32"
) -> Workload:
    """Causal; the last query sees the last key."""
    dtype = DTYPES[element]
    q = _random(1, queries, heads * head_dim).astype(dtype)
    k = _random(1, keys, kv_heads * head_dim).astype(dtype)
    v = k[:, ::-1].copy()

    def build() -> GraphModule:
        from rlx_mlir.hir import GraphModule

        graph = GraphModule.mir("attention")
        values = [graph.input(name, array.shape, element) for name, array in (("q", q), ("k", k), ("v", v))]
        result = graph.attention(*values, num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, mask_kind="causal")
        graph.set_outputs({"y": result})
        return graph

    def reference() -> Array:
        def split(x: Array, count: int) -> Array:
            parts = x[0].astype(np.float32).reshape(x.shape[1], count, head_dim).transpose(1, 0, 2)
            return parts.repeat(heads // count, axis=0)

        scores = split(q, heads) @ split(k, kv_heads).swapaxes(-1, -2) / np.float32(math.sqrt(head_dim))
        visible = np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
        attended = softmax(np.where(visible, scores, -np.inf)) @ split(v, kv_heads)
        found: Array = attended.transpose(1, 0, 2).reshape(q.shape).astype(dtype)
        return found

    sizes = {"queries": queries, "keys": keys, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    name = f"attention-{queries}x{keys}{'' if element == 'f32' else '-' + element}"
    return Workload(name, "attention", sizes, {"q": q, "k": k, "v": v}, {}, build, reference)


def _norm(kind: str, *shape: int) -> Workload:
    n = shape[-1]
    x, gamma, beta = np.random.default_rng(1).standard_normal(shape, np.float32), _random(n) + 1, _random(n)
    params = {"gamma": gamma} if kind == "rms_norm" else {"gamma": gamma, "beta": beta}

    def build() -> GraphModule:
        from rlx_mlir.hir import GraphModule

        graph = GraphModule.mir(kind)
        given = [graph.input("x", shape), *(graph.param(name, [n]) for name in params)]
        norm = graph.rms_norm if kind == "rms_norm" else graph.layer_norm
        graph.set_outputs({"y": norm(*given, eps=_EPS)})
        return graph

    def reference() -> Array:
        if kind == "rms_norm":
            return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + _EPS) * gamma
        centred = x - x.mean(axis=-1, keepdims=True)
        return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + _EPS) * gamma + beta

    name = f"{kind}-{'x'.join(map(str, shape))}"
    return Workload(name, kind, {"n": n}, {"x": x}, params, build, reference)


def _softmax(m: int, n: int) -> Workload:
    x = _random(m, n)

    def build() -> GraphModule:
        from rlx_mlir.hir import GraphModule

        graph = GraphModule.mir("softmax")
        graph.set_outputs({"y": graph.softmax(graph.input("x", [m, n]), axis=-1)})
        return graph

    return Workload(f"softmax-{m}x{n}", "softmax", {"m": m, "n": n}, {"x": x}, {}, build, lambda: softmax(x))


#: Makers of the workloads, by name: those of one token, and of a prompt, of a small model; then a layer of an encoder
#: with 768 channels, 12 heads and 128 tokens, piece by piece.
WORKLOADS: dict[str, Callable[[], Workload]] = {
    "gemm-1x1536x576": lambda: _gemm(1, 576, 1536),
    "gemm-128x1536x576": lambda: _gemm(128, 576, 1536),
    "gemm-512x512x512": lambda: _gemm(512, 512, 512),
    "mlp-1x576x1536": lambda: _mlp(1, 576, 1536),
    "mlp-128x576x1536": lambda: _mlp(128, 576, 1536),
    "attention-1x512": lambda: _attention(1, 512, 9, 3, 64),
    "attention-128x128": lambda: _attention(128, 128, 9, 3, 64),
    "attention-2048x2048-f16": lambda: _attention(2048, 2048, 9, 3, 64, "f16"),
    "rms_norm-128x576": lambda: _norm("rms_norm", 128, 576),
    "layer_norm-128x576": lambda: _norm("layer_norm", 128, 576),
    "softmax-128x1024": lambda: _softmax(128, 1024),
    "linear-128x768x3072": lambda: _linear(128, 768, 3072, down=False),
    "gelu_mlp-128x768x3072": lambda: _linear(128, 768, 3072, down=True),
    "layer_norm-8x128x768": lambda: _norm("layer_norm", 8, 128, 768),
    "self_attention-12x128x64": lambda: _self_attention(12, 128, 64),
}


def chosen(words: list[str]) -> list[str]:
    """The names of workloads that begin with one of the words; all for no word. InputError for a word of none."""
    for word in words:
        if not any(name.startswith(word) for name in WORKLOADS):
            raise InputError(f"no workload's name begins with '{word}': there are {', '.join(WORKLOADS)}")
    return [name for name in WORKLOADS if not words or any(name.startswith(word) for word in words)]
