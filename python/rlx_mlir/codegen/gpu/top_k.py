# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The GPU schedule of the first elements of rows in an order: each block finds those of its part, one block joins the
parts.

Elements become integers in the order that is asked for (`order.py`), so that a comparison is one instruction; those of
equal numbers are ordered by position. A block's elements stay in registers while its threads agree k times on the first
one, which then leaves. Two launches, or one where a block holds the row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Value, element_of, shape_of, vec
from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter, pointer
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, HostEmitter, Scratch, symbol_of, write_device_kernel
from rlx_mlir.codegen.gpu.order import Order
from rlx_mlir.codegen.kernel import row_count
from rlx_mlir.codegen.specs import TopKSpec
from rlx_mlir.codegen.structures import pairwise

THREADS = 256
#: Elements that a thread holds in the first launch, and at most in the second.
ELEMENTS, MOST_ELEMENTS = 16, 48
#: Elements that are found one after the other, at most: an estimate; sorting costs about as much as so many.
SELECTED = 128
#: Of elements that aren't there; beyond every position.
LEAST, LAST = -(1 << 31), (1 << 31) - 1

Pair = tuple[Value, Value]
"""A number as an ordered integer, and its position; both i32."""


def emit_top_k(name: str, spec: TopKSpec, chip: str) -> DeviceKernel:
    """The kernel; UnsupportedByTemplate for elements whose keys have more than 32 bits, where n or k isn't known, for
    so many elements that sorting is better, and where a row has too many parts for one block to join."""
    element, n = element_of(spec.x), shape_of(spec.x)[-1]
    k = spec.k
    if not k or n is None or spec.others:
        raise UnsupportedByTemplate(f"{name}: no element is wanted, or as many as sizes of calls say")
    order = Order.of(name, element, spec.smallest, spec.nan_largest)
    if order.bits > 32:
        raise UnsupportedByTemplate(f"{name}: the first elements of rows of {spec.x}")
    if k > SELECTED:
        raise UnsupportedByTemplate(f"{name}: {k} elements are more than are found one after the other")
    parts = -(-n // (THREADS * ELEMENTS))
    if -(-parts * k // THREADS) > MOST_ELEMENTS:
        raise UnsupportedByTemplate(f"{name}: {k} of each of {parts} parts are more than a block joins")
    em = DeviceEmitter(chip)
    first, second = f"{symbol_of(name)}_parts", f"{symbol_of(name)}_join"
    whole = parts == 1
    types = [(word, type) for word, type in (("values", spec.values), ("indices", spec.indices)) if type is not None]
    results, words = [pointer(word) for word, _ in types], [word for word, _ in types]
    outputs = results if whole else [pointer("parts")]
    with em.kernel(first, [pointer("x", readonly=True), *outputs], THREADS, chained=True) as (x, *out):
        row = em.wide(em.block())
        pairs = _read(em, em.at(x, row * n, order.element), order, n)
        if whole:
            _select(em, pairs, k, lambda t, pair: _finish(em, words, out, order, _place(em, row, k, t), pair))
        else:
            part = row * parts + em.wide(em.block("y"))
            _select(em, pairs, k, lambda t, pair: _keep(em, out[0], _place(em, part, k, t), pair))
    if not whole:
        with em.kernel(second, [pointer("parts", readonly=True), *results], THREADS, chained=True) as (kept, *out):
            row = em.wide(em.block())
            pairs = _read_parts(em, kept, row, parts * k)
            _select(em, pairs, k, lambda t, pair: _finish(em, words, out, order, _place(em, row, k, t), pair))

    def take(host: HostEmitter, operands: list[Value], scratch: Scratch) -> Value | None:
        return None if whole else scratch.take([row_count(host, operands[0]), parts * k, 2], "i32")

    def host(host: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        kept = take(host, operands, scratch)
        count, shared = row_count(host, operands[0]), 8 * (THREADS // 32)
        written = results if kept is None else [kept]
        host.launch(first, [count, parts], THREADS, [operands[0], *written], shared=shared)
        if kept is not None:
            host.launch(second, count, THREADS, [kept, *results], shared=shared)

    return write_device_kernel(name, "top_k", [("x", spec.x)], types, em, host, scratch=take)


def _read(em: DeviceEmitter, row: Value, order: Order, n: int) -> list[Pair]:
    """The thread's elements of its block's part of a row."""
    element = order.element
    piece = min(128 // BITS[element], ELEMENTS)
    while n % piece:
        piece //= 2
    base = em.block("y") * (THREADS * ELEMENTS)
    type = vec(piece, element) if piece > 1 else element
    pairs = []
    for number in range(ELEMENTS // piece):
        at = em.index(base + (em.thread() + number * THREADS) * piece)
        exists = em.cmpi("ult", at, n)
        for lane, x in enumerate(em.lanes(em.ld_if(exists, row, type, at))):
            key = em.select(exists, order.key(em, x), LEAST)
            pairs.append((key, em.select(exists, at + lane, LAST)))
    return pairs


def _read_parts(em: DeviceEmitter, kept: Value, row: Value, count: int) -> list[Pair]:
    """The thread's share of what the parts of a row kept."""
    pairs = []
    for first in range(0, count, THREADS):
        at = em.index(em.thread() + first)
        exists = em.cmpi("ult", at, count)
        place = _place(em, row, count, at) * 2
        key, position = em.lanes(em.ld_if(exists, kept, vec(2, "i32"), place))
        pairs.append((em.select(exists, key, LEAST), em.select(exists, position, LAST)))
    return pairs


def _larger(em: DeviceEmitter, a: Pair, b: Pair) -> Pair:
    """The larger one; of equal ones, that of the smaller position."""
    above, equal = em.cmpi("sgt", a[0], b[0]), em.cmpi("eq", a[0], b[0])
    first = above | (equal & em.cmpi("slt", a[1], b[1]))
    return em.select(first, a[0], b[0]), em.select(first, a[1], b[1])


def _largest(em: DeviceEmitter, pairs: Sequence[Pair]) -> Pair:
    """Of several, joined as a tree."""
    return pairwise(functools.partial(_larger, em), pairs)


def _select(em: DeviceEmitter, pairs: Sequence[Pair], k: int, write: Callable[[Value, Pair], None]) -> None:
    """Lets thread 0 write the block's k largest in order: `write(number, pair)`."""
    warps = THREADS // 32
    with em.loop(0, k, carry=list(pairs), hint="taken") as loop:
        best = _largest(em, loop.carry)
        for distance in (1, 2, 4, 8, 16):
            other = tuple(em.shuffle_lane("bfly", value, distance) for value in best)
            best = _larger(em, best, (other[0], other[1]))
        em.barrier()
        with em.if_(em.cmpi("eq", em.lane(), 0)):
            em.st(em.vector(best), em.shared(), (em.thread() >> 5) * 2)
        em.barrier()
        found = [em.lanes(em.ld(em.shared(), vec(2, "i32"), 2 * warp)) for warp in range(warps)]
        best = _largest(em, [(key, position) for key, position in found])
        with em.if_(em.cmpi("eq", em.thread(), 0)):
            write(loop.iv, best)
        left = []
        for key, position in loop.carry:
            taken = em.cmpi("eq", position, best[1])
            left.append((em.select(taken, LEAST, key), em.select(taken, LAST, position)))
        loop.yield_(left)


def _place(em: DeviceEmitter, row: Value, columns: int, column: Value) -> Value:
    """The element of [rows, columns], i64."""
    return row * columns + em.wide(column)


def _keep(em: DeviceEmitter, parts: Value, place: Value, pair: Pair) -> None:
    em.st(em.vector(pair), parts, place * 2)


def _finish(
    em: DeviceEmitter, words: Sequence[str], outputs: Sequence[Value], order: Order, place: Value, pair: Pair
) -> None:
    for word, output in zip(words, outputs, strict=True):
        em.st(order.value(em, pair[0]) if word == "values" else pair[1], output, place)
