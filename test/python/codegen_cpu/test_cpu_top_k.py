# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The generator for the first elements of rows in an order, against the reference, on all targets."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import compile_fresh, templates_of
from cpu_harness import TARGETS, Kernel, compiled

from rlx_mlir import GraphModule, interpret
from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.codegen.cpu.top_k import CHUNK, MANY, RANKED, configure, emit_top_k
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs import TopKSpec
from rlx_mlir.errors import BuildError, InputError
from rlx_mlir.mir import REFERENCES

FLOATS: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
INTEGERS: dict[str, Any] = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
DTYPES = {**FLOATS, **INTEGERS}
ORDERS = list(itertools.product((False, True), repeat=2))


def rows_of(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Many equal elements, the ends of a type's range, and of floats zeros of both signs, infinities and NaN."""
    rng = np.random.default_rng([seed, *shape])
    if dtype in INTEGERS:
        info = np.iinfo(DTYPES[dtype])
        drawn = rng.integers(info.min, info.max, shape, DTYPES[dtype], endpoint=True)
        return np.where(rng.random(shape) < 0.5, drawn, drawn % 5).astype(DTYPES[dtype])
    x = np.round(rng.standard_normal(shape) * 40) / 4
    for value in (np.nan, np.inf, -np.inf, -0.0, 0.0):
        x[rng.random(shape) < 0.03] = value
    return x.astype(DTYPES[dtype])


def kernel_of(spec: TopKSpec, target: Target) -> Kernel:
    return compiled("k", emit_top_k("k", configure("k", spec, target), target))


def compared(
    x: np.ndarray,
    k: int,
    dtype: str,
    target: Target,
    order: tuple[bool, bool] = (False, False),
    known: tuple[bool, bool] = (True, True),
) -> None:
    """As the reference, whole and cut at a row; `known` says whether types have the length of rows, and k."""
    smallest, nan_largest = order
    outer: tuple[int | None, ...] = (None,) * (x.ndim - 1)
    n, count = (size if is_known else None for size, is_known in zip((x.shape[-1], k), known, strict=True))
    types = memref((*outer, n), dtype), memref((*outer, count), dtype), memref((*outer, count), "i32")
    kernel = kernel_of(TopKSpec(*types, count, smallest, nan_largest), target)
    wanted = REFERENCES["mir.top_k"](x, k=k, smallest=smallest, nan_largest=nan_largest)
    for cuts in (None, [1, 2]):
        values, indices = kernel([x], wanted, cuts)
        np.testing.assert_array_equal(indices, wanted[1])
        np.testing.assert_array_equal(values.astype(np.float64), wanted[0].astype(np.float64))
        assert not np.signbit(values[values == 0]).any()


@pytest.mark.parametrize("width", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.quick(9)
def test_forms_of_each_type(dtype: str, width: int) -> None:
    """Ranked, sorted and selected rows, in each order."""
    for n, k in ((17, 17), (RANKED + 1, 90), (MANY * CHUNK + 3, 5)):
        for order in ORDERS:
            compared(rows_of((3, n), dtype, k), k, dtype, TARGETS[width], order)


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_that_follow_each_other(dtype: str) -> None:
    """Negative and positive ones that differ in the last bit alone."""
    ones = np.array([-1, 1], DTYPES[dtype])
    bits = ones.view(f"u{ones.itemsize}")[:, None] + np.random.default_rng(0).permutation(17).astype(
        f"u{ones.itemsize}"
    )
    for order in ORDERS:
        compared(bits.view(DTYPES[dtype]), 17, dtype, TARGETS[256], order)


SIZES = [
    *((n, k) for n in (1, 2, 15, 16, 33, RANKED - 1, RANKED) for k in {1, n // 2 + 1, n}),
    *((n, k) for n in (RANKED + 1, 255, MANY * CHUNK - 1) for k in (1, 16, n)),
    *((n, k) for n in (MANY * CHUNK, MANY * CHUNK + 1, 3000) for k in (1, 16, CHUNK, CHUNK + 1)),
]


@pytest.mark.parametrize(("n", "k"), SIZES)
@pytest.mark.quick(12)
def test_sizes(n: int, k: int) -> None:
    for target in TARGETS.values():
        for count in (0, 1, 3):
            compared(rows_of((count, n), "f32", k), k, "f32", target)


@pytest.mark.parametrize("n", [0, 1, 5, RANKED - 1, RANKED, RANKED + 1, MANY * CHUNK - 1, MANY * CHUNK + 1])
@pytest.mark.quick(3)
def test_lengths_that_calls_say(n: int) -> None:
    """And numbers of elements: none, some, all."""
    for bits, k in itertools.product((128, 512), sorted({0, min(1, n), n // 2, n})):
        x = rows_of((2, n), "f32", k)
        for known in ((False, False), (True, False), (False, True)):
            if k or not known[1]:
                compared(x, k, "f32", TARGETS[bits], (True, True), known)


def test_sizes_of_graphs() -> None:
    """As many as sizes of the rows, or of another input, say; kernels, and generic code for any size."""
    m = GraphModule.mir("m")
    x = m.input("x", ["b", "n"], "f32")
    m.input("other", ["k"], "i32")
    found = {str(k): m.top_k(x, k, smallest=k != "k") for k in ("n", "min(n, 7)", "k", 3, 0)}
    m.set_outputs({f"{word} {k}": each[word == "at"] for k, each in found.items() for word in ("values", "at")})
    for disabled in ((), ("top_k",)):
        executable = compile_fresh(m, disable_templates=disabled, maxima={"n": 700, "k": 700})
        templates = set(templates_of(executable).values())
        assert templates == ({"generic"} if disabled else {"top_k", "generic"}), "of no element there is no template"
        for n, k in ((3, 3), (4, 0), (RANKED, 9), (RANKED + 1, 5), (700, 700)):
            given = {"x": rows_of((2, n), "f32", k), "other": np.zeros(k, np.int32)}
            for name, want in interpret(m, given).items():
                np.testing.assert_array_equal(executable.run(given)[name], want, err_msg=name)
        with pytest.raises(InputError, match=r"'mir.top_k' at .* expects that n is at least k, but 5 and 6 were given"):
            executable.run({"x": np.zeros((1, 5), np.float32), "other": np.zeros(6, np.int32)})
    with pytest.raises(BuildError, match="'k' is a number or a size"):
        m.top_k(x, 2.5)


def test_no_element_has_no_template() -> None:
    with pytest.raises(UnsupportedByTemplate, match="no element is wanted"):
        configure("k", TopKSpec("memref<?x9xf32>", "memref<?x0xf32>", None, 0), TARGETS[256])


@pytest.mark.parametrize("k", [3, 300])
def test_rows_in_orders_that_fill_lists(k: int) -> None:
    """Rows whose elements are all taken, none after the first chunk, or equal."""
    n = 10_000
    ascending = np.arange(n, dtype=np.float32)
    for row in (ascending, ascending[::-1].copy(), np.full(n, -7, np.float32), ascending % 11):
        for order in ((False, False), (True, False)):
            compared(row[None], k, "f32", TARGETS[512], order)
    compared(np.full((1, n), np.nan, np.float32), k, "f32", TARGETS[256])


def test_keys_that_differ_in_one_byte() -> None:
    """The others are passed over, so that the result is in either list."""
    for shift in range(0, 64, 8):
        x = np.random.default_rng(shift).integers(0, 127, (1, 500)) << shift
        compared(x, 500, "i64", TARGETS[512], (True, False))


@pytest.mark.parametrize("given", ["values", "indices"])
def test_one_result_alone(given: str) -> None:
    x = rows_of((2, 40), "f32", 0)
    types = {"values": "memref<?x7xf32>", "indices": "memref<?x7xi32>"}
    spec = TopKSpec("memref<?x40xf32>", **{word: types[word] if word == given else None for word in types}, k=7)
    wanted = dict(zip(types, REFERENCES["mir.top_k"](x, k=7), strict=True))[given]
    (found,) = kernel_of(spec, TARGETS[512])([x], [wanted])
    np.testing.assert_array_equal(found, wanted)
