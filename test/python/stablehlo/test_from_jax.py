# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of JAX, against JAX."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx_mlir as rlx
from rlx_mlir.errors import InputError, StablehloError, StablehloUnsupportedError

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from networks import llama_jax as networks  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 8, 8, 3)).astype(np.float32)
KERNEL = RNG.standard_normal((3, 3, 3, 4)).astype(np.float32)
ROWS = RNG.standard_normal((6, 5)).astype(np.float32)
PLACES = np.array([1, 4, 4], np.int32)
NHWC = ("NHWC", "HWIO", "NHWC")


def tree_close(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(wanted)
    for own, other in zip(*map(jax.tree_util.tree_leaves, (found, wanted)), strict=True):
        assert (own.dtype, own.shape) == (other.dtype, other.shape)
        own, other = (np.asarray(each).astype(np.float64) for each in (own, other))
        np.testing.assert_allclose(own, other, atol=tolerance, rtol=tolerance)


# Operations -----------------------------------------------------------------------------------------


def pooled(x: Any) -> Any:
    return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "convolution of steps": (
        lambda x, w: lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=NHWC),
        [X, KERNEL],
    ),
    "gradients of a convolution": (
        jax.grad(
            lambda x, w: jnp.sin(lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=NHWC)).sum(), (0, 1)
        ),
        [X, KERNEL],
    ),
    "convolution by channel": (
        lambda x, w: lax.conv_general_dilated(
            x, w, (1, 1), "VALID", rhs_dilation=(2, 2), dimension_numbers=NHWC, feature_group_count=3
        ),
        [X, KERNEL[:, :, :1, :3]],
    ),
    "convolution of one dimension": (
        lambda x, w: lax.conv_general_dilated(x, w, (1,), [(2, 0)], dimension_numbers=("NWC", "WIO", "NWC")),
        [X[0], KERNEL[0]],
    ),
    "gradient of a maximum over windows": (jax.grad(lambda x: (pooled(x) ** 2).sum()), [X]),
    "gradient of a mean over windows": (
        jax.grad(lambda x: (lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") ** 2).sum()),
        [X],
    ),
    "sort": (lambda x: (jnp.sort(x, 0), jnp.argsort(x, -1), jnp.sort(x, -1, descending=True)), [ROWS]),
    "sort of integers": (lambda x: jnp.argsort(x, -1), [RNG.integers(-3, 3, (4, 7)).astype(np.int32)]),
    "largest": (lambda x: lax.top_k(x, 2), [ROWS]),
    "gradient of the largest": (jax.grad(lambda x: (lax.top_k(x, 2)[0] ** 2).sum()), [ROWS]),
    "places": (lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0)), [np.where(ROWS > 1, np.nan, ROWS)]),
    "running": (
        lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, 1), lax.cumsum(x, 0, reverse=True)),
        [ROWS],
    ),
    "any and all": (lambda x: ((x > 0).any(-1), (x > -1).all(0), x.prod(-1), x.min()), [ROWS]),
    "rows": (lambda x, i: (x[i], x[:, i], x[i, i], x[i, 1:3], jnp.take_along_axis(x, i[:, None], 0)), [ROWS, PLACES]),
    "added rows": (lambda x, i: (x.at[i].add(1.0), x.at[:, i].add(x[:, :3]), x.at[i, i].add(2.0)), [ROWS, PLACES]),
    "written rows": (lambda x, i: (x.at[i[:2]].set(2.0), x.at[1].set(3.0), x.at[:, i[1]].set(0.0)), [ROWS, PLACES]),
    "combined rows": (lambda x, i: (x.at[i].multiply(2.0), x.at[i].max(0.5), x.at[i].min(0.0)), [ROWS, PLACES]),
    "segments": (lambda x, i: jax.ops.segment_sum(x[:3], i, 6), [ROWS, PLACES]),
    "computed slices": (
        lambda x, i: (lax.dynamic_slice(x, (i, i - 9), (2, 3)), lax.dynamic_update_slice(x, x[:2, :2], (i, i))),
        [ROWS, np.int32(3)],
    ),
    "padding": (lambda x: (jnp.pad(x, ((0, 1), (2, 0))), lax.pad(x, 1.0, ((1, -1, 2), (-1, 2, 0)))), [ROWS]),
    "scan": (lambda x: lax.scan(lambda c, r: (jnp.tanh(c * 0.5 + r), c), x[0], x), [RNG.random((40, 3), np.float32)]),
    "gradient of a scan": (
        jax.grad(lambda x: lax.scan(lambda c, r: (jnp.tanh(c * 0.5 + r), c), x[0], x)[1].sum()),
        [RNG.random((40, 3), np.float32)],
    ),
    "scan of few steps": (lambda x: lax.scan(lambda c, r: (c + r, c * r), x[0], x, reverse=True), [ROWS]),
    "while": (lambda x: lax.while_loop(lambda c: c.sum() < 50, lambda c: c * 2 + 1, x), [np.abs(ROWS)]),
    "choices": (
        lambda x, i: (lax.cond(i > 1, jnp.sin, jnp.cos, x), lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x)),
        [ROWS, np.int32(5)],
    ),
    "functions": (
        lambda x: (
            jnp.floor(x), jnp.ceil(x), jnp.round(x), jnp.sign(x), jnp.expm1(x * 1e-3), jnp.log1p(jnp.abs(x) * 1e-4),
            jnp.cbrt(x), jnp.arctan2(x, x[::-1]), jnp.clip(x, 0, 1), jnp.remainder(x, 0.7), jnp.fmod(x, 0.7),
            jax.nn.gelu(x), jax.nn.gelu(x, approximate=False), jax.nn.softplus(x), jnp.isfinite(x), x**3,
            jnp.abs(x) ** 0.5, jnp.logaddexp(x, 1.0), jax.nn.log_softmax(x), jax.nn.logsumexp(x, 0), jnp.var(x, 0),
            jnp.nan_to_num(x / 0),
        ),
        [ROWS],
    ),
    "inverse functions": (
        lambda x: (
            lax.erf_inv(x), jnp.arcsin(x), jnp.arccos(x), jnp.sinh(x), jnp.cosh(x), jnp.arcsinh(x), jnp.arctanh(x)
        ),
        [np.clip(ROWS, -0.9, 0.9)],
    ),
    "integers": (
        lambda x: (x // 3, x % 3, x << 1, x >> 1, x & 3, x | 8, x ^ 5, ~x, lax.population_count(x), lax.clz(x), -x,
                   jnp.abs(x), x.astype(jnp.int8), x.astype(jnp.uint8), x.astype(jnp.float32)),
        [np.array([-300, -7, -1, 0, 1, 2, 5, 300], np.int32)],
    ),
    "bytes": (lambda a, b: lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32),
              [RNG.integers(-9, 9, (3, 4)).astype(np.int8), RNG.integers(-9, 9, (4, 5)).astype(np.int8)]),
    "bf16": (lambda a, b: a @ b, [ROWS.astype(jnp.bfloat16), ROWS.T.astype(jnp.bfloat16)]),
    "f16 with f32": (
        lambda a, b: lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32),
        [ROWS.astype(np.float16), ROWS.T.astype(np.float16)],
    ),
    "products": (
        lambda x: (jnp.einsum("abcd,aecd->bea", x, x), jnp.tensordot(x, x, 4), jnp.outer(x[0, 0, 0], x[0, 0, 1])),
        [X],
    ),
    "normal numbers": (lambda k: jax.random.normal(k, (3, 4)), [np.array([1, 2], np.uint32)]),
    "bits": (lambda k: jax.random.bits(k, (7,)), [np.array([1, 2], np.uint32)]),
    "computed again": (jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x).sum()), [ROWS]),
    "reversed": (lambda x: (jnp.flip(x, 1), x[::-2], jnp.roll(x, 2, 0)), [ROWS]),
    "triangles": (lambda x: (jnp.tril(x), jnp.triu(x, 1), jnp.eye(5), jnp.arange(4) * 3), [ROWS]),
    "without elements": (lambda x: (x[:0].sum(0), jnp.concatenate([x[:0], x]), x[:0] @ x.T), [ROWS]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.quick(12)
def test_operations(name: str) -> None:
    function, arguments = CASES[name]
    program = rlx.from_jax(function, *arguments)
    wanted, tolerance = jax.jit(function)(*arguments), 1e-2 if name == "bf16" else 1e-5
    tree_close(program.compile(threads=1)(*arguments), wanted, tolerance)
    given = dict(zip(program._leaves, arguments, strict=True))
    found = program.interpret({own: np.asarray(given[own]) for own in program.inputs})
    tree_close(list(found.values()), jax.tree_util.tree_leaves(wanted), tolerance)


# A network ------------------------------------------------------------------------------------------


def ids_of(batch: int, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 48, (batch, length)).astype(np.int32)


def test_training_goes_as_it_does_in_jax() -> None:
    """100 steps of SGD: by JAX, and by JAX's gradients as we compile them.

    Longer steps would say nothing: with 0.1, changes of parameters by 1e-7 move JAX's own losses by 3e-3.
    """
    step = jax.jit(jax.value_and_grad(networks.loss))
    own = other = networks.parameters()
    run = rlx.from_jax(step, own, ids_of(2, 9)).compile(threads=1)
    losses: list[tuple[float, float]] = []
    for number in range(100):
        ids = ids_of(2, 9, number % 4)
        theirs, gradient = step(other, ids)
        other = jax.tree_util.tree_map(lambda p, g: p - 0.05 * g, other, gradient)
        ours, gradient = run(own, ids)
        own = jax.tree_util.tree_map(lambda p, g: np.asarray(p - np.float32(0.05) * g), own, gradient)
        losses.append((float(ours), float(theirs)))
    ours_, theirs_ = np.array(losses).T
    np.testing.assert_allclose(ours_, theirs_, atol=1e-4)
    assert theirs_[-1] < theirs_[0] - 0.5  # it learns something


def test_our_gradients_of_a_function_are_those_of_jax() -> None:
    parameters, ids = networks.parameters(), ids_of(2, 9)
    program = rlx.from_jax(networks.loss, parameters, ids, params=0)
    executable = rlx.compile(rlx.value_and_grad(program.module), threads=1)
    executable.set_params(program.params)
    found = executable.run({"ids": ids})
    value, gradient = jax.value_and_grad(networks.loss)(parameters, ids)
    assert np.isclose(found["result"], value, atol=1e-5)
    for path, wanted in jax.tree_util.tree_flatten_with_path(gradient)[0]:
        name = ".".join(str(getattr(key, "key", getattr(key, "idx", None))) for key in path)
        np.testing.assert_allclose(found[f"d_p.{name}"], wanted, atol=1e-5)


def test_symbols_are_those_of_symbolic_shapes() -> None:
    parameters = networks.parameters(layers=1)
    batch, length = jax.export.symbolic_shape("batch, length")
    program = rlx.from_jax(networks.llama, parameters, jax.ShapeDtypeStruct((batch, length), np.int32), params=0)
    assert program.module.inputs[0].shape == ("batch", "length")
    assert program.module.outputs["result"].shape == ("batch", "length", 48)
    assert "mir.attention +1" in str(program.module.fusion_report())
    run = program.compile(threads=1, maxima={"batch": 3, "length": 40})
    templates = run.executable.artifact.templates
    assert not {kernel: why for kernel, why in templates.items() if why.startswith("generic")}
    for sizes in ((1, 1), (2, 9), (3, 40)):
        ids = ids_of(*sizes)
        np.testing.assert_allclose(run(ids), networks.llama(parameters, ids), atol=2e-5)


def test_sizes_that_are_computed() -> None:
    (length,) = jax.export.symbolic_shape("n")

    def halves(x: Any) -> Any:
        half = x.shape[0] // 2
        return x[half:].sum(0), jnp.concatenate([x, x]).reshape(2, -1, 3)[1], jnp.arange(x.shape[0] + 1)

    program = rlx.from_jax(halves, jax.ShapeDtypeStruct((length, 3), np.float32))
    for size in (1, 2, 7):
        x = np.random.default_rng(0).standard_normal((size, 3)).astype(np.float32)
        tree_close(program.compile(threads=1)(x), halves(x))


# How functions are called ---------------------------------------------------------------------------


def test_structures_of_arguments_and_results() -> None:
    def function(p: Any, *, scale: Any, more: Any = None) -> Any:
        return {"sum": p["a"] * scale + p["b"][0], "pair": (p["a"], [p["b"][1]])}

    p = {"a": np.ones(3, np.float32), "b": (np.float32(2), np.arange(3))}
    program = rlx.from_jax(function, p, scale=np.float32(2))
    assert program.inputs == ("p.a", "p.b.0", "p.b.1", "scale")
    assert program.outputs == ("pair.0", "pair.1.0", "sum")
    run = program.compile(threads=1)
    tree_close(run(p, scale=np.float32(2)), jax.jit(function)(p, scale=np.float32(2)))
    with pytest.raises(InputError, match=r"the function was exported to be called with .* but got"):
        run(p, np.float32(2))


def test_arguments_that_are_parameters() -> None:
    weight = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    program = rlx.from_jax(lambda x, w, y: x @ w + y, ROWS, weight, np.float32(1), params=1)
    assert (program.inputs, list(program.params)) == (("x", "y"), ["w"])
    tree_close(program.compile(threads=1)(ROWS, np.float32(3)), jnp.asarray(ROWS @ weight + 3))
    with pytest.raises(InputError, match="'params' has numbers of the 1 arguments, from 0, but got 1"):
        rlx.from_jax(jnp.sin, ROWS, params=1)


def test_donated_arguments_are_tied() -> None:
    def step(state: Any, x: Any) -> Any:
        return state - 0.5 * (state @ x), x.sum()

    state, x = np.eye(4, dtype=np.float32), np.ones((4, 4), np.float32)
    program = rlx.from_jax(jax.jit(step, donate_argnums=0), state, x)
    assert 'mir.ties = {result.0 = "state"}' in program.module.to_text()
    executable = program.compile(threads=1).executable
    given = state.copy()
    found = executable.run({"state": given, "x": x}, donate=["state"])
    assert found["result.0"] is given
    np.testing.assert_allclose(given, state - 0.5 * state @ x)


def test_what_is_unknown_is_listed_with_lines() -> None:
    with pytest.raises(StablehloUnsupportedError) as caught:
        rlx.from_jax(lambda x: jnp.linalg.det(x @ x.T) + jnp.linalg.cholesky(x @ x.T).sum(), ROWS)
    assert {"@lapack_spotrf_ffi"} <= caught.value.operations.keys()
    assert Path(__file__).name in str(caught.value)


def test_values_that_no_graph_has() -> None:
    with pytest.raises(StablehloUnsupportedError, match="argument 'x' is of type tensor<3xui4>"):
        rlx.from_jax(lambda x: x, np.zeros(3, jnp.uint4))


# Files ----------------------------------------------------------------------------------------------


def test_every_form_of_a_file_is_read(tmp_path: Path) -> None:
    exported = jax.export.export(jax.jit(lambda x: {"y": jnp.tanh(x) @ x.T}))(ROWS)
    forms: dict[str, bytes] = {
        "pretty.mlir": exported.mlir_module().encode(),
        "artifact.mlirbc": exported.mlir_module_serialized,
        "exported.bin": bytes(exported.serialize()),
    }
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
        for source in (tmp_path / name, content):
            model = rlx.from_stablehlo(source)
            found = model.compile(threads=1)
            found = found(ROWS) if name == "exported.bin" else found.run({"x": ROWS})
            np.testing.assert_allclose(found["y"], np.tanh(ROWS) @ ROWS.T, atol=1e-5)


def test_damaged_artifacts_are_an_error() -> None:
    content = jax.export.export(jax.jit(jnp.sin))(ROWS).mlir_module_serialized
    for damaged in (content[: len(content) // 2], content[:40] + b"\xff" * 40 + content[80:]):
        with pytest.raises(StablehloError, match=r"a portable artifact|is damaged"):
            rlx.from_stablehlo(damaged)


@pytest.mark.parametrize("first", ["jaxlib", "ours"])
def test_both_mlirs_are_in_one_process(first: str) -> None:
    order = ["jaxlib", "ours"] if first == "jaxlib" else ["ours", "jaxlib"]
    program = (
        "import numpy as np\n"
        "def jaxlib():\n import jax, jax.numpy as jnp; jax.jit(jnp.sin).lower(np.ones(3)).as_text()\n"
        "def ours():\n import rlx_mlir as rlx; m = rlx.GraphModule.mir('m'); x = m.input('x', [3]); "
        "m.set_outputs({'y': m.sin(x)}); assert 'mir.sin' in m.to_text()\n"
        f"for run in {[*order, 'ours', 'jaxlib']}: globals()[run]()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
