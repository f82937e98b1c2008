# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gaussian splats: an image is what was prepared, rasterised."""

from __future__ import annotations

from rlx_mlir.attributes import PythonValue
from rlx_mlir.dialects import mir
from rlx_mlir.hir.compositions.registry import Builders, composition
from rlx_mlir.hir.values import Value


@composition(mir.GaussianSplatRenderOp)
def gaussian_splat_render(m: Builders, *operands: Value, radius_scale: float, **attributes: PythonValue) -> Value:
    """rasterize(prepare(..)), and zeros where there is no splat"""
    prepared = m.gaussian_splat_prepare(*operands, radius_scale=radius_scale, **attributes)
    image = m.gaussian_splat_rasterize(prepared, operands[-1], **attributes)
    opacities = operands[3]
    if isinstance(opacities.shape[0], int) and opacities.shape[0]:
        return image
    return m.where(m.gt(m.dim(opacities, 0, "i32"), 0), image, 0.0)
