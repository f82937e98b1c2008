# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batching of operations on images: the images of all entries are one batch of images.

Where entries have kernels of their own, their channels are groups of one convolution. How many groups there are is
known when it is built: of a batch of unknown size, entries come one after the other.
"""

from __future__ import annotations

from rlx_mlir.attributes import PythonValue
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.folding import fold_all, folded, moved, spread, unfolded
from rlx_mlir.autodiff.registry import Batched, Same, batching
from rlx_mlir.dialects import mir
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size


@batching(mir.PoolOp, mir.MaxPool2dBackwardOp, mir.ResizeNearest2xOp, mir.AxialRope2dOp)
def images(m: Builders, at: Batched, *operands: Value, **attributes: PythonValue) -> Value:
    """The images of all entries."""
    flat, count = fold_all(m, at, operands)
    return unfolded(m, m.rebuilt(at.op, flat)[0], [at.size, count])


# ----------------------------------------------------------------------------------------------------------------------
# Convolutions
# ----------------------------------------------------------------------------------------------------------------------


def _channels(m: Builders, at: Batched, x: Value, batched: bool) -> Value:
    """The channels of all entries as those of one image: [images, batch * channels, ...]."""
    return folded(m, moved(m, spread(m, at, x, batched), 0, 1), 1)


def _entries(m: Builders, at: Batched, x: Value) -> Value:
    """Channels of all entries as those of each."""
    channels = m.sizes_of(x)[1].divided_by(at.size)
    assert channels is not None
    return moved(m, unfolded(m, x, [at.size, channels], 1), 1, 0)


@batching(mir.ConvOp)
def conv(
    m: Builders, at: Batched, x: Value, weight: Value, *, groups: int = 1, **attributes: PythonValue
) -> Value | None:
    """Images of all entries by one kernel, or the kernels of all entries, in the groups that they are of."""
    of_x, of_weight = at.batched
    if not of_weight:
        count = m.sizes_of(x)[1]
        return unfolded(m, m.rebuilt(at.op, [folded(m, x), weight])[0], [at.size, count])
    if not of_x:
        return _split(m, at, m.rebuilt(at.op, [x, _by_group(m, weight, 1, groups)])[0], 1, groups)
    if at.size.constant is None:
        return None
    found = m.rebuilt(at.op, [_channels(m, at, x, True), folded(m, weight)], groups=groups * at.size.constant)[0]
    return _entries(m, at, found)


def _by_group(m: Builders, x: Value, axis: int, groups: int) -> Value:
    """Channels of all entries as one dimension, group by group; the batch is the first dimension."""
    channels = m.sizes_of(x)[axis]
    parts = unfolded(m, x, [Size.of(groups), channels // groups], axis)
    return folded(m, moved(m, parts, 0, axis), axis - 1, 3)


def _split(m: Builders, at: Batched, x: Value, axis: int, groups: int) -> Value:
    """The other direction: the batch first."""
    channels = m.sizes_of(x)[axis].divided_by(at.size * groups)
    assert channels is not None
    parts = unfolded(m, x, [Size.of(groups), at.size, channels], axis)
    return folded(m, moved(m, parts, axis + 1, 0), axis + 1)


@batching(mir.ConvTranspose2dOp)
def conv_transpose2d(
    m: Builders, at: Batched, x: Value, weight: Value, *, groups: int = 1, **attributes: PythonValue
) -> Value | None:
    """Images of all entries by one kernel; kernels of all entries are groups."""
    of_x, of_weight = at.batched
    if not of_weight:
        count = m.sizes_of(x)[1]
        return unfolded(m, m.rebuilt(at.op, [folded(m, x), weight])[0], [at.size, count])
    if at.size.constant is None:
        return None
    own = [_channels(m, at, x, of_x), folded(m, weight)]
    return _entries(m, at, m.rebuilt(at.op, own, groups=groups * at.size.constant)[0])


@batching(mir.Conv2dBackwardInputOp)
def conv2d_backward_input(
    m: Builders, at: Batched, dy: Value, weight: Value, x: Value, *, groups: int = 1, **attributes: PythonValue
) -> Value | Same | None:
    """As of the transposed convolution; of the image only its size is read."""
    of_dy, of_weight, of_x = at.batched
    image = m.sizes_of(x)[of_x:]
    empty = m.constant(0.0, x.dtype)
    if not of_weight:
        if not of_dy:
            return Same(m.rebuilt(at.op, [dy, weight, m.expand(empty, image)])[0])
        like = folded(m, x if of_x else m.expand(empty, [at.size, *image]))
        return unfolded(m, m.rebuilt(at.op, [folded(m, dy), weight, like])[0], [at.size, image[0]])
    if at.size.constant is None:
        return None
    like = m.expand(empty, [image[0], at.size * image[1], *image[2:]])
    own = [_channels(m, at, dy, of_dy), folded(m, weight), like]
    return _entries(m, at, m.rebuilt(at.op, own, groups=groups * at.size.constant)[0])


@batching(mir.Conv2dBackwardWeightOp)
def conv2d_backward_weight(
    m: Builders, at: Batched, x: Value, dy: Value, *, groups: int = 1, **attributes: PythonValue
) -> Value | None:
    """The kernels of all entries: more of them by one image, or groups."""
    of_x, of_dy = at.batched
    if not of_x:
        by = moved(m, dy, 0, 1)
        channels = m.sizes_of(dy)[2]
        parts = moved(m, unfolded(m, by, [Size.of(groups), channels // groups], 2), 1, 2)
        found = m.rebuilt(at.op, [x, folded(m, parts, 1, 3)])[0]
        return _split(m, at, found, 0, groups)
    if at.size.constant is None:
        return None
    own = [_channels(m, at, x, True), _channels(m, at, dy, of_dy)]
    found = m.rebuilt(at.op, own, groups=groups * at.size.constant)[0]
    return unfolded(m, found, [at.size, m.sizes_of(own[1])[1].divided_by(at.size) or Size.of(0)])
