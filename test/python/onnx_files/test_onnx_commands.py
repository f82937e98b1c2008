# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Commands that take a module take an ONNX file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rlx_mlir.frontends.onnx import from_onnx
from rlx_mlir.tools.cli import app

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = relu(x w), with x of [batch, 16]."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["product"]), helper.make_node("Relu", ["product"], ["y"])]
    weight = np.linspace(-1, 1, 16 * 32, dtype=np.float32).reshape(16, 32)
    graph = helper.make_graph(
        nodes,
        "rectified",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path_factory.mktemp("onnx") / "rectified.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def run(*arguments: object, status: int = 0) -> str:
    found = CliRunner().invoke(app, list(map(str, arguments)))
    assert found.exit_code == status, found.output
    return found.stdout


def test_stages_and_graphs(file: Path) -> None:
    assert "mir.matmul" in run("emit", file, "--stage", "mir")
    nodes = json.loads(run("export", file))["nodes"]
    assert [node["op"] for node in nodes] == ["mir.matmul", "mir.relu"]
    assert run("draw", file).startswith("<svg")
    assert json.loads(run("estimate", file, "--maximum", "batch=4", "--json"))


def test_reports_know_the_weights_of_the_file(file: Path) -> None:
    found = json.loads(run("report", file, "--ranges", "f16", "--json"))
    assert len(found["dispatch"]["kernels"]) == 1
    assert "ranges" in found


def test_a_report_with_ranges_reads_the_file_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    monkeypatch.setattr("rlx_mlir.frontends.onnx.from_onnx", lambda path: read.append(path) or from_onnx(path))
    run("report", file, "--ranges", "f16", "--json")
    assert read == [file]


def test_tuning(file: Path, fresh_cache: Path) -> None:
    found = json.loads(run("tune", file, "--size", "batch=4", "--maximum", "batch=8", "--dry-run", "--json"))
    assert len(found["programs"]) == 1
    assert "says nothing about a file of one module" in CliRunner().invoke(
        app, ["tune", str(file), "--prompt-tokens", "8"]
    ).output.replace("\n", " ")


def test_calibration_takes_the_weights_of_the_file(file: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = [tmp_path / f"{number}.npz" for number in range(3)]
    for path in data:
        np.savez(path, x=rng.standard_normal((4, 16), np.float32))
    assert "[-1.000000e+00 : f32, 1.000000e+00 : f32]" in run("calibrate", file, *data)  # of the weight
    assert "q_matmul" in run("calibrate", file, *data, "--quantize")


def test_files_that_are_no_onnx(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"\x08\x99nonsense")
    found = CliRunner().invoke(app, ["emit", str(path)])
    assert found.exit_code == 1
    assert "broken.onnx" in found.output
