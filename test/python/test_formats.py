# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Block formats against the public `gguf` package, bit for bit, and panels against their definition."""

from __future__ import annotations

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from rlx_mlir import formats
from rlx_mlir.errors import InputError, UnsupportedError

BLOCK_FORMATS = [f.name for f in formats.FORMATS.values() if f.quants]
PANEL_FORMATS = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"]
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
        end += field.count * np.dtype(field.dtype).itemsize
    assert end == fmt.nbytes
    assert sum(plane.bits for plane in fmt.quants) == fmt.bits
    assert all(plane.count == fmt.block for plane in fmt.quants)


@pytest.mark.parametrize("name", [n for n in BLOCK_FORMATS if n != "q8_k"])
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (37, 3)])
def test_decode_equals_the_public_decoder(name: str, rows: int, blocks: int) -> None:
    k = blocks * formats.get_format(name).block
    data = random_rows(name, rows, k)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(data, GGMLQuantizationType[name.upper()])
    actual = formats.decode(name, data, k)
    assert actual.dtype == np.float32
    np.testing.assert_array_equal(bits(actual), bits(expected))


def test_decode_q8_k() -> None:
    data = random_rows("q8_k", 3, 512)
    blocks = data.reshape(3, 2, 292)
    scale = blocks[..., :4].copy().view("<f4")
    with np.errstate(all="ignore"):
        expected = scale * blocks[..., 4:260].view(np.int8).astype(np.float32)
    np.testing.assert_array_equal(bits(formats.decode("q8_k", data, 512)), bits(expected.reshape(3, 512)))


def test_decode_in_chunks_equals_decode_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_rows("q4_1", 50, 64)
    at_once = formats.decode("q4_1", data, 64)
    monkeypatch.setattr(formats, "_DECODE_CHUNK", 192)
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


@pytest.mark.parametrize("name", PANEL_FORMATS)
def test_encode_equals_the_public_encoder(name: str) -> None:
    values = np.random.default_rng(1).standard_normal((5, 96)).astype(np.float32)
    values[0, :32] = 0
    np.testing.assert_array_equal(
        formats.encode(name, values), gguf.quantize(values, GGMLQuantizationType[name.upper()])
    )


def panels_by_definition(name: str, rows: np.ndarray, k: int) -> np.ndarray:
    """The layout's definition, element by element."""
    n, parts = rows.shape[0], []
    block = formats.get_format(name).nbytes
    minimum, high, signed = name.endswith("_1"), name.startswith("q5"), name == "q8_0"

    def value(raw: np.ndarray, element: int) -> int:
        if signed:
            return (int(raw[2 + element]) + 128) % 256
        start = 4 if minimum else 2
        fifth = 0
        if high:
            fifth = raw[start + element // 8] >> (element % 8) & 1
            start += 4
        return int(raw[start + element % 16] >> (0 if element < 16 else 4) & 15) + 16 * int(fifth)

    for panel in range(-(-n // 16)):
        for b in range(k // 32):
            zero = np.zeros(block, np.uint8)
            raws = [rows[r, b * block : (b + 1) * block] if r < n else zero for r in range(16 * panel, 16 * panel + 16)]
            exists = [r < n for r in range(16 * panel, 16 * panel + 16)]
            parts += [raw[:2] for raw in raws]
            if minimum:
                parts += [raw[2:4] for raw in raws]
            for c in range(8 if high or signed else 4):
                for raw, there in zip(raws, exists, strict=True):
                    if high or signed:
                        dword = [value(raw, 4 * c + j) for j in range(4)]
                    else:
                        dword = [value(raw, 8 * c + j) | value(raw, 8 * c + 4 + j) << 4 for j in range(4)]
                    parts.append(np.array(dword, np.uint8) * there)
    return np.concatenate(parts).reshape(-(-n // 16), -1)


@pytest.mark.parametrize("name", PANEL_FORMATS)
@pytest.mark.parametrize("n", [1, 16, 35])
def test_panels_follow_their_definition(name: str, n: int) -> None:
    rows = random_rows(name, n, 96)
    panels = formats.pack_panels(name, rows, 96)
    assert panels.shape == (-(-n // 16), formats.panel_bytes(name, 96))
    np.testing.assert_array_equal(panels, panels_by_definition(name, rows, 96))


@pytest.mark.parametrize("name", PANEL_FORMATS + DENSE_PANEL_FORMATS)
@pytest.mark.parametrize("n", [1, 15, 16, 17, 64])
def test_unpack_is_the_inverse(name: str, n: int) -> None:
    rows = random_rows(name, n, 64)
    np.testing.assert_array_equal(formats.unpack_panels(name, formats.pack_panels(name, rows, 64), 64, n), rows)


@pytest.mark.parametrize("name", PANEL_FORMATS)
def test_panels_in_chunks_equal_panels_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(name, 100, 64)
    at_once = formats.pack_panels(name, rows, 64)
    monkeypatch.setattr(formats, "_DECODE_CHUNK", 1024)
    np.testing.assert_array_equal(formats.pack_panels(name, rows, 64), at_once)


@pytest.mark.parametrize("name", PANEL_FORMATS)
def test_panel_value_is_d_times_unsigned_minus_bias(name: str) -> None:
    rows = formats.encode(name, np.random.default_rng(2).standard_normal((16, 32)).astype(np.float32))
    layout = formats.panel_layout(name)
    panel = formats.pack_panels(name, rows, 32)[0]
    d = panel[:32].view("<f2").astype(np.float32)
    m = panel[32:64].view("<f2").astype(np.float32) if "m" in layout.floats else np.zeros(16, np.float32)
    integers = panel[32 * len(layout.floats) :].reshape(-1, 16, 4)
    if layout.nibbles:
        integers = np.stack([integers & 15, integers >> 4], axis=1).reshape(-1, 16, 4)
    u = integers.transpose(1, 0, 2).reshape(16, 32).astype(np.float32)
    values = d[:, None] * (u - layout.bias) + m[:, None]
    np.testing.assert_array_equal(values, formats.decode(name, rows, 32))


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
    with pytest.raises(UnsupportedError, match="decoding of iq2_xs is not implemented"):
        formats.decode("iq2_xs", np.zeros((1, 74), np.uint8), 256)
    with pytest.raises(UnsupportedError, match="no panels layout is defined for q4_k"):
        formats.pack_panels("q4_k", np.zeros((1, 144), np.uint8), 256)
    with pytest.raises(UnsupportedError, match="encoding to q4_k is not implemented"):
        formats.encode("q4_k", np.zeros((1, 256), np.float32))
    with pytest.raises(
        InputError, match=r"q4_0 panels of k = 64, n = 17 are uint8 \[2, 576\], but these are uint8 \[1, 576\]"
    ):
        formats.unpack_panels("q4_0", np.zeros((1, 576), np.uint8), 64, 17)
