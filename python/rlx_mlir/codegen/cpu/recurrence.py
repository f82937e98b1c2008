# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gated delta rule: one unit is some columns of one head's memory, **lanes run over the columns**.

Columns are independent of each other, so a unit keeps its own in scratch, [n, columns] f32, from the first step to the
last. Step by step each element of the memory would be read, changed and written at each step. Instead, `BLOCK` steps
are taken at once. With a_t = e^g_t, the decays D[c, u] = a_(u+1) ... a_c, and M the memory before the block,

    r_c = sum_i k_c[i] M[i]                   p_c = sum_i q_c[i] M[i]
    d_c = beta_c (v_c - D[c, -1] r_c - sum_(u < c) D[c, u] (k_c . k_u) d_u)
    o_c = D[c, -1] p_c + sum_(u <= c) D[c, u] (q_c . k_u) d_u
    M[i] = D[last, -1] M[i] + sum_c k_c[i] D[last, c] d_c

where only the last line writes memory and sums stay in registers. This is the chunked (WY) form with its triangular
system solved by substitution, in blocks so short that the products q . k cost little.

Decays are products of a_t, not exponentials of differences of sums, which lose the digits of large sums. They are used
where no a_t is above one, so none overflows; one that underflows belongs to a term below 2^-126 of what it multiplies.
Where a g_t is positive or NaN, its block is computed step by step.

Blocks start at multiples of BLOCK steps of the call: bits don't depend on threads, but a sequence that is cut elsewhere
agrees with the whole to rounding only. Where that isn't enough (`RecurrenceSpec.by_step`), there are no blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, vec, with_element
from rlx_mlir.codegen.specs.sequence import RecurrenceSpec

from . import UnsupportedByTemplate
from .attention_decode import sum_each
from .kernel import Scratch, add_products, one_or_many, write_kernel
from .registry import Generator, as_it_is
from .target import Target, rounded

COLUMNS = 64
"""Columns of a unit, at most: for n = 128, 32 KB of memory, two units a head."""

BLOCK = 6
"""Steps at once: with two vectors of columns, their sums take 24 of AVX-512's 32 registers."""

TABLE = 8
"""Lanes of the tables of a block, a power of two that isn't below BLOCK."""


def emit_recurrence(name: str, spec: RecurrenceSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text.

    Raises UnsupportedByTemplate where the element type isn't f32, f16 or bf16, or n is dynamic or 0.
    """
    _check(name, spec)
    named = [("q", spec.q), ("k", spec.k), ("v", spec.v), ("g", spec.g), ("beta", spec.beta), ("state", spec.state)]
    operands = [(operand, type) for operand, type in named if type is not None]
    outputs = [("out", spec.result), ("state_out", spec.state_out)]
    results = [(result, type) for result, type in outputs if type is not None]

    def units(em: Emitter, values: list[Value]) -> Index:
        return em.dim(values[0], 0) * em.dim(values[0], 2) * _Recurrence(em, spec, target).groups

    def scratch(em: Emitter, values: list[Value], parts: Scratch) -> None:
        _Recurrence(em, spec, target).take_scratch(parts)

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        kernel = _Recurrence(em, spec, target)
        buffers = dict(zip([operand for operand, _ in operands], values, strict=True))
        buffers |= dict(zip([result for result, _ in results], outs, strict=True))
        kernel.bind(buffers)
        kernel.take_scratch(parts)
        kernel.body(begin, end)

    order = spec.operand_order
    return write_kernel(name, operands, results, units=units, scratch=scratch, body=body, order=order)


def _check(name: str, spec: RecurrenceSpec) -> None:
    element, n = element_of(spec.q), shape_of(spec.q)[-1]
    if element not in IN_F32:
        raise UnsupportedByTemplate(f"{name}: recurrences of {element} have no template")
    if not n:
        raise UnsupportedByTemplate(f"{name}: expects a static state size of at least 1, but q is {spec.q}")


@dataclass(frozen=True)
class _Memory:
    """Where a unit's columns of the memory stand: element (i, column) of `buffer` is at
    (*prefix, i, first + column)."""

    buffer: Value
    prefix: tuple[Index, ...] = ()
    first: Index = 0


class _Recurrence:
    """The code of one kernel; see the module's docstring."""

    def __init__(self, em: Emitter, spec: RecurrenceSpec, target: Target) -> None:
        self.em, self.spec, self.target = em, spec, target
        size = shape_of(spec.q)[-1]
        assert size is not None
        self.n: int = size
        self.element = element_of(spec.q)
        self.lanes = target.lanes("f32")
        self.type = target.vector("f32")
        self.table = vec(TABLE, "f32")
        self.padded = -(-self.n // self.lanes) * self.lanes
        self.columns = min(COLUMNS, self.padded)
        self.groups = -(-self.n // self.columns)
        self.whole = self.n % self.columns == 0
        """Whether no column of a unit is beyond n."""
        # Two vectors share each broadcast number where their sums fit the registers.
        self.block = 1 if spec.by_step else BLOCK if target.registers == 32 else BLOCK // 2
        # Rows a power of two apart would share few sets of the cache.
        self.stride = self.padded + 16

    # Buffers --------------------------------------------------------------------------------------

    def bind(self, buffers: dict[str, Value]) -> None:
        """Takes the buffers by name."""
        self.q, self.k, self.v = buffers["q"], buffers["k"], buffers["v"]
        self.g, self.beta = buffers["g"], buffers["beta"]
        self.state, self.out, self.state_out = (buffers.get(name) for name in ("state", "out", "state_out"))

    def take_scratch(self, parts: Scratch) -> None:
        """A thread's scratch: the memory, rows of a block, its gates, its tables of products."""
        self.memory = parts.take([self.n, self.columns], "f32")
        self.rows = parts.take([2 * self.block, self.stride], "f32")  # keys, then queries
        self.decay = parts.take([TABLE], "f32")
        self.strength = parts.take([TABLE], "f32")
        self.reach = parts.take([TABLE], "f32")  # D[c, -1]
        self.fade = parts.take([TABLE], "f32")  # D[last, c]
        self.by_key = parts.take([self.block, TABLE], "f32")
        self.by_query = parts.take([self.block, TABLE], "f32")

    # Units ----------------------------------------------------------------------------------------

    def body(self, begin: Value, end: Value) -> None:
        em = self.em
        steps, heads = em.dim(self.q, 1), em.dim(self.q, 2)
        with em.loop(begin, end, hint="unit") as unit:
            head = unit.iv // self.groups
            self.b, self.h = head // heads, head % heads
            self.j = unit.iv % self.groups * self.columns
            self.left = self.n - self.j
            one_or_many(em, steps, self._single_step if self._reads_in_place else None, self._run)

    @property
    def _reads_in_place(self) -> bool:
        """Whether one step can go from state to state without a copy in scratch."""
        return self.whole and self.state is not None and self.state_out is not None

    def _single_step(self) -> None:
        assert self.state is not None
        assert self.state_out is not None
        self._gates(0, 1)
        self._step(0, 0, *(_Memory(buffer, (self.b, self.h), self.j) for buffer in (self.state, self.state_out)))

    def _run(self, steps: Index) -> None:
        em = self.em
        memory = _Memory(self.memory)
        self._copy_in()
        with em.loop(0, steps, self.block, hint="t") as block:
            t, count = block.iv, em.imin(steps - block.iv, self.block)
            decays = self._gates(t, count)
            if self.spec.by_step:
                self._step(t, 0, memory, memory)
            else:
                self._block_or_steps(t, count, decays, memory)
        self._copy_out()

    def _block_or_steps(self, t: Index, count: Index, decays: Value, memory: _Memory) -> None:
        """Steps from t on: a block where there are as many and no decay is above one, one after the other elsewhere."""
        em = self.em
        is_whole = em.cmpi("eq", count, self.block)
        with em.if_(em.binary("arith.andi", is_whole, decays)) as branch:
            self._block(t, memory)
            branch.else_()
            with em.loop(0, count, hint="c") as step:
                self._step(t + step.iv, step.iv, memory, memory)

    def _copy_in(self) -> None:
        em = self.em
        with em.loop(0, self.n, hint="i") as row, em.loop(0, self.columns, self.lanes, hint="j") as column:
            value = em.zero(self.type)
            if self.state is not None:
                value = self._load(self.state, (self.b, self.h, row.iv), column.iv)
            em.vstore(value, self.memory, [row.iv, column.iv])

    def _copy_out(self) -> None:
        em = self.em
        if self.state_out is None:
            return
        with em.loop(0, self.n, hint="i") as row, em.loop(0, self.columns, self.lanes, hint="j") as column:
            value = em.vload(self.memory, [row.iv, column.iv], self.type)
            self._store(value, self.state_out, (self.b, self.h, row.iv), column.iv)

    # Rows of the operands -------------------------------------------------------------------------

    def _mask(self, column: Index) -> Value | None:
        """Which lanes from a column of the unit on are columns of the memory; None: all."""
        em = self.em
        return None if self.whole else em.mask(em.imax(self.left - column, 0), self.lanes)

    def _load(self, buffer: Value, at: Sequence[Index], column: Index) -> Value:
        """The unit's columns of a row, as f32; zeros beyond n."""
        em, type = self.em, with_element(self.type, element_of(buffer.type))
        indices = [*at, self.j + column]
        return self.target.widen(em, em.vload(buffer, indices, type, self._mask(column)))

    def _store(self, value: Value, buffer: Value, at: Sequence[Index], column: Index) -> None:
        """The inverse of `_load`."""
        em = self.em
        indices, value = [*at, self.j + column], rounded(em, self.target, value, element_of(buffer.type))
        em.vstore(value, buffer, indices, self._mask(column))

    def _gates(self, t: Index, count: Index) -> Value:
        """Decays and strengths of `count` steps into scratch; returns whether no decay is above one."""
        em, zero = self.em, self.em.zero(self.table)
        em.vstore(zero, self.decay, [0])
        with em.loop(0, count, hint="c") as c:
            at = [self.b, t + c.iv, self.h]
            for source, destination in ((self.g, self.decay), (self.beta, self.strength)):
                em.store(self.target.widen(em, em.load(source, at)), destination, [c.iv])
        g = em.vload(self.decay, [0], self.table)
        em.vstore(em.unary("math.exp", g), self.decay, [0])
        return em.reduce("and", em.cmpf("ole", g, 0.0))

    def _copy_rows(self, t: Index, count: int) -> None:
        """Keys of `count` steps, and queries over sqrt(n), into scratch as f32; zeros beyond n."""
        em = self.em
        narrow = with_element(self.type, self.element)
        for first, buffer, factor in ((0, self.k, None), (count, self.q, self.n**-0.5)):  # both may be one buffer
            with em.loop(0, count, hint="c") as c, em.loop(0, self.padded, self.lanes, hint="i") as i:
                at = [self.b, t + c.iv, self.h, i.iv]
                mask = em.mask(self.n - i.iv, self.lanes) if self.n % self.lanes else None
                row = self.target.widen(em, em.vload(buffer, at, narrow, mask))
                if factor is not None:
                    row = row * factor
                em.vstore(row, self.rows, [c.iv + first, i.iv])

    def _groups_of(self, vectors: int) -> tuple[int, int]:
        """(vectors of columns that are computed together, columns that they are)."""
        count = self.columns // self.lanes
        together = max(size for size in range(1, vectors + 1) if count % size == 0)
        return together, together * self.lanes

    # Passes over the memory -----------------------------------------------------------------------

    def _read(self, memory: _Memory, row: Index, column: Index) -> Value:
        at = [*memory.prefix, row, memory.first + column]
        return self.em.vload(memory.buffer, at, self.type)

    def _spread(self, buffer: Value, *at: Index) -> Value:
        """One number in all lanes."""
        return self.em.broadcast(self.em.load(buffer, at), self.type)

    def _recall(self, memory: _Memory, column: Index, vectors: int, count: int) -> list[list[Value]]:
        """sum_i rows[c, i] M[i]: for each of the keys, then for each of the queries, its vectors of columns."""
        em = self.em
        zeros = [[em.zero(self.type)] * vectors] * (2 * count)
        with em.loop(0, self.n, 1, zeros, hint="i") as row:
            values = [self._read(memory, row.iv, column + x * self.lanes) for x in range(vectors)]
            factors = (self._spread(self.rows, c, row.iv) for c in range(2 * count))
            row.yield_(add_products(em, self.target, factors, values, row.carry))
        return row.result

    def _update(
        self, source: _Memory, target: _Memory, column: Index, decay: Value, changes: Sequence[Sequence[Value]]
    ) -> None:
        """M[i] = decay M[i] + sum_c rows[c, i] changes[c]"""
        em = self.em
        with em.loop(0, self.n, hint="i") as row:
            places = [column + x * self.lanes for x in range(len(changes[0]))]
            values = [self._read(source, row.iv, place) * decay for place in places]
            for c, change in enumerate(changes):
                factor = self._spread(self.rows, c, row.iv)
                values = [self.target.fma(em, factor, d, m) for d, m in zip(change, values, strict=True)]
            for place, value in zip(places, values, strict=True):
                em.vstore(value, target.buffer, [*target.prefix, row.iv, target.first + place])

    # One step -------------------------------------------------------------------------------------

    def _step(self, t: Index, c: Index, source: _Memory, target: _Memory) -> None:
        """Step t, whose gates stand at c."""
        em = self.em
        self._copy_rows(t, 1)
        with em.loop(0, self.padded, self.lanes, em.zero(self.type), hint="i") as i:
            key, query = (em.vload(self.rows, [row, i.iv], self.type) for row in (0, 1))
            i.yield_(self.target.fma(em, key, query, i.carry))
        product = em.broadcast(em.reduce("add", i.result, "reassoc"), self.type)
        decay, strength = self._spread(self.decay, c), self._spread(self.strength, c)
        vectors, width = self._groups_of(4)
        with em.loop(0, self.columns, width, hint="j") as j:
            recalled, asked = self._recall(source, j.iv, vectors, 1)
            changes = []
            for x in range(vectors):
                place = j.iv + x * self.lanes
                v = self._load(self.v, (self.b, t, self.h), place)
                change = strength * (v - decay * recalled[x])
                changes.append(change)
                if self.out is not None:
                    answer = self.target.fma(em, product, change, decay * asked[x])
                    self._store(answer, self.out, (self.b, t, self.h), place)
            self._update(source, target, j.iv, decay, [changes])

    # A block of steps -----------------------------------------------------------------------------

    def _block(self, t: Index, memory: _Memory) -> None:
        """Steps t .. t + block - 1, none of whose decays is above one."""
        em, count = self.em, self.block
        self._copy_rows(t, count)
        whole = self._tables()
        vectors, width = self._groups_of(2)
        with em.loop(0, self.columns, width, hint="j") as j:
            sums = self._recall(memory, j.iv, vectors, count)
            changes: list[list[Value]] = []
            for c in range(count):
                reach, strength = self._spread(self.reach, c), self._spread(self.strength, c)
                coefficients = [self._spread(self.by_key, c, u) for u in range(c)]
                own: list[Value] = []
                for x in range(vectors):
                    v = self._load(self.v, (self.b, t + c, self.h), j.iv + x * self.lanes)
                    rest = v - reach * sums[c][x]
                    for coefficient, change in zip(coefficients, changes, strict=True):
                        rest = rest - coefficient * change[x]
                    own.append(strength * rest)
                changes.append(own)
            if self.out is not None:
                for c in range(count):
                    reach = self._spread(self.reach, c)
                    coefficients = [self._spread(self.by_query, c, u) for u in range(c + 1)]
                    for x in range(vectors):
                        answer = reach * sums[count + c][x]
                        for coefficient, change in zip(coefficients, changes, strict=False):
                            answer = self.target.fma(em, coefficient, change[x], answer)
                        self._store(answer, self.out, (self.b, t + c, self.h), j.iv + x * self.lanes)
            fades = [self._spread(self.fade, c) for c in range(count)]
            faded = [[fade * d for d in change] for fade, change in zip(fades, changes, strict=True)]
            self._update(memory, memory, j.iv, em.broadcast(whole, self.type), faded)

    def _tables(self) -> Value:
        """The tables of a block: decays times products of its keys and queries with its keys; returns its decay."""
        em, count = self.em, self.block
        numbers = em.const(range(TABLE), vec(TABLE, "i32"))
        with em.loop(0, count, 1, (em.zero(self.table), em.const(1.0, "f32")), hint="c") as c:
            a = em.load(self.decay, [c.iv])
            row, reach = c.carry
            row = row * em.broadcast(a, self.table)
            own = em.broadcast(em.cast("arith.index_cast", c.iv, "i32"), numbers.type)
            row = em.select(em.cmpi("eq", numbers, own), em.const(1.0, self.table), row)
            reach = reach * a
            em.store(reach, self.reach, [c.iv])
            with em.loop(0, self.padded, self.lanes, [[em.zero(self.type)] * count] * 2, hint="i") as i:
                key = em.vload(self.rows, [c.iv, i.iv], self.type)
                query = em.vload(self.rows, [c.iv + count, i.iv], self.type)
                others = [em.vload(self.rows, [u, i.iv], self.type) for u in range(count)]
                i.yield_(add_products(em, self.target, (key, query), others, i.carry))
            for table, sums in zip((self.by_key, self.by_query), i.result, strict=True):
                em.vstore(self._totals(sums) * row, table, [c.iv, 0])
            c.yield_((row, reach))
        fade, reach = c.result
        em.vstore(fade, self.fade, [0])
        return reach

    def _totals(self, sums: Sequence[Value]) -> Value:
        """The sum over the lanes of each vector, as a row of a table."""
        em = self.em
        filled = [*sums, *[em.zero(self.type)] * (-len(sums) % self.lanes)]
        parts = [sum_each(em, filled[at : at + self.lanes]) for at in range(0, len(filled), self.lanes)]
        if self.lanes >= TABLE:
            return em.slice(parts[0], 0, TABLE)
        parts += [em.zero(self.type)] * (TABLE // self.lanes - len(parts))
        return em.shuffle(parts[0], parts[1], range(TABLE))


GENERATORS = (Generator("recurrence", "recurrence", as_it_is, emit_recurrence),)
