# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Resizing: along each dimension, rows of a result are sums of rows of the operand, with weights that sizes decide.

The weights of a dimension are a matrix, computed while the file is read: sizes along it must be known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rlx_mlir.errors import OnnxError
from rlx_mlir.frontends.tensors import Tensor
from rlx_mlir.hir import Value

from ..call import Call
from ..registry import Refused, operator
from ..types import FLOATS

_MODES = ("nearest", "linear", "cubic")
_COORDINATES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "tf_crop_and_resize",
)
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class _Rule:
    """How results are made of neighbours.

    Attributes:
        mode: which neighbours count.
        coordinates: where a place of the result is in the operand.
        nearest: which neighbour is the nearest.
        cubic: the parameter of cubic weights.
        outside: whether neighbours that aren't there are left out.
        antialias: whether weights are spread where a result is smaller.
    """

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    outside: bool
    antialias: bool


def _places(rule: _Rule, size: int, count: int, scale: float, roi: tuple[float, float]) -> np.ndarray:
    """Where the places of the result are in the operand."""
    x = np.arange(count, dtype=np.float64)
    length = scale * size  # of which the result has the whole part
    if rule.coordinates == "align_corners":
        return x * (size - 1) / (length - 1) if length != 1 else x * 0
    if rule.coordinates == "asymmetric":
        return x / scale
    if rule.coordinates == "tf_crop_and_resize":
        start, end = roi
        if length != 1:
            return start * (size - 1) + x * (end - start) * (size - 1) / (length - 1)
        return x * 0 + 0.5 * (start + end) * (size - 1)
    if rule.coordinates == "pytorch_half_pixel" and length <= 1:
        return x * 0
    found = (x + 0.5) / scale - 0.5
    if rule.coordinates == "half_pixel_symmetric":
        found += size / 2 * (1 - count / length)
    return found


def _nearest(rule: _Rule, x: np.ndarray) -> np.ndarray:
    if rule.nearest == "round_prefer_floor":
        return np.ceil(x - 0.5)
    if rule.nearest == "round_prefer_ceil":
        return np.floor(x + 0.5)
    return np.floor(x) if rule.nearest == "floor" else np.ceil(x)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    d = np.abs(distance)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _matrix(call: Call, rule: _Rule, size: int, places: np.ndarray, scale: float) -> np.ndarray:
    """The weights [places, size] of the operand's rows in the result's."""
    rows = np.arange(len(places))
    call.affordable(len(places), size)
    found = np.zeros((len(places), size))
    if rule.mode == "nearest":
        found[rows, np.clip(_nearest(rule, places), 0, size - 1).astype(np.int64)] = 1
        return found
    spread = min(scale, 1.0) if rule.antialias else 1.0
    reach = (1 if rule.mode == "linear" else 2) / spread
    base = np.floor(places)
    for offset in range(1 - math.ceil(reach), math.ceil(reach) + 1):
        distance = (base + offset - places) * spread
        weights = np.maximum(1 - np.abs(distance), 0) if rule.mode == "linear" else _cubic(distance, rule.cubic)
        at = base + offset
        if rule.outside:
            weights = np.where((at < 0) | (at > size - 1), 0.0, weights)
        np.add.at(found, (rows, np.clip(at, 0, size - 1).astype(np.int64)), weights)
    if rule.antialias or rule.outside:
        found /= found.sum(1, keepdims=True)
    return found


@operator("Resize", since=10)
def _resize(call: Call) -> Tensor:
    rule = _Rule(
        call.choice("mode", "nearest", _MODES),
        call.choice("coordinate_transformation_mode", "half_pixel", _COORDINATES)
        if call.version >= 11
        else "asymmetric",
        call.choice("nearest_mode", "round_prefer_floor", _NEAREST) if call.version >= 11 else "floor",
        call.number("cubic_coeff_a", -0.75),
        call.flag("exclude_outside"),
        call.flag("antialias"),
    )
    rank = call.rank(0)
    axes = [call.along(axis, rank) for axis in call.ints("axes", range(rank))]
    scales, sizes = (1, None) if call.version < 11 else (2, 3)
    own = _known_sizes(call, axes)
    if sizes is not None and call.has(sizes) and call.known(sizes, "the sizes").size:
        counts = call.known_ints(sizes, "the sizes")
        factors = _policy(call, own, counts)
    else:
        factors = [float(scale) for scale in call.known(scales, "the scales").reshape(-1)]
        counts = [math.floor(size * scale) for size, scale in zip(own, factors, strict=True)]
    roi = [(0.0, 1.0)] * len(axes)
    if rule.coordinates == "tf_crop_and_resize":
        numbers = [float(entry) for entry in call.known(1, "the region").reshape(-1)]
        roi = list(zip(numbers[: len(axes)], numbers[len(axes) :], strict=True))
    return call.out(_resized(call, rule, list(zip(axes, own, counts, factors, roi, strict=True))))


def _known_sizes(call: Call, axes: list[int]) -> list[int]:
    found = []
    for axis in axes:
        size = call.shape(0)[axis].constant
        found.append(-1 if size is None else size)
    return found


def _policy(call: Call, own: list[int], counts: list[int]) -> list[float]:
    """The scales that sizes ask for; with a policy the same for all, and the sizes follow."""
    factors = [count / size for size, count in zip(own, counts, strict=True)]
    policy = call.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    if policy == "stretch":
        return factors
    one = min(factors) if policy == "not_larger" else max(factors)
    counts[:] = [math.floor(one * size + 0.5) for size in own]
    return [one] * len(own)


def _resized(call: Call, rule: _Rule, along: list[tuple[int, int, int, float, tuple[float, float]]]) -> Value:
    m, x = call.m, call.value(0)
    wide = call.wide(x) if x.dtype in FLOATS or rule.mode == "nearest" else m.cast(x, "f32")
    hidden: Value | None = None
    for axis, size, count, scale, roi in along:
        if size == count and (rule.coordinates != "tf_crop_and_resize" or roi == (0.0, 1.0)):
            continue
        if size < 0:
            if scale == 1.0:
                continue
            raise Refused(f"dimension {axis}, whose size calls decide")
        if size == 0 or count <= 0:
            raise OnnxError(f"node '{call.name}': a dimension of {size} becomes one of {count}")
        call.affordable(count)
        places = _places(rule, size, count, scale, roi)
        wide = _weighted(call, wide, axis, _matrix(call, rule, size, places, scale), nearest=rule.mode == "nearest")
        if rule.coordinates == "tf_crop_and_resize":
            out = ((places < 0) | (places > size - 1)).reshape([-1, *[1] * (x.ndim - axis - 1)])
            own = m.constant(out)
            hidden = own if hidden is None else hidden | own
    if hidden is not None:
        wide = m.where(hidden, m.constant(call.scalar(call.number("extrapolation_value", 0.0), wide)), wide)
    return call.narrowed(wide, x.dtype)


def _weighted(call: Call, x: Value, axis: int, matrix: np.ndarray, *, nearest: bool) -> Value:
    """Rows along a dimension combined by the weights of a matrix."""
    m, rank = call.m, x.ndim
    if nearest:
        return m.gather(x, matrix.argmax(1).astype(np.int64), axis)
    weight = call.importer.value(Tensor.of(matrix.astype(x.dtype)))
    order = [i for i in range(rank) if i != axis] + [axis]
    back = [order.index(i) for i in range(rank)]
    if rank == 1:
        return call.reshaped(
            m.matmul(call.reshaped(x, [1, *Tensor.running(x).shape]), weight, transpose_rhs=True), [matrix.shape[0]]
        )
    rows = m.transpose(x, order) if axis != rank - 1 else x
    y = m.matmul(rows, weight, transpose_rhs=True)
    return m.transpose(y, back) if axis != rank - 1 else y


@operator("Upsample")
def _upsample(call: Call) -> Tensor:
    rule = _Rule(call.choice("mode", "nearest", ("nearest", "linear")), "asymmetric", "floor", -0.75, False, False)
    if call.has(1):
        factors = [float(scale) for scale in call.known(1, "the scales").reshape(-1)]
    else:
        factors = [float(scale) for scale in call.attributes.get("scales", [])]
    axes = list(range(call.rank(0)))
    own = _known_sizes(call, axes)
    counts = [math.floor(size * scale) for size, scale in zip(own, factors, strict=True)]
    return call.out(
        _resized(call, rule, [(*each, (0.0, 1.0)) for each in zip(axes, own, counts, factors, strict=True)])
    )
