# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions of images on CPUs: the order of their weights, and what their kernels do with what they make."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.codegen.specs.tensors import why_no_convolution
from rlx_mlir.dialects import mir
from rlx_mlir.formats import PANEL_ROWS
from rlx_mlir.lowering.functions import memref_of
from rlx_mlir.lowering.fuse import only_user, producer, shape_of
from rlx_mlir.rewriting import Rewriter
from rlx_mlir.semantics.dims import Dims

#: Marks the operation that leaves out the transforms of weights, which its convolution's kernel may read.
TRANSFORMS = "mir.transforms"

#: The order of [Co / 16, 16, sum] and of [Co / 16, sum, 16], each from the other.
_TURN = (0, 2, 1)


def why_no_template(conv: mir.ConvOp) -> str:
    """Why no template computes a convolution; empty where one does, and what follows it."""
    x, weight, result = (memref_of(value.type) for value in (conv.x, conv.weight, conv.result))
    return why_no_convolution(x, weight, result)


def pack_kernels(conv: mir.ConvOp, rewriter: Rewriter, is_known: Callable[[ir.Value], bool]) -> None:
    """conv(x, W) of parameters W -> conv(x, W's numbers for 16 outputs side by side, put back in order)

    The kernel of the convolution reads what is side by side; nothing is put back. A barrier says that what is behind it
    isn't prepared with the parameters. In loops and branches weights stay as they are: what is
    outside would put them back. Others have templates, too, so nothing is reported as missed.
    """
    weight = conv.weight
    if is_known(weight) and conv.operation.parent.name == "func.func" and fits_panels(conv):
        read_panels(conv, rewriter, mir.barrier(packed_rows(weight)))


def packed_rows(weight: ir.Value) -> ir.Value:
    """Weights [Co, ..] as [Co / 16, .., 16]: numbers of 16 outputs side by side, in the order of the others."""
    outputs, *sums = shape_of(weight)
    rows = mir.reshape(weight, [outputs // PANEL_ROWS, PANEL_ROWS, math.prod(sums)], [])
    return mir.transpose(rows, _TURN)


def read_panels(conv: mir.ConvOp, rewriter: Rewriter, panels: ir.Value) -> None:
    """Gives a convolution weights in panels, as `packed_rows` makes them, put back in order."""
    conv.operation.operands[1] = mir.reshape(mir.transpose(panels, _TURN), shape_of(conv.weight), [])
    rewriter.changed()


def panels_of(conv: mir.ConvOp) -> list[ir.Operation]:
    """The operations that put the weights of a convolution in order, of which its kernel reads panels; else none.

    Where their transforms lie behind the panels (`winograd.py`), the first operation leaves these out.
    """
    reshape = producer(conv.weight, mir.ReshapeOp)
    turned = producer(reshape.x, mir.TransposeOp) if reshape is not None else None
    if turned is None or tuple(python_value(turned.permutation)) != _TURN:
        return []
    outputs, *sums = shape_of(conv.weight)
    found = [turned.operation, reshape.operation]
    if not fits_panels(conv) or shape_of(turned.x) != [outputs // PANEL_ROWS, math.prod(sums), PANEL_ROWS]:
        return []
    part = producer(turned.x, mir.NarrowOp)
    if part is not None and TRANSFORMS in part.operation.attributes:
        found.insert(0, part.operation)
    return found if all(only_user(op.results[0]) is not None for op in found) else []


def fits_panels(conv: mir.ConvOp) -> bool:
    """Whether a template reads the weights in panels: of f32, and of groups with whole ones."""
    kind = ir.RankedTensorType(conv.weight.type)
    if str(kind.element_type) != "f32" or why_no_template(conv):
        return False
    return bool(kind.shape[0] // int(python_value(conv.groups)) % PANEL_ROWS == 0)


def is_by_channel(value: ir.Value, result: ir.Value) -> bool:
    """Whether a value has a number for each channel of images [N, C, H, W]."""
    own, full = shape_of(value), shape_of(result)
    if len(full) != 4 or full[1] < 1:
        return False
    return own in ([full[1], 1, 1], [1, full[1], 1, 1])


def fits_image(value: ir.Value, result: ir.Value) -> bool:
    """Whether a value, by its type, can be read beside images: of their shape, a number for each channel, or one."""
    own = shape_of(value)
    return own == shape_of(result) or is_by_channel(value, result) or all(size == 1 for size in own)


def fits_images(dims: Mapping[ir.Value, Dims]) -> Callable[[ir.Value, ir.Value], bool]:
    """What says whether the kernel of a convolution can read a value beside its result: one that fits, no table.

    Of the same shape means of the same sizes: `dims` are those of all values.
    """

    def fits(value: ir.Value, result: ir.Value) -> bool:
        constant = producer(value, mir.ConstantOp)
        if constant is not None and not getattr(constant.value, "is_splat", False):
            return False
        return fits_image(value, result) and (shape_of(value) != shape_of(result) or dims[value] == dims[result])

    return fits
