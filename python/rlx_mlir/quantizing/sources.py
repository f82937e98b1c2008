# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model as the file that is written of it: metadata and tensors by the conventions of GGUF files.

Of a GGUF file these are its own. A folder has the same names, but three conventions of its own: rows of queries and
keys whose elements rotate together lie half a head apart, where files of some architectures have them side by side;
vectors may be f16 or bf16, where files have f32; and its vocabulary is in another form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rlx_mlir.errors import UnsupportedError
from rlx_mlir.formats import decode, get_format
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.frontends.huggingface import HUGGINGFACE, HuggingFaceFolder
from rlx_mlir.frontends.model_file import MetadataValue, ModelFile, TensorInfo
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.older_latents import OlderLatents
from rlx_mlir.quantizing.vocabulary import vocabulary_of

_OWN = ("rope.halves", "rope.layers", "rope.scaling.yarn_truncate")
"""Keys of folders that files don't have."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Source:
    """A model that a file is written of.

    Attributes:
        file, config: the model.
        metadata: of the file.
        heads: by the name of a tensor whose rows change their order, how many heads they are of.
    """

    file: ModelFile
    config: ModelConfig
    metadata: Mapping[str, MetadataValue]
    heads: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, file: ModelFile) -> Source:
        """What is written of a model.

        Raises GGUFError, ModelFileError, UnsupportedError, TokenizerError for models that aren't what can be read, or
        have something that GGUF files can't say.
        """
        config = ModelConfig.from_gguf(file)
        if not isinstance(file, HuggingFaceFolder):
            own, changed = (file.source, file.changed) if isinstance(file, OlderLatents) else (file, {})
            if not isinstance(own, GGUFFile):
                raise UnsupportedError(
                    f"'{own.path}' is a bundle, which has weights as its code reads them: quantise the model "
                    "that it was made of"
                )
            metadata = {key: own.metadata.typed(key) for key in own.metadata if not key.startswith("split.")}
            return cls(file, config, {**metadata, **changed})
        return cls(file, config, _folder_metadata(file, config), _permuted(file, config))

    def kept_type(self, info: TensorInfo) -> str:
        """The type of a tensor that isn't quantised: its own, and f32 for those of a folder."""
        return "f32" if isinstance(self.file, HuggingFaceFolder) else info.type

    def shape(self, info: TensorInfo) -> tuple[int, ...]:
        """Of the tensor in the file."""
        return info.shape

    def raw(self, info: TensorInfo) -> np.ndarray:
        """The bytes of a tensor as it is, uint8 [rows, bytes of a row]."""
        rows = self.file.read(info).reshape(info.rows, -1).view(np.uint8)
        return rows[self._order(info)] if info.name in self.heads else rows

    def rows(self, info: TensorInfo, start: int, stop: int) -> Floats:
        """Rows of a tensor, f32 [rows, k]."""
        data = self.file.read(info)
        data = data.reshape(info.rows, -1)
        own = data[self._order(info)[start:stop]] if info.name in self.heads else data[start:stop]
        if get_format(info.type_id).dense is not None:
            return own.astype(np.float32)
        return decode(info.type_id, own, info.k)

    def _order(self, info: TensorInfo) -> npt.NDArray[np.intp]:
        """Of each row of the file, which one it is of the tensor. A vector's elements are its rows here."""
        count = info.shape[0]
        numbers = np.arange(count, dtype=np.intp)
        found: npt.NDArray[np.intp] = numbers.reshape(self.heads[info.name], 2, -1).swapaxes(1, 2).reshape(-1)
        return found


def _permuted(file: ModelFile, config: ModelConfig) -> dict[str, int]:
    """What has rows in another order in files, in which those that rotate together are side by side: see `Source`."""
    plan = config.plan  # latents have one order everywhere
    if plan.rope_style != "interleaved" or plan.folder_order or config.latent is not None:
        return {}
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}
    found = {}
    for name in file.tensors:
        kind = name.rpartition(".")[0].rpartition(".")[2]
        if kind in heads and name.startswith("blk.") and name.endswith(".weight"):
            found[name] = heads[kind]
    return found


def _folder_metadata(file: HuggingFaceFolder, config: ModelConfig) -> dict[str, MetadataValue]:
    """Metadata of a folder by the keys of files."""
    prefix = f"{config.architecture}."
    whole = config.plan.whole_pairs
    if file.metadata.get(f"{prefix}rope.scaling.yarn_truncate", whole) is not whole:
        raise UnsupportedError(
            f"{file.path}: GGUF files can't say that the bounds of YaRN are {'no ' * whole}whole pairs ('truncate' is "
            f"{str(not whole).lower()})"
        )
    if config.latent is not None and config.rope_style == "half":
        raise UnsupportedError(
            f"{file.path}: GGUF files of '{config.architecture}' can't say that rows that rotate together are half a "
            "head apart ('rope_interleave' is false)"
        )
    left_out = {f"{prefix}{key}" for key in _OWN}
    found: dict[str, MetadataValue] = {
        "general.architecture": config.architecture,
        "general.type": "model",
        "general.name": Path(file.path or "").resolve().name,
    }
    for key in file.metadata:
        if key.startswith(prefix) and key not in left_out:
            found[key] = file.metadata[key]
    if "tokenizer.ggml.model" in file.metadata and file.metadata["tokenizer.ggml.model"] == HUGGINGFACE:
        found |= vocabulary_of(file.metadata, config.vocab, origin=file.path or "")
    if "tokenizer.chat_template" in file.metadata:
        found["tokenizer.chat_template"] = file.metadata["tokenizer.chat_template"]
    return found


__all__ = ["Source"]
