# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models as graphs of blocks: a module for prompts, and some for tokens that follow. What stands in a layer is data.

All modules read and update caches of keys and values, and share every parameter:

| module    | inputs                                              | results                                      |
|-----------|-----------------------------------------------------|----------------------------------------------|
| `prefill` | tokens [1, seq], pos [1], rows [outputs], k_i, v_i  | logits [1, outputs, vocab], updated k_i, v_i |
| `decode`  | tokens [1, 1], pos [1], k_i, v_i                    | logits [1, 1, vocab], updated k_i, v_i       |
| `batch`   | tokens [batch, 1], pos [batch], k_i, v_i            | logits [batch, 1, vocab], updated k_i, v_i   |
| `extend`  | tokens [1, 8], pos [1], k_i, v_i                    | logits [1, 8, vocab], updated k_i, v_i       |

Where layers have states in place of keys and values (`delta`), all read these, too, and update them; `extend` gives
trails instead, and there is `settle`: states, trails [1, seq, …] -> updated states. Of models with a layer that
predicts further ahead, all but `batch` give `hidden` [1, tokens, hidden], too, and there are `predict`, see
`prediction`, and `few`, which is `extend` of 4 tokens: so many come of it at once.

Numbers of the first three are i32; ``pos`` are the positions of the first tokens, ``rows`` says which tokens of the
call get logits. The caches of layer i are [batch, context, a row of the configuration's ``kv_dtype``], see
`caches`, keys after rotation. On GPUs, `decode` chooses the next token as well, see `build`.

On CPUs, `decode`, `batch` and `extend` give a token the same bits, whatever it is processed with: products add up a row
in an order of its own, and so does attention of few queries. `prefill` gives a token the same bits in a prompt of any
length, but others than these three do, since its attention goes over several queries at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..errors import GGUFError, InputError
from ..frontends.model_file import ModelFile
from .caches import cache_types, state_shapes
from .config import ModelConfig
from .conv_layers import rule_of
from .delta_layers import Past
from .layers import (
    Layer,
    adapter_params,
    embedded,
    head_of,
    is_packed,
    logits_of,
    normed,
    rope_names,
    rope_params,
    type_of,
    used,
    weight_params,
)
from .prediction import build_prediction
from .stream_layers import StreamLayer, extras, merged, spread

if TYPE_CHECKING:
    from ..hir import GraphModule, Value

PROGRAMS = ("prefill", "decode")
"""The modules that every model is loaded with."""

EXTENDED = 8
"""Tokens of a sequence that `extend` processes at once."""

FEW = 4
"""Those that `few` does: more than half of the time is that of rows."""

SHAPES: Mapping[str, tuple[int | str, int | str]] = {
    "prefill": (1, "seq"),
    "decode": (1, 1),
    "batch": ("batch", 1),
    "extend": (1, EXTENDED),
    "few": (1, FEW),
    "settle": (1, "seq"),
    "predict": (1, "seq"),
}
"""Sequences, and tokens of each, that a module processes at once."""


TENTATIVE = ("extend", "few")
"""Modules after which tokens may be taken back: they leave states as they are."""


def modules_of(config: ModelConfig) -> tuple[str, ...]:
    """The modules that a model has, of `SHAPES`."""
    lacks = {"few": not config.predicts, "settle": config.delta is None, "predict": not config.predicts}
    return tuple(name for name in SHAPES if not lacks.get(name))


def cache_names(config: ModelConfig) -> list[str]:
    """Names of the cache inputs, which are those of the updated caches among the results, too."""
    return list(cache_types(config))


_IN_TABLES = frozenset(
    {"context", "rope_base", "rope_scale", "rope_original", "rope_attention", "yarn", "local_rope_base"}
)
"""What only the contents of the rope tables, or the declared maxima, depend on."""


def described(config: ModelConfig) -> dict[str, object]:
    """Everything of a model that graphs of it depend on, but for how many rows the rope tables have."""
    return {
        **{name: value for name, value in config.numbers().items() if name not in _IN_TABLES},
        "weights": {name: [type_of(config, name), *config.weights[name].shape] for name in used(config)},
    }


def describe(
    config: ModelConfig, program: str, candidates: int = 0, ranks: Mapping[str, int] | None = None
) -> dict[str, object]:
    """Everything that the module built by `build` depends on, as JSON can write it, without building anything."""
    _check_program(config, program)
    return {
        "program": f"decoder.{program}",
        "chosen_among": candidates,
        **described(config),
        **({"adapter": dict(ranks)} if ranks else {}),
    }


def build(
    config: ModelConfig, program: str, candidates: int = 0, ranks: Mapping[str, int] | None = None
) -> GraphModule:
    """The graph of ``program``, one of `SHAPES`.

    With ``candidates``, the token that follows is chosen, too, among so many of the largest logits (`mir.sample`):

    | input or result | shape | what it is |
    |---|---|---|
    | controls | [1, 3] | temperature, how many candidates are kept, top_p |
    | draws | [1, context] | random numbers in [0, 1), by the position after which a token comes |
    | chosen | [1, context] | the tokens, likewise; updated like a cache |
    | token, next | [1, 1], [1] | the token and its position: `tokens` and `pos` of the next step |

    With ``ranks``, products have an adapter of that rank (`layers.adapter_params`).

    A layer whose architecture adds nothing to LLaMA's is a block named ``blk.<layer>``; other layers are blocks and
    primitives, named as their tensors are.
    """
    from ..hir import GraphModule

    _check_program(config, program)
    if program == "predict":
        return build_prediction(config)
    batch, length = SHAPES[program]
    graph = GraphModule.hir(program)
    if program == "settle":
        return _built_settling(graph, config)
    tokens = graph.input("tokens", [batch, length], "i32")
    pos = graph.input("pos", [batch], "i32")
    rows = graph.input("rows", ["outputs"], "i32") if program == "prefill" else None
    caches = {
        name: graph.input(name, [batch, "context", type.width], type.element)
        for name, type in cache_types(config).items()
    }
    states = _state_inputs(graph, config, batch)
    params, tables = weight_params(graph, config), rope_params(graph, config, "context")
    adapters = adapter_params(graph, config, ranks or {})
    x = embedded(graph, config, params, tokens)
    extra = extras(graph, config, params, tokens, x) if config.streams else None
    x = spread(graph, config, params, x) if config.streams else x
    outputs: dict[str, Value] = {}
    for number in range(config.layers):
        cos, sin = tables.get(config.is_local(number), (None, None))
        parts = (graph, config, number, params, cos, sin, pos, adapters)
        layer = Layer(*parts) if extra is None else StreamLayer(*parts, extra=extra)
        own = [name for name in caches if name.endswith(f"_{number}")]
        if config.is_network(number):
            x = layer.network(x)
            continue
        if config.is_recurrent(number):
            x, trail, left, updated = layer.recurrent(x, Past.of(states, number), [caches[name] for name in own])
            outputs |= {f"trail_{number}": trail} if program in TENTATIVE else left.named(number)
        else:
            read = [outputs[f"{name}_{config.source(number)}"] for name in "kv"] if not own and config.streams else []
            x, updated = layer.cached(x, read or [caches[name] for name in own])
        outputs |= zip(own, updated, strict=True)
    if config.predicts and program != "batch":  # of each token, as it is read by what predicts
        x = outputs["hidden"] = normed(graph, config, params, x)
    if rows is not None:  # the head is the largest matrix of small models: only the rows that are asked for
        x = graph.gather(x, rows, axis=1, name="rows")
    x = merged(graph, config, params, x) if config.streams else x
    logits = (head_of if "hidden" in outputs else logits_of)(graph, config, params, x)
    if candidates:
        inputs = _choice_inputs(graph)
        values, ids = (graph.reshape(x, [1, candidates]) for x in graph.top_k(logits, candidates, name="output"))
        controls, draws, chosen = inputs.values()
        token, place, chosen = graph.sample(values, ids, controls, draws, chosen, pos, name="output")
        outputs |= {"token": token, "next": place, "chosen": chosen}
        caches["chosen"] = inputs["chosen"]
    tied = caches if program in TENTATIVE else {**caches, **states}
    graph.set_outputs({"logits": logits, **outputs}, tied=tied)
    return graph


def _state_inputs(graph: GraphModule, config: ModelConfig, batch: int | str) -> dict[str, Value]:
    """What stands in the place of caches in some layers, by name."""
    return {name: graph.input(name, [batch, *shape], "f32") for name, shape in state_shapes(config).items()}


def _built_settling(graph: GraphModule, config: ModelConfig) -> GraphModule:
    """The states behind tokens that there are trails of."""
    assert config.delta is not None
    states = _state_inputs(graph, config, 1)
    trails = {name: graph.input(name, [1, "seq", config.delta.trail]) for name in config.trails}
    layers = config.delta.layers
    names = [f"blk.{number}.{name}" for number in layers for name in rule_of(graph, config, number, {}).settles_by]
    params = weight_params(graph, config, [name for name in names if name in config.weights])
    outputs: dict[str, Value] = {}
    for number in layers:
        rule = rule_of(graph, config, number, params)
        outputs |= rule.settled(trails[f"trail_{number}"], Past.of(states, number)).named(number)
    graph.set_outputs(outputs, tied=states)
    return graph


def _choice_inputs(graph: GraphModule) -> dict[str, Value]:
    """What a choice of tokens reads, by name."""
    return {
        "controls": graph.input("controls", [1, 3], "f32"),
        "draws": graph.input("draws", [1, "context"], "f32"),
        "chosen": graph.input("chosen", [1, "context"], "i32"),
    }


def parameters(
    config: ModelConfig, file: ModelFile, context: int, replaced: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Arrays for every parameter of the modules, by name; weights are views into the file.

    Packed weights are uint8 [outputs, bytes of a row], f32 matrices [outputs, inputs], vectors f32; the tables have
    ``context`` rows. ``replaced`` has bytes, uint8 [rows, bytes of a row], that stand for some of the file's weights.

    Raises GGUFError where the factors of frequencies don't give finite tables.
    """
    arrays: dict[str, np.ndarray] = {}
    for name in used(config):
        info = config.weights[name]
        data = file.read(info)
        if replaced and info.name in replaced:
            data = replaced[info.name].view(data.dtype).reshape(data.shape)
        if len(info.shape) == 1:
            arrays[name] = data.astype(np.float32, copy=False)
        elif not is_packed(config, name):
            arrays[name] = data
        else:
            arrays[name] = data.view(np.uint8).reshape(info.rows, -1)
    factors_name = config.factors_of(context)
    factors = None if factors_name is None else file.dequantize(factors_name)
    for local, (cos, sin) in rope_names(config).items():
        with np.errstate(all="ignore"):
            arrays[cos], arrays[sin] = config.rope_tables(context, factors, local=local)
        if not np.isfinite(arrays[cos]).all():
            raise GGUFError(
                f"tensor '{factors_name}' must divide the frequencies of base {config.rope_base} to finite ones, but "
                f"goes down to {1.0 if factors is None else factors.min()}",
                path=file.path,
            )
    return arrays


def _check_program(config: ModelConfig, program: str) -> None:
    if program not in (known := modules_of(config)):
        raise InputError(f"the model's modules are {', '.join(known)}, but got {program!r}")


__all__ = [
    *("EXTENDED", "FEW", "PROGRAMS", "SHAPES", "TENTATIVE"),
    *("build", "cache_names", "describe", "described", "modules_of", "parameters"),
]
