# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An ONNX file by rlx-mlir and by onnxruntime: the same file, in turns, with equal threads.

    python benchmarks/onnx_frontend.py                          an encoder of MiniLM's sizes, as exporters write it
    python benchmarks/onnx_frontend.py model.onnx --threads 1 --batch 1 8 --tokens 32 128

What is timed is one call, from numpy to numpy, after both gave the same results. Inputs are made for files of encoders:
integers are ids of tokens, or ones where the name says that it is a mask; sizes that the file names are batch and
tokens, in this order. Each figure is the median over rounds of the time of one call.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from harness import interleave, ratio_row, report, seconds_per_call, versions

import rlx_mlir as rlx
from rlx_mlir.frontends.onnx.model import OnnxModel

#: The largest difference between both results, relative to the largest element, that counts as the same.
TOLERANCE = 1e-4


def inputs_of(model: OnnxModel, batch: int, tokens: int) -> dict[str, np.ndarray]:
    """Arrays for a model whose inputs are integers [batch, tokens]."""
    random = np.random.default_rng(0)
    sizes = dict(zip(model.symbols.values(), (batch, tokens), strict=False))
    found = {}
    for value in model.module.inputs:
        shape = [size if isinstance(size, int) else sizes[size] for size in value.shape]
        if "mask" in value.name:
            found[value.name] = np.ones(shape, value.dtype)
        elif "type" in value.name:
            found[value.name] = np.zeros(shape, value.dtype)
        else:
            found[value.name] = random.integers(0, 1000, shape).astype(value.dtype)
    return found


def compare(path: Path | None, options: argparse.Namespace) -> list[dict[str, object]]:
    """A row for each batch and number of tokens."""
    import onnxruntime

    if path is None:
        from onnx_models import encoder

        source: object = encoder(6, 384, 12, 30522, 512).SerializeToString()
    else:
        source = path
    begin = time.perf_counter()
    model = rlx.from_onnx(source)
    read = time.perf_counter()
    compiled = model.compile(threads=options.threads)
    print(f"read in {read - begin:.2f} s, compiled or found in the cache in {time.perf_counter() - read:.2f} s")
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = options.threads, 1
    # Threads that spin after their work would take the time of whoever runs next.
    settings.add_session_config_entry("session.force_spinning_stop", "1")
    given = source if isinstance(source, bytes) else str(source)
    session = onnxruntime.InferenceSession(given, settings, ["CPUExecutionProvider"])
    clock = time.process_time if options.cpu_time else time.perf_counter
    rows = []
    for batch in options.batch:
        for tokens in options.tokens:
            inputs = inputs_of(model, batch, tokens)
            ours, theirs = list(compiled.run(inputs).values()), session.run(None, inputs)
            for name, mine, other in zip(model.outputs, ours, theirs, strict=True):
                worst = float(np.abs(mine - other).max() / max(np.abs(other).max(), 1e-30))
                if worst > TOLERANCE:
                    raise SystemExit(f"'{name}' differs by {worst:.1e} of its largest element: nothing is timed")
            series = interleave(
                {
                    "ours": seconds_per_call(functools.partial(compiled.run, inputs), options.floor, clock),
                    "onnxruntime": seconds_per_call(functools.partial(session.run, None, inputs), options.floor, clock),
                },
                options.rounds,
            )
            rows.append(ratio_row(f"{batch} x {tokens}", series["ours"], series["onnxruntime"], higher_is_better=False))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="a file; by default one is made")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--tokens", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--floor", type=float, default=0.05, help="seconds of calls for one measurement")
    parser.add_argument(
        "--cpu-time", action="store_true", help="count the process's own time: for one thread on a busy machine"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    about = versions(["rlx-mlir", "onnxruntime", "onnx", "numpy"])
    title = f"{options.model or 'an encoder of the sizes of MiniLM-L6'}: seconds of a call, {options.threads} threads"
    report(title, compare(options.model, options), about, options.json)


if __name__ == "__main__":
    main()
