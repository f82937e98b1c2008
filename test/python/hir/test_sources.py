# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""IR that somebody sent: what would end the process in MLIR's parser is refused before, at each door."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rlx_mlir as rlx
from rlx_mlir import GraphModule, ir
from rlx_mlir.errors import BudgetError, InputError, PassError, RlxError
from rlx_mlir.rewriting import run_pipeline
from rlx_mlir.sources import check_source

DEEP = 20_000
#: Seeds of changes to bytecode at which MLIR's reader fails in an assertion.
ENDING = (60, 85, 201, 288)

#: Each ends the process, or takes minutes, where MLIR parses it: the name of the budget, and the text.
TEXTS = {
    "parentheses": ("nesting", f"module attributes {{a.b = affine_map<(d0) -> ({'(' * DEEP}d0{')' * DEEP})>}} {{}}"),
    "lists": ("nesting", f"module attributes {{a.b = {'[' * DEEP}{']' * DEEP}}} {{}}"),
    "types": ("nesting", f"func.func private @f({'tuple<' * DEEP}i32{'>' * DEEP})"),
    "regions": ("nesting", "module {" * DEEP + "}" * DEEP),
    "dictionaries": ("nesting", "module attributes " + "{a.b = " * DEEP + "1" + "}" * DEEP + " {}"),
    "locations": ("nesting", "module {} loc(" + 'callsite("a" at ' * DEEP + '"b"' + ")" * DEEP + ")"),
    "elements": ("nesting", f"module attributes {{a.b = dense<{'[' * DEEP}1{']' * DEEP}> : tensor<1xi32>}} {{}}"),
    "signs": ("nesting", f"module attributes {{a.b = affine_map<(d0) -> ({'- ' * DEEP}d0)>}} {{}}"),
    "terms": ("nesting", f"module attributes {{a.b = affine_map<(d0) -> ({'d0 + ' * DEEP}d0)>}} {{}}"),
    "remainders": ("nesting", f"module attributes {{a.b = affine_map<(d0) -> ({'d0 mod ' * DEEP}2)>}} {{}}"),
    "integers": ("digits", f"module attributes {{a.b = {'9' * 100_000}}} {{}}"),
    "fractions": ("digits", f"module attributes {{a.b = 1.{'9' * 100_000} : f32}} {{}}"),
    "shapes": ("digits", f"func.func private @f(tensor<{'1x' * DEEP}f32>)"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_would_end_the_process(name: str, tmp_path: Path) -> None:
    budget, text = TEXTS[name]
    path = tmp_path / "deep.mlir"
    path.write_text(text)
    for source in (text, path):
        with pytest.raises(BudgetError, match=f"but the budget '{budget}'") as caught:
            GraphModule.from_text(source)
        assert caught.value.budget == budget


@pytest.mark.parametrize("tool", ["opt", "reduce"])
def test_tools_refuse_it_too(tool: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.mlir"
    path.write_text(TEXTS["lists"][1])
    command = [sys.executable, "-m", f"rlx_mlir.tools.{tool}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "needs 20,001, but the budget 'nesting'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (0, 0)),
        ("([{<>}])", (4, 0)),
        ('"((((" // ((((((\n(', (1, 0)),
        (r'"\"((((" (())', (2, 0)),
        ('"((((\n()', (1, 0)),
        ("(((", (3, 0)),
        (")))((", (2, 0)),
        ("() -> () -> ()", (1, 0)),
        ("affine_set<(d0) : (d0 >= 0, d0 >= 1)>", (2, 1)),
        ("d0 + d1 * 2 mod 3, d0 + 1", (3, 1)),
        ("tensor<4x8x16xf32>", (1, 10)),
        ("%a123 = 0x1F : i64", (0, 4)),
        ("1.25e+100, -3", (1, 5)),
    ],
)
def test_what_is_measured(text: str, expected: tuple[int, int]) -> None:
    assert ir.native.measure_text(text.encode()) == (*expected, False, False)


@pytest.mark.parametrize(
    ("text", "forward"),
    [
        ("%x = a.b\n%y = a.c %x, %x", False),
        ("%x:2 = a.b\na.c %x#1", False),
        ("%x , %y : 2 = a.b\n%z = a.c %y", False),
        ('func.func @f(%x: f32, %y : f32 loc("a")) { a.b %y, %x }', False),
        ("^bb1(%x: f32):\n  a.b %x", False),
        ('func.func @"f"(%x: f32) { scf.for %i = %x to %x iter_args(%s = %x) { a.b %i, %s } }', False),
        ('a.b "%x" // %y', False),
        ("%y = a.c %x\n%x = a.b", True),
        ("a.b { %x = a.c }\na.d %x", True),
        ("func.call @f(%x) : (f32) -> ()", True),
        ("cf.br ^bb1(%x: f32)", True),
        ("a.b ins(%x : f32)", True),
        ("%x = a.b %x", False),  # nothing but itself is in between
    ],
)
def test_uses_before_definitions_are_seen(text: str, forward: bool) -> None:
    assert ir.native.measure_text(text.encode())[3] == forward


def test_text_that_the_parser_does_not_survive_is_read_elsewhere(tmp_path: Path) -> None:
    """What a region defines is destroyed where the parser stops in it, though an operation outside uses it."""
    text = """
      %0 = arith.addi %c0, %1 : i32
      gpu.module @kernels {
      %1 = arith.addi %c0, %0 : i32
      cf.br ^other
    }"""
    (tmp_path / "several.mlir").write_text(f"module {{\n// -----\n{text}", encoding="utf-8")
    for source in (text, tmp_path / "several.mlir"):
        with pytest.raises(InputError, match="is damaged: reading it ends a process with signal 6"):
            GraphModule.from_text(source)
    command = [sys.executable, "-m", "rlx_mlir.tools.opt", "--split-input-file", str(tmp_path / "several.mlir")]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert done.returncode == 1
    with pytest.raises(InputError, match="doesn't parse"):
        GraphModule.from_text(text.replace("gpu.module @kernels {", ""))


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        ("9223372036854775807x2xf32", True),
        ("4294967296x4294967296xi1", True),
        ("18446744073709551615x18446744073709551615x18446744073709551615xi8", True),
        ("9223372036854775807xi1", False),
        ("0x9223372036854775807x2xf32", False),
    ],
)
def test_constants_have_elements_that_can_be_counted(kind: str, refused: bool) -> None:
    """MLIR's parser ends the process; of types alone, nobody counts them."""
    text = f"func.func @f() {{ %c = mir.constant dense<1.0> : tensor<{kind}> }}"
    assert ir.native.measure_text(text.encode())[2] == refused
    assert not ir.native.measure_text(text.replace("dense<1.0>", "other").encode())[2]
    if refused:
        with pytest.raises(InputError, match=r"the IR has a constant of 2\^63 elements or more"):
            GraphModule.from_text(text)


def test_limits_can_be_changed() -> None:
    text = "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"
    with rlx.budget(nesting=1), pytest.raises(BudgetError, match="the IR needs 2, but the budget 'nesting'"):
        GraphModule.from_text(text)
    with rlx.budget(ir_bytes=10), pytest.raises(BudgetError, match="but the budget 'ir_bytes'"):
        GraphModule.from_text(text)
    assert len(GraphModule.from_text(text)) == 0


# -- bytecode --------------------------------------------------------------------------------------------------------


MODULE = """
func.func @f(%x: tensor<4x8xf32>, %w: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %y = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x4xf32>
  %z = mir.tanh %y : tensor<4x4xf32>
  return %z : tensor<4x4xf32>
}
"""


def bytecode() -> bytes:
    return GraphModule.from_text(MODULE).bytecode()


def changed(data: bytes, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    found = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        found[rng.integers(4, len(found))] = rng.integers(256)
    return bytes(found)


@pytest.mark.parametrize("seeds", [ENDING[:1], pytest.param((*ENDING[1:], 0, 2), marks=pytest.mark.wide)])
def test_damaged_bytecode_is_an_error(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    """With MLIR 22, reading some of these ends the process."""
    path = tmp_path / "damaged.mlirbc"
    said = []
    for seed in seeds:
        path.write_bytes(changed(bytecode(), seed))
        for read in (GraphModule.from_bytecode, GraphModule.from_text):
            with pytest.raises(RlxError, match=r"damaged\.mlirbc (is damaged|doesn't parse)") as caught:
                read(path)
            said.append(str(caught.value))
    assert any("reading it ends a process with signal" in text for text in said)


@pytest.mark.parametrize(
    "text",
    [
        MODULE.replace("@f", r'@"\FF"', 1),
        MODULE.replace("mir.tanh %y", r'mir.tanh %y {mir.a = "\C3\28"}', 1),
        r'module { func.func private @"\80"() func.func @f(%x: tensor<4xf32>) { return } }',
        r'module attributes {mir.a = [{b = "\F5"}]} { func.func @f(%x: tensor<4xf32>) { return } }',
        r'module attributes {"mir.\FE" = 1} { func.func @f(%x: tensor<4xf32>) { return } }',
        r'func.func @f(%x: tensor<4xf32> loc("\FF")) { return }',
        r'func.func @f(%x: tensor<4xf32>) { return loc("\FF":3:4) }',
        r'func.func @f(%x: tensor<4xf32>) { return loc(fused<"\FF">[callsite("a" at "b")]) }',
        r'func.func @f(%x: tensor<4xf32, "\FF">) { return }',
    ],
)
@pytest.mark.quick(1)
def test_names_that_are_no_text(text: str, tmp_path: Path) -> None:
    """Names, locations and what is nested in attributes and types: Python is handed no string that it can't read."""
    with ir.new_context():
        buffer = io.BytesIO()
        ir.Module.parse(text).operation.write_bytecode(buffer)
    (tmp_path / "m.mlir").write_text(text, encoding="utf-8")
    for read, source in (
        (GraphModule.from_text, text),
        (GraphModule.from_text, tmp_path / "m.mlir"),
        (GraphModule.from_bytecode, buffer.getvalue()),
    ):
        with pytest.raises(InputError, match=r'"(mir\.)?\\[0-9A-F\\(]+" is no text in UTF-8, a string of'):
            read(source)
    with ir.new_context(), pytest.raises(PassError, match=r'\\[0-9A-F\\(]+" is no text in UTF-8'):
        run_pipeline(ir.Module.parse(text), "rlx-fuse")
    command = [sys.executable, "-m", "rlx_mlir.tools.opt", "--rlx-fuse", str(tmp_path / "m.mlir")]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert done.returncode == 1
    assert b"is no text in UTF-8" in done.stderr


def test_text_of_other_languages_and_machine_code_are_read() -> None:
    text = r'module attributes {mir.a = "\C3\A9", mir.b = #gpu.object<#nvvm.target, bin = "\7F\FF">} {' + MODULE + "}"
    assert len(GraphModule.from_text(text).inputs) == len(GraphModule.from_text(MODULE).inputs)


def test_bytecode_that_is_read_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLIR's reader goes through types as often as a damaged number says; the process that reads ends by itself."""
    monkeypatch.setattr("rlx_mlir.sources._SECONDS", 1)
    data = (Path(__file__).parents[1] / "data" / "endless.mlirbc").read_bytes()
    with pytest.raises(InputError, match=r"the bytecode is damaged: reading it (takes more than 1 s|ends a process)"):
        GraphModule.from_bytecode(data)
    program = "import rlx_mlir.sources as s; s._SECONDS = 0; s._read()"
    done = subprocess.run([sys.executable, "-c", program], input=data, timeout=120, check=False)
    assert done.returncode == -signal.SIGXCPU


def test_strings_that_are_no_text() -> None:
    text = MODULE.replace("func.func", r'module attributes {mir.stage = "\A6ir"} { func.func', 1) + "}"
    with pytest.raises(InputError, match=r'"\\A6ir" is no text in UTF-8'):
        GraphModule.from_text(text)


def test_the_tools_refuse_damaged_bytecode(tmp_path: Path) -> None:
    path = tmp_path / "damaged.mlirbc"
    path.write_bytes(changed(bytecode(), ENDING[0]))
    command = [sys.executable, "-m", "rlx_mlir.tools.opt", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "error: the source is damaged" in done.stderr or "error: the source doesn't parse" in done.stderr


def test_bytecode_that_is_whole_is_read(tmp_path: Path) -> None:
    data = bytecode()
    (tmp_path / "m.mlirbc").write_bytes(data)
    expected = GraphModule.from_bytecode(data, trusted=True)
    assert GraphModule.from_bytecode(data) == expected
    assert GraphModule.from_bytecode(tmp_path / "m.mlirbc") == expected


def test_reading_bytecode_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx_mlir.sources._SECONDS", 0.01)
    with pytest.raises(InputError, match="the bytes is damaged: reading it takes more than"):
        check_source(bytecode(), "the bytes")
