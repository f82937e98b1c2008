# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of more than 2^31 elements or 4 GiB: addresses by the emulator of PTX, sizes that kernels refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda_harness import emulated_device
from gpu_attention import NAME
from gpu_attention import Case as Attention
from gpu_host import Launch
from gpu_large import run_blocks, sparse

import rlx_mlir as rlx
from rlx_mlir import GraphModule, formats
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.attention import gpu_attention
from rlx_mlir.codegen.gpu.broadcast import emit_broadcast
from rlx_mlir.codegen.gpu.copies import emit_copies
from rlx_mlir.codegen.gpu.emit import memref
from rlx_mlir.codegen.gpu.gather import emit_gather
from rlx_mlir.codegen.gpu.gemm_base import Gemm
from rlx_mlir.codegen.gpu.gemm_float8 import gemm_float8
from rlx_mlir.codegen.gpu.gemm_fma import gemm_fma
from rlx_mlir.codegen.gpu.gemm_mma import gemm_mma
from rlx_mlir.codegen.gpu.gemm_quant import gemm_block_dot, gemm_decoded
from rlx_mlir.codegen.gpu.gemv import gemv
from rlx_mlir.codegen.gpu.gemv_core import Gemv
from rlx_mlir.codegen.gpu.gemv_float8 import gemv_float8
from rlx_mlir.codegen.gpu.kernel import MOST, DeviceKernel
from rlx_mlir.codegen.gpu.pointwise import emit_pointwise
from rlx_mlir.codegen.gpu.quantize import Quantize, quantize
from rlx_mlir.codegen.gpu.reduce import emit_reduce
from rlx_mlir.codegen.gpu.rows import emit_rows
from rlx_mlir.codegen.gpu.scan import emit_scan
from rlx_mlir.codegen.gpu.top_k import emit_top_k
from rlx_mlir.codegen.gpu.transpose import emit_transpose
from rlx_mlir.codegen.program import IDENTITY
from rlx_mlir.codegen.row_graph import Operand, Result, RowProgram, Step
from rlx_mlir.codegen.specs import (
    BroadcastSpec,
    BroadcastStep,
    GatherSpec,
    MoveSpec,
    ReduceSpec,
    ScanSpec,
    TopKSpec,
)
from rlx_mlir.errors import ExecutionError

CHIP = "sm_90a"
BF16 = ml_dtypes.bfloat16
DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": BF16}
#: Rows of 8192 elements, a few more than 2^32 elements; of f32 half as many.
ROWS, WIDTH = (1 << 19) + 6, 1 << 13
HALF = ROWS // 2 + 1


def marked(shape: tuple[int, ...], value: float = 3, dtype: Any = BF16) -> np.ndarray:
    """An array whose last row holds a number, and zeros elsewhere."""
    found = sparse(shape, dtype)
    found[-1] = value
    return found


def run(kernel: DeviceKernel, operands: list[np.ndarray], results: list[np.ndarray], chip: str = CHIP) -> None:
    run_blocks(kernel, "k", chip, operands, results)


def row_program(step: str, *, width: int = WIDTH) -> RowProgram:
    type = memref((None, width), "bf16")
    return RowProgram((Operand("x", type),), (Step("y", step, ("x",), {}),), (Result("o", type, "y"),), "x")


def test_gathers() -> None:
    types = (memref((None, None), "bf16"), memref((None,), "i32"), (), (memref((None, None), "bf16"),))
    kernel = emit_gather("k", GatherSpec(*types, 0, 0, (0, 1), IDENTITY), CHIP)
    few = sparse((2, WIDTH), BF16)
    run(kernel, [marked((ROWS, WIDTH)), np.array([0, ROWS - 1], np.int32)], [few])
    assert (few[-1, -8:] == 3).all()
    many = sparse((ROWS, WIDTH), BF16)
    run(kernel, [marked((4, WIDTH)), np.full(ROWS, 3, np.int32)], [many])
    assert (many[-1, -8:] == 3).all()


def test_rows_of_packed_tables() -> None:
    packed = formats.pack_planes("q8_0", formats.encode("q8_0", np.full((1, WIDTH), 3, np.float32)), WIDTH)
    types = (memref((None, packed.shape[1]), "i8"), memref((None,), "i32"), (), (memref((None, WIDTH), "f32"),))
    kernel = emit_gather("k", GatherSpec(*types, 0, 0, (0, 1), IDENTITY, "q8_0", "planes", WIDTH), CHIP)
    table = sparse((ROWS, packed.shape[1]), np.uint8)
    table[-1] = packed[0]
    got = sparse((1, WIDTH), np.float32)
    run(kernel, [table, np.array([ROWS - 1], np.int32)], [got])
    assert np.allclose(got[-1, -4:], 3, rtol=0.01)


def test_moves() -> None:
    type = memref((None, WIDTH), "bf16")
    part = MoveSpec("narrow", (type,), memref((ROWS - 1, WIDTH), "bf16"), (0,), start=1, length=ROWS - 1)
    got = sparse((ROWS - 1, WIDTH), BF16)
    run(emit_copies("k", part, CHIP), [marked((ROWS, WIDTH))], [got])
    assert (got[-1, -8:] == 3).all()
    dynamic = memref((None, None), "bf16")
    turned = emit_transpose("k", MoveSpec("transpose", (dynamic,), dynamic, (0,), (1, 0)), CHIP)
    for shape in ((ROWS + 58, WIDTH), (ROWS + 1, WIDTH + 1)):  # squares in registers, tiles in shared memory
        got = sparse(shape[::-1], BF16)
        run(turned, [marked(shape)], [got])
        assert got[-1, -1] == 3


def test_element_wise() -> None:
    got = sparse((ROWS, WIDTH), BF16)
    run(emit_pointwise("k", row_program("neg"), CHIP), [marked((ROWS, WIDTH))], [got])
    assert (got[-1, -8:] == -3).all()
    types = (memref((None, WIDTH), "bf16"), memref((1, WIDTH), "bf16"))
    compare = BroadcastSpec(types, memref((None, WIDTH), "i1"), (BroadcastStep("compare", "gt", (0, 1), "i1"),))
    got = sparse((ROWS, WIDTH), np.uint8)
    run(emit_broadcast("k", compare, CHIP), [marked((ROWS, WIDTH)), np.zeros((1, WIDTH), BF16)], [got])
    assert (got[-1, -8:] == 1).all()


def test_rows_long_and_short() -> None:
    for width, rows in ((WIDTH, ROWS), (8, (1 << 29) + 5)):
        got = sparse((rows, width), BF16)
        run(emit_rows("k", row_program("softmax", width=width), CHIP), [marked((rows, width))], [got])
        assert (got[-1] == 1 / width).all()


@pytest.mark.parametrize(("batch", "length", "width"), [(130, 16400, 1024), (18000, 16400, 8)])
def test_caches(batch: int, length: int, width: int) -> None:
    type = memref([None, None, width], "bf16")
    operands = (Operand("x", type), Operand("pos", memref([None], "i32"), "pos"), Operand("x_cache", type, "tied"))
    kernel = emit_rows("k", RowProgram(operands, (), (Result("out", type, "x", pos="pos"),)), CHIP)
    cache = sparse((batch, length, width), BF16)
    run(kernel, [marked((batch, 2, width)), np.full(batch, length - 2, np.int32), cache], [cache])
    assert (cache[-1, -1] == 3).all()


def test_reductions_and_running_sums() -> None:
    for shape, axis in (((ROWS, WIDTH), 1), ((70, 1 << 26), 0)):
        spec = ReduceSpec(memref((None, None), "bf16"), memref((None,), "bf16"), "max", (axis,))
        got = sparse(shape[1 - axis : 2 - axis], BF16)
        run(emit_reduce("k", spec, CHIP), [marked(shape)], [got])
        assert got[-1] == 3
    got = sparse((HALF, WIDTH), np.float32)
    run(emit_scan("k", ScanSpec(memref((None, None), "f32"), 1, False), CHIP), [marked(got.shape, 1, "f4")], [got])
    assert got[-1, -1] == WIDTH


def test_quantisation() -> None:
    q, scale, total = (sparse(s, t) for s, t in (((HALF, WIDTH), "i1"), ((HALF, 256), "f4"), ((HALF, 256), "i4")))
    run(quantize(CHIP, Quantize("k", (None, WIDTH), "f32")), [marked(q.shape, 2, "f4")], [q, scale, total])
    assert (q[-1, -32:] == 127).all()
    assert total[-1, -1] == 127 * 32


def test_largest_elements_of_many_rows() -> None:
    """More than 65535 of them, which is the most blocks that a grid has along y."""
    rows, n = 70_000, 1 << 15
    spec = TopKSpec(memref((None, n), "f16"), memref((None, 2), "f16"), memref((None, 2), "i32"), 2)
    x, values, places = sparse((rows, n), np.float16), sparse((rows, 2), np.float16), sparse((rows, 2), np.int32)
    x[-1, -1] = 5

    def of_last_row(launch: Launch) -> list[list[int]]:
        return [[launch.grid[0] - 1, part] for part in range(launch.grid[1])]

    run_blocks(emit_top_k("k", spec, CHIP), "k", CHIP, [x], [values, places], of_last_row)
    assert (values[-1, 0], places[-1, 0]) == (5, n - 1)


#: What makes a product, the chip, the type of x, and the scheme of weights that are packed.
PRODUCTS: dict[str, tuple[Any, str, str, str]] = {
    "mma": (lambda chip, gemm, _: gemm_mma(chip, gemm), "sm_80", "bf16", ""),
    "fma": (lambda chip, gemm, _: gemm_fma(chip, gemm), "sm_80", "f32", ""),
    "block_dot": (gemm_block_dot, "sm_80", "f32", "q8_0"),
    "decoded": (gemm_decoded, "sm_80", "bf16", "q8_0"),
}


@pytest.mark.parametrize("large", ["result", "weight"])
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.quick(1)
def test_products(name: str, large: str) -> None:
    make, chip, element, scheme = PRODUCTS[name]
    k = 256 if scheme else 64
    count = 1 << (31 if element == "f32" else 32)
    m, n = {"result": ((count >> 18) + 8, 1 << 18), "weight": (8, count // k + 64)}[large]
    gemm = Gemm("k", (None, k), (n, k), (None, n), element=element, transpose_rhs=True)
    if scheme:
        packed = formats.pack_planes(scheme, formats.encode(scheme, np.ones((1, k), np.float32)), k)
        weight = marked((n, packed.shape[1]), packed[0], np.uint8).view("i1")
    else:
        weight = marked((n, k), 1, DTYPES[element])
    x = [marked((m, k), 1, DTYPES[element])]
    if name == "block_dot":
        x = [marked((m, k), 127, "i1"), marked((m, k // 32), 1 / 127, "f4"), marked((m, k // 32), 127 * 32, "i4")]
    got = sparse((m, n), DTYPES[element])
    run(make(chip, gemm, scheme), [*x, weight], [got], chip)
    assert abs(float(got[-1, -1]) - k) <= k / 100


@pytest.mark.parametrize("make", [gemm_float8, gemv_float8])
def test_products_of_8_bits(make: Callable[[str, Gemm], DeviceKernel]) -> None:
    m, n, k = 8, (1 << 26) + 64, 64
    gemm = Gemm("k", (None, k), (n, k), (None, n), element="bf16", transpose_rhs=True)
    e4m3 = ml_dtypes.float8_e4m3fn
    got = sparse((m, n), BF16)
    kernel = make("sm_89", replace(gemm, float8=("f8E4M3FN", "f8E4M3FN")))
    run(kernel, [marked((m, k), 1, e4m3), marked((n, k), 1, e4m3)], [got], "sm_89")
    assert got[-1, -1] == k


@pytest.mark.parametrize("columns", [False, True])
def test_products_of_few_rows(columns: bool) -> None:
    n, k = (1 << 19) + 64, 1 << 13
    weight = sparse((k, n) if columns else (n, k), BF16)
    weight[(slice(None), -1) if columns else -1] = 1
    spec = Gemv("k", (1, k), n, "bf16", dense=True, columns=columns, element="bf16")
    got = sparse((1, n), BF16)
    run(gemv("sm_80", spec), [np.ones((1, k), BF16), weight], [got], "sm_80")
    assert got[-1, -1] == k


@pytest.mark.parametrize(
    ("element", "queries", "chip", "schedule"),
    [
        ("bf16", 1, "sm_80", "attention_decode"),
        ("bf16", 64, "sm_80", "attention_mma"),
        pytest.param("f32", 64, "sm_80", "attention_f32", marks=pytest.mark.slow),
        ("bf16", 64, CHIP, "attention_hopper"),
    ],
)
@pytest.mark.quick(1)
def test_attention(element: str, queries: int, chip: str, schedule: str) -> None:
    case = Attention(queries, 512, 8, 8, 128, 8200 if element == "bf16" else 4100, element=element, fixed=queries == 1)
    kernel = gpu_attention(NAME, case.spec(), chip)
    assert kernel.schedule == schedule
    k, v = (marked(case.shape(512, 8), value, DTYPES[element]) for value in (0, 3))
    q, got = (sparse(case.shape(queries, 8), DTYPES[element]) for _ in range(2))

    def last_head(launch: Launch) -> list[list[int]]:
        across, *rest = launch.grid
        return [[x, rest[0] - 1, rest[1] - 1] for x in range(across * (rest[1] == 1), across)] or [[across - 1]]

    run_blocks(kernel, NAME, chip, [q, k, v], [got], last_head)
    assert (got[-1, -1, -8:] == 3).all()


# -- sizes that are too large -----------------------------------------------------------------------------------------


def test_sizes_that_kernels_cannot_count() -> None:
    """Before the launch, by name; a call with other sizes works afterwards."""
    module = GraphModule.mir("product")
    x, w = module.input("x", ["rows", "k"]), module.input("w", ["n", "k"])
    module.set_outputs({"y": module.matmul(x, w, transpose_rhs=True)})
    with emulated_device("sm_80"):
        executable = rlx.compile(module, target="cuda", cache=False, maxima={"rows": 1 << 40})
        for rows in (MOST + 1, 1 << 32, (1 << 32) + 1):
            given = {"x": np.zeros((rows, 0), np.float32), "w": np.zeros((0, 0), np.float32)}
            message = rf"kernel 'matmul_0_\w+': size 'm' is {rows}, but may be at most {MOST}"
            for _ in range(3):  # where a graph would be captured, too
                with pytest.raises(ExecutionError, match=message):
                    executable.run(given)
        given["x"] = np.zeros((MOST, 0), np.float32)
        assert executable.run(given)["y"].shape == (MOST, 0)
        ones = {name: np.ones((2, 3), np.float32) for name in "xw"}
        assert (executable.run(ones)["y"] == 3).all()


def test_sizes_that_are_known_to_be_too_large() -> None:
    """Rows that a type has take the generic path, which counts in 64 bits."""
    type = memref((3_000_000_000, 8), "bf16")
    program = RowProgram((Operand("x", type),), (Step("y", "softmax", ("x",)),), (Result("o", type, "y"),))
    with pytest.raises(UnsupportedByTemplate, match=r"3000000000 is no number of 32 bits"):
        emit_rows("k", program, CHIP)
    with pytest.raises(UnsupportedByTemplate, match=rf"k: expects sizes up to {MOST}, but one is 3000000000"):
        Gemm("k", (3_000_000_000, 64), (64, 64), (3_000_000_000, 64), transpose_rhs=True)
    with pytest.raises(UnsupportedByTemplate, match="expects sizes up to"):
        gpu_attention("k", Attention(3_000_000_000, 64, fixed=True).spec(), CHIP)
