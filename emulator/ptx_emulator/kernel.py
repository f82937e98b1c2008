# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules of PTX, and launches of their kernels."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ptx_emulator import access, arithmetic, bulk, conversions, copies, decode, matrices, mbarriers, warps, wgmma
from ptx_emulator.errors import EmulationError
from ptx_emulator.machine import Machine, Variables
from ptx_emulator.memory import DeviceMemory
from ptx_emulator.stats import Stats
from ptx_emulator.text import Function, Text, Variable, parse
from rlx_mlir.chips import CHIPS, DEFAULT_CHIP, shared_memory
from rlx_mlir.errors import InputError

#: Threads that run at once: more are faster per thread, and need more memory.
LANES = 8192
#: Machines that a module keeps for its next launches.
_KEPT = 8

Dims = tuple[int, int, int]

del (
    access,
    arithmetic,
    conversions,
    copies,
    matrices,
    mbarriers,
    warps,
    wgmma,
)  # imported for the handlers that they register


class Module:
    """The kernels of one PTX text; made by `load`."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self._machines: dict[tuple[Any, ...], Machine] = {}
        self._lock = threading.RLock()
        self._storage: list[np.ndarray] = []
        self.addresses: dict[str, int] = {}
        for variable in text.variables.values():
            if variable.space in ("global", "const") and not variable.external:
                self.addresses[variable.name] = self._place(variable)

    def _place(self, variable: Variable) -> int:
        holder = np.zeros(variable.size + variable.align + 64, np.uint8)
        align = max(variable.align, 16)
        address = -(-holder.ctypes.data // align) * align
        start = address - holder.ctypes.data
        holder[start : start + len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
        self._storage.append(holder)
        return address

    @property
    def kernels(self) -> list[str]:
        """Names of the entries."""
        return [name for name, function in self.text.functions.items() if function.entry]

    def function(self, name: str) -> Function:
        """An entry; InputError where there is none of the name."""
        function = self.text.functions.get(name)
        if function is None or not function.entry:
            raise InputError(f"'name' expects one of {', '.join(self.kernels)}, but got '{name}'")
        return function

    def launch(
        self,
        name: str,
        *,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any] = (),
        shared_bytes: int = 0,
        memory: DeviceMemory,
        cluster: Sequence[int] | None = None,
        profile: bool = False,
        races: bool = True,
        lanes: int = LANES,
        blocks: Sequence[Sequence[int]] | None = None,
    ) -> Stats:
        """Runs a kernel and returns counts of what it did.

        Args:
            name: of the entry.
            grid, block: blocks and threads of a block, one to three numbers.
            args: one value for each parameter: numpy scalars of the parameter's size, ints and floats, which take its
                size, registered arrays, which are their addresses, or bytes.
            shared_bytes: dynamic shared memory of a block.
            memory: what the kernel may touch.
            cluster: blocks of a cluster; by default what the kernel requires.
            profile: also count sectors and bank conflicts, which takes longer.
            races: also look for races in shared memory.
            lanes: threads that run at once, in whole blocks (at least one block or cluster).
            blocks: those of the grid that run, by their numbers along x, y and z; all by default. Clusters are whole.

        Raises InputError where the arguments don't fit the kernel, EmulationError where the kernel does wrong.
        """
        parameters = self.pack(name, args)
        return self.launch_bytes(
            name,
            grid,
            block,
            shared_bytes,
            parameters,
            memory,
            cluster=cluster,
            profile=profile,
            races=races,
            lanes=lanes,
            blocks=blocks,
        )

    def pack(self, name: str, args: Sequence[Any]) -> bytes:
        """The block of parameters that holds values."""
        function = self.function(name)
        variables = list(function.parameters.values())
        if len(args) != len(variables):
            raise InputError(f"'args' expects {len(variables)} values for kernel '{name}', but got {len(args)}")
        result = bytearray(function.parameter_bytes)
        for position, (variable, value) in enumerate(zip(variables, args, strict=True)):
            data = _pack(value, variable.size)
            if len(data) != variable.size:
                where = f"at position {position} for kernel '{name}'"
                raise InputError(f"'args' expects {variable.size} bytes {where}, but got {len(data)}")
            result[variable.offset : variable.offset + variable.size] = data
        return bytes(result)

    def launch_bytes(
        self,
        name: str,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        parameters: bytes,
        memory: DeviceMemory,
        *,
        cluster: Sequence[int] | None = None,
        profile: bool = False,
        races: bool = True,
        lanes: int = LANES,
        blocks: Sequence[Sequence[int]] | None = None,
    ) -> Stats:
        """As `launch`, with the parameters as bytes, each at its aligned place."""
        function = self.function(name)
        grid, block = _dims(grid, "grid"), _dims(block, "block")
        cluster = _dims(cluster or function.limits.get("reqnctapercluster") or (1, 1, 1), "cluster")
        if len(parameters) < function.parameter_bytes:
            raise InputError(
                f"'parameters' expects {function.parameter_bytes} bytes for kernel '{name}', but got {len(parameters)}"
            )
        _check_launch(function, grid, block, cluster)
        order = _block_order(grid, cluster, blocks)
        with self._lock:
            return self._run(
                function, grid, order, block, shared_bytes, parameters, memory, cluster, profile, races, lanes
            )

    def _run(
        self,
        function: Function,
        grid: Dims,
        order: np.ndarray,
        block: Dims,
        shared_bytes: int,
        parameters: bytes,
        memory: DeviceMemory,
        cluster: Dims,
        profile: bool,
        races: bool,
        lanes: int,
    ) -> Stats:
        for (name, address), holder in zip(self.addresses.items(), self._storage, strict=True):
            memory.hold(holder, address, self.text.variables[name].size)
        total = len(order)
        per_block = -(-(block[0] * block[1] * block[2]) // 32) * 32
        group = cluster[0] * cluster[1] * cluster[2]
        most = max(group, min(lanes // per_block, (1 << 27) // max(shared_bytes, 1)) // group * group)
        rounds = -(-total // most)
        slots = -(-total // rounds // group) * group
        machine = self._machine(function, block, slots, shared_bytes, cluster)
        machine.memory, machine.profile = memory, profile
        machine.find_races(races)
        machine.parameters.buffer[: len(parameters)] = np.frombuffer(parameters, np.uint8)[
            : len(machine.parameters.buffer)
        ]
        machine.counts[:] = [0] * len(machine.code)
        machine.stats = Stats()
        for first in range(0, total, slots):
            blocks = order[first : first + slots]
            machine.set_blocks(grid, blocks)
            machine.run(np.flatnonzero(machine.exists & (machine.slot < len(blocks))))
        for instruction, count in zip(function.instructions, machine.counts, strict=False):
            if count:
                machine.stats.instructions[".".join(instruction.words)] += count
        return machine.stats

    def _machine(self, function: Function, block: Dims, slots: int, shared_bytes: int, cluster: Dims) -> Machine:
        key = (function.name, block, slots, shared_bytes, cluster)
        machine = self._machines.pop(key, None)
        if machine is None:
            shared, static, total = self._shared(function, shared_bytes)
            limit = _shared_limit(self.text.target)
            if total > limit:
                where = f" on {self.text.target}" if self.text.target else ""
                raise InputError(f"'shared_bytes' expects at most {limit - static}{where}, but got {shared_bytes}")
            variables = Variables(function, shared, self.addresses, total)
            machine = Machine(function, variables, block, slots, DeviceMemory())
            machine.cluster = cluster
            machine.dynamic_bytes = shared_bytes
            machine.exit_checks = (bulk.check_ended,)
            machine.code = decode.bind(machine)
            machine.counts = [0] * len(machine.code)
            while len(self._machines) >= _KEPT:
                self._machines.pop(next(iter(self._machines)))
        self._machines[key] = machine
        return machine

    def _shared(self, function: Function, dynamic: int) -> tuple[dict[str, int], int, int]:
        """Offsets of variables in shared memory, the static bytes, and all bytes."""
        offsets: dict[str, int] = {}
        end = 0
        known = [v for v in self.text.variables.values() if v.space == "shared"] + list(function.shared.values())
        for variable in known:
            if not variable.external and variable.size:
                end = -(-end // variable.align) * variable.align
                offsets[variable.name] = end
                end += variable.size
        static = end
        external = [v for v in known if v.external or not v.size]
        if external:
            align = max(v.align for v in external)
            end = -(-end // align) * align
            offsets.update({v.name: end for v in external})
        return offsets, static, end + dynamic


def _shared_limit(target: str) -> int:
    """Shared memory that a block may have, in bytes; that of sm_90 where the chip isn't known."""
    return shared_memory(target if target in CHIPS else DEFAULT_CHIP)


def _dims(value: Sequence[int], what: str) -> Dims:
    numbers = [int(number) for number in value]
    if not 1 <= len(numbers) <= 3 or min(numbers) < 1:
        raise InputError(f"'{what}' expects one to three positive numbers, but got {tuple(numbers)}")
    x, y, z = [*numbers, 1, 1][:3]
    return x, y, z


def _check_launch(function: Function, grid: Dims, block: Dims, cluster: Dims) -> None:
    threads = block[0] * block[1] * block[2]
    if threads > 1024 or block[2] > 64:
        raise InputError(f"'block' expects at most 1024 threads, but got {block}")
    if grid[0] >= 1 << 31 or grid[1] > 65535 or grid[2] > 65535:
        raise InputError(f"'grid' expects at most (2147483647, 65535, 65535), but got {grid}")
    most = function.limits.get("maxntid")
    if most and threads > int(np.prod(most)):
        raise InputError(f"'block' expects at most {most} threads for kernel '{function.name}', but got {block}")
    required = function.limits.get("reqntid")
    if required and tuple([*required, 1, 1][:3]) != block:
        raise InputError(f"'block' expects {required} threads for kernel '{function.name}', but got {block}")
    if any(size % part for size, part in zip(grid, cluster, strict=True)):
        raise InputError(f"'grid' expects multiples of the cluster {cluster}, but got {grid}")


def _block_order(grid: Dims, cluster: Dims, chosen: Sequence[Sequence[int]] | None) -> np.ndarray:
    """Numbers of the blocks that run, those of a cluster together, by rank."""
    if chosen is None:
        number = np.arange(grid[0] * grid[1] * grid[2])
    else:
        places = [[*place, 0, 0][:3] for place in chosen]
        if not places or any(not 0 <= at < size for place in places for at, size in zip(place, grid, strict=True)):
            raise InputError(f"'blocks' expects numbers of blocks of the grid {grid}, but got {list(chosen)}")
        number = np.unique([x + grid[0] * (y + grid[1] * z) for x, y, z in places])
    if cluster == (1, 1, 1):
        return number
    x, y, z = number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1])
    rank = x % cluster[0] + cluster[0] * (y % cluster[1] + cluster[1] * (z % cluster[2]))
    if np.any(np.bincount(rank, minlength=int(np.prod(cluster))) * int(np.prod(cluster)) != len(number)):
        raise InputError(f"'blocks' expects whole clusters of {cluster}, but got {len(number)} blocks")
    return number[np.lexsort((rank, x // cluster[0], y // cluster[1], z // cluster[2]))]


def _pack(value: Any, size: int) -> bytes:
    """The bytes of a parameter."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, np.ndarray):
        return int(value.ctypes.data).to_bytes(8, "little")
    if isinstance(value, (bool, int)):
        return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")
    if isinstance(value, float):
        return np.dtype(f"f{size}").type(value).tobytes()
    if hasattr(value, "to_bytes"):
        return value.to_bytes()
    raise InputError(f"'args' expects numbers, arrays or bytes, but got {type(value).__name__}")


_parsed = functools.lru_cache(maxsize=8)(parse)  # modules leave texts as they are


def load(text: str | bytes) -> Module:
    """Reads PTX; EmulationError where it can't be read."""
    if isinstance(text, bytes):
        text = text.split(b"\0", 1)[0].decode()
    try:
        return Module(_parsed(text))
    except RecursionError:
        raise EmulationError("PTX is nested too deeply") from None
