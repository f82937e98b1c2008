# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the translation to LLVM IR and LLVM itself report is in the error, and nothing of it goes to stderr."""

from __future__ import annotations

import pytest

from rlx_mlir import GraphModule, compiler, ir
from rlx_mlir.errors import CompileError
from rlx_mlir.lowering.machine import machine

KINDS = ("OBJECT", "ASSEMBLY", "LLVM")


def emit(text: str, kind: str = "OBJECT", level: int = 2) -> bytes:
    with ir.new_context():
        module = ir.Module.parse(text)
        return bytes(
            ir.native.emit_code(module.operation, *machine("", "", ""), level, getattr(ir.native.CodeKind, kind))
        )


@pytest.mark.parametrize("kind", KINDS)
def test_translation_names_what_it_cannot_translate(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    text = """
    llvm.func @before() { llvm.return }
    func.func @left(%x: i32) -> i32 { return %x : i32 } loc("left"("model.py":7:3))
    """
    with pytest.raises(ValueError, match="the module doesn't translate to LLVM IR") as caught:
        emit(text, kind)
    message = str(caught.value)
    assert 'loc("left"("model.py":7:3)): cannot be converted to LLVM IR' in message
    assert "func.func" in message
    assert capfd.readouterr() == ("", "")


def assembly(words: str) -> str:
    return f'''
    llvm.func @f() {{
      llvm.inline_asm has_side_effects "{words}", "" : () -> ()
      llvm.return
    }}
    '''


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("kind", ["OBJECT"])
def test_code_generation_reports_its_errors(kind: str, level: int, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="LLVM reports errors while it generates code") as caught:
        emit(assembly("not_an_instruction"), kind, level)
    assert "not_an_instruction" in str(caught.value)
    assert "instruction" in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_many_errors_are_counted(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="and 12 more") as caught:
        emit(assembly("\\n".join(f"nonsense_{i}" for i in range(20)).replace("\\n", "\\0A")))
    assert "nonsense_7" in str(caught.value)
    assert "nonsense_8" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_code_without_errors_reports_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for kind in KINDS:
        assert emit(assembly("nop"), kind)
    assert capfd.readouterr() == ("", "")


def test_compiling_raises_them(capfd: pytest.CaptureFixture[str]) -> None:
    """As CompileError, with the name of the module, beside the operations that are left."""
    m = GraphModule.hir("broken")
    m.set_outputs({"y": m.exp(m.input("x", [4]))})
    compilation = compiler.Compilation(m, compiler.CompileOptions())
    compilation.run(until="mir")
    with pytest.raises(CompileError, match="'broken': the module doesn't translate to LLVM IR") as caught:
        compilation.code("OBJECT")
    assert "cannot be converted to LLVM IR" in str(caught.value)
    assert capfd.readouterr() == ("", "")
