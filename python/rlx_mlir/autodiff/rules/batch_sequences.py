# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batching of operations on sequences: those of all entries are one batch of sequences."""

from __future__ import annotations

from rlx_mlir.attributes import PythonValue
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.folding import fold_all, folded, present, spread, unfolded
from rlx_mlir.autodiff.registry import Batched, batching
from rlx_mlir.dialects import mir
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size


@batching(mir.AttentionOp)
def attention(
    m: Builders,
    at: Batched,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    pos: Value | None = None,
    sinks: Value | None = None,
    **attributes: PythonValue,
) -> Value | None:
    """Of all sequences, where entries share the sinks."""
    if at.batched[5]:
        return None
    return _attended(m, at, [q, k, v], mask, pos, sinks)[0]


@batching(mir.AttentionBackwardOp)
def attention_backward(
    m: Builders,
    at: Batched,
    q: Value,
    k: Value,
    v: Value,
    dy: Value,
    mask: Value | None = None,
    pos: Value | None = None,
    **attributes: PythonValue,
) -> tuple[Value, ...]:
    """Of all sequences."""
    return tuple(_attended(m, at, [q, k, v, dy], mask, pos))


def _attended(
    m: Builders,
    at: Batched,
    sequences: list[Value],
    mask: Value | None,
    pos: Value | None,
    shared: Value | None = None,
) -> list[Value]:
    """The operation of all sequences: of [S, E] for each entry, the batch is that of the sequences.

    `shared` is one more operand, which all entries have.
    """
    given = [spread(m, at, x, batched) for x, batched in zip(sequences, at.batched, strict=False)]
    alone = at.ranks[0] == 2
    count = Size.of(1) if alone else m.sizes_of(given[0])[1]
    of_mask, of_pos = at.batched[len(sequences) :][:2]
    flat = given if alone else [folded(m, x) for x in given]
    if mask is not None:
        mask = _mask(m, at, mask, of_mask, count)
    if pos is not None:
        pos = folded(m, spread(m, at, pos, of_pos))
    found = m.rebuilt(at.op, present([*flat, mask, pos, shared]))
    return [x if alone else unfolded(m, x, [at.size, count]) for x in found]


def _mask(m: Builders, at: Batched, mask: Value, batched: bool, count: Size) -> Value:
    """The mask of all sequences; one for all of them stays one."""
    own = m.sizes_of(mask)[batched:]
    if not batched and own[0] == Size.of(1):
        return mask
    mask = spread(m, at, mask, batched)
    if own[0] != count:
        mask = m.expand(mask, [at.size, count, *own[1:]])
    return folded(m, mask)


@batching(mir.RopeOp)
def rope(
    m: Builders, at: Batched, x: Value, cos: Value, sin: Value, pos: Value | None = None, **attributes: PythonValue
) -> Value | None:
    """Of all sequences, where the tables are those of all entries."""
    of_x, of_cos, of_sin, *of_pos = at.batched
    if of_cos or of_sin:
        return None
    x = spread(m, at, x, of_x)
    if pos is None:
        return m.rebuilt(at.op, [x, cos, sin])[0]
    pos = folded(m, spread(m, at, pos, of_pos[0]))
    if at.ranks[0] == 2:
        return m.rebuilt(at.op, [x, cos, sin, pos])[0]
    count = m.sizes_of(x)[1]
    return unfolded(m, m.rebuilt(at.op, [folded(m, x), cos, sin, pos])[0], [at.size, count])


@batching(mir.CacheUpdateOp, mir.GatedDeltaNetOp, mir.SampleOp)
def sequences(m: Builders, at: Batched, *operands: Value | None, **attributes: PythonValue) -> tuple[Value, ...]:
    """Of all sequences."""
    flat, count = fold_all(m, at, operands)
    return tuple(unfolded(m, x, [at.size, count]) for x in m.rebuilt(at.op, flat))


@batching(mir.SelectiveScanOp)
def selective_scan(
    m: Builders,
    at: Batched,
    x: Value,
    delta: Value,
    a: Value,
    b: Value,
    c: Value,
    state: Value | None = None,
) -> tuple[Value, ...] | None:
    """Of all sequences, where entries share the rates."""
    if at.batched[2]:
        return None
    own = zip(present([x, delta, b, c, state]), [*at.batched[:2], *at.batched[3:]], strict=True)
    given = [spread(m, at, each, batched) for each, batched in own]
    count = m.sizes_of(given[0])[1]
    flat = [folded(m, each) for each in given]
    return tuple(unfolded(m, each, [at.size, count]) for each in m.rebuilt(at.op, [*flat[:2], a, *flat[2:]]))


@batching(mir.FusedAttentionBlockOp, mir.FusedTransformerLayerOp)
def encoder(m: Builders, at: Batched, hidden: Value, *others: Value | None, **attributes: PythonValue) -> Value | None:
    """Of all sequences, where entries share the weights."""
    mask = 3 if isinstance(at.op.opview, mir.FusedAttentionBlockOp) else 7
    if any(has for number, has in enumerate(at.batched) if number not in (0, mask)):
        return None
    hidden = spread(m, at, hidden, at.batched[0])
    count = m.sizes_of(hidden)[1]
    own = others[mask - 1]
    assert own is not None
    given = [*others[: mask - 1], _mask(m, at, own, at.batched[mask], count), *others[mask:]]
    return unfolded(m, m.rebuilt(at.op, [folded(m, hidden), *present(given)])[0], [at.size, count])
