# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What reading StableHLO gives: a module, its parameters, and ways to run it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir import ir
from rlx_mlir.errors import StablehloError, StablehloUnsupportedError
from rlx_mlir.hir import Value

from ..read_model import ReadModel
from .call import element_dtype, is_long
from .entries import Entry
from .importer import Abandoned, Importer, functions_of
from .registry import Refused

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule

#: Operations that may write their result over an operand.
_IN_PLACE = frozenset(
    f"mir.{name}" for name in ("add", "sub", "mul", "div", "max", "min", "where", "dynamic_update_slice")
)
_WORDS = re.compile(r"\w+")


@dataclass(frozen=True)
class StablehloModel(ReadModel):
    """A module of StableHLO: what `rlx_mlir.from_stablehlo` gives.

    Attributes:
        module: the graph, at stage mir. Inputs and outputs have the names that the module says, such as `p.layers.0.wq`
            for `p['layers'][0]['wq']`, or `arg0` and `result0`; an output that reuses a donated input is tied to it.
        params: an array for each parameter, by name: constants of many elements, and arguments that were said to be
            parameters.
    """


@dataclass(frozen=True)
class Argument:
    """What is known of an argument of the entry function beside its type.

    Attributes:
        name: that it shall have; None for that of the module.
        shape: text of each size, or numbers; None for those of the type.
        array: the elements, where it is a parameter.
    """

    name: str | None = None
    shape: Sequence[int | str] | None = None
    array: np.ndarray | None = None


def built(module: ir.Module, name: str | None = None, arguments: Sequence[Argument] = ()) -> StablehloModel:
    """The model of a module that was parsed.

    Args:
        name: of the graph; by default that of the module.
        arguments: what is known of the entry function's, in order; none for what the module itself says.
    """
    functions = functions_of(module)
    if "main" not in functions:
        raise StablehloError(f"a module has a function '@main', but this one has {', '.join(functions) or 'none'}")
    main = functions["main"]
    importer = Importer(name or _name(module), functions)
    block = main.regions[0].blocks[0]
    given = list(arguments) or [Argument()] * len(block.arguments)
    if len(given) != len(block.arguments):
        raise StablehloError(f"'@main' has {len(block.arguments)} arguments, but {len(given)} are described")
    names: list[str] = []
    entries: list[Entry] = []
    params: dict[str, np.ndarray] = {}
    for number, (value, known) in enumerate(zip(block.arguments, given, strict=True)):
        names.append(_unused(known.name or _argument_name(value, number), names))
        entries.append(_argument(importer, value, names[-1], known))
        if known.array is not None:
            params[names[-1]] = known.array
    try:
        found = importer.block(block, entries)
    except Abandoned:
        importer.check()
        raise
    importer.check()
    _set_outputs(importer, main, found, names)
    read = {param.name for param in importer.graph.params}
    return StablehloModel(
        importer.graph, {own: array for own, array in {**params, **importer.params}.items() if own in read}
    )


def _set_outputs(importer: Importer, main: ir.Operation, found: Sequence[Entry], names: Sequence[str]) -> None:
    """Says what the graph gives, and drops what nothing reads."""
    outputs: dict[str, Value] = {}
    listed = _output_names(main, len(found))
    last = [op.operation for op in main.regions[0].blocks[0].operations][-1]
    for name, entry, value in zip(listed, found, last.operands, strict=True):
        _check_type(value.type, f"result '{name}'")
        outputs[name] = importer.value(entry)
    donated = {listed[output]: names[argument] for argument, output in _aliased(main) if output < len(listed)}
    tied = {name: own for name, own in donated.items() if _takes(importer.graph, outputs[name], own)}
    importer.graph.set_outputs(outputs, tied=tied)
    importer.graph.erase_dead()


def _takes(graph: GraphModule, output: Value, argument: str) -> bool:
    """Whether an output is seen to be able to take an argument's memory: element by element, or a part of it anew."""
    given = graph.value(argument)
    if (given.shape, given.dtype) != (output.shape, output.dtype):
        return False
    made = output._resolve().owner
    if isinstance(made, ir.Block) or made.operation.name not in _IN_PLACE:
        return False
    return given._resolve() in list(made.operation.operands)


def _name(module: ir.Module) -> str:
    attributes = module.operation.attributes
    text = str(ir.StringAttr(attributes["sym_name"]).value) if "sym_name" in attributes else "module"
    return "_".join(_WORDS.findall(text.removeprefix("jit_"))) or "module"


def _argument(importer: Importer, value: ir.Value, name: str, known: Argument) -> Entry:
    """The input or parameter of an argument."""
    _check_type(value.type, f"argument '{name}'")
    dtype = element_dtype(value.type)
    shaped = ir.RankedTensorType(value.type)
    shape: list[int | str] = []
    for axis in range(shaped.rank):
        own = known.shape[axis] if known.shape is not None else None
        if not shaped.is_dynamic_dim(axis):
            shape.append(shaped.get_dim_size(axis))
        elif isinstance(own, str) and own.isidentifier():
            shape.append(own)
        else:
            shape.append("_".join(_WORDS.findall(name)) + f"_{axis}")
    if known.array is not None:
        return importer.graph.param(name, shape, dtype)
    found = importer.graph.input(name, shape, dtype)
    importer.note_dims(found)
    return found


def _check_type(type: ir.Type, what: str) -> None:
    """Raises where values that a graph takes or gives can't be of a type."""
    try:
        element_dtype(type)
    except Refused:
        known = False
    else:
        known = not is_long(type)
    if not known:
        raise StablehloUnsupportedError(f"{what} is of type {type}, which no value of a graph can have")


def words_of(text: str) -> str:
    """A path into nested structures, `p['layers'][0]`, as words with dots: `p.layers.0`."""
    return ".".join(_WORDS.findall(text))


def _argument_name(value: ir.Value, number: int) -> str:
    location = value.location
    text = str(location.name_str) if location.is_a_name() else ""
    return words_of(text) if text and "/" not in text else f"arg{number}"


def _unused(name: str, taken: Sequence[str]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def _output_names(main: ir.Operation, count: int) -> list[str]:
    """Names of the results: those of `jax.result_info`, or by number."""
    listed = _dictionaries(main, "res_attrs", count)
    names: list[str] = []
    for number, attributes in enumerate(listed):
        words = []
        if "jax.result_info" in attributes:
            words = _WORDS.findall(str(ir.StringAttr(attributes["jax.result_info"]).value))
        if len(words) > 1 and words[0] == "result" and not words[1].isdigit():
            words = words[1:]
        names.append(_unused(".".join(words) or f"result{number}", names))
    return names


def _aliased(main: ir.Operation) -> list[tuple[int, int]]:
    """Pairs of an argument and a result that may take its memory."""
    pairs = []
    for number, attributes in enumerate(_dictionaries(main, "arg_attrs", len(main.regions[0].blocks[0].arguments))):
        if "tf.aliasing_output" in attributes:
            pairs.append((number, int(ir.IntegerAttr(attributes["tf.aliasing_output"]).value)))
    return pairs


def _dictionaries(main: ir.Operation, name: str, count: int) -> list[ir.DictAttr | dict[str, ir.Attribute]]:
    if name not in main.attributes:
        return [{}] * count
    return [ir.DictAttr(own) for own in ir.ArrayAttr(main.attributes[name])]


__all__ = ["Argument", "StablehloModel", "built", "words_of"]
