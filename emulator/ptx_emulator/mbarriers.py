# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Handlers of mbarriers: barriers in shared memory that count arrivals and bytes of asynchronous copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptx_emulator import access
from ptx_emulator.copies import BULK, copies
from ptx_emulator.decode import Unknown, handles, take
from ptx_emulator.machine import AWAY, Action, Machine
from ptx_emulator.memory import BARRIER, PENDING, SHARED_BASE, Fault
from ptx_emulator.text import Address, Instruction, Sink

_MOST = (1 << 20) - 1
_ORDER = (
    "release", "acquire", "relaxed", "cta", "cluster", "gpu", "shared", "shared::cta", "shared::cluster", "b64",
)  # fmt: skip


@dataclass
class MBarrier:
    """One barrier.

    Attributes:
        expected: arrivals of a phase.
        left: arrivals that the running phase still waits for.
        bytes: of copies that it still waits for.
        phase: its number, from 0.
        fenced: whether asynchronous copies can see it.
        origin: warp + 1 and clock of its initialisation, where races are looked for.
        waited: whether a thread arrived that had waited for the kernels before.
    """

    expected: int
    left: int
    bytes: int = 0
    phase: int = 0
    fenced: bool = False
    origin: tuple[int, int] = (0, 0)
    waited: bool = False

    def __str__(self) -> str:
        return f"phase {self.phase}, {self.left} of {self.expected} arrivals and {self.bytes} bytes are missing"


def keys_of(m: Machine, addresses: np.ndarray) -> list[tuple[tuple[int, int], np.ndarray]]:
    """The barriers at addresses, (block, address), with the positions of the lanes that name them."""
    access.check_aligned(addresses, 8)
    slots, local = access.cluster_slots(m, addresses)
    limit = SHARED_BASE + m.shared.size - 8
    bad = (local < SHARED_BASE) | (local > limit)
    if bad.any():
        raise Fault(f"an mbarrier lies outside of the {m.shared.size} bytes of shared memory", np.flatnonzero(bad))
    if len(local) == 1:
        return [((int(slots[0]), int(local[0])), np.zeros(1, np.int64))]
    combined = slots << 32 | local
    result = []
    for key in np.unique(combined):
        result.append(((int(key) >> 32, int(key) & 0xFFFFFFFF), np.flatnonzero(combined == key)))
    return result


def find(m: Machine, key: tuple[int, int], positions: Any = None) -> MBarrier:
    """The barrier; Fault where none was initialised there."""
    barrier = m.mbarriers.get(key)
    if barrier is None:
        raise Fault(f"no mbarrier was initialised at byte {key[1] - SHARED_BASE} of shared memory", positions)
    if m.races is not None and positions is not None:
        late = m.races.clocks[m.row[m.lanes[positions]], barrier.origin[0]] < barrier.origin[1]
        if late.any():
            raise Fault("the mbarrier is used without a barrier after its initialisation", positions[late])
    return barrier


def settle(m: Machine, key: tuple[int, int], barrier: MBarrier) -> None:
    """Ends the phase if nothing is missing, and wakes those who wait for it."""
    if barrier.left or barrier.bytes:
        return
    if m.races is not None:
        m.races.end_phase(key, (key, "done"))
    barrier.phase += 1
    barrier.left = barrier.expected
    m.polls = 0
    for pc, lanes in m.waiting.pop(key, ()):
        m.add(pc, lanes)


def arrive(
    m: Machine, key: tuple[int, int], count: int, positions: Any = None, lanes: np.ndarray | None = None
) -> None:
    """Notes arrivals, those of lanes."""
    barrier = find(m, key, positions)
    if count > barrier.left:
        where = f"the mbarrier at byte {key[1] - SHARED_BASE}"
        raise Fault(
            f"{count} arrivals at {where}, whose phase expects {barrier.left} more of {barrier.expected}", positions
        )
    barrier.left -= count
    if m.waited is not None and lanes is not None:
        barrier.waited |= bool(m.waited[lanes].any())
    if m.races is not None and lanes is not None:
        m.races.release(key, lanes)
    settle(m, key, barrier)


def expect(m: Machine, key: tuple[int, int], count: int, positions: Any = None) -> None:
    """Notes bytes to come."""
    barrier = find(m, key, positions)
    barrier.bytes += count
    if not -_MOST <= barrier.bytes <= _MOST:
        raise Fault(f"an mbarrier counts at most {_MOST} bytes, but this one expects {barrier.bytes}", positions)


def complete(m: Machine, key: tuple[int, int], count: int) -> None:
    """Notes bytes that came."""
    barrier = find(m, key)
    barrier.bytes -= count
    settle(m, key, barrier)


@handles("mbarrier")
def mbarrier(m: Machine, i: Instruction) -> Action:
    """mbarrier of every kind."""
    word = i.words[1]
    makers: dict[str, Any] = {
        "init": _init, "inval": _invalidate, "arrive": _arrive, "arrive_drop": _arrive, "expect_tx": _expect,
        "complete_tx": _expect, "try_wait": _wait, "test_wait": _wait,
    }  # fmt: skip
    if word not in makers:
        raise Unknown("this operation of mbarriers isn't emulated")
    return makers[word](m, i)


def _init(m: Machine, i: Instruction) -> Action:
    address, count = access.address_of(m, i.operands[0]), m.source(i.operands[1], np.uint32)

    def run() -> None:
        counts = count[m.ix]
        for key, positions in keys_of(m, address()):
            number = int(counts[positions[0]])
            if not 1 <= number <= _MOST:
                raise Fault(f"an mbarrier expects 1 to {_MOST} arrivals, not {number}", positions)
            if key in m.mbarriers:
                raise Fault("mbarrier.init of an mbarrier that wasn't invalidated before", positions)
            start = key[0] * m.shared.stride + key[1] - SHARED_BASE
            if (m.shared.state.buffer[start : start + 8] & PENDING).any():
                raise Fault("mbarrier.init where a copy that wasn't waited for is writing", positions)
            m.shared.state.buffer[start : start + 8] = BARRIER
            m.mbarriers[key] = MBarrier(number, number)
            if m.races is not None:
                lane = int(m.lanes[positions[0]])
                warp = int(m.warp[lane]) + 1
                m.mbarriers[key].origin = warp, int(m.races.clocks[m.row[lane], warp])

    return run


def _invalidate(m: Machine, i: Instruction) -> Action:
    address = access.address_of(m, i.operands[0])

    def run() -> None:
        for key, positions in keys_of(m, address()):
            find(m, key, positions)
            if key in m.waiting:
                raise Fault("mbarrier.inval of an mbarrier that threads wait for", positions)
            del m.mbarriers[key]
            start = key[0] * m.shared.stride + key[1] - SHARED_BASE
            m.shared.state.buffer[start : start + 8] = 0

    return run


def _arrive(m: Machine, i: Instruction) -> Action:
    words = take(i.words[2:], "expect_tx", "noComplete", *_ORDER)
    if "noComplete" in words:
        raise Unknown("mbarrier.arrive.noComplete isn't emulated")
    place = next(number for number, operand in enumerate(i.operands) if isinstance(operand, Address))
    result = i.operands[0] if place else None
    to = None if result is None or isinstance(result, Sink) else m.destination(result, np.uint64)
    address = access.address_of(m, i.operands[place])
    rest = i.operands[place + 1 :]
    amount = m.source(rest[0], np.uint32) if rest else None
    expects, drops = "expect_tx" in words, i.words[1] == "arrive_drop"

    def run() -> None:
        ix = m.ix
        amounts = None if amount is None else amount[ix].astype(np.int64)
        states = np.zeros(m.n, np.uint64)
        for key, positions in keys_of(m, address()):
            barrier = find(m, key, positions)
            states[positions] = barrier.phase
            count = len(positions)
            if expects:
                assert amounts is not None
                expect(m, key, int(amounts[positions].sum()), positions)
            elif amounts is not None:
                count = int(amounts[positions].sum())
            if drops:
                barrier.expected -= len(positions)
            arrive(m, key, count, positions, m.lanes[positions])
        if to is not None:
            to[ix] = states

    return run


def _expect(m: Machine, i: Instruction) -> Action:
    address, amount = access.address_of(m, i.operands[0]), m.source(i.operands[1], np.uint32)
    completes = i.words[1] == "complete_tx"

    def run() -> None:
        amounts = amount[m.ix].astype(np.int64)
        for key, positions in keys_of(m, address()):
            count = int(amounts[positions].sum())
            if completes:
                find(m, key, positions)
                complete(m, key, count)
            else:
                expect(m, key, count, positions)

    return run


def _wait(m: Machine, i: Instruction) -> Action:
    parity = "parity" in take(i.words[2:], "parity", *_ORDER)
    to = m.destination(i.operands[0], bool)
    address = access.address_of(m, i.operands[1])
    row = m.source(i.operands[2], np.uint32 if parity else np.uint64)
    blocks = i.words[1] == "try_wait"

    def run() -> Any:
        lanes, ix = m.lanes, m.ix
        wanted = row[ix]
        done = np.zeros(m.n, bool)
        keys = keys_of(m, address())
        for key, positions in keys:
            barrier = find(m, key, positions)
            asked = wanted[positions]
            if parity:
                if (asked > 1).any():
                    raise Fault("the parity of a phase is 0 or 1", positions[asked > 1])
                done[positions] = barrier.phase & 1 != asked
            else:
                done[positions] = barrier.phase > asked
            if barrier.waited and m.waited is not None:
                m.waited[lanes[positions[done[positions]]]] = True
            if m.races is not None and done[positions].any():
                m.races.acquire((key, "done"), lanes[positions[done[positions]]])
        if done.all():
            to[ix] = True
            return None
        if not blocks:
            # Threads that poll get their answer when nothing else can run.
            to[ix] = done
            m.add(m.pc + 1, lanes[done])
            late = lanes[~done]
            known = m.idle.get(m.pc + 1)
            m.idle[m.pc + 1] = late if known is None else np.sort(np.concatenate([known, late]))
            return AWAY
        for key, positions in keys:
            late = positions[~done[positions]]
            if len(late):
                m.waiting.setdefault(key, []).append((m.pc, lanes[late]))
        if done.any():
            m.select(lanes[done])
            to[m.ix] = True
            m.add(m.pc + 1, m.lanes)
        return AWAY

    return run


def _arrive_after_copies(m: Machine, i: Instruction) -> Action:
    """cp.async.mbarrier.arrive: an arrival when the thread's copies so far are over."""
    address, counted = access.address_of(m, i.operands[0]), "noinc" in i.words

    def run() -> None:
        known = copies(m)
        lanes = m.lanes
        keys = keys_of(m, address())
        # What was not committed belongs to this arrival too.
        known.committed[m.ix] += 1
        before = known.committed.copy()
        for key, positions in keys:
            barrier = find(m, key, positions)
            if not counted:
                barrier.left += len(positions)

        def later() -> None:
            known.finish(lanes, before)
            for key, positions in keys:
                arrive(m, key, len(positions), None, lanes[positions])

        m.pending.append(later)

    return run


BULK["cp.async.mbarrier"] = _arrive_after_copies


@handles("mapa")
def map_address(m: Machine, i: Instruction) -> Action:
    """mapa: the address of the same byte in another block of the cluster."""
    dtype = np.dtype(np.uint64 if i.words[-1] == "u64" else np.uint32)
    generic = access.space_of(i.words) == "generic"
    row = m.source(i.operands[1], dtype)
    rank, to = m.source(i.operands[2], np.uint32), m.destination(i.operands[0], dtype)

    def run() -> None:
        ix = m.ix
        if (rank[ix] >= np.prod(m.cluster)).any():
            raise Fault("mapa names a block that isn't in the cluster")
        if generic and (row[ix] >> np.uint64(60) != 1).any():
            raise Fault("mapa of an address that isn't one of shared memory")
        to[ix] = row[ix] + ((rank[ix].astype(dtype) + dtype.type(1)) << dtype.type(access.CLUSTER_SHIFT))

    return run
