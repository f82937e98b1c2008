# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Choices of schedules for GPUs: which there are, which are refused, what they change in kernels, and in results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from cuda_harness import emulated_device
from gpu_attention import Case, result_of
from gpu_emulated import emulate

import rlx_mlir as rlx
from rlx_mlir import formats
from rlx_mlir.codegen.gpu import gemm_config, gemm_hopper_config, gemv_config
from rlx_mlir.codegen.gpu.attention import gpu_attention
from rlx_mlir.codegen.gpu.gemm_base import Gemm
from rlx_mlir.codegen.gpu.gemm_config import FMA_TILES, MMA_TILES, Sizes
from rlx_mlir.codegen.gpu.gemm_fma import gemm_fma
from rlx_mlir.codegen.gpu.gemm_hopper import gemm_hopper
from rlx_mlir.codegen.gpu.gemm_mma import gemm_mma
from rlx_mlir.codegen.gpu.gemv import Gemv, gemv
from rlx_mlir.codegen.gpu.gemv_config import Work
from rlx_mlir.codegen.gpu.kernel import DeviceKernel
from rlx_mlir.compiler import CompileOptions
from rlx_mlir.errors import CompileError, InputError
from rlx_mlir.hir import GraphModule
from rlx_mlir.lowering.gpu.candidates import list_candidates
from rlx_mlir.measure.work import ModuleWork
from rlx_mlir.tuning.choices import Chosen, check_choices
from rlx_mlir.tuning.gpu import CHANGE_BITS, KNOWN

# Names and values --------------------------------------------------------------------------------------


def test_those_that_change_bits_are_known() -> None:
    assert KNOWN.keys() >= CHANGE_BITS


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ({"tile": 1}, "'choices' expects tf32, .* or key_tile for 'k', but got 'tile'"),
        ({"split": 17}, "a number from 1 to 16 for split of 'k', but got 17"),
        ({"key_tile@9": 8}, "a multiple of 16 from 16 to 256 for key_tile@9 of 'k', but got 8"),
        ({"split@0": 1}, "a number of rows after 'split@' of 'k', but got '0'"),
        ({"split@x": 1}, "a number of rows after 'split@' of 'k', but got 'x'"),
    ],
)
def test_choices_that_no_kernel_has(choices: dict[str, int], text: str) -> None:
    with pytest.raises(InputError, match=text):
        check_choices({"k": choices}, KNOWN, by_rows=True)


def test_only_gpus_have_choices_by_rows() -> None:
    CompileOptions(target="nvptx", choices={"k": {"split@16": 2}})
    with pytest.raises(InputError, match="for 'k', but got 'tile_rows@16'"):
        CompileOptions(choices={"k": {"tile_rows@16": 2}})


def test_a_range_of_rows_has_its_own_choice() -> None:
    chosen = Chosen("k", {"split": 2, "split@40": 3})
    assert chosen.take("split", above=0, limit=16) == 2
    assert chosen.take("split", above=16, limit=64) == 3
    assert chosen.take("split", above=64) == 2
    assert chosen.take("stages") is None
    chosen.finish("gemm")
    assert Chosen("k", {"split@40": 3}).part(limit=39).take("split") is None
    assert Chosen("k", {"split@40": 3}).part(above=39).take("split", above=39) == 3
    with pytest.raises(InputError, match="choices split@17 and split@64 of kernel 'k' are for the same range of rows"):
        Chosen("k", {"split@17": 3, "split@64": 4}).take("split", above=16, limit=64)


def product(*, rows: int | str = "n", element: str = "f32", packed: str = "") -> GraphModule:
    m = GraphModule.mir("product")
    x = m.input("x", [rows, 64], element)
    if packed:
        y = m.dequant_matmul(x, m.param("w", [48, 64], packed=packed))
    else:
        y = m.matmul(x, m.param("w", [64, 48], element))
    m.set_outputs({"y": y})
    return m


@pytest.mark.parametrize(
    ("chip", "element", "own", "text"),
    [
        ("sm_80", "f32", {"tile_rows": 48}, "'tile_rows' of kernel 'matmul_0' expects 32 or 64 or 128, but got 48"),
        (
            "sm_80",
            "f16",
            {"split@100": 16},
            "'split@100' of kernel 'matmul_0' expects a number from 1 to 1, but got 16",
        ),
        ("sm_90a", "f16", {"tile_rows": 64, "tile_columns": 256}, "'tile_columns' .* expects 64 or 128, but got 256"),
        ("sm_90a", "f16", {"gemv_split@1": 16}, "'gemv_split@1' .*expects 1 or 2 or 4, but got 16"),
        ("sm_80", "f32", {"gemv_slots": 4}, "kernel 'matmul_0', of schedule gemv|gemm_fma, has no choice 'gemv_slots'"),
        ("sm_80", "f32", {"key_parts": 4}, "kernel 'matmul_0', of schedule gemv|gemm_fma, has no choice 'key_parts'"),
    ],
)
def test_a_kernel_refuses_what_it_does_not_have(chip: str, element: str, own: dict[str, int], text: str) -> None:
    with pytest.raises(CompileError, match=text):
        rlx.emit(product(element=element), "linalg", target="nvptx", chip=chip, choices={"matmul_0": own})


def test_a_kernel_that_is_not_there() -> None:
    choices = {"matmul_1": {"split": 2}}
    with pytest.raises(CompileError, match="'choices' names 'matmul_1', but the kernels are matmul_0"):
        rlx.emit(product(), "linalg", target="nvptx", choices=choices)
    with pytest.raises(CompileError, match="'choices' names 'matmul_1', but the kernels are dequant_matmul_0"):
        rlx.emit(product(), "linalg", choices={"matmul_1": {"tile_rows": 2}})


def test_limits_between_schedules_are_choices() -> None:
    def text(own: dict[str, int], packed: str = "q4_0", element: str = "bf16") -> str:
        module, name = product(packed=packed, element=element), "dequant_matmul_0"
        return rlx.emit(module, "linalg", target="nvptx", chip="sm_90a", choices={name: own})

    rule = text({})
    assert "arith.constant 768 : index" in rule
    assert "arith.constant 8 : index" in rule
    chosen = text({"few_rows": 3, "decode_rows": 100})
    assert "arith.constant 768 : index" not in chosen
    assert "arith.constant 100 : index" in chosen
    assert "arith.constant 3 : index" in chosen


# Rules and candidates ----------------------------------------------------------------------------------


def test_choices_replace_the_rule_of_one_range() -> None:
    rule = gemm_config.choose_by_rows(None, 4096, 4096, MMA_TILES, "sm_80")
    chosen = Chosen("k", {"tile_rows@64": 32, "split@64": 3, "sweep@64": 2, "stages@64": 2})
    own = dict(gemm_config.choose_by_rows(None, 4096, 4096, MMA_TILES, "sm_80", choices=chosen))
    assert {limit: choice for limit, choice in own.items() if limit != 64}.items() <= dict(rule).items()
    choice = own[64]
    assert (choice.tile.bm, choice.tile.bn, choice.splits, choice.tile.group, choice.tile.stages) == (32, 64, 3, 2, 2)
    chosen.finish("gemm_mma")


def test_a_chosen_tile_keeps_the_rule_for_the_rest() -> None:
    sizes = {"processors": 132}
    (_, rule), *_ = gemm_hopper_config.choose_by_rows(128, 4096, 4096, **sizes)
    (_, own), *_ = gemm_hopper_config.choose_by_rows(
        128, 4096, 4096, **sizes, choices=Chosen("k", {"tile_columns": 256})
    )
    assert rule.tile.out_columns != 256
    assert own.tile.out_columns == 256
    assert own.splits in gemm_hopper_config.SPLITS


@pytest.mark.parametrize("rows", [1, 16, 200, 4096])
def test_candidates_are_choices(rows: int) -> None:
    """Each can be taken, differs from the rule, and from the others."""
    for tiles in (MMA_TILES, FMA_TILES):
        found = list(gemm_config.candidates(Sizes(rows, 4096, 1024), tiles, "sm_90"))
        made = [gemm_config.choose_by_rows(rows, 4096, 1024, tiles, "sm_90", choices=Chosen("k", own)) for own in found]
        rule = gemm_config.choose_by_rows(rows, 4096, 1024, tiles, "sm_90")
        assert len({str(own) for own in [*made, rule]}) == len(made) + 1 > 4
    options = {"processors": 132}
    found = list(gemm_hopper_config.candidates(Sizes(rows, 4096, 1024), 132))
    made = [gemm_hopper_config.choose_by_rows(rows, 4096, 1024, **options, choices=Chosen("k", own)) for own in found]
    rule = gemm_hopper_config.choose_by_rows(rows, 4096, 1024, **options)
    assert len({str(own) for own in [*made, rule]}) == len(made) + 1 > 4


def test_candidates_of_few_rows() -> None:
    work = Work(n=4096, units=64, row_bytes=2304, weights=1, tile=1, x_bytes=4608)
    for chip in ("sm_80", "sm_90"):
        rule = gemv_config.choose(work, chip)
        made = [gemv_config.choose(work, chip, choices=Chosen("k", own)) for own in gemv_config.candidates(work, chip)]
        assert len({str(own) for own in [*made, rule]}) == len(made) + 1 > 3
    assert any(own.slots == 0 for own in made)
    with pytest.raises(
        InputError, match=r"'gemv_slots' of kernel 'k' expects from 12 slots, .* to the .* that fit, but"
    ):
        gemv_config.choose(work, "sm_90", choices=Chosen("k", {"gemv_warps": 12, "gemv_rows": 16, "gemv_slots": 2}))


# Results -----------------------------------------------------------------------------------------------

M, N, K = 40, 80, 160


def result(kernel: DeviceKernel, chip: str, operands: list[np.ndarray], shape: tuple[int, ...], dtype: Any) -> bytes:
    y = np.zeros(shape, dtype)
    emulate(kernel, "k", chip, operands, [y])
    return y.tobytes()


@pytest.mark.parametrize(
    ("schedule", "chip", "dtype", "chosen", "same"),
    [
        (
            gemm_fma,
            "sm_80",
            "f32",
            [{"tile_rows": 32, "split": 1}, {"tile_rows": 64, "stages": 2, "sweep": 1, "split": 1}],
            True,
        ),
        (gemm_mma, "sm_80", "f16", [{"tile_rows": 16, "split": 1}, {"tile_rows": 64, "stages": 2, "split": 1}], True),
        (gemm_mma, "sm_80", "f16", [{"split": 1}, {"split": 2}], False),
        (
            gemm_hopper,
            "sm_90a",
            "f16",
            [
                {"tile_rows": 64, "tile_columns": 64, "split": 1},
                {"tile_rows": 16, "split": 1},
                {"sweep": 1, "split": 1},
            ],
            True,
        ),
        (gemm_hopper, "sm_90a", "f16", [{"split": 1}, {"split": 3}], False),
    ],
)
@pytest.mark.quick(1)
def test_products_by_choice(schedule: Any, chip: str, dtype: str, chosen: list[dict[str, int]], same: bool) -> None:
    kind = {"f32": np.float32, "f16": np.float16}[dtype]
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape, np.float32).astype(kind) for shape in ((M, K), (K, N)))
    results, texts = [], set()
    for own in chosen:
        choices = Chosen("k", own)
        kernel = (
            schedule(chip, Gemm("k", (M, K), (K, N), (M, N), element=dtype, chosen=choices))
            if (schedule is not gemm_hopper)
            else gemm_hopper(Gemm("k", (M, K), (K, N), (M, N), element=dtype, chosen=choices), chip)
        )
        choices.finish(kernel.schedule)
        texts.add(kernel.device + kernel.host.text)
        results.append(result(kernel, chip, [x, w], (M, N), kind))
    assert len(texts) == len(chosen)
    wanted = x.astype(np.float64) @ w.astype(np.float64)
    for own in results:
        np.testing.assert_allclose(np.frombuffer(own, kind).reshape(M, N), wanted, rtol=2e-2, atol=2e-2)
    if same:
        assert len(set(results)) == 1


@pytest.mark.parametrize(
    ("activations", "kernel", "own"),
    [
        ("int8", "block_dot_0", {"tile_rows": 32, "stages": 2, "split": 1}),
        ("exact", "dequant_matmul_0", {"tile_rows": 64, "sweep": 1, "split": 1}),
    ],
)
@pytest.mark.quick(1)
def test_products_with_packed_weights_by_choice(activations: str, kernel: str, own: dict[str, int]) -> None:
    random = np.random.default_rng(0)
    w = formats.encode("q4_1", random.standard_normal((48, 64), np.float32)).reshape(48, -1)
    x = random.standard_normal((40, 64), np.float32)
    results, codes = set(), set()
    with emulated_device("sm_80"):
        for choices in ({"split": 1}, own):
            executable = rlx.compile(
                product(rows=40, packed="q4_1"),
                target="cuda",
                cache=False,
                activations=activations,
                choices={kernel: choices},
            )
            executable.set_params({"w": w})
            results.add(executable.run({"x": x})["y"].tobytes())
            codes.add(executable.artifact.device_code)
            del executable
    assert len(codes) == 2
    assert len(results) == 1


@pytest.mark.wide
def test_products_of_few_rows_by_choice() -> None:
    random = np.random.default_rng(0)
    x, w = random.standard_normal((3, 96), np.float32), random.standard_normal((600, 96), np.float32)
    results, texts = [], set()
    for own in ({}, {"gemv_warps": 4}, {"gemv_rows": 1}, {"gemv_warps": 8, "gemv_rows": 2, "gemv_slots": 9}):
        chosen = Chosen("k", own)
        kernel = gemv("sm_90", Gemv("k", (3, 96), 600, "f32", dense=True, chosen=chosen))
        chosen.finish(kernel.schedule)
        texts.add(kernel.device + kernel.host.text)
        results.append(result(kernel, "sm_90", [x, w], (3, 600), np.float32))
    assert len(texts) >= 3
    assert len(set(results)) == 1
    np.testing.assert_allclose(np.frombuffer(results[0], np.float32).reshape(3, 600), x @ w.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("case", "chip", "own"),
    [
        (Case(1, 200, 9, 3, kind="causal", pos=(150,), fixed=True), "sm_80", {"key_parts": 1}),
        (Case(1, 200, 9, 3, kind="causal", pos=(150,), fixed=True), "sm_80", {"key_parts": 3}),
        (Case(20, 90, kind="causal"), "sm_80", {"key_tile": 16, "key_parts": 1}),
        (Case(40, 90, kind="causal", element="f16"), "sm_80", {"key_tile": 32}),
        (Case(40, 200, kind="causal", element="bf16"), "sm_90a", {"key_tile": 96, "key_parts": 1}),
    ],
)
@pytest.mark.quick(1)
def test_attention_by_choice(case: Case, chip: str, own: dict[str, int]) -> None:
    arrays, chosen = case.inputs(0), Chosen("k", own)
    kernel = gpu_attention("k", case.spec(), chip, chosen)
    chosen.finish(kernel.schedule)
    got, _, _ = result_of(kernel, chip, arrays)
    wanted = case.reference(arrays).astype(np.float32)
    np.testing.assert_allclose(got.astype(np.float32), wanted, atol=case.tolerance, rtol=0)
    rule = gpu_attention("k", case.spec(), chip)
    assert rule.device + rule.host.text != kernel.device + kernel.host.text


@pytest.mark.parametrize(
    ("case", "chip", "own", "text"),
    [
        (Case(1, 9, fixed=True), "sm_80", {"key_parts": 129}, "expects a number from 1 to 128, but got 129"),
        (Case(20, 9, size=128), "sm_80", {"key_tile": 64}, "expects a multiple of 16 from 16 to 32, but got 64"),
        (Case(20, 9, element="f16"), "sm_80", {"key_tile": 48}, "expects 16 or 32 or 64, but got 48"),
        (Case(20, 9, element="f16"), "sm_90a", {"key_tile": 48}, "expects a multiple of 32 from 32 to 128, but got 48"),
    ],
)
def test_attention_refuses(case: Case, chip: str, own: dict[str, int], text: str) -> None:
    with pytest.raises(InputError, match=text):
        gpu_attention("k", case.spec(), chip, Chosen("k", own))


# Candidates of kernels ---------------------------------------------------------------------------------


def matmul(element: str, *, batched: bool = False) -> GraphModule:
    m = GraphModule.mir("m")
    x = m.input("x", ["b", "n", 256] if batched else ["n", 256], element)
    w = m.input("w", ["b", 256, 512], element) if batched else m.param("w", [256, 512], element)
    m.set_outputs({"y": m.matmul(x, w)})
    return m


def swiglu(packed: str) -> GraphModule:
    m = GraphModule.hir("m")
    x = m.input("x", [1, "n", 256])
    g, u = (m.param(name, [512, 256], packed=packed) for name in "gu")
    d = m.param("d", [256, 512], packed=packed)
    m.set_outputs({"y": m.swiglu(m.rms_norm(x, m.param("s", [256])), gate_w=g, up_w=u, down_w=d)})
    return m


def attention(element: str, queries: int | str) -> GraphModule:
    m = GraphModule.mir("m")
    q = m.input("q", [1, queries, 256], element)
    k, v = (m.input(name, [1, "keys", 128], element) for name in "kv")
    m.set_outputs({"y": m.attention(q, k, v, num_heads=4, num_kv_heads=2, head_dim=64, mask_kind="causal")})
    return m


@pytest.mark.parametrize(
    ("build", "chip", "sizes", "activations", "least"),
    [
        (partial(matmul, "bf16"), "sm_90a", {"n": 300}, "exact", 5),
        (partial(matmul, "bf16"), "sm_90a", {"n": 1}, "exact", 2),
        (partial(matmul, "f16", batched=True), "sm_90a", {"n": 40, "b": 3}, "exact", 3),
        (partial(matmul, "f32"), "sm_80", {"n": 17}, "exact", 4),
        (partial(swiglu, "q4_1"), "sm_80", {"n": 70}, "int8", 8),
        pytest.param(partial(swiglu, "q4_0"), "sm_90", {"n": 2}, "exact", 3, marks=pytest.mark.slow),
        (partial(attention, "f16", "n"), "sm_90a", {"n": 100, "keys": 200}, "exact", 4),
        (partial(attention, "f32", 1), "sm_80", {"keys": 2000}, "exact", 4),
        (partial(attention, "bf16", "n"), "sm_80", {"n": 30, "keys": 30}, "exact", 2),
    ],
)
@pytest.mark.quick(1)
def test_every_candidate_can_be_taken(
    build: Callable[[], GraphModule], chip: str, sizes: dict[str, int], activations: str, least: int
) -> None:
    module = build()
    options: Any = {"target": "nvptx", "chip": chip, "activations": activations}
    work = ModuleWork(module, CompileOptions(**options))
    templates = rlx.compile(module, cache=False, cubin="never", **options).templates
    found = {}
    for call, shapes in zip(work.calls, work.operands(sizes), strict=True):
        with work.context:
            own = list_candidates(call.kernel, work.kernel(call.kernel), chip, shapes, templates[call.kernel])
        found[call.kernel] = own
    for number in range(max(map(len, found.values()))):
        joined = {kernel: own[number] for kernel, own in found.items() if number < len(own)}
        rlx.emit(module, "linalg", **options, choices=joined)
    assert sum(map(len, found.values())) >= least


@pytest.mark.parametrize(
    ("module", "chip", "rows", "own"),
    [
        (product(element="f32"), "sm_80", 5, {"few_rows": 4}),
        (product(rows=1, packed="q4_0"), "sm_80", 1, {"few_rows": 0}),
        (product(packed="q4_0", element="bf16"), "sm_90a", 3, {"few_rows": 2}),
        (product(packed="q4_0", element="bf16"), "sm_90a", 512, {"decode_rows": 511}),
        (product(packed="q4_0", element="bf16"), "sm_90a", 1000, {"decode_rows": 1000}),
        (product(element="f32"), "sm_80", 100, {}),
    ],
)
@pytest.mark.quick(1)
def test_other_schedules_are_candidates(module: GraphModule, chip: str, rows: int, own: dict[str, int]) -> None:
    """Another schedule is tried second, and with that choice the call's rows are the other one's."""
    options: Any = {"target": "nvptx", "chip": chip}
    work = ModuleWork(module, CompileOptions(**options))
    (call,) = work.calls
    templates = rlx.compile(module, cache=False, cubin="never", **options).templates
    with work.context:
        shapes = work.operands({"n": rows} if module.dynamic_symbols else {})[0]
        found = list_candidates(call.kernel, work.kernel(call.kernel), chip, shapes, templates[call.kernel])
        same = list_candidates(
            call.kernel, work.kernel(call.kernel), chip, shapes, templates[call.kernel], same_bits=True
        )
    borders = [each for each in found if each.keys() & {"few_rows", "decode_rows"}]
    assert borders == ([own] if own else [])
    assert not any(each in same for each in borders)
    if own:
        assert found[1] == own
        by_rule, chosen = (
            rlx.emit(module, "linalg", **options, choices={call.kernel: c} if c else {}) for c in ({}, own)
        )
        assert by_rule != chosen
