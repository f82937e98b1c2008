# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rules of differentiation and batching: importing this package registers them, family by family."""

from __future__ import annotations

from rlx_mlir.autodiff.rules import (
    attention,
    batch_control,
    batch_custom,
    batch_images,
    batch_products,
    batch_rows,
    batch_sequences,
    batch_shapes,
    control,
    elementwise,
    indexing,
    norms,
    products,
    reductions,
    shape,
)

__all__ = ["attention", "control", "elementwise", "indexing", "norms", "products", "reductions", "shape"]
__all__ += ["batch_control", "batch_custom", "batch_images", "batch_products", "batch_rows"]
__all__ += ["batch_sequences", "batch_shapes"]
