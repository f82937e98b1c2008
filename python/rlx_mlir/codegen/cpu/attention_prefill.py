# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of many queries: **lanes are queries**, in blocks of two vectors.

A unit is what some blocks of queries do with one KV head: the heads that share it, and several blocks where there are
few of those. It copies keys and values, a tile at a time, into scratch, where they are f32 and lie together: rows of a
head, in their own layout, are often a power of two apart, and evict each other from a cache that has room for them.
The tile then serves all of the unit's blocks.

Queries are transposed once, then keys and values are scalars that broadcast, so any head size works without tails, and
the running maximum and sum of the online softmax are lane-wise. Tiles start at multiples of their size, whatever the
first visible key, so a row's bits don't depend on how a prompt was cut into chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx_mlir.codegen.attention import NEGATIVE_INFINITY
from rlx_mlir.codegen.emit import Emitter, Index, Value, vec
from rlx_mlir.codegen.specs.attention import AttentionSpec

from .attention_base import Schedule
from .gemm import transpose
from .kernel import Scratch, add_products
from .target import Target

GROUPS = 2
"""Lane groups per block: 2 * lanes queries."""


class Prefill(Schedule):
    """Blocks of queries; see the module's docstring."""

    def __init__(self, em: Emitter, spec: AttentionSpec, target: Target) -> None:
        super().__init__(em, spec, target)
        self.queries = GROUPS * self.lanes
        # Accumulators of either product are `step` x GROUPS vectors: 16 of 32 registers, or 12 of 16.
        self.step = 8 if target.registers == 32 else 6
        self.tile = self.step * 8
        # From one row of a tile to the next: a line of the cache more than a head, so that the same elements of all
        # rows don't fall into a few sets of the cache.
        self.pitch = self.size + 16
        # Elements of a head that the first product takes at once: the queries' are to stay in the L1 cache.
        self.depth = self.size if self.size <= 128 else 64
        # A tile is copied for at least six blocks of queries, if there are as many; for twice as many at most.
        self.together = self.most = -(-6 // spec.group)
        self.whole = self.size // self.lanes * self.lanes
        self.rows = self.size  # of a block, among the transposed queries and the sums
        divisors = [width for width in range(self.step, 3, -1) if self.size % width == 0]
        self.columns = min(self.size, divisors[0] if divisors else self.step)

    def unit_size(self, queries: Index) -> Index:
        """Queries of a unit, of so many."""
        return self.queries * self.together

    def superblocks(self, queries: Index) -> Index:
        """Units of one KV head."""
        size = self.unit_size(queries)
        return (queries + (size - 1)) // size

    def units(self, q: Value, k: Value) -> Index:
        em, spec = self.em, self.spec
        return self.batch(q) * spec.kv_heads * self.superblocks(em.dim(q, spec.sequence_axis))

    def take_scratch(self, k: Value, parts: Scratch) -> None:
        """Rows of `queries` lanes: of each block transposed queries, sums of the result, and a row of maxima and one of
        sums; scores of one tile of keys. Then the tile itself."""
        self.slots = self.most * self.spec.group
        self.query = parts.take([self.slots * self.rows * self.queries], "f32")
        self.total = parts.take([self.slots * self.rows * self.queries], "f32")
        self.state = parts.take([self.slots * 2 * self.queries], "f32")
        self.scores = parts.take([self.tile * self.queries], "f32")
        keys = parts.take([self.tile * self.pitch], "f32")
        self.tiles = keys, keys if self.spec.shared else parts.take([self.tile * self.pitch], "f32")

    def body(self, begin: Value, end: Value) -> None:
        em, spec = self.em, self.spec
        self.iota = em.const(list(range(self.lanes)), vec(self.lanes, "i32"))
        blocks = self.superblocks(self.q.length)
        with em.loop(begin, end, hint="unit") as unit:
            head = unit.iv // blocks
            b, kv_head = head // spec.kv_heads, head % spec.kv_heads
            block = unit.iv % blocks
            if spec.mask_kind == "causal" and not isinstance(block, int):
                # First, last, second, ...: later blocks see more keys, and half of a head is to be half of its work.
                half = block // 2
                odd = em.cmpi("eq", block % 2, 1)
                late = blocks - 1 - half
                block = em.select(odd, late, half)
            self.unit(b, kv_head, block * self.unit_size(self.q.length))

    def unit(self, b: Index, kv_head: Index, first: Index) -> None:
        """What the queries of a unit, from `first` on, do with one KV head."""
        em, group = self.em, self.spec.group
        count = em.imin(self.q.length - first, self.unit_size(self.q.length))
        keys = self.keys(b, first, count)
        slots = em.iceildiv(count, self.queries) * group

        def block(slot: Index) -> Block:
            start = first + slot // group * self.queries
            own = em.imin(self.q.length - start, self.queries)
            h = kv_head * group + slot % group
            return Block(self, b, h, start, own, slot * self.rows, slot * 2)

        with em.loop(0, slots, hint="slot") as slot:
            self.start(block(slot.iv))
        bases = self.k.base(b, kv_head), self.v.base(b, kv_head)
        start = keys.lo // self.tile * self.tile
        with em.loop(start, keys.hi, self.tile, hint="tile") as tile:
            low, high = em.imax(tile.iv, keys.lo), em.imin(tile.iv + self.tile, keys.hi)
            self.copy_tile(bases, low, high)
            self.attend_all(block, slots, low, high)
        with em.loop(0, slots, hint="slot") as slot:
            self.finish(block(slot.iv))

    def copy_tile(self, bases: tuple[Index, Index], low: Index, high: Index) -> None:
        """Copies keys and values low .. high - 1 of a KV head, whose first elements stand at `bases`, into scratch."""
        em = self.em
        kept = 1 if self.spec.shared else 2
        with em.loop(low, high, hint="key") as key:
            to = (key.iv - low) * self.pitch
            for x, base, target in list(zip((self.k, self.v), bases, self.tiles, strict=True))[:kept]:
                self.copy_row(x, base + key.iv * x.stride, target, to)

    def attend_all(self, block: Callable[[Index], Block], slots: Index, low: Index, high: Index) -> None:
        """Adds keys low .. high - 1, which were copied, to the results of the blocks of a unit that see them."""
        em = self.em
        with em.loop(0, slots, hint="slot") as slot:
            own = block(slot.iv)
            if self.most == 1:
                self.attend(own, low, high)
            else:  # blocks of one unit see different keys
                lo, hi = em.imax(low, own.keys.lo), em.imin(high, own.keys.hi)
                with em.if_(em.cmpi("slt", lo, hi)):
                    self.attend(own, low, hi)

    def attend(self, block: Block, low: Index, high: Index) -> None:
        """Adds keys low .. high - 1 to the results of one block."""
        em = self.em
        places = [[self.group_index(block.state, group)] for group in range(2 * GROUPS)]
        state = [em.vload(self.state, place, self.type) for place in places]
        maxima, sums = state[:GROUPS], state[GROUPS:]
        tile_maxima = self.score_tile(block, low, high)
        maxima_now = [self.larger(new, old) for new, old in zip(tile_maxima, maxima, strict=True)]
        shifts = [self.finite(maximum) for maximum in maxima_now]
        decays = [self.weight(old, shift) for old, shift in zip(maxima, shifts, strict=True)]
        tile_sums = self.exp_tile(high - low, shifts)
        sums_now = [self.fma(old, decay, new) for old, decay, new in zip(sums, decays, tile_sums, strict=True)]
        self.value_tile(block, low, high, decays)
        for place, vector in zip(places, [*maxima_now, *sums_now], strict=True):
            em.vstore(vector, self.state, place)

    def group_index(self, row: Index, group: int) -> Index:
        """Where lane group `group` of row `row` of a panel (rows of `queries` lanes) starts."""
        return row * self.queries + group * self.lanes

    def start(self, block: Block) -> None:
        """Transposes the block's queries; missing ones repeat the last, so that no lane needs a guard."""
        em, last = self.em, block.first + block.count - 1
        base = self.q.base(block.b, block.h)
        maximum, sum_ = self.opening(block.h)

        def scaled(at: Index, type: str | None = None) -> Value:
            value = em.load(self.q.flat, [at]) if type is None else em.vload(self.q.flat, [at], type)
            return self.wide(value) * self.query_factor

        for group in range(GROUPS):
            rows = [em.imin(block.first + (group * self.lanes + lane), last) for lane in range(self.lanes)]
            starts = [base + row * self.q.stride for row in rows]
            with em.loop(0, self.whole, self.lanes, hint="d") as d:
                loaded = [scaled(start + d.iv, self.vector(self.q.flat)) for start in starts]
                for u, vector in enumerate(transpose(em, loaded)):
                    em.vstore(vector, self.query, [block.place(d.iv + u, group)])
            if self.whole < self.size:
                with em.loop(self.whole, self.size, hint="d") as d:
                    for lane, start in enumerate(starts):
                        at = block.place(d.iv, group) + lane
                        em.store(scaled(start + d.iv), self.query, [at])
            with em.loop(0, self.size, hint="d") as d:
                em.vstore(em.zero(self.type), self.total, [block.place(d.iv, group)])
            em.vstore(maximum, self.state, [self.group_index(block.state, group)])
            em.vstore(sum_, self.state, [self.group_index(block.state, GROUPS + group)])

    def finish(self, block: Block) -> None:
        """result = total / sum, transposed back"""
        em = self.em
        base = self.out.base(block.b, block.h)
        for group in range(GROUPS):
            sums = em.vload(self.state, [self.group_index(block.state, GROUPS + group)], self.type)
            inverse = 1.0 / sums
            start = base + (block.first + group * self.lanes) * self.out.stride
            left = em.index(block.count - group * self.lanes)
            with em.loop(0, self.whole, self.lanes, hint="d") as d:
                places = [[block.place(d.iv + u, group)] for u in range(self.lanes)]
                totals = [em.vload(self.total, place, self.type) for place in places]
                results = [self.normalised(total, sums, inverse) for total in totals]
                for lane, vector in enumerate(transpose(em, results)):
                    with em.if_(em.cmpi("sgt", left, lane)):
                        at = start + lane * self.out.stride + d.iv
                        em.vstore(self.narrow(vector), self.out.flat, [at])
            if self.whole < self.size:
                with em.loop(self.whole, self.size, hint="d") as d:
                    place = [block.place(d.iv, group)]
                    total = em.vload(self.total, place, self.type)
                    result = self.narrow(self.normalised(total, sums, inverse))
                    for lane in range(self.lanes):
                        with em.if_(em.cmpi("sgt", left, lane)):
                            at = start + lane * self.out.stride + d.iv
                            em.store(em.extract(result, lane), self.out.flat, [at])

    # Keys -----------------------------------------------------------------------------------------

    def visible(self, block: Block, key: Index) -> list[Value]:
        """Per lane group, which queries of a block see `key`; for mask kinds that hide keys."""
        em, spec = self.em, self.spec
        if spec.mask_kind == "custom":
            assert self.mask is not None
            if len(self.mask_dims) == 4:
                return [em.cmpf("oge", self.mask_column(block, group, key), 0.5) for group in range(GROUPS)]
            kept = self.wide(em.load(self.mask, [self.mask_row(block.b) + key]))
            return [em.cmpf("oge", kept, 0.5)] * GROUPS
        lanes = self.i32_lanes(key)
        seen = [em.cmpi("sle", lanes, position) for position in block.positions]
        if spec.mask_kind == "sliding_window":
            assert spec.window is not None
            window = min(spec.window, 1 << 30)  # no i32 overflow; longer than any context
            recent = [em.cmpi("sgt", lanes, position - window) for position in block.positions]
            seen = [left & right for left, right in zip(seen, recent, strict=True)]
        return seen

    def has_invisible(self, block: Block, low: Index, high: Index) -> Value | bool:
        """Whether some query of the block doesn't see some key of low .. high - 1."""
        em, kind = self.em, self.spec.mask_kind
        if not self.spec.by_position:
            return kind == "custom"
        edge = em.cmpi("sgt", high, block.newest)
        if kind == "sliding_window":
            edge = edge | em.cmpi("slt", low, block.oldest)
        return edge

    def parts(self, block: Block, low: Index, high: Index) -> list[tuple[Index, Index, bool]]:
        """low .. high - 1 in ascending parts, each with whether some query of the block may not see some key of it."""
        em, kind = self.em, self.spec.mask_kind
        if not self.spec.by_position:
            return [(low, high, kind == "custom")]
        newest = em.imin(em.imax(block.newest, low), high)
        if kind == "causal":
            return [(low, newest, False), (newest, high, True)]
        oldest = em.imin(em.imax(block.oldest, low), high)
        newest = em.imax(newest, oldest)
        return [(low, oldest, True), (oldest, newest, False), (newest, high, True)]

    # Products -------------------------------------------------------------------------------------

    def score_tile(self, block: Block, low: Index, high: Index) -> list[Value]:
        """Scores of a block's queries against keys low .. high - 1 into `scores`; returns the maxima per lane."""
        em = self.em
        last = high - low - 1
        minus_infinity = em.const(NEGATIVE_INFINITY, self.type)
        count = high - low
        before = (self.size - 1) // self.depth * self.depth
        if before:  # sums over the first elements, in turns, so that those of the queries stay in the L1 cache
            with em.loop(0, em.iceildiv(count, self.step) * (self.step * self.queries), self.lanes) as at:
                em.vstore(em.zero(self.type), self.scores, [at.iv])
            with em.loop(0, before, self.depth, hint="d") as d, em.loop(0, count, self.step, hint="row") as part:
                stop = d.iv + self.depth
                sums = self.products(block, part.iv, last, d.iv, stop, self.partial(part.iv))
                for of_key, places in zip(sums, self.places(part.iv), strict=True):
                    for sum_, place in zip(of_key, places, strict=True):
                        em.vstore(sum_, self.scores, place)
        with em.loop(0, count, self.step, [minus_infinity] * GROUPS, hint="row") as row:
            start = self.partial(row.iv) if before else [[em.zero(self.type)] * GROUPS] * self.step
            sums = self.products(block, row.iv, last, before, self.size, start)

            def finish(*, masked: bool) -> list[Value]:
                """Stores the scores of the step; returns the maxima with them."""
                maxima = list(row.carry)
                for u in range(self.step):
                    key = low + em.imin(row.iv + u, last)
                    seen = self.visible(block, key) if masked else []
                    for group in range(GROUPS):
                        bias = self.mask_column(block, group, key) if self.spec.mask_kind == "bias" else None
                        score = self.score(sums[u][group], bias)
                        if seen:
                            score = em.select(seen[group], score, NEGATIVE_INFINITY)
                        em.vstore(score, self.scores, [self.group_index(row.iv + u, group)])
                        maxima[group] = self.larger(score, maxima[group])
                return maxima

            first = low + row.iv
            edge = self.has_invisible(block, first, first + self.step)
            if isinstance(edge, bool):
                row.yield_(finish(masked=edge))
            else:
                with em.if_(edge, row.carry) as branch:
                    branch.yield_(finish(masked=True))
                    branch.else_()
                    branch.yield_(finish(masked=False))
                row.yield_(branch.result)
        return row.result

    def places(self, row: Index) -> list[list[list[Index]]]:
        """Where the scores of a step of keys stand, from row `row` on: [key][group]."""
        rows = [row + u for u in range(self.step)]
        return [[[self.group_index(own, group)] for group in range(GROUPS)] for own in rows]

    def partial(self, row: Index) -> list[list[Value]]:
        """The sums so far of a step of keys, [key][group]."""
        return [[self.em.vload(self.scores, place, self.type) for place in own] for own in self.places(row)]

    def products(
        self, block: Block, row: Index, last: Index, begin: Index, end: Index, sums: list[list[Value]]
    ) -> list[list[Value]]:
        """sums + products of elements begin .. end - 1 of all queries and of `step` keys from row `row` of the tile."""
        em = self.em
        # Past the end, the last key is repeated: that changes no maximum, and nobody reads those scores.
        starts = [em.imin(row + u, last) * self.pitch for u in range(self.step)]
        with em.loop(begin, end, 1, sums, hint="d") as d:
            lanes = [em.vload(self.query, [block.place(d.iv, group)], self.type) for group in range(GROUPS)]
            keys = (em.broadcast(em.load(self.tiles[0], [start + d.iv]), self.type) for start in starts)
            d.yield_(add_products(em, self.target, keys, lanes, d.carry))
        return d.result

    def mask_column(self, block: Block, group: int, key: Index) -> Value:
        """The mask of `key` for one lane group, zeros where there is no query: a column, so a gather."""
        em = self.em
        assert self.mask is not None
        row = self.mask_row(block.b, block.h, block.first + group * self.lanes)
        steps = self.i32_lanes(0 if self.mask_dims[2] == 1 else self.mask_dims[-1]) * self.iota
        # Fewer than zero lanes left counts as none.
        mask = em.mask(em.imax(block.count - group * self.lanes, 0), self.lanes)
        type = self.vector(self.mask)
        at = f"{self.mask}[{em.index(row + key)}] [{steps}], {mask}, {em.zero(type)}"
        types = f"{self.mask.type}, {steps.type}, {mask.type}, {type} into {type}"
        return self.wide(em.op(f"vector.gather {at} : {types}", type))

    def exp_tile(self, rows: Index, shifts: Sequence[Value]) -> list[Value]:
        """scores = 2^(scores - shift) in place; returns the sums per lane."""
        em = self.em
        with em.loop(0, rows, 1, [em.zero(self.type)] * GROUPS, hint="row") as row:
            sums = []
            for group, (shift, total) in enumerate(zip(shifts, row.carry, strict=True)):
                at = [self.group_index(row.iv, group)]
                weight = self.weight(em.vload(self.scores, at, self.type), shift)
                em.vstore(weight, self.scores, at)
                sums.append(total + weight)
            row.yield_(sums)
        return row.result

    def value_tile(self, block: Block, low: Index, high: Index, decays: Sequence[Value]) -> None:
        """total = total * decay + sum over the tile's keys of weight * value."""
        em, width = self.em, self.columns
        whole = self.size // width
        if whole > 1:
            with em.loop(0, whole * width, width, hint="d") as d:
                self.value_columns(block, low, high, decays, d.iv, width)
        else:
            self.value_columns(block, low, high, decays, 0, width)
        if self.size % width:
            self.value_columns(block, low, high, decays, whole * width, self.size % width)

    def value_columns(
        self, block: Block, low: Index, high: Index, decays: Sequence[Value], d: Index, width: int
    ) -> None:
        em, tile = self.em, self.tiles[1]
        places = [[[block.place(d + u, group)] for group in range(GROUPS)] for u in range(width)]
        totals = [
            [em.vload(self.total, place, self.type) * decay for place, decay in zip(own, decays, strict=True)]
            for own in places
        ]
        for start, stop, masked in self.parts(block, low, high):
            with em.loop(start - low, stop - low, 1, totals, hint="row") as row:
                seen = self.visible(block, low + row.iv) if masked else []
                at = [[self.group_index(row.iv, group)] for group in range(GROUPS)]
                weights = [em.vload(self.scores, place, self.type) for place in at]
                source = row.iv * self.pitch + d
                sums: list[list[Value]] = []
                for u, olds in enumerate(row.carry):
                    value = em.broadcast(em.load(tile, [source + u]), self.type)
                    sums.append([])
                    for group, old in enumerate(olds):
                        new = self.fma(value, weights[group], old)
                        # 0 * NaN is NaN: an invisible key's value must not be added at all.
                        sums[u].append(em.select(seen[group], new, old) if seen else new)
                row.yield_(sums)
            totals = row.result
        for own, values in zip(places, totals, strict=True):
            for place, total in zip(own, values, strict=True):
                em.vstore(total, self.total, place)


class Block:
    """One block of queries of one head, and where its state stands."""

    def __init__(
        self, schedule: Prefill, b: Index, h: Index, first: Index, count: Index, row: Index, state: Index
    ) -> None:
        """`row` is the first of its rows among the transposed queries and the sums, `state` that among the maxima."""
        spec = schedule.spec
        self.b, self.h, self.first, self.count, self.state = b, h, first, count, state
        self._schedule, self.row = schedule, row
        self.keys = schedule.keys(b, first, count)
        start = self.keys.offset + first
        # Keys that all queries of the block see, where the mask kind says so by positions: oldest .. newest - 1.
        self.newest = start + 1
        self.oldest = start + count - (spec.window or 0)
        self.positions: list[Value] = []  # of the queries, i32 lanes
        if spec.by_position:
            lanes = schedule.i32_lanes(start) + schedule.iota
            self.positions = [lanes + group * schedule.lanes for group in range(GROUPS)]

    def place(self, d: Index, group: int) -> Index:
        """Where lane group `group` of element d stands, among the transposed queries and the sums."""
        return self._schedule.group_index(self.row + d, group)
