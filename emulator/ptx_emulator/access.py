# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Handlers of loads, stores and atomic operations in all state spaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptx_emulator import floats as fl
from ptx_emulator.decode import Unknown, dtype_of, handles
from ptx_emulator.machine import Action, Machine
from ptx_emulator.memory import (
    LOCAL_WINDOW,
    PARAM_WINDOW,
    PENDING,
    SHARED_BASE,
    SHARED_WINDOW,
    UNFENCED,
    WRITTEN,
    Bytes,
    Fault,
)
from ptx_emulator.stats import Access
from ptx_emulator.text import TYPE_BYTES, Address, Imm, Instruction, Reg, Symbol, Vector

#: Bits of an address in the shared memory of a cluster above those of an address in a block; 0 stands for the own one.
CLUSTER_SHIFT = 24

_SPACES = {
    "global": "global", "const": "global", "shared": "shared", "shared::cta": "shared", "shared::cluster": "shared",
    "local": "local", "param": "param", "param::entry": "param", "param::func": "param",
}  # fmt: skip


def space_of(words: tuple[str, ...]) -> str:
    """The state space that modifiers name; ``generic`` where none does."""
    return next((_SPACES[word] for word in words if word in _SPACES), "generic")


def address_of(m: Machine, operand: Any) -> Callable[[], np.ndarray]:
    """A function that gives the addresses of the running lanes as int64."""
    if not isinstance(operand, Address):
        raise Unknown(f"an address was expected, not {operand}")
    base, offset = operand.base, operand.offset
    if isinstance(base, (Symbol, Imm)):
        value = m.variables.address(base) if isinstance(base, Symbol) else base.value
        constant = np.full(m.count, value + offset, np.int64)
        return lambda: constant[m.ix]
    if not isinstance(base, Reg):
        raise Unknown("this form of address isn't emulated")
    row = m.register(base)
    if base.bits == 64:
        signed = row.view(np.int64)
        if offset:
            return lambda: signed[m.ix] + offset
        return lambda: signed[m.ix]
    return lambda: row[m.ix].astype(np.int64) + offset


def check_aligned(addresses: np.ndarray, size: int) -> None:
    """Raises Fault where an address isn't a multiple of the size of the access."""
    if int(np.bitwise_or.reduce(addresses)) & size - 1:
        bad = np.flatnonzero(addresses & size - 1)
        raise Fault(f"access to {size} bytes at {int(addresses[bad[0]]):#x}, which isn't a multiple of {size}", bad)


def shared_offsets(m: Machine, addresses: np.ndarray, size: int) -> np.ndarray:
    """Offsets in the machine's shared memory; Fault where an access leaves the block's."""
    limit = SHARED_BASE + m.shared.size - size
    if int(addresses.max()) <= limit and int(addresses.min()) >= SHARED_BASE:
        return addresses + m.shared_origin[m.ix]
    slots, local = cluster_slots(m, addresses)
    bad = (local < SHARED_BASE) | (local > limit)
    if bad.any():
        positions = np.flatnonzero(bad)
        byte = int(local[positions[0]]) - SHARED_BASE
        raise Fault(
            f"access to {size} bytes at byte {byte} of shared memory, which has {m.shared.size} bytes", positions
        )
    return local + slots * m.shared.stride - SHARED_BASE


def cluster_slots(m: Machine, addresses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slots and addresses in their blocks, of addresses that may name another block of the cluster."""
    slots = m.slot[m.ix]
    rank = addresses >> CLUSTER_SHIFT
    foreign = (rank > 0) & (rank <= 16)
    if foreign.any():
        size = int(np.prod(m.cluster))
        if int(rank.max()) > size:
            raise Fault("address in the shared memory of a block that isn't in the cluster")
        first = slots - m.rank[slots]
        slots = np.where(foreign, first + rank - 1, slots)
        addresses = np.where(foreign, addresses & (1 << CLUSTER_SHIFT) - 1, addresses)
    return slots, addresses


def _split_generic(addresses: np.ndarray) -> list[tuple[str, int, np.ndarray]]:
    """The spaces that generic addresses lie in: name, what to subtract, positions."""
    window = addresses >> 60
    result = []
    for number in np.unique(window):
        positions = np.flatnonzero(window == number)
        name = {SHARED_WINDOW >> 60: "shared", LOCAL_WINDOW >> 60: "local", PARAM_WINDOW >> 60: "param"}.get(
            int(number), "global"
        )
        result.append((name, {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(name, 0), positions))
    return result


def _places(
    m: Machine, space: str, addresses: np.ndarray, size: int, store: bool
) -> list[tuple[Bytes, np.ndarray, Any]]:
    """Where addresses of one space lie: buffer, offsets, positions."""
    if space == "global":
        result = []
        for known, positions in m.memory.parts(addresses.view(np.uint64), size):
            if store and not known.writable:
                raise Fault("write to memory that is registered for reading only", np.arange(m.n)[positions])
            offsets = addresses[positions] - known.base
            if m.waited is not None:
                early = ~m.waited[m.lanes[positions]]
                if early.any():
                    early &= store or known.was_written(offsets, size)
                    if early.any():
                        raise Fault(too_early(store), np.arange(m.n)[positions][early])
            if store:
                known.note_write(offsets, size)
            result.append((known.bytes, offsets, positions))
        return result
    if space == "shared":
        return [(m.shared.data, shared_offsets(m, addresses, size), slice(None))]
    if space == "local":
        bad = (addresses < 0) | (addresses + size > m.function.local_bytes)
        if bad.any():
            raise Fault(f"access outside of the {m.function.local_bytes} bytes of local memory", np.flatnonzero(bad))
        return [(m.local, addresses + m.local_origin[m.ix], slice(None))]
    offsets = addresses - PARAM_WINDOW
    bad = (offsets < 0) | (offsets + size > m.function.parameter_bytes)
    if bad.any() or store:
        raise Fault("access outside of the parameters" if not store else "write to parameters", np.flatnonzero(bad))
    return [(m.parameters, offsets, slice(None))]


def too_early(store: bool) -> str:
    """What is wrong with an access before a thread has waited for the kernels ahead in the chain."""
    what = "write to global memory" if store else "read of global memory that a kernel has written,"
    return f"{what} before griddepcontrol.wait"


def read(m: Machine, space: str, addresses: np.ndarray, width: int, count: int, strong: bool = False) -> np.ndarray:
    """What running lanes load: ``[n]`` or ``[n, count]`` elements of `width` bytes."""
    size = width * count
    if space == "generic":
        parts = _split_generic(addresses)
        if len(parts) == 1:
            name, window, _ = parts[0]
            return read(m, name, addresses - window if window else addresses, width, count, strong)
        result = np.empty((len(addresses), count) if count > 1 else len(addresses), np.dtype(f"u{width}"))
        lanes = m.lanes
        for name, window, positions in parts:
            m.select(lanes[positions])
            result[positions] = read(m, name, addresses[positions] - window, width, count, strong)
        m.select(lanes)
        return result
    check_aligned(addresses, size)
    places = _places(m, space, addresses, size, False)
    if m.profile:
        record(m, space, addresses, size, False)
    if space == "shared":
        m.shared.check_readable(places[0][1], width, count)
        if m.races is not None and not strong:
            m.races.read(places[0][1], size)
    if len(places) == 1:
        return places[0][0].load(places[0][1], width, count)
    result = np.empty((len(addresses), count) if count > 1 else len(addresses), np.dtype(f"u{width}"))
    for buffer, offsets, positions in places:
        result[positions] = buffer.load(offsets, width, count)
    return result


def write(
    m: Machine, space: str, addresses: np.ndarray, values: np.ndarray, width: int, count: int, strong: bool = False
) -> None:
    """What running lanes store."""
    size = width * count
    if space == "generic":
        lanes = m.lanes
        for name, window, positions in _split_generic(addresses):
            m.select(lanes[positions])
            write(m, name, addresses[positions] - window, values[positions], width, count, strong)
        m.select(lanes)
        return
    check_aligned(addresses, size)
    places = _places(m, space, addresses, size, True)
    if m.profile:
        record(m, space, addresses, size, True)
    if space == "shared":
        offsets = places[0][1]
        states = m.shared.state.load(offsets, width, count)
        if (np.bitwise_or.reduce(states, axis=None) & states.dtype.type(_repeat(PENDING, width))).any():
            raise Fault("write to shared memory that a copy which wasn't waited for is writing")
        m.shared.mark(offsets, width, count, WRITTEN | UNFENCED)
        if m.races is not None:
            m.races.forget(offsets, size) if strong else m.races.write(offsets, size)
    for buffer, offsets, positions in places:
        buffer.store(offsets, values[positions], width, count)


def _repeat(state: int, width: int) -> int:
    return int.from_bytes(bytes([state] * width), "little")


def record(m: Machine, space: str, addresses: np.ndarray, size: int, store: bool) -> None:
    """Counts an access: sectors of global memory, wavefronts of shared memory, per warp."""
    if space not in ("global", "shared"):
        return
    line = m.function.instructions[m.pc].line
    access = m.stats.accesses.setdefault((line, space, store), Access(line, space, store, size))
    warps = m.row[m.lanes]
    requests = len(np.unique(warps))
    access.requests += requests
    access.bytes += size * m.n
    if space == "global":
        # Memory of a GPU is aligned; arrays of the host count as if they were.
        known = m.memory.find(int(addresses.min()), 1)
        addresses = addresses - (known.start & 31 if known is not None else 0)
        step = min(size, 32)
        sectors: set[tuple[int, int]] = set()
        for piece in range(0, size, step):
            sectors.update(zip(warps.tolist(), ((addresses + piece) >> 5).tolist(), strict=True))
        access.sectors += len(sectors)
        distinct = np.unique(np.stack([warps, addresses]), axis=1)[0]
        _, counts = np.unique(distinct, return_counts=True)
        access.least += int(np.sum(-(-counts * size // 32)))
        return
    # Accesses of 8 and 16 bytes are served by halves and quarters of a warp.
    groups = warps * 4 + m.lane[m.lanes] * max(size // 4, 1) // 32
    words = np.unique(
        np.concatenate([np.stack([groups, (addresses >> 2) + word]) for word in range(max(size // 4, 1))], axis=1),
        axis=1,
    )
    banks = words[0] * 32 + words[1] % 32
    busiest: dict[int, int] = {}
    for bank, number in zip(*np.unique(banks, return_counts=True), strict=True):
        group = int(bank) // 32
        busiest[group] = max(busiest.get(group, 0), int(number))
    access.wavefronts += sum(busiest.values())
    access.least += len(busiest)


#: Accesses that may meet others.
_STRONG = frozenset(("volatile", "relaxed", "acquire", "release"))
_PLAIN_WORDS = _STRONG | {
    "weak", "cta", "cluster", "gpu", "sys", "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "unified", "mmio",
    "v2", "v4", "v8",
}  # fmt: skip


def _shape(i: Instruction) -> tuple[str, int]:
    """Element type and number of elements."""
    words = i.words[1:]
    for word in words[:-1]:
        if word not in _PLAIN_WORDS and word not in _SPACES and not word.startswith(("L1::", "L2::")):
            raise Unknown(f"the modifier '.{word}' isn't emulated here")
    count = next((int(word[1:]) for word in words if word in ("v2", "v4", "v8")), 1)
    return words[-1], count


@handles("ld", "ldu")
def load(m: Machine, i: Instruction) -> Action:
    """ld of every space, with vectors; bytes of signed types are extended."""
    kind, count = _shape(i)
    space, width = space_of(i.words), TYPE_BYTES[kind]
    if kind == "b128":
        return _load_wide(m, i, space)
    target = i.operands[0]
    results = target.items if isinstance(target, Vector) else (target,)
    signed = np.dtype(f"i{width}") if kind[0] == "s" else None
    rows = [m.destination(result, np.dtype(f"u{width}")) for result in results]
    for row in rows:
        if row.dtype.itemsize < width:
            raise Unknown("the result is narrower than the type")
    operand = i.operands[1]
    if space == "param" and isinstance(operand.base, Symbol):
        place = m.variables.parameters[operand.base.name] + operand.base.offset + operand.offset
        if place % width:
            raise Unknown("a parameter isn't aligned")
        values = m.parameters.rows(width, 1)
        first = place // width

        def run_parameter() -> None:
            ix = m.ix
            for number, row in enumerate(rows):
                value = values[first + number]
                row[ix] = value if signed is None else value.view(signed)

        return run_parameter
    address, strong, fixed = address_of(m, operand), not _STRONG.isdisjoint(i.words), "nc" in i.words

    def run() -> None:
        m.looks += strong
        addresses = address()
        if fixed:
            _check_fixed(m, addresses, width * count)
        values = read(m, space, addresses, width, count, strong)
        if signed is not None:
            values = values.view(signed)
        ix = m.ix
        if count == 1:
            rows[0][ix] = values
        else:
            for number, row in enumerate(rows):
                row[ix] = values[:, number]

    return run


def _check_fixed(m: Machine, addresses: np.ndarray, size: int) -> None:
    """Raises Fault where running lanes load by .nc what a kernel has written, in one that waits for others.

    Compilers may move such loads to before the wait, wherever they stand.
    """
    if m.waited is None:
        return
    for known, positions in m.memory.parts(addresses.view(np.uint64), size):
        written = known.was_written(addresses[positions] - known.base, size)
        if written.any():
            raise Fault(
                "ld.global.nc of memory that a kernel has written: the load may be moved before griddepcontrol.wait",
                np.arange(m.n)[positions][written],
            )


def _load_wide(m: Machine, i: Instruction, space: str) -> Action:
    row = m.register(i.operands[0]).reshape(m.count, 2)
    address = address_of(m, i.operands[1])

    def run() -> None:
        row[m.ix] = read(m, space, address(), 8, 2)

    return run


@handles("st")
def store(m: Machine, i: Instruction) -> Action:
    """st of every space, with vectors."""
    kind, count = _shape(i)
    space, width = space_of(i.words), TYPE_BYTES[kind]
    address = address_of(m, i.operands[0])
    value = i.operands[1]
    if kind == "b128":
        wide = m.register(value).reshape(m.count, 2)
        return lambda: write(m, space, address(), wide[m.ix], 8, 2)
    items = value.items if isinstance(value, Vector) else (value,)
    rows = [m.source(item, np.dtype(f"u{width}")) for item in items]
    strong = not _STRONG.isdisjoint(i.words)
    if count == 1:
        row = rows[0]
        return lambda: write(m, space, address(), row[m.ix], width, 1, strong)

    def run() -> None:
        ix = m.ix
        write(m, space, address(), np.stack([row[ix] for row in rows], axis=1), width, count, strong)

    return run


@handles("cvta")
def convert_address(m: Machine, i: Instruction) -> Action:
    """cvta, cvta.to"""
    space = space_of(i.words)
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space, 0)
    dtype = dtype_of(i.words[-1])
    if dtype.itemsize != 8:
        raise Unknown("32-bit generic addresses aren't emulated")
    row, to = m.source(i.operands[1], np.uint64), m.destination(i.operands[0], np.uint64)
    step = np.uint64(window)
    if "to" in i.words:

        def back() -> None:
            values = row[m.ix]
            if window and (values >> np.uint64(60) != np.uint64(window >> 60)).any():
                raise Fault(f"cvta.to.{space} of an address that isn't one of {space} memory")
            to[m.ix] = values - step

        return back

    def run() -> None:
        to[m.ix] = row[m.ix] + step

    return run


@handles("isspacep")
def is_space(m: Machine, i: Instruction) -> Action:
    """isspacep"""
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}.get(space_of(i.words), 0) >> 60
    row, to = m.source(i.operands[1], np.uint64), m.destination(i.operands[0], bool)

    def run() -> None:
        to[m.ix] = row[m.ix] >> np.uint64(60) == np.uint64(window)

    return run


# Atomic operations ----------------------------------------------------------------------------------------------------


def _increment(old: np.ndarray, limit: np.ndarray) -> np.ndarray:
    return np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1))


def _decrement(old: np.ndarray, limit: np.ndarray) -> np.ndarray:
    return np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))


def _atomic_function(word: str, kind: str) -> Callable[..., np.ndarray]:
    functions: dict[str, Callable[..., Any]] = {
        "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
        "xor": np.bitwise_xor, "exch": lambda old, new: new, "inc": _increment, "dec": _decrement,
        "cas": lambda old, expected, new: np.where(old == expected, new, old),
    }  # fmt: skip
    function = functions[word]
    if kind in ("f32", "f64"):
        return lambda a, b: fl.canonical(function(a, b)) if a.dtype == np.float32 else function(a, b)
    base = kind.removesuffix("x2")
    if base in ("f16", "bf16"):
        function = (fl.of_f16 if base == "f16" else fl.of_bf16)(function)
        return fl.of_pairs(function, dtype_of(base)) if kind.endswith("x2") else function
    return function


@handles("atom", "red")
def atomic(m: Machine, i: Instruction) -> Action:
    """atom, red: lanes one after the other, in the order of their numbers."""
    known = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
    kind, space = i.words[-1], space_of(i.words)
    name = next((word for word in i.words[1:] if word in known), None)
    if name is None or "v2" in i.words or "v4" in i.words:
        raise Unknown("this atomic operation isn't emulated")
    dtype = dtype_of(kind)
    width = dtype.itemsize
    function = _atomic_function(name, kind)
    first = 1 if i.opcode == "atom" else 0
    to = m.destination(i.operands[0], dtype) if first else None
    address = address_of(m, i.operands[first])
    rows = [m.source(operand, dtype) for operand in i.operands[first + 1 :]]

    def one_space(where: str, addresses: np.ndarray, operands: list[np.ndarray]) -> np.ndarray:
        check_aligned(addresses, width)
        result = np.empty(len(addresses), dtype)
        if m.profile:
            record(m, where, addresses, width, True)
        for buffer, offsets, positions in _places(m, where, addresses, width, True):
            if where == "shared":
                m.shared.check_readable(offsets, width, 1)
                m.shared.mark(offsets, width, 1, WRITTEN | UNFENCED)
                if m.races is not None:
                    m.races.forget(offsets, width)
            view = buffer.rows(width, 1).view(dtype)
            places = offsets // width
            chosen = [operand[positions] for operand in operands]
            result[positions] = _apply_in_order(view, places, chosen, function)
        return result

    def run() -> None:
        ix = m.ix
        m.looks += 1
        addresses, operands = address(), [row[ix] for row in rows]
        if space != "generic":
            result = one_space(space, addresses, operands)
        else:
            lanes, result = m.lanes, np.empty(m.n, dtype)
            for where, window, positions in _split_generic(addresses):
                m.select(lanes[positions])
                result[positions] = one_space(
                    where, addresses[positions] - window, [operand[positions] for operand in operands]
                )
            m.select(lanes)
        if to is not None:
            to[m.ix] = result

    return run


def _apply_in_order(view: np.ndarray, places: np.ndarray, operands: list[np.ndarray], function: Any) -> np.ndarray:
    """Applies a function to elements of a view, one lane after the other where they meet; returns the old values."""
    result = np.empty(len(places), view.dtype)
    left = np.arange(len(places))
    while len(left):
        # The first lane of each place, then the next one of each.
        _, index = np.unique(places[left], return_index=True)
        now = left[index]
        old = view[places[now]]
        result[now] = old
        view[places[now]] = function(old, *(operand[now] for operand in operands))
        keep = np.ones(len(left), bool)
        keep[index] = False
        left = left[keep]
    return result
