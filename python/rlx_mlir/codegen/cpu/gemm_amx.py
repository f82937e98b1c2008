# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of bf16 or f16 operands by the tile registers of AMX.

A group of columns, a block of K long, is copied into scratch with pairs of K side by side, as tiles want them; so are
32 rows at a time, whose parts stay in the nearest cache while all columns of the group pass: four tiles of sums over
two of rows and two of columns. Sums wait in memory for the next block of K, and go on where they were: every output is
one chain of operations along K, and a row's result is the same bits in any batch, and for any cut of the units.

Tiles round each addition to f32, as fused multiply-add does, but take subnormal sums, and operands of bf16, for zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rlx_mlir.codegen.emit import Emitter, Index, Value, element_of, vec
from rlx_mlir.codegen.program import IDENTITY
from rlx_mlir.codegen.specs import ProductSpec
from rlx_mlir.runtime.tiles import GEMM_AMX
from rlx_mlir.tuning.cpu import SHARED

from . import UnsupportedByTemplate
from .gemm import Matrix, transpose
from .gemm_packed import are_single_rows
from .kernel import Accumulators, Finished, Product, Scratch, row_count, write_product
from .panels import PANEL_ROWS, find_layout, panel_operands, panel_product
from .registry import Generator
from .target import Target

STEP = 32
"""Elements of K in a tile: 64 bytes."""

SIDE = 16
"""Rows of a tile, and columns of a tile of sums."""

ROWS = COLUMNS = 2 * SIDE
"""Rows, and columns, that are multiplied at a time."""

ROW_BLOCK = 512
"""Rows that share a copy of the columns."""

K_WHOLE, K_BLOCK = 640, 512
"""Up to K_WHOLE elements of K go in one block, whose rows stay in the nearest cache, more in blocks of K_BLOCK."""

GROUP = 16
"""Blocks of columns that share each copy of rows."""

PREFETCH_BYTES = 1024
"""Bytes of a panel that are fetched ahead of its copy."""

PAIRS = [lane // 2 + SIDE * (lane % 2) for lane in range(2 * SIDE)]
"""Two vectors of 16 elements, side by side in pairs."""

Copy = Callable[[Index, int, Index, Index, Index], None]
"""(unit, weight, slot, first k, end of k): copies a unit's columns into a slot of scratch."""


def gemm_amx(target: Target, product: Product) -> str:
    """The kernel of a product with panels of the activations' type, bf16 or f16.

    Operands: x [..., K], then the weights [ceil(N / 16), panel bytes] i8, then the program's arguments; then the
    outputs [..., N]. Units are pairs of panels.
    """
    if not target.tiles(product.element):
        raise UnsupportedByTemplate(f"{product.name}: the target has no tiles of {product.element}")
    layout = find_layout(product.element, product.k)
    weights = product.program.accumulators
    panels = -(-product.n // PANEL_ROWS)
    ahead = target.choices.ahead(PREFETCH_BYTES)

    def parts(em: Emitter, values: list[Value], scratch: Scratch) -> NarrowTiles:
        return NarrowTiles(em, target, product, product.k, row_count(em, values[0]), scratch)

    def body(
        em: Emitter, values: list[Value], outputs: list[Value], begin: Value, end: Value, scratch: Scratch
    ) -> None:
        tiles = parts(em, values, scratch)
        x, rows = em.rows(values[0]), row_count(em, values[0])
        flat = [em.flat(value) for value in values[1 : 1 + weights]]

        def copy(unit: Index, weight: int, slot: Index, k0: Index, k1: Index) -> None:
            for side in range(2):
                # A panel beyond the last one is read as the last one: its columns aren't stored.
                panel = em.imin(unit * 2 + side, panels - 1)
                base = panel * layout.panel_bytes(product.k)
                _copy_panel(em, tiles, flat[weight], base, (slot, side), (k0, k1), ahead)

        tiles.configure()
        with em.loop(0, rows, ROW_BLOCK, hint="rb") as first:
            count = em.imin(rows - first.iv, ROW_BLOCK)
            places = (first.iv, first.iv)
            tiles.multiply(x, places, count, (begin, end), copy, values[1 + weights :], outputs)
        tiles.release()

    return write_product(product, panel_operands(product, layout), lambda em, values: -(-panels // 2), parts, body)


class Tiles:
    """The instructions on tile registers, whose shape stands in a thread's scratch."""

    def __init__(self, em: Emitter, scratch: Scratch) -> None:
        self._em = em
        self._config = scratch.take([16], "i32")

    def emit(self, name: str, *operands: int | Value) -> None:
        """One instruction; numbers name registers."""
        em = self._em
        values = [em.const(operand, "i8") if isinstance(operand, int) else operand for operand in operands]
        types = ", ".join(value.type for value in values)
        em.line(f'llvm.call_intrinsic "llvm.x86.{name}"({", ".join(values)}) : ({types}) -> ()')

    def pointer(self, buffer: Value, offset: Index) -> Value:
        """The address `offset` bytes after the buffer's first element."""
        em = self._em
        number = em.cast("arith.index_cast", em.index(em.address(buffer) + offset), "i64")
        return em.op(f"llvm.inttoptr {number} : i64 to !llvm.ptr", "!llvm.ptr", "pointer")

    def stride(self, bytes_: Index) -> Value:
        """Bytes between the rows of a tile in memory."""
        em = self._em
        return em.const(bytes_, "i64") if isinstance(bytes_, int) else em.cast("arith.index_cast", bytes_, "i64")

    def configure(self) -> None:
        """Eight tiles of 16 rows of 64 bytes."""
        self.configure_shapes(dict.fromkeys(range(8), (SIDE, 64)))

    def configure_shapes(self, shapes: Mapping[int, tuple[int, int]]) -> None:
        """Tiles of their own shapes, (rows, bytes of a row) by register."""
        widths = [shapes.get(tile, (0, 0))[1] for tile in range(8)]
        heights = [shapes.get(tile, (0, 0))[0] for tile in range(8)]
        words = [1, 0, 0, 0]
        words += [low | high << 16 for low, high in zip(widths[::2], widths[1::2], strict=True)]
        words += [0, 0, 0, 0]
        words += [sum(height << 8 * place for place, height in enumerate(heights[at : at + 4])) for at in (0, 4)]
        words += [0, 0]
        self._em.vstore(self._em.const(words, vec(16, "i32")), self._config, [0])
        self.emit("ldtilecfg", self.pointer(self._config, 0))

    def configure_rows(self, count: Index) -> None:
        """Tiles for `count` rows, from 1 to 32, whose products take less time where they are fewer.

        Registers 0, 1 and 4 have the first 16, registers 2, 3 and 5 the others, or one row where there are none.
        """
        em = self._em
        first, second = em.imin(count, SIDE), em.imax(count - SIDE, 1)
        sums = first * 0x0101 + second * 0x01010000
        operands = first + second * 0x0100 + 0x10100000
        for place, word in ((12, sums), (13, operands)):
            em.store(em.cast("arith.index_cast", em.index(word), "i32"), self._config, [place])
        self.emit("ldtilecfg", self.pointer(self._config, 0))

    def release(self) -> None:
        """Gives the registers back: a thread that holds some is slower to switch."""
        self.emit("tilerelease")


class NarrowTiles(Tiles):
    """A thread's scratch for products of bf16 or f16, and what is done with it.

    Registers have numbers: 0 to 3 are sums, 4 and 5 rows, 6 and 7 columns.
    """

    def __init__(self, em: Emitter, target: Target, product: Finished, k: Index, rows: Index, scratch: Scratch) -> None:
        """Lays out the scratch for `rows` rows at most."""
        super().__init__(em, scratch)
        self._element, self.k = product.element, k
        self._count = product.program.accumulators
        self._group = max(1, GROUP // self._count)
        self._blocked = not isinstance(k, int) or k > K_WHOLE
        # Blocks of one size, where K is known.
        blocks = -(-k // K_BLOCK) if self._blocked and isinstance(k, int) else 1
        self._block = -(-k // (blocks * STEP)) * STEP if isinstance(k, int) else K_BLOCK
        steps = self._block // STEP
        self._capacity = em.iceildiv(em.imin(rows, ROW_BLOCK), ROWS) * ROWS if self._blocked else ROWS
        sums = self._capacity * self._group if self._blocked else 2 * ROWS
        # Sums of tiles are never subnormal, so that an instruction may round them which takes those for zero.
        self._rounds = product.program == IDENTITY and product.element == "bf16" and target.has("avx512bf16")
        self._sums = Accumulators(em, target, product, COLUMNS, scratch, sums)
        self._columns = scratch.take([self._group * self._count, steps, 2, SIDE, 2 * SIDE], "i16", 2)
        self._left = scratch.take([steps, 2, SIDE, 2 * SIDE], "i16", 2)

    def store_pair(self, value: Value, place: tuple[Index, int], step: Index, pair: Index) -> None:
        """16 columns of a pair of K, 32 x i16; place: (slot, half of the columns)."""
        slot, side = place
        self._em.vstore(value, self._columns, [slot, step, side, pair, 0])

    def _copy_rows(self, x: Value, first: Index, count: Index, k0: Index, k1: Index) -> None:
        """Rows of x into scratch, zeros where K ends."""
        em, stored = self._em, vec(STEP, self._element)
        length = k1 - k0
        main, steps = length // STEP, em.iceildiv(length, STEP)
        whole = isinstance(self.k, int) and self.k % STEP == 0
        with em.loop(0, count, hint="row") as row:
            source = first + row.iv
            half, line = row.iv // SIDE, row.iv % SIDE

            def keep(value: Value, step: Index, half: Index = half, line: Index = line) -> None:
                em.vstore(em.bitcast(value, vec(STEP, "i16")), self._left, [step, half, line, 0])

            with em.loop(0, main, hint="step") as step:
                keep(em.vload(x, [source, k0 + step.iv * STEP], stored), step.iv)
            if not whole:
                with em.loop(main, steps, hint="step") as step:
                    k = k0 + step.iv * STEP
                    mask = em.mask(k1 - k, STEP)
                    keep(em.vload(x, [source, k], stored, mask), step.iv)

    def multiply(
        self,
        x: Value,
        firsts: tuple[Index, Index],
        count: Index,
        units: tuple[Index, Index],
        copy: Copy,
        arguments: Sequence[Value],
        outputs: Sequence[Value],
    ) -> None:
        """Outputs of `count` rows, at most ROW_BLOCK, for a range of units.

        The first row is at firsts[0] of x and firsts[1] of the outputs.
        """
        em = self._em
        # Without elements of K there is a block, too: of none, whose sums are zeros.
        length = em.imax(self.k, 1)
        with em.loop(*units, self._group, hint="group") as group, em.loop(0, length, self._block, hint="kb") as kb:
            last = em.imin(group.iv + self._group, units[1])
            k0, k1 = kb.iv, em.imin(kb.iv + self._block, self.k)
            with em.loop(group.iv, last, hint="unit") as unit:
                for weight in range(self._count):
                    copy(unit.iv, weight, self._slot(unit.iv - group.iv, weight), k0, k1)
            with em.loop(0, count, ROWS, hint="strip") as strip:
                own = em.imin(count - strip.iv, ROWS)
                self.configure_rows(own)
                self._copy_rows(x, firsts[0] + strip.iv, own, k0, k1)

                def finish(unit: Index, at: Index, strip: Value = strip.iv, own: Index = own, k1: Index = k1) -> None:
                    out_row = firsts[1] + strip
                    if not self._blocked:
                        self._finish(arguments, outputs, unit, out_row, own, at)
                        return
                    with em.if_(em.cmpi("sge", k1, self.k)):
                        self._finish(arguments, outputs, unit, out_row, own, at)

                self._strip((group.iv, last), strip.iv, (k0, k1), finish)

    def _strip(
        self,
        units: tuple[Index, Index],
        row: Index,
        ks: tuple[Index, Index],
        finish: Callable[[Index, Index], None],
    ) -> None:
        """Products of 32 rows with all units; finish(unit, first row of sums) makes outputs of sums that are whole."""
        em = self._em
        more = units[1] - 1
        with em.loop(units[0], units[1] + 1, hint="unit") as unit:
            number = unit.iv - units[0]
            at = self._place(number, row)
            is_one, is_later = em.cmpi("sle", unit.iv, more), em.cmpi("sgt", unit.iv, units[0])

            def before(unit: Value = unit.iv, number: Index = number, is_later: Value = is_later) -> None:
                # While tiles are busy, and after what they stored has reached the cache.
                with em.if_(is_later):
                    finish(unit - 1, self._place(number - 1, row))

            for weight in range(self._count):
                with em.if_(is_one):
                    self._products(self._slot(number, weight), weight, at, ks)
                if weight == 0:
                    before()
                with em.if_(is_one):
                    self._move_sums("tilestored64", weight, at)

    def _place(self, number: Index, row: Index) -> Index:
        """The first row of the sums of a unit; number: of the unit in its group."""
        return number * self._capacity + row if self._blocked else number % 2 * ROWS

    def _finish(
        self, arguments: Sequence[Value], outputs: Sequence[Value], unit: Index, first: Index, rows: Index, at: Index
    ) -> None:
        """Outputs of the unit's columns and the output rows [first, first + rows), whose sums begin with row `at`."""
        em = self._em
        if not self._rounds:
            self._sums.finish(arguments, outputs, unit, first, rows, at)
            return
        output = em.rows(outputs[0])
        n, column = em.dim(output, 1), unit * COLUMNS
        rounded = vec(COLUMNS, "bf16")
        whole = isinstance(n, int) and n % COLUMNS == 0
        mask = None if whole else em.mask(n - column, COLUMNS)
        with em.loop(0, rows, hint="row") as row:
            low, high = (em.vload(self._sums.data, [at + row.iv, side * SIDE], self._sums.type) for side in range(2))
            value = em.intrinsic("llvm.x86.avx512bf16.cvtne2ps2bf16.512", [high, low], rounded)
            place = [first + row.iv, column]
            em.vstore(value, output, place, mask)

    def _slot(self, number: Index, weight: int) -> Index:
        return number * self._count + weight

    def _move_sums(self, instruction: str, weight: int, row: Index) -> None:
        """Loads or stores the four tiles of sums, whose first row is `row`."""
        width = 4 * self._count * COLUMNS
        for tile in range(4):
            at = (row + (tile // 2) * SIDE) * width
            at = at + 4 * (weight * COLUMNS + (tile % 2) * SIDE)
            self.emit(instruction, tile, self.pointer(self._sums.data, at), self.stride(width))

    def _products(self, slot: Index, weight: int, row: Index, ks: tuple[Index, Index]) -> None:
        """The products of a block of K, added to the sums from `row` on where those of other blocks are."""
        em, (k0, k1) = self._em, ks
        line, tile_bytes = self.stride(64), SIDE * 64

        def clear() -> None:
            for tile in range(4):
                self.emit("tilezero", tile)

        if self._blocked:
            with em.if_(em.cmpi("eq", k0, 0)) as branch:
                clear()
                branch.else_()
                self._move_sums("tileloadd64", weight, row)
        else:
            clear()
        start = slot * (self._block // STEP * 2 * tile_bytes)
        # Columns pass by the nearest cache, which has room for the rows, and no more.
        with em.loop(0, em.iceildiv(k1 - k0, STEP), hint="step") as step:
            here = step.iv * (2 * tile_bytes)
            for side in range(2):
                left, right = (at + side * tile_bytes for at in (here, start + here))
                self.emit("tileloadd64", 4 + side, self.pointer(self._left, left), line)
                self.emit("tileloaddt164", 6 + side, self.pointer(self._columns, right), line)
            for tile in range(4):
                product = {"bf16": "tdpbf16ps", "f16": "tdpfp16ps"}[self._element]
                self.emit(product, tile, 4 + tile // 2, 6 + tile % 2)


def _pair_at(k0: Index, step: Index, pair: Index) -> Index:
    """The first of two elements of K that stand side by side, of a block that begins with element k0."""
    return k0 + (step * STEP + pair * 2)


def _copy_panel(
    em: Emitter,
    tiles: NarrowTiles,
    data: Value,
    base: Index,
    place: tuple[Index, int],
    ks: tuple[Index, Index],
    ahead: int,
) -> None:
    """Elements `ks` of a panel from byte `base` on, in pairs, fetched so many bytes ahead."""
    k, line, words = tiles.k, 2 * PANEL_ROWS, vec(2 * SIDE, "i16")
    assert isinstance(k, int)
    k0, k1 = ks
    length = k1 - k0
    main = length // STEP

    def address(step: Index, pair: Index) -> Index:
        return base + _pair_at(k0, step, pair) * line

    def keep(elements: Value, step: Index, pair: Index) -> None:
        values = em.bitcast(elements, words)
        tiles.store_pair(em.shuffle(values, values, PAIRS), place, step, pair)

    with em.loop(0, main, hint="step") as step:
        for number in range(SIDE):
            at = address(step.iv, number)
            if ahead:
                em.prefetch(data, [at + ahead])
            keep(em.vload(data, [at], vec(2 * line, "i8")), step.iv, number)
    if k % STEP:
        with em.loop(main, em.iceildiv(length, STEP), hint="step") as step, em.loop(0, SIDE, hint="pair") as pair:
            left = k1 - _pair_at(k0, step.iv, pair.iv)
            mask = em.mask(em.imax(left, 0) * line, 2 * line)
            keep(em.vload(data, [address(step.iv, pair.iv)], vec(2 * line, "i8"), mask), step.iv, pair.iv)


def copy_pairs(
    em: Emitter,
    tiles: NarrowTiles,
    weight: Matrix,
    column: Index,
    place: tuple[Index, int],
    ks: tuple[Index, Index],
    *,
    transpose_rhs: bool,
) -> None:
    """16 columns of a matrix [K, N], or 16 rows of one [N, K], in pairs; columns beyond N repeat one, or are 0.

    ks: the elements of K; zeros follow until a step is full.
    """
    element = element_of(weight.data.type)
    k0, k1 = ks
    steps = em.iceildiv(k1 - k0, STEP)
    if transpose_rhs:
        stored = vec(STEP, element)
        last = weight.n - 1
        lines = [weight.base + em.imin(column + i, last) for i in range(SIDE)]
        with em.loop(0, steps, hint="step") as step:
            k: Index = k0 + step.iv * STEP
            mask = em.mask(k1 - k, STEP)
            square = [em.vload(weight.data, [line, k], stored, mask) for line in lines]
            dwords = transpose(em, [em.bitcast(row, vec(SIDE, "i32")) for row in square])
            for i, words in enumerate(dwords):
                tiles.store_pair(em.bitcast(words, vec(2 * SIDE, "i16")), place, step.iv, i)
        return
    own = em.imax(weight.n - column, 0)
    stored = vec(SIDE, element)
    columns = em.mask(own, SIDE)

    def elements(k: Index, mask: Value) -> Value:
        row = em.vload(weight.data, [weight.base + k, column], stored, mask)
        return em.bitcast(row, vec(SIDE, "i16"))

    main = (k1 - k0) // STEP
    with em.loop(0, main, hint="step") as step:
        for number in range(SIDE):
            k = _pair_at(k0, step.iv, number)
            values = [elements(k + i, columns) for i in range(2)]
            tiles.store_pair(em.shuffle(values[0], values[1], PAIRS), place, step.iv, number)
    if not isinstance(tiles.k, int) or tiles.k % STEP:
        with em.loop(main, steps, hint="step") as step, em.loop(0, SIDE, hint="pair") as pair:
            k = _pair_at(k0, step.iv, pair.iv)
            values = []
            for i in range(2):
                inside = em.cmpi("slt", k + i, k1)
                mask = em.mask(em.select(inside, own, 0), SIDE)
                values.append(elements(k + i, mask))
            tiles.store_pair(em.shuffle(values[0], values[1], PAIRS), place, step.iv, pair.iv)


def _configure(name: str, spec: ProductSpec, target: Target) -> Product | None:
    product = panel_product(spec, "dequant_matmul")
    takes = target.tiles(spec.element) and not are_single_rows(spec.x) and spec.element == spec.scheme
    return product if takes else None


GENERATORS = (
    Generator(
        GEMM_AMX,
        "gemm",
        _configure,
        lambda name, product, target: gemm_amx(target, product),
        knobs=SHARED,
        candidates={"prefill": [{"amx": 0}, {"prefetch": 0}, {"prefetch": 2048}, {"prefetch": 4096}]},
    ),
)
