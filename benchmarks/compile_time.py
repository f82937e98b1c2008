# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cold compile time of a model's two programs by number of layers: which part grows with them, and which doesn't.

    python benchmarks/compile_time.py smollm2 --layers 1 8 30

Prints the seconds of building the graph and of each stage, the number of distinct kernels and of calls, and the bytes
of code. Nothing is read from or written to the cache of compiled code.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time

from harness import report, versions

from rlx_mlir import compiler
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models import decoder
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.hub import resolve
from rlx_mlir.models.programs import maxima


def measure(config: ModelConfig, program: str, activations: str) -> dict[str, object]:
    """One cold compilation: seconds of its parts, and its size."""
    begin = time.perf_counter()
    module = decoder.build(config, program)
    built = time.perf_counter()
    options = compiler.CompileOptions(activations=activations, maxima=maxima(config, program, context=2048, chunk=512))
    compilation = compiler.Compilation(module, options)
    seconds = compilation.run()
    start = time.perf_counter()
    code = compilation.code("OBJECT")
    return {
        "what": f"{program}, {config.layers} layers",
        "total s": time.perf_counter() - begin,
        "build": built - begin,
        **seconds,
        "code": time.perf_counter() - start,
        "kernels of code": len(compilation.templates),
        "calls": len(compilation.plan.calls),
        "bytes": len(code),
    }


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2", help="a path to a .gguf, or a known name")
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 8, 30])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--activations", default="int8", choices=["int8", "exact"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    config = ModelConfig.from_gguf(GGUFFile(resolve(options.model)))
    rows = []
    for program in decoder.PROGRAMS:
        for layers in options.layers:
            part = dataclasses.replace(config, layers=layers)
            runs = [measure(part, program, options.activations) for _ in range(options.rounds)]
            middle = {
                key: statistics.median(run[key] for run in runs) if isinstance(runs[0][key], float) else runs[0][key]
                for key in runs[0]
            }
            rows.append(middle)
    report(f"{options.model}: seconds of cold compilation", rows, versions(["rlx-mlir"]), options.json)


if __name__ == "__main__":
    main()
