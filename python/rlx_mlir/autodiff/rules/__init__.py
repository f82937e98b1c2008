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
    custom,
    elementwise,
    images,
    indexing,
    norms,
    packed,
    products,
    recurrences,
    reductions,
    shape,
    spectra,
    splats,
    training,
)

__all__ = [
    "attention",
    "batch_control",
    "batch_custom",
    "batch_images",
    "batch_products",
    "batch_rows",
    "batch_sequences",
    "batch_shapes",
    "control",
    "custom",
    "elementwise",
    "images",
    "indexing",
    "norms",
    "packed",
    "products",
    "recurrences",
    "reductions",
    "shape",
    "spectra",
    "splats",
    "training",
]
