# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element types: MLIR's words for them, and numpy's types. Needs no MLIR.

Some are types that the package `ml_dtypes` adds to numpy. It is loaded when one of them is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from rlx_mlir.errors import ExecutionError, InputError

#: The name in `ml_dtypes` of each element type that numpy doesn't have.
_FOREIGN = {"bf16": "bfloat16", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2"}
_WORDS = (
    *("f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2", "i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32"),
    "complex<f32>",
)
_OWN = {
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "ui8": np.uint8,
    "ui16": np.uint16,
    "ui32": np.uint32,
    "complex<f32>": np.complex64,
}


class _Types(dict[str, np.dtype]):
    """A dictionary some of whose values are found when they are asked for; each call of compiled code reads it."""

    def __missing__(self, word: str) -> np.dtype:
        if word not in _FOREIGN:
            raise KeyError(word)
        found: np.dtype = np.dtype(getattr(ml_dtypes(f"the element type {word}"), _FOREIGN[word]))
        self[word] = found
        return found

    def __contains__(self, word: object) -> bool:
        return word in _WORDS

    def __iter__(self) -> Iterator[str]:
        return iter(_WORDS)

    def __len__(self) -> int:
        return len(_WORDS)

    def get(self, word: str, default: Any = None) -> Any:
        try:
            return self[word]
        except KeyError:
            return default

    def keys(self) -> Any:
        return dict.fromkeys(_WORDS).keys()

    def values(self) -> Any:
        return {word: self[word] for word in _WORDS}.values()

    def items(self) -> Any:
        return {word: self[word] for word in _WORDS}.items()


#: The numpy type of each element type that the dialects have.
DTYPES: dict[str, np.dtype] = _Types({word: np.dtype(kind) for word, kind in _OWN.items()})
_OWN_WORDS = {np.dtype(kind): word for word, kind in _OWN.items()}
_FOREIGN_WORDS = {name: word for word, name in _FOREIGN.items()}


def ml_dtypes(what: str) -> ModuleType:
    """The package `ml_dtypes`, which adds types to numpy; ExecutionError, which begins with `what`, without it."""
    try:
        import ml_dtypes as found
    except ImportError as error:
        raise ExecutionError(f"{what} needs the package ml_dtypes, which can't be imported: {error}") from None
    return found


def word_of(dtype: np.dtype) -> str | None:
    """The word of numpy's type; None where it is that of no element type."""
    found = _OWN_WORDS.get(dtype)
    if found is None and dtype.type.__module__ == "ml_dtypes":
        found = _FOREIGN_WORDS.get(dtype.name)
    return found


def numpy_dtype(element: object) -> np.dtype:
    """The numpy type of an element type, an MLIR type or its word; InputError where there is none."""
    found: np.dtype | None = DTYPES.get(str(element))
    if found is None:
        raise InputError(f"element type {element} has no numpy type, known are {', '.join(DTYPES)}")
    return found


__all__ = ["DTYPES", "ml_dtypes", "numpy_dtype", "word_of"]
