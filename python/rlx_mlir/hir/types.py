# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element types, tensor types and numbers: between the words and arrays of Python and MLIR."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from rlx_mlir import formats, ir
from rlx_mlir.arrays import element_word
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import InputError, RlxError
from rlx_mlir.mir.dims import Size, check_symbol
from rlx_mlir.mir.packed import packing

#: What a caller may write for an element type: one of our words, a numpy type or its name.
DTypeLike: TypeAlias = "str | npt.DTypeLike"
#: What a caller may write for a shape: sizes, and names of symbolic dimensions.
ShapeLike: TypeAlias = "Sequence[int | str]"
#: What a bound or a length may be: a number, text such as `max(s - 1, 0)`, or what is computed of sizes.
SizeLike: TypeAlias = "int | str | Size"
#: What the shape of a result may be written as: what is computed of symbols may be part of it.
NewShape: TypeAlias = "Sequence[SizeLike]"


class Options(TypedDict, total=False):
    """What every builder of one operation takes beside its own arguments.

    Attributes:
        name: of the block, inside of the scopes.
        shape: what the caller believes the first result's shape to be.
    """

    name: str | None
    shape: ShapeLike | None


class ReduceOptions(Options, total=False):
    """What builders of reductions take, too.

    Attributes:
        keep_dims: dimensions that are reduced stay, with size 1.
    """

    keep_dims: bool


#: Every element type of the dialects, by its word in IR text.
_WORDS = {dtype: word for word, dtype in DTYPES.items()}
_ALIASES = {"bool": "i1", "u8": "ui8", "u16": "ui16", "u32": "ui32", "c64": "complex<f32>"}
_MAX_SIZE = 2**63 - 1


def dtype_word(dtype: DTypeLike) -> str:
    """The word of an element type (`f32`, `bf16`, `i1`, …); InputError where the dialects don't have it."""
    if isinstance(dtype, str) and (word := _ALIASES.get(dtype, dtype)) in DTYPES:
        return word
    try:
        found = np.dtype(dtype)
    except Exception:  # what numpy raises depends on the kind of what it doesn't know
        found = None
    # Short names mean other widths to numpy: its "i4" has 4 bytes. Only the long ones are unmistakable.
    if found is None or (isinstance(dtype, str) and dtype != found.name) or found not in _WORDS:
        given = repr(dtype) if found is None or isinstance(dtype, str) else element_word(found)
        raise InputError(f"unknown element type {given}, known are {', '.join(DTYPES)}")
    return _WORDS[found]


def element_type(word: str, context: ir.Context) -> ir.Type:
    """The MLIR type of an element type's word."""
    return ir.Type.parse(word, context)


def check_size(entry: object, shape: Sequence[object]) -> int:
    """An entry of a shape as a size; InputError where it is none that a tensor can have."""
    if isinstance(entry, int | np.integer) and not isinstance(entry, bool) and 0 <= entry <= _MAX_SIZE:
        return int(entry)
    raise InputError(f"a dimension is a size >= 0 or the name of a symbol, but got {entry!r} in {list(shape)}")


def tensor_type(shape: ShapeLike, dtype: DTypeLike, context: ir.Context) -> tuple[ir.RankedTensorType, list[str]]:
    """A tensor type, and the symbol of each of its dimensions ('' for a static one)."""
    word = dtype_word(dtype)
    sizes, symbols = [], []
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        raise InputError(f"a shape is a sequence of sizes and symbols, but got {shape!r}")
    for entry in shape:
        if isinstance(entry, str):
            symbols.append(check_symbol(entry))
            sizes.append(ir.ShapedType.get_dynamic_size())
        else:
            symbols.append("")
            sizes.append(check_size(entry, shape))
    with context, ir.Location.unknown():
        return ir.RankedTensorType.get(sizes, element_type(word, context)), symbols


def packed_type(scheme: str, shape: ShapeLike, context: ir.Context) -> ir.RankedTensorType:
    """The type of a packed weight [N, K] in GGUF row order."""
    fmt = formats.get_format(scheme)
    if len(shape) != 2 or not all(isinstance(size, int | np.integer) and size > 0 for size in shape):
        raise InputError(f"a packed weight has a static shape [N, K] with sizes > 0, but got {list(shape)}")
    n, k = (int(size) for size in shape)
    size = [n, fmt.row_bytes(k)]
    try:
        with context, ir.Location.unknown():
            encoding = ir.native.PackedAttr.get(fmt.name, k)
            return ir.RankedTensorType.get(size, ir.IntegerType.get_signless(8), encoding)
    except (ValueError, ir.MLIRError) as error:
        raise InputError(f"{fmt.name} [{n}, {k}] can't be a parameter: {first_message(error)}") from None


def first_message(error: Exception) -> str:
    """What MLIR said first."""
    diagnostics = getattr(error, "error_diagnostics", None)
    return str(diagnostics[0].message) if diagnostics else str(error)


def logical_shape(type: ir.Type) -> list[int]:
    """The sizes of a tensor, negative where dynamic; [N, K] for a packed weight."""
    shaped = ir.RankedTensorType(type)
    if (packed := packing(shaped)) is not None:
        return [-1 if packed.n is None else packed.n, packed.k]
    return [-1 if shaped.is_dynamic_dim(i) else shaped.get_dim_size(i) for i in range(shaped.rank)]


def scalar_array(value: Any, like: np.dtype) -> np.ndarray:
    """A Python number as a rank-0 array of the given type; InputError where that loses more than rounding."""
    is_complex = isinstance(value, complex | np.complexfloating)
    if is_complex and like.kind == "c":
        return _complex_array(complex(value), like)
    if is_complex or not isinstance(value, bool | int | float | np.generic):
        raise InputError(f"an operand is a value, an array or a number, but got {type(value).__name__} {value!r}")
    if isinstance(value, bool | np.bool_) and like != np.bool_:
        raise InputError(f"{value} is a bool, but the other operand is of {_WORDS[like]}")
    if like == np.bool_:
        if not isinstance(value, bool | np.bool_):
            raise InputError(f"{value!r} is not a bool, but the other operand is of i1")
        return np.array(value, like)
    if like.kind in "iu":
        info = np.iinfo(like)
        if not isinstance(value, int | np.integer) or not info.min <= value <= info.max:
            raise InputError(f"{value!r} can't be exact in {_WORDS[like]}, the type of the other operand")
        return np.array(value, like)
    if like.kind == "c":
        return _complex_array(complex(value), like)
    with np.errstate(over="ignore"):
        result = np.array(float(value)).astype(like)
    if math.isfinite(value) and not np.isfinite(result.astype(np.float64)):
        raise InputError(f"{value!r} is out of range for {_WORDS[like]}, the type of the other operand")
    return result


def _complex_array(value: complex, like: np.dtype) -> np.ndarray:
    """A complex number as a rank-0 array; InputError where a part is out of range."""
    with np.errstate(over="ignore"):
        result = np.array(value).astype(like)
    for given, made in ((value.real, result.real), (value.imag, result.imag)):
        if math.isfinite(given) and not np.isfinite(made):
            raise InputError(f"{value!r} is out of range for {_WORDS[like]}, the type of the other operand")
    return result


def describe(error: Exception) -> str:
    """The text of an error of ours, or class and text of any other."""
    return str(error) if isinstance(error, RlxError) else f"{type(error).__name__}: {error}"
