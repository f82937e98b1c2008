# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reports of fusion and dispatch, tables of stages, dumps of passes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import blocks, run, shell
from test_cli import rlx

import rlx_mlir
from rlx_mlir import Executable, GraphModule, compile, emit
from rlx_mlir.errors import CompileError, InputError, StageError
from rlx_mlir.rewriting import PatternSet, apply_patterns, recording, run_pipeline
from rlx_mlir.rewriting.recording import recorder_of
from rlx_mlir.rewriting.steps import clone
from rlx_mlir.runtime.dispatch import dispatch_report
from rlx_mlir.runtime.shown import size_text


def mlp() -> GraphModule:
    m = GraphModule.hir("mlp", policy="fusable")
    x = m.input("x", ["batch", "seq", 64])
    h = m.linear(x, m.param("w", [64, 128]), m.param("b", [128]), activation="silu", name="up")
    y = m.linear(h, m.param("q", [64, 128], packed="q4_1"), name="down")
    m.set_outputs({"y": m.cumsum(m.rms_norm(y, m.param("g", [64]), name="norm"), name="sum")})
    return m


# Fusion -------------------------------------------------------------------------------------------


def test_fusion_report_says_what_was_joined_and_where() -> None:
    module = mlp()
    before = module.to_text()
    report = module.fusion_report()
    assert [(step, r.pattern, r.op) for step, r in report.fused][:2] == [
        ("mir-fuse-matmul-bias-act", "fuse_bias", "mir.add"),
        ("mir-fuse-matmul-bias-act", "fuse_activation", "mir.silu"),
    ]
    assert report.before["mir.matmul"] == 1
    assert report.after["mir.fused_matmul_bias_act"] == 1
    text = str(report)
    assert text.startswith("fusion report of 'mlp': 6 -> 4 operations\n")
    assert re.search(r"1  fuse_bias \(mir-fuse-matmul-bias-act\): block 'up' \(test_reports\.py:\d+\)", text)
    assert "mir.fused_matmul_bias_act +1" in text
    assert module.to_text() == before


def other_readers(m: GraphModule, x: Any) -> Any:
    product = m.matmul(x, m.param("w", [8, 8]), name="product")
    return m.mul(m.add(product, m.param("b", [8]), name="bias"), product)


def matrix_bias(m: GraphModule, x: Any) -> Any:
    return m.add(m.matmul(x, m.param("w", [8, 8])), m.param("b", [4, 8]), name="bias")


def broadcast_residual(m: GraphModule, x: Any) -> Any:
    return m.rms_norm(m.add(x, m.param("b", [8])), m.param("g", [8]), name="norm")


def two_gates(m: GraphModule, x: Any) -> Any:
    other = m.exp(x)
    gate, up = m.matmul(x, m.param("g", [8, 8])), m.matmul(other, m.param("u", [8, 8]))
    return m.mul(m.silu(gate), up, name="gated")


def other_formats(m: GraphModule, x: Any) -> Any:
    wide = m.concat([x] * 4, axis=1)
    first, second = (m.param(name, [8, 32], packed=name) for name in ("q4_0", "q8_0"))
    return m.sub(m.matmul(wide, first, name="first"), m.matmul(wide, second))


def computed_weight(m: GraphModule, x: Any) -> Any:
    first = m.matmul(x, m.exp(m.input("w", [8, 8])), name="first")
    return m.sub(first, m.matmul(x, m.param("v", [8, 8])))


def no_axis(m: GraphModule, x: Any) -> Any:
    return m.rms_norm(m.add(x, x), m.param("g", [4]), axis=0, name="norm")


def other_gate(m: GraphModule, x: Any) -> Any:
    gate, up = m.matmul(x, m.param("g", [8, 8])), m.matmul(x, m.param("u", [8, 8]))
    return m.sub(m.mul(m.silu(gate), up, name="gated"), gate)


def other_weights(m: GraphModule, x: Any) -> Any:
    gate = m.matmul(x, m.param("g", [8, 8]))
    up = m.matmul(x, m.param("u", [8, 8]), transpose_rhs=True)
    return m.mul(m.silu(gate), up, name="gated")


def thirds(m: GraphModule, x: Any) -> Any:
    gate, up = m.narrow(x, 1, 0, 4), m.narrow(x, 1, 2, 4)
    return m.mul(m.silu(gate), up, name="gated")


def shared_half(m: GraphModule, x: Any) -> Any:
    gate, up = m.narrow(x, 1, 0, 4), m.narrow(x, 1, 4, 4)
    return m.add(m.mul(m.silu(gate), up, name="gated"), up)


def integers(m: GraphModule, x: Any) -> Any:
    whole = m.cast(x, "i32")
    return m.add(m.matmul(whole, m.param("w", [8, 8], "i32")), m.param("b", [8], "i32"), name="bias")


def rounded(m: GraphModule, x: Any) -> Any:
    return m.add(m.matmul(m.cast(x, "f16"), m.param("w", [8, 8], "f16")), m.param("b", [8], "f16"), name="bias")


def read_sum(m: GraphModule, x: Any) -> Any:
    total = m.add(m.matmul(x, m.param("w", [8, 8])), m.param("b", [8]))
    return m.mul(m.gelu(total, name="act"), total)


def read_residual(m: GraphModule, x: Any) -> Any:
    total = m.add(x, m.exp(x))
    return m.mul(m.layer_norm(total, m.param("g", [8]), m.param("c", [8]), name="norm"), total)


def outer(m: GraphModule, x: Any) -> Any:
    return m.dot_general(x, x, name="dot")


def few_channels(m: GraphModule, x: Any) -> Any:
    return m.conv2d(m.reshape(x, [1, 1, 4, 8]), m.param("w", [2, 1, 3, 3]), name="conv")


def read_product(m: GraphModule, x: Any) -> Any:
    product = m.matmul(x, m.param("w", [8, 8]))
    return m.add(m.matmul(product, m.param("v", [8, 8])), m.exp(product, name="after"))


def column(m: GraphModule, x: Any) -> Any:
    return m.mul(m.matmul(x, m.param("w", [8, 8])), m.param("c", [4, 1]), name="after")


def compared(m: GraphModule, x: Any) -> Any:
    return m.compare("lt", m.matmul(x, m.param("w", [8, 8])), x, name="after")


def widened(m: GraphModule, x: Any) -> Any:
    return m.add(m.matmul(x, m.param("w", [8, 8])), m.input("z", [2, 4, 8]), name="after")


def image_columns(m: GraphModule, x: Any) -> Any:
    y = m.conv2d(m.input("i", [1, 8, 5, 5]), m.param("w", [12, 8, 3, 3]))
    return m.add(y, m.param("c", [3]), name="after")


def f64_image(m: GraphModule, x: Any) -> Any:
    y = m.conv2d(m.input("i", [1, 8, 5, 5], "f64"), m.param("w", [12, 8, 3, 3], "f64"))
    return m.relu(y, name="after")


def many(m: GraphModule, x: Any) -> Any:
    for number in range(17):
        x = m.exp(x, name=f"e{number}")
    return x


def not_rows(m: GraphModule, x: Any) -> Any:
    return m.mul(m.softmax(m.reshape(x, [2, 2, 8])), m.param("c", [2, 1, 8]), name="after")


@pytest.mark.parametrize(
    ("build", "pattern", "block", "reason"),
    [
        (computed_weight, "fuse_siblings", "first", "its weight isn't a parameter"),
        (no_axis, "fuse_residual", "norm", "the norm isn't over the last axis"),
        (read_residual, "fuse_residual", "norm", "the sum has other readers"),
        (other_gate, "fuse_dual_matmul", "gated", "a product has other readers"),
        (other_weights, "fuse_dual_matmul", "gated", "the weights differ in type, or aren't static matrices"),
        (thirds, "fuse_halves", "gated", "the slices aren't the two halves of the last axis"),
        (shared_half, "fuse_halves", "gated", "a half has other readers"),
        (integers, "fuse_bias", "bias", "the product is of integers"),
        (rounded, "fuse_bias", "bias", "one operation would round less often"),
        (read_sum, "fuse_activation", "act", "the sum has other readers"),
        (outer, "dot_to_matmul", "dot", "nothing is summed: each element of one operand meets each of the other"),
        (few_channels, "conv_to_matmul", "conv", "a group has 2 outputs, sums of 9: too few for a product"),
        (read_product, "join_kernel", "after", "something else reads what the product makes"),
        (column, "join_kernel", "after", "beside the product it reads what is neither of the product's shape"),
        (compared, "join_kernel", "after", "a product's kernel ends with functions of floats"),
        (widened, "join_kernel", "after", "its result has another shape or element type than the product's"),
        (image_columns, "join_kernel", "after", "beside the convolution it reads what is neither of the convolution's"),
        (f64_image, "join_kernel", "after", "loops compute the convolution: convolutions of f64 have no template"),
        (many, "join_kernel", "e16", "the kernel before has 16 operations already, and takes no more"),
        (not_rows, "join_kernel", "after", "kernels of rows have functions of floats of one type"),
        (other_readers, "fuse_bias", "bias", "the product has other readers"),
        (matrix_bias, "fuse_bias", "bias", "what is added isn't a vector as long as the product's rows"),
        (broadcast_residual, "fuse_residual", "norm", "the sum broadcasts an operand"),
        (two_gates, "fuse_dual_matmul", "gated", "the products have different inputs"),
        (other_formats, "fuse_siblings", "first", "1 more of its kind read the same value, but their weights"),
    ],
)
def test_fusion_report_says_what_was_not_joined_and_why(
    build: Callable[[GraphModule, Any], Any], pattern: str, block: str, reason: str
) -> None:
    m = GraphModule.mir("m")
    m.set_outputs({"y": build(m, m.input("x", [4, 8]))})
    report = m.fusion_report()
    found = [miss for _, miss in report.missed if miss.pattern == pattern and miss.reason.startswith(reason)]
    assert [miss.where.partition(" (")[0] for miss in found] == [f"block '{block}'"]
    text = str(report)
    assert "\nnot fused\n" in text
    assert reason in text
    assert f"-> {found[0].hint}" in text or not found[0].hint


@pytest.mark.parametrize(
    ("weight", "x", "reason"),
    [
        (["o", 8, 3, 3], ["n", 8, 9, 9], "the number of channels is dynamic"),
        ([8, 8, 3, 3], [0, 8, 9, 9], "an operand is empty"),
        ([64, 64, 3, 3], ["n", 64, "h", "w"], "its columns would take 301994496 bytes, more than 67108864"),
        ([64, 64, 3, 3], [64, 64, 130, 130], "its columns would take 1207959552 bytes, more than 67108864"),
    ],
)
def test_reasons_for_convolutions_to_stay(weight: list[Any], x: list[Any], reason: str) -> None:
    m = GraphModule.mir("m")
    m.set_outputs({"y": m.conv2d(m.input("x", x, "f16"), m.param("w", weight, "f16"))})
    assert [miss.reason for _, miss in m.fusion_report().missed if miss.reason.startswith(reason)]


def test_a_convolution_with_a_template_misses_nothing() -> None:
    m = GraphModule.mir("m")
    m.set_outputs({"y": m.conv2d(m.input("x", ["n", 8, "h", "w"]), m.param("w", [8, 8, 3, 3]))})
    assert not m.fusion_report().missed


def test_the_report_has_what_kernels_join() -> None:
    m = GraphModule.mir("m")
    x = m.input("x", ["n", 8])
    h = m.mul(m.exp(m.matmul(x, m.param("w", [8, 8]))), x, name="last")
    gated = m.mul(m.gelu(m.matmul(h, m.param("g", [8, 8]))), m.matmul(h, m.param("u", [8, 8])), name="gated")
    m.set_outputs({"y": m.silu(m.rms_norm(gated, m.param("c", [8])), name="act")})
    report = m.fusion_report()
    joined = [(r.pattern, r.where.partition(" (")[0]) for step, r in report.fused if step == "mir-outline-kernels"]
    assert joined == [
        ("dequant_matmul, exp, mul", "block 'last'"),  # packed in panels
        ("dequant_matmul, gelu, dequant_matmul, mul", "block 'gated'"),
        ("rms_norm, silu", "block 'act'"),
    ]
    report.assert_clean()


def test_quantised_activations_are_part_of_the_report() -> None:
    assert "mir-quantize-activations" not in str(mlp().fusion_report())
    assert "quantize_product (mir-quantize-activations): block 'down'" in str(mlp().fusion_report(activations="int8"))


def test_fusion_reports_that_are_clean(tmp_path: Path) -> None:
    mlp().fusion_report().assert_clean()
    m = GraphModule.mir("shared")
    x, w = m.input("x", [4, 64]), m.param("w", [64, 32])
    product = m.matmul(x, w)
    m.set_outputs({"y": product + m.param("b", [32]), "z": m.silu(product)})
    report = m.fusion_report()
    assert report.missed
    with pytest.raises(
        CompileError, match=r"(?s)'shared' has operations that could be joined, but aren't\n +1  \w+"
    ) as raised:
        report.assert_clean()
    assert report.missed[0][1].reason in str(raised.value)
    (tmp_path / "shared.mlir").write_text(m.to_text())
    for options, status in (([], 0), (["--json", "--assert-clean"], 1), (["--assert-clean"], 1)):
        done = rlx("report", tmp_path / "shared.mlir", *options, status=status)
        assert ("could be joined, but aren't" in done.stderr) == bool(status)


def test_fusion_report_needs_a_stage_before_fusion() -> None:
    module = GraphModule.from_text(emit(mlp(), "kernels"))
    with pytest.raises(StageError, match=r"test_reports\.py:\d+: module 'mlp' is at stage kernels"):
        module.fusion_report()


def test_recording_ends_with_its_block() -> None:
    module, other = clone(mlp().ir_module), clone(mlp().ir_module)
    with recording(module) as outer:
        with recording(module) as inner:
            run_pipeline(module, "hir-to-mir")
        assert recorder_of(module) is outer
        assert recorder_of(other) is None
    assert recorder_of(module) is None
    assert inner.reports
    assert not outer.reports
    apply_patterns(module, PatternSet())


# Dispatch -----------------------------------------------------------------------------------------


def test_dispatch_report_lists_kernels_by_work() -> None:
    executable = compile(mlp(), cache=False, threads=1, disable_templates=("gemm_amx_f32", "gemm_digits"))
    report = executable.dispatch_report({"seq": 4})
    rows = {row.name: row for row in report.kernels}
    assert list(report.kernels) == sorted(report.kernels, key=lambda row: -row.work)
    assert sum(row.work for row in report.kernels) == pytest.approx(1)
    assert rows["cumsum_0"].template == "generic"
    assert rows["cumsum_0"].reason == "kernels of class 'scan' have no template"
    gemm = next(row for row in report.kernels if row.kind == "gemm")
    assert (gemm.template, gemm.calls, gemm.reason) == ("gemm_panels", 1, "")
    text = str(report)
    assert text.startswith("dispatch report of 'mlp': 4 kernels, 4 calls; work for batch = 512, seq = 4\n")
    assert "calls by template: gemm_panels 2" in text
    assert "cumsum_0: kernels of class 'scan' have no template" in text


def test_dispatch_report_has_times_after_profiling() -> None:
    executable = compile(mlp(), cache=False, threads=1)
    assert all(row.seconds is None for row in executable.dispatch_report().kernels)
    shapes = {spec.name: spec for spec in executable.params}
    executable.set_params({n: np.zeros(s.shape, np.uint8 if s.packed else np.float32) for n, s in shapes.items()})
    executable.profile()
    executable.run({"x": np.ones((1, 2, 64), np.float32)})
    report = executable.dispatch_report()
    assert all(row.seconds is not None and row.seconds >= 0 for row in report.kernels)
    assert " us" in str(report)


def bound_parameters(executable: Executable) -> tuple[np.ndarray, ...]:
    """The parameters as code reads them."""
    shapes = {spec.name: spec for spec in executable.params}
    executable.set_params({n: np.zeros(s.shape, np.uint8 if s.packed else np.float32) for n, s in shapes.items()})
    bound = executable._bound
    assert bound is not None
    return bound.arrays


def test_dispatch_report_counts_bytes() -> None:
    m = GraphModule.mir("memory")
    x, cache = m.input("x", ["n", 64]), m.input("cache", [1, 8, 64])
    w, packed = m.param("w", [64, 48]), m.param("packed", [40, 64], packed="q4_0")
    biased = m.matmul(x, w) + m.constant(np.arange(48, dtype=np.float32)) * m.param("scale", [48])
    new = m.cache_update(cache, m.reshape(m.narrow(x, 0, 0, 1), [1, 1, 64]), m.input("pos", [1], "i32"))
    outputs = {"y": m.sum(m.silu(biased), 0), "z": m.dequant_matmul(x, packed), "cache_out": new}
    m.set_outputs(outputs, tied={"cache_out": cache})
    executable = compile(m, cache=False, maxima={"n": 100})
    found, most = executable.dispatch_report({"n": 5}).memory, executable.dispatch_report().memory
    assert found.code == most.code == len(executable.artifact.code)
    assert found.parameters == 64 * 48 * 4 + 40 * 64 // 32 * 18 + 48 * 4
    assert found.prepared >= 48 * 4
    assert found.constants == 48 * 4
    assert found.arena == most.arena == executable.artifact.arena_bytes
    assert (found.inputs, most.inputs) == (5 * 256 + 8 * 256 + 4, 100 * 256 + 8 * 256 + 4)
    assert (found.outputs, most.outputs) == (48 * 4 + 5 * 160, 48 * 4 + 100 * 160)
    assert found.donated == most.donated == 8 * 256
    read = sum(array.nbytes for array in bound_parameters(executable))
    assert found.peak_donated == read + found.arena + found.inputs + found.outputs
    assert found.peak == found.peak_donated + 8 * 256
    text = str(executable.dispatch_report({"n": 5}))
    assert ", inputs 3.3 KiB, outputs 992 B, donated 2.0 KiB, peak " in text
    assert ", peak donated " in text
    assert found.scratch == executable._plan.scratch_bytes * executable.threads > 0
    assert f", scratch {size_text(found.scratch)}" in text
    assert dispatch_report(executable.artifact).memory.scratch is None  # no code is loaded
    assert "scratch" not in str(dispatch_report(executable.artifact).memory)


def test_dispatch_report_says_which_templates_were_disabled() -> None:
    report = compile(mlp(), cache=False, disable_templates=("all",)).dispatch_report()
    assert {row.template for row in report.kernels} == {"generic"}
    assert {row.reason for row in report.kernels} == {"templates are disabled"}
    with pytest.raises(InputError, match=r"test_reports\.py:\d+: 'mlp' has no symbol 'heads', it has batch, seq"):
        compile(mlp()).dispatch_report({"heads": 2})


# Stages -------------------------------------------------------------------------------------------


def test_inspect_at_its_own_stage_is_the_modules_inspect() -> None:
    module = mlp()
    assert rlx_mlir.inspect(module) == rlx_mlir.inspect(module, "hir") == module.inspect()


def test_inspect_mir_shows_what_lowering_changed() -> None:
    text = rlx_mlir.inspect(mlp(), "mir")
    assert text.startswith("mir module @mlp: 6 operations, 1 inputs, 4 params, 1 outputs\n")
    assert "hir -> mir: 4 -> 6 operations\n  hir.linear 2 -> 0" in text


def test_inspect_kernels_is_a_table_of_kernels_and_calls() -> None:
    text = rlx_mlir.inspect(mlp(), "kernels")
    assert text.startswith("kernels module @mlp: 4 kernels, 4 calls, 2 prepared parameters\n")
    assert re.search(r"\n  dequant_matmul_add_silu_0  gemm +1  dequant_matmul, add, silu\n", text)
    assert "    w:panels = repack(transpose(w))\n" in text
    assert re.search(r'%0 +dequant_matmul_add_silu_0\(%x, %w:panels, %b\) +"up" test_reports\.py:\d+\n', text)
    assert "mir -> kernels: 6 -> 9 operations" in text


def test_inspect_lir_shows_memory_and_calls() -> None:
    text = rlx_mlir.inspect(mlp(), "lir", maxima={"batch": 1, "seq": 8})
    lines = text.splitlines()
    assert lines[0] == "lir module @mlp: 4 kernels, 4 calls, 3 buffers"
    assert lines[1] == "  arena: 6.0 KiB, 2.0 KiB less than without reuse (8.0 KiB), aligned to 64 bytes"
    assert lines[2] == "  sizes: batch <= 1, seq <= 8"
    assert "  input  x: [batch, seq, 64] f32" in lines
    assert "  output y: [batch, seq, 64] f32" in lines
    assert re.search(r'\n +0 +4096  b0 +0 +1  dequant_matmul_add_silu_0 "up" test_reports\.py:\d+\n', text)
    assert re.search(r'\n +3  cumsum_0\(b2, y\) +"sum" test_reports\.py:\d+\n', text)


@pytest.mark.parametrize("stage", ["mir", "kernels", "lir"])
def test_inspect_starts_at_mir_too(stage: str) -> None:
    lowered = mlp().lower()
    assert rlx_mlir.inspect(lowered, stage).startswith(f"{stage} module @mlp")


def test_inspect_refuses_what_it_cannot_show() -> None:
    with pytest.raises(InputError, match=r"test_reports\.py:\d+: 'stage' expects one of hir, mir, kernels, lir, but got 'llvm'"):  # fmt: skip  # noqa: E501
        rlx_mlir.inspect(mlp(), "llvm")
    with pytest.raises(InputError, match="'module' expects a GraphModule"):
        rlx_mlir.inspect("text")  # type: ignore[arg-type]
    with pytest.raises(StageError, match="past stage hir"):
        rlx_mlir.inspect(mlp().lower(), "hir")


@pytest.mark.parametrize("stage", ["mir", "kernels", "lir", "linalg", "llvm"])
def test_emitted_modules_say_their_stage(stage: str) -> None:
    text = emit(mlp(), stage)
    assert "hir.policy" not in text
    if stage != "llvm":
        assert re.search(rf'^module attributes {{.*mir\.stage = "{stage}"}}', text, re.MULTILINE)
    if stage in ("mir", "kernels", "lir"):
        assert GraphModule.from_text(text).stage == stage


# Dumps --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of dumps, where two files were before."""
    folder = tmp_path_factory.mktemp("dumps") / "mlp"
    folder.mkdir()
    (folder / "099-old.mlir").write_text("")
    (folder / "notes.txt").write_text("mine")
    compile(mlp(), dump_dir=folder.parent)
    return folder


@pytest.mark.wide
def test_dumps_hold_what_each_pass_changed(dumped: Path) -> None:
    names = sorted(file.name for file in dumped.glob("*.mlir"))
    assert names[:3] == ["000-input-hir.mlir", "001-hir-to-mir.mlir", "002-mir-fuse-matmul-bias-act.mlir"]
    assert not any("fuse-swiglu" in name for name in names), "that pass changes nothing"
    fused = (dumped / names[2]).read_text()
    assert fused.startswith("// mlp, after mir-fuse-matmul-bias-act\n")
    assert "mir.fused_matmul_bias_act" in fused
    assert 'loc("up"' in fused
    (bufferized,) = (file for file in dumped.glob("*one-shot-bufferize.mlir"))
    text = bufferized.read_text()
    assert "@cumsum_0.body" in text
    assert "@rms_norm_0.body" not in text, "kernels with templates don't change there"


def test_every_dump_is_a_module(dumped: Path) -> None:
    from rlx_mlir import ir

    files = sorted(dumped.glob("*.mlir"))
    assert len(files) > 20
    for file in files:
        ir.Module.parse(file.read_text(), ir.new_context()).operation.verify()


def test_the_overview_lists_passes_with_changes_and_sizes(dumped: Path) -> None:
    overview = (dumped / "README.md").read_text()
    size = (dumped / "001-hir-to-mir.mlir").stat().st_size
    row = rf"\| \[001-hir-to-mir\.mlir\]\(001-hir-to-mir\.mlir\) \| {size} \| 8 \| hir\.linear -2, .* \| mlp of 1 \|"
    assert re.search(row, overview)
    assert "- 001: `hir-to-mir{policy=fusable}`" in overview
    assert not (dumped / "099-old.mlir").exists()
    assert (dumped / "notes.txt").exists(), "only files of ours are replaced"


def test_dumps_are_written_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    m = GraphModule.mir("small")
    m.set_outputs({"y": m.exp(m.input("x", [4]))})
    compile(m)
    monkeypatch.setenv("RLX_DUMP_DIR", str(tmp_path))
    compile(m)
    assert (tmp_path / "small" / "README.md").exists(), "the cache isn't asked"


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"test_reports\.py:\d+: 'dump_dir' is a folder that can be written"):
        compile(mlp(), dump_dir=tmp_path / "file")


# Command line -------------------------------------------------------------------------------------


def test_commands_report_and_inspect(tmp_path: Path) -> None:
    file = tmp_path / "m.mlir"
    file.write_text(mlp().to_text(locations=True))
    report = rlx("report", str(file)).stdout
    assert "fusion report of 'mlp'" in report
    assert "dispatch report of 'mlp'" in report
    assert rlx("emit", str(file), "--stage", "lir", "--inspect").stdout.startswith("lir module @mlp: 5 kernels")
    assert (
        "expects one of hir, mir, kernels, lir"
        in rlx("emit", str(file), "--stage", "asm", "--inspect", status=1).stderr
    )


#: What programs on the page print, among other things.
_PRINTED = {
    "states.py": "rounded to 8 bits",
    "ranges.py": "1 safe, 1 may overflow",
    "resumed.py": "tanh of 64 is 1.0",
}


@pytest.mark.slow
def test_the_page_on_debugging_runs(tmp_path: Path) -> None:
    found = blocks("docs/debugging.md")
    assert {block.language for block in found} == {"python", "sh"}
    for block in found:
        if block.language == "sh":
            output = shell(block.text, tmp_path)
            assert "fusion report of 'mlp'" in output
            assert "lir module @mlp" in output
            continue
        assert block.file is not None
        (tmp_path / block.file).write_text(block.text)
        output = run([sys.executable, block.file], tmp_path)
        if block.file == "look.py":
            assert "dispatch report of 'mlp'" in output
            assert (tmp_path / "dumps" / "mlp" / "README.md").exists()
            assert (tmp_path / "dumps" / "mlp" / "diff.html").exists()
        else:
            assert _PRINTED[block.file] in output


def test_the_report_names_what_its_reader_can_do() -> None:
    """Products that attention reads are quantised with the others, and no option is recommended that nothing takes."""
    m = GraphModule.mir("projections")
    x = m.input("x", [1, 4, 64])
    q, k, v = (m.matmul(x, m.param(name, [64, 64], packed="q8_0")) for name in ("q", "k", "v"))
    m.set_outputs({"y": m.attention(q, k, v, num_heads=4, head_dim=16)})
    text = str(m.fusion_report(activations="int8"))
    assert "quantize_product (mir-quantize-activations): block 'dequant_matmul'" in text
    assert "stays exact" not in text
    assert "mir-quantize-activations{" not in text
