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
    """The parts of a scale and of a minimum are infinities that would cancel, where formats have both.

    In both templates that there are.
    """
    rng = np.random.default_rng(rows)
    k, n = 512, 48
    m = rlx.GraphModule.mir("product")
    x, w = m.input("x", [rows, k]), m.param("w", [n, k], packed=name)
    m.set_outputs({"y": m.primitives.dequant_matmul(x, w)})
    weight = formats.encode(name, rng.standard_normal((n, k)).astype(np.float32))
    given = rng.standard_normal((rows, k)).astype(np.float32)
    broken = given.copy()
    broken[0, 5] = -np.inf
    if rows > 2:
        broken[2, 7] = np.nan
    expected = rlx.interpret(m, {"x": broken, "w": weight})["y"]
    others = [row for row in range(rows) if row not in (0, 2)]
    for disabled in ((), ("gemm_digits",)):
        executable = rlx.compile(m, cache=False, disable_templates=disabled)
        executable.set_params({"w": weight})
        finite, found = np.array(executable(x=given)), np.array(executable(x=broken))
        assert np.array_equal(np.isnan(found), np.isnan(expected))
        assert np.array_equal(np.isinf(found) * np.sign(found), np.isinf(expected) * np.sign(expected), equal_nan=True)
        assert np.array_equal(found[others], finite[others]), "rows beside it keep their bits"
