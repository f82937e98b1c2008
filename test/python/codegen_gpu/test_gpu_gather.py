# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The schedule for gathers, run by the emulator of PTX: packed and dense tables, any axis, what follows them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import compare
from covering import products
from cuda_harness import emulated_device
from gpu_emulated import assembled, emulate

import rlx_mlir as rlx
from rlx_mlir import GraphModule, formats, interpret
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.emit import memref
from rlx_mlir.codegen.gpu.gather import emit_gather
from rlx_mlir.codegen.program import IDENTITY, Program, Step
from rlx_mlir.codegen.specs import GatherSpec
from rlx_mlir.mir.shape import gather

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32, "i64": np.int64}


def values(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    found = rng.standard_normal(shape) * (1 if dtype[0] in "fb" else 1000)
    return found.astype(DTYPES[dtype])


def indices_of(kind: str, rng: np.random.Generator, size: int, *shape: int) -> np.ndarray:
    """Indices, some of them outside; floats with fractions, without, and NaN."""
    chosen = rng.integers(-2, size + 2, shape)
    if kind == "f32":
        found = chosen + rng.uniform(0, 0.9, shape)
        found.reshape(-1)[:5] = (np.nan, np.inf, -np.inf, 1, 0)[: found.size]
        return found.astype(np.float32)
    return chosen.astype(DTYPES[kind])


@pytest.mark.parametrize("scheme", [name for name in formats.PLANE_FORMATS if name != "f32"])
@pytest.mark.parametrize("layout", ["rows", "planes"])
@pytest.mark.quick(2)
def test_rows_of_packed_tables(scheme: str, layout: str) -> None:
    """Bit for bit what decoding gives, in both layouts of every format."""
    n, k = 7, 512
    rng = np.random.default_rng(n)
    rows = rng.integers(0, 256, (n, formats.get_format(scheme).row_bytes(k))).astype(np.uint8)
    if formats.get_format(scheme).encodable:
        rows = formats.encode(scheme, rng.standard_normal((n, k)).astype(np.float32))
    table = formats.pack_planes(scheme, rows, k) if layout == "planes" else rows
    width = table.shape[1]
    types = (memref((n, width), "i8"), memref((None, None), "i32"), (), (memref((None, None, k), "f32"),))
    kernel = emit_gather("g", GatherSpec(*types, 0, 0, (0, 1), IDENTITY, scheme, layout, k), "sm_80")
    wanted = formats.decode(scheme, rows, k)
    for shape in ((1, 0), (1, 1), (3, 5)):
        indices = indices_of("i32", rng, n, *shape)
        got = np.full((*shape, k), np.nan, np.float32)
        stats, _ = emulate(kernel, "g", "sm_80", [table, indices], [got], profile=True)
        assert np.array_equal(got.view(np.uint32), wanted[np.clip(indices, 0, n - 1)].view(np.uint32)), shape
        # Results are written by whole lines; planes may begin in the middle of one.
        assert layout == "rows" or all(own.sectors <= 2 * own.least for own in stats.uncoalesced)
        assert not any(own.store for own in stats.uncoalesced)


@pytest.mark.parametrize(
    ("case", "kinds"),
    products(
        [
            (("n", 8), ("i", "j"), 0, 0),
            (("n", 5), ("i",), 0, 0),
            (("n",), ("i", 3), 0, 0),
            (("b", "n", "t"), ("i",), 1, 0),
            (("b", "n", 4), ("b", "i"), 1, 1),
            (("b", 3, "n", 4), ("b", "i"), 2, 1),
            ((2, 6, 16, 2), (2, 5), 1, 1),
            (("b", 3, "n"), ("b", 3, "i"), 2, 2),
        ],
        [("f32", "i32"), ("bf16", "f32"), ("i64", "i64"), ("i32", "i32"), ("i32", "i64"), ("i32", "f32")],
        meeting=1,
    ),
)
def test_dense_tables(case: tuple[Any, ...], kinds: tuple[str, str]) -> None:
    """Any axis, batches, and rows of whole vectors, of some, and of an unknown length."""
    table, chosen, axis, batch_dims = case
    dtype, indices = kinds

    def shape(dims: tuple[Any, ...], sizes: dict[str, int]) -> tuple[int, ...]:
        return tuple(sizes.get(dim, dim) for dim in dims)

    def type(dims: tuple[Any, ...], element: str) -> str:
        return memref([None if isinstance(dim, str) else dim for dim in dims], element)

    result = (*table[:axis], *chosen[batch_dims:], *table[axis + 1 :])
    spec = GatherSpec(
        type(table, dtype), type(chosen, indices), (), (type(result, dtype),), axis, batch_dims, (0, 1), IDENTITY
    )
    kernel = emit_gather("g", spec, "sm_90a")
    rng = np.random.default_rng(axis)
    for i, j, b, t in ((0, 1, 1, 8), (1, 1, 2, 3), (5, 3, 3, 16)):
        sizes = {"n": 6, "i": i, "j": j, "b": b, "t": t}
        own = values(rng, dtype, *shape(table, sizes))
        places = indices_of(indices, rng, own.shape[axis], *shape(chosen, sizes))
        wanted = gather(own, places, axis=axis, batch_dims=batch_dims)
        got = np.zeros_like(wanted)
        emulate(kernel, "g", "sm_90a", [own, places], [got])
        assert np.array_equal(got.view(np.uint8), wanted.view(np.uint8)), sizes


def module_of(scheme: str, n: int, k: int, *, tied: bool) -> GraphModule:
    """An embedding with a scale; with `tied`, a product reads its table, too."""
    module = GraphModule.mir("embedding")
    ids = module.input("ids", [1, "s"], "i32")
    table = module.param("table", [n, k], packed=scheme) if scheme else module.param("table", [n, k], "bf16")
    x = module.gather(table, ids)
    outputs = {"x": module.mul(module.add(x, module.param("bias", [k], x.dtype)), 1.5)}
    if tied:
        outputs["y"] = module.dequant_matmul(module.input("h", [1, k]), table)
    module.set_outputs(outputs)
    return module


@pytest.mark.parametrize(
    ("scheme", "tied"), [pytest.param("q4_k", False, marks=pytest.mark.slow), ("q4_k", True), ("", False)]
)
def test_what_follows_is_part_of_the_kernel(scheme: str, tied: bool) -> None:
    n, k = 19, 256
    module, rng = module_of(scheme, n, k, tied=tied), np.random.default_rng(n)
    dense = rng.standard_normal((n, k)).astype(np.float32)
    params = {"table": formats.encode(scheme, dense) if scheme else dense.astype(DTYPES["bf16"])}
    params["bias"] = values(rng, "f32" if scheme else "bf16", k)
    failures: list[str] = []
    with emulated_device("sm_90a") as cuda:
        executable = rlx.compile(module, target="cuda", chip="sm_90a", cache=False, verify=True)
        assert sorted(executable.artifact.templates.values()) == ["gather", *(["gemv"] if tied else [])]
        assert any(name.startswith("gather_add_mul") for name in executable.artifact.templates)
        executable.set_params(params)
        for ids in ([], [3], [0, 18, 99, -4, 7]):
            inputs = {"ids": np.array([ids], np.int32), **({"h": values(rng, "f32", 1, k)} if tied else {})}
            failures += compare(interpret(module, {**inputs, **params}), executable.run(inputs), str(ids))
        assert not cuda.errors
        del executable
    assert not failures, "\n".join(failures)


def test_any_table_has_a_schedule() -> None:
    """Also of elements that nothing computes with, along an inner axis, and as the only operation."""
    module, rng = GraphModule.mir("tables"), np.random.default_rng(0)
    arrays = {"ids": np.array([2, 0, 9], np.int32), "inner": rng.integers(0, 99, (2, 3, 4, 2))}
    arrays["wide"] = rng.standard_normal((5, 6))
    ids = module.input("ids", [3], "i32")
    inner, wide = module.input("inner", [2, 3, 4, 2], "i64"), module.input("wide", [5, 6], "f64")
    module.set_outputs({"x": module.gather(inner, ids, axis=1), "y": module.gather(wide, ids)})
    with emulated_device("sm_80"):
        executable = rlx.compile(module, target="cuda", chip="sm_80", cache=False)
        assert set(executable.artifact.templates.values()) == {"gather"}
        failures = compare(interpret(module, arrays), executable.run(arrays), "")
        del executable
    assert not failures, "\n".join(failures)


def test_no_follower_that_others_read() -> None:
    """What something else reads has to be written; entries of several dimensions take no operands of rows."""
    module = GraphModule.mir("shared")
    table, ids = module.param("table", [9, 8]), module.input("ids", ["s"], "i32")
    x = module.gather(table, ids)
    module.set_outputs({"x": x, "y": module.relu(x)})
    artifact = rlx.compile(module, target="nvptx", chip="sm_80", cache=False)
    assert sorted(artifact.templates.values()) == ["gather", "pointwise"]


def test_what_the_schedule_leaves_out() -> None:
    types = (memref((4, 20), "i8"), memref((None,), "i32"), (), (memref((None, 32), "f32"),))
    with pytest.raises(UnsupportedByTemplate, match="a table in panels"):
        emit_gather("g", GatherSpec(*types, 0, 0, (0, 1), IDENTITY, "q4_1", "panels", 32), "sm_80")
    program = Program((Step("relu", (("acc", 0),)),))
    types = (memref((4, 3, 2), "f32"), memref((None,), "i32"), (), (memref((None, 3, 2), "f32"),))
    with pytest.raises(UnsupportedByTemplate, match="entries of several dimensions"):
        emit_gather("g", GatherSpec(*types, 0, 0, (0, 1), program), "sm_80")


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("scheme", ["q6_k", "q8_0", "bf16"])
@pytest.mark.quick(3)
def test_code_is_small_and_reads_whole_vectors(scheme: str, chip: str) -> None:
    ptx = rlx.emit(module_of(scheme, 19, 256, tied=False), "ptx", target="nvptx", chip=chip)
    for own in assembled(ptx, chip).values():
        assert own.spills == 0
        assert own.registers <= 40
    assert "st.global.v4.b32" in ptx
    assert ("griddepcontrol.wait" in ptx) == (chip == "sm_90a")
