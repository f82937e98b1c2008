# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What all matrix products on GPUs share: sizes and batches, tiles of the output, rings in shared memory, the epilogue.

A kernel computes outputs = program(x W_0, x W_1, ..., arguments). A block of threads computes one tile of rows and
columns of every product, going along K in steps; a ring of stages in shared memory holds the operands of the steps that
are under way. Offsets into global memory are i64, sizes and places in a matrix i32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.conversions import IN_F32
from rlx_mlir.codegen.gpu.emit import BITS, GLOBAL, DeviceEmitter, Index, Value, pointer, vec, with_element
from rlx_mlir.codegen.gpu.epilogue import DEVICE_UNARY
from rlx_mlir.codegen.gpu.gemm_config import Tile
from rlx_mlir.codegen.gpu.kernel import Constants, check_counts
from rlx_mlir.codegen.kernel import batch_element
from rlx_mlir.codegen.program import IDENTITY, Program
from rlx_mlir.codegen.specs.products import ProductSpec, known_product
from rlx_mlir.codegen.structures import Structure
from rlx_mlir.tuning.choices import NOTHING_CHOSEN, Chosen

Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Gemm:
    """outputs = program(x W_0, x W_1, ..., arguments), with x [..., M, K] and W_i [..., K, N], or [..., N, K].

    Batch sizes broadcast where an operand's type says 1; two dynamic ones are equal. None stands for a dynamic size.
    Where no W has batches, those of x are further rows.

    element: type of x, the arguments and the outputs. Products and program are f32, and outputs are rounded once.
    float8: types of x and of the weights, f8E4M3FN or f8E5M2, where they aren't `element`.
    operand_order: the kernel's operand for each of x, the weights and the arguments; None where it is the same order.
    w_stride: elements between rows of a weight [N, K], where that isn't K; what lies between is zero.
    constant: the weights are parameters of the model: they may be read while kernels before still run.
    chosen: measured choices, in place of rules.
    """

    name: str
    x_shape: Shape
    w_shape: Shape
    out_shape: Shape
    program: Program = IDENTITY
    operand_order: tuple[int, ...] | None = None
    element: str = "f32"
    transpose_rhs: bool = False
    w_stride: int | None = None
    constant: bool = False
    chosen: Chosen = NOTHING_CHOSEN
    float8: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if self.element not in IN_F32:
            raise UnsupportedByTemplate(f"{self.name}: products of {self.element} have no schedule")
        if len(self.x_shape) < (2 if self.batched else 1) or len(self.w_shape) < 2:
            shapes = f"{self.x_shape} and {self.w_shape}"
            raise UnsupportedByTemplate(f"{self.name}: expects a matrix of weights, but the operands are {shapes}")
        check_counts(self.name, self.m, self.n, self.k)

    @classmethod
    def of(
        cls,
        spec: ProductSpec,
        constants: Constants = frozenset(),
        chosen: Chosen = NOTHING_CHOSEN,
        weight: Shape | None = None,
        stride: int | None = None,
    ) -> Gemm:
        """A kernel as a product.

        Args:
            constants: the kernel's operands that are parameters of the model.
            weight: sizes [N, K] of weights that are packed.
            stride: elements between their rows, where that isn't K.
        """
        first = 3 if spec.kind == "block_dot" else 1
        return cls(
            spec.name,
            spec.x,
            spec.weight if weight is None else weight,
            spec.result,
            spec.program,
            spec.order,
            spec.element,
            spec.transposed or weight is not None,
            stride,
            constants.issuperset(spec.order[first : first + spec.program.accumulators]),
            chosen,
            spec.float8,
        )

    @property
    def operand_bytes(self) -> int:
        """Bytes of an element of x, and of the weights."""
        return size_bytes(self.element) if self.float8 is None else 1

    @property
    def stored(self) -> str:
        """What x and the weights are to code that copies them: its element, or bytes."""
        return self.element if self.float8 is None else "i8"

    @property
    def batched(self) -> bool:
        """Whether the right operand has batches."""
        return any(size != 1 for size in self.w_shape[:-2])

    @property
    def m(self) -> int | None:
        """Rows of a batch element, None where dynamic."""
        sizes = self.x_shape[-2:-1] if self.batched else self.x_shape[:-1]
        return known_product(sizes)

    @property
    def k(self) -> int | None:
        own, other = self.x_shape[-1], self.w_shape[-1 if self.transpose_rhs else -2]
        return other if own is None else own

    @property
    def n(self) -> int | None:
        return self.w_shape[-2 if self.transpose_rhs else -1]

    @property
    def batch_shape(self) -> Shape:
        return self.out_shape[:-2] if self.batched else ()

    @property
    def batch(self) -> int:
        """Batch elements, dynamic ones counted as one."""
        return math.prod(size or 1 for size in self.batch_shape)


# ----------------------------------------------------------------------------------------------------------------------
# Sizes, and which part of the output a block computes
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """m, n, k and the batch's sizes inside of a kernel: numbers where static, else i32 parameters."""

    m: Index
    n: Index
    k: Index
    batch: tuple[Index, ...] = ()

    @staticmethod
    def names(gemm: Gemm) -> list[str]:
        """Names of the dynamic sizes, in the order of a kernel's parameters."""
        named = [("m", gemm.m), ("n", gemm.n), ("k", gemm.k)]
        named += [(f"b{i}", size) for i, size in enumerate(gemm.batch_shape)]
        return [name for name, size in named if size is None]

    @staticmethod
    def of(gemm: Gemm, given: Sequence[Value]) -> Sizes:
        """The sizes of which `given` are the dynamic ones."""
        values = dict(zip(Sizes.names(gemm), given, strict=True))

        def size(name: str, known: int | None) -> Index:
            return values[name] if known is None else known

        batch = tuple(size(f"b{i}", known) for i, known in enumerate(gemm.batch_shape))
        return Sizes(size("m", gemm.m), size("n", gemm.n), size("k", gemm.k), batch)


@dataclass(frozen=True)
class Place:
    """What a block computes: the batch element of the output, of x and of the weights, first row and column."""

    batch: Index
    x_batch: Index
    w_batch: Index
    row: Index
    column: Index


def tile_place(em: DeviceEmitter, gemm: Gemm, sizes: Sizes, tile: Tile) -> Place:
    """The block's tile: blocks that follow each other sweep a group of row tiles, column by column."""
    rows, columns = em.iceildiv(sizes.m, tile.bm), em.iceildiv(sizes.n, tile.bn)
    block: Index = em.block()
    batch: Index = 0
    if sizes.batch:
        per_batch = rows * columns
        batch, block = block // per_batch, block % per_batch
    if isinstance(rows, int) and rows <= tile.group:
        row, column = block % rows, block // rows
    else:
        swept = columns * tile.group
        first = block // swept * tile.group
        inside = block % swept
        height = em.imin(rows - first, tile.group)
        row, column = first + inside % height, inside // height
    return Place(
        batch,
        batch_element(batch, sizes.batch, gemm.x_shape),
        batch_element(batch, sizes.batch, gemm.w_shape),
        row * tile.bm,
        column * tile.bn,
    )


def size_bytes(element: str) -> int:
    """Bytes of an element."""
    return BITS[element] // 8


def offset64(em: DeviceEmitter, *terms: tuple[Index, Index]) -> Index:
    """The sum of products, as an i64 where it isn't a number: offsets in large buffers."""
    total: Index = 0
    for a, b in terms:
        if isinstance(a, int) and isinstance(b, int):
            product: Index = a * b
        elif a == 0 or b == 0:
            product = 0
        else:
            product = (a if isinstance(a, int) else em.wide(a)) * (b if isinstance(b, int) else em.wide(b))
        total = total + product
    return total


def guard(em: DeviceEmitter, place: Index, limit: Index, step: int) -> Value | None:
    """place < limit; None where it is known: places are below the next multiple of `step`, if that isn't 0."""
    if isinstance(limit, int) and step and limit % step == 0:
        return None
    return em.cmpi("slt", place if isinstance(place, Value) else em.const(place), limit)


def both(one: Value | None, other: Value | None) -> Value | None:
    """Two conditions, None being one that always holds."""
    if one is None or other is None:
        return one or other
    return one & other


# ----------------------------------------------------------------------------------------------------------------------
# Rings in shared memory
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Access:
    """How operands may be read and results written: bytes of one copy (16, 8, 4, or 2: element by element) of lines of
    x and of the weights; columns of outputs and arguments that a thread takes at once: what fills 16 bytes, or 1."""

    x: int
    w: int
    columns: int


@dataclass
class Ring:
    """Shared memory as stages, each with room for parts of fixed size; parts start at multiples of 128 bytes."""

    stages: int
    size: int = 0

    def take(self, nbytes: int) -> int:
        """The offset in a stage of a further part."""
        start = self.size
        self.size += -(-nbytes // 128) * 128
        return start

    @property
    def nbytes(self) -> int:
        return self.stages * self.size

    def stage(self, em: DeviceEmitter, number: Index) -> Value:
        """The address of a stage."""
        return em.shared(number * self.size)


Extent = tuple[Index, Index, int]
"""Where a tile starts along a dimension, where the matrix ends, and what starts below the end are multiples of: an end
that is a multiple of it too needs no checks. 0 where tiles may start at the end or after it."""


def swizzle(line: Index, chunk: Index, chunks: int, pairs: int = 1) -> Index:
    """Where chunk (16 bytes) `chunk` of a line of `chunks` lies in its line, so that eight lines' same chunks, which
    ldmatrix reads at once, lie in different banks; with `pairs` 2, four lines' same pairs of chunks."""
    per_row = max(1, 8 // chunks)
    turn = line // per_row * pairs % min(8, chunks)
    return chunk ^ turn


@dataclass(frozen=True)
class TileLoader:
    """Copies a tile of `lines` lines, `span` elements each, from a matrix of rows into shared memory, swizzled.

    What lies beyond the matrix becomes zeros. ld: elements between lines. transposed: whether lines are rows of x or
    columns of N, else lines of K. pairs: as for `swizzle`.
    """

    em: DeviceEmitter
    base: Value
    ld: Index
    element: str
    lines: int
    span: int
    piece: int
    threads: int
    transposed: bool = False
    pairs: int = 1

    @property
    def chunks(self) -> int:
        """Pieces of 16 bytes of a line."""
        return self.span * size_bytes(self.element) // 16

    def fill(self, target: Value, columns: Extent, along: Extent) -> None:
        """Starts the copies of a tile of a weight: `columns` of N, and where it is along K."""
        self.issue(target, *((columns, along) if self.transposed else (along, columns)))

    def issue(self, target: Value, lines: Extent, elements: Extent) -> None:
        """Starts the copies of a tile."""
        em, chunks = self.em, self.chunks
        (line, line_limit, line_step), (at, limit, step) = lines, elements
        width = 16 // size_bytes(self.element)
        shared = Tasks(em, self.lines * chunks, self.threads)
        with shared.mine():
            thread = shared.numbers()[0]
            chunk, first = thread % chunks, thread // chunks
            column = at + chunk * width
            for i in range(max(1, self.lines * chunks // self.threads)):
                local = first + i * (self.threads // chunks)
                row = line + local
                inside = guard(em, row, line_limit, line_step)
                turned = swizzle(local, chunk, chunks, self.pairs)
                place = em.at(target, (local * chunks + turned) * 16, "i8")
                self._copy(place, row, column, inside, limit, step)

    def _copy(self, place: Value, row: Index, column: Index, inside: Value | None, limit: Index, step: int) -> None:
        em, nbytes = self.em, size_bytes(self.element)
        source = em.at(self.base, offset64(em, (row, self.ld), (column, 1)), self.element)
        count = self.piece // nbytes
        if self.piece == nbytes and nbytes < 4:
            bits = f"i{8 * nbytes}"
            values = []
            for i in range(16 // nbytes):
                here = column + i
                exists = both(inside, guard(em, here, limit, step))
                address = em.at(source, i, self.element)
                if exists is not None:  # the first element exists, as the matrix isn't empty
                    address = em.op(f"llvm.select {exists}, {address}, {self.base} : i1, {GLOBAL}", GLOBAL)
                value = em.ld(address, bits)
                values.append(value if exists is None else em.select(exists, value, em.const(0, bits)))
            em.st(em.vector(values), place)
            return
        for i in range(16 // self.piece):
            exists = both(inside, guard(em, column + i * count, limit, step))
            size = None if exists is None else em.select(exists, self.piece, 0)
            target = em.at(place, i * self.piece, "i8")
            em.cp_async(target, em.at(source, i * count, self.element), self.piece, count=size)


class WeightLoader(Protocol):
    """What fills a tile of a weight."""

    def fill(self, target: Value, columns: Extent, along: Extent) -> Callable[[], None] | None:
        """Starts the copies of a tile; returns what is to be done after the present step's products, if anything."""


def together(laters: Iterable[Callable[[], None] | None]) -> Callable[[], None] | None:
    """All of what is to be done later, in order."""
    given = [later for later in laters if later is not None]

    def run() -> None:
        for later in given:
            later()

    return run if given else None


class Tasks:
    """Numbers below `count`, shared out among a block's threads; `count` is a multiple of `threads`, or less.

    Where threads are more, the rest get the same numbers again: they may load, but only those of `mine` may write.
    """

    def __init__(self, em: DeviceEmitter, count: int, threads: int) -> None:
        if count >= threads and count % threads:
            raise ValueError(f"{count} tasks don't divide among {threads} threads")
        self._em, self._count, self._threads = em, count, threads
        self._thread = em.thread()

    def numbers(self) -> list[Index]:
        """The running thread's numbers."""
        count, threads = self._count, self._threads
        if count < threads:
            return [self._thread % count]
        return [self._thread + i * threads for i in range(count // threads)]

    @contextmanager
    def mine(self) -> Iterator[None]:
        """What only the threads do that are the first with their numbers."""
        if self._count >= self._threads:
            yield
            return
        with self._em.if_(self._em.cmpi("ult", self._thread, self._count)):
            yield


Copies = Callable[[Value, Index], Callable[[], None] | None]
"""Starts the copies of a step into a stage, and may return what is to be done after the present step's products."""


def pipeline(
    em: DeviceEmitter,
    ring: Ring,
    first: Index,
    last: Index,
    sums: Structure,
    copies: Sequence[Copies],
    compute: Callable[[Value, Structure, Callable[[], None]], Structure],
    *,
    early: bool,
) -> Structure:
    """Goes along steps [first, last) of K with the ring; returns what `compute` has made of `sums`.

    Args:
        copies: those of the weights, and of x; also called for steps beyond the last.
        compute: one step's products, compute(stage, sums, copy). It calls `copy`, which starts the copies of a later
            step, once it has read what its first products need: these are then under way while copies are started.
        early: the weights are constant: their first copies start before the kernels ahead are done.
    """
    ahead = ring.stages - 1

    def start(stage: Index, step: Index, own: Sequence[Copies]) -> Callable[[], None]:
        later = together(issue(ring.stage(em, stage), step) for issue in own)
        return later or (lambda: None)

    def fill(own: Sequence[Copies], *, commit: bool) -> None:
        # Without steps, there may be no memory to read.
        with nullcontext() if isinstance(first, int) and isinstance(last, int) else em.if_(em.cmpi("slt", first, last)):
            for i in range(ahead):
                start(i, first + i, own)()
                if commit:
                    em.cp_async_commit()

    weights, x = copies
    if early:
        fill([weights], commit=False)
        em.wait_dependencies()
        fill([x], commit=True)
    else:
        em.wait_dependencies()
        fill(copies, commit=True)
    with em.loop(first, last, 1, (em.const(0), sums), hint="step") as loop:
        stage, sums = loop.carry
        em.cp_async_wait(ahead - 1)
        em.barrier()
        free = em.select(em.cmpi("eq", stage, 0), ahead, stage - 1)
        laters = []

        def copy() -> None:
            laters.append(start(free, loop.iv + ahead, copies))
            em.cp_async_commit()

        sums = compute(ring.stage(em, stage), sums, copy)
        (later,) = laters
        later()
        following = em.select(em.cmpi("eq", stage, ahead), 0, stage + 1)
        loop.yield_((following, sums))
    return loop.result[1]


# ----------------------------------------------------------------------------------------------------------------------
# Epilogue
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finisher:
    """Turns products into outputs: loads the arguments, runs the program, rounds once, stores.

    rows: the number of the batch element's first row, a number or i64. columns: N. arguments, outputs: pointers.
    element: their type.
    """

    em: DeviceEmitter
    program: Program
    rows: Index
    columns: Index
    arguments: Sequence[Value]
    outputs: Sequence[Value]
    element: str

    def finish(self, row: Index, column: Index, products: Sequence[Value]) -> None:
        """The outputs at (row, column ...), which exist; products are scalars or vectors of f32 along columns."""
        em = self.em
        flat = em.wide(self.rows + (em.wide(row) if isinstance(self.rows, Value) else row))
        place = offset64(em, (flat, self.columns)) + em.wide(column)
        lanes = [em.lanes(product) for product in products]
        loaded: dict[int, list[Value]] = {}

        def load(i: int) -> list[Value]:
            kind, pointer = self.program.arguments[i].broadcast, self.arguments[i]
            element = self.program.arguments[i].element or self.element
            if kind in ("scalar", "column"):
                at = 0 if kind == "scalar" else flat
                return [em.widen(em.ld(pointer, element, at))] * len(lanes[0])
            type = with_element(products[0].type, element)
            return em.lanes(em.widen(em.ld(pointer, type, em.wide(column) if kind == "row" else place)))

        def argument(lane: int, i: int) -> Value:
            if i not in loaded:
                loaded[i] = load(i)
            return loaded[i][lane]

        values = [
            self.program.emit(em, [own[lane] for own in lanes], functools.partial(argument, lane), DEVICE_UNARY)
            for lane in range(len(lanes[0]))
        ]
        for output, own in zip(self.outputs, zip(*values, strict=True), strict=True):
            value = em.vector(own) if len(own) > 1 else own[0]
            em.st(em.narrow(value, self.element), output, place)


def sums_program(products: int) -> Program:
    """The products themselves: what parts of K are stored as."""
    return Program(outputs=tuple(("acc", i) for i in range(products)), accumulators=products)


@dataclass(frozen=True)
class Body:
    """What a kernel's code starts from.

    Attributes:
        x, more, weights: pointers.
        steps: the first step along K, and the one after the last.
        limit: elements of K from which on nothing is added.
    """

    sizes: Sizes
    place: Place
    x: Value
    more: list[Value]
    weights: list[Value]
    finisher: Finisher
    steps: tuple[Index, Index]
    limit: Index


@contextmanager
def open_kernel(em: DeviceEmitter, name: str, gemm: Gemm, tile: Tile, splits: int, more: int = 0) -> Iterator[Body]:
    """The kernel `name` around a body; `pipeline` waits for the kernels ahead.

    Parameters: x, `more` pointers that belong to it, the weights, the arguments and the outputs, then the dynamic
    sizes. With splits, f32 sums [splits, products, batch M, N] stand in place of arguments and outputs, and block y
    computes a part of K.
    """
    program, sums = gemm.program, splits > 1
    products = program.accumulators
    inputs = ["x", *(f"x{i}" for i in range(more)), *(f"w{i}" for i in range(products))]
    ends = ["sums"] if sums else [f"arg{i}" for i in range(len(program.arguments))]
    written = [] if sums else [f"out{i}" for i in range(len(program.results))]
    read = [pointer(word, readonly=True) for word in inputs + ([] if sums else ends)]
    pointers = [*read, *(pointer(word) for word in (ends if sums else written))]
    names = Sizes.names(gemm)
    # With a bound of blocks, ptxas gives threads the registers that they need; without, it spills a few for occupancy.
    parameters = [*pointers, *((size, "i32") for size in names)]
    with em.kernel(name, parameters, tile.threads, min_blocks=1) as values:
        em.launch_dependents()
        sizes = Sizes.of(gemm, values[len(pointers) :])
        place = tile_place(em, gemm, sizes, tile)
        first_row = offset64(em, (place.batch, sizes.m))
        count = em.iceildiv(sizes.k, tile.bk)
        steps: tuple[Index, Index] = (0, count)
        limit = sizes.k
        if sums:
            part, each = em.block("y"), em.iceildiv(count, splits)
            start = part * each
            steps = (start, em.imin(start + each, count))
            limit = em.imin(steps[1] * tile.bk, sizes.k)
            rows: Index = sizes.m
            for size in sizes.batch:
                rows = rows * size
            outputs = [
                em.at(
                    values[len(inputs)],
                    offset64(em, (part * products + i, offset64(em, (rows, sizes.n)))),
                    "f32",
                )
                for i in range(products)
            ]
            finisher = Finisher(em, sums_program(products), first_row, sizes.n, [], outputs, "f32")
        else:
            arguments, outputs = values[len(inputs) : len(read)], values[len(read) : len(pointers)]
            finisher = Finisher(em, program, first_row, sizes.n, arguments, outputs, gemm.element)
        own, weights = values[: 1 + more], values[1 + more : len(inputs)]
        yield Body(sizes, place, own[0], own[1:], weights, finisher, steps, limit)


def x_loader(em: DeviceEmitter, body: Body, tile: Tile, element: str, piece: int) -> TileLoader:
    """What copies tiles of x, whose lines are rows, as `fill` of a weight's loader does."""
    sizes, place = body.sizes, body.place
    base = em.at(body.x, offset64(em, (offset64(em, (place.x_batch, sizes.m)), sizes.k)), element)
    return TileLoader(em, base, sizes.k, element, tile.bm, tile.bk, piece, tile.threads, transposed=True)


def dense_loaders(
    em: DeviceEmitter,
    body: Body,
    tile: Tile,
    element: str,
    piece: int,
    *,
    transpose_rhs: bool,
    stride: int | None = None,
    pairs: int = 1,
) -> list[TileLoader]:
    """What copies tiles of dense weights, [K, N] or [N, K] with `stride` elements between rows, where that isn't K."""
    sizes = body.sizes
    start = offset64(em, (offset64(em, (body.place.w_batch, sizes.k)), sizes.n))
    lines, span, ld = (tile.bn, tile.bk, stride or sizes.k) if transpose_rhs else (tile.bk, tile.bn, sizes.n)
    return [
        TileLoader(
            em,
            em.at(pointer, start, element),
            ld,
            element,
            lines,
            span,
            piece,
            tile.threads,
            transposed=transpose_rhs,
            pairs=pairs,
        )
        for pointer in body.weights
    ]


SUM_THREADS = 256
"""Threads of a block that adds up parts of K."""


def sum_kernel(em: DeviceEmitter, name: str, gemm: Gemm, splits: int, columns: int) -> None:
    """Emits the kernel that adds up parts of K, in order, and runs the program.

    Parameters: the f32 sums [splits, products, rows, N], the program's arguments, the outputs, then rows and N (i32).
    A thread computes `columns` neighbouring columns, 8, 4 or 1.
    """
    program, width = gemm.program, columns
    products = program.accumulators
    read = ["sums", *(f"arg{i}" for i in range(len(program.arguments)))]
    written = [f"out{i}" for i in range(len(program.results))]
    pointers = [*(pointer(word, readonly=True) for word in read), *(pointer(word) for word in written)]
    with em.kernel(name, [*pointers, ("rows", "i32"), ("n", "i32")], SUM_THREADS, chained=True) as values:
        rows, n = values[-2], gemm.n if gemm.n is not None else values[-1]
        finisher = Finisher(em, program, 0, n, values[1 : len(read)], values[len(read) : -2], gemm.element)
        number = em.wide(em.block()) * SUM_THREADS + em.wide(em.thread())
        across = em.wide(n // width)
        row, column = em.short(number // across), em.short(number % across) * width
        with em.if_(em.cmpi("ult", row, rows)):
            type = vec(4, "f32") if width > 1 else "f32"
            size = offset64(em, (rows, n))
            first = offset64(em, (row, n)) + em.wide(column)
            parts = max(1, width // 4)
            with em.loop(0, splits, 1, [[em.const(0.0, type)] * parts] * products, hint="part") as loop:
                sums = []
                for i, own in enumerate(loop.carry):
                    start = em.wide(loop.iv * products + i) * size + first
                    base = em.at(values[0], start, "f32")
                    sums.append([total + em.ld(em.at(base, 4 * half, "f32"), type) for half, total in enumerate(own)])
                loop.yield_(sums)
            finisher.finish(
                row, column, [em.shuffle(own[0], own[1], range(8)) if width == 8 else own[0] for own in loop.result]
            )
