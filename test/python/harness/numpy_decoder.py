# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of the LLaMA, Qwen and Gemma families in plain numpy, in f64 unless told otherwise: what others must equal.

Shares no code with the package but the reader of the file. Takes a whole sequence at once, without a cache, and
decodes a weight when it is used, so that large files fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy_scans
import stream_models

from rlx_mlir.frontends.gguf import GGUFFile

_INTERLEAVED = (
    "llama",
    "smollm3",
    "granite",
    "granitemoe",
    "deepseek2",
    "glm4",
    "ernie4_5",
    "minicpm",
    "cohere2",
    "command-r",
    "granitehybrid",
)
_NORMED_HEADS = ("qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "gemma3", "exaone4", "lfm2")
_BIASED = ("qwen2", "qwen2moe", "qwen2vl", "gpt-oss", "seed_oss", "glm4", "stablelm", "starcoder2", "phi2", "phimoe")


class NumpyDecoder:
    """The model of a file."""

    def __init__(self, file: GGUFFile, dtype: type[np.floating] = np.float64, context: int = 64) -> None:
        self.file = file
        self.family = file.architecture
        self.predicts = self._meta("nextn_predict_layers", 0)
        self.layers = self._meta("block_count") - self.predicts
        self.hidden = self._meta("embedding_length")
        self.heads = self._meta("attention.head_count") or 1
        self.kv_heads = np.max(self._meta("attention.head_count_kv", self.heads))
        self.head_dim = self._meta("attention.key_length", self.hidden // self.heads)
        self.rotated = self._meta("rope.dimension_count", self.head_dim)
        self.base = self._meta("rope.freq_base", 10000.0)
        self.kind = self._meta("rope.scaling.type", "linear")
        self.stretch = 1.0 if self.kind == "none" else self._meta("rope.scaling.factor", 1.0)
        self.layered = self.family in ("cohere2", "command-r", "stablelm", "starcoder2", "phi2", "phimoe")
        rms = not self.layered or self.family == "phimoe"
        self.eps = self._meta(f"attention.layer_norm{'_rms' if rms else ''}_epsilon")
        self.interleaved = self.family in _INTERLEAVED
        self.gemma = self.family.startswith("gemma")
        self.dtype = dtype
        self.context = context

    def _meta(self, key: str, default: object = None) -> object:
        return self.file.metadata.get(f"{self.family}.{key}", default)

    def weight(self, name: str) -> np.ndarray:
        return self.file.dequantize(name).astype(self.dtype, copy=False)

    def logits(self, tokens: Sequence[int], last: int | None = None) -> np.ndarray:
        """Logits after each token, or after the ``last`` ones, [.., vocab]."""
        return self._head(self.states(tokens)[0 if last is None else -last :])

    def states(self, tokens: Sequence[int]) -> np.ndarray:
        """What the head reads of each token, [tokens, hidden]."""
        x = self.weight("token_embd.weight")[np.asarray(tokens)]
        x = x * (np.sqrt(self.hidden) if self.gemma else self._meta("embedding_scale", 1.0))
        if self.family == "gemma3n":
            return self._norm(stream_models.states(self, np.asarray(tokens), x), "output_norm.weight")
        for layer in range(self.layers):
            x = self._layer(layer, x)
        own = "token_embd_norm.weight" if self.family == "lfm2" else "output_norm.weight"
        return self._norm(x, own)

    def predicted(self, tokens: Sequence[int], states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of pairs of a token and the state before it: logits of the token behind, and the states that give them."""
        p = f"blk.{self.layers}."
        read = self._norm(self.weight("token_embd.weight")[np.asarray(tokens)], p + "nextn.enorm.weight")
        both = np.concatenate([read, self._norm(states, p + "nextn.hnorm.weight")], axis=1)
        x = self._layer(self.layers, both @ self.weight(p + "nextn.eh_proj.weight").T)
        own = p + "nextn.shared_head_norm.weight"
        y = self._norm(x, own if own in self.file.tensors else "output_norm.weight")
        return self._head(y), y

    def _head(self, x: np.ndarray) -> np.ndarray:
        name = "output.weight" if "output.weight" in self.file.tensors else "token_embd.weight"
        scale = self._meta("logit_scale", 1.0)
        scale = 1 / scale if self.family in ("cohere2", "command-r") else scale
        logits = x @ self.weight(name).T / scale
        if self.family in ("phi2", "phimoe"):
            logits = logits + self.weight("output.bias")
        return self._cap(logits, "final_logit_softcapping", 30.0 if self.family == "gemma3n" else 0.0)

    def _cap(self, x: np.ndarray, key: str, default: float = 0.0) -> np.ndarray:
        cap = self._meta(key, default)
        return cap * np.tanh(x / cap) if cap else x

    def _is_near(self, layer: int) -> bool:
        """Whether a layer sees a window."""
        periods = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2, "olmo2": 4, "exaone4": 4, "cohere2": 4}
        pattern = self._meta("attention.sliding_window_pattern", periods.get(self.family, 0))
        if isinstance(pattern, np.ndarray):
            return bool(pattern[layer])
        return bool(self._meta("attention.sliding_window", 0)) and not (pattern and (layer + 1) % pattern == 0)

    def _layer(self, layer: int, x: np.ndarray) -> np.ndarray:
        p = f"blk.{layer}."
        residual = self._meta("residual_scale", 1.0)
        n = self._maybe(x, p + "attn_norm.weight")
        if self.family == "deepseek2":
            x = x + self._latent_attention(p, n)
            n = self._norm(x, p + "ffn_norm.weight")
            dense = layer < self._meta("leading_dense_block_count", 0)
            return x + (self._feed_forward(p, n) if dense else self._routed(p, n))
        if self.family in numpy_scans.FAMILIES:
            return numpy_scans.layer(self, p, layer, x, n)
        if self.family in ("qwen35", "qwen35moe", "qwen3next"):
            x = x + (self._delta_rule(p, n) if p + "ssm_a" in self.file.tensors else self._gated_attention(p, n))
            n = self._norm(x, p + "post_attention_norm.weight")
            return x + (self._experts(p, n) if "expert_count" in self._own() else self._feed_forward(p, n))
        if p + "shortconv.conv.weight" in self.file.tensors:
            x = x + self._short_conv(p, n)
            return x + self._feed_forward(p, self._norm(x, p + "ffn_norm.weight"))
        q, k, v = self._projections(p, n)
        if self.family in ("olmo2", "olmoe"):
            q, k = self._norm(q, p + "attn_q_norm.weight"), self._norm(k, p + "attn_k_norm.weight")
        q, k, v = self._split(q, self.heads), self._split(k, self.kv_heads), self._split(v, self.kv_heads)
        if self.family in _NORMED_HEADS:
            q, k = self._norm(q, p + "attn_q_norm.weight"), self._norm(k, p + "attn_k_norm.weight")
        near = self._is_near(layer)
        global_alone = self.family in ("exaone4", "cohere2") and self._meta("attention.sliding_window", 0) and not near
        if not (self.family == "smollm3" and layer % 4 == 3) and not global_alone:
            q, k = self._rotate(q, near), self._rotate(k, near)
        if self.family == "hunyuan-dense":
            q, k = self._norm(q, p + "attn_q_norm.weight"), self._norm(k, p + "attn_k_norm.weight")
        sinks = self.weight(p + "attn_sinks.weight") if self.family == "gpt-oss" else np.full(self.heads, -np.inf)
        a = self._attend(q, k, v, self._meta("attention.sliding_window") if near else len(x), sinks)
        a = a @ self.weight(p + "attn_output.weight").T
        if p + "attn_output.bias" in self.file.tensors:
            a = a + self.weight(p + "attn_output.bias")
        if self.family == "gpt-oss":
            x = x + a
            return x + self._biased_experts(p, self._norm(x, p + "post_attention_norm.weight"))
        if self.family in ("cohere2", "command-r", "phi2"):
            return x + a + self._feed_forward(p, n)
        if self.family == "seed_oss":
            x = x + a
            return x + self._feed_forward(p, self._norm(x, p + "post_attention_norm.weight"))
        x = x + residual * self._maybe(a, p + "post_attention_norm.weight")
        n = self._maybe(x, p + "ffn_norm.weight")
        experts = self._near_experts if self.family == "phimoe" else self._experts
        f = experts(p, n) if "expert_count" in self._own() else self._feed_forward(p, n)
        return x + residual * self._maybe(f, p + "post_ffw_norm.weight")

    def _gated_attention(self, p: str, n: np.ndarray) -> np.ndarray:
        """A query head has a gate behind it."""
        made = (n @ self.weight(p + "attn_q.weight").T).reshape(len(n), self.heads, 2, self.head_dim)
        q, gate = made[:, :, 0].transpose(1, 0, 2), made[:, :, 1].reshape(len(n), -1)
        k, v = (self._split(n @ self.weight(f"{p}attn_{word}.weight").T, self.kv_heads) for word in "kv")
        q, k = self._norm(q, p + "attn_q_norm.weight"), self._norm(k, p + "attn_k_norm.weight")
        q, k = self._rotate(q, False), self._rotate(k, False)
        a = self._attend(q, k, v, len(n), np.full(self.heads, -np.inf))
        return (a / (1 + np.exp(-gate))) @ self.weight(p + "attn_output.weight").T

    def _delta_rule(self, p: str, n: np.ndarray) -> np.ndarray:
        """Token by token, head by head: value head j reads key head j % Hk, or j // (Hv / Hk) of Qwen3-Next."""
        names = ("group_count", "time_step_rank", "state_size", "conv_kernel")
        keys, values, size, taps = (self._meta(f"ssm.{name}") for name in names)
        mixed = n @ self.weight(p + "attn_qkv.weight").T
        padded = np.concatenate([np.zeros((taps - 1, mixed.shape[1])), mixed])
        kernel = self.weight(p + "ssm_conv1d.weight")
        seen = self._act(sum(padded[j : j + len(n)] * kernel[:, j] for j in range(taps)))
        heads = seen.reshape(len(n), 2 * keys + values, size)
        unit = heads / np.sqrt((heads**2).sum(-1, keepdims=True) + 1e-6)
        grouped = self.family == "qwen3next"
        own = [j // (values // keys) if grouped else j % keys for j in range(values)]
        if grouped:
            both = (n @ self.weight(p + "ssm_ba.weight").T).reshape(len(n), keys, 2, -1)
            strength, step = both[:, :, 0].reshape(len(n), -1), both[:, :, 1].reshape(len(n), -1)
        else:
            strength, step = (n @ self.weight(f"{p}ssm_{word}.weight").T for word in ("beta", "alpha"))
        beta = 1 / (1 + np.exp(-strength))
        stepped = step + self.weight(p + "ssm_dt.bias")
        decay = np.exp(self.weight(p + "ssm_a") * np.log1p(np.exp(stepped)))
        result = np.empty((len(n), values, size))
        for j in range(values):
            memory = np.zeros((size, size))
            for t in range(len(n)):
                q, k, v = unit[t, own[j]], unit[t, keys + own[j]], heads[t, 2 * keys + j]
                memory = memory * decay[t, j]
                memory = memory + np.outer(k, beta[t, j] * (v - k @ memory))
                result[t, j] = q @ memory / np.sqrt(size)
        z = (n @ self.weight(p + "attn_gate.weight").T).reshape(result.shape)
        gated = self._norm(result, p + "ssm_norm.weight") * self._act(z)
        return gated.reshape(len(n), -1) @ self.weight(p + "ssm_out.weight").T

    def _short_conv(self, p: str, n: np.ndarray) -> np.ndarray:
        """Channel by channel over the last tokens."""
        b, c, u = np.split(n @ self.weight(p + "shortconv.in_proj.weight").T, 3, axis=1)
        taps = self.weight(p + "shortconv.conv.weight")
        padded = np.concatenate([np.zeros((taps.shape[1] - 1, b.shape[1])), b * u])
        seen = sum(padded[j : j + len(n)] * taps[:, j] for j in range(taps.shape[1]))
        return (c * seen) @ self.weight(p + "shortconv.out_proj.weight").T

    def _latent_attention(self, p: str, n: np.ndarray) -> np.ndarray:
        """With the keys and values of each head, which are made of what all heads share."""
        rank, width = self._meta("attention.kv_lora_rank"), self._meta("attention.key_length_mla")
        if "attention.q_lora_rank" in self._own():
            short = self._norm(n @ self.weight(p + "attn_q_a.weight").T, p + "attn_q_a_norm.weight")
            q = short @ self.weight(p + "attn_q_b.weight").T
        else:
            q = n @ self.weight(p + "attn_q.weight").T
        q = q.reshape(len(n), self.heads, width).transpose(1, 0, 2)
        made = n @ self.weight(p + "attn_kv_a_mqa.weight").T
        latents, shared = (
            self._norm(made[:, :rank], p + "attn_kv_a_norm.weight"),
            self._rotate(made[None, :, rank:], False),
        )
        plain = width - self.rotated
        keys = latents @ self.weight(p + "attn_k_b.weight")
        keys = np.concatenate([keys, np.repeat(shared, self.heads, 0)], axis=2)
        values = latents @ self.weight(p + "attn_v_b.weight").transpose(0, 2, 1)
        q = np.concatenate([q[..., :plain], self._rotate(q[..., plain:], False)], axis=2)
        grown = 1.0
        if self.kind == "yarn":
            grown += self._meta("rope.scaling.yarn_log_multiplier", 0.0) * np.log(self.stretch)
        result = []
        for head in range(self.heads):
            scores = q[head] @ keys[head].T * grown**2 / np.sqrt(width)
            scores = np.where(np.tri(len(n), dtype=bool), scores, -np.inf)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            result.append(weights / weights.sum(axis=1, keepdims=True) @ values[head])
        return np.concatenate(result, axis=1) @ self.weight(p + "attn_output.weight").T

    def _routed(self, p: str, n: np.ndarray) -> np.ndarray:
        """Experts as DeepSeek's models choose them, and the network that all tokens have."""
        gate, up, down = (self.weight(f"{p}ffn_{word}_shexp.weight") for word in ("gate", "up", "down"))
        result = (self._act(n @ gate.T) * (n @ up.T)) @ down.T
        gate, up, down = (self.weight(f"{p}ffn_{word}_exps.weight") for word in ("gate", "up", "down"))
        scores = n @ self.weight(p + "ffn_gate_inp.weight").T
        sigmoid = self._meta("expert_gating_func", 1) == 2
        scores = 1 / (1 + np.exp(-scores)) if sigmoid else np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        bias = f"{p}exp_probs_b.bias"
        wanted = scores + (self.weight(bias) if bias in self.file.tensors else 0)
        groups, count = self._meta("expert_group_count", 1), self._meta("expert_used_count")
        for i, x in enumerate(n):
            own = wanted[i].reshape(groups, -1)
            best = np.sort(own, axis=1)[:, -2 if sigmoid else -1 :].sum(axis=1)
            hidden = np.argsort(-best)[self._meta("expert_group_used_count", groups) :]
            own[hidden] = -np.inf
            chosen = np.argsort(-own.reshape(-1))[:count]
            weights = scores[i, chosen] / (scores[i, chosen].sum() if self._meta("expert_weights_norm", False) else 1)
            for e, weight in zip(chosen, weights * self._meta("expert_weights_scale", 1.0), strict=True):
                result[i] += weight * (down[e] @ (self._act(gate[e] @ x) * (up[e] @ x)))
        return result

    def _own(self) -> set[str]:
        return {key.removeprefix(f"{self.family}.") for key in self.file.metadata}

    def _projections(self, p: str, n: np.ndarray) -> list[np.ndarray]:
        if self.family == "phi3":
            joined = n @ self.weight(f"{p}attn_qkv.weight").T
            narrow = self.kv_heads * self.head_dim
            return np.split(joined, [self.heads * self.head_dim, self.heads * self.head_dim + narrow], axis=1)
        found = [n @ self.weight(f"{p}attn_{name}.weight").T for name in "qkv"]
        if self.family in _BIASED and f"{p}attn_q.bias" in self.file.tensors:
            found = [y + self.weight(f"{p}attn_{name}.bias") for y, name in zip(found, "qkv", strict=True)]
        return found

    def _act(self, x: np.ndarray) -> np.ndarray:
        if self.gemma or self.family in ("starcoder2", "phi2"):
            return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        return x / (1 + np.exp(-x))

    def _feed_forward(self, p: str, n: np.ndarray) -> np.ndarray:
        up = n @ self.weight(p + "ffn_up.weight").T
        if self.family in ("starcoder2", "phi2"):
            inner = self._act(up + self.weight(p + "ffn_up.bias"))
            return inner @ self.weight(p + "ffn_down.weight").T + self.weight(p + "ffn_down.bias")
        if f"{p}ffn_gate.weight" not in self.file.tensors:
            gate, up = np.split(up, 2, axis=1)
        else:
            gate = n @ self.weight(p + "ffn_gate.weight").T
        return (self._act(gate) * up) @ self.weight(p + "ffn_down.weight").T

    def _experts(self, p: str, n: np.ndarray) -> np.ndarray:
        """Token by token, expert by expert."""
        gate, up, down = (self.weight(f"{p}ffn_{word}_exps.weight") for word in ("gate", "up", "down"))
        scores = n @ self.weight(p + "ffn_gate_inp.weight").T
        result = self._shared(p, n) if self.family in ("qwen2moe", "qwen35moe", "qwen3next") else np.zeros_like(n)
        normalised = self.family not in ("qwen2moe", "olmoe", "jamba")
        for i, x in enumerate(n):
            weights = np.exp(scores[i] - scores[i].max())
            weights /= weights.sum()
            chosen = np.argsort(-weights)[: self._meta("expert_used_count")]
            total = weights[chosen].sum() if self._meta("expert_weights_norm", normalised) else 1.0
            for e in chosen:
                result[i] += weights[e] / total * (down[e] @ (self._act(gate[e] @ x) * (up[e] @ x)))
        return result

    def _near_experts(self, p: str, n: np.ndarray) -> np.ndarray:
        """Those of Phi-3.5: the best two, each weighed among scores near it, the second without the first."""
        gate, up, down = (self.weight(f"{p}ffn_{word}_exps.weight") for word in ("gate", "up", "down"))
        scores, result = n @ self.weight(p + "ffn_gate_inp.weight").T, np.zeros_like(n)
        for i, x in enumerate(n):
            left = list(range(len(gate)))
            for _ in range(2):
                best = max(left, key=lambda e: scores[i, e])
                top = scores[i, best]
                near = [e for e in left if (top - scores[i, e]) / max(abs(scores[i, e]), top) <= 0.4]
                weight = 1 / np.exp(scores[i, near] - top).sum()
                result[i] += weight * (down[best] @ (self._act(gate[best] @ x) * (up[best] @ x)))
                left.remove(best)
        return result

    def _biased_experts(self, p: str, n: np.ndarray) -> np.ndarray:
        """Those of gpt-oss: the weights are the softmax of the chosen scores, and gates and ups are bounded."""
        words = ("gate", "up", "down")
        gate, up, down = (self.weight(f"{p}ffn_{word}_exps.weight") for word in words)
        of_gate, of_up, of_down = (self.weight(f"{p}ffn_{word}_exps.bias") for word in words)
        scores = n @ self.weight(p + "ffn_gate_inp.weight").T + self.weight(p + "ffn_gate_inp.bias")
        result = np.zeros_like(n)
        for i, x in enumerate(n):
            chosen = np.argsort(-scores[i])[: self._meta("expert_used_count")]
            weights = np.exp(scores[i, chosen] - scores[i, chosen].max())
            for e, weight in zip(chosen, weights / weights.sum(), strict=True):
                g = np.minimum(gate[e] @ x + of_gate[e], 7)
                u = np.clip(up[e] @ x + of_up[e], -7, 7)
                result[i] += weight * (down[e] @ ((u + 1) * g / (1 + np.exp(-1.702 * g))) + of_down[e])
        return result

    def _shared(self, p: str, n: np.ndarray) -> np.ndarray:
        """The network of all tokens, which a product with the token weighs."""
        gate, up, down = (self.weight(f"{p}ffn_{word}_shexp.weight") for word in ("gate", "up", "down"))
        part = 1 / (1 + np.exp(-(n @ self.weight(p + "ffn_gate_inp_shexp.weight"))))
        return part[:, None] * ((self._act(n @ gate.T) * (n @ up.T)) @ down.T)

    def _maybe(self, x: np.ndarray, name: str) -> np.ndarray:
        return self._norm(x, name) if name in self.file.tensors else x

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(axis=-1, keepdims=True) if self.layered else x
        y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.weight(name)
        bias = name.replace("norm.weight", "norm.bias")
        return y + self.weight(bias) if bias in self.file.tensors else y

    def _split(self, x: np.ndarray, heads: int) -> np.ndarray:
        """[S, heads * D] -> [heads, S, D]"""
        return x.reshape(len(x), heads, self.head_dim).transpose(1, 0, 2)

    def _rotate(self, x: np.ndarray, near: bool) -> np.ndarray:
        """Pairs as complex numbers, turned by position * base^(-2i / rotated)."""
        count = self.rotated // 2
        first = np.arange(0, self.rotated, 2) if self.interleaved else np.arange(count)
        second = first + (1 if self.interleaved else count)
        own = near and self.family in ("gemma3", "gemma3n", "olmo2")
        base = 10000.0 if own and self.gemma else self.base
        frequency = base ** (-2 * np.arange(count) / self.rotated)
        if not own:
            frequency = frequency / self.stretch * (1 - self._kept(count)) + frequency * self._kept(count)
        for name in self._factor_names():
            frequency = frequency / self.weight(name)
        size = self._meta("rope.scaling.attn_factor", 1.0)
        size = 1.0 if own else size
        size *= (
            1 + 0.1 * np.log(self.stretch) if self.kind == "yarn" and self.family != "deepseek2" and not own else 1.0
        )
        turn = size * np.exp(1j * np.arange(x.shape[1])[:, None] * frequency)
        turned = (x[..., first] + 1j * x[..., second]) * turn
        result = x.copy()
        result[..., first], result[..., second] = turned.real, turned.imag
        return result

    def _factor_names(self) -> list[str]:
        word = "long" if self.context > self._meta("rope.scaling.original_context_length", 1 << 30) else "short"
        return [name for name in ("rope_freqs.weight", f"rope_factors_{word}.weight") if name in self.file.tensors]

    def _kept(self, count: int) -> np.ndarray | float:
        """How much of each pair YaRN doesn't stretch."""
        if self.kind != "yarn":
            return 0.0
        original = self._meta("rope.scaling.original_context_length")
        turns = [self._meta(f"rope.scaling.yarn_beta_{word}", value) for word, value in (("fast", 32), ("slow", 1))]
        # The pair that turns t times in all: original * base^(-2i / rotated) = 2 pi t.
        low, high = (np.log(original / (2 * np.pi * t)) / np.log(self.base) * count for t in turns)
        if self.family != "gpt-oss":
            low, high = np.floor(low), np.ceil(high)
        low, high = max(low, 0), min(high, self.rotated - 1)
        return np.clip((high - np.arange(count)) / max(high - low, 0.001), 0, 1)

    def _attend(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, window: int, sinks: np.ndarray) -> np.ndarray:
        """[H, S, D] and [Hkv, S, D] -> [S, H * D]; query head h reads head h // (H / Hkv), its last keys.

        Its sink, one of `sinks`, is among what softmax is of.
        """
        heads, length, width = q.shape
        result = np.empty((length, heads, width), self.dtype)
        scale = self._meta("attention.scale", 1.0 if self.family == "gemma3n" else width**-0.5)
        for h in range(heads):
            shared = h // (heads // self.kv_heads)
            for i in range(length):
                seen = slice(max(0, i + 1 - window), i + 1)
                scores = self._cap(k[shared, seen] @ q[h, i] * scale, "attn_logit_softcapping")
                largest = max(scores.max(), sinks[h])
                weights = np.exp(scores - largest)
                result[i, h] = weights / (weights.sum() + np.exp(sinks[h] - largest)) @ v[shared, seen]
        return result.reshape(length, -1)
