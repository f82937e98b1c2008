# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small random encoders as folders, and what they compute, in numpy and f64: written without the package's code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*_SPECIAL, "a", "cat", "sat", "on", "the", "mat", "hello", "world", "##s", "##ing", ",", "!", "é"]

BERT = {
    "model_type": "bert",
    "num_hidden_layers": 2,
    "hidden_size": 24,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "vocab_size": 20,
    "max_position_embeddings": 160,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
}
ROBERTA = BERT | {"model_type": "roberta", "type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5}
DISTILBERT = {
    "model_type": "distilbert",
    "n_layers": 2,
    "dim": 24,
    "n_heads": 3,
    "hidden_dim": 40,
    "vocab_size": 20,
    "max_position_embeddings": 160,
    "activation": "gelu",
}
CONFIGS = {"bert": BERT, "roberta": ROBERTA, "distilbert": DISTILBERT}

Arrays = dict[str, np.ndarray]


def tensors(config: Mapping[str, Any], seed: int = 0) -> Arrays:
    """Random tensors under the names that checkpoints of the architecture have."""
    rng = np.random.default_rng(seed)
    distil = config["model_type"] == "distilbert"
    width, inner = (
        (config["dim"], config["hidden_dim"]) if distil else (config["hidden_size"], BERT["intermediate_size"])
    )
    found: Arrays = {}

    def add(name: str, *shape: int) -> None:
        base = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
        found[name] = (base + rng.standard_normal(shape) / 4).astype(np.float32)

    def pair(name: str, *shape: int) -> None:
        add(f"{name}.weight", *shape)
        add(f"{name}.bias", shape[0])

    add("embeddings.word_embeddings.weight", config["vocab_size"], width)
    add("embeddings.position_embeddings.weight", config["max_position_embeddings"], width)
    if not distil:
        add("embeddings.token_type_embeddings.weight", config["type_vocab_size"], width)
    pair("embeddings.LayerNorm", width)
    for layer in range(config["n_layers" if distil else "num_hidden_layers"]):
        prefix, names = _layer(layer, distil)
        for name, shape in zip(
            names,
            [*[(width, width)] * 4, (width,), (inner, width), (width, inner), (width,)],
            strict=True,
        ):
            pair(f"{prefix}.{name}", *shape)
    return found


def _layer(layer: int, distil: bool) -> tuple[str, list[str]]:
    if distil:
        names = "attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm ffn.lin1 ffn.lin2"
        return f"transformer.layer.{layer}", [*names.split(), "output_layer_norm"]
    names = "attention.self.query attention.self.key attention.self.value attention.output.dense"
    names += " attention.output.LayerNorm intermediate.dense output.dense output.LayerNorm"
    return f"encoder.layer.{layer}", names.split()


def write(
    folder: Path,
    config: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    *,
    pooling: str = "mean",
    normalize: bool = True,
) -> Path:
    """Writes the folder of an encoder, with a vocabulary of WordPiece, as sentence-transformers lays it out."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": f"{i}_{kind}"} for i, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {"pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean"}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    save_file(dict(arrays), folder / "model.safetensors")
    return folder


def embed(
    config: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    ids: Sequence[int],
    *,
    pooling: str = "mean",
    normalize: bool = True,
) -> np.ndarray:
    """The vector of one list of ids, f64 [hidden]: no batch, no padding, no mask."""
    w = {name: np.asarray(array, np.float64) for name, array in arrays.items()}
    kind = config["model_type"]
    distil = kind == "distilbert"
    heads = config["n_heads" if distil else "num_attention_heads"]
    eps = 1e-12 if distil else config["layer_norm_eps"]
    first = config["pad_token_id"] + 1 if kind == "roberta" else 0

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    x = w["embeddings.word_embeddings.weight"][list(ids)]
    x = x + w["embeddings.position_embeddings.weight"][first : first + len(ids)]
    if not distil:
        x = x + w["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings.LayerNorm")
    for layer in range(config["n_layers" if distil else "num_hidden_layers"]):
        prefix, names = _layer(layer, distil)
        q, k, v, out, norm1, up, down, norm2 = (f"{prefix}.{name}" for name in names)
        parts = [np.split(linear(x, name), heads, axis=-1) for name in (q, k, v)]
        attended = []
        for q_h, k_h, v_h in zip(*parts, strict=True):
            scores = q_h @ k_h.T / np.sqrt(q_h.shape[-1])
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            attended.append(weights / weights.sum(-1, keepdims=True) @ v_h)
        x = norm(x + linear(np.concatenate(attended, -1), out), norm1)
        inner = linear(x, up)
        inner = inner / 2 * (1 + np.vectorize(erf)(inner / np.sqrt(2)))
        x = norm(x + linear(inner, down), norm2)
    vector = x[0] if pooling == "cls" else x.mean(0)
    return vector / np.linalg.norm(vector) if normalize else vector
