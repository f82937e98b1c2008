# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of the LLaMA family as graphs of blocks: one module for prompts, one for single tokens.

Both read and update a cache of keys and values, and share every parameter:

| module    | inputs                                              | results                                  |
|-----------|-----------------------------------------------------|------------------------------------------|
| `prefill` | tokens [1, seq], pos [1], rows [outputs], k_i, v_i  | logits [1, outputs, vocab], updated k_i, v_i |
| `decode`  | tokens [1, 1], pos [1], k_i, v_i                    | logits [1, 1, vocab], updated k_i, v_i   |

Numbers of the first three are i32; ``pos`` is the position of the first token, ``rows`` says which tokens of the call
get logits. The caches of layer i are f32 [1, context, kv_heads * head_dim], keys after rotation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..frontends.gguf import GGUFFile
from .config import ModelConfig

if TYPE_CHECKING:
    from ..hir import GraphModule, Value

PROGRAMS = ("prefill", "decode")
"""The modules of a model."""

ROPE_COS, ROPE_SIN = "rope.cos", "rope.sin"
_ROPE_FACTORS = "rope_freqs.weight"


def cache_names(config: ModelConfig) -> list[str]:
    """Names of the cache inputs, which are those of the updated caches among the results, too."""
    return [f"{kind}_{layer}" for layer in range(config.layers) for kind in ("k", "v")]


def describe(config: ModelConfig, program: str) -> dict[str, Any]:
    """Everything that the module built by `build` depends on, as JSON can write it, without building anything."""
    _check_program(program)
    sizes = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "eps", "rope_style", "tied_head")
    return {
        "program": f"llama.{program}",
        **{name: getattr(config, name) for name in sizes},
        "weights": {name: [_type(config, name), *config.weights[name].shape] for name in _used(config)},
    }


def build(config: ModelConfig, program: str) -> GraphModule:
    """The graph of ``program``, `prefill` or `decode`; every layer is a block named ``blk.<layer>``."""
    from ..hir import GraphModule

    _check_program(program)
    prefill = program == "prefill"
    graph = GraphModule.hir(program)
    tokens = graph.input("tokens", [1, "seq" if prefill else 1], "i32")
    pos = graph.input("pos", [1], "i32")
    rows = graph.input("rows", ["outputs"], "i32") if prefill else None
    caches = {name: graph.input(name, [1, "context", config.kv_width]) for name in cache_names(config)}
    params = {name: _param(graph, config, name) for name in _used(config)}
    tables = {
        "cos": graph.param(ROPE_COS, ["context", config.head_dim // 2]),
        "sin": graph.param(ROPE_SIN, ["context", config.head_dim // 2]),
    }
    x = graph.gather(params["token_embd.weight"], tokens, name="token_embd")
    outputs: dict[str, Value] = {}
    for layer in range(config.layers):
        k, v = f"k_{layer}", f"v_{layer}"
        x, outputs[k], outputs[v] = _layer(graph, config, layer, x, params, tables, caches[k], caches[v], pos)
    if rows is not None:  # the head is the largest matrix of small models: only the rows that are asked for
        x = graph.gather(x, rows, axis=1, name="rows")
    x = graph.rms_norm(x, params["output_norm.weight"], eps=config.eps, name="output_norm")
    head = params[config.head_weight]
    if head.packed is None:
        logits = graph.linear(x, head, transpose_weight=True, name="output")
    else:
        logits = graph.dequant_matmul(x, head, name="output")
    graph.set_outputs({"logits": logits, **outputs}, tied=caches)
    return graph


def parameters(config: ModelConfig, file: GGUFFile, context: int) -> dict[str, np.ndarray]:
    """Arrays for every parameter of the modules, by name; weights are views into the file.

    Packed weights are uint8 [outputs, bytes of a row], f32 matrices [outputs, inputs], vectors f32; the tables have
    ``context`` rows.
    """
    arrays: dict[str, np.ndarray] = {}
    for name in _used(config):
        info = config.weights[name]
        data = file.tensor(name)
        if len(info.shape) == 1:
            arrays[name] = data.astype(np.float32, copy=False)
        elif _type(config, name) == "f32":
            arrays[name] = data
        else:
            arrays[name] = data.view(np.uint8).reshape(info.rows, -1)
    factors = file.dequantize(_ROPE_FACTORS) if _ROPE_FACTORS in config.weights else None
    arrays[ROPE_COS], arrays[ROPE_SIN] = config.rope_tables(context, factors)
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


def _layer(
    graph: GraphModule,
    config: ModelConfig,
    layer: int,
    x: Value,
    params: dict[str, Value],
    tables: dict[str, Any],
    k_cache: Value,
    v_cache: Value,
    pos: Value,
) -> tuple[Value, Value, Value]:
    def weight(name: str) -> Value:
        return params[f"blk.{layer}.{name}.weight"]

    matrices: dict[str, Any] = {
        "q_w": weight("attn_q"),
        "k_w": weight("attn_k"),
        "v_w": weight("attn_v"),
        "o_w": weight("attn_output"),
        "gate_w": weight("ffn_gate"),
        "up_w": weight("ffn_up"),
        "down_w": weight("ffn_down"),
    }
    result, new_k, new_v = graph.llama_decoder_block(
        x,
        ln1_gamma=weight("attn_norm"),
        ln2_gamma=weight("ffn_norm"),
        **matrices,
        **tables,
        k_cache=k_cache,
        v_cache=v_cache,
        pos=pos,
        num_heads=config.heads,
        num_kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        eps=config.eps,
        mask_kind="causal",
        style=config.rope_style,
        # Dense matrices are [outputs, inputs] in the file; packed ones always are.
        transpose_weight=any(matrix.packed is None for matrix in matrices.values()),
        name=f"blk.{layer}",
    )
    return result, new_k, new_v


__all__ = ["PROGRAMS", "ROPE_COS", "ROPE_SIN", "build", "cache_names", "describe", "parameters"]
