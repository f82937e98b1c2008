# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The entry function of a module: its arguments and results as their attributes describe them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.errors import InputError
from rlx_mlir.mir.control import captured

INPUT, PARAM = "input", "param"
_TIES = "mir.ties"
#: Roles of functions that are not the entry (`mir.role`).
KERNEL, PREPARE = "kernel", "prepare"


@dataclass(frozen=True)
class Argument:
    """An argument of a function.

    Attributes:
        index: its position.
        name: `mir.name`, or `argN` where the text doesn't say.
        kind: `input` or `param`.
        type: tensor type.
        symbols: for each dimension its symbol, '' where it is static, '?' where it is dynamic without a symbol.
    """

    index: int
    name: str
    kind: str
    type: ir.RankedTensorType
    symbols: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """A result of a function: its name (`outputN` where the text doesn't say), and the argument that it is tied to.

    Ties stand in the function's attribute `mir.ties`, a dictionary from output to argument: by names, because the
    passes that lower a function change the numbers.
    """

    index: int
    name: str
    type: ir.Type
    tied: str | None


def functions(module: ir.Module | ir.Operation) -> list[ir.Operation]:
    """The functions of a module, in order."""
    body = module.operation.regions[0].blocks[0]
    return [op.operation for op in body.operations if op.operation.name == "func.func"]


def function_name(function: ir.Operation) -> str:
    """The symbol name of a function."""
    return str(ir.StringAttr(function.attributes["sym_name"]).value)


def symbols_in(block: ir.Block) -> set[str]:
    """The names that operations of a block define, functions and others; not all operations do."""
    own = (op.operation.attributes for op in block.operations)
    return {str(ir.StringAttr(attributes["sym_name"]).value) for attributes in own if "sym_name" in attributes}


def is_private(function: ir.Operation) -> bool:
    """Whether only the module itself may call the function."""
    return "sym_visibility" in function.attributes and "private" in str(function.attributes["sym_visibility"])


def body(function: ir.Operation) -> ir.Block:
    """The only block of a function."""
    block: ir.Block = function.regions[0].blocks[0]
    return block


def terminator(function: ir.Operation) -> ir.Operation:
    """The return of a function."""
    operations = body(function).operations
    last: ir.Operation = operations[len(operations) - 1].operation
    return last


def role(function: ir.Operation) -> str | None:
    """What a function is that isn't called from outside: `kernel` or `prepare`; None for the entry."""
    return python_value(function.attributes["mir.role"]) if "mir.role" in function.attributes else None


def entry_function(module: ir.Module | ir.Operation) -> ir.Operation:
    """The function that callers run: the only public one with a body and without `mir.role`.

    Raises InputError where there isn't exactly one, or it has several blocks.
    """
    found = [f for f in functions(module) if role(f) is None and not is_private(f) and len(f.regions[0].blocks)]
    if len(found) != 1:
        names = ", ".join(function_name(f) for f in found) or "none"
        raise InputError(f"a module has one public function with a body and without 'mir.role', but this has: {names}")
    if len(found[0].regions[0].blocks) != 1:
        raise InputError(f"function '{function_name(found[0])}' has several blocks, but an entry has one")
    return found[0]


def function_type(function: ir.Operation) -> ir.FunctionType:
    """The type of a function."""
    return ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)


def attribute_dictionaries(function: ir.Operation, name: str, count: int) -> list[dict[str, ir.Attribute]]:
    """`arg_attrs` or `res_attrs` of a function, a dictionary for each of `count`."""
    if name not in function.attributes:
        return [{} for _ in range(count)]
    return [_dictionary(own) for own in ir.ArrayAttr(function.attributes[name])]


def _dictionary(attribute: ir.Attribute) -> dict[str, ir.Attribute]:
    own = ir.DictAttr(attribute)
    return {own[i].name: own[i].attr for i in range(len(own))}


def arguments(function: ir.Operation) -> list[Argument]:
    """The arguments of a function."""
    types = function_type(function).inputs
    result = []
    for i, (type, attributes) in enumerate(
        zip(types, attribute_dictionaries(function, "arg_attrs", len(types)), strict=True)
    ):
        kind = _string(attributes.get("mir.kind"), INPUT)
        result.append(
            Argument(i, _string(attributes.get("mir.name"), f"arg{i}"), kind, type, _symbols(type, attributes))
        )
    return result


def results(function: ir.Operation) -> list[Result]:
    """The results of a function."""
    types, by_output = function_type(function).results, ties(function)
    found = []
    for i, (type, attributes) in enumerate(
        zip(types, attribute_dictionaries(function, "res_attrs", len(types)), strict=True)
    ):
        name = _string(attributes.get("mir.name"), f"output{i}")
        found.append(Result(i, name, type, by_output.get(name)))
    return found


def ties(function: ir.Operation) -> dict[str, str]:
    """By output, the name of the argument whose memory it may take."""
    if _TIES not in function.attributes:
        return {}
    return {output: _string(name, "") for output, name in _dictionary(function.attributes[_TIES]).items()}


def is_replaced(argument: ir.BlockArgument) -> bool:
    """Whether another value is tied to an argument of a function: calls that donate it change it."""
    function = argument.owner.owner
    if _TIES not in function.attributes:
        return False
    name = _name_at(function, "arg_attrs", argument.arg_number, "arg")
    output = next((tie.name for tie in ir.DictAttr(function.attributes[_TIES]) if tie.attr.value == name), None)
    return output is not None and output not in _returned_as(argument, function)


def is_parameter(value: ir.Value) -> bool:
    """Whether the value is a parameter of its function, and no call changes it: none that an output is tied to.

    In a region it is what captures such a parameter.
    """
    while (given := captured(value)) is not None:
        value = given
    if not isinstance(value.owner, ir.Block):
        return False
    argument = ir.BlockArgument(value)
    attributes = value.owner.owner.attributes
    if "arg_attrs" not in attributes:
        return False
    own = attributes["arg_attrs"][argument.arg_number]
    if "mir.kind" not in own or python_value(own["mir.kind"]) != "param":
        return False
    return not is_replaced(argument)


def unchanged_parameters(function: ir.Operation) -> set[int]:
    """The numbers of the arguments for which `is_parameter` holds; ties are read once for all of them."""
    tied = {name: output for output, name in ties(function).items()}
    found = set()
    for own, value in zip(arguments(function), body(function).arguments, strict=True):
        output = tied.get(own.name)
        if own.kind == PARAM and (output is None or output in _returned_as(value, function)):
            found.add(own.index)
    return found


def _returned_as(value: ir.Value, function: ir.Operation) -> set[str]:
    """The names of the results that are a value, or views of it."""
    found: set[str] = set()
    for use in value.uses:
        owner = use.owner.operation
        if owner.name == "mir.reshape" and use.operand_number == 0:
            found |= _returned_as(owner.results[0], function)
        elif owner.name == "func.return":
            found.add(_name_at(function, "res_attrs", use.operand_number, "output"))
    return found


def _name_at(function: ir.Operation, attributes: str, number: int, stem: str) -> str:
    """The name of one argument or result, without reading those of all others."""
    if attributes not in function.attributes:
        return f"{stem}{number}"
    own = ir.DictAttr(ir.ArrayAttr(function.attributes[attributes])[number])
    return _string(own["mir.name"], "") if "mir.name" in own else f"{stem}{number}"


def viewed(value: ir.Value) -> ir.Value:
    """The value that another one is a view of: itself where no reshape makes it."""
    while not isinstance(value.owner, ir.Block) and value.owner.name == "mir.reshape":
        value = value.owner.operands[0]
    return value


def set_ties(function: ir.Operation, by_output: Mapping[str, str]) -> None:
    """Writes the ties of a function in place of those that it has."""
    if by_output:
        context = function.context
        named = {output: ir.StringAttr.get(name, context) for output, name in by_output.items()}
        function.attributes[_TIES] = ir.DictAttr.get(named, context)
    elif _TIES in function.attributes:
        del function.attributes[_TIES]


def argument_attributes(context: ir.Context, name: str, kind: str, symbols: Sequence[str]) -> dict[str, ir.Attribute]:
    """The attributes that describe an argument; `mir.dims` only where a dimension is dynamic."""
    with context:
        attributes: dict[str, ir.Attribute] = {"mir.name": ir.StringAttr.get(name), "mir.kind": ir.StringAttr.get(kind)}
        if any(symbols):
            attributes["mir.dims"] = ir.ArrayAttr.get([ir.StringAttr.get(symbol) for symbol in symbols])
    return attributes


def set_signature(
    function: ir.Operation,
    inputs: Sequence[ir.Type] | None = None,
    outputs: Sequence[ir.Type] | None = None,
    arg_attrs: Sequence[Mapping[str, ir.Attribute]] | None = None,
    res_attrs: Sequence[Mapping[str, ir.Attribute]] | None = None,
) -> None:
    """Writes type and attributes of a function; what is None stays. The body is the caller's business."""
    old = function_type(function)
    with function.context:
        new = ir.FunctionType.get(
            list(old.inputs) if inputs is None else list(inputs),
            list(old.results) if outputs is None else list(outputs),
        )
        function.attributes["function_type"] = ir.TypeAttr.get(new)
        if arg_attrs is not None:
            function.attributes["arg_attrs"] = _dictionaries(arg_attrs)
        if res_attrs is not None:
            function.attributes["res_attrs"] = _dictionaries(res_attrs)


@dataclass
class Signature:
    """What is known of a function's arguments while more are added: reading all of them for each would be slow.

    Attributes:
        names, types, attributes: of each argument.
    """

    names: list[str]
    types: list[ir.Type]
    attributes: list[ir.Attribute]

    @staticmethod
    def of(function: ir.Operation) -> Signature:
        """That of a function as it is."""
        types = list(function_type(function).inputs)
        with function.context:
            present = list(ir.ArrayAttr(function.attributes["arg_attrs"])) if "arg_attrs" in function.attributes else []
            present += [ir.DictAttr.get({}) for _ in range(len(types) - len(present))]
        return Signature([argument.name for argument in arguments(function)], types, present)

    def append(self, function: ir.Operation, name: str, type: ir.Type, attributes: Mapping[str, ir.Attribute]) -> None:
        """Adds an argument to type and attributes of the function."""
        with function.context:
            self.names.append(name)
            self.types.append(type)
            self.attributes.append(ir.DictAttr.get(dict(attributes)))
            new = ir.FunctionType.get(self.types, function_type(function).results)
            function.attributes["function_type"] = ir.TypeAttr.get(new)
            function.attributes["arg_attrs"] = ir.ArrayAttr.get(self.attributes)


def _dictionaries(items: Iterable[Mapping[str, ir.Attribute]]) -> ir.ArrayAttr:
    listed: ir.ArrayAttr = ir.ArrayAttr.get([ir.DictAttr.get(dict(item)) for item in items])
    return listed


def _string(attribute: ir.Attribute | None, default: str) -> str:
    return default if attribute is None else str(ir.StringAttr(attribute).value)


def _symbols(type: ir.Type, attributes: Mapping[str, ir.Attribute]) -> tuple[str, ...]:
    if "mir.dims" in attributes:
        return tuple(ir.StringAttr(word).value for word in ir.ArrayAttr(attributes["mir.dims"]))
    if not isinstance(type, ir.ShapedType) or not type.has_rank:
        return ()
    return tuple("?" if type.is_dynamic_dim(i) else "" for i in range(type.rank))
