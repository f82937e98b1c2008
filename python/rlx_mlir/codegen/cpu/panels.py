# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights in panels: 16 rows interleaved, so that the rows stand across the lanes of a vector register.

`rlx_mlir.formats.panels` defines the layout, and its `PanelLayout` says where the parts of a block are. Elements are
read in runs of 32 along K, and in a run by quads of 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx_mlir.codegen.bits import joined
from rlx_mlir.codegen.emit import Emitter, Index, Value, memref, vec
from rlx_mlir.codegen.kernel import Buffers
from rlx_mlir.codegen.specs import ProductSpec
from rlx_mlir.codegen.structures import Structure
from rlx_mlir.formats import PANEL_FORMATS, PANEL_ROWS, Factor, PanelLayout, get_format, panel_layout
from rlx_mlir.formats.descriptions import RUN

from . import UnsupportedByTemplate
from .kernel import Product
from .target import ELEMENT_BITS, Target

__all__ = [
    "PANEL_ROWS",
    "RUN",
    "Panel",
    "PanelLayout",
    "Run",
    "block_heads",
    "find_layout",
    "over_runs",
    "panel_product",
    "panel_operands",
]


def find_layout(scheme: str, k: int) -> PanelLayout:
    """The panel layout of a scheme whose rows have K elements, or UnsupportedByTemplate."""
    if not get_format(scheme).has_panels:
        known = ", ".join(PANEL_FORMATS)
        raise UnsupportedByTemplate(f"panels: no code is written for '{scheme}' weights; known are {known}")
    layout = panel_layout(scheme)
    if k % layout.block:
        raise UnsupportedByTemplate(f"{scheme} panels: K has to be a multiple of {layout.block}, but is {k}")
    return layout


def panel_product(spec: ProductSpec, kind: str) -> Product | None:
    """The product of a kernel with weights in panels; None where it is of another kind.

    Raises UnsupportedByTemplate where the weights lie otherwise, and for products of f64, which they don't decode to.
    """
    if spec.kind != kind:
        return None
    if spec.element == "f64":
        raise UnsupportedByTemplate(f"{spec.name}: products of f64 with packed weights have no template")
    product = Product.of(spec)
    if spec.layout != "panels":
        raise UnsupportedByTemplate(f"{spec.name}: the weight isn't in panels")
    return product


def panel_operands(product: Product, layout: PanelLayout, rows: Buffers | None = None) -> Buffers:
    """The buffers of x, or of what `rows` says, of weights [ceil(N / 16), panel bytes], and of the arguments."""
    packed = memref((-(-product.n // PANEL_ROWS), layout.panel_bytes(product.k)), "i8")
    x = [("x", memref(product.x_shape, product.element))] if rows is None else rows
    return [*x, *((f"w{i}", packed) for i in range(product.program.accumulators)), *product.arguments()]


class Panel:
    """One panel of a weight [panels, panel bytes], read in vectors of `lanes` rows; `base` is its first byte.

    Vector v of a panel holds the rows [v * lanes, (v + 1) * lanes).
    """

    def __init__(self, em: Emitter, target: Target, layout: PanelLayout, data: Value, base: Index) -> None:
        self.em, self.target, self.layout, self.data, self.base = em, target, layout, data, base
        self.lanes = target.lanes("f32")
        self.vectors = PANEL_ROWS // self.lanes

    def at(self, block: Index) -> Index:
        """The first byte of a block."""
        return self.base + block * self.layout.block_bytes

    def prefetch(self, at: Index, ahead: int, count: int) -> None:
        """Asks for the cache lines of `count` bytes that begin `ahead` bytes after `at`."""
        for line in range(0, count, 64):
            self.em.prefetch(self.data, [at + (ahead + line)])

    def vector(self, at: Index, element: str) -> Value:
        """A number of each lane."""
        width = ELEMENT_BITS[element] // 8 * self.lanes
        return self.em.bitcast(self.em.vload(self.data, [at], vec(width, "i8")), vec(self.lanes, element))

    def scales(self, at: Index, v: int) -> Value:
        """Floats of the lanes' blocks, f32; `at`: where those of the panel's rows are."""
        em, target, layout = self.em, self.target, self.layout
        at = at + layout.float_bytes * self.lanes * v
        if layout.float_type == "<f2":
            return target.widen(em, self.vector(at, "f16"))
        bits, wide = vec(self.lanes, "i32"), vec(self.lanes, "f32")
        stored = em.cast("arith.extui", self.vector(at, "i8"), bits)
        if layout.float_type == "e8m0":  # half of a power of two; the two least are subnormal
            power = em.select(em.cmpi("ult", stored, 2), (stored + 1) << 21, (stored - 1) << 23)
            return em.bitcast(power, wide)
        # Exponent and fraction where f32 has them, whose exponent counts from another number.
        value = em.bitcast((stored & 0x7F) << 20, wide) * 2.0**119
        return em.select(em.cmpi("eq", stored, 0x7F), em.zero(wide), value)

    def floats(self, k: Index, v: int) -> Value:
        """Element k of a dense format, f32."""
        width = self.layout.format.nbytes
        at = self.at(k) + width * self.lanes * v
        return self.target.widen(self.em, self.vector(at, self.layout.name))


class Run:
    """32 elements along K of one panel: where its parts are, and the floats of its block, f32 [float][vector]."""

    def __init__(self, panel: Panel, block: Index, number: Index, heads: Sequence[Sequence[Value]]) -> None:
        layout = panel.layout
        self.panel, self.block, self.number, self.heads = panel, block, number, heads
        self.at = block + layout.payload + number * layout.run_bytes
        self._dwords: dict[tuple[Index, int], Value] = {}

    # -- scales -------------------------------------------------------------------------------------------------------

    @property
    def parts(self) -> int:
        """Sub-blocks in a run, each with its scale."""
        return RUN // self.panel.layout.sub

    def scale(self, part: Index, v: int) -> Value:
        """What multiplies the integers of a sub-block, f32."""
        assert self.panel.layout.scale is not None
        return self._factor(self.panel.layout.scale, part, v)

    def minimum(self, part: Index, v: int) -> Value | None:
        """What is added to the products of a sub-block, f32; None where the format has no minima."""
        factor = self.panel.layout.minimum
        return None if factor is None else self._factor(factor, part, v)

    def _factor(self, factor: Factor, part: Index, v: int) -> Value:
        panel = self.panel
        em, lanes = panel.em, panel.lanes
        sub = self.number * self.parts + part
        if factor.each:
            at = self.block + (sub + factor.number) * (PANEL_ROWS * panel.layout.float_bytes)
            return _signed(panel.layout, factor, panel.scales(at, v))
        head = self.heads[panel.layout.factors.index(factor)][v]
        if factor.at is None:
            return head
        at = self.block + sub * PANEL_ROWS + (factor.at + lanes * v)
        stored = em.vload(panel.data, [at], vec(lanes, "i8"))
        wide = vec(lanes, "i32")
        if factor.bits == 8:
            integer = em.cast("arith.extsi", stored, wide)
        else:
            integer = em.cast("arith.extui", stored, wide)
            integer = integer >> factor.shift if factor.shift else integer
            integer = integer & ((1 << factor.bits) - 1) if factor.shift + factor.bits < 8 else integer
        return head * em.cast("arith.sitofp", integer, vec(lanes, "f32"))

    # -- integers -----------------------------------------------------------------------------------------------------

    @property
    def group(self) -> int:
        """Quads after which the places of a quad's bits repeat, but in later dwords."""
        return 8 // self.panel.layout.widths[-1]

    def _moved(self, first: Index, i: int, v: int) -> list[tuple[Value, int, int]]:
        """The dwords that hold quad `first` + i: (dword, bit of its first element, width)."""
        panel, layout = self.panel, self.panel.layout
        if isinstance(first, int):
            first, i = 0, first + i
        result, plane = [], 0
        for width in layout.widths:
            per_dword = 8 // width
            dword = first // per_dword + (i // per_dword + plane)
            if (dword, v) not in self._dwords:
                at = self.at + dword * (4 * PANEL_ROWS)
                self._dwords[dword, v] = panel.vector(at + 4 * panel.lanes * v, "i32")
            result.append((self._dwords[dword, v], width * (i % per_dword), width))
            plane += width
        return result

    def quad(self, first: Index, i: int, v: int) -> Value:
        """Quad `first` + i, four unsigned integers of each row as bytes; a dynamic `first` is a multiple of `group`."""
        panel = self.panel
        codes = panel.em.bitcast(joined(self._moved(first, i, v)), vec(4 * panel.lanes, "i8"))
        table = panel.layout.table
        return panel.target.looked_up(panel.em, table, codes) if table else codes

    def dword(self, first: Index, i: int, v: int) -> tuple[Value, int]:
        """Quad `first` + i, the code of byte j from a bit on plus 8 j, beside other bits: (dwords, the bit)."""
        moved = self._moved(first, i, v)
        if len(moved) == 1:
            return moved[0][:2]
        return joined(moved), 0

    @property
    def _tabulated(self) -> bool:
        """Whether a table in a register turns integers into floats: a permutation looks at the low four bits only."""
        target = self.panel.target
        return self.panel.layout.bits <= 4 and target.vector_bits == 512 and target.has("avx512f")

    @property
    def shift(self) -> int:
        """`numbers` are scaled by this power of two, but where scales may be too small to make up for it."""
        layout = self.panel.layout
        return 24 if layout.bias and not self._tabulated and layout.float_type != "e8m0" else 0

    def numbers(self, first: Index, i: int, v: int) -> list[Value]:
        """The elements of quad `first` + i as f32: (u - bias) * 2^shift, whatever is cheapest."""
        em, lanes, layout = self.panel.em, self.panel.lanes, self.panel.layout
        wide = vec(lanes, "f32")
        if self._tabulated:
            # Mask, conversion and bias in one.
            table = em.const([float(layout.integer(entry)) for entry in range(16)], wide)
            dword, bit = self.dword(first, i, v)
            moved = [dword >> (bit + 8 * j) if bit + 8 * j else dword for j in range(4)]
            return [em.intrinsic("llvm.x86.avx512.permvar.sf.512", [table, index], wide) for index in moved]
        # A byte shuffle with zeros; a signed byte goes to the top of its lane, which is its sign extension times 2^24.
        source = self.quad(first, i, v)
        if layout.bias == 128:
            source = em.bitcast(em.bitcast(source, vec(lanes, "i32")) ^ -0x7F7F7F80, source.type)
        elif layout.bias:
            source = source - layout.bias
        position = 3 if layout.bias else 0
        result = []
        for e in range(4):
            pick = [4 * r + e if j == position else 4 * lanes for r in range(lanes) for j in range(4)]
            spread = em.bitcast(em.shuffle(source, em.zero(source.type), pick), vec(lanes, "i32"))
            if layout.bias and not self.shift:
                spread = em.binary("arith.shrsi", spread, 24)
            result.append(em.cast("arith.sitofp", spread, wide))
        return result


def over_runs(
    panels: Sequence[Panel],
    first: Index,
    end: Index,
    carry: Structure,
    step: Callable[[Index, Sequence[Run], Structure], Structure],
    ahead: int = 0,
) -> Structure:
    """Calls `step(run of K, that run of each panel, carry)` for the runs of the blocks [first, end).

    With `ahead`, the memory that follows after so many bytes is prefetched. Returns what the last step gave.
    """
    em, layout = panels[0].em, panels[0].layout
    with em.loop(first, end, 1, carry, hint="block") as blocks:
        starts = [panel.at(blocks.iv) for panel in panels]
        if ahead:
            for panel, at in zip(panels, starts, strict=True):
                panel.prefetch(at, ahead, layout.payload if layout.runs > 1 else layout.block_bytes)
        heads = [block_heads(panel, at) for panel, at in zip(panels, starts, strict=True)]

        def at_run(number: Index, carried: Structure) -> Structure:
            runs = [Run(panel, at, number, head) for panel, at, head in zip(panels, starts, heads, strict=True)]
            if ahead and layout.runs > 1:
                for run in runs:
                    run.panel.prefetch(run.at, ahead, layout.run_bytes)
            return step(blocks.iv * layout.runs + number, runs, carried)

        if layout.runs == 1:
            blocks.yield_(at_run(0, blocks.carry))
        else:
            with em.loop(0, layout.runs, 1, blocks.carry, hint="run") as inner:
                inner.yield_(at_run(inner.iv, inner.carry))
            blocks.yield_(inner.result)
    return blocks.result


def block_heads(panel: Panel, at: Index) -> list[list[Value]]:
    """The floats of a block with the sign of their factor, f32 [factor][vector]; none of what sub-blocks have."""
    heads: list[list[Value]] = []
    for factor in panel.layout.factors:
        place = at + PANEL_ROWS * panel.layout.float_bytes * factor.number
        values = [] if factor.each else [panel.scales(place, v) for v in range(panel.vectors)]
        heads.append([_signed(panel.layout, factor, value) for value in values])
    return heads


def _signed(layout: PanelLayout, factor: Factor, value: Value) -> Value:
    """A float times the format's unit, with the sign of its factor."""
    value = value * layout.unit if layout.unit != 1 else value
    return -value if factor.sign < 0 else value
