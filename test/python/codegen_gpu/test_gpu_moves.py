# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules that move elements, run by the emulator of PTX: transposes, parts, joins, repetitions; bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import compare
from covering import products
from cuda_harness import emulated_device
from gpu_emulated import assembled, emulate

import rlx_mlir as rlx
from ptx_emulator import Stats
from rlx_mlir import GraphModule, interpret
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.copies import MOST_INPUTS, emit_copies
from rlx_mlir.codegen.gpu.emit import memref
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.codegen.gpu.transpose import emit_transpose
from rlx_mlir.codegen.specs import MoveSpec

DTYPES = {"f64": np.float64, "f32": np.float32, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i1": np.bool_}
Dims = tuple[Any, ...]


def type_of(dims: Dims, dtype: str) -> str:
    return memref([None if isinstance(dim, str) else dim for dim in dims], dtype)


def array(dims: Dims, dtype: str, sizes: dict[str, int]) -> np.ndarray:
    shape = [sizes.get(dim, dim) for dim in dims]
    return np.random.default_rng(len(shape)).integers(0, 100, shape).astype(DTYPES[dtype])


def check(kernel: DeviceKernel, chip: str, inputs: Sequence[np.ndarray], wanted: np.ndarray) -> Stats:
    """Asserts that the kernel gives the bits that it should; returns what it did."""
    got = np.zeros_like(wanted)
    stats, launched = emulate(kernel, "m", chip, inputs, [got], profile=True)
    assert got.tobytes() == wanted.tobytes(), [x.shape for x in inputs]
    assert not stats.bank_conflicts
    assert len(launched) == (1 if wanted.size else 0)
    return stats


def transpose(dims: Dims, permutation: Sequence[int], dtype: str) -> MoveSpec:
    result = type_of(tuple(dims[axis] for axis in permutation), dtype)
    return MoveSpec("transpose", (type_of(dims, dtype),), result, (0,), tuple(permutation))


@pytest.mark.parametrize(
    ("case", "dtype"),
    products(
        [
            ((64, 128), (1, 0)),
            ((33, 65), (1, 0)),
            ((48, 1, 8), (2, 1, 0)),
            (("a", "b"), (1, 0)),
            (("a", 40), (1, 0)),
            (("a", "b", 16), (2, 0, 1)),
            ((2, "a", 3, 24), (3, 0, 2, 1)),
            (("a", 3, "b"), (2, 1, 0)),
        ],
        list(DTYPES),
        meeting=1,
    ),
)
@pytest.mark.quick(1)
def test_transposes_that_move_the_last_axis(case: tuple[Any, ...], dtype: str) -> None:
    dims, permutation = case
    spec = transpose(dims, permutation, dtype)
    kernel = emit_transpose("m", spec, "sm_90a")
    for a, b in ((0, 3), (1, 1), (7, 33), (40, 72)):
        x = array(dims, dtype, {"a": a, "b": b})
        check(kernel, "sm_90a", [x], x.transpose(permutation).copy())


@pytest.mark.parametrize(("dtype", "width"), [("f32", 16), ("bf16", 16), ("f64", 16), ("i8", 8)])
def test_squares_in_registers_touch_whole_pieces(dtype: str, width: int) -> None:
    """Both ways by vectors, without memory of the block."""
    kernel = emit_transpose("m", transpose((2, 128, 256), (0, 2, 1), dtype), "sm_80")
    x = array((2, 128, 256), dtype, {})
    stats = check(kernel, "sm_80", [x], x.transpose(0, 2, 1).copy())
    assert not stats.uncoalesced
    assert stats.global_read == stats.global_written == x.nbytes
    assert "st.shared" not in str(stats.instructions)
    assert width * x.nbytes  # each access is of `width` bytes
    moved = sum(count for name, count in stats.instructions.items() if name.startswith("st.global"))
    assert moved * width == x.nbytes


@pytest.mark.parametrize(
    ("case", "dtype"),
    products(
        [
            ((2, "s", 3, 8), (0, 2, 1, 3)),
            (("a", "s", 5), (1, 0, 2)),
            (("a", 1, "s"), (1, 0, 2)),
            ((3, 4), (0, 1)),
            ((), ()),
        ],
        list(DTYPES),
        meeting=1,
    ),
)
def test_transposes_that_keep_the_last_axis(case: tuple[Any, ...], dtype: str) -> None:
    dims, permutation = case
    kernel = emit_copies("m", transpose(dims, permutation, dtype), "sm_80")
    for a, s in ((0, 1), (1, 1), (3, 8)):
        x = array(dims, dtype, {"a": a, "s": s})
        stats = check(kernel, "sm_80", [x], x.transpose(permutation).copy())
        assert dims[-1:] == (5,) or not any(own.store for own in stats.uncoalesced)


@pytest.mark.parametrize(
    ("case", "dtype"),
    products(
        [
            ((4, "n", 8), 0, 1, 2),
            (("b", 9, "n"), 1, 3, 4),
            (("b", 24), 1, 8, 16),
            (("b", 24), 1, 3, 5),
            (("b", 6), 1, 6, 0),
        ],
        list(DTYPES),
        meeting=1,
    ),
)
def test_parts(case: tuple[Any, ...], dtype: str) -> None:
    dims, axis, start, length = case
    result = (*dims[:axis], length, *dims[axis + 1 :])
    spec = MoveSpec("narrow", (type_of(dims, dtype),), type_of(result, dtype), (0,), (), axis, start, length)
    kernel = emit_copies("m", spec, "sm_90a")
    for b, n in ((0, 4), (1, 1), (3, 7), (2, 16)):
        x = array(dims, dtype, {"b": b, "n": n})
        check(kernel, "sm_90a", [x], np.take(x, range(start, start + length), axis))


@pytest.mark.parametrize(
    ("case", "dtype"),
    products(
        [
            ((("a", 8),), 0),
            ((("a", 8), ("b", 8), (3, 8)), 0),
            (((2, "a"), (2, "b")), 1),
            ((("a", 8), ("a", 16), ("a", 24)), 1),
            ((("a", 3, 2), ("a", "b", 2)), 1),
        ],
        list(DTYPES),
        meeting=1,
    ),
)
def test_joins(case: tuple[Any, ...], dtype: str) -> None:
    inputs, axis = case
    dims = list(inputs[0])
    parts = [dims[axis] for dims in inputs]
    dims[axis] = "joined" if any(isinstance(part, str) for part in parts) else sum(parts)
    types = tuple(type_of(own, dtype) for own in inputs)
    spec = MoveSpec("concat", types, type_of(tuple(dims), dtype), tuple(range(len(inputs))), axis=axis)
    kernel = emit_copies("m", spec, "sm_90a")
    for a, b in ((0, 0), (0, 1), (1, 3), (16, 32)):
        given = [array(own, dtype, {"a": a, "b": b}) for own in inputs]
        check(kernel, "sm_90a", given, np.concatenate(given, axis))


@pytest.mark.parametrize(
    ("case", "dtype"),
    products(
        [
            ((), (3, 4)),
            ((8,), (5, 8)),
            ((1, 8), (2, 3, 8)),
            (("a", 1), ("a", 16)),
            (("a", 1, 8), ("a", 4, 8)),
            (("a", "b"), ("a", 5)),
            (("a", "b"), (3, "b")),
            ((2, 1, 1, 6), (2, 3, 4, 6)),
        ],
        list(DTYPES),
        meeting=1,
    ),
)
def test_expansions(case: tuple[Any, ...], dtype: str) -> None:
    dims, result = case
    spec = MoveSpec("expand", (type_of(dims, dtype),), type_of(result, dtype), (0,))
    kernel = emit_copies("m", spec, "sm_80")
    for a, b in ((1, 1), (3, 5), (1, 5), (3, 1)):
        if (result == (3, "b") and a not in (1, 3)) or (result == ("a", 5) and b not in (1, 5)):
            continue
        x = array(dims, dtype, {"a": a, "b": b})
        shape = [{"a": a, "b": b}.get(dim, dim) for dim in result]
        check(kernel, "sm_80", [x], np.broadcast_to(x, shape).copy())


def test_compiled_modules_have_no_generic_kernels() -> None:
    """Several inputs that are one value, parameters, results that are inputs, kernels in a chain."""
    module = GraphModule.mir("moves")
    x, w = module.input("x", [1, "s", 4, 16], "bf16"), module.param("w", [16, 40], "bf16")
    heads = module.transpose(x, [0, 2, 1, 3])
    module.set_outputs(
        {
            "heads": heads,
            "columns": module.transpose(heads, [0, 1, 3, 2]),
            "twice": module.concat([x, x], axis=2),
            "part": module.narrow(x, axis=2, start=1, length=2),
            "w": module.expand(w, [3, 16, 40]),
            "same": x,
        }
    )
    rng = np.random.default_rng(0)
    params = {"w": rng.standard_normal((16, 40)).astype(ml_dtypes.bfloat16)}
    failures: list[str] = []
    with emulated_device("sm_90a") as cuda:
        executable = rlx.compile(module, target="cuda", chip="sm_90a", cache=False, verify=True)
        assert set(executable.artifact.templates.values()) == {"copies", "transpose"}
        executable.set_params(params)
        for s in (0, 1, 7, 16):
            inputs = {"x": rng.standard_normal((1, s, 4, 16)).astype(ml_dtypes.bfloat16)}
            failures += compare(interpret(module, {**inputs, **params}), executable.run(inputs), str(s))
        assert not cuda.errors
        del executable
    assert not failures, "\n".join(failures)


def test_what_the_schedules_leave_out() -> None:
    with pytest.raises(UnsupportedByTemplate, match="neighbours stay neighbours"):
        emit_transpose("m", transpose((2, 3, 4), (1, 0, 2), "f32"), "sm_80")
    with pytest.raises(UnsupportedByTemplate, match="neighbours are so no more"):
        emit_copies("m", transpose((3, 4), (1, 0), "f32"), "sm_80")
    many = MOST_INPUTS + 1
    spec = MoveSpec("concat", ("memref<2xf32>",) * many, f"memref<{2 * many}xf32>", tuple(range(many)))
    with pytest.raises(UnsupportedByTemplate, match="at most 16 inputs, but there are 17"):
        emit_copies("m", spec, "sm_80")


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
@pytest.mark.quick(3)
def test_squares_stay_in_registers(dtype: str, chip: str) -> None:
    module = GraphModule.mir("turn")
    module.set_outputs({"y": module.transpose(module.input("x", ["n", "m"], dtype), [1, 0])})
    ptx = rlx.emit(module, "ptx", target="nvptx", chip=chip)
    for own in assembled(ptx, chip).values():
        assert own.spills == 0
        assert own.registers <= 64
    if dtype != "i8":
        assert "ld.global.v4.b32" in ptx
        assert "st.global.v4.b32" in ptx
