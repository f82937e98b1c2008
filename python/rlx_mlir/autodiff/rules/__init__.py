# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rules of differentiation and batching: importing this package registers them, family by family."""

from __future__ import annotations

from rlx_mlir.autodiff.rules import (
    attention,
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
    training,
)

__all__ = [
    "attention",
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
    "training",
]
