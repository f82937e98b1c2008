# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights whose scales are tensors of their own: integers with a scale for each block along K, floats of 8 bits, NVFP4.

A weight is ``[K, N]``. With b = k // block, and q the code of an element:

=========  =============================================  ==========================================================
scheme     W[k, n]                                        codes; scales
=========  =============================================  ==========================================================
int8/B     q * scale[b, n]                                int8 [K, N]; f32 [ceil(K / B), N]
int8a/B    (q - zero_point[b, n]) * scale[b, n]           the same, and f32 zero points of the scales' shape
int4/B     q * scale[b, n], q from -8 to 7                nibbles [ceil(K N / 2)]; f32 [ceil(K / B), N]
fp8e4m3    q * scale[n], no infinities, at most 448       bytes [K, N]; f32 [N]
fp8e5m2    q * scale[n]                                   bytes [K, N]; f32 [N]
nvfp4      q * fp8e4m3(scale[k // 16, n]) * global_scale  nibbles [ceil(K N / 2)]; bytes [ceil(K / 16), N]; f32 [1]
=========  =============================================  ==========================================================

Element (k, n) of nibbles is in byte f // 2, f = k * N + n, in the low bits where f is even. NaN as a float of 8 bits,
in codes or scales, decodes to 0. Everything is rounded to f32, in the order written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import checks
from ..arrays import as_array, dlpack_type, element_word
from ..dtypes import DTYPES, ml_dtypes
from ..errors import InputError

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int8]

NVFP4_BLOCK = 16
"""Elements along K that share a scale in nvfp4."""

NVFP4_VALUES: Floats = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
"""Magnitudes of the codes of nvfp4; bit 3 is the sign."""

SCALED_SCHEMES = ("int8", "int8a", "int4", "fp8e4m3", "fp8e5m2", "nvfp4")
"""Words of the schemes, without their block lengths."""

_FP8 = {"fp8e4m3": "f8E4M3FN", "fp8e5m2": "f8E5M2"}
_TEXT = re.compile(r"(int8|int8a|int4)/([1-9]\d{0,17})|fp8e4m3|fp8e5m2|nvfp4(?:/16)?")


@dataclass(frozen=True)
class ScaledScheme:
    """A scheme: its word, and elements along K that share a scale (None where a column has one scale)."""

    word: str
    block: int | None

    @property
    def attribute_block(self) -> int | None:
        """What operations say in `block`: nothing where the word says it all."""
        return None if self.word == "nvfp4" else self.block

    @property
    def nibbles(self) -> bool:
        """Whether codes have four bits."""
        return self.word in ("int4", "nvfp4")

    def code_shape(self, k: int, n: int) -> tuple[int, ...]:
        """Shape of the codes of a weight [k, n]."""
        return (-(-k * n // 2),) if self.nibbles else (k, n)

    def scale_shape(self, k: int, n: int) -> tuple[int, ...]:
        """Shape of the scales of a weight [k, n]."""
        return (n,) if self.block is None else (-(-k // self.block), n)

    def __str__(self) -> str:
        return self.word if self.block is None else f"{self.word}/{self.block}"


def scaled_scheme(text: str | ScaledScheme) -> ScaledScheme:
    """The scheme of a text such as `int8/32` or `fp8e4m3`; InputError where there is none."""
    if isinstance(text, ScaledScheme):
        return text
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InputError(
            f"unknown scheme {text!r}, known are int8/B, int8a/B and int4/B for blocks of B elements, fp8e4m3, fp8e5m2 "
            "and nvfp4"
        )
    if match[1]:
        return ScaledScheme(match[1], int(match[2]))
    word = text.partition("/")[0]
    return ScaledScheme(word, NVFP4_BLOCK if word == "nvfp4" else None)


@dataclass(frozen=True, eq=False)
class ScaledWeight:
    """A weight [k, n] as the operands of `GraphModule.dequant_matmul` hold it.

    Attributes:
        scheme: how it is stored.
        k, n: its shape.
        codes: int8, the bits of the codes.
        scale: f32, or int8 with nvfp4.
        zero_point: f32, with int8a only.
        global_scale: f32 [1], with nvfp4 only.
    """

    scheme: ScaledScheme
    k: int
    n: int
    codes: Codes
    scale: npt.NDArray[np.generic]
    zero_point: Floats | None = None
    global_scale: Floats | None = None

    def decode(self) -> Floats:
        """The weight, f32 [k, n]."""
        return decode_scaled(
            self.scheme, self.codes, self.scale, self.zero_point, self.global_scale, k=self.k, n=self.n
        )


def decode_scaled(
    scheme: str | ScaledScheme,
    codes: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray | None = None,
    global_scale: np.ndarray | None = None,
    *,
    k: int,
    n: int,
) -> Floats:
    """Decodes a weight to f32 ``[k, n]``; the module says how.

    Args:
        scheme: the scheme or its text.
        codes: bytes, of any 8-bit type.
        scale: f32, or bytes with nvfp4.
        zero_point: f32, exactly with int8a.
        global_scale: f32 [1], exactly with nvfp4.

    Raises InputError where an operand is missing, too many, or of another shape than the scheme asks for.
    """
    kind = scaled_scheme(scheme)
    k, n = checks.whole("k", k, 0, 2**31), checks.whole("n", n, 0, 2**31)
    codes, scale = as_array("'codes'", codes), as_array("'scale'", scale)
    zero_point = None if zero_point is None else as_array("'zero_point'", zero_point)
    global_scale = None if global_scale is None else as_array("'global_scale'", global_scale)
    for name, operand, expected in (
        ("zero_point", zero_point, kind.word == "int8a"),
        ("global_scale", global_scale, kind.word == "nvfp4"),
    ):
        if (operand is not None) != expected:
            raise InputError(f"{kind} has {'a' if expected else 'no'} '{name}'")
    shapes = [("codes", codes, kind.code_shape(k, n)), ("scale", scale, kind.scale_shape(k, n))]
    if zero_point is not None:
        shapes.append(("zero_point", zero_point, kind.scale_shape(k, n)))
    for name, array, shape in shapes:
        if array.shape != shape:
            raise InputError(f"'{name}' of {kind} is {list(shape)} for [{k}, {n}], but is {list(array.shape)}")
    if codes.dtype.itemsize != 1 or codes.dtype.hasobject:
        raise InputError(f"'codes' of {kind} are bytes, but are {element_word(codes.dtype)}")
    for name, numbers in (("scale", scale), ("zero_point", zero_point), ("global_scale", global_scale)):
        if numbers is not None and (numbers.dtype.kind not in "fiub" or not numbers.dtype.isnative):
            raise InputError(f"'{name}' of {kind} are numbers, but are {element_word(numbers.dtype)}")
    raw = np.ascontiguousarray(codes).view(np.uint8)
    with np.errstate(all="ignore"):
        if kind.word in _FP8:
            return _decode_fp8(raw, kind.word) * scale
        assert kind.block is not None
        rows = np.arange(k) // kind.block
        if global_scale is not None:
            four = _nibbles(raw, k, n)
            value = np.where(four < 8, NVFP4_VALUES[four & 7], -NVFP4_VALUES[four & 7])
            scales = _decode_fp8(np.ascontiguousarray(scale).view(np.uint8), "fp8e4m3")
            return value * scales[rows] * np.float32(global_scale.reshape(())[()])
        if kind.word == "int4":
            integers = ((_nibbles(raw, k, n) ^ 8).astype(np.int8) - 8).astype(np.float32)
        else:
            integers = raw.view(np.int8).astype(np.float32)
        if zero_point is not None:
            integers = integers - zero_point[rows]
        return integers * scale[rows]


def _decode_fp8(raw: npt.NDArray[np.uint8], word: str) -> Floats:
    """Floats of 8 bits as f32, NaN as 0."""
    value = raw.view(DTYPES[_FP8[word]]).astype(np.float32)
    return np.where(np.isnan(value), np.float32(0), value)


def _nibbles(raw: npt.NDArray[np.uint8], k: int, n: int) -> npt.NDArray[np.uint8]:
    """Unsigned 4-bit numbers [k, n] from bytes, low bits first."""
    pairs = np.stack([raw & 15, raw >> 4], axis=-1)
    return pairs.reshape(-1)[: k * n].reshape(k, n)


def _packed_nibbles(four: npt.NDArray[np.uint8]) -> Codes:
    """Inverse of `_nibbles`; where the number is odd, the last four bits are 0."""
    flat = np.zeros(-(-four.size // 2) * 2, np.uint8)
    flat[: four.size] = four.reshape(-1)
    return (flat[::2] | flat[1::2] << 4).view(np.int8)


# ----------------------------------------------------------------------------------------------------------------------
# Quantisers
# ----------------------------------------------------------------------------------------------------------------------


def quantize_scaled(scheme: str | ScaledScheme, values: np.ndarray) -> ScaledWeight:
    """Quantises a weight ``[K, N]``.

    Scales map the largest magnitude to the largest code: |x| to 127, 7, 448, 57344; int8a maps its range, widened to
    hold 0, to -128 .. 127. Integers are rounded half away from zero and saturate, floats to the nearest, ties to even.
    nvfp4 takes 6 * 448 as the largest product of a code and a scale; then the scale of a block, rounded to the nearest
    fp8e4m3, is the one for its largest magnitude. A block of zeros, or one whose scale is too small for its type, has
    scale 0 and decodes to zeros (int8a: to what its zero point gives, which is 0).

    Raises InputError where the weight isn't two-dimensional or holds NaN or an infinity; the message has its index.
    """
    kind = scaled_scheme(scheme)
    values = as_array("'values'", values)
    if values.ndim != 2:
        raise InputError(f"'values' must be [K, N], but has {values.ndim} dimensions")
    if (values.dtype.kind not in "fiub" and dlpack_type(values.dtype) is None) or not values.dtype.isnative:
        raise InputError(f"'values' must be numbers, such as float32, but are {element_word(values.dtype)}")
    with np.errstate(all="ignore"):
        x = values.astype(np.float32)
    if not np.isfinite(x).all():
        row, column = np.argwhere(~np.isfinite(x))[0]
        raise InputError(f"{kind} holds finite f32 values, but values[{row}, {column}] is {values[row, column]}")
    k, n = x.shape
    with np.errstate(all="ignore"):
        if kind.block is None:
            return _quantize_fp8(kind, x)
        length = min(kind.block, max(k, 1))
        blocks = np.zeros((-(-k // length), length, n), np.float32)
        _rows(blocks)[:k] = x
        if kind.word == "nvfp4":
            return _quantize_nvfp4(kind, blocks, k)
        if kind.word == "int8a":
            return _quantize_asymmetric(kind, blocks, k)
        top = 127 if kind.word == "int8" else 7
        scale = _unit(np.abs(blocks).max(axis=1, initial=0), top)
        q = _rows(_away(_over(blocks, scale)).clip(-top, top).astype(np.int8))[:k]
        codes = q if kind.word == "int8" else _packed_nibbles(q.view(np.uint8) & np.uint8(15))
        return ScaledWeight(kind, k, n, np.ascontiguousarray(codes), scale)


def _quantize_asymmetric(kind: ScaledScheme, blocks: Floats, k: int) -> ScaledWeight:
    n = blocks.shape[-1]
    low, high = blocks.min(axis=1, initial=0), blocks.max(axis=1, initial=0)
    # Halves: the difference of the two largest numbers overflows.
    scale = (high / 2 - low / 2) / np.float32(127.5)
    zero_point = _away(-128 - _over(low[:, None], scale)[:, 0]).clip(-128, 127)
    q = _away(_over(blocks, scale) + zero_point[:, None]).clip(-128, 127)
    value = (q - zero_point[:, None]) * scale[:, None]  # rounding may go beyond the largest number
    q = (q - np.isposinf(value) + np.isneginf(value)).astype(np.int8)
    return ScaledWeight(kind, k, n, np.ascontiguousarray(_rows(q)[:k]), scale, zero_point)


def _quantize_fp8(kind: ScaledScheme, x: Floats) -> ScaledWeight:
    dtype = DTYPES[_FP8[kind.word]]
    top = float(ml_dtypes(kind.word).finfo(dtype).max)
    scale = _unit(np.abs(x).max(axis=0, initial=0), top)
    codes = _over(x[None], scale[None])[0].clip(-top, top).astype(dtype).view(np.int8)
    return ScaledWeight(kind, x.shape[0], x.shape[1], codes, scale)


def _quantize_nvfp4(kind: ScaledScheme, blocks: Floats, k: int) -> ScaledWeight:
    n = blocks.shape[-1]
    dtype = DTYPES[_FP8["fp8e4m3"]]
    largest = np.abs(blocks).max(axis=1, initial=0)
    global_scale = _unit(np.asarray(largest.max(initial=0)), 6 * 448)
    stored = (
        _over(largest[:, None] / np.float32(6), np.full_like(largest, global_scale))[:, 0].clip(0, 448).astype(dtype)
    )
    scale = stored.astype(np.float32) * global_scale
    ratio = np.abs(_over(blocks, scale))
    # The number of midpoints below; on a midpoint, the code whose lowest bit is 0.
    middles = (NVFP4_VALUES[1:] + NVFP4_VALUES[:-1]) / 2
    code = np.zeros(ratio.shape, np.uint8)
    for number, middle in enumerate(middles):
        code += (ratio > middle) | ((ratio == middle) & bool(number % 2))
    code |= (np.signbit(blocks) & (code > 0)).astype(np.uint8) << 3
    codes = _packed_nibbles(_rows(code)[:k])
    return ScaledWeight(kind, k, n, codes, stored.view(np.int8), global_scale=global_scale.reshape(1))


def _rows(blocks: np.ndarray) -> np.ndarray:
    """[B, block, N] as [B * block, N], a view."""
    return blocks.reshape(blocks.shape[0] * blocks.shape[1], blocks.shape[2])


def _unit(largest: Floats, top: float) -> Floats:
    """largest / top, rounded so that top times it is finite."""
    scale = np.asarray(largest / np.float32(top), np.float32)
    return np.where(np.isinf(scale * np.float32(top)), np.nextafter(scale, np.float32(0)), scale)


def _over(blocks: Floats, scale: Floats) -> Floats:
    """blocks [B, block, N] / scale [B, N]; 0 where the scale is 0."""
    divisor = np.broadcast_to(scale[:, None], blocks.shape)
    # In f64: a subnormal scale, of few bits, must not push the quotient beyond f32.
    return np.divide(
        blocks, divisor, out=np.zeros(blocks.shape, np.float64), where=divisor != 0, dtype=np.float64
    ).astype(np.float32)


def _away(x: Floats) -> Floats:
    """Rounded to the nearest integer, halves away from zero."""
    return np.trunc(x + np.copysign(np.float32(0.5), x))
