# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions whose weights lie output by output: against numpy, for any cut of the units and sizes of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cpu_harness import TARGETS, compiled
from test_cpu_conv2d import counts, expected

from rlx_mlir.codegen.cpu.conv2d import OUTPUTS
from rlx_mlir.codegen.cpu.conv2d_panels import DEPTH, PLACES, emit_conv2d_panels
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.program import IDENTITY, Argument, Program, Step
from rlx_mlir.codegen.specs import Conv2dSpec

#: Sizes of the image and of the kernels [Co, Ci / groups, kH, kW], then stride, padding, dilation and groups.
CASES: dict[str, tuple[Any, ...]] = {
    "3 x 3": ((2, 5, 9, 14), (32, 5, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "three panels": ((1, 5, 9, 13), (48, 5, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "strided": ((2, 3, 19, 37), (16, 3, 7, 7), (2, 2), (3, 3), (1, 1), 1),
    "apart": ((1, 4, 11, 40), (16, 4, 2, 3), (3, 3), (0, 2), (2, 3), 1),
    "groups": ((2, 8, 6, 7), (64, 4, 3, 2), (1, 2), (2, 0), (1, 1), 2),
    "one pixel": ((1, 9, 7, 9), (32, 9, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    "long": ((1, DEPTH // 9 + 9, 5, 5), (16, DEPTH // 9 + 9, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "odd blocks": ((1, DEPTH // 3 + 5, 1, 5), (16, DEPTH // 3 + 5, 1, 3), (1, 1), (0, 1), (1, 1), 1),
    "a part of a row": ((1, 8, 3, PLACES + 9), (OUTPUTS + 16, 8, 1, 3), (1, 1), (0, 1), (1, 1), 1),
    "all border": ((1, 4, 1, 1), (16, 4, 3, 3), (1, 1), (4, 4), (1, 1), 1),
    "no place": ((1, 4, 2, 9), (16, 4, 3, 3), (1, 1), (0, 0), (1, 1), 1),
}

#: relu(sum * factor + shift + residual) * 0.5, with numbers for each output, of each place, and one.
AFTER = Program(
    (
        Step("mul", (("acc", 0), ("arg", 0))),
        Step("add", (("step", 0), ("arg", 1))),
        Step("add", (("step", 1), ("arg", 2))),
        Step("relu", (("step", 2),)),
        Step("mul", (("step", 3), ("arg", 3))),
    ),
    (Argument("column"), Argument("column"), Argument("full"), Argument("scalar")),
)


def run(bits: int, case: Sequence[Any], cuts: Any = None, *, after: bool = False, dynamic: bool = False) -> Any:
    shape, kernels, *attributes, groups = case
    rng = np.random.default_rng(0)
    result = (shape[0], kernels[0], *counts(case))
    vector, one = (kernels[0], 1, 1), ()
    shapes = (shape, kernels, *((vector, (1, *vector), result, one) if after else ()))
    values = [rng.standard_normal(own).astype(np.float32) for own in shapes]
    types = [(None, own[1], None, None) if dynamic else own for own in (shape, result)]
    kinds = (vector, (1, *vector), types[1], one) if after else ()
    spec = Conv2dSpec(
        memref(types[0], "f32"),
        memref(kernels, "f32"),
        memref(types[1], "f32"),
        *attributes,
        groups,
        tuple(range(len(values))),
        AFTER if after else IDENTITY,
        tuple(memref(own, "f32") for own in kinds),
        in_panels=True,
    )
    kernel = compiled("conv", emit_conv2d_panels("conv", spec, TARGETS[bits]))
    x, weight, *others = values
    panels = np.ascontiguousarray(weight.reshape(kernels[0] // 16, 16, -1).transpose(0, 2, 1))
    found = kernel([x, panels, *others], [np.empty(result, np.float32)], cuts)[0]
    want = expected(x, weight, case)
    if after:
        factor, shift, residual, last = (own.astype(np.float64) for own in others)
        want = np.maximum(want * factor + shift + residual, 0) * last
    return found, want


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("case", CASES)
@pytest.mark.quick(9)
def test_template(bits, case):
    own = CASES[case]
    tolerance = 2e-5 * np.sqrt(np.prod(own[1][1:]))
    for after in (False, True):
        found, want = run(bits, own, after=after, dynamic=case == "no place")
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=tolerance)
        again, _ = run(bits, own, range(20), after=after, dynamic=True)
        assert again.tobytes() == found.tobytes()
