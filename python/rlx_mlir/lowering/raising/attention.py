# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention that is written out, and what stands around attention that can be part of it.

Written out it is softmax(scale q k^T + mask) v, of [B, heads, S, head]. Around it: keys and values that are repeated
for each head that reads them; masks that hide what comes later, or that are repeated for each query; and transposes of
heads, which the operation reads where they are.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass

from rlx_mlir import ir
from rlx_mlir.attributes import PythonValue, python_value
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.fuse import drops_rounding
from rlx_mlir.lowering.raising.matching import Raising, axis_of, element, factors, number, producer, sides
from rlx_mlir.mir.dims import Size
from rlx_mlir.rewriting import Rewriter
from rlx_mlir.semantics.function import is_parameter

#: What is added to the score of a key to hide it: from this number on, no sum with a score is another number.
_HIDING = 1e30
_HEADS = [0, 2, 1, 3]
_LARGEST = 3.4028234663852886e38
#: What elements of parameters that are part of a mask lie between: these are numbers that training found, or hide some
#: keys. One that hid all keys of a query would make its softmax NaN in every call.
_WEIGHTS = (-1e6, 1e6)


#: Results hold elements of the first operand alone.
_MOVES = (
    mir.ReshapeOp,
    mir.ExpandOp,
    mir.CastOp,
    mir.SliceOp,
    mir.NarrowOp,
    mir.TransposeOp,
    mir.GatherOp,
)


@dataclass(frozen=True)
class Scores:
    """scale q k^T, with caps and a mask.

    Attributes:
        q, k: [..., Sq, E], [..., Sk, E].
        scale: the number that scores are multiplied by.
        softcap: see `mir.attention`.
        mask: what is added, or None.
    """

    q: ir.Value
    k: ir.Value
    scale: float
    softcap: float | None
    mask: ir.Value | None


def add_patterns(raising: Raising) -> None:
    """Adds the patterns of this family."""

    @raising.pattern(mir.MatmulOp)
    def raise_attention(op: mir.MatmulOp, rewriter: Rewriter) -> None:
        """softmax(scale q k^T + mask) v -> attention(q, k, v, mask)"""
        _raise_attention(raising, op, rewriter)

    @raising.pattern(mir.AttentionOp)
    def share_repeated_heads(op: mir.AttentionOp, rewriter: Rewriter) -> None:
        """attention(q, repeated(k), repeated(v)) -> attention(q, k, v) with fewer heads of keys"""
        if _layout(op) != "bhsd" or op.num_kv_heads is not None:
            return None
        k, v = (_unrepeated(raising, value) for value in (op.k, op.v))
        if k is None or v is None or raising.dims(k)[1] != raising.dims(v)[1]:
            return None
        return raising.replace(rewriter, op, _again(op, k=k, v=v, num_kv_heads=raising.dims(k)[1].constant))

    @raising.pattern(mir.AttentionOp)
    def simplify_mask(op: mir.AttentionOp, rewriter: Rewriter) -> None:
        """attention(q, k, v, mask) -> masked causal, where that is all it hides; or by a mask that isn't repeated"""
        if op.mask is None:
            return None
        kind = str(python_value(op.mask_kind))
        condition = op.mask if kind == "custom" else _hidden(raising, op.mask)
        if condition is not None and op.pos is None and _is_causal(raising, *_sequences(raising, op), condition):
            return raising.replace(rewriter, op, _again(op, mask=None, mask_kind=_word("mask_kind", "causal")))
        source = _unexpanded(raising, op.mask)
        if source is None:
            return None
        return raising.replace(rewriter, op, _again(op, mask=source))

    @raising.pattern(mir.AttentionOp)
    def read_heads_in_place(op: mir.AttentionOp, rewriter: Rewriter) -> None:
        """attention of transposed heads [B, H, S, E] -> transposed attention of [B, S, H E]"""
        if _layout(op) != "bhsd":
            return None
        rows = [_packed(raising, value) for value in (op.q, op.k, op.v)]
        if any(row is None for row in rows):
            return rewriter.no_match(
                "queries, keys or values aren't transposed from [B, S, heads, head]",
                hint="heads are read where they are, without a transpose, where all three are",
            )
        found = _again(op, q=rows[0], k=rows[1], v=rows[2], layout=_word("head_layout", "packed"))
        b, h, s, e = raising.dims(op.result)
        back = raising.reshaped(found.result, [b, s, h, e])
        return None if back is None else raising.replace(rewriter, op, raising.transposed(back, _HEADS))


def _raise_attention(raising: Raising, op: mir.MatmulOp, rewriter: Rewriter) -> None:
    weights, guards = _unguarded(op.lhs)
    softmax = producer(weights, mir.SoftmaxOp)
    dims = raising.dims(op.result)
    if softmax is None or op.transpose_rhs or len(dims) not in (3, 4):
        return None
    if axis_of(softmax, len(dims)) != len(dims) - 1 or raising.dims(softmax.result)[:-2] != dims[:-2]:
        return None
    scores = _scores(raising, softmax.x)
    if scores is None:
        return None
    width, heads = dims[-1].constant, dims[-3].constant if len(dims) == 4 else 1
    q, k, v = scores.q, scores.k, op.rhs
    readers = {use.owner.operation for use in (*op.lhs.uses, *weights.uses)}
    if readers - {own.operation for own in (op, *guards)}:
        return rewriter.no_match("the weights have other readers", hint="attention doesn't give its weights")
    if width is None or heads is None or not heads:
        return rewriter.no_match("the number of heads, or their length, is symbolic")
    if any(raising.dims(x)[-1] != dims[-1] for x in (q, k)):
        return rewriter.no_match("values have another length than queries and keys")
    if any(raising.dims(x)[:-2] != dims[:-2] for x in (q, k, v)):
        return rewriter.no_match("queries, keys and values have other batches or heads")
    if not math.isfinite(scores.scale) or drops_rounding(op, rewriter):
        return None
    if (
        scores.mask is not None
        and not guards
        and not _leaves_a_key(raising, scores.mask, *(raising.dims(x)[-2] for x in (q, k)))
    ):
        return rewriter.no_match(
            "the mask may hide all keys of a query",
            hint="softmax gives NaN for such a query, and attention zeros: mask by a finite number, causally, or put "
            "zeros for NaN",
        )
    images = [_images(raising, x) for x in (q, k, v)]
    mask = None if scores.mask is None else _mask(raising, scores.mask, raising.dims(k)[-2])
    if any(image is None for image in images) or (mask is None) != (scores.mask is None):
        return rewriter.no_match("what is added to the scores isn't a mask of batches, heads, queries and keys")
    found = mir.attention(
        q=images[0],
        k=images[1],
        v=images[2],
        num_heads=heads,
        head_dim=width,
        mask=mask,
        mask_kind=None if mask is None else _word("mask_kind", "bias"),
        scale=scores.scale,
        softcap=scores.softcap,
        layout=_word("head_layout", "bhsd"),
    )
    back = raising.reshaped(found, dims)
    assert back is not None
    return raising.replace(rewriter, op, back)


def _unguarded(value: ir.Value) -> tuple[ir.Value, list[ir.AnyOp]]:
    """Weights without zeros in the place of NaN, and the operations that put these there."""
    chosen = producer(value, mir.WhereOp)
    test = producer(chosen.condition, mir.CompareOp) if chosen is not None else None
    if chosen is None or test is None or test.lhs != test.rhs:
        return value, []
    kind = str(python_value(test.kind))
    zeros, weights = (chosen.on_true, chosen.on_false) if kind == "ne" else (chosen.on_false, chosen.on_true)
    if kind not in ("ne", "eq") or test.lhs != weights or weights.type != value.type or number(zeros) != 0:
        return value, []
    return weights, [chosen, test]


def _scores(raising: Raising, value: ir.Value) -> Scores | None:
    """Scores as what softmax reads them: [mask +] [cap tanh(] scale q k^T [/ cap)]."""
    add = producer(value, mir.AddOp)
    for scores, mask in sides(add) if add is not None else ():
        if scores.type == value.type and (found := _capped(raising, scores)) is not None:
            return Scores(*found, mask)
    chosen = producer(value, mir.WhereOp)
    if chosen is not None:
        return _chosen(raising, chosen)
    found = _capped(raising, value)
    return None if found is None else Scores(*found, None)


def _chosen(raising: Raising, op: mir.WhereOp) -> Scores | None:
    """Scores where a condition holds, a number that hides them elsewhere: by what is added to them instead."""
    for scores, other in ((op.on_true, op.on_false), (op.on_false, op.on_true)):
        low, found = number(other), _capped(raising, scores)
        if found is None or low is None or low > -_HIDING or scores.type != op.result.type:
            continue
        zero = mir.constant(_zero(other))
        parts = (zero, other) if scores == op.on_true else (other, zero)
        return Scores(*found, mir.where(op.condition, *parts))
    return None


def _zero(like: ir.Value) -> ir.Attribute:
    kind = ir.RankedTensorType(like.type)
    return ir.DenseElementsAttr.get_splat(
        ir.RankedTensorType.get([], kind.element_type), ir.FloatAttr.get(kind.element_type, 0.0)
    )


def _capped(raising: Raising, value: ir.Value) -> tuple[ir.Value, ir.Value, float, float | None] | None:
    """(q, k, scale, softcap)"""
    total, rest = factors(value)
    if len(rest) != 1:
        return None
    tanh = producer(rest[0], mir.TanhOp)
    if tanh is not None:
        inner = _product(raising, tanh.x)
        return None if inner is None or total <= 0 else (*inner[:2], inner[2] * total, total)
    found = _product(raising, value)
    return None if found is None else (*found, None)


def _product(raising: Raising, value: ir.Value) -> tuple[ir.Value, ir.Value, float] | None:
    """(q, k, scale) of scale q k^T; queries and keys may each have a part of the scale."""
    total, rest = factors(value)
    product = producer(rest[0], mir.MatmulOp) if len(rest) == 1 else None
    if product is None:
        return None
    (own, q), (other, k) = _unscaled(product.lhs), _unscaled(product.rhs)
    if not product.transpose_rhs:
        turned = _turned_back(raising, k)
        if turned is None:
            return None
        k = turned
    last, k = _unscaled(k)
    return q, k, total * own * other * last


def _unscaled(value: ir.Value) -> tuple[float, ir.Value]:
    """A factor that is a number, and what it is multiplied with; 1 and the value itself where there is none."""
    total, rest = factors(value)
    if len(rest) != 1 or rest[0].type != value.type or not math.isfinite(total) or total == 0:
        return 1.0, value
    return total, rest[0]


def _turned_back(raising: Raising, value: ir.Value) -> ir.Value | None:
    """Keys [..., S, E] of which a value is [..., E, S]; None where nothing has transposed them."""
    turned = producer(value, mir.TransposeOp)
    rank = len(raising.dims(value))
    if turned is not None:
        order = list(turned.permutation)
        if order == [*range(rank - 2), rank - 1, rank - 2]:
            source: ir.Value = turned.x
            return source
        # Of [B, S, heads, E], both transposes in one.
        return raising.transposed(turned.x, _HEADS) if order == [0, 2, 3, 1] else None
    parted = producer(value, mir.ReshapeOp)  # heads stand with batches while keys are transposed
    flat = producer(parted.x, mir.TransposeOp) if parted is not None else None
    joined = producer(flat.x, mir.ReshapeOp) if flat is not None and list(flat.permutation) == [0, 2, 1] else None
    if joined is None:
        return None
    whole, dims = joined.x, raising.dims(joined.x)
    return whole if len(dims) == 4 and raising.dims(value) == (*dims[:2], dims[3], dims[2]) else None


def _images(raising: Raising, x: ir.Value) -> ir.Value | None:
    """[B, heads, S, E] of that, or of [B, S, E]."""
    dims = raising.dims(x)
    return x if len(dims) == 4 else raising.reshaped(x, [dims[0], Size.of(1), *dims[1:]])


def _mask(raising: Raising, mask: ir.Value, columns: Size) -> ir.Value | None:
    """A mask with dimensions for batches and heads; None of what has no number for each key."""
    dims = raising.dims(mask)
    if not dims or dims[-1] != columns:
        return None
    if len(dims) == 4:
        return mask
    return raising.reshaped(mask, [Size.of(1)] * (4 - len(dims)) + list(dims)) if len(dims) < 3 else None


# -- attention with what is around it ----------------------------------------------------------------------------------


def _word(enum: str, word: str) -> ir.Attribute:
    return ir.Attribute.parse(f"#mir<{enum} {word}>")


def _layout(op: mir.AttentionOp) -> str:
    return str(python_value(op.layout))


def _again(op: mir.AttentionOp, **changed: PythonValue) -> ir.OpView:
    """The operation with some of its operands and attributes changed."""
    kept = {
        "mask": op.mask,
        "pos": op.pos,
        "sinks": op.sinks,
        "num_heads": op.num_heads,
        "num_kv_heads": op.num_kv_heads,
        "head_dim": op.head_dim,
        "mask_kind": op.mask_kind,
        "window": op.window,
        "scale": op.scale,
        "softcap": op.softcap,
        "layout": op.layout,
    }
    q, k, v = (changed.pop(name, getattr(op, name)) for name in ("q", "k", "v"))
    return mir.AttentionOp(q, k, v, **{**kept, **changed})


def _unrepeated(raising: Raising, value: ir.Value) -> ir.Value | None:
    """Heads [B, n, S, E] that a value [B, n r, S, E] has r times each, also where a transpose has put them there."""
    turned = producer(value, mir.TransposeOp)
    if turned is not None and list(turned.permutation) == _HEADS:
        return _unrepeated_rows(raising, turned.x)
    flat = producer(value, mir.ReshapeOp)
    repeated = producer(flat.x, mir.ExpandOp) if flat is not None else None
    if repeated is None:
        return None
    single: ir.Value = repeated.x
    own, wide, narrow = raising.dims(value), raising.dims(repeated.result), raising.dims(single)
    if len(own) != 4 or len(wide) != 5 or len(narrow) != 5 or narrow[2].constant != 1:
        return None
    if (narrow[:2], narrow[3:]) != (wide[:2], wide[3:]) or (own[0], own[2:]) != (wide[0], wide[3:]):
        return None
    return raising.reshaped(single, [*narrow[:2], *narrow[3:]])


def _unrepeated_rows(raising: Raising, value: ir.Value) -> ir.Value | None:
    """The same of rows: heads [B, n, S, E] of a value [B, S, n r, E]."""
    flat = producer(value, mir.ReshapeOp)
    repeated = producer(flat.x, mir.ExpandOp) if flat is not None else None
    if repeated is None:
        return None
    own, wide, narrow = raising.dims(value), raising.dims(repeated.result), raising.dims(repeated.x)
    if len(own) != 4 or len(wide) != 5 or len(narrow) != 5 or narrow[3].constant != 1:
        return None
    if (narrow[:3], narrow[4]) != (wide[:3], wide[4]) or (own[:2], own[3]) != (wide[:2], wide[4]):
        return None
    rows = raising.reshaped(repeated.x, [*narrow[:3], narrow[4]])
    return None if rows is None else raising.transposed(rows, _HEADS)


def _packed(raising: Raising, value: ir.Value) -> ir.Value | None:
    """[B, S, H E] of heads [B, H, S, E] that are transposed from there."""
    turned = producer(value, mir.TransposeOp)
    if turned is None or list(turned.permutation) != _HEADS:
        return None
    b, s, h, e = raising.dims(turned.x)
    return raising.reshaped(turned.x, [b, s, h * e])


def _unexpanded(raising: Raising, mask: ir.Value) -> ir.Value | None:
    """A mask before it is repeated along batches, heads and queries; None where it isn't."""
    expanded = producer(mask, mir.ExpandOp)
    if expanded is None:
        return None
    source: ir.Value = expanded.x
    own = raising.dims(source)
    if not own or own[-1] != raising.dims(mask)[-1] or len(own) > 4:
        return None
    return source if len(own) == 4 else raising.reshaped(source, [Size.of(1)] * (4 - len(own)) + list(own))


def _hidden(raising: Raising, mask: ir.Value) -> ir.Value | None:
    """The condition of keys that are seen, of a mask that adds 0 to their scores, and to others what hides them."""
    chosen = producer(_single(raising, mask), mir.WhereOp)
    if chosen is None:
        return None
    seen, hidden = number(chosen.on_true), number(chosen.on_false)
    if seen == 0 and hidden is not None and hidden <= -_HIDING:
        return chosen.condition
    return None


def _single(raising: Raising, mask: ir.Value) -> ir.Value:
    """What a mask is of queries and keys, before it is repeated for batches and heads, or has dimensions for these."""
    while (view := producer(mask, mir.ExpandOp, mir.ReshapeOp)) is not None:
        if raising.dims(view.x)[-2:] != raising.dims(mask)[-2:]:
            break
        mask = view.x
    return mask


def _leaves_a_key(raising: Raising, mask: ir.Value, rows: Size, columns: Size) -> bool:
    """Whether a mask is seen to leave each query a key: it has no infinities, or hides what comes later."""
    if _bounds(mask) is not None:
        return True
    condition = _hidden(raising, mask)
    return condition is not None and _is_causal(raising, rows, columns, condition)


def _bounds(value: ir.Value, depth: int = 12) -> tuple[float, float] | None:
    """Numbers of f32 that a value lies between; None where none are seen.

    Args:
        depth: so many operations are looked through at most.
    """
    if depth == 0:
        return None
    known = number(value)
    if known is not None:
        ends: list[float] = [known]
    elif element(value).startswith(("i", "ui")):
        ends = [0.0, 1.0]  # flags; other integers, such as distances, are far from what makes a product infinite
    elif is_parameter(value):
        ends = list(_WEIGHTS)
    elif (view := producer(value, *_MOVES)) is not None:
        own = _bounds(view.table if isinstance(view, mir.GatherOp) else view.x, depth - 1)
        ends = [] if own is None else list(own)
    elif (chosen := producer(value, mir.WhereOp)) is not None:
        both = [_bounds(x, depth - 1) for x in (chosen.on_true, chosen.on_false)]
        ends = [] if None in both else [end for own in both if own for end in own]
    else:
        ends = _computed_bounds(value, depth)
    found = (min(ends), max(ends)) if ends else None
    return found if found and all(abs(end) <= _LARGEST for end in found) else None


def _computed_bounds(value: ir.Value, depth: int) -> list[float]:
    """What a sum, a difference or a product of values with bounds may be at most and at least; else nothing."""
    op = producer(value, mir.AddOp, mir.SubOp, mir.MulOp)
    pair = [] if op is None else [_bounds(x, depth - 1) for x in (op.lhs, op.rhs)]
    if not pair or pair[0] is None or pair[1] is None:
        return []
    of = operator.add if isinstance(op, mir.AddOp) else operator.sub if isinstance(op, mir.SubOp) else operator.mul
    return [of(a, b) for a in pair[0] for b in pair[1]]


def _is_causal(raising: Raising, rows: Size, columns: Size, condition: ir.Value) -> bool:
    """Whether a condition is that the key's position is at most the query's, of as many queries as keys."""
    if rows != columns:
        return False
    compared = producer(_single(raising, condition), mir.CompareOp)
    if compared is None:
        return False
    kind, left, right = str(python_value(compared.kind)), compared.lhs, compared.rhs
    if kind == "ge":
        kind, left, right = "le", right, left
    return kind == "le" and _counts(raising, left, 1, columns) and _counts(raising, right, 2, rows)


def _sequences(raising: Raising, op: mir.AttentionOp) -> tuple[Size, Size]:
    axis = 2 if _layout(op) == "bhsd" else 1
    return raising.dims(op.q)[axis], raising.dims(op.k)[axis]


def _counts(raising: Raising, value: ir.Value, from_end: int, size: Size) -> bool:
    """Whether a value is 0, 1, … along a dimension, counted from the end, and the same along others."""
    rank = len(raising.dims(value))
    while (view := producer(value, mir.ReshapeOp, mir.ExpandOp)) is not None:
        inner = raising.dims(view.x)
        own = raising.dims(value)
        if [s for s in own if s.constant != 1] != [s for s in inner if s.constant != 1]:
            return False
        if rank < from_end or own[rank - from_end] != size:
            return False
        value, rank = view.x, len(inner)
        if rank == 1:
            from_end = 1
    counter = producer(value, mir.IotaOp)
    if counter is None or rank < from_end or element(value) not in ("i32", "i64"):
        return False
    return axis_of(counter, rank) == rank - from_end and raising.dims(value)[rank - from_end] == size
