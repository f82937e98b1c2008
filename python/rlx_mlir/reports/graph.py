# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A module's graph as plain data: what drawings are made of, and what `to_json` writes.

docs/graphs.md describes the JSON. Whoever adds a key there raises no version; whoever changes or removes one does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rlx_mlir import ir
from rlx_mlir.attributes import elements_array, python_value
from rlx_mlir.errors import RlxError, StageError
from rlx_mlir.files import Json
from rlx_mlir.locations import block_name, source_line
from rlx_mlir.mir.packed import packing
from rlx_mlir.place import Place
from rlx_mlir.semantics.dims import Dims, add_results, propagate, type_dims, words
from rlx_mlir.semantics.function import (
    arguments,
    body,
    entry_function,
    function_name,
    functions,
    results,
    role,
    terminator,
)

FORMAT, VERSION = "rlx-graph", 1
#: Stages whose modules are graphs of operations on tensors.
STAGES = ("hir", "mir", "kernels")
#: Attribute of a kernel: the class that its code is made by.
_CLASS = "mir.kernel"
#: Elements of a constant that are listed, at most.
MAX_ELEMENTS = 64


@dataclass(frozen=True)
class Value:
    """A tensor: an argument, or a result of a node.

    Attributes:
        id: its number in the module.
        dtype: of its elements; the type's text where it is no tensor.
        dims: numbers, sizes as text, and `?` where nothing is known.
        packed: the format of a packed weight, whose dims are those of its bytes.
    """

    id: int
    dtype: str
    dims: tuple[int | str, ...]
    packed: str | None = None

    @property
    def text(self) -> str:
        """The type in a few words."""
        return f"[{', '.join(map(str, self.dims))}] {self.packed or self.dtype}"


@dataclass(frozen=True)
class Node:
    """An operation.

    Attributes:
        id: its number in the module.
        op: its name.
        block: the name of the block that it belongs to; '' where it is in none.
        source: the line that built it.
        attributes: as JSON has them.
        operands: numbers of values.
        segments: how many operands belong to each operand of the definition, where these may be left out or many.
        results, regions: of it.
    """

    id: int
    op: str
    block: str
    source: Place | None
    attributes: Mapping[str, object]
    operands: tuple[int, ...]
    segments: tuple[int, ...] | None
    results: tuple[Value, ...]
    regions: tuple[Region, ...] = ()


@dataclass(frozen=True)
class Region:
    """What an operation runs: its arguments, its nodes, and the values that it gives."""

    arguments: tuple[Value, ...]
    nodes: tuple[Node, ...]
    yields: tuple[int, ...]


@dataclass(frozen=True)
class Argument:
    """An input or parameter of the module."""

    name: str
    kind: str
    value: Value


@dataclass(frozen=True)
class Output:
    """An output of the module: its name, the number of its value, and the argument that it is tied to."""

    name: str
    value: int
    tied: str | None


@dataclass(frozen=True)
class Function(Region):
    """A kernel, or what prepares parameters: its class is of kernels."""

    name: str = ""
    role: str = ""
    kind: str | None = None


@dataclass(frozen=True)
class Graph:
    """A module."""

    name: str
    stage: str
    policy: str | None
    symbols: tuple[str, ...]
    arguments: tuple[Argument, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]
    functions: tuple[Function, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """The graph as JSON has it."""
        given: dict[str, list[dict[str, object]]] = {"input": [], "param": []}
        for position, own in enumerate(self.arguments):
            given[own.kind].append({"name": own.name, "position": position, **_value(own.value)})
        return {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "stage": self.stage,
            "policy": self.policy,
            "symbols": list(self.symbols),
            "inputs": given["input"],
            "params": given["param"],
            "nodes": [_node(node) for node in self.nodes],
            "outputs": [{"name": own.name, "value": own.value, "tied": own.tied} for own in self.outputs],
            "functions": [
                {"name": own.name, "role": own.role, "class": own.kind, **_region(own)} for own in self.functions
            ],
        }

    def to_json(self, indent: int | None = None) -> str:
        """The graph as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)


def _value(value: Value) -> dict[str, object]:
    packed = {} if value.packed is None else {"packed": value.packed}
    return {"id": value.id, "dtype": value.dtype, "dims": list(value.dims), **packed}


def _node(node: Node) -> dict[str, object]:
    found: dict[str, object] = {
        "id": node.id,
        "op": node.op,
        "block": node.block,
        "source": None if node.source is None else {"file": node.source.file, "line": node.source.line},
        "attributes": dict(node.attributes),
        "operands": list(node.operands),
        "results": [_value(value) for value in node.results],
    }
    if node.segments is not None:
        found["segments"] = list(node.segments)
    if node.regions:
        found["regions"] = [_region(region) for region in node.regions]
    return found


def _region(region: Region) -> dict[str, object]:
    return {
        "arguments": [_value(value) for value in region.arguments],
        "nodes": [_node(node) for node in region.nodes],
        "yields": list(region.yields),
    }


def graph_of(module: ir.Module, stage: str, policy: str | None = None) -> Graph:
    """The graph of a module; StageError where it is past stage kernels."""
    if stage not in STAGES:
        name = function_name(entry_function(module))
        raise StageError(f"a graph is of a module at stage {', '.join(STAGES)}, but '{name}' is at stage {stage}")
    entry = entry_function(module)
    reader = _Reader(propagate(entry))
    given = zip(arguments(entry), reader.values(body(entry).arguments), strict=True)
    listed = tuple(Argument(own.name, own.kind, value) for own, value in given)
    nodes = reader.nodes(_but_last(body(entry)))
    outputs = zip(results(entry), terminator(entry).operands, strict=True)
    found = tuple(Output(own.name, reader.numbers[value], own.tied) for own, value in outputs)
    return Graph(
        name=function_name(entry),
        stage=stage,
        policy=policy,
        symbols=tuple(
            dict.fromkeys(own for argument in arguments(entry) for own in argument.symbols if own.strip("?"))
        ),
        arguments=listed,
        nodes=nodes,
        outputs=found,
        functions=tuple(
            reader.function(own) for own in functions(module) if own != entry and len(own.regions[0].blocks)
        ),
    )


def _but_last(block: ir.Block) -> list[ir.Operation]:
    """The operations of a block, but the one that ends it."""
    *found, _ = block.operations
    return [op.operation for op in found]


@dataclass
class _Reader:
    """Numbers values and nodes.

    Attributes:
        dims: of values.
        numbers: of those that were met.
        count: of nodes that were met.
    """

    dims: dict[ir.Value, Dims]
    numbers: dict[ir.Value, int] = field(default_factory=dict)
    count: int = 0

    def values(self, found: Sequence[ir.Value]) -> tuple[Value, ...]:
        """Values that are met the first time."""
        return tuple(self._value(value) for value in found)

    def _value(self, value: ir.Value) -> Value:
        number = self.numbers.setdefault(value, len(self.numbers))
        if not isinstance(value.type, ir.RankedTensorType):
            return Value(number, str(value.type), ())
        packed = packing(value.type)
        dims = words(self.dims[value] if value in self.dims else type_dims(value.type))
        return Value(number, str(value.type.element_type), dims, None if packed is None else packed.scheme)

    def nodes(self, ops: Sequence[ir.Operation]) -> tuple[Node, ...]:
        """The operations of a block."""
        return tuple(self._node(op) for op in ops)

    def _node(self, op: ir.Operation) -> Node:
        number = self.count
        self.count += 1
        attributes = {name: _attribute(value) for name, value in op.attributes.items()}
        segments = attributes.pop("operandSegmentSizes", None)
        return Node(
            number,
            op.name,
            block_name(op.location),
            source_line(op.location),
            attributes,
            tuple(self.numbers[operand] for operand in op.operands),
            None if segments is None else tuple(segments),
            self.values(op.results),
            tuple(self._region(region) for region in op.regions),
        )

    def _region(self, region: ir.Region) -> Region:
        if not len(region.blocks):
            return Region((), (), ())
        given, nodes = self.values(region.blocks[0].arguments), self.nodes(_but_last(region.blocks[0]))
        *_, last = region.blocks[0].operations
        return Region(given, nodes, tuple(self.numbers[value] for value in last.operation.operands))

    def function(self, function: ir.Operation) -> Function:
        """A function beside the entry; sizes of its own are known where its arguments' are."""
        block = body(function)
        self.dims.update((value, type_dims(value.type)) for value in block.arguments)
        for op in block.operations:
            try:
                add_results(op.operation, self.dims)
            except RlxError:  # of sizes that are equal in each call, but that nothing says of the kernel alone
                self.dims.update((value, type_dims(value.type)) for value in op.operation.results)
        inner = self._region(function.regions[0])
        kind = python_value(function.attributes[_CLASS]) if _CLASS in function.attributes else None
        name = function_name(function)
        return Function(inner.arguments, inner.nodes, inner.yields, name, role(function) or "", kind)


def _attribute(attribute: ir.Attribute) -> Json:
    """An attribute as JSON can have it."""
    value = python_value(attribute)
    if isinstance(value, float) and str(attribute.type) == "f32":
        value = float(str(np.float32(value)))  # the shortest number that is the same in f32
    if not isinstance(value, ir.Attribute):
        return _plain(value)
    if not isinstance(value, ir.DenseElementsAttr):
        return str(value)
    kind = ir.RankedTensorType(value.type)
    found = {"dtype": str(kind.element_type), "dims": list(kind.shape)}
    if len(value) > MAX_ELEMENTS and not value.is_splat:
        return found
    array = elements_array(value)
    if value.is_splat and array.size:
        return {**found, "splat": _plain(_number(array.flat[0]))}
    return {**found, "elements": [_plain(_number(own)) for own in array.flat]}


def _number(value: np.generic) -> object:
    """An element of an array as Python's number, a complex one as its two parts."""
    own = value.astype(np.float32).item() if value.dtype.kind == "V" else value.item()
    return [own.real, own.imag] if isinstance(own, complex) else own


def _plain(value: object) -> object:
    """A value of an attribute; numbers that JSON doesn't have are their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(own) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(own) for own in value]
    return str(value) if isinstance(value, ir.Attribute) else value


def walk(nodes: Sequence[Node]) -> Iterator[Node]:
    """Nodes, and those in their regions."""
    for node in nodes:
        yield node
        for region in node.regions:
            yield from walk(region.nodes)
