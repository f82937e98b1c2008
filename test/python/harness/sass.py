# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machine code of kernels, as ptxas makes it and nvdisasm shows it: opcodes, and which loop they are in."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gpu_harness import cuda_tool

_LABEL = re.compile(r"(\.L_x_\d+):$")
_OPCODE = re.compile(r"(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.]*)")
_JUMP = re.compile(r"BRA.*`\((\.L_x_\d+)\)")


@dataclass(frozen=True)
class Code:
    """Instructions in the order in which they stand, and labels between them.

    registers: of a thread, of whole kernels.
    """

    lines: tuple[str, ...]
    registers: int = 0

    def count(self, pattern: str) -> int:
        """Instructions whose opcode matches a regular expression from its start."""
        return sum(number for opcode, number in self.opcodes().items() if re.match(pattern, opcode))

    def opcodes(self) -> Counter[str]:
        """How often each opcode stands there."""
        return Counter(found.group(1) for line in self.lines if (found := _OPCODE.match(line)))

    def loops(self, pattern: str) -> list[Code]:
        """The innermost loops that hold an instruction of a pattern."""
        labels = {found.group(1): i for i, line in enumerate(self.lines) if (found := _LABEL.match(line))}
        spans = []
        for i, line in enumerate(self.lines):
            jump = _JUMP.search(line)
            if jump and labels.get(jump.group(1), i) < i:
                spans.append((labels[jump.group(1)], i + 1))
        # Waits that take long stand behind everything else, and jump back: these are no loops.
        bodies = [(span, Code(self.lines[slice(*span)])) for span in spans]
        own = [span for span, body in bodies if body.count(pattern) and not body.count("NANOSLEEP")]
        inner = [a for a in own if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in own)]
        return [Code(self.lines[slice(*span)]) for span in inner]


def disassembled(ptx: str, chip: str) -> dict[str, Code]:
    """The machine code of each kernel; skips the test where a program is missing.

    Asserts that ptxas says nothing of lost performance (C75xx).
    """
    programs = [cuda_tool(name) for name in ("ptxas", "nvdisasm")]
    for program, package in zip(programs, ("nvidia-cuda-nvcc", "nvidia-cuda-nvdisasm"), strict=True):
        if program is None:
            pytest.skip(f"a program of NVIDIA's is missing: pip install {package}")
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "kernels.ptx", Path(folder) / "kernels.cubin"
        source.write_text(ptx)
        said = _run([programs[0], f"-arch={chip}", "-v", source, "-o", cubin]).stderr
        assert "C75" not in said, said
        shown = _run([programs[1], "-c", cubin]).stdout
    registers = dict(re.findall(r"Compiling entry function '(\w+)'.*?Used (\d+) registers", said, re.DOTALL))
    found: dict[str, list[str]] = {}
    for text in shown.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.(\w+)", text):
            own = found.setdefault(section.group(1), [])
        line = re.sub(r"/\*.*?\*/", "", text).strip()
        if found and line and not line.startswith((".section", ".align", ".global", ".type", ".size", ".other")):
            own.append(line.rstrip(" ;"))
    return {name: Code(tuple(lines), int(registers[name])) for name, lines in found.items()}


def _run(command: list[Any]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done
