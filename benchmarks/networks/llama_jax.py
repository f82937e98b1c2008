# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small Llama in JAX, and its parameters: what tests, benchmarks and documentation read as StableHLO."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

HEADS, KV_HEADS, HEAD = 4, 2, 8


def norm(x: Any, weight: Any) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight"""
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * weight


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    """x [B, S, heads, head], whose halves are turned by angles."""
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def layer(p: Any, x: Any, cos: Any, sin: Any) -> Any:
    """A layer: attention of grouped heads, and a gated network."""
    batch, length, _ = x.shape
    h = norm(x, p["n1"])
    q = rotated((h @ p["wq"]).reshape(batch, length, HEADS, HEAD), cos, sin)
    k = rotated((h @ p["wk"]).reshape(batch, length, KV_HEADS, HEAD), cos, sin)
    v = (h @ p["wv"]).reshape(batch, length, KV_HEADS, HEAD)
    k, v = (jnp.repeat(own, HEADS // KV_HEADS, axis=2) for own in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * HEAD**-0.5
    mask = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e30), -1)
    own = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, length, HEADS * HEAD)
    x = x + own @ p["wo"]
    h = norm(x, p["n2"])
    return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]


def llama(p: Any, ids: Any) -> Any:
    """Logits [B, S, V] of ids [B, S]."""
    x = p["embed"][ids]
    angles = jnp.arange(ids.shape[1])[:, None] / 1e4 ** (jnp.arange(0, HEAD, 2) / HEAD)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    for own in p["layers"]:
        x = layer(own, x, cos, sin)
    return norm(x, p["norm"]) @ p["embed"].T


def loss(p: Any, ids: Any) -> Any:
    """The mean of -log(probability) of each next id."""
    found = jax.nn.log_softmax(llama(p, ids[:, :-1]), -1)
    return -jnp.mean(jnp.take_along_axis(found, ids[:, 1:, None], -1))


def parameters(vocabulary: int = 48, width: int = 32, inner: int = 64, layers: int = 2, seed: int = 0) -> Any:
    """Random parameters, f32."""
    rng = np.random.default_rng(seed)

    def matrix(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    def one() -> dict[str, np.ndarray]:
        ones = np.ones(width, np.float32)
        return {
            "n1": ones,
            "n2": ones,
            "wq": matrix(width, HEADS * HEAD),
            "wk": matrix(width, KV_HEADS * HEAD),
            "wv": matrix(width, KV_HEADS * HEAD),
            "wo": matrix(HEADS * HEAD, width),
            "gate": matrix(width, inner),
            "up": matrix(width, inner),
            "down": matrix(inner, width),
        }

    return {
        "embed": matrix(vocabulary, width),
        "norm": np.ones(width, np.float32),
        "layers": [one() for _ in range(layers)],
    }
