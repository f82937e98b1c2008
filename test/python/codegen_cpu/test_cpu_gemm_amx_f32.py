# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of f32 by tiles of bf16: as exact as multiply-adds, on ordinary and on extraordinary numbers."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compile_harness import Program, compile_fresh
from cpu_harness import TARGETS, compiled
from packed_harness import encoded
from test_cpu_gemm import SCHEMES, TILE_TARGETS, Case, check, need, problem

from rlx_mlir import Executable, formats
from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.gemm_amx_f32 import ROW_BLOCK, gemm_split, gemm_split_batched, splits
from rlx_mlir.codegen.cpu.gemm_batched import BatchedProduct
from rlx_mlir.codegen.cpu.gemm_packed import gemm_panels
from rlx_mlir.codegen.cpu.kernel import Product

TILES = TILE_TARGETS["bf16"]
PROGRAMS = ["identity", "bias", "swiglu", "residual", "scaled"]
ULP = 2.0**-24


@pytest.fixture(autouse=True)
def _tiles() -> None:
    need(TILES)


def products(x: np.ndarray, w: np.ndarray, scheme: str = "f32") -> tuple[np.ndarray, np.ndarray]:
    """x [M, K] times w [N, K] by tiles, and by multiply-adds."""
    (_, k), n = x.shape, len(w)
    panels = formats.pack_panels(scheme, encoded(scheme, w), k).view(np.int8)
    product = Product("product", (None, k), n)
    texts = gemm_split(TILES, product, scheme), gemm_panels(TARGETS[512], product, scheme)
    found = [compiled("product", text)([x, panels], [np.zeros((len(x), n), np.float32)])[0] for text in texts]
    return found[0], found[1]


# -- sizes ------------------------------------------------------------------------------------------------------------

SIZES = [(1, 1, 1), (31, 33, 31), (32, 32, 32), (33, 31, 33), (16, 17, 64), (17, 96, 7), (65, 48, 255), (48, 16, 256)]
LONG = [(33, 70, 257), (64, 33, 544), (5, 49, 2112), (ROW_BLOCK + 1, 24, 40), (2 * ROW_BLOCK, 8, 288)]


@pytest.mark.parametrize("size", [*SIZES, *LONG], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_sizes(size: tuple[int, int, int], dynamic: bool) -> None:
    """Rows, columns and K that fill tiles, blocks and groups, and that don't."""
    program = PROGRAMS[sum(size) % len(PROGRAMS)]
    check(Case("split", "bf16", "f32", *size, dynamic, program))


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program: str) -> None:
    """Many columns are several groups of units, which share the rows' parts."""
    check(Case("split", "bf16", "f32", 37, 800, 64, True, program))
    check(Case("split", "bf16", "f32", 19, 450, 264, False, program))


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "f32"])
def test_schemes(scheme: str) -> None:
    block = max(SCHEMES[scheme].block, 32)
    programs = itertools.cycle(PROGRAMS)
    for m, n, k in ((33, 40, block), (1, 17, 9 * block)):
        check(Case("split", "bf16", scheme, m, n, k, True, next(programs)))


def test_no_rows() -> None:
    case = Case("split", "bf16", "q4_0", 0, 24, 32, True)
    given = problem(case)
    assert compiled("product", case.text())(given.operands, given.outputs(case))[0].size == 0


@pytest.mark.parametrize(("n", "k"), [(40, 64), (33, 40), (64, 600)])
def test_a_row_does_not_depend_on_the_batch(n: int, k: int) -> None:
    case = Case("split", "bf16", "f32", 301, n, k, True)
    kernel, given = compiled("product", case.text()), problem(case)
    (whole,) = kernel(given.operands, given.outputs(case))
    for first, last in ((0, 1), (1, 16), (1, 17), (17, 50), (40, 301)):
        rows = np.ascontiguousarray(given.operands[0][:, first:last])
        (part,) = kernel([rows, given.operands[1]], [np.zeros((1, last - first, n), np.float32)])
        assert part.tobytes() == np.ascontiguousarray(whole[:, first:last]).tobytes()


def test_batched_units_of_many_blocks() -> None:
    """Ranges that begin and end in the middle of a block of rows, or of a batch element."""
    m, n, k = ROW_BLOCK + 40, 100, 48
    product = BatchedProduct("product", (3, m, k), (3, k, n), (3, m, n))
    kernel = compiled("product", gemm_split_batched(TILES, product))
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, m, k), np.float32), rng.standard_normal((3, k, n), np.float32)
    (whole,) = kernel([x, w], [np.zeros((3, m, n), np.float32)])
    np.testing.assert_allclose(whole, x.astype(np.float64) @ w, rtol=1e-5, atol=1e-4)
    assert kernel.units([x, w, whole]) == 3 * -(-m // 32) * 4
    for cuts in ([1], [2, 3], [3, 5, 9], [33, 34, 79], [39, 41, 81], list(range(120))):
        assert kernel([x, w], [np.zeros((3, m, n), np.float32)], cuts)[0].tobytes() == whole.tobytes()


# -- accuracy ---------------------------------------------------------------------------------------------------------


def numbers(kind: str, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    x, w = rng.standard_normal((m, k)), rng.standard_normal((n, k))
    if kind == "positive":
        x, w = np.abs(x) + 0.5, np.abs(w) + 0.5
    elif kind == "uniform":
        x, w = rng.random((m, k)), rng.random((n, k))
    elif kind == "cancelling":
        half = k // 2
        x[:, half : 2 * half] = -x[:, :half]
        w[:, half : 2 * half] = w[:, :half] * (1 + 1e-5 * rng.standard_normal((n, half)))
    elif kind == "wide":
        x, w = x * 10.0 ** rng.uniform(-15, 15, x.shape), w * 10.0 ** rng.uniform(-15, 15, w.shape)
    elif kind == "wider":
        x, w = x * 10.0 ** rng.uniform(-30, 30, x.shape), w * 10.0 ** rng.uniform(-4, 4, w.shape)
    return x.astype(np.float32), w.astype(np.float32)


@pytest.mark.parametrize("k", [32, 33, 256, 768, 3072])
@pytest.mark.parametrize("kind", ["normal", "positive", "uniform", "cancelling", "wide", "wider"])
def test_errors_are_no_larger_than_those_of_multiply_adds(kind: str, k: int) -> None:
    """Measured in units of the sum of absolute products, whose rounding bounds any order of summation."""
    x, w = numbers(kind, 64, 96, k)
    exact = x.astype(np.float64) @ w.T.astype(np.float64)
    size = np.abs(x.astype(np.float64)) @ np.abs(w.T.astype(np.float64))
    own, other = (np.abs(found - exact) / size / ULP for found in products(x, w))
    # Where one product outweighs all others, a tile rounds the sum of its parts more than once.
    factor = 1.4 if kind.startswith("wide") else 0.8
    assert own.mean() <= factor * other.mean(), (own.mean(), other.mean())
    assert own.max() <= (2 if kind.startswith("wide") else 1) * other.max(), (own.max(), other.max())


def test_small_numbers_lose_no_more_than_promised() -> None:
    rng = np.random.default_rng(0)
    k = 96
    x = (rng.standard_normal((40, k)) * 2.0 ** rng.integers(-149, -90, (40, k))).astype(np.float32)
    w = (rng.standard_normal((48, k)) * 2.0 ** rng.integers(-30, 60, (48, k))).astype(np.float32)
    x[:, ::7] = np.float32(1e-45)
    for left, right in ((x, w), (w, x)):
        exact = left.astype(np.float64) @ right.T.astype(np.float64)
        size = np.abs(left.astype(np.float64)) @ np.abs(right.T.astype(np.float64))
        loss = np.abs(left.astype(np.float64)).sum(axis=1)[:, None] + np.abs(right.astype(np.float64)).sum(axis=1)
        found, _ = products(left, right)
        limit = 2.0**-126 * (6 * k + 3 * loss) + 8 * ULP * size
        assert (np.abs(found - exact) <= limit).all()
        assert np.isfinite(found).all()


# -- what isn't finite ------------------------------------------------------------------------------------------------

SPECIALS = [np.inf, -np.inf, np.nan, np.float32(np.finfo(np.float32).max), np.float32(-3.4e38)]
#: NaN with all bits of the mantissa set, whose rounding to bf16 would carry into the sign.
FULL_NAN = np.array([0x7FFFFFFF], np.uint32).view(np.float32)[0]


@pytest.mark.parametrize("scheme", ["f32", "q8_0"])
@pytest.mark.parametrize("k", [64, 320])
def test_specials_give_what_multiply_adds_give(scheme: str, k: int) -> None:
    rng = np.random.default_rng(k)
    x, w = rng.standard_normal((70, k), np.float32), rng.standard_normal((50, k), np.float32)
    w[3] = 0
    for row, value in enumerate([*SPECIALS, FULL_NAN]):
        x[11 * row, rng.integers(k)] = value
    if scheme == "f32":
        for column, value in enumerate([*SPECIALS, FULL_NAN]):
            w[7 * column + 5, rng.integers(k)] = value
    x[40] = np.inf
    x[41, 5], x[41, 6] = 3e38, -3e38
    if scheme == "f32":
        w[20, 5], w[20, 6] = 3e38, 3e38  # inf - inf
    x[42] = 0
    with np.errstate(all="ignore"):
        found, expected = products(x, w, scheme)
    special = ~np.isfinite(expected)
    np.testing.assert_array_equal(found[special], expected[special])
    # What is finite is no less so, and rows and columns without specials have the bits that they have alone.
    assert np.isfinite(found[~special]).all()
    plain_x, plain_w = np.isfinite(x).all(axis=1) & (np.abs(x) < 1e30).all(axis=1), np.isfinite(w).all(axis=1)
    plain_w &= (np.abs(w) < 1e30).all(axis=1)
    clean, _ = products(np.where(plain_x[:, None], x, 1), np.where(plain_w[:, None], w, 1), scheme)
    assert found[plain_x][:, plain_w].tobytes() == clean[plain_x][:, plain_w].tobytes()


def test_numbers_that_round_to_infinity_are_products_of_multiply_adds() -> None:
    """The largest numbers have no bf16 beside infinity: their rows, and theirs alone, take the other way."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((33, 64), np.float32), rng.standard_normal((40, 64), np.float32)
    x[7, 3], w[:, 3] = np.finfo(np.float32).max, w[:, 3] * 2.0**-20
    found, expected = products(x, w)
    assert np.isfinite(found).all()
    assert found[7].tobytes() == expected[7].tobytes()
    assert found[8].tobytes() != expected[8].tobytes()


def test_specials_of_activations() -> None:
    """As for weights, where the right operand is read as it is, or transposed."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 40, 300), np.float32), rng.standard_normal((2, 300, 45), np.float32)
    x[0, 3, 7], x[1, 39, 299], w[1, 5, 44], w[0, 299, 0] = np.inf, np.nan, -np.inf, np.inf
    results = []
    for transpose in (False, True):
        operand = np.ascontiguousarray(np.swapaxes(w, -1, -2)) if transpose else w
        product = BatchedProduct("product", x.shape, operand.shape, (2, 40, 45), transpose_rhs=transpose)
        kernel = compiled("product", gemm_split_batched(TILES, product))
        results.append(kernel([x, operand], [np.zeros((2, 40, 45), np.float32)])[0])
    with np.errstate(invalid="ignore"):
        expected = x.astype(np.float64) @ w
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-3)
    finite = np.isfinite(results[0])
    assert results[0][finite].tobytes() == results[1][finite].tobytes()


# -- choice -----------------------------------------------------------------------------------------------------------


def test_which_products_are_split() -> None:
    assert splits(TILES, "f32", None, None)
    assert splits(TILES, "f32", 512, 64)
    assert not splits(TILES, "f32", 4, 64)
    assert not splits(TILES, "f32", 512, 8)
    assert not splits(TILES, "bf16", 512, 64)
    assert not splits(TARGETS[512], "f32", 512, 64)
    with pytest.raises(UnsupportedByTemplate, match="need f32 and tiles of bf16"):
        gemm_split(TARGETS[512], Product("product", (32, 32), 16), "f32")


def network() -> Program:
    """Products with weights, dense and packed, and of two activations."""
    p = Program()
    m = p.m
    x = p.input("x", ["s", 96], "f32")
    h = m.linear(x, p.param("w", [96, 128]), p.param("b", [128]), activation="gelu")
    y = m.linear(h, p.param("q", [96, 128], packed="q8_0"))
    p.output(y=y, scores=m.matmul(y, x, transpose_rhs=True))
    return p


def test_templates_and_threads() -> None:
    program = network()
    executable = compile_fresh(program.finish())
    assert set(executable.artifact.templates.values()) == {"gemm_amx_f32", "gemm_amx_f32_batched"}
    artifact: Any = executable.artifact
    # Calls of little work stay on one thread: here they have a lot of it.
    artifact = replace(artifact, calls=tuple((*call[:3], [(10**12, [])]) for call in artifact.calls))
    inputs, params = program.values({"s": 75})
    results = []
    for threads in (1, 2, 3):
        own = Executable(artifact, threads=threads)
        own.set_params(params)
        results.append({name: array.tobytes() for name, array in own.run(inputs).items()})
    assert results[0] == results[1] == results[2]


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    program = network()
    module = program.finish()
    off = compile_fresh(module, disable_templates=("gemm_amx_f32",))
    assert set(off.artifact.templates.values()) == {"gemm_panels", "gemm_batched"}
    monkeypatch.setattr("rlx_mlir.lowering.cpu.request_tiles", lambda: False)
    without = compile_fresh(module)
    assert set(without.artifact.templates.values()) == {"gemm_panels", "gemm_batched"}
    inputs, params = program.values({"s": 40})
    for executable in (off, without):
        executable.set_params(params)
    for name, array in off.run(inputs).items():
        assert array.tobytes() == without.run(inputs)[name].tobytes()
