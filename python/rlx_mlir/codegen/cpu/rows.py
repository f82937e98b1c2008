# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The CPU template for row-wise groups: elementwise chains, norms, softmax, reductions, rope, SwiGLU, cache writes.

Operands and results are seen as rows [R, W]: W, static, is the last dimension unless said otherwise, R the product of
the others. A unit is one row, so results don't depend on how units are cut. A `RowProgram` is a list of MIR ops in SSA
order; the template cuts it into loops over columns: everything up to a reduction is one loop, and what a later loop
needs again is recomputed if that is cheap and kept in a row of scratch otherwise.

    x = load; s = sum(x * x)             loop 0
    y = x * rsqrt(s / W + eps) * gamma   loop 1, stored to the result

All values are f32: f16 and bf16 operands are widened on load, results rounded once on store, and a `cast` step rounds
where it stands. Sums run over vector lanes and several accumulators (reassociated, but always in the same way), in
blocks of 32 terms for each; what joining blocks loses is carried along, so that errors don't grow with the length. max
and min propagate NaN; softmax of a row with +inf, or of only -inf, is NaN, as the formula says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rlx_mlir.codegen.conversions import COMPARISONS
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, vec, with_element
from rlx_mlir.codegen.program import emit_elementwise
from rlx_mlir.codegen.row_graph import (
    PEAK,
    REDUCTIONS,
    ColumnLoop,
    Graph,
    Node,
    Plan,
    Rope,
    RowProgram,
    Sink,
    rows_of,
    split_rows,
)

from . import UnsupportedByTemplate
from .exponentials import exp_below, larger, peak_of
from .kernel import Scratch, write_kernel
from .registry import Generator, as_it_is
from .sums import TURNS, add_with_loss, with_loss
from .target import ELEMENT_BITS, Target, rounded


def emit_rows(name: str, program: RowProgram, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text.

    Raises UnsupportedByTemplate where an op, attribute, type or shape is outside what the template covers.
    """
    graph = Graph(program)
    plan = Plan(graph)
    operands = [(f"arg{i}", operand.type) for i, operand in enumerate(program.operands)]
    results = [(f"out{i}", result.type) for i, result in enumerate(program.results)]
    position = program.operands.index(graph.space)

    def units(em: Emitter, values: list[Value]) -> Index:
        return rows_of(em, values[position], graph.space.width)

    def scratch(em: Emitter, values: list[Value], parts: Scratch) -> None:
        _Kernel(em, target, graph, plan).take_scratch(parts)

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        kernel = _Kernel(em, target, graph, plan)
        kernel.take_scratch(parts)
        kernel.bind(values, outs)
        with em.loop(begin, end, hint="row") as row:
            kernel.row(row.iv)

    return write_kernel(name, operands, results, units=units, scratch=scratch, body=body)


class _Kernel:
    """Emits one row of the program."""

    def __init__(self, em: Emitter, target: Target, graph: Graph, plan: Plan) -> None:
        self.em, self.target, self.graph, self.plan = em, target, graph, plan
        self.lanes = target.lanes("f32")
        self.type = target.vector("f32")
        self.level = 0
        self.scratch: dict[Node, Value] = {}
        self.numbers: dict[Node, Value] = {}
        self.columns: dict[tuple[Node, str, int], Value] = {}
        """Columns that the present loop body has computed: node, base, offset from it."""

    def take_scratch(self, parts: Scratch) -> None:
        for node in self.plan.kept:
            self.scratch[node] = parts.take([node.width], "f32")

    def bind(self, operands: Sequence[Value], results: Sequence[Value]) -> None:
        """Flat views and sizes; to be called once, at the head of the body."""
        em, graph = self.em, self.graph
        self.buffers = dict(zip(graph.operands, operands, strict=True))
        self.flat = {name: self._flat(buffer) for name, buffer in self.buffers.items()}
        self.out_buffers, self.outs = list(results), [self._flat(buffer) for buffer in results]
        self.periods = {
            name: rows_of(em, self.buffers[name], operand.width)
            for name, operand in graph.operands.items()
            if operand.role == "periodic"
        }
        sizes = [em.dim(self.buffers[graph.space.name], axis) for axis in range(len(graph.leading))]
        self.positions = sizes[graph.axis] if sizes else 1
        self.per_position: Index = graph.inner
        for size in sizes[graph.axis + 1 :]:
            self.per_position = self.per_position * size
        self.per_batch: Index = graph.inner
        for size in sizes[1:]:
            self.per_batch = self.per_batch * size

    def _flat(self, buffer: Value) -> Value:
        rank = len(shape_of(buffer.type))
        return self.em.collapse(buffer, [list(range(rank))]) if rank else buffer

    def row(self, row: Value) -> None:
        """Everything of one row: level by level, first numbers, then loops over columns."""
        plan = self.plan
        self.place(row)
        for self.level in range(plan.levels):
            for node in plan.numbers:
                if node.level == self.level:
                    self.numbers[node] = self.compute(node, [self.numbers[operand] for operand in node.inputs], "f32")
            for sink in plan.sinks:
                if sink.node.level == self.level and sink.node.width == 1:
                    self.store_number(sink)
            for width, loop in plan.loops(self.level).items():
                self.loop(width, loop)
            for node in plan.ropes:
                if node.inputs[0].level == self.level:
                    self.rope(node)

    def place(self, row: Value) -> None:
        """Where the row starts in every operand and result."""
        em, graph = self.em, self.graph
        self.starts: dict[str, Index] = {}
        for name, operand in graph.operands.items():
            if operand.role in ("row", "vector", "periodic"):
                width, _, _ = split_rows(operand.type, operand.width)
                index: Index = 0 if operand.role == "vector" else row
                if operand.role == "periodic":
                    index = row % self.periods[name]
                self.starts[name] = index * width
        self.table_starts: dict[Node, Index] = {}
        for node in self.plan.ropes:
            assert node.rope is not None
            tables = em.dim(self.buffers[node.rope.cos], 0)
            # A position outside of the tables must not read outside of them; who calls says which positions exist.
            position = em.imax(em.imin(self.position(row, node.rope.pos), tables - 1), 0)
            self.table_starts[node] = position * (node.rope.head_dim // 2)
        self.out_starts: list[Index] = []
        self.stored: list[Value | None] = []
        for sink in self.plan.sinks:
            index, inside = row, None
            if sink.result.pos is not None:
                length = em.dim(self.out_buffers[sink.index], 1)
                position = em.index(self.position(row, sink.result.pos))
                above, below = em.cmpi("sge", position, 0), em.cmpi("slt", position, length)
                inside = above & below
                first = (self.batch(row) * length + position) * self.per_position
                index = em.index(first + row % self.per_position)
            self.out_starts.append(index * sink.node.width)
            self.stored.append(inside)

    def batch(self, row: Value) -> Index:
        return row // self.per_batch if self.graph.axis > 0 else 0

    def position(self, row: Value, pos: str | None) -> Index:
        """The row's place in the sequence: pos[b] + s, or s alone."""
        em = self.em
        s = row // self.per_position % self.positions
        if pos is None:
            return s
        return em.cast("arith.index_cast", em.load(self.buffers[pos], [self.batch(row)]), "index") + s

    # -- loops over columns -------------------------------------------------------------------------------------------

    def loop(self, width: int, plan: ColumnLoop) -> None:
        """One loop over `width` columns: whole vectors, several at a time where sums would wait for each other."""
        em, lanes, reductions = self.em, self.lanes, plan.reductions
        whole, count = width // lanes, len(reductions)
        fetches = any(node.is_weight for node in plan.kept)
        short = bool(reductions) and all(self.plan.is_short(node.inputs[0]) for node in reductions)
        unroll = 4 if short and whole >= 8 else 2 if short and whole >= 4 else 1
        wide = whole // unroll * unroll

        def step(base: Index, offset: int, used: int, sums: list[Value]) -> list[Value]:
            if fetches and used == lanes:
                self.fetch(base, offset)
            totals = [self.accumulate(node, x, base, offset, used) for node, x in zip(reductions, sums, strict=True)]
            at = base + offset
            for node in plan.kept:
                self.put(self.column(node, base, offset, used), self.scratch[node], at, used)
            for sink in plan.sinks:
                self.store(sink, self.column(sink.node, base, offset, used), at, used)
            return totals

        def steps(base: Index, sums: list[list[Value]]) -> list[list[Value]]:
            return [step(base, u * lanes, lanes, own) for u, own in enumerate(sums)]

        start = [em.const(REDUCTIONS[node.op][2], self.type) for node in reductions]

        def turns(low: Index, high: Index) -> list[Value]:
            with self.fresh_columns(), em.loop(low, high, unroll * lanes, [start] * unroll, hint="col") as loop:
                loop.yield_(steps(loop.iv, loop.carry))
            return self.folded(reductions, loop.result)

        sums, lost = start, [em.zero(self.type)] * count
        blocked = bool(reductions) and wide > TURNS * unroll
        if blocked:
            length = TURNS * unroll * lanes
            with em.loop(0, wide * lanes, length, (sums, lost), hint="block") as loop:
                own = turns(loop.iv, em.imin(loop.iv + length, wide * lanes))
                loop.yield_(self.joined(reductions, *loop.carry, own))
            sums, lost = loop.result
        elif wide > unroll:
            sums = turns(0, wide * lanes)
        elif wide:
            with self.fresh_columns():
                sums = self.folded(reductions, steps(0, [start] * unroll))
        rest = start if blocked else sums
        for vector in range(wide, -(-width // lanes)):  # those that are fewer than `unroll`, then the tail
            with self.fresh_columns():
                rest = step(vector * lanes, 0, min(lanes, width - vector * lanes), rest)
        if blocked:
            state = self.joined(reductions, sums, lost, rest)
            sums = [self.completed(node, *pair) for node, *pair in zip(reductions, *state, strict=True)]
        else:
            sums = rest
        for node, total in zip(reductions, sums, strict=True):
            kind = REDUCTIONS[node.op][1]
            if node.op == PEAK:
                self.numbers[node] = peak_of(em, total)
            else:
                self.numbers[node] = em.reduce(kind, total, "reassoc" if kind in ("add", "mul") else "")

    def fetch(self, base: Index, offset: int) -> None:
        """Asks for the same columns of the next row's operands, and of this row's results: exponentials leave memory
        time to deliver them."""
        em = self.em
        for name, operand in self.graph.operands.items():
            if operand.role == "row" and self.begins_line(self.flat[name], offset):
                width, _, _ = split_rows(operand.type, operand.width)
                em.prefetch(self.flat[name], [self.starts[name] + base + (offset + width)])
        for sink in self.plan.sinks:
            if sink.node.width > 1 and self.begins_line(self.outs[sink.index], offset):
                em.prefetch(self.outs[sink.index], [self.out_starts[sink.index] + base + offset], write=True)

    def begins_line(self, buffer: Value, column: int) -> bool:
        """Whether a line of the cache begins at a column, if one does at column 0."""
        return column * ELEMENT_BITS[element_of(buffer.type)] % 512 == 0

    def folded(self, reductions: Sequence[Node], sums: list[list[Value]]) -> list[Value]:
        """The sums of several vectors side by side, as one for each reduction."""
        while len(sums) > 1:
            half = len(sums) // 2
            pairs = zip(sums[:half], sums[half:], strict=True)
            sums = [[self.combined(node, x, y) for node, x, y in zip(reductions, *pair, strict=True)] for pair in pairs]
        return sums[0]

    def joined(
        self, reductions: Sequence[Node], totals: list[Value], lost: list[Value], own: list[Value]
    ) -> tuple[list[Value], list[Value]]:
        """The totals so far and what their additions have lost, with those of one more block."""
        after, lost = [], list(lost)
        for i, (node, total, x) in enumerate(zip(reductions, totals, own, strict=True)):
            if REDUCTIONS[node.op][1] == "add":
                total, lost[i] = add_with_loss(total, lost[i], x)
            else:
                total = self.combined(node, total, x)
            after.append(total)
        return after, lost

    def combined(self, node: Node, total: Value, x: Value) -> Value:
        """Two totals of a reduction, or a total and a term, as one."""
        if node.op == PEAK:
            return larger(self.em, x, total)
        return self.em.binary(REDUCTIONS[node.op][0], total, x)

    def completed(self, node: Node, total: Value, lost: Value) -> Value:
        """A total with what it has lost, where it is a sum."""
        return with_loss(self.em, total, lost) if REDUCTIONS[node.op][1] == "add" else total

    @contextmanager
    def fresh_columns(self) -> Iterator[None]:
        """A loop body: what it computes is known inside of it only."""
        self.columns.clear()
        yield
        self.columns.clear()

    def accumulate(self, node: Node, total: Value, base: Index, offset: int, used: int) -> Value:
        em = self.em
        op, _, neutral = REDUCTIONS[node.op]
        x = node.inputs[0]
        product = x.kind == "map" and x.op == "mul" and x not in self.plan.kept
        if op == "arith.addf" and product and used == self.lanes:
            left, right = (self.shaped(self.column(operand, base, offset, used)) for operand in x.inputs)
            return self.target.fma(em, left, right, total)
        value = self.column(x, base, offset, used)
        if used < self.lanes:
            value = em.select(self.mask(used), value, neutral)
        return self.combined(node, total, value)

    def column(self, node: Node, base: Index, offset: int, used: int) -> Value:
        """`used` columns of a node from base + offset on, in a vector; the number itself where its width is 1."""
        if node.width == 1:
            return self.numbers[node]
        key = (node, str(base), offset)
        if key not in self.columns:
            self.columns[key] = self._column(node, base, offset, used)
        return self.columns[key]

    def _column(self, node: Node, base: Index, offset: int, used: int) -> Value:
        if node in self.scratch and self.plan.kept[node] < self.level:
            return self.get(self.scratch[node], base + offset, used)
        if node.kind == "load":
            at = self.starts[node.op] + base + (offset + node.start)
            return self.get(self.flat[node.op], at, used)
        if node.kind == "narrow":
            return self.column(node.inputs[0], base, offset + node.start, used)
        return self.compute(node, [self.column(operand, base, offset, used) for operand in node.inputs], self.type)

    def compute(self, node: Node, operands: Sequence[Value], type: str) -> Value:
        """One node from its operands: on vectors, or on numbers (`type` f32)."""
        em = self.em
        if node.kind == "const":
            return em.const(node.number, "f32")
        if node.kind == "scalar":
            buffer = self.buffers[node.op]
            return self.target.widen(em, em.load(buffer, [0] * len(shape_of(buffer.type))))
        if node.kind == "load":
            return self.target.widen(em, em.load(self.flat[node.op], [self.starts[node.op] + node.start]))
        if node.kind == "round":
            return self.target.widen(em, rounded(em, self.target, operands[0], node.op))
        if node.kind == "compare":
            left, right = (self.shaped(operand, type) for operand in operands)
            return em.cmpf(COMPARISONS[node.op], left, right)
        if node.op == "copy":
            return self.shaped(operands[0], type)
        if node.is_weight:
            return exp_below(em, self.target, self.shaped(operands[0], type))
        return emit_elementwise(em, node.op, operands, type)

    def shaped(self, x: Value, type: str | None = None) -> Value:
        type = self.type if type is None else type
        return x if x.type == type else self.em.broadcast(x, type)

    # -- rope ---------------------------------------------------------------------------------------------------------

    def rope(self, node: Node) -> None:
        """Loops of its own: per head, over pairs of columns, then over the columns that aren't rotated."""
        assert node.rope is not None
        em, size = self.em, node.rope.head_dim
        if node.width == size:
            self.rope_head(node, node.rope, 0)
        else:
            with em.loop(0, node.width, size, hint="head") as head:
                self.rope_head(node, node.rope, head.iv)

    def rope_head(self, node: Node, rope: Rope, head: Index) -> None:
        em, x, half, lanes = self.em, node.inputs[0], rope.n_rot // 2, self.lanes

        def rotated(first: Value, second: Value, at: Index, used: int) -> tuple[Value, Value]:
            place = self.table_starts[node] + at
            cos, sin = (self.get(self.flat[table], place, used) for table in (rope.cos, rope.sin))
            return (
                first * cos - second * sin,
                second * cos + first * sin,
            )

        def halves(at: Index, used: int) -> None:
            base = head + at
            low, high = rotated(self.column(x, base, 0, used), self.column(x, base, half, used), at, used)
            self.put_rope(node, low, base, used)
            self.put_rope(node, high, base + half, used)

        def interleaved(at: Index, used: int) -> None:
            base = head + at * 2
            counts = [min(2 * used, lanes), max(2 * used - lanes, 0)]
            parts = [
                self.column(x, base, part * lanes, count) if count else em.zero(self.type)
                for part, count in enumerate(counts)
            ]
            even, odd = (em.shuffle(parts[0], parts[1], range(side, 2 * lanes, 2)) for side in (0, 1))
            even, odd = rotated(even, odd, at, used)
            pairs = [lane for pair in range(lanes) for lane in (pair, lanes + pair)]
            for part, count in enumerate(counts):
                if count:
                    value = em.shuffle(even, odd, pairs[part * lanes : (part + 1) * lanes])
                    self.put_rope(node, value, base + part * lanes, count)

        def copied(at: Index, used: int) -> None:
            base = head + rope.n_rot + at
            self.put_rope(node, self.column(x, base, 0, used), base, used)

        self.vectors(half, interleaved if rope.interleaved else halves)
        self.vectors(rope.head_dim - rope.n_rot, copied)

    def vectors(self, width: int, body: Callable[[Index, int], None]) -> None:
        """`body(first, used)` for the vectors that cover `width` columns: a loop, then the tail."""
        whole = width // self.lanes * self.lanes
        if whole > self.lanes:
            with self.fresh_columns(), self.em.loop(0, whole, self.lanes, hint="col") as loop:
                body(loop.iv, self.lanes)
        elif whole:
            with self.fresh_columns():
                body(0, self.lanes)
        if width > whole:
            with self.fresh_columns():
                body(whole, width - whole)

    def put_rope(self, node: Node, value: Value, at: Index, used: int) -> None:
        if node in self.scratch:
            self.put(value, self.scratch[node], at, used)
        for sink in self.plan.sinks:
            if sink.node is node:
                self.store(sink, value, at, used)

    # -- memory -------------------------------------------------------------------------------------------------------

    def mask(self, used: int) -> Value:
        return self.em.const([lane < used for lane in range(self.lanes)], vec(self.lanes, "i1"))

    def part(self, used: int) -> Value | None:
        """The mask of a vector that isn't used as a whole."""
        return None if used == self.lanes else self.mask(used)

    def get(self, buffer: Value, at: Index, used: int) -> Value:
        """`used` elements as f32, zeros after them."""
        em, type = self.em, with_element(self.type, element_of(buffer.type))
        return self.target.widen(em, em.vload(buffer, [at], type, self.part(used)))

    def put(self, value: Value, buffer: Value, at: Index, used: int) -> None:
        value = rounded(self.em, self.target, value, element_of(buffer.type))
        self.em.vstore(value, buffer, [at], self.part(used))

    def store(self, sink: Sink, value: Value, at: Index, used: int) -> None:
        """Columns of a result; a cache row that doesn't exist is left out."""
        place, inside = self.out_starts[sink.index] + at, self.stored[sink.index]
        if inside is None:
            self.put(value, self.outs[sink.index], place, used)
            return
        with self.em.if_(inside):
            self.put(value, self.outs[sink.index], place, used)

    def store_number(self, sink: Sink) -> None:
        em, out = self.em, self.outs[sink.index]
        value = rounded(em, self.target, self.numbers[sink.node], element_of(out.type))
        if self.stored[sink.index] is not None:
            raise UnsupportedByTemplate("rows: a cache with one element a position isn't supported")
        em.store(value, out, [self.out_starts[sink.index]] if shape_of(out.type) else [])


GENERATORS = (Generator("rows", "rows", as_it_is, emit_rows),)
