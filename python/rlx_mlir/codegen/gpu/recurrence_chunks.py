# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gated delta rule for prompts: a block keeps 32 columns of one head's memory, and takes `CHUNK` steps at a time.

Lanes and warps have columns and rows as in `recurrence.py`. With a_t = e^g_t, the decays D[c, u] = a_(u+1) .. a_c, and
M the memory before the chunk,

    r_c = sum_i k_c[i] M[i]    p_c = sum_i q_c[i] M[i]
    d_c = beta_c (v_c - D[c, -1] r_c - sum_(u < c) D[c, u] (k_c . k_u) d_u)
    o_c = n^-0.5 (D[c, -1] p_c + sum_(u <= c) D[c, u] (q_c . k_u) d_u)
    M[i] = D[last, -1] M[i] + sum_c k_c[i] D[last, c] d_c

so that each element of the memory is decayed once a chunk, sums of all steps are under way together, and warps meet at
two barriers a chunk, not at one a step. Products of keys and queries are shared by the block's columns. All is f32.

Steps beyond the last have no key, no query and no change. Decays are products of numbers up to one: a chunk in which a
g is above 0, or NaN, goes step by step.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value, vec
from rlx_mlir.codegen.gpu.epilogue import exp

WARP = ROWS = 32
#: Steps of a chunk, a power of two.
CHUNK = 8
_PAIRS = CHUNK * CHUNK
#: Elements from one row of a table to the next, and of a table: columns of it don't conflict, rows are whole vectors.
_TABLE_PITCH = CHUNK + 4
_TABLE = CHUNK * _TABLE_PITCH


def _shares(warps: int) -> int:
    """Threads that share a product of two rows."""
    return 1 << max(0, (WARP * warps // _PAIRS).bit_length() - 1)


def _pitch(warps: int) -> int:
    """Elements from one key to the next in shared memory: what the threads of products read doesn't conflict."""
    return WARP * warps + 4 * _shares(warps)


def _places(warps: int) -> tuple[int, int, int, int]:
    """Elements of shared memory before queries, sums, tables, and of all; the first two are those of two chunks."""
    pitch = _pitch(warps)
    queries = CHUNK * pitch + 4 * _shares(warps)
    turn = queries + CHUNK * pitch
    sums = 2 * turn
    tables = sums + 2 * CHUNK * WARP * warps
    return queries, turn, sums, tables + 2 * _TABLE


def chunk_memory(warps: int) -> int:
    """Bytes of shared memory of a block."""
    return 4 * _places(warps)[3]


class Chunks:
    """Emits the chunks of one block.

    Args:
        buffers: pointers by name: q, k, v, g, beta, and where they are there state, next and out.
        heads, steps: i32. head, batch, h: of all heads, of the batch item, and the head in that, i32.
        column: the thread's, i32; it exists where it is below n.
    """

    def __init__(
        self,
        em: DeviceEmitter,
        element: str,
        n: int,
        buffers: dict[str, Value],
        steps: Value,
        heads: Value,
        place: tuple[Value, Value],
        column: Value,
    ) -> None:
        self.em, self.element, self.n, self.buffers, self.steps, self.heads = em, element, n, buffers, steps, heads
        self.warps = -(-n // ROWS)
        self.column = column
        self.exists = em.cmpi("ult", column, n)
        self.lane, self.warp = em.lane(), em.warp()
        self.row = em.index(self.warp * ROWS)
        batch, h = place
        # Gates of step t are at (batch steps + t) heads + h; rows of q, k and v at n times that.
        first = em.wide(batch) * em.wide(steps)
        self.gate = first * em.wide(heads) + em.wide(h)
        self.pitch = _pitch(self.warps)
        self.queries, self.turn, sums, self.end = _places(self.warps)
        self.memory = em.shared()
        self.sums, self.tables = em.shared(4 * sums), em.shared(4 * (self.end - 2 * _TABLE))

    def run(self, memory: list[Value]) -> list[Value]:
        """All steps: the memory's rows after the last, from those before the first."""
        em = self.em
        ahead = self._fetch(em.const(0))
        with em.loop(0, self.steps, CHUNK, (memory, em.const(0), ahead), hint="t") as loop:
            own, turn, here = loop.carry
            keys = em.index(turn * self.turn)
            g, beta = here[2 * CHUNK :]
            self._put(keys, here[:CHUNK], here[CHUNK : 2 * CHUNK])
            em.barrier()
            ahead = self._fetch(loop.iv + CHUNK)
            v = self._values(loop.iv)
            # Every warp has the same gates, so all of a block go the same way.
            grows = em.cmpi("ne", em.ballot(em.cmpf("ugt", g, 0.0)), 0)
            with em.if_(grows, own) as branch:
                branch.yield_(self._one_by_one(own, keys, loop.iv, g, beta))
                branch.else_()
                branch.yield_(self._chunk(own, keys, loop.iv, v, g, beta))
            loop.yield_((branch.result, turn ^ 1, ahead))
        return loop.result[0]

    # -- operands -----------------------------------------------------------------------------------------------------

    def _gate(self, t: Index) -> Value:
        """The element of a gate at step t."""
        em = self.em
        return self.gate + em.wide(em.wide(t) * em.wide(self.heads))

    def _load(self, name: str, condition: Value, place: Value) -> Value:
        em = self.em
        return em.widen(em.ld_if(condition, self.buffers[name], self.element, place))

    def _fetch(self, t: Value) -> list[Value]:
        """Of the chunk from step t on: the thread's elements of keys and queries; of step `lane` the gates. Zeros after
        the last step."""
        em = self.em
        own = em.index(self.warp * WARP + self.lane)
        is_row = em.cmpi("ult", own, self.n)
        found: dict[str, list[Value]] = {"k": [], "q": []}
        for c in range(CHUNK):
            step = t + c
            there = em.cmpi("slt", step, self.steps)
            start = self._gate(step) * self.n
            for name in ("k", "q"):
                found[name].append(self._load(name, there & is_row, start + em.wide(own)))
        step = t + self.lane
        there = em.cmpi("slt", step, self.steps) & em.cmpi("ult", self.lane, CHUNK)
        gates = [self._load(name, there, self._gate(step)) for name in ("g", "beta")]
        return [*found["k"], *found["q"], *gates]

    def _values(self, t: Value) -> list[Value]:
        """v of the chunk's steps at the thread's column."""
        em = self.em
        found = []
        for c in range(CHUNK):
            step = t + c
            place = self._gate(step) * self.n + em.wide(self.column)
            found.append(self._load("v", self.exists & em.cmpi("slt", step, self.steps), place))
        return found

    def _put(self, keys: Value, k: Sequence[Value], q: Sequence[Value]) -> None:
        """The thread's elements of keys and queries into shared memory, queries over sqrt(n)."""
        em = self.em
        own = keys + (self.warp * WARP + self.lane)
        for c in range(CHUNK):
            em.st(k[c], self.memory, own + c * self.pitch)
            em.st(q[c] * self.n**-0.5, self.memory, own + (c * self.pitch + self.queries))

    def _rows(self, start: Index) -> list[Value]:
        """The 32 elements of a key or query at the thread's rows."""
        em = self.em
        vectors = [em.ld(self.memory, vec(4, "f32"), start + at) for at in range(0, ROWS, 4)]
        return [x for vector in vectors for x in em.lanes(vector)]

    # -- a chunk ------------------------------------------------------------------------------------------------------

    def _chunk(
        self, memory: list[Value], keys: Value, t: Value, v: Sequence[Value], g: Value, beta: Value
    ) -> list[Value]:
        em = self.em
        own = exp(em, g)
        decays = [em.shuffle_lane("idx", own, c) for c in range(CHUNK)]
        betas = [em.shuffle_lane("idx", beta, c) for c in range(CHUNK)]
        self._share(memory, keys)
        self._multiply(keys, decays, betas)
        em.barrier()
        reach = [decays[0]]
        for a in decays[1:]:
            reach.append(reach[-1] * a)
        changes: list[Value] = []
        for c in range(CHUNK):
            change = betas[c] * (v[c] - reach[c] * self._total(c, 0))
            table = self._table(c, 0, c)
            for weight, before in zip(table, changes, strict=True):
                change = change - weight * before
            changes.append(change)
        self._answer(t, reach, changes)
        faded, fade = [], em.const(1.0, "f32")
        for c in reversed(range(CHUNK)):
            faded.append(fade * changes[c])
            fade = fade * decays[c]
        faded.reverse()
        memory = [reach[-1] * m for m in memory]
        for c in range(CHUNK):
            key = self._rows(keys + (self.row + c * self.pitch))
            memory = [em.fmaf(k, faded[c], m) for k, m in zip(key, memory, strict=True)]
        return memory

    def _share(self, memory: Sequence[Value], keys: Value) -> None:
        """The sums over the thread's rows of k M and q M for all steps, for other warps."""
        em = self.em
        totals = [em.zero("f32")] * (2 * CHUNK)
        for at in range(0, ROWS, 4):
            for number in range(2 * CHUNK):
                c, kind = number % CHUNK, number // CHUNK
                start = keys + (self.row + (c * self.pitch + kind * self.queries + at))
                part = em.lanes(em.ld(self.memory, vec(4, "f32"), start))
                for x, m in zip(part, memory[at : at + 4], strict=True):
                    totals[number] = em.fmaf(x, m, totals[number])
        for number, total in enumerate(totals):
            em.st(total, self.sums, self._sum_place(number, self.warp))

    def _sum_place(self, number: int, warp: Index) -> Index:
        return (warp + number * self.warps) * WARP + self.lane

    def _total(self, c: int, kind: int) -> Value:
        """A sum of step c over all rows, at the thread's column: of k M, or (kind 1) of q M."""
        em = self.em
        places = [self._sum_place(kind * CHUNK + c, warp) for warp in range(self.warps)]
        return em.tree("add", [em.ld(self.sums, "f32", place) for place in places])

    def _multiply(self, keys: Value, decays: Sequence[Value], betas: Sequence[Value]) -> None:
        """The products of keys and queries of two steps, each decayed from the one to the other: k_c . k_u times beta_c
        for u < c in the first table, q_c . k_u for u <= c in the second, zeros elsewhere."""
        em, shares = self.em, _shares(self.warps)
        threads = WARP * self.warps
        for first in range(0, _PAIRS, threads // shares):
            task = em.index(em.thread() // shares + first)
            share = em.thread() % shares
            exists = em.cmpi("ult", task, _PAIRS)
            inside = em.index(em.imin(task, _PAIRS - 1))
            c, u = em.index(inside // CHUNK), em.index(inside % CHUNK)
            of_keys = em.cmpi("ult", u, c)
            later, earlier = em.select(of_keys, c, u), em.select(of_keys, u, c)
            left = later * self.pitch + em.select(of_keys, 0, self.queries)
            right = earlier * self.pitch
            total = self._dot(keys, left, right, share, shares)
            fade, strength = em.const(1.0, "f32"), em.const(1.0, "f32")
            for t in range(CHUNK):
                fades = em.cmpi("ult", earlier, t) & em.cmpi("uge", later, t)
                fade = em.select(fades, fade * decays[t], fade)
                strong = of_keys & em.cmpi("eq", later, t)
                strength = em.select(strong, betas[t], strength)
            # What has faded away is nothing, even where the product isn't finite.
            total = em.select(em.cmpf("ogt", fade, 0.0), total * fade * strength, 0.0)
            with em.if_(exists & em.cmpi("eq", share, 0) if shares > 1 else exists):
                # Where one table has the pair, the other has nothing; each of the stores has no conflicts.
                own = later * _TABLE_PITCH + earlier
                other = earlier * _TABLE_PITCH + later
                zero = em.zero("f32")
                with em.if_(of_keys) as branch:
                    em.st(total, self.tables, own)
                    em.st(zero, self.tables, other + _TABLE)
                    branch.else_()
                    em.st(total, self.tables, own + _TABLE)
                    with em.if_(em.cmpi("ne", earlier, 0)):  # nothing reads the first row of the first table
                        em.st(zero, self.tables, other)

    def _dot(self, keys: Value, left: Index, right: Index, share: Index, shares: int) -> Value:
        """A product of two rows in shared memory; the threads of a share take every so many pieces of 4."""
        em = self.em
        totals = [em.zero("f32")] * 4
        starts = [keys + side + share * 4 for side in (left, right)]
        for at in range(0, WARP * self.warps, 4 * shares):
            x, y = (em.lanes(em.ld(self.memory, vec(4, "f32"), start + at)) for start in starts)
            totals = [em.fmaf(a, b, total) for a, b, total in zip(x, y, totals, strict=True)]
        return em.warp_reduce("add", em.tree("add", totals), shares)

    def _table(self, c: int, kind: int, count: int) -> list[Value]:
        """The first `count` numbers of row c of a table."""
        em = self.em
        start = kind * _TABLE + c * _TABLE_PITCH
        vectors = [em.ld(self.tables, vec(4, "f32"), start + at) for at in range(0, count, 4)]
        return [x for vector in vectors for x in em.lanes(vector)][:count]

    def _answer(self, t: Value, reach: Sequence[Value], changes: Sequence[Value]) -> None:
        """Results at the thread's column; warps take steps in turn."""
        em = self.em
        if "out" not in self.buffers:
            return
        for c in range(CHUNK):
            step = t + c
            mine = em.cmpi("eq", self.warp, c % self.warps) & em.cmpi("slt", step, self.steps)
            with em.if_(mine & self.exists):
                value = reach[c] * self._total(c, 1)
                for weight, change in zip(self._table(c, 1, c + 1), changes, strict=False):
                    value = em.fmaf(weight, change, value)
                self._write(step, value)

    def _write(self, step: Value, value: Value) -> None:
        em = self.em
        at = self._gate(step) * self.n + em.wide(self.column)
        em.st(em.narrow(value, self.element), self.buffers["out"], at)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _one_by_one(self, memory: list[Value], keys: Value, t: Value, g: Value, beta: Value) -> list[Value]:
        """The chunk's steps one after the other, with decays of any size."""
        em = self.em
        decay = exp(em, g)
        left = em.index(em.imin(self.steps - t, CHUNK))
        with em.loop(0, left, 1, memory, hint="c") as loop:
            a, strength = (em.shuffle_lane("idx", x, loop.iv) for x in (decay, beta))
            start = keys + (loop.iv * self.pitch + self.row)
            key = self._rows(start)
            own = [a * m for m in loop.carry]
            step = t + loop.iv
            place = self._gate(step) * self.n + em.wide(self.column)
            v = self._load("v", self.exists, place)
            change = strength * (v - self._exchange(key, own, 0))
            own = [em.fmaf(k, change, m) for k, m in zip(key, own, strict=True)]
            answer = self._exchange(self._rows(start + self.queries), own, 1)
            if "out" in self.buffers:
                with em.if_(self.exists & em.cmpi("eq", self.warp, 0)):
                    self._write(step, answer)
            loop.yield_(own)
        return loop.result

    def _exchange(self, row: Sequence[Value], memory: Sequence[Value], kind: int) -> Value:
        """The sum of a row and the memory over all warps' rows."""
        em = self.em
        chains = [row[i] * memory[i] for i in range(4)]
        for i in range(4, ROWS):
            chains[i % 4] = em.fmaf(row[i], memory[i], chains[i % 4])
        em.st(em.tree("add", chains), self.sums, self._sum_place(kind * CHUNK, self.warp))
        em.barrier()
        return self._total(0, kind)
