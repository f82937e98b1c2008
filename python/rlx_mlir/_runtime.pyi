# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run-time parts that run per call: the thread pool, the object loader and the plan executor.

Import it through `rlx_mlir.runtime.native`, which finds LLVM first. Errors are `rlx_mlir.errors.InputError` (a value
given by the caller breaks a rule) and `ExecutionError` (code cannot be loaded, memory cannot be had).
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

Expr: TypeAlias = int | Sequence[tuple[int, Sequence[int]]]
"""A polynomial in the sizes of the symbols: a number, or a list of terms (coefficient, symbol indices)."""

Buffer: TypeAlias = tuple[Literal["arena", "input", "param", "output"], int, Expr]
"""(kind, index, byte offset): the index of a slot, input, param or output, and an offset into it."""

Call: TypeAlias = tuple[int, Sequence[Buffer], Sequence[Expr], Expr | None]
"""(kernel index, buffers, dims, work).

`dims` are all dynamic dims of the kernel's memrefs, in order. `work` estimates the call's bytes or operations,
whichever is more: there is one thread for each full 16384 of it, at least one; None counts as much.
"""

Positions: TypeAlias = tuple[Literal["input", "param"], int, Expr, Expr, Expr, str]
"""(kind, index, count, rows, limit, where): an input or param of `count` i32 numbers of rows.

Of each number, it and the `rows` - 1 after it have to be in [0, limit); `where` says in messages what needs that.
"""

def default_threads() -> int:
    """Threads to use where nothing else is said.

    `RLX_NUM_THREADS` where it is set; otherwise the least of the CPUs in the affinity mask, the cgroup's CPU quota
    rounded down (at least 1) and `OMP_NUM_THREADS`, where that is a number. Reads the environment at each call.

    Raises InputError, which names the variable, where `RLX_NUM_THREADS` isn't a number from 1 to 1024.
    """

def available_cpus() -> int:
    """Logical CPUs in the affinity mask of this process."""

def cpu_quota(root: str = "") -> float | None:
    """The tightest CPU quota of this process's cgroups (v1 and v2) in CPUs, or None where there is none.

    Args:
        root: stands before `/proc/self/cgroup` and every other path that is read.
    """

def worker_count() -> int:
    """Threads in the pool now, not counting the callers. They are created when first needed."""

def parallel_for(fn: Callable[[int, int, int], object], units: int, threads: int = 0) -> None:
    """Calls `fn(begin, end, thread)` on the T = min(threads, units) ranges [units*t//T, units*(t+1)//T).

    Each range is done exactly once, by any thread of the process's one pool; no two ranges run at one time with one
    `thread` number in [0, T). Calls from several threads take turns, and a call from inside `fn` runs on its own
    thread. All ranges run even if one raises; then the first exception is raised again. `fn` must not fork the process.

    Workers spin for about 50 us after a region and then sleep; where one comes late, the caller does its range.

    Args:
        threads: size of the team; 0 means `default_threads()`.
    """

def host_target() -> tuple[str, str, str]:
    """(target triple, CPU name, feature string such as "+avx2,-sse4a") of this machine, as LLVM names them."""

class ObjectCode:
    """Relocatable ELF objects, linked with each other, libc, libm and 16-bit float conversions.

    The code stays in memory as long as this object or a `Plan` on it lives. May be used from several threads.
    """

    def __init__(self, objects: Sequence[bytes]) -> None:
        """Copies and adds the objects; linking happens at the first `lookup`.

        Raises ExecutionError, which names the object by its index, where one is cut off, no object or for another
        machine, or where a symbol is defined twice. Bytes changed inside an object may pass unseen, or end the process
        in one of LLVM's assertions: whoever stores objects keeps a checksum.
        """

    def lookup(self, name: str) -> int:
        """The address of a symbol.

        Raises ExecutionError, which names it, where nobody defines it or its object needs a symbol that is missing.
        """

class Plan:
    """A compiled entry function: kernel calls on views into one arena, parameters, inputs and outputs.

    Concurrent `run` calls on one plan take turns, since they share its arena. The results are the same for any number
    of threads, as long as the kernels' units are independent of each other.
    """

    def __init__(
        self,
        code: ObjectCode,
        *,
        symbols: Sequence[tuple[str, int]],
        arena_bytes: int,
        slots: Sequence[tuple[int, int]],
        kernels: Sequence[str],
        inputs: Sequence[str],
        params: Sequence[str],
        outputs: Sequence[str],
        calls: Sequence[Call],
        positions: Sequence[Positions] = (),
        threads: int = 0,
    ) -> None:
        """Looks the kernels up and allocates the arena and the scratch memory for the maxima of the symbols.

        Args:
            code: defines `NAME`, `NAME_units` and `NAME_scratch` for each kernel.
            symbols: (name, declared maximum) of each dynamic size.
            arena_bytes: size of the arena, which starts zeroed and aligned to 64 bytes.
            slots: (byte offset, bytes) of each view into the arena, at the maxima; offsets are multiples of 64.
            kernels: names, to which calls refer by index.
            inputs: names, for messages and for their number; `params` and `outputs` likewise.
            calls: in the order of execution.
            positions: what is checked of values at each run.
            threads: largest team for one call; 0 means `default_threads()`.

        Raises InputError where an index, an offset or an expression is out of range, and ExecutionError where a kernel
        is missing or the memory cannot be had.
        """

    def run(self, inputs: Sequence[int], params: Sequence[int], outputs: Sequence[int], sizes: Sequence[int]) -> None:
        """Runs all calls, without the GIL; returns when the outputs are written.

        The caller has checked that each address has the memory behind it that the sizes ask for.

        Args:
            inputs: addresses, in the order of the names; `params` and `outputs` likewise.
            sizes: one for each symbol.

        Raises InputError where a count is wrong, an address is null, or a size is negative or above its maximum, or
        a position is out of range; then nothing ran.
        """

    def profile(self, enabled: bool) -> None:
        """Starts to measure each call, from zero; or stops, and keeps what was measured."""

    def timings(self) -> tuple[int, list[int]]:
        """(runs, nanoseconds of each call summed over these runs) since `profile(True)`."""

    @property
    def calls(self) -> list[str]:
        """The kernel's name of each call."""

    @property
    def threads(self) -> int:
        """Largest team for one call."""

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena."""

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch memory of each thread."""
