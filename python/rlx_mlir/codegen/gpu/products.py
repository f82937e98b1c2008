# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products on Hopper by their description: dense weights go to `gemm_hopper`, packed ones to `gemm_hopper_packed`."""

from __future__ import annotations

from dataclasses import replace

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.gemm import ProductSpec
from rlx_mlir.codegen.gpu.gemm_base import Gemm
from rlx_mlir.codegen.gpu.gemm_hopper import gemm_hopper
from rlx_mlir.codegen.gpu.gemm_hopper_packed import FEW_ROWS, gemm_hopper_packed
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.formats.planes import plane_layout
from rlx_mlir.tuning.choices import NOTHING_CHOSEN, Chosen

__all__ = ["emit_product_hopper"]


def emit_product_hopper(
    name: str,
    spec: ProductSpec,
    chip: str,
    *,
    constant_weights: bool = False,
    chosen: Chosen = NOTHING_CHOSEN,
    few_rows: int | None = None,
) -> DeviceKernel:
    """The kernels of a product as `lowering.kernel_specs` reads it; see `gemm_hopper` and `gemm_hopper_packed`.

    Weights in planes are dense where their format is the type of x. Others are multiplied for more than `few_rows`
    rows, by default as many as `gemm_hopper_packed` says.
    """
    if spec.kind in ("matmul", "scaled_matmul"):
        shapes = (spec.x, spec.weight, spec.result)
        gemm = Gemm(name, *shapes, spec.program, spec.order, spec.element, spec.transposed, chosen=chosen)
        return gemm_hopper(replace(gemm, float8=spec.float8), chip, constant_weights=constant_weights)
    if spec.kind != "dequant_matmul" or spec.layout != "planes":
        raise UnsupportedByTemplate(f"{name}: wgmma multiplies floats here, but this is {spec.kind}")
    k, n = spec.x[-1], spec.result[-1]
    if k is None or n is None:
        raise UnsupportedByTemplate(f"{name}: TMA needs rows of known length, but the weight is [{n}, {k}]")
    shapes = (spec.x, (n, k), spec.result)
    gemm = Gemm(name, *shapes, spec.program, spec.order, spec.element, transpose_rhs=True, chosen=chosen)
    if spec.scheme != spec.element:
        few = FEW_ROWS if few_rows is None else few_rows
        return gemm_hopper_packed(gemm, spec.scheme, chip, constant_weights=constant_weights, few_rows=few)
    layout = plane_layout(spec.scheme)
    stride = layout.row_bytes(k) // layout.format.nbytes
    return gemm_hopper(replace(gemm, w_stride=stride), chip, constant_weights=constant_weights)
