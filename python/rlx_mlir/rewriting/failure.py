# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The errors of pipelines that failed: which pass, where, why; and a file that reproduces the failure."""

from __future__ import annotations

import logging
import os
import re
import tempfile
import traceback
from pathlib import Path

from rlx_mlir import ir
from rlx_mlir.errors import CacheError, PassError, RlxError, reason_of
from rlx_mlir.paths import check_private, make_private
from rlx_mlir.rewriting.pipelines import pass_name, split

log = logging.getLogger(__name__)

_KERNEL = re.compile(r'loc\("(kernel [^"]+)"\((.*)\)\)')
_NAMED = re.compile(r'loc\("([^"]+)"\("([^"]+)":(\d+):\d+\)\)')
_FILE = re.compile(r'loc\("([^"]+)":(\d+):\d+\)')
_PASS = re.compile(r"pass '([\w-]+)': ")


def pass_error(
    pipeline: str, module_location: str, result: ir.native.PipelineResult, cause: Exception | None
) -> PassError:
    """The error of a failed pipeline.

    Args:
        pipeline: as it was run.
        module_location: text of the location of the operation that it ran on, which says nothing of the place.
        result: what `native.run_pipeline` returned.
        cause: what a pass in Python raised, if one did.
    """
    lines = []
    for diagnostic in result.diagnostics:
        where = "" if diagnostic.location in (module_location, "pipeline") else _readable(diagnostic.location)
        kind = "" if diagnostic.severity == "error" else f"{diagnostic.severity}: "
        lines.append(": ".join(filter(None, (where, kind + diagnostic.message))))
    message = "\n".join(lines) or f"pipeline '{pipeline}' failed without a diagnostic"
    text = result.reproducer
    if found := _PASS.search(message):
        name = found[1]
        message = message.replace(found[0], "", 1)
    else:
        name, text = _find_pass(pipeline, text)
    trace = ""
    if cause is not None and _is_mistake(cause):
        trace = "".join(f"// {line}\n" for line in "".join(traceback.format_exception(cause)).splitlines())
    return PassError(message, pass_name=name or None, reproducer=write_reproducer(text + trace) if text else None)


def _is_mistake(error: BaseException | None) -> bool:
    """Whether something is wrong with the code of a pass, rather than with what it was given."""
    return error is not None and (not isinstance(error, RlxError) or _is_mistake(error.__cause__))


def _readable(location: str) -> str:
    """A location as people read it; as MLIR prints it where it is of another kind."""
    if match := _KERNEL.fullmatch(location):
        return ", ".join(filter(None, (match[1], _readable(f"loc({match[2]})"))))
    if match := _NAMED.fullmatch(location):
        return f"block '{match[1]}' ({match[2]}:{match[3]})"
    if match := _FILE.fullmatch(location):
        return f"{match[1]}:{match[2]}"
    return "" if location == "loc(unknown)" else location


def _find_pass(pipeline: str, reproducer: str) -> tuple[str, str]:
    """The pass that fails, and the IR that it fails on: the passes run again one by one, on a module of their own.

    Gives an empty name, and the reproducer as it is, where no pass fails this time.
    """
    if not reproducer:
        return "", reproducer
    context = ir.new_context()
    context.allow_unregistered_dialects = True
    try:
        with ir.single_threaded(context):
            module = ir.Module.parse(reproducer, context)
    except ir.MLIRError:  # what failed left IR that prints, but doesn't verify
        return "", reproducer
    for step in split(pipeline):
        result = ir.native.run_pipeline(module.operation, step)
        if not result.succeeded:
            return pass_name(step), result.reproducer or reproducer
    return "", reproducer


def write_reproducer(text: str, suffix: str = ".mlir") -> Path | None:
    """Writes the IR before the failure, with the command that fails, to a new file that its user alone can read.

    Gives None where there is no folder for it, which the log says: the failure itself is what matters. Without
    RLX_REPRODUCER_DIR, the folder is one of the user's own in that for temporary files, where others can't have put
    anything; the null device as RLX_REPRODUCER_DIR means that none is written.
    """
    named = os.environ.get("RLX_REPRODUCER_DIR")
    if named == os.devnull:
        return None
    folder = Path(named) if named else Path(tempfile.gettempdir()) / f"rlx-reproducers-{os.geteuid()}"
    try:
        make_private(folder)
        if not named and folder.is_symlink():
            raise CacheError(f"{folder} is a symbolic link, but a folder is expected")
        check_private(folder, sticky=bool(named))
        handle, name = tempfile.mkstemp(prefix=f"{os.getpid()}-", suffix=suffix, dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except (OSError, CacheError) as error:
        log.warning("no reproducer is written to %s: %s", folder, reason_of(error))
        return None
    return Path(name)
