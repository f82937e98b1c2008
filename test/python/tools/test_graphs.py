# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is said of graphs without compiling them: pictures, JSON, memory; and the commands that print it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rlx_mlir as rlx
from rlx_mlir import GraphModule
from rlx_mlir.compiler import Compilation, CompileOptions
from rlx_mlir.errors import InputError, RlxError, StageError, UnsupportedError
from rlx_mlir.fuzz.cases import random_case
from rlx_mlir.mir.registry import REFERENCES
from rlx_mlir.reports import families, layout, svg
from rlx_mlir.reports.drawing import MOST, draw
from rlx_mlir.reports.families import FAMILIES, family_of, module_of
from rlx_mlir.reports.graph import graph_of
from rlx_mlir.reports.layout import Box, Link, arrange, layers
from rlx_mlir.semantics.ops import operation_classes
from rlx_mlir.tools.cli import app

ROOT = Path(__file__).resolve().parents[3]
SVG = "{http://www.w3.org/2000/svg}"


def decoder(count: int = 2) -> GraphModule:
    """Layers of blocks with caches, at stage hir."""
    m = GraphModule.hir("decoder")
    h, pos = m.input("x", ["b", "s", 32]), m.input("pos", ["b"], "i32")
    tables = {name: m.param(name, [64, 4]) for name in ("cos", "sin")}
    outputs = {}
    for number in range(count):
        with m.scope(f"layers.{number}"):
            names = {"ln1_gamma": [32], "q_w": [32, 32], "k_w": [32, 16], "v_w": [32, 16], "o_w": [32, 32]}
            names |= {"ln2_gamma": [32], "gate_w": [32, 64], "up_w": [32, 64], "down_w": [64, 32]}
            weights: dict[str, Any] = {name: m.param(f"{name}{number}", shape) for name, shape in names.items()}
            caches: dict[str, Any] = {f"{w}_cache": m.input(f"{w}{number}", ["b", 64, 16]) for w in "kv"}
            sizes: dict[str, Any] = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8}
            h, k, v = m.llama_decoder_block(h, **weights, **tables, **caches, pos=pos, **sizes)
            outputs |= {f"k{number}_out": k, f"v{number}_out": v}
    m.set_outputs({"h": h, **outputs}, tied={name: name.removesuffix("_out") for name in outputs})
    return m


def loops() -> GraphModule:
    m = GraphModule.mir("loops")
    x, xs, flag = m.input("x", ["n", 16]), m.input("xs", [5, "n", 16]), m.input("flag", [], "i1")
    w = m.param("w", [16, 16])
    with m.scope("cell"):
        c, ys = m.scan(lambda c, v: (m.tanh(c @ w + v), m.mul(c, v)), x, xs)
    y = m.cond(flag, lambda a: m.silu(a) + a, lambda a: m.exp(a) * np.float32(2), c)
    small = lambda a: m.lt(m.max(m.abs(a), [0, 1]), np.float32(100))  # noqa: E731
    z = m.while_loop(small, lambda a: a * (a + y), y, limit=10)
    m.set_outputs({"z": z, "ys": ys, "raw": x})
    return m


def chain(count: int, name: Callable[[int], str | None] = lambda number: None) -> GraphModule:
    """A residual network of so many operations."""
    m = GraphModule.mir("chain")
    x = y = m.input("x", ["n", 8])
    for number in range(count):
        y = m.add(y, x, name=name(number)) if number % 3 == 0 else m.silu(y, name=name(number))
        x = y if number % 9 == 0 else x
    m.set_outputs({"y": y})
    return m


# Pictures -----------------------------------------------------------------------------------------


def boxes(drawing: str, kind: str = "") -> list[tuple[float, ...]]:
    """Left, top, right and bottom of the boxes of a drawing, of one kind or of all operations."""
    wanted = {kind} if kind else {*FAMILIES, "folded"}
    found = []
    root = ET.fromstring(drawing)
    for rect in root.iter(f"{SVG}rect"):
        words = rect.get("class", "").split()
        if wanted & set(words) and rect.get("width") != "16":  # of the legend
            x, y, width, height = (float(rect.get(name, "0")) for name in ("x", "y", "width", "height"))
            found.append((x, y, x + width, y + height))
    return found


def texts(drawing: str) -> list[str]:
    return [text.text or "" for text in ET.fromstring(drawing).iter(f"{SVG}text")]


def tips(drawing: str) -> list[str]:
    return [title.text or "" for title in ET.fromstring(drawing).iter(f"{SVG}title")]


def assert_apart(found: list[tuple[float, ...]]) -> None:
    """Boxes don't overlap, but for those that hold others whole."""
    for number, (left, top, right, bottom) in enumerate(found):
        for x, y, end, below in found[:number]:
            outside = end <= left or right <= x or below <= top or bottom <= y
            within = (left <= x and end <= right and top <= y and below <= bottom) or (
                x <= left and right <= end and y <= top and bottom <= below
            )
            assert outside or within


def test_each_operation_is_a_box_with_name_block_type_and_parameters() -> None:
    m = decoder().lower()
    drawing = m.draw()
    shown = texts(drawing.svg)
    assert drawing.boxes == len(boxes(drawing.svg)) == len(m)
    for node in m.nodes():
        assert node.op.removeprefix("mir.") in shown
    assert shown.count("attention") == 2 + 1  # and the legend
    assert {"layers.0", "layers.1", "[b, s, 64] f32", "gate_w1 [32, 64] f32", "pos", "k0_out (tied to k0)"} <= set(
        shown
    )
    assert len(boxes(drawing.svg, "input")) == 6
    assert len(boxes(drawing.svg, "output")) == 5
    assert_apart([*boxes(drawing.svg), *boxes(drawing.svg, "input"), *boxes(drawing.svg, "output")])
    tip = next(text for text in tips(drawing.svg) if text.startswith("mir.attention"))
    assert "block layers.0" in tip
    assert re.search(r"at .*test_graphs\.py:\d+", tip)
    assert "gives [b, s, 32] f32" in tip


def test_deep_blocks_are_one_box() -> None:
    m = decoder(3).lower()
    folded = m.draw(depth=0)
    assert folded.boxes == len(boxes(folded.svg, "folded")) / 2 == 3  # each with a shadow
    assert {"layers.0", "18 operations", "input k2", "output v2_out (tied to v2)"} <= set(texts(folded.svg))
    assert m.draw(depth=1).boxes == m.draw(depth=7).boxes == len(m)
    # More boxes than are easily read: blocks are boxes, where nothing else is asked for.
    many = chain(400, lambda number: f"part.{number // 40}.op")
    assert (many.draw().boxes, many.draw().depth) == (10, 0)
    assert many.draw(depth=1).boxes == 400


def test_two_hundred_operations_are_apart_and_lines_lead_down() -> None:
    m = chain(200)
    drawing = m.draw()
    found = boxes(drawing.svg)
    assert len(found) == 200
    assert_apart(found)
    for path in ET.fromstring(drawing.svg).iter(f"{SVG}path"):
        line = re.split(r"M", path.get("d", ""))[1]
        heights = [float(own) for own in re.findall(r"[ML C][\d.-]+ ([\d.-]+)", f"M{line}")]
        assert all(a <= b for a, b in pairwise(heights))


def test_regions_are_boxes_in_boxes() -> None:
    drawing = loops().draw()
    shown = texts(drawing.svg)
    assert {"scan", "if", "while", "each step", "then", "else", "do", "carried 0", "entry 0", "given w"} <= set(shown)
    assert "2.0" in shown  # a constant stands in the box that reads it
    found = boxes(drawing.svg)
    assert_apart(found)
    outer = boxes(drawing.svg, "control")
    assert len(outer) == 3
    assert sum(any(x < left and right < end for x, _, end, _ in outer) for left, _, right, _ in found) >= 10


def test_kernels_are_drawn_as_calls() -> None:
    m = decoder()
    drawing = rlx.draw(m, "kernels")
    assert rlx.draw(m).svg == m.draw().svg
    assert any(text.startswith("kernel attention_0\nmir.attention") for text in tips(drawing.svg))
    with pytest.raises(InputError, match=r"'stage' expects one of hir, mir, kernels, but got 'lir'"):
        rlx.draw(m, "lir")
    with pytest.raises(StageError, match=r"'decoder' is past stage hir: it is at mir"):
        rlx.draw(m.lower(), "hir")
    planned = GraphModule.from_text(rlx.emit(m, "lir"))
    for refused in (planned.draw, planned.to_json):
        with pytest.raises(StageError, match=r"at stage hir, mir, kernels, but 'decoder' is at stage lir"):
            refused()
    with pytest.raises(StageError, match=r"'decoder' is at stage lir: memory is estimated at hir and mir"):
        planned.memory_estimate()


def test_names_of_strangers_are_text(tmp_path: Path) -> None:
    name = "</text><script>alert('&\"')</script>\x00\x1b]]>\ufffe"
    m = GraphModule.mir("hostile")
    m.set_outputs({name: m.add(m.input(name, ["n", 4]), m.param(f"{name}w", [4]), name=f"{name}.{name}")})
    drawing = m.draw()
    root = ET.fromstring(drawing.svg)
    assert not list(root.iter(f"{SVG}script"))
    assert any("<script>" in (text.text or "") for text in root.iter(f"{SVG}title"))
    drawing.save(tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").read_text() == drawing.svg == str(drawing) == drawing._repr_svg_()
    drawing.save(tmp_path / "new" / "graph.svg")
    with pytest.raises(InputError, match=r"graph\.svg/x cannot be written: Not a directory"):
        drawing.save(tmp_path / "graph.svg" / "x")


@pytest.mark.parametrize("text", ["\x00\x08\x1f", "\ud800", "\ufffe\uffff"])
def test_what_xml_cannot_hold_is_replaced(text: str) -> None:
    assert svg.escaped(text) == "\ufffd" * len(text)
    assert svg.escaped("a\tb\u00e9\U0001f600") == "a\tb\u00e9\U0001f600"


def test_a_drawing_has_a_limit() -> None:
    graph = graph_of(chain(MOST + 1).ir_module, "mir")
    with pytest.raises(InputError, match=rf"at most {MOST} boxes, but of 'chain' at depth 0 {MOST + 1}"):
        draw(graph)
    with pytest.raises(InputError, match=r"'depth' is a whole number of at least 0, but got -1"):
        decoder().draw(depth=-1)


def test_far_lines_end_at_marks() -> None:
    m = GraphModule.mir("far")
    x = m.input("x", [4])
    y = x
    for _ in range(30):
        y = m.silu(y)
    m.set_outputs({"y": y + x})
    assert "from x" in texts(m.draw().svg)
    assert len(boxes(m.draw().svg, "mark")) == 1


def test_every_operation_has_a_family() -> None:
    used = {family_of(name) for name in operation_classes()}
    assert used == FAMILIES.keys()
    modules = {module_of(reference) for name, reference in REFERENCES.items() if name.startswith("mir.")}
    assert modules == families._OF_MODULES.keys()
    others = {name for name in operation_classes() if family_of(name) == "other"}
    assert others == {"mir.custom", "mir.condition", "mir.entry_view", "mir.yield"}
    assert family_of("mir.matmul") == "product"
    assert family_of("hir.llama_decoder_block") == "block"
    assert family_of("func.call", ["mir.reshape", "mir.softmax"]) == "reduction"


def test_layers_and_lines_of_a_layout() -> None:
    """A diamond with a line over a layer: no box is on a line's way, ends are at the sides of boxes."""
    side = [50.0]
    found = [Box(100.0, 20.0, side, side) for _ in range(4)]
    links = [Link(0, 0, 1, 0), Link(1, 0, 2, 0), Link(0, 0, 2, 0), Link(2, 0, 3, 0)]
    assert layers(found, links) == [0, 1, 2, 3]
    placed = arrange(found, links)
    (x, y), (_, below) = placed.corners[0], placed.corners[3]
    assert placed.lines[0][0] == (x + 50, y + 20)
    assert below + 20 == placed.height
    past = placed.lines[2]
    left, top = placed.corners[1]
    within = [px for px, py in past if top < py <= top + 20]
    assert within
    assert all(px < left or px > left + 100 for px in within)


def test_places_are_as_near_as_the_order_allows() -> None:
    assert layout._in_order([0, 10, 11], [1, 1, 1], [0, 5, 10]) == [0, 8, 13]
    assert layout._in_order([4, 0], [1, 3], [0, 0]) == [1, 1]
    assert layout._apart([-5, 0, 200], 100) == [14, 28, 86]


# JSON ---------------------------------------------------------------------------------------------


def same_nodes(m: GraphModule, found: dict[str, Any]) -> None:
    """The JSON has what handles of the module say."""
    values = {own["id"]: own for own in (*found["inputs"], *found["params"])}
    assert [own["name"] for own in found["inputs"]] == [value.name for value in m.inputs]
    assert [own["name"] for own in found["params"]] == [value.name for value in m.params]
    assert len(found["nodes"]) == len(m)
    for node, own in zip(m.nodes(), found["nodes"], strict=True):
        values.update((value["id"], value) for value in own["results"])
        assert own["op"] == node.op
        assert own["block"] == node.name or not own["block"]
        assert f"{own['source']['file']}:{own['source']['line']}" == node.source
        assert own["attributes"].keys() == node.attributes.keys()
        for listed, handles in ((own["operands"], node.operands), ([v["id"] for v in own["results"]], node.results)):
            assert [tuple(values[number]["dims"]) for number in listed] == [_dims(handle) for handle in handles]
            assert [values[number].get("packed") for number in listed] == [handle.packed for handle in handles]
    for own, (name, value) in zip(found["outputs"], m.outputs.items(), strict=True):
        assert own["name"] == name
        assert tuple(values[own["value"]]["dims"]) == _dims(value)


def _dims(value: Any) -> tuple[int | str, ...]:
    return tuple(value.shape) if value.packed is None else tuple(value._handle.type.shape)


@pytest.mark.parametrize("stage", ["hir", "mir", "kernels"])
def test_json_has_what_the_module_has(stage: str) -> None:
    m = decoder()
    m = m if stage == "hir" else GraphModule.from_text(rlx.emit(m, stage)) if stage == "kernels" else m.lower()
    found = json.loads(m.to_json())
    assert (found["format"], found["version"], found["name"], found["stage"]) == ("rlx-graph", 1, "decoder", stage)
    assert found["symbols"] == ["b", "s"]
    assert found["policy"] == m.fusion_policy
    if stage != "kernels":
        same_nodes(m, found)
        assert {own["name"]: own["tied"] for own in found["outputs"]}["k1_out"] == "k1"
        return
    kernels = {own["name"]: own for own in found["functions"]}
    for node in found["nodes"]:
        callee = kernels[node["attributes"]["callee"]]
        assert len(callee["arguments"]) == len(node["operands"])
        assert len(callee["yields"]) == len(node["results"])
        assert all("?" not in value["dims"] for value in node["results"])  # sizes go through calls
    assert kernels["attention_0"]["class"] == "attention"
    assert [own["op"] for own in kernels["attention_0"]["nodes"]] == ["mir.attention"]


def test_regions_and_constants_in_json() -> None:
    found = json.loads(loops().to_json(indent=1))
    scan, choice = (next(own for own in found["nodes"] if own["op"] == f"mir.{word}") for word in ("scan", "if"))
    assert scan["segments"] == [1, 1, 1]
    (body,) = scan["regions"]
    assert [own["op"] for own in body["nodes"]] == ["mir.matmul", "mir.add", "mir.tanh", "mir.mul"]
    assert body["yields"] == [body["nodes"][2]["results"][0]["id"], body["nodes"][3]["results"][0]["id"]]
    assert body["arguments"][1]["dims"] == ["n", 16]
    values = [own for region in choice["regions"] for own in region["nodes"] if own["op"] == "mir.constant"]
    assert values[0]["attributes"]["value"] == {"dtype": "f32", "dims": [], "splat": 2.0}
    numbers = re.findall(r'"id": (\d+),\s*"op"', loops().to_json())
    assert len(set(numbers)) == len(numbers)


def test_constants_that_json_has_no_numbers_for() -> None:
    m = GraphModule.mir("constants")
    odd = m.constant(np.array([np.inf, -np.inf, np.nan, 1], np.float32))
    m.set_outputs({"a": m.input("x", [4]) + odd, "b": m.constant(np.arange(65, dtype=np.int32))})
    found = [own["attributes"]["value"] for own in json.loads(m.to_json())["nodes"] if own["op"] == "mir.constant"]
    assert {"dtype": "f32", "dims": [4], "elements": ["inf", "-inf", "nan", 1.0]} in found
    assert {"dtype": "i32", "dims": [65]} in found


def test_the_documentation_of_the_json_names_every_key() -> None:
    text = (ROOT / "docs/graphs.md").read_text()
    documented = set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE))

    def keys(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(keys, value))
        inner = [keys(own) for name, own in value.items() if name != "attributes"] if isinstance(value, dict) else []
        return set(value if isinstance(value, dict) else ()).union(*inner)

    m = GraphModule.hir("packed")
    m.set_outputs({"y": m.linear(m.input("x", ["n", 64]), m.param("w", [8, 64], packed="q8_0"))})
    used = keys(json.loads(loops().to_json())) | keys(json.loads(m.to_json()))
    used |= keys(json.loads(GraphModule.from_text(rlx.emit(decoder(1), "kernels")).to_json()))
    assert used == documented


# Memory -------------------------------------------------------------------------------------------


def mlp() -> GraphModule:
    m = GraphModule.hir("mlp")
    h = m.input("x", ["n", 64])
    for number in range(3):
        h = m.linear(h, m.param(f"w{number}", [64, 64]), m.param(f"b{number}", [64]), activation="gelu")
    m.set_outputs({"y": m.rms_norm(h, m.param("g", [64]))})
    return m


def wide() -> GraphModule:
    """Branches that are all alive until the last one is there."""
    m = GraphModule.mir("wide")
    x = m.input("x", ["n", 32])
    parts = [m.matmul(x, m.param(f"w{number}", [32, 32 + number])) for number in range(6)]
    m.set_outputs({"y": m.softmax(m.concat([m.softmax(p, -1) for p in parts], 1), -1)})
    return m


PLANNED = {
    "decoder": (decoder, {"b": 2, "s": 16}),
    "mlp": (mlp, {"n": 100}),
    "wide": (wide, {"n": 64}),
    "loops": (loops, {"n": 9}),
    "chain": (lambda: chain(30), {"n": 50}),
}
#: What an estimate says that the compiled module's report says, too.
SAME = ("parameters", "prepared", "arena", "inputs", "outputs", "donated", "peak", "peak_donated")


@pytest.mark.parametrize("name", PLANNED)
def test_estimates_are_what_compiled_modules_say(name: str) -> None:
    build, maxima = PLANNED[name]
    m = build()
    before = m.to_text()
    estimate = m.memory_estimate(maxima)
    assert m.to_text() == before
    report = rlx.compile(m, maxima=maxima, level=0).dispatch_report()
    assert {own: getattr(estimate, own) for own in SAME} == {own: getattr(report.memory, own) for own in SAME}
    assert estimate.sizes == report.sizes == maxima
    assert estimate.kernel in {row.name for row in report.kernels}
    assert estimate.arena > 0


@pytest.mark.wide
def test_estimates_are_the_plans_of_random_modules() -> None:
    planned = 0
    for number in range(40):
        case, _ = random_case(31, number)
        maxima, activations = case.options["maxima"], case.options["activations"]
        compilation = Compilation(case.module, CompileOptions(maxima=maxima, activations=activations))
        try:
            compilation.run(until="lir")
        except UnsupportedError:
            continue
        plan = compilation.plan
        estimate = case.module.memory_estimate(maxima, activations=activations)
        assert (number, estimate.arena, estimate.sizes) == (number, plan.arena_bytes, dict(plan.symbols))
        planned += estimate.arena > 0
    assert planned >= 10


def packed() -> GraphModule:
    """A norm that a packed product reads: in 8 bits, it takes a quarter."""
    m = GraphModule.hir("packed")
    h = m.rms_norm(m.input("x", ["n", 256]), m.param("g", [256]))
    m.set_outputs({"y": m.linear(h, m.param("w", [32, 256], packed="q8_0"))})
    return m


def siblings(dtype: str = "f32") -> GraphModule:
    """Products of one input: joined, both are alive at once."""
    m = GraphModule.mir("siblings")
    x = m.input("x", ["n", 64], dtype)
    m.set_outputs({name: m.softmax(m.exp(x @ m.param(f"w{name}", [64, 64], dtype)), -1) for name in "ab"})
    return m


@pytest.mark.parametrize(
    ("build", "options", "differs"),
    [
        (packed, {"activations": "int8"}, True),
        (siblings, {"skip_fusion": True}, True),
        (lambda: siblings("f16"), {"intermediates": "wide"}, False),
        (lambda: decoder(1), {"target": "nvptx"}, True),
    ],
    ids=["activations", "skip_fusion", "intermediates", "target"],
)
def test_estimates_follow_options(build: Callable[[], GraphModule], options: dict[str, Any], differs: bool) -> None:
    m = build()
    estimate, usual = m.memory_estimate(**options), m.memory_estimate()
    compilation = Compilation(m, CompileOptions(**options))
    compilation.run(until="lir")
    assert estimate.arena == compilation.plan.arena_bytes > 0
    assert (estimate.arena != usual.arena) == differs


def test_unused_arguments_have_symbols_of_their_own() -> None:
    m = GraphModule.mir("unused")
    m.input("mask", ["rows", 4])
    unused = m.param("old", ["k", 8])
    m.set_outputs({"y": m.exp(m.softmax(m.input("x", ["n", 16]), -1) @ m.param("w", [16, 16]))})
    assert unused.shape == ("k", 8)
    estimate = m.memory_estimate({"n": 4, "k": 3, "rows": 2})
    assert (estimate.sizes, estimate.inputs) == ({"n": 4, "rows": 2}, (4 * 16 + 2 * 4) * 4)
    assert estimate.parameters == (16 * 16 + 3 * 8) * 4


def test_sizes_that_do_not_grow_with_their_symbol() -> None:
    """The result of six rows is larger than that of seven; memory between kernels serves both."""
    m = GraphModule.mir("rows")
    cut = m.slice(m.input("x", ["n", 16]), 0, -7, 6)
    m.set_outputs({"y": m.softmax(m.cumsum(cut, 0), -1), "cut": cut})
    for size, rows in ((6, 6), (7, 6), (9, 4)):
        estimate = m.memory_estimate({"n": size})
        assert estimate.outputs == 2 * rows * 64
        assert estimate.arena >= 6 * 64


def test_where_most_is_alive() -> None:
    m = GraphModule.mir("hill")
    x = m.input("x", ["n", 16])
    with m.scope("up"):
        wide = m.softmax(m.matmul(x, m.param("w", [16, 1024])), -1, name="top")
    m.set_outputs({"y": m.softmax(m.matmul(wide, m.param("v", [1024, 16])), -1)})
    estimate = m.memory_estimate({"n": 8})
    assert (estimate.arena, estimate.kernel) == (2 * 8 * 1024 * 4, "softmax_0")
    assert re.match(r"block 'up\.top' \(.*test_graphs\.py:\d+\)", estimate.where)
    assert "arena           64.0 KiB  most at 'softmax_0' block 'up.top'" in str(estimate)
    assert m.memory_estimate().arena == 64 * estimate.arena  # 512 rows


def test_work_on_parameters_is_not_alive_in_calls() -> None:
    m = GraphModule.mir("prepared")
    w = m.concat([m.param("a", [8, 32]), m.param("b", [8, 32])], 0)
    m.set_outputs({"y": m.matmul(m.input("x", [4, 16]), w)})
    estimate = m.memory_estimate()
    assert (estimate.prepared, estimate.arena, estimate.kernel, estimate.where) == (16 * 32 * 4, 0, "", "")


def test_estimates_refuse_other_symbols() -> None:
    m = mlp()
    with pytest.raises(InputError, match=r"'maxima' names 'm', but 'mlp' has n"):
        m.memory_estimate({"m": 3})
    for wrong in (0, -1, 2.5, True, "3"):
        with pytest.raises(InputError, match=r"'maxima of n' is a whole number of at least 1, but got"):
            m.memory_estimate({"n": wrong})  # type: ignore[dict-item]
    for option in ("target", "activations", "intermediates", "skip_fusion"):
        with pytest.raises(InputError, match=f"'{option}' expects .*but got 'f17'"):
            m.memory_estimate(**{option: "f17"})


# Commands -----------------------------------------------------------------------------------------


def command(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_commands(tmp_path: Path) -> None:
    m = mlp()
    file = tmp_path / "mlp.mlir"
    file.write_text(m.to_text(locations=True))
    assert len(boxes(command("draw", str(file)))) == len(m)
    assert len(boxes(command("draw", str(file), "--stage", "mir", "--depth", "0"), "folded")) > 0
    assert json.loads(command("export", str(file), "--stage", "kernels"))["stage"] == "kernels"
    assert command("export", str(file), "-o", str(tmp_path / "graph.json")) == ""
    assert json.loads((tmp_path / "graph.json").read_text())["nodes"][0]["op"] == "hir.linear"
    found = json.loads(command("estimate", str(file), "--maximum", "n=7", "--json"))
    assert found == json.loads(json.dumps(m.memory_estimate({"n": 7}).to_dict())) | {"where": found["where"]}
    assert "memory of a call of 'mlp' with n = 512" in command("estimate", str(file))
    result = CliRunner().invoke(app, ["estimate", str(file), "--maximum", "m=7"])
    assert result.exit_code == 1
    assert "'maxima' names 'm', but 'mlp' has n" in result.output
    with pytest.raises(RlxError):
        CliRunner().invoke(app, ["--debug", "draw", str(tmp_path / "none.mlir")], catch_exceptions=False)
