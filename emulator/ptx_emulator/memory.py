# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory as kernels see it: registered ranges of the host for global memory, and arrays for that of blocks.

An address in global memory is the address of the host's byte. Accesses of many lanes are one indexing of a view.
"""

from __future__ import annotations

import ctypes
import threading
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import numpy as np

from rlx_mlir.errors import InputError

UNSIGNED: dict[int, Any] = {width: np.dtype(f"u{width}") for width in (1, 2, 4, 8)}
_REPEATED = {width: int.from_bytes(bytes([1] * width), "little") for width in (1, 2, 4, 8)}

#: Where the spaces of a block appear among generic addresses. No host has memory there.
SHARED_WINDOW = 1 << 60
LOCAL_WINDOW = 2 << 60
PARAM_WINDOW = 3 << 60
WINDOW_BYTES = 1 << 32
#: Address of a block's first byte of shared memory in its own space: as on chips, not 0.
SHARED_BASE = 1024


class Fault(Exception):
    """A thread did something wrong; `lanes` are the numbers of those that did, where known."""

    def __init__(self, message: str, lanes: Any = None) -> None:
        super().__init__(message)
        self.lanes = lanes


class Bytes:
    """A buffer of bytes, a multiple of 16 long, and views of it as rows of `count` elements of `width` bytes."""

    def __init__(self, buffer: np.ndarray) -> None:
        self.buffer = buffer
        self._views: dict[tuple[int, int], np.ndarray] = {}

    def rows(self, width: int, count: int) -> np.ndarray:
        """The view ``[n, count]``, or ``[n]`` where `count` is 1."""
        view = self._views.get((width, count))
        if view is None:
            view = self.buffer.view(UNSIGNED[width])
            if count > 1:
                view = view[: len(view) // count * count].reshape(-1, count)
            self._views[width, count] = view
        return view

    def load(self, offsets: np.ndarray, width: int, count: int) -> np.ndarray:
        """The elements at offsets in bytes, which are multiples of the size of a row."""
        return self.rows(width, count)[offsets >> (width * count).bit_length() - 1]

    def store(self, offsets: np.ndarray, values: Any, width: int, count: int) -> None:
        """Writes rows."""
        self.rows(width, count)[offsets >> (width * count).bit_length() - 1] = values


class Range:
    """Registered bytes ``[start, end)`` of the host."""

    def __init__(self, start: int, end: int, writable: bool) -> None:
        self.start, self.end, self.writable = start, end, writable
        # Whole units of 32 bytes around the range never cross into another page.
        self.base = start & ~31
        length = -(-(end - self.base) // 32) * 32
        memory: Any = (ctypes.c_uint8 * length).from_address(self.base)
        self.bytes = Bytes(np.frombuffer(memory, dtype=np.uint8))
        self.uses = 1
        #: Which bytes kernels have written; None as long as there are none.
        self.written: Bytes | None = None

    def note_write(self, offsets: np.ndarray, size: int) -> None:
        """A kernel writes rows of bytes."""
        if self.written is None:
            self.written = Bytes(np.zeros(len(self.bytes.buffer), np.uint8))
        width = min(size, 8)
        self.written.store(offsets, UNSIGNED[width].type(_REPEATED[width]), width, size // width)

    def was_written(self, offsets: np.ndarray, size: int) -> np.ndarray:
        """Which rows of bytes a kernel has written a part of."""
        if self.written is None:
            return np.zeros(len(offsets), bool)
        width = min(size, 8)
        rows = self.written.load(offsets, width, size // width).reshape(len(offsets), -1)
        return np.bitwise_or.reduce(rows, axis=1) != 0


class DeviceMemory:
    """Global memory: what a kernel may touch. Everything else is an error, the bytes between ranges too.

    A range stays registered until it is given back; the caller keeps the memory itself alive. Safe for use by several
    threads.
    """

    def __init__(self) -> None:
        self._ranges: list[Range] = []
        self._starts: list[int] = []
        self._start_array = np.zeros(0, np.uint64)
        self._kept: dict[int, Any] = {}
        self._lock = threading.Lock()
        self.last: Range | None = None

    def register(self, array: np.ndarray) -> int:
        """Makes a contiguous array global memory, in place, and returns its address. Arrays that can't be written
        to can't by kernels. InputError where the array isn't contiguous."""
        if not array.flags.c_contiguous:
            raise InputError("'array' expects a contiguous array: its copy would not be what the caller reads")
        address = array.ctypes.data
        self._kept[address] = array
        self.register_range(address, array.nbytes, writable=array.flags.writeable)
        return address

    def register_range(self, address: int, nbytes: int, *, writable: bool = True) -> None:
        """Makes bytes of the host global memory. Ranges that overlap become one."""
        if nbytes <= 0:
            return
        with self._lock:
            start, end, uses = address, address + nbytes, 0
            kept = []
            for known in self._ranges:
                if known.start < end and start < known.end:
                    start, end, uses = min(start, known.start), max(end, known.end), uses + known.uses
                    writable = writable or known.writable
                else:
                    kept.append(known)
            merged = Range(start, end, writable)
            merged.uses += uses
            self._set([*kept, merged])

    def unregister(self, address: int) -> None:
        """Takes a range back; InputError where none starts there. What overlapped others goes with its last part."""
        with self._lock:
            for known in self._ranges:
                if known.start <= address < known.end:
                    known.uses -= 1
                    if known.uses == 0:
                        self._set([other for other in self._ranges if other is not known])
                    self._kept.pop(address, None)
                    return
        raise InputError(f"'address' expects the start of a registered range, but got {address:#x}")

    def allocate(self, nbytes: int, fill: int = 0xA5) -> int:
        """The address of new bytes, at a multiple of 256, filled with a pattern that is no sensible number."""
        holder = np.full(nbytes + 256, fill, np.uint8)
        address = -(-holder.ctypes.data // 256) * 256
        self._kept[address] = holder
        self.register_range(address, nbytes)
        return address

    def hold(self, holder: np.ndarray, address: int, nbytes: int) -> None:
        """Registers a part of an array once, and keeps the array."""
        if self.find(address, nbytes) is None:
            self._kept[address] = holder
            self.register_range(address, nbytes)

    def view(self, address: int, nbytes: int) -> np.ndarray:
        """Registered bytes as an array; InputError where they aren't."""
        found = self.find(address, nbytes)
        if found is None:
            raise InputError(f"{nbytes} bytes at {address:#x} aren't registered")
        return found.bytes.buffer[address - found.base : address - found.base + nbytes]

    def _set(self, ranges: list[Range]) -> None:
        self._ranges = sorted(ranges, key=lambda known: known.start)
        self._starts = [known.start for known in self._ranges]
        self._start_array = np.array(self._starts, np.uint64)
        self.last = None

    def find(self, address: int, nbytes: int) -> Range | None:
        """The range that holds bytes, or None."""
        position = bisect_right(self._starts, address) - 1
        if position < 0 or address + nbytes > self._ranges[position].end:
            return None
        return self._ranges[position]

    def forget_writes(self) -> None:
        """No byte counts as written by a kernel any more: the host may have written to it since."""
        for known in self._ranges:
            known.written = None

    def parts(self, addresses: np.ndarray, nbytes: int) -> Iterator[tuple[Range, Any]]:
        """The ranges that addresses lie in, with the positions of those addresses (a slice where it is all of them).

        Raises Fault with the positions of the first bad ones.
        """
        low, high = int(addresses.min()), int(addresses.max())
        last = self.last
        if last is None or low < last.start or high + nbytes > last.end:
            last = self.find(low, nbytes)
        if last is not None and high + nbytes <= last.end:
            self.last = last
            yield last, slice(None)
            return
        which = np.searchsorted(self._start_array, addresses, side="right").astype(np.int64) - 1
        for number in np.unique(which):
            positions = np.flatnonzero(which == number)
            known = self._ranges[number] if number >= 0 else None
            chosen = addresses[positions]
            bad = positions if known is None else positions[chosen + np.uint64(nbytes) > np.uint64(known.end)]
            if len(bad):
                raise Fault(self._describe(int(addresses[bad[0]]), nbytes), bad)
            assert known is not None
            yield known, positions

    def _describe(self, address: int, nbytes: int) -> str:
        text = f"access to {nbytes} bytes of global memory at {address:#x}, outside of every registered range"
        position = bisect_right(self._starts, address) - 1
        if position >= 0:
            before = self._ranges[position]
            text += f"; {address - before.start} bytes after the start of one of {before.end - before.start} bytes"
        if position + 1 < len(self._ranges):
            text += f"; {self._starts[position + 1] - address} bytes before the next one"
        return text


#: Bits of the state of a byte of shared memory.
WRITTEN = 1  # threads may read it
UNFENCED = 2  # written by threads, and not yet visible to the asynchronous proxy
PENDING = 4  # a copy that nobody waited for is writing it
BARRIER = 8  # part of an mbarrier


class SharedMemory:
    """Shared memory of several blocks, one after the other, with the state of every byte."""

    def __init__(self, blocks: int, size: int) -> None:
        self.size = size
        self.stride = -(-max(size, 32) // 32) * 32
        self.data = Bytes(np.zeros(blocks * self.stride, np.uint8))
        self.state = Bytes(np.zeros(blocks * self.stride, np.uint8))

    def reset(self) -> None:
        """Makes every byte unwritten."""
        self.data.buffer.fill(0xCD)
        self.state.buffer.fill(0)

    def check_readable(self, offsets: np.ndarray, width: int, count: int) -> None:
        """Raises Fault where a thread would read bytes that hold nothing."""
        states = self.state.load(offsets, width, count)
        ones = states.dtype.type(_REPEATED[width])
        bad = (states & ones) != ones
        if bad.any():
            positions = np.flatnonzero(bad.reshape(len(offsets), -1).any(axis=1))
            size = width * count
            first = int(offsets[positions[0]])
            mask = self.state.buffer[first : first + size]
            byte = first + int(np.flatnonzero((mask & WRITTEN) == 0)[0])
            pending = self.state.buffer[byte] & PENDING
            where = f"shared memory at byte {byte % self.stride}"
            why = "which a copy that wasn't waited for is writing" if pending else "which was never written"
            raise Fault(f"read of {where}, {why}", positions)

    def mark(self, offsets: np.ndarray, width: int, count: int, state: int) -> None:
        """Sets the state of the bytes of rows."""
        self.state.store(offsets, UNSIGNED[width].type(_REPEATED[width] * state), width, count)

    def fence(self, block: int, seen: np.ndarray | None) -> None:
        """What threads of a block wrote becomes visible to the asynchronous proxy: all, or the pairs of bytes named."""
        part = self.state.buffer[block * self.stride : (block + 1) * self.stride]
        cleared = np.uint8(0xFF ^ UNFENCED)
        if seen is None:
            part &= cleared
        else:
            part &= np.where(np.repeat(seen, 2), cleared, np.uint8(0xFF))

    def explain_async(self, byte: int, what: str) -> None:
        """Raises the Fault of one byte."""
        state = int(self.state.buffer[byte])
        if state & PENDING:
            why = "which a copy that wasn't waited for is writing"
        elif not state & WRITTEN:
            why = "which was never written"
        else:
            why = "which threads wrote without fence.proxy.async after it"
        raise Fault(f"{what} reads shared memory at byte {byte % self.stride}, {why}")
