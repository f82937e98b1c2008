# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs what documentation shows: the blocks of a Markdown file, in order, in one folder."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"^(?:#|//) ([\w-]+\.\w+)\n")


@dataclass(frozen=True)
class Block:
    """A fenced block; `file` is the name that its first line, a comment, gives it."""

    language: str
    text: str
    file: str | None


def blocks(document: str, *languages: str) -> list[Block]:
    """The blocks of a document, by its path in the project; all of them where no language is named."""
    text = (ROOT / document).read_text(encoding="utf-8")
    found = []
    for language, body in _BLOCK.findall(text):
        name = _NAME.match(body)
        if not languages or language in languages:
            found.append(Block(language, body, name.group(1) if name else None))
    return found


def environment() -> dict[str, str]:
    """The environment for tools of this interpreter."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}


def run(command: Sequence[object], folder: Path) -> str:
    """Output of a command; it has to succeed."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def shell(text: str, folder: Path) -> str:
    """Output of lines for a shell, each of which has to succeed; our tools needn't be installed as commands."""
    (llvm,) = importlib.util.find_spec("llvm").submodule_search_locations  # type: ignore[union-attr, misc]
    functions = [
        f'rlx-opt() {{ "{sys.executable}" -m rlx_mlir.tools.opt "$@"; }}',
        f'rlx() {{ "{sys.executable}" -m rlx_mlir.tools.cli "$@"; }}',
        f'python() {{ "{sys.executable}" "$@"; }}',
        f'FileCheck() {{ "{llvm}/bin/FileCheck" "$@"; }}',
    ]
    return run(["bash", "-e", "-o", "pipefail", "-c", "\n".join([*functions, text])], folder)


def run_python(found: Sequence[Block], folder: Path) -> str:
    """Runs blocks of Python: those with a name become files, the others run in order in one process."""
    texts = []
    for block in found:
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        else:
            texts.append(block.text)
    script = folder / "document.py"
    script.write_text("\n".join(texts), encoding="utf-8")
    return run([sys.executable, script], folder)
