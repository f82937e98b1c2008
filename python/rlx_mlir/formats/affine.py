# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of 8 bits whose scales and zero points are numbers: how floats become integers, and these floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray

#: Beyond what 8 bits hold, whatever the zero point: integers are cut here before it is added.
BEYOND = 512


def round_away(x: Array) -> Array:
    """The integer nearest to each float, of two the one that is farther from 0."""
    with np.errstate(invalid="ignore"):  # inf - inf
        whole = np.trunc(x)
        return np.asarray(np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole))


def by_channel(numbers: Sequence[float] | Array, rank: int, axis: int | None, dtype: Any) -> Array:
    """Numbers of channels along `axis` of a tensor, or the one of all, to be broadcast."""
    array = np.asarray(numbers).astype(dtype)
    shape = [1] * rank
    if axis is not None:
        shape[axis] = -1
    return array.reshape(shape)


def to_bytes(x: Array, zero_points: Array | int) -> Array:
    """Floats rounded to integers, and these with the zero points added, as i8: saturated, NaN as 0."""
    rounded = round_away(x).clip(-BEYOND, BEYOND - 1)
    whole = np.where(np.isnan(rounded), 0, rounded).astype(np.int32)
    return np.asarray(np.clip(whole + zero_points, -128, 127).astype(np.int8))


def quantize(x: Array, *, scales: Sequence[float], zero_points: Sequence[int], axis: int | None = None) -> Array:
    """clamp(round(x (1 / scale)) + zero point, -128, 127), ties away from 0; NaN counts as 0."""
    wide = x if x.dtype == np.float64 else x.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scaled = wide * (1 / by_channel(scales, x.ndim, axis, wide.dtype))
    return to_bytes(scaled, by_channel(zero_points, x.ndim, axis, np.int32))


def dequantize(q: Array, *, scales: Sequence[float], zero_points: Sequence[int], axis: int | None = None) -> Array:
    """(q - zero point) scale, of f32."""
    difference = q.astype(np.int32) - by_channel(zero_points, q.ndim, axis, np.int32)
    return np.asarray(difference.astype(np.float32) * by_channel(scales, q.ndim, axis, np.float32))


def saturate(x: Array, dtype: np.dtype) -> Array:
    """Numbers as integers of `dtype`: fractions are dropped, what is outside saturates, NaN counts as 0."""
    info = np.iinfo(dtype)
    if x.dtype.kind in "iub":
        return np.clip(x.astype(np.int64), info.min, info.max).astype(dtype)
    wide = np.trunc(x.astype(np.float64))
    inside = (wide >= float(info.min)) & (wide < float(int(info.max) + 1))  # exact in f64; NaN isn't inside
    whole = np.where(inside, wide, 0.0).astype(dtype)
    return np.where(inside | np.isnan(wide), whole, np.where(wide > 0, info.max, info.min)).astype(dtype)
