# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rotary position embeddings that are written out, in both styles, and each of these in two ways.

With halves (a, b) of a head, or elements at even and odd places:

- whole: x * cos + rotated(x) * sin, where rotated(x) = (-b, a), with tables in which each angle stands twice;
- apart: (a cos - b sin, b cos + a sin), joined.

`x` is [..., S, head], or [B, S, heads, head]; tables don't differ between batches and heads.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.fuse import drops_rounding
from rlx_mlir.lowering.raising.matching import UNARY, Raising, axis_of, number, producer, same, sides
from rlx_mlir.mir.dims import Size
from rlx_mlir.rewriting import Rewriter


@dataclass(frozen=True)
class Part:
    """Every other element of a value along its last dimension, or one of its halves.

    Attributes:
        x: the value.
        style: `half` or `interleaved`.
        second: whether it is the part that comes second.
    """

    x: ir.Value
    style: str
    second: bool


def add_patterns(raising: Raising) -> None:
    """Adds the patterns of this family."""

    @raising.pattern(mir.AddOp)
    def raise_rope(op: mir.AddOp, rewriter: Rewriter) -> None:
        """x * cos + rotated(x) * sin -> rope(x, cos, sin)"""
        for left, right in sides(op):
            first, second = producer(left, mir.MulOp), producer(right, mir.MulOp)
            if first is None or second is None:
                continue
            for turned, sin in sides(second):
                found = _rotated(raising, turned)
                if found is None:
                    continue
                x, style = found
                cos = next((other for own, other in sides(first) if same(own, x)), None)
                if cos is not None:
                    return _replaced(raising, op, rewriter, x, style, (cos, sin), twice=True)
        return None

    @raising.pattern(mir.ConcatOp, mir.ReshapeOp)
    def raise_rope_of_parts(op: ir.AnyOp, rewriter: Rewriter) -> None:
        """(a cos - b sin, b cos + a sin) -> rope(x, cos, sin)"""
        joined = _joined(raising, op.result)
        if joined is None:
            return None
        first, second, style = joined
        minus, plus = producer(first, mir.SubOp), producer(second, mir.AddOp)
        if minus is None or plus is None:
            return None
        found = _products(raising, minus, plus, style)
        if found is None:
            return None
        x, cos, sin = found
        if raising.dims(x) != raising.dims(op.result):
            return None
        return _replaced(raising, op, rewriter, x, style, (cos, sin), twice=False)

    @raising.pattern(mir.ConcatOp)
    def raise_partial_rope(op: mir.ConcatOp, rewriter: Rewriter) -> None:
        """(rope(x[:n]), x[n:]) -> rope(x) of n elements"""
        _raise_partial(raising, op, rewriter)


def _raise_partial(raising: Raising, op: mir.ConcatOp, rewriter: Rewriter) -> None:
    if len(op.inputs) != 2 or axis_of(op, len(raising.dims(op.result))) != len(raising.dims(op.result)) - 1:
        return None
    turned, rest = op.inputs
    rope, passed = producer(turned, mir.RopeOp), producer(rest, mir.NarrowOp)
    part = producer(rope.x, mir.NarrowOp) if rope is not None else None
    if part is None or passed is None or not same(part.x, passed.x) or rope.n_rot is not None:
        return None
    last = len(raising.dims(part.x)) - 1
    size, count = raising.dims(part.x)[-1].constant, int(python_value(part.length))
    is_split = all(axis_of(own, last + 1) == last for own in (part, passed)) and int(python_value(part.start)) == 0
    if size is None or not is_split or int(python_value(passed.start)) != count or size % 2:
        return None
    if int(python_value(rope.head_dim)) != count:
        return None
    cos, sin = (_widened(raising, table, size // 2) for table in (rope.cos, rope.sin))
    return raising.replace(rewriter, op, mir.rope(part.x, cos, sin, head_dim=size, n_rot=count, style=rope.style))


def _widened(raising: Raising, table: ir.Value, width: int) -> ir.Value:
    """A table with columns that nothing reads, as wide as heads need it."""
    missing = width - int(ir.RankedTensorType(table.type).shape[-1])
    if not missing:
        return table
    own = mir.narrow(table, axis=1, start=0, length=1)
    result: ir.Value = mir.concat([table, *([own] * missing)], axis=1)
    return result


# -- parts of heads ----------------------------------------------------------------------------------------------------


def _part(raising: Raising, value: ir.Value) -> Part | None:
    """A value as a part of another one: by `narrow`, by a slice with a step, or of pairs."""
    rank = len(raising.dims(value))
    narrow = producer(value, mir.NarrowOp)
    if narrow is not None and axis_of(narrow, rank) == rank - 1:
        size, start = raising.dims(narrow.x)[-1].constant, int(python_value(narrow.start))
        half = int(python_value(narrow.length))
        if size == 2 * half and start in (0, half):
            return Part(narrow.x, "half", start == half)
    strided = producer(value, mir.SliceOp)
    if strided is not None and axis_of(strided, rank) == rank - 1 and int(python_value(strided.step)) == 2:
        start, size = python_value(strided.start) or 0, raising.dims(strided.x)[-1].constant
        if strided.stop is None and size is not None and size % 2 == 0 and start in (0, 1):
            return Part(strided.x, "interleaved", start == 1)
    return _of_pairs(raising, value)


def _of_pairs(raising: Raising, value: ir.Value) -> Part | None:
    """x.reshape(..., n, 2)[..., i]"""
    view = producer(value, mir.ReshapeOp)
    narrow = producer(view.x, mir.NarrowOp) if view is not None else None
    pairs = producer(narrow.x, mir.ReshapeOp) if narrow is not None else None
    if narrow is None or pairs is None:
        return None
    own, whole = raising.dims(pairs.result), raising.dims(pairs.x)
    is_pairs = own[-1].constant == 2 and own[:-2] == whole[:-1] and raising.dims(value) == own[:-1]
    if not is_pairs or axis_of(narrow, len(own)) != len(own) - 1 or int(python_value(narrow.length)) != 1:
        return None
    return Part(pairs.x, "interleaved", int(python_value(narrow.start)) == 1)


def _joined(raising: Raising, value: ir.Value) -> tuple[ir.Value, ir.Value, str] | None:
    """(first, second, style) of two parts that are joined along the last dimension, as halves or as pairs."""
    rank = len(raising.dims(value))
    concat = producer(value, mir.ConcatOp)
    if concat is not None:
        if len(concat.inputs) != 2 or axis_of(concat, rank) != rank - 1:
            return None
        first, second = concat.inputs
        return (first, second, "half") if raising.dims(first) == raising.dims(second) else None
    view = producer(value, mir.ReshapeOp)
    pairs = producer(view.x, mir.ConcatOp) if view is not None else None
    if pairs is None or len(pairs.inputs) != 2 or axis_of(pairs, rank + 1) != rank:
        return None
    own = raising.dims(pairs.result)
    if len(own) != rank + 1 or own[-1].constant != 2 or own[:-2] != raising.dims(value)[:-1]:
        return None
    first, second = (_without_last(raising, each) for each in pairs.inputs)
    return None if first is None or second is None else (first, second, "interleaved")


def _without_last(raising: Raising, value: ir.Value) -> ir.Value | None:
    """What has a last dimension of size 1 more in a value."""
    view = producer(value, mir.ReshapeOp)
    if view is None or raising.dims(view.x) != raising.dims(value)[:-1]:
        return None
    found: ir.Value = view.x
    return found


def _rotated(raising: Raising, value: ir.Value) -> tuple[ir.Value, str] | None:
    """(x, style) of (-b, a), where a and b are parts of x."""
    joined = _joined(raising, value)
    if joined is None:
        return None
    first, second, style = joined
    negative = producer(first, mir.NegOp)
    if negative is None:
        return None
    a, b = _part(raising, second), _part(raising, negative.x)
    is_turned = a is not None and b is not None and same(a.x, b.x) and (a.second, b.second) == (False, True)
    return (a.x, style) if is_turned and a is not None and b is not None and a.style == b.style == style else None


def _products(
    raising: Raising, minus: mir.SubOp, plus: mir.AddOp, style: str
) -> tuple[ir.Value, ir.Value, ir.Value] | None:
    """(x, cos, sin) of a cos - b sin and b cos + a sin."""
    products = [producer(value, mir.MulOp) for value in (minus.lhs, minus.rhs)]
    if any(product is None for product in products):
        return None
    for a, cos in sides(products[0]):
        for b, sin in sides(products[1]):
            first, second = _part(raising, a), _part(raising, b)
            if first is None or second is None or not same(first.x, second.x) or first.second or not second.second:
                continue
            if first.style != style or second.style != style:
                continue
            for left, right in sides(plus):
                if _is_product(raising, left, second, cos) and _is_product(raising, right, first, sin):
                    return first.x, cos, sin
    return None


def _is_product(raising: Raising, value: ir.Value, part: Part, table: ir.Value) -> bool:
    """Whether a value is a part times a table; the part may be taken a second time."""
    product = producer(value, mir.MulOp)
    if product is None:
        return False
    for own, other in sides(product):
        found = _part(raising, own)
        if found is not None and same(other, table) and same(found.x, part.x):
            return (found.style, found.second) == (part.style, part.second)
    return False


# -- tables ------------------------------------------------------------------------------------------------------------


def _replaced(
    raising: Raising,
    op: ir.AnyOp,
    rewriter: Rewriter,
    x: ir.Value,
    style: str,
    given: tuple[ir.Value, ir.Value],
    *,
    twice: bool,
) -> None:
    """Puts a rotation in the place of an operation, or says why its tables can't be those of one."""
    dims = raising.dims(x)
    if raising.dims(op.result) != dims or len(dims) < 2 or dims[-1].constant is None:
        return rewriter.no_match("the tables are larger than what is rotated, or heads have a symbolic length")
    width = dims[-1].constant // 2
    sequence = _sequence(raising, given[0], dims)
    if sequence is None or _sequence(raising, given[1], dims) != sequence:
        return rewriter.no_match(
            "the tables differ between batches or heads, or along more than the dimension before the last",
            hint="one row of a table for each position, and the same for each batch, is a rotation's",
        )
    if drops_rounding(op, rewriter):
        return None
    tables = []
    for table in given:
        half = _half(raising, table, style) if twice else table
        if half is None:
            return rewriter.no_match(
                "the two halves of a table aren't seen to be equal",
                hint="a table that is joined of one half twice is, and one that is computed of such",
            )
        found = raising.reshaped(half, [dims[sequence], Size.of(width)])
        if found is None:
            return rewriter.no_match("the table has a shape that isn't seen to be positions and angles")
        tables.append(found)
    return _emitted(raising, op, rewriter, x, style, (tables[0], tables[1]), sequence)


def _emitted(
    raising: Raising,
    op: ir.AnyOp,
    rewriter: Rewriter,
    x: ir.Value,
    style: str,
    tables: tuple[ir.Value, ir.Value],
    sequence: int,
) -> None:
    dims = raising.dims(x)
    width = dims[-1].constant
    assert width is not None
    kind = ir.Attribute.parse(f"#mir<rope_style {style}>")
    if sequence == len(dims) - 2 and not (len(dims) == 4 and producer(x, mir.TransposeOp) is not None):
        return raising.replace(rewriter, op, mir.rope(x, *tables, head_dim=width, style=kind))
    # Heads stand between positions and angles, or a transpose has put them before: one operation rotates all.
    order = [0, 2, 1, 3] if sequence == len(dims) - 2 else list(range(len(dims)))
    apart = raising.transposed(x, order)
    own = raising.dims(apart)
    rows = raising.reshaped(apart, [*own[:-2], own[-2] * own[-1]])
    if rows is None:
        return rewriter.no_match("the number of heads is symbolic")
    turned = mir.rope(rows, *tables, head_dim=width, style=kind)
    back = raising.reshaped(turned, own)
    if back is None:
        return rewriter.no_match("the number of heads is symbolic")
    return raising.replace(rewriter, op, raising.transposed(back, order))


def _sequence(raising: Raising, table: ir.Value, dims: tuple[Size, ...]) -> int | None:
    """The dimension of x along which a table's rows are: the one before the last, or before heads; else None."""
    own = raising.dims(table)
    aligned = (Size.of(1),) * (len(dims) - len(own)) + own
    rows = [at for at, size in enumerate(aligned[:-1]) if size.constant != 1]
    before = len(dims) - 2
    if not rows:
        rows = [before] if dims[before].constant == 1 else []
    if len(rows) != 1 or rows[0] not in (before, before - 1) or aligned[rows[0]] != dims[rows[0]]:
        return None
    if rows[0] == before - 1 and len(dims) < 4:
        return None
    return rows[0]


def _half(raising: Raising, table: ir.Value, style: str) -> ir.Value | None:
    """A table without what stands in it twice, built again of that; None where that isn't seen."""
    dims = raising.dims(table)
    owner = table.owner
    if isinstance(owner, ir.Block) or not dims:
        return None
    view = owner.opview
    if isinstance(view, mir.ConcatOp) and style == "half" and axis_of(view, len(dims)) == len(dims) - 1:
        first = view.inputs[0]
        return first if len(view.inputs) == 2 and view.inputs[1] == first else None
    if isinstance(view, mir.ReshapeOp):
        return _half_of_view(raising, view, style)
    if view.operation.name in UNARY:
        inner = _half(raising, view.x, style)
        return None if inner is None else type(view)(inner).result
    if isinstance(view, mir.CastOp):
        inner = _half(raising, view.x, style)
        if inner is None:
            return None
        kind = ir.RankedTensorType.get(
            ir.RankedTensorType(inner.type).shape, ir.RankedTensorType(table.type).element_type
        )
        result: ir.Value = mir.CastOp(kind, inner).result
        return result
    if isinstance(view, mir.MulOp | mir.DivOp) and number(view.rhs) is not None and not raising.dims(view.rhs):
        inner = _half(raising, view.lhs, style)
        return None if inner is None else type(view)(inner, view.rhs).result
    return None


def _half_of_view(raising: Raising, view: mir.ReshapeOp, style: str) -> ir.Value | None:
    """Through a reshape that leaves the last dimension; or each element twice, by [n, 1] repeated to [n, 2]."""
    own, inner = raising.dims(view.result), raising.dims(view.x)
    if own[-1] == inner[-1]:
        found = _half(raising, view.x, style)
        half = Size.of((own[-1].constant or 0) // 2)
        return None if found is None else raising.reshaped(found, [*own[:-1], half])
    expanded = producer(view.x, mir.ExpandOp, mir.ConcatOp)
    if style != "interleaved" or expanded is None or inner[-1].constant != 2 or inner[-2] * 2 != own[-1]:
        return None
    if _long(inner[:-2]) != _long(own[:-1]):
        return None
    if isinstance(expanded, mir.ConcatOp):
        single = expanded.inputs[0] if len(set(map(hash, expanded.inputs))) == 1 and len(expanded.inputs) == 2 else None
    else:
        single = expanded.x
    if single is None or raising.dims(single)[:-1] != inner[:-1] or raising.dims(single)[-1].constant != 1:
        return None
    return raising.reshaped(single, [*own[:-1], inner[-2]])


def _long(dims: tuple[Size, ...]) -> list[Size]:
    """The sizes that aren't 1."""
    return [size for size in dims if size.constant != 1]
