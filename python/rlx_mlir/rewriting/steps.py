# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Textual pipelines taken apart into single passes, and run pass by pass under observation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from rlx_mlir import ir
from rlx_mlir.rewriting.registry import PIPELINES, run_pipeline

_ANCHOR = "builtin.module"
_OPEN, _CLOSE = "({[<", ")}]>"


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
        elif (named := re.fullmatch(r"([\w-]+)(?:\{(.*)\})?", part, re.DOTALL)) and named[1] in PIPELINES:
            steps += split(PIPELINES[named[1]].expand(named[2] or ""))
        else:
            steps.append(part)
    return steps


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


class Observer(Protocol):
    """What is told of passes that changed a module."""

    def changed(self, step: str, before: ir.Module, after: ir.Module) -> None:
        """A pass, given as a pipeline, has changed a module; neither of the two may be changed now."""


def run_observed(module: ir.Module, pipeline: str, observers: Iterable[Observer]) -> None:
    """Runs a pipeline pass by pass, and tells observers of each that changed the module; raises as `run_pipeline`."""
    for step in split(pipeline):
        before = clone(module)
        run_pipeline(module, step)
        if not ir.native.is_equivalent(before.operation, module.operation):
            for observer in observers:
                observer.changed(step, before, module)


def clone(module: ir.Module) -> ir.Module:
    """A copy of a module, in its context."""
    source = module.operation
    copy = ir.Module.create(source.location)
    with source.context:
        for name, attribute in source.attributes.items():
            copy.operation.attributes[name] = attribute
        for op in module.body.operations:
            copy.body.append(op.operation.clone())
    return copy
