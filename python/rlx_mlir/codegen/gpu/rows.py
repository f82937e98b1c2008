# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The GPU schedule of row-wise groups: norms, softmax, reductions, elementwise chains, rope, SwiGLU, cache writes.

A team of threads has a row: some of a warp where rows are short, so that a warp has several rows, up to a whole block
where they are long. A thread takes pieces of up to 16 bytes, its team's pieces lie side by side, and everything that it
computes of them stays in registers from one reduction to the next: memory is read once and written once.

Meaning and order of operations are those of `codegen.cpu.rows`: f32 inside, rounded once on store. Sums are joined in
an order that depends on the row's width alone, so that results are the same bits in any batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.conversions import COMPARISONS
from rlx_mlir.codegen.emit import Index, Value, element_of, vec
from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter
from rlx_mlir.codegen.gpu.epilogue import elementwise
from rlx_mlir.codegen.gpu.kernel import Constants, DeviceKernel, HostEmitter, write_sized_kernel
from rlx_mlir.codegen.row_graph import (
    PEAK,
    REDUCTIONS,
    Graph,
    Node,
    Plan,
    RowProgram,
    Sink,
    rows_of,
    split_rows,
)

#: Elements of a row that one thread holds at most; they are unrolled.
MOST_ELEMENTS = 64
#: Elements of a row that one thread holds if the row is no longer than a block takes.
ELEMENTS = 16
#: Threads of a block where several rows share one.
BLOCK = 128
MOST_THREADS = 1024
#: Roles of operands whose rows are read in pieces.
ROWS = ("row", "vector", "periodic")
#: How reductions join, by MIR's names.
JOINS = {"sum": "add", "mean": "add", "max": "max", "min": "min", PEAK: "max"}


@dataclass(frozen=True)
class RowTiling:
    """How rows are dealt out.

    Attributes:
        piece: neighbouring elements that a thread takes at a time.
        team: threads of a row, a power of two.
        rows: rows of a block.
    """

    piece: int
    team: int
    rows: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.team * self.rows

    def pieces(self, width: int) -> int:
        """Pieces of a row of `width` elements that one thread takes, at most."""
        return -(-width // (self.team * self.piece))


def choose_tiling(graph: Graph, plan: Plan) -> RowTiling:
    """The tiling for a program; UnsupportedByTemplate where rows are too long."""
    types = [operand.type for operand in graph.operands.values() if operand.role in ROWS]
    types += [sink.result.type for sink in plan.sinks]
    narrowest = min(BITS[element_of(type)] for type in types)
    piece = 128 // narrowest
    marks = [mark for node in graph.nodes if node.width > 1 for mark in (node.width, node.start)]
    widths = [split_rows(own.type, own.width)[0] for own in graph.operands.values() if own.role in ROWS]
    marks += [width for width in widths if width > 1]
    for node in plan.ropes:
        assert node.rope is not None
        halves = 1 if node.rope.interleaved else 2  # of a turned pair, and of tables, which hold one number a pair
        marks += [node.rope.n_rot // halves, node.rope.head_dim // halves]
    while any(mark % piece for mark in marks):
        piece //= 2
    width = max([node.width for node in graph.nodes], default=1)
    team = 1
    while team < MOST_THREADS and -(-width // (team * piece)) * piece > (piece if team < 32 else ELEMENTS):
        team *= 2
    # A team of several warps joins its sums by barriers of the whole block.
    tiling = RowTiling(piece, team, BLOCK // team if team <= 32 else 1)
    if tiling.pieces(width) * piece > MOST_ELEMENTS:
        raise UnsupportedByTemplate(f"rows of {width} elements are longer than a block of threads holds")
    return tiling


def emit_rows(name: str, program: RowProgram, chip: str, constants: Constants = frozenset()) -> DeviceKernel:
    """The kernel of a row-wise program; operands and results as for CPUs.

    Args:
        constants: numbers of operands that are parameters of the model.

    Raises UnsupportedByTemplate where an operation, attribute, type or shape is outside what the schedule covers.
    """
    graph = Graph(program)
    plan = Plan(graph)
    for node in plan.reductions:
        if node.op not in JOINS:
            raise UnsupportedByTemplate(f"rows: no schedule joins by '{node.op}'")
    tiling = choose_tiling(graph, plan)
    operands = [(f"arg{i}", operand.type) for i, operand in enumerate(program.operands)]
    results = [(f"out{i}", result.type) for i, result in enumerate(program.results)]
    em = DeviceEmitter(chip)

    return write_sized_kernel(
        em,
        name,
        "rows",
        operands,
        results,
        lambda host, buffers: _sizes(host, graph, buffers),
        lambda buffers, sizes, _: _Rows(em, graph, plan, tiling, buffers, sizes).emit(),
        lambda host, sizes, _: host.iceildiv(sizes["rows"], tiling.rows),
        threads=tiling.threads,
        symbol="rows",
        shared=lambda _: 4 * tiling.team // 32 if tiling.team > 32 else 0,
        constants=constants,
        type="i32",
    )


def _sizes(em: HostEmitter, graph: Graph, buffers: Sequence[Value]) -> dict[str, Index]:
    """The sizes that a kernel works with, by name; `buffers` are the operands and then the results."""
    program = graph.program
    by_name = {operand.name: buffer for operand, buffer in zip(program.operands, buffers, strict=False)}
    found: dict[str, Index] = {"rows": rows_of(em, by_name[graph.space.name], graph.space.width)}
    leading = [em.dim(by_name[graph.space.name], axis) for axis in range(len(graph.leading))]
    found["positions"] = leading[graph.axis] if leading else 1
    found["per_position"] = found["per_batch"] = graph.inner
    for size in leading[graph.axis + 1 :]:
        found["per_position"] = found["per_position"] * size
    for size in leading[1:]:
        found["per_batch"] = found["per_batch"] * size
    for number, operand in enumerate(program.operands):
        if operand.role == "periodic":
            found[f"period{number}"] = rows_of(em, by_name[operand.name], operand.width)
        if operand.role == "table":
            found[f"table{number}"] = em.dim(by_name[operand.name], 0)
    for number, result in enumerate(program.results):
        if result.pos is not None:
            found[f"cache{number}"] = em.dim(buffers[len(program.operands) + number], 1)
    return found


def _wide(em: DeviceEmitter, size: Index) -> Index:
    """A size to compute with in 64 bits."""
    return em.wide(size) if isinstance(size, Value) else size


@dataclass(frozen=True)
class _Piece:
    """Neighbouring columns from `at` on, i32, that a thread has; they exist where `valid` holds, or is None."""

    at: Index
    valid: Value | None = None


class _Rows:
    """Emits the body of the kernel: one thread's part of one row."""

    def __init__(
        self,
        em: DeviceEmitter,
        graph: Graph,
        plan: Plan,
        tiling: RowTiling,
        buffers: Sequence[Value],
        sizes: dict[str, Index],
    ) -> None:
        self.em, self.graph, self.plan, self.tiling, self.sizes = em, graph, plan, tiling, sizes
        count = len(graph.program.operands)
        self.operands = {own.name: value for own, value in zip(graph.program.operands, buffers, strict=False)}
        self.results = list(buffers[count:])
        self.order = {own.name: number for number, own in enumerate(graph.program.operands)}
        self.numbers: dict[Node, Value] = {}
        self.columns: dict[tuple[Node, str], list[Value]] = {}
        self.known_pieces: dict[int, list[_Piece]] = {}
        self.moved: dict[tuple[str, str], _Piece] = {}
        self.starts: dict[str, Value] = {}

    def emit(self) -> None:
        """Everything: level by level, first numbers, then columns."""
        em, tiling, plan = self.em, self.tiling, self.plan
        thread = em.thread()
        self.member = thread % tiling.team
        own = em.block() * tiling.rows + thread // tiling.team
        rows, several = self.sizes["rows"], tiling.rows > 1
        # Threads beyond the last row work on it, too, since warps exchange values; they store nothing.
        self.exists = em.cmpi("ult", own, rows) if several else None
        self.row = em.index(em.imin(own, rows - 1) if several else own)
        self.place()
        for level in range(plan.levels):
            for node in plan.numbers:
                if node.level == level:
                    self.numbers[node] = self.compute(node, [self.numbers[x] for x in node.inputs])
            for node in plan.reductions:
                if node.inputs[0].level == level:
                    self.numbers[node] = self.reduce(node)
            for sink in plan.sinks:
                if sink.node.level == level:
                    self.store(sink)

    # -- where things are ---------------------------------------------------------------------------------------------

    def place(self) -> None:
        """Where the row starts in every operand and result, in elements, i64."""
        graph = self.graph
        for name, operand in graph.operands.items():
            if operand.role in ROWS:
                index: Index = 0 if operand.role == "vector" else self.row
                if operand.role == "periodic":
                    index = self.row % self.sizes[f"period{self.order[name]}"]
                self.starts[name] = self.start(index, split_rows(operand.type, operand.width)[0])

    def start(self, index: Index, width: int) -> Value:
        """Elements before row `index`."""
        return self.em.index(self.em.wide(index) * width)

    def batch(self) -> Index:
        return self.row // self.sizes["per_batch"] if self.graph.axis > 0 else 0

    def position(self, pos: str | None) -> Index:
        """The row's place in the sequence: pos[b] + s, or s alone."""
        em = self.em
        s = self.row // self.sizes["per_position"] % self.sizes["positions"]
        if pos is None:
            return s
        return em.ld(self.operands[pos], "i32", self.batch()) + s

    def pieces(self, width: int) -> list[_Piece]:
        """The pieces of a row of `width` columns that the thread has."""
        if width in self.known_pieces:
            return self.known_pieces[width]
        em, tiling = self.em, self.tiling
        found = self.known_pieces[width] = []
        for number in range(tiling.pieces(width)):
            first, last = (number * tiling.team * tiling.piece, (number + 1) * tiling.team * tiling.piece)
            at = self.member * tiling.piece + first
            found.append(_Piece(at, em.cmpi("ult", at, width) if last > width else None))
        return found

    def move(self, piece: _Piece, distance: Index) -> _Piece:
        """The piece some columns further; the same one for the same distance, so that its values are known."""
        key = (str(piece.at), str(distance))
        if key not in self.moved:
            self.moved[key] = _Piece(piece.at + distance, piece.valid)
        return self.moved[key]

    # -- values -------------------------------------------------------------------------------------------------------

    def reduce(self, node: Node) -> Value:
        """A number of the row, which each thread of the team gets."""
        em, x, tiling = self.em, node.inputs[0], self.tiling
        operation, _, neutral = REDUCTIONS[node.op]
        totals: list[Value] = []
        for piece in self.pieces(x.width):
            values = self.column(x, piece)
            if piece.valid is not None:
                values = [em.select(piece.valid, value, neutral) for value in values]
            totals = [em.binary(operation, *pair) for pair in zip(totals, values, strict=True)] if totals else values
        kind = JOINS[node.op]
        number = em.tree(kind, totals)
        if tiling.team > 32:
            return em.block_reduce(kind, number, em.shared(), tiling.team)
        return em.warp_reduce(kind, number, tiling.team)

    def column(self, node: Node, piece: _Piece) -> list[Value]:
        """The columns of a piece; the number itself, repeated, where the node's width is 1."""
        if node.width == 1:
            return [self.numbers[node]] * self.tiling.piece
        key = (node, str(piece.at))
        if key not in self.columns:
            self.columns[key] = self._column(node, piece)
        return self.columns[key]

    def _column(self, node: Node, piece: _Piece) -> list[Value]:
        em = self.em
        if node.kind == "load":
            at = self.starts[node.op] + em.wide(piece.at + node.start)
            return self.get(node.op, em.index(at), piece)
        if node.kind == "narrow":
            return self.column(node.inputs[0], self.move(piece, node.start))
        if node.kind == "rope":
            return self.rope(node, piece)
        operands = [self.column(operand, piece) for operand in node.inputs]
        return [self.compute(node, [operand[lane] for operand in operands]) for lane in range(self.tiling.piece)]

    def compute(self, node: Node, operands: Sequence[Value]) -> Value:
        """One number of a node from those of its operands."""
        em = self.em
        if node.kind == "const":
            return em.const(node.number, "f32")
        if node.kind in ("scalar", "load"):
            element = element_of(self.graph.operands[node.op].type)
            at = 0 if node.kind == "scalar" else self.starts[node.op] + em.wide(node.start)
            return em.widen(em.ld(self.operands[node.op], element, at))
        if node.kind == "round":
            return em.widen(em.narrow(operands[0], node.op))
        if node.kind == "compare":
            return em.cmpf(COMPARISONS[node.op], *operands)
        return operands[0] if node.op == "copy" else elementwise(em, node.op, operands)

    # -- rope ---------------------------------------------------------------------------------------------------------

    def rope(self, node: Node, piece: _Piece) -> list[Value]:
        """Columns of heads that are turned: each needs the column that it is turned with."""
        assert node.rope is not None
        em, rope, size = self.em, node.rope, self.tiling.piece
        inside = em.index(piece.at % rope.head_dim)
        x = self.column(node.inputs[0], piece)
        if rope.interleaved:
            if size == 1:
                raise UnsupportedByTemplate("rows: pairs of neighbours need an even width")
            turned = []
            for pair, (c, s) in enumerate(self.tables(node, inside // 2, size // 2, piece)):
                even, odd = x[2 * pair], x[2 * pair + 1]
                turned += [even * c - odd * s, odd * c + even * s]
        else:
            half = rope.n_rot // 2
            first = em.cmpi("ult", inside, half)
            away = em.select(first, half, em.select(em.cmpi("ult", inside, rope.n_rot), -half, 0))
            others = self.column(node.inputs[0], self.move(piece, away))
            tables = self.tables(node, em.select(first, inside, inside - half), size, piece)
            turned = []
            for own, other, (c, s) in zip(x, others, tables, strict=True):
                turned.append(own * c + other * em.select(first, -s, s))
        if rope.n_rot == rope.head_dim:
            return turned
        rotated = em.cmpi("ult", inside, rope.n_rot)
        return [em.select(rotated, new, old) for new, old in zip(turned, x, strict=True)]

    def tables(self, node: Node, column: Index, count: int, piece: _Piece) -> list[tuple[Value, Value]]:
        """`count` pairs of cos and sin for the row's position; any where the columns aren't turned."""
        assert node.rope is not None
        em, rope = self.em, node.rope
        rows = self.sizes[f"table{self.order[rope.cos]}"]
        # A position outside of the tables must not read outside of them; who calls says which positions exist.
        position = em.imax(em.imin(self.position(rope.pos), rows - 1), 0)
        inside = em.imin(column, rope.head_dim // 2 - count)
        at = em.index(em.wide(position) * (rope.head_dim // 2) + em.wide(inside))
        cos, sin = (self.get(table, at, piece, count) for table in (rope.cos, rope.sin))
        return list(zip(cos, sin, strict=True))

    # -- memory -------------------------------------------------------------------------------------------------------

    def get(self, operand: str, at: Value, piece: _Piece, count: int | None = None) -> list[Value]:
        """Elements of an operand as f32; zeros where the piece doesn't exist."""
        em, count = self.em, self.tiling.piece if count is None else count
        element = element_of(self.graph.operands[operand].type)
        step = min(count, 128 // BITS[element])
        type = vec(step, element) if step > 1 else element
        found: list[Value] = []
        for first in range(0, count, step):
            base, place = self.operands[operand], em.index(at + em.wide(first) if first else at)
            valid = piece.valid
            part = em.ld(base, type, place) if valid is None else em.ld_if(valid, base, type, place)
            found += em.lanes(em.widen(part))
        return found

    def store(self, sink: Sink) -> None:
        """The row of a result; of a cache, where it has such a row."""
        em, tiling = self.em, self.tiling
        row: Index = self.row
        conditions = [] if self.exists is None else [self.exists]
        if sink.result.pos is not None:
            if sink.node.width == 1:
                raise UnsupportedByTemplate("rows: a cache with one element a position isn't supported")
            length, per_position = self.sizes[f"cache{sink.index}"], self.sizes["per_position"]
            position = em.index(self.position(sink.result.pos))
            conditions += [em.cmpi("sge", position, 0), em.cmpi("slt", position, length)]
            batch = em.wide(self.batch()) * _wide(em, length) + em.wide(position)
            row = batch * _wide(em, per_position) + em.wide(self.row % per_position)
        start = self.start(row, sink.node.width)
        if sink.node.width == 1:
            if tiling.team > 1:
                conditions.append(em.cmpi("eq", self.member, 0))
            self.put(sink, [self.numbers[sink.node]], start, conditions)
            return
        for piece in self.pieces(sink.node.width):
            value = self.column(sink.node, piece)
            present = [] if piece.valid is None else [piece.valid]
            self.put(sink, value, em.index(start + em.wide(piece.at)), [*conditions, *present])

    def put(self, sink: Sink, values: Sequence[Value], at: Value, conditions: Sequence[Value]) -> None:
        """Rounds and stores, where all conditions hold."""
        em, element = self.em, element_of(sink.result.type)
        step = 128 // BITS[element]

        def write() -> None:
            for first in range(0, len(values), step):
                part = values[first : first + step]
                value = em.narrow(em.vector(part) if len(part) > 1 else part[0], element)
                place = em.index(at + em.wide(first) if first else at)
                em.st(value, self.results[sink.index], place)

        if not conditions:
            write()
            return
        holds = conditions[0]
        for condition in conditions[1:]:
            holds = holds & condition
        with em.if_(holds):
            write()
