# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Long sums of f32: blocks of `TURNS` terms, joined one after the other with what each addition loses carried along.

So errors don't grow with the length of a sum.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from rlx_mlir.codegen.emit import Emitter, Index, Value
from rlx_mlir.codegen.structures import Structure, flatten, mapped, unflatten

#: Terms of a partial sum of one block.
TURNS = 32


def add_with_loss(total: Value, lost: Value, x: Value) -> tuple[Value, Value]:
    """total + x, and what all additions so far have lost."""
    after = total + x
    moved = after - total
    error = total - (after - moved) + (x - moved)
    return after, lost + error


def add_each(totals: Structure, lost: Structure, values: Structure) -> tuple[Structure, Structure]:
    """`add_with_loss` for each value of structures."""
    each = [add_with_loss(*one) for one in zip(flatten(totals), flatten(lost), flatten(values), strict=True)]
    after, errors = zip(*each, strict=True)
    return unflatten(totals, after), unflatten(lost, errors)


def with_loss(em: Emitter, total: Value, lost: Value) -> Value:
    """A total with what it has lost; differences of infinities are NaN: then the total is what it is."""
    return em.select(em.cmpf("ord", lost, lost), total + lost, total)


def in_blocks(em: Emitter, count: Index, zeros: Structure, part: Callable[[Index, Index], Structure]) -> Structure:
    """The sums of `count` terms: those that `part` gives for the terms from one number up to another, from 0 on, joined
    with what that loses."""
    if isinstance(count, int) and count <= TURNS:
        return part(0, count)
    with em.loop(0, count, TURNS, (zeros, zeros), hint="block") as block:
        own = part(block.iv, em.imin(block.iv + TURNS, count))
        block.yield_(add_each(*block.carry, own))
    joined: Structure = mapped(functools.partial(with_loss, em), *block.result)
    return joined
