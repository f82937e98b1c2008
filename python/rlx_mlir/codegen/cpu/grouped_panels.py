# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of rows with the packed weight of their expert: one unit is some panels of one expert, for all of its rows.

An expert's rows of x are listed, as `grouped` does. There are three ways from there, in which a row is the same bits
whatever rows are beside it:

- As single rows in f32 (`gemm_packed`): panels are decoded in registers, for some rows at a time, and come from memory
  for the first of them.
- By integer dot products of rows that are quantised to 22 bits, which are as exact, and faster (`gemm_digits`). Rows
  that can't be quantised go the first way.
- By integer dot products of rows that are quantised already (`gemm_int8`).

An expert without rows costs the search for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rlx_mlir.activations import BITS
from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, memref, shape_of
from rlx_mlir.codegen.specs import GroupedSpec, PackedGroupedSpec, QuantizedGroupedSpec
from rlx_mlir.tuning.cpu import SHARED

from . import UnsupportedByTemplate
from .digits import has_room
from .gemm_int8 import IntegerParts, IntegerProduct, int8_target
from .gemm_packed import REGISTER_TILES, ROW_BLOCK, single_rows, sub_block_sums
from .grouped import list_rows
from .kernel import Accumulators, Body, Parts, Product, Scratch, listed_row, row_blocks, write_kernel
from .panels import PANEL_ROWS, Panel, PanelLayout, find_layout
from .quantized_rows import ExactRows, GivenRows
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

    def load(self, row: Index, k: Index) -> Value:
        """Element (row, k)."""
        return self._em.load(self._x, [listed_row(self._em, self._rows, self.first + row), k])

    def vload(self, row: Index, k: Index) -> Value:
        """A vector of elements from (row, k) on."""
        return self._em.vload(self._x, [listed_row(self._em, self._rows, self.first + row), k], self._type)


class _Experts:
    """The rows of experts: of the first operand, whose experts the last one has."""

    def __init__(self, em: Emitter, experts: int, values: Sequence[Value], scratch: Scratch) -> None:
        """Takes the scratch memory of a thread."""
        self.em, self.values, self._experts = em, values, experts
        self.list = scratch.take([em.dim(values[0], 0)], "i64", 8)

    def find(self, expert: Index) -> Value:
        """Lists the rows of an expert; how many there are."""
        sizes = (self.em.dim(self.values[0], 0), self._experts)
        return list_rows(self.em, self.values[-1], sizes, expert, self.list)

    def store(self, sums: Accumulators, group: Index, rows: tuple[Index, Index], output: Value) -> None:
        """The first rows of sums, to where the list has them; rows: the first one's place in it, how many."""
        with self.em.loop(0, rows[1], hint="row") as row:
            place = listed_row(self.em, self.list, rows[0] + row.iv)
            sums.finish([], [output], group, place, 1, row.iv)


class _Floats(_Experts):
    """Panels of an expert times rows of a list, in f32."""

    def __init__(
        self, em: Emitter, target: Target, config: _Config, values: Sequence[Value], scratch: Scratch, size: int
    ) -> None:
        """Takes the scratch memory of a thread; size: of the panels that are multiplied at a time."""
        super().__init__(em, config.spec.experts, values, scratch)
        layout, k = config.layout, config.product.k
        most = em.imin(em.dim(values[0], 0), ROW_BLOCK)
        self.target, self.config, self.size = target, config, size
        self.sums = scratch.take([most, k // layout.sub if layout.minimum else 0], "f32")
        self.products = Accumulators(em, target, config.product, size * PANEL_ROWS, scratch, most)
        self.read = _Listed(em, target, values[0], self.list)

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
        self.store(self.products, group, (first, rows), output)


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
    quantised = [("scale", spec.scale), ("sum", spec.sum)] if isinstance(spec, QuantizedGroupedSpec) else []
    return write_kernel(
        name,
        [("x", spec.x), *quantised, ("weight", config.weight), ("expert", spec.expert)],
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


def _of_all(config: _Config, rows: ExactRows | GivenRows) -> IntegerProduct:
    """The product of rows with the panels of all experts, of which a unit is some of one expert's."""
    # Each row alone: few of an expert have code of their own, which reads weights once.
    product = replace(config.product, x_shape=(None, 1, config.product.k), n=config.spec.experts * config.product.n)
    return IntegerProduct(rows.target, product, config.layout, rows)


def emit_grouped_digits(name: str, config: _Config, target: Target) -> str:
    """The same by integer dot products."""
    kernel = _of_all(config, ExactRows(target, config.product.k, config.layout, listed=True))
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
                floats.store(own.accumulators, unit - base, (row, number), outputs[0])

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


def emit_grouped_int8(name: str, config: _Config, target: Target) -> str:
    """The same of rows that are quantised."""
    target = int8_target(target)
    bits = BITS[element_of(config.spec.x)]
    kernel = _of_all(config, GivenRows(target, config.product.k, config.layout, bits, listed=True))
    groups = config.panels // kernel.per_unit

    def parts(em: Emitter, values: list[Value], scratch: Scratch) -> tuple[_Experts, IntegerParts]:
        return _Experts(em, config.spec.experts, values, scratch), kernel.parts(em, values, scratch)

    def body(
        em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        rows, own = parts(em, values, scratch)
        q, scale, total, weight, _ = values

        def visit(expert: Value, first: Index, last: Index) -> None:
            base = expert * groups

            def finish(unit: Value, row: Index, number: Index) -> None:
                rows.store(own.accumulators, unit - base, (row, number), outputs[0])

            given = [q, scale, total, rows.list, weight]
            kernel.multiply(em, given, rows.find(expert), (base + first, base + last), own, finish)

        _over_experts(em, config, groups, (begin, end), visit)

    return _written(name, config, groups, parts, body)


def _packed(name: str, spec: PackedGroupedSpec) -> _Config:
    shape, n = shape_of(spec.x), shape_of(spec.result)[1]
    if spec.layout != "panels" or n is None or n % PANEL_ROWS:
        raise UnsupportedByTemplate(f"{name}: the experts aren't whole panels of {PANEL_ROWS} rows")
    product = Product(name, tuple(shape), n)
    return _Config(spec, product, find_layout(spec.scheme, product.k))


def _configure(name: str, spec: GroupedSpec | PackedGroupedSpec, target: Target) -> _Config | None:
    if isinstance(spec, GroupedSpec | QuantizedGroupedSpec):
        return None
    if element_of(spec.x) != "f32":
        raise UnsupportedByTemplate(f"{name}: products of {element_of(spec.x)} with packed experts have no template")
    return _packed(name, spec)


def _configure_int8(name: str, spec: GroupedSpec | PackedGroupedSpec, target: Target) -> _Config | None:
    if not isinstance(spec, QuantizedGroupedSpec):
        return None
    config, bits = _packed(name, spec), BITS[element_of(spec.x)]
    if config.panels % 2 or not has_room(config.layout, bits):
        raise UnsupportedByTemplate(
            f"{name}: the experts aren't pairs of panels, or sums of products of {spec.scheme} with {bits} bits don't "
            "fit in 32"
        )
    return config


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
    Generator("grouped_int8", "grouped", _configure_int8, emit_grouped_int8, knobs=SHARED, candidates=REGISTER_TILES),
    Generator("grouped_panels", "grouped", _configure, emit_grouped_panels, knobs=SHARED, candidates=REGISTER_TILES),
)
