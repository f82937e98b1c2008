# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `mir-conv-to-matmul`: convolutions of many channels become products with matrices of columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.errors import CompileError, RlxError
from rlx_mlir.hir.compositions.registry import Builders
from rlx_mlir.hir.decompose import decompose_into
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import DEFAULT_MAXIMUM, Size, at_most, parse_maxima, product
from rlx_mlir.rewriting import Option, compiler_pass, operations
from rlx_mlir.semantics.dims import Dims, is_known, propagate
from rlx_mlir.semantics.function import functions
from rlx_mlir.unsupported import blame

#: The shortest sums, and the fewest outputs of a group, for which products are worth the columns.
_SHORTEST_SUM, _FEWEST_OUTPUTS = 8, 4


@compiler_pass(
    "mir-conv-to-matmul",
    dependent=("mir",),
    options={
        "most": Option("bytes of columns, of more of which a convolution stays as it is", 1 << 26),
        "maxima": Option(f"declared maxima of dynamic sizes as symbol:size, others are {DEFAULT_MAXIMUM}", ""),
    },
)
def conv_to_matmul(module: ir.Operation, *, most: int, maxima: str) -> None:
    """Replace convolutions by products of their kernels with matrices of columns, where that is faster on CPUs.

    A column is what all kernels see at one place. Convolutions of each channel by itself stay, and so do those of f32
    whose columns would be larger than the image: they have a template that makes none. Of f16 and bf16, whose products
    may run on tiles, those stay whose columns are larger than `most`, at the maxima of dynamic sizes, or of a size of
    which nothing is known.
    """
    declared = parse_maxima(maxima)
    for function in functions(module):
        convolutions = [op for op in operations(function) if op.name == "mir.conv"]
        dims = propagate(function) if convolutions else {}
        for op in [op for op in convolutions if _is_worth_it(op, dims[op.results[0]], most, declared)]:
            try:
                decompose_into(op, dims, by_columns)
            except RlxError as error:
                raise CompileError(blame(op, error)) from error


def _is_worth_it(op: ir.Operation, sizes: Dims, most: int, maxima: Mapping[str, int]) -> bool:
    """Whether products are faster, and the columns small enough; `sizes` are those of the result."""
    view = op.opview
    x, weight, result = (ir.RankedTensorType(v.type) for v in (view.x, view.weight, view.result))
    stride, groups = python_value(view.stride), python_value(view.groups)
    if weight.is_dynamic_dim(0) or weight.is_dynamic_dim(1) or 0 in (*x.shape, *weight.shape, *result.shape):
        return False
    if str(x.element_type) == "f64":  # whose products are loops, too
        return False
    outputs, *sums = weight.shape
    if math.prod(sums) < _SHORTEST_SUM or outputs // groups < _FEWEST_OUTPUTS:
        return False
    small = bool(math.prod(sums[1:]) <= math.prod(stride))  # columns are no larger than what they are made of
    if str(x.element_type) == "f32":
        return small
    places = product(sizes[2:])
    if places.constant is None and small:
        return True
    if not is_known(places):
        return False
    if batch := sizes[0].constant:  # plans hold as many images as there may be, with columns or without
        places *= batch
    columns = math.prod(sums) * groups * at_most(places, maxima)
    return bool(columns * x.element_type.width // 8 <= most)


def padded(m: Builders, x: Value, padding: Sequence[int]) -> Value:
    """x [N, C, H, W] with zeros around its last two dimensions."""
    for axis, count in zip((2, 3), padding, strict=True):
        if count:
            border = m.expand(m.constant(0.0, x.dtype), [count if dim == axis else s for dim, s in enumerate(x.shape)])
            x = m.concat([border, x, border], axis)
    return x


def by_columns(
    m: Builders,
    x: Value,
    weight: Value,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Value:
    """The kernels of each group as rows, times what each of their places sees as columns: one sum, rounded once.

    No size is 0 for sure.
    """
    outputs, inputs, *kernel = weight.shape
    own = padded(m, x, padding)
    batch, _, *spatial = own.shape
    counts = [
        (m.size(size) - (d * (int(k) - 1) + 1) + s) // s
        for size, k, d, s in zip(spatial, kernel, dilation, stride, strict=True)
    ]
    places = product(counts)
    rows = m.size(inputs) * product(kernel)
    per_group = m.size(outputs) // groups

    if _are_patches(kernel, stride, dilation):
        columns = _patches(m, own, counts, stride)
    else:
        taps = [
            m.reshape(_seen(m, own, tap, kernel, stride, dilation), [batch, groups, inputs, 1, places])
            for tap in np.ndindex(*map(int, kernel))
        ]
        columns = taps[0] if len(taps) == 1 else m.concat(taps, 3)
    columns = m.reshape(columns, [batch, groups, rows, places])
    result = m.matmul(m.reshape(weight, [groups, per_group, rows]), columns)
    return m.reshape(result, [batch, outputs, *counts])


def _seen(
    m: Builders,
    x: Value,
    tap: Sequence[int],
    kernel: Sequence[int | str],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Value:
    """What one tap of the kernels sees at each place."""
    for axis, at, k, s, d in zip((2, 3), tap, kernel, stride, dilation, strict=True):
        after = d * (int(k) - 1 - at)  # of the kernel at its last place; the stride may leave more
        if at or after or s > 1:
            x = m.slice(x, axis, at * d, -after or None, s)
    return x


def _are_patches(kernel: Sequence[int | str], stride: Sequence[int], dilation: Sequence[int]) -> bool:
    """Whether places lie side by side: then one transposition makes the columns, however many taps there are."""
    sides = list(zip(kernel, stride, dilation, strict=True))
    return any(k != 1 for k in kernel) and all(k == s and 1 in (k, d) for k, s, d in sides)


def _patches(m: Builders, x: Value, counts: Sequence[Size], side: Sequence[int]) -> Value:
    """The pixels of `counts` patches of x [N, C, H, W], [N, C, *side, *counts]; what is left at the ends isn't read."""
    for axis, count, size in zip((2, 3), counts, side, strict=True):
        if m.size(x.shape[axis]) != count * size:
            x = m.slice(x, axis, 0, count * size)
    batch, channels, _, columns = x.shape
    rows = m.reshape(x, [batch, channels, counts[0], side[0], columns])
    apart = m.reshape(rows, [batch, channels, counts[0], side[0], counts[1], side[1]])
    return m.transpose(apart, [0, 1, 3, 5, 2, 4])
