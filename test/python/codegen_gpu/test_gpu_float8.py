# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of floats of 8 bits on GPUs: numbers by the emulator of PTX, what ptxas says, modules by the run time."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from covering import products
from cuda_harness import emulated_device
from gpu_emulated import assembled, emulate, ptx
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx_mlir as rlx
from ptx_emulator import Stats
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu import gemm_hopper_config as hopper
from rlx_mlir.codegen.gpu.gemm_base import Gemm
from rlx_mlir.codegen.gpu.gemm_config import Choice, Tile
from rlx_mlir.codegen.gpu.gemm_float8 import FLOAT8_TILES, float8_access, float8_core, gemm_float8
from rlx_mlir.codegen.gpu.gemm_hopper import gemm_hopper
from rlx_mlir.codegen.gpu.gemm_host import dense_operands, product_kernel
from rlx_mlir.codegen.gpu.gemv_float8 import gemv_float8
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.codegen.program import IDENTITY, SWIGLU, Argument, Program, Step
from rlx_mlir.errors import PassError
from rlx_mlir.hir import GraphModule
from rlx_mlir.interpreter import interpret
from rlx_mlir.tuning.choices import Chosen

TYPES = {
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}
#: One rounding of the result, and sums in f32 in another order.
TOLERANCES = {"f32": 2.0**-19, "f16": 2.0**-10, "bf16": 2.0**-7}
E4M3, E5M2 = "f8E4M3FN", "f8E5M2"


def scales(element: str, left: str = "column", right: str = "row") -> Program:
    """A product times a scale of x, then one of the weights."""
    own = "" if element == "f32" else "f32"
    steps = (Step("mul", (("acc", 0), ("arg", 0))), Step("mul", (("step", 0), ("arg", 1))))
    return Program(steps, (Argument(left, element=own), Argument(right, element=own)))  # type: ignore[arg-type]


def product(
    m: int | None,
    n: int,
    k: int,
    element: str = "bf16",
    program: Program = IDENTITY,
    float8: tuple[str, str] = (E4M3, E4M3),
) -> Gemm:
    return Gemm("mm", (m, k), (n, k), (m, n), program, element=element, transpose_rhs=True, float8=float8)


def check(kernel: DeviceKernel, gemm: Gemm, m: int, chip: str, *, profile: bool = False) -> Stats:
    """Runs the kernel for m rows of random operands, and compares."""
    rng = np.random.default_rng(0)
    assert gemm.float8 is not None
    assert gemm.n is not None
    assert gemm.k is not None
    x = rng.standard_normal((*gemm.x_shape[:-2], m, gemm.k)).astype(TYPES[gemm.float8[0]])
    w = rng.standard_normal([size for size in gemm.w_shape if size is not None]).astype(TYPES[gemm.float8[1]])
    total = np.matmul(x.astype(np.float64), np.swapaxes(w.astype(np.float64), -1, -2))
    natural = {"full": total.shape, "row": (gemm.n,), "column": (*total.shape[:-1], 1), "scalar": ()}
    arguments = []
    for argument in gemm.program.arguments:
        values = rng.uniform(0.5, 2, natural[argument.broadcast]).astype(TYPES[argument.element or gemm.element])
        arguments.append(np.asarray(values))
    want = total
    for step, value in zip(gemm.program.steps, arguments, strict=True):
        want = want * value.astype(np.float64) if step.op == "mul" else want + value.astype(np.float64)
    got = np.full(want.shape, np.nan, TYPES[gemm.element])
    stats, _ = emulate(kernel, gemm.name, chip, [x, w, *arguments], [got], profile=profile)
    tolerance = TOLERANCES[gemm.element]
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=tolerance * max(gemm.k, 1) ** 0.5)
    return stats


# -- few rows ----------------------------------------------------------------------------------------------------------

FEW = ["sm_89", "sm_80", pytest.param("sm_90a", marks=pytest.mark.slow)]


#: Columns and K of few rows.
SIZES = [(40, 64), (7, 16), (24, 2 * 8 * 64 + 48), (16, 3 * 8 * 64)]


@pytest.mark.parametrize(
    ("chip", "sizes", "m"),
    [
        *products(["sm_89", "sm_80"], SIZES, [1, 5, 8]),
        *(pytest.param("sm_90a", sizes, m, marks=pytest.mark.slow) for sizes in SIZES for m in (1, 5, 8)),
    ],
)
@pytest.mark.quick(1)
def test_few_rows(chip: str, sizes: tuple[int, int], m: int) -> None:
    """Any number of rows up to 8, parts of a warp's step, more columns than the result has."""
    element, kinds = {1: ("bf16", (E4M3, E4M3)), 5: ("f32", (E4M3, E5M2)), 8: ("f16", (E5M2, E5M2))}[m]
    gemm = product(None if m == 5 else m, *sizes, element, scales(element), kinds)
    check(gemv_float8(chip, gemm), gemm, m, chip)


@pytest.mark.parametrize("chip", ["sm_89", "sm_80"])
def test_every_float_of_8_bits_in_few_rows(chip: str) -> None:
    codes = np.arange(256, dtype=np.uint8).view(TYPES[E4M3])
    x, w = np.zeros((1, 16), TYPES[E4M3]), np.zeros((256, 16), TYPES[E4M3])
    x[0, 5], w[:, 5] = 1, codes
    got = np.zeros((1, 256), np.float32)
    emulate(gemv_float8(chip, product(1, 256, 16, "f32")), "mm", chip, [x, w], [got])
    np.testing.assert_array_equal(got[0], codes.astype(np.float32))


def test_few_rows_of_two_products() -> None:
    """SwiGLU, in one kernel that writes only what follows both products."""
    gemm = product(3, 24, 128, "f32", SWIGLU)
    rng = np.random.default_rng(0)
    x, gate, up = (rng.standard_normal(shape).astype(TYPES[E4M3]) for shape in ((3, 128), (24, 128), (24, 128)))
    got = np.zeros((3, 24), np.float32)
    emulate(gemv_float8("sm_80", gemm), "mm", "sm_80", [x, gate, up], [got])
    first, second = (x.astype(np.float64) @ w.astype(np.float64).T for w in (gate, up))
    np.testing.assert_allclose(got, first / (1 + np.exp(-first)) * second, rtol=1e-5, atol=1e-5)


def test_what_few_rows_leave_out() -> None:
    for gemm in (product(9, 16, 64), product(1, 16, 40)):
        with pytest.raises(UnsupportedByTemplate, match="at most 8 rows, of a multiple of 16 bytes"):
            gemv_float8("sm_80", gemm)


@pytest.mark.parametrize("chip", FEW)
def test_ptxas_takes_few_rows(chip: str) -> None:
    text = ptx(gemv_float8(chip, product(None, 4096, 4096, program=scales("bf16"))).device, chip)
    assert all(not found.spills and found.registers <= 64 for found in assembled(text, chip).values())


# -- mma.sync ----------------------------------------------------------------------------------------------------------

MMA = "sm_89"
#: Chips with the instruction, without, and without but with one that converts.
BOTH = ["sm_89", "sm_80", "sm_90"]


def with_tile(gemm: Gemm, tile: Tile, splits: int = 1, chip: str = MMA, *, fast: bool = False) -> DeviceKernel:
    only, core, access = [(None, Choice(tile, splits))], float8_core(gemm, fast=fast), float8_access(gemm)
    return product_kernel(chip, "mma", gemm, dense_operands(gemm), (tile,), core, access, choices=only)


@pytest.mark.parametrize(("number", "chip"), products(range(len(FLOAT8_TILES)), BOTH, meeting=1))
@pytest.mark.quick(1)
def test_every_tile_of_mma_at_its_edges(number: int, chip: str) -> None:
    tile = FLOAT8_TILES[number]
    gemm = product(None, tile.bn + 8, 2 * tile.bk + 16)
    kernel = with_tile(gemm, tile, chip=chip)
    for m in (1, tile.bm + 1):
        stats = check(kernel, gemm, m, chip)
        assert stats.count("mma") > 0


@pytest.mark.parametrize("chip", BOTH)
@pytest.mark.parametrize(("left", "right"), list(itertools.product((E4M3, E5M2), repeat=2)))
@pytest.mark.quick(2)
def test_both_types_by_mma(left: str, right: str, chip: str) -> None:
    gemm = product(None, 24, 64, "f16", scales("f16"), (left, right))
    check(gemm_float8(chip, gemm), gemm, 19, chip)


def test_fast_sums_by_mma() -> None:
    gemm = replace(product(None, 24, 256), chosen=Chosen("mm", {"fast_sums": 1}))
    fast = gemm_float8(MMA, gemm)
    check(fast, gemm, 19, MMA)
    exact = gemm_float8(MMA, replace(gemm, chosen=Chosen()))
    # Two instructions begin at zero, and four additions in f32 follow.
    assert ptx(exact.device, MMA).count("add.rn.f32") >= ptx(fast.device, MMA).count("add.rn.f32") + 4


@pytest.mark.parametrize("chip", [*BOTH, "sm_90a"])
@pytest.mark.parametrize("word", [E4M3, E5M2])
@pytest.mark.quick(3)
def test_every_float_of_8_bits_is_multiplied(word: str, chip: str) -> None:
    """Every code times one, in a row of its own: subnormal numbers, infinities and NaN."""
    gemm = product(256, 16, 16, "f32", float8=(word, E4M3))
    kernel = by_wgmma(gemm) if chip == HOPPER else gemm_float8(chip, gemm)
    x = np.zeros((256, 16), TYPES[word])
    x[:, 0] = np.arange(256, dtype=np.uint8).view(TYPES[word])
    w = np.ones((16, 16), TYPES[E4M3])
    got = np.full((256, 16), 0.5, np.float32)
    emulate(kernel, gemm.name, chip, [x, w], [got])
    np.testing.assert_array_equal(got, np.repeat(x[:, :1].astype(np.float32), 16, axis=1))


@pytest.mark.parametrize(
    ("kinds", "element"),
    products([("scalar", "scalar"), ("column", "row"), ("scalar", "row")], ["f32", "f16", "bf16"], meeting=1),
)
def test_scales_by_mma(kinds: tuple[str, str], element: str) -> None:
    gemm = product(None, 40, 48, element, scales(element, *kinds))
    check(gemm_float8(MMA, gemm), gemm, 21, MMA)


@pytest.mark.parametrize(("k", "n"), products([1, 2, 4, 8, 17, 24, 100], [1, 9, 12], meeting=1))
@pytest.mark.quick(2)
def test_odd_sizes_by_mma(k: int, n: int) -> None:
    """Rows of any number of bytes; outputs of any number of columns."""
    gemm = product(None, n, k, "bf16" if n % 2 else "f32")
    kernel = gemm_float8(MMA, gemm)
    for m in (1, 18):
        check(kernel, gemm, m, MMA)


@pytest.mark.parametrize("chip", [pytest.param(chip, marks=[pytest.mark.slow] * (chip != "sm_80")) for chip in BOTH])
@pytest.mark.parametrize("unknown", [pytest.param("k", marks=pytest.mark.slow), "n", "kn"])
@pytest.mark.quick(1)
def test_sizes_that_are_not_known_by_mma(unknown: str, chip: str) -> None:
    """The host chooses between whole pieces of 16 bytes and single bytes."""
    for n, k in ((32, 96), (7, 33), (16, 0)):
        known = product(None, n, k, "bf16", scales("bf16"))
        if ("k" not in unknown and k % 16) or ("n" not in unknown and n % 8):
            continue
        own_n, own_k = None if "n" in unknown else n, None if "k" in unknown else k
        gemm = replace(known, x_shape=(None, own_k), w_shape=(own_n, own_k), out_shape=(None, own_n))
        check(gemm_float8(chip, gemm), known, 5, chip)


def test_parts_of_k_by_mma() -> None:
    gemm = product(None, 64, 1024, program=scales("bf16"))
    check(with_tile(gemm, FLOAT8_TILES[3], splits=3), gemm, 5, MMA)


def test_reads_by_mma_have_no_conflicts() -> None:
    gemm = product(None, 128, 256)
    kernel = with_tile(gemm, FLOAT8_TILES[0])
    stats = check(kernel, gemm, 128, MMA, profile=True)
    assert not stats.uncoalesced
    lines = ptx(kernel.device, MMA).splitlines()
    bad = [lines[access.line - 1].strip() for access in stats.bank_conflicts]
    assert not [line for line in bad if line.startswith(("ldmatrix", "cp.async"))], bad


def test_batches_by_mma() -> None:
    gemm = Gemm("mm", (3, None, 32), (3, 16, 32), (3, None, 16), element="f32", transpose_rhs=True, float8=(E4M3, E4M3))
    check(gemm_float8(MMA, gemm), gemm, 7, MMA)


@pytest.mark.parametrize("chip", [*BOTH, *(pytest.param(own, marks=pytest.mark.slow) for own in ("sm_100", "sm_120a"))])
@pytest.mark.quick(1)
def test_ptxas_takes_mma(chip: str) -> None:
    gemm = product(None, 512, 1024, program=scales("bf16"))
    text = ptx(gemm_float8(chip, gemm).device, chip)
    native = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
    assert (native in text) == (chip in ("sm_89", "sm_120a"))
    for name, found in assembled(text, chip).items():
        assert found.spills == 0, name


def test_the_version_of_ptx_is_that_of_the_instruction() -> None:
    gemm = product(4, 16, 32)
    assert ".version 7.0" in ptx(gemm_float8("sm_80", gemm).device, "sm_80")
    assert ".version 8.4" in ptx(gemm_float8("sm_89", gemm).device, "sm_89")
    assert ".version 8.6" in ptx(gemm_float8("sm_100", gemm).device, "sm_100")


# -- wgmma -------------------------------------------------------------------------------------------------------------

HOPPER = "sm_90a"
FITTING = [tile for tile in hopper.TILES if tile.blocks * tile.columns <= hopper.PROMOTED_ACCUMULATORS]


def chosen(fast: bool) -> Chosen:
    return Chosen("mm", {"fast_sums": 1} if fast else {})


def by_wgmma(gemm: Gemm, tile: hopper.Tile | None = None, splits: int = 1, *, fast: bool = False) -> DeviceKernel:
    """The product, with a tile of the test's choice where one is given."""
    only = None if tile is None else [(None, hopper.Choice(tile, splits))]
    return gemm_hopper(replace(gemm, chosen=chosen(fast)), HOPPER, choices=only)


@pytest.mark.parametrize(("number", "element"), products(range(len(FITTING)), ["bf16", "f32"], meeting=1))
@pytest.mark.quick(2)
def test_every_tile_of_wgmma_at_its_edges(number: int, element: str) -> None:
    tile = FITTING[number]
    gemm = product(None, tile.out_columns + 8, 272, element, scales(element))
    kernel = by_wgmma(gemm, tile)
    for m in (1, tile.out_rows + 1):
        assert check(kernel, gemm, m, HOPPER).count("wgmma") > 0


@pytest.mark.parametrize("tile", [hopper.TILES[0], hopper.TILES[1], hopper.TILES[-1]], ids=["256", "2x128", "swapped"])
@pytest.mark.quick(1)
def test_fast_sums_by_wgmma(tile: hopper.Tile) -> None:
    gemm = product(None, tile.out_columns, 384, "f16", scales("f16", "scalar", "row"))
    check(by_wgmma(gemm, tile, fast=True), gemm, 70, HOPPER)


@pytest.mark.parametrize(("left", "right"), list(itertools.product((E4M3, E5M2), repeat=2)))
@pytest.mark.parametrize("tile", [FITTING[0], FITTING[-1]], ids=["straight", "swapped"])
@pytest.mark.quick(1)
def test_both_types_by_wgmma(tile: hopper.Tile, left: str, right: str) -> None:
    gemm = product(None, 64, 144, "f32", scales("f32"), (left, right))
    check(by_wgmma(gemm, tile), gemm, 9, HOPPER)


@pytest.mark.parametrize(("number", "element"), products([-2, -1], ["f32", "bf16"], meeting=1))
@pytest.mark.quick(1)
def test_parts_of_k_by_wgmma(number: int, element: str) -> None:
    tile = FITTING[number]
    gemm = product(None, 72, 1040, element, scales(element))
    check(by_wgmma(gemm, tile, 3), gemm, 13, HOPPER)


def test_batches_by_wgmma() -> None:
    float8 = (E4M3, E4M3)
    gemm = Gemm("mm", (3, None, 32), (3, 16, 32), (3, None, 16), element="f32", transpose_rhs=True, float8=float8)
    check(by_wgmma(gemm), gemm, 7, HOPPER)


@pytest.mark.parametrize(("number", "element", "fast"), products([0, 1, -1], ["bf16", "f32"], [False, True]))
@pytest.mark.quick(1)
def test_ptxas_takes_wgmma(number: int, element: str, fast: bool) -> None:
    """No spills, and products that ptxas doesn't make wait for each other."""
    tile = FITTING[number]
    gemm = product(None, 512, 1024, element, scales(element))
    text = ptx(by_wgmma(gemm, tile, fast=fast).device, HOPPER)
    assert f"wgmma.mma_async.sync.aligned.m64n{tile.columns}k32.f32.e4m3.e4m3" in text
    for name, found in assembled(text, HOPPER).items():
        assert found.spills == 0, name


def test_what_wgmma_cannot_read() -> None:
    with pytest.raises(UnsupportedByTemplate, match="rows of a multiple of 16 bytes, but K is 40, 40 bytes"):
        by_wgmma(product(4, 16, 40))
    with pytest.raises(UnsupportedByTemplate, match="of 8 bits along K, but weights are"):
        by_wgmma(replace(product(4, 16, 16), transpose_rhs=False))


# -- both --------------------------------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    m=st.integers(0, 70),
    n=st.integers(0, 140),
    k=st.integers(0, 300),
    step=st.sampled_from([1, 8, 16]),
    element=st.sampled_from(["f32", "f16", "bf16"]),
    chip=st.sampled_from(["sm_80", MMA, HOPPER]),
    dynamic=st.booleans(),
)
@pytest.mark.wide
def test_any_sizes(m: int, n: int, k: int, step: int, element: str, chip: str, dynamic: bool) -> None:
    """By the schedule that takes them; N and K are multiples of a step, so that wgmma has its share."""
    gemm = product(None if dynamic else m, n // step * step, k // step * step, element, scales(element))
    try:
        kernel = by_wgmma(gemm)
    except UnsupportedByTemplate:
        kernel = gemm_float8(chip, gemm)
    else:
        chip = HOPPER
    check(kernel, gemm, m, chip)


# -- modules -----------------------------------------------------------------------------------------------------------


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8) if array.dtype.itemsize == 1 else array


@pytest.mark.parametrize(
    ("chip", "schedule"), [("sm_80", "gemm_float8"), ("sm_89", "gemm_float8"), ("sm_90a", "gemm_hopper")]
)
@pytest.mark.quick(1)
def test_a_module(chip: str, schedule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows quantised by their largest element, weights [K, N], scales, a bias; and arrays of 8 bits in and out."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    m = GraphModule.mir("m")
    x, raw = m.input("x", ["m", 32]), m.input("raw", ["m", 32], E5M2)
    scale = m.mul(m.max(m.abs(x), axes=[1], keep_dims=True), np.float32(1 / 448))
    q = m.cast(m.div(x, scale), E4M3)
    w, columns, bias = m.param("w", [32, 16], E4M3), m.param("columns", [16]), m.param("bias", [16], "bf16")
    y = m.scaled_matmul(q, w, m.reshape(scale, [-1]), columns, dtype="bf16")
    z = m.scaled_matmul(q, raw, dtype="f32", transpose_rhs=True)
    moved = {"turned": m.transpose(raw, [1, 0]), "joined": m.concat([raw, raw], axis=1), "part": m.narrow(raw, 1, 3, 7)}
    m.set_outputs({"y": m.relu(m.add(y, bias)), "z": z, "q": q, **moved, "wide": m.cast(raw, "f32")})
    rng = np.random.default_rng(0)
    params = {
        "w": rng.standard_normal((32, 16)).astype(TYPES[E4M3]),
        "columns": rng.uniform(1, 2, 16).astype(np.float32),
        "bias": rng.standard_normal(16).astype(TYPES["bf16"]),
    }
    with emulated_device(chip):
        executable = rlx.compile(m, target="cuda", chip=chip, maxima={"m": 9})
        templates = executable.artifact.templates
        assert templates["scaled_matmul_add_relu_0"] == f"gemv_float8|{schedule}"
        executable.set_params(params)
        for rows in (9, 1, 0):
            inputs = {
                "x": rng.standard_normal((rows, 32)).astype(np.float32),
                "raw": np.arange(rows * 32, dtype=np.int64).astype(np.uint8).view(TYPES[E5M2]).reshape(rows, 32),
            }
            want, got = interpret(m, {**inputs, **params}), executable.run(inputs)
            for name, value in want.items():
                assert got[name].dtype == value.dtype
                if name in ("y", "z"):
                    found, wanted = (array.astype(np.float32) for array in (got[name], value))
                    np.testing.assert_allclose(found, wanted, rtol=0.02, atol=0.02)
                else:
                    np.testing.assert_array_equal(bits(got[name]), bits(value), err_msg=name)


def test_an_old_version_of_ptx_is_refused() -> None:
    m = GraphModule.mir("m")
    m.set_outputs({"y": m.scaled_matmul(m.input("x", [4, 32], E4M3), m.param("w", [16, 32], E4M3), transpose_rhs=True)})
    with pytest.raises(PassError, match=r"at least 8\.4 for kernels of this module on sm_89, but got 8\.0"):
        rlx.emit(m, "ptx", target="nvptx", chip="sm_89", ptx="8.0")
