# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What derivatives are built with: the builders of a module, and copies of operations that it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rlx_mlir import ir
from rlx_mlir.attributes import PythonValue
from rlx_mlir.errors import InputError, RlxError
from rlx_mlir.hir.compositions import registry
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.registry import call_arguments
from rlx_mlir.semantics.dims import add_results
from rlx_mlir.unsupported import blame


class Builders(registry.Builders):
    """A module at stage mir, to whose operations others are added; these stand where those came from in the program."""

    def __init__(self, module: ir.Module) -> None:
        super().__init__(module, "mir", "direct")
        self._origins: list[ir.Operation] = []
        self._recorded: list[tuple[ir.Block, list[ir.Operation]]] = []
        self._places: list[ir.Operation | None] = []
        self._replaced: dict[ir.Value, ir.Value] = {}

    @contextmanager
    def stemming_from(self, op: ir.Operation) -> Iterator[None]:
        """What is built has the location of an operation; errors name it."""
        self._origins.append(op)
        try:
            yield
        except RlxError as error:
            if getattr(error, "blamed", False):
                raise
            blamed = InputError(blame(op, error))
            blamed.blamed = True  # type: ignore[attr-defined]  # operations around it aren't named, too
            raise blamed from error
        finally:
            self._origins.pop()

    @contextmanager
    def recording(self) -> Iterator[list[ir.Operation]]:
        """The operations that are built, in order, but those inside of regions."""
        ops: list[ir.Operation] = []
        self._recorded.append((self._insertion_point.block, ops))
        try:
            yield ops
        finally:
            self._recorded.pop()

    @contextmanager
    def before(self, op: ir.Operation) -> Iterator[None]:
        """What is built stands before an operation, so that what stands after that may read it."""
        self._places.append(op)
        try:
            yield
        finally:
            self._places.pop()

    @contextmanager
    def _inside(self, block: ir.Block) -> Iterator[None]:
        self._places.append(None)
        try:
            with super()._inside(block):
                yield
        finally:
            self._places.pop()

    @property
    def _insertion_point(self) -> ir.InsertionPoint:
        place = self._places[-1] if self._places else None
        return super()._insertion_point if place is None else ir.InsertionPoint(place)

    def _depth(self, handle: ir.Value) -> int | None:
        return super()._depth(handle) if self._stands_before(handle) else None

    def _stands_before(self, handle: ir.Value) -> bool:
        """Whether a value is computed before the places where operations are added now."""
        if isinstance(handle, ir.BlockArgument):
            return True
        op = ir.OpResult(handle).owner.operation
        places = [place for place in self._places if place is not None and place.block == op.block]
        return all(op.is_before_in_block(place) for place in places)

    def replace_results(self, op: ir.Operation, values: Sequence[Value]) -> None:
        """Lets everything read other values in place of an operation's results; nothing reads these any more."""
        for result, value in zip(op.results, values, strict=True):
            new = self._read(value)
            result.replace_all_uses_with(new)
            self._replaced[result] = new

    def latest(self, handle: ir.Value) -> ir.Value:
        """What is read in place of a value by now."""
        while handle in self._replaced:
            handle = self._replaced[handle]
        return handle

    def current(self, values: Sequence[Value]) -> list[Value]:
        """What is read in place of values by now."""
        return [self._value(self.latest(self._resolve(value))) for value in values]

    def _note(self, op: ir.Operation) -> None:
        if self._origins:
            op.location = self._origins[-1].location
        for block, ops in self._recorded:
            if block == op.block:
                ops.append(op)

    def _emit(self, *given: PythonValue, **options: PythonValue) -> tuple[Value, ...]:
        made = super()._emit(*given, **options)
        self._note(ir.OpResult(made[0]._handle).owner.operation)
        return made

    def copied(self, op: ir.Operation, operands: Sequence[Value]) -> tuple[Value, ...]:
        """An operation once more, of other operands of the same types; its regions are copied, too."""
        with self._insertion_point:
            copy = op.clone().operation
        for number, operand in enumerate(operands):
            copy.operands[number] = self._read(operand)
        add_results(copy, self._all_dims())
        self._note(copy)
        return tuple(self._value(result) for result in copy.results)

    def rebuilt(self, op: ir.Operation, operands: Sequence[Value], **changes: object) -> tuple[Value, ...]:
        """An operation once more, of other operands, of any types: those of its results are inferred.

        Args:
            op: without regions.
            operands: one for each of its operands.
            changes: attributes that are others, by ODS name.
        """
        attributes = {name: op.attributes[name] for name in op.attributes if name != "operandSegmentSizes"}
        values = call_arguments(op, [self._read(operand) for operand in operands])[0]
        with self._context, op.location, self._insertion_point:
            built = type(op.opview).build_generic(
                operands=values, attributes=attributes | self._attributes(changes), results=None
            )
            built.operation.verify()
        add_results(built.operation, self._all_dims())
        self._note(built.operation)
        return tuple(self._value(result) for result in built.operation.results)

    def replayed(self, block: ir.Block, values: Sequence[Value]) -> tuple[list[ir.Operation], list[Value]]:
        """The operations of a region once more, and what its terminator gives.

        Args:
            block: of the region.
            values: what stands for its arguments.
        """
        known: dict[ir.Value, Value] = dict(zip(block.arguments, values, strict=True))
        *inner, end = [each.operation for each in block.operations]
        return self.copies(inner, known), [known[operand] for operand in end.operands]

    def copies(self, ops: Sequence[ir.Operation], known: dict[ir.Value, Value]) -> list[ir.Operation]:
        """Operations once more.

        Args:
            ops: in order.
            known: what stands for each value that they read; what stands for their results is added.
        """
        made = []
        for op in ops:
            results = self.copied(op, [known[operand] for operand in op.operands])
            made.append(ir.OpResult(results[0]._handle).owner.operation)
            known.update(zip(op.results, results, strict=True))
        return made

    def values(self, handles: Sequence[ir.Value]) -> list[Value]:
        """Handles of MLIR values."""
        return [self._value(handle) for handle in handles]

    def expression(self, op: str, operands: Mapping[str, object], attributes: Mapping[str, object]) -> Value:
        """The only result of an operation by its name; arguments are as of ODS."""
        return self._emit(op, operands, attributes)[0]
