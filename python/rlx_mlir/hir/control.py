# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of operations with regions: functions of Python say what the regions compute.

A region sees its arguments alone. What a function reads of the graph around it is captured: it becomes an operand of
the operation and an argument of its regions, a constant is built again inside.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeVar

from rlx_mlir import checks, ir
from rlx_mlir.hir import place
from rlx_mlir.hir.emitting import Emitting
from rlx_mlir.hir.graph import integer
from rlx_mlir.hir.types import Options
from rlx_mlir.hir.values import Value, ValueOrTuple
from rlx_mlir.semantics.dims import Dims

if TYPE_CHECKING:
    from typing_extensions import Unpack

Read = TypeVar("Read")
Anything = TypeVar("Anything")

#: One value or several, as callers write them.
Values = Value | Sequence[Value]

_CONSTANTS = ("mir.constant", "hir.constant")


class Region:
    """A region while it is built: its block hangs below an operation that stands nowhere.

    Args:
        graph: the graph whose operation it will be of.
        arguments: types and dimensions of the arguments that aren't captured.
    """

    def __init__(self, graph: ControlBuilders, arguments: Sequence[tuple[ir.Type, Dims]]) -> None:
        self._graph = graph
        with graph._context, ir.Location.unknown():
            holder = ir.Operation.create("mir.scan", regions=1)
            places = [ir.Location.current] * len(arguments)
            self.block = ir.Block.create_at_start(holder.regions[0], [kind for kind, _ in arguments], places)
        graph._keep(holder)
        self.block_arguments: list[ir.Value] = list(self.block.arguments)
        graph._all_dims().update(zip(self.block_arguments, (dims for _, dims in arguments), strict=True))

    def build(self, function: Callable[..., object], values: Sequence[Value], read: Callable[[object], Read]) -> Read:
        """What `read` makes of what the function gives; both run with the region as the place of new operations."""
        with self._graph._inside(self.block):
            return read(function(*values))

    def end(self, terminator: str, values: Sequence[ir.Value]) -> None:
        """Ends the region with an operation that gives the values."""
        with self._graph._context, ir.Location.unknown():
            op = ir.Operation.create(terminator, operands=list(values))
        self.block.append(op)

    def abandon(self) -> None:
        """Lets go of the graph, where building failed: handles of what was built go on to exist, but use none of it."""
        self.capture(self.outside())

    def outside(self) -> list[ir.Value]:
        """The values that it reads from around it, each once, without constants, which are built again in it."""
        found: dict[ir.Value, None] = {}
        made: dict[ir.Value, ir.Value] = {}
        dims = self._graph._all_dims()
        for op in [op.operation for op in self.block.operations]:
            for number, value in enumerate(op.operands):
                owner = value.owner
                if (owner if isinstance(owner, ir.Block) else owner.operation.block) == self.block:
                    continue
                if isinstance(owner, ir.Block) or owner.name not in _CONSTANTS:
                    found[value] = None
                    continue
                if value not in made:
                    clone = owner.operation.clone(ip=ir.InsertionPoint.at_block_begin(self.block))
                    made[value] = clone.operation.results[0]
                    dims[made[value]] = dims[value]
                op.operands[number] = made[value]
        return list(found)

    def capture(self, values: Sequence[ir.Value]) -> None:
        """Adds an argument for each value, which the operations read from then on."""
        dims = self._graph._all_dims()
        inside = {}
        for value in values:
            inside[value] = self.block.add_argument(value.type, ir.Location.unknown(self._graph._context))
            dims[inside[value]] = dims[value]
        for op in [op.operation for op in self.block.operations]:
            for number, operand in enumerate(op.operands):
                if operand in inside:
                    op.operands[number] = inside[operand]


class ControlBuilders(Emitting):
    """`cond`, `while_loop` and `scan`; what they need of a graph is abstract here."""

    @abstractmethod
    def _all_dims(self) -> dict[ir.Value, Dims]: ...

    @abstractmethod
    def _read(self, value: Value) -> ir.Value: ...

    @abstractmethod
    def _value(self, handle: ir.Value) -> Value: ...

    @abstractmethod
    def _inside(self, block: ir.Block) -> AbstractContextManager[None]: ...

    @abstractmethod
    def _keep(self, op: ir.Operation) -> None: ...

    def cond(
        self,
        condition: Value,
        then: Callable[..., Values],
        otherwise: Callable[..., Values],
        *operands: Value,
        **options: Unpack[Options],
    ) -> ValueOrTuple:
        """What one of two functions builds, chosen by a value at run time; the other one doesn't run, but on GPUs.

        Args:
            condition: one i1.
            then, otherwise: functions of the operands, which give values of the same types: one, or a tuple. They may
                read other values of the graph.
            operands: what the functions are given.

        Gives a value, or a tuple of them.
        """
        here = place.caller()
        given, several = [], False
        with self._building() as regions:
            for name, function in (("then", then), ("otherwise", otherwise)):
                regions.append(Region(self, []))
                read = self._reader(f"'{name}' of 'mir.if'", here)
                values, several = regions[-1].build(function_of(name, function, len(operands)), operands, read)
                regions[-1].end("mir.yield", values)
                given.append(values)
            types = [value.type for value in given[0]]
            if types != [value.type for value in given[1]]:
                raise here.error(
                    f"'mir.if': both functions give values of the same types, but 'then' gives {_types(given[0])} and "
                    f"'otherwise' {_types(given[1])}"
                )
            found = self._emit_regions("mir.if", {"condition": condition}, {}, regions, types, options)
        return tuple(found) if several else found[0]

    def while_loop(
        self,
        cond: Callable[..., Value],
        body: Callable[..., Values],
        init: Values,
        *,
        limit: int | None = None,
        **options: Unpack[Options],
    ) -> ValueOrTuple:
        """A function again and again, as long as a condition of the carried values holds.

        Args:
            cond: a function of the carried values that gives one i1.
            body: a function of the carried values that gives the next ones, of the same types.
            init: the carried values before the first step: one, or a tuple.
            limit: the most steps.

        Gives the carried values after the last step, one or a tuple as `init` is.
        """
        here = place.caller()
        limit = _number("limit", limit)
        inits, several = self._handles("'init' of 'mir.while'", init, here)
        operands = {"inits": [self._value(value) for value in inits]}
        types = [value.type for value in inits]
        with self._building() as regions:
            for name, function, end in (("cond", cond, "mir.condition"), ("body", body, "mir.yield")):
                region = self._region(inits)
                regions.append(region)
                carried = [self._value(value) for value in region.block_arguments]
                read = self._reader(f"'{name}' of 'mir.while'", here)
                values, _ = region.build(function_of(name, function, len(carried)), carried, read)
                region.end(end, [*values, *(region.block_arguments if name == "cond" else [])])
            found = self._emit_regions("mir.while", operands, {"limit": limit}, regions, types, options)
        return tuple(found) if several else found[0]

    def scan(
        self,
        body: Callable[..., object],
        init: Values,
        xs: Values | None = None,
        *,
        length: int | None = None,
        reverse: bool = False,
        checkpoints: int | None = None,
        **options: Unpack[Options],
    ) -> ValueOrTuple:
        """A function for each entry of sequences, which carries values from step to step.

        Args:
            body: a function of the carried values and of an entry of each of `xs`, all of them one after the other,
                that gives the next carried values and what is stacked: `(carried, stacked)`, each a value or a tuple,
                stacked None where there is nothing.
            init: the carried values before the first step: one, or a tuple, which may be empty.
            xs: values along whose first dimension the steps go, all of one size there: one, or a tuple.
            length: number of steps; needed where there are no `xs`.
            reverse: from the last entry to the first; what is stacked stays beside its entries.
            checkpoints: how many of the carried values gradients keep; they compute the others again.

        Gives `(carried, stacked)`, as the body does.
        """
        here = place.caller()
        length, kept = _number("length", length), _number("checkpoints", checkpoints)
        if length is not None and length < 0:
            raise here.error(f"'mir.scan': 'length' isn't negative, but got {length}")
        inits, several = self._handles("'init' of 'mir.scan'", init, here)
        sequences, _ = self._handles("'xs' of 'mir.scan'", () if xs is None else xs, here)
        dims = self._all_dims()
        entries = []
        for value in sequences:
            kind = ir.RankedTensorType(value.type)
            if not kind.rank:
                raise here.error("'mir.scan': each of 'xs' has a first dimension, but one is a single element")
            entries.append((_tensor(kind.shape[1:], kind.element_type), dims[value][1:]))

        def read(built: object) -> tuple[list[ir.Value], list[ir.Value], bool | None]:
            """What is carried, what is stacked, and whether that are several; None where there is nothing."""
            if not isinstance(built, tuple) or len(built) != 2:
                raise here.error(f"'mir.scan': 'body' gives (carried, stacked), but gave {built!r}"[:400])
            carried, _ = self._handles("what 'body' of 'mir.scan' carries", built[0], here)
            if built[1] is None:
                return carried, [], None
            return carried, *self._handles("what 'body' of 'mir.scan' stacks", built[1], here)

        operands = {
            "inits": [self._value(value) for value in inits],
            "xs": [self._value(value) for value in sequences],
        }
        attributes = {"length": length, "reverse": checks.flag("reverse", reverse), "checkpoints": kept}
        steps = ir.RankedTensorType(sequences[0].type).shape[0] if length is None and sequences else length
        with self._building() as regions:
            region = Region(self, [*((value.type, dims[value]) for value in inits), *entries])
            regions.append(region)
            arguments = [self._value(value) for value in region.block_arguments]
            carried, stacked, tuple_of = region.build(function_of("body", body, len(arguments)), arguments, read)
            region.end("mir.yield", [*carried, *stacked])
            types = [value.type for value in inits]
            for value in stacked:
                own = ir.RankedTensorType(value.type)
                shape = [ir.ShapedType.get_dynamic_size() if steps is None else steps, *own.shape]
                types.append(_tensor(shape, own.element_type))
            found = self._emit_regions("mir.scan", operands, attributes, regions, types, options)
        last, all_of = found[: len(inits)], found[len(inits) :]
        return (
            tuple(last) if several else last[0],
            None if tuple_of is None else tuple(all_of) if tuple_of else all_of[0],
        )

    def custom_fn(
        self,
        function: Callable[..., Values],
        *inputs: Value,
        vjp: Callable[..., Values] | None = None,
        jvp: Callable[..., Values] | None = None,
        **options: Unpack[Options],
    ) -> ValueOrTuple:
        """What a function builds of the inputs, with gradients of its own in place of those of its operations.

        Args:
            function: of the inputs; gives one value or a tuple. It reads nothing else of the graph but constants.
            inputs: what it is of.
            vjp: of the inputs, the results, and a gradient by each result, one after the other; gives a gradient by
                each input.
            jvp: of the inputs, and a tangent of each; gives a tangent of each result.

        Gives a value, or a tuple of them, as the function does.
        """
        here = place.caller()
        given, _ = self._handles("an input of 'mir.custom_fn'", inputs, here)
        dims = self._all_dims()
        with self._building() as regions:

            def build(
                name: str, run: Callable[..., Values], arguments: Sequence[ir.Value]
            ) -> tuple[list[ir.Value], bool]:
                region = Region(self, [(value.type, dims[value]) for value in arguments])
                regions.append(region)
                values = [self._value(value) for value in region.block_arguments]
                read = self._reader(f"'{name}' of 'mir.custom_fn'", here)
                found = region.build(function_of(name, run, len(values)), values, read)
                region.end("mir.yield", found[0])
                if outside := region.outside():
                    raise here.error(
                        f"'{name}' of 'mir.custom_fn' reads '{self._value(outside[0])._label}' of the graph around it: "
                        "give it as an input"
                    )
                return found

            results, several = build("function", function, given)
            types = [value.type for value in results]
            blocks: list[ir.Block | None] = [regions[0].block]
            for name, run, arguments in (
                ("vjp", vjp, [*given, *results, *results]),
                ("jvp", jvp, [*given, *given]),
            ):
                if run is not None:
                    build(name, run, arguments)
                blocks.append(None if run is None else regions[-1].block)
            found = self._emit("mir.custom_fn", {"inputs": list(inputs)}, result=types, regions=blocks, **options)
        return tuple(found) if several else found[0]

    # -- what they share ---------------------------------------------------------------------------------------------

    @contextmanager
    def _building(self) -> Iterator[list[Region]]:
        """A list for regions, of which nothing is left where building fails."""
        regions: list[Region] = []
        try:
            yield regions
        except BaseException:
            for region in regions:
                region.abandon()
            raise

    def _region(self, values: Sequence[ir.Value]) -> Region:
        """A region with arguments like the values."""
        dims = self._all_dims()
        return Region(self, [(value.type, dims[value]) for value in values])

    def _reader(self, what: str, here: place.Place) -> Callable[[object], tuple[list[ir.Value], bool]]:
        return lambda built: self._handles(what, built, here)

    def _handles(self, what: str, built: object, here: place.Place) -> tuple[list[ir.Value], bool]:
        """The MLIR values of one value or several, and whether they are several."""
        several = isinstance(built, list | tuple)
        listed: Sequence[ValueOrTuple] = built if isinstance(built, list | tuple) else [built]
        for each in listed:
            if not isinstance(each, Value):
                raise here.error(f"{what} is a Value or a tuple of them, but got {built!r}"[:400])
        return [self._read(each) for each in listed], several

    def _emit_regions(
        self,
        op: str,
        operands: Mapping[str, object],
        attributes: Mapping[str, object],
        regions: Sequence[Region],
        types: list[ir.Type],
        options: Options,
    ) -> list[Value]:
        """Appends an operation with regions, and what they read as its captures."""
        captured = list(dict.fromkeys(value for region in regions for value in region.outside()))
        for region in regions:
            region.capture(captured)
        given = {**operands, "captures": [self._value(value) for value in captured]}
        blocks = [region.block for region in regions]
        return list(self._emit(op, given, attributes, result=types, regions=blocks, **options))


def function_of(name: str, function: Anything, count: int) -> Anything:
    """A function of so many values; BuildError for what is none."""
    with place.checking():
        return checks.callback(name, function, *(f"value{number}" for number in range(count)))


def _number(name: str, value: object) -> int | None:
    """A number of steps, or none; BuildError for what is neither."""
    with place.checking():
        return None if value is None else integer(value, name)


def _tensor(shape: Sequence[int], element: ir.Type) -> ir.Type:
    kind: ir.Type = ir.RankedTensorType.get(list(shape), element, loc=ir.Location.unknown(element.context))
    return kind


def _types(values: Sequence[ir.Value]) -> str:
    return f"({', '.join(str(value.type) for value in values)})"
