# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for element-wise kernels, emulated: tails, broadcasting, types, accesses of 16 bytes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from compile_harness import compare
from covering import products
from cuda_harness import emulated_device
from gpu_emulated import emulate

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.emit import memref
from rlx_mlir.codegen.gpu.pointwise import emit_pointwise
from rlx_mlir.codegen.row_graph import Operand, Result, RowProgram, Step

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def values(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(DTYPES[dtype])


@pytest.mark.parametrize(
    ("width", "dtype", "chip"), products([1, 7, 8, 33, 64], ["f32", "f16", "bf16"], ["sm_80", "sm_90a"])
)
@pytest.mark.quick(2)
def test_every_way_to_broadcast(width: int, dtype: str, chip: str) -> None:
    """Rows, one value a row, a vector, one value, rows that repeat: at sizes with and without whole vectors."""
    row = memref((None, None, width), dtype)
    operands = (
        Operand("x", row),
        Operand("column", memref((None, None, 1), dtype)),
        Operand("vector", memref((width,), dtype), "vector"),
        Operand("repeated", memref((None, width), dtype), "periodic"),
        Operand("number", memref((1,), dtype), "scalar"),
    )
    steps = (
        Step("sum", "add", ("x", "column")),
        Step("product", "mul", ("sum", "vector")),
        Step("rounded", "cast", ("product",), {"to": "bf16"}),
        Step("total", "add", ("product", "repeated")),
        Step("greater", "compare", ("total", "number"), {"kind": "gt"}),
        Step("chosen", "where", ("greater", "total", "x")),
        Step("active", "silu", ("chosen",)),
    )
    results = (Result("y", row, "rounded"), Result("z", memref((None, None, width), "f32"), "active"))
    kernel = emit_pointwise("p", RowProgram(operands, steps, results, "x"), chip, frozenset({2}))
    rng = np.random.default_rng(width)
    for b, s in ((1, 0), (1, 1), (2, 3), (1, 67)):
        shapes = [(b, s, width), (b, s, 1), (width,), (s, width), (1,)]
        x, column, vector, repeated, number = arrays = [values(rng, dtype, *shape) for shape in shapes]
        y, z = np.empty((b, s, width), DTYPES[dtype]), np.empty((b, s, width), np.float32)
        emulate(kernel, "p", chip, arrays, [y, z])
        wide = [array.astype(np.float32) for array in (x, column, vector, repeated, number)]
        product = (wide[0] + wide[1]) * wide[2]
        total = product + wide[3]
        chosen = np.where(total > wide[4], total, wide[0])
        want = product.astype(ml_dtypes.bfloat16).astype(DTYPES[dtype])
        assert np.array_equal(y.view(np.uint8), want.view(np.uint8)), (b, s)
        np.testing.assert_allclose(z, chosen / (1 + np.exp(-chosen)), rtol=1e-6, atol=1e-7)


def test_compiled_kernels_are_of_the_schedule() -> None:
    module = GraphModule.mir("chain")
    x, vector = module.input("x", ["n", 33]), module.param("vector", [33])
    y = module.mul(module.add(x, vector), 0.5)
    module.set_outputs({"y": module.relu(y), "z": module.gelu(y)})
    rng = np.random.default_rng(0)
    params = {"vector": values(rng, "f32", 33)}
    failures: list[str] = []
    with emulated_device("sm_90a"):
        executable = rlx.compile(module, target="cuda", cache=False)
        assert set(executable.artifact.templates.values()) == {"pointwise"}
        executable.set_params(params)
        for n in (0, 1, 5, 400):
            inputs = {"x": values(rng, "f32", n, 33)}
            failures += compare(interpret(module, {**inputs, **params}), executable.run(inputs), str(n))
        del executable
    assert not failures, "\n".join(failures)


def test_vectors_are_one_row() -> None:
    module = GraphModule.mir("vectors")
    x, y = module.input("x", [37]), module.param("y", [37])
    total = module.add(x, y)
    module.set_outputs({"relu": module.relu(total), "norm": module.rms_norm(total, y, eps=0.5)})
    rng = np.random.default_rng(0)
    inputs, params = {"x": values(rng, "f32", 37)}, {"y": values(rng, "f32", 37)}
    with emulated_device("sm_80"):
        executable = rlx.compile(module, target="cuda", chip="sm_80", cache=False)
        assert set(executable.artifact.templates.values()) == {"rows"}
        executable.set_params(params)
        failures = compare(interpret(module, {**inputs, **params}), executable.run(inputs), "")
        del executable
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_memory_is_read_and_written_by_16_bytes(dtype: str) -> None:
    module = GraphModule.mir("sum")
    x, y = (module.input(name, ["n", 64], dtype) for name in "xy")
    module.set_outputs({"z": module.add(x, y)})
    ptx = rlx.emit(module, "ptx", target="nvptx", chip="sm_90a")
    for word in ("ld.global.v", "st.global.v"):
        assert sum(line.strip().startswith(word) for line in ptx.splitlines()) >= 2, word
    assert "ld.global.b32" not in ptx
    assert "ld.global.nc" not in ptx, "what kernels before have written may not go by the cache of constants"


def program(*steps: Step, type: str = "memref<?x8xf32>", result: str = "memref<?x8xf32>") -> RowProgram:
    return RowProgram((Operand("x", type),), steps, (Result("y", result, steps[-1].name),))


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (program(Step("s", "softmax", ("x",))), "a row's elements depend on others: reduce max"),
        (program(Step("s", "narrow", ("x",), {"start": 2, "length": 8}), type="memref<?x16xf32>"), "depend on others"),
        (
            program(Step("s", "reduce", ("x",), {"kind": "sum"}), result="memref<?x1xf32>"),
            "depend on others: reduce sum",
        ),
    ],
)
def test_programs_that_aren_t_element_wise(own: RowProgram, message: str) -> None:
    with pytest.raises(UnsupportedByTemplate, match=message):
        emit_pointwise("p", own, "sm_80")
