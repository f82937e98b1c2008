# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Profiles of artefacts and of files with one module, and what artefacts say of the work of their calls."""

from __future__ import annotations

import dataclasses
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from descriptions import as_version_10, set_at
from test_cli import rlx

from rlx_mlir.compiler import CompileOptions, compile
from rlx_mlir.errors import CacheError, ExecutionError, InputError
from rlx_mlir.hir import GraphModule
from rlx_mlir.measure.files import profile_executable, profile_module
from rlx_mlir.measure.programs import executable_of, graph_of, options_of, work_of
from rlx_mlir.measure.work import ModuleWork
from rlx_mlir.models.loading import load_model
from rlx_mlir.runtime import inspection
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.runtime.executable import Executable
from rlx_mlir.runtime.work import CountedWork, Work
from rlx_mlir.runtime.work import work_of as counted_work_of


def _graph() -> GraphModule:
    m = GraphModule.hir("ffn")
    x, gamma, w = m.input("x", ["n", 64]), m.param("g", [64]), m.param("w", [64, 48])
    with m.scope("layer0"):
        m.set_outputs({"y": m.linear(m.rms_norm(x, gamma), w)})
    return m


@pytest.fixture(scope="module")
def executable() -> Executable:
    return compile(_graph(), maxima={"n": 33})


def _of(executable: Executable) -> CountedWork:
    found = counted_work_of(executable.artifact)
    assert found is not None
    return found


@pytest.mark.parametrize("n", [0, 1, 7, 33])
def test_work_of_an_artefact_is_that_of_its_graph(executable: Executable, n: int) -> None:
    """Counted by hand, too: of the norm and of the product; once it was a file."""
    artifact = Artifact.from_bytes(executable.artifact.to_bytes())
    found = counted_work_of(artifact)
    assert found is not None
    done = found.at({"n": n})
    assert done == ModuleWork(_graph(), CompileOptions(maxima={"n": 33})).at({"n": n})
    assert done[0] == Work(4 * 64 * n, 4 * (64 * n + 64), 4 * 64 * n)
    assert (done[1].flops, done[1].written) == (2 * n * 64 * 48, 4 * 48 * n)
    assert [call.block for call in found.calls] == ["layer0", "layer0"]
    assert [call.kernel for call in found.calls] == list(artifact.kernels)


def test_work_needs_every_size(executable: Executable) -> None:
    with pytest.raises(InputError, match="the work of a module needs a size for its symbol 'n'"):
        _of(executable).at({"m": 3})


@pytest.mark.parametrize("position", [0, 5, 40])
def test_work_of_models_counts_what_is_in_caches(tiny_llama: Path, position: int) -> None:
    """What artefacts say is what graphs give, at a position after the sizes; attention does more the later it is."""
    model = load_model(tiny_llama, context=64, threads=1)
    for program, sizes in (("prefill", {"seq": 5, "outputs": 1}), ("decode", {})):
        found = work_of(model, program)
        assert isinstance(found, CountedWork)
        known = {**dict(executable_of(model, program).artifact.symbols), **sizes}
        graph = ModuleWork(graph_of(model, program), options_of(model, program))
        assert found.at(known, position) == graph.at(known, position)
        (attention, *_) = (i for i, call in enumerate(found.calls) if call.kind == "attention")
        assert found.at(known, position + 1)[attention].flops > found.at(known, position)[attention].flops


def test_loops_do_their_steps() -> None:
    """A scan over `n` rows: each step's work as often as there are rows."""
    m = GraphModule.mir("loop")
    xs, w = m.input("xs", ["n", 8, 16]), m.param("w", [16, 16])
    start = m.input("h", [8, 16])
    final, _ = m.scan(lambda h, x: (m.matmul(m.add(h, x), w), h), start, xs)
    m.set_outputs({"y": final})
    found = _of(compile(m, maxima={"n": 9}))
    flops = [sum(own.flops for own in found.at({"n": n})) for n in (1, 4, 9)]
    assert flops[1] - flops[0] == 3 * (2 * 8 * 16 * 16 + 8 * 16)
    assert flops[2] - flops[1] == 5 * (2 * 8 * 16 * 16 + 8 * 16)


def test_files_without_work_are_read(executable: Executable, tmp_path: Path) -> None:
    """Of version 10: they run, and profiles have times."""
    path = tmp_path / "old.rlx"
    path.write_bytes(as_version_10(executable.artifact))
    artifact = Artifact.load(path)
    assert counted_work_of(artifact) is None
    assert not any(own.problem for own in inspection.verify(path))
    assert inspection.describe(path)["version"] == 10
    found = profile_executable(Executable(artifact, threads=1), rounds=2)
    assert found.program is None
    assert set(found.to_dict()) == {"program", "sizes", "threads", "seconds", "report"}
    with pytest.raises(InputError, match="'ffn' doesn't say what its calls read, write and compute: compile it again"):
        _ = found.profile
    assert "GFLOP/s" not in rlx("profile", path, "--rounds", "1").stdout


@pytest.mark.parametrize(("version", "word"), [(9, "9"), (12, "12")])
def test_other_versions_are_refused(executable: Executable, version: int, word: str) -> None:
    data = executable.artifact.to_bytes()
    with pytest.raises(CacheError, match=f"not an artefact of version 11, but of {word}: compile the module again"):
        Artifact.from_bytes(data[:8] + struct.pack("<I", version) + data[12:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_at("calls", to=[[0, "a"]]), "work is given of 1 calls, but there are 2"),
        (set_at("calls", 0, 0, to=7), "a call does work 7 of 2"),
        (set_at("calls", 0, 0, to=-1), "a call does work -1 of 2"),
        (set_at("work", 0, 0, to=[[1, [2]]]), "is no size with 2 symbols"),
        (set_at("work", 0, 0, to="x"), "makes no sense"),
        (set_at("kernels", to={}), "makes no sense"),
    ],
)
def test_work_that_makes_no_sense(executable: Executable, tmp_path: Path, change: Any, message: str) -> None:
    """Loading doesn't read it; profiles and `rlx artifact verify` do."""
    work = json.loads(json.dumps(executable.artifact.work))
    change(work)
    damaged = dataclasses.replace(executable.artifact, work=work)
    path = tmp_path / "damaged.rlx"
    damaged.save(path)
    with pytest.raises(ExecutionError, match=message):
        profile_executable(Executable(damaged, threads=1), rounds=1)
    (finding,) = inspection.verify(path)
    assert message in finding.problem


def test_profiles_of_artefacts_have_limits(executable: Executable, tmp_path: Path) -> None:
    path = tmp_path / "ffn.rlx"
    executable.artifact.save(path)
    options = ("--threads", "1", "--rounds", "2", "--size", "n=5")
    text = rlx("profile", path, *options).stdout
    assert text.startswith("machine: 1 threads: ")
    assert "ffn at n = 5: one call in " in text
    assert "layer0" in text
    pictures = ("--trace", tmp_path / "t.json", "--plot", tmp_path / "p.html")
    found = json.loads(rlx("profile", path, *options, *pictures, "--json").stdout)
    assert found["flops"] == sum(own.flops for own in _of(executable).at({"n": 5}))
    assert {"bytes", "flops", "bound", "roofline"} <= found["kernels"][0].keys()
    slices = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {"ffn", *executable.artifact.kernels} <= {own["name"] for own in slices}
    assert (tmp_path / "p.html").read_text().startswith("<!doctype html>")


def test_profiles_of_files_are_those_of_artefacts(tmp_path: Path) -> None:
    """Text of a graph, and of its kernels."""
    found = profile_module(_graph(), threads=1, maxima={"n": 9}, rounds=1)
    assert found.program is not None
    from rlx_mlir.compiler import emit

    kernels = GraphModule.from_text(emit(_graph(), "kernels", maxima={"n": 9}))
    again = profile_module(kernels, threads=1, maxima={"n": 9}, rounds=1)
    assert again.program is not None
    assert again.program.total == found.program.total
    planned = GraphModule.from_text(emit(_graph(), "lir", maxima={"n": 9}))
    assert profile_module(planned, threads=1, rounds=1).program is None
