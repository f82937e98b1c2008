# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`make check-imports` finds imports that go up, and cycles, wherever in a module they stand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT

pytest.importorskip("importlinter", reason="needs import-linter, of the extra 'lint'")

#: The file that gets lines at its end, the lines, and what the check says of them.
PLANTED = {
    "inside of a function": (
        "formats/blocks.py",
        "def planted() -> None:\n    from rlx_mlir import compiler\n",
        "rlx_mlir.formats.blocks -> rlx_mlir.compiler",
    ),
    "for types alone": (
        "errors.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from rlx_mlir.hir.graph import Graph\n",
        "rlx_mlir.errors -> rlx_mlir.hir.graph",
    ),
    "on one floor": (
        "hir/place.py",
        "def planted() -> None:\n    import rlx_mlir.lowering.lir\n",
        "rlx_mlir.hir.place -> rlx_mlir.lowering.lir",
    ),
    "between targets": (
        "codegen/gpu/conv.py",
        "from rlx_mlir.codegen.cpu.conv import CHANNELS\n",
        "rlx_mlir.codegen.gpu.conv -> rlx_mlir.codegen.cpu.conv",
    ),
    "from what runs bundles to what compiles": (
        "models/bundle.py",
        "def planted() -> None:\n    from rlx_mlir import compiler\n",
        "rlx_mlir.models.bundle -> rlx_mlir.compiler",
    ),
    "a cycle in a package": (
        "hir/values.py",
        "def planted() -> None:\n    from rlx_mlir.hir.graph import Graph\n",
        "No module depends on itself through others, in no package BROKEN",
    ),
    "a module without a floor": ("planted.py", "", "planted"),
}


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The project's contracts, and its sources in Python."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for path in (ROOT / "python" / "rlx_mlir").rglob("*.py"):
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    # An editable install finds the project's own sources before any folder.
    (tmp_path / "python" / "sitecustomize.py").write_text(
        'import sys\nsys.meta_path[:] = [f for f in sys.meta_path if "Redirecting" not in type(f).__name__]\n'
    )
    return tmp_path


def check(project: Path) -> subprocess.CompletedProcess[str]:
    command = ["make", "-C", str(project), "check-imports", f"PYTHON={sys.executable}"]
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_sources_keep_to_their_floors(copied: Path) -> None:
    found = check(copied)
    assert found.returncode == 0, found.stdout + found.stderr
    contracts = (copied / "pyproject.toml").read_text().count("[[tool.importlinter.contracts]]")
    assert f"{contracts} kept, 0 broken" in found.stdout


def test_planted_imports_are_found(copied: Path) -> None:
    for name, lines, _ in PLANTED.values():
        with (copied / "python" / "rlx_mlir" / name).open("a", encoding="utf-8") as file:
            file.write(lines)
    found = check(copied)
    assert found.returncode != 0
    assert [where for where, (_, _, said) in PLANTED.items() if said not in found.stdout] == []
