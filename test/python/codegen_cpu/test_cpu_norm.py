# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The generator for norms and softmax along another axis than the last, against the references, on all targets."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compile_harness import Program, check, compile_fresh, every, templates_of
from covering import products
from cpu_harness import TARGETS, Kernel, compiled

from rlx_mlir import Executable, GraphModule
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.cpu.norm import FEWEST, SHORT, configure_norm, emit_norm
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.specs import NormSpec
from rlx_mlir.mir import REFERENCES
from rlx_mlir.tuning.cpu import Choices

DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
TOLERANCES = {"f32": 4e-6, "f16": 1e-3, "bf16": 8e-3}
OPS = ("softmax", "rms_norm", "layer_norm")
EPS = 1e-3
Dims = tuple[int | None, ...]


def spec_of(op: str, dims: Dims, axis: int, dtype: str = "f32", factors: int = 2) -> NormSpec:
    count = 0 if op == "softmax" else factors
    vectors = (memref((dims[axis],), dtype),) * count
    return NormSpec(op, memref(dims, dtype), vectors, axis, EPS, tuple(range(1 + count)))


def kernel_of(spec: NormSpec, target: Target) -> Kernel:
    return compiled("k", emit_norm("k", configure_norm("k", spec, target), target))


def operands(spec: NormSpec, shape: tuple[int, ...], dtype: str) -> list[np.ndarray]:
    rng = np.random.default_rng([*shape, len(spec.factors)])
    x = (rng.standard_normal(shape) * 3 + 1).astype(DTYPES[dtype])
    return [x, *(rng.standard_normal(shape[spec.axis]).astype(DTYPES[dtype]) for _ in spec.factors)]


def reference(spec: NormSpec, x: np.ndarray, *factors: np.ndarray) -> np.ndarray:
    """In f64."""
    attributes: dict[str, Any] = {} if spec.op == "softmax" else {"eps": spec.eps}
    wide = [array.astype(np.float64) for array in (x, *factors)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result: np.ndarray = REFERENCES[f"mir.{spec.op}"](*wide, axis=spec.axis, **attributes)
    return result


def verify(spec: NormSpec, shape: tuple[int, ...], dtype: str, target: Target) -> None:
    """Compares with the reference, and a run in one piece with a run in many."""
    kernel, given = kernel_of(spec, target), operands(spec, shape, dtype)
    result = [np.empty(shape, DTYPES[dtype])]
    (found,) = kernel(given, result)
    want, tolerance = reference(spec, *given), TOLERANCES[dtype]
    np.testing.assert_allclose(found.astype(np.float64), want, rtol=tolerance, atol=tolerance)
    (pieces,) = kernel(given, result, range(60))
    assert pieces.tobytes() == found.tobytes(), "the result depends on how units are cut"


#: Leading dimensions, the last one as (vectors, columns more), and the axis: columns of less than a vector, of one, of
#: one more and one less, of several units, with rests.
CASES: list[tuple[tuple[int, ...], tuple[int, int], int]] = [
    ((5,), (0, FEWEST), 0),
    ((2, 3), (1, 0), 1),
    ((2, 3), (1, -1), 1),
    ((1, 40), (1, 1), 1),
    ((2, 33, 3), (1, 0), 1),
    ((3, 7), (5, -1), 1),
    ((1, 1), (9, 3), 0),
    ((100, 1), (40, 5), 0),
    ((2, 70, 3, 4), (0, 5), 2),
    ((333,), (33, 0), 0),
]


@pytest.mark.parametrize(("case", "op", "bits"), products(CASES, OPS, sorted(TARGETS), meeting=2))
@pytest.mark.quick(3)
def test_sizes(case: tuple[tuple[int, ...], tuple[int, int], int], op: str, bits: int) -> None:
    """Columns of any number, where types say it and where they don't."""
    leading, (vectors, more), axis = case
    target = TARGETS[bits]
    shape = (*leading, max(FEWEST, vectors * target.lanes("f32") + more))
    for dims in (shape, (None,) * len(shape)):
        verify(spec_of(op, dims, axis), shape, "f32", target)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("op", "bits"), list(itertools.product(OPS, sorted(TARGETS))))
@pytest.mark.quick(2)
def test_halves(op: str, bits: int, dtype: str) -> None:
    verify(spec_of(op, (3, 6, 67), 1, dtype, factors=1), (3, 6, 67), dtype, TARGETS[bits])
    for shape in ((2, 19, 24), (1, 50, 5), (3, 6, 67)):
        verify(spec_of(op, (None, None, None), 1, dtype), shape, dtype, TARGETS[bits])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (2, 5, 2)])
@pytest.mark.quick(2)
def test_small_dynamic_sizes(op: str, shape: tuple[int, ...]) -> None:
    """Nothing at all, and fewer columns than types that say them are taken with."""
    for bits in TARGETS:
        verify(spec_of(op, (None, None, None), 1), shape, "f32", TARGETS[bits])


def test_results_do_not_depend_on_what_types_say() -> None:
    """Nor on the vectors of a unit, or on what stands beside a column."""
    target, shape = TARGETS[256], (2, 45, 150)
    for op in OPS:
        given = operands(spec_of(op, shape, 1), shape, "f32")
        result = [np.empty(shape, np.float32)]
        found = set()
        for vectors, dims in (
            (None, shape),
            (None, (None, None, None)),
            (1, shape),
            (3, shape),
            (3, (None, None, None)),
        ):
            own = target if vectors is None else replace(target, choices=Choices({"column_vectors": vectors}))
            found.add(kernel_of(spec_of(op, dims, 1), own)(given, result)[0].tobytes())
        assert len(found) == 1
        part = [np.ascontiguousarray(given[0][:, :, 3:80]), *given[1:]]
        (alone,) = kernel_of(spec_of(op, (None, None, None), 1), target)(part, [np.empty((2, 45, 77), np.float32)])
        whole = np.frombuffer(found.pop(), np.float32).reshape(shape)
        assert alone.tobytes() == np.ascontiguousarray(whole[:, :, 3:80]).tobytes()


def test_what_is_not_finite_stays_in_its_column() -> None:
    """As the formula says: NaN and +inf make a softmax NaN, as do columns of -inf alone; -inf among others is 0."""
    shape = (40, 24)
    for op in OPS:
        spec = spec_of(op, shape, 0)
        x, *factors = operands(spec, shape, "f32")
        x[3, 1], x[5, 4], x[7, 20], x[:, 9], x[2, 12] = np.nan, np.inf, -np.inf, -np.inf, 3e38
        (found,) = kernel_of(spec, TARGETS[256])([x, *factors], [np.empty(shape, np.float32)])
        want = REFERENCES[f"mir.{op}"](x, *factors, axis=0, **({} if op == "softmax" else {"eps": EPS}))
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
        finite = [1, 4, 9] if op == "softmax" else [1, 4, 9, 20]
        assert np.isnan(found[:, finite]).any(axis=0).all()


def test_a_large_offset_keeps_its_digits() -> None:
    x = np.random.default_rng(0).standard_normal((640, 8)).astype(np.float32) + 4096
    spec = spec_of("layer_norm", x.shape, 0, factors=1)
    gamma = np.ones(640, np.float32)
    (found,) = kernel_of(spec, TARGETS[256])([x, gamma], [np.empty_like(x)])
    # A variance as a difference of two large numbers would have no digits, a mean alone those of a sum in f32.
    np.testing.assert_allclose(found, reference(spec, x, gamma), atol=1e-5)


@pytest.mark.parametrize("length", [7, 112])
def test_constant_columns_are_zero(length: int) -> None:
    x = np.full((length, 8), 60001.3, np.float32)
    spec = spec_of("layer_norm", x.shape, 0, factors=1)
    (found,) = kernel_of(spec, TARGETS[256])([x, np.ones(length, np.float32)], [np.empty_like(x)])
    np.testing.assert_array_equal(found, 0)


def test_errors_do_not_grow_with_the_length() -> None:
    """A sum of equal numbers, one after the other, would lose most of their digits."""
    x = np.zeros((1 << 20, 4), np.float32)
    spec = spec_of("softmax", x.shape, 0)
    x[0] = 13.0
    (found,) = kernel_of(spec, TARGETS[256])([x], [np.empty_like(x)])
    np.testing.assert_allclose(found, reference(spec, x), rtol=8 * 2.0**-24)


def test_what_is_declined() -> None:
    target = TARGETS[256]
    for spec, message in (
        (spec_of("softmax", (4, 4), 0, "f64"), "softmax of f64 has no template"),
        (spec_of("softmax", (8, 16, FEWEST - 1), 1), "at least 4 elements for each position along axis 1, but memref"),
        (spec_of("rms_norm", (8, None), 1), "but memref<8x.xf32> has 1"),
        (spec_of("layer_norm", (None, 8, 1, 1), 1), "but memref<.x8x1x1xf32> has 1"),
    ):
        with pytest.raises(UnsupportedByTemplate, match=message):
            configure_norm("k", spec, target)


def test_how_columns_are_cut() -> None:
    """Few vectors are left over; a softmax of few columns has units for threads; short columns fetch the next unit."""
    target = TARGETS[256]
    for op, dims, axis, vectors in (
        ("softmax", (8, 512, 64), 1, 8),
        ("softmax", (1, 3000, 128), 1, 4),
        ("rms_norm", (1, 3000, 128), 1, 16),
        ("rms_norm", (2, 10, 8 * 23), 1, 11),
        ("layer_norm", (None, None, None), 1, 8),
        ("softmax", (3, 5, 6), 1, 1),
    ):
        assert configure_norm("k", spec_of(op, dims, axis), target).vectors == vectors
    for length, inner, ahead in ((SHORT, 4096, True), (SHORT, None, True), (SHORT + 1, 4096, False), (8, 64, False)):
        config = configure_norm("k", spec_of("rms_norm", (length, inner), 0), target)
        assert config.ahead == ahead
        assert ("memref.prefetch" in emit_norm("k", config, target)) == ahead


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_modules(dtype: str) -> None:
    """Each way to run it, with dynamic sizes, agrees with the interpreter."""
    p = Program()
    x, gamma = p.input("x", ["b", 12, "n"], dtype), p.param("gamma", [12], dtype)
    p.output(
        soft=p.m.softmax(x, axis=0),
        norm=p.m.relu(p.m.layer_norm(x, gamma, axis=1)),
        rms=p.m.rms_norm(p.m.neg(x), gamma, axis=-2),
    )
    ways = check(p, every(b=[0, 1, 9], n=[1, 8, 19]))
    assert list(templates_of(ways.templates).values()).count("norm") == 3


@pytest.mark.parametrize("op", OPS)
@pytest.mark.quick(2)
def test_bits_do_not_depend_on_threads(op: str) -> None:
    p = Program("mir")
    x, vectors = p.input("x", ["b", 35, "n"], "bf16"), [p.param(name, [35], "bf16") for name in ("gamma", "beta")]
    p.output(y=p.m.softmax(x, axis=1) if op == "softmax" else getattr(p.m.primitives, op)(x, *vectors, axis=1))
    artifact = compile_fresh(p.finish()).artifact
    assert list(artifact.templates.values()) == ["norm"]
    # Calls of little work stay on one thread: here they have a lot of it.
    artifact = replace(artifact, calls=tuple((*call[:3], [(10**12, [])]) for call in artifact.calls))
    inputs, params = p.values({"b": 3, "n": 301})
    found = set()
    for threads in (1, 2, 3, 5):
        executable = Executable(artifact, threads=threads)
        executable.set_params(params)
        found.add(executable.run(inputs)["y"].tobytes())
    assert len(found) == 1


def test_kernels_are_verified_numerically() -> None:
    m = GraphModule.mir("m")
    x, gamma = m.input("x", [3, 33, 20]), m.param("gamma", [33])
    m.set_outputs({"soft": m.softmax(x, axis=1), "norm": m.layer_norm(x, gamma, axis=1), "last": m.softmax(x)})
    made = compile_fresh(m, verify="numeric")
    assert templates_of(made) == {"softmax_0": "norm", "layer_norm_0": "norm", "softmax_1": "rows"}


def test_the_reasons_are_reported() -> None:
    m = GraphModule.mir("m")
    x = m.input("x", [3, 33, 2])
    m.set_outputs({"y": m.softmax(x, axis=1), "z": m.softmax(m.input("z", [3, "n"]), axis=-1)})
    rows = {row.name: row for row in compile_fresh(m).dispatch_report().kernels}
    for name, count in (("softmax_0", 2), ("softmax_1", 1)):
        assert rows[name].template == "generic"
        assert f"at least {FEWEST} elements for each position along axis 1" in rows[name].reason
        assert rows[name].reason.endswith(f"has {count}")
    assert math.isclose(sum(row.work for row in rows.values()), 1)
