# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The template for products of two activations against f64 references, for all targets and element types."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from covering import products
from cpu_harness import TARGETS, compiled

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.gemm_amx_f32 import gemm_split_batched
from rlx_mlir.codegen.cpu.gemm_batched import SHARED_ELEMENTS, BatchedProduct, gemm_batched, uses_tiles
from rlx_mlir.codegen.program import IDENTITY, SWIGLU, Argument, Program, Step
from rlx_mlir.native import host_processor
from rlx_mlir.runtime.tiles import request_tiles

BITS = sorted(TARGETS)
DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
ROUNDING = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}

HOST = {feature[1:] for feature in host_processor()[3].split(",") if feature.startswith("+")}

MASKED = Program(
    (
        Step("mul", (("acc", 0), ("arg", 0))),
        Step("add", (("step", 0), ("arg", 1))),
        Step("add", (("step", 1), ("arg", 2))),
    ),
    (Argument("scalar"), Argument("full"), Argument("row")),
)


@dataclass(frozen=True)
class Case:
    """x [batch.., M, K] times w; `dynamic` hides all sizes but those of 1 in batches from types; `tiles` are AMX's."""

    x_batch: tuple[int, ...]
    w_batch: tuple[int, ...]
    m: int
    n: int
    k: int
    transpose: bool = False
    dynamic: bool = False
    element: str = "f32"
    program: Program = IDENTITY
    bits: int = 512
    tiles: bool = False

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of x, w and the result."""
        w = (self.n, self.k) if self.transpose else (self.k, self.n)
        batch = np.broadcast_shapes(self.x_batch, self.w_batch)
        return (*self.x_batch, self.m, self.k), (*self.w_batch, *w), (*batch, self.m, self.n)

    def hidden(self, shape: tuple[int, ...]) -> tuple[int | None, ...]:
        if not self.dynamic:
            return shape
        return tuple(size if size == 1 and axis < len(shape) - 2 else None for axis, size in enumerate(shape))

    def text(self) -> str:
        shapes = [self.hidden(shape) for shape in self.shapes]
        product = BatchedProduct(
            "product",
            *shapes,
            self.program,
            element=self.element,
            transpose_rhs=self.transpose,  # type: ignore[arg-type]
        )
        target = TARGETS[self.bits]
        if self.tiles:
            feature = {"bf16": "amx-bf16", "f16": "amx-fp16", "f32": "amx-bf16"}[self.element]
            if feature not in HOST or not request_tiles():
                pytest.skip(f"this machine has no {feature}")
            target = replace(target, features=target.features | {"amx-tile", feature})
        if self.tiles and self.element == "f32":
            return gemm_split_batched(target, product)
        assert uses_tiles(target, product) == self.tiles
        return gemm_batched(target, product)

    def check(self) -> None:
        """Compares with the reference, and a run in one piece with a run in many."""
        rng = np.random.default_rng([self.m, self.n, self.k])
        dtype = DTYPES[self.element]
        x_shape, w_shape, out_shape = self.shapes
        x = rng.standard_normal(x_shape).astype(dtype)
        weights = [rng.standard_normal(w_shape).astype(dtype) for _ in range(self.program.accumulators)]
        shapes = {"scalar": (), "row": (self.n,), "full": out_shape}
        arguments = [np.asarray(rng.standard_normal(shapes[a.broadcast])).astype(dtype) for a in self.program.arguments]
        wide = [w.astype(np.float64) for w in weights]
        wide = [np.swapaxes(w, -1, -2) for w in wide] if self.transpose else wide
        products = [x.astype(np.float64) @ w for w in wide]
        sizes = [np.abs(x.astype(np.float64)) @ np.abs(w) for w in wide]
        tolerance = (np.sqrt(self.k) + 8) * 2.0**-24 * sizes[0]
        expected = products[0]
        if self.program is MASKED:
            scale, full, row = (a.astype(np.float64) for a in arguments)
            expected, tolerance = expected * scale + full + row, tolerance * abs(float(scale))
        if self.program is SWIGLU:
            gate = products[0] / (1 + np.exp(-products[0]))
            expected = gate * products[1]
            tolerance = 1.2 * tolerance * (np.abs(products[1]) + np.abs(gate) + 1)
        kernel = compiled("product", self.text())
        outputs = [np.zeros(out_shape, dtype)]
        operands = [x, *weights, *arguments]
        (result,) = kernel(operands, outputs)
        limit = 1.5 * tolerance + (8 * 2.0**-24 + ROUNDING[self.element]) * np.abs(expected) + 1e-6
        assert (np.abs(result.astype(np.float64) - expected) <= limit).all(), str(self)
        (pieces,) = kernel(operands, outputs, [1, 2, 5])
        assert result.tobytes() == pieces.tobytes(), f"{self}: the result depends on how units are cut"


BATCHES = [((), ()), ((3,), (3,)), ((2, 3), (2, 3)), ((2, 3), (2, 1)), ((2, 1), (1, 3)), ((2, 3), ()), ((), (2, 3))]
SIZES = [(1, 33, 17), (5, 1, 1), (8, 64, 64), (17, 31, 33), (3, 16, 5), (9, 65, 40), (300, 7, 3)]


@pytest.mark.parametrize(("bits", "transpose", "dynamic"), products(BITS, [False, True], [False, True]))
@pytest.mark.quick(1)
def test_batches_and_tails(bits: int, transpose: bool, dynamic: bool) -> None:
    programs = itertools.cycle([IDENTITY, MASKED, SWIGLU])
    sizes = itertools.cycle(SIZES)
    for x_batch, w_batch in BATCHES:
        m, n, k = next(sizes)
        Case(x_batch, w_batch, m, n, k, transpose, dynamic, program=next(programs), bits=bits).check()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.quick(1)
def test_halves(bits: int, element: str) -> None:
    programs = itertools.cycle([IDENTITY, MASKED, SWIGLU])
    flags = itertools.cycle([(False, False), (True, False), (False, True), (True, True)])
    for (x_batch, w_batch), (m, n, k) in zip(BATCHES, SIZES, strict=True):
        Case(x_batch, w_batch, m, n, k, *next(flags), element, next(programs), bits).check()


@pytest.mark.parametrize("element", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_tiles(element: str, transpose: bool, dynamic: bool) -> None:
    programs = itertools.cycle([IDENTITY, MASKED, SWIGLU])
    sizes = [(32, 32, 32), (33, 33, 17), (7, 64, 96), (64, 17, 65), (9, 65, 31), (300, 7, 3), (5, 1, 1)]
    for (x_batch, w_batch), (m, n, k) in zip(BATCHES, sizes, strict=True):
        Case(x_batch, w_batch, m, n, k, transpose, dynamic, element, next(programs), tiles=True).check()
    if dynamic:
        for m, n, k in ((0, 5, 4), (4, 0, 5), (4, 5, 0)):
            Case((2,), (2,), m, n, k, transpose, True, element, tiles=True).check()


@pytest.mark.parametrize("element", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("n", [70, SHARED_ELEMENTS // 260 + 40])
def test_units_of_tiles_are_rows_where_the_right_operand_is_small(element: str, n: int) -> None:
    """32 rows or as many as go together, and 32 columns; results don't depend on where ranges begin and end."""
    m, k = 330, 260
    case = Case((2,), (2,), m, n, k, dynamic=True, element=element, tiles=True)
    rng = np.random.default_rng(n)
    x, w = (rng.standard_normal(shape).astype(DTYPES[element]) for shape in case.shapes[:2])
    kernel = compiled("product", case.text())
    (whole,) = kernel([x, w], [np.zeros((2, m, n), DTYPES[element])])
    expected = x.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(whole.astype(np.float64), expected, rtol=2 * ROUNDING[element] + 1e-5, atol=1e-3)
    most = 256 if element == "f32" else 512
    blocks, columns = -(-m // (32 if n == 70 else most)), -(-n // 32)
    units = kernel.units([x, w, whole])
    assert units == 2 * blocks * columns
    for cuts in ([units // 2], [1, 2], [columns - 1, columns + 1, units - 2], sorted(rng.integers(1, units, 5))):
        (cut,) = kernel([x, w], [np.zeros((2, m, n), DTYPES[element])], [int(at) for at in cuts])
        assert cut.tobytes() == whole.tobytes()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.quick(1)
def test_long_k_is_done_in_blocks(bits: int) -> None:
    Case((2,), (2,), 9, 33, 2117, bits=bits).check()
    Case((2,), (2,), 9, 33, 2117, True, True, bits=bits).check()
    Case((), (2,), 300, 5, 1030, False, True, "bf16", MASKED, bits).check()


def test_empty() -> None:
    """No rows, no columns, no batch; no K gives the program of zeros."""
    for shape in ((0, 5, 4), (4, 0, 5), (4, 5, 0)):
        Case((2,), (2,), *shape, dynamic=True, bits=128).check()
    Case((0,), (0,), 3, 4, 5, dynamic=True, bits=128).check()


def test_a_row_does_not_depend_on_the_others() -> None:
    """One kernel for every number of rows gives each row the same bits."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 21, 70), np.float32), rng.standard_normal((2, 70, 40), np.float32)
    kernel = compiled("product", Case((2,), (2,), 21, 40, 70, dynamic=True).text())
    (whole,) = kernel([x, w], [np.zeros((2, 21, 40), np.float32)])
    for first, last in ((0, 1), (1, 4), (4, 21)):
        part = np.ascontiguousarray(x[:, first:last])
        (rows,) = kernel([part, w], [np.zeros((2, last - first, 40), np.float32)])
        assert rows.tobytes() == np.ascontiguousarray(whole[:, first:last]).tobytes()


def test_what_it_does_not_cover() -> None:
    with pytest.raises(UnsupportedByTemplate, match="products of i32"):
        BatchedProduct("product", (2, 3, 4), (2, 4, 5), (2, 3, 5), element="i32")
    with pytest.raises(UnsupportedByTemplate, match="not empty"):
        BatchedProduct("product", (2, 3, 0), (2, 0, 5), (2, 3, 5))


def test_no_matrices() -> None:
    """A batch of none takes no template for one matrix, which would read one."""
    m = GraphModule.mir("none")
    x, y = m.input("x", [0, 2, 9, 8]), m.input("y", [0, 2, 7, 8])
    m.set_outputs({"z": m.matmul(x + 1.0, y + 1.0, transpose_rhs=True)})
    executable = rlx.compile(m)
    found = executable.run({"x": np.zeros((0, 2, 9, 8), np.float32), "y": np.zeros((0, 2, 7, 8), np.float32)})
    assert found["z"].shape == (0, 2, 9, 7)
    assert "gemm_dense" not in executable.artifact.templates.values()
