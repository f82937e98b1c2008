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
from rlx_mlir.formats.blocks import RUN

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
    "panel_weights",
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


def panel_weights(product: Product, layout: PanelLayout) -> Buffers:
    """The weights' buffers [ceil(N / 16), panel bytes] of a product."""
    packed = memref((-(-product.n // PANEL_ROWS), layout.panel_bytes(product.k)), "i8")
    return [(f"w{i}", packed) for i in range(product.program.accumulators)]


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
        head = self.heads[factor.number][v]
        if factor.at is None:
            return head
        sub = self.number * self.parts + part
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
        whole = joined(self._moved(first, i, v))
        return self.panel.em.bitcast(whole, vec(4 * self.panel.lanes, "i8"))

    def dword(self, first: Index, i: int, v: int) -> tuple[Value, int]:
        """Quad `first` + i, the integer of byte j from a bit on plus 8 j, beside other bits: (dwords, the bit)."""
        if len(self.panel.layout.widths) == 1:
            ((dword, bit, _),) = self._moved(first, i, v)
            return dword, bit
        return self.panel.em.bitcast(self.quad(first, i, v), vec(self.panel.lanes, "i32")), 0

    @property
    def _tabulated(self) -> bool:
        """Whether a table in a register turns integers into floats: a permutation looks at the low four bits only."""
        target = self.panel.target
        return self.panel.layout.bits <= 4 and target.vector_bits == 512 and target.has("avx512f")

    @property
    def shift(self) -> int:
        """`numbers` are scaled by this power of two."""
        return 24 if self.panel.layout.bias and not self._tabulated else 0

    def numbers(self, first: Index, i: int, v: int) -> list[Value]:
        """The elements of quad `first` + i as f32: (u - bias) * 2^shift, whatever is cheapest."""
        em, lanes, layout = self.panel.em, self.panel.lanes, self.panel.layout
        wide = vec(lanes, "f32")
        if self._tabulated:
            # Mask, conversion and bias in one.
            top = 1 << layout.bits
            table = em.const([float(entry % top - layout.bias) for entry in range(16)], wide)
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
            spread = em.shuffle(source, em.zero(source.type), pick)
            result.append(em.cast("arith.sitofp", em.bitcast(spread, vec(lanes, "i32")), wide))
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
    """The floats of a block with the sign of their factor, f32 [float][vector]."""
    em, layout = panel.em, panel.layout
    heads = []
    for factor in (layout.scale, layout.minimum):
        if factor is None:
            continue
        half = 2 * PANEL_ROWS * factor.number
        values = [
            panel.target.widen(em, panel.vector(at + (half + 2 * panel.lanes * v), "f16")) for v in range(panel.vectors)
        ]
        heads.append([-value for value in values] if factor.sign < 0 else values)
    return heads
