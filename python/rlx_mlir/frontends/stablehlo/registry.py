# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tables of operations: what one of StableHLO becomes.

A *handler* builds what an operation means, one function each, in a file for its family under `operators/`. A *fold*
computes it where operands are known while the module is read, one of them at least; where it can't, it gives None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .entries import Entry

Results = Entry | Sequence[Entry]
#: Builds the results of an operation, which is a `Call`.
Handler = Callable[[Any], Results]
#: Computes the results of an operation on known operands; None where they are to be built.
Fold = Callable[[Any], Results | None]

Kind = TypeVar("Kind", bound=Callable[..., Any])

HANDLERS: dict[str, Handler] = {}
FOLDS: dict[str, Fold] = {}


class Refused(Exception):
    """An operation asks for what isn't there; the text says what, empty where the operation itself isn't known."""


def _full(name: str) -> str:
    return name if "." in name or "@" in name else f"stablehlo.{name}"


def operator(*names: str) -> Callable[[Kind], Kind]:
    """Registers the handler of operations, by their names: of StableHLO without the dialect's, others with it.

    Custom calls are named by what they call: `@name`.
    """

    def add(handler: Kind) -> Kind:
        HANDLERS.update(dict.fromkeys(map(_full, names), handler))
        return handler

    return add


def fold(*names: str) -> Callable[[Kind], Kind]:
    """Registers what computes operations on known operands."""

    def add(function: Kind) -> Kind:
        FOLDS.update(dict.fromkeys(map(_full, names), function))
        return function

    return add


def by_family() -> dict[str, list[str]]:
    """The operations that have a handler or a fold, by the module under `operators` that has it."""
    found: dict[str, list[str]] = {}
    for name, function in sorted({**FOLDS, **HANDLERS}.items()):
        found.setdefault(function.__module__.rpartition(".")[2], []).append(name)
    return found
