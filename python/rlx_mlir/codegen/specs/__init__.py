# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels compute, without how: the descriptions that generators of every target read."""

from rlx_mlir.codegen.specs.attention import AttentionSpec, CacheSpec
from rlx_mlir.codegen.specs.products import ProductSpec, QuantizeSpec
from rlx_mlir.codegen.specs.sequence import ConvSpec, RecurrenceSpec, StateSpaceSpec
from rlx_mlir.codegen.specs.tensors import (
    BroadcastSpec,
    BroadcastStep,
    CallSpec,
    Conv2dSpec,
    FftPart,
    FftSpec,
    GatherSpec,
    GroupedSpec,
    GroupNormSpec,
    LossSpec,
    MoveSpec,
    NormSpec,
    PackedGroupedSpec,
    PoolSpec,
    QMatmulSpec,
    ReduceSpec,
    SampleSpec,
    ScanSpec,
    SolveSpec,
    TopKSpec,
)

__all__ = [
    "AttentionSpec",
    "BroadcastSpec",
    "BroadcastStep",
    "CacheSpec",
    "CallSpec",
    "Conv2dSpec",
    "ConvSpec",
    "FftPart",
    "FftSpec",
    "GatherSpec",
    "GroupNormSpec",
    "GroupedSpec",
    "PackedGroupedSpec",
    "PoolSpec",
    "LossSpec",
    "MoveSpec",
    "NormSpec",
    "ProductSpec",
    "QMatmulSpec",
    "QuantizeSpec",
    "RecurrenceSpec",
    "ReduceSpec",
    "SampleSpec",
    "ScanSpec",
    "SolveSpec",
    "StateSpaceSpec",
    "TopKSpec",
]
