# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiny models with several streams, as Gemma 3n's, for `tiny_models` and `folders`, and what they compute in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

#: Shares of gates that layers leave out.
_SHARES = (0.9, 0.0, 0.0, 0.3, 0.0)
_LOCAL = (True, False, True, True, False)
SIZES: dict[str, Any] = {
    "block_count": 5,
    "attention.head_count_kv": 2,
    "attention.key_length": 32,
    "attention.value_length": 32,
    "attention.sliding_window": 8,
    "attention.sliding_window_pattern": np.array(_LOCAL),
    "attention.shared_kv_layers": 2,
    "rope.freq_base": 1e6,
    "altup.num_inputs": 3,
    "embedding_length_per_layer_input": 32,
    "activation_sparsity_scale": np.array(
        [NormalDist().inv_cdf(share) if share else -np.inf for share in _SHARES], np.float32
    ),
}
SOURCES = (0, 1, 2, 2, 1)
"""Whose keys and values each layer reads."""
_RANK, _KNOWN = 8, 280
DENSE = ("laurel_r", "altup_predict_coef", "altup_correct_coef")
"""Matrices whose rows are shorter than blocks."""

Matrix = Callable[[str, int, int], Any]


def outside(sizes: Mapping[str, Any], matrix: Matrix, vector: Callable[[int], np.ndarray]) -> dict[str, Any]:
    """Random weights outside of layers."""
    hidden, extra, others = 64, sizes["embedding_length_per_layer_input"], sizes["altup.num_inputs"] - 1
    wide = extra * sizes["block_count"]
    found: dict[str, Any] = {
        "per_layer_token_embd.weight": matrix("per_layer_token_embd", _KNOWN, wide),
        "per_layer_model_proj.weight": matrix("per_layer_model_proj", wide, hidden),
        "per_layer_proj_norm.weight": vector(extra),
    }
    for name in ("altup_proj", "altup_unembd_proj"):
        flat = matrix(name, others * hidden, hidden)
        shape = (others, hidden, hidden)
        found[f"{name}.weight"] = (*flat[:2], shape) if isinstance(flat, tuple) else flat.reshape(shape)
    return found


def layer_tensors(sizes: Mapping[str, Any], matrix: Matrix, vector: Callable[[int], np.ndarray]) -> dict[str, Any]:
    """Those of a layer beside attention and the network, without its number."""
    hidden, extra, count = 64, sizes["embedding_length_per_layer_input"], sizes["altup.num_inputs"]
    matrices = {
        "altup_router": (count, hidden),
        "altup_predict_coef": (count * count, count),
        "altup_correct_coef": (count, count),
        "laurel_l": (_RANK, hidden),
        "laurel_r": (hidden, _RANK),
        "inp_gate": (extra, hidden),
        "proj": (hidden, extra),
    }
    norms = ("altup_router_norm", "altup_correct_scale", "laurel_post_norm", "post_norm")
    vectors = {f"{name}.weight": vector(hidden) for name in norms}
    return {f"{name}.weight": matrix(name, *shape) for name, shape in matrices.items()} | vectors


# Folders ------------------------------------------------------------------------------------------

NAMES = {
    "altup_correct_coef": "altup.correction_coefs",
    "altup_predict_coef": "altup.prediction_coefs",
    "altup_router": "altup.modality_router",
    "altup_router_norm": "altup.router_norm",
    "laurel_l": "laurel.linear_left",
    "laurel_r": "laurel.linear_right",
    "laurel_post_norm": "laurel.post_laurel_norm",
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
}
_OUTSIDE = {
    "per_layer_token_embd.weight": "model.embed_tokens_per_layer.weight",
    "per_layer_model_proj.weight": "model.per_layer_model_projection.weight",
    "per_layer_proj_norm.weight": "model.per_layer_projection_norm.weight",
}
_STACKED = {"altup_proj.weight": "altup_projections", "altup_unembd_proj.weight": "altup_unembed_projections"}


def folder_tensors(name: str, value: np.ndarray) -> dict[str, np.ndarray]:
    """A tensor by the names of a folder; none where it is like those of other families."""
    if name in _OUTSIDE:
        return {_OUTSIDE[name]: value}
    if name in _STACKED:
        return {f"model.{_STACKED[name]}.{i}.weight": each for i, each in enumerate(value)}
    if name.endswith("altup_correct_scale.weight"):
        return {f"model.layers.{name.split('.')[1]}.altup.correct_output_scale": value}
    return {}


def folder_config(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """What `config.json` has else than that of other families."""
    return {
        "layer_types": [f"{'sliding' if local else 'full'}_attention" for local in _LOCAL],
        "num_kv_shared_layers": sizes["attention.shared_kv_layers"],
        "altup_num_inputs": sizes["altup.num_inputs"],
        "hidden_size_per_layer_input": sizes["embedding_length_per_layer_input"],
        "activation_sparsity_pattern": list(_SHARES),
        "intermediate_size": [sizes["feed_forward_length"]] * sizes["block_count"],
        "hidden_activation": "gelu_pytorch_tanh",
    }


# What they compute --------------------------------------------------------------------------------


def states(model: Any, tokens: np.ndarray, e: np.ndarray) -> np.ndarray:
    """What the last norm of a `NumpyDecoder` reads, of the first stream, [tokens, hidden]."""
    count, extra = model._meta("altup.num_inputs"), model._meta("embedding_length_per_layer_input")
    table = model.weight("per_layer_token_embd.weight")
    rows = table[np.where(tokens < len(table), tokens, 0)] * np.sqrt(extra)
    made = (e @ model.weight("per_layer_model_proj.weight").T / np.sqrt(model.hidden)).reshape(len(e), -1, extra)
    own = (model._norm(made, "per_layer_proj_norm.weight") + rows.reshape(made.shape)) / np.sqrt(2)
    streams = [e, *(_as_long(e @ each.T, e) for each in model.weight("altup_proj.weight"))]
    kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for layer in range(model.layers):
        streams = _layer(model, layer, streams, own[:, layer], kept)
    parts = zip(streams[1:], model.weight("altup_unembd_proj.weight"), strict=True)
    return (streams[0] + sum(_as_long(x @ each.T, streams[0]) for x, each in parts)) / count


def _as_long(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    return x * np.sqrt((like**2).mean(1, keepdims=True) / np.maximum((x**2).mean(1, keepdims=True), 1e-5))


def _layer(model: Any, layer: int, streams: Any, own: np.ndarray, kept: Any) -> list[np.ndarray]:
    p, count = f"blk.{layer}.", len(streams)

    def routed(x: np.ndarray) -> np.ndarray:
        return np.tanh(model._norm(x, p + "altup_router_norm.weight") / model.hidden @ weight("altup_router").T)

    def weight(name: str) -> np.ndarray:
        return np.asarray(model.weight(f"{p}{name}.weight"))

    mixed = (routed(streams[0]) @ weight("altup_predict_coef").T).reshape(-1, count, count)
    expected = [x + sum(mixed[:, j, i, None] * streams[i] for i in range(count)) for j, x in enumerate(streams)]
    first = expected[0]
    n = model._norm(first, p + "attn_norm.weight")
    low = n + model._norm(n @ weight("laurel_l").T @ weight("laurel_r").T, p + "laurel_post_norm.weight")
    h = first + model._norm(_attention(model, layer, n, kept), p + "post_attention_norm.weight")
    h = (h + low) / np.sqrt(2)
    read = model._norm(h, p + "ffn_norm.weight")
    gate = read @ weight("ffn_gate").T
    if _SHARES[layer]:
        bound = NormalDist().inv_cdf(_SHARES[layer])
        gate = np.maximum(gate - gate.mean(1, keepdims=True) - bound * gate.std(1, keepdims=True), 0)
    found = (model._act(gate) * (read @ weight("ffn_up").T)) @ weight("ffn_down").T
    y = h + model._norm(found, p + "post_ffw_norm.weight")
    weights = 1 + routed(y) @ weight("altup_correct_coef").T
    found = [x + weights[:, j, None] * (y - first) for j, x in enumerate(expected)]
    gated = model._act(found[0] * weight("altup_correct_scale") @ weight("inp_gate").T) * own
    added = model._norm(gated @ weight("proj").T, p + "post_norm.weight")
    return [found[0], *(x + added for x in found[1:])]


def _attention(model: Any, layer: int, n: np.ndarray, kept: dict[int, tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    p, near = f"blk.{layer}.", bool(_LOCAL[layer])
    q = model._norm(model._split(n @ model.weight(p + "attn_q.weight").T, model.heads), p + "attn_q_norm.weight")
    if SOURCES[layer] == layer:
        k, v = (model._split(n @ model.weight(f"{p}attn_{letter}.weight").T, model.kv_heads) for letter in "kv")
        k = model._rotate(model._norm(k, p + "attn_k_norm.weight"), near)
        kept[layer] = k, v / np.sqrt((v**2).mean(-1, keepdims=True) + model.eps)
    window = model._meta("attention.sliding_window") if near else len(n)
    found = model._attend(model._rotate(q, near), *kept[SOURCES[layer]], window, np.full(model.heads, -np.inf))
    return np.asarray(found @ model.weight(p + "attn_output.weight").T)


__all__ = ["DENSE", "NAMES", "SIZES", "SOURCES"]
__all__ += ["folder_config", "folder_tensors", "layer_tensors", "outside", "states"]
