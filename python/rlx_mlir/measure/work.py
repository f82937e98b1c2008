# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What each call of a graph does at given sizes, once it is compiled up to its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlx_mlir import ir
from rlx_mlir.compiler import Compilation, CompileOptions
from rlx_mlir.errors import InputError
from rlx_mlir.lowering.counting import POSITION, counted_calls
from rlx_mlir.lowering.functions import KERNEL, functions
from rlx_mlir.mir.dims import Size
from rlx_mlir.runtime.work import Call, Work

if TYPE_CHECKING:
    from rlx_mlir.hir.module import GraphModule


class ModuleWork:
    """The calls of a module in the order of its plan, and what each does at given sizes."""

    def __init__(self, module: GraphModule, options: CompileOptions) -> None:
        """Compiles a graph, at stage hir or mir, up to its kernels."""
        compilation = Compilation(module, options)
        compilation.run(until="kernels")
        self._module = compilation.module
        with self._module.context:
            self._kernels = {str(kernel.name.value): kernel for kernel in functions(self._module, KERNEL)}
            self._counted = counted_calls(self._module)
        self.calls: tuple[Call, ...] = tuple(own.call for own in self._counted)

    def at(self, sizes: Mapping[str, int], position: int = 0) -> list[Work]:
        """As `rlx_mlir.runtime.work.CountedWork.at`."""
        known = {**sizes, POSITION: position}
        return [
            Work(*(_number(size, known) for size in (own.work.flops, own.work.read, own.work.written)))
            for own in self._counted
        ]

    def operands(self, sizes: Mapping[str, int]) -> list[tuple[tuple[int, ...], ...]]:
        """The shapes of each call's operands; raises as `at` does."""
        return [tuple(tuple(_number(size, sizes) for size in shape) for shape in own.operands) for own in self._counted]

    def kernel(self, name: str) -> ir.AnyOp:
        """The function of a kernel, which holds its primitives, for use with the module's context."""
        return self._kernels[name]

    @property
    def context(self) -> ir.Context:
        """Of the module."""
        context: ir.Context = self._module.context
        return context


def _number(size: Size, sizes: Mapping[str, int]) -> int:
    try:
        return size.evaluate(sizes)
    except KeyError as error:
        raise InputError(f"the work of a module needs a size for its symbol {error}") from None


__all__ = ["ModuleWork"]
