# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of a planned function: its sizes, its buffers, and its calls, in loops and choices too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import mir
from rlx_mlir.lowering.functions import memref_of
from rlx_mlir.mir.control import REGIONS, steps_of, yielded
from rlx_mlir.mir.dims import Factor, Positive, Size, maximum, product
from rlx_mlir.rewriting import identity


@dataclass(frozen=True)
class RegionPlan:
    """Where an operation with regions stands among calls, and in whose memory what is in it lies.

    Attributes:
        op: the operation.
        first, middle, end: its calls are those from `first` to before `end`; those of the second of two regions start
            at `middle`.
        swapped: by the number of what a loop carries, the root of what a step gives, which has memory of its own: after
            each step the two take turns. What isn't in it is updated in place, or stays as it is.
        given: roots of what regions give, and the results in whose memory they are written.
    """

    op: ir.Operation
    first: int
    middle: int
    end: int
    swapped: dict[int, ir.Value]
    given: list[tuple[ir.Value, ir.Value]]

    @property
    def final(self) -> int:
        """Its last call."""
        return max(self.first, self.end - 1)

    @classmethod
    def of(cls, op: ir.Operation, bounds: tuple[int, int, int], roots: dict[ir.Value, ir.Value]) -> RegionPlan:
        """Of an operation whose regions have been read; adds the roots of its results."""
        view = op.opview
        if isinstance(view, mir.IfOp):
            roots.update((result, result) for result in op.results)
            given = [
                (roots[value], result)
                for region in op.regions
                for value, result in zip(yielded(region), op.results, strict=True)
            ]
            return cls(op, *bounds, {}, given)
        arguments, values, results = list(view.body.blocks[0].arguments), yielded(view.body), list(op.results)
        carried = len(view.inits)
        roots.update((result, roots[init]) for result, init in zip(results, view.inits, strict=False))
        roots.update((result, result) for result in results[carried:])
        swapped = {i: roots[values[i]] for i in range(carried) if roots[values[i]] != arguments[i]}
        given = [(roots[value], result) for value, result in zip(values[carried:], results[carried:], strict=True)]
        return cls(op, *bounds, swapped, given)


class PlanText:
    """Writes a planned function, line by line.

    Args:
        dims: the sizes of each value.
        roots: of each value, what it is a view of.
        regions: what is known of operations with regions, by their identity.

    Attributes:
        names: the buffer of each value; of others, those of their roots are known.
    """

    def __init__(
        self,
        dims: Mapping[ir.Value, tuple[Size, ...]],
        roots: Mapping[ir.Value, ir.Value],
        regions: Mapping[int, RegionPlan],
    ) -> None:
        self._dims, self._roots, self._regions = dims, roots, regions
        self.names: dict[ir.Value, str] = {}
        self._constants: list[str] = []
        self._lines: list[str] = []
        self._before_region: int | None = None
        self._sizes: dict[str, str] = {}
        self._count = 0

    def lines(self) -> list[str]:
        """What was written."""
        return [*self._constants, *self._lines]

    # -- sizes and buffers -------------------------------------------------------------------------------------------

    def bind_symbols(self, argument: ir.Value) -> None:
        """Names the sizes of an argument's dynamic dimensions."""
        for number, size in enumerate(self._dims[argument]):
            if size.constant is None and str(size) not in self._sizes:
                at = self._constant(number)
                name = self._fresh()
                self._lines.append(f"{name} = memref.dim %arg{argument.arg_number}, {at} : {memref_of(argument.type)}")
                self._sizes[str(size)] = name

    def _fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def _constant(self, value: int) -> str:
        name = f"%c{value}"
        if name not in self._sizes:
            self._constants.insert(0, f"{name} = arith.constant {value} : index")
            self._sizes[name] = name
        return name

    def size(self, size: Size) -> str:
        """The SSA value of a size, computed where it is no symbol."""
        if (constant := size.constant) is not None:
            return self._constant(constant)
        if (known := self._sizes.get(str(size))) is not None:
            return known
        total = ""
        for factors, coefficient in size.terms:
            values = [self._factor(own) for own in factors]
            values += [self._constant(coefficient)] if coefficient != 1 else []
            value = values[0] if values else self._constant(coefficient)
            for factor in values[1:]:
                value = self._arith("arith.muli", value, factor)
            total = self._arith("arith.addi", total, value) if total else value
        self._sizes[str(size)] = total
        return total

    def _factor(self, factor: Factor) -> str:
        """The SSA value of a symbol, or of what is computed of another size."""
        if str(factor) not in self._sizes:
            assert not isinstance(factor, str), "symbols are bound"
            op = "arith.maxsi" if isinstance(factor, Positive) else "arith.floordivsi"
            size, number = self.size(factor.size), self._constant(factor.number)
            self._sizes[str(factor)] = self._arith(op, size, number)
        return self._sizes[str(factor)]

    def _arith(self, op: str, lhs: str, rhs: str) -> str:
        """A computation on sizes: of what is in a region before the outermost one, for whatever comes later."""
        name = self._fresh()
        line = f"{name} = {op} {lhs}, {rhs} : index"
        if self._before_region is None:
            self._lines.append(line)
        else:
            self._lines.insert(self._before_region, line)
            self._before_region += 1
        return name

    def _dynamic(self, value: ir.Value) -> list[str]:
        shape = ir.RankedTensorType(value.type).shape
        return [self.size(size) for size, extent in zip(self._dims[value], shape, strict=True) if extent < 0]

    def view(self, value: ir.Value, offset: int) -> str:
        """The value's part of the arena."""
        name = self._fresh()
        sizes = ", ".join(self._dynamic(value))
        at = self._constant(offset)
        self._lines.append(f"{name} = memref.view %arena[{at}][{sizes}] : memref<?xi8> to {memref_of(value.type)}")
        return name

    def recast(self, buffer: str, source: ir.Value, value: ir.Value) -> str:
        """The buffer with the shape of another value of as many elements."""
        sizes = [self.size(size) for size in self._dims[value]]
        strides = [self.size(product(self._dims[value][i + 1 :])) for i in range(len(sizes))]
        shape = ir.RankedTensorType(value.type)
        layout = f"strided<[{', '.join('?' for _ in sizes)}]>"
        dims = "x".join(["?"] * len(sizes) + [str(shape.element_type)])
        cast, name = self._fresh(), self._fresh()
        self._lines.append(
            f"{cast} = memref.reinterpret_cast {buffer} to offset: [0], sizes: [{', '.join(sizes)}], "
            f"strides: [{', '.join(strides)}] : {memref_of(source.type)} to memref<{dims}, {layout}>"
        )
        self._lines.append(f"{name} = memref.cast {cast} : memref<{dims}, {layout}> to {memref_of(value.type)}")
        return name

    def _buffer(self, value: ir.Value) -> str:
        if value not in self.names:
            root = self._roots[value]
            self.names[value] = self.names[root] if value == root else self._reshaped(value, root)
        return self.names[value]

    def is_like(self, value: ir.Value, root: ir.Value) -> bool:
        """Whether a value has the sizes of what it is a view of: equal types leave some open."""
        return value.type == root.type and self._dims[value] == self._dims[root]

    def _reshaped(self, value: ir.Value, root: ir.Value) -> str:
        if self.is_like(value, root):
            return self.names[root]
        return self.recast(self.names[root], root, value)

    def _as(self, buffer: str, source: ir.Value, value: ir.Value) -> str:
        """A buffer of one value's sizes with those of another one."""
        return buffer if self.is_like(value, source) else self.recast(buffer, source, value)

    # -- operations --------------------------------------------------------------------------------------------------

    def block(self, block: ir.Block) -> None:
        """Writes the operations of a block."""
        for op in (op.operation for op in block.operations):
            if op.name == "func.call":
                self._call(op)
            elif op.name in REGIONS:
                self._region(self._regions[identity(op)])

    def _call(self, call: ir.AnyOp) -> None:
        values = [*call.operands, *call.results]
        buffers = ", ".join(self._buffer(value) for value in values)
        types = ", ".join(memref_of(value.type) for value in values)
        callee = python_value(call.attributes["callee"])
        self._lines.append(f"func.call @{callee}({buffers}) : ({types}) -> () {call.location}")

    def _region(self, plan: RegionPlan) -> None:
        is_outermost = self._before_region is None
        if is_outermost:
            self._before_region = len(self._lines)
        kinds = {"mir.if": self._if, "mir.scan": self._for, "mir.while": self._while}
        with self._scope():
            kinds[plan.op.name](plan)
        if is_outermost:
            self._before_region = None

    @contextmanager
    def _scope(self) -> Iterator[None]:
        """Names that are given inside are unknown afterwards: views that stand in a region aren't outside of it."""
        before = dict(self.names)
        yield
        self.names = before

    def _flag(self, value: ir.Value) -> str:
        name = self._fresh()
        self._lines.append(f"{name} = memref.load {self._buffer(value)}[] : memref<i1>")
        return name

    def _if(self, plan: RegionPlan) -> None:
        view = plan.op.opview
        for root, result in plan.given:
            self.names[root] = self._as(self._buffer(result), result, root)
        self._lines.append(f"scf.if {self._flag(view.condition)} {{")
        with self._scope():
            self.block(view.then_region.blocks[0])
        self._lines.append("} else {")
        self.block(view.else_region.blocks[0])
        self._lines.append("}")

    def _for(self, plan: RegionPlan) -> None:
        view = plan.op.opview
        block = view.body.blocks[0]
        carried = len(view.inits)
        steps = steps_of(view, [self._dims[value] for value in plan.op.operands])
        loop, step = self._fresh(), self._fresh()
        pairs = self._pairs(plan)
        count = self.size(steps)
        zero, one = self._constant(0), self._constant(1)
        given = ", ".join(f"{inside} = {outside}" for pair in pairs for inside, outside in pair.arguments)
        types = ", ".join(pair.type for pair in pairs for _ in range(2))
        iterated = f" iter_args({given}) -> ({types})" if pairs else ""
        bound = f"{loop}:{2 * len(pairs)} = " if pairs else ""
        self._lines.append(f"{bound}scf.for {step} = {zero} to {count} step {one}{iterated} {{")
        at = step
        if view.reverse:
            at, last = self._fresh(), self.size(maximum(steps - Size.of(1), Size.of(0)))
            self._lines.append(f"{at} = arith.subi {last}, {step} : index")
        self._enter(plan, list(block.arguments)[:carried], pairs)
        for argument, sequence in zip(list(block.arguments)[carried:], view.xs, strict=False):
            self.names[argument] = self._entry(sequence, at)
        values = yielded(view.body)
        for (root, result), value in zip(plan.given, values[carried:], strict=True):
            self.names[root] = self._as(self._entry(result, at), value, root)
        self.block(block)
        self._leave(loop, pairs)

    def _while(self, plan: RegionPlan) -> None:
        view = plan.op.opview
        cond, body = view.cond.blocks[0], view.body.blocks[0]
        limit = None if view.limit is None else int(python_value(view.limit))
        loop, pairs, counter = self._fresh(), self._pairs(plan), self._fresh()
        zero, one = self._constant(0), self._constant(1)
        bound = self._constant(limit) if limit is not None else ""
        carried = [pair.type for pair in pairs for _ in range(2)] + ["index"]
        types = ", ".join(carried)
        inside = ", ".join(name for pair in pairs for name, _ in pair.arguments)
        given = ", ".join(f"{name} = {outside}" for pair in pairs for name, outside in pair.arguments)
        between = ", " if pairs else ""
        self._lines.append(
            f"{loop}:{len(carried)} = scf.while ({given}{between}{counter} = {zero}) : ({types}) -> ({types}) {{"
        )
        self._enter(plan, list(cond.arguments)[: len(view.inits)], pairs, gives=False)
        with self._scope():
            flag = self._goes_on(cond, counter, bound)
        self._lines += [f"scf.condition({flag}) {inside}{between}{counter} : {types}", "} do {"]
        again = [pair.again(self._fresh(), self._fresh()) for pair in pairs]
        count, following = self._fresh(), self._fresh()
        named = [f"{name}: {pair.type}" for pair in again for name in (pair.current, pair.next)]
        self._lines.append(f"^bb0({', '.join([*named, f'{count}: index'])}):")
        self._enter(plan, list(body.arguments)[: len(view.inits)], again)
        self.block(body)
        self._lines.append(f"{following} = arith.addi {count}, {one} : index")
        self._leave(loop, again, following)

    def _goes_on(self, cond: ir.Block, counter: str, bound: str) -> str:
        """Whether a loop goes on: its condition, which isn't computed any more where it is at its bound."""
        condition = cond.operations[len(cond.operations) - 1].operation.operands[0]
        if not bound:
            self.block(cond)
            return self._flag(condition)
        within, flag, never = self._fresh(), self._fresh(), self._fresh()
        self._lines.append(f"{within} = arith.cmpi slt, {counter}, {bound} : index")
        self._lines.append(f"{flag} = scf.if {within} -> (i1) {{")
        self.block(cond)
        self._lines += [f"scf.yield {self._flag(condition)} : i1", "} else {"]
        self._lines += [f"{never} = arith.constant false", f"scf.yield {never} : i1", "}"]
        return flag

    # -- what loops carry --------------------------------------------------------------------------------------------

    def _pairs(self, plan: RegionPlan) -> list[_Pair]:
        """What takes turns: the memory of what is carried, and that of what a step gives for it."""
        view = plan.op.opview
        arguments = view.body.blocks[0].arguments
        pairs = []
        for number, root in plan.swapped.items():
            carried = arguments[number]
            outside = (self._buffer(view.inits[number]), self._as(self.names[root], root, carried))
            pairs.append(_Pair(memref_of(carried.type), self._fresh(), self._fresh(), outside))
        return pairs

    def _enter(
        self, plan: RegionPlan, arguments: Sequence[ir.Value], pairs: Sequence[_Pair], *, gives: bool = True
    ) -> None:
        """Names what is carried, in a region that has these arguments for it, and what the region gives."""
        inits = plan.op.opview.inits
        for number, argument in enumerate(arguments):
            if number not in plan.swapped:
                self.names[argument] = self._buffer(inits[number])
        for (number, root), pair in zip(plan.swapped.items(), pairs, strict=True):
            self.names[arguments[number]] = pair.current
            if gives:
                self.names[root] = self._as(pair.next, arguments[number], root)

    def _leave(self, loop: str, pairs: Sequence[_Pair], *others: str) -> None:
        """Ends a loop; what it carries ends where it began."""
        values = [*(name for pair in pairs for name in (pair.next, pair.current)), *others]
        types = [*(pair.type for pair in pairs for _ in range(2)), *("index" for _ in others)]
        if values:
            self._lines.append(f"scf.yield {', '.join(values)} : {', '.join(types)}")
        self._lines.append("}")
        for number, pair in enumerate(pairs):
            self._lines.append(f"memref.copy {loop}#{2 * number}, {pair.outside[0]} : {pair.type} to {pair.type}")

    def _entry(self, sequence: ir.Value, at: str) -> str:
        """The entry of a sequence at an index."""
        kind = ir.RankedTensorType(sequence.type)
        entry = ir.RankedTensorType.get(kind.shape[1:], kind.element_type)
        name = self._fresh()
        types = f"{memref_of(kind)} to {memref_of(entry)}"
        self._lines.append(f"{name} = mir.entry_view {self._buffer(sequence)}[{at}] : {types}")
        return name


@dataclass(frozen=True)
class _Pair:
    """Two buffers of a loop that take turns: their names in the loop, and those of the memory around it."""

    type: str
    current: str
    next: str
    outside: tuple[str, str]

    @property
    def arguments(self) -> list[tuple[str, str]]:
        """Each name with what it is at first."""
        return [(self.current, self.outside[0]), (self.next, self.outside[1])]

    def again(self, current: str, following: str) -> _Pair:
        """The same under other names."""
        return _Pair(self.type, current, following, self.outside)
