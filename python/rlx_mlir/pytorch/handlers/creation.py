# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that make tensors of numbers."""

from __future__ import annotations

import numpy as np

from rlx_mlir.dtypes import DTYPES
from rlx_mlir.hir.values import Value
from rlx_mlir.pytorch.graph import Importer, Operand, handles
from rlx_mlir.pytorch.handlers.known import bounds_of


def filled(im: Importer, value: Operand) -> Value:
    """One number in the shape of the node's result."""
    dtype, shape = im.dtype(), im.shape()
    return im.expanded(im.m.reshape(im.scalar(value, dtype), [1] * len(shape)) if shape else im.scalar(value, dtype))


@handles("aten.full.default", "aten.full_like.default", "aten.new_full.default")
def full(im: Importer, like: object, *rest: Operand, **_: object) -> Value:
    """One number: the last argument that is one."""
    return filled(im, rest[-1])


@handles("aten.fill.Scalar", "aten.fill.Tensor")
def fill(im: Importer, x: Value, value: Operand) -> Value:
    """One number in place of all."""
    return filled(im, value)


@handles("aten.scalar_tensor.default")
def scalar_tensor(im: Importer, value: Operand, **_: object) -> Value:
    """A number without dimensions."""
    return im.scalar(value, im.dtype())


@handles(
    "aten.zeros.default",
    "aten.zeros_like.default",
    "aten.new_zeros.default",
    "aten.empty.memory_format",
    "aten.empty_like.default",
    "aten.new_empty.default",
    "aten.empty_strided.default",
    "aten.new_empty_strided.default",
)
def zeros(im: Importer, *_: object, **__: object) -> Value:
    """Zeros: also where PyTorch doesn't say what is there."""
    return filled(im, 0)


@handles("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(im: Importer, *_: object, **__: object) -> Value:
    """Ones."""
    return filled(im, 1)


@handles("aten.arange.start_step", "aten.arange.start", "aten.arange.default")
def arange(im: Importer, *bounds: Operand, **_: object) -> Value:
    """start, start + step, … of floats; those of integers are known by their indices."""
    start, step = bounds_of(bounds)
    dtype = im.dtype()
    counted = im.m.cast(im.iota(im.shape(), 0, "i64"), dtype)
    return counted * im.scalar(step, dtype) + im.scalar(start, dtype)


@handles("aten.tril.default", "aten.triu.default")
def triangle(im: Importer, x: Value, diagonal: int = 0) -> Value:
    """x with zeros above, or below, a diagonal of the last two dimensions."""
    m, (rows, columns) = im.m, im.shape()[-2:]
    row, column = im.iota([rows, 1], 0, "i64"), im.iota([1, columns], 1, "i64")
    shifted = row if not diagonal else row + int(diagonal)
    kept = m.le(column, shifted) if "tril" in str(im.node.target) else m.ge(column, shifted)
    return im.expanded(m.where(kept, x, m.constant(np.zeros((), DTYPES[im.dtype()]))))
