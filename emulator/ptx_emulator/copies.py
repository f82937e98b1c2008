# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Handlers of cp.async: copies by threads that are over when the thread has waited for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptx_emulator import access
from ptx_emulator.decode import Unknown, handles
from ptx_emulator.machine import Action, Machine
from ptx_emulator.memory import PENDING, UNFENCED, WRITTEN, Fault
from ptx_emulator.text import Imm, Instruction


@dataclass
class Copy:
    """Copies of one instruction that aren't over: lanes, their groups, where to, what."""

    lanes: np.ndarray
    groups: np.ndarray
    offsets: np.ndarray
    data: np.ndarray


class Copies:
    """All copies that aren't over, and the number of groups that each lane has committed."""

    def __init__(self, m: Machine) -> None:
        self.machine = m
        self.committed = np.zeros(m.count, np.int64)
        self.open: list[Copy] = []

    def finish(self, lanes: np.ndarray, before: np.ndarray) -> None:
        """Ends the copies of lanes in groups below a number, given for every lane of the machine."""
        chosen = np.zeros(self.machine.count, bool)
        chosen[lanes] = True
        kept = []
        for copy in self.open:
            over = chosen[copy.lanes] & (copy.groups < before[copy.lanes])
            if over.any():
                shared = self.machine.shared
                width, count = copy.data.dtype.itemsize, 1 if copy.data.ndim == 1 else copy.data.shape[1]
                shared.data.store(copy.offsets[over], copy.data[over], width, count)
                shared.mark(copy.offsets[over], width, count, WRITTEN | UNFENCED)
                self._note(copy.lanes[over], copy.offsets[over], width * count)
            if not over.all():
                rest = ~over
                kept.append(Copy(copy.lanes[rest], copy.groups[rest], copy.offsets[rest], copy.data[rest]))
        self.open = kept

    def _note(self, lanes: np.ndarray, offsets: np.ndarray, size: int) -> None:
        m = self.machine
        if m.races is not None:
            running = m.lanes
            m.select(lanes)
            m.races.write(offsets, size)
            m.select(running)


def copies(m: Machine) -> Copies:
    """The copies of the running launch."""
    known = m.extra.get("copies")
    if known is None:
        known = m.extra["copies"] = Copies(m)
    return known


@handles("cp")
def copy(m: Machine, i: Instruction) -> Action:
    """cp.async in all its forms."""
    words = i.words
    if "bulk" in words:
        handler = BULK.get("cp")
        if handler is None:
            raise Unknown("bulk copies aren't emulated")
        return handler(m, i)
    if words[2] == "commit_group":
        return lambda: _commit(m)
    if words[2] in ("wait_group", "wait_all"):
        left = i.operands[0].value if words[2] == "wait_group" else None
        return lambda: _wait(m, left)
    if words[2] == "mbarrier":
        handler = BULK.get("cp.async.mbarrier")
        if handler is None:
            raise Unknown("cp.async.mbarrier isn't emulated")
        return handler(m, i)
    return _copy(m, i)


#: Handlers of copies by the asynchronous proxy.
BULK: dict[str, Any] = {}


def _commit(m: Machine) -> None:
    copies(m).committed[m.ix] += 1


def _wait(m: Machine, left: int | None) -> None:
    known = copies(m)
    if left is None:
        known.committed[m.ix] += 1
        left = 0
    if known.open:
        known.finish(m.lanes, known.committed - left)


def _copy(m: Machine, i: Instruction) -> Action:
    size = i.operands[2].value
    if size not in (4, 8, 16) or (size != 16 and "cg" in i.words):
        raise Unknown("cp.async copies 4, 8 or 16 bytes (16 with .cg)")
    to, from_ = access.address_of(m, i.operands[0]), access.address_of(m, i.operands[1])
    length: Any = i.operands[3] if len(i.operands) > 3 else Imm(size)
    flags = m.source(length, bool) if getattr(length, "bits", 0) == 1 else None
    whole = isinstance(length, Imm) and length.value == size
    length_row = None if whole or flags is not None else m.source(length, np.uint32)
    width, count = (4, 1) if size == 4 else (8, size // 8)

    def run() -> None:
        destination, source = to(), from_()
        access.check_aligned(destination, size)
        offsets = access.shared_offsets(m, destination, size)
        if flags is not None:
            lengths = np.where(flags[m.ix], 0, size)
        elif length_row is not None:
            lengths = length_row[m.ix].astype(np.int64)
        else:
            lengths = None
        data = _read(m, source, lengths, size).view(np.dtype(f"u{width}"))
        data = data.reshape(-1) if count == 1 else data
        states = m.shared.state.load(offsets, width, count)
        pending = states & states.dtype.type(int.from_bytes(bytes([PENDING] * width), "little"))
        if pending.any():
            raise Fault("copy to shared memory that another copy, which wasn't waited for, is writing")
        m.shared.mark(offsets, width, count, PENDING)
        known = copies(m)
        known.open.append(Copy(m.lanes, known.committed[m.ix].copy(), offsets, data))

    return run


def _read(m: Machine, source: np.ndarray, lengths: np.ndarray | None, size: int) -> np.ndarray:
    """The bytes to copy, zeros where a lane copies fewer."""
    if lengths is None or (lengths == size).all():
        words = access.read(m, "global", source, 4, size // 4)
        return np.ascontiguousarray(words).view(np.uint8).reshape(-1, size)
    if (lengths > size).any():
        raise Fault(f"a copy of {size} bytes reads more", np.flatnonzero(lengths > size))
    access.check_aligned(source, size)
    data = np.zeros((m.n, size), np.uint8)
    lanes = m.lanes
    for length in np.unique(lengths):
        positions = np.flatnonzero(lengths == length)
        if length == 0:
            continue
        m.select(lanes[positions])
        for byte in range(int(length)):
            data[positions, byte] = access.read(m, "global", source[positions] + byte, 1, 1)
    m.select(lanes)
    return data
