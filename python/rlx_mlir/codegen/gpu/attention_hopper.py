# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of many queries by warp groups (wgmma) and bulk copies by tensor maps, for f16 and bf16 on sm_90a.

Three warp groups make a block. One thread of the first fetches the tile of queries, then keys and values, tile by tile,
into rings of stages, whose barriers say what is full and what is empty. The two others take 64 queries each. Their
accumulators stay in registers, and weights go straight from softmax into the second product. While the tensor cores
multiply a tile's weights by its values, the scores of the next tile are on their way, and their softmax is computed.
A mask in memory is read by the threads that need it, tile by tile, while products are on their way.

Tiles are walked from the last to the first: only those at the ends, where some query doesn't see some key, need
conditions. They have loops of their own, as branches would keep products from overlapping.

Blocks are ordered so that the keys and values of the heads in progress stay in the L2 cache, and so that tiles with
many keys come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.attention import NEGATIVE_INFINITY
from rlx_mlir.codegen.gpu.attention_base import Problem, rounded_up
from rlx_mlir.codegen.gpu.attention_join import MAX_PARTS, SplitKeys, part_of
from rlx_mlir.codegen.gpu.attention_repair import Row, repair
from rlx_mlir.codegen.gpu.attention_softmax import OnlineSoftmax, Running
from rlx_mlir.codegen.gpu.emit import (
    DeviceEmitter,
    Index,
    Value,
    element_of,
    struct_of,
    tensor_map,
    vec,
)
from rlx_mlir.codegen.gpu.fragments import joined, row_of, scaled
from rlx_mlir.codegen.gpu.gemm_config import resources
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, HostEmitter, Scratch, symbol_of, write_device_kernel
from rlx_mlir.codegen.gpu.tma_ring import Slot, TmaRing
from rlx_mlir.codegen.specs.attention import AttentionSpec
from rlx_mlir.tuning.choices import NOTHING_CHOSEN, Chosen

GROUP = 128
"""Threads of a warp group."""
CONSUMERS = 2
"""Warp groups that compute."""
QUERIES = 64
"""Queries of one of them."""
TILE = CONSUMERS * QUERIES
BOX = 64
"""Elements of a row that one copy moves: 128 bytes, the width of a swizzle."""
LIVE_BYTES = 24_000_000
"""Keys and values of the heads in progress: about half of the L2 cache."""
MAX_SIZE = 256
"""Elements of a head: wgmma has at most so many columns of results."""
VALUE_STEP = 32
"""Elements of values that are multiplied together: whole boxes of 64 bytes, as copies of fewer are slow."""


@dataclass(frozen=True)
class HopperConfig:
    """Tiles of `keys` keys and as many values in `stages`; registers of the copying and the computing threads.

    A part of the keys has at least `least` tiles, and there are at most `parts` of them.
    """

    keys: int
    stages: int = 2
    registers: tuple[int, int] = (24, 240)
    least: int = 4
    parts: int = MAX_PARTS

    def offsets(self, size: int) -> tuple[int, int, int]:
        """Where keys, values and barriers start in shared memory, in bytes."""
        keys = 2 * TILE * rounded_up(size, BOX)
        values = keys + self.stages * self.tile_bytes(size)
        return keys, values, values + self.stages * self.tile_bytes(size)

    def tile_bytes(self, size: int) -> int:
        """Bytes of a tile of keys; one of values takes no more."""
        return 2 * self.keys * rounded_up(size, BOX)

    def shared_bytes(self, size: int) -> int:
        """Shared memory of a block."""
        return self.offsets(size)[2] + 8 * (1 + 4 * self.stages)


def hopper_config(spec: AttentionSpec) -> HopperConfig:
    """As many keys as registers hold scores, and what a mask in memory has for them."""
    keys = 128 if spec.head_dim <= 128 else 64
    return HopperConfig(keys if spec.mask is None else keys // 2)


def value_span(size: int) -> int:
    """Bytes of a box's rows of values, and of its swizzle, for heads of `size` elements."""
    return 128 if rounded_up(size, VALUE_STEP) % BOX == 0 else 64


@dataclass(frozen=True)
class _State:
    """What a computing thread carries: its places in the rings, the softmax of its two rows, weights, results."""

    keys: Slot
    values: Slot
    softmax: OnlineSoftmax
    weights: list[Value]
    totals: list[Value]


class PrefillHopper(Problem):
    """One tile of queries; see the module's docstring."""

    def __init__(self, em: DeviceEmitter, spec: AttentionSpec, config: HopperConfig) -> None:
        super().__init__(em, spec)
        self.config, self.size = config, spec.head_dim
        # Where a head isn't whole boxes, the last one reaches into the next head, which nothing reads.
        self.boxes = -(-spec.head_dim // BOX)
        self.whole = spec.head_dim % BOX == 0
        # Values lie across what is summed, where wgmma takes whole boxes alone: results beyond the head are left out.
        self.columns = rounded_up(spec.head_dim, VALUE_STEP)
        self.span = value_span(spec.head_dim)
        self.factor = self.query_factor if self.folded else 1.0

    # Barriers -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Fetches the maps, which launches write, not kernels; initialises the barriers."""
        em, stages = self.em, self.config.stages
        # That of the queries comes first, then those of full stages, of keys and of values, then those of empty ones.
        self.barriers = em.shared(self.config.offsets(self.size)[2])
        self.key_ring, self.value_ring = (
            TmaRing(em, self.barriers, stages, 8 + 8 * number * stages, 8 + 8 * (number + 2) * stages)
            for number in range(2)
        )
        self.thread = em.thread()
        self.group = em.uniform(self.thread >> 7)
        with em.if_(em.cmpi("eq", self.thread, 0)):
            q, k, v, out = self.maps
            em.tma_prefetch(q)
            em.tma_prefetch(out)
            with em.if_(em.cmpi("ne", self.keys, 0)):  # There is no map of no keys.
                em.tma_prefetch(k)
                em.tma_prefetch(v)
            em.mbarrier_init(self.barriers, 1)
            for stage in range(stages):
                em.mbarrier_init(self.key_ring.full(stage), 1)
                em.mbarrier_init(self.value_ring.full(stage), 1)
                em.mbarrier_init(self.key_ring.empty(stage), CONSUMERS)
                em.mbarrier_init(self.value_ring.empty(stage), CONSUMERS)
            em.mbarrier_fence()
        em.barrier()

    # The block ------------------------------------------------------------------------------------

    def emit(
        self, maps: Sequence[Value], tiles: Value, heads: Value, live: Value, part: Value, sums: Value, parts: Value
    ) -> None:
        """Grid: tiles of queries times heads times batch, along x; parts of the keys along y.

        maps: of q, k, v and the result. tiles: of queries; heads: all, batch times heads; live: heads whose tiles
        follow each other, all i32.
        """
        em, config = self.em, self.config
        self.maps = maps
        self.memory, self.parts = (part, sums), parts
        self.start()
        block = em.block()
        before = block // (tiles * live)
        inside = block % (tiles * live)
        beside = em.imin(heads - before * live, live)
        tile = tiles - 1 - inside // beside
        head = before * live + inside % beside
        self.b, self.h = head // self.spec.num_heads, head % self.spec.num_heads
        self.first = tile * TILE
        em.launch_dependents()
        em.wait_dependencies()
        self.seen = part_of(self, self.range(self.b, self.first, TILE), config.keys, em.block("y"), parts)
        span = em.imax(self.seen.hi - self.seen.lo, 0)
        self.count = em.iceildiv(span, config.keys)
        with em.if_(em.cmpi("eq", self.group, 0)) as branch:
            em.max_registers("decrease", config.registers[0])
            with em.if_(em.cmpi("eq", self.thread >> 5, 0)), em.if_(em.elect()):
                self.fetch()
            branch.else_()
            em.max_registers("increase", config.registers[1])
            self.compute()

    def coordinates(self, heads: int, h: Index, s: Index, at: int) -> list[Index]:
        """Where a box that begins with element `at` of a head starts in a map of a tensor with that many heads."""
        if self.spec.layout == "bhsd":
            return [at, s, self.b * heads + h]
        return [h * self.size + at, s, self.b]

    def fetch(self) -> None:
        """Starts all copies of the block, as stages become empty."""
        em, config, size, spec = self.em, self.config, self.size, self.spec
        offsets = config.offsets(size)
        q, k, v, _ = self.maps
        em.mbarrier_expect(self.barriers, 2 * TILE * BOX * self.boxes)
        for box in range(self.boxes):
            target = em.shared(box * TILE * 2 * BOX)
            em.tma_load(target, q, self.coordinates(spec.num_heads, self.h, self.first, box * BOX), self.barriers)
        kv = self.h // spec.group
        with em.loop(0, self.count, 1, self.key_ring.first_to_fill(), hint="tile") as loop:
            stage, rings = loop.carry.stage, (self.key_ring, self.value_ring)
            row = self.seen.lo + (self.count - 1 - loop.iv) * config.keys
            boxes = (self.boxes, 2 * BOX), (2 * self.columns // self.span, self.span)
            for ring, map, offset, (count, span) in zip(rings, (k, v), offsets[:2], boxes, strict=True):
                ring.wait_empty(loop.carry)
                full = ring.full(stage)
                em.mbarrier_expect(full, count * config.keys * span)
                for box in range(count):
                    at = stage * config.tile_bytes(size) + (offset + box * config.keys * span)
                    place = self.coordinates(spec.kv_heads, kv, row, box * span // 2)
                    em.tma_load(em.shared(at), map, place, full)
            loop.yield_(self.key_ring.advance(loop.carry))

    # Computing ------------------------------------------------------------------------------------

    def compute(self) -> None:
        """What a thread of the computing warp groups does."""
        em = self.em
        self.own = self.group - 1
        within = self.thread & (GROUP - 1)
        self.lane, self.warp = self.thread & 31, within >> 5
        self.leads = em.cmpi("eq", within, 0)
        row = self.own * QUERIES + (self.warp * 16 + (self.lane >> 2))
        row = self.first + row
        rows = [row, row + 8]
        self.column = (self.lane & 3) * 2
        self.take_rows(self.b, self.h, rows)
        em.mbarrier_wait(self.barriers, 0)
        nothing = Running.empty(em, len(rows), 1, self.size // 2)
        with em.if_(em.cmpi("sgt", self.count, 0), nothing) as branch:
            state = self.walk()
            branch.yield_(Running(state.softmax, [state.totals[: self.size // 2]]))
            branch.else_()
            branch.yield_(nothing)
        self.finish(branch.result.softmax, branch.result.totals[0])

    def walk(self) -> _State:
        """The state after all keys; at least one tile."""
        em = self.em
        state = self.opening()
        first, last = self.bounds()
        for lower, upper, masked in ((1, first, True), (first, last, False), (last, self.count, True)):
            if lower == upper:
                continue
            with em.loop(lower, upper, 1, state, hint="tile") as loop:
                loop.yield_(self.step(loop.iv, loop.carry, masked))
            state = loop.result
        self.value_ring.wait_full(state.values)
        return replace(state, totals=em.wgmma_wait_tied(0, self.weigh(state)))

    def bounds(self) -> tuple[Index, Index]:
        """Tiles, counted from the last: those before the first bound and from the second on need conditions."""
        em, spec, keys, seen = self.em, self.spec, self.config.keys, self.seen
        position = seen.offset + self.first
        first: Index = 1
        if spec.by_position:
            whole = em.imax(position + 1 - seen.lo, 0) // keys
            first = em.imax(self.count - whole, 1)
        last: Index = self.count
        if spec.mask_kind == "sliding_window":
            assert spec.window is not None
            oldest = position + (TILE - 1) - spec.window
            hidden = em.iceildiv(em.imax(oldest + 1 - seen.lo, 0), keys)
            last = em.imax(self.count - hidden, first)
        return first, last

    def opening(self) -> _State:
        """Scores and weights of the last tile; its values beyond the last key become zeros."""
        em = self.em
        zero = em.const(0)
        mask = self.mask_tile(zero)
        first = Slot(zero, zero)
        self.key_ring.wait_full(first)
        scores = em.wgmma_wait_tied(0, self.products(zero))
        self.key_ring.release(zero, self.leads)
        self.clear_values()
        scores = self.transformed(scores, zero, True, mask)
        softmax, weights, _ = self.softmax(scores, None)
        totals = [em.const(0.0, "f32")] * (self.columns // 2)
        return _State(self.key_ring.advance(first), first, softmax, self.packed(weights), totals)

    def step(self, tile: Value, state: _State, masked: bool) -> _State:
        """Adds a tile: the values of the one before are multiplied while its scores are computed."""
        em = self.em
        self.key_ring.wait_full(state.keys)
        products = self.products(state.keys.stage)
        self.value_ring.wait_full(state.values)
        totals = self.weigh(state)
        mask = self.mask_tile(tile)
        products = em.wgmma_wait_tied(1, products)
        self.key_ring.release(state.keys.stage, self.leads)
        scores = self.transformed(products, tile, masked, mask)
        softmax, weights, decays = self.softmax(scores, state.softmax)
        # Weights pass through the wait, too: packed before, they would take registers that products still read.
        totals, weights = em.wgmma_wait_tied(0, (totals, weights))
        self.value_ring.release(state.values.stage, self.leads)
        totals = scaled(totals, decays)
        slots = self.key_ring.advance(state.keys), self.value_ring.advance(state.values)
        return _State(*slots, softmax, self.packed(weights), totals)

    def products(self, stage: Value) -> list[Value]:
        """Starts the products of queries and a stage of keys."""
        em, config, size = self.em, self.config, self.size
        base = em.address(em.shared())
        left = em.wgmma_descriptor(base + self.own * (QUERIES * 2 * BOX), 16, 1024)
        at = stage * config.tile_bytes(size) + config.offsets(size)[0]
        right = em.wgmma_descriptor(base + at, 16, 1024)
        kinds = ["f32"] * (config.keys // 2)
        total = em.op(f"llvm.mlir.zero : {struct_of(kinds)}", struct_of(kinds))
        em.wgmma_fence()
        for step in range(size // 16):
            box, inner = divmod(step, BOX // 16)
            a = left + (box * TILE * 2 * BOX + inner * 32) // 16
            b = right + (box * config.keys * 2 * BOX + inner * 32) // 16
            total = em.wgmma(self.element, config.keys, a, b, total, first=step == 0)
        em.wgmma_commit()
        return em.fields(total, kinds)

    def weigh(self, state: _State) -> list[Value]:
        """Starts adding the weights times their stage of values."""
        em, config, size = self.em, self.config, self.size
        at = state.values.stage * config.tile_bytes(size) + config.offsets(size)[1]
        span = self.span
        right = em.wgmma_descriptor(em.address(em.shared()) + at, config.keys * span, 8 * span, span)
        totals = state.totals
        em.wgmma_fence()
        for step in range(config.keys // 16):
            b = right + step * span
            left = state.weights[4 * step : 4 * step + 4]
            totals = em.wgmma_registers(self.element, self.columns, left, b, totals, transpose=True)
        em.wgmma_commit()
        return totals

    def first_key(self, tile: Value) -> Index:
        """The thread's first key in a tile, which counts from the last."""
        start = self.seen.lo + (self.count - 1 - tile) * self.config.keys
        return start + self.column

    def mask_tile(self, tile: Value) -> list[Value]:
        """What a mask in memory has for the thread's scores of a tile, as it stands there; none without one."""
        em, keys = self.em, self.keys
        if self.mask is None:
            return []
        start, kind = self.first_key(tile), self.mask_element
        # Neighbours are one access where rows of the mask begin at even places.
        pairs = isinstance(keys, int) and keys % 2 == 0
        last = keys - (2 if pairs else 1)
        found: list[Value] = []
        for n in range(self.config.keys // 8):
            for row in self.mask_rows:
                if pairs:
                    place = em.index(em.imin(start + 8 * n, last))
                    found += em.lanes(em.ld(em.at(row, em.wide(place), kind), vec(2, kind)))
                    continue
                for e in range(2):
                    found.append(em.ld(row, kind, em.wide(em.imin(start + (8 * n + e), last))))
        return found

    def transformed(self, products: list[Value], tile: Value, masked: bool, mask: Sequence[Value]) -> list[Value]:
        """What softmax is taken of; `tile` counts from the last, and `masked` hides keys that a row doesn't see."""
        em, spec, config, seen = self.em, self.spec, self.config, self.seen
        scores = products
        if not self.folded:
            biases: list[Value | None] = [None] * len(products)
            if spec.mask_kind == "bias":
                biases = [em.widen(x) for x in mask]
            pairs = zip(products, biases, strict=True)
            scores = [self.score(x * self.query_factor, bias) for x, bias in pairs]
        if spec.mask_kind == "custom":
            conditions = [self.condition(x) for x in mask]
            scores = [em.select(own, x, NEGATIVE_INFINITY) for own, x in zip(conditions, scores, strict=True)]
        if not masked:
            return scores
        start = self.first_key(tile)
        shown = list(scores)
        for half, row in enumerate(self.rows):
            limit, oldest = seen.hi - 1, None
            position = seen.offset + row
            if spec.by_position:
                limit = em.imin(limit, position)
            if spec.mask_kind == "sliding_window":
                assert spec.window is not None
                oldest = position - spec.window - start
            limit = limit - start
            for n in range(config.keys // 8):
                for e in range(2):
                    at = 4 * n + 2 * half + e
                    sees = em.cmpi("sge", limit, 8 * n + e)
                    if oldest is not None:
                        sees = sees & em.cmpi("slt", oldest, 8 * n + e)
                    shown[at] = em.select(sees, scores[at], NEGATIVE_INFINITY)
        return shown

    def softmax(
        self, scores: list[Value], before: OnlineSoftmax | None
    ) -> tuple[OnlineSoftmax, list[Value], list[Value]]:
        """The softmax after a tile, its weights, and what is before them is multiplied by, of the thread's two rows."""
        softmax, weights, decays = OnlineSoftmax.of(self, [row_of(scores, half) for half in range(2)], 4, before)
        return softmax, joined(*weights), decays

    def packed(self, weights: list[Value]) -> list[Value]:
        """Weights as the left operand of the second product: accumulators have its order already."""
        return [self.pair(weights, i) for i in range(0, len(weights), 2)]

    def clear_values(self) -> None:
        """Zeros in place of the values that are in memory beyond the last key: 0 times NaN is NaN.

        Rows beyond the tensor are zeros already. Both computing warp groups share the work, and wait for each other.
        """
        em, config, seen = self.em, self.config, self.seen
        if self.pos is None:
            return
        start = seen.lo + (self.count - 1) * config.keys
        end = em.imin(start + config.keys, self.keys)
        with em.if_(em.cmpi("slt", seen.hi, end)):
            em.mbarrier_wait(self.value_ring.full(0), 0)
            pieces, per_row = 2 * config.keys * self.columns // 16, self.span // 16
            first = self.thread - GROUP
            zeros = em.const(0, "vector<4xi32>")
            with em.loop(first, pieces, CONSUMERS * GROUP, hint="piece") as loop:
                row = start + loop.iv // per_row % config.keys
                with em.if_(em.cmpi("sge", row, seen.hi)):
                    em.st(zeros, em.shared(config.offsets(self.size)[1]), loop.iv * 4)
            em.fence_async()
            em.barrier(3, CONSUMERS * GROUP)

    def finish(self, softmax: OnlineSoftmax, totals: Sequence[Value]) -> None:
        """result = total / sum"""
        em = self.em
        sums = [em.warp_reduce("add", x, 4) for x in softmax.sums]
        with em.if_(em.cmpi("ugt", self.parts, 1)) as branch:
            self.keep(softmax.maxima, sums, totals)
            branch.else_()
            self.write(softmax.maxima, sums, totals)

    def keep(self, maxima: Sequence[Value], sums: Sequence[Value], totals: Sequence[Value]) -> None:
        """Writes what a part of the keys gives, for the kernel that joins them."""
        em, (part, memory) = self.em, self.memory
        heads = em.wide(self.b) * self.spec.num_heads + em.wide(self.h)
        base, split = heads * em.wide(self.queries), em.wide(em.block("y"))

        def place(query: Index) -> Index:
            row = (base + em.wide(query)) * em.wide(self.parts)
            return row + split

        for half, query in enumerate(self.rows):
            with em.if_(em.cmpi("slt", query, self.queries)):
                row = place(query)
                at = row * self.size + em.wide(self.column)
                for n in range(self.size // 8):
                    pair = [totals[4 * n + 2 * half + e] for e in range(2)]
                    em.st(em.vector(pair), part, at + em.wide(8 * n))
                with em.if_(em.cmpi("eq", self.column, 0)):
                    em.st(em.vector([maxima[half] * self.factor, sums[half]]), memory, row * 2)
        if not self.spec.hides:
            return

        def put(r: int, group: Value, d: Index, value: Value) -> None:
            first = self.rows[r] - (self.lane >> 2)
            em.st(value, part, place(first + group) * self.size + em.wide(d))

        # The sums are no results yet, but NaN where they make them so.
        scales = [em.fmaf(x, 0.0, 1.0) for x in sums]
        self.repair(maxima, scales, totals, put)

    def write(self, maxima: Sequence[Value], sums: Sequence[Value], totals: Sequence[Value]) -> None:
        """Writes results, through this warp group's part of the tile of queries."""
        em = self.em
        scales = [self.normalising(x) for x in sums]
        values = scaled(totals, scales)
        barrier = self.own + 1
        em.barrier(barrier, GROUP)
        matrix = self.lane >> 3
        row = self.warp * 16 + ((self.lane & 7) + (matrix & 1) * 8)
        target = em.shared(self.own * (QUERIES * 2 * BOX))
        for n in range(0, self.size // 8, 2):
            words = [self.pair(values, 4 * n + 2 * i) for i in range(4)]
            box, piece = divmod(n, 8)
            swizzled = ((matrix >> 1) + piece) ^ (row & 7)
            at = row * (2 * BOX) + swizzled * 16 + box * TILE * 2 * BOX
            em.stmatrix(em.at(target, at, "i8"), words)
        if self.spec.hides:

            def put(r: int, group: Value, d: Index, value: Value) -> None:
                own = self.warp * 16 + group + 8 * r
                at = em.at(target, self.place(own, d >> 3), "i8")
                em.st(em.narrow(value, self.element), at, d & 7)

            em.warp_sync()
            self.repair(maxima, scales, values, put)
        first = self.first + self.own * QUERIES
        if not self.whole:
            em.barrier(barrier, GROUP)
            self.copy_out(target, first)
            return
        em.fence_async()
        em.barrier(barrier, GROUP)
        with em.if_(self.leads & em.cmpi("slt", first, self.queries)):
            for box in range(self.boxes):
                place = self.coordinates(self.spec.num_heads, self.h, first, box * BOX)
                em.tma_store(self.maps[3], em.at(target, box * TILE * 2 * BOX, "i8"), place)
            em.bulk_commit()
            em.bulk_wait(0)

    def copy_out(self, tile: Value, first: Index) -> None:
        """Writes the results of this warp group from shared memory, where copies of boxes would reach too far."""
        em, pieces = self.em, self.size // 8
        head = self.out.head(em, self.b, self.h)
        start = self.thread & (GROUP - 1)
        with em.loop(start, QUERIES * pieces, GROUP, hint="piece") as loop:
            row, piece = loop.iv // pieces, loop.iv % pieces
            query = first + row
            with em.if_(em.cmpi("slt", query, self.queries)):
                words = em.ld(em.at(tile, self.place(row, piece), "i8"), vec(4, "i32"))
                em.st(words, em.at(self.out.row(em, head, query), piece * 8, self.element))

    def place(self, row: Index, piece: Index) -> Index:
        """Where 16 bytes of a row stand in a warp group's part of the tile of queries."""
        em = self.em
        swizzled = (em.index(piece) & 7) ^ (em.index(row) & 7)
        at = row * (2 * BOX) + swizzled * 16
        return (em.index(piece) >> 3) * (TILE * 2 * BOX) + at

    def repair(
        self,
        maxima: Sequence[Value],
        scales: Sequence[Value],
        values: Sequence[Value],
        put: Callable[[int, Value, Index, Value], None],
    ) -> None:
        """Computes rows of this warp again where hidden values had a part."""
        rows = []
        for half, query in enumerate(self.rows):
            rows.append(Row(query, self.finite(maxima[half]), scales[half], row_of(values, half)))
        repair(self, (self.b, self.h, self.h // self.spec.group), self.seen, rows, put)


def prefill_hopper(
    name: str,
    spec: AttentionSpec,
    chip: str,
    config: HopperConfig | None = None,
    *,
    choices: Chosen = NOTHING_CHOSEN,
) -> DeviceKernel:
    """Attention of any number of queries in f16 or bf16 on sm_90a.

    Raises UnsupportedByTemplate for other chips and element types, and sizes of heads that aren't multiples of 16 up to
    256.
    """
    device = DeviceEmitter(chip)
    device.need("attention by warp groups", 90, exactly=True)
    element, stored = element_of(spec.q), element_of(spec.k)
    if element == "f32" or stored != element:
        raise UnsupportedByTemplate(f"{name}: tensor cores take f16 or bf16 throughout, but got {element} and {stored}")
    if spec.head_dim % 16 or spec.head_dim > MAX_SIZE:
        raise UnsupportedByTemplate(
            f"{name}: warp groups take heads of multiples of 16 up to {MAX_SIZE}, but they are of {spec.head_dim}"
        )
    if config is None:
        config = hopper_config(spec)
        keys = choices.take("key_tile", range(32, config.keys + 1, 32)) or config.keys
        parts = choices.take("key_parts", range(1, MAX_PARTS + 1)) or config.parts
        config = replace(config, keys=keys, parts=parts)
    kernel = PrefillHopper(device, spec, config)
    symbol = f"{symbol_of(name)}_wgmma"
    maps = [tensor_map(f"{x}_map") for x in ("q", "k", "v", "out")]
    parameters = [
        *maps,
        *kernel.parameters("q", "k", "v", "mask", "pos", "out"),
        *((x, "i32") for x in ("tiles", "heads", "live")),
    ]
    processors = resources(chip).processors
    split = SplitKeys(spec, TILE, config.least * config.keys, config.parts, processors, f"{symbol}_join")
    with device.kernel(symbol, [*parameters, *split.PARAMETERS], _THREADS, min_blocks=1) as values:
        kernel.bind(values)
        kernel.emit(values[:4], *values[-6:])
    split.write(device)
    host = _PrefillHost(spec, config, symbol, split)
    results = [("out", spec.result)]
    return write_device_kernel(name, "attention_hopper", spec.operands, results, device, host.emit, scratch=split.take)


#: Threads of a block: the warp group that loads, and those that multiply.
_THREADS = (1 + CONSUMERS) * GROUP


@dataclass(frozen=True)
class _PrefillHost:
    """How the host launches the kernel and the one that joins parts."""

    spec: AttentionSpec
    config: HopperConfig
    symbol: str
    split: SplitKeys

    def _map(self, em: HostEmitter, batch: Index, buffer: Value, heads: int, rows: int, span: int = 2 * BOX) -> Value:
        """The tensor map of heads, of which a box is so many rows of `span` bytes."""
        spec = self.spec
        length = em.dim(buffer, spec.sequence_axis)
        if spec.layout == "bhsd":
            sizes, pitch = [batch * heads, length, spec.head_dim], spec.head_dim
        else:
            sizes, pitch = [batch, length, heads * spec.head_dim], heads * spec.head_dim
        strides, box = [length * pitch, pitch, 1], [1, rows, span // 2]
        return em.tensor_map(buffer, sizes, strides, box, swizzle=span)

    def emit(self, em: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        """The launches."""
        spec, config = self.spec, self.config
        q, k, v, *_ = operands
        batch, _, tiles, parts = self.split.sizes(em, operands)
        keys, heads = em.dim(k, spec.sequence_axis), batch * spec.num_heads
        # Heads of queries whose keys and values fit into the L2 cache, in whole groups.
        fitting = LIVE_BYTES // em.imax(keys * (4 * spec.head_dim), 1)
        live = em.imax(em.imin(fitting * spec.group, heads), 1)
        lengths = Problem.size_arguments(em, spec, operands)
        own = [*self.split.take(em, operands, scratch), em.i32(parts)]
        em.launch(
            self.symbol,
            [tiles * heads, parts],
            _THREADS,
            [
                self._map(em, batch, q, spec.num_heads, TILE),
                self._map(em, batch, k, spec.kv_heads, config.keys),
                self._map(em, batch, v, spec.kv_heads, config.keys, value_span(spec.head_dim)),
                self._map(em, batch, results[0], spec.num_heads, QUERIES),
                *operands,
                results[0],
                *lengths,
                *(em.i32(x) for x in (tiles, heads, live)),
                *own,
            ],
            shared=config.shared_bytes(spec.head_dim),
        )
        self.split.join(em, operands, results[0], [*lengths, *own])
