# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A module's graph as an SVG: a box for each operation, blocks and regions around them.

Boxes name the operation, its block, the type of its results, and the parameters and constants that it reads; only what
is computed, and inputs, have lines. A block is a frame around its operations; those that are nested too deeply are a
box each. A line that would pass many layers ends at a mark that names where it comes from.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlx_mlir import checks
from rlx_mlir.errors import InputError, reason_of
from rlx_mlir.paths import write_output
from rlx_mlir.reports import svg
from rlx_mlir.reports.families import family_of
from rlx_mlir.reports.graph import Graph, Node, Region, Value, walk
from rlx_mlir.reports.layout import Box, Link, arrange, layers
from rlx_mlir.reports.svg import Text

#: Boxes that a drawing has where nothing else is asked for, and at most.
FEW, MOST = 250, 3000
#: Layers that a line passes at most.
_FAR = 12
#: How much lines of inputs and outputs pull at operations: these stand below each other whatever stands beside.
_PULL_OF_PILLS = 0.02
#: Rows of a box for parameters and constants, inputs and outputs that stand in it; the others are counted.
_ROWS = 6
#: Kinds of operations that a box of a whole block names.
_KINDS = 4
#: Operations that are rows of the boxes that read them.
_CONSTANTS = ("mir.constant", "hir.constant")
#: Room around what is in a frame, and the height of its label.
_PAD, _LABEL = 14.0, 20.0


@dataclass(frozen=True)
class Drawing:
    """A drawing of a module; notebooks show it.

    Attributes:
        svg: the text.
        boxes: how many boxes stand for operations or blocks.
        depth: how many blocks are nested in each other at most; those within are boxes.
    """

    svg: str
    boxes: int
    depth: int

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file; InputError where it can't be written."""
        try:
            write_output(path, self.svg)
        except OSError as error:
            raise InputError(f"{os.fspath(path)} cannot be written: {reason_of(error)}") from None

    def __str__(self) -> str:
        return self.svg

    def _repr_svg_(self) -> str:
        return self.svg


def draw(graph: Graph, depth: int | None = None) -> Drawing:
    """The drawing of a graph.

    Args:
        depth: how many blocks are drawn around each other at most: a block within is one box; with 0, every block is.
            By default as many as `FEW` boxes can show, or none.

    Raises InputError where there would be more than `MOST` boxes.
    """
    if depth is not None:
        checks.whole("depth", depth)
    nodes = [node for node in graph.nodes if node.op not in _CONSTANTS]
    deepest = max((len(path_of(node)) for node in walk(nodes)), default=0)
    if depth is None:
        depth = next((own for own in range(deepest, 0, -1) if _count(nodes, own) <= FEW), 0)
    depth = min(depth, deepest)
    boxes = _count(nodes, depth)
    if boxes > MOST:
        fewer = f"; with depth 0 it has {least}" if (least := _count(nodes, 0)) < boxes else ""
        raise InputError(f"a drawing has at most {MOST} boxes, but of '{graph.name}' at depth {depth} {boxes}{fewer}")
    return Drawing(_Scene(graph, depth).text(), boxes, depth)


def path_of(node: Node) -> tuple[str, ...]:
    """The blocks around an operation: one named `model.layers.0.up` is in `model`, `layers.0` and `up`.

    An operation without a name of its own has the word of its kind for one, which is no block.
    """
    found: list[str] = []
    for word in node.block.split(".") if node.block else ():
        if word.isdigit() and found:
            found[-1] += f".{word}"
        else:
            found.append(word)
    return tuple(found[:-1] if found and found[-1] == node.op.partition(".")[2] else found)


@dataclass(frozen=True)
class _Group:
    """Operations one after the other that are in one block, or one alone: its name says what is left of the path."""

    name: tuple[str, ...]
    nodes: tuple[Node, ...]

    @property
    def is_block(self) -> bool:
        return len(self.nodes) > 1


def groups_of(nodes: Sequence[Node], level: int) -> list[_Group]:
    """Operations with those of one block together, where they follow one another: so no block reads what it makes."""
    found: list[list[Node]] = []
    for node in nodes:
        path = path_of(node)
        if found and len(path) > level and path_of(found[-1][-1])[: level + 1] == path[: level + 1]:
            found[-1].append(node)
        else:
            found.append([node])
    groups = []
    for own in found:
        paths = [path_of(node) for node in own]
        end = level + 1
        while len(own) > 1 and len(paths[0]) > end and all(path[: end + 1] == paths[0][: end + 1] for path in paths):
            end += 1
        groups.append(_Group(paths[0][level:] if len(own) == 1 else paths[0][level:end], tuple(own)))
    return groups


def _count(nodes: Sequence[Node], depth: int, level: int = 0) -> int:
    """How many boxes there are, regions' included."""
    total = 0
    for group in groups_of(nodes, level):
        if group.is_block and depth > 0:
            total += _count(group.nodes, depth - 1, level + len(group.name))
            continue
        total += 1
        if not group.is_block:
            inner = len(path_of(group.nodes[0]))
            total += sum(_count(region.nodes, depth, inner) for region in group.nodes[0].regions)
    return total


@dataclass
class _Piece:
    """Something that is drawn: its box, the values at its sides, and how its text is made once it has a corner.

    Attributes:
        box: its size, and where lines end and begin.
        reads: the value of each line at the upper side.
        gives: that of each at the lower side.
        paint: gives the text for the upper left corner.
        heads: whether lines that end here have heads: those that go on within have not.
    """

    box: Box
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    paint: svg.Paint
    heads: bool = True


class _Scene:
    """A drawing in work."""

    def __init__(self, graph: Graph, depth: int) -> None:
        self._graph, self._depth = graph, depth
        self._kernels = {own.name: own for own in graph.functions}
        self._names: dict[int, str] = {}
        self._values: dict[int, Value] = {}
        self._fixed: dict[int, str] = {}
        for argument in graph.arguments:
            self._values[argument.value.id] = argument.value
            self._names[argument.value.id] = argument.name
            if argument.kind == "param":
                self._fixed[argument.value.id] = f"{argument.name} {argument.value.text}"
        self._inputs = {own.value.id for own in graph.arguments if own.kind != "param"}
        for node in walk(graph.nodes):
            self._note(node)
        self._families: Counter[str] = Counter()
        self._shown: set[str] = set()

    def _note(self, node: Node) -> None:
        """Names the values of an operation."""
        for value in (*node.results, *(value for region in node.regions for value in region.arguments)):
            self._values[value.id] = value
            self._names[value.id] = self._title(node)
        if node.op in _CONSTANTS:
            self._fixed[node.results[0].id] = _constant(node)
            self._names[node.results[0].id] = _constant(node)

    def _title(self, node: Node) -> str:
        callee = node.attributes.get("callee")
        return str(callee) if node.op == "func.call" and callee else node.op.removeprefix("mir.")

    def text(self) -> str:
        """The whole SVG."""
        nodes = [node for node in self._graph.nodes if node.op not in _CONSTANTS]
        outputs: dict[int, list[str]] = {}
        for own in self._graph.outputs:
            tied = f" (tied to {own.tied})" if own.tied else ""
            outputs.setdefault(own.value, []).append(f"{own.name}{tied}")
        read = {operand for node in nodes for operand in node.operands} | outputs.keys()
        inputs = [own.value.id for own in self._graph.arguments if own.value.id in self._inputs & read]
        unread = [own.value.id for own in self._graph.arguments if own.value.id in self._inputs - read]
        fixed = [value for value in outputs if value in self._fixed]
        inner = self._level(nodes, 0, self._depth, [*inputs, *unread, *fixed], outputs, (), ())
        counts = f"{sum(1 for _ in walk(self._graph.nodes))} operations"
        heading = f"{self._graph.name}: {counts} at stage {self._graph.stage}"
        if self._graph.symbols:
            heading += f", sizes {', '.join(self._graph.symbols)}"
        families = [name for name, _ in self._families.most_common()]
        return svg.document(heading, self._description(), inner.box, inner.paint, families, sorted(self._shown))

    def _description(self) -> str:
        inputs = ", ".join(f"{own.name} {own.value.text}" for own in self._graph.arguments if own.kind != "param")
        outputs = ", ".join(own.name for own in self._graph.outputs)
        params = sum(own.kind == "param" for own in self._graph.arguments)
        kinds = Counter(self._title(node) for node in self._graph.nodes)
        listed = ", ".join(f"{name} {count}" for name, count in kinds.most_common(10))
        return f"Inputs: {inputs or 'none'}. Parameters: {params}. Outputs: {outputs or 'none'}. Operations: {listed}."

    # -- levels --------------------------------------------------------------------------------------------------------

    def _level(
        self,
        nodes: Sequence[Node],
        level: int,
        depth: int,
        inputs: Sequence[int],
        outputs: dict[int, list[str]],
        entering: Sequence[int],
        leaving: Sequence[int],
    ) -> _Piece:
        """What is drawn of operations one after the other.

        Args:
            level: how many names of blocks are around them.
            depth: how many more are drawn.
            inputs: whose boxes are in here.
            outputs: names of values whose boxes are in here, where they are made in here.
            entering: values that come from above.
            leaving: values that are read below.
        """
        groups = groups_of(nodes, level)
        readers: dict[int, list[int]] = {}
        for number, group in enumerate(groups):
            for value in self._read(group.nodes):
                readers.setdefault(value, []).append(number)
        own: list[_Piece] = [self._port(value, "first") for value in entering]
        within: dict[int, list[int]] = {}  # inputs that only one block reads stand in it
        for value in inputs:
            only = readers.get(value, [])
            if len(only) == 1 and groups[only[0]].is_block and value not in outputs:
                within.setdefault(only[0], []).append(value)
            else:
                kind = "input" if value in self._inputs else "argument"
                own.append(self._pill(kind, self._names[value], self._values[value], gives=(value,)))
        made = {value.id for node in nodes for value in node.results}
        for number, group in enumerate(groups):
            own.append(self._group(group, level, depth, within.get(number, []), outputs, readers, number, leaving))
        for value, names in outputs.items():
            here = value in made or value in inputs
            inside = any(group.is_block and value in {v.id for n in group.nodes for v in n.results} for group in groups)
            if here and not inside:
                own += [self._pill("output", name, self._values[value], reads=(value,)) for name in names]
        own += [self._port(value, "last") for value in leaving]
        return self._arranged(own)

    def _read(self, nodes: Sequence[Node]) -> list[int]:
        """What operations read of others, each once, in order: no parameters, no constants."""
        made = {value.id for node in nodes for value in node.results}
        found = (operand for node in nodes for operand in node.operands)
        return list(dict.fromkeys(value for value in found if value not in made and value not in self._fixed))

    def _group(
        self,
        group: _Group,
        level: int,
        depth: int,
        inputs: list[int],
        outputs: dict[int, list[str]],
        readers: dict[int, list[int]],
        number: int,
        leaving: Sequence[int],
    ) -> _Piece:
        """A block, or an operation."""
        made = [value.id for node in group.nodes for value in node.results]
        gives = tuple(v for v in made if v in leaving or any(own != number for own in readers.get(v, ())))
        if not group.is_block:
            node = group.nodes[0]
            gives = tuple(v for v in made if v in gives or v in outputs)
            return self._region_node(node, group.name, gives) if node.regions else self._node(node, group.name, gives)
        reads = tuple(value for value in self._read(group.nodes) if value not in inputs)
        if depth == 0:
            return self._folded(group, reads, gives, inputs, [n for v in made for n in outputs.get(v, ())])
        here = {value: names for value, names in outputs.items() if value in made}
        inner = self._level(group.nodes, level + len(group.name), depth - 1, inputs, here, reads, gives)
        return _framed(inner, ".".join(group.name), "block", f"block {'.'.join(group.name)}")

    def _arranged(self, pieces: list[_Piece]) -> _Piece:
        """Pieces with the lines between them."""
        source: dict[int, tuple[int, int]] = {}
        links: list[Link] = []
        values: list[int] = []
        for number, piece in enumerate(pieces):
            for place, value in enumerate(piece.reads):
                if value in source:
                    links.append(Link(*source[value], number, place))
                    values.append(value)
            source.update((value, (number, place)) for place, value in enumerate(piece.gives) if value not in source)
        pieces, links, values = self._cut(pieces, links, values)
        boxes = [piece.box for piece in pieces]
        layout = arrange(boxes, links)

        def paint(x: float, y: float) -> Iterator[str]:
            for value, link, points in zip(values, links, layout.lines, strict=True):
                yield svg.line([(x + a, y + b) for a, b in points], self._tip(value), pieces[link.target].heads)
            for piece, (a, b) in zip(pieces, layout.corners, strict=True):
                yield from piece.paint(x + a, y + b)

        tops = [at for at, piece in zip(layout.corners, pieces, strict=True) if piece.box.rank == "first"]
        bottoms = [at for at, piece in zip(layout.corners, pieces, strict=True) if piece.box.rank == "last"]
        reads = tuple(piece.gives[0] for piece in pieces if piece.box.rank == "first")
        gives = tuple(piece.reads[0] for piece in pieces if piece.box.rank == "last")
        box = Box(layout.width, layout.height, [x for x, _ in tops], [x for x, _ in bottoms])
        return _Piece(box, reads, gives, paint)

    def _cut(
        self, pieces: list[_Piece], links: list[Link], values: list[int]
    ) -> tuple[list[_Piece], list[Link], list[int]]:
        """Puts marks in place of lines that would pass many layers; one for each reader."""
        found = layers([piece.box for piece in pieces], links)
        far = {number for number, own in enumerate(links) if found[own.target] - found[own.source] > _FAR}
        if not far:
            return pieces, links, values
        self._shown.add("mark")
        kept: list[_Piece] = []
        places = {}
        marks: dict[int, list[int]] = {}
        for number in far:
            marks.setdefault(links[number].target, []).append(number)
        at: dict[int, int] = {}
        for number, piece in enumerate(pieces):
            for own in sorted(marks.get(number, ())):
                at[own] = len(kept)
                kept.append(self._mark(values[own]))
            places[number] = len(kept)
            kept.append(piece)
        moved = [
            Link(at[number], 0, places[own.target], own.top)
            if number in far
            else Link(places[own.source], own.bottom, places[own.target], own.top)
            for number, own in enumerate(links)
        ]
        return kept, moved, values

    def _tip(self, value: int) -> str:
        return f"{self._names[value]}: {self._values[value].text}"

    # -- pieces --------------------------------------------------------------------------------------------------------

    @staticmethod
    def _port(value: int, rank: str) -> _Piece:
        """Where a line goes through a frame."""
        box = Box(0.0, 0.0, [0.0], [0.0], rank)
        reads, gives = ((value,) if rank == own else () for own in ("last", "first"))
        return _Piece(box, reads, gives, lambda x, y: iter(()), heads=False)

    def _pill(
        self, kind: str, name: str, value: Value, reads: tuple[int, ...] = (), gives: tuple[int, ...] = ()
    ) -> _Piece:
        """An input, an output, or an argument or result of a region."""
        self._shown.add(kind)
        lines = [Text(svg.shortened(name), "name"), Text(svg.shortened(value.text), "type")]
        tip = f"{kind} {name}: {value.text}"
        return _boxed(lines, kind, tip, reads, gives, round=True)

    def _mark(self, value: int) -> _Piece:
        """Says where a line comes from that isn't drawn."""
        lines = [Text(svg.shortened(f"from {self._names[value]}"), "type")]
        return _boxed(lines, "mark", self._tip(value), (), (value,), round=True)

    def _node(self, node: Node, name: Sequence[str], gives: tuple[int, ...]) -> _Piece:
        """An operation without regions."""
        family = self._family(node)
        reads = tuple(dict.fromkeys(value for value in node.operands if value not in self._fixed))
        return _boxed([*self._lines(node, name), *self._rows(node)], family, self._describe(node), reads, gives)

    def _family(self, node: Node) -> str:
        kernel = self._kernels.get(self._title(node))
        family = family_of(node.op, None if kernel is None else [own.op for own in kernel.nodes])
        self._families[family] += 1
        return family

    def _lines(self, node: Node, name: Sequence[str]) -> Iterator[Text]:
        title = self._title(node)
        yield Text(svg.shortened(title), "name")
        block = ".".join(name)
        if not title.removeprefix("hir.").startswith(block):
            yield Text(svg.shortened(block), "block-name")
        yield from (Text(svg.shortened(value.text), "type") for value in node.results)

    def _rows(self, node: Node) -> Iterator[Text]:
        """What an operation reads of parameters and constants."""
        read = [value for value in dict.fromkeys(node.operands) if value in self._fixed]
        params = {own.value.id for own in self._graph.arguments}
        for value in read[:_ROWS]:
            kind = "param" if value in params else "constant"
            self._shown.add(kind)
            yield Text(svg.shortened(self._fixed[value]), kind)
        if len(read) > _ROWS:
            yield Text(f"and {len(read) - _ROWS} more", "param")

    def _region_node(self, node: Node, name: Sequence[str], gives: tuple[int, ...]) -> _Piece:
        """An operation with its regions beside each other in it."""
        self._families[family_of(node.op)] += 1
        panels = [
            _framed(self._region(node, region, number), label, "region", f"{label} of {node.op}")
            for number, (region, label) in enumerate(zip(node.regions, _region_labels(node), strict=True))
            if region.nodes or region.yields
        ]
        lines = [*self._lines(node, name), *self._rows(node)]
        reads = tuple(dict.fromkeys(value for value in node.operands if value not in self._fixed))
        head = svg.extent(lines)
        width = max(head[0], sum(own.box.width for own in panels) + _PAD * max(len(panels) - 1, 0)) + 2 * _PAD
        height = head[1] + max((own.box.height for own in panels), default=0.0) + _PAD
        tip, family = self._describe(node), family_of(node.op)

        def paint(x: float, y: float) -> Iterator[str]:
            yield from svg.box(x, y, width, height, lines, f"{family} open", tip)
            at = x + _PAD
            for panel in panels:
                yield from panel.paint(at, y + head[1])
                at += panel.box.width + _PAD

        box = Box(width, height, _spread(width, len(reads)), _spread(width, len(gives)), fixed=False)
        return _Piece(box, reads, gives, paint)

    def _region(self, node: Node, region: Region, number: int) -> _Piece:
        """What a region holds, its arguments above, what it gives below."""
        nodes = [own for own in region.nodes if own.op not in _CONSTANTS]
        names = self._argument_names(node, len(region.arguments))
        own = [
            self._pill("argument", name, value, gives=(value.id,))
            for name, value in zip(names, region.arguments, strict=True)
        ]
        readers: dict[int, list[int]] = {}
        level = len(path_of(node))
        groups = groups_of(nodes, level)
        for at, group in enumerate(groups):
            for value in self._read(group.nodes):
                readers.setdefault(value, []).append(at)
        for at, group in enumerate(groups):
            own.append(self._group(group, level, self._depth, [], {}, readers, at, region.yields))
        for value, name in zip(region.yields, _yield_names(node, number, len(region.yields)), strict=True):
            reads = () if value in self._fixed else (value,)
            label = f"{name} = {self._fixed[value]}" if value in self._fixed else name
            own.append(self._pill("result", label, self._values[value], reads=reads))
        return self._arranged(own)

    def _argument_names(self, node: Node, count: int) -> list[str]:
        """What a region's arguments are, in order: those that are given have the names of inputs and parameters."""
        kinds = {"mir.while": ("carried", "given"), "mir.scan": ("carried", "entry", "given")}.get(node.op, ("given",))
        sizes = node.segments if node.segments is not None and len(node.segments) == len(kinds) else (count,)
        names = [f"{kind} {number}" for kind, size in zip(kinds, sizes, strict=False) for number in range(size)]
        if len(names) != count:
            return [f"argument {number}" for number in range(count)]
        own = node.operands[1:] if node.op == "mir.if" else node.operands
        for number, value in enumerate(own[:count]):
            if names[number].startswith("given") and (value in self._inputs or value in self._fixed):
                names[number] = f"given {self._names[value]}"
        return names

    def _folded(
        self, group: _Group, reads: tuple[int, ...], gives: tuple[int, ...], inputs: list[int], outputs: list[str]
    ) -> _Piece:
        """A block as one box."""
        self._shown.add("folded")
        inside = list(walk(group.nodes))
        for node in group.nodes:
            self._family(node)
        kinds = Counter(self._title(node) for node in inside)
        lines = [Text(svg.shortened(".".join(group.name)), "name"), Text(f"{len(inside)} operations", "type")]
        lines += [Text(svg.shortened(f"{count} {kind}"), "block-name") for kind, count in kinds.most_common(_KINDS)]
        if len(kinds) > _KINDS:
            lines.append(Text(f"{len(kinds) - _KINDS} other kinds", "block-name"))
        params = {value for node in inside for value in node.operands if value in self._fixed}
        params &= {own.value.id for own in self._graph.arguments}
        if params:
            lines.append(Text(f"{len(params)} parameters", "param"))
        for kind, names in (("input", [self._names[value] for value in inputs]), ("output", outputs)):
            lines += [Text(svg.shortened(f"{kind} {name}"), f"{kind}-row") for name in names[:_ROWS]]
            if len(names) > _ROWS:
                lines.append(Text(f"and {len(names) - _ROWS} more {kind}s", f"{kind}-row"))
        lines += [Text(svg.shortened(self._values[value].text), "type") for value in gives]
        tip = f"block {'.'.join(group.name)}: {len(inside)} operations: " + ", ".join(
            f"{count} {kind}" for kind, count in kinds.most_common()
        )
        return _boxed(lines, "folded", tip, reads, gives)

    def _describe(self, node: Node) -> str:
        """What a tooltip says of an operation."""
        lines = [node.op]
        if node.op == "func.call":
            kernel = self._kernels.get(self._title(node))
            lines = [f"kernel {self._title(node)}", *([] if kernel is None else [own.op for own in kernel.nodes])]
        if node.block:
            lines.append(f"block {node.block}")
        if node.source is not None:
            lines.append(f"at {node.source}")
        lines += [f"reads {self._names[value]}: {self._values[value].text}" for value in node.operands]
        lines += [f"gives {value.text}" for value in node.results]
        lines += [
            f"{name} = {svg.shortened(str(own), 80)}" for name, own in node.attributes.items() if name != "callee"
        ]
        return "\n".join(lines)


def _constant(node: Node) -> str:
    """A constant in a few words."""
    value = node.attributes.get("value")
    text = node.results[0].text
    if not isinstance(value, dict):
        return f"constant {text}"
    if "splat" in value:
        return f"{value['splat']} {text}" if value["dims"] else str(value["splat"])
    elements = value.get("elements")
    if elements is None or len(elements) > 4:
        return f"constant {text}"
    return f"{elements} {text}" if value["dims"] else str(elements[0])


def _region_labels(node: Node) -> list[str]:
    named = {"mir.if": ["then", "else"], "mir.while": ["while", "do"], "mir.custom_fn": ["function", "vjp", "jvp"]}
    labels = named.get(node.op, ["each step"] if node.op == "mir.scan" else [])
    return [*labels, *(f"region {number}" for number in range(len(labels), len(node.regions)))][: len(node.regions)]


def _yield_names(node: Node, number: int, count: int) -> list[str]:
    if node.op == "mir.while" and number == 0:
        return ["go on", *(f"carried {own}" for own in range(count - 1))]
    carried = node.segments[0] if node.op in ("mir.scan", "mir.while") and node.segments is not None else 0
    return [f"carried {own}" if own < carried else f"result {own - carried}" for own in range(count)]


def _spread(width: float, count: int) -> list[float]:
    """Places along a side, evenly."""
    return [width * (number + 1) / (count + 1) for number in range(count)]


def _boxed(
    lines: Sequence[Text], kind: str, tip: str, reads: tuple[int, ...], gives: tuple[int, ...], *, round: bool = False
) -> _Piece:
    """A box of text."""
    width, height = svg.extent(lines)
    pull = _PULL_OF_PILLS if round else 1.0
    box = Box(width, height, _spread(width, len(reads)), _spread(width, len(gives)), fixed=False, pull=pull)
    return _Piece(box, reads, gives, lambda x, y: svg.box(x, y, width, height, lines, kind, tip, round=round))


def _framed(inner: _Piece, label: str, kind: str, tip: str) -> _Piece:
    """A frame with a label around a piece; lines end at it above, and begin below."""
    text = svg.shortened(label)
    width = max(inner.box.width, svg.extent([Text(text, "label")])[0]) + 2 * _PAD
    height = inner.box.height + 2 * _PAD + _LABEL
    left = (width - inner.box.width) / 2
    tops, bottoms = ([left + at for at in side] for side in (inner.box.tops, inner.box.bottoms))

    def paint(x: float, y: float) -> Iterator[str]:
        yield from svg.frame(x, y, width, height, text, kind, tip)
        for at in tops:
            yield svg.stub(x + at, y, y + _PAD + _LABEL)
        for at in bottoms:
            yield svg.stub(x + at, y + height - _PAD, y + height)
        yield from inner.paint(x + left, y + _PAD + _LABEL)

    return _Piece(Box(width, height, tops, bottoms), inner.reads, inner.gives, paint, heads=False)
