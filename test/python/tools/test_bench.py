# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`rlx bench`: workloads, rivals as far as they are installed, the process that measures, and the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import rlx

import rlx_mlir
from rlx_mlir.errors import ExecutionError, InputError, UnsupportedError
from rlx_mlir.measure import bench, rivals, workloads
from rlx_mlir.measure.bench import Request
from rlx_mlir.measure.rivals import RIVALS, Rival
from rlx_mlir.tools import bench as command

KERNEL_RIVALS = [name for name, rival in RIVALS.items() if rival.prepare is not None]

#: Others of their kinds are tested.
ALIKE = (
    "gemm-128x1536x576",
    "gemm-512x512x512",
    "mlp-128x576x1536",
    "layer_norm-128x576",
    "attention-2048x2048-f16",
)


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_DEBUG", "")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize("name", workloads.WORKLOADS)
@pytest.mark.quick(3)
def test_the_graph_is_the_reference(name: str) -> None:
    workload = workloads.WORKLOADS[name]()
    found = rlx_mlir.interpret(workload.build(), {**workload.inputs, **workload.params})["y"]
    rivals.check(workload, "the interpreter", found)
    assert workload.name == name


@pytest.mark.parametrize("rival", KERNEL_RIVALS)
@pytest.mark.parametrize("name", [name for name in workloads.WORKLOADS if name not in ALIKE])
def test_a_rival_computes_the_same(rival: str, name: str) -> None:
    if RIVALS[rival].missing:
        pytest.skip(f"{rival} isn't installed")
    workload = workloads.WORKLOADS[name]()
    prepare = RIVALS[rival].prepare
    assert prepare is not None
    rivals.check(workload, rival, prepare(workload, 1)())


def test_another_result_is_refused() -> None:
    workload = workloads.WORKLOADS["softmax-128x1024"]()
    with pytest.raises(UnsupportedError, match=r"torch computes something else: softmax-128x1024 differs by 0\.1"):
        rivals.check(workload, "torch", workload.reference() + 0.1)
    with pytest.raises(UnsupportedError, match="differs by inf"):
        rivals.check(workload, "torch", np.zeros(3))


def test_linalg_for_others() -> None:
    text = rivals.linalg_text(workloads.WORKLOADS["mlp-1x576x1536"]())
    assert "func.func @main(%arg0: tensor<1x576xf32>, %arg1: tensor<576x1536xf32>" in text
    assert "linalg.generic" in text
    assert "mir." not in text


def test_names() -> None:
    assert workloads.chosen([]) == list(workloads.WORKLOADS)
    assert workloads.chosen(["rms", "soft"]) == ["rms_norm-128x576", "softmax-128x1024"]
    with pytest.raises(InputError, match="no workload's name begins with 'conv': there are gemm-1x1536x576"):
        workloads.chosen(["conv"])
    with pytest.raises(InputError, match=r"'vs' expects some of llama.cpp, torch, .*, but got 'tvm'"):
        rivals.rivals_of("numpy,tvm")


def test_a_request_is_text() -> None:
    request = Request(threads=2, vs=("numpy",), kernels=("a", "b"), floor=0.5)
    assert Request.from_json(request.to_json()) == request


def test_cpus_are_of_this_process() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    assert bench.cpus(1) == allowed[:1]
    assert sorted(bench.cpus(len(allowed))) == allowed


def test_an_environment_says_threads_to_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    found = rivals.environment(3)
    assert found["OMP_NUM_THREADS"] == found["RLX_NUM_THREADS"] == found["OPENBLAS_NUM_THREADS"] == "3"
    assert "OPENBLAS_CORETYPE" not in found
    assert found["PATH"] == os.environ["PATH"]


def rows_of(request: Request) -> list[dict[str, Any]]:
    return list(bench.run(request, lambda text: None))


def test_workloads_are_measured() -> None:
    (row,) = rows_of(Request(threads=1, vs=("numpy",), kernels=("softmax-128x1024",), rounds=3, floor=0.001))
    assert row["vs"] == "numpy"
    assert row["ours"]["rounds"] == row["theirs"]["rounds"] == 3
    assert row["ratio"] is None or row["ratio"] > 0
    assert 0 < row["roofline"] < 3
    (alone,) = rows_of(Request(threads=1, kernels=("softmax-128x1024",), rounds=3, floor=0.001))
    assert alone["vs"] is None
    assert "theirs" not in alone


def test_a_rival_that_fails_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(workload: Any, threads: int) -> Any:
        raise RuntimeError("no such kernel\nand more")

    def wrong(workload: Any, threads: int) -> Any:
        return lambda: workload.reference() * 2

    monkeypatch.setitem(RIVALS, "torch", Rival("torch", (), (), broken))
    monkeypatch.setitem(RIVALS, "jax", Rival("jax", (), (), wrong))
    request = Request(threads=1, vs=("torch", "jax"), kernels=("softmax-128x1024",), rounds=1, floor=0.001)
    ours, torch, jax = rows_of(request)
    assert ours["vs"] is None
    assert torch["error"] == "no such kernel"
    assert jax["error"].startswith("jax computes something else")


@pytest.mark.slow
def test_models_are_measured(tiny_llama: Path) -> None:
    request = Request(threads=1, model=str(tiny_llama), prompts=(4, 8), decode=3, rounds=1)
    rows = rows_of(request)
    assert [row["what"] for row in rows] == ["prefill 4", "prefill 8", "decode"]
    assert all(row["ours"]["median"] > 0 and row["roofline"] > 0 for row in rows)


# The command ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--kernels", "softmax", "--vs", "numpy", "--threads", "1", "--rounds", "3")
    text = rlx("bench", *options).stdout
    assert text.startswith("python ")
    assert "numpy" in text
    assert "softmax-128x1024" in text
    assert "machine, 1 threads: " in text
    found = json.loads(rlx("bench", *options, "--json").stdout)
    assert set(found) == {"about", "missing", "rows"}
    assert [row["vs"] for row in found["rows"]] == ["numpy"]


def test_bench_of_a_model(tiny_llama: Path) -> None:
    options = ("--threads", "1", "--rounds", "1", "--prompt", "4", "--decode", "0", "--json")
    result = rlx("bench", "--model", tiny_llama, *options)
    found = json.loads(result.stdout)
    if RIVALS["llama.cpp"].missing:
        assert found["missing"] == {"llama.cpp": ["llama_cpp"]}
    assert found["rows"][0]["what"] == "prefill 4"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RIVALS, "torch", Rival("torch", ("no_such_module",), ("torch",), RIVALS["torch"].prepare))
    monkeypatch.setattr(command, "run_apart", lambda request, say: ({}, []))
    text = rlx("bench", "--kernels", "softmax", "--vs", "torch").stderr
    assert "torch isn't there (no_such_module): pip install 'rlx-mlir[bench]'" in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--threads", "0"), "'--threads' expects positive numbers with commas between, but got '0'"),
        (("--prompt", "a"), "'--prompt' expects positive numbers"),
        (("--vs", "tvm"), "but got 'tvm'"),
        (("--vs", "llama.cpp"), "'llama.cpp' has nothing to compare with kernels"),
        (("--model", "smollm2", "--vs", "torch"), "'torch' has nothing to compare with a model"),
        (("--model", "smollm2", "--kernels", "gemm"), "'--kernels' names workloads"),
        (("--kernels", "conv"), "no workload's name begins with 'conv'"),
        (("--model", "no.gguf", "--vs", ""), "no.gguf"),
    ],
)
@pytest.mark.quick(2)
def test_wrong_requests(options: tuple[str, ...], text: str) -> None:
    assert text in rlx("bench", *options, status=1).stderr


def test_a_process_that_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = subprocess.Popen

    def crashing(arguments: list[str], **options: Any) -> Any:
        code = 'print(\'{"progress": "softmax"}\', flush=True); import os; os.kill(os.getpid(), 11)'
        return whole([sys.executable, "-c", code], **options)

    monkeypatch.setattr(subprocess, "Popen", crashing)
    with pytest.raises(ExecutionError, match="ended during 'softmax': status -11"):
        command.run_apart(Request(threads=1), None)


def test_noise_is_not_a_ratio() -> None:
    series = {"median": 2.0, "spread": 0.5, "drift": 0.0, "rounds": 5}
    machine = {"flops": 1e9, "integer_ops": None, "bandwidth": 1e9}
    row = {"what": "w", "threads": 1, "unit": "us", "ours": series, "theirs": series, "vs": "numpy", "roofline": 0.5}
    row |= {"bound": "memory", "machine": machine, "ratio": None, "noise": "of ours, spread of 50% is above 25%"}
    text = command.format_bench({"python": "3"}, [row, {"what": "w", "threads": 1, "vs": "jax", "error": "no"}])
    assert "inconclusive: of ours, spread of 50%" in text
    assert text.endswith("w, jax: no")


def test_tools_of_rivals_are_found_where_path_does_not_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the interpreter, or where the scripts of its packages are; PATH is asked last."""
    scripts, beside = tmp_path / "scripts", tmp_path / "bin"
    for folder in (scripts, beside):
        folder.mkdir()
    monkeypatch.setattr("sys.executable", str(beside / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(scripts))
    monkeypatch.setattr("sys.prefix", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", "")
    assert rivals._tool("iree-compile") == "iree-compile"
    (scripts / "iree-compile").touch()
    assert rivals._tool("iree-compile") == str(scripts / "iree-compile")
    (beside / "iree-compile").touch()
    assert rivals._tool("iree-compile") == str(beside / "iree-compile")
