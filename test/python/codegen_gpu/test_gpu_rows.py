# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The GPU's schedule of rows: the cases of the CPU's template, as PTX that is emulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import test_cpu_rows
from gpu_emulated import assembled, emulate, ptx
from test_cpu_rows import Case, normal, one

from ptx_emulator import Stats
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.emit import memref
from rlx_mlir.codegen.gpu.rows import choose_tiling, emit_rows
from rlx_mlir.codegen.row_graph import Graph, Operand, Plan, Result, RowProgram, Step

CHIP = "sm_90"


class Emulated:
    """A kernel with the interface of `cpu_harness.Kernel`; units aren't cut."""

    def __init__(self, program: RowProgram) -> None:
        self.program, self.made, self.stats = program, emit_rows("k", program, CHIP), Stats()

    def run(self, buffers: Sequence[np.ndarray], cuts: object = None) -> None:
        count = len(self.program.operands)
        self.stats, _ = emulate(self.made, "k", CHIP, buffers[:count], buffers[count:], profile=True)

    def __call__(self, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray], cuts: object = None) -> list:
        copies = [np.array(array) for array in outputs]
        self.run([*map(np.array, arrays), *copies])
        return copies


class DeviceCase(Case):
    def kernel(self) -> Any:
        return Emulated(self.program)


@pytest.fixture(autouse=True)
def _emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_cpu_rows, "Case", DeviceCase)


#: Tests of the CPU's template, and arguments for them.
CPU_CASES: list[tuple[Callable[..., None], tuple]] = [
    (test_cpu_rows.test_unary, (17, 512)),
    (test_cpu_rows.test_binary_broadcasts, (7, 512)),
    (test_cpu_rows.test_compare_and_where, (16,)),
    *((test_cpu_rows.test_norms_and_softmax, (op, width, 512)) for op in ("softmax", "rms_norm") for width in (1, 17)),
    *((test_cpu_rows.test_norms_and_softmax, ("layer_norm", width, 512)) for width in (3, 16, 576, 1000)),
    (test_cpu_rows.test_residual_norms, ("fused_residual_rms_norm", True, True)),
    (test_cpu_rows.test_residual_norms, ("fused_residual_layer_norm", False, True)),
    (test_cpu_rows.test_layer_norm_of_a_large_offset_keeps_its_digits, ()),
    *((test_cpu_rows.test_layer_norm_of_constant_rows_is_zero, (width,)) for width in (7, 112)),
    (test_cpu_rows.test_max_and_min_propagate_nan, (40,)),
    (test_cpu_rows.test_softmax_of_extreme_rows, ()),
    (test_cpu_rows.test_swiglu, (24, True)),
    (test_cpu_rows.test_swiglu, (5, False)),
    (test_cpu_rows.test_narrow_splits_a_row, ()),
    *((test_cpu_rows.test_rope, (*sizes, "half", 512)) for sizes in ((2, 2), (6, 4), (64, 64), (64, 38), (80, 32))),
    *((test_cpu_rows.test_rope, (*sizes, "interleaved", 512)) for sizes in ((6, 4), (20, 20), (64, 64), (80, 32))),
    (test_cpu_rows.test_rope_without_pos_in_every_rank, ()),
    (test_cpu_rows.test_norm_of_heads_then_rope_then_more, ("half",)),
    (test_cpu_rows.test_norm_of_heads_then_rope_then_more, ("interleaved",)),
    *((test_cpu_rows.test_cache_update_after_rope, (width, el)) for width in (24, 8) for el in ("f32", "bf16")),
    (test_cpu_rows.test_half_operands_and_results, (64, "bf16", 512)),
    (test_cpu_rows.test_half_operands_and_results, (13, "f16", 512)),
    (test_cpu_rows.test_empty_and_single_rows, ()),
    *((test_cpu_rows.test_random_programs, (seed,)) for seed in range(6)),
]


@pytest.mark.parametrize(("test", "arguments"), CPU_CASES, ids=lambda own: getattr(own, "__name__", None))
@pytest.mark.quick(6)
def test_like_on_cpus(test: Callable[..., None], arguments: tuple) -> None:
    test(*arguments)


@pytest.mark.parametrize(("width", "team", "rows"), [(64, 16, 8), (576, 64, 1), (2048, 128, 1), (8192, 512, 1)])
def test_wide_rows_take_a_block_and_short_ones_share_a_warp(width: int, team: int, rows: int) -> None:
    program, arrays = one("rms_norm", width, vectors=1, attributes={"eps": 1e-5})
    graph = Graph(program)
    tiling = choose_tiling(graph, Plan(graph))
    assert (tiling.team, tiling.rows) == (team, rows)
    DeviceCase(program, arrays).check()


def test_bits_do_not_depend_on_the_batch() -> None:
    program, _ = one("softmax", 100)
    x = normal(37, 100)
    (whole,) = DeviceCase(program, [x]).run()
    for rows in (slice(0, 1), slice(5, 12)):
        (part,) = DeviceCase(program, [np.ascontiguousarray(x[rows])]).run()
        assert part.tobytes() == whole[rows].tobytes()


@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_memory_is_read_once_in_whole_sectors(element: str) -> None:
    type = memref([None, 2048], element)
    operands = (Operand("x", type), Operand("g", memref([2048], element), "vector"))
    steps = (Step("y", "rms_norm", ("x", "g"), {"eps": 1e-5}),)
    x, g = normal(3, 2048, dtype=element), normal(2048, dtype=element)
    kernel = Emulated(RowProgram(operands, steps, (Result("o", type, "y"),)))
    kernel([x, g], [np.zeros_like(x)])
    assert kernel.stats.global_read == x.nbytes + 3 * g.nbytes
    assert kernel.stats.global_written == x.nbytes
    assert not kernel.stats.uncoalesced
    assert "v4.b32" in ptx(kernel.made.device, CHIP)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a", "sm_120"])
@pytest.mark.parametrize("width", [64, 4096])
def test_ptx_assembles(width: int, chip: str) -> None:
    program, _ = one("softmax", width)
    (found,) = assembled(ptx(emit_rows("k", program, chip).device, chip), chip).values()
    assert found.spills == 0


def test_what_it_does_not_cover() -> None:
    program, _ = one("softmax", 1 << 17)
    with pytest.raises(UnsupportedByTemplate, match="rows of 131072 elements are longer than a block"):
        emit_rows("k", program, CHIP)
    program, _ = one("reduce", 8, attributes={"kind": "prod"})
    with pytest.raises(UnsupportedByTemplate, match="joins by 'prod'"):
        emit_rows("k", program, CHIP)
