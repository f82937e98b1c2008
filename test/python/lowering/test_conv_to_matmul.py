# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions that become products on CPUs: against the reference, at sizes and strides that hurt."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx_mlir import GraphModule, compile, interpret

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
TOLERANCES = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-5}

#: Sizes of the image and the kernels [Co, Ci / groups, kH, kW], and attributes.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "pixels": ((2, 8, 5, 7), (16, 8, 1, 1), {}),
    "pixels, strided": ((1, 8, 5, 7), (17, 8, 1, 1), {"stride": (2, 3)}),
    "3 x 3": ((1, 4, 9, 8), (8, 4, 3, 3), {"padding": 1}),
    "strided": ((2, 3, 11, 10), (5, 3, 3, 2), {"padding": (1, 0), "stride": (2, 3)}),
    "dilated": ((1, 2, 12, 13), (4, 2, 3, 3), {"dilation": (2, 3), "padding": (2, 3)}),
    "groups": ((1, 8, 6, 6), (16, 4, 3, 3), {"groups": 2, "padding": 1}),
    "patches": ((2, 6, 9, 11), (8, 3, 2, 3), {"stride": (2, 3), "groups": 2}),
    "rows": ((1, 4, 6, 9), (8, 4, 1, 3), {"stride": (1, 3), "padding": (0, 1), "dilation": (2, 1)}),
    "one place": ((3, 4, 3, 3), (8, 4, 3, 3), {}),
    "wide padding": ((1, 4, 2, 2), (8, 4, 3, 3), {"padding": 4, "stride": 4}),
}


#: Of these columns are larger than the image.
OVERLAPPING = ("3 x 3", "dilated", "groups", "one place")


def check(case: str, dtype: str, *, batch: bool) -> None:
    shape, weight, options = CASES[case]
    m = GraphModule.mir("m")
    x = m.input("x", ["n" if batch else shape[0], *shape[1:]], dtype)
    m.set_outputs({"y": m.relu(m.conv2d(x, m.input("w", weight, dtype), **options))})
    executable = compile(m)
    stays = dtype == "f32" and case in OVERLAPPING
    assert any(("conv2d" if stays else "gemm") in own for own in executable.artifact.templates.values())
    for count in (0, 1, shape[0]) if batch else shape[:1]:
        rng = np.random.default_rng(count)
        run = {
            "x": rng.standard_normal((count, *shape[1:])).astype(DTYPES[dtype]),
            "w": rng.standard_normal(weight).astype(DTYPES[dtype]),
        }
        found, expected = (each["y"].astype(np.float64) for each in (executable.run(run), interpret(m, run)))
        np.testing.assert_allclose(found, expected, atol=TOLERANCES[dtype] * max(1.0, np.abs(expected).max(initial=0)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.quick(9)
def test_convolutions(case, dtype):
    check(case, dtype, batch=dtype == "f32")


def test_patches_of_images_of_any_size():
    m = GraphModule.mir("m")
    x, w = m.input("x", ["n", 3, "h", "w"]), m.param("k", [8, 3, 4, 4])
    m.set_outputs({"y": m.conv2d(x, w, stride=4)})
    executable = compile(m)
    assert set(executable.artifact.templates.values()) & {"gemm_batched", "gemm_dense"}
    kernels = np.random.default_rng(0).standard_normal((8, 3, 4, 4)).astype(np.float32)
    executable.set_params({"k": kernels})
    for size in ((1, 8, 8), (2, 13, 22), (1, 4, 3), (0, 8, 8)):
        image = np.random.default_rng(1).standard_normal((size[0], 3, *size[1:])).astype(np.float32)
        found, expected = executable.run({"x": image})["y"], interpret(m, {"x": image, "k": kernels})["y"]
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=1e-4)


#: Kernels [Co, Ci, kH, kW] and attributes of convolutions one after the other.
CHAINS: dict[str, list[tuple[tuple[int, ...], dict[str, Any]]]] = {
    "strided": [((8, 3, 3, 2), {"stride": (2, 1), "padding": 1}), ((6, 8, 2, 2), {"stride": 2, "padding": 1})],
    "pixels": [((8, 3, 2, 3), {"stride": (1, 2)}), ((6, 8, 1, 1), {"stride": 2})],
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.quick(1)
def test_images_of_any_size(chain):
    m = GraphModule.mir("m")
    y, taps = m.input("x", ["n", 3, "h", "w"], "f16"), {}
    for number, (shape, options) in enumerate(CHAINS[chain]):
        name = f"k{number}"
        taps[name] = np.random.default_rng(number).standard_normal(shape).astype(np.float16)
        y = m.conv2d(y, m.param(name, shape, "f16"), **options)
    m.set_outputs({"y": y})
    executable = compile(m, maxima={"n": 3, "h": 32, "w": 40})
    products = [own for own in executable.artifact.templates.values() if "gemm" in own]
    assert len(products) == len(CHAINS[chain]), executable.artifact.templates
    executable.set_params(taps)
    for size in ((1, 8, 8), (2, 13, 22), (3, 5, 5), (1, 32, 40), (1, 9, 31), (0, 8, 8)):
        image = np.random.default_rng(1).standard_normal((size[0], 3, *size[1:])).astype(np.float16)
        found, expected = executable.run({"x": image})["y"], interpret(m, {"x": image, **taps})["y"]
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max(initial=1))
