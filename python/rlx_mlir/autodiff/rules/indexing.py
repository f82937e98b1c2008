# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Entries by computed indices, and losses that labels choose."""

from __future__ import annotations

from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Forward, Reverse, as_index, is_differentiable, jvp, taken, vjp
from rlx_mlir.dialects import mir
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size


@vjp(mir.GatherOp)
def gather(m: Builders, at: Reverse, table: Value, indices: Value, *, axis: int, batch_dims: int = 0) -> Value | None:
    """Each entry back at the place that it was read from; indices outside are clamped, as the operation does."""
    if not is_differentiable(table._handle.type):
        return None
    own = axis % table.ndim
    entries = as_index(m, indices)
    last = m.sub(m.dim(table, own, entries.dtype), 1)
    places = m.minimum(m.maximum(entries, 0), last)
    if not batch_dims:
        return m.scatter_add(at.dy, places, table, own)
    return _scattered(m, at.dy, places, table, own, batch_dims)


def _scattered(m: Builders, dy: Value, places: Value, table: Value, axis: int, batch: int) -> Value:
    """The sums of entries for each of a batch: its dimensions and the indexed one are a single one meanwhile."""
    sizes, entries = m.sizes_of(table), m.sizes_of(places)
    count, rows = Size.of(1), Size.of(1)
    for size in sizes[:batch]:
        count *= size
    for size in entries[batch:]:
        rows *= size
    begin: Value = m.constant(0, places.dtype)  # the number of the item of the batch
    for number in range(batch):
        item = m.reshape(m.iota([sizes[number]], 0, places.dtype), [-1, *[1] * (places.ndim - number - 1)])
        begin = m.add(m.mul(begin, m.dim(table, number, places.dtype)), item)
    flat = m.reshape(m.add(places, m.mul(begin, m.dim(table, axis, places.dtype))), [count * rows])
    # dy: batch, between batch and axis, those of the indices, the rest.
    between, rest = sizes[batch:axis], sizes[axis + 1 :]
    first = batch + len(between)
    inner = len(entries) - batch
    order = [*range(batch), *range(first, first + inner), *range(batch, first), *range(first + inner, dy.ndim)]
    moved = m.reshape(m.transpose(dy, order), [count * rows, *between, *rest])
    like = m.reshape(
        m.transpose(table, [*range(batch), axis, *range(batch, axis), *range(axis + 1, table.ndim)]),
        [count * sizes[axis], *between, *rest],
    )
    summed = m.reshape(m.scatter_add(moved, flat, like, 0), [*sizes[:batch], sizes[axis], *between, *rest])
    back = [*range(batch), *range(batch + 1, axis + 1), batch, *range(axis + 1, table.ndim)]
    return m.transpose(summed, back)


@jvp(mir.GatherOp)
def gather_forward(m: Builders, at: Forward, table: Value, indices: Value, **attributes: int) -> Value | None:
    """The same entries of the tangent; indices of floats have none."""
    if at.tangents[0] is None:
        return None
    return m.copied(at.op, [at.tangents[0], indices])[0]


@vjp(mir.ScatterAddOp)
def scatter_add(
    m: Builders, at: Reverse, updates: Value, indices: Value, like: Value | None = None, *, axis: int, **sizes: int
) -> Value:
    """The entries that each update was added to; 0 where its index is outside."""
    places = as_index(m, indices)
    inside = m.bitwise_and(m.ge(places, 0), m.lt(places, m.dim(at.y, axis, places.dtype)))
    found = taken(m, at.dy, places, axis)
    shape = [Size.of(1)] * found.ndim
    for number, size in enumerate(m.sizes_of(indices)):
        shape[axis + number] = size
    return m.where(m.reshape(inside, shape), found, m.constant(0.0, updates.dtype))


@jvp(mir.ScatterAddOp)
def scatter_add_forward(
    m: Builders, at: Forward, updates: Value, indices: Value, like: Value | None = None, **attributes: int
) -> Value | None:
    """The sums of tangents."""
    if at.tangents[0] is None:
        return None
    return m.copied(at.op, [at.tangents[0], *m.values(list(at.op.operands)[1:])])[0]


@vjp(mir.SoftmaxCrossEntropyWithLogitsOp)
def softmax_cross_entropy(m: Builders, at: Reverse, logits: Value, labels: Value) -> Value:
    """(softmax(logits) - [label]) dy"""
    return m.softmax_cross_entropy_backward(logits, labels, at.dy)


@vjp(mir.SoftmaxCrossEntropyBackwardOp)
def softmax_cross_entropy_backward(
    m: Builders, at: Reverse, logits: Value, labels: Value, d_loss: Value
) -> tuple[Value, None, Value]:
    """With s = softmax(logits): d_loss s (dy - sum(dy s)), and sum(dy (s - [label]))."""
    share = m.softmax(logits, 1)
    weighted = m.mul(at.dy, share)
    row = m.reshape(d_loss, [*m.sizes_of(d_loss), 1])
    by_logits = m.mul(row, m.sub(weighted, m.mul(share, m.sum(weighted, 1, keep_dims=True))))
    one = m.softmax_cross_entropy_backward(logits, labels, m.add(m.mul(d_loss, 0.0), 1.0))
    return by_logits, None, m.sum(m.mul(at.dy, one), 1)
