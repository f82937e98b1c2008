# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`rlx interesting`: the test that `rlx-reduce` asks whether a smaller module still shows a failure."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

#: What the command looks for.
WHAT = ("crash", "text", "mismatch")


def is_interesting(
    file: Path, what: str, *, text: str = "", arguments: tuple[str, ...] = (), seconds: float = 60
) -> bool:
    """Whether a module shows a failure, found in a child process.

    Args:
        file: the module.
        what: `crash`: rlx-opt ends by a signal, or doesn't end; `text`: it writes something that the regular expression
            `text` matches, whatever its exit status; `mismatch`: compiled and interpreted results differ on random
            inputs, and the compiled code ran.
        text: for `text`; with `crash`, what the process must have written, so that another crash doesn't count.
        arguments: of rlx-opt, such as a pipeline.
        seconds: after which rlx-opt counts as hanging.
    """
    if what == "mismatch":
        return _differs(file)
    command = [sys.executable, "-m", "rlx_mlir.tools.opt", str(file), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return what == "crash" and not text
    if what == "crash" and done.returncode >= 0:
        return False
    written = (done.stdout + done.stderr).decode(errors="replace")
    return re.search(text, written) is not None


def _differs(file: Path) -> bool:
    from rlx_mlir.fuzz.campaign import make_worker

    worker = make_worker("graphs")
    try:
        outcome = worker.run({"module": str(file)})
    finally:
        worker.close()
    return outcome["status"] == "finding" and outcome["kind"] in ("mismatch", "bits")


__all__ = ["WHAT", "is_interesting"]
