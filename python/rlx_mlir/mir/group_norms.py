# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Normalisation of groups of channels, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.mir.cost import Cost, Sizes, cost
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.linalg import (
    Map,
    SizeLike,
    cast_shape,
    collapse,
    converted,
    count_as,
    divided,
    element_type,
    elementwise,
    empty,
    generic,
    size_of,
    sizes_of,
    split_dims,
    summed,
)
from rlx_mlir.mir.numerics import mean_along, narrow, sum_along, widen
from rlx_mlir.mir.registry import TO_LINALG, dim_rule, reference
from rlx_mlir.mir.scalars import Scalar, accumulator, sqrt
from rlx_mlir.rewriting import Rewriter

# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


def _normal(x: np.ndarray, num_groups: int, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """The groups of x as rows, [N, G, elements], normalised; and the deviations, [N, G, 1]."""
    rows = widen(x).reshape(x.shape[0], num_groups, -1)
    centred = rows - mean_along(rows, 2)
    centred = centred - mean_along(centred, 2)  # what the rounded mean lacks
    deviation = np.sqrt(mean_along(centred * centred, 2) + rows.dtype.type(np.float32(eps)))
    return centred / deviation, deviation


def _of_channels(vector: np.ndarray) -> np.ndarray:
    """A vector with an entry for each channel, shaped to broadcast to an image."""
    return widen(vector)[:, None, None]


@reference(mir.GroupNormOp)
def group_norm(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None = None, *, num_groups: int, eps: float = 1e-5
) -> np.ndarray:
    """(x - mean) / sqrt(variance + eps) * gamma + beta in each group of channels; the biased, two-pass variance."""
    if not x.size:
        return x
    scaled = _normal(x, num_groups, eps)[0].reshape(x.shape) * _of_channels(gamma)
    return narrow(scaled if beta is None else scaled + _of_channels(beta), x.dtype)


@reference(mir.GroupNormBackwardInputOp)
def group_norm_backward_input(
    x: np.ndarray, gamma: np.ndarray, dy: np.ndarray, *, num_groups: int, eps: float = 1e-5
) -> np.ndarray:
    """(s - mean(s) - n mean(s n)) / sqrt(variance + eps), with s = dy gamma and n the normalised group."""
    if not x.size:
        return x
    normal, deviation = _normal(x, num_groups, eps)
    scaled = (widen(dy) * _of_channels(gamma)).reshape(normal.shape)
    result = (scaled - mean_along(scaled, 2) - normal * mean_along(scaled * normal, 2)) / deviation
    return narrow(result.reshape(x.shape), x.dtype)


@reference(mir.GroupNormBackwardGammaOp)
def group_norm_backward_gamma(x: np.ndarray, dy: np.ndarray, *, num_groups: int, eps: float = 1e-5) -> np.ndarray:
    """The sum of dy times the normalised group, for each channel."""
    if not x.size:
        return np.zeros(x.shape[1], x.dtype)
    normal = _normal(x, num_groups, eps)[0].reshape(x.shape)
    return narrow(sum_along(widen(dy) * normal, (0, 2, 3), keep_dims=False), x.dtype)


@reference(mir.GroupNormBackwardBetaOp)
def group_norm_backward_beta(dy: np.ndarray) -> np.ndarray:
    """The sum of dy for each channel."""
    return narrow(sum_along(widen(dy), (0, 2, 3), keep_dims=False), dy.dtype)


# ----------------------------------------------------------------------------------------------------------------------
# Costs
# ----------------------------------------------------------------------------------------------------------------------


@cost(mir.GroupNormOp)
def group_norm_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """Sum, centre, square and sum, scale twice; an addition where there is `beta`."""
    return Cost((6 if op.beta is None else 7) * sizes.count(op.x))


@cost(mir.GroupNormBackwardInputOp)
def group_norm_backward_input_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """The statistics, both means, and what is made of them."""
    return Cost(14 * sizes.count(op.x))


@cost(mir.GroupNormBackwardGammaOp)
def group_norm_backward_gamma_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """The statistics, and a product and a sum."""
    return Cost(8 * sizes.count(op.x))


@cost(mir.GroupNormBackwardBetaOp)
def group_norm_backward_beta_cost(op: ir.AnyOp, sizes: Sizes) -> Cost:
    """A sum."""
    return Cost(sizes.count(op.dy))


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


@dim_rule(mir.GroupNormOp, mir.GroupNormBackwardInputOp)
def same_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """Those of `x`."""
    return operands[0]


@dim_rule(mir.GroupNormBackwardGammaOp, mir.GroupNormBackwardBetaOp)
def channel_dims(op: ir.AnyOp, operands: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """[C]"""
    return (operands[0][1],)


# ----------------------------------------------------------------------------------------------------------------------
# Lowering to linalg
# ----------------------------------------------------------------------------------------------------------------------

Body: TypeAlias = Callable[..., Scalar]

#: Of an image in groups, [N, G, C / G, H, W]: its loops, and the maps of what groups and channels have.
_LOOPS = range(5)
_BY_GROUP: Map = [0, 1]
_BY_CHANNEL: Map = [1, 2]


@dataclass(frozen=True)
class Statistics:
    """What the groups of an image have in common, in the accumulation type.

    Attributes:
        means: the mean, and what the rounded mean lacks: [N, G] each.
        deviation: sqrt(variance + eps), [N, G].
        count: of a group's elements.
    """

    means: list[ir.Value]
    deviation: ir.Value
    count: Scalar

    @property
    def operands(self) -> list[tuple[ir.Value, Map]]:
        """What `normal` takes after the element, with their maps."""
        return [(value, _BY_GROUP) for value in (*self.means, self.deviation)]

    @staticmethod
    def normal(x: Scalar, *statistics: Scalar) -> Scalar:
        """An element normalised."""
        *means, deviation = statistics
        return _centred(x.widen(), *means) / deviation


def _centred(x: Scalar, *means: Scalar) -> Scalar:
    x = Scalar(x.value)  # not fast: one difference after the other
    for mean in means:
        x = x - Scalar(mean.value)
    return x


def _in_groups(x: ir.Value, groups: int) -> ir.Value:
    """x [N, C, H, W] as [N, G, C / G, H, W]."""
    batch, channels, height, width = sizes_of(x)
    sizes: list[SizeLike] = [batch, groups, divided(channels, groups), height, width]
    return split_dims(x, [[0], [1, 2], [3], [4]], sizes)


def _by_image(inputs: Sequence[tuple[ir.Value, Map]], sizes: Sequence[SizeLike], term: Body) -> ir.Value:
    """The sum of terms of images in groups over height and width, [N, G, C / G], of rows first."""
    rows = summed(5, inputs, sizes[:4], _LOOPS[:4], term)
    return summed(4, [(rows, _LOOPS[:4])], sizes[:3], _LOOPS[:3])


def _statistics(grouped: ir.Value, eps: float) -> Statistics:
    """Of an image in groups. The mean of the differences from the mean is subtracted from them in turn: without what
    the rounded mean lacks, a group of one large number isn't 0."""
    rows = collapse(grouped, [[0], [1], [2, 3, 4]])
    sizes = sizes_of(grouped)  # the sizes of views of views are no sizes that memory is planned for
    outer, loops = sizes[:2], range(3)
    count = count_as(sizes[2:], accumulator(element_type(rows)))
    operands: list[tuple[ir.Value, Map]] = [(rows, loops)]
    for _ in range(2):
        total = summed(3, operands, outer, _BY_GROUP, _centred)
        operands = [*operands, (elementwise(total.type, [total], lambda total: total / count), _BY_GROUP)]

    def square(*values: Scalar) -> Scalar:
        difference = _centred(*values)
        return difference * difference

    squares = summed(3, operands, outer, _BY_GROUP, square)
    deviation = elementwise(squares.type, [squares], lambda total: sqrt(total / count + eps))
    return Statistics([value for value, _ in operands[1:]], deviation, count)


def _by_channel(vector: ir.Value, groups: int) -> ir.Value:
    """A vector with an entry for each channel, [G, C / G]."""
    return split_dims(vector, [[0, 1]], [groups, divided(size_of(vector, 0), groups)])


def _finished(op: ir.AnyOp, grouped: ir.Value, operands: Sequence[tuple[ir.Value, Map]], body: Body) -> ir.Value:
    """A result of the shape of x: a function of its elements and of what groups and channels have."""
    target = element_type(op.x)
    result = (empty(sizes_of(grouped), target), _LOOPS)
    own = generic(5, [(grouped, _LOOPS), *operands], [result], body)
    return cast_shape(collapse(own, [[0], [1, 2], [3], [4]]), sizes_of(op.x))


@TO_LINALG.pattern(mir.GroupNormOp)
def lower_group_norm(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """group_norm(x) -> mean and variance of each row [N, G, elements], then the formula over [N, G, C / G, H, W]"""
    groups = python_value(op.num_groups)
    grouped = _in_groups(op.x, groups)
    statistics = _statistics(grouped, python_value(op.eps))
    vectors = [_by_channel(vector, groups) for vector in (op.gamma, op.beta) if vector is not None]
    target = element_type(op.x)

    def finish(x: Scalar, *values: Scalar) -> Scalar:
        own, (gamma, *beta) = values[:3], [value.widen() for value in values[3:-1]]
        scaled = Statistics.normal(x, *own) * gamma
        return (scaled + beta[0] if beta else scaled).to(target)

    operands = [*statistics.operands, *((vector, _BY_CHANNEL) for vector in vectors)]
    rewriter.replace(op, _finished(op, grouped, operands, finish))


@TO_LINALG.pattern(mir.GroupNormBackwardInputOp)
def lower_group_norm_backward_input(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """group_norm_backward_input(x, gamma, dy) -> the groups' statistics, the means of s and of s n, then the formula"""
    groups = python_value(op.num_groups)
    grouped, slopes = _in_groups(op.x, groups), _in_groups(op.dy, groups)
    statistics = _statistics(grouped, python_value(op.eps))
    gamma = _by_channel(op.gamma, groups)
    sizes = sizes_of(grouped)

    def mean(inputs: Sequence[tuple[ir.Value, Map]], term: Body) -> ir.Value:
        """The mean of terms of dy, gamma and others over each group, in two sums."""
        by_channel = _by_image([(slopes, _LOOPS), (gamma, _BY_CHANNEL), *inputs], sizes, term)
        total = summed(3, [(by_channel, range(3))], sizes[:2], _BY_GROUP)
        return elementwise(total.type, [total], lambda total: total / statistics.count)

    of_slopes = mean([], lambda dy, gamma: dy * gamma)
    own = [(grouped, _LOOPS), *statistics.operands]
    of_products = mean(own, lambda dy, gamma, *x: dy * gamma * Statistics.normal(*x))
    target = element_type(op.x)

    def finish(x: Scalar, *values: Scalar) -> Scalar:
        normal = Statistics.normal(x, *values[:3])
        dy, gamma, slope, product = (value.widen() for value in values[3:-1])
        return ((dy * gamma - slope - normal * product) / values[2]).to(target)

    means: list[tuple[ir.Value, Map]] = [(of_slopes, _BY_GROUP), (of_products, _BY_GROUP)]
    operands = [*statistics.operands, (slopes, _LOOPS), (gamma, _BY_CHANNEL), *means]
    rewriter.replace(op, _finished(op, grouped, operands, finish))


@TO_LINALG.pattern(mir.GroupNormBackwardGammaOp)
def lower_group_norm_backward_gamma(op: ir.AnyOp, rewriter: Rewriter) -> None:
    """group_norm_backward_gamma(x, dy) -> the groups' statistics, then sums of dy n along the pixels, and of items"""
    groups = python_value(op.num_groups)
    grouped, slopes = _in_groups(op.x, groups), _in_groups(op.dy, groups)
    statistics = _statistics(grouped, python_value(op.eps))
    inputs = [(slopes, _LOOPS), (grouped, _LOOPS), *statistics.operands]
    by_item = _by_image(inputs, sizes_of(grouped), lambda dy, *x: dy * Statistics.normal(*x))
    by_channel = collapse(by_item, [[0], [1, 2]])
    total = summed(2, [(by_channel, range(2))], sizes_of(op.x)[1:2], [1])
    rewriter.replace(op, converted(total, op.result.type))
