# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a model is, read from a GGUF file's metadata and checked against its tensors.

The checks run before anything is built or compiled, and say everything that is wrong in one error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import budgets
from ..errors import GGUFError, InputError, UnsupportedError, nearest
from ..formats import FORMATS_BY_ID
from ..frontends.gguf import GGUFFile, TensorInfo
from .architecture import ARCHITECTURES, Architecture
from .caches import check_kv_dtype

WEIGHT_TYPES = frozenset(fmt.name for fmt in FORMATS_BY_ID.values() if fmt.is_weight)
"""Types that a weight matrix may have."""

VECTOR_TYPES = frozenset({"f32", "f16", "bf16"})
"""Types that a vector (a norm's scale) may have; it is f32 at run time."""

_LISTED = 12  # names that an error spells out


@dataclass(frozen=True)
class ModelConfig:
    """A decoder-only transformer.

    Attributes:
        architecture: name in `ARCHITECTURES`.
        layers: decoder layers.
        hidden: width of the residual stream.
        heads, kv_heads: query heads, and key/value heads, which divide them.
        head_dim: width of a head.
        ffn: width inside the feed-forward network.
        vocab: token ids.
        context: positions that the model was made for.
        eps: of the RMS norms.
        rope_base, rope_dims, rope_scale: positions are rotated in the first ``rope_dims`` elements of a head, pair i
            by ``position / (rope_scale * rope_base^(2i / rope_dims))``.
        window: keys that a local layer sees, the query's own included; 0 where no layer is local.
        local_period: layer i is global where i + 1 is a multiple of it; 0 where every layer is.
        local_rope_base: ``rope_base`` of local layers, whose scale is 1.
        attention_scale: what scores are multiplied by.
        tied_head: the embedding table is the output matrix too.
        weights: the file's tensors that the model uses, by name.
        kv_dtype: types of cached keys and values, see `caches.kinds`. The one choice that isn't the file's.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    eps: float
    rope_base: float
    rope_dims: int
    rope_scale: float
    window: int
    local_period: int
    local_rope_base: float
    attention_scale: float
    tied_head: bool
    weights: Mapping[str, TensorInfo] = field(repr=False)
    kv_dtype: str = "f32"

    def __post_init__(self) -> None:
        check_kv_dtype(self.kv_dtype, self.head_dim)

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> ModelConfig:
        """Reads and checks the configuration.

        Raises UnsupportedError for an architecture, option or tensor type that is not implemented, GGUFError for
        keys and tensors that are missing, malformed or don't fit each other. Metadata is checked first, one key at a
        time; everything wrong with the tensors is in one error.
        """
        _check_kind(file)
        architecture = ARCHITECTURES.get(file.architecture)
        if architecture is None:
            problems = [f"known are {', '.join(sorted(ARCHITECTURES))}"]
            if close := nearest(file.architecture, ARCHITECTURES):
                problems.append(f"the nearest is {close}")
            known = WEIGHT_TYPES | VECTOR_TYPES
            if types := [f"'{name}' is {info.type}" for name, info in file.tensors.items() if info.type not in known]:
                problems.append(f"nor are these types of tensors: {_list(types)}")
            raise UnsupportedError(
                f"{_where(file)}architecture '{file.architecture}' is not supported, {'; '.join(problems)}"
            )
        config = cls(**_numbers(file, architecture), weights={})
        weights = _tensors(file, architecture, config)
        return cls(**{**config.numbers(), "weights": weights, "tied_head": "output.weight" not in weights})

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes by the names that tensor rules use."""
        return {
            "hidden": self.hidden,
            "q_width": self.heads * self.head_dim,
            "kv_width": self.kv_width,
            "head_dim": self.head_dim,
            "ffn": self.ffn,
            "vocab": self.vocab,
            "rope_pairs": self.rope_dims // 2,
        }

    @property
    def kv_width(self) -> int:
        """Elements of one cached row of keys, and of values."""
        return self.kv_heads * self.head_dim

    @property
    def plan(self) -> Architecture:
        """What the architecture is made of."""
        return ARCHITECTURES[self.architecture]

    def is_local(self, layer: int) -> bool:
        """Whether a layer sees a window of keys only."""
        return bool(self.local_period) and (layer + 1) % self.local_period != 0

    @property
    def local_layers(self) -> int:
        """Number of layers that see a window only."""
        return sum(self.is_local(layer) for layer in range(self.layers))

    @property
    def head_weight(self) -> str:
        """Name of the matrix that gives logits."""
        return "token_embd.weight" if self.tied_head else "output.weight"

    @property
    def parameters(self) -> int:
        """Number of weights; a tied head counts once."""
        return sum(weight.size for weight in self.weights.values())

    @property
    def read_bytes(self) -> int:
        """Bytes of the weights that each token reads: all, but a table in which rows are only looked up."""
        looked_up = () if self.tied_head else ("token_embd.weight",)
        return sum(info.nbytes or 0 for name, info in self.weights.items() if name not in looked_up)

    def numbers(self) -> dict[str, Any]:
        """All fields but the weights, as JSON can write them."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "weights"}

    def rope_tables(
        self, positions: int, factors: np.ndarray | None = None, *, local: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines of positions 0 … positions - 1, f32 [positions, head_dim / 2] each.

        Angles are computed in f64. Pairs behind ``rope_dims`` have angle 0. ``factors``, [rope_dims / 2], divide the
        frequencies (``rope_freqs.weight``). ``local`` gives the tables of local layers.
        """
        base, scale = (self.local_rope_base, 1.0) if local else (self.rope_base, self.rope_scale)
        pairs = np.arange(self.rope_dims // 2, dtype=np.float64)
        frequencies = np.power(base, -2.0 * pairs / self.rope_dims) / scale
        if factors is not None:
            frequencies /= factors.astype(np.float64)
        angles = np.zeros((positions, self.head_dim // 2))
        angles[:, : len(pairs)] = np.arange(positions, dtype=np.float64)[:, None] * frequencies
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


_ROPE_SCALINGS = ("none", "linear")


def _check_kind(file: GGUFFile) -> None:
    """Refuses files that aren't a whole model, or whose numbers are of an older kind."""
    metadata = file.metadata
    count = metadata.get("split.count")
    if not _is_plain(count, None, 1, len(file.paths)):
        number = metadata.get("split.no")
        which = f"number {number + 1} of the {_short(count)}" if isinstance(number, int) else f"one of {_short(count)}"
        raise UnsupportedError(
            f"{_where(file)}is {which} files of a split model ('split.count', 'split.no'), which must be opened "
            "together, by the path of one of them"
        )
    kind = metadata.get("general.type")
    if not _is_plain(kind, None, "model"):
        raise UnsupportedError(f"{_where(file)}'general.type' must be 'model', but is {_short(kind)}")
    version = metadata.get("general.quantization_version")
    quantised = any(info.type in WEIGHT_TYPES - VECTOR_TYPES for info in file.tensors.values())
    if quantised and not _is_plain(version, None, 2):
        raise UnsupportedError(
            f"{_where(file)}'general.quantization_version' must be 2, but is {_short(version)}: blocks had "
            "another layout"
        )


class _Keys:
    """Metadata of one architecture, each value checked as it is read."""

    def __init__(self, file: GGUFFile, prefix: str) -> None:
        self.file = file
        self.prefix = prefix

    def get(self, key: str) -> Any:
        return self.file.metadata.get(f"{self.prefix}.{key}")

    def fail(self, key: str, rule: str, value: object) -> GGUFError:
        return GGUFError(f"metadata '{self.prefix}.{key}' must be {rule}, but is {value!r}", path=self.file.path)

    def require(self, keys: Iterable[str]) -> None:
        missing = [f"'{self.prefix}.{key}'" for key in keys if self.get(key) is None]
        if missing:
            raise GGUFError(f"metadata {', '.join(missing)} must be there, but the file lacks it", path=self.file.path)

    def integer(self, key: str, default: int, least: int = 1) -> int:
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, np.ndarray) and len(value) and (value == value[0]).all():
            value = value[0].item()  # some writers give one number for each layer
        elif isinstance(value, np.ndarray):
            raise UnsupportedError(
                f"{_where(self.file)}metadata '{self.prefix}.{key}' differs between layers, which is not supported: "
                f"{np.unique(value)[:8].tolist()}"
            )
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 31:
            raise self.fail(key, f"an integer from {least} to 2^31 - 1", value)
        return value

    def number(self, key: str, default: float, *, zero: float | None = None) -> float:
        """A number above 0; ``zero`` is what 0 means, where it means something."""
        value = self.get(key)
        if value is None:
            return default
        if zero is not None and not isinstance(value, bool | str | np.ndarray) and value == 0:
            return zero
        if isinstance(value, bool) or not isinstance(value, int | float) or not (0 < value < math.inf):
            raise self.fail(key, "a finite number above 0", value)
        return float(value)


def _numbers(file: GGUFFile, architecture: Architecture) -> dict[str, Any]:
    """The fields of `ModelConfig` that the metadata gives; vocab from the embedding table."""
    keys = _Keys(file, architecture.name)
    _refuse(keys, architecture)
    keys.require(
        (
            "block_count",
            "context_length",
            "embedding_length",
            "feed_forward_length",
            "attention.head_count",
            "attention.layer_norm_rms_epsilon",
        )
    )
    layers = keys.integer("block_count", 0)
    if layers > len(file.tensors):  # every layer has tensors: a number that cannot be true isn't worth a long list
        raise keys.fail("block_count", f"at most the number of tensors, {len(file.tensors)}", layers)
    budgets.check("layers", layers, f"{_where(file)}metadata '{keys.prefix}.block_count'")
    hidden, heads = keys.integer("embedding_length", 0), keys.integer("attention.head_count", 0)
    kv_heads = keys.integer("attention.head_count_kv", heads)
    if heads % kv_heads:
        raise keys.fail("attention.head_count", f"a multiple of the key/value heads, {kv_heads}", heads)
    if keys.get("attention.key_length") is None and hidden % heads:
        raise keys.fail("embedding_length", f"a multiple of the heads, {heads}, where no key length is given", hidden)
    head_dim = keys.integer("attention.key_length", hidden // heads)
    if head_dim < 2 or head_dim % 2:
        raise keys.fail("attention.key_length", "even", head_dim)
    value_length = keys.integer("attention.value_length", hidden // heads)  # not the key's: as the format says
    if value_length != head_dim:
        raise UnsupportedError(
            f"{_where(file)}heads of keys and values must be equally wide, but have {head_dim} and {value_length}"
        )
    rope_dims = keys.integer("rope.dimension_count", head_dim)
    if rope_dims % 2 or rope_dims > head_dim:
        raise keys.fail("rope.dimension_count", f"even and at most the head's width, {head_dim}", rope_dims)
    embedding = file.tensors.get("token_embd.weight")
    vocab = embedding.shape[0] if embedding is not None and len(embedding.shape) == 2 else 0
    declared = keys.integer("vocab_size", vocab)
    if vocab and declared != vocab:
        raise keys.fail("vocab_size", f"the rows of 'token_embd.weight', {vocab}", declared)
    wide = layers in architecture.wide_scale_layers
    return {
        "architecture": architecture.name,
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "ffn": keys.integer("feed_forward_length", 0),
        "vocab": vocab or declared,
        "context": keys.integer("context_length", 0),
        "eps": keys.number("attention.layer_norm_rms_epsilon", 0),
        "rope_base": keys.number("rope.freq_base", 10000.0),
        "rope_dims": rope_dims,
        "rope_scale": _rope_scale(keys),
        **_local_layers(keys, architecture),
        "attention_scale": (hidden / heads if wide else head_dim) ** -0.5,
        "tied_head": False,
    }


def _local_layers(keys: _Keys, architecture: Architecture) -> dict[str, Any]:
    """The fields that say which layers are local, and what they do."""
    local = architecture.local
    window = keys.integer("attention.sliding_window", 0, least=0)
    if local is None or not window:
        return {"window": 0, "local_period": 0, "local_rope_base": 0.0}
    return {
        "window": window,
        "local_period": keys.integer("attention.sliding_window_pattern", local.period),
        "local_rope_base": keys.number("rope.freq_base_swa", local.rope_base),
    }


def _refuse(keys: _Keys, architecture: Architecture) -> None:
    found = [
        f"'{keys.prefix}.{key}' = {_short(keys.get(key))}"
        for key, neutral in architecture.refused.items()
        if keys.get(key) is not None and not _is_one_of(keys.get(key), neutral)
    ]
    kind = keys.get("rope.scaling.type")
    if not _is_plain(kind, None, *_ROPE_SCALINGS):
        found.append(
            f"rope scaling {_short(kind)} ('{keys.prefix}.rope.scaling.type'; known are {', '.join(_ROPE_SCALINGS)})"
        )
    if found:
        raise UnsupportedError(f"{_where(keys.file)}what the metadata asks for is not supported: {', '.join(found)}")


def _is_plain(value: object, *plain: object) -> bool:
    """Whether a value is one of some; arrays, which compare element by element, are none of them."""
    return not isinstance(value, np.ndarray) and value in plain


def _is_one_of(value: object, neutral: tuple[Any, ...]) -> bool:
    """Whether a value, or each number of an array, is among some."""
    if isinstance(value, str):
        return value in neutral
    return bool(np.isin(np.asarray(value), neutral).all())


def _short(value: object) -> str:
    """A value as an error shows it."""
    if isinstance(value, np.ndarray):
        value = value[:8].tolist()
    return repr(value)[:80]


def _rope_scale(keys: _Keys) -> float:
    """What positions are divided by: 1 for the type ``none``. Where no type is given it is ``linear``.

    ``rope.scale_linear`` is the older name of the factor. Of either, 0 means 1.
    """
    key = "rope.scale_linear" if keys.get("rope.scaling.factor") is None else "rope.scaling.factor"
    factor = keys.number(key, 1.0, zero=1.0)
    return 1.0 if keys.get("rope.scaling.type") == "none" else factor


def _tensors(file: GGUFFile, architecture: Architecture, config: ModelConfig) -> dict[str, TensorInfo]:
    """The tensors by name, in the order of use; raises one error with everything that is wrong with them."""
    rules = {rule.name: rule for rule in architecture.model_tensors}
    for layer in range(config.layers):
        for rule in architecture.layer_tensors:
            rules[f"blk.{layer}.{rule.name}"] = rule
    sizes = config.sizes
    missing = [name for name, rule in rules.items() if name not in file.tensors and not rule.optional]
    unknown = [name for name in file.tensors if name not in rules]
    wrong, types = [], []
    for name, rule in rules.items():
        info = file.tensors.get(name)
        if info is None:
            continue
        expected = tuple(sizes[dim] for dim in rule.dims)
        if info.shape != expected:
            wrong.append(f"'{name}' must be {list(expected)} [{', '.join(rule.dims)}], but is {list(info.shape)}")
        if info.type not in (WEIGHT_TYPES if len(rule.dims) == 2 else VECTOR_TYPES):
            types.append(f"'{name}' is {info.type}")
    if missing or wrong:
        shown = missing[:_LISTED]  # names are compared for what is shown only
        named = [name + (f" (nearest: {close})" if (close := nearest(name, unknown)) else "") for name in shown]
        named += missing[_LISTED:]
        parts = [f"missing tensors: {_list(named)}"] if missing else []
        parts += [f"wrong shapes: {_list(wrong)}"] if wrong else []
        raise GGUFError(f"the tensors don't fit the metadata: {'; '.join(parts)}", path=file.path)
    problems = []
    if types:
        problems.append(
            f"tensor types that are not supported: {_list(types)}; a matrix may be "
            f"{', '.join(sorted(WEIGHT_TYPES))}, a vector {', '.join(sorted(VECTOR_TYPES))}"
        )
    if unknown:
        problems.append(
            f"architecture '{architecture.name}' has no use for these tensors, and leaving them out would change "
            f"results: {_list(unknown)}"
        )
    if problems:
        raise UnsupportedError(f"{_where(file)}{'; '.join(problems)}")
    return {name: file.tensors[name] for name in rules if name in file.tensors}


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _where(file: GGUFFile) -> str:
    return f"{file.path}: " if file.path else ""


def check_context(config: ModelConfig, context: int | None, default: int = 2048) -> int:
    """Positions to plan for: ``context``, or what the model was made for, at most ``default``.

    Raises InputError where ``context`` isn't from 1 to the model's own.
    """
    if context is None:
        return min(config.context, default)
    if isinstance(context, bool) or not isinstance(context, int) or not 1 <= context <= config.context:
        raise InputError(f"'context' must be from 1 to the model's, {config.context}, but is {context!r}")
    return context


__all__ = ["ModelConfig", "check_context"]
