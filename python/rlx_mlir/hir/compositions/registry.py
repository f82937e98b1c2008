# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How compositions are registered, and what they share.

A composition says what an operation of MIR is made of, in the words of the builders:

    @composition(mir.LoraMatmulOp)
    def lora_matmul(m: Builders, x: Value, w: Value, a: Value, b: Value, *, scale: float) -> Value:
        ...

It is called as references are: operands by position (None where an optional one is absent, a list for a variadic one),
attributes by keyword under their ODS names as Python values. It gives a value for each result. An operation of f16 or
bf16 rounds once, so what is inside is f32: `wide` and `narrow`. An operation that has kernels of its own, too, such as
a fused one, stays until `mir-decompose{all}` asks for its parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rlx_mlir import ir
from rlx_mlir.hir.graph import Graph
from rlx_mlir.hir.images import Images
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.registry import COMPOSITIONS, Registered

Function = TypeVar("Function", bound=Registered)


class Builders(Graph, Images):
    """What compositions build with: a module at stage mir, of which every builder is that of the primitive."""

    def sizes_of(self, x: Value) -> list[Size]:
        """The sizes of a value; those that have no name, too, are known to be those of its dimensions."""
        return list(self._all_dims()[self._resolve(x)])


def composition(*ops: type[ir.OpView]) -> Callable[[Function], Function]:
    """Registers a function as what builds operations of others."""

    def register(function: Function) -> Function:
        for op in ops:
            COMPOSITIONS[op.OPERATION_NAME] = function
        return function

    return register


def wide(m: Builders, *values: Value) -> list[Value]:
    """The values in the type that operations compute in: f32 for f16 and bf16."""
    return [m.cast(x, "f32") if x.dtype.name in ("float16", "bfloat16") else x for x in values]


def narrow(m: Builders, x: Value, like: Value) -> Value:
    """A value in the type of another, rounded once."""
    return x if x.dtype == like.dtype else m.cast(x, like.dtype)
