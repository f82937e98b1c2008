# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What readers of kernels ask of their bodies: operations and results, sizes, elements, constants, roundings."""

from __future__ import annotations

from typing import Any

from rlx_mlir import ir
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.lowering.functions import memref_of
from rlx_mlir.lowering.fuse import keeps_wide, shape_of
from rlx_mlir.rewriting import operations


def body_of(kernel: ir.AnyOp) -> tuple[list[ir.AnyOp], list[ir.Value]]:
    """The kernel's operations, and the values that it returns."""
    *ops, terminator = operations(kernel, nested=False)
    return ops, list(terminator.operands)


def known_sizes(value: ir.Value) -> tuple[int | None, ...]:
    """The sizes of a tensor, None where they are dynamic."""
    return tuple(None if size < 0 else size for size in shape_of(value))


def element_name(value: ir.Value) -> str:
    """The element type of a tensor, as MLIR writes it."""
    return str(ir.RankedTensorType(value.type).element_type)


def constant_value(value: ir.Value) -> int | None:
    """The number that an index value is, None where it isn't a constant."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    return int(ir.IntegerAttr(owner.attributes["value"]).value)


def constant_number(op: ir.AnyOp) -> float:
    """The one number of a constant; UnsupportedByTemplate where its elements differ."""
    value = op.attributes["value"]
    if isinstance(value, ir.DenseFPElementsAttr) and value.is_splat:
        return float(value.get_splat_value().value)
    if isinstance(value, ir.DenseIntElementsAttr) and value.is_splat:
        number = int(value.get_splat_value().value)
        if number == int(float(number)):
            return float(number)
        raise UnsupportedByTemplate(f"a constant with more digits than f64 has: {number}")
    raise UnsupportedByTemplate("a constant whose elements differ")


#: Operations whose results have no more digits than their operands.
_EXACT = frozenset(
    f"mir.{word}"
    for word in (
        *("neg", "abs", "relu", "max", "min", "round", "where"),
        *("narrow", "reshape", "constant", "cast", "cache_update", "gather"),
    )
)


def rounding_of(op: ir.AnyOp) -> str:
    """The type that an operation's result is rounded to before another one of its kernel reads it; empty for none.

    Kernels compute f16 and bf16 in f32. Values between operations are rounded as the graph has them, unless the module
    says that they may stay wide (see `mir-keep-wide`).
    """
    element = element_name(op.results[0])
    if element not in ("f16", "bf16") or op.name in _EXACT or keeps_wide(op):
        return ""
    return element if any(use.owner.name != "func.return" for use in op.results[0].uses) else ""


def buffer_of(value: ir.Value) -> Any:
    """The buffer of an operand; None where it is absent."""
    return None if value is None else memref_of(value.type)
