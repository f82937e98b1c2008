# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The CPU template for `mir.attention`: f32, grouped queries, every mask kind, plain and cached form.

For query i of head h, at absolute position p = offset + i, where offset is `pos[b]` in the cached form and Sk - Sq
otherwise, and for the keys j that exist (j < Sk, and in the cached form j < pos[b] + Sq):

    s_j = scale * <q_i, k_j> + bias_ij;    s_j = softcap * tanh(s_j / softcap);    o_i = sum_j softmax(s)_j v_j

over the visible keys alone: all (none, bias), j <= p (causal), p - window < j <= p (sliding_window), mask_j >= 0.5
(custom). A query that sees no key gives zeros. Keys that don't exist are never read, and invisible keys don't
contribute even where their memory holds NaN. An additive bias is arithmetic, not a mask: a bias of -inf gives weight 0
(and zeros where all are -inf), but 0 * NaN stays NaN.

Two schedules, both f32 throughout and with results that depend neither on how units are cut nor on other rows:

- *block*: one unit is `queries` rows of one head, and **lanes are queries**: queries are transposed once, then keys and
  values are read in their own layout as scalars that broadcast, so any head size works without tails, and the running
  maximum and sum of the online softmax are lane-wise. Key tiles start at multiples of the tile size, so a row's bits
  don't depend on how a prompt was cut into chunks.
- *row* (Sq = 1): one unit is one or more query heads of one KV head; lanes run over the head size in both products;
  scores stand in scratch. Where a unit has several heads, they share each block of keys while it is in the L1 cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import UnsupportedByTemplate
from .emit import Emitter, Index, Value, element_of, shape_of, vec
from .kernel import Scratch, write_kernel
from .target import Target

__all__ = ["AttentionSpec", "emit_attention"]

LAYOUTS = ("packed", "bshd", "bhsd")
MASK_KINDS = ("none", "causal", "sliding_window", "custom", "bias")
NEGATIVE_INFINITY = float("-inf")

VALUE_CHUNK = 64
"""Row schedule: values that all heads of a unit read before the next ones (16 KB at head size 64)."""


@dataclass(frozen=True)
class AttentionSpec:
    """One `mir.attention` after outlining: memref types as text, attributes under their names on the op.

    q and result are [B, Sq, H*D] or [Sq, H*D] (packed), [B, Sq, H, D] (bshd) or [B, H, Sq, D] (bhsd); k and v the same
    with Sk and num_kv_heads. mask is [B or 1, Sk] (custom) or [B or 1, H or 1, Sq or 1, Sk] (bias), pos is [B] i32.
    B, Sq and Sk may be `?`.

    `threads` is how many threads the row schedule balances its units for, `heads_per_unit` (a divisor of
    H / num_kv_heads) overrides its choice; neither changes a bit of the result.
    """

    q: str
    k: str
    v: str
    result: str
    num_heads: int
    head_dim: int
    num_kv_heads: int | None = None
    mask: str | None = None
    pos: str | None = None
    mask_kind: str = "none"
    window: int | None = None
    scale: float | None = None
    softcap: float | None = None
    layout: str = "packed"
    threads: int = 2
    heads_per_unit: int | None = None

    @property
    def kv_heads(self) -> int:
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.num_heads // self.kv_heads

    @property
    def sequence_axis(self) -> int:
        """The axis of Sq and Sk."""
        return len(shape_of(self.q)) - 2 if self.layout != "bshd" else 1

    @property
    def operands(self) -> list[tuple[str, str]]:
        """Names and types of the kernel's operands, in order."""
        named = [("q", self.q), ("k", self.k), ("v", self.v), ("mask", self.mask), ("pos", self.pos)]
        return [(name, type) for name, type in named if type is not None]


def emit_attention(name: str, spec: AttentionSpec, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text.

    Raises UnsupportedByTemplate where an element type, rank, size or attribute is outside what the template covers.
    """
    _check(spec)
    kind: type[_Rows] | type[_Blocks] = _Rows if shape_of(spec.q)[spec.sequence_axis] == 1 else _Blocks
    names = [operand for operand, _ in spec.operands]

    def units(em: Emitter, operands: list[Value]) -> Index:
        return kind(em, spec, target).units(operands[0])

    def scratch(em: Emitter, operands: list[Value], parts: Scratch) -> None:
        kind(em, spec, target).take_scratch(operands[1], parts)

    def body(
        em: Emitter, operands: list[Value], results: list[Value], begin: Value, end: Value, parts: Scratch
    ) -> None:
        schedule = kind(em, spec, target)
        schedule.bind(dict(zip(names, operands, strict=True)), results[0])
        schedule.take_scratch(operands[1], parts)
        schedule.body(begin, end)

    return write_kernel(name, spec.operands, [("out", spec.result)], units=units, scratch=scratch, body=body)


def _check(spec: AttentionSpec) -> None:
    def need(condition: bool, rule: str, got: object) -> None:
        if not condition:
            raise UnsupportedByTemplate(f"attention: expects {rule}, but got {got}")

    need(spec.layout in LAYOUTS, f"layout in {LAYOUTS}", spec.layout)
    need(spec.mask_kind in MASK_KINDS, f"mask_kind in {MASK_KINDS}", spec.mask_kind)
    for type in (spec.q, spec.k, spec.v, spec.result):
        need(element_of(type) == "f32" and "," not in type, "identity-layout buffers of f32", type)
    heads, kv_heads, size = spec.num_heads, spec.kv_heads, spec.head_dim
    need(heads >= 1 and kv_heads >= 1 and size >= 1, "at least one head of size 1", (heads, kv_heads, size))
    need(heads % kv_heads == 0, "num_heads to be a multiple of num_kv_heads", (heads, kv_heads))
    ranks = (2, 3) if spec.layout == "packed" else (4,)
    for type, count in ((spec.q, heads), (spec.result, heads), (spec.k, kv_heads), (spec.v, kv_heads)):
        shape = shape_of(type)
        need(len(shape) in ranks and len(shape) == len(shape_of(spec.q)), f"rank {ranks} throughout", type)
        tail = {"packed": shape[-1:], "bshd": shape[-2:], "bhsd": (shape[-3], shape[-1]) if len(shape) > 2 else ()}
        need(
            tail[spec.layout] == ((count * size,) if spec.layout == "packed" else (count, size)),
            f"{count} heads of size {size} in the static dimensions",
            type,
        )
    need((spec.mask is None) == (spec.mask_kind not in ("custom", "bias")), "a mask for custom and bias", spec.mask)
    if spec.mask is not None:
        rank = 2 if spec.mask_kind == "custom" else 4
        need(len(shape_of(spec.mask)) == rank and element_of(spec.mask) == "f32", f"a mask of rank {rank}", spec.mask)
    if spec.pos is not None:
        need(len(shape_of(spec.pos)) == 1 and element_of(spec.pos) == "i32", "pos [B] of i32", spec.pos)
    window = spec.window if spec.mask_kind == "sliding_window" else 1
    need(window is not None and window >= 1, "a window of at least 1 key", spec.window)
    need(spec.threads >= 1, "at least one thread", spec.threads)
    need(spec.softcap is None or spec.softcap > 0, "a positive softcap", spec.softcap)
    shared = spec.heads_per_unit
    need(shared is None or (shared >= 1 and spec.group % shared == 0), "heads_per_unit to divide H / Hkv", shared)


@dataclass(frozen=True)
class _Heads:
    """q, k, v or the result as one flat buffer: element (b, h, s, d) stands at base(b, h) + s * stride + d."""

    flat: Value
    heads: int
    size: int
    length: Index
    stride: int

    def base(self, em: Emitter, b: Index, h: Index) -> Index:
        if self.stride == self.size and self.heads > 1:  # bhsd
            return em.imul(em.iadd(em.imul(b, self.heads), h), em.imul(self.length, self.size))
        return em.iadd(em.imul(b, em.imul(self.length, self.stride)), em.imul(h, self.size))


@dataclass(frozen=True)
class _Range:
    """Positions and keys of some queries of one batch element: keys lo .. hi - 1 are all that any of them sees."""

    offset: Index
    lo: Index
    hi: Index


class _Schedule:
    """What both schedules share: the views of the buffers, key ranges, exp and max with the NaN rules above."""

    def __init__(self, em: Emitter, spec: AttentionSpec, target: Target) -> None:
        self.em, self.spec, self.target = em, spec, target
        self.lanes = target.lanes("f32")
        self.type = target.vector("f32")
        self.size = spec.head_dim
        self.scale = spec.head_dim**-0.5 if spec.scale is None else spec.scale

    def batch(self, q: Value) -> Index:
        return 1 if len(shape_of(q.type)) == 2 else self.em.dim(q, 0)

    def bind(self, buffers: dict[str, Value], out: Value) -> None:
        """Makes the flat views; to be called once, at the head of the body."""
        em, spec = self.em, self.spec

        def heads(buffer: Value, count: int) -> _Heads:
            stride = self.size if spec.layout == "bhsd" else count * self.size
            return _Heads(self.flat(buffer), count, self.size, em.dim(buffer, spec.sequence_axis), stride)

        self.q, self.out = heads(buffers["q"], spec.num_heads), heads(out, spec.num_heads)
        self.k, self.v = heads(buffers["k"], spec.kv_heads), heads(buffers["v"], spec.kv_heads)
        self.pos = buffers.get("pos")
        self.mask: Value | None = None
        if spec.mask is not None:
            mask = buffers["mask"]
            self.mask = self.flat(mask)
            self.mask_dims = [em.dim(mask, axis) for axis in range(len(shape_of(mask.type)))]

    def flat(self, buffer: Value) -> Value:
        return self.em.collapse(buffer, [list(range(len(shape_of(buffer.type))))])

    def mask_row(self, *position: Index) -> Index:
        """Where the mask's row of the given leading indices starts; a dimension of size 1 broadcasts."""
        em, offset = self.em, 0
        flat: Index = offset
        for index, size in zip(position, self.mask_dims, strict=False):
            flat = em.iadd(em.imul(flat, size), 0 if size == 1 else index)
        return em.imul(flat, self.mask_dims[-1])

    def keys(self, b: Index, first: Index, count: Index) -> _Range:
        """The keys that exist and that at least one of the queries `first` .. `first + count - 1` may see."""
        em, kind = self.em, self.spec.mask_kind
        hi = self.k.length
        if self.pos is None:
            offset = em.isub(self.k.length, self.q.length)
        else:
            offset = em.cast("arith.index_cast", em.load(self.pos, [b]), "index")
            hi = em.imin(hi, em.imax(em.iadd(offset, self.q.length), 0))
        lo: Index = 0
        if kind in ("causal", "sliding_window"):
            hi = em.imin(hi, em.imax(em.iadd(offset, em.iadd(first, count)), 0))
        if kind == "sliding_window":
            assert self.spec.window is not None
            lo = em.imax(em.isub(em.iadd(offset, em.iadd(first, 1)), self.spec.window), 0)
        return _Range(offset, lo, hi)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.target.fma(self.em, a, b, c)

    def larger(self, new: Value, running: Value) -> Value:
        """max without NaN handling (one instruction): a NaN score is dropped here and comes back through its exp."""
        return self.em.select(self.em.cmpf("ogt", new, running), new, running)

    def finite_maximum(self, maximum: Value) -> Value:
        """0 where no key was visible so far: exp(-inf - 0) is 0, while exp(-inf - -inf) would be NaN."""
        return self.em.select(self.em.cmpf("oeq", maximum, NEGATIVE_INFINITY), 0.0, maximum)

    def exp(self, x: Value, maximum: Value) -> Value:
        return self.em.unary("math.exp", self.em.subf(x, maximum))

    def capped(self, score: Value) -> Value:
        cap, em = self.spec.softcap, self.em
        return score if cap is None else em.mulf(em.unary("math.tanh", em.mulf(score, 1.0 / cap)), cap)

    def normalised(self, total: Value, sum_: Value, inverse: Value) -> Value:
        """total / sum, and zero where no key was visible."""
        em = self.em
        empty = em.cmpf("oeq", sum_, 0.0)
        return em.select(empty, em.zero(total.type), em.mulf(total, inverse))


class _Blocks(_Schedule):
    """Lanes are queries; see the module's docstring."""

    GROUPS = 2
    """Lane groups per block: 2 * lanes queries."""

    def __init__(self, em: Emitter, spec: AttentionSpec, target: Target) -> None:
        super().__init__(em, spec, target)
        self.queries = self.GROUPS * self.lanes
        # Accumulators of either product are `step` x GROUPS vectors: 16 of 32 registers, or 12 of 16.
        self.step = 8 if target.registers == 32 else 6
        # A tile of values is to stay in the L1 cache while its columns are read in turns.
        self.tile = self.step * (8 if self.size <= 128 else 4)
        divisors = [width for width in range(self.step, 3, -1) if self.size % width == 0]
        self.columns = min(self.size, divisors[0] if divisors else self.step)

    def units(self, q: Value) -> Index:
        em, spec = self.em, self.spec
        blocks = em.iceildiv(em.dim(q, spec.sequence_axis), self.queries)
        return em.imul(em.imul(self.batch(q), spec.num_heads), blocks)

    def take_scratch(self, k: Value, parts: Scratch) -> None:
        """Panels of rows of `queries` lanes: transposed queries, sums of the result, scores of one tile of keys."""
        self.query = parts.take([self.size * self.queries], "f32")
        self.total = parts.take([self.size * self.queries], "f32")
        self.scores = parts.take([self.tile * self.queries], "f32")

    def body(self, begin: Value, end: Value) -> None:
        em, spec, queries = self.em, self.spec, self.queries
        self.iota = em.const(list(range(self.lanes)), vec(self.lanes, "i32"))
        blocks = em.iceildiv(self.q.length, queries)
        with em.loop(begin, end, hint="unit") as unit:
            head = em.idiv(unit.iv, blocks)
            b, h = em.idiv(head, spec.num_heads), em.irem(head, spec.num_heads)
            first = em.imul(em.irem(unit.iv, blocks), queries)
            self.unit(b, h, first)

    def unit(self, b: Index, h: Index, first: Index) -> None:
        em = self.em
        count = em.imin(em.isub(self.q.length, first), self.queries)
        kv_head = em.idiv(h, self.spec.group)
        keys = self.keys(b, first, count)
        self.load_queries(self.q.base(em, b, h), first, count)
        self.positions = self.query_positions(keys.offset, first)
        minus_infinity, zero = em.const(NEGATIVE_INFINITY, self.type), em.zero(self.type)
        # Tiles start at multiples of their size, whatever the first visible key: see the module's docstring.
        start = em.imul(em.idiv(keys.lo, self.tile), self.tile)
        inits = [minus_infinity] * self.GROUPS + [zero] * self.GROUPS
        with em.loop(start, keys.hi, self.tile, inits, hint="tile") as tile:
            maxima, sums = tile.args[: self.GROUPS], tile.args[self.GROUPS :]
            low, high = tile.iv, em.imin(em.iadd(tile.iv, self.tile), keys.hi)
            tile_maxima = self.score_tile(b, h, first, count, low, high, self.k.base(em, b, kv_head))
            maxima_now = [self.larger(new, old) for new, old in zip(tile_maxima, maxima, strict=True)]
            shifts = [self.finite_maximum(maximum) for maximum in maxima_now]
            decays = [self.exp(old, shift) for old, shift in zip(maxima, shifts, strict=True)]
            tile_sums = self.exp_tile(em.isub(high, low), shifts)
            sums_now = [self.fma(old, decay, new) for old, decay, new in zip(sums, decays, tile_sums, strict=True)]
            values = self.v.base(em, b, kv_head)
            edge = self.has_invisible(keys.offset, first, count, low, high)
            if isinstance(edge, bool):
                self.value_tile(b, low, high, values, decays, masked=edge)
            else:
                with em.if_(edge) as branch:
                    self.value_tile(b, low, high, values, decays, masked=True)
                    branch.else_()
                    self.value_tile(b, low, high, values, decays, masked=False)
            tile.yield_([*maxima_now, *sums_now])
        self.store_result(self.out.base(em, b, h), first, count, tile.results[self.GROUPS :])

    def group_index(self, row: Index, group: int) -> Index:
        """Where lane group `group` of row `row` of a panel (rows of `queries` lanes) starts."""
        return self.em.iadd(self.em.imul(row, self.queries), group * self.lanes)

    def load_queries(self, base: Index, first: Index, count: Index) -> None:
        """Transposes the block's queries; missing ones repeat the last, so that no lane needs a guard."""
        em = self.em
        with em.loop(0, self.queries) as lane:
            row = em.iadd(first, em.imin(lane.iv, em.isub(count, 1)))
            source = em.iadd(base, em.imul(row, self.q.stride))
            with em.loop(0, self.size) as d:
                value = em.load(self.q.flat, [em.iadd(source, d.iv)])
                em.store(value, self.query, [em.iadd(em.imul(d.iv, self.queries), lane.iv)])
        with em.loop(0, self.size * self.queries, self.lanes) as at:
            em.vstore(em.zero(self.type), self.total, [at.iv])

    def store_result(self, base: Index, first: Index, count: Index, sums: Sequence[Value]) -> None:
        em = self.em
        inverses = [em.divf(1.0, sum_) for sum_ in sums]
        with em.loop(0, self.size) as d:
            for group in range(self.GROUPS):
                at = [self.group_index(d.iv, group)]
                em.vstore(
                    self.normalised(em.vload(self.total, at, self.type), sums[group], inverses[group]), self.total, at
                )
        with em.loop(0, count) as lane:
            row = em.iadd(base, em.imul(em.iadd(first, lane.iv), self.out.stride))
            with em.loop(0, self.size) as d:
                value = em.load(self.total, [em.iadd(em.imul(d.iv, self.queries), lane.iv)])
                em.store(value, self.out.flat, [em.iadd(row, d.iv)])

    def query_positions(self, offset: Index, first: Index) -> list[Value]:
        """Absolute positions of the block's queries, i32 lanes."""
        if self.spec.mask_kind not in ("causal", "sliding_window"):
            return []
        start = self.i32_lanes(self.em.iadd(offset, first))
        return [self.em.addi(self.em.addi(start, self.iota), group * self.lanes) for group in range(self.GROUPS)]

    def i32_lanes(self, index: Index) -> Value:
        em = self.em
        return em.broadcast(em.cast("arith.index_cast", em.index(index), "i32"), vec(self.lanes, "i32"))

    def visible(self, b: Index, key: Value) -> list[Value]:
        """Per lane group, which queries see `key`; empty where all do."""
        em, spec = self.em, self.spec
        if spec.mask_kind == "custom":
            assert self.mask is not None
            kept = em.load(self.mask, [em.iadd(self.mask_row(b), key)])
            return [em.cmpf("oge", kept, 0.5)] * self.GROUPS
        if spec.mask_kind not in ("causal", "sliding_window"):
            return []
        lanes = self.i32_lanes(key)
        seen = [em.cmpi("sle", lanes, position) for position in self.positions]
        if spec.mask_kind == "sliding_window":
            assert spec.window is not None
            window = min(spec.window, 1 << 30)  # no i32 overflow; longer than any context
            recent = [em.cmpi("sgt", lanes, em.subi(position, window)) for position in self.positions]
            seen = [em.andi(left, right) for left, right in zip(seen, recent, strict=True)]
        return seen

    def has_invisible(self, offset: Index, first: Index, count: Index, low: Index, high: Index) -> Value | bool:
        """Whether some query of the block doesn't see some key of the tile low .. high - 1."""
        em, spec = self.em, self.spec
        if spec.mask_kind == "custom":
            return True
        if spec.mask_kind not in ("causal", "sliding_window"):
            return False
        start = em.iadd(offset, first)
        edge = em.cmpi("sgt", em.index(high), em.index(em.iadd(start, 1)))
        if spec.mask_kind == "sliding_window":
            assert spec.window is not None
            oldest = em.isub(em.iadd(start, count), spec.window)
            edge = em.ori(edge, em.cmpi("slt", em.index(low), em.index(oldest)))
        return edge

    def score_tile(
        self, b: Index, h: Index, first: Index, count: Index, low: Index, high: Index, base: Index
    ) -> list[Value]:
        """Scores of all queries against keys low .. high - 1 into `scores`; returns the maxima per lane."""
        em = self.em
        last = em.isub(high, 1)
        with em.loop(low, high, self.step, [em.const(NEGATIVE_INFINITY, self.type)] * self.GROUPS, hint="key") as block:
            # Past the end, the last key is repeated: that changes no maximum, and nobody reads those scores.
            keys = [em.index(em.imin(em.iadd(block.iv, u), last)) for u in range(self.step)]
            rows = [em.iadd(base, em.imul(key, self.k.stride)) for key in keys]
            zeros = [em.zero(self.type)] * (self.step * self.GROUPS)
            with em.loop(0, self.size, 1, zeros, hint="d") as d:
                lanes = [
                    em.vload(self.query, [self.group_index(d.iv, group)], self.type) for group in range(self.GROUPS)
                ]
                products = []
                for u in range(self.step):
                    key = em.broadcast(em.load(self.k.flat, [em.iadd(rows[u], d.iv)]), self.type)
                    for group in range(self.GROUPS):
                        products.append(self.fma(key, lanes[group], d.args[u * self.GROUPS + group]))
                d.yield_(products)
            maxima = list(block.args)
            for u in range(self.step):
                seen = self.visible(b, keys[u])
                for group in range(self.GROUPS):
                    score = em.mulf(d.results[u * self.GROUPS + group], self.scale)
                    if self.spec.mask_kind == "bias":
                        score = em.addf(score, self.bias(b, h, first, count, group, keys[u]))
                    score = self.capped(score)
                    if seen:
                        score = em.select(seen[group], score, NEGATIVE_INFINITY)
                    row = em.iadd(em.isub(block.iv, low), u)
                    em.vstore(score, self.scores, [self.group_index(row, group)])
                    maxima[group] = self.larger(score, maxima[group])
            block.yield_(maxima)
        return block.results

    def bias(self, b: Index, h: Index, first: Index, count: Index, group: int, key: Value) -> Value:
        """The bias of `key` for one lane group: a column of the mask, so a gather."""
        em = self.em
        assert self.mask is not None
        start = em.iadd(first, group * self.lanes)
        row = self.mask_row(b, h, start)
        steps = em.muli(self.i32_lanes(0 if self.mask_dims[2] == 1 else self.mask_dims[-1]), self.iota)
        # Fewer than zero lanes left counts as none.
        mask = em.mask(em.imax(em.isub(count, group * self.lanes), 0), self.lanes)
        at = f"{self.mask}[{em.index(em.iadd(row, key))}] [{steps}], {mask}, {em.zero(self.type)}"
        types = f"{self.mask.type}, {steps.type}, {mask.type}, {self.type} into {self.type}"
        return em.op(f"vector.gather {at} : {types}", self.type)

    def exp_tile(self, rows: Index, shifts: Sequence[Value]) -> list[Value]:
        """scores = exp(scores - shift) in place; returns the sums per lane."""
        em = self.em
        with em.loop(0, rows, 1, [em.zero(self.type)] * self.GROUPS, hint="row") as row:
            sums = []
            for group in range(self.GROUPS):
                at = [self.group_index(row.iv, group)]
                weight = self.exp(em.vload(self.scores, at, self.type), shifts[group])
                em.vstore(weight, self.scores, at)
                sums.append(em.addf(row.args[group], weight))
            row.yield_(sums)
        return row.results

    def value_tile(
        self, b: Index, low: Index, high: Index, base: Index, decays: Sequence[Value], *, masked: bool
    ) -> None:
        """total = total * decay + sum over the tile's keys of weight * value."""
        em, width = self.em, self.columns
        whole = self.size // width
        if whole > 1:
            with em.loop(0, whole * width, width, hint="d") as d:
                self.value_columns(b, low, high, base, decays, d.iv, width, masked)
        else:
            self.value_columns(b, low, high, base, decays, 0, width, masked)
        if self.size % width:
            self.value_columns(b, low, high, base, decays, whole * width, self.size % width, masked)

    def value_columns(
        self,
        b: Index,
        low: Index,
        high: Index,
        base: Index,
        decays: Sequence[Value],
        d: Index,
        width: int,
        masked: bool,
    ) -> None:
        em = self.em
        places = [[self.group_index(em.iadd(d, u), group)] for u in range(width) for group in range(self.GROUPS)]
        inits = [
            em.mulf(em.vload(self.total, place, self.type), decays[i % self.GROUPS]) for i, place in enumerate(places)
        ]
        with em.loop(low, high, 1, inits, hint="key") as key:
            seen = self.visible(b, key.iv) if masked else []
            row = em.isub(key.iv, low)
            weights = [em.vload(self.scores, [self.group_index(row, group)], self.type) for group in range(self.GROUPS)]
            source = em.iadd(em.iadd(base, em.imul(key.iv, self.v.stride)), d)
            sums = []
            for u in range(width):
                value = em.broadcast(em.load(self.v.flat, [em.iadd(source, u)]), self.type)
                for group in range(self.GROUPS):
                    old = key.args[u * self.GROUPS + group]
                    new = self.fma(value, weights[group], old)
                    # 0 * NaN is NaN: an invisible key's value must not be added at all.
                    sums.append(em.select(seen[group], new, old) if seen else new)
            key.yield_(sums)
        for place, total in zip(places, key.results, strict=True):
            em.vstore(total, self.total, place)


class _Rows(_Schedule):
    """One query per head, lanes over the head size; see the module's docstring."""

    def __init__(self, em: Emitter, spec: AttentionSpec, target: Target) -> None:
        super().__init__(em, spec, target)
        divisors = [n for n in range(1, spec.group + 1) if spec.group % n == 0]
        self.shared = spec.heads_per_unit or min(divisors, key=self.time)
        self.whole, self.rest = divmod(self.size, self.lanes)

    def time(self, shared: int) -> int:
        """Estimated time of the busiest thread with `shared` heads a unit: reading keys and values costs about as much
        as the arithmetic of one head, and heads that share a unit read them once."""
        batch = shape_of(self.spec.q)[0] if len(shape_of(self.spec.q)) > 2 else 1
        units = (batch or 1) * self.spec.num_heads // shared
        return -(-units // self.spec.threads) * (shared + 1)

    def units(self, q: Value) -> Index:
        return self.em.imul(self.batch(q), self.spec.num_heads // self.shared)

    def take_scratch(self, k: Value, parts: Scratch) -> None:
        """A row of scores (whole vectors) and the sum of its weights, for each head."""
        em = self.em
        self.row = em.imul(em.iceildiv(em.dim(k, self.spec.sequence_axis), self.lanes), self.lanes)
        self.scores = parts.take([em.imul(self.row, self.shared)], "f32")
        self.sums = parts.take([self.shared], "f32")

    def body(self, begin: Value, end: Value) -> None:
        em, spec = self.em, self.spec
        per_batch = spec.num_heads // self.shared
        with em.loop(begin, end, hint="unit") as unit:
            b = em.idiv(unit.iv, per_batch)
            first = em.imul(em.irem(unit.iv, per_batch), self.shared)
            kv_head = em.idiv(first, spec.group)
            keys = self.keys(b, 0, 1)
            self.score(b, first, keys, self.k.base(em, b, kv_head))
            self.weigh(em.isub(keys.hi, keys.lo))
            self.accumulate(b, first, keys, self.v.base(em, b, kv_head))

    def columns(self) -> list[tuple[int, int]]:
        """(start, lanes in use) of the vectors that cover one head."""
        full = [(at * self.lanes, self.lanes) for at in range(self.whole)]
        return [*full, (self.whole * self.lanes, self.rest)] if self.rest else full

    def tail_mask(self) -> Value:
        return self.em.const([lane < self.rest for lane in range(self.lanes)], vec(self.lanes, "i1"))

    def load(self, buffer: Value, at: Index, used: int) -> Value:
        """A vector of a head's elements, zeros beyond `used`."""
        em = self.em
        if used == self.lanes:
            return em.vload(buffer, [at], self.type)
        return em.masked_load(buffer, [at], self.tail_mask(), em.zero(self.type))

    def store(self, value: Value, buffer: Value, at: Index, used: int) -> None:
        if used == self.lanes:
            self.em.vstore(value, buffer, [at])
        else:
            self.em.masked_store(value, buffer, [at], self.tail_mask())

    def score(self, b: Index, first: Index, keys: _Range, base: Index) -> None:
        """Scores of all keys for each head of the unit; those that pad the last vector are -inf."""
        em = self.em
        last = em.isub(keys.hi, 1)
        with em.loop(keys.lo, keys.hi, self.lanes, hint="key") as block:
            left = em.isub(keys.hi, block.iv)
            full = em.cmpi("sge", em.index(left), self.lanes)
            valid = em.mask(left, self.lanes)
            with em.loop(0, self.shared, hint="head") as head:
                h = em.iadd(first, head.iv)
                query = self.q.base(em, b, h)
                with em.if_(full, [self.type]) as branch:
                    start = em.iadd(base, em.imul(block.iv, self.k.stride))
                    rows = [em.iadd(start, u * self.k.stride) for u in range(self.lanes)]
                    branch.yield_([self.products(query, rows)])
                    branch.else_()
                    near = [em.imin(em.iadd(block.iv, u), last) for u in range(self.lanes)]
                    rows = [em.iadd(base, em.imul(key, self.k.stride)) for key in near]
                    branch.yield_([self.products(query, rows)])
                score = em.mulf(branch.results[0], self.scale)
                if self.spec.mask_kind == "bias":
                    assert self.mask is not None
                    at = em.iadd(self.mask_row(b, h, 0), block.iv)
                    score = em.addf(score, em.masked_load(self.mask, [at], valid, em.zero(self.type)))
                score = self.capped(score)
                seen = valid
                if self.spec.mask_kind == "custom":
                    assert self.mask is not None
                    kept = em.masked_load(self.mask, [em.iadd(self.mask_row(b), block.iv)], valid, em.zero(self.type))
                    seen = em.cmpf("oge", kept, 0.5)
                score = em.select(seen, score, NEGATIVE_INFINITY)
                em.vstore(score, self.scores, [em.iadd(em.imul(head.iv, self.row), em.isub(block.iv, keys.lo))])

    def products(self, query: Index, rows: Sequence[Index]) -> Value:
        """<q, k> for `lanes` keys, one per lane."""
        em = self.em

        def step(at: Index, used: int, sums: Sequence[Value]) -> list[Value]:
            q = self.load(self.q.flat, em.iadd(query, at), used)
            return [
                self.fma(self.load(self.k.flat, em.iadd(row, at), used), q, sum_)
                for row, sum_ in zip(rows, sums, strict=True)
            ]

        sums = [em.zero(self.type)] * self.lanes
        if self.whole > 1:
            with em.loop(0, self.whole * self.lanes, self.lanes, sums, hint="d") as d:
                d.yield_(step(d.iv, self.lanes, d.args))
            sums = d.results
        elif self.whole == 1:
            sums = step(0, self.lanes, sums)
        if self.rest:
            sums = step(self.whole * self.lanes, self.rest, sums)
        return _sum_each(em, sums)

    def weigh(self, count: Index) -> None:
        """scores = exp(scores - max) in place, their sum into `sums`, for each head."""
        em = self.em
        with em.loop(0, self.shared, hint="head") as head:
            start = em.imul(head.iv, self.row)
            with em.loop(0, count, self.lanes, [em.const(NEGATIVE_INFINITY, self.type)], hint="key") as key:
                score = em.vload(self.scores, [em.iadd(start, key.iv)], self.type)
                key.yield_([self.larger(score, key.args[0])])
            shift = em.broadcast(self.finite_maximum(em.reduce("maximumf", key.results[0])), self.type)
            with em.loop(0, count, self.lanes, [em.zero(self.type)], hint="key") as key:
                at = [em.iadd(start, key.iv)]
                weight = self.exp(em.vload(self.scores, at, self.type), shift)
                em.vstore(weight, self.scores, at)
                key.yield_([em.addf(key.args[0], weight)])
            em.store(em.reduce("add", key.results[0], "reassoc"), self.sums, [head.iv])

    def accumulate(self, b: Index, first: Index, keys: _Range, base: Index) -> None:
        """out = sum of weight * value / sum; the result itself holds the partial sums between chunks of keys."""
        em, columns = self.em, self.columns()
        with em.loop(0, self.shared, hint="head") as head:
            out = self.out.base(em, b, em.iadd(first, head.iv))
            for at, used in columns:
                self.store(em.zero(self.type), self.out.flat, em.iadd(out, at), used)
        with em.loop(keys.lo, keys.hi, VALUE_CHUNK, hint="chunk") as chunk:
            stop = em.imin(em.iadd(chunk.iv, VALUE_CHUNK), keys.hi)
            with em.loop(0, self.shared, hint="head") as head:
                out = self.out.base(em, b, em.iadd(first, head.iv))
                weights = em.isub(em.imul(head.iv, self.row), keys.lo)
                width = max((n for n in range(1, 9) if self.whole % n == 0), default=1)
                if self.whole > width:
                    with em.loop(0, self.whole * self.lanes, width * self.lanes, hint="d") as d:
                        self.value_columns(b, out, weights, base, chunk.iv, stop, d.iv, columns[:width])
                elif self.whole:
                    self.value_columns(b, out, weights, base, chunk.iv, stop, 0, columns[: self.whole])
                if self.rest:
                    self.value_columns(b, out, weights, base, chunk.iv, stop, 0, columns[self.whole :])
        with em.loop(0, self.shared, hint="head") as head:
            out = self.out.base(em, b, em.iadd(first, head.iv))
            sum_ = em.load(self.sums, [head.iv])
            inverse = em.broadcast(em.divf(1.0, sum_), self.type)
            for at, used in columns:
                total = self.load(self.out.flat, em.iadd(out, at), used)
                self.store(self.normalised(total, sum_, inverse), self.out.flat, em.iadd(out, at), used)

    def value_columns(
        self,
        b: Index,
        out: Index,
        weights: Index,
        base: Index,
        low: Index,
        high: Index,
        d: Index,
        columns: Sequence[tuple[int, int]],
    ) -> None:
        """Adds keys low .. high - 1 to some columns of one head, a few keys at a time to hide the FMA's latency."""
        em = self.em
        unroll = max(1, 8 // len(columns))

        def add(key: Index, sums: Sequence[Value]) -> list[Value]:
            weight = em.broadcast(em.load(self.scores, [em.iadd(weights, key)]), self.type)
            row = em.iadd(em.iadd(base, em.imul(key, self.v.stride)), d)
            values = [self.load(self.v.flat, em.iadd(row, at), used) for at, used in columns]
            if self.spec.mask_kind == "custom":  # 0 * NaN is NaN: an invisible key's value must not be added
                assert self.mask is not None
                kept = em.cmpf("oge", em.load(self.mask, [em.iadd(self.mask_row(b), key)]), 0.5)
                values = [em.select(kept, value, 0.0) for value in values]
            return [self.fma(weight, value, sum_) for value, sum_ in zip(values, sums, strict=True)]

        places = [em.iadd(em.iadd(out, d), at) for at, _ in columns]
        sums = [self.load(self.out.flat, place, used) for place, (_, used) in zip(places, columns, strict=True)]
        sums += [em.zero(self.type)] * ((unroll - 1) * len(columns))
        whole = em.iadd(low, em.imul(em.idiv(em.isub(high, low), unroll), unroll))
        with em.loop(low, whole, unroll, sums, hint="key") as key:
            parts = [key.args[u * len(columns) : (u + 1) * len(columns)] for u in range(unroll)]
            key.yield_([sum_ for u, part in enumerate(parts) for sum_ in add(em.iadd(key.iv, u), part)])
        parts = [key.results[u * len(columns) : (u + 1) * len(columns)] for u in range(unroll)]
        while len(parts) > 1:
            half = (len(parts) + 1) // 2
            pairs = zip(parts, parts[half:], strict=False)
            left_over = parts[len(parts) - half : half]
            parts = [[em.addf(x, y) for x, y in zip(*pair, strict=True)] for pair in pairs] + left_over
        with em.loop(whole, high, 1, parts[0], hint="key") as key:
            key.yield_(add(key.iv, key.args))
        for place, (_, used), total in zip(places, columns, key.results, strict=True):
            self.store(total, self.out.flat, place, used)


def _sum_each(em: Emitter, vectors: Sequence[Value]) -> Value:
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
