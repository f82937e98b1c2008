# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The one boundary at which exceptions of other libraries become ours.

A file, a template, a tokenizer or an argument can make a library raise anything, exceptions that don't derive from
`Exception` included: those of Rust's panics do not. Whoever calls a library with what a stranger sent does it
`with foreign_errors(...)`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

from rlx_mlir.errors import ExecutionError, InputError, RlxError

#: These say something about the process, not about what it was given.
_PASSED_ON = (RlxError, KeyboardInterrupt, SystemExit, GeneratorExit)
#: Characters of a foreign message that are kept.
_LONGEST = 500


@contextmanager
def foreign_errors(
    what: str, error: Callable[[str], RlxError] = InputError, *, but: tuple[type[BaseException], ...] = ()
) -> Iterator[None]:
    """Turns whatever is raised inside into an `RlxError` that begins with `what`.

    Args:
        what: names the file or the argument, such as ``"/models/tokenizer.json"``.
        error: makes the exception of a message.
        but: exceptions that the caller handles by itself.

    Raises what `error` makes, with the foreign exception as its cause. Exceptions of ours, Ctrl-C and exits of the
    interpreter or of a generator go through as they are.
    """
    passed_on: tuple[type[BaseException], ...] = (*_PASSED_ON, *but)
    try:
        yield
    except passed_on:
        raise
    except BaseException as cause:
        raise error(f"{what}: {describe(cause)}") from cause


def required(package: str, what: str, error: Callable[[str], RlxError]) -> ModuleType:
    """The module of a package that isn't needed for everything, imported where it is used: some take long.

    Args:
        package: its name, to import and to install.
        what: needs it, in the plural.
        error: makes the exception of a message.

    Raises what `error` makes where it isn't installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        raise error(f"{what} need the package {package}, which is not installed: pip install {package}") from None


@contextmanager
def compiler_needed(what: str) -> Iterator[None]:
    """Inside, the compiler is imported, which an installation that only runs compiled models doesn't have.

    Args:
        what: has to be compiled.

    Raises ExecutionError, which names both packages, where it isn't there.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("rlx_mlir."):
            raise
        raise ExecutionError(
            f"{what} has to be compiled, which the package rlx-mlir does; rlx-mlir-runtime, which is installed, runs "
            "bundles and compiled modules alone"
        ) from None


def describe(cause: BaseException) -> str:
    """A foreign exception in one line; what `str` of it raises isn't raised again."""
    try:
        text = str(cause)
    except Exception:
        text = ""
    text = " ".join(text.split())
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    if isinstance(cause, MemoryError) and not text:
        text = "it takes more memory than there is"
    elif isinstance(cause, RecursionError):
        text = "it is nested too deeply"
    kind = type(cause).__name__
    return f"{kind}: {text}" if text else kind


__all__ = ["compiler_needed", "describe", "foreign_errors", "required"]
