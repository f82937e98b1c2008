# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size, product

from .. import attributes
from ..call import Call, is_float
from ..entries import Entry, shape_of
from ..registry import Refused, operator

_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))


@operator("dot_general")
def _dot_general(call: Call) -> Entry:
    dims = call.fields("dot_dimension_numbers")
    lhs, rhs = call.values()
    dtype = call.result_dtype()
    lhs, rhs = _promoted(call, lhs, rhs, dtype)
    contracting = dims.get("lhs_contracting_dimensions", []), dims.get("rhs_contracting_dimensions", [])
    batch = dims.get("lhs_batching_dimensions", []), dims.get("rhs_batching_dimensions", [])
    if not batch[0] and contracting == ([lhs.ndim - 1], [0]) and rhs.ndim == 2 and lhs.ndim >= 2 and is_float(dtype):
        return call.cast(call.m.matmul(lhs, rhs), dtype)
    found = call.m.dot_general(
        lhs,
        rhs,
        lhs_contracting=contracting[0],
        rhs_contracting=contracting[1],
        lhs_batch=batch[0],
        rhs_batch=batch[1],
    )
    return call.cast(found, dtype)


def _promoted(call: Call, lhs: Value, rhs: Value, dtype: np.dtype) -> tuple[Value, Value]:
    """Operands in an element type whose products are those that the result asks for."""
    if lhs.dtype == rhs.dtype == dtype and (is_float(dtype) or dtype.name in ("int32", "int64", "uint32")):
        return lhs, rhs
    if lhs.dtype in _BYTES and rhs.dtype in _BYTES and dtype == np.int32:
        return lhs, rhs
    if dtype.kind == "c":
        raise Refused(f"products of {dtype}")
    if is_float(dtype):
        wide = dtype if is_float(lhs.dtype) and lhs.dtype.itemsize <= dtype.itemsize else lhs.dtype
    else:
        wide = np.dtype(np.int64 if dtype.itemsize == 8 else np.uint32 if dtype.kind == "u" else np.int32)
    return call.cast(lhs, wide), call.cast(rhs, wide)


# Convolutions ---------------------------------------------------------------------------------------


@operator("convolution")
def _convolution(call: Call) -> Entry:
    x, weight = call.values()
    if not is_float(x.dtype) or x.dtype != weight.dtype:
        raise Refused(f"a convolution of {x.dtype} and {weight.dtype}")
    images, kernels, results = attributes.convolution(call.attribute("dimension_numbers"))
    space = [str(number) for number in range(x.ndim - 2)]
    x = call.transposed(x, [images.index(own) for own in ("b", "f", *space)])
    weight = call.transposed(weight, [kernels.index(own) for own in ("o", "i", *space)])
    y = _convolved(call, x, weight, len(space))
    order = ["b", "f", *space]
    y = call.transposed(y, [order.index(own) for own in results])
    return call.cast(y, call.result_dtype())


def _convolved(call: Call, x: Value, weight: Value, count: int) -> Value:
    """A convolution of images [N, C, …] and kernels [O, I, …]."""
    ones = [1] * count
    stride, dilation = call.ints("window_strides", ones), call.ints("rhs_dilation", ones)
    spread = call.ints("lhs_dilation", ones)
    flat = call.ints("padding", [0] * (2 * count))
    pads = list(zip(flat[::2], flat[1::2], strict=True))
    for axis, reverse in enumerate(call.ints("window_reversal", [0] * count)):
        weight = call.m.flip(weight, 2 + axis) if reverse else weight
    if count == 1:
        x, weight = (call.reshaped(own, [*shape_of(own)[:2], 1, shape_of(own)[2]]) for own in (x, weight))
        stride, dilation, spread, pads = [1, *stride], [1, *dilation], [1, *spread], [(0, 0), *pads]
    elif count != 2:
        raise Refused(f"convolutions of {count} dimensions")
    x, groups = _grouped(call, x)
    if max(spread) > 1 and max(stride) == 1 and groups == 1:
        y = _transposed(call, x, weight, spread, dilation, pads)
    else:
        zero = call.constant(0, x.dtype)
        for axis, more in enumerate(spread):
            x = call.interleaved(x, 2 + axis, more - 1, zero)
        y = _windowed(call, x, weight, stride, dilation, pads, groups)
    if count == 1:
        own = shape_of(y)
        y = call.reshaped(y, [*own[:2], own[3]])
    return y


def _windowed(
    call: Call,
    x: Value,
    weight: Value,
    stride: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[tuple[int, int]],
    groups: int,
) -> Value:
    """A convolution whose padding, where it isn't the same on both sides, is made before."""
    padding = [0, 0]
    zero = call.constant(0, x.dtype)
    for axis, (before, after) in enumerate(pads):
        if before == after and before >= 0:
            padding[axis] = before
        else:
            x = call.padded(x, 2 + axis, before, after, zero)
    return call.m.conv2d(x, weight, stride=stride, padding=padding, dilation=dilation, groups=groups)


def _grouped(call: Call, x: Value) -> tuple[Value, int]:
    """The images, and in how many groups their channels are; groups of images become such of channels."""
    groups, batches = call.integer("feature_group_count", 1), call.integer("batch_group_count", 1)
    if batches == 1:
        return x, groups
    if groups != 1:
        raise Refused("groups of channels and of images")
    n, channels, height, width = shape_of(x)
    parts = call.reshaped(x, [batches, n // batches, channels, height, width])
    turned = call.m.transpose(parts, [1, 0, 2, 3, 4])
    return call.reshaped(turned, [n // batches, channels * batches, height, width]), batches


def _transposed(
    call: Call,
    x: Value,
    weight: Value,
    spread: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[tuple[int, int]],
) -> Value:
    """A convolution of images with zeros between pixels: each pixel adds its kernel, turned around, in steps."""
    turned = call.m.transpose(call.m.flip(call.m.flip(weight, 2), 3), [1, 0, 2, 3])
    y = call.m.conv_transpose2d(x, turned, stride=spread, dilation=dilation)
    zero = call.constant(0, x.dtype)
    kernel = [size.constant or 0 for size in shape_of(weight)[2:]]
    for axis, (before, after) in enumerate(pads):
        reach = dilation[axis] * (kernel[axis] - 1)
        y = call.padded(y, 2 + axis, before - reach, after - reach, zero)
    return y


@operator("triangular_solve")
def _triangular_solve(call: Call) -> Entry:
    """By the general solver, of what the triangle leaves of a."""
    m = call.m
    a, b = call.values()
    flags = {name: bool(call.op.attributes[name].value) for name in ("left_side", "lower", "unit_diagonal")}
    kind = call.word("transpose_a", "NO_TRANSPOSE")
    if not flags["left_side"] or kind == "ADJOINT" or not is_float(a.dtype):
        raise Refused("a triangular system with the unknown on the left, or of complex numbers")
    size = shape_of(a)[-1].constant
    if size is None:
        raise Refused("a triangular system of symbolic size")
    kept = np.tril(np.ones((size, size), np.bool_)) if flags["lower"] else np.triu(np.ones((size, size), np.bool_))
    a = m.where(m.constant(kept), a, 0.0)
    if flags["unit_diagonal"]:
        a = m.where(m.constant(np.eye(size, dtype=np.bool_)), 1.0, a)
    order = [*range(a.ndim - 2), a.ndim - 1, a.ndim - 2]
    a = m.transpose(a, order) if kind == "TRANSPOSE" else a
    if a.ndim == 2:
        return m.dense_solve(a, b)
    batch, own = shape_of(a)[:-2], shape_of(b)
    flat = (call.reshaped(x, [product(batch), *shape_of(x)[-2:]]) for x in (a, b))
    return call.reshaped(m.batched_dense_solve(*flat), [Size.of(size) for size in own])
