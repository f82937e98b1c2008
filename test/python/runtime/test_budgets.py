# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Budgets themselves: who sets them, for whom, and what errors say. What each one limits is tested where it is read."""

from __future__ import annotations

import re
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir import budgets
from rlx_mlir.boundary import foreign_errors
from rlx_mlir.errors import BudgetError, InputError, ModelFileError
from rlx_mlir.tools.cli import app

PRODUCT = Path(budgets.__file__).parent


def test_the_innermost_limit_is_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(budgets.VARIABLE, "layers=7, tensors=9")
    assert (budgets.current().layers, budgets.current().tensors) == (7, 9)
    with rlx.budget(layers=3):
        assert (budgets.current().layers, budgets.current().tensors) == (3, 9)
        with rlx.budget(tensors=1):
            assert (budgets.current().layers, budgets.current().tensors) == (3, 1)
    assert budgets.current().layers == 7


def test_a_command_sets_limits_for_all_threads_while_it_runs() -> None:
    seen = []
    with budgets.budget_for_process({"layers": 5}):
        thread = Thread(target=lambda: seen.append(budgets.current().layers))
        thread.start()
        thread.join()
    assert seen == [5]
    assert budgets.current().layers == budgets.Budgets().layers


def test_an_error_says_what_to_do() -> None:
    with rlx.budget(layers=5), pytest.raises(BudgetError) as caught:
        budgets.check("layers", 6000, "x.gguf")
    text = str(caught.value)
    assert text.startswith("x.gguf needs 6,000, but the budget 'layers' (layers of a model) is 5")
    assert all(way in text for way in ("rlx_mlir.budget(layers=…)", "--budget layers=…", "RLX_BUDGETS=layers=…"))
    assert (caught.value.budget, caught.value.limit) == ("layers", 5)
    budgets.check("layers", budgets.current().layers, "as many as are allowed")


@pytest.mark.parametrize("text", ["layers", "layers=", "layers=-1", "layers=1.5", "layers=٣", "layers=" + "9" * 19])
def test_what_is_no_number_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="a budget must be written as NAME=NUMBER, but is 'layers"):
        budgets.parse(text)


def test_unknown_names_and_zero_are_errors() -> None:
    with pytest.raises(InputError, match=r"no budget 'layer' \(did you mean 'layers'\?\)"):
        budgets.parse("layer=1")
    with pytest.raises(InputError, match="no budget 'layer'"), rlx.budget(layer=1):
        pass
    with pytest.raises(InputError, match="the budget 'layers' must be a whole number above zero, but is 0"):
        rlx.Budgets(layers=0)


def test_the_command_line_takes_them(tmp_path: Path) -> None:
    (tmp_path / "f.mlir").write_text("func.func @f() { return }\n")
    result = CliRunner().invoke(app, ["--budget", "ir_bytes=5", "emit", str(tmp_path / "f.mlir")])
    assert result.exit_code == 1
    assert re.search(r"needs 26, but the budget 'ir_bytes' .* is 5", " ".join(result.stderr.split()))


def test_every_budget_is_read_somewhere() -> None:
    texts = {path: path.read_text() for path in PRODUCT.rglob("*.py") if path.name != "budgets.py"}
    unread = [name for name in budgets.NAMES if not any(re.search(rf"\b{name}\b", text) for text in texts.values())]
    assert not unread, f"nothing reads the budgets {', '.join(unread)}"


@pytest.mark.parametrize("kind", [BaseException, Exception, RecursionError, MemoryError, UnicodeError, OSError])
def test_foreign_errors_become_ours(kind: type[BaseException]) -> None:
    with pytest.raises(ModelFileError, match=r"^/models/x: ") as caught, foreign_errors("/models/x", ModelFileError):
        raise kind
    assert type(caught.value.__cause__) is kind


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, InputError])
def test_these_pass_the_boundary(kind: type[BaseException]) -> None:
    with pytest.raises(kind), foreign_errors("/models/x", ModelFileError):
        raise kind("as it is")


def test_a_foreign_message_is_one_short_line() -> None:
    class Odd(BaseException):
        def __str__(self) -> str:
            raise ValueError

    with pytest.raises(InputError, match=r"^x: Odd$"), foreign_errors("x"):
        raise Odd
    with pytest.raises(InputError) as caught, foreign_errors("x"):
        raise ValueError("a\n" * 10_000)
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)
