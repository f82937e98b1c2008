# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images that are read at places between their pixels, and that windows are added up to."""

from __future__ import annotations

import math

import numpy as np

from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import OnnxError
from rlx_mlir.frontends import sampling
from rlx_mlir.frontends.tensors import Tensor
from rlx_mlir.frontends.windows import added
from rlx_mlir.hir import Value
from rlx_mlir.mir.dims import Size

from ..call import Call
from ..registry import operator
from ..windows import windows

#: Names of interpolations, of which version 16 has other ones.
_KINDS = {"bilinear": "linear", "bicubic": "cubic"}


@operator("GridSample")
def _grid_sample(call: Call) -> Tensor:
    call.needs_floats(0)
    call.needs_floats(1)
    rank = call.rank(0) - 2
    last = call.shape(1)[-1].constant if call.rank(1) else None
    if rank < 1 or call.rank(1) != rank + 2 or last != rank:
        raise OnnxError(
            f"node '{call.name}': images [N, C, D...] are read at places [N, P..., r] of as many coordinates as "
            f"dimensions D, but there are {call.rank(0)} dimensions, and places {[str(size) for size in call.shape(1)]}"
        )
    mode = call.choice("mode", "linear", ("linear", "nearest", "cubic", *_KINDS))
    padding = call.choice("padding_mode", "zeros", sampling.PADDINGS)

    def number(size: Size, word: str) -> Value:
        if size.constant is not None:
            return call.m.constant(np.array(size.constant).astype(DTYPES[word]))
        return call.narrowed(call.importer.size(size), np.dtype(DTYPES[word]))

    found = sampling.sampled(
        call.m,
        call.wide(call.value(0)),
        call.wide(call.value(1)),
        _KINDS.get(mode, mode),
        padding,
        corners=call.flag("align_corners"),
        number=number,
    )
    return call.out(call.narrowed(found, call.dtype(0)))


@operator("Col2Im")
def _col2im(call: Call) -> Tensor:
    call.needs_floats()
    image, kernel = call.known_ints(1, "the sizes of images"), call.known_ints(2, "the sizes of windows")
    over = windows(call, kernel, [Size.of(size) for size in image])
    if call.rank(0) != 3:
        raise OnnxError(f"node '{call.name}': windows are [N, C k, L], but have {call.rank(0)} dimensions")
    call.affordable(*image)
    columns, count = call.shape(0)[1].constant, math.prod(kernel)
    if columns is None or columns % count:
        raise OnnxError(
            f"node '{call.name}': windows of {count} elements are a multiple of these, but are {call.shape(0)[1]}"
        )
    return call.out(added(call.m, call.value(0), over, image))
