# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text of stages after mir is compiled on from: as it was printed, and edited."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx_mlir as rlx
from rlx_mlir import GraphModule, formats
from rlx_mlir.errors import CompileError, InputError, StageError

STAGES = ("kernels", "lir")


def module() -> GraphModule:
    """Dense and packed weights, a parameter that nothing reads, and a size that is open."""
    m = GraphModule.mir("resumed")
    x = m.input("x", ["n", 64])
    m.param("unused", [3])
    dense, packed = m.param("dense", [64, 48]), m.param("packed", [40, 64], packed="q4_0")
    m.set_outputs({"y": m.silu(m.matmul(x, dense)), "z": m.softmax(m.dequant_matmul(x, packed))})
    return m


def parameters() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    packed = formats.encode("q4_0", rng.standard_normal((40, 64), np.float32)).reshape(40, -1)
    return {
        "dense": rng.standard_normal((64, 48), np.float32),
        "unused": np.zeros(3, np.float32),
        "packed": packed,
    }


def results(given: GraphModule, **options: Any) -> dict[str, np.ndarray]:
    executable = rlx.compile(given, cache=False, **options)
    executable.set_params(parameters())
    return executable.run({"x": np.random.default_rng(1).standard_normal((5, 64), np.float32)})


@pytest.mark.parametrize("stage", STAGES)
def test_text_of_a_stage_is_compiled_on_from(stage: str) -> None:
    again = GraphModule.from_text(rlx.emit(module(), stage))
    assert again.stage == stage
    assert rlx.emit(again, stage) == rlx.emit(module(), stage)
    assert rlx.emit(again, "asm") == rlx.emit(module(), "asm")
    assert rlx.compile(again).artifact.parameters == rlx.compile(module()).artifact.parameters
    wanted = results(module())
    for name, found in results(again).items():
        np.testing.assert_array_equal(found, wanted[name])


def test_an_edited_kernel_runs() -> None:
    text = rlx.emit(module(), "kernels")
    assert text.count("mir.silu") == 1
    edited = results(GraphModule.from_text(text.replace("mir.silu", "mir.tanh")), verify="numeric")
    x = np.random.default_rng(1).standard_normal((5, 64), np.float32)
    np.testing.assert_allclose(edited["y"], np.tanh(x @ parameters()["dense"]), rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(edited["z"], results(module())["z"])


def test_gpu_text_is_compiled_on_from() -> None:
    text = rlx.emit(module(), "kernels", target="nvptx", chip="sm_80")
    again = rlx.emit(GraphModule.from_text(text), "ptx", target="nvptx", chip="sm_80")
    assert again == rlx.emit(module(), "ptx", target="nvptx", chip="sm_80")


@pytest.mark.parametrize(
    ("stage", "options", "message"),
    [
        ("kernels", {"activations": "int8"}, "'activations' has no meaning for 'resumed', which is at stage kernels"),
        ("kernels", {"intermediates": "wide"}, "'intermediates' has no meaning for 'resumed'"),
        ("lir", {"maxima": {"n": 9}}, "'maxima' has no meaning for 'resumed', which is at stage lir already"),
        ("lir", {"verify": "numeric"}, "'verify' has no meaning for 'resumed', which is at stage lir already"),
        ("lir", {"passes": {"after:lir-plan": "cse"}}, "has a place among the passes to lir, but"),
    ],
)
def test_options_of_stages_that_are_past(stage: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rlx.compile(GraphModule.from_text(rlx.emit(module(), stage)), cache=False, **options)


def test_options_of_stages_that_come() -> None:
    again = GraphModule.from_text(rlx.emit(module(), "kernels"))
    executable = rlx.compile(again, cache=False, maxima={"n": 9}, passes={"after:rlx-to-llvm": "cse"})
    assert dict(executable.artifact.symbols) == {"n": 9}


def test_text_that_is_not_of_its_stage() -> None:
    text = rlx.emit(module(), "kernels")
    assert 'mir.kernel = "gemm"' in text
    again = GraphModule.from_text(text.replace('mir.kernel = "gemm"', 'mir.kernel = "other"'))
    with pytest.raises(StageError, match=r"(?s)can't be compiled from stage kernels on: .*a kernel has a 'mir.kernel'"):
        rlx.compile(again, cache=False)


def test_parameters_that_are_none() -> None:
    text = rlx.emit(module(), "kernels")
    for old, new in (('name = "dense", ', ""), ("shape = [64, 48]", "shape = 3")):
        assert old in text
        with pytest.raises(CompileError, match=r"'mir.parameters' of the module lists dictionaries of name, dtype"):
            rlx.compile(GraphModule.from_text(text.replace(old, new)), cache=False)


def test_later_stages_are_looked_at_only() -> None:
    with pytest.raises(StageError, match="is at stage hir, mir, kernels, lir, but this one is at linalg"):
        rlx.compile(GraphModule.from_text(rlx.emit(module(), "linalg")))
