# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`mir.sample`: its reference against `Sampler`, its code for CPUs and (emulated) GPUs against its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_harness import emulated_device
from gpu_harness import assemble

import rlx_mlir as rlx
from rlx_mlir.compiler import CompileOptions, build_artifact
from rlx_mlir.mir.sampling import sample
from rlx_mlir.models.sampling import Sampler

INF = float("inf")


def graph(k: int, batch: int | str = "b", places: int | str = "p", *, returned: bool = True) -> rlx.GraphModule:
    module = rlx.GraphModule.mir("choice")
    chosen = module.input("chosen", [batch, places], "i32")
    token, following, after = module.sample(
        module.input("values", [batch, k], "f32"),
        module.input("indices", [batch, k], "i32"),
        module.input("controls", [batch, 3], "f32"),
        module.input("draws", [batch, places], "f32"),
        chosen,
        module.input("pos", [batch], "i32"),
    )
    module.set_outputs({"token": token, "next": following, **({"chosen_out": after} if returned else {})})
    return module


def operands(batch: int, k: int, places: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = -np.sort(-3 * rng.standard_normal((batch, k)).astype(np.float32), axis=1)
    found = {
        "values": values,
        "indices": rng.permutation(batch * k).reshape(batch, k).astype(np.int32),
        "controls": np.stack(
            [rng.choice([0, 0.5, 1, 2], batch), rng.integers(1, k + 2, batch), rng.choice([0.3, 0.9, 1], batch)], axis=1
        ).astype(np.float32),
        "draws": rng.random((batch, places), np.float32),
        "chosen": rng.integers(0, 99, (batch, places)).astype(np.int32),
        "pos": rng.integers(-1, places + 1, batch).astype(np.int32),
    }
    if batch > 2:
        values[-1, k // 2 :] = -INF  # never chosen
        values[-2, -1] = np.nan
    return found


def check(module: Any, executable: Any, given: dict[str, np.ndarray]) -> None:
    got, want = executable.run(given), rlx.interpret(module, given)
    for name, expected in want.items():
        np.testing.assert_array_equal(got[name], expected, err_msg=name)


# The reference ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"greedy": True},
        {"temperature": 0.7, "top_k": 40, "top_p": 1.0},
        {"temperature": 1.5, "top_k": 64, "top_p": 0.5},
        {"temperature": 1.0, "top_k": 1, "top_p": 0.9},
        {"temperature": 0.2, "top_k": 7, "top_p": 0.05},
    ],
)
def test_choices_are_those_of_the_sampler(options: dict[str, Any]) -> None:
    """The same seed chooses the same tokens from the candidates as from all logits."""
    logits = np.random.default_rng(1).standard_normal((300, 500)).astype(np.float32) * 3
    sampler = Sampler(seed=5, **options)
    expected = [sampler(row) for row in logits]
    ahead = Sampler(seed=5, **options)
    assert ahead.needs_at_most(64)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :64]
    draws = ahead.draws(len(logits))
    controls = np.tile(ahead.controls(64), (len(logits), 1))
    token, _, _ = sample(
        np.take_along_axis(logits, order, axis=1),
        order.astype(np.int32),
        controls,
        draws[:, None],
        np.zeros((len(logits), 1), np.int32),
        np.zeros(len(logits), np.int32),
    )
    assert token[:, 0].tolist() == expected
    assert options.get("greedy") or len(set(draws)) > 290


def test_draws_are_below_one() -> None:
    sampler = Sampler(seed=0)
    sampler._random = type("Ones", (), {"random": staticmethod(lambda count: np.full(count, 1 - 2.0**-53))})()  # type: ignore[assignment]
    assert (sampler.draws(3) < 1).all()


def test_places_and_what_cannot_be_chosen() -> None:
    values = np.array([[3, 2, 1], [INF, 0, 0], [1, 0, np.nan], [-INF, -INF, -INF], [2, 2, -INF]], np.float32)
    indices = np.array([[7, 8, 9]] * 5, np.int32)
    controls = np.array([[1, 3, 1]] * 5, np.float32)
    draws = np.full((5, 4), 0.999, np.float32)
    chosen = np.full((5, 4), 5, np.int32)
    token, following, after = sample(values, indices, controls, draws, chosen, np.array([0, 3, -7, 9, 2], np.int32))
    assert token[:, 0].tolist() == [9, -1, -1, -1, 8]
    assert following.tolist() == [1, 3, 1, 3, 3]
    assert after.tolist() == [[9, 5, 5, 5], [5, 5, 5, -1], [-1, 5, 5, 5], [5, 5, 5, -1], [5, 5, 8, 5]]
    assert (chosen == 5).all()


# Compiled --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("returned", [True, False])
def test_on_the_cpu(returned: bool) -> None:
    module = graph(7, returned=returned)
    executable = rlx.compile(module, cache=False)
    assert [spec.tied for spec in executable.outputs] == [None, None, "chosen"][: len(executable.outputs)]
    for batch, places in ((0, 1), (1, 1), (1, 9), (4, 3)):
        for seed in range(4):
            check(module, executable, operands(batch, 7, places, seed))


def test_in_place() -> None:
    given = operands(2, 3, 5)
    module = graph(3)
    want = rlx.interpret(module, given)
    got = rlx.compile(module, cache=False).run(given, donate=["chosen"])
    assert got["chosen_out"] is given["chosen"]
    np.testing.assert_array_equal(given["chosen"], want["chosen_out"])


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("k", [1, 7, 64, 70])
@pytest.mark.quick(1)
def test_on_a_gpu(k: int, chip: str) -> None:
    with emulated_device(chip):
        module = graph(k)
        executable = rlx.compile(module, target="cuda", chip=chip, cache=False)
        assert executable.artifact.templates == {"sample_0": "sample"}
        for batch, places in ((0, 1), (1, 1), (4, 9)):
            for seed in range(3):
                check(module, executable, operands(batch, k, places, seed))
        del executable


def test_what_the_schedule_does_not_cover_is_generic() -> None:
    for module in (graph(1025), graph(7, returned=False)):
        artifact = build_artifact(module, CompileOptions(target="nvptx", chip="sm_80"))
        (how,) = artifact.templates.values()
        assert how.startswith("generic: "), how
    with emulated_device("sm_90"):
        module = graph(5, returned=False)
        executable = rlx.compile(module, target="cuda", chip="sm_90", cache=False)
        check(module, executable, operands(4, 5, 3))
        del executable


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_ptx_assembles(chip: str) -> None:
    assemble(rlx.emit(graph(64, 1), "ptx", target="nvptx", chip=chip), chip)


def test_sizes_that_do_not_fit() -> None:
    executable = rlx.compile(graph(3), cache=False)
    given = operands(2, 3, 4)
    with pytest.raises(rlx.errors.InputError, match=r"'mir.sample' .*expects that p is at least 1, but 0 and 1"):
        executable.run({**given, "draws": given["draws"][:, :0], "chosen": given["chosen"][:, :0]})
