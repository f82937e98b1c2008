# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is differentiated: products, norms, attention, what is fused, losses and recurrences."""

from __future__ import annotations

import numpy as np
from derivatives import EXACT, SINGLE, Case, given, integers, normal, positive, weight

HEADS = {"num_heads": 2, "head_dim": 4}
SHARED = {**HEADS, "num_kv_heads": 1}

PRODUCTS = {
    "matmul": Case(lambda b, x, w: b.matmul(x, w), {"x": normal(2, 3), "w": normal(3, 4)}),
    "matmul transposed": Case(
        lambda b, x, w: b.matmul(x, w, transpose_rhs=True), {"x": normal(2, 3), "w": normal(4, 3)}
    ),
    "matmul of batches by one": Case(
        lambda b, x, w: b.matmul(x, w), {"x": normal(2, 3, 3).sized("b", "s", 3), "w": normal(3, 2)}
    ),
    "matmul of batches": Case(
        lambda b, x, w: b.matmul(x, w, transpose_rhs=True),
        {"x": normal(1, 2, 2, 3).sized(1, "h", 2, 3), "w": normal(2, 1, 4, 3).sized("b", 1, 4, 3)},
    ),
    "matmul of one by batches": Case(lambda b, x, w: b.matmul(x, w), {"x": normal(2, 3), "w": normal(2, 3, 2)}),
    "matmul of nothing": Case(lambda b, x, w: b.matmul(x, w), {"x": normal(2, 0), "w": normal(0, 3)}),
    "matmul with a packed weight": Case(
        lambda b, x, w: b.matmul(x, w), {"x": normal(2, 32, dtype="f32"), "w": weight(3, 32)}, tolerance=SINGLE
    ),
    "dot_general": Case(
        lambda b, x, w: b.dot_general(
            x, w, lhs_contracting=[1, 3], rhs_contracting=[1, 0], lhs_batch=[0], rhs_batch=[2]
        ),
        {"x": normal(2, 3, 2, 4), "w": normal(4, 3, 2, 2)},
    ),
    "dot_general outer": Case(lambda b, x, w: b.dot_general(x, w), {"x": normal(2, 3), "w": normal(2)}),
    "dot_general of symbols": Case(
        lambda b, x, w: b.dot_general(x, w, lhs_contracting=[2, 1], rhs_contracting=[0, 1]),
        {"x": normal(2, 3, 4).sized("b", "n", 4), "w": normal(4, 3, 2).sized(4, "n", 2)},
    ),
    "dequant_matmul": Case(lambda b, x, w: b.dequant_matmul(x, w), {"x": normal(2, 2, 32), "w": weight(3, 32, "q4_0")}),
    "dequant_matmul of a vector": Case(
        lambda b, x, w: b.dequant_matmul(x, w), {"x": normal(32), "w": weight(3, 32, "q4_0")}
    ),
    "lora_matmul": Case(
        lambda b, x, w, a, c: b.lora_matmul(x, w, a, c, scale=0.5),
        {"x": normal(2, 3), "w": normal(3, 4), "a": normal(3, 2), "c": normal(2, 4)},
    ),
    "fused_matmul_bias_act": Case(
        lambda b, x, w, c: b.fused_matmul_bias_act(x, w, c, activation="gelu"),
        {"x": normal(2, 3), "w": normal(3, 4), "c": normal(4)},
    ),
    "fused_swiglu": Case(lambda b, x: b.fused_swiglu(x, gate_first=True), {"x": normal(2, 6)}),
    "grouped_matmul": Case(
        lambda b, x, w, e: b.grouped_matmul(x, w, e),
        {"x": normal(4, 3).sized("n", 3), "w": normal(3, 3, 2), "e": given([2, 0, 9, -1], "i32").sized("n")},
    ),
    "dequant_grouped_matmul": Case(
        lambda b, x, w, e: b.dequant_grouped_matmul(x, w, e, experts=2),
        {"x": normal(3, 32).sized("n", 32), "w": weight(6, 32), "e": given([1, 0, 7], "i32").sized("n")},
    ),
    "dequant_moe_weights": Case(
        lambda b, x, w: b.mul(b.dequant_moe_weights(w, experts=2), x),
        {"x": normal(2, 1, 3, dtype="f32"), "w": weight(6, 32)},
        tolerance=SINGLE,
    ),
    "dense_solve": Case(
        lambda b, a, x: b.dense_solve(b.add(a, 4.0 * np.eye(3)), x), {"a": normal(3, 3), "x": normal(3)}
    ),
    "dense_solve of several": Case(
        lambda b, a, x: b.dense_solve(b.add(a, 4.0 * np.eye(3)), x),
        {"a": normal(3, 3), "x": normal(3, 2).sized(3, "k")},
    ),
    "batched_dense_solve": Case(
        lambda b, a, x: b.batched_dense_solve(b.add(a, 4.0 * np.eye(3)), x),
        {"a": normal(2, 3, 3).sized("n", 3, 3), "x": normal(2, 3).sized("n", 3)},
    ),
    "batched_dense_solve of several": Case(
        lambda b, a, x: b.batched_dense_solve(b.add(a, 4.0 * np.eye(3)), x),
        {"a": normal(2, 3, 3), "x": normal(2, 3, 2)},
    ),
}


def _scaled(scheme, shape, scale, *, rows=(2,), code_type="i8", wrt="x", **more):
    """A product with a weight of five inputs and three outputs whose scales are a tensor."""
    inputs = {"x": normal(*rows, 5), "w": integers(*shape, least=-120, below=120, dtype=code_type), "s": scale, **more}

    def build(b, x, w, s, *rest):
        if scheme == "nvfp4":
            return b.dequant_matmul_nvfp4(x, w, s, *rest)
        return b.dequant_matmul(x, w, s, *rest, scheme=scheme)

    return Case(build, inputs, wrt=[*wrt], tolerance=EXACT if wrt == "x" else SINGLE)


SCALES = normal(3, 3, dtype="f32")
SCALED = {
    f"dequant_matmul_scaled {scheme}": case
    for scheme, case in {
        "int8": _scaled("int8/2", (5, 3), SCALES),
        "int8a": _scaled("int8a/2", (5, 3), SCALES, z=SCALES),
        "int4": _scaled("int4/2", (8,), SCALES),
        "fp8e4m3": _scaled("fp8e4m3", (5, 3), normal(3, dtype="f32")),
        "fp8e5m2": _scaled("fp8e5m2", (5, 3), given([1e-3, 1e-4, -1e-3], "f32")),
        "int8 by scales": _scaled("int8/2", (5, 3), SCALES, wrt="xs"),
        "int8a by zeros": _scaled("int8a/2", (5, 3), SCALES, z=SCALES, wrt="zs"),
        "int4 of one row": _scaled("int4/2", (8,), SCALES, rows=(), wrt="s"),
        "fp8e5m2 of two": _scaled("fp8e5m2", (5, 3), given([1e-3, 1e-4, -1e-3], "f32"), rows=(2, 2), wrt="xs"),
        "nvfp4 by one for all": _scaled(
            "nvfp4", (8,), integers(1, 3, least=30, below=60, dtype="i8"), g=positive(1, dtype="f32"), wrt="xg"
        ),
        "nvfp4": _scaled("nvfp4", (8,), integers(1, 3, least=30, below=60, dtype="i8"), g=positive(1, dtype="f32")),
    }.items()
}
SCALED |= {
    "scaled_matmul": Case(
        lambda b, x, w, s, t: b.scaled_matmul(b.cast(x, "f8E4M3FN"), b.cast(w, "f8E5M2"), s, t),
        {
            "x": normal(2, 3, dtype="f32"),
            "w": normal(3, 4, dtype="f32"),
            "s": normal(2, dtype="f32"),
            "t": normal(1, dtype="f32"),
        },
        wrt=["s", "t"],
        tolerance=SINGLE,
    ),
    "scaled_matmul of batches": Case(
        lambda b, x, w, s, t: b.scaled_matmul(b.cast(x, "f8E4M3FN"), b.cast(w, "f8E5M2"), s, t, transpose_rhs=True),
        {
            "x": normal(2, 2, 3, dtype="f32"),
            "w": normal(4, 3, dtype="f32"),
            "s": normal(2, 2, dtype="f32"),
            "t": normal(4, dtype="f32"),
        },
        wrt=["s", "t"],
        tolerance=SINGLE,
    ),
}

NORMS = {
    **{
        f"{kind} {axis} {'with' if beta else 'without'} beta": Case(
            lambda b, x, g, *c, kind=kind, axis=axis: getattr(b, kind)(x, g, *c, axis=axis, eps=0.25),
            {"x": normal(3, 4).sized("n", 4) if axis else normal(4, 3).sized(4, "n"), "g": normal(4)}
            | ({"c": normal(4)} if beta else {}),
        )
        for kind in ("layer_norm", "rms_norm")
        for axis, beta in ((-1, True), (0, False))
    },
    **{
        f"{kind}_norm_backward_input": Case(
            lambda b, x, g, dy, kind=kind: getattr(b, f"{kind}_norm_backward_input")(x, g, dy, eps=0.25),
            {"x": normal(2, 3), "g": normal(3), "dy": normal(2, 3)},
        )
        for kind in ("layer", "rms")
    },
    **{
        f"{kind}_norm_backward_gamma": Case(
            lambda b, x, dy, kind=kind: getattr(b, f"{kind}_norm_backward_gamma")(x, dy, eps=0.25),
            {"x": normal(2, 3), "dy": normal(2, 3)},
        )
        for kind in ("layer", "rms")
    },
    "fused_residual_layer_norm": Case(
        lambda b, x, r, g, c, d: b.fused_residual_layer_norm(x, r, g, c, bias=d, eps=0.25),
        {"x": normal(2, 3), "r": normal(2, 3), "g": normal(3), "c": normal(3), "d": normal(3)},
    ),
    "fused_residual_rms_norm": Case(
        lambda b, x, r, g: b.fused_residual_rms_norm(x, r, g, eps=0.25),
        {"x": normal(2, 3), "r": normal(2, 3), "g": normal(3)},
    ),
}


def _attention(
    queries=3, keys=3, heads=SHARED, mask=None, pos=False, layout="packed", words=True, sinks=None, **options
):
    """Attention of two sequences; of symbols where `words`."""
    count, kv = heads["num_heads"], heads.get("num_kv_heads", heads["num_heads"])
    same = "s" if queries == keys else "t"
    shapes = {
        "packed": lambda length, word, own: normal(2, length, own * 4).sized("b", word, own * 4),
        "bhsd": lambda length, word, own: normal(2, own, length, 4).sized("b", own, word, 4),
        "bshd": lambda length, word, own: normal(2, length, own, 4).sized("b", word, own, 4),
    }
    make = shapes[layout]
    inputs = {"q": make(queries, "s", count), "k": make(keys, same, kv), "v": make(keys, same, kv)}
    if mask is not None:
        inputs["mask"] = mask
    if pos:
        inputs["pos"] = given([1, 0], "i32").sized("b")
    if sinks is not None:
        inputs["sinks"] = sinks

    def build(b, q, k, v, *more):
        given = dict(zip([name for name in ("mask", "pos", "sinks") if name in inputs], more, strict=True))
        if layout != "packed":
            given["layout"] = layout
        return b.attention(q, k, v, given.pop("mask", None), **heads, **given, **options)

    return Case(build, inputs)


ATTENTION = {
    "attention": _attention(heads=HEADS),
    "attention causal": _attention(mask_kind="causal"),
    "attention causal of more keys": _attention(2, 4, mask_kind="causal", layout="bhsd"),
    "attention of a window": _attention(4, 4, mask_kind="sliding_window", window=2, layout="bshd"),
    "attention with softcap": _attention(mask_kind="causal", softcap=2.0, scale=0.3),
    "attention with a mask": _attention(
        mask_kind="custom", mask=given([[True, False, True], [True, True, False]], "i1").sized("b", "s")
    ),
    "attention of nothing seen": _attention(
        mask_kind="custom", mask=given([[True, False, True], [False, False, False]], "i1").sized("b", "s")
    ),
    "attention with a bias": _attention(mask_kind="bias", mask=normal(1, 2, 1, 3).sized(1, 2, 1, "s"), softcap=2.0),
    "attention with positions": _attention(2, 4, mask_kind="causal", pos=True),
    "attention with sinks": _attention(2, 4, mask_kind="causal", pos=True, sinks=normal(2)),
    "attention with sinks and a bias": _attention(
        mask_kind="bias", mask=normal(1, 2, 1, 3).sized(1, 2, 1, "s"), softcap=2.0, sinks=normal(2)
    ),
    "attention_backward": Case(
        lambda b, q, k, v, dy: b.attention_backward_all(q, k, v, dy, mask_kind="causal", softcap=2.0, **SHARED),
        {"q": normal(1, 2, 8), "k": normal(1, 2, 4), "v": normal(1, 2, 4), "dy": normal(1, 2, 8)},
    ),
    **{
        f"rope {style}{' with positions' if pos else ''}": Case(
            lambda b, x, c, s, *p, style=style: b.rope(
                x, c, s, head_dim=8, style=style, n_rot=4, **({"pos": p[0]} if p else {})
            ),
            {"x": normal(2, 2, 16).sized("b", "s", 16), "c": normal(4, 4), "s": normal(4, 4)}
            | ({"p": given([1, 2], "i32").sized("b")} if pos else {}),
        )
        for style, pos in (("half", False), ("interleaved", True))
    },
    "rope of tables of f32": Case(
        lambda b, x, c, s: b.rope(x, c, s, head_dim=4, style="half"),
        {"x": normal(2, 8), "c": normal(3, 2, dtype="f32"), "s": normal(3, 2, dtype="f32")},
        tolerance=SINGLE,
    ),
    "axial_rope2d": Case(
        lambda b, x: b.axial_rope2d(x, end_x=2, end_y=2, head_dim=4), {"x": normal(2, 4, 8).sized("b", 4, 8)}
    ),
    "axial_rope2d of symbols": Case(
        lambda b, x: b.axial_rope2d(x, end_x=2, end_y=2, head_dim=4), {"x": normal(2, 4, 8).sized("b", "s", 8)}
    ),
    "fused_attention_block": Case(
        lambda b, x, w, o, mask: b.fused_attention_block(x, w, o, mask, **HEADS),
        {"x": normal(1, 2, 8), "w": normal(8, 24), "o": normal(8, 8), "mask": given([[True, True]], "i1")},
    ),
    "fused_transformer_layer": Case(
        lambda b, x, w, o, g, u, d, mask: b.fused_transformer_layer(x, w, o, g, u, d, g, mask, ln1_b=g, **HEADS),
        {
            "x": normal(1, 2, 8),
            "w": normal(8, 24),
            "o": normal(8, 8),
            "g": normal(8),
            "u": normal(8, 6),
            "d": normal(6, 8),
            "mask": given([[True, True]], "i1"),
        },
        orders=1,
    ),
}

RECURRENCES = {
    "selective_scan": Case(
        lambda b, x, d, a, i, o, h: b.selective_scan(x, d, a, i, o, h),
        {
            "x": normal(2, 3, 2).sized("n", "s", 2),
            "d": positive(2, 3, 2).sized("n", "s", 2),
            "a": normal(2, 2, scale=0.5),
            "i": normal(2, 3, 2).sized("n", "s", 2),
            "o": normal(2, 3, 2).sized("n", "s", 2),
            "h": normal(2, 2, 2).sized("n", 2, 2),
        },
    ),
    "selective_scan from zeros": Case(
        lambda b, x, d, a, i, o: b.selective_scan(x, d, a, i, o)[0],
        {
            "x": normal(1, 3, 2),
            "d": positive(1, 3, 2),
            "a": normal(2, 2, scale=0.5),
            "i": normal(1, 3, 2),
            "o": normal(1, 3, 2),
        },
    ),
    "gated_delta_net": Case(
        lambda b, q, k, v, g, c, s: b.gated_delta_net(q, k, v, g, c, s),
        {
            **{name: normal(1, 3, 2, 2, scale=0.7).sized("n", "s", 2, 2) for name in "qkv"},
            "g": normal(1, 3, 2, scale=0.3).sized("n", "s", 2),
            "c": positive(1, 3, 2).sized("n", "s", 2),
            "s": normal(1, 2, 2, 2).sized("n", 2, 2, 2),
        },
    ),
    "gated_delta_net from zeros": Case(
        lambda b, q, k, v, g, c: b.gated_delta_net(q, k, v, g, c, None)[0],
        {
            **{name: normal(1, 3, 2, 2, scale=0.7) for name in "qkv"},
            "g": normal(1, 3, 2, scale=0.3),
            "c": positive(1, 3, 2),
        },
    ),
}

BLOCKS = PRODUCTS | SCALED | NORMS | ATTENTION | RECURRENCES
