# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What people read when compiling fails: the line of theirs, the block, the parameter; and nothing of our own code."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlx_mlir import GraphModule, compile, emit, interpret, ir
from rlx_mlir.codegen.cpu.registry import generate
from rlx_mlir.errors import CompileError, InputError, PassError, RlxError, StageError, UnsupportedError
from rlx_mlir.lowering import cpu, fuse, hir_to_mir
from rlx_mlir.mir.registry import DIM_RULES, REFERENCES, TO_LINALG
from rlx_mlir.rewriting import PatternSet, Rewriter, run_pipeline
from rlx_mlir.semantics.function import arguments
from rlx_mlir.unsupported import nearest
from rlx_mlir.verify.inputs import samples

Patch = pytest.MonkeyPatch
#: A frame of ours, or the header of a traceback.
OURS = re.compile(r"rlx_mlir/\w+|Traceback|File \"")


def model() -> GraphModule:
    m = GraphModule.hir("model")
    x = m.input("x", ["seq", 32])
    with m.scope("blk.0"):
        h = m.linear(x, m.param("blk.0.attn_q.weight", [32, 32]), name="q")
        h = m.rms_norm(h, m.param("blk.0.attn_norm.weight", [32]), name="norm")
    with m.scope("blk.1"):
        h = m.linear(h, m.param("blk.1.attn_q.weight", [32, 32]), name="q")
        h = m.rms_norm(h, m.param("blk.1.attn_norm.weight", [32]), name="norm")
    m.set_outputs({"y": m.softmax(h, name="probabilities")})
    return m


def line_of(text: str) -> str:
    """`file:line` of the first line here that holds the text."""
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{next(i for i, line in enumerate(lines, start=1) if text in line)}"


NORM = line_of('"blk.0.attn_norm.weight"')
LINEAR = line_of('"blk.0.attn_q.weight"')


def failure(call: Callable[[], Any], kind: type[RlxError] = CompileError) -> tuple[str, RlxError]:
    """The text of the error of a call, which has no frames of ours in it."""
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert not OURS.search(text.replace("rlx-reproducers", "")), text
    return text, caught.value


def without(patterns: PatternSet, *roots: str) -> list[Any]:
    return [p for p in patterns if p.root not in roots]


def break_pattern(patch: Patch, patterns: PatternSet, name: str) -> None:
    """Makes a pattern raise what a mistake in it would."""

    def mistake(op: Any, rewriter: Rewriter) -> None:
        raise KeyError("scale")

    mistake.__name__ = name
    patch.setattr(patterns, "_patterns", [replace(p, rewrite=mistake) if p.name == name else p for p in patterns])


# Operations that can't be compiled ----------------------------------------------------------------


def test_every_operation_that_nothing_lowers_is_listed_at_once(monkeypatch: Patch) -> None:
    monkeypatch.setattr(hir_to_mir.PATTERNS, "_patterns", without(hir_to_mir.PATTERNS, "hir.linear", "hir.rms_norm"))
    monkeypatch.setattr(TO_LINALG, "_patterns", without(TO_LINALG, "mir.softmax"))
    text, _ = failure(lambda: compile(model(), cache=False), UnsupportedError)
    first, *lines = text.splitlines()
    assert first == "'model' has 5 operations that can't be compiled"
    assert len(lines) == 3
    assert f"'hir.linear' in block 'blk.0.q' ({LINEAR}) with 'blk.0.attn_q.weight' (and 1 more): no pattern" in lines[0]
    assert f"'hir.rms_norm' in block 'blk.0.norm' ({NORM})" in lines[1]
    assert "no pattern lowers the block to primitives" in lines[1]
    assert "'mir.softmax' in block 'probabilities'" in lines[2]
    assert "no pattern lowers the operation to loops" in lines[2]


def test_a_missing_rule_for_sizes_is_named(monkeypatch: Patch) -> None:
    monkeypatch.delitem(DIM_RULES, "mir.softmax")
    text, _ = failure(lambda: emit(model(), "lir"), UnsupportedError)
    assert "'mir.softmax' in block 'probabilities'" in text
    assert "it has no rule for sizes" in text


def test_a_missing_reference_is_named_when_the_module_is_interpreted(monkeypatch: Patch) -> None:
    monkeypatch.delitem(REFERENCES, "hir.rms_norm")
    m = model()
    (sample, *_) = samples(arguments(m.entry))
    text, _ = failure(lambda: interpret(m, sample.values), UnsupportedError)
    assert f"'hir.rms_norm' in block 'blk.0.norm' ({NORM}) with 'blk.0.attn_norm.weight' (and 1 more)" in text
    assert "it has no numpy reference" in text


OTHERS = """
func.func @f(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = math.tanh %x : tensor<4x8xf32>
  %1 = arith.addf %0, %x : tensor<4x8xf32>
  %2 = arith.addf %1, %x : tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}
"""


def test_operations_of_other_dialects_are_listed_with_the_nearest_of_ours() -> None:
    text, _ = failure(lambda: GraphModule.from_text(OTHERS), StageError)
    first, *lines = text.splitlines()
    assert first == "a module at stage mir holds operations of mir, func, but this one has"
    assert lines == [
        "  'arith.addf' in line 4 (and 1 more); the nearest that there is: mir.add",
        "  'math.tanh' in line 3; the nearest that there is: mir.tanh",
    ]


MISSPELT = """
func.func @f(%x: tensor<4x8xf32>, %g: tensor<8xf32> {mir.kind = "param", mir.name = "g"}) -> tensor<4x8xf32> {
  %0 = mir.rmsnorm %x, %g eps 0.25 : tensor<4x8xf32>, tensor<8xf32>
  %1 = "mir.softmaxx"(%0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = mir.rmsnorm %1, %g eps 0.25 : tensor<4x8xf32>, tensor<8xf32>
  %3 = mir.silu %2 : tensor<4x8xf32>
  return %3 : tensor<4x8xf32>
}
"""


@pytest.mark.parametrize("as_file", [False, True])
def test_operations_that_do_not_exist_are_all_listed(as_file: bool, tmp_path: Path) -> None:
    file = tmp_path / "m.mlir"
    file.write_text(MISSPELT)
    text, _ = failure(lambda: GraphModule.from_text(file if as_file else MISSPELT), InputError)
    first, *lines = text.splitlines()
    assert first == f"{file if as_file else 'the IR'} has operations that don't exist"
    assert lines == [
        "  'mir.rmsnorm' in line 3 (and 1 more); the nearest that there is: mir.rms_norm",
        "  'mir.softmaxx' in line 4; the nearest that there is: mir.softmax",
    ]


def test_a_block_at_stage_mir_is_refused_with_its_place() -> None:
    text, _ = failure(lambda: GraphModule.from_text(model().to_text(locations=True), stage="mir"), StageError)
    assert text.startswith("a module at stage mir has no operations of hir, but this one has\n")
    assert f"'hir.linear' in block 'blk.0.q' ({LINEAR}) with 'blk.0.attn_q.weight' (and 1 more)" in text


@pytest.mark.parametrize(
    ("name", "close"),
    [("mir.rmsnorm", "mir.rms_norm"), ("hir.rmsnorm", "hir.rms_norm"), ("x.tanh", "mir.tanh"), ("mir.zzz", "")],
)
def test_the_nearest_spelling(name: str, close: str) -> None:
    assert nearest(name, ["mir.rms_norm", "hir.rms_norm", "mir.tanh"]) == close


# Failures of passes -------------------------------------------------------------------------------


def test_a_mistake_in_a_pattern_names_block_line_parameter_pass_and_reproducer(monkeypatch: Patch) -> None:
    break_pattern(monkeypatch, hir_to_mir.PATTERNS, "lower_rms_norm")
    text, error = failure(lambda: compile(model(), cache=False), PassError)
    assert isinstance(error, PassError)
    assert error.pass_name == "hir-to-mir"
    assert text.splitlines()[0] == (
        f"pass 'hir-to-mir': 'hir.rms_norm' in block 'blk.0.norm' ({NORM}) with 'blk.0.attn_norm.weight': "
        "pattern 'lower_rms_norm': KeyError: 'scale'"
    )
    assert error.reproducer is not None
    reproducer = Path(error.reproducer).read_text()
    assert "hir-to-mir{policy=direct}" in reproducer.splitlines()[0]
    assert "// " in reproducer
    assert 'raise KeyError("scale")' in reproducer, "the traceback is in the file, for whoever mends the pattern"


def test_a_mistake_in_a_fusion_pattern_names_the_primitive(monkeypatch: Patch) -> None:
    break_pattern(monkeypatch, fuse.SHARED_INPUT, "fuse_siblings")
    text, _ = failure(lambda: compile(model(), cache=False))
    assert "pass 'mir-fuse-shared-input': 'mir.matmul' in block 'blk.0.q'" in text


def test_a_mistake_in_a_rule_for_sizes_names_kernel_and_block(monkeypatch: Patch) -> None:
    module = model()
    monkeypatch.setitem(DIM_RULES, "mir.softmax", lambda op, operands: operands[7])
    text, _ = failure(lambda: compile(module, cache=False))
    assert "'mir.softmax' in block 'probabilities'" in text
    assert "IndexError" in text


def test_a_mistake_in_a_template_says_how_to_go_round_it(monkeypatch: Patch) -> None:
    def mistake(kernels: str, *of_kernel: Any) -> tuple[str, str]:
        if kernels == "gemm":
            raise IndexError("list index out of range")
        return generate(kernels, *of_kernel)

    monkeypatch.setattr(cpu, "generate", mistake)
    text, _ = failure(lambda: compile(model(), cache=False))
    assert text.startswith(
        "pass 'cpu-apply-templates': kernel 'dequant_matmul_0': 'mir.dequant_matmul' in block 'blk.0.q' "
        f"({LINEAR}): IndexError: list index out of range; disable_templates=('gemm',) compiles"
    )
    compile(model(), cache=False, disable_templates=("gemm",))


def broken(kernels: str, *of_kernel: Any, line: str) -> tuple[str, str]:
    """The code of a kernel, with one more line where it is one of rows."""
    template, text = generate(kernels, *of_kernel)
    if kernels != "rows":
        return template, text
    lines = text.splitlines()
    lines.insert(next(i for i, own in enumerate(lines) if ".body(" in own) + 1, line)
    return template, "\n".join(lines)


def test_code_of_a_template_that_does_not_parse_names_the_kernel(monkeypatch: Patch) -> None:
    monkeypatch.setattr(cpu, "generate", lambda *kernel: broken(*kernel, line="%x = arith.addd 1 : index"))
    text, _ = failure(lambda: compile(model(), cache=False))
    assert "kernel 'rms_norm_softmax_0': 'mir.rms_norm' in block 'blk.1.norm'" in text
    assert "arith.addd" in text


def test_code_of_a_template_that_does_not_lower_names_kernel_block_and_line(monkeypatch: Patch) -> None:
    cast = "%odd = builtin.unrealized_conversion_cast %begin : index to i77\n"
    cast += "%back = builtin.unrealized_conversion_cast %odd : i77 to i8\n"
    cast += "memref.store %back, %scratch[%begin] : memref<?xi8>"
    monkeypatch.setattr(cpu, "generate", lambda *kernel: broken(*kernel, line=cast))
    text, _ = failure(lambda: compile(model(), cache=False, verify=False))
    place = f"block 'probabilities' ({line_of('probabilities')})"
    assert f"'builtin.unrealized_conversion_cast' in kernel rms_norm_softmax_0, {place} (and 5 more)" in text


BUFFERS = """
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = "test.unknown"(%x) : (tensor<4xf32>) -> tensor<4xf32> loc("norm"("user.py":7:0))
  return %y : tensor<4xf32>
}
"""


def test_a_failure_of_a_native_pass_names_the_pass_the_block_and_the_line() -> None:
    context = ir.new_context()
    context.allow_unregistered_dialects = True
    module = ir.Module.parse(BUFFERS, context)
    text, error = failure(lambda: run_pipeline(module, "cse,func.func(canonicalize),one-shot-bufferize"), PassError)
    assert isinstance(error, PassError)
    assert error.pass_name == "one-shot-bufferize"
    assert text.startswith("pass 'one-shot-bufferize': block 'norm' (user.py:7): ")
    assert "builtin.module(one-shot-bufferize)" in Path(str(error.reproducer)).read_text().splitlines()[0]


def test_the_reproducer_reproduces(monkeypatch: Patch) -> None:
    text = OTHERS.replace("math.tanh", "mir.tanh").replace("arith.addf", "mir.sub")
    module = GraphModule.from_text(text)
    _, error = failure(lambda: module.transform("cse,lir-plan"), PassError)
    assert isinstance(error, PassError)
    command, *_ = Path(str(error.reproducer)).read_text().splitlines()
    pipeline = re.search(r"--pass-pipeline='(.*)'", command)
    assert pipeline is not None
    arguments = [f"--pass-pipeline={pipeline[1]}", str(error.reproducer)]
    done = subprocess.run(
        [sys.executable, "-m", "rlx_mlir.tools.opt", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "pass 'lir-plan': the entry function may hold calls, reshapes and loops of calls only" in done.stderr


# Options and arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compile(3), "'module' expects a GraphModule, but got int"),
        (
            lambda: compile(model(), activations="int4"),
            "'activations' expects one of int8, int16, exact, but got 'int4'",
        ),
        (lambda: compile(model(), maxima={"batch": 3}, cache=False), "'maxima' names 'batch'"),
        (lambda: emit(model(), "mlir"), "'stage' expects one of hir, mir"),
        (lambda: model().fusion_report(activations="int4"), "'activations' expects one of int8, int16, exact"),
    ],
)
def test_errors_about_arguments_start_with_the_callers_line(call: Callable[[], Any], message: str) -> None:
    text, _ = failure(call, InputError)
    assert text.startswith(f"{__file__}:{call.__code__.co_firstlineno}: ")
    assert message in text


def test_values_that_cannot_be_addressed_are_refused() -> None:
    """Before anything runs; sizes that aren't known count as 1."""
    m = GraphModule.mir("huge")
    with m.scope("blk"):
        x = m.input("x", [2**62, 2])
        m.set_outputs({"y": m.neg(x)})
    text, _ = failure(lambda: compile(m, cache=False))
    assert "values are too large\n  argument 0 of function 'huge' is of tensor<4611686018427387904x2xf32>" in text
    assert f"36893488147419103232 bytes, but at most {2**63 - 1} can be addressed" in text


@pytest.mark.parametrize("word", ["a*b", "2*a", "a + 1", "7", "99999999999999999999", "a b"])
def test_dimensions_in_text_have_the_names_that_builders_take(word: str) -> None:
    text = (
        f'func.func @f(%x: tensor<?x4xf32> {{mir.name = "x", mir.dims = ["{word}", ""]}}) -> tensor<?x4xf32> {{\n'
        "  %y = mir.exp %x : tensor<?x4xf32>\n  return %y : tensor<?x4xf32>\n}"
    )
    with pytest.raises(InputError, match=rf"'f': dimension 0 of argument 'x': .* '_', but got '{re.escape(word)}'"):
        GraphModule.from_text(text)
