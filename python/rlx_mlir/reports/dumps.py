# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What each pass changed, as files: `compile(dump_dir=...)`, or RLX_DUMP_DIR.

A folder for each module holds one file for each pass that changed something, with the functions that it changed and
nothing else; README.md, which lists the passes with what they did; and diff.html, which shows in a browser what each
pass changed in them. A file is a module that rlx-opt reads.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rlx_mlir import ir
from rlx_mlir.errors import InputError, reason_of
from rlx_mlir.paths import write_output
from rlx_mlir.reports.difference import DiffPage
from rlx_mlir.rewriting import operations
from rlx_mlir.rewriting.pipelines import pass_name

#: Functions that a line of the overview names; the others are counted.
_LISTED = 4
#: Kinds of operations that a line of the overview names: those whose numbers changed most.
_KINDS = 6


@dataclass(frozen=True)
class _Entry:
    file: str
    step: str
    operations: int
    change: str
    functions: str
    size: int


class Dumper:
    """Writes the files of one module; `changed` is called after each pass that changed it."""

    def __init__(self, folder: str | os.PathLike[str], name: str, module: ir.Module, stage: str) -> None:
        """Writes the module as it is before the first pass.

        Args:
            folder: where modules have their folders; it is made where it isn't there.
            name: of the module.
            module: at `stage`.

        Raises InputError where the folder can't be written, or where a link stands for one of the files.
        """
        self._folder = Path(folder) / re.sub(r"[^\w.-]", "_", name)
        self._name = name
        self._entries: list[_Entry] = []
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._folder.is_symlink() and self._folder.lstat().st_uid != os.geteuid():
                raise InputError(f"'dump_dir' is a folder of one's own, but {self._folder} is somebody else's link")
            for old in (*self._folder.glob("[0-9][0-9][0-9]-*.mlir"), self._folder / "README.md"):
                old.unlink(missing_ok=True)
            self._page = DiffPage(self._folder / "diff.html", name)
            self._write(f"at stage {stage}", f"input-{stage}", None, module)
        except OSError as error:
            raise InputError(
                f"'dump_dir' is a folder that can be written, but {self._folder}: {reason_of(error)}"
            ) from None

    def changed(self, step: str, before: ir.Module, after: ir.Module) -> None:
        """Writes what a pass changed."""
        self._write(step, pass_name(step), before, after)

    def _write(self, step: str, stem: str, before: ir.Module | None, after: ir.Module) -> None:
        old = {} if before is None else _functions(before)
        new = _functions(after)
        changed = [name for name, op in new.items() if name not in old or not _same(old[name], op)]
        gone = [name for name in old if name not in new]
        file = f"{len(self._entries):03d}-{stem}.mlir"
        header = f"// {self._name}, {'after ' if before is not None else ''}{step}\n"
        if gone:
            header += f"// functions that are gone: {', '.join(gone)}\n"
        text = header + _text(after, [new[name] for name in changed])
        write_output(self._folder / file, text, follow=False)
        if before is not None:
            self._page.add(file, step, old, {name: new[name] for name in changed}, gone)
        counts = Counter[str]() if before is None else _count(before)
        parts = [f"{_named(changed)} of {len(new)}"] + ([f"gone: {_named(gone)}"] if gone else [])
        self._entries.append(
            _Entry(file, step, _count(after).total(), _delta(counts, _count(after)), "; ".join(parts), len(text))
        )
        self._overview()

    def _overview(self) -> None:
        lines = [
            f"# Passes that changed `{self._name}`",
            "",
            "Each file holds the functions that its pass changed. What changed in numbers of operations stands here, "
            "and line by line in [diff.html](diff.html).",
            "",
            "| file | bytes | operations | changed | functions |",
            "|---|---:|---:|---|---|",
        ]
        lines += [
            f"| [{e.file}]({e.file}) | {e.size} | {e.operations} | {e.change} | {e.functions} |" for e in self._entries
        ]
        lines += ["", "The passes with their options:", ""]
        lines += [f"- {e.file.partition('-')[0]}: `{e.step}`" for e in self._entries]
        write_output(self._folder / "README.md", "\n".join(lines) + "\n", follow=False)


def _functions(module: ir.Module) -> dict[str, ir.AnyOp]:
    """The functions, and whatever else has a symbol, by name."""
    return {
        str(op.operation.attributes["sym_name"].value): op.operation
        for op in module.body.operations
        if "sym_name" in op.operation.attributes
    }


def _same(first: ir.AnyOp, second: ir.AnyOp) -> bool:
    return bool(ir.native.is_equivalent(first, second))


def _count(module: ir.Module) -> Counter[str]:
    return Counter(op.name for op in operations(module))


def _delta(before: Counter[str], after: Counter[str]) -> str:
    """The kinds of operations whose numbers changed most."""
    gaps = {name: after[name] - before[name] for name in {*before, *after} if after[name] != before[name]}
    ordered = sorted(gaps, key=lambda name: (-abs(gaps[name]), name))
    parts = [f"{name} {gaps[name]:+d}" for name in ordered[:_KINDS]]
    more = f" and {len(ordered) - _KINDS} more" if len(ordered) > _KINDS else ""
    return (", ".join(parts) or "no numbers") + more


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more or "none"


def _text(module: ir.Module, changed: list[ir.AnyOp]) -> str:
    """The functions as a module of their own, with declarations of what they call."""
    present = {str(op.attributes["sym_name"].value) for op in changed}
    everything = _functions(module)
    with module.context:
        copy = ir.Module.create(module.operation.location)
        for name, attribute in module.operation.attributes.items():
            copy.operation.attributes[name] = attribute
        for op in changed:
            copy.body.append(op.clone())
        for name in sorted(_called(changed) - present):
            if name in everything:
                copy.body.append(_declaration(everything[name]))
        return str(copy.operation.get_asm(enable_debug_info=True, assume_verified=True))


def _called(functions: list[ir.AnyOp]) -> set[str]:
    """Names of the functions that are called, or whose address is taken."""
    found = set()
    for function in functions:
        for op in operations(function):
            for attribute in ("callee", "name", "global_name"):
                if attribute in op.attributes and isinstance(op.attributes[attribute], ir.FlatSymbolRefAttr):
                    found.add(str(op.attributes[attribute].value))
    return found


def _declaration(function: ir.AnyOp) -> ir.AnyOp:
    """A function without its body; other symbols whole."""
    if function.name not in ("func.func", "llvm.func"):
        whole: ir.AnyOp = function.clone()
        return whole
    kept = {name: attribute for name, attribute in function.attributes.items() if name != "linkage"}
    if function.name == "func.func":
        kept["sym_visibility"] = ir.StringAttr.get("private")
    declared: ir.AnyOp = ir.Operation.create(function.name, attributes=kept, regions=1, loc=function.location)
    return declared
