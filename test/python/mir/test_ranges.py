# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What values are at most: bounds hold for whatever runs, and reports name what may be beyond an element type."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from typer.testing import CliRunner

from rlx_mlir import GraphModule, interpret
from rlx_mlir.errors import InputError, StageError
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.fuzz.cases import random_case
from rlx_mlir.mir.ranges import ANYTHING
from rlx_mlir.models import decoder
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.reports.ranges import initial, range_report, walk
from rlx_mlir.rewriting import identity
from rlx_mlir.semantics.function import arguments
from rlx_mlir.tools.cli import app

# Bounds hold --------------------------------------------------------------------------------------


def violations(module: GraphModule, arrays: dict[str, np.ndarray]) -> list[str]:
    """Results of the module, on the arrays, that aren't within their intervals; and how many there are."""
    entry = module.entry
    bounds = {(identity(op), v.result_number): own for op, v, own in walk(entry, initial(entry, arrays))}
    wrong: list[str] = []

    def watch(op: Any, operands: Any, computed: Any) -> None:
        for number, value in enumerate(computed):
            if not isinstance(value, np.ndarray) or not value.size:
                continue
            own = bounds[identity(op), number]
            if any(isinstance(x, np.ndarray) and not (x.size and finite(x)) for x in operands):
                continue  # of infinities and NaN nothing is said, nor of reductions of nothing
            if value.dtype.kind == "c":  # these have no order
                if own.is_known:
                    wrong.append(f"{op.name}: {own} of complex numbers")
                continue
            wide = value.astype(np.float64)
            if not np.isfinite(wide).all():
                if own.is_known and str(value.dtype) == "float32" and own.magnitude < 1e38:
                    wrong.append(f"{op.name}: {own}, but not finite")
                continue
            slack = 1e-2 * max(own.magnitude, 1e-6) if own.is_known else 0.0  # rounding of narrow types
            if not (own.low - slack <= wide.min() and wide.max() <= own.high + slack):
                wrong.append(f"{op}: {own}, but {wide.min()} to {wide.max()}")

    interpret(module, arrays, watch=watch)
    return wrong


def finite(array: np.ndarray) -> bool:
    return array.dtype.kind in "biu" or bool(
        np.isfinite(array if array.dtype.kind == "c" else array.astype(float)).all()
    )


@pytest.mark.parametrize("first", range(0, 60, 15))
@pytest.mark.quick(1)
def test_random_graphs_stay_within_their_bounds(first: int) -> None:
    for index in range(first, first + 15):
        case, _ = random_case(5, index)
        module = case.module if case.module.stage == "mir" else case.module.lower()
        for run in case.runs:
            assert violations(module, run) == [], f"case {index}\n{module.to_text()}"


def bound(module: GraphModule, **given: Any) -> tuple[float, float]:
    """The interval of the last value of a module."""
    lowered = module if module.stage == "mir" else module.lower()
    *_, (_, _, interval) = walk(lowered.entry, initial(lowered.entry, given))
    return interval.low, interval.high


def test_known_bounds() -> None:
    m = GraphModule.mir("m")
    x, w = m.input("x", [3, 4]), m.param("w", [4, 2])
    m.set_outputs(m.matmul(x, w))
    weights = np.array([[1, -2], [3, 0], [0, 5], [-1, 1]], np.float32)
    assert bound(m, x=10.0, w=weights) == (-80.0, 80.0), "the largest sum of magnitudes of a column is 8"
    assert bound(m, x=10.0, w=5.0) == (-200.0, 200.0)
    assert bound(m, w=weights) == (-math.inf, math.inf)

    for build, expected in (
        (lambda m, x: m.exp(x), (math.exp(-2), math.exp(3))),
        (lambda m, x: x * x, (0.0, 9.0)),
        (lambda m, x: -x + 1.0, (-2.0, 3.0)),
        (lambda m, x: m.silu(x), (-0.2785, 3.0)),
        (lambda m, x: m.softmax(x), (0.0, 1.0)),
        (lambda m, x: m.reduce(x, "sum", [1]), (-8.0, 12.0)),
        (lambda m, x: m.relu(x), (0.0, 3.0)),
        (lambda m, x: 1.0 / x, (-math.inf, math.inf)),
    ):
        m = GraphModule.mir("m")
        m.set_outputs(build(m, m.input("x", [3, 4])))
        assert bound(m, x=(-2.0, 3.0)) == pytest.approx(expected)


def test_bounds_of_positions_and_conditions() -> None:
    m = GraphModule.mir("m")
    x = m.input("x", ["n", 4], "i32")
    m.set_outputs(m.iota([3, 4], 1))
    assert bound(m) == (0.0, 3.0)
    m.set_outputs(m.iota(["n"]) // 2)
    assert bound(m) == (0.0, 2.0**31 - 1)
    m.set_outputs(x % 5 & 7)
    assert bound(m) == (0.0, 4.0)
    m.set_outputs((x < 0).all(0))
    assert bound(m, x=(2.0, 3.0)) == (0.0, 1.0)
    m.set_outputs(m.input("flag", ["n", 4], "i1").all(0))
    assert bound(m, flag=(0.0, 0.0)) == (0.0, 1.0), "of nothing, all hold"


def test_bytes_of_a_packed_weight_bound_nothing() -> None:
    m = GraphModule.mir("m")
    weight = m.repack(m.param("w", [4, 32]), layout="panels")
    m.set_outputs(m.dequant_matmul(m.input("x", [3, 32]), weight))
    assert bound(m, x=1.0, w=1e30) == (-math.inf, math.inf)


def test_a_norm_bounds_what_had_no_bound() -> None:
    m = GraphModule.hir("m")
    m.set_outputs(m.rms_norm(m.input("x", [3, 16]), m.param("gamma", [16])))
    assert bound(m, gamma=2.0) == (-8.0, 8.0)


# Reports ------------------------------------------------------------------------------------------


def overflowing(dtype: str = "f16") -> GraphModule:
    m = GraphModule.hir("m")
    with m.scope("blk"):
        x = m.input("x", [2, 8], dtype)
        h = m.rms_norm(x, m.param("gamma", [8], dtype), name="norm")
        m.set_outputs({"y": m.linear(h, m.param("w", [8, 4], dtype), name="up")})
    return m


def test_reports_name_what_may_overflow() -> None:
    module = overflowing()
    report = module.range_report(params={"gamma": 1.0, "w": 1.0})
    assert report.is_safe
    assert str(report) == "range report of 'm': 2 values, 2 safe"
    report = module.range_report(params={"gamma": 1.0, "w": 10_000.0})
    (found,) = report.findings
    assert (found.op, found.limit, found.verdict, found.seen) == ("mir.matmul", 65504.0, "may overflow", None)
    assert found.bound == pytest.approx(8**0.5 * 8 * 10_000, rel=2**-8)
    assert "may overflow mir.matmul block 'blk.up' (" in str(report)
    assert "limit 65504, bound 2.26e+05" in str(report)
    assert report.to_dict()["findings"][0]["verdict"] == "may overflow"


def test_what_has_no_bound_is_unknown() -> None:
    (first, second) = overflowing().range_report().findings
    assert (first.verdict, second.verdict) == ("unknown", "unknown")
    assert overflowing().range_report().to_dict()["findings"][0]["bound"] is None


def test_arrays_show_what_is_there() -> None:
    """A bound that is too large isn't an overflow, and one that is seen is named as such."""
    x, gamma = np.ones((2, 8), np.float16), np.ones(8, np.float16)
    quiet = np.zeros((8, 4), np.float16)
    quiet[0] = 60_000
    (found,) = overflowing().range_report(inputs={"x": x}, params={"gamma": gamma, "w": quiet}).findings
    assert found.verdict == "may overflow"
    assert found.seen == pytest.approx(60_000, rel=0.01)
    loud = np.full((8, 4), 60_000, np.float16)
    (found,) = overflowing().range_report(inputs={"x": x}, params={"gamma": gamma, "w": loud}).findings
    assert (found.verdict, found.seen) == ("overflows", math.inf)


def test_another_type_may_be_asked_about() -> None:
    params = {"gamma": 1.0, "w": 10_000.0}
    assert overflowing("f32").range_report(params=params).is_safe
    assert overflowing("f32").range_report(params=params, dtype="bf16").is_safe
    report = overflowing("f32").range_report(params=params, dtype="f16")
    assert [finding.op for finding in report.findings] == ["mir.matmul"]
    assert "in f16: 2 values, 1 safe, 1 may overflow" in str(report)


def test_caches_hold_what_was_written_into_them() -> None:
    m = GraphModule.mir("m")
    cache, new, pos = m.input("cache", [1, 8, 4]), m.input("new", [1, 2, 4]), m.input("pos", [1], "i32")
    m.set_outputs({"out": m.cache_update(cache, new, pos)}, tied={"out": "cache"})
    assert bound(m, new=3.0) == (-3.0, 3.0)
    m = GraphModule.mir("m")
    cache, new, pos = m.input("cache", [1, 8, 4]), m.input("new", [1, 2, 4]), m.input("pos", [1], "i32")
    m.set_outputs({"out": m.cache_update(cache, new, pos)})
    assert bound(m, new=3.0) == (-math.inf, math.inf), "this one comes from anywhere"


def test_arguments_that_are_refused() -> None:
    with pytest.raises(InputError, match=r"no parameter 'gama' \(did you mean 'gamma'\?\)"):
        overflowing().range_report(params={"gama": 1.0})
    with pytest.raises(InputError, match="no input 'gamma'"):
        overflowing().range_report(inputs={"gamma": 1.0})
    with pytest.raises(InputError, match="'dtype' expects one of f16, bf16"):
        overflowing().range_report(dtype="f12")
    with pytest.raises(InputError, match=r"the bound of 'x' expects a magnitude or \(least, largest\)"):
        overflowing().range_report(inputs={"x": -1.0})
    with pytest.raises(StageError, match="is at stage kernels: ranges are of mir"):
        overflowing().transform("hir-to-mir,rlx-fuse,rlx-to-kernels", stage="kernels").range_report()


# Models -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_gemma3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write(tmp_path_factory.mktemp("gemma3") / "m.gguf", architecture="gemma3")


@pytest.mark.parametrize("program", decoder.PROGRAMS)
def test_gemma_computes_in_f32(tiny_gemma3: Path, program: str) -> None:
    """Its activations are beyond f16 in the larger sizes: nothing is of that type unless it is asked for."""
    module = decoder.build(ModelConfig.from_gguf(GGUFFile(tiny_gemma3)), program).lower()
    types = {str(value.type.element_type) for op, value, _ in walk(module.entry, initial(module.entry, {}))}
    assert "f32" in types
    assert not types & {"f16", "bf16"}


def test_a_model_is_looked_at_with_its_weights(tiny_gemma3: Path) -> None:
    file = GGUFFile(tiny_gemma3)
    config = ModelConfig.from_gguf(file)
    module = decoder.build(config, "prefill")
    params = {name: np.asarray(array) for name, array in decoder.parameters(config, file, 64).items()}
    report = range_report(module, params=params, dtype="f16")
    unknown = [finding for finding in report.findings if finding.verdict == "unknown"]
    assert unknown == [], "every value has a bound: inputs are tokens, and caches hold what was written"
    assert report.values > 50
    names = [argument.name for argument in arguments(module.entry)]
    assert set(params) <= set(names)


def test_the_command_reports_ranges(tiny_gemma3: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(tiny_gemma3), "--function", "decode", "--ranges", "f16"])
    assert done.exit_code == 0, done.output
    assert "\nrange report of 'decode' in f16: " in done.stdout
    done = CliRunner().invoke(app, ["report", str(tiny_gemma3), "--ranges", "f12"])
    assert done.exit_code == 1
    assert "'dtype' expects one of f16" in done.stderr


def test_bounds_in_loops_hold_in_every_step() -> None:
    """What doesn't grow keeps its bound; what does has none, and nor has what follows from it steps later."""
    m = GraphModule.mir("loops")
    x, start = m.input("x", ["t", 4]), m.input("start", [4])

    def step(most: Any, total: Any, later: Any, last: Any, own: Any) -> Any:
        return (m.maximum(most, own), total + own, total, m.tanh(later)), own * 2.0

    (most, total, later, last), doubled = m.scan(step, (start, start, start, start), x)
    m.set_outputs({"most": most, "total": total, "later": later, "last": last, "doubled": doubled})
    *_, scan = walk(m.entry, initial(m.entry, {"x": 1.0, "start": 3.0}))
    found = [own for op, _, own in walk(m.entry, initial(m.entry, {"x": 1.0, "start": 3.0})) if op.name == "mir.scan"]
    assert scan[0].name == "mir.scan"
    assert (found[0].low, found[0].high) == (-3, 3)
    assert found[1] == found[2] == ANYTHING
    assert (found[3].low, found[3].high) == (-3, 3)  # where there is no step, it is what it was
    assert (found[4].low, found[4].high) == (-2, 2)


def test_bounds_of_both_branches() -> None:
    m = GraphModule.mir("branches")
    p, x = m.input("p", [], "i1"), m.input("x", [4])
    m.set_outputs({"y": m.cond(p, lambda: m.exp(m.minimum(x, 0.0)), lambda: x * 2.0)})
    *_, (_, _, own) = walk(m.entry, initial(m.entry, {"x": 1.0}))
    assert (own.low, own.high) == (-2, 2)
