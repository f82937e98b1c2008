# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pools, transposed convolutions, normalised groups, pixels, and gradients: references against the definitions, one
product at a time, and compiled code against references."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from compile_harness import Program, compare, compile_fresh, every
from compile_harness import check as check_program
from cuda_harness import emulated_device
from linalg_harness import FLOATS, Case, case, check, dyn, normal, word

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.dialects import mir
from rlx_mlir.errors import BuildError, InputError
from rlx_mlir.mir import REFERENCES

by_dtype = pytest.mark.parametrize("dtype", FLOATS, ids=word)
KINDS = ("max", "min", "sum", "mean", "prod")
Pair = tuple[int, int]


def ref(name: str, *operands: Any, **attributes: Any) -> Any:
    return REFERENCES[f"mir.{name}"](*operands, **attributes)


def build(name: str, **attributes: Any) -> Callable[..., Any]:
    """A builder of an operation, whose attributes are Python values."""
    words = {"kind": lambda kind: getattr(mir.ReduceKind, kind.capitalize())}
    given = {key: words.get(key, lambda value: value)(value) for key, value in attributes.items()}
    return lambda *operands: getattr(mir, name)(*operands, **given)


def taps(x: Pair, dy: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Iterator[tuple[Pair, ...]]:
    """(window, position in it, pixel) for every pixel that a window covers."""
    for window in np.ndindex(*dy):
        for tap in np.ndindex(*kernel):
            row, column = (
                i * s - p + u * d for i, u, s, p, d in zip(window, tap, stride, padding, dilation, strict=True)
            )
            if 0 <= row < x[0] and 0 <= column < x[1]:
                yield window, tap, (row, column)


def is_first(dtype: Any) -> bool:
    """Whether tests of an element type have every case; those of the others have what differs by type."""
    return np.dtype(dtype) == np.float32


def geometry(attributes: dict[str, Any]) -> tuple[Pair, Pair, Pair]:
    return attributes.get("stride", (1, 1)), attributes.get("padding", (0, 0)), attributes.get("dilation", (1, 1))


# -- pools -----------------------------------------------------------------------------------------------------------


def scalar_pool(x: np.ndarray, kind: str, kernel_size: Pair, **attributes: Any) -> np.ndarray:
    """Each window's elements as a list."""
    stride, padding, _ = geometry(attributes)
    height, width = (
        (size + 2 * p - k) // s + 1 for size, p, k, s in zip(x.shape[2:], padding, kernel_size, stride, strict=True)
    )
    found: dict[Pair, list[Pair]] = {window: [] for window in np.ndindex(height, width)}
    for window, _, pixel in taps(x.shape[2:], (height, width), kernel_size, stride, padding, (1, 1)):
        found[window].append(pixel)
    y = np.zeros((*x.shape[:2], height, width))
    for n, c in np.ndindex(*x.shape[:2]):
        for window, pixels in found.items():
            own = [float(x[n, c, row, column]) for row, column in pixels]
            y[(n, c, *window)] = {
                "max": lambda own: max(own, default=-math.inf),
                "min": lambda own: min(own, default=math.inf),
                "sum": sum,
                "mean": lambda own: sum(own) / math.prod(kernel_size),
                "prod": math.prod,
            }[kind](own)
    return y


POOLS: list[dict[str, Any]] = [
    {"kernel_size": (2, 2), "stride": (2, 2)},
    {"kernel_size": (3, 2), "stride": (1, 3), "padding": (1, 0)},
    {"kernel_size": (1, 2), "stride": (2, 1), "padding": (2, 3)},  # windows wholly in the padding
    {"kernel_size": (5, 7)},  # the whole image
]


@pytest.mark.parametrize("attributes", POOLS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_pool_reference(kind: str, attributes: dict[str, Any]) -> None:
    x = normal(2, 3, 5, 7)
    np.testing.assert_allclose(
        ref("pool", x, kind=kind, **attributes), scalar_pool(x, kind, **attributes), rtol=1e-5, atol=1e-6
    )


EMPTY = {"max": -np.inf, "min": np.inf, "sum": 0.0, "mean": 0.0, "prod": 1.0}


@pytest.mark.parametrize("kind", KINDS)
def test_windows_wholly_in_padding(kind: str) -> None:
    """They are of no element, whatever the image holds; and of no image there are no others."""
    m = GraphModule.mir("padding")
    x = m.input("x", ["n", 2, "h", 3])
    m.set_outputs({"y": m.pool(x, kind, (1, 2), padding=(1, 2))})
    executable = compile_fresh(m)
    for height in (0, 1, 2):
        image = np.full((2, 2, height, 3), np.nan, np.float32)
        for y in (executable.run({"x": image})["y"], interpret(m, {"x": image})["y"]):
            assert y.shape == (2, 2, height + 2, 6)
            assert (y[:, :, [0, -1]] == EMPTY[kind]).all()
            assert (y[..., [0, -1]] == EMPTY[kind]).all()
            assert np.isnan(y[:, :, 1:-1, 1:-1]).all()


@pytest.mark.parametrize(("dtype", "low", "high"), [("int8", -128, 127), ("uint16", 0, 65535), ("int64", -9, 9)])
def test_pools_of_integers(dtype: str, low: int, high: int) -> None:
    """Sums and products wrap around; windows without elements give the ends of the type."""
    x = np.random.default_rng(0).integers(low, high, (2, 2, 5, 6), dtype, endpoint=True)
    kinds = [kind for kind in KINDS if kind != "mean"]
    attributes = {"kernel_size": [2, 3], "stride": [2, 1], "padding": [1, 3]}
    check([case(kind, build("pool", kind=kind, **attributes), dyn(x, 2)) for kind in kinds])
    ends = {"max": np.iinfo(dtype).min, "min": np.iinfo(dtype).max, "sum": 0, "prod": 1}
    assert {kind: ref("pool", x, kind=kind, **attributes)[0, 0, 0, 0] for kind in kinds} == ends
    assert ref("pool", x, kind="sum", kernel_size=[1, 2])[0, 0, 0, 0] == x[0, 0, 0, :2].sum(dtype=dtype)


@by_dtype
def test_pools_are_the_references(dtype: Any) -> None:
    cases = []
    for kind, (number, attributes) in itertools.product(KINDS, enumerate(POOLS)):
        image = normal(2, 3, 5, 7, dtype=dtype)
        wrap = dyn if number % 2 else lambda x: x
        if is_first(dtype) or number == 1:
            cases.append(case(f"{kind} {attributes}", build("pool", kind=kind, **attributes), wrap(image)))
    x = normal(1, 1, 4, 9, dtype=dtype)
    x[0, 0, 1, 2:5] = np.nan, np.inf, -np.inf
    for kind in KINDS if is_first(dtype) else ("max",):
        square = build("pool", kind=kind, kernel_size=[2, 2])
        cases += [case(f"{kind} special", square, x), case(f"{kind} of nothing", square, dyn(x[:, :, :1], 2))]
    check([*cases, case("of no items", build("pool", kind="max", kernel_size=[2, 2]), x[:0])])


def test_max_pool2d_backward_reference() -> None:
    """The first largest element of a window, of equal ones too, and the first NaN."""
    x = np.array([[1, 3, 3], [2, 3, 0], [np.nan, 1, np.nan]], np.float32).reshape(1, 1, 3, 3)
    dy = np.array([[1, 10], [100, 1000]], np.float32).reshape(1, 1, 2, 2)
    got = ref("max_pool2d_backward", x, dy, kernel_size=(2, 2))[0, 0]
    assert got.tolist() == [[0, 11, 0], [0, 0, 0], [100, 0, 1000]]
    padded = ref(
        "max_pool2d_backward",
        x[:, :, :1, :1] * -np.inf,
        np.ones((1, 1, 5, 5), x.dtype),
        kernel_size=(1, 1),
        padding=(2, 2),
    )
    assert padded.tolist() == [[[[1]]]]


@by_dtype
def test_gradients_of_pools_are_the_references(dtype: Any) -> None:
    """With equal elements, infinities and NaN in windows, and windows that have none."""
    x = np.random.default_rng(3).integers(0, 3, (2, 2, 5, 7)).astype(dtype)
    x[0, 0, 1, 1:5] = np.nan, np.inf, -np.inf, np.nan
    x[1, 1] = -np.inf
    cases = []
    for number, attributes in enumerate(POOLS if is_first(dtype) else POOLS[1:3]):
        dy = normal(*ref("pool", x, kind="max", **attributes).shape, dtype=dtype)
        wrap = dyn if number % 2 else lambda x: x
        cases.append(case(f"{attributes}", build("max_pool2d_backward", **attributes), wrap(x), wrap(dy)))
    one = build("max_pool2d_backward", kernel_size=(2, 1), padding=(1, 0))
    check([*cases, case("of nothing", one, dyn(x[:, :, :0]), dyn(normal(2, 2, 1, 7, dtype=dtype)))])


@pytest.mark.parametrize("attributes", POOLS, ids=str)
def test_max_pool2d_backward_is_the_gradient(attributes: dict[str, Any]) -> None:
    """Of numbers without ties, the sum of y dy grows by dx where x does."""
    x = np.random.default_rng(1).permutation(70).reshape(2, 1, 5, 7).astype(np.float64)
    dy = normal(*scalar_pool(x, "max", **attributes).shape, dtype=np.float64)
    dx = ref("max_pool2d_backward", x, dy, **attributes)
    for at in np.ndindex(*x.shape):
        moved = [x.copy() for _ in range(2)]
        moved[0][at] -= 0.25
        moved[1][at] += 0.25
        low, high = (np.nan_to_num(ref("pool", own, kind="max", **attributes), neginf=0.0) for own in moved)
        np.testing.assert_allclose(2 * ((high - low) * dy).sum(), dx[at], atol=1e-9)


# -- convolutions ----------------------------------------------------------------------------------------------------


CONVS: list[dict[str, Any]] = [
    {},
    {"stride": (2, 3), "padding": (1, 0)},
    {"dilation": (2, 1), "groups": 2},
    {"stride": (2, 1), "padding": (2, 1), "dilation": (1, 2), "groups": 4},
    {"stride": (3, 2), "padding": (0, 4), "dilation": (2, 2)},
]


def channels(attributes: dict[str, Any], outputs: int, inputs: int) -> Iterator[tuple[int, int, int]]:
    """(channel of the result, channel of x, its number in its group)."""
    groups = attributes.get("groups", 1)
    for o, c in np.ndindex(outputs, inputs // groups):
        yield o, o // (outputs // groups) * (inputs // groups) + c, c


def scalar_gradients(x: np.ndarray, w: np.ndarray, dy: np.ndarray, **attributes: Any) -> tuple[np.ndarray, np.ndarray]:
    """With respect to x and to w, one product at a time."""
    dx, dw = np.zeros(x.shape), np.zeros(w.shape)
    found = list(taps(x.shape[2:], dy.shape[2:], w.shape[2:], *geometry(attributes)))
    for o, ci, c in channels(attributes, w.shape[0], x.shape[1]):
        for n, (window, tap, pixel) in itertools.product(range(len(x)), found):
            dx[(n, ci, *pixel)] += float(dy[(n, o, *window)]) * float(w[(o, c, *tap)])
            dw[(o, c, *tap)] += float(dy[(n, o, *window)]) * float(x[(n, ci, *pixel)])
    return dx, dw


def convolved(attributes: dict[str, Any], dtype: Any = np.float32, area: Pair = (6, 7)) -> tuple[np.ndarray, ...]:
    """x, w, and a gradient of their convolution."""
    x, w = normal(2, 4, *area, dtype=dtype), normal(8, 4 // attributes.get("groups", 1), 3, 2, seed=1, dtype=dtype)
    return x, w, normal(*ref("conv", x, w, **attributes).shape, seed=2, dtype=dtype)


@pytest.mark.parametrize("attributes", CONVS, ids=str)
def test_references_of_gradients(attributes: dict[str, Any]) -> None:
    x, w, dy = convolved(attributes)
    dx, dw = scalar_gradients(x, w, dy, **attributes)
    np.testing.assert_allclose(ref("conv2d_backward_input", dy, w, x, **attributes), dx, rtol=1e-4, atol=1e-4)
    found = ref("conv2d_backward_weight", x, dy, kernel_size=(3, 2), **attributes)
    np.testing.assert_allclose(found, dw, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("attributes", CONVS, ids=str)
def test_transposed_convolution_is_the_gradient(attributes: dict[str, Any]) -> None:
    """Of an image that windows cover to its end."""
    _, w, dy = convolved(attributes)
    stride, padding, dilation = geometry(attributes)
    area = [
        (count - 1) * s + d * (k - 1) + 1 - 2 * p
        for count, s, p, d, k in zip(dy.shape[2:], stride, padding, dilation, (3, 2), strict=True)
    ]
    x = np.zeros((2, 4, *area), np.float32)
    dx, _ = scalar_gradients(x, w, dy, **attributes)
    np.testing.assert_allclose(ref("conv_transpose2d", dy, w, **attributes), dx, rtol=1e-4, atol=1e-4)


@by_dtype
def test_convolutions_are_the_references(dtype: Any) -> None:
    cases: list[Case] = []
    for attributes in CONVS if is_first(dtype) else CONVS[3:4]:
        x, w, dy = convolved(attributes, dtype)
        sides = attributes | {"kernel_size": (3, 2)}
        ways = [("", lambda x: x), (" dynamic", lambda x: dyn(x, 0, 2, 3))]
        for name, wrap in ways if attributes == CONVS[3] else ways[1:]:
            cases += [
                case(
                    f"transposed {attributes}{name}",
                    build("conv_transpose2d", **attributes, output_padding=(1, 2)),
                    wrap(dy),
                    w,
                ),
                case(f"input {attributes}{name}", build("conv2d_backward_input", **attributes), wrap(dy), w, wrap(x)),
                case(
                    f"weight {attributes}{name}",
                    build("conv2d_backward_weight", **sides),
                    wrap(x),
                    wrap(dy),
                    tolerance=None,
                ),
            ]
    if not is_first(dtype):
        check(cases)
        return
    x, w = normal(1, 2, 2, 3), normal(2, 3, 2, 2)
    odd = {"stride": (2, 2), "padding": (0, 3)}
    cases += [
        case("all channels dynamic", build("conv_transpose2d", groups=2), dyn(x), dyn(w, 0, 1)),
        case("of no items", build("conv_transpose2d", stride=(2, 2)), x[:0], w),
        case("of no channels", build("conv_transpose2d", stride=(2, 2)), dyn(x[:, :0]), w[:0]),
        case("of no columns", build("conv_transpose2d", output_padding=(0, 2)), dyn(x[..., :0]), w),
        case("of no columns, static", build("conv_transpose2d", output_padding=(0, 2)), x[..., :0], w),
        case("of padding alone", build("conv_transpose2d", **odd), x[..., :2], normal(2, 3, 2, 4, dtype=dtype)),
    ]
    short = normal(1, 3, 1, 3, dtype=dtype)  # one row less than the kernel: the gradient is 0
    cases += [
        case(
            "gradient of nothing",
            build("conv2d_backward_input"),
            dyn(short[:, :, :0, :2]),
            normal(3, 2, 2, 2, dtype=dtype),
            dyn(x[:, :, :1]),
        ),
        case(
            "weight of nothing",
            build("conv2d_backward_weight", kernel_size=(2, 2)),
            dyn(x[:, :, :1]),
            dyn(short[:, :, :0, :2]),
        ),
        case(
            "weight of no items",
            build("conv2d_backward_weight", kernel_size=(2, 2)),
            x[:0],
            normal(0, 3, 1, 2, dtype=dtype),
        ),
    ]
    check(cases)


def test_only_pixels_that_exist_take_part() -> None:
    """Taps that are infinite, between pixels and beyond them, make no NaN: compiled, interpreted, and of every kind."""
    x = np.array([[1, 3, 3, 2]], np.float32).reshape(1, 1, 1, 4)
    weight = np.array([1, np.inf, -2], np.float32).reshape(1, 1, 1, 3)
    want = [1, np.inf, 1, np.inf, -3, np.inf, -4, np.inf, -4]
    assert ref("conv_transpose2d", x, weight, stride=(1, 2))[0, 0, 0].tolist() == want
    m = GraphModule.mir("taps")
    image, kernel = m.input("x", [1, 1, "h", "w"]), m.param("weight", [1, 1, 1, 3])
    m.set_outputs({
        "y": m.conv_transpose2d(image, kernel, stride=[1, 2]),
        "dx": m.conv2d_backward_input(image, kernel, m.input("like", [1, 1, "h", "v"]), stride=[1, 2]),
    })  # fmt: skip
    for options in ({}, {"disable_templates": ("all",)}):
        executable = compile_fresh(m, **options)
        executable.set_params({"weight": weight})
        for value in executable.run({"x": x, "like": np.zeros((1, 1, 1, 9), np.float32)}).values():
            assert value[0, 0, 0].tolist() == want


@pytest.mark.parametrize("options", [{}, {"disable_templates": ("all",)}], ids=["templates", "generic"])
def test_an_infinite_tap_that_padding_cuts(options: dict[str, Any]) -> None:
    """Between the pixels of a stride there is nothing: no zero that an infinite tap would make NaN of."""
    x = np.array([1, 3, 3, 2], np.float32).reshape(1, 1, 1, 4)
    weight = np.array([0, 1, np.inf], np.float32).reshape(1, 1, 1, 3)
    m = GraphModule.mir("tap")
    image = m.input("x", [1, 1, 1, "w"])
    m.set_outputs({"y": m.conv_transpose2d(image, m.param("weight", [1, 1, 1, 3]), stride=[1, 2], padding=[0, 1])})
    executable = compile_fresh(m, **options)
    executable.set_params({"weight": weight})
    for found in (executable.run({"x": x}), rlx.interpret(m, {"x": x, "weight": weight})):
        assert found["y"].ravel().tolist() == [1, np.inf, 3, np.inf, 3, np.inf, 2]


# -- normalised groups -----------------------------------------------------------------------------------------------


def groups_case(dtype: Any = np.float32, shape: tuple[int, ...] = (2, 6, 3, 5)) -> tuple[np.ndarray, ...]:
    """x, gamma, beta, and a gradient."""
    x = normal(*shape, dtype=dtype, scale=2.0) + np.array(0.5, dtype)
    return x, *(normal(shape[1], seed=seed, dtype=dtype) for seed in (1, 2)), normal(*shape, seed=3, dtype=dtype)


@pytest.mark.parametrize("num_groups", [1, 2, 6])
def test_group_norm_references(num_groups: int) -> None:
    """The formula in f64, and its gradients by differences."""
    x, gamma, beta, dy = groups_case(np.float64)
    given = {"num_groups": num_groups, "eps": 0.25}
    rows = x.reshape(2, num_groups, -1)
    normal_ = ((rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 0.25)).reshape(x.shape)
    want = normal_ * gamma[:, None, None] + beta[:, None, None]
    np.testing.assert_allclose(ref("group_norm", x, gamma, beta, **given), want, rtol=1e-12)
    np.testing.assert_allclose(ref("group_norm", x, gamma, **given), want - beta[:, None, None], rtol=1e-9, atol=1e-12)
    dx = ref("group_norm_backward_input", x, gamma, dy, **given)
    for at in [(0, 0, 0, 0), (1, 5, 2, 4), (0, 3, 1, 2)]:
        low, high = x.copy(), x.copy()
        low[at] -= 1e-5
        high[at] += 1e-5
        low, high = (ref("group_norm", own, gamma, beta, **given) for own in (low, high))
        np.testing.assert_allclose(((high - low) * dy).sum() / 2e-5, dx[at], rtol=1e-6, atol=1e-8)
    of_gamma = ref("group_norm_backward_gamma", x, dy, **given)
    np.testing.assert_allclose(of_gamma, (normal_ * dy).sum((0, 2, 3)), rtol=1e-10)
    np.testing.assert_allclose(ref("group_norm_backward_beta", dy), dy.sum((0, 2, 3)), rtol=1e-12)


@by_dtype
def test_groups_are_the_references(dtype: Any) -> None:
    cases = []
    shapes = (((2, 6, 3, 5), 3), ((1, 4, 1, 1), 4), ((3, 2, 4, 8), 1), ((0, 4, 2, 2), 2), ((2, 4, 0, 3), 2))
    for shape, count in shapes if is_first(dtype) else shapes[:1]:
        x, gamma, beta, dy = groups_case(dtype, shape)
        ways = [("", lambda x: x), (" dynamic", dyn)]
        for name, wrap in ways if shape == shapes[0][0] else ways[1:]:
            given = {"num_groups": count, "eps": 0.25}
            image, slope = wrap(x), wrap(dy)
            cases += [
                case(f"{shape}{name}", build("group_norm", beta=None, **given), image, gamma),
                case(f"{shape}{name} input", build("group_norm_backward_input", **given), image, wrap(gamma), slope),
                case(f"{shape}{name} gamma", build("group_norm_backward_gamma", **given), image, slope),
            ]
        with_beta = lambda x, gamma, beta, count=count: mir.group_norm(x, gamma, count, beta=beta, eps=0.25)  # noqa: E731
        cases.append(case(f"{shape} beta", with_beta, dyn(x, 0, 2), gamma, beta))
    check(cases)


@pytest.mark.parametrize("op", ["group_norm", "group_norm_backward_input", "group_norm_backward_gamma"])
def test_groups_without_pixels_beside_dynamic_sizes(op: str) -> None:
    """One size is 0 for sure, another one unknown: MLIR takes their product for a static size."""
    x, gamma, _, dy = groups_case(np.float32, (2, 4, 3, 0))
    image, slope = dyn(x, 0, 2), dyn(dy, 0, 2)
    operands = {"group_norm": (image, gamma), "group_norm_backward_input": (image, gamma, slope)}.get(
        op, (image, slope)
    )
    check([case(op, build(op, num_groups=2, **({"beta": None} if op == "group_norm" else {})), *operands)])


def test_a_group_of_one_large_number_is_beta() -> None:
    """What the rounded mean lacks is subtracted, too; gradients of such groups are finite."""
    x = np.repeat(np.array([60001.3, -16777215.0], np.float32), 21 * 35).reshape(2, 21, 7, 5)
    ones = np.ones(21, np.float32)
    check([
        case("group_norm", lambda x, g, b: mir.group_norm(x, g, 3, beta=b), x, ones, 0.75 * ones, tolerance=1e-30),
        case("input", build("group_norm_backward_input", num_groups=3), x, ones, x * 0 + 1),
    ])  # fmt: skip
    assert (ref("group_norm", x, ones, 0.75 * ones, num_groups=3) == 0.75).all()


# -- pixels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "bool", "int8", "uint16", "int64", "complex64"])
def test_larger_images(dtype: str) -> None:
    x = (normal(2, 3, 4, 5) * 10).astype(dtype)
    want = np.array(
        [[[[x[n, c, i // 2, j // 2] for j in range(10)] for i in range(8)] for c in range(3)] for n in (0, 1)]
    )
    np.testing.assert_array_equal(ref("resize_nearest_2x", x), want)
    op = build("resize_nearest_2x")
    check(
        [
            case("static", op, x),
            case("dynamic", op, dyn(x)),
            *(case(f"none, {i}", op, dyn(x[:, :, :i])) for i in (0, 1)),
        ]
    )


def scalar_axial_rope(x: np.ndarray, end_x: int, head_dim: int, theta: float, repeat: int) -> np.ndarray:
    """Each pair of each head of each token by itself."""
    y = np.zeros(x.shape)
    for b, t, h in np.ndindex(*x.shape[:2], x.shape[2] // head_dim):
        row, column = divmod(t // repeat, end_x)
        for half, position in ((0, column), (head_dim // 2, row)):
            for c in range(head_dim // 4):
                at = h * head_dim + half + 2 * c
                angle = position * theta ** (-4 * c / head_dim)
                first, second = map(float, x[b, t, at : at + 2])
                y[b, t, at] = first * math.cos(angle) - second * math.sin(angle)
                y[b, t, at + 1] = first * math.sin(angle) + second * math.cos(angle)
    return y


AXIAL = {"end_x": 3, "end_y": 2, "head_dim": 8, "theta": 100.0}


@pytest.mark.parametrize("repeat", [1, 2])
@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 1e-5), ("f64", 1e-13), ("bf16", 1e-2), ("f16", 2e-3)])
def test_axial_rope(dtype: str, tolerance: float, repeat: int) -> None:
    p = Program("mir")
    x = p.input("x", ["b", 6 * repeat, 16], dtype)
    p.output(y=p.m.axial_rope2d(x, **AXIAL, repeat_factor=repeat))
    ways = check_program(p, [{"b": b} for b in (0, 1, 3)], threads=2)
    (given, _) = p.values({"b": 2})
    want = scalar_axial_rope(given["x"].astype(np.float64), 3, 8, 100.0, repeat)
    for found in ways.run(given).values():
        np.testing.assert_allclose(found["y"].astype(np.float64), want, rtol=tolerance, atol=tolerance)


def test_axial_rope_of_another_number_of_tokens() -> None:
    m = GraphModule.mir("tokens")
    m.set_outputs({"y": m.axial_rope2d(m.input("x", [1, "l", 16]), **AXIAL)})
    executable = compile_fresh(m)
    executable.run({"x": np.ones((1, 6, 16), np.float32)})
    for tokens in (5, 7):
        with pytest.raises(InputError, match=r"axial_rope2d.* expects that 16\*l is equal to 96"):
            executable.run({"x": np.ones((1, tokens, 16), np.float32)})


# -- one executable for every size -----------------------------------------------------------------------------------


def everything(dtype: str = "f32") -> Program:
    """Every operation, of images of any size."""
    p = Program("mir")
    m = p.m
    x, gamma = p.input("x", ["n", 6, "h", "w"], dtype), p.param("gamma", [6], dtype)
    w = p.param("weight", [6, 2, 3, 2], dtype)
    largest = m.pool(x, "max", 3, stride=2, padding=1)
    convolved = m.conv2d(x, p.param("kernel", [4, 3, 2, 3], dtype), padding=1, groups=2)
    p.output(
        largest=largest,
        mean=m.pool(x, "mean", (2, 1), padding=[1, 0]),
        of_largest=m.maxpool2d_backward(x, m.mul(largest, 0.5), kernel_size=3, stride=2, padding=1),
        transposed=m.conv_transpose2d(x, w, stride=(2, 3), padding=(1, 0), output_padding=1, groups=3),
        dx=m.conv2d_backward_input(convolved, p.param("other", [4, 3, 2, 3], dtype), x, padding=1, groups=2),
        dw=m.conv2d_backward_weight(x, convolved, kernel_size=(2, 3), padding=1, groups=2),
        groups=m.group_norm(x, gamma, gamma, num_groups=3),
        of_groups=m.group_norm_backward_input(x, gamma, x, num_groups=2),
        of_gamma=m.group_norm_backward_gamma(x, m.mul(x, x), num_groups=2),
        of_beta=m.group_norm_backward_beta(x),
        resized=m.resize_nearest_2x(x),
    )
    return p


SIZES = every(n=[0, 2], h=[1, 8], w=[1, 2, 17])
MAXIMA = {"n": 4, "h": 32, "w": 32}


def test_one_executable_for_every_size() -> None:
    """Of two threads, which share channels."""
    p = everything()
    m = p.finish()
    executable = compile_fresh(m, threads=2, level=0, maxima=MAXIMA)
    failures = []
    for sizes in [{"n": 3, "h": 9, "w": 7}, *SIZES]:
        inputs, params = p.values(sizes)
        executable.set_params(params)
        failures += compare(interpret(m, inputs | params), executable.run(inputs), str(sizes))
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.slow
def test_one_executable_for_every_size_and_type(dtype: str) -> None:
    check_program(everything(dtype), [{"n": 3, "h": 9, "w": 7}, *SIZES], threads=2, maxima=MAXIMA)


@pytest.mark.wide
def test_on_gpus() -> None:
    """By the generic path; run by the emulator of PTX."""
    p = everything()
    m = p.finish()
    with emulated_device("sm_80"):
        executable = rlx.compile(m, target="cuda", chip="sm_80", cache=False, maxima=MAXIMA)
        for sizes in ({"n": 2, "h": 5, "w": 7}, {"n": 1, "h": 1, "w": 2}):
            inputs, params = p.values(sizes)
            executable.set_params(params)
            found = executable.run(inputs)
            for name, want in interpret(m, inputs | params).items():
                np.testing.assert_allclose(found[name], want, rtol=2e-4, atol=2e-5, err_msg=name)


# -- what is refused -------------------------------------------------------------------------------------------------


def test_sizes_that_do_not_fit_at_run_time() -> None:
    """What types leave open is checked at each call."""
    m = GraphModule.mir("open")
    x, dy, vector = m.input("x", ["n", "c", "h", 4]), m.input("dy", ["n", "c", "k", 3]), m.input("vector", ["v"])
    m.set_outputs({
        "pool": m.maxpool2d_backward(x, dy, kernel_size=(3, 2)),
        "groups": m.group_norm(x, vector, num_groups=2),
    })  # fmt: skip
    executable = compile_fresh(m)

    def run(n: int = 1, c: int = 4, h: int = 5, k: int = 3, v: int = 4) -> None:
        shapes = {"x": (n, c, h, 4), "dy": (n, c, k, 3), "vector": (v,)}
        executable.run({name: np.ones(shape, np.float32) for name, shape in shapes.items()})

    run()
    for changed, message in (
        ({"h": 1, "k": 0}, r"mir\.max_pool2d_backward"),
        ({"k": 4}, r"mir\.max_pool2d_backward"),
        ({"c": 5, "v": 5}, r"mir\.group_norm"),
        ({"v": 6}, r"mir\.group_norm"),
    ):
        with pytest.raises(InputError, match=message):
            run(**changed)


def test_padding_that_takes_away_too_much_at_run_time() -> None:
    m = GraphModule.mir("padding")
    m.set_outputs({"y": m.conv_transpose2d(m.input("x", [1, 1, "h", 3]), m.param("w", [1, 1, 1, 1]), padding=1)})
    executable = compile_fresh(m)
    executable.set_params({"w": np.ones((1, 1, 1, 1), np.float32)})
    for height in (2, 5):
        assert executable.run({"x": np.ones((1, 1, height, 3), np.float32)})["y"].shape == (1, 1, height - 2, 1)
    with pytest.raises(InputError, match=r"mir\.conv_transpose2d"):
        executable.run({"x": np.ones((1, 1, 1, 3), np.float32)})


def test_what_builders_refuse() -> None:
    m = GraphModule.mir("refused")
    x = m.input("x", ["n", 4, 5, 6])
    for build_it, message in (
        (lambda: m.pool(x, "median", 2), r"test_image_operations\.py.*median"),
        (lambda: m.pool(x, "max", 9), r"at most one short of the kernel, which spreads over 9"),
        (lambda: m.pool(x, "max", (1, 2, 3)), r"a pair for height and width, is expected"),
        (lambda: m.maxpool2d_backward(x, x, kernel_size=2), r"expects 'dy' to have the shape of the pool of 'x'"),
        (lambda: m.axial_rope2d(m.input("t", [1, 4, 8]), end_x=2, end_y=3, head_dim=8), r"repeat_factor, 6, but got 4"),
    ):
        with pytest.raises(BuildError, match=message):
            build_it()
