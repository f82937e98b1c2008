# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The layout of weights for GPUs: against its definition, element by element, and as weights of compiled modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_mlir import GraphModule, emit, formats, interpret, ir
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import InputError, UnsupportedError
from rlx_mlir.formats import BlockFormat, Field, Plane, Scaled
from rlx_mlir.mir.packed import PackedWeight
from rlx_mlir.runtime.prepare import OPERATIONS

#: Formats of users: an f32 scale and 3 bits, nested scales that share a byte, a scale for 16 beside a plain minimum.
OWN = (
    BlockFormat(
        "planes_three",
        None,
        64,
        28,
        fields=(Field("d", "<f4", 0), Field("low", "u1", 4, 16), Field("high", "u1", 20, 8)),
        quants=(
            Plane("low", (16, 4), (1, 0), (0, 2), bits=2),
            Plane("high", (8, 8), (1, 0), (0, 1), bits=1, into=2),
        ),
        offset=4,
        sub=64,
        scale=Scaled("d"),
    ),
    BlockFormat(
        "planes_nested",
        None,
        64,
        56,
        fields=(Field("d", "<f2", 0), Field("m", "<f2", 2), Field("factors", "u1", 4, 4), Field("q", "u1", 8, 48)),
        quants=(
            Plane("q", (32, 2), (1, 0), (0, 4), bits=4),
            Plane("q", (16, 4), (1, 0), (0, 2), bits=2, into=4, byte0=32),
        ),
        sub=16,
        scale=Scaled("d", (Plane("factors", (4,), (1,), (0,), bits=4),)),
        minimum=Scaled("m", (Plane("factors", (4,), (1,), (0,), bits=4, shift0=4),)),
    ),
    BlockFormat(
        "planes_plain",
        None,
        32,
        14,
        fields=(Field("d", "<f2", 0), Field("m", "<f2", 2), Field("s", "i1", 4, 2), Field("q", "u1", 6, 8)),
        quants=(Plane("q", (8, 4), (1, 0), (0, 2), bits=2),),
        offset=1,
        sub=16,
        scale=Scaled("d", (Plane("s", (2,), (1,), (0,), bits=8),), signed=True),
        minimum=Scaled("m"),
        minimum_sign=-1,
    ),
)
NAMES = [*formats.PLANE_FORMATS, *(fmt.name for fmt in OWN)]
QUANTISED = [name for name in NAMES if name not in ("f32", "f16", "bf16")]

TABLES: tuple[dict[Any, BlockFormat], ...] = (formats.FORMATS, formats.FORMATS_BY_ID, formats.registry._registered)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    """Registers the formats; afterwards Python forgets them, as keys of caches name those that there are."""
    before = [dict(table) for table in TABLES]
    for fmt in OWN:
        formats.register_format(fmt)
    yield
    for table, old in zip(TABLES, before, strict=True):
        table.clear()
        table.update(old)


def length(name: str, blocks: int) -> int:
    return blocks * max(formats.get_format(name).block, 1)


def random_rows(name: str, n: int, k: int, seed: int = 0) -> np.ndarray:
    """Random bytes with ordinary scales; bits that no value depends on are zero."""
    rng = np.random.default_rng([seed, n, k])
    fmt = formats.get_format(name)
    if fmt.dense is not None:
        return rng.standard_normal((n, k)).astype(fmt.dense).view(np.uint8).reshape(n, -1)
    rows = rng.integers(0, 256, (n, fmt.row_bytes(k)), np.uint8)
    blocks = rows.reshape(n, -1, fmt.nbytes)
    used = {part.field for part in fmt.factors} | {
        plane.field for planes in (fmt.quants, *(part.planes for part in fmt.factors)) for plane in planes
    }
    for field in fmt.fields:
        size = field.count * np.dtype(field.dtype).itemsize
        part = blocks[..., field.offset : field.offset + size]
        if field.name not in used:
            part[:] = 0
        elif field.dtype in ("<f2", "<f4"):
            part[:] = rng.uniform(-0.5, 0.5, (*part.shape[:2], 1)).astype(field.dtype).view(np.uint8)
    return rows


def decode_by_definition(name: str, row: np.ndarray, k: int) -> np.ndarray:
    """The values of one row in planes, by the words of `formats.planes`, one element at a time."""
    fmt, position = formats.get_format(name), 0

    def take(count: int, size: int) -> bytes:
        nonlocal position
        start, position = position, position + -(-count * size // 16) * 16
        assert not row[start + count * size : position].any(), "padding is zero"
        return row[start : start + count * size].tobytes()

    if fmt.dense is not None:
        return np.frombuffer(take(k, fmt.nbytes), fmt.dense).astype(np.float32)
    q, into = [0] * k, 0
    for width in (8, 4, 2, 1):
        if not fmt.bits & width:
            continue
        if width == 8:
            first, last = take(k // 32, 16), take(k // 32, 16)
            for e in range(k):
                q[e] = (first if e % 32 < 16 else last)[e // 32 * 16 + e % 16]
        else:
            plane = take(k // 32, 4 * width)
            for e in range(k):
                quad, j = e % 32 // 4, e % 4
                byte = plane[e // 32 * 4 * width + quad // (8 // width) * 4 + j]
                q[e] |= ((byte >> (quad % (8 // width) * width)) & ((1 << width) - 1)) << into
        into += width
    parts = [part for part in (fmt.scale, fmt.minimum) if part is not None]
    nested = [part for part in parts if part.planes]
    shared = len(nested) == 2 and all(part.bits <= 4 and not part.signed and not part.offset for part in nested)
    record = 1 if shared else len(nested)
    integers = take(k // fmt.sub, record) if nested else b""
    dtype = np.dtype(fmt.field(parts[0].field).dtype)
    floats = np.frombuffer(take(k // fmt.block, dtype.itemsize * len(parts)), dtype).astype(np.float32)
    assert position == len(row)
    values = np.zeros(k, np.float32)
    for e in range(k):
        factors = []
        for number, part in enumerate(parts):
            factor = floats[e // fmt.block * len(parts) + number]
            if part.planes:
                byte = integers[e // fmt.sub * record + (0 if shared else nested.index(part))]
                integer = (byte >> (4 * nested.index(part))) & 15 if shared else int(np.int8(np.uint8(byte)))
                factor = factor * np.float32(integer)
            factors.append(factor)
        stored = int(np.int8(np.uint8(q[e]))) if fmt.signed else q[e]
        values[e] = factors[0] * np.float32(stored - fmt.offset)
        if len(factors) == 2:
            values[e] = values[e] + factors[1] if fmt.minimum_sign > 0 else values[e] - factors[1]
    return values


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("blocks", [1, 3])
def test_planes_follow_their_definition(name: str, blocks: int) -> None:
    k = length(name, blocks)
    rows = random_rows(name, 2, k)
    planes = formats.pack_planes(name, rows, k)
    assert planes.shape == (2, formats.planes_row_bytes(name, k))
    assert planes.shape[1] % 16 == 0
    for row, values in zip(planes, formats.decode(name, rows, k), strict=True):
        np.testing.assert_array_equal(decode_by_definition(name, row, k), values)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(NAMES), n=st.integers(1, 9), blocks=st.integers(1, 9), seed=st.integers(0, 99))
def test_planes_hold_the_rows(name: str, n: int, blocks: int, seed: int) -> None:
    k = length(name, blocks)
    rows = random_rows(name, n, k, seed)
    planes = formats.pack_planes(name, rows, k)
    np.testing.assert_array_equal(formats.unpack_planes(name, planes, k), rows)
    np.testing.assert_array_equal(formats.pack_planes(name, rows[-1:], k), planes[-1:])  # rows stand alone


def test_no_rows() -> None:
    planes = formats.pack_planes("q4_k", np.zeros((0, 144), np.uint8), 256)
    assert planes.shape == (0, 160)
    assert formats.unpack_planes("q4_k", planes, 256).shape == (0, 144)


@pytest.mark.parametrize("name", ["q4_k", "q8_0", "bf16"])
def test_planes_in_chunks_equal_planes_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    k = length(name, 2)
    rows = random_rows(name, 9, k)
    at_once = formats.pack_planes(name, rows, k)
    monkeypatch.setattr(formats.planes, "CHUNK", k)
    np.testing.assert_array_equal(formats.pack_planes(name, rows, k), at_once)
    np.testing.assert_array_equal(formats.unpack_planes(name, at_once, k), rows)


def test_every_plane_begins_at_a_multiple_of_16_bytes() -> None:
    for name in NAMES:
        layout = formats.plane_layout(name)
        for blocks in range(1, 9):
            k = length(name, blocks)
            assert all(start % 16 == 0 for start in (*layout.offsets(k), layout.row_bytes(k)))


def test_sizes_beside_those_of_files() -> None:
    """Only scales and minima of 6 bits, which take bytes, cost memory."""
    k = 4096
    larger = {
        name: formats.planes_row_bytes(name, k) / formats.get_format(name).row_bytes(k)
        for name in formats.PLANE_FORMATS
    }
    assert max(larger.values()) < 1.04
    assert [name for name, ratio in larger.items() if ratio > 1] == ["q3_k", "q4_k", "q5_k"]


def test_formats_without_planes() -> None:
    odd = BlockFormat(
        "planes_odd",
        None,
        6,
        5,
        fields=(Field("d", "<f2", 0), Field("q", "u1", 2, 3)),
        quants=(Plane("q", (2, 3), (0, 1), (4, 0), bits=4),),
        scale=Scaled("d"),
    )
    with pytest.raises(UnsupportedError, match="no planes layout is defined for planes_odd"):
        formats.plane_layout(odd)
    with pytest.raises(UnsupportedError, match="no planes layout is defined for iq4_nl"):
        formats.pack_planes("iq4_nl", np.zeros((1, 18), np.uint8), 32)


def test_errors_of_shape() -> None:
    with pytest.raises(InputError, match=r"q4_0 planes of k = 64 are uint8 \[n, 48\], but these are uint8 \[1, 36\]"):
        formats.unpack_planes("q4_0", np.zeros((1, 36), np.uint8), 64)
    with pytest.raises(InputError, match=r"q4_0 planes of k = 64, n = 1 are uint8 \[1, 48\]"):
        PackedWeight("q4_0", 64, 1, "planes", np.zeros((1, 36), np.uint8))


@pytest.mark.parametrize("name", NAMES)
def test_types_have_the_sizes(name: str) -> None:
    k = length(name, 3)
    rows = f"tensor<5x{formats.get_format(name).row_bytes(k)}xi8, #mir.packed<{name}, k = {k}>>"
    planes = f"tensor<5x{formats.planes_row_bytes(name, k)}xi8, #mir.packed<{name}, k = {k}, layout = planes>>"
    with ir.new_context():
        text = f"func.func @f(%w: {rows}) {{\n  %p = mir.repack %w layout planes : {rows}\n  return\n}}"
        module = ir.Module.parse(text)
        repack = module.body.operations[0].regions[0].blocks[0].operations[0]
        assert str(repack.results[0].type) == planes


@pytest.mark.parametrize("name", QUANTISED)
def test_references_take_planes(name: str) -> None:
    k = length(name, 2)
    weight = PackedWeight(name, k, 5, "rows", random_rows(name, 5, k))
    planes = weight.repacked("planes")
    np.testing.assert_array_equal(planes.dequantize(), weight.dequantize())
    np.testing.assert_array_equal(planes.take(np.array([[4, 0]])), weight.take(np.array([[4, 0]])))
    np.testing.assert_array_equal(planes.parts().integers, weight.parts().integers)
    if formats.get_format(name).has_panels:
        np.testing.assert_array_equal(planes.repacked("panels").bytes, weight.repacked("panels").bytes)


def test_planes_of_modules() -> None:
    """A module that packs by itself, in the interpreter: product and look-up read one weight."""
    m = GraphModule.mir("planes")
    x, ids, w = m.input("x", [3, 512]), m.input("ids", [2], "i32"), m.param("w", [7, 512], packed="q4_k")
    planes = m.repack(w, layout="planes")
    m.set_outputs({"y": m.dequant_matmul(x, planes), "rows": m.gather(planes, ids), "z": m.dequant_matmul(x, w)})
    rows = random_rows("q4_k", 7, 512)
    values = {"x": np.random.default_rng(0).standard_normal((3, 512)).astype(np.float32), "ids": np.array([6, 2], "i4")}
    found = interpret(m, {**values, "w": rows})
    np.testing.assert_array_equal(found["y"], found["z"])
    np.testing.assert_array_equal(found["rows"], formats.decode("q4_k", rows, 512)[[6, 2]])


def test_preparation_packs_planes() -> None:
    rows = random_rows("q6_k", 4, 256)
    packed = OPERATIONS["repack"](rows.view(np.int8), scheme="q6_k", k=256, layout="planes")
    np.testing.assert_array_equal(packed.view(np.uint8), formats.pack_planes("q6_k", rows, 256))
    dense = np.random.default_rng(1).standard_normal((3, 5)).astype(DTYPES["f16"])
    packed = OPERATIONS["repack"](dense, scheme="f16", k=5, layout="planes")
    np.testing.assert_array_equal(packed[:, :10].copy().view(np.float16), dense)


def test_compiled_modules_pack_planes_for_gpus() -> None:
    m = GraphModule.hir("planes")
    x, ids, w = m.input("x", ["rows", 64]), m.input("ids", ["rows"], "i32"), m.param("w", [7, 64], packed="q4_1")
    m.set_outputs({"y": m.dequant_matmul(x, w), "rows": m.gather(w, ids)})
    text = emit(m, "kernels", target="nvptx")
    planes = "tensor<7x48xi8, #mir.packed<q4_1, k = 64, layout = planes>>"
    assert text.count("mir.repack") == 1
    assert "layout planes" in text
    assert f'-> ({planes} {{mir.name = "w:planes"}})' in text
    assert f"mir.gather %arg0, %arg1 axis 0 : {planes}" in text
