# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parts of a drawing as SVG: boxes of text, frames, lines, and the document around them with its legend."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rlx_mlir.reports.families import FAMILIES
from rlx_mlir.reports.layout import Box, Point

#: Makes the text of something for its upper left corner.
Paint = Callable[[float, float], Iterator[str]]

#: Characters of a line of text in a box.
_LONGEST = 44
#: Size of a line's letters, and its height.
_SIZES = {"name": (13.0, 18.0), "label": (12.0, 16.0)}
_SIZE = (11.0, 15.0)
#: How wide a letter is, of its size, in monospaced faces: a little more than in most.
_LETTER = 0.61
#: Room beside and above the text of a box, and around the drawing.
_BESIDE, _ABOVE, _MARGIN = 10.0, 6.0, 24.0
#: What XML can't hold, not even escaped.
_NO_CHARACTERS = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

#: What the legend says of boxes and rows that aren't operations.
_KINDS = {
    "input": "input",
    "output": "output",
    "param": "parameter",
    "constant": "constant",
    "folded": "block of operations",
    "argument": "argument, or constant that is an output",
    "result": "result of a region",
    "mark": "line from elsewhere",
}
#: Rows have no box: the legend shows their text.
_ROWS = ("param", "constant")

#: Fill and edge of each kind of box, for light and dark.
_COLOURS = {
    "product": ("#dbe9ff", "#3f76d0", "#16305c", "#6ea0ee"),
    "attention": ("#eadcff", "#8250cf", "#352057", "#b38df0"),
    "norm": ("#d3f2ed", "#22897b", "#0f3f39", "#4fc2b1"),
    "element": ("#e2f4d6", "#578f2a", "#24401a", "#8cc65f"),
    "reduction": ("#ffe7c9", "#c47218", "#4d300f", "#eba650"),
    "movement": ("#e8ebee", "#7b838b", "#32383e", "#98a2ac"),
    "control": ("#fff2b8", "#b08d06", "#453b0c", "#dfc04a"),
    "quant": ("#f3e1d4", "#9c6840", "#452f1f", "#cf9a70"),
    "recurrence": ("#ffdcea", "#cb3f80", "#521c36", "#ee85b3"),
    "sample": ("#d6f0fa", "#2786a8", "#123c4d", "#5fbadb"),
    "image": ("#eff3c8", "#7f8a12", "#3a3f12", "#bfca55"),
    "block": ("#dde2fa", "#4657b5", "#252c59", "#8d9bec"),
    "other": ("#f4d9dc", "#b63a48", "#4d1d23", "#e58490"),
    "input": ("#ffffff", "#1f2328", "#0d1117", "#e6edf3"),
    "output": ("#2b3036", "#2b3036", "#d5dbe1", "#d5dbe1"),
    "argument": ("#ffffff", "#7b838b", "#0d1117", "#98a2ac"),
    "result": ("#d0d5da", "#7b838b", "#454c54", "#98a2ac"),
    "mark": ("#ffffff", "#b8bfc6", "#14181d", "#586069"),
    "folded": ("#f6f8fa", "#57606a", "#262c33", "#9aa4af"),
}
#: Background, text, quiet text, text of outputs, lines, frames of blocks and their edge, parameters, constants.
_LIGHT = ("#ffffff", "#1f2328", "#59636e", "#ffffff", "#8b949e", "#8b949e14", "#b3bac1", "#0b5cad", "#8a4b08")
_DARK = ("#0d1117", "#e6edf3", "#a3adb8", "#0d1117", "#7d8790", "#b1bac414", "#4b535c", "#7cb8ff", "#f0b072")


@dataclass(frozen=True)
class Text:
    """A line of text in a box, and what kind of text it is."""

    text: str
    kind: str


def escaped(text: str) -> str:
    """Text in XML, also in quotes; characters that XML doesn't have become U+FFFD."""
    found = _NO_CHARACTERS.sub("\ufffd", text)
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#39;")):
        found = found.replace(character, entity)
    return found


def shortened(text: str, length: int = _LONGEST) -> str:
    """Text on one line, at most so long: the middle is left out, since names differ at their ends."""
    found = re.sub(r"\s+", " ", text)
    if len(found) <= length:
        return found
    return f"{found[: (length - 1) // 2]}…{found[-(length // 2) :]}"


def _width(own: Text) -> float:
    """How wide a line is; letters of East Asian scripts and pictures take up twice as much."""
    size, _ = _SIZES.get(own.kind, _SIZE)
    return sum(2 if ord(letter) >= 0x1100 and ord(letter) != 0x2026 else 1 for letter in own.text) * size * _LETTER


def extent(lines: Sequence[Text]) -> tuple[float, float]:
    """Width and height of a box with these lines."""
    height = sum(_SIZES.get(own.kind, _SIZE)[1] for own in lines)
    return max(56.0, 2 * _BESIDE + max(map(_width, lines), default=0.0)), height + 2 * _ABOVE


def box(
    x: float,
    y: float,
    width: float,
    height: float,
    lines: Sequence[Text],
    kind: str,
    tip: str,
    *,
    round: bool = False,
) -> Iterator[str]:
    """A box with its text, and a tooltip, which screen readers read."""
    radius = min(height / 2, 14.0) if round else 5.0
    yield f'<g role="img"><title>{escaped(tip)}</title>'
    if kind == "folded":
        yield f'<rect class="{kind}" x="{x + 4:.1f}" y="{y + 4:.1f}" width="{width:.1f}" height="{height:.1f}" rx="5"/>'
    yield f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:g}"/>'
    at = y + _ABOVE
    for own in lines:
        size, step = _SIZES.get(own.kind, _SIZE)
        shade = f"{own.kind} on-output" if kind == "output" else own.kind
        middle = at + step / 2 + size * 0.35
        yield f'<text class="t-{shade}" x="{x + width / 2:.1f}" y="{middle:.1f}">{escaped(own.text)}</text>'
        at += step
    yield "</g>"


def frame(x: float, y: float, width: float, height: float, label: str, kind: str, tip: str) -> Iterator[str]:
    """A frame with a label in its upper left corner."""
    yield (
        f'<g role="img"><title>{escaped(tip)}</title><rect class="frame of-{kind}" x="{x:.1f}" y="{y:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}" rx="8"/><text class="t-label" x="{x + 10:.1f}" '
        f'y="{y + 17:.1f}">{escaped(label)}</text></g>'
    )


def line(points: Sequence[Point], tip: str, head: bool) -> str:
    """A line down to its last point, where it may have a head."""
    words = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for number, (x, y) in enumerate(points[1:], start=1):
        before = points[number - 1]
        if number % 2 or abs(before[0] - x) < 0.05:  # straight down
            if (x, y) != before:
                words.append(f"L{x:.1f} {y:.1f}")
            continue
        middle = (before[1] + y) / 2
        words.append(f"C{before[0]:.1f} {middle:.1f} {x:.1f} {middle:.1f} {x:.1f} {y:.1f}")
    x, y = points[-1]
    tail = f"M{x - 3.5:.1f} {y - 6:.1f}L{x:.1f} {y:.1f}L{x + 3.5:.1f} {y - 6:.1f}" if head else ""
    return f'<path class="line" d="{"".join(words)}{tail}"><title>{escaped(tip)}</title></path>'


def stub(x: float, y: float, end: float) -> str:
    """A straight line down, without a head."""
    return f'<path class="line" d="M{x:.1f} {y:.1f}L{x:.1f} {end:.1f}"/>'


def _style(dark: bool) -> str:
    """The rules of the style sheet that say colours."""
    back, text, quiet, on_output, line, block, edge, param, constant = _DARK if dark else _LIGHT
    rules = [
        f".back{{fill:{back}}}text{{fill:{text}}}.t-type,.t-block-name,.t-label{{fill:{quiet}}}",
        f".line{{stroke:{line}}}.frame{{fill:{block[:7]};fill-opacity:.08;stroke:{edge}}}",
        f".t-param{{fill:{param}}}.t-constant{{fill:{constant}}}.on-output{{fill:{on_output}}}",
    ]
    for kind, colours in _COLOURS.items():
        fill, stroke = colours[2:] if dark else colours[:2]
        rules.append(f".{kind}{{fill:{fill};stroke:{stroke}}}")
    return "".join(rules)


def document(
    heading: str, description: str, inner: Box, paint: Paint, families: Sequence[str], kinds: Sequence[str]
) -> str:
    """The whole SVG.

    Args:
        heading: what the drawing is of.
        description: the same in more words, for those who don't see it.
        inner: the size of the graph.
        paint: gives the graph's text.
        families: that the legend explains.
        kinds: of other boxes and rows that it explains.
    """
    title = shortened(heading, 110)
    width = max(inner.width, 640.0, extent([Text(title, "name")])[0]) + 2 * _MARGIN
    legend, top = _legend([*families, *(kind for kind in _KINDS if kind in kinds)], width)
    height = top + inner.height + 2 * _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="graphics-document" aria-labelledby="title description">',
        f'<title id="title">{escaped(heading)}</title><desc id="description">{escaped(description)}</desc>',
        "<style>text{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:11px;"
        "text-anchor:middle}.t-name{font-size:13px;font-weight:600}.t-label{font-size:12px;text-anchor:start}"
        ".left{text-anchor:start}.line{fill:none;stroke-width:1.2}.open{fill-opacity:.35}"
        ".of-region{stroke-dasharray:5 3}.mark{stroke-dasharray:3 2}rect{stroke-width:1.2}.back{stroke:none}"
        f"{_style(dark=False)}@media (prefers-color-scheme:dark){{{_style(dark=True)}}}</style>",
        f'<rect class="back" width="{width:.0f}" height="{height:.0f}"/>',
        f'<text class="t-name left" x="{_MARGIN}" y="{_MARGIN + 8}">{escaped(title)}</text>',
        *legend,
        *paint((width - inner.width) / 2, top + _MARGIN),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _legend(kinds: Sequence[str], width: float) -> tuple[list[str], float]:
    """What colours mean, below the heading; and where it ends."""
    lines = ['<g role="list" aria-label="legend">']
    x, y = _MARGIN, _MARGIN + 24.0
    for kind in kinds:
        label = FAMILIES.get(kind) or _KINDS[kind]
        own = 22.0 + _width(Text(label, "type")) + 18.0
        if x > _MARGIN and x + own > width - _MARGIN:
            x, y = _MARGIN, y + 20.0
        lines.append('<g role="listitem">')
        if kind in _ROWS:
            lines.append(f'<text class="t-{kind}" x="{x + 8:.1f}" y="{y + 11:.1f}">ab</text>')
        else:
            round = 3 if kind in FAMILIES or kind == "folded" else 7
            lines.append(f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="16" height="14" rx="{round}"/>')
        lines.append(f'<text class="left" x="{x + 22:.1f}" y="{y + 11:.1f}">{escaped(label)}</text></g>')
        x += own
    return [*lines, "</g>"], y + 20.0
