# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A scheduled kernel for GPUs: functions of the device, and those of the host that launch them.

    device = DeviceEmitter(chip)
    with device.kernel(f"{name}_scale", [pointer("x", readonly=True), pointer("y"), ("n", "i32")], 256) as (x, y, n):
        ...

    def host(em: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        n = em.dim(operands[0], 0)
        em.launch(f"{name}_scale", em.iceildiv(n, 2048), 256, [operands[0], results[0], em.i32(n)])

    kernel = write_device_kernel(name, "scale", [("x", "memref<?xf32>")], [("y", "memref<?xf32>")], device, host)

The host computes sizes and launches; it touches no memory. A launch with no blocks (a grid of 0) does nothing.
Its part stays an object, which can be emitted in any place: `by_rows` makes one kernel of two schedules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of
from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter, Launched, Parameter, pointer
from rlx_mlir.codegen.kernel import Buffers, Scratch, in_order, row_count, signature_of
from rlx_mlir.codegen.structures import Structure, flatten, named, unflatten

__all__ = [
    "COUNTS",
    "MOST",
    "Buffers",
    "Constants",
    "DeviceKernel",
    "HostEmitter",
    "HostPart",
    "Numbers",
    "Scratch",
    "by_rows",
    "by_vectors",
    "check_counts",
    "symbol_of",
    "write_device_kernel",
    "write_sized_kernel",
]

#: Alignment of scratch memory, and of each of its parts, in bytes.
SCRATCH_ALIGNMENT = 256
#: The largest size that a kernel may take as i32: the next multiple of any tile is an i32, too.
MOST = (1 << 31) - (1 << 16)
#: Attribute of a launch: the names of the sizes that it passes as i32, in the order of its arguments.
COUNTS = "rlx.counts"
_SWIZZLES = {0: "none", 32: "swizzle_32b", 64: "swizzle_64b", 128: "swizzle_128b"}
_PROMOTIONS = {0: "none", 64: "l2promo_64b", 128: "l2promo_128b", 256: "l2promo_256b"}


Constants = frozenset[int]
"""Numbers of a kernel's operands that are parameters of the model at every call, so that `pointer` may have them
`constant`."""


def symbol_of(name: str) -> str:
    """A kernel's name as PTX can spell it."""
    return "".join(letter if letter.isalnum() or letter == "_" else "_" for letter in name)


def check_counts(name: str, *sizes: Index | None) -> None:
    """Raises UnsupportedByTemplate for a size that is known to be above MOST."""
    for size in sizes:
        if isinstance(size, int) and size > MOST:
            raise UnsupportedByTemplate(f"{name}: expects sizes up to {MOST}, but one is {size}")


class HostEmitter(Emitter):
    """Collects the host's part of a kernel: arithmetic on sizes (of type index), tensor maps, launches.

    Args:
        kernels: those that are launched, by name.
    """

    def __init__(self, kernels: Mapping[str, Launched] | None = None) -> None:
        super().__init__()
        self._kernels = kernels or {}

    def i32(self, x: Index) -> Value:
        """A size as i32. One that is above MOST is an error before the launch, or here, where it is known."""
        check_counts("host", x)
        return self.cast("arith.index_cast", x, "i32") if isinstance(x, Value) else self.const(x, "i32")

    def i64(self, x: Index) -> Value:
        """A size as i64."""
        return self.cast("arith.index_cast", x, "i64") if isinstance(x, Value) else self.const(x, "i64")

    def elements(self, buffer: Value) -> Index:
        """The number of elements of a buffer."""
        return self.dims(buffer, range(len(shape_of(buffer.type))))

    def launch(
        self,
        kernel: str,
        grid: Index | Sequence[Index],
        block: int | tuple[int, int, int],
        arguments: Sequence[Value],
        *,
        shared: Index = 0,
    ) -> None:
        """Launches a kernel of the program's GPU module. One that waits may start while the kernel before still runs.

        Args:
            grid: blocks along x, or along x, y and z; where one is 0, nothing is launched.
            block: threads of a block.
            arguments: buffers (pointers in the kernel), numbers of type index (i64 in the kernel), i32 or i64, maps.
            shared: bytes of dynamic shared memory.
        """
        sizes = [grid] if isinstance(grid, (int, Value)) else list(grid)
        threads = [block] if isinstance(block, int) else list(block)
        blocks = ", ".join(self.index(size) for size in [*sizes, 1, 1][:3])
        lanes = ", ".join(self.index(size) for size in [*threads, 1, 1][:3])
        memory = ""
        if not (isinstance(shared, int) and shared == 0):
            memory = f" dynamic_shared_memory_size {self.i32(shared)}"
        passed = ", ".join(f"{value} : {value.type}" for value in arguments)
        own = self._kernels[kernel]
        counts = [f'"{name}"' for name, value in zip(own.parameters, arguments, strict=True) if value.type == "i32"]
        marks = ["rlx.pdl"] * own.waits
        marks += [f"{COUNTS} = [{', '.join(counts)}]"] if counts else []
        words = f" {{{', '.join(marks)}}}" if marks else ""
        self.line(
            f"gpu.launch_func @kernels::@{kernel} blocks in ({blocks}) threads in ({lanes}){memory} "
            f"args({passed}){words}"
        )

    def tensor_map(
        self,
        buffer: Value,
        sizes: Sequence[Index],
        strides: Sequence[Index],
        box: Sequence[int],
        *,
        swizzle: int = 0,
        promotion: int = 256,
        offset: Index = 0,
    ) -> Value:
        """A map for bulk copies of boxes of a buffer; elements outside of its sizes are read as zeros.

        Args:
            sizes: of the tensor, outermost first (the kernel's coordinates are innermost first).
            strides: in elements; the last is 1, the others are multiples of 16 bytes.
            box: elements that one copy moves, at most 256 along each dimension; its row is of at most `swizzle` bytes.
            swizzle: 0, 32, 64 or 128 bytes. promotion: bytes that L2 fetches, 0, 64, 128 or 256.
            offset: elements before the tensor; 16 bytes divide it.
        """
        element = element_of(buffer.type)
        row = box[-1] * BITS[element] // 8
        if swizzle and row > swizzle:
            raise ValueError(f"tensor map: expects rows of at most {swizzle} bytes, but a box has {row}")
        if max(box) > 256:
            raise ValueError(f"tensor map: expects boxes of at most 256 elements a side, but got {list(box)}")

        def words(values: Sequence[Index]) -> str:
            return ", ".join(map(str, values))

        def static(values: Sequence[Index]) -> list[str]:
            return [str(value) if isinstance(value, int) else "?" for value in values]

        shape = "".join(f"{size}x" for size in static(sizes))
        at = str(offset) if isinstance(offset, int) else "?"
        layout = f"strided<[{', '.join(static(strides))}], offset: {at}>"
        type = f"memref<{shape}{element}, {layout}>"
        view = self.op(
            f"memref.reinterpret_cast {buffer} to offset: [{offset}], sizes: [{words(sizes)}], "
            f"strides: [{words(strides)}] : {buffer.type} to {type}",
            type,
            "view",
        )
        unranked = f"memref<*x{element}>"
        cast = self.op(f"memref.cast {view} : {type} to {unranked}", unranked, "view")
        tile = "".join(f"{size}x" for size in box)
        kind = (
            f"!nvgpu.tensormap.descriptor<tensor = memref<{tile}{element}, 3>, swizzle = {_SWIZZLES[swizzle]}, "
            f"l2promo = {_PROMOTIONS[promotion]}, oob = zero, interleave = none>"
        )
        sides = ", ".join(self.index(size) for size in box)
        return self.op(f"nvgpu.tma.create.descriptor {cast} box[{sides}] : {unranked} -> {kind}", kind, "map")


class Numbers(Generic[Structure]):
    """Sizes and distances that a kernel reads: those that types say stand in its code, the others are its parameters.

    Args:
        known: all of them, as the host finds them by types: a structure of ints and values.
        type: of the parameters.
    """

    def __init__(self, known: Structure, type: str = "i64") -> None:
        self._known, self._type = known, type
        leaves = list(named(known, numbers=True))
        uses = Counter(name for name, _ in leaves)
        self._names = {
            at: name if name and uses[name] == 1 else f"n{at}"
            for at, (name, number) in enumerate(leaves)
            if isinstance(number, Value)
        }

    @property
    def parameters(self) -> list[Parameter]:
        """The kernel's parameters for those that aren't known."""
        return [(name, self._type) for name in self._names.values()]

    def filled(self, given: Sequence[Value]) -> Structure:
        """All numbers in the kernel's code, of what its parameters are."""
        numbers = flatten(self._known, numbers=True)
        for at, value in zip(self._names, given, strict=True):
            numbers[at] = value
        return unflatten(self._known, numbers)

    def arguments(self, host: HostEmitter, sizes: Structure) -> list[Value]:
        """What the host passes for the parameters; `sizes` are all of them, of this launch."""
        numbers = flatten(sizes, numbers=True)
        return [host.i64(numbers[at]) if self._type == "i64" else host.i32(numbers[at]) for at in self._names]


def by_vectors(
    host: HostEmitter, widths: Sequence[int], divisors: Iterable[Index], launch: Callable[[int], None]
) -> None:
    """Launches the kernel of a number of elements a vector.

    Args:
        widths: for which there are kernels: one, or two between which the host decides.
        divisors: sizes that have to be multiples of the first.
        launch: launches the kernel of a width.
    """
    if len(widths) == 1:
        launch(widths[0])
        return
    total: Index = 0
    for own in dict.fromkeys(divisors):
        total = total + own % widths[0]
    if isinstance(total, int):
        launch(widths[total > 0])
        return
    with host.if_(host.cmpi("eq", total, 0)) as branch:
        launch(widths[0])
        branch.else_()
        launch(widths[1])


@dataclass(frozen=True)
class HostPart:
    """What the host does for a kernel, which can be emitted anywhere: in a function, in one side of a branch.

    It is emitted once as it is made, so that a schedule declines what its host's part can't do.

    Attributes:
        name: the kernel's.
        buffers: its own operands, then its results.
        kernels: the functions that are launched, by name.
        launch: `launch(em, buffers, scratch)` computes sizes and launches.
        scratch: `scratch(em, buffers)` is the number of bytes of scratch memory.
        text: `NAME.body`, `NAME.units` and `NAME.scratch`.
    """

    name: str
    buffers: Buffers
    kernels: Mapping[str, Launched]
    launch: Callable[[HostEmitter, list[Value], Value], None]
    scratch: Callable[[HostEmitter, list[Value]], Index]
    text: str = field(init=False)

    def __post_init__(self) -> None:
        em = HostEmitter(self.kernels)
        more = [("begin", "index"), ("end", "index"), ("scratch", "memref<?xi8>")]
        with em.func(f"{self.name}.body", [*self.buffers, *more]) as values:
            self.launch(em, values[: -len(more)], values[-1])
        with em.func(f"{self.name}.units", self.buffers, ["index"]):
            em.return_([em.const(1)])
        with em.func(f"{self.name}.scratch", self.buffers, ["index"]) as values:
            em.return_([em.index(self.scratch(em, values))])
        object.__setattr__(self, "text", em.text())


@dataclass(frozen=True)
class DeviceKernel:
    """A scheduled kernel.

    Attributes:
        schedule: the schedule's name, for reports.
        device: the text of functions of the GPU (`llvm.func`), for the one GPU module of the program.
        host: what launches them.
    """

    schedule: str
    device: str
    host: HostPart


def write_device_kernel(
    name: str,
    schedule: str,
    operands: Buffers,
    results: Buffers,
    device: DeviceEmitter,
    host: Callable[[HostEmitter, list[Value], list[Value], Scratch], None],
    *,
    scratch: Callable[[HostEmitter, list[Value], Scratch], object] | None = None,
    order: tuple[int, ...] | None = None,
) -> DeviceKernel:
    """A kernel whose functions of the device are those that `device` holds.

    Args:
        host: `host(em, operands, results, scratch)` computes sizes and launches; operands in the schedule's order.
        scratch: takes the same parts of scratch memory as `host` does, in the same order, for their size; absent where
            there are none.
        order: the kernel's operand for each of the schedule's, where that isn't simply the same order.
    """
    order = tuple(range(len(operands))) if order is None else order
    own = signature_of(name, operands, order)

    def launch(em: HostEmitter, buffers: list[Value], memory: Value) -> None:
        host(em, in_order(buffers, order), buffers[len(own) :], Scratch(em, memory, SCRATCH_ALIGNMENT))

    def measure(em: HostEmitter, buffers: list[Value]) -> Index:
        parts = Scratch(em, None, SCRATCH_ALIGNMENT)
        if scratch is not None:
            scratch(em, in_order(buffers, order), parts)
        return parts.bytes

    part = HostPart(name, [*own, *results], device.kernels, launch, measure)
    return DeviceKernel(schedule, device.text(), part)


def write_sized_kernel(
    em: DeviceEmitter,
    name: str,
    schedule: str,
    operands: Buffers,
    results: Buffers,
    sizes: Callable[[HostEmitter, list[Value]], Structure],
    body: Callable[[list[Value], Structure, int], None],
    grid: Callable[[HostEmitter, Structure, int], Index | Sequence[Index]],
    *,
    threads: int,
    symbol: str,
    widths: Callable[[Structure], Sequence[int]] | None = None,
    divisors: Callable[[Structure], Iterable[Index]] = lambda sizes: (),
    shared: Callable[[int], int] = lambda width: 0,
    constants: Constants = frozenset(),
    order: tuple[int, ...] | None = None,
    type: str = "i64",
) -> DeviceKernel:
    """A kernel of one launch, whose code has the sizes that types say; those of each call are its parameters.

    Args:
        sizes: what the kernel has to know of its buffers, the operands and then the results.
        body: emits the kernel's code: body(buffers, sizes, elements of a vector).
        grid: the launch's blocks.
        symbol: what its name has after the kernel's; the elements of a vector follow, where there are `widths`.
        widths: elements of a vector: one number, or two between which the host decides.
        divisors: sizes that have to be multiples of the first of them.
        shared: bytes of shared memory.
        order: as for `write_device_kernel`.
        type: of the parameters.
    """
    numbered = order or tuple(range(len(operands)))
    known = sizes(HostEmitter(), [Value(f"%{own}", kind) for own, kind in (*operands, *results)])
    numbers, choice = Numbers(known, type), (1,) if widths is None else widths(known)
    read = zip(numbered, operands, strict=True)
    parameters: list[Parameter] = [
        *(pointer(own, readonly=True, constant=at in constants) for at, (own, _) in read),
        *(pointer(own) for own, _ in results),
        *numbers.parameters,
    ]
    symbols = {width: symbol_of(f"{name}_{symbol}{'' if widths is None else width}") for width in choice}
    count = len(operands) + len(results)
    for width in choice:
        with em.kernel(symbols[width], parameters, threads, chained=True) as values:
            body(values[:count], numbers.filled(values[count:]), width)

    def host(host: HostEmitter, sources: list[Value], targets: list[Value], scratch: Scratch) -> None:
        own = sizes(host, [*sources, *targets])
        arguments = [*sources, *targets, *numbers.arguments(host, own)]

        def launch(width: int) -> None:
            blocks = grid(host, own, width)
            host.launch(symbols[width], blocks, threads, arguments, shared=shared(width))

        by_vectors(host, choice, divisors(own), launch)

    return write_device_kernel(name, schedule, operands, results, em, host, order=order)


def by_rows(few: DeviceKernel, many: DeviceKernel, limit: int, operand: int = 0) -> DeviceKernel:
    """A kernel that launches as `few` does for at most `limit` rows, and as `many` does for more.

    Args:
        few, many: schedules of one kernel; the names of their functions of the device differ.
        operand: the operand whose sizes but the last are the rows.
    """
    name, types = few.host.name, [type for _, type in few.host.buffers]
    if name != many.host.name or types != [type for _, type in many.host.buffers]:
        raise ValueError(f"{name}: the schedules aren't of one kernel: {few.host.buffers}, {many.host.buffers}")

    def launch(em: HostEmitter, buffers: list[Value], memory: Value) -> None:
        with em.if_(em.cmpi("ule", row_count(em, buffers[operand]), limit)) as branch:
            few.host.launch(em, buffers, memory)
            branch.else_()
            many.host.launch(em, buffers, memory)

    def measure(em: HostEmitter, buffers: list[Value]) -> Index:
        return em.imax(few.host.scratch(em, buffers), many.host.scratch(em, buffers))

    part = HostPart(name, few.host.buffers, {**few.host.kernels, **many.host.kernels}, launch, measure)
    return DeviceKernel(f"{few.schedule}|{many.schedule}", f"{few.device}\n{many.device}", part)
