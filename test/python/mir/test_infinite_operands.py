# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products with packed weights of activations that aren't finite: as if each weight was decoded first."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_mlir as rlx
from rlx_mlir import formats


@pytest.mark.parametrize("rows", [1, 3, 6])
@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q5_1", "q8_0", "q2_k", "q4_k", "q5_k", "q6_k"])
@pytest.mark.quick(2)
def test_infinities_meet_decoded_weights(name: str, rows: int) -> None:
    """The parts of a scale and of a minimum are infinities that would cancel, where formats have both."""
    rng = np.random.default_rng(rows)
    k, n = 512, 48
    m = rlx.GraphModule.mir("product")
    x, w = m.input("x", [rows, k]), m.param("w", [n, k], packed=name)
    m.set_outputs({"y": m.primitives.dequant_matmul(x, w)})
    executable = rlx.compile(m, cache=False)
    weight = formats.encode(name, rng.standard_normal((n, k)).astype(np.float32))
    executable.set_params({"w": weight})
    given = rng.standard_normal((rows, k)).astype(np.float32)
    finite = np.array(executable(x=given))

    given[0, 5] = -np.inf
    if rows > 2:
        given[2, 7] = np.nan
    found, expected = np.array(executable(x=given)), rlx.interpret(m, {"x": given, "w": weight})["y"]
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    assert np.array_equal(np.isinf(found) * np.sign(found), np.isinf(expected) * np.sign(expected), equal_nan=True)
    others = [row for row in range(rows) if row not in (0, 2)]
    assert np.array_equal(found[others], finite[others]), "rows beside it keep their bits"
