# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What passes changed, line by line, as a page for a browser: the file `diff.html` beside the dumps.

Numbers of values shift with every operation that comes or goes. So lines are compared without them, and those that are
equal then are checked for their operands: a line is shown as changed where it reads another value than before.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rlx_mlir import ir
from rlx_mlir.paths import open_output, write_output

#: Lines around a change that are shown with it.
_CONTEXT = 3
#: Rows that are shown of one function after one pass; the file of the pass has the rest.
_ROWS = 400
#: Characters that are shown of a line.
_WIDTH = 400
#: Values and blocks in a line of IR.
_NAME = re.compile(r"[%^][\w$.#-]+")

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{name}: what passes changed</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; --add: #e2f5e4; --del: #fbe4e4; --dim: #777; --line: #8884; }}
@media (prefers-color-scheme: dark) {{ :root {{ --add: #12351b; --del: #43191c; --dim: #999; }} }}
body {{ font: 15px system-ui, sans-serif; margin: 1.5em; }}
summary {{ cursor: pointer; padding: .25em 0; }}
summary small, p {{ color: var(--dim); }}
details {{ border-top: 1px solid var(--line); }}
details details {{ border: 0; margin-left: 1.2em; }}
input {{ font: inherit; padding: .2em .5em; width: 20em; max-width: 100%; }}
pre {{ font: 13px/1.4 ui-monospace, monospace; margin: .3em 0 1em; overflow-x: auto; }}
pre b {{ color: var(--dim); display: inline-block; font-weight: 400; text-align: right; user-select: none;
  width: 4em; }}
.a, .d {{ display: inline-block; min-width: 100%; }}
.a {{ background: var(--add); }} .d {{ background: var(--del); }} .s {{ color: var(--dim); }}
</style></head><body>
<h1>What passes changed in <code>{name}</code></h1>
<p>Every pass that changed something, in order; inside, the functions that it changed. Lines without a number in front
are gone. Numbers of values don't count, operands do.</p>
<p><input id="find" type="search" placeholder="passes or functions with this name" aria-label="filter"></p>
<script>
document.getElementById("find").addEventListener("input", event => {{
  const text = event.target.value;
  for (const own of document.querySelectorAll("body > details")) {{
    const inner = [...own.querySelectorAll("details")], named = own.dataset.name.includes(text);
    for (const each of inner) each.hidden = !named && !each.dataset.name.includes(text);
    own.hidden = !named && inner.every(each => each.hidden);
    own.open = text !== "" && !own.hidden;
  }}
}});
</script>
"""


@dataclass(frozen=True)
class Row:
    """A row of a comparison.

    Attributes:
        kind: `+` for a line that is new, `-` for one that is gone, ` ` for one that stays, `…` for lines left out.
        number: of the line in the new text, from 1; 0 where it isn't in there.
        text: the line; for `…` how many are left out.
    """

    kind: str
    number: int
    text: str


def compare(before: Sequence[str], after: Sequence[str]) -> list[Row]:
    """The rows in which two texts differ, with some lines around them."""
    rows = [Row(*parts) for parts in _paired(before, after)]
    near = {at + d for at, row in enumerate(rows) if row.kind != " " for d in range(-_CONTEXT, _CONTEXT + 1)}
    shown: list[Row] = []
    skipped = 0
    for at, row in enumerate(rows):
        if at in near:
            if skipped:
                shown.append(Row("…", 0, f"{skipped} lines stay"))
            shown.append(row)
            skipped = 0
        else:
            skipped += 1
    if shown and skipped:
        shown.append(Row("…", 0, f"{skipped} lines stay"))
    return shown


def _paired(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    """(kind, number, line) of all lines."""
    keys = [[_NAME.sub("%", line) for line in text] for text in (before, after)]
    # What is equal at both ends needs no search, whose time grows faster than the text.
    head = 0
    while head < min(len(before), len(after)) and keys[0][head] == keys[1][head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and keys[0][-1 - tail] == keys[1][-1 - tail]:
        tail += 1
    middle = difflib.SequenceMatcher(
        None, keys[0][head : len(before) - tail], keys[1][head : len(after) - tail]
    ).get_opcodes()
    parts = [("equal", 0, head, 0, head)]
    parts += [(tag, head + a, head + b, head + c, head + d) for tag, a, b, c, d in middle]
    parts += [("equal", len(before) - tail, len(before), len(after) - tail, len(after))]
    renamed: dict[str, str] = {}
    for tag, old, old_end, new, new_end in parts:
        if tag != "equal":
            yield from (("-", 0, line) for line in before[old:old_end])
            yield from (("+", number + 1, after[number]) for number in range(new, new_end))
            continue
        for offset in range(old_end - old):
            first, second = before[old + offset], after[new + offset]
            names = zip(_NAME.findall(first), _NAME.findall(second), strict=False)
            same = [renamed.setdefault(own, other) == other for own, other in names]
            if not all(same):
                yield "-", 0, first
            yield (" " if all(same) else "+"), new + offset + 1, second


class DiffPage:
    """The page of one module, which grows with each pass: it is whole whatever happens later."""

    def __init__(self, path: Path, name: str) -> None:
        """Begins the page; raises OSError where it can't be written."""
        self._path = path
        write_output(path, _HEAD.format(name=escape(name)), follow=False)

    def add(
        self,
        file: str,
        step: str,
        before: Mapping[str, ir.Operation],
        after: Mapping[str, ir.Operation],
        gone: Sequence[str],
    ) -> None:
        """Adds what a pass changed.

        Args:
            file: of the dump that has the functions whole.
            step: the pass with its options.
            before: the operations of the functions, by name, where they were there.
            after: those of the functions that it changed.
            gone: names of the functions that it erased.
        """
        parts = []
        added = removed = 0
        for name, op in after.items():
            rows = compare(_lines(before.get(name)), _lines(op))
            plus, minus = (sum(row.kind == kind for row in rows) for kind in "+-")
            added, removed = added + plus, removed + minus
            parts.append(_function(name, rows, plus, minus, "" if name in before else "new, ", file))
        parts += [
            f'<details data-name="{escape(name)}"><summary><code>{escape(name)}</code> <small>gone</small></summary>'
            "</details>\n"
            for name in gone
        ]
        text = (
            f'<details data-name="{escape(step)}"><summary><code>{escape(file.partition("-")[0])} {escape(step[:160])}'
            f"</code> <small>{len(after)} functions, +{added} −{removed} lines</small></summary>\n"
            f'<p><a href="{escape(file)}">{escape(file)}</a></p>\n{"".join(parts)}</details>\n'
        )
        with open_output(self._path, append=True, follow=False) as page:
            page.write(text.encode())


def _lines(op: ir.Operation | None) -> list[str]:
    """The text of a function without locations; nothing where there is none."""
    if op is None:
        return []
    text = op.get_asm(large_elements_limit=16, use_local_scope=True, assume_verified=True)
    return str(text).splitlines()


def _function(name: str, rows: Sequence[Row], plus: int, minus: int, new: str, file: str) -> str:
    shown = [_row(row) for row in rows[:_ROWS]]
    if len(rows) > _ROWS:
        shown.append(f'<span class="s">… {len(rows) - _ROWS} more rows; {escape(file)} has the function whole</span>\n')
    what = f"{new}+{plus} −{minus}" if rows else "attributes or locations alone"
    return (
        f'<details data-name="{escape(name)}"><summary><code>{escape(name)}</code> <small>{what}</small></summary>'
        f"<pre>{''.join(shown)}</pre></details>\n"
    )


def _row(row: Row) -> str:
    if row.kind == "…":
        return f'<span class="s"><b></b> … {row.text}</span>\n'
    text = row.text if len(row.text) <= _WIDTH else f"{row.text[:_WIDTH]} … {len(row.text) - _WIDTH} more characters"
    line = f"<b>{row.number or ''}</b> {row.kind} {escape(text)}"
    mark = {"+": "a", "-": "d"}.get(row.kind)
    return f'<span class="{mark}">{line}</span>\n' if mark else f"{line}\n"
