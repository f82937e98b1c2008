# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of writers: what an operation of MIR is in StableHLO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rlx_mlir.exports.stablehlo.tensors import Tensor

#: Called as references are: with a `Writer`, operands by position, and attributes by keyword.
Handler = Callable[..., Tensor | Sequence[Tensor]]

Kind = TypeVar("Kind", bound=Handler)

HANDLERS: dict[str, Handler] = {}


def writes(*names: str) -> Callable[[Kind], Kind]:
    """Registers what writes operations, by their names without the dialect."""

    def add(handler: Kind) -> Kind:
        HANDLERS.update({f"mir.{name}": handler for name in names})
        return handler

    return add


def register(names: dict[str, str], make: Callable[[str], Handler]) -> None:
    """Registers a handler for each name, made of what it stands for."""
    for name, own in names.items():
        writes(name)(make(own))
