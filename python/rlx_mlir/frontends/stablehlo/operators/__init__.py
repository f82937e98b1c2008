# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations by family: importing this package fills the tables."""

from . import calls, control, elementwise, indexing, known, products, random, reductions, shapes, sorting, spectra

__all__ = [
    "calls",
    "control",
    "elementwise",
    "indexing",
    "known",
    "products",
    "random",
    "reductions",
    "shapes",
    "sorting",
    "spectra",
]
