# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Faults that are planted: that each still can be, and what a check's end means. `test/planted.py` runs the checks."""

from __future__ import annotations

import importlib.util
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT

from rlx_mlir.fuzz.campaign import FUZZERS


def script() -> Any:
    """The module `planted`, which finds its table beside itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "test")
        spec = importlib.util.spec_from_file_location("planted", ROOT / "test" / "planted.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, "planted", module)  # for dataclasses
        spec.loader.exec_module(module)
    return module


planted = script()
NAMES = [fault.name for fault in planted.FAULTS]


def test_names_are_different() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("fault", planted.FAULTS, ids=NAMES)
def test_faults_can_be_planted(fault: Any) -> None:
    """Their texts are there; what takes their place is Python, and something else."""
    for name, text in planted.planted_text(fault).items():
        compile(text, name, "exec", dont_inherit=True)
        assert text != (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("fault", planted.FAULTS, ids=NAMES)
def test_checks_select_something(fault: Any) -> None:
    """A fuzzer with a seed and an end, or a file of tests, whose tests or parameters have such a name."""
    program, *words = shlex.split(fault.check)
    if program == "rlx":
        assert words[0] == "fuzz"
        assert words[1] in FUZZERS
        assert {"--seed", "--count"} <= set(words)
        return
    assert program == "pytest"
    text = (ROOT / words[0]).read_text(encoding="utf-8")
    assert words[1::2] == ["-k"] * (len(words) // 2)
    for word in words[2::2]:
        assert word in text


def fault(**changes: Any) -> Any:
    return planted.Fault(**{"name": "f", "changes": (), "check": "pytest test/python/fuzz/test_seeds.py", **changes})


def test_a_text_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    change = planted.Change
    for old, count in (("y", 0), ("x = 1\n", 2)):
        with pytest.raises(planted.PlantError, match=rf"^'f': a\.py has this text {count} times, not once"):
            planted.planted_text(fault(changes=(change("a.py", old, ""),)), tmp_path)
    both = (change("a.py", "x = 1\nx", "z = 0\nx"), change("a.py", "z = 0", "z = 2"))
    assert planted.planted_text(fault(changes=both), tmp_path) == {"a.py": "z = 2\nx = 1\n"}


@pytest.mark.parametrize(
    ("status", "text", "hangs", "expected"),
    [
        (0, "9 passed", False, "NOT FOUND"),
        (1, "E assert 1 == 2", False, "found"),
        (2, "error during collection", False, "NOT FOUND"),
        (5, "no tests ran", False, "NOT FOUND"),
        (-11, "", False, "found"),
        (None, "", False, "NOT FOUND"),
        (None, "", True, "found"),
        (1, "NameError: name 'x' is not defined", False, "NOT FOUND"),
    ],
)
def test_what_the_end_of_a_check_means(status: int | None, text: str, hangs: bool, expected: str) -> None:
    own = fault(hangs=hangs)
    assert planted.outcome(own, "f", own.check, status, text, 1.0).status == expected


@pytest.mark.parametrize("status", [0, 1, 5, -11, None])
def test_without_a_fault_a_check_succeeds(status: int | None) -> None:
    found = planted.outcome(None, "c", "pytest test/python/fuzz/test_seeds.py", status, "", 1.0)
    assert (found.status, found.good) == (("clean", True) if status == 0 else ("UNSOUND", False))


def test_a_fuzzer_that_fails_without_a_finding_has_found_nothing() -> None:
    own = fault(check="rlx fuzz graphs --seed 0 --count 1")
    for text, expected in (('{"findings": [{"message": "m"}]}', "found"), ("error: there is no seed", "NOT FOUND")):
        assert planted.outcome(own, "f", own.check, 1, text, 1.0).status == expected


@pytest.mark.wide
def test_the_copy_is_what_runs(tmp_path: Path) -> None:
    """A change shows in the copy, and in processes that it starts; the project stays."""
    copy = planted.Copy(tmp_path)
    name = "python/rlx_mlir/version.py"
    before = (ROOT / name).read_text(encoding="utf-8")
    test = (
        "import os, subprocess, sys\n"
        "def test():\n"
        "    code = 'from rlx_mlir import version; print(version.PLANTED)'\n"
        "    subprocess.run([sys.executable, '-c', code], check=True)\n"
    )
    copy.write({name: f"{before}\nPLANTED = 1\n", "test/python/test_here.py": test})
    assert copy.run("pytest test/python/test_here.py", 100)[0] == 0
    copy.write({name: before})
    assert copy.run("pytest test/python/test_here.py", 100)[0] == 1
    assert (ROOT / name).read_text(encoding="utf-8") == before
    assert not (ROOT / "test" / "python" / "test_here.py").exists()


def test_the_command() -> None:
    command = [sys.executable, str(ROOT / "test" / "planted.py")]
    listed = subprocess.run([*command, "--list", "--json"], capture_output=True, text=True, check=True)
    assert [row["name"] for row in json.loads(listed.stdout)] == NAMES
    done = subprocess.run([*command, "--only", "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no fault is named nothing" in done.stderr
