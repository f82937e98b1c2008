# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fourier transforms along dimensions of known sizes."""

from __future__ import annotations

from rlx_mlir.hir import Value

from ..call import Call
from ..entries import Entry
from ..registry import Refused, operator


@operator("fft")
def _fft(call: Call) -> Entry:
    """Along the last dimensions, as many as there are lengths; of real numbers, half of the last one is there."""
    m, kind, lengths = call.m, call.word("fft_type"), call.ints("fft_length")
    x = call.value(0)
    sizes = call.shape(0)[len(call.shape(0)) - len(lengths) :]
    if any(not size.constant for size in sizes) or not all(lengths):
        raise Refused(f"a transform of {' x '.join(map(str, sizes))} numbers")
    axes = list(range(x.ndim - len(lengths), x.ndim))
    if kind == "FFT":
        return m.fftn(x, axes)
    if kind == "IFFT":
        return m.ifftn(x, axes)
    if kind == "RFFT":
        half: Value = m.complex(*m.rfft(x, n=lengths[-1]))
        return m.fftn(half, axes[:-1])
    if kind == "IRFFT":
        half = m.ifftn(x, axes[:-1])
        return m.irfft(m.real(half), m.imag(half), lengths[-1])
    raise Refused(f"a transform of kind '{kind}'")
