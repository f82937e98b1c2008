# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page that shows what passes changed: which lines differ, and that the page is whole."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rlx_mlir import GraphModule, compile
from rlx_mlir.reports.difference import Row, compare


def signs(before: str, after: str) -> list[str]:
    """Changed lines, each with its sign."""
    return [
        f"{row.kind}{row.text.strip()}" for row in compare(before.splitlines(), after.splitlines()) if row.kind in "+-"
    ]


ONE = """\
func.func @f(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) {
  %0 = mir.exp %arg0
  %1 = mir.add %0, %arg1
  %2 = mir.mul %1, %0
  return %2
}
"""


def test_equal_texts_differ_in_nothing() -> None:
    assert compare(ONE.splitlines(), ONE.splitlines()) == []


def test_numbers_of_values_do_not_count() -> None:
    after = ONE.replace("  %0 = mir.exp", "  %0 = mir.neg %arg1\n  %1 = mir.exp").replace("%2", "%3")
    after = after.replace("%1 = mir.add %0", "%2 = mir.add %1").replace("mir.mul %1, %0", "mir.mul %2, %1")
    assert signs(ONE, after) == ["+%0 = mir.neg %arg1"]


def test_operands_count() -> None:
    after = ONE.replace("mir.mul %1, %0", "mir.mul %1, %1")
    assert signs(ONE, after) == ["-%2 = mir.mul %1, %0", "+%2 = mir.mul %1, %1"]
    swapped = ONE.replace("mir.mul %1, %0", "mir.mul %0, %1")
    assert signs(ONE, swapped) == ["-%2 = mir.mul %1, %0", "+%2 = mir.mul %0, %1"]


def test_arguments_and_blocks_are_names_too() -> None:
    before, after = "^bb1(%3: i32):\n cf.br ^bb1(%3)", "^bb2(%7: i32):\n cf.br ^bb2(%7)"
    assert signs(before, after) == []
    assert signs(before, after.replace("cf.br ^bb2", "cf.br ^bb1")) == ["-cf.br ^bb1(%3)", "+cf.br ^bb1(%7)"]


def test_what_stays_is_left_out_but_for_some_lines() -> None:
    before = [f"line {i}" for i in range(100)]
    rows = compare(before, [*before[:50], "new", *before[50:]])
    assert rows[0] == Row("…", 0, "47 lines stay")
    assert rows[4] == Row("+", 51, "new")
    assert rows[-1] == Row("…", 0, "47 lines stay")
    assert len(rows) == 9


def test_new_and_gone_texts() -> None:
    assert [row.kind for row in compare([], ["a", "b"])] == ["+", "+"]
    assert [row.kind for row in compare(["a", "b"], [])] == ["-", "-"]


def test_long_texts_take_a_moment() -> None:
    """Many equal lines, as the LLVM dialect has them."""
    before = [f"  %{i} = llvm.mlir.constant({i % 40} : i64) : i64" for i in range(20_000)]
    after = [line.replace("= llvm", "= ") if i % 500 == 0 else line for i, line in enumerate(before) if i % 97]
    begin = time.process_time()
    assert compare(before, after)
    assert time.process_time() - begin < 3


class Balanced(HTMLParser):
    """Notes what a page opens, closes, and loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.loaded += [str(value) for name, value in attrs if name == "src" or (tag == "link" and name == "href")]
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("dumps")
    m = GraphModule.hir("mlp", policy="fusable")
    x = m.input("x", ["batch", 16])
    h = m.linear(x, m.param("w<1>", [16, 16]), m.param("b", [16]), activation="silu", name="up")
    m.set_outputs({"y": m.rms_norm(h, m.param("g", [16]), name="norm")})
    compile(m, cache=False, dump_dir=at)
    return at / "mlp"


def test_the_page_is_whole_and_alone(folder: Path) -> None:
    page = Balanced()
    text = (folder / "diff.html").read_text(encoding="utf-8")
    page.feed(text)
    assert page.open == ["html", "body"], "the page grows, and its end is never written"
    assert page.loaded == []
    assert "http" not in text
    assert "w<1>" not in text, "names are escaped"


def test_the_page_has_every_pass_and_function_that_changed(folder: Path) -> None:
    text = (folder / "diff.html").read_text(encoding="utf-8")
    files = sorted(path.name for path in folder.glob("*.mlir"))[1:]
    assert re.findall(r'<p><a href="([^"]+)">', text) == files
    fused = text[text.index('href="002-mir-fuse-matmul-bias-act.mlir"') :].partition("</pre>")[0]
    assert re.search(r'<span class="d">.* mir\.silu', fused)
    assert re.search(r'<span class="a">.* mir\.fused_matmul_bias_act', fused)
    assert not re.search(r'<span class="[ad]">.* mir\.rms_norm', fused)
    assert "<code>rms_norm_0.body</code>" in text
