# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of few rows on GPUs: PTX by the emulator against the references, and what ptxas says of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from covering import products
from gpu_emulated import assembled, emulate, ptx

import rlx_mlir.mir  # noqa: F401  registers the references
from ptx_emulator import Stats, machine
from rlx_mlir import formats
from rlx_mlir.codegen import UnsupportedByTemplate
from rlx_mlir.codegen.gpu.gemv import Gemv, Prologue, configurations, gemv, shared_bytes
from rlx_mlir.codegen.gpu.gemv_config import GemvConfig
from rlx_mlir.codegen.gpu.gemv_prologue import IDENTITY_PROLOGUE
from rlx_mlir.codegen.gpu.quantize import Quantize, quantize
from rlx_mlir.codegen.program import IDENTITY, SWIGLU, Argument, Program, Step
from rlx_mlir.mir.packed import PackedWeight
from rlx_mlir.mir.registry import REFERENCES

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
QUANTISED = [name for name in formats.PLANE_FORMATS if not formats.plane_layout(name).dense]
CHIPS = ["sm_80", "sm_90a"]


def pairs(values: Iterable[Any], quick: Iterable[Any]) -> list[Any]:
    """A value and a chip: all values on sm_80, those of `quick` on sm_90a, too, and there the others as slow tests."""
    values, kept = list(values), list(quick)
    on_hopper = [
        (value, "sm_90a") if value in kept else pytest.param(value, "sm_90a", marks=pytest.mark.slow)
        for value in values
    ]
    return [*((value, "sm_80") for value in values), *on_hopper]


#: One unit in the last place of the outputs' type, and what sums in another order differ by.
TOLERANCE = {"f32": 2e-6, "f16": 2e-3, "bf16": 1.6e-2}

BIAS_SILU = Program((Step("add", (("acc", 0), ("arg", 0))), Step("silu", (("step", 0),))), (Argument("row"),))
RESIDUAL = Program((Step("add", (("acc", 0), ("arg", 0))),), (Argument("full"),))
SCALED = Program(
    (Step("mul", (("acc", 0), ("arg", 0))), Step("max", (("step", 0), ("const", -0.25)))),
    (Argument("scalar"),),
    (("step", 1), ("acc", 0)),
)


def evaluate(program: Program, products: list[np.ndarray], arguments: list[np.ndarray]) -> list[np.ndarray]:
    """The program by the references, in f32."""
    steps: list[np.ndarray] = []
    where = {"acc": products, "arg": [a.astype(np.float32) for a in arguments], "step": steps}

    def value(ref: tuple[str, float]) -> np.ndarray:
        return np.float32(ref[1]) if ref[0] == "const" else where[ref[0]][int(ref[1])]

    for step in program.steps:
        shapes = np.broadcast_arrays(*(value(ref) for ref in step.inputs))
        steps.append(REFERENCES[f"mir.{step.op}"](*shapes))
    return [value(ref) for ref in program.results]


def weight_of(scheme: str, n: int, k: int, seed: int) -> PackedWeight:
    """Random integers with scales of ordinary size: every bit of a block counts."""
    rng = np.random.default_rng([seed, n, k])
    fmt = formats.get_format(scheme)
    if fmt.dense is not None:
        rows = rng.standard_normal((n, k)).astype(fmt.dense)
        return PackedWeight(scheme, k, n, "rows", rows.view(np.uint8).reshape(n, -1))
    rows = rng.integers(0, 256, (n, fmt.row_bytes(k)), np.uint8)
    blocks = rows.reshape(n, -1, fmt.nbytes)
    for part in fmt.factors:
        field = fmt.field(part.field)
        values = rng.uniform(-0.1, 0.1, (n, blocks.shape[1], 1)).astype(field.dtype)
        blocks[..., field.offset : field.offset + values.dtype.itemsize] = values.view(np.uint8)
    return PackedWeight(scheme, k, n, "rows", rows)


@dataclass(frozen=True)
class Case:
    """A product: scheme of the weights, sizes, and what varies."""

    scheme: str
    m: int = 1
    k: int = 256
    n: int = 37
    quantised: bool = True
    element: str = "f32"
    dense: bool = False
    columns: bool = False
    program: Program = IDENTITY
    chip: str = "sm_80"
    config: GemvConfig | None = None
    dynamic: bool = False
    prologue: Prologue = IDENTITY_PROLOGUE

    @property
    def spec(self) -> Gemv:
        shape = (None, self.k) if self.dynamic else (self.m, self.k)
        flags: dict[str, Any] = {"prologue": self.prologue}
        flags |= {"quantised": self.quantised, "dense": self.dense, "columns": self.columns}
        return Gemv("p", shape, self.n, self.scheme, self.program, None, self.element, **flags)


def operand_of(case: Case, weight: PackedWeight) -> np.ndarray:
    """A weight as the kernel takes it."""
    if not case.dense:
        return weight.repacked("planes").bytes.view("i1")
    rows = weight.bytes.view(formats.get_format(case.scheme).dense)
    return np.ascontiguousarray(rows.T) if case.columns else rows


def check(case: Case, profile: bool = False) -> Stats:
    """Compares the case with the references, and returns what the emulator counted."""
    rng = np.random.default_rng(case.m)
    spec, dtype = case.spec, DTYPES[case.element]
    x = rng.standard_normal((case.m, case.k)).astype(np.float32 if case.quantised else dtype)
    before: list[np.ndarray] = []
    if case.prologue.norm:
        gamma = rng.standard_normal(case.k).astype(dtype)
        before = [x, gamma]
        x = REFERENCES["mir.rms_norm"](x, gamma, eps=case.prologue.eps)
    elif case.prologue:
        before = [x]
    weights = [weight_of(case.scheme, case.n, case.k, seed) for seed in range(spec.weights)]
    shapes = {"row": (case.n,), "full": (case.m, case.n), "column": (case.m,), "scalar": ()}
    arguments = [rng.standard_normal(shapes[a.broadcast]).astype(dtype) for a in case.program.arguments]
    given = list(REFERENCES["mir.block_quantize"](x)) if case.quantised else [x]
    op = "mir.block_dot" if case.quantised else "mir.dequant_matmul"
    wide = given if case.quantised else [x.astype(np.float32)]
    want = evaluate(case.program, [REFERENCES[op](*wide, weight) for weight in weights], arguments)
    packed = [operand_of(case, weight) for weight in weights]
    found = [np.full((case.m, case.n), np.nan, dtype) for _ in want]
    configs = {(1 if case.dynamic else case.m): case.config} if case.config else None
    kernel = gemv(case.chip, spec, configs)
    operands = [*(before or given), *packed, *arguments]
    stats, launched = emulate(kernel, "p", case.chip, operands, found, profile=profile)
    assert len(launched) == (2 if before and "p_prologue" in kernel.device else 1)
    assert all(one.pdl == (case.chip != "sm_80") for one in launched)
    for one, other in zip(found, want, strict=True):
        size = max(float(np.abs(other).max(initial=0)), 1e-3)
        # The norm's root is approximate: now and then an integer is the next one.
        tolerance = max(TOLERANCE[case.element], 1e-3 * (case.prologue.norm and case.quantised))
        np.testing.assert_allclose(one.astype(np.float32), other, rtol=0, atol=size * tolerance)
    return stats


# ----------------------------------------------------------------------------------------------------------------------
# Numbers
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantised", [True, False], ids=["int8", "exact"])
@pytest.mark.parametrize(("scheme", "chip"), pairs(QUANTISED, ["q4_k", "q8_0", "q2_k"]))
@pytest.mark.quick(3)
def test_every_format(scheme: str, quantised: bool, chip: str) -> None:
    stats = check(Case(scheme, k=1280 if chip == "sm_80" else 512, n=21, quantised=quantised, chip=chip))
    assert (stats.count("dp4a") > 0) == quantised


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize(("scheme", "chip"), pairs(DTYPES, ["bf16"]))
@pytest.mark.quick(4)
def test_dense(scheme: str, element: str, chip: str) -> None:
    check(Case(scheme, 2, 520, 21, False, element, dense=scheme == element, chip=chip))


@pytest.mark.parametrize(
    ("m", "chip"),
    [
        *pairs([1, 3, 4, 7, 8], [7]),
        *(pytest.param(m, chip, marks=pytest.mark.slow) for m in (2, 5, 6) for chip in CHIPS),
    ],
)
@pytest.mark.quick(2)
def test_rows_of_x(m: int, chip: str) -> None:
    check(Case("q4_k", m, n=19, chip=chip))
    check(Case("q6_k", m, n=19, chip=chip))
    check(Case("q8_0", m, n=19, quantised=False, chip=chip))


@pytest.mark.parametrize(("k", "chip"), pairs([32, 64, 96, 256, 288, 576, 1024, 1056, 1088, 2080], [96, 576, 1056]))
@pytest.mark.quick(4)
def test_lengths_of_rows(k: int, chip: str) -> None:
    check(Case("q4_0", k=k, n=9, chip=chip))
    check(Case("q5_1", 2, k=k, n=9, quantised=False, chip=chip))


@pytest.mark.parametrize(("k", "chip"), pairs([1, 7, 36, 100, 264, 1032], [7, 264]))
@pytest.mark.quick(7)
def test_lengths_of_dense_rows(k: int, chip: str) -> None:
    for scheme in ("f32", "bf16"):
        check(Case(scheme, 3, k, 11, False, scheme, dense=True, chip=chip))


#: Rows, K and columns.
COLUMNS = [(3, 1, 1), (8, 7, 5), (1, 33, 64), (3, 264, 100), (8, 520, 136), (1, 520, 136), (2, 1000, 24)]


@pytest.mark.parametrize(("sizes", "element"), products(COLUMNS, list(DTYPES), meeting=1))
@pytest.mark.quick(4)
def test_weights_in_columns(sizes: tuple[int, int, int], element: str) -> None:
    m, k, n = sizes
    flags = {"dense": True, "columns": True}
    check(Case(element, m, k, n, False, element, **flags, program=BIAS_SILU, chip="sm_90a"))
    check(Case(element, m, k, n, False, element, **flags, program=SWIGLU, dynamic=True))


@pytest.mark.parametrize(("n", "chip"), pairs([1, 2, 3, 16, 133, 300], [1, 3, 133]))
@pytest.mark.quick(6)
def test_numbers_of_rows(n: int, chip: str) -> None:
    check(Case("q4_k", n=n, chip=chip))
    check(Case("q8_0", k=64, n=n, chip=chip))


PROGRAMS = {"bias+silu": BIAS_SILU, "residual": RESIDUAL, "scaled": SCALED, "swiglu": SWIGLU}


@pytest.mark.parametrize(("name", "element", "chip"), products(list(PROGRAMS), list(DTYPES), CHIPS, meeting=1))
@pytest.mark.quick(3)
def test_programs(name: str, element: str, chip: str) -> None:
    program = PROGRAMS[name]
    check(Case("q4_1", 3, n=21, quantised=False, element=element, program=program, chip=chip))
    if element == "f32":
        check(Case("q5_k", 2, n=21, program=program, chip=chip))


CONFIGS = [
    GemvConfig(lanes=32, rows=1, unroll=1, warps=1),
    GemvConfig(lanes=32, rows=2, unroll=4, warps=2),
    GemvConfig(lanes=16, rows=1, unroll=2, warps=4),
    GemvConfig(lanes=8, rows=2, unroll=3, warps=2),
    GemvConfig(lanes=32, rows=1, unroll=1, warps=4, split=2),
    GemvConfig(lanes=32, rows=2, unroll=1, warps=4, split=4),
    GemvConfig(lanes=32, rows=1, unroll=3, warps=2, split=2),
    GemvConfig(lanes=32, rows=1, unroll=2, warps=2, slots=3),
    GemvConfig(lanes=32, rows=4, unroll=1, warps=4, slots=4),
    GemvConfig(lanes=8, rows=2, unroll=2, warps=3, slots=5),
    GemvConfig(lanes=16, rows=1, unroll=2, warps=1, slots=2),
]


CONFIGURED = {
    "q4_k": Case("q4_k", 3, 2048, 76),
    "q6_k": Case("q6_k", 3, 1280, 35, program=RESIDUAL),
    "bf16": Case("bf16", 3, 776, 35, False, "bf16", dense=True),
}


@pytest.mark.parametrize(("number", "name"), products(range(len(CONFIGS)), list(CONFIGURED), meeting=1))
@pytest.mark.parametrize("m", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.quick(7)
def test_configurations(number: int, name: str, m: int) -> None:
    config = replace(CONFIGS[number], tile=m)
    check(replace(CONFIGURED[name], m=m, config=config, chip="sm_90a" if config.slots else "sm_80"))


PROLOGUES = {"quantise": Prologue(quantise=True), "norm+quantise": Prologue(1e-5, True), "norm": Prologue(1e-3)}
SIZED = {"q4_k": 1280, "q6_k": 256, "q8_0": 96, "q4_1": 1056}


@pytest.mark.parametrize(("scheme", "name", "chip"), products(list(SIZED), list(PROLOGUES), CHIPS))
@pytest.mark.quick(2)
def test_prologues(scheme: str, name: str, chip: str) -> None:
    k, prologue = SIZED[scheme], PROLOGUES[name]
    check(Case(scheme, 1, k, 21, prologue.quantise, prologue=prologue, chip=chip))
    check(Case(scheme, 3, k, 21, prologue.quantise, prologue=prologue, chip=chip, program=RESIDUAL))


@pytest.mark.parametrize(("element", "columns", "chip"), products(list(DTYPES), [False, True], CHIPS))
@pytest.mark.quick(5)
def test_norms_before_dense_products(element: str, columns: bool, chip: str) -> None:
    flags = {"dense": True, "columns": columns, "prologue": Prologue(1e-5)}
    check(Case(element, 2, 544, 24, False, element, chip=chip, program=SWIGLU, **flags))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("prologue", PROLOGUES.values(), ids=PROLOGUES)
@pytest.mark.quick(5)
def test_prologues_of_rows_that_take_turns(prologue: Prologue, chip: str) -> None:
    """Rows that are longer than what a block holds in registers."""
    check(Case("q8_0", 1, 7712, 3, prologue.quantise, prologue=prologue, chip=chip))


def test_prologues_of_a_dynamic_number_of_rows() -> None:
    for chip in CHIPS:
        check(Case("q4_0", 3, 96, 21, prologue=Prologue(1e-5, True), dynamic=True, chip=chip))
        check(Case("q4_0", 17, 96, 21, prologue=Prologue(1e-5, True), dynamic=True, chip=chip))


@pytest.mark.parametrize("count", [6, pytest.param(132, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("warps", "slots"), [(1, 1), (2, 3), (3, 3)])
def test_rings_that_are_used_again(warps: int, slots: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than the rings of all multiprocessors hold."""
    monkeypatch.setattr(machine, "MULTIPROCESSORS", count)
    config = GemvConfig(lanes=8, rows=1, unroll=1, warps=warps, slots=slots)
    check(Case("q4_0", k=256, n=count * 4 * (3 * slots + 1) - 3, chip="sm_90a", config=config))


@pytest.mark.parametrize("count", [1, 3])
def test_gpus_with_fewer_multiprocessors_than_blocks(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks beyond them have nothing to do, as they would start late; the others do all."""
    monkeypatch.setattr(machine, "MULTIPROCESSORS", count)
    spec = Case("q8_0", 2, 256, 61, chip="sm_90a", config=GemvConfig(tile=2, warps=2, slots=3))
    assert check(spec).count("cp.async.bulk") == 61
    assert "%nsmid" in ptx(gemv(spec.chip, spec.spec, {2: GemvConfig(tile=2, warps=2, slots=3)}).device, spec.chip)


@pytest.mark.parametrize(("m", "chip"), pairs([1, 2, 3, 5, 8, 9, 17], [1, 5, 17]))
@pytest.mark.quick(2)
def test_dynamic_rows_of_x(m: int, chip: str) -> None:
    check(Case("q4_k", m, n=9, chip=chip, dynamic=True, program=RESIDUAL))
    check(Case("q8_0", m, n=9, quantised=False, chip=chip, dynamic=True))


@pytest.mark.parametrize("chip", CHIPS)
def test_no_rows_of_x(chip: str) -> None:
    spec = Gemv("p", (None, 64), 5, "q4_0")
    weight = weight_of("q4_0", 5, 64, 0).repacked("planes").bytes.view("i1")
    empty = [np.zeros((0, 64), np.float32), weight]
    _, launched = emulate(gemv(chip, spec), "p", chip, empty, [np.zeros((0, 5), np.float32)])
    assert not launched


@pytest.mark.parametrize("scheme", ["q4_k", "q8_0"])
def test_blocks_with_nan_make_their_row_nan(scheme: str) -> None:
    x = np.ones((2, 256), np.float32)
    x[0, 5] = np.nan
    weight = weight_of(scheme, 4, 256, 0)
    found = np.zeros((2, 4), np.float32)
    spec = Gemv("p", (2, 256), 4, scheme, quantised=True)
    given = [*REFERENCES["mir.block_quantize"](x), weight.repacked("planes").bytes.view("i1")]
    emulate(gemv("sm_80", spec), "p", "sm_80", given, [found])
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()


def test_infinite_activations_are_as_in_the_reference() -> None:
    """Of a weight with minima the decoded element counts: not 0 times infinity where the integer is 0."""
    x = np.zeros((1, 32), np.float32)
    x[0, 3] = np.inf
    weight = weight_of("q4_1", 40, 32, 0)
    found = np.zeros((1, 40), np.float32)
    spec = Gemv("p", (1, 32), 40, "q4_1")
    emulate(gemv("sm_80", spec), "p", "sm_80", [x, weight.repacked("planes").bytes.view("i1")], [found])
    np.testing.assert_array_equal(found, REFERENCES["mir.dequant_matmul"](x, weight))


# ----------------------------------------------------------------------------------------------------------------------
# Quantisation
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [32, 64, 256])
@pytest.mark.parametrize("element", DTYPES)
def test_block_quantize(element: str, block: int) -> None:
    x = (np.random.default_rng(0).standard_normal((5, 512)) * 4).astype(DTYPES[element])
    x[0, 0], x[1, 40], x[2, :256] = np.nan, np.inf, 0
    x[3, :4] = [127, 0.5, 1.5, -2.5]
    x[3, 4:256] = 0  # ties to even
    x[4, :3] = [190 * 2.0**-149, -(2.0**-147), 2.0**-149]
    x[4, 3:256] = 0  # a subnormal scale: q saturates
    want = REFERENCES["mir.block_quantize"](x, block=block)
    found = [np.zeros_like(one) for one in want]
    kernel = quantize("sm_80", Quantize("p", (None, 512), element, block))
    stats, _ = emulate(kernel, "p", "sm_80", [x], found, profile=True)
    for one, other in zip(found, want, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not stats.uncoalesced


# ----------------------------------------------------------------------------------------------------------------------
# Code
# ----------------------------------------------------------------------------------------------------------------------

CORPUS = [
    *(Case(scheme, 1, 4096, 14336, chip=chip) for scheme in ("q4_0", "q4_k", "q5_k", "q6_k", "q8_0") for chip in CHIPS),
    *(Case("bf16", 1, 4096, 14336, False, "bf16", dense=True, chip=chip) for chip in CHIPS),
    *(Case("q4_k", 8, 4096, 14336, chip=chip) for chip in CHIPS),
    *(Case("q4_k", 1, 4096, 14336, chip=chip, program=SWIGLU) for chip in CHIPS),
    *(Case("q4_k", 2, 4096, 14336, chip=chip, program=SWIGLU, prologue=Prologue(1e-5, True)) for chip in CHIPS),
    *(Case("q4_k", 4, 4096, 14336, False, chip=chip) for chip in CHIPS),
    *(Case("bf16", 8, 4096, 4096, False, "bf16", dense=True, chip=chip) for chip in CHIPS),
    Case("q8_0", 2, 4096, 4096, chip="sm_89"),
    *(Case("bf16", m, 4096, 4096, False, "bf16", True, True, chip="sm_90a") for m in (1, 8)),
    Case("f32", 8, 4096, 4096, False, "f32", True, True, SWIGLU, chip="sm_80"),
    Case("q4_k", 1, 4096, 4096, chip="sm_100a"),
    Case("q4_k", 1, 4096, 4096, chip="sm_120"),
]


@pytest.mark.parametrize(
    "case",
    # Of formats that differ in nothing but their bits, one on sm_80 by default.
    [
        pytest.param(
            case, marks=[pytest.mark.slow] * (case.chip == "sm_80" and case.scheme in ("q4_0", "q5_k", "q8_0"))
        )
        for case in CORPUS
    ],
    ids=lambda c: f"{c.scheme} {c.m} {c.program.accumulators} {c.chip} {c.quantised}",
)
@pytest.mark.quick(5)
def test_code(case: Case) -> None:
    """No registers are spilled, and all that is read often is read 16 bytes at a time."""
    text = ptx(gemv(case.chip, case.spec).device, case.chip)
    for one in assembled(text, case.chip).values():
        assert one.spills == 0, one.messages
        assert one.registers <= 168, one.messages
    persistent = 90 <= int(re.sub(r"\D", "", case.chip)) < 120 and not case.columns
    assert ("cp.async.bulk" in text) == persistent
    assert f"ld.{'shared' if persistent else 'global.nc'}.v4" in text
    assert ("dp4a" in text) == case.quantised
    # Weights are fetched before the kernels before have ended; x isn't.
    if persistent:
        (of_x, *_) = re.finditer(r"ld\.global\.v[24]", text)
        assert text.index("cp.async.bulk") < text.index("griddepcontrol.wait") < of_x.start()
        assert "griddepcontrol.launch_dependents" in text
    assert not re.search(r"cvt\.rn\.f32\.[su]32", text), "conversions of integers are slow"


def test_weights_that_kernels_write_are_waited_for() -> None:
    for fixed in (True, False):
        spec = Gemv("p", (1, 512), 300, "bf16", element="bf16", dense=True, fixed=fixed)
        text = ptx(gemv("sm_90a", spec).device, "sm_90a")
        assert (text.index("cp.async.bulk") < text.index("griddepcontrol.wait")) == fixed
        assert ("ld.global.nc" in ptx(gemv("sm_80", spec).device, "sm_80")) == fixed


def test_accesses_are_whole_sectors() -> None:
    """Weights of rows of a multiple of 32 bytes: no request touches more sectors than it has bytes."""
    stats = check(Case("q8_0", k=1024, n=64, config=GemvConfig(unroll=1)), profile=True)
    weights = [a for a in stats.accesses.values() if a.space == "global" and not a.store and a.bytes >= 64 * 1024 // 2]
    assert len(weights) >= 2
    assert sum(a.width == 16 for a in weights) >= 2
    planes = [a for a in weights if a.coalesced]
    assert sum(a.bytes for a in planes) >= 64 * formats.planes_row_bytes("q8_0", 1024) // 2


@pytest.mark.parametrize("quantised", [True, False])
def test_shared_memory_is_read_without_conflicts(quantised: bool) -> None:
    case = Case("q4_k", 2, 1024, 24, quantised, chip="sm_90a", config=GemvConfig(tile=2, rows=2, warps=2, slots=4))
    stats = check(case, profile=True)
    assert not [a for a in stats.bank_conflicts if a.width == 16]


# ----------------------------------------------------------------------------------------------------------------------
# Choices
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["q4_k", "q8_0", "bf16"])
@pytest.mark.parametrize("chip", [*CHIPS, "sm_86", "sm_100", "sm_120"])
def test_choices_fit_the_chip(scheme: str, chip: str) -> None:
    from rlx_mlir.codegen.gpu.gemm_config import resources

    for k in (64, 256, 576, 1536, 4096, 14336, 28672):
        for n in (1, 100, 1024, 4096, 14336, 152064):
            for m in (1, 4, 8, None):
                if k % formats.get_format(scheme).block:
                    continue
                dense = scheme == "bf16"
                spec = Gemv(
                    "p", (m, k), n, scheme, quantised=not dense, dense=dense, element="bf16" if dense else "f32"
                )
                for config in configurations(spec, chip).values():
                    assert shared_bytes(spec, config) <= resources(chip).block_kib << 10
                    assert config.tile * config.rows <= 16


def test_what_is_not_covered() -> None:
    with pytest.raises(UnsupportedByTemplate, match="no schedule reads weights of f64"):
        Gemv("p", (1, 64), 4, "f64")
    with pytest.raises(UnsupportedByTemplate, match="no schedule reads weights of bf16"):
        Gemv("p", (1, 64), 4, "bf16", quantised=True)
    with pytest.raises(UnsupportedByTemplate, match="expects a known K and N"):
        Gemv("p", (1, None), 4, "q8_0")
    with pytest.raises(UnsupportedByTemplate, match="products of f64"):
        Gemv("p", (1, 64), 4, "q8_0", element="f64")
    with pytest.raises(UnsupportedByTemplate, match="quantises in blocks of 48"):
        Quantize("p", (1, 96), "f32", 48)
