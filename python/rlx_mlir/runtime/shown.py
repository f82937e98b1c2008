# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How compiled modules show themselves: one line in a terminal, a table in a notebook. Needs no MLIR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

#: How tables of text are shown.
_FACE = "font-family: ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre; overflow-x: auto"
#: Of inputs and of outputs, so many are in the line.
_SHOWN = 3


class Buffer(Protocol):
    """An input, parameter or output; printed, it is its name and type."""

    @property
    def name(self) -> str: ...

    @property
    def tied(self) -> str | None: ...


class Compiled(Protocol):
    """What is shown of a compiled module; `Artifact` says what each of these is."""

    @property
    def name(self) -> str: ...

    @property
    def chip(self) -> str: ...

    @property
    def target(self) -> Mapping[str, str]: ...

    @property
    def symbols(self) -> Sequence[tuple[str, int]]: ...

    @property
    def kernels(self) -> Sequence[str]: ...

    @property
    def inputs(self) -> Sequence[Buffer]: ...

    @property
    def parameters(self) -> Sequence[Buffer]: ...

    @property
    def outputs(self) -> Sequence[Buffer]: ...


def machine_of(artifact: Compiled) -> str:
    """What the code is for: a chip, or the CPU and its architecture."""
    if artifact.chip:
        return artifact.chip
    architecture, cpu = artifact.target.get("triple", "").partition("-")[0], artifact.target.get("cpu", "")
    return " ".join(filter(None, (architecture, cpu))) or "this machine"


def line(kind: str, artifact: Compiled, *details: str) -> str:
    """One line: what it is, what it takes and gives, how many parameters and kernels it has."""
    counts = [_count(len(artifact.parameters), "parameter"), _count(len(artifact.kernels), "kernel"), *details]
    given, results = _few(artifact.inputs), _few(artifact.outputs)
    return f"<{kind} '{artifact.name}' for {machine_of(artifact)}: ({given}) -> ({results}); {', '.join(counts)}>"


def table(kind: str, artifact: Compiled, *details: str) -> str:
    """The same as a table of HTML, which notebooks show."""
    from html import escape

    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in (role, spec.name, _type(spec), note))}</tr>"
        for role, specs in (
            ("input", artifact.inputs),
            ("parameter", artifact.parameters),
            ("output", artifact.outputs),
        )
        for spec in specs
        for note in (f"may take the memory of {spec.tied}" if spec.tied else "",)
    )
    sizes = "".join(f", {symbol} up to {size}" for symbol, size in artifact.symbols)
    facts = "".join(f", {detail}" for detail in details)
    heading = f"{kind} {artifact.name} for {machine_of(artifact)}, {_count(len(artifact.kernels), 'kernel')}"
    return f"<p>{escape(heading + sizes + facts)}</p><table>{rows}</table>"


def preformatted(report: object) -> str:
    """The text of a report as HTML, which notebooks show."""
    from html import escape

    # Some notebooks show <pre> in the face of their text, in which columns aren't.
    return f'<pre style="{_FACE}">{escape(str(report))}</pre>'


def size_text(count: float) -> str:
    """Bytes with a unit."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _few(specs: Sequence[Buffer]) -> str:
    listed = [str(spec) for spec in specs[:_SHOWN]]
    return ", ".join([*listed, f"{len(specs) - _SHOWN} more"] if len(specs) > _SHOWN else listed)


def _type(spec: Buffer) -> str:
    return str(spec).removeprefix(f"{spec.name}: ")
