# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of f32 by fused multiply-adds: numbers by the emulator of PTX, what ptxas says."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_emulated import assembled, emulate, ptx
from gpu_products import CHIPS, PROGRAMS, check, conflicts, dense_case

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.gemm_base import Gemm
from rlx_mlir.codegen.gpu.gemm_config import FMA_TILES, Choice, Tile, for_products
from rlx_mlir.codegen.gpu.gemm_fma import fma_core, gemm_fma
from rlx_mlir.codegen.gpu.gemm_host import dense_operands, line_access, product_kernel
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.codegen.program import IDENTITY, Program

CHIP = "sm_80"
SMALL = FMA_TILES[-1]


def product(m: int | None, n: int | None, k: int | None, program: Program = IDENTITY, transpose: bool = True) -> Gemm:
    weight = (n, k) if transpose else (k, n)
    return Gemm("mm", (m, k), weight, (m, n), program, element="f32", transpose_rhs=transpose)


def with_tile(gemm: Gemm, tile: Tile, splits: int = 1, chip: str = CHIP) -> DeviceKernel:
    """The product with a tile of the test's choice."""
    tile = for_products(tile, gemm.program.accumulators)
    only = [(None, Choice(tile, splits))]
    access = line_access(gemm, 4)
    return product_kernel(chip, "fma", gemm, dense_operands(gemm), (tile,), fma_core(gemm), access, choices=only)


def name_of(tile: Tile) -> str:
    return f"{tile.bm}x{tile.bn}x{tile.bk}"


@pytest.mark.parametrize("transpose", [True, False], ids=["nk", "kn"])
@pytest.mark.parametrize("tile", FMA_TILES, ids=name_of)
@pytest.mark.quick(1)
def test_every_tile_at_its_edges(tile: Tile, transpose: bool) -> None:
    gemm = product(None, tile.bn + 4, 2 * tile.bk + 4, transpose=transpose)
    kernel = with_tile(gemm, tile)
    for m in (1, tile.bm + 1):
        check(kernel, gemm, dense_case(gemm, (m, gemm.k), gemm.w_shape), CHIP)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.quick(1)
def test_every_epilogue(program: str) -> None:
    for transpose in (True, False):
        gemm = product(None, 68, 36, PROGRAMS[program], transpose)
        check(with_tile(gemm, SMALL), gemm, dense_case(gemm, (33, 36), gemm.w_shape), CHIP)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (7, 31), (66, 34)])
@pytest.mark.quick(1)
def test_lines_of_any_length(n: int, k: int) -> None:
    for transpose in (True, False):
        gemm = product(None, n, k, PROGRAMS["bias_gelu_residual"], transpose)
        check(with_tile(gemm, SMALL), gemm, dense_case(gemm, (33, k), gemm.w_shape), CHIP)


def test_parts_of_k() -> None:
    for n in (68, 33):
        gemm = product(None, n, 100, PROGRAMS["swiglu"])
        check(with_tile(gemm, SMALL, 3), gemm, dense_case(gemm, (33, 100), gemm.w_shape), CHIP)


def test_every_size_dynamic() -> None:
    gemm = Gemm("mm", (None, None, None), (None, None, None), (None, None, None), element="f32")
    kernel = gemm_fma(CHIP, gemm)
    for b, m, n, k in ((2, 5, 24, 40), (1, 5, 23, 41), (3, 1, 1, 1), (2, 3, 8, 0)):
        check(kernel, gemm, dense_case(gemm, (b, m, k), (b, k, n)), CHIP)


def test_sums_are_one_chain_along_k() -> None:
    """Exact to the bit: fused multiply-adds in the order of k, whatever the tile."""
    k = 70
    gemm = product(None, 40, k)
    case = dense_case(gemm, (5, k), (40, k))
    x, w = case.operands
    want = np.zeros((5, 40), np.float32)
    for i in range(k):
        exact = x[:, i, None].astype(np.float64) * w[None, :, i].astype(np.float64)
        want = (exact + want).astype(np.float32)
    for tile in FMA_TILES:
        got = np.zeros_like(want)
        emulate(with_tile(gemm, tile), "mm", CHIP, case.operands, [got])
        # f64 rounds the sum once before f32 does: a difference of one unit in the last place, very rarely.
        assert np.mean(got == want) > 0.99


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("transpose", [True, False], ids=["nk", "kn"])
@pytest.mark.quick(1)
def test_ptxas_spills_nothing(chip: str, transpose: bool) -> None:
    for tile in FMA_TILES:
        for program in ("bias_gelu_residual", "swiglu"):
            kernel = with_tile(product(None, 4096, 4096, PROGRAMS[program], transpose), tile, chip=chip)
            for name, one in assembled(ptx(kernel.device, chip), chip).items():
                assert one.spills == 0, f"{name} {tile}: {one.messages}"


@pytest.mark.parametrize("transpose", [True, False], ids=["nk", "kn"])
@pytest.mark.parametrize("tile", FMA_TILES, ids=name_of)
@pytest.mark.quick(1)
def test_no_access_conflicts_with_another_about_banks(tile: Tile, transpose: bool) -> None:
    gemm = product(None, 2 * tile.bn, 3 * tile.bk, transpose=transpose)
    kernel = with_tile(gemm, tile)
    stats, _ = check(kernel, gemm, dense_case(gemm, (tile.bm, gemm.k), gemm.w_shape), CHIP, profile=True)
    assert not conflicts(stats, ptx(kernel.device, CHIP), ("cp.async", "ld.shared", "st.shared"))


def test_other_types_are_refused() -> None:
    with pytest.raises(UnsupportedByTemplate, match="mm: FMA tiles are for f32, but the product is of bf16"):
        gemm_fma(CHIP, Gemm("mm", (1, 8), (8, 8), (1, 8), element="bf16"))
