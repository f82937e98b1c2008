# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds a module from the message of a model: values by name, nodes in order, and every refusal in one error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx_mlir import budgets
from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import (
    BudgetError,
    BuildError,
    OnnxError,
    OnnxUnsupportedError,
    RlxError,
    UnsupportedError,
    shortened,
)
from rlx_mlir.frontends.made import Made
from rlx_mlir.frontends.sizes import Sizes
from rlx_mlir.frontends.tensors import MOST_FOLDED, Several, Tensor, Thing
from rlx_mlir.hir import GraphModule, Value
from rlx_mlir.mir.dims import Size

from . import operators as operators  # registers the handlers
from .call import Attribute, Call
from .files import Tensors, onnx_library
from .registry import Handler, Refused, as_arrays, canonical, fold_of, handler_of
from .types import NUMPY, in_graphs, name_of

if TYPE_CHECKING:
    import onnx


#: Known elements that become a parameter, and no constant of the module, where there are more.
MOST_CONSTANT = 16
#: The oldest and the newest version of the standard operators that files may ask for.
OLDEST, NEWEST = 7, 28
#: Operators that are folded by the shapes of operands alone, and by these or element types.
_OF_SHAPES = frozenset({"Shape", "Size"})
_OF_SHAPES_AND_TYPES = _OF_SHAPES | {"CastLike"}
#: Functions within functions that are expanded.
MOST_NESTED = 32

_ATTRIBUTES = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings", 9: "tensors", 10: "graphs"}
#: The kind of attributes that are types: those of sequences and optional tensors, which say nothing that isn't known.
_TYPE = 13
_PLACE = re.compile(r"^.*?:\d+:( in block '.*?':)? ")
_OTHER = re.compile(r"[^A-Za-z0-9_]+")


class Abandoned(Exception):
    """A node that isn't built, for reasons that are noted already."""


@dataclass
class Scope:
    """What the names of one graph stand for; None for what a refused node would compute.

    Attributes:
        things: by name.
        outer: of the graph around it, whose names are seen, too.
        versions: of the operators, by domain.
        given: attributes of the function that is expanded, by name.
    """

    versions: Mapping[str, int]
    outer: Scope | None = None
    things: dict[str, Thing | None] = field(default_factory=dict)
    given: Mapping[str, Attribute] | None = None

    def find(self, name: str) -> Thing | None:
        """What a name stands for; KeyError where nothing has it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.things:
                return scope.things[name]
            scope = scope.outer
        raise KeyError(name)


@dataclass(frozen=True)
class Refusal:
    """A node that can't be built, and why."""

    op: str
    node: str
    reason: str
    inputs: frozenset[str]


class Importer:
    """Builds one model.

    Args:
        message: the `ModelProto`.
        tensors: reads its tensors.
        fixed: arrays of inputs that are known, by name.
        every: whether the results of all nodes of the graph are outputs, too, where values of a module can be these.
    """

    def __init__(
        self, message: onnx.ModelProto, tensors: Tensors, fixed: Mapping[str, np.ndarray], *, every: bool = False
    ) -> None:
        self.message, self.tensors, self.fixed, self._every = message, tensors, fixed, every
        self.graph = GraphModule.mir(_word(message.graph.name) or "model")
        self.params: dict[str, np.ndarray] = {}
        self.symbols: dict[str, str] = {}
        self.refusals: list[Refusal] = []
        self._sizes = Sizes(self.graph)
        self._made = Made()
        self._roots: dict[int, tuple[Value, frozenset[str]]] = {}
        self._nested = 0
        self._nodes = 0
        self.functions = {(canonical(own.domain), own.name): own for own in message.functions}
        self.versions = {canonical(own.domain): int(own.version) for own in message.opset_import}

    # -- the whole ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Builds the graph; OnnxUnsupportedError lists every node that can't be."""
        graph, scope = self.message.graph, Scope(self.versions)
        version = self.versions.get("", OLDEST)
        if not OLDEST <= version <= NEWEST:
            raise OnnxUnsupportedError(
                f"the model asks for version {version} of the standard operators, but {OLDEST} to {NEWEST} are known"
            )
        self._check_functions()
        self._initialisers(graph, scope)
        for info in graph.input:
            if info.name not in scope.things:
                self._noted("input", info.name, lambda info=info: scope.things.update({info.name: self._input(info)}))
                scope.things.setdefault(info.name, None)
        self._check_fixed(graph)
        self.nodes(graph.node, scope)
        outputs: dict[str, Value] = {}
        for info in graph.output:
            self._noted("output", info.name, lambda info=info: outputs.update({info.name: self._output(info, scope)}))
        if self.refusals:
            raise self._unsupported()
        if not outputs:
            raise OnnxError("the graph has no output")
        if self._every:
            outputs.update(self._results(graph.node, scope, outputs))
        with foreign_errors("outputs of the graph", OnnxError):
            self.graph.set_outputs(outputs)
        self.graph.erase_dead()

    def _noted(self, kind: str, name: str, run: Callable[..., object]) -> None:
        """Runs what may be refused, and notes a refusal of an input or output."""
        try:
            run()
        except Abandoned:
            pass
        except Refused as refused:
            self.refusals.append(Refusal(kind, name, str(refused), refused.inputs))
        except BudgetError:
            raise
        except OnnxError:
            raise
        except RlxError as error:
            self.refusals.append(Refusal(kind, name, _reason(error), frozenset()))

    def _check_fixed(self, graph: onnx.GraphProto) -> None:
        known = [info.name for info in graph.input]
        for name in self.fixed:
            if name not in known:
                raise OnnxError(f"the model has no input {shortened(name)} to fix, it has {', '.join(known) or 'none'}")

    def _check_functions(self) -> None:
        names = list(self.functions)
        if len(set(names)) != len(self.message.functions):
            raise OnnxError("the model has two functions of one name")

    def _initialisers(self, graph: onnx.GraphProto, scope: Scope) -> None:
        """Weights of a graph, by name."""
        if graph.sparse_initializer:
            raise OnnxUnsupportedError("the model has sparse weights, which can't be read")
        for tensor in graph.initializer:
            if tensor.name in scope.things:
                raise OnnxError(f"there are two initialisers {shortened(tensor.name)}")

            def read(tensor: onnx.TensorProto = tensor) -> None:
                array = self.tensors.read(tensor, f"initialiser {shortened(tensor.name)}")
                scope.things[tensor.name] = Tensor.of(array, name=tensor.name)

            try:
                read()
            except OnnxError:
                raise
            except BudgetError:
                raise
            except RlxError as error:
                self.refusals.append(Refusal("initialiser", tensor.name, str(error), frozenset()))
                scope.things[tensor.name] = None

    # -- inputs and outputs ------------------------------------------------------------------------------------------

    def _input(self, info: onnx.ValueInfoProto) -> Thing:
        """The value of an input of the model."""
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            raise Refused(f"an input is a tensor, but this one is of {kind or 'no type'}")
        own = info.type.tensor_type
        dtype = NUMPY.get(own.elem_type)
        if info.name in self.fixed:
            return self._fixed(info.name, dtype, own)
        if dtype is None or not in_graphs(dtype):
            raise Refused(f"values of graphs can't have elements of type {name_of(own.elem_type)}")
        if not own.HasField("shape"):
            raise Refused("an input has a shape, but this one has none")
        shape = [self._dimension(info.name, axis, dim) for axis, dim in enumerate(own.shape.dim)]
        value = self.graph.input(info.name, shape, dtype)
        for axis, size in enumerate(shape):
            if isinstance(size, str):
                self._sizes.note(size, value, axis)
        tensor = Tensor.running(value)
        self._roots[id(value)] = (value, frozenset([info.name]))
        return tensor

    def _fixed(self, name: str, dtype: np.dtype | None, own: onnx.TypeProto.Tensor) -> Tensor:
        """An input that is known, where it fits what the file declares."""
        array = np.asarray(self.fixed[name])
        if dtype is not None and array.dtype != dtype:
            raise OnnxError(f"input '{name}' is fixed to elements of {array.dtype}, but the model declares {dtype}")
        dims = [int(dim.dim_value) if dim.HasField("dim_value") else None for dim in own.shape.dim]
        fits = not own.HasField("shape") or (
            len(dims) == array.ndim and all(a in (None, b) for a, b in zip(dims, array.shape, strict=True))
        )
        if not fits:
            raise OnnxError(f"input '{name}' is fixed to an array of {array.shape}, but the model declares {dims}")
        return Tensor.of(array, name=name)

    def _dimension(self, name: str, axis: int, dim: onnx.TensorShapeProto.Dimension) -> int | str:
        """A size of an input: a number, or a symbol for a name or for nothing."""
        if dim.HasField("dim_value"):
            size = int(dim.dim_value)
            if size < 0:
                raise OnnxError(f"input '{name}' has a size {size}")
            return size
        text = dim.dim_param or f"{name}_{axis}"
        if text not in self.symbols:
            symbol, number = _word(text) or "size", 2
            while symbol in self.symbols.values():
                symbol, number = f"{_word(text) or 'size'}_{number}", number + 1
            self.symbols[text] = symbol
        return self.symbols[text]

    def _output(self, info: onnx.ValueInfoProto, scope: Scope) -> Value:
        try:
            thing = scope.find(info.name)
        except KeyError:
            raise OnnxError(f"nothing computes the output {shortened(info.name)}") from None
        if thing is None:
            raise Abandoned
        if isinstance(thing, Several):
            raise Refused("an output is a tensor, but this one is a sequence or optional")
        return self.value(thing)

    def _results(self, nodes: Iterable[onnx.NodeProto], scope: Scope, known: Mapping[str, Value]) -> dict[str, Value]:
        """What nodes compute, by name, but for what is known and what no value of a module can be."""
        found: dict[str, Value] = {}
        for name in (name for node in nodes for name in node.output):
            thing = scope.things.get(name)
            if name not in known and isinstance(thing, Tensor):
                with suppress(Refused, UnsupportedError):
                    found[name] = self.value(thing)
        return found

    # -- nodes -------------------------------------------------------------------------------------------------------

    def nodes(self, nodes: Iterable[onnx.NodeProto], scope: Scope) -> None:
        """Builds nodes, in order; those that can't be are noted."""
        for node in nodes:
            self._nodes += 1
            budgets.check("nodes", self._nodes, "the model, with bodies of functions and steps of loops,")
            name = node.name or next(iter(node.output), "") or node.op_type
            for output in node.output:
                if output and output in scope.things:
                    raise OnnxError(f"{shortened(output)} is computed twice, the second time by node {shortened(name)}")
            try:
                found = self._node(node, name, scope)
            except Abandoned:
                found = []
            except Refused as refused:
                self._refuse(node, name, str(refused), refused.inputs)
                found = []
            except (OnnxError, BudgetError):
                raise
            except RlxError as error:
                self._refuse(node, name, _reason(error), ())
                found = []
            for number, output in enumerate(node.output):
                if output:
                    scope.things[output] = found[number] if number < len(found) else None

    def _refuse(self, node: onnx.NodeProto, name: str, reason: str, inputs: Iterable[str]) -> None:
        domain = canonical(node.domain)
        self.refusals.append(
            Refusal(f"{domain}.{node.op_type}" if domain else node.op_type, name, reason, frozenset(inputs))
        )

    def _node(self, node: onnx.NodeProto, name: str, scope: Scope) -> Sequence[Thing | None]:
        """What a node computes."""
        domain = canonical(node.domain)
        inputs = []
        missing = False
        for operand in node.input:
            try:
                inputs.append(scope.find(operand) if operand else None)
            except KeyError:
                raise OnnxError(f"node {shortened(name)} reads {shortened(operand)}, which nothing computes") from None
            missing |= bool(operand) and inputs[-1] is None
        version = scope.versions.get(domain, 1)
        handler = handler_of(domain, node.op_type, version)
        if (domain, node.op_type) in self.functions:
            handler = None
        if missing:
            self._check_operator(node, domain, version, handler)
            raise Abandoned
        attributes = self._attributes(node, name, scope)
        call = Call(self, node, node.op_type, domain, version, name, attributes, inputs, list(node.output))
        what = f"node {shortened(name)} ({node.op_type})"
        with foreign_errors(what, OnnxError, but=(Refused, Abandoned)):
            folded = self._folded(call) if handler is not None else None
            if folded is not None:
                return folded
            with self.graph.scope(_scope(name, node)):
                self._scope = scope
                if handler is None:
                    return self.body(call)
                found = handler(call)
                listed = [found] if isinstance(found, Tensor | Several) else list(found)
                return self._rooted(listed, inputs)

    def _check_operator(self, node: onnx.NodeProto, domain: str, version: int, handler: Handler | None) -> None:
        """Refuses an operator that nothing is known of, also where its operands can't be computed."""
        if (
            handler is None
            and (domain, node.op_type) not in self.functions
            and self._schema(node, domain, version) is None
        ):
            raise Refused(_UNKNOWN)

    def _folded(self, call: Call) -> list[Thing] | None:
        """The results of a node of known elements; None where it is to be built."""
        fold = fold_of(call.domain, call.op)
        if fold is None:
            return None
        arrays: list[np.ndarray | None] = []
        for thing in call.inputs:
            if thing is None:
                arrays.append(None)
            elif isinstance(thing, Several) or (thing.array is None and call.op not in _OF_SHAPES_AND_TYPES):
                return None
            else:
                arrays.append(thing.array)
        if sum(array.size for array in arrays if array is not None) > MOST_FOLDED:
            return None
        found = fold(call, *arrays)
        if found is None:
            return None
        dtype = self._folded_type(call)
        return [Tensor.of(array, dtype) for array in as_arrays(found)]

    @staticmethod
    def _folded_type(call: Call) -> np.dtype | None:
        """The element type of sizes that a node computes."""
        if call.op == "Cast":
            return NUMPY.get(call.integer("to", 0))
        typed = [thing.dtype for thing in call.inputs if isinstance(thing, Tensor)]
        return typed[-1] if typed and call.op not in _OF_SHAPES else None

    def _rooted(self, found: Sequence[Thing | None], inputs: Sequence[Thing | None]) -> list[Thing | None]:
        """The results, with the model's inputs that they are computed of noted."""
        roots = frozenset[str]().union(*(self.roots(own) for own in inputs if isinstance(own, Tensor)))
        for thing in found:
            if isinstance(thing, Tensor) and thing.handle is not None:
                self._roots.setdefault(id(thing.handle), (thing.handle, roots))
        return list(found)

    def roots(self, tensor: Tensor) -> frozenset[str]:
        """Names of the model's inputs that a value is computed of."""
        if tensor.handle is None:
            return frozenset()
        return self._roots.get(id(tensor.handle), (None, frozenset[str]()))[1]

    def _attributes(self, node: onnx.NodeProto | _Holder, name: str, scope: Scope) -> dict[str, Attribute]:
        """The attributes of a node; those that a function passes on have the values that it was given."""
        found: dict[str, Attribute] = {}
        for own in node.attribute:
            if own.ref_attr_name:
                if scope.given is not None and own.ref_attr_name in scope.given:
                    found[own.name] = scope.given[own.ref_attr_name]
                continue
            word = _ATTRIBUTES.get(own.type)
            if word is None:
                if own.type == _TYPE:
                    continue
                raise Refused(f"its attribute '{own.name}' is of kind {own.type}")
            value = getattr(own, word)
            if word == "t":
                value = self.tensors.read(value, f"attribute '{own.name}' of node {shortened(name)}")
            found[own.name] = list(value) if own.type in (6, 7, 8, 9, 10) else value
        return found

    # -- functions ---------------------------------------------------------------------------------------------------

    def body(self, call: Call) -> Sequence[Thing | None]:
        """The results of a node that is a function: of the model, or one of ONNX's that has a body."""
        own = self.functions.get((call.domain, call.op))
        body = own if own is not None else self._schema(call.node, call.domain, call.version, call)
        if body is None:
            raise Refused(_UNKNOWN)
        if self._nested >= MOST_NESTED:
            raise OnnxError(f"functions are nested more than {MOST_NESTED} deep at node {shortened(call.name)}")
        given, around = dict(call.attributes), self._scope
        defaults = body.attribute_proto if own is not None else self._defaults(call)
        for name, value in self._attributes(_Holder(list(defaults)), call.name, Scope({})).items():
            given.setdefault(name, value)
        versions = {canonical(each.domain): int(each.version) for each in body.opset_import}
        inner = Scope(versions, given=given)
        for number, name in enumerate(body.input):
            inner.things[name] = call.inputs[number] if number < len(call.inputs) else None
        before = len(self.refusals)
        self._nested += 1
        try:
            self._body(body, inner)
        finally:
            self._nested -= 1
            self._scope = around
        if len(self.refusals) > before:
            reasons = {f"{each.op}: {each.reason}" for each in self.refusals[before:]}
            inputs = frozenset[str]().union(*(each.inputs for each in self.refusals[before:]))
            del self.refusals[before:]
            raise Refused(f"its body has {'; '.join(sorted(reasons))}"[:600], inputs)
        return [inner.things.get(name) for name in body.output]

    def _body(self, body: onnx.FunctionProto, scope: Scope) -> None:
        """Builds the nodes of a function, in which operands that were left out are left out."""
        absent = {name for name, thing in scope.things.items() if thing is None}
        nodes = []
        for node in body.node:
            if absent.intersection(node.input):
                copy = type(node)()
                copy.CopyFrom(node)
                for number, name in enumerate(node.input):
                    if name in absent:
                        copy.input[number] = ""
                node = copy
            nodes.append(node)
        self.nodes(nodes, scope)

    def _schema(self, node: onnx.NodeProto, domain: str, version: int, call: Call | None = None) -> Any:
        """The body of one of ONNX's functions; None where it isn't one."""
        library = onnx_library()
        try:
            schema = library.defs.get_schema(node.op_type, version, domain)
        except library.defs.SchemaError:
            return None
        if schema.has_function:
            return schema.function_body
        if not schema.has_context_dependent_function:
            return None
        if call is None:
            return schema
        types = [_type_of(library, thing) for thing in call.inputs]
        content = schema.get_context_dependent_function_with_opset_version(
            max(each for each in schema.context_dependent_function_opset_versions if each <= version),
            _resolved(library, call).SerializeToString(),
            [each.SerializeToString() for each in types],
        )
        body = library.FunctionProto()
        body.ParseFromString(content)
        return body if body.node else None

    @staticmethod
    def _defaults(call: Call) -> list[onnx.AttributeProto]:
        """The attributes that one of ONNX's functions has where a node doesn't say others."""
        schema = onnx_library().defs.get_schema(call.op, call.version, call.domain)
        return [own.default_value for own in schema.attributes.values() if own.default_value.name]

    # -- graphs within graphs ----------------------------------------------------------------------------------------

    def inner(self, graph: onnx.GraphProto, given: Sequence[Thing]) -> list[Thing]:
        """The results of a graph that is an attribute, for what its inputs are; Abandoned where it can't be built."""
        own = Scope(self._scope.versions, self._scope, given=self._scope.given)
        if len(given) != len(graph.input):
            raise OnnxError(f"a graph within a node has {len(graph.input)} inputs, but {len(given)} are given")
        own.things.update(zip((info.name for info in graph.input), given, strict=True))
        self._initialisers(graph, own)
        before, around = len(self.refusals), self._scope
        self._nested += 1
        if self._nested > MOST_NESTED:
            raise OnnxError(f"graphs are nested more than {MOST_NESTED} deep")
        try:
            self.nodes(graph.node, own)
        finally:
            self._nested -= 1
            self._scope = around
        if len(self.refusals) > before:
            raise Abandoned
        found = []
        for info in graph.output:
            thing = own.find(info.name)
            if thing is None:
                raise Abandoned
            found.append(thing)
        return found

    def region(self) -> AbstractContextManager[None]:
        """While it is open, constants are made for the region that is built, and forgotten after it."""
        return self._made.region()

    # -- values ------------------------------------------------------------------------------------------------------

    def value(self, tensor: Tensor) -> Value:
        """A tensor as a value of the graph; known elements become a constant or a parameter, once."""
        if tensor.handle is not None:
            return tensor.handle
        if (found := self._made.find(tensor)) is not None:
            return found
        assert tensor.array is not None
        if tensor.array.dtype == object:
            value = self._computed(tensor)
        elif not in_graphs(tensor.dtype):
            raise Refused(f"values of graphs can't have elements of {tensor.dtype}")
        elif tensor.array.size > MOST_CONSTANT and tensor.array.ndim:
            return self._made.keep(tensor, self._param(tensor), everywhere=True)
        else:
            value = self.graph.constant(np.ascontiguousarray(tensor.array).reshape(tensor.array.shape))
        return self._made.keep(tensor, value)

    def _param(self, tensor: Tensor) -> Value:
        assert tensor.array is not None
        base = tensor.name or "constant"
        name, number = base, 2
        taken = {*self.params, *(info.name for info in self.message.graph.input)} - {tensor.name}
        while name in taken or name in self.params:
            name, number = f"{base}_{number}", number + 1
        self.params[name] = np.ascontiguousarray(tensor.array)
        return self.graph.param(name, list(tensor.array.shape), tensor.dtype)

    def _computed(self, tensor: Tensor) -> Value:
        """Sizes as a value that calls compute."""
        assert tensor.array is not None
        parts = [self.size(Size.of(entry)) for entry in tensor.array.reshape(-1)]
        value = self.graph.reshape(parts[0], [1]) if tensor.array.ndim else parts[0]
        if len(parts) > 1:
            value = self.graph.concat([self.graph.reshape(part, [1]) for part in parts], 0)
        if tensor.array.ndim > 1:
            value = self.graph.reshape(value, list(tensor.array.shape))
        return value if tensor.dtype == np.int64 else self.graph.cast(value, tensor.dtype)

    def size(self, size: Size) -> Value:
        """A size as a number that calls compute, i64 without dimensions."""
        return self._sizes.value(size)

    def carry(self, size: Size) -> None:
        """Sees to it that a value of the graph has a dimension of a size, which results can take it from.

        UnsupportedError where no value can be made that has one.
        """
        self._sizes.carry(size)

    # -- what is refused ---------------------------------------------------------------------------------------------

    def _unsupported(self) -> OnnxUnsupportedError:
        """One error for all refusals: a line for each operator and reason, with how many nodes and which."""
        groups: dict[tuple[str, str], list[str]] = {}
        for each in self.refusals:
            groups.setdefault((each.op, each.reason), []).append(each.node)
        lines = []
        for (op, reason), names in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
            listed = ", ".join(shortened(name, 60) for name in names[:3])
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            lines.append(f"{len(names)} x {op} ({listed}{more}): {reason}")
        total = len(self.refusals)
        operators: dict[str, int] = {}
        for each in self.refusals:
            operators[each.op] = operators.get(each.op, 0) + 1
        inputs = frozenset[str]().union(*(each.inputs for each in self.refusals))
        decisive = inputs if all(each.inputs for each in self.refusals) else frozenset[str]()
        text = "\n  ".join([f"{total} {'part' if total == 1 else 'parts'} of the model can't be compiled", *lines])
        return OnnxUnsupportedError(text, operators=operators, inputs=sorted(decisive))


@dataclass(frozen=True)
class _Holder:
    """Attributes, as a node has them."""

    attribute: Sequence[onnx.AttributeProto]


_UNKNOWN = "there is no such operator here"


def _type_of(library: ModuleType, thing: Thing | None) -> onnx.TypeProto:
    """The type of an operand, as schemas want it."""
    if thing is None:
        empty: onnx.TypeProto = library.TypeProto()
        return empty
    if isinstance(thing, Several):
        raise Refused("an operand is a sequence")
    number = next((number for number, dtype in NUMPY.items() if dtype == thing.dtype), 0)
    sizes = [size.constant if size.constant is not None else str(size) for size in thing.shape]
    made: onnx.TypeProto = library.helper.make_tensor_type_proto(number, sizes)
    return made


def _resolved(library: ModuleType, call: Call) -> onnx.NodeProto:
    """A node with the attributes that the function around it passes on."""
    node: onnx.NodeProto = library.NodeProto()
    node.CopyFrom(call.node)
    del node.attribute[:]
    for own in call.node.attribute:
        if not own.ref_attr_name:
            node.attribute.append(own)
        elif own.name in call.attributes:
            node.attribute.append(library.helper.make_attribute(own.name, call.attributes[own.name]))
    return node


def _reason(error: RlxError) -> str:
    """What an error of a builder says, without the place in a program and the blocks, which the list has."""
    return _PLACE.sub("", str(error)) if isinstance(error, BuildError) else str(error)


def _word(text: str) -> str:
    """A text as a name of letters, digits and `_`."""
    word = _OTHER.sub("_", text).strip("_")
    return f"_{word}" if word[:1].isdigit() else word


def _scope(name: str, node: onnx.NodeProto) -> str:
    """The name of the block that a node becomes: folders of names are scopes."""
    return name.strip("/").replace("/", ".") or str(node.op_type)


def read(
    message: onnx.ModelProto, tensors: Tensors, fixed: Mapping[str, np.ndarray], *, every: bool = False
) -> Importer:
    """The importer of a model, after it ran; its arguments are those of `Importer`."""
    budgets.check("nodes", _count(message), "the model")
    importer = Importer(message, tensors, fixed, every=every)
    importer.run()
    return importer


def _count(message: onnx.ModelProto) -> int:
    """Nodes of a model, without those in graphs within nodes."""
    return len(message.graph.node) + sum(len(own.node) for own in message.functions)


__all__ = ["Importer", "Scope", "read"]
