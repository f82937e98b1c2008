# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the threads of several blocks at once: one instruction at a time, for all threads that stand there.

A thread is a lane of numpy arrays, one array per register. Threads at the same place form a group; the group with the
lowest place runs until it branches, waits, ends or meets another group. So threads that took different ways join again,
and lanes of a warp that wait for each other find each other whatever the order.

Lanes are numbered warp of the block first, then block, then lane: threads that a kernel gives a role by their warp
are one slice of each array.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ptx_emulator.errors import EmulationError
from ptx_emulator.memory import (
    PARAM_WINDOW,
    SHARED_BASE,
    Bytes,
    DeviceMemory,
    Fault,
    SharedMemory,
)
from ptx_emulator.races import Races
from ptx_emulator.stats import Stats
from ptx_emulator.text import Function, Imm, Instruction, Reg, Special, Symbol, registers_of

Action = Callable[[], Any]

#: What an instruction tells the scheduler: the group was parked or split, or its threads ended.
AWAY = "away"
#: Times that one group may look at memory that others change, before they get a turn.
PATIENCE = 20
#: Branches that groups may take: kernels that take more have a loop without end.
BRANCHES = 10_000_000
#: What `%nsmid` says.
MULTIPROCESSORS = 132

_PATTERN = 0xA5A5A5A5A5A5A5A5


class Variables:
    """Addresses of the variables of one kernel."""

    def __init__(self, function: Function, shared: dict[str, int], global_: dict[str, int], shared_bytes: int) -> None:
        self.shared = shared
        self.global_ = global_
        self.shared_bytes = shared_bytes
        self.local = {name: variable.offset for name, variable in function.local.items()}
        self.parameters = {name: variable.offset for name, variable in function.parameters.items()}

    def address(self, symbol: Symbol) -> int:
        """The address of a variable in its own space, as `mov` gives it."""
        for table, base in (
            (self.shared, SHARED_BASE),
            (self.global_, 0),
            (self.local, 0),
            (self.parameters, PARAM_WINDOW),
        ):
            if symbol.name in table:
                return table[symbol.name] + base + symbol.offset
        raise EmulationError(f"'{symbol.name}' isn't a variable")


class Machine:
    """The state of `slots` blocks of one kernel.

    Attributes:
        ix: the lanes of the running group, a slice or an array; `lanes` is always the array.
        slot: the block of each lane; `thread` its number in the block.
    """

    def __init__(
        self, function: Function, variables: Variables, block: tuple[int, int, int], slots: int, memory: DeviceMemory
    ) -> None:
        self.function, self.variables, self.block, self.slots, self.memory = function, variables, block, slots, memory
        self.threads = block[0] * block[1] * block[2]
        self.warps = -(-self.threads // 32)
        self.count = self.warps * slots * 32
        number = np.arange(self.count)
        self.lane = number % 32
        self.slot = number // 32 % slots
        self.warp = number // 32 // slots
        self.thread = self.warp * 32 + self.lane
        self.exists = self.thread < self.threads
        #: Row of a warp's lanes in arrays reshaped to ``[-1, 32]``.
        self.row = number // 32
        self.lanes = number
        self.ix: Any = slice(0, self.count)
        self.n = self.count
        self.pc = 0
        self.shared = SharedMemory(slots, variables.shared_bytes)
        #: What is added to an address of shared memory to index `shared`, of each lane.
        self.shared_origin = self.slot * self.shared.stride - SHARED_BASE
        self.local_stride = -(-max(function.local_bytes, 1) // 32) * 32
        self.local = Bytes(np.zeros(self.local_stride * self.count if function.local_bytes else 32, np.uint8))
        self.local_origin = number * self.local_stride
        self.parameters = Bytes(np.zeros(-(-max(function.parameter_bytes, 1) // 32) * 32 + 32, np.uint8))
        self.cluster = (1, 1, 1)
        self._registers()
        self._constants: dict[tuple[int, str], np.ndarray] = {}
        self._specials: dict[str, np.ndarray] = {}
        self.code: list[Action] = []
        self.counts: list[int] = []
        self.stats = Stats()
        self.profile = False
        self.waits = any(i.words[:2] == ("griddepcontrol", "wait") for i in function.instructions)
        self.races: Races | None = None
        self._reset_waiting()

    def _registers(self) -> None:
        kinds = self.function.registers
        self._place: list[tuple[int, int]] = []
        numbers: dict[int, int] = {}
        for bits in kinds:
            width = {1: 1, 8: 2, 16: 2, 32: 4, 64: 8, 128: 16}[bits]
            self._place.append((width, numbers.get(width, 0)))
            numbers[width] = numbers.get(width, 0) + 1
        self._files: dict[int, np.ndarray] = {}
        for width, rows in numbers.items():
            if width == 1:
                self._files[1] = np.zeros((rows, self.count), bool)
            elif width == 16:
                self._files[16] = np.zeros((rows, self.count * 2), np.uint64)
            else:
                self._files[width] = np.empty((rows, self.count), np.dtype(f"u{width}"))

    def _reset_waiting(self) -> None:
        self.groups: dict[int, np.ndarray] = {}
        #: Lanes that wait for others of their warp, by the place of a collective instruction.
        self.parked: dict[int, np.ndarray] = {}
        #: Lanes that asked whether something is over and go on with the answer no, when nothing else can run.
        self.idle: dict[int, np.ndarray] = {}
        #: Lanes that wait at barriers: place, lanes; by number of the barrier.
        self.barriers: dict[int, list[tuple[int, np.ndarray]]] = {}
        self.arrived: dict[int, np.ndarray] = {}
        self.expected: dict[int, np.ndarray] = {}
        #: Waiting for phases of mbarriers: (place, lanes) by (block, address).
        self.waiting: dict[tuple[int, int], list[tuple[int, np.ndarray]]] = {}
        self.mbarriers: dict[tuple[int, int], Any] = {}
        #: Asynchronous operations that have not happened yet, oldest first.
        self.pending: deque[Any] = deque()
        #: Checks and rests of kinds of instructions, by name.
        self.extra: dict[str, Any] = {}
        self.alive = np.zeros(self.count, bool)
        #: Lanes that know that the kernels before are over; None where the kernel never waits for them.
        self.waited = np.zeros(self.count, bool) if self.waits else None

    # Operands ---------------------------------------------------------------------------------------------------------

    def register(self, operand: Reg) -> np.ndarray:
        """The row of a register, unsigned or bool."""
        width, number = self._place[operand.number]
        return self._files[width][number]

    def register_number(self, number: int) -> np.ndarray:
        """The row of the register with a number."""
        width, place = self._place[number]
        return self._files[width][place]

    def source(self, operand: Any, dtype: Any) -> np.ndarray:
        """The row ``[count]`` of an operand as a numpy type; the low part of wider registers."""
        dtype = np.dtype(dtype)
        if isinstance(operand, Reg):
            row = self.register(operand)
            if "b" in (dtype.kind, row.dtype.kind):
                if dtype != row.dtype:
                    raise Fault(f"'{operand.name}' has the wrong type")
                return row
            view = row.view(dtype)
            step = len(view) // self.count
            if step == 0:
                raise Fault(f"'{operand.name}' is too narrow")
            return view[::step] if step > 1 else view
        if isinstance(operand, Imm):
            return self.constant(operand, dtype)
        if isinstance(operand, Special):
            row = self.special(operand.name)
            return row if row.dtype == dtype else row.view(dtype)[:: row.dtype.itemsize // dtype.itemsize]
        if isinstance(operand, Symbol):
            return self.constant(Imm(self.variables.address(operand)), dtype)
        raise Fault(f"can't take the operand {operand}")

    def constant(self, operand: Imm, dtype: np.dtype) -> np.ndarray:
        """A row that holds a constant everywhere."""
        value = operand.value
        number: Any
        if dtype.kind == "b":
            key, number = (int(value != 0), "?"), np.bool_(value != 0)
        else:
            bits = dtype.itemsize * 8
            if operand.bits == 64 and bits == 32:
                value = int(np.uint64(value).view(np.float64).astype(np.float32).view(np.uint32))
            elif operand.bits == 32 and bits == 64:
                value = int(np.uint32(value).view(np.float32).astype(np.float64).view(np.uint64))
            value &= (1 << bits) - 1
            key, number = (value, dtype.str), np.array(value, np.dtype(f"u{dtype.itemsize}")).view(dtype)[()]
        row = self._constants.get(key)
        if row is None:
            row = self._constants[key] = np.full(self.count, number)
        return row

    def destination(self, operand: Any, dtype: Any) -> np.ndarray:
        """The row to write results of a type to: the whole register, which assignment extends to."""
        dtype = np.dtype(dtype)
        if not isinstance(operand, Reg):
            return np.empty(self.count, dtype)  # `_`: nobody reads it
        row = self.register(operand)
        if dtype.kind == "f" and row.dtype.itemsize == dtype.itemsize:
            return row.view(dtype)
        if (dtype.kind == "b") != (row.dtype.kind == "b"):
            raise Fault(f"'{operand.name}' has the wrong type")
        return row

    def special(self, name: str) -> np.ndarray:
        """The row of a special register."""
        row = self._specials.get(name)
        if row is None:
            row = self._specials[name] = self._make_special(name)
        return row

    def _make_special(self, name: str) -> np.ndarray:
        word, _, axis = name[1:].partition(".")
        index = "xyzw".find(axis) if axis else 0
        u32 = np.uint32
        if word in ("tid", "ntid"):
            sizes = (*self.block, 1)
            if word == "ntid":
                return np.full(self.count, sizes[index], u32)
            step = [1, self.block[0], self.block[0] * self.block[1], 1 << 40][index]
            return (self.thread // step % sizes[index]).astype(u32)
        if word == "laneid":
            return self.lane.astype(u32)
        if word == "warpid":
            return self.warp.astype(u32)
        if word == "nwarpid":
            return np.full(self.count, self.warps, u32)
        if word.startswith("lanemask_"):
            bit = np.uint64(1) << self.lane.astype(np.uint64)
            values = {"eq": bit, "lt": bit - np.uint64(1), "le": bit * np.uint64(2) - np.uint64(1)}
            every = np.uint64(0xFFFFFFFF)
            values |= {"gt": every ^ values["le"], "ge": every ^ values["lt"]}
            return values[word[-2:]].astype(u32)
        wide = word in ("clock64", "globaltimer")
        row = np.zeros(self.count, np.uint64 if wide else u32)
        if word == "is_explicit_cluster":
            return row.astype(bool)
        if word == "nsmid":
            row += u32(MULTIPROCESSORS)
        return row

    def find_races(self, wanted: bool) -> None:
        """Turns the search for races in shared memory on or off; clusters aren't looked at."""
        if not wanted or self.variables.shared_bytes == 0 or self.cluster != (1, 1, 1):
            self.races = None
        elif self.races is None:
            self.races = Races(self)

    def set_blocks(self, grid: tuple[int, int, int], blocks: np.ndarray) -> None:
        """Gives the slots blocks of the grid; `blocks` are their numbers, fewer than `slots` at the end."""
        number = np.zeros(self.slots, np.int64)
        number[: len(blocks)] = blocks
        sizes, cluster = (*grid, 1), (*self.cluster, 1)
        place = [number % grid[0], number // grid[0] % grid[1], number // grid[0] // grid[1], number * 0]
        rank, scale = np.zeros(self.slots, np.int64), 1
        for index, axis in enumerate("xyzw"):
            inside, outside = place[index] % cluster[index], place[index] // cluster[index]
            for word, values in (
                ("ctaid", place[index]),
                ("nctaid", number * 0 + sizes[index]),
                ("clusterid", outside),
                ("nclusterid", number * 0 + sizes[index] // cluster[index]),
                ("cluster_ctaid", inside),
                ("cluster_nctaid", number * 0 + cluster[index]),
            ):
                self.special(f"%{word}.{axis}")[:] = values[self.slot]
            rank, scale = rank + inside * scale, scale * cluster[index]
        self.rank = rank
        self.special("%cluster_ctarank")[:] = rank[self.slot]
        self.special("%cluster_nctarank")[:] = scale
        dynamic = self.variables.shared_bytes
        self.special("%total_smem_size")[:] = dynamic
        self.special("%dynamic_smem_size")[:] = self.dynamic_bytes
        self.blocks = place
        self.grid = grid

    #: Dynamic shared memory of a block.
    dynamic_bytes = 0
    #: What raises Fault where the running threads may not end yet.
    exit_checks: tuple[Callable[[Machine], None], ...] = ()

    # Groups -----------------------------------------------------------------------------------------------------------

    def select(self, lanes: np.ndarray) -> None:
        """Makes lanes the running group."""
        self.lanes = lanes
        self.n = len(lanes)
        first = int(lanes[0])
        self.ix = slice(first, first + self.n) if int(lanes[-1]) - first + 1 == self.n else lanes

    def add(self, pc: int, lanes: np.ndarray) -> None:
        """Lanes may run from a place on."""
        if len(lanes):
            known = self.groups.get(pc)
            self.groups[pc] = lanes if known is None else np.sort(np.concatenate([known, lanes]))

    def where(self, row: np.ndarray) -> np.ndarray:
        """The lanes of the running group where a row of bools holds."""
        return self.lanes[row[self.ix]]

    def converge(self, members: np.ndarray | None) -> bool:
        """Whether the running group may run a collective instruction: all lanes that masks name are here.

        Lanes that must wait for others are parked, until those come or end; the rest stay as the running group.
        `members` is the row of masks of members; None stands for all lanes of the warp.
        """
        if self.n == self.count and members is None:
            return True
        pc = self.pc
        parked = self.parked.pop(pc, None)
        if parked is not None:
            self.select(np.sort(np.concatenate([self.lanes, parked])))
        lanes = self.lanes
        live, present = self._bits(self.alive), self.present()
        missing = (live & ~present)[self.row[lanes]]
        if members is not None:
            masks = members[self.ix]
            own = (masks >> self.lane[lanes].astype(np.uint32)) & np.uint32(1)
            if not own.all():
                raise Fault("a thread isn't in its own mask of members", np.flatnonzero(own == 0))
            missing = missing & masks
        waits = missing != 0
        if not waits.any():
            return True
        self.parked[pc] = lanes[waits]
        ready = lanes[~waits]
        if len(ready):
            # The rest runs on its own, so that what waits isn't overtaken unseen.
            self.select(ready)
        return len(ready) > 0

    def _bits(self, flags: np.ndarray) -> np.ndarray:
        """Bools of lanes as one word per warp."""
        return np.packbits(flags.reshape(-1, 32), axis=1, bitorder="little").view(np.uint32).reshape(-1)

    def present(self) -> np.ndarray:
        """The running lanes as one word per warp."""
        flags = np.zeros(self.count, bool)
        flags[self.lanes] = True
        return self._bits(flags)

    def leave(self) -> str:
        """The running lanes end."""
        for check in self.exit_checks:
            check(self)
        self.alive[self.lanes] = False
        for pc, lanes in list(self.parked.items()):
            del self.parked[pc]
            self.add(pc, lanes)
        return AWAY

    # Running ----------------------------------------------------------------------------------------------------------

    def run(self, lanes: np.ndarray) -> None:
        """Runs lanes from the start until every one has ended; EmulationError where one does something wrong."""
        self._reset_waiting()
        self.alive[lanes] = True
        self.shared.reset()
        if self.races is not None:
            self.races.reset()
        if self.function.local_bytes:
            self.local.buffer.fill(0xCD)
        for file in self._files.values():
            if file.dtype != bool:
                file.fill(_PATTERN & ((1 << 8 * file.dtype.itemsize) - 1))
        self.add(0, lanes)
        with np.errstate(all="ignore"):
            try:
                self._loop()
            except Fault as fault:
                raise self.error(str(fault), fault.lanes) from None
        if self.waited is not None and not self.waited.any():
            raise EmulationError(
                "no thread executed griddepcontrol.wait: the kernel may end before those ahead of it, and then kernels "
                "behind it don't wait for these either",
                kernel=self.function.name,
            )

    def _loop(self) -> None:
        code, counts, groups = self.code, self.counts, self.groups
        end = len(code) + 1
        turn = branches = 0
        while True:
            if not groups:
                if self._unblock():
                    continue
                return
            order = sorted(groups)
            pc = order[turn % len(order)]
            self.select(groups.pop(pc))
            limit = next((place for place in order if place > pc), end)
            self.looks = 0
            while True:
                self.pc = pc
                counts[pc] += self.n
                action = code[pc]()
                if action is None:
                    pc += 1
                    if pc < limit:
                        continue
                elif action is AWAY:
                    turn = 0
                    break
                else:
                    pc = action
                    branches += 1
                    if branches > BRANCHES:
                        raise Fault(f"the kernel took {BRANCHES} branches: a loop without end?")
                    if not groups or (pc < limit and pc not in groups and self.looks < PATIENCE):
                        continue
                turn = turn + 1 if self.looks >= PATIENCE else 0
                self.add(pc, self.lanes)
                break

    def _unblock(self) -> bool:
        """Lets the oldest asynchronous operation happen, or threads that poll go on. False where all have ended."""
        if self.pending:
            self.polls = 0
            self.pending.popleft()()
            return True
        if self.idle:
            self.polls += 1
            if self.polls > 10_000:
                raise Fault("threads poll without end for what nothing will complete")
            idle, self.idle = self.idle, {}
            for pc, lanes in idle.items():
                self.add(pc, lanes)
            return True
        if not self.alive.any():
            return False
        raise Fault(self._deadlock())

    polls = 0
    #: Accesses of the running group to memory that other threads may change.
    looks = 0

    def _deadlock(self) -> str:
        lines = []

        def note(what: str, pc: int, lanes: np.ndarray) -> None:
            instruction = self.function.instructions[min(pc, len(self.function.instructions) - 1)]
            text = instruction.text if len(instruction.text) < 100 else instruction.text[:97] + "..."
            who = f"{len(lanes)} threads, the first one {self.describe(int(lanes[0]))},"
            lines.append(f"  {who} wait {what} at line {instruction.line}: {text}")

        for pc, lanes in self.parked.items():
            note("for other lanes of their warps", pc, lanes)
        for number, entries in self.barriers.items():
            for pc, lanes in entries:
                slot = self.slot[lanes[0]]
                count = f"{self.arrived[number][slot]} of {self.expected[number][slot]} threads arrived"
                note(f"at barrier {number} ({count})", pc - 1, lanes)
        for (slot, address), entries in self.waiting.items():
            for pc, lanes in entries:
                note(f"for the mbarrier at byte {address - SHARED_BASE} ({self.mbarriers[slot, address]})", pc, lanes)
        ended = int((self.exists & ~self.alive).sum())
        return f"deadlock: no thread can go on ({ended} ended)\n" + "\n".join(lines)

    # Errors -----------------------------------------------------------------------------------------------------------

    def describe(self, lane: int) -> str:
        """A thread in words."""
        slot = int(self.slot[lane])
        block = ", ".join(str(int(axis[slot])) for axis in self.blocks[:3])
        thread = int(self.thread[lane])
        x, y = self.block[0], self.block[1]
        return f"block ({block}) thread ({thread % x}, {thread // x % y}, {thread // x // y})"

    def error(self, message: str, positions: Any = None) -> EmulationError:
        """The error of the running instruction; positions are those of the running lanes that did wrong."""
        instruction: Instruction | None = None
        if self.pc < len(self.function.instructions):
            instruction = self.function.instructions[self.pc]
        thread = ""
        if positions is not None and len(positions):
            lane = int(self.lanes[int(positions[0])]) if int(positions[0]) < len(self.lanes) else int(positions[0])
            thread = self.describe(lane)
        elif len(self.lanes):
            thread = self.describe(int(self.lanes[0]))
        if message.startswith("deadlock"):
            instruction, thread = None, ""
        if instruction is not None and instruction.operands and thread:
            message += self._values(instruction, positions)
        return EmulationError(
            message,
            kernel=self.function.name,
            line=instruction.line if instruction else 0,
            instruction=instruction.text if instruction else "",
            thread=thread,
        )

    def _values(self, instruction: Instruction, positions: Any) -> str:
        """The registers of an instruction in the first thread concerned."""
        lane = int(self.lanes[int(positions[0])]) if positions is not None and len(positions) else int(self.lanes[0])
        seen: dict[str, int] = {}
        for operand in instruction.operands[:6]:
            for register in registers_of(operand):
                if len(seen) < 8 and register.bits <= 64:
                    seen[register.name] = int(self.register(register)[lane])
        return f" ({', '.join(f'{name} = {value:#x}' for name, value in seen.items())})" if seen else ""
