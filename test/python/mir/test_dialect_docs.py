# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the operations' documentation says is true.

The ODS description of an operation reaches Python as the docstring of its class. Its example has to parse, verify and
round-trip; each numbered constraint in it has to have a negative test, `@<op>_c<number>_...` in ops-invalid*.mlir.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlx_mlir import ir
from rlx_mlir.dialects import _hir_ops_gen, _mir_ops_gen

ROOT = Path(__file__).resolve().parents[3]
OPS = [
    value
    for module in (_hir_ops_gen, _mir_ops_gen)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, ir.OpView) and value is not ir.OpView
]
EXAMPLE = re.compile(r"^ *```mlir\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
CONSTRAINT = re.compile(r"^ *- \(C(\d+)\) ", re.MULTILINE)


def constraints(op: type[ir.OpView]) -> list[int]:
    """Numbers of the constraints that an operation documents, in order."""
    return [int(number) for number in CONSTRAINT.findall(op.__doc__ or "")]


def with_negative_test(op: type[ir.OpView]) -> set[int]:
    """Numbers of an operation's constraints that have a negative test."""
    dialect, mnemonic = op.OPERATION_NAME.split(".")
    files = (ROOT / "test" / "lit" / dialect).glob("ops-invalid*.mlir")
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return {int(number) for number in re.findall(rf"@{mnemonic}_c(\d+)_\w", text)}


@pytest.fixture(scope="module")
def context() -> ir.Context:
    return ir.new_context()


def test_operations_are_found():
    assert {"hir.attention", "mir.attention"} <= {op.OPERATION_NAME for op in OPS}


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.OPERATION_NAME)
def test_example_parses_and_round_trips(op: type[ir.OpView], context: ir.Context):
    examples = EXAMPLE.findall(op.__doc__ or "")
    assert examples, f"{op.OPERATION_NAME} documents no example"
    assert any(re.search(rf"\b{op.OPERATION_NAME}\b", example) for example in examples)
    for example in examples:
        module = ir.Module.parse(example, context)
        assert module.operation.verify()
        for generic in (False, True):
            text = module.operation.get_asm(print_generic_op_form=generic)
            assert ir.native.is_equivalent(ir.Module.parse(text, context).operation, module.operation), text


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.OPERATION_NAME)
def test_constraints_are_numbered_from_one(op: type[ir.OpView]):
    numbers = constraints(op)
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_constraint_has_a_negative_test():
    missing = [
        f"{op.OPERATION_NAME} C{number}"
        for op in OPS
        for number in sorted(set(constraints(op)) - with_negative_test(op))
    ]
    assert not missing, "no test in ops-invalid*.mlir for: " + ", ".join(missing)


def test_every_negative_test_names_a_constraint():
    stale = [
        f"{op.OPERATION_NAME} C{number}"
        for op in OPS
        for number in sorted(with_negative_test(op) - set(constraints(op)))
    ]
    assert not stale, "ops-invalid*.mlir tests constraints that aren't documented: " + ", ".join(stale)


@pytest.mark.wide
def test_generated_reference_is_up_to_date():
    folder = next(iter(importlib.util.find_spec("mlir").submodule_search_locations))
    needed = ("bin/mlir-tblgen", "include/mlir/IR/OpBase.td")
    if missing := [name for name in needed if not (Path(folder) / name).exists()]:
        pytest.skip(f"{', '.join(missing)} not installed: they come with the extra lint")
    run = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
