# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The generator for reductions along neighbouring dimensions, against the reference, on all targets."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import compile_fresh, templates_of
from cpu_harness import TARGETS, compiled

from rlx_mlir import GraphModule, interpret
from rlx_mlir.codegen.cpu import UnsupportedByTemplate, reduce
from rlx_mlir.codegen.cpu.norm import FEWEST
from rlx_mlir.codegen.cpu.reduce import GENERATORS, LONG_ROW, ROW_PART, SHORTEST, configure_reduce, emit_reduce
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs import ReduceSpec
from rlx_mlir.mir import REFERENCES

FLOATS: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64}
INTEGERS: dict[str, Any] = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
DTYPES = {**FLOATS, **INTEGERS}
TOLERANCES = {"f32": 4e-6, "f16": 1e-3, "bf16": 8e-3, "f64": 1e-13}
KINDS = ("sum", "mean", "max", "min", "prod")

#: Shapes and axes: columns of less than a vector, of one, one more and one less, of several units, with rests; rows
#: that are short, of whole vectors and with rests; everything, more dimensions than one, and sizes of 1 between them.
CASES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((5, FEWEST), (0,)),
    ((2, 3, 15), (1,)),
    ((2, 3, 16), (1,)),
    ((2, 3, 17), (1,)),
    ((1, 40, 3, 100), (1,)),
    ((100, 1, 1300), (0,)),
    ((2, 7, 5, 67), (1, 2)),
    ((33, 1, 2, 8), (0, 2)),
    ((3, SHORTEST), (1,)),
    ((5, 15), (1,)),
    ((5, 16), (1,)),
    ((5, 17), (1,)),
    ((2, 3, 127), (2,)),
    ((3, 129, 1), (1,)),
    ((3, 4, 2000), (1, 2)),
    ((9999,), (0,)),
    ((1, 70000), (0, 1)),
]


def drawn(shape: tuple[int, ...], dtype: str, kind: str) -> np.ndarray:
    rng = np.random.default_rng([*shape, len(kind)])
    if dtype in INTEGERS:
        info = np.iinfo(DTYPES[dtype])
        return rng.integers(info.min, info.max, shape, DTYPES[dtype], endpoint=True)
    x = rng.standard_normal(shape)
    return (np.exp(x / 100) if kind == "prod" else x).astype(DTYPES[dtype])


def run(x: np.ndarray, spec: ReduceSpec, target: Target, shape: tuple[int, ...]) -> np.ndarray:
    """The template's result, which is the same however units are cut."""
    kernel = compiled("k", emit_reduce("k", configure_reduce("k", spec, target), target))
    result = [np.empty(shape, x.dtype)]
    (found,) = kernel([x], result)
    assert kernel([x], result, range(40))[0].tobytes() == found.tobytes(), "the result depends on how units are cut"
    return found


def verify(
    shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, kind: str, target: Target, *, dynamic: bool
) -> None:
    x = drawn(shape, dtype, kind)
    with np.errstate(all="ignore"):
        want = REFERENCES["mir.reduce"](x.astype(np.float64) if dtype in FLOATS else x, kind=kind, axes=axes)
    dims = [None if dynamic and size != 1 else size for size in shape]
    kept = [size for axis, size in enumerate(dims) if axis not in axes]
    found = run(x, ReduceSpec(memref(dims, dtype), memref(kept, dtype), kind, axes), target, want.shape)
    if dtype in INTEGERS or kind in ("max", "min"):
        np.testing.assert_array_equal(found.astype(want.dtype), want)
        return
    tolerance = TOLERANCES[dtype]
    scale = np.abs(x.astype(np.float64)).sum(axes) if kind == "sum" else 1.0
    np.testing.assert_array_less(np.abs(found - want), tolerance * (np.abs(want) + np.minimum(scale, 1e3)) + 1e-300)


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.quick(8)
def test_sizes(case: tuple[tuple[int, ...], tuple[int, ...]], bits: int) -> None:
    """Of any number, where types say it and where they don't."""
    for kind, dynamic in itertools.product(("sum", "max"), (False, True)):
        verify(*case, "f32", kind, TARGETS[bits], dynamic=dynamic)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.quick(8)
def test_types(dtype: str, bits: int) -> None:
    """Each kind, of rows and of columns."""
    for kind in KINDS:
        if kind == "mean" and dtype in INTEGERS:
            continue
        for shape, axes in (((3, 45, 21), (1,)), ((4, 77), (1,))):
            verify(shape, axes, dtype, kind, TARGETS[bits], dynamic=False)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i64"])
@pytest.mark.parametrize("rest", [0, 77])
def test_long_rows_are_cut(dtype: str, rest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of rows are joined whatever they are cut into; shorter rows, and many of them, stay whole."""
    monkeypatch.setattr(reduce, "ROW_PART", 1 << 10)
    monkeypatch.setattr(reduce, "LONG_ROW", 5 << 10)
    length = (5 << 10) // np.dtype(DTYPES[dtype]).itemsize + rest
    for kind, target in itertools.product(KINDS, TARGETS.values()):
        if kind == "mean" and dtype in INTEGERS:
            continue
        forms = [
            configure_reduce("k", ReduceSpec(memref(shape, dtype), memref(shape[:1], dtype), kind, (1,)), target).form
            for shape in ((3, length), (3, length - rest - 1), (9, length), (None, length), (3, None))
        ]
        assert forms == ["long rows", "rows", "rows", "rows", "rows"]
        verify((3, length), (1,), dtype, kind, target, dynamic=False)
    verify((length,), (0,), dtype, "sum", TARGETS[256], dynamic=False)


def test_nan_and_infinities_in_parts_of_rows() -> None:
    length = LONG_ROW // 4 + 3
    x = np.zeros((4, length), np.float32)
    x[0, 5], x[1, -1], x[2, ROW_PART // 2], x[3, 9] = np.nan, np.nan, np.inf, -np.inf
    for kind in ("sum", "max", "min"):
        spec = ReduceSpec(memref(x.shape, "f32"), memref((4,), "f32"), kind, (1,))
        want = REFERENCES["mir.reduce"](x, kind=kind, axes=(1,))
        np.testing.assert_array_equal(run(x, spec, TARGETS[512], want.shape), want)


def test_a_long_row_is_the_same_for_any_number_of_threads() -> None:
    length = LONG_ROW // 4 + 1
    m = GraphModule.mir("m")
    x = m.input("x", [1, length], "f32")
    m.set_outputs({"sum": m.reduce(x, "sum", 1), "largest": m.reduce(x, "max", 1)})
    given = {"x": np.random.default_rng(0).standard_normal((1, length), np.float32)}
    one, *others = (compile_fresh(m, threads=threads).run(given) for threads in (1, 2, 3))
    np.testing.assert_allclose(one["sum"], given["x"].astype(np.float64).sum(1), rtol=1e-6)
    assert one["largest"] == given["x"].max()
    assert all(other[name].tobytes() == one[name].tobytes() for other in others for name in one)


@pytest.mark.parametrize("shape", [(0, 9, 8), (2, 0, 8), (2, 9, 0), (1, 1, 1), (2, 5, 3)])
def test_small_dynamic_sizes(shape: tuple[int, ...]) -> None:
    """Nothing at all, and less than what types that say it are taken with."""
    dims = (None, None, None)
    for axes, kind in itertools.product(((1,), (2,), (0, 1, 2)), KINDS):
        x = drawn(shape, "f32", kind)
        with np.errstate(all="ignore"):
            want = REFERENCES["mir.reduce"](x, kind=kind, axes=axes)
        spec = ReduceSpec(memref(dims, "f32"), memref((None,) * (3 - len(axes)), "f32"), kind, axes)
        np.testing.assert_allclose(run(x, spec, TARGETS[256], want.shape), want, rtol=1e-6, atol=1e-6)


def test_nan_stays_and_infinities_are_no_nan() -> None:
    x = np.zeros((2, 200), np.float32)
    x[0, 190], x[1, 5] = np.nan, np.inf
    for axes, kind in itertools.product(((0,), (1,)), ("sum", "max", "min")):
        kept = [size for axis, size in enumerate(x.shape) if axis not in axes]
        spec = ReduceSpec(memref(x.shape, "f32"), memref(kept, "f32"), kind, axes)
        want = REFERENCES["mir.reduce"](x, kind=kind, axes=axes)
        np.testing.assert_array_equal(run(x, spec, TARGETS[512], want.shape), want)


def test_errors_of_sums_do_not_grow_with_their_length() -> None:
    """A million equal numbers, which plain sums would be far off of, in rows and in columns."""
    for shape, axes in (((1 << 20,), (0,)), ((1 << 20, 4), (0,))):
        x = np.full(shape, 0.1, np.float32)
        spec = ReduceSpec(memref(shape, "f32"), memref(shape[1:], "f32"), "sum", axes)
        found = run(x, spec, TARGETS[256], shape[1:])
        np.testing.assert_allclose(found, x.astype(np.float64).sum(axes), rtol=1e-6)


@pytest.mark.parametrize(
    ("x", "axes", "message"),
    [
        ("memref<4x9xi1>", (1,), "reductions of i1"),
        ("memref<4x9x8xf32>", (0, 2), "dimension 1 lies between"),
        ("memref<4x7xf32>", (1,), "rows of 7 elements"),
        ("memref<4x9x3xf32>", (1,), "3 elements of"),
        ("memref<1x9xf32>", (0,), "no dimension of"),
    ],
)
def test_what_has_no_template(x: str, axes: tuple[int, ...], message: str) -> None:
    (generator,) = GENERATORS
    with pytest.raises(UnsupportedByTemplate, match=message):
        generator.configure("r", ReduceSpec(x, "memref<4xf32>", "max", axes), TARGETS[256])


@pytest.mark.parametrize("dtype", ["f32", pytest.param("bf16", marks=pytest.mark.slow)])
def test_graphs(dtype: str) -> None:
    """Kernels of any size up to the maxima; threads change no bit."""
    m = GraphModule.mir("m")
    x = m.input("x", ["n", 40, "w"], dtype)
    m.set_outputs({"first": m.reduce(x, "sum", 0), "middle": m.reduce(x, "max", 1), "last": m.reduce(x, "mean", 2)})
    one, two = (compile_fresh(m, maxima={"n": 9, "w": 300}, threads=threads) for threads in (1, 2))
    assert set(templates_of(one).values()) == {"reduce"}
    for n, w in ((9, 300), (1, 1), (0, 3), (3, 0), (5, 33)):
        given = {"x": np.random.default_rng(0).standard_normal((n, 40, w)).astype(DTYPES[dtype])}
        with np.errstate(all="ignore"):
            wanted = interpret(m, given)
        found, again = one.run(given), two.run(given)
        for name, want in wanted.items():
            tolerance = 8e-3 if dtype == "bf16" else 1e-5
            np.testing.assert_allclose(
                found[name].astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
            )
            assert again[name].tobytes() == found[name].tobytes()
