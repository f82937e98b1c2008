# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Discrete Fourier transforms of known lengths, as products with matrices of cosines and sines."""

from __future__ import annotations

import numpy as np

from rlx_mlir.frontends.tensors import Tensor
from rlx_mlir.hir import Value

from ..call import Call
from ..registry import Refused, operator
from ..types import HALVES

#: The longest transform, whose matrix has so many rows and columns.
LONGEST = 4096


def transformed(call: Call, re: Value, im: Value | None, count: int, *, inverse: bool, half: bool) -> Value:
    """Rows [..., N] of parts, transformed: [..., count, 2], or of the first half and the middle."""
    m, size = call.m, Tensor.running(re).shape[-1].constant
    if size is None or not 0 < count <= LONGEST:
        raise Refused(f"a transform of {Tensor.running(re).shape[-1]} numbers, made {count}")
    if size > count:
        re, im = (None if part is None else m.narrow(part, -1, 0, count) for part in (re, im))  # type: ignore[assignment]
        size = count
    kept = count // 2 + 1 if half else count
    angles = 2 * np.pi * (np.outer(np.arange(kept), np.arange(size)) % count) / count
    factor = 1 / count if inverse else 1.0
    turn = 1.0 if inverse else -1.0
    cos, sin = (factor * np.cos(angles)).astype(re.dtype), (factor * turn * np.sin(angles)).astype(re.dtype)
    cosine, sine = (call.importer.value(Tensor.of(each)) for each in (cos, sin))

    def times(x: Value, w: Value) -> Value:
        return m.matmul(x, w, transpose_rhs=True)

    real, imaginary = times(re, cosine), times(re, sine)
    if im is not None:
        real, imaginary = m.sub(real, times(im, sine)), m.add(imaginary, times(im, cosine))
    shape = Tensor.running(real).shape
    return m.concat([call.reshaped(part, [*shape, 1]) for part in (real, imaginary)], len(shape))


def _reals(call: Call, re: Value, im: Value, count: int) -> Value:
    """The numbers [..., count, 1] of whose transform the first half and the middle are given: [..., count // 2 + 1]."""
    m, kept, size = call.m, count // 2 + 1, Tensor.running(re).shape[-1].constant
    if size is None or not 0 < count <= LONGEST or size < kept:
        raise Refused(f"a transform back from {Tensor.running(re).shape[-1]} numbers to {count}")
    re, im = (m.narrow(part, -1, 0, kept) for part in (re, im))
    angles = 2 * np.pi * (np.outer(np.arange(count), np.arange(kept)) % count) / count
    twice = np.where((np.arange(kept) == 0) | (2 * np.arange(kept) == count), 1.0, 2.0) / count
    cos, sin = (
        call.importer.value(Tensor.of((twice * each).astype(re.dtype))) for each in (np.cos(angles), np.sin(angles))
    )
    y = m.sub(m.matmul(re, cos, transpose_rhs=True), m.matmul(im, sin, transpose_rhs=True))
    return call.reshaped(y, [*Tensor.running(y).shape, 1])


@operator("DFT", since=17)
def _dft(call: Call) -> Tensor:
    m, rank = call.m, call.rank(0)
    if call.version >= 20:
        axis = call.known_ints(2, "the axis")[0] if call.has(2) else -2
    else:
        axis = call.integer("axis", 1)
    axis = call.along(axis, rank)
    x = call.value(0)
    if x.dtype in HALVES:
        raise Refused(f"elements of type {x.dtype}")
    inverse, half = call.flag("inverse"), call.flag("onesided")
    parts = call.shape(0)[-1].constant
    if axis == rank - 1 or parts not in (1, 2) or (inverse and half and parts != 2):
        raise Refused(f"a transform along dimension {axis} of {rank}, of {call.shape(0)[-1]} parts")
    order = [i for i in range(rank - 1) if i != axis] + [axis]
    rows = m.transpose(x, [*order, rank - 1])
    shape = Tensor.running(rows).shape
    real, imaginary = (
        call.reshaped(m.narrow(rows, -1, part, 1), shape[:-1]) if part < parts else None for part in range(2)
    )
    assert real is not None
    own = shape[-2].constant
    count = call.known_ints(1, "the length")[0] if call.has(1) else own
    if count is None:
        raise Refused(f"a transform of {shape[-2]} numbers")
    if inverse and half:
        assert imaginary is not None
        y = _reals(call, real, imaginary, count if call.has(1) or own is None else 2 * (own - 1))
    else:
        y = transformed(call, real, imaginary, count, inverse=inverse, half=half)
    back = [order.index(i) for i in range(rank - 1)]
    return call.out(m.transpose(y, [*back, rank - 1]))


@operator("STFT", since=17)
def _stft(call: Call) -> Tensor:
    m, shape = call.m, call.shape(0)
    (step,) = call.known_ints(1, "the step")
    window = call.maybe_value(2)
    length = call.known_ints(3, "the length")[0] if call.has(3) else None
    if length is None and window is not None:
        length = Tensor.running(window).shape[0].constant
    if length is None or step <= 0 or shape[1].constant is None or (len(shape) == 3 and shape[2].constant != 1):
        raise Refused(f"frames of {length} in steps of {step} of {list(map(str, shape))}")
    count = (shape[1].constant - length) // step + 1
    call.affordable(count, length)
    places = np.arange(count, dtype=np.int64)[:, None] * step + np.arange(length, dtype=np.int64)
    x = call.reshaped(call.value(0), shape[:2])
    frames = m.gather(x, call.importer.value(Tensor.of(places)), 1)
    frames = frames if window is None else m.mul(frames, window)
    return call.out(transformed(call, frames, None, length, inverse=False, half=call.flag("onesided", True)))
