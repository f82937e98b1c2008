# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text of stages after mir is compiled on from: as it was printed, and edited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir import GraphModule, formats
from rlx_mlir.errors import CompileError, InputError, StageError
from rlx_mlir.tools.cli import app

STAGES = ("kernels", "lir", "linalg")


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
@pytest.mark.quick(1)
def test_text_of_a_stage_is_compiled_on_from(stage: str) -> None:
    again = GraphModule.from_text(rlx.emit(module(), stage))
    assert again.stage == stage
    assert rlx.emit(again, stage) == rlx.emit(module(), stage)
    assert rlx.emit(again, "asm") == rlx.emit(module(), "asm")
    artifact, plain = rlx.compile(again).artifact, rlx.compile(module()).artifact
    assert artifact.parameters == plain.parameters
    assert artifact.preparation == plain.preparation
    assert (artifact.kinds, artifact.templates) == (plain.kinds, plain.templates)
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


def test_edited_code_of_a_kernel_runs() -> None:
    """Of a kernel that a template made, and of one that is linalg."""
    text = rlx.emit(module(), "linalg", disable_templates=("rows",))
    x = np.random.default_rng(1).standard_normal((5, 64), np.float32)
    begin = text.index("@dequant_matmul_silu_0.body")
    end = text.index("func.func", begin)
    body = text[begin:end]
    assert "arith.divf" in body
    edited = results(GraphModule.from_text(text[:begin] + body.replace("arith.divf", "arith.mulf") + text[end:]))
    z = x @ parameters()["dense"]
    np.testing.assert_allclose(edited["y"], z * (1 + np.exp(-z)), rtol=1e-4, atol=1e-4)
    generic = text.index("@softmax_0.mir")
    assert "linalg.generic" in text[generic:]
    edited = results(GraphModule.from_text(text[:generic] + text[generic:].replace("math.exp ", "math.absf ", 1)))
    assert not np.allclose(edited["z"], results(module())["z"])
    np.testing.assert_array_equal(edited["y"], results(module())["y"])


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.quick(1)
def test_commands_go_on_from_files(stage: str, tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(rlx.emit(module(), stage))
    result = CliRunner().invoke(app, ["emit", str(tmp_path / "m.mlir"), "--stage", "asm"])
    assert result.exit_code == 0, result.output
    assert result.output.strip() == rlx.emit(module(), "asm").strip()


def test_code_is_for_one_machine() -> None:
    text = rlx.emit(module(), "linalg")
    for old, new, message in (
        ("mir.machine = ", "mir.other = ", "'mir.machine' doesn't say for which machine, but it is compiled for"),
        (
            'mir.machine = "',
            'mir.machine = "other ',
            "'mir.machine' says that it is for other .*; text of stage lir is",
        ),
    ):
        assert old in text
        with pytest.raises(StageError, match=f"'resumed' can't be compiled from stage linalg on: .*{message}"):
            rlx.compile(GraphModule.from_text(text.replace(old, new)), cache=False)
    gpu = GraphModule.from_text(rlx.emit(module(), "linalg", target="nvptx", chip="sm_80"))
    with pytest.raises(StageError, match="says that it is for nvptx sm_80, but it is compiled for nvptx sm_90"):
        rlx.emit(gpu, "ptx", target="nvptx", chip="sm_90")


def test_calls_of_own_operations_go_on_from_where_they_are_named() -> None:
    rlx.register_op("resume.half", infer=lambda x: x, reference=lambda x: x / 2, kernel=lambda x: x / 2)
    try:
        m = GraphModule.mir("own")
        m.set_outputs({"y": m.custom("resume.half", m.input("x", [4]))})
        x = np.ones(4, np.float32)
        assert rlx.compile(GraphModule.from_text(rlx.emit(m, "lir")), cache=False).run({"x": x})["y"][0] == 0.5
        with pytest.raises(StageError, match="calls an operation of the user's own, which text of stage lir names"):
            rlx.compile(GraphModule.from_text(rlx.emit(m, "linalg")), cache=False)
    finally:
        rlx.unregister_op("resume.half")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.quick(1)
def test_gpu_text_is_compiled_on_from(stage: str) -> None:
    text = rlx.emit(module(), stage, target="nvptx", chip="sm_80")
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
        ("linalg", {"disable_templates": ("all",)}, "'disable_templates' has no meaning for 'resumed', which is at"),
        ("linalg", {"choices": {"softmax_0": {"prefetch": 0}}}, "'choices' has no meaning for 'resumed', which is at"),
    ],
)
@pytest.mark.quick(3)
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


@pytest.mark.parametrize("stage", ["gpu", "nvvm"])
@pytest.mark.quick(1)
def test_later_stages_are_looked_at_only(stage: str) -> None:
    text = rlx.emit(module(), stage, target="nvptx")
    with pytest.raises(
        StageError, match=f"text of stage '{stage}' is there .*compiled on from, is text of hir, mir, ker"
    ):
        GraphModule.from_text(text)


def test_stages_that_are_text_of_other_kinds_are_no_modules() -> None:
    for stage in ("llvm", "asm"):
        with pytest.raises(InputError):
            GraphModule.from_text(rlx.emit(module(), stage))
