# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparisons of files with onnxruntime find faults of reading and of compiling, where they are, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx_models  # noqa: E402
from onnx_models import Builder  # noqa: E402

import rlx_mlir as rlx  # noqa: E402
from rlx_mlir import compiler  # noqa: E402
from rlx_mlir.frontends.onnx import registry  # noqa: E402
from rlx_mlir.tools.cli import app  # noqa: E402


def saved(folder: Path, model: Any) -> Path:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture
def gated(tmp_path: Path) -> Path:
    """y = sigmoid(x w) tanh(x w), of [n, 7]."""
    b = Builder()
    product = b.node("MatMul", "x", b.normal(7, 9, scale=1.0))
    y = b.node("Mul", b.node("Sigmoid", product), b.node("Tanh", product))
    return saved(tmp_path, b.model({"x": (np.float32, ["n", 7])}, [y]))


def swap(monkeypatch: pytest.MonkeyPatch, op: str, other: str) -> None:
    """Plants a fault of reading: one operator is read as another."""
    monkeypatch.setitem(registry._HANDLERS, ("", op), registry._HANDLERS["", other])


@pytest.mark.parametrize("n", [1, 5])
def test_nothing_differs(gated: Path, n: int) -> None:
    verdict = rlx.check_against(gated, "onnxruntime", sizes={"n": n})
    assert verdict.difference is None, str(verdict)
    assert (verdict.compared, dict(verdict.skipped)) == (4, {})


def test_an_encoder_and_what_it_computes_of_shapes(tmp_path: Path) -> None:
    verdict = rlx.check_against(
        saved(tmp_path, onnx_models.encoder()), "onnxruntime", sizes={"batch": 2, "sequence": 5}
    )
    assert verdict.difference is None, str(verdict)
    assert verdict.compared > 100
    assert not verdict.skipped


def test_a_fault_of_reading_is_found(gated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swap(monkeypatch, "Tanh", "Sigmoid")
    found = rlx.check_against(gated, "onnxruntime").difference
    assert found is not None
    assert (found.op, found.fused) == ("Tanh", False)
    assert found.where.startswith("node 'Tanh_2'")
    assert abs(found.ours - found.theirs) > found.allowed


def test_another_shape_is_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    path = saved(
        tmp_path, b.model({"x": (np.float32, [3, 4])}, [b.node("Transpose", b.node("Relu", "x"), perm=[1, 0])])
    )
    swap(monkeypatch, "Transpose", "Relu")
    found = rlx.check_against(path, "onnxruntime").difference
    assert "is float32 [3, 4], but float32 [4, 3] is right" in str(found)


def test_a_fault_of_fusion_is_found(gated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = compiler.compile

    def wrong(module: rlx.GraphModule, **options: Any) -> Any:
        text = module.to_text(locations=True)
        fused = len(module.outputs) < 3
        return right(rlx.GraphModule.from_text(text.replace("mir.tanh", "mir.sigmoid") if fused else text), **options)

    monkeypatch.setattr(compiler, "compile", wrong)
    found = rlx.check_against(gated, "onnxruntime").difference
    assert found is not None
    assert (found.op, found.fused) == ("mir.tanh", True)


def test_what_is_not_compared_is_listed(tmp_path: Path) -> None:
    b = Builder()
    wide = b.node("Cast", "x", to=onnx.TensorProto.BFLOAT16)
    y = b.node("Cast", wide, to=onnx.TensorProto.FLOAT)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", [y], ["inner"])],
        "branch",
        [],
        [onnx.helper.make_tensor_value_info("inner", onnx.TensorProto.FLOAT, None)],
    )
    z = b.node("If", np.array(True), then_branch=graph, else_branch=graph)
    verdict = rlx.check_against(saved(tmp_path, b.model({"x": (np.float32, [3])}, [z])), "onnxruntime")
    assert verdict.difference is None
    assert ("If", "it has graphs in it") in verdict.skipped


def test_command(gated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["check-against", "onnxruntime", str(gated), "--size", "n=3"]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output
    assert "4 operations compared with onnxruntime\nnone differs" in run.output
    swap(monkeypatch, "Tanh", "Sigmoid")
    run = CliRunner().invoke(app, [*arguments, "--json"])
    assert run.exit_code == 1
    assert json.loads(run.output)["difference"]["op"] == "Tanh"
