# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sources run pipelines and change IR by the ways that are safe for passes in Python."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def bypasses(source: str) -> list[int]:
    """Lines that name MLIR's own pass manager, whose `run` keeps the interpreter lock: Python passes deadlock in it."""
    lines: list[int] = []
    if "passmanager" not in source.lower():  # most files, which needn't be parsed
        return lines
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [node.attr] if isinstance(node, ast.Attribute) else []
        names += [node.id] if isinstance(node, ast.Name) else []
        if any(name.rpartition(".")[2] in ("passmanager", "PassManager") for name in names):
            lines.append(node.lineno)
    return sorted(set(lines))


def direct_changes(source: str) -> list[int]:
    """Lines of patterns (functions of a `rewriter`) that erase or replace without it: the driver wouldn't know."""
    lines: list[int] = []
    if "rewriter" not in source:
        return lines
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef) and any(a.arg == "rewriter" for a in function.args.args):
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in ("erase", "replace_all_uses_with", "detach_from_parent")
                    and not (isinstance(node.func.value, ast.Name) and node.func.value.id == "rewriter")
                ):
                    lines.append(node.lineno)
    return lines


SOURCES = sorted(
    p for folder in ("python", "test", "benchmarks", "examples", "docs") for p in (ROOT / folder).rglob("*.py")
)


@pytest.mark.wide
def test_pipelines_run_through_run_pipeline_alone() -> None:
    found = {str(path.relative_to(ROOT)): bypasses(path.read_text()) for path in SOURCES}
    # It asks MLIR's parser of pipelines which passes there are, and runs none.
    parses = "python/rlx_mlir/tools/opt.py"
    assert found.pop(parses)
    assert ".run(" not in (ROOT / parses).read_text()
    assert not {path: lines for path, lines in found.items() if lines}


def test_patterns_change_ir_through_the_rewriter_alone() -> None:
    package = [path for path in SOURCES if (ROOT / "python") in path.parents]
    found = {str(path.relative_to(ROOT)): direct_changes(path.read_text()) for path in package}
    assert not {path: lines for path, lines in found.items() if lines}


def test_the_lints_find_what_they_are_for() -> None:
    assert bypasses("from mlir.passmanager import PassManager") == [1]
    assert bypasses("import mlir.passmanager as p\nimport mlir.ir") == [1]
    assert bypasses("x = 1\nmlir.passmanager.PassManager.parse('cse').run(op)") == [2]
    assert bypasses("run_pipeline(op, 'cse')") == []
    assert direct_changes("def f(op, rewriter):\n  op.erase()\n  rewriter.erase(op)") == [2]
    assert direct_changes("def f(op):\n  op.erase()") == []


def test_sources_are_found() -> None:
    assert os.fspath(ROOT / "python" / "rlx_mlir" / "rewriting" / "registry.py") in map(os.fspath, SOURCES)
