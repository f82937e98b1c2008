# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the entry function of a module as StableHLO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_mlir import checks, ir
from rlx_mlir.attributes import elements_array, python_value
from rlx_mlir.errors import InputError, StageError, UnsupportedError
from rlx_mlir.exports.stablehlo import operators as operators  # registers the handlers
from rlx_mlir.exports.stablehlo.builder import Writing
from rlx_mlir.exports.stablehlo.registry import HANDLERS
from rlx_mlir.exports.stablehlo.tensors import Dim, Tensor, is_static, plain, type_of
from rlx_mlir.hir import GraphModule
from rlx_mlir.locations import block_name, source_line
from rlx_mlir.mir.dims import Size
from rlx_mlir.mir.packed import packing
from rlx_mlir.mir.registry import call_arguments
from rlx_mlir.place import located
from rlx_mlir.semantics.dims import Dims, is_known, propagate
from rlx_mlir.semantics.function import arguments, body, entry_function, results
from rlx_mlir.unsupported import list_operations

#: What is written by itself, or ends a block.
_PLAIN = ("func.return", "mir.yield", "mir.condition", "mir.constant")
#: Makes one function of operations that have writers: those that are made of others become these.
PIPELINE = "inline,symbol-dce,mir-decompose{all=true}"


class Writer(Writing):
    """Writes one function.

    Args:
        dims: sizes of its values; those of a function without symbols are in their types.
    """

    def __init__(self, dims: Mapping[ir.Value, Dims] | None = None) -> None:
        super().__init__()
        self._dims = dims or {}

    def kind(self, value: ir.Value) -> tuple[tuple[Dim, ...], str]:
        """Sizes and element type of a value."""
        if value not in self._dims:
            return shape_and_word(value.type)
        return tuple(plain(size) for size in self._dims[value]), shape_and_word(value.type)[1]

    def block(self, block: ir.Block, values: Sequence[Tensor]) -> list[Tensor]:
        """What a block gives for values of its arguments."""
        known: dict[ir.Value, Tensor] = dict(zip(block.arguments, values, strict=True))
        for op in (each.operation for each in block.operations):
            if op.name in ("func.return", "mir.yield", "mir.condition"):
                return [known[value] for value in op.operands]
            found = self.operation(op, [known[value] for value in op.operands])
            known.update(zip(op.results, found, strict=True))
        raise UnsupportedError("a block without an end")

    def operation(self, op: ir.Operation, operands: Sequence[Tensor]) -> list[Tensor]:
        """Writes one operation."""
        around = self.place, self.types, self.blocks
        self.place = _location(op.location)
        self.types = [self.kind(value) for value in op.results]
        self.blocks = [region.blocks[0] for region in op.regions if len(region.blocks)]
        try:
            if op.name == "mir.constant":
                array = elements_array(op.attributes["value"])
                return [self.constant(array, self.types[0][1])]
            values, attributes = call_arguments(op, operands)
            found = HANDLERS[op.name](self, *values, **attributes)
        finally:
            self.place, self.types, self.blocks = around
        listed = [found] if isinstance(found, Tensor) else list(found)
        typed = []
        for value, result in zip(listed, op.results, strict=True):
            shape, word = self.kind(result)
            if value.type != type_of(shape, word):
                raise UnsupportedError(f"'{op.name}' is written as {value.type}, but is of {result.type}")
            typed.append(Tensor(value.name, shape, word))
        return typed


def shape_and_word(type: ir.Type) -> tuple[tuple[int, ...], str]:
    """Sizes and element type of a tensor type."""
    shaped = ir.RankedTensorType(type)
    return tuple(shaped.shape), str(shaped.element_type)


@located
def to_stablehlo(module: GraphModule) -> str:
    """A module as StableHLO: text of the generic form, which other compilers' tools read, and `from_stablehlo`.

    Inputs and parameters are the arguments of `@main`, in the order in which they were made, by their names in
    locations; outputs are its results, by their names in `jax.result_info`.

    Args:
        module: at stage hir or mir. Symbolic sizes are `?` in the types, and operations take them as values, as in what
            `jax.export` writes of such functions; `module.bind(batch=1, seq=128)` gives them numbers.

    Raises UnsupportedError, which lists every operation that has no counterpart, packed weights among them, and those
    that are written of sizes that are numbers alone.
    """
    if not isinstance(module, GraphModule):
        raise InputError(f"what is written is a GraphModule, but got {checks.shown(module)}")
    if module.stage not in ("hir", "mir"):
        raise StageError(f"a module is written at stage hir or mir, but '{module.name}' is at stage {module.stage}")
    lowered = module.lower() if module.stage == "hir" else module
    lowered = lowered.transform(PIPELINE)
    function = entry_function(lowered.ir_module)
    dims = propagate(function) if module.dynamic_symbols else {}
    _check(lowered.name, function, dims)
    return written(lowered.name, function, dims)


def written(name: str, function: ir.Operation, dims: Mapping[ir.Value, Dims]) -> str:
    """The text of a function whose operations have writers.

    Args:
        dims: sizes of its values, where it has symbols.
    """
    writer = Writer(dims)
    block = body(function)
    given = [Tensor(f"%arg{number}", *writer.kind(value)) for number, value in enumerate(block.arguments)]
    for argument in given:
        writer.note(argument)
    found = writer_results(writer, block, given)
    names = [argument.name for argument in arguments(function)]
    return _text(name, writer, dict(zip(names, given, strict=True)), [own.name for own in results(function)], found)


def written_operation(op: ir.Operation) -> str:
    """The text of a function that is one operation, which can be written."""
    writer = Writer()
    given = [Tensor(f"%arg{number}", *shape_and_word(value.type)) for number, value in enumerate(op.operands)]
    found = writer.operation(op, given)
    writer.lines = [line.partition(" loc(")[0] for line in writer.lines]  # equal operations of other lines are one text
    named = {f"operand{number}": own for number, own in enumerate(given)}
    return _text("operation", writer, named, [f"result{number}" for number in range(len(found))], found)


def _text(name: str, writer: Writer, given: Mapping[str, Tensor], names: Sequence[str], found: Sequence[Tensor]) -> str:
    """A module of one function.

    Args:
        given: its arguments, by name.
        names: of its results.
    """
    head = ", ".join(f'{own.name}: {own.type} loc("{argument}")' for argument, own in given.items())
    kinds = ", ".join(value.type for value in found)
    infos = ", ".join(f"{{jax.result_info = \"result['{own}']\"}}" for own in names)
    sources = ", ".join(own.type for own in given.values())
    listed = ", ".join(value.name for value in found)
    return "\n".join(
        [
            f'"builtin.module"() <{{sym_name = "{name}"}}> ({{',
            f'  "func.func"() <{{function_type = ({sources}) -> ({kinds}), res_attrs = [{infos}], '
            'sym_name = "main", sym_visibility = "public"}> ({',
            f"  ^bb0({head}):" if given else "  ^bb0:",
            *writer.lines,
            f'    "func.return"({listed}) : ({kinds}) -> ()',
            "  }) : () -> ()",
            "}) : () -> ()",
            "",
        ]
    )


def writer_results(writer: Writer, block: ir.Block, given: Sequence[Tensor]) -> list[Tensor]:
    """What a function's block gives."""
    known: dict[ir.Value, Tensor] = dict(zip(block.arguments, given, strict=True))
    for op in (each.operation for each in block.operations):
        if op.name == "func.return":
            return [known[value] for value in op.operands]
        try:
            found = writer.operation(op, [known[value] for value in op.operands])
        except (UnsupportedError, InputError) as error:
            raise UnsupportedError(f"{list_operations([(op, str(error))])[0]}") from None
        known.update(zip(op.results, found, strict=True))
    raise UnsupportedError("a function without an end")


def _check(name: str, function: ir.Operation, dims: Mapping[ir.Value, Dims]) -> None:
    """Raises UnsupportedError for all operations that can't be written."""
    if missing := [*unwritten(function), *_of_symbols(function, dims)]:
        lines = list_operations(missing, HANDLERS)
        number = "1 operation" if len(missing) == 1 else f"{len(missing)} operations"
        text = f"'{name}' has {number} without a counterpart in StableHLO"
        raise UnsupportedError("\n  ".join([text, *lines]))


def _of_symbols(function: ir.Operation, dims: Mapping[ir.Value, Dims]) -> list[tuple[ir.Operation, str]]:
    """The operations whose sizes aren't made of the arguments', each with why."""
    found = []
    for op in (each.operation for each in body(function).operations):
        sizes = [plain(size) for value in (*op.operands, *op.results) for size in dims.get(value, ())]
        if is_static(sizes) or op.name in _PLAIN:
            continue
        if any(isinstance(size, Size) and not is_known(size) for size in sizes):
            found.append((op, "its sizes depend on data"))
    return found


def unwritten(function: ir.Operation) -> list[tuple[ir.Operation, str]]:
    """The operations that can't be written, each with why, '' where there is none of its name."""
    found = []
    for op in _operations(body(function)):
        if op.name in _PLAIN:
            continue
        reason = _refused(op)
        if reason is not None:
            found.append((op, reason))
    return found


def unwritten_reason(op: ir.Operation) -> str:
    """Why one operation can't be written, with what is in its regions; '' where it can."""
    inner = [own for region in op.regions if len(region.blocks) for own in _operations(region.blocks[0])]
    for own in (op, *inner):
        if own.name not in _PLAIN and (reason := _refused(own)) is not None:
            return reason or f"'{own.name}' has no counterpart in StableHLO"
    return ""


def _refused(op: ir.Operation) -> str | None:
    """Why an operation can't be written; '' where there is none of its name, None where it can."""
    if any(packing(value.type) is not None for value in (*op.operands, *op.results)):
        return "it reads packed weights"
    if op.name not in HANDLERS:
        return ""
    return refusal(op) or None


def refusal(op: ir.Operation) -> str:
    """Why this use of an operation isn't written; '' where it is."""
    attributes = {key: python_value(op.attributes[key]) for key in op.attributes if "." not in key}
    check = operators.REFUSALS.get(op.name)
    return check(attributes) if check is not None else ""


def _operations(block: ir.Block) -> Sequence[ir.Operation]:
    """The operations of a block, those of regions that run included."""
    found: list[ir.Operation] = []
    for op in (each.operation for each in block.operations):
        found.append(op)
        for region in list(op.regions)[: 1 if op.name == "mir.custom_fn" else None]:
            if len(region.blocks):
                found += _operations(region.blocks[0])
    return found


def _location(location: ir.Location) -> str:
    """Where an operation comes from, as text writes it."""
    line, name = source_line(location), block_name(location)
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    if line is None:
        return f' loc("{quoted}")' if name else ""
    file = line.file.replace("\\", "\\\\").replace('"', '\\"')
    inner = f'"{file}":{line.line}:0'
    return f' loc("{quoted}"({inner}))' if name else f" loc({inner})"


__all__ = ["PIPELINE", "Writer", "to_stablehlo", "unwritten_reason", "written_operation"]
