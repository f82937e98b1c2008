# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of f16 and bf16 are rounded where the graph has them, whether operations share a kernel or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compile_harness import DTYPES, Program, compile_fresh, templates_of
from cuda_harness import emulated_device

import rlx_mlir as rlx
from rlx_mlir import Value, emit, interpret
from rlx_mlir.errors import InputError

Build = Callable[[Program, str], Value]
WIDTH = 64


def _eighths(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of few digits: sums of their products are exact in f32, in any order."""
    return rng.integers(-24, 25, shape) / 8


def _tensor(p: Program, name: str, shape: list[int | str], dtype: str) -> Value:
    return p.input(name, shape, dtype, make=_eighths)


def _x(p: Program, dtype: str, name: str = "x") -> Value:
    return _tensor(p, name, ["n", WIDTH], dtype)


def residual_rms(p: Program, dtype: str) -> Value:
    total = p.m.add(_x(p, dtype) * 1.3, _x(p, dtype, "y") * 0.7)
    return p.m.primitives.rms_norm(total, _tensor(p, "gamma", [WIDTH], dtype))


def residual_layer(p: Program, dtype: str) -> Value:
    total = p.m.add(_x(p, dtype) * 1.3, _x(p, dtype, "y") * 0.7)
    return p.m.layer_norm(total, _tensor(p, "gamma", [WIDTH], dtype))


def linear(p: Program, dtype: str) -> Value:
    w, b = _tensor(p, "w", [WIDTH, WIDTH], dtype), _tensor(p, "b", [WIDTH], dtype)
    return p.m.silu(p.m.add(p.m.matmul(_x(p, dtype), w) * 0.01, b))


def bias(p: Program, dtype: str) -> Value:
    w, b = _tensor(p, "w", [WIDTH, WIDTH], dtype), _tensor(p, "b", [WIDTH], dtype)
    return p.m.relu(p.m.add(p.m.matmul(_x(p, dtype), w), b))


def gated(p: Program, dtype: str) -> Value:
    x = _x(p, dtype)
    gate, up = (p.m.matmul(x, _tensor(p, name, [WIDTH, WIDTH], dtype)) for name in ("g", "u"))
    return p.m.mul(p.m.silu(gate), up)


def halves(p: Program, dtype: str) -> Value:
    x = _tensor(p, "x", ["n", 2 * WIDTH], dtype)
    up, gate = (p.m.narrow(x, axis=1, start=start, length=WIDTH) for start in (0, WIDTH))
    return p.m.mul(p.m.silu(gate), up)


def chain(p: Program, dtype: str) -> Value:
    x, y = _x(p, dtype), _x(p, dtype, "y")
    return p.m.softmax(p.m.sub(p.m.mul(x * 0.3, y * 0.7), p.m.tanh(x) * 1.1))


BUILDS: dict[Build, str] = {
    residual_rms: "rows",
    residual_layer: "rows",
    linear: "gemm",
    bias: "gemm",
    gated: "gemm",
    halves: "rows",
    chain: "rows",
}


def _made(build: Build, dtype: str) -> tuple[Any, dict[str, np.ndarray], np.ndarray]:
    p = Program("mir")
    p.output(y=build(p, dtype))
    module = p.finish()
    inputs, _ = p.values({"n": 5})
    return module, inputs, interpret(module, inputs)["y"]


def _units(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many numbers of the type two lie apart."""
    ordered = [np.where((bits := x.view(np.int16).astype(int)) < 0, -32768 - bits, bits) for x in (a, b)]
    return np.abs(ordered[0] - ordered[1])


def _check(got: np.ndarray, want: np.ndarray, what: str) -> None:
    """Equal, but for elements where functions that err in their last f32 digits come to the other side of a tie."""
    apart = _units(got, want)
    assert (apart > 0).mean() < 0.02, f"{what}: {(apart > 0).sum()} of {apart.size} elements differ"
    assert apart.max() <= 2, what


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
@pytest.mark.quick(3)
def test_fused_kernels_round_like_the_graph(build: Build, dtype: str) -> None:
    module, inputs, want = _made(build, dtype)
    templates = compile_fresh(module)
    kinds = set(templates_of(templates).values())
    assert [kind[: len(BUILDS[build])] for kind in kinds] == [BUILDS[build]], "one kernel"
    _check(templates.run(inputs)["y"], want, "templates")
    _check(compile_fresh(module, disable_templates=("all",)).run(inputs)["y"], want, "generic")


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
@pytest.mark.quick(2)
def test_fused_kernels_of_gpus_round_like_the_graph(build: Build) -> None:
    module, inputs, want = _made(build, "bf16")
    with emulated_device("sm_80"):
        found = rlx.compile(module, target="cuda", cache=False).run(inputs)["y"]
    _check(found, want, "emulated")


@pytest.mark.parametrize("build", [residual_rms, linear, gated], ids=lambda build: build.__name__)
def test_wide_intermediates_round_once(build: Build) -> None:
    module, inputs, rounded = _made(build, "bf16")
    wide = compile_fresh(module, intermediates="wide").run(inputs)["y"]
    assert (_units(wide, rounded) > 0).mean() > 0.05
    exact = Program("mir")
    exact.output(y=build(exact, "f32"))
    want = interpret(exact.finish(), {name: x.astype(np.float32) for name, x in inputs.items()})["y"]
    errors = [np.abs(y.astype(np.float32) - want).mean() for y in (wide, rounded)]
    assert errors[0] < errors[1], "closer to the values without roundings"


def test_fusion_says_what_would_help() -> None:
    module, _, _ = _made(residual_rms, "bf16")
    assert "fused_residual_rms_norm" not in emit(module, "kernels")
    assert "fused_residual_rms_norm" in emit(module, "kernels", intermediates="wide")
    with pytest.raises(InputError, match="'intermediates' expects rounded or wide, but got 'f32'"):
        compile_fresh(module, intermediates="f32")


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_every_number_rounds_like_numpy(dtype: str) -> None:
    """Ties, subnormal numbers, the largest ones, infinities and NaN, in the middle of a product's program."""
    type = DTYPES[dtype]
    codes = np.arange(1 << 16, dtype=np.uint16).view(type)
    codes = codes[np.isfinite(codes.astype(np.float32))]
    p = Program("mir")
    x, one = p.input("x", ["n", 16], dtype), p.input("one", [16, 16], dtype)
    product = p.m.matmul(x, one)
    # The product's rows are sums of two numbers; neg is exact, and so is adding nothing.
    p.output(y=p.m.neg(p.m.add(product, p.input("zero", [16], dtype))))
    both = np.zeros((len(codes), 16), type)
    both[:, 0], both[:, 1] = codes, np.random.default_rng(0).permutation(codes)
    inputs = {"x": both, "one": np.ones((16, 16), type), "zero": np.zeros(16, type)}
    module = p.finish()
    got, want = compile_fresh(module, maxima={"n": len(codes)}).run(inputs)["y"], interpret(module, inputs)["y"]
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
