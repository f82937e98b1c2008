# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the numpy references share: accumulation types, rounding, index decoding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
FLOAT8 = (np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2))


def is_float(dtype: np.dtype) -> bool:
    """Whether it is one of f16, bf16, f32, f64, f8E4M3FN and f8E5M2."""
    return dtype == BF16 or dtype.kind == "f" or dtype in FLOAT8


def is_inexact(dtype: np.dtype) -> bool:
    """Whether its numbers are rounded: floats and complex numbers."""
    return is_float(dtype) or dtype.kind == "c"


def parts(x: np.ndarray) -> np.ndarray:
    """The real and imaginary parts of complex numbers along a further dimension; other arrays as they are."""
    return np.stack([x.real, x.imag], axis=-1) if x.dtype.kind == "c" else x


def joined_parts(re: np.ndarray, im: np.ndarray) -> np.ndarray:
    """The complex numbers of their parts, which infinities in the other part don't change."""
    result = np.empty(re.shape, np.result_type(re.dtype, np.complex64))
    result.real, result.imag = re, im
    return result


def by_parts(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    """A function of floats, on each part of complex numbers by itself."""
    return joined_parts(function(x.real), function(x.imag)) if x.dtype.kind == "c" else function(x)


def accumulator(dtype: np.dtype) -> np.dtype:
    """The type in which values of `dtype` are computed: f32 for types of 16 and 8 bits, else the type itself."""
    return F32 if dtype in (F16, BF16, *FLOAT8) else dtype


def widen(x: np.ndarray) -> np.ndarray:
    """The values in the type in which they are computed."""
    return x.astype(accumulator(x.dtype), copy=False)


def narrow(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The floats rounded to `dtype` once, ties to even; floats of 8 bits saturate."""
    if x.dtype == dtype:
        return x
    if x.dtype == F64 and (dtype == BF16 or dtype in FLOAT8):
        x = _round_to_odd(x)  # through f32 would round twice
    if dtype not in FLOAT8:
        return x.astype(dtype)
    limit = np.float32(ml_dtypes.finfo(dtype).max)
    return x.astype(F32).clip(-limit, limit).astype(dtype)


def _round_to_odd(x: np.ndarray) -> np.ndarray:
    """f64 to f32, inexact values to the neighbour with an odd last bit: a later rounding then is the only one."""
    near = x.astype(F32)
    back = near.astype(F64)
    inexact = np.isfinite(x) & (back != x)
    # Truncated towards zero, then the last bit set; an overflow to inf truncates to the largest number.
    bits = np.atleast_1d(near).view(np.uint32).copy()
    bits -= np.atleast_1d(inexact & (np.abs(back) > np.abs(x))).astype(np.uint32)
    bits |= np.atleast_1d(inexact).astype(np.uint32)
    return bits.view(F32).reshape(x.shape)


def sum_along(x: np.ndarray, axes: int | Sequence[int], *, keep_dims: bool = True) -> np.ndarray:
    """Sums of a tensor in its own type, pairwise: numpy does so along the last axis of contiguous memory alone."""
    chosen = [axis % x.ndim for axis in ([axes] if isinstance(axes, int) else axes)]
    kept = [axis for axis in range(x.ndim) if axis not in chosen]
    shape = [x.shape[axis] for axis in kept]
    rows = np.transpose(x, [*kept, *chosen]).reshape(*shape, math.prod(x.shape[axis] for axis in chosen))
    total = np.asarray(np.sum(np.ascontiguousarray(rows), axis=-1, dtype=x.dtype))
    return np.expand_dims(total, tuple(sorted(chosen))) if keep_dims else total


def mean_along(x: np.ndarray, axis: int) -> np.ndarray:
    """The mean along an axis, which is kept."""
    return np.asarray(sum_along(x, axis) / x.dtype.type(x.shape[axis]))


def decode_indices(indices: np.ndarray, size: int) -> np.ndarray:
    """Index values as int64 in 0 .. size - 1: fractions are dropped, NaN counts as 0, what is outside is clamped."""
    if indices.dtype.kind == "f":
        indices = np.clip(np.nan_to_num(indices.astype(F64), nan=0.0), 0, size)
    return np.clip(indices.astype(np.int64), 0, max(size - 1, 0))
