# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Handlers of wgmma: asynchronous products of matrices by four warps.

A product is computed when its group has been waited for. Until then its accumulators are in flight: they may be passed
on to the next product, or moved to other registers, and nothing else.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptx_emulator import bulk
from ptx_emulator import floats as fl
from ptx_emulator.decode import WATCHERS, Unknown, handles
from ptx_emulator.machine import AWAY, Action, Machine
from ptx_emulator.matrices import ELEMENTS, a_places, c_places, product_in_order
from ptx_emulator.memory import SHARED_BASE, WRITTEN, Fault
from ptx_emulator.text import Instruction, Vector, registers_of

_SPANS = {0: 0, 1: 128, 2: 64, 3: 32}
_WRITTEN16 = np.uint64(0x0101010101010101 * WRITTEN)


@dataclass
class Accumulator:
    """Accumulators in flight of one warp group: the 64 rows, and products that aren't computed."""

    value: np.ndarray
    kind: str
    lanes: np.ndarray
    waiting: int = 0


@dataclass
class Product:
    """One product of one warp group."""

    result: Accumulator
    shape: tuple[int, int]
    kinds: tuple[str, str]
    a: Any
    b: int
    transposed: tuple[bool, bool]
    scales: tuple[int, int]
    zero: bool
    registers: frozenset[int]


@dataclass
class Group:
    """The state of one warp group: products by committed groups, and registers in flight."""

    open: list[Product] = field(default_factory=list)
    committed: list[list[Product]] = field(default_factory=list)
    flying: dict[int, tuple[Accumulator, int]] = field(default_factory=dict)
    fenced: bool = False


class Flights:
    """All warp groups of a launch, and the registers that are in flight in any of them."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.groups: dict[int, Group] = {}
        self.registers: set[int] = set()

    def group(self, number: int) -> Group:
        """The state of a warp group."""
        return self.groups.setdefault(number, Group())

    def update(self) -> None:
        """Recomputes `registers`."""
        self.registers = set()
        for group in self.groups.values():
            self.registers.update(group.flying)
            for products in [group.open, *group.committed]:
                for product in products:
                    self.registers |= product.registers

    def running(self) -> set[int]:
        """Numbers of the warp groups of the running lanes."""
        return set(np.unique(group_numbers(self.m)).tolist())


def group_numbers(m: Machine) -> np.ndarray:
    """The warp group of each running lane."""
    return m.warp[m.ix] // 4 * m.slots + m.slot[m.ix]


def flights(m: Machine) -> Flights:
    """The state of the running launch."""
    known = m.extra.get("wgmma")
    if known is None:
        known = m.extra["wgmma"] = Flights(m)
    return known


def _gather(m: Machine) -> list[tuple[int, np.ndarray]] | None:
    """Whole warp groups that run here, with their 128 lanes in order; parts of others are parked."""
    if m.threads % 128:
        raise Fault("wgmma needs blocks of whole warp groups, of 128 threads")
    parked = m.parked.pop(m.pc, None)
    if parked is not None:
        m.select(np.sort(np.concatenate([m.lanes, parked])))
    numbers = group_numbers(m)
    kinds, counts = np.unique(numbers, return_counts=True)
    if (counts != 128).any():
        partial = np.isin(numbers, kinds[counts != 128])
        m.parked[m.pc] = m.lanes[partial]
        if partial.all():
            return None
        m.select(m.lanes[~partial])
        numbers = numbers[~partial]
    order = np.argsort(numbers, kind="stable")
    return list(zip(np.unique(numbers).tolist(), m.lanes[order].reshape(-1, 128), strict=True))


def _whole(m: Machine, run: Any) -> Action:
    """An action for whole warp groups; lanes that wait for the rest of theirs stay behind."""

    def narrowing() -> Any:
        before = m.n
        groups = _gather(m)
        if groups is None:
            return AWAY
        run(groups)
        if m.n != before:
            m.add(m.pc + 1, m.lanes)
            return AWAY
        return None

    return narrowing


@handles("wgmma")
def wgmma(m: Machine, i: Instruction) -> Action:
    """wgmma.mma_async, .fence, .commit_group, .wait_group"""
    word = i.words[1]
    if word == "mma_async":
        return _whole(m, _product(m, i))
    if word == "fence":

        def fence(groups: list[tuple[int, np.ndarray]]) -> None:
            for number, _ in groups:
                flights(m).group(number).fenced = True

        return _whole(m, fence)
    if word == "commit_group":

        def commit(groups: list[tuple[int, np.ndarray]]) -> None:
            for number, _ in groups:
                group = flights(m).group(number)
                group.committed.append(group.open)
                group.open = []

        return _whole(m, commit)
    if word == "wait_group":
        left = i.operands[0].value

        def wait(groups: list[tuple[int, np.ndarray]]) -> None:
            for number, _ in groups:
                _finish(m, flights(m).group(number), left)
            flights(m).update()

        return _whole(m, wait)
    raise Unknown("this form of wgmma isn't emulated")


def _product(m: Machine, i: Instruction) -> Any:
    words = i.words
    shape = re.match(r"m64n(\d+)k(\d+)$", words[4])
    if shape is None:
        raise Unknown("this form of wgmma isn't emulated")
    columns, depth = int(shape[1]), int(shape[2])
    kinds = [word for word in words[5:] if word in ELEMENTS or word in ("f32", "s32")]
    if len(kinds) != 3 or set(words[5:]) - set(kinds):
        raise Unknown("this form of wgmma isn't emulated")
    kind, a_kind, b_kind = kinds
    if depth * ELEMENTS[a_kind][0] != 32 or columns % 8 or not 8 <= columns <= 256:
        raise Unknown("this shape of wgmma isn't emulated")
    result, a, b, scale, *rest = i.operands
    items = result.items
    per_register = 2 if kind == "f16" else 1
    if len(items) * per_register != columns // 2:
        raise Unknown(f"{len(items)} accumulators don't fit the shape")
    numbers = [item.number for item in items]
    rows = [m.register(item) for item in items]
    a_rows = [m.register(item) for item in a.items] if isinstance(a, Vector) else None
    a_numbers = frozenset(item.number for item in a.items) if isinstance(a, Vector) else frozenset()
    a_row, b_row = None if a_rows else m.source(a, np.uint64), m.source(b, np.uint64)
    scale_row = m.source(scale, bool)
    immediates = [operand.value for operand in rest]
    scales = (immediates[0], immediates[1]) if kind != "s32" else (1, 1)
    flips = immediates[2:] if kind != "s32" else []
    if any(flips) and ELEMENTS[a_kind][0] != 2:
        raise Unknown("only operands of 2-byte elements may be transposed")
    transposed = (bool(flips[0]) if len(flips) == 2 else False, bool(flips[-1]) if flips else False)

    def run(groups: list[tuple[int, np.ndarray]]) -> None:
        state = flights(m)
        for number, lanes in groups:
            group = state.group(number)
            use = scale_row[lanes]
            if use.any() != use.all():
                raise Fault("threads of a warp group differ about scale-d")
            target = _accumulator(group, numbers, rows, lanes, kind, columns)
            source = _one(m, a_row, lanes, "A") if a_row is not None else a_rows
            product = Product(
                target, (columns, depth), (a_kind, b_kind), source, _one(m, b_row, lanes, "B"), transposed, scales,
                not use[0], a_numbers,
            )  # fmt: skip
            # What it reads must be there now, and still when it is computed.
            _issue(m, product)
            target.waiting += 1
            group.open.append(product)
        state.update()

    return run


def _one(m: Machine, row: np.ndarray, lanes: np.ndarray, what: str) -> int:
    values = row[lanes]
    if (values != values[0]).any():
        raise Fault(f"threads of a warp group have different descriptors of {what}")
    return int(values[0])


def _accumulator(
    group: Group, numbers: list[int], rows: list[np.ndarray], lanes: np.ndarray, kind: str, columns: int
) -> Accumulator:
    """The accumulators as one matrix: those in flight, or registers."""
    entries = [group.flying.get(number) for number in numbers]
    first = entries[0]
    if first is not None and all(e is not None and e[0] is first[0] and e[1] == k for k, e in enumerate(entries)):
        if first[0].kind != kind or first[0].value.shape[1] != columns:
            raise Fault("accumulators in flight are used with another shape or type")
        return first[0]
    if any(entry is not None for entry in entries):
        raise Fault("some accumulators are in flight in another product, or in another order")
    if not group.fenced:
        raise Fault("wgmma.fence is missing: registers were used since the last wgmma")
    words = np.stack([row[lanes] for row in rows], axis=1)
    if kind == "f16":
        values: np.ndarray = words.view(np.float16).astype(np.float32)
    else:
        values = words.view(np.int32 if kind == "s32" else np.float32)
    matrix = np.empty((4, 16, columns), values.dtype)
    places = c_places(columns // 2)
    matrix[:, places[0], places[1]] = values.reshape(4, 32, -1)
    result = Accumulator(matrix.reshape(64, columns), kind, lanes)
    for position, number in enumerate(numbers):
        group.flying[number] = (result, position)
    return result


@functools.lru_cache(maxsize=512)
def descriptor_pieces(descriptor: int, rows: int, transposed: bool) -> np.ndarray:
    """Addresses of the 16-byte pieces of an operand: ``[rows, pieces]`` with the 32 bytes of k innermost, or, where it
    is transposed (2-byte elements), ``[k, pieces of rows]``."""
    start = (descriptor & 0x3FFF) << 4
    leading, stride = (descriptor >> 16 & 0x3FFF) << 4, (descriptor >> 32 & 0x3FFF) << 4
    if descriptor >> 49 & 7:
        raise Fault("a matrix descriptor has a base offset, which isn't emulated")
    span = _SPANS[descriptor >> 62]
    if transposed and span and 2 * rows % span:
        raise Fault(
            f"a transposed matrix of {rows} elements has lines of {2 * rows} bytes, which aren't whole boxes of the "
            f"swizzle's {span}"
        )
    if not transposed:
        row, piece = np.arange(rows)[:, None], np.arange(2)[None, :]
        if span:
            addresses = start + row % 8 * span + row // 8 * stride + piece * 16
        else:
            addresses = start + row % 8 * 16 + row // 8 * stride + piece * leading
    else:
        k, piece = np.arange(16)[:, None], np.arange(rows // 8)[None, :]
        if span:
            atom = span // 16
            addresses = start + piece % atom * 16 + piece // atom * leading + k % 8 * span + k // 8 * stride
        else:
            addresses = start + piece * stride + k % 8 * 16 + k // 8 * leading
    return bulk.swizzled(addresses, span)


def _offsets(m: Machine, descriptor: int, rows: int, transposed: bool, lanes: np.ndarray) -> np.ndarray:
    """Offsets of the pieces of an operand in the machine's shared memory."""
    pieces = descriptor_pieces(descriptor, rows, transposed)
    limit = SHARED_BASE + m.shared.size - 16
    if int(pieces.min()) < SHARED_BASE or int(pieces.max()) > limit:
        raise Fault(f"a matrix descriptor reaches out of the {m.shared.size} bytes of shared memory")
    return pieces + (int(m.slot[lanes[0]]) * m.shared.stride - SHARED_BASE)


def _check(m: Machine, offsets: np.ndarray, what: str) -> None:
    """Raises Fault where an operand can't be seen."""
    if (m.shared.state.load(offsets, 8, 2) != _WRITTEN16).any():
        bulk.check_source(m, offsets.reshape(-1), what)


def _places(m: Machine, product: Product) -> list[tuple[np.ndarray, str, bool]]:
    """Where the operands in shared memory lie, their types, whether they are transposed: A, if it is there, and B."""
    lanes = product.result.lanes
    result = []
    sides = ((product.a, 64), (product.b, product.shape[0]))
    for (descriptor, rows), kind, transposed in zip(sides, product.kinds, product.transposed, strict=True):
        if isinstance(descriptor, int):
            result.append((_offsets(m, descriptor, rows, transposed, lanes), kind, transposed))
    return result


def _issue(m: Machine, product: Product) -> None:
    """Checks that what a product reads is there."""
    for offsets, _, _ in _places(m, product):
        _check(m, offsets, "wgmma")
        if m.races is not None:
            m.races.check_read(offsets.reshape(-1), 16, product.result.lanes)


def _operands(m: Machine, product: Product) -> tuple[np.ndarray, np.ndarray]:
    """The operands as f32: ``[64, depth]`` and ``[columns, depth]``."""
    lanes = product.result.lanes
    matrices = []
    if not isinstance(product.a, int):
        width, decode = ELEMENTS[product.kinds[0]]
        words = np.stack([row[lanes] for row in product.a], axis=1)
        a = np.empty((4, 16, product.shape[1]), np.float32)
        places = a_places(4, 4 // width)
        a[:, places[0], places[1]] = decode(words.view(np.dtype(f"u{width}"))).reshape(4, 32, 4, 4 // width)
        matrices.append(a.reshape(64, -1))
    for offsets, kind, transposed in _places(m, product):
        _check(m, offsets, "wgmma that wasn't waited for")
        if m.races is not None:
            m.races.consume(offsets.reshape(-1), 16, lanes)
        width, decode = ELEMENTS[kind]
        raw = m.shared.data.load(offsets, 8, 2).view(np.dtype(f"u{width}"))
        values = decode(raw).reshape(len(offsets), -1)
        matrices.append(values.T if transposed else values)
    return matrices[0], matrices[1]


def _finish(m: Machine, group: Group, left: int) -> None:
    """Computes the products of all groups but the last ones, and gives back accumulators that are no more in flight."""
    while len(group.committed) > left:
        for product in group.committed.pop(0):
            a, b = _operands(m, product)
            result = product.result
            total = product_in_order(a, b.T) * (product.scales[0] * product.scales[1])
            if result.kind == "s32":
                total = total.astype(np.int64).astype(np.int32)
            if not product.zero:
                total = total + result.value
            if result.kind == "f16":
                total = total.astype(np.float16).astype(np.float32)
            result.value = total
            result.waiting -= 1
    done: dict[int, tuple[Accumulator, np.ndarray]] = {}
    for number, (accumulator, position) in list(group.flying.items()):
        if accumulator.waiting:
            continue
        key = id(accumulator)
        if key not in done:
            done[key] = (accumulator, _registers(accumulator))
        m.register_number(number)[accumulator.lanes] = done[key][1][:, position]
        del group.flying[number]
    if done:
        group.fenced = False


def _registers(accumulator: Accumulator) -> np.ndarray:
    """The words of an accumulator's registers: ``[128, registers]``."""
    value = accumulator.value
    places = c_places(value.shape[1] // 2)
    parts = value.reshape(4, 16, -1)[:, places[0], places[1]].reshape(128, -1)
    if accumulator.kind == "f16":
        return fl.f32_to_f16(np.ascontiguousarray(parts)).view(np.uint32)
    if accumulator.kind == "f32":
        return fl.canonical(np.ascontiguousarray(parts)).view(np.uint32)
    return np.ascontiguousarray(parts).view(np.uint32)


_NO_RESULT = frozenset(("st", "red", "bar", "barrier", "cp", "stmatrix", "fence", "wgmma", "bra"))


def watched(m: Machine, i: Instruction, action: Action) -> Action:
    """The action of an instruction other than wgmma, with a check that it leaves registers in flight alone."""
    if i.opcode == "wgmma":
        return action
    numbers = [[register.number for register in registers_of(operand)] for operand in i.operands]
    if i.opcode in _NO_RESULT or not numbers:
        written: list[int] = []
        read = [number for part in numbers for number in part]
    else:
        written, read = numbers[0], [number for part in numbers[1:] for number in part]
    touched = frozenset(written + read)
    if not touched:
        return action
    moves = i.opcode == "mov" and len(written) == 1 == len(read) and i.predicate is None

    def run() -> Any:
        state = m.extra.get("wgmma")
        if state is not None and not touched.isdisjoint(state.registers):
            _check_flight(m, state, written, read, moves)
        return action()

    return run


def _check_flight(m: Machine, state: Flights, written: list[int], read: list[int], moves: bool) -> None:
    for number in state.running():
        group = state.groups.get(number)
        if group is None:
            continue
        flying = group.flying
        if moves and read[0] in flying:
            entry = flying[read[0]]
            before = flying.pop(written[0], entry)
            flying[written[0]] = entry
            if before not in flying.values():
                raise Fault("an accumulator is written before wgmma.wait_group")
            state.registers.add(written[0])
            continue
        for register in read:
            if register in flying:
                raise Fault("an accumulator is read before wgmma.wait_group")
        for register in written:
            if register in flying:
                entry = flying.pop(register)
                if entry not in flying.values():
                    raise Fault("an accumulator is written before wgmma.wait_group")
            for products in [group.open, *group.committed]:
                if any(register in product.registers for product in products):
                    raise Fault("a register that wgmma reads is written before wgmma.wait_group")


WATCHERS["wgmma"] = watched
