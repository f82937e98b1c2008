# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention on GPUs: which schedule serves a problem.

Few queries, whose number is static, are a question of reading keys and values: `attention_decode`. Otherwise tensor
cores multiply where element types, sizes and the chip allow: `attention_hopper`, `attention_mma`. What is left is done
in f32: `attention_f32`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.attention_base import VECTOR_BYTES
from rlx_mlir.codegen.gpu.attention_decode import decode
from rlx_mlir.codegen.gpu.attention_f32 import prefill_f32
from rlx_mlir.codegen.gpu.attention_hopper import prefill_hopper
from rlx_mlir.codegen.gpu.attention_mma import prefill_mma
from rlx_mlir.codegen.gpu.emit import BITS, element_of, shape_of
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, check_counts
from rlx_mlir.codegen.specs.attention import AttentionSpec, check_attention
from rlx_mlir.tuning.choices import NOTHING_CHOSEN, Chosen

FEW_QUERIES = 16
FEW_ROWS = 64
"""Queries, and queries times the query heads of one head of keys, up to which keys are read once for all of them."""
MAX_SIZE = 256
"""Elements of a head, beyond which tiles don't fit."""

Schedule = Callable[..., DeviceKernel]


def gpu_attention(name: str, spec: AttentionSpec, chip: str, choices: Chosen = NOTHING_CHOSEN) -> DeviceKernel:
    """The kernel of an attention for a chip, by measured choices where there are some.

    Raises UnsupportedByTemplate where an element type, rank, size or attribute is outside what schedules cover.
    """
    check_attention(spec, conditions=True)
    size, element = spec.head_dim, element_of(spec.k)
    # Every access is of 16 bytes, of rows of keys as of queries.
    if size * BITS[element] // 8 % VECTOR_BYTES or size > MAX_SIZE:
        step = VECTOR_BYTES * 8 // BITS[element]
        raise UnsupportedByTemplate(
            f"{name}: expects heads of multiples of {step} up to {MAX_SIZE}, but they are of {size}"
        )
    queries, keys = (shape_of(x)[spec.sequence_axis] for x in (spec.q, spec.k))
    check_counts(name, queries, keys)
    if queries is not None and queries <= FEW_QUERIES and queries * spec.group <= FEW_ROWS:
        return decode(name, spec, chip, choices=choices)
    return _first(name, spec, chip, choices, [prefill_hopper, prefill_mma, prefill_f32])


def _first(name: str, spec: AttentionSpec, chip: str, choices: Chosen, schedules: Sequence[Schedule]) -> DeviceKernel:
    """The first of some schedules that covers the problem."""
    *others, last = schedules
    for schedule in others:
        try:
            return schedule(name, spec, chip, choices=choices)
        except UnsupportedByTemplate:
            continue
    return last(name, spec, chip, choices=choices)
