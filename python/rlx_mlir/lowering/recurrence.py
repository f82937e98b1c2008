# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `mir-chunk-recurrence`: gated delta rules take many steps at a time where generic code computes them."""

from __future__ import annotations

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.errors import InputError
from rlx_mlir.rewriting import Option, compiler_pass, operations

#: Steps of a chunk by default.
CHUNK = 16


@compiler_pass("mir-chunk-recurrence", options={"chunk": Option("steps of a chunk, at least 1", CHUNK)})
def chunk_recurrence(module: ir.Operation, *, chunk: int) -> None:
    """Compute gated delta rules in chunks of steps, by matrix products; results agree to rounding.

    Sets `chunk` of each `mir.gated_delta_net` that lacks it and may have as many steps. Kernel templates read only
    whether it is 1.
    """
    if chunk < 1:
        raise InputError(f"option 'chunk' expects a number of steps of at least 1, but got {chunk}")
    for op in operations(module):
        if not isinstance(op.opview, mir.GatedDeltaNetOp) or op.opview.chunk is not None:
            continue
        steps = ir.RankedTensorType(op.opview.q.type).shape[1]
        if not 0 <= steps < chunk:
            op.attributes["chunk"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), chunk)
