# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models as graphs of blocks: one module for prompts, one for single tokens. What stands in a layer is data.

Both modules read and update a cache of keys and values, and share every parameter:

| module    | inputs                                              | results                                  |
|-----------|-----------------------------------------------------|------------------------------------------|
| `prefill` | tokens [1, seq], pos [1], rows [outputs], k_i, v_i  | logits [1, outputs, vocab], updated k_i, v_i |
| `decode`  | tokens [1, 1], pos [1], k_i, v_i                    | logits [1, 1, vocab], updated k_i, v_i   |

Numbers of the first three are i32; ``pos`` is the position of the first token, ``rows`` says which tokens of the call
get logits. The caches of layer i are [1, context, kv_heads * head_dim] of the configuration's ``kv_dtype``, keys after
rotation. On GPUs, `decode` chooses the next token as well, see `build`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import GGUFError, InputError
from ..frontends.gguf import GGUFFile
from .config import ModelConfig

if TYPE_CHECKING:
    from ..hir import GraphModule, Value

PROGRAMS = ("prefill", "decode")
"""The modules of a model."""

_ROPE_FACTORS = "rope_freqs.weight"


def rope_names(config: ModelConfig) -> dict[bool, tuple[str, str]]:
    """Names of the parameters with cosines and sines, by whether they are those of local layers."""
    names = {}
    if config.local_layers < config.layers:
        names[False] = ("rope.cos", "rope.sin")
    if config.local_layers:
        names[True] = ("rope.local.cos", "rope.local.sin")
    return names


def cache_names(config: ModelConfig) -> list[str]:
    """Names of the cache inputs, which are those of the updated caches among the results, too."""
    return [f"{kind}_{layer}" for layer in range(config.layers) for kind in ("k", "v")]


_IN_TABLES = frozenset({"context", "rope_base", "rope_scale", "local_rope_base"})
"""What only the contents of the rope tables, or the declared maxima, depend on."""


def describe(config: ModelConfig, program: str, candidates: int = 0) -> dict[str, object]:
    """Everything that the module built by `build` depends on, as JSON can write it, without building anything."""
    _check_program(program)
    return {
        "program": f"decoder.{program}",
        "chosen_among": candidates,
        **{name: value for name, value in config.numbers().items() if name not in _IN_TABLES},
        "weights": {name: [_type(config, name), *config.weights[name].shape] for name in _used(config)},
    }


def build(config: ModelConfig, program: str, candidates: int = 0) -> GraphModule:
    """The graph of ``program``, `prefill` or `decode`.

    With ``candidates``, the token that follows is chosen, too, among so many of the largest logits (`mir.sample`):

    | input or result | shape | what it is |
    |---|---|---|
    | controls | [1, 3] | temperature, how many candidates are kept, top_p |
    | draws | [1, context] | random numbers in [0, 1), by the position after which a token comes |
    | chosen | [1, context] | the tokens, likewise; updated like a cache |
    | token, next | [1, 1], [1] | the token and its position: `tokens` and `pos` of the next step |

    A layer whose architecture adds nothing to LLaMA's is a block named ``blk.<layer>``; other layers are blocks and
    primitives, named as their tensors are.
    """
    from ..hir import GraphModule

    _check_program(program)
    prefill = program == "prefill"
    graph = GraphModule.hir(program)
    tokens = graph.input("tokens", [1, "seq" if prefill else 1], "i32")
    pos = graph.input("pos", [1], "i32")
    rows = graph.input("rows", ["outputs"], "i32") if prefill else None
    shape: list[int | str] = [1, "context", config.kv_width]
    caches = {name: graph.input(name, shape, config.kv_dtype) for name in cache_names(config)}
    params = {name: _param(graph, config, name) for name in _used(config)}
    tables = {
        local: tuple(graph.param(name, ["context", config.head_dim // 2]) for name in names)
        for local, names in rope_names(config).items()
    }
    x = graph.gather(params["token_embd.weight"], tokens, name="token_embd")
    if config.plan.scaled_embedding:
        x = graph.mul(x, math.sqrt(config.hidden), name="token_embd")
    outputs: dict[str, Value] = {}
    for number in range(config.layers):
        k, v = f"k_{number}", f"v_{number}"
        cos, sin = tables[config.is_local(number)]
        layer = _Layer(graph, config, number, params, cos, sin, pos)
        x, outputs[k], outputs[v] = layer.build(x, caches[k], caches[v])
    if rows is not None:  # the head is the largest matrix of small models: only the rows that are asked for
        x = graph.gather(x, rows, axis=1, name="rows")
    x = graph.rms_norm(x, params["output_norm.weight"], eps=config.eps, name="output_norm")
    logits = _product(graph, x, params[config.head_weight], name="output")
    if candidates:
        inputs = _choice_inputs(graph)
        values, ids = (graph.reshape(x, [1, candidates]) for x in graph.top_k(logits, candidates, name="output"))
        controls, draws, chosen = inputs.values()
        token, place, chosen = graph.sample(values, ids, controls, draws, chosen, pos, name="output")
        outputs |= {"token": token, "next": place, "chosen": chosen}
        caches["chosen"] = inputs["chosen"]
    graph.set_outputs({"logits": logits, **outputs}, tied=caches)
    return graph


def _choice_inputs(graph: GraphModule) -> dict[str, Value]:
    """What a choice of tokens reads, by name."""
    return {
        "controls": graph.input("controls", [1, 3], "f32"),
        "draws": graph.input("draws", [1, "context"], "f32"),
        "chosen": graph.input("chosen", [1, "context"], "i32"),
    }


def parameters(
    config: ModelConfig, file: GGUFFile, context: int, replaced: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Arrays for every parameter of the modules, by name; weights are views into the file.

    Packed weights are uint8 [outputs, bytes of a row], f32 matrices [outputs, inputs], vectors f32; the tables have
    ``context`` rows. ``replaced`` has bytes, uint8 [rows, bytes of a row], that stand for some of the file's weights.

    Raises GGUFError where the factors of frequencies don't give finite tables.
    """
    arrays: dict[str, np.ndarray] = {}
    for name in _used(config):
        info = config.weights[name]
        data = file.tensor(name)
        if replaced and name in replaced:
            data = replaced[name].view(data.dtype).reshape(data.shape)
        if len(info.shape) == 1:
            arrays[name] = data.astype(np.float32, copy=False)
        elif _type(config, name) == "f32":
            arrays[name] = data
        else:
            arrays[name] = data.view(np.uint8).reshape(info.rows, -1)
    factors = file.dequantize(_ROPE_FACTORS) if _ROPE_FACTORS in config.weights else None
    for local, (cos, sin) in rope_names(config).items():
        with np.errstate(all="ignore"):
            arrays[cos], arrays[sin] = config.rope_tables(context, factors, local=local)
        if not np.isfinite(arrays[cos]).all():
            raise GGUFError(
                f"tensor '{_ROPE_FACTORS}' must divide the frequencies of base {config.rope_base} to finite ones, but "
                f"goes down to {1.0 if factors is None else factors.min()}",
                path=file.path,
            )
    return arrays


def _check_program(program: str) -> None:
    if program not in PROGRAMS:
        raise InputError(f"a model's modules are {', '.join(PROGRAMS)}, but got {program!r}")


def _used(config: ModelConfig) -> list[str]:
    """The tensors that are parameters: all but the one that goes into the rope tables."""
    return [name for name in config.weights if name != _ROPE_FACTORS]


def _type(config: ModelConfig, name: str) -> str:
    """The type of a parameter: that of the file for a matrix, f32 for a vector."""
    info = config.weights[name]
    return info.type if len(info.shape) == 2 else "f32"


def _param(graph: GraphModule, config: ModelConfig, name: str) -> Value:
    type, shape = _type(config, name), config.weights[name].shape
    return graph.param(name, shape) if type == "f32" else graph.param(name, shape, packed=type)


def _product(graph: GraphModule, x: Value, weight: Value, bias: Value | None = None, *, name: str) -> Value:
    """x times a weight, whose rows are outputs in the file, and a bias."""
    if weight.packed is not None and bias is None:
        return graph.dequant_matmul(x, weight, name=name)
    return graph.linear(x, weight, bias, transpose_weight=weight.packed is None, name=name)


@dataclass(frozen=True)
class _Layer:
    """Builds one layer of a graph."""

    graph: GraphModule
    config: ModelConfig
    number: int
    params: Mapping[str, Value]
    cos: Value
    sin: Value
    pos: Value

    def build(self, x: Value, k_cache: Value, v_cache: Value) -> tuple[Value, Value, Value]:
        """(result, new keys, new values)"""
        if self.config.plan.is_plain:
            return self._block(x, k_cache, v_cache)
        with self.graph.scope(f"blk.{self.number}"):
            attended, new_k, new_v = self._attend(self._norm(x, "attn_norm"), k_cache, v_cache)
            h = self.graph.add(x, self._post_norm(attended, "post_attention_norm"), name="attn_output")
            found = self._feed_forward(self._norm(h, "ffn_norm"))
            return self.graph.add(h, self._post_norm(found, "post_ffw_norm"), name="ffn_down"), new_k, new_v

    def _weight(self, name: str) -> Value:
        return self.params[f"blk.{self.number}.{name}.weight"]

    def _block(self, x: Value, k_cache: Value, v_cache: Value) -> tuple[Value, Value, Value]:
        """The layer as one block."""
        config = self.config
        matrices: dict[str, Any] = {
            "q_w": self._weight("attn_q"),
            "k_w": self._weight("attn_k"),
            "v_w": self._weight("attn_v"),
            "o_w": self._weight("attn_output"),
            "gate_w": self._weight("ffn_gate"),
            "up_w": self._weight("ffn_up"),
            "down_w": self._weight("ffn_down"),
        }
        result, new_k, new_v = self.graph.llama_decoder_block(
            x,
            ln1_gamma=self._weight("attn_norm"),
            ln2_gamma=self._weight("ffn_norm"),
            **matrices,
            cos=self.cos,
            sin=self.sin,
            k_cache=k_cache,
            v_cache=v_cache,
            pos=self.pos,
            num_heads=config.heads,
            num_kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            eps=config.eps,
            mask_kind="causal",
            style=config.plan.rope_style,
            # Dense matrices are [outputs, inputs] in the file; packed ones always are.
            transpose_weight=any(matrix.packed is None for matrix in matrices.values()),
            name=f"blk.{self.number}",
        )
        return result, new_k, new_v

    def _attend(self, n: Value, k_cache: Value, v_cache: Value) -> tuple[Value, Value, Value]:
        config, local = self.config, self.config.is_local(self.number)
        q, k, v = (self._project(n, name) for name in ("attn_q", "attn_k", "attn_v"))
        q, k = self._rotate(q, "attn_q", config.heads), self._rotate(k, "attn_k", config.kv_heads)
        attended, new_k, new_v = self.graph.attention(
            q,
            k,
            v,
            num_heads=config.heads,
            num_kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            mask_kind="sliding_window" if local else "causal",
            window=config.window if local else None,
            scale=config.attention_scale,
            k_cache=k_cache,
            v_cache=v_cache,
            pos=self.pos,
            name="attention",
        )
        return _product(self.graph, attended, self._weight("attn_output"), name="attn_output"), new_k, new_v

    def _project(self, n: Value, name: str) -> Value:
        bias = self.params[f"blk.{self.number}.{name}.bias"] if self.config.plan.qkv_bias else None
        return _product(self.graph, n, self._weight(name), bias, name=name)

    def _rotate(self, x: Value, name: str, heads: int) -> Value:
        """Queries or keys by their positions, after the norm of each head where there is one."""
        config, size = self.config, self.config.head_dim
        if config.plan.head_norms:
            rows = self.graph.reshape(x, [*x.shape[:-1], heads, size], name=f"{name}_norm")
            rows = self._norm(rows, f"{name}_norm")
            x = self.graph.reshape(rows, x.shape, name=f"{name}_norm")
        half = config.plan.rope_style == "half"
        return self.graph.rope(
            x,
            self.cos,
            self.sin,
            head_dim=size,
            style=config.plan.rope_style,
            n_rot=config.rope_dims if half and config.rope_dims < size else None,
            pos=self.pos,
            name=f"{name}_rope",
        )

    def _feed_forward(self, n: Value) -> Value:
        graph, weights = self.graph, [self._weight(name) for name in ("ffn_gate", "ffn_up", "ffn_down")]
        gate_w, up_w, down_w = weights
        if self.config.plan.activation == "silu":
            dense = any(weight.packed is None for weight in weights)
            return graph.swiglu(n, gate_w=gate_w, up_w=up_w, down_w=down_w, transpose_weight=dense, name="ffn")
        gate = graph.activation(self.config.plan.activation, _product(graph, n, gate_w, name="ffn_gate"), name="ffn")
        hidden = graph.mul(gate, _product(graph, n, up_w, name="ffn_up"), name="ffn")
        return _product(graph, hidden, down_w, name="ffn_down")

    def _norm(self, x: Value, name: str) -> Value:
        return self.graph.rms_norm(x, self._weight(name), eps=self.config.eps, name=name)

    def _post_norm(self, x: Value, name: str) -> Value:
        return self._norm(x, name) if self.config.plan.post_norms else x


__all__ = ["PROGRAMS", "build", "cache_names", "describe", "parameters", "rope_names"]
