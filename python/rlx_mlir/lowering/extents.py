# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether the memory of every value can be addressed: sizes, strides and bytes are computed in 64 bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.errors import CompileError

MAX_BYTES = 2**63 - 1
#: Values that one error names.
_LISTED = 5


def extent(kind: ir.Type) -> int:
    """The bytes of a tensor or buffer as its type has them; dynamic and empty dimensions count as 1.

    Upstream's arithmetic on strides leaves out empty dimensions, too.
    """
    if not isinstance(kind, (ir.RankedTensorType, ir.MemRefType, ir.VectorType)):
        return 0
    element = kind.element_type
    width = element.width if isinstance(element, (ir.IntegerType, ir.FloatType)) else 64
    total = max(1, (width + 7) // 8)
    for size in kind.shape:
        total *= max(size, 1)
    return int(total)


def oversized(root: ir.AnyOp | ir.Module, known: dict[ir.Type, int] | None = None) -> Iterator[str]:
    """What is too large inside of an operation, in words; `known` gets the bytes of each type."""
    known = {} if known is None else known

    def among(word: str, values: Iterable[ir.Value], op: ir.AnyOp) -> Iterator[str]:
        for number, value in enumerate(values):
            kind = value.type
            if (size := known.get(kind)) is None:
                size = known[kind] = extent(kind)
            if size > MAX_BYTES:
                what = f"{word} {number} of {_named(op)}"
                yield f"{what} is of {kind}: {size} bytes, but at most {MAX_BYTES} can be addressed"

    work = [root.operation]
    while work:
        op = work.pop()
        yield from among("result", op.results, op)
        if len(op.regions) == 0 or op.name.startswith("linalg."):  # Those compute with scalars inside: there are many.
            continue
        for region in op.regions:
            for block in region.blocks:
                yield from among("argument", block.arguments, op)
                work += reversed([inner.operation for inner in block.operations])


def _named(op: ir.AnyOp) -> str:
    if op.name == "func.func":
        return f"function '{python_value(op.attributes['sym_name'])}'"
    return f"'{op.name}' at {op.location}"


def check_extents(root: ir.AnyOp | ir.Module) -> int:
    """The bytes of the largest value.

    Raises CompileError, which names the values, where the memory of some can't be addressed.
    """
    known: dict[ir.Type, int] = {}
    found = list(oversized(root, known))
    if found:
        more = [f"and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
        raise CompileError("\n  ".join(["values are too large", *found[:_LISTED], *more]))
    return max(known.values(), default=0)
