# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrite patterns in Python, and the driver that applies them.

A pattern is a function of an operation and a `Rewriter`. It either rewrites, or changes nothing and returns
`rewriter.no_match(reason)`. New operations go before the matched one, with its location, which carries the
block's name and the Python line that built it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rlx_mlir import ir
from rlx_mlir.errors import RlxError
from rlx_mlir.locations import describe_location, describe_operation
from rlx_mlir.rewriting.recording import Miss, Recorder, Rewrite, RewriteReport, record, recorder_of, remarking


class RewriteError(RlxError):
    """A pattern raised, or patterns didn't come to an end."""


@dataclass(frozen=True)
class Pattern:
    """A function that rewrites operations of one kind."""

    root: str
    rewrite: Callable[[ir.AnyOp, Rewriter], None]
    tags: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.rewrite.__name__


class PatternSet:
    """Patterns by the name of the operation that they match, in the order in which they were added."""

    def __init__(self) -> None:
        self._patterns: list[Pattern] = []

    def pattern(self, root: type[ir.OpView] | str, *tags: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Adds a function as a pattern; `tags` say for which options of its pass it is meant, none for all."""
        name = root if isinstance(root, str) else root.OPERATION_NAME

        def add(rewrite: Callable[..., None]) -> Callable[..., None]:
            self._patterns.append(Pattern(name, rewrite, frozenset(tags)))
            return rewrite

        return add

    def select(self, *tags: str) -> list[Pattern]:
        """The patterns without tags and those with one of `tags`."""
        return [p for p in self._patterns if not p.tags or p.tags & set(tags)]

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self._patterns)


class Rewriter:
    """The only way in which patterns change IR: the driver needs to know what is gone."""

    def __init__(self, report: RewriteReport, recorder: Recorder | None = None) -> None:
        self._report = report
        self._recorder = recorder
        self._erased: set[int] = set()
        self._changed = False
        self._matched_erased = False
        self._pattern = ""
        self._op: ir.Operation | None = None
        self._remarks = remarking()
        self._declined: list[tuple[ir.Location, str]] = []
        #: Identities of the operations that were there at the start, and live.
        self._original: set[int] = set()
        self._rewritten: set[tuple[str, str]] = set()

    def replace(self, op: ir.AnyOp, *values: ir.Value | ir.AnyOp) -> None:
        """Replaces every use of the operation's results by the values, in order, and erases it."""
        operation = op.operation
        replacements = [_value(value) for value in values]
        if len(replacements) != len(operation.results):
            raise RewriteError(
                f"'{operation.name}' has {len(operation.results)} results, but {len(replacements)} values replace them"
            )
        for old, new in zip(operation.results, replacements, strict=True):
            old.replace_all_uses_with(new)
        self.erase(operation)

    def erase(self, op: ir.AnyOp) -> None:
        """Erases an operation whose results nothing uses."""
        operation = op.operation
        for result in operation.results:
            if next(iter(result.uses), None) is not None:
                raise RewriteError(f"'{operation.name}' still has uses and can't be erased")
        if operation == self._op and self._matched_erased:
            raise RewriteError(f"'{operation.name}' is erased already")
        # Those inside go with it, and their handles don't know.
        gone = {identity(op) for op in (operation, *operations(operation))}
        self._erased |= gone
        self._original -= gone
        self._changed = True
        if operation == self._op:
            self._matched_erased = True  # It is the insertion point until the pattern returns.
        else:
            operation.erase()

    def changed(self) -> None:
        """Says that the pattern changed the matched operation in place."""
        self._changed = True

    def no_match(self, reason: str, *, hint: str = "") -> None:
        """Says why the pattern declined, and what would make it match; both show in fusion reports."""
        assert self._op is not None
        location = self._op.location
        if identity(self._op) not in self._original and (self._pattern, str(location)) in self._rewritten:
            return  # of what the pattern itself has made there, which nobody asks about
        where = describe_location(location) if self._recorder is not None else ""
        self._report.misses.append(Miss(self._pattern, self._op.name, str(location), reason, where, hint))
        if self._remarks:
            text = f"{self._remarks}: '{self._pattern}' declines '{self._op.name}': {reason}"
            self._declined.append((location, text + (f"; {hint}" if hint else "")))

    def _apply(self, pattern: Pattern, op: ir.Operation) -> bool:
        self._changed, self._matched_erased, self._pattern, self._op = False, False, pattern.name, op
        name, location = op.name, op.location
        try:
            with location, ir.InsertionPoint(op):
                pattern.rewrite(op.opview, self)
        except Exception as error:
            text = str(error) if isinstance(error, RlxError) else f"{type(error).__name__}: {error}"
            raise RewriteError(f"{describe_operation(op)}: pattern '{pattern.name}': {text}") from error
        if self._matched_erased:
            op.erase()
        if self._changed:
            self._report.applied[pattern.name] += 1
            self._rewritten.add((pattern.name, str(location)))
            if self._remarks:
                ir.native.emit_remark(location, f"{self._remarks}: '{self._pattern}' rewrites '{name}'")
            if self._recorder is not None:
                self._report.rewrites.append(Rewrite(pattern.name, name, describe_location(location)))
        return self._changed


def _value(value: ir.Value | ir.AnyOp) -> ir.Value:
    return value if isinstance(value, ir.Value) else value.result


def identity(op: ir.AnyOp) -> int:
    """A number that is this operation's alone while it lives (its hash follows from what it holds, and changes)."""
    return int(ir.native.identity(op.operation))


def operations(root: ir.AnyModule, *, nested: bool = True) -> Iterator[ir.Operation]:
    """The operations inside `root`, in order, each before those in its regions: those that are there at the start."""
    if nested:
        found: list[ir.Operation] = []
        add, go_on = found.append, ir.WalkResult.ADVANCE

        def note(op: ir.Operation) -> ir.WalkResult:
            add(op)
            return go_on

        root.operation.walk(note, ir.WalkOrder.PRE_ORDER)  # in about half the time of loops over regions and blocks
        yield from found[1:]
        return
    for region in root.operation.regions:
        for block in region.blocks:
            for op in block.operations:
                yield op.operation


def apply_patterns(root: ir.AnyModule, patterns: Iterable[Pattern], *, limit: int | None = None) -> RewriteReport:
    """Applies patterns inside `root` until none matches, first pattern first, operations in order.

    Args:
        limit: number of rewrites after which the run is taken to be endless; by default 1000 and 20 for each
            operation that is there at the start.

    Raises:
        RewriteError: a pattern raised; the message names the pattern, the operation and its location. Or the
            limit was reached; the message names the pattern that was applied most often.
    """
    by_root: dict[str, list[Pattern]] = {}
    for pattern in patterns:
        by_root.setdefault(pattern.root, []).append(pattern)
    report = RewriteReport()
    recorder = recorder_of(root)
    if recorder is not None:
        record(recorder, report)
    rewriter = Rewriter(report, recorder)
    started, changed = False, True
    while changed:
        changed = False
        rewriter._erased.clear()
        rewriter._declined.clear()
        report.misses.clear()
        present = list(operations(root))
        # Of operations that no pattern is for, most of a large module, no more than the name is asked.
        snapshot = [(identity(op), op, found) for op in present if (found := by_root.get(op.name))]
        if not started:
            started = True
            rewriter._original.update(number for number, _, _ in snapshot)
        if limit is None:
            limit = 1000 + 20 * len(present)
        for number, op, candidates in snapshot:
            if number in rewriter._erased:
                continue
            if ir.native.is_over():
                raise RewriteError("rewriting was stopped")
            for pattern in candidates:
                if recorder is not None and recorder.budget == 0:
                    return report
                if rewriter._apply(pattern, op):
                    changed = True
                    if recorder is not None:
                        recorder.spend()
                    break
            if report.applied.total() > limit:
                name, count = report.applied.most_common(1)[0]
                raise RewriteError(
                    f"rewriting doesn't end: {report.applied.total()} rewrites exceed the limit of {limit}, "
                    f"{count} of them by pattern '{name}'"
                )
    for location, text in rewriter._declined:
        ir.native.emit_remark(location, text)
    return report


def erase_dead(root: ir.AnyModule, dialects: Iterable[str] = ("mir", "hir")) -> int:
    """Erases operations of the (side-effect free) dialects whose results nothing uses; returns their number.

    Those without results end regions, and stay; what is in an operation that goes goes with it.
    """
    prefixes = tuple(f"{dialect}." for dialect in dialects)
    count = 0
    for op in reversed([op for op in operations(root) if op.name.startswith(prefixes)]):
        if len(op.results) and all(next(iter(result.uses), None) is None for result in op.results):
            op.erase()
            count += 1
    return count
