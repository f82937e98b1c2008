# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which schedule a product takes, by what its operands are: portable ones (sm_80 on), and those of Hopper.

Dense weights go to `gemm_mma`, `gemm_fma`, `gemm_float8` and `gemm_hopper`, packed ones to `gemm_quant` and
`gemm_hopper_packed`; weights in planes are dense where their format is the type of x.
"""

from __future__ import annotations

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.gemm_base import Gemm
from rlx_mlir.codegen.gpu.gemm_float8 import gemm_float8
from rlx_mlir.codegen.gpu.gemm_fma import gemm_fma
from rlx_mlir.codegen.gpu.gemm_hopper import gemm_hopper
from rlx_mlir.codegen.gpu.gemm_hopper_packed import FEW_ROWS, gemm_hopper_packed
from rlx_mlir.codegen.gpu.gemm_mma import gemm_mma, gemm_tf32
from rlx_mlir.codegen.gpu.gemm_quant import gemm_block_dot, gemm_decoded
from rlx_mlir.codegen.gpu.kernel import Constants, DeviceKernel
from rlx_mlir.codegen.specs import ProductSpec
from rlx_mlir.formats.planes import plane_layout
from rlx_mlir.tuning.choices import NOTHING_CHOSEN, Chosen


def emit_product(
    spec: ProductSpec, chip: str, constants: Constants = frozenset(), choices: Chosen = NOTHING_CHOSEN
) -> DeviceKernel:
    """The kernels of a product; UnsupportedByTemplate where no portable schedule covers it.

    Args:
        constants: the kernel's operands that are parameters of the model.
        choices: measured ones; products of f32 round their operands to tf32 only where `tf32` is chosen.
    """
    dense = gemm_mma
    if spec.element == "f32":
        dense = gemm_tf32 if choices.take("tf32") else gemm_fma
    if spec.kind == "scaled_matmul":
        return gemm_float8(chip, Gemm.of(spec, constants, choices))
    if spec.kind == "matmul":
        return dense(chip, Gemm.of(spec, constants, choices))
    n, k = spec.result[-1], spec.x[-1]
    if spec.layout != "planes" or k is None or n is None:
        raise UnsupportedByTemplate(
            f"{spec.name}: expects [N, K] weights in planes, but they are {spec.layout} [{n}, {k}]"
        )
    packed = Gemm.of(spec, constants, choices, (n, k))
    if spec.kind == "block_dot":
        return gemm_block_dot(chip, packed, spec.scheme)
    if spec.scheme == spec.element:
        return dense(chip, Gemm.of(spec, constants, choices, (n, k), _stride(spec.scheme, k)))
    return gemm_decoded(chip, packed, spec.scheme)


def emit_product_hopper(
    spec: ProductSpec,
    chip: str,
    *,
    constant_weights: bool = False,
    chosen: Chosen = NOTHING_CHOSEN,
    few_rows: int = FEW_ROWS,
) -> DeviceKernel:
    """The kernels of a product by wgmma; packed weights are multiplied for more than `few_rows` rows."""
    if spec.kind in ("matmul", "scaled_matmul"):
        return gemm_hopper(Gemm.of(spec, chosen=chosen), chip, constant_weights=constant_weights)
    if spec.kind != "dequant_matmul" or spec.layout != "planes":
        raise UnsupportedByTemplate(f"{spec.name}: wgmma multiplies floats here, but this is {spec.kind}")
    n, k = spec.result[-1], spec.x[-1]
    if k is None or n is None:
        raise UnsupportedByTemplate(f"{spec.name}: TMA needs rows of known length, but the weight is [{n}, {k}]")
    if spec.scheme != spec.element:
        gemm = Gemm.of(spec, chosen=chosen, weight=(n, k))
        return gemm_hopper_packed(gemm, spec.scheme, chip, constant_weights=constant_weights, few_rows=few_rows)
    gemm = Gemm.of(spec, chosen=chosen, weight=(n, k), stride=_stride(spec.scheme, k))
    return gemm_hopper(gemm, chip, constant_weights=constant_weights)


def _stride(scheme: str, k: int) -> int:
    """Elements between the rows of a dense weight in planes."""
    layout = plane_layout(scheme)
    return layout.row_bytes(k) // layout.format.nbytes
