# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dispatch report: how each kernel of a compiled module got its code, how much of the work it does, and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from rlx_mlir import checks
from rlx_mlir.errors import InputError
from rlx_mlir.runtime.artifact import Artifact, repetitions
from rlx_mlir.runtime.memory import MemoryReport, memory_report
from rlx_mlir.runtime.shown import preformatted
from rlx_mlir.runtime.sizes import evaluate

GENERIC = "generic"


@dataclass(frozen=True)
class KernelRow:
    """A kernel.

    Attributes:
        name: of the kernel.
        kind: its class.
        template: where its code comes from; `generic` where no template covers it.
        reason: why it is generic.
        calls: in the plan.
        work: the part of the module's work that its calls are estimated to be, 0 to 1.
        seconds: of its calls in one run, where the executable was profiled.
    """

    name: str
    kind: str
    template: str
    reason: str
    calls: int
    work: float
    seconds: float | None = None


@dataclass(frozen=True)
class DispatchReport:
    """The kernels of a module, the one with most work first; the sizes that the work was estimated for; its memory."""

    name: str
    sizes: Mapping[str, int]
    kernels: tuple[KernelRow, ...]
    memory: MemoryReport

    def to_dict(self) -> dict[str, object]:
        """The report as JSON can write it."""
        return asdict(self)

    def _repr_html_(self) -> str:
        return preformatted(self)

    def __str__(self) -> str:
        calls = sum(row.calls for row in self.kernels)
        generic = [row for row in self.kernels if row.template == GENERIC]
        sizes = ", ".join(f"{symbol} = {size}" for symbol, size in self.sizes.items())
        lines = [
            f"dispatch report of '{self.name}': {len(self.kernels)} kernels, {calls} calls"
            + (f"; work for {sizes}" if sizes else "")
        ]
        by_template: Counter[str] = Counter()
        for row in self.kernels:
            by_template[row.template] += row.calls
        lines.append(f"  {self.memory}")
        lines.append("  calls by template: " + (", ".join(f"{k} {n}" for k, n in by_template.most_common()) or "none"))
        timed = any(row.seconds is not None for row in self.kernels)
        width = max((len(row.name) for row in self.kernels), default=6)
        wide = max([14, *(len(row.template) for row in self.kernels)])
        lines += ["", f"  {'kernel':<{width}}  {'class':<10} {'template':<{wide}} {'calls':>5} {'work':>6}"]
        if timed:
            lines[-1] += f" {'us':>10}"
        for row in self.kernels:
            text = f"  {row.name:<{width}}  {row.kind:<10} {row.template:<{wide}} {row.calls:>5} {row.work:>6.1%}"
            lines.append(text + (f" {(row.seconds or 0) * 1e6:>10.1f}" if timed else ""))
        if generic:
            lines += ["", "generic kernels"]
            lines += [f"  {row.name}: {row.reason}" for row in generic]
        return "\n".join(lines)


def dispatch_report(
    artifact: Artifact,
    sizes: Mapping[str, int] | None = None,
    seconds: Mapping[str, float] | None = None,
    scratch: int | None = None,
) -> DispatchReport:
    """The report of a compiled module.

    Args:
        artifact: what the compiler made.
        sizes: of symbols, for the estimates of work; their declared maxima by default.
        seconds: of each kernel, where it was measured.
        scratch: bytes that its loaded code needs beside the arena.

    Raises InputError where `sizes` names an unknown symbol.
    """
    known = dict(artifact.symbols)
    given = {} if sizes is None else checks.mapping("sizes", sizes, "a mapping from symbols to sizes")
    for symbol, size in given.items():
        if symbol not in known:
            raise InputError(f"'{artifact.name}' has no symbol '{symbol}', it has {', '.join(known) or 'none'}")
        checks.whole(symbol, size)
    chosen = {**known, **given}
    values = list(chosen.values())
    calls: Counter[int] = Counter()
    work: Counter[int] = Counter()
    for (kernel, _, _, terms), times in zip(artifact.calls, repetitions(artifact, values), strict=True):
        calls[kernel] += 1
        work[kernel] += evaluate(terms, values) * times
    total = work.total() or 1
    rows = []
    for number, name in enumerate(artifact.kernels):
        template, _, reason = artifact.templates.get(name, "").partition(": ")
        rows.append(
            KernelRow(
                name,
                artifact.kinds.get(name, ""),
                template,
                reason.removeprefix(f"{name}: "),
                calls[number],
                work[number] / total,
                None if seconds is None else seconds.get(name, 0.0),
            )
        )
    ranked = tuple(sorted(rows, key=lambda row: -row.work))
    return DispatchReport(artifact.name, chosen, ranked, memory_report(artifact, chosen, scratch))
