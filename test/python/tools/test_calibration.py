# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranges over a data set, and products of 8 bits by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compile_harness import compile_fresh
from typer.testing import CliRunner

from rlx_mlir import GraphModule, interpret
from rlx_mlir.attributes import python_value
from rlx_mlir.calibration import Observer, calibrate
from rlx_mlir.errors import InputError
from rlx_mlir.lowering.quantization import RANGES, scale_of
from rlx_mlir.rewriting import operations
from rlx_mlir.tools.cli import app

QUANTISED = "mir-insert-qdq,mir-quant-propagate"


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def ranges_of(module: GraphModule) -> list[list[tuple[float, float]]]:
    found = [op.attributes[RANGES] for op in operations(module.ir_module) if RANGES in op.attributes]
    return [[tuple(pair) for pair in python_value(own)] for own in found]


def perceptron() -> tuple[GraphModule, dict[str, np.ndarray]]:
    """Two products with biases, and a function between them; the rows of the first are of two dimensions."""
    m = GraphModule.hir("perceptron")
    x = m.input("x", [2, "n", 16])
    h = m.linear(x, m.param("w", [16, 32]), m.param("b", [32]), activation="relu")
    m.set_outputs({"y": m.linear(h, m.param("v", [32, 8]))})
    return m, {"w": normal(16, 32) / 4, "b": normal(32), "v": normal(32, 8) / 6}


def network() -> tuple[GraphModule, dict[str, np.ndarray]]:
    """Two convolutions, one with a bias, and a product of what is left of an image."""
    m = GraphModule.mir("network")
    x = m.input("x", ["n", 3, 12, 12])
    h = m.conv2d(x, m.param("w", [8, 3, 3, 3]), stride=2, padding=1) + m.param("b", [8, 1, 1])
    h = m.relu(h)
    h = m.relu(m.conv2d(h, m.param("v", [8, 4, 3, 3]), padding=1, groups=2))
    m.set_outputs({"y": m.mean(h, [2, 3]) @ m.param("u", [8, 5])})
    params = {"w": normal(8, 3, 3, 3) / 5, "b": normal(8, 1, 1), "v": normal(8, 4, 3, 3) / 6, "u": normal(8, 5) / 2}
    return m, params


CASES = {"perceptron": (perceptron, (2, 7, 16)), "network": (network, (4, 3, 12, 12))}


def batches(shape: tuple[int, ...], count: int = 4) -> list[dict[str, np.ndarray]]:
    return [{"x": normal(*shape, seed=seed)} for seed in range(count)]


# -- ranges ----------------------------------------------------------------------------------------------------------


def test_smallest_and_largest_over_all_batches() -> None:
    m = GraphModule.mir("product")
    x = m.input("x", ["n", 4])
    m.set_outputs({"y": m.matmul(x, m.param("w", [4, 3])) + m.param("b", [3])})
    given, params = batches((5, 4)), {"w": normal(4, 3), "b": normal(3) + 9}
    results = [batch["x"] @ params["w"] + params["b"] for batch in given]
    [(x_range, w_range, y_range)] = ranges_of(calibrate(m, given, params=params))
    for found, arrays in ((x_range, [b["x"] for b in given]), (w_range, [params["w"]]), (y_range, results)):
        low, high = min(a.min() for a in arrays), max(a.max() for a in arrays)
        np.testing.assert_allclose(found, (min(low, 0), max(high, 0)), 1e-6)
    assert not ranges_of(m)


def test_batches_of_any_size() -> None:
    m = GraphModule.mir("product")
    x = m.input("x", ["n", "m", 4])
    m.set_outputs({"y": m.matmul(x, m.param("w", [4, 3]))})
    given = [{"x": normal(*shape)} for shape in ((1, 2, 4), (700, 1, 4), (2, 0, 4), (3, 600, 4))]
    [(x_range, _, _)] = ranges_of(calibrate(m, given, params={"w": normal(4, 3)}))
    assert x_range == (min(b["x"].min(initial=0) for b in given), max(b["x"].max(initial=0) for b in given))


def test_what_several_products_read_is_observed_for_each() -> None:
    m, w = GraphModule.mir("shared"), normal(4, 3)
    x, weight = m.input("x", ["n", 4]), m.param("w", [4, 3])
    h = m.relu(x)
    m.set_outputs({"a": h @ weight, "b": h @ m.mul(weight, 2.0), "c": m.matmul(h, h, transpose_rhs=True)})
    found = ranges_of(calibrate(m, [{"x": normal(5, 4)}], params={"w": w}))
    largest = float(normal(5, 4).max())
    assert [own[0] for own in found] == [(0.0, largest)] * 3
    np.testing.assert_allclose(found[0][1], (w.min(), w.max()))
    np.testing.assert_allclose(found[1][1], (2 * w.min(), 2 * w.max()))
    assert found[2][1] == (0.0, largest)


def test_products_that_8_bits_are_too_few_for_stay() -> None:
    """A number that is far from all others takes the levels that these would need."""
    m, params = perceptron()
    params["v"][0, 0] = 40.0
    assert len(ranges_of(calibrate(m, batches((2, 7, 16)), params=params))) == 2
    found = calibrate(m, batches((2, 7, 16)), params=params, least_ratio=32.0)
    [(_, w_range, _)] = ranges_of(found)
    np.testing.assert_allclose(w_range, (params["w"].min(), params["w"].max()))
    assert [node.op for node in found.transform(QUANTISED).nodes()].count("mir.q_matmul") == 1
    assert not ranges_of(calibrate(m, batches((2, 7, 16)), params=params, least_ratio=200.0))


def test_decibels_over_the_noise() -> None:
    """Even numbers from -1 to 1: their squares are a third, and steps of 2 / 255 make noise of a twelfth of theirs."""
    observer = Observer(counted=False)
    observer.add(np.linspace(-1, 1, 100_001))
    numbers = np.linspace(-1, 1, 100_001)
    for symmetric in (False, True):
        scale, zero_point = scale_of(-1, 1, symmetric=symmetric)
        rounded = (np.clip(np.round(numbers / scale) + zero_point, -128, 127) - zero_point) * scale
        exact = 10 * np.log10(np.mean(numbers**2) / np.mean((numbers - rounded) ** 2))
        assert abs(observer.noise_ratio((-1, 1), symmetric=symmetric) - exact) < 0.1
    assert Observer().noise_ratio((0, 0), symmetric=True) == np.inf


def test_methods_leave_out_what_is_far_away() -> None:
    numbers = np.random.default_rng(0).standard_normal(100_000)
    numbers[7] = 1000.0
    observer = Observer()
    for part in np.array_split(numbers, 7):  # the width of intervals grows with what comes
        observer.add(part.astype(np.float32))
    assert observer.counts.sum() == numbers.size
    assert observer.bounds("minmax") == (numbers.min().astype(np.float32), 1000.0)
    low, high = observer.bounds("percentile", 99.9)
    exact = np.percentile(np.abs(numbers), 99.9)
    assert exact <= high <= exact + 1.0  # an interval is half as wide: 1000 / 2048
    assert low == -high
    assert observer.bounds("percentile", 100.0) == observer.bounds("minmax")


def test_entropy_of_what_has_tails() -> None:
    numbers = np.random.default_rng(1).laplace(size=200_000)
    observer = Observer()
    observer.add(numbers)
    _, high = observer.bounds("entropy")
    assert 2.0 < high < 0.9 * np.abs(numbers).max()
    even = Observer()
    even.add(np.linspace(-1, 1, 100_000))
    np.testing.assert_allclose(even.bounds("entropy"), (-1, 1), 0.02)


def test_what_is_not_finite_and_nothing_but_zeros() -> None:
    observer = Observer()
    observer.add(np.array([np.nan, np.inf, -np.inf], np.float32))
    observer.add(np.zeros((3, 0), np.float32))
    observer.add(np.zeros(5, np.float32))
    for method in ("minmax", "percentile", "entropy"):
        assert observer.bounds(method, 50.0) == (0.0, 0.0)
    observer.add(np.array([-2.0, np.nan, 1.0], np.float32))
    assert observer.bounds("minmax") == (-2.0, 1.0)
    assert observer.counts.sum() == 7


def test_wrong_arguments() -> None:
    m, params = perceptron()
    with pytest.raises(InputError, match="'batches' is empty"):
        calibrate(m, [], params=params)
    with pytest.raises(InputError, match="'method' expects one of"):
        calibrate(m, batches((2, 7, 16)), params=params, method="mean")
    with pytest.raises(InputError, match="'percentile' is a number above 0 and at most 100, but got 101"):
        calibrate(m, batches((2, 7, 16)), params=params, percentile=101)
    with pytest.raises(InputError, match="'least_ratio' is a finite number of decibels, 0 at least, but got -1"):
        calibrate(m, batches((2, 7, 16)), params=params, least_ratio=-1)
    with pytest.raises(InputError, match="missing parameters: v"):
        calibrate(m, batches((2, 7, 16)), params={"w": params["w"], "b": params["b"]})


# -- products of 8 bits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [(-1.0, 3.0), (0.0, 0.0), (2.0, 3.0), (-4.0, -1.0)])
@pytest.mark.parametrize("symmetric", [False, True])
def test_scales_hold_the_range_and_zero(bounds: tuple[float, float], symmetric: bool) -> None:
    scale, zero_point = scale_of(*bounds, symmetric=symmetric)
    assert -128 <= zero_point <= 127
    assert not (symmetric and zero_point)
    for end in (*bounds, 0.0):
        q = round(end / scale) + zero_point
        assert -129 <= q <= 128  # at most the rounding of the zero point beyond
        assert abs((np.clip(q, -128, 127) - zero_point) * scale - end) <= 1.01 * scale


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("method", ["minmax", "entropy"])
@pytest.mark.quick(2)
def test_network_of_8_bits(name: str, method: str) -> None:
    """All products are of 8 bits; the compiled module is bit-equal to the reference, and close to that of f32."""
    build, shape = CASES[name]
    module, params = build()
    found = calibrate(module, batches(shape), params=params, method=method).transform(QUANTISED)
    kinds = [node.op for node in found.nodes()]
    assert not {"mir.matmul", "mir.conv", "mir.fused_matmul_bias_act"} & set(kinds)
    assert sum(kind in ("mir.q_matmul", "mir.q_conv2d") for kind in kinds) == (2 if name == "perceptron" else 3)
    given = {"x": normal(*shape, seed=99)}
    want, got = interpret(module, given | params)["y"], interpret(found, given | params)["y"]
    cosine = np.sum(want * got) / np.sqrt(np.sum(want * want) * np.sum(got * got))
    assert cosine > (0.995 if method == "minmax" else 0.98)  # a few numbers saturate
    if method == "minmax":
        executable = compile_fresh(found)
        executable.set_params(params)
        np.testing.assert_array_equal(executable.run(given)["y"], got)


def test_weights_are_quantised_once() -> None:
    module, params = perceptron()
    found = calibrate(module, batches((2, 7, 16)), params=params).transform(QUANTISED)
    steps = compile_fresh(found).artifact.preparation.steps
    assert sum(step.op == "quantize" for step in steps) == 2


# -- precision -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["bf16", "f16"])
def test_mixed_precision(policy: str) -> None:
    module, params = perceptron()
    found = module.lower().transform(f"mir-precision{{policy={policy}}}")
    given = {"x": normal(2, 7, 16)}
    want, got = interpret(module, given | params)["y"], interpret(found, given | params)["y"]
    assert got.dtype == np.float32
    assert 0 < np.abs(got - want).max() < 0.05 * np.abs(want).max()


# -- the command -----------------------------------------------------------------------------------------------------


def test_command(tmp_path: Path) -> None:
    module, params = network()
    (tmp_path / "graph.mlir").write_text(module.to_text())
    np.savez(tmp_path / "params.npz", **params)
    for number, batch in enumerate(batches((2, 3, 12, 12), 2)):
        np.savez(tmp_path / f"{number}.npz", **batch)

    def run(*arguments: Any, status: int = 0) -> Any:
        words = ["calibrate", tmp_path / "graph.mlir", *arguments, "--params", tmp_path / "params.npz"]
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == status, (result.output, result.exception)
        return result

    files = [tmp_path / "0.npz", tmp_path / "1.npz"]
    assert run(*files).stdout.count(RANGES) == 3
    assert run(*files, "--least-ratio", "90").stdout.count(RANGES) == 0
    run(*files, "--method", "percentile", "--quantize", "-o", tmp_path / "out.mlir")
    written = GraphModule.from_text(tmp_path / "out.mlir")
    assert sum(node.op == "mir.q_conv2d" for node in written.nodes()) == 2
    assert "cannot be read as a .npz file" in run(tmp_path / "graph.mlir", status=1).stderr
    nowhere = tmp_path / "graph.mlir" / "out"  # which is said before anything is read
    message = run(tmp_path / "none.npz", "-o", nowhere, status=1).stderr
    assert message == f"rlx: error: {nowhere} cannot be written: Not a directory\n"
