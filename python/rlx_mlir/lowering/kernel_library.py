# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels of a module: groups of operations become functions, and equal groups one."""

from __future__ import annotations

from operator import itemgetter

from mlir.dialects import func

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.kernel_classes import GENERIC, OWN
from rlx_mlir.lowering.donation import TIED
from rlx_mlir.lowering.functions import CLASS, KERNEL, ROLE
from rlx_mlir.lowering.fuse import producer
from rlx_mlir.lowering.groups import Group
from rlx_mlir.lowering.in_place import is_in_place, is_overwritten
from rlx_mlir.lowering.parameters import fill_function
from rlx_mlir.rewriting import identity
from rlx_mlir.semantics.function import symbols_in

#: Classes whose kernels may write a result into the memory of an operand.
_TIED = ("rows", "cache", "sample", GENERIC)


class KernelLibrary:
    """The kernels of a module by what they hold."""

    def __init__(self, module: ir.Operation) -> None:
        self._block = module.regions[0].blocks[0]
        self._kernels: dict[object, str] = {}
        self._counts: dict[str, int] = {}
        self._taken = symbols_in(self._block)

    def outline(self, group: Group) -> None:
        """Replaces the group's operations by a call of their kernel."""
        members = group.members
        inputs: dict[ir.Value, None] = {}
        constants: dict[int, ir.AnyOp] = {}
        for op in group.ops:
            for value in op.operands:
                owner = value.owner
                if not isinstance(owner, ir.Block):
                    if identity(owner) in members:
                        continue
                    if owner.name == "mir.constant":
                        constants[identity(owner)] = owner
                        continue
                inputs[value] = None
        outputs = [
            result
            for op in group.ops
            for result in op.results
            # A function that is called gives all of its results, whether they are read or not.
            if group.kind == OWN or any(identity(use.owner) not in members for use in result.uses)
        ]
        last = group.ops[-1]
        with last.location:
            kernel = self._build(group, [*constants.values(), *group.ops], list(inputs), outputs)
            with ir.InsertionPoint(last):
                call = func.CallOp([v.type for v in outputs], kernel, list(inputs))
        for old, new in zip(outputs, call.operation.results, strict=True):
            old.replace_all_uses_with(new)
        for op in reversed(group.ops):
            op.erase()

    def _build(self, group: Group, ops: list[ir.AnyOp], inputs: list[ir.Value], outputs: list[ir.Value]) -> str:
        """The name of a kernel of the operations: an existing one that is identical, or a new one."""
        tied = [_tied_argument(v, inputs) for v in outputs] if group.kind in _TIED else []
        content = (group.kind, tuple(tied), _content(ops, inputs, outputs))
        if content in self._kernels:
            return self._kernels[content]
        kind = ir.FunctionType.get([v.type for v in inputs], [v.type for v in outputs])
        kernel = func.FuncOp("kernel", kind, visibility="private", ip=ir.InsertionPoint.at_block_begin(self._block))
        attributes = kernel.operation.attributes
        attributes[ROLE] = ir.StringAttr.get(KERNEL)
        attributes[CLASS] = ir.StringAttr.get(group.kind)
        fill_function(ops, inputs, outputs, kernel)
        if any(number >= 0 for number in tied):
            attributes[TIED] = ir.DenseI64ArrayAttr.get(tied)
        name = self._free_name(_stem(group))
        attributes["sym_name"] = ir.StringAttr.get(name)
        self._kernels[content] = name
        return name

    def _free_name(self, stem: str) -> str:
        while True:
            number = self._counts.get(stem, 0)
            self._counts[stem] = number + 1
            if (name := f"{stem}_{number}") not in self._taken:
                return name


def _content(ops: list[ir.AnyOp], inputs: list[ir.Value], outputs: list[ir.Value]) -> tuple[object, ...]:
    """What a kernel of the operations is made of, but for names and locations: identical kernels have equal ones.

    Types and attributes are unique in their context, so comparing them is cheap; printing a kernel is not.
    """
    numbers: dict[ir.Value, int] = {value: number for number, value in enumerate(inputs)}
    described = [_description(op, numbers) for op in ops]
    return tuple(value.type for value in inputs), *described, tuple(numbers[value] for value in outputs)


def _description(op: ir.AnyOp, numbers: dict[ir.Value, int]) -> tuple[object, ...]:
    """What an operation does with values of these numbers; its results get numbers, too."""
    operands = tuple(numbers[value] for value in op.operands)
    types = tuple(result.type for result in op.results)
    attributes = tuple(sorted(op.attributes.items(), key=itemgetter(0)))
    regions = []
    for region in op.regions:
        for block in region.blocks:  # which sees its arguments alone
            inside: dict[ir.Value, int] = {value: number for number, value in enumerate(block.arguments)}
            own = [_description(inner.operation, inside) for inner in block.operations]
            regions.append((tuple(value.type for value in block.arguments), *own))
    for result in op.results:
        numbers[result] = len(numbers)
    return op.name, operands, types, attributes, tuple(regions)


def _tied_argument(value: ir.Value, inputs: list[ir.Value]) -> int:
    if (part := producer(value, mir.DynamicUpdateSliceOp)) is not None:
        return inputs.index(part.x) if is_overwritten(part) else -1
    if (update := producer(value, mir.CacheUpdateOp)) is not None:
        return inputs.index(update.cache) if is_in_place(update.cache, value) else -1
    sample = producer(value, mir.SampleOp)
    overwrites = sample is not None and value == sample.chosen_out and is_in_place(sample.chosen, value)
    return inputs.index(sample.chosen) if overwrites else -1


def _stem(group: Group) -> str:
    """A name that says what the kernel does: its operations, shortened where there are many."""
    if group.kind == OWN:
        return str(python_value(group.ops[0].attributes["op"])).replace(".", "_")
    words = list(dict.fromkeys(op.name.removeprefix("mir.") for op in group.ops if op.name != "mir.reshape"))
    return "_".join(words[:3] or ["reshape"])
