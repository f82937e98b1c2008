# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GGUF files of DeepSeek's models from before latents were cached, seen as files of today.

They have the keys and values of each head in one matrix, `attn_kv_b` [heads (plain + value), rank], rows of keys before
those of values, and their metadata says how wide these are: as many heads of keys as of queries. Files of today have
`attn_v_b` [heads, value, rank], which has the same rows, so the same bytes, and `attn_k_b` [heads, rank, plain], which
is turned: no block format holds the same numbers the other way round, so it is f32 here, and exact.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..errors import GGUFError
from ..formats import get_format
from ..frontends.model_file import MetadataValue, ModelFile, ModelMetadata, TensorInfo

_PREFIX = "deepseek2.attention."
_JOINED = re.compile(r"(blk\.\d+)\.attn_kv_b\.weight")


def is_older(file: ModelFile) -> bool:
    """Whether a file has keys and values of heads in one matrix."""
    keys = (
        f"{_PREFIX}kv_lora_rank",
        f"{_PREFIX}key_length",
        f"{_PREFIX}value_length",
        "deepseek2.rope.dimension_count",
    )
    metadata = file.metadata
    return (
        file.architecture == "deepseek2"
        and f"{_PREFIX}key_length_mla" not in metadata
        and all(isinstance(metadata.get(key), int) for key in (*keys, f"{_PREFIX}head_count"))
        and any(_JOINED.fullmatch(name) for name in file.tensors)
    )


class _Metadata(ModelMetadata):
    """That of a file, with other values in the place of some, and more of them."""

    def __init__(self, source: ModelMetadata, own: Mapping[str, MetadataValue]) -> None:
        self._source, self._own = source, dict(own)

    def __getitem__(self, key: str) -> MetadataValue:
        return self._own[key] if key in self._own else self._source[key]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._source, *self._own]))

    def __len__(self) -> int:
        return len({*self._source, *self._own})

    def length(self, key: str) -> int | None:
        """See `ModelMetadata`."""
        return None if key in self._own else self._source.length(key)


class OlderLatents(ModelFile):
    """See the module's docstring.

    Attributes:
        source: the file.
        changed: the metadata that the file hasn't, or has otherwise.
    """

    def __init__(self, source: ModelFile) -> None:
        """Raises GGUFError where a matrix doesn't have the rows that the metadata says, or is of an unknown type."""
        self.source = source
        self.path: str | None = source.path
        self.statuses = source.statuses
        metadata = source.metadata
        heads, rank, query, value = (
            metadata[f"{_PREFIX}{key}"] for key in ("head_count", "kv_lora_rank", "key_length", "value_length")
        )
        self._heads, self._plain, self._value = heads, query - metadata["deepseek2.rope.dimension_count"], value
        self.changed: dict[str, int] = {
            f"{_PREFIX}head_count_kv": 1,
            f"{_PREFIX}key_length": rank + metadata["deepseek2.rope.dimension_count"],
            f"{_PREFIX}value_length": rank,
            f"{_PREFIX}key_length_mla": query,
            f"{_PREFIX}value_length_mla": value,
        }
        self.metadata: ModelMetadata = _Metadata(metadata, self.changed)
        self._joined: dict[str, TensorInfo] = {}
        self.tensors: dict[str, TensorInfo] = {}
        for name, info in source.tensors.items():
            found = _JOINED.fullmatch(name)
            if found is None:
                self.tensors[name] = info
                continue
            if info.shape != (heads * (self._plain + value), rank) or info.nbytes is None:
                raise GGUFError(
                    f"tensor '{name}' must be {[heads * (self._plain + value), rank]}, rows for {self._plain} elements "
                    f"of keys and {value} of values of each of {heads} heads, of a known type, but is "
                    f"{list(info.shape)} of {info.type}",
                    path=source.path,
                )
            f32, row = get_format("f32"), info.nbytes // info.rows
            assert f32.type_id is not None
            of_keys = replace(info, shape=(heads, rank, self._plain), type="f32", type_id=f32.type_id)
            of_values = replace(info, shape=(heads, value, rank), nbytes=heads * value * row)
            for word, own in (("k", replace(of_keys, nbytes=4 * of_keys.size)), ("v", of_values)):
                made = f"{found[1]}.attn_{word}_b.weight"
                self.tensors[made], self._joined[made] = replace(own, name=made), info

    @property
    def paths(self) -> tuple[str | None, ...]:
        """See `ModelFile`."""
        return self.source.paths

    @property
    def mappings(self) -> tuple[mmap.mmap, ...]:
        """See `ModelFile`."""
        return self.source.mappings

    def fingerprint(self) -> str:
        """See `ModelFile`."""
        return self.source.fingerprint()

    def release(self) -> None:
        """See `ModelFile`."""
        self.source.release()

    def close(self) -> None:
        """See `ModelFile`."""
        self.source.close()

    def _bytes(self, info: TensorInfo) -> npt.NDArray[np.uint8]:
        """See `ModelFile`."""
        whole = self._joined.get(info.name)
        if whole is None:
            return self.source._bytes(info)
        if info.name.endswith("attn_v_b.weight"):
            rows = self.source._bytes(whole).reshape(self._heads, self._plain + self._value, -1)
            found = np.ascontiguousarray(rows[:, self._plain :])
        else:
            numbers = self.source.dequantize(whole.name).reshape(self._heads, self._plain + self._value, -1)
            found = np.ascontiguousarray(numbers[:, : self._plain].swapaxes(1, 2)).view(np.uint8)
        found.flags.writeable = False
        return found.reshape(-1)


__all__ = ["OlderLatents", "is_older"]
