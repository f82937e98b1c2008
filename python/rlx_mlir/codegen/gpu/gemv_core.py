# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What all forms of products of few rows share: what is computed, the sums of a lane, and the end of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.gpu.emit import DeviceEmitter, Index, Parameter, Value, pointer
from rlx_mlir.codegen.gpu.epilogue import Epilogue
from rlx_mlir.codegen.gpu.gemv_config import GemvConfig, Work
from rlx_mlir.codegen.gpu.gemv_prologue import IDENTITY_PROLOGUE, Prologue
from rlx_mlir.codegen.gpu.gemv_rows import (
    DENSE,
    Activations,
    DenseUnit,
    PackedUnit,
    Row,
    sum_float,
    sum_start,
    unit_of,
)
from rlx_mlir.codegen.gpu.kernel import check_counts
from rlx_mlir.codegen.program import IDENTITY, Program
from rlx_mlir.codegen.specs.products import argument_buffers, known_product, result_buffers
from rlx_mlir.formats import PlaneLayout, get_format, plane_layout
from rlx_mlir.formats.descriptions import RUN
from rlx_mlir.tuning.choices import NOTHING_CHOSEN, Chosen

#: Rows of x for which the schedule is meant; more work, each eight of them reading the weights again.
MAX_ROWS = 8
_ONES = 0x01010101


@dataclass(frozen=True)
class Gemv:
    """outputs = program(x W_0^T, x W_1^T, ..., arguments), with rows of weights.

    Attributes:
        name: of the kernel.
        x_shape: of x (or q), [.., K]; None stands for a dynamic size. K is known.
        n: rows of each weight.
        scheme: format of the weights: in planes, or the element type of dense ones [N, K].
        program: what follows the products, one for each weight.
        order: the kernel's operand for each of x (q, scale and sum where quantised), weights, arguments.
        element: type of arguments and outputs, and of x where it isn't quantised: f32, f16 or bf16.
        quantised: whether products are those of bytes: x is given as q, scale and sum of blocks of 32, unless the
            prologue makes them.
        dense: whether weights are tensors [N, K] of the scheme's elements, not of bytes in planes.
        columns: whether dense weights are [K, N].
        fixed: whether weights are parameters, which no kernel writes.
        prologue: what is done to x first; with a norm, its scale follows x as an operand.
        chosen: measured choices, in place of rules.
    """

    name: str
    x_shape: tuple[int | None, ...]
    n: int
    scheme: str
    program: Program = IDENTITY
    order: tuple[int, ...] | None = None
    element: str = "f32"
    quantised: bool = False
    dense: bool = False
    columns: bool = False
    fixed: bool = True
    prologue: Prologue = IDENTITY_PROLOGUE
    chosen: Chosen = NOTHING_CHOSEN

    def __post_init__(self) -> None:
        fmt = get_format(self.scheme)
        if self.element not in DENSE:
            raise UnsupportedByTemplate(f"{self.name}: products of {self.element} have no schedule")
        if not self.x_shape or not self.x_shape[-1] or self.n < 1:
            raise UnsupportedByTemplate(f"{self.name}: expects a known K and N, but x is {self.x_shape}, N {self.n}")
        if not fmt.has_planes or (self.quantised and not fmt.has_integers):
            raise UnsupportedByTemplate(f"{self.name}: no schedule reads weights of {self.scheme}")
        if self.columns and not (self.dense and self.scheme == self.element):
            raise UnsupportedByTemplate(f"{self.name}: weights [K, N] are dense, and of the type of x")
        if self.prologue and self.k % RUN:
            raise UnsupportedByTemplate(f"{self.name}: a prologue needs rows of a multiple of {RUN}, but K is {self.k}")
        if self.quantised and self.element != "f32":
            raise UnsupportedByTemplate(f"{self.name}: products of integers give f32, not {self.element}")
        check_counts(self.name, self.m, self.n, self.k)

    @property
    def k(self) -> int:
        k = self.x_shape[-1]
        assert k is not None
        return k

    @property
    def m(self) -> int | None:
        """Rows of x, None where dynamic."""
        return known_product(self.x_shape[:-1])

    @property
    def layout(self) -> PlaneLayout | None:
        """The planes of the weights; None where the elements are floats."""
        layout = plane_layout(self.scheme)
        return None if layout.dense else layout

    @property
    def unit(self) -> int:
        """Elements of a unit."""
        return unit_of(self.scheme, self.k) if self.layout is None else RUN

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of weights."""
        return self.k * DENSE[self.scheme] if self.dense else plane_layout(self.scheme).row_bytes(self.k)

    @property
    def weights(self) -> int:
        """Weights that share x."""
        return self.program.accumulators

    @property
    def given(self) -> Gemv:
        """The product alone, of what the prologue makes."""
        return replace(self, prologue=IDENTITY_PROLOGUE, order=None)

    @property
    def inputs(self) -> int:
        """Operands before the weights."""
        if self.prologue:
            return 2 if self.prologue.norm else 1
        return 3 if self.quantised else 1

    @property
    def x_element(self) -> str:
        """Type of what products read, x or q."""
        return "i8" if self.quantised else self.element

    @property
    def operands(self) -> list[tuple[str, str]]:
        """The schedule's operands: names and types of buffers."""
        leading = self.x_shape[:-1]
        given = [("x", memref(self.x_shape, self.element if self.prologue else self.x_element))]
        if self.prologue.norm:
            given += [("gamma", memref((self.k,), self.element))]
        if self.quantised and not self.prologue:
            given += [(key, memref((*leading, self.k // RUN), of)) for key, of in (("scale", "f32"), ("sum", "i32"))]
        weight = memref((self.n, self.row_bytes), "i8")
        if self.dense:
            weight = memref((self.k, self.n) if self.columns else (self.n, self.k), self.scheme)
        arguments = argument_buffers(self.program, (*leading, self.n), self.element)
        return [*given, *((f"w{i}", weight) for i in range(self.weights)), *arguments]

    @property
    def results(self) -> list[tuple[str, str]]:
        """Names and types of the outputs' buffers."""
        return list(result_buffers(self.program, (*self.x_shape[:-1], self.n), self.element))

    def work(self, tile: int) -> Work:
        """The sizes that a configuration depends on."""
        size = 1 if self.quantised else DENSE[self.element]
        x_bytes = self.k * size + (self.k // RUN * 8 if self.quantised else 0)
        return Work(self.n, self.k // self.unit, self.row_bytes, self.weights, tile, x_bytes)


# ----------------------------------------------------------------------------------------------------------------------
# Sums
# ----------------------------------------------------------------------------------------------------------------------

Sums = list[list[list[Value]]]
"""f32 of each row of weights, weight and row of the tile."""


class Products:
    """The products of some rows of weights with the tile, of the units that one lane takes."""

    def __init__(
        self, em: DeviceEmitter, spec: Gemv, config: GemvConfig, rows: Sequence[Sequence[Row]], lane: Value, stride: int
    ) -> None:
        """rows: for each row, its place in each weight. lane: the lane's first unit; `stride` leads to its next."""
        self.em, self.spec, self.config, self.rows = em, spec, config, rows
        self.lane, self.stride = lane, stride
        layout = spec.layout
        self.unit: PackedUnit | DenseUnit = (
            DenseUnit(em, spec.scheme, spec.k, lane, stride)
            if layout is None
            else PackedUnit(em, layout, spec.k, lane, stride)
        )

    def sums(self, x: Activations) -> Sums:
        """All units, one turn after the other."""
        em, units, config = self.em, self.spec.k // self.spec.unit, self.config
        full, rest = divmod(units, self.stride)
        values = [[em.zero("f32")] * config.tile] * (len(self.rows) * self.spec.weights)
        turns = full // config.unroll if full > config.unroll else 0
        if turns:
            step = config.unroll * self.stride
            with em.loop(0, turns * step, step, values, hint="unit") as loop:
                offsets = [loop.iv + i * self.stride for i in range(config.unroll)]
                loop.yield_(self._turn(x, offsets, loop.carry))
            values = loop.result
        if remaining := range(turns * config.unroll, full):
            values = self._turn(x, [i * self.stride for i in remaining], values)
        if rest:
            with em.if_(em.cmpi("ult", self.lane, rest), values) as branch:
                branch.yield_(self._turn(x, [full * self.stride], values))
                branch.else_()
                branch.yield_(values)
            values = branch.result
        return [values[i : i + self.spec.weights] for i in range(0, len(values), self.spec.weights)]

    def _turn(self, x: Activations, offsets: Sequence[Index], sums: list[list[Value]]) -> list[list[Value]]:
        """Adds the products of some units, of each row of a weight and row of x: all loads of weights come first."""
        places = [place for row in self.rows for place in row]
        loaded = [[self.unit.load(place, offset) for place in places] for offset in offsets]
        sums = [list(own) for own in sums]
        add = self._quantised if x.element == "i8" else self._exact
        for offset, units in zip(offsets, loaded, strict=True):
            sums = add(x, offset, units, sums)
        return sums

    def _quantised(
        self, x: Activations, offset: Index, units: Sequence[Any], sums: list[list[Value]]
    ) -> list[list[Value]]:
        """sums += scale * (d <q_w, q> + m sum)"""
        em, unit = self.em, self.unit
        assert isinstance(unit, PackedUnit)
        layout, parts = unit.layout, unit.parts
        factors = [unit.factors(one) for one in units]
        words = [unit.quads(one) for one in units]
        per_part = len(words[0]) // parts
        minima = layout.minimum is not None
        for m in range(self.config.tile):
            q = x.quads(m, offset)
            scale, total = x.block(m, offset)
            totals = [total]
            if parts == 2 and (minima or layout.bias):
                first = em.const(0)
                for word in q[:per_part]:
                    first = em.dp4a(em.const(_ONES), word, first)
                totals = [first, total - first]
            starts = [sum_start(em, totals[part] * -layout.bias if layout.bias else None) for part in range(parts)]
            added = [sum_float(em, sum_start(em, one)) for one in totals] if minima else []
            for number, (own, factor) in enumerate(zip(words, factors, strict=True)):
                value: Value | None = None
                for part in range(parts):
                    dot = starts[part]
                    for i in range(part * per_part, (part + 1) * per_part):
                        dot = em.dp4a(own[i], q[i], dot, signed=(layout.signed, True))
                    exact = sum_float(em, dot)
                    d = factor.scales[part]
                    value = d * exact if value is None else em.fmaf(d, exact, value)
                    if minima:
                        value = em.fmaf(factor.minima[part], added[part], value)
                assert value is not None
                sums[number][m] = em.fmaf(scale, value, sums[number][m])
        return sums

    def _exact(self, x: Activations, offset: Index, units: Sequence[Any], sums: list[list[Value]]) -> list[list[Value]]:
        """sums += x W, with W decoded"""
        em, unit, tile = self.em, self.unit, self.config.tile
        if isinstance(unit, DenseUnit):
            elements = [unit.floats(one) for one in units]
            for m in range(tile):
                row = x.floats(m, offset, 0, unit.size)
                for own, weights in zip(sums, elements, strict=True):
                    for weight, value in zip(weights, row, strict=True):
                        own[m] = em.fmaf(weight, value, own[m])
            return sums
        factors = [unit.factors(one) for one in units]
        words = [unit.quads(one) for one in units]
        count = 16 // x.bytes  # elements of a chunk of x: one quad, or two
        per_part = RUN // unit.parts
        for part in range(unit.parts):
            partial = [[em.zero("f32")] * tile for _ in units]
            for first in range(part * per_part, (part + 1) * per_part, count):
                values = [x.floats(m, offset, first, count) for m in range(tile)]
                for number, (own, factor) in enumerate(zip(words, factors, strict=True)):
                    weights = [w for quad in own[first // 4 : (first + count) // 4] for w in unit.floats(quad)]
                    if factor.minima:
                        # Decoded in full: a sum of x apart would make NaN of infinities.
                        weights = [em.fmaf(factor.scales[part], w, factor.minima[part]) for w in weights]
                    for m in range(tile):
                        for weight, value in zip(weights, values[m], strict=True):
                            partial[number][m] = em.fmaf(weight, value, partial[number][m])
            for number, factor in enumerate(factors):
                for m in range(tile):
                    own = sums[number]
                    if factor.minima:
                        own[m] = own[m] + partial[number][m]
                    else:
                        own[m] = em.fmaf(factor.scales[part], partial[number][m], own[m])
        return sums


# ----------------------------------------------------------------------------------------------------------------------
# Outputs
# ----------------------------------------------------------------------------------------------------------------------


class Task:
    """What the forms share: parameters of the kernel, and the end of a row; so many lanes share one."""

    def __init__(self, em: DeviceEmitter, spec: Gemv, tile: int, lanes: int, values: Sequence[Value]) -> None:
        self.em, self.spec, self.tile, self.lanes = em, spec, tile, lanes
        count = spec.inputs
        arguments = len(spec.program.arguments)
        self.x = values[:count]
        self.w = values[count : count + spec.weights]
        first = count + spec.weights
        self.arguments = values[first : first + arguments]
        self.outputs = values[first + arguments : first + arguments + len(spec.program.results)]
        self.m: Index = values[-1] if spec.m is None else spec.m
        # Rows of x beyond the first tile are those of blocks further along y.
        self.first: Index = 0 if spec.m is not None and spec.m <= self.tile else em.block("y") * self.tile
        self.epilogue = Epilogue(em, spec.program, spec.element, self.arguments, self.outputs, spec.n)

    def x_rows(self) -> list[Index]:
        """The rows of x of the tile; ones that don't exist are the last one's."""
        rows = [self.first + i for i in range(self.tile)]
        return rows if self._whole else [self.em.imin(row, self.m - 1) for row in rows]

    @property
    def _whole(self) -> bool:
        """Whether tiles have no rows beyond those of x."""
        return isinstance(self.m, int) and self.m % self.tile == 0

    def exists(self, inside: Value, row: Index) -> Value:
        """`inside`, and that a row of x exists."""
        return inside if self._whole else inside & self.em.cmpi("ult", row, self.m)

    def join(self, sums: Sums) -> Sums:
        """The sums of all lanes that share a row; each of them gets them."""
        return [[[self.em.warp_reduce("add", s, self.lanes) for s in weight] for weight in row] for row in sums]

    def finish(self, sums: Sums, first_row: Index, lane: Value) -> None:
        """Runs the program: lane i of those that share rows takes the i-th of the outputs (row, row of x).

        first_row: the first of the lanes' rows. lane: among those that share a row.
        """
        em, tile = self.em, self.tile
        count = len(sums) * tile
        for start in range(0, count, self.lanes):
            here = range(start, min(start + self.lanes, count))
            chosen = [sums[start // tile][weight][start % tile] for weight in range(self.spec.weights)]
            for number in here[1:]:
                mine = em.cmpi("eq", lane, number - start)
                for weight in range(self.spec.weights):
                    chosen[weight] = em.select(mine, sums[number // tile][weight][number % tile], chosen[weight])
            number_of: Index = lane + start
            row = first_row + number_of // tile
            m = self.first + number_of % tile
            exists = em.cmpi("ult", lane, len(here)) & em.cmpi("ult", row, self.spec.n)
            with em.if_(self.exists(exists, m)):
                self.epilogue.store([[value] for value in chosen], m, row)


def parameters_of(spec: Gemv) -> list[Parameter]:
    """The kernels' parameters."""
    names = ("q", "scale", "sum") if spec.quantised and not spec.prologue else ("x", "gamma")
    given = [pointer(key, readonly=True) for key in names[: spec.inputs]]
    given += [pointer(f"w{i}", readonly=True, constant=spec.fixed) for i in range(spec.weights)]
    given += [pointer(f"arg{i}", readonly=True) for i in range(len(spec.program.arguments))]
    given += [pointer(f"out{i}") for i in range(len(spec.program.results))]
    return [*given, ("m", "i32")] if spec.m is None else given
