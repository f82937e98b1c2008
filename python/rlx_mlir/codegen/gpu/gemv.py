# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of few rows with rows of weights: bound by reading the weights, each of which is read once.

The rows of x that are served at one time, the tile, are at most 8; more are served in turns. A row of weights is shared
by the lanes of a warp, or of a part of one, or by several warps; each lane takes one unit of it after the other
(`codegen.gpu.gemv_rows`), and the lanes' sums are joined by shuffles. Then one lane for each output runs the program.

Forms:

- Portable: warps load rows from global memory by themselves.
- Persistent (`codegen.gpu.gemv_ring`): a block for each multiprocessor; one warp fills a ring of rows in shared memory
  by bulk copies, the others take slots of it in turn. Where weights are fixed, copies start before the kernels before
  have ended, and only x waits for them.
- Dense weights [K, N] (`codegen.gpu.gemv_columns`).

Weights in planes with x in f32, f16 or bf16 are decoded exactly; with x quantised (`mir.block_quantize`) products are
those of bytes, with the meaning of `mir.block_dot`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlx_mlir.codegen.gpu.emit import BITS, DeviceEmitter, Index, Value
from rlx_mlir.codegen.gpu.gemm_config import resources
from rlx_mlir.codegen.gpu.gemv_columns import (
    ColumnsConfig,
    choose_columns,
    columns_bytes,
    emit_columns,
    splits_of,
)
from rlx_mlir.codegen.gpu.gemv_config import MAX_TILE, GemvConfig, choose, ranges, tiles
from rlx_mlir.codegen.gpu.gemv_config import candidates as config_candidates
from rlx_mlir.codegen.gpu.gemv_core import MAX_ROWS, Gemv, Products, Task, parameters_of
from rlx_mlir.codegen.gpu.gemv_prologue import Prologue
from rlx_mlir.codegen.gpu.gemv_ring import emit_persistent, persistent_bytes
from rlx_mlir.codegen.gpu.gemv_rows import Activations, Row
from rlx_mlir.codegen.gpu.gemv_stage import PROLOGUE_THREADS, emit_prologue
from rlx_mlir.codegen.gpu.kernel import DeviceKernel, HostEmitter, Scratch, symbol_of, write_device_kernel
from rlx_mlir.codegen.kernel import row_count
from rlx_mlir.formats.descriptions import RUN

__all__ = [
    "MAX_ROWS",
    "Gemv",
    "Prologue",
    "candidates",
    "configurations",
    "emit_kernels",
    "gemv",
    "launch",
    "shared_bytes",
]


def _portable(em: DeviceEmitter, name: str, spec: Gemv, config: GemvConfig) -> None:
    """Each block has its rows; their warps load them from global memory."""
    with em.kernel(name, parameters_of(spec), 32 * config.warps, chained=True) as values:
        task = Task(em, spec, config.tile, config.lanes, values)
        lane, warp = em.lane(), em.warp()
        own, group = lane & (config.lanes - 1), lane >> (config.lanes.bit_length() - 1)
        part, line = warp % config.split, warp // config.split
        first = (em.block() * (config.warps // config.split) + line) * config.warp_rows
        row = first + group * config.rows if config.lanes < 32 else first
        rows = []
        for i in range(config.rows):
            # Rows that don't exist are the last one's; they aren't stored.
            number = em.imin(row + i, spec.n - 1)
            rows.append([Row(em.at(w, em.wide(number) * spec.row_bytes, "i8"), spec.fixed) for w in task.w])
        unit = part * config.lanes + own if config.split > 1 else own
        products = Products(em, spec, config, rows, em.index(unit), config.lanes * config.split)
        x = Activations(em, task.x, spec.x_element, spec.k, task.x_rows(), spec.unit, em.index(unit))
        sums = task.join(products.sums(x))
        if config.split == 1:
            task.finish(sums, row, own)
            return
        # Partial sums of the warps that share rows: [line][part][row][weight][row of x].
        flat = [s for by_row in sums for by_weight in by_row for s in by_weight]
        memory = em.shared()
        place = warp * len(flat)
        with em.if_(em.cmpi("eq", lane, 0)):
            for i, s in enumerate(flat):
                em.st(s, memory, place + i)
        em.barrier()
        with em.if_(em.cmpi("eq", part, 0)):
            totals = [
                em.tree("add", [em.ld(memory, "f32", place + (j * len(flat) + i)) for j in range(config.split)])
                for i in range(len(flat))
            ]
            parts = [totals[i : i + config.tile] for i in range(0, len(totals), config.tile)]
            grouped = [parts[i : i + spec.weights] for i in range(0, len(parts), spec.weights)]
            task.finish(grouped, row, own)


# ----------------------------------------------------------------------------------------------------------------------
# Kernels and launches
# ----------------------------------------------------------------------------------------------------------------------


Configs = Mapping[int, GemvConfig | ColumnsConfig]
"""For each tile, how threads share the work."""


def configurations(spec: Gemv, chip: str) -> Configs:
    """For each tile that the number of rows may need, how threads share the work."""
    chosen: dict[int, GemvConfig | ColumnsConfig] = {}
    for tile, (above, limit) in ranges(spec.m).items():
        if spec.columns:
            own = choose_columns(spec.k, spec.n, spec.scheme, spec.weights, tile, chip)
            split = spec.chosen.take("gemv_split", splits_of(own, spec.k, spec.weights), above=above, limit=limit)
            chosen[tile] = own if split is None else replace(own, warps=split)
            continue
        options: dict[str, Any] = {"aligned": _is_aligned(spec), "choices": spec.chosen}
        chosen[tile] = choose(spec.work(tile), chip, **options, above=above, limit=limit)
    return chosen


def candidates(spec: Gemv, chip: str, rows: int) -> Iterator[dict[str, int]]:
    """Choices that are worth a measurement for so many rows, beside the rule's."""
    tile = next((tile for tile in tiles(spec.m) if rows <= tile), MAX_TILE)
    if not spec.columns:
        yield from config_candidates(spec.work(tile), chip, aligned=_is_aligned(spec))
        return
    own = choose_columns(spec.k, spec.n, spec.scheme, spec.weights, tile, chip)
    yield from ({"gemv_split": n} for n in splits_of(own, spec.k, spec.weights) if n != own.warps)


def _is_aligned(spec: Gemv) -> bool:
    """Whether rows of x can be copied in bulk."""
    return spec.quantised or spec.k * BITS[spec.element] // 8 % 16 == 0


def emit_kernels(em: DeviceEmitter, spec: Gemv, configs: Configs) -> None:
    """The device's functions, one for each tile: `NAME_gemv<tile>`."""
    for tile, config in configs.items():
        name = f"{symbol_of(spec.name)}_gemv{tile}"
        if isinstance(config, ColumnsConfig):
            emit_columns(em, name, spec, config)
        elif config.slots:
            emit_persistent(em, name, spec, replace(config, tile=tile))
        else:
            _portable(em, name, spec, replace(config, tile=tile))


def shared_bytes(spec: Gemv, config: GemvConfig | ColumnsConfig) -> int:
    """Bytes of dynamic shared memory of a kernel."""
    if isinstance(config, ColumnsConfig):
        return columns_bytes(config, spec.weights)
    if config.slots:
        return persistent_bytes(spec, config)
    return 4 * config.warps * config.rows * spec.weights * config.tile if config.split > 1 else 0


def launch(
    em: HostEmitter,
    spec: Gemv,
    configs: Configs,
    chip: str,
    operands: Sequence[Value],
    results: Sequence[Value],
    rows: Index | None = None,
) -> None:
    """The host's part: launches the kernel of the smallest tile that has room for all rows, or of the largest."""
    m = row_count(em, operands[0]) if rows is None else rows

    def start(tile: int, config: GemvConfig | ColumnsConfig) -> None:
        if isinstance(config, ColumnsConfig):
            blocks, threads = -(-spec.n // config.width), 32 * config.warps
        elif config.slots:
            groups, threads = -(-spec.n // config.warp_rows), 32 * (config.warps + 1)
            blocks = min(groups, resources(chip).processors)
        else:
            blocks, threads = -(-spec.n // config.block_rows), 32 * config.warps
        arguments = [*operands, *results, *([em.i32(m)] if spec.m is None else [])]
        em.launch(
            f"{symbol_of(spec.name)}_gemv{tile}",
            [blocks, em.iceildiv(m, tile)],
            threads,
            arguments,
            shared=shared_bytes(spec, config),
        )

    def choose(left: list[tuple[int, GemvConfig | ColumnsConfig]]) -> None:
        (tile, config), *rest = left
        if not rest or isinstance(m, int):  # of dynamic sizes, only an empty batch makes a product that is known
            start(tile, config)
            return
        with em.if_(em.cmpi("ule", m, tile)) as branch:
            start(tile, config)
            branch.else_()
            choose(rest)

    choose(sorted(configs.items()))


def gemv(chip: str, spec: Gemv, configs: Configs | None = None) -> DeviceKernel:
    """The kernel of a product of few rows.

    A prologue is part of it where all configurations are persistent; else a kernel of its own comes before.

    Args:
        configs: a configuration for each tile; those of `configurations` where they aren't given.
    """
    chosen = configurations(spec, chip) if configs is None else configs
    device, before = DeviceEmitter(chip), f"{symbol_of(spec.name)}_prologue"
    apart = bool(spec.prologue) and not all(isinstance(c, GemvConfig) and c.slots for c in chosen.values())
    product = spec.given if apart else spec
    if apart:
        emit_prologue(device, before, spec)
    emit_kernels(device, product, chosen)

    def take(em: HostEmitter, operands: list[Value], scratch: Scratch) -> list[Value]:
        """What the prologue makes, in scratch memory."""
        rows = row_count(em, operands[0])
        if not spec.prologue.quantise:
            return [scratch.take([rows, spec.k], spec.element, BITS[spec.element] // 8)]
        blocks = spec.k // RUN
        sizes = ((spec.k, "i8", 1), (blocks, "f32", 4), (blocks, "i32", 4))
        return [scratch.take([rows, size], element, width) for size, element, width in sizes]

    def host(em: HostEmitter, operands: list[Value], results: list[Value], scratch: Scratch) -> None:
        if not apart:
            launch(em, spec, chosen, chip, operands, results)
            return
        made = take(em, operands, scratch)
        rows = row_count(em, operands[0])
        given = operands[: spec.inputs]
        shared = 4 * PROLOGUE_THREADS // 32
        em.launch(before, rows, PROLOGUE_THREADS, [*given, *made], shared=shared)
        launch(em, product, chosen, chip, [*made, *operands[spec.inputs :]], results, rows)

    return write_device_kernel(
        spec.name,
        "gemv",
        spec.operands,
        spec.results,
        device,
        host,
        scratch=take if apart else None,
        order=spec.order,
    )
