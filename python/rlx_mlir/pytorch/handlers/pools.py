# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that combine windows of images, sequences and volumes.

Windows are combined one dimension after the other where that gives the same: the largest and the sum of a window are
those of its rows. Images whose padding `mir.pool` doesn't have are padded first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_mlir.frontends.windows import Windows, taken
from rlx_mlir.hir.values import Value
from rlx_mlir.pytorch.graph import Dimension, Importer, Lengths, Results, Unhandled, handles, size_of, static
from rlx_mlir.pytorch.handlers.images import images_of, numbers
from rlx_mlir.pytorch.handlers.padding import padded

if TYPE_CHECKING:
    from torch import Tensor


def _windows(
    x: Value, rank: int, kernel: Lengths, stride: Lengths, padding: Lengths, dilation: Lengths, ceil_mode: bool
) -> Windows:
    sizes = tuple(numbers(kernel, rank))
    steps = sizes if isinstance(stride, Sequence) and not stride else tuple(numbers(stride, rank))
    pads = tuple((own, own) for own in numbers(padding, rank))
    found = Windows(sizes, steps, tuple(numbers(dilation, rank)), pads)
    if not ceil_mode:
        return found
    what = "the size of an image in windows that end outside"
    return found.rounded_up([static(size_of(size), what) for size in x.shape[-rank:]])


def _ends_inside(over: Windows) -> bool:
    """Whether no window reaches further than the padding that is asked for."""
    return all(before == after for before, after in over.pads)


def _has_gaps(over: Windows) -> bool:
    return any(step != 1 for step in over.dilation)


def _neutral(x: Value, kind: str) -> float:
    if kind == "sum":
        return 0
    return -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min


def _combined(im: Importer, x: Value, kind: str, over: Windows) -> Value:
    """The largest, or the sum, of each window over the last dimensions of x."""
    rank = len(over.kernel)
    if _has_gaps(over) or not _ends_inside(over):
        x, over = padded(im, x, over.pads, _neutral(x, kind)), over.unpadded()
    if _has_gaps(over):
        for number in range(rank):
            x = _along(im, x, kind, x.ndim - rank + number, over.along(number, number + 1))
        return x
    if rank == 3:
        planes = _combined(im, im.m.reshape(x, [1, -1, *x.shape[-2:]]), kind, over.along(1))
        across = Windows((over.kernel[0], 1), (over.stride[0], 1), (1, 1), (over.pads[0], (0, 0)))
        x = _pool(im, im.m.reshape(planes, [*x.shape[:-2], -1]), kind, across)
        return im.m.reshape(x, [*x.shape[:-1], *planes.shape[-2:]])
    if rank == 1:
        return _flat(im, _pool(im, images_of(x, im), kind, over.lifted()))
    return _pool(im, x, kind, over)


def _flat(im: Importer, x: Value) -> Value:
    """Images of one row [..., 1, L] as sequences."""
    return im.m.reshape(x, [*x.shape[:-2], x.shape[-1]])


def _pool(im: Importer, x: Value, kind: str, over: Windows) -> Value:
    """`mir.pool` of x [..., H, W] with any number of dimensions before."""
    image = x if x.ndim == 4 else im.m.reshape(x, [1, -1, *x.shape[-2:]])
    padding = [before for before, _ in over.pads]
    found = im.m.pool(image, kind, list(over.kernel), stride=list(over.stride), padding=padding)
    return found if x.ndim == 4 else im.m.reshape(found, [*x.shape[:-2], *found.shape[-2:]])


def _along(im: Importer, x: Value, kind: str, axis: int, over: Windows) -> Value:
    """Windows along one dimension, of slices: one for each of their elements."""
    combine = im.m.maximum if kind == "max" else im.m.add
    return reduce(combine, (taken(im.m, x, over, [place], axis) for place in range(over.kernel[0])))


def _rank_of(im: Importer) -> int:
    """Dimensions of the images of an operator whose name ends with them."""
    name = str(im.node.target).split(".")[1]
    return int(name[name.index("d", name.index("pool")) - 1])


def _max_pool(
    im: Importer,
    x: Value,
    wanted: Tensor,
    kernel: Lengths,
    stride: Lengths = (),
    padding: Lengths = 0,
    dilation: Lengths = 1,
    ceil_mode: bool = False,
) -> tuple[Value, Windows]:
    over = _windows(x, _rank_of(im), kernel, stride, padding, dilation, ceil_mode)
    return im.reshaped(_combined(im, x, "max", over), im.shape(wanted)), over


@handles("aten.max_pool1d.default", "aten.max_pool2d.default", "aten.max_pool3d.default")
def max_pool(im: Importer, x: Value, *given: Any) -> Value:
    """The largest of each window."""
    return _max_pool(im, x, im.node.meta["val"], *given)[0]


@handles(
    "aten.max_pool1d_with_indices.default",
    "aten.max_pool2d_with_indices.default",
    "aten.max_pool3d_with_indices.default",
)
def max_pool_with_indices(im: Importer, x: Value, *given: Any) -> Results:
    """The largest of each window; and where it is in its image, which is built where something reads it."""
    values, places = im.node.meta["val"]
    found, over = _max_pool(im, x, values, *given)
    shape = im.shape(places)
    return found, lambda: im.reshaped(_places(im, x, over), shape)


def _places(im: Importer, x: Value, over: Windows) -> Value:
    """Where the first largest element of each window is, counted over its image; the last NaN, where there is one."""
    m, rank = im.m, len(over.kernel)
    number = im.numbered([im.counter(x.shape, axis) for axis in range(x.ndim - rank, x.ndim)], x.shape[-rank:])
    best: tuple[Value, Value] | None = None
    values = padded(im, x, over.pads, _neutral(x, "max"))
    numbers_of = padded(im, m.expand(number, [*[1] * (x.ndim - rank), *x.shape[-rank:]]), over.pads, 0)
    for place in product(*map(range, over.kernel)):
        value, here = (taken(m, each, over, place, x.ndim - rank) for each in (values, numbers_of))
        if best is None:
            best = value, here
            continue
        better = m.gt(value, best[0])
        if x.dtype.kind not in "iu":
            better = m.bitwise_or(better, m.ne(value, value))
        best = m.where(better, value, best[0]), m.where(better, here, best[1])
    assert best is not None
    return best[1]


@handles("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(
    im: Importer,
    x: Value,
    kernel: Lengths,
    stride: Lengths = (),
    padding: Lengths = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """The mean of each window: its sum, divided by how many elements it has in the image, or in its padding too."""
    over = _windows(x, _rank_of(im), kernel, stride, padding, 1, ceil_mode)
    total = _combined(im, x, "sum", over)
    if divisor_override is not None:
        return im.reshaped(total / float(divisor_override))
    if _ends_inside(over) and (count_include_pad or not any(map(any, over.pads))):
        return im.reshaped(total / float(np.prod(over.kernel)))
    rank = len(over.kernel)
    ones = im.m.expand(im.m.constant(np.ones([1] * (rank + 1), x.dtype)), [1, *x.shape[-rank:]])
    if count_include_pad:
        ones = padded(im, ones, [(before, before) for before, _ in over.pads], 1)
        over = replace(over, pads=tuple((0, after - before) for before, after in over.pads))
    return im.reshaped(total / _combined(im, ones, "sum", over))


# -- as many windows as are wanted ---------------------------------------------------------------------------------


def _adaptive(im: Importer, x: Value, kind: str, sizes: Lengths, wanted: Tensor) -> Value:
    """Window i of n along a dimension of s has the elements from floor(i s / n) to before ceil((i + 1) s / n)."""
    rank = _rank_of(im)
    counts = [None if size is None else static(size, "a size") for size in _listed(sizes, rank)]
    axes = list(range(x.ndim - rank, x.ndim))
    if all(count == 1 for count in counts):
        return im.m.reduce(x, kind, axes, keep_dims=True)
    for axis, count in zip(axes, counts, strict=True):
        size = static(size_of(x.shape[axis]), "the size of an image in windows of several sizes")
        if count is not None and count != size:
            x = _parted(im, x, kind, axis, size, count)
    return im.reshaped(x, im.shape(wanted))


def _listed(sizes: Lengths, rank: int) -> list[Dimension]:
    return list(sizes) if isinstance(sizes, Sequence) else [sizes] * rank


def _parted(im: Importer, x: Value, kind: str, axis: int, size: int, count: int) -> Value:
    m, shape = im.m, list(x.shape)
    if size % count == 0:
        parted = m.reshape(x, [*shape[:axis], count, size // count, *shape[axis + 1 :]])
        return m.reduce(parted, kind, [axis + 1])
    starts = np.arange(count) * size // count
    ends = -(-(np.arange(count) + 1) * size // count)
    longest = int((ends - starts).max())
    places = starts[:, None] + np.arange(longest)
    inside = places < ends[:, None]
    parts = m.gather(x, m.constant(np.where(inside, places, starts[:, None]).astype(np.int64)), axis)
    if kind == "max":  # of which a place may come twice
        return m.reduce(parts, kind, [axis + 1])
    weights = (
        (inside / inside.sum(1, keepdims=True)).astype(x.dtype).reshape([count, longest, *[1] * (x.ndim - 1 - axis)])
    )
    return m.sum(
        m.where(m.constant(weights > 0), parts * m.constant(weights), m.constant(np.zeros((), x.dtype))), [axis + 1]
    )


@handles(
    "aten.adaptive_avg_pool1d.default",
    "aten.adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool2d.default",
    "aten.adaptive_avg_pool3d.default",
    "aten._adaptive_avg_pool3d.default",
)
def adaptive_avg_pool(im: Importer, x: Value, sizes: Lengths) -> Value:
    """The mean over as many windows as are wanted."""
    return _adaptive(im, x, "mean", sizes, im.node.meta["val"])


@handles("aten.adaptive_max_pool1d.default", "aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_max_pool(im: Importer, x: Value, sizes: Lengths) -> Results:
    """The largest of as many windows as are wanted; where it is isn't there."""
    return _adaptive(im, x, "max", sizes, im.node.meta["val"][0]), None


# -- the other direction -------------------------------------------------------------------------------------------


@handles("aten.max_pool2d_with_indices_backward.default")
def max_pool_backward(
    im: Importer,
    dy: Value,
    x: Value,
    kernel: Lengths,
    stride: Lengths,
    padding: Lengths,
    dilation: Lengths,
    ceil_mode: bool,
    indices: object,
) -> Value:
    """dy where the largest element of its window was; the indices aren't read."""
    over = _windows(x, 2, kernel, stride, padding, dilation, ceil_mode)
    if _has_gaps(over) or not _ends_inside(over):
        raise Unhandled("windows that end outside, or with gaps")
    before = [before for before, _ in over.pads]
    return im.m.maxpool2d_backward(x, dy, kernel_size=list(over.kernel), stride=list(over.stride), padding=before)


@handles("aten.avg_pool2d_backward.default")
def avg_pool_backward(
    im: Importer,
    dy: Value,
    x: Value,
    kernel: Lengths,
    stride: Lengths,
    padding: Lengths,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    """dy over each element of its window, divided by how many there are."""
    over = _windows(x, 2, kernel, stride, padding, 1, ceil_mode)
    if not _ends_inside(over) or (any(map(any, over.pads)) and not count_include_pad):
        raise Unhandled("a divisor that isn't the size of the window")
    each = 1.0 / (divisor_override or int(np.prod(over.kernel)))
    rest = []
    for at, length in enumerate(x.shape[-2:]):
        own = static(size_of(length), "the size of an image")
        rest.append((own + sum(over.pads[at]) - over.kernel[at]) % over.stride[at])
    ones = im.m.constant(np.full([1, 1, *over.kernel], each, x.dtype))
    found = im.m.conv_transpose2d(
        im.m.reshape(dy, [-1, 1, *dy.shape[-2:]]),
        ones,
        stride=list(over.stride),
        padding=[before for before, _ in over.pads],
        output_padding=rest,
    )
    return im.reshaped(found)


@handles("aten._adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool_backward(im: Importer, dy: Value, x: Value) -> Value:
    """dy over each element of its window, divided by how many there are: of windows that divide the image."""
    counts = [static(size_of(size), "a size") for size in dy.shape[-2:]]
    sizes = [size_of(size) for size in x.shape[-2:]]
    if counts == [1, 1]:
        total = im.scalar(sizes[0] * sizes[1], im.dtype())
        return im.expanded(dy / total)
    own = [static(size, "the size of an image") for size in sizes]
    if any(size % count for size, count in zip(own, counts, strict=True)):
        raise Unhandled("windows of several sizes")
    rows, columns = (size // count for size, count in zip(own, counts, strict=True))
    apart = im.m.reshape(dy * (1.0 / (rows * columns)), [*dy.shape[:-2], counts[0], 1, counts[1], 1])
    return im.reshaped(im.m.expand(apart, [*dy.shape[:-2], counts[0], rows, counts[1], columns]))
