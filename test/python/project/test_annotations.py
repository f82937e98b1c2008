# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Annotations say what values are: how often those of the package are `Any`, which says nothing, has a limit.

A value that really may be anything, and flows on as that, has a name of its own with a comment what it may be, such as
`PythonValue` in `attributes.py`: that is one use of `Any`, wherever the name stands.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from documents import ROOT

PACKAGE = ROOT / "python" / "rlx_mlir"
#: Uses that a package, or a module beside the packages, may have, and all of them together.
MOST_OF_PART = 20
MOST_OF_ALL = 200


def uses(source: str) -> int:
    """How often a source file names `Any` in what it does: imports, comments and texts don't count."""
    if "Any" not in source:  # most files, which needn't be parsed
        return 0
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(ast.parse(source)))


def sources() -> Iterator[tuple[str, Path]]:
    """The package's own files, each with the part that it is of: a package, or itself where it stands beside these."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if not path.name.endswith("_gen.py"):  # of the bindings, which a build generates
            yield path.relative_to(PACKAGE).parts[0], path


def refusals(found: Counter[str]) -> list[str]:
    """What is wrong with the uses of `Any`, by part."""
    wrong = [
        f"{part} uses Any {count} times, but at most {MOST_OF_PART} times are allowed"
        for part, count in found.most_common()
        if count > MOST_OF_PART
    ]
    if found.total() > MOST_OF_ALL:
        listed = ", ".join(f"{part} {count}" for part, count in found.most_common() if count)
        wrong.append(
            f"the package uses Any {found.total()} times, but at most {MOST_OF_ALL} times are allowed: {listed}"
        )
    return wrong


def test_annotations_seldom_say_any() -> None:
    found = Counter[str]()
    for part, path in sources():
        found[part] += uses(path.read_text(encoding="utf-8"))
    assert len(found) > 30, "these are the package's parts"
    assert not refusals(found), "\n".join(refusals(found))


def test_uses_are_counted_where_annotations_have_them() -> None:
    assert uses("def f(x: Any, *rest: list[Any]) -> str:  # Any\n    y: Any = x\n    return 'Any'\n") == 3
    assert uses("from typing import Any\n") == 0


def test_what_says_any_too_often_is_named() -> None:
    assert refusals(Counter({"hir": MOST_OF_PART})) == []
    assert refusals(Counter({"hir": MOST_OF_PART + 1, "mir": 2})) == [
        f"hir uses Any {MOST_OF_PART + 1} times, but at most {MOST_OF_PART} times are allowed"
    ]
    many = Counter({**{f"part{n}": MOST_OF_PART for n in range(20)}, "none": 0})
    (text,) = refusals(many)
    assert text.startswith(f"the package uses Any {many.total()} times, but at most {MOST_OF_ALL} times are allowed: ")
    assert "none" not in text
