# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of many queries in f32 throughout: products by multiply-add, for exact models and for chips and element
types that tensor cores don't serve.

A block takes a tile of queries of one head and walks along the keys that they see, a tile at a time, with a running
maximum and sum for each query. Tiles stand in shared memory as f32, whatever keys and values are stored as. Sixteen
threads share four queries: each computes the scores of every sixteenth key, and then every sixteenth quad of the
result. Weights go from one to the other through shared memory, which only the threads of one warp exchange.

Where there are few tiles of queries and many keys, keys are cut into parts, and a second kernel joins the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from rlx_mlir.codegen.attention import KeyRange
from rlx_mlir.codegen.gpu.attention_base import Heads, Problem
from rlx_mlir.codegen.gpu.attention_join import MAX_PARTS, SplitKeys, part_of
from rlx_mlir.codegen.gpu.attention_softmax import OnlineSoftmax, Running
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value, vec
from rlx_mlir.codegen.gpu.gemm_config import resources
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, HostEmitter, Scratch, symbol_of, write_device_kernel
from rlx_mlir.codegen.specs.attention import AttentionSpec
from rlx_mlir.tuning.choices import NOTHING_CHOSEN, Chosen

LANES = 16
"""Threads that share queries."""
ROWS = 4
"""Queries that they share."""
PAD = 4
"""Floats between rows in shared memory: eight rows' vectors of 16 bytes then lie in different banks."""


@dataclass(frozen=True)
class F32Config:
    """Tiles: `queries`, a multiple of 8, `keys`, a multiple of 16; `least` tiles, or more, are a part of the keys.

    parts: of the keys at most.
    """

    queries: int
    keys: int
    least: int = 4
    parts: int = MAX_PARTS

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.queries // ROWS * LANES

    def shared_bytes(self, size: int) -> int:
        """Shared memory for heads of `size` elements: queries, keys, values, weights."""
        floats = (self.queries + self.keys) * (size + PAD) + self.keys * size + self.queries * (self.keys + PAD)
        return 4 * floats

    def slots(self, spec: AttentionSpec, chip: str) -> int:
        """Blocks that a GPU runs at one time."""
        chosen = resources(chip)
        by_memory = (chosen.processor_kib << 10) // (self.shared_bytes(spec.head_dim) + 1024)
        return chosen.processors * max(1, min(by_memory, 4))


def f32_config(spec: AttentionSpec) -> F32Config:
    """Few queries a block: prompts come in pieces, and small models have few heads to fill a GPU with."""
    return F32Config(32, 64 if spec.head_dim <= 64 else 32 if spec.head_dim <= 128 else 16)


class PrefillF32(Problem):
    """One tile of queries; see the module's docstring."""

    multiplied = True

    def __init__(self, em: DeviceEmitter, spec: AttentionSpec, config: F32Config) -> None:
        super().__init__(em, spec)
        self.config, self.size = config, spec.head_dim
        self.quads = spec.head_dim // 4
        self.columns = config.keys // LANES
        self.parts = -(-self.quads // LANES)

    def emit(self, part: Value, sums: Value, parts: Value) -> None:
        """Grid: tiles of queries, heads, batch times parts of the keys.

        part, sums: where the results of parts go, if there are several: f32 [B, H, Sq, parts, D], and [..., 2].
        """
        em, config, size = self.em, self.config, self.size
        b, split = em.block("z") // parts, em.block("z") % parts
        h = em.block("y")
        # The last tiles see the most keys: they come first.
        tile = em.blocks("x") - 1 - em.block("x")
        self.first = tile * config.queries
        kv = h // self.spec.group
        self.thread = em.thread()
        self.lane, self.group = self.thread & (LANES - 1), self.thread >> 4
        pitch = size + PAD
        self.query_tile = em.shared()
        self.key_tile = em.shared(4 * config.queries * pitch)
        self.value_tile = em.shared(4 * (config.queries + config.keys) * pitch)
        self.weight_tile = em.shared(4 * ((config.queries + config.keys) * pitch + config.keys * size))
        last = self.queries - 1
        self.write_tile(
            self.query_tile,
            pitch,
            config.queries,
            self.read_tile(self.q, self.q.head(em, b, h), self.first, last, config.queries),
            self.query_factor,
        )
        keys = part_of(self, self.range(b, self.first, config.queries), config.keys, split, parts)
        self.take_rows(b, h, [self.first + (self.group * ROWS + r) for r in range(ROWS)])
        k, v = self.k.head(em, b, kv), self.v.head(em, b, kv)
        opening = Running.empty(em, ROWS, ROWS, 4 * self.parts)
        with em.loop(keys.lo, keys.hi, config.keys, opening, hint="key") as loop:
            loop.yield_(self.step(loop.iv, keys, k, v, loop.carry))
        several = em.cmpi("ugt", parts, 1)
        with em.if_(several) as branch:
            heads = em.wide(b) * self.spec.num_heads + em.wide(h)
            self.keep(heads * em.wide(self.queries), split, parts, part, sums, loop.result)
            branch.else_()
            self.finish(b, h, loop.result)

    # Tiles ----------------------------------------------------------------------------------------

    def pieces(self, count: int) -> list[tuple[Value, Value]]:
        """(row, quad) of what a thread moves of a tile of `count` rows; the last ones may be beyond the tile."""
        em = self.em
        count = -(-count * self.quads // self.config.threads)
        places = [self.thread + i * self.config.threads for i in range(count)]
        return [(em.binary("arith.divui", p, self.quads), em.binary("arith.remui", p, self.quads)) for p in places]

    def read_tile(self, x: Heads, head: Value, first: Index, last: Index, count: int) -> list[list[Value]]:
        """The rows from `first` on that a thread moves, as f32: rows beyond `last` repeat it."""
        em = self.em
        values = []
        for row, quad in self.pieces(count):
            at = em.imin(first + row, last)
            address = em.at(x.row(em, head, at), quad * 4, x.element)
            values.append(self.load_wide(address, x.element, 4))
        return values

    def write_tile(
        self, tile: Value, pitch: int, count: int, values: Sequence[Sequence[Value]], factor: float | None = None
    ) -> None:
        """Puts them into shared memory."""
        em = self.em
        for i, ((row, quad), quad_values) in enumerate(zip(self.pieces(count), values, strict=True)):
            own = [x if factor is None else x * factor for x in quad_values]
            at = row * pitch + quad * 4
            if (i + 1) * self.config.threads <= count * self.quads:
                em.st(em.vector(own), tile, at)
                continue
            with em.if_(em.cmpi("ult", row, count)):
                em.st(em.vector(own), tile, at)

    # A tile of keys -------------------------------------------------------------------------------

    def step(self, key: Value, keys: KeyRange, k: Value, v: Value, state: Running) -> Running:
        """Maxima, sums and results after the keys from `key` on."""
        em, config = self.em, self.config
        last = keys.hi - 1
        key_values = self.read_tile(self.k, k, key, last, config.keys)
        values = self.read_tile(self.v, v, key, last, config.keys)
        # Weights of keys beyond the last one are zero, but 0 times infinity is NaN.
        inside = [em.cmpi("slt", key + row, keys.hi) for row, _ in self.pieces(config.keys)]
        values = [[em.select(own, x, 0.0) for x in quad] for own, quad in zip(inside, values, strict=True)]
        em.barrier()  # The tile before is used up.
        self.write_tile(self.key_tile, self.size + PAD, config.keys, key_values)
        self.write_tile(self.value_tile, self.size, config.keys, values)
        em.barrier()
        scores = self.scores()
        edge = self.edge(key, config.keys, self.first, config.queries, keys)
        columns = [key + (self.lane + LANES * j) for j in range(self.columns)]
        scores = [
            [self.score(x, self.bias(r, column, last)) for x, column in zip(own, columns, strict=True)]
            for r, own in enumerate(scores)
        ]
        scores = self.hidden(scores, edge, columns, keys)
        em.warp_sync()
        softmax, weights, decays = OnlineSoftmax.of(self, scores, LANES, state.softmax)
        totals = [[x * decay for x in own] for own, decay in zip(state.totals, decays, strict=True)]
        for r, exps in enumerate(weights):
            row = (self.group * ROWS + r) * (config.keys + PAD)
            for j, x in enumerate(exps):
                em.st(x, self.weight_tile, row + (self.lane + LANES * j))
        em.warp_sync()
        with em.if_(edge, totals) as branch:
            branch.yield_(self.weighted(totals, key, keys))
            branch.else_()
            branch.yield_(self.weighted(totals, None, keys))
        return Running(softmax, branch.result)

    def scores(self) -> list[list[Value]]:
        """Products of the thread's queries with its keys, in the tile."""
        em, pitch = self.em, self.size + PAD
        zeros = [[em.const(0.0, "f32")] * self.columns] * ROWS
        query = self.group * (ROWS * pitch)
        key = self.lane * pitch
        unroll = next(n for n in (4, 2, 1) if self.quads % n == 0)
        with em.loop(0, self.size, 4 * unroll, zeros, hint="d") as d:
            sums = d.carry
            for u in range(unroll):
                at = d.iv + 4 * u
                queries = [em.lanes(em.ld(self.query_tile, vec(4, "f32"), query + r * pitch + at)) for r in range(ROWS)]
                for j in range(self.columns):
                    own = em.lanes(em.ld(self.key_tile, vec(4, "f32"), key + j * LANES * pitch + at))
                    for query_part, totals in zip(queries, sums, strict=True):
                        for x, y in zip(query_part, own, strict=True):
                            totals[j] = em.fmaf(x, y, totals[j])
            d.yield_(sums)
        return d.result

    def weighted(self, totals: list[list[Value]], first: Value | None, keys: KeyRange) -> list[list[Value]]:
        """totals + weights * values of the tile; with `first`, its first key, hidden values count as nothing."""
        em, config = self.em, self.config
        weight_row = self.group * (ROWS * (config.keys + PAD))
        last = self.quads - 1
        quads: list[Index] = [self.lane + LANES * part for part in range(self.parts)]
        if self.quads % LANES:
            quads = [em.imin(quad, last) for quad in quads]
        with em.loop(0, config.keys, 4, totals, hint="key") as loop:
            sums = loop.carry
            weights = [
                em.lanes(em.ld(self.weight_tile, vec(4, "f32"), weight_row + (loop.iv + r * (config.keys + PAD))))
                for r in range(ROWS)
            ]
            for i in range(4):
                at = loop.iv + i
                row = at * self.size
                seen = None if first is None else [self.seen_by(r, first + at, keys) for r in range(ROWS)]
                for part, quad in enumerate(quads):
                    values = em.lanes(em.ld(self.value_tile, vec(4, "f32"), row + quad * 4))
                    for r, own in enumerate(sums):
                        for place, x in enumerate(values, 4 * part):
                            total = em.fmaf(weights[r][i], x, own[place])
                            own[place] = total if seen is None else em.select(seen[r], total, own[place])
            loop.yield_(sums)
        return loop.result

    # The end --------------------------------------------------------------------------------------

    def finish(self, b: Index, h: Index, state: Running) -> None:
        """result = total / sum"""
        em = self.em
        head = self.out.head(em, b, h)
        for r, values, total in self.results(state):
            scale = self.normalising(total)
            with self.existing(r):
                row = self.out.row(em, head, self.rows[r])
                for quad, own in values:
                    with em.if_(em.cmpi("ult", quad, self.quads)):
                        value = em.vector([x * scale for x in own])
                        em.st(em.narrow(value, self.element), row, quad * 4)

    def keep(self, first: Index, split: Index, parts: Value, part: Value, sums: Value, state: Running) -> None:
        """Writes what a part of the keys gives, for the kernel that joins them; `first`: the row of query 0."""
        em = self.em
        for r, values, total in self.results(state):
            with self.existing(r):
                row = (first + em.wide(self.rows[r])) * em.wide(parts)
                row = row + em.wide(split)
                for quad, own in values:
                    with em.if_(em.cmpi("ult", quad, self.quads)):
                        em.st(em.vector(own), part, row * self.size + em.wide(quad * 4))
                with em.if_(em.cmpi("eq", self.lane, 0)):
                    em.st(em.vector([state.softmax.maxima[r], total]), sums, row * 2)

    def results(self, state: Running) -> Iterator[tuple[int, list[tuple[Index, Sequence[Value]]], Value]]:
        """Of each row of a thread: its number, the quads that the thread has of it, the sum of weights."""
        for r, (own, total) in enumerate(zip(state.totals, state.softmax.sums, strict=True)):
            quads: list[tuple[Index, Sequence[Value]]] = [
                (self.lane + LANES * p, own[4 * p : 4 * p + 4]) for p in range(self.parts)
            ]
            yield r, quads, self.em.warp_reduce("add", total, LANES)

    def existing(self, r: int) -> AbstractContextManager[object]:
        """Runs where one of the thread's queries exists."""
        return self.em.if_(self.em.cmpi("slt", self.rows[r], self.queries))


def prefill_f32(
    name: str, spec: AttentionSpec, chip: str, config: F32Config | None = None, *, choices: Chosen = NOTHING_CHOSEN
) -> DeviceKernel:
    """Attention of any number of queries in f32."""
    if config is None:
        config = f32_config(spec)
        keys = choices.take("key_tile", range(LANES, config.keys + 1, LANES)) or config.keys
        parts = choices.take("key_parts", range(1, MAX_PARTS + 1)) or config.parts
        config = replace(config, keys=keys, parts=parts)
    symbol = f"{symbol_of(name)}_f32"
    device = DeviceEmitter(chip)
    split = SplitKeys(
        spec,
        config.queries,
        config.least * config.keys,
        config.parts,
        config.slots(spec, chip),
        f"{symbol}_join",
    )
    kernel = PrefillF32(device, spec, config)
    parameters = [*kernel.parameters("q", "k", "v", "mask", "pos", "out"), *split.PARAMETERS]
    with device.kernel(symbol, parameters, config.threads, min_blocks=2, chained=True) as values:
        kernel.bind(values)
        kernel.emit(*values[-3:])
    split.write(device)

    def host(em: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        batch, _, tiles, parts = split.sizes(em, operands)
        own = [*Problem.size_arguments(em, spec, operands), *split.take(em, operands, scratch), em.i32(parts)]
        grid, shared = [tiles, spec.num_heads, batch * parts], config.shared_bytes(spec.head_dim)
        em.launch(symbol, grid, config.threads, [*operands, results[0], *own], shared=shared)
        split.join(em, operands, results[0], own)

    results = [("out", spec.result)]
    return write_device_kernel(name, "attention_f32", spec.operands, results, device, host, scratch=split.take)
