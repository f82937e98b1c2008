# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Named pipelines, and textual pipelines taken apart into single passes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["PIPELINES", "Pipeline", "members", "named_pipeline", "parts", "pass_name", "split"]

_ANCHOR = "builtin.module"
_OPEN, _CLOSE = "({[<", ")}]>"


@dataclass(frozen=True)
class Pipeline:
    """A named pipeline: its steps, each a pass with options and the reason why it stands there.

    Attributes:
        options: name and default of each; in the steps, `$name` stands for its value.
    """

    name: str
    summary: str
    steps: tuple[tuple[str, str], ...]
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The pipeline as MLIR reads it, with `$name` for its options."""
        return ",".join(step for step, _ in self.steps)

    def expand(self, words: str = "") -> str:
        """The pipeline with the values of its options, `name=value` with spaces between."""
        values = {**self.options, **dict(word.split("=", 1) for word in words.split())}
        text = self.text
        for name, value in values.items():
            text = text.replace(f"${name}", value)
        return text


PIPELINES: dict[str, Pipeline] = {}


def named_pipeline(
    name: str, summary: str, *steps: tuple[str, str], options: Mapping[str, str] | None = None
) -> Pipeline:
    """Registers a pipeline; each step is (pass with options, reason why it stands there).

    Args:
        options: of the pipeline: name and default of each; `$name` in a step stands for its value.
    """
    PIPELINES[name] = Pipeline(name, summary, steps, dict(options or {}))
    return PIPELINES[name]


def split(pipeline: str) -> list[str]:
    """The passes of a pipeline, each as a pipeline of its own; named pipelines of ours are spelled out.

    `rlx-fuse,func.func(a,b{x=1})` gives the steps of rlx-fuse, then `func.func(a)` and `func.func(b{x=1})`.
    """
    text = pipeline.strip()
    if text.startswith(f"{_ANCHOR}(") and text.endswith(")"):
        text = text[len(_ANCHOR) + 1 : -1]
    steps: list[str] = []
    for part in parts(text):
        nested = re.fullmatch(r"([\w.]+)\((.*)\)", part, re.DOTALL)
        if nested is not None:
            steps += [f"{nested[1]}({inner})" for inner in split(nested[2])]
        elif inner := members(part):
            steps += [step for own in inner for step in split(own)]
        else:
            steps.append(part)
    return steps


def members(step: str) -> list[str]:
    """The steps of a named pipeline of ours, given with its options; none of a pass."""
    named = re.fullmatch(r"([\w-]+)(?:\{(.*)\})?", step, re.DOTALL)
    if named is None or named[1] not in PIPELINES:
        return []
    return parts(PIPELINES[named[1]].expand(named[2] or ""))


def parts(text: str) -> list[str]:
    """What commas separate outside of brackets and quotes."""
    found, depth, quoted, start = [], 0, False, 0
    for position, letter in enumerate(text):
        if letter == '"':
            quoted = not quoted
        elif not quoted:
            depth += (letter in _OPEN) - (letter in _CLOSE)
            if letter == "," and depth == 0:
                found.append(text[start:position])
                start = position + 1
    found.append(text[start:])
    return [part.strip() for part in found if part.strip()]


def pass_name(step: str) -> str:
    """The argument of the pass of a single step: `mir-to-linalg` of `func.func(mir-to-linalg)`."""
    inner = step.rpartition("(")[2] if step.endswith(")") else step
    return inner.partition("{")[0].rstrip(")").strip()
