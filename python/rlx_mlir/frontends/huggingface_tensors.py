# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of a folder by the names of GGUF: which bytes of the files they are, or how they are made."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ..errors import ModelFileError, UnsupportedError
from ..formats import get_format
from . import safetensors
from .huggingface_config import FolderConfig
from .huggingface_delta import DeltaOrder
from .huggingface_families import OUTSIDE
from .huggingface_float8 import DTYPE, FLOAT8, is_of_inputs, scale_of
from .huggingface_scan import ChannelScanOrder, ScanOrder
from .huggingface_streams import STACKED
from .model_file import TensorInfo
from .safetensors import SafetensorsFile

Bytes = npt.NDArray[np.uint8]
Entry = tuple[int, safetensors.TensorInfo]
"""The number of a file, and a tensor in it."""

_DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
_STORED = {**_DTYPES, "u8": np.dtype(np.uint8)}
_LISTED = 8  # names that an error spells out

#: What stands before the names of a language model that is a part of a model: what replaces it, of either form.
_PREFIXES = (("language_model.model.", "model."), ("model.language_model.", "model."), ("language_model.", ""))
#: Other parts, in whose tensors a text has no share.
_OTHERS = re.compile(
    r"(?:model\.)?(?:vision_tower|multi_modal_projector|visual|audio_tower|embed_vision|embed_audio)\..+"
)
#: What each of several has, by its number.
_NUMBERED = re.compile(r"(.+)\.(\d{1,6})\.weight")
#: What some families call the model without its head.
_BACKBONE = "backbone."
#: The layer that predicts further ahead, and what is around it.
_AHEAD = re.compile(r"mtp\.(?:layers\.0\.)?(.+)")
_LAYER = re.compile(r"model\.layers\.(\d{1,6})\.(.+)")
_EXPERT = re.compile(
    r"(?:mlp|block_sparse_moe|feed_forward|mixer)\.experts\.(\d{1,6})\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight"
)
#: Of experts whose gates and ups take turns: matrices, biases, and blocks of MXFP4 with their scales.
_MIXED_EXPERTS = re.compile(r"mlp\.experts\.(gate_up|down)_proj(|_bias|_blocks|_scales)")
_MIXED_RANKS = {"": 3, "_bias": 2, "_blocks": 4, "_scales": 3}
_JOINED_EXPERTS = re.compile(
    r"(?:mlp|feed_forward|mixer)\.experts\.(gate_up|up|down)_proj|block_sparse_moe\.(input|output)_linear\.weight"
)
#: What the matrices of an expert are.
_WORDS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w2": "down", "w3": "up"}
#: Matrices of one row that are vectors in GGUF files.
_SINGLE_ROWS = "ffn_gate_inp_shexp.weight"
#: Gates above ups, in one tensor, which are two in files.
_GATE_UP = "ffn_gate_up"
#: Buffers that earlier versions saved, which follow from the configuration.
_BUFFER = re.compile(r"model\.(?:layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")


class FolderTensors:
    """What the files of a folder have.

    Attributes:
        tensors: by the names of GGUF.
        made: those that aren't in the files as they are, and what gives them, as arrays.
    """

    def __init__(
        self, path: str, config: FolderConfig, files: Sequence[SafetensorsFile], data: Sequence[Bytes]
    ) -> None:
        """Raises UnsupportedError for tensors of other types, and those without a use; ModelFileError for experts that
        don't fit each other."""
        self.tensors: dict[str, TensorInfo] = {}
        self.made: dict[str, Callable[[], np.ndarray]] = {}
        self._path, self._config, self._data = path, config, data
        self._layers: int = config.metadata[f"{config.family.architecture}.block_count"]
        family = config.family
        order = partial(DeltaOrder.of, config.metadata, family.architecture, grouped=family.grouped)
        self._order: DeltaOrder | ScanOrder | ChannelScanOrder | None = order() if family.delta else None
        if family.channel_rates:
            self._order = ChannelScanOrder()
        elif family.scans:
            self._order = ScanOrder.of(config.metadata, family.architecture, config.document)
        self._experts: dict[str, dict[int, Entry]] = {}
        self._blocks: dict[tuple[str, str], dict[str, Entry]] = {}
        self._float8: dict[str, tuple[Entry, Entry]] = {}
        unknown, types = list[str](), list[str]()
        for part, info in self._unpacked(self._own(files), types):
            packed = config.family.mixed_experts and info.name.endswith(("_blocks", "_scales"))
            if info.type not in (_STORED if packed else _DTYPES):
                types.append(f"'{info.name}' is {info.type}")
            elif not self._take(part, info):
                unknown.append(f"'{info.name}'")
        if types or unknown:
            self._refuse(types, unknown)
        for name, each in self._experts.items():
            self._stack(name, each)
        for (layer, word), kinds in self._blocks.items():
            self._unpack(layer, word, kinds)
        for name, values in config.tensors.items():
            self._make(name, values.shape, "f32", partial(np.array, values))
        if config.tied:  # then transformers doesn't read it either
            self.tensors.pop("output.weight", None)
        elif "output.weight" not in self.tensors:
            raise ModelFileError(
                "'tie_word_embeddings' isn't true, so there must be a tensor 'lm_head.weight', but there is none",
                path=config.document.path,
            )

    def _own(self, files: Sequence[SafetensorsFile]) -> Iterator[Entry]:
        """The tensors of the language model, by the names that they have where that is the whole."""
        config = self._config
        for part, file in enumerate(files):
            for info in file.tensors.values():
                if config.family.part:
                    if _OTHERS.fullmatch(info.name):
                        continue
                    info = _renamed(info)
                if config.family.scans and info.name.startswith(_BACKBONE):
                    info = replace(info, name=f"model.{info.name.removeprefix(_BACKBONE)}")
                if config.family.delta and (ahead := _AHEAD.fullmatch(info.name)) is not None:
                    if not config.predicts:
                        continue
                    info = replace(info, name=f"model.layers.{self._layers - 1}.{ahead[1]}")
                if not _BUFFER.fullmatch(info.name):
                    yield part, info

    def _unpacked(self, entries: Iterator[Entry], types: list[str]) -> Iterator[Entry]:
        """The tensors without scales: those of floats of 8 bits, which have some, as bf16."""
        float8 = self._config.float8
        if float8 is None:
            yield from entries
            return
        scales: dict[str, Entry] = {}
        others: list[Entry] = []
        for part, info in entries:
            if (weight := scale_of(info.name)) is not None:
                scales[weight] = part, info
            elif not is_of_inputs(info.name):
                others.append((part, info))
        for part, info in others:
            scale = scales.pop(info.name, None)
            if info.type != FLOAT8 or scale is None or scale[1].type not in _DTYPES:
                if scale is not None:
                    types.append(f"'{info.name}' with scales is {info.type}, these {scale[1].type}")
                yield part, info
                continue
            float8.check(info.name, info.shape, scale[1].shape)
            self._float8[info.name] = (part, info), scale
            yield part, replace(info, type="bf16")
        types += [f"'{own.name}' has no matrix" for _, own in scales.values()]

    def _refuse(self, types: list[str], unknown: list[str]) -> None:
        parts = []
        if types:
            parts.append(f"tensor types that are not supported: {_list(types)}; supported are {', '.join(_DTYPES)}")
        if unknown:
            parts.append(
                f"'{self._config.family.name}' has no use for these tensors, and leaving them out would change "
                f"results: {_list(unknown)}"
            )
        raise UnsupportedError(f"{self._path}: {'; '.join(parts)}")

    def _take(self, part: int, info: safetensors.TensorInfo) -> bool:
        """Takes a tensor of a file; whether it has a use."""
        family, layer = self._config.family, _LAYER.fullmatch(info.name)
        each = _NUMBERED.fullmatch(info.name) if family.streams else None
        if each is not None and each[1] in STACKED:
            self._experts.setdefault(STACKED[each[1]], {})[int(each[2])] = part, info
            return True
        name = OUTSIDE.get(info.name)
        if layer is not None:
            if 0 <= int(layer[1]) - self._layers < self._config.ahead:
                return True
            own, _, kind = layer[2].rpartition(".")
            prefix = f"blk.{int(layer[1])}"
            if own in family.layer and kind in ("weight", "bias"):
                name = f"{prefix}.{self._beside_experts(family.layer[own])}.{kind}"
                if family.latent and family.layer[own] == "attn_kv_b" and kind == "weight":
                    self._take_heads(part, info, prefix)
                    return True
            elif layer[2] in family.bare:
                name = f"{prefix}.{family.bare[layer[2]]}"
            elif self._take_experts(part, info, prefix, layer[2]):
                return True
        if name is None:
            return False
        ordered = self._order is not None and (layer is not None or isinstance(self._order, ScanOrder))
        if ordered and self._take_delta(part, info, name):
            return True
        if family.convs and name.endswith("shortconv.conv.weight"):
            if len(info.shape) != 3 or info.shape[1] != 1:
                raise ModelFileError(
                    f"'{info.name}' must be [channels, 1, taps], but is {list(info.shape)}", path=self._path
                )
            shape = (info.shape[0], info.shape[2])
            self._make(name, shape, "f32", lambda: self._values(part, info).astype(np.float32).reshape(shape))
            return True
        if _GATE_UP in name and len(info.shape) == 2 and info.shape[0] % 2 == 0:
            middle, half = (info.begin + info.end) // 2, (info.shape[0] // 2, info.shape[1])
            for word, begin, end in (("ffn_gate", info.begin, middle), ("ffn_up", middle, info.end)):
                self._place(part, replace(info, shape=half, begin=begin, end=end), name.replace(_GATE_UP, word))
            return True
        if name.endswith(_SINGLE_ROWS) and info.shape[:1] == (1,):
            info = replace(info, shape=info.shape[1:])
        if family.plus_one and name.endswith("norm.weight") and not name.endswith("ssm_norm.weight"):
            self._make(name, info.shape, "f32", lambda: self._values(part, info).astype(np.float32) + np.float32(1))
        else:
            self._place(part, info, name)
        return True

    def _place(self, part: int, info: safetensors.TensorInfo, name: str) -> None:
        """Takes a tensor as it lies in a file, or makes it where that isn't where it could be read."""
        if info.name in self._float8 or info.begin % _DTYPES[info.type].itemsize:  # after a header of any length
            self._make(name, info.shape, info.type, lambda: np.array(self._values(part, info)))
        else:
            size, number = info.end - info.begin, _number(info.type)
            self.tensors[name] = TensorInfo(name, info.shape, info.type, number, info.begin, size, 0, part)

    def _beside_experts(self, word: str) -> str:
        """What files call a network that all tokens have, where there are experts, too."""
        shared = self._config.metadata.get(f"{self._config.family.architecture}.expert_shared_feed_forward_length")
        beside = self._config.family.scans and shared and word in ("ffn_gate_up", "ffn_down")
        return f"{word}_shexp" if beside else word

    def _take_delta(self, part: int, info: safetensors.TensorInfo, name: str) -> bool:
        """Takes a tensor of a gated delta rule or a scan, where files have it otherwise."""
        assert self._order is not None
        prefix = name[: name.index(".", 4) + 1] if name.startswith("blk.") else ""
        own = name.removeprefix(prefix)
        made = self._order.made(own, info.shape, info.type, lambda: self._values(part, info), self._path)
        for each, what in made.items():
            self._make(prefix + each, *what)
        return bool(made)

    def _take_heads(self, part: int, info: safetensors.TensorInfo, layer: str) -> None:
        """Takes what makes keys and values of a latent: rows for keys of each head, turned, and for values."""
        heads, rank, query, value = (
            self._config.metadata[f"{self._config.family.architecture}.attention.{key}"]
            for key in ("head_count", "kv_lora_rank", "key_length_mla", "value_length_mla")
        )
        plain = query - self._config.metadata[f"{self._config.family.architecture}.rope.dimension_count"]
        if info.shape != (heads * (plain + value), rank):
            raise ModelFileError(
                f"'{info.name}' must be {[heads * (plain + value), rank]}, rows for {plain} elements of keys and "
                f"{value} of values of each of {heads} heads, but is {list(info.shape)}",
                path=self._path,
            )

        def each() -> np.ndarray:
            return self._values(part, info).reshape(heads, plain + value, rank)

        keys, values = f"{layer}.attn_k_b.weight", f"{layer}.attn_v_b.weight"
        self._make(keys, (heads, rank, plain), info.type, lambda: np.array(each()[:, :plain].swapaxes(1, 2)))
        self._make(values, (heads, value, rank), info.type, lambda: np.array(each()[:, plain:]))

    def _take_experts(self, part: int, info: safetensors.TensorInfo, layer: str, name: str) -> bool:
        """Takes a tensor of one expert, or of all, where the family has such ones."""
        if self._config.family.mixed_experts:
            return self._take_mixed(part, info, layer, name)
        if not self._config.family.split_experts:
            return False
        single, joined = _EXPERT.fullmatch(name), _JOINED_EXPERTS.fullmatch(name)
        if single is not None:
            stacked = f"{layer}.ffn_{_WORDS[single[2]]}_exps.weight"
            self._experts.setdefault(stacked, {})[int(single[1])] = part, info
            return True
        if joined is None or len(info.shape) != 3:
            return False
        values, (experts, rows, width) = self._values(part, info), info.shape  # floats of 8 bits are of two dimensions
        if (word := "down" if joined[2] == "output" else joined[1]) in ("up", "down"):
            self._make(f"{layer}.ffn_{word}_exps.weight", info.shape, info.type, partial(np.array, values))
            return True
        if rows % 2:
            return False
        for word, own in (("gate", values[:, : rows // 2]), ("up", values[:, rows // 2 :])):
            shape = (experts, rows // 2, width)
            self._make(f"{layer}.ffn_{word}_exps.weight", shape, info.type, partial(np.array, own))
        return True

    def _take_mixed(self, part: int, info: safetensors.TensorInfo, layer: str, name: str) -> bool:
        """Takes a tensor of all experts in which outputs are last, and those of gate and up take turns."""
        found = _MIXED_EXPERTS.fullmatch(name)
        if found is None or len(info.shape) != _MIXED_RANKS[found[2]]:
            return False
        word, kind = found[1], found[2]
        if kind in ("_blocks", "_scales"):
            self._blocks.setdefault((layer, word), {})[kind] = part, info
            return True
        values = self._values(part, info)
        if word == "gate_up" and values.shape[-1] % 2:
            return False
        for own, step in _turns(word).items():
            picked = values[..., step]
            if kind == "_bias":
                make = partial(picked.astype, np.float32)
                self._make(f"{layer}.ffn_{own}_exps.bias", picked.shape, "f32", make)
            else:
                rows = picked.swapaxes(1, 2)
                self._make(f"{layer}.ffn_{own}_exps.weight", rows.shape, info.type, partial(np.array, rows))
        return True

    def _unpack(self, layer: str, word: str, kinds: Mapping[str, Entry]) -> None:
        """Makes tensors of blocks of MXFP4 [experts, outputs, blocks, 16] and their scales."""
        shapes = {kind: list(info.shape) for kind, (_, info) in kinds.items()}
        blocks, scales = shapes.get("_blocks", []), shapes.get("_scales")
        fits = {info.type for _, info in kinds.values()} == {"u8"} and blocks[:3] == scales and blocks[3:] == [16]
        if not fits or (word == "gate_up" and blocks[1] % 2):
            given = ", ".join(f"{kind[1:]} {shape} of {kinds[kind][1].type}" for kind, shape in sorted(shapes.items()))
            raise ModelFileError(
                f"experts of MXFP4 must be blocks [experts, outputs, n, 16] and scales [experts, outputs, n] of u8, "
                f"outputs of gate_up an even number, but those of '{layer}', {word}_proj, are {given}",
                path=self._path,
            )
        codes, exponents = (self._values(*kinds[kind]) for kind in ("_blocks", "_scales"))
        for own, step in _turns(word).items():
            name = f"{layer}.ffn_{own}_exps.weight"
            if name in self.tensors:
                raise ModelFileError(
                    f"'{name}' must be given once, but is there as numbers and as blocks", path=self._path
                )
            experts, rows, count = exponents[:, step].shape
            make = partial(_mxfp4_rows, codes[:, step], exponents[:, step])
            self._make(name, (experts, rows, count * get_format("mxfp4").block), "mxfp4", make)

    def _stack(self, name: str, each: Mapping[int, Entry]) -> None:
        """Makes one tensor of those of all experts."""
        infos = [each[number][1] for number in sorted(each)]
        alike = {(info.type, info.shape) for info in infos}
        if sorted(each) != list(range(len(each))) or len(alike) != 1:
            raise ModelFileError(
                f"'{name}' must be of experts 0, 1, … of one type and shape, but is of {sorted(each)[:_LISTED]} of "
                f"{_list([f'{kind} {list(shape)}' for kind, shape in sorted(alike)])}",
                path=self._path,
            )
        entries = [each[number] for number in sorted(each)]
        shape = (len(entries), *infos[0].shape)
        self._make(name, shape, infos[0].type, lambda: np.stack([self._values(*entry) for entry in entries]))

    def _values(self, part: int, info: safetensors.TensorInfo) -> np.ndarray:
        """The elements, a view of the mapped file; of floats of 8 bits an array of bf16."""
        if info.name in self._float8:
            (part, info), (scale_part, scale) = self._float8[info.name]
            assert self._config.float8 is not None
            weight = self._data[part][info.begin : info.end].view(DTYPE).reshape(info.shape)
            factors = self._data[scale_part][scale.begin : scale.end].copy().view(_STORED[scale.type])
            return self._config.float8.numbers(weight, factors.reshape(scale.shape))
        values: np.ndarray = self._data[part][info.begin : info.end].view(_STORED[info.type])
        return values.reshape(info.shape)

    def _make(self, name: str, shape: Iterable[int], type: str, make: Callable[[], np.ndarray]) -> None:
        """A tensor that is made when it is asked for."""
        sizes = tuple(shape)
        size = math.prod(sizes[:-1]) * get_format(type).row_bytes(sizes[-1])
        self.tensors[name] = TensorInfo(name, sizes, type, _number(type), 0, size, 0)
        self.made[name] = make


def has_prediction(files: Iterable[SafetensorsFile]) -> bool:
    """Whether a folder has the layer that predicts further ahead, by names that aren't those of other layers."""
    return any(_AHEAD.fullmatch(name) for file in files for name in file.tensors)


def _number(type: str) -> int:
    """The number that GGUF files have for a type."""
    number = get_format(type).type_id
    assert number is not None, "types of GGUF files alone are taken"
    return number


def _turns(word: str) -> dict[str, slice]:
    """Which outputs of a tensor of experts are those of what."""
    return {"gate": slice(0, None, 2), "up": slice(1, None, 2)} if word == "gate_up" else {"down": slice(None)}


def _mxfp4_rows(codes: np.ndarray, exponents: np.ndarray) -> npt.NDArray[np.uint8]:
    """Blocks of GGUF files [..., n, 17]: the scale, and bytes of which byte i has codes i and i + 16.

    In folders, byte i of `codes`, [..., n, 16], has codes 2 i and 2 i + 1.
    """
    first, second = codes[..., :8], codes[..., 8:]
    found = np.empty((*exponents.shape, 17), np.uint8)
    found[..., 0] = exponents
    found[..., 1::2] = (first & 15) | ((second & 15) << 4)
    found[..., 2::2] = (first >> 4) | (second & 0xF0)
    return found


def _renamed(info: safetensors.TensorInfo) -> safetensors.TensorInfo:
    """A tensor of a part by the name that it has where that is the whole."""
    for prefix, own in _PREFIXES:
        if info.name.startswith(prefix):
            return replace(info, name=own + info.name.removeprefix(prefix))
    return info


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


__all__ = ["Bytes", "FolderTensors", "has_prediction"]
