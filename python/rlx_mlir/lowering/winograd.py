# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `mir-transform-kernels`: transforms of weights for Winograd's F(2 x 2, 3 x 3), prepared beside them."""

from __future__ import annotations

import math

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import elements_attribute, python_value
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.convolutions import TRANSFORMS, fits_panels, packed_rows, read_panels
from rlx_mlir.lowering.fuse import shape_of
from rlx_mlir.lowering.parameters import is_known
from rlx_mlir.rewriting import PatternSet, Rewriter, apply_patterns, compiler_pass

PATTERNS = PatternSet()

FEWEST_CHANNELS = 16
"""With fewer channels, squares of pixels are made for few products."""

FEWEST_SQUARES = 8
"""For fewer squares, reading the transforms takes longer than the products that they save."""


@compiler_pass("mir-transform-kernels")
def transform_kernels(module: ir.Operation) -> None:
    """Put transforms of weights beside those of convolutions of 3 x 3, for kernels with fewer products.

    Of f32 and of parameters, step by step and without groups, where channels and places are many enough. The
    convolution reads what it did: the part of both that has its weights, put back in order. Its kernel reads the
    transforms, and the weights where sums aren't finite. Run mir-hoist-params after it.
    """
    apply_patterns(module, PATTERNS)


@PATTERNS.pattern(mir.ConvOp)
def transform(conv: mir.ConvOp, rewriter: Rewriter) -> None:
    """conv(x, W) of parameters W -> conv(x, W of the panels of W and G W G')"""
    weight = conv.weight
    if not is_known(weight) or not _pays(conv):
        return
    numbers = mir.transpose(_transformed(weight), [0, 2, 3, 1])  # [Co, 4, 4, Ci]
    both = mir.barrier(mir.concat([packed_rows(weight), packed_rows(numbers)], axis=1))
    part = mir.narrow(both, axis=1, start=0, length=shape_of(weight)[1] * 9)
    part.owner.attributes[TRANSFORMS] = ir.UnitAttr.get()
    read_panels(conv, rewriter, part)


def _pays(conv: mir.ConvOp) -> bool:
    """Whether the convolution is one that the transform is for, and has fewer products with it."""
    geometry = [python_value(own) for own in (conv.stride, conv.padding, conv.dilation)]
    _, inputs, *kernel = shape_of(conv.weight)
    if kernel != [3, 3] or geometry[0] != [1, 1] or geometry[2] != [1, 1] or python_value(conv.groups) != 1:
        return False
    places = shape_of(conv.result)[2:]
    squares = math.prod(-(-size // 2) for size in places)
    few = min(places) >= 0 and (squares < FEWEST_SQUARES or squares * 16 > math.prod(places) * 9 * 3 // 4)
    outside = conv.operation.parent.name == "func.func"
    return outside and inputs >= FEWEST_CHANNELS and not few and fits_panels(conv)


def _transformed(weight: ir.Value) -> ir.Value:
    """G W G', [Co, Ci, 4, 4], of W [Co, Ci, 3, 3]."""
    kind = ir.RankedTensorType.get([1], ir.RankedTensorType(weight.type).element_type)
    half = mir.constant(elements_attribute(np.full(1, 0.5, np.float32), kind.element_type))
    for axis in (2, 3):
        a, b, c = (mir.narrow(weight, axis=axis, start=tap, length=1) for tap in range(3))
        ends = mir.add(a, c)
        middle = [mir.mul(both, half) for both in (mir.add(ends, b), mir.sub(ends, b))]
        weight = mir.concat([a, *middle, c], axis=axis)
    return weight
