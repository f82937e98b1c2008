# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The whole path to GPUs, from a module to results: PTX runs in an emulator, all else as on a machine with a GPU.

Every operation's cases are compiled with schedules, at the sizes that they have, and compared with the references.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compile_harness import compare
from cuda_harness import emulated_device
from gpu_harness import assemble
from test_compile_ops import CASES
from test_gpu import QUICK, SUPPORTED, WIDE, compile_options
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir import GraphModule, interpret
from rlx_mlir.compiler import GPU_STAGES, CompileOptions, build_artifact, stages
from rlx_mlir.errors import DeviceFaultError, InputError, StageError
from rlx_mlir.runtime.artifact import Artifact
from rlx_mlir.tools.cli import app

#: Cases whose kernels broke the GPU.
BROKEN: list[str] = []


def run_case(name: str, chip: str, **options: Any) -> dict[str, str]:
    """Asserts that a case gives the references' results on an emulated GPU; the kernels' schedules."""
    case = CASES[name]
    options = {**compile_options(name), **options}
    program = case.program()
    module = program.finish()
    reference = module
    if options.get("activations") == "int8":
        reference = module.lower().transform("rlx-fuse,mir-quantize-activations,cse")
    params = program.values(case.sizes[0])[1]
    failures: list[str] = []
    templates: dict[str, str] = {}

    def run() -> None:
        executable = rlx.compile(module, target="cuda", chip=chip, cache=False, **options)
        templates.update(executable.artifact.templates)
        executable.set_params(params)
        for sizes in case.sizes:
            inputs = program.values(sizes)[0]
            want = interpret(reference, {**inputs, **params})
            failures.extend(compare(want, executable.run(inputs), str(dict(sizes)), case.options.get("tolerance")))

    # A GPU that a kernel has broken stays broken: the next case gets another one.
    with emulated_device(chip, memory=(8 << 30) + len(BROKEN)):
        try:
            run()
        except DeviceFaultError as error:
            BROKEN.append(name)
            failures.append(f"{templates}: {error}")
    assert not failures, "\n".join(failures)
    return templates


#: What has other kernels on chips before sm_90.
ELDER = ("packed q4_0", "int8 q8_0", "attention f32")


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        pytest.param(
            name,
            chip,
            marks=[pytest.mark.wide] * (name in WIDE)
            + [pytest.mark.slow] * (name not in (QUICK if chip == "sm_90a" else ELDER)),
        )
        for name in SUPPORTED
        for chip in ("sm_90a", "sm_80")
    ],
)
@pytest.mark.quick(1)
def test_kernels_equal_the_references(name: str, chip: str) -> None:
    run_case(name, chip, verify=True)


@pytest.mark.parametrize(
    "name", ["packed q4_0", *(pytest.param(name, marks=pytest.mark.slow) for name in ("unary f32", "attention f32"))]
)
def test_generic_kernels_equal_the_references(name: str) -> None:
    templates = run_case(name, "sm_90a", disable_templates=("all",))
    assert all(template.startswith("generic") for template in templates.values())


def pointwise() -> GraphModule:
    module = GraphModule.mir("pointwise")
    x, b = module.input("x", ["n", 33]), module.param("b", [33])
    module.set_outputs({"y": module.silu(module.add(x, b))})
    return module


def test_target_nvptx_gives_a_file_that_runs_where_there_is_a_gpu(tmp_path: Path) -> None:
    module = pointwise()
    artifact = rlx.compile(module, target="nvptx", chip="sm_90a", cache=False)
    assert isinstance(artifact, Artifact)
    assert artifact.chip == "sm_90a"
    assert artifact.device_kernels == ("add_silu_0_pointwise",)
    assert artifact.templates == {"add_silu_0": "pointwise"}
    assert b".target sm_90a" in artifact.device_code
    assert artifact.target["features"] == "", "the host's part runs on any CPU of its architecture"
    artifact.save(tmp_path / "pointwise.rlx")
    x, b = np.linspace(-9, 9, 66, dtype=np.float32).reshape(2, 33), np.linspace(0, 1, 33, dtype=np.float32)
    with emulated_device("sm_90a") as cuda:
        executable = rlx.load(tmp_path / "pointwise.rlx")
        executable.set_params({"b": b})
        got = executable.run({"x": x})
        assert [line.split()[1] for line in cuda.trace() if line.startswith("launch")] == ["add_silu_0_pointwise"]
        del executable
    assert not compare(interpret(module, {"x": x, "b": b}), got, "loaded")


def test_a_compilation_is_found_in_the_cache_by_its_chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    first = rlx.compile(pointwise(), target="nvptx", chip="sm_80")
    again = rlx.compile(pointwise(), target="nvptx", chip="sm_80")
    other = rlx.compile(pointwise(), target="nvptx", chip="sm_90")
    assert again.device_code == first.device_code != other.device_code


def test_chip_of_the_device_is_the_default_of_target_cuda() -> None:
    with emulated_device("sm_86"):
        assert CompileOptions(target="cuda").chip == "sm_86"
    with emulated_device("sm_90a"):
        assert CompileOptions(target="cuda").chip == "sm_90a"


@pytest.mark.parametrize(("chip", "marked"), [("sm_80", False), ("sm_90", True), ("sm_120", True)])
def test_whole_plans_are_chains_from_sm_90_on(chip: str, marked: bool) -> None:
    module = GraphModule.mir("chain")
    x = module.input("x", [8, "n", 32])
    module.set_outputs({"y": module.silu(module.transpose(x, [1, 0, 2]))})
    generic = {"disable_templates": ("move",)}
    launched = rlx.emit(module, "gpu", target="nvptx", chip=chip, **generic)
    launches = [line for line in launched.splitlines() if "gpu.launch_func" in line]
    assert len(launches) == 2, "a generic kernel and one of a schedule"
    assert all(("rlx.pdl" in line) is marked for line in launches)
    ptx = rlx.emit(module, "ptx", target="nvptx", chip=chip, **generic)
    assert len(re.findall(r"griddepcontrol\.wait", ptx)) == 2 * marked
    assemble(ptx, chip)


def test_stages_are_verified() -> None:
    options = CompileOptions(target="nvptx", chip="sm_90a", verify=True)
    assert [stage for stage, _ in stages(options)] == ["mir", *GPU_STAGES[2:]]
    assert all(f"rlx-verify-stage{{stage={stage}}}" in pipeline for stage, pipeline in stages(options))
    build_artifact(pointwise(), options)


def test_host_part_calls_the_run_time() -> None:
    text = rlx.emit(pointwise(), "host", target="nvptx", chip="sm_90a")
    assert re.search(r"call void @rlx_cuda_launch\(ptr [^,]+, ptr [^)]+\)", text)
    for name in ("add_silu_0", "add_silu_0_units", "add_silu_0_scratch"):
        assert re.search(rf"define [^@]*@{name}\(", text), name
    assert "gpu." not in text


def test_whole_pipeline_has_options() -> None:
    """A module after it isn't one to build on, and the error says of what it consists."""
    with pytest.raises(StageError, match=r"'llvm\.call' in kernel add_silu_0, block 'silu'"):
        pointwise().transform("rlx-gpu-pipeline{chip=sm_86 level=1},rlx-gpu-host-to-llvm")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "cuda", "chip": "sm_75"}, "'chip' expects one of sm_80, .* but got 'sm_75'"),
        ({"target": "nvptx", "chip": "sm_9a"}, "did you mean 'sm_90a'"),
        ({"target": "rocm"}, "'target' expects cpu, nvptx, cuda, but got 'rocm'"),
        ({"target": "nvptx", "features": "+avx2"}, "'features' isn't an option of target nvptx"),
        ({"target": "nvptx", "verify": "numeric"}, "'verify' expects True or False for target nvptx"),
        ({"target": "cpu", "chip": "sm_90"}, "'chip' isn't an option of target cpu"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CompileOptions(**options)


def test_command_writes_a_file_for_a_chip(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(pointwise().to_text())
    arguments = ["emit", str(tmp_path / "m.mlir"), "--stage", "host", "--target", "nvptx", "--chip", "sm_90a"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "@rlx_cuda_launch" in result.output
    result = CliRunner().invoke(app, ["report", str(tmp_path / "m.mlir"), "--target", "nvptx", "--chip", "sm_80"])
    assert result.exit_code == 0, result.output
    assert re.search(r"add_silu_0 +rows +pointwise +1 +100.0%", result.output)
    arguments[arguments.index("sm_90a")] = "sm_1"
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code != 0
    assert "'chip' expects one of" in str(result.exception) + result.output


def test_choices_are_those_of_gpus() -> None:
    with pytest.raises(InputError, match=r"'choices' expects tf32, .* for 'matmul_0', but got 'prefetch'"):
        CompileOptions(target="nvptx", choices={"matmul_0": {"prefetch": 0}})
    with pytest.raises(InputError, match="a number from 0 to 1 for tf32 of 'matmul_0', but got 2"):
        CompileOptions(target="nvptx", choices={"matmul_0": {"tf32": 2}})
    module = GraphModule.mir("product")
    x, w = module.input("x", ["n", 64]), module.param("w", [64, 64])
    module.set_outputs({"y": module.matmul(x, w)})
    exact = rlx.emit(module, "ptx", target="nvptx", chip="sm_80")
    fast = rlx.emit(module, "ptx", target="nvptx", chip="sm_80", choices={"matmul_0": {"tf32": 1}})
    assert "tf32" not in exact
    assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in fast
