# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What operations are made of: importing this package fills `mir.registry.COMPOSITIONS`, family by family."""

from rlx_mlir.hir.compositions import attention, elementwise, encoder, fused, images, linear, norms, splats

__all__ = ["attention", "elementwise", "encoder", "fused", "images", "linear", "norms", "splats"]
