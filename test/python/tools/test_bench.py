# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`rlx bench`: workloads, rivals as far as they are installed, the process that measures, and the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import rlx

import rlx_mlir
from rlx_mlir.activations import ACTIVATIONS
from rlx_mlir.against import iree_tools
from rlx_mlir.errors import ExecutionError, InputError, UnsupportedError
from rlx_mlir.measure import bench, models, rivals, shapes, workloads
from rlx_mlir.measure.bench import Request
from rlx_mlir.measure.models import Setting
from rlx_mlir.measure.rivals import RIVALS, Rival
from rlx_mlir.tools import bench as command
from rlx_mlir.tools.options import Device

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


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.wide] * (name in ALIKE)) for name in workloads.WORKLOADS]
)
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
    with pytest.raises(InputError, match=r"'vs' expects some of llama.cpp, .*, numpy, but got 'tvm'"):
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


@pytest.mark.wide
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


class Fake:
    """A rival that takes no time, with rates of its own; the second kind can't decode behind many positions."""

    def __init__(self, setting: Setting, limited: bool = False) -> None:
        self.setting, self.limited = setting, limited

    def prefill(self, ids: list[int]) -> float:
        return 1000.0

    def decode(self, ids: list[int], steps: int) -> float:
        if self.limited and len(ids) > 32:
            raise RuntimeError("no room")
        return 100.0

    def decode_together(self, prompts: list[list[int]], steps: int) -> float:
        if self.limited:
            raise UnsupportedError("one sequence alone")
        assert len({tuple(ids) for ids in prompts}) == len(prompts)
        return 100.0 * len(prompts)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(setting: Setting) -> Any:
        raise RuntimeError("no such model\nand more")

    for name, load in (("llama.cpp", Fake), ("llama.cpp-q8_0", broken), ("openvino", partial(Fake, limited=True))):
        monkeypatch.setitem(RIVALS, name, Rival(name, (), (), load=load))


@pytest.mark.wide
def test_models_beside_rivals(tiny_llama: Path, fakes: None) -> None:
    vs = ("llama.cpp", "llama.cpp-q8_0", "openvino")
    request = Request(1, vs, str(tiny_llama), prompts=(4,), decode=3, contexts=(100,), rounds=1, kv_dtype="f16")
    rows = rows_of(request)
    failures = {row["vs"]: (row["what"], row["error"]) for row in rows if "error" in row}
    assert failures == {
        "llama.cpp-q8_0": (str(tiny_llama), "no such model"),
        "openvino": ("decode at 100", "no room"),
    }
    good = [row for row in rows if "error" not in row]
    assert [(row["what"], row["vs"]) for row in good] == [
        ("prefill 4", "llama.cpp"),
        ("prefill 4", "openvino"),
        ("decode", "llama.cpp"),
        ("decode", "openvino"),
        ("decode at 100", "llama.cpp"),
    ]
    for row in good:
        share = row["their_roofline"] / row["roofline"]
        assert share == pytest.approx(row["theirs"]["median"] / row["ours"]["median"])
        assert row["theirs"]["median"] == (1000.0 if row["what"] == "prefill 4" else 100.0)


@pytest.mark.wide
def test_sequences_together_beside_rivals(tiny_llama: Path, fakes: None) -> None:
    vs = ("llama.cpp", "openvino")
    request = Request(1, vs, str(tiny_llama), prompts=(), decode=3, sequences=(1, 3), rounds=1)
    rows = rows_of(request)
    assert [(row["what"], row["vs"], row.get("error")) for row in rows] == [
        ("decode", "llama.cpp", None),
        ("decode", "openvino", None),
        ("decode 1 together", "openvino", "one sequence alone"),
        ("decode 1 together", "llama.cpp", None),
        ("decode 3 together", "llama.cpp", None),
    ]
    assert [row["theirs"]["median"] for row in rows if row["vs"] == "llama.cpp"] == [100.0, 100.0, 300.0]
    one, three = rows[-2:]
    assert one["roofline"] > 0
    # Weights are read once for all, and operations are those of each.
    per_token = {row["what"]: row["gflops"] / row["ours"]["median"] for row in (one, three)}
    assert per_token["decode 3 together"] == pytest.approx(per_token["decode 1 together"], rel=0.01)
    reads = [row["gbps"] / row["ours"]["median"] for row in (one, three)]
    assert reads[1] < 0.6 * reads[0]


@pytest.mark.wide
def test_sequences_decode_together_step_by_step(tiny_llama: Path) -> None:
    ours = models.Ours(models.Setting(str(tiny_llama), 1, 256))
    prompts = [[number, *range(20, 40)] for number in range(3)]
    for steps in (1, 5):
        assert ours.decode_together(prompts, steps) > 0
        assert ours._engines[3].is_idle


def test_every_prompt_is_processed_whole(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a prompt has in common with the one before it isn't taken over: that would be the rate of another."""
    ours = models.Ours(models.Setting(str(tiny_llama), 1, 256))
    given: list[int] = []
    whole = type(ours._session)._prefill

    def counted(session: Any, ids: list[int], rows: Any, out: Any) -> None:
        given.append(len(ids))
        whole(session, ids, rows, out)

    monkeypatch.setattr(type(ours._session), "_prefill", counted)
    assert all(ours.prefill(list(range(10, 30))) > 0 for _ in range(2))
    assert given == [20, 20]
    assert all(ours.decode(list(range(10, 110)), 3) > 0 for _ in range(2))
    assert given[2:] == [100, 1]  # decoding starts from a cache that is there


def test_positions_that_a_request_needs() -> None:
    assert Request(1, prompts=(512,), decode=0).positions == 512
    assert Request(1, prompts=(16,), decode=48).positions == 32 + 1 + 48
    assert Request(1, prompts=(16,), decode=10, contexts=(8192,)).positions == 8192 + 1 + 10
    assert Request(1, prompts=(), decode=0, contexts=(8192,)).positions == 1
    assert Request(1, prompts=(16,), decode=10, sequences=(4, 16)).positions == 32 + 16 + 1 + 10


def test_a_context_beyond_the_model(tiny_llama: Path) -> None:
    with pytest.raises(InputError, match="'context' must be from 1 to the model's, 256, but is 257"):
        rows_of(Request(1, model=str(tiny_llama), prompts=(257,), decode=0, rounds=1))


@pytest.mark.parametrize("name", ["llama.cpp", "llama.cpp-q8_0", "openvino"])
def test_a_rival_runs_a_model(name: str, tmp_path: Path) -> None:
    rival = RIVALS[name]
    if rival.missing:
        pytest.skip(f"{name} isn't installed")
    shape = shapes.Shape("tiny", 2, 256, 512, 4, 2, 512, "q4_k_m", context=512)
    assert rival.load is not None
    loaded = rival.load(models.Setting(str(shapes.write_shape(tmp_path / "m.gguf", shape)), 1, 256))
    for _ in range(2):
        assert loaded.prefill(list(range(10, 74))) > 0
        assert loaded.decode(list(range(10, 74)), 4) > 0
        if name != "openvino":
            assert loaded.decode_together([[number, *range(10, 30)] for number in range(3)], 4) > 0


def test_what_is_missing_is_got_by() -> None:
    assert RIVALS["openvino"].install == "pip install openvino-genai"
    assert RIVALS["llama.cpp-q8_0"].install == "pip install llama-cpp-python"
    assert RIVALS["jax"].install == "pip install 'rlx-mlir[bench]'"


def test_ways_of_activations() -> None:
    assert command._modes(None, Device.cpu) == ()
    assert command._modes(["auto"], Device.cuda) == ("int8",)
    assert command._modes(["exact,int8", "exact"], Device.cpu) == ("exact", "int8")
    assert command._modes([",".join(ACTIVATIONS)], Device.cpu) == ACTIVATIONS


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


@pytest.mark.wide
def test_bench_of_a_model(tiny_llama: Path) -> None:
    options = ("--threads", "1", "--rounds", "1", "--prompt", "4", "--decode", "0", "--json")
    result = rlx("bench", "--model", tiny_llama, *options)
    found = json.loads(result.stdout)
    if RIVALS["llama.cpp"].missing:
        assert found["missing"]["llama.cpp"] == ["llama_cpp"]
    assert "llama.cpp-q8_0" not in found["missing"]  # it is measured where it is named
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
        (("--model", "smollm2", "--shape", "7b-q4_0"), "'--shape' makes a model, so '--model' can't name one"),
        (("--model", "smollm2", "--layers", "2"), "'--layers' says nothing about what isn't a '--shape'"),
        (("--context", "100"), "'--context' says nothing about kernels"),
        (("--sequences", "2"), "'--sequences' says nothing about kernels"),
        (("--model", "smollm2", "--sequences", "65"), "'--sequences' must be at most 64, but is 65"),
        (("--model", "smollm2", "--sequences", "2", "--decode", "0"), "'--sequences' decodes, but '--decode' is 0"),
        (("--model", "smollm2", "--context", "x"), "'--context' expects positive numbers"),
        (("--model", "smollm2", "--activations", "int8,int9"), "'--activations' expects some of int8, "),
        (("--shape", "7b-q5"), "'shape' expects a size (1b, 7b, 8b, 8x1b)"),
        (("--shape", "1b-q4_0", "--layers", "17"), "'layers' must be from 1 to those of 1b-q4_0, 16, but is 17"),
        (("--kernels", "conv"), "no workload's name begins with 'conv'"),
        (("--model", "no.gguf", "--vs", ""), "no.gguf"),
    ],
)
@pytest.mark.quick(2)
def test_wrong_requests(options: tuple[str, ...], text: str) -> None:
    assert text in rlx("bench", *options, status=2 if text.startswith("'--") else 1).stderr


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
    row |= {
        "their_roofline": 0.25,
        "bound": "memory",
        "machine": machine,
        "ratio": None,
        "noise": "of ours, spread of 50% is above 25%",
    }
    text = command.format_bench({"python": "3"}, [row, {"what": "w", "threads": 1, "vs": "jax", "error": "no"}])
    assert "inconclusive: of ours, spread of 50%" in text
    assert "50% memory" in text
    assert "25%" in text
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
    assert iree_tools.tool("iree-compile", "no-such-package") == "iree-compile"
    (scripts / "iree-compile").touch()
    assert iree_tools.tool("iree-compile", "no-such-package") == str(scripts / "iree-compile")
    (beside / "iree-compile").touch()
    assert iree_tools.tool("iree-compile", "no-such-package") == str(beside / "iree-compile")


def test_tools_are_found_where_their_package_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package may be in another environment, which a path of Python's names."""
    site, tool = tmp_path / "lib" / "site-packages", tmp_path / "bin" / "some-compile"
    information = site / "some_compiler-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: some-compiler\nVersion: 1.0\n")
    (information / "RECORD").write_text("../../bin/some-compile,,\nsome/module.py,,\n")
    monkeypatch.syspath_prepend(str(site))
    assert iree_tools.tool("some-compile", "some-compiler") == "some-compile"
    tool.parent.mkdir()
    tool.touch()
    assert Path(iree_tools.tool("some-compile", "some-compiler")).resolve() == tool.resolve()
