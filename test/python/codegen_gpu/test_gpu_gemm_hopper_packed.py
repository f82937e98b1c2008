# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products by wgmma with packed weights: decoded beforehand, or dense ones whose rows are padded."""

from __future__ import annotations

from typing import Any

import gpu_host
import ml_dtypes
import numpy as np
import pytest
from gpu_emulated import emulate, ptx
from gpu_harness import usage
from test_planes import random_rows

from rlx_mlir import formats
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu import gemm_hopper_packed as packed_module
from rlx_mlir.codegen.gpu.gemm_base import Gemm
from rlx_mlir.codegen.gpu.gemm_hopper_config import TILES, Choice
from rlx_mlir.codegen.gpu.gemm_hopper_packed import FEW_ROWS, gemm_hopper_packed
from rlx_mlir.codegen.gpu.products import emit_product_hopper
from rlx_mlir.codegen.program import IDENTITY, SWIGLU, Argument, Program, Step
from rlx_mlir.codegen.specs import ProductSpec
from rlx_mlir.codegen.specs.products import Sizes

CHIP = "sm_90a"
DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
TOLERANCES = {"bf16": 2.0**-8, "f16": 2.0**-10}
BIAS = Program((Step("add", (("acc", 0), ("arg", 0))),), (Argument("row"),))
#: One of each kind: bits in one to three planes, with and without minima, scales of 16 and 32 elements, floats.
SCHEMES = ("q4_0", "q4_1", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "f32", "f16")


def product(
    x: Sizes, weight: Sizes, result: Sizes, scheme: str, element: str, kind: Any = "dequant_matmul"
) -> ProductSpec:
    """A product as the compiler reads it."""
    return ProductSpec("mm", kind, x, weight, result, IDENTITY, (0, 1), element, scheme=scheme, layout="planes")


def gemm_of(n: int, k: int, program: Program = IDENTITY, element: str = "bf16", m: int | None = None) -> Gemm:
    return Gemm("mm", (m, k), (n, k), (m, n), program, element=element, transpose_rhs=True)


def run(scheme: str, m: int, gemm: Gemm, *, constant: bool) -> None:
    """Runs the kernels on random operands, and compares with numpy in f64."""
    n, k = gemm.n, gemm.k
    assert n is not None
    assert k is not None
    dtype, rng = DTYPES[gemm.element], np.random.default_rng(0)
    x = rng.standard_normal((m, k)).astype(dtype)
    rows = [random_rows(scheme, n, k, seed) for seed in range(gemm.program.accumulators)]
    wide = [formats.decode(scheme, own, k).astype(dtype).astype(np.float64) for own in rows]
    arguments = [rng.standard_normal(n).astype(dtype) for _ in gemm.program.arguments]
    products = [x.astype(np.float64) @ w.T for w in wide]
    magnitude = np.abs(x.astype(np.float64)) @ np.abs(wide[-1]).T
    if gemm.program is SWIGLU:
        with np.errstate(over="ignore"):
            reference = products[0] / (1 + np.exp(-products[0])) * products[1]
        magnitude = magnitude * (1 + np.abs(products[0]))
    else:
        reference = products[0] + (arguments[0].astype(np.float64) if arguments else 0)
    out = np.full((m, n), np.nan, dtype)
    choices = [(None, Choice(TILES[6]))]
    kernel = gemm_hopper_packed(gemm, scheme, CHIP, constant_weights=constant, choices=choices)
    planes = [formats.pack_planes(scheme, own, k) for own in rows]
    emulate(kernel, "mm", CHIP, [x, *planes, *arguments], [out])
    error = np.abs(out.astype(np.float64) - reference)
    assert np.all(error <= TOLERANCES[gemm.element] * np.abs(reference) + 1e-5 * magnitude + 1e-6)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.quick(1)
def test_each_format(scheme):
    run(scheme, 40, gemm_of(72, 256 if scheme.endswith("k") else 96, element="bf16"), constant=True)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("program", [BIAS, SWIGLU], ids=["bias", "swiglu"])
@pytest.mark.quick(1)
def test_what_follows(program, constant):
    run("q4_0", 70, gemm_of(136, 160, program, "f16"), constant=constant)


def test_weights_are_decoded_before_they_are_multiplied():
    kernel = gemm_hopper_packed(gemm_of(4096, 4096, SWIGLU), "q4_k", CHIP, constant_weights=True)
    width = formats.planes_row_bytes("q4_k", 4096)
    sizes = [(1000, 4096), (4096, width), (4096, width), (1000, 4096)]
    first, second, product = gpu_host.launches(kernel, "mm", sizes)
    assert first.kernel == second.kernel == "mm_decode"
    assert first.grid == (4096 * 4096 // 2048, 1, 1)
    assert [launch.parameters[0] for launch in (first, second)] == [gpu_host.Pointer("b1"), gpu_host.Pointer("b2")]
    decoded = [launch.parameters[1] for launch in (first, second)]
    assert decoded == [gpu_host.Pointer("scratch"), gpu_host.Pointer("scratch", 4096 * 4096 * 2)]
    maps = [p for p in product.parameters if isinstance(p, gpu_host.Map)]
    assert [m.address for m in maps] == [gpu_host.Pointer("b0"), *decoded, gpu_host.Pointer("b3")]
    assert gpu_host.scratch_bytes(kernel, "mm", sizes) == 2 * 4096 * 4096 * 2


def test_decoded_weights_are_not_read_ahead():
    """The kernel before writes them, whatever holds for the packed ones."""
    device = gemm_hopper_packed(gemm_of(4096, 4096), "q4_0", CHIP, constant_weights=True).device
    product = device[device.index("@mm_wgmma") :]
    assert product.index("nvvm.griddepcontrol wait") < product.index("nvvm.cp.async.bulk.tensor")
    decode = device[device.index("@mm_decode") :]
    assert decode.index("llvm.load") < decode.index("nvvm.griddepcontrol wait") < decode.index("llvm.store")
    device = gemm_hopper_packed(gemm_of(4096, 4096), "q4_0", CHIP).device
    decode = device[device.index("@mm_decode") :]
    assert decode.index("nvvm.griddepcontrol wait") < decode.index("llvm.load")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.quick(3)
def test_ptxas_takes_the_decoder(scheme):
    kernel = gemm_hopper_packed(gemm_of(4096, 4096), scheme, CHIP, choices=[(None, Choice(TILES[6]))])
    used = usage(ptx(kernel.device, CHIP), CHIP)
    assert used["mm_decode"].spilled == 0
    # Memory bounds it: 1024 threads of a multiprocessor at least.
    assert used["mm_decode"].registers <= 64


def test_few_rows_and_large_weights_are_for_others(monkeypatch):
    with pytest.raises(UnsupportedByTemplate, match=f"pays beyond {FEW_ROWS} rows, but M is 100"):
        gemm_hopper_packed(gemm_of(64, 64, m=100), "q4_0", CHIP)
    monkeypatch.setattr(packed_module, "MOST_BYTES", 8000)
    with pytest.raises(UnsupportedByTemplate, match="decoded weights take 8192 bytes, more than 8000"):
        gemm_hopper_packed(gemm_of(64, 64), "q4_0", CHIP)


@pytest.mark.parametrize("element", ["bf16", "f16"])
@pytest.mark.parametrize("k", [72, 128])
@pytest.mark.quick(2)
def test_dense_weights_in_planes(element, k):
    """Rows of planes are multiples of 16 bytes, which those of other formats needn't be."""
    m, n = 40, 72
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((size, k)).astype(DTYPES[element]) for size in (m, n))
    planes = formats.pack_planes(element, w.view(np.uint8).reshape(n, -1), k)
    out = np.full((m, n), np.nan, DTYPES[element])
    kernel = emit_product_hopper(product((None, k), planes.shape, (None, n), element, element), CHIP)
    assert kernel.schedule == "gemm_hopper"
    emulate(kernel, "mm", CHIP, [x, planes], [out])
    reference = x.astype(np.float64) @ w.astype(np.float64).T
    np.testing.assert_allclose(out.astype(np.float64), reference, rtol=TOLERANCES[element], atol=TOLERANCES[element])


def test_other_products_are_for_other_schedules():
    packed = emit_product_hopper(product((None, 64), (64, 72), (None, 64), "q8_0", "bf16"), CHIP)
    assert packed.schedule == "gemm_hopper_packed"
    with pytest.raises(UnsupportedByTemplate, match="but this is block_dot"):
        emit_product_hopper(product((None, 64), (64, 72), (None, 64), "q8_0", "f32", "block_dot"), CHIP)
    with pytest.raises(UnsupportedByTemplate, match="f16 or bf16 here, but elements are f32"):
        emit_product_hopper(product((None, 64), (64, 72), (None, 64), "q8_0", "f32"), CHIP)
