# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What all matrix products share: the three functions of a kernel, tiles of rows, the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rlx_mlir.codegen.conversions import FLOATS
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, shape_of, with_element
from rlx_mlir.codegen.kernel import Buffers, Scratch, in_order, row_count, signature_of
from rlx_mlir.codegen.program import IDENTITY, Program
from rlx_mlir.codegen.specs import ProductSpec
from rlx_mlir.codegen.specs.products import argument_buffers, known_product, result_buffers

from . import UnsupportedByTemplate
from .target import ELEMENT_BITS, Target, rounded, wide_type

__all__ = [
    "SHARED",
    "Accumulators",
    "Body",
    "Finish",
    "FloatElements",
    "FloatRows",
    "Parts",
    "Product",
    "RowReader",
    "Scratch",
    "add_products",
    "block_counts",
    "line_columns",
    "need_floats",
    "listed_row",
    "needed_tiles",
    "one_or_many",
    "row_blocks",
    "row_count",
    "row_tiles",
    "write_kernel",
    "write_product",
    "write_shared_kernel",
]

SHARED = f"memref<{2**62}xi8>"
"""Memory that all units of a call share: it has no size that code may ask for, as `NAME.shared` gave it."""


def need_floats(name: str, element: str) -> None:
    """Raises UnsupportedByTemplate where products are of a type that no template multiplies."""
    if element not in FLOATS:
        raise UnsupportedByTemplate(f"{name}: products of {element} have no template")


def line_columns(wide: str) -> int:
    """Columns of dense weights that lie side by side once they are copied: 64 bytes of the type that is computed in."""
    return 512 // ELEMENT_BITS[wide]


@dataclass(frozen=True)
class Product:
    """outputs = program(x W_0, x W_1, ..., arguments), with x [..., K] and every W_i giving N columns.

    x_shape: sizes of x, None where dynamic; K, the last one, is static. program.accumulators is the number of weights.
    element: type of x, the arguments and the outputs: f64, f32, f16 or bf16. Products and program are f64 for f64, else
    f32, and outputs are rounded once.
    operand_order: the kernel's operand for each operand of the template (x or its quantised parts, weights, arguments),
    where that isn't simply the same order; one kernel operand may serve several.
    """

    name: str
    x_shape: tuple[int | None, ...]
    n: int
    program: Program = IDENTITY
    operand_order: tuple[int, ...] | None = None
    element: str = "f32"

    def __post_init__(self) -> None:
        need_floats(self.name, self.element)
        if not self.x_shape or not self.x_shape[-1] or self.n < 1:
            shapes = f"x is {self.x_shape}, N is {self.n}"
            raise UnsupportedByTemplate(f"{self.name}: expects static K and N of at least 1, but {shapes}")

    @classmethod
    def of(cls, spec: ProductSpec) -> Product:
        """A kernel as a product with matrices; UnsupportedByTemplate where K or N isn't known."""
        n = spec.result[-1]
        if n is None:
            raise UnsupportedByTemplate(f"{spec.name}: N isn't known")
        return cls(spec.name, spec.x, n, spec.program, spec.order, spec.element)

    @property
    def k(self) -> int:
        size = self.x_shape[-1]
        assert size is not None
        return size

    @property
    def rows(self) -> int | None:
        """M, the product of the leading sizes of x; None if that is dynamic."""
        return known_product(self.x_shape[:-1])

    @property
    def out_shape(self) -> tuple[int | None, ...]:
        return (*self.x_shape[:-1], self.n)

    def arguments(self) -> Buffers:
        """The buffers of the program's arguments."""
        return argument_buffers(self.program, self.out_shape, self.element)

    def outputs(self) -> Buffers:
        """The buffers of the results."""
        return result_buffers(self.program, self.out_shape, self.element)


class Finished(Protocol):
    """What `Accumulators` has to know of a product."""

    @property
    def program(self) -> Program: ...

    @property
    def element(self) -> str: ...


Units = Callable[[Emitter, list[Value]], Index]
"""(em, operands): how many units there are."""

Parts = Callable[[Emitter, list[Value], Scratch], object]
"""(em, operands, memory): takes what a call needs of some memory."""

Body = Callable[[Emitter, list[Value], list[Value], Value, Value, Scratch], None]
"""(em, operands, results, begin, end, scratch): computes the units [begin, end)."""


@dataclass(frozen=True)
class Finish:
    """What a kernel does once all of its units are done: results of what they left in memory that they share.

    `memory` takes the parts of the shared memory, for their size; the others are as those of `write_kernel`.
    """

    memory: Parts
    units: Units
    scratch: Parts
    body: Body


def write_shared_kernel(
    name: str, operands: Buffers, results: Buffers, *, units: Units, scratch: Parts, body: Body, finish: Finish
) -> str:
    """The functions of a kernel whose units share memory, and those of `@name_finish`, which runs after all of them.

    Both have the memory as the last of their results; `@name.shared` says how many bytes it has.
    """
    buffers = [*results, ("shared", SHARED)]
    em = Emitter()
    with em.func(f"{name}.shared", [*operands, *buffers], ["index"]) as values:
        parts = Scratch(em)
        finish.memory(em, values[: len(operands)], parts)
        em.return_([em.index(parts.bytes)])
    own = write_kernel(name, operands, buffers, units=units, scratch=scratch, body=body)
    last = f"{name}_finish"
    return (
        own
        + write_kernel(last, operands, buffers, units=finish.units, scratch=finish.scratch, body=finish.body)
        + em.text()
    )


def write_kernel(
    name: str,
    operands: Buffers,
    results: Buffers,
    *,
    units: Units,
    scratch: Parts | None = None,
    body: Body,
    order: tuple[int, ...] | None = None,
) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch` of one kernel.

    The callbacks get the operands in the template's order; `scratch` takes the parts that a call needs, for their size,
    and is absent where there are none.
    """
    order = tuple(range(len(operands))) if order is None else order
    own = signature_of(name, operands, order)
    signature, count = [*own, *results], len(own)

    em = Emitter()
    more = [("begin", "index"), ("end", "index"), ("scratch", "memref<?xi8>")]
    with em.func(f"{name}.body", [*signature, *more]) as values:
        begin, end, buffer = values[-3:]
        body(em, in_order(values, order), values[count:-3], begin, end, Scratch(em, buffer))
    with em.func(f"{name}.units", signature, ["index"]) as values:
        em.return_([em.index(units(em, in_order(values, order)))])
    with em.func(f"{name}.scratch", signature, ["index"]) as values:
        parts = Scratch(em)
        if scratch is not None:
            scratch(em, in_order(values, order), parts)
        em.return_([em.index(parts.bytes)])
    return em.text()


class Written(Protocol):
    """What `write_product` has to know of a product."""

    @property
    def name(self) -> str: ...

    @property
    def operand_order(self) -> tuple[int, ...] | None: ...

    def outputs(self) -> Buffers:
        """The buffers of the results."""


def write_product(product: Written, operands: Buffers, units: Units, scratch: Parts, body: Body) -> str:
    """The functions of the kernel of a product, as `write_kernel` has them."""
    name, order = product.name, product.operand_order
    return write_kernel(name, operands, product.outputs(), units=units, scratch=scratch, body=body, order=order)


@contextmanager
def _guarded(em: Emitter, start: Index, count: Index, size: int) -> Iterator[Index]:
    if isinstance(count, int) and count == 1:
        yield start
        return
    with em.loop(0, count, hint="tile") as loop:
        yield start + loop.iv * size


def row_tiles(
    em: Emitter, rows: Index, sizes: Sequence[int], tile: Callable[[Index, int], None], done: Index = 0
) -> None:
    """Covers rows [`done`, `rows`) by tiles: `tile(first_row, size)` once per size, in a loop; `sizes` descend to 1."""
    for size in sizes:
        count = (rows - done) // size
        if isinstance(count, int) and count == 0:
            continue
        with _guarded(em, done, count, size) as first:
            tile(first, size)
        done = done + count * size


def listed_row(em: Emitter, rows: Value, place: Index) -> Value:
    """The row that stands at a place of a list of i64."""
    return em.cast("arith.index_cast", em.load(rows, [place]), "index")


def one_or_many(em: Emitter, steps: Index, one: Callable[[], None] | None, many: Callable[[Index], None]) -> None:
    """Code for a single step, where there is any, and for other numbers of steps: of both where it isn't known here."""
    if one is None or (isinstance(steps, int) and steps != 1):
        many(steps)
    elif isinstance(steps, int):
        one()
    else:
        with em.if_(em.cmpi("eq", steps, 1)) as branch:
            one()
            branch.else_()
            many(steps)


def needed_tiles(sizes: Sequence[int], counts: Iterable[int]) -> tuple[int, ...]:
    """Those of `sizes` by which `row_tiles` covers these numbers of rows: of the others no code is needed."""
    needed = set()
    for count in counts:
        for size in sizes:
            if count >= size:
                needed.add(size)
                count %= size
    return tuple(size for size in sizes if size in needed)


def block_counts(rows: int, most: int) -> list[int]:
    """How many rows the blocks of `row_blocks` have."""
    return [rows] if rows <= most else [most, rows % most]


def row_blocks(em: Emitter, rows: Index, most: int, block: Callable[[Index, Index], None]) -> None:
    """Covers all rows by blocks of at most `most`: block(first row, count)."""
    if isinstance(rows, int) and rows <= most:
        block(0, rows)
        return
    with em.loop(0, rows, most, hint="rows") as loop:
        is_whole = isinstance(rows, int) and rows % most == 0
        block(loop.iv, most if is_whole else em.imin(rows - loop.iv, most))


class FloatElements(Protocol):
    """Rows of numbers, f32 or f64, as products read them one by one."""

    def load(self, row: Index, k: Index) -> Value:
        """Element (row, k)."""


class FloatRows(FloatElements, Protocol):
    """Rows of numbers that products read by vectors, too."""

    def vload(self, row: Index, k: Index) -> Value:
        """A vector of elements from (row, k) on."""


class RowReader:
    """Elements of x [M, K] as f32, or f64 of f64: where they are if they have that type, else widened into scratch, a
    few rows at a time."""

    def __init__(self, em: Emitter, target: Target, element: str, scratch: Scratch, rows: Index, length: Index) -> None:
        self._em, self._target = em, target
        # Rows a power of two apart would share few sets of the cache.
        wide = wide_type(element)
        self._lanes, self._type = target.lanes(wide), target.vector(wide)
        self._wide = None if element == wide else scratch.take([rows, length + 16], wide)
        self._buffer = Value("%unbound", "")
        self._row: Index = 0
        self._k: Index = 0

    def bind(self, x: Value, first: Index, count: Index, k0: Index, k1: Index, *, whole: bool) -> None:
        """Makes x[first : first + count, k0:k1] what `load` reads; `whole` says that k1 - k0 is whole vectors."""
        em, lanes = self._em, self._lanes
        if self._wide is None:
            self._buffer, self._row, self._k = x, first, 0
            return
        self._buffer, self._row, self._k = self._wide, 0, k0
        narrow = with_element(self._type, element_of(x.type))
        main = k1 if whole else k1 - (k1 - k0) % lanes
        with em.loop(0, count, hint="row") as row:
            source = first + row.iv
            with em.loop(k0, main, lanes, hint="k") as k:
                value = self._target.widen(em, em.vload(x, [source, k.iv], narrow))
                em.vstore(value, self._wide, [row.iv, k.iv - k0])
            if not whole:
                with em.loop(main, k1, hint="k") as k:
                    value = self._target.widen(em, em.load(x, [source, k.iv]))
                    em.store(value, self._wide, [row.iv, k.iv - k0])

    def load(self, row: Index, k: Index) -> Value:
        """Element (first + row, k)."""
        em = self._em
        return em.load(self._buffer, [self._row + row, k - self._k])

    def vload(self, row: Index, k: Index, mask: Value | None = None) -> Value:
        """A vector of elements from (first + row, k) on; zeros where `mask` isn't set."""
        return self._em.vload(self._buffer, [self._row + row, k - self._k], self._type, mask)


class Accumulators:
    """The products of one unit, in scratch [rows, weights * columns], and the program that turns them into outputs.

    Both are f32, or f64 where outputs are.

    The epilogue stands once in the code, in a loop over rows, whatever the tiles are: exp and erf are long.
    """

    def __init__(
        self,
        em: Emitter,
        target: Target,
        product: Finished,
        columns: int,
        scratch: Scratch,
        rows: Index,
    ) -> None:
        self.em, self.target, self.product, self.columns = em, target, product, columns
        wide = wide_type(product.element)
        self.type = target.vector(wide)
        self.lanes = target.lanes(wide)
        self.data = scratch.take([rows, columns * product.program.accumulators], wide, ELEMENT_BITS[wide] // 8)

    def clear(self, rows: Index) -> None:
        """Sets the first rows to zero."""
        em = self.em
        zero = em.zero(self.type)
        with (
            em.loop(0, rows) as row,
            em.loop(0, self.columns * self.product.program.accumulators, self.lanes) as column,
        ):
            em.vstore(zero, self.data, [row.iv, column.iv])

    def finish(
        self,
        arguments: Sequence[Value],
        outputs: Sequence[Value],
        unit: Index,
        first: Index,
        rows: Index,
        at: Index = 0,
        *,
        columns: tuple[Index, Index] | None = None,
        above: Index = 0,
        watched: bool = False,
    ) -> Value | None:
        """Outputs for the unit's columns and the output rows [first, first + rows); products begin with row `at`.

        Args:
            columns: the first one and the end, where they aren't the unit's.
            above: rows of outputs before the one that the first element of `column` arguments is for.

        Returns, where `watched`, the bits of the largest products without their sign, a vector of i32: those of
        infinity, or more, tell of products that aren't finite.
        """
        em, product = self.em, self.product
        program = product.program
        buffers = [
            self._argument_buffer(value, argument.broadcast)
            for value, argument in zip(arguments, program.arguments, strict=True)
        ]
        targets = [em.rows(output) for output in outputs]
        stored = with_element(self.type, product.element)
        n = em.dim(targets[0], 1) if columns is None else columns[1]
        masked = columns is not None or not isinstance(n, int) or n % self.columns != 0
        bits = with_element(self.type, "i32")
        largest = em.zero(bits) if watched else None
        with em.loop(0, rows, 1, largest, hint="row") as row:
            width = self.columns if columns is None else n - columns[0]
            with em.loop(0, width, self.lanes, row.carry, hint="col") as local:
                out_row = row.iv + first
                column = local.iv + (unit * self.columns if columns is None else columns[0])
                # The last unit's columns beyond N: the count that is left may be negative, which masks everything.
                mask = em.mask(em.imax(n - column, 0), self.lanes) if masked else None

                def load(buffer: Value, indices: Sequence[Index]) -> Value:
                    return self.target.widen(em, em.vload(buffer, indices, stored, mask))

                def argument(i: int) -> Value:
                    kind = program.arguments[i].broadcast
                    if kind == "scalar":
                        return self.target.widen(em, em.load(buffers[i], []))
                    if kind == "column":
                        return self.target.widen(em, em.load(buffers[i], [out_row - above]))
                    return load(buffers[i], [column] if kind == "row" else [out_row, column])

                products = [
                    em.vload(self.data, [row.iv + at, local.iv + i * self.columns], self.type)
                    for i in range(program.accumulators)
                ]
                for value, output in zip(program.emit(em, products, argument), targets, strict=True):
                    value = rounded(em, self.target, value, product.element)
                    if mask is None:
                        em.vstore(value, output, [out_row, column])
                        continue
                    # Stores with a mask are slow on some processors, and most vectors are whole.
                    with em.if_(em.cmpi("sle", column + self.lanes, n)) as branch:
                        em.vstore(value, output, [out_row, column])
                        branch.else_()
                        em.masked_store(value, output, [out_row, column], mask)
                largest = local.carry
                for value in products if watched else ():
                    assert largest is not None, "what is watched is carried"
                    largest = em.binary("arith.maxui", largest, em.bitcast(value, bits) & 0x7FFFFFFF)
                local.yield_(largest)
            row.yield_(local.result)
        return row.result

    def _argument_buffer(self, value: Value, broadcast: str) -> Value:
        """The buffer as [M, N], [N], [M] or one element."""
        em = self.em
        rank = len(shape_of(value.type))
        if broadcast == "full":
            return em.rows(value)
        if broadcast == "scalar":
            return em.collapse(value, []) if rank else value
        return em.collapse(value, [list(range(rank))])


def add_products(
    em: Emitter, target: Target, factors: Iterable[Value], columns: Sequence[Value], sums: Sequence[Sequence[Value]]
) -> list[list[Value]]:
    """sums[r][v] + factors[r] * columns[v]; factors are made as they are used."""
    rows = zip(factors, sums, strict=True)
    return [[target.fma(em, factor, x, total) for x, total in zip(columns, own, strict=True)] for factor, own in rows]
