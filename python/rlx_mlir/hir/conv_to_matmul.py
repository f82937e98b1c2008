# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `mir-conv-to-matmul`: convolutions of many channels become products with matrices of columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.codegen.specs.tensors import FEWEST_OUTPUTS, SHORTEST_SUM
from rlx_mlir.errors import CompileError, RlxError
from rlx_mlir.formats import PANEL_ROWS
from rlx_mlir.hir.compositions.registry import Builders
from rlx_mlir.hir.decompose import decompose_into
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import DEFAULT_MAXIMUM, Size, at_most, parse_maxima, product
from rlx_mlir.rewriting import Option, compiler_pass, operations, report_into
from rlx_mlir.semantics.dims import Dims, is_known, propagate
from rlx_mlir.semantics.function import functions, is_parameter
from rlx_mlir.unsupported import blame

#: So many places fill a tile of registers; products of fewer have more rows, those of other images.
_FEW_PLACES = 7


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
    whose columns would be larger than the image, or whose kernels are parameters that panels have room for: they have
    templates that make none. Of f16 and bf16, whose products
    may run on tiles, and of 8 bits, those stay whose columns are larger than `most`, at the maxima of dynamic sizes, or
    of a size of which nothing is known; of those of 8 bits, whose products have no batches, also those of several
    groups.
    """
    report, declared = report_into(module), parse_maxima(maxima)
    for function in functions(module):
        found = [op for op in operations(function) if op.name in _BUILT]
        dims = propagate(function) if found else {}
        for op in found:
            reason = _reason(op, dims[op.results[0]], most, declared)
            if reason != "":
                if report is not None and reason is not None:
                    report.miss("conv_to_matmul", op, reason)
                continue
            try:
                decompose_into(op, dims, _BUILT[op.name])
            except RlxError as error:
                raise CompileError(blame(op, error)) from error


def _reason(op: ir.Operation, sizes: Dims, most: int, maxima: Mapping[str, int]) -> str | None:
    """Why loops are better for a convolution than a product; '' where they aren't, None where its template is.

    `sizes` are those of the result.
    """
    view = op.opview
    x, weight, result = (ir.RankedTensorType(v.type) for v in (view.x, view.weight, view.result))
    stride, groups = python_value(view.stride), python_value(view.groups)
    if weight.is_dynamic_dim(0) or weight.is_dynamic_dim(1):
        return "the number of channels is dynamic"
    if 0 in (*x.shape, *weight.shape, *result.shape):
        return "an operand is empty"
    if str(x.element_type) == "f64":
        return "products of f64 are loops, too"
    if op.name == "mir.q_conv2d" and groups > 1:
        return "products of 8 bits have no batches, which groups are"
    outputs, *sums = weight.shape
    if math.prod(sums) < SHORTEST_SUM or outputs // groups < FEWEST_OUTPUTS:
        return f"a group has {outputs // groups} outputs, sums of {math.prod(sums)}: too few for a product"
    grows = bool(math.prod(sums[1:]) > math.prod(stride))
    if str(x.element_type) == "f32":
        return None if grows or _has_panels(op, sizes[2:]) else ""
    places = product(sizes[2:])
    if places.constant is None and not grows:
        return ""
    if not is_known(places):
        return "sizes are unknown, and columns would be larger than what they are made of"
    if batch := sizes[0].constant:  # plans hold as many images as there may be, with columns or without
        places *= batch
    size = math.prod(sums) * groups * at_most(places, maxima) * x.element_type.width // 8
    return f"its columns would take {size} bytes, more than {most}" if size > most else ""


def _has_panels(op: ir.Operation, places: Dims) -> bool:
    """Whether a template reads the kernels output by output: of parameters, in whole panels, and of some places."""
    view = op.opview
    per_group = ir.RankedTensorType(view.weight.type).shape[0] // int(python_value(view.groups))
    count = product(places).constant
    few = count is not None and count < _FEW_PLACES
    outside = op.parent is not None and op.parent.name == "func.func"
    return outside and not few and per_group % PANEL_ROWS == 0 and is_parameter(view.weight)


def padded(m: Builders, x: Value, padding: Sequence[int], value: float = 0.0, axes: Sequence[int] = (2, 3)) -> Value:
    """x with a number around two dimensions."""
    for axis, count in zip(axes, padding, strict=True):
        if count:
            border = m.expand(
                m.constant(value, x.dtype), [count if dim == axis else s for dim, s in enumerate(x.shape)]
            )
            x = m.concat([border, x, border], axis)
    return x


def _counts(
    m: Builders,
    spatial: Sequence[int | str],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> list[Size]:
    """How many places a kernel has along each dimension of a padded image."""
    return [
        (m.size(size) - (d * (k - 1) + 1) + s) // s
        for size, k, d, s in zip(spatial, kernel, dilation, stride, strict=True)
    ]


def _seen(
    m: Builders,
    image: Value,
    axes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> list[Value]:
    """What each tap of a kernel sees at its places of a padded image, the dimensions of which are `axes`."""

    def seen(taps: tuple[int, int]) -> Value:
        part = image
        for axis, tap, d, s, k in zip(axes, taps, dilation, stride, kernel, strict=True):
            after = d * (k - 1 - tap)  # of the kernel at its last place; the stride may leave more
            if tap or after or s > 1:
                part = m.slice(part, axis, tap * d, -after or None, s)
        return part

    return [seen((u, v)) for u in range(kernel[0]) for v in range(kernel[1])]


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
    outputs, inputs, *sizes = weight.shape
    kernel = [int(size) for size in sizes]
    own = padded(m, x, padding)
    batch, _, *spatial = own.shape
    counts = _counts(m, spatial, kernel, stride, dilation)
    places = product(counts)
    rows = m.size(inputs) * product(kernel)
    per_group = m.size(outputs) // groups
    if _are_patches(kernel, stride, dilation):
        columns = _patches(m, own, counts, stride)
    else:
        seen = _seen(m, own, (2, 3), kernel, stride, dilation)
        taps = [m.reshape(part, [batch, groups, inputs, 1, places]) for part in seen]
        columns = taps[0] if len(taps) == 1 else m.concat(taps, 3)
    columns = m.reshape(columns, [batch, groups, rows, places])
    result = m.matmul(m.reshape(weight, [groups, per_group, rows]), columns)
    return m.reshape(result, [batch, outputs, *counts])


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


def quantised_by_columns(
    m: Builders,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    x_zp: int = 0,
    w_zp: int = 0,
    out_zp: int = 0,
    mult: float,
) -> Value:
    """What each place sees as a row, times the kernels as columns: channels are last, as outputs of products are.

    No size is 0 for sure, and there is one group.
    """
    outputs, inputs, *sizes = weight.shape
    kernel = [int(size) for size in sizes]
    own = padded(m, m.transpose(x, [0, 2, 3, 1]), padding, x_zp, (1, 2))
    batch, *spatial, _ = own.shape
    counts = _counts(m, spatial, kernel, stride, dilation)
    length = m.size(inputs) * product(kernel)
    taps = _seen(m, own, (1, 2), kernel, stride, dilation)
    rows = m.reshape(taps[0] if len(taps) == 1 else m.concat(taps, 3), [product([m.size(batch), *counts]), length])
    columns = m.reshape(m.transpose(weight, [2, 3, 1, 0]), [length, outputs])
    found = m.q_matmul(rows, columns, bias, x_zp=x_zp, w_zp=w_zp, out_zp=out_zp, mult=mult)
    return m.transpose(m.reshape(found, [batch, *counts, outputs]), [0, 3, 1, 2])


#: What becomes products, and how.
_BUILT: dict[str, Callable[..., Value]] = {"mir.conv": by_columns, "mir.q_conv2d": quantised_by_columns}
