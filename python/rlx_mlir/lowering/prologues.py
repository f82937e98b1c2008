# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms and quantisation of what products of few rows read become part of these products' kernels.

Each block of such a kernel does them again, which costs less than a kernel of their own: weights are on their way
meanwhile.

Parts of what a product makes stand where they are read, so that they are part of the kernel that reads them.
"""

from __future__ import annotations

import math

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.gpu.gemv_config import MAX_TILE
from rlx_mlir.dialects import mir
from rlx_mlir.formats.descriptions import RUN
from rlx_mlir.lowering.fuse import producer, shape_of
from rlx_mlir.lowering.groups import PRODUCTS, ROW_WISE, Group
from rlx_mlir.mir.packed import packing
from rlx_mlir.rewriting import identity, operations

#: Kernels that may repeat an operation.
MOST_READERS = 2


def sink_parts(entry: ir.AnyOp) -> None:
    """Moves parts of rows to before the first operation that reads them, where all that do work on rows.

    Else a product that stands between, such as that of values after one of queries and keys, would end their kernel.
    """
    ops = list(operations(entry, nested=False))
    order = {identity(op): number for number, op in enumerate(ops)}
    for op in reversed(ops):
        if op.name != "mir.narrow":
            continue
        readers = [use.owner for use in op.results[0].uses]
        if readers and all(reader.name in ROW_WISE and identity(reader) in order for reader in readers):
            op.move_before(min(readers, key=lambda reader: order[identity(reader)]))


def join_prologues(groups: list[Group]) -> list[Group]:
    """Gives products of few rows copies of the norms and quantisations that only they read."""
    readers = {identity(op): group for group in groups if _is_product_of_few_rows(group) for op in group.ops}
    for group in groups:
        if group.kind != "gemm" or not any(identity(op) in readers for op in group.ops):
            continue
        first = next(op for op in group.ops if isinstance(op.opview, PRODUCTS))
        quantised = _quantisation(first)
        if quantised is not None and _read_by(quantised, readers):
            _join(group, quantised)
            first = quantised = group.ops[0]
        elif isinstance(first.opview, mir.BlockDotOp):
            continue
        norm = _norm(first.operands[0])
        if norm is not None and _read_by(norm, readers | ({identity(quantised): group} if quantised else {})):
            _join(group, norm)
    return _without_unread(groups)


def _is_product_of_few_rows(group: Group) -> bool:
    """Whether the schedule for few rows covers the group, prologues included."""
    products = [op for op in group.ops if isinstance(op.opview, PRODUCTS)]
    if group.kind != "gemm" or not products:
        return False
    x, *others = products[0].operands
    weight = others[0 if isinstance(products[0].opview, mir.FusedMatmulBiasActOp | mir.ScaledMatmulOp) else -1]
    rows, k, encoding = shape_of(x)[:-1], shape_of(x)[-1], packing(weight.type)
    if min(rows, default=1) < 1 or math.prod(rows) > MAX_TILE or k < 1 or k % RUN:
        return False
    if encoding is not None:
        return encoding.layout == "planes"
    kinds = {str(ir.RankedTensorType(value.type).element_type) for value in (x, weight, products[0].results[0])}
    return len(shape_of(weight)) == 2 and min(shape_of(weight)) > 0 and len(kinds) == 1 and kinds <= set(IN_F32)


def _quantisation(product: ir.AnyOp) -> ir.AnyOp | None:
    """The operation that quantises all that a product of bytes reads, in blocks of 32, from f32; None
    without."""
    if not isinstance(product.opview, mir.BlockDotOp):
        return None
    owners = [value.owner for value in list(product.operands)[:3]]
    if any(isinstance(owner, ir.Block) or owner.name != "mir.block_quantize" for owner in owners):
        return None
    op = owners[0]
    if any(identity(owner) != identity(op) for owner in owners) or list(product.operands)[:3] != list(op.results):
        return None
    wide = str(ir.RankedTensorType(op.operands[0].type).element_type) == "f32"
    block, bits = (python_value(op.attributes[name]) for name in ("block", "bits"))
    return op if wide and (block, bits) == (RUN, 8) else None


def _norm(value: ir.Value) -> ir.AnyOp | None:
    """The RMS norm over rows, without an offset, that makes the value; None where it is something else."""
    norm = producer(value, mir.RmsNormOp)
    if norm is None or norm.beta is not None or python_value(norm.axis) not in (-1, len(shape_of(value)) - 1):
        return None
    kinds = {str(ir.RankedTensorType(v.type).element_type) for v in (norm.x, norm.gamma, norm.result)}
    return norm.operation if len(kinds) == 1 and shape_of(norm.gamma) == shape_of(value)[-1:] else None


def _read_by(op: ir.AnyOp, readers: dict[int, Group]) -> bool:
    """Whether all that read the operation are such products, of a few kernels."""
    users = [use.owner for result in op.results for use in result.uses]
    # A quantisation that has been copied has no readers left.
    users = [user for user in users if not list(user.results) or any(list(result.uses) for result in user.results)]
    if not all(identity(user) in readers for user in users):
        return False
    return len({id(readers[identity(user)]) for user in users}) <= MOST_READERS


def _join(group: Group, op: ir.AnyOp) -> None:
    """Puts a copy of the operation at the head of a group, whose operations read the copy."""
    clone = op.operation.clone(ip=ir.InsertionPoint(group.ops[0]))
    for member in group.ops:
        for number, value in enumerate(member.operands):
            for old, new in zip(op.results, clone.results, strict=True):
                if value == old:
                    member.operands[number] = new
    group.ops.insert(0, clone)


def _without_unread(groups: list[Group]) -> list[Group]:
    """The groups without operations that nothing reads any more, which are erased, readers first."""
    for group in reversed(groups):
        for op in reversed(list(group.ops)):
            if op.name in ("mir.block_quantize", "mir.rms_norm") and not any(list(r.uses) for r in op.results):
                group.ops.remove(op)
                op.erase()
    return [group for group in groups if group.ops]
