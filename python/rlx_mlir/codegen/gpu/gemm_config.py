# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of matrix products on GPUs, and which of them a product takes: pure functions of sizes and chip."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rlx_mlir.tuning.choices import NOTHING_CHOSEN, Chosen


@dataclass(frozen=True)
class Tile:
    """What one block of threads computes, and how.

    Attributes:
        bm, bn: rows and columns of the output (of each product, where several share x).
        bk: elements of K that one stage of the ring holds.
        wm, wn: rows and columns that one warp computes.
        stages: buffers of the ring: loads of stages - 1 steps are under way.
        group: tiles of rows that are swept together, so that a wave of blocks shares columns in L2.
        rate: products per clock relative to the best tile, for `choose`.
        least: columns of a warp below which the tile isn't cut for several products.
    """

    bm: int
    bn: int
    bk: int
    wm: int
    wn: int
    stages: int = 3
    group: int = 8
    rate: float = 1.0
    least: int = 16

    def __post_init__(self) -> None:
        if self.bm % self.wm or self.bn % self.wn or self.stages < 2:
            raise ValueError(f"tile {self}: warps have to divide it, and the ring needs two stages")

    @property
    def warps(self) -> int:
        return (self.bm // self.wm) * (self.bn // self.wn)

    @property
    def threads(self) -> int:
        return 32 * self.warps


@dataclass(frozen=True)
class Choice:
    """A tile, and in how many parts the blocks cut K; more than one needs a second kernel that adds them up."""

    tile: Tile
    splits: int = 1


@dataclass(frozen=True)
class Resources:
    """What a chip has: multiprocessors, and KiB of shared memory that a block, and a multiprocessor, can use."""

    processors: int
    block_kib: int
    processor_kib: int


_RESOURCES = {
    "sm_80": Resources(108, 163, 164),
    "sm_86": Resources(84, 99, 100),
    "sm_87": Resources(16, 163, 164),
    "sm_89": Resources(128, 99, 100),
    "sm_90": Resources(132, 227, 228),
    "sm_100": Resources(148, 227, 228),
    "sm_103": Resources(152, 227, 228),
    "sm_120": Resources(170, 99, 100),
    "sm_121": Resources(48, 99, 100),
}


def resources(chip: str) -> Resources:
    """The resources of a chip, which may end in `a`; those of its largest product."""
    return _RESOURCES[chip.rstrip("a")]


MMA_TILES = (
    Tile(128, 128, 32, 64, 64, stages=4),
    Tile(128, 64, 32, 64, 32, stages=4, rate=0.85),
    Tile(64, 64, 64, 32, 32, stages=3, rate=0.7),
    Tile(32, 64, 64, 16, 32, stages=4, rate=0.45),
    Tile(16, 64, 128, 16, 16, stages=4, rate=0.3),
)
"""Of products of halves by mma.sync, largest first."""

TF32_TILES = tuple(replace(tile, bk=tile.bk // 2) for tile in MMA_TILES)
"""The same of f32 rounded to tf32."""

FMA_TILES = (
    Tile(128, 128, 16, 32, 64, stages=3, least=32),
    Tile(64, 64, 16, 32, 32, stages=3, rate=0.8, least=32),
    Tile(32, 64, 16, 16, 32, stages=3, rate=0.5, least=32),
)
"""Of products of f32 by FMA."""

DECODE_FMA_TILES = (
    Tile(128, 128, 32, 32, 64, stages=2, least=32),
    Tile(64, 64, 32, 32, 32, stages=2, rate=0.8, least=32),
    Tile(32, 64, 32, 16, 32, stages=2, rate=0.5, least=32),
)
"""Of products of f32 with packed weights, whose runs of 32 elements are decoded together."""

QUANT_TILES = (
    Tile(128, 128, 64, 64, 32, stages=3),
    Tile(128, 64, 64, 32, 32, stages=3, rate=0.9),
    Tile(64, 64, 64, 32, 32, stages=3, rate=0.8),
    Tile(32, 64, 64, 16, 32, stages=3, rate=0.5),
    Tile(16, 64, 64, 16, 16, stages=3, rate=0.3),
)
"""Of integer products with packed weights."""


EXACT_TILES = (
    Tile(128, 128, 32, 64, 32, stages=4),
    Tile(128, 64, 32, 32, 32, stages=4, rate=0.85),
    *MMA_TILES[2:],
)
"""Of products of halves with packed weights, whose sums of a run need registers beside the accumulators."""


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


MIN_STEPS = 4
"""Steps of the ring below which cutting K further costs more than it gives."""


MOST_SPLITS = 16
"""Parts of K at most."""


@dataclass(frozen=True)
class Sizes:
    """A product [m, k] times `products` weights [k, n], `batch` times."""

    m: int
    n: int
    k: int
    products: int = 1
    batch: int = 1


def time(choice: Choice, sizes: Sizes, processors: int) -> float:
    """What a choice should take, in some unit: waves of blocks, each as long as its work."""
    tile, parts = choice.tile, choice.splits
    blocks = _ceil(sizes.m, tile.bm) * _ceil(sizes.n, tile.bn) * sizes.batch
    waves = _ceil(blocks * parts, processors)
    steps = max(1, _ceil(sizes.k, tile.bk))
    work = tile.bm * tile.bn * sizes.products * _ceil(steps, parts) * tile.bk / tile.rate
    # Adding up parts writes and reads them once more: some hundred operations for an element's transfer.
    extra = 200.0 * sizes.m * sizes.n * sizes.products * sizes.batch * parts / processors if parts > 1 else 0.0
    return waves * work + extra


def _by_rule(tile: Tile, sizes: Sizes, processors: int, *, splits: bool) -> Choice:
    """A tile with as many parts of K as fill the chip."""
    blocks = _ceil(sizes.m, tile.bm) * _ceil(sizes.n, tile.bn) * sizes.batch
    parts = 1
    if splits and blocks < processors:
        steps = max(1, _ceil(sizes.k, tile.bk))
        parts = max(1, min(processors // max(blocks, 1), steps // MIN_STEPS, MOST_SPLITS))
    return Choice(tile, parts)


def fitted(tiles: Sequence[Tile], products: int) -> list[Tile]:
    """The tiles for so many products, those whose sums fit."""
    fits = [tile for tile in tiles if _sums(for_products(tile, products), products) <= MOST_SUMS]
    return [for_products(tile, products) for tile in fits or tiles[-1:]]


def _least(sizes: Sizes, tiles: Sequence[Tile], chip: str, *, splits: bool) -> Choice:
    processors = resources(chip).processors
    options = [_by_rule(tile, sizes, processors, splits=splits) for tile in tiles]
    return min(options, key=lambda option: time(option, sizes, processors))


def _chosen(
    choices: Chosen, above: int, limit: int | None, sizes: Sizes, tiles: Sequence[Tile], chip: str, *, splits: bool
) -> Choice:
    """The best of what choices leave, for more than `above` and up to `limit` rows; by rule where there are none."""
    left = fitted(tiles, sizes.products)
    for name, size in (("tile_rows", "bm"), ("tile_columns", "bn")):
        value = choices.take(name, sorted({getattr(tile, size) for tile in left}), above=above, limit=limit)
        left = [tile for tile in left if value is None or getattr(tile, size) == value]
    found = _least(sizes, left, chip, splits=splits)
    most = max(1, min(MOST_SPLITS, _ceil(sizes.k, found.tile.bk)))
    parts = choices.take("split", range(1, most + 1), above=above, limit=limit)
    stages = choices.take("stages", above=above, limit=limit) or found.tile.stages
    sweep = choices.take("sweep", above=above, limit=limit) or found.tile.group
    return Choice(replace(found.tile, stages=stages, group=sweep), parts or found.splits)


def candidates(sizes: Sizes, tiles: Sequence[Tile], chip: str, most: int = 6) -> Iterator[dict[str, int]]:
    """Choices that are worth a measurement, beside the rule's: first those that should take least time."""
    processors = resources(chip).processors
    own = _least(sizes, fitted(tiles, sizes.products), chip, splits=True)
    options = []
    for tile in fitted(tiles, sizes.products):
        rule = _by_rule(tile, sizes, processors, splits=True).splits
        steps = max(1, _ceil(sizes.k, tile.bk))
        for parts in sorted({1, rule, max(1, rule // 2), 2 * rule}):
            if parts <= min(MOST_SPLITS, steps) and (tile, parts) != (own.tile, own.splits):
                options.append(Choice(tile, parts))
    options.sort(key=lambda option: time(option, sizes, processors))
    for option in options[: most - 2]:
        yield {"tile_rows": option.tile.bm, "tile_columns": option.tile.bn, "split": option.splits}
    if own.tile.stages > 2:
        yield {"stages": own.tile.stages - 1}
    yield {"sweep": 1 if own.tile.group > 1 else 8}


MOST_SUMS = 128
"""Accumulators of a thread, beyond which registers wouldn't hold them."""


def for_products(tile: Tile, products: int) -> Tile:
    """The tile for several products at once: as many accumulators, so fewer columns of each."""
    cut = 1 << (products - 1).bit_length()
    if tile.wn < tile.least * cut:
        return tile
    return replace(tile, bn=tile.bn // cut, wn=tile.wn // cut)


def _sums(tile: Tile, products: int) -> int:
    """Accumulators of a thread."""
    return tile.wm * tile.wn * products // 32


ROW_STEPS = (16, 64, 256)
"""Numbers of rows up to which kernels of a dynamic number of rows have a tile of their own."""


MANY_ROWS = 2048
"""What any number of rows, beyond the last step, is taken to be."""


AnyChoice = TypeVar("AnyChoice")


def by_ranges(
    m: int | None, limits: Sequence[int], best: Callable[[int, int | None], AnyChoice]
) -> list[tuple[int | None, AnyChoice]]:
    """(limit, choice) by rising limits: the choice for products of up to so many rows; None stands for any number.

    A static number of rows has one choice. For a dynamic one, neighbours that agree are one.

    Args:
        best: the choice for more rows than the first number, up to the second.
    """
    if m is not None:
        return [(None, best(m - 1, m))]
    result: list[tuple[int | None, AnyChoice]] = []
    for above, limit in zip((0, *limits), (*limits, None), strict=True):
        choice = best(above, limit)
        if result and result[-1][1] == choice:
            result.pop()
        result.append((limit, choice))
    return result


def choose_by_rows(
    m: int | None,
    n: int,
    k: int,
    tiles: Sequence[Tile],
    chip: str,
    *,
    products: int = 1,
    batch: int = 1,
    choices: Chosen = NOTHING_CHOSEN,
) -> list[tuple[int | None, Choice]]:
    """What `by_ranges` gives of m rows; measured choices come before the rule."""

    def best(above: int, limit: int | None) -> Choice:
        sizes = Sizes(MANY_ROWS if limit is None else limit, n, k, products, batch)
        return _chosen(choices, above, limit, sizes, tiles, chip, splits=limit is not None)

    return by_ranges(m, ROW_STEPS, best)
