# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Block formats of users: one declaration, from which everything follows; and mistakes in declarations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compile_harness import Program, check, compile_fresh, templates_of
from documents import blocks, run_python

from rlx_mlir import GraphModule, formats, interpret, ir
from rlx_mlir.errors import BuildError, InputError, RlxError, UnsupportedError
from rlx_mlir.formats import BlockFormat, Field, Plane, Scaled, Trits
from rlx_mlir.runtime.cache import cache_key

#: Each is declared once here; names are for the whole process, so they begin with `own_`.
OWN = {
    fmt.name: fmt
    for fmt in (
        # Pairs of neighbours in a byte, the scale last.
        BlockFormat(
            "own_pairs",
            None,
            32,
            18,
            fields=(Field("pairs", "u1", 0, 16), Field("d", "<f2", 16)),
            quants=(Plane("pairs", (16, 2), (1, 0), (0, 4), bits=4),),
            offset=8,
            scale=Scaled("d"),
        ),
        # 3 bits in two planes, 7 bits of which none is the highest, an f32 scale: no panels.
        BlockFormat(
            "own_three",
            None,
            64,
            28,
            fields=(Field("d", "<f4", 0), Field("low", "u1", 4, 16), Field("high", "u1", 20, 8)),
            quants=(
                Plane("low", (16, 4), (1, 0), (0, 2), bits=2),
                Plane("high", (8, 8), (1, 0), (0, 1), bits=1, into=2),
            ),
            offset=4,
            scale=Scaled("d"),
        ),
        # Sub-blocks of 16 with scales and minima of 4 bits each: they share a byte in panels.
        BlockFormat(
            "own_nested",
            None,
            64,
            72,
            fields=(
                Field("d", "<f2", 0),
                Field("m", "<f2", 2),
                Field("factors", "u1", 4, 4),
                Field("q", "u1", 8, 64),
            ),
            quants=(Plane("q", (64,), (1,), (0,), bits=6),),
            sub=16,
            scale=Scaled("d", (Plane("factors", (4,), (1,), (0,), bits=4),)),
            minimum=Scaled("m", (Plane("factors", (4,), (1,), (0,), bits=4, shift0=4),)),
            minimum_sign=1,
        ),
        # A block that isn't a multiple of 32, of an odd number of bytes: no integer products.
        BlockFormat(
            "own_odd",
            None,
            6,
            5,
            fields=(Field("d", "<f2", 0), Field("q", "u1", 2, 3)),
            quants=(Plane("q", (2, 3), (0, 1), (4, 0), bits=4),),
            offset=8,
            scale=Scaled("d"),
        ),
        # Bits without sign or offset, and a byte that means nothing: no quantiser.
        BlockFormat(
            "own_bits",
            None,
            32,
            7,
            fields=(Field("d", "<f2", 0), Field("unused", "u1", 2), Field("q", "u1", 3, 4)),
            quants=(Plane("q", (4, 8), (1, 0), (0, 1), bits=1),),
            scale=Scaled("d"),
        ),
        # Integers that don't fit into a signed byte.
        BlockFormat(
            "own_bytes",
            None,
            32,
            36,
            fields=(Field("d", "<f2", 0), Field("m", "<f2", 2), Field("q", "u1", 4, 32)),
            quants=(Plane("q", (32,), (1,), (0,), bits=8),),
            scale=Scaled("d"),
            minimum=Scaled("m"),
        ),
    )
}
PANELS = ["own_pairs", "own_nested", "own_bits"]


TABLES: tuple[dict[Any, BlockFormat], ...] = (formats.FORMATS, formats.FORMATS_BY_ID, formats.registry._registered)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    """Registers the formats; afterwards Python forgets them, as keys of caches name those that there are."""
    before = [dict(table) for table in TABLES]
    for fmt in OWN.values():
        formats.register_format(fmt)
    yield
    for table, old in zip(TABLES, before, strict=True):
        table.clear()
        table.update(old)


def known(name: str) -> BlockFormat:
    return formats.get_format(name)


def random_rows(name: str, n: int, k: int, seed: int = 0) -> np.ndarray:
    """Random integers, with scales of ordinary size."""
    rng = np.random.default_rng([seed, n, k])
    fmt = known(name)
    rows = rng.integers(0, 256, (n, fmt.row_bytes(k)), np.uint8)
    split = rows.reshape(n, -1, fmt.nbytes)
    for field in fmt.fields:
        if "f" in field.dtype:
            numbers = rng.uniform(0.01, 0.1, (n, split.shape[1], 1)).astype(field.dtype)
            split[..., field.offset : field.offset + numbers.itemsize] = numbers.view(np.uint8)
    return rows


def by_definition(name: str, rows: np.ndarray, k: int) -> np.ndarray:
    """The decoded rows, from the description, element by element."""
    fmt = known(name)
    out = np.zeros((len(rows), k), np.float32)

    def integer(block: np.ndarray, planes: tuple[Plane, ...], index: int) -> int:
        total = 0
        for plane in planes:
            position = np.unravel_index(index, plane.digits)
            byte = plane.byte0 + sum(int(p) * step for p, step in zip(position, plane.byte, strict=True))
            shift = plane.shift0 + sum(int(p) * step for p, step in zip(position, plane.shift, strict=True))
            stored = int(block[fmt.field(plane.field).offset + byte])
            total |= ((stored >> shift) & ((1 << plane.bits) - 1)) << plane.into
        return total

    def factor(block: np.ndarray, what: Scaled, sub: int) -> np.float32:
        field = fmt.field(what.field)
        number = np.frombuffer(block[field.offset :].tobytes(), field.dtype, 1)[0].astype(np.float32)
        return number * np.float32(integer(block, what.planes, sub) - what.offset) if what.planes else number

    for row, b in itertools.product(range(len(rows)), range(k // fmt.block)):
        block = rows[row, b * fmt.nbytes : (b + 1) * fmt.nbytes]
        for e in range(fmt.block):
            assert fmt.scale is not None
            value = np.float32(integer(block, fmt.quants, e) - fmt.offset) * factor(block, fmt.scale, e // fmt.sub)
            if fmt.minimum is not None:
                value = value + np.float32(fmt.minimum_sign) * factor(block, fmt.minimum, e // fmt.sub)
            out[row, b * fmt.block + e] = value
    return out


@pytest.mark.parametrize("name", OWN)
def test_decode_follows_the_description(name: str) -> None:
    k = 3 * known(name).block
    rows = random_rows(name, 5, k)
    np.testing.assert_array_equal(formats.decode(name, rows, k), by_definition(name, rows, k))


@pytest.mark.parametrize("name", [name for name in OWN if name != "own_bits"])
def test_encode_follows_the_description(name: str) -> None:
    fmt = known(name)
    k = 2 * fmt.block
    values = np.random.default_rng(1).standard_normal((7, k)).astype(np.float32)
    values[1], values[2], values[3], values[4] = 0, np.abs(values[2]) + 3, -np.abs(values[3]) - 3, 1e-42
    decoded = formats.decode(name, formats.encode(name, values), k)
    size = np.abs(values).max(axis=1, keepdims=True)
    bits = min(fmt.bits, *(part.bits for part in fmt.factors if part.planes), 8)
    assert (np.abs(decoded - values) <= size * 2.2 / (1 << bits) + 1e-4).all()
    assert not decoded[1].any()


def test_encode_of_integers_without_sign() -> None:
    """Below 0 is 0."""
    fmt = replace(
        OWN["own_bits"], name="own_ones", nbytes=6, fields=(Field("d", "<f2", 0), Field("q", "u1", 2, 4)), sub=0
    )
    formats.register_format(fmt)
    values = np.tile(np.array([[-3, 1, 0.25, 1.75, 2]], np.float32), (1, 32))[:, :32]
    decoded = formats.decode("own_ones", formats.encode("own_ones", values), 32)
    np.testing.assert_array_equal(decoded[0, :5], [0, 2, 0, 2, 2])


def test_what_follows_from_which_description() -> None:
    assert [name for name in OWN if known(name).has_panels] == PANELS
    assert [name for name in OWN if known(name).has_integers] == ["own_pairs", "own_three", "own_nested", "own_bits"]
    assert [name for name in OWN if not known(name).encodable] == ["own_bits"]
    with pytest.raises(UnsupportedError, match="encoding to own_bits is not implemented"):
        formats.encode("own_bits", np.zeros((1, 32), np.float32))
    with pytest.raises(UnsupportedError, match="no panels layout is defined for own_odd"):
        formats.panel_layout("own_odd")


@pytest.mark.parametrize("name", PANELS)
@pytest.mark.parametrize("n", [1, 16, 19])
def test_panels_hold_the_rows(name: str, n: int) -> None:
    k = 2 * known(name).block
    rows = random_rows(name, n, k)
    if name == "own_nested":
        rows.reshape(n, -1, 72)[..., 8:] &= 63  # bits that mean nothing aren't kept
    if name == "own_bits":
        rows.reshape(n, -1, 7)[..., 2] = 0
    np.testing.assert_array_equal(formats.unpack_panels(name, formats.pack_panels(name, rows, k), k, n), rows)


@pytest.mark.parametrize("name", OWN)
def test_types_have_the_sizes(name: str) -> None:
    fmt = known(name)
    k = 2 * fmt.block
    with ir.new_context():
        rows = f"tensor<19x{fmt.row_bytes(k)}xi8, #mir.packed<{name}, k = {k}>>"
        module = ir.Module.parse(f"func.func @f(%w: {rows}) {{\n  return\n}}")
        assert rows in str(module)
        if fmt.has_panels:
            text = f"func.func @f(%w: {rows}) {{\n  %p = mir.repack %w : {rows}\n  return\n}}"
            module = ir.Module.parse(text)
            repack = module.body.operations[0].regions[0].blocks[0].operations[0]
            packed = formats.pack_panels(name, random_rows(name, 19, k), k)
            assert tuple(repack.results[0].type.shape) == packed.shape
        with pytest.raises(ir.MLIRError, match=f"the block length of {name}, {fmt.block}, but got {k + 1}"):
            ir.Type.parse(f"tensor<19x{fmt.row_bytes(k)}xi8, #mir.packed<{name}, k = {k + 1}>>")


def program(name: str, n: int) -> Program:
    """Products, a look-up, and rows that are given at run time."""
    fmt = known(name)
    k = 192 if 192 % fmt.block == 0 else 6 * fmt.block
    p = Program("mir")
    m = p.m
    x, ids = p.input("x", ["a", k]), p.input("ids", ["a"], "i32", lambda rng, shape: rng.integers(0, n, shape))
    w = p.param("w", [n, k], packed=name)
    p.output(product=m.dequant_matmul(x, w), sum=m.silu(m.mm(x, w)), rows=m.gather(w, ids))
    return p


@pytest.mark.parametrize("name", [name for name in OWN if name != "own_bits"])
@pytest.mark.quick(2)
def test_compiled_products_and_gather(name: str) -> None:
    ways = check(program(name, 19), [{"a": 5}, {"a": 1}, {"a": 0}], maxima={"a": 5})
    assert ("gemm_panels" in templates_of(ways.templates).values()) == known(name).has_panels


@pytest.mark.parametrize("name", ["own_pairs", "own_nested"])
def test_compiled_products_of_integers(name: str) -> None:
    ways = check(program(name, 19), [{"a": 5}, {"a": 1}], maxima={"a": 5}, activations="int8", tolerance=1e-4)
    assert "gemm_int8" in templates_of(ways.templates).values()


@pytest.mark.parametrize("name", ["own_three", "own_nested", "own_bits"])
@pytest.mark.quick(1)
def test_block_dot(name: str) -> None:
    """The integer product is near that of the decoded weight, interpreted and compiled."""
    k, n = 128, 9
    m = GraphModule.mir("dot")
    x, w = m.input("x", ["a", k]), m.param("w", [n, k], packed=name)
    m.set_outputs({"y": m.block_dot(*m.block_quantize(x), w)})
    rows = random_rows(name, n, k)
    values = np.random.default_rng(3).standard_normal((4, k)).astype(np.float32)
    want = interpret(m, {"x": values, "w": rows})["y"]
    exact = values @ formats.decode(name, rows, k).T
    assert np.abs(want - exact).max() < 0.02 * np.abs(exact).max()
    executable = compile_fresh(m)
    executable.set_params({"w": rows})
    np.testing.assert_allclose(executable.run({"x": values})["y"], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["own_odd", "own_bytes"])
def test_block_dot_needs_integers(name: str) -> None:
    m = GraphModule.mir("dot")
    w = m.param("w", [9, 96], packed=name)
    with pytest.raises(BuildError, match=f"expects 'weight' to hold integers, but its scheme is {name}"):
        m.block_dot(*m.block_quantize(m.input("x", ["a", 96])), w)


def test_blocks_of_models_take_it() -> None:
    p = Program()
    x = p.input("x", ["a", 64])
    gate, up, down = (p.param(name, [64, 64], packed="own_pairs") for name in ("gate", "up", "down"))
    p.output(y=p.m.swiglu(x, gate_w=gate, up_w=up, down_w=down))
    check(p, [{"a": 3}])


def test_a_format_of_files_that_is_known_by_its_size() -> None:
    """Its description is completed."""
    assert not known("q8_1").decodable
    fmt = BlockFormat(
        "q8_1",
        9,
        32,
        40,
        fields=(Field("d", "<f4", 0), Field("sum", "<f4", 4), Field("qs", "i1", 8, 32)),
        quants=(Plane("qs", (32,), (1,), (0,), bits=8),),
        signed=True,
        scale=Scaled("d"),
    )
    with pytest.raises(InputError, match="format 'q8_1' is already registered, with another description"):
        formats.register_format(replace(fmt, type_id=34))
    formats.register_format(fmt)
    assert formats.get_format(9).decodable
    blocks = np.zeros((5, 16), [("d", "<f4"), ("sum", "<f4"), ("qs", "i1", 32)])
    rng = np.random.default_rng(0)
    blocks["d"], blocks["qs"] = rng.uniform(0.5, 1, blocks.shape), rng.integers(-128, 128, (*blocks.shape, 32))
    rows = blocks.view(np.uint8).reshape(5, -1)
    expected = (blocks["d"][..., None] * blocks["qs"].astype(np.float32)).reshape(5, 512)
    np.testing.assert_array_equal(formats.decode("q8_1", rows, 512), expected)
    m = GraphModule.mir("own")
    m.set_outputs({"y": m.matmul(m.input("x", [2, 512]), m.param("w", [5, 512], packed="q8_1"))})
    executable = compile_fresh(m)
    executable.set_params({"w": rows})
    x = np.random.default_rng(1).standard_normal((2, 512)).astype(np.float32)
    np.testing.assert_allclose(executable.run({"x": x})["y"], x @ expected.T, rtol=1e-4, atol=1e-4)


def test_registering_again() -> None:
    fmt = OWN["own_pairs"]
    assert formats.register_format(fmt) == formats.get_format("own_pairs")
    with pytest.raises(InputError, match="format 'own_pairs' is already registered, with another description"):
        formats.register_format(replace(fmt, offset=7))
    with pytest.raises(InputError, match="format 'q4_0' is already registered, with another description"):
        formats.register_format(replace(fmt, name="q4_0"))
    with pytest.raises(InputError, match="format 'own_other': GGUF type number 2 is that of q4_0"):
        formats.register_format(replace(fmt, name="own_other", type_id=2))
    assert "own_other" not in formats.FORMATS
    with pytest.raises(
        ValueError, match="already registered, with blocks of 32 elements in 18 bytes; now they are of 64"
    ):
        ir.native.register_format("own_pairs", 64, 18, 0, True)
    with pytest.raises(ValueError, match="consist of letters, digits and '_', but got 'a b'"):
        ir.native.register_format("a b", 64, 18, 0, True)


def test_the_cache_tells_descriptions_apart() -> None:
    before = cache_key({"module": "m"}, {})
    assert cache_key({"module": "m"}, {}) == before
    formats.register_format(replace(OWN["own_pairs"], name="own_cached"))
    assert cache_key({"module": "m"}, {}) != before


PLANE = OWN["own_pairs"].quants[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Own"}, "a name consists of lower-case letters"),
        ({"quants": ()}, "a format of blocks has planes of integers, a scale, and no dense element type"),
        ({"block": 0}, "'block' must be from 1 to 2147483647, but is 0"),
        ({"sub": 5}, "'sub' must divide the block, 32, but is 5"),
        ({"sub": 16}, "sub-blocks of 16 share one scale, as no integers scale them"),
        ({"minimum_sign": 2}, "'minimum_sign' must be 1 or -1, but is 2"),
        ({"nbytes": 20}, "'nbytes' is 20, but the fields have 18"),
        (
            {"fields": (Field("pairs", "u1", 0, 16), Field("d", "<f2", 17))},
            "'d' has 1 numbers at byte 17, where the one",
        ),
        ({"fields": (Field("d", "u1", 0, 16), Field("d", "<f2", 16))}, "two fields are called 'd'"),
        ({"fields": (Field("pairs", "u1", 0, 16), Field("d", "f9", 16))}, "is of 'f9', which numpy doesn't know"),
        ({"scale": Scaled("m")}, "the scale needs a field 'm' of one number, <f2, <f4, e8m0, ue4m3, but there is none"),
        ({"scale": Scaled("pairs")}, "but it has 16 of 'u1'"),
        ({"scale": Scaled("d", offset=3)}, "the scale has no integers, so 'offset', 'signed' and 'step' mean nothing"),
        ({"minimum": Scaled("x")}, "the minimum needs a field 'x'"),
        ({"offset": 256}, "'offset' must be from 0 to 255, but is 256"),
        ({"signed": True, "offset": 0}, "signed integers are bytes without offset, but have 4 bits"),
        ({"quants": (replace(PLANE, field="d"),)}, "a plane in field 'd' needs one of that name, of 'u1' or 'i1'"),
        ({"quants": (replace(PLANE, digits=(16, 1)),)}, "covers 16 integers, but there are 32"),
        ({"quants": (replace(PLANE, shift=(0,)),)}, "one each for every digit"),
        ({"quants": (replace(PLANE, byte0=1),)}, "reads bytes 1 to 16, but the field has 16"),
        ({"quants": (replace(PLANE, shift=(0, 5)),)}, "reads bits 5 to 8 of a byte"),
        ({"quants": (replace(PLANE, into=5),)}, "has 4 bits from bit 5 on, but integers have 8"),
        ({"quants": (replace(PLANE, into=1),)}, "planes give the bits 0b11110 of the integer"),
        ({"quants": (PLANE, PLANE)}, "two planes have bit 3 of the integer"),
        ({"quants": (replace(PLANE, byte=(1, -1), byte0=1),)}, "has a negative step or start"),
        ({"quants": (replace(PLANE, carry=True),)}, "so its bits are planes of their own, but it has 4"),
        ({"scale": Scaled("d", step=0)}, "'step' must be from 1 to 255, but is 0"),
        ({"values": (1, 2, 3)}, "'values' are one for each code of at most 4 bits, but there are 3 for codes of 4"),
        ({"values": tuple(range(16))}, "beside 'values' there are no 'offset', signed integers and minima"),
        ({"values": (200, *range(15)), "offset": 0}, "'values' are integers from -128 to 127, but one is 200"),
        ({"unit": 0.3}, "'unit' must be a power of two from 2^-16 to 2^16, but is 0.3"),
        ({"unit": 2.0**17}, "'unit' must be a power of two from 2^-16 to 2^16, but is 131072.0"),
        ({"rule": "ternary"}, "grids, digits of base 3, rules and scattered scales are those of our own formats"),
        ({"trits": Trits("pairs", ())}, "grids, digits of base 3, rules and scattered scales"),
    ],
)
def test_descriptions_that_contradict_themselves(changes: dict[str, Any], message: str) -> None:
    wrong = replace(OWN["own_pairs"], **{"name": "own_wrong", **changes})
    with pytest.raises(RlxError) as raised:
        formats.register_format(wrong)
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"format '{wrong.name}'")
    assert wrong.name not in formats.FORMATS


def test_the_page_about_formats(tmp_path: Path) -> None:
    found = blocks("docs/formats.md", "python")
    assert len(found) == 4
    run_python(found, tmp_path)
