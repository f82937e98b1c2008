# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds the wheel rlx-mlir-runtime: gathers the sources that it has, and lets pip build them.

    python packages/runtime/build.py [--out dist] [--folder build/runtime-wheel]

The modules are those of `MODULES`, and whatever these import, inside of functions, too; not what they import for types
alone, nor what the contract `bundles` of pyproject.toml lists as imports of the compiler, which models of bundles never
come to. The folder is a source tree of its own, which pip can build anywhere.
"""

from __future__ import annotations

import argparse
import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = "rlx_mlir"
#: What the wheel is for; it has these modules, and all that they import.
MODULES = (
    "rlx_mlir.models.embedding",
    "rlx_mlir.models.loading",
    "rlx_mlir.run",
    "rlx_mlir.runtime.container",
    "rlx_mlir.runtime.loading",
)
#: Other files of the package that it has.
FILES = ("rlx_mlir/_runtime.pyi", "rlx_mlir/py.typed")


def find(module: str) -> Path | None:
    """The file of a module of the package; None where there is none of this name."""
    path = ROOT / "python" / Path(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports below a node, but those for types."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        else:
            yield from _statements(child)


def imports(module: str, path: Path) -> Iterator[str]:
    """Names that a module imports: modules, or what may be one."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for statement in _statements(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import):
            yield from (name.name for name in statement.names)
            continue
        base = statement.module or ""
        if statement.level:
            parts = package.split(".")
            base = ".".join([*parts[: len(parts) - statement.level + 1], *filter(None, [statement.module])])
        yield base
        yield from (f"{base}.{name.name}" for name in statement.names)


def left_out() -> set[tuple[str, str]]:
    """(module, what it imports) of imports that lead to the compiler."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (own,) = (contract for contract in contracts if contract["id"] == "bundles")
    return {(module, imported) for module, _, imported in (line.partition(" -> ") for line in own["ignore_imports"])}


def closure() -> dict[str, Path]:
    """The modules of the wheel and their files; each package that one is in is there, too."""
    found: dict[str, Path] = {}
    left, skipped = list(MODULES), left_out()
    while left:
        name = left.pop()
        if name in found or (path := find(name)) is None:
            continue
        found[name] = path
        for imported in (name, *imports(name, path)):
            parts = imported.split(".")
            prefixes = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
            if parts[0] == PACKAGE and not any((name, prefix) in skipped for prefix in prefixes):
                left += prefixes
    return dict(sorted(found.items()))


def gather(folder: Path) -> None:
    """Makes a folder the source tree of the wheel."""
    shutil.rmtree(folder, ignore_errors=True)
    python = ROOT / "python"
    files = [*closure().values(), *(python / name for name in FILES)]
    for path in files:
        target = folder / "python" / path.relative_to(python)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for name in ("CMakeLists.txt", "LICENSE"):
        shutil.copyfile(ROOT / name, folder / name)
    for name in ("pyproject.toml", "README.md"):
        shutil.copyfile(HERE / name, folder / name)
    for name in ("include", "runtime"):
        shutil.copytree(ROOT / name, folder / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder that gets the wheel")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "runtime-wheel", help="the source tree")
    options = parser.parse_args()
    gather(options.folder)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*command, "-w", str(options.out), str(options.folder)], check=True)


if __name__ == "__main__":
    main()
