# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run-time parts that run per call: the thread pool, the object loader and the plan executor.

Import it through `rlx_mlir.native`. Errors are `rlx_mlir.errors.InputError` (a value given by the caller breaks a rule)
and `ExecutionError` (code cannot be loaded, memory cannot be had).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

Factor: TypeAlias = int | tuple[Literal["floordiv", "max"], int, "Expr"]
"""The index of a symbol, or (kind, number, size): size // number, or the larger one of the two."""

Expr: TypeAlias = int | Sequence[tuple[int, Sequence[Factor]]]
"""A polynomial in the sizes of the symbols: a number, or a list of terms (coefficient, factors)."""

Move: TypeAlias = tuple[int, Expr]
"""(block, bytes): how far a buffer moves from one step of a loop that encloses it to the next one."""

Buffer: TypeAlias = (
    tuple[Literal["arena", "input", "param", "output"], int, Expr]
    | tuple[Literal["arena", "input", "param", "output"], int, Expr, Sequence[Move]]
)
"""(kind, index, byte offset, moves): the index of a slot, input, param or output, and an offset into it at first."""

Call: TypeAlias = tuple[int, Sequence[Buffer], Sequence[Expr], Expr | None]
"""(kernel index, buffers, dims, work).

`dims` are all dynamic dims of the kernel's memrefs, in order. `work` estimates the call's bytes or operations,
whichever is more: there is one thread for each full 16384 of it, at least one; None counts as much.
"""

Block: TypeAlias = tuple[
    Literal["for", "while", "if"],
    int,
    int,
    int,
    int,
    int,
    Expr | None,
    Buffer | None,
    Sequence[tuple[Buffer, Buffer, Expr]],
]
"""(kind, parent, part, begin, middle, end, steps, flag, swaps), see `rlx_mlir.runtime.artifact.BlockSpec`.

Blocks come in order, those in a block after it. A swap is (current, next, bytes): two buffers that take turns.
"""

Extent: TypeAlias = tuple[int, Sequence[Expr]]
"""(bytes of an element, sizes) of an input, param or output."""

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
    thread. All ranges run even if one raises; then the first exception is raised again. `fn` must not fork the process,
    and can't run or measure a plan: InputError.

    Workers spin for about 50 us after a region and then sleep; where one comes late, the caller does its range.

    Args:
        threads: size of the team; 0 means `default_threads()`.
    """

def host_processor() -> tuple[str, str, str, str]:
    """(architecture, name, model, features) of this machine's processor.

    The architecture as target triples begin with it; a name for people; maker, family, model and stepping, or what
    AArch64 has instead; the features that compiled code can depend on, in LLVM's names, such as "+avx2,-sse4a": what is
    there and what the operating system lets programs use, and what isn't.
    """

def unneeded_features() -> list[str]:
    """Features of x86-64, in LLVM's names, that a processor may lack which runs code compiled for them."""

def host_functions() -> list[str]:
    """Names of the functions of libm, libc and this package that compiled code may call, in order."""

def link_objects(
    objects: Sequence[bytes], *, machine: int, address: int, functions: Mapping[str, int]
) -> tuple[bytes, dict[str, int], tuple[tuple[int, int], tuple[int, int], tuple[int, int]], list[str]]:
    """Links relocatable ELF objects for any address, on any machine; nothing is made executable.

    Args:
        machine: ELF's number: 62 for x86-64, 183 for AArch64.
        address: where the image will be, a multiple of 4096.
        functions: addresses of functions that the objects may call, by name.

    Gives the image; offsets in it of the global symbols that the objects define; (offset, bytes) of its segments, which
    are code, constants and data; and the names of the functions that the objects use.

    Raises InputError for another machine or address, ExecutionError where `ObjectCode` does.
    """

class ObjectCode:
    """Relocatable ELF objects, linked with each other and with `host_functions()`.

    The code stays in memory as long as this object or a `Plan` on it lives. Never changes, so it may be used from
    several threads.
    """

    def __init__(self, objects: Sequence[bytes], functions: Sequence[tuple[str, int]] = ()) -> None:
        """Links the objects, and copies what is needed of them. No page is ever writable and executable at once.

        Args:
            functions: name and address of each function of this program that the objects call; they have to stay, and
                come before those of `host_functions()`.

        Raises ExecutionError, which names the object by its index, and in it the section, symbol or relocation, where
        one is damaged or for another machine, defines a symbol that another one has defined, uses one that nobody
        defines, has thread-local storage or functions that run when code is loaded, or where a relocation doesn't fit.
        What instructions do isn't checked: whoever stores objects keeps a checksum.
        """

    def lookup(self, name: str) -> int:
        """The address of a global symbol. Raises ExecutionError, which names it, where no object defines it."""

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
        blocks: Sequence[Block] = (),
        positions: Sequence[Positions] = (),
        extents: tuple[Sequence[Extent], Sequence[Extent], Sequence[Extent]] | None = None,
        threads: int = 0,
    ) -> None:
        """Looks the kernels up and allocates the arena and the scratch memory for the maxima of the symbols.

        Args:
            code: defines `NAME`, `NAME_units` and `NAME_scratch` for each kernel. Where it has `NAME_signature`, too,
                calls are checked against that: what a kernel reads and writes lies in its buffers.
            symbols: (name, declared maximum) of each dynamic size.
            arena_bytes: size of the arena, which starts zeroed and aligned to 64 bytes.
            slots: (byte offset, bytes) of each view into the arena, at the maxima; offsets are multiples of 64.
            kernels: names, to which calls refer by index.
            inputs: names, for messages and for their number; `params` and `outputs` likewise.
            calls: in the order of execution.
            blocks: which of them are in loops and branches.
            positions: what is checked of values at each run; they are copied before.
            extents: of inputs, params and outputs, how large they are; None where nobody knows.
            threads: largest team for one call; 0 means `default_threads()`.

        Raises InputError where an index, an offset or an expression is out of range, or a call doesn't fit its kernel,
        and ExecutionError where a kernel is missing or the memory cannot be had.
        """

    def run(
        self,
        inputs: Sequence[int],
        params: Sequence[int],
        outputs: Sequence[int],
        sizes: Sequence[int],
        check: Callable[[], object] | None = None,
    ) -> None:
        """Runs all calls, without the GIL; returns when the outputs are written.

        The caller has checked that each address has the memory behind it that the sizes ask for.

        Args:
            inputs: addresses, in the order of the names; `params` and `outputs` likewise.
            sizes: one for each symbol.
            check: is called between steps of loops, 50 times a second at most: what it raises ends the run, and so
                does what handlers of signals raise.

        Raises InputError where a count is wrong, an address is null, or a size is negative or above its maximum, or
        a position is out of range, or in a range of `parallel_for`; then nothing ran.
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

# GPUs ---------------------------------------------------------------------------------------------
#
# NVIDIA's driver is loaded at the first use: the library that the environment's RLX_CUDA_DRIVER names, or libcuda.so.1.
# What fails raises `rlx_mlir.errors.DeviceError` or a subclass. A forked child can't use what its parent used.

Argument: TypeAlias = tuple[int, int, bool, int, int]
"""(address, bytes, on the GPU, known, tied) of an input or output.

`known`, of an input on the GPU that holds positions: where the host has what it will hold; 0 where it is fetched.
`tied`, of an output: the number of the input whose contents it starts with, those of parameters following those of
inputs; -1 for none, or where they are there.
"""

def cuda_device_count() -> int:
    """GPUs that the driver shows. Raises DriverMissingError, NoDeviceError or DriverTooOldError."""

def cuda_driver_version() -> int:
    """The version of CUDA that the driver is for: 12080 for 12.8."""

def dlpack_export(*, owner: object, address: int, shape: Sequence[int], code: int, bits: int, ordinal: int) -> object:
    """A capsule of DLPack for a contiguous array on a GPU, which keeps `owner` alive."""

def dlpack_export_host(
    *,
    owner: object,
    address: int,
    shape: Sequence[int],
    strides: Sequence[int],
    code: int,
    bits: int,
    writable: bool,
) -> object:
    """An object with `__dlpack__` and `__dlpack_device__` for an array on the host, which keeps `owner` alive.

    `strides` are in elements.
    """

def dlpack_import(object: object) -> tuple[int, tuple[int, ...], tuple[int, ...], int, int, int, int, bool, object]:
    """What an object with `__dlpack__`, or a capsule of DLPack, has.

    (address, shape, strides in elements, type code, bits, kind of device, its number, whether a capsule of version 1 or
    later says that its memory may be written, what keeps the memory alive). Raises InputError where it has no such
    array.
    """

class CudaDevice:
    """A GPU and its primary context, which other libraries of the process share."""

    def __init__(self, ordinal: int = 0) -> None:
        """Raises NoDeviceError where there is no GPU of that number."""

    @property
    def ordinal(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def compute_capability(self) -> tuple[int, int]: ...
    @property
    def multiprocessors(self) -> int: ...
    @property
    def max_shared_bytes(self) -> int:
        """Shared memory that a block can have."""

    @property
    def total_bytes(self) -> int: ...
    def memory(self) -> tuple[int, int]:
        """(free, total) bytes."""

    @property
    def allocated_bytes(self) -> int:
        """Bytes of the GPU's memory that this package has."""

    @property
    def pinned_bytes(self) -> int:
        """Bytes of pinned memory of the host that this package has."""

    def write(self, address: int, source: object) -> None:
        """Copies the bytes of a contiguous array to the GPU, and waits."""

    def read(self, address: int, target: object) -> None:
        """Copies bytes from the GPU to a contiguous, writable array, and waits."""

    def copy(self, target: int, source: int, bytes: int) -> None:
        """Copies from one address on the GPU to another, and waits."""

    def clear(self, address: int, bytes: int) -> None:
        """Sets bytes to zero, and waits."""

    def synchronize(self, stream: int = 0) -> None:
        """Waits for everything in a stream, given by its handle; the default stream is 0."""

    def check_outside_capture(self, stream: int) -> None:
        """Raises InputError where a stream is being captured to a CUDA graph."""

    def ordinal_of(self, address: int) -> int | None:
        """The number of the GPU whose memory an address is; None where it is memory of none."""

    def order(self, before: int, after: int) -> None:
        """Lets one stream wait for what another one holds by now; both are given by their handles."""

class CudaMemory:
    """Memory on a GPU, aligned to 256 bytes, until the object goes."""

    def __init__(self, device: CudaDevice, bytes: int, what: str) -> None:
        """Raises DeviceMemoryError, which names what it is for, where there isn't enough."""

    @property
    def address(self) -> int: ...
    @property
    def bytes(self) -> int: ...

class CudaCode:
    """Kernels that are loaded to a GPU."""

    def __init__(self, device: CudaDevice, image: bytes, kernels: Sequence[str]) -> None:
        """Loads PTX or machine code; kernels are launched by their number in the list.

        Raises DriverTooOldError where the driver doesn't know the version of PTX, WrongDeviceError where the code is
        for another chip, DeviceError with the compiler's messages where it is wrong.
        """

class CudaArguments:
    """What a run of a plan is given; lists are in the order of the plan's names."""

    def __init__(
        self,
        *,
        inputs: Sequence[Argument],
        outputs: Sequence[Argument],
        params: Sequence[int],
        param_values: Sequence[int],
        sizes: Sequence[int],
    ) -> None:
        """Notes everything; nothing is checked yet.

        Args:
            inputs, outputs: arrays of the host or the GPU.
            params: addresses on the GPU.
            param_values: addresses on the host of those that hold positions, 0 for others.
            sizes: one for each symbol.
        """

class CudaRun:
    """A run that was started, and not waited for."""

    @property
    def number(self) -> int:
        """Among those of its plan; the first is 1."""

    def wait(self) -> None:
        """Returns when it is over; DeviceFaultError, which names the run, where it or one before it failed."""

    @property
    def done(self) -> bool:
        """Whether it is over; raises what `wait` raises."""

    def hold(self, stream: int) -> None:
        """Lets a stream, given by its handle, wait for it."""

class CudaPlan:
    """A compiled entry function on a GPU. Host code launches kernels; what is repeated becomes a CUDA graph.

    Concurrent `run` calls on one plan take turns, since they share its arena.
    """

    def __init__(
        self,
        host_code: ObjectCode,
        device_code: CudaCode,
        *,
        name: str,
        symbols: Sequence[tuple[str, int]],
        arena_bytes: int,
        slots: Sequence[tuple[int, int]],
        kernels: Sequence[str],
        inputs: Sequence[str],
        input_bytes: Sequence[int],
        params: Sequence[str],
        outputs: Sequence[str],
        output_bytes: Sequence[int],
        calls: Sequence[Call],
        blocks: Sequence[Block] = (),
        positions: Sequence[Positions] = (),
        graphs: int = 16,
        wait: bool = False,
    ) -> None:
        """Looks the kernels up and allocates memory for the maxima of the symbols.

        Args:
            host_code: defines `NAME`, `NAME_units` and `NAME_scratch` for each kernel; buffers are on the GPU.
            device_code: what host code launches, by number.
            name: of the module, in messages.
            input_bytes, output_bytes: of each, at the maxima.
            graphs: how many are kept, each for some sizes and addresses; 0 for none.
            wait: for the end of each launch, so that an error names its kernel. Then no graphs are made.

        Others are those of `Plan`. Raises what it raises, and DeviceMemoryError.
        """

    def run(
        self,
        arguments: CudaArguments,
        wait: bool = True,
        stream: int | None = None,
        after: Sequence[CudaRun] = (),
    ) -> CudaRun | None:
        """Runs all calls, without the GIL; returns when they are over, or have been started.

        Args:
            wait: for the end; otherwise outputs have to be on the GPU, and the run is returned.
            stream: handle of a stream: the run comes after what it holds, and what it gets later after the run.
            after: runs of other plans that come before.

        Raises InputError, before anything ran, where a number, an address, a size or a position is wrong;
        DeviceFaultError where a kernel failed.
        """

    def repeat(
        self, turns: Sequence[CudaArguments], *, first: int, count: int, joined: bool, after: Sequence[CudaRun] = ()
    ) -> CudaRun:
        """Starts runs one after the other, without the GIL, and gives the last one.

        Args:
            turns: arguments of the runs, in turn, of the same sizes; all arrays are on the GPU.
            first: which of them comes first.
            count: of runs.
            joined: what is repeated like that becomes one CUDA graph.
            after: runs of other plans that come before.

        Raises what `run` raises; positions are checked once, by what is known of them.
        """

    def synchronize(self) -> None:
        """Waits for all runs; DeviceFaultError where one failed."""

    def profile(self, enabled: bool) -> None:
        """Starts to measure each call on the GPU, from zero; or stops, and keeps what was measured."""

    def timings(self) -> tuple[int, list[int]]:
        """(runs, nanoseconds of each call summed over these runs) since `profile(True)`."""

    @property
    def graph_counts(self) -> tuple[int, int, int]:
        """Graphs that are kept, that were captured, and runs that were replayed by one."""

    @property
    def calls(self) -> list[str]:
        """The kernel's name of each call."""

    @property
    def arena_bytes(self) -> int: ...
    @property
    def scratch_bytes(self) -> int: ...
