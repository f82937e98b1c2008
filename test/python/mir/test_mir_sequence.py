# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions, gathers in batches and the gated delta rule: references against loops over scalars, compiled code
against references."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from linalg_harness import FLOATS, case, check, dyn, normal, word

from rlx_mlir import GraphModule
from rlx_mlir.dialects import mir
from rlx_mlir.errors import InputError
from rlx_mlir.mir import REFERENCES

by_dtype = pytest.mark.parametrize("dtype", FLOATS, ids=word)


def ref(name: str, *operands: Any, **attributes: Any) -> Any:
    return REFERENCES[f"mir.{name}"](*operands, **attributes)


# -- convolution -----------------------------------------------------------------------------------------------------


def conv(**attributes: Any) -> Any:
    return lambda x, weight: mir.ConvOp(x, weight, **attributes)


def scalar_conv(x, w, *, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    """The definition, one product at a time."""
    height, width = (
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, p, d, k, s in zip(x.shape[2:], padding, dilation, w.shape[2:], stride, strict=True)
    )
    y = np.zeros((x.shape[0], w.shape[0], height, width))
    per_group = w.shape[0] // groups
    for n, o, i, j in np.ndindex(*y.shape):
        for c, u, v in np.ndindex(*w.shape[1:]):
            row, column = i * stride[0] - padding[0] + u * dilation[0], j * stride[1] - padding[1] + v * dilation[1]
            if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                y[n, o, i, j] += float(x[n, o // per_group * w.shape[1] + c, row, column]) * float(w[o, c, u, v])
    return y


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"stride": [2, 3]},
        {"padding": [1, 2]},
        {"dilation": [2, 1]},
        {"groups": 2},
        {"groups": 4},
        {"stride": [2, 1], "padding": [2, 1], "dilation": [1, 2], "groups": 2},
    ],
    ids=str,
)
def test_conv_reference(attributes):
    x, w = normal(2, 4, 6, 7), normal(8, 4 // attributes.get("groups", 1), 3, 2, seed=1)
    np.testing.assert_allclose(ref("conv", x, w, **attributes), scalar_conv(x, w, **attributes), rtol=1e-4, atol=1e-5)


def test_conv_reference_of_large_padding():
    """Windows that lie in the padding as a whole give 0."""
    got = ref("conv", np.ones((1, 1, 1, 1), np.float32), np.ones((1, 1, 1, 1), np.float32), padding=[2, 1])
    assert got[0, 0].tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]]


def test_conv_reference_of_an_image_that_is_too_small():
    with pytest.raises(
        InputError,
        match=r"'x', \[1, 1, 2, 2\] with padding \[0, 0\], must be at most one short of the kernel.*\[4, 1\]",
    ):
        ref("conv", np.zeros((1, 1, 2, 2), np.float32), np.zeros((1, 1, 4, 1), np.float32))


@by_dtype
@pytest.mark.quick(1)
def test_conv(dtype):
    def operands(n, ci, h, w, co, per_group, kh, kw):
        return normal(n, ci, h, w, dtype=dtype), normal(co, per_group, kh, kw, dtype=dtype, seed=1)

    x, w = operands(2, 6, 5, 7, 4, 6, 3, 2)
    grouped = normal(4, 3, 3, 2, dtype=dtype, seed=2)
    depthwise = normal(6, 1, 1, 3, dtype=dtype, seed=3)
    every = {"stride": [2, 1], "padding": [1, 2], "dilation": [1, 2], "groups": 2}
    check(
        [
            case("plain", conv(), x, w),
            case("one pixel", conv(), *operands(1, 1, 1, 1, 1, 1, 1, 1)),
            case("stride", conv(stride=[2, 3]), x, w),
            case("padding", conv(padding=[2, 1]), x, w),
            case("dilation", conv(dilation=[2, 3]), x, w),
            case("groups", conv(groups=2), x, grouped),
            case("all", conv(**every), x, grouped),
            case("depthwise", conv(groups=6), x, depthwise),
            case("dynamic", conv(padding=[1, 2], dilation=[1, 2], groups=2), dyn(x), dyn(grouped, 0, 1)),
            case("dynamic depthwise", conv(groups=6), dyn(x, 0, 3), depthwise),
            case("dynamic batch, strides", conv(**every), dyn(x, 0), grouped),
            case("dynamic channels", conv(groups=2), dyn(x, 1), dyn(grouped, 1)),
            case("no item", conv(**every), dyn(x[:0], 0), grouped),
            case("padding alone", conv(padding=[2, 2]), dyn(x[:, :, :0], 0), w),
            case("no output", conv(), x, dyn(w[:0], 0)),
            case("no position, dynamic", conv(padding=[0, 1]), dyn(x[:, :, :2]), w),
            case("no position, strides", conv(stride=[2, 2]), x[:, :, :2], w),
        ]
    )


def test_conv_accumulates_wide():
    """4096 + 1/4 + 1/4: in f16 each addition of a quarter would be lost."""
    x = np.array([4096, 0.5, 0.5, 0.5, 0.5], np.float16).reshape(1, 1, 1, 5)
    w = np.array([1, 1, 1, 1, 1], np.float16).reshape(1, 1, 1, 5)
    for dims in ((), (3,)):
        check([case("f16", conv(), dyn(x, *dims) if dims else x, w, tolerance=0)])
    assert float(ref("conv", x, w)[0, 0, 0, 0]) == 4096  # 4098 is no f16: to even


def test_symbols_through_a_conv():
    """A stride that divides the symbol's factor keeps it; another one divides the size."""
    m = GraphModule.mir("m")
    x, w = m.input("x", ["n", 2, "h", "w"]), m.param("w", [4, 2, 3, 3])
    assert m.conv2d(x, w).shape == ("n", 4, "-2 + h", "-2 + w")
    assert m.conv2d(x, w, padding=1).shape == ("n", 4, "h", "w")
    assert m.conv2d(m.resize_nearest_2x(x), w, stride=2, padding=1).shape == ("n", 4, "h", "w")
    assert m.conv2d(x, w, stride=[1, 2], padding=1).shape == ("n", 4, "h", "floordiv(1 + w, 2)")


# -- gathers in batches ----------------------------------------------------------------------------------------------


def gather(axis: int, batch_dims: int) -> Any:
    return lambda table, indices: mir.GatherOp(table, indices, axis, batch_dims=batch_dims)


@pytest.mark.parametrize("index", ["int32", "int64", "float32"])
def test_gather_in_batches(index):
    table = normal(2, 3, 4, 5)
    one = np.array([[3], [9]], index)  # clamped
    many = np.arange(2 * 3 * 2).reshape(2, 3, 2).astype(index) - 2
    row = np.array([1, 0], index)
    cases = [
        case("a row each", gather(2, 1), table, one),
        case("a row each, dynamic", gather(1, 1), dyn(table), dyn(one)),
        case("after another dimension", gather(3, 1), dyn(table, 0), one),
        case("two batches", gather(2, 2), table, many),
        case("two batches, dynamic", gather(3, 2), dyn(table), dyn(many)),
        case("static in one of them", gather(2, 2), dyn(table, 0), dyn(many, 1)),
        case("no dimension of its own", gather(1, 1), table, row),
        case("no dimension of its own, dynamic", gather(1, 1), dyn(table), dyn(row)),
        case("nothing", gather(1, 1), dyn(table[:0]), dyn(one[:0])),
    ]
    check(cases)


def test_gather_in_batches_takes_each_items_own_row():
    table = normal(3, 4, 2)
    got = ref("gather", table, np.array([[2], [0], [3]]), axis=1, batch_dims=1)
    np.testing.assert_array_equal(got, np.stack([table[0, 2:3], table[1, :1], table[2, 3:]]))
    assert ref("gather", table, np.array([[2], [0], [3]]), axis=1).shape == (3, 3, 1, 2)
    with pytest.raises(InputError, match=r"first 1 dimensions.*\[3\] and \[2\]"):
        ref("gather", table, np.array([[2], [0]]), axis=1, batch_dims=1)


# -- the gated delta rule --------------------------------------------------------------------------------------------


def gated_delta_net(q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any = None) -> Any:
    return mir.GatedDeltaNetOp(q, k, v, g, beta, state=state)


def delta_operands(batch, steps, heads, n, dtype=np.float32, state=False):
    """Keys and queries of unit length, decays below one; a state in the type of computation."""
    rng = np.random.default_rng(batch + steps + n)
    q, k, v = (rng.standard_normal((batch, steps, heads, n)) for _ in range(3))
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    g, beta = -rng.random((batch, steps, heads)), rng.random((batch, steps, heads))
    found = [x.astype(dtype) for x in (q, k, v, g, beta)]
    if state:
        found.append(
            rng.standard_normal((batch, heads, n, n)).astype(np.float64 if dtype == np.float64 else np.float32)
        )
    return found


def scalar_delta(q, k, v, g, beta, state=None):
    """The recurrence in f64, one element at a time."""
    batch, steps, heads, n = q.shape
    result, final = np.zeros(q.shape), np.zeros((batch, heads, n, n))
    for b, h in np.ndindex(batch, heads):
        s = [[0.0 if state is None else float(state[b, h, i, j]) for j in range(n)] for i in range(n)]
        for t in range(steps):
            s = [[x * math.exp(g[b, t, h]) for x in row] for row in s]
            for j in range(n):
                recalled = sum(s[i][j] * float(k[b, t, h, i]) for i in range(n))
                d = (float(v[b, t, h, j]) - recalled) * float(beta[b, t, h])
                for i in range(n):
                    s[i][j] += float(k[b, t, h, i]) * d
                result[b, t, h, j] = sum(s[i][j] * float(q[b, t, h, i]) for i in range(n)) / math.sqrt(n)
        final[b, h] = s
    return result, final


@pytest.mark.parametrize(("batch", "steps", "heads", "n"), [(1, 4, 2, 3), (3, 5, 1, 4), (2, 1, 3, 1)])
def test_gated_delta_net_reference(batch, steps, heads, n):
    for state in (False, True):
        operands = delta_operands(batch, steps, heads, n, state=state)
        for got, want in zip(ref("gated_delta_net", *operands), scalar_delta(*operands), strict=True):
            assert got.dtype == np.float32
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_gated_delta_net_in_parts_is_the_whole():
    """Bit for bit, also where results are rounded: the state isn't."""
    for dtype in FLOATS:
        operands = delta_operands(2, 6, 2, 4, dtype)
        whole, final = ref("gated_delta_net", *operands)
        first, state = ref("gated_delta_net", *(x[:, :4] for x in operands))
        second, last = ref("gated_delta_net", *(x[:, 4:] for x in operands), state)
        np.testing.assert_array_equal(np.concatenate([first, second], 1), whole)
        np.testing.assert_array_equal(last, final)


@by_dtype
@pytest.mark.quick(1)
def test_gated_delta_net(dtype):
    cases = []
    for (batch, steps, heads, n), state in itertools.product(
        [(1, 4, 2, 3), (2, 3, 1, 8), (3, 1, 2, 1), (2, 0, 2, 3), (0, 2, 1, 2)], [False, True]
    ):
        operands = delta_operands(batch, steps, heads, n, dtype, state)
        name = f"{batch}x{steps}x{heads}x{n}{', state' if state else ''}"
        cases += [
            case(name, gated_delta_net, *operands),
            case(f"{name}, dynamic", gated_delta_net, *(dyn(x) for x in operands)),
        ]
    long = delta_operands(1, 2, 1, 130, dtype)
    cases.append(case("wider than 128, dynamic steps", gated_delta_net, *(dyn(x, 1) for x in long)))
    check(cases)
