# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fuzzers: that they reach everything, see what is wrong, make it smaller, and find nothing in short runs."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import seeds

from rlx_mlir import formats
from rlx_mlir.compiler import Compilation, CompileOptions
from rlx_mlir.errors import InputError
from rlx_mlir.frontends.gguf import GGUFFile, write_gguf
from rlx_mlir.fuzz import bytecode, campaign, gguf, graphs, reduction, scaling, text
from rlx_mlir.fuzz.campaign import Plan
from rlx_mlir.fuzz.cases import Case, case_of
from rlx_mlir.fuzz.draft import Draft, Skip
from rlx_mlir.fuzz.operations import GENERATORS
from rlx_mlir.fuzz.pool import Worker, processor_seconds
from rlx_mlir.fuzz.sensitivity import expected
from rlx_mlir.hir import GraphModule
from rlx_mlir.lowering import kernel_specs
from rlx_mlir.mir.registry import PLANNED, REFERENCES, TERMINATORS
from rlx_mlir.models import config, special_tokens
from rlx_mlir.reports.memory import MemoryEstimate
from rlx_mlir.semantics.ops import operation_classes
from rlx_mlir.tools.interesting import is_interesting

# -- graphs ----------------------------------------------------------------------------------------------------------


def test_every_operation_has_a_generator() -> None:
    assert set(GENERATORS) == set(operation_classes()) - TERMINATORS - PLANNED  # these end regions, or are on buffers


@pytest.mark.parametrize("name", sorted(GENERATORS))
@pytest.mark.quick(22)
def test_generators_make_their_operation(name: str) -> None:
    """Of ten attempts, one succeeds; what can't be drawn says so by Skip, never by an error."""
    for attempt in range(10):
        rng = np.random.default_rng([attempt, seeds.seed()])
        draft = Draft(rng, GraphModule.hir("f"), [{"a": 0, "b": 3}, {"a": 5, "b": 1}])
        draft.floats = ("f32", "bf16", "f16", "f64")
        try:
            GENERATORS[name](draft)
        except Skip:
            continue
        assert name in {node.op for node in draft.module}
        draft.module.verify()
        return
    pytest.fail("skipped ten times")


def test_a_case_follows_from_its_number(tmp_path: Path) -> None:
    """Also in another process, where sets have another order."""
    code = (
        "from rlx_mlir.fuzz.cases import random_case\n"
        "cases = [random_case(7, i)[0] for i in range(5)]\n"
        "print(*(c.module.to_text() + str(c.runs) + str(c.options) for c in cases))"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1]
    assert "mir." in texts[0]


def test_cases_survive_their_files(tmp_path: Path) -> None:
    module = GraphModule.mir("f")
    x, w = module.input("x", ["a", 32], "bf16"), module.param("w", [3, 32], packed="q4_1")
    small = module.input("small", [4], "f8E5M2")  # numpy's files have no word for it
    module.set_outputs([module.dequant_matmul(x, w), module.cast(small, "f32")])
    case = case_of(module)
    case.options = {"level": 1}
    case.save(tmp_path / "case.mlir")
    loaded = Case.load(tmp_path / "case.mlir")
    assert loaded.module == case.module
    assert loaded.options == case.options
    for before, after in zip(case.runs, loaded.runs, strict=True):
        assert {k: (v.dtype, v.tobytes()) for k, v in before.items()} == {
            k: (v.dtype, v.tobytes()) for k, v in after.items()
        }
    (tmp_path / "other.mlir").write_text("module {}")
    with pytest.raises(InputError, match="isn't a case of the graph fuzzer"):
        Case.load(tmp_path / "other.mlir")


def chain() -> GraphModule:
    """Something before and after exp, in two outputs."""
    module = GraphModule.mir("f")
    x = module.input("x", ["a", 9])
    y = module.exp(module.tanh(x))
    module.set_outputs({"first": module.neg(y), "second": module.sum(x, 1)})
    return module


def test_wrong_results_are_found_and_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(chain())
    assert graphs.check(case)["status"] == "ok"
    right = REFERENCES["mir.exp"]
    monkeypatch.setitem(REFERENCES, "mir.exp", lambda x: right(x) * x.dtype.type(1 + 2e-5))
    found = graphs.check(case)
    assert (found["status"], found["kind"], found["output"]) == ("finding", "mismatch", "first")
    assert "elements differ, first at [0, 0]" in found["message"]
    smaller = [
        c for c in reduction.candidates(case, found["output"], found["run"]) if graphs.check(c)["status"] == "finding"
    ]
    assert min(len(c.module) for c in smaller) == 1
    single = next(c for c in smaller if len(c.module) == 1)
    assert [node.op for node in single.module] == ["mir.exp"]
    assert single.runs[0].keys() == {"cut0_0"}


def test_memory_that_was_estimated_wrongly_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    m = GraphModule.mir("f")
    m.set_outputs(m.softmax(m.cumsum(m.input("x", ["n", 4]), 0), -1))
    case = case_of(m)
    case.options["maxima"] = {"n": 5}
    assert graphs.check(case) == {"status": "ok"}
    right = GraphModule.memory_estimate

    def wrong(module: GraphModule, *arguments: Any, **options: Any) -> MemoryEstimate:
        estimate = right(module, *arguments, **options)
        return dataclasses.replace(estimate, arena=estimate.arena - 1)

    monkeypatch.setattr(GraphModule, "memory_estimate", wrong)
    found = graphs.check(case)
    assert (found["kind"], found["message"]) == ("estimate", "arena is 128 bytes, but was estimated at 127")


def differences(module: GraphModule, inputs: dict[str, Any], change: Any, runs: int = 8) -> str | None:
    """What is wrong with the module's output once `change` was applied to it."""
    own = expected(module.ir_module, inputs, runs=runs)["output0"]
    return own.difference(change(own.value.copy()))


def test_tolerance_is_that_of_the_operations() -> None:
    """An ulp of the result passes, what no rounding explains doesn't; elements at an edge may fall to either side."""
    module = GraphModule.mir("f")
    x = module.input("x", [64], "bf16")
    module.set_outputs(module.tanh(module.exp(x)))
    inputs = {"x": np.linspace(-4, -1, 64).astype(ml_dtypes.bfloat16)}
    assert differences(module, inputs, lambda y: (y.astype(np.float32) * 1.004).astype(y.dtype)) is None
    assert "64 of 64" in str(differences(module, inputs, lambda y: (y.astype(np.float32) * 1.1).astype(y.dtype)))

    edge = GraphModule.mir("f")
    edge.set_outputs(edge.round(edge.mul(edge.input("x", [2]), np.float32(0.1))))
    values = {"x": np.array([5.0, 3.0], np.float32)}  # 0.5 and 0.3, nearly
    assert differences(edge, values, lambda y: y + np.array([1, 0], np.float32), runs=40) is None
    assert "first at [1]" in str(differences(edge, values, lambda y: y + np.array([0, 1], np.float32), runs=40))


def test_nan_and_infinities_must_agree() -> None:
    module = GraphModule.mir("f")
    module.set_outputs(module.exp(module.input("x", [4])))
    inputs = {"x": np.array([np.nan, np.inf, -np.inf, 1], np.float32)}
    assert differences(module, inputs, lambda y: y) is None
    for index, wrong in ((0, 1.0), (1, np.nan), (1, -np.inf), (2, np.nan), (3, np.inf)):

        def change(y: np.ndarray, index: int = index, wrong: float = wrong) -> np.ndarray:
            y[index] = wrong
            return y

        assert f"first at [{index}]" in str(differences(module, inputs, change))


def test_rows_of_equal_elements_have_an_exact_mean() -> None:
    """What is left of them is zero, whatever else rounds."""
    module = GraphModule.mir("f")
    module.set_outputs(module.layer_norm(module.input("x", [2, 7], "f16"), module.param("g", [7], "f16")))
    values = np.full((2, 7), 60_000, np.float16)
    values[1] = np.arange(7)
    inputs = {"x": values, "g": np.ones(7, np.float16)}
    assert differences(module, inputs, lambda y: y) is None
    assert "7 of 14" in str(differences(module, inputs, lambda y: y - np.float16([[0.77], [0]])))


def test_a_bias_that_rows_share_rounds_in_those_that_are_not_equal() -> None:
    """Beside a row of equal elements too, whose mean with a bias of equal elements stays exact."""
    module = GraphModule.mir("f")
    x, residual, gamma = module.input("x", [2, 64]), module.input("r", [2, 64]), module.param("g", [64])
    module.set_outputs(module.fused_residual_layer_norm(x, residual, gamma, bias=module.param("b", [64])))
    rng = np.random.default_rng(7)
    values = {"r": rng.standard_normal((2, 64)).astype(np.float32), "x": np.zeros((2, 64), np.float32)}
    values["r"][0] = 2
    values |= {"g": np.ones(64, np.float32), "b": np.full(64, 1024, np.float32)}
    total = values["r"] + values["b"]  # in f32
    centred = total.astype(np.float64) - total.mean(-1, keepdims=True, dtype=np.float64)
    rounded = (centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)).astype(np.float32)
    assert differences(module, values, lambda y: rounded) is None
    assert "64 of 128" in str(differences(module, values, lambda y: y + np.float32([[1e-6], [0]])))


def test_tails_are_kept() -> None:
    module = GraphModule.mir("f")
    module.set_outputs(module.gelu_approx(module.input("x", [2])))
    found = expected(module.ir_module, {"x": np.array([-6, 1], np.float32)}, runs=8)["output0"]
    assert found.difference(np.array([-8.4396e-11, 0.841192], np.float32)) is None
    assert "1 of 2" in str(found.difference(np.array([0, 0.841192], np.float32)))


def test_single_elements_are_compared() -> None:
    module = GraphModule.mir("f")
    module.set_outputs(module.exp(module.input("x", [])))
    found = expected(module.ir_module, {"x": np.array(1, np.float32)}, runs=8)["output0"]
    assert found.difference(np.array(2.7182817, np.float32)) is None
    assert "1 of 1 elements differ, first at []" in str(found.difference(np.array(2.72, np.float32)))


def test_errors_that_grow_with_length_are_seen() -> None:
    """A sum from the first element to the last in f32 loses what is small."""
    module = GraphModule.mir("f")
    module.set_outputs(module.softmax(module.input("x", [1, "n"])))
    x = np.full((1, 50_000), -15, np.float32)
    x[0, 0] = 0
    weights = np.exp(x)
    serial = (weights / np.cumsum(weights, dtype=np.float32)[-1]).astype(np.float32)
    blocked = (weights / np.sum(weights, dtype=np.float64)).astype(np.float32)
    assert differences(module, {"x": x}, lambda y: blocked) is None
    assert "50000 of 50000" in str(differences(module, {"x": x}, lambda y: serial))


def test_a_bias_far_below_all_scores_masks_nothing_alone() -> None:
    """Rows of which every key has it are the mean of the values."""
    module = GraphModule.mir("f")
    q, k = module.input("q", [1, 2, 8]), module.input("k", [1, 4, 8])
    mask = module.input("mask", [1, 1, 2, 4])
    module.set_outputs(module.attention(q, k, k, mask, num_heads=1, head_dim=8, mask_kind="bias"))
    inputs = dict(case_of(module).runs[0])
    inputs["mask"][0, 0, 0] = np.finfo(np.float32).min
    mean = inputs["k"][0].mean(axis=0)

    def change(y: np.ndarray) -> np.ndarray:
        np.testing.assert_allclose(y[0, 0], mean, rtol=1e-5)
        y[0, 0] = 0
        return y

    assert differences(module, inputs, lambda y: y) is None
    assert "first at [0, 0, 0]" in str(differences(module, inputs, change))


@pytest.mark.parametrize("norm", ["layer_norm", "group_norm"])
def test_what_gradients_of_norms_leave_has_the_rounding_of_slopes(norm: str) -> None:
    """Slopes that are the operand leave nothing but what sums of large numbers lose; more than that is wrong."""
    module = GraphModule.mir("f")
    shape = [2, 8] if norm == "layer_norm" else [2, 4, 2, 1]
    x, gamma = module.input("x", shape), module.input("gamma", [8 if norm == "layer_norm" else 4])
    options = {} if norm == "layer_norm" else {"num_groups": 1}
    module.set_outputs(getattr(module, f"{norm}_backward_input")(x, gamma, x, **options))
    values = np.full((2, 8), 3, np.float32)
    values[:, 0] = 60000
    inputs = {"x": values.reshape(shape), "gamma": np.ones(gamma.shape, np.float32)}
    assert differences(module, inputs, lambda y: y + 3e-7) is None
    assert differences(module, inputs, lambda y: y + 3e-5) is not None


@pytest.mark.parametrize("dtype", ["f32", "complex<f32>"])
def test_nothing_is_expected_of_transforms_of_what_is_not_finite(dtype: str) -> None:
    """In no fixed way, as the operation says; rows beside these are compared."""
    module = GraphModule.mir("f")
    module.set_outputs(module.fft(module.input("x", [3, 4], dtype)))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    x[1, 1], x[2, 0] = np.nan, np.inf
    inputs = {"x": x.astype(np.complex64) if "complex" in dtype else x}

    def in_row(number: int, value: float) -> Any:
        def change(y: np.ndarray) -> np.ndarray:
            y[number] = value
            return y

        return change

    for value in (np.nan, -np.inf, 1.5):
        assert differences(module, inputs, in_row(1, value), runs=60) is None
        assert differences(module, inputs, in_row(2, value), runs=60) is None
        assert differences(module, inputs, in_row(0, value)) is not None


def test_exponents_with_rules_of_their_own_are_exact() -> None:
    module = GraphModule.mir("f")
    module.set_outputs(module.pow(module.input("x", [2]), module.input("y", [2])))
    inputs = {"x": np.array([-np.inf, 4], np.float32), "y": np.array([0.5, 0.5], np.float32)}
    own = expected(module.ir_module, inputs, runs=6)["output0"]
    assert np.isfinite(own.spread).all()


def test_roundings_that_are_left_out_are_seen() -> None:
    """Each element is as near as a rounding, but too many of them differ."""
    module = GraphModule.mir("f")
    x, y = module.input("x", [8, 64], "bf16"), module.input("y", [8, 64], "bf16")
    module.set_outputs(module.rms_norm(module.add(x, y), module.param("g", [64], "bf16")))
    inputs = case_of(module).runs[0]
    own = expected(module.ir_module, inputs, runs=6)["output0"]
    wide = {name: value.astype(np.float32) for name, value in inputs.items()}

    def result(total: np.ndarray) -> np.ndarray:
        scale = np.sqrt(np.mean(total * total, axis=-1, keepdims=True) + 1e-5)
        return (total / scale * wide["g"]).astype(ml_dtypes.bfloat16)

    kept = result((inputs["x"] + inputs["y"]).astype(np.float32))
    dropped = result(wide["x"] + wide["y"])
    assert own.difference(kept) is own.difference(dropped) is None
    assert own.dropped_roundings(kept) is None
    assert "have other bits; rounding errors explain 0.0%" in str(own.dropped_roundings(dropped))


def test_rows_alone_are_rows_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A way that computes few rows otherwise is found; what isn't a batch, such as a sum along it, isn't compared."""
    module = GraphModule.mir("f")
    module.set_outputs(module.softmax(module.input("x", ["n", 9])))
    case = case_of(module)
    assert graphs.check(case)["status"] == "ok"
    right = graphs._run

    def run(executable: Any, values: Any) -> Any:
        got = right(executable, values)
        return {name: array * np.float32(1 + 2.0**-22) if len(array) == 1 else array for name, array in got.items()}

    monkeypatch.setattr(graphs, "_run", run)
    found = graphs.check(case)
    assert found["kind"] == "batch"
    assert "has other bits for slice(2, 3, None) of 'n' alone" in found["message"]
    whole = GraphModule.mir("f")
    whole.set_outputs(whole.softmax(whole.input("x", ["n", 9]), 0))
    assert graphs.check(case_of(whole))["status"] == "ok"


def apart_case() -> Case:
    """Exact operations of bf16 that are one kernel, and without fusion two."""
    module = GraphModule.mir("f")
    x, y = module.input("x", [4, 40], "bf16"), module.input("y", [4, 40], "bf16")
    module.set_outputs(module.mul(module.add(x, y), y))
    case = case_of(module)
    return Case(module, case.runs, {"apart": True})


def test_without_fusion_each_operation_is_a_kernel() -> None:
    module = apart_case().module
    counts = [len(Compilation(module, CompileOptions(), apart=apart).artifact().calls) for apart in (False, True)]
    assert counts == [1, 2]


def test_bits_do_not_depend_on_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of exact operations; a rounding that only fused kernels leave out is found."""
    case = apart_case()
    assert graphs.check(case)["status"] == "ok"
    monkeypatch.setattr(graphs, "_kept_roundings", lambda *_: None)  # it sees more than this, in large numbers
    monkeypatch.setattr(kernel_specs, "rounding_of", lambda op: "")
    found = graphs.check(case)
    assert (found["status"], found["kind"]) == ("finding", "bits")
    assert "has other bits with" in found["message"]


def test_nan_has_no_bits_of_its_own() -> None:
    nan = np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32)
    assert graphs._same_bits(nan, nan[::-1].copy())
    assert not graphs._same_bits(np.float32([0, 1]), np.float32([-0.0, 1]))
    assert not graphs._same_bits(nan, np.float32([1, 1]))


def test_cases_of_every_kind_are_drawn() -> None:
    """Large ones at any rank, results of no pixel."""
    large, shapes = Draft(np.random.default_rng(seeds.seed()), GraphModule.hir("f"), [{"a": 300}], large=True), []
    for _ in range(100):
        shapes.append([large.largest(dim) for dim in large.shape(3, 4)])
    assert sum(max(shape) > 65 for shape in shapes) > 20
    assert sum(int(np.prod(shape)) > 40_000 for shape in shapes) > 3
    empty = 0
    for attempt in range(100):
        draft = Draft(np.random.default_rng([attempt, seeds.seed()]), GraphModule.hir("f"), [{"a": 3}])
        GENERATORS["mir.conv"](draft)
        empty += any(0 in node.results[0].shape[2:] for node in draft.module)
    assert 1 <= empty < 50


@pytest.mark.wide
def test_short_run_of_graphs_finds_nothing(tmp_path: Path) -> None:
    report = campaign.run(Plan("graphs", seed=1 + seeds.seed(), count=6, out=tmp_path / "out"))
    assert report.cases == 6
    assert [found.message for found in report.findings] == []
    assert sum(report.ops.values()) >= 6
    assert not (tmp_path / "out").exists()


# -- children --------------------------------------------------------------------------------------------------------

VICTIM = """
import os, time
def prepare(): pass
def handle(task):
    if task["do"] == "abort": os.abort()
    if task["do"] == "exit": os._exit(3)
    if task["do"] == "sleep": time.sleep(60)
    if task["do"] == "allocate": bytearray(1 << 30)
    if task["do"] == "raise": raise KeyError("k")
    print("noise")
    return {"status": "ok"}
"""


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "victims").mkdir()
    (tmp_path / "victims" / "cases.py").write_text(VICTIM)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    worker = Worker("victims.cases", seconds=1.0, megabytes=100)
    worker.run({"do": "nothing"})  # the time for the start is over
    yield worker
    worker.close()


def test_children_may_crash_hang_and_run_out_of_memory(victim: Worker) -> None:
    for do, kind, message in (
        ("abort", "crash", "SIGABRT: Fatal Python error: Aborted"),
        ("exit", "crash", "exit status 3"),
        ("allocate", "memory", "MemoryError"),
        ("raise", "exception", "KeyError: 'k'"),
    ):
        outcome = victim.run({"do": do})
        assert (outcome["status"], outcome["kind"]) == ("finding", kind)
        assert message in outcome["message"]
        assert victim.run({"do": "nothing"}) == {"status": "ok"}
    assert victim.run({"do": "sleep"})["kind"] == "hang"


def test_findings_with_one_cause_are_one() -> None:
    first = {"kind": "compile", "message": "templates: PassError: pass 'p': block 'a' (/x/y.py:1): size 3 of 'k'"}
    second = {"kind": "compile", "message": "templates: PassError: pass 'p': /z/y.mlir:9: size 71 of 'w'"}
    assert campaign.signature(first) == campaign.signature(second)
    assert campaign.signature(first) != campaign.signature({**first, "kind": "crash"})


def test_who_owns_a_crash() -> None:
    start = (
        " #0 0x00 llvm::sys::PrintStackTrace(llvm::raw_ostream&, int) (/libLLVM.so+0)\n #1 0x00 (/lib/libc.so.6+0x3)\n"
    )
    upstream = (
        " #2 0x00 mlir::Operation::clone() (/m/libMLIR.so+0x1)\n #3 0x00 mlir::PassManager::run() (/m/x.so+0x2)\n"
    )
    ours = " #2 0x00 (/p/rlx_mlir/_compiler.cpython-311.so+0x1890fa)\n"
    linked = " #2 0x00 mlir::ReductionNode::initialize() (/p/rlx_mlir/_compiler.cpython-311.so+0x1)\n"
    python = (
        " #2 0x00 mlirOperationErase (/m/libMLIRPythonCAPI.so+0x1)\n #3 0x00 _PyEval_EvalFrameDefault /p/ceval.c:1\n"
    )
    for trace, owner in ((upstream, "upstream"), (ours, "ours"), (linked, "upstream"), (python, "ours")):
        assert campaign.owner_of({"kind": "crash", "details": start + trace}) == owner
    assert campaign.owner_of({"kind": "exception", "details": ""}) == "ours"


# -- files and text --------------------------------------------------------------------------------------------------


def test_sources_are_files_that_are_read() -> None:
    """So that what is refused is refused for the mutation's sake; and fields make up the file."""
    for number, source in enumerate(gguf.sources()):
        data = source.data
        fields, rest = gguf.split(data)
        assert b"".join(f.data for f in fields) + rest == data
        if number >= 3 and b"tokenizer.ggml.model" in data:  # the first ones are tiny, and so is a second part
            assert {f.role for f in fields} >= {"key", "#value type", "#rank", "#dimension", "#offset", "strings"}


def test_sources_have_every_type_and_both_files_of_a_model(tmp_path: Path) -> None:
    types = set()
    for source in gguf.sources():
        if source.other is None and b"tokenizer.ggml.model" not in source.data:
            continue  # no model
        for number, data in ((source.number, source.data), (1 - source.number, source.other)):
            if data is not None:
                source.path(tmp_path / "m.gguf", number).write_bytes(data)
        path = source.path(tmp_path / "m.gguf", source.number)
        file = GGUFFile.single(path)
        types |= {info.type for info in file.tensors.values()}
        if source.other is not None:
            assert len(GGUFFile(path).tensors) == len(file.tensors) + len(GGUFFile.from_bytes(source.other).tensors)
            assert gguf.read_everything(path)
    missing = {fmt.name for fmt in formats.FORMATS_BY_ID.values() if fmt.has_blocks} - types
    assert missing == {"q2_k", "q5_k"}


@pytest.mark.wide
def test_short_run_of_files_finds_nothing(tmp_path: Path) -> None:
    report = campaign.run(Plan("gguf", seed=3 + seeds.seed(), count=150, out=tmp_path))
    assert [found.message for found in report.findings] == []
    assert report.statuses["refused"] > 60
    assert report.statuses["ok"] > 10


def read_small(tmp_path: Path, **changes: Any) -> bool:
    """A small model with other metadata (None: without) read as the fuzzer reads it."""
    source = tmp_path / "source.gguf"
    source.write_bytes(next(own.data for own in gguf.sources() if b"<|eom_id|>" in own.data))
    with GGUFFile(source) as file:
        metadata = {key: file.metadata[key] for key in file.metadata} | {
            key.replace("__", "."): value for key, value in changes.items()
        }
        tensors = {name: (info.type, file.tensor(name), info.shape) for name, info in file.tensors.items()}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    return gguf.read_everything(write_gguf(tmp_path / "small.gguf", metadata, tensors))


@pytest.mark.parametrize(
    "changes",
    [
        {"llama__rope__scaling__type": None},
        {"llama__rope__scaling__type": None, "llama__rope__scaling__factor": None},
        {"llama__rope__scaling__factor": None, "llama__rope__scale_linear": 2.0},
        {"llama__rope__dimension_count": None, "llama__rope__freq_base": None},
        {"tokenizer__ggml__eos_token_id": None, "tokenizer__ggml__eot_token_id": None},
        {"tokenizer__ggml__add_bos_token": None, "tokenizer__ggml__pre": None, "split__count": 1},
    ],
)
def test_what_files_leave_out_has_a_meaning(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert read_small(tmp_path, **changes)


@pytest.mark.parametrize("changes", [{"llama__attention__value_length": None}, {"split__count": 2, "split__no": 0}])
def test_what_files_leave_out_may_be_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert not read_small(tmp_path, **changes)


def test_another_meaning_of_what_is_left_out_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "_rope_scale", lambda keys: keys.number("rope.scaling.factor", 1.0))
    assert read_small(tmp_path)
    with pytest.raises(AssertionError, match=r"'rope_scale' is 1\.0, but 2\.0 with the defaults spelled out"):
        read_small(tmp_path, llama__rope__scaling__factor=None, llama__rope__scale_linear=2.0)
    monkeypatch.setattr(special_tokens, "_ENDING_IDS", ("eos",))
    with pytest.raises(AssertionError, match="tokens don't end generation: eot 7"):
        read_small(tmp_path)
    monkeypatch.setattr(config, "_check_kind", lambda file: None)
    with pytest.raises(AssertionError, match="one of 3 files is read as a whole model"):
        read_small(tmp_path, split__count=3)


def test_a_large_file_is_mutated_in_its_header(tmp_path: Path) -> None:
    source = tmp_path / "large.gguf"
    name = {"general.architecture": "llama", "general.name": "large", "llama.block_count": 1}
    write_gguf(source, name, {"token_embd.weight": np.zeros((64, 1), np.float32)})
    data = source.read_bytes()
    source.write_bytes(data.replace(struct.pack("<QQ", 1, 64), struct.pack("<QQ", 1 << 22, 64)))
    with source.open("r+b") as file:
        file.truncate(len(data) - 256 + (1 << 30))  # weights as a hole
    GGUFFile(source).close()
    report = campaign.run(Plan("gguf", seed=4, count=10, out=tmp_path, settings={"source": str(source)}))
    assert report.findings == []
    assert report.cases == 10


@pytest.mark.wide
def test_short_run_of_text_finds_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "f.mlir").write_text(
        "// RUN: x\nfunc.func @f(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {\n  return %x : tensor<4x8xf32>\n}\n"
    )
    plan = Plan("text", seed=5 + seeds.seed(), count=120, out=tmp_path, settings={"corpus": [str(folder)]})
    report = campaign.run(plan)
    assert [found.message for found in report.findings if found.owner == "ours"] == []
    assert report.statuses["refused"] > 10
    assert report.statuses["ok"] > 10


def test_every_documented_example_is_in_the_corpus() -> None:
    texts = "".join(text.corpus(()))
    assert all(name in texts for name in operation_classes())


def test_the_whole_corpus_is_read(tmp_path: Path) -> None:
    """Each file; a folder without any is an error."""
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.mlir").write_text(f"// RUN: x\nmodule @{name} {{}}\n// -----\nmodule @{name}2 {{}}\n")
    found = text.corpus((str(tmp_path),))
    for name in ("a", "a2", "b", "b2", "c", "c2"):
        assert found.count(f"module @{name} {{}}\n") == 4
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"the corpus .*empty has no file"):
        text.corpus((str(tmp_path / "empty"),))
    folders = text.default_folders()
    files = [path for folder in folders for path in Path(folder).rglob("*.mlir")]
    assert len(set(text.corpus(folders))) > len(files)


def test_bytes_follow_from_their_number() -> None:
    """Bytecode, damaged, and text that is nested or long; what isn't damaged is read."""
    made = [bytecode.random_case(np.random.default_rng(i), ()) for i in range(60)]
    assert made == [bytecode.random_case(np.random.default_rng(i), ()) for i in range(60)]
    assert sum(data.startswith(b"ML\xefR") for data in made) > 30
    assert sum(len(data) > 5000 for data in made) > 1
    assert bytecode.check(chain().bytecode()) == {"status": "ok"}
    assert bytecode.check(b"module {}") == {"status": "refused"}
    assert bytecode.check(b"ML\xefR") == {"status": "refused"}


@pytest.mark.parametrize(("power", "status"), [(1.0, "ok"), (1.2, "ok"), (2.0, "finding"), (3.0, "finding")])
def test_time_that_grows_faster_than_modules(power: float, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Families are measured at one size and twice that until it takes long."""
    monkeypatch.setattr(scaling, "_seconds", lambda module: 0.1 + 0.3 * (len(module) / 32) ** power)
    found = scaling.check({"family": "separate_chain", "size": 16, "seed": 1})
    assert found["status"] == status


@pytest.mark.parametrize("name", sorted(scaling.FAMILIES))
def test_families_double(name: str) -> None:
    """Twice the size is about twice as much of something."""

    def size(count: int) -> int:
        module = scaling.FAMILIES[name](count, np.random.default_rng(0))
        module.verify()
        return len(module.to_text())

    assert 1.8 < (size(64) - size(32)) / (size(32) - size(16)) < 2.4


def test_cases_replay(tmp_path: Path) -> None:
    case = case_of(chain())
    case.save(tmp_path / "case.mlir")
    command = [sys.executable, "-m", "rlx_mlir.tools.cli", "fuzz", "replay", str(tmp_path / "case.mlir")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n")
    case.runs[0]["x"] = case.runs[0]["x"][:, :3]
    case.save(tmp_path / "case.mlir")
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["kind"] == "interpret"
    other = tmp_path / "other.mlir"
    other.write_text("module {}")
    with pytest.raises(InputError, match="isn't a case of a fuzzer"):
        campaign.replay(other)


def test_a_run_needs_an_end() -> None:
    with pytest.raises(InputError, match="a number of cases or of minutes"):
        Plan("graphs")


# -- reducing --------------------------------------------------------------------------------------------------------

MODULE = """
func.func private @unused() -> tensor<f32>
func.func @f(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>, %g: tensor<8xf32>, %i: index) -> (tensor<4x8xf32>, index) {
  %s = mir.add %x, %r : tensor<4x8xf32>
  %n = mir.rms_norm %s, %g eps 0.25 : tensor<4x8xf32>, tensor<8xf32>
  %e = mir.exp %n : tensor<4x8xf32>
  %t = mir.tanh %e : tensor<4x8xf32>
  return %t, %i : tensor<4x8xf32>, index
}
"""


@pytest.mark.slow
def test_rlx_reduce_keeps_what_is_interesting(tmp_path: Path) -> None:
    """The test is the command `rlx interesting`; here what `rlx-opt` prints has exp."""
    (tmp_path / "f.mlir").write_text(MODULE)
    script = tmp_path / "test.sh"
    script.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m rlx_mlir.tools.cli interesting text --match "mir.exp" "$1"\n'
    )
    script.chmod(0o755)
    command = [
        sys.executable,
        "-m",
        "rlx_mlir.tools.reduce",
        str(tmp_path / "f.mlir"),
        f"--rlx-reduce-graph=test={script}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert " ".join(done.stdout.split()) == (
        "module { func.func @f(%arg0: tensor<4x8xf32>) -> tensor<4x8xf32> { %0 = mir.exp %arg0 : tensor<4x8xf32> "
        "return %0 : tensor<4x8xf32> } }"
    )
    script.write_text("#!/bin/sh\nexit 0\n")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the test doesn't find the module interesting as it is" in done.stderr


def test_rlx_reduce_reduces_forty_operations(tmp_path: Path) -> None:
    """In a chain of 40 one is interesting: it stays, and reads an argument."""
    lines, last = [], "%x"
    for number in range(40):
        name = f"%v{number}"
        lines.append(
            f"{name} = mir.tanh {last} : tensor<4xf32>"
            if number == 23
            else f"{name} = mir.add {last}, %y : tensor<4xf32>"
        )
        last = name
    header = "func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {"
    (tmp_path / "f.mlir").write_text("\n".join([header, *lines, f"return {last} : tensor<4xf32>", "}"]))
    script = tmp_path / "test.sh"
    script.write_text('#!/bin/sh\ngrep -q mir.tanh "$1" && exit 1\nexit 0\n')
    script.chmod(0o755)
    option = f"--rlx-reduce-graph=test={script}"
    command = [sys.executable, "-m", "rlx_mlir.tools.reduce", str(tmp_path / "f.mlir"), option]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert " ".join(done.stdout.split()) == (
        "module { func.func @f(%arg0: tensor<4xf32>) -> tensor<4xf32> { %0 = mir.tanh %arg0 : tensor<4xf32> "
        "return %0 : tensor<4xf32> } }"
    )


def test_what_is_interesting(tmp_path: Path) -> None:
    file = tmp_path / "f.mlir"
    file.write_text(MODULE)
    assert is_interesting(file, "text", text=r"mir\.tanh")
    assert not is_interesting(file, "text", text="error")
    assert is_interesting(file, "text", text="argument 3 is index", arguments=("--lir-plan",))
    assert not is_interesting(file, "crash")


def test_mismatches_are_interesting(tmp_path: Path) -> None:
    """A module that is right isn't; `graphs.check` finds those that are wrong."""
    file = tmp_path / "f.mlir"
    file.write_text(chain().to_text())
    assert not is_interesting(file, "mismatch")


def test_processor_time_is_what_ran() -> None:
    program = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass\nprint(); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 0.4 <= processor_seconds(process.pid) < 60
        process.communicate(b"\n")
    assert processor_seconds(process.pid) == math.inf
