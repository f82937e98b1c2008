# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fusion report: which operations were joined, which nearly were, and why not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from rlx_mlir import ir
from rlx_mlir.errors import CompileError
from rlx_mlir.rewriting import Miss, Rewrite, operations, recording, run_pipeline
from rlx_mlir.rewriting.insertion import with_passes
from rlx_mlir.rewriting.steps import clone
from rlx_mlir.rewriting.to_kernels import kernel_steps
from rlx_mlir.runtime.shown import preformatted

#: Places that a line of the report names; the others are counted.
_LISTED = 3
#: The pass that folds constants: it joins nothing, so the report lists what it does by itself.
FOLDING = "mir-fold-constants"
#: The passes that join operations, make what can be joined, or decide in which form products read their operands.
_JOINING = re.compile("mir-(fuse|raise|quantize|pack)-.*|mir-(dot|conv)-to-matmul|mir-outline-kernels")
_DIRECTORY = re.compile(r"\([^()]*/")


@dataclass(frozen=True)
class FusionReport:
    """What the passes that join operations did to a module.

    Attributes:
        name: of the module.
        before, after: number of operations by name.
        fused: (pass, rewrite), in the order in which they were applied; kernels of several operations come last, which
            the pass that makes kernels joins.
        missed: (pass, pattern that looked at an operation and declined).
        folded: operations on constants that became constants.
        kept: operations on constants that stay, with the reason: they are too large, or not exact.
        skipped: passes that weren't run, as `skip_fusion` says.
    """

    name: str
    before: Counter[str]
    after: Counter[str]
    fused: tuple[tuple[str, Rewrite], ...]
    missed: tuple[tuple[str, Miss], ...]
    folded: tuple[Rewrite, ...] = ()
    kept: tuple[Miss, ...] = ()
    skipped: tuple[str, ...] = ()

    def assert_clean(self) -> None:
        """Raises CompileError, which lists them, where a pattern looked at operations and declined to join them."""
        if self.missed:
            raise CompileError(
                f"'{self.name}' has operations that could be joined, but aren't\n" + "\n".join(self._not_fused())
            )

    def to_dict(self) -> dict[str, object]:
        """The report as JSON can write it."""
        return {
            "name": self.name,
            "before": dict(self.before),
            "after": dict(self.after),
            "fused": [{"pass": name, **asdict(rewrite)} for name, rewrite in self.fused],
            "missed": [{"pass": name, **asdict(miss)} for name, miss in self.missed],
            "folded": [asdict(rewrite) for rewrite in self.folded],
            "kept": [asdict(miss) for miss in self.kept],
            "skipped": list(self.skipped),
        }

    def _repr_html_(self) -> str:
        return preformatted(self)

    def __str__(self) -> str:
        lines = [f"fusion report of '{self.name}': {self.before.total()} -> {self.after.total()} operations"]
        if changes := format_changes(self.before, self.after):
            lines.append(f"  {changes}")
        if self.skipped:
            lines.append(f"  skipped: {', '.join(self.skipped)}")
        by_pattern: dict[tuple[str, str], list[str]] = {}
        for name, rewrite in self.fused:
            by_pattern.setdefault((name, rewrite.pattern), []).append(rewrite.where)
        lines += ["", "fused"]
        for (name, pattern), places in by_pattern.items():
            lines.append(f"  {len(places):>4}  {pattern} ({name}): {_listed(places)}")
        if not by_pattern:
            lines.append("  nothing")
        if self.missed:
            lines += ["", "not fused", *self._not_fused()]
        return "\n".join([*lines, *self._constants()])

    def _not_fused(self) -> Iterator[str]:
        """Two lines for each reason."""
        by_pattern: dict[str, list[Miss]] = {}
        for name, miss in self.missed:
            by_pattern.setdefault(f"{miss.pattern} ({name}): ", []).append(miss)
        for title, misses in by_pattern.items():
            yield from _reasons(title, misses)

    def _constants(self) -> Iterator[str]:
        """What folding did, where there was something to fold."""
        if self.folded:
            places: dict[str, list[str]] = {}
            for rewrite in self.folded:
                places.setdefault(rewrite.op, []).append(rewrite.where)
            yield from ("", "folded")
            for op, own in places.items():
                yield f"  {len(own):>4}  {op}: {_listed(own)}"
        if self.kept:
            yield from ("", "not folded", *_reasons("", self.kept))


def _reasons(title: str, misses: Iterable[Miss]) -> Iterator[str]:
    """Two lines for each reason of a pattern."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for miss in misses:
        by_reason.setdefault((miss.reason, miss.hint), []).append(f"{miss.op} {miss.where}")
    for (reason, hint), places in by_reason.items():
        yield f"  {len(places):>4}  {title}{_listed(places)}"
        yield f"        {reason}" + (f" -> {hint}" if hint else "")


def _listed(places: Iterable[str]) -> str:
    known = [_DIRECTORY.sub("(", place).strip() for place in dict.fromkeys(places) if place.strip()]
    more = f" and {len(known) - _LISTED} more places" if len(known) > _LISTED else ""
    return ", ".join(known[:_LISTED]) + more or "places unknown"


def count_operations(module: ir.AnyModule) -> Counter[str]:
    """Operations of the dialects hir and mir in a module, by name."""
    return Counter(op.name for op in operations(module) if op.name.startswith(("hir.", "mir.")))


def format_changes(before: Counter[str], after: Counter[str]) -> str:
    """`mir.add 3 -> 1, mir.matmul +2`, for every number that differs."""
    parts = []
    for name in sorted({*before, *after}):
        if before[name] != after[name]:
            parts.append(f"{name} {before[name]} -> {after[name]}" if before[name] else f"{name} +{after[name]}")
    return ", ".join(parts)


def fusion_report(
    module: ir.Module,
    name: str,
    *,
    policy: str = "direct",
    activations: str = "exact",
    skipped: Sequence[str] = (),
) -> FusionReport:
    """Runs the passes that lead to kernels on a copy, and reports.

    Args:
        module: at stage hir or mir; it is not changed.
        name: of the module.
        policy: how blocks lower.
        activations: as of `compile`.
        skipped: names of passes that aren't run.
    """
    copy = clone(module)
    steps = kernel_steps(activations=activations)
    ((_, fuse),) = with_passes([("mir", steps.fuse)], {}, skipped)
    with recording(copy) as recorder:
        run_pipeline(copy, f"hir-to-mir{{policy={policy}}},{steps.unfused}")
        before = count_operations(copy)
        run_pipeline(copy, fuse)
        after = count_operations(copy)  # without those of packing, which run once
        run_pipeline(copy, steps.outline)
    folding = [report for step, report in recorder.reports if step == FOLDING]
    joining = [(step, report) for step, report in recorder.reports if _JOINING.fullmatch(step)]
    return FusionReport(
        name,
        before,
        after,
        tuple((step, rewrite) for step, report in joining for rewrite in (*report.rewrites, *report.joined)),
        tuple((step, miss) for step, report in joining for miss in report.misses),
        tuple(rewrite for report in folding for rewrite in report.rewrites),
        tuple(miss for report in folding for miss in report.misses),
        tuple(skipped),
    )
