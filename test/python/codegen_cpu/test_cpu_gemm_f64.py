# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The templates of dense products and of batches for f64, against numpy, for all targets: f64 all the way."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from covering import products
from cpu_harness import RESIDUAL, TARGETS, compiled

import rlx_mlir as rlx
from rlx_mlir.codegen.cpu import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.gemm import FEW_BYTES, gemm_dense
from rlx_mlir.codegen.cpu.gemm_batched import BatchedProduct, gemm_batched
from rlx_mlir.codegen.cpu.kernel import Product
from rlx_mlir.codegen.cpu.panels import panel_product
from rlx_mlir.codegen.program import IDENTITY, SWIGLU, Program
from rlx_mlir.codegen.specs import ProductSpec
from rlx_mlir.hir import GraphModule

Arrays = list[np.ndarray]

BITS = sorted(TARGETS)
_erf = np.vectorize(math.erf)


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


PROGRAMS: dict[str, tuple[Program, Callable[[Arrays, Arrays], np.ndarray]]] = {
    "identity": (IDENTITY, lambda acc, arg: acc[0]),
    "swiglu": (SWIGLU, lambda acc, arg: _silu(acc[0]) * acc[1]),
    "residual": (
        RESIDUAL,
        lambda acc, arg: (y := acc[0] + arg[1]) * 0.5 * (1 + _erf(y / math.sqrt(2))) + arg[0],
    ),
}


def check(
    batch: tuple[int, ...],
    sizes: tuple[int, int, int],
    bits: int,
    *,
    transpose: bool = False,
    dynamic: bool = False,
    program: str = "identity",
    batched: bool = False,
) -> None:
    """Compares with numpy to 1e-13 of the sums of magnitudes, and a run in one piece with a run in many."""
    m, n, k = sizes
    steps, reference = PROGRAMS[program]
    rng = np.random.default_rng([m, n, k])
    x = rng.standard_normal((*batch, m, k))
    shape = (n, k) if transpose else (k, n)
    weights = [rng.standard_normal((*(batch if batched else ()), *shape)) for _ in range(steps.accumulators)]
    shapes = {"full": (*batch, m, n), "row": (n,)}
    arguments = [rng.standard_normal(shapes[argument.broadcast]) for argument in steps.arguments]
    if batched:
        known = [
            array.shape if not dynamic else (None,) * array.ndim for array in (x, weights[0], np.empty((*batch, m, n)))
        ]
        product = BatchedProduct("product", *known, steps, element="f64", transpose_rhs=transpose)
        text = gemm_batched(TARGETS[bits], product)
    else:
        leading = (None,) * (len(batch) + 1) if dynamic else (*batch, m)
        product = Product("product", (*leading, k), n, steps, element="f64")
        text = gemm_dense(TARGETS[bits], product, transpose_rhs=transpose)
    straight = [np.swapaxes(w, -1, -2) if transpose else w for w in weights]
    expected = reference([x @ w for w in straight], arguments)
    size = np.abs(x) @ np.abs(straight[0])
    if steps.accumulators > 1:
        size = size * (np.abs(x) @ np.abs(straight[1]))
    kernel = compiled("product", text)
    (result,) = kernel([x, *weights, *arguments], [np.zeros((*batch, m, n))])
    assert (np.abs(result - expected) <= 1e-13 * (size + 1)).all()
    (pieces,) = kernel([x, *weights, *arguments], [np.zeros((*batch, m, n))], [1, 2, 5])
    assert result.tobytes() == pieces.tobytes()


#: 1, vectors of 2, 4 and 8 lanes and their neighbours, tiles of 12, 6 and 2 rows, K beyond a block; few rows, and more.
SIZES = [(1, 1, 1), (1, 9, 3), (3, 7, 5), (4, 33, 8), (1, 300, 17), (5, 8, 9), (12, 16, 31), (13, 17, 7), (40, 15, 65)]


@pytest.mark.parametrize(("bits", "transpose", "program"), products(BITS, [False, True], list(PROGRAMS)))
@pytest.mark.quick(3)
def test_dense(bits: int, transpose: bool, program: str) -> None:
    for sizes in SIZES:
        check((), sizes, bits, transpose=transpose, program=program)
    check((2,), (9, 21, 2117), bits, transpose=transpose, program=program)
    check((), (7, 33, 19), bits, transpose=transpose, dynamic=True, program=program)


@pytest.mark.parametrize(("bits", "transpose", "dynamic"), products(BITS, [False, True], [False, True]))
@pytest.mark.quick(2)
def test_batches(bits: int, transpose: bool, dynamic: bool) -> None:
    for number, sizes in enumerate(SIZES):
        program = list(PROGRAMS)[number % len(PROGRAMS)]
        check((2,), sizes, bits, transpose=transpose, dynamic=dynamic, program=program, batched=True)
    check((2,), (5, 9, 1030), bits, transpose=transpose, dynamic=dynamic, batched=True)


def test_empty() -> None:
    for transpose in (False, True):
        check((0,), (3, 5, 4), 512, transpose=transpose, dynamic=True)
        for sizes in ((0, 5, 4), (4, 0, 5), (4, 5, 0)):
            check((2,), sizes, 256, transpose=transpose, dynamic=True, batched=True)


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("rows", [1, 4])
def test_few_rows_by_more_columns_than_wait_together(rows: int, element: str) -> None:
    """The sums of few rows are those of each column alone, however many columns go together."""
    dtype = np.dtype(np.float64 if element == "f64" else np.float32)
    n, k = 2 * FEW_BYTES // dtype.itemsize + 77, 7
    rng = np.random.default_rng(rows)
    x, w = rng.standard_normal((rows, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    product = Product("product", (rows, k), n, element=element)
    kernel = compiled("product", gemm_dense(TARGETS[512], product))
    (whole,) = kernel([x, w], [np.zeros((rows, n), dtype)])
    (cut,) = kernel([x, w], [np.zeros((rows, n), dtype)], [1, 3, 40])
    assert whole.tobytes() == cut.tobytes()
    np.testing.assert_allclose(whole, x @ w, rtol=0, atol=40 * np.finfo(dtype).eps)


@pytest.mark.parametrize("batched", [False, True])
def test_a_row_does_not_depend_on_the_others(batched: bool) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 21, 70)), rng.standard_normal((70, 40))
    if batched:
        text = gemm_batched(
            TARGETS[256], BatchedProduct("product", (1, None, 70), (1, 70, 40), (1, None, 40), element="f64")
        )
    else:
        text = gemm_dense(TARGETS[256], Product("product", (1, None, 70), 40, element="f64"))
    w = w[None] if batched else w
    kernel = compiled("product", text)
    (whole,) = kernel([x, w], [np.zeros((1, 21, 40))])
    for first, last in ((0, 1), (1, 4), (4, 21)):
        (rows,) = kernel([np.ascontiguousarray(x[:, first:last]), w], [np.zeros((1, last - first, 40))])
        assert rows.tobytes() == np.ascontiguousarray(whole[:, first:last]).tobytes()


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_approx", "silu", "sigmoid", "tanh", "exp", "sin", "erfc"])
def test_activations(activation: str) -> None:
    """Functions of f64 are those of the C library, lane by lane, within the product's kernel."""
    m = GraphModule.mir("linear")
    x, w, b = m.input("x", [9, 21], "f64"), m.param("w", [21, 19], "f64"), m.param("b", [19], "f64")
    m.set_outputs({"y": getattr(m, activation)(m.add(m.matmul(x, w), b))})
    rng = np.random.default_rng(1)
    arrays = {"x": rng.standard_normal((9, 21)), "w": rng.standard_normal((21, 19)) / 5, "b": rng.standard_normal(19)}
    executable = rlx.compile(m, cache=False)
    assert list(executable.artifact.templates.values()) == ["gemm_dense"]
    executable.set_params({name: arrays[name] for name in "wb"})
    result = executable.run({"x": arrays["x"]})["y"]
    np.testing.assert_allclose(result, rlx.interpret(m, arrays)["y"], rtol=1e-13, atol=1e-13)


def test_packed_weights_stay_generic() -> None:
    spec = ProductSpec(
        "product", "dequant_matmul", (3, 64), (16, 64), (3, 16), IDENTITY, (0, 1), "f64", layout="panels"
    )
    with pytest.raises(UnsupportedByTemplate, match="product: products of f64 with packed weights have no template"):
        panel_product(spec, "dequant_matmul")
