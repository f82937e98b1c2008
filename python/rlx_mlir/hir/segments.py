# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations by name, blocks in graphs of primitives, and graphs cut into parts that run one after the other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rlx_mlir import checks, ir
from rlx_mlir.attributes import PythonValue
from rlx_mlir.hir import place
from rlx_mlir.hir.edit import Editing, Node
from rlx_mlir.hir.inlining import add_argument
from rlx_mlir.hir.types import ShapeLike
from rlx_mlir.hir.values import Value, ValueOrTuple
from rlx_mlir.semantics.dims import add_results, type_dims
from rlx_mlir.semantics.function import INPUT, PARAM, arguments, body, entry_function, results, terminator
from rlx_mlir.semantics.ops import operation_classes

#: A module, of the class `GraphModule`, which derives from what is here.
AnyGraphModule: TypeAlias = Any


class Segments(Editing):
    """The builders and edits; what they need of a module is abstract here."""

    @classmethod
    @abstractmethod
    def _empty(cls, name: str, stage: str, policy: str, context: ir.Context | None = None) -> AnyGraphModule: ...

    def append_node(
        self,
        op: str,
        operands: Mapping[str, Value | Sequence[Value] | None],
        attributes: Mapping[str, object] | None = None,
        *,
        results: Sequence[str] | None = None,
        name: str | None = None,
        shape: ShapeLike | None = None,
    ) -> tuple[Value, ...]:
        """Any operation by its name, as its ODS has it; what each one takes is in docs/mir.md and docs/hir.md.

        Args:
            op: such as `mir.softmax`.
            operands: by ODS name; a sequence for a variadic one.
            attributes: by ODS name: numbers, lists of integers, True for a unit attribute, and text of MLIR for others,
                such as `#mir<reduce_kind max>`.
            results: types of the results as text, for operations that can't infer them.
            name: of the block that it belongs to.
            shape: what the first result's shape is believed to be.

        Gives its results. Raises BuildError where there is no such operation, or a rule of it is broken.
        """
        here = place.caller()
        if not isinstance(op, str) or op not in operation_classes():
            raise here.error(f"there is no operation {checks.shown(op)}")
        with place.checking(f"'{op}'"):
            checks.mapping("operands", operands)
            checks.mapping("attributes", {} if attributes is None else attributes)
            results = None if results is None else checks.names("results", results)
        given = {key: self._attribute_of(op, key, value) for key, value in (attributes or {}).items()}
        try:
            types = [ir.Type.parse(text, self._context) for text in results or ()]
        except (ir.MLIRError, ValueError):
            raise here.error(f"'{op}': 'results' are types of MLIR as text, but got {list(results or ())}") from None
        made: ir.Type | list[ir.Type] | None = types[0] if len(types) == 1 else types or None
        return self._emit(op, operands, given, name=name, shape=shape, result=made)

    def _attribute_of(self, op: str, name: str, value: object) -> object:
        """An attribute from a Python value; others than text are `_emit`'s to convert."""
        if isinstance(value, str):
            try:
                return ir.Attribute.parse(value, self._context)
            except (ir.MLIRError, ValueError):
                raise place.caller().error(
                    f"'{op}': '{name}' is text of an attribute, such as #mir<reduce_kind max>, but got {value!r}"
                ) from None
        if isinstance(value, float):
            return ir.FloatAttr.get(ir.F32Type.get(self._context), value, loc=ir.Location.unknown(self._context))
        if value is True:
            return ir.UnitAttr.get(self._context)
        return value

    def expand_block(
        self, name: str, *operands: Value | None, policy: str = "direct", **options: PythonValue
    ) -> ValueOrTuple:
        """A block of HIR as the primitives that it lowers to, in a graph of any stage that is built.

        Args:
            name: of the block's builder, such as `llama_decoder_block`.
            operands: its operands; those that are named may be among `options`, too.
            policy: how it lowers, as of `GraphModule.hir`.
            options: keywords of the builder.

        Gives what the builder gives. Raises BuildError where there is no such block, and what the builder raises.
        """
        here = place.caller()
        self._check_stage(f"block '{name}'", here)
        block = self._empty("block", "hir", policy, self._context)
        build = getattr(block, name, None) if checks.is_text(name) and not name.startswith("_") else None
        if not callable(build):
            raise here.error(f"there is no block {checks.shown(name)}")
        handles: list[ir.Value] = []

        def inside(given: object) -> object:
            """What stands in the block for an operand of it."""
            if not isinstance(given, Value):
                return given
            handles.append(self._read(given))
            return add_argument(block, handles[-1].type, self._all_dims()[handles[-1]])

        built = build(*map(inside, operands), **{key: inside(value) for key, value in options.items()})
        listed = list(built) if isinstance(built, tuple | list) else [built]
        block.set_outputs({f"result{number}": value for number, value in enumerate(listed)})
        lowered = block.transform(f"hir-to-mir{{policy={policy}}},inline,symbol-dce", stage="mir")
        *ops, end = [op.operation for op in lowered._block.operations]
        made = self._cloned(ops, dict(zip(lowered._block.arguments, handles, strict=True)))
        location = here.location(self._context, ".".join([*self._scopes, name]))
        for op in ops:
            for result in op.results:
                made[result].owner.operation.location = location
        found = [self._value(made[value]) for value in end.operands]
        return tuple(found) if isinstance(built, tuple | list) else found[0]

    def inline(self, other: AnyGraphModule, operands: Mapping[str, Value], *, prefix: str = "") -> dict[str, Value]:
        """What another module computes, as operations of this one.

        Args:
            other: at this module's stage; it isn't changed.
            operands: what stands for its inputs, by name; for its parameters, too, where that isn't a parameter of the
                same name.
            prefix: what names of its parameters get before them, which are parameters of this module then.

        Gives its outputs by name. Raises BuildError where an input has no operand, an operand is of another type or
        named for none, a name is taken, or the stages differ.
        """
        here = place.caller()
        if not isinstance(other, Segments) or other is self:
            raise here.error(f"another module is expected, but got {checks.shown(other)}")
        with place.checking():
            checks.mapping("operands", operands)
            checks.text("prefix", prefix)
        if other.stage != self.stage:
            raise here.error(f"module '{other.name}' is at stage {other.stage}, but '{self.name}' at {self.stage}")
        source = ir.Module.parse(other.bytecode(), self._context)  # type: ignore[attr-defined]  # types of this context
        function = entry_function(source)
        own = arguments(function)
        if unknown := sorted(operands.keys() - {argument.name for argument in own}):
            raise here.error(f"module '{other.name}' has no argument {unknown}")
        given: dict[ir.Value, ir.Value] = {}
        for argument, handle in zip(own, body(function).arguments, strict=True):
            value = operands.get(argument.name)
            if value is None and argument.kind == INPUT:
                raise here.error(f"input '{argument.name}' of module '{other.name}' has no operand")
            if value is None:
                sizes = type_dims(argument.type, argument.symbols)
                if f"{prefix}{argument.name}" in self._signature.names:
                    raise here.error(f"module '{self.name}' already has an argument '{prefix}{argument.name}'")
                value = add_argument(self, argument.type, sizes, f"{prefix}{argument.name}", PARAM)
            given[handle] = self._read(value)
            if given[handle].type != argument.type:
                raise here.error(
                    f"'{argument.name}' of module '{other.name}' is of {argument.type}, but got {given[handle].type}"
                )
        *ops, end = [op.operation for op in body(function).operations]
        made = self._cloned(ops, given)
        named = zip(results(function), end.operands, strict=True)
        return {result.name: self._value(made[value]) for result, value in named}

    def _cloned(self, ops: Sequence[ir.Operation], known: Mapping[ir.Value, ir.Value]) -> dict[ir.Value, ir.Value]:
        """Appends copies of operations, with values for what they read of others; gives what stands for each value."""
        made, dims = dict(known), self._all_dims()
        for op in ops:
            with self._insertion_point:
                copy = op.clone().operation
            for number, operand in enumerate(op.operands):
                copy.operands[number] = made[operand]
            made.update(zip(op.results, copy.results, strict=True))
            add_results(copy, dims)
        return made

    def segments(self, *cuts: Value | Node) -> list[AnyGraphModule]:
        """The module cut into parts, which give its outputs where they run one after the other.

        Args:
            cuts: a part ends with the operation of each; of a value, that which computes it.

        A part is a module of its own. Its inputs are those arguments that it reads, and what earlier parts compute, by
        the names of their outputs; its outputs are those of the module, and what later parts read. Raises BuildError
        where a cut is an argument.
        """
        here = place.caller()
        ops = [node._op for node in self.nodes()]
        ends = sorted({self._end_of(cut, ops, here) for cut in cuts} | {len(ops)})
        outputs: dict[ir.Value, list[str]] = {}
        for result, handle in zip(results(self._function), terminator(self._function).operands, strict=True):
            outputs.setdefault(handle, []).append(result.name)
        known = {self._block.arguments[own.index]: (own.name, own.kind) for own in arguments(self._function)}
        taken = {name for name, _ in known.values()}.union(*outputs.values())
        crossing = [value for op in ops for value in op.results if value not in outputs]
        known |= {value: (_fresh(f"value{number}", taken), INPUT) for number, value in enumerate(crossing)}
        known |= {value: (names[0], INPUT) for value, names in outputs.items() if value not in known}
        parts, begin = [], 0
        for number, end in enumerate(ends):
            given = [value for value in outputs if isinstance(value, ir.BlockArgument)] if end == len(ops) else []
            parts.append(self._segment(f"{self.name}_{number}", ops[begin:end], known, outputs, given))
            begin = end
        return parts

    def _end_of(self, cut: Value | Node, ops: Sequence[ir.Operation], here: place.Place) -> int:
        """The number of operations up to a cut."""
        if isinstance(cut, Node) and cut._graph is self:
            return ops.index(cut._resolve()) + 1
        handle = self._resolve(cut)  # type: ignore[arg-type]  # which says what is no Value
        if isinstance(handle, ir.BlockArgument):
            raise here.error(f"a module is cut after an operation, but '{cut.name}' is an argument")
        return ops.index(ir.OpResult(handle).owner.operation) + 1

    def _segment(
        self,
        name: str,
        ops: Sequence[ir.Operation],
        known: Mapping[ir.Value, tuple[str, str]],
        outputs: Mapping[ir.Value, Sequence[str]],
        given: Sequence[ir.Value],
    ) -> AnyGraphModule:
        """A part of the module as one of its own.

        Args:
            ops: the part's operations.
            known: name and kind of each value as an argument.
            outputs: names of the module's outputs, by value.
            given: arguments that the part returns.
        """
        part = self._empty(name, self._stage, self._policy, self._context)
        inside = set(ops)
        made = {value for op in ops for value in op.results}
        dims = self._all_dims()
        read = dict.fromkeys([value for op in ops for value in op.operands if value not in made] + list(given))
        arguments_of = [add_argument(part, value.type, dims[value], *known[value]) for value in read]
        place_of = dict(zip(read, (part._resolve(value) for value in arguments_of), strict=True))
        copies = part._cloned(ops, place_of)
        returned = {}
        for value in [*given, *made]:
            later = any(use.owner.operation not in inside for use in value.uses)
            for own in outputs.get(value, [known[value][0]] if later and value in made else []):
                returned[own] = part._value(copies[value])
        part.set_outputs(returned)
        return part


def _fresh(name: str, taken: set[str]) -> str:
    """A name that none of those taken is; it is taken then."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name
