# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of few queries over many keys: reading keys and values is all that takes time.

The keys that the queries see are cut into parts, one a block, and a second kernel joins what the blocks found. The grid
follows from sizes alone. Which keys are a block's is computed from the positions in device memory, so a CUDA graph may
be replayed at any position: parts are whole multiples of `step` keys, and those that nothing is left for end at once.

All rows that share a head of keys and values (query heads of a group, times queries) are one block's, so that keys and
values are read once: **a warp loads 16 bytes a lane**, several lanes a row, several rows at once. Loads are copies to
shared memory, which need no registers while they are under way, and start some steps ahead; each lane reads what it
copied itself, so nothing waits for other lanes. A lane multiplies its part of a key with the same part of every query;
lanes exchange halves of their sums until each has whole scores, of other keys than its neighbours. A warp keeps its own
maxima and sums, and waits for no other one until its keys are done.

Sums over lanes, warps and parts have an order that depends on sizes and positions alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rlx_mlir.codegen.attention import NEGATIVE_INFINITY, KeyRange
from rlx_mlir.codegen.gpu.attention_base import VECTOR_BYTES, Heads, Problem, rounded_up
from rlx_mlir.codegen.gpu.attention_join import JOIN_THREADS, MAX_PARTS, join, join_shared_bytes, part_of, part_size
from rlx_mlir.codegen.gpu.attention_softmax import OnlineSoftmax, Running
from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter, Index, Value, element_of, pointer, shape_of, vec
from rlx_mlir.codegen.gpu.gemm_config import resources
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, HostEmitter, Scratch, symbol_of, write_device_kernel
from rlx_mlir.codegen.specs.attention import AttentionSpec
from rlx_mlir.tuning.choices import NOTHING_CHOSEN, Chosen

WARP = 32
WAVES = 4
"""Blocks that a GPU runs at one time are one wave: where not all of them are, so many waves keep the last one short."""


@dataclass(frozen=True)
class DecodeConfig:
    """How one block works.

    rows: rows of queries that share its keys; groups: blocks that the rows of one head of keys take; loads: rows of
    keys that a lane works on in one step; stages: steps whose keys and values are under way; warps: warps a block;
    parts: of the keys at most, None for as many as fill the GPU.
    """

    rows: int
    groups: int
    loads: int
    stages: int = 2
    warps: int = 4
    parts: int | None = None

    def lanes(self, spec: AttentionSpec) -> int:
        """Lanes that hold one row of keys; a power of two."""
        pieces = spec.head_dim * BITS[element_of(spec.k)] // 8 // VECTOR_BYTES
        return min(WARP, 1 << (pieces - 1).bit_length())

    def vectors(self, spec: AttentionSpec) -> int:
        """Accesses of 16 bytes that a lane needs for its part of a row."""
        pieces = spec.head_dim * BITS[element_of(spec.k)] // 8 // VECTOR_BYTES
        return -(-pieces // self.lanes(spec))

    def keys(self, spec: AttentionSpec) -> int:
        """Keys that a warp works on at one time."""
        return self.loads * WARP // self.lanes(spec)

    def step(self, spec: AttentionSpec) -> int:
        """Keys that a block works on at one time."""
        return self.keys(spec) * self.warps

    def padded_rows(self) -> int:
        """Floats a key in the exchange of weights: 1, 2 or a multiple of 4, which load as vectors."""
        return self.rows if self.rows < 3 else rounded_up(self.rows, 4)

    def shared_bytes(self, spec: AttentionSpec) -> int:
        """Shared memory of the first kernel."""
        weights = 4 * self.warps * self.keys(spec) * self.padded_rows()
        merged = 4 * self.warps * self.rows * (2 + spec.head_dim)
        return max(self.stages * self.stage_bytes(spec) + weights, merged)

    def slots(self, spec: AttentionSpec, chip: str) -> int:
        """Blocks of the first kernel that a GPU runs at one time."""
        chosen = resources(chip)
        own = self.vectors(spec) * VECTOR_BYTES * 8 // BITS[element_of(spec.k)]
        by_registers = (4 if self.rows * own <= 32 else 2) * 4 // self.warps
        by_memory = (chosen.processor_kib << 10) // (self.shared_bytes(spec) + 1024)
        return chosen.processors * max(1, min(by_registers, by_memory))

    def stage_bytes(self, spec: AttentionSpec) -> int:
        """Bytes of the keys and values of one step."""
        return 2 * self.loads * self.vectors(spec) * self.warps * WARP * VECTOR_BYTES


def decode_config(spec: AttentionSpec, queries: int) -> DecodeConfig:
    """The configuration for `queries` queries: as many rows a block as registers hold."""
    base = DecodeConfig(1, 1, 1)
    total = spec.group * queries
    # Floats of a row that a lane holds of the queries, and again of the results.
    own = base.vectors(spec) * VECTOR_BYTES * 8 // BITS[element_of(spec.k)]
    groups = -(-total // max(1, min(8, 64 // own)))
    rows = -(-total // groups)
    # Few keys a step: short contexts keep more blocks busy.
    loads = max(1, min((8 if rows * own <= 32 else 4) // base.vectors(spec), base.lanes(spec) // 2))
    return DecodeConfig(rows, groups, loads)


class _Decode(Problem):
    """What both kernels share."""

    multiplied = True

    def __init__(self, em: DeviceEmitter, spec: AttentionSpec, config: DecodeConfig) -> None:
        super().__init__(em, spec)
        self.config = config
        queries = shape_of(spec.q)[spec.sequence_axis]
        assert queries is not None, "a decoding schedule is for a static number of queries"
        self.count = queries
        self.total_rows = spec.group * queries

    def query_head(self, kv: Index, row: Index) -> Index:
        """The query head of a row: rows of a head of keys are its query heads, times the queries of each."""
        return kv * self.spec.group + row // self.count

    def partial_row(self, b: Index, kv: Index, row: Index) -> Value:
        """The number of a row among the partial results."""
        em = self.em
        heads = em.wide(b) * self.spec.kv_heads + em.wide(kv)
        return heads * self.total_rows + em.wide(row)


class Partial(_Decode):
    """The first kernel: one block is one part of the keys of one head; see the module's docstring."""

    def __init__(self, em: DeviceEmitter, spec: AttentionSpec, config: DecodeConfig) -> None:
        super().__init__(em, spec, config)
        self.lanes, self.vectors = config.lanes(spec), config.vectors(spec)
        self.loads = config.loads
        self.per_load = WARP // self.lanes
        self.width = VECTOR_BYTES * 8 // BITS[self.stored]
        self.own = self.vectors * self.width
        self.pieces = spec.head_dim // self.width
        # Queries that see different keys, or a mask, hide values that are in memory: those may be NaN.
        self.masks = spec.hides and (self.count > 1 or spec.mask_kind == "custom")

    def emit(self, part: Value, sums: Value, parts: Value) -> None:
        """part: f32 [B, Hkv, rows, parts, D]; sums: maximum and sum, f32 [B, Hkv, rows, parts, 2]."""
        em, config = self.em, self.config
        b, split = em.block("z"), em.block("x")
        kv = em.block("y") // config.groups
        self.first_row = em.block("y") % config.groups * config.rows
        keys = part_of(self, self.range(b, 0, self.count), config.step(self.spec), split, parts)
        with em.if_(em.cmpi("slt", keys.lo, keys.hi)):
            self.thread, self.lane, self.warp = em.thread(), em.lane(), em.warp()
            self.slice = self.lane & (self.lanes - 1)
            self.place = self.lane >> (self.lanes.bit_length() - 1)
            heads = [self.head_of(kv, row) for row in range(config.rows)]
            self.mask_rows = [self.mask_row(b, h, i) for h, i in heads] if self.mask is not None else []
            self.seen_until = [keys.offset + i for _, i in heads]
            queries = [self.query(b, h, i) for h, i in heads]
            state = self.walk(b, kv, keys, queries)
            self.merge(state, b, kv, split, part, sums, parts)

    # Rows -----------------------------------------------------------------------------------------

    def head_of(self, kv: Index, row: int) -> tuple[Index, Index]:
        """(query head, query) of a row of this block; rows beyond the last repeat it."""
        em = self.em
        at: Index = self.first_row + row
        if self.config.groups * self.config.rows > self.total_rows:
            at = em.imin(at, self.total_rows - 1)
        return self.query_head(kv, at), at % self.count

    def columns(self, vector: int) -> Index:
        """The first element of a lane's vector in a row."""
        return (self.slice + vector * self.lanes) * self.width

    def inside(self, vector: int) -> Value | None:
        """Whether a lane's vector is in the row; None where all are."""
        if (vector + 1) * self.lanes <= self.pieces:
            return None
        return self.em.cmpi("ult", self.slice, self.pieces - vector * self.lanes)

    def piece(self, vector: int) -> Value:
        """The lane's vector in a row, by 16 bytes: what is outside repeats the first."""
        em, inside = self.em, self.inside(vector)
        at = self.slice + vector * self.lanes
        return at if inside is None else em.select(inside, at, 0)

    def query(self, b: Index, h: Index, i: Index) -> list[Value]:
        """A lane's part of a query as f32, multiplied; zeros outside of the row."""
        em = self.em
        row = self.q.row(em, self.q.head(em, b, h), i)
        values = []
        for vector in range(self.vectors):
            inside = self.inside(vector)
            address = em.at(row, self.piece(vector) * self.width, self.element)
            for x in self.load_wide(address, self.element, self.width):
                x = x * self.query_factor
                values.append(x if inside is None else em.select(inside, x, 0.0))
        return values

    # Keys -----------------------------------------------------------------------------------------

    def walk(self, b: Index, kv: Index, keys: KeyRange, queries: list[list[Value]]) -> Running:
        """Maxima, sums (of this lane's keys) and results (of this lane's elements) of all rows, after all keys."""
        em, config, spec, end = self.em, self.config, self.spec, keys.hi
        step, stages = config.step(spec), config.stages
        heads = (self.k, self.k.head(em, b, kv)), (self.v, self.v.head(em, b, kv))
        opening = Running.empty(em, config.rows, config.rows, self.own)
        first = keys.lo + self.warp * config.keys(spec)
        exchange = self.warp * (config.keys(spec) * config.padded_rows() * 4)
        exchange = em.shared(exchange + stages * config.stage_bytes(spec))
        for ahead in range(stages):
            self.fetch(heads, first + ahead * step, end, ahead * config.stage_bytes(spec))
        with em.loop(first, end, step, (em.const(0), opening), hint="key") as loop:
            stage, state = loop.carry
            em.cp_async_wait(2 * stages - 1)
            scores, offset = self.scores(queries, self.read(stage, 0))
            softmax, weights, decays = self.weigh(scores, loop.iv, offset, end, state.softmax)
            self.share(exchange, weights, offset)
            em.cp_async_wait(2 * stages - 2)
            totals = self.accumulate(exchange, self.read(stage, 1), state.totals, decays)
            self.fetch(heads, loop.iv + stages * step, end, stage)
            following = stage + config.stage_bytes(spec)
            following = em.select(em.cmpi("eq", following, stages * config.stage_bytes(spec)), 0, following)
            loop.yield_((following, Running(softmax, totals)))
        em.cp_async_wait(0)
        return loop.result[1]

    def slot(self, stage: Index, kind: int, u: int, vector: int) -> Value:
        """Where a lane's part of a row stands: of keys (0) or values (1), each lane's after its neighbour's."""
        em, threads = self.em, self.config.warps * WARP
        number = (kind * self.loads + u) * self.vectors + vector
        return em.shared(stage + number * threads * VECTOR_BYTES + self.thread * VECTOR_BYTES)

    def fetch(self, heads: Sequence[tuple[Heads, Value]], key: Index, end: Index, stage: Index) -> None:
        """Starts copies of the keys from `key` on, then of their values; what doesn't exist becomes zeros."""
        em = self.em
        some = em.cmpi("slt", key, end)
        for kind, (x, head) in enumerate(heads):
            with em.if_(some):
                self.fetch_rows(kind, x, head, key, end, stage)
            em.cp_async_commit()

    def fetch_rows(self, kind: int, x: Heads, head: Value, key: Index, end: Index, stage: Index) -> None:
        """Starts copies of a lane's rows of keys (0) or values (1)."""
        em = self.em
        last = end - 1
        for u in range(self.loads):
            place = key + (self.place + u * self.per_load)
            row = x.row(em, head, em.imin(place, last))
            exists = em.cmpi("slt", place, end)
            for vector in range(self.vectors):
                inside = self.inside(vector)
                count = em.select(exists if inside is None else exists & inside, VECTOR_BYTES, 0)
                source = em.at(row, self.piece(vector) * self.width, x.element)
                em.cp_async(self.slot(stage, kind, u, vector), source, count=count)

    def read(self, stage: Index, kind: int) -> list[list[Value]]:
        """A lane's parts of the rows of keys (0) or values (1) of a stage, as i32."""
        em = self.em
        return [
            [x for v in range(self.vectors) for x in em.lanes(em.ld(self.slot(stage, kind, u, v), vec(4, "i32")))]
            for u in range(self.loads)
        ]

    def scores(self, queries: list[list[Value]], words: list[list[Value]]) -> tuple[list[list[Value]], Index]:
        """Whole products by row and key, and the first of a lane's keys among those of the warp.

        Lanes of one row hold parts of the sums of `loads` keys. In each step a lane gives one half of its keys to the
        neighbour and gets what the neighbour has of the other half; with one key left, both get the same sum.
        """
        em = self.em
        sums: list[list[Value]] = [[] for _ in queries]
        for own in words:
            key = self.elements(own, self.stored)
            for row, query in enumerate(queries):
                total = query[0] * key[0]
                for q, k in zip(query[1:], key[1:], strict=True):
                    total = em.fmaf(q, k, total)
                sums[row].append(total)
        offset: Index = 0
        distance = self.lanes // 2
        while distance:
            count = len(sums[0])
            if count > 1:
                upper = em.cmpi("ne", self.lane & distance, 0)
                half = count // 2
                for row, values in enumerate(sums):
                    kept = [em.select(upper, values[half + i], values[i]) for i in range(half)]
                    given = [em.select(upper, values[i], values[half + i]) for i in range(half)]
                    sums[row] = [k + em.shuffle_lane("bfly", g, distance) for k, g in zip(kept, given, strict=True)]
                offset = offset + em.select(upper, half, 0)
            else:
                sums = [[x + em.shuffle_lane("bfly", x, distance) for x in values] for values in sums]
            distance //= 2
        return sums, offset * self.per_load + self.place

    @property
    def copies(self) -> int:
        """Lanes that hold the same score."""
        return max(1, self.lanes // self.loads)

    def weigh(
        self,
        scores: list[list[Value]],
        first: Index,
        offset: Index,
        end: Index,
        before: OnlineSoftmax,
    ) -> tuple[OnlineSoftmax, list[list[Value]], list[Value]]:
        """The softmax after more keys, as it gives them; hidden keys have the weight -1 with `masks`."""
        em = self.em
        keys, last = [first + offset + u * self.per_load for u in range(len(scores[0]))], end - 1
        exist = [em.cmpi("slt", key, end) for key in keys]
        seen, shown = [], []
        for row, products in enumerate(scores):
            seen.append([self.shows(row, key, end, exists) for key, exists in zip(keys, exist, strict=True)])
            biased = [self.score(x, self.bias(row, key, last)) for x, key in zip(products, keys, strict=True)]
            shown.append(
                [em.select(own, score, NEGATIVE_INFINITY) for own, score in zip(seen[row], biased, strict=True)]
            )
        softmax, weights, decays = OnlineSoftmax.of(self, shown, WARP, before)
        if self.masks:
            pairs = zip(seen, weights, strict=True)
            weights = [[em.select(own, x, -1.0) for own, x in zip(*pair, strict=True)] for pair in pairs]
        return softmax, weights, decays

    def shows(self, row: int, key: Index, end: Index, exists: Value) -> Value:
        """Whether a row sees a key."""
        em, kind = self.em, self.spec.mask_kind
        seen = exists
        if self.count > 1 and self.spec.by_position:
            seen = seen & em.cmpi("sle", key, self.seen_until[row])
        if self.count > 1 and kind == "sliding_window":
            assert self.spec.window is not None
            first = self.seen_until[row] - self.spec.window
            seen = seen & em.cmpi("sgt", key, first)
        if kind == "custom":
            seen = seen & self.mask_value(self.mask_rows[row], em.imin(key, end - 1))
        return seen

    def share(self, exchange: Value, weights: list[list[Value]], offset: Index) -> None:
        """Writes each key's weights, one row after the other, where the lanes of its values read them."""
        em, padded = self.em, self.config.padded_rows()
        em.warp_sync()
        for u in range(len(weights[0])):
            row = [weights[r][u] for r in range(self.config.rows)]
            row += [row[0]] * (padded - len(row))
            at = (offset + u * self.per_load) * padded
            for first in range(0, padded, 4):
                part = row[first : first + 4]
                value = part[0] if len(part) == 1 else em.vector(part)
                em.st(value, exchange, at + first)
        em.warp_sync()

    def accumulate(
        self, exchange: Value, words: list[list[Value]], totals: list[list[Value]], decays: Sequence[Value]
    ) -> list[list[Value]]:
        """totals * decay + sum of weight * value over a lane's rows of values."""
        em, padded = self.em, self.config.padded_rows()
        totals = [[x * decay for x in total] for total, decay in zip(totals, decays, strict=True)]
        for u, own in enumerate(words):
            value = self.elements(own, self.stored)
            at = (self.place + u * self.per_load) * padded
            weights: list[Value] = []
            for first in range(0, padded, 4):
                count = min(4, padded)
                weights += em.lanes(em.ld(exchange, vec(count, "f32") if count > 1 else "f32", at + first))
            for row in range(self.config.rows):
                weight = weights[row]
                hidden = em.cmpf("oeq", weight, -1.0) if self.masks else None
                for d, x in enumerate(value):
                    total = em.fmaf(weight, x, totals[row][d])
                    totals[row][d] = total if hidden is None else em.select(hidden, totals[row][d], total)
        return totals

    # The end --------------------------------------------------------------------------------------

    def merge(self, state: Running, b: Index, kv: Index, split: Value, part: Value, sums: Value, parts: Value) -> None:
        """Joins the lanes and warps of the block, and writes the part's results."""
        em, rows, warps, size = self.em, self.config.rows, self.config.warps, self.spec.head_dim
        stats = em.shared(warps * rows * size * 4)
        em.barrier()  # The same memory held weights.
        lane_sums = [em.warp_reduce("add", x) * (1.0 / self.copies) for x in state.softmax.sums]
        for row in range(rows):
            with em.if_(em.cmpi("eq", self.lane, row)):
                em.st(em.vector([state.softmax.maxima[row], lane_sums[row]]), stats, (self.warp * rows + row) * 2)
        em.barrier()
        totals: list[list[Value]] = []
        for row in range(rows):
            own = [em.lanes(em.ld(stats, vec(2, "f32"), 2 * (w * rows + row))) for w in range(warps)]
            maximum = em.tree("maxnum", [m for m, _ in own])
            shift = self.finite(maximum)
            factor = self.weight(state.softmax.maxima[row], shift)
            total = em.tree("add", [x * self.weight(m, shift) for m, x in own])
            totals.append([maximum, total])
            for vector in range(self.vectors):
                values = state.totals[row][vector * self.width : (vector + 1) * self.width]
                values = [em.warp_reduce("add", x, self.per_load, stride=self.lanes) * factor for x in values]
                inside = em.cmpi("ult", self.lane, min(self.lanes, self.pieces - vector * self.lanes))
                with em.if_(inside):
                    offset = (self.warp * rows + row) * size + self.columns(vector)
                    for i in range(0, self.width, 4):
                        em.st(em.vector(values[i : i + 4]), em.shared(), offset + i)
        em.barrier()
        thread = em.thread()
        for row in range(rows):
            with self.existing(row) as at:
                index = self.partial_row(b, kv, at) * em.wide(parts) + em.wide(split)
                with em.loop(thread * 4, size, warps * WARP * 4, hint="d") as d:
                    places = [d.iv + (w * rows + row) * size for w in range(warps)]
                    own_values = [em.lanes(em.ld(em.shared(), vec(4, "f32"), place)) for place in places]
                    value = em.vector([em.tree("add", column) for column in zip(*own_values, strict=True)])
                    em.st(value, part, index * size + em.wide(d.iv))
                with em.if_(em.cmpi("eq", thread, row)):
                    em.st(em.vector(totals[row]), sums, index * 2)

    @contextmanager
    def existing(self, row: int) -> Iterator[Index]:
        """Runs where a row of this block exists, with its number among all of the head of keys."""
        em = self.em
        at: Index = self.first_row + row
        if self.config.groups * self.config.rows == self.total_rows:
            yield at
            return
        with em.if_(em.cmpi("ult", at, self.total_rows)):
            yield at


class Combine(_Decode):
    """The second kernel: one block joins the parts of one row."""

    def emit(self, part: Value, sums: Value, parts: Value) -> None:
        """part, sums: what the first kernel wrote; parts: into how many the keys were cut at most."""
        em = self.em
        b, kv, row = em.block("z"), em.block("y"), em.block("x")
        seen, size = part_size(self, self.range(b, 0, self.count), self.config.step(self.spec), parts)
        # Without keys, parts have no size.
        count = (seen + (size - 1)) // em.imax(size, 1)
        count = em.select(em.cmpi("eq", seen, 0), 0, count)
        first = self.partial_row(b, kv, row) * em.wide(parts)
        target = self.out.row(em, self.out.head(em, b, self.query_head(kv, row)), row % self.count)
        join(self, part, sums, first, count, target)


def partial_kernel(em: DeviceEmitter, name: str, spec: AttentionSpec, config: DecodeConfig) -> None:
    """The first kernel: grid (parts, heads of keys * groups, batch)."""
    kernel = Partial(em, spec, config)
    parameters = [*kernel.parameters("q", "k", "v", "mask", "pos"), pointer("part"), pointer("sums")]
    with em.kernel(name, parameters, config.warps * WARP, chained=True) as values:
        kernel.bind(values)
        kernel.emit(values[-2], values[-1], em.blocks("x"))


def combine_kernel(em: DeviceEmitter, name: str, spec: AttentionSpec, config: DecodeConfig) -> None:
    """The second kernel: grid (rows of a head of keys, heads of keys, batch)."""
    kernel = Combine(em, spec, config)
    parameters = [
        *kernel.parameters("pos", "out"),
        pointer("part", readonly=True),
        pointer("sums", readonly=True),
        ("parts", "i32"),
    ]
    with em.kernel(name, parameters, JOIN_THREADS, min_blocks=8, chained=True) as values:
        kernel.bind(values)
        kernel.emit(*values[-3:])


def decode(
    name: str,
    spec: AttentionSpec,
    chip: str,
    config: DecodeConfig | None = None,
    *,
    choices: Chosen = NOTHING_CHOSEN,
) -> DeviceKernel:
    """Attention of a static number of queries, each of which costs registers."""
    queries = shape_of(spec.q)[spec.sequence_axis]
    assert queries is not None, "a decoding schedule is for a static number of queries"
    config = config or replace(decode_config(spec, queries), parts=choices.take("key_parts", range(1, MAX_PARTS + 1)))
    rows, kv, symbol = spec.group * queries, spec.kv_heads, symbol_of(name)
    slots = config.slots(spec, chip)
    device = DeviceEmitter(chip)
    partial_kernel(device, f"{symbol}_parts", spec, config)
    combine_kernel(device, f"{symbol}_join", spec, config)

    def parts(em: HostEmitter, operands: Sequence[Value]) -> Index:
        """Into how many parts keys are cut: steps of a block, or as many as fill the GPU."""
        keys = em.dim(operands[1], spec.sequence_axis)
        steps = em.iceildiv(keys, config.step(spec))
        if config.parts is not None:
            return em.imax(em.imin(steps, config.parts), 1)
        heads = Problem.batch(em, spec, operands[0]) * (kv * config.groups)
        heads = em.imax(heads, 1)
        fitting = slots // heads
        several = (heads + (WAVES * slots - 1)) // heads
        one_wave = em.cmpi("uge", fitting, WAVES)
        most = em.imin(em.select(one_wave, fitting, several), MAX_PARTS)
        return em.imax(em.imin(steps, most), 1)

    def take(em: HostEmitter, operands: Sequence[Value], scratch: Scratch) -> tuple[Value, Value]:
        count = Problem.batch(em, spec, operands[0]) * (kv * rows) * parts(em, operands)
        return scratch.take([count * spec.head_dim], "f32"), scratch.take([count * 2], "f32")

    def host(em: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        memory = take(em, operands, scratch)
        count, blocks = parts(em, operands), Problem.batch(em, spec, operands[0])
        sizes = Problem.size_arguments(em, spec, operands)
        positions = operands[-1:] if spec.pos is not None else []
        em.launch(
            f"{symbol}_parts",
            [count, kv * config.groups, blocks],
            config.warps * WARP,
            [*operands, *sizes, *memory],
            shared=config.shared_bytes(spec),
        )
        em.launch(
            f"{symbol}_join",
            [rows, kv, blocks],
            JOIN_THREADS,
            [*positions, results[0], *sizes, *memory, em.i32(count)],
            shared=join_shared_bytes(spec.head_dim),
        )

    return write_device_kernel(
        name, "attention_decode", spec.operands, [("out", spec.result)], device, host, scratch=take
    )
