# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Roofline plots: kernels by operations per byte and operations per second, below what the machine can do."""

from __future__ import annotations

import html
import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlx_mlir.errors import InputError, UnsupportedError
from rlx_mlir.measure.profile import KernelProfile, Profile, ProgramProfile
from rlx_mlir.paths import open_output, write_output

#: Kernels that take less than this part of a module's time are left out: they would hide the others.
LEAST_SHARE = 0.001
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 900, 520, 70, 50, 20, 20
#: Kernels that get a label.
_LABELLED = 6
#: Pixels that a letter and a line of a label take, and lines that a label moves at most.
_LETTER, _LINE, _STEPS = 6.8, 15, 9


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis from `low` to `high`, in pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        part = math.log10(max(value, 1e-30) / self.low) / math.log10(self.high / self.low)
        return self.start + min(max(part, 0.0), 1.0) * (self.end - self.start)

    @property
    def decades(self) -> list[float]:
        first, last = round(math.log10(self.low)), round(math.log10(self.high))
        return [10.0**power for power in range(first, last + 1)]


#: Why a kernel may be above the roofline.
ABOVE = (
    "More than 100 % of the roofline is no error: it is drawn by the bandwidth of memory, and what a kernel reads may "
    "come from a cache that is faster."
)


def check_plot(path: Path) -> None:
    """Raises InputError where a plot can't have this name, UnsupportedError where matplotlib is missing for it."""
    if path.suffix not in (".html", ".png"):
        raise InputError(f"a plot is written as .html or .png, but its file is '{path.name}'")
    if path.suffix == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise UnsupportedError(
            "a plot as .png needs matplotlib, which isn't installed: pip install matplotlib, or ask for .html"
        )


def write_plot(profile: Profile, path: Path) -> None:
    """Writes the plot to a file: `.html` with everything in it, or `.png` by way of matplotlib.

    Raises what `check_plot` does, and OSError.
    """
    check_plot(path)
    if path.suffix == ".html":
        write_output(path, to_html(profile))
    else:
        _write_png(profile, path)


def shown(program: ProgramProfile) -> list[KernelProfile]:
    """The kernels that a plot shows: those that compute, and take a visible part of the time."""
    return [k for k in program.kernels if k.share >= LEAST_SHARE and k.work.flops and k.work.bytes and k.seconds]


def _axes(profile: Profile) -> tuple[_Axis, _Axis]:
    kernels = [kernel for program in profile.programs for kernel in shown(program)]
    roofs = [profile.roofline.flops, profile.roofline.integer_ops or 0.0]
    xs = [kernel.intensity for kernel in kernels] + [max(roofs) / profile.roofline.bandwidth]
    ys = [kernel.flops / 1e9 for kernel in kernels] + [max(roofs) / 1e9]

    def decades(values: list[float]) -> tuple[float, float]:
        return 10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(max(values) * 1.5))

    x = _Axis(*decades(xs), _LEFT, _WIDTH - _RIGHT)
    return x, _Axis(*decades(ys), _HEIGHT - _BOTTOM, _TOP)


def _roofs(profile: Profile) -> list[tuple[str, float]]:
    bounds = profile.roofline
    found = [(f"f32, {bounds.flops / 1e9:.0f} GFLOP/s", bounds.flops / 1e9)]
    if bounds.integer_ops is not None:
        found.append((f"int8, {bounds.integer_ops / 1e9:.0f} Gop/s", bounds.integer_ops / 1e9))
    return found


def to_svg(profile: Profile) -> str:
    """The plot as an SVG element, whose classes `to_html` gives colours."""
    x, y = _axes(profile)
    bandwidth = profile.roofline.bandwidth / 1e9
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="roofline plot">']
    for value in x.decades:
        at = f"{x(value):.1f}"
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text class="tick" x="{at}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{value:g}</text>')
    for value in y.decades:
        at = f"{y(value):.1f}"
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{at}" dy="4" text-anchor="end">{value:g}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text class="axis" x="{middle}" y="{_HEIGHT - 10}" text-anchor="middle">operations per byte</text>')
    parts.append(f'<text class="axis" transform="translate(18 {_HEIGHT / 2}) rotate(-90)" text-anchor="middle">')
    parts.append("10⁹ operations per second</text>")
    roofs = _roofs(profile)
    top = max(height for _, height in roofs)
    start = max(x.low, y.low / bandwidth)
    corner = top / bandwidth
    parts.append(
        f'<line class="roof" x1="{x(start):.1f}" y1="{y(start * bandwidth):.1f}" x2="{x(corner):.1f}" '
        f'y2="{y(top):.1f}"/>'
    )
    named = x.low * 10 ** ((math.log10(corner) - math.log10(x.low)) / 4)  # below the line, which rises to the right
    under = _Box(x(named), y(named * bandwidth) + 4, x(named) + 140, y(named * bandwidth) + 20)
    parts.append(
        f'<text class="roofname" x="{under.left + 4:.1f}" y="{under.bottom - 4:.1f}">'
        f"memory, {bandwidth:.1f} GB/s</text>"
    )
    for name, height in roofs:
        at = f"{y(height):.1f}"
        parts.append(
            f'<line class="roof" x1="{x(height / bandwidth):.1f}" x2="{_WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>'
        )
        parts.append(
            f'<text class="roofname" x="{_WIDTH - _RIGHT - 4}" y="{at}" dy="-5" text-anchor="end">{name}</text>'
        )
    taken = [_Box(_WIDTH - _RIGHT - 160, y(height) - 18, _WIDTH - _RIGHT, y(height) + 3) for _, height in roofs]
    taken.append(under)
    taken += [_circle(kernel, x, y) for program in profile.programs for kernel in shown(program)]
    for number, program in enumerate(profile.programs):
        for rank, kernel in enumerate(shown(program)):
            parts += _point(kernel, number, x, y, taken if rank < _LABELLED else None)
    return "\n".join([*parts, "</svg>"])


@dataclass(frozen=True)
class _Box:
    """A rectangle that a label takes, in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def _radius(kernel: KernelProfile) -> float:
    return 4 + 16 * math.sqrt(kernel.share)


def _circle(kernel: KernelProfile, x: _Axis, y: _Axis) -> _Box:
    at_x, at_y, radius = x(kernel.intensity), y(kernel.flops / 1e9), _radius(kernel)
    return _Box(at_x - radius, at_y - radius, at_x + radius, at_y + radius)


def _free(left: float, right: float, at: float, taken: list[_Box]) -> float | None:
    """The height nearest to `at` where a label meets none of those that are there; None where all are far away."""
    for step in range(_STEPS):
        for way in (1, -1) if step else (1,):
            middle = at + way * step * _LINE
            box = _Box(left, middle - _LINE / 2, right, middle + _LINE / 2)
            inside = box.top >= _TOP and box.bottom <= _HEIGHT - _BOTTOM
            if inside and not any(box.meets(other) for other in taken):
                taken.append(box)
                return middle
    return None


def _point(kernel: KernelProfile, number: int, x: _Axis, y: _Axis, taken: list[_Box] | None) -> list[str]:
    """The circle of a kernel; its label where no other is, with a line to it, where `taken` isn't None."""
    radius = _radius(kernel)
    at_x, at_y = x(kernel.intensity), y(kernel.flops / 1e9)
    hint = (
        f"{kernel.name} ({', '.join(kernel.ops)}): {kernel.share:.1%} of the time, {kernel.flops / 1e9:.1f} GFLOP/s, "
        f"{kernel.bandwidth / 1e9:.1f} GB/s, {kernel.fraction:.0%} of the roofline; {kernel.where}"
    )
    lines = [
        f'<circle class="p{number}" cx="{at_x:.1f}" cy="{at_y:.1f}" r="{radius:.1f}">'
        f"<title>{html.escape(hint)}</title></circle>"
    ]
    if taken is None:
        return lines
    width = _LETTER * len(kernel.name)
    left = at_x + radius + 3 + width > _WIDTH - _RIGHT
    anchor, place = ("end", at_x - radius - 3) if left else ("start", at_x + radius + 3)
    height = _free(place - width if left else place, place if left else place + width, at_y, taken)
    if height is None:  # the table has it, and the circle's hint
        return lines
    if height != at_y:
        lines.append(f'<line class="lead" x1="{at_x:.1f}" y1="{at_y:.1f}" x2="{place:.1f}" y2="{height:.1f}"/>')
    lines.append(
        f'<text class="label" x="{place:.1f}" y="{height:.1f}" dy="4" text-anchor="{anchor}">'
        f"{html.escape(kernel.name)}</text>"
    )
    return lines


_STYLE = """
:root { color-scheme: light dark;
  --ink: #1a1a1a; --soft: #777; --grid: #ddd; --back: #fff; --a: #2463c5; --b: #c2561a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eee; --soft: #aaa; --grid: #3a3a3a; --back: #16181c; --a: #7fb0ff; --b: #ffab70; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 70rem;
       margin: 2rem auto; padding: 0 1rem; }
svg { width: 100%; height: auto; }
.grid { stroke: var(--grid); } .lead { stroke: var(--soft); stroke-width: .7; }
.roof { stroke: var(--ink); stroke-width: 2; }
.tick, .roofname, .label { fill: var(--soft); font-size: 12px; } .axis { fill: var(--ink); font-size: 13px; }
.p0 { fill: var(--a); fill-opacity: .65; } .p1 { fill: var(--b); fill-opacity: .65; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin: 0 .3em 0 1em; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
td, th { padding: .2em .6em; border-bottom: 1px solid var(--grid); text-align: right; }
td:nth-child(-n+2), th:nth-child(-n+2) { text-align: left; }
"""


def to_html(profile: Profile) -> str:
    """A page that needs nothing else: the plot, and its figures as a table."""
    colours = ("var(--a)", "var(--b)")
    keys = "".join(
        f'<span class="key" style="background:{colours[number % 2]}"></span>{html.escape(program.name)}, '
        f"{program.seconds.median * 1e3:.2f} ms, {program.fraction:.0%} of the roofline"
        for number, program in enumerate(profile.programs)
    )
    rows = []
    for program in profile.programs:
        for kernel in program.kernels:
            cells = [
                program.name,
                kernel.name,
                kernel.calls,
                f"{kernel.seconds * 1e6:.1f}",
                f"{kernel.share:.1%}",
                f"{kernel.bandwidth / 1e9:.1f}",
                f"{kernel.flops / 1e9:.1f}",
                f"{kernel.fraction:.0%}",
                kernel.bound,
                kernel.template,
            ]
            rows.append(f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in cells)}</tr>")
    head = ("module", "kernel", "calls", "µs", "share", "GB/s", "GFLOP/s", "of roofline", "bound", "template")
    columns = "".join(f"<th>{name}</th>" for name in head)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Roofline of {html.escape(Path(profile.model).name)}</title><style>{_STYLE}</style></head>
<body><h1>Roofline of {html.escape(Path(profile.model).name)}</h1>
<p>{html.escape(str(profile.roofline))}. A circle's area grows with its part of a module's time.<br>{keys}</p>
<p>{ABOVE}</p>
{to_svg(profile)}
<table><thead><tr>{columns}</tr></thead><tbody>
{chr(10).join(rows)}
</tbody></table></body></html>
"""


def _write_png(profile: Profile, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    x, y = _axes(profile)
    figure, axes = pyplot.subplots(figsize=(10, 6))
    plot: Any = axes
    bandwidth = profile.roofline.bandwidth / 1e9
    labels: list[tuple[str, float, float]] = []
    for name, height in _roofs(profile):
        corner = height / bandwidth
        plot.loglog([x.low, corner, x.high], [x.low * bandwidth, height, height], color="black")
        plot.annotate(name, (x.high, height), ha="right", va="bottom")
    for program in profile.programs:
        kernels = shown(program)
        plot.scatter(
            [kernel.intensity for kernel in kernels],
            [kernel.flops / 1e9 for kernel in kernels],
            s=[40 + 1500 * kernel.share for kernel in kernels],
            alpha=0.6,
            label=program.name,
        )
        for kernel in kernels[:_LABELLED]:
            labels.append((kernel.name, kernel.intensity, kernel.flops / 1e9))
    taken: list[_Box] = []
    for name, at_x, at_y in labels:  # in the pixels of the page, whose proportions are these
        left = x(at_x) + 6
        if (free := _free(left, left + _LETTER * len(name), y(at_y), taken)) is not None:
            plot.annotate(name, (at_x, at_y), (4, y(at_y) - free), textcoords="offset points", fontsize=8)
    plot.set(
        xlim=(x.low, x.high), ylim=(y.low, y.high), xlabel="operations per byte", ylabel="10⁹ operations per second"
    )
    plot.grid(visible=True, which="both", alpha=0.3)
    plot.legend()
    plot.set_title(f"Roofline of {Path(profile.model).name}")
    with open_output(path) as file:
        figure.savefig(file, format="png", dpi=150, bbox_inches="tight")
    pyplot.close(figure)
