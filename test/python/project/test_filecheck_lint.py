# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that FileCheck would pass over in silence: it reports none of them, and the test checks less than it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

LIT = Path(__file__).resolve().parents[2] / "lit"
SUFFIXES = frozenset({"NEXT", "SAME", "DAG", "NOT", "LABEL", "EMPTY", "COUNT", "LITERAL"})
#: A comment that starts as a check does: words of capitals with dashes, before a colon or not.
COMMENT = re.compile(r"^\s*//\s*(?P<word>[A-Z][A-Z0-9_]*(?:-[A-Z0-9]+)*)(?P<modifier>\{[A-Z,]+\})?(?P<after>[:\s]|$)")
PREFIX_OPTION = re.compile(r"--?check-prefix(?:es)?[= ]([\w,-]+)")


def dead_checks(text: str) -> Iterator[str]:
    """What is wrong with a test, a line for each."""
    lines = text.splitlines()
    commands = _commands(lines)
    if not commands:
        yield "no RUN line"
        return
    prefixes = _prefixes(commands)
    used: set[str] = set()
    for number, line in enumerate(lines, start=1):
        match = COMMENT.match(line)
        if match is None or match["word"] == "RUN":
            continue
        word, has_colon = match["word"], match["after"] == ":"
        stem, _, suffix = word.partition("-")
        prefix = next(
            (p for p in sorted(prefixes, key=len, reverse=True) if word == p or word.startswith(f"{p}-")), None
        )
        if prefix is not None:
            suffix = word[len(prefix) :].lstrip("-")
            if not has_colon:
                yield f"line {number}: '{word}' has no colon"
            elif suffix and suffix not in SUFFIXES and not re.fullmatch(r"COUNT-\d+", suffix):
                yield f"line {number}: '{word}' ends in no word that FileCheck knows"
            else:
                used.add(prefix)
        elif has_colon:
            yield f"line {number}: no RUN line names the prefix '{stem}'"
        elif suffix in SUFFIXES or stem == "CHECK":
            yield f"line {number}: '{word}' has no colon, and no RUN line names its prefix"
    for prefix in sorted(prefixes - used):
        yield f"no check has the prefix '{prefix}'"
    if not prefixes and not any("--verify-diagnostics" in command for command in commands):
        yield "no RUN line checks anything"
    if any("--verify-diagnostics" in command for command in commands) and "expected-" not in text:
        yield "no diagnostic is expected"


def _commands(lines: list[str]) -> list[str]:
    """The commands of RUN lines, those that go on behind a backslash joined."""
    commands: list[str] = []
    continues = False
    for line in lines:
        if match := re.match(r"\s*//\s*RUN:\s*(.*)", line):
            part = match[1].rstrip()
            if continues:
                commands[-1] = f"{commands[-1][:-1]} {part}"
            else:
                commands.append(part)
            continues = part.endswith("\\")
    return commands


def _prefixes(commands: list[str]) -> set[str]:
    prefixes: set[str] = set()
    for command in commands:
        for part in command.split("FileCheck")[1:]:
            found = PREFIX_OPTION.findall(part)
            prefixes.update(*(text.split(",") for text in found)) if found else prefixes.add("CHECK")
    return prefixes


@pytest.mark.parametrize("path", sorted(LIT.rglob("*.mlir")), ids=lambda path: str(path.relative_to(LIT)))
def test_no_check_is_dead(path: Path) -> None:
    assert list(dead_checks(path.read_text())) == []


def test_tests_are_found() -> None:
    assert (LIT / "passes" / "hir-to-mir.mlir") in LIT.rglob("*.mlir")


GOOD = """\
// RUN: rlx-opt %s | FileCheck %s
// CHECK: x
// CHECK-NEXT: y
// CHECK-COUNT-2: z
/// Prose. CHECK is a word.
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("// CHECK: x\n", "no RUN line"),
        ("// RUN: rlx-opt %s\n", "no RUN line checks anything"),
        ("// RUN: rlx-opt %s --verify-diagnostics\n", "no diagnostic is expected"),
        ("// RUN: rlx-opt %s | FileCheck %s\n", "no check has the prefix 'CHECK'"),
        (GOOD + "// CHECK-NXT: y\n", "line 6: 'CHECK-NXT' ends in no word that FileCheck knows"),
        (GOOD + "// CHECK y\n", "line 6: 'CHECK' has no colon"),
        (GOOD + "// CHECK-SAME y\n", "line 6: 'CHECK-SAME' has no colon"),
        (GOOD + "// CHEKC: y\n", "line 6: no RUN line names the prefix 'CHEKC'"),
        (GOOD + "// DIRECT-SAME: y\n", "line 6: no RUN line names the prefix 'DIRECT'"),
        (GOOD + "// DIRECT-SAME y\n", "line 6: 'DIRECT-SAME' has no colon, and no RUN line names its prefix"),
        (
            "// RUN: rlx-opt %s | FileCheck %s --check-prefixes=A,B\n// A: x\n// CHECK: y\n",
            "line 3: no RUN line names the prefix 'CHECK'",
        ),
        ("// RUN: rlx-opt %s | FileCheck %s --check-prefixes=A,B\n// A: x\n", "no check has the prefix 'B'"),
        (
            "// RUN: rlx-opt %s | FileCheck %s --check-prefix A\n// B: x\n// A: y\n",
            "line 2: no RUN line names the prefix 'B'",
        ),
    ],
)
def test_dead_checks_are_found(text: str, message: str) -> None:
    assert message in list(dead_checks(text))


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "// RUN: rlx-opt %s \\\n// RUN:   | FileCheck %s --check-prefix=OUT\n// OUT: x\n",
        "// RUN: rlx-opt %s | FileCheck %s --check-prefixes=CHECK,TWO\n// CHECK: x\n// TWO-DAG: y\n",
        "// RUN: rlx-opt %s --verify-diagnostics\n// expected-error @below {{x}}\n",
        "// RUN: not rlx-opt %s 2>&1 | FileCheck %s\n// CHECK{LITERAL}: [[x]]\n",
    ],
)
def test_live_checks_pass(text: str) -> None:
    assert list(dead_checks(text)) == []
