# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fuzzer of derivatives: that it sees rules that are wrong, and finds nothing in a short run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeds

from rlx_mlir.autodiff.registry import Same
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.fuzz import campaign, derivatives
from rlx_mlir.fuzz.campaign import Plan
from rlx_mlir.fuzz.cases import GENERATORS, Case, case_of, random_case
from rlx_mlir.hir import GraphModule
from rlx_mlir.mir.registry import BATCHING, JVPS, REFERENCES, VJPS

TANH, MATMUL = "mir.tanh", "mir.matmul"


@pytest.fixture
def case() -> Case:
    """A sum of squares far larger than the layer beside it: a wrong output counts by itself."""
    m = GraphModule.mir("f")
    x, w = m.input("x", ["a", 3]), m.param("w", [3, 4])
    m.set_outputs({"large": m.mul(x, 1e3), "layer": m.tanh(m.matmul(x, w)), "number": m.cast(x, "i32")})
    return case_of(m)


def wrong(monkeypatch: pytest.MonkeyPatch, table: dict[str, Any], name: str) -> None:
    """Turns the sign of what a rule gives."""
    right = table[name]

    def turned(m: Any, *given: Any, **attributes: Any) -> Any:
        found = right(m, *given, **attributes)
        parts = [None if own is None else m.neg(own) for own in (found if isinstance(found, tuple) else (found,))]
        return tuple(parts) if isinstance(found, tuple) else parts[0]

    monkeypatch.setitem(table, name, turned)


def message(case: Case) -> tuple[str, str]:
    """The kind of finding, and what it says."""
    found = derivatives.check(case)
    return found["status"] if found["status"] != "finding" else found["kind"], found.get("message", "")


def test_right_rules_are_no_finding(case: Case) -> None:
    assert message(case) == ("ok", "")


@pytest.mark.parametrize("table", [VJPS, JVPS])
@pytest.mark.parametrize("name", [TANH, MATMUL])
def test_one_mode_that_is_wrong_is_found(
    case: Case, name: str, table: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong(monkeypatch, table, name)
    kind, text = message(case)
    assert kind == "derivative"
    assert "forward mode gives" in text


@pytest.mark.parametrize("name", [TANH, MATMUL])
def test_modes_that_are_wrong_alike_are_found(case: Case, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (VJPS, JVPS):
        wrong(monkeypatch, table, name)
    kind, text = message(case)
    assert kind == "derivative"
    assert "small steps" in text


def test_reverse_mode_alone_is_compared_with_steps(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where forward mode has no rule, and says so."""

    def refuse(*given: Any, **attributes: Any) -> Any:
        raise UnsupportedError("it has no rule of forward mode")

    monkeypatch.setitem(JVPS, TANH, refuse)
    assert message(case)[0] == "unsupported"
    wrong(monkeypatch, VJPS, TANH)
    kind, text = message(case)
    assert kind == "derivative"
    assert "small steps" in text


def test_other_errors_of_rules_are_findings(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for table, kind in ((VJPS, "derivative"), (BATCHING, "batch")):
        with monkeypatch.context() as patch:
            patch.setitem(table, TANH, lambda m, at, x: m.concat([x, m.constant(1.0)], 0))
            assert message(case)[0] == kind


def test_batches_that_are_wrong_are_found(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong(monkeypatch, BATCHING, TANH)
    assert message(case) == ("batch", "entry 0 of output 'layer' of a batch isn't what the call gives")
    monkeypatch.setitem(
        BATCHING, TANH, lambda m, at, x: Same(m.tanh(m.reshape(m.narrow(x, 0, 0, 1), m.sizes_of(x)[1:])))
    )
    assert message(case)[0] == "batch"


def test_outputs_that_derivatives_change_are_found(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def replacing(m: Any, at: Any, x: Any) -> Any:
        with m.before(at.op):
            negative = m.neg(x)
        m.replace_results(at.op, [negative])
        return at.dy

    monkeypatch.setitem(VJPS, TANH, replacing)
    assert "changes output 'layer'" in message(case)[1]


@pytest.mark.parametrize("at", [0.0, 1.0])
def test_kinks_are_no_findings(at: float) -> None:
    """A step to both sides of one, which is half of the slope of each, as consistent as the slope of a line."""
    m = GraphModule.mir("kink")
    x = m.input("x", [1])
    m.set_outputs([m.relu(x), m.abs(m.sub(x, x)), m.round(x)])
    case = case_of(m)
    case.runs[0]["x"] = np.full(1, at, np.float32)
    assert message(case) == ("ok", "")


def test_numbers_that_swallow_steps_are_made_smaller() -> None:
    m = GraphModule.mir("mask")
    x, bias = m.input("x", [1, 2, 4]), m.input("bias", [1, 1, 2, 2])
    m.set_outputs([m.attention(x, x, x, bias, num_heads=1, head_dim=4, mask_kind="bias")])
    case = case_of(m)
    case.runs[0]["bias"] = np.full((1, 1, 2, 2), np.finfo(np.float32).min)
    assert message(case) == ("ok", "")


def test_what_is_steep_at_one_place_alone_is_no_finding() -> None:
    """A bump of 1e-9 at 0: flat for all steps but the smallest ones."""
    m = GraphModule.mir("steep")
    x = m.input("x", [2])
    own = m.mul(x, 1e9)
    m.set_outputs([m.mul(m.mul(own, m.exp(m.neg(m.mul(own, own)))), 1e-9)])
    case = case_of(m)
    case.runs[0]["x"] = np.zeros(2, np.float32)
    assert message(case) == ("ok", "")


#: Operations that came after the cases below were found: what is drawn depends on the operations that there are.
LATER = {"mir.gelu_slope", "mir.grouped_block_dot"}


def found_case(monkeypatch: pytest.MonkeyPatch, number: int) -> Case:
    """A case of seed 2615, as it was drawn when it was found."""
    for name in LATER:
        monkeypatch.delitem(GENERATORS, name)
    return random_case(2615, number)[0]


def test_rounding_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer whose scores are so large that rounding them decides which of two keys a softmax takes."""
    case = found_case(monkeypatch, 6849)
    assert "mir.fused_transformer_layer" in case.module.to_text()
    assert derivatives.check(case)["status"] == "ok"


def test_numbers_alone_are_computed_in_f64_too() -> None:
    """What numpy computes of an array of rank 0 isn't an array."""
    m = GraphModule.mir("number")
    m.set_outputs([m.cast(m.input("x", []), np.complex64)])
    assert message(case_of(m)) == ("ok", "")


def test_what_has_no_rule_takes_nothing_from_other_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    m = GraphModule.mir("f")
    x = m.input("x", [2, 32])
    m.set_outputs([m.block_quantize(x)[1], m.tanh(x), m.mul(x, np.float32(3e38)), m.div(x, 0.0)])
    case = case_of(m)
    assert message(case) == ("ok", "")
    wrong(monkeypatch, VJPS, TANH)
    assert message(case)[0] == "derivative"


def test_slices_of_nothing_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that had a slice of one element of a dimension without any, which no builder takes."""
    assert "mir.dynamic_slice" in found_case(monkeypatch, 9524).module.to_text()


def test_twenty_random_cases_are_right() -> None:
    found = [derivatives.check(random_case(6 + seeds.seed(), number)[0]) for number in range(20)]
    assert [each["message"] for each in found if each["status"] == "finding"] == []
    statuses = Counter(each["status"] for each in found)
    assert statuses["ok"] >= 12


@pytest.mark.wide
def test_findings_are_kept_and_replayed(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in child processes finds nothing and keeps nothing; what is in a file is read again."""
    report = campaign.run(Plan("derivatives", seed=2 + seeds.seed(), count=4, out=tmp_path / "out"))
    assert (report.cases, report.findings) == (4, [])
    assert not (tmp_path / "out").exists()
    case.save(tmp_path / "case.mlir")
    monkeypatch.setitem(REFERENCES, TANH, REFERENCES["mir.exp"])
    assert derivatives.handle({"file": str(tmp_path / "case.mlir")})["kind"] == "derivative"
    case.fuzzer = "derivatives"
    case.save(tmp_path / "own.mlir")
    assert [campaign.fuzzer_of(tmp_path / f"{name}.mlir") for name in ("case", "own")] == ["graphs", "derivatives"]
    assert Case.load(tmp_path / "own.mlir").fuzzer == "derivatives"
