# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of many queries by the tile registers of AMX, which multiply bf16 and sum in f32.

Units, blocks and rows of scratch are those of `attention_prefill.py`. Keys are rows of a tile and queries its columns,
so that scores come out with queries as lanes; then elements of a head are rows, and the weights of 32 keys stand where
the second product wants them, in pairs of keys. Values are transposed once for all blocks of a unit, queries once for
all keys. Sums run in steps of 32 keys that start at multiples of 32, whatever queries see of them.

**Accuracy.** Numbers are cut into parts of bf16, and products of parts are summed in f32. What is stored is cut without
loss: f32 into three parts, f16 into two, bf16 is one. Where the result is f32, weights are cut into three, too, and
products of parts are left out that are about 2^-24 of the whole. Where it is narrower, weights are cut into two, the
exponential has an error of 3e-6, and products of about 2^-16 are left out: the rounding of the result outweighs them.
Tiles take subnormal operands and sums for zero.

**What isn't finite** would spread through tiles. Values that aren't, or whose first part wouldn't be, are left out of
the products, and added by multiply-adds for the queries that see them. A score that isn't a number makes its row's sum
NaN: then scores are computed again, those that aren't finite by multiply-adds.

The running maximum rises only where a score exceeds it by a factor of 2^8, so that results are seldom multiplied, and
weights don't wait for it: they are computed again where it has to rise. Sums can be 2^8 times as large for it, and
overflow where values are beyond 2^119.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.attention import NEGATIVE_INFINITY
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, vec, with_element
from rlx_mlir.codegen.specs.attention import AttentionSpec

from .attention_base import EXP2, Heads
from .attention_prefill import GROUPS, Block, Prefill
from .gemm import transpose
from .gemm_amx import SIDE, STEP, Tiles
from .gemm_amx_f32 import HIGH, split
from .kernel import Scratch
from .target import Target

PARTS = {"f32": 3, "f16": 2, "bf16": 1}
"""Parts of bf16 that hold a number of each type."""

PRODUCTS = ((2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0))
"""Which part meets which part: small products first, and one new part at a time."""

TILE = SIDE * SIDE
"""Lanes of i32 in a tile: 16 rows of 16 pairs."""

KEYS = 128
"""Keys that are cut at once, for all blocks of a unit."""

UNROLLED = 2
"""Pairs of keys whose weights are computed at a time."""

SLACK = 8.0
"""How far scores, as they are kept, may exceed the running maximum."""

UNFIT = 0x7F7F8000
"""From these bits on, without the sign, numbers are infinite as bf16, or already."""

INFINITE = 0x7F800000

NEAREST, CURRENT = 8, 4
"""Immediates of AVX-512: what is left after rounding to the nearest integer, without exceptions; the rounding mode of
the thread."""

NARROW_EXP2 = (1.0, 0.6931241750717163, 0.24024099111557007, 0.055906426161527634, 0.009582852944731712)
"""2^r on [-0.5, 0.5] with a relative error of 3e-6, for weights of 16 bits."""


class TilePrefill(Prefill):
    """Blocks of 32 queries; see the module's docstring."""

    def __init__(self, em: Emitter, spec: AttentionSpec, target: Target) -> None:
        super().__init__(em, spec, target)
        self.tile = KEYS
        # Cutting a tile takes longer than copying it.
        self.most = 2 * self.together
        self.steps = -(-self.size // STEP)
        self.rows = self.steps * STEP
        wide = self.element == "f32"
        self.cuts = PARTS[self.element], PARTS[element_of(spec.k)]
        self.weight_parts = 3 if wide else 2
        left_out = 2 if wide else 1
        self.score_products = products(*self.cuts, left_out)
        self.value_products = products(self.weight_parts, self.cuts[1], left_out)
        # Narrow queries stay as they are: what they are multiplied by has more bits.
        self.score_factor = 1.0 if wide else self.query_factor
        self.query_factor = self.query_factor if wide else 1.0
        # Scores as they come out of the product, for the exponential to multiply.
        self.plain = spec.softcap is None and spec.mask_kind != "bias" and self.score_factor > 0

    def unit_size(self, queries: Index) -> Index:
        """Twice as many where that leaves four units at least, for threads."""
        em, least = self.em, self.queries * self.together
        many = em.cmpi("sge", queries, 4 * 2 * least)
        return em.select(many, 2 * least, least)

    def take_scratch(self, k: Value, parts: Scratch) -> None:
        """Beside the state of blocks, tiles of pairs: of queries, keys, values and weights."""
        em = self.em
        self.slots = self.most * self.spec.group
        self.query = parts.take([self.slots * self.rows * self.queries], "f32")
        self.total = parts.take([self.slots * self.rows * self.queries], "f32")
        self.state = parts.take([self.slots * 2 * self.queries], "f32")
        query_parts, key_parts = self.cuts
        tiles = self.rows // STEP * GROUPS * query_parts
        self.query_tiles = parts.take([self.slots * tiles * TILE], "i32")
        self.key_tiles = parts.take([self.tile // SIDE * self.steps * key_parts * TILE], "i32")
        self.value_tiles = parts.take([self.tile // STEP * self.rows // SIDE * key_parts * TILE], "i32")
        self.value_rows = parts.take([STEP * SIDE], "f32")
        self.weight_tiles = parts.take([self.tile // STEP * self.weight_parts * GROUPS * TILE], "i32")
        self.scores = parts.take([STEP * self.queries], "f32")
        self.amx = Tiles(em, parts)

    def body(self, begin: Value, end: Value) -> None:
        self.amx.configure()
        super().body(begin, end)
        self.amx.release()

    def cut(self, low: Value, high: Value, parts: int, *, rounded: bool = True) -> list[Value]:
        return split(self.em, low, high, parts, rounded=rounded)

    # Operands -------------------------------------------------------------------------------------

    def start(self, block: Block) -> None:
        """Transposed queries, in parts and in pairs; elements that fill the last tile are zeros."""
        super().start(block)
        em = self.em
        base = self.query_tile(block, 0, 0, 0)
        if self.size < self.rows:
            with em.loop(self.size, self.rows, hint="d") as d:
                for group in range(GROUPS):
                    em.vstore(em.zero(self.type), self.query, [block.place(d.iv, group)])
        with em.loop(0, self.steps, hint="step") as step, em.loop(0, SIDE, hint="pair") as pair:
            first = step.iv * STEP + pair.iv
            for group in range(GROUPS):
                low, high = (em.vload(self.query, [block.place(first + half, group)], self.type) for half in (0, SIDE))
                for part, value in enumerate(self.cut(low, high, self.cuts[0])):
                    tile = base + step.iv * (self.cuts[0] * GROUPS * TILE)
                    at = tile + (part * GROUPS + group) * TILE + pair.iv * SIDE
                    em.vstore(value, self.query_tiles, [at])

    def query_tile(self, block: Block, step: Index, part: int, group: int) -> Index:
        """Where a tile of the block's queries starts: of 32 elements of the head."""
        parts = self.cuts[0]
        first = block.row * (parts * GROUPS * TILE // STEP)
        return first + step * (parts * GROUPS * TILE) + (part * GROUPS + group) * TILE

    def key_tile(self, index: Index, step: Index, part: int) -> Index:
        """Where tile `index` of 16 keys starts, for 32 elements of the head."""
        parts = self.cuts[1]
        return (index * self.steps + step) * (parts * TILE) + part * TILE

    def value_tile_at(self, step: Index, index: Index, part: int) -> Index:
        """Where the tile of the 32 keys of a step starts, for 16 elements of the head."""
        parts = self.cuts[1]
        number = step * (self.rows // SIDE) + index
        return number * (parts * TILE) + part * TILE

    def halves(self, x: Heads, at: Index, start: Index, width: int = STEP) -> list[Value]:
        """Vectors of a row's elements from `start` on, as f32, zeros where the head ends.

        Args:
            start: a multiple of 32 where it isn't known, and 32 elements are there.
        """
        em, found = self.em, []
        for offset in range(0, width, SIDE):
            left = SIDE if isinstance(start, Value) else max(0, min(SIDE, self.size - start - offset))
            place = [at + start + offset]
            if left == SIDE:
                found.append(self.wide(em.vload(x.flat, place, self.vector(x.flat))))
            elif left == 0:
                found.append(em.zero(self.type))
            else:
                mask = em.const([lane < left for lane in range(SIDE)], vec(SIDE, "i1"))
                loaded = em.vload(x.flat, place, self.vector(x.flat), mask)
                found.append(self.wide(loaded))
        return found

    def copy_tile(self, bases: tuple[Index, Index], low: Index, high: Index) -> None:
        """Cuts keys and values low .. high - 1 into tiles, which start with keys whose number is a multiple."""
        em = self.em
        start = low // self.tile * self.tile
        full = self.size // STEP
        with em.loop(low, high, hint="key") as key:
            at = bases[0] + key.iv * self.k.stride
            own = key.iv - start
            index, row = own // SIDE, own % SIDE * SIDE

            def store(step: Index, values: list[Value]) -> None:
                for part, value in enumerate(self.cut(values[0], values[1], self.cuts[1])):
                    em.vstore(value, self.key_tiles, [self.key_tile(index, step, part) + row])

            if full:
                with em.loop(0, full, hint="step") as step:
                    store(step.iv, self.halves(self.k, at, step.iv * STEP))
            if full < self.steps:
                store(full, self.halves(self.k, at, full * STEP))
        first, last = self.steps_of(start, low, high)
        with em.loop(first, last, 1, em.zero(vec(SIDE, "i32")), hint="step") as turn:
            largest = turn.carry
            number = start + turn.iv * STEP
            full = self.size // SIDE
            if full:
                with em.loop(0, full, 1, largest, hint="d") as d:
                    d.yield_(self.transpose_values(bases[1], number, turn.iv, d.iv, (low, high), d.carry))
                largest = d.result
            if self.size % SIDE:
                largest = self.transpose_values(bases[1], number, turn.iv, full, (low, high), largest)
            turn.yield_(largest)
        self.unfit = em.cmpi("uge", em.reduce("maxui", turn.result), UNFIT)

    def transpose_values(
        self, base: Index, first: Index, step: Index, index: Index, keys: tuple[Index, Index], largest: Value
    ) -> Value:
        """A tile of 16 elements of 32 values from key `first` on, zeros for keys that aren't among `keys`.

        Returns the bits of the largest numbers without their sign, together with `largest`.
        """
        em, parts = self.em, self.cuts[1]
        bits = vec(SIDE, "i32")
        start = index * SIDE
        begin, end = em.imax(keys[0] - first, 0), em.imin(keys[1] - first, STEP)
        with em.loop(begin, end, 1, largest, hint="row") as row:
            at = base + (first + row.iv) * self.v.stride
            value = self.halves(self.v, at, start, SIDE)[0]
            own = em.bitcast(value, bits) & 0x7FFFFFFF
            value = em.select(em.cmpi("ult", own, UNFIT), value, 0.0)
            em.vstore(value, self.value_rows, [row.iv * SIDE])
            row.yield_(em.binary("arith.maxui", row.carry, own))
        for missing in ((0, begin), (end, STEP)):
            with em.loop(missing[0], missing[1], hint="row") as empty:
                em.vstore(em.zero(self.type), self.value_rows, [empty.iv * SIDE])
        rows = [em.vload(self.value_rows, [i * SIDE], self.type) for i in range(STEP)]
        tile = self.value_tile_at(step, index, 0)
        if parts == 1:  # one transposition of pairs, instead of two of single elements
            pairs = [self.cut(*pair, 1)[0] for pair in zip(rows[:SIDE], rows[SIDE:], strict=True)]
            cuts = [[pair] for pair in transpose(em, pairs)]
        else:
            halves = zip(transpose(em, rows[:SIDE]), transpose(em, rows[SIDE:]), strict=True)
            cuts = [self.cut(*pair, parts) for pair in halves]
        for i, values in enumerate(cuts):
            for part, value in enumerate(values):
                em.vstore(value, self.value_tiles, [tile + (i * SIDE + part * TILE)])
        return row.result

    def steps_of(self, start: Index, low: Index, high: Index) -> tuple[Index, Index]:
        """The steps of a tile that starts with key `start` which hold keys low .. high - 1."""
        em = self.em
        return (low - start) // STEP, em.iceildiv(high - start, STEP)

    # A block and a tile ---------------------------------------------------------------------------

    def attend(self, block: Block, low: Index, high: Index) -> None:
        """Adds keys low .. high - 1, of one tile, to the results of a block, step by step."""
        em = self.em
        start = low // self.tile * self.tile
        places = [[self.group_index(block.state, group)] for group in range(2 * GROUPS)]
        state = [em.vload(self.state, place, self.type) for place in places]
        begin, end = self.steps_of(start, low, high)
        opening = State(state[:GROUPS], state[GROUPS:], em.index(begin))
        with em.loop(begin, end, 1, opening, hint="step") as step:
            first = start + step.iv * STEP
            keys = Keys(step.iv, first, em.imax(low, first), em.imin(high, first + STEP))
            step.yield_(self.attend_step(block, keys, step.carry))
        self.multiply_values(block, step.result.waiting, end)
        for place, vector in zip(places, [*step.result.maxima, *step.result.sums], strict=True):
            em.vstore(vector, self.state, place)

    def attend_step(self, block: Block, keys: Keys, state: State) -> State:
        """Adds the keys of a step to a block's results, whose state it returns.

        Mostly, the running maximum stays as it is, which is seen only when weights are there. Where it has to rise, or
        a score isn't a number, they are computed again.
        """
        em = self.em
        self.multiply_scores(block, keys.step)
        early = self.hides(block, keys)
        if early is True:
            state = self.raise_maxima(block, keys, state)
        else:
            fresh = [em.cmpf("oeq", maximum, NEGATIVE_INFINITY) for maximum in state.maxima]
            with em.if_(early | self.any(fresh), state) as branch:
                branch.yield_(self.raise_maxima(block, keys, state))
                branch.else_()
                branch.yield_(state)
            state = branch.result
        sums, largest = self.weigh(keys.step, state.maxima)
        broken = self.any([em.cmpf("uno", sum_, sum_) for sum_ in sums])
        risen = [self.exceeds(new, old) for new, old in zip(largest, state.maxima, strict=True)]
        with em.if_(broken | self.any(risen), (state, sums)) as retried:
            self.multiply_scores(block, keys.step)  # masks, a bias or a softcap may have changed them
            with em.if_(broken):
                self.repair(block, keys)
            again = self.raise_maxima(block, keys, state)
            more, _ = self.weigh(keys.step, again.maxima)
            retried.yield_((again, more))
            retried.else_()
            retried.yield_((state, sums))
        state, sums = retried.result
        with em.if_(self.unfit, "index") as waiting:
            self.multiply_values(block, state.waiting, keys.step)
            self.add_unfit(block, keys)
            waiting.yield_(em.index(keys.step))
            waiting.else_()
            waiting.yield_(state.waiting)
        added = [old + new for old, new in zip(state.sums, sums, strict=True)]
        return State(state.maxima, added, waiting.result)

    def any(self, conditions: Sequence[Value]) -> Value:
        """Whether some lane of some condition is set."""
        em = self.em
        return em.reduce("or", functools.reduce(operator.or_, conditions))

    def multiply(
        self,
        which: Sequence[tuple[int, int]],
        load_rows: Callable[[int, int], tuple[Value, Index]],
        load_columns: Callable[[int, int], tuple[Value, Index]],
    ) -> None:
        """Adds products of parts to the tiles 0 to 3; `which` are (part of columns, part of rows).

        load_rows, load_columns: (part, side) -> the buffer that a tile is in, and where.
        """
        loaded = [-1, -1]
        for parts in which:
            for place, (part, load) in enumerate(zip(parts, (load_columns, load_rows), strict=True)):
                if loaded[place] == part:
                    continue
                loaded[place] = part
                for side in range(2):
                    self.load_tile((6 if place == 0 else 4) + side, *load(part, side))
            for tile in range(4):
                self.amx.emit("tdpbf16ps", tile, 4 + tile // 2, 6 + tile % 2)

    def load_tile(self, register: int, buffer: Value, at: Index, stride: int = 4 * SIDE) -> None:
        pointer = self.amx.pointer(buffer, at * 4)
        self.amx.emit("tileloadd64", register, pointer, self.amx.stride(stride))

    def store_tile(self, register: int, buffer: Value, at: Index, stride: int = 4 * SIDE) -> None:
        pointer = self.amx.pointer(buffer, at * 4)
        self.amx.emit("tilestored64", register, pointer, self.amx.stride(stride))

    def multiply_scores(self, block: Block, step: Index) -> None:
        """Products of the block's queries with the 32 keys of a step, into scratch."""
        em = self.em
        for tile in range(4):
            self.amx.emit("tilezero", tile)
        with em.loop(0, self.steps, hint="d") as d:
            self.multiply(
                self.score_products,
                lambda part, side: (self.key_tiles, self.key_tile(step * 2 + side, d.iv, part)),
                lambda part, side: (self.query_tiles, self.query_tile(block, d.iv, part, side)),
            )
        for tile in range(4):
            self.store_tile(tile, self.scores, tile * TILE)

    def multiply_values(self, block: Block, first: Index, end: Index) -> None:
        """total += weights times values of the steps `first` .. `end` - 1."""
        em = self.em
        with em.loop(0, self.rows // STEP, hint="d") as d:
            places = [block.place(d.iv * STEP, tile % 2) + tile // 2 * SIDE * self.queries for tile in range(4)]
            for tile, place in enumerate(places):
                self.load_tile(tile, self.total, place, 4 * self.queries)
            with em.loop(first, end, hint="step") as step:
                self.multiply(
                    self.value_products,
                    lambda part, side: (
                        self.value_tiles,
                        self.value_tile_at(step.iv, d.iv * 2 + side, part),
                    ),
                    lambda part, side: (self.weight_tiles, self.weights_at(step.iv, part, side)),
                )
            for tile, place in enumerate(places):
                self.store_tile(tile, self.total, place, 4 * self.queries)

    # Weights --------------------------------------------------------------------------------------

    def weights_at(self, step: Index, part: int, group: int) -> Index:
        """Where a tile of a step's weights starts."""
        return step * (self.weight_parts * GROUPS * TILE) + (part * GROUPS + group) * TILE

    def score_at(self, row: Index, half: int, group: int) -> list[Index]:
        """Where the scores of key `row` + 16 * `half` of a step stand."""
        return [row * SIDE + (half * GROUPS + group) * TILE]

    def exceeds(self, score: Value, maximum: Value) -> Value:
        """Whether a maximum has to rise for a score that stands in scratch."""
        em = self.em
        if self.plain and self.score_factor != 1.0:
            score = score * self.score_factor
        return em.cmpf("ogt", score, maximum + SLACK)

    def hides(self, block: Block, keys: Keys) -> Value | bool:
        """Whether scores have to be changed before their exponentials: for masks, a bias, a softcap."""
        em = self.em
        edge = self.has_invisible(block, keys.first, keys.first + STEP)
        if edge is True or not self.plain:
            return True
        partial = em.cmpi("ne", keys.high - keys.low, STEP)
        return partial if isinstance(edge, bool) else edge | partial

    def raise_maxima(self, block: Block, keys: Keys, state: State) -> State:
        """Scores of products; lets maxima, sums and results follow their maximum."""
        em = self.em
        found = self.finish_scores(block, keys)
        factor = self.score_factor if self.plain else 1.0
        now = [
            em.select(self.exceeds(new, old), new if factor == 1.0 else new * factor, old)
            for new, old in zip(found, state.maxima, strict=True)
        ]
        shifts = [self.finite(maximum) for maximum in now]
        decays = [self.weight(old, shift) for old, shift in zip(state.maxima, shifts, strict=True)]
        with em.if_(self.any([em.cmpf("une", decay, 1.0) for decay in decays]), "index") as branch:
            self.multiply_values(block, state.waiting, keys.step)
            with em.loop(0, self.size, hint="d") as d:
                for group, decay in enumerate(decays):
                    place = [block.place(d.iv, group)]
                    em.vstore(em.vload(self.total, place, self.type) * decay, self.total, place)
            branch.yield_(em.index(keys.step))
            branch.else_()
            branch.yield_(state.waiting)
        return State(now, [sum_ * decay for sum_, decay in zip(state.sums, decays, strict=True)], branch.result)

    def finish_scores(self, block: Block, keys: Keys) -> list[Value]:
        """Scores of products, -inf where keys aren't seen; returns the maxima."""
        em = self.em
        with em.loop(0, SIDE, 1, [em.const(NEGATIVE_INFINITY, self.type)] * GROUPS, hint="row") as row:
            maxima = list(row.carry)
            for half in range(2):
                key = keys.first + row.iv + half * SIDE
                near = em.imin(em.imax(key, keys.low), keys.high - 1)
                exists = em.cmpi("eq", near, key)
                lanes = em.broadcast(exists, vec(self.lanes, "i1"))
                seen = [lanes] * GROUPS
                if self.spec.hides:
                    shown = self.visible(block, near)
                    seen = [(exists if own.type == "i1" else lanes) & own for own in shown]
                for group in range(GROUPS):
                    place = self.score_at(row.iv, half, group)
                    score = em.vload(self.scores, place, self.type)
                    if not self.plain:
                        bias = self.mask_column(block, group, near) if self.spec.mask_kind == "bias" else None
                        product = score if self.score_factor == 1.0 else score * self.score_factor
                        score = self.score(product, bias)
                    score = em.select(seen[group], score, NEGATIVE_INFINITY)
                    em.vstore(score, self.scores, place)
                    maxima[group] = self.larger(score, maxima[group])
            row.yield_(maxima)
        return row.result

    def weigh(self, step: Index, maxima: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        """Weights of a step's keys, in tiles; returns the sums of them, and the largest scores."""
        em = self.em
        shifts = [self.finite(maximum) for maximum in maxima]
        state = [em.zero(self.type)] * GROUPS, [em.const(NEGATIVE_INFINITY, self.type)] * GROUPS
        with em.loop(0, SIDE, UNROLLED, state, hint="pair") as pair:
            sums, found = pair.carry
            for u in range(UNROLLED):
                for group in range(GROUPS):
                    self.pair_weights(step, pair.iv + u, group, shifts[group], sums, found)
            pair.yield_((sums, found))
        return pair.result

    def pair_weights(
        self, step: Index, pair: Index, group: int, shift: Value, sums: list[Value], maxima: list[Value]
    ) -> None:
        """Weights of two keys, 16 apart, in parts; adds them to the sums, and lets the maxima follow their scores."""
        em = self.em
        weights = []
        for half in range(2):
            score = em.vload(self.scores, self.score_at(pair, half, group), self.type)
            maxima[group] = self.larger(score, maxima[group])
            if self.plain and self.score_factor != 1.0:
                score = self.fma(score, em.const(self.score_factor, self.type), -shift)
            else:
                score = self.distance(score, shift)
            weights.append(self.exp2(score, EXP2 if self.weight_parts > 2 else NARROW_EXP2))
            sums[group] = sums[group] + weights[-1]
        for part, value in enumerate(self.cut(weights[0], weights[1], self.weight_parts, rounded=False)):
            place = pair * SIDE + self.weights_at(step, part, group)
            em.vstore(value, self.weight_tiles, [place])

    def exp2(self, x: Value, coefficients: Sequence[float] = EXP2) -> Value:
        """2^x: the same bits as without AVX-512's instructions for it, but for results below 2^-126."""
        em, type = self.em, x.type
        if type != self.type:
            return super().exp2(x, coefficients)
        every, how = em.const(-1, "i16"), em.const(NEAREST, "i32")
        operands = [x, how, em.zero(type), every, em.const(CURRENT, "i32")]
        rest = em.intrinsic("llvm.x86.avx512.mask.reduce.ps.512", operands, type)
        value = em.const(coefficients[-1], type)
        for coefficient in reversed(coefficients[:-1]):
            value = self.fma(value, rest, em.const(coefficient, type))
        operands = [value, x - rest, em.zero(type), every, em.const(CURRENT, "i32")]
        return em.intrinsic("llvm.x86.avx512.mask.scalef.ps.512", operands, type)

    # What isn't finite ----------------------------------------------------------------------------

    def repair(self, block: Block, keys: Keys) -> None:
        """Computes products in scratch that aren't finite again, by multiply-adds."""
        em = self.em
        kv_head = block.h // self.spec.group
        base = self.k.base(block.b, kv_head)
        with em.loop(keys.low, keys.high, hint="key") as key:
            own = key.iv - keys.first
            row = own // SIDE * (GROUPS * TILE)
            row = row + own % SIDE * SIDE
            for group in range(GROUPS):
                place = [row + group * TILE]
                old = em.vload(self.scores, place, self.type)
                size = em.bitcast(old, with_element(self.type, "i32")) & 0x7FFFFFFF
                fine = em.cmpi("ult", size, INFINITE)
                at = base + key.iv * self.k.stride
                with em.loop(0, self.size, 1, em.zero(self.type), hint="d") as d:
                    element = em.broadcast(self.wide(em.load(self.k.flat, [at + d.iv])), self.type)
                    query = em.vload(self.query, [block.place(d.iv, group)], self.type)
                    d.yield_(self.fma(element, query, d.carry))
                em.vstore(em.select(fine, old, d.result), self.scores, place)

    def add_unfit(self, block: Block, keys: Keys) -> None:
        """total += weight * value for the elements of values that were left out, and the queries that see them."""
        em, bits = self.em, "i32"
        kv_head = block.h // self.spec.group
        base = self.v.base(block.b, kv_head)
        with em.loop(keys.low, keys.high, hint="key") as key, em.loop(0, self.size, hint="d") as d:
            value = self.wide(em.load(self.v.flat, [base + key.iv * self.v.stride + d.iv]))
            size = em.bitcast(value, bits) & 0x7FFFFFFF
            with em.if_(em.cmpi("uge", size, UNFIT)):
                own = key.iv - keys.first
                pair, high = own % SIDE, em.cmpi("uge", own, SIDE)
                seen = self.visible(block, key.iv) if self.spec.hides else []
                for group in range(GROUPS):
                    weight = em.zero(self.type)
                    for part in range(self.weight_parts):
                        at = pair * SIDE + self.weights_at(keys.step, part, group)
                        word = em.vload(self.weight_tiles, [at], with_element(self.type, bits))
                        word = em.select(high, word & HIGH, word << 16)
                        weight = weight + em.bitcast(word, self.type)
                    place = [block.place(d.iv, group)]
                    old = em.vload(self.total, place, self.type)
                    new = self.fma(em.broadcast(value, self.type), weight, old)
                    em.vstore(em.select(seen[group], new, old) if seen else new, self.total, place)


@dataclass(frozen=True)
class State:
    """What a block has of the keys before: the maximum and sum of each lane, and the first step whose weights wait for
    their values, so that results are loaded and stored once for several steps."""

    maxima: list[Value]
    sums: list[Value]
    waiting: Value


@dataclass(frozen=True)
class Keys:
    """The 32 keys of a step of a tile, from `first` on, of which low .. high - 1 exist and are seen by some block."""

    step: Index
    first: Index
    low: Index
    high: Index


def products(left: int, right: int, left_out: int) -> list[tuple[int, int]]:
    """The products of parts, without those whose numbers add up to more than `left_out`."""
    return [(x, y) for x, y in PRODUCTS if x < left and y < right and x + y <= left_out]
