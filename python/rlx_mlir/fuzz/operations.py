# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How attention, recurrences and the blocks of HIR are drawn; with `primitives` that is every operation."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.attributes import PythonValue
from rlx_mlir.fuzz import algebra as _algebra  # noqa: F401  (registers how its operations are drawn)
from rlx_mlir.fuzz import backward as _backward  # noqa: F401  (registers how gradients are drawn)
from rlx_mlir.fuzz import control as _control  # noqa: F401  (registers how operations with regions are drawn)
from rlx_mlir.fuzz import images as _images  # noqa: F401  (registers how operations on images are drawn)
from rlx_mlir.fuzz import own as _own  # noqa: F401  (registers how operations of users are drawn)
from rlx_mlir.fuzz import quantize as _quantize  # noqa: F401  (and those on tensors of 8 bits)
from rlx_mlir.fuzz import spectra as _spectra  # noqa: F401  (registers how transforms, scans and splats are drawn)
from rlx_mlir.fuzz.draft import Dim, Draft, Skip, word
from rlx_mlir.fuzz.primitives import (
    GENERATORS,
    activation,
    constant,
    eps,
    generates,
    indices,
    rows_of,
    scaled_product,
)
from rlx_mlir.hir import Value
from rlx_mlir.hir.graph import Word

__all__ = ["GENERATORS"]

GENERATORS["hir.constant"] = lambda draft: constant(draft, "hir.constant")


# -- attention -------------------------------------------------------------------------------------------------------


def heads(draft: Draft) -> tuple[int, int, int]:
    """(query heads, key heads, width of a head)."""
    kv = draft.choose([1, 1, 2, 3])
    return kv * draft.choose([1, 2, 3, 4]), kv, draft.choose([2, 4, 8, 16])


def masking(draft: Draft, shape: tuple[Dim, Dim, Dim, Dim], dtype: str) -> tuple[Value | None, dict[str, object]]:
    """(mask, attributes) for scores [B, H, Sq, Sk]."""
    kind = draft.choose(["none", "causal", "causal", "sliding_window", "custom", "bias"])
    attributes: dict[str, object] = {"mask_kind": Word("mask_kind", kind)}
    if kind == "sliding_window":
        attributes["window"] = draft.choose([1, 2, 3, 17, 1000])
    if kind not in ("custom", "bias"):
        return None, attributes
    full = [1 if i < 3 and draft.chance(0.3) else dim for i, dim in enumerate(shape)]
    if kind == "bias":
        return draft.new(full, dtype, domain=draft.choose(["normal", "bias"]), param=0.1), attributes
    if draft.chance(0.4):
        full = [full[0], full[3]]
    element = draft.choose(["i1", dtype])
    return draft.new(full, element, domain="normal" if element == "i1" else "choice", param=0.1), attributes


def scaling(draft: Draft) -> dict[str, object]:
    """Attributes `scale` and `softcap`."""
    return {"scale": draft.choose([None, None, 0.3]), "softcap": draft.choose([None, None, None, 2.0])}


def position(draft: Draft, batch: Dim, rows: Dim, tokens: Dim) -> Value:
    """Where the first token stands, [B] i32, such that `tokens` rows from there on are in a table of `rows`."""
    return draft.new([batch], "i32", domain="position", scale=(rows, tokens), param=0.0)


def room_for(draft: Draft, tokens: Dim) -> int:
    """Rows of a cache or a table that holds so many tokens, and mostly more."""
    return draft.largest(tokens) + draft.choose([0, 1, 5, 16])


def attended(draft: Draft) -> tuple[dict[str, Value | None], dict[str, object]]:
    """(operands, attributes) of attention."""
    h, kv, d = heads(draft)
    dtype, layout = draft.float_type(), draft.choose(["packed", "packed", "bhsd", "bshd"])
    batch, queries = draft.dim(most=3), draft.dim(most=33)
    keys = queries if draft.chance(0.4) else draft.dim(most=33)
    use_pos = draft.chance(0.3)
    if use_pos:
        keys = room_for(draft, queries)
    flat = layout == "packed" and draft.chance(0.2)

    def operand(length: Dim, count: int) -> Value:
        shapes: dict[str, list[Dim]] = {
            "packed": [length, count * d] if flat else [batch, length, count * d],
            "bhsd": [batch, count, length, d],
            "bshd": [batch, length, count, d],
        }
        return draft.like(shapes[layout], dtype, param=0.05)

    if flat:
        batch = 1
    q, k = operand(queries, h), operand(keys, kv)
    v = k if draft.chance(0.1) else operand(keys, kv)
    mask, attributes = masking(draft, (batch, h, queries, keys), dtype)
    operands: dict[str, Value | None] = {"q": q, "k": k, "v": v, "mask": mask}
    operands["pos"] = position(draft, batch, keys, queries) if use_pos else None
    attributes |= scaling(draft)
    attributes |= {"num_heads": h, "num_kv_heads": kv if kv != h or draft.chance(0.5) else None, "head_dim": d}
    attributes["layout"] = Word("head_layout", layout) if layout != "packed" else None
    return operands, attributes


def sinks_of(draft: Draft, heads: object, dtype: str) -> Value | None:
    """Sinks of so many heads, at times."""
    assert isinstance(heads, int)
    return draft.new([heads], draft.choose(["f32", dtype]), param=0.5) if draft.chance(0.3) else None


@generates("mir.attention", sums=True)
def attention(draft: Draft) -> None:
    operands, attributes = attended(draft)
    q = operands["q"]
    assert q is not None
    operands["sinks"] = sinks_of(draft, attributes["num_heads"], word(q))
    draft.emit("mir.attention", operands, attributes)


@generates("mir.attention_backward", sums=True)
def attention_backward(draft: Draft) -> None:
    operands, attributes = attended(draft)
    q = operands["q"]
    assert q is not None
    draft.emit("mir.attention_backward", {**operands, "dy": draft.like(q.shape, word(q), param=0.05)}, attributes)


@generates("hir.attention", sums=True)
def cached_attention(draft: Draft) -> None:
    h, kv, d = heads(draft)
    dtype, batch, queries = draft.float_type(), draft.dim(most=3), draft.dim(most=33)
    caches = draft.chance(0.5)
    keys = queries if caches or draft.chance(0.4) else draft.dim(most=33)
    rows = room_for(draft, queries) if caches else keys
    q = draft.like([batch, queries, h * d], dtype, param=0.05)
    k, v = (draft.like([batch, keys, kv * d], dtype, param=0.05) for _ in range(2))
    mask, attributes = masking(draft, (batch, h, queries, rows), dtype)
    operands: dict[str, object] = {"q": q, "k": k, "v": v, "mask": mask}
    if caches:
        operands |= cache_pair(draft, batch, rows, kv * d, dtype)
        operands["pos"] = position(draft, batch, rows, queries)
    operands["sinks"] = sinks_of(draft, h, dtype)
    attributes |= {"num_heads": h, "num_kv_heads": kv if kv != h or draft.chance(0.5) else None, "head_dim": d}
    draft.emit("hir.attention", operands, attributes | scaling(draft))


def cache_pair(draft: Draft, batch: Dim, rows: Dim, width: int, dtype: str) -> dict[str, Value]:
    """Two caches; at times they are one tensor, or computed ones."""
    first = draft.like([batch, rows, width], dtype, reuse=0.2, param=0.0)
    second = first if draft.chance(0.1) else draft.like([batch, rows, width], dtype, reuse=0.2, param=0.0)
    return {"k_cache": first, "v_cache": second}


@generates("mir.cache_update")
def cache_update(draft: Draft) -> None:
    dtype, batch, tokens, width = draft.float_type(), draft.dim(most=3), draft.dim(most=17), draft.dim(most=33)
    rows = room_for(draft, tokens)
    operands = {
        "cache": draft.like([batch, rows, width], dtype, param=0.1),
        "new": draft.like([batch, tokens, width], dtype, param=0.1),
        "pos": position(draft, batch, rows, tokens),
    }
    draft.emit("mir.cache_update", operands)


@generates("mir.sample")
def sample(draft: Draft) -> None:
    batch, count, places = draft.dim(most=3), draft.size(1, 33), draft.dim(1, 33)
    operands = {
        "values": draft.like([batch, count], "f32", param=0.0),
        "indices": draft.like([batch, count], "i32", param=0.0),
        "controls": draft.like([batch, 3], "f32", reuse=0.0, domain="choice", scale=1.0),
        "draws": draft.like([batch, places], "f32", reuse=0.0, domain="choice"),
        "chosen": draft.like([batch, places], "i32", param=0.1),
        "pos": draft.like([batch], "i32", param=0.1),
    }
    draft.emit("mir.sample", operands)


def tables(draft: Draft, rows: int, head_dim: int, dtype: str) -> dict[str, Value]:
    """Cosines and sines; any numbers will do."""
    element = draft.choose(["f32", dtype])
    cos = draft.like([rows, head_dim // 2], element, param=0.9)
    return {"cos": cos, "sin": draft.like([rows, head_dim // 2], element, param=0.9)}


@generates("mir.rope", "hir.rope")
def rope(draft: Draft, name: str) -> None:
    d, count = draft.choose([2, 4, 6, 8, 16]), draft.choose([1, 2, 3])
    dtype, tokens = draft.float_type(), draft.dim(most=33)
    rows = max(room_for(draft, tokens), 1)
    lead = [draft.dim(most=3)] if name == "hir.rope" or draft.chance(0.8) else []
    x = draft.like([*lead, tokens, count * d], dtype)
    operands = {"x": x, **tables(draft, rows, d, dtype)}
    if draft.chance(0.5):
        operands["pos"] = position(draft, lead[0] if lead else 1, rows, tokens)
    rotated = draft.choose([None, d, 2 * draft.integer(1, d // 2)])
    style = Word("rope_style", draft.choose(["half", "interleaved"]))
    draft.emit(name, operands, {"head_dim": d, "n_rot": rotated, "style": style})


@generates("mir.gated_delta_net", "hir.gated_delta_net", sums=True)
def gated_delta_net(draft: Draft, name: str) -> None:
    dtype, batch, tokens = draft.float_type(), draft.dim(most=3), draft.dim(most=9)
    count, n = draft.dim(0, 3, dynamic=0.1), draft.dim(0, 17, dynamic=0.1)

    def finite(shape: Sequence[Dim], kind: str, **options: PythonValue) -> Value:
        """Values without infinities, of which forms of the recurrence make infinities or NaN, each in its order."""
        return draft.emit("mir.tanh", {"x": draft.like(shape, kind, **options)})[0]

    q, k, v = (finite([batch, tokens, count, n], dtype, scale=0.5, param=0.05) for _ in range(3))
    g, beta = (finite([batch, tokens, count], dtype, scale=0.5, param=0.05) for _ in range(2))
    (magnitude,) = draft.emit("mir.abs", {"x": g})
    (g,) = draft.emit("mir.neg", {"x": magnitude})
    state_type = "f64" if dtype == "f64" else "f32"
    state = draft.optional(lambda: finite([batch, count, n, n], state_type, param=0.1), 0.6)
    draft.emit(name, {"q": q, "k": k, "v": v, "g": g, "beta": beta, "state": state})


@generates("hir.depthwise_conv1d_causal", sums=True)
def depthwise_conv1d_causal(draft: Draft) -> None:
    dtype, batch, taps, channels = draft.float_type(), draft.dim(most=3), draft.choose([1, 2, 4]), draft.size(1, 33)
    operands = {
        "input": draft.like([batch, draft.dim(most=17), channels], dtype, param=0.05),
        "weight": draft.like([channels, 1, 1, taps], dtype, param=0.9),
        "left_pad": draft.like([batch, taps - 1, channels], dtype, param=0.1),
    }
    draft.emit("hir.depthwise_conv1d_causal", operands)


# -- blocks with weights ---------------------------------------------------------------------------------------------


def block_rows(draft: Draft) -> Value:
    """Activations of a block: at least two dimensions, columns that packed weights can have at times."""
    return rows_of(draft, draft.columns(256), least_rank=2) if draft.chance(0.4) else draft.floating(2, 3)


class Weights:
    """The weights of one block, which share `transpose_weight`; it stands only where one of them is dense."""

    def __init__(self, draft: Draft, dtype: str) -> None:
        self._draft, self._dtype = draft, dtype
        self._transposed = draft.chance(0.5)
        self._all_packed = True

    def make(self, inputs: Dim, outputs: Dim) -> Value:
        """A weight."""
        made = self._draft.weight(inputs, outputs, self._dtype, self._transposed)
        self._all_packed &= made.packed is not None
        return made

    @property
    def attributes(self) -> dict[str, object]:
        """The attribute that all of them have."""
        return {"transpose_weight": self._transposed and not self._all_packed}


@generates("hir.linear", "hir.linear_fused", sums=True)
def linear(draft: Draft, name: str) -> None:
    x, n = block_rows(draft), draft.dim()
    weights = Weights(draft, word(x))
    operands = {"x": x, "weight": weights.make(x.shape[-1], n)}
    if name == "hir.linear_fused" or draft.chance(0.5):
        operands["bias"] = draft.vector(n, word(x))
    draft.emit(name, operands, {"activation": activation(draft), **weights.attributes})


@generates("hir.dequant_matmul", sums=True)
def block_dequant_matmul(draft: Draft) -> None:
    k = draft.columns()
    operands = {"x": rows_of(draft, k, least_rank=2), "weight": draft.packed(draft.size(1, 65), k)}
    draft.emit("hir.dequant_matmul", operands)


@generates("hir.dequant_matmul_scaled", sums=True)
def block_dequant_matmul_scaled(draft: Draft) -> None:
    scaled_product(draft, "hir.dequant_matmul_scaled", 2)


@generates("hir.shared_linear_pair", sums=True)
def shared_linear_pair(draft: Draft) -> None:
    x = block_rows(draft)
    weights = Weights(draft, word(x))
    first, second = (weights.make(x.shape[-1], draft.dim()) for _ in range(2))
    draft.emit("hir.shared_linear_pair", {"x": x, "w_first": first, "w_second": second}, weights.attributes)


def gated(draft: Draft, weights: Weights, inputs: Dim, outputs: Dim) -> dict[str, Value]:
    """The weights of a gated feed-forward network."""
    width = draft.columns(256) if draft.chance(0.4) else draft.dim(most=65)
    gate, up = weights.make(inputs, width), weights.make(inputs, width)
    return {"gate_w": gate, "up_w": up, "down_w": weights.make(width, outputs)}


@generates("hir.swiglu", sums=True)
def swiglu(draft: Draft) -> None:
    x = block_rows(draft)
    weights = Weights(draft, word(x))
    draft.emit("hir.swiglu", {"x": x, **gated(draft, weights, x.shape[-1], draft.dim())}, weights.attributes)


@generates("hir.rms_norm", "hir.residual_rms_norm", sums=True)
def block_norm(draft: Draft, name: str) -> None:
    x = draft.floating(1)
    dtype, size = word(x), x.shape[-1]
    operands = {"x": x, "gamma": draft.vector(size, dtype), "beta": draft.optional(lambda: draft.vector(size, dtype))}
    if name == "hir.residual_rms_norm":
        operands["residual"] = draft.like(x.shape, dtype)
    draft.emit(name, operands, {"eps": eps(draft)})


@generates("hir.llama_decoder_block", sums=True)
def llama_decoder_block(draft: Draft) -> None:
    h, kv, d = heads(draft)
    dtype, batch, tokens = draft.float_type(), draft.dim(most=2), draft.dim(most=17)
    width = draft.columns(64) if draft.chance(0.5) else draft.size(1, 33)
    caches, weights = draft.chance(0.5), Weights(draft, dtype)
    rows = room_for(draft, tokens)
    operands: dict[str, object] = {"x": draft.like([batch, tokens, width], dtype, param=0.05)}
    operands |= {
        "q_w": weights.make(width, h * d),
        "k_w": weights.make(width, kv * d),
        "v_w": weights.make(width, kv * d),
    }
    operands |= {"o_w": weights.make(h * d, width), **gated(draft, weights, width, width)}
    operands |= {name: draft.vector(width, dtype) for name in ("ln1_gamma", "ln2_gamma")}
    operands |= {name: draft.optional(lambda: draft.vector(width, dtype), 0.2) for name in ("ln1_beta", "ln2_beta")}
    operands |= tables(draft, max(rows, 1), d, dtype)
    if caches:
        operands |= cache_pair(draft, batch, rows, kv * d, dtype)
    if caches or draft.chance(0.2):
        operands["pos"] = position(draft, batch, rows, tokens)
    operands["mask"], attributes = masking(draft, (batch, h, tokens, rows if caches else tokens), dtype)
    attributes |= {"num_heads": h, "num_kv_heads": kv, "head_dim": d, "eps": eps(draft), **weights.attributes}
    attributes["style"] = Word("rope_style", draft.choose(["half", "interleaved"]))
    draft.emit("hir.llama_decoder_block", operands, attributes)


@generates("hir.qwen35_mtp_head", sums=True)
def qwen35_mtp_head(draft: Draft) -> None:
    h, kv, d = heads(draft)
    dtype, batch, tokens = draft.float_type(), draft.dim(most=2), draft.dim(1, 9)
    width = draft.columns(64) if draft.chance(0.5) else draft.size(1, 33)
    vocabulary, weights = draft.size(1, 33), Weights(draft, dtype)
    if draft.smallest(tokens) < 1:
        raise Skip
    embed_packed = draft.chance(0.4) and width % 32 == 0
    operands: dict[str, object] = {
        "h_pre_norm": draft.like([batch, tokens, width], dtype, param=0.05),
        "input_ids": indices(draft, [batch, tokens], vocabulary),
        "last_token_idx": indices(draft, [batch], tokens),
        "embed_w": draft.packed(vocabulary, width)
        if embed_packed
        else draft.new([vocabulary, width], dtype, param=0.9),
        "eh_w": weights.make(2 * width, width),
        "q_gate_w": weights.make(width, 2 * h * d),
        "k_w": weights.make(width, kv * d),
        "v_w": weights.make(width, kv * d),
        "o_w": weights.make(h * d, width),
        **gated(draft, weights, width, width),
        "lm_head_w": weights.make(width, draft.size(1, 33)),
        **tables(draft, max(room_for(draft, tokens), 1), d, dtype),
    }
    for name, size in {"hnorm": width, "enorm": width, "attn_norm": width, "post_norm": width, "head_norm": width,
                       "q_norm": d, "k_norm": d}.items():  # fmt: skip
        operands[f"{name}_w"] = draft.vector(size, dtype)
        operands[f"{name}_b"] = draft.optional(lambda size=size: draft.vector(size, dtype), 0.2)  # type: ignore[misc]
    attributes: dict[str, object] = {"num_heads": h, "num_kv_heads": kv, "head_dim": d, "eps": eps(draft)}
    attributes |= {"n_rot": draft.choose([None, d]), "style": Word("rope_style", draft.choose(["half", "interleaved"]))}
    draft.emit("hir.qwen35_mtp_head", operands, attributes | weights.attributes)
