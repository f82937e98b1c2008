# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an encoder is, read from the folder of a model: `config.json`, the files of sentence-transformers, tensors.

Encoders are bidirectional transformers of one plan, norms after the sums, biases everywhere:

    x = norm(word[token] + position[place] + type[0])
    h = norm(x + attention(q, k, v) Wo);    y = norm(h + act(h Wu) Wd)

An architecture says what a tensor and a key of `config.json` are called. The checks run before anything is built.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from .. import budgets
from ..errors import InputError, ModelFileError, UnsupportedError, shortened
from ..files import Json, is_there
from ..frontends.documents import Document, read_object
from ..frontends.safetensors import FLOATS, SafetensorsFile, ShardedSafetensors
from .sentence_files import SentenceFiles, TextRules

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

_REFUSED: Mapping[str, tuple[object, ...]] = {
    "position_embedding_type": (None, "absolute"),
    "is_decoder": (None, False),
    "add_cross_attention": (None, False),
    "pruned_heads": (None, {}),
    "quantization_config": (None,),
    "auto_map": (None, {}),
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
        texts: what happens to a text before it is cut into tokens.
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
    texts: TextRules = field(default_factory=TextRules)

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        weights: SafetensorsFile | ShardedSafetensors,
        max_tokens: int | None = None,
        files: SentenceFiles | None = None,
    ) -> EncoderConfig:
        """Reads and checks the configuration.

        Args:
            folder: with `config.json`, and for sentence embeddings `modules.json` and what it names; without these,
                vectors are the mean over tokens, not normalised.
            weights: the folder's tensors.
            max_tokens: tokens of a text that are read; by default what the folder says.
            files: what the files of sentence-transformers say, where they are read already.

        Raises ModelFileError for files and tensors that are missing, malformed or don't fit each other,
        UnsupportedError for what isn't implemented, InputError where `max_tokens` is out of range.
        """
        files = SentenceFiles.of(folder) if files is None else files
        document = Document(files.base / "config.json", "an encoder")
        kind = document.get("model_type", str)
        architecture = ARCHITECTURES.get(kind)
        if architecture is None:
            raise UnsupportedError(
                f"{document.path}: architecture {shortened(kind)} is not supported as an encoder, known are "
                f"{', '.join(ARCHITECTURES)}"
            )
        numbers = _numbers(document, architecture)
        if files.width not in (None, numbers["hidden"]):
            raise ModelFileError(
                f"the pooling is of width {files.width}, but vectors are of {numbers['hidden']}", path=folder
            )
        limit = numbers["positions"] - numbers["first_position"]
        if limit < 1:
            raise document.fail(architecture.keys["positions"], "more than the first position", numbers["positions"])
        own = min(files.max_tokens or _model_max_length(files.base, limit), limit)
        if max_tokens is not None and (
            isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or not 1 <= max_tokens <= limit
        ):
            raise InputError(f"'max_tokens' must be from 1 to the model's positions, {limit}, but is {max_tokens!r}")
        config = cls(
            architecture.name,
            **numbers,
            pooling=files.pooling,
            normalize=files.normalize,
            max_tokens=max_tokens or own,
            texts=files.texts,
        )
        return replace(config, tensors=_tensors(config, weights))

    @classmethod
    def from_document(cls, document: Document) -> EncoderConfig:
        """What `numbers` and ``texts`` have written as JSON; tensors have no names of files.

        Raises ModelFileError for what they can't have written.
        """
        words = {
            "architecture": tuple(ARCHITECTURES),
            "activation": tuple(dict.fromkeys(ACTIVATIONS.values())),
            "pooling": POOLINGS,
        }
        found: dict[str, Json] = {key: document.get(key, str) for key in words}
        for key, known in words.items():
            if found[key] not in known:
                raise document.fail(key, f"one of {', '.join(known)}", found[key])
        for key in ("layers", "hidden", "heads", "ffn", "vocab", "positions", "max_tokens"):
            found[key] = document.integer(key)
        for key in ("first_position", "types"):
            found[key] = document.integer(key, 0)
        found["eps"], found["normalize"] = document.number("eps"), document.get("normalize", bool)
        budgets.check("layers", found["layers"], str(document.path))
        room = found["positions"] - found["first_position"]
        if found["max_tokens"] > room:
            raise document.fail("max_tokens", f"at most the {room} positions", found["max_tokens"])
        texts = document.part("texts")
        prompts, default = texts.get("prompts", dict), texts.content.get("default_prompt")
        if not all(isinstance(text, str) for text in prompts.values()):
            raise texts.fail("prompts", "texts by name", prompts)
        if default is not None and (not isinstance(default, str) or default not in prompts):
            raise texts.fail("default_prompt", "the name of a prompt", default)
        rules = TextRules(texts.get("strip", bool), texts.get("lowercase", bool), prompts, default)
        return cls(**found, texts=rules)

    @property
    def plan(self) -> EncoderArchitecture:
        """What the architecture's files call things."""
        return ARCHITECTURES[self.architecture]

    def numbers(self) -> dict[str, object]:
        """All fields but the tensors and what is done to texts, as JSON can write them."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("tensors", "texts")}

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


def _numbers(document: Document, architecture: EncoderArchitecture) -> dict[str, Json]:
    """The fields of `EncoderConfig` that `config.json` gives."""
    if found := document.refused(_REFUSED):
        raise UnsupportedError(f"{document.path}: what this asks for is not supported: {', '.join(found)}")
    keys = architecture.keys
    numbers: dict[str, Json] = {
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
            f"{document.path}: '{keys['activation']}' is {shortened(word)}, but supported are {', '.join(ACTIVATIONS)}"
        )
    numbers["activation"] = ACTIVATIONS[word]
    eps = document.content.get("layer_norm_eps") if architecture.eps is None else architecture.eps
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 < eps < math.inf:
        raise document.fail("layer_norm_eps", "a finite number above 0", eps)
    numbers["eps"] = float(eps)
    return numbers


def _model_max_length(folder: Path, limit: int) -> int:
    """Tokens of a text that the tokenizer was made for, where nothing else says how many are read."""
    path = folder / "tokenizer_config.json"
    value = read_object(path).get("model_max_length") if is_there(path) else None
    if value is None:
        return limit
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
        raise ModelFileError(f"'model_max_length' must be a number from 1 on, but is {shortened(value)}", path=path)
    return int(min(value, limit))


def _tensors(config: EncoderConfig, weights: SafetensorsFile | ShardedSafetensors) -> dict[str, str]:
    """The file's name of each parameter; raises one error with everything that is wrong."""
    prefix = f"{config.architecture}."  # where the file is of a model with a head
    inside = any(name.startswith(f"{prefix}embeddings.") for name in weights.tensors)
    if config.layers > len(weights.tensors):  # a number that can't be true isn't worth a long list
        raise ModelFileError(
            f"{config.layers} layers must have tensors, but there are {len(weights.tensors)}", path=weights.path
        )
    budgets.check("layers", config.layers, str(weights.path))
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
