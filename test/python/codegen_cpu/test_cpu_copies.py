# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The generator for what moves whole runs of elements, against numpy, on all targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from covering import products
from cpu_harness import TARGETS, compiled

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.copies import UNIT, configure, emit_copies
from rlx_mlir.codegen.cpu.transpose import configure as configure_transpose
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs import MoveSpec
from rlx_mlir.dtypes import DTYPES

WORDS = ("f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64")
Dims = tuple[Any, ...]


def type_of(dims: Dims, dtype: str) -> str:
    return memref([None if isinstance(dim, str) else dim for dim in dims], dtype)


def array(dims: Dims, dtype: str, sizes: dict[str, int], seed: int = 0) -> np.ndarray:
    shape = [sizes.get(dim, dim) for dim in dims]
    return np.random.default_rng(seed).integers(0, 100, shape).astype(DTYPES[dtype])


def check(spec: MoveSpec, bits: int, given: Sequence[np.ndarray], wanted: np.ndarray) -> None:
    """Compares bits, whole and cut."""
    target = TARGETS[bits]
    assert configure("k", spec, target) is not None
    kernel = compiled("k", emit_copies("k", spec, target))
    wanted = np.ascontiguousarray(wanted)
    for cuts in (None, [1, 3]):
        (found,) = kernel(list(given), [wanted], cuts)
        assert found.tobytes() == wanted.tobytes(), ([x.shape for x in given], cuts)


#: Sizes of symbols: none, one, odd, vectors and their neighbours, and units and theirs.
SIZES = ((0, 3), (3, 0), (1, 1), (3, 7), (2, 16), (5, 33), (2, 65), (2, UNIT // 2 + 1), (UNIT // 4 + 1, 3))


@pytest.mark.parametrize(
    ("case", "dtype", "bits"),
    products(
        [
            (("a", "b"), 0, ("c", "b")),
            (("a", "b"), 1, ("a", 5)),
            (("a", 3, "b"), 1, ("a", 2, "b")),
            ((2, "b", 4), 1, (2, 3, 4)),
            ((3, 7), 1, (3, 1)),
            ((5, 2, 16), 1, (5, 2, 16)),
            ((1, 1 << 15), 0, (2, 1 << 15)),
        ],
        list(WORDS),
        sorted(TARGETS),
        meeting=1,
    ),
)
@pytest.mark.quick(7)
def test_joins(case: tuple[Any, ...], dtype: str, bits: int) -> None:
    """Two inputs, and the first again: units of each are its own."""
    x, axis, y = case
    is_dynamic = any(isinstance(dims[axis], str) for dims in (x, y))
    total = "d" if is_dynamic else 2 * x[axis] + y[axis]
    result = (*x[:axis], total, *x[axis + 1 :])
    spec = MoveSpec("concat", tuple(type_of(d, dtype) for d in (x, y, x)), type_of(result, dtype), (0, 1, 0), (), axis)
    for a, b in SIZES if any(isinstance(dim, str) for dim in x) else ((1, 1),):
        sizes = {"a": a, "b": b, "c": 2}
        given = [array(x, dtype, sizes, 1), array(y, dtype, sizes, 2)]
        check(spec, bits, given, np.concatenate([given[0], given[1], given[0]], axis))


@pytest.mark.parametrize(
    ("case", "dtype", "bits"),
    products(
        [
            (("a", 9, "b"), 1, 3, 4),
            (("a", 40), 1, 8, 16),
            (("a", 40), 1, 3, 33),
            (("a", 6), 1, 6, 0),
            ((7, "b"), 0, 2, 4),
            ((4, 3, 128), 1, 1, 2),
        ],
        list(WORDS),
        sorted(TARGETS),
        meeting=1,
    ),
)
@pytest.mark.quick(6)
def test_parts(case: tuple[Any, ...], dtype: str, bits: int) -> None:
    dims, axis, start, length = case
    result = (*dims[:axis], length, *dims[axis + 1 :])
    spec = MoveSpec("narrow", (type_of(dims, dtype),), type_of(result, dtype), (0,), (), axis, start, length)
    for a, b in SIZES if any(isinstance(dim, str) for dim in dims) else ((1, 1),):
        x = array(dims, dtype, {"a": a, "b": b})
        check(spec, bits, [x], np.take(x, range(start, start + length), axis))


@pytest.mark.parametrize(
    ("case", "dtype", "bits"),
    products(
        [
            ((2, "a", 3, "b"), (0, 2, 1, 3)),
            (("a", "b", 5), (1, 0, 2)),
            (("a", 1, "b"), (1, 0, 2)),
            (("a", 4, 3, 8), (2, 0, 1, 3)),
            ((3, 7, 2, 64), (2, 1, 0, 3)),
            (("a", 1), (1, 0)),
            ((3, 4), (0, 1)),
            ((), ()),
        ],
        list(WORDS),
        sorted(TARGETS),
        meeting=1,
    ),
)
@pytest.mark.quick(8)
def test_transposes_that_keep_the_last_axis(case: tuple[Any, ...], dtype: str, bits: int) -> None:
    """Or an axis of one element that is the last."""
    dims, permutation = case
    result = tuple(dims[axis] for axis in permutation)
    spec = MoveSpec("transpose", (type_of(dims, dtype),), type_of(result, dtype), (0,), tuple(permutation))
    assert configure_transpose("k", spec, TARGETS[bits]) is None
    for a, b in SIZES if any(isinstance(dim, str) for dim in dims) else ((1, 1),):
        x = array(dims, dtype, {"a": a, "b": b})
        check(spec, bits, [x], x.transpose(permutation))


@pytest.mark.parametrize(
    ("case", "dtype", "bits"),
    products(
        [
            (("a", 1), ("a", 33)),
            (("a", 1, "b"), ("a", 4, "b")),
            (("b",), (3, "b")),
            ((1,), (2, 65)),
            ((), (3, 5)),
            ((2, 1, 3, 1), (2, 5, 3, 16)),
        ],
        list(WORDS),
        sorted(TARGETS),
        meeting=1,
    ),
)
@pytest.mark.quick(6)
def test_repetitions(case: tuple[Any, ...], dtype: str, bits: int) -> None:
    dims, result = case
    spec = MoveSpec("expand", (type_of(dims, dtype),), type_of(result, dtype), (0,))
    for a, b in SIZES if any(isinstance(dim, str) for dim in dims) else ((1, 1),):
        sizes = {"a": a, "b": b}
        x = array(dims, dtype, sizes)
        check(spec, bits, [x], np.broadcast_to(x, [sizes.get(dim, dim) for dim in result]))


def test_what_it_leaves_to_others() -> None:
    target = TARGETS[512]
    turned = MoveSpec("transpose", (memref((3, 5), "f32"),), memref((5, 3), "f32"), (0,), (1, 0))
    assert configure("k", turned, target) is None
    of_bytes = MoveSpec("narrow", (memref((3, 5), "f8E5M2"),), memref((2, 5), "f8E5M2"), (0,), (), 0, 0, 2)
    with pytest.raises(UnsupportedByTemplate, match="k: copies of f8E5M2 have no template"):
        configure("k", of_bytes, target)
    unknown = MoveSpec("expand", (memref((None, 5), "f32"),), memref((2, 5), "f32"), (0,))
    with pytest.raises(UnsupportedByTemplate, match=r"k: whether memref<\?x5xf32> is repeated is known at calls alone"):
        configure("k", unknown, target)


def test_graphs_take_it() -> None:
    """Of a join, a part, and a transpose that keeps the last axis; all threads give the same bits."""
    m = GraphModule.mir("moves")
    x = m.input("x", ["n", 3, 40])
    m.set_outputs(
        {
            "joined": m.concat([x, x], axis=1),
            "part": m.narrow(x, axis=1, start=1, length=2),
            "turned": m.transpose(x, [1, 0, 2]),
        }
    )
    for threads in (1, 2):
        executable = rlx.compile(m, threads=threads)
        assert set(executable.artifact.templates.values()) == {"copies"}
        for n in (0, 1, 300):
            given = np.random.default_rng(n).standard_normal((n, 3, 40)).astype(np.float32)
            found = executable.run({"x": given})
            np.testing.assert_array_equal(found["joined"], np.concatenate([given, given], 1))
            np.testing.assert_array_equal(found["part"], given[:, 1:])
            np.testing.assert_array_equal(found["turned"], given.transpose(1, 0, 2))
