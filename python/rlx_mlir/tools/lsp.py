# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The console script `rlx-lsp-server`: a language server for MLIR files with our dialects."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Serves on standard input and output, and exits with the server's status."""
    from rlx_mlir import ir

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # MLIR's mains never ask Python whether there was one

    sys.exit(ir.native.lsp_main(["rlx-lsp-server", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
