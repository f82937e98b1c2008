# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the interpreter and reports ask of the modules that they are given, whoever built them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from rlx_mlir import ir

__all__ = ["Graph", "StagedGraph"]


@runtime_checkable
class Graph(Protocol):
    """What holds a module of MLIR, as `GraphModule` does."""

    @property
    def ir_module(self) -> ir.Module: ...


class StagedGraph(Graph, Protocol):
    """A module at one of its stages, which lowers to the next."""

    @property
    def name(self) -> str: ...

    @property
    def stage(self) -> str: ...

    def lower(self) -> StagedGraph: ...
