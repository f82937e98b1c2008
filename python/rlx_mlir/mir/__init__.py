# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Everything that Python knows of MIR: importing this package fills the registry, family by family."""

from rlx_mlir.mir import (
    attention,
    complexes,
    control,
    conv,
    custom,
    elementwise,
    fused,
    matmul,
    norms,
    quant,
    quantize,
    recurrence,
    reductions,
    sampling,
    scaled,
    shape,
)
from rlx_mlir.mir.cost import COSTS, Cost, Sizes, cost_of
from rlx_mlir.mir.packed import PackedWeight, Packing, packing
from rlx_mlir.mir.registry import DIM_RULES, PREPARE_ONLY, REFERENCES, TERMINATORS, TO_LINALG, evaluate, result_dims

__all__ = [
    "COSTS",
    "DIM_RULES",
    "PREPARE_ONLY",
    "REFERENCES",
    "TERMINATORS",
    "TO_LINALG",
    "Cost",
    "PackedWeight",
    "Packing",
    "Sizes",
    "attention",
    "complexes",
    "control",
    "conv",
    "cost_of",
    "custom",
    "elementwise",
    "evaluate",
    "fused",
    "matmul",
    "norms",
    "packing",
    "quant",
    "quantize",
    "recurrence",
    "reductions",
    "result_dims",
    "sampling",
    "scaled",
    "shape",
]
