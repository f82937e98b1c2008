# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The console script `rlx-lsp-server`: a language server for MLIR files with our dialects."""

from __future__ import annotations

import sys


def main() -> None:
    """Serves on standard input and output, and exits with the server's status."""
    from rlx_mlir import ir
    from rlx_mlir.limits import end_at_interrupts

    end_at_interrupts()

    sys.exit(ir.native.lsp_main(["rlx-lsp-server", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
