# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the schedules of attention for GPUs share: parameters, views of heads, which keys a query sees, scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.attention import LOG2_E, NEGATIVE_INFINITY, AttentionKernel, KeyRange
from rlx_mlir.codegen.gpu.emit import (
    BITS,
    DeviceEmitter,
    Index,
    Parameter,
    Value,
    element_of,
    pointer,
    shape_of,
    vec,
)
from rlx_mlir.codegen.gpu.kernel import HostEmitter
from rlx_mlir.codegen.specs.attention import AttentionSpec

VECTOR_BYTES = 16
"""Bytes of the widest access to memory."""


def rounded_up(x: int, step: int) -> int:
    """The least multiple of `step` that isn't below `x`."""
    return -(-x // step) * step


@dataclass(frozen=True)
class Heads:
    """q, k, v or the result: element (b, h, s, d) stands `stride` elements times s plus d after `head(b, h)`."""

    data: Value
    element: str
    heads: int
    size: int
    length: Index
    by_head: bool

    @property
    def stride(self) -> int:
        """Elements between two rows of a head."""
        return self.size if self.by_head else self.heads * self.size

    @property
    def bytes(self) -> int:
        """Bytes of an element."""
        return BITS[self.element] // 8

    def head(self, em: DeviceEmitter, b: Index, h: Index) -> Value:
        """The address of the first row of a head."""
        if self.by_head:
            heads = em.wide(b) * self.heads + em.wide(h)
            at = heads * (em.wide(self.length) * self.size)
        else:
            rows = em.wide(b) * (em.wide(self.length) * self.stride)
            at = rows + em.wide(h * self.size)
        return em.at(self.data, at, self.element)

    def row(self, em: DeviceEmitter, head: Value, s: Index) -> Value:
        """The address of row s of a head."""
        return em.at(head, em.wide(s) * self.stride, self.element)


class Problem(AttentionKernel):
    """One attention in a kernel: the buffers that its parameters are, and what every schedule computes with them.

    Attributes:
        multiplied: whether queries are multiplied by `query_factor` as they are read, rather than products of them.
        rows: the queries that the scores of a thread are of; mask_rows: their rows of the mask, where there is one.
    """

    em: DeviceEmitter
    q: Heads
    k: Heads
    v: Heads
    out: Heads
    multiplied = False
    rows: Sequence[Index] = ()
    mask_rows: Sequence[Value] = ()

    def __init__(self, em: DeviceEmitter, spec: AttentionSpec) -> None:
        super().__init__(em, spec)
        self.element, self.stored = element_of(spec.q), element_of(spec.k)
        self.pos: Value | None = None
        self.mask: Value | None = None

    # Parameters -----------------------------------------------------------------------------------

    @staticmethod
    def sizes(spec: AttentionSpec) -> list[tuple[str, int]]:
        """Sizes that a kernel takes as i32: their name, and the number of the operand whose sequence they are of."""
        named = [("queries", spec.q), ("keys", spec.k)]
        return [(name, i) for i, (name, type) in enumerate(named) if shape_of(type)[spec.sequence_axis] is None]

    def parameters(self, *buffers: str) -> list[Parameter]:
        """The parameters of a kernel that uses some of the operands (q, k, v, mask, pos, out)."""
        names = [name for name in buffers if name == "out" or getattr(self.spec, name) is not None]
        return [
            *(pointer(name, readonly=name != "out") for name in names),
            *((name, "i32") for name, _ in self.sizes(self.spec)),
        ]

    @staticmethod
    def size_arguments(em: HostEmitter, spec: AttentionSpec, operands: Sequence[Value]) -> list[Value]:
        """The host's values of `sizes`."""
        return [em.i32(em.dim(operands[operand], spec.sequence_axis)) for _, operand in Problem.sizes(spec)]

    @staticmethod
    def batch(em: HostEmitter, spec: AttentionSpec, q: Value) -> Index:
        """How many batch items the host has."""
        return 1 if len(shape_of(spec.q)) == 2 else em.dim(q, 0)

    def bind(self, values: Sequence[Value]) -> None:
        """Takes the kernel's parameters, by their names."""
        spec, axis = self.spec, self.spec.sequence_axis
        named = {value.removeprefix("%"): value for value in values}

        def length(name: str, operand: str) -> Index:
            static = shape_of(getattr(spec, operand))[axis]
            return named[name] if static is None else static

        self.queries, self.keys = length("queries", "q"), length("keys", "k")
        for name, count, size in (
            ("q", spec.num_heads, self.queries),
            ("k", spec.kv_heads, self.keys),
            ("v", spec.kv_heads, self.keys),
            ("out", spec.num_heads, self.queries),
        ):
            if name in named:
                element = self.element if name in ("q", "out") else self.stored
                heads = Heads(named[name], element, count, spec.head_dim, size, spec.layout == "bhsd")
                setattr(self, name, heads)
        self.pos, self.mask = named.get("pos"), named.get("mask")

    # Keys -----------------------------------------------------------------------------------------

    def range(self, b: Index, first: Index, count: Index) -> KeyRange:
        """The keys that exist and that at least one of the queries `first` .. `first + count - 1` may see."""
        start = None if self.pos is None else self.em.ld(self.pos, "i32", b)
        return self.seen_by_some(self.queries, self.keys, start, first, count)

    def edge(self, key: Value, count: int, first: Index, queries: int, keys: KeyRange) -> Value:
        """Whether one of the queries `first` .. doesn't see one of the keys `key` .. `key + count - 1`."""
        em, kind = self.em, self.spec.mask_kind
        if kind == "custom":
            return em.const(True, "i1")
        end = key + count
        edge = em.cmpi("sgt", end, keys.hi)
        position = keys.offset + first
        if self.spec.by_position:
            edge = edge | em.cmpi("sgt", end, position + 1)
        if kind == "sliding_window":
            assert self.spec.window is not None
            oldest = position + (queries - 1) - self.spec.window
            edge = edge | em.cmpi("sle", key, oldest)
        return edge

    def sees(self, i: Index, key: Index, keys: KeyRange, mask_row: Value | None = None) -> Value:
        """Whether a query sees a key; the mask's row is that of the query."""
        em, kind = self.em, self.spec.mask_kind
        seen = em.cmpi("slt", key, keys.hi)
        position = keys.offset + i
        if self.spec.by_position:
            seen = seen & em.cmpi("sle", key, position)
        if kind == "sliding_window":
            assert self.spec.window is not None
            seen = seen & em.cmpi("sgt", key, position - self.spec.window)
        if kind == "custom":
            assert mask_row is not None
            seen = seen & self.mask_value(mask_row, em.imin(key, keys.hi - 1))
        return seen

    def seen_by(self, r: int, key: Index, keys: KeyRange) -> Value:
        """Whether one of the thread's rows sees a key."""
        return self.sees(self.rows[r], key, keys, self.mask_rows[r] if self.mask is not None else None)

    def hidden(
        self, scores: list[list[Value]], edge: Value, columns: Sequence[Index], keys: KeyRange
    ) -> list[list[Value]]:
        """Scores by row, those of keys that the row doesn't see as -inf; `edge` says whether there are any."""
        em = self.em
        with em.if_(edge, scores) as branch:
            branch.yield_(
                [
                    [
                        em.select(self.seen_by(r, column, keys), x, NEGATIVE_INFINITY)
                        for x, column in zip(own, columns, strict=True)
                    ]
                    for r, own in enumerate(scores)
                ]
            )
            branch.else_()
            branch.yield_(scores)
        return branch.result

    def take_rows(self, b: Index, h: Index, rows: Sequence[Index]) -> None:
        """Sets the queries of the thread, of one head; those beyond the last have its row of the mask."""
        last = self.queries - 1
        self.rows = rows
        self.mask_rows = [self.mask_row(b, h, self.em.imin(row, last)) for row in rows if self.mask is not None]

    def mask_row(self, b: Index, h: Index, i: Index) -> Value:
        """The address of the mask's row of a query; sizes of 1 broadcast."""
        em = self.em
        assert self.mask is not None
        assert self.spec.mask is not None
        shape = shape_of(self.spec.mask)
        own = [(b, None), (h, self.spec.num_heads), (i, self.queries)][: len(shape) - 1]
        at: Index = em.wide(0)
        for (index, size), extent in zip(own, shape, strict=False):
            if size is not None and extent != 1:
                at = at * em.wide(size)
            if extent != 1:
                at = at + em.wide(index)
        return em.at(self.mask, at * em.wide(self.keys), self.mask_element)

    @property
    def mask_element(self) -> str:
        """Type of the mask in memory: conditions are bytes."""
        assert self.spec.mask is not None
        element = element_of(self.spec.mask)
        return "i8" if element == "i1" else element

    def mask_value(self, row: Value, j: Index) -> Value:
        """Key j of a row of the mask: a condition (custom), or f32 (bias)."""
        em = self.em
        value = em.ld(row, self.mask_element, em.wide(j))
        return em.widen(value) if self.spec.mask_kind == "bias" else self.condition(value)

    def bias(self, r: int, key: Index, last: Index) -> Value | None:
        """What is added to the score of a row and a key; keys behind the last one have what that has."""
        return self.mask_value(self.mask_rows[r], self.em.imin(key, last)) if self.spec.mask_kind == "bias" else None

    def condition(self, value: Value) -> Value:
        """Whether an element of the mask shows a key."""
        em = self.em
        return em.cmpi("ne", value, 0) if value.type == "i8" else em.cmpf("oge", em.widen(value), 0.5)

    # Arithmetic -----------------------------------------------------------------------------------

    def exp2(self, x: Value) -> Value:
        """2^x, with a relative error of about 2^-22; 0 for -inf."""
        return self.em.pure("ex2.approx.ftz.f32 $0, $1;", [x])

    def reciprocal(self, x: Value) -> Value:
        """1 / x, with a relative error of about 2^-23."""
        return self.em.pure("rcp.approx.ftz.f32 $0, $1;", [x])

    def larger(self, x: Value, y: Value) -> Value:
        """max without NaN: a NaN score is dropped here and comes back through its exp."""
        return self.em.join("maxnum", x, y)

    @property
    def folded(self) -> bool:
        """Whether scores are products times a positive number: the maximum may then be one of products."""
        plain = self.spec.softcap is None and self.spec.mask_kind != "bias"
        return plain and not self.multiplied and self.query_factor > 0

    def probability(self, product: Value, bias: Value | None, maximum: Value) -> Value:
        """A weight from the product of a query, not multiplied yet, with a key, and the maximum, which is finite."""
        em, factor = self.em, self.query_factor
        if self.folded:
            return self.exp2(em.fmaf(product, factor, maximum * -factor))
        return self.weight(self.score(product * factor, bias), maximum)

    def weights(self, scores: Sequence[Value], maximum: Value) -> list[Value]:
        """The weights of scores, or with `folded` of products; the maximum is one of them, and finite."""
        em, factor = self.em, self.query_factor
        if not self.folded:
            return [self.weight(score, maximum) for score in scores]
        shift = maximum * -factor
        return [self.exp2(em.fmaf(product, factor, shift)) for product in scores]

    def capped(self, product: Value, most: float) -> Value:
        # tanh(x) = 1 - 2 / (e^(2x) + 1); tanh.approx has errors of 2^-11, which softcaps of 50 make 0.02.
        power = self.exp2(product * (2 * LOG2_E))
        return self.em.fmaf(self.reciprocal(power + 1.0), -2.0 * most, self.em.const(most, "f32"))

    def normalising(self, total: Value) -> Value:
        """1 / total, and 0 where no key was visible."""
        em = self.em
        return em.select(em.cmpf("oeq", total, 0.0), 0.0, 1.0 / total)

    def pair(self, values: Sequence[Value], at: int) -> Value:
        """Two neighbours, rounded to the element type of queries, in one i32."""
        return self.em.pack(values[at], values[at + 1], self.element)

    # Vectors of 16 bytes --------------------------------------------------------------------------

    def elements(self, words: Sequence[Value], element: str) -> list[Value]:
        """The elements in some i32 as f32."""
        em = self.em
        if element == "f32":
            return [em.bitcast(word, "f32") for word in words]
        return [x for word in words for x in em.unpack(word, element)]

    def load_wide(self, address: Value, element: str, count: int) -> list[Value]:
        """`count` consecutive elements as f32; the address is a multiple of their size, at most 16 bytes."""
        em = self.em
        per = min(count, VECTOR_BYTES * 8 // BITS[element])
        values: list[Value] = []
        for at in range(0, count, per):
            words = em.lanes(em.ld(address, vec(per * BITS[element] // 32, "i32"), at * BITS[element] // 32))
            values += self.elements(words, element)
        return values
