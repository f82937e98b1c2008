# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `rlx compile --timing` shows: where the time of a cold compilation goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx_mlir.measure.compile_timing import CompileTiming

#: What leads to each stage.
_MEANINGS = {
    "build": "the graph of blocks",
    "check": "a copy, and whether everything in it can be compiled",
    "mir": "blocks to primitives",
    "kernels": "fusion, packing of weights, outlining of kernels",
    "lir": "the plan: memory, calls, sizes",
    "linalg": "templates, or linalg where there is none",
    "cpu": "loops on buffers for kernels without a template",
    "llvm": "the LLVM dialect",
    "optimise": "LLVM's optimisations",
    "code": "LLVM's code generation",
}
#: Passes that take less than this part of the whole are counted together.
_LEAST_SHARE = 0.005


def format_timing(timing: CompileTiming) -> str:
    """The times as text: a line for each stage, and one for each pass that takes a visible part of the whole."""
    from rlx_mlir.stages import table

    whole = timing.seconds
    rows: list[tuple[str, ...]] = []
    for stage in timing.stages:
        rows.append((stage.name, "", *_figures(stage.seconds, whole), _MEANINGS.get(stage.name, "")))
        small = [own for own in stage.passes if own.seconds < _LEAST_SHARE * whole]
        rows += [("", own.name, *_figures(own.seconds, whole), "") for own in stage.passes if own not in small]
        if small:
            seconds = sum(own.seconds for own in small)
            rows.append(("", f"{len(small)} other passes", *_figures(seconds, whole), ""))
    head = ("stage", "pass", "ms", "share", "what")
    title = (
        f"{timing.name}: {whole:.2f} s, {timing.kernels} kernels called {timing.calls} times, "
        f"{timing.code_bytes / 1e3:.0f} kB of code"
    )
    return "\n".join([title, *table(head, rows, right="ms share")])


def _figures(seconds: float, whole: float) -> tuple[str, str]:
    return f"{seconds * 1e3:.1f}", f"{seconds / whole:.1%}"
