# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Slices, sizes as numbers and expansion to symbols: whatever the sizes are, as numpy has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compile_harness import compare, compile_fresh
from cuda_harness import emulated_device
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.errors import BuildError, InputError
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.shape import slice_sizes

bounds = st.one_of(st.none(), st.integers(-12, 12))
steps = st.integers(-4, 4).filter(bool)

#: Slices of a dimension as numpy writes them.
SLICES = [
    np.s_[1:],
    np.s_[:-1],
    np.s_[::2],
    np.s_[1::3],
    np.s_[-3:],
    np.s_[-5:-2],
    np.s_[::-1],
    np.s_[4:1:-2],
    np.s_[-2::-3],
    np.s_[100:],
    np.s_[2:-4],
]
SIZES = (0, 1, 2, 5, 17, 300)


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def sliced(key: Any, dtype: str = "f32") -> GraphModule:
    m = GraphModule.mir("sliced")
    x = m.input("x", ["b", "s", 5], dtype)
    m.set_outputs({"y": x[:, key]})
    return m


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 9), bounds, bounds, steps)
def test_sizes_of_slices(size: int, start: int | None, stop: int | None, step: int) -> None:
    wanted = range(size)[start:stop:step]
    given = [None if bound is None else Size.of(bound) for bound in (start, stop)]
    first, count = slice_sizes(Size.of("n"), *given, step)
    assert count.evaluate({"n": size}) == len(wanted)
    assert not wanted or first.evaluate({"n": size}) == wanted[0]
    assert slice_sizes(Size.of(size), *given, step)[1].constant == len(wanted)


@settings(max_examples=60, deadline=None)  # each is a module
@given(st.integers(0, 9), bounds, bounds, steps)
def test_shapes_of_slices(size: int, start: int | None, stop: int | None, step: int) -> None:
    m = GraphModule.mir("static")
    assert m.slice(m.input("x", [size, 2]), 0, start, stop, step).shape == (len(range(size)[start:stop:step]), 2)


@pytest.mark.parametrize("key", SLICES, ids=str)
@pytest.mark.quick(5)
def test_slices_of_open_sizes(key: slice) -> None:
    m = sliced(key)
    compiled = compile_fresh(m, maxima={"b": 3, "s": 300})
    for size in SIZES:
        x = array(3 if size < 100 else 1, size, 5)
        for found in (compiled.run({"x": x})["y"], interpret(m, {"x": x})["y"]):
            np.testing.assert_array_equal(found, x[:, key])


@pytest.mark.parametrize("size", SIZES)
def test_slices_of_sizes_that_are_given(size: int) -> None:
    x = array(2, size, 5)
    m = GraphModule.mir("given")
    value = m.input("x", [2, size, 5])
    m.set_outputs({str(number): value[:, key] for number, key in enumerate(SLICES)})
    found = compile_fresh(m).run({"x": x})
    for number, key in enumerate(SLICES):
        np.testing.assert_array_equal(found[str(number)], x[:, key])


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64", "i8", "i64", "i1"])
def test_slices_of_all_types(dtype: str) -> None:
    m = sliced(np.s_[-2::-2], dtype)
    x = (array(2, 9, 5) * 3).astype(rlx.dtypes.DTYPES[dtype])
    np.testing.assert_array_equal(compile_fresh(m).run({"x": x})["y"], x[:, -2::-2])


def test_last_elements() -> None:
    m = GraphModule.mir("last")
    x = m.input("x", ["b", "s", 5])
    m.set_outputs({"last": x[:, -1], "before": x[:, -2]})
    assert x[:, -1].shape == ("b", 5)
    compiled = compile_fresh(m)
    for size in (2, 3, 40):
        given = array(2, size, 5)
        for found in (compiled.run({"x": given}), interpret(m, {"x": given})):
            np.testing.assert_array_equal(found["last"], given[:, -1])
            np.testing.assert_array_equal(found["before"], given[:, -2])
    for run in (compiled.run, lambda inputs: interpret(m, inputs)):
        with pytest.raises(InputError, match=r"'mir.slice'.* 0 and 1 were given: 's' is 1|takes 0 elements, but 'l"):
            run({"x": array(2, 1, 5)})


def test_neighbours_meet() -> None:
    """Slices of one size are of one size: nothing is checked, and nothing is refused."""
    m = GraphModule.mir("differences")
    x = m.input("x", ["s", 4])
    assert x[1:][:-1].shape == x[:-1][1:].shape == m.slice(x, 0, 2).shape == ("max(-2 + s, 0)", 4)
    m.set_outputs({"y": x[1:] - x[:-1], "z": m.sum(x[::2], 0) + m.sum(x[1::2], 0)})
    compiled = compile_fresh(m, verify="numeric")
    assert not compiled.artifact.conditions
    for size in (1, 2, 33):
        given = array(size, 4)
        found = compiled.run({"x": given})
        np.testing.assert_array_equal(found["y"], np.diff(given, axis=0))
        np.testing.assert_allclose(found["z"], given.sum(0), rtol=1e-5, atol=1e-6)


def test_sizes_as_numbers() -> None:
    m = GraphModule.mir("mean")
    x = m.input("x", ["s", 4])
    total = m.sum(x, 0)
    m.set_outputs({"mean": total / m.dim(x, 0, "f32"), "n": m.dim(x, -2), "half": m.dim(x[::2], 0, "i32")})
    compiled = compile_fresh(m, verify="numeric")
    for size in (1, 7, 500):
        given = array(size, 4)
        for found in (compiled.run({"x": given}), interpret(m, {"x": given})):
            np.testing.assert_allclose(found["mean"], given.mean(0), rtol=1e-4, atol=1e-6)
            assert found["n"] == size
            assert found["n"].dtype == np.int64
            assert found["half"] == (size + 1) // 2
            assert found["half"].dtype == np.int32


def test_expansion_to_symbols() -> None:
    m = GraphModule.mir("expanded")
    x, ids = m.input("x", ["s", 4]), m.input("ids", ["b"], "i32")
    w, second = m.param("w", [1, 4]), x[::2]
    m.set_outputs({
        "rows": m.expand(w, ["b", 4]),
        "both": m.expand(w, ["b", "s", 4]),
        "every second": m.expand(w, ["ceildiv(s, 2)", 4]) + second,
        "own": m.expand(x, ["b", "s", 4]),
        "ids": m.cast(ids, "f32"),
    })  # fmt: skip
    compiled = compile_fresh(m, verify="numeric")
    weight = array(1, 4)
    compiled.set_params({"w": weight})
    for b, s in ((0, 3), (2, 0), (3, 1), (2, 9)):
        inputs = {"x": array(s, 4), "ids": np.arange(b, dtype=np.int32)}
        for found in (compiled.run(inputs), interpret(m, inputs | {"w": weight})):
            np.testing.assert_array_equal(found["rows"], np.broadcast_to(weight, (b, 4)))
            np.testing.assert_array_equal(found["both"], np.broadcast_to(weight, (b, s, 4)))
            np.testing.assert_array_equal(found["every second"], weight + inputs["x"][::2])
            np.testing.assert_array_equal(found["own"], np.broadcast_to(inputs["x"], (b, s, 4)))


def test_sizes_are_bound() -> None:
    m = GraphModule.mir("bound")
    x = m.input("x", ["s", 4])
    m.set_outputs({"y": m.expand(m.param("w", [1, 4]), ["s", 4])[1::2] + x[1::2], "n": m.dim(x, 0)})
    bound = m.bind(s=7)
    assert bound.outputs["y"].shape == (3, 4)
    inputs = {"x": array(7, 4), "w": array(1, 4)}
    np.testing.assert_array_equal(interpret(bound, inputs)["y"], interpret(m, inputs)["y"])


def test_open_sizes_on_gpus() -> None:
    """By the generic path, and by schedules of what reads the results; run by the emulator of PTX."""
    m = GraphModule.mir("on_gpus")
    x, w = m.input("x", ["b", "s", 12]), m.param("w", [1, 12])
    part = m.silu(x[:, 1::2])
    m.set_outputs({
        "part": part,
        "turned": x[:, ::-1],
        "last": x[:, -1],
        "sum": part + m.expand(w, ["floordiv(s, 2)", 12]),
        "n": m.dim(part, 1, "i32"),
    })  # fmt: skip
    weights = {"w": array(1, 12)}
    failures: list[str] = []
    with emulated_device("sm_80") as cuda:
        executable = rlx.compile(m, target="cuda", chip="sm_80", cache=False)
        executable.set_params(weights)
        for b, s in ((0, 4), (1, 1), (2, 9)):
            inputs = {"x": array(b, s, 12)}
            failures += compare(interpret(m, {**inputs, **weights}), executable.run(inputs), f"{b}, {s}")
        assert not cuda.errors
        del executable
    assert not failures, "\n".join(failures)


def test_convolutions_of_dynamic_images() -> None:
    """Strides, paddings and dilations of dimensions that are symbols: one executable for all sizes."""
    m = GraphModule.mir("conv_of_any_size")
    x, weight = m.input("x", ["n", 3, "h", "w"]), m.param("weight", [8, 3, 3, 2])
    m.set_outputs({
        "strided": m.conv2d(x, weight, stride=2, padding=1),
        "uneven": m.conv2d(x, weight, stride=(1, 3), padding=(0, 2), dilation=(2, 1)),
    })  # fmt: skip
    weights = {"weight": array(8, 3, 3, 2)}
    executable = rlx.compile(m, cache=False, threads=2)
    executable.set_params(weights)
    failures: list[str] = []
    for n, h, w in ((0, 5, 6), (1, 5, 6), (2, 9, 4), (1, 33, 40)):
        inputs = {"x": array(n, 3, h, w)}
        failures += compare(interpret(m, {**inputs, **weights}), executable.run(inputs), f"{n}, {h}, {w}")
    assert not failures, "\n".join(failures)


@pytest.mark.wide
def test_convolutions_on_gpus() -> None:
    m = GraphModule.mir("conv_on_gpus")
    x = m.input("x", ["n", 3, "h", "w"])
    m.set_outputs({"y": m.conv2d(x, m.param("weight", [8, 3, 3, 3]), stride=2, padding=1)})
    weights = {"weight": array(8, 3, 3, 3)}
    failures: list[str] = []
    with emulated_device("sm_80") as cuda:
        executable = rlx.compile(m, target="cuda", chip="sm_80", cache=False)
        executable.set_params(weights)
        for n, h, w in ((1, 5, 6), (2, 9, 4)):
            inputs = {"x": array(n, 3, h, w)}
            failures += compare(interpret(m, {**inputs, **weights}), executable.run(inputs), f"{n}, {h}, {w}")
        assert not cuda.errors
        del executable
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m, x: x[:, ::0], "a slice has numbers or sizes, and a step that isn't 0"),
        (
            lambda m, x: x["a":],
            "'mir.slice' takes 'a' where a value has a dimension of that size, but no value has one",
        ),
        (lambda m, x: x["s +":], "'index': in the size 's "),
        (lambda m, x: x[1.5:], "a slice has numbers or sizes"),
        (lambda m, x: m.slice(x, 0, length=-1), "expects 'length' not to be negative, but got -1"),
        (lambda m, x: m.slice(x, 1, 1, length=4), "expects 'length' to be the number of elements of the slice, 3"),
        (lambda m, x: m.slice(x, 2), "axis"),
        (lambda m, x: m.dim(x, 0, "complex"), "'mir.dim': "),
        (lambda m, x: m.expand(x, ["t", 4]), "takes 't' where a value has a dimension of that size, but x is"),
        (lambda m, x: m.expand(x, ["s +", 4]), "'mir.expand': in the size 's "),
    ],
)
def test_what_cannot_be_built(build: Any, message: str) -> None:
    m = GraphModule.mir("wrong")
    with pytest.raises(BuildError, match=message):
        build(m, m.input("x", ["s", 4]))
