# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the benchmarks share; it is part of the package, where `rlx bench` uses it, too."""

from __future__ import annotations

import os

from rlx_mlir.measure.report import ratio_row, report
from rlx_mlir.measure.timing import NOISY, Series, interleave, seconds_per_call, versions

# Some machines pin OpenBLAS to an old kernel, which would make numpy look slow.
for variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(variable, None)

__all__ = ["NOISY", "Series", "interleave", "ratio_row", "report", "seconds_per_call", "versions"]
