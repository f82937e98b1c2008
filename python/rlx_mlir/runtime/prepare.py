# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Preparation of parameters: the operations of `@prepare`, in numpy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from rlx_mlir import formats
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.runtime.artifact import Preparation

Array = np.ndarray[Any, Any]


def _repack(weight: Array, *, scheme: str, k: int) -> Array:
    rows = weight.view(np.uint8) if scheme not in ("f32", "f16", "bf16") else weight
    packed = formats.pack_panels(scheme, np.ascontiguousarray(rows).view(np.uint8).reshape(rows.shape[0], -1), k)
    return packed.view(np.int8)


def _narrow(x: Array, *, axis: int, start: int, length: int) -> Array:
    return x[(slice(None),) * axis + (slice(start, start + length),)]


def _reshape(x: Array, *, new_shape: Sequence[int]) -> Array:
    return x.reshape([x.shape[i] if size == -2 else size for i, size in enumerate(new_shape)])


#: What can run when parameters are set; other operations stay in the module.
OPERATIONS: dict[str, Callable[..., Array]] = {
    "concat": lambda *inputs, axis: np.concatenate(inputs, axis=axis),
    "transpose": lambda x, *, permutation: np.transpose(x, permutation),
    "narrow": _narrow,
    "reshape": _reshape,
    "expand": lambda x, *, shape: np.broadcast_to(x, shape),
    "cast": lambda x, *, dtype: x.astype(DTYPES[dtype]),
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "neg": np.negative,
    "repack": _repack,
}


def prepare(
    preparation: Preparation, sources: Mapping[str, Array], shared: MutableMapping[str, Array]
) -> dict[str, Array]:
    """Computes the plan's parameters one after the other, so that no more than one is in work at a time.

    Args:
        preparation: what to compute.
        sources: the caller's parameters by name.
        shared: results by the formula that gives them; known ones are taken from it, new ones added.

    Returns:
        The plan's parameters by name.
    """
    count = len(preparation.sources)

    def formula(index: int) -> str:
        if index < count:
            return json.dumps(preparation.sources[index])
        step = preparation.steps[index - count]
        operands = ",".join(formula(operand) for operand in step.operands)
        return f"{step.op}({operands};{json.dumps(step.attributes, sort_keys=True)})"

    def value(index: int) -> Array:
        if index < count:
            return sources[preparation.sources[index]]
        step = preparation.steps[index - count]
        if step.op not in OPERATIONS:
            raise UnsupportedError(f"'{step.op}' can't run when parameters are set; known are {', '.join(OPERATIONS)}")
        return OPERATIONS[step.op](*(value(operand) for operand in step.operands), **step.attributes)

    def size(index: int) -> int:
        if index < count:
            return sources[preparation.sources[index]].nbytes
        return sum(size(operand) for operand in preparation.steps[index - count].operands)

    results = {}
    # The largest first: what it is made from is in memory beside it, and most other results aren't yet.
    for name, index in sorted(preparation.results, key=lambda result: -size(result[1])):
        key = formula(index)
        if key not in shared:
            with np.errstate(all="ignore"):  # infinities and NaN are values like others
                shared[key] = np.ascontiguousarray(value(index))
        results[name] = shared[key]
    return results
