# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Milliseconds of transformers' models with drawn weights: ours by from_torch, eager, and inductor, in turns.

    python benchmarks/torch_frontend.py llama bert --rounds 15
    python benchmarks/torch_frontend.py --cpu-time --json

Each model is exported once, with a dynamic batch and length, and results are compared. One thread computes. Inductor is
a rival where there is a C++ compiler. `vs` says how many times longer the
other takes; the last row is the geometric mean.
"""

from __future__ import annotations

import argparse
import math
import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from harness import interleave, ratios, report, versions

import rlx_mlir as rlx

Given = dict[str, Any]
_TEXT = {"vocab_size": 8192, "max_position_embeddings": 1024, "use_cache": False, "attn_implementation": "sdpa"}


def llama() -> Any:
    """Of the sizes of a model of 135M, with fewer layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    own = LlamaConfig(
        **_TEXT,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=6,
        num_attention_heads=9,
        num_key_value_heads=3,
    )
    return LlamaForCausalLM(own)


def qwen2() -> Any:
    """Of the sizes of a model of 0.5B, with fewer layers."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    own = Qwen2Config(
        **_TEXT,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=3,
        num_attention_heads=14,
        num_key_value_heads=2,
    )
    return Qwen2ForCausalLM(own)


def bert() -> Any:
    """Six layers of 384."""
    from transformers import BertConfig, BertModel

    own = BertConfig(
        vocab_size=8192,
        hidden_size=384,
        intermediate_size=1536,
        num_hidden_layers=6,
        num_attention_heads=12,
        attn_implementation="sdpa",
    )
    return BertModel(own)


def vit() -> Any:
    """Six layers of 384, of 196 patches."""
    from transformers import ViTConfig, ViTModel

    own = ViTConfig(
        hidden_size=384,
        intermediate_size=1536,
        num_hidden_layers=6,
        num_attention_heads=6,
        attn_implementation="sdpa",
    )
    return ViTModel(own)


def resnet18() -> Any:
    """ResNet-18."""
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig(hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic"))


def mamba() -> Any:
    """Three layers of 512."""
    from transformers import MambaConfig, MambaForCausalLM

    return MambaForCausalLM(MambaConfig(vocab_size=8192, hidden_size=512, num_hidden_layers=3, use_cache=False))


#: Each model, whether it reads images, and the sizes (batch, length) at which it is measured.
MODELS: dict[str, tuple[Callable[[], Any], bool, list[tuple[int, int]]]] = {
    "resnet18": (resnet18, True, [(1, 0), (4, 0)]),
    "vit": (vit, True, [(1, 0), (4, 0)]),
    "bert": (bert, False, [(1, 32), (4, 128)]),
    "llama": (llama, False, [(1, 16), (1, 256)]),
    "qwen2": (qwen2, False, [(1, 16), (1, 256)]),
    "mamba": (mamba, False, [(1, 64)]),
}


def drawn(is_image: bool, batch: int, length: int) -> Given:
    """Arguments of a call."""
    import torch

    if is_image:
        return {"pixel_values": torch.randn(batch, 3, 224, 224)}
    return {"input_ids": torch.randint(0, 8192, (batch, length))}


def first(result: Any) -> Any:
    """The first tensor of a model's result."""
    return next(iter(result.values())) if hasattr(result, "values") else result[0]


def runs_of(model: Any, is_image: bool, example: Given, inductor: bool) -> Mapping[str, Callable[[Given], Any]]:
    """What computes a model, by name."""
    import torch

    batch, length = torch.export.Dim("b"), torch.export.Dim("s", max=512)
    shapes = {"pixel_values": {0: batch}} if is_image else {"input_ids": {0: batch, 1: length}}
    compiled = rlx.from_torch(model, (), example, dynamic_shapes=shapes).compile(threads=1, maxima={"b": 8})
    runs = {"ours": lambda given: compiled(**given), "eager": lambda given: model(**given)}
    if inductor:
        other = torch.compile(model, dynamic=True)
        runs["inductor"] = lambda given: other(**given)
    return runs


def measure(name: str, options: argparse.Namespace) -> list[dict[str, object]]:
    """A row for each size of a model."""
    import torch

    build, is_image, sizes = MODELS[name]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, inductor = build().eval(), not options.no_inductor and shutil.which("g++") is not None
    clock = time.process_time if options.cpu_time else time.perf_counter

    def timed(run: Callable[[Given], Any], given: Given) -> Callable[[], float]:
        def measured() -> float:
            begin = clock()
            run(given)
            return (clock() - begin) * 1e3

        return measured

    rows = []
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Inductor compiles a loop over positions once for each length: Mamba's is left out.
        runs = runs_of(model, is_image, drawn(is_image, 2, 7), inductor and name != "mamba")
        for batch, length in sizes:
            given = drawn(is_image, batch, length)
            results = {who: first(run(given)).numpy() for who, run in runs.items()}
            for who, result in results.items():
                np.testing.assert_allclose(results["ours"], result, atol=1e-4, rtol=1e-4, err_msg=f"{name}: {who}")
            series = interleave({who: timed(run, given) for who, run in runs.items()}, options.rounds)
            what = f"{name} b={batch}" + (f" s={length}" if length else "")
            rows.append({"what": what, **ratios(series)})
    return rows


def mean_row(rows: list[dict[str, object]]) -> dict[str, object]:
    """The geometric mean of each column that says how many times longer another takes."""
    found: dict[str, object] = dict.fromkeys(rows[0], "")
    for column in rows[0]:
        if column.startswith("vs "):
            known = [float(str(row[column]).rstrip("x")) for row in rows if row.get(column)]
            found[column] = f"{math.exp(sum(map(math.log, known)) / len(known)):.2f}x"
    return {**found, "what": "geometric mean"}


def main() -> None:
    """Parses the command line, compares, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}; all by default")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-inductor", action="store_true", help="leave inductor out, which compiles for minutes")
    parser.add_argument("--cpu-time", action="store_true", help="count the process's own time: on a busy machine")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if unknown := [name for name in options.models if name not in MODELS]:
        parser.error(f"there is no model {unknown[0]}: {', '.join(MODELS)}")
    rows = [row for name in options.models or MODELS for row in measure(name, options)]
    columns = {column: "" for row in rows for column in row}
    rows = [{**columns, **row} for row in rows]
    about = versions(["rlx-mlir", "torch", "transformers", "numpy"])
    report(f"milliseconds of a call, medians of {options.rounds} rounds", [*rows, mean_row(rows)], about, options.json)


if __name__ == "__main__":
    main()
