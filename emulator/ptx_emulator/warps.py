# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Handlers of what lanes of a warp and threads of a block do together: shuffles, votes, barriers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptx_emulator.decode import Unknown, dtype_of, handles, nothing, take
from ptx_emulator.machine import AWAY, Action, Machine
from ptx_emulator.memory import Fault
from ptx_emulator.text import Imm, Instruction, Not, Pair, Sink

#: Barriers of a block.
BARRIERS = 16
_FULL = 0xFFFFFFFF


def members(m: Machine, operand: Any) -> np.ndarray | None:
    """The row of masks of members; None where the mask is that of all lanes."""
    if isinstance(operand, Imm) and operand.value & _FULL == _FULL:
        return None
    return m.source(operand, np.uint32)


@handles("shfl")
def shuffle(m: Machine, i: Instruction) -> Action:
    """shfl.sync: reads a register of another lane; Fault where that one doesn't take part."""
    if i.words[1] != "sync":
        raise Unknown("shfl without .sync doesn't exist any more")
    mode, kind = i.words[2], i.words[3]
    dtype = dtype_of(kind)
    result = i.operands[0]
    value, flag = (result.first, result.second) if isinstance(result, Pair) else (result, None)
    row = m.source(i.operands[1], np.uint32)
    amount, clamp = m.source(i.operands[2], np.int32), m.source(i.operands[3], np.int32)
    mask = members(m, i.operands[4])
    to = m.destination(value, dtype)
    to_flag = None if flag is None or isinstance(flag, Sink) else m.destination(flag, bool)

    def run() -> Any:
        if not m.converge(mask):
            return AWAY
        ix, lanes = m.ix, m.lanes
        lane = m.lane[ix]
        b, c = amount[ix] & 31, clamp[ix]
        segment = (c >> 8) & 31
        lowest = lane & segment
        highest = lowest | (c & 31 & ~segment)
        if mode == "up":
            other = lane - b
            inside = other >= highest
        elif mode == "down":
            other = lane + b
            inside = other <= highest
        else:
            other = lane ^ b if mode == "bfly" else lowest | (b & ~segment)
            inside = other <= highest
        other = np.where(inside, other, lane)
        sources = lanes - lane + other
        if m.n != m.count:
            here = np.zeros(m.count, bool)
            here[lanes] = True
            bad = ~here[sources]
            if bad.any():
                position = int(np.flatnonzero(bad)[0])
                raise Fault(f"shuffle reads lane {int(other[position])}, which doesn't take part", np.flatnonzero(bad))
        to[ix] = row[sources]
        if to_flag is not None:
            to_flag[ix] = inside
        return None

    return collective(m, run)


def collective(m: Machine, run: Any) -> Action:
    """An action that may narrow the group: lanes that it parked don't go on with the others."""

    def narrowing() -> Any:
        before = m.n
        result = run()
        if result is None and m.n != before:
            # Lanes that were parked joined, or some were left behind.
            m.add(m.pc + 1, m.lanes)
            return AWAY
        return result

    return narrowing


def warp_words(m: Machine, flags: np.ndarray) -> np.ndarray:
    """One word per running lane, with the bits of its warp's lanes whose flags (of running lanes) hold."""
    every = np.zeros(m.count, bool)
    every[m.lanes] = flags
    return np.packbits(every.reshape(-1, 32), axis=1, bitorder="little").view(np.uint32).reshape(-1)[m.row[m.ix]]


@handles("vote")
def vote(m: Machine, i: Instruction) -> Action:
    """vote.sync.all, .any, .uni and .ballot."""
    if i.words[1] != "sync":
        raise Unknown("vote without .sync doesn't exist any more")
    mode = i.words[2]
    flag = i.operands[1]
    negated = isinstance(flag, Not)
    row = m.source(flag.operand if negated else flag, bool)
    mask = members(m, i.operands[2])
    to = m.destination(i.operands[0], np.uint32 if mode == "ballot" else bool)

    def run() -> Any:
        if not m.converge(mask):
            return AWAY
        ix = m.ix
        flags = ~row[ix] if negated else row[ix]
        yes = warp_words(m, flags)
        here = warp_words(m, np.ones(m.n, bool))
        if mask is not None:
            yes, here = yes & mask[ix], here & mask[ix]
        results = {"ballot": yes, "any": yes != 0, "all": yes == here, "uni": (yes == here) | (yes == 0)}
        to[ix] = results[mode]
        return None

    return collective(m, run)


@handles("activemask")
def active_mask(m: Machine, i: Instruction) -> Action:
    """The lanes that happen to run together."""
    to = m.destination(i.operands[0], np.uint32)

    def run() -> None:
        to[m.ix] = warp_words(m, np.ones(m.n, bool))

    return run


@handles("elect")
def elect(m: Machine, i: Instruction) -> Action:
    """elect.sync: true in the lowest lane of the members."""
    result = i.operands[0]
    mask = members(m, i.operands[1])
    to_lane = None if isinstance(result.first, Sink) else m.destination(result.first, np.uint32)
    to = m.destination(result.second, bool)

    def run() -> Any:
        if not m.converge(mask):
            return AWAY
        ix = m.ix
        here = warp_words(m, np.ones(m.n, bool))
        if mask is not None:
            here = here & mask[ix]
        bit = here & (~here + np.uint32(1))
        to[ix] = bit == np.uint32(1) << m.lane[ix].astype(np.uint32)
        if to_lane is not None:
            to_lane[ix] = np.log2(bit).astype(np.uint32)
        return None

    return collective(m, run)


@handles("redux")
def reduce(m: Machine, i: Instruction) -> Action:
    """redux.sync: add, min, max, and, or, xor of a register of the members."""
    word, kind = i.words[2], i.words[-1]
    dtype = dtype_of(kind)
    row, to, mask = m.source(i.operands[1], dtype), m.destination(i.operands[0], dtype), members(m, i.operands[2])
    functions: dict[str, Any] = {
        "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }  # fmt: skip
    function = functions[word]

    def run() -> Any:
        if not m.converge(mask):
            return AWAY
        ix, rows = m.ix, m.row[m.ix]
        groups = rows.astype(np.int64) << 32
        if mask is not None:
            groups = groups | mask[ix].astype(np.int64)
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        totals = function.reduceat(row[ix][order], starts)
        which = np.empty(m.n, np.int64)
        which[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, m.n)))
        to[ix] = totals[which]
        return None

    return collective(m, run)


@handles("match")
def match(m: Machine, i: Instruction) -> Action:
    """match.any.sync, match.all.sync."""
    mode, dtype = i.words[1], dtype_of(i.words[-1])
    result = i.operands[0]
    value, flag = (result.first, result.second) if isinstance(result, Pair) else (result, None)
    row, to, mask = m.source(i.operands[1], dtype), m.destination(value, np.uint32), members(m, i.operands[2])
    to_flag = None if flag is None or isinstance(flag, Sink) else m.destination(flag, bool)

    def run() -> Any:
        if not m.converge(mask):
            return AWAY
        ix = m.ix
        values = np.zeros(m.count, dtype)
        here = np.zeros(m.count, bool)
        values[m.lanes], here[m.lanes] = row[ix], True
        grid, live = values.reshape(-1, 32), here.reshape(-1, 32)
        same = (grid[:, :, None] == grid[:, None, :]) & live[:, None, :]
        bits = np.packbits(same, axis=2, bitorder="little").view(np.uint32).reshape(-1)[ix]
        if mask is not None:
            bits = bits & mask[ix]
        if mode == "all":
            wanted = warp_words(m, np.ones(m.n, bool))
            equal = bits == (wanted if mask is None else wanted & mask[ix])
            bits = np.where(equal, bits, np.uint32(0))
            if to_flag is not None:
                to_flag[ix] = equal
        to[ix] = bits
        return None

    return collective(m, run)


# Barriers -------------------------------------------------------------------------------------------------------------


@handles("bar", "barrier")
def barrier(m: Machine, i: Instruction) -> Action:
    """bar.sync, bar.arrive, bar.red, bar.warp.sync, barrier.cluster."""
    words = i.words
    if words[1] == "warp":
        return _warp_barrier(m, members(m, i.operands[0]))
    if words[1] == "cluster":
        return _cluster_barrier(m, i)
    take(words[1:], "cta", "sync", "arrive", "red", "aligned", "popc", "and", "or", "u32", "pred")
    aligned = i.opcode == "bar" or "aligned" in words
    operands, reduction = i.operands, next((word for word in ("popc", "and", "or") if word in words), "")
    result = operands[0] if reduction else None
    if reduction:
        operands = operands[1:]
    number_row = m.source(operands[0], np.uint32)
    counts = operands[1:-1] if reduction else operands[1:]
    count_row = m.source(counts[0], np.uint32) if counts else None
    waits = "arrive" not in words
    if not waits and count_row is None:
        raise Unknown("bar.arrive without a number of threads")
    fixed = operands[0].value if isinstance(operands[0], Imm) else None
    flag_row = None
    if reduction:
        flag = operands[-1]
        flag_row = m.source(flag.operand if isinstance(flag, Not) else flag, bool)
        negated = isinstance(flag, Not)

    def run() -> Any:
        ix, lanes = m.ix, m.lanes
        if flag_row is not None:
            flags = ~flag_row[ix] if negated else flag_row[ix]
            m.extra.setdefault("barrier flags", np.zeros(m.count, bool))[lanes] = flags
        expected = m.threads if count_row is None else count_row[ix]
        if fixed is not None:
            released = _arrive(m, fixed, lanes, expected, waits, aligned)
        else:
            numbers = number_row[ix]
            released = []
            for number in np.unique(numbers):
                chosen = numbers == number
                part = m.threads if count_row is None else count_row[ix][chosen]
                released += _arrive(m, int(number), lanes[chosen], part, waits, aligned)
        if result is not None:
            _reduce_flags(m, result, reduction, released)
        if len(released) == 1 and released[0][0] == m.pc + 1 and len(released[0][1]) == len(lanes) and waits:
            return None
        for place, group in released:
            m.add(place, group)
        if not waits:
            return None
        return AWAY

    return run


def _warp_barrier(m: Machine, mask: np.ndarray | None) -> Action:
    """bar.warp.sync: lanes wait for each other, and for each other's accesses to memory."""

    def run() -> Any:
        if not m.converge(mask):
            return AWAY
        if m.races is not None:
            m.races.synchronise(m.lanes)
        return None

    return collective(m, run)


def _arrive(
    m: Machine, number: int, lanes: np.ndarray, expected: Any, waits: bool, aligned: bool
) -> list[tuple[int, np.ndarray]]:
    """Notes lanes at a barrier; what may go on: places and lanes."""
    if not 0 <= number < BARRIERS:
        raise Fault(f"a block has {BARRIERS} barriers, but this one is number {number}")
    slots = m.slot[lanes]
    if number not in m.arrived:
        m.arrived[number] = np.zeros(m.slots, np.int64)
        m.expected[number] = np.zeros(m.slots, np.int64)
        m.barriers[number] = []
    arrived, wanted, entries = m.arrived[number], m.expected[number], m.barriers[number]
    here = np.bincount(slots, minlength=m.slots)
    touched = here > 0
    goal = np.zeros(m.slots, np.int64)
    goal[slots] = expected
    if not isinstance(expected, int) and (goal[slots] != expected).any():
        raise Fault("threads of one block name different numbers of threads for one barrier")
    differs = touched & (arrived > 0) & (goal != wanted)
    if differs.any():
        first = int(np.flatnonzero(differs)[0])
        raise Fault(f"barrier {number} is waited for with {goal[first]} threads here, and {wanted[first]} elsewhere")
    if (goal[touched] % 32).any() and (goal[touched] != m.threads).any():
        raise Fault(f"barrier {number} expects a multiple of 32 threads")
    wanted[touched] = goal[touched]
    arrived += here
    if (arrived[touched] > wanted[touched]).any():
        first = int(np.flatnonzero(touched & (arrived > wanted))[0])
        raise Fault(f"{arrived[first]} threads arrived at barrier {number}, which expects {wanted[first]}")
    entries.append((m.pc + 1 if waits else -1, lanes))
    if m.races is not None:
        for slot in np.flatnonzero(touched):
            m.races.release(("bar", number, int(slot)), lanes[slots == slot])
    complete = touched & (arrived == wanted)
    if not complete.any():
        return []
    arrived[complete] = 0
    kept, freed = [], []
    for place, group in entries:
        goes = complete[m.slot[group]]
        if goes.any():
            freed.append((place, group[goes]))
        if not goes.all():
            kept.append((place, group[~goes]))
    m.barriers[number] = kept
    if m.waited is not None:
        lanes = np.concatenate([group for _, group in freed])
        m.waited[lanes] |= np.bincount(m.slot[lanes], m.waited[lanes], m.slots)[m.slot[lanes]] > 0
    if m.races is not None:
        for slot in np.flatnonzero(complete):
            key = ("bar", number, int(slot))
            for place, group in freed:
                if place >= 0:
                    m.races.acquire(key, group[m.slot[group] == slot])
            m.races.barriers.pop(key)
    if aligned:
        _check_whole_warps(m, freed)
    return [(place, group) for place, group in freed if place >= 0]


def _check_whole_warps(m: Machine, freed: list[tuple[int, np.ndarray]]) -> None:
    """Raises Fault where a part of a warp came to one `.aligned` barrier and another to another."""
    if len(freed) == 1 and len(freed[0][1]) == m.threads * m.slots:
        return
    sizes = np.bincount(m.row[m.exists], minlength=m.count // 32)
    by_place: dict[int, list[np.ndarray]] = {}
    for place, group in freed:
        by_place.setdefault(place, []).append(group)
    for groups in by_place.values():
        lanes = np.concatenate(groups)
        here = np.bincount(m.row[lanes], minlength=m.count // 32)
        partial = (here > 0) & (here != sizes)
        if partial.any():
            lane = int(np.flatnonzero(partial)[0]) * 32
            raise Fault(f"only a part of the warp of {m.describe(lane)} came to this barrier, which is for whole warps")


def _reduce_flags(m: Machine, result: Any, reduction: str, released: list[tuple[int, np.ndarray]]) -> None:
    if not released:
        return
    flags = m.extra["barrier flags"]
    lanes = np.concatenate([group for _, group in released])
    slots = m.slot[lanes]
    count = np.bincount(slots, weights=flags[lanes], minlength=m.slots).astype(np.int64)
    total = np.bincount(slots, minlength=m.slots)
    if reduction == "popc":
        m.destination(result, np.uint32)[lanes] = count[slots]
    else:
        m.destination(result, bool)[lanes] = (count > 0 if reduction == "or" else count == total)[slots]


def _cluster_barrier(m: Machine, i: Instruction) -> Action:
    """barrier.cluster.arrive and .wait: of all threads of the cluster."""
    arrives = "arrive" in i.words
    size = int(np.prod(m.cluster)) * m.threads

    def state() -> dict[str, Any]:
        known = m.extra.get("cluster barrier")
        if known is None or len(known["phase"]) != m.count:
            known = {"phase": np.zeros(m.count, np.int64), "done": np.zeros(m.slots, np.int64),
                     "arrived": np.zeros(m.slots, np.int64), "waiting": []}  # fmt: skip
            m.extra["cluster barrier"] = known
        return known

    def run() -> Any:
        known = state()
        lanes = m.lanes
        first = m.slot[lanes] - m.rank[m.slot[lanes]]
        if arrives:
            if (known["phase"][lanes] > known["done"][first]).any():
                raise Fault("barrier.cluster.arrive twice without a wait between")
            known["phase"][lanes] += 1
            known["arrived"] += np.bincount(first, minlength=m.slots)
            complete = known["arrived"] == size
            if complete.any():
                known["done"][complete] += 1
                known["arrived"][complete] = 0
                waiting, known["waiting"] = known["waiting"], []
                for place, group in waiting:
                    goes = complete[m.slot[group] - m.rank[m.slot[group]]]
                    m.add(place, group[goes])
                    if not goes.all():
                        known["waiting"].append((place, group[~goes]))
            return None
        over = known["phase"][lanes] <= known["done"][first]
        if over.all():
            return None
        known["waiting"].append((m.pc + 1, lanes[~over]))
        m.add(m.pc + 1, lanes[over])
        return AWAY

    return run


@handles("fence")
def fence(m: Machine, i: Instruction) -> Action:
    """fence: threads run in one order; what counts is what asynchronous operations see of threads' writes."""
    data = "proxy" in i.words and any(word.startswith("async") for word in i.words)
    if not data and "mbarrier_init" not in i.words:
        return nothing

    def run() -> None:
        own = m.slot[m.ix]
        slots = {int(slot) for slot in np.unique(own)}
        for key, known in m.mbarriers.items():
            known.fenced |= key[0] in slots
        if data:
            for slot in slots:
                # A fence covers the writes that the threads know of: their own, and those before a barrier.
                seen = None if m.races is None else m.races.seen_by(slot, m.lanes[own == slot])
                m.shared.fence(slot, seen)

    return run
