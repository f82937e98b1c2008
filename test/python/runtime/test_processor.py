# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code for other processors than this one: what may run here does, what may not is refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import rlx_mlir as rlx
from rlx_mlir import Artifact, Executable, GraphModule, ir, native
from rlx_mlir.errors import ExecutionError
from rlx_mlir.lowering.machine import instructions, machine
from rlx_mlir.runtime.processor import lacking, relied_on

TRIPLE, CPU, LLVM_FEATURES = ir.native.host_target()
ARCHITECTURE, NAME, MODEL, FEATURES = native.host_processor()
X86 = TRIPLE.startswith("x86_64")
needs_x86 = pytest.mark.skipif(not X86, reason="names of x86-64")
#: Names of LLVM's, from the oldest 64-bit processor on, of both makers, some with AVX-512 and AMX.
NAMES = (
    *("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"),
    *("nehalem", "haswell", "skylake", "skylake-avx512", "alderlake", "sapphirerapids", "graniterapids"),
    *("btver2", "znver1", "znver2", "znver3", "znver4", "znver5"),
)
#: Words of features that say how to compile, not what a processor has.
HINTS = ("fast-", "slow-", "false-deps", "prefer-", "tuning", "macrofusion", "branchfusion", "vzeroupper", "idivq")


def small() -> GraphModule:
    """A product and a sum along rows: loops that are vectorised, with a remainder."""
    m = GraphModule.hir("small")
    x, w = m.input("x", ["rows", 37]), m.param("w", [37, 19])
    m.set_outputs({"y": m.softmax(m.mm(x, w), -1)})
    return m


def test_what_a_library_says_that_it_needs() -> None:
    """What is there of the target and ends a process elsewhere, in the order of names."""
    arm = {"triple": "aarch64-linux-gnu", "features": "+sve,-sme,+neon"}
    assert relied_on(arm) == ["neon", "sve"]
    x86 = {"triple": "x86_64-linux-gnu", "features": "+fma,+ermsb,-avx512f,+avx2,+rdrnd"}
    assert relied_on(x86) == ["avx2", "fma"]


def needs(cpu: str) -> list[str]:
    """What code for the CPU needs and this processor lacks."""
    return lacking(instructions(TRIPLE, machine(cpu=cpu)[2]), FEATURES, "x86_64")


@needs_x86
@pytest.mark.parametrize("cpu", NAMES)
@pytest.mark.quick(1)
def test_code_for_another_processor_runs_or_is_refused_by_name(cpu: str) -> None:
    missing = needs(cpu)
    assert not [name for name in missing if name.startswith(HINTS)]
    if missing:
        named = re.escape(f"a processor ({cpu}) with {', '.join(missing)}, which this one ({NAME}) lacks")
        with pytest.raises(ExecutionError, match=named):
            rlx.compile(small(), cpu=cpu, cache=False)
        return
    executable = rlx.compile(small(), cpu=cpu, cache=False)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 37)).astype(np.float32), rng.standard_normal((37, 19)).astype(np.float32)
    executable.set_params({"w": w})
    e = np.exp((x @ w) - (x @ w).max(-1, keepdims=True))
    np.testing.assert_allclose(executable.run({"x": x})["y"], e / e.sum(-1, keepdims=True), rtol=2e-5, atol=1e-6)


@needs_x86
def test_names_of_both_kinds_are_tried() -> None:
    assert not needs("x86-64")
    assert lacking("+avx512f,+fma", "+fma,-avx512f", "x86_64") == ["avx512f"]
    assert lacking("+from-the-future,+sse2", "+sse2", "x86_64") == ["from-the-future"]


@needs_x86
def test_this_processor_by_its_name_is_this_processor() -> None:
    """A hypervisor may hide instructions that LLVM knows the processor to have, but none that code has by itself."""
    if "avx512f" in {word[1:] for word in machine(cpu=CPU)[2].split(",")} and "+avx512f" not in FEATURES.split(","):
        pytest.skip("the vectors of this processor are switched off")
    assert needs(CPU) == []


@needs_x86
def test_a_file_for_another_processor_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    made = rlx.compile(small(), cache=False).artifact
    target = {**made.target, "cpu": "another", "features": f"{made.target['features']},+avx512none"}
    made.__class__(**{**vars(made), "target": target}).save(tmp_path / "other.rlx")
    with pytest.raises(ExecutionError, match=r"a processor \(another\) with avx512none, which this one"):
        Executable(Artifact.load(tmp_path / "other.rlx"))


@needs_x86
def test_hints_of_the_processor_are_not_in_the_file() -> None:
    target = rlx.compile(small(), cpu="x86-64", cache=False).artifact.target
    assert target["cpu"] == "x86-64"
    assert not [word for word in target["features"].split(",") if word[1:].startswith(HINTS)]
    assert set(ir.native.tuning_features(TRIPLE)).isdisjoint(word[1:] for word in target["features"].split(","))
    with pytest.raises(ValueError, match="target 'nowhere'"):
        ir.native.tuning_features("nowhere")


@pytest.mark.parametrize(
    ("needed", "here", "expected"),
    [
        ("+neon,+dotprod", "+neon,+dotprod", []),
        ("+neon,+dotprod", "+neon,-dotprod", ["dotprod"]),
        ("+neon,+v8.2a,+ras,+a76", "+neon,-dotprod", []),
        ("+sve2,+sve", "+sve,-sve2", ["sve2"]),
    ],
)
def test_features_of_arm_are_those_that_linux_lists(needed: str, here: str, expected: list[str]) -> None:
    assert lacking(needed, here, "aarch64") == expected


def words_of(features: str) -> dict[str, bool]:
    return {word[1:]: word[0] == "+" for word in features.split(",")}


@needs_x86
def test_the_processor_is_what_llvm_says_it_is() -> None:
    """Of every feature that LLVM asks the processor for, not of some."""
    assert words_of(FEATURES) == words_of(LLVM_FEATURES)
    assert TRIPLE.partition("-")[0] == ARCHITECTURE
    maker, _, numbers = MODEL.partition(" ")
    assert f"vendor_id\t: {maker}" in Path("/proc/cpuinfo").read_text()
    family, number, stepping = numbers.split("/")
    for title, value in (("cpu family", family), ("model", number), ("stepping", stepping)):
        assert re.search(rf"^{title}\s*: {value}$", Path("/proc/cpuinfo").read_text(), re.M)


@needs_x86
def test_every_feature_that_code_can_need_is_asked_for() -> None:
    """Those of all CPUs that LLVM knows, but what all have, what says how to compile, and what no code of ours has."""
    needed = {word for cpu in NAMES for word in lacking(instructions(TRIPLE, machine(cpu=cpu)[2]), "", "x86_64")}
    assert needed <= set(words_of(FEATURES))
