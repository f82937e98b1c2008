# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Walking and editing of modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rlx_mlir import checks, ir
from rlx_mlir.attributes import python_value
from rlx_mlir.errors import InputError, StageError
from rlx_mlir.hir import place
from rlx_mlir.hir.graph import Graph
from rlx_mlir.hir.values import Value
from rlx_mlir.semantics.function import (
    INPUT,
    PARAM,
    Argument,
    arguments,
    attribute_dictionaries,
    results,
    set_signature,
    set_ties,
    terminator,
    ties,
)


class Node:
    """An operation of a module's entry function, as a handle like `Value`."""

    __slots__ = ("_generation", "_graph", "_op", "index")

    def __init__(self, graph: Graph, op: ir.Operation, index: int) -> None:
        self._graph = graph
        self._generation = graph._generation
        self._op = op
        #: Position among the operations of the function.
        self.index = index

    def _resolve(self) -> ir.Operation:
        if self._generation != self._graph._generation:
            raise StageError(
                f"{place.caller()}: node {self.index} of module '{self._graph.name}' is stale: "
                f"{self._graph._changed_by} changed the module after the node was made"
            )
        return self._op

    @property
    def op(self) -> str:
        """The operation's name, such as `hir.linear`."""
        return str(self._resolve().name)

    @property
    def name(self) -> str:
        """The name of the block that built it, or the operation's own."""
        op = self._resolve()
        return place.block_name(op.location) or op.name.partition(".")[2]

    @property
    def source(self) -> str | None:
        """`file:line` of the program that built it, None where its location doesn't say."""
        found = place.source_line(self._resolve().location)
        return None if found is None else str(found)

    @property
    def operands(self) -> tuple[Value, ...]:
        """What it reads, in order; optional operands that are absent are left out."""
        return tuple(self._graph._value(operand) for operand in self._resolve().operands)

    @property
    def results(self) -> tuple[Value, ...]:
        """What it computes."""
        return tuple(self._graph._value(result) for result in self._resolve().results)

    @property
    def attributes(self) -> dict[str, object]:
        """Its attributes as Python values; enumerations as words."""
        return {
            name: python_value(attribute)
            for name, attribute in self._resolve().attributes.items()
            if name != "operandSegmentSizes"
        }

    def __repr__(self) -> str:
        if self._generation != self._graph._generation:
            return f"<Node {self.index}: stale>"
        return f"<Node {self.index} '{self.name}': {self.op}>"


class Editing(Graph):
    """What looks at a graph, and what changes one that is built already."""

    # -- walking -----------------------------------------------------------------------------------------------------

    def nodes(self) -> list[Node]:
        """The operations of the entry function but its return, in order: operands stand before their users."""
        *ops, _ = self._block.operations
        return [Node(self, op.operation, i) for i, op in enumerate(ops)]

    topological_order = nodes

    def reverse_topological_order(self) -> list[Node]:
        """The operations with users before their operands."""
        return self.nodes()[::-1]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes())

    def __len__(self) -> int:
        return len(self.nodes())

    def __bool__(self) -> bool:
        """True: a module without operations is a module too."""
        return True

    def users(self, value: Value) -> list[Node]:
        """The operations that read a value, each once, in order; the return isn't one."""
        owners = {use.owner.operation for use in self._resolve(value).uses}
        return [node for node in self.nodes() if node._op in owners]

    def use_count(self, value: Value) -> int:
        """How often a value is read, as an operand or as an output of the module."""
        return sum(1 for _ in self._resolve(value).uses)

    @property
    def inputs(self) -> list[Value]:
        """The arguments that are given at each call."""
        return self._arguments(INPUT)

    @property
    def params(self) -> list[Value]:
        """The arguments that are bound once."""
        return self._arguments(PARAM)

    def _arguments(self, kind: str) -> list[Value]:
        listed = zip(arguments(self._function), self._block.arguments, strict=True)
        return [Value(self, handle, argument.name) for argument, handle in listed if argument.kind == kind]

    @property
    def outputs(self) -> dict[str, Value]:
        """What the module returns, by name."""
        named = zip(results(self._function), terminator(self._function).operands, strict=True)
        return {result.name: self._value(handle) for result, handle in named}

    def value(self, name: str) -> Value:
        """The input or parameter of a name; InputError lists the names that there are."""
        names = self._signature.names
        if isinstance(name, str) and name in names:
            return Value(self, self._block.arguments[names.index(name)], name)
        known = arguments(self._function)
        raise InputError(f"module '{self.name}' has no argument {checks.shown(name)}, it has {_names(known)}")

    @property
    def dynamic_symbols(self) -> list[str]:
        """The symbols of the arguments' dynamic dimensions, in order of appearance."""
        words = (word for argument in arguments(self._function) for word in argument.symbols)
        return list(dict.fromkeys(word for word in words if word not in ("", "?")))

    @property
    def has_dynamic_dims(self) -> bool:
        """Whether any argument or result of an operation has a dimension that isn't static."""
        return any(size.constant is None for sizes in self._all_dims().values() for size in sizes)

    # -- editing -----------------------------------------------------------------------------------------------------

    def set_outputs(
        self,
        values: Value | Sequence[Value] | Mapping[str, Value],
        names: Sequence[str] | None = None,
        *,
        tied: Mapping[str, Value | str] | None = None,
    ) -> None:
        """Says what the module returns, in place of what it returned before.

        Args:
            values: the outputs, or outputs by name; one value may stand twice.
            names: of the outputs, `output0`, `output1`, … by default.
            tied: by output name, an input or parameter of the same type, or its name, whose memory the output takes
                in calls that donate it, such as `executable.run(inputs, donate=["w"])`; other calls give a new array.
                Each argument has one such output. Compiling raises UnsupportedError, with the reason, where something
                reads the argument after the output is written: element-wise operations may compute one from the other,
                products, sums and transposes may not. Caches that are updated in place need no tie. No operation makes
                packed weights, so that a packed parameter is tied to itself alone.

        Raises BuildError where names are empty, repeat or don't fit the values, or an output is tied to what isn't an
        argument of its type, or has another output.
        """
        here = place.caller()
        if self._open:
            raise here.error("a region of an operation is being built, which returns what its function gives")
        if isinstance(values, Mapping):
            if names is not None:
                raise here.error("outputs are named by the mapping or by 'names', but got both")
            names, listed = list(values), list(values.values())
        elif isinstance(values, Value):
            listed = [values]
        elif isinstance(values, Iterable) and not isinstance(values, str) and getattr(values, "ndim", 1) != 0:
            listed = list(values)
        else:
            raise here.error(f"outputs are a Value, or several in a list or a mapping from names, but got {values!r}")
        with place.checking():
            names = [f"output{i}" for i in range(len(listed))] if names is None else list(checks.names("names", names))
            tied = {} if tied is None else checks.mapping("tied", tied, "a mapping from outputs to arguments")
        if "" in names:
            raise here.error("the name of an output is a non-empty string, but got ''")
        if len(names) != len(listed):
            raise here.error(f"each output has one name, but there are {len(listed)} outputs and {len(names)} names")
        if len(set(names)) != len(names):
            raise here.error(f"the names of outputs differ, but got {names}")
        handles = [
            self._operand(value, f"output '{name}'", here, []) for name, value in zip(names, listed, strict=True)
        ]
        resolved = {name: self._tied_argument(name, value, here) for name, value in tied.items()}
        if unknown := sorted(resolved.keys() - set(names)):
            raise here.error(f"outputs {unknown} are tied, but the outputs are {names}")
        for name, handle in zip(names, handles, strict=True):
            target = resolved.get(name)
            if target is not None and (not isinstance(target, ir.BlockArgument) or target.type != handle.type):
                raise here.error(
                    f"output '{name}', {handle.type}, is tied to an argument of its type, but got {target.type} "
                    f"of '{self._value(target).name}'"
                )
        by_target: dict[ir.Value, str] = {}
        for name, target in resolved.items():
            if (other := by_target.setdefault(target, name)) != name:
                raise here.error(
                    f"outputs '{other}' and '{name}' are tied to '{self._value(target).name}', but its memory is one's"
                )
        context = self._context
        old = terminator(self._function)
        with context, here.location(context, "return"), ir.InsertionPoint(old):
            ir.Operation.create("func.return", operands=handles)
        old.erase()
        attributes = [{"mir.name": ir.StringAttr.get(name, context)} for name in names]
        set_signature(self._function, outputs=[handle.type for handle in handles], res_attrs=attributes)
        set_ties(self._function, {name: self._value(target).name for name, target in resolved.items()})

    def _tied_argument(self, output: str, argument: Value | str, here: place.Place) -> ir.Value:
        """What an output is tied to: the handle of a value, or of the argument of a name."""
        if isinstance(argument, Value):
            return self._resolve(argument)
        names = self._signature.names
        if isinstance(argument, str) and argument in names:
            found: ir.Value = self._block.arguments[names.index(argument)]
            return found
        raise here.error(
            f"output '{output}' is tied to an argument or the name of one, but got {argument!r}; "
            f"module '{self.name}' has {_names(arguments(self._function))}"
        )

    def set_inputs(self, inputs: Sequence[str] | Mapping[str, str]) -> list[Value]:
        """Makes the given arguments the inputs, in this order, before all others; handles become stale.

        Parameters among them become inputs. Inputs that aren't listed go away, which needs that nothing reads them;
        parameters that aren't listed stay, in their order.

        Args:
            inputs: names of arguments, or present names by new name.

        Returns new handles of the inputs.
        """
        here = place.caller()
        with place.checking():
            if isinstance(inputs, Mapping):
                renamed = dict(checks.mapping("inputs", inputs, "a mapping from new names to present ones"))
                checks.names("inputs", list(renamed.values()))
            else:
                renamed = {name: name for name in checks.names("inputs", inputs)}
        if "" in renamed:
            raise here.error("the name of an input is a non-empty string, but got ''")
        known = {argument.name: argument for argument in arguments(self._function)}
        if missing := [old for old in renamed.values() if old not in known]:
            raise here.error(f"module '{self.name}' has no argument {missing}, it has {_names(list(known.values()))}")
        chosen = list(renamed.values())
        if len(set(chosen)) != len(chosen) or (not isinstance(inputs, Mapping) and len(renamed) != len(inputs)):
            raise here.error(f"each argument becomes one input, but got {list(inputs)}")
        rest = [argument for argument in known.values() if argument.name not in chosen]
        for argument in rest:
            if argument.kind == PARAM and argument.name in renamed:
                raise here.error(f"'{argument.name}' would name an input and a parameter")
            if argument.kind == INPUT and next(iter(self._block.arguments[argument.index].uses), None) is not None:
                raise here.error(f"input '{argument.name}' isn't among the new inputs {chosen}, but is read")
        order = [(new, INPUT, known[old]) for new, old in renamed.items()]
        order += [(argument.name, PARAM, argument) for argument in rest if argument.kind == PARAM]
        self._reorder(order)
        self.invalidate("set_inputs")
        return self._arguments(INPUT)

    def _reorder(self, order: Sequence[tuple[str, str, Argument]]) -> None:
        """Replaces the arguments by these, each with its name and kind."""
        block, old = self._block, len(self._block.arguments)
        attributes = attribute_dictionaries(self._function, "arg_attrs", old)
        context = self._context
        new_attributes = []
        for name, kind, argument in order:
            handle = block.arguments[argument.index]
            handle.replace_all_uses_with(block.add_argument(handle.type, handle.location))
            words = {"mir.name": ir.StringAttr.get(name, context), "mir.kind": ir.StringAttr.get(kind, context)}
            new_attributes.append({**attributes[argument.index], **words})
        for index in reversed(range(old)):
            block.erase_argument(index)
        renamed = {argument.name: name for name, _, argument in order}
        kept = {output: renamed[name] for output, name in ties(self._function).items() if name in renamed}
        set_ties(self._function, kept)
        types = [argument.type for argument in block.arguments]
        set_signature(self._function, inputs=types, arg_attrs=new_attributes)

    def set_operands(self, node: Node, operands: Sequence[Value]) -> Node:
        """Lets an operation read other values; handles become stale.

        Args:
            node: of this module.
            operands: as many as it has, each of the type of the one in its place, and computed before it.

        Returns a new handle of the operation. Raises BuildError where they don't fit.
        """
        here = place.caller()
        if not isinstance(node, Node) or node._graph is not self:
            raise here.error(f"a Node of module '{self.name}' is expected, but got {checks.shown(node)}")
        op = node._resolve()
        if isinstance(operands, str | bytes) or not isinstance(operands, Sequence):
            raise here.error(f"'operands' is a sequence of values, but got {checks.shown(operands)}")
        handles = [self._resolve(value) for value in operands]
        if len(handles) != len(op.operands):
            raise here.error(f"'{op.name}' has {len(op.operands)} operands here, but got {len(handles)}")
        for number, (old, new) in enumerate(zip(op.operands, handles, strict=True)):
            if old.type != new.type:
                raise here.error(f"operand {number} of '{op.name}' is of {old.type}, but got {new.type}")
            if isinstance(new, ir.OpResult) and not ir.OpResult(new).owner.operation.is_before_in_block(op):
                raise here.error(
                    f"operand {number} of '{op.name}' is computed before it, but '{operands[number].name}' isn't"
                )
        for number, new in enumerate(handles):
            op.operands[number] = new
        self.invalidate("set_operands")
        return self.nodes()[node.index]

    def replace(self, old: Value, new: Value) -> Value:
        """Lets everything that reads `old` read `new`; erases what only computed `old`. Handles become stale.

        Returns a new handle of `new`. Raises BuildError where their types differ, or a user of `old` stands before
        `new`.
        """
        here = place.caller()
        before, after = self._resolve(old), self._resolve(new)
        if before.type != after.type:
            raise here.error(f"'{new.name}' can't replace '{old.name}': their types are {after.type} and {before.type}")
        if before != after:
            self._check_order(old, new, here)
            # The replacement may be computed from what it replaces, as when an operation is inserted after another.
            if isinstance(after, ir.OpResult):
                before.replace_all_uses_except(after, _chain(before, after))
            else:
                before.replace_all_uses_with(after)
            _erase_dead(before)
        self.invalidate("replace")
        return self._value(after)

    def _check_order(self, old: Value, new: Value, here: place.Place) -> None:
        if isinstance(new._handle, ir.BlockArgument):
            return
        maker = ir.OpResult(new._handle).owner.operation
        keep = set(_chain(old._handle, new._handle))
        for use in old._handle.uses:
            user = use.owner.operation
            if user not in keep and user != maker and not maker.is_before_in_block(user):
                raise here.error(
                    f"'{new.name}' can't replace '{old.name}': '{user.name}' reads it before '{new.name}' is computed"
                )

    def erase_dead(self) -> int:
        """Erases operations whose results nothing reads; handles become stale where there were any.

        Returns their number.
        """
        count = 0
        for node in self.reverse_topological_order():
            if all(next(iter(result.uses), None) is None for result in node._op.results):
                node._op.erase()
                count += 1
        if count:
            self.invalidate("erase_dead")
        return count


def _chain(old: ir.Value, new: ir.Value) -> list[ir.Operation]:
    """The operations between two values: those that `new` is computed by, and that depend on `old`."""
    depends: dict[ir.Operation, bool] = {}

    def visit(value: ir.Value) -> bool:
        if value == old:
            return True
        if isinstance(value, ir.BlockArgument):
            return False
        owner = ir.OpResult(value).owner.operation
        if owner not in depends:
            depends[owner] = False
            depends[owner] = any(visit(operand) for operand in owner.operands)
        return depends[owner]

    visit(new)
    return [op for op, on_chain in depends.items() if on_chain]


def _erase_dead(value: ir.Value) -> None:
    """Erases the operation of a value where nothing reads its results."""
    if isinstance(value, ir.OpResult):
        owner = value.owner.operation
        if all(next(iter(result.uses), None) is None for result in owner.results):
            owner.erase()


def _names(listed: Sequence[Argument]) -> str:
    return ", ".join(argument.name for argument in listed) or "none"
