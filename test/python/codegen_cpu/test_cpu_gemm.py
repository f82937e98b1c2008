# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The matrix product templates against f64 references, for all panel schemes, targets and paths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cpu_harness import RESIDUAL, TARGETS, compiled
from packed_harness import encoded, set_scales

from rlx_mlir import formats
from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.block_quantize import block_quantize
from rlx_mlir.codegen.cpu.digits import has_room
from rlx_mlir.codegen.cpu.gemm import UNIT_ROWS, WIDE_COLUMNS, gemm_dense
from rlx_mlir.codegen.cpu.gemm_amx import GROUP, K_WHOLE, ROW_BLOCK, gemm_amx
from rlx_mlir.codegen.cpu.gemm_amx_blocks import gemm_blocks
from rlx_mlir.codegen.cpu.gemm_amx_f32 import gemm_split
from rlx_mlir.codegen.cpu.gemm_amx_int8 import uses_integer_tiles
from rlx_mlir.codegen.cpu.gemm_digits import gemm_digits
from rlx_mlir.codegen.cpu.gemm_int8 import gemm_int8
from rlx_mlir.codegen.cpu.gemm_packed import gemm_panels
from rlx_mlir.codegen.cpu.kernel import Product, Scratch, write_kernel
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.codegen.emit import Emitter, Value, element_of, memref, shape_of, vec, with_element
from rlx_mlir.codegen.program import IDENTITY, SWIGLU, Argument, Program, Step, emit_elementwise
from rlx_mlir.codegen.specs import QuantizeSpec
from rlx_mlir.native import host_processor
from rlx_mlir.runtime.tiles import request_tiles

ALL_TARGETS = {
    **{str(bits): target for bits, target in TARGETS.items()},
    "vnni512": replace(TARGETS[512], features=TARGETS[512].features | {"avx512vnni"}),
    "vnni256": replace(TARGETS[256], features=TARGETS[256].features | {"avxvnni"}),
}
ALL_TARGETS["amx512"] = replace(
    ALL_TARGETS["vnni512"], features=ALL_TARGETS["vnni512"].features | {"amx-tile", "amx-int8"}
)
TILE_TARGETS = {
    "bf16": replace(TARGETS[512], features=TARGETS[512].features | {"amx-tile", "amx-bf16"}),
    "f16": replace(TARGETS[512], features=TARGETS[512].features | {"amx-tile", "amx-fp16"}),
}
SCHEMES = {name: formats.panel_layout(name) for name in formats.PANEL_FORMATS}
BLOCK_SCHEMES = [name for name, layout in SCHEMES.items() if not layout.dense]
ULP = 2.0**-24
DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
HALF_ULP = {"f32": 0.0, "f16": 2.0**-11, "bf16": 2.0**-8}
"""Relative error of the one rounding to an element type, where it isn't that of the sum."""


HOST = {feature[1:] for feature in host_processor()[3].split(",") if feature.startswith("+")}


def need(target: Target) -> None:
    """Skips where this machine can't run the target's instructions."""
    if missing := sorted(target.features - HOST):
        pytest.skip(f"this machine has no {', '.join(missing)}")
    if target.has("amx-tile") and not request_tiles():
        pytest.skip("this system lends no tiles")


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


_erf = np.vectorize(math.erf)

PROGRAMS: dict[str, tuple[Program, Callable[[list[np.ndarray], list[np.ndarray]], list[np.ndarray]]]] = {
    "identity": (IDENTITY, lambda acc, arg: [acc[0]]),
    "swiglu": (SWIGLU, lambda acc, arg: [_silu(acc[0]) * acc[1]]),
    "bias": (Program((Step("add", (("acc", 0), ("arg", 0))),), (Argument("row"),)), lambda acc, arg: [acc[0] + arg[0]]),
    "residual": (
        RESIDUAL,
        lambda acc, arg: [(y := acc[0] + arg[1]) * 0.5 * (1 + _erf(y / math.sqrt(2))) + arg[0]],
    ),
    "scaled": (
        Program(
            (
                Step("mul", (("acc", 0), ("arg", 0))),
                Step("mul", (("step", 0), ("const", 0.25))),
                Step("add", (("step", 1), ("arg", 1))),
                Step("relu", (("step", 2),)),
            ),
            (Argument("scalar"), Argument("column")),
            (("step", 3), ("step", 1)),
        ),
        lambda acc, arg: [np.maximum((y := acc[0] * arg[0] * 0.25) + arg[1], 0), y],
    ),
}


@dataclass(frozen=True)
class Case:
    """One product; types don't know a dynamic m.

    path: panels, digits, int8, amx, split, blocks, dense or transposed.
    """

    path: str
    target: str
    scheme: str
    m: int
    n: int
    k: int
    dynamic: bool = False
    program: str = "identity"
    element: str = "f32"
    bits: int = 8

    def __str__(self) -> str:
        rows = f"M{self.m}{'dyn' if self.dynamic else ''}"
        path = self.path if self.path != "int8" else f"bits{self.bits}"
        return f"{path}-{self.element}-{self.scheme}-{self.target}-{rows}-N{self.n}-K{self.k}-{self.program}"

    @property
    def leading(self) -> tuple[int, ...]:
        return (1, self.m) if self.m % 2 or self.dynamic else (2, self.m // 2)

    def text(self) -> str:
        target = (TILE_TARGETS if self.path in ("amx", "split", "blocks") else ALL_TARGETS)[self.target]
        need(target)
        shape = (None,) * len(self.leading) if self.dynamic else self.leading
        product = Product("product", (*shape, self.k), self.n, PROGRAMS[self.program][0], element=self.element)
        if self.path == "panels":
            return gemm_panels(target, product, self.scheme)
        if self.path == "amx":
            return gemm_amx(target, product)
        if self.path in ("split", "blocks"):
            return (gemm_split if self.path == "split" else gemm_blocks)(target, product, self.scheme)
        if self.path == "digits":
            return gemm_digits(target, product, self.scheme)
        if self.path == "int8":
            return gemm_int8(target, product, self.scheme, self.bits)
        return gemm_dense(target, product, transpose_rhs=self.path == "transposed")


@dataclass
class Problem:
    """Operands for a case, its reference products and their tolerances; all from one seed."""

    operands: list[np.ndarray]
    arguments: list[np.ndarray]
    products: list[np.ndarray]
    tolerances: list[np.ndarray]

    def outputs(self, case: Case) -> list[np.ndarray]:
        count = len(PROGRAMS[case.program][0].results)
        return [np.zeros((*case.leading, case.n), DTYPES[case.element])] * count


#: Integers of activations by their bits.
WORDS = {8: np.int8, 15: np.int16, 22: np.int32}


def quantize(x: np.ndarray, bits: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The meaning of mir.block_quantize."""
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // 32, 32)
    scale = np.abs(blocks).max(axis=-1) / np.float32(127 * 2 ** (bits - 8))
    q = np.rint(np.divide(blocks, scale[..., None], out=np.zeros_like(blocks), where=scale[..., None] != 0))
    return q.astype(WORDS[bits]).reshape(x.shape), scale, q.sum(axis=-1).astype(np.int32)


def problem(case: Case) -> Problem:
    rng = np.random.default_rng([case.m, case.n, case.k])
    program = PROGRAMS[case.program][0]
    x = rng.standard_normal((*case.leading, case.k), np.float32).astype(DTYPES[case.element])
    operands: list[np.ndarray] = [x]
    exact_x = x.astype(np.float64)
    length = case.k
    if case.path == "int8":
        x[..., :1, :32] = 0  # a block whose scale is 0
        q, scale, total = quantize(x, case.bits)
        operands = [q, scale, total]
        exact_x = (q.reshape(*scale.shape, 32) * scale[..., None].astype(np.float64)).reshape(x.shape)
        length = 3 * case.k // 32
    products, tolerances = [], []
    for _ in range(program.accumulators):
        values = rng.standard_normal((case.n, case.k), np.float32) + np.float32(0.5)
        if case.path in ("panels", "digits", "int8", "amx", "split", "blocks"):
            rows = encoded(case.scheme, values)
            operands.append(formats.pack_panels(case.scheme, rows, case.k).view(np.int8))
            exact = formats.decode(case.scheme, rows, case.k).astype(np.float64)
            size = np.abs(exact)
            if not SCHEMES[case.scheme].dense:  # sums of d * u and m: up to three times the block's range
                blocks = size.reshape(case.n, -1, 32)
                size = np.broadcast_to(3 * blocks.max(axis=-1, keepdims=True), blocks.shape).reshape(exact.shape)
        else:
            values = values.astype(DTYPES[case.element])
            operands.append(np.ascontiguousarray(values if case.path == "transposed" else values.T))
            exact = values.astype(np.float64)
            size = np.abs(exact)
        products.append(exact_x @ exact.T)
        # Rounding errors of a chain of additions walk randomly: a few ulps times the root of its length.
        tolerances.append((np.sqrt(length) + 8) * ULP * (np.abs(exact_x) @ size.T))
    shapes = {"full": (*case.leading, case.n), "row": (case.n,), "column": (*case.leading, 1), "scalar": ()}
    arguments = [
        np.asarray(rng.standard_normal(shapes[argument.broadcast])).astype(DTYPES[case.element])
        for argument in program.arguments
    ]
    return Problem(operands, arguments, products, tolerances)


def check(case: Case) -> list[np.ndarray]:
    """Compares with the reference, and a run in one piece with a run in many."""
    kernel = compiled("product", case.text())
    given = problem(case)
    buffers = [*given.operands, *given.arguments]
    results = kernel(buffers, given.outputs(case))
    with np.errstate(over="ignore"):
        reference = PROGRAMS[case.program][1](given.products, [a.astype(np.float64) for a in given.arguments])
    tolerance = given.tolerances[0]
    if case.program == "swiglu":
        first, second = given.products
        tolerance = 1.2 * tolerance * np.abs(second) + given.tolerances[1] * np.abs(_silu(first))
    if case.program == "scaled":
        tolerance = tolerance * max(1.0, float(np.abs(given.arguments[0])))
    for result, expected in zip(results, reference, strict=True):
        error = np.abs(result.astype(np.float64) - expected)
        limit = 1.2 * tolerance + (8 * ULP + HALF_ULP[case.element]) * (np.abs(expected) + 1e-6) + 8 * ULP
        assert (error <= limit).all(), f"{case}: {np.nanmax(error / limit)} of the tolerance"
    pieces = kernel(buffers, given.outputs(case), [1, 2, 5])
    for whole, cut in zip(results, pieces, strict=True):
        assert whole.tobytes() == cut.tobytes(), f"{case}: the result depends on how units are cut"
    return results


def sampled(paths: Sequence[str], targets: Sequence[str], schemes: Sequence[str]) -> list[Case]:
    """Every scheme and target with every class of M; sizes and programs take turns. K is made whole blocks."""
    rows = [(1, False), (3, False), (4, False), (5, False), (16, False), (33, True), (2, True)]
    sizes = itertools.cycle([(48, 96), (40, 64), (16, 32), (17, 160), (80, 96)])
    programs = itertools.cycle(["identity", "swiglu", "bias", "residual", "identity", "scaled", "swiglu", "identity"])
    offset = itertools.cycle(range(12))
    cases = []
    for path, scheme, target in itertools.product(paths, schemes, targets):
        stride = 3 if SCHEMES[scheme].block <= 32 else 4
        for m, dynamic in rows[next(offset) % stride :: stride]:
            n, k = next(sizes)
            block = SCHEMES[scheme].block
            k = k if k % block == 0 else block * (1 + k // 128)
            cases.append(Case(path, target, scheme, m, n, k, dynamic, next(programs)))
    return cases


@pytest.mark.parametrize("case", sampled(["panels"], ["512", "256", "128"], list(SCHEMES)), ids=str)
@pytest.mark.quick(4)
def test_panels(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", sampled(["int8"], list(ALL_TARGETS), BLOCK_SCHEMES), ids=str)
@pytest.mark.quick(11)
def test_int8(case: Case) -> None:
    check(case)


#: Schemes whose products of 22 bits fit in 32.
NARROW_SCHEMES = [scheme for scheme in BLOCK_SCHEMES if has_room(SCHEMES[scheme], 22)]


@pytest.mark.parametrize("bits", [15, 22])
@pytest.mark.parametrize("case", sampled(["int8"], list(ALL_TARGETS), BLOCK_SCHEMES), ids=str)
@pytest.mark.quick(14)
def test_digits(case: Case, bits: int) -> None:
    """Activations of more bits than 8 are multiplied digit by digit."""
    case = replace(case, bits=bits)
    if bits == 15 or case.scheme in NARROW_SCHEMES:
        check(case)
        return
    with pytest.raises(UnsupportedByTemplate, match=f"sums of products of {case.scheme} with 22 bits don't fit in 32"):
        case.text()


#: Targets with dot products of bytes, for products of floats by integers.
BYTE_TARGETS = [name for name in ALL_TARGETS if name.startswith("vnni")]


@pytest.mark.parametrize("case", sampled(["digits"], BYTE_TARGETS, BLOCK_SCHEMES), ids=str)
@pytest.mark.quick(5)
def test_floats_by_digits(case: Case) -> None:
    """As exact as in floats: the same tolerance."""
    check(case)


@pytest.mark.parametrize(("scheme", "dynamic"), [("q4_1", False), ("q8_0", True)])
@pytest.mark.parametrize("target", BYTE_TARGETS)
def test_rows_that_have_no_digits(target: str, scheme: str, dynamic: bool) -> None:
    """Rows with NaN, infinities or tiny numbers have the results of floats, and others their own bits in any batch."""
    m, n, k = 131, 40, 128
    case = Case("digits", target, scheme, m, n, k, dynamic, "bias")
    given = problem(case)
    x = given.operands[0].reshape(m, k)
    usual = compiled("product", case.text())([*given.operands, *given.arguments], given.outputs(case))[0]
    x[1, 3], x[5, 127], x[64, 0], x[130, 64:] = np.inf, np.nan, -np.inf, np.inf
    x[3], x[70], x[129] = x[3] * 1e-36, 0, np.float32(1e-45)
    special = [1, 3, 5, 64, 70, 129, 130]
    buffers = [*given.operands, *given.arguments]
    result = compiled("product", case.text())(buffers, given.outputs(case), [1, 2])[0].reshape(m, n)
    floats = replace(case, path="panels")
    expected = compiled("product", floats.text())(buffers, given.outputs(case))[0].reshape(m, n)
    np.testing.assert_array_equal(result[special], expected[special])
    others = [row for row in range(m) if row not in special]
    np.testing.assert_array_equal(result[others], usual.reshape(m, n)[others])


@pytest.mark.parametrize("bits", [8, 15, 22])
@pytest.mark.parametrize(
    "scheme", ["q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "iq4_nl", "iq4_xs", "mxfp4", "tq2_0"]
)
def test_int8_tiles_give_the_bits_of_vectors(scheme: str, bits: int) -> None:
    bits = bits if has_room(SCHEMES[scheme], bits) else 15
    assert uses_integer_tiles(ALL_TARGETS["amx512"], None, SCHEMES[scheme])
    case = Case("int8", "amx512", scheme, 139, 40, 5 * SCHEMES[scheme].block, True, "swiglu", bits=bits)
    for by_tiles, by_vectors in zip(check(case), check(replace(case, target="vnni512")), strict=True):
        assert by_tiles.tobytes() == by_vectors.tobytes()


DENSE = [(1, 1, 1), (5, 1, 1), (1, 70, 33), (3, 3, 5), (4, 64, 64), (7, 64, 40), (16, 33, 31)]


@pytest.mark.parametrize("target", ["512", "256", "128"])
@pytest.mark.parametrize("path", ["dense", "transposed"])
@pytest.mark.quick(2)
def test_dense(path: str, target: str) -> None:
    programs = itertools.cycle(["identity", "bias", "swiglu", "residual", "scaled"])
    for m, n, k in DENSE:
        check(Case(path, target, "f32", m, n, k, False, next(programs)))
    check(Case(path, target, "f32", 33, 70, 35, True, "residual"))


@pytest.mark.parametrize("target", ["512", "256"])
@pytest.mark.parametrize("path", ["dense", "transposed"])
@pytest.mark.quick(2)
def test_dense_of_many_columns_and_rows(path: str, target: str) -> None:
    """Units of four vectors, columns beyond N, blocks of rows and of K: columns have the bits that they have in few."""
    check(Case(path, target, "f32", 5, WIDE_COLUMNS, 1, False, "residual"))
    check(Case(path, target, "f32", 7, 4 * WIDE_COLUMNS + 48, 3, False, "bias"))
    check(Case(path, target, "f32", 2 * UNIT_ROWS + 3, WIDE_COLUMNS, 5, True, "residual"))
    check(Case(path, target, "f32", 0, WIDE_COLUMNS, 5, True, "bias"))
    case = Case(path, target, "f32", 3 * UNIT_ROWS - 1, WIDE_COLUMNS, 1057, False, "identity")
    x, w = problem(case).operands
    whole = compiled("product", case.text())([x, w], problem(case).outputs(case))[0]
    few = replace(case, n=96)
    own = np.ascontiguousarray(w[:96] if path == "transposed" else w[:, :96])
    part = compiled("product", few.text())([x, own], [np.zeros((*case.leading, 96), np.float32)])[0]
    assert whole[..., :96].tobytes() == part.tobytes()
    np.testing.assert_allclose(whole, x @ (w.T if path == "transposed" else w), atol=1e-3)


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("target", ["512", "256", "128"])
@pytest.mark.parametrize("path", ["dense", "transposed", "panels"])
@pytest.mark.quick(2)
def test_halves(path: str, target: str, element: str) -> None:
    """Sums and epilogues are f32, and the result is rounded once."""
    programs = itertools.cycle(["identity", "bias", "swiglu", "residual", "scaled"])
    scheme = element if path == "panels" else "f32"
    for m, n, k in DENSE[1:]:
        check(Case(path, target, scheme, m, n, k, False, next(programs), element))
    check(Case(path, target, scheme, 33, 70, 35, True, "residual", element))
    check(Case(path, target, scheme, 0, 17, 9, True, "bias", element))
    check(Case(path, target, scheme, 9, 17, 2117, True, "identity", element))
    if path == "panels":
        check(Case(path, target, "q4_1", 3, 24, 64, False, "bias", element))
        check(Case(path, target, "q6_k", 9, 24, 256, True, "swiglu", element))


@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_tiles(element: str) -> None:
    """Rows, columns and K that fill tiles, and that don't; all programs."""
    sizes = [(32, 32, 32), (64, 48, 64), (1, 1, 1), (33, 70, 35), (31, 17, 96), (9, 16, 33), (40, 33, 2112)]
    programs = itertools.cycle(["identity", "bias", "swiglu", "residual", "scaled"])
    for m, n, k in sizes:
        check(Case("amx", element, element, m, n, k, m % 2 == 1, next(programs), element))
    check(Case("amx", element, element, 0, 17, 9, True, "bias", element))
    with pytest.raises(UnsupportedByTemplate, match=f"no tiles of {element}"):
        gemm_amx(TARGETS[512], Product("product", (8, 32), 16, element=element))


@pytest.mark.parametrize("element", ["bf16", "f16"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_tiles_beyond_blocks(element: str, dynamic: bool) -> None:
    """Several blocks of rows and of K, several groups of columns."""
    check(Case("amx", element, element, ROW_BLOCK + 21, 72, K_WHOLE + 71, dynamic, "swiglu", element))
    check(Case("amx", element, element, 37, 32 * GROUP + 41, K_WHOLE, dynamic, "identity", element))


@pytest.mark.parametrize(("n", "k"), [(64, 96), (41, 700)])
def test_rounding_by_an_instruction(n: int, k: int) -> None:
    """Where the processor rounds to bf16, sums of tiles have the bits that integers give them."""
    target = TILE_TARGETS["bf16"]
    rounding = replace(target, features=target.features | {"avx512bf16"})
    need(rounding)
    case = Case("amx", "bf16", "bf16", 70, n, k, True, "identity", "bf16")
    given = problem(case)
    x = given.operands[0]
    # Ties, sums that are too large, and such as are subnormal or not finite.
    x[0, 0], x[0, 1], x[0, 2], x[0, 3] = 0, 3e38, 1e-38, 1e-41
    x[0, 0, :2] = 1, 2.0**-8
    x[0, 4, 5], x[0, 5, 6] = np.inf, np.nan
    product = Product("product", (None, None, k), n, element="bf16")
    results = [
        compiled("product", gemm_amx(own, product))(given.operands, given.outputs(case))[0]
        for own in (target, rounding)
    ]
    nan = np.isnan(results[0].astype(np.float32))
    np.testing.assert_array_equal(nan, np.isnan(results[1].astype(np.float32)))
    assert results[0][~nan].tobytes() == results[1][~nan].tobytes()
    assert nan.any()
    assert np.isinf(results[0].astype(np.float32)).any()


@pytest.mark.parametrize("k", [64, 40, 1300])
def test_a_row_of_tiles_does_not_depend_on_the_batch(k: int) -> None:
    case = Case("amx", "bf16", "bf16", 71, 40, k, True, "identity", "bf16")
    kernel, given = compiled("product", case.text()), problem(case)
    (whole,) = kernel(given.operands, given.outputs(case))
    for first, last in ((0, 1), (1, 33), (33, 71)):
        rows = np.ascontiguousarray(given.operands[0][:, first:last])
        (part,) = kernel([rows, given.operands[1]], [np.zeros((1, last - first, 40), ml_dtypes.bfloat16)])
        assert part.tobytes() == np.ascontiguousarray(whole[:, first:last]).tobytes()


def random_blocks(scheme: str, n: int, k: int) -> np.ndarray:
    """Rows of random bits, but for scales of ordinary size; one row has scales 0 and one subnormal ones."""
    rng = np.random.default_rng(11)
    rows = rng.integers(0, 256, (n, formats.get_format(scheme).row_bytes(k)), np.uint8)
    scales = rng.uniform(-0.1, 0.1, (n, k // SCHEMES[scheme].block, 1)).astype(np.float32)
    scales[0], scales[1] = 0, 3e-7 if SCHEMES[scheme].float_type == "<f2" else 2.0**-128
    set_scales(scheme, rows, scales)
    return rows


@pytest.mark.parametrize("target", ["512", "256", "128"])
@pytest.mark.parametrize("scheme", BLOCK_SCHEMES)
@pytest.mark.quick(2)
def test_decoding_is_exact(scheme: str, target: str) -> None:
    """Products with rows of the identity are the elements as `formats.decode` gives them."""
    need(ALL_TARGETS[target])
    n, k = 17, SCHEMES[scheme].block
    rows = random_blocks(scheme, n, k)
    panels = formats.pack_panels(scheme, rows, k).view(np.int8)
    decoded = formats.decode(scheme, rows, k)
    for shape, picked in (((None, k), range(k)), ((3, k), (1, k // 2 - 1, k - 1))):
        x = np.eye(k, dtype=np.float32)[list(picked)]
        text = gemm_panels(ALL_TARGETS[target], Product("product", shape, n), scheme)
        result = compiled("product", text)([x, panels], [np.full((len(x), n), np.nan, np.float32)])[0]
        np.testing.assert_array_equal(result, decoded[:, list(picked)].T)


@pytest.mark.parametrize("target", ["512", "256", "128"])
def test_long_k_is_done_in_blocks(target: str) -> None:
    check(Case("panels", target, "q4_1", 9, 24, 2112, True, "swiglu"))
    check(Case("panels", target, "q8_0", 9, 24, 3104, False, "bias"))
    check(Case("panels", target, "q3_k", 9, 24, 2304, True, "identity"))
    check(Case("panels", target, "f32", 9, 17, 2117, True, "identity"))
    check(Case("dense", target, "f32", 9, 24, 2117, True, "bias"))
    check(Case("transposed", target, "f32", 9, 24, 2117, False, "identity"))
    check(Case("int8", target, "q4_0", 9, 24, 2112, True, "swiglu"))


@pytest.mark.parametrize("target", list(ALL_TARGETS))
@pytest.mark.parametrize(
    ("path", "scheme", "k"),
    [
        ("panels", "q4_1", 96),
        ("panels", "mxfp4", 96),
        ("int8", "q4_1", 96),
        ("int8", "iq4_nl", 96),
        ("int8", "iq4_xs", 256),
        ("int8", "mxfp4", 96),
        ("int8", "nvfp4", 64),
        ("int8", "tq2_0", 256),
        ("int8", "q2_k", 256),
        ("int8", "q6_k", 256),
        ("dense", "f32", 96),
    ],
)
@pytest.mark.quick(9)
def test_a_row_does_not_depend_on_the_batch(path: str, scheme: str, k: int, target: str) -> None:
    """Prefill in chunks gives the bits of prefill at once, with one kernel for every number of rows."""
    case = Case(path, target, scheme, 33, 40, k, True)
    kernel = compiled("product", case.text())
    given = problem(case)
    count = 3 if path == "int8" else 1
    whole = kernel(given.operands, given.outputs(case))[0]
    for first, last in ((0, 1), (1, 3), (3, 8), (8, 23), (23, 33)):
        chunk = [np.ascontiguousarray(part[:, first:last]) for part in given.operands[:count]]
        output = np.zeros((1, last - first, 40), np.float32)
        part = kernel([*chunk, *given.operands[count:]], [output])[0]
        assert part.tobytes() == np.ascontiguousarray(whole[:, first:last]).tobytes()


@pytest.mark.parametrize("target", ["512", "256", "128"])
@pytest.mark.parametrize("path", ["panels", "int8", "dense", "transposed"])
@pytest.mark.quick(2)
def test_few_rows_do_not_depend_on_their_number(path: str, target: str) -> None:
    schemes = {
        "panels": ("f32", "q4_0", "q6_k", "iq4_nl", "mxfp4", "tq2_0"),
        "int8": ("q5_1", "q2_k", "q4_k", "iq4_nl", "iq4_xs", "mxfp4", "tq2_0", "iq2_xs"),
    }
    for scheme in schemes.get(path, ("f32",)):
        k = max(96, SCHEMES[scheme].block)
        case = Case(path, target, scheme, 4, 40, k)
        given = problem(case)
        four = compiled("product", case.text())(given.operands, given.outputs(case))[0].reshape(4, 40)
        count = 3 if path == "int8" else 1
        for m in (1, 2, 3):
            few = Case(path, target, scheme, m, 40, k)
            rows = [part.reshape(4, -1)[:m].reshape(*few.leading, -1) for part in given.operands[:count]]
            result = compiled("product", few.text())([*rows, *given.operands[count:]], given_outputs(few))[0]
            assert result.tobytes() == four[:m].tobytes()
        if path == "int8":  # integers: even the tiled path has the same bits
            tiled = Case(path, target, scheme, 4, 40, k, True)
            rows = [part.reshape(1, 4, -1) for part in given.operands[:count]]
            result = compiled("product", tiled.text())([*rows, *given.operands[count:]], given_outputs(tiled))[0]
            assert result.tobytes() == four.tobytes()


def given_outputs(case: Case) -> list[np.ndarray]:
    return [np.zeros((*case.leading, case.n), DTYPES[case.element])]


def extremes() -> list[Any]:
    """Each scheme for each target and each number of bits; those that are quick take turns with one of the others."""
    cases = []
    for turn, scheme in enumerate(BLOCK_SCHEMES):
        found = list(itertools.product(["512", "256", "128"], [8, 15, 22] if scheme in NARROW_SCHEMES else [8, 15]))
        marks = [[] if number == turn % len(found) else [pytest.mark.slow] for number in range(len(found))]
        cases += [pytest.param(*case, scheme, marks=own) for case, own in zip(found, marks, strict=True)]
    return cases


@pytest.mark.parametrize(("target", "bits", "scheme"), extremes())
@pytest.mark.quick(24)
def test_extreme_integers(target: str, bits: int, scheme: str) -> None:
    """Largest products: weights at both ends of their range against the largest activations, and the largest digits."""
    n, top = 16, 127 * 2 ** (bits - 8)
    edges = [63, 64, 65, 127, 128, 8128, 8191, 8192] if bits > 8 else []
    k = max(64, SCHEMES[scheme].block)
    rng = np.random.default_rng(3)
    rows = rng.choice(np.array([0x00, 0xFF, 0x80, 0x7F], np.uint8), (n, formats.get_format(scheme).row_bytes(k)))
    rows[:4], rows[4:8] = 0x00, 0xFF
    set_scales(scheme, rows, 0.5)
    ends = np.array([-top, top, *edges, *(-edge for edge in edges)], WORDS[bits])
    q = rng.choice(ends, (2, k))
    q[0] = top
    scale = np.full((2, k // 32), 0.5, np.float32)
    total = q.reshape(2, -1, 32).sum(axis=-1, dtype=np.int32)
    weight = formats.decode(scheme, rows, k).astype(np.float64)
    expected = (q * 0.5) @ weight.T
    # Every partial sum is exact in f32, but for large integers times the scales of sub-blocks.
    whole = bits == 8 and SCHEMES[scheme].sub == SCHEMES[scheme].block
    sizes = np.abs(q * 0.5).sum(axis=-1)[:, None] * 3 * np.abs(weight).max(axis=-1)
    limit = 0.0 if whole else 2.0**-22 * sizes
    panels = formats.pack_panels(scheme, rows, k).view(np.int8)
    for variant in (target, f"vnni{target}"):
        for shape in ((2,), (None,)):
            if variant not in ALL_TARGETS:
                continue
            need(ALL_TARGETS[variant])
            text = gemm_int8(ALL_TARGETS[variant], Product("product", (*shape, k), n), scheme, bits)
            result = compiled("product", text)([q, scale, total, panels], [np.zeros((2, n), np.float32)])[0]
            assert (np.abs(result - expected) <= limit).all(), f"{variant} {shape}"


@pytest.mark.parametrize("bits", [8, 15, 22])
@pytest.mark.parametrize("target", ["512", "256", "128"])
def test_block_quantize(target: str, bits: int) -> None:
    need(ALL_TARGETS[target])
    rng = np.random.default_rng(7)
    x = rng.standard_normal((3, 2, 96), np.float32)
    x[0, 0, :32] = 0
    x[0, 1, 32:64] *= np.float32(1e-38)
    x[1, 0, :32] = np.arange(32) * 8 - 127  # ties
    spec = QuantizeSpec((None, 2, 96), bits)
    kernel = compiled("quantize", block_quantize("quantize", spec, ALL_TARGETS[target]))
    expected = quantize(x, bits)
    for result, right in zip(kernel([x], expected, [1, 4]), expected, strict=True):
        np.testing.assert_array_equal(result, right)


@pytest.mark.parametrize("target", ["512", "256", "128"])
def test_block_quantize_of_what_is_no_number(target: str) -> None:
    need(ALL_TARGETS[target])
    x = np.ones((4, 32), np.float32)
    x[0, 3], x[1, 4], x[2] = np.nan, np.inf, np.float32(190 * 2.0**-149)
    kernel = compiled("quantize", block_quantize("quantize", QuantizeSpec((4, 32)), ALL_TARGETS[target]))
    q, scale, total = kernel(
        [x], [np.zeros((4, 32), np.int8), np.zeros((4, 1), np.float32), np.zeros((4, 1), np.int32)]
    )
    assert np.isnan(scale[0, 0])
    assert np.isnan(scale[1, 0])
    assert (q[1] == 0).all()
    assert (q[2] == 127).all(), "a subnormal scale is coarse: 190 / 1 is limited to 127"
    assert (total[:, 0] == q.sum(axis=-1, dtype=np.int32)).all()


def test_operands_in_the_order_of_the_kernel() -> None:
    """A kernel may list its operands in another order, and use x as the residual too."""
    target = TARGETS[128]
    program = Program((Step("add", (("acc", 0), ("arg", 0))),), (Argument("full"),))
    product = Product("product", (3, 32), 32, program, operand_order=(1, 0, 1))
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 32), np.float32), rng.standard_normal((32, 32), np.float32)
    result = compiled("product", gemm_dense(target, product))([w, x], [np.zeros((3, 32), np.float32)])[0]
    np.testing.assert_allclose(result, x.astype(np.float64) @ w + x, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="operand_order"):
        gemm_dense(target, replace(product, operand_order=(2, 0, 2)))


def test_arguments_may_have_leading_ones() -> None:
    program = Program(
        (Step("add", (("acc", 0), ("arg", 0))), Step("mul", (("step", 0), ("arg", 1)))),
        (Argument("row", (1, 1, 24)), Argument("scalar", (1, 1))),
    )
    text = gemm_dense(TARGETS[128], Product("product", (None, None, 8), 24, program))
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, 8), np.float32), rng.standard_normal((8, 24), np.float32)
    bias, scale = rng.standard_normal((1, 1, 24), np.float32), np.full((1, 1), 0.5, np.float32)
    result = compiled("product", text)([x, w, bias, scale], [np.zeros((2, 3, 24), np.float32)])[0]
    np.testing.assert_allclose(result, (x.astype(np.float64) @ w + bias) * 0.5, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("path", ["panels", "int8", "dense", "transposed"])
def test_no_rows(path: str) -> None:
    case = Case(path, "128", "q4_0", 0, 24, 32, True)
    given = problem(case)
    assert compiled("product", case.text())(given.operands, given.outputs(case))[0].size == 0


# -- scalar operations ------------------------------------------------------------------------------------------------

VALUES = np.array([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -20.0, 90.0, -90.0, 1e30, -1e30, np.nan], np.float32)
UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": _silu,
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "gelu_approx": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "round": np.rint,
    "tanh": np.tanh,
    "abs": np.abs,
    "neg": np.negative,
    "exp": np.exp,
}


def test_unary_operations() -> None:
    shape = (len(UNARY), len(VALUES))

    def body(
        em: Emitter, inputs: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        with em.loop(0, len(VALUES), 2) as loop:
            x = em.vload(inputs[0], [loop.iv], vec(2, "f32"))
            for i, name in enumerate(UNARY):
                em.vstore(emit_elementwise(em, name, [x], x.type), outputs[0], [i, loop.iv])

    text = write_kernel(
        "ops",
        [("x", memref(shape[1:], "f32"))],
        [("y", memref(shape, "f32"))],
        units=lambda em, values: 1,
        scratch=lambda em, values, scratch: None,
        body=body,
    )
    result = compiled("ops", text)([VALUES], [np.zeros(shape, np.float32)])[0]
    with np.errstate(over="ignore", invalid="ignore"):
        for row, (name, reference) in zip(result, UNARY.items(), strict=True):
            expected = reference(VALUES.astype(np.float64)).astype(np.float32)
            np.testing.assert_allclose(row, expected, rtol=1e-6, atol=1e-7, err_msg=name)


def test_programs_are_checked() -> None:
    with pytest.raises(UnsupportedByTemplate, match="no operation 'cbrt'"):
        Program((Step("cbrt", (("acc", 0),)),))
    with pytest.raises(ValueError, match="there is no step 0; 0 can be used"):
        Program((Step("relu", (("step", 0),)),))
    with pytest.raises(ValueError, match="there is no acc 1; 1 can be used"):
        Program(outputs=(("acc", 1),))
    em = Emitter()
    with pytest.raises(UnsupportedByTemplate, match="elementwise exp: there is none of i32"):
        emit_elementwise(em, "exp", [em.const(1, "i32")], "i32")


def test_what_no_template_covers() -> None:
    target = TARGETS[256]
    with pytest.raises(UnsupportedByTemplate, match="static K and N"):
        Product("product", (1, None), 16)
    with pytest.raises(UnsupportedByTemplate, match="'q8_k'"):
        gemm_panels(target, Product("product", (1, 256), 16), "q8_k")
    with pytest.raises(UnsupportedByTemplate, match="multiple of 256, but is 320"):
        gemm_int8(target, Product("product", (1, 320), 16), "q6_k")
    with pytest.raises(UnsupportedByTemplate, match="multiple of 32, but is 48"):
        gemm_panels(target, Product("product", (1, 48), 16), "q8_0")
    with pytest.raises(UnsupportedByTemplate, match="block scheme"):
        gemm_int8(target, Product("product", (1, 64), 16), "f16")
    with pytest.raises(UnsupportedByTemplate, match="multiple of 32"):
        block_quantize("quantize", QuantizeSpec((4, 33)), target)


# -- targets and text -------------------------------------------------------------------------------------------------


def test_target_from_features() -> None:
    avx2 = "+sse4.2,+avx2,+fma,+f16c"
    avx512 = avx2 + ",+avx512f,+avx512bw,+avx512dq,+avx512vl"
    assert Target.from_features("+sse2").vector_bits == 128
    assert Target.from_features(avx2 + ",-avx512f").vector_bits == 256
    assert Target.from_features(avx2 + ",+avx512f").vector_bits == 256
    assert Target.from_features(avx512).registers == 32
    assert Target.from_features(avx512 + ",+avx512vnni").vnni
    assert not Target.from_features(avx512 + ",+avxvnni").vnni
    neon = Target.from_features("+neon,+dotprod", "aarch64-unknown-linux-gnu")
    assert (neon.vector_bits, neon.registers, neon.fused, neon.dotprod, neon.vnni) == (128, 32, True, True, False)
    with pytest.raises(ValueError, match="but is 64"):
        Target(64)


def test_types() -> None:
    assert memref((None, 4), "f32") == "memref<?x4xf32>"
    assert memref((), "f32") == "memref<f32>"
    assert (shape_of("memref<?x4xf32>"), element_of("memref<?x4xf32>")) == ((None, 4), "f32")
    assert (shape_of("f32"), element_of("vector<8xi1>")) == ((), "i1")
    assert (with_element("vector<8xi32>", "f32"), with_element("i32", "f32")) == ("vector<8xf32>", "f32")


def test_constants_are_pooled_and_exact() -> None:
    em = Emitter()
    with em.func("f", []):
        assert em.const(0.1, "f32") is em.const(0.1, "f32")
        for value in (1e-5, 1e30, float("-inf"), -0.0):
            em.const(value, "f32")
        em.const(float("nan"), "bf16")
        em.const(True, "i1")
    text = em.text()
    for line in (
        "1.0e-05 : f32",
        "1.0e+30 : f32",
        "0xFF800000 : f32",
        "-0.0 : f32",
        "0x7FC0 : bf16",
        "constant true\n",
    ):
        assert line in text


def test_index_arithmetic_folds() -> None:
    em = Emitter()
    with em.func("f", [("i", "index")]) as (i,):
        assert (i + 0) is i
        assert (1 * i) is i
        assert (i * 0) == 0
        assert (em.iceildiv(33, 16), 33 % 16, em.imin(3, 4)) == (3, 1, 3)
    assert "arith" not in em.text()


def test_operators_are_those_of_the_type() -> None:
    em = Emitter()
    arguments = [("i", "index"), ("n", "vector<4xi32>"), ("x", "f32"), ("v", "vector<4xf32>")]
    with em.func("f", arguments) as (i, n, x, v):
        for value in (2 - i, i % 3, n // 2, n >> 1 | n, 1.0 / x, -v, -i, v * v):
            assert value.emitter is em
        for mistake in (lambda: i / 2, lambda: x // x, lambda: v & v, lambda: x + "y", lambda: i + n):
            with pytest.raises(TypeError):
                mistake()
        assert f"{i}" + "#0" == "%i#0"
    found = [line.split(" : ") for line in em.text().splitlines() if " = arith." in line and "constant" not in line]
    assert [(operation.split()[2], type) for operation, type in found] == [
        ("arith.subi", "index"),
        ("arith.remui", "index"),
        ("arith.divui", "vector<4xi32>"),
        ("arith.shrui", "vector<4xi32>"),
        ("arith.ori", "vector<4xi32>"),
        ("arith.divf", "f32"),
        ("arith.negf", "vector<4xf32>"),
        ("arith.subi", "index"),
        ("arith.mulf", "vector<4xf32>"),
    ]
    with pytest.raises(TypeError, match="nothing can be computed from %y, which no emitter has made"):
        Value("%y", "f32") * 2.0


def test_loops_have_to_yield_what_they_carry() -> None:
    em = Emitter()
    zero = em.const(0.0, "f32")
    with pytest.raises(ValueError, match="without `yield_`"), em.loop(0, 4, 1, [zero]):
        pass
