# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of f16 and bf16 by mma.sync: numbers by the emulator of PTX, what ptxas says, the choice of tiles."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from covering import products
from gpu_emulated import assembled, emulate, ptx
from gpu_host import launches
from gpu_products import CHIPS, PROGRAMS, check, conflicts, dense_case, padded_rows

from rlx_mlir.chips import CHIPS as EVERY_CHIP
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.gemm_base import Gemm, Shape
from rlx_mlir.codegen.gpu.gemm_config import (
    MMA_TILES,
    TF32_TILES,
    Choice,
    Tile,
    choose_by_rows,
    for_products,
    resources,
)
from rlx_mlir.codegen.gpu.gemm_host import dense_operands, line_access, product_kernel
from rlx_mlir.codegen.gpu.gemm_mma import gemm_mma, gemm_tf32, mma_core
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.codegen.program import IDENTITY, SWIGLU, Program

CHIP = "sm_80"
SMALL = MMA_TILES[3]


def product(
    m: int | None,
    n: int | None,
    k: int | None,
    program: Program = IDENTITY,
    element: str = "bf16",
    transpose: bool = True,
) -> Gemm:
    weight = (n, k) if transpose else (k, n)
    return Gemm("mm", (m, k), weight, (m, n), program, element=element, transpose_rhs=transpose)


def with_tile(gemm: Gemm, tile: Tile, splits: int = 1, chip: str = CHIP) -> DeviceKernel:
    """The product with a tile of the test's choice."""
    tile = for_products(tile, gemm.program.accumulators)
    access = line_access(gemm, 4 if gemm.element == "f32" else 2)
    only = [(None, Choice(tile, splits))]
    return product_kernel(chip, "mma", gemm, dense_operands(gemm), (tile,), mma_core(gemm), access, choices=only)


def name_of(tile: Tile) -> str:
    return f"{tile.bm}x{tile.bn}x{tile.bk}"


# -- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transpose", [True, False], ids=["nk", "kn"])
@pytest.mark.parametrize("tile", MMA_TILES, ids=name_of)
@pytest.mark.quick(1)
def test_every_tile_at_its_edges(tile: Tile, transpose: bool) -> None:
    gemm = product(None, tile.bn + 8, 2 * tile.bk + 8, transpose=transpose)
    kernel = with_tile(gemm, tile)
    for m in (1, tile.bm - 1, tile.bm + 1):
        check(kernel, gemm, dense_case(gemm, (m, gemm.k), gemm.w_shape), CHIP)


@pytest.mark.parametrize(("program", "element", "transpose"), products(list(PROGRAMS), ["f16", "bf16"], [True, False]))
@pytest.mark.quick(2)
def test_every_epilogue(program: str, element: str, transpose: bool) -> None:
    gemm = product(None, 72, 48, PROGRAMS[program], element, transpose)
    check(with_tile(gemm, SMALL), gemm, dense_case(gemm, (35, 48), gemm.w_shape), CHIP)


#: Columns and K.
LINES = [(1, 1), (7, 31), (66, 34), (68, 36), (33, 40)]


@pytest.mark.parametrize(
    ("sizes", "program", "transpose"), products(LINES, ["bias_gelu_residual", "swiglu"], [True, False])
)
@pytest.mark.quick(1)
def test_lines_of_any_length(sizes: tuple[int, int], program: str, transpose: bool) -> None:
    """Lines that aren't whole pieces of 16 bytes: copies of 8 and 4 bytes, and single elements."""
    n, k = sizes
    gemm = product(None, n, k, PROGRAMS[program], "f16", transpose)
    kernel = with_tile(gemm, SMALL)
    for m in (1, 33):
        check(kernel, gemm, dense_case(gemm, (m, k), gemm.w_shape), CHIP)


@pytest.mark.parametrize(("splits", "program", "n"), products([2, 3, 7], ["bias_gelu_residual", "swiglu"], [72, 33]))
@pytest.mark.quick(1)
def test_parts_of_k(splits: int, program: str, n: int) -> None:
    """K in parts, of which the last may be shorter, or empty; the sums run the epilogue."""
    gemm = product(None, n, 296, PROGRAMS[program])
    kernel = with_tile(gemm, SMALL, splits)
    _, launches = check(kernel, gemm, dense_case(gemm, (35, 296), gemm.w_shape), CHIP)
    assert [launch.grid[1] for launch in launches] == [splits, 1]


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.quick(1)
def test_many_products_of_one_x(count: int) -> None:
    program = Program(outputs=tuple(("acc", i) for i in range(count)), accumulators=count)
    gemm = product(33, 40, 72, program)
    kernel = gemm_mma(CHIP, gemm)
    check(kernel, gemm, dense_case(gemm, (33, 72), (40, 72)), CHIP)
    large = gemm_mma(CHIP, product(4096, 4096, 4096, program))
    assert all(one.spills == 0 for one in assembled(ptx(large.device, CHIP), CHIP).values())


def test_dynamic_sizes_choose_among_kernels() -> None:
    gemm = product(None, 512, 512)
    kernel = gemm_mma(CHIP, gemm)
    names = set()
    for m in (1, 17, 65, 300):
        _, launches = check(kernel, gemm, dense_case(gemm, (m, 512), (512, 512)), CHIP)
        names.add(launches[0].kernel)
    assert len(names) > 2


def test_every_size_dynamic() -> None:
    """Whether lines are whole pieces is asked when the sizes are known."""
    for transpose in (True, False):
        gemm = product(None, None, None, transpose=transpose)
        kernel = gemm_mma(CHIP, gemm)
        for m, n, k in ((5, 24, 40), (5, 23, 40), (17, 24, 41), (1, 1, 1), (3, 8, 0)):
            case = dense_case(gemm, (m, k), (n, k) if transpose else (k, n))
            _, launches = check(kernel, gemm, case, CHIP)
            assert launches[0].kernel.endswith("_e") == bool(n % 8 or k % 8)


def test_a_row_is_the_same_bits_among_any_number_of_rows() -> None:
    gemm = product(None, 72, 296, PROGRAMS["bias_gelu_residual"], "f16")
    case = dense_case(gemm, (35, 296), (72, 296))
    for splits in (1, 3):
        kernel, results = with_tile(gemm, SMALL, splits), []
        for m in (35, 5):
            x, w, bias, residual = case.operands
            results.append(np.zeros((m, 72), np.float16))
            emulate(kernel, "mm", CHIP, [x[:m], w, bias, residual[:m]], results[-1:])
        assert np.array_equal(results[0][:5], results[1])


def test_no_rows_no_launch() -> None:
    gemm = product(None, 64, 64)
    _, launches = check(gemm_mma(CHIP, gemm), gemm, dense_case(gemm, (0, 64), (64, 64)), CHIP)
    assert launches == []


BATCHES = {
    "equal": ((None, 3, None, 40), (None, 3, 40, 24), (None, 3, None, 24), (2, 3, 19, 40), (2, 3, 40, 24)),
    "broadcast_x": ((1, 3, 19, 40), (2, 3, 40, 24), (2, 3, 19, 24), (1, 3, 19, 40), (2, 3, 40, 24)),
    "broadcast_w": ((2, 3, 19, 40), (3, 40, 24), (2, 3, 19, 24), (2, 3, 19, 40), (3, 40, 24)),
    "crossed": ((2, 1, 19, 40), (1, 3, 40, 24), (2, 3, 19, 24), (2, 1, 19, 40), (1, 3, 40, 24)),
    "rows": ((None, None, 40), (40, 24), (None, None, 24), (2, 9, 40), (40, 24)),
    "vector": ((40,), (40, 24), (24,), (40,), (40, 24)),
}


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.quick(1)
def test_batches(name: str) -> None:
    shapes: tuple[Shape, Shape, Shape]
    *shapes, x, w = BATCHES[name]  # type: ignore[assignment]
    gemm = Gemm("mm", *shapes, PROGRAMS["bias_gelu_residual"], element="bf16")
    check(gemm_mma(CHIP, gemm), gemm, dense_case(gemm, x, w), CHIP)


def test_lines_further_apart_than_k() -> None:
    gemm = Gemm("mm", (None, 36), (40, 36), (None, 40), element="bf16", transpose_rhs=True, w_stride=40)
    case = dense_case(gemm, (9, 36), (40, 36))
    case.operands[1] = padded_rows(case.operands[1], 40)
    check(gemm_mma(CHIP, gemm), gemm, case, CHIP)


def test_one_operand_serves_twice() -> None:
    """A residual that is x itself."""
    gemm = Gemm("mm", (None, 64), (64, 64), (None, 64), PROGRAMS["residual"], (0, 1, 0), "bf16")
    case = dense_case(gemm, (9, 64), (64, 64))
    case.arguments[0] = case.operands[0]
    case.operands.pop()
    check(gemm_mma(CHIP, gemm), gemm, case, CHIP)


@pytest.mark.parametrize("transpose", [True, False], ids=["nk", "kn"])
@pytest.mark.parametrize("tile", TF32_TILES[2:], ids=name_of)
@pytest.mark.quick(1)
def test_tf32(tile: Tile, transpose: bool) -> None:
    gemm = product(None, 68, 2 * tile.bk + 4, PROGRAMS["bias_gelu_residual"], "f32", transpose)
    case = dense_case(gemm, (35, gemm.k), gemm.w_shape)
    # Each operand has ten bits of fraction.
    check(with_tile(gemm, tile), gemm, case, CHIP, slack=2.0**13)
    with pytest.raises(AssertionError, match="differ"):
        check(with_tile(gemm, tile), gemm, case, CHIP)


# -- code ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("number", "program", "transpose"),
    products(range(len(MMA_TILES)), ["bias_gelu_residual", "swiglu"], [True, False]),
)
@pytest.mark.quick(1)
def test_ptxas_spills_nothing(number: int, program: str, transpose: bool, chip: str) -> None:
    gemm = product(None, 4096, 4096, PROGRAMS[program], transpose=transpose)
    kernel = with_tile(dataclasses.replace(gemm, constant=chip == "sm_90"), MMA_TILES[number], chip=chip)
    for name, one in assembled(ptx(kernel.device, chip), chip).items():
        assert one.spills == 0, f"{name} {MMA_TILES[number]}: {one.messages}"


@pytest.mark.parametrize(
    ("sizes", "element"), products([(4095, 4093), (4094, 4092), (None, None)], ["f16", "f32"], meeting=1)
)
@pytest.mark.quick(2)
def test_ptxas_spills_nothing_where_lines_are_odd(sizes: tuple[int | None, int | None], element: str) -> None:
    gemm = product(None, *sizes, PROGRAMS["bias_gelu_residual"], element, transpose=False)
    kernel = (gemm_mma if element == "f16" else gemm_tf32)(CHIP, gemm)
    for name, one in assembled(ptx(kernel.device, CHIP), CHIP).items():
        assert one.spills == 0, f"{name}: {one.messages}"


@pytest.mark.parametrize("transpose", [True, False], ids=["nk", "kn"])
@pytest.mark.parametrize("tile", MMA_TILES, ids=name_of)
@pytest.mark.quick(1)
def test_no_access_conflicts_with_another_about_banks(tile: Tile, transpose: bool) -> None:
    gemm = product(None, 2 * tile.bn, 3 * tile.bk, transpose=transpose)
    kernel = with_tile(gemm, tile)
    case = dense_case(gemm, (tile.bm, gemm.k), gemm.w_shape)
    stats, _ = check(kernel, gemm, case, CHIP, profile=True)
    assert not conflicts(stats, ptx(kernel.device, CHIP), ("ldmatrix", "cp.async", "ld.shared", "st.shared"))


def test_whole_lines_are_read_in_pieces_of_16_bytes() -> None:
    text = ptx(gemm_mma(CHIP, product(256, 256, 256)).device, CHIP)
    copies = [line for line in text.splitlines() if "cp.async.c" in line and "shared" in line]
    assert copies
    assert all(".cg" in line and ", 16" in line for line in copies)
    assert "ld.global" not in text
    assert {line.split()[0] for line in text.splitlines() if "st.global" in line} == {"st.global.v4.b32"}


#: Of chips with as much shared memory, the first is quick.
MEMORIES = {resources(chip).block_kib: chip for chip in reversed(list(EVERY_CHIP))}


@pytest.mark.parametrize(
    "chip", [pytest.param(chip, marks=[pytest.mark.slow] * (chip not in MEMORIES.values())) for chip in EVERY_CHIP]
)
@pytest.mark.quick(1)
def test_every_tile_fits_every_chip(chip: str) -> None:
    have = resources(chip)
    for element, tiles in (("bf16", MMA_TILES), ("f32", TF32_TILES)):
        for tile in tiles:
            for program in (IDENTITY, SWIGLU):
                gemm = product(64, 4096, 4096, program, element)
                kernel = with_tile(gemm, tile, chip=chip)
                (launch,) = launches(kernel, "mm", [(64, 4096), *[(4096, 4096)] * program.accumulators, (64, 4096)])
                assert launch.shared <= (have.block_kib - 1) * 1024


def test_hopper_kernels_chain() -> None:
    kernel = gemm_mma("sm_90", product(None, 256, 4096))
    assert kernel.host.text.count("rlx.pdl") == kernel.host.text.count("gpu.launch_func")
    assert kernel.device.count("griddepcontrol wait") == kernel.device.count("llvm.func @")
    assert "griddepcontrol" not in gemm_mma("sm_80", product(None, 256, 4096)).device


def test_constant_weights_are_read_ahead_of_the_kernels_before() -> None:
    gemm = product(None, 72, 200)
    for constant in (True, False):
        own = dataclasses.replace(gemm, constant=constant)
        kernel = with_tile(own, SMALL, chip="sm_90")
        text = ptx(kernel.device, "sm_90")
        assert (text.index("cp.async.c") < text.index("griddepcontrol.wait")) == constant
        check(kernel, own, dense_case(own, (35, 200), (72, 200)), "sm_90")
        check(with_tile(own, SMALL, 3, "sm_90"), own, dense_case(own, (35, 200), (72, 200)), "sm_90")


# -- the choice ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "n", "k", "tile", "splits"),
    [
        (4096, 4096, 4096, (128, 128), 1),
        (16, 4096, 4096, (16, 64), 1),
        (1, 4096, 14336, (16, 64), 1),
        (16, 1024, 4096, (16, 64), 6),
        (64, 512, 8192, (64, 64), 13),
    ],
)
def test_choice(m: int, n: int, k: int, tile: tuple[int, int], splits: int) -> None:
    ((_, choice),) = choose_by_rows(m, n, k, MMA_TILES, "sm_80")
    assert ((choice.tile.bm, choice.tile.bn), choice.splits) == (tile, splits)


def test_choice_of_two_products_keeps_the_accumulators() -> None:
    ((_, choice),) = choose_by_rows(4096, 4096, 4096, MMA_TILES, "sm_80", products=2)
    tile = choice.tile
    assert (tile.bm, tile.bn, tile.wn) == (128, 64, 32)


def test_choices_by_rows_end_in_any_number() -> None:
    choices = choose_by_rows(None, 4096, 4096, MMA_TILES, "sm_90")
    assert choices[-1][0] is None
    assert choices[-1][1].splits == 1
    assert [limit for limit, _ in choices[:-1]] == sorted(limit for limit, _ in choices[:-1] if limit)
    assert len(choose_by_rows(100, 4096, 4096, MMA_TILES, "sm_90")) == 1


@pytest.mark.parametrize("element", ["f32"])
def test_other_types_are_refused(element: str) -> None:
    with pytest.raises(UnsupportedByTemplate, match="mm: mma multiplies f16 and bf16, but the product is of f32"):
        gemm_mma(CHIP, product(1, 8, 8, element=element))
    with pytest.raises(UnsupportedByTemplate, match="mm: products of f64 have no schedule"):
        product(1, 8, 8, element="f64")
    with pytest.raises(UnsupportedByTemplate, match=r"mm: expects a matrix of weights, but the operands are \(8,\)"):
        Gemm("mm", (8,), (2, 8, 8), (2, 8), element="bf16")
    with pytest.raises(UnsupportedByTemplate, match="mm: tf32 stands for f32, but the product is of bf16"):
        gemm_tf32(CHIP, product(1, 8, 8))


def test_a_tile_is_checked() -> None:
    with pytest.raises(ValueError, match="warps have to divide it"):
        Tile(128, 128, 32, 48, 64)


def test_swiglu_is_one_kernel() -> None:
    kernel = gemm_mma(CHIP, product(128, 256, 256, SWIGLU))
    assert kernel.device.count("llvm.func @") == 1
