# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `mir-raise-blocks`: what a graph has written out becomes the operation that it is."""

from __future__ import annotations

from rlx_mlir import ir
from rlx_mlir.lowering.raising import attention, functions, norms, rotations, softmax, views
from rlx_mlir.lowering.raising.matching import Raising
from rlx_mlir.rewriting import apply_patterns, compiler_pass, erase_dead

__all__ = ["raise_blocks"]


@compiler_pass("mir-raise-blocks", dependent=("mir",))
def raise_blocks(module: ir.Operation) -> None:
    """Raise attention, norms, rotations and functions that are written out to the operations that have kernels.

    Their readers find them whole: weights are packed, heads aren't transposed, masks that follow from positions aren't
    read. What looks like one of them, but isn't, is a miss in the fusion report, with the reason.
    """
    # What one step leaves behind reads nothing any more when the next asks who reads a value.
    for families in ((views, functions, softmax), (views, norms, rotations), (views, attention)):
        raising = Raising(module)
        for family in families:
            family.add_patterns(raising)
        apply_patterns(module, raising.patterns)
        erase_dead(module)
