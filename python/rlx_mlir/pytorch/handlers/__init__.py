# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What builds each operator of PyTorch: importing this package fills `graph.HANDLERS` and `graph.FOLDERS`."""

from rlx_mlir.pytorch.handlers import (
    algebra,
    arithmetic,
    creation,
    gradients,
    images,
    known,
    layers,
    lookups,
    ordering,
    padding,
    pools,
    reductions,
    resizing,
    shapes,
    spectra,
)

__all__ = [
    "algebra",
    "arithmetic",
    "creation",
    "gradients",
    "images",
    "known",
    "layers",
    "lookups",
    "ordering",
    "padding",
    "pools",
    "reductions",
    "resizing",
    "shapes",
    "spectra",
]
