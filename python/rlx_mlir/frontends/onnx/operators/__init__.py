# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators by family: importing this package fills the tables."""

from . import (
    attention,
    contrib,
    control,
    convolutions,
    elementwise,
    folds,
    images,
    indexing,
    norms,
    pooling,
    products,
    quantisation,
    recurrent,
    reductions,
    resizing,
    sequences,
    shapes,
    spectra,
)

__all__ = [
    "attention",
    "contrib",
    "control",
    "convolutions",
    "elementwise",
    "folds",
    "images",
    "indexing",
    "norms",
    "pooling",
    "products",
    "quantisation",
    "recurrent",
    "reductions",
    "resizing",
    "sequences",
    "shapes",
    "spectra",
]
