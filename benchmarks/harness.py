# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the benchmarks share; it is part of the package, where `rlx bench` uses it, too."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rlx_mlir.measure.report import ratio_row, report
from rlx_mlir.measure.timing import NOISY, Series, interleave, seconds_per_call, versions

# Some machines pin OpenBLAS to an old kernel, which would make numpy look slow.
for variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(variable, None)

__all__ = ["NOISY", "Series", "interleave", "ratio_row", "ratios", "report", "seconds_per_call", "versions"]


def ratios(series: Mapping[str, Series]) -> dict[str, object]:
    """Cells of a row: the median of "ours" with its spread; each other's median, and how many times longer it is."""
    own = series["ours"]
    noisy = " noisy" if own.spread > NOISY else ""
    found: dict[str, object] = {"ours": own.median, "spread": f"{own.spread:.0%}{noisy}"}
    for name, other in series.items():
        if name != "ours":
            found |= {name: other.median, f"vs {name}": f"{other.median / own.median:.2f}x"}
    return found
