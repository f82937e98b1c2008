# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of single rows: the bits of one row alone, however many there are, for all templates of products."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from cpu_harness import RESIDUAL, TARGETS, compiled
from packed_harness import encoded

from rlx_mlir import formats
from rlx_mlir.codegen.cpu.gemm import UNIT_ROWS, gemm_dense
from rlx_mlir.codegen.cpu.gemm_digits import gemm_digits
from rlx_mlir.codegen.cpu.gemm_packed import ROW_BLOCK, are_single_rows, gemm_panels
from rlx_mlir.codegen.cpu.kernel import Product, block_counts, needed_tiles
from rlx_mlir.codegen.cpu.registry import generate
from rlx_mlir.codegen.program import IDENTITY, SWIGLU, Program
from rlx_mlir.codegen.specs import ProductSpec

DTYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
ROWS = (1, 2, 3, 5, 8, 13, 64, ROW_BLOCK + 3)
"""Numbers of rows: single ones, groups that are whole and not, more than go together."""

PROGRAMS = {"identity": IDENTITY, "swiglu": SWIGLU, "residual": RESIDUAL}


def text_of(
    path: str, bits: int, shape: tuple[int | None, ...], n: int, scheme: str, element: str, program: Program
) -> str:
    product = Product("product", shape, n, program, element=element)
    if path == "panels":
        return gemm_panels(TARGETS[bits], product, scheme)
    return gemm_dense(TARGETS[bits], product, transpose_rhs=path == "transposed")


def weight_of(path: str, n: int, k: int, scheme: str, element: str, seed: int) -> np.ndarray:
    values = np.random.default_rng([n, k, seed]).standard_normal((n, k), np.float32) + np.float32(0.25)
    if path == "panels":
        return formats.pack_panels(scheme, encoded(scheme, values), k).view(np.int8)
    return np.ascontiguousarray(values if path == "transposed" else values.T).astype(DTYPES[element])


def check(
    path: str, bits: int, n: int, k: int, scheme: str = "f32", element: str = "f32", named: str = "identity"
) -> None:
    """Compares rows of one call, of x [M, 1, K] and of few rows, with calls of one row."""
    program, dtype, most = PROGRAMS[named], DTYPES[element], max(ROWS)
    rng = np.random.default_rng([n, k])
    x = rng.standard_normal((most, k)).astype(dtype)
    x[2, k // 2], x[4, 0] = np.inf, np.nan
    weights = [weight_of(path, n, k, scheme, element, seed) for seed in range(program.accumulators)]
    full, row = rng.standard_normal((most, n)).astype(dtype), rng.standard_normal(n).astype(dtype)
    shared = [row] if program.arguments else []

    def run(shape: tuple[int | None, ...], count: int, cuts: list[int] | None = None) -> np.ndarray:
        kernel = compiled("product", text_of(path, bits, shape, n, scheme, element, program))
        sizes = [count if size is None else size for size in shape[:-1]]
        own = [full[:count].reshape(*sizes, n)] if program.arguments else []
        operands = [x[:count].reshape(*sizes, k), *weights, *own, *shared]
        return kernel(operands, [np.zeros((*sizes, n), dtype)], cuts)[0].reshape(count, n)

    alone = compiled("product", text_of(path, bits, (1, 1, k), n, scheme, element, program))
    expected = np.concatenate(
        [
            alone(
                [x[r : r + 1, None], *weights, *([full[r : r + 1, None]] if program.arguments else []), *shared],
                [np.zeros((1, 1, n), dtype)],
            )[0][0]
            for r in range(most)
        ]
    )
    assert np.isfinite(expected[5:].astype(np.float64)).all()
    for count in ROWS:
        assert run((None, 1, k), count).tobytes() == expected[:count].tobytes(), f"{count} rows"
    assert run((None, 1, k), 13, [1, 2]).tobytes() == expected[:13].tobytes(), "of some units at a time"
    assert run((None, 1, k), 0).size == 0
    for shape in ((1, 8, k), (5, k), (2, 3, k), (11, 1, k)):
        count = int(np.prod(shape[:-1]))
        assert run(shape, count).tobytes() == expected[:count].tobytes(), str(shape)


SCHEMES = {name: formats.panel_layout(name) for name in formats.PANEL_FORMATS}


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.quick(3)
def test_panels(scheme: str, bits: int) -> None:
    number = list(SCHEMES).index(scheme) + bits // 128
    block = SCHEMES[scheme].block
    check(
        "panels",
        bits,
        (17, 33, 48)[number % 3],
        37 if block == 1 else max(64, block),
        scheme,
        named=list(PROGRAMS)[number % 3],
    )


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("path", ["dense", "transposed"])
@pytest.mark.parametrize("element", list(DTYPES))
@pytest.mark.quick(3)
def test_dense(element: str, path: str, bits: int) -> None:
    for number, (n, k) in enumerate([(1, 1), (7, 16), (33, 37), (40, 2117)]):
        check(path, bits, n, k, element=element, named=list(PROGRAMS)[number % 3])


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.quick(2)
def test_panels_of_halves(element: str, bits: int) -> None:
    check("panels", bits, 33, 37, element, element, "residual")
    check("panels", bits, 33, 2117, element, element, "swiglu")
    check("panels", bits, 17, 64, "q4_1", element, "swiglu")


def test_which_rows_are_single() -> None:
    for x in ((7,), (1, 7), (8, 7), (2, 4, 7), (None, 1, 7), (None, None, 1, 7), (100, 1, 7), (0, 7)):
        assert are_single_rows(x), x
    for x in ((9, 7), (None, 7), (1, None, 7), (3, 3, 7), (None, 2, 7), (None, 8, 1)):
        assert not are_single_rows(x), x


@pytest.mark.parametrize(
    ("kind", "scheme", "element", "weight", "wanted"),
    [
        ("dequant_matmul", "f32", "f32", (4, 1024), "gemm_panels"),
        ("dequant_matmul", "q4_0", "f32", (4, 1024), "gemm_panels"),
        ("dequant_matmul", "bf16", "bf16", (4, 1024), "gemm_panels"),
        ("matmul", "", "f32", (1024, 64), "gemm_dense"),
        ("matmul", "", "bf16", (1024, 64), "gemm_dense"),
    ],
)
def test_tiles_are_for_other_rows(kind: str, scheme: str, element: str, weight: tuple[int, int], wanted: str) -> None:
    """AMX adds up in another order."""
    target = replace(TARGETS[512], features=TARGETS[512].features | {"amx-tile", "amx-bf16", "avx512vnni"})
    found = {}
    for x in ((1, 1, 1024), (None, 1, 1024), (1, 8, 1024), (None, None, 1024), (1, 16, 1024)):
        spec = ProductSpec(
            "p",
            kind,
            x,
            weight,
            (*x[:-1], 64),
            IDENTITY,
            (0, 1),
            element,
            scheme=scheme,
            layout="panels",  # type: ignore[arg-type]
        )
        found[x] = generate("gemm", "p", spec, target)[0]
    names = list(found.values())
    assert names[:3] == [wanted] * 3
    assert all(name.startswith("gemm_amx") for name in names[3:])


@pytest.mark.parametrize("path", ["dense", "digits"])
def test_rows_that_are_known_need_fewer_tiles(path: str) -> None:
    """Code for known numbers of rows has the tiles that cover them, and gives the bits of code for any number."""
    n, k = 200, 64
    target = replace(TARGETS[512], features=TARGETS[512].features | {"avx512vnni"})
    x = np.random.default_rng(0).standard_normal((2 * UNIT_ROWS + 3, k), np.float32)
    weight = weight_of("panels" if path == "digits" else "dense", n, k, "q4_1", "f32", 0)

    def kernel(rows: int | None) -> str:
        product = Product("product", (rows, k), n)
        return gemm_digits(target, product, "q4_1") if path == "digits" else gemm_dense(target, product)

    anything = kernel(None)
    expected = compiled("product", anything)([x, weight], [np.zeros((len(x), n), np.float32)])[0]
    for rows in (5, ROW_BLOCK, ROW_BLOCK + 1, UNIT_ROWS - 1, 2 * UNIT_ROWS, 2 * UNIT_ROWS + 1, 2 * UNIT_ROWS + 3):
        text = kernel(rows)
        found = compiled("product", text)([x[:rows], weight], [np.zeros((rows, n), np.float32)])[0]
        assert found.tobytes() == expected[:rows].tobytes(), f"{rows} rows"
        cut = compiled("product", text)([x[:rows], weight], [np.zeros((rows, n), np.float32)], [1, 4])[0]
        assert cut.tobytes() == found.tobytes(), f"{rows} rows, some units at a time"
        assert text.count("\n") < anything.count("\n"), f"{rows} rows"


def test_tiles_that_cover_rows() -> None:
    assert needed_tiles((6, 4, 2, 1), (0,)) == ()
    assert needed_tiles((6, 4, 2, 1), (12, 16)) == (6, 4)
    assert needed_tiles((6, 4, 2, 1), (11,)) == (6, 4, 1)
    assert block_counts(5, 8) == [5]
    assert block_counts(16, 8) == [8, 0]
    assert block_counts(19, 8) == [8, 3]
