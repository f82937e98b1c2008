# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Erasing what is in use raises: MLIR ends the process there, whoever erases."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mlir.ir import Block, Operation, OpResult, Value

from rlx_mlir.errors import CompileError

#: What operations and their views have in common.
_Base: Any = Operation.__mro__[1]


def _reader(value: Value) -> str:
    """An operation that uses the value, as text; '' where none does."""
    use = next(iter(value.uses), None)
    return "" if use is None else f"'{use.owner.name}' at {use.owner.location}"


def _check_operation(op: Operation) -> None:
    for number, result in enumerate(op.operation.results):
        if reader := _reader(OpResult(result)):
            which = f"its result {number}" if len(op.operation.results) > 1 else "its result"
            raise CompileError(
                f"'{op.operation.name}' at {op.operation.location} still has uses and can't be erased: {reader} reads "
                f"{which}"
            )


def _check_argument(block: Block, number: int) -> None:
    if 0 <= number < len(block.arguments) and (reader := _reader(block.arguments[number])):
        raise CompileError(
            f"argument {number} of a block of '{block.owner.operation.name}' still has uses and can't be erased: "
            f"{reader} reads it"
        )


def _checked(erase: Callable[..., None], check: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(erase)
    def guarded(*arguments: object) -> None:
        check(*arguments)
        erase(*arguments)

    guarded.is_guard = True  # type: ignore[attr-defined]
    return guarded


def guard_erasure() -> None:
    """Makes the bindings check uses before they erase an operation or a block's argument; once for the process."""
    if not hasattr(_Base.erase, "is_guard"):
        _Base.erase = _checked(_Base.erase, _check_operation)
        Block.erase_argument = _checked(Block.erase_argument, _check_argument)
