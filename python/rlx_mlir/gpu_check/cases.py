# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small modules that between them have kernels of every class that GPUs have schedules for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rlx_mlir.attributes import PythonValue
from rlx_mlir.hir import GraphModule
from rlx_mlir.hir.values import Value

Array = np.ndarray
#: What a case computes.
Outputs = Value | tuple[Value, ...]


@dataclass(frozen=True)
class Case:
    """A module of known sizes.

    Attributes:
        name: the class of kernels that it is for, and what is particular.
        build: makes it.
        values: of inputs, where random ones don't serve.
    """

    name: str
    build: Callable[[], GraphModule]
    values: Mapping[str, Array] = field(default_factory=dict)


def _module(name: str, outputs: Callable[[GraphModule], Outputs]) -> Callable[[], GraphModule]:
    """What makes a module of primitives, whose results are `y0`, `y1`, .. in order."""

    def build() -> GraphModule:
        graph = GraphModule.mir(name)
        found = outputs(graph)
        graph.set_outputs({f"y{i}": value for i, value in enumerate(found if isinstance(found, tuple) else (found,))})
        return graph

    return build


def _product(m: int, n: int, k: int, dtype: str) -> Callable[[], GraphModule]:
    """gelu(x w + b)"""

    def outputs(g: GraphModule) -> Outputs:
        x, w, b = g.input("x", [m, k], dtype), g.param("w", [n, k], dtype), g.param("b", [n], dtype)
        return g.fused_matmul_bias_act(x, w, b, activation="gelu", transpose_rhs=True)

    return _module("product", outputs)


def _packed(m: int, scheme: str) -> Callable[[], GraphModule]:
    def outputs(g: GraphModule) -> Outputs:
        return g.dequant_matmul(g.input("x", [m, 512]), g.param("w", [136, 512], packed=scheme))

    return _module("packed", outputs)


def _integers(m: int, scheme: str) -> Callable[[], GraphModule]:
    """As with activations of 8 bits: x as blocks of integers, then exact sums of blocks."""

    def outputs(g: GraphModule) -> Outputs:
        return g.block_dot(*g.block_quantize(g.input("x", [m, 512])), g.param("w", [136, 512], packed=scheme))

    return _module("integers", outputs)


def _float8(g: GraphModule) -> Outputs:
    x, w = g.input("x", [70, 256], "f8E4M3FN"), g.param("w", [72, 256], "f8E4M3FN")
    return g.scaled_matmul(x, w, g.param("x_scale", [70]), g.param("w_scale", [72]), transpose_rhs=True)


def _swiglu() -> GraphModule:
    graph = GraphModule.hir("swiglu")
    x = graph.input("x", [33, 96])
    weights: dict[str, PythonValue] = {f"{name}_w": graph.param(f"{name}_w", [96, 128]) for name in ("gate", "up")}
    graph.set_outputs({"y": graph.swiglu(x, down_w=graph.param("down_w", [128, 96]), **weights)})
    return graph


def _rows(dtype: str, width: int) -> Callable[[], GraphModule]:
    def outputs(g: GraphModule) -> Outputs:
        x, residual = g.input("x", [19, width], dtype), g.input("residual", [19, width], dtype)
        gamma, beta = g.param("gamma", [width], dtype), g.param("beta", [width], dtype)
        return g.fused_residual_rms_norm(x, residual, gamma), g.layer_norm(x, gamma, beta), g.softmax(residual)

    return _module("rows", outputs)


def _pointwise(g: GraphModule) -> Outputs:
    x, y = g.input("x", [37, 64]), g.input("y", [37, 64])
    return g.mul(g.silu(x), g.tanh(y)), g.gelu(g.sub(x, g.exp(y)))


def _attention(dtype: str, queries: int, keys: int, **options: PythonValue) -> Callable[[], GraphModule]:
    """4 heads over 2, of 64 elements."""

    def outputs(g: GraphModule) -> Outputs:
        q = g.input("q", [1, queries, 256], dtype)
        k, v = (g.input(name, [1, keys, 128], dtype) for name in "kv")
        pos = g.input("pos", [1], "i32") if options.get("mask_kind") == "causal" and queries == 1 else None
        found: Outputs = g.attention(q, k, v, num_heads=4, num_kv_heads=2, head_dim=64, pos=pos, **options)
        return found

    return _module("attention", outputs)


def _rope(g: GraphModule) -> Outputs:
    x, pos = g.input("x", [1, 5, 128]), g.input("pos", [1], "i32")
    cos, sin = g.param("cos", [64, 32]), g.param("sin", [64, 32])
    turned = g.rope(x, cos, sin, head_dim=64, style="half", pos=pos)
    return turned, g.cache_update(g.input("cache", [1, 64, 128]), turned, pos)


def _gather(g: GraphModule) -> Outputs:
    return g.gather(g.param("table", [50, 64]), g.input("ids", [1, 9], "i32")), g.gather(
        g.param("packed", [50, 256], packed="q4_k"), g.input("ids2", [1, 9], "i32")
    )


def _broadcast(g: GraphModule) -> Outputs:
    x, y = g.input("x", [5, 1, 33]), g.input("y", [7, 1])
    return g.where(g.lt(x, y), g.mul(x, y), g.add(x, y))


def _reduce(g: GraphModule) -> Outputs:
    x = g.input("x", [40, 6, 33])
    return g.sum(x, [0]), g.max(x, [1]), g.mean(x)


def _move(g: GraphModule) -> Outputs:
    x = g.input("x", [6, 40, 24])
    return g.transpose(x, [0, 2, 1]), g.concat([g.narrow(x, 1, 8, 16), x], 1), g.transpose(x, [1, 0, 2])


def _top_k(g: GraphModule) -> Outputs:
    return g.top_k(g.input("x", [2, 5000]), 40)


def _sorted(g: GraphModule) -> Outputs:
    """Whole rows of integers, in one tile, and rows of several, of which many elements are wanted."""
    x, y = g.input("x", [3, 1000], "i32"), g.input("y", [2, 5000])
    return *g.top_k(x, 1000, smallest=True), *g.top_k(y, 300)


def _group_norm(g: GraphModule) -> Outputs:
    return g.group_norm(g.input("x", [2, 12, 9, 16]), g.param("gamma", [12]), g.param("beta", [12]), num_groups=3)


def _pool(g: GraphModule) -> Outputs:
    x = g.input("x", [2, 5, 17, 19])
    return g.pool(x, kind="max", kernel_size=(3, 3), stride=(2, 2), padding=(1, 1)), g.pool(
        x, kind="mean", kernel_size=(17, 19)
    )


def _grouped(g: GraphModule) -> Outputs:
    return g.grouped_matmul(g.input("x", [21, 96]), g.param("w", [4, 96, 136]), g.input("expert", [21], "i32"))


def _conv2d(g: GraphModule) -> Outputs:
    return g.conv2d(g.input("x", [2, 16, 9, 11]), g.param("w", [24, 16, 3, 3]), padding=1)


def _conv() -> GraphModule:
    graph = GraphModule.hir("conv")
    x, before = graph.input("x", [2, 11, 32]), graph.input("before", [2, 3, 32])
    graph.set_outputs({"y": graph.depthwise_conv1d_causal(x, graph.param("w", [32, 1, 1, 4]), before)})
    return graph


def _recurrence(g: GraphModule) -> Outputs:
    q, k, v = (g.input(name, [1, 9, 2, 32]) for name in "qkv")
    strength = g.sigmoid(g.input("beta", [1, 9, 2]))
    decay = g.neg(g.exp(g.input("g", [1, 9, 2])))
    q, k, v = (g.mul(x, np.float32(0.2)) for x in (q, k, v))
    return g.gated_delta_net(q, k, v, decay, strength, g.input("state", [1, 2, 32, 32]))


def _block() -> GraphModule:
    """A decoder's layer for one token, with caches: a chain of kernels that start early."""
    graph = GraphModule.hir("block")
    size, heads, length = 128, 4, 48
    shapes = {"q_w": (128, 128), "k_w": (128, 64), "v_w": (128, 64), "o_w": (128, 128)}
    shapes |= {"gate_w": (128, 192), "up_w": (128, 192), "down_w": (192, 128)}
    weights: dict[str, PythonValue] = {name: graph.param(name, shape) for name, shape in shapes.items()}
    weights |= {name: graph.param(name, [size]) for name in ("ln1_gamma", "ln2_gamma")}
    weights |= {name: graph.param(name, [length, 16]) for name in ("cos", "sin")}
    caches: dict[str, PythonValue] = {name: graph.input(name, [1, length, 64]) for name in ("k_cache", "v_cache")}
    x, pos = graph.input("x", [1, 1, size]), graph.input("pos", [1], "i32")
    found = graph.llama_decoder_block(
        x, **weights, **caches, pos=pos, num_heads=heads, num_kv_heads=2, head_dim=32, style="half"
    )
    graph.set_outputs(dict(zip(("y", "k", "v"), found, strict=True)))
    return graph


def decode_step() -> GraphModule:
    """One step of a small model that chooses its token: what it reads, it writes for the next step."""
    graph = GraphModule.mir("steps")
    token, pos = graph.input("token", [1, 1], "i32"), graph.input("pos", [1], "i32")
    seen = graph.input("seen", [1, STEPS_LENGTH, 64])
    controls, draws = graph.input("controls", [1, 3]), graph.input("draws", [1, STEPS_LENGTH])
    chosen = graph.input("chosen", [1, STEPS_LENGTH], "i32")
    x = graph.gather(graph.param("table", [STEPS_VOCAB, 64]), token)
    seen_out = graph.cache_update(seen, graph.rms_norm(x, graph.param("gamma", [64])), pos)
    hidden = graph.add(x, graph.mean(seen_out, [1], keep_dims=True))
    logits = graph.matmul(hidden, graph.param("head", [STEPS_VOCAB, 64]), transpose_rhs=True)
    values, ids = graph.top_k(graph.reshape(logits, [1, STEPS_VOCAB]), 8)
    following, place, chosen_out = graph.sample(values, ids, controls, draws, chosen, pos)
    graph.set_outputs({"next_token": following, "next_pos": place, "seen_out": seen_out, "chosen_out": chosen_out})
    return graph


STEPS_LENGTH, STEPS_VOCAB = 64, 200

_POSITION = {"pos": np.array([37], np.int32)}

CASES: tuple[Case, ...] = (
    Case("pointwise", _module("pointwise", _pointwise)),
    Case("rows: f32", _rows("f32", 200)),
    Case("rows: bf16, long", _rows("bf16", 4104)),
    Case("gemm: f32", _product(70, 88, 96, "f32")),
    Case("gemm: f16", _product(130, 136, 128, "f16")),
    Case("gemm: bf16", _product(200, 264, 320, "bf16")),
    Case("gemm: bf16, 16 rows", _product(16, 264, 320, "bf16")),
    Case("gemm: bf16, odd sizes", _product(33, 71, 45, "bf16")),
    Case("gemm: bf16, one row", _product(1, 264, 1024, "bf16")),
    Case("gemm: f32, 5 rows", _product(5, 88, 96, "f32")),
    Case("gemm: f8", _module("float8", _float8)),
    *(Case(f"gemm: {scheme}, one row", _packed(1, scheme)) for scheme in ("q4_0", "q8_0", "q4_k", "q6_k")),
    Case("gemm: q4_k, 70 rows", _packed(70, "q4_k")),
    *(Case(f"gemm: {scheme} by integers, one row", _integers(1, scheme)) for scheme in ("q4_1", "q8_0", "q4_k")),
    Case("gemm: q8_0 by integers, 70 rows", _integers(70, "q8_0")),
    Case("gemm: SwiGLU", _swiglu),
    Case("attention: prompt of f32", _attention("f32", 45, 45, mask_kind="causal")),
    Case("attention: prompt of bf16", _attention("bf16", 140, 140, mask_kind="causal")),
    Case("attention: prompt of f16, a window", _attention("f16", 70, 200, mask_kind="sliding_window", window=48)),
    Case("attention: one token", _attention("f32", 1, 300, mask_kind="causal"), {"pos": np.array([250], np.int32)}),
    Case("attention: one token of bf16", _attention("bf16", 1, 300, mask_kind="causal"), _POSITION),
    Case("rows: rope, cache", _module("rope", _rope), _POSITION),
    Case("gather", _module("gather", _gather), {n: np.arange(9, dtype=np.int32)[None] * 6 for n in ("ids", "ids2")}),
    Case("broadcast", _module("broadcast", _broadcast)),
    Case("reduce", _module("reduce", _reduce)),
    Case("scan", _module("scan", lambda g: g.cumsum(g.input("x", [3, 700, 5]), 1))),
    Case("norm", _module("norm", lambda g: g.softmax(g.input("x", [3, 70, 40]), axis=1))),
    Case("move", _module("move", _move)),
    Case("top_k", _module("top_k", _top_k)),
    Case("top_k: sorted rows", _module("sorted", _sorted)),
    Case("group_norm", _module("group_norm", _group_norm)),
    Case("pool", _module("pool", _pool)),
    Case("grouped", _module("grouped", _grouped), {"expert": np.arange(21, dtype=np.int32) % 3}),
    Case("conv2d", _module("conv2d", _conv2d)),
    Case("conv", _conv),
    Case("recurrence", _module("recurrence", _recurrence)),
    Case("block of a decoder, one token", _block, _POSITION),
)

#: Of every check, in order.
COPIES, STEPS = "copies", "steps without the host"
NAMES: tuple[str, ...] = (COPIES, *(case.name for case in CASES), STEPS)

__all__ = ["CASES", "COPIES", "NAMES", "STEPS", "Case", "decode_step"]
