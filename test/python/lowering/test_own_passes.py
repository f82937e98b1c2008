# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes of the caller's own among those of the compiler: where they run, what they are checked for, cached results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.compiler import CompileOptions, stages
from rlx_mlir.errors import InputError, NumericError, PassError
from rlx_mlir.rewriting.plugins import load_passes
from rlx_mlir.tools.cli import app

#: A file with a pass that makes `operation` of each difference: of the wrong value, so that it shows whether it ran.
SOURCE = '''"""A pass for tests."""

from rlx_mlir.dialects import mir
from rlx_mlir.rewriting import PatternSet, apply_patterns, compiler_pass, erase_dead

PATTERNS = PatternSet()


@PATTERNS.pattern(mir.SubOp)
def change(op, rewriter):
    """x - y -> something else"""
    return rewriter.replace(op, mir.{operation}(op.lhs, op.rhs))


@compiler_pass("test-{name}")
def run(module):
    """Turn differences into something else."""
    apply_patterns(module, PATTERNS.select())
    erase_dead(module)
'''
ONES = np.ones(4, np.float32)


def write(folder: Path, name: str, operation: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(SOURCE.format(name=name.replace("_", "-"), operation=operation))
    return path


def difference() -> GraphModule:
    m = GraphModule.mir("difference")
    m.set_outputs({"d": m.sub(m.input("x", [4]), m.input("y", [4]))})
    return m


@pytest.fixture(scope="session", autouse=True)
def loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert load_passes(write(tmp_path_factory.mktemp("passes"), "own_sums", "add")) == ["test-own-sums"]


@pytest.mark.parametrize(
    "place", ["after:rlx-fuse", "before:rlx-fuse", "after:rlx-fuse/cse", "before:mir-pack-weights"]
)
def test_a_pass_runs_at_its_place(place: str) -> None:
    assert rlx.compile(difference(), passes={place: "test-own-sums"}).run({"x": ONES, "y": ONES})["d"][0] == 2
    assert rlx.compile(difference()).run({"x": ONES, "y": ONES})["d"][0] == 0


def test_pipelines_are_put_in_and_nothing_else_changes() -> None:
    plain = stages(CompileOptions())
    options = CompileOptions(passes={"after:rlx-fuse/cse": "canonicalize,cse", "before:lir-plan": "symbol-dce"})
    changed = stages(options)
    assert [stage for stage, _ in changed] == [stage for stage, _ in plain]
    assert [own for own, other in zip(changed, plain, strict=True) if own != other] == [changed[1], changed[2]]
    assert ",mir-fuse-shared-input,cse,canonicalize,cse,mir-transform-kernels,rlx-to-kernels" in changed[1][1]
    assert changed[2][1] == f"symbol-dce,{plain[2][1]}"


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        ({"rlx-fuse": "cse"}, "'passes' has places 'before:PASS' and 'after:PASS', .* but got 'rlx-fuse'"),
        ({"after:rlx-fuse": ""}, "'passes' expects a pipeline at 'after:rlx-fuse', such as 'cse', but got ''"),
        ({"after:rlx-fuse": 3}, "expects a pipeline at 'after:rlx-fuse', such as 'cse', but got 3"),
        ("cse", "'passes' is a mapping from places, such as 'after:rlx-fuse', to pipelines"),
        ({"after:rlx-fus": "cse"}, "nothing that runs is 'rlx-fus' \\(did you mean 'rlx-fuse'\\?\\)"),
        ({"after:lir-plan/cse": "cse"}, "nothing that runs is 'lir-plan/cse'"),
        ({"after:cse": "cse"}, "'cse' runs 4 times: say after:rlx-fuse/cse, after:rlx-generic-kernels/cse"),
        ({"before:inline": "cse"}, "'inline' runs 2 times: say before:rlx-to-llvm/inline"),
        ({"after:rlx-to-llvm/lower-affine": "cse"}, "'lower-affine' runs 2 times: name one beside it"),
        ({"after:hir-to-mir": "cse"}, "has a place among the passes to mir, but 'difference' is at stage mir"),
        ({"after:gpu-emit-ptx": "cse"}, "nothing that runs is 'gpu-emit-ptx'"),
    ],
)
def test_places_that_are_none(passes: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rlx.compile(difference(), passes=passes)


def test_pipelines_that_are_none() -> None:
    with pytest.raises(PassError, match="'mir-nothing' does not refer to a registered pass"):
        rlx.compile(difference(), passes={"after:rlx-fuse": "mir-nothing"}, cache=False)


def test_blocks_are_reached_before_they_are_lowered() -> None:
    m = GraphModule.hir("block")
    m.set_outputs({"y": m.silu(m.input("x", [4]))})
    before = stages(CompileOptions(passes={"before:hir-to-mir": "cse"}, verify=False))[0][1]
    assert before == "cse,hir-to-mir{policy=direct}"
    assert rlx.emit(m, "mir", passes={"before:hir-to-mir": "cse"}) == rlx.emit(m, "mir")


def test_numeric_verification_checks_them() -> None:
    with pytest.raises(NumericError, match="after pass 'test-own-sums': output 'd' differs"):
        rlx.compile(difference(), passes={"after:rlx-fuse": "test-own-sums"}, verify="numeric")


def test_for_gpus_too() -> None:
    passes = {"after:rlx-fuse": "test-own-sums"}
    assert "add.rn.f32" in rlx.emit(difference(), "ptx", target="nvptx", passes=passes)
    assert "add.rn.f32" not in rlx.emit(difference(), "ptx", target="nvptx")


def test_results_are_kept_by_the_source_of_passes(tmp_path: Path) -> None:
    """The same words with another file give another program: asked of processes of their own, with one cache."""
    script = (
        "import sys, numpy as np, rlx_mlir as rlx\nfrom rlx_mlir.rewriting.plugins import load_passes\n"
        "load_passes('own_change.py')\nm = rlx.GraphModule.mir('d')\n"
        "m.set_outputs({'d': m.sub(m.input('x', [2]), m.input('y', [2]))})\n"
        "import rlx_mlir.compiler\nbuild = rlx.compiler.build_artifact\ncount = []\n"
        "rlx.compiler.build_artifact = lambda *own: count.append(1) or build(*own)\n"
        "run = rlx.compile(m, passes={'after:rlx-fuse': 'test-own-change'})\n"
        "print(run(x=np.full(2, 3, np.float32), y=np.full(2, 5, np.float32))[0], len(count))\n"
    )

    def result() -> str:
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    write(tmp_path, "own_change", "add")
    assert result() == "8.0 1"
    assert result() == "8.0 0"  # from the cache
    write(tmp_path, "own_change", "mul")
    assert result() == "15.0 1"


def test_passes_without_a_source_are_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, object] = {"__name__": "nowhere"}
    exec(SOURCE.format(name="own-unread", operation="add"), names)  # as in an interactive session
    options = CompileOptions(passes={"after:rlx-fuse": "test-own-unread"})
    assert options.is_observed
    assert not CompileOptions(passes={"after:rlx-fuse": "test-own-sums"}).is_observed


def test_files_that_are_no_passes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"loaded from a Python file, but '.*missing\.py' is none"):
        load_passes(tmp_path / "missing.py")
    broken = tmp_path / "own_broken.py"
    broken.write_text(SOURCE.format(name="own-broken", operation="add") + "raise KeyError('what')\n")
    with pytest.raises(InputError, match=r"own_broken\.py': KeyError: 'what'"):
        load_passes(broken)
    assert "own_broken" not in sys.modules
    broken.write_text(SOURCE.format(name="own-broken", operation="add"))
    assert load_passes(broken) == ["test-own-broken"]  # nothing of the failure is left
    assert load_passes(broken) == []
    taken = tmp_path / "json.py"
    taken.write_text("")
    with pytest.raises(InputError, match="there is a module 'json' already; name the file otherwise"):
        load_passes(taken)


def test_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(difference().to_text())
    path = write(tmp_path, "own_products", "mul")
    words = ["emit", str(tmp_path / "m.mlir"), "--stage", "kernels", "--load", str(path)]
    result = CliRunner().invoke(app, [*words, "--pass", "after:rlx-fuse=test-own-products"])
    assert result.exit_code == 0, result.output
    assert "mir.mul" in result.output
    assert "mir.sub" not in result.output
    result = CliRunner().invoke(app, [*words, "--pass", "cse"])
    assert result.exit_code == 2
    assert "'--pass' expects PLACE=PIPELINE" in result.output


def test_rlx_opt_loads_them(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(difference().to_text())
    path = write(tmp_path, "own_quotients", "div")
    command = [sys.executable, "-m", "rlx_mlir.tools.opt", str(tmp_path / "m.mlir")]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *words], capture_output=True, text=True, timeout=300, check=False)

    done = run(f"--rlx-load={path}", "--test-own-quotients")
    assert "mir.div" in done.stdout, done.stderr
    done = run("--rlx-load=none.py")
    assert done.returncode == 1
    assert "rlx-opt: passes are loaded from a Python file, but 'none.py' is none" in done.stderr
