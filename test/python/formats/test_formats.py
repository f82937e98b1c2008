# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Block formats against the public `gguf` package, bit for bit, and panels against their definition."""

from __future__ import annotations

import itertools

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from packed_harness import set_scales

from rlx_mlir import formats, ir
from rlx_mlir.errors import InputError, UnsupportedError
from rlx_mlir.formats import grids
from rlx_mlir.formats.descriptions import BYTE_FLOATS

BLOCK_FORMATS = [f.name for f in formats.FORMATS.values() if f.has_blocks]
SIMPLE_FORMATS = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"]
NESTED_FORMATS = ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k"]
GRID_FORMATS = ["iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s", "iq1_m"]
TABLE_FORMATS = ["iq4_nl", "iq4_xs", "mxfp4", "nvfp4", "q1_0"]
TERNARY_FORMATS = ["tq1_0", "tq2_0"]
PANEL_FORMATS = SIMPLE_FORMATS + NESTED_FORMATS + GRID_FORMATS + TABLE_FORMATS + TERNARY_FORMATS
DENSE_PANEL_FORMATS = ["f32", "f16", "bf16"]


def random_rows(name: str, rows: int, k: int, seed: int = 0) -> np.ndarray:
    """Random bits: every integer, and scales of every kind, NaN and subnormal included."""
    return np.random.default_rng(seed).integers(0, 256, (rows, formats.get_format(name).row_bytes(k)), np.uint8)


def bits(values: np.ndarray) -> np.ndarray:
    """Bit patterns, all NaNs made equal."""
    return np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))


def test_sizes_of_every_type() -> None:
    table = {f.type_id: (f.name, f.block, f.nbytes) for f in formats.FORMATS.values()}
    assert table == {int(t): (t.name.lower(), *size) for t, size in GGML_QUANT_SIZES.items()}
    assert table[15] == ("q8_k", 256, 292)


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_fields_cover_the_block(name: str) -> None:
    fmt = formats.get_format(name)
    end = 0
    for field in fmt.fields:
        assert field.offset == end
        end += field.nbytes
    assert end == fmt.nbytes
    assert all(plane.count == fmt.block for plane in fmt.quants)
    assert len(fmt.numbers) == 1 << fmt.bits
    if fmt.quants:
        assert sum(plane.bits for plane in fmt.quants) == fmt.bits
    if fmt.grid is not None:
        assert sum(plane.bits for plane in fmt.grid.index) == len(grids.table(fmt.grid.table)).bit_length() - 1
        assert fmt.grid.index[0].count * fmt.grid.length == fmt.block
    if fmt.trits is not None:
        assert sum(count * digits for _, count, digits in fmt.trits.parts) == fmt.block


@pytest.mark.parametrize("name", [n for n in BLOCK_FORMATS if n not in ("q8_k", "q1_0")])
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (37, 3), (2, 33), (0, 1)])
def test_decode_equals_the_public_decoder(name: str, rows: int, blocks: int) -> None:
    k = blocks * formats.get_format(name).block
    data = random_rows(name, rows, k)
    actual = formats.decode(name, data, k)
    if not rows:  # of which the public one makes an error
        assert actual.shape == (0, k)
        return
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(data, GGMLQuantizationType[name.upper()])
    assert actual.dtype == np.float32
    np.testing.assert_array_equal(bits(actual), bits(expected))


def test_decode_q8_k() -> None:
    data = random_rows("q8_k", 3, 512)
    blocks = data.reshape(3, 2, 292)
    scale = blocks[..., :4].copy().view("<f4")
    with np.errstate(all="ignore"):
        expected = scale * blocks[..., 4:260].view(np.int8).astype(np.float32)
    np.testing.assert_array_equal(bits(formats.decode("q8_k", data, 512)), bits(expected.reshape(3, 512)))


def test_decode_q1_0() -> None:
    """Bits from the lowest on: 0 is -d, 1 is d."""
    block = np.concatenate([np.array([0.5], "<f2").view(np.uint8), np.array([0b00000110, 0x80] + [0] * 14, np.uint8)])
    decoded = formats.decode("q1_0", block[None], 128)[0]
    assert np.flatnonzero(decoded > 0).tolist() == [1, 2, 15]
    np.testing.assert_array_equal(np.abs(decoded), 0.5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", [n for n in BLOCK_FORMATS if n not in ("q8_k", "q1_0", "mxfp4", "nvfp4")])
def test_scales_that_are_no_numbers(name: str, value: float) -> None:
    k = 2 * formats.get_format(name).block
    data = random_rows(name, 3, k)
    set_scales(name, data, value)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(data, GGMLQuantizationType[name.upper()])
    np.testing.assert_array_equal(bits(formats.decode(name, data, k)), bits(expected))


@pytest.mark.parametrize("name", ["mxfp4", "nvfp4"])
def test_every_scale_of_one_byte(name: str) -> None:
    fmt = formats.get_format(name)
    data = random_rows(name, 256, fmt.block)
    data[:, 0] = np.arange(256)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(data, GGMLQuantizationType[name.upper()])
    np.testing.assert_array_equal(bits(formats.decode(name, data, fmt.block)), bits(expected))


@pytest.mark.parametrize("name", ["iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1"])
def test_words_of_grids(name: str) -> None:
    """They ascend, so that the number of a word can be found, and fill the numbers that are stored."""
    words = grids.table(name).astype(np.int64)
    assert (np.diff(words) > 0).all()
    assert len(words) & (len(words) - 1) == 0
    with pytest.raises(ValueError, match="read-only"):
        grids.table(name)[0] = 0


def test_decode_in_chunks_equals_decode_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_rows("q4_1", 50, 64)
    at_once = formats.decode("q4_1", data, 64)
    monkeypatch.setattr(formats.blocks, "CHUNK", 192)
    np.testing.assert_array_equal(bits(formats.decode("q4_1", data, 64)), bits(at_once))


def test_decode_takes_views() -> None:
    data = random_rows("q5_1", 8, 64)
    np.testing.assert_array_equal(
        bits(formats.decode("q5_1", data[::2], 64)), bits(formats.decode("q5_1", data, 64)[::2])
    )


@pytest.mark.parametrize(("name", "dtype"), [("f32", np.float32), ("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_decode_dense(name: str, dtype: type) -> None:
    elements: np.ndarray = np.array([[1.5, -0.25, 3.0]], dtype)
    np.testing.assert_array_equal(formats.decode(name, elements, 3), elements.astype(np.float32))
    np.testing.assert_array_equal(formats.decode(name, elements.view(np.uint8), 3), elements.astype(np.float32))


@pytest.mark.parametrize("name", SIMPLE_FORMATS)
def test_encode_equals_the_public_encoder(name: str) -> None:
    values = np.random.default_rng(1).standard_normal((5, 96)).astype(np.float32)
    values[0, :32] = 0
    np.testing.assert_array_equal(
        formats.encode(name, values), gguf.quantize(values, GGMLQuantizationType[name.upper()])
    )


@pytest.mark.parametrize("name", SIMPLE_FORMATS)
@pytest.mark.quick(2)
def test_encode_equals_the_public_encoder_at_any_scale(name: str) -> None:
    """Bytes do, unless a scale is a subnormal f32, by which the public one divides; decoded values do always."""
    random = np.random.default_rng(2).uniform(-1, 1, (4, 64)).astype(np.float32)
    random[:, 0] = 1  # the largest of each first block
    for exponent in range(-149, 16):
        values = np.ldexp(random, exponent).astype(np.float32)
        with np.errstate(all="ignore"):
            public = gguf.quantize(values, GGMLQuantizationType[name.upper()])
        own = formats.encode(name, values)
        np.testing.assert_array_equal(formats.decode(name, own, 64), formats.decode(name, public, 64))
        if exponent >= -110:
            np.testing.assert_array_equal(own, public)


@pytest.mark.parametrize(
    ("name", "largest", "beyond"), [("f16", 65504.0, 7e4), ("f16", 65519.0, 65520.0), ("bf16", 3.3895e38, 3.4e38)]
)
def test_dense_values_beyond_the_range_have_an_index(name: str, largest: float, beyond: float) -> None:
    values = np.zeros((3, 4), np.float32)
    values[2, 1] = -largest
    assert np.isfinite(formats.decode(name, formats.encode(name, values), 4)).all()
    values[2, 1] = -beyond
    with pytest.raises(InputError, match=rf"{name} holds values up to .*, but values\[2, 1\] is -"):
        formats.encode(name, values)


@pytest.mark.parametrize("name", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_dense_values_are_finite(name: str, value: float) -> None:
    values = np.zeros((3, 4), np.float64)
    values[1, 3] = value
    with pytest.raises(InputError, match=rf"{name} holds finite values, but values\[1, 3\] is {value}"):
        formats.encode(name, values)


def test_f32_of_f64_saturates_nowhere() -> None:
    with pytest.raises(InputError, match=r"f32 holds values up to 3\.40282e\+38, but values\[0, 1\] is 1e\+39"):
        formats.encode("f32", np.array([[0, 1e39]]))


@pytest.mark.parametrize("name", ["f16", "f32", "q4_1", "q8_0", "q6_k"])
def test_encode_takes_views_and_nothing(name: str) -> None:
    values = np.random.default_rng(3).standard_normal((256, 32)).astype(np.float32)
    np.testing.assert_array_equal(formats.encode(name, values.T), formats.encode(name, values.T.copy()))
    assert formats.encode(name, values.T[:0]).shape == (0, formats.get_format(name).row_bytes(256))


def plain_error(name: str, values: np.ndarray) -> np.ndarray:
    """The squared error of each block by a plain rule: sub-blocks from their least to their largest element, and
    integers of scales and minima by the largest of the block."""
    fmt = formats.get_format(name)
    x = values.reshape(values.shape[0], -1, fmt.block // fmt.sub, fmt.sub).astype(np.float64)
    least, most = fmt.numbers.min(), fmt.numbers.max()
    low = np.minimum(x.min(-1, keepdims=True), 0) if fmt.minimum is not None else np.zeros_like(x[..., :1])
    largest = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)
    scale = (x.max(-1, keepdims=True) - low) / most if fmt.minimum is not None else largest / least

    def stored(factors: np.ndarray, what: formats.Scaled | None) -> np.ndarray:
        if what is None:
            return factors
        highest = what.range[1]
        d = np.abs(factors).max(axis=2, keepdims=True) / highest
        return np.rint(factors / np.where(d == 0, 1, d)) * d

    scale, low = stored(scale, fmt.scale), stored(low, fmt.minimum)
    ratio = (x - low) / np.where(scale == 0, 1, scale)
    numbers = np.sort(fmt.numbers.astype(np.float64))
    q = numbers[np.abs(ratio[..., None] - numbers).argmin(-1)]
    return np.asarray(((q * scale + low - x) ** 2).sum(axis=(2, 3)))


@pytest.mark.parametrize("name", NESTED_FORMATS)
def test_encode_of_nested_blocks(name: str) -> None:
    """No block is much worse than by a plain rule, and all of them are better: also where sub-blocks differ in size, or
    all elements have one sign."""
    rng = np.random.default_rng(4)
    values = rng.standard_normal((24, 512)).astype(np.float32)
    values[:6] *= rng.choice([0.01, 1, 50], (6, 512 // 32)).repeat(32, 1)
    values[1] = np.abs(values[1]) + 3
    values[2] = -np.abs(values[2]) - 3
    data = formats.encode(name, values)
    decoded = formats.decode(name, data, 512)
    assert np.isfinite(decoded).all()
    block = formats.get_format(name).block
    found = ((decoded.astype(np.float64) - values) ** 2).reshape(24, -1, block).sum(-1)
    plain = plain_error(name, values)
    assert (found <= 1.02 * plain).all()
    assert found[6:].sum() < 0.93 * plain[6:].sum()


@pytest.mark.parametrize("name", NESTED_FORMATS)
def test_encode_by_weights(name: str) -> None:
    """Errors of columns that count more are smaller, so that the weighted error is; weights may be of any size."""
    check_weights(name, 0.9)


@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl"])
def test_encode_of_simple_blocks_by_weights(name: str) -> None:
    check_weights(name, 0.9)


def check_weights(name: str, factor: float) -> None:
    rng = np.random.default_rng(5)
    values = rng.standard_normal((16, 512)).astype(np.float32)
    weights = np.exp(2 * rng.standard_normal(512)).astype(np.float32)

    def error(rows: np.ndarray) -> float:
        return float((weights * (formats.decode(name, rows, 512) - values).astype(np.float64) ** 2).sum())

    rows = formats.encode(name, values, weights=weights)
    assert error(rows) < factor * error(formats.encode(name, values))
    np.testing.assert_array_equal(formats.encode(name, values, weights=weights * np.float32(2.0**40)), rows)
    weights[::2] = 0
    assert np.isfinite(formats.decode(name, formats.encode(name, values, weights=weights), 512)).all()


def test_weights_that_are_none() -> None:
    values = np.ones((2, 256), np.float32)
    with pytest.raises(
        InputError, match=r"'weights' must be floats \[256\], one for each column, but are float32 \[255\]"
    ):
        formats.encode("q4_k", values, weights=np.ones(255, np.float32))
    for weights in (np.zeros(256), np.full(256, np.nan), np.full(256, -1.0), np.full(256, np.inf)):
        with pytest.raises(InputError, match="'weights' must be finite numbers of at least 0, not all of them 0"):
            formats.encode("q4_k", values, weights=weights.astype(np.float32))


@pytest.mark.parametrize("name", SIMPLE_FORMATS + NESTED_FORMATS)
def test_encode_edges(name: str) -> None:
    k = 2 * formats.get_format(name).block
    values = np.zeros((4, k), np.float32)
    values[1, ::3] = 1e-40  # subnormal
    values[2, ::2], values[2, 1::2] = 60000, -60000
    values[3, -1] = 60000
    decoded = formats.decode(name, formats.encode(name, values), k)
    assert not decoded[:2].any()
    np.testing.assert_allclose(decoded[2:], values[2:], atol=60000 * 2.1 / (1 << formats.get_format(name).bits))
    for value in (np.inf, -np.inf, np.nan):
        values[3, 5] = value
        with pytest.raises(InputError, match=rf"{name} holds finite values, but values\[3, 5\] is {value}"):
            formats.encode(name, values)
    values[3, 5] = 3e38
    with pytest.raises(InputError, match=rf"{name} has f16 scales, for which values\[3, 5\], .*e\+38, is too large"):
        formats.encode(name, values)


@pytest.mark.parametrize("name", ["mxfp4", "tq1_0", "tq2_0"])
@pytest.mark.quick(2)
def test_encode_of_other_public_rules_at_any_scale(name: str) -> None:
    """Bytes are the public encoder's, where its exponents aren't below 0, and its scales no subnormal f32."""
    random = np.random.default_rng(2).uniform(-1, 1, (4, 512)).astype(np.float32)
    random[:, 0], random[1] = 1, np.abs(random[1])
    for exponent in range(-124, 16):  # below, what numpy makes of its exponents depends on the processor
        values = np.ldexp(random, exponent).astype(np.float32)
        with np.errstate(all="ignore"):
            public = gguf.quantize(values, GGMLQuantizationType[name.upper()])
        np.testing.assert_array_equal(formats.encode(name, values), public)
    least = np.full((1, 512), 2.0**-140, np.float32)
    assert np.abs(formats.decode(name, formats.encode(name, least), 512)).max() <= 2.0**-128


@pytest.mark.parametrize(
    ("name", "bound", "rms"), [("iq4_nl", 0.14, 0.08), ("mxfp4", 0.26, 0.12), ("q8_k", 0.0041, 0.008)]
)
def test_encode_of_tables_is_close(name: str, bound: float, rms: float) -> None:
    """The largest error by the block's largest element; the mean one of normal numbers; never worse by scaling."""
    rng = np.random.default_rng(5)
    values = rng.standard_normal((32, 512)).astype(np.float32)
    errors = []
    for factor in (1.0, 2.0**-10, 2.0**8):
        own = values * np.float32(factor)
        decoded = formats.decode(name, formats.encode(name, own), 512)
        block = formats.get_format(name).block
        most = np.abs(own).reshape(32, -1, block).max(axis=-1, keepdims=True)
        assert (np.abs(decoded - own).reshape(32, -1, block) <= bound * most).all()
        errors.append(float(np.sqrt(np.mean(np.square(decoded - own)))) / factor)
    assert max(errors) < rms
    np.testing.assert_allclose(errors, errors[0], rtol=0.02)
    for constant in (0.0, 1e-45, -3.0, 2.0):
        same = np.full((2, 256), constant, np.float32)
        decoded = formats.decode(name, formats.encode(name, same), 256)
        np.testing.assert_allclose(decoded, same, rtol=0.2 if name == "mxfp4" else 0.001, atol=1e-38)


def test_encode_iq4_nl_beats_the_plain_scale() -> None:
    """The one that maps the largest element to -127 is among those tried."""
    values = np.random.default_rng(6).standard_normal((64, 32)).astype(np.float32)
    table = formats.get_format("iq4_nl").numbers.astype(np.float32)
    largest = np.take_along_axis(values, np.abs(values).argmax(axis=1, keepdims=True), 1)
    d = (largest / -127).astype(np.float16).astype(np.float32)
    plain = (np.abs(values[..., None] - d[..., None] * table).min(axis=-1) ** 2).sum(axis=1)
    found = ((formats.decode("iq4_nl", formats.encode("iq4_nl", values), 32) - values) ** 2).sum(axis=1)
    assert (found <= plain * (1 + 1e-5)).all()
    assert found.sum() < 0.95 * plain.sum()


def test_encode_q8_k_by_its_definition() -> None:
    values = np.random.default_rng(7).standard_normal((5, 512)).astype(np.float32)
    values[0, :256] = 0
    blocks = formats.encode("q8_k", values).reshape(5, 2, 292)
    q = blocks[..., 4:260].view(np.int8).astype(np.int64)
    np.testing.assert_array_equal(blocks[..., 260:].copy().view("<i2"), q.reshape(5, 2, 16, 16).sum(axis=-1))
    d = blocks[..., :4].copy().view("<f4")
    assert (np.abs(d * q - values.reshape(5, 2, 256)) <= np.abs(d) * 0.5001).all()
    filled = np.abs(q).max(axis=-1)
    assert filled[0, 0] == 0 == d[0, 0, 0]
    assert (filled.reshape(-1)[1:] == 127).all()
    for name in ("q8_k", "iq4_nl", "mxfp4", "tq2_0"):
        with pytest.raises(InputError, match=rf"{name} holds finite values, but values\[1, 3\] is nan"):
            formats.encode(name, np.where(np.arange(512).reshape(2, 256) == 259, np.nan, 0).astype(np.float32))
    for name in ("iq4_nl", "tq1_0"):
        with pytest.raises(InputError, match=rf"{name} has f16 scales, for which values\[0, 9\], .* is too large"):
            formats.encode(name, np.eye(1, 256, 9, dtype=np.float32) * np.float32(1e30))


def panels_by_definition(name: str, rows: np.ndarray, k: int) -> np.ndarray:
    """The layout's definition, number by number."""
    fmt = formats.get_format(name)
    n = rows.shape[0]
    padded = np.zeros((-(-n // 16) * 16, rows.shape[1]), np.uint8)
    padded[:n] = rows
    floats = [field for field in fmt.fields if field.dtype == "<f2"]
    ones = padded.reshape(padded.shape[0], -1, fmt.nbytes).copy()
    for field in floats:
        ones[..., field.offset : field.offset + 2] = np.ones(1, "<f2").view(np.uint8)
    integers, scales, minima = formats.quant_parts(name, ones.reshape(padded.shape), k)
    u = integers + (128 if name == "q8_0" else fmt.offset)
    nested = fmt.sub < fmt.block
    tables = [scales.astype(np.int64)]  # with d = dmin = 1: the integers S, and -M
    if minima is not None:
        tables.append(-minima.astype(np.int64))
    if name == "q2_k":
        tables = [tables[0] | tables[1] << 4]
    u[n:] = 0
    parts: list[np.ndarray] = []
    for panel, b in np.ndindex(padded.shape[0] // 16, k // fmt.block):
        own = slice(16 * panel, 16 * panel + 16)
        raw = padded[own, b * fmt.nbytes : (b + 1) * fmt.nbytes]
        parts += [raw[:, field.offset : field.offset + 2] for field in floats]
        for table in tables if nested else []:
            for s in range(b * fmt.block // fmt.sub, (b + 1) * fmt.block // fmt.sub):
                exists = np.arange(16 * panel, 16 * panel + 16) < n
                parts.append((table[own, s] * exists).astype(np.int8).view(np.uint8))
        for run in range(b * fmt.block, (b + 1) * fmt.block, 32):
            into = 0
            for width in (8, 4, 2, 1):
                if not fmt.bits & width:
                    continue
                for dword in range(width):
                    total = np.zeros((16, 4), np.int64)
                    for i in range(8 // width):
                        first = run + 4 * (8 // width * dword + i)
                        total |= ((u[own, first : first + 4] >> into) & ((1 << width) - 1)) << (width * i)
                    parts.append(total.astype(np.uint8))
                into += width
    return np.concatenate([part.reshape(-1) for part in parts]).reshape(padded.shape[0] // 16, -1)


@pytest.mark.parametrize("name", [*SIMPLE_FORMATS, *NESTED_FORMATS, "tq2_0"])
@pytest.mark.parametrize("n", [1, 16, 35])
def test_panels_follow_their_definition(name: str, n: int) -> None:
    k = max(96, 2 * formats.get_format(name).block)
    rows = random_rows(name, n, k)
    panels = formats.pack_panels(name, rows, k)
    assert panels.shape == (-(-n // 16), formats.panel_bytes(name, k))
    np.testing.assert_array_equal(panels, panels_by_definition(name, rows, k))


@pytest.mark.parametrize("name", PANEL_FORMATS + DENSE_PANEL_FORMATS)
@pytest.mark.parametrize("n", [1, 15, 16, 17, 64])
def test_unpack_is_the_inverse(name: str, n: int) -> None:
    """Of tq1_0 that of the values: several bytes stand for the same digits."""
    k = 2 * max(32, formats.get_format(name).block)
    rows = random_rows(name, n, k)
    again = formats.unpack_panels(name, formats.pack_panels(name, rows, k), k, n)
    if name == "tq1_0":
        again, rows = (bits(formats.decode(name, own, k)) for own in (again, rows))
    np.testing.assert_array_equal(again, rows)


@pytest.mark.parametrize("name", PANEL_FORMATS)
def test_panels_in_chunks_equal_panels_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    k = max(64, formats.get_format(name).block)
    rows = random_rows(name, 100, k)
    at_once = formats.pack_panels(name, rows, k)
    monkeypatch.setattr(formats.panels, "CHUNK", 1024)
    np.testing.assert_array_equal(formats.pack_panels(name, rows, k), at_once)


@pytest.mark.parametrize("name", PANEL_FORMATS)
def test_panel_layout_says_how_to_decode(name: str) -> None:
    """Random bits, read by the numbers of the layout alone, are the decoded rows bit for bit."""
    size = formats.panel_layout(name).float_bytes
    layout = formats.panel_layout(name)
    k = 2 * layout.block
    rows = random_rows(name, 16, k, seed=2)
    blocks = formats.pack_panels(name, rows, k).reshape(2, layout.block_bytes)

    def factor(block: np.ndarray, what: formats.Factor) -> np.ndarray:
        raw = block[16 * size * what.number :][: 16 * size * (layout.floats if what.each else 1)]
        table = BYTE_FLOATS.get(layout.float_type)
        value = raw.view(layout.float_type).astype(np.float32) if table is None else table[raw]
        value = value.reshape(-1, 16) * np.float32(layout.unit)
        if what.at is None:
            return what.sign * value
        integers = block[what.at : what.at + 16 * layout.subs].reshape(-1, 16)
        if what.bits == 8:
            return what.sign * value * integers.view(np.int8).astype(np.float32)
        return what.sign * value * ((integers >> what.shift) & ((1 << what.bits) - 1)).astype(np.float32)

    decoded = np.zeros((16, k), np.float32)
    for b, block in enumerate(blocks):
        u = np.zeros((layout.block, 16), np.int64)
        for e in range(layout.block):
            run = block[layout.payload + e // 32 * layout.run_bytes :][: layout.run_bytes].reshape(-1, 16, 4)
            quad, first, into = e % 32 // 4, 0, 0
            for width in layout.widths:
                part = run[first + quad // (8 // width), :, e % 4] >> (width * (quad % (8 // width)))
                u[e] |= (part.astype(np.int64) & ((1 << width) - 1)) << into
                first, into = first + width, into + width
        own = np.array(layout.table)[u] if layout.table else u
        values = (own - layout.bias).astype(np.float32).reshape(layout.subs, layout.sub, 16)
        assert layout.scale is not None
        with np.errstate(all="ignore"):
            values = values * factor(block, layout.scale)[:, None]
            if layout.minimum is not None:
                values = values + factor(block, layout.minimum)[:, None]
        decoded[:, b * layout.block : (b + 1) * layout.block] = values.reshape(-1, 16).T
    np.testing.assert_array_equal(bits(decoded), bits(formats.decode(name, rows, k)))


def test_which_formats_have_panels() -> None:
    assert sorted(formats.PANEL_FORMATS) == sorted(PANEL_FORMATS + DENSE_PANEL_FORMATS)
    size = {
        name: 8 * formats.panel_layout(name).block_bytes / 16 / formats.panel_layout(name).block
        for name in PANEL_FORMATS
    }
    assert size == {
        "q4_0": 4.5,
        "q4_1": 5,
        "q5_0": 5.5,
        "q5_1": 6,
        "q8_0": 8.5,
        "q2_k": 2.625,
        "q3_k": 3.5625,
        "q4_k": 4.625,
        "q5_k": 5.625,
        "q6_k": 6.5625,
        "iq1_s": 3.3125,
        "iq1_m": 3.5625,
        "iq2_xxs": 3.3125,
        "iq2_xs": 3.5625,
        "iq2_s": 3.5625,
        "iq3_xxs": 4.3125,
        "iq3_s": 4.3125,
        "iq4_nl": 4.5,
        "iq4_xs": 4.3125,
        "tq1_0": 2.0625,
        "tq2_0": 2.0625,
        "mxfp4": 4.25,
        "nvfp4": 4.5,
        "q1_0": 1.125,
    }


@pytest.mark.parametrize("name", PANEL_FORMATS + DENSE_PANEL_FORMATS)
def test_the_dialect_has_the_same_sizes(name: str) -> None:
    """The type that mir.repack infers is the shape that packing gives."""
    fmt = formats.get_format(name)
    with ir.new_context():
        for n, k in itertools.product((1, 16, 35), (fmt.block, 6 * fmt.block)):
            if fmt.dense is None:
                rows = f"tensor<{n}x{fmt.row_bytes(k)}xi8, #mir.packed<{name}, k = {k}>>"
            else:
                rows = f"tensor<{n}x{k}x{name}>"
            text = f"func.func @f(%w: {rows}) {{\n  %p = mir.repack %w : {rows}\n  return\n}}"
            module = ir.Module.parse(text)
            repack = module.body.operations[0].regions[0].blocks[0].operations[0]
            data = np.zeros((n, fmt.row_bytes(k)), np.uint8)
            assert tuple(repack.results[0].type.shape) == formats.pack_panels(name, data, k).shape


@pytest.mark.parametrize("name", DENSE_PANEL_FORMATS)
def test_dense_panels_are_k_by_16(name: str) -> None:
    dtype = formats.get_format(name).dense
    assert dtype is not None
    elements = np.arange(17 * 5, dtype=np.float32).reshape(17, 5).astype(dtype)
    panels = formats.pack_panels(name, elements, 5).view(dtype).reshape(2, 5, 16)
    np.testing.assert_array_equal(panels[0].T, elements[:16])
    np.testing.assert_array_equal(panels[1, :, 0], elements[16])
    assert not panels[1, :, 1:].astype(np.float32).any()


def test_errors_name_rule_and_values() -> None:
    rows = random_rows("q4_0", 2, 64)
    with pytest.raises(InputError, match="'k' must be a positive multiple of the q4_0 block, 32, but is 33"):
        formats.decode("q4_0", rows, 33)
    with pytest.raises(InputError, match="'k' must be a positive multiple of the q4_0 block, 32, but is 0"):
        formats.panel_bytes("q4_0", 0)
    with pytest.raises(InputError, match=r"a q4_0 row of k = 32 has 18 bytes, but the rows have 36"):
        formats.decode("q4_0", rows, 32)
    with pytest.raises(InputError, match=r"q4_0 rows must be uint8 \[rows, 36\], but are float32 \[2, 36\]"):
        formats.decode("q4_0", rows.astype(np.float32), 64)
    with pytest.raises(InputError, match="unknown weight format 'q9_9', known are f32, f16, q4_0"):
        formats.get_format("q9_9")
    with pytest.raises(UnsupportedError, match="decoding of q8_1 is not implemented"):
        formats.decode("q8_1", np.zeros((1, 40), np.uint8), 32)
    with pytest.raises(UnsupportedError, match="no panels layout is defined for q8_k"):
        formats.pack_panels("q8_k", np.zeros((1, 292), np.uint8), 256)
    with pytest.raises(UnsupportedError, match="encoding to i8 is not implemented"):
        formats.encode("i8", np.zeros((1, 256), np.float32))
    with pytest.raises(UnsupportedError, match="no planes layout is defined for iq4_nl"):
        formats.pack_planes("iq4_nl", np.zeros((1, 18), np.uint8), 32)
    with pytest.raises(
        InputError, match=r"q4_0 panels of k = 64, n = 17 are uint8 \[2, 576\], but these are uint8 \[1, 576\]"
    ):
        formats.unpack_panels("q4_0", np.zeros((1, 576), np.uint8), 64, 17)
