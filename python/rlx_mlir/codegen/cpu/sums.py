# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Long sums of f32: blocks of `TURNS` terms, joined one after the other with what each addition loses carried along.

So errors don't grow with the length of a sum.
"""

from __future__ import annotations

from rlx_mlir.codegen.emit import Emitter, Value

__all__ = ["TURNS", "add_with_loss", "with_loss"]

#: Terms of a partial sum of one block.
TURNS = 32


def add_with_loss(em: Emitter, total: Value, lost: Value, x: Value) -> tuple[Value, Value]:
    """total + x, and what all additions so far have lost."""
    after = em.addf(total, x)
    moved = em.subf(after, total)
    error = em.addf(em.subf(total, em.subf(after, moved)), em.subf(x, moved))
    return after, em.addf(lost, error)


def with_loss(em: Emitter, total: Value, lost: Value) -> Value:
    """A total with what it has lost; differences of infinities are NaN: then the total is what it is."""
    return em.select(em.cmpf("ord", lost, lost), em.addf(total, lost), total)
