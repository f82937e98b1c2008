# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds races in shared memory: accesses of two threads to a byte, one of them a write, that nothing orders.

Every warp has a clock, and knows how far it has seen the clocks of the others: barriers and mbarriers pass that on. An
access races with an earlier one of another warp whose clock it has not seen. Writes by asynchronous copies count as
those of one more warp, and reads by asynchronous operations as those of another, seen by who waits for them.

Lanes of one warp are ordered by what waits for memory: bar.warp.sync, barriers, waits for mbarriers. Each begins an
epoch of the warp, and an access races with an earlier one of another lane in the same epoch. Shuffles and votes don't
order memory, though lanes meet there.

Atomic, volatile and relaxed accesses count as ordered; single bytes aren't looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ptx_emulator.memory import Fault

if TYPE_CHECKING:
    from ptx_emulator.machine import Machine

_PLACE, _WARP = np.uint64(40), np.uint64(32)
_CLOCK = np.uint64(0xFFFFFFFF)
#: Of who accessed something last: warp + 1, epoch, lane. In place of a lane, several.
_OWN_WARP, _EPOCH, _LANES = np.uint64(48), np.uint64(6), np.uint64(63)
_SEVERAL = np.uint64(32)


class Races:
    """Clocks of the warps of a machine, and the last accesses to each part of its shared memory.

    A tag of two bytes is the last write: place of the instruction, warp + 1 (0 for none, the number of warps + 1 for
    asynchronous copies), clock. For each four bytes and warp there is the clock of its last read. Beside both stands
    which lane it was, in which epoch of its warp.
    """

    def __init__(self, m: Machine) -> None:
        self.m = m
        size = len(m.shared.data.buffer)
        self.tags = np.zeros(size // 2, np.uint64)
        self.reads = np.zeros((size // 4, m.warps + 1), np.uint32)
        self.writer = np.zeros(size // 2, np.uint64)
        self.reader = np.zeros(size // 4, np.uint64)
        self.epochs = np.zeros(m.warps * m.slots, np.uint64)
        self.asynchronous = m.warps + 1
        #: By warp of a block: how far it has seen nobody, each warp, writes by copies, and asynchronous reads.
        self.clocks = np.zeros((m.warps * m.slots, m.warps + 3), np.uint32)
        self._seen_reads = np.r_[1 : m.warps + 1, m.warps + 2]
        self.barriers: dict[Any, np.ndarray] = {}
        self.copied = np.zeros(m.slots, np.uint32)
        self.consumed = np.zeros(m.slots, np.uint32)

    def reset(self) -> None:
        """As before any access."""
        self.tags.fill(0)
        self.reads.fill(0)
        self.writer.fill(0)
        self.reader.fill(0)
        self.epochs.fill(0)
        self.clocks.fill(0)
        # Nobody's writes are seen by everyone, and those of a warp by itself.
        self.clocks[:, 0] = 0xFFFFFFFF
        rows = np.arange(len(self.clocks))
        self.clocks[rows, rows // self.m.slots + 1] = 1
        self.barriers = {}
        self.copied.fill(0)
        self.consumed.fill(0)

    # Accesses ---------------------------------------------------------------------------------------------------------

    def read(self, offsets: np.ndarray, size: int) -> None:
        """Running lanes read rows of bytes."""
        if size == 1:
            return
        m = self.m
        rows = m.row[m.ix]
        self._check_writes(offsets, size, self.clocks[rows], "read of")
        own = self._own(rows)
        self._check_lanes(self.writer.reshape(-1, size // 2), offsets, size, own, "read of", "wrote")
        self._note_reads(offsets, size, rows)
        for word in range(size // 4):
            self._note_readers((offsets >> 2) + word, own)

    def check_read(self, offsets: np.ndarray, size: int, lanes: np.ndarray) -> None:
        """Lanes of one block start an asynchronous operation that reads rows of bytes."""
        self._check_writes(offsets, size, self.clocks[self._rows(lanes)].min(axis=0), "an asynchronous read of")

    def consume(self, offsets: np.ndarray, size: int, lanes: np.ndarray) -> None:
        """An asynchronous operation, which lanes of one block waited for, has read rows of bytes."""
        slot = int(self.m.slot[lanes[0]])
        self.consumed[slot] += 1
        words = self.reads.reshape(-1, size // 4, self.m.warps + 1)
        words[offsets // size, :, self.m.warps] = self.consumed[slot]
        self.clocks[self._rows(lanes), self.m.warps + 2] = self.consumed[slot]

    def _rows(self, lanes: np.ndarray) -> np.ndarray:
        """The warps of lanes, which are one lane, or whole warps."""
        return self.m.row[lanes[::32]]

    def write(self, offsets: np.ndarray, size: int) -> None:
        """Running lanes write rows of bytes."""
        if size == 1:
            return
        m = self.m
        rows = m.row[m.ix]
        seen = self.clocks[rows]
        self._check_writes(offsets, size, seen, "write over")
        self._check_reads(offsets, size, seen)
        own = self._own(rows)
        if size >= 4:
            self._check_lanes(self.reader.reshape(-1, size // 4), offsets, size, own, "write over", "read")
        self.writer.reshape(-1, size // 2)[offsets // size] = own[:, None]
        warps = m.warp[m.ix]
        clocks = self.clocks[rows, warps + 1].astype(np.uint64)
        tags = np.uint64(m.pc) << _PLACE | (warps + 1).astype(np.uint64) << _WARP | clocks
        self.tags.reshape(-1, size // 2)[offsets // size] = tags[:, None]

    def forget(self, offsets: np.ndarray, size: int) -> None:
        """Atomic accesses are ordered with everything."""
        if size > 1:
            self.tags.reshape(-1, size // 2)[offsets // size] = 0
            self.writer.reshape(-1, size // 2)[offsets // size] = 0

    def overwrite(self, offsets: np.ndarray, lane: int) -> None:
        """A lane starts an asynchronous copy to pieces of 16 bytes."""
        seen = self.clocks[self.m.row[lane]]
        self._check_writes(offsets, 16, seen, "an asynchronous copy over")
        self._check_reads(offsets, 16, seen)

    def arrived(self, offsets: np.ndarray, slot: int, key: Any) -> None:
        """An asynchronous copy is over; those who wait for the mbarrier see it."""
        self.copied[slot] += 1
        clock = self.copied[slot]
        tag = np.uint64(self.m.pc) << _PLACE | np.uint64(self.asynchronous) << _WARP | np.uint64(clock)
        self.tags.reshape(-1, 8)[offsets // 16] = tag
        self.writer.reshape(-1, 8)[offsets // 16] = 0
        known = self._barrier(key)
        known[self.asynchronous] = max(known[self.asynchronous], clock)

    def seen_by(self, slot: int, lanes: np.ndarray) -> np.ndarray:
        """Which pairs of bytes of a block's shared memory were last written by what one of its lanes has seen."""
        length = self.m.shared.stride // 2
        tags = self.tags[slot * length : (slot + 1) * length]
        known = self.clocks[np.unique(self.m.row[lanes])].max(axis=0)
        return (tags & _CLOCK) <= known[((tags >> _WARP) & np.uint64(0xFF)).astype(np.int64)]

    def _own(self, rows: np.ndarray) -> np.ndarray:
        """Warp, epoch and lane of each running lane."""
        m = self.m
        warps, lanes = (m.warp[m.ix] + 1).astype(np.uint64), m.lane[m.ix].astype(np.uint64)
        return warps << _OWN_WARP | self.epochs[rows] << _EPOCH | lanes

    def _check_lanes(
        self, last: np.ndarray, offsets: np.ndarray, size: int, own: np.ndarray, what: str, did: str
    ) -> None:
        """Raises Fault where another lane of the same warp, in the same epoch, was the last at rows of bytes."""
        # Where nothing differs, the subtraction makes the largest number.
        bad = (last[offsets // size] ^ own[:, None]) - np.uint64(1) < _LANES
        if bad.any():
            position = int(np.flatnonzero(bad.any(axis=1))[0])
            lane = int(last[offsets[position] // size][bad[position]][0] & _LANES)
            who = "other lanes" if lane >= _SEVERAL else f"lane {lane}"
            where = int(offsets[position]) % self.m.shared.stride
            raise Fault(
                f"race in shared memory: {what} byte {where}, which {who} of the same warp {did}: no bar.warp.sync or "
                "barrier orders the two",
                [position],
            )

    def _note_readers(self, words: np.ndarray, own: np.ndarray) -> None:
        """Notes who read words last; several lanes of one epoch are no longer told apart."""
        before = self.reader[words]
        self.reader[words] = own
        several = ((before ^ own) - np.uint64(1) < _LANES) | (self.reader[words] != own)
        if several.any():
            self.reader[words[several]] = own[several] & ~_LANES | _SEVERAL

    def synchronise(self, lanes: np.ndarray) -> None:
        """Lanes have waited for the others of their warps: what these did before is seen."""
        self.epochs[np.unique(self.m.row[lanes])] += np.uint64(1)

    def _note_reads(self, offsets: np.ndarray, size: int, rows: np.ndarray) -> None:
        warps = rows // self.m.slots
        clocks = self.clocks[rows, warps + 1]
        for word in range(max(size // 4, 1)):
            self.reads[(offsets >> 2) + word, warps] = clocks

    def _check_writes(self, offsets: np.ndarray, size: int, seen: np.ndarray, what: str) -> None:
        """Checks rows of bytes for who has seen so far: one row of clocks for each, or one for all."""
        tags = self.tags.reshape(-1, size // 2)[offsets // size]
        if size > 4:
            # Registers are four bytes at least: what is written together is in pairs of tags.
            first = tags[:, ::2]
            tags = first if (first == tags[:, 1::2]).all() else tags
        writers = ((tags >> _WARP) & np.uint64(0xFF)).astype(np.int64)
        known = seen[writers] if seen.ndim == 1 else np.take_along_axis(seen, writers, axis=1)
        bad = (tags & _CLOCK) > known
        if bad.any():
            position, column = (int(number) for number in np.argwhere(bad)[0])
            tag = int(tags[position, column])
            writer, place = (tag >> 32 & 0xFF) - 1, tag >> 40
            who = "an asynchronous copy" if writer == self.m.warps else f"warp {writer}"
            line = self.m.function.instructions[place].line
            where = int(offsets[position]) % self.m.shared.stride
            raise Fault(
                f"race in shared memory: {what} byte {where}, which {who} wrote at line {line}: nothing orders the two",
                [position] if not what.startswith("an") else None,
            )

    def _check_reads(self, offsets: np.ndarray, size: int, seen: np.ndarray) -> None:
        if size < 4:
            return
        clocks = self.reads.reshape(-1, size // 4, self.m.warps + 1)[offsets // size]
        bad = clocks > seen[..., None, self._seen_reads]
        if bad.any():
            position, _, reader = (int(number) for number in np.argwhere(bad)[0])
            where = int(offsets[position]) % self.m.shared.stride
            who = f"warp {reader}" if reader < self.m.warps else "an asynchronous operation"
            raise Fault(
                f"race in shared memory: write over byte {where}, which {who} read: nothing orders the two",
                [position] if seen.ndim == 2 else None,
            )

    # Order ------------------------------------------------------------------------------------------------------------

    def _barrier(self, key: Any) -> np.ndarray:
        known = self.barriers.get(key)
        if known is None:
            known = self.barriers[key] = np.zeros(self.m.warps + 3, np.uint32)
        return known

    def release(self, key: Any, lanes: np.ndarray) -> None:
        """Lanes of one block arrive somewhere: who waits there sees what their warps did until now."""
        rows = np.unique(self.m.row[lanes])
        known = self._barrier(key)
        np.maximum(known, self.clocks[rows].max(axis=0), out=known)
        self.clocks[rows, rows // self.m.slots + 1] += 1

    def acquire(self, key: Any, lanes: np.ndarray) -> None:
        """Lanes of one block go on from where they waited."""
        self.synchronise(lanes)
        known = self.barriers.get(key)
        if known is not None:
            rows = np.unique(self.m.row[lanes])
            self.clocks[rows] = np.maximum(self.clocks[rows], known)

    def end_phase(self, key: Any, phase: Any) -> None:
        """What arrived so far is what waiters for a phase see."""
        self.barriers[phase] = self._barrier(key).copy()
