# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The trainer: losses fall, bits don't depend on threads or on breaks, and checkpoints are whole or not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import rlx_mlir as rlx
from rlx_mlir import GraphModule, Trainer, optim
from rlx_mlir.errors import BuildError, InputError, SafetensorsError
from rlx_mlir.frontends.safetensors import SafetensorsFile
from rlx_mlir.frontends.safetensors_writer import write_safetensors
from rlx_mlir.training import Batches

F32 = np.float32


def network() -> GraphModule:
    """Two layers, and the mean square of their errors."""
    m = GraphModule.hir("network")
    x, t = m.input("x", ["b", 8]), m.input("t", ["b", 2])
    hidden = m.linear(x, m.param("w1", [8, 32]), m.param("b1", [32]))
    error = m.linear(m.tanh(hidden), m.param("w2", [32, 2]), m.param("b2", [2])) - t
    m.set_outputs({"loss": m.mean(error * error)})
    return m


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"w1": (8, 32), "b1": (32,), "w2": (32, 2), "b2": (2,)}
    return {name: (rng.standard_normal(shape) * 0.3).astype(F32) for name, shape in shapes.items()}


def data(rows: int = 64) -> dict[str, np.ndarray]:
    x = np.random.default_rng(1).standard_normal((rows, 8)).astype(F32)
    return {"x": x, "t": np.stack([x[:, 0] * x[:, 1], np.sin(x[:, 2])], 1).astype(F32)}


def trainer(**options) -> Trainer:
    return Trainer(network(), weights(), schedule=optim.cosine(1e-2, 200, warmup=5), clip_norm=1.0, **options)


def trained(own: Trainer, batches: Batches, steps: int) -> float:
    loss = float("nan")
    while own.steps < steps:
        loss = float(own.step(batches.at(own.steps))["loss"])
    return loss


def test_losses_fall():
    own, batches = trainer(), Batches(data(), 16, seed=3)
    first = float(own.step(batches.at(0))["loss"])
    assert trained(own, batches, 200) < first / 5


@pytest.mark.wide
def test_given_arrays_do_not_change():
    given = weights()
    own = Trainer(network(), given)
    own.step(data())
    for name, array in weights().items():
        np.testing.assert_array_equal(given[name], array)
        assert not np.array_equal(own.params[name], array)


@pytest.mark.parametrize("accumulate", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_bits_do_not_depend_on_threads_or_on_breaks(tmp_path, accumulate):
    batches = Batches(data(), 8, seed=3, accumulate=accumulate)
    whole, other, second = (trainer(threads=n, accumulate=accumulate) for n in (1, 2, 2))
    trained(whole, batches, 12)
    trained(other, batches, 5)
    other.save(tmp_path / "checkpoint.safetensors", {"seed": 3})
    assert second.restore(tmp_path / "checkpoint.safetensors") == {"seed": 3}
    assert second.steps == 5
    trained(second, batches, 12)
    for name, array in whole.params.items():
        np.testing.assert_array_equal(second.params[name], array, err_msg=name)


_KILLED = """
import sys
sys.path[:0] = {path!r}
from test_trainer import Batches, data, trainer, trained
own, batches = trainer(), Batches(data(), 8, seed=3)
while True:
    trained(own, batches, own.steps + 1)
    own.save(sys.argv[1], {{"steps": own.steps}})
    print(own.steps, flush=True)
"""


def test_killed_writers_leave_a_whole_checkpoint(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    code = _KILLED.format(path=[os.path.dirname(__file__), *filter(None, sys.path)])
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline().strip(), "the child has written"
    time.sleep(0.0137)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    batches, whole, second = Batches(data(), 8, seed=3), trainer(), trainer()
    steps = second.restore(path)["steps"]
    assert steps == second.steps >= 3
    trained(whole, batches, steps + 2)
    trained(second, batches, steps + 2)
    for name, array in whole.params.items():
        np.testing.assert_array_equal(second.params[name], array, err_msg=name)


@pytest.mark.parametrize(("precision", "scale"), [("bf16", None), pytest.param("f16", 4096.0, marks=pytest.mark.slow)])
@pytest.mark.wide
def test_products_of_sixteen_bits(precision, scale):
    batches = Batches(data(), 16, seed=3)
    own = trainer(precision=precision, loss_scale=scale)
    assert all(array.dtype == F32 for array in own.params.values())
    wide = trained(trainer(), batches, 40)
    assert trained(own, batches, 40) == pytest.approx(wide, rel=0.1)


def test_what_a_checkpoint_has_to_be(tmp_path):
    own = trainer()
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(SafetensorsError, match="checkpoint"):
        own.restore(path)
    own.save(path)
    assert set(SafetensorsFile(path).tensors) >= {"w1", "mean.w1", "square.w1", "optim.step"}
    with pytest.raises(InputError, match=r"its optimiser is .*adamw.* but here it is .*lion"):
        Trainer(network(), weights(), optim.lion()).restore(path)
    m = GraphModule.hir("other")
    x = m.input("x", ["b", 4])
    m.set_outputs({"loss": m.mean(m.linear(x, m.param("w1", [4, 4])))})
    with pytest.raises(InputError, match=r"'w1' is float32 \[8, 32\], but here it is float32 \[4, 4\]"):
        Trainer(m, {"w1": np.zeros((4, 4), F32)}).restore(path)
    from safetensors.numpy import save_file

    save_file({"w": np.zeros(3)}, path)
    with pytest.raises(InputError, match="not a checkpoint of training"):
        own.restore(path)


def test_batches_see_every_entry_once_an_epoch():
    batches = Batches({"x": np.arange(10)}, 3, seed=1)
    assert batches.steps_per_epoch == 3
    seen = np.concatenate([batches.at(step)["x"] for step in range(3)])
    assert len(set(seen.tolist())) == 9
    other = np.concatenate([batches.at(step)["x"] for step in range(3, 6)])
    assert not np.array_equal(seen, other)
    np.testing.assert_array_equal(batches.at(4)["x"], Batches({"x": np.arange(10)}, 3, seed=1).at(4)["x"])
    in_order = Batches({"x": np.arange(10)}, 2, accumulate=2, shuffle=False)
    np.testing.assert_array_equal(in_order.at(1)["x"], [[4, 5], [6, 7]])
    assert [len(each["x"]) for each in in_order] == [2, 2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Batches({}, 1), "but there are no arrays"),
        (lambda: Batches({"x": np.zeros(3), "y": np.zeros(2)}, 1), "'x' has 3, 'y' has 2"),
        (lambda: Batches({"x": np.zeros(3)}, 4), "a step takes 4 entries, but there are 3 in the data set"),
        (lambda: Batches({"x": np.zeros(3)}, 0), "'size' is a whole number of at least 1, but got 0"),
        (
            lambda: Trainer(network(), weights(), precision="f8"),
            "'precision' expects one of f32, bf16, f16, but got 'f8'",
        ),
        (lambda: Trainer(network(), {}), "missing parameters: w1, b1, w2, b2"),
        (lambda: Trainer(network(), weights(), schedule=-1.0), "'rate' is a finite rate of at least 0, but got -1.0"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises((InputError, BuildError)) as error:
        make()
    assert message in str(error.value)


def test_wrong_inputs_change_nothing():
    own = trainer()
    with pytest.raises(InputError, match="missing inputs: t"):
        own.step({"x": data()["x"]})
    assert own.steps == 0
    assert rlx.Trainer is Trainer


def test_equal_checkpoints_are_equal_bytes(tmp_path: Path) -> None:
    arrays = {"w": np.arange(3, dtype=np.float32), "é": np.zeros((0, 2), np.int32)}
    texts = {name: f'"{name}" é' for name in "fcabed"}
    files = []
    for number in range(6):
        write_safetensors(path := tmp_path / f"{number}.safetensors", arrays, texts)
        files.append(path.read_bytes())
    assert len({*files}) == 1
    file = SafetensorsFile(path)
    assert file.metadata == texts
    for name, array in arrays.items():
        np.testing.assert_array_equal(file.tensor(name), array, strict=True)


def test_material_needs_what_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    calls = []

    def build() -> GraphModule:
        calls.append(None)
        m = GraphModule.mir("line")
        m.set_outputs({"loss": m.sum(m.param("w", [2]) * m.input("x", [2]))})
        return m

    params, material = {"w": np.ones(2, np.float32)}, {"program": "line"}
    with pytest.raises(InputError, match="'wrt' has to name"):
        Trainer(build, params, material=material)
    with pytest.raises(InputError, match="'module' is a function"):
        Trainer(build(), params, wrt=["w"], material=material)
    calls.clear()
    trainers = [Trainer(build, params, optim.sgd(), wrt=["w"], material=material, loss_scale=4.0) for _ in range(2)]
    assert len(calls) == 1
    steps = [{**own.step({"x": np.ones(2, np.float32)}), **own.params} for own in trainers]
    for name in steps[0]:
        np.testing.assert_array_equal(steps[0][name], steps[1][name])

    class Own(type(optim.sgd())):  # type: ignore[misc]  # what it does is nowhere in the key
        pass

    for _ in range(2):
        Trainer(build, params, Own(0.0, False, 0.0), wrt=["w"], material=material)
    assert len(calls) == 3
