# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of rows with the packed weight of their expert: one unit is some panels of one expert, for all of its rows.

An expert's rows of x are listed, as `grouped` does. There are two ways from there, in which a row is the same bits
whatever rows are beside it:

- As single rows in f32 (`gemm_packed`): panels are decoded in registers, for some rows at a time, and come from memory
  for the first of them.
- By integer dot products of rows that are quantised to 22 bits, which are as exact, and faster (`gemm_digits`). Rows
  that can't be quantised go the first way.

An expert without rows costs the search for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, memref, shape_of
from rlx_mlir.codegen.specs import GroupedSpec, PackedGroupedSpec
from rlx_mlir.tuning.cpu import SHARED

from . import UnsupportedByTemplate
from .gemm_int8 import IntegerParts, IntegerProduct
from .gemm_packed import REGISTER_TILES, ROW_BLOCK, single_rows, sub_block_sums
from .grouped import list_rows
from .kernel import Accumulators, Body, Parts, Product, Scratch, row_blocks, write_kernel
from .panels import PANEL_ROWS, Panel, PanelLayout, find_layout
from .quantized_rows import ExactRows
from .registry import Generator
from .target import Target

PANELS = 4
"""Panels that rows in f32 are multiplied with at a time, at most."""


@dataclass(frozen=True)
class _Config:
    """What is computed, and how the weights lie."""

    spec: PackedGroupedSpec
    product: Product
    layout: PanelLayout

    @property
    def panels(self) -> int:
        """Of an expert."""
        return self.product.n // PANEL_ROWS

    @property
    def weight(self) -> str:
        """The type of the weights' buffer."""
        return memref((self.spec.experts * self.panels, self.layout.panel_bytes(self.product.k)), "i8")

    def together(self, most: int) -> int:
        """At most so many panels, which are a part of an expert's."""
        return next(size for size in range(most, 0, -1) if self.panels % size == 0)


class _Listed:
    """The rows of x that a list names."""

    def __init__(self, em: Emitter, target: Target, x: Value, rows: Value) -> None:
        self._em, self._type, self._x, self._rows = em, target.vector("f32"), x, rows
        self.first: Index = 0

    def number(self, row: Index) -> Value:
        """Of a row among all rows."""
        return self._em.cast("arith.index_cast", self._em.load(self._rows, [self.first + row]), "index")

    def load(self, row: Index, k: Index) -> Value:
        """Element (row, k)."""
        return self._em.load(self._x, [self.number(row), k])

    def vload(self, row: Index, k: Index) -> Value:
        """A vector of elements from (row, k) on."""
        return self._em.vload(self._x, [self.number(row), k], self._type)


class _Floats:
    """Panels of an expert times rows of a list, in f32."""

    def __init__(
        self, em: Emitter, target: Target, config: _Config, values: Sequence[Value], scratch: Scratch, size: int
    ) -> None:
        """Takes the scratch memory of a thread; size: of the panels that are multiplied at a time."""
        layout, k = config.layout, config.product.k
        rows = em.dim(values[0], 0)
        most = em.imin(rows, ROW_BLOCK)
        self.em, self.target, self.config, self.size, self.values = em, target, config, size, values
        self.list = scratch.take([rows], "i64", 8)
        self.sums = scratch.take([most, k // layout.sub if layout.minimum else 0], "f32")
        self.products = Accumulators(em, target, config.product, size * PANEL_ROWS, scratch, most)
        self.read = _Listed(em, target, values[0], self.list)

    def find(self, expert: Index) -> Value:
        """Lists the rows of an expert; how many there are."""
        sizes = (self.em.dim(self.values[0], 0), self.config.spec.experts)
        return list_rows(self.em, self.values[2], sizes, expert, self.list)

    def multiply(self, expert: Index, group: Index, first: Index, rows: Index, output: Value) -> None:
        """Some panels of an expert times rows of the list, from `first` on."""
        em, config, product, layout = self.em, self.config, self.config.product, self.config.layout
        self.read.first = first
        if layout.minimum:
            sub_block_sums(em, self.target, self.read, self.sums, product.k, layout.sub, rows)
        start, data = expert * config.panels + group * self.size, em.flat(self.values[1])
        places = [(start + number) * layout.panel_bytes(product.k) for number in range(self.size)]
        panels = [Panel(em, self.target, layout, data, place) for place in places]
        single_rows(em, self.target, product, self.read, panels, self.sums, self.products, rows)
        self.store(self.products, group, rows, output)

    def store(self, products: Accumulators, group: Index, rows: Index, output: Value) -> None:
        """The first rows of sums, to where the list has them."""
        with self.em.loop(0, rows, hint="row") as row:
            products.finish([], [output], group, self.read.number(row.iv), 1, row.iv)


def _over_experts(
    em: Emitter, config: _Config, groups: int, bounds: tuple[Value, Value], visit: Callable[[Value, Index, Index], None]
) -> None:
    """visit(expert, first, last) for each expert's groups among the units [begin, end).

    Threads have ranges of units. Unit u is of group u // experts, so that each thread has a part of every expert: few
    of them may have rows.
    """
    begin, end = bounds
    experts = config.spec.experts
    with em.loop(0, experts, hint="expert") as expert:
        first, last = ((em.imax(bound - expert.iv, 0) + (experts - 1)) // experts for bound in (begin, end))
        visit(expert.iv, first, em.imin(last, groups))


def _written(name: str, config: _Config, groups: int, parts: Parts, body: Body) -> str:
    """The functions of a kernel whose units are groups of columns times experts."""
    spec = config.spec
    return write_kernel(
        name,
        [("x", spec.x), ("weight", config.weight), ("expert", spec.expert)],
        config.product.outputs(),
        units=lambda em, values: spec.experts * groups,
        scratch=parts,
        body=body,
        order=spec.operand_order,
    )


def emit_grouped_panels(name: str, config: _Config, target: Target) -> str:
    """The functions `@name.body`, `@name.units` and `@name.scratch` in f32, as text."""
    together = config.together(PANELS)
    groups = config.panels // together

    def parts(em: Emitter, values: list[Value], scratch: Scratch) -> _Floats:
        return _Floats(em, target, config, values, scratch, together)

    def body(
        em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        own = parts(em, values, scratch)

        def visit(expert: Value, first: Index, last: Index) -> None:
            def block(row: Index, rows: Index) -> None:
                with em.loop(first, last, hint="group") as group:
                    own.multiply(expert, group.iv, row, rows, outputs[0])

            row_blocks(em, own.find(expert), ROW_BLOCK, block)

        _over_experts(em, config, groups, (begin, end), visit)

    return _written(name, config, groups, parts, body)


def emit_grouped_digits(name: str, config: _Config, target: Target) -> str:
    """The same by integer dot products."""
    spec, product, layout = config.spec, config.product, config.layout
    # Each row alone: a single one of an expert has code of its own, which reads weights once.
    whole = replace(product, x_shape=(None, 1, product.k), n=spec.experts * product.n)
    kernel = IntegerProduct(target, whole, layout, ExactRows(target, product.k, layout, listed=True))
    size = kernel.per_unit
    groups = config.panels // size

    def parts(em: Emitter, values: list[Value], scratch: Scratch) -> tuple[_Floats, IntegerParts]:
        return _Floats(em, target, config, values, scratch, size), kernel.parts(em, values, scratch)

    def body(
        em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        floats, own = parts(em, values, scratch)

        def visit(expert: Value, first: Index, last: Index) -> None:
            base = expert * groups

            def finish(unit: Value, row: Index, number: Index) -> None:
                floats.read.first = row
                floats.store(own.accumulators, unit - base, number, outputs[0])

            def again(row: Index, number: Index) -> None:
                """Computes flagged rows of a block in f32."""
                flags = own.rows.flags
                assert flags is not None
                with em.loop(0, number, hint="row") as flagged:
                    is_flagged = em.cmpi("ne", em.load(flags, [flagged.iv]), 0)
                    with em.if_(is_flagged), em.loop(first, last, hint="group") as group:
                        floats.multiply(expert, group.iv, row + flagged.iv, 1, outputs[0])

            given = [values[0], floats.list, values[1]]
            kernel.multiply(em, given, floats.find(expert), (base + first, base + last), own, finish, again)

        _over_experts(em, config, groups, (begin, end), visit)

    return _written(name, config, groups, parts, body)


def _configure(name: str, spec: GroupedSpec | PackedGroupedSpec, target: Target) -> _Config | None:
    if isinstance(spec, GroupedSpec):
        return None
    if element_of(spec.x) != "f32":
        raise UnsupportedByTemplate(f"{name}: products of {element_of(spec.x)} with packed experts have no template")
    shape, n = shape_of(spec.x), shape_of(spec.result)[1]
    if spec.layout != "panels" or n is None or n % PANEL_ROWS:
        raise UnsupportedByTemplate(f"{name}: the experts aren't whole panels of {PANEL_ROWS} rows")
    product = Product(name, tuple(shape), n)
    return _Config(spec, product, find_layout(spec.scheme, product.k))


def _configure_digits(name: str, spec: GroupedSpec | PackedGroupedSpec, target: Target) -> _Config | None:
    config = _configure(name, spec, target)
    # As for other products: tiles of bf16 are faster still.
    if config is None or config.layout.dense or not target.vnni or target.tiles("bf16") or config.panels % 2:
        return None
    return config


GENERATORS = (
    Generator(
        "grouped_digits",
        "grouped",
        _configure_digits,
        emit_grouped_digits,
        switch="gemm_digits",
        knobs=SHARED,
        candidates=REGISTER_TILES,
    ),
    Generator("grouped_panels", "grouped", _configure, emit_grouped_panels, knobs=SHARED, candidates=REGISTER_TILES),
)
