# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a model is, read from a GGUF file's metadata and checked against its tensors.

The checks run before anything is built or compiled, and say everything that is wrong in one error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import budgets
from ..errors import GGUFError, InputError, UnsupportedError, nearest
from ..formats import FORMATS_BY_ID
from ..frontends.model_file import MetadataValue, ModelFile, TensorInfo
from .architecture import LONG_ROPE_FACTORS, ROPE_FACTORS, Architecture, TensorRule
from .architectures import ARCHITECTURES
from .caches import check_kv_dtype
from .keys import Keys, where
from .latent import Latent
from .networks import routing_of, sparse_of, widths_of
from .recurrent import Recurrence, convs_of, delta_of, scans_of
from .rope import Yarn, frequencies
from .routing import BY_SOFTMAX, Routing
from .streams import Streams
from .streams_of import streams_of

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
        head_dim: width of a head as caches have it: with latents that of the one of keys, `Latent.row`.
        ffn: width inside the feed-forward network.
        experts, experts_used, expert_ffn: feed-forward networks of a layer, those that a token has, and the width
            inside of each; 0 where a layer has one network.
        experts_normalised: the weights of a token's experts are divided by their sum.
        shared_ffn: width inside of the network that all tokens have beside their experts; 0 where there is none.
        vocab: token ids.
        context: positions that the model was made for.
        eps: of the norms.
        rope_style: which elements rotate together, see `Architecture`.
        rope_base, rope_dims, rope_scale: positions are rotated in the first ``rope_dims`` elements of a head, pair i
            by ``position / (rope_scale * rope_base^(2i / rope_dims))``.
        rope_original: positions up to which the first of two tensors of factors is for.
        rope_attention: what rotated elements are multiplied by.
        yarn: in which pairs positions are stretched; None for all.
        unrotated: layers in which nothing is rotated.
        window: keys that a local layer sees, the query's own included; 0 where no layer is local.
        local: the layers that are local.
        local_rope_base: ``rope_base`` of local layers, whose scale is 1; 0 where they rotate as the others do.
        attention_scale: what scores are multiplied by.
        attention_softcap, logit_softcap: c of the scores, and of the logits, that are c tanh(x / c); 0 for none.
        embedding_scale, residual_scale: what rows of the table, and what a layer adds, are multiplied by.
        logit_scale: what logits are divided by.
        tied_head: the embedding table is the output matrix too.
        weights: the file's tensors that the model uses, by name.
        kv_dtype: types of cached keys and values, see `caches.kinds`. The one choice that isn't the file's.
        latent: what keys and values are made of, where that isn't the token.
        routing: how experts are chosen.
        sparse: the layers that have experts in place of one network; None for all.
        delta: the layers whose past is a state of one size, and its sizes; None where there are none.
        predicts: the layer behind the last one predicts the token after the next one, see `prediction`.
        attends: the layers with attention; None for those without a state.
        networks: the layers with a feed-forward network; None for all.
        streams: what layers change that have several streams; None for those of one.
        extra_vocab: rows of the table of what tokens have for each layer; ids behind them read row 0.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    experts: int
    experts_used: int
    expert_ffn: int
    experts_normalised: bool
    shared_ffn: int
    vocab: int
    context: int
    eps: float
    rope_style: str
    rope_base: float
    rope_dims: int
    rope_scale: float
    rope_original: int
    rope_attention: float
    yarn: Yarn | None
    unrotated: tuple[int, ...]
    window: int
    local: tuple[int, ...]
    local_rope_base: float
    attention_scale: float
    attention_softcap: float
    logit_softcap: float
    embedding_scale: float
    residual_scale: float
    logit_scale: float
    tied_head: bool
    weights: Mapping[str, TensorInfo] = field(repr=False)
    kv_dtype: str = "f32"
    latent: Latent | None = None
    routing: Routing = field(default=BY_SOFTMAX, repr=False)
    sparse: tuple[int, ...] | None = field(default=None, repr=False)
    delta: Recurrence | None = field(default=None, repr=False)
    predicts: bool = field(default=False, repr=False)
    attends: tuple[int, ...] | None = field(default=None, repr=False)
    networks: tuple[int, ...] | None = field(default=None, repr=False)
    streams: Streams | None = field(default=None, repr=False)
    extra_vocab: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        check_kv_dtype(self.kv_dtype, self.head_dim, one=self.latent is not None)

    @classmethod
    def from_gguf(cls, file: ModelFile) -> ModelConfig:
        """Reads and checks the configuration; of a folder, too, which shows itself as such a file.

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
                f"{where(file)}architecture '{file.architecture}' is not supported, {'; '.join(problems)}"
            )
        if not _is_one_of(file.metadata.get(f"{architecture.name}.expert_count", 0), (0,)):
            architecture = architecture.with_experts
        if not _is_one_of(file.metadata.get(f"{architecture.name}.attention.q_lora_rank", 0), (0,)):
            architecture = architecture.with_short_queries
        config = cls(**_numbers(file, architecture), weights={})
        weights = _tensors(file, architecture, config)
        return replace(config, weights=weights, tied_head="output.weight" not in weights)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes by the names that tensor rules use."""
        return {
            "hidden": self.hidden,
            "q_width": self.heads * self.head_dim,
            "kv_width": self.kv_width,
            "head_dim": self.head_dim,
            "heads": self.heads,
            "ffn": self.ffn,
            "experts": self.experts,
            "expert_ffn": self.expert_ffn,
            "shared_ffn": self.shared_ffn,
            "vocab": self.vocab,
            "rope_pairs": self.rope_dims // 2,
            "gated_queries": 2 * self.heads * self.head_dim,
            "both_hidden": 2 * self.hidden,
            **(self.delta.sizes() if self.delta else {}),
            **(self.latent.sizes(self.heads) if self.latent else {}),
            **({"extra_vocab": self.extra_vocab, **self.streams.sizes()} if self.streams else {}),
        }

    @property
    def kv_width(self) -> int:
        """Elements of one cached row of keys, and of values."""
        return self.kv_heads * self.head_dim

    @property
    def plan(self) -> Architecture:
        """What the architecture is made of."""
        found = ARCHITECTURES[self.architecture]
        if self.latent and self.latent.query_rank:
            found = found.with_short_queries
        return found.with_experts if self.experts else found

    @property
    def rotated_head(self) -> int:
        """Width of what rotations see of a head."""
        return self.latent.rotated if self.latent else self.head_dim

    def has_experts(self, layer: int) -> bool:
        """Whether a layer's feed-forward networks are experts; that behind the last one predicts further ahead."""
        return self.experts > 0 and (self.sparse is None or layer in self.sparse)

    def is_recurrent(self, layer: int) -> bool:
        """Whether a layer's past is a state of one size."""
        return self.delta is not None and layer in self.delta.layers

    @property
    def attentive(self) -> tuple[int, ...]:
        """The layers whose past is keys and values of each token."""
        if self.attends is not None:
            return self.attends
        if self.streams is not None:
            return self.streams.owners
        return tuple(layer for layer in range(self.layers) if not self.is_recurrent(layer))

    def has_network(self, layer: int) -> bool:
        """Whether a layer has a feed-forward network, or experts."""
        return self.networks is None or layer in self.networks

    def is_network(self, layer: int) -> bool:
        """Whether a layer is a feed-forward network and nothing else."""
        return (
            self.source(layer) == layer
            and not self.is_recurrent(layer)
            and layer < self.layers
            and layer not in self.attentive
        )

    @property
    def trails(self) -> list[str]:
        """Names of the trails of layers with states, in their order."""
        return [] if self.delta is None else [f"trail_{layer}" for layer in self.delta.layers]

    def source(self, layer: int) -> int:
        """The layer whose keys and values a layer reads: itself, or one before it."""
        return layer if self.streams is None or layer >= self.layers else self.streams.sources[layer]

    def is_local(self, layer: int) -> bool:
        """Whether a layer sees a window of keys only."""
        return layer in self.local

    @property
    def local_layers(self) -> int:
        """Number of layers that see a window only."""
        return len(self.local)

    @property
    def permuted_heads(self) -> bool:
        """Whether the rows of queries and keys whose elements rotate together are beside each other, but aren't in
        folders."""
        return self.rope_style == "interleaved" and self.latent is None and not self.plan.folder_order

    @property
    def is_plain(self) -> bool:
        """Whether a layer is what the block `llama_decoder_block` computes."""
        plan = self.plan
        choices: list[object] = [plan.qkv_bias, plan.head_norms, not plan.pre_norms, plan.post_norms, plan.sinks]
        choices += [self.local, self.unrotated, self.experts, self.attention_softcap, self.residual_scale != 1.0]
        choices += [self.rope_style == "half" and self.rope_dims < self.head_dim, self.latent, plan.gated]
        choices += [plan.norms_rotated, plan.layer_norms, plan.parallel, not plan.gate, plan.ffn_biases]
        choices += [plan.scans, plan.streams]
        return not any(choices) and plan.activation == "silu" and self.attention_scale == self.head_dim**-0.5

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

    def numbers(self) -> dict[str, object]:
        """All fields but the weights, as JSON can write them."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "weights"}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def rope_tables(
        self, positions: int, factors: np.ndarray | None = None, *, local: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines of positions 0 … positions - 1, f32 [positions, rotated_head / 2] each.

        Angles are computed in f64. Pairs behind ``rope_dims`` have angle 0. ``factors``, [rope_dims / 2], divide the
        frequencies (see `factors_of`). ``local`` gives the tables of local layers.
        """
        own = local and self.local_rope_base > 0
        base, scale = (self.local_rope_base, 1.0) if own else (self.rope_base, self.rope_scale)
        turns = frequencies(base, self.rope_dims, scale, None if own else self.yarn)
        if factors is not None:
            turns /= factors.astype(np.float64)
        angles = np.arange(positions, dtype=np.float64)[:, None] * turns
        cos, sin = np.ones((positions, self.rotated_head // 2)), np.zeros((positions, self.rotated_head // 2))
        factor = 1.0 if own else self.rope_attention
        cos[:, : len(turns)], sin[:, : len(turns)] = np.cos(angles) * factor, np.sin(angles) * factor
        return cos.astype(np.float32), sin.astype(np.float32)

    def factors_of(self, positions: int) -> str | None:
        """The tensor whose elements divide the frequencies of tables for so many positions; None where none does."""
        short, long = LONG_ROPE_FACTORS
        if ROPE_FACTORS in self.weights:
            return ROPE_FACTORS
        name = long if positions > self.rope_original else short
        return name if name in self.weights else None


_ROPE_SCALINGS = ("none", "linear", "longrope", "yarn")


def _check_kind(file: ModelFile) -> None:
    """Refuses files that aren't a whole model, or whose numbers are of an older kind."""
    metadata = file.metadata
    count = metadata.get("split.count")
    if not _is_plain(count, None, 1, len(file.paths)):
        number = metadata.get("split.no")
        which = f"number {number + 1} of the {_short(count)}" if isinstance(number, int) else f"one of {_short(count)}"
        raise UnsupportedError(
            f"{where(file)}is {which} files of a split model ('split.count', 'split.no'), which must be opened "
            "together, by the path of one of them"
        )
    kind = metadata.get("general.type")
    if not _is_plain(kind, None, "model"):
        raise UnsupportedError(f"{where(file)}'general.type' must be 'model', but is {_short(kind)}")
    version = metadata.get("general.quantization_version")
    quantised = any(info.type in WEIGHT_TYPES - VECTOR_TYPES for info in file.tensors.values())
    if quantised and not _is_plain(version, None, 2):
        raise UnsupportedError(
            f"{where(file)}'general.quantization_version' must be 2, but is {_short(version)}: blocks had "
            "another layout"
        )


def _numbers(file: ModelFile, architecture: Architecture) -> dict[str, MetadataValue]:
    """The fields of `ModelConfig` that the metadata gives; vocab from the embedding table."""
    keys = Keys(file, architecture.name)
    _refuse(keys, architecture)
    keys.require(
        (
            "block_count",
            "context_length",
            "embedding_length",
            "attention.head_count",
            architecture.eps_key,
            *architecture.needs,
        )
    )
    predicted = _predicted(keys) if architecture.predicts else 0
    layers = keys.integer("block_count", 0, least=1 + predicted) - predicted
    if layers > len(file.tensors):  # every layer has tensors: a number that cannot be true isn't worth a long list
        raise keys.fail("block_count", f"at most the number of tensors, {len(file.tensors)}", layers)
    budgets.check("layers", layers, f"{where(file)}metadata '{keys.prefix}.block_count'")
    alone = architecture.scans == "all"  # without attention, and with 0 heads
    hidden, heads = keys.integer("embedding_length", 0), 0 if alone else keys.integer("attention.head_count", 0)
    kv_heads, past, kinds = _past(keys, architecture, layers, heads, hidden)
    if kv_heads and heads % kv_heads:
        raise keys.fail("attention.head_count", f"a multiple of the key/value heads, {kv_heads}", heads)
    latent = _latent(keys, kv_heads) if architecture.latent else None
    head_dim = latent.row if latent else _head_dim(keys, hidden, heads) if heads else 0
    rotated, width = (latent.rotated, latent.query) if latent else (head_dim, head_dim)
    embedding = file.tensors.get("token_embd.weight")
    vocab = embedding.shape[0] if embedding is not None and len(embedding.shape) == 2 else 0
    declared = keys.integer("vocab_size", vocab)
    if vocab and declared != vocab:
        raise keys.fail("vocab_size", f"the rows of 'token_embd.weight', {vocab}", declared)
    context = keys.integer("context_length", 0)
    local = _local_layers(keys, architecture, layers, context)
    table = file.tensors.get("per_layer_token_embd.weight")
    wide = layers in architecture.wide_scale_layers
    scale = 1.0 if architecture.streams else (hidden / heads if wide else max(width, 1)) ** -0.5
    return {
        "architecture": architecture.name,
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        **widths_of(keys, architecture),
        "vocab": vocab or declared,
        "context": context,
        "eps": keys.number(architecture.eps_key, 0),
        **_rope(keys, architecture, layers, rotated, context),
        **local,
        **_factors(keys, architecture, hidden, scale * _stretched_scale(keys) if latent else scale),
        "tied_head": False,
        "latent": latent,
        "routing": routing_of(keys, architecture.experts),
        "sparse": sparse_of(keys, architecture, layers),
        "delta": past,
        "predicts": predicted > 0,
        "streams": streams_of(keys, layers, local["local"]) if architecture.streams else None,
        "extra_vocab": table.shape[0] if architecture.streams and table is not None else 0,
        **kinds,
    }


def _past(
    keys: Keys, architecture: Architecture, layers: int, heads: int, hidden: int
) -> tuple[int, Recurrence | None, dict[str, MetadataValue]]:
    """Heads of keys and values, the layers with states, and the fields that say what else layers have."""
    if architecture.scans:
        kv_heads, scan, attends, networks = scans_of(keys, layers, heads, architecture=architecture)
        return kv_heads, scan, {"attends": attends, "networks": networks}
    if architecture.convs:
        return (*convs_of(keys, layers, heads, hidden), {})
    delta = delta_of(keys, layers) if architecture.delta else None
    return keys.integer("attention.head_count_kv", heads), delta, {}


def _predicted(keys: Keys) -> int:
    """How many of the layers predict further ahead: one, or none."""
    found = keys.integer("nextn_predict_layers", 0, least=0)
    if found > 1:
        raise UnsupportedError(
            f"{where(keys.file)}metadata '{keys.prefix}.nextn_predict_layers' must be 0 or 1, but is {found}"
        )
    return found


def _latent(keys: Keys, kv_heads: int) -> Latent:
    """What keys and values are made of. Of a head there are two widths: that of the cached row, and, by keys that end
    with `_mla`, that of the parts that stand for it in scores."""
    if keys.get("attention.key_length_mla") is None and keys.get("attention.kv_lora_rank") is not None:
        raise UnsupportedError(
            f"{where(keys.file)}the metadata lacks '{keys.prefix}.attention.key_length_mla': only files that were "
            "written before latents were cached do, and those have keys and values in tensors attn_kv_b"
        )
    own = ("kv_lora_rank", "key_length", "value_length", "key_length_mla", "value_length_mla")
    keys.require((*(f"attention.{key}" for key in own), "rope.dimension_count"))
    rank, row, value, query, narrow = (keys.integer(f"attention.{key}", 0) for key in own)
    rotated = keys.integer("rope.dimension_count", 0)
    if rotated % 2 or rotated >= query:
        raise keys.fail("rope.dimension_count", f"even and less than the width of queries, {query}", rotated)
    for key, found, rule, wanted in (
        ("attention.head_count_kv", kv_heads, "1, as all heads share the latents", 1),
        ("attention.key_length", row, f"the rank and what rotates, {rank} + {rotated}", rank + rotated),
        ("attention.value_length", value, f"the rank, {rank}", rank),
    ):
        if found != wanted:
            raise keys.fail(key, rule, found)
    return Latent(rank, keys.integer("attention.q_lora_rank", 0, least=0), query - rotated, rotated, narrow)


def _stretched_scale(keys: Keys) -> float:
    """What scores of latents are multiplied by where YaRN stretches positions: the square of what grows with the
    logarithm of the factor. Files of other architectures multiply what rotates."""
    if keys.get("rope.scaling.type") != "yarn":
        return 1.0
    weight = keys.number("rope.scaling.yarn_log_multiplier", 0.0, zero=0.0)
    return (1.0 + weight * math.log(max(_rope_scale(keys), 1.0))) ** 2


def _head_dim(keys: Keys, hidden: int, heads: int) -> int:
    """The width of heads."""
    if keys.get("attention.key_length") is None and hidden % heads:
        raise keys.fail("embedding_length", f"a multiple of the heads, {heads}, where no key length is given", hidden)
    head_dim = keys.integer("attention.key_length", hidden // heads)
    if head_dim < 2 or head_dim % 2:
        raise keys.fail("attention.key_length", "even", head_dim)
    value_length = keys.integer("attention.value_length", hidden // heads)  # not the key's: as the format says
    if value_length != head_dim:
        raise UnsupportedError(
            f"{where(keys.file)}heads of keys and values must be equally wide, but have {head_dim} and {value_length}"
        )
    return head_dim


def _rope(keys: Keys, architecture: Architecture, layers: int, head_dim: int, context: int) -> dict[str, MetadataValue]:
    """The fields of rotations."""
    rope_dims = keys.integer("rope.dimension_count", head_dim) if head_dim else 0
    if rope_dims % 2 or rope_dims > head_dim:
        raise keys.fail("rope.dimension_count", f"even and at most the head's width, {head_dim}", rope_dims)
    base, scale = keys.number("rope.freq_base", 10000.0), _rope_scale(keys)
    original = keys.integer("rope.scaling.original_context_length", context)
    attention = keys.number("rope.scaling.attn_factor", 1.0)
    yarn = _yarn(keys, base, original, architecture.whole_pairs)
    if yarn is not None and not architecture.latent:  # where scores grow
        attention *= 1.0 + 0.1 * math.log(max(scale, 1.0))
    rotated = keys.flags("rope.layers", layers)
    period = architecture.unrotated_period
    turns = keys.flag("rope.scaling.finetuned", False) if architecture.rotates is None else architecture.rotates
    if not turns:
        rotated = [False] * layers
    if rotated is None:
        rotated = [not period or (layer + 1) % period != 0 for layer in range(layers)]
    style = "half" if keys.flag("rope.halves", False) else architecture.rope_style
    return {
        "rope_style": style,
        "rope_base": base,
        "rope_dims": rope_dims,
        "rope_scale": scale,
        "rope_original": original,
        "rope_attention": attention,
        "yarn": yarn,
        "unrotated": tuple(layer for layer in range(layers) if not rotated[layer]),
    }


def _yarn(keys: Keys, base: float, original: int, whole: bool) -> Yarn | None:
    """In which pairs positions are stretched; None for all. `whole` is whether bounds are whole pairs by default."""
    mixed, stretched = keys.get("rope.scaling.yarn_ext_factor"), keys.get("rope.scaling.type") == "yarn"
    allowed = (None, -1.0, 0.0, 1.0) if stretched else (None, -1.0, 0.0)
    if not _is_plain(mixed, *allowed):
        raise UnsupportedError(
            f"{where(keys.file)}what the metadata asks for is not supported: "
            f"'{keys.prefix}.rope.scaling.yarn_ext_factor' = {_short(mixed)}"
        )
    if not stretched or mixed == 0:  # without any of it, all pairs are stretched
        return None
    if not base > 1:
        raise keys.fail("rope.freq_base", "above 1 where positions are stretched by YaRN", base)
    fast = keys.number("rope.scaling.yarn_beta_fast", 32.0)
    slow = keys.number("rope.scaling.yarn_beta_slow", 1.0)
    return Yarn(original, fast, slow, keys.flag("rope.scaling.yarn_truncate", whole))


def _local_layers(keys: Keys, architecture: Architecture, layers: int, context: int) -> dict[str, MetadataValue]:
    """The fields that say which layers are local, and what they and the others do."""
    local = architecture.local
    window = keys.integer("attention.sliding_window", 0, least=0)
    if local is None or not window:
        return {"window": 0, "local": (), "local_rope_base": 0.0}
    chosen = keys.flags("attention.sliding_window_pattern", layers)
    if chosen is None:
        period = keys.integer("attention.sliding_window_pattern", local.period, least=0)
        chosen = [not period or (layer + 1) % period != 0 for layer in range(layers)]
    found = tuple(layer for layer in range(layers) if chosen[layer])
    alone = {"unrotated": tuple(set(range(layers)) - set(found))} if local.rotate_alone else {}
    own_base = local.rope_base is not None or not local.stretched
    if window >= context and not own_base:
        return {"window": 0, "local": (), "local_rope_base": 0.0, **alone}
    base = 0.0
    if own_base and found:
        base = keys.number("rope.freq_base_swa", local.rope_base or keys.number("rope.freq_base", 10000.0))
    return {"window": window if found else 0, "local": found, "local_rope_base": base, **alone}


def _factors(keys: Keys, architecture: Architecture, hidden: int, scale: float) -> dict[str, MetadataValue]:
    """The fields that numbers are multiplied by, or bounded by; `scale` is that of scores by default."""
    capped, final = architecture.softcaps or (0.0, 0.0)
    table = math.sqrt(hidden) if architecture.scaled_embedding else 1.0
    logits = keys.number("logit_scale", 1.0, zero=1.0)
    return {
        "attention_scale": keys.number("attention.scale", scale, zero=scale),
        "attention_softcap": keys.number("attn_logit_softcapping", capped, zero=0.0),
        "logit_softcap": keys.number("final_logit_softcapping", final, zero=0.0),
        "embedding_scale": keys.number("embedding_scale", table, zero=table),
        "residual_scale": keys.number("residual_scale", 1.0, zero=1.0),
        "logit_scale": 1 / logits if architecture.multiplied_logits else logits,
    }


def _refuse(keys: Keys, architecture: Architecture) -> None:
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
        raise UnsupportedError(f"{where(keys.file)}what the metadata asks for is not supported: {', '.join(found)}")


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


def _rope_scale(keys: Keys) -> float:
    """What positions are divided by: 1 for the type ``none``. Where no type is given it is ``linear``.

    ``rope.scale_linear`` is the older name of the factor. Of either, 0 means 1.
    """
    key = "rope.scale_linear" if keys.get("rope.scaling.factor") is None else "rope.scaling.factor"
    factor = keys.number(key, 1.0, zero=1.0)
    return 1.0 if keys.get("rope.scaling.type") == "none" else factor


def _tensors(file: ModelFile, architecture: Architecture, config: ModelConfig) -> dict[str, TensorInfo]:
    """The tensors by name, in the order of use; raises one error with everything that is wrong with them."""
    rules = {rule.name: rule for rule in architecture.model_tensors}
    for layer in range(config.layers):
        own = architecture if config.has_experts(layer) else architecture.without_experts
        recurs, attends, network = config.is_recurrent(layer), layer in config.attentive, config.has_network(layer)
        for rule in own.tensors_of(recurs=recurs, attends=attends, network=network):
            rules[f"blk.{layer}.{rule.name}"] = rule
    if config.predicts:
        for rule in (*architecture.prediction_tensors, *architecture.layer_tensors):
            rules[f"blk.{config.layers}.{rule.name}"] = rule
    sizes = config.sizes
    tensors = {**file.tensors}
    for prefix in ("", *(f"blk.{layer}." for layer in range(config.layers))) if architecture.renamed else ():
        for theirs, name in architecture.renamed.items():
            if f"{prefix}{theirs}" in tensors and f"{prefix}{name}" not in tensors:
                tensors[f"{prefix}{name}"] = tensors.pop(f"{prefix}{theirs}")  # still read by the name in the file
    for layer in range(config.layers if architecture.joined else 0):
        for joined, names in architecture.joined.items():
            if all(f"blk.{layer}.{name}" in rules for name in names):  # of experts, or of a network
                own_rules = [(name, rules[f"blk.{layer}.{name}"]) for name in names]
                _split(tensors, f"blk.{layer}.", joined, own_rules, sizes)
    without = {  # which files may have, as of any layer, and nothing reads
        f"blk.{layer}.{name}.weight"
        for layer in range(config.layers)
        for name in ("attn_k", "attn_v", "attn_k_norm")
        if config.source(layer) != layer
    }
    rules = {name: rule for name, rule in rules.items() if name not in without}
    missing = [name for name, rule in rules.items() if name not in tensors and not rule.optional]
    unknown = [name for name in tensors if name not in rules and name not in without]
    wrong, types = [], []
    for name, rule in rules.items():
        info = tensors.get(name)
        if info is None:
            continue
        expected = tuple(sizes[dim] for dim in rule.dims)
        if info.shape != expected:
            wrong.append(f"'{name}' must be {list(expected)} [{', '.join(rule.dims)}], but is {list(info.shape)}")
        allowed = {"f32"} if rule.dense else WEIGHT_TYPES if len(rule.dims) > 1 else VECTOR_TYPES
        if info.type not in allowed:
            types.append(f"'{name}' is {info.type}" + (", which must be f32" if rule.dense else ""))
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
        raise UnsupportedError(f"{where(file)}{'; '.join(problems)}")
    return {name: tensors[name] for name in rules if name in tensors}


def _split(
    tensors: dict[str, TensorInfo],
    prefix: str,
    joined: str,
    parts: list[tuple[str, TensorRule]],
    sizes: Mapping[str, int],
) -> None:
    """Puts the parts of a tensor in its place, each some of its rows, where it is there and has as many as they have.

    A part may have the name of the whole, which then has more rows than the part.
    """
    info = tensors.get(f"{prefix}{joined}")
    rows = [sizes[rule.dims[0]] for _, rule in parts]
    if info is None or len(info.shape) > 2 or info.nbytes is None or info.shape[0] != sum(rows):
        return
    if any(f"{prefix}{name}" in tensors for name, _ in parts if name != joined):
        return
    del tensors[f"{prefix}{joined}"]
    size, begin = info.nbytes // info.shape[0], info.offset
    for (name, _), count in zip(parts, rows, strict=True):
        shape, whole = (count, *info.shape[1:]), f"{prefix}{name}"
        tensors[whole] = replace(info, name=whole, shape=shape, offset=begin, nbytes=count * size)
        begin += count * size


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


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
