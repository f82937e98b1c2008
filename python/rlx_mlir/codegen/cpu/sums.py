# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Long sums of f32: blocks of `TURNS` terms, joined one after the other with what each addition loses carried along.

So errors don't grow with the length of a sum.
"""

from __future__ import annotations

from rlx_mlir.codegen.emit import Emitter, Value
from rlx_mlir.codegen.structures import Structure, flatten, unflatten

__all__ = ["TURNS", "add_each", "add_with_loss", "with_loss"]

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
