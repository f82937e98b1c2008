# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What patterns did to one module: kept for reports, and limited to find the rewrite that breaks something."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rlx_mlir import ir
from rlx_mlir.errors import InputError
from rlx_mlir.locations import describe_location


@dataclass(frozen=True)
class Miss:
    """A pattern that looked at an operation and declined: where, why, and what would help (empty if unknown)."""

    pattern: str
    op: str
    location: str
    reason: str
    where: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Rewrite:
    """A pattern that was applied, and to which operation."""

    pattern: str
    op: str
    where: str


@dataclass
class RewriteReport:
    """What a run of the driver did, or a pass without patterns.

    Attributes:
        applied: how often each pattern was applied.
        misses: what patterns declined.
        rewrites: what they were applied to; only while the module is recorded.
        joined: operations that a kernel joins, in place of a pattern's name; no budget counts these.
    """

    applied: Counter[str] = field(default_factory=Counter)
    misses: list[Miss] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)
    joined: list[Rewrite] = field(default_factory=list)

    def miss(self, pattern: str, op: ir.Operation, reason: str, hint: str = "") -> None:
        """Notes that something looked at an operation and declined."""
        location = op.location
        self.misses.append(Miss(pattern, op.name, str(location), reason, describe_location(location), hint))


@dataclass
class Recorder:
    """What happens to one module.

    Attributes:
        reports: (pass, what its run of the driver did), in order.
        budget: rewrites that may still be done, None for any number; when it is used up, drivers stop quietly.
    """

    reports: list[tuple[str, RewriteReport]] = field(default_factory=list)
    budget: int | None = None

    def spend(self) -> None:
        """Counts a rewrite."""
        if self.budget is not None:
            self.budget -= 1


_recorders: dict[int, Recorder] = {}
_lock = threading.Lock()
_thread = threading.local()


@contextmanager
def recording(module: ir.AnyModule, *, budget: int | None = None) -> Iterator[Recorder]:
    """Records what patterns do to a module, by whatever pass and in whatever thread, until the block ends."""
    recorder = Recorder(budget=budget)
    key = _key(module)
    with _lock:
        previous = _recorders.get(key)
        _recorders[key] = recorder
    try:
        yield recorder
    finally:
        with _lock:
            if previous is None:
                del _recorders[key]
            else:
                _recorders[key] = previous


#: Names of the passes whose patterns are also reported as remarks; None where no pass's are.
_remarks: re.Pattern[str] | None = None
#: The passes that fold and join operations, and those that decide in what form weights and activations are multiplied.
FUSION = "mir-(fold|fuse|quantize|pack)-.*"


def set_remarks(passes: str | None) -> None:
    """Decides for the process whose patterns are reported as remarks of MLIR, each at its operation's place.

    Args:
        passes: a regular expression for the whole name of a pass; None for no pass.

    Raises InputError where it is none.
    """
    global _remarks
    try:
        _remarks = None if passes is None else re.compile(passes)
    except re.error as error:
        raise InputError(f"expects a regular expression for names of passes, but got '{passes}': {error}") from None


def remarking() -> str:
    """The name of the pass that this thread runs, where its patterns are reported as remarks; '' elsewhere."""
    name = getattr(_thread, "name", "")
    return name if _remarks is not None and _remarks.fullmatch(name) else ""


@contextmanager
def running(name: str) -> Iterator[None]:
    """Says that this thread runs the pass of the given name."""
    _thread.name = name
    try:
        yield
    finally:
        _thread.name = ""


def recorder_of(op: ir.AnyModule) -> Recorder | None:
    """The recorder of the module that an operation is in, if there is one."""
    return _recorders.get(_key(op)) if _recorders else None


def record(recorder: Recorder, report: RewriteReport) -> None:
    """Adds what a driver did, under the name of the pass that this thread runs."""
    with _lock:
        recorder.reports.append((getattr(_thread, "name", ""), report))


def report_into(root: ir.AnyModule) -> RewriteReport | None:
    """A report for what the pass that this thread runs does without patterns; None where nobody asks for one."""
    recorder = recorder_of(root)
    if recorder is None:
        return None
    report = RewriteReport()
    record(recorder, report)
    return report


def _key(op: ir.AnyModule) -> int:
    """A number that the outermost operation around `op` has alone while it lives."""
    top = op.operation
    while top.parent is not None:
        top = top.parent.operation
    return int(ir.native.identity(top))
