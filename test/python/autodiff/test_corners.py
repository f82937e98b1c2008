# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Derivatives where rules may be right for most operands only: those that are read twice, and sizes of 0."""

from __future__ import annotations

import re

import numpy as np
import pytest
from derivatives import SINGLE, Case, apart, check, check_case, check_second, given, integers, normal, weight

from rlx_mlir import GraphModule, interpret
from rlx_mlir.autodiff.batched_modules import vmap
from rlx_mlir.autodiff.modules import hvp
from rlx_mlir.errors import BuildError

IMAGE = normal(1, 4, 2, 1)

#: Operations that are differentiated as others, of operands that are the same value.
TWICE = {
    "group_norm_backward_gamma": Case(lambda b, x: b.group_norm_backward_gamma(x, x, num_groups=2), {"x": IMAGE}),
    "group_norm_backward_input": Case(
        lambda b, x, g: b.group_norm_backward_input(x, g, x, num_groups=2, eps=0.25), {"x": IMAGE, "g": normal(4)}
    ),
    "fake_quantize_lsq_backward_x": Case(
        lambda b, x, s: b.fake_quantize_lsq_backward_x(x, s, x, bits=4),
        {"x": apart(5), "s": given([0.9], "f32")},
        wrt=["x"],
    ),
    "custom_fn": Case(lambda b, x: b.custom_fn(lambda one, two: b.mul(b.tanh(one), two), x, x), {"x": normal(3)}),
    "while": Case(
        lambda b, x: b.while_loop(
            lambda i, *state: b.lt(i, 2),
            lambda i, one, two: (b.add(i, 1), b.mul(b.tanh(one), two), one),
            (b.constant(np.int32(0)), x, x),
            limit=3,
        )[1:],
        {"x": normal(3)},
        orders=1,
    ),
}

EMPTY = {
    "matmul": Case(lambda b, x, w: b.matmul(x, w), {"x": normal(2, 3, 0), "w": normal(0, 2)}),
    "matmul without columns": Case(lambda b, x, w: b.matmul(x, w), {"x": normal(2, 3, 2), "w": normal(2, 0)}),
    "grouped_matmul": Case(
        lambda b, x, w, e: b.grouped_matmul(x, w, e),
        {"x": normal(3, 0), "w": normal(2, 0, 4), "e": integers(3, below=2)},
    ),
    "group_norm": Case(
        lambda b, x, g, c: b.group_norm(x, g, c, num_groups=2),
        {"x": normal(0, 2, 3, 3), "g": normal(2), "c": normal(2)},
    ),
    "group_norm of symbols": Case(
        lambda b, x, g: b.group_norm(x, g, num_groups=1),
        {"x": normal(0, 2, 3, 3).sized(0, 2, "h", "w"), "g": normal(2)},
    ),
    "conv_transpose2d": Case(
        lambda b, x, w: b.conv_transpose2d(x, w, stride=3, dilation=2),
        {"x": normal(0, 3, 0, 2), "w": normal(3, 3, 3, 3)},
    ),
    "conv_transpose2d of symbols": Case(
        lambda b, x, w: b.conv_transpose2d(x, w, stride=(3, 1), padding=(0, 2), dilation=(1, 2)),
        {"x": normal(1, 1, 0, 5).sized(1, 1, "h", "w"), "w": normal(1, 3, 3, 1)},
    ),
    "pool": Case(lambda b, x: b.pool(x, "max", (2, 1), stride=(1, 3), padding=(0, 2)), {"x": normal(1, 0, 2, 0)}),
    **{
        f"pool {kind} of padding": Case(
            lambda b, x, kind=kind: b.pool(x, kind, (2, 3), stride=(3, 1), padding=(1, 0)), {"x": normal(2, 1, 0, 4)}
        )
        for kind in ("sum", "mean", "prod")  # others have infinities
    },
    "max_pool2d_backward of padding": Case(
        lambda b, x, dy: b.maxpool2d_backward(x, dy, kernel_size=(2, 3), padding=(0, 1)),
        {"x": normal(1, 1, 2, 0), "dy": normal(1, 1, 1, 0)},
        wrt=["dy"],
    ),
    "scatter_add": Case(lambda b, u, i: b.scatter_add(u, i, 0, 1), {"u": normal(3), "i": given(0, "i32")}),
    "scatter_add of a symbol": Case(
        lambda b, u, i, like: b.scatter_add(u, i, like, 1),
        {"u": normal(3), "i": given(0, "i32"), "like": normal(2, 0).sized(2, "n")},
        wrt=["u"],
    ),
}

OTHERS = {
    "gather by floats": Case(
        lambda b, t, i: b.gather(t, i), {"t": normal(4, 2), "i": given([0.0, 3.0, 1.0], "f32")}, wrt=["t"]
    ),
    "gather by bytes": Case(
        lambda b, t, i: b.gather(t, b.cast(i, "ui8"), 1, batch_dims=1),
        {"t": normal(3, 150), "i": integers(3, 4, below=150)},
        wrt=["t"],
    ),
    "scatter_add by floats": Case(
        lambda b, u, i: b.scatter_add(u, i, 3),
        {"u": normal(4, 2), "i": given([-0.5, 2.5, 3.5, -1.5], "f32")},
        wrt=["u"],
    ),
    "scatter_add by bytes": Case(
        lambda b, u, i: b.scatter_add(u, b.cast(i, "ui8"), 300),
        {"u": normal(4), "i": given([3, 255, 100, 3], "i32")},
    ),
    "a norm of nothing that the type doesn't know": Case(
        lambda b, x, g: b.rms_norm(b.slice(x, 1, "n"), g),
        {"x": normal(2, 3).sized(2, "n"), "g": normal(0)},
    ),
    "a norm whose factor knows the size": Case(
        lambda b, x, g: b.rms_norm(x, g), {"x": normal(2, 5).sized(2, "n"), "g": normal(5)}
    ),
    "a norm with a mean whose factor knows the size": Case(
        lambda b, x, g: b.layer_norm(x, g), {"x": normal(2, 5).sized(2, "n"), "g": normal(5)}
    ),
    "a slice beyond the end": Case(lambda b, x: b.slice(x, 0, 3), {"x": normal(2)}),
    "a slice from the end on": Case(lambda b, x: b.slice(x, 1, "n"), {"x": normal(3, 3).sized("n", "n")}),
    "gather of a packed weight by floats": Case(
        lambda b, t, i, x: b.mul(b.gather(t, b.mul(i, x)), x),
        {"t": weight(4, 32), "i": given([0.0, 3.0, 1.0], "f32"), "x": given([[1.0]], "f32")},
        wrt=["i"],
        jumps=True,
    ),
    "a weight of floats that is repacked": Case(
        lambda b, x, w: b.dequant_matmul(x, b.repack(w)),
        {"x": normal(2, 32, dtype="f32"), "w": normal(3, 32, dtype="f32")},
        tolerance=SINGLE,
    ),
    "a packed weight in panels": Case(
        lambda b, x, w: b.dequant_matmul(x, b.repack(w)),
        {"x": normal(2, 32, dtype="f32"), "w": weight(3, 32)},
        tolerance=SINGLE,
    ),
}

CASES = {
    f"{name} {kind}".strip(): case
    for kind, cases in (("of the same", TWICE), ("of nothing", EMPTY), ("", OTHERS))
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_differences(name):
    check_case(CASES[name], name)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.orders > 1])
def test_second_derivatives_are_those_of_differences(name):
    check_second(CASES[name], name)


def test_regions_may_read_a_value_as_several_of_their_arguments():
    m = GraphModule.mir("twice")
    x, z, choice = m.input("x", [3], "f64"), m.input("z", [3], "f64"), m.input("choice", [], "i1")
    m.set_outputs({"y": m.cond(choice, lambda: m.mul(m.exp(x), z), lambda: z)})
    text = re.sub(r"(mir\.if .*?)%arg1", r"\1%arg0", m.to_text(locations=False), count=1)
    twice = GraphModule.from_text(text)
    assert twice.to_text(locations=False).count("%arg0, %arg0") == 1
    for chosen in (True, False):
        check(twice, {"x": np.array([0.3, -1.0, 2.0]), "z": np.zeros(3), "choice": np.array(chosen)}, ["x"])


def test_weights_that_are_repacked_have_batches():
    m = GraphModule.mir("repacked")
    x, w = m.input("x", [2, 32]), m.input("w", [3, 32])
    m.set_outputs({"y": m.dequant_matmul(x, m.repack(w))})
    values = {"x": np.ones((2, 32), np.float32), "w": np.arange(192, dtype=np.float32).reshape(2, 3, 32)}
    found = interpret(vmap(m, ["w"], size=2), values)["y"]
    np.testing.assert_allclose(found, np.einsum("mk,bnk->bmn", values["x"], values["w"]), 1e-6)


def test_images_of_splats_have_no_second_derivatives():
    m = GraphModule.mir("splats")
    sizes = {"positions": 6, "scales": 6, "rotations": 8, "opacities": 2, "colors": 6, "sh": 6, "meta": 23}
    image = m.gaussian_splat_render(*(m.input(name, [size]) for name, size in sizes.items()), width=4, height=3)
    m.set_outputs({"loss": m.sum(image * image, 0)})
    with pytest.raises(BuildError, match=r"'mir\.gaussian_splat_render_backward' .* it has no rule"):
        hvp(m, ["colors"])
