# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of Fourier transforms and of what is computed with them, under numpy's conventions.

Along the last dimension, which is static, rows are complex<f32>, or real blocks of f32 or f64: N real parts, then the
N imaginary ones. Spectra of real signals are pairs of real and imaginary parts. `norm` is that of `numpy.fft`: backward
(an inverse is divided by N), forward (the other direction is) or ortho (both are by sqrt(N)). No length is padded
unless a builder says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir.hir import place
from rlx_mlir.hir.checked import checked
from rlx_mlir.hir.graph import Word, axis_within, integer, shape_of
from rlx_mlir.hir.primitives import Primitives
from rlx_mlir.hir.types import Options
from rlx_mlir.hir.values import Value

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The longest constant that frequencies are.
_LONGEST = 1 << 24


@checked
class Spectra(Primitives):
    """The builders; they take `name` as primitives do, for all that they are composed of."""

    # -- transforms of complex numbers -------------------------------------------------------------------------------

    def fft(self, x: Value, *, inverse: bool = False, norm: str = "backward", **options: Unpack[Options]) -> Value:
        """The discrete Fourier transform along the last dimension: complex<f32>, or a real block of f32 or f64.

        Args:
            inverse: the inverse transform.
            norm: backward, forward or ortho.
        """
        attributes = {"inverse": inverse, "norm": Word("fft_norm", norm)}
        return self._emit("mir.fft", {"x": x}, attributes, **options)[0]

    def fft_norm(self, x: Value, norm: str, *, inverse: bool = False, **options: Unpack[Options]) -> Value:
        """`fft` with a norm."""
        return Spectra.fft(self, x, inverse=inverse, norm=norm, **options)

    def fft_axis(
        self, x: Value, axis: int, *, inverse: bool = False, norm: str = "backward", name: str | None = None
    ) -> Value:
        """`fft` along another dimension, which holds complex<f32> or a real block."""
        last, at = x.ndim - 1, axis_within(x, axis)
        if at in (last, -1):
            return Spectra.fft(self, x, inverse=inverse, norm=norm, name=name)
        order = list(range(last + 1))
        order[at], order[last] = last, at
        turned = Spectra.fft(self, self.transpose(x, order, name=name), inverse=inverse, norm=norm, name=name)
        return self.transpose(turned, order, name=name)

    def fftn(
        self, x: Value, axes: Sequence[int] | None = None, *, norm: str = "backward", name: str | None = None
    ) -> Value:
        """`fft` along several dimensions, all by default, one after the other; more than one are of complex<f32>.

        Args:
            axes: dimensions, each of which counts once; x stays as it is without any.
        """
        return self._along(x, axes, norm, name, inverse=False)

    def ifftn(
        self, x: Value, axes: Sequence[int] | None = None, *, norm: str = "backward", name: str | None = None
    ) -> Value:
        """The inverse of `fftn`."""
        return self._along(x, axes, norm, name, inverse=True)

    def _along(self, x: Value, axes: Sequence[int] | None, norm: str, name: str | None, *, inverse: bool) -> Value:
        rank = x.ndim
        given = range(rank) if axes is None else axes
        wanted = sorted({axis + rank if axis < 0 else axis for axis in given})
        if len(wanted) > 1 and x.dtype.kind != "c":
            builder = "ifftn" if inverse else "fftn"
            raise place.caller().error(
                f"'{builder}' along more than one dimension expects 'x' to be of complex<f32>, but it is of {x.dtype}"
            )
        for axis in wanted:
            x = Spectra.fft_axis(self, x, axis, inverse=inverse, norm=norm, name=name)
        return x

    # -- real signals ------------------------------------------------------------------------------------------------

    def pad_last_axis_to_pow2(self, x: Value, *, name: str | None = None) -> Value:
        """x with zeros behind it, up to the next power of two along the last dimension."""
        length = _length(x, "pad_last_axis_to_pow2")
        return self._resized(x, _power_of_two(length), name)

    def split_spectrum(self, spectrum: Value, *, name: str | None = None) -> tuple[Value, Value]:
        """The real parts and the imaginary parts of a real block."""
        length = _length(spectrum, "split_spectrum", "spectrum")
        if length % 2:
            raise place.caller().error(f"'split_spectrum' expects an even last dimension, but got {length}")
        first, second = (self.narrow(spectrum, -1, start, length // 2, name=name) for start in (0, length // 2))
        return first, second

    def fft_real(
        self, x: Value, *, n: int | None = None, norm: str = "backward", name: str | None = None
    ) -> tuple[Value, Value]:
        """The transform of real rows: the real and the imaginary parts of all N numbers.

        Args:
            n: N, to which rows are cut or padded with zeros; their length by default.
        """
        length = self._wanted(n, _length(x, "fft_real"), "fft_real")
        row = self._resized(x, length, name)
        block = self.concat([row, self._fill(row, length, name)], -1, name=name)
        return Spectra.split_spectrum(self, Spectra.fft(self, block, norm=norm, name=name), name=name)

    def fft_batch_real(
        self, x: Value, *, n: int | None = None, norm: str = "backward", name: str | None = None
    ) -> tuple[Value, Value]:
        """`fft_real`, whose rows are a batch already."""
        return Spectra.fft_real(self, x, n=n, norm=norm, name=name)

    def rfft(
        self, x: Value, *, n: int | None = None, norm: str = "backward", name: str | None = None
    ) -> tuple[Value, Value]:
        """The transform of real rows: the parts of its first N // 2 + 1 numbers, of which the others are conjugates.

        Args:
            n: N, to which rows are cut or padded with zeros; their length by default.
        """
        length = self._wanted(n, _length(x, "rfft"), "rfft")
        parts = Spectra.fft_real(self, x, n=length, norm=norm, name=name)
        re, im = (self.narrow(part, -1, 0, length // 2 + 1, name=name) for part in parts)
        return re, im

    def irfft(
        self, re: Value, im: Value, n: int | None = None, *, norm: str = "backward", name: str | None = None
    ) -> Value:
        """Real rows of N numbers, from the parts of the first N // 2 + 1 numbers of their transform.

        Args:
            n: N; 2 (bins - 1) by default. Spectra are cut, or padded with zeros, to N // 2 + 1.
        """
        bins = _length(re, "irfft", "re")
        _length(im, "irfft", "im")
        length = self._wanted(n, 2 * (bins - 1), "irfft")
        kept, mirrored = length // 2 + 1, (length - 1) // 2

        def whole(part: Value) -> Value:
            """With the numbers whose conjugates are there, in reverse."""
            own = self._resized(part, kept, name)
            if not mirrored:
                return own
            other = self.slice(self.narrow(own, -1, 1, mirrored, name=name), -1, None, None, -1, name=name)
            return self.concat([own, self.neg(other, name=name) if part is im else other], -1, name=name)

        return Spectra.ifft_spectrum(self, whole(re), whole(im), norm=norm, name=name)

    def ifft_spectrum(self, re: Value, im: Value, *, norm: str = "backward", name: str | None = None) -> Value:
        """The real parts of the inverse transform of numbers that are given by their parts."""
        block = self.concat([re, im], -1, name=name)
        return Spectra.split_spectrum(self, Spectra.fft(self, block, inverse=True, norm=norm, name=name), name=name)[0]

    # -- what is computed with them ----------------------------------------------------------------------------------

    def stft(self, x: Value, frame_len: int, hop: int, *, norm: str = "backward", name: str | None = None) -> Value:
        """Transforms of frames of real rows [.., L]: [F, .., 2 (frame_len // 2 + 1)], the parts of `rfft` in a row.

        Frame f is x[.., f hop : f hop + frame_len], for each f for which that is there. There is no window, and nothing
        is padded. L may be symbolic.
        """
        length, step = (_count(given, named, "stft") for given, named in ((frame_len, "frame_len"), (hop, "hop")))
        shape = shape_of(x, "'x' of 'stft'")
        if not shape or (isinstance(shape[-1], int) and shape[-1] < length):
            raise place.caller().error(
                f"'stft' expects rows of 'x' to have {length} numbers at least, but its shape is {list(shape)}"
            )
        positions = self.iota([shape[-1]], 0, "i32", name=name)
        stop = shape[-1] - length + 1 if isinstance(shape[-1], int) else f"max({shape[-1]} - {length - 1}, 0)"
        starts = self.reshape(self.slice(positions, 0, 0, stop, step, name=name), [-1, 1], name=name)
        indices = self.add(starts, self.iota([length], 0, "i32", name=name), name=name)
        frames = self.gather(x, indices, x.ndim - 1, name=name)
        spectra = self.concat(list(Spectra.rfft(self, frames, norm=norm, name=name)), -1, name=name)
        rank = spectra.ndim
        return self.transpose(spectra, [rank - 2, *range(rank - 2), rank - 1], name=name)

    def fft_conv1d(
        self, a: Value, b: Value, n_fft: int | None = None, *, norm: str = "backward", name: str | None = None
    ) -> Value:
        """The convolution of real rows of La and Lb numbers, all La + Lb - 1 of it; leading dimensions broadcast.

        Args:
            n_fft: the least length of the transforms, of which the next power of two is taken that holds the result.
            norm: that of the transforms: with forward the result is divided by their length, with ortho by its root.
        """
        total = _length(a, "fft_conv1d", "a") + _length(b, "fft_conv1d", "b") - 1
        if total < 1:
            raise place.caller().error("'fft_conv1d' expects rows of 'a' and 'b' to have a number at least")
        least = total if n_fft is None else max(_count(n_fft, "n_fft", "fft_conv1d"), total)
        n = _power_of_two(least)
        (p, q), (r, s) = (Spectra.rfft(self, x, n=n, norm=norm, name=name) for x in (a, b))
        multiply = self._named(self.mul, name)
        re = self.sub(multiply(p, r), multiply(q, s), name=name)
        im = self.add(multiply(p, s), multiply(q, r), name=name)
        return self.narrow(Spectra.irfft(self, re, im, n, norm=norm, name=name), -1, 0, total, name=name)

    def psd(self, re: Value, im: Value, *, name: str | None = None) -> Value:
        """(re^2 + im^2) / n, where n is the length of the last dimension of re."""
        bins = _length(re, "psd", "re")
        multiply = self._named(self.mul, name)
        power = self.add(multiply(re, re), multiply(im, im), name=name)
        return self.mul(power, 1 / bins if bins else 1.0, name=name)

    def psd_real(self, x: Value, *, n: int | None = None, norm: str = "backward", name: str | None = None) -> Value:
        """`psd` of `rfft` of real rows: it is divided by the number of its bins, N // 2 + 1."""
        return Spectra.psd(self, *Spectra.rfft(self, x, n=n, norm=norm, name=name), name=name)

    def fftfreq_tensor(self, n: int, d: float = 1.0, *, name: str | None = None) -> Value:
        """The frequencies of the numbers of a transform as numpy's `fftfreq`: 0, 1, .., -2, -1 over n d, of f64."""
        return self.constant(np.fft.fftfreq(_count(n, "n", "fftfreq_tensor", _LONGEST), _spacing(d)), "f64", name=name)

    def rfftfreq_tensor(self, n: int, d: float = 1.0, *, name: str | None = None) -> Value:
        """Those of `rfft` as numpy's `rfftfreq`: 0, 1, .., n // 2 over n d, of f64."""
        return self.constant(
            np.fft.rfftfreq(_count(n, "n", "rfftfreq_tensor", _LONGEST), _spacing(d)), "f64", name=name
        )

    # -- what they share ---------------------------------------------------------------------------------------------

    def _named(self, builder: Callable[..., Value], name: str | None) -> Callable[..., Value]:
        return lambda *operands: builder(*operands, name=name)

    def _wanted(self, n: int | None, length: int, builder: str) -> int:
        """The length of a transform, which isn't 0."""
        return _count(length if n is None else n, "n", builder)

    def _fill(self, x: Value, count: int, name: str | None) -> Value:
        """Zeros in rows of `count`, as many as x has rows."""
        zero = self.constant(np.zeros([1] * x.ndim, x.dtype), name=name)
        return self.expand(zero, [*x.shape[:-1], count], name=name)

    def _resized(self, x: Value, length: int, name: str | None) -> Value:
        """Rows of a length, cut or with zeros behind them."""
        own = x.shape[-1]
        assert isinstance(own, int), "checked by the builder"
        if own == length:
            return x
        if own > length:
            return self.narrow(x, -1, 0, length, name=name)
        return self.concat([x, self._fill(x, length - own, name)], -1, name=name)


def _length(x: Value, builder: str, operand: str = "x") -> int:
    """The size of the last dimension; BuildError where there is none, or it is symbolic."""
    shape = shape_of(x, f"'{operand}' of '{builder}'")
    if not shape or not isinstance(shape[-1], int):
        raise place.caller().error(
            f"'{builder}' expects the last dimension of '{operand}' to be static, but its shape is {list(shape)}"
        )
    return shape[-1]


def _count(given: object, named: str, builder: str, most: int = 1 << 31) -> int:
    """A positive number; BuildError where it is none, or a larger one than there may be."""
    with place.checking(f"'{builder}'"):
        count = integer(given, named)
    if not 1 <= count <= most:
        raise place.caller().error(f"'{builder}' expects '{named}' to be from 1 to {most}, but got {count}")
    return count


def _spacing(given: float) -> float:
    """The distance of samples; BuildError where it is no number but 0."""
    if isinstance(given, int | float) and given:
        return float(given)
    raise place.caller().error(f"frequencies expect 'd' to be a number other than 0, but got {given!r}")


def _power_of_two(length: int) -> int:
    """The least power of two that isn't less."""
    return 1 << max(length - 1, 0).bit_length()
