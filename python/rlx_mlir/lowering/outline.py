# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `mir-outline-kernels`: groups of operations become functions, identical ones shared.

After it the entry function holds calls, reshapes (views of the same memory) and nothing else. Kernels still hold MIR,
so what a kernel means can be read, interpreted, and lowered by a template or generically.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.dialects import mir
from rlx_mlir.kernel_classes import GENERIC, OWN
from rlx_mlir.lowering.convolutions import fits_images, is_by_channel, panels_of, why_no_template
from rlx_mlir.lowering.donation import check_packed, separate, sink_writers, ties_of
from rlx_mlir.lowering.followers import Epilogues, followers
from rlx_mlir.lowering.functions import tensor_entry
from rlx_mlir.lowering.fuse import BINARY, only_user, producer, shape_of
from rlx_mlir.lowering.groups import (
    BROADCASTS,
    MAX_ELEMENT_OPS,
    MAX_ROW_OPS,
    POINTWISE,
    PRODUCTS,
    ROW_WISE,
    Group,
)
from rlx_mlir.lowering.in_place import is_in_place, is_overwritten
from rlx_mlir.lowering.joined import note_groups
from rlx_mlir.lowering.kernel_library import KernelLibrary
from rlx_mlir.lowering.parameters import can_prepare, prepare_constant
from rlx_mlir.lowering.prologues import join_prologues, sink_parts
from rlx_mlir.lowering.regions import copied, is_kept, kept_blocks, own_values
from rlx_mlir.mir.dims import Size, is_never_negative, product
from rlx_mlir.mir.fft import radices
from rlx_mlir.mir.packed import packing
from rlx_mlir.rewriting import Option, compiler_pass, erase_dead, identity, operations, report_into
from rlx_mlir.semantics.dims import Dims, propagate
from rlx_mlir.semantics.function import viewed

#: Classes whose templates read operands from memory, not tables of numbers in the kernel.
_OF_ARRAYS = (
    "attention",
    "norm",
    "group_norm",
    "recurrence",
    "state_space",
    "solve",
    "fft",
    "grouped",
    "q_matmul",
    "loss",
    "conv2d",
    "pool",
)

#: What templates for rows combine the elements of a row by.
_ROW_SUMS = ("sum", "mean", "max", "min", "prod")

#: Tensors that one kernel joins, of static and of dynamic shape; of more, groups are joined first. The time that such a
#: kernel takes to compile grows faster than their number, with the cube of it in MLIR's eliminate-empty-tensors.
MAX_JOINED, MAX_JOINED_DYNAMIC = 16, 8


@dataclass(frozen=True)
class RowSpace:
    """What operations of one kernel of rows share.

    Attributes:
        leading: the dimensions that number the rows, without trailing ones.
        sizes: the same as types have them.
        element: type of the elements.
    """

    leading: Dims
    sizes: tuple[int, ...]
    element: str

    @classmethod
    def of(cls, value: ir.Value, dims: Dims, heads: int = 1) -> RowSpace:
        """The rows of a value, each cut in `heads` rows."""
        leading, sizes = list(dims[:-1]), shape_of(value)[:-1]
        if heads > 1:
            leading, sizes = [*leading, Size.of(heads)], [*sizes, heads]
        while sizes and sizes[-1] == 1:
            leading, sizes = leading[:-1], sizes[:-1]
        return cls(tuple(leading), tuple(sizes), str(ir.RankedTensorType(value.type).element_type))


@compiler_pass(
    "mir-outline-kernels",
    dependent=("func",),
    options={
        "prologues": Option("products of few rows do norms and quantisation of what they read, as on GPUs", False),
        "gathers": Option(
            "gathers do the element-wise operations on what they read, and convolutions none on what they make, as on "
            "GPUs",
            False,
        ),
        "apart": Option("each operation gets a kernel of its own, to compare results with", False),
    },
)
def outline_kernels(module: ir.Operation, *, prologues: bool, gathers: bool, apart: bool) -> None:
    """Outline groups of operations into kernels and share identical ones; the entry function calls them."""
    for op in [op for op in operations(module) if op.name == "mir.barrier"]:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()
    entry = tensor_entry(module)
    erase_dead(entry)
    check_packed(entry)
    _copy_results(entry)
    blocks = kept_blocks(entry)
    for block in blocks:
        own_values(block)
        _copy_updated(block)
        _store_constants(module, block)
        _join_in_groups(block)
    if prologues:
        sink_parts(entry)
    dims = propagate(entry.operation)
    library, report = KernelLibrary(module), report_into(module)
    for number, block in enumerate(blocks):
        ops = [op for op in _inside(block) if op.name.startswith("mir.") and op.results]
        groups = _single_groups(ops, dims) if apart else _form_groups(block, ops, dims, gathers=gathers)
        if number == 0 and not apart:
            groups = separate(entry, groups, _single_group)
        if prologues:
            groups = join_prologues(groups)
        if report is not None and not apart:
            note_groups(report, groups)
        for group in groups:
            library.outline(group)
    sink_writers(entry)
    for block in blocks:
        for op in reversed([op for op in _inside(block) if op.name == "mir.constant"]):
            if all(next(iter(result.uses), None) is None for result in op.results):
                op.erase()


def _inside(block: ir.Block) -> list[ir.Operation]:
    """The operations of a block, without those in their regions."""
    return [op.operation for op in block.operations]


def _copy_results(entry: ir.AnyOp) -> None:
    """Gives each result an operation of its own: arguments, constants and repeated values are copied.

    An argument that is tied to itself is none: the run time gives its memory, or a copy.
    """
    *_, terminator = operations(entry, nested=False)
    unchanged = {tie.number for tie in ties_of(entry) if viewed(tie.value) == tie.argument}
    seen: set[ir.Value] = set()
    for number, value in enumerate(terminator.operands):
        root = viewed(value)
        if number in unchanged:
            continue
        if root in seen or isinstance(root.owner, ir.Block) or root.owner.name == "mir.constant":
            with ir.InsertionPoint(terminator), terminator.location:
                terminator.operands[number] = copied(value)
        seen.add(root)


def _copy_updated(block: ir.Block) -> None:
    """Gives updates that can't overwrite what they change a copy of it, which they overwrite."""
    for op in _inside(block):
        if op.name == "mir.dynamic_update_slice" and not is_overwritten(op.opview):
            with ir.InsertionPoint(op), op.location:
                op.operands[0] = copied(op.operands[0])


def _store_constants(module: ir.Operation, block: ir.Block) -> None:
    """Constants are written to memory where what reads them has to find them there; once where that is possible."""
    is_entry = block.owner.operation.name == "func.func"
    stored: dict[ir.Value, ir.Value] = {}
    for op in [op for op in _inside(block) if op.name != "mir.constant"]:
        for number, value in enumerate(op.operands):
            constant = producer(value, mir.ConstantOp)
            is_splat = getattr(constant.value, "is_splat", False) if constant is not None else False
            if constant is None or not _reads_memory(op, value, is_splat=is_splat):
                continue
            if value not in stored and is_entry and can_prepare(constant.operation):
                stored[value] = prepare_constant(module, constant.operation)
            elif value not in stored:
                with ir.InsertionPoint.after(constant.operation), op.location:
                    stored[value] = copied(value)
            op.operands[number] = stored[value]


def _reads_memory(op: ir.AnyOp, value: ir.Value, *, is_splat: bool) -> bool:
    """Whether a constant, the value, can be no part of the kernel that an operation is in.

    Functions of the user's own take arrays. The templates of products, convolutions, rows and attention take one
    number, no others: with a table in the kernel they would decline, which costs more than to copy it.
    """
    if isinstance(op.opview, mir.CustomOp) or is_kept(op):
        return True
    if is_splat or not op.results:
        return False
    if _is_of_elements(op):
        return True
    if op.name in ROW_WISE and _is_row_wise(op.opview):
        return len(shape_of(op.results[0])) > 1
    if op.name in BINARY and is_by_channel(value, op.results[0]):
        return True
    return isinstance(op.opview, PRODUCTS) or _single_class(op.opview) in _OF_ARRAYS


def _join_in_groups(block: ir.Block) -> None:
    """Concatenations of many tensors become some of few; equal ones share a kernel."""
    for op in [op.opview for op in _inside(block) if op.name == "mir.concat"]:
        values, axis = list(op.inputs), python_value(op.axis)
        most = MAX_JOINED if op.result.type.has_static_shape else MAX_JOINED_DYNAMIC
        if len(values) <= most:
            continue
        with ir.InsertionPoint(op), op.location:
            while len(values) > 1:
                groups = [values[at : at + most] for at in range(0, len(values), most)]
                values = [mir.concat(group, axis=axis) if len(group) > 1 else group[0] for group in groups]
        op.result.replace_all_uses_with(values[0])
        op.operation.erase()


def _form_groups(
    block: ir.Block, ops: Sequence[ir.Operation], dims: dict[ir.Value, Dims], *, gathers: bool
) -> list[Group]:
    """The groups of a block's operations, in the order of their last operations.

    ops: those of the block that may need kernels.
    dims: of all values.
    gathers: gathers take the element-wise operations on what they read into their kernels, and products none but those
        that follow them.
    """
    taken: set[int] = set()
    groups: list[Group] = []
    epilogues = Epilogues(block, taken, alone=gathers)
    for op in ops:
        if (group := _group_around(op, ops, dims, taken, epilogues, gathers=gathers)) is not None:
            taken |= group.members
            groups.append(group)
    rows: Group | None = None
    space: RowSpace | None = None
    elements: Group | None = None
    for op in ops:
        view = op.opview
        if is_kept(op):
            rows = elements = None  # It stands where it is, and may read what a kernel after it would make.
            continue
        if not gathers and identity(op) not in taken and _is_of_elements(op) and not _is_of_row_numbers(op):
            if elements is None or not _continues(op, elements, dims):
                elements = Group("broadcast")
                groups.append(elements)
            elements.ops.append(op)
            rows = None
            continue
        if elements is not None and _reads(op, elements):
            elements = None
        if identity(op) not in taken and (_is_row_wise_op(op) or (not gathers and _is_of_row_numbers(op))):
            if rows is None or space is None or len(rows.ops) >= MAX_ROW_OPS or not _is_in(view, dims, rows, space):
                value = _row_value(view)
                rows, space = Group("rows"), RowSpace.of(value, dims[value])
                groups.append(rows)
            rows.ops.append(op)
            continue
        if (
            isinstance(view, mir.ReshapeOp)
            and not len(view.like)
            and rows is not None
            and space is not None
            and _reads(op, rows)
            and _is_in(view, dims, rows, space)
        ):
            rows.ops.append(op)  # The rows stay what they are; what reads them in another shape may join.
            continue
        if rows is not None and (isinstance(view, PRODUCTS) or _reads(op, rows)):
            rows = None  # A kernel stands where its last operation stood: before whatever reads its results.
        if identity(op) not in taken and not _is_view(view, dims):
            rows = None
            groups.append(Group(_single_class(view), [op]))
    for group in groups:
        if group.kind == "rows":
            _drop_views(group)
    order = {identity(op): number for number, op in enumerate(ops)}
    for group in groups:
        group.ops.sort(key=lambda op: order[identity(op)])
    return sorted(groups, key=lambda group: order[identity(group.ops[-1])])


def _group_around(
    op: ir.AnyOp,
    ops: Sequence[ir.Operation],
    dims: dict[ir.Value, Dims],
    taken: set[int],
    epilogues: Epilogues,
    *,
    gathers: bool,
) -> Group | None:
    """An operation with those around it that its kernel takes in; None where it isn't of such a kind.

    taken: what groups before have. The others are as of `_form_groups`.
    """
    view, is_taken = op.opview, identity(op) in taken
    if isinstance(view, PRODUCTS) and not is_taken:
        return Group("gemm", epilogues.of_product(op))
    if isinstance(view, mir.ConvOp) and (found := _depthwise(op)):
        return Group("conv", found)
    if isinstance(view, mir.ConvOp) and not gathers:
        return Group("conv2d", _convolution(view, taken, dims))
    if isinstance(view, mir.FftOp) and (found := _spectrum(op, ops)):
        return Group("fft", found)
    if gathers and isinstance(view, mir.GatherOp):
        return Group("gather", _gather_with_followers(op, taken))
    if gathers and isinstance(view, mir.WhereOp) and not is_taken:
        return Group("broadcast", _with_condition(op, taken))
    return None


def _is_row_wise_op(op: ir.AnyOp) -> bool:
    """Whether kernels of rows may have the operation."""
    return op.name in ROW_WISE and _is_row_wise(op.opview)


def _is_of_row_numbers(op: ir.AnyOp) -> bool:
    """Whether the operation gives or takes one float for each row, as templates for CPUs can beside whole rows."""
    shape = shape_of(op.results[0]) if len(op.results) else []
    if not shape or not _is_float_of_rows(op):
        return False
    if op.name in BINARY:
        known = (shape, shape[-1:], [*shape[:-1], 1])
        return len(shape) > 1 and shape[-1] >= 0 and all(shape_of(v) in known or _one(v) for v in op.operands)
    if op.name != "mir.reduce" or "keep_dims" not in op.attributes:
        return False
    own = shape_of(op.operands[0])
    axes = [axis % len(own) for axis in python_value(op.attributes["axes"])]
    return axes == [len(own) - 1] and own[-1] > 1 and python_value(op.attributes["kind"]) in _ROW_SUMS


def _is_of_elements(op: ir.AnyOp) -> bool:
    """Whether the operation joins others by the shape of its elements: templates for rows have some floats alone, and
    one thread for each row, which a vector is one of."""
    if isinstance(op.opview, mir.QuantizeOp | mir.DequantizeOp):
        return op.opview.axis is None
    if op.name not in BROADCASTS:
        return op.name in ("mir.iota", "mir.expand")
    return not _is_row_wise_op(op) or not _is_float_of_rows(op) or len(shape_of(op.results[0])) == 1


def _is_float_of_rows(op: ir.AnyOp) -> bool:
    """Whether the result's elements are of a type that templates for rows compute."""
    return str(ir.RankedTensorType(op.results[0].type).element_type) in IN_F32


def _continues(op: ir.AnyOp, group: Group, dims: dict[ir.Value, Dims]) -> bool:
    """Whether an element-wise operation joins those of a group: all have one shape."""
    return len(group.ops) < MAX_ELEMENT_OPS and dims[op.results[0]] == dims[group.ops[0].results[0]]


def _single_groups(ops: Sequence[ir.Operation], dims: dict[ir.Value, Dims]) -> list[Group]:
    """A group for each of a block's operations, but for views."""
    return [_single_group(op) for op in ops if not _is_view(op.opview, dims) and not is_kept(op)]


def _single_group(op: ir.AnyOp) -> Group:
    kind = "gemm" if isinstance(op.opview, PRODUCTS) else "rows" if _is_row_wise_op(op) else _single_class(op.opview)
    return Group(kind, [op])


def _row_value(view: ir.AnyOp) -> ir.Value:
    """The value whose rows an operation works on."""
    if isinstance(view, mir.CacheUpdateOp | mir.ReduceOp):
        value: ir.Value = view.new if isinstance(view, mir.CacheUpdateOp) else view.x
        return value
    return view.operation.results[0]


def _is_in(view: ir.AnyOp, dims: dict[ir.Value, Dims], rows: Group, space: RowSpace) -> bool:
    """Whether the operation works on the rows of a kernel, or on rows that are several of them side by side (heads)."""
    value = _row_value(view)
    last = shape_of(value)[-1] if shape_of(value) else -1
    if last < 0 or RowSpace.of(value, dims[value]) == space:
        return last >= 0
    width = shape_of(_row_value(rows.ops[0].opview))[-1]
    if width < 1 or last % width or not _splits(view, width):
        return False
    return RowSpace.of(value, dims[value], last // width) == space


def _splits(view: ir.AnyOp, width: int) -> bool:
    """Whether the operation works on parts of a row, `width` elements each, as it works on the row."""
    if isinstance(view, mir.RopeOp):
        return width % int(python_value(view.head_dim)) == 0
    return view.operation.name in POINTWISE or isinstance(view, mir.CacheUpdateOp | mir.ReshapeOp)


def _drop_views(group: Group) -> None:
    """Takes reshapes that nothing in the group reads out of it; they follow its last operation."""
    for op in reversed(list(group.ops)):
        members = group.members
        if op.name != "mir.reshape" or any(identity(use.owner) in members for use in op.results[0].uses):
            continue
        group.ops.remove(op)
        op.move_after(group.ops[-1])


def _is_view(view: ir.AnyOp, dims: dict[ir.Value, Dims]) -> bool:
    """Whether the operation needs no kernel: a constant is part of those that read it, a reshape a view of memory.

    A reshape whose result is as large as its operand only where a call gives sizes that fit isn't: memory is planned
    for the largest sizes of each value, which needn't fit each other.
    """
    if isinstance(view, mir.ReshapeOp):
        fits = is_never_negative(product(dims[view.x]) - product(dims[view.result]))
        return fits and producer(view.x, mir.ConstantOp) is None
    return isinstance(view, mir.ConstantOp)


def _reads(op: ir.AnyOp, group: Group) -> bool:
    """Whether the operation reads what the group computes."""
    members = group.members
    return any(not isinstance(v.owner, ir.Block) and identity(v.owner) in members for v in op.operands)


#: Classes of kernels of one operation, and the operations whose kernels are of these.
_OF_ONE: dict[type[ir.OpView], str] = {
    operation: kind
    for kind, operations_of_kind in (
        ("attention", (mir.AttentionOp,)),
        ("quantize", (mir.BlockQuantizeOp,)),
        ("recurrence", (mir.GatedDeltaNetOp,)),
        ("state_space", (mir.SelectiveScanOp,)),
        ("top_k", (mir.TopKOp,)),
        ("gather", (mir.GatherOp,)),
        ("move", (mir.TransposeOp, mir.NarrowOp, mir.SliceOp, mir.ConcatOp, mir.ExpandOp)),
        ("broadcast", (mir.IotaOp,)),
        (OWN, (mir.CustomOp,)),
        ("conv2d", (mir.ConvOp,)),
        ("pool", (mir.PoolOp,)),
        ("solve", (mir.DenseSolveOp, mir.BatchedDenseSolveOp)),
        ("fft", (mir.FftOp,)),
        ("grouped", (mir.GroupedMatmulOp, mir.DequantGroupedMatmulOp, mir.GroupedBlockDotOp)),
        ("loss", (mir.SoftmaxCrossEntropyWithLogitsOp, mir.SoftmaxCrossEntropyBackwardOp)),
        ("q_matmul", (mir.QMatmulOp,)),
        ("reduce", (mir.ReduceOp,)),
        ("scan", (mir.CumsumOp,)),
        ("norm", (mir.RmsNormOp, mir.LayerNormOp, mir.SoftmaxOp)),  # along another axis than the last
        ("group_norm", (mir.GroupNormOp,)),
    )
    for operation in operations_of_kind
}


def _single_class(view: ir.AnyOp) -> str:
    if isinstance(view, mir.CacheUpdateOp) and view.scheme is not None and is_in_place(view.cache, view.result):
        return "cache"
    if isinstance(view, mir.SampleOp) and is_in_place(view.chosen, view.chosen_out):
        return "sample"
    return "broadcast" if view.operation.name in BROADCASTS else _OF_ONE.get(type(view), GENERIC)


def _depthwise(op: ir.AnyOp) -> list[ir.AnyOp]:
    """A convolution of each channel along a sequence, with the operations that move [B, S, C] there and back.

    Empty where it is another convolution, or something else reads what is in between.
    """
    view = op.opview
    channels, *kernel = shape_of(view.weight)
    groups, stride, padding, dilation = (
        python_value(a) for a in (view.groups, view.stride, view.padding, view.dilation)
    )
    if kernel[:2] != [1, 1] or groups != channels or [*stride, *padding, *dilation] != [1, 1, 0, 0, 1, 1]:
        return []
    row = producer(view.x, mir.ReshapeOp)
    turned = producer(row.x, mir.TransposeOp) if row is not None else None
    flat = only_user(view.result)
    back = only_user(flat.result) if isinstance(flat, mir.ReshapeOp) else None
    if turned is None or not isinstance(back, mir.TransposeOp):
        return []
    if only_user(row.result) is None or only_user(turned.result) is None:
        return []
    if any(list(python_value(t.permutation)) != [0, 2, 1] for t in (turned, back)):
        return []
    # [B, C, S] as [B, C, 1, S], and the other way: where the batch stays, so does the rest.
    image, line, result = shape_of(view.x), shape_of(turned.result), shape_of(flat.result)
    if len(line) != 3 or len(result) != 3 or image[1:3] != [channels, 1] or {line[1], result[1]} != {channels}:
        return []
    for reshape, before, after in ((row, line, image), (flat, shape_of(view.result), result)):
        if python_value(reshape.new_shape)[0] != -2 and (before[0] < 0 or before[0] != after[0]):
            return []
    return [member.operation for member in (turned, row, view, flat, back)]


def _spectrum(op: ir.AnyOp, ops: Sequence[ir.Operation]) -> list[ir.AnyOp]:
    """A transform of real rows, with the zeros that are joined to them and the parts that are read.

    Empty where it is another one, or of lengths that vectors don't divide.
    """
    block = producer(op.opview.x, mir.ConcatOp)
    if block is None or len(block.inputs) != 2 or only_user(block.result) is None:
        return []
    row, zeros = block.inputs
    length = shape_of(row)[-1]
    if length != shape_of(zeros)[-1] or length % 8 or length < 32 or radices(length) is None:
        return []
    filled = producer(zeros, mir.ExpandOp)
    if filled is not None and only_user(zeros) is None:
        return []
    constant = producer(zeros if filled is None else filled.x, mir.ConstantOp)
    value = None if constant is None else constant.value
    if value is None or not value.is_splat or float(value.get_splat_value().value) != 0:
        return []
    parts = _parts_of(op.results[0], length)
    members = [*(own.operation for own in (filled, block) if own is not None), op, *parts]
    return members if parts and _stand_together(members, ops) else []


def _parts_of(spectrum: ir.Value, length: int) -> list[ir.Operation]:
    """The parts that everything reads of real parts and imaginary ones: empty where something reads both."""
    found: list[ir.Operation] = []
    waiting = [(spectrum, 0, 2 * length)]
    while waiting:
        value, start, size = waiting.pop(0)
        users = [use.owner for use in value.uses]
        narrows = [user for user in users if user.name == "mir.narrow" and _is_of_rows(user.opview)]
        if start // length != (start + size - 1) // length and len(narrows) != len(users):
            return []
        found += narrows
        for view in (user.opview for user in narrows):
            waiting.append((view.result, start + int(python_value(view.start)), int(python_value(view.length))))
    return found


def _is_of_rows(view: mir.NarrowOp) -> bool:
    return python_value(view.axis) in (-1, len(shape_of(view.x)) - 1)


def _stand_together(members: Sequence[ir.AnyOp], ops: Sequence[ir.Operation]) -> bool:
    """Whether operations of one block can be one kernel, which stands where the last of them does."""
    order = {identity(op): number for number, op in enumerate(ops)}
    own = {identity(op) for op in members}
    if not own <= set(order):
        return False
    last = max(order[member] for member in own)
    readers = {identity(use.owner) for op in members for value in op.results for use in value.uses} - own
    return all(order.get(reader, last) >= last for reader in readers)


def _gather_with_followers(op: ir.AnyOp, taken: set[int]) -> list[ir.AnyOp]:
    """A gather, and the pointwise operations that only it feeds, where entries are rows of the result."""
    table = op.operands[0]
    packed = packing(table.type) is not None
    rows = packed or python_value(op.opview.axis) == len(shape_of(table)) - 2
    floating = str(ir.RankedTensorType(op.results[0].type).element_type) in IN_F32
    return [op, *(followers(op.results[0], taken) if rows and floating else [])]


def _with_condition(op: ir.AnyOp, taken: set[int]) -> list[ir.AnyOp]:
    """A choice, and what makes its operands, in order, where only it reads them and their shape is the result's."""
    found = [op]
    for value in op.operands:
        owner = value.owner
        if isinstance(owner, ir.Block) or owner.name not in BROADCASTS or identity(owner) in taken:
            continue
        if only_user(value) is not None and shape_of(value) == shape_of(op.results[0]):
            found.insert(0, owner.operation)
    return found


def _convolution(conv: mir.ConvOp, taken: set[int], dims: Mapping[ir.Value, Dims]) -> list[ir.AnyOp]:
    """A convolution, what puts panels of its weights in order, and the pointwise operations that only it feeds."""
    constant = any(producer(value, mir.ConstantOp) is not None for value in (conv.x, conv.weight))
    alone = constant or why_no_template(conv)
    after = [] if alone else followers(conv.result, taken, fits_images(dims))
    return [*panels_of(conv), conv.operation, *after]


def _is_row_wise(view: ir.AnyOp) -> bool:
    """Whether the operation, with these attributes and shapes, works on one row at a time."""
    name, result = view.operation.name, view.operation.results[0]
    shape = shape_of(result)
    if not shape or shape[-1] < 0:
        return False
    last = (-1, len(shape) - 1)
    if name in BINARY:
        return all(shape_of(v) == shape or shape_of(v) == shape[-1:] or _one(v) for v in view.operation.operands)
    if isinstance(view, mir.RmsNormOp | mir.LayerNormOp | mir.SoftmaxOp):
        return python_value(view.axis) in last
    if isinstance(view, mir.NarrowOp):
        return python_value(view.axis) in last
    if isinstance(view, mir.CacheUpdateOp):
        return view.scheme is None and is_in_place(view.cache, view.result)
    return True


def _one(value: ir.Value) -> bool:
    return all(size == 1 for size in shape_of(value))
