# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions of 3 x 3 by Winograd's F(2 x 2, 3 x 3): numbers, errors, what isn't finite, and which take it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from compile_harness import compile_fresh
from cpu_harness import TARGETS, compiled
from test_cpu_conv2d import counts, expected
from test_cpu_conv2d_panels import AFTER

from rlx_mlir import Executable, GraphModule, interpret
from rlx_mlir.codegen.cpu.conv2d import OUTPUTS
from rlx_mlir.codegen.cpu.conv2d_panels import emit_conv2d_panels
from rlx_mlir.codegen.cpu.conv2d_winograd import FEWEST, SEEN, SQUARES, emit_conv2d_winograd
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.program import IDENTITY
from rlx_mlir.codegen.specs import Conv2dSpec

#: Sizes of the image and of the kernels, and the padding.
CASES: dict[str, tuple[Any, ...]] = {
    "even": ((2, 5, 8, 14), (32, 5, 3, 3), (1, 1)),
    "odd": ((2, 17, 9, 13), (48, 17, 3, 3), (1, 1)),
    "no border": ((1, 4, 6, 5), (16, 4, 3, 3), (0, 0)),
    "parts of rows": ((1, 3, 5, 2 * SQUARES + 7), (32, 3, 3, 3), (1, 1)),
    "blocks of outputs": ((1, 3, 7, 7), (OUTPUTS + 16, 3, 3, 3), (1, 1)),
    "many channels": ((1, SEEN // 16 // FEWEST + 1, 9, 9), (16, SEEN // 16 // FEWEST + 1, 3, 3), (1, 1)),
    "all border": ((1, 4, 1, 1), (16, 4, 3, 3), (4, 3)),
    "one place": ((3, 4, 3, 3), (16, 4, 3, 3), (0, 0)),
    "no place": ((1, 4, 2, 9), (16, 4, 3, 3), (0, 0)),
    "no image": ((0, 4, 5, 5), (16, 4, 3, 3), (1, 1)),
}
#: Each of a word's rows gives a number of what three weights become.
TRANSFORM = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])


def attributes(case: Sequence[Any]) -> tuple[Any, ...]:
    """The same with stride, dilation and groups."""
    return (*case[:2], (1, 1), case[2], (1, 1), 1)


def packed(weight: np.ndarray) -> np.ndarray:
    """What kernels read: panels of the weights, and behind them of their transforms."""
    outputs, inputs, *_ = weight.shape
    direct = weight.reshape(outputs // 16, 16, -1).transpose(0, 2, 1)
    with np.errstate(invalid="ignore", over="ignore"):
        numbers = np.einsum("ia,ocab,jb->oijc", TRANSFORM, weight.astype(np.float64), TRANSFORM).astype(np.float32)
    panels = numbers.reshape(outputs // 16, 16, 16 * inputs).transpose(0, 2, 1)
    return np.ascontiguousarray(np.concatenate([direct, panels], axis=1))


def drawn(case: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """An image and weights."""
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(shape).astype(np.float32) for shape in case[:2])
    return x, weight


def run(
    bits: int,
    case: Sequence[Any],
    x: np.ndarray,
    weight: np.ndarray,
    others: Sequence[np.ndarray] = (),
    cuts: Any = None,
    *,
    dynamic: bool = False,
    direct: bool = False,
) -> np.ndarray:
    """What the template gives, or the one that has all products."""
    result = (x.shape[0], weight.shape[0], *counts(attributes(case)))
    types = [(None, own[1], None, None) if dynamic else own for own in (x.shape, result)]
    spec = Conv2dSpec(
        memref(types[0], "f32"),
        memref(weight.shape, "f32"),
        memref(types[1], "f32"),
        *attributes(case)[2:],
        tuple(range(2 + len(others))),
        AFTER if others else IDENTITY,
        tuple(memref(types[1] if own.shape == result else own.shape, "f32") for own in others),
        in_panels=True,
        transformed=True,
    )
    emit = emit_conv2d_panels if direct else emit_conv2d_winograd
    kernel = compiled("conv", emit("conv", spec, TARGETS[bits]))
    return kernel([x, packed(weight), *others], [np.empty(result, np.float32)], cuts)[0]


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("case", CASES)
@pytest.mark.quick(10)
def test_template(bits, case):
    own = CASES[case]
    x, weight = drawn(own)
    want = expected(x, weight, attributes(own))
    rng = np.random.default_rng(1)
    vector = (weight.shape[0], 1, 1)
    others = [rng.standard_normal(shape).astype(np.float32) for shape in (vector, (1, *vector), want.shape, ())]
    tolerance = 2e-5 * np.sqrt(np.prod(own[1][1:]))
    for after in ([], others):
        if after:
            factor, shift, residual, last = (value.astype(np.float64) for value in after)
            want = np.maximum(want * factor + shift + residual, 0) * last
        found = run(bits, own, x, weight, after, dynamic=case == "no place")
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=tolerance)
        again = run(bits, own, x, weight, after, range(20), dynamic=True)
        assert again.tobytes() == found.tobytes()


@pytest.mark.parametrize("bits", [512, pytest.param(256, marks=pytest.mark.slow)])
def test_errors_are_those_of_the_sum(bits):
    """Sums of fewer numbers, one after the other, have no larger errors than those of all products."""
    case = ((1, 48, 12, 12), (32, 48, 3, 3), (1, 1))
    x, weight = drawn(case)
    want = expected(x, weight, attributes(case))
    errors = [run(bits, case, x, weight, direct=direct) - want for direct in (False, True)]
    own, others = (float(np.sqrt(np.mean(np.square(error)))) for error in errors)
    assert own < others
    assert np.abs(errors[0]).max() < np.abs(errors[1]).max()


def test_integers_are_exact():
    case = ((1, 32, 9, 9), (16, 32, 3, 3), (1, 1))
    rng = np.random.default_rng(0)
    x, weight = (rng.integers(-8, 9, shape).astype(np.float32) for shape in case[:2])
    assert (run(512, case, x, weight) == expected(x, weight, attributes(case))).all()


@pytest.mark.parametrize("bits", sorted(TARGETS))
@pytest.mark.parametrize("what", ["inf", "-inf", "nan", "large", "weight", "large weights", "all"])
@pytest.mark.quick(7)
def test_what_is_not_finite(bits, what):
    """It is what all products give, at the places that see it; others keep every bit."""
    case = ((1, 6, 9, 11), (32, 6, 3, 3), (1, 1))
    x, weight = drawn(case)
    if what == "large weights":  # of which some sums are finite, but not those of their transforms
        x = np.abs(x) / np.float32(100)
    usual = run(bits, case, x, weight)
    seen = np.zeros(usual.shape, bool)
    if what == "weight":
        weight[5, 2, 0, 1], seen[:, 5] = np.inf, True
    elif what == "large weights":
        weight[7], seen[:, 7] = 1.5e38, True
    elif what == "all":
        x[:], seen[:] = np.nan, True
    else:
        x[0, 3, 4, 6], seen[:, :, 3:6, 5:8] = {"large": 3e38}.get(what) or float(what), True
    found, want = run(bits, case, x, weight), run(bits, case, x, weight, direct=True)
    assert found[~seen].tobytes() == usual[~seen].tobytes()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    assert np.isfinite(want).any() == (what != "all")
    for sign in (np.inf, -np.inf):
        np.testing.assert_array_equal(found == sign, want == sign)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def graph(image: Sequence[Any] = (1, 16, 9, 9), weight: Sequence[int] = (16, 16, 3, 3), **options: Any) -> GraphModule:
    """A convolution of a parameter."""
    m = GraphModule.mir("m")
    m.set_outputs({"y": m.conv2d(m.input("x", list(image)), m.param("w", list(weight)), **{"padding": 1, **options})})
    return m


def templates(m: GraphModule, **options: Any) -> set[str]:
    return set(compile_fresh(m, **options).artifact.templates.values())


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "conv2d_winograd"),
        ({"image": ("n", 16, "h", "w")}, "conv2d_winograd"),
        ({"padding": [0, 2]}, "conv2d_winograd"),
        ({"stride": [1, 2]}, "conv2d_panels"),
        ({"dilation": [2, 1]}, "conv2d_panels"),
        ({"weight": (16, 16, 3, 5)}, "conv2d_panels"),
        ({"weight": (32, 8, 3, 3), "groups": 2}, "conv2d_panels"),
        ({"image": (1, 15, 9, 9), "weight": (16, 15, 3, 3)}, "conv2d_panels"),
        ({"image": (1, 16, 1, 32)}, "conv2d_panels"),  # half of the squares' places would be outside
        ({"image": (9, 16, 4, 4)}, "conv2d_panels"),  # too few squares for the weights
        ({"weight": (24, 16, 3, 3)}, "conv2d"),
    ],
    ids=str,
)
@pytest.mark.quick(5)
def test_which_take_it(changes, name):
    assert templates(graph(**changes)) == {name}


def test_without_it():
    """Others read the weights alone, and nothing is prepared that isn't read."""
    m = graph((1, 32, 9, 10), (48, 32, 3, 3))
    own, off = compile_fresh(m), compile_fresh(m, disable_templates=("conv2d_winograd",))
    assert [set(e.artifact.templates.values()) for e in (own, off)] == [{"conv2d_winograd"}, {"conv2d_panels"}]
    values = drawn(((1, 32, 9, 10), (48, 32, 3, 3)))
    found = []
    for executable in (own, off, compile_fresh(m, disable_templates=("conv2d",))):
        executable.set_params({"w": values[1]})
        found.append(executable.run({"x": values[0]})["y"])
    want = interpret(m, {"x": values[0], "w": values[1]})["y"]
    for result in found:
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-4)
    sizes = [sum(array.nbytes for array in (executable.plan_params or {}).values()) for executable in (own, off)]
    assert sizes == [values[1].nbytes * 25 // 9, values[1].nbytes]


def test_choices_and_verification():
    """Units of other sizes change no bit; each pass and kernel keeps what the graph computes."""
    m, values = graph(), drawn(((1, 16, 9, 9), (16, 16, 3, 3)))
    found = []
    for options in ({"verify": "numeric"}, {"choices": {"narrow_transpose_conv_0": {"squares": 7}}}):
        executable = compile_fresh(m, **options)
        executable.set_params({"w": values[1]})
        found.append(executable.run({"x": values[0]})["y"])
    assert found[0].tobytes() == found[1].tobytes()


def with_sizes(m: GraphModule, weight: np.ndarray, **options: Any) -> Executable:
    executable = compile_fresh(m, maxima={"h": 40, "w": 1100}, **options)
    executable.set_params({"w": weight})
    return executable


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ((16, 16, 3, 3), {}),
        ((32, 8, 3, 3), {"groups": 2}),
        ((16, 16, 1, 1), {"stride": 2, "padding": 0}),
        ((16, 1, 3, 3), {"groups": 16}),
    ],
    ids=["winograd", "panels", "strided", "channels"],
)
def test_sizes_and_threads(shape, changes):
    """Every size up to the maxima has room, also where a smaller image has larger units; threads change no bit."""
    m = graph(("n", 16, "h", "w"), shape, **changes)
    rng = np.random.default_rng(0)
    weight = rng.standard_normal(shape).astype(np.float32)
    one, two = (with_sizes(m, weight, threads=threads) for threads in (1, 2))
    for size in ((2, 40, 110), (1, 1, 1), (1, 3, 224), (1, 17, 1), (2, 10, 112), (1, 1, 1000), (0, 5, 5), (1, 40, 25)):
        x = rng.standard_normal((size[0], 16, *size[1:])).astype(np.float32)
        found = one.run({"x": x})["y"]
        np.testing.assert_allclose(found, interpret(m, {"x": x, "w": weight})["y"], rtol=1e-4, atol=1e-4)
        assert two.run({"x": x})["y"].tobytes() == found.tobytes()
