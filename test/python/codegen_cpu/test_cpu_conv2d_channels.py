# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions with few products for each pixel: against numpy, for any cut of the units and sizes of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cpu_harness import TARGETS, compiled
from test_cpu_conv2d import DTYPES, counts, expected

from rlx_mlir.codegen.cpu.conv2d_channels import PLACES, emit_conv2d_channels
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.program import Argument, Program, Step
from rlx_mlir.codegen.specs import Conv2dSpec

#: Sizes of the image and of the kernels [Co, Ci / groups, kH, kW], then stride, padding, dilation and groups.
CASES: dict[str, tuple[Any, ...]] = {
    "a channel each": ((2, 5, 9, 14), (5, 1, 3, 3), (1, 1), (1, 1), (1, 1), 5),
    "two outputs": ((1, 5, 9, 33), (10, 1, 3, 3), (2, 2), (1, 1), (1, 1), 5),
    "apart": ((1, 4, 11, 40), (2, 2, 2, 3), (3, 3), (0, 2), (2, 3), 2),
    "far apart": ((1, 2, 3, 40), (2, 1, 1, 3), (1, 5), (0, 2), (1, 1), 2),
    "loops": ((1, 3, 8, 37), (3, 3, 7, 7), (1, 1), (3, 3), (1, 1), 1),
    "one tap": ((1, 2, 3, 17), (4, 1, 1, 1), (1, 1), (0, 0), (1, 1), 2),
    "a part of a row": ((1, 2, 3, PLACES + 40), (2, 1, 2, 3), (1, 1), (0, 6), (1, 2), 2),
    "all border": ((1, 4, 1, 1), (4, 1, 3, 3), (1, 1), (4, 4), (1, 1), 4),
}

#: sum * factor + residual, with numbers for each output and of each place.
AFTER = Program(
    (Step("mul", (("acc", 0), ("arg", 0))), Step("add", (("step", 0), ("arg", 1)))),
    (Argument("column"), Argument("full")),
)


def run(bits: int, word: str, case: Sequence[Any], cuts: Any = None, *, dynamic: bool = False) -> Any:
    shape, kernels, *attributes, groups = case
    rng = np.random.default_rng(0)
    result, vector = (shape[0], kernels[0], *counts(case)), (1, kernels[0], 1, 1)
    values = [rng.standard_normal(own).astype(DTYPES[word]) for own in (shape, kernels, vector, result)]
    types = [(None, own[1], None, None) if dynamic else own for own in (shape, result)]
    given = [memref(own, word) for own in (types[0], kernels, types[1])]
    arguments = tuple(memref(own, word) for own in (vector, types[1]))
    spec = Conv2dSpec(*given, *attributes, groups, (0, 1, 2, 3), AFTER, arguments)
    kernel = compiled("conv", emit_conv2d_channels("conv", spec, TARGETS[bits]))
    found = kernel(values, [np.empty(result, DTYPES[word])], cuts)[0]
    x, weight, factor, residual = values
    return found, expected(x, weight, case) * factor.astype(np.float64) + residual.astype(np.float64)


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("word", DTYPES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.quick(9)
def test_template(bits, word, case):
    own = CASES[case]
    found, want = run(bits, word, own)
    tolerance = {"f32": 2e-5, "f16": 2**-10, "bf16": 2**-7}[word]
    np.testing.assert_allclose(found.astype(np.float64), want, rtol=tolerance, atol=tolerance * 4)
    again, _ = run(bits, word, own, range(20), dynamic=True)
    assert again.tobytes() == found.tobytes()
