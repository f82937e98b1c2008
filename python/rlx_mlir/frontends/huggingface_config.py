# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`config.json` of a decoder as metadata by the keys of GGUF, as far as these go, and a few of our own.

| own key | meaning |
|---|---|
| `rope.halves` | elements i and i + n/2 of a head rotate together, whatever the architecture's files have |
| `rope.layers` | for each layer, whether it rotates |
| `rope.scaling.yarn_truncate` | the bounds of YaRN are whole pairs |

Stretching of positions that GGUF files say by tensors is given as such: `Rope.factors`. Both the present form of
rotations, `rope_parameters`, and the earlier one, `rope_theta` and `rope_scaling`, are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rlx_mlir.files import Json
from rlx_mlir.frontends.model_file import MetadataValue

from ..errors import UnsupportedError, nearest, shortened
from .documents import Document
from .huggingface_families import FAMILIES, NUMBERS, REFUSED, Family
from .huggingface_float8 import METHODS, Float8
from .huggingface_scan import step_limits
from .huggingface_streams import cutoffs, with_one_width

CONFIG = "config.json"
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class FolderConfig:
    """What a folder's `config.json` says.

    Attributes:
        family: of the model.
        metadata: by the keys of GGUF, of the architecture and of the file.
        tensors: f32, by the names of GGUF, that the configuration holds.
        tied: the embedding table is the output matrix too.
        document: the file.
        ahead: layers behind the last one, which aren't read: `Family.ahead`.
        float8: how matrices are packed that are floats of 8 bits; None where there are none.
    """

    family: Family
    metadata: Mapping[str, MetadataValue]
    tensors: Mapping[str, Floats]
    tied: bool
    document: Document
    ahead: int = 0
    float8: Float8 | None = None

    @property
    def predicts(self) -> bool:
        """Whether there is a layer that predicts further ahead, which is read."""
        return bool(self.metadata.get(f"{self.family.architecture}.nextn_predict_layers"))

    def without_prediction(self) -> FolderConfig:
        """That of a folder which lacks the layer that predicts further ahead, as transformers saves it."""
        prefix = f"{self.family.architecture}."
        count, recurs = self.metadata[f"{prefix}nextn_predict_layers"], f"{prefix}attention.recurrent_layers"
        layers = self.metadata[f"{prefix}block_count"] - count
        own = {f"{prefix}nextn_predict_layers": 0, f"{prefix}block_count": layers}
        return replace(self, metadata={**self.metadata, **own, recurs: self.metadata[recurs][:layers]})


def read_config(folder: Path) -> FolderConfig:
    """Reads and checks `config.json`.

    Raises ModelFileError for a file that is missing or malformed, and values that can't be; UnsupportedError for
    families and options that aren't implemented.
    """
    document = Document(folder / CONFIG, "a language model")
    kind = document.get("model_type", str)
    family = FAMILIES.get(kind)
    if family is None:
        close = nearest(kind, FAMILIES)
        raise UnsupportedError(
            f"{document.path}: 'model_type' {shortened(kind)} is not supported, known are {', '.join(FAMILIES)}"
            + (f"; the nearest is {close}" if close else "")
        )
    if family.with_scans is not None and _names_scans(document):
        family = family.with_scans
    if family.with_experts is not None and "moe" in _kinds_of(document):
        family = family.with_experts
    found = document.refused(_refused(document, family))
    float8 = Float8.of(document)
    if family.part:
        document = _part(document, family)
        found += document.refused(_refused(document, family))
        float8 = float8 or Float8.of(document)
    if family.scans == "single":
        document = _with_layers(document)
    if family.streams:
        document = with_one_width(document)
    reader = _Reader(document, family)
    word = reader.value(family.activation) or family.activations[0]
    if word not in family.activations:
        found.append(f"'{family.activation}' = {shortened(word)} (known are {', '.join(family.activations)})")
    if found:
        raise UnsupportedError(f"{document.path}: what this asks for is not supported: {', '.join(found)}")
    values = {**reader.numbers(), **reader.windows()}
    rope = reader.rope(values)
    values |= rope.values
    metadata: dict[str, MetadataValue] = {"general.architecture": family.architecture}
    metadata |= {f"{family.architecture}.{key}": value for key, value in values.items()}
    ahead = reader.count(family.ahead) if family.ahead else 0
    return FolderConfig(family, metadata, rope.factors, reader.flag("tie_word_embeddings"), document, ahead, float8)


def _with_layers(document: Document) -> Document:
    """That of layers which are each one thing, with these as `layer_types`, whichever way they are written."""
    kinds = _kinds_of(document)
    return Document(document.path, "", {**document.content, "layer_types": kinds, "num_hidden_layers": len(kinds)})


def _kinds_of(document: Document) -> list[Json]:
    """What layers are which are each one thing."""
    content = document.content
    kinds = content.get("layer_types") or content.get("layers_block_type")
    pattern = content.get("hybrid_override_pattern")
    if kinds is None and isinstance(pattern, str):
        kinds = [_LETTERS.get(letter, letter) for letter in pattern]
    if not isinstance(kinds, list) or not kinds:
        raise document.fail("layers_block_type", "a list of what layers are", kinds)
    return kinds


def _names_scans(document: Document) -> bool:
    """Whether some layers have a selective scan."""
    kinds = document.content.get("layer_types", document.content.get("layers_block_type"))
    return isinstance(kinds, list) and any(kind in _SCANNING for kind in kinds)


def _refused(document: Document, family: Family) -> dict[str, tuple[object, ...]]:
    """What is refused of a document, which may name a method of packing that tensors are read by."""
    asked = {**REFUSED, **family.refused}
    packing = document.content.get("quantization_config")
    if isinstance(packing, dict) and packing.get("quant_method") in (*family.packed, *METHODS):
        del asked["quantization_config"]
    return asked


def _part(document: Document, family: Family) -> Document:
    """What describes the language model, in the description of a model of several parts."""
    own = dict(document.get(family.part, dict))
    for key in ("tie_word_embeddings",):  # of the whole, too
        if own.get(key) is None and key in document.content:
            own[key] = document.content[key]
    return Document(document.path, "", own)


#: What layers are called that have a scan, attention, or a network alone.
_SCANNING, _ATTENDING, _NETWORKS = ("mamba", "linear_attention"), ("attention", "full_attention"), ("mlp", "moe")
#: What has a factor before and behind the layers.
_ENDS = ("embedding", "lm_head")
#: What the letters of a pattern of layers stand for.
_LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}


@dataclass(frozen=True)
class Rope:
    """Rotations: values by their keys without prefix, and tensors of factors."""

    values: dict[str, MetadataValue]
    factors: dict[str, Floats] = field(default_factory=dict)


class _Reader:
    """Entries of a configuration, with what their absence means in the family."""

    def __init__(self, document: Document, family: Family) -> None:
        self.document, self.family = document, family

    def value(self, key: str) -> Json:
        found = self.document.content.get(key)
        return self.family.defaults.get(key) if found is None else found

    def flag(self, key: str) -> bool:
        found = self.value(key)
        if not isinstance(found, bool | None):
            raise self.document.fail(key, "true or false", found)
        return found is True

    def number(self, key: str) -> float:
        default = self.family.defaults.get(key)
        assert default is None or isinstance(default, int | float)
        return self.document.number(key, default)

    def _default(self, key: str) -> int | None:
        default = self.family.defaults.get(key)
        return default if isinstance(default, int) else None

    def count(self, key: str) -> int:
        """A number that may be 0."""
        return self.document.integer(key, 0, default=self._default(key))

    def numbers(self) -> dict[str, MetadataValue]:
        """Sizes, and what numbers are multiplied by."""
        document = self.document
        values: dict[str, MetadataValue] = {"rope.halves": not self.family.own_order}
        for key, own in {**NUMBERS, **self.family.numbers}.items():
            found = self.value(key)
            if isinstance(found, bool):
                values[own] = found
            elif key == "num_key_value_heads" and found is None:
                values[own] = values["attention.head_count"]
            elif key == "rms_norm_eps":
                values[own] = self.number(key) if found is not None else 1e-6
            elif key in NUMBERS or isinstance(found, int):
                values[own] = document.integer(key, default=self._default(key))
            elif found is not None:
                values[own] = self.number(key)
        hidden, heads = values["embedding_length"], values["attention.head_count"]
        width = self.value("head_dim")
        size = hidden // heads if width is None else document.integer("head_dim", default=width)
        values |= {"attention.key_length": size, "attention.value_length": size}
        if self.family.near:
            values["expert_jitter"] = self.document.number(self.family.near, 0.01)
        if self.family.latent:
            values |= self._latents()
        if self.family.streams:
            values |= cutoffs(document, values["block_count"])
            values["attention.shared_kv_layers"] = self.count("num_kv_shared_layers")
        if self.family.delta:
            values |= self._deltas(values["block_count"])
        if self.family.convs:
            values |= self._convs(values)
        if self.family.channel_rates:
            values |= self._channel_scans(values)
        elif self.family.scans:
            values |= self._scans(values)
        if self.family.name == "minicpm":
            values |= self._scales(values["block_count"], hidden)
        if self.family.only_attention:
            self._check_layers(values["block_count"])
        if "query_pre_attn_scalar" in self.family.defaults:
            scalar = self.number("query_pre_attn_scalar")
            if not scalar > 0:
                raise document.fail("query_pre_attn_scalar", "a number above 0", scalar)
            values["attention.scale"] = scalar**-0.5
        if "attn_logit_softcapping" in self.family.numbers:  # here absence is none, whatever a GGUF file's means
            values = {"attn_logit_softcapping": 0.0, "final_logit_softcapping": 0.0, **values}
        return values

    def _convs(self, sizes: Mapping[str, MetadataValue]) -> dict[str, MetadataValue]:
        """The layers with short convolutions, which have no heads of keys, and the width of networks."""
        content, layers = self.document.content, sizes["block_count"]
        if content.get("layer_types") is not None:
            convs = self._kinds(layers, {"conv": True, "full_attention": False})
        else:
            given = content.get("full_attn_idxs")
            if not isinstance(given, list) or not all(type(each) is int and 0 <= each < layers for each in given):
                raise self.document.fail("full_attn_idxs", f"a list of layers below {layers}", given)
            convs = np.array([layer not in given for layer in range(layers)], np.bool_)
        width = self.document.integer("block_ff_dim", default=sizes["feed_forward_length"])
        if self.flag("block_auto_adjust_ff_dim"):
            multiple = self.document.integer("block_multiple_of", default=self._default("block_multiple_of"))
            width = int(self.number("block_ffn_dim_multiplier") * int(2 * width / 3))
            width = -(-width // multiple) * multiple
        heads = np.where(convs, 0, sizes["attention.head_count_kv"]).astype(np.int32)
        taps = self.document.integer("conv_L_cache", default=self._default("conv_L_cache"))
        return {"attention.head_count_kv": heads, "feed_forward_length": width, "shortconv.l_cache": taps}

    def _channel_scans(self, sizes: Mapping[str, MetadataValue]) -> dict[str, MetadataValue]:
        """The layers with scans whose states have rates of their own, and their sizes."""
        document, keys, hidden = self.document, self.family.scan, sizes["embedding_length"]
        factor, numbers, taps = (
            document.integer(keys[word], default=self._default(keys[word])) for word in ("factor", "numbers", "taps")
        )
        rank = self.value(keys["rank"])
        automatic = rank is None or rank == "auto"
        inner = document.integer(keys["inner"], default=hidden * factor) if "inner" in keys else hidden * factor
        values: dict[str, MetadataValue] = {
            "ssm.conv_kernel": taps,
            "ssm.state_size": numbers,
            "ssm.time_step_rank": -(-hidden // 16) if automatic else document.integer(keys["rank"]),
            "ssm.inner_size": inner,
        }
        if "norms" in keys:
            values |= {"ssm.dt_b_c_rms": True, "ssm.norm_epsilon": self.number(keys["norms"])}
        if self.family.scans == "all":
            return {**values, "attention.head_count": 0, "feed_forward_length": 0}
        attends = self._every(sizes["block_count"], "attn_layer")
        values["attention.head_count_kv"] = np.where(attends, sizes["attention.head_count_kv"], 0).astype(np.int32)
        if (experts := self.count("num_experts")) > 1:
            used = document.integer("num_experts_per_tok", default=self._default("num_experts_per_tok"))
            values |= {"expert_count": experts, "expert_used_count": used}
        return values

    def _every(self, layers: int, word: str) -> npt.NDArray[np.bool_]:
        """Whether a layer is one of every so many, from an offset on."""
        period = self.document.integer(f"{word}_period", default=self._default(f"{word}_period"))
        offset = self.count(f"{word}_offset")
        if offset >= period:
            raise self.document.fail(f"{word}_offset", f"below '{word}_period', {period}", offset)
        return np.asarray(np.arange(layers) % period == offset, np.bool_)

    def _scans(self, sizes: Mapping[str, MetadataValue]) -> dict[str, MetadataValue]:
        """The layers with selective scans, and their sizes."""
        family, document, keys = self.family, self.document, self.family.scan
        heads, groups, numbers, taps = (
            document.integer(keys[word], default=self._default(keys[word]))
            for word in ("heads", "groups", "numbers", "taps")
        )
        size = document.content.get(keys["size"])
        if size in (None, "auto") and self._default(keys["size"]) is None:
            inner = document.content.get(keys.get("inner", "")) or sizes["embedding_length"] * self._expansion()
            size = inner // heads
        else:
            size = document.integer(keys["size"], default=self._default(keys["size"]))
        values: dict[str, MetadataValue] = {
            "ssm.conv_kernel": taps,
            "ssm.state_size": numbers,
            "ssm.group_count": groups,
            "ssm.time_step_rank": heads,
            "ssm.inner_size": heads * size,
            **step_limits(document),
        }
        if family.scans == "all":
            values |= {"attention.head_count": 0, "feed_forward_length": 0}
        if family.scans == "beside":
            table, head = (_positive(document, document.content, f"{word}_multiplier", 1.0) for word in _ENDS)
            values["logit_scale"] = table / head if self.flag("tie_word_embeddings") else 1.0
            if self.flag("mamba_rms_norm") and self.value("mamba_norm_before_gate") is not False:
                raise UnsupportedError(
                    f"{document.path}: with 'mamba_rms_norm', 'mamba_norm_before_gate' must be false: norms before "
                    "gates aren't supported"
                )
        if family.indices:
            values |= self._attention_at(sizes)
        elif family.scans == "instead":
            values |= self._attention_instead(sizes)
        if family.scans == "single":
            values |= self._single_kinds(sizes)
        return values

    def _expansion(self) -> int:
        return self.document.integer("mamba_expand", default=2)

    def _attention_instead(self, sizes: Mapping[str, MetadataValue]) -> dict[str, MetadataValue]:
        """Which layers have attention, whether these rotate, and how wide networks are."""
        known = {kind: kind in _ATTENDING for kind in (*_SCANNING, *_ATTENDING)}
        attends = self._kinds(sizes["block_count"], known)
        shared = self.document.integer("shared_intermediate_size", default=self._default("shared_intermediate_size"))
        values: dict[str, MetadataValue] = {
            "attention.head_count_kv": np.where(attends, sizes["attention.head_count_kv"], 0).astype(np.int32),
            "rope.scaling.finetuned": self.value("position_embedding_type") == "rope",
        }
        experts = self.count("num_local_experts")
        if not experts:
            return {**values, "feed_forward_length": shared}
        own = {"expert_count": experts, "expert_used_count": self.document.integer("num_experts_per_tok", default=2)}
        return {**values, **own, "expert_shared_feed_forward_length": shared}

    def _attention_at(self, sizes: Mapping[str, MetadataValue]) -> dict[str, MetadataValue]:
        """Which layers have attention, which rotates, by their numbers."""
        given, layers = self.document.content.get("attn_layer_indices") or [], sizes["block_count"]
        if not isinstance(given, list) or not all(type(each) is int and 0 <= each < layers for each in given):
            raise self.document.fail("attn_layer_indices", f"a list of layers below {layers}", given)
        attends = np.isin(np.arange(layers), np.array(given, np.int64))
        heads = np.where(attends, sizes["attention.head_count_kv"], 0).astype(np.int32)
        return {"attention.head_count_kv": heads, "rope.scaling.finetuned": True}

    def _single_kinds(self, sizes: Mapping[str, MetadataValue]) -> dict[str, MetadataValue]:
        """What each layer is: a scan, attention, or a network."""
        attends, networks = (
            self._kinds(sizes["block_count"], {kind: kind in own for kind in (*_SCANNING, *_ATTENDING, *_NETWORKS)})
            for own in (_ATTENDING, _NETWORKS)
        )
        width, kinds = sizes["feed_forward_length"], self.document.content["layer_types"]
        if "moe" in kinds:
            width = np.where(np.array(kinds) == "moe", sizes["expert_feed_forward_length"], width)
        return {
            "attention.head_count_kv": np.where(attends, sizes["attention.head_count_kv"], 0).astype(np.int32),
            "feed_forward_length": np.where(networks, width, 0).astype(np.int32),
        }

    def _scales(self, layers: int, hidden: int) -> dict[str, MetadataValue]:
        """What MiniCPM multiplies rows of the table and what layers add by, and divides logits by."""
        table, depth, base = (
            _positive(self.document, self.document.content, key, None)
            for key in ("scale_emb", "scale_depth", "dim_model_base")
        )
        return {"embedding_scale": table, "residual_scale": depth / math.sqrt(layers), "logit_scale": hidden / base}

    def _check_layers(self, layers: int) -> None:
        """Refuses layers of other kinds than attention, which a family has unless `layer_types` says so."""
        kinds = self.document.content.get("layer_types", self.document.content.get("layers_block_type"))
        if not isinstance(kinds, list) or set(map(str, kinds)) - {"attention", "full_attention"}:
            raise UnsupportedError(
                f"{self.document.path}: layers of '{self.family.name}' must have attention, by 'layer_types', but are "
                f"{shortened(kinds)}"
            )
        if len(kinds) != layers:
            raise self.document.fail("layer_types", f"{layers} of attention", kinds)

    def _latents(self) -> dict[str, MetadataValue]:
        """How wide latents and what is made of them are, and how experts are chosen."""
        words = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
        rank, rotated, plain, value = (self.document.integer(word, default=self._default(word)) for word in words)
        own = "q_lora_rank" in self.document.content  # null is none, and no key the default
        short = 0 if own and self.document.content["q_lora_rank"] is None else self.count("q_lora_rank")
        values = {
            "rope.halves": "rope_interleave" in self.family.defaults and not self.flag("rope_interleave"),
            "rope.dimension_count": rotated,
            "attention.head_count_kv": 1,
            "attention.kv_lora_rank": rank,
            "attention.key_length": rank + rotated,
            "attention.value_length": rank,
            "attention.key_length_mla": plain + rotated,
            "attention.value_length_mla": value,
            "leading_dense_block_count": self.count("first_k_dense_replace"),
            "expert_gating_func": 2 if self.value("scoring_func") == "sigmoid" else 1,
        }
        if short:
            values["attention.q_lora_rank"] = short
        if self.value("topk_method") == "greedy":  # of all experts, whatever groups there are
            values |= {"expert_group_count": 1, "expert_group_used_count": 1}
        return values

    def _deltas(self, layers: int) -> dict[str, MetadataValue]:
        """The layers with a gated delta rule, their sizes, and the layer that predicts further ahead."""
        words = ("key_head_dim", "value_head_dim", "num_key_heads", "num_value_heads", "conv_kernel_dim")
        size, other, keys, values, taps = (
            self.document.integer(f"linear_{word}", default=self._default(f"linear_{word}")) for word in words
        )
        if size != other:
            raise UnsupportedError(
                f"{self.document.path}: heads of 'linear_key_head_dim' and 'linear_value_head_dim' must be equally "
                f"wide, but have {size} and {other}"
            )
        ahead = self.count("mtp_num_hidden_layers")
        found: dict[str, MetadataValue] = {
            "block_count": layers + ahead,
            "nextn_predict_layers": ahead,
            "attention.recurrent_layers": np.concatenate([self._recurrent(layers), np.zeros(ahead, np.bool_)]),
            "ssm.conv_kernel": taps,
            "ssm.state_size": size,
            "ssm.group_count": keys,
            "ssm.time_step_rank": values,
            "ssm.inner_size": values * size,
        }
        sections = self._rope_parameters()[1].get("mrope_section")
        if isinstance(sections, list) and len(sections) == 3 and all(type(each) is int for each in sections):
            found["rope.dimension_sections"] = np.array([*sections, 0], np.int32)
        return found

    def _recurrent(self, layers: int) -> npt.NDArray[np.bool_]:
        """Which layers have a gated delta rule."""
        if self.document.content.get("layer_types") is None:
            interval = self.document.integer("full_attention_interval", default=4)
            return np.asarray((np.arange(layers) + 1) % interval != 0, np.bool_)
        return self._kinds(layers, {"linear_attention": True, "full_attention": False})

    def _kinds(self, layers: int, known: Mapping[str, bool]) -> npt.NDArray[np.bool_]:
        """What `layer_types` says of each layer, of what is known."""
        kinds = self.document.content["layer_types"]
        fits = isinstance(kinds, list) and len(kinds) == layers
        if not fits or not all(isinstance(kind, str) and kind in known for kind in kinds):
            raise self.document.fail("layer_types", f"{layers} of {', '.join(known)}", kinds)
        return np.array([known[kind] for kind in kinds], np.bool_)

    def windows(self) -> dict[str, MetadataValue]:
        """Which layers see a window, and how long it is."""
        layers = self.document.integer("num_hidden_layers")
        content = self.document.content
        own = "sliding_window" in content  # null is none, and no key the default
        size = content["sliding_window"] if own else self.family.defaults.get("sliding_window")
        if size is None or not self.family.windows or (self.family.switched and not self.flag("use_sliding_window")):
            return {}
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size < 1 << 31:
            raise self.document.fail("sliding_window", "an integer from 1 to 2^31 - 1", size)
        return {"attention.sliding_window": size, "attention.sliding_window_pattern": self._local(layers)}

    def _local(self, layers: int) -> npt.NDArray[np.bool_]:
        if self.document.content.get("layer_types") is not None:
            return self._kinds(layers, {"sliding_attention": True, "full_attention": False})
        numbers = np.arange(layers)
        if self.family.windows == "later":
            found = numbers >= self.document.integer("max_window_layers", 0, default=28)
        elif self.family.windows == "period":
            default = self.family.defaults["sliding_window_pattern"]
            assert isinstance(default, int)
            found = (numbers + 1) % self.document.integer("sliding_window_pattern", default=default) != 0
        elif self.family.windows == "unrotated":
            found = ~self._rotated(layers)
        else:
            found = np.ones(layers, np.bool_)
        return np.asarray(found, np.bool_)

    def _rotated(self, layers: int) -> npt.NDArray[np.bool_]:
        """Which layers rotate, in a family in which some don't."""
        given = self.document.content.get("no_rope_layers")  # 1 for those that rotate, whatever the name says
        if given is None:
            interval = self.document.integer("no_rope_layer_interval", default=4)
            return np.asarray((np.arange(layers) + 1) % interval != 0, np.bool_)
        if not isinstance(given, list) or len(given) < layers or not all(each in (0, 1) for each in given):
            raise self.document.fail("no_rope_layers", f"at least {layers} of 0 and 1", given)
        return np.array(given[:layers], np.bool_)

    def rope(self, sizes: Mapping[str, MetadataValue]) -> Rope:
        """How positions are rotated."""
        head, positions = (
            sizes["rope.dimension_count" if self.family.latent else "attention.key_length"],
            sizes["context_length"],
        )
        local, parameters = self._rope_parameters()
        theta = self._positive(parameters, "rope_theta", 10000.0)
        whole = self.family.defaults.get("partial_rotary_factor", 1.0)
        assert isinstance(whole, float)
        part = self._positive(parameters, "partial_rotary_factor", whole)
        dims = int(head * part)
        values: dict[str, MetadataValue] = {"rope.freq_base": theta, "rope.dimension_count": dims}
        if local is not None:
            values["rope.freq_base_swa"] = self._positive(local, "rope_theta", theta)
        if self.family.name == "smollm3":
            values["rope.layers"] = self._rotated(sizes["block_count"])
        kind = parameters.get("rope_type", parameters.get("type", "default"))
        kinds = {"default": _plain, "linear": _linear, "yarn": _yarn, "llama3": _llama3}
        kinds |= {"longrope": _longrope, "su": _longrope}
        if self.family.name == "hunyuan_v1_dense":
            kinds["dynamic"] = _grown_base
        if not isinstance(kind, str) or kind not in kinds:
            raise UnsupportedError(
                f"{self.document.path}: rotations of 'rope_type' {shortened(kind)} are not supported, known are "
                f"{', '.join(kinds)}"
            )
        own = _RopeEntries(self.document, parameters, theta, dims, positions)
        found = kinds[kind](own)
        scores = self._stretched_scores(own, found) if self.family.latent else {}
        return Rope({**values, **found.values, **scores}, found.factors)

    def _stretched_scores(self, own: _RopeEntries, found: Rope) -> dict[str, MetadataValue]:
        """What latents have in place of a factor that grows with that of the positions: it is of scores, not of what
        rotates."""
        weight = own.entries.get("mscale_all_dim") or 0.0
        if found.values["rope.scaling.type"] == "yarn":
            grown = _grown(found.values["rope.scaling.factor"], 1.0)
            log = 0.1 * own.number("mscale_all_dim") if weight else 0.0
            attention = found.values["rope.scaling.attn_factor"] * grown
            return {"rope.scaling.attn_factor": attention, "rope.scaling.yarn_log_multiplier": log}
        if weight and found.values["rope.scaling.type"] != "none":
            raise UnsupportedError(
                f"{self.document.path}: 'mscale_all_dim' = {shortened(weight)} is supported with rotations of type "
                f"yarn alone, but they are {found.values['rope.scaling.type']}"
            )
        return {}

    def _rope_parameters(self) -> tuple[Mapping[str, Json] | None, dict[str, Json]]:
        """What is said of local layers, where they rotate in their own way, and what of the others."""
        content = self.document.content
        own = "rope_local_base_freq" in self.family.defaults
        given = content.get("rope_parameters")
        if given is None:
            given = content.get("rope_scaling")
        if given is None:
            given = self.family.defaults.get("rope_parameters")
        if not isinstance(given, dict | None):
            raise self.document.fail("rope_parameters", "an object", given)
        found = dict(given or {})
        local: dict[str, Json] | None = None
        if own or self.family.nested_rope:
            nested = found.get("full_attention"), found.get("sliding_attention")
            if any(each is not None for each in nested):
                found, local = (dict(each) if isinstance(each, dict) else {} for each in nested)
        if own:
            local = {"rope_theta": self.number("rope_local_base_freq"), **(local or {})}
        if local is not None and local.get("rope_type", "default") != "default":
            raise UnsupportedError(
                f"{self.document.path}: rotations of local layers must be of 'rope_type' default, but are "
                f"{shortened(local['rope_type'])}"
            )
        default = content.get("rope_theta")
        found.setdefault("rope_theta", self.family.defaults.get("rope_theta", 10000.0) if default is None else default)
        if "partial_rotary_factor" in content:
            found.setdefault("partial_rotary_factor", content["partial_rotary_factor"])
        if "original_max_position_embeddings" in content:
            found.setdefault("original_max_position_embeddings", content["original_max_position_embeddings"])
        return local, found

    def _positive(self, entries: Mapping[str, Json], key: str, default: float) -> float:
        return _positive(self.document, entries, key, default)


def _positive(document: Document, entries: Mapping[str, Json], key: str, default: float | None) -> float:
    value = entries.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise document.fail(key, "a finite number above 0", value)
    return float(value)


@dataclass(frozen=True)
class _RopeEntries:
    """Entries about rotations of one kind, and what else they are computed from.

    Attributes:
        document: where they are.
        entries: by their keys.
        theta: the base.
        dims: elements of a head that rotate.
        positions: that the model has.
    """

    document: Document
    entries: Mapping[str, Json]
    theta: float
    dims: int
    positions: int

    def number(self, key: str, default: float | None = None) -> float:
        return _positive(self.document, self.entries, key, default)

    def frequencies(self) -> npt.NDArray[np.float64]:
        """By how much each pair turns for a position."""
        return np.power(self.theta, -2.0 * np.arange(self.dims // 2) / self.dims)

    def original(self) -> int:
        """Positions that the model was made for at first."""
        return int(self.number("original_max_position_embeddings", self.positions))

    def factors(self, key: str) -> Floats:
        """A list of one number above 0 for each pair."""
        value, count = self.entries.get(key), self.dims // 2
        fits = isinstance(value, list) and len(value) == count
        if not fits or not all(
            isinstance(each, int | float) and not isinstance(each, bool) and 0 < each < math.inf for each in value or ()
        ):
            raise self.document.fail(key, f"{count} finite numbers above 0, one for each pair,", value)
        return np.array(value, np.float32)


def _plain(own: _RopeEntries) -> Rope:
    return Rope({"rope.scaling.type": "none"})


def _linear(own: _RopeEntries) -> Rope:
    return Rope({"rope.scaling.type": "linear", "rope.scaling.factor": own.number("factor")})


def _yarn(own: _RopeEntries) -> Rope:
    original = own.original()
    factor = own.number("factor", own.positions / original)
    natural = _grown(factor, 1.0)
    if own.entries.get("attention_factor") is not None:
        attention = own.number("attention_factor")
    elif own.entries.get("mscale") and own.entries.get("mscale_all_dim"):
        attention = _grown(factor, own.number("mscale")) / _grown(factor, own.number("mscale_all_dim"))
    else:
        attention = natural
    truncate = own.entries.get("truncate", True)
    if not isinstance(truncate, bool):
        raise own.document.fail("truncate", "true or false", truncate)
    return Rope(
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": factor,
            "rope.scaling.original_context_length": original,
            "rope.scaling.attn_factor": attention / natural,
            "rope.scaling.yarn_beta_fast": own.number("beta_fast", 32.0),
            "rope.scaling.yarn_beta_slow": own.number("beta_slow", 1.0),
            "rope.scaling.yarn_truncate": truncate,
        }
    )


def _grown(factor: float, weight: float) -> float:
    """What rotated elements are multiplied by where positions are stretched by a factor."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def _llama3(own: _RopeEntries) -> Rope:
    """Pairs that turn seldom within the original context are stretched, with a transition to those that turn often."""
    factor, low, high = (own.number(key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    if not high > low:
        raise own.document.fail("high_freq_factor", f"above 'low_freq_factor', {low:g}", high)
    turns = own.original() * own.frequencies() / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return Rope({"rope.scaling.type": "none"}, {"rope_freqs.weight": (1 / ((1 - kept) / factor + kept)).astype("f4")})


def _grown_base(own: _RopeEntries) -> Rope:
    """A base that grows by a fixed factor, where there is one; otherwise it would grow with each sequence."""
    if not own.entries.get("alpha"):
        raise UnsupportedError(
            f"{own.document.path}: rotations of 'rope_type' dynamic are supported with 'alpha' alone"
        )
    base = own.theta * own.number("alpha") ** (own.dims / (own.dims - 2))
    return Rope({"rope.scaling.type": "none", "rope.freq_base": base})


def _longrope(own: _RopeEntries) -> Rope:
    original = own.original()
    factor = own.number("factor", own.positions / original)
    natural = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 < original else 1.0
    values = {
        "rope.scaling.type": "longrope",
        "rope.scaling.original_context_length": original,
        "rope.scaling.attn_factor": _long_size(own, own.number("attention_factor", natural)),
    }
    return Rope(values, {f"rope_factors_{word}.weight": own.factors(f"{word}_factor") for word in ("short", "long")})


def _long_size(own: _RopeEntries, natural: float) -> float:
    """What rotated elements are multiplied by: what is said of short and long sequences, where that is the same."""
    if own.entries.get("short_mscale") is None and own.entries.get("long_mscale") is None:
        return natural
    short, long = own.number("short_mscale"), own.number("long_mscale")
    if short != long:
        raise UnsupportedError(
            f"{own.document.path}: 'short_mscale' and 'long_mscale' must be the same, but are {short:g} and {long:g}"
        )
    return short


__all__ = ["CONFIG", "FolderConfig", "read_config"]
