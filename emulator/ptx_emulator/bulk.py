# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Handlers of bulk copies and of the tensor memory accelerator: cp.async.bulk.

A copy happens as late as it may: when a thread waits for its group, or when no thread can go on without it. Until then
its destination can't be read, and what it reads may not change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptx_emulator import access, mbarriers
from ptx_emulator import floats as fl
from ptx_emulator.copies import BULK
from ptx_emulator.decode import Unknown, dtype_of, nothing
from ptx_emulator.machine import Action, Machine
from ptx_emulator.memory import BARRIER, PARAM_WINDOW, PENDING, SHARED_BASE, UNFENCED, WRITTEN, Fault
from ptx_emulator.tensormap import TensorMap
from ptx_emulator.text import Instruction
from rlx_mlir.errors import InputError

_REDUCTIONS: dict[str, Any] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


class Transfer:
    """A copy that happens once; `offsets` are its pieces of shared memory."""

    def __init__(self, m: Machine, lane: int, offsets: np.ndarray, operation: Callable[[], None]) -> None:
        self.machine, self.lane, self.offsets, self.place = m, lane, offsets, m.pc
        self._operation: Callable[[], None] | None = operation

    def __call__(self) -> None:
        operation, self._operation = self._operation, None
        if operation is None:
            return
        try:
            operation()
        except Fault as fault:
            # The place is that of the copy, not of who waits.
            self.machine.pc = self.place
            self.machine.select(np.array([self.lane]))
            raise Fault(str(fault)) from None


@dataclass
class Groups:
    """Copies out of shared memory of one thread: the open group, and those committed."""

    open: list[Transfer] = field(default_factory=list)
    committed: list[list[Transfer]] = field(default_factory=list)


def groups_of(m: Machine) -> dict[int, Groups]:
    """The groups of each lane in this launch."""
    known = m.extra.get("bulk")
    if known is None:
        known = m.extra["bulk"] = {}
    return known


def check_ended(m: Machine) -> None:
    """Raises Fault where an ending thread has not waited for its copies out of shared memory."""
    known = m.extra.get("bulk")
    if not known:
        return
    for position, lane in enumerate(m.lanes.tolist()):
        groups = known.get(lane)
        if groups is not None and (groups.open or any(groups.committed)):
            raise Fault("the thread ends without waiting for its bulk copies out of shared memory", [position])


def swizzled(addresses: np.ndarray, span: int) -> np.ndarray:
    """Addresses of 16-byte pieces with the swizzle of rows of `span` bytes; 0 for none."""
    if span == 0:
        return addresses
    mask = {32: 1, 64: 3, 128: 7}[span]
    return addresses ^ (((addresses >> 7) & mask) << 4)


def piece_offsets(m: Machine, slot: int, address: int, size: int, span: int) -> np.ndarray:
    """Offsets in the machine's shared memory of the 16-byte pieces from an address on."""
    end = SHARED_BASE + m.shared.size
    pieces = swizzled(address + 16 * np.arange(size // 16, dtype=np.int64), span)
    if address < SHARED_BASE or int(pieces.max()) + 16 > end:
        where = f"{size} bytes at byte {address - SHARED_BASE}"
        raise Fault(f"a bulk copy of {where} leaves the {m.shared.size} bytes of shared memory")
    return pieces + slot * m.shared.stride - SHARED_BASE


def check_destination(m: Machine, offsets: np.ndarray) -> None:
    """Raises Fault where a copy into shared memory meets another one, or an mbarrier."""
    states = int(np.bitwise_or.reduce(m.shared.state.load(offsets, 8, 2), axis=None))
    flags = states.to_bytes(8, "little")
    if any(flag & PENDING for flag in flags):
        raise Fault("a bulk copy writes where another copy, which wasn't waited for, is writing")
    if any(flag & BARRIER for flag in flags):
        raise Fault("a bulk copy writes over an mbarrier")
    if any(flag & UNFENCED for flag in flags):
        raise Fault("a bulk copy writes over what threads wrote without fence.proxy.async after it")


def check_source(m: Machine, offsets: np.ndarray, what: str) -> None:
    """Raises Fault where the asynchronous proxy can't see bytes of shared memory yet."""
    states = m.shared.state.load(offsets, 8, 2)
    bad = states != np.uint64(0x0101010101010101 * WRITTEN)
    if bad.any():
        piece = int(offsets[np.flatnonzero(bad.any(axis=1))[0]])
        part = m.shared.state.buffer[piece : piece + 16]
        m.shared.explain_async(piece + int(np.flatnonzero(part != WRITTEN)[0]), what)


@dataclass(frozen=True)
class Box:
    """The part of a tensor that a copy moves: addresses of its elements that exist, and where they lie in the box."""

    start: int
    extent: tuple[int, ...]
    strides: tuple[int, ...]
    inside: tuple[slice, ...]

    @classmethod
    def of(cls, tensor: TensorMap, coordinates: list[int]) -> Box | None:
        """The box at coordinates (innermost first); None where all of it lies outside."""
        size = tensor.element_bytes
        steps = [size, *tensor.strides]
        start, extent, inside = tensor.address, [], []
        for place, length, box, step in zip(coordinates, tensor.sizes, tensor.box, steps, strict=True):
            low, high = max(0, -place), min(box, length - place)
            if low >= high:
                return None
            start += (place + low) * step
            extent.append(high - low)
            inside.append(slice(low, high))
        return cls(start, tuple(extent[::-1]), tuple(steps[::-1]), tuple(inside[::-1]))

    def view(self, m: Machine, size: int, store: bool, written: bool = False) -> np.ndarray:
        """The bytes in memory, ``[..., elements, size]``, or which of them kernels have written."""
        length = sum((n - 1) * step for n, step in zip(self.extent, self.strides, strict=True)) + size
        known = m.memory.find(self.start, length)
        if known is None:
            raise Fault(f"a tensor map reaches {length} bytes at {self.start:#x}, outside of every registered range")
        if store and not known.writable:
            raise Fault("a tensor map writes to memory that is registered for reading only")
        source = known.bytes
        if written:
            known.note_write(np.zeros(0, np.int64), 1)
            assert known.written is not None
            source = known.written
        first = source.buffer[self.start - known.base :]
        return np.lib.stride_tricks.as_strided(first, (*self.extent, size), (*self.strides, 1))


def read_map(m: Machine, address: int) -> TensorMap:
    """The map at a generic or parameter address."""
    if address % 64:
        raise Fault(f"the tensor map at {address:#x} isn't at a multiple of 64")
    if address >= PARAM_WINDOW:
        offset = address - PARAM_WINDOW
        data = m.parameters.buffer[offset : offset + 128].tobytes()
    else:
        known = m.memory.find(address, 128)
        if known is None:
            raise Fault(f"the tensor map at {address:#x} lies outside of every registered range")
        data = known.bytes.buffer[address - known.base : address - known.base + 128].tobytes()
    try:
        return TensorMap.from_bytes(data)
    except InputError as error:
        raise Fault(f"a tensor map can't be used: {error}") from None


def load_box(m: Machine, tensor: TensorMap, coordinates: list[int]) -> np.ndarray:
    """The bytes of a box, with what lies outside filled."""
    size = tensor.element_bytes
    result = np.zeros((*tensor.box[::-1], size), np.uint8)
    if tensor.fill_nan:
        result[...] = 0xFF
    box = Box.of(tensor, coordinates)
    if box is not None:
        result[box.inside] = box.view(m, size, False)
    return result.reshape(-1)


def store_box(m: Machine, tensor: TensorMap, coordinates: list[int], reduce: Any, kind: str, data: np.ndarray) -> None:
    """Writes, or adds, the part of a box that lies in the tensor."""
    size = tensor.element_bytes
    box = Box.of(tensor, coordinates)
    if box is None:
        return
    view = box.view(m, size, True)
    values = data.reshape(*tensor.box[::-1], size)[box.inside]
    if reduce is not None:
        old = np.ascontiguousarray(view)
        values = _reduced(old.reshape(-1), np.ascontiguousarray(values).reshape(-1), reduce, kind).reshape(old.shape)
    view[...] = values
    box.view(m, size, True, written=True)[...] = 1


def _reduced(old: np.ndarray, new: np.ndarray, reduce: Any, kind: str) -> np.ndarray:
    """Bytes of elements combined."""
    if kind in ("f16", "bf16"):
        function = (fl.of_f16 if kind == "f16" else fl.of_bf16)(reduce)
    else:
        function = reduce
    return function(old.view(dtype_of(kind)), new.view(dtype_of(kind))).view(np.uint8)


#: Types of reductions by the element types of maps.
_TENSOR_KINDS = {
    0: "u8",
    1: "u16",
    2: "u32",
    3: "s32",
    4: "u64",
    5: "s64",
    6: "f16",
    7: "f32",
    8: "f64",
    9: "bf16",
    10: "f32",
}


def bulk(m: Machine, i: Instruction) -> Action:
    """cp.async.bulk in all its forms."""
    words = i.words
    if words[1] == "reduce":
        return _store(m, i, "tensor" in words)
    if "commit_group" in words:
        return lambda: _commit(m)
    if "wait_group" in words:
        left = i.operands[0].value
        return lambda: _wait(m, left)
    if "prefetch" in words:
        return nothing
    tensor = "tensor" in words
    if any(word.startswith("im2col") for word in words):
        raise Unknown("im2col copies aren't emulated")
    spaces = [word.split("::")[0] for word in words if word.split("::")[0] in ("shared", "global")]
    if spaces == ["shared", "global"]:
        return _load(m, i, tensor)
    if spaces == ["global", "shared"]:
        return _store(m, i, tensor)
    raise Unknown("this form of bulk copy isn't emulated")


def _load(m: Machine, i: Instruction, tensor: bool) -> Action:
    """Global to shared memory; completes bytes of an mbarrier."""
    if not any(word.startswith("mbarrier::complete_tx") for word in i.words):
        raise Unknown("a bulk copy into shared memory completes an mbarrier")
    to, from_ = access.address_of(m, i.operands[0]), access.address_of(m, i.operands[1])
    place = 2 if tensor else 3
    barrier_at = access.address_of(m, i.operands[place])
    multicast = "multicast::cluster" in i.words
    mask_row = m.source(i.operands[place + 1], np.uint16) if multicast else None
    size_row = None if tensor else m.source(i.operands[2], np.uint32)
    rows = [m.source(operand, np.int32) for operand in i.operands[1].coordinates]

    def run() -> None:
        lanes, ix = m.lanes, m.ix
        destination, source, barriers = to(), from_(), barrier_at()
        slots, local = access.cluster_slots(m, destination)
        bar_slots, bar_local = access.cluster_slots(m, barriers)
        coordinates = [row[ix] for row in rows]
        fetch: Callable[[], np.ndarray]
        for position in range(m.n):
            slot, address = int(slots[position]), int(local[position])
            if tensor:
                chosen = read_map(m, int(source[position]))
                place_ = [int(values[position]) for values in coordinates]
                if len(place_) != len(chosen.sizes):
                    raise Fault(f"a map of {len(chosen.sizes)} dimensions is used with {len(place_)} coordinates")
                size, span = chosen.box_bytes, chosen.swizzle
                if address % 128:
                    raise Fault(f"a tensor copy goes to byte {address - SHARED_BASE}, which isn't a multiple of 128")
                check_early(m, int(lanes[position]), chosen, place_, size)
                fetch = functools.partial(load_box, m, chosen, place_)
            else:
                assert size_row is not None
                size, span, start = int(size_row[ix][position]), 0, int(source[position])
                _check_bulk(size, address, start)
                if m.memory.find(start, size) is None:
                    raise Fault(f"a bulk copy reads {size} bytes at {start:#x}, outside of every registered range")
                check_early(m, int(lanes[position]), None, start, size)
                fetch = functools.partial(m.memory.view, start, size)
            targets = [(slot, int(bar_slots[position]))]
            if mask_row is not None:
                first, mask = slot - int(m.rank[slot]), int(mask_row[ix][position])
                targets = [(first + rank, first + rank) for rank in range(16) if mask >> rank & 1]
            for target, bar_slot in targets:
                key = (bar_slot, int(bar_local[position]))
                barrier = mbarriers.find(m, key)
                if not barrier.fenced:
                    raise Fault("a bulk copy uses an mbarrier that was initialised without a fence after it")
                offsets = piece_offsets(m, target, address, size, span)
                check_destination(m, offsets)
                if m.races is not None:
                    m.races.overwrite(offsets, int(lanes[position]))
                m.shared.mark(offsets, 8, 2, PENDING)
                operation = functools.partial(_arrival, m, fetch, offsets, key, size)
                m.pending.append(Transfer(m, int(lanes[position]), offsets, operation))

    return run


def check_early(m: Machine, lane: int, tensor: TensorMap | None, place: Any, size: int) -> None:
    """Raises Fault where a lane that hasn't waited for the kernels before copies what they may have written."""
    if m.waited is None or m.waited[lane]:
        return
    if tensor is not None:
        box = Box.of(tensor, place)
        written = box is not None and bool(box.view(m, tensor.element_bytes, False, written=True).any())
    else:
        known = m.memory.find(place, size)
        written = known is not None and known.written is not None
        if written:
            assert known is not None
            assert known.written is not None
            written = bool(known.written.buffer[place - known.base : place - known.base + size].any())
    if written:
        raise Fault(access.too_early(False))


def _arrival(m: Machine, fetch: Callable[[], np.ndarray], offsets: np.ndarray, key: tuple[int, int], size: int) -> None:
    """The bytes of a copy into shared memory come."""
    m.shared.data.store(offsets, fetch().view(np.uint64).reshape(-1, 2), 8, 2)
    m.shared.mark(offsets, 8, 2, WRITTEN)
    if m.races is not None:
        m.races.arrived(offsets, key[0], key)
    mbarriers.complete(m, key, size)


def _departure(m: Machine, put: Callable[[np.ndarray], None], offsets: np.ndarray) -> None:
    """The bytes of a copy out of shared memory go."""
    check_source(m, offsets, "a bulk copy that wasn't waited for")
    put(m.shared.data.load(offsets, 8, 2).reshape(-1).view(np.uint8))


def _check_bulk(size: int, shared: int, start: int) -> None:
    if size % 16 or shared % 16 or start % 16 or size == 0:
        raise Fault(
            f"a bulk copy of {size} bytes between {shared - SHARED_BASE} and {start:#x}: all must be multiples of 16"
        )


def _store(m: Machine, i: Instruction, tensor: bool) -> Action:
    """Shared to global memory, by writing or reducing; belongs to the thread's group."""
    words = i.words
    if "bulk_group" not in words:
        raise Unknown("a bulk copy out of shared memory belongs to a group")
    reduce, kind = None, ""
    if words[1] == "reduce":
        reduce = next((_REDUCTIONS[word] for word in words if word in _REDUCTIONS), None)
        if reduce is None:
            raise Unknown("this reduction isn't emulated")
        kind = words[-1]
    to, from_ = access.address_of(m, i.operands[0]), access.address_of(m, i.operands[1])
    size_row = None if tensor else m.source(i.operands[2], np.uint32)
    rows = [m.source(operand, np.int32) for operand in i.operands[0].coordinates]

    def run() -> None:
        lanes, ix = m.lanes, m.ix
        destination, source = to(), from_()
        slots = m.slot[ix]
        put: Callable[[np.ndarray], None]
        for position in range(m.n):
            slot, address, target = int(slots[position]), int(source[position]), int(destination[position])
            if tensor:
                chosen = read_map(m, target)
                place = [int(row[ix][position]) for row in rows]
                if len(place) != len(chosen.sizes):
                    raise Fault(f"a map of {len(chosen.sizes)} dimensions is used with {len(place)} coordinates")
                if address % 128:
                    raise Fault(f"a tensor copy reads from byte {address - SHARED_BASE}, which isn't a multiple of 128")
                size, span = chosen.box_bytes, chosen.swizzle
                element = _TENSOR_KINDS.get(chosen.element, "f32")
                put = functools.partial(store_box, m, chosen, place, reduce, element)
            else:
                assert size_row is not None
                size, span = int(size_row[ix][position]), 0
                _check_bulk(size, address, target)
                known = m.memory.find(target, size)
                if known is None or not known.writable:
                    raise Fault(f"a bulk copy writes {size} bytes at {target:#x}, which aren't registered for writing")
                put = functools.partial(_put, m, target, size, reduce, kind)
            if m.waited is not None and not m.waited[lanes[position]]:
                raise Fault(access.too_early(True), [position])
            offsets = piece_offsets(m, slot, address, size, span)
            check_source(m, offsets, "a bulk copy")
            if m.races is not None:
                m.races.check_read(offsets, 16, lanes[position : position + 1])

            lane = int(lanes[position])
            operation = functools.partial(_departure, m, put, offsets)
            groups_of(m).setdefault(lane, Groups()).open.append(Transfer(m, lane, offsets, operation))

    return run


def _put(m: Machine, target: int, size: int, reduce: Any, kind: str, data: np.ndarray) -> None:
    known = m.memory.find(target, size)
    assert known is not None
    known.note_write(target - known.base + 16 * np.arange(size // 16), 16)
    view = m.memory.view(target, size)
    view[:] = data if reduce is None else _reduced(view.copy(), data, reduce, kind)


def _commit(m: Machine) -> None:
    known = groups_of(m)
    for lane in m.lanes.tolist():
        groups = known.setdefault(lane, Groups())
        groups.committed.append(groups.open)
        m.pending.extend(groups.open)
        groups.open = []


def _wait(m: Machine, left: int) -> None:
    known = groups_of(m)
    for lane in m.lanes.tolist():
        groups = known.get(lane)
        if groups is None:
            continue
        while len(groups.committed) > left:
            for transfer in groups.committed.pop(0):
                transfer()
                if m.races is not None:
                    m.races.consume(transfer.offsets, 16, np.array([lane]))


BULK["cp"] = bulk
