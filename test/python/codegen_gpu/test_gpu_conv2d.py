# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for convolutions of images, run by the emulator of PTX."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from compile_harness import compare
from cuda_harness import emulated_device
from gpu_emulated import assembled, emulate, ptx

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.conv2d import LEAST, emit_conv2d
from rlx_mlir.codegen.specs import Conv2dSpec
from rlx_mlir.mir.conv import conv

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
TOLERANCES = {"f32": 1e-5, "f16": 2e-3, "bf16": 2e-2}
Pair = tuple[int, int]


def spec_of(
    weight: tuple[int, ...], groups: int, dtype: str, stride: Pair, padding: Pair, dilation: Pair, image: str = "?x?"
) -> Conv2dSpec:
    kernel = "x".join(map(str, weight))
    x, result = f"memref<?x{weight[1] * groups}x{image}x{dtype}>", f"memref<?x{weight[0]}x{image}x{dtype}>"
    return Conv2dSpec(x, f"memref<{kernel}x{dtype}>", result, stride, padding, dilation, groups, (0, 1))


@pytest.mark.parametrize(
    ("weight", "groups", "dtype", "stride", "padding", "dilation"),
    [
        ((16, 3, 3, 3), 1, "f32", (1, 1), (1, 1), (1, 1)),
        ((40, 5, 1, 1), 1, "bf16", (1, 1), (0, 0), (1, 1)),
        ((70, 4, 2, 3), 1, "f32", (2, 1), (0, 2), (1, 2)),
        ((32, 2, 3, 3), 2, "f16", (1, 2), (2, 1), (2, 1)),
        ((130, 1, 4, 4), 1, "f32", (4, 4), (0, 0), (1, 1)),
    ],
)
@pytest.mark.quick(1)
def test_convolutions(
    weight: tuple[int, ...], groups: int, dtype: str, stride: Pair, padding: Pair, dilation: Pair
) -> None:
    spec = spec_of(weight, groups, dtype, stride, padding, dilation)
    kernel, rng = emit_conv2d("c", spec, "sm_90a"), np.random.default_rng(weight[0])
    w = rng.standard_normal(weight).astype(DTYPES[dtype])
    for n, high, wide in ((0, 8, 8), (1, 5, 6), (2, 9, 13)):
        x = rng.standard_normal((n, weight[1] * groups, high, wide)).astype(DTYPES[dtype])
        wanted = conv(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)
        got = np.full_like(wanted, np.nan)
        stats, _ = emulate(kernel, "c", "sm_90a", [x, w], [got], profile=True)
        own, other = got.astype(np.float64), wanted.astype(np.float64)
        scale = np.abs(other).max(initial=1)
        np.testing.assert_allclose(own, other, rtol=0, atol=TOLERANCES[dtype] * scale)
        assert not stats.bank_conflicts


def test_known_images_are_written_by_vectors() -> None:
    spec = spec_of((32, 3, 3, 3), 1, "f32", (1, 1), (1, 1), (1, 1), "8x12")
    kernel, rng = emit_conv2d("c", spec, "sm_80"), np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 8, 12), (32, 3, 3, 3)))
    wanted = conv(x, w, padding=(1, 1))
    got = np.zeros_like(wanted)
    stats, _ = emulate(kernel, "c", "sm_80", [x, w], [got], profile=True)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    assert not any(own.store for own in stats.uncoalesced)
    assert "st.global.v4" in ptx(kernel.device, "sm_80")


def test_nan_outside_of_a_kernel_has_no_influence() -> None:
    spec = spec_of((16, 1, 3, 3), 1, "f32", (1, 1), (1, 1), (1, 1))
    kernel, x = emit_conv2d("c", spec, "sm_80"), np.ones((1, 1, 6, 6), np.float32)
    x[0, 0, 0, 0] = np.nan
    w = np.ones((16, 1, 3, 3), np.float32)
    wanted = conv(x, w, padding=(1, 1))
    got = np.zeros_like(wanted)
    emulate(kernel, "c", "sm_80", [x, w], [got])
    assert np.isnan(wanted).sum() == 16 * 4
    np.testing.assert_array_equal(got, wanted)


def test_compiled_modules() -> None:
    module = GraphModule.hir("image")
    x, w = module.input("x", ["n", 4, "h", 10]), module.param("w", [24, 4, 3, 3])
    module.set_outputs({"y": module.relu(module.conv2d(x, w, stride=(1, 2), padding=(1, 1)))})
    rng = np.random.default_rng(0)
    params, failures = {"w": rng.standard_normal((24, 4, 3, 3)).astype(np.float32)}, []
    with emulated_device("sm_90a") as cuda:
        executable = rlx.compile(module, target="cuda", chip="sm_90a", cache=False, verify=True)
        assert set(executable.artifact.templates.values()) == {"conv2d", "pointwise"}
        executable.set_params(params)
        for n, h in ((1, 1), (2, 7)):
            inputs = {"x": rng.standard_normal((n, 4, h, 10)).astype(np.float32)}
            failures += compare(interpret(module, {**inputs, **params}), executable.run(inputs), str((n, h)))
        assert not cuda.errors
        del executable
    assert not failures, "\n".join(failures)


def test_what_the_schedule_leaves_out() -> None:
    for weight, groups in (((LEAST - 1, 3, 3, 3), 1), ((4 * LEAST, 3, 3, 3), 8)):
        with pytest.raises(UnsupportedByTemplate, match="tiles of channels don't fit"):
            emit_conv2d("c", spec_of(weight, groups, "f32", (1, 1), (0, 0), (1, 1)), "sm_80")
    with pytest.raises(UnsupportedByTemplate, match="convolutions of f64 have no schedule"):
        emit_conv2d("c", spec_of((16, 3, 3, 3), 1, "f64", (1, 1), (0, 0), (1, 1)), "sm_80")


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.quick(2)
def test_code_has_no_spills(dtype: str, chip: str) -> None:
    kernel = emit_conv2d("c", spec_of((128, 64, 3, 3), 1, dtype, (1, 1), (1, 1), (1, 1)), chip)
    for own in assembled(ptx(kernel.device, chip), chip).values():
        assert own.spills == 0
        assert own.registers <= 128
