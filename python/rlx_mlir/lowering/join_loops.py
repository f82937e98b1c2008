# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `cpu-join-loops`: the element-wise operations of a kernel become one loop nest."""

from __future__ import annotations

from collections.abc import Sequence

from mlir.dialects import linalg

from rlx_mlir import ir
from rlx_mlir.lowering.functions import CLASS
from rlx_mlir.rewriting import compiler_pass, operations

#: What may read a tensor that is no longer made: it asks for sizes only.
_SIZES = "tensor.dim"


@compiler_pass("cpu-join-loops", anchor="func.func", dependent=("linalg",))
def join_loops(function: ir.Operation) -> None:
    """Join the `linalg.generic`s of a kernel of element-wise operations: what is in between stays in registers.

    Runs on tensors, on kernels of class broadcast alone, whose operations all have one shape. Roundings stay: a value
    in between is stored in the element type that it has.
    """
    if CLASS not in function.attributes or str(function.attributes[CLASS]) != '"broadcast"':
        return
    nests = [op for op in operations(function) if op.name == "linalg.generic"]
    if len(nests) > 1 and all(map(_is_elementwise, nests)) and _stand_together(nests):
        _join(nests)


def _is_elementwise(op: ir.Operation) -> bool:
    """Whether each element of one result follows from what the inputs have at its place."""
    segments = ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])
    maps = [ir.AffineMapAttr(attribute).value for attribute in op.attributes["indexing_maps"]]
    if segments[1] != 1 or any("parallel" not in str(kind) for kind in op.attributes["iterator_types"]):
        return False
    block = op.regions[0].blocks[0]
    indexed = any(inner.operation.name == "linalg.index" for inner in block.operations)
    unread = next(iter(block.arguments[len(maps) - 1].uses), None) is None
    return maps[-1] == ir.AffineMap.get_identity(maps[-1].n_dims) and unread and not indexed


def _stand_together(nests: Sequence[ir.Operation]) -> bool:
    """Whether all have as many loops, and what one makes is read by others of them, asked for its size, or given."""
    loops = {len(op.attributes["iterator_types"]) for op in nests}
    known = {"func.return", _SIZES}
    members = set(nests)
    users = [use.owner.operation for op in nests for use in op.results[0].uses]
    return len(loops) == 1 and all(user in members or user.name in known for user in users)


def _join(nests: Sequence[ir.Operation]) -> None:
    """Makes one nest of several, at the place of the last one."""
    made = {op.results[0]: number for number, op in enumerate(nests)}
    inputs: dict[tuple[ir.Value, ir.AffineMap], int] = {}
    for op in nests:
        for value, map in _inputs(op):
            if value not in made:
                inputs.setdefault((value, map), len(inputs))
        for use in list(op.results[0].uses):
            if use.owner.operation.name == _SIZES:
                use.owner.operation.operands[0] = _destination(op)
    given = [op for op in nests if any(use.owner.operation.name == "func.return" for use in op.results[0].uses)]
    last = nests[-1]
    identity = ir.AffineMap.get_identity(len(last.attributes["iterator_types"]))
    maps = [*(map for _, map in inputs), *[identity] * len(given)]
    with ir.InsertionPoint(last), last.location:
        joined = linalg.GenericOp(
            [op.results[0].type for op in given],
            [value for value, _ in inputs],
            [_destination(op) for op in given],
            ir.ArrayAttr.get([ir.AffineMapAttr.get(map) for map in maps]),
            last.attributes["iterator_types"],
        )
    operands = [*(value for value, _ in inputs), *(_destination(op) for op in given)]
    types = [ir.RankedTensorType(value.type).element_type for value in operands]
    block = joined.regions[0].blocks.append(*types, arg_locs=[last.location] * len(types))
    scalars: dict[ir.Value, ir.Value] = {}
    for op in nests:
        places = [
            scalars[value] if value in made else block.arguments[inputs[value, map]] for value, map in _inputs(op)
        ]
        scalars[op.results[0]] = _cloned(op.regions[0].blocks[0], places, block)
    with ir.InsertionPoint(block), last.location:
        linalg.YieldOp([scalars[op.results[0]] for op in given])
    for op, result in zip(given, joined.results, strict=True):
        op.results[0].replace_all_uses_with(result)
    for op in reversed(nests):
        op.erase()


def _inputs(op: ir.Operation) -> list[tuple[ir.Value, ir.AffineMap]]:
    """The tensors that a nest reads, with their maps."""
    maps = [ir.AffineMapAttr(attribute).value for attribute in op.attributes["indexing_maps"]]
    return list(zip(list(op.operands)[:-1], maps[:-1], strict=True))


def _destination(op: ir.Operation) -> ir.Value:
    """The tensor whose memory a nest's result may take."""
    value: ir.Value = op.operands[len(op.operands) - 1]
    return value


def _cloned(body: ir.Block, scalars: Sequence[ir.Value], target: ir.Block) -> ir.Value:
    """Appends copies of a nest's operations with scalars for what they read; gives what they yield."""
    known: dict[ir.Value, ir.Value] = dict(zip(body.arguments, scalars, strict=False))  # the destination isn't read
    *ops, end = [op.operation for op in body.operations]
    for op in ops:
        copy = op.clone(ip=ir.InsertionPoint(target)).operation
        for number, operand in enumerate(op.operands):
            copy.operands[number] = known.get(operand, operand)
        known.update(zip(op.results, copy.results, strict=True))
    given = end.operands[0]
    return known.get(given, given)
