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
from typing import Any

from rlx_mlir import ir
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.forward import push_forward, transposed
from rlx_mlir.autodiff.registry import Forward, Reverse, is_differentiable, jvp, vjp, zeros_like
from rlx_mlir.autodiff.reverse import active_values, joined, pull_back
from rlx_mlir.dialects import mir
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size


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
    given = joined(m, zip(values, own, strict=True))
    return _dense(m, wanted, push_forward(m, ops, given, [m._resolve(x) for x in wanted]))


# ----------------------------------------------------------------------------------------------------------------------
# Loops over sequences
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scan:
    """A scan: its operands, and what its region gives.

    Attributes:
        block: of the region.
        inits, xs, captures: the operands.
        stacked: how many values it stacks.
        length, reverse: as of the operation.
    """

    block: ir.Block
    inits: Sequence[Value]
    xs: Sequence[Value]
    captures: Sequence[Value]
    stacked: int
    length: int | None
    reverse: bool

    @staticmethod
    def of(
        op: ir.Operation,
        inits: Sequence[Value],
        xs: Sequence[Value],
        captures: Sequence[Value],
        length: int | None,
        reverse: bool,
    ) -> Scan:
        """That of an operation."""
        return Scan(_block(op, 0), inits, xs, captures, len(op.results) - len(inits), length, reverse)

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

    def step(self, m: Builders, carried: Sequence[Value], entries: Sequence[Value]) -> tuple[list[Any], list[Value]]:
        """One step once more: its operations, and what the region gives."""
        return m.replayed(self.block, [*carried, *entries, *self.captures])

    def run(self, m: Builders, body: Callable[..., Any], init: Sequence[Value], xs: Sequence[Value]) -> Any:
        """A scan as long as this one and in its direction."""
        return m.scan(body, tuple(init), tuple(xs), length=None if xs else self.length, reverse=self.reverse)


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
    own = Scan.of(at.op, inits, xs, captures, length, reverse)
    if checkpoints is not None:
        return _through_segments(m, at, own, checkpoints)
    counts = (len(inits), len(xs))
    of_inits, of_xs, of_captures = _parted(at.active, counts)
    active = own.carried(of_captures, of_xs, of_inits)
    kept = _keeping(m, at.op, own)
    changes = at.cotangents
    dys = [cotangent for cotangent in changes[len(inits) :] if cotangent is not None]
    places = [len(inits) + n for n, cotangent in enumerate(changes[len(inits) :]) if cotangent is not None]
    last = [zeros_like(m, x) if c is None else c for x, c in zip(inits, changes, strict=False)]
    totals = [zeros_like(m, x) for x in compress(captures, of_captures)]
    begin = [*compress(last, active), *totals]

    def step(*given: Value) -> tuple[tuple[Value, ...], tuple[Value, ...] | None]:
        later, sums, carried, entries, own_dys = _split(
            given, len(begin) - len(totals), len(totals), len(inits), len(xs), len(dys)
        )
        ops, values = own.step(m, carried, entries)
        wanted = [*compress(carried, active), *compress(entries, of_xs), *compress(captures, of_captures)]
        of_carried = zip(compress(values[: len(inits)], active), later, strict=True)
        of_stacked = ((values[place], dy) for place, dy in zip(places, own_dys, strict=True))
        found = _dense(
            m, wanted, pull_back(m, ops, joined(m, [*of_carried, *of_stacked]), [m._resolve(x) for x in wanted])
        )
        before, by_xs, by_captures = _split(found, len(later), sum(of_xs), len(totals))
        summed = [m.add(total, new) for total, new in zip(sums, by_captures, strict=True)]
        return (*before, *summed), tuple(by_xs) if any(of_xs) else None

    sequences = [*kept, *xs, *dys]
    first, stacked = m.scan(
        step, tuple(begin), tuple(sequences), length=None if sequences else length, reverse=not reverse
    )
    of_carried, of_captured = iter(first[: sum(active)]), iter(first[sum(active) :])
    by_init = [next(of_carried) if own_active else None for own_active in active]
    of_entries = iter(stacked or ())
    return (
        by_init,
        [next(of_entries) if wanted else None for wanted in of_xs],
        [next(of_captured) if wanted else None for wanted in of_captures],
    )


def _parted(flags: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """Consecutive parts of so many entries, and the rest."""
    return [*map(list, _split(flags[: sum(counts)], *counts)), list(flags[sum(counts) :])]


def _split(values: Sequence[Any], *counts: int) -> list[Sequence[Any]]:
    """Consecutive parts of so many values."""
    found, begin = [], 0
    for count in counts:
        found.append(values[begin : begin + count])
        begin += count
    assert begin == len(values), "every value is in a part"
    return found


def _keeping(m: Builders, op: ir.Operation, own: Scan) -> list[Value]:
    """The values that each step began with; the scan that gives them is read in place of the operation."""

    def step(*given: Value) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        carried, entries = given[: len(own.inits)], given[len(own.inits) :]
        _, values = own.step(m, carried, entries)
        return tuple(values[: len(carried)]), (*values[len(carried) :], *carried)

    with m.before(op):
        last, stacked = own.run(m, step, own.inits, own.xs)
    m.replace_results(op, [*last, *stacked[: own.stacked]])
    return list(stacked[own.stacked :])


def _through_segments(
    m: Builders, at: Reverse, own: Scan, count: int
) -> tuple[list[Value | None], list[Value | None], list[Value | None]]:
    """Of `count` segments of equal length, a scan of scans keeps what each began with; what is left is another scan."""
    with m.before(at.op), m.recording() as parts:
        results = segmented(m, own, count)
    m.replace_results(at.op, results)
    changes = joined(m, zip(results, at.cotangents, strict=True))
    operands = list(at.op.operands)
    found = pull_back(m, parts, changes, list(compress(operands, at.active)))
    left = iter(found)
    every = [next(left) if active else None for active in at.active]
    by_inits, by_xs, by_captures = _parted(every, (len(own.inits), len(own.xs)))
    return by_inits, by_xs, by_captures


def segmented(m: Builders, own: Scan, count: int) -> list[Value]:
    """The results of a scan, computed as one of `count` scans and one of what is left."""
    whole = Size.of(own.length) if own.length is not None else m.sizes_of(own.xs[0])[0]
    each = whole // count
    most = each * count
    rest = whole - most

    def inner(carried: Sequence[Value], entries: Sequence[Value], steps: Size) -> tuple[list[Value], list[Value]]:
        def step(*given: Value) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
            _, values = own.step(m, given[: len(carried)], given[len(carried) :])
            return tuple(values[: len(carried)]), tuple(values[len(carried) :])

        length = None if entries else steps.constant
        last, stacked = m.scan(step, tuple(carried), tuple(entries), length=length, reverse=own.reverse)
        return list(last), list(stacked)

    def part(x: Value, first: bool) -> Value:
        """The entries of the segments, or those that are left: in the order of the steps, they come last."""
        begin = rest if own.reverse else Size.of(0)
        bounds = (begin, begin + most) if first else ((Size.of(0), rest) if own.reverse else (most, whole))
        return m.slice(x, 0, *bounds)

    def outer(*given: Value) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        last, stacked = inner(given[: len(own.inits)], given[len(own.inits) :], each)
        return tuple(last), tuple(stacked)

    pieces = [m.reshape(part(x, True), [Size.of(count), each, *m.sizes_of(x)[1:]]) for x in own.xs]
    last, stacked = m.scan(
        outer, tuple(own.inits), tuple(pieces), length=None if pieces else count, reverse=own.reverse
    )
    joined_up = [m.reshape(x, [most, *m.sizes_of(x)[2:]]) for x in stacked]
    if rest == Size.of(0):
        return [*last, *joined_up]
    last, left = inner(last, [part(x, False) for x in own.xs], rest)
    both = [[b, a] if own.reverse else [a, b] for a, b in zip(joined_up, left, strict=True)]
    return [*last, *(m.concat(pair, 0) for pair in both)]


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
    own = Scan.of(at.op, inits, xs, captures, length, reverse)
    of_inits, of_xs, of_captures = ([t is not None for t in tangents] for tangents in at.tangents)
    active = own.carried(of_captures, of_xs, of_inits)
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
        last, stacked = own.run(m, step, [*inits, *begin], sequences)
    m.replace_results(at.op, [*last[: len(inits)], *stacked[: own.stacked]])
    tangents, of_each = iter(last[len(inits) :]), iter(stacked[own.stacked :])
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
    body = Scan(block, inits, (), captures, 0, None, False)
    active = body.carried(of_captures, (), of_inits)
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
    given = joined(m, zip(inputs, at.tangents, strict=True))
    return tuple(push_forward(m, ops, given, [m._resolve(x) for x in values]))
