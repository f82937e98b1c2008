# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fuzzer of chat templates: writes random programs, and renders a conversation with each.

Only errors of ours may come of it, in little time and memory: steps and characters have small budgets, and the process
that renders may take 256 MiB beside what its libraries have.

Tasks: `{seed, index, file}` writes a template and renders it; `{file, limits?}` renders one that is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from rlx_mlir import budgets
from rlx_mlir.errors import RlxError
from rlx_mlir.fuzz.pool import Outcome, Task
from rlx_mlir.fuzz.refusal import check_refusal

Item = TypeVar("Item")

SUFFIX = ".jinja"
MESSAGES: tuple[dict[str, object], ...] = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello <b> é \U0001f600"},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5]}}}]},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
)
#: Of a case: a tenth of the default, which takes a tenth of the time.
_LIMITS = {"template_steps": 100_000, "template_output": 1 << 21}
_DEEPEST = 3

_NAMES = ("messages", "message", "m", "ns", "x", "y", "loop", "tools", "bos_token", "none", "missing", "f", "varargs")
_NUMBERS = ("0", "1", "-1", "2", "7", "100", "4000", "99999", "100000000", "2000000000", "10**30", "1.5", "1e300")
_TEXTS = ("''", "'x'", "'é'", "'\U0001f600'", "'%s'", "'%9999999d'", "'{}'", "'{:9999999}'", "'a b\\nc'", "'<&>'",
          "'role'", "'content'", "'\\x00'", "'{0.__class__}'", "'%*d'", "'\\ud800'")  # fmt: skip
_ATTRIBUTES = ("role", "content", "tool_calls", "items", "__class__", "format", "s", "index", "first", "cycle",
               "changed", "append", "encode", "mro", "length", "revindex")  # fmt: skip
_METHODS = ("split", "strip", "replace", "join", "center", "upper", "format", "startswith", "splitlines", "zfill",
            "get", "items", "keys", "count", "index", "rfind", "rsplit", "lstrip", "title", "copy", "to_bytes",
            "translate", "pop", "next", "partition")  # fmt: skip
_OPERATORS = ("+", "-", "*", "/", "//", "**", "%", "~", "==", "<", "in", "not in", "and", "or", "is", "!=", ">=")
_GLOBALS = ("range", "dict", "namespace", "cycler", "joiner", "raise_exception", "strftime_now", "f", "caller", "loop",
            "lipsum", "self.b", "super")  # fmt: skip


_DOUBLED = ("ns.s ~ ns.s", "[ns.s, ns.s]", "(ns.s, ns.s)", "ns.s + ns.s")
_BROKEN = (
    "{% break %}", "{% include 'x' %}", "{% extends x %}", "{{", "{% raw %}", "{#", "}}", "{% do x %}",
    "{% autoescape true %}{% endautoescape %}", "{{ " + "(" * 300 + ")" * 300 + " }}", "{{ " + "9" * 5000 + " }}",
    "{% for x in [1] %}" * 21 + "{% endfor %}" * 21, "{% if x %}" * 3000, "{{ a" + ".b" * 9000 + " }}",
)  # fmt: skip


def _names() -> tuple[list[str], list[str]]:
    """Filters and tests to draw from."""
    from jinja2.filters import FILTERS
    from jinja2.tests import TESTS

    from rlx_mlir.models.sandbox import environment

    # Each unknown name makes a template fail before it runs: a few are enough.
    known = set(FILTERS) & set(environment().filters)
    return [*sorted(known), "urlize"], [*sorted(each for each in TESTS if each.isidentifier()), "notest"]


class _Writer:
    """Writes one program."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._filters, self._tests = _names()

    def _choose(self, items: Sequence[Item]) -> Item:
        return items[int(self._rng.integers(len(items)))]

    def _chance(self, probability: float) -> bool:
        return bool(self._rng.random() < probability)

    def _arguments(self, depth: int, most: int = 3) -> str:
        parts = [self.expression(depth + 1) for _ in range(int(self._rng.integers(0, most + 1)))]
        if self._chance(0.1):
            words = ("indent", "width", "attribute", "start", "count", "a", "separators", "reverse")
            parts.append(f"{self._choose(words)}={self.expression(depth + 1)}")
        if self._chance(0.05):
            parts.append(f"{self._choose(('*', '**'))}{self.expression(depth + 1)}")
        return ", ".join(parts)

    def expression(self, depth: int = 0) -> str:
        """An expression."""
        kind = int(self._rng.integers(0, 14)) if depth < _DEEPEST else int(self._rng.integers(0, 3))

        def inner() -> str:
            return self.expression(depth + 1)

        if kind == 0:
            return str(self._choose(_NUMBERS))
        if kind == 1:
            return str(self._choose(_TEXTS))
        if kind == 2:
            return str(self._choose(_NAMES))
        if kind in (3, 4):
            return f"({inner()} {self._choose(_OPERATORS)} {inner()})"
        if kind == 5:
            return self._plausible()
        if kind == 6:
            return f"({inner()} | {self._choose(self._filters)}({self._arguments(depth)}))"
        if kind == 7 and self._chance(0.5):
            return f"({self._text()}).{self._choose(_METHODS)}({self._arguments(depth)})"
        if kind in (7, 8):
            return f"{self._choose(_GLOBALS)}({self._arguments(depth)})"
        if kind == 9:
            return f"[{self._arguments(depth).replace('=', ',').replace('*', '')}]"
        if kind == 10:
            return f"({inner()}, {inner()})" if self._chance(0.5) else f"{{{inner()}: {inner()}}}"
        if kind == 11:
            return f"({inner()}).{self._choose(_ATTRIBUTES)}" if self._chance(0.5) else f"({inner()})[{inner()}]"
        if kind == 12:
            return f"({inner()})[{inner()}:{inner() if self._chance(0.5) else ''}]"
        return f"({inner()} is {self._choose(self._tests)}({inner() if self._chance(0.5) else ''}))"

    def _text(self) -> str:
        return str(
            self._choose(
                (*_TEXTS[:6], "('ab ' * 900)", "('a' * 300000)", "messages[1].content", "(messages|string)", "x~y")
            )
        )

    def _list(self) -> str:
        return str(
            self._choose(
                (
                    "messages",
                    "[[1, 2], [3]]",
                    "range(1000)",
                    "range(90000)",
                    "('a b' * 99).split()",
                    "[1] * 50000",
                    "messages[1].items()",
                    "[('x' * 9000)] * 900",
                    "messages|map(attribute='role')",
                )
            )
        )

    def _plausible(self) -> str:
        """A filter or a method with what it is for, and sizes that are small or far too large."""
        text, other, items, size = self._text(), self._text(), self._list(), self._choose(_NUMBERS)
        return (
            "("
            + str(
                self._choose(
                    (
                        f"{text}|indent({size})",
                        f"{text}|center({size})",
                        f"{text}|replace({other}, {self._text()})",
                        f"{items}|join({text})",
                        f"{items}|tojson(indent={size})",
                        f"{text}|tojson(ensure_ascii=true)",
                        f"{items}|batch({size})|list|length",
                        f"{items}|slice({size}, 0)|list|length",
                        f"{items}|sort|length",
                        f"{items}|sum(start=[])|length",
                        f"{items}|map('string')|join({text})",
                        f"{size}|round({size})",
                        f"{text}|truncate({size})",
                        f"{text}|wordcount",
                        f"{text}|e|length",
                        f"{text} * {size}",
                        f"{items} * {size}",
                        f"{text} % {size}",
                        f"{size} ** {size}",
                        f"{text}.split({other})|length",
                        f"{text}.rfind({other})",
                        f"{text}.join({items})",
                        f"{text}.ljust({size})",
                        f"{items}|unique|list",
                        f"{text}.format({other}, {size})",
                        f"{text}|format({other})",
                        f"{items}|groupby(0)|list",
                        f"{text}|int",
                        f"{text}[{size}:]",
                        f"{items}[:{size}]",
                        f"{text} in {other}",
                        f"{items}|list == {items}|list",
                        f"{items}|selectattr('role', 'in', {text})|list",
                        f"{items}|string|length",
                        f"{text}|trim({other})",
                        f"{items}|map('center', {size})|list|length",
                        f"{text}|urlencode",
                        f"strftime_now({text})",
                    )
                )
            )
            + ")"
        )

    def statement(self, depth: int = 0) -> str:
        """A statement, or some text."""
        kind = int(self._rng.integers(0, 15)) if depth < _DEEPEST else int(self._rng.integers(0, 4))

        def body() -> str:
            return "".join(self.statement(depth + 1) for _ in range(int(self._rng.integers(1, 4))))

        if kind == 0:
            return "text\n" * int(self._rng.integers(1, 4))
        if kind in (1, 2):
            return f"{{{{ {self.expression(depth)} }}}}"
        if kind == 3:
            return f"{{% set {self._choose(('x', 'y', 'ns.s', 'ns', 'm', 'x, y'))} = {self.expression(depth)} %}}"
        if kind in (4, 5, 6):
            source = self._choose(("messages", "range(100000)", "range(3)", self.expression(depth)))
            extra = self._choose(("", "", "", " recursive", f" if {self.expression(depth + 1)}"))
            end = self._choose(("", "", "{% break %}", "{% continue %}", "{% else %}z"))
            return f"{{% for {self._choose(('m', 'x', 'x, y'))} in {source}{extra} %}}{body()}{end}{{% endfor %}}"
        if kind in (7, 8):
            return f"{{% if {self.expression(depth)} %}}{body()}{{% else %}}{body()}{{% endif %}}"
        if kind == 9:
            return (
                f"{{% macro f({self._choose(('', 'a', 'a, b=1', 'a', 'b', 'a=1', 'a, a'))}) %}}{body()}{{% endmacro %}}"
            )
        if kind == 10:
            return f"{{% set ns = namespace(s={self.expression(depth)}) %}}" + (
                f"{{% for x in range(60) %}}{{% set ns.s = {self._choose(_DOUBLED)} %}}{{% endfor %}}{body()}"
            )
        if kind == 11:
            return f"{{% set y %}}{body()}{{% endset %}}"
        if kind == 12:
            return f"{{% filter {self._choose(self._filters)}({self._arguments(depth)}) %}}{body()}{{% endfilter %}}"
        if kind == 13:
            return f"{{% call f({self._arguments(depth)}) %}}{body()}{{% endcall %}}"
        word, rest = self._choose((("generation", ""), ("generation", ""), ("block", " b"), ("with", " x = 1")))
        return f"{{% {word}{rest} %}}{body()}{{% end{word} %}}"


def write(seed: int, index: int) -> str:
    """The template of a number."""
    rng = np.random.default_rng([seed, index])
    writer = _Writer(rng)
    text = "".join(writer.statement() for _ in range(int(rng.integers(1, 4))))
    if rng.random() < 0.05:
        text += _BROKEN[int(rng.integers(len(_BROKEN)))]
    if rng.random() < 0.05 and text:  # damaged
        at = int(rng.integers(len(text)))
        text = text[:at] + text[at + int(rng.integers(1, 8)) :]
    return text


def prepare() -> None:
    """Loads what rendering needs, so that its memory doesn't count."""
    render("{{ messages | tojson }}{{ strftime_now('%Y') }}")


def handle(task: Task) -> Outcome:
    """Runs one task."""
    if "reduce" in task:
        return {"files": []}
    path = Path(task["file"])
    if "seed" in task:
        path.write_bytes(write(task["seed"], task["index"]).encode("utf-8", "surrogatepass"))
    source = path.read_bytes().decode("utf-8", "surrogatepass")
    answer = {"status": "ok" if render(source, task.get("limits", _LIMITS)) else "refused"}
    if "seed" in task:
        path.unlink()
    return answer


def render(source: str, limits: Mapping[str, int] = _LIMITS) -> bool:
    """Renders a conversation; whether nothing was refused. Anything but errors of ours goes to the caller.

    `limits` are budgets by name.
    """
    from rlx_mlir.models.chat import ChatTemplate

    with budgets.budget(**limits):
        try:
            text = ChatTemplate(source, bos_token="<s>").render(MESSAGES, tools=[{"name": "f"}])
        except RlxError as error:
            check_refusal(error)
            return False
        assert len(text) <= budgets.current().template_output
    return True
