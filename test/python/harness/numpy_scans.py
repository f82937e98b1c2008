# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with selective scans in plain numpy, head by head and token by token, for `numpy_decoder`."""

from __future__ import annotations

from typing import Any

import numpy as np

FAMILIES = ("mamba2", "mamba", "jamba", "granitehybrid", "falcon-h1", "nemotron_h", "nemotron_h_moe")


def layer(model: Any, p: str, number: int, x: np.ndarray, n: np.ndarray) -> np.ndarray:
    """A layer of a `NumpyDecoder`; `n` is its input after the norm."""
    scale = model._meta("residual_scale", 1.0)
    tensors = model.file.tensors
    parts = [
        part(model, p, n)
        for name, part in (("ssm_in.weight", scan), ("attn_q.weight", attention))
        if p + name in tensors
    ]
    if not parts:
        return x + (squared_experts if p + "ffn_gate_inp.weight" in tensors else squared)(model, p, n)
    h = x + scale * sum(parts)
    norm = p + ("ffn_norm" if model.family == "falcon-h1" else "ffn_norm.weight")
    if norm not in tensors:
        return h
    n = h / np.sqrt(np.mean(h * h, axis=-1, keepdims=True) + model.eps) * model.weight(norm)
    if p + "ffn_gate_inp.weight" not in tensors:
        return h + scale * model._feed_forward(p, n)
    if model.family == "jamba":
        return h + model._experts(p, n)
    gate, up, down = (model.weight(f"{p}ffn_{word}_shexp.weight") for word in ("gate", "up", "down"))
    return h + scale * (model._experts(p, n) + (model._act(n @ gate.T) * (n @ up.T)) @ down.T)


def squared(model: Any, p: str, n: np.ndarray, suffix: str = "") -> np.ndarray:
    """A network without a gate, whose function is the square of what is above 0."""
    up, down = (model.weight(f"{p}ffn_{word}{suffix}.weight") for word in ("up", "down"))
    return np.maximum(n @ up.T, 0) ** 2 @ down.T


def squared_experts(model: Any, p: str, n: np.ndarray) -> np.ndarray:
    """Such ones, weighed by sigmoids that add up to a factor, and the one of all tokens."""
    result = squared(model, p, n, "_shexp")
    up, down = (model.weight(f"{p}ffn_{word}_exps.weight") for word in ("up", "down"))
    scores = 1 / (1 + np.exp(-(n @ model.weight(p + "ffn_gate_inp.weight").T)))
    for i, x in enumerate(n):
        chosen = np.argsort(-(scores[i] + model.weight(p + "exp_probs_b.bias")))[: model._meta("expert_used_count")]
        for e in chosen:
            weight = model._meta("expert_weights_scale") * scores[i, e] / scores[i, chosen].sum()
            result[i] += weight * (down[e] @ np.maximum(up[e] @ x, 0) ** 2)
    return result


def attention(model: Any, p: str, n: np.ndarray) -> np.ndarray:
    q, k, v = (n @ model.weight(f"{p}attn_{letter}.weight").T for letter in "qkv")
    q, k, v = model._split(q, model.heads), model._split(k, model.kv_heads), model._split(v, model.kv_heads)
    turns = {"falcon-h1": True, "granitehybrid": model._meta("rope.scaling.finetuned", False)}
    if turns.get(model.family, False):
        q, k = model._rotate(q, False), model._rotate(k, False)
    found = model._attend(q, k, v, len(n), np.full(model.heads, -np.inf))
    return found @ model.weight(p + "attn_output.weight").T


def scan(model: Any, p: str, n: np.ndarray) -> np.ndarray:
    if model.family in ("mamba", "jamba"):
        return channel_scan(model, p, n)
    names = ("inner_size", "time_step_rank", "group_count", "state_size", "conv_kernel")
    inner, heads, groups, numbers, taps = (model._meta(f"ssm.{name}") for name in names)
    made = n @ model.weight(p + "ssm_in.weight").T
    z, mixed, step = np.split(made, [inner, 2 * inner + 2 * groups * numbers], axis=1)
    kernel = model.weight(p + "ssm_conv1d.weight")
    padded = np.concatenate([np.zeros((taps - 1, mixed.shape[1])), mixed])
    seen = sum(padded[j : j + len(n)] * kernel[:, j] for j in range(taps)) + model.weight(p + "ssm_conv1d.bias")
    seen = model._act(seen)
    u = seen[:, :inner].reshape(len(n), heads, -1)
    b, c = seen[:, inner:].reshape(len(n), 2, groups, numbers).transpose(1, 0, 2, 3)
    d = np.logaddexp(0, step + model.weight(p + "ssm_dt.bias"))
    d = np.clip(d, model._meta("ssm.step_least", 0.0), model._meta("ssm.step_most", np.inf))
    rate, skip = model.weight(p + "ssm_a")[:, 0], model.weight(p + "ssm_d")[:, 0]
    y = np.empty_like(u)
    for head in range(heads):
        group, memory = head // (heads // groups), np.zeros((u.shape[2], numbers))
        for t in range(len(n)):
            memory = memory * np.exp(rate[head] * d[t, head]) + d[t, head] * np.outer(u[t, head], b[t, group])
            y[t, head] = memory @ c[t, group] + skip[head] * u[t, head]
    gated = y.reshape(len(n), inner) * model._act(z)
    if p + "ssm_norm.weight" in model.file.tensors:
        rows = gated.reshape(len(n), groups, -1)
        rows = rows / np.sqrt((rows**2).mean(-1, keepdims=True) + model.eps) * model.weight(p + "ssm_norm.weight")
        gated = rows.reshape(len(n), inner)
    return gated @ model.weight(p + "ssm_out.weight").T


def channel_scan(model: Any, p: str, n: np.ndarray) -> np.ndarray:
    """Channel by channel, each with a step of its own."""
    rank, numbers, taps = (model._meta(f"ssm.{name}") for name in ("time_step_rank", "state_size", "conv_kernel"))
    mixed, z = np.split(n @ model.weight(p + "ssm_in.weight").T, 2, axis=1)
    kernel = model.weight(p + "ssm_conv1d.weight")
    padded = np.concatenate([np.zeros((taps - 1, mixed.shape[1])), mixed])
    seen = sum(padded[j : j + len(n)] * kernel[:, j] for j in range(taps)) + model.weight(p + "ssm_conv1d.bias")
    u = model._act(seen)
    made = np.split(u @ model.weight(p + "ssm_x.weight").T, [rank, rank + numbers], axis=1)
    parts = dict(zip(("dt", "b", "c"), made, strict=True))
    if model._meta("ssm.dt_b_c_rms", model.family == "jamba"):
        for word, x in parts.items():
            parts[word] = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + model.eps)
            if model.family == "jamba":
                parts[word] = parts[word] * model.weight(f"{p}ssm_{word}_norm.weight")
    d = np.logaddexp(0, parts["dt"] @ model.weight(p + "ssm_dt.weight").T + model.weight(p + "ssm_dt.bias"))
    rates, skip, y = model.weight(p + "ssm_a"), model.weight(p + "ssm_d"), np.empty_like(u)
    for channel in range(u.shape[1]):
        memory = np.zeros(numbers)
        for t in range(len(n)):
            step = d[t, channel]
            memory = memory * np.exp(rates[channel] * step) + step * u[t, channel] * parts["b"][t]
            y[t, channel] = memory @ parts["c"][t] + skip[channel] * u[t, channel]
    return (y * model._act(z)) @ model.weight(p + "ssm_out.weight").T


__all__ = ["FAMILIES", "layer"]
