# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoding by a model's file on one GPU: tokens per second and microseconds of a token, beside what its memory allows.

    python benchmarks/gpu/generate.py smollm2 --tokens 256 --json

Rows: greedy choice and sampling, both by the GPU, and sampling among all logits, which the host does after each step.
The bound is what a step reads and writes, by its kernels, over the rate of a copy, which is measured in turns with the
model. It needs nothing but a GPU; where llama-cpp-python is installed and finds the GPU, `--llama-cpp` is a row, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

PROMPT = 32
#: What is measured: how tokens are chosen, and where.
CHOICES: dict[str, dict[str, Any]] = {
    "greedy": {"greedy": True},
    "top_k 40": {"top_k": 40, "seed": 0},
    "all logits (host)": {"top_k": 0, "seed": 0},
}


def ours(model: Any, tokens: int, options: dict[str, Any]) -> Callable[[], float]:
    """Tokens per second of one generation."""

    def run() -> float:
        model.generate([1] * PROMPT, max_tokens=tokens + 1, ignore_eos=True, **options).read()
        return float(model.stats.decode_rate)

    return run


def by_llama_cpp(path: str, tokens: int) -> Callable[[], float]:
    """The same by llama.cpp, greedily, with all layers on the GPU."""
    import time

    import llama_cpp

    if not llama_cpp.llama_supports_gpu_offload():
        raise SystemExit("the installed llama-cpp-python was built without support for GPUs")
    rival = llama_cpp.Llama(model_path=path, n_gpu_layers=-1, n_ctx=2048, flash_attn=True, verbose=False)

    def run() -> float:
        rival.reset()
        stream = rival.generate([1] * PROMPT, temp=0.0)
        next(stream)
        begin = time.perf_counter()
        for _ in range(tokens):
            next(stream)
        return tokens / (time.perf_counter() - begin)

    return run


def compare(options: argparse.Namespace) -> tuple[list[dict[str, object]], str]:
    """A row for each way to choose tokens, and the GPU."""
    import rlx_mlir as rlx
    from rlx_mlir.measure.device import DeviceProbe
    from rlx_mlir.measure.summary import ModelWork, total
    from rlx_mlir.measure.timing import NOISY, interleave

    model = rlx.load_model(options.model, target="cuda", activations=options.activations, kv_dtype=options.kv_cache)
    runs = {name: ours(model, options.tokens, own) for name, own in CHOICES.items()}
    if options.llama_cpp:
        runs["llama.cpp, greedy"] = by_llama_cpp(str(model.file.path), options.tokens)
    for run in runs.values():
        run()  # graphs are made, memory is taken
    probe = DeviceProbe()
    series = interleave({**runs, "copy": probe.bandwidth}, options.rounds, rest=0.0)
    step = total(ModelWork(model).decode(PROMPT + options.tokens // 2)).bytes
    bound = max(series.pop("copy").values) / step
    rows: list[dict[str, object]] = [
        {
            "chosen": name,
            "tokens/s": own.median,
            "us": 1e6 / own.median,
            "us at least": 1e6 / bound,
            "of the bound": f"{own.median / bound:.0%}",
            "spread": f"{own.spread:.0%}{' (noisy)' if own.spread > NOISY else ''}",
        }
        for name, own in series.items()
    ]
    return rows, probe.name


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2", help="a .gguf file, or the name of a known model")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--activations", default="int8", choices=["int8", "exact"])
    parser.add_argument("--kv-cache", default="f16", choices=["f32", "f16", "bf16"])
    parser.add_argument("--llama-cpp", action="store_true", help="measure llama.cpp, too")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)

    from rlx_mlir.measure.report import report
    from rlx_mlir.measure.timing import versions

    rows, gpu = compare(options)
    about = {**versions(["rlx-mlir", *(["llama-cpp-python"] if options.llama_cpp else [])]), "gpu": gpu}
    title = f"{options.model}: {options.tokens} tokens after {PROMPT}, median of {options.rounds} rounds"
    report(title, rows, about, options.json)


if __name__ == "__main__":
    main()
