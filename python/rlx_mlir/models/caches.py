# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches of keys and values: what ``kv_dtype`` says, and which arrays and arguments follow from it. Needs no MLIR.

``kv_dtype`` is one type for keys and values, ``f16``, or one for each, ``q8_0/q4_0``: that of keys first. A row of a
cache is a token's keys or values, those of all heads side by side: elements, or blocks of 32 of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..checks import Option
from ..dtypes import DTYPES
from ..errors import InputError
from ..formats import decode, encode, get_format
from .recurrent import Recurrence

FLOATS = ("f32", "f16", "bf16")
BLOCKS = ("q8_0", "q4_0")
KV_DTYPES = FLOATS + BLOCKS
"""Types that cached keys and values may have."""


class Cached(Protocol):
    """What caches depend on; `ModelConfig` has it."""

    @property
    def kv_dtype(self) -> str:
        """Of keys and values."""

    @property
    def attentive(self) -> Sequence[int]:
        """The layers that have a pair of caches each."""

    @property
    def kv_width(self) -> int:
        """Elements of a row."""

    @property
    def latent(self) -> object:
        """What tells that there is one cache of a layer, whose rows are keys and values; None where there are two."""

    @property
    def delta(self) -> Recurrence | None:
        """What layers have in place of caches, or beside them."""


@dataclass(frozen=True)
class CacheType:
    """What rows of a cache are.

    Attributes:
        kind: one of `KV_DTYPES`.
        elements: of a row.
    """

    kind: str
    elements: int

    @property
    def scheme(self) -> str | None:
        """The format of its blocks; None where rows are floats."""
        return self.kind if self.kind in BLOCKS else None

    @property
    def element(self) -> str:
        """The element type of the array, MLIR's word: i8 for blocks."""
        return "i8" if self.scheme else self.kind

    @property
    def dtype(self) -> np.dtype:
        """That of the array."""
        return DTYPES[self.element]

    @property
    def width(self) -> int:
        """The last dimension of the array: [B, context, width]."""
        return get_format(self.kind).row_bytes(self.elements) if self.scheme else self.elements

    @property
    def nbytes(self) -> int:
        """Bytes of a row."""
        return self.width * self.dtype.itemsize

    @property
    def largest(self) -> float | None:
        """The largest number that it holds; None where that is about as large as those of f32."""
        return {"f16": 65504.0, "q8_0": 127 * 65504.0, "q4_0": 8 * 65504.0}.get(self.kind)

    def stored(self, numbers: np.ndarray) -> np.ndarray:
        """f32 [n, elements] as rows [n, width] of such a cache; InputError for what blocks can't hold."""
        if self.scheme is None:
            return numbers.astype(self.dtype)
        return encode(self.kind, numbers).view(np.int8)

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """Rows [n, width] of such a cache as f32 [n, elements]."""
        if self.scheme is None:
            return rows.astype(np.float32)
        return decode(self.kind, np.ascontiguousarray(rows).view(np.uint8), self.elements)


def kinds(kv_dtype: str) -> tuple[str, str]:
    """The types of keys and of values, of `KV_DTYPES`; InputError for any other text."""
    found = kv_dtype.split("/") if isinstance(kv_dtype, str) else []
    pair = found * 2 if len(found) == 1 else found
    if len(pair) != 2 or not set(pair) <= set(KV_DTYPES):
        raise InputError(
            f"'kv_dtype' must be one of {', '.join(KV_DTYPES)}, or two of them, of keys and of values, such as "
            f"q8_0/q4_0, but is {kv_dtype!r}"
        )
    return pair[0], pair[1]


def check_kv_dtype(kv_dtype: str, head_dim: int, *, one: bool = False) -> None:
    """Raises InputError for a text that says no types, or blocks that heads aren't made of; with ``one`` for two types,
    too: keys are values."""
    pair = kinds(kv_dtype)
    if one and pair[0] != pair[1]:
        raise InputError(
            f"'kv_dtype' must be one type where keys and values are made of the same latents, but is {kv_dtype!r}"
        )
    for kind in pair:
        if kind in BLOCKS and head_dim % get_format(kind).block:
            raise InputError(
                f"'kv_dtype' {kind} has blocks of {get_format(kind).block} elements, of which a head must be a "
                f"multiple, but the model's heads have {head_dim}; {', '.join(FLOATS)} hold heads of any size"
            )


def cache_types(config: Cached, layers: Sequence[int] | None = None) -> dict[str, CacheType]:
    """What each cache input is, by name: ``k_0``, ``v_0``, ``k_1``, …; updated caches have these names, too.

    Where keys are values, too, there are ``k_0``, ``k_1``, … alone. Of some layers, or of all that have caches.
    """
    own = {name: CacheType(kind, config.kv_width) for name, kind in zip("kv", kinds(config.kv_dtype), strict=True)}
    if config.latent is not None:
        del own["v"]
    own_layers = config.attentive if layers is None else layers
    return {f"{name}_{layer}": type for layer in own_layers for name, type in own.items()}


def state_shapes(config: Cached) -> dict[str, tuple[int, ...]]:
    """The shapes of what a sequence has beside caches, f32, by name: ``conv_0``, ``delta_0``, …; see `delta`."""
    return config.delta.states() if config.delta else {}


def state_bytes(config: Cached) -> int:
    """Bytes of these, of one sequence."""
    return sum(4 * math.prod(shape) for shape in state_shapes(config).values())


def schemes(config: Cached) -> dict[str, Option]:
    """The arguments of `GraphModule.attention` and `llama_decoder_block` that say what caches hold."""
    return {f"{name}_scheme": kind for name, kind in zip("kv", kinds(config.kv_dtype), strict=True) if kind in BLOCKS}


def bytes_per_token(config: Cached) -> int:
    """Bytes of all caches for one position of one sequence."""
    return sum(type.nbytes for type in cache_types(config).values())


__all__ = [
    "BLOCKS",
    "FLOATS",
    "KV_DTYPES",
    "CacheType",
    "bytes_per_token",
    "cache_types",
    "check_kv_dtype",
    "kinds",
    "schemes",
    "state_bytes",
    "state_shapes",
]
