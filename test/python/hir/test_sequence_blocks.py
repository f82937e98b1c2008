# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The causal convolution and the gated delta rule as blocks, and what is composed for images: every way to run them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compile_harness import Program, check, compile_fresh, every, scaled

from rlx_mlir import GraphModule, formats, interpret
from rlx_mlir.errors import BuildError, InputError

FLOATS = ("f32", "bf16", "f16", "f64")


# -- depthwise_conv1d_causal -----------------------------------------------------------------------------------------


def test_published_depthwise_conv():
    """Input [2, 8, 16] and K = 3: a convolution and a concatenation."""
    m = GraphModule.hir("m")
    x, w, pad = m.input("x", [2, 8, 16]), m.param("w", [16, 1, 1, 3]), m.input("pad", [2, 2, 16])
    y = m.depthwise_conv1d_causal(x, w, pad)
    assert y.shape == (2, 8, 16)
    m.set_outputs({"y": y})
    lowered = m.lower()
    assert {node.op for node in lowered.nodes()} == {"mir.concat", "mir.transpose", "mir.reshape", "mir.conv"}
    assert {node.name for node in lowered.nodes()} == {"depthwise_conv1d_causal"}
    rng = np.random.default_rng(0)
    shapes = {"x": (2, 8, 16), "w": (16, 1, 1, 3), "pad": (2, 2, 16)}
    values = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    padded = np.concatenate([values["pad"], values["x"]], 1)
    want = [
        [[sum(values["w"][c, 0, 0, j] * padded[b, s + j, c] for j in range(3)) for c in range(16)] for s in range(8)]
        for b in range(2)
    ]
    for module in (m, lowered):
        np.testing.assert_allclose(interpret(module, values)["y"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.quick(1)
def test_depthwise_conv(dtype):
    p = Program()
    x = p.input("x", ["b", "s", 6], dtype)
    for taps in (1, 2, 4):
        w, pad = p.param(f"w{taps}", [6, 1, 1, taps], dtype), p.input(f"pad{taps}", ["b", taps - 1, 6], dtype)
        p.output(**{f"y{taps}": p.m.depthwise_conv1d_causal(x, w, pad)})
    check(p, every(b=[0, 1, 3], s=[0, 1, 2, 7]))


def test_depthwise_conv_of_zeros_before():
    """A new sequence in one call, and in two with what came before, are the same."""
    m = GraphModule.hir("m")
    x, w = m.input("x", [1, "s", 3]), m.param("w", [3, 1, 1, 4])
    m.set_outputs(
        {"zeros": m.depthwise_conv1d_causal(x, w), "pad": m.depthwise_conv1d_causal(x, w, m.input("pad", [1, 3, 3]))}
    )
    rng = np.random.default_rng(1)
    tokens, weight = (
        rng.standard_normal((1, 9, 3)).astype(np.float32),
        rng.standard_normal((3, 1, 1, 4)).astype(np.float32),
    )
    executable = compile_fresh(m)
    executable.set_params({"w": weight})
    whole = executable.run({"x": tokens, "pad": np.zeros((1, 3, 3), np.float32)})
    np.testing.assert_array_equal(whole["zeros"], whole["pad"])
    rest = executable.run({"x": tokens[:, 5:], "pad": tokens[:, 2:5]})
    np.testing.assert_array_equal(rest["pad"], whole["zeros"][:, 5:])


def test_depthwise_conv_refuses_zeros_for_any_batch():
    m = GraphModule.hir("m")
    x, w = m.input("x", ["b", "s", 3]), m.param("w", [3, 1, 1, 4])
    with pytest.raises(BuildError, match=r"takes zeros for 'left_pad' only where the batch is static"):
        m.depthwise_conv1d_causal(x, w)


# -- gated_delta_net -------------------------------------------------------------------------------------------------


def delta_operands(p: Program, dtype: str, n: int, heads: int = 2) -> list[Any]:
    """q, k, v, g and beta as inputs: short keys, decays below one."""
    rows = [p.input(name, ["b", "s", heads, n], dtype, scaled(n**-0.5)) for name in ("q", "k", "v")]
    decay = p.input("g", ["b", "s", heads], dtype, lambda rng, shape: -rng.random(shape))
    return [*rows, decay, p.input("beta", ["b", "s", heads], dtype, lambda rng, shape: rng.random(shape))]


@pytest.mark.parametrize("dtype", FLOATS)
def test_gated_delta_net(dtype):
    p = Program()
    operands = delta_operands(p, dtype, 8)
    state = p.input("state", ["b", 2, 8, 8], "f64" if dtype == "f64" else "f32")
    y, last = p.m.gated_delta_net(*operands)
    z, carried = p.m.gated_delta_net_carry(*operands, state)
    assert y.shape == ("b", "s", 2, 8)
    assert last.shape == carried.shape == ("b", 2, 8, 8)
    p.output(y=y, last=last, z=z, carried=carried)
    check(p, every(b=[0, 1, 3], s=[0, 1, 4]))


def test_gated_delta_net_of_a_dynamic_width():
    p = Program(stage="mir")
    rows = [p.input(name, ["b", "s", "h", "n"], make=scaled(0.3)) for name in ("q", "k", "v")]
    y, state = p.m.gated_delta_net(*rows, *(p.input(name, ["b", "s", "h"], make=scaled(0.2)) for name in ("g", "beta")))
    assert state.shape == ("b", "h", "n", "n")
    p.output(y=y, state=state)
    check(p, every(b=[2], s=[3], h=[1, 2], n=[1, 5, 144]))


def published_operands(rng, batch=1, steps=4, heads=2, n=3):
    shapes = {"q": (n,), "k": (n,), "v": (n,), "g": (), "beta": ()}
    values = {
        name: rng.standard_normal((batch, steps, heads, *rest)).astype(np.float32) for name, rest in shapes.items()
    }
    values["g"], values["beta"] = -np.abs(values["g"]), 1 / (1 + np.exp(-values["beta"]))
    return values


def delta_module(batch, steps, heads, n, state=False):
    m = GraphModule.hir("m")
    rows = [m.input(name, [batch, steps, heads, n]) for name in "qkv"]
    gates = [m.input(name, [batch, steps, heads]) for name in ("g", "beta")]
    carried = [m.input("state", [batch, heads, n, n])] if state else []
    y, last = m.gated_delta_net(*rows, *gates, *carried)
    m.set_outputs({"y": y, "state_out": last})
    return m


def every_way(m: GraphModule, values: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    return [interpret(m, values), interpret(m.lower(), values), compile_fresh(m).run(values)]


def test_published_parity_of_the_gated_delta_rule():
    """B = 1, S = 4, H = 2, n = 3 against a scalar recurrence, to 1e-5."""
    values = published_operands(np.random.default_rng(0))
    want = np.zeros((1, 4, 2, 3))
    for h in range(2):
        s = [[0.0] * 3 for _ in range(3)]
        for t in range(4):
            q, k, v = (values[name][0, t, h].tolist() for name in "qkv")
            s = [[x * np.exp(float(values["g"][0, t, h])) for x in row] for row in s]
            d = [(v[j] - sum(s[i][j] * k[i] for i in range(3))) * float(values["beta"][0, t, h]) for j in range(3)]
            s = [[s[i][j] + k[i] * d[j] for j in range(3)] for i in range(3)]
            want[0, t, h] = [sum(s[i][j] * q[i] for i in range(3)) / np.sqrt(3) for j in range(3)]
    for found in every_way(delta_module(1, 4, 2, 3), values):
        error = np.abs(found["y"] - want)
        assert np.all((error < 1e-5) | (error < 1e-5 * np.abs(want)))


def test_published_reset_of_the_state_between_items():
    """Two items in one call give what each gives alone, to 1e-6."""
    values = published_operands(np.random.default_rng(1), batch=2)
    both = every_way(delta_module(2, 4, 2, 3), values)
    for b in range(2):
        alone = every_way(delta_module(1, 4, 2, 3), {name: x[b : b + 1] for name, x in values.items()})
        for together, single in zip(both, alone, strict=True):
            for name in ("y", "state_out"):
                np.testing.assert_allclose(together[name][b], single[name][0], atol=1e-6)


def test_the_state_goes_on():
    """Three tokens and then one, with the state, are four in one call: bit for bit where it is compiled."""
    values = published_operands(np.random.default_rng(2))
    start = {"state": np.zeros((1, 2, 3, 3), np.float32)}
    for way in range(3):
        whole = every_way(delta_module(1, 4, 2, 3, state=True), {**values, **start})[way]
        parts = {name: x[:, :3] for name, x in values.items()}
        first = every_way(delta_module(1, 3, 2, 3, state=True), {**parts, **start})[way]
        rest = {name: x[:, 3:] for name, x in values.items()}
        second = every_way(delta_module(1, 1, 2, 3, state=True), {**rest, "state": first["state_out"]})[way]
        np.testing.assert_allclose(second["y"][:, 0], whole["y"][:, 3], rtol=1e-6)
        np.testing.assert_allclose(second["state_out"], whole["state_out"], rtol=1e-6)


def test_published_module_of_several_blocks():
    """A delta rule [1, 4, 2, 8], rope, a norm and a packed product in one module, with legal sizes."""
    m = GraphModule.hir("m")
    operands = [m.input(name, [1, 4, 2, 8]) for name in "qkv"]
    gates = [m.input(name, [1, 4, 2]) for name in ("g", "beta")]
    y, _ = m.gated_delta_net(*operands, *gates)
    turned = m.rope(m.reshape(y, [1, 4, 16]), m.param("cos", [4, 4]), m.param("sin", [4, 4]), head_dim=8, style="half")
    normed = m.rms_norm(turned, m.param("gamma", [16]))
    x, w = m.input("x", [4, 256]), m.param("w", [16, 256], packed="q4_k")
    assert formats.get_format("q4_k").row_bytes(256) == 144
    m.set_outputs({"normed": normed, "product": m.dequant_matmul(x, w)})
    lowered = m.lower()
    found = {node.op: node for node in lowered.nodes()}
    assert found.keys() == {"mir.gated_delta_net", "mir.reshape", "mir.rope", "mir.rms_norm", "mir.dequant_matmul"}
    assert len(found["mir.gated_delta_net"].operands) == 5
    assert found["mir.dequant_matmul"].name == "dequant_matmul(q4_k)"


def test_labels():
    """Blocks without a name have their labels, as do the operations that they become."""
    p = Program()
    operands = delta_operands(p, "f32", 4)
    p.m.gated_delta_net(*operands)
    p.m.gated_delta_net_carry(*operands, p.input("state", ["b", 2, 4, 4]))
    named = p.m.gated_delta_net(*operands, name="scan")[0]
    p.output(y=named)
    assert [node.name for node in p.m.nodes()] == ["gated_delta_net", "gated_delta_net_carry", "scan"]
    text = """
      func.func @f(%q: tensor<1x4x2x8xf32>, %g: tensor<1x4x2xf32>, %s: tensor<1x2x8x8xf32>) -> tensor<1x4x2x8xf32> {
        %y, %t = hir.gated_delta_net %q, %q, %q decay %g beta %g state %s
            : tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2xf32>,
              tensor<1x4x2xf32>, tensor<1x2x8x8xf32>
        return %y : tensor<1x4x2x8xf32>
      }"""
    (node,) = GraphModule.from_text(text).lower().nodes()
    assert (node.op, node.name) == ("mir.gated_delta_net", "gated_delta_net_carry")


# -- images ----------------------------------------------------------------------------------------------------------


def scalar_conv_transpose(x, w, stride, padding, output_padding, dilation, groups):
    """Each pixel adds its kernel to the result."""
    inputs, per_group, *kernel = w.shape
    height, width = (
        (size - 1) * s - 2 * p + d * (k - 1) + 1 + more
        for size, k, s, p, more, d in zip(x.shape[2:], kernel, stride, padding, output_padding, dilation, strict=True)
    )
    y = np.zeros((x.shape[0], per_group * groups, height, width))
    for n, ci, i, j in np.ndindex(*x.shape):
        for o, u, v in np.ndindex(per_group, *kernel):
            row, column = i * stride[0] + u * dilation[0] - padding[0], j * stride[1] + v * dilation[1] - padding[1]
            if 0 <= row < height and 0 <= column < width:
                y[n, ci // (inputs // groups) * per_group + o, row, column] += float(x[n, ci, i, j]) * float(
                    w[ci, o, u, v]
                )
    return y


@pytest.mark.parametrize(
    ("stride", "padding", "output_padding", "dilation", "groups"),
    [
        ((1, 1), (0, 0), (0, 0), (1, 1), 1),
        ((2, 2), (1, 0), (1, 0), (1, 1), 2),
        ((3, 1), (0, 1), (2, 0), (1, 2), 1),
        ((2, 3), (2, 2), (0, 1), (2, 1), 4),  # takes away more than the kernels add
    ],
)
def test_conv_transpose2d(stride, padding, output_padding, dilation, groups):
    m = GraphModule.mir("m")
    x, w = m.input("x", [2, 4, 3, 4]), m.param("w", [4, 3, 3, 2])
    y = m.conv_transpose2d(
        x, w, stride=stride, padding=padding, output_padding=output_padding, dilation=dilation, groups=groups
    )
    m.set_outputs({"y": y})
    rng = np.random.default_rng(0)
    values = {
        "x": rng.standard_normal((2, 4, 3, 4)).astype(np.float32),
        "w": rng.standard_normal((4, 3, 3, 2)).astype(np.float32),
    }
    want = scalar_conv_transpose(values["x"], values["w"], stride, padding, output_padding, dilation, groups)
    assert y.shape == want.shape
    np.testing.assert_allclose(interpret(m, values)["y"], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", [(3, 4), ("h", "w")], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    ("stride", "padding", "output_padding"),
    [((1, 1), (0, 0), (0, 0)), ((2, 3), (1, 0), (0, 1)), ((1, 2), (0, 1), (0, 0))],
)
@pytest.mark.quick(1)
def test_conv_transpose2d_multiplies_pixels_alone(stride, padding, output_padding, sizes):
    m = GraphModule.mir("m")
    x, w = m.input("x", [1, 2, *sizes]), m.param("w", [2, 2, 2, 3])
    y = m.conv_transpose2d(x, w, stride=stride, padding=padding, output_padding=output_padding)
    m.set_outputs({"y": y})
    rng = np.random.default_rng(0)
    values = {
        "x": rng.standard_normal((1, 2, 3, 4)).astype(np.float32),
        "w": rng.standard_normal((2, 2, 2, 3)).astype(np.float32),
    }
    values["w"][0, 0, 0, 1], values["w"][1, 1, 1, 2], values["x"][0, 1, 2, 3] = np.inf, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        want = scalar_conv_transpose(values["x"], values["w"], stride, padding, output_padding, (1, 1), 1)
    assert np.isfinite(want).any()
    assert np.isinf(want).any()
    assert np.isnan(want).any()
    np.testing.assert_allclose(interpret(m, values)["y"], want, rtol=1e-4, atol=1e-5)
    executable = compile_fresh(m)
    executable.set_params({"w": values["w"]})
    np.testing.assert_allclose(executable.run({"x": values["x"]})["y"], want, rtol=1e-4, atol=1e-5)


def test_conv2d_multiplies_the_zeros_around_an_image():
    """As in the formula, and in torch: an infinite weight gives NaN at the border, in every form of convolution."""
    m = GraphModule.mir("m")
    x, w, each = m.input("x", [1, 2, 4, 4]), m.param("w", [2, 2, 3, 3]), m.param("each", [2, 1, 3, 3])
    m.set_outputs({"full": m.conv2d(x, w, padding=1), "depthwise": m.conv2d(x, each, padding=1, groups=2)})
    values = {"x": np.ones((1, 2, 4, 4), np.float32)}
    params = {"w": np.ones((2, 2, 3, 3), np.float32), "each": np.ones((2, 1, 3, 3), np.float32)}
    for array in params.values():
        array[:, :, 0, 0] = np.inf
    found = interpret(m, values | params)
    executable = compile_fresh(m)
    executable.set_params(params)
    for name, got in executable.run(values).items():
        border = np.isnan(got[0, 0])
        assert border[0].all()
        assert border[:, 0].all()
        assert np.isposinf(got[0, 0, 1:, 1:]).all()
        np.testing.assert_array_equal(got, found[name])


def scalar_group_norm(x, gamma, beta, groups, eps):
    wide = x.astype(np.float64).reshape(x.shape[0], groups, -1)
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + eps)
    return normal.reshape(x.shape) * gamma[:, None, None] + beta[:, None, None]


def test_images_of_dynamic_sizes():
    p = Program()
    m = p.m
    x, w = p.input("x", ["n", 4, "h", "w"]), p.param("weight", [4, 3, 3, 2])
    gamma, beta = p.param("gamma", [4]), p.param("beta", [4])
    p.output(
        transposed=m.conv_transpose2d(x, w, stride=2, padding=[1, 0], output_padding=[1, 0], groups=2),
        resized=m.resize_nearest_2x(x),
        group=m.group_norm(x, gamma, beta, num_groups=2, eps=0.25),
        pixel=m.layer_norm2d(x, gamma, beta, eps=0.25),
        conv=m.conv2d(x, p.param("kernel", [6, 2, 2, 2]), padding=1, groups=2),
    )
    ways = check(p, every(n=[0, 1, 2], h=[1, 3], w=[2, 5]), maxima={"n": 2, "h": 8, "w": 8})
    inputs, params = p.values({"n": 2, "h": 3, "w": 4})
    image, (g, b) = inputs["x"], (params["gamma"], params["beta"])
    found = ways.templates.run(inputs)
    np.testing.assert_array_equal(found["resized"], image.repeat(2, axis=2).repeat(2, axis=3))
    np.testing.assert_allclose(found["group"], scalar_group_norm(image, g, b, 2, 0.25), rtol=1e-4, atol=1e-5)
    across = image.transpose(0, 2, 3, 1)
    want = (across - across.mean(-1, keepdims=True)) / np.sqrt(across.var(-1, keepdims=True) + 0.25) * g + b
    np.testing.assert_allclose(found["pixel"], want.transpose(0, 3, 1, 2), rtol=1e-4, atol=1e-5)
    want = scalar_conv_transpose(image, params["weight"], (2, 2), (1, 0), (1, 0), (1, 1), 2)
    np.testing.assert_allclose(found["transposed"], want, rtol=1e-4, atol=1e-5)


def test_group_norm_of_bf16_is_rounded_once():
    m = GraphModule.mir("m")
    x, g, b = m.input("x", [2, 4, 3, 3], "bf16"), m.param("g", [4], "bf16"), m.param("b", [4], "bf16")
    m.set_outputs({"y": m.group_norm(x, g, b, num_groups=2)})
    rng = np.random.default_rng(0)
    dtype = x.dtype
    values = {"x": rng.standard_normal((2, 4, 3, 3)).astype(dtype), "g": np.ones(4, dtype), "b": np.zeros(4, dtype)}
    want = scalar_group_norm(values["x"], np.ones(4), np.zeros(4), 2, 1e-5)
    np.testing.assert_allclose(interpret(m, values)["y"].astype(np.float64), want, rtol=2.0**-8, atol=1e-6)


def test_an_image_that_is_too_small_at_run_time():
    """A kernel of 5 over h pixels, as a result and in between; 4 pixels are no position, which is a size."""
    m = GraphModule.mir("m")
    x, w = m.input("x", [1, 2, "h", 3]), m.param("w", [2, 2, 5, 1])
    y = m.conv2d(x, w)
    for outputs in ({"y": y}, {"sum": m.sum(y, 2)}):
        m.set_outputs(outputs)
        executable = compile_fresh(m)
        executable.set_params({"w": np.ones((2, 2, 5, 1), np.float32)})
        for size, total in ((5, 10), (4, 0)):
            (found,) = executable.run({"x": np.ones((1, 2, size, 3), np.float32)}).values()
            assert found.sum(initial=0) == total * 6
        with pytest.raises(InputError, match=r"'mir.conv' .* expects that h is at least 4, but 2 and 4 were given"):
            executable.run({"x": np.ones((1, 2, 2, 3), np.float32)})


def test_images_that_are_refused():
    m = GraphModule.mir("m")
    x, w, g = m.input("x", ["n", 4, "h", "w"]), m.param("w", [4, 3, 1, 1]), m.param("g", [4])
    with pytest.raises(
        BuildError, match=r"test_sequence_blocks\.py.*'num_groups' that divides the 4 channels of 'x', but got 3"
    ):
        m.group_norm(x, g, g, num_groups=3)
    with pytest.raises(
        BuildError, match=r"test_sequence_blocks\.py.*'groups' that divides the 4 channels of 'x'.*but got 3"
    ):
        m.conv_transpose2d(x, w, groups=3)
    with pytest.raises(BuildError, match=r"expects 'x' to have four dimensions, but its rank is 1"):
        m.group_norm(g, g, g, num_groups=2)
