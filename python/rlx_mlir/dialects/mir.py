# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations and enumerations of the MIR dialect: tensor primitives."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir import ir
from rlx_mlir.dialects._mir_enum_gen import *  # noqa: F403
from rlx_mlir.dialects._mir_ops_gen import *  # noqa: F403


def reshape(x: ir.Value, new_shape: Sequence[int]) -> ir.Value:
    """`mir.reshape` to sizes that are numbers, or those of `x`."""
    return ReshapeOp(x, list(new_shape), []).result  # noqa: F405
