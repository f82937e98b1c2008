# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batching of what is computed for each element, or along dimensions: the batch is one more dimension beside these."""

from __future__ import annotations

from rlx_mlir.attributes import PythonValue
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.folding import beside, element, fold_all, folded, present, shifted, spread, spread_all, unfolded
from rlx_mlir.autodiff.registry import Batched, batching
from rlx_mlir.autodiff.rules.elementwise import elementwise
from rlx_mlir.dialects import mir
from rlx_mlir.hir.compositions.registry import narrow, wide
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size

batching(mir.ComplexOp)(elementwise)


@batching(
    mir.ActivationBackwardOp,
    mir.BarrierOp,
    mir.ComplexNormSqBackwardOp,
    mir.ComplexNormSqOp,
    mir.ConjugateOp,
    mir.FftOp,
    mir.FusedSwigluOp,
    mir.ImagOp,
    mir.RealOp,
)
def rows(m: Builders, at: Batched, *operands: Value, **attributes: PythonValue) -> tuple[Value, ...]:
    """The same of each row; operands of one shape stay so."""
    return m.rebuilt(at.op, present(spread_all(m, at, operands)))


@batching(mir.CastOp)
def cast(m: Builders, at: Batched, x: Value) -> Value:
    """The same of each element."""
    return m.cast(x, element(at))


@batching(mir.SoftmaxOp, mir.CumsumOp)
def along(m: Builders, at: Batched, x: Value, *, axis: int = -1, **attributes: PythonValue) -> Value:
    """Along the same dimension."""
    return m.rebuilt(at.op, [x], axis=shifted(axis))[0]


@batching(mir.ReduceOp)
def reduce(m: Builders, at: Batched, x: Value, *, axes: list[int], **attributes: PythonValue) -> Value:
    """Along the same dimensions."""
    return m.rebuilt(at.op, [x], axes=[axis + 1 for axis in axes])[0]


# ----------------------------------------------------------------------------------------------------------------------
# Normalisation
# ----------------------------------------------------------------------------------------------------------------------


@batching(mir.LayerNormOp, mir.RmsNormOp)
def norm(
    m: Builders, at: Batched, x: Value, gamma: Value, beta: Value | None = None, *, axis: int = -1, eps: float = 1e-5
) -> Value:
    """Along the same dimension; scales and offsets of each entry come after, and all is rounded once."""
    of_x, of_gamma, *of_beta = at.batched
    if not of_gamma and not any(of_beta):
        return m.rebuilt(at.op, present([x, gamma, beta]), axis=shifted(axis))[0]
    rank = at.ranks[0]
    build = m.layer_norm if at.op.name == "mir.layer_norm" else m.rms_norm
    own, scale = wide(m, x, gamma)
    along_x = axis % rank + of_x
    found = build(own, _ones(m, own, along_x), axis=along_x, eps=eps)
    found = m.mul(found, _along(m, at, scale, of_gamma, axis % rank + 1, rank + 1))
    if beta is not None:
        found = m.add(found, _along(m, at, wide(m, beta)[0], of_beta[0], axis % rank + 1, rank + 1))
    return narrow(m, found, x)


def _ones(m: Builders, x: Value, axis: int) -> Value:
    """One for each index along a dimension."""
    return m.expand(m.constant(1.0, x.dtype), [m.sizes_of(x)[axis]])


def _along(m: Builders, at: Batched, x: Value, batched: bool, axis: int, rank: int) -> Value:
    """A vector, or one of each entry, along a dimension of batches."""
    return beside(m, x if batched else m.reshape(x, [1, *m.sizes_of(x)]), axis, rank)


@batching(mir.LayerNormBackwardInputOp, mir.RmsNormBackwardInputOp)
def norm_backward(
    m: Builders, at: Batched, x: Value, gamma: Value, dy: Value, *, axis: int = -1, eps: float = 1e-5
) -> Value | None:
    """Along the same dimension, where all entries have one scale."""
    of_x, of_gamma, of_dy = at.batched
    if of_gamma:
        return None
    operands = [spread(m, at, x, of_x), gamma, spread(m, at, dy, of_dy)]
    return m.rebuilt(at.op, operands, axis=shifted(axis))[0]


@batching(mir.FusedResidualLayerNormOp, mir.FusedResidualRmsNormOp)
def residual_norm(m: Builders, at: Batched, x: Value, residual: Value, *vectors: Value, **_: object) -> Value | None:
    """The same of each row, where all entries have one scale and offset."""
    if any(at.batched[2:]):
        return None
    of_x, of_residual = at.batched[:2]
    operands = [spread(m, at, x, of_x), spread(m, at, residual, of_residual), *present(vectors)]
    return m.rebuilt(at.op, operands)[0]


@batching(mir.GroupNormOp)
def group_norm(
    m: Builders,
    at: Batched,
    x: Value,
    gamma: Value,
    beta: Value | None = None,
    *,
    num_groups: int,
    eps: float = 1e-5,
) -> Value:
    """Of all images; scales and offsets of each entry come after, and all is rounded once."""
    of_x, of_gamma, *of_beta = at.batched
    if not of_gamma and not any(of_beta):
        images = m.sizes_of(x)[1]
        found = m.rebuilt(at.op, present([folded(m, x), gamma, beta]))[0]
        return unfolded(m, found, [at.size, images])
    found = _normal(m, at, x, of_x, num_groups, eps)
    found = m.mul(found, _along(m, at, wide(m, gamma)[0], of_gamma, 2, 5))
    if beta is not None:
        found = m.add(found, _along(m, at, wide(m, beta)[0], of_beta[0], 2, 5))
    return narrow(m, found, x)


def _normal(m: Builders, at: Batched, x: Value, batched: bool, num_groups: int, eps: float) -> Value:
    """Groups of channels with mean 0 and variance 1, [batch, images, ...], in the type that they are computed in."""
    (own,) = wide(m, x)
    if not batched:
        found = m.group_norm(own, _ones(m, own, 1), num_groups=num_groups, eps=eps)
        return m.reshape(found, [1, *m.sizes_of(found)])
    flat = folded(m, own)
    found = m.group_norm(flat, _ones(m, flat, 1), num_groups=num_groups, eps=eps)
    return unfolded(m, found, m.sizes_of(own)[:2])


@batching(mir.GroupNormBackwardInputOp)
def group_norm_backward_input(
    m: Builders, at: Batched, x: Value, gamma: Value, dy: Value, *, num_groups: int, eps: float = 1e-5
) -> Value:
    """Of all images; where entries have scales of their own, these are multiplied by before."""
    of_x, of_gamma, of_dy = at.batched
    own, by = spread(m, at, x, of_x), spread(m, at, dy, of_dy)
    images = m.sizes_of(own)[1]
    if not of_gamma:
        found = m.rebuilt(at.op, [folded(m, own), gamma, folded(m, by)])[0]
        return unfolded(m, found, [at.size, images])
    own, by, scale = wide(m, own, by, gamma)
    by = m.mul(by, _along(m, at, scale, True, 2, 5))
    flat = folded(m, own)
    found = m.group_norm_backward_input(flat, _ones(m, flat, 1), folded(m, by), num_groups=num_groups, eps=eps)
    return narrow(m, unfolded(m, found, [at.size, images]), x)


@batching(mir.GroupNormBackwardGammaOp)
def group_norm_backward_gamma(
    m: Builders, at: Batched, x: Value, dy: Value, *, num_groups: int, eps: float = 1e-5
) -> Value:
    """The sums of dy times the normalised images."""
    (by,) = wide(m, dy)
    product = m.mul(_normal(m, at, x, at.batched[0], num_groups, eps), by)
    return narrow(m, m.sum(product, [1, 3, 4]), x)


# ----------------------------------------------------------------------------------------------------------------------
# Losses
# ----------------------------------------------------------------------------------------------------------------------


@batching(mir.SoftmaxCrossEntropyWithLogitsOp, mir.SoftmaxCrossEntropyBackwardOp)
def cross_entropy(m: Builders, at: Batched, *operands: Value) -> Value:
    """Of the rows of all entries."""
    flat, count = fold_all(m, at, operands)
    return unfolded(m, m.rebuilt(at.op, flat)[0], [at.size, count])


# ----------------------------------------------------------------------------------------------------------------------
# Quantisation
# ----------------------------------------------------------------------------------------------------------------------


@batching(mir.QuantizeOp, mir.DequantizeOp)
def by_scales(m: Builders, at: Batched, x: Value, *, axis: int | None = None, **attributes: PythonValue) -> Value:
    """By the scales of the same dimension."""
    return m.rebuilt(at.op, [x], axis=None if axis is None else shifted(axis))[0]


@batching(mir.BlockQuantizeOp)
def block_quantize(m: Builders, at: Batched, x: Value, **attributes: PythonValue) -> tuple[Value, ...]:
    """Of the rows of all entries."""
    return m.rebuilt(at.op, [x])


@batching(mir.FakeQuantizeOp)
def fake_quantize(
    m: Builders,
    at: Batched,
    x: Value,
    state: Value | None = None,
    *,
    axis: int | None = None,
    **attributes: PythonValue,
) -> tuple[Value, Value]:
    """Each entry has scales of its own."""
    scales = [] if state is None else [state]
    channels = _Channels(m, at, axis)
    found, scale = m.rebuilt(at.op, [channels.flat(x, 0), *(channels.scales(own, 1) for own in scales)], axis=0)
    return channels.back(found), channels.entries(scale)


@batching(mir.FakeQuantizeBackwardOp, mir.FakeQuantizeLsqOp, mir.FakeQuantizeLsqBackwardXOp)
def with_scale(
    m: Builders, at: Batched, x: Value, scale: Value, g: Value | None = None, *, axis: int | None = None, **_: object
) -> Value:
    """By the scales of the same dimension; where each entry has its own, entries are channels."""
    if not at.batched[1]:
        operands = present([spread(m, at, x, at.batched[0]), scale])
        if g is not None:
            operands.append(spread(m, at, g, at.batched[2]))
        return m.rebuilt(at.op, operands, axis=None if axis is None else shifted(axis))[0]
    channels = _Channels(m, at, axis)
    own = [channels.flat(x, 0), channels.scales(scale, 1), *([] if g is None else [channels.flat(g, 2)])]
    return channels.back(m.rebuilt(at.op, own, axis=0)[0])


@batching(mir.FakeQuantizeLsqBackwardScaleOp)
def by_scale(
    m: Builders, at: Batched, x: Value, scale: Value, g: Value, *, axis: int | None = None, **_: object
) -> Value:
    """The sums of each entry."""
    channels = _Channels(m, at, axis)
    found = m.rebuilt(at.op, [channels.flat(x, 0), channels.scales(scale, 1), channels.flat(g, 2)], axis=0)[0]
    return channels.entries(found)


class _Channels:
    """Entries of a batch, or the channels of each of them, as the channels of one tensor."""

    def __init__(self, m: Builders, at: Batched, axis: int | None) -> None:
        self._m, self._at = m, at
        self._axis = None if axis is None else axis % at.ranks[0]
        self._sizes: list[Size] = []

    def flat(self, x: Value, number: int) -> Value:
        """An operand of the shape of what is rounded, with the channels first."""
        x = spread(self._m, self._at, x, self._at.batched[number])
        if self._axis is not None:
            order = [axis for axis in range(x.ndim) if axis != self._axis + 1]
            x = self._m.transpose(x, [0, self._axis + 1, *order[1:]])
        self._sizes = self._m.sizes_of(x)
        return x if self._axis is None else folded(self._m, x)

    def scales(self, x: Value, number: int) -> Value:
        """The scales of all channels: one of each entry, or several."""
        return folded(self._m, spread(self._m, self._at, x, self._at.batched[number]))

    def back(self, x: Value) -> Value:
        """A result of the shape of what is rounded."""
        if self._axis is None:
            return x
        x = unfolded(self._m, x, self._sizes[:2])
        order = [0, *range(2, x.ndim)]
        order.insert(self._axis + 1, 1)
        return self._m.transpose(x, order)

    def entries(self, scale: Value) -> Value:
        """Scales of all channels as those of each entry."""
        count = Size.of(1) if self._axis is None else self._sizes[1]
        return unfolded(self._m, scale, [self._at.size, count])
