# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What patterns of several nodes are recognised by: the nodes that made tensors, factors, transpositions."""

from __future__ import annotations

import numpy as np

from rlx_mlir.frontends.tensors import Tensor
from rlx_mlir.hir import Value

from .call import Call
from .types import FLOATS


def made_by(call: Call, tensor: Tensor, *ops: str) -> Call | None:
    """The node that made a tensor, where it is of such an operator."""
    found = call.importer.origin(tensor)
    return found if found is not None and found.op in ops and not found.domain else None


def unscaled(call: Call, tensor: Tensor) -> tuple[Tensor, float]:
    """A tensor without a number that it is multiplied with or divided by, and the factor."""
    made = made_by(call, tensor, "Mul", "Div")
    if made is None:
        return tensor, 1.0
    for number in (1, 0) if made.op == "Mul" else (1,):
        by = made.tensor(number).numbers
        if by is not None and by.size == 1 and np.isfinite(by).all() and np.all(by != 0) and by.dtype in FLOATS:
            factor = float(by.reshape(-1)[0])
            return made.tensor(1 - number), factor if made.op == "Mul" else 1 / factor
    return tensor, 1.0


def transposed(call: Call, x: Value, order: list[int]) -> Value:
    """A transposed value; of one that is transposed already, one transposition of its source, or that itself."""
    source = call.importer.turned(x)
    if source is not None:
        x, order = source[0], [source[1][axis] for axis in order]
    if order == sorted(order):
        return x
    y = call.m.transpose(x, order)
    call.importer.turn(y, x, order)
    return y
