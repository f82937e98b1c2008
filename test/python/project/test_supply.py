# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is installed beside the package: floors, locks with hashes, the audit, the bill of materials."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT

from rlx_mlir.fuzz.campaign import FUZZERS

LOCKS = ("requirements.lock", "tools.lock")


def requirements() -> dict[str, str]:
    """The version specifier of each dependency."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert listed is not None
    return dict(re.findall(r'"([\w-]+)([^"]*)"', listed.group(1)))


def locked(name: str) -> list[tuple[str, str, list[str]]]:
    """Names, versions and hashes in a lock."""
    text = (ROOT / ".ci" / name).read_text(encoding="utf-8")
    entries = re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]
    found = []
    for entry in entries:
        match = re.match(r"([\w.-]+)==([\w.!+-]+)", entry)
        assert match is not None, entry
        found.append((match[1], match[2], re.findall(r"--hash=sha256:([0-9a-f]{64})\b", entry)))
    return found


@pytest.mark.parametrize(
    ("name", "weak"),
    [("jinja2", (3, 1, 5)), ("sentencepiece", (0, 2, 0)), ("filelock", (3, 20, 2))],
)
def test_versions_with_weaknesses_are_not_admitted(name: str, weak: tuple[int, ...]) -> None:
    """CVE-2025-27516, CVE-2026-1260; CVE-2025-68146 and CVE-2026-22701."""
    floor = requirements()[name]
    assert floor.startswith(">=")
    assert tuple(map(int, floor[2:].split("."))) > weak


def test_every_dependency_has_a_floor() -> None:
    assert all(re.match(r">=\d|==\d[\d.]*\.\*$", specifier) for specifier in requirements().values())


@pytest.mark.parametrize("name", LOCKS)
def test_locks_have_hashes_and_no_hosts(name: str) -> None:
    text = (ROOT / ".ci" / name).read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*(-i|--index|--extra-index|--find-links|#)", text, re.MULTILINE)
    assert all(hashes for _, _, hashes in locked(name))


def test_the_lock_has_every_dependency() -> None:
    """In versions that are admitted; the locks are of now where `.ci/lock` was run after the last change."""
    versions = {name: version for name, version, _ in locked("requirements.lock")}
    for name, specifier in requirements().items():
        version = versions[name.replace("_", "-").lower()]
        if specifier.startswith("=="):
            assert version.startswith(specifier[2:-1]), name
        else:
            floor = tuple(map(int, specifier[2:].split(".")))
            assert tuple(map(int, re.findall(r"\d+", version)[: len(floor)])) >= floor, name
    assert {"pytest", "lit", "mypy", "ruff", "nanobind", "scikit-build-core"} <= versions.keys()


_FAKE = """
import json, sys
report = json.loads({report!r})
if report is not None:
    with open(sys.argv[sys.argv.index("--output") + 1], "w") as file:
        json.dump(report, file)
else:
    print("could not connect", file=sys.stderr)
sys.exit({status})
"""


def dependency(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "version": "1.0", "vulns": [], **more}


WEAK = dependency("weak", vulns=[{"id": "CVE-1", "aliases": ["GHSA-1"], "fix_versions": ["1.1"]}])
SKIPPED = {"name": "unknown", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("listed", "own", "status", "text"),
    [
        ([dependency("a")], 0, 0, "1 packages: 0 vulnerable, 0 not audited"),
        ([dependency("a"), WEAK], 1, 1, "weak 1.0: CVE-1, GHSA-1; mended in 1.1"),
        ([SKIPPED, WEAK], 1, 1, "weak 1.0"),
        ([dependency("a"), SKIPPED], 0, 3, "not audited, the service doesn't know them: unknown"),
        ([], 0, 3, "not audited"),
        (None, 1, 3, "not audited: could not connect"),
        (None, 0, 3, "not audited"),
    ],
    ids=["none", "one", "one beside unknown", "unknown", "empty", "no service", "no report"],
)
def test_an_audit_that_could_not_be_made_is_no_success(
    tmp_path: Path, listed: Any, own: int, status: int, text: str
) -> None:
    report = json.dumps(None if listed is None else {"dependencies": listed})
    (tmp_path / "pip_audit.py").write_text(_FAKE.format(report=report, status=own))
    command = [sys.executable, str(ROOT / ".ci" / "audit")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert text in done.stdout + done.stderr


def test_the_bill_of_materials(tmp_path: Path) -> None:
    """Of this environment; tests of the format are the library's own."""
    if importlib.util.find_spec("cyclonedx_py") is None:
        pytest.skip("cyclonedx-bom isn't installed")
    environment = {**os.environ, "PYTHON": sys.executable}
    for name in ("one", "other"):
        command = [str(ROOT / ".ci" / "sbom"), sys.executable, str(tmp_path / name)]
        subprocess.run(command, env=environment, check=True, capture_output=True)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    found = json.loads((tmp_path / "one").read_text())
    assert found["bomFormat"] == "CycloneDX"
    assert found["metadata"]["component"]["name"] == "rlx-mlir"
    assert {"numpy", "tokenizers"} <= {own["name"].lower() for own in found["components"]}


@pytest.mark.parametrize("name", ["run", "nightly", "lowest", "lock", "sbom", "release"])
def test_scripts_are_shell(name: str) -> None:
    script = ROOT / ".ci" / name
    assert os.access(script, os.X_OK)
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_fuzzer_runs_at_night() -> None:
    text = (ROOT / ".ci" / "nightly").read_text(encoding="utf-8")
    found = re.search(r"for what in ([\w ]+); do", text)
    assert found is not None
    assert set(found[1].split()) == FUZZERS.keys()


def test_what_scripts_name_is_there() -> None:
    """Files of the project that the scripts and the Makefile run."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / ".ci").iterdir() if path.suffix != ".lock"]
    texts.append((ROOT / "Makefile").read_text(encoding="utf-8"))
    named = {
        name for text in texts for name in re.findall(r"(?<![\w/.$])((?:test|docs|\.ci)/[\w./-]+\w)(?![\w$])", text)
    }
    assert {"test/run.py", "test/sanitize.py", ".ci/lowest"} <= named
    if not (ROOT / "test" / "sanitize.py").exists():
        pytest.skip("the sanitizers have no script yet")
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
