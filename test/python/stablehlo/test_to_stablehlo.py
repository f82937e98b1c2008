# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules that are written as StableHLO mean what they meant: read again, and run by JAX."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.semantics.function import arguments, entry_function
from rlx_mlir.tools.cli import app
from rlx_mlir.verify.inputs import draw

Module = rlx.GraphModule
HAS_JAX = importlib.util.find_spec("jax") is not None


def unary(m: Module, dtype: str) -> Any:
    x = m.input("x", [3, 5], dtype)
    y = m.abs(x) + 0.5
    names = "exp sin cos tan tanh atan round neg relu sigmoid silu gelu gelu_approx erfc"
    return [getattr(m, name)(x) for name in names.split()] + [m.sqrt(y), m.rsqrt(y), m.log(y), m.pow(y, x)]


def binary(m: Module, dtype: str) -> Any:
    x, y = m.input("x", [4, 5], dtype), m.input("y", [5], dtype)
    kinds = [m.compare(kind, x, y) for kind in ("eq", "ne", "lt", "le", "gt", "ge")]
    return [x + y, x - y, x * y, x / (m.abs(y) + 1.0), m.maximum(x, y), m.minimum(x, y), *kinds, m.where(x > y, x, y)]


def integers(m: Module, dtype: str) -> Any:
    numbers = np.array([-7, -2, -1, 0, 1, 3, 100]).astype(DTYPES[dtype])
    x = m.add(m.input("x", [7], dtype), numbers)
    y = m.constant(np.array([2, -3, 0, 4, -1, 5, 7]).astype(DTYPES[dtype]))
    casts = [m.cast(x, kind) for kind in ("i8", "i64", "ui8", "f32", "i1", "f16")]
    results = [m.floor_div(x, y), m.floor_rem(x, y), m.trunc_div(x, y), m.trunc_rem(x, y)]
    return [*results, *casts, m.bitwise_and(x, y), m.bitwise_or(x, y), m.bitwise_xor(x, y), m.bitwise_not(x)]


def shapes(m: Module, dtype: str) -> Any:
    x = m.input("x", [4, 6, 2], dtype)
    at = m.constant(np.array(3, np.int32))
    moved = [
        m.reshape(x, [8, 6]),
        m.transpose(x, [2, 0, 1]),
        m.narrow(x, 1, 2, 3),
        x[:, ::-2],
        x[1:, -2:],
        m.flip(x, 0),
    ]
    moved += [m.concat([x, x], 1), m.expand(m.narrow(x, 0, 0, 1), [3, 6, 2]), m.iota([4, 3], 1), m.dim(x, 1)]
    moved += [m.dynamic_slice(x, at, 2, 1), m.dynamic_update_slice(x, x[:2], at, 0), m.barrier(x)]
    return [*moved, m.cumsum(x, 1), m.cumsum(x, 0, exclusive=True)]


def reductions(m: Module, dtype: str) -> Any:
    x = m.input("x", [4, 5, 3], dtype)
    found = [m.reduce(x, kind, axes) for kind in ("sum", "mean", "max", "min", "prod") for axes in ([1], [0, 2])]
    return [
        *found,
        m.sum(x, 1, keep_dims=True),
        m.any(x > 0, 0),
        m.all(x > -1, [1, 2]),
        *m.top_k(x, 2),
        m.softmax(x, 1),
    ]


def indices(m: Module, dtype: str) -> Any:
    x = m.input("x", [4, 5, 3], dtype)
    i = np.array([[3, 0], [9, -1]], np.int32)
    own = m.gather(x, np.array([[1, 2], [0, 4], [3, 3], [0, 0]], np.int64), 1, batch_dims=1)
    return [m.gather(x, i), m.gather(x, i, 1), own, m.scatter_add(x, np.array([1, 0, 1, 7], np.int32), 3, 0)]


def products(m: Module, dtype: str) -> Any:
    a, b, w = m.input("a", [2, 3, 4], dtype), m.input("b", [2, 5, 4], dtype), m.param("w", [4, 6], dtype)
    expert = np.array([0, 2, 1], np.int32)
    grouped = m.grouped_matmul(m.input("x", [3, 4], dtype), m.param("experts", [3, 4, 2], dtype), expert)
    dots = m.dot_general(a, b, lhs_contracting=[2], rhs_contracting=[2], lhs_batch=[0], rhs_batch=[0])
    return [m.matmul(a, w), m.matmul(a, b, transpose_rhs=True), dots, m.dot_general(a, b), grouped]


def blocks(m: Module, dtype: str) -> Any:
    x, g, b = m.input("x", [2, 6, 16], dtype), m.param("g", [16], dtype), m.param("b", [16], dtype)
    cos, sin = m.input("cos", [8, 4], dtype), m.input("sin", [8, 4], dtype)
    pos = m.constant(np.array([1, 2], np.int32))
    p = m.primitives
    found = [p.rms_norm(x, g), m.layer_norm(x, g, b), p.rope(x, cos, sin, head_dim=8, style="half")]
    found += [p.rope(x, cos, sin, pos=pos, head_dim=8, n_rot=4, style="interleaved")]
    k = m.input("k", [2, 9, 8], dtype)
    mask, bias = m.input("seen", [2, 9], "i1"), m.input("bias", [1, 2, 6, 9], dtype)
    for kind, more in (("none", {}), ("causal", {}), ("sliding_window", {"window": 3}), ("custom", {"mask": mask}),
                       ("bias", {"mask": bias}), ("causal", {"pos": pos, "softcap": 5.0, "scale": 0.3}),
                       ("sliding_window", {"window": 3, "sinks": m.param("sinks", [2], dtype)})):  # fmt: skip
        given = {"num_heads": 2, "num_kv_heads": 1, "head_dim": 8, "mask_kind": kind, **more}
        found.append(p.attention(x, k, k, **given))
    logits, labels = m.input("logits", [4, 7], dtype), np.array([0, 3, 6, 9], np.int32)
    return [*found, m.softmax_cross_entropy_with_logits(logits, labels)]


def images(m: Module, dtype: str) -> Any:
    x, w = m.input("x", [2, 4, 7, 6], dtype), m.param("w", [6, 2, 3, 2], dtype)
    y = m.conv2d(x, w, stride=(2, 1), padding=(1, 1), dilation=(1, 2), groups=2)
    found = [y, m.conv2d_backward_input(y, w, x, stride=(2, 1), padding=(1, 1), dilation=(1, 2), groups=2)]
    v = m.param("v", [4, 5, 3, 2], dtype)
    found += [m.conv_transpose2d(x, v, stride=(2, 1), padding=(1, 0), output_padding=(1, 0), dilation=(1, 2))]
    z = m.conv2d(x, m.param("u", [5, 4, 3, 2], dtype), stride=2, padding=1)
    found += [m.conv2d_backward_weight(x, z, kernel_size=(3, 2), stride=2, padding=1), m.resize_nearest_2x(x)]
    found += [m.pool(x, kind, (3, 2), stride=(2, 1), padding=(1, 0)) for kind in ("max", "mean", "sum", "min")]
    top = m.pool(x, "max", (3, 2), stride=(2, 1), padding=(1, 0))
    found += [m.maxpool2d_backward(x, top, kernel_size=(3, 2), stride=(2, 1), padding=(1, 0))]
    return [*found, m.group_norm(x, m.param("g", [4], dtype), m.param("b", [4], dtype), num_groups=2)]


def control(m: Module, dtype: str) -> Any:
    x, n = m.input("x", [4], dtype), m.input("n", [6, 4], dtype)
    picked = m.cond(m.sum(x) > 0.0, lambda: x * 2.0, lambda: n[0])
    grown = m.while_loop(lambda y: m.sum(y) < 40.0, lambda y: y + m.abs(x) + 1.0, x, limit=7)
    last, all_of = m.scan(lambda c, row: (c * 0.5 + row + x, c), x, n, reverse=True)
    return [picked, grown, last, all_of]


FAMILIES: dict[str, tuple[Callable[[Module, str], Any], tuple[str, ...]]] = {
    "unary": (unary, ("f32", "f64", "f16")),
    "binary": (binary, ("f32", "bf16")),
    "integers": (integers, ("i32", "i8")),
    "shapes": (shapes, ("f32", "i32")),
    "reductions": (reductions, ("f32", "f16")),
    "indices": (indices, ("f32",)),
    "products": (products, ("f32", "bf16")),
    "blocks": (blocks, ("f32", "f16")),
    "images": (images, ("f32",)),
    "control": (control, ("f32",)),
}


def built(family: str, dtype: str) -> tuple[Module, dict[str, np.ndarray]]:
    m = Module.mir(family)
    m.set_outputs({f"y{number}": value for number, value in enumerate(FAMILIES[family][0](m, dtype))})
    return m, draw(arguments(entry_function(m.ir_module)), {})


def close(found: Any, wanted: Any, what: str) -> None:
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), what
    halves = wanted.dtype.itemsize == 2 and wanted.dtype.kind not in "iu"
    exact = wanted.dtype.kind in "iub"
    tolerance = 0 if exact else 2e-2 if halves else 5e-6
    a, b = (own.astype(np.float64) for own in (found, wanted))
    np.testing.assert_allclose(a, b, atol=tolerance, rtol=tolerance, err_msg=what)


CASES = [(family, dtype) for family, (_, dtypes) in FAMILIES.items() for dtype in dtypes]


@pytest.mark.parametrize(("family", "dtype"), CASES, ids=["-".join(own) for own in CASES])
@pytest.mark.quick(6)
def test_what_is_written_is_read_again(family: str, dtype: str) -> None:
    m, values = built(family, dtype)
    again = rlx.from_stablehlo(rlx.to_stablehlo(m))
    assert again.outputs == tuple(m.outputs)
    wanted = rlx.interpret(m, values)
    found = again.interpret({name: values[name] for name in again.inputs})
    for name, array in wanted.items():
        close(found[name], array, f"{family} of {dtype}: {name}")


@pytest.mark.skipif(not HAS_JAX, reason="jax isn't installed")
@pytest.mark.parametrize(("family", "dtype"), CASES, ids=["-".join(own) for own in CASES])
@pytest.mark.quick(6)
def test_jax_runs_it(family: str, dtype: str) -> None:
    from rlx_mlir.against.rivals import Jax

    m, values = built(family, dtype)
    found = Jax().run_text(rlx.to_stablehlo(m), list(values.values()))
    for (name, wanted), array in zip(rlx.interpret(m, values).items(), found, strict=True):
        close(array, wanted, f"{family} of {dtype}: {name}")


@pytest.mark.skipif(not HAS_JAX, reason="jax isn't installed")
def test_jax_runs_a_layer_of_blocks() -> None:
    """A layer at stage hir, whose blocks become primitives first, compiled by both."""
    from rlx_mlir.against.rivals import Jax

    m = Module.hir("layer")
    x = m.input("x", ["batch", "seq", 32])
    h = m.rms_norm(x, m.param("g", [32]))
    weights = {name: m.param(name, [32, 32]) for name in "qkv"}
    q, k, v = (m.linear(h, weights[name]) for name in "qkv")
    x = x + m.attention(q, k, v, num_heads=4, head_dim=8, mask_kind="causal")
    up, gate, down = m.param("up", [32, 48]), m.param("gate", [32, 48]), m.param("down", [48, 32])
    m.set_outputs({"y": x + m.swiglu(m.rms_norm(x, m.param("g2", [32])), up_w=up, gate_w=gate, down_w=down)})
    bound = m.bind(batch=2, seq=7)
    values = draw(arguments(entry_function(bound.ir_module)), {})
    (found,) = Jax().run_text(rlx.to_stablehlo(bound), list(values.values()))
    executable = rlx.compile(bound, threads=1)
    executable.set_params({spec.name: values[spec.name] for spec in executable.params})
    np.testing.assert_allclose(executable(x=values["x"]), found, atol=2e-6)


def test_lines_and_names_are_kept() -> None:
    m = Module.mir("named")
    with m.scope("block"):
        y = m.tanh(m.input("x", [3]))
    m.set_outputs({"y": y})
    text = rlx.to_stablehlo(m)
    assert 'loc("x")' in text
    assert "test_to_stablehlo.py" in text
    assert 'loc("block"' in text
    assert "jax.result_info = \"result['y']\"" in text


def test_what_has_no_counterpart_is_listed() -> None:
    m = Module.mir("quantised")
    x = m.input("x", [4, 32])
    y = m.primitives.dequant_matmul(x, m.param("w", [8, 32], packed="q8_0"))
    m.set_outputs({"y": y, "z": m.dense_solve(m.matmul(x, x, transpose_rhs=True), y)})
    with pytest.raises(UnsupportedError) as caught:
        rlx.to_stablehlo(m)
    message = str(caught.value)
    assert "'quantised' has 2 operations without a counterpart in StableHLO" in message
    assert "'mir.dequant_matmul'" in message
    assert "it reads packed weights" in message
    assert "'mir.dense_solve'" in message


def test_command(tmp_path: Any) -> None:
    m = Module.mir("open")
    m.set_outputs({"y": m.tanh(m.input("x", ["n"]))})
    (tmp_path / "m.mlir").write_text(m.to_text())
    out = tmp_path / "out.mlir"
    run = CliRunner().invoke(
        app, ["emit", str(tmp_path / "m.mlir"), "--to", "stablehlo", "--size", "n=5", "-o", str(out)]
    )
    assert run.exit_code == 0, run.output
    found = rlx.from_stablehlo(out).compile(threads=1).run({"x": np.ones(5, np.float32)})
    np.testing.assert_allclose(found["y"], np.tanh(1), rtol=1e-6)
