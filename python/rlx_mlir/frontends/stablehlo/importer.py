# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds a module from one of StableHLO: functions inlined, operations in order, and every refusal in one error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from rlx_mlir import budgets, ir
from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import BudgetError, BuildError, RlxError, StablehloError, StablehloUnsupportedError
from rlx_mlir.frontends.made import Made
from rlx_mlir.frontends.positions import Conditions, Positions
from rlx_mlir.frontends.sizes import Sizes
from rlx_mlir.frontends.tensors import Tensor
from rlx_mlir.hir import GraphModule, Value
from rlx_mlir.hir.place import standing
from rlx_mlir.locations import block_name, source_line
from rlx_mlir.mir.dims import Size

from . import operators as operators  # registers the handlers
from .call import Call
from .entries import Entry, Repeated, is_known, shape_of
from .registry import FOLDS, HANDLERS, Refused

#: Known elements that become a parameter, and no constant of the module, where there are more.
MOST_CONSTANT = 1024
#: Functions within functions that are inlined.
MOST_NESTED = 64

_PLACE = re.compile(r"^.*?:\d+:( in block '.*?':)? ")
_TRANSFORMED = re.compile(r"^(?:jit|jvp|transpose|vmap|remat|checkpoint)\((.*)\)$")


class Abandoned(Exception):
    """An operation that isn't built, for reasons that are noted already."""


class Importer:
    """Builds one graph.

    Attributes:
        graph: the module, at stage mir.
        params: an array for each parameter that a constant became.
    """

    def __init__(self, name: str, functions: dict[str, ir.Operation]) -> None:
        self.graph = GraphModule.mir(name)
        self.params: dict[str, np.ndarray] = {}
        self._functions = functions
        self._sizes = Sizes(self.graph)
        self._entries: list[dict[ir.Value, Entry | None]] = [{}]
        self._made = Made()
        self._refusals: dict[tuple[str, str], list[str]] = {}
        self._count = 0
        self._place = ""
        self._callers = [""]

    # -- arguments ---------------------------------------------------------------------------------------------------

    def note_dims(self, value: Value) -> None:
        """Takes the symbols of an input's dimensions from it."""
        for axis, size in enumerate(value.shape):
            if isinstance(size, str) and size.isidentifier():
                self._sizes.note(size, value, axis)

    # -- operations --------------------------------------------------------------------------------------------------

    def function(self, name: str, arguments: Sequence[Entry]) -> list[Entry]:
        """What a function gives for arguments, which is built here."""
        if name not in self._functions:
            raise StablehloError(f"the module calls '@{name}', which it doesn't have")
        if len(self._entries) > MOST_NESTED:
            raise StablehloError(f"functions are nested more than {MOST_NESTED} deep at '@{name}'")
        block = self._functions[name].regions[0].blocks[0]
        self._entries.append({})
        self._callers.append(self._place)
        try:
            return self.block(block, arguments)
        finally:
            self._entries.pop()
            self._callers.pop()

    def block(self, block: ir.Block, arguments: Sequence[Entry]) -> list[Entry]:
        """What a block gives for arguments; Abandoned where it can't be built."""
        if len(arguments) != len(block.arguments):
            raise StablehloError(f"a block has {len(block.arguments)} arguments, but {len(arguments)} are given")
        own = self._entries[-1]
        own.update(zip(block.arguments, arguments, strict=True))
        results: list[Entry | None] = []
        for op in (each.operation for each in block.operations):
            if op.name in ("func.return", "stablehlo.return"):
                results = [own[value] for value in op.operands]
                break
            self._count += 1
            budgets.check("nodes", self._count, "the module, with bodies of functions and steps of loops,")
            self._operation(op)
        if any(entry is None for entry in results):
            raise Abandoned
        return [entry for entry in results if entry is not None]

    def note(self, value: ir.Value, entry: Entry) -> None:
        """Says what a value of the module stands for, in the function that is built."""
        self._entries[-1][value] = entry

    def _operation(self, op: ir.Operation) -> None:
        """Builds one operation; what it gives is None where it can't be built."""
        own = self._entries[-1]
        found: Sequence[Entry | None] = [None] * len(op.results)
        # What JAX's own functions do has the place of who calls them.
        place = self._place = place_of(op) or self._callers[-1]
        try:
            found = self._built(op)
            if len(found) != len(op.results):
                raise StablehloError(f"'{op.name}' has {len(op.results)} results, but means {len(found)}")
        except Abandoned:
            pass
        except Refused as refused:
            self._refuse(op, str(refused), place)
        except (StablehloError, BudgetError):
            raise
        except RlxError as error:
            self._refuse(op, _PLACE.sub("", str(error)) if isinstance(error, BuildError) else str(error), place)
        own.update(zip(op.results, found, strict=True))

    def _built(self, op: ir.Operation) -> Sequence[Entry]:
        operands = [self.find(value) for value in op.operands]
        name = name_of(op)
        if name not in HANDLERS and name not in FOLDS:
            raise Refused("")
        if any(operand is None for operand in operands):
            raise Abandoned
        call = Call(self, op, [operand for operand in operands if operand is not None])
        line = source_line(op.location)
        at_line = standing(line.file, line.line) if line is not None else nullcontext()
        scope = scope_of(op)
        with (
            foreign_errors(describe(op), StablehloError, but=(Refused, Abandoned)),
            at_line,
            self.graph.scope(scope) if scope else nullcontext(),
        ):
            found = None
            if name in FOLDS and (not call.operands or any(map(is_known, call.operands)) or name not in HANDLERS):
                found = FOLDS[name](call)
            if found is None and name in HANDLERS:
                found = HANDLERS[name](call)
        if found is None:
            raise Refused("operands that are computed when the graph runs")
        return list(found) if isinstance(found, list | tuple) else [found]  # type: ignore[list-item]

    def find(self, value: ir.Value) -> Entry | None:
        own = self._entries[-1]
        if value not in own:
            raise StablehloError("an operation reads a value that isn't there")
        return own[value]

    def _refuse(self, op: ir.Operation, reason: str, where: str) -> None:
        self._refusals.setdefault((name_of(op), reason), []).append(where)

    def region(self) -> AbstractContextManager[None]:
        """While it is open, constants are made for the region that is built, and forgotten after it."""
        return self._made.region()

    # -- values ------------------------------------------------------------------------------------------------------

    def value(self, entry: Entry) -> Value:
        """An entry as a value of the graph, of its whole shape."""
        value = self.compact(entry)
        shape = shape_of(entry)
        if shape_of(value) == shape:
            return value
        for size in shape:
            self.carry(size)
        return self.graph.expand(value, [size if size.constant is None else size.constant for size in shape])

    def compact(self, entry: Entry) -> Value:
        """The same before it is repeated: a value that broadcasts to the shape."""
        if isinstance(entry, Value):
            return entry
        if isinstance(entry, Repeated):
            return entry.value
        if (found := self._made.find(entry)) is not None:
            return found
        if isinstance(entry, Tensor):
            value = self._constant(entry)
        else:
            for size in (*entry.shape, *_factors(entry)):
                self.carry(size)
            value = entry.compact(self.graph)
        return self._made.keep(entry, value, everywhere=isinstance(entry, Tensor) and self._is_param(entry))

    @staticmethod
    def _is_param(entry: Tensor) -> bool:
        return entry.numbers is not None and entry.numbers.size > MOST_CONSTANT

    def _constant(self, entry: Tensor) -> Value:
        array = entry.array
        assert array is not None
        if array.dtype == object:
            parts = [self.graph.reshape(self.size(Size.of(own)), [1]) for own in array.reshape(-1)]
            joined = self.graph.concat(parts, 0) if len(parts) > 1 else parts[0]
            value = self.graph.reshape(joined, list(array.shape))
            return value if entry.dtype == np.int64 else self.graph.cast(value, entry.dtype)
        if not self._is_param(entry):
            return self.graph.constant(np.ascontiguousarray(array).reshape(array.shape))
        base = entry.name or "constant"
        name, number = base, 2
        taken = {value.name for value in (*self.graph.inputs, *self.graph.params)}
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        self.params[name] = np.ascontiguousarray(array)
        return self.graph.param(name, list(array.shape), array.dtype)

    def spread(self, value: Value, shape: Sequence[Size]) -> Entry:
        """An entry of a shape, of a value that broadcasts to it."""
        return value if shape_of(value) == tuple(shape) else Repeated(value, tuple(shape))

    def size(self, size: Size) -> Value:
        """A size as a number that calls compute, i64 without dimensions."""
        return self._sizes.value(size)

    def carry(self, size: Size) -> None:
        """Sees to it that a value of the graph has a dimension of a size, which results can take it from."""
        self._sizes.carry(size)

    # -- what is refused ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """StablehloUnsupportedError for all that was refused: a line for each operation and reason."""
        if not self._refusals:
            return
        lines, counts = [], dict[str, int]()
        for (op, reason), places in sorted(self._refusals.items(), key=lambda item: (-len(item[1]), item[0])):
            counts[op] = counts.get(op, 0) + len(places)
            listed = ", ".join(dict.fromkeys(own for own in places[:3] if own))
            text = f"{len(places)} x {op}" + (f", first at {listed}" if listed else "")
            lines.append(text + (f": {reason}" if reason else ": there is no such operation here"))
        total = sum(counts.values())
        text = f"{total} operation{'s' if total > 1 else ''} of '{self.graph.name}' can't be compiled"
        raise StablehloUnsupportedError("\n  ".join([text, *lines]), operations=counts)


def _factors(entry: Positions | Conditions) -> list[Size]:
    """The sizes that numbers of positions are made of."""
    bases = [entry.base] if isinstance(entry, Positions) else [base for _, base, _ in entry.parts]
    return [Size((((factor,), 1),)) for base in bases for factors, _ in base.terms for factor in factors]


def name_of(op: ir.Operation) -> str:
    """The name of an operation; of custom calls what they call, of composites what they are."""
    name = str(op.name)
    if name == "stablehlo.custom_call" and "call_target_name" in op.attributes:
        return "@" + str(ir.StringAttr(op.attributes["call_target_name"]).value)
    if name == "stablehlo.composite" and "name" in op.attributes:
        own = str(ir.StringAttr(op.attributes["name"]).value)
        return own if own in HANDLERS else name
    return name


def place_of(op: ir.Operation) -> str:
    """Where an operation comes from: the line of the program, or that of the text."""
    line = source_line(op.location)
    if line is None:
        return ""
    return f"line {line.line}" if line.file == "-" else str(line)


def describe(op: ir.Operation) -> str:
    """How errors name an operation."""
    where = place_of(op)
    return f"'{name_of(op)}'" + (f" at {where}" if where else "")


def scope_of(op: ir.Operation) -> str:
    """The block that an operation belongs to: what the name of its location says beside transformations of JAX."""
    parts = block_name(op.location).split("/")[:-1]
    words = []
    for part in parts:
        while found := _TRANSFORMED.match(part):
            part = found[1]
        if part and re.fullmatch(r"[\w.\[\]-]+", part):
            words.append(part)
    return ".".join(words[1:])


def functions_of(module: ir.Module) -> dict[str, ir.Operation]:
    """The functions of a module that have a body, by name; StablehloError where something else stands in it."""
    found = {}
    for op in (each.operation for each in module.body.operations):
        if op.name != "func.func":
            raise StablehloError(f"a module has functions, but this one has '{op.name}'")
        name = str(ir.StringAttr(op.attributes["sym_name"]).value)
        if len(op.regions[0].blocks) != 1:
            raise StablehloError(f"a function has one block, but '@{name}' has {len(op.regions[0].blocks)}")
        found[name] = op
    return found


__all__ = ["Importer", "describe", "functions_of", "name_of", "place_of"]
