# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of matrix products by wgmma, and which of them a product takes: pure functions of sizes and chip.

The times are those of one H100 (132 multiprocessors, bf16), from which the model below follows; other sizes are
estimates. A wave of blocks takes as long as its slowest, so a tile that divides the work evenly may beat a faster one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rlx_mlir.codegen.gpu.gemm_config import Sizes, by_ranges
from rlx_mlir.tuning.choices import NOTHING_CHOSEN, Chosen

STEP_BYTES = 128
"""Bytes of K in one stage: a row of the swizzled layout."""
K_STEP = STEP_BYTES // 2
"""The same in elements of 16 bits, in which the K of the functions below counts: twice as many are of 8 bits."""
SHARED_BYTES = 232_448
"""Shared memory that a block may have."""
BARRIER_BYTES = 1024
"""Room for the barriers behind the staged outputs."""
MAX_STAGES = 12
ACCUMULATORS = 256
"""Columns of accumulators, times blocks of 64 rows, that a consumer has registers for."""
PROMOTED_ACCUMULATORS = 192
"""The same where it keeps the sums of a stage beside those of all."""
MIN_COLUMNS = 64
"""Columns of a tile whose output rows are stored in boxes of 128 bytes."""


@dataclass(frozen=True)
class Tile:
    """What one block of threads computes at a time, for each of the products that share x.

    The left operand gives the 64 rows of a wgmma instruction, the right one its columns. They are x and the weight;
    `swapped` exchanges them, so that few rows of x are few columns of the instruction, and outputs are transposed.

    Attributes:
        consumers: warpgroups that multiply, 1 or 2; one more warpgroup loads.
        blocks: blocks of 64 rows of each consumer.
        columns: of one product's accumulators, a multiple of 16.
        boxes: boxes of 64 columns that a consumer stages at once for its stores.
        group: tiles of rows that are swept together, so that a wave of blocks shares columns in L2.
        step: microseconds of one step along K, operands in L2.
    """

    consumers: int
    blocks: int
    columns: int
    boxes: int = 2
    group: int = 8
    swapped: bool = False
    step: float = 1.0

    def __post_init__(self) -> None:
        if self.consumers not in (1, 2) or self.columns % 16 or not 16 <= self.columns <= 256:
            raise ValueError(f"tile {self}: expects 1 or 2 consumers, and a multiple of 16 columns up to 256")
        if self.blocks * self.columns > ACCUMULATORS or self.blocks < 1 or self.boxes < 1:
            raise ValueError(f"tile {self}: accumulators are {self.blocks * self.columns}, at most {ACCUMULATORS} fit")
        if not self.swapped and self.columns < MIN_COLUMNS:
            raise ValueError(f"tile {self}: expects at least {MIN_COLUMNS} columns, where operands aren't swapped")

    @property
    def rows(self) -> int:
        """Rows of the left operand."""
        return 64 * self.consumers * self.blocks

    @property
    def threads(self) -> int:
        return 128 * (self.consumers + 1)

    @property
    def out_rows(self) -> int:
        """Rows of the output."""
        return self.columns if self.swapped else self.rows

    @property
    def out_columns(self) -> int:
        """Columns of the output."""
        return self.rows if self.swapped else self.columns

    def shared_by(self, products: int) -> Tile | None:
        """The tile for several products of one x: fewer columns of each; None where their accumulators don't fit."""
        if products == 1:
            return self
        columns = self.columns
        if not self.swapped:
            columns = max(MIN_COLUMNS, self.columns // products // 16 * 16)
        if self.blocks * columns * products > ACCUMULATORS:
            return None
        return replace(self, columns=columns, step=self.step * columns * products / self.columns)


@dataclass(frozen=True)
class Layout:
    """Where things lie in the shared memory of a block: stages, staged outputs, barriers. Sizes are in bytes.

    products: right operands (left ones, where swapped). n_major: whether the weight is stored [K, N]. outputs: those
    that are staged, none where parts of K go to memory.
    """

    tile: Tile
    products: int = 1
    n_major: bool = False
    outputs: int = 1

    @property
    def left_bytes(self) -> int:
        """One left operand of a stage."""
        return self.tile.rows * STEP_BYTES

    @property
    def right_bytes(self) -> int:
        """One right operand of a stage."""
        return self.tile.columns * STEP_BYTES

    @property
    def span(self) -> int:
        """Bytes along N of a box of weights [K, N], and of its swizzle: the widest of which the tile has whole ones.

        A matrix of wgmma that lies along N is made of whole boxes by its definition.
        """
        columns = self.tile.out_columns
        return next(span for span in (128, 64, 32) if 2 * columns % span == 0)

    @property
    def lefts(self) -> int:
        return self.products if self.tile.swapped else 1

    @property
    def rights(self) -> int:
        return 1 if self.tile.swapped else self.products

    @property
    def stage_bytes(self) -> int:
        return self.lefts * self.left_bytes + self.rights * self.right_bytes

    @property
    def box_bytes(self) -> int:
        """One staged box of outputs: rows of 128 bytes."""
        return 128 * (self.tile.columns if self.tile.swapped else 64)

    @property
    def staged_boxes(self) -> int:
        """Boxes that a consumer stages at once: at least one of each output."""
        if self.outputs == 0:
            return 0
        return self.outputs if self.tile.swapped else max(self.tile.boxes, self.outputs)

    @property
    def staged_bytes(self) -> int:
        """Staged outputs of one consumer."""
        return self.box_bytes * self.staged_boxes

    @property
    def stages(self) -> int:
        """As many as fit."""
        rest = SHARED_BYTES - BARRIER_BYTES - self.tile.consumers * self.staged_bytes
        return min(MAX_STAGES, rest // self.stage_bytes)

    @property
    def staged_at(self) -> int:
        return self.stages * self.stage_bytes

    @property
    def barriers_at(self) -> int:
        return self.staged_at + self.tile.consumers * self.staged_bytes

    @property
    def bytes(self) -> int:
        return self.barriers_at + 16 * self.stages


TILES = (
    Tile(2, 1, 256, step=0.650),
    Tile(2, 2, 128, group=4, step=0.652),
    Tile(2, 1, 224, boxes=2, step=0.575),
    Tile(2, 1, 192, boxes=1, step=0.500),
    Tile(2, 1, 128, step=0.338),
    Tile(1, 1, 128, step=0.190),
    Tile(1, 1, 64, boxes=1, step=0.115),
    Tile(1, 1, 16, group=1, swapped=True, step=0.080),
)
"""The tiles that products choose among."""

DYNAMIC_TILES = tuple(
    tile for tile in TILES if (tile.consumers, tile.blocks, tile.columns) not in ((2, 1, 224), (2, 2, 128))
)
"""The tiles of products with a dynamic number of rows: each one chosen is a kernel to compile."""

LAUNCH = 3.0
"""Microseconds from a launch to the first step."""
DRAIN = 1.5
"""Microseconds of filling the ring and storing the outputs of a tile of 128 x 256."""
DRAM = 3.0e6
"""Bytes in a microsecond from memory."""
PER_BLOCK = 36e3
"""Bytes in a microsecond that one block can have under way."""
REDUCTION = 2.5
"""Microseconds of the second kernel that adds up parts of K."""
SPLITS = (1, 2, 3, 4, 6, 8)
MIN_STEPS = 8
"""Steps of each part of K below which more parts don't pay."""


@dataclass(frozen=True)
class Choice:
    """A tile, and in how many parts blocks cut K; more than one needs a second kernel that adds them up."""

    tile: Tile
    splits: int = 1


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _blocks(tile: Tile, sizes: Sizes) -> int:
    return _ceil(sizes.m, tile.out_rows) * _ceil(sizes.n, tile.out_columns) * sizes.batch


def microseconds(choice: Choice, sizes: Sizes, processors: int) -> float:
    """The estimated time of a product, by a tile fitted to it."""
    tile, splits = choice.tile, choice.splits
    m, n, k, products, batch = sizes.m, sizes.n, sizes.k, sizes.products, sizes.batch
    blocks = _blocks(tile, sizes) * splits
    waves = _ceil(blocks, processors)
    steps = _ceil(_ceil(k, K_STEP), splits)
    read = 2.0 * batch * (m * k + products * n * k)
    written = 2.0 * batch * products * m * n
    # Beyond some 100 MB, tiles that reuse less of what they load wait for L2 and memory.
    columns = tile.columns * products
    reuse = tile.rows * columns / (tile.rows + columns)
    far = min(max((read + written) / 1e6 - 100.0, 0.0), 400.0)
    slower = 1.0 + 0.00091 * far * max(0.0, (85.3 - reuse) / (85.3 - 64.0))
    multiply = waves * steps * tile.step * slower
    memory = (read + written) / min(DRAM, PER_BLOCK * min(blocks, processors))
    drain = waves * DRAIN * tile.rows * columns / (128 * 256)
    total = LAUNCH + drain + max(multiply, memory)
    if splits > 1:
        # Parts are written in f32, and read again.
        total += REDUCTION + 3 * 2 * written * splits / DRAM
    return total


def _shared(tiles: Sequence[Tile], sizes: Sizes) -> list[Tile]:
    """The tiles as the products of one x share them, those that have accumulators for all.

    Raises ValueError where none has.
    """
    found = [tile for whole in tiles if (tile := whole.shared_by(sizes.products)) is not None]
    if not found:
        raise ValueError(f"no tile has accumulators for {sizes.products} products")
    return found


def _splits(tile: Tile, sizes: Sizes, processors: int, *, split: bool) -> Iterator[Choice]:
    """A tile with each number of parts of K that may pay."""
    blocks = _blocks(tile, sizes)
    for splits in SPLITS:
        fits = blocks * splits <= processors and _ceil(sizes.k, K_STEP) >= MIN_STEPS * splits
        if splits == 1 or (split and fits):
            yield Choice(tile, splits)


def choose(sizes: Sizes, processors: int = 132, *, tiles: Sequence[Tile] = TILES, split: bool = True) -> Choice:
    """The tile and the cut of K that should take least time for a product; sizes are at least 1.

    split: whether K may be cut. Raises ValueError where no tile has accumulators for so many products.
    """
    # Swapped operands were faster only where they let K be cut for idle multiprocessors.
    left = [
        tile
        for tile in _shared(tiles, sizes)
        if not tile.swapped or (_blocks(tile, sizes) < processors and sizes.m <= tile.columns)
    ]
    return _least(left, sizes, processors, split=split)


def _least(tiles: Sequence[Tile], sizes: Sizes, processors: int, *, split: bool) -> Choice:
    found = (own for tile in tiles for own in _splits(tile, sizes, processors, split=split))
    return min(found, key=lambda choice: microseconds(choice, sizes, processors))


MOST_SPLITS = 16
"""Parts of K that may be chosen at most."""


def _chosen(
    choices: Chosen,
    above: int,
    limit: int | None,
    sizes: Sizes,
    processors: int,
    *,
    tiles: Sequence[Tile],
    every: Sequence[Tile],
    split: bool,
) -> Choice:
    """The best of what choices leave, for more than `above` and up to `limit` rows; by rule where there are none.

    A chosen tile may be any of `every`, those included that the rule wouldn't take for such sizes.
    """
    left = _shared(every, sizes)
    rows = choices.take("tile_rows", sorted({tile.out_rows for tile in left}), above=above, limit=limit)
    left = [tile for tile in left if rows in (None, tile.out_rows)]
    columns = choices.take("tile_columns", sorted({tile.out_columns for tile in left}), above=above, limit=limit)
    left = [tile for tile in left if columns in (None, tile.out_columns)]
    if rows is None and columns is None:
        found = choose(sizes, processors, tiles=tiles, split=split)
    else:
        found = _least(left, sizes, processors, split=split)
    most = min(MOST_SPLITS, _ceil(sizes.k, K_STEP)) if split else 1
    splits = choices.take("split", range(1, most + 1), above=above, limit=limit)
    sweep = choices.take("sweep", above=above, limit=limit)
    tile = found.tile if sweep is None else replace(found.tile, group=sweep)
    return Choice(tile, splits or found.splits)


def _fitting(tiles: Sequence[Tile], accumulators: int) -> list[Tile]:
    """The tiles that have at most so many."""
    return [tile for tile in tiles if tile.blocks * tile.columns <= accumulators]


def candidates(
    sizes: Sizes, processors: int, *, split: bool = True, accumulators: int = ACCUMULATORS, most: int = 7
) -> Iterator[dict[str, int]]:
    """Choices that are worth a measurement, beside the rule's: first those that should take least time."""
    every = _fitting(TILES, accumulators)
    own = choose(sizes, processors, tiles=every, split=split)
    found = [
        choice
        for tile in _shared(every, sizes)
        if not tile.swapped or sizes.m <= 4 * tile.columns
        for choice in _splits(tile, sizes, processors, split=split)
        if choice != own
    ]
    found.sort(key=lambda choice: microseconds(choice, sizes, processors))
    for choice in found[: most - 1]:
        more = {"split": choice.splits} if split else {}
        yield {"tile_rows": choice.tile.out_rows, "tile_columns": choice.tile.out_columns, **more}
    yield {"sweep": 1 if own.tile.group > 1 else 8}


ROW_LIMITS = (16, 64, 128, 256, 512, 1024)
"""Numbers of rows up to which products with a dynamic number of rows choose; beyond the last, as for 4096."""
MANY_ROWS = 4096


def choose_by_rows(
    m: int | None,
    n: int,
    k: int,
    *,
    processors: int = 132,
    batch: int = 1,
    products: int = 1,
    split: bool = True,
    accumulators: int = ACCUMULATORS,
    choices: Chosen = NOTHING_CHOSEN,
) -> list[tuple[int | None, Choice]]:
    """What `by_ranges` gives of m rows; measured choices come before the rule.

    Tiles have at most so many `accumulators`.
    """
    every = _fitting(TILES, accumulators)
    tiles = every if m is not None else _fitting(DYNAMIC_TILES, accumulators)

    def best(above: int, limit: int | None) -> Choice:
        sizes = Sizes(MANY_ROWS if limit is None else limit, n, k, products, batch)
        return _chosen(choices, above, limit, sizes, processors, tiles=tiles, every=every, split=split)

    return by_ranges(m, ROW_LIMITS, best)
