# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What rules of batching share: operands that get the batch, and several dimensions as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Batched
from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.semantics.dims import operation_dims


def spread(m: Builders, at: Batched, x: Value, batched: bool) -> Value:
    """An operand with the batch first: the same for each entry where it has none."""
    return x if batched else m.expand(x, [at.size, *m.sizes_of(x)])


def spread_all(m: Builders, at: Batched, operands: Sequence[Value | None]) -> list[Value | None]:
    """Operands with the batch first; those that are absent stay so."""
    given = zip(operands, at.batched, strict=True)
    return [None if x is None else spread(m, at, x, batched) for x, batched in given]


def present(operands: Sequence[Value | None]) -> list[Value]:
    """Operands without those that are absent."""
    return [x for x in operands if x is not None]


def folded(m: Builders, x: Value, first: int = 0, count: int = 2) -> Value:
    """`count` dimensions from `first` on as one."""
    sizes = m.sizes_of(x)
    whole = Size.of(1)
    for size in sizes[first : first + count]:
        whole *= size
    return m.reshape(x, [*sizes[:first], whole, *sizes[first + count :]])


def unfolded(m: Builders, x: Value, parts: Sequence[Size], axis: int = 0) -> Value:
    """A dimension as several of these sizes."""
    sizes = m.sizes_of(x)
    return m.reshape(x, [*sizes[:axis], *parts, *sizes[axis + 1 :]])


def fold_all(m: Builders, at: Batched, operands: Sequence[Value | None]) -> tuple[list[Value], Size]:
    """Operands with the batch as a part of their first dimension, and what that was."""
    whole = present(spread_all(m, at, operands))
    return [folded(m, x) for x in whole], m.sizes_of(whole[0])[1]


def beside(m: Builders, x: Value, axis: int, rank: int) -> Value:
    """[batch, n] as n along dimension `axis` of `rank`, those of the batch included; 1 along the others."""
    shape = [Size.of(1)] * rank
    shape[0], shape[axis] = m.sizes_of(x)
    return m.reshape(x, shape)


def element(at: Batched, number: int = 0) -> np.dtype:
    """The element type of a result."""
    return numpy_dtype(ir.RankedTensorType(at.op.results[number].type).element_type)


def entry_sizes(m: Builders, at: Batched, operands: Sequence[Value]) -> list[Size]:
    """The sizes of the first result of an entry, from all operands, none of which is of several."""
    given = zip(operands, at.batched, strict=True)
    return list(operation_dims(at.op, [tuple(m.sizes_of(x)[batched:]) for x, batched in given])[0])


def moved(m: Builders, x: Value, source: int, target: int) -> Value:
    """A dimension at another position; the others keep their order."""
    if source == target:
        return x
    order = [axis for axis in range(x.ndim) if axis != source]
    order.insert(target, source)
    return m.transpose(x, order)


def shifted(axis: int) -> int:
    """A dimension of an entry as one of the batch: what counts from the end still does."""
    return axis if axis < 0 else axis + 1
