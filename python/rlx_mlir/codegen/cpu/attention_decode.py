# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of single queries (Sq = 1): one unit is one query head, **lanes run over the head size**.

What limits this is reading the keys and values, so they are read once for all heads that share them, in chunks that
stay in the L2 cache while one KV head after the other takes its part of each row, and what comes next is prefetched.
Heads of one call that have the same KV head share each block of keys while it is in the L1 cache; that is a question of
order alone, so bits don't depend on which heads a call gets. Chunks start at multiples of their size.

Queries, partial results, maxima and sums of all heads stand in scratch, as f32. Keys and values of f16 or bf16 are
widened into scratch a block at a time where several heads share them, and in registers where not.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_mlir.codegen.emit import Emitter, Index, Value, vec

from .attention_base import NEGATIVE_INFINITY, AttentionSpec, Heads, Schedule
from .kernel import Scratch
from .target import ELEMENT_BITS, Target

__all__ = ["Decode"]

CHUNK = 256
"""Keys between two updates of the running maximum; scores of a group's heads for that many stay in the L1 cache."""

LINE = 64
"""Bytes of a cache line."""


class Decode(Schedule):
    """Heads of one query; see the module's docstring."""

    def __init__(self, em: Emitter, spec: AttentionSpec, target: Target) -> None:
        super().__init__(em, spec, target)
        self.padded = -(-self.size // self.lanes) * self.lanes
        self.bytes = self.size * ELEMENT_BITS[self.stored] // 8
        # Rows that are prefetched before they are needed: about 4 KB, in whole blocks of keys.
        self.ahead = max(1, 4096 // self.bytes // self.lanes) * self.lanes
        self.staged = self.stored != "f32" and spec.group > 1
        # Values that all heads of a group read before the next ones.
        self.block = 32 if self.size <= 64 else 16

    def units(self, q: Value) -> Index:
        return self.em.imul(self.batch(q), self.spec.num_heads)

    def take_scratch(self, k: Value, parts: Scratch) -> None:
        """Padded rows of all heads: multiplied queries and sums of the result; maxima, sums; scores of a group."""
        heads = self.spec.num_heads
        self.query = parts.take([heads * self.padded], "f32")
        self.total = parts.take([heads * self.padded], "f32")
        self.maxima = parts.take([heads], "f32")
        self.sums = parts.take([heads], "f32")
        self.scores = parts.take([self.spec.group * CHUNK], "f32")
        rows = max(self.lanes, self.block)
        self.widened = parts.take([rows * self.padded], "f32") if self.staged else None

    def body(self, begin: Value, end: Value) -> None:
        em, heads, group = self.em, self.spec.num_heads, self.spec.group
        with em.loop(em.idiv(begin, heads), em.iceildiv(end, heads), hint="b") as batch:
            b = batch.iv
            before = em.imul(b, heads)
            first = em.isub(em.imax(begin, before), before)
            stop = em.isub(em.imin(end, em.iadd(before, heads)), before)
            keys = self.keys(b, 0, 1)
            self.start(b, first, stop)
            start = em.imul(em.idiv(keys.lo, CHUNK), CHUNK)
            with em.loop(start, keys.hi, CHUNK, hint="chunk") as chunk:
                low, high = em.imax(chunk.iv, keys.lo), em.imin(em.iadd(chunk.iv, CHUNK), keys.hi)
                with em.loop(em.idiv(first, group), em.iceildiv(stop, group), hint="kv") as kv:
                    own = em.imul(kv.iv, group)
                    h0, h1 = em.imax(first, own), em.imin(stop, em.iadd(own, group))
                    self.score_block(b, h0, h1, low, high, self.k.base(em, b, kv.iv))
                    self.weigh(h0, h1, em.isub(high, low))
                    self.accumulate(b, h0, h1, low, high, self.v.base(em, b, kv.iv))
            self.finish(b, first, stop)

    # Heads ----------------------------------------------------------------------------------------

    def start(self, b: Index, first: Index, stop: Index) -> None:
        """Queries as f32, multiplied; nothing seen so far."""
        em = self.em
        with em.loop(first, stop, hint="head") as head:
            row = em.imul(head.iv, self.padded)
            with em.loop(0, self.padded, self.lanes, hint="d") as d:
                at = [em.iadd(row, d.iv)]
                em.vstore(em.zero(self.type), self.total, at)
                em.vstore(em.zero(self.type), self.query, at)
            self.copy_wide(self.q.flat, self.q.base(em, b, head.iv), self.query, row, self.query_factor)
            em.store(em.const(NEGATIVE_INFINITY, "f32"), self.maxima, [head.iv])
            em.store(em.const(0.0, "f32"), self.sums, [head.iv])

    def finish(self, b: Index, first: Index, stop: Index) -> None:
        """result = total / sum"""
        em = self.em
        with em.loop(first, stop, hint="head") as head:
            row, out = em.imul(head.iv, self.padded), self.out.base(em, b, head.iv)
            sum_ = em.load(self.sums, [head.iv])
            inverse = em.divf(1.0, sum_)
            lanes, inverses = em.broadcast(sum_, self.type), em.broadcast(inverse, self.type)
            whole = self.size // self.lanes * self.lanes
            with em.loop(0, whole, self.lanes, hint="d") as d:
                total = em.vload(self.total, [em.iadd(row, d.iv)], self.type)
                value = self.narrow(self.normalised(total, lanes, inverses))
                em.vstore(value, self.out.flat, [em.iadd(out, d.iv)])
            if whole < self.size:
                with em.loop(whole, self.size, hint="d") as d:
                    total = em.load(self.total, [em.iadd(row, d.iv)])
                    value = self.narrow(self.normalised(total, sum_, inverse))
                    em.store(value, self.out.flat, [em.iadd(out, d.iv)])

    # Rows of keys and values ----------------------------------------------------------------------

    def columns(self) -> list[tuple[int, int]]:
        """(start, elements in use) of the vectors that cover one head."""
        return [(at, min(self.lanes, self.size - at)) for at in range(0, self.size, self.lanes)]

    def load(self, buffer: Value, at: Index, used: int) -> Value:
        """A vector of a head's elements as f32, zeros beyond `used`."""
        em, type = self.em, self.vector(buffer)
        if used == self.lanes or buffer is self.widened:
            return self.wide(em.vload(buffer, [at], type))
        mask = em.const([lane < used for lane in range(self.lanes)], vec(self.lanes, "i1"))
        return self.wide(em.masked_load(buffer, [at], mask, em.zero(type)))

    def prefetch(self, x: Heads, base: Index, first: Index, rows: int, high: Index) -> None:
        """Asks for `rows` rows of a head from row `first` on, where all of them exist in this chunk."""
        em = self.em
        inside = em.cmpi("sle", em.index(em.iadd(first, rows)), em.index(high))
        with em.if_(inside), em.loop(0, rows, hint="row") as row:
            start = em.iadd(base, em.imul(em.iadd(first, row.iv), x.stride))
            for at in range(0, self.bytes, LINE):
                em.prefetch(x.flat, [em.iadd(start, at * 8 // ELEMENT_BITS[self.stored])])

    def stage(self, x: Heads, base: Index, low: Index, high: Index) -> None:
        """Rows low .. high - 1 of a head, as f32, into scratch; what pads a row is zero."""
        em = self.em
        assert self.widened is not None
        with em.loop(low, high, hint="row") as row:
            source = em.iadd(base, em.imul(row.iv, x.stride))
            target = em.imul(em.isub(row.iv, low), self.padded)
            for at, used in self.columns():
                em.vstore(self.load(x.flat, em.iadd(source, at), used), self.widened, [em.iadd(target, at)])

    # Scores ---------------------------------------------------------------------------------------

    def score_row(self, head: Index, h0: Index) -> Index:
        """Where the scores of a head start."""
        return self.em.imul(self.em.isub(head, h0), CHUNK)

    def score_block(self, b: Index, h0: Index, h1: Index, low: Index, high: Index, base: Index) -> None:
        """Scores of keys low .. high - 1 for heads h0 .. h1 - 1; those that pad the last vector are -inf."""
        em = self.em
        with em.loop(low, high, self.lanes, hint="key") as block:
            left = em.imin(em.isub(high, block.iv), self.lanes)
            valid = em.mask(left, self.lanes)
            last = em.isub(left, 1)
            self.prefetch(self.k, base, em.iadd(block.iv, self.ahead), self.lanes, high)
            source, start, stride = self.k.flat, em.iadd(base, em.imul(block.iv, self.k.stride)), self.k.stride
            if self.widened is not None:
                self.stage(self.k, base, block.iv, em.iadd(block.iv, left))
                source, start, stride = self.widened, 0, self.padded
            # Where fewer keys are left, the last one is repeated.
            rows = [em.iadd(start, em.imul(em.imin(u, last), stride)) for u in range(self.lanes)]
            with em.loop(h0, h1, hint="head") as head:
                bias = None
                if self.spec.mask_kind == "bias":
                    bias = self.mask_lanes(em.iadd(self.first_mask_row(b, head.iv), block.iv), valid)
                score = self.score(self.products(head.iv, source, rows), bias)
                seen = valid
                if self.spec.mask_kind == "custom":
                    seen = em.cmpf(
                        "oge", self.mask_lanes(em.iadd(self.first_mask_row(b, head.iv), block.iv), valid), 0.5
                    )
                score = em.select(seen, score, NEGATIVE_INFINITY)
                em.vstore(score, self.scores, [em.iadd(self.score_row(head.iv, h0), em.isub(block.iv, low))])

    def mask_lanes(self, at: Index, valid: Value) -> Value:
        """The mask of `lanes` keys as f32, zeros where they don't exist."""
        assert self.mask is not None
        return self.wide(self.em.masked_load(self.mask, [at], valid, self.em.zero(self.vector(self.mask))))

    def products(self, head: Index, source: Value, rows: Sequence[Index]) -> Value:
        """<q, k> for `lanes` keys, one per lane."""
        em = self.em
        query = em.imul(head, self.padded)

        def step(at: Index, used: int, sums: Sequence[Value]) -> list[Value]:
            q = em.vload(self.query, [em.iadd(query, at)], self.type)
            return [
                self.fma(self.load(source, em.iadd(row, at), used), q, sum_)
                for row, sum_ in zip(rows, sums, strict=True)
            ]

        sums = [em.zero(self.type)] * self.lanes
        whole, rest = divmod(self.size, self.lanes)
        if whole > 1:
            with em.loop(0, whole * self.lanes, self.lanes, sums, hint="d") as d:
                d.yield_(step(d.iv, self.lanes, d.args))
            sums = d.results
        elif whole == 1:
            sums = step(0, self.lanes, sums)
        if rest:
            sums = step(whole * self.lanes, rest, sums)
        return sum_each(em, sums)

    def weigh(self, h0: Index, h1: Index, count: Index) -> None:
        """scores = 2^(score - maximum) in place; maxima, sums and results follow the chunk's maximum."""
        em = self.em
        with em.loop(h0, h1, hint="head") as head:
            start = self.score_row(head.iv, h0)
            with em.loop(0, count, self.lanes, [em.const(NEGATIVE_INFINITY, self.type)], hint="key") as key:
                score = em.vload(self.scores, [em.iadd(start, key.iv)], self.type)
                key.yield_([self.larger(score, key.args[0])])
            old = em.load(self.maxima, [head.iv])
            maximum = self.larger(em.reduce("maximumf", key.results[0]), old)
            em.store(maximum, self.maxima, [head.iv])
            shift = em.broadcast(self.finite_maximum(maximum), self.type)
            with em.loop(0, count, self.lanes, [em.zero(self.type)], hint="key") as key:
                at = [em.iadd(start, key.iv)]
                weight = self.exp2(em.vload(self.scores, at, self.type), shift)
                em.vstore(weight, self.scores, at)
                key.yield_([em.addf(key.args[0], weight)])
            decay = self.exp2(em.broadcast(old, self.type), shift)
            total = em.reduce("add", key.results[0], "reassoc")
            sum_ = em.addf(em.mulf(em.load(self.sums, [head.iv]), em.extract(decay, 0)), total)
            em.store(sum_, self.sums, [head.iv])
            with em.loop(0, self.padded, self.lanes, hint="d") as d:
                at = [em.iadd(em.imul(head.iv, self.padded), d.iv)]
                em.vstore(em.mulf(em.vload(self.total, at, self.type), decay), self.total, at)

    # Values ---------------------------------------------------------------------------------------

    def accumulate(self, b: Index, h0: Index, h1: Index, low: Index, high: Index, base: Index) -> None:
        """total += sum of weight * value, a few keys of all heads at a time."""
        em, columns = self.em, self.columns()
        width = max((n for n in range(1, 9) if len(columns) % n == 0), default=1)
        with em.loop(low, high, self.block, hint="key") as block:
            stop = em.imin(em.iadd(block.iv, self.block), high)
            self.prefetch(self.v, base, em.iadd(block.iv, self.ahead), self.block, high)
            source, start, stride = self.v.flat, em.iadd(base, em.imul(block.iv, self.v.stride)), self.v.stride
            if self.widened is not None:
                self.stage(self.v, base, block.iv, stop)
                source, start, stride = self.widened, 0, self.padded
            count = em.isub(stop, block.iv)
            with em.loop(h0, h1, hint="head") as head:
                weights = em.iadd(self.score_row(head.iv, h0), em.isub(block.iv, low))
                kept = None
                if self.spec.mask_kind == "custom":
                    kept = em.iadd(self.first_mask_row(b, head.iv), block.iv)
                total = em.imul(head.iv, self.padded)
                for at in range(0, len(columns), width):
                    part = columns[at : at + width]
                    self.value_columns(total, weights, source, start, stride, count, kept, part)

    def value_columns(
        self,
        total: Index,
        weights: Index,
        source: Value,
        start: Index,
        stride: int,
        count: Index,
        kept: Index | None,
        columns: Sequence[tuple[int, int]],
    ) -> None:
        """Adds `count` rows to some columns of one head, a few keys at a time to hide the latency of additions."""
        em = self.em
        unroll = max(1, 8 // len(columns))

        def add(key: Index, sums: Sequence[Value]) -> list[Value]:
            weight = em.broadcast(em.load(self.scores, [em.iadd(weights, key)]), self.type)
            row = em.iadd(start, em.imul(key, stride))
            values = [self.load(source, em.iadd(row, at), used) for at, used in columns]
            if kept is not None:  # 0 * NaN is NaN: an invisible key's value must not be added
                assert self.mask is not None
                seen = em.cmpf("oge", self.wide(em.load(self.mask, [em.iadd(kept, key)])), 0.5)
                values = [em.select(seen, value, 0.0) for value in values]
            return [self.fma(weight, value, sum_) for value, sum_ in zip(values, sums, strict=True)]

        places = [[em.iadd(total, at)] for at, _ in columns]
        sums = [em.vload(self.total, place, self.type) for place in places]
        sums += [em.zero(self.type)] * ((unroll - 1) * len(columns))
        whole = em.imul(em.idiv(count, unroll), unroll)
        with em.loop(0, whole, unroll, sums, hint="key") as key:
            parts = [key.args[u * len(columns) : (u + 1) * len(columns)] for u in range(unroll)]
            key.yield_([sum_ for u, part in enumerate(parts) for sum_ in add(em.iadd(key.iv, u), part)])
        parts = [key.results[u * len(columns) : (u + 1) * len(columns)] for u in range(unroll)]
        while len(parts) > 1:
            half = (len(parts) + 1) // 2
            pairs = zip(parts, parts[half:], strict=False)
            left_over = parts[len(parts) - half : half]
            parts = [[em.addf(x, y) for x, y in zip(*pair, strict=True)] for pair in pairs] + left_over
        with em.loop(whole, count, 1, parts[0], hint="key") as key:
            key.yield_(add(key.iv, key.args))
        for place, sum_ in zip(places, key.results, strict=True):
            em.vstore(sum_, self.total, place)


def sum_each(em: Emitter, vectors: Sequence[Value]) -> Value:
    """Horizontal sums of as many vectors as each has lanes (a power of two, at least 4): lane i is the sum of vector i.

    Each level adds halves of two vectors into one, 3 operations a pair, instead of a whole reduction a vector.
    """
    lanes = len(vectors)
    level, size = list(vectors), 2
    while len(level) > 1:
        if size == 2:  # x0 y0 x1 y1 + x2 y2 x3 y3 in each four lanes: unpack instructions, not permutations
            low = [lane for base in range(0, lanes, 4) for lane in (base, lanes + base, base + 1, lanes + base + 1)]
        else:
            half = size // 2
            low = [side + base + lane for base in range(0, lanes, size) for side in (0, lanes) for lane in range(half)]
        step = max(size // 2, 2)
        high = [lane + step for lane in low]
        level = [
            em.addf(em.shuffle(x, y, low), em.shuffle(x, y, high)) for x, y in zip(level[::2], level[1::2], strict=True)
        ]
        size *= 2
    return level[0]
