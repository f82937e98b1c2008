# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of many queries by the tensor cores of warps (mma.sync), for f16 and bf16 on every chip from sm_80 on.

A block takes a tile of queries of one head, a warp 16 or 32 of them, and walks along the keys that they see, a tile at
a time. Products and the softmax, with a running maximum and sum for each query, stay in registers: what a product of
queries and keys leaves where is what the product with the values wants. Only weights are rounded, to the type of the
values; sums are f32.

Tiles stand in shared memory as rows of whole 128 bytes, in which 16-byte piece c of row r stands at c xor (r mod 8), so
that the 8 rows of a matrix that `ldmatrix` reads lie in different banks. There is one tile of keys and one of
values: values arrive during the first product, the next keys during softmax and the second product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlx_mlir.chips import sm_version
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.attention import KeyRange
from rlx_mlir.codegen.gpu.attention_base import Heads, Problem, rounded_up
from rlx_mlir.codegen.gpu.attention_repair import Row, repair
from rlx_mlir.codegen.gpu.attention_softmax import OnlineSoftmax, Running
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Value, element_of, vec
from rlx_mlir.codegen.gpu.fragments import row_of, scaled
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, HostEmitter, Scratch, symbol_of, write_device_kernel
from rlx_mlir.codegen.specs.attention import AttentionSpec
from rlx_mlir.tuning.choices import NOTHING_CHOSEN, Chosen

WARP = 32
TWO_BLOCKS = (80, 87, 90, 100, 103)
"""Chips with 160 KiB of shared memory and more a multiprocessor; others have 100."""
KEY_TILES = (16, 32, 64)
"""Keys of a tile that may be chosen."""
MAX_SIZE = 256
"""Elements of a head: the results of 16 queries are that many registers, times a half."""


@dataclass(frozen=True)
class MmaConfig:
    """Tiles: `tiles` times 16 queries a warp, `warps` of them; `keys`, a multiple of 16.

    keep: whether queries stay in registers, or are read again for each tile of keys.
    """

    warps: int
    tiles: int
    keys: int
    keep: bool

    @property
    def queries(self) -> int:
        """Queries of a block."""
        return 16 * self.tiles * self.warps

    def shared_bytes(self, size: int) -> int:
        """Shared memory for heads of `size` elements: queries (later results), keys, values."""
        return 2 * rounded_up(size, 64) * (self.queries + 2 * self.keys)


def mma_config(spec: AttentionSpec, chip: str) -> MmaConfig:
    """As many queries as registers hold: each fragment of keys and values is read once for those of a warp."""
    masked = spec.mask is not None  # Masks take registers, too.
    if spec.head_dim <= 64 and not masked:
        return MmaConfig(4, 2, 64, True)
    if spec.head_dim <= 128:
        # Where two blocks of larger tiles don't fit into shared memory, more warps hide more latency.
        large = sm_version(chip) in TWO_BLOCKS and not masked
        return MmaConfig(4, 2, 32, False) if large else MmaConfig(8, 1, 64, True)
    return MmaConfig(4, 1, 32, False)


class PrefillMma(Problem):
    """One tile of queries; see the module's docstring. Fragments are lists of registers, in PTX's order."""

    def __init__(self, em: DeviceEmitter, spec: AttentionSpec, config: MmaConfig) -> None:
        super().__init__(em, spec)
        self.config, self.size = config, spec.head_dim
        self.pitch = 2 * rounded_up(spec.head_dim, 64)
        self.pieces = spec.head_dim // 8
        self.per_row = spec.head_dim // 2  # accumulators of the results of 16 queries, each of a lane's two rows

    def emit(self) -> None:
        """Grid: tiles of queries, heads, batch."""
        em, config = self.em, self.config
        b, h = em.block("z"), em.block("y")
        # The last tiles see the most keys: they come first.
        tile = em.blocks("x") - 1 - em.block("x")
        self.first = tile * config.queries
        self.thread, self.lane, self.warp = em.thread(), em.lane(), em.warp()
        self.query_tile = em.shared()
        self.key_tile = em.shared(config.queries * self.pitch)
        self.value_tile = em.shared((config.queries + config.keys) * self.pitch)
        keys = self.range(b, self.first, config.queries)
        kv = h // self.spec.group
        k, v = self.k.head(em, b, kv), self.v.head(em, b, kv)
        self.copy(self.query_tile, config.queries, self.q, self.q.head(em, b, h), self.first, self.queries)
        em.cp_async_commit()
        self.copy(self.key_tile, config.keys, self.k, k, keys.lo, keys.hi)
        em.cp_async_commit()
        row = self.first + self.warp * (16 * config.tiles) + (self.lane >> 2)
        self.take_rows(b, h, [row + 8 * half for half in range(2 * config.tiles)])
        em.cp_async_wait(1)
        em.barrier()
        fragments = [self.query_fragments(step) for step in range(self.size // 16)] if config.keep else None
        opening = Running.empty(em, len(self.rows), config.tiles, self.per_row)
        with em.loop(keys.lo, keys.hi, config.keys, opening, hint="key") as loop:
            loop.yield_(self.step(loop.iv, keys, k, v, fragments, loop.carry))
        em.cp_async_wait(0)
        self.finish((b, h, kv), keys, loop.result)

    # Tiles ----------------------------------------------------------------------------------------

    def copy(self, tile: Value, count: int, x: Heads, head: Value, first: Index, end: Index) -> None:
        """Starts copies of the rows from `first` on; those from `end` on become zeros."""
        em, threads = self.em, self.config.warps * WARP
        last = em.imax(end - 1, 0)
        for i in range(-(-count * self.pieces // threads)):
            place = self.thread + i * threads
            row, piece = place // self.pieces, place % self.pieces
            at = first + row
            source = em.at(x.row(em, head, em.imin(at, last)), piece * 8, x.element)
            size = em.select(em.cmpi("slt", at, end), 16, 0)
            target = self.place(tile, row, piece)
            if (i + 1) * threads <= count * self.pieces:
                em.cp_async(target, source, count=size)
                continue
            with em.if_(em.cmpi("ult", row, count)):
                em.cp_async(target, source, count=size)

    def place(self, tile: Value, row: Index, piece: Index, step: int = 0) -> Value:
        """The address of 16 bytes of a row: of a piece, or with `step` of piece 0 or 1 of 2 * step more."""
        em = self.em
        # Pieces of 128 bytes are a matter of constants, so that few addresses have to be kept.
        low, high = 2 * step % 8, 2 * step // 8
        swizzled = (piece ^ low if low else piece) ^ (em.index(row) & 7)
        at = row * self.pitch + swizzled * 16 + 128 * high
        return em.at(tile, at, "i8")

    def query_fragments(self, step: int) -> list[list[Value]]:
        """The 16 elements from 16 * step on of each 16 queries of this warp."""
        em = self.em
        row = self.warp * (16 * self.config.tiles) + (self.lane & 15)
        half = self.lane >> 4
        places = [self.place(self.query_tile, row + 16 * t, half, step) for t in range(self.config.tiles)]
        return [em.ldmatrix(place) for place in places]

    # A tile of keys -------------------------------------------------------------------------------

    def step(
        self,
        key: Value,
        keys: KeyRange,
        k: Value,
        v: Value,
        fragments: list[list[list[Value]]] | None,
        state: Running,
    ) -> Running:
        """Maxima, sums and results after the keys from `key` on."""
        em, config = self.em, self.config
        em.cp_async_wait(0)
        em.barrier()  # Keys are there, and the values before are used up.
        self.copy(self.value_tile, config.keys, self.v, v, key, keys.hi)
        em.cp_async_commit()
        products = self.products(fragments)
        em.cp_async_wait(0)
        em.barrier()  # Values are there, and the keys are used up.
        self.copy(self.key_tile, config.keys, self.k, k, key + config.keys, keys.hi)
        em.cp_async_commit()
        softmax, weights, decays = OnlineSoftmax.of(self, self.scores(products, key, keys), 4, state.softmax)
        totals = [scaled(own, decays[2 * tile : 2 * tile + 2]) for tile, own in enumerate(state.totals)]
        return Running(softmax, self.weighted(weights, totals))

    def products(self, fragments: list[list[list[Value]]] | None) -> list[list[Value]]:
        """Queries times keys: accumulators of 16 queries and 8 keys, by 16 queries, then by keys."""
        em, config = self.em, self.config
        zero = em.const(0.0, "f32")
        sums = [[[zero] * 4 for _ in range(config.keys // 8)] for _ in range(config.tiles)]
        row = (self.lane & 7) + (self.lane >> 4) * 8
        half = (self.lane >> 3) & 1
        for step in range(self.size // 16):
            queries = self.query_fragments(step) if fragments is None else fragments[step]
            for pair in range(config.keys // 16):
                place = self.place(self.key_tile, row + 16 * pair, half, step)
                own = em.ldmatrix(place)
                for tile in range(config.tiles):
                    for n in range(2):
                        at = 2 * pair + n
                        b = own[2 * n : 2 * n + 2]
                        sums[tile][at] = em.mma(self.element, queries[tile], b, sums[tile][at])
        return [[x for n in own for x in n] for own in sums]

    def scores(self, products: list[list[Value]], key: Value, keys: KeyRange) -> list[list[Value]]:
        """What softmax is taken of, by row of this lane; hidden keys are -inf."""
        config = self.config
        columns = [key + (self.lane & 3) * 2 + (8 * n + e) for n in range(config.keys // 8) for e in range(2)]
        last = keys.hi - 1
        scores: list[list[Value]] = []
        for r in range(len(self.rows)):
            tile, half = divmod(r, 2)
            own = row_of(products[tile], half)
            if not self.folded:
                biases = [self.bias(r, column, last) for column in columns]
                own = [self.score(x * self.query_factor, bias) for x, bias in zip(own, biases, strict=True)]
            scores.append(own)
        edge = self.edge(key, config.keys, self.first, config.queries, keys)
        return self.hidden(scores, edge, columns, keys)

    def weighted(self, weights: list[list[Value]], totals: list[list[Value]]) -> list[list[Value]]:
        """totals + weights times values."""
        em, config = self.em, self.config
        row, half = self.lane & 15, self.lane >> 4
        for step in range(config.keys // 16):
            # Accumulators of two times 8 keys are the registers of a left operand of 16.
            lefts = [
                [self.pair(weights[2 * tile + n % 2], 4 * step + 2 * (n // 2)) for n in range(4)]
                for tile in range(config.tiles)
            ]
            for pair in range(self.size // 16):
                place = self.place(self.value_tile, row + 16 * step, half, pair)
                own = em.ldmatrix(place, transpose=True)
                for left, results in zip(lefts, totals, strict=True):
                    for n in range(2):
                        at = slice(4 * (2 * pair + n), 4 * (2 * pair + n) + 4)
                        results[at] = em.mma(self.element, left, own[2 * n : 2 * n + 2], results[at])
        return totals

    # The end --------------------------------------------------------------------------------------

    def finish(self, place: tuple[Index, Index, Index], keys: KeyRange, state: Running) -> None:
        """result = total / sum, through this warp's part of the tile of queries, so that rows are written as wholes."""
        em, config, count = self.em, self.config, len(self.rows)
        em.warp_sync()
        row = self.warp * (16 * config.tiles) + (self.lane >> 2)
        inner = (self.lane & 3) * 4
        rows = []
        for r in range(count):
            scale = self.normalising(em.warp_reduce("add", state.softmax.sums[r], 4))
            values = [x * scale for x in row_of(state.totals[r // 2], r % 2)]
            rows.append(Row(self.rows[r], self.finite(state.softmax.maxima[r]), scale, values))
            for n in range(self.size // 8):
                target = self.place(self.query_tile, row + 8 * r, n)
                em.st(self.pair(values, 2 * n), em.at(target, inner, "i8"))
        em.warp_sync()

        def put(r: int, group: Value, d: Index, value: Value) -> None:
            own = self.warp * (16 * config.tiles) + group + 8 * r
            target = self.place(self.query_tile, own, d >> 3)
            em.st(em.narrow(value, self.element), target, d & 7)

        if self.spec.hides:
            repair(self, place, keys, rows, put)
            em.warp_sync()
        head = self.out.head(em, place[0], place[1])
        lines = 16 * config.tiles
        for i in range(-(-lines * self.pieces // WARP)):
            number = self.lane + i * WARP
            own, piece = number // self.pieces, number % self.pieces
            at = self.warp * lines + own
            query = self.first + at
            exists = em.cmpi("slt", query, self.queries)
            if (i + 1) * WARP > lines * self.pieces:
                exists = exists & em.cmpi("ult", own, lines)
            with em.if_(exists):
                words = em.ld(self.place(self.query_tile, at, piece), vec(4, "i32"))
                em.st(words, em.at(self.out.row(em, head, query), piece * 8, self.element))


def prefill_mma(
    name: str, spec: AttentionSpec, chip: str, config: MmaConfig | None = None, *, choices: Chosen = NOTHING_CHOSEN
) -> DeviceKernel:
    """Attention of any number of queries in f16 or bf16.

    Raises UnsupportedByTemplate for other element types, and sizes of heads that aren't multiples of 16 up to 256.
    """
    if spec.head_dim % 16 or spec.head_dim > MAX_SIZE:
        raise UnsupportedByTemplate(
            f"{name}: tensor cores take heads of multiples of 16 up to {MAX_SIZE}, but they are of {spec.head_dim}"
        )
    element, stored = element_of(spec.q), element_of(spec.k)
    if element == "f32" or stored != element:
        raise UnsupportedByTemplate(f"{name}: tensor cores take f16 or bf16 throughout, but got {element} and {stored}")
    if config is None:
        config = mma_config(spec, chip)
        config = replace(config, keys=choices.take("key_tile", KEY_TILES) or config.keys)
    symbol = f"{symbol_of(name)}_mma"
    device = DeviceEmitter(chip)
    kernel = PrefillMma(device, spec, config)
    parameters = kernel.parameters("q", "k", "v", "mask", "pos", "out")
    with device.kernel(symbol, parameters, config.warps * WARP, min_blocks=1, chained=True) as values:
        kernel.bind(values)
        kernel.emit()

    def host(em: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        tiles = em.iceildiv(em.dim(operands[0], spec.sequence_axis), config.queries)
        em.launch(
            symbol,
            [tiles, spec.num_heads, Problem.batch(em, spec, operands[0])],
            config.warps * WARP,
            [*operands, results[0], *Problem.size_arguments(em, spec, operands)],
            shared=config.shared_bytes(spec.head_dim),
        )

    return write_device_kernel(name, "attention_mma", spec.operands, [("out", spec.result)], device, host)
