# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The console script `rlx-reduce`: mlir-reduce with our dialects and passes, those written in Python too."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Runs rlx-reduce on the command line's arguments and exits with its status."""
    from rlx_mlir import ir
    from rlx_mlir.errors import RlxError
    from rlx_mlir.limits import end_at_interrupts
    from rlx_mlir.rewriting import registry
    from rlx_mlir.sources import check_file

    end_at_interrupts()

    registry.register_all()
    try:
        for argument in sys.argv[1:]:
            if not argument.startswith("-"):
                check_file(Path(argument))
    except RlxError as error:
        sys.exit(f"rlx-reduce: {error}")
    sys.stdout.flush()
    sys.exit(ir.native.reduce_main(["rlx-reduce", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
