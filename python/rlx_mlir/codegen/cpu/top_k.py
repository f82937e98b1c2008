# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The first elements of rows in an order, and where they are; with as many as there are, sorted rows. A unit is a row.
How long rows are, and how many elements are wanted, is known or the size of a dimension.

Elements become keys, integers without sign that are smaller for what comes first. There are three forms:

- **Ranked**, of short rows: the rank of an element is the number of those before it, counted by vectors.
- **Sorted**: keys with their positions are sorted by their bytes, from the last one to the first, each time without
  changing the order of equal ones. The bytes of all keys are counted beforehand; one that all share is passed over.
- **Selected**, where few of many are wanted: what stands before the last one that would be taken now is put to a list,
  chunk by chunk of the row; when the list is full it is sorted, and what is behind the wanted ones is dropped. A list
  of two chunks is sorted at most once for each chunk, so that time grows with the row, whatever its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_mlir.codegen.conversions import FLOATS
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, vec, with_element
from rlx_mlir.codegen.specs import TopKSpec

from . import UnsupportedByTemplate
from .kernel import Scratch, row_count, write_kernel
from .registry import Generator
from .target import ELEMENT_BITS, Target

RANKED = 128
"""Elements of a row, at most, that are ranked: beyond, counting bytes costs less."""

CHUNK = 256
"""Elements that are looked at together, at least; so many chunks make a row long: `MANY`."""
MANY = 4

DIGITS = 256
"""Values of a byte."""


@dataclass(frozen=True)
class Plan:
    """How rows are done.

    Attributes:
        n: elements of a row; None where calls say it.
        bits: of keys that count; they are held in 32 bits, or in 64.
        chunk: elements of a chunk where the first ones are selected, else 0.
    """

    spec: TopKSpec
    n: int | None
    bits: int
    chunk: int

    @property
    def element(self) -> str:
        """Type of the elements."""
        return element_of(self.spec.x)

    @property
    def key(self) -> str:
        """Type of keys."""
        return "i64" if self.bits > 32 else "i32"

    @property
    def first(self) -> int:
        """How many elements are selected, or ranked of rows whose length is known."""
        assert self.spec.k is not None, "where calls say it, all elements are sorted or ranked"
        return self.spec.k

    def capacity(self, n: Index) -> Index:
        """Entries of a list for rows of n; one more is written, and not counted."""
        return self.first + 2 * self.chunk + 1 if self.chunk else n


def configure(name: str, spec: TopKSpec, target: Target) -> Plan:
    """How the rows of a kernel are done; UnsupportedByTemplate where no element is wanted."""
    if spec.k == 0:
        raise UnsupportedByTemplate(f"{name}: no element is wanted")
    n = shape_of(spec.x)[-1]
    element = element_of(spec.x)
    bits = {"f64": 64}.get(element, 32) if element in FLOATS else int(element.removeprefix("u").removeprefix("i"))
    lanes = target.lanes("i32")
    if spec.k is None:
        return Plan(spec, n, bits, 0)
    chunk = -(-max(CHUNK, spec.k) // lanes) * lanes
    return Plan(spec, n, bits, chunk if n is None or n >= MANY * chunk else 0)


def emit_top_k(name: str, plan: Plan, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch`, as text."""
    spec = plan.spec
    results = [(word, type) for word, type in (("values", spec.values), ("indices", spec.indices)) if type is not None]
    form: type[_Rows] = _Selected if plan.chunk else _Either if plan.n is None else _Sorted
    if plan.n is not None and plan.n <= RANKED:
        form = _Ranked

    def body(em: Emitter, values: list[Value], outs: list[Value], begin: Value, end: Value, parts: Scratch) -> None:
        kernel = form(em, target, plan, values[0])
        kernel.take_scratch(parts)
        kernel.write_to({word: em.rows(out) for (word, _), out in zip(results, outs, strict=True)})
        with em.loop(begin, end, hint="row") as row:
            kernel.run(row.iv)

    return write_kernel(
        name,
        [("x", spec.x), *((f"other{number}", type) for number, type in enumerate(spec.others))],
        results,
        units=lambda em, values: row_count(em, values[0]),
        scratch=lambda em, values, parts: form(em, target, plan, values[0]).take_scratch(parts),
        body=body,
        order=spec.order,
    )


class _Rows:
    """Rows of elements, their keys, and where the first ones are written."""

    def __init__(self, em: Emitter, target: Target, plan: Plan, x: Value) -> None:
        self.em, self.target, self.plan, self.x = em, target, plan, x
        self.lanes = target.lanes(plan.key)
        self.keys_type = vec(self.lanes, plan.key)
        self.n: Index = em.dim(x, len(shape_of(x.type)) - 1)

    def take_scratch(self, parts: Scratch) -> None:
        """Takes what a thread needs."""
        raise NotImplementedError

    def run(self, row: Value) -> None:
        """One row."""
        raise NotImplementedError

    def write_to(self, outs: dict[str, Value]) -> None:
        """Says where results are, as rows."""
        self._outs = outs
        self.x = self.em.rows(self.x)
        self.k: Index = self.em.dim(next(iter(outs.values())), 1)

    def key(self, x: Value) -> Value:
        """The keys of elements, a number or a vector: integers without sign, the first in order the smallest."""
        em, plan = self.em, self.plan
        type = with_element(x.type, plan.key)
        top = 1 << (plan.bits - 1)
        if plan.element in FLOATS:
            wide = self.target.widen(em, x)
            bits = em.bitcast(wide + 0.0, type)  # -0 + 0 is 0
            turned = bits ^ (em.binary("arith.shrsi", bits, plan.bits - 1) & (top - 1))
            whole = em.select(em.cmpf("uno", wide, wide), top - 1 if plan.spec.nan_largest else -top, turned)
        else:
            signed = not plan.element.startswith("u")
            own = x if signed else em.cast("builtin.unrealized_conversion_cast", x, plan.element[1:])
            word = "arith.extsi" if signed else "arith.extui"
            whole = own if own.type == type else em.cast(word, own, type)
            top = top if signed else 0
        # With the sign turned, signed integers are in the order of those without; all bits turned, in the other one.
        flip = top if plan.spec.smallest else ((1 << plan.bits) - 1) ^ top
        whole = whole ^ _signed(flip, plan.key)
        return whole if plan.bits >= 32 else whole & ((1 << plan.bits) - 1)

    def key_at(self, row: Value, at: Index) -> Value:
        """The key of one element."""
        return self.key(self.em.load(self.x, [row, at]))

    def fill_keys(self, keys: Value, row: Value, start: Index, count: Index) -> None:
        """Writes the keys of `count` elements from `start` on; up to a whole vector, keys that come last."""
        em, lanes = self.em, self.lanes
        whole: Index = 0
        if not self.plan.element.startswith("u"):  # of which there are no vectors
            whole = count - count % lanes
            with em.loop(0, whole, lanes, hint="k") as k:
                own = em.vload(self.x, [row, start + k.iv], vec(lanes, self.plan.element))
                em.vstore(self.key(own), keys, [k.iv])
        with em.loop(whole, count, hint="k") as k:
            em.store(self.key_at(row, start + k.iv), keys, [k.iv])
        with em.loop(count, em.iceildiv(count, lanes) * lanes, hint="k") as k:
            em.store(em.const(-1, self.plan.key), keys, [k.iv])

    def write(self, row: Value, place: Index, position: Value) -> None:
        """Writes the element at a position to a place of the results."""
        em = self.em
        if "indices" in self._outs:
            em.store(em.cast("arith.index_cast", position, "i32"), self._outs["indices"], [row, place])
        if "values" in self._outs:
            x = em.load(self.x, [row, position])
            if self.plan.element in FLOATS:
                width = ELEMENT_BITS[self.plan.element]
                negative_zero = em.cmpi("eq", em.bitcast(x, f"i{width}"), -(1 << (width - 1)))
                x = em.select(negative_zero, 0.0, x)
            em.store(x, self._outs["values"], [row, place])


def _signed(bits: int, type: str) -> int:
    """The number that has these bits in a signed type."""
    width = int(type[1:])
    return bits - (1 << width) if bits >> (width - 1) else bits


class _Ranked(_Rows):
    """Each element is put where the number of those before it says."""

    def take_scratch(self, parts: Scratch) -> None:
        longest = RANKED if self.plan.n is None else self.plan.n
        count = -(-longest // self.lanes) * self.lanes
        key = self.plan.key
        self._keys, self._ranks, self._order = (parts.take([count], key, ELEMENT_BITS[key] // 8) for _ in range(3))

    def run(self, row: Value) -> None:
        em, plan = self.em, self.plan
        self.fill_keys(self._keys, row, 0, self.n)
        with em.loop(0, self.n, self.lanes, hint="block") as block:
            em.vstore(self._ranks_of(block.iv), self._ranks, [block.iv])
        with em.loop(0, self.n, hint="at") as at:
            rank = em.cast("arith.index_cast", em.load(self._ranks, [at.iv]), "index")
            em.store(em.cast("arith.index_cast", at.iv, plan.key), self._order, [rank])
        with em.loop(0, self.k, hint="place") as place:
            position = em.load(self._order, [place.iv])
            self.write(row, place.iv, em.cast("arith.index_cast", position, "index"))

    def _ranks_of(self, block: Value) -> Value:
        """How many come before each of a vector of elements: those of smaller keys, of equal ones those before it."""
        em, lanes, type = self.em, self.lanes, self.keys_type
        own = em.vload(self._keys, [block], type)

        def counted(ranks: Value, at: Index, predicate: str, equal: Value | None = None) -> Value:
            key = em.broadcast(em.load(self._keys, [at]), type)
            before = em.cmpi(predicate, key, own)
            if equal is not None:
                before = before | (em.cmpi("eq", key, own) & equal)
            return ranks + em.select(before, em.const(1, type), em.zero(type))

        with em.loop(0, block, carry=em.zero(type), hint="k") as k:
            k.yield_(counted(k.carry, k.iv, "ule"))
        ranks = k.result
        for lane in range(lanes):
            behind = em.const([other > lane for other in range(lanes)], vec(lanes, "i1"))
            ranks = counted(ranks, block + lane, "ult", behind)
        with em.loop(block + lanes, self.n, carry=ranks, hint="k") as k:
            k.yield_(counted(k.carry, k.iv, "ult"))
        return k.result


Entry = Sequence[Value]
"""A key and its position: i64 of both, the key above, or a key of i64 and a position of i32."""


class _Lists:
    """Two lists of entries, by turns what is sorted and where it goes."""

    def __init__(self, em: Emitter, plan: Plan, capacity: Index, parts: Scratch) -> None:
        self._em, self._packed, self._key = em, plan.bits <= 32, plan.key
        self.digits = plan.bits // 8
        self._parts = [parts.take([2, capacity], "i64", 8)]
        if not self._packed:
            self._parts.append(parts.take([2, capacity], "i32", 4))
        self._counts = parts.take([self.digits, DIGITS], "i64", 8)

    def entry(self, key: Value, position: Value) -> Entry:
        """A key and its position, an index."""
        em = self._em
        if not self._packed:
            return [key, em.cast("arith.index_cast", position, "i32")]
        return [(em.cast("arith.extui", key, "i64") << 32) | em.cast("arith.index_cast", position, "i64")]

    def key(self, entry: Entry) -> Value:
        """The key of an entry."""
        return self._em.cast("arith.trunci", entry[0] >> 32, "i32") if self._packed else entry[0]

    def position(self, entry: Entry) -> Value:
        """The position of an entry, an index."""
        own = entry[0] & 0xFFFFFFFF if self._packed else entry[1]
        return self._em.cast("arith.index_cast", own, "index")

    def read(self, side: Value, at: Index) -> Entry:
        """An entry of a list."""
        return [self._em.load(part, [side, at]) for part in self._parts]

    def store(self, entry: Entry, side: Value, at: Index) -> None:
        """Writes an entry to a list."""
        for value, part in zip(entry, self._parts, strict=True):
            self._em.store(value, part, [side, at])

    def _digit(self, entry: Entry, number: Index) -> Value:
        """A byte of a key, 0 the last one."""
        em = self._em
        shift = number * 8 + (32 if self._packed else 0)
        own = shift if isinstance(shift, int) else em.cast("arith.index_cast", shift, "i64")
        byte = (entry[0] >> own if own else entry[0]) & (DIGITS - 1)
        return em.cast("arith.index_cast", byte, "index")

    def sort(self, side: Value, count: Index) -> Value:
        """Sorts a list of at least one entry by keys; those of equal keys stay in order. Returns which list has it."""
        em = self._em
        self._count(side, count)
        with em.loop(0, self.digits, carry=side, hint="byte") as byte:
            first = em.load(self._counts, [byte.iv, self._digit(self.read(byte.carry, 0), byte.iv)])
            differs = em.cmpi("ne", em.cast("arith.index_cast", first, "index"), em.index(count))
            with em.if_(differs, byte.carry.type) as moved:
                self._distribute(byte.carry, count, byte.iv)
                moved.yield_(em.index(1 - byte.carry))
                moved.else_()
                moved.yield_(byte.carry)
            byte.yield_(moved.result)
        return byte.result

    def _count(self, side: Value, count: Index) -> None:
        """Counts the values of all bytes."""
        em = self._em
        with em.loop(0, self.digits, hint="byte") as byte, em.loop(0, DIGITS, hint="value") as value:
            em.store(em.const(0, "i64"), self._counts, [byte.iv, value.iv])
        with em.loop(0, count, hint="at") as at:
            entry = self.read(side, at.iv)
            for number in range(self.digits):
                place: list[Index] = [number, self._digit(entry, number)]
                em.store(em.load(self._counts, place) + em.const(1, "i64"), self._counts, place)

    def _distribute(self, side: Value, count: Index, number: Value) -> None:
        """Moves the entries of a list to the other one, to where the counts of one byte say."""
        em = self._em
        with em.loop(0, DIGITS, carry=em.const(0, "i64"), hint="value") as value:
            own = em.load(self._counts, [number, value.iv])
            em.store(value.carry, self._counts, [number, value.iv])
            value.yield_(value.carry + own)
        other = em.index(1 - side)
        with em.loop(0, count, hint="at") as at:
            entry = self.read(side, at.iv)
            place = [number, self._digit(entry, number)]
            target = em.load(self._counts, place)
            self.store(entry, other, em.cast("arith.index_cast", target, "index"))
            em.store(target + em.const(1, "i64"), self._counts, place)


class _Sorted(_Rows):
    """All entries are sorted."""

    def take_scratch(self, parts: Scratch) -> None:
        self.lists = _Lists(self.em, self.plan, self.plan.capacity(self.n), parts)

    def run(self, row: Value) -> None:
        em, lists = self.em, self.lists
        first = em.index(0)
        with em.loop(0, self.n, hint="at") as at:
            lists.store(lists.entry(self.key_at(row, at.iv), at.iv), first, at.iv)
        self.write_first(row, lists.sort(first, self.n))

    def write_first(self, row: Value, side: Value) -> None:
        """Writes the first entries of a sorted list."""
        em, lists = self.em, self.lists
        with em.loop(0, self.k, hint="place") as place:
            self.write(row, place.iv, lists.position(lists.read(side, place.iv)))


class _Either(_Rows):
    """Short rows are ranked, others sorted, as calls say."""

    def __init__(self, em: Emitter, target: Target, plan: Plan, x: Value) -> None:
        super().__init__(em, target, plan, x)
        self._ranked, self._sorted = _Ranked(em, target, plan, x), _Sorted(em, target, plan, x)

    def take_scratch(self, parts: Scratch) -> None:
        self._ranked.take_scratch(parts)
        self._sorted.take_scratch(parts)

    def write_to(self, outs: dict[str, Value]) -> None:
        """Says where results are, as rows."""
        self._ranked.write_to(outs)
        self._sorted.write_to(outs)

    def run(self, row: Value) -> None:
        with self.em.if_(self.em.cmpi("ule", self.em.index(self.n), RANKED)) as short:
            self._ranked.run(row)
            short.else_()
            self._sorted.run(row)


@dataclass(frozen=True)
class _Kept:
    """A list of candidates: which one it is, how many it has, and the key that others must be before."""

    side: Value
    count: Value
    bar: Value


class _Selected(_Sorted):
    """A list keeps those that may be among the first."""

    def take_scratch(self, parts: Scratch) -> None:
        super().take_scratch(parts)
        self._keys = parts.take([self.plan.chunk], self.plan.key, ELEMENT_BITS[self.plan.key] // 8)

    def run(self, row: Value) -> None:
        em, plan = self.em, self.plan
        start = _Kept(em.index(0), em.index(0), em.const(-1, plan.key))
        with em.loop(0, self.n, plan.chunk, start, hint="start") as chunk:
            length = em.imin(self.n - chunk.iv, plan.chunk)
            self.fill_keys(self._keys, row, chunk.iv, length)
            is_first = em.cmpi("eq", chunk.iv, 0)
            count = self._append(chunk.carry, chunk.iv, length, is_first)
            is_last = em.cmpi("uge", chunk.iv + plan.chunk, self.n)
            is_full = em.cmpi("ugt", count, plan.first + plan.chunk)
            with em.if_(is_first | is_last | is_full, start) as sorted_:
                sorted_.yield_(self._shortened(chunk.carry.side, count))
                sorted_.else_()
                sorted_.yield_(_Kept(chunk.carry.side, count, chunk.carry.bar))
            chunk.yield_(sorted_.result)
        self.write_first(row, chunk.result.side)

    def _shortened(self, side: Value, count: Value) -> _Kept:
        """The first ones of a list alone; at least so many have been put to it."""
        em, lists, k = self.em, self.lists, self.plan.first
        side = lists.sort(side, count)
        return _Kept(side, em.index(k), lists.key(lists.read(side, k - 1)))

    def _append(self, kept: _Kept, start: Value, length: Index, everything: Value) -> Value:
        """Puts the elements of a chunk whose keys are before the bar to the list, or all; returns how many it has."""
        em, lanes, type = self.em, self.lanes, self.keys_type
        bar, all_lanes = em.broadcast(kept.bar, type), em.broadcast(everything, vec(lanes, "i1"))
        with em.loop(0, length, lanes, kept.count, hint="k") as k:
            before = em.cmpi("ult", em.vload(self._keys, [k.iv], type), bar) | all_lanes
            with em.if_(em.reduce("or", before), "index") as some:
                with em.loop(0, lanes, carry=k.carry, hint="lane") as lane:
                    at = k.iv + lane.iv
                    key = em.load(self._keys, [at])
                    self.lists.store(self.lists.entry(key, start + at), kept.side, lane.carry)
                    taken = em.cmpi("ult", key, kept.bar) | everything
                    lane.yield_(lane.carry + em.select(taken, em.index(1), em.index(0)))
                some.yield_(lane.result)
                some.else_()
                some.yield_(k.carry)
            k.yield_(some.result)
        return k.result


GENERATORS = (Generator("top_k", "top_k", configure, emit_top_k),)
