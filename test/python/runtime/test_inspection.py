# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is said of files of compiled code, and what is found wrong with them, without running anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir import Artifact, GraphModule, native
from rlx_mlir.compiler import CompileOptions, build_artifact
from rlx_mlir.errors import CacheError
from rlx_mlir.run import main
from rlx_mlir.runtime import inspection
from rlx_mlir.runtime.container import Kind, write_container
from rlx_mlir.tools.cli import app

ARM = "aarch64-linux-gnu"


def module() -> GraphModule:
    m = GraphModule.hir("scaled")
    x, w = m.input("x", ["rows", 8]), m.param("w", [8, 5])
    m.set_outputs({"y": m.linear(x, w)})
    return m


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return build_artifact(module(), CompileOptions(maxima={"rows": 4}))


@pytest.fixture(scope="module")
def foreign() -> Artifact:
    here = native.host_processor()[0]
    return build_artifact(module(), CompileOptions(triple=ARM if here == "x86_64" else "x86_64-linux-gnu"))


@pytest.fixture
def files(tmp_path: Path, artifact: Artifact, foreign: Artifact) -> dict[str, Path]:
    artifact.save(tmp_path / "own.rlx")
    with write_container(tmp_path / "all.rlx") as file:
        file.add("manifest", b"{}")
        file.add_artifact("artifact/own/native", artifact)
        file.add_artifact("artifact/own/foreign", foreign)
    (tmp_path / "text").write_text("nothing of ours")
    return {name: tmp_path / name for name in ("own.rlx", "all.rlx", "text")}


def rlx_command(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["artifact", *map(str, words)])
    return result.exit_code, result.output


def test_an_artefact_is_described(files: dict[str, Path]) -> None:
    found = inspection.describe(files["own.rlx"])
    assert (found["kind"], found["name"], found["version"]) == ("artifact", "scaled", 11)
    assert found["bytes"] == files["own.rlx"].stat().st_size
    assert (found["runs_here"], found["obstacle"]) == (True, "")
    assert found["sizes"] == {"rows": 4}
    assert (found["inputs"], found["parameters"]) == (["x: [rows, 8] f32"], ["w: [8, 5] f32"])
    status, text = rlx_command("show", files["own.rlx"], "--json")
    assert (status, json.loads(text)) == (0, found)
    status, text = rlx_command("show", files["own.rlx"])
    assert status == 0
    for line in ("module     scaled, ", "size       rows up to 4", "input      x: [rows, 8] f32", "runs here"):
        assert line in text


def test_a_container_is_described(files: dict[str, Path]) -> None:
    found = inspection.describe(files["all.rlx"])
    assert [(own["name"], own["kind"]) for own in found["sections"]] == [
        ("manifest", "data"),
        ("artifact/own/native", "code"),
        ("artifact/own/foreign", "code"),
    ]
    assert found["sections"][1]["artifact"]["runs_here"]
    other = found["sections"][2]["artifact"]
    assert not other["runs_here"]
    assert "was compiled for " in other["obstacle"]
    text = rlx_command("show", files["all.rlx"])[1]
    assert "artifact/own/foreign" in text
    assert f"doesn't run here: {other['obstacle']}" in text


def test_what_is_whole_holds(files: dict[str, Path]) -> None:
    """Code for another machine is linked, too."""
    assert [str(own) for own in inspection.verify(files["own.rlx"])] == ["holds  artifact"]
    parts = ["header and table", "manifest", "artifact/own/native", "artifact/own/foreign"]
    assert [str(own) for own in inspection.verify(files["all.rlx"])] == [f"holds  {part}" for part in parts]
    status, text = rlx_command("verify", files["all.rlx"], "--json")
    assert status == 0
    assert json.loads(text) == [{"part": part, "holds": True, "problem": ""} for part in parts]


def test_nothing_is_made_executable(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(native, "ObjectCode")
    assert not [own for own in inspection.verify(files["all.rlx"]) if own.problem]
    assert inspection.describe(files["all.rlx"])


def test_damage_is_found_and_named(files: dict[str, Path]) -> None:
    data = bytearray(files["own.rlx"].read_bytes())
    data[-1] ^= 1
    files["own.rlx"].write_bytes(data)
    status, text = rlx_command("verify", files["own.rlx"])
    assert status == 1
    assert text.startswith("FAILS  file: ")
    assert "own.rlx: the artefact's checksum doesn't hold: it is damaged" in text
    data = bytearray(files["all.rlx"].read_bytes())
    data[4096] ^= 1
    files["all.rlx"].write_bytes(data)
    found = [own for own in inspection.verify(files["all.rlx"]) if own.problem]
    assert [own.part for own in found] == ["manifest"]
    assert "all.rlx: section 'manifest' has the digest" in found[0].problem
    files["all.rlx"].write_bytes(data[:-1])
    (own,) = inspection.verify(files["all.rlx"])
    assert own.part == "file"
    assert "it is cut off" in own.problem


Change = Callable[[Artifact], Artifact]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: replace(a, code=a.code[:-1]), "object 0 cannot be loaded: its section table"),
        (lambda a: replace(a, code=b""), "object 0 cannot be loaded: it has 0 bytes"),
        (lambda a: replace(a, kernels=(*a.kernels, "absent")), "calls 'absent', which its code doesn't define"),
        (lambda a: replace(a, target={**a.target, "triple": "riscv64-linux"}), "'scaled' is for 'riscv64', but"),
        (lambda a: replace(a, target={**a.target, "triple": ARM}), "it is for ELF machine 62, this is machine 183"),
        (lambda a: replace(a, kernels=(f"{a.kernels[0]}_signature",)), "_signature', which is data, not code"),
        (lambda a: replace(a, inputs=(replace(a.inputs[0], dtype="f99"),)), "'x' has the element type 'f99'"),
    ],
)
def test_what_was_signed_and_is_wrong_is_found(
    tmp_path: Path, artifact: Artifact, change: Change, message: str
) -> None:
    if native.host_processor()[0] != "x86_64" and "machine" in message:
        pytest.skip("of x86-64")
    change(artifact).save(tmp_path / "wrong.rlx")
    (found,) = inspection.verify(tmp_path / "wrong.rlx")
    assert message in found.problem


def test_what_is_none_of_both(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(CacheError, match=r"text: neither an artefact nor a container: it starts with b'nothing '"):
        inspection.contents(files["text"])
    with pytest.raises(CacheError, match="it is a folder, but a file is expected"):
        inspection.contents(tmp_path)
    status, text = rlx_command("show", tmp_path / "missing.rlx")
    assert (status, text.strip()[-25:]) == (1, "No such file or directory")


# The command of the run time -------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(list(map(str, words)))
    return (status, *capsys.readouterr())


def test_a_module_is_run_on_arrays(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], artifact: Artifact
) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 8)).astype(np.float32), rng.standard_normal((8, 5)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    np.savez(tmp_path / "w.npz", w=w)
    own = rlx.Executable(artifact)
    own.set_params({"w": w})
    words = ("--params", tmp_path / "w.npz", "--inputs", tmp_path / "x.npz")
    assert run(capsys, "run", files["own.rlx"], *words, "-o", tmp_path / "y.npz", "--threads", 1) == (0, "", "")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], own.run({"x": x})["y"])
    status, out, _ = run(capsys, "run", files["all.rlx"], "--section", "artifact/own/native", *words)
    assert status == 0
    assert out.startswith("y: float32 [3, 5]\n[[")
    for line, message in (
        (("run", files["own.rlx"]), "--params is needed: the module takes arrays by name"),
        (("run", files["own.rlx"], "--params", files["text"]), "text can't be read as an .npz file"),
        (("run", files["own.rlx"], "--section", "a", *words), "--section names 'a', but the file is one artefact"),
        (("run", files["all.rlx"], *words), "--section is needed: the file has the artefacts artifact/own/native"),
        (("run", files["all.rlx"], "--section", "manifest", *words), "is of kind 0, but code is of kind 1"),
        (("run", tmp_path / "missing", *words), "No such file or directory"),
    ):
        status, out, error = run(capsys, *line)
        assert (status, out) == (1, "")
        assert message in error


def test_the_run_time_shows_and_verifies(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "show", files["own.rlx"])[1] == rlx_command("show", files["own.rlx"])[1]
    assert run(capsys, "verify", files["all.rlx"])[:2] == rlx_command("verify", files["all.rlx"])
    assert json.loads(run(capsys, "verify", files["all.rlx"], "--json")[1])[0]["holds"]
    assert run(capsys, "verify", files["text"])[0] == 1


def test_sections_that_say_they_are_code(tmp_path: Path) -> None:
    with write_container(tmp_path / "w") as file:
        file.add("broken", b"RLXMLIR\0", Kind.CODE)
    found: list[Any] = [own for own in inspection.verify(tmp_path / "w") if own.problem]
    assert [own.part for own in found] == ["broken"]
    with pytest.raises(CacheError, match="section 'broken': an artefact has at least"):
        inspection.describe(tmp_path / "w")
