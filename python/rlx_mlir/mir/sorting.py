# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops that sort the rows of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from mlir.dialects import arith, tensor

from rlx_mlir import ir
from rlx_mlir.mir.linalg import as_index, empty, for_each, index_constant, sizes_of
from rlx_mlir.mir.scalars import Scalar, element, extract


def positions_in_order(keys: ir.Value) -> ir.Value:
    """The positions of each row's keys, i32 [.., n], from the largest key to the smallest; equal keys stay in order.

    Runs of 1, 2, 4, … positions are merged, by turns from one tensor into another: n log2(n) steps for each row.

    Args:
        keys: integers [.., n]; n is static.
    """
    *outer, count = sizes_of(keys)
    assert isinstance(count, int), "rows are of a known length"
    buffers = [empty([*outer, count], element("i32")) for _ in range(2)]

    def rows(at: list[Scalar], *targets: ir.Value) -> list[ir.Value]:
        """Sorts the rows that the positions in outer dimensions lead to."""
        if len(at) == len(outer):
            return _sorted_row(keys, count, at, targets)
        return for_each(0, outer[len(at)], targets, lambda t, *own: rows([*at, Scalar(t)], *own))

    return rows([], *buffers)[0]


def _sorted_row(keys: ir.Value, count: int, at: Sequence[Scalar], targets: Sequence[ir.Value]) -> list[ir.Value]:
    """Sorts one row; its positions end in the first of two tensors."""
    passes = max(count - 1, 0).bit_length()
    # The last pass writes into the first tensor.
    source, target = targets if passes % 2 == 0 else tuple(targets)[::-1]
    source = for_each(0, count, [source], lambda t, own: [_stored(Scalar(t), own, [*at, Scalar(t)])])[0]
    for number in range(passes):
        merged = _merge(keys, count, 1 << number, at, source, target)
        source, target = merged, source
    return [source, target]


def _merge(
    keys: ir.Value, count: int, width: int, at: Sequence[Scalar], source: ir.Value, target: ir.Value
) -> ir.Value:
    """Pairs of neighbouring runs of positions, each of a width, as runs of twice the width."""
    last, zero = _index(count - 1), index_constant(0)

    def step(t: ir.Value, own: ir.Value, left: ir.Value, right: ir.Value) -> list[ir.Value]:
        place = Scalar(t)
        begin = place - place % (2 * width)
        middle, end = (begin + width).min(count), (begin + 2 * width).min(count)
        is_first = place.compare("eq", begin)
        first, second = is_first.select(begin, Scalar(left)), is_first.select(middle, Scalar(right))
        one, other = (_position(extract(source, [*at, each.min(last)])) for each in (first, second))
        wins = extract(keys, [*at, one]) >= extract(keys, [*at, other])
        takes = (first < middle) & (second.compare("ge", end) | wins)
        written = _stored(takes.select(one, other), own, [*at, place])
        after = takes.select(first + 1, first), takes.select(second, second + 1)
        return [written, after[0].value, after[1].value]

    return for_each(0, count, [target, zero, zero], step)[0]


def _index(number: int) -> Scalar:
    return Scalar(as_index(number))


def _position(x: Scalar) -> Scalar:
    """A position that was stored."""
    return Scalar(arith.IndexCastOp(ir.IndexType.get(), x.value).result)


def _stored(position: Scalar, target: ir.Value, at: Sequence[Scalar]) -> ir.Value:
    """A tensor with a position as one of its elements."""
    value = arith.IndexCastOp(element("i32"), position.value).result
    found: ir.Value = tensor.InsertOp(value, target, [each.value for each in at]).result
    return found
