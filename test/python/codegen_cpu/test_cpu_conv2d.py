# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The template of convolutions of images: against numpy, for any cut of the units and sizes of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cpu_harness import TARGETS, compiled

from rlx_mlir import GraphModule, compile
from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.conv2d import DEPTH, OUTPUTS, PLACES, emit_conv2d
from rlx_mlir.codegen.cpu.conv2d_channels import emit_conv2d_channels
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs import Conv2dSpec

DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}

#: Sizes of the image and of the kernels [Co, Ci / groups, kH, kW], then stride, padding, dilation and groups.
CASES: dict[str, tuple[Any, ...]] = {
    "3 x 3": ((1, 5, 9, 14), (13, 5, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "strided": ((2, 3, 19, 37), (16, 3, 7, 7), (2, 2), (3, 3), (1, 1), 1),
    "apart": ((1, 4, 11, 40), (7, 4, 2, 3), (3, 3), (0, 2), (2, 3), 1),
    "groups": ((2, 8, 6, 7), (18, 4, 3, 2), (1, 2), (2, 0), (1, 1), 2),
    "long": ((1, DEPTH // 9 + 9, 5, 5), (6, DEPTH // 9 + 9, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "many": ((1, 8, 3, PLACES + 9), (OUTPUTS + 5, 8, 1, 3), (1, 1), (0, 1), (1, 1), 1),
    "all border": ((1, 4, 1, 1), (8, 4, 3, 3), (1, 1), (4, 4), (1, 1), 1),
    "no place": ((1, 4, 2, 9), (8, 4, 3, 3), (1, 1), (0, 0), (1, 1), 1),
}


def counts(case: Sequence[Any]) -> list[int]:
    (_, _, *image), (_, _, *kernel), stride, padding, dilation, _ = case
    sides = zip(image, kernel, stride, padding, dilation, strict=True)
    return [(size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, s, p, d in sides]


def expected(x: np.ndarray, weight: np.ndarray, case: Sequence[Any]) -> np.ndarray:
    """One product for each place and group, in f64."""
    _, (outputs, _, *kernel), stride, padding, dilation, groups = case
    around = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *((p, p) for p in padding)])
    rows = weight.astype(np.float64).reshape(groups, outputs // groups, -1)
    result = np.zeros((len(x), outputs, *counts(case)))
    for i, j in np.ndindex(*result.shape[2:]):
        seen = [
            slice(at * s, at * s + d * (k - 1) + 1, d)
            for at, s, d, k in zip((i, j), stride, dilation, kernel, strict=True)
        ]
        own = around[:, :, seen[0], seen[1]].reshape(len(x), groups, rows.shape[2])
        result[:, :, i, j] = np.einsum("gok,ngk->ngo", rows, own).reshape(len(x), outputs)
    return result


def run(bits: int, word: str, case: Sequence[Any], cuts: Any = None, *, dynamic: bool = False) -> Any:
    shape, kernels, *attributes, groups = case
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(own).astype(DTYPES[word]) for own in (shape, kernels))
    result = (shape[0], kernels[0], *counts(case))
    types = [(None, own[1], None, None) if dynamic else own for own in (shape, result)]
    spec = Conv2dSpec(
        memref(types[0], word), memref(kernels, word), memref(types[1], word), *attributes, groups, (0, 1)
    )
    kernel = compiled("conv", emit_conv2d("conv", spec, TARGETS[bits]))
    return x, weight, kernel([x, weight], [np.empty(result, x.dtype)], cuts)[0]


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("word", DTYPES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.quick(9)
def test_template(bits, word, case):
    own = CASES[case]
    x, weight, found = run(bits, word, own, dynamic=case == "no place")
    want = expected(x, weight, own)
    tolerance = {"f32": 2e-5, "f16": 2**-11, "bf16": 2**-8}[word]
    np.testing.assert_allclose(found.astype(np.float64), want, rtol=tolerance, atol=2e-5 * np.sqrt(weight[0].size))
    again = run(bits, word, own, range(20), dynamic=True)[2]
    assert again.tobytes() == found.tobytes()


def test_what_has_no_template():
    for x, weight, groups, message in (
        ("memref<1x8x9x9xf64>", "memref<8x8x3x3xf64>", 1, "of f64"),
        ("memref<1x?x9x9xf32>", "memref<8x?x3x3xf32>", 1, "static kernels"),
        ("memref<1x0x9x9xf32>", "memref<8x0x3x3xf32>", 1, "no empty operand"),
    ):
        spec = Conv2dSpec(x, weight, "memref<1x8x7x7xf32>", (1, 1), (0, 0), (1, 1), groups, (0, 1))
        for emit in (emit_conv2d, emit_conv2d_channels):
            with pytest.raises(UnsupportedByTemplate, match=message):
                emit("conv", spec, next(iter(TARGETS.values())))


def test_threads_and_sizes():
    m = GraphModule.mir("m")
    x, w = m.input("x", ["n", 3, "h", "w"]), m.param("k", [8, 3, 3, 3])
    m.set_outputs({"y": m.conv2d(x, w, padding=1)})
    own = [compile(m, threads=threads, maxima={"n": 2, "h": 40, "w": 40}) for threads in (1, 2)]
    assert list(own[0].artifact.templates.values()) == ["conv2d"]
    kernels = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32)
    for executable in own:
        executable.set_params({"k": kernels})
    for size in ((1, 8, 8), (2, 33, 22), (1, 1, 40), (0, 8, 8), (1, 0, 8)):
        image = np.random.default_rng(1).standard_normal((size[0], 3, *size[1:])).astype(np.float32)
        found = [executable.run({"x": image})["y"] for executable in own]
        case = (image.shape, kernels.shape, (1, 1), (1, 1), (1, 1), 1)
        np.testing.assert_allclose(found[0], expected(image, kernels, case), atol=1e-4)
        assert found[0].tobytes() == found[1].tobytes()
