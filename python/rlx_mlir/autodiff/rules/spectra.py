# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fourier transforms: the transpose of one, with conjugate factors, is a transform the other way round."""

from __future__ import annotations

from rlx_mlir.autodiff.builders import Builders
from rlx_mlir.autodiff.registry import Reverse, linear, vjp
from rlx_mlir.dialects import mir
from rlx_mlir.hir.values import Value

#: The norm of the other direction that multiplies with the same number.
_SAME_FACTOR = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


@vjp(mir.FftOp)
def fft(m: Builders, at: Reverse, x: Value, *, inverse: bool = False, norm: str = "backward") -> Value:
    """The transform of the cotangent in the other direction, times the same factor."""
    return m.fft(at.dy, inverse=not inverse, norm=_SAME_FACTOR[norm])


linear(mir.FftOp)
