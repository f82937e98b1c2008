# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Budgets: how much of bytes, nesting, layers, steps and time a file that a stranger sent may take.

Each has a default that is far above what real models need, and can be changed for a block of Python
(`rlx_mlir.budget`), for a command (`rlx --budget layers=2000 …`), or for a process (`RLX_BUDGETS=layers=2000`).
An error says which one was exceeded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache

from rlx_mlir.errors import BudgetError, InputError, did_you_mean

VARIABLE = "RLX_BUDGETS"

_MiB = 1 << 20


def _budget(default: int, what: str) -> int:
    return field(default=default, metadata={"what": what})


@dataclass(frozen=True)
class Budgets:
    """What may be taken; numbers above zero."""

    json_bytes: int = _budget(
        256 * _MiB, "bytes of a JSON or text file beside a model, or of a cache entry's description"
    )
    ir_bytes: int = _budget(1024 * _MiB, "bytes of a module as text")
    nesting: int = _budget(256, "levels of brackets within each other, in JSON and in modules as text")
    digits: int = _budget(4000, "digits of one number, in JSON, templates and modules as text")
    layers: int = _budget(1024, "layers of a model")
    tensors: int = _budget(65536, "tensors of a file")
    nodes: int = _budget(1 << 20, "nodes of an ONNX file, or operations of a module of StableHLO")
    metadata_bytes: int = _budget(1024 * _MiB, "bytes of a GGUF file's metadata")
    template_bytes: int = _budget(_MiB, "characters of a chat template")
    template_steps: int = _budget(
        1_000_000, "steps of loops, of calls and of operators while a chat template is compiled or rendered"
    )
    template_output: int = _budget(
        16 * _MiB, "characters that a chat template writes, or makes on the way; elements of lists count as 16"
    )
    grammar_bytes: int = _budget(
        _MiB // 16, "bytes of a JSON schema, a regular expression or a grammar that generated text follows"
    )
    compile_seconds: int = _budget(1800, "seconds for compiling the modules of a model file")

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if type(value) is not int or value <= 0:
                raise InputError(f"the budget '{each.name}' must be a whole number above zero, but is {value!r}")


NAMES = tuple(each.name for each in fields(Budgets))
#: What each one limits.
MEANINGS: Mapping[str, str] = {each.name: each.metadata["what"] for each in fields(Budgets)}

_own: ContextVar[Budgets | None] = ContextVar("rlx_budgets", default=None)
#: What a command line said, for all threads.
_process: list[Budgets] = []


def parse(text: str) -> dict[str, int]:
    """``name=value,name=value`` as a mapping; InputError for names and values that can't be."""
    found: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, separator, value = part.partition("=")
        if not separator or not (value.isascii() and value.isdigit()) or len(value) > 18:
            raise InputError(f"a budget must be written as NAME=NUMBER, but is '{part[:80]}'")
        found[_known(name.strip())] = int(value)
    return found


def _known(name: str) -> str:
    if name not in MEANINGS:
        raise InputError(f"there is no budget '{name}'{did_you_mean(name, NAMES)}; there are {', '.join(NAMES)}")
    return name


@lru_cache(maxsize=8)
def _of_environment(text: str) -> Budgets:
    return Budgets(**parse(text))


def current() -> Budgets:
    """Those in force: the innermost `budget(...)`, else what the environment says, else the defaults."""
    own = _own.get()
    if own is None:
        own = _process[-1] if _process else _of_environment(os.environ.get(VARIABLE, ""))
    return own


@contextmanager
def budget(**limits: int) -> Iterator[Budgets]:
    """Other limits for what runs inside, in this thread: ``with rlx.budget(layers=2000): rlx.load_model(path)``.

    InputError for unknown names and for values that aren't whole numbers above zero.
    """
    for name in limits:
        _known(name)
    token = _own.set(replace(current(), **limits))
    try:
        yield current()
    finally:
        _own.reset(token)


@contextmanager
def budget_for_process(limits: Mapping[str, int]) -> Iterator[None]:
    """Other limits in all threads, as long as what is inside runs: those of a command line."""
    before = _process[:]
    _process[:] = [replace(current(), **{_known(name): value for name, value in limits.items()})]
    try:
        yield
    finally:
        _process[:] = before


def check(name: str, value: float, what: str) -> None:
    """BudgetError where `value`, which `what` needs (``"config.json"``), is above the budget `name`."""
    limit = getattr(current(), name)
    if value > limit:
        raise exceeded(name, what, value)


def exceeded(name: str, what: str, value: float | None = None) -> BudgetError:
    """The error of what needs more than the budget `name`; `value` is how much, where that is known."""
    limit = getattr(current(), name)
    needs = f"needs {value:,}" if value is not None else "needs more"
    return BudgetError(
        f"{what} {needs}, but the budget '{name}' ({MEANINGS[name]}) is {limit:,}: if you trust it, allow more with "
        f"rlx_mlir.budget({name}=…), 'rlx --budget {name}=…' or {VARIABLE}={name}=…",
        budget=name,
        limit=limit,
    )


__all__ = [
    "MEANINGS",
    "NAMES",
    "VARIABLE",
    "Budgets",
    "budget",
    "budget_for_process",
    "check",
    "current",
    "exceeded",
    "parse",
]
