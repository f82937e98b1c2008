# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimisers against their formulas in numpy, schedules, and what steps of training take and refuse."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import rlx_mlir as rlx
from rlx_mlir import GraphModule, optim
from rlx_mlir.errors import BuildError, InputError

F32 = np.float32
Arrays = dict[str, np.ndarray]


def model(dtype: str = "f32") -> GraphModule:
    """The mean square of tanh(x w) - t, and the errors."""
    m = GraphModule.mir("model")
    x, t, w = m.input("x", ["b", 6], dtype), m.input("t", ["b", 3], dtype), m.param("w", [6, 3], dtype)
    error = m.tanh(m.matmul(x, w)) - t
    m.set_outputs({"loss": m.mean(error * error), "error": error})
    return m


def data(rows: int = 8) -> Arrays:
    rng = np.random.default_rng(0)
    return {"x": rng.standard_normal((rows, 6)).astype(F32), "t": rng.standard_normal((rows, 3)).astype(F32)}


W = np.random.default_rng(1).standard_normal((6, 3)).astype(F32)


def gradient(w: np.ndarray, inputs: Arrays) -> tuple[float, np.ndarray]:
    """The loss and its gradient, in f64."""
    x, t, w = (np.asarray(array, np.float64) for array in (inputs["x"], inputs["t"], w))
    y = np.tanh(x @ w)
    error = y - t
    return float(np.mean(error**2)), x.T @ (2 * error / error.size * (1 - y**2))


def sgd_of(momentum: float, nesterov: bool, decay: float) -> Callable[..., np.ndarray]:
    """By the formula, as a function of w, g, the rate, the number of the step, and a dictionary that it keeps."""

    def step(w: np.ndarray, g: np.ndarray, rate: float, number: int, kept: Arrays) -> np.ndarray:
        g = g + decay * w
        kept["v"] = momentum * kept.get("v", 0 * w) + g
        return w - rate * (g + momentum * kept["v"] if nesterov else kept["v"])

    return step


def adamw_of(w: np.ndarray, g: np.ndarray, rate: float, number: int, kept: Arrays) -> np.ndarray:
    kept["m"] = 0.9 * kept.get("m", 0 * w) + 0.1 * g
    kept["v"] = 0.999 * kept.get("v", 0 * w) + 0.001 * g * g
    first, second = kept["m"] / (1 - 0.9**number), kept["v"] / (1 - 0.999**number)
    return w * (1 - rate * 0.01) - rate * first / (np.sqrt(second) + 1e-8)


def lion_of(w: np.ndarray, g: np.ndarray, rate: float, number: int, kept: Arrays) -> np.ndarray:
    mean = kept.get("m", 0 * w)
    kept["m"] = 0.99 * mean + 0.01 * g
    return w * (1 - rate * 0.1) - rate * np.sign(0.9 * mean + 0.1 * g)


OPTIMIZERS = {
    "sgd": (optim.sgd(), sgd_of(0, False, 0)),
    "momentum": (optim.sgd(momentum=0.9, weight_decay=0.1), sgd_of(0.9, False, 0.1)),
    "nesterov": (optim.sgd(momentum=0.9, nesterov=True), sgd_of(0.9, True, 0)),
    "adamw": (optim.adamw(), adamw_of),
    "lion": (optim.lion(weight_decay=0.1), lion_of),
}


def run(step: optim.TrainStep, inputs: Arrays, w: np.ndarray, rates: list[float]) -> tuple[list[Arrays], Arrays]:
    """The outputs of each step, and the parameters after all."""
    executable = rlx.compile(step.module, cache=False)
    own = {"w": w.copy(), **{name: np.array(array) for name, array in step.state.items()}}
    executable.set_params(own)
    found = []
    for rate in rates:
        outputs = executable.run({**inputs, "optim.rate": F32(rate)}, donate=list(own))
        found.append({name: np.array(array) for name, array in outputs.items()})
    return found, own


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_their_formulas(name):
    optimizer, formula = OPTIMIZERS[name]
    inputs, rates = data(), [0.05, 0.03, 0.02, 0.01]
    found, own = run(optim.train_step(model(), optimizer), inputs, W, rates)
    w, kept = W.astype(np.float64), {}
    for number, rate in enumerate(rates):
        loss, g = gradient(w, inputs)
        np.testing.assert_allclose(found[number]["loss"], loss, rtol=1e-5)
        np.testing.assert_allclose(found[number]["optim.gradient_norm"], np.linalg.norm(g), rtol=1e-5)
        w = formula(w, g, F32(rate), number + 1, kept)
        np.testing.assert_allclose(found[number]["w"], w, rtol=2e-5, atol=2e-6)
    np.testing.assert_array_equal(own["w"], found[-1]["w"], err_msg="parameters change in place")
    assert own["optim.step"] == 4


def test_norms_are_clipped():
    inputs = data()
    found, _ = run(optim.train_step(model(), optim.sgd(), clip_norm=0.01), inputs, W, [1.0])
    _, g = gradient(W, inputs)
    norm = np.linalg.norm(g)
    assert norm > 0.01
    np.testing.assert_allclose(found[0]["w"], W - g * 0.01 / norm, rtol=1e-4, atol=1e-6)
    loose, _ = run(optim.train_step(model(), optim.sgd(), clip_norm=100.0), inputs, W, [1.0])
    np.testing.assert_allclose(loose[0]["w"], W - g, rtol=1e-5, atol=1e-6)


def test_several_batches_are_one_step():
    inputs = data(12)
    parts = {name: array.reshape(3, 4, -1) for name, array in inputs.items()}
    whole, _ = run(optim.train_step(model(), optim.adamw()), inputs, W, [0.1, 0.1])
    found, _ = run(optim.train_step(model(), optim.adamw(), accumulate=3), parts, W, [0.1, 0.1])
    for each, own in zip(found, whole, strict=True):
        np.testing.assert_allclose(each["loss"], own["loss"], rtol=1e-5)
        np.testing.assert_allclose(each["w"], own["w"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(each["error"].reshape(12, 3), own["error"], rtol=1e-4, atol=1e-5)


@pytest.mark.wide
def test_scales_of_the_loss():
    """The same steps; one whose gradients aren't finite is left out, and halves the scale."""
    inputs = data()
    plain, _ = run(optim.train_step(model(), optim.adamw()), inputs, W, [0.1, 0.1])
    step = optim.train_step(model(), optim.adamw(), loss_scale=1024.0)
    found, own = run(step, inputs, W, [0.1, 0.1])
    np.testing.assert_allclose(found[1]["w"], plain[1]["w"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1]["loss"], plain[1]["loss"], rtol=1e-5)
    assert (own["optim.scale"], own["optim.good_steps"], own["optim.step"]) == (1024, 2, 2)
    broken = inputs | {"x": inputs["x"] * F32(np.inf)}
    found, own = run(step, broken, W, [0.1])
    np.testing.assert_array_equal(own["w"], W)
    assert (own["optim.scale"], own["optim.good_steps"], own["optim.step"]) == (512, 0, 0)
    np.testing.assert_array_equal(own["mean.w"], 0 * W)


def test_scales_grow_after_many_good_steps():
    step = optim.train_step(model(), optim.sgd(), loss_scale=2.0)
    step.state["optim.good_steps"] = np.int32(1998)
    _, own = run(step, data(), W, [0.0])
    assert (own["optim.scale"], own["optim.good_steps"]) == (2, 1999)
    _, own = run(step, data(), W, [0.0, 0.0])
    assert (own["optim.scale"], own["optim.good_steps"]) == (4, 0)


@pytest.mark.parametrize("dtype", ["bf16", pytest.param("f16", marks=pytest.mark.slow), "f64"])
def test_parameters_of_other_types(dtype):
    step = optim.train_step(model(dtype), optim.adamw())
    kinds = {name: array.dtype for name, array in step.state.items()}
    assert kinds["mean.w"] == (np.float64 if dtype == "f64" else np.float32)
    kind = step.module.value("w").dtype
    inputs = {name: array.astype(kind) for name, array in data().items()}
    found, _ = run(step, inputs, W.astype(kind), [0.05])
    _, g = gradient(W.astype(kind), inputs)
    expected = adamw_of(W.astype(kind).astype(np.float64), g, F32(0.05), 1, {})
    tolerance = {"bf16": 2e-2, "f16": 2e-3, "f64": 1e-6}[dtype]
    np.testing.assert_allclose(found[0]["w"].astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def test_only_what_is_named_is_trained():
    m = model()
    frozen = m.param("u", [3])
    loss, error = m.outputs.values()
    m.set_outputs({"loss": loss + m.mean(error * frozen), "error": error})
    step = optim.train_step(m, optim.adamw(), ["w"])
    assert step.trained == ("w",)
    assert list(step.module.outputs) == [
        "loss",
        "error",
        "optim.gradient_norm",
        "w",
        "mean.w",
        "square.w",
        "optim.step",
    ]


def test_schedules():
    flat = optim.constant(2.0, warmup=4)
    assert [flat(step) for step in range(6)] == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    line = optim.linear(1.0, 10, warmup=2, last=0.2)
    assert [line(0), line(1), line(2), line(6), line(10), line(99)] == pytest.approx([0.5, 1.0, 1.0, 0.6, 0.2, 0.2])
    wave = optim.cosine(1.0, 10, last=0.2)
    assert [wave(0), wave(5), wave(10)] == pytest.approx([1.0, 0.6, 0.2])
    assert wave(3) == pytest.approx(0.2 + 0.8 * (1 + math.cos(0.3 * math.pi)) / 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optim.sgd(momentum=1.0), "'momentum' is a number from 0 to less than 1, but got 1.0"),
        (lambda: optim.adamw(eps=-1), "'eps' is a number of at least 0, but got -1"),
        (lambda: optim.adamw(beta2=math.nan), "'beta2' is a number from 0 to less than 1, but got nan"),
        (lambda: optim.lion(weight_decay="x"), "'weight_decay' is a number, but got 'x'"),
        (lambda: optim.sgd(nesterov=1), "'nesterov' is True or False, but got 1"),
        (lambda: optim.constant(-1.0), "'rate' is a finite rate of at least 0, but got -1.0"),
        (lambda: optim.cosine(1.0, 3, warmup=3), "'steps' is a whole number of at least 4, but got 3"),
        (lambda: optim.train_step(model(), "adam"), "'optimizer' is one, such as adamw(), but got 'adam'"),
        (lambda: optim.train_step(model(), optim.sgd(), accumulate=2**63), f"from 1 to {2**63 - 1}, but got {2**63}"),
        (lambda: optim.train_step(model(), optim.sgd(), accumulate=0), "'accumulate' is a whole number of at least 1"),
        (lambda: optim.train_step(model(), optim.sgd(), clip_norm=0), "'clip_norm' is a positive number, but got 0"),
        (lambda: optim.train_step(model(), optim.sgd(), loss_scale=math.inf), "'loss_scale' is a positive number"),
        (lambda: optim.train_step(model(), optim.sgd(), ["x"]), "parameters are trained, but 'x' of module 'model'"),
        (lambda: optim.train_step(model(), optim.sgd(), ["y"]), "module 'model' has no argument 'y'"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises((InputError, BuildError)) as error:
        make()
    assert message in str(error.value)


def test_names_that_are_taken_are_refused():
    m = model()
    m.set_outputs({"loss": m.outputs["loss"], "w": m.outputs["error"]})
    with pytest.raises(BuildError, match="module 'model' has an output or argument 'w', which a step has, too"):
        optim.train_step(m, optim.sgd())


def test_parameters_of_unknown_sizes_are_refused():
    m = GraphModule.mir("open")
    w = m.param("w", ["k"])
    m.set_outputs({"loss": m.sum(w * w)})
    with pytest.raises(InputError, match=r"parameter 'w' is \['k'\]"):
        optim.train_step(m, optim.sgd())
