# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of the accumulators of tensor cores, against PTX's table of them."""

from __future__ import annotations

import pytest

from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Value
from rlx_mlir.codegen.gpu.fragments import joined, row_of, scaled


def accumulators(columns: int) -> list[Value]:
    """Those of lane 0 for 16 rows and so many columns, by row and column: c0, c1 are of row 0, c2, c3 of row 8."""
    places = [(row, 8 * block + e) for block in range(columns // 8) for row in (0, 8) for e in range(2)]
    return [Value(f"%r{row}_{column}", "f32") for row, column in places]


@pytest.mark.parametrize("columns", [0, 8, 24])
def test_rows_are_taken_apart_and_joined(columns: int) -> None:
    values = accumulators(columns)
    rows = [row_of(values, half) for half in range(2)]
    for row, own in zip((0, 8), rows, strict=True):
        assert own == [f"%r{row}_{8 * block + e}" for block in range(columns // 8) for e in range(2)]
    assert joined(*rows) == values


def test_each_row_has_a_factor_of_its_own() -> None:
    em = DeviceEmitter("sm_80")
    factors: list[Value] = []
    with em.kernel("k", [("a", "f32"), ("b", "f32"), ("x", "f32"), ("y", "f32")], 32) as (a, b, x, y):
        factors = [a, b]
        made = scaled([x, x, y, y], factors)
    text = em.text()
    for value, factor in zip(made, (factors[0], factors[0], factors[1], factors[1]), strict=True):
        line = next(line for line in text.splitlines() if line.strip().startswith(f"{value} ="))
        assert factor in line
