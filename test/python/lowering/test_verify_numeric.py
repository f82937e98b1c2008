# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numeric verification: sound modules pass, and a bug planted anywhere is found, and named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from covering import products

from rlx_mlir import GraphModule, compile, formats, ir
from rlx_mlir.dialects import mir
from rlx_mlir.errors import CompileError, InputError, NumericError
from rlx_mlir.lowering import fuse, hir_to_mir, kernel_specs, parameters, plan
from rlx_mlir.mir.registry import TO_LINALG
from rlx_mlir.rewriting import PatternSet, Rewriter, operations, recording, run_pipeline
from rlx_mlir.rewriting.pipelines import pass_name, split
from rlx_mlir.rewriting.steps import clone
from rlx_mlir.runtime import prepare
from rlx_mlir.semantics.function import Argument, arguments
from rlx_mlir.verify import NumericVerifier, compare_modules
from rlx_mlir.verify.inputs import perturbed, rounding_unit, samples
from rlx_mlir.verify.tolerance import Expected, difference

Patch = pytest.MonkeyPatch


def mlp(policy: str = "fusable", dtype: str = "f32") -> GraphModule:
    m = GraphModule.hir("mlp", policy=policy)
    x = m.input("x", ["batch", "seq", 64], dtype)
    w, b, g = m.param("w", [64, 128], dtype), m.param("b", [128], dtype), m.param("g", [64], dtype)
    h = m.linear(x, w, b, activation="silu", name="up")
    y = m.linear(h, m.param("down", [128, 64], dtype), name="down")
    m.set_outputs({"logits": m.residual_rms_norm(y, x, g, eps=0.25, name="norm")})
    return m


def packed_mlp() -> GraphModule:
    m = GraphModule.hir("packed")
    x = m.input("x", ["seq", 64])
    up, gate, down = (m.param(name, shape, packed="q4_1") for name, shape in _SHAPES.items())
    h = m.swiglu(x, gate_w=gate, up_w=up, down_w=down, name="ffn")
    m.set_outputs({"y": m.rms_norm(h, m.param("g", [64]), name="norm")})
    return m


_SHAPES = {"up": [96, 64], "gate": [96, 64], "down": [64, 96]}


def verify(module: GraphModule, **options: Any) -> None:
    compile(module, cache=False, verify="numeric", threads=1, **options)


def failure(module: GraphModule, **options: Any) -> NumericError:
    """What numeric verification says of the module."""
    with pytest.raises(NumericError) as caught:
        verify(module, **options)
    return caught.value


def plant(patch: Patch, patterns: PatternSet, name: str, rewrite: Callable[[Any, Rewriter], None]) -> None:
    """Replaces what a pattern of a set does, for the time of a test."""

    def rewritten(op: Any, rewriter: Rewriter) -> None:
        rewrite(op, rewriter)

    rewritten.__name__ = name
    planted = [replace(p, rewrite=rewritten) if p.name == name else p for p in patterns]
    assert planted != list(patterns), f"no pattern is named {name}"
    patch.setattr(patterns, "_patterns", planted)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, start=1) if text in line and "line_of" not in line)


# Sound modules ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "dtype"), products(["fusable", "direct"], ["f32", "bf16", "f16"], meeting=1))
def test_sound_modules_pass(policy: str, dtype: str) -> None:
    verify(mlp(policy, dtype))


@pytest.mark.parametrize("options", [{}, {"activations": "int8"}, {"disable_templates": ("all",)}], ids=str)
@pytest.mark.quick(3)
def test_packed_weights_pass_in_every_way(options: dict[str, Any]) -> None:
    verify(packed_mlp(), **options)


def test_a_plan_without_memory_is_not_interpreted() -> None:
    """One kernel, whose sizes are known: the planned function is a call, as before, but on buffers."""
    m = GraphModule.mir("single")
    m.set_outputs(m.silu(m.matmul(m.input("x", [4, 16]), m.param("w", [16, 8]))))
    verify(m)


def decoder() -> GraphModule:
    """A block with caches that are overwritten, and positions that must lie in them."""
    m = GraphModule.hir("decoder")
    x, pos = m.input("x", [1, "seq", 32]), m.input("pos", [1], "i32")
    caches = {name: m.input(name, [1, "context", 16]) for name in ("k", "v")}
    shapes = {"q_w": [32, 32], "k_w": [32, 16], "v_w": [32, 16], "o_w": [32, 32]}
    shapes |= {"gate_w": [32, 48], "up_w": [32, 48], "down_w": [48, 32]}
    weights = {name: m.param(name, shape) for name, shape in shapes.items()}
    norms = {name: m.param(name, [32]) for name in ("ln1_gamma", "ln2_gamma")}
    tables = {name: m.param(name, ["context", 4]) for name in ("cos", "sin")}
    y, k, v = m.llama_decoder_block(
        x, **norms, **weights, **tables, k_cache=caches["k"], v_cache=caches["v"], pos=pos, num_heads=4,
        num_kv_heads=2, head_dim=8, mask_kind="causal", name="blk.0",
    )  # fmt: skip
    m.set_outputs({"y": y, "k": k, "v": v}, tied={"k": caches["k"], "v": caches["v"]})
    return m


@pytest.mark.wide
def test_a_decoder_block_passes_with_its_caches() -> None:
    verify(decoder())


def test_samples_that_do_not_fit_are_skipped_and_told() -> None:
    verifier = NumericVerifier(decoder().ir_module)
    assert len(verifier.samples) + len(verifier.skipped) == 6
    assert len(verifier.samples) >= 4


@pytest.mark.wide
def test_sizes_stay_below_declared_maxima() -> None:
    verify(packed_mlp(), maxima={"seq": 2})


# Bugs in patterns ---------------------------------------------------------------------------------


def test_a_bug_in_a_lowering_pattern_is_named_with_its_block_and_line(monkeypatch: Patch) -> None:
    def forget_residual(op: Any, rewriter: Rewriter) -> None:
        rewriter.replace(op, mir.rms_norm(mir.add(op.x, op.x), op.gamma, eps=op.eps))

    plant(monkeypatch, hir_to_mir.PATTERNS, "lower_residual_rms_norm_to_primitives", forget_residual)
    error = failure(mlp())
    assert error.culprit == "hir-to-mir"
    line = line_of('name="norm")})\n'.rstrip())
    assert str(error).startswith("after pass 'hir-to-mir': output 'logits' differs: at [")
    assert (
        "pattern 'lower_residual_rms_norm_to_primitives' on 'hir.residual_rms_norm' in block 'norm' "
        f"({__file__}:{line})" in str(error)
    )


def test_a_bug_in_a_fusion_pattern_is_told_from_sound_rewrites_of_the_pass(monkeypatch: Patch) -> None:
    sound = next(p.rewrite for p in fuse.BIAS_ACT if p.name == "fuse_activation")

    def wrong_activation(op: Any, rewriter: Rewriter) -> None:
        linear = fuse.producer(op.x, mir.FusedMatmulBiasActOp)
        if linear is None:
            return sound(op, rewriter)
        fused = mir.fused_matmul_bias_act(linear.x, linear.weight, linear.bias, activation="relu")
        return rewriter.replace(op, fused)

    plant(monkeypatch, fuse.BIAS_ACT, "fuse_activation", wrong_activation)
    error = failure(mlp())
    assert error.culprit == "mir-fuse-matmul-bias-act"
    assert "pattern 'fuse_activation' on 'mir.silu' in block 'up'" in str(error)
    assert error.reproducer is not None
    text = Path(error.reproducer).read_text()
    assert "--rlx-verify-numerics" in text.splitlines()[0]
    assert "mir.silu" in text


def test_a_bug_that_shows_in_one_element_of_one_size_is_found(monkeypatch: Patch) -> None:
    def stop_at_four(op: Any, rewriter: Rewriter) -> None:
        whole = fuse.shape_of(op.result)
        index = mir.constant(ir.DenseElementsAttr.get(np.minimum(np.arange(whole[0], dtype=np.int32), 3)))
        rewriter.replace(op, mir.gather(mir.rms_norm(op.x, op.gamma, eps=op.eps), index, axis=0))

    m = GraphModule.hir("rows")
    m.set_outputs({"y": m.rms_norm(m.input("x", [5, 8]), m.param("g", [8]), name="norm")})
    plant(monkeypatch, hir_to_mir.PATTERNS, "lower_rms_norm", stop_at_four)
    assert "output 'y' differs: at [4, " in str(failure(m))


# Bugs in passes without patterns ------------------------------------------------------------------


def outlined(m: GraphModule) -> tuple[ir.Module, ir.Module]:
    """A module before and after kernels were outlined."""
    before = clone(m.lower().ir_module)
    after = clone(before)
    run_pipeline(after, "rlx-to-kernels")
    return before, after


def test_a_change_that_no_pattern_made_is_named_by_its_operation() -> None:
    before, after = outlined(mlp())
    norm = next(op for op in operations(after) if op.name == "mir.rms_norm")
    with norm.location:
        norm.attributes["eps"] = ir.FloatAttr.get(ir.F32Type.get(), 4.0)
    with pytest.raises(NumericError, match=r"first operation with another value: 'mir.rms_norm' in block 'norm'"):
        compare_modules(before, after, step="mir-outline-kernels")


def test_operands_that_are_swapped_in_a_call_are_found() -> None:
    m = GraphModule.mir("difference")
    x, y = m.input("x", ["n", 4]), m.input("y", ["n", 4])
    m.set_outputs({"z": m.sub(m.exp(x), y, name="gap")})
    before, after = outlined(m)
    call = next(op for op in operations(after) if op.name == "func.call")
    call.operands[0], call.operands[1] = call.operands[1], call.operands[0]
    with pytest.raises(NumericError, match=r"output 'z' differs"):
        compare_modules(before, after)


def test_preparation_is_interpreted_with_the_module() -> None:
    before, after = outlined(mlp())
    compare_modules(before, after)
    transpose = next(op for op in operations(after) if op.name == "mir.transpose")
    repack = next(use.owner for use in transpose.results[0].uses)
    with after.context:
        negated = ir.Operation.create(
            "mir.neg",
            [transpose.results[0].type],
            [transpose.results[0]],
            ip=ir.InsertionPoint(repack),
            loc=repack.location,
        )
    repack.operands[0] = negated.results[0]
    with pytest.raises(NumericError):
        compare_modules(before, after)


# Passes that change values ------------------------------------------------------------------------


def test_a_pass_that_changes_values_is_held_to_its_own_tolerance(monkeypatch: Patch) -> None:
    verify(packed_mlp(), activations="int8")

    def drop_residue(op: Any, rewriter: Rewriter) -> None:
        rewriter.replace(op, mir.dequant_matmul(mir.round(op.x), op.weight))

    planted = PatternSet()
    planted.pattern(mir.DequantMatmulOp)(drop_residue)
    monkeypatch.setattr(parameters, "quantizing", lambda bits, attention, experts: planted)
    monkeypatch.setattr(parameters, "apply_patterns", lambda root, patterns: _once(root, patterns))
    error = failure(packed_mlp(), activations="int8")
    assert error.culprit == "mir-quantize-activations"
    assert "root mean square of the differences is" in str(error)
    assert "activations are rounded to integers" in str(error)


def _once(root: Any, patterns: Any) -> None:
    """Applies a pattern whose result it matches again."""
    from rlx_mlir.rewriting.patterns import Rewriter, apply_patterns, recorder_of

    products = [op for op in operations(root) if op.name == "mir.dequant_matmul"]
    report = apply_patterns(root, [])
    rewriter = Rewriter(report, recorder_of(root))
    for op in products:
        rewriter._apply(next(iter(patterns)), op)


# Bugs after the last stage that can be interpreted ------------------------------------------------


def test_a_bug_in_a_template_is_named_by_kernel_and_template(monkeypatch: Patch) -> None:
    def forget_eps(name: str, kernel: Any) -> Any:
        for op in operations(kernel):
            if "eps" in op.attributes:
                op.attributes["eps"] = ir.FloatAttr.get(ir.F32Type.get(), 0.5)
        return kernel_specs.read_rows(name, kernel)

    monkeypatch.setitem(kernel_specs.READERS, "rows", forget_eps)
    error = failure(packed_mlp())
    assert error.culprit == "rms_norm_0"
    assert "kernel 'rms_norm_0' (rows) differs from its operations: result 0 at [" in str(error)
    assert "called in block 'norm'" in str(error)
    assert "mir.rms_norm" in str(error), "the operations of the kernel are shown"


def test_a_bug_in_the_generic_path_is_named_by_its_kernel(monkeypatch: Patch) -> None:
    def sum_up(op: Any, rewriter: Rewriter) -> None:
        rewriter.replace(op, mir.neg(op.x))

    m = GraphModule.mir("m")
    m.set_outputs({"y": m.abs(m.exp(m.input("x", ["n", 3])), name="size")})
    abs_pattern = next(p for p in TO_LINALG if p.root == "mir.abs")
    plant(
        monkeypatch,
        TO_LINALG,
        abs_pattern.name,
        lambda op, r: sum_up(op, r) if op.operation.name == "mir.abs" else abs_pattern.rewrite(op, r),
    )
    error = failure(m, disable_templates=("all",))
    assert error.culprit == "exp_abs_0"
    assert "(generic: templates are disabled)" in str(error)


def test_a_bug_in_the_planner_is_named_by_the_call_that_suffers(monkeypatch: Patch) -> None:
    class Overlapping(plan.PlanReader):
        def __init__(self, module: Any) -> None:
            super().__init__(module)
            self.slots = [(0, size) for _, size in self.slots]

    monkeypatch.setattr(plan, "PlanReader", Overlapping)
    m = GraphModule.mir("chain")
    x = m.input("x", ["n", 16])
    first = m.softmax(x, name="first")
    second = m.cumsum(first, name="second")
    m.set_outputs({"y": m.cumsum(m.add(first, second), name="third")})
    error = failure(m)
    assert error.culprit == "plan"
    assert "output 'y' of the compiled module differs from the interpreted one" in str(error)
    assert "the memory was overwritten by call 1, of 'cumsum_0'" in str(error) or "overwrites its operands" in str(
        error
    )


@pytest.mark.wide
def test_a_bug_in_preparation_is_named_by_the_parameter(monkeypatch: Patch) -> None:
    repack = prepare.OPERATIONS["repack"]
    monkeypatch.setitem(prepare.OPERATIONS, "repack", lambda w, **options: np.roll(repack(w, **options), 1))
    error = failure(packed_mlp())
    assert "preparation of parameter" in str(error)
    assert error.culprit.endswith(":panels")


# Inputs and tolerances ----------------------------------------------------------------------------


def test_samples_cover_sizes_and_values() -> None:
    known = arguments(mlp().entry)
    found = list(samples(known))
    assert [s.values["x"].shape[:2] for s in found][:3] == [(1, 1), (2, 2), (3, 5)]
    assert [s.name.partition(" values")[0] for s in found[2:]] == ["normal", "zero", "large", "signed zero and small"]
    assert np.signbit(found[-1].values["x"][found[-1].values["x"] == 0]).any()
    assert not any(np.isnan(s.values["x"]).any() for s in found)
    assert np.isnan(list(samples(known, nan=True))[-1].values["x"]).any()
    assert all((s.values["w"] == found[0].values["w"]).all() for s in found), "parameters stay"


@pytest.mark.parametrize("scheme", [name for name, f in formats.FORMATS.items() if f.encodable])
def test_every_packed_format_has_values(scheme: str) -> None:
    m = GraphModule.mir("m")
    m.set_outputs({"y": m.matmul(m.input("x", [1, 256]), m.param("w", [3, 256], packed=scheme))})
    for sample in samples(arguments(m.entry)):
        assert sample.values["w"].dtype == np.uint8
        assert len(sample.values["w"]) == 3


def test_perturbed_samples_are_one_rounding_error_away() -> None:
    known: list[Argument] = arguments(mlp().entry)
    sample = next(iter(samples(known)))
    moved = perturbed(sample, known).values["x"]
    gap = np.abs(moved / sample.values["x"] - 1)
    assert 0 < gap.max() <= 4 * rounding_unit(np.dtype(np.float32))


@pytest.mark.parametrize(
    ("want", "got", "equal"),
    [
        (np.float32([1, 2]), np.float32([1, 2.0001]), False),
        (np.float32([1, 2]), np.float32([1, np.nextafter(np.float32(2), np.float32(3))]), True),
        (np.float32([0.0]), np.float32([-0.0]), True),
        (np.float32([np.nan, np.inf]), np.float32([np.nan, np.inf]), True),
        (np.float32([np.nan]), np.float32([1]), False),
        (np.float32([np.inf]), np.float32([-np.inf]), False),
        (np.float32([3e38]), np.float32([np.inf]), False),
        (np.float32([1e-9, 1]), np.float32([2e-9, 1]), True),  # where sums cancel, the error is that of larger numbers
        (np.int32([1]), np.int32([2]), False),
        (np.float32([1]), np.float64([1]), False),
        (np.float32([[1]]), np.float32([1]), False),
        (np.zeros(0, np.float32), np.zeros(0, np.float32), True),
        (np.ones(2, ml_dtypes.bfloat16), np.ones(2, ml_dtypes.bfloat16), True),
    ],
)
def test_what_counts_as_equal(want: np.ndarray, got: np.ndarray, equal: bool) -> None:
    assert (difference(Expected(want, relative=2.0**-23), got) is None) is equal


# Pipelines pass by pass ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("cse", ["cse"]),
        ("builtin.module(cse,canonicalize)", ["cse", "canonicalize"]),
        ('a{x=1,2 y="b,c"},cse', ['a{x=1,2 y="b,c"}', "cse"]),
        ("func.func(a{x=1},b),cse", ["func.func(a{x=1})", "func.func(b)", "cse"]),
        ("", []),
    ],
)
def test_pipelines_are_split(text: str, steps: list[str]) -> None:
    assert split(text) == steps


def test_named_pipelines_are_spelled_out() -> None:
    steps = split("rlx-fuse,rlx-to-kernels")
    assert steps[0] == "mir-fold-constants"
    assert steps[-1] == "mir-outline-kernels"
    assert [pass_name(s) for s in ("func.func(mir-to-linalg)", "a{x=(1)}", "cse")] == ["mir-to-linalg", "a", "cse"]


def test_a_budget_stops_rewriting_quietly() -> None:
    module = clone(mlp().ir_module)
    with recording(module, budget=1) as recorder, pytest.raises(CompileError, match="no pattern lowers"):
        run_pipeline(module, "hir-to-mir{policy=fusable}")
    assert [rewrite.op for _, report in recorder.reports for rewrite in report.rewrites] == ["hir.linear"]
    assert [name for name, _ in recorder.reports] == ["hir-to-mir"]


# Options and rlx-opt ------------------------------------------------------------------------------


def test_unknown_kinds_of_verification_are_refused() -> None:
    with pytest.raises(InputError, match=r"'verify' expects True, False or 'numeric', but got 'all'"):
        compile(mlp(), verify="all")


@pytest.mark.wide
def test_the_environment_switches_it_on(monkeypatch: Patch) -> None:
    monkeypatch.setenv("RLX_VERIFY", "numeric")
    monkeypatch.setitem(prepare.OPERATIONS, "repack", lambda w, **options: np.zeros(1, np.int8))
    with pytest.raises(NumericError):
        compile(packed_mlp())


@pytest.mark.wide
def test_verification_is_not_answered_by_the_cache(monkeypatch: Patch) -> None:
    compile(packed_mlp())
    repack = prepare.OPERATIONS["repack"]
    monkeypatch.setitem(prepare.OPERATIONS, "repack", lambda w, **options: np.roll(repack(w, **options), 1))
    with pytest.raises(NumericError):
        compile(packed_mlp(), verify="numeric")


def rlx_opt(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rlx_mlir.tools.opt", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.wide
def test_rlx_opt_verifies_each_pass(tmp_path: Path) -> None:
    file = tmp_path / "m.mlir"
    file.write_text(mlp().to_text(locations=True))
    pipeline = "hir-to-mir{policy=fusable},rlx-fuse,rlx-to-kernels,lir-plan,canonicalize"
    checked = rlx_opt("--rlx-verify-numerics", f"--pass-pipeline=builtin.module({pipeline})", str(file))
    assert checked.stdout == rlx_opt(f"--pass-pipeline=builtin.module({pipeline})", str(file)).stdout
    flags = ("--hir-to-mir=policy=fusable", "--rlx-fuse", "--rlx-to-kernels", "--lir-plan", "--canonicalize")
    timed = rlx_opt("--rlx-verify-numerics", *flags, "--mlir-timing", str(file))
    assert timed.stdout == checked.stdout  # as options, in their order, the same passes
    assert timed.stderr.count("rlx-verify-numerics") >= len(flags)
    nested = rlx_opt("--rlx-verify-numerics", "--hir-to-mir", "-mir-to-linalg", str(file))  # a pass on functions
    assert nested.stdout == rlx_opt("--hir-to-mir", "--mir-to-linalg", str(file)).stdout
    assert "--pass-pipeline=" in rlx_opt("--rlx-verify-numerics", str(file), status=1).stderr


def test_rlx_opt_compares_with_a_file(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.mlir", tmp_path / "bad.mlir"
    good.write_text(mlp().to_text(locations=True))
    bad.write_text(mlp().to_text(locations=True).replace("eps 2.5", "eps 3.5"))
    passes = "builtin.module(hir-to-mir,rlx-verify-numerics{after=hir-to-mir reference=%s})"
    rlx_opt(f"--pass-pipeline={passes % good}", str(good))
    done = rlx_opt(f"--pass-pipeline={passes % bad}", str(good), status=1)
    assert "after pass 'hir-to-mir': output 'logits' differs: at [" in done.stderr
    passes = "builtin.module(rlx-verify-numerics)"
    assert "rlx-verify-numerics{begin=true}" in rlx_opt(f"--pass-pipeline={passes}", str(good), status=1).stderr
