# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators on complex numbers, complex<f32>, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.frontends import functions
from rlx_mlir.frontends.indexing import with_last
from rlx_mlir.hir.values import Value
from rlx_mlir.pytorch.graph import Dimension, Importer, Unhandled, handles, static

#: PyTorch's numbers for no division, by the root of N, and by N, as norms of numpy: of transforms and of inverse ones.
_NORMS = {False: ("backward", "ortho", "forward"), True: ("forward", "ortho", "backward")}


def _parts(im: Importer, z: Value) -> tuple[Value, Value]:
    return im.m.real(z), im.m.imag(z)


@handles("aten.abs.default")
def magnitude(im: Importer, x: Value) -> Value:
    """|x|, of complex numbers too."""
    if x.dtype.kind == "c":
        return im.m.sqrt(im.m.complex_norm_sq(x))
    return functions.magnitude(im.m, x)


@handles("aten.angle.default")
def angle(im: Importer, x: Value) -> Value:
    """The angle of a complex number."""
    if x.dtype.kind != "c":
        raise Unhandled("of real numbers")
    re, imaginary = _parts(im, x)
    return im.cast(functions.atan2(im.m, im.cast(imaginary, "f64"), im.cast(re, "f64")), im.dtype())


@handles("aten.complex.default")
def from_parts(im: Importer, re: Value, imaginary: Value) -> Value:
    """re + i imaginary"""
    return im.m.complex(re, imaginary)


@handles("aten.polar.default")
def polar(im: Importer, size: Value, turn: Value) -> Value:
    """size e^(i turn)"""
    return im.m.complex(size * im.m.cos(turn), size * im.m.sin(turn))


@handles("aten._conj.default", "aten._conj_physical.default", "aten.conj_physical.default")
def conjugate(im: Importer, x: Value) -> Value:
    """The conjugate of each number."""
    return im.m.conjugate(x) if x.dtype.kind == "c" else x


@handles("aten.resolve_conj.default", "aten.resolve_neg.default")
def resolved(im: Importer, x: Value) -> Value:
    """x itself: conjugates are computed where they are made."""
    return x


@handles("aten.view_as_real.default", "aten.view_as_real_copy.default")
def view_as_real(im: Importer, z: Value) -> Value:
    """Parts as a last dimension of 2."""
    return im.m.concat([im.m.reshape(part, [*z.shape, 1]) for part in _parts(im, z)], z.ndim)


@handles("aten.view_as_complex.default", "aten.view_as_complex_copy.default")
def view_as_complex(im: Importer, x: Value) -> Value:
    """Complex numbers of the parts that a last dimension of 2 has."""
    if im.dtype() != "complex<f32>":
        raise Unhandled(f"elements of {im.dtype()}")
    return im.m.complex(*(im.m.reshape(im.m.narrow(x, -1, part, 1), list(x.shape[:-1])) for part in (0, 1)))


@handles("aten.real.default", "aten.imag.default")
def part(im: Importer, z: Value) -> Value:
    """One part of each number."""
    return im.m.imag(z) if "imag" in str(im.node.target) else im.m.real(z)


# -- transforms ----------------------------------------------------------------------------------------------------


def _axes(x: Value, dims: Sequence[int]) -> list[int]:
    return [dim % x.ndim for dim in dims]


def _complex(im: Importer, z: Value, axes: Sequence[int], norm: str, *, inverse: bool) -> Value:
    for axis in axes:
        z = im.m.fft_axis(z, axis, inverse=inverse, norm=norm)
    return z


@handles("aten._fft_c2c.default")
def fft(im: Importer, z: Value, dims: Sequence[int], normalisation: int, forward: bool) -> Value:
    """The transform of complex numbers along some dimensions."""
    norm = _NORMS[not forward][normalisation]
    return _complex(im, z, _axes(z, dims), norm, inverse=not forward)


@handles("aten._fft_r2c.default")
def rfft(im: Importer, x: Value, dims: Sequence[int], normalisation: int, onesided: bool) -> Value:
    """The transform of real numbers: along the last of the dimensions the first half, or the whole."""
    m, (*others, last) = im.m, _axes(x, dims)
    if im.dtype() != "complex<f32>":
        raise Unhandled(f"elements of {im.dtype()}")
    norm = _NORMS[False][normalisation]
    rows, back = with_last(m, x, last)
    found = m.complex(*(m.rfft if onesided else m.fft_real)(rows, norm=norm))
    return _complex(im, back(found), others, norm, inverse=False)


@handles("aten._fft_c2r.default")
def irfft(im: Importer, z: Value, dims: Sequence[int], normalisation: int, size: Dimension) -> Value:
    """Real numbers of the first half of their transform."""
    m, (*others, last) = im.m, _axes(z, dims)
    norm = _NORMS[True][normalisation]
    rows, back = with_last(m, _complex(im, z, others, norm, inverse=True), last)
    return back(m.irfft(*_parts(im, rows), static(size, "a length"), norm=norm))
