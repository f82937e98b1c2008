# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is checked of IR that somebody sent, before MLIR reads it and after.

MLIR's parser calls itself for each bracket, and a stack that overflows ends the process: nesting is limited before. Its
reader of bytecode checks some of what it relies on in assertions, which end the process, too; no limit helps against
that, so bytecode is read by another process first. So is text that uses a value before its definition: where that is
in a region, and the parser stops at an error after it, it destroys the definition before the use, and the process
with it.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlx_mlir import budgets
from rlx_mlir.errors import InputError, RlxError

if TYPE_CHECKING:
    from rlx_mlir import ir

#: How MLIR's bytecode begins.
BYTECODE = b"ML\xefR"
#: Seconds, and bytes of bytecode for a further second, and bytes of memory beside those of the interpreter, that
#: reading it may take. MLIR's reader goes through a list of types as often as a damaged count says, which may be 2^62.
_SECONDS = 10
_BYTES_A_SECOND = 1 << 20
_MEMORY = 4 << 30
#: What parts a file of several modules.
_PART = b"// -----"
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from rlx_mlir.sources import _read; _read()"


def check_source(content: bytes, what: str) -> None:
    """Raises BudgetError where IR is too large or nested too deeply, InputError where it is damaged bytecode or has a
    constant whose elements can't be counted.

    Args:
        content: text or bytecode.
        what: names it in messages.
    """
    from rlx_mlir import ir

    budgets.check("ir_bytes", len(content), what)
    if content.startswith(BYTECODE):
        check_bytecode(content, what)
        return
    nesting, digits, overflows, forward = ir.native.measure_text(content)
    budgets.check("nesting", nesting, what)
    budgets.check("digits", digits, what)
    if overflows:
        raise InputError(f"{what} has a constant of 2^63 elements or more, which 64 bits don't count")
    if forward:
        _read_elsewhere(content, what)


def check_bytecode(content: bytes, what: str) -> None:
    """Lets another process read the bytecode; InputError where that fails, however it fails."""
    if done := _read_elsewhere(content, what):
        raise InputError(f"{what} doesn't parse: {done}")


def _read_elsewhere(content: bytes, what: str) -> str:
    """What another process says of a source, or '' where it reads it; InputError where it doesn't come to an end."""
    done = run_reader([_PROGRAM, *sys.path], content, what, _seconds(content))
    if not done.returncode:
        return ""
    return (done.stderr.decode(errors="replace").strip().splitlines() or ["no reason is given"])[-1]


def run_reader(
    program: Sequence[str], content: bytes, what: str, seconds: int, error: Callable[[str], RlxError] = InputError
) -> subprocess.CompletedProcess[bytes]:
    """What a program of Python makes of a source, in another process.

    Args:
        program: its text, and its arguments.
        content: what it reads from its standard input.
        what: names the source.
        seconds: that it may take.
        error: makes the exception of a message.

    Raises what `error` makes where it doesn't come to an end, or a signal ends it.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", *program], input=content, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise error(f"{what} is damaged: reading it takes more than {seconds} seconds") from None
    if done.returncode < 0:
        raise error(f"{what} is damaged: reading it ends a process with signal {-done.returncode}")
    return done


def _seconds(content: bytes) -> int:
    """The seconds that reading bytecode may take."""
    return _SECONDS + len(content) // _BYTES_A_SECOND


def check_strings(module: ir.Module, what: str) -> None:
    """Raises InputError where a name, or another string of a module that was read, isn't UTF-8."""
    from rlx_mlir import ir

    if found := ir.native.foreign_string(module.operation):
        raise InputError(f"{what}: {found}")


def check_file(path: Path) -> None:
    """Checks the source in a file; those that aren't there, or aren't files, are left to whoever opens them."""
    if path.is_file():
        budgets.check("ir_bytes", path.stat().st_size, str(path))
        check_source(path.read_bytes(), str(path))


def problem(content: bytes) -> str:
    """What is wrong with a source, as text; empty where nothing is."""
    try:
        check_source(content, "the source")
    except RlxError as error:
        return str(error)
    return ""


def _limit(kind: int, most: int) -> None:
    """Limits what this process may take, unless less is allowed already."""
    soft, hard = resource.getrlimit(kind)
    if soft == resource.RLIM_INFINITY or soft > most:
        resource.setrlimit(kind, (most, hard))


def _read() -> None:
    """Reads a source from standard input and prints what it holds: some bytecode is only read when it is asked for."""
    from rlx_mlir import ir

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    content = sys.stdin.buffer.read()
    # It ends also where the process that waits for it is gone.
    _limit(resource.RLIMIT_CPU, _seconds(content) + 1)
    _limit(resource.RLIMIT_AS, _MEMORY + 16 * len(content))
    context = ir.new_context()
    context.allow_unregistered_dialects = True
    context.enable_multithreading(False)
    problems = []
    # Tools read the parts of a file one by one, the later ones also where an earlier one has an error.
    parts = [] if content.startswith(BYTECODE) or _PART not in content else content.split(_PART)
    for part in (content, *parts):
        try:
            str(ir.Module.parse(part, context))
        except ir.MLIRError as error:
            problems.append(error.error_diagnostics[0].message if error.error_diagnostics else str(error))
        except (RuntimeError, ValueError) as error:
            problems.append(str(error))
    if problems:
        sys.exit(" ".join(problems[0].split()))


__all__ = ["BYTECODE", "check_bytecode", "check_file", "check_source", "check_strings", "problem", "run_reader"]
