# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a lane has of the results of tensor cores: for each 8 columns two neighbours of a row, and two of the row 8
further down. As left operands of 16 columns, two times 8 of them stand in that order, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.codegen.gpu.emit import Value


def row_of(values: Sequence[Value], half: int) -> list[Value]:
    """Those of a lane's first row (0) or of its second (1)."""
    return [x for i, x in enumerate(values) if i // 2 % 2 == half]


def joined(first: Sequence[Value], second: Sequence[Value]) -> list[Value]:
    """What has these rows."""
    return [x for i in range(0, len(first), 2) for row in (first, second) for x in row[i : i + 2]]


def scaled(values: Sequence[Value], factors: Sequence[Value]) -> list[Value]:
    """Each row times a factor of its own."""
    return [x * factors[i // 2 % 2] for i, x in enumerate(values)]
