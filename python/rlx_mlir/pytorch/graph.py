# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs of PyTorch's exporter, operation by operation, as modules of this compiler."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from rlx_mlir.errors import InputError, RlxError, UnsupportedError
from rlx_mlir.frontends import positions
from rlx_mlir.frontends.sizes import Sizes
from rlx_mlir.hir import place
from rlx_mlir.hir.module import GraphModule
from rlx_mlir.hir.values import Value
from rlx_mlir.mir.dims import Size, product
from rlx_mlir.pytorch.symbols import Symbols
from rlx_mlir.pytorch.tensors import word_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

#: What a node of a graph stands for: a tensor, what is known of one by its indices, a size, or several of these.
Entry: TypeAlias = Any
Handler = Callable[..., Entry]
HandlerType = TypeVar("HandlerType", bound=Handler)

#: A size or a position as an argument of an operator.
Dimension: TypeAlias = int | Size
#: An end of a slice, or none.
Bound: TypeAlias = Dimension | None
#: An operand of an operator on elements: a tensor or a number.
Operand: TypeAlias = Value | Size | float | int | bool
#: Dimensions that an operator works along: one, several, or all of them.
Axes: TypeAlias = int | Sequence[int] | None
#: A number for all dimensions of an image, or one for each.
Lengths: TypeAlias = int | Size | Sequence[Dimension]
#: Several results: tensors, such as are built where something reads them, and what isn't there.
Results: TypeAlias = tuple[Value | Callable[[], Value] | None, ...]

#: The function that builds each operation, by the name of PyTorch's operator, such as `aten.add.Tensor`.
HANDLERS: dict[str, Handler] = {}
#: The same of operands that are known by their indices; None from one leaves it to `HANDLERS`.
FOLDERS: dict[str, Handler] = {}

#: A frame of the trace that the exporter keeps for each node.
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)


class Unhandled(RlxError):
    """An operator, or a use of one, that has no counterpart; says why, briefly."""


def handles(*names: str) -> Callable[[HandlerType], HandlerType]:
    """Registers a function for operators of PyTorch.

    It is called with the importer, then with the operator's own arguments: tensors as `Value`, sizes as `Size`.
    """

    def add(function: HandlerType) -> HandlerType:
        HANDLERS.update(dict.fromkeys(names, function))
        return function

    return add


def folds(*names: str) -> Callable[[HandlerType], HandlerType]:
    """Registers a function for operators on what is known by indices, which it is given as it is."""

    def add(function: HandlerType) -> HandlerType:
        FOLDERS.update(dict.fromkeys(names, function))
        return function

    return add


def operator_name(target: object) -> str:
    """The name of what a node calls: `aten.add.Tensor` of operators, `operator.getitem` of functions of Python."""
    module = getattr(target, "__module__", "")
    name = getattr(target, "__name__", "")
    if module in ("_operator", "math", "torch") and name:
        return f"{'operator' if module == '_operator' else module}.{name}"
    return str(target)


class Importer:
    """Builds a module from the nodes of a graph of operators.

    Attributes:
        m: the module.
        symbols: what symbolic sizes are called.
        node: the node that is being built.
    """

    def __init__(self, name: str, symbols: Symbols) -> None:
        self.m = GraphModule.mir(name)
        self.symbols = symbols
        self.node: Node = None
        self._sizes = Sizes(self.m)
        self._entries: dict[Node, Entry] = {}
        self._unsupported: Counter[tuple[str, str]] = Counter()
        self._first: dict[tuple[str, str], str] = {}

    # -- what handlers ask -------------------------------------------------------------------------------------------

    def shape(self, value: Tensor | None = None) -> list[int | str]:
        """The shape of what a node gives, the one that is being built by default."""
        fake = self.node.meta["val"] if value is None else value
        return [self.symbols.dim(size) for size in fake.shape]

    def sizes(self, value: Tensor | None = None) -> tuple[Size, ...]:
        """The same as sizes."""
        fake = self.node.meta["val"] if value is None else value
        return tuple(self.symbols.size(size) for size in fake.shape)

    def dtype(self, value: Tensor | None = None) -> str:
        """The word of the element type of what a node gives, the one that is being built by default."""
        return word_of((self.node.meta["val"] if value is None else value).dtype)

    def promoted(self, *operands: Tensor | float) -> str:
        """The element type in which PyTorch computes what it is given, tensors (of meta data) and numbers."""
        import torch

        found: Tensor = operands[0]
        for other in operands[1:]:
            kind = torch.result_type(found, other)
            found = torch.empty((0,) if any(getattr(o, "ndim", 0) for o in (found, other)) else (), dtype=kind)
        return word_of(found.dtype)

    def operand_meta(self, *arguments: object) -> list[Tensor | float]:
        """Meta data of the node's own arguments by position: those of tensors, and numbers as they are."""
        return [getattr(a, "meta", {}).get("val", a) for a in arguments]

    def cast(self, x: Value, dtype: str) -> Value:
        """x in an element type; itself where it has it."""
        from rlx_mlir.dtypes import DTYPES

        if x.dtype == DTYPES[dtype]:
            return x
        if dtype == "i1":
            return self.m.ne(x, 0.0 if x.dtype.kind not in "iu" else 0)
        return self.m.cast(x, dtype)

    def number(self, value: float | int | bool, dtype: str) -> Value:
        """A number without dimensions; infinities and NaN too."""
        from rlx_mlir.dtypes import DTYPES

        with np.errstate(over="ignore"):
            return self.m.constant(np.array(value).astype(DTYPES[dtype]))

    def scalar(self, value: Operand, dtype: str) -> Value:
        """A number, a size or a tensor in an element type."""
        if isinstance(value, Value):
            return self.cast(value, dtype)
        if isinstance(value, Size):
            if value.constant is None:
                found = positions.first(self.m, value, 0, "i64")
                return self.cast(found, dtype)
            value = value.constant
        return self.number(value, dtype)

    def expanded(self, x: Value, shape: Sequence[int | str] | None = None) -> Value:
        """x broadcast to a shape, that of the node's result by default."""
        wanted = list(self.shape() if shape is None else shape)
        return x if list(x.shape) == wanted else self.m.expand(x, wanted)

    def reshaped(self, x: Value, shape: Sequence[int | str] | None = None) -> Value:
        """x in a shape, that of the node's result by default."""
        wanted = list(self.shape() if shape is None else shape)
        return x if list(x.shape) == wanted else self.m.reshape(x, wanted)

    def counter(self, shape: Sequence[int | str], axis: int) -> Value:
        """0, 1, 2, ... (i64) along one dimension of a shape, of size 1 along the others."""
        return self.iota([size if at == axis else 1 for at, size in enumerate(shape)], axis)

    def numbered(self, parts: Sequence[Value], sizes: Sequence[int | str]) -> Value:
        """Places (i64) in dimensions of some sizes that are joined, of the places in each of them."""
        found = parts[0]
        for part, size in zip(parts[1:], sizes[1:], strict=True):
            found = found * self.scalar(size_of(size), "i64") + part
        return found

    def iota(self, shape: Sequence[int | str], axis: int, dtype: str = "i64") -> Value:
        """0, 1, 2, ... along an axis of a shape, whose sizes needn't be those of a value that is there."""
        for size in shape:
            self._sizes.carry(size_of(size))
        return self.m.iota(list(shape), axis, dtype)

    def value(self, entry: Entry) -> Entry:
        """An entry as handlers get it: what is known by indices is built."""
        if positions.is_known(entry):
            return entry.value(self.m)
        if isinstance(entry, list | tuple):
            return type(entry)(self.value(each) for each in entry)
        return entry

    # -- walking -----------------------------------------------------------------------------------------------------

    def set(self, node: Node, entry: Entry) -> None:
        """Says what a node stands for."""
        self._entries[node] = entry

    def get(self, node: Node) -> Value:
        """What a node stands for, as a tensor."""
        entry: Value = self.value(self._entries[node])
        return entry

    def run(self, nodes: Iterable[Node]) -> None:
        """Builds all nodes that call something.

        Raises UnsupportedError, which lists all operators without a counterpart: how many there are of each, where the
        first one stands, and why.
        """
        for node in nodes:
            if node.op != "call_function":
                continue
            self.node = node
            if any(self._entries.get(each, self) is None for each in node.all_input_nodes):
                self._entries[node] = None  # of what isn't there, which is listed already
                continue
            file, line = source_of(node)
            with place.standing(file, line), self.m.scope(scope_of(node)):
                self._entries[node] = self._built(node)
        if self._unsupported:
            lines = [
                f"  {count:>4}  {name}, first at {self._first[name, reason]}" + (f": {reason}" if reason else "")
                for (name, reason), count in self._unsupported.most_common()
            ]
            total = self._unsupported.total()
            raise UnsupportedError(
                f"'{self.m.name}' has {total} operations of PyTorch that aren't supported:\n" + "\n".join(lines)
            )

    def _built(self, node: Node) -> Entry:
        meta = node.meta.get("val")
        if meta is None or not _has_tensors(meta):
            return self._size_of(node, meta)
        name = operator_name(node.target)
        try:
            arguments, options = self.arguments(node.args), self.arguments(node.kwargs)
            folder = FOLDERS.get(name)
            if folder is not None and (found := folder(self, *arguments, **options)) is not None:
                return found
            if name not in HANDLERS:
                raise Unhandled("")
            arguments, options = self.value(arguments), {key: self.value(own) for key, own in options.items()}
            return HANDLERS[name](self, *arguments, **options)
        except (Unhandled, UnsupportedError) as error:
            return self._missing(name, str(error))
        except InputError as error:
            raise InputError(f"{self.m.name}: {name} at {line_of(node)}: {error}") from error

    def _missing(self, name: str, reason: str) -> None:
        key = (name, reason)
        self._unsupported[key] += 1
        self._first.setdefault(key, line_of(self.node))

    def _size_of(self, node: Node, meta: object) -> Entry:
        """A size, a number, or nothing: of checks, which give no tensor."""
        if meta is None or isinstance(meta, bool) or type(meta).__name__ == "SymBool":
            return meta if isinstance(meta, bool) else ()
        if isinstance(meta, float) or type(meta).__name__ == "SymFloat":
            return meta if isinstance(meta, float) else self._missing(operator_name(node.target), "a size as a float")
        if isinstance(meta, list | tuple):
            return type(meta)(self.symbols.size(each) for each in meta)
        try:
            return self.symbols.size(meta)
        except UnsupportedError as error:
            return self._missing(operator_name(node.target), str(error))

    def arguments(self, given: Any) -> Any:
        """Arguments with what nodes stand for in their place."""
        if isinstance(given, list | tuple):
            return type(given)(self.arguments(each) for each in given)
        if isinstance(given, Mapping):
            return {key: self.arguments(each) for key, each in given.items()}
        if hasattr(given, "all_input_nodes"):
            return self._entries[given]
        return given


def _has_tensors(meta: object) -> bool:
    if isinstance(meta, list | tuple):
        return any(_has_tensors(each) for each in meta)
    return hasattr(meta, "shape") and hasattr(meta, "dtype")


def source_of(node: Node) -> tuple[str, int]:
    """File and line of the model that a node comes from: the innermost one that isn't of PyTorch itself."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if "/torch/" not in frame[0]] or frames
    return (own[-1][0], int(own[-1][1])) if own else (f"<{node.name}>", 0)


def line_of(node: Node) -> str:
    """The same as text."""
    file, line = source_of(node)
    return f"{file}:{line}"


def scope_of(node: Node) -> str:
    """The module of the model that a node belongs to, such as `model.layers.0.mlp`; the node's name outside of any."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [str(path) for path, *_ in stack.values() if str(path)]
    return paths[-1] if paths else str(node.name)


def size_of(dimension: int | str) -> Size:
    """A dimension of a shape as a size."""
    return Size.parse(str(dimension))


def whole(shape: Sequence[int | str]) -> int | str:
    """The number of elements of a shape, as a dimension."""
    return positions.words([product(map(size_of, shape))])[0]


def static(value: Dimension, what: str) -> int:
    """A size as a number; Unhandled where it is symbolic."""
    number = value.constant if isinstance(value, Size) else value
    if number is None:
        raise Unhandled(f"{what} depends on symbolic sizes")
    return int(number)


def element_count(shape: Sequence[int | str]) -> int | None:
    """How many elements a shape has, where it has no symbols."""
    return None if any(isinstance(size, str) for size in shape) else math.prod(int(size) for size in shape)
