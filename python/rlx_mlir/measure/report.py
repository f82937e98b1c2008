# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of what scripts measure."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from rlx_mlir.measure.timing import Series, compare


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
    """One row: both medians with their spreads, and how many times better ours is, unless noise hides it."""
    return {
        "what": what,
        "ours": ours.median,
        "spread": f"{ours.spread:.0%}",
        "rival": rival.median,
        "rival spread": f"{rival.spread:.0%}",
        "ratio": str(compare(ours, rival, higher_is_better=higher_is_better)),
    }
