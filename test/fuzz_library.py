# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives librlx_runtime.so bundles that somebody changed, in processes of their own, until the time is over.

``python test/fuzz_library.py --seed 1 --minutes 10`` makes the bundle of a tiny model, and changes it again and again,
as test/python/harness/library_mutations.py says. The status is 1 where a process ended otherwise than by itself; its
last line names seed and number of the case.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HARNESS = Path(__file__).resolve().parent / "python" / "harness"
sys.path.insert(0, str(HARNESS))

import tiny_models  # noqa: E402
from bundles import OPTIONS  # noqa: E402

import rlx_mlir as rlx  # noqa: E402

#: Cases of one process.
COUNT = 500


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the first process; the others have those behind it")
    parser.add_argument("--minutes", type=float, default=1.0, help="begin no process after so many")
    options = parser.parse_args()
    end, seed = time.monotonic() + 60 * options.minutes, options.seed
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle = folder / "tiny.rlx"
        rlx.bundle(tiny_models.write(folder / "tiny.gguf"), bundle, **OPTIONS)
        while True:
            command = [sys.executable, HARNESS / "library_mutations.py", bundle, folder, str(seed), str(COUNT)]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            print(f"seed {seed}: {done.stdout.strip() or done.stderr[-2000:]}", flush=True)
            if done.returncode:
                return 1
            seed += 1
            if time.monotonic() > end:
                return 0


if __name__ == "__main__":
    sys.exit(main())
