# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measuring: noise, the machine's limits, and the work of kernels, counted by hand here."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir import ir, native
from rlx_mlir.codegen.cpu.target import Target
from rlx_mlir.compiler import CompileOptions
from rlx_mlir.errors import ContextLengthError, InputError, UnsupportedError
from rlx_mlir.hir import GraphModule
from rlx_mlir.measure import plot, roofline
from rlx_mlir.measure.compile_timing import time_compilation
from rlx_mlir.measure.profile import Profile, measured, profile_model
from rlx_mlir.measure.roofline import Probe, Roofline
from rlx_mlir.measure.summary import summarize
from rlx_mlir.measure.timing import Series, compare, interleave
from rlx_mlir.measure.trace import trace
from rlx_mlir.measure.work import ModuleWork
from rlx_mlir.mir import COSTS, REFERENCES
from rlx_mlir.rewriting import run_pipeline
from rlx_mlir.runtime.work import Work
from rlx_mlir.tools.cli import app
from rlx_mlir.tools.modules import read_module

# Timing -----------------------------------------------------------------------------------------------


@pytest.mark.wide
def test_interleaving_takes_turns() -> None:
    calls: list[str] = []

    def run(name: str) -> Any:
        return lambda: (calls.append(name), len(calls))[1]

    done: list[int] = []
    series = interleave({"a": run("a"), "b": run("b")}, 3, after_round=done.append)
    assert "".join(calls) == "abababab"
    assert series["a"].values == [3, 5, 7]
    assert done == [1, 2, 3]
    calls.clear()
    interleave({"a": run("a"), "b": run("b")}, 2, warm=False)
    assert "".join(calls) == "abab"


def test_spread_and_drift() -> None:
    steady = Series([10.0, 10.1, 9.9, 10.0, 10.0, 10.05])
    assert steady.median == 10.0
    assert steady.spread < 0.02
    assert abs(steady.drift) < 0.01
    assert steady.noise == ""
    assert Series([8.0, 10.0, 12.0]).spread == pytest.approx(0.4)
    assert Series([10.0] * 4 + [11.6] * 4).drift == pytest.approx(0.16)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([1.0, 1.0], "2 rounds are fewer than 3"),
        ([1.0, 2.0, 1.0, 2.0, 1.0, 2.0], "spread of"),
        ([10.0, 10.0, 10.0, 11.8, 11.8, 11.8], "drift of +18%"),
    ],
)
def test_noise_is_named(values: list[float], reason: str) -> None:
    assert reason in Series(values).noise


def test_no_conclusion_from_noise() -> None:
    steady, noisy = Series([10.0, 10.0, 10.1, 10.0]), Series([5.0, 9.0, 4.0, 8.0])
    found = compare(steady, noisy)
    assert not found.is_conclusive
    assert str(found).startswith("inconclusive: of the ratio, spread of")
    assert "x" not in str(found)[-2:]
    assert found.to_dict()["ratio"] is None
    found = compare(Series([20.0, 20.2, 20.1, 20.0]), steady)
    assert str(found) == "2.00x"
    assert found.to_dict()["ratio"] == pytest.approx(2.0, rel=0.01)
    assert compare(steady, Series([20.0, 20.2, 20.1, 20.0]), higher_is_better=False).ratio == pytest.approx(2, rel=0.01)


def test_a_drift_of_both_is_no_conclusion_either() -> None:
    """The ratio is steady, but the machine wasn't: what else it did may have hit one of them harder."""
    slowing = [10.0, 10.0, 10.0, 8.2, 8.2, 8.2]
    assert "drift" in compare(Series(slowing), Series([value * 2 for value in slowing])).noise


# The machine ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def probe() -> Probe:
    return Probe(1, 32 << 20)


@pytest.mark.wide
def test_limits_are_measured(probe: Probe) -> None:
    series = interleave(probe.figures(), 3)
    found = probe.roofline(series)
    assert found.threads == 1
    assert found.working_set == 32 << 20
    assert 1e8 < found.flops < 1e13
    assert 1e7 < found.bandwidth < 1e13
    assert found.flops == max(series["flops"].values)
    if probe.has_integers:
        assert found.integer_ops is not None
        assert found.integer_ops > found.flops
    assert found.to_dict()["bandwidth"] == found.bandwidth


def test_the_reading_kernel_reads_everything(probe: Probe) -> None:
    """Each unit's sum is that of its chunk: nothing was left out, or optimised away."""
    probe.bandwidth()
    np.testing.assert_allclose(probe._sums, probe._data.reshape(-1, roofline.CHUNK).sum(1), rtol=1e-3)
    probe._data[-1] += 1000
    probe.bandwidth()
    assert probe._sums[-1] == pytest.approx(roofline.CHUNK + 1000, rel=1e-3)
    probe._data[-1] -= 1000


def host_without(monkeypatch: pytest.MonkeyPatch, *features: str) -> None:
    """The probe's kernels are made for this processor as if it lacked some features."""
    triple, cpu, known = ir.native.host_target()
    left = ",".join(word for word in known.split(",") if not word.startswith(tuple(f"+{name}" for name in features)))
    monkeypatch.setattr(roofline, "_host", lambda: Target.from_features(left, triple, cpu))


@pytest.mark.skipif("+avx2" not in native.host_processor()[3], reason="needs AVX2")
def test_products_of_bytes_by_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step multiplies: what is the same in every step would be computed before the loop, and cost nothing."""
    host_without(monkeypatch, "avx512", "avxvnni")
    found = Probe(1, 1 << 20)
    assert found.has_integers
    rates = {name: measure() for name, measure in found.figures().items()}
    assert 1e7 < rates["integer_ops"] < 1e13
    text = roofline._arithmetic("peak", roofline._host(), integer=True)
    inside = text[text.index("scf.for", text.index("scf.for") + 1) :]
    assert inside.count("pmadd.ub.sw") == roofline.accumulators(roofline._host())


def test_products_of_tiles() -> None:
    """Machine code of the kernels, which most machines can't run: the loop holds nothing but products."""
    target = Target.from_features("+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx2,+fma,+f16c,+amx-tile,+amx-int8")
    text = "\n".join(roofline._tiles(name, name) for name in ("tdpbusd", "tdpbf16ps"))
    with ir.new_context():
        module = ir.Module.parse(text)
        run_pipeline(module, "rlx-to-llvm")
        kind = ir.native.CodeKind.ASSEMBLY
        given = (module.operation, target.triple, "sapphirerapids", "+amx-tile,+amx-int8,+amx-bf16", 2, kind)
        code = bytes(ir.native.emit_code(*given)).decode()
    for name in ("tdpbusd", "tdpbf16ps"):
        body = code[code.index(f"{name}:\n") : code.index(f"{name}_units:")]
        words = [line.split()[0] for line in body.splitlines() if line.startswith("\t")]
        first, last = words.index(name), len(words) - 1 - words[::-1].index(name)
        assert set(words[first : last + 1]) == {name}
        assert words.count("tileloadd") == words.count("tilestored") == words.count("tilezero") == 4
        assert words.index("ldtilecfg") < first < words.index("tilerelease")


def test_tiles_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    features = "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx2,+fma,+f16c,+amx-tile,+amx-int8,+amx-bf16"
    target = Target.from_features(features)
    monkeypatch.setattr(roofline, "request_tiles", lambda: True)
    assert roofline._tile_kernels(target) == {"tiles_i8": "tdpbusd", "tiles_bf16": "tdpbf16ps"}
    monkeypatch.setattr(roofline, "request_tiles", lambda: False)
    assert roofline._tile_kernels(target) == {}


def test_the_fastest_products_bound(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of f32 by tiles, six products of parts make one."""
    rates = {"flops": 10.0, "bandwidth": 1.0, "integer_ops": 40.0, "tiles_i8": 900.0, "tiles_bf16": 600.0}
    monkeypatch.setattr(probe, "figures", lambda: rates)
    found = probe.roofline({name: Series([rate]) for name, rate in rates.items()})
    assert (found.flops, found.integer_ops) == (100.0, 900.0)
    del rates["tiles_i8"], rates["tiles_bf16"]
    found = probe.roofline({name: Series([rate]) for name, rate in rates.items()})
    assert (found.flops, found.integer_ops) == (10.0, 40.0)


def test_no_more_is_read_than_caches_hold() -> None:
    assert roofline.rounded_set(1) == 16 << 20
    assert roofline.rounded_set(17 << 20) == 32 << 20
    assert roofline.rounded_set(4 << 30) == 1 << 30


def test_a_process_measures_once() -> None:
    assert roofline.measure(1, 32 << 20, 1) is roofline.measure(1, 32 << 20, 1)


LIMITS = Roofline(threads=1, flops=100e9, integer_ops=400e9, bandwidth=10e9, working_set=1 << 28, spread=0.1)


def test_the_longer_of_two_times_bounds() -> None:
    assert LIMITS.seconds(1e9, 1e9) == pytest.approx(0.1)
    assert LIMITS.seconds(100e9, 1e9) == pytest.approx(1.0)
    assert LIMITS.seconds(100e9, 1e9, integer=True) == pytest.approx(0.25)
    assert LIMITS.noise == ""
    assert "uncertain" in str(Roofline(1, 1e9, None, 1e9, 1 << 28, 0.5))


# Work -------------------------------------------------------------------------------------------------

#: Operations that move data, or only change its form: no arithmetic is counted for them.
MOVES = {
    f"mir.{word}"
    for word in ("cast", "complex", "concat", "constant", "imag", "real", "repack", "resize_nearest_2x", "transpose")
}
#: What a function that users register computes, nobody knows.
UNKNOWN = {"mir.custom"}


def test_every_operation_has_a_cost_or_moves_data() -> None:
    known = {name for name in REFERENCES if name.startswith("mir.")}
    assert known - COSTS.keys() == MOVES | UNKNOWN
    assert not COSTS.keys() - known


def work_of(module: GraphModule, sizes: dict[str, int] | None = None, position: int = 0, **options: Any) -> Work:
    return sum(ModuleWork(module, CompileOptions(**options)).at(sizes or {}, position), Work())


def graph() -> GraphModule:
    return GraphModule.mir("g")


def test_loops_and_choices() -> None:
    """All steps of a scan, one of a loop by a condition, and the calls of both branches."""
    m = graph()
    x, w, p = m.input("x", ["t", 1, 8]), m.param("w", [8, 8]), m.input("p", [], "i1")
    last, _ = m.scan(lambda c, own: (m.matmul(m.add(c, own), w), None), x[0], x)
    small = m.cond(p, lambda: m.matmul(last, w), lambda: m.neg(last))
    m.set_outputs({"y": m.while_loop(lambda c: p, lambda c: m.add(c, 1.0), small)})
    assert work_of(m, {"t": 5}).flops == 5 * (8 + 2 * 64) + (2 * 64 + 8) + 8


def test_a_product() -> None:
    m = graph()
    m.set_outputs({"y": m.matmul(m.input("x", ["n", 48]), m.param("w", [48, 32]))})
    assert work_of(m, {"n": 5}) == Work(2 * 5 * 48 * 32, 4 * (5 * 48 + 48 * 32), 4 * 5 * 32)


def test_packed_weights_count_as_they_are_stored() -> None:
    m = graph()
    m.set_outputs({"y": m.dequant_matmul(m.input("x", [3, 64]), m.param("w", [32, 64], packed="q4_1"))})
    assert work_of(m) == Work(2 * 3 * 64 * 32, 4 * 3 * 64 + 32 * 2 * 20, 4 * 3 * 32)
    found = ModuleWork(m, CompileOptions(activations="int8"))
    assert [call.integer for call in found.calls] == [False, True]
    quantize, product = found.at({})
    assert quantize == Work(5 * 3 * 64, 4 * 3 * 64, 3 * 64 + 2 * 4 * 3 * 2)
    assert product.flops == 2 * 3 * 64 * 32 + 4 * 3 * 32 * 2


def test_what_stays_in_a_kernel_is_no_traffic() -> None:
    m = graph()
    x = m.input("x", [4, 64])
    m.set_outputs({"y": m.tanh(m.exp(x) + x)})
    found = ModuleWork(m, CompileOptions())
    assert [call.ops for call in found.calls] == [("exp", "add", "tanh")]
    assert found.at({}) == [Work(3 * 256, 4 * 256, 4 * 256)]


def test_a_gather_reads_rows() -> None:
    m = graph()
    m.set_outputs({"y": m.gather(m.param("t", [100, 8]), m.input("i", [3], "i32"), axis=0)})
    assert work_of(m) == Work(0, 3 * 8 * 4 + 3 * 4, 3 * 8 * 4)


def attention(mask_kind: str, **attributes: Any) -> GraphModule:
    m = graph()
    q = m.input("q", [1, "s", 64])
    k, v, pos = m.input("k", [1, 100, 32]), m.input("v", [1, 100, 32]), m.input("pos", [1], "i32")
    heads = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 16}
    m.set_outputs({"y": m.attention(q, k, v, pos=pos, mask_kind=mask_kind, **heads, **attributes)})
    return m


@pytest.mark.parametrize(
    ("mask_kind", "attributes", "queries", "position", "seen", "rows"),
    [
        ("causal", {}, 1, 9, 10, 10),
        ("causal", {}, 3, 9, 10 + 11 + 12, 12),
        ("none", {}, 3, 9, 3 * 12, 12),
        ("sliding_window", {"window": 4}, 1, 9, 4, 4),
        ("sliding_window", {"window": 4}, 3, 9, 12, 6),
        ("sliding_window", {"window": 50}, 2, 9, 10 + 11, 11),
    ],
)
def test_attention_sees_what_its_mask_shows(
    mask_kind: str, attributes: dict[str, Any], queries: int, position: int, seen: int, rows: int
) -> None:
    """The cache has 100 positions, of which few are filled: only those count."""
    found = work_of(attention(mask_kind, **attributes), {"s": queries}, position)
    assert found.flops == seen * 4 * (4 * 16 + 5)
    assert found.read == 4 * (queries * 64 + 2 * rows * 32 + 1)


def test_symbols_need_sizes() -> None:
    m = graph()
    m.set_outputs({"y": m.exp(m.input("x", ["n", 4]))})
    with pytest.raises(InputError, match="needs a size for its symbol 'n'"):
        work_of(m)


def test_a_call_says_where_it_comes_from() -> None:
    m = GraphModule.hir("h")
    m.set_outputs({"y": m.rms_norm(m.input("x", [4, 64]), m.param("g", [64]), name="first.norm")})
    (call,) = ModuleWork(m, CompileOptions()).calls
    assert call.block == "first.norm"
    assert "test_measure.py" in call.source
    assert call.kind == "rows"


# Profiles ---------------------------------------------------------------------------------------------


def test_a_step_is_measured() -> None:
    m = graph()
    m.set_outputs({"y": m.tanh(m.input("x", ["n", 64]))})
    executable = rlx.compile(m, maxima={"n": 100})
    x = np.ones((7, 64), np.float32)
    run = measured(executable, lambda: executable.run({"x": x}), {"n": 7})
    assert run.sizes == {"n": 7}
    assert len(run.calls) == 1
    assert 0 < run.calls[0] <= run.seconds


@pytest.fixture(scope="module")
def model(tiny_llama: Path) -> Any:
    return rlx.load_model(tiny_llama, threads=1, context=64, chunk=16)


@pytest.fixture(scope="module")
def profile(model: Any) -> Profile:
    return profile_model(model, prompt_tokens=20, decode=4, rounds=2)


def test_a_model_is_profiled(profile: Profile) -> None:
    prefill, decode = profile.programs
    assert (prefill.name, decode.name) == ("prefill", "decode")
    assert [run.sizes["seq"] for run in prefill.runs] == [16, 4, 16, 4]  # a prompt of two chunks, twice
    assert [run.position for run in prefill.runs] == [0, 16, 0, 16]
    assert [run.position for run in decode.runs] == [20, 21, 22, 23] * 2
    for program in profile.programs:
        assert sum(kernel.calls for kernel in program.kernels) == len(program.calls)
        assert sum(kernel.share for kernel in program.kernels) == pytest.approx(1)
        assert sorted(program.kernels, key=lambda kernel: -kernel.seconds) == list(program.kernels)
        assert all(kernel.template for kernel in program.kernels)
    assert any("blk.1" in kernel.blocks for kernel in decode.kernels)
    json.dumps(profile.to_dict())


def test_the_calls_are_those_of_the_plan(model: Any, profile: Profile) -> None:
    for program, executable in zip(profile.programs, (model.programs.prefill, model.programs.decode), strict=True):
        names = [executable.artifact.kernels[call[0]] for call in executable.artifact.calls]
        assert [call.kernel for call in program.calls] == names


def test_a_token_reads_the_weights(model: Any, profile: Profile) -> None:
    """All matrices of the model but the embedding table, of which one row is read beside the tied head."""
    decode = profile.programs[1]
    matrices = sum(info.nbytes for info in model.file.tensors.values() if len(info.shape) == 2)
    assert matrices <= decode.total.read < 1.5 * matrices
    sizes = {info.name: info.size for info in model.file.tensors.values() if len(info.shape) == 2}
    products = 2 * sum(sizes.values())
    # Two of bytes each: activations have 15 bits.
    assert 1.5 * products <= decode.total.flops < 2.5 * products


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"prompt_tokens": 0}, InputError, "'prompt_tokens' must be an integer of at least 1, but is 0"),
        ({"rounds": 0}, InputError, "'rounds'"),
        ({"decode": -1}, InputError, "'decode'"),
        ({"prompt_tokens": 60, "decode": 5}, ContextLengthError, "60 tokens of a prompt and 5 after it"),
    ],
)
def test_profiles_that_cannot_be(model: Any, arguments: dict[str, int], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        profile_model(model, **arguments)


def test_the_trace(profile: Profile) -> None:
    events = json.loads(json.dumps(trace(profile)))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    runs = [event for event in slices if event["cat"] == "run"]
    assert len(runs) == sum(len(program.runs) for program in profile.programs)
    assert len(slices) - len(runs) == sum(len(program.runs) * len(program.calls) for program in profile.programs)
    for run in runs:
        inside = [
            event
            for event in slices
            if event["cat"] != "run"
            and event["tid"] == run["tid"]
            and run["ts"] <= event["ts"] < run["ts"] + run["dur"]
        ]
        assert inside
        assert sum(event["dur"] for event in inside) <= run["dur"] * 1.01
        assert {"block", "source", "bytes read", "operations done"} <= inside[0]["args"].keys()
    assert any(event["args"].get("block") == "blk.0" for event in slices)


class _Resources(HTMLParser):
    """Collects what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href")]
        if tag == "script":
            self.found.append(tag)


def test_labels_of_the_plot_are_apart() -> None:
    """Of many kernels at one place; those that find none are left out."""
    taken: list[plot._Box] = []
    heights = [plot._free(100, 200, 300, taken) for _ in range(30)]
    assert heights[:3] == [300, 315, 285]
    assert heights[-1] is None
    assert len(taken) == sum(height is not None for height in heights) == 17
    assert not any(a.meets(b) for i, a in enumerate(taken) for b in taken[:i])


_BUILDER = """
import rlx_mlir as rlx

def build():
    m = rlx.GraphModule.hir("ffn")
    m.set_outputs({"y": m.softmax(m.linear(m.input("x", ["tokens", 64]), m.param("w", [32, 64], packed="q8_0")))})
    return m

graph, number = build(), 3

def broken():
    raise ValueError("no graph today")
"""


def _profiled(path: Path, *words: str) -> Any:
    return CliRunner().invoke(app, ["profile", str(path), *words])


def test_files_of_one_module_are_profiled(tmp_path: Path) -> None:
    (tmp_path / "ffn.py").write_text(_BUILDER)
    m = read_module(f"{tmp_path}/ffn.py:build").module
    (tmp_path / "ffn.mlir").write_text(m.to_text())
    rlx.compile(m, maxima={"tokens": 16}).artifact.save(tmp_path / "ffn.rlx")
    for words, tokens in (
        (["ffn.mlir", "--size", "tokens=3", "--maximum", "tokens=8", "--activations", "exact"], 3),
        (["ffn.py:graph", "--maximum", "tokens=8", "--activations", "exact"], 8),
        (["ffn.rlx"], 16),
    ):
        done = _profiled(tmp_path / words[0], *words[1:], "--rounds", "3", "--json")
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert (found["program"], found["sizes"]) == ("ffn", {"tokens": tokens})
        assert found["seconds"]["rounds"] == 3
        # The weights in blocks of 34 bytes for 32, x and y; a product is two operations for each pair.
        weights, values = 32 * 64 // 32 * 34, 4 * tokens * (64 + 32)
        assert weights + values <= found["bytes"] <= weights + 2 * values
        assert found["flops"] >= 2 * tokens * 32 * 64
        assert found["machine"]["bandwidth"] > 1e8
        assert sum(kernel["bytes"] for kernel in found["kernels"]) == found["bytes"]
        assert all(kernel["roofline"] > 0 for kernel in found["kernels"])
    text = _profiled(tmp_path / "ffn.py:build", "--maximum", "tokens=8", "--rounds", "3").stdout
    assert "ffn at tokens = 8: one call in " in text
    assert re.search(r"kernel +calls +us +share +MB +MFLOP +GB/s +GFLOP/s +limit +bound", text)
    assert "tokens/s" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ffn.rlx", "--size", "token=3"], r"no symbol 'token' (did you mean 'tokens'?)"),
        (["ffn.rlx", "--size", "tokens=17"], "'tokens' is a whole number from 1 to 16, but got 17"),
        (["ffn.rlx", "--plot", "f.pdf"], "'f.pdf'"),
        (["ffn.rlx", "--maximum", "tokens=8"], "'--maximum' says nothing about an artefact"),
        (["none.rlx"], "no such file"),
        (["ffn.py:graphs"], "has no 'graphs' (did you mean 'graph'?)"),
        (["ffn.py:number"], "must be a GraphModule, or a function that gives one, but is 3"),
        (["ffn.py:broken"], "no graph today"),
        (["none.py:graph"], "none.py' is no file"),
        (["wrong.py:graph"], "SyntaxError"),
    ],
)
def test_files_that_cant_be_profiled(words: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "ffn.py").write_text(_BUILDER)
    (tmp_path / "wrong.py").write_text("def\n")
    m = read_module(f"{tmp_path}/ffn.py:build").module
    rlx.compile(m, maxima={"tokens": 16}).artifact.save(tmp_path / "ffn.rlx")
    done = _profiled(tmp_path / words[0], *words[1:])
    assert done.exit_code == (2 if message.startswith("'--") else 1)
    assert message in done.stderr


def test_the_plot_needs_nothing_else(profile: Profile, tmp_path: Path) -> None:
    page = plot.to_html(profile)
    resources = _Resources()
    resources.feed(page)
    assert resources.found == []
    assert "url(" not in page
    assert "prefers-color-scheme: dark" in page
    svg = ElementTree.fromstring(plot.to_svg(profile))
    points = svg.findall("circle")
    assert len(points) == sum(len(plot.shown(program)) for program in profile.programs) > 0
    for point in points:
        assert 0 <= float(point.attrib["cx"]) <= 900
        assert 0 <= float(point.attrib["cy"]) <= 520
        assert "of the roofline" in "".join(point.itertext())
    assert "More than 100 % of the roofline is no error" in page
    plot.write_plot(profile, tmp_path / "roofline.html")
    assert (tmp_path / "roofline.html").read_text() == page


def test_plots_of_other_kinds(profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"\.html or \.png, but its file is 'r\.svg'"):
        plot.write_plot(profile, tmp_path / "r.svg")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"needs matplotlib, which isn't installed: pip install matplotlib"):
        plot.write_plot(profile, tmp_path / "r.png")


def test_a_plot_by_matplotlib(profile: Profile, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot.write_plot(profile, tmp_path / "r.png")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.wide
def test_the_summary_of_a_run(model: Any) -> None:
    generation = model.generate([5] * 20, max_tokens=5, greedy=True, ignore_eos=True)
    generation.read()
    found = summarize(model, generation.stats)
    prompt, decode = found.parts
    assert (prompt.tokens, decode.tokens) == (20, 4)
    assert prompt.work.flops > 3 * decode.work.flops
    assert decode.fraction > 0
    assert decode.bound in str(decode)
    assert str(found).count("\n") == 2
    json.dumps(found.to_dict())


# Compilation ------------------------------------------------------------------------------------------


def test_a_compilation_is_timed() -> None:
    def build() -> GraphModule:
        m = GraphModule.hir("h")
        m.set_outputs({"y": m.rms_norm(m.input("x", ["n", 64]), m.param("g", [64]))})
        return m

    found = time_compilation(build, CompileOptions(maxima={"n": 16}, verify=False))
    names = [stage.name for stage in found.stages]
    assert names == ["build", "check", "mir", "kernels", "lir", "linalg", "cpu", "llvm", "optimise", "code"]
    by_name = {stage.name: stage for stage in found.stages}
    assert "mir-outline-kernels" in [own.name for own in by_name["kernels"].passes]
    assert [own.name for own in by_name["linalg"].passes] == ["cpu-apply-templates", "mir-to-linalg"]
    for stage in found.stages:
        assert stage.seconds >= sum(own.seconds for own in stage.passes)
    assert found.kernels == found.calls == 1
    assert found.code_bytes > 0
    assert found.to_dict()["seconds"] == found.seconds
