# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products with packed weights of many rows: numbers by the emulator of PTX against the references, what ptxas says."""

from __future__ import annotations

import covering
import numpy as np
import pytest
from gpu_emulated import assembled, ptx
from gpu_products import CHIPS, PROGRAMS, TYPES, Case, argument_arrays, check, conflicts
from test_planes import random_rows

from rlx_mlir import formats
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu import gemm_quant
from rlx_mlir.codegen.gpu.gemm_base import Gemm
from rlx_mlir.codegen.gpu.gemm_config import DECODE_FMA_TILES, EXACT_TILES, QUANT_TILES, Tile
from rlx_mlir.codegen.gpu.gemm_quant import gemm_block_dot, gemm_decoded
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.codegen.program import IDENTITY, Program
from rlx_mlir.mir.packed import PackedWeight
from rlx_mlir.mir.quant import block_dot, block_quantize

CHIP = "sm_80"
PACKED = [name for name in formats.PLANE_FORMATS if not formats.plane_layout(name).dense]
#: Formats of each kind; all but the first two are slow.
KINDS = ("q4_k", "q2_k", "q4_0", "q5_1", "q8_0", "q6_k")


def product(m: int | None, n: int, k: int, program: Program = IDENTITY, element: str = "f32") -> Gemm:
    return Gemm("mm", (m, k), (n, k), (m, n), program, element=element, transpose_rhs=True)


def weights_of(scheme: str, gemm: Gemm) -> list[PackedWeight]:
    n, k = gemm.n, gemm.k
    assert n is not None
    assert k is not None
    rows = [random_rows(scheme, n, k, seed) for seed in range(gemm.program.accumulators)]
    return [PackedWeight(scheme, k, n, "rows", own) for own in rows]


def planes(weight: PackedWeight) -> np.ndarray:
    return formats.pack_planes(weight.scheme, weight.bytes, weight.k).view(np.int8)


def integer_case(scheme: str, gemm: Gemm, m: int) -> Case:
    """Operands of mir.block_dot, and its reference."""
    rng = np.random.default_rng(m)
    x = rng.standard_normal((m, gemm.k)).astype(np.float32)
    q, scale, total = block_quantize(x)
    weights = weights_of(scheme, gemm)
    products = [block_dot(q, scale, total, weight).astype(np.float64) for weight in weights]
    magnitudes = [np.abs(x.astype(np.float64)) @ _largest(weight).T for weight in weights]
    arguments = argument_arrays(gemm, products[0].shape, rng)
    return Case([q, scale, total, *map(planes, weights), *arguments], arguments, products, magnitudes)


def _largest(weight: PackedWeight) -> np.ndarray:
    """How large the terms of each element are, f64 [n, k]: the scaled integer, and the minimum."""
    if formats.plane_layout(weight.scheme).dense:
        return np.abs(weight.dequantize().astype(np.float64))
    parts = weight.parts()
    terms = np.abs(parts.integers) * np.repeat(np.abs(parts.scales), parts.run, 1).astype(np.float64)
    return terms if parts.minima is None else terms + np.repeat(np.abs(parts.minima), parts.run, 1)


def decoded_case(scheme: str, gemm: Gemm, m: int) -> Case:
    """Operands of mir.dequant_matmul."""
    rng = np.random.default_rng(m)
    dtype = TYPES[gemm.element]
    x = rng.standard_normal((m, gemm.k)).astype(dtype)
    weights = weights_of(scheme, gemm)
    products = [x.astype(np.float64) @ w.dequantize().astype(np.float64).T for w in weights]
    magnitudes = [np.abs(x.astype(np.float64)) @ _largest(w).T for w in weights]
    arguments = argument_arrays(gemm, products[0].shape, rng)
    return Case([x, *map(planes, weights), *arguments], arguments, products, magnitudes)


@pytest.fixture
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tile:
    """Makes a tile the only one."""
    for name in ("QUANT_TILES", "EXACT_TILES", "MMA_TILES", "DECODE_FMA_TILES"):
        monkeypatch.setattr(gemm_quant, name, (request.param,) * 3)
    return request.param


def tiles(*given: Tile) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("tile", given, ids=lambda t: f"{t.bm}x{t.bn}x{t.bk}", indirect=True)


# -- integer products ------------------------------------------------------------------------------------------------


@tiles(QUANT_TILES[3])
@pytest.mark.parametrize("scheme", PACKED)
@pytest.mark.quick(1)
def test_integer_products_of_every_format(scheme: str, tile: Tile) -> None:
    block = formats.get_format(scheme).block
    gemm = product(None, 40, 3 * max(block, 32))
    kernel = gemm_block_dot(CHIP, gemm, scheme)
    for m in (1, 33):
        check(kernel, gemm, integer_case(scheme, gemm, m), CHIP)


@pytest.mark.parametrize(
    ("tile", "scheme"), covering.products(QUANT_TILES, ["q4_1", "q2_k"], meeting=1), indirect=["tile"]
)
@pytest.mark.quick(1)
def test_integer_products_of_every_tile_at_its_edges(tile: Tile, scheme: str) -> None:
    gemm = product(None, tile.bn + 4, 256)
    kernel = gemm_block_dot(CHIP, gemm, scheme)
    for m in (tile.bm - 1, tile.bm + 1):
        check(kernel, gemm, integer_case(scheme, gemm, m), CHIP)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.quick(1)
def test_integer_products_with_every_epilogue(program: str) -> None:
    for n in (36, 37):
        gemm = product(None, n, 96, PROGRAMS[program])
        check(gemm_block_dot(CHIP, gemm, "q4_1"), gemm, integer_case("q4_1", gemm, 33), CHIP)


def test_integer_products_in_parts_of_k() -> None:
    gemm = product(9, 64, 4096, PROGRAMS["swiglu"])
    kernel = gemm_block_dot(CHIP, gemm, "q5_0")
    _, launches = check(kernel, gemm, integer_case("q5_0", gemm, 9), CHIP)
    assert len(launches) == 2
    assert launches[0].grid[1] > 1


def test_integers_are_exact() -> None:
    """The largest integers: 127 times -128 in every place."""
    gemm = product(9, 8, 64)
    rows = formats.encode("q8_0", np.ones((8, 64), np.float32))
    rows.reshape(8, 2, 34)[:, :, 2:] = 128
    weight = PackedWeight("q8_0", 64, 8, "rows", rows)
    q = np.full((9, 64), 127, np.int8)
    scale, total = np.ones((9, 2), np.float32), np.full((9, 2), 32 * 127, np.int32)
    want = block_dot(q, scale, total, weight).astype(np.float64)
    case = Case([q, scale, total, planes(weight)], [], [want], [np.zeros((9, 8))])
    check(gemm_block_dot(CHIP, gemm, "q8_0"), gemm, case, CHIP)


# -- decoded products ------------------------------------------------------------------------------------------------


@tiles(DECODE_FMA_TILES[2])
@pytest.mark.parametrize("scheme", [*PACKED, "f16", "bf16"])
@pytest.mark.quick(1)
def test_f32_products_of_every_format(scheme: str, tile: Tile) -> None:
    block = formats.get_format(scheme).block
    gemm = product(None, 40, 3 * max(block, 32))
    check(gemm_decoded(CHIP, gemm, scheme), gemm, decoded_case(scheme, gemm, 33), CHIP)


@tiles(EXACT_TILES[3])
@pytest.mark.parametrize("element", ["f16", pytest.param("bf16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("scheme", PACKED)
@pytest.mark.quick(1)
def test_products_of_halves_of_every_format(scheme: str, element: str, tile: Tile) -> None:
    block = formats.get_format(scheme).block
    gemm = product(None, 40, 3 * max(block, 32), element=element)
    check(gemm_decoded(CHIP, gemm, scheme), gemm, decoded_case(scheme, gemm, 33), CHIP)


@tiles(*DECODE_FMA_TILES)
@pytest.mark.quick(1)
def test_f32_products_of_every_tile_at_its_edges(tile: Tile) -> None:
    gemm = product(None, tile.bn + 4, 96, PROGRAMS["bias_gelu_residual"])
    kernel = gemm_decoded(CHIP, gemm, "q4_0")
    for m in (1, tile.bm + 1):
        check(kernel, gemm, decoded_case("q4_0", gemm, m), CHIP)


@tiles(*EXACT_TILES)
@pytest.mark.quick(1)
def test_products_of_halves_of_every_tile_at_its_edges(tile: Tile) -> None:
    gemm = product(None, tile.bn + 8, 160, PROGRAMS["swiglu"], element="bf16")
    kernel = gemm_decoded(CHIP, gemm, "q4_1")
    for m in (1, tile.bm + 1):
        check(kernel, gemm, decoded_case("q4_1", gemm, m), CHIP)


@pytest.mark.parametrize("scheme", ["q4_1", "q8_0"])
@pytest.mark.quick(1)
def test_weights_beyond_the_range_of_halves(scheme: str) -> None:
    """Up to 65504 times 127, where f16 ends at 65504: x is as small, and the products are ordinary numbers."""
    gemm = product(33, 40, 96, element="f16")
    case = decoded_case(scheme, gemm, 33)
    rows = formats.encode(scheme, np.random.default_rng(0).uniform(-6e4, 6e5, (40, 96)).astype(np.float32))
    weight = PackedWeight(scheme, 96, 40, "rows", rows)
    assert np.abs(weight.dequantize()).max() > 5e5
    x = (case.operands[0] * np.float16(2.0**-10)).astype(np.float16)
    wide, own = x.astype(np.float64), weight.dequantize().astype(np.float64)
    sized = [np.abs(wide) @ _largest(weight).T]
    check(gemm_decoded(CHIP, gemm, scheme), gemm, Case([x, planes(weight)], [], [wide @ own.T], sized), CHIP)


# -- code ------------------------------------------------------------------------------------------------------------


def kernels(scheme: str, chip: str) -> list[DeviceKernel]:
    shape = (None, 4096, 4096)
    return [
        gemm_block_dot(chip, product(*shape, PROGRAMS["residual"]), scheme),
        gemm_block_dot(chip, product(*shape, PROGRAMS["swiglu"]), scheme),
        gemm_decoded(chip, product(*shape, PROGRAMS["swiglu"], "bf16"), scheme),
        gemm_decoded(chip, product(*shape, PROGRAMS["swiglu"]), scheme),
    ]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("number", "scheme"),
    [
        *covering.products(range(4), KINDS[:2], meeting=1),
        *(pytest.param(number, scheme, marks=pytest.mark.slow) for number in range(4) for scheme in KINDS[2:]),
    ],
)
@pytest.mark.quick(1)
def test_ptxas_spills_nothing(number: int, scheme: str, chip: str) -> None:
    kernel = kernels(scheme, chip)[number]
    for name, one in assembled(ptx(kernel.device, chip), chip).items():
        assert one.spills == 0, f"{kernel.schedule} {name}: {one.messages}"


@pytest.mark.parametrize(
    ("tile", "scheme"),
    [
        *covering.products(QUANT_TILES, KINDS[:2], meeting=1),
        *(pytest.param(own, scheme, marks=pytest.mark.slow) for own in QUANT_TILES for scheme in KINDS[2:]),
    ],
    indirect=["tile"],
)
@pytest.mark.quick(1)
def test_main_loop_of_integers_has_no_conflicts_of_banks(scheme: str, tile: Tile) -> None:
    gemm = product(tile.bm, tile.bn, 512)
    kernel = gemm_block_dot(CHIP, gemm, scheme)
    stats, _ = check(kernel, gemm, integer_case(scheme, gemm, tile.bm), CHIP, profile=True)
    text = ptx(kernel.device, CHIP)
    loop = text[: text.rindex("mma.sync")]
    assert not [line for line in conflicts(stats, text, ("ldmatrix", "cp.async", "ld.shared")) if line in loop]


def test_integer_products_use_the_tensor_cores() -> None:
    text = ptx(gemm_block_dot(CHIP, product(256, 256, 256), "q4_0").device, CHIP)
    assert "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32" in text
    assert "cvt.rn.f32.s32" not in text
    halves = ptx(gemm_block_dot(CHIP, product(256, 256, 256), "q6_k").device, CHIP)
    assert "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32" in halves


def test_what_isnt_covered_is_refused() -> None:
    with pytest.raises(UnsupportedByTemplate, match=r"mm: f16 weights \[8, 64\] have no schedule of this kind"):
        gemm_block_dot(CHIP, product(1, 8, 64), "f16")
    with pytest.raises(UnsupportedByTemplate, match=r"mm: f16 weights \[8, 60\] have no schedule of this kind"):
        gemm_decoded(CHIP, product(1, 8, 60), "f16")
    with pytest.raises(UnsupportedByTemplate, match="mm: integer products give f32, but the outputs are bf16"):
        gemm_block_dot(CHIP, product(1, 8, 64, element="bf16"), "q4_0")
