# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gaussian splats: an image as a whole has a gradient, what it is prepared of has none of its own."""

from __future__ import annotations

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import PythonValue
from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Reverse, vjp, zeros_like
from rlx_mlir.dialects import mir
from rlx_mlir.hir.values import Value
from rlx_mlir.rewriting import operations

#: Where the color of the background begins among the numbers of the camera, and where it ends.
_BACKGROUND = (12, 15)
#: The power to which colors are taken.
_GAMMA = 2.2


@vjp(mir.GaussianSplatRenderOp)
def gaussian_splat_render(m: Builders, at: Reverse, *scene: Value, **options: PythonValue) -> tuple[Value, ...]:
    """By all of the splats, from colors and from opacities; the camera has none.

    The operation of the gradient takes colors alone. Opacities are 1 - T, with T what is left of the background: they
    are T^2.2 in an image of black splats before a white one.
    """
    by_colors = m.gaussian_splat_render_backward(*scene, at.dy, **options)
    colors, _, meta = scene[4:]
    white = m.constant(np.ones(3, np.float32))
    begin, end = _BACKGROUND
    camera = m.concat([m.slice(meta, 0, 0, begin), white, m.slice(meta, 0, end)], 0)
    black = (*scene[:4], zeros_like(m, colors), m.constant(np.zeros(0, np.float32)), camera)
    pixels = m.reshape(at.y, [-1, 4])
    left = m.sub(1.0, m.narrow(pixels, 1, 3, 1))
    slope = m.mul(m.pow(left, _GAMMA - 1), -_GAMMA)
    change = m.where(m.gt(left, 0.0), m.div(m.narrow(m.reshape(at.dy, [-1, 4]), 1, 3, 1), slope), 0.0)
    others = m.expand(m.constant(0.0, at.dy.dtype), [m.sizes_of(pixels)[0], 3])
    by_opacities = m.gaussian_splat_render_backward(*black, m.reshape(m.concat([change, others], 1), [-1]), **options)
    found, place = [], m.sizes_of(scene[0])[0] * 0
    for number, own in enumerate(scene[:6]):
        after = place + m.sizes_of(own)[0]
        part = m.slice(by_colors, 0, place, after)
        found.append(m.add(part, m.slice(by_opacities, 0, place, after)) if number < 4 else part)
        place = after
    return tuple(found)


def join_images(module: ir.AnyModule) -> None:
    """Puts images in place of what is prepared and then rasterised, which have no derivatives: the same numbers.

    An image without splats is another one, so it is done where there are some by their type.
    """
    for op in [each for each in operations(module.operation) if each.name == "mir.gaussian_splat_rasterize"]:
        prepared, meta = op.operands
        made = None if isinstance(prepared, ir.BlockArgument) else ir.OpResult(prepared).owner.operation
        if made is None or made.name != "mir.gaussian_splat_prepare" or made.operands[6] != meta:
            continue
        opacities = ir.RankedTensorType(made.operands[3].type)
        given = {name: made.attributes[name] for name in made.attributes}
        same = all(op.attributes[name] == given.get(name) for name in op.attributes)
        if same and not opacities.is_dynamic_dim(0) and opacities.get_dim_size(0):
            with op.location, ir.InsertionPoint(op):
                image = ir.Operation.create(
                    "mir.gaussian_splat_render", [op.results[0].type], list(made.operands), given
                )
            op.results[0].replace_all_uses_with(image.results[0])
            op.erase()
