# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers of products by wgmma: their PTX, run by the emulator, against numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from covering import products
from gpu_emulated import emulate

from ptx_emulator import Stats
from rlx_mlir.codegen.gpu.gemm_base import Gemm
from rlx_mlir.codegen.gpu.gemm_hopper import gemm_hopper
from rlx_mlir.codegen.gpu.gemm_hopper_config import TILES, Choice, Tile
from rlx_mlir.codegen.program import IDENTITY, SWIGLU, Argument, Program, Step

CHIP = "sm_90a"
DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
#: One rounding to the element type, and what short forms of exp and sums in f32 leave.
TOLERANCES = {"bf16": 2.0**-8, "f16": 2.0**-10}

ADD_BIAS = Step("add", (("acc", 0), ("arg", 0)))
PROGRAMS = {
    "bias": Program((ADD_BIAS,), (Argument("row"),)),
    "bias_silu": Program((ADD_BIAS, Step("silu", (("step", 0),))), (Argument("row"),)),
    "bias_gelu": Program((ADD_BIAS, Step("gelu", (("step", 0),))), (Argument("row"),)),
    "bias_gelu_approx": Program((ADD_BIAS, Step("gelu_approx", (("step", 0),))), (Argument("row"),)),
    "sigmoid": Program((Step("sigmoid", (("acc", 0),)),)),
    "exp": Program((Step("exp", (("acc", 0),)),)),
    "relu_residual": Program(
        (Step("relu", (("acc", 0),)), Step("add", (("step", 0), ("arg", 0)))), (Argument("full"),)
    ),
    "scaled": Program(
        (Step("mul", (("acc", 0), ("arg", 0))), Step("mul", (("step", 0), ("arg", 1)))),
        (Argument("scalar"), Argument("column")),
    ),
    "swiglu": SWIGLU,
    "pair": Program((), (), (("acc", 0), ("acc", 1)), 2),
    "three": Program((), (), (("acc", 0), ("acc", 1), ("acc", 2)), 3),
    "sum_and_product": Program(
        (Step("add", (("acc", 0), ("acc", 1))), Step("mul", (("acc", 0), ("acc", 1)))),
        (),
        (("step", 0), ("step", 1)),
        2,
    ),
}

_erf = np.vectorize(math.erf, otypes=[np.float64])
FUNCTIONS = {
    "add": np.add,
    "mul": np.multiply,
    "relu": lambda x: np.maximum(x, 0),
    "exp": np.exp,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x * math.sqrt(0.5))),
    "gelu_approx": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def name_of(tile: Tile) -> str:
    return f"{tile.rows}x{tile.columns}{'_swapped' if tile.swapped else ''}"


def expected(gemm: Gemm, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs in f64."""
    wide = [array.astype(np.float64) for array in arrays]
    x, weights, arguments = (
        wide[0],
        wide[1 : 1 + gemm.program.accumulators],
        wide[1 + gemm.program.accumulators :],
    )
    products = [np.matmul(x, np.swapaxes(w, -1, -2) if gemm.transpose_rhs else w) for w in weights]
    values: list[np.ndarray] = []

    def resolve(ref):
        kind, index = ref
        return {"acc": products, "arg": arguments, "step": values, "const": {index: index}}[kind][index]

    for step in gemm.program.steps:
        values.append(FUNCTIONS[step.op](*[resolve(ref) for ref in step.inputs]))
    return [resolve(ref) for ref in gemm.program.results]


def check(
    gemm: Gemm,
    shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    choices: list[tuple[int | None, Choice]] | None = None,
    *,
    constant: bool = False,
    profile: bool = False,
) -> tuple[list[np.ndarray], Stats]:
    """Runs the kernel on random operands of the shapes (x, weight, output), and compares.

    Returns the outputs, and what the launches did.
    """
    rng = np.random.default_rng(0)
    dtype = DTYPES[gemm.element]
    x_shape, w_shape, out_shape = shapes
    k = x_shape[-1]

    def made(shape: tuple[int, ...], scale: float = 1.0) -> np.ndarray:
        return np.asarray(rng.standard_normal(shape) * scale).astype(dtype)

    natural = {"full": out_shape, "row": out_shape[-1:], "column": (*out_shape[:-1], 1), "scalar": ()}
    arrays = [made(x_shape), *(made(w_shape, k**-0.5) for _ in range(gemm.program.accumulators))]
    arrays += [made(natural[argument.broadcast]) for argument in gemm.program.arguments]
    outputs = [np.full(out_shape, np.nan, dtype) for _ in gemm.program.results]
    kernel = gemm_hopper(gemm, CHIP, constant_weights=constant, choices=choices)
    stats, _ = emulate(kernel, gemm.name, CHIP, arrays, outputs, profile=profile)
    tolerance = TOLERANCES[gemm.element]
    for output, reference in zip(outputs, expected(gemm, arrays), strict=True):
        np.testing.assert_allclose(output.astype(np.float64), reference, rtol=tolerance, atol=tolerance / 8)
    return outputs, stats


def plain(
    tile: Tile,
    m: int,
    n: int,
    k: int,
    program: Program = IDENTITY,
    *,
    element: str = "bf16",
    transpose: bool = True,
    splits: int = 1,
    constant: bool = False,
    profile: bool = False,
) -> tuple[list[np.ndarray], Stats]:
    """One product by one tile, with a dynamic number of rows."""
    weight = (n, k) if transpose else (k, n)
    gemm = Gemm("mm", (None, k), weight, (None, n), program, element=element, transpose_rhs=transpose)
    fitted = tile.shared_by(program.accumulators)
    assert fitted is not None
    choices = [(None, Choice(fitted, splits))]
    return check(gemm, ((m, k), weight, (m, n)), choices, constant=constant, profile=profile)


@pytest.mark.parametrize("transpose", [True, False], ids=["nk", "kn"])
@pytest.mark.parametrize("tile", TILES, ids=name_of)
@pytest.mark.quick(1)
def test_tails_of_all_sizes(tile, transpose):
    """A tile and a bit along rows and columns, and K that isn't whole steps, more of them than stages."""
    m, n = tile.out_rows + 3, tile.out_columns + 24
    plain(tile, m, n, 200, transpose=transpose)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.quick(1)
def test_ring_goes_round(constant):
    """More steps than stages, and several tiles by one block: the parity of barriers changes."""
    if not constant:  # which says when the ring is filled first, and nothing of its rounds
        plain(TILES[6], 64 * 3, 64 * 45, 64 * 5)
    plain(TILES[6], 40, 64, 64 * 29, constant=constant)


def test_groups_of_tiles():
    """More tiles of rows than are swept together, and a rest of them, for more tiles than blocks."""
    plain(TILES[6], 64 * 18 + 1, 64 * 8, 64)


@pytest.mark.parametrize("m", [0, 1, 7, 16, 17, 31])
@pytest.mark.quick(2)
def test_few_rows_swapped(m):
    plain(TILES[-1], m, 136, 328)


@pytest.mark.parametrize(("number", "splits"), products([-1, 6], [2, 3], meeting=1))
@pytest.mark.quick(1)
def test_parts_of_k_are_added(number, splits):
    """Seven steps of K in two or three parts."""
    tile = TILES[number]
    plain(tile, tile.out_rows + 5, 136, 7 * 64 - 8, PROGRAMS["bias_silu"], splits=splits)
    plain(tile, 5, 72, 7 * 64, PROGRAMS["pair"], splits=splits, transpose=False)


@pytest.mark.parametrize(
    ("tile", "name", "element"), products(["straight", "swapped"], list(PROGRAMS), ["bf16", "f16"])
)
@pytest.mark.quick(1)
def test_programs(tile, name, element):
    plain(TILES[0 if tile == "straight" else -1], 70, 136, 72, PROGRAMS[name], element=element)


@pytest.mark.parametrize(
    ("number", "name"), products([1, 2, 3, 5], ["three", "swiglu", "relu_residual", "scaled"], meeting=1)
)
@pytest.mark.quick(1)
def test_programs_of_other_tiles(number, name):
    tile = TILES[number]
    if tile.shared_by(PROGRAMS[name].accumulators) is None:
        pytest.skip("the accumulators of so many products don't fit this tile")
    plain(tile, 70, 272, 72, PROGRAMS[name], transpose=False)


@pytest.mark.parametrize("m", [1, 40, 129])
@pytest.mark.quick(1)
def test_host_picks_a_kernel_by_rows(m):
    gemm = Gemm("mm", (1, None, 64), (72, 64), (1, None, 72), PROGRAMS["bias"], element="f16", transpose_rhs=True)
    tile = TILES[-1], TILES[6], TILES[4]
    choices = [(16, Choice(tile[0])), (64, Choice(tile[1])), (None, Choice(tile[2]))]
    check(gemm, ((1, m, 64), (72, 64), (1, m, 72)), choices)


BATCHES = [
    ((2, 3, 20, 72), (2, 3, 72, 40), (2, 3, 20, 40)),
    ((2, 3, 20, 72), (2, 1, 72, 40), (2, 3, 20, 40)),
    ((2, 3, 20, 72), (3, 72, 40), (2, 3, 20, 40)),
    ((1, 20, 72), (5, 72, 40), (5, 20, 40)),
    ((2, 3, 20, 72), (1, 72, 40), (2, 3, 20, 40)),
    ((20, 72), (72, 40), (20, 40)),
    ((72,), (72, 40), (40,)),
]


@pytest.mark.parametrize(("shapes", "transpose"), products(BATCHES, [True, False], meeting=1))
@pytest.mark.quick(2)
def test_batches(shapes, transpose):
    x, w, out = shapes
    weight = (*w[:-2], w[-1], w[-2]) if transpose else w
    program = PROGRAMS["relu_residual"]
    gemm = Gemm("mm", x, weight, out, program, element="f16", transpose_rhs=transpose)
    check(gemm, (x, weight, out))


def test_dynamic_batches():
    program = PROGRAMS["relu_residual"]
    gemm = Gemm("mm", (None, 2, None, 64), (None, 1, 64, 72), (None, 2, None, 72), program, element="bf16")
    check(gemm, ((3, 2, 33, 64), (3, 1, 64, 72), (3, 2, 33, 72)))


def test_results_are_the_same_bits_each_time():
    first, second = (plain(TILES[-1], 9, 136, 448, splits=3)[0][0] for _ in range(2))
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("tile", TILES, ids=name_of)
@pytest.mark.quick(2)
def test_staging_has_no_bank_conflicts(tile):
    _, stats = plain(tile, tile.out_rows, tile.out_columns, 64, profile=True)
    staged = [access for access in stats.accesses.values() if access.space == "shared" and access.store]
    assert sum(access.bytes for access in staged) >= 2 * tile.rows * tile.columns
    assert stats.bank_conflicts == []


def test_arguments_and_parts_are_read_in_whole_sectors():
    _, stats = plain(TILES[0], 128, 256, 64, PROGRAMS["relu_residual"], profile=True)
    # Half of each sector of 32 bytes is what the next columns read, from L1.
    assert all(access.sectors <= 2 * access.least for access in stats.uncoalesced)
    _, stats = plain(TILES[-1], 16, 128, 128, splits=2, profile=True)
    assert stats.uncoalesced == []


def test_one_rounding():
    """x = 1 + 2^-8 and a bias that brings the sum back: two roundings to bf16 would lose it."""
    k, n = 64, 64
    x, w = np.zeros((1, k), ml_dtypes.bfloat16), np.zeros((n, k), ml_dtypes.bfloat16)
    x[0, :2] = 1.0, 2.0**-9
    w[:, :2] = 1.0
    bias, out = np.full(n, -1.0, ml_dtypes.bfloat16), np.zeros((1, n), ml_dtypes.bfloat16)
    gemm = Gemm("mm", (1, k), (n, k), (1, n), PROGRAMS["bias"], element="bf16", transpose_rhs=True)
    kernel = gemm_hopper(gemm, CHIP)
    emulate(kernel, "mm", CHIP, [x, w, bias], [out])
    assert np.all(out == ml_dtypes.bfloat16(2.0**-9))


def test_nan_and_infinity_go_through():
    k, n = 64, 64
    x, w = np.ones((3, k), np.float16), np.ones((n, k), np.float16)
    x[0, 0], x[1, 0] = np.nan, np.inf
    out = np.zeros((3, n), np.float16)
    gemm = Gemm("mm", (3, k), (n, k), (3, n), PROGRAMS["sigmoid"], element="f16", transpose_rhs=True)
    kernel = gemm_hopper(gemm, CHIP)
    emulate(kernel, "mm", CHIP, [x, w], [out])
    assert np.isnan(out[0]).all()
    assert (out[1] == 1).all()
    assert (out[2] == 1).all()
