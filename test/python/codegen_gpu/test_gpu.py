# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels for NVIDIA GPUs, without a GPU: their numbers, run as loops on this CPU, and their PTX, by its assembler.

Numbers are compared with the numpy references over the cases of every operation, at the sizes that those have: 0, 1,
odd ones, dynamic. What no test here sees is how fast kernels are, and what a GPU does.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compile_harness import compare
from gpu_harness import assemble, calls, compile_emulated
from test_compile_ops import CASES
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir import GraphModule, chips, interpret
from rlx_mlir.errors import InputError, PassError
from rlx_mlir.tools.cli import app
from rlx_mlir.tools.options import model_module

#: Functions of f64 have no expansion; `compare` and `cast` need none.
UNSUPPORTED = [name for name in CASES if "f64" in name and name != "compare f64"]
SUPPORTED = [name for name in CASES if name not in UNSUPPORTED]
#: Run by default; the others are slow.
QUICK = (
    "unary f32",
    "reduce f32",
    "gather",
    "packed q4_0",
    "int8 q8_0",
    "attention f32",
    "attention with sinks",
    "cache updates",
    "movement i1",
    "recurrence f32",
)
#: Without chains of kernels, and with them.
CHIPS = ("sm_80", "sm_90")
TURNS = dict(zip(QUICK, itertools.cycle(CHIPS), strict=False))
#: Of these, what emulating takes long.
WIDE = ("attention f32", "attention with sinks", "int8 q8_0")
QUICK_AND_SLOW = [
    pytest.param(name, marks=[pytest.mark.wide] * (name in WIDE) + [pytest.mark.slow] * (name not in QUICK))
    for name in SUPPORTED
]


def compile_options(name: str) -> dict[str, Any]:
    """The options of a case that concern GPUs."""
    return {key: value for key, value in CASES[name].options.items() if key in ("activations", "maxima")}


@pytest.mark.parametrize("name", QUICK_AND_SLOW)
@pytest.mark.quick(1)
def test_kernels_run_as_loops_equal_the_references(name: str) -> None:
    case, options = CASES[name], compile_options(name)
    program = case.program()
    module = program.finish()
    reference = module
    if options.get("activations") == "int8":
        reference = module.lower().transform("rlx-fuse,mir-quantize-activations,cse")
    executable = compile_emulated(module, **options)
    params = program.values(case.sizes[0])[1]
    executable.set_params(params)
    failures = []
    for sizes in case.sizes:
        inputs = program.values(sizes)[0]
        want = interpret(reference, {**inputs, **params})
        failures += compare(want, executable.run(inputs), str(dict(sizes)), case.options.get("tolerance"))
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        pytest.param(name, chip, marks=[pytest.mark.slow] * (TURNS.get(name) != chip))
        for name in SUPPORTED
        for chip in CHIPS
    ],
)
@pytest.mark.quick(1)
def test_ptx_is_complete_and_assembles(name: str, chip: str) -> None:
    ptx = rlx.emit(CASES[name].program().finish(), "ptx", target="nvptx", chip=chip, **compile_options(name))
    assert not calls(ptx)
    assert f".target {chip}" in ptx
    assemble(ptx, chip)


@pytest.mark.parametrize("name", UNSUPPORTED)
@pytest.mark.quick(1)
def test_functions_of_f64_are_refused_by_name(name: str) -> None:
    with pytest.raises(PassError, match=r"no expansion of:\n  'math\.\w+' .*of f64"):
        rlx.emit(CASES[name].program().finish(), "ptx", target="nvptx", **compile_options(name))


@pytest.mark.parametrize("activations", ["exact", "int8"])
@pytest.mark.parametrize("function", ["prefill", "decode"])
@pytest.mark.quick(1)
@pytest.mark.slow
def test_all_of_smollm2_assembles(smollm2_path: Path, function: str, activations: str) -> None:
    module, maxima = model_module(str(smollm2_path), function, 256, 128)
    for chip in ("sm_80", "sm_90"):
        ptx = rlx.emit(module, "ptx", target="nvptx", chip=chip, maxima=maxima, activations=activations, verify=True)
        assert ptx.count(".entry") > 10
        assert not calls(ptx)
        assemble(ptx, chip)


def small() -> GraphModule:
    module = GraphModule.hir("small")
    module.set_outputs({"y": module.rms_norm(module.input("x", ["s", 64]), module.param("g", [64]))})
    return module


@pytest.mark.parametrize("chip", chips.CHIPS)
@pytest.mark.quick(4)
def test_every_chip_has_a_version_of_ptx(chip: str) -> None:
    ptx = rlx.emit(small(), "ptx", target="nvptx", chip=chip)
    least = chips.CHIPS[chip]
    assert f".version {least // 10}.{least % 10}\n.target {chip}\n" in ptx
    assemble(ptx, chip)


@pytest.mark.parametrize("ptx", [f"{version // 10}.{version % 10}" for version in chips.PTX_VERSIONS])
@pytest.mark.quick(3)
def test_every_version_of_ptx_is_written(ptx: str) -> None:
    assert f".version {ptx}\n" in rlx.emit(small(), "ptx", target="nvptx", chip="sm_80", ptx=ptx)


def test_stages_show_launches_and_kernels() -> None:
    generic: dict[str, Any] = {"target": "nvptx", "disable_templates": ("all",)}
    gpu = rlx.emit(small(), "gpu", verify=True, **generic)
    assert "gpu.launch_func" in gpu
    assert "gpu.subgroup_reduce" in gpu
    nvvm = rlx.emit(small(), "nvvm", **generic)
    assert "nvvm.shfl.sync" in nvvm
    assert "nvvm.kernel" in nvvm


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chip": "sm_900"}, "'chip' expects one of .*, but got 'sm_900': did you mean 'sm_90'?"),
        ({"chip": "+ptx78"}, "'chip' expects one of"),
        ({"ptx": "7.8x"}, "'ptx' expects one of"),
        ({"chip": "sm_90", "ptx": "7.0"}, "'ptx' expects at least 8.0 for sm_90, but got 7.0"),
        ({"triple": "x86_64-linux-gnu"}, "'triple' isn't an option of target nvptx"),
        ({"disable_templates": ("gemm_amx_f32",)}, "'disable_templates' names gemm_amx_f32, which target nvptx"),
        ({"disable_templates": ("attention_amx",)}, "'disable_templates' names attention_amx, which target nvptx"),
        ({"verify": "numeric"}, "'verify' expects True or False for target nvptx"),
        ({"target": "cpu", "chip": "sm_90"}, "'chip' isn't an option of target cpu"),
        ({"target": "amdgpu"}, "'target' expects cpu, nvptx, cuda, but got 'amdgpu'"),
    ],
)
def test_options_are_checked_before_llvm_sees_them(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?").replace("+", r"\+")):
        rlx.emit(small(), "ptx", **{"target": "nvptx", **options})


def test_the_command_writes_ptx(tmp_path: Path) -> None:
    graph, ptx = tmp_path / "graph.mlir", tmp_path / "graph.ptx"
    graph.write_text(small().to_text())
    arguments = ["emit", str(graph), "--stage", "ptx", "--target", "nvptx", "--chip", "sm_86", "-o", str(ptx)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert ".target sm_86\n" in ptx.read_text()


def test_stages_belong_to_targets() -> None:
    with pytest.raises(InputError, match=r"'stage' expects one of hir, .*, asm for target cpu, but got 'ptx'"):
        rlx.emit(small(), "ptx")
    with pytest.raises(InputError, match=r"'stage' expects one of hir, .*, ptx, host for target nvptx, but got 'asm'"):
        rlx.emit(small(), "asm", target="nvptx")


def test_cpus_don_t_load_the_gpu_dialect() -> None:
    code = "import sys, rlx_mlir.lowering; assert 'mlir.dialects.gpu' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
