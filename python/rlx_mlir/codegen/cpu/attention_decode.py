# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of few queries, each by itself: **lanes run over the head size**, and keys are shared out.

A query of a batch element is a row of the work, and is computed as if it were alone: several queries (Sq > 1) have the
bits that each has where Sq = 1.

What limits this is reading the keys and values. The work is cut into parts: a KV head and a chunk of its keys, read
once for all heads that share it. A part leaves sums of weighted values, the maximum of its scores and the sum of its
weights, all as f32, in memory that units share; once all are done, `combine` adds up what the parts of a head left,
relative to the largest maximum. Chunks start at multiples of their size, and each part counts from zero, so bits depend
neither on which thread does a part, nor on the size of the cache.

Parts follow each other by chunks, so that one KV head after the other takes its piece of the rows, and each prefetches
the next one's. As many units as there may be parts share out those that have keys, by the number of keys. Keys and
values of f16 or bf16 are widened into scratch a block at a time where several heads share them, and in registers where
not; blocks of q8_0 and q4_0 are decoded into scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.attention import NEGATIVE_INFINITY, KeyRange
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, vec
from rlx_mlir.codegen.specs.attention import AttentionSpec

from .attention_base import Heads, Schedule
from .kernel import Scratch
from .target import ELEMENT_BITS, Target

CHUNK = 128
"""Keys of a part of the work."""

RECORD = 16
"""Records of parts start at multiples of as many elements: at lines of the cache."""

LINE = 64
"""Bytes of a cache line."""

FEW = 8
"""Queries of a sequence, with a cache, that are computed each by itself, at most."""


@dataclass(frozen=True)
class Query:
    """A query of the batch.

    Attributes:
        number: among all of them.
        batch: the batch element that it is of.
        place: which query of that it is.
    """

    number: Index
    batch: Index
    place: Index


class Decode(Schedule):
    """Heads of one query; see the module's docstring."""

    def __init__(self, em: Emitter, spec: AttentionSpec, target: Target) -> None:
        super().__init__(em, spec, target)
        self.queries = shape_of(spec.q)[spec.sequence_axis] or 1
        self.padded = -(-self.size // self.lanes) * self.lanes
        # Values that all heads of a group read before the next ones.
        self.block = 32 if self.size <= 64 else 16
        # Vectors of a row that are summed at a time.
        columns = self.padded // self.lanes
        self.width = max(n for n in range(1, 9) if columns % n == 0)

    def bind(self, buffers: dict[str, Value], results: Sequence[Value]) -> None:
        """As any schedule's; the last result is the memory that units share."""
        super().bind(buffers, results)
        self.take_shared(buffers["q"], buffers["k"], Scratch(self.em, results[-1]))

    def count(self, q: Value) -> Index:
        """Queries of the whole batch."""
        return self.batch(q) * self.queries

    def query_at(self, number: Index) -> Query:
        """A query by its number."""
        if self.queries == 1:
            return Query(number, number, 0)
        return Query(number, number // self.queries, number % self.queries)

    def units(self, q: Value, k: Value) -> Index:
        """As many as there may be parts; `body` shares those out that have keys."""
        return self.count(q) * (self.spec.kv_heads * self.chunks(k))

    def chunks(self, k: Value) -> Index:
        """How many chunks of keys there may be, one at least."""
        em = self.em
        return em.imax(em.iceildiv(em.dim(k, self.spec.sequence_axis), CHUNK), 1)

    def heads(self, q: Value) -> Index:
        """Heads of all queries: the units of `combine`."""
        return self.count(q) * self.spec.num_heads

    def take_scratch(self, k: Value, parts: Scratch) -> None:
        """Multiplied queries and scores of the heads that share a KV head; keys or values that were widened."""
        group = self.spec.group
        self.query = parts.take([group * self.padded], "f32")
        self.scores = parts.take([group * CHUNK], "f32")
        rows = max(self.lanes, self.block)
        staged = any(
            self.staged(*kept) for kept in ((self.spec.k, self.spec.k_scheme), (self.spec.v, self.spec.v_scheme))
        )
        self.widened = parts.take([rows * self.padded], "f32") if staged else None

    def staged(self, type: str, scheme: str | None) -> bool:
        """Whether keys or values, in a buffer of that type, are widened into scratch before they are used."""
        return scheme is not None or (element_of(type) != "f32" and self.spec.group > 1)

    def ahead(self, x: Heads) -> int:
        """Rows that are prefetched before they are needed: about 4 KB, in whole blocks of keys."""
        return max(1, 4096 // self.bytes(x) // self.lanes) * self.lanes

    def bytes(self, x: Heads) -> int:
        """Bytes of one head of a row."""
        return x.size * ELEMENT_BITS[element_of(x.flat.type)] // 8

    def take_shared(self, q: Value, k: Value, parts: Scratch) -> None:
        """A record of each part: padded rows of weighted sums for its heads, then their maxima, then their sums."""
        group = self.spec.group
        self.record = group * self.padded + -(-2 * group // RECORD) * RECORD
        self.slots = self.chunks(k)
        count = self.count(q) * self.spec.kv_heads * self.slots
        self.records = parts.take([count * self.record], "f32")

    def take_row(self, parts: Scratch) -> None:
        """A row of the result as f32."""
        self.row = parts.take([self.padded], "f32")

    def record_at(self, query: Query, kv_head: Index, chunk: Index) -> Index:
        """Where a part's record starts."""
        head = query.number * self.spec.kv_heads + kv_head
        return (head * self.slots + chunk) * self.record

    # Parts ----------------------------------------------------------------------------------------

    def body(self, begin: Value, end: Value) -> None:
        em, kv_heads = self.em, self.spec.kv_heads
        units = kv_heads * self.slots
        last = (end + (units - 1)) // units
        with em.loop(begin // units, last, hint="query") as loop:
            query = self.query_at(loop.iv)
            before = query.number * units
            keys = self.keys(query.batch, query.place, 1)
            first = keys.lo // CHUNK
            edges = [
                self.first_part(edge - before, units, keys, first)
                for edge in (em.imax(begin, before), em.imin(end, before + units))
            ]
            with em.loop(edges[0], edges[1], hint="part") as part:
                chunk = first + part.iv // kv_heads
                kv_head = part.iv % kv_heads
                start = chunk * CHUNK
                low, high = em.imax(start, keys.lo), em.imin(start + CHUNK, keys.hi)
                self.part(query, kv_head, low, high, self.record_at(query, kv_head, chunk))

    def first_part(self, unit: Index, units: Index, keys: KeyRange, first: Index) -> Index:
        """The first part of unit number `unit` of a query: all get as many keys, to half a part."""
        em, kv_heads = self.em, self.spec.kv_heads
        count = em.imax(keys.hi - keys.lo, 0)
        parts = em.imax(em.iceildiv(keys.hi, CHUNK) - first, 0) * kv_heads
        before = keys.lo - first * CHUNK  # keys of the first chunk that aren't seen
        share = unit * (count * kv_heads) // units
        near = (share + before * kv_heads + CHUNK // 2) // CHUNK
        near = em.select(em.cmpi("eq", unit, 0), 0, near)
        near = em.select(em.cmpi("eq", unit, units), parts, near)
        return em.imin(near, parts)

    def part(self, query: Query, kv_head: Index, low: Index, high: Index, record: Index) -> None:
        """What keys low .. high - 1 give to the heads that share a KV head."""
        self.start(query, kv_head, record)
        self.score_block(query, kv_head, low, high)
        self.weigh(record, high - low)
        self.accumulate(query, kv_head, low, high, record)

    def start(self, query: Query, kv_head: Index, record: Index) -> None:
        """The heads of a query as f32, multiplied; nothing summed so far."""
        em, group = self.em, self.spec.group
        with em.loop(0, group, hint="head") as head:
            row = head.iv * self.padded
            with em.loop(0, self.padded, self.lanes, hint="d") as d:
                at = row + d.iv
                em.vstore(em.zero(self.type), self.records, [record + at])
                em.vstore(em.zero(self.type), self.query, [at])
            h = kv_head * group + head.iv
            self.copy_wide(self.q.flat, self.head_at(self.q, query, h), self.query, row, self.query_factor)

    def head_at(self, x: Heads, query: Query, h: Index) -> Index:
        """Where a head of a query, or of its result, starts."""
        base = x.base(query.batch, h)
        return base if self.queries == 1 else base + query.place * x.stride

    # Results --------------------------------------------------------------------------------------

    def combine(self, begin: Value, end: Value, parts: Scratch) -> None:
        """result = sum of totals / sum of sums, of all parts of a head, as they follow from the largest maximum.

        A head's sink is one more part, without a total.
        """
        self.take_row(parts)
        em, heads, group = self.em, self.spec.num_heads, self.spec.group
        with em.loop(begin, end, hint="head") as head:
            query, h = self.query_at(head.iv // heads), head.iv % heads
            kv_head, own = h // group, h % group
            keys = self.keys(query.batch, query.place, 1)
            first, last = keys.lo // CHUNK, em.iceildiv(em.imax(keys.hi, 0), CHUNK)
            base = self.record_at(query, kv_head, 0)
            maxima = base + group * self.padded + own
            opening, none = self.opening(h)
            with em.loop(first, last, 1, em.extract(opening, 0), hint="chunk") as chunk:
                maximum = em.load(self.records, [maxima + chunk.iv * self.record])
                chunk.yield_(self.larger(maximum, chunk.carry))
            shift = em.broadcast(self.finite(chunk.result), self.type)

            def weight(chunk: Index) -> Value:
                maximum = em.load(self.records, [maxima + chunk * self.record])
                return self.weight(em.broadcast(maximum, self.type), shift)

            own_sum = none if self.sinks is None else self.weight(opening, shift)
            with em.loop(first, last, 1, own_sum, hint="chunk") as summed:
                at = maxima + group + summed.iv * self.record
                sum_ = em.broadcast(em.load(self.records, [at]), self.type)
                summed.yield_(self.fma(sum_, weight(summed.iv), summed.carry))
            sums = summed.result
            inverse = 1.0 / sums
            row = base + own * self.padded
            with em.loop(0, self.padded, self.width * self.lanes, hint="d") as d:
                places = [d.iv + u * self.lanes for u in range(self.width)]
                with em.loop(first, last, 1, [em.zero(self.type)] * self.width, hint="chunk") as part:
                    start, own_weight = row + part.iv * self.record, weight(part.iv)
                    totals = [em.vload(self.records, [start + at], self.type) for at in places]
                    pairs = zip(totals, part.carry, strict=True)
                    part.yield_([self.fma(total, own_weight, sum_) for total, sum_ in pairs])
                for at, total in zip(places, part.result, strict=True):
                    em.vstore(self.normalised(total, sums, inverse), self.row, [at])
            self.write_row(self.head_at(self.out, query, h))

    def write_row(self, out: Index) -> None:
        """A row of the result, which stands in scratch, from `out` on."""
        em = self.em
        whole = self.size // self.lanes * self.lanes
        with em.loop(0, whole, self.lanes, hint="d") as d:
            value = self.narrow(em.vload(self.row, [d.iv], self.type))
            em.vstore(value, self.out.flat, [out + d.iv])
        if whole < self.size:
            with em.loop(whole, self.size, hint="d") as d:
                em.store(self.narrow(em.load(self.row, [d.iv])), self.out.flat, [out + d.iv])

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
        return self.wide(em.vload(buffer, [at], type, mask))

    def prefetch(
        self, own: tuple[Heads, Index], then: tuple[Heads, Index], ahead: Index, rows: int, end: Index
    ) -> None:
        """Asks for rows `ahead`, `ahead` + 1, ... of `own`, a head and where its first row starts; behind row `end` for
        as many of `then`, what comes next."""
        em = self.em
        behind = em.cmpi("sge", ahead, end)
        for (x, base), first, there in ((own, ahead, behind ^ True), (then, ahead - end, behind)):
            with em.if_(there), em.loop(0, rows, hint="row") as row:
                start = base + (first + row.iv) * x.stride
                for at in range(0, self.bytes(x), LINE):
                    em.prefetch(x.flat, [start + at * x.size // self.bytes(x)])

    def rows_from(self, x: Heads, b: Index, kv_head: Index, row: Index) -> tuple[Heads, Index]:
        """A head, and where a row of its starts."""
        return x, x.base(b, kv_head) + row * x.stride

    def rows(self, x: Heads, base: Index, low: Index, high: Index) -> tuple[Value, Index, int]:
        """Where rows low .. high - 1 of a head are floats: a buffer, where the first one starts, and how far they are
        apart."""
        if not self.staged(x.flat.type, x.scheme):
            return x.flat, base + low * x.stride, x.stride
        self.stage(x, base, low, high)
        assert self.widened is not None
        return self.widened, 0, self.padded

    def stage(self, x: Heads, base: Index, low: Index, high: Index) -> None:
        """Rows low .. high - 1 of a head, as f32, into scratch; what pads a row is zero."""
        em = self.em
        assert self.widened is not None
        with em.loop(low, high, hint="row") as row:
            source = base + row.iv * x.stride
            target = (row.iv - low) * self.padded
            if x.scheme is not None:
                self.copy_row(x, source, self.widened, target)
            else:
                for at, used in self.columns():
                    em.vstore(self.load(x.flat, source + at, used), self.widened, [target + at])

    # Scores ---------------------------------------------------------------------------------------

    def score_block(self, query: Query, kv_head: Index, low: Index, high: Index) -> None:
        """Scores of keys low .. high - 1 for the heads of a group; those that pad the last vector are -inf."""
        em, group, b = self.em, self.spec.group, query.batch
        base = self.k.base(b, kv_head)
        own, then = self.rows_from(self.k, b, kv_head, low), self.rows_from(self.v, b, kv_head, low)
        blocks = em.iceildiv(high - low, self.lanes) * self.lanes
        with em.loop(low, high, self.lanes, hint="key") as block:
            left = em.imin(high - block.iv, self.lanes)
            valid = em.mask(left, self.lanes)
            last = left - 1
            self.prefetch(own, then, block.iv - low + self.ahead(self.k), self.lanes, blocks)
            source, start, stride = self.rows(self.k, base, block.iv, block.iv + left)
            # Where fewer keys are left, the last one is repeated.
            rows = [start + em.imin(u, last) * stride for u in range(self.lanes)]
            with em.loop(0, group, hint="head") as head:
                bias, seen = None, valid
                if self.mask is not None:
                    row = self.mask_row_of(query, kv_head * group + head.iv)
                    mask = self.mask_lanes(row + block.iv, valid)
                    if self.spec.mask_kind == "custom":
                        seen = em.cmpf("oge", mask, 0.5)
                    else:
                        bias = mask
                score = self.score(self.products(head.iv, source, rows), bias)
                score = em.select(seen, score, NEGATIVE_INFINITY)
                em.vstore(score, self.scores, [head.iv * CHUNK + (block.iv - low)])

    def mask_row_of(self, query: Query, h: Index) -> Index:
        """Where the mask's row of a head of a query starts."""
        return self.mask_row(*(query.batch, h, query.place)[: len(self.mask_dims) - 1])

    def mask_lanes(self, at: Index, valid: Value) -> Value:
        """The mask of `lanes` keys as f32, zeros where they don't exist."""
        assert self.mask is not None
        return self.wide(self.em.vload(self.mask, [at], self.vector(self.mask), valid))

    def products(self, head: Index, source: Value, rows: Sequence[Index]) -> Value:
        """<q, k> for `lanes` keys, one per lane."""
        em = self.em
        query = head * self.padded

        def step(at: Index, used: int, sums: Sequence[Value]) -> list[Value]:
            q = em.vload(self.query, [query + at], self.type)
            return [self.fma(self.load(source, row + at, used), q, sum_) for row, sum_ in zip(rows, sums, strict=True)]

        sums = [em.zero(self.type)] * self.lanes
        whole, rest = divmod(self.size, self.lanes)
        if whole > 1:
            with em.loop(0, whole * self.lanes, self.lanes, sums, hint="d") as d:
                d.yield_(step(d.iv, self.lanes, d.carry))
            sums = d.result
        elif whole == 1:
            sums = step(0, self.lanes, sums)
        if rest:
            sums = step(whole * self.lanes, rest, sums)
        return sum_each(em, sums)

    def weigh(self, record: Index, count: Index) -> None:
        """scores = 2^(score - maximum) in place; maxima and sums go into the record."""
        em, group = self.em, self.spec.group
        with em.loop(0, group, hint="head") as head:
            start = head.iv * CHUNK
            with em.loop(0, count, self.lanes, em.const(NEGATIVE_INFINITY, self.type), hint="key") as key:
                score = em.vload(self.scores, [start + key.iv], self.type)
                key.yield_(self.larger(score, key.carry))
            maximum = em.reduce("maximumf", key.result)
            state = record + group * self.padded + head.iv
            em.store(maximum, self.records, [state])
            shift = em.broadcast(self.finite(maximum), self.type)
            with em.loop(0, count, self.lanes, em.zero(self.type), hint="key") as key:
                at = [start + key.iv]
                weight = self.weight(em.vload(self.scores, at, self.type), shift)
                em.vstore(weight, self.scores, at)
                key.yield_(key.carry + weight)
            em.store(em.reduce("add", key.result, "reassoc"), self.records, [state + group])

    # Values ---------------------------------------------------------------------------------------

    def accumulate(self, query: Query, kv_head: Index, low: Index, high: Index, record: Index) -> None:
        """total += sum of weight * value, a few keys of all heads of a group at a time."""
        em, columns, group, b = self.em, self.columns(), self.spec.group, query.batch
        base = self.v.base(b, kv_head)
        after = kv_head + 1
        last = em.cmpi("eq", after, self.spec.kv_heads)
        following = em.select(last, 0, after), em.select(last, high, low)
        own, then = self.rows_from(self.v, b, kv_head, low), self.rows_from(self.k, b, *following)
        blocks = em.iceildiv(high - low, self.block) * self.block
        with em.loop(low, high, self.block, hint="key") as block:
            stop = em.imin(block.iv + self.block, high)
            self.prefetch(own, then, block.iv - low + self.ahead(self.v), self.block, blocks)
            source, start, stride = self.rows(self.v, base, block.iv, stop)
            count = stop - block.iv
            with em.loop(0, group, hint="head") as head:
                weights = head.iv * CHUNK + (block.iv - low)
                kept = None
                if self.spec.mask_kind == "custom":
                    h = kv_head * group + head.iv
                    kept = self.mask_row_of(query, h) + block.iv
                total = record + head.iv * self.padded
                for at in range(0, len(columns), self.width):
                    part = columns[at : at + self.width]
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

        def add(key: Index, sums: list[Value]) -> list[Value]:
            weight = em.broadcast(em.load(self.scores, [weights + key]), self.type)
            row = start + key * stride
            values = [self.load(source, row + at, used) for at, used in columns]
            if kept is not None:  # 0 * NaN is NaN: an invisible key's value must not be added
                assert self.mask is not None
                seen = em.cmpf("oge", self.wide(em.load(self.mask, [kept + key])), 0.5)
                values = [em.select(seen, value, 0.0) for value in values]
            return [self.fma(weight, value, sum_) for value, sum_ in zip(values, sums, strict=True)]

        places = [[total + at] for at, _ in columns]
        sums = [em.vload(self.records, place, self.type) for place in places]
        zeros = [em.zero(self.type)] * len(columns)
        whole = count // unroll * unroll
        with em.loop(0, whole, unroll, [sums, *[zeros] * (unroll - 1)], hint="key") as keys:
            keys.yield_([add(keys.iv + u, part) for u, part in enumerate(keys.carry)])
        parts = keys.result
        while len(parts) > 1:
            half = (len(parts) + 1) // 2
            pairs = zip(parts, parts[half:], strict=False)
            left_over = parts[len(parts) - half : half]
            parts = [[x + y for x, y in zip(*pair, strict=True)] for pair in pairs] + left_over
        with em.loop(whole, count, 1, parts[0], hint="key") as key:
            key.yield_(add(key.iv, key.carry))
        for place, sum_ in zip(places, key.result, strict=True):
            em.vstore(sum_, self.records, place)


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
        level = [em.shuffle(x, y, low) + em.shuffle(x, y, high) for x, y in zip(level[::2], level[1::2], strict=True)]
        size *= 2
    return level[0]
