# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules of attention for GPUs: numbers, by the PTX emulator, and code, by NVIDIA's assembler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from covering import products
from gpu_attention import NAME, Case, result_of
from gpu_emulated import ptx
from gpu_harness import usage
from gpu_host import Map, Number, launches

import rlx_mlir as rlx
from rlx_mlir.chips import CHIPS, sm_version
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.attention import gpu_attention
from rlx_mlir.codegen.gpu.attention_decode import DecodeConfig, decode, decode_config
from rlx_mlir.codegen.gpu.attention_f32 import F32Config, prefill_f32
from rlx_mlir.codegen.gpu.attention_hopper import HopperConfig, prefill_hopper
from rlx_mlir.codegen.gpu.attention_mma import MmaConfig, mma_config, prefill_mma
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.codegen.specs import AttentionSpec

Schedule = Callable[[str, AttentionSpec, str], DeviceKernel]


def check(case: Case, schedule: Schedule, chip: str, seed: int = 0) -> None:
    arrays = case.inputs(seed)
    got, _, _ = result_of(schedule(NAME, case.spec(), chip), chip, arrays)
    want = case.reference(arrays)
    np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), atol=case.tolerance, rtol=0)


def label(case: Case) -> str:
    words = [f"{case.queries}x{case.keys} {case.heads}/{case.kv_heads}x{case.size} {case.element} {case.kind}"]
    words += [f"b{case.batch}"] * (case.batch > 1) + [str(case.stored)] * (case.stored is not None)
    words += [case.layout] * (case.layout != "packed") + ["pos"] * (case.pos is not None)
    words += ["cap"] * (case.softcap is not None) + [case.mask] * (case.kind in ("custom", "bias"))
    return " ".join(words)


# Few queries --------------------------------------------------------------------------------------

#: One query over a cache, in the shapes of models.
ONE = Case(1, 200, 9, 3, kind="causal", pos=(150,), fixed=True)
FEW = [
    ONE,
    replace(ONE, pos=(0,)),
    replace(ONE, pos=(63,)),
    replace(ONE, pos=(64,)),
    replace(ONE, pos=(199,)),
    replace(ONE, heads=32, kv_heads=8, size=128, element="bf16"),
    replace(ONE, heads=32, kv_heads=8, size=128, stored="f16", batch=2, pos=(5, 199)),
    replace(ONE, heads=4, kv_heads=1, size=256, element="f16", kind="sliding_window", window=33),
    replace(ONE, heads=4, kv_heads=1, size=256, stored="bf16", kind="sliding_window", window=1),
    replace(ONE, heads=16, kv_heads=1, size=128, element="bf16"),
    replace(ONE, heads=14, kv_heads=2, size=80, element="f16", softcap=5.0),
    replace(ONE, heads=2, kv_heads=2, size=8, scale=-0.5),
    replace(ONE, heads=2, kv_heads=2, size=4, stored=None),
    replace(ONE, layout="bhsd", batch=2, pos=(7, 130)),
    replace(ONE, layout="bshd", batch=2, pos=None, kind="none"),
    replace(ONE, rank=2, pos=None, kind="none"),
    replace(ONE, keys=0, pos=None, kind="none"),
    replace(ONE, keys=1, pos=None),
    replace(ONE, kind="custom", pos=None),
    replace(ONE, kind="custom", mask="keys", mask_element="i1", batch=2, pos=(30, 199)),
    replace(ONE, kind="bias", mask="broadcast", softcap=3.0, element="bf16"),
    replace(ONE, kind="bias", mask="row", pos=None),
    replace(ONE, queries=3, pos=(70,)),
    replace(ONE, queries=4, heads=8, kv_heads=2, kind="sliding_window", window=5, size=128, element="bf16"),
    replace(ONE, queries=5, keys=3, pos=None),
    replace(ONE, queries=2, kind="custom", element="f16"),
]


@pytest.mark.parametrize("case", FEW, ids=label)
@pytest.mark.quick(2)
def test_few_queries(case: Case) -> None:
    check(case, decode, "sm_80")


def test_few_queries_on_hopper_with_dependent_launches() -> None:
    case = replace(ONE, heads=8, kv_heads=2, element="bf16", size=128)
    kernel = decode(NAME, case.spec(), "sm_90a")
    assert all(launch.pdl for launch in launches(kernel, NAME, [x.shape for x in [*case.inputs(), case.inputs()[0]]]))
    assert ptx(kernel.device, "sm_90a").count("griddepcontrol.wait") == 2
    check(case, decode, "sm_90a")


def test_the_grid_follows_from_sizes_alone_and_the_work_from_positions() -> None:
    case = Case(1, 4096, 8, 8, pos=(4000,), fixed=True, kind="causal", stored="f16")
    kernel = decode(NAME, case.spec(), "sm_80")
    sizes = [(1, 1, 512), (1, 4096, 512), (1, 4096, 512), (1,), (1, 1, 512)]
    parts, join = launches(kernel, NAME, sizes)
    assert parts.grid == (54, 8, 1)  # An A100 runs 432 blocks at one time.
    assert join.grid == (1, 8, 1)
    read = []
    for pos in (10, 1000, 4000):
        arrays = replace(case, pos=(pos,)).inputs()
        _, stats, _ = result_of(kernel, "sm_80", arrays)
        read.append(stats.instructions["cp.async.cg.shared.global"])
    assert read[0] * 10 < read[1] < read[2] / 3


def test_parts_grow_where_keys_are_many_and_stay_few() -> None:
    kernel = decode(NAME, Case(1, 1, 8, 8, fixed=True).spec(), "sm_80")
    grids = [
        launches(kernel, NAME, [(batch, 1, 512), (batch, keys, 512), (batch, keys, 512), (batch, 1, 512)])[0].grid
        for batch, keys in ((1, 0), (1, 65), (1, 10**6), (64, 10**6), (100, 10**6))
    ]
    assert [grid[0] for grid in grids] == [1, 2, 27, 2, 2]


def test_groups_of_rows_cover_all_heads() -> None:
    case = replace(ONE, heads=11, kv_heads=1, size=128, element="bf16")
    config = decode_config(case.spec(), 1)
    assert config.rows * config.groups == 12  # One row is computed twice, and written once.
    check(case, decode, "sm_80")


DECODE_CONFIGS = [DecodeConfig(1, 3, 2), DecodeConfig(3, 1, 1, 3, 2), DecodeConfig(2, 2, 16, 1, 1)]
MMA_CONFIGS = [MmaConfig(1, 1, 16, True), MmaConfig(2, 2, 32, False), MmaConfig(8, 1, 64, True)]


@pytest.mark.parametrize("config", DECODE_CONFIGS, ids=str)
def test_any_configuration_gives_the_same_numbers(config: DecodeConfig) -> None:
    check(ONE, lambda name, spec, chip: decode(name, spec, chip, config), "sm_80")


def test_few_queries_read_each_key_once_by_16_bytes() -> None:
    case = Case(1, 256, 8, 2, 128, element="bf16", fixed=True)
    arrays = case.inputs()
    _, stats, _ = result_of(decode(NAME, case.spec(), "sm_80"), "sm_80", arrays)
    copies = [count for name, count in stats.instructions.items() if name.startswith("cp.async.cg")]
    assert copies == [2 * 256 * 2 * 128 * 2 // 16]


# Many queries -------------------------------------------------------------------------------------

MANY = [
    Case(1, 1),
    Case(2, 2, kind="causal"),
    Case(63, 63, kind="causal"),
    Case(64, 64, 9, 3, kind="causal"),
    Case(65, 65, 4, 2, kind="causal"),
    Case(129, 131, 4, 1, size=128, kind="causal"),
    Case(40, 40, 4, 1, size=256, kind="sliding_window", window=7),
    Case(130, 200, size=128, kind="sliding_window", window=70, softcap=4.0, pos=(20,)),
    Case(33, 100, size=96, batch=2, pos=(0, 60), kind="causal"),
    Case(20, 100, size=80, batch=2, pos=(3, 60)),
    Case(31, 64, kind="custom", batch=2),
    Case(31, 64, kind="custom", mask="keys", mask_element="i1", batch=2),
    Case(31, 65, kind="bias", softcap=3.0, pos=(10,)),
    Case(31, 65, kind="bias", mask="broadcast", size=128),
    Case(31, 65, kind="custom", mask="row"),
    Case(70, 90, layout="bhsd", batch=2, kind="causal"),
    Case(70, 90, layout="bshd", batch=2, kind="causal", scale=-0.3),
    Case(17, 17, rank=2, size=32, kind="causal"),
    Case(100, 30, kind="causal"),
    Case(100, 30, kind="sliding_window", window=3),
    Case(5, 0, kind="causal"),
    Case(0, 10),
]


PARTS = [
    Case(33, 300, kind="causal"),
    Case(33, 300, kind="sliding_window", window=40, batch=2, pos=(0, 200)),
    Case(33, 260, 4, 2, 96, kind="custom", element="f16"),
    Case(33, 200, layout="bhsd", batch=2),
    Case(40, 20, kind="causal"),
    Case(3, 64, kind="bias", stored="bf16", softcap=3.0),
]


@pytest.mark.parametrize("case", PARTS, ids=label)
@pytest.mark.quick(2)
def test_parts_of_the_keys_of_few_tiles_in_f32(case: Case) -> None:
    kernel = prefill_f32(NAME, case.spec(), "sm_80", F32Config(32, 16, 1))
    arrays = case.inputs()
    got, _, done = result_of(kernel, "sm_80", arrays)
    assert [launch.kernel for launch in done] == ["k_f32", "k_f32_join"][: 1 + (case.keys >= 32)]
    want = case.reference(arrays).astype(np.float32)
    np.testing.assert_allclose(got.astype(np.float32), want, atol=case.tolerance, rtol=0)


def test_keys_are_cut_in_f32_where_tiles_do_not_fill_the_gpu() -> None:
    kernel = prefill_f32(NAME, Case(1, 1, 9, 3, kind="causal").spec(), "sm_90a")

    def grids(queries: int, keys: int) -> list[tuple[int, int, int]]:
        q, k = (1, queries, 576), (1, keys, 192)
        return [launch.grid for launch in launches(kernel, NAME, [q, k, k, q])]

    assert grids(128, 128) == [(4, 9, 1)]
    assert grids(128, 1024) == [(4, 9, 4), (128, 9, 1)]
    assert grids(128, 100_000) == [(4, 9, 14), (128, 9, 1)]
    assert grids(4096, 4096) == [(128, 9, 1)]


@pytest.mark.parametrize(
    "case",
    [
        Case(33, 300, kind="causal", pos=(100,), element="bf16"),
        Case(33, 300, size=80, kind="sliding_window", window=100, batch=2, element="f16"),
        Case(140, 200, element="f16", layout="bhsd", softcap=3.0),
        Case(100, 64, kind="causal", element="bf16"),
        Case(33, 200, kind="custom", element="bf16"),
        Case(33, 200, kind="bias", mask="row", element="f16"),
    ],
    ids=label,
)
@pytest.mark.quick(2)
def test_parts_of_the_keys_of_few_tiles_by_warp_groups(case: Case) -> None:
    kernel = prefill_hopper(NAME, case.spec(), "sm_90a", HopperConfig(32, least=1))
    arrays = case.inputs()
    got, _, done = result_of(kernel, "sm_90a", arrays)
    assert [launch.kernel for launch in done] == ["k_wgmma", "k_wgmma_join"]
    want = case.reference(arrays).astype(np.float32)
    np.testing.assert_allclose(got.astype(np.float32), want, atol=case.tolerance, rtol=0)


def test_hidden_values_have_no_influence_on_parts_of_the_keys() -> None:
    case = Case(4, 200, kind="causal", scale=0.1, element="bf16")
    arrays = case.inputs()
    arrays[2][0, 198] = np.nan
    arrays[2][0, 60] = np.inf
    with np.errstate(invalid="ignore"):
        want = case.reference(arrays).astype(np.float32)
    kernel = prefill_hopper(NAME, case.spec(), "sm_90a", HopperConfig(32, least=1))
    got = result_of(kernel, "sm_90a", arrays)[0].astype(np.float32)
    assert np.isnan(want).any()
    assert np.isposinf(want).any()
    np.testing.assert_allclose(got, want, atol=case.tolerance)


def mostly_slow(cases: list[Case]) -> list[Any]:
    """Every third case runs by default."""
    return [pytest.param(case, marks=[pytest.mark.slow] * (i % 3 > 0)) for i, case in enumerate(cases)]


def narrowed(cases: list[Case]) -> list[Case]:
    """The same cases in f16 and bf16 in turn."""
    return [replace(case, element=("bf16", "f16")[i % 2]) for i, case in enumerate(cases)]


@pytest.mark.parametrize("case", mostly_slow(MANY), ids=label)
@pytest.mark.quick(2)
def test_many_queries_in_f32(case: Case) -> None:
    check(case, prefill_f32, "sm_80")


@pytest.mark.parametrize(
    "case",
    [
        Case(40, 70, 4, 2, stored="f16", kind="causal"),
        Case(40, 70, 4, 2, stored="bf16", size=128, kind="causal", pos=(20,)),
        Case(40, 70, size=40, element="f16"),
        Case(20, 20, size=4),
        Case(20, 20, size=20, kind="causal"),
    ],
    ids=label,
)
@pytest.mark.quick(2)
def test_many_queries_in_f32_over_narrow_keys_and_odd_sizes(case: Case) -> None:
    check(case, prefill_f32, "sm_80")


@pytest.mark.parametrize("case", mostly_slow(narrowed(MANY)), ids=label)
@pytest.mark.quick(2)
def test_many_queries_by_tensor_cores_of_warps(case: Case) -> None:
    check(case, prefill_mma, "sm_80")


@pytest.mark.parametrize("config", MMA_CONFIGS, ids=str)
@pytest.mark.quick(2)
def test_tiles_of_other_sizes_give_the_same_numbers(config: MmaConfig) -> None:
    case = Case(50, 90, size=64, kind="sliding_window", window=30, element="bf16", pos=(40,))
    check(case, lambda name, spec, chip: prefill_mma(name, spec, chip, config), "sm_80")


WIDE = narrowed(MANY)
LONG = [
    Case(260, 520, 2, 1, 128, element="bf16", kind="causal"),
    Case(130, 520, 2, 1, 64, element="f16"),
    Case(130, 300, 3, 3, 80, element="f16", kind="causal"),
    Case(130, 300, 2, 2, 192, element="bf16", kind="causal", layout="bhsd", batch=2),
    Case(130, 700, 2, 1, 64, element="bf16", kind="sliding_window", window=400),
    Case(140, 400, 2, 1, 256, element="bf16", kind="causal", pos=(200,), layout="bhsd"),
    Case(64, 400, 2, 1, 128, batch=2, element="f16", kind="causal", pos=(0, 330), layout="bshd"),
    Case(129, 129, 3, 1, 64, batch=2, element="bf16", softcap=4.0, scale=-0.2),
]


@pytest.mark.parametrize("case", [*mostly_slow(WIDE), *mostly_slow(LONG)], ids=label)
@pytest.mark.quick(2)
def test_many_queries_by_warp_groups(case: Case) -> None:
    check(case, prefill_hopper, "sm_90a")


@pytest.mark.parametrize(
    "case",
    [
        Case(20, 33, 2, 1, 32, kind="custom", element="bf16"),
        Case(70, 90, 1, 1, 16, kind="custom", mask="keys", mask_element="i1", element="f16", batch=2),
        Case(20, 80, 1, 1, 16, kind="custom", mask="row", element="bf16", pos=(40,)),
        Case(20, 65, 2, 2, 32, kind="bias", mask="broadcast", element="bf16"),
        Case(20, 33, 1, 1, 16, kind="bias", softcap=3.0, element="f16"),
        *(
            pytest.param(Case(150, 200, 1, 1, size, kind=kind, element="bf16"), marks=pytest.mark.slow)
            for size in (128, 256)
            for kind in ("custom", "bias")
        ),
    ],
    ids=label,
)
@pytest.mark.quick(2)
def test_masks_in_memory_by_warp_groups(case: Case) -> None:
    check(case, prefill_hopper, "sm_90a")


def test_rows_of_masks_are_read_by_pairs_where_their_length_is_known() -> None:
    case = Case(20, 64, 1, 1, 16, kind="bias", element="bf16")
    spec = replace(case.spec(), k="memref<?x64x16xbf16>", v="memref<?x64x16xbf16>", mask="memref<?x1x?x64xbf16>")
    kernel = prefill_hopper(NAME, spec, "sm_90a")
    arrays = case.inputs()
    got, _, _ = result_of(kernel, "sm_90a", arrays)
    np.testing.assert_allclose(
        got.astype(np.float32), case.reference(arrays).astype(np.float32), atol=case.tolerance, rtol=0
    )
    assert "-> vector<2xbf16>" in kernel.device


@pytest.mark.parametrize(("size", "columns", "span"), [(48, 64, 128), (80, 96, 64), (96, 96, 64)])
@pytest.mark.quick(2)
def test_values_of_other_heads_stay_apart(size: int, columns: int, span: int) -> None:
    """Values are multiplied in whole boxes, which may reach into the next head: its elements have no part."""
    case = Case(20, 70, 2, 2, size, element="f16", layout="bshd", pos=(40,))
    kernel = prefill_hopper(NAME, case.spec(), "sm_90a")
    arrays = case.inputs()
    arrays[2][:, :, 1] = np.nan
    got, _, done = result_of(kernel, "sm_90a", arrays)
    np.testing.assert_allclose(got[:, :, 0], case.reference(arrays)[:, :, 0], atol=case.tolerance, rtol=0)
    assert np.isnan(got[:, :, 1]).all()
    assert f"m64n{columns}k16" in kernel.device
    values = [own for own in done[0].parameters if isinstance(own, Map)][2]
    assert (values.swizzle, values.box[-1]) == (span, span // 2)


@pytest.mark.slow
@pytest.mark.parametrize("config", [HopperConfig(64, 3), HopperConfig(96), HopperConfig(32, 4)], ids=str)
def test_stages_of_other_sizes_give_the_same_numbers(config: HopperConfig) -> None:
    case = replace(LONG[0], size=64)
    check(case, lambda name, spec, chip: prefill_hopper(name, spec, chip, config), "sm_90a")


def test_tiles_of_heads_in_progress_follow_each_other() -> None:
    case = Case(1, 1, 32, 8, 128, element="bf16")
    kernel = prefill_hopper(NAME, case.spec(), "sm_90a")

    def order(batch: int, length: int) -> list[int]:
        q, k = (batch, length, 4096), (batch, length, 1024)
        (launch,) = launches(kernel, NAME, [q, k, k, q])
        assert launch.grid == (-(-length // 128) * 32 * batch, 1, 1)
        return [x.value for x in launch.parameters if isinstance(x, Number)][-4:-1]

    assert order(1, 1000) == [8, 32, 32]
    assert order(4, 16384) == [128, 128, 8]  # 8 MB a head of keys: two heads at a time, 4 heads of queries each
    assert order(1, 100000) == [782, 32, 1]


@pytest.mark.wide
def test_results_are_the_same_bits_each_time() -> None:
    many = Case(33, 70, 2, 1, kind="causal")
    for case, schedule in ((ONE, decode), (replace(many, element="bf16"), prefill_mma), (many, prefill_f32)):
        arrays, kernel = case.inputs(), schedule(NAME, case.spec(), "sm_80")
        first, second = (result_of(kernel, "sm_80", arrays)[0] for _ in range(2))
        assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize(
    ("schedule", "kind", "softcap"),
    products([decode, prefill_f32, prefill_mma, prefill_hopper], ["causal", "custom", "sliding_window"], [None, 5.0]),
)
@pytest.mark.quick(2)
def test_values_that_a_query_does_not_see_have_no_influence(
    schedule: Schedule, kind: str, softcap: float | None
) -> None:
    tensor_cores = schedule in (prefill_mma, prefill_hopper)
    case = Case(4, 40, kind=kind, window=3 if kind == "sliding_window" else None, fixed=True, softcap=softcap)
    case = replace(case, element="bf16" if tensor_cores else "f32", scale=0.1)
    arrays = case.inputs()
    arrays[2][0, 38] = np.nan
    arrays[2][0, 37] = np.inf
    with np.errstate(invalid="ignore"):
        want = case.reference(arrays).astype(np.float32)
    assert np.isnan(want).any()
    assert np.isfinite(want).any()
    chip = "sm_90a" if schedule is prefill_hopper else "sm_80"
    got = result_of(schedule(NAME, case.spec(), chip), chip, arrays)[0].astype(np.float32)
    np.testing.assert_allclose(got, want, atol=case.tolerance)


@pytest.mark.parametrize("schedule", [decode, prefill_f32, prefill_mma])
@pytest.mark.quick(2)
def test_scores_of_nan_and_infinity(schedule: Schedule) -> None:
    case = Case(4, 40, kind="bias", fixed=True, element="f32" if schedule is not prefill_mma else "bf16")
    arrays = case.inputs()
    arrays[3][0, 0, 0, 3] = np.nan
    arrays[3][0, 0, 1, 3] = np.inf
    arrays[3][0, 0, 2] = -np.inf
    arrays[3][0, 0, 3, 5:] = -np.inf
    with np.errstate(invalid="ignore"):
        want = case.reference(arrays).astype(np.float32)
    got = result_of(schedule(NAME, case.spec(), "sm_80"), "sm_80", arrays)[0].astype(np.float32)
    assert np.isnan(got[0, :2, :64]).all()
    assert (got[0, 2, :64] == 0).all()
    np.testing.assert_allclose(got, want, atol=case.tolerance)


@pytest.mark.parametrize("schedule", [decode, prefill_f32, prefill_mma, prefill_hopper])
@pytest.mark.quick(2)
def test_biases_are_added_to_capped_scores_and_hide_nothing(schedule: Schedule) -> None:
    narrow = schedule in (prefill_mma, prefill_hopper)
    case = Case(4, 40, kind="bias", fixed=True, element="bf16" if narrow else "f32", softcap=5.0)
    arrays = case.inputs()
    bias = arrays[3]
    bias[0, 0, 0, 1::2] = -np.inf
    bias[0, 0, 1] = np.finfo(np.float32).min if not narrow else -3.3e38
    arrays[2][0, 1::2] = 1000
    want = case.reference(arrays).astype(np.float32)
    chip = "sm_90a" if schedule is prefill_hopper else "sm_80"
    got = result_of(schedule(NAME, case.spec(), chip), chip, arrays)[0].astype(np.float32)
    assert np.abs(got[0, 0, :64]).max() < 10
    mean = arrays[2][0, :, :64].astype(np.float32).mean(axis=0)
    np.testing.assert_allclose(got[0, 1, :64], mean, rtol=case.tolerance)
    np.testing.assert_allclose(got, want, rtol=case.tolerance, atol=case.tolerance)


# Code ---------------------------------------------------------------------------------------------

LLAMA = Case(1, 1, 32, 8, 128, kind="causal", pos=(0,), element="bf16")
GEMMA = Case(1, 1, 4, 1, 256, kind="sliding_window", window=512, pos=(0,), element="bf16", softcap=50.0)
SMALL = Case(1, 1, 9, 3, 64, kind="causal", pos=(0,), element="bf16")


#: Chips, and heads, that `test_code…` looks at by default: where a schedule is at home, and where registers are scarce.
QUICK = {decode: "sm_80", prefill_f32: "sm_80", prefill_mma: "sm_80", prefill_hopper: "sm_90a"}


def quick(chip: str, schedule: Schedule, case: Case) -> bool:
    """Every schedule with heads of every model; masks of other kinds with the largest heads, and the usual ones."""
    if chip != QUICK[schedule]:
        return chip == "sm_90a" and case in (SMALL, replace(SMALL, fixed=True))
    return case.heads != SMALL.heads or case.kind == "causal"


def corpus() -> list[tuple[str, Schedule, Case]]:
    """Kernels whose code is looked at: chip, schedule, case."""
    found: list[tuple[str, Schedule, Case]] = []
    for chip in ("sm_80", "sm_86", "sm_90", "sm_90a"):
        for case in (LLAMA, GEMMA, SMALL):
            few = replace(case, fixed=True)
            found += [(chip, decode, few), (chip, decode, replace(few, element="f32"))]
            found.append((chip, decode, replace(few, queries=4, heads=8 * case.kv_heads)))
            found += [(chip, prefill_f32, replace(case, element="f32")), (chip, prefill_mma, case)]
            if chip == "sm_90a":
                found += [(chip, prefill_hopper, case), (chip, prefill_hopper, replace(case, kind="none", window=None))]
                found.append((chip, prefill_hopper, replace(case, size=case.size - 32)))
                masked = replace(case, window=None)
                found += [(chip, prefill_hopper, replace(masked, kind=kind)) for kind in ("custom", "bias")]
        found.append((chip, prefill_mma, replace(LLAMA, kind="custom", element="f16")))
        found.append((chip, prefill_mma, replace(LLAMA, kind="bias", size=96)))
        found.append((chip, prefill_mma, replace(SMALL, kind="bias")))
        found.append((chip, prefill_f32, replace(GEMMA, size=96, element="f32")))
    return found


@pytest.mark.parametrize(
    ("chip", "schedule", "case"),
    [pytest.param(*x, marks=[pytest.mark.slow] * (not quick(*x))) for x in corpus()],
    ids=[f"{chip} {schedule.__name__} {label(case)}" for chip, schedule, case in corpus()],
)
@pytest.mark.quick(2)
def test_code_has_no_spills_and_uses_tensor_cores(chip: str, schedule: Schedule, case: Case) -> None:
    text = ptx(schedule(NAME, case.spec(), chip).device, chip)
    found = usage(text, chip)
    assert all(own.spilled == 0 for own in found.values()), found
    words = {prefill_mma: "mma.sync.aligned.m16n8k16", prefill_hopper: "wgmma.mma_async.sync.aligned.m64n"}
    if schedule in words:
        assert words[schedule] in text
    assert "ld.global.nc" not in text  # Caches are written by kernels that may still run.


@pytest.mark.parametrize("case", [LLAMA, GEMMA, SMALL], ids=label)
def test_tiles_of_warps_fit_the_shared_memory_of_every_chip(case: Case) -> None:
    for chip in CHIPS:
        most = 227 if sm_version(chip) in (90, 100, 103) else 163 if sm_version(chip) in (80, 87) else 99
        assert mma_config(case.spec(), chip).shared_bytes(case.size) <= most * 1024


# The choice of a schedule -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "chip", "schedule"),
    [
        (replace(LLAMA, fixed=True), "sm_90a", "attention_decode"),
        (replace(LLAMA, fixed=True, queries=16), "sm_90a", "attention_decode"),
        (replace(LLAMA, fixed=True, queries=17), "sm_90a", "attention_hopper"),
        (LLAMA, "sm_90a", "attention_hopper"),
        (LLAMA, "sm_90", "attention_mma"),
        (LLAMA, "sm_120", "attention_mma"),
        (replace(LLAMA, size=96), "sm_90a", "attention_hopper"),
        (replace(LLAMA, kind="bias"), "sm_90a", "attention_hopper"),
        (replace(LLAMA, size=40), "sm_90a", "attention_f32"),
        (replace(LLAMA, element="f32"), "sm_90a", "attention_f32"),
        (replace(LLAMA, element="f32", stored="bf16"), "sm_90a", "attention_f32"),
    ],
    ids=str,
)
def test_choice(case: Case, chip: str, schedule: str) -> None:
    assert gpu_attention(NAME, case.spec(), chip).schedule == schedule


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (replace(LLAMA, size=20), "expects heads of multiples of 8 up to 256, but they are of 20"),
        (replace(LLAMA, size=512), "expects heads of multiples of 8 up to 256, but they are of 512"),
        (replace(LLAMA, element="f16", stored="bf16"), "expects k and v of f16, as q is, or q of f32"),
    ],
)
def test_what_no_schedule_covers_is_refused_with_the_reason(case: Case, reason: str) -> None:
    with pytest.raises(UnsupportedByTemplate, match=reason):
        gpu_attention(NAME, case.spec(), "sm_90a")


@pytest.mark.parametrize("queries", [1, "seq"])
def test_compiled_modules_use_the_schedules(queries: int | str) -> None:
    graph = rlx.GraphModule.mir("attention")
    q = graph.input("q", [1, queries, 128], "bf16")
    k, v = (graph.input(x, [1, "context", 64], "bf16") for x in "kv")
    result = graph.attention(q, k, v, num_heads=2, num_kv_heads=1, head_dim=64, mask_kind="causal")
    graph.set_outputs({"out": result})
    text = rlx.emit(graph, "ptx", target="nvptx", chip="sm_80")
    assert (".entry attention_0_parts" in text) == (queries == 1)
    assert (".entry attention_0_mma" in text) == (queries == "seq")
