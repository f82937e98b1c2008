# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Outputs that are tied to arguments: whether the memory of an argument can hold a result, and what makes it so.

A tie is a promise that a call which donates the argument finds the result in its memory. It holds where the argument
dies at the kernel that writes the result: no later call reads it, and the kernel itself reads an element before it
writes it, in the same place. That follows from the kernel's MIR: the operations that make the result, and those that
read the argument, are element-wise, and what they read of it goes into the result, index by index; others of the kernel
have to do with neither. Code of every kind keeps to that: a thread loads what one element of a result needs before it
stores it, and loops without a template do so in the order of the operations. A gated delta rule goes from the argument
to the result column by column.

Outlining cuts kernels such that ties hold where the graph admits them, and moves what writes a result behind the last
reader of its argument. Planning memory refuses the ties that are left over, each with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.errors import CompileError, UnsupportedError
from rlx_mlir.locations import describe_operation
from rlx_mlir.lowering.groups import BROADCASTS, Group
from rlx_mlir.mir.control import REGIONS
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.packed import packing
from rlx_mlir.mir.registry import result_dims
from rlx_mlir.rewriting import identity, operations
from rlx_mlir.runtime.artifact import BufferSpec, Call
from rlx_mlir.semantics import function as semantics
from rlx_mlir.semantics.dims import Dims, propagate
from rlx_mlir.semantics.function import viewed


@dataclass(frozen=True)
class Tie:
    """An output, and the argument whose memory it takes.

    Attributes:
        number, output: of the output, and its name.
        value: what the function returns for it.
        argument, name: the argument, and its name.
    """

    number: int
    output: str
    value: ir.Value
    argument: ir.Value
    name: str

    def refused(self, reason: str) -> UnsupportedError:
        """The error that the tie doesn't hold."""
        return UnsupportedError(
            f"output '{self.output}' can't take the memory of '{self.name}', to which it is tied: {reason}"
        )


def ties_of(entry: ir.AnyOp) -> list[Tie]:
    """The ties of the entry function; CompileError where its text names what isn't there."""
    function = entry.operation
    if not (by_output := semantics.ties(function)):
        return []
    arguments = {own.name: own.index for own in semantics.arguments(function)}
    outputs = {own.name: own.index for own in semantics.results(function)}
    returned = semantics.terminator(function).operands
    found = []
    for output, name in by_output.items():
        if output not in outputs or name not in arguments:
            what = f"output '{output}'" if output not in outputs else f"argument '{name}'"
            raise CompileError(f"output '{output}' is tied to '{name}', but there is no {what}")
        value, argument = returned[outputs[output]], semantics.body(function).arguments[arguments[name]]
        found.append(Tie(outputs[output], output, value, argument, name))
    return sorted(found, key=lambda tie: tie.number)


def check_packed(entry: ir.AnyOp) -> None:
    """Raises UnsupportedError where the function returns a packed weight other than a parameter that is tied to itself.

    No operation makes packed values at run time: weights are packed when parameters are set.
    """
    function = entry.operation
    unchanged = {tie.number for tie in ties_of(entry) if viewed(tie.value) == tie.argument}
    for own in semantics.results(function):
        if own.index not in unchanged and packing(own.type) is not None:
            raise UnsupportedError(
                f"output '{own.name}' is a packed weight, but no operation makes packed values at run time: a packed "
                "parameter is returned tied to itself, or not at all"
            )


#: Attribute of a kernel's results that overwrite an argument: its number for each result, -1 for none.
TIED = "mir.tied_arguments"

#: What reads and writes memory once kernels are outlined.
_RUNS = frozenset({"func.call"}) | REGIONS


# -- within a kernel --------------------------------------------------------------------------------------------------


def _owner(value: ir.Value) -> int:
    """The identity of the operation that computes a value; 0 for an argument."""
    return 0 if isinstance(value.owner, ir.Block) else identity(value.owner)


def _slice(ops: Sequence[ir.AnyOp], value: ir.Value) -> set[int]:
    """The operations among these that a value is computed by."""
    needed = {_owner(value)}
    for op in reversed(ops):
        if identity(op) in needed:
            needed |= {_owner(operand) for operand in op.operands}
    return needed & {identity(op) for op in ops}


def _dependents(ops: Sequence[ir.AnyOp], first: set[int]) -> set[int]:
    """Some operations, and those among `ops` that read what these compute."""
    found = set(first)
    for op in ops:
        if any(_owner(operand) in found for operand in op.operands):
            found.add(identity(op))
    return found


def _unsafe(
    ops: Sequence[ir.AnyOp], given: Callable[[ir.Value], bool], result: ir.Value, dims: Mapping[ir.Value, Dims]
) -> tuple[ir.AnyOp, str] | None:
    """The operation for which a kernel can't write a result to memory that it reads, and why; None where it can.

    Args:
        ops: of the kernel, in order.
        given: whether a value is that memory.
        result: what is written to it.
        dims: of all values.
    """
    if [op.name for op in ops[:-1]] in ([], ["mir.constant"]) and _carries_on(ops[-1].opview, given, result):
        return None
    needed = _slice(ops, result)
    carried: set[int] = set()  # what has elements of the memory in it
    for op in ops:
        if op.name == "mir.constant":
            continue
        reads = any(given(operand) for operand in op.operands)
        depends = reads or any(_owner(operand) in carried for operand in op.operands)
        if op.name not in BROADCASTS and (depends or identity(op) in needed):
            return op, "reads or writes elements in other places than its kernel writes the result to"
        if reads and identity(op) not in needed:
            return op, "may read it after the result is there, in one kernel"
        if depends:
            carried.add(identity(op))
            own = [operand for operand in op.operands if given(operand) or _owner(operand) in carried]
            if any(dims[value] != dims[result] for value in (*own, *op.results)) and identity(op) in needed:
                return op, "reads one element of it for several of the result"
    return None


def _carries_on(op: ir.AnyOp, given: Callable[[ir.Value], bool], result: ir.Value) -> bool:
    """Whether a kernel is a recurrence whose last state is written to the memory of its first.

    Code of every kind takes a column from its first state to its last before it writes that, or reads each element of
    a column before it writes it, and columns don't depend on each other; of a selective scan, channels are columns.
    """
    if not isinstance(op, mir.GatedDeltaNetOp | mir.SelectiveScanOp) or op.state is None or result != op.state_out:
        return False
    return given(op.state) and not any(given(other) for other in op.operands if other != op.state)


# -- outlining --------------------------------------------------------------------------------------------------------


def separate(entry: ir.AnyOp, groups: list[Group], single: Callable[[ir.AnyOp], Group]) -> list[Group]:
    """Cuts groups that read an argument and write a result to its memory, where a kernel of the whole couldn't.

    What is element-wise at their end becomes a kernel of its own.

    Args:
        entry: the function, whose operations move with the kernels that they become part of.
        groups: in the order of their last operations.
        single: the group of one operation.

    Returns the groups in that order.
    """
    found = list(groups)
    if not (ties := ties_of(entry)):
        return found
    dims = propagate(entry.operation)
    holders = {member: group for group in found for member in group.members}
    for tie in ties:
        result = viewed(tie.value)
        group = holders.get(_owner(result))
        if group is None:
            continue
        cut = _Cut(group, result, tie.argument, dims)
        if cut.is_needed:
            number = next(n for n, other in enumerate(found) if other is group)
            found[number : number + 1] = parts = cut.apply(single)
            holders.update({member: part for part in parts for member in part.members})
    return found


class _Cut:
    """A group whose end is to be a kernel of its own."""

    def __init__(self, group: Group, result: ir.Value, argument: ir.Value, dims: Mapping[ir.Value, Dims]) -> None:
        self._group, self._result, self._argument, self._dims = group, result, argument, dims
        self._members = group.members

    def _is_given(self, value: ir.Value) -> bool:
        return viewed(value) == self._argument and _owner(value) not in self._members

    @property
    def is_needed(self) -> bool:
        """Whether the group reads the argument, and can't write to its memory."""
        ops = self._group.ops
        return any(self._is_given(operand) for op in ops for operand in op.operands) and (
            _unsafe(ops, self._is_given, self._result, self._dims) is not None
        )

    def _last(self) -> set[int]:
        """The operations to cut off: element-wise ones that read the argument for the result, and those after them.

        An operation of another kind is cut off by itself, where it doesn't read the argument. Empty where none can be.
        """
        ops, needed = self._group.ops, _slice(self._group.ops, self._result)
        chosen: set[int] = set()
        for op in reversed(ops):
            users = {identity(use.owner) for value in op.results for use in value.uses} & needed
            fits = op.name in BROADCASTS and self._dims[op.results[0]] == self._dims[self._result]
            if identity(op) in needed and fits and users <= chosen:
                chosen.add(identity(op))
        maker = self._result.owner
        if not chosen and not any(self._is_given(operand) for operand in maker.operands):
            return {identity(maker)}
        rest = [op for op in ops if identity(op) in chosen]
        readers = {identity(op) for op in rest if any(self._is_given(operand) for operand in op.operands)}
        return (_dependents(rest, readers) | {_owner(self._result)}) & chosen

    def apply(self, single: Callable[[ir.AnyOp], Group]) -> list[Group]:
        """The groups in its place: what comes before, what computes the result, and what reads that."""
        ops, last = list(self._group.ops), self._last()
        behind = _dependents(ops, last) - last if last else set()
        parts = [
            [op for op in ops if identity(op) not in last | behind],
            [op for op in ops if identity(op) in last],
            [op for op in ops if identity(op) in behind],
        ]
        if not last or all(op.name == "mir.reshape" for op in parts[0]):
            return [self._group]
        anchor = _next(ops[-1])
        for op in (op for part in parts for op in part):
            op.move_before(anchor)
        return [group for number, part in enumerate(parts) for group in self._grouped(part, number == 0, single)]

    def _grouped(self, ops: list[ir.AnyOp], is_first: bool, single: Callable[[ir.AnyOp], Group]) -> list[Group]:
        """The groups of one part: rows stay together, and the first part what it was where it has one result."""
        members = {identity(op) for op in ops}
        given = [v for op in ops for v in op.results if any(identity(use.owner) not in members for use in v.uses)]
        if self._group.kind == "rows" or (is_first and len(given) == 1):
            views = [op for op in ops if op.name == "mir.reshape" and op.results[0] in given]
            own = [op for op in ops if op not in views]
            return [Group(self._group.kind, own)] if own else []
        return [single(op) for op in ops if op.name != "mir.reshape"]


def _next(op: ir.AnyOp) -> ir.AnyOp:
    """The operation after one that isn't a block's last."""
    listed = list(op.operation.block.operations)
    return listed[1 + next(number for number, other in enumerate(listed) if identity(other) == identity(op))]


def sink_writers(entry: ir.AnyOp) -> None:
    """Moves calls that write tied outputs behind the last call that reads the argument, where that doesn't need them.

    Run on a function of calls and views.
    """
    ties = ties_of(entry)
    ops = list(operations(entry, nested=False))
    for _ in ties:  # What moves for one tie may read the argument of another.
        moved = False
        places = {identity(op): number for number, op in enumerate(ops)}
        for tie in ties:
            if _sink(ops, places, tie):
                moved = True
                ops = list(operations(entry, nested=False))
                places = {identity(op): number for number, op in enumerate(ops)}
        if not moved:
            break


def _sink(ops: Sequence[ir.AnyOp], places: Mapping[int, int], tie: Tie) -> bool:
    """Moves the call of one tie; whether it did.

    Args:
        ops: of the function, its return the last one.
        places: of each by its identity.
    """
    result, readers_of = viewed(tie.value), _calls_of(tie.argument)
    if isinstance(result.owner, ir.Block) or readers_of <= {_owner(result)}:
        return False
    first = places[_owner(result)]
    readers = [n for n in (places[reader] for reader in readers_of) if n > first and ops[n].name in _RUNS]
    if not readers:
        return False
    segment = ops[first : max(readers) + 1]
    behind = _dependents(segment, {_owner(result)})
    if any(identity(ops[number]) in behind for number in readers):
        return False
    anchor = ops[max(readers) + 1]
    for op in segment:
        if identity(op) in behind:
            op.move_before(anchor)
    return True


def _calls_of(value: ir.Value) -> set[int]:
    """The calls that read a value, or a view of it."""
    found: set[int] = set()
    for use in value.uses:
        owner = use.owner.operation
        if owner.name != "mir.reshape":
            found.add(identity(owner))
        elif use.operand_number == 0:
            found |= _calls_of(owner.results[0])
    return found


# -- planning ---------------------------------------------------------------------------------------------------------


def donated(
    entry: ir.AnyOp,
    kernels: Mapping[str, ir.AnyOp],
    roots: Mapping[ir.Value, ir.Value],
    dims: Mapping[ir.Value, tuple[Size, ...]],
) -> dict[int, ir.Value]:
    """By the numbers of outputs, the arguments whose memory they take; those that kernels update in place are no part.

    Args:
        entry: the function, of calls and views.
        kernels: by name.
        roots: of each value, what it is a view of; of what a kernel updates in place, the argument.
        dims: of each value.

    Raises UnsupportedError, with the reason, where a tie doesn't hold.
    """
    ties = ties_of(entry)
    if not ties:
        return {}
    returned = list(semantics.terminator(entry.operation).operands)
    names = [own.name for own in semantics.results(entry.operation)]
    taken = {roots[value]: name for value, name in zip(returned, names, strict=True)}
    calls = [op for op in operations(entry, nested=False) if op.name in _RUNS]
    readers: dict[ir.Value, set[int]] = {}
    for number, call in enumerate(calls):
        for operand in call.operands:
            readers.setdefault(roots[operand], set()).add(number)
    others = [tie for tie in ties if roots[tie.value] != tie.argument]
    for tie in others:
        if tie.argument in taken:
            raise tie.refused(f"output '{taken[tie.argument]}' has it")
        taken[tie.argument] = tie.output
    for tie in others:
        root = roots[tie.value]
        if isinstance(root.owner, ir.Block):
            other = semantics.arguments(entry.operation)[ir.BlockArgument(root).arg_number]
            raise tie.refused(f"it is an update of '{other.name}', in place")
        if tie.value.type != tie.argument.type or dims[tie.value] != dims[tie.argument]:
            raise tie.refused(f"it is {_shown(tie.value, dims)}, but '{tie.name}' is {_shown(tie.argument, dims)}")
        _check(tie, root, calls, readers, kernels, roots, dims)
    return {tie.number: tie.argument for tie in others}


def _shown(value: ir.Value, dims: Mapping[ir.Value, tuple[Size, ...]]) -> str:
    sizes = ", ".join(map(str, dims[value]))
    return f"[{sizes}] of {ir.RankedTensorType(value.type).element_type}"


def _check(
    tie: Tie,
    root: ir.Value,
    calls: Sequence[ir.AnyOp],
    readers: Mapping[ir.Value, set[int]],
    kernels: Mapping[str, ir.AnyOp],
    roots: Mapping[ir.Value, ir.Value],
    dims: Mapping[ir.Value, tuple[Size, ...]],
) -> None:
    """Raises UnsupportedError where something reads the argument after the result is written, or while it is.

    `readers` are the numbers of the calls that read each root.
    """
    call = root.owner.operation
    number = calls.index(call)
    for at in sorted(readers.get(tie.argument, ())):
        if at > number:
            places = [i for i, operand in enumerate(calls[at].operands) if roots[operand] == tie.argument]
            raise tie.refused(_late_reader(tie, calls[at], kernels, places))
    if call.name in REGIONS:
        if any(roots[operand] == tie.argument for operand in call.operands):
            raise tie.refused(f"{describe_operation(call)} may read it after a step has written the result")
        return
    kernel = kernels[python_value(call.attributes["callee"])]
    read = [a for a, operand in zip(kernel.arguments, call.operands, strict=True) if roots[operand] == tie.argument]
    if not read:
        return
    *ops, end = operations(kernel, nested=False)
    result = next(own for own, value in zip(end.operands, call.results, strict=True) if value == root)
    inner = dict(zip(kernel.arguments, (dims[operand] for operand in call.operands), strict=True))
    for op in ops:
        inner.update(zip(op.results, result_dims(op.opview, [inner[v] for v in op.operands]), strict=True))
    problem = _unsafe(ops, read.__contains__, result, inner)
    if problem is not None:
        op, why = problem
        raise tie.refused(f"{describe_operation(op)} {why}")


def _late_reader(tie: Tie, call: ir.AnyOp, kernels: Mapping[str, ir.AnyOp], places: Sequence[int]) -> str:
    """What reads an argument after its memory has the result."""
    if call.name in REGIONS:
        return f"{describe_operation(call)} reads '{tie.name}' after the result is there"
    kernel = kernels[python_value(call.attributes["callee"])]
    *ops, _ = operations(kernel, nested=False)
    read = [kernel.arguments[at] for at in places]
    reader = next(op for op in ops if any(operand in read for operand in op.operands))
    function = call.operation.parent
    copied = len(ops) == 1 and len(reader.operands) == 1 and reader.results[0].type == reader.operands[0].type
    if copied and reader.name in ("mir.concat", "mir.expand"):
        outputs = zip(semantics.results(function), semantics.terminator(function).operands, strict=True)
        names = [own.name for own, value in outputs if viewed(value) == call.results[0]]
        if names:
            return f"output '{names[0]}' is '{tie.name}' as it was given"
    return f"{describe_operation(reader)} reads '{tie.name}' after the result is there"


# -- reading a plan ---------------------------------------------------------------------------------------------------


def updated_by(kernel: ir.AnyOp, buffers: Sequence[tuple[str, int]]) -> set[int]:
    """The outputs that a call of a declared kernel updates in place: it reads them, and writes a part."""
    attributes = kernel.operation.attributes
    if TIED not in attributes:
        return set()
    tied = list(attributes[TIED])
    results = buffers[len(buffers) - len(tied) :]
    return {number for (kind, number), own in zip(results, tied, strict=True) if own >= 0 and kind == "output"}


def mark_updated(outputs: Sequence[BufferSpec], calls: Sequence[Call], in_place: set[int]) -> list[BufferSpec]:
    """The outputs of a plan, with those marked that start as the argument to which they are tied.

    They are those that calls update in place, and those that no call writes.
    """
    used = {number for _, buffers, *_ in calls for kind, number, *_ in buffers if kind == "output"}
    return [
        replace(spec, updated=spec.tied is not None and (number in in_place or number not in used))
        for number, spec in enumerate(outputs)
    ]
