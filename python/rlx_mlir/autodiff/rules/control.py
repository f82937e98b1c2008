# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations with regions: what their regions compute is differentiated where it stands, and gets regions of its own.

Forward mode carries tangents beside values. Reverse mode of a loop needs the values that each step began with: the loop
is run by one that keeps them, and a loop in the other direction computes each step again and pulls cotangents back
through it. With `checkpoints`, only so many of them are kept, and the others are computed again from these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TypeVar

from rlx_mlir import ir
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.forward import push_forward, transposed
from rlx_mlir.autodiff.registry import Forward, Reverse, is_differentiable, jvp, vjp, zeros_like
from rlx_mlir.autodiff.reverse import active_values, joined, pull_back
from rlx_mlir.dialects import mir
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.hir.values import Value, ValueOrTuple
from rlx_mlir.mir.dims import Size

Entry = TypeVar("Entry")


def _block(op: ir.Operation, number: int) -> ir.Block:
    block: ir.Block = op.regions[number].blocks[0]
    return block


def _dense(m: Builders, values: Sequence[Value], changes: Sequence[Value | None]) -> tuple[Value, ...]:
    """Changes, with zeros for those that are None."""
    return tuple(zeros_like(m, x) if c is None else c for x, c in zip(values, changes, strict=True))


def _moving(values: Iterable[Value | ir.Value]) -> list[bool]:
    """Which values have derivatives, by their types."""
    return [is_differentiable((x._handle if isinstance(x, Value) else x).type) for x in values]


# ----------------------------------------------------------------------------------------------------------------------
# Choices
# ----------------------------------------------------------------------------------------------------------------------


@vjp(mir.IfOp)
def if_(m: Builders, at: Reverse, condition: Value, *captures: Value) -> tuple[Value | None, ...]:
    """The same choice of what each region's cotangents are; the region that is chosen is computed again."""
    given = [cotangent for cotangent in at.cotangents if cotangent is not None]
    places = [number for number, cotangent in enumerate(at.cotangents) if cotangent is not None]
    active = at.active[1:]
    wanted = list(compress(captures, active))

    def branch(number: int) -> Callable[..., tuple[Value, ...]]:
        def build(*cotangents: Value) -> tuple[Value, ...]:
            ops, values = m.replayed(_block(at.op, number), captures)
            changes = joined(m, ((values[place], own) for place, own in zip(places, cotangents, strict=True)))
            return _dense(m, wanted, pull_back(m, ops, changes, [m._resolve(x) for x in wanted]))

        return build

    found = iter(m.cond(condition, branch(0), branch(1), *given))
    return None, *(next(found) if own else None for own in active)


@jvp(mir.IfOp)
def if_forward(m: Builders, at: Forward, condition: Value, *captures: Value) -> tuple[Value | None, ...]:
    """A choice of values and tangents, which is read in place of the operation."""
    moving = _moving(at.op.results)

    def branch(number: int) -> Callable[[], tuple[Value, ...]]:
        def build() -> tuple[Value, ...]:
            ops, values = m.replayed(_block(at.op, number), captures)
            return *m.current(values), *_tangents(m, ops, captures, at.tangents[1:], list(compress(values, moving)))

        return build

    with m.before(at.op):
        found = m.cond(condition, branch(0), branch(1))
    count = len(at.results)
    m.replace_results(at.op, found[:count])
    tangents = iter(found[count:])
    return tuple(next(tangents) if own else None for own in moving)


def _tangents(
    m: Builders, ops: Sequence[ir.Operation], values: Sequence[Value], own: Sequence[Value | None], wanted: list[Value]
) -> tuple[Value, ...]:
    """Tangents of what operations compute, from those of what they read."""
    return _dense(m, wanted, push_forward(m, ops, _known(m, values, own), [m._resolve(x) for x in wanted]))


def _known(m: Builders, values: Sequence[Value], own: Sequence[Value | None]) -> dict[ir.Value, Value]:
    """Tangents by what they are of; where a value is listed more than once, they are the same."""
    return {m._read(value): tangent for value, tangent in zip(values, own, strict=True) if tangent is not None}


# ----------------------------------------------------------------------------------------------------------------------
# Loops over sequences
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scan:
    """A scan: its operands, and what its region gives.

    Attributes:
        block: of the region.
        inits, xs, captures: the operands.
        length, reverse: as of the operation.
    """

    block: ir.Block
    inits: Sequence[Value]
    xs: Sequence[Value]
    captures: Sequence[Value]
    length: int | None
    reverse: bool

    def carried(self, of_captures: Sequence[bool], of_xs: Sequence[bool], of_inits: Sequence[bool]) -> list[bool]:
        """Which carried values depend on what is differentiated by, from which operands do."""
        active, arguments = list(of_inits), list(self.block.arguments)
        *ops, end = [each.operation for each in self.block.operations]
        while True:
            flags = [*active, *of_xs, *of_captures]
            reached = active_values(ops, list(compress(arguments, flags)))
            found = [own or value in reached for own, value in zip(active, end.operands, strict=False)]
            if found == active:
                return active
            active = found

    def step(
        self, m: Builders, carried: Sequence[Value], entries: Sequence[Value]
    ) -> tuple[list[ir.Operation], list[Value]]:
        """One step once more: its operations, and what the region gives."""
        return m.replayed(self.block, [*carried, *entries, *self.captures])

    def run(
        self, m: Builders, body: Callable[..., object], init: Sequence[Value], xs: Sequence[Value], length: int | None
    ) -> ValueOrTuple:
        """A scan in this one's direction; of so many steps, where there are no sequences."""
        return m.scan(body, tuple(init), tuple(xs), length=None if xs else length, reverse=self.reverse)

    def keeping(
        self, m: Builders, inits: Sequence[Value], xs: Sequence[Value], length: int | None, *, keep: bool = True
    ) -> tuple[list[Value], list[Value], list[Value]]:
        """Steps along other sequences: the last values, what is stacked, and with `keep` what each step began with."""

        def step(*given: Value) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
            carried, entries = given[: len(inits)], given[len(inits) :]
            _, values = self.step(m, carried, entries)
            return tuple(values[: len(carried)]), (*values[len(carried) :], *(carried if keep else ()))

        last, stacked = self.run(m, step, inits, xs, length)
        count = len(stacked) - (len(inits) if keep else 0)
        return list(last), list(stacked[:count]), list(stacked[count:])


@dataclass(frozen=True)
class Sweep:
    """Reverse mode of a scan, from its last step to its first.

    Attributes:
        own: the scan.
        active: of the carried values, whether their cotangents are needed.
        of_xs, of_captures: of the sequences and of what is captured, whether their cotangents are wanted.
        places: numbers of what the region gives of which there are cotangents: stacked values.
    """

    own: Scan
    active: Sequence[bool]
    of_xs: Sequence[bool]
    of_captures: Sequence[bool]
    places: Sequence[int]

    def run(
        self,
        m: Builders,
        begin: Sequence[Value],
        sequences: tuple[Sequence[Value], Sequence[Value], Sequence[Value]],
        length: int | None,
    ) -> tuple[list[Value], list[Value]]:
        """Goes back along sequences.

        Args:
            begin: the cotangents of what the last step carries, and the sums for what is captured.
            sequences: the values that each step began with, its entries of the sequences, and cotangents of what it
                stacked.
            length: the number of steps, where there are no sequences.

        Gives what `begin` has become, and cotangents of the entries.
        """
        kept, xs, dys = sequences
        count = sum(self.active)

        def step(*given: Value) -> tuple[tuple[Value, ...], tuple[Value, ...] | None]:
            later, sums, carried, entries, own_dys = _split(
                given, count, len(begin) - count, len(kept), len(xs), len(dys)
            )
            ops, values = self.own.step(m, carried, entries)
            wanted = [
                *compress(carried, self.active),
                *compress(entries, self.of_xs),
                *compress(self.own.captures, self.of_captures),
            ]
            of_carried = zip(compress(values[: len(kept)], self.active), later, strict=True)
            of_stacked = ((values[place], dy) for place, dy in zip(self.places, own_dys, strict=True))
            changes = pull_back(m, ops, joined(m, [*of_carried, *of_stacked]), [m._resolve(x) for x in wanted])
            before, by_xs, by_captures = _split(changes, count, sum(self.of_xs), len(sums))
            summed = [total if new is None else m.add(total, new) for total, new in zip(sums, by_captures, strict=True)]
            entries_of = _dense(m, list(compress(entries, self.of_xs)), by_xs)
            return (*_dense(m, wanted[:count], before), *summed), entries_of or None

        every = (*kept, *xs, *dys)
        first, stacked = m.scan(
            step, tuple(begin), every, length=None if every else length, reverse=not self.own.reverse
        )
        return list(first), list(stacked or ())


@vjp(mir.ScanOp)
def scan(
    m: Builders,
    at: Reverse,
    inits: Sequence[Value],
    xs: Sequence[Value],
    captures: Sequence[Value],
    *,
    length: int | None = None,
    reverse: bool = False,
    checkpoints: int | None = None,
) -> tuple[list[Value | None], list[Value | None], list[Value | None]]:
    """A scan in the other direction, of the values that each step began with."""
    own = Scan(_block(at.op, 0), inits, xs, captures, length, reverse)
    of_inits, of_xs, of_captures = _parted(at.active, (len(inits), len(xs)))
    active = own.carried(of_captures, of_xs, of_inits)
    stacked = at.cotangents[len(inits) :]
    places = [len(inits) + number for number, cotangent in enumerate(stacked) if cotangent is not None]
    sweep = Sweep(own, active, of_xs, of_captures, places)
    dys = [cotangent for cotangent in stacked if cotangent is not None]
    last = [zeros_like(m, x) if c is None else c for x, c in zip(inits, at.cotangents, strict=False)]
    begin = [*compress(last, active), *(zeros_like(m, x) for x in compress(captures, of_captures))]
    if checkpoints is None:
        with m.before(at.op):
            ended, each, kept = own.keeping(m, inits, xs, length)
        m.replace_results(at.op, [*ended, *each])
        first, by_entries = sweep.run(m, begin, (kept, xs, dys), length)
    else:
        first, by_entries = _through_segments(m, at.op, sweep, (begin, dys), checkpoints)
    of_carried, of_captured, of_entries = iter(first[: sum(active)]), iter(first[sum(active) :]), iter(by_entries)
    return (
        [next(of_carried) if wanted else None for wanted in active],
        [next(of_entries) if wanted else None for wanted in of_xs],
        [next(of_captured) if wanted else None for wanted in of_captures],
    )


def _parted(flags: Sequence[Entry], counts: Sequence[int]) -> list[list[Entry]]:
    """Consecutive parts of so many entries, and the rest."""
    return [*map(list, _split(flags[: sum(counts)], *counts)), list(flags[sum(counts) :])]


def _split(values: Sequence[Entry], *counts: int) -> list[Sequence[Entry]]:
    """Consecutive parts of so many values."""
    found, begin = [], 0
    for count in counts:
        found.append(values[begin : begin + count])
        begin += count
    assert begin == len(values), "every value is in a part"
    return found


class _Segments:
    """The steps of a scan in segments of one length, and the few that are left, which are the last ones.

    Args:
        own: the scan.
        count: the number of segments.
    """

    def __init__(self, m: Builders, own: Scan, count: int) -> None:
        self._m, self._reverse, self.count = m, own.reverse, count
        whole = Size.of(own.length) if own.length is not None else m.sizes_of(own.xs[0])[0]
        self.each = whole // count
        self.most = self.each * count
        self.rest = whole - self.most
        self._begin = self.rest if own.reverse else Size.of(0)

    @property
    def is_even(self) -> bool:
        """Whether nothing is left."""
        return self.rest == Size.of(0)

    def main(self, values: Sequence[Value]) -> list[Value]:
        """Of sequences, the entries of the segments: [segments, steps, ...]."""
        m = self._m
        parts = [x if self.is_even else m.slice(x, 0, self._begin, self._begin + self.most) for x in values]
        return [m.reshape(x, [Size.of(self.count), self.each, *m.sizes_of(x)[1:]]) for x in parts]

    def left(self, values: Sequence[Value]) -> list[Value]:
        """Of sequences, the entries that are left."""
        begin = Size.of(0) if self._reverse else self.most
        return [self._m.slice(x, 0, begin, begin + self.rest) for x in values]

    def whole(self, main: Sequence[Value], left: Sequence[Value]) -> list[Value]:
        """Sequences from their parts."""
        m = self._m
        flat = [m.reshape(x, [self.most, *m.sizes_of(x)[2:]]) for x in main]
        if self.is_even:
            return flat
        pairs = zip(flat, left, strict=True)
        return [m.concat([b, a] if self._reverse else [a, b], 0) for a, b in pairs]


def _through_segments(
    m: Builders, op: ir.Operation, sweep: Sweep, given: tuple[Sequence[Value], Sequence[Value]], count: int
) -> tuple[list[Value], list[Value]]:
    """Reverse mode that keeps the values that `count` segments begin with: those of steps are computed again.

    Sums go through all segments, so that the results have the bits that they have without checkpoints.
    """
    own, (begin, dys) = sweep.own, given
    carried, entries, changes = len(own.inits), len(own.xs), len(dys)

    def forward(*values: Value) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        start, xs = values[:carried], values[carried:]
        last, each, _ = own.keeping(m, start, xs, parts.each.constant, keep=False)
        return tuple(last), (*each, *start)

    def backward(*values: Value) -> tuple[tuple[Value, ...], tuple[Value, ...] | None]:
        later, start, xs, own_dys = _split(values, len(begin), carried, entries, changes)
        _, _, kept = own.keeping(m, start, xs, parts.each.constant)
        first, by_xs = sweep.run(m, later, (kept, xs, own_dys), parts.each.constant)
        return tuple(first), tuple(by_xs) or None

    with m.before(op):
        parts = _Segments(m, own, count)
        main = parts.main(own.xs)
        between, stacked = own.run(m, forward, own.inits, main, count)
        each, starts = list(stacked[: len(stacked) - carried]), list(stacked[len(stacked) - carried :])
        rest = [] if parts.is_even else parts.left(own.xs)
        each_left: list[Value] = []
        kept: list[Value] = []
        last = list(between)
        if not parts.is_even:
            last, each_left, kept = own.keeping(m, between, rest, parts.rest.constant)
        results = [*last, *parts.whole(each, each_left)]
    m.replace_results(op, results)
    by_left: list[Value] = []
    if not parts.is_even:
        begin, by_left = sweep.run(m, begin, (kept, rest, parts.left(dys)), parts.rest.constant)
    sequences = (*starts, *main, *parts.main(dys))
    first, by_main = m.scan(
        backward, tuple(begin), sequences, length=None if sequences else count, reverse=not own.reverse
    )
    return list(first), parts.whole(list(by_main or ()), by_left)


@jvp(mir.ScanOp)
def scan_forward(
    m: Builders,
    at: Forward,
    inits: Sequence[Value],
    xs: Sequence[Value],
    captures: Sequence[Value],
    *,
    length: int | None = None,
    reverse: bool = False,
    checkpoints: int | None = None,
) -> tuple[Value | None, ...]:
    """A scan that carries tangents, too, and is read in place of the operation."""
    own = Scan(_block(at.op, 0), inits, xs, captures, length, reverse)
    of_inits, of_xs, of_captures = ([t is not None for t in tangents] for tangents in at.tangents)
    active = own.carried(of_captures, of_xs, of_inits)
    with m.before(at.op):
        begin = _dense(m, list(compress(inits, active)), list(compress(at.tangents[0], active)))
    of_stacked = _moving(at.op.results)[len(inits) :]

    def step(*given: Value) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        carried, own_changes, entries, changes = _split(given, len(inits), len(begin), len(xs), sum(of_xs))
        ops, values = own.step(m, carried, entries)
        moved = [*compress(carried, active), *compress(entries, of_xs), *compress(captures, of_captures)]
        by = [*own_changes, *changes, *compress(at.tangents[2], of_captures)]
        following, each = values[: len(inits)], values[len(inits) :]
        wanted = [*compress(following, active), *compress(each, of_stacked)]
        tangents = _tangents(m, ops, moved, by, wanted)
        following, each = m.current(following), m.current(each)
        return (*following, *tangents[: len(begin)]), (*each, *tangents[len(begin) :])

    with m.before(at.op):
        sequences = [*xs, *compress(at.tangents[1], of_xs)]
        last, stacked = own.run(m, step, [*inits, *begin], sequences, length)
    count = len(at.results) - len(inits)
    m.replace_results(at.op, [*last[: len(inits)], *stacked[:count]])
    tangents, of_each = iter(last[len(inits) :]), iter(stacked[count:])
    return (
        *(next(tangents) if moving else None for moving in active),
        *(next(of_each) if moving else None for moving in of_stacked),
    )


# ----------------------------------------------------------------------------------------------------------------------
# Loops as long as a condition holds
# ----------------------------------------------------------------------------------------------------------------------


def _conditions(m: Builders, op: ir.Operation, captures: Sequence[Value]) -> Callable[..., Value]:
    """Whether a loop goes on, from its carried values."""
    return lambda *carried: m.replayed(_block(op, 0), [*carried, *captures])[1][0]


@vjp(mir.WhileOp)
def while_(
    m: Builders, at: Reverse, inits: Sequence[Value], captures: Sequence[Value], *, limit: int | None = None
) -> tuple[list[Value | None], list[Value | None]]:
    """That of as many steps as there may be, each of which is done or not."""
    if limit is None:
        raise UnsupportedError(
            "reverse mode of 'mir.while' keeps what each step began with, and so needs the most steps that there may "
            "be: give it a 'limit', or use forward mode"
        )
    goes_on = _conditions(m, at.op, captures)

    def step(*carried: Value) -> tuple[tuple[Value, ...], None]:
        def go() -> tuple[Value, ...]:
            return tuple(m.replayed(_block(at.op, 1), [*carried, *captures])[1])

        return m.cond(goes_on(*carried), go, lambda: carried), None

    with m.before(at.op), m.recording() as parts:
        results, _ = m.scan(step, tuple(inits), length=limit)
    m.replace_results(at.op, results)
    changes = joined(m, zip(results, at.cotangents, strict=True))
    found = iter(pull_back(m, parts, changes, list(compress(at.op.operands, at.active))))
    every = [next(found) if active else None for active in at.active]
    return every[: len(inits)], every[len(inits) :]


@jvp(mir.WhileOp)
def while_forward(
    m: Builders, at: Forward, inits: Sequence[Value], captures: Sequence[Value], *, limit: int | None = None
) -> tuple[Value | None, ...]:
    """A loop that carries tangents, too, and is read in place of the operation."""
    block = _block(at.op, 1)
    of_inits, of_captures = ([t is not None for t in tangents] for tangents in at.tangents)
    body = Scan(block, inits, (), captures, None, False)
    active = body.carried(of_captures, (), of_inits)
    with m.before(at.op):
        begin = _dense(m, list(compress(inits, active)), list(compress(at.tangents[0], active)))
    goes_on = _conditions(m, at.op, captures)

    def step(*given: Value) -> tuple[Value, ...]:
        carried, changes = given[: len(inits)], given[len(inits) :]
        ops, values = body.step(m, carried, ())
        moved = [*compress(carried, active), *compress(captures, of_captures)]
        by = [*changes, *compress(at.tangents[1], of_captures)]
        tangents = _tangents(m, ops, moved, by, list(compress(values, active)))
        return *m.current(values), *tangents

    with m.before(at.op):
        found = m.while_loop(lambda *given: goes_on(*given[: len(inits)]), step, (*inits, *begin), limit=limit)
    m.replace_results(at.op, found[: len(inits)])
    tangents = iter(found[len(inits) :])
    return tuple(next(tangents) if moving else None for moving in active)


# ----------------------------------------------------------------------------------------------------------------------
# Functions with derivatives of their own
# ----------------------------------------------------------------------------------------------------------------------


@vjp(mir.CustomFnOp)
def custom_fn(m: Builders, at: Reverse, *inputs: Value) -> tuple[Value | None, ...]:
    """The region `vjp`; without one the transpose of the region `jvp`, or that of its operations."""
    function, own, forward = at.op.regions
    moving = _moving(inputs)
    if len(own.blocks):
        _, found = m.replayed(own.blocks[0], [*inputs, *at.results, *at.dense(m)])
        return tuple(value if has else None for value, has in zip(found, moving, strict=True))
    if len(forward.blocks):
        changes = [zeros_like(m, x) for x in inputs]
        ops, values = m.replayed(forward.blocks[0], [*inputs, *changes])
        wanted = changes
    else:
        ops, values = m.replayed(function.blocks[0], inputs)
        wanted = list(inputs)
    own_changes = joined(m, zip(values, at.cotangents, strict=True))
    return tuple(pull_back(m, ops, own_changes, [m._resolve(x) for x in wanted]))


@jvp(mir.CustomFnOp)
def custom_fn_forward(m: Builders, at: Forward, *inputs: Value) -> tuple[Value | None, ...]:
    """The region `jvp`; without one the transpose of the region `vjp`, or that of its operations."""
    function, backward, own = at.op.regions
    moving = _moving(at.op.results)
    if len(own.blocks):
        _, found = m.replayed(own.blocks[0], [*inputs, *_dense(m, inputs, at.tangents)])
        return tuple(value if has else None for value, has in zip(found, moving, strict=True))
    if len(backward.blocks):
        return tuple(transposed(m, at.op, at.tangents))
    ops, values = m.replayed(function.blocks[0], inputs)
    return tuple(push_forward(m, ops, _known(m, inputs, at.tangents), [m._resolve(x) for x in values]))
