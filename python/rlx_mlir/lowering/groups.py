# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups of operations that become one kernel each, and the kinds of operations that decide what joins a group."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.fuse import BINARY, UNARY, shape_of
from rlx_mlir.mir.functions import named
from rlx_mlir.rewriting import identity

#: Products of matrices, which what follows is fused into.
PRODUCTS = (mir.MatmulOp, mir.ScaledMatmulOp, mir.DequantMatmulOp, mir.BlockDotOp, mir.FusedMatmulBiasActOp)
#: Operations on each element by itself.
POINTWISE = UNARY | BINARY
#: Operations on elements; those that aren't on rows are kernels of class broadcast.
BROADCASTS = POINTWISE | named(lambda record: not record.floats) | {"mir.compare", "mir.where", "mir.cast"}
#: Operations that read and write one row at a time; their other operands are vectors or tables.
ROW_WISE = POINTWISE | {
    f"mir.{word}"
    for word in [
        "rms_norm",
        "layer_norm",
        "softmax",
        "fused_residual_rms_norm",
        "fused_residual_layer_norm",
        "fused_swiglu",
        "rope",
        "narrow",
        "cache_update",
    ]
}
#: A group of rows stops growing here, and one of element-wise operations: the size of generated code stays bounded.
MAX_ROW_OPS, MAX_ELEMENT_OPS = 16, 64


@dataclass
class Group:
    """Operations that become one kernel, in program order."""

    kind: str
    ops: list[ir.AnyOp] = field(default_factory=list)

    @property
    def members(self) -> set[int]:
        return {identity(op) for op in self.ops}


def fits_epilogue(value: ir.Value, result: ir.Value) -> bool:
    """Whether a kernel's epilogue can read the value: of the result's shape, a vector over columns, or one element."""
    own, full = shape_of(value), shape_of(result)
    return own == full or own == full[-1:] or all(size == 1 for size in own)
