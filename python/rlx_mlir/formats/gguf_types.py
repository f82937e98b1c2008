# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The types of GGUF files, described."""

from __future__ import annotations

from functools import partial

from .descriptions import BlockFormat, Field, Grid, Plane, Scaled, Trits

MXFP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the floats of 1 bit of sign, 2 of exponent and 1 of fraction."""

IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""Integers of iq4_nl and iq4_xs: closer together where weights are more frequent."""


def _block32(name: str, type_id: int, *, minimum: bool, high: bool, offset: int) -> BlockFormat:
    """Q4_0, Q4_1, Q5_0, Q5_1: f16 d, f16 m?, 32 fifth bits?, 32 nibbles (low ones are elements 0..15)."""
    fields = [Field("d", "<f2", 0)]
    if minimum:
        fields.append(Field("m", "<f2", 2))
    position = 2 * len(fields)
    planes = [Plane("qs", (2, 16), (0, 1), (4, 0), bits=4)]
    if high:
        fields.append(Field("qh", "u1", position, 4))
        planes.append(Plane("qh", (4, 8), (1, 0), (0, 1), bits=1, into=4))
        position += 4
    fields.append(Field("qs", "u1", position, 16))
    return BlockFormat(
        name,
        type_id,
        32,
        position + 16,
        fields=tuple(fields),
        quants=tuple(planes),
        offset=offset,
        sub=32,
        scale=Scaled("d"),
        minimum=Scaled("m") if minimum else None,
    )


# Six-bit scales and minima of Q4_K and Q5_K; sub-block s = 4a + c is (a, c).
_SCALES_K = (
    Plane("scales", (2, 4), (8, 1), (0, 0), bits=4),
    Plane("scales", (2, 4), (0, 1), (2, 0), bits=2, into=4, shift0=4),
)
_MINIMA_K = (
    Plane("scales", (2, 4), (4, 1), (4, 0), bits=4, byte0=4),
    Plane("scales", (2, 4), (0, 1), (2, 0), bits=2, into=4, byte0=4, shift0=4),
)
_NIBBLES_K = Plane("qs", (4, 2, 32), (32, 0, 1), (0, 4, 0), bits=4)
_PAIRS_K = Plane("qs", (2, 4, 32), (32, 0, 1), (0, 2, 0), bits=2)


def _dense(name: str, type_id: int, nbytes: int) -> BlockFormat:
    return BlockFormat(name, type_id, 1, nbytes, element=name)


def _bit_run(
    field: str,
    digits: tuple[int, ...],
    byte: tuple[int, ...],
    shift: tuple[int, ...],
    count: int,
    *,
    into: int = 0,
    byte0: int = 0,
) -> tuple[Plane, ...]:
    """Planes of one bit each: of `count` bits that follow each other, perhaps from one byte to the next."""
    return tuple(
        Plane(field, digits, byte, shift, bits=1, into=into + i, byte0=byte0, shift0=i, carry=True)
        for i in range(count)
    )


_NIBBLES_32 = (Plane("qs", (2, 16), (0, 1), (4, 0), bits=4),)
_FOUR_BITS_16 = (Plane("scales", (8, 2), (1, 0), (0, 4), bits=4),)


def _with_values() -> tuple[BlockFormat, ...]:
    """Formats whose codes stand for integers of a table."""
    return (
        BlockFormat(
            "iq4_nl",
            20,
            32,
            18,
            fields=(Field("d", "<f2", 0), Field("qs", "u1", 2, 16)),
            quants=_NIBBLES_32,
            sub=32,
            scale=Scaled("d"),
            values=IQ4_VALUES,
        ),
        BlockFormat(
            "iq4_xs",
            23,
            256,
            136,
            fields=(
                Field("d", "<f2", 0),
                Field("scales_h", "u1", 2, 2),
                Field("scales_l", "u1", 4, 4),
                Field("qs", "u1", 8, 128),
            ),
            quants=(Plane("qs", (8, 2, 16), (16, 0, 1), (0, 4, 0), bits=4),),
            sub=32,
            scale=Scaled(
                "d",
                (
                    Plane("scales_l", (4, 2), (1, 0), (0, 4), bits=4),
                    Plane("scales_h", (2, 4), (1, 0), (0, 2), bits=2, into=4),
                ),
                offset=32,
            ),
            values=IQ4_VALUES,
        ),
        BlockFormat(
            "mxfp4",
            39,
            32,
            17,
            fields=(Field("e", "e8m0", 0), Field("qs", "u1", 1, 16)),
            quants=_NIBBLES_32,
            sub=32,
            scale=Scaled("e"),
            values=MXFP4_VALUES,
        ),
        BlockFormat(
            "nvfp4",
            40,
            64,
            36,
            fields=(Field("d", "ue4m3", 0, 4), Field("qs", "u1", 4, 32)),
            quants=(Plane("qs", (4, 2, 8), (8, 0, 1), (0, 4, 0), bits=4),),
            sub=16,
            scale=Scaled("d"),
            values=MXFP4_VALUES,
        ),
        BlockFormat(
            "q1_0",
            41,
            128,
            18,
            fields=(Field("d", "<f2", 0), Field("qs", "u1", 2, 16)),
            quants=(Plane("qs", (16, 8), (1, 0), (0, 1), bits=1),),
            sub=128,
            scale=Scaled("d"),
            values=(-1, 1),
        ),
    )


def _ternary() -> tuple[BlockFormat, ...]:
    """Formats of -1, 0 and 1; tq2_0 could hold 2."""
    return (
        BlockFormat(
            "tq1_0",
            34,
            256,
            54,
            fields=(Field("qs", "u1", 0, 52), Field("d", "<f2", 52)),
            trits=Trits("qs", ((0, 32, 5), (32, 16, 5), (48, 4, 4))),
            offset=1,
            sub=256,
            scale=Scaled("d"),
            rule="ternary",
        ),
        BlockFormat(
            "tq2_0",
            35,
            256,
            66,
            fields=(Field("qs", "u1", 0, 64), Field("d", "<f2", 64)),
            quants=(Plane("qs", (2, 4, 32), (32, 0, 1), (0, 2, 0), bits=2),),
            offset=1,
            sub=256,
            scale=Scaled("d"),
            rule="ternary",
        ),
    )


def _signed_values(digits: tuple[int, ...]) -> tuple[int, ...]:
    """Integers of codes whose highest bit is the sign of the digit's number; what no word holds is 0."""
    padded = digits + (0,) * (-len(digits) % 4)
    return padded + tuple(-number for number in padded)


_TWO_BITS = _signed_values((8, 25, 43))
_THREE_BITS = _signed_values((4, 12, 20, 28, 36, 44, 52, 62))
_ODD = _signed_values((1, 3, 5, 7, 9, 11, 13, 15))
# Eight times digits from -1 to 1, moved by an eighth.
_MOVED_TRITS = (-7, 1, 9, 0, -9, -1, 7, 0)


def _grids_of_two_bits() -> tuple[BlockFormat, ...]:
    """iq2_xxs, iq2_xs, iq2_s: eight magnitudes of three in a word; scales d (1/2 + s) / 4."""
    signs = (Plane("signs", (32,), (1,), (0,), bits=8),)
    scale = Scaled("d", _FOUR_BITS_16, offset=-1, step=2)
    described = partial(BlockFormat, values=_TWO_BITS, unit=0.125)
    return (
        described(
            "iq2_xxs",
            16,
            256,
            66,
            fields=(Field("d", "<f2", 0), Field("qs", "u1", 2, 64)),
            grid=Grid(
                "iq2_xxs",
                8,
                2,
                (Plane("qs", (8, 4), (8, 1), (0, 0), bits=8),),
                _bit_run("qs", (8, 4), (8, 0), (0, 7), 7, byte0=4),
            ),
            sub=32,
            scale=Scaled("d", (Plane("qs", (8,), (8,), (0,), bits=4, byte0=7, shift0=4),), offset=-1, step=2),
        ),
        described(
            "iq2_xs",
            17,
            256,
            74,
            fields=(Field("d", "<f2", 0), Field("qs", "u1", 2, 64), Field("scales", "u1", 66, 8)),
            grid=Grid(
                "iq2_xs",
                8,
                2,
                (
                    Plane("qs", (32,), (2,), (0,), bits=8),
                    Plane("qs", (32,), (2,), (0,), bits=1, into=8, byte0=1),
                ),
                (Plane("qs", (32,), (2,), (0,), bits=7, byte0=1, shift0=1),),
            ),
            sub=16,
            scale=scale,
        ),
        described(
            "iq2_s",
            22,
            256,
            82,
            fields=(
                Field("d", "<f2", 0),
                Field("qs", "u1", 2, 32),
                Field("signs", "u1", 34, 32),
                Field("qh", "u1", 66, 8),
                Field("scales", "u1", 74, 8),
            ),
            grid=Grid(
                "iq2_s",
                8,
                2,
                (
                    Plane("qs", (32,), (1,), (0,), bits=8),
                    Plane("qh", (8, 4), (1, 0), (0, 2), bits=2, into=8),
                ),
                signs,
            ),
            sub=16,
            scale=scale,
        ),
    )


def _grids_of_three_bits() -> tuple[BlockFormat, ...]:
    """iq3_xxs and iq3_s: four magnitudes of eight in a word; scales d (1/2 + s) / 2 and d (1 + 2 s)."""
    return (
        BlockFormat(
            "iq3_xxs",
            18,
            256,
            98,
            fields=(Field("d", "<f2", 0), Field("qs", "u1", 2, 64), Field("signs", "u1", 66, 32)),
            grid=Grid(
                "iq3_xxs",
                4,
                3,
                (Plane("qs", (64,), (1,), (0,), bits=8),),
                _bit_run("signs", (8, 4), (4, 0), (0, 7), 7),
            ),
            sub=32,
            scale=Scaled("d", (Plane("signs", (8,), (4,), (0,), bits=4, byte0=3, shift0=4),), offset=-1, step=2),
            values=_THREE_BITS,
            unit=0.25,
        ),
        BlockFormat(
            "iq3_s",
            21,
            256,
            110,
            fields=(
                Field("d", "<f2", 0),
                Field("qs", "u1", 2, 64),
                Field("qh", "u1", 66, 8),
                Field("signs", "u1", 74, 32),
                Field("scales", "u1", 106, 4),
            ),
            grid=Grid(
                "iq3_s",
                4,
                3,
                (
                    Plane("qs", (64,), (1,), (0,), bits=8),
                    Plane("qh", (8, 8), (1, 0), (0, 1), bits=1, into=8),
                ),
                (Plane("signs", (32,), (1,), (0,), bits=8),),
            ),
            sub=32,
            scale=Scaled("d", (Plane("scales", (4, 2), (1, 0), (0, 4), bits=4),), offset=-1, step=2),
            values=_ODD,
        ),
    )


def _grids_of_trits() -> tuple[BlockFormat, ...]:
    """iq1_s and iq1_m: eight digits from -1 to 1 in a word, all moved by an eighth, up or down; scales d (2 s + 1)."""
    low = Plane("qs", (32,), (1,), (0,), bits=8)
    described = partial(BlockFormat, values=_MOVED_TRITS, unit=0.125)
    return (
        described(
            "iq1_s",
            19,
            256,
            50,
            fields=(Field("d", "<f2", 0), Field("qs", "u1", 2, 32), Field("qh", "u1", 34, 16)),
            grid=Grid(
                "iq1",
                8,
                2,
                (low, *_bit_run("qh", (8, 4), (2, 0), (0, 3), 3, into=8)),
                (Plane("qh", (8,), (2,), (0,), bits=1, byte0=1, shift0=7),),
            ),
            sub=32,
            scale=Scaled("d", (Plane("qh", (8,), (2,), (0,), bits=3, byte0=1, shift0=4),), offset=-1, step=2),
        ),
        described(
            "iq1_m",
            29,
            256,
            56,
            fields=(Field("qs", "u1", 0, 32), Field("qh", "u1", 32, 16), Field("scales", "u1", 48, 8)),
            grid=Grid(
                "iq1",
                8,
                2,
                (low, Plane("qh", (16, 2), (1, 0), (0, 4), bits=3, into=8)),
                (Plane("qh", (16, 2), (1, 0), (0, 4), bits=1, shift0=3),),
            ),
            sub=16,
            # The words' lowest 12 bits are four factors; the highest four are a part of d.
            scale=Scaled(
                planes=_bit_run("scales", (4, 4), (2, 0), (0, 3), 3),
                offset=-1,
                step=2,
                word=tuple(
                    Plane("scales", (1,), (0,), (0,), bits=4, into=4 * i, byte0=2 * i + 1, shift0=4) for i in range(4)
                ),
            ),
        ),
    )


DESCRIBED: tuple[BlockFormat, ...] = (
    _dense("f32", 0, 4),
    _dense("f16", 1, 2),
    _dense("bf16", 30, 2),
    _dense("f64", 28, 8),
    _dense("i8", 24, 1),
    _dense("i16", 25, 2),
    _dense("i32", 26, 4),
    _dense("i64", 27, 8),
    _block32("q4_0", 2, minimum=False, high=False, offset=8),
    _block32("q4_1", 3, minimum=True, high=False, offset=0),
    _block32("q5_0", 6, minimum=False, high=True, offset=16),
    _block32("q5_1", 7, minimum=True, high=True, offset=0),
    BlockFormat(
        "q8_0",
        8,
        32,
        34,
        fields=(Field("d", "<f2", 0), Field("qs", "i1", 2, 32)),
        quants=(Plane("qs", (32,), (1,), (0,), bits=8),),
        signed=True,
        sub=32,
        scale=Scaled("d"),
    ),
    BlockFormat(
        "q2_k",
        10,
        256,
        84,
        fields=(
            Field("scales", "u1", 0, 16),
            Field("qs", "u1", 16, 64),
            Field("d", "<f2", 80),
            Field("dmin", "<f2", 82),
        ),
        quants=(_PAIRS_K,),
        sub=16,
        scale=Scaled("d", (Plane("scales", (16,), (1,), (0,), bits=4),)),
        minimum=Scaled("dmin", (Plane("scales", (16,), (1,), (0,), bits=4, shift0=4),)),
        minimum_sign=-1,
    ),
    BlockFormat(
        "q3_k",
        11,
        256,
        110,
        fields=(
            Field("hmask", "u1", 0, 32),
            Field("qs", "u1", 32, 64),
            Field("scales", "u1", 96, 12),
            Field("d", "<f2", 108),
        ),
        quants=(_PAIRS_K, Plane("hmask", (2, 4, 32), (0, 0, 1), (4, 1, 0), bits=1, into=2)),
        offset=4,
        sub=16,
        scale=Scaled(
            "d",
            (
                Plane("scales", (2, 2, 4), (0, 4, 1), (4, 0, 0), bits=4),
                Plane("scales", (4, 4), (0, 1), (2, 0), bits=2, into=4, byte0=8),
            ),
            offset=32,
        ),
    ),
    BlockFormat(
        "q4_k",
        12,
        256,
        144,
        fields=(
            Field("d", "<f2", 0),
            Field("dmin", "<f2", 2),
            Field("scales", "u1", 4, 12),
            Field("qs", "u1", 16, 128),
        ),
        quants=(_NIBBLES_K,),
        sub=32,
        scale=Scaled("d", _SCALES_K),
        minimum=Scaled("dmin", _MINIMA_K),
        minimum_sign=-1,
    ),
    BlockFormat(
        "q5_k",
        13,
        256,
        176,
        fields=(
            Field("d", "<f2", 0),
            Field("dmin", "<f2", 2),
            Field("scales", "u1", 4, 12),
            Field("qh", "u1", 16, 32),
            Field("qs", "u1", 48, 128),
        ),
        quants=(_NIBBLES_K, Plane("qh", (4, 2, 32), (0, 0, 1), (2, 1, 0), bits=1, into=4)),
        sub=32,
        scale=Scaled("d", _SCALES_K),
        minimum=Scaled("dmin", _MINIMA_K),
        minimum_sign=-1,
    ),
    BlockFormat(
        "q6_k",
        14,
        256,
        210,
        fields=(
            Field("ql", "u1", 0, 128),
            Field("qh", "u1", 128, 64),
            Field("scales", "i1", 192, 16),
            Field("d", "<f2", 208),
        ),
        quants=(
            Plane("ql", (2, 2, 2, 32), (64, 0, 32, 1), (0, 4, 0, 0), bits=4),
            Plane("qh", (2, 4, 32), (32, 0, 1), (0, 2, 0), bits=2, into=4),
        ),
        offset=32,
        sub=16,
        scale=Scaled("d", (Plane("scales", (16,), (1,), (0,), bits=8),), signed=True),
    ),
    BlockFormat(
        "q8_k",
        15,
        256,
        292,
        fields=(Field("d", "<f4", 0), Field("qs", "i1", 4, 256), Field("bsums", "<i2", 260, 16)),
        quants=(Plane("qs", (256,), (1,), (0,), bits=8),),
        signed=True,
        sub=256,
        scale=Scaled("d"),
        rule="sums",
    ),
    *_with_values(),
    *_ternary(),
    *_grids_of_two_bits(),
    *_grids_of_three_bits(),
    *_grids_of_trits(),
)
"""Types that are decoded."""

SIZED = (BlockFormat("q8_1", 9, 32, 40),)
"""A type of activations: its size is known, so that files that hold it can be listed, but not its decoding."""
