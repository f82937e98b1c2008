# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Row-wise programs: what a caller says (`RowProgram`), the primitive nodes it stands for, and their loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.conversions import COMPARISONS, IN_F32
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of
from rlx_mlir.codegen.program import ELEMENTWISE

Role = Literal["row", "vector", "scalar", "periodic", "table", "pos", "tied"]
PEAK = "peak"
"""The maximum of a softmax, which NaN may go through or not: exponentials of NaN make all of its results NaN."""

REDUCTIONS: dict[str, tuple[str, str, float]] = {
    "sum": ("arith.addf", "add", 0.0),
    "mean": ("arith.addf", "add", 0.0),
    "prod": ("arith.mulf", "mul", 1.0),
    "max": ("arith.maximumf", "maximumf", float("-inf")),
    "min": ("arith.minimumf", "minimumf", float("inf")),
    PEAK: ("arith.maximumf", "maximumf", float("-inf")),
}
CHEAP = frozenset({"add", "sub", "mul", "max", "min", "neg", "abs"})
"""What a later loop computes again rather than loads, up to a depth of 2."""


@dataclass(frozen=True)
class Operand:
    """An operand of the kernel, in order.

    role: "row" is [R, W] (with W = 1, one value a row), "vector" [W] serves every row, "periodic" [R', W] repeats along
    R (numpy broadcasting over leading dimensions), "scalar" has one element; "table" is a rope table [P, head_dim / 2],
    "pos" is [B] i32, "tied" is a cache that is only updated: its result is the same memory.
    width: W where it isn't the last dimension: a divisor of it (heads as rows), the product of the last dimensions, or
    1 for a reduced value without a kept dimension.
    """

    name: str
    type: str
    role: Role = "row"
    width: int | None = None


@dataclass(frozen=True)
class Step:
    """`name = op(operands)`, with MIR's names of ops and attributes; an absent optional operand is None.

    Elementwise ops, compare{kind}, where, cast{to}, constant{value}, reduce{kind}, softmax, rms_norm and layer_norm
    (x, gamma?, beta?){eps}, fused_residual_rms_norm and fused_residual_layer_norm (x, residual, bias?, gamma?, beta?),
    narrow{start, length}, fused_swiglu{gate_first}, rope (x, cos, sin, pos?){head_dim, n_rot, style}. All but the
    elementwise ones work along the row; attributes `axis` and `axes` aren't looked at.
    """

    name: str
    op: str
    operands: tuple[str | None, ...] = ()
    attributes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """A result of the kernel, in order: the rows of `value`, a step or a row operand.

    pos: the operand that makes this a cache update: row (b, s) goes to row pos[b] + s of a cache [B, P, E], or nowhere
    if the cache has no such row. width: as for `Operand`.
    """

    name: str
    type: str
    value: str
    pos: str | None = None
    width: int | None = None


@dataclass(frozen=True)
class RowProgram:
    """A group as a whole.

    space: the row operand whose leading dimensions are the rows; the first one by default.
    position_axis: which of them rope and cache updates count along, by default the last; axis 0 before it is the batch.
    E.g. [B, S, H*D] with width D has rows (b, s, h), leading dimensions [B, S] and positions s.
    """

    operands: tuple[Operand, ...]
    steps: tuple[Step, ...]
    results: tuple[Result, ...]
    space: str | None = None
    position_axis: int | None = None


# -- shapes -----------------------------------------------------------------------------------------------------------


def rows_of(em: Emitter, buffer: Value, width: int | None) -> Index:
    """How many rows of `width` a buffer has."""
    _, leading, count = split_rows(buffer.type, width)
    total: Index = count
    for axis in range(len(leading)):
        total = total * em.dim(buffer, axis)
    return total


def split_rows(type: str, width: int | None) -> tuple[int, tuple[int | None, ...], int]:
    """(W, leading dimensions, rows in the remaining ones) of a buffer seen as rows of `width`."""
    shape = shape_of(type)
    last = shape[-1] if shape else 1
    if width is None:
        if last is None:
            raise UnsupportedByTemplate(f"rows: expects a static last dimension, but got {type}")
        width = last
    if width < 1:
        raise UnsupportedByTemplate(f"rows: expects rows of at least one element, but got {type}")
    if width == 1 and last != 1:
        return 1, shape, 1
    rest, inner = width, 1
    leading = list(shape)
    while leading and rest > 1:
        size = leading.pop()
        if size is None or (rest % size and size % rest):
            raise UnsupportedByTemplate(f"rows: expects dimensions that make up rows of {width}, but got {type}")
        rest, inner = (rest // size, 1) if rest % size == 0 else (1, size // rest)
    if rest != 1:
        raise UnsupportedByTemplate(f"rows: expects rows of {width} elements, but got {type}")
    return width, tuple(leading), inner


def _static_rows(type: str, width: int | None) -> int | None:
    _, leading, count = split_rows(type, width)
    for size in leading:
        if size is None:
            return None
        count *= size
    return count


# -- the program as a graph of primitive nodes ------------------------------------------------------------------------


@dataclass(eq=False)
class Node:
    """One value: `width` columns, or one number a row (width 1).

    kind: load, scalar, const, map (elementwise), compare, round, narrow, reduce, rope. `op` is the operation, or the
    operand that is loaded. `level` is the number of column loops that have to be over before it can be computed.
    """

    kind: str
    width: int
    inputs: tuple[Node, ...] = ()
    op: str = ""
    number: float = 0.0
    start: int = 0
    rope: Rope | None = None
    boolean: bool = False
    level: int = field(init=False)

    def __post_init__(self) -> None:
        self.level = max((node.level for node in self.inputs), default=0) + (self.kind in ("reduce", "rope"))

    @property
    def is_weight(self) -> bool:
        """Whether it is an exponential of a softmax, which is at most 1."""
        if self.op != "exp" or self.inputs[0].op != "sub":
            return False
        peak = self.inputs[0].inputs[1]
        return peak.kind == "reduce" and peak.op == PEAK

    @property
    def cheap_depth(self) -> int:
        """Operations to compute it from memory again; 3 if that isn't worth it."""
        if self.width == 1 or self.kind == "load":
            return 0
        if self.kind == "narrow":
            return self.inputs[0].cheap_depth
        if (self.kind == "map" and self.op in CHEAP) or self.boolean:
            return min(3, 1 + sum(node.cheap_depth for node in self.inputs))
        return 3


@dataclass(frozen=True)
class Rope:
    head_dim: int
    n_rot: int
    interleaved: bool
    cos: str
    sin: str
    pos: str | None


class Graph:
    """Steps expanded into nodes; checks what the types say."""

    def __init__(self, program: RowProgram) -> None:
        self.program = program
        self.operands = {operand.name: operand for operand in program.operands}
        self.nodes: list[Node] = []
        self.values: dict[str, Node] = {}
        rows = [operand for operand in program.operands if operand.role == "row"]
        spaces = [operand for operand in rows if program.space in (None, operand.name)]
        if not spaces:
            named = f" '{program.space}'" if program.space else ""
            raise UnsupportedByTemplate(
                f"rows: expects an operand{named} of several rows, which says how many there are"
            )
        self.space = spaces[0]
        _, self.leading, self.inner = split_rows(self.space.type, self.space.width)
        self.axis = len(self.leading) - 1 if program.position_axis is None else program.position_axis
        for operand in program.operands:
            self._operand(operand)
        for step in program.steps:
            try:
                self.values[step.name] = self._step(step)
            except UnsupportedByTemplate as error:
                raise UnsupportedByTemplate(f"rows: step '{step.name}' = {step.op}: {error}") from None
        self.sinks = [Sink(i, result, self._result(result)) for i, result in enumerate(program.results)]

    # -- operands and results -----------------------------------------------------------------------------------------

    def _operand(self, operand: Operand) -> None:
        element = element_of(operand.type)
        if operand.role in ("pos", "tied"):
            if operand.role == "pos" and (element != "i32" or len(shape_of(operand.type)) != 1):
                raise UnsupportedByTemplate(f"rows: expects '{operand.name}' to be [B] of i32, but got {operand.type}")
            return
        if element not in IN_F32 or "," in operand.type:
            raise UnsupportedByTemplate(
                f"rows: expects '{operand.name}' in {', '.join(IN_F32)}, but got {operand.type}"
            )
        if operand.role == "table":
            return
        if operand.role == "scalar":
            if any(size != 1 for size in shape_of(operand.type)):
                raise UnsupportedByTemplate(f"rows: expects '{operand.name}' of one element, but got {operand.type}")
            self.values[operand.name] = self._add(Node("scalar", 1, op=operand.name))
            return
        width, leading, _ = split_rows(operand.type, operand.width)
        if operand.role == "vector" and any(size != 1 for size in leading):
            raise UnsupportedByTemplate(f"rows: expects the vector '{operand.name}' as one row, but got {operand.type}")
        if operand.role == "row":
            self._same_rows(operand.name, operand.type, operand.width)
        self.values[operand.name] = self._add(Node("load", width, op=operand.name))

    def _same_rows(self, name: str, type: str, width: int | None) -> None:
        expected, got = _static_rows(self.space.type, self.space.width), _static_rows(type, width)
        if expected is not None and got is not None and expected != got:
            raise UnsupportedByTemplate(f"rows: expects '{name}' to have {expected} rows, but {type} has {got}")

    def _result(self, result: Result) -> Node:
        node = self.values.get(result.value)
        if node is None:
            raise UnsupportedByTemplate(f"rows: result '{result.name}' names '{result.value}', which is no value")
        if element_of(result.type) not in IN_F32 or "," in result.type or node.boolean:
            raise UnsupportedByTemplate(f"rows: expects '{result.name}' in {', '.join(IN_F32)}, but got {result.type}")
        if result.pos is None:
            width, _, _ = split_rows(result.type, result.width)
            self._same_rows(result.name, result.type, result.width)
        else:
            width = node.width if result.width is None else result.width
            self._check_cache(result, width)
        if node.width not in (width, 1):
            raise UnsupportedByTemplate(f"rows: '{result.name}' has rows of {width}, but its value has {node.width}")
        return node if node.width == width else self._add(Node("map", width, (node,), op="copy"))

    def _check_cache(self, result: Result, width: int) -> None:
        """A cache [B, P, E] holds the rows of one position side by side, in the order in which the space has them."""
        self._check_position(result.pos)
        shape, after = shape_of(result.type), self.leading[self.axis + 1 :]
        if self.axis > 1 or len(shape) < 3 or None in shape[2:] or None in after:
            raise UnsupportedByTemplate(
                f"rows: expects a cache [B, P, E] and rows of [B, S, ...], but got {result.type}"
            )
        row, cached = width * self.inner * _product(after), _product(shape[2:])
        if row != cached:
            raise UnsupportedByTemplate(f"rows: expects a cache with {row} elements a position, but got {result.type}")

    def _check_position(self, pos: str | None) -> None:
        if pos is not None and (pos not in self.operands or self.operands[pos].role != "pos"):
            raise UnsupportedByTemplate(f"rows: expects an operand of role pos, but got '{pos}'")
        if not -1 <= self.axis < len(self.leading):
            raise UnsupportedByTemplate(
                f"rows: expects position_axis in 0..{len(self.leading) - 1}, but got {self.axis}"
            )

    # -- steps --------------------------------------------------------------------------------------------------------

    def _add(self, node: Node) -> Node:
        self.nodes.append(node)
        return node

    def _map(self, op: str, *inputs: Node) -> Node:
        widths = {node.width for node in inputs} - {1}
        if len(widths) > 1:
            raise UnsupportedByTemplate(f"expects operands of one width, but got {sorted(widths)}")
        return self._add(Node("map", max(node.width for node in inputs), inputs, op=op))

    def _number(self, value: float) -> Node:
        return self._add(Node("const", 1, number=value))

    def _reduce(self, kind: str, x: Node) -> Node:
        if x.width == 1:
            return x
        total = self._add(Node("reduce", 1, (x,), op=kind))
        # Divided: a product with a rounded 1 / n isn't the mean even where the sum is exact.
        return self._map("div", total, self._number(float(x.width))) if kind == "mean" else total

    def _narrow(self, x: Node, start: int, length: int) -> Node:
        if start < 0 or length < 1 or start + length > x.width:
            raise UnsupportedByTemplate(f"expects columns of 0..{x.width}, but got {start}..{start + length}")
        if length == x.width:
            return x
        if x.kind == "load":
            return self._add(Node("load", length, op=x.op, start=x.start + start))
        if length == 1:
            raise UnsupportedByTemplate("a single column of a computed row isn't supported")
        return self._add(Node("narrow", length, (x,), start=start))

    def _step(self, step: Step) -> Node:
        named = [None if name is None else self.values.get(name) for name in step.operands]
        attributes = step.attributes
        if step.op == "rope":
            return self._rope(step)
        for name, node in zip(step.operands, named, strict=True):
            if name is not None and node is None:
                raise UnsupportedByTemplate(f"expects values, but '{name}' isn't one")
        given = [node for node in named if node is not None]
        if step.op in ELEMENTWISE:
            if len(given) != ELEMENTWISE[step.op]:
                raise UnsupportedByTemplate(f"expects {ELEMENTWISE[step.op]} operands, but got {len(given)}")
            if [node.boolean for node in given] != [step.op == "where" and i == 0 for i in range(len(given))]:
                raise UnsupportedByTemplate(
                    "expects floating-point operands, and a comparison where a condition stands"
                )
            return self._map(step.op, *given)
        if step.op == "constant":
            value = attributes.get("value")
            if not isinstance(value, (int, float)):
                raise UnsupportedByTemplate(f"expects one number, but got {value!r}")
            return self._number(float(value))
        handlers: dict[str, Callable[[Sequence[Node | None], Mapping[str, object]], Node]] = {
            "compare": self._compare,
            "cast": self._cast,
            "reduce": self._reduction,
            "softmax": self._softmax,
            "rms_norm": self._norm,
            "layer_norm": lambda operands, attrs: self._norm(operands, attrs, centre=True),
            "fused_residual_rms_norm": self._residual_norm,
            "fused_residual_layer_norm": lambda operands, attrs: self._residual_norm(operands, attrs, centre=True),
            "narrow": lambda operands, attrs: self._narrow(
                _present(operands, 0), _integer(attrs, "start"), _integer(attrs, "length")
            ),
            "fused_swiglu": self._swiglu,
        }
        if step.op not in handlers:
            raise UnsupportedByTemplate("isn't a row-wise op that the template knows")
        return handlers[step.op](named, attributes)

    def _compare(self, operands: Sequence[Node | None], attributes: Mapping[str, object]) -> Node:
        kind = str(attributes.get("kind"))
        if kind not in COMPARISONS:
            raise UnsupportedByTemplate(f"expects kind in {', '.join(COMPARISONS)}, but got {kind}")
        left, right = _present(operands, 0), _present(operands, 1)
        if len({left.width, right.width} - {1}) > 1:
            raise UnsupportedByTemplate(f"expects operands of one width, but got {left.width} and {right.width}")
        return self._add(Node("compare", max(left.width, right.width), (left, right), op=kind, boolean=True))

    def _cast(self, operands: Sequence[Node | None], attributes: Mapping[str, object]) -> Node:
        x, to = _present(operands, 0), str(attributes.get("to"))
        if to not in IN_F32 or x.boolean:
            raise UnsupportedByTemplate(f"expects floating-point types, but got {to}")
        return x if to == "f32" else self._add(Node("round", x.width, (x,), op=to))

    def _reduction(self, operands: Sequence[Node | None], attributes: Mapping[str, object]) -> Node:
        kind = str(attributes.get("kind"))
        if kind not in REDUCTIONS or kind == PEAK:
            known = ", ".join(own for own in REDUCTIONS if own != PEAK)
            raise UnsupportedByTemplate(f"expects kind in {known}, but got {kind}")
        return self._reduce(kind, _present(operands, 0))

    def _softmax(self, operands: Sequence[Node | None], attributes: Mapping[str, object]) -> Node:
        x = _present(operands, 0)
        weight = self._map("exp", self._map("sub", x, self._reduce(PEAK, x)))
        inverse = self._map("div", self._number(1.0), self._reduce("sum", weight))
        return self._map("mul", weight, inverse)

    def _norm(self, operands: Sequence[Node | None], attributes: Mapping[str, object], centre: bool = False) -> Node:
        x = _present(operands, 0)
        gamma, beta = (*operands[1:], None, None)[:2]
        eps = attributes.get("eps", 1e-5)
        if not isinstance(eps, (int, float)):
            raise UnsupportedByTemplate(f"expects a number for eps, but got {eps!r}")
        if centre:
            x = self._map("sub", x, self._reduce("mean", x))
        variance = self._reduce("mean", self._map("mul", x, x))
        if centre:
            # The mean is rounded. What it lacks is the mean of the differences, known after the same loop as their
            # squares: without it a row of one large number isn't 0.
            rest = self._reduce("mean", x)
            less = self._map("max", self._map("sub", variance, self._map("mul", rest, rest)), self._number(0.0))
            finite = self._add(Node("compare", 1, (variance, self._number(math.inf)), op="lt", boolean=True))
            variance = self._map("where", finite, less, variance)
            x = self._map("sub", x, rest)
        root = self._map("sqrt", self._map("add", variance, self._number(float(eps))))
        y = self._map("mul", x, self._map("div", self._number(1.0), root))
        y = y if gamma is None else self._map("mul", y, gamma)
        return y if beta is None else self._map("add", y, beta)

    def _residual_norm(
        self, operands: Sequence[Node | None], attributes: Mapping[str, object], centre: bool = False
    ) -> Node:
        total = self._map("add", _present(operands, 0), _present(operands, 1))
        bias, *rest = (*operands[2:], None)
        total = total if bias is None else self._map("add", total, bias)
        return self._norm([total, *rest], attributes, centre)

    def _swiglu(self, operands: Sequence[Node | None], attributes: Mapping[str, object]) -> Node:
        x = _present(operands, 0)
        if x.width % 2:
            raise UnsupportedByTemplate(f"expects an even width, but got {x.width}")
        first, second = self._narrow(x, 0, x.width // 2), self._narrow(x, x.width // 2, x.width // 2)
        up, gate = (second, first) if attributes.get("gate_first") else (first, second)
        return self._map("mul", up, self._map("silu", gate))

    def _rope(self, step: Step) -> Node:
        names = (*step.operands, None)[:4]
        x = self.values.get(names[0] or "")
        tables = [self.operands.get(name or "") for name in names[1:3]]
        head_dim = _integer(step.attributes, "head_dim")
        n_rot = _integer(step.attributes, "n_rot") if step.attributes.get("n_rot") is not None else head_dim
        style = str(step.attributes.get("style", "half"))
        if x is None or head_dim < 1 or x.width % head_dim:
            raise UnsupportedByTemplate(f"expects rows of whole heads of size {head_dim}")
        if n_rot % 2 or not 0 < n_rot <= head_dim or style not in ("half", "interleaved"):
            raise UnsupportedByTemplate(f"expects an even n_rot up to head_dim, but got {n_rot}, style {style}")
        for table in tables:
            if table is None or table.role != "table" or shape_of(table.type)[1:] != (head_dim // 2,):
                raise UnsupportedByTemplate(f"expects tables [P, {head_dim // 2}], but got {table and table.type}")
        self._check_position(names[3])
        rope = Rope(head_dim, n_rot, style == "interleaved", str(names[1]), str(names[2]), names[3])
        return self._add(Node("rope", x.width, (x,), rope=rope))


@dataclass(frozen=True)
class Sink:
    """Result number `index`, and the node whose rows it holds."""

    index: int
    result: Result
    node: Node


def _product(sizes: Sequence[int | None]) -> int:
    """The product of static sizes."""
    return math.prod(size for size in sizes if size is not None)


def _present(operands: Sequence[Node | None], position: int) -> Node:
    node = operands[position] if position < len(operands) else None
    if node is None:
        raise UnsupportedByTemplate(f"expects operand {position}")
    return node


def _integer(attributes: Mapping[str, object], name: str) -> int:
    value = attributes.get(name)
    if not isinstance(value, int):
        raise UnsupportedByTemplate(f"expects an integer {name}, but got {value!r}")
    return value


# -- which loop computes what -----------------------------------------------------------------------------------------


@dataclass
class ColumnLoop:
    """One loop over columns: what is summed up, what is put in scratch, what is stored."""

    reductions: list[Node] = field(default_factory=list)
    kept: list[Node] = field(default_factory=list)
    sinks: list[Sink] = field(default_factory=list)


class Plan:
    """Assigns nodes to loops; `kept` are those that get a scratch row, with the level of the loop that fills it."""

    def __init__(self, graph: Graph) -> None:
        self.sinks = graph.sinks
        self.kept: dict[Node, int] = {}
        self._evaluated: dict[Node, int] = {}
        live = self._live()
        self.levels = 1 + max((node.level for node in live), default=0)
        self.reductions = [node for node in graph.nodes if node.kind == "reduce" and node in live]
        self.ropes = [node for node in graph.nodes if node.kind == "rope" and node in live]
        self.numbers = [node for node in graph.nodes if node.width == 1 and node in live and node.kind != "reduce"]
        for level in range(self.levels):
            for node in [*self.reductions, *self.ropes]:
                if node.inputs[0].level == level:
                    self._visit(node.inputs[0], level)
            for sink in self.sinks:
                if sink.node.level == level and sink.node.kind != "rope":
                    self._visit(sink.node, level)

    def _live(self) -> set[Node]:
        live: set[Node] = set()
        todo = [sink.node for sink in self.sinks]
        while todo:
            node = todo.pop()
            if node not in live:
                live.add(node)
                todo.extend(node.inputs)
        return live

    def _visit(self, node: Node, level: int) -> None:
        """A loop of `level` reads the node's columns."""
        if node.width == 1 or node.kind == "load":
            return
        if node.kind == "rope":  # a result takes them from the rope's own loops, every other reader from scratch
            self.kept[node] = node.level - 1
            return
        before = self._evaluated.setdefault(node, level)
        if before < level and node.cheap_depth > 2 and not node.boolean:
            self.kept[node] = before
            return
        for operand in node.inputs:
            self._visit(operand, level)

    def loops(self, level: int) -> dict[int, ColumnLoop]:
        """The loops of one level, by their number of columns."""
        loops: dict[int, ColumnLoop] = {}
        for node in self.reductions:
            if node.inputs[0].level == level:
                loops.setdefault(node.inputs[0].width, ColumnLoop()).reductions.append(node)
        for node, stored in self.kept.items():
            if stored == level and node.kind != "rope":
                loops.setdefault(node.width, ColumnLoop()).kept.append(node)
        for sink in self.sinks:
            if sink.node.level == level and sink.node.width > 1 and sink.node.kind != "rope":
                loops.setdefault(sink.node.width, ColumnLoop()).sinks.append(sink)
        return loops

    def is_short(self, node: Node) -> bool:
        """Whether its columns take a few instructions: sums of them wait for each other, so that unrolling pays."""
        if node.width == 1 or node.kind == "load" or node in self.kept:
            return True
        known = node.kind in ("narrow", "round", "compare") or node.op in CHEAP or node.op in ("div", "where", "copy")
        return known and all(self.is_short(operand) for operand in node.inputs)
