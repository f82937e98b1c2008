# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators on what is known by its indices: positions, and masks that follow from them.

Each gives what is known of its result, or None where that is no such thing: then the operands are built as tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx_mlir.frontends import positions
from rlx_mlir.frontends.positions import Conditions, Known, Positions
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.pytorch.graph import Bound, Dimension, Handler, Importer, Operand, folds, size_of

_INTEGERS = ("i32", "i64")
#: Numbers from which an operator takes as many elements as there are.
_ENDLESS = 2**62


def bounds_of(bounds: tuple[Operand, ...]) -> tuple[Operand, Operand]:
    """First number and step of a range, of its end alone, of both ends, or of these and the step."""
    return (bounds[0] if len(bounds) > 1 else 0), (bounds[2] if len(bounds) > 2 else 1)


@folds("aten.arange.start_step", "aten.arange.start", "aten.arange.default")
def arange(im: Importer, *bounds: Operand, **_: object) -> Known | None:
    """Counting."""
    start, step = bounds_of(bounds)
    each = step.constant if isinstance(step, Size) else step
    if im.dtype() not in _INTEGERS or not isinstance(each, int) or not isinstance(start, int | Size):
        return None
    return positions.counted(Size.of(start), each, im.sizes()[0], im.dtype())


@folds(
    "aten.full.default",
    "aten.full_like.default",
    "aten.new_full.default",
    "aten.scalar_tensor.default",
    "aten.zeros.default",
    "aten.ones.default",
    "aten.zeros_like.default",
    "aten.ones_like.default",
    "aten.new_zeros.default",
    "aten.new_ones.default",
)
def full(im: Importer, *arguments: object, **_: object) -> Known | None:
    """One integer or truth."""
    name = str(im.node.target)
    value = 0 if "zeros" in name else (1 if "ones" in name else arguments[-1])
    value = value.constant if isinstance(value, Size) else value
    if im.dtype() not in (*_INTEGERS, "i1") or not isinstance(value, bool | int | float):
        return None
    return positions.constant(bool(value) if im.dtype() == "i1" else int(value), im.sizes(), im.dtype())


def tensor(operand: object) -> Value:
    """An operand that is nothing else."""
    assert isinstance(operand, Value)
    return operand


def _as_positions(value: object) -> Positions | None:
    """A number, a size or positions as positions."""
    if isinstance(value, (bool, Value | Conditions)):
        return None
    if isinstance(value, int | Size):
        return Positions((), Size.of(value), (), "i64")
    return value if isinstance(value, Positions) else None


@folds("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar")
def add(im: Importer, x: object, y: object, alpha: object = 1) -> Known | None:
    """Sums and differences."""
    left, right = _as_positions(x), _as_positions(y)
    if left is None or right is None or im.dtype() not in _INTEGERS or not isinstance(alpha, int):
        return None
    factor = alpha if "add." in str(im.node.target) else -alpha
    return positions.added(left, right, factor, im.sizes(), im.dtype())


@folds("aten.mul.Tensor", "aten.mul.Scalar")
def mul(im: Importer, x: object, y: object) -> Known | None:
    """Products with a number."""
    left, right = _as_positions(x), _as_positions(y)
    if left is None or right is None or im.dtype() not in _INTEGERS:
        return None
    return positions.multiplied(left, right, im.sizes(), im.dtype())


def _comparison(kind: str) -> Handler:
    def build(im: Importer, x: object, y: object) -> Known | None:
        left, right = _as_positions(x), _as_positions(y)
        return None if left is None or right is None else positions.compared(kind, left, right, im.sizes())

    return build


for _kind in ("eq", "ne", "lt", "le", "gt", "ge"):
    folds(f"aten.{_kind}.Tensor", f"aten.{_kind}.Scalar")(_comparison(_kind))


@folds("aten.bitwise_and.Tensor", "aten.logical_and.default", "aten.mul.Tensor", "aten.__and__.Tensor")
def conjunction(im: Importer, x: object, y: object) -> Known | Value | None:
    """Where both hold: of what holds everywhere, the other one."""
    if "mul" in str(im.node.target) and not (isinstance(x, Conditions) or isinstance(y, Conditions)):
        return mul(im, x, y)
    if im.dtype() != "i1":
        return None
    if isinstance(x, Conditions) and isinstance(y, Conditions):
        return positions.both(x, y, im.sizes())
    for own, other in ((x, y), (y, x)):
        if isinstance(own, Conditions) and isinstance(other, Value) and own.constant is not None:
            return im.expanded(other) if own.constant else positions.constant(False, im.sizes(), "i1")
    return None


@folds("aten.bitwise_or.Tensor", "aten.logical_or.default", "aten.__or__.Tensor")
def disjunction(im: Importer, x: object, y: object) -> Known | Value | None:
    """Where one holds: of what holds nowhere, the other one."""
    for own, other in ((x, y), (y, x)):
        if isinstance(own, Conditions) and own.constant is not None:
            if own.constant:
                return positions.constant(True, im.sizes(), "i1")
            return positions.expand(other, im.sizes()) if positions.is_known(other) else im.expanded(tensor(other))
    return None


@folds("aten.bitwise_not.default", "aten.logical_not.default")
def negation(im: Importer, x: object) -> Known | None:
    """Where it doesn't hold."""
    return positions.negated(x) if isinstance(x, Conditions) else None


@folds("aten.where.self")
def where(im: Importer, condition: object, x: object, y: object) -> Known | Value | None:
    """The one that is taken everywhere."""
    if not isinstance(condition, Conditions) or condition.constant is None:
        return None
    chosen = x if condition.constant else y
    if positions.is_known(chosen):
        return positions.expand(chosen, im.sizes())
    return im.expanded(im.cast(tensor(chosen), im.dtype()))


@folds("aten.all.default", "aten.any.default", "aten.all.dim", "aten.any.dim")
def reduced(im: Importer, x: object, *_: object, **__: object) -> Known | None:
    """Of what is the same everywhere."""
    known = x.constant if isinstance(x, Conditions) else None
    return None if known is None else positions.constant(known, im.sizes(), "i1")


# -- shapes ------------------------------------------------------------------------------------------------------------


@folds("aten.expand.default")
def expand(im: Importer, x: object, *_: object, **__: object) -> Known | None:
    """Repeated."""
    return positions.expand(x, im.sizes()) if positions.is_known(x) else None


@folds("aten.unsqueeze.default")
def unsqueeze(im: Importer, x: object, dim: int) -> Known | None:
    """With a new dimension."""
    if not positions.is_known(x):
        return None
    places: list[int | None] = list(range(len(x.shape)))
    places.insert(dim % (len(x.shape) + 1), None)
    return positions.placed(x, places, im.sizes())


@folds("aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze.default")
def squeeze(im: Importer, x: object, dims: int | Sequence[int] | None = None) -> Known | None:
    """Without dimensions of size 1."""
    if not positions.is_known(x):
        return None
    rank = len(x.shape)
    given = range(rank) if dims is None else [dims] if isinstance(dims, int) else dims
    gone = {dim % rank for dim in given if x.shape[dim].constant == 1} if rank else set()
    return positions.placed(x, [dim for dim in range(rank) if dim not in gone], im.sizes())


@folds("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default")
def view(im: Importer, x: object, *_: object) -> Known | None:
    """In another shape that has the same dimensions but for such of size 1."""
    if not positions.is_known(x):
        return None
    own = [dim for dim, size in enumerate(x.shape) if size.constant != 1]
    wanted = im.sizes()
    if [x.shape[dim] for dim in own] != [size for size in wanted if size.constant != 1]:
        return None
    rest = iter(own)
    return positions.placed(x, [None if size.constant == 1 else next(rest) for size in wanted], wanted)


@folds("aten.permute.default")
def permute(im: Importer, x: object, order: list[int]) -> Known | None:
    """In another order."""
    return positions.placed(x, [dim % len(order) for dim in order], im.sizes()) if positions.is_known(x) else None


@folds("aten.slice.Tensor")
def slice(im: Importer, x: object, dim: int = 0, start: Bound = None, end: Bound = None, step: int = 1) -> Known | None:
    """Some of the elements."""
    if not positions.is_known(x):
        return None
    begin = Size.of(start or 0)
    if begin.constant is not None and begin.constant < 0:
        begin = begin + x.shape[dim]
    return positions.taken(x, dim % len(x.shape), begin, step, im.sizes())


@folds("aten.select.int")
def select(im: Importer, x: object, dim: int, index: Dimension) -> Known | None:
    """One of the elements."""
    if not positions.is_known(x):
        return None
    axis, at = dim % len(x.shape), Size.of(index)
    if at.constant is not None and at.constant < 0:
        at = at + x.shape[axis]
    one = [*x.shape[:axis], Size.of(1), *x.shape[axis + 1 :]]
    found = positions.taken(x, axis, at, 1, tuple(one))
    return positions.placed(found, [own for own in range(len(one)) if own != axis], im.sizes())


@folds("aten.cat.default")
def cat(im: Importer, values: list[object], dim: int = 0) -> Known | None:
    """One after the other."""
    known = [value for value in values if positions.is_known(value)]
    if len(known) < len(values):
        return None
    return positions.joined(known, dim % len(im.sizes()), im.sizes())


@folds("aten.cumsum.default")
def cumsum(im: Importer, x: object, dim: int, **_: object) -> Known | None:
    """Of zeros."""
    return positions.summed(x, dim, im.sizes()) if positions.is_known(x) else None


@folds("aten._to_copy.default")
def to_copy(im: Importer, x: object, **_: object) -> Known | None:
    """In another element type."""
    if isinstance(x, Conditions):
        return x if im.dtype() == "i1" else None
    if not isinstance(x, Positions) or im.dtype() not in _INTEGERS:
        return None
    return positions.added(x, _zero(), 1, im.sizes(), im.dtype())


def _zero() -> Positions:
    return Positions((), Size.of(0), (), "i64")


@folds("aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default")
def same(im: Importer, x: object, **_: object) -> Known | None:
    """Itself."""
    return x if positions.is_known(x) else None


@folds("aten.index.Tensor")
def index(im: Importer, x: object, indices: list[object]) -> Known | Value | None:
    """Looked up at positions: by what is known of them; of a tensor that is taken whole, its dimensions elsewhere."""
    known = [own for own in indices if isinstance(own, Positions)]
    if len(known) < len(indices):  # a whole dimension is None
        return None
    if positions.is_known(x):
        return positions.looked_up(x, known, im.sizes()) if len(known) == len(x.shape) else None
    x = tensor(x)
    own = [size_of(size) for size in x.shape]
    if len(known) != len(own):
        return None
    rank = len(im.sizes())
    places = []
    for each, size in zip(known, own, strict=True):
        at = positions.plain(each, size)
        if at is None and size.constant == 1 and each.constant == 0:
            continue
        if at is None:
            return None
        places.append(at + rank - len(each.shape))
    if places != sorted(set(places)):
        return None
    shape = [size if dim in places else 1 for dim, size in enumerate(im.shape())]
    return im.expanded(im.m.reshape(x, shape))


def is_whole(end: Bound) -> bool:
    """Whether a slice's end is beyond every tensor."""
    return end is None or (isinstance(end, int) and end >= _ENDLESS) or end == math.inf
