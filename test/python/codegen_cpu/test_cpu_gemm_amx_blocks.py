# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of f32 with the integers of packed weights, by tiles of bf16."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from compile_harness import Program, compile_fresh
from cpu_harness import TARGETS, compiled
from packed_harness import encoded
from test_cpu_gemm import BLOCK_SCHEMES, SCHEMES, TILE_TARGETS, Case, check, need, problem

from rlx_mlir import formats
from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.gemm_amx_blocks import BlockTiles, gemm_blocks, has_integers
from rlx_mlir.codegen.cpu.gemm_amx_f32 import ROW_BLOCK
from rlx_mlir.codegen.cpu.gemm_packed import gemm_panels
from rlx_mlir.codegen.cpu.kernel import Product

TILES = TILE_TARGETS["bf16"]
WHOLE = [scheme for scheme in BLOCK_SCHEMES if has_integers(SCHEMES[scheme])]
PROGRAMS = ["identity", "bias", "swiglu", "residual", "scaled"]
ULP = 2.0**-24


@pytest.fixture(autouse=True)
def _tiles() -> None:
    need(TILES)


def test_which_schemes_have_integers() -> None:
    assert {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k"} <= set(WHOLE)
    assert not {"q6_k", "q2_k", "q3_k"} & set(WHOLE), "their scales are those of 16 elements"
    with pytest.raises(UnsupportedByTemplate, match="tiles don't multiply the integers of q6_k"):
        gemm_blocks(TILES, Product("product", (32, 256), 16), "q6_k")
    with pytest.raises(UnsupportedByTemplate, match="need f32 and tiles of bf16"):
        gemm_blocks(TARGETS[512], Product("product", (32, 256), 16), "q4_1")


@pytest.mark.parametrize("scheme", WHOLE)
def test_schemes(scheme: str) -> None:
    block = SCHEMES[scheme].block
    programs = itertools.cycle(PROGRAMS)
    for m, n, blocks in ((33, 40, 1), (7, 17, 9), (70, 33, 3)):
        check(Case("blocks", "bf16", scheme, m, n, blocks * block, True, next(programs)))


SIZES = [(1, 1, 32), (16, 33, 64), (17, 31, 160), (32, 32, 128), (33, 64, 288), (5, 49, 2112), (64, 16, 256)]
LONG = [(ROW_BLOCK + 1, 24, 160), (2 * ROW_BLOCK, 40, 96), (37, 32 * (BlockTiles.most_units // 2 + 2), 160)]


@pytest.mark.parametrize("size", [*SIZES, *LONG], ids=str)
def test_sizes(size: tuple[int, int, int]) -> None:
    """Rows, columns and K that fill tiles, blocks and groups, and that don't."""
    check(Case("blocks", "bf16", "q4_1", *size, size[0] % 2 == 0, PROGRAMS[sum(size) % len(PROGRAMS)]))


def test_no_rows() -> None:
    case = Case("blocks", "bf16", "q5_0", 0, 24, 32, True)
    given = problem(case)
    assert compiled("product", case.text())(given.operands, given.outputs(case))[0].size == 0


@pytest.mark.parametrize(("scheme", "n", "k"), [("q4_1", 40, 64), ("q8_0", 33, 352), ("q4_k", 64, 768)])
def test_a_row_does_not_depend_on_the_batch(scheme: str, n: int, k: int) -> None:
    case = Case("blocks", "bf16", scheme, 301, n, k, True)
    kernel, given = compiled("product", case.text()), problem(case)
    (whole,) = kernel(given.operands, given.outputs(case))
    for first, last in ((0, 1), (1, 16), (1, 17), (17, 50), (40, 301)):
        rows = np.ascontiguousarray(given.operands[0][:, first:last])
        (part,) = kernel([rows, given.operands[1]], [np.zeros((1, last - first, n), np.float32)])
        assert part.tobytes() == np.ascontiguousarray(whole[:, first:last]).tobytes()


def products(x: np.ndarray, rows: np.ndarray, scheme: str) -> list[np.ndarray]:
    """x [M, K] times packed rows [N, row bytes]: by tiles, by multiply-adds."""
    (_, k), n = x.shape, len(rows)
    panels = formats.pack_panels(scheme, rows, k).view(np.int8)
    product = Product("product", (None, k), n)
    texts = gemm_blocks(TILES, product, scheme), gemm_panels(TARGETS[512], product, scheme)
    return [compiled("product", text)([x, panels], [np.zeros((len(x), n), np.float32)])[0] for text in texts]


@pytest.mark.parametrize("scheme", ["q4_1", "q5_0", "q8_0", "q4_k"])
@pytest.mark.parametrize("kind", ["normal", "positive", "wide"])
def test_errors_are_no_larger_than_those_of_multiply_adds(scheme: str, kind: str) -> None:
    """Measured in units of the sum of |d u x| and |m x|: what the format's two parts are, which may cancel."""
    m, n, k = 40, 64, 768
    rng = np.random.default_rng(1)
    x = rng.standard_normal((m, k), np.float32)
    x = np.abs(x) + np.float32(0.5) if kind == "positive" else x
    x = (x * 10.0 ** rng.uniform(-12, 12, x.shape)).astype(np.float32) if kind == "wide" else x
    rows = encoded(scheme, rng.standard_normal((n, k), np.float32))
    weights = formats.decode(scheme, rows, k).astype(np.float64)
    exact = x.astype(np.float64) @ weights.T
    range_of_block = np.abs(weights).reshape(n, -1, 32).max(axis=-1)
    size = np.abs(x.astype(np.float64)) @ np.repeat(range_of_block, 32, axis=1).T
    own, other = (np.abs(found - exact) / size / ULP for found in products(x, rows, scheme))
    factor = 1.2 if kind == "wide" else 0.8
    assert own.mean() <= factor * other.mean(), (own.mean(), other.mean())
    assert own.max() <= (1.5 if kind == "wide" else 1) * other.max(), (own.max(), other.max())


@pytest.mark.parametrize("scheme", ["q4_1", "q8_0"])
def test_specials_give_what_multiply_adds_give(scheme: str) -> None:
    rng = np.random.default_rng(0)
    k = 320
    x = rng.standard_normal((70, k), np.float32)
    for row, value in enumerate([np.inf, -np.inf, np.nan, np.finfo(np.float32).max, np.float32(-3e38)]):
        x[11 * row, rng.integers(k)] = value
    x[60], x[61] = np.inf, 0
    weights = rng.standard_normal((50, k), np.float32)
    weights[3] = 0
    rows = encoded(scheme, weights)
    rows[7, :2] = np.array([np.inf], np.float16).view(np.uint8)  # the scale of a block
    with np.errstate(all="ignore"):
        found, expected = products(x, rows, scheme)
    special = ~np.isfinite(expected)
    assert special.any()
    np.testing.assert_array_equal(found[special], expected[special])
    assert np.isfinite(found[~special]).all()
    # Rows and columns without specials have the bits that they have alone.
    plain = np.isfinite(x).all(axis=1) & (np.abs(x) < 1e30).all(axis=1)
    columns = np.arange(len(rows)) != 7
    clean = products(np.where(plain[:, None], x, 1), rows, scheme)[0]
    assert found[plain][:, columns].tobytes() == clean[plain][:, columns].tobytes()


def test_templates() -> None:
    """Models' products with packed weights take it, for any number of rows beyond a few."""
    p = Program()
    m = p.m
    x = p.input("x", ["s", 256], "f32")
    few = p.input("few", [5, 256], "f32")
    outputs = {f"y_{scheme}": m.linear(x, p.param(scheme, [48, 256], packed=scheme)) for scheme in ("q4_1", "q6_k")}
    p.output(z=m.linear(few, p.param("w", [48, 256], packed="q4_k")), **outputs)
    executable = compile_fresh(p.finish())
    assert set(executable.artifact.templates.values()) == {"gemm_amx_f32"}
    assert len(executable.artifact.templates) == 3
    off = compile_fresh(p.finish(), disable_templates=("gemm_amx_f32",))
    assert set(off.artifact.templates.values()) == {"gemm_panels"}
