# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transformations of modules: what they are called with, what they give, how they compose, what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.errors import BuildError, GradientWarning, StageError

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((5, 4)), RNG.standard_normal((4, 3))


def layer() -> GraphModule:
    """tanh(x w), and the sums of its rows."""
    m = GraphModule.mir("layer")
    x, w = m.input("x", ["n", 4], "f64"), m.param("w", [4, 3], "f64")
    y = m.tanh(m.matmul(x, w))
    m.set_outputs({"y": y, "sums": m.sum(y, 1)})
    return m


def loss() -> GraphModule:
    """The sum of x^4."""
    m = GraphModule.mir("loss")
    x = m.input("x", ["n", 4], "f64")
    m.set_outputs({"loss": m.sum(x * x * x * x)})
    return m


def names(module: GraphModule) -> tuple[list[str], list[str], list[str]]:
    return [v.name for v in module.inputs], [v.name for v in module.params], list(module.outputs)


def test_names_of_arguments_and_outputs():
    assert names(rlx.vjp(layer(), ["x", "w"])) == (
        ["x", "d_y", "d_sums"],
        ["w"],
        ["y", "sums", "d_x", "d_w"],
    )
    assert names(rlx.jvp(layer(), ["x"])) == (["x", "t_x"], ["w"], ["y", "sums", "t_y", "t_sums"])
    assert names(rlx.grad(loss())) == (["x"], [], ["d_x"])
    assert names(rlx.value_and_grad(loss())) == (["x"], [], ["loss", "d_x"])
    assert names(rlx.grad_with_loss(loss())) == (["x"], [], ["loss", "d_x"])
    assert names(rlx.hvp(loss())) == (["x", "t_x"], [], ["h_x"])
    assert names(rlx.jacrev(layer(), "x")) == (["x"], ["w"], ["j_y_x", "j_sums_x"])
    assert names(rlx.jacfwd(layer(), ["w"])) == (["x"], ["w"], ["j_y_w", "j_sums_w"])
    assert names(rlx.hessian(loss())) == (["x"], [], ["h_x"])


def test_names_that_are_taken_get_the_prefix_again():
    twice = rlx.vjp(rlx.vjp(layer(), "x"), "x")
    assert names(twice) == (
        ["x", "d_y", "d_sums", "d_d_y", "d_d_sums", "d_d_x"],
        ["w"],
        ["y", "sums", "d_x", "d_d_x"],
    )


def test_parameters_are_the_default_and_inputs_where_there_are_none():
    assert list(rlx.vjp(layer()).outputs) == ["y", "sums", "d_w"]
    assert list(rlx.vjp(loss()).outputs) == ["loss", "d_x"]


def test_modules_are_not_changed():
    m = layer()
    before = m.to_text()
    rlx.vjp(m), rlx.jvp(m), rlx.vmap(m, "x"), rlx.jacrev(m)
    assert m.to_text() == before


def test_second_derivatives_are_exact():
    v = RNG.standard_normal((5, 4))
    found = rlx.interpret(rlx.hvp(loss()), {"x": X, "t_x": v})
    np.testing.assert_allclose(found["h_x"], 12 * X**2 * v, rtol=1e-9)
    matrix = rlx.interpret(rlx.hessian(loss()), {"x": X})["h_x"].reshape(20, 20)
    np.testing.assert_allclose(matrix, np.diag(12 * X.reshape(-1) ** 2), rtol=1e-9)


def test_matrices_of_derivatives_are_those_of_numpy():
    by_x, by_w = (rlx.interpret(make(layer(), ["x", "w"]), {"x": X, "w": W}) for make in (rlx.jacrev, rlx.jacfwd))
    slope = 1 - np.tanh(X @ W) ** 2
    wanted = np.einsum("nj,nm,ij->njmi", slope, np.eye(5), W)
    for found in (by_x, by_w):
        np.testing.assert_allclose(found["j_y_x"], wanted, atol=1e-12)
        np.testing.assert_allclose(found["j_y_w"], np.einsum("nj,ni,jk->njik", slope, X, np.eye(3)), atol=1e-12)
        np.testing.assert_allclose(found["j_sums_x"], wanted.sum(1), atol=1e-12)


def test_matrices_of_scalars():
    m = GraphModule.mir("scalars")
    x = m.input("x", [], "f64")
    m.set_outputs(m.exp(x))
    for make in (rlx.jacrev, rlx.jacfwd):
        found = make(m)
        assert found.outputs["j_x"].shape == ()
        np.testing.assert_allclose(rlx.interpret(found, {"x": np.float64(1)})["j_x"], np.e)


def test_transformations_compose():
    """Gradients of each entry of a batch, from both orders; forward mode of gradients."""
    one = GraphModule.mir("one")
    x, w = one.input("x", [4], "f64"), one.param("w", [4, 3], "f64")
    y = one.tanh(one.matmul(one.reshape(x, [1, 4]), w))
    one.set_outputs({"loss": one.sum(y * y)})
    each = rlx.vmap(rlx.grad(one, ["x", "w"]), "x", size="n")
    found = rlx.interpret(each, {"x": X, "w": W})
    whole = rlx.vmap(one, "x", size="n")
    whole.set_outputs({"loss": whole.sum(whole.outputs["loss"])})
    summed = rlx.interpret(rlx.grad(whole, ["x", "w"]), {"x": X, "w": W})
    np.testing.assert_allclose(found["d_x"], summed["d_x"], rtol=1e-12)
    np.testing.assert_allclose(found["d_w"].sum(0), summed["d_w"], rtol=1e-12)
    v = RNG.standard_normal((4, 3))
    forth = rlx.interpret(rlx.jvp(rlx.grad(whole, ["w"]), ["w"]), {"x": X, "w": W, "t_w": v})["t_d_w"]
    back = rlx.grad(whole, ["w"])
    back.set_outputs({"product": back.sum(back.outputs["d_w"] * back.constant(v))})
    np.testing.assert_allclose(forth, rlx.interpret(rlx.grad(back, ["w"]), {"x": X, "w": W})["d_w"], rtol=1e-9)


def test_one_value_may_be_several_outputs():
    m = GraphModule.mir("same")
    x = m.input("x", [3], "f64")
    m.set_outputs({"a": x, "b": x, "c": x * 2.0})
    seeds = {f"d_{name}": RNG.standard_normal(3) for name in "abc"}
    found = rlx.interpret(rlx.vjp(m), {"x": X[0, :3], **seeds})
    np.testing.assert_allclose(found["d_x"], seeds["d_a"] + seeds["d_b"] + 2 * seeds["d_c"])


def test_integers_and_conditions_have_no_cotangents():
    m = GraphModule.mir("mixed")
    x = m.input("x", [6])
    values, places = m.top_k(x, 2)
    m.set_outputs({"values": values, "places": places, "large": x > 0.0})
    assert names(rlx.vjp(m)) == (["x", "d_values"], [], ["values", "places", "large", "d_x"])
    assert list(rlx.jvp(m).outputs) == ["values", "places", "large", "t_values"]


def test_gradients_that_nothing_reaches_are_zeros():
    m = GraphModule.mir("apart")
    x, w = m.input("x", [2], "f64"), m.param("w", ["k"], "f64")
    m.set_outputs({"loss": m.sum(x)})
    with pytest.warns(GradientWarning, match="depends on argument 'w' of module 'apart': its gradient is zeros") as got:
        module = rlx.grad(m)
    assert got[0].filename == __file__
    np.testing.assert_array_equal(rlx.interpret(module, {"x": X[0, :2], "w": X[0]})["d_w"], np.zeros(4))
    assert w.shape == ("k",)


def test_blocks_are_differentiated_as_primitives():
    m = GraphModule.hir("blocks")
    x = m.input("x", ["b", 8])
    y = m.rms_norm(m.linear(x, m.param("w", [8, 8]), m.param("b", [8])), m.param("g", [8]))
    m.set_outputs({"loss": m.sum(y * y)})
    found = rlx.value_and_grad(m)
    assert found.stage == "mir"
    assert list(found.outputs) == ["loss", "d_w", "d_b", "d_g"]


def test_operations_know_the_line_that_built_what_they_are_of():
    m = layer()
    for node in rlx.vjp(m).nodes():
        assert "test_modules.py" in str(node.source), node.op


def test_compiled_gradients_of_any_size():
    executable = rlx.compile(rlx.vjp(layer(), ["x", "w"]), cache=False)
    executable.set_params({"w": W})
    for rows in (1, 5):
        given = {"x": X[:rows], "d_y": RNG.standard_normal((rows, 3)), "d_sums": RNG.standard_normal(rows)}
        expected = rlx.interpret(rlx.vjp(layer(), ["x", "w"]), given | {"w": W})
        for name, array in executable.run(given).items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "wrt", "message"),
    [
        (rlx.vjp, ["z"], "module 'layer' has no argument 'z' to be differentiated by, it has x, w"),
        (rlx.vjp, [], "'wrt' names arguments, each once, but got"),
        (rlx.vjp, ["x", "x"], "'wrt' names arguments, each once, but got"),
        (rlx.vjp, 3, "'wrt' expects several names, but got 3"),
        (rlx.grad, None, "'grad' is of a module with one output, but 'layer' has y, sums"),
        (rlx.value_and_grad, None, r"one element of floats, but output 'y' of module 'layer' is tensor<\?x3xf64>"),
        (rlx.hessian, "w", "'grad' is of a module with one output"),
    ],
)
def test_what_is_refused(make, wrt, message):
    with pytest.raises(BuildError, match=message) as error:
        make(layer(), wrt)
    assert __file__ in str(error.value)


def test_arguments_without_derivatives_are_refused():
    m = GraphModule.mir("packed")
    x, w, i = m.input("x", [2, 32]), m.param("w", [4, 32], packed="q8_0"), m.input("i", [2], "i32")
    m.set_outputs({"y": m.matmul(x, w), "j": i})
    for name in ("w", "i"):
        with pytest.raises(BuildError, match=f"argument '{name}' of module 'packed' has no derivative"):
            rlx.vjp(m, name)
    none = GraphModule.mir("none")
    none.set_outputs({"i": none.input("i", [2], "i32")})
    with pytest.raises(BuildError, match="module 'none' has no argument of floats"):
        rlx.vjp(none)


def test_what_is_no_module_is_refused():
    for make in (rlx.vjp, rlx.grad, rlx.jvp, rlx.hvp, rlx.jacrev, rlx.hessian):
        with pytest.raises(BuildError, match="a GraphModule is expected, but got 'text'"):
            make("text")
    lowered = layer().transform("mir-outline-kernels", stage="kernels")
    with pytest.raises(StageError, match="module 'layer' is at stage kernels: derivatives are of hir and mir"):
        rlx.vjp(lowered)


def test_matrices_by_complex_numbers_are_refused():
    m = GraphModule.mir("complex")
    z = m.input("z", [2], "complex<f32>")
    m.set_outputs({"y": m.complex_norm_sq(z)})
    with pytest.raises(BuildError, match=r"of real numbers, but argument 'z'.*'jvp' and 'vjp' take it"):
        rlx.jacrev(m)
