# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How threads share the work of a product of few rows (`codegen.gpu.gemv`): pure functions of sizes and chip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rlx_mlir.chips import sm_version
from rlx_mlir.codegen.gpu.gemm_config import resources
from rlx_mlir.errors import InputError
from rlx_mlir.tuning.choices import NOTHING_CHOSEN, Chosen

#: Rows of x that one pass over the weights serves at most.
MAX_TILE = 8
#: Lanes that may share a row of weights, widest first.
LANES = (32, 16, 8)
#: Sums that a thread holds at most: they are registers.
MAX_SUMS = 16
#: Bytes of weights that should be on their way to each multiprocessor.
IN_FLIGHT = 40 << 10
#: Bytes of the persistent form's shared memory besides ring and x: barriers, and the alignment of what is aligned.
RESERVED = 2 << 10
#: Slots of the ring at most.
MAX_SLOTS = 64
#: Rows of the weights for a lane, and warps of a block, that may be chosen.
ROWS, WARPS = (1, 2, 4, 8, 16), (1, 2, 4, 8, 12, 16)


@dataclass(frozen=True)
class GemvConfig:
    """How threads share the work.

    Attributes:
        tile: rows of x that are worked on at one time.
        lanes: neighbouring lanes of a warp that share a row of weights, 8, 16 or 32.
        rows: rows of weights that a lane works on at one time.
        unroll: pieces of each row that a lane loads before it computes.
        warps: warps of a block that compute.
        split: warps that share a row; more than one only if all lanes share it too.
        slots: buffers of the ring that a further warp fills with rows; 0 where warps load rows by themselves.
    """

    tile: int = 1
    lanes: int = 32
    rows: int = 1
    unroll: int = 2
    warps: int = 4
    split: int = 1
    slots: int = 0

    def __post_init__(self) -> None:
        if self.lanes not in LANES or (self.slots and self.slots < self.warps):
            raise ValueError(f"{self}: expects lanes in {LANES}, and a slot for each warp")
        if self.warps % self.split or (self.split > 1 and self.lanes < 32):
            raise ValueError(f"{self}: expects 'split' to divide 'warps', and whole warps for each row")

    @property
    def warp_rows(self) -> int:
        """Rows of weights that a warp works on at one time."""
        return 32 // self.lanes * self.rows

    @property
    def block_rows(self) -> int:
        """Rows of weights that a block works on at one time."""
        return self.warps // self.split * self.warp_rows


@dataclass(frozen=True)
class Work:
    """Sizes that a choice depends on.

    Attributes:
        n: rows of each weight.
        units: pieces of a row, each for one lane.
        row_bytes: of a row of weights.
        weights: weights that share x.
        tile: rows of x that are worked on at one time.
        x_bytes: of one row of x with its scales and sums.
    """

    n: int
    units: int
    row_bytes: int
    weights: int
    tile: int
    x_bytes: int


def tiles(m: int | None) -> tuple[int, ...]:
    """The tiles for which there are kernels: for a static m one of just its rows, else one for each range of sizes."""
    if m is None:
        return (1, 4, MAX_TILE)
    return (min(max(m, 1), MAX_TILE),)


def ranges(m: int | None) -> dict[int, tuple[int, int | None]]:
    """For each of the `tiles`, the rows that it serves: more than the first number, up to the second."""
    if m is not None:
        return {tile: (max(m, 1) - 1, max(m, 1)) for tile in tiles(m)}
    found = tiles(m)
    return dict(zip(found, zip((0, *found[:-1]), (*found[:-1], None), strict=True), strict=True))


def _lanes(units: int, most: int = 32) -> int:
    """The lanes for a row of so many pieces: those that idle least, the more the better."""

    def waste(lanes: int) -> float:
        return -(-units // lanes) * lanes / units

    allowed = [lanes for lanes in LANES if lanes <= most]
    return min(allowed, key=lambda lanes: (round(waste(lanes), 1), -lanes))


def _unroll(rows: int, work: Work) -> int:
    """Units of each row that a lane loads at a time: four loads are under way, where sums leave registers for it."""
    if rows * work.weights * work.tile >= MAX_SUMS:
        return 1
    return 4 if rows * work.weights == 1 else 2


def choose_portable(work: Work, chip: str) -> GemvConfig:
    """Warps that load rows by themselves: enough of them to fill the chip, then several rows for each."""
    processors = resources(chip).processors
    lanes = _lanes(work.units)
    sums = work.weights * work.tile
    groups = work.n * lanes / 32  # warps, if each lane has one row
    rows = 2 if groups >= 2 * 16 * processors and 2 * sums <= MAX_SUMS else 1
    steps = -(-work.units // lanes)
    split = 1
    while lanes == 32 and split < 4 and groups * split < 8 * processors and steps >= 4 * split:
        split *= 2
    unroll = max(1, min(steps // split, _unroll(rows, work)))
    return GemvConfig(work.tile, lanes, rows, unroll, 4, split)


def choose_persistent(work: Work, chip: str) -> GemvConfig | None:
    """A ring of rows in shared memory for each multiprocessor; None where rows or x are too long for it.

    Chips of sm_120 and sm_121 have too many numbers of multiprocessors for a grid of just as many blocks.
    """
    if not 90 <= sm_version(chip) < 120 or work.row_bytes % 16:
        return None
    chosen = resources(chip)
    memory = _ring_bytes(work, chip)
    per_processor = work.n // chosen.processors
    lanes = _lanes(work.units)
    # A slot holds the rows of one turn of a warp, at least a few KiB, as copies have a cost of their own.
    rows = 1
    while (
        2 * rows * work.weights * work.tile <= MAX_SUMS
        and 32 // lanes * rows * work.row_bytes * work.weights < 4 << 10
        and 32 // lanes * rows * 16 <= per_processor
    ):
        rows *= 2
    if 32 // lanes * rows > work.n:
        return None
    slot = _slot_bytes(work, lanes, rows)
    unroll = max(1, min(-(-work.units // lanes), _unroll(rows, work)))
    for warps in (12, 8, 4):
        turns = -(-work.n // (32 // lanes * rows * chosen.processors))
        slots = min(memory // slot, MAX_SLOTS, max(turns, warps))
        # What warps work on isn't on its way.
        if slots >= warps and (slots - warps) * slot >= min(IN_FLIGHT, (turns - warps) * slot):
            return GemvConfig(work.tile, lanes, rows, unroll, warps, 1, slots)
    return None


def _ring_bytes(work: Work, chip: str) -> int:
    """Bytes that the ring may have."""
    return (resources(chip).block_kib << 10) - RESERVED - work.tile * (work.x_bytes + 128)


def _slot_bytes(work: Work, lanes: int, rows: int) -> int:
    """Bytes of a slot: the rows of one turn of a warp."""
    return 32 // lanes * rows * work.row_bytes * work.weights


def choose(
    work: Work,
    chip: str,
    *,
    aligned: bool = True,
    choices: Chosen = NOTHING_CHOSEN,
    above: int = 0,
    limit: int | None = None,
) -> GemvConfig:
    """How threads share the work, by rule or as it was chosen.

    Args:
        aligned: whether rows of x can be copied in bulk, which the ring needs.
        choices: for more than `above` and up to `limit` rows of x.
    """
    ring = choose_persistent(work, chip) if aligned else None
    slots = choices.take("gemv_slots", range(MAX_SLOTS + 1) if ring else (0,), above=above, limit=limit)
    own = choose_portable(work, chip) if ring is None or slots == 0 else ring
    fitting = [rows for rows in ROWS if rows == 1 or rows * work.weights * work.tile <= MAX_SUMS]
    rows = choices.take("gemv_rows", fitting, above=above, limit=limit) or own.rows
    warps = choices.take("gemv_warps", [w for w in WARPS if w % own.split == 0], above=above, limit=limit) or own.warps
    if (rows, warps, slots or own.slots) == (own.rows, own.warps, own.slots):
        return own
    if not own.slots:
        return replace(own, rows=rows, warps=warps)
    room = min(_ring_bytes(work, chip) // _slot_bytes(work, own.lanes, rows), MAX_SLOTS)
    count = slots or max(warps, min(room, own.slots * own.rows // rows))
    if not warps <= count <= room or 32 // own.lanes * rows > work.n:
        choices.refuse(
            "gemv_slots",
            count,
            f"from {warps} slots, one for each warp, to the {room} of {rows} rows a lane that fit",
        )
    return replace(own, rows=rows, warps=warps, slots=count)


def candidates(work: Work, chip: str, *, aligned: bool = True) -> Iterator[dict[str, int]]:
    """Choices that are worth a measurement, beside the rule's."""
    own = choose(work, chip, aligned=aligned)
    options = [{"gemv_warps": warps} for warps in (4, 8, 12, 16)] + [{"gemv_rows": rows} for rows in (1, 2, 4)]
    if own.slots:
        options += [{"gemv_slots": 0}, {"gemv_slots": max(own.warps, own.slots // 2)}]
    for option in options:
        try:
            found = choose(work, chip, aligned=aligned, choices=Chosen(values=option))
        except InputError:
            continue
        if found != own:
            yield option
