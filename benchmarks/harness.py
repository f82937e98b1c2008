# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the benchmarks share: interleaved runs of several implementations, medians, and their spread."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata

# Some machines pin OpenBLAS to an old kernel, which would make numpy look slow.
for variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(variable, None)

#: A spread (interquartile range over median) above which a figure says nothing.
NOISY = 0.25


@dataclass
class Series:
    """Measurements of one implementation, in one unit."""

    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """Interquartile range over the median."""
        if len(self.values) < 4:
            return (max(self.values) - min(self.values)) / self.median
        low, _, high = statistics.quantiles(self.values, n=4)
        return (high - low) / self.median


def interleave(implementations: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Series]:
    """Runs every implementation once, unmeasured, then all of them in turn, `rounds` times: A B A B…

    Each implementation returns its own figure (seconds, tokens per second), so that set-up doesn't count.
    """
    series = {name: Series() for name in implementations}
    for run in implementations.values():
        run()
    for _ in range(rounds):
        for name, run in implementations.items():
            series[name].values.append(run())
    return series


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Installed versions, and what machine this is."""
    found = {"python": platform.python_version(), "machine": platform.machine(), "cpus": str(os.cpu_count())}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def report(title: str, rows: Sequence[Mapping[str, object]], about: Mapping[str, str], as_json: bool) -> None:
    """Prints rows as a table, or everything as one JSON object."""
    if as_json:
        print(json.dumps({"title": title, "about": about, "rows": rows}, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(", ".join(f"{name} {version}" for name, version in about.items()))
    table = Table(title=title)
    for column in rows[0]:
        table.add_column(column, justify="left" if column == "what" else "right")
    for row in rows:
        table.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()))
    console.print(table)


def ratio_row(what: str, ours: Series, rival: Series, *, higher_is_better: bool = True) -> dict[str, object]:
    """One row: both medians with their spreads, and how many times better ours is."""
    ratio = ours.median / rival.median if higher_is_better else rival.median / ours.median
    noisy = max(ours.spread, rival.spread) > NOISY
    return {
        "what": what,
        "ours": ours.median,
        "spread": f"{ours.spread:.0%}",
        "rival": rival.median,
        "rival spread": f"{rival.spread:.0%}",
        "ratio": f"{ratio:.2f}x" + (" (noisy)" if noisy else ""),
    }
