# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the artefact of examples/transformer.py: no graph, no compiler, no MLIR.

Usage:

    python examples/transformer.py --save decoder.rlx
    python examples/deploy.py decoder.rlx
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import rlx_mlir as rlx


def main() -> None:
    """Prints what the module takes and gives, tokens, and that MLIR wasn't loaded."""
    path = Path(sys.argv[1])
    begin = time.perf_counter()
    executable = rlx.load(path)
    with np.load(path.with_suffix(".npz")) as params:
        executable.set_params(params)
    print(f"ready after {(time.perf_counter() - begin) * 1e3:.0f} ms")
    for spec in executable.inputs:
        print(f"  takes {spec}")
    for spec in executable.outputs:
        print(f"  gives {spec}" + (f", in the memory of {spec.tied} where it is donated" if spec.tied else ""))

    sizes = {"batch": 1, "seq": 3}
    inputs = {
        spec.name: np.zeros([sizes.get(str(size), size) for size in spec.shape], "f4" if spec.dtype == "f32" else "i4")
        for spec in executable.inputs
    }
    inputs["ids"][0] = [1, 2, 3]
    caches = [spec.tied for spec in executable.outputs if spec.tied]
    logits = executable.run(inputs, donate=caches)["logits"]
    print("next token:", int(logits[0, -1].argmax()))
    print("MLIR loaded:", any(name.partition(".")[0] == "mlir" for name in sys.modules))


if __name__ == "__main__":
    main()
