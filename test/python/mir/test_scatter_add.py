# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scattered sums: repeated and dropped indices, any axis, one result for any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compile_harness import compile_fresh
from gpu_harness import compile_emulated
from linalg_harness import BF16, FLOATS, builder, case, check, dyn, normal, word

from rlx_mlir import GraphModule, interpret
from rlx_mlir.dialects import mir
from rlx_mlir.errors import BuildError, InputError
from rlx_mlir.mir import REFERENCES

#: Repeated, outside at both ends, and missing ones: rows 1 and 4 of 6 get nothing.
PLACES = np.array([[3, 0, 3, -1], [5, 6, 3, 2], [0, 100, -(2**31), 5]])


def scattered(updates: np.ndarray, places: np.ndarray, axis: int, size: int) -> np.ndarray:
    """By hand: entry by entry, in f64."""
    count = places.ndim
    shape = [*updates.shape[:axis], size, *updates.shape[axis + count :]]
    total = np.zeros(shape, np.complex128 if updates.dtype.kind == "c" else np.float64)
    for at in np.ndindex(*places.shape):
        place = 0 if np.isnan(places[at]) else int(places[at])
        if 0 <= place < size:
            own = (slice(None),) * axis
            total[(*own, place)] += updates[(*own, *at)]
    return total


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_reference(axis: int) -> None:
    updates = normal(*[2, 5][:axis], 3, 4, *[2, 5][axis:], dtype=np.float64)
    for places in (PLACES, PLACES.astype(np.float32) + np.float32(0.5)):
        want = scattered(updates, places, axis, 6)
        got = REFERENCES["mir.scatter_add"](updates, places, axis=axis, size=6)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    unknown = np.array([[np.nan, np.inf, -np.inf, 1]] * 3, np.float32)
    got = REFERENCES["mir.scatter_add"](updates, unknown, np.zeros([1] * axis + [3]), axis=axis)
    entries = np.moveaxis(updates, axis + 1, 0)
    want = np.stack([entries[0].sum(axis), entries[3].sum(axis), 0 * entries[0].sum(axis)], axis)
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype(np.complex64)], ids=word)
def test_floats(dtype: np.dtype) -> None:
    def updates(*shape: int) -> np.ndarray:
        own = normal(*shape, dtype=np.float32)
        return np.asarray(own * (1 - 0.5j) if dtype.kind == "c" else own).astype(dtype)

    tolerance = 2e-5 if dtype.kind == "c" else None
    places = PLACES.astype(np.int32)
    cases = [
        case(f"{axis} {kind}", builder(mir.scatter_add, axis=axis, size=6), given(updates(*shape)), given(index),
             tolerance=tolerance)
        for kind, given in (("static", lambda x: x), ("dynamic", dyn))
        for axis, shape, index in (
            (0, (3, 4, 17), places),
            (1, (2, 3, 4, 5), places.astype(np.int64)),
            (2, (2, 5, 4), places[0].astype(np.float32)),
            (0, (4,), places[0] % 7),
            (1, (3, 2), np.array(4, np.uint8)),
            (0, (), np.array(2, np.int32)),
            (0, (0, 5), places[0, :0]),
            (0, (4, 0), places[0]),
        )
    ]  # fmt: skip
    for table in (updates(1, 6), dyn(updates(0, 0))):
        cases.append(case("like", _like(axis=1), updates(2, 4, 3), dyn(places[0]), table, tolerance=tolerance))
    cases.append(case("none", builder(mir.scatter_add, axis=0, size=0), dyn(updates(4, 3)), dyn(places[0])))
    check(cases)


def _like(**attributes: int) -> Any:
    return lambda updates, indices, like: mir.scatter_add(updates, indices, like=like, **attributes)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16"])
def test_integers_wrap(dtype: str) -> None:
    info = np.iinfo(dtype)
    updates = np.full((4, 3), info.max, dtype)
    check([case(dtype, builder(mir.scatter_add, axis=0, size=2), updates, np.array([0, 1, 0, 0], np.int32))])


def like_table(dtype: str = "f32", width: int = 40) -> GraphModule:
    """Gradients of embeddings, [B, S, width], of a table of symbolic length."""
    module = GraphModule.mir("embedding")
    table = module.input("table", ["v", 3], "f32")
    dy, ids = module.input("dy", ["b", "s", width], dtype), module.input("ids", ["b", "s"], "i32")
    module.set_outputs({"d": module.gather_backward(dy, ids, table)})
    return module


def embedding(batch: int, length: int, entries: int, width: int = 40) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(entries)
    return {
        "table": np.zeros((entries, 3), np.float32),
        "dy": normal(batch, length, width, seed=length),
        "ids": rng.integers(-1, entries + 1, (batch, length)).astype(np.int32),
    }


def test_compiled_with_symbols() -> None:
    module = like_table()
    executables = [compile_fresh(module, threads=threads) for threads in (1, 2)]
    for sizes in ((1, 1, 1), (0, 3, 5), (2, 3, 0), (3, 7, 11), (2, 33, 300)):
        given = embedding(*sizes)
        want = scattered(given["dy"], given["ids"], 0, sizes[2])
        first, *others = (executable.run(given)["d"] for executable in executables)
        np.testing.assert_allclose(first, want, rtol=2e-5, atol=1e-5)
        np.testing.assert_array_equal(first, interpret(module, given)["d"])  # added in the same order
        for other in others:
            np.testing.assert_array_equal(other, first)


def test_order_is_that_of_the_indices() -> None:
    """2^24 + 1 + 1 is 2^24 in f32 where it is added in this order, and not from the other end."""
    module = GraphModule.mir("order")
    updates = module.input("updates", ["n", 130])
    module.set_outputs({"y": module.scatter_add(updates, module.input("ids", ["n"], "i32"), 2)})
    given = np.ones((4, 130), np.float32)
    given[0] = 2.0**24
    for threads in (1, 2):
        executable = compile_fresh(module, threads=threads)
        found = executable.run({"updates": given, "ids": np.ones(4, np.int32)})["y"]
        np.testing.assert_array_equal(found, np.stack([np.zeros(130), np.full(130, 2.0**24)]))


def test_narrow_types_are_rounded_once() -> None:
    module = GraphModule.mir("once")
    updates = module.input("updates", [300, 4], "bf16")
    module.set_outputs({"y": module.scatter_add(updates, np.zeros(300, np.int32), 1)})
    found = compile_fresh(module).run({"updates": np.ones((300, 4), BF16)})["y"]
    np.testing.assert_array_equal(found.astype(np.float32), 300)  # bf16 would stay at 256


@pytest.mark.parametrize("axis", [0, 1])
def test_on_gpus(axis: int) -> None:
    module = GraphModule.mir("gpu")
    updates = module.input("updates", [*[3][:axis], "n", 5])
    module.set_outputs({"y": module.scatter_add(updates, module.input("ids", ["n"], "i64"), 4, axis)})
    executable = compile_emulated(module)
    for count in (0, 1, 9):
        places = np.random.default_rng(count).integers(-1, 6, count)
        given = {"updates": normal(*[3][:axis], count, 5), "ids": places}
        np.testing.assert_allclose(executable.run(given)["y"], interpret(module, given)["y"], rtol=1e-5)


def test_builder() -> None:
    module = GraphModule.mir("built")
    x, ids = module.input("x", [2, 3, 4]), module.input("ids", [3], "i32")
    assert module.scatter_add(x, ids, 7, -2).shape == (2, 7, 4)
    assert module.scatter_add(x, ids, x, axis=1).shape == (2, 3, 4)
    for arguments, message in (
        ((x, ids, 7, 2), "'updates' to have the dimensions of 'indices'"),
        ((x, ids, -1, 1), "'size' that isn't negative"),
        ((x, ids, 1.5, 1), "'size' is an integer"),
        ((x, 3, 7, 1), "a Value or an array"),
    ):
        with pytest.raises(BuildError, match=message):
            module.scatter_add(*arguments)


def test_sizes_are_checked_when_it_runs() -> None:
    module = GraphModule.mir("sizes")
    updates = module.input("updates", ["n", 3])
    module.set_outputs({"y": module.scatter_add(updates, module.input("ids", ["m"], "i32"), 4)})
    given = {"updates": normal(3, 3), "ids": np.zeros(2, np.int32)}
    for run in (compile_fresh(module).run, lambda given: interpret(module, given)):
        with pytest.raises(InputError, match=r"mir\.scatter_add"):
            run(given)
