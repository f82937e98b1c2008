# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an encoder is, read from the folder of a model: `config.json`, the files of sentence-transformers, tensors.

Encoders are bidirectional transformers of one plan, norms after the sums, biases everywhere:

    x = norm(word[token] + position[place] + type[0])
    h = norm(x + attention(q, k, v) Wo);    y = norm(h + act(h Wu) Wd)

An architecture says what a tensor and a key of `config.json` are called. The checks run before anything is built.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError, ModelFileError, UnsupportedError
from ..frontends.safetensors import FLOATS, SafetensorsFile

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_approx",
    "gelu_pytorch_tanh": "gelu_approx",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""Names of functions in `config.json`, and of ours."""

POOLINGS = ("mean", "cls")
"""How one vector comes from those of the tokens: their mean, or the first one."""


@dataclass(frozen=True)
class EncoderArchitecture:
    """What tells one architecture from another.

    Attributes:
        name: `model_type` in `config.json`.
        keys: the key of `config.json` of each number.
        layer: prefix of the tensors of a layer, with {} for its number.
        parts: by role, the names of a layer's linear maps and norms; each has `.weight` and `.bias`.
        has_types: there is a table of segment types, whose first row is added to every token.
        first_position: the row of the position table for the first token; None for one after the padding token's id.
        eps: of the norms, where the file doesn't say.
    """

    name: str
    keys: Mapping[str, str]
    layer: str
    parts: Mapping[str, str]
    has_types: bool = True
    first_position: int | None = 0
    eps: float | None = None


_BERT_KEYS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
    "vocab": "vocab_size",
    "positions": "max_position_embeddings",
    "types": "type_vocab_size",
    "activation": "hidden_act",
}
_BERT_PARTS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "ffn_norm": "output.LayerNorm",
}
_DISTILBERT_KEYS = {
    "layers": "n_layers",
    "hidden": "dim",
    "heads": "n_heads",
    "ffn": "hidden_dim",
    "vocab": "vocab_size",
    "positions": "max_position_embeddings",
    "activation": "activation",
}
_DISTILBERT_PARTS = {
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "output": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "up": "ffn.lin1",
    "down": "ffn.lin2",
    "ffn_norm": "output_layer_norm",
}

ARCHITECTURES: dict[str, EncoderArchitecture] = {
    architecture.name: architecture
    for architecture in (
        EncoderArchitecture("bert", _BERT_KEYS, "encoder.layer.{}", _BERT_PARTS),
        EncoderArchitecture("roberta", _BERT_KEYS, "encoder.layer.{}", _BERT_PARTS, first_position=None),
        EncoderArchitecture("xlm-roberta", _BERT_KEYS, "encoder.layer.{}", _BERT_PARTS, first_position=None),
        EncoderArchitecture(
            "distilbert",
            _DISTILBERT_KEYS,
            "transformer.layer.{}",
            _DISTILBERT_PARTS,
            has_types=False,
            eps=1e-12,
        ),
    )
}
"""Architectures that can be built, by their `model_type`."""

_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "position_embedding_type": (None, "absolute"),
    "is_decoder": (None, False),
    "add_cross_attention": (None, False),
}
"""Keys that change what is computed, with the values at which they change nothing."""

_LISTED = 8  # names that an error spells out


@dataclass(frozen=True)
class EncoderConfig:
    """An encoder and how a text becomes one vector.

    Attributes:
        architecture: name in `ARCHITECTURES`.
        layers: how many there are.
        hidden: width of the vectors.
        heads: of attention; they divide `hidden`.
        ffn: width inside the feed-forward network.
        vocab: token ids.
        positions: rows of the position table.
        first_position: its row for the first token.
        types: rows of the table of segment types, 0 where there is none.
        eps: of the norms.
        activation: of the feed-forward network, by the name of its operation.
        pooling: one of `POOLINGS`.
        normalize: whether vectors are brought to length 1.
        max_tokens: tokens of a text that are read, special ones included.
        tensors: the file's name of each tensor that the model uses, by its own name.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    ffn: int
    vocab: int
    positions: int
    first_position: int
    types: int
    eps: float
    activation: str
    pooling: str
    normalize: bool
    max_tokens: int
    tensors: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_folder(cls, folder: Path, weights: SafetensorsFile, max_tokens: int | None = None) -> EncoderConfig:
        """Reads and checks the configuration.

        Args:
            folder: with `config.json`, and for sentence embeddings `modules.json` and what it names; without these,
                vectors are the mean over tokens, not normalised.
            weights: the folder's tensors.
            max_tokens: tokens of a text that are read; by default what the folder says.

        Raises ModelFileError for files and tensors that are missing, malformed or don't fit each other,
        UnsupportedError for what isn't implemented, InputError where `max_tokens` is out of range.
        """
        document = _Document(folder / "config.json")
        kind = document.get("model_type", str)
        architecture = ARCHITECTURES.get(kind)
        if architecture is None:
            raise UnsupportedError(
                f"{document.path}: architecture '{kind}' is not supported as an encoder, known are "
                f"{', '.join(ARCHITECTURES)}"
            )
        numbers = _numbers(document, architecture)
        pooling = _pooling(folder)
        limit = numbers["positions"] - numbers["first_position"]
        if limit < 1:
            raise document.fail(architecture.keys["positions"], "more than the first position", numbers["positions"])
        own = min(_max_tokens(folder, limit), limit)
        if max_tokens is not None and (
            isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or not 1 <= max_tokens <= limit
        ):
            raise InputError(f"'max_tokens' must be from 1 to the model's positions, {limit}, but is {max_tokens!r}")
        config = cls(architecture.name, **numbers, **pooling, max_tokens=max_tokens or own)
        return cls(**{**config.numbers(), "tensors": _tensors(config, weights)})

    @property
    def plan(self) -> EncoderArchitecture:
        """What the architecture's files call things."""
        return ARCHITECTURES[self.architecture]

    def numbers(self) -> dict[str, Any]:
        """All fields but the tensors, as JSON can write them."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "tensors"}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter, by its name, in the order of use; a matrix is [outputs, inputs]."""
        hidden, ffn = self.hidden, self.ffn
        found: dict[str, tuple[int, ...]] = {
            "embeddings.word_embeddings.weight": (self.vocab, hidden),
            "embeddings.position_embeddings.weight": (self.positions, hidden),
        }
        if self.types:
            found["embeddings.token_type_embeddings.weight"] = (self.types, hidden)
        found |= {"embeddings.LayerNorm.weight": (hidden,), "embeddings.LayerNorm.bias": (hidden,)}
        matrices = {"up": (ffn, hidden), "down": (hidden, ffn)}
        for number in range(self.layers):
            for role in self.plan.parts:
                shape = (hidden,) if role.endswith("_norm") else matrices.get(role, (hidden, hidden))
                found[self.part(number, role, "weight")] = shape
                found[self.part(number, role, "bias")] = shape[:1]
        return found

    def part(self, layer: int, role: str, kind: str) -> str:
        """The name of the weight or the bias of a part of a layer."""
        return f"{self.plan.layer.format(layer)}.{self.plan.parts[role]}.{kind}"


class _Document:
    """A file with one JSON object, whose entries are checked as they are read."""

    def __init__(self, path: Path, *, optional: bool = False) -> None:
        self.path = path
        self.content: Any = {}
        if optional and not path.is_file():
            return
        try:
            self.content = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            raise ModelFileError("the file is missing; an encoder is a folder that has it", path=path) from None
        except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise ModelFileError(f"the file must hold JSON: {error}", path=path) from None
        if not isinstance(self.content, dict):
            raise ModelFileError(f"the file must hold a JSON object, but holds {str(self.content)[:80]}", path=path)

    def fail(self, key: str, rule: str, value: Any) -> ModelFileError:
        return ModelFileError(f"'{key}' must be {rule}, but is {value!r}", path=self.path)

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """An entry of a type; where there is none, the default, or an error where that is None."""
        value = self.content.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.fail(key, f"of type {kind.__name__}", value)
        return value

    def integer(self, key: str, least: int = 1, default: int | None = None) -> int:
        value = self.get(key, int, default)
        if not least <= value < 1 << 31:
            raise self.fail(key, f"an integer from {least} to 2^31 - 1", value)
        return int(value)


def _numbers(document: _Document, architecture: EncoderArchitecture) -> dict[str, Any]:
    """The fields of `EncoderConfig` that `config.json` gives."""
    found = [
        f"'{key}' = {document.content[key]!r}"
        for key, neutral in _REFUSED.items()
        if document.content.get(key) not in neutral
    ]
    if found:
        raise UnsupportedError(f"{document.path}: what this asks for is not supported: {', '.join(found)}")
    keys = architecture.keys
    numbers: dict[str, Any] = {
        name: document.integer(keys[name]) for name in ("layers", "hidden", "heads", "ffn", "vocab", "positions")
    }
    if numbers["hidden"] % numbers["heads"]:
        raise document.fail(keys["hidden"], f"a multiple of the heads, {numbers['heads']}", numbers["hidden"])
    numbers["types"] = document.integer(keys["types"], default=2) if architecture.has_types else 0
    first = architecture.first_position
    numbers["first_position"] = document.integer("pad_token_id", 0, default=1) + 1 if first is None else first
    word = document.get(keys["activation"], str, "gelu")
    if word not in ACTIVATIONS:
        raise UnsupportedError(
            f"{document.path}: '{keys['activation']}' is '{word}', but supported are {', '.join(ACTIVATIONS)}"
        )
    numbers["activation"] = ACTIVATIONS[word]
    eps = document.content.get("layer_norm_eps") if architecture.eps is None else architecture.eps
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 < eps < math.inf:
        raise document.fail("layer_norm_eps", "a finite number above 0", eps)
    numbers["eps"] = float(eps)
    return numbers


def _pooling(folder: Path) -> dict[str, Any]:
    """`pooling` and `normalize`, as `modules.json` has them; the mean, not normalised, where there is no such file."""
    path = folder / "modules.json"
    if not path.is_file():
        return {"pooling": "mean", "normalize": False}
    try:
        modules = json.loads(path.read_text("utf-8"))
        steps = [(str(module["type"]).rsplit(".", 1)[-1], str(module["path"])) for module in modules]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(f"the file must list modules with 'type' and 'path': {error!r}", path=path) from None
    kinds = [kind for kind, _ in steps]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UnsupportedError(
            f"{path}: modules must be Transformer, Pooling and maybe Normalize, but are {', '.join(kinds)}"
        )
    document = _Document(folder / steps[1][1] / "config.json")
    modes = [key for key, value in document.content.items() if key.startswith("pooling_mode") and value is True]
    words = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    if len(modes) != 1 or modes[0] not in words:
        raise UnsupportedError(
            f"{document.path}: the pooling must be one of {', '.join(words)}, but is {', '.join(modes) or 'none'}"
        )
    return {"pooling": words[modes[0]], "normalize": kinds[-1] == "Normalize"}


def _max_tokens(folder: Path, default: int) -> int:
    """Tokens of a text that the model was made for."""
    return _Document(folder / "sentence_bert_config.json", optional=True).integer("max_seq_length", default=default)


def _tensors(config: EncoderConfig, weights: SafetensorsFile) -> dict[str, str]:
    """The file's name of each parameter; raises one error with everything that is wrong."""
    prefix = f"{config.architecture}."  # where the file is of a model with a head
    inside = any(name.startswith(f"{prefix}embeddings.") for name in weights.tensors)
    if config.layers > len(weights.tensors):  # a number that can't be true isn't worth a long list
        raise ModelFileError(
            f"{config.layers} layers must have tensors, but there are {len(weights.tensors)}", path=weights.path
        )
    names = {name: (prefix if inside else "") + name for name in config.shapes()}
    missing, wrong, types = [], [], []
    for name, shape in config.shapes().items():
        info = weights.tensors.get(names[name])
        if info is None:
            missing.append(f"'{names[name]}'")
        elif info.shape != shape:
            wrong.append(f"'{info.name}' must be {list(shape)}, but is {list(info.shape)}")
        elif info.type not in FLOATS.values():
            types.append(f"'{info.name}' is {info.type}")
    if missing or wrong:
        parts = [f"missing tensors: {_list(missing)}"] if missing else []
        parts += [f"wrong shapes: {_list(wrong)}"] if wrong else []
        raise ModelFileError(f"the tensors don't fit config.json: {'; '.join(parts)}", path=weights.path)
    if types:
        raise UnsupportedError(
            f"{weights.path}: tensor types that are not supported: {_list(types)}; supported are {', '.join(FLOATS)}"
        )
    heads = (
        (prefix if inside else "") + config.plan.layer.split(".{}")[0] + ".",
        f"{prefix if inside else ''}embeddings.",
    )
    used = {*names.values(), f"{heads[1]}position_ids", f"{heads[1]}token_type_ids"}
    unknown = [f"'{name}'" for name in weights.tensors if name.startswith(heads) and name not in used]
    if unknown:
        raise UnsupportedError(
            f"{weights.path}: architecture '{config.architecture}' has no use for these tensors, and leaving them out "
            f"would change results: {_list(unknown)}"
        )
    return names


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


__all__ = ["ARCHITECTURES", "POOLINGS", "EncoderArchitecture", "EncoderConfig"]
