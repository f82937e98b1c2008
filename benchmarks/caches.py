# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What types of cached keys and values cost in accuracy, take in memory, and give in speed.

    python benchmarks/caches.py --accuracy smollm2 gemma3
    python benchmarks/caches.py --accuracy smollm2 --texts docs/architecture.md --context 1024
    python benchmarks/caches.py --decode smollm2 --context 2048 --rounds 7 --threads 1
    python benchmarks/caches.py --attention 32x8x64 32x8x128 --context 8192 --threads 1 2

Accuracy: the mean and the largest KL divergence from the model with caches of f32, and how often both find the same
token likeliest, by `exact` activations, over texts of prose, code and chats (`test/python/data/texts.json`), or over
files of text, in windows of the context. Speed: tokens per second of decoding behind a prompt as long as the context,
or the time of one attention of a single query, heads x key heads x head size, whose keys fill the context; all types
in turns. Ratios are beside f16.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from harness import Series, interleave, report, seconds_per_call, versions

import rlx_mlir as rlx
from rlx_mlir.measure.models import Ours, Setting
from rlx_mlir.models.caches import CacheType, bytes_per_token, kinds

TEXTS = Path(__file__).parents[1] / "test" / "python" / "data" / "texts.json"
TYPES = ("f32", "f16", "bf16", "q8_0", "q8_0/q4_0", "q4_0")


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Of all tokens, at each position."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True, dtype=np.float64)))


def accuracy(path: str, types: Sequence[str], texts: Sequence[str], context: int) -> list[dict[str, object]]:
    """Rows of the table: of one model, by type."""

    def load(kv_dtype: str) -> rlx.Model:
        return rlx.load_model(path, activations="exact", kv_dtype=kv_dtype, context=context)

    exact, models = load("f32"), {kv_dtype: load(kv_dtype) for kv_dtype in types}
    divergences: dict[str, list[np.ndarray]] = {kv_dtype: [] for kv_dtype in types}
    same: dict[str, list[np.ndarray]] = {kv_dtype: [] for kv_dtype in types}
    for text in texts:
        ids = exact.tokenize(text)
        for start in range(0, len(ids), context):
            part = ids[start : start + context]
            wanted = log_probabilities(exact.logits(part))
            for kv_dtype, model in models.items():
                found = log_probabilities(model.logits(part))
                divergences[kv_dtype].append((np.exp(wanted) * (wanted - found)).sum(axis=-1))
                same[kv_dtype].append(wanted.argmax(axis=-1) == found.argmax(axis=-1))
    rows: list[dict[str, object]] = []
    for kv_dtype, model in models.items():
        at = np.concatenate(divergences[kv_dtype])
        row: dict[str, object] = {"model": Path(path).name, "cache": kv_dtype, "tokens": len(at)}
        row |= {"mean KL": f"{at.mean():.1e}", "largest KL": f"{at.max():.1e}"}
        row |= {"same likeliest": f"{np.concatenate(same[kv_dtype]).mean():.2%}"}
        rows.append(row | {"bytes a token": bytes_per_token(model.config)})
    return rows


def decode(path: str, types: Sequence[str], context: int, rounds: int, threads: int) -> list[dict[str, object]]:
    """Rows of the table: tokens per second of decoding, by type."""
    steps = 16
    setting = Setting(path, threads, context + steps + 8)
    models = {kv_dtype: Ours(setting, "int8", kv_dtype=kv_dtype) for kv_dtype in types}
    ids = [int(token) for token in np.random.default_rng(0).integers(300, 20000, context)]
    rates: dict[str, list[float]] = {kv_dtype: [] for kv_dtype in types}
    for number in range(rounds + 1):
        for kv_dtype, model in models.items():
            rate = model.decode(ids, steps)
            if number:  # the first one processes the prompt
                rates[kv_dtype].append(rate)
    series = {kv_dtype: Series(own) for kv_dtype, own in rates.items()}
    about = {"model": Path(path).name, "threads": threads, "context": context}
    return [
        about | {"cache": name, "tok/s": own.median, "spread": f"{own.spread:.0%}", "of f16's speed": ratio}
        for name, own in series.items()
        for ratio in [f"{own.median / series['f16'].median:.2f}x" if "f16" in series else ""]
    ]


def attention(
    text: str, types: Sequence[str], context: int, rounds: int, threads: int, queries: int
) -> list[dict[str, object]]:
    """Rows of the table: microseconds of one attention, by type."""
    heads, kv_heads, size = map(int, text.split("x"))
    rng = np.random.default_rng(0)
    numbers = [rng.standard_normal((1, context, kv_heads * size), np.float32) for _ in "kv"]

    def call(kv_dtype: str) -> tuple[Callable[[], object], int]:
        m = rlx.GraphModule.hir("attention")
        own = [CacheType(kind, kv_heads * size) for kind in kinds(kv_dtype)]
        q = m.input("q", [1, queries, heads * size])
        k, v = (m.input(name, [1, context, type.width], type.element) for name, type in zip("kv", own, strict=True))
        out = m.attention(
            *(q, k, v),
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=size,
            mask_kind="causal",
            k_scheme=own[0].scheme,
            v_scheme=own[1].scheme,
        )
        m.set_outputs({"out": out})
        executable = rlx.compile(m, threads=threads)
        inputs = {"q": rng.standard_normal((1, queries, heads * size), np.float32)}
        for name, type, x in zip("kv", own, numbers, strict=True):
            inputs[name] = executable.zeros((1, context, type.width), type.dtype)
            inputs[name][0] = type.stored(x[0])
        result = np.empty((1, queries, heads * size), np.float32)
        return executable.bind(inputs, outputs={"out": result}, donate=()), sum(type.nbytes for type in own)

    calls = {kv_dtype: call(kv_dtype) for kv_dtype in types}
    series = interleave({name: seconds_per_call(run, 0.02) for name, (run, _) in calls.items()}, rounds)
    rows = []
    for name, own in series.items():
        row: dict[str, object] = {"attention": text, "queries": queries, "keys": context, "threads": threads}
        row |= {"cache": name, "us": own.median * 1e6, "spread": f"{own.spread:.0%}"}
        row |= {"GB/s": context * calls[name][1] / own.median * 1e-9}
        rows.append(row | ({"of f16's speed": f"{series['f16'].median / own.median:.2f}x"} if "f16" in series else {}))
    return rows


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accuracy", nargs="+", default=[], metavar="MODEL", help="models, files or known names")
    parser.add_argument("--decode", nargs="+", default=[], metavar="MODEL", help="models whose decoding is timed")
    parser.add_argument("--attention", nargs="+", default=[], metavar="HxKxD", help="sizes of attention")
    parser.add_argument("--types", nargs="+", default=TYPES, help="types of caches")
    parser.add_argument("--texts", nargs="+", type=Path, help="files of text, for accuracy")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--queries", type=int, default=1, help="of an attention")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", nargs="+", type=int, default=[os.cpu_count() or 1])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    if given.texts:
        texts = [path.read_text(encoding="utf-8") for path in given.texts]
    else:
        texts = json.loads(TEXTS.read_text(encoding="utf-8"))
    rows = [row for path in given.accuracy for row in accuracy(path, given.types, texts, given.context)]
    for threads in given.threads:
        for path in given.decode:
            rows += decode(path, given.types, given.context, given.rounds, threads)
        for text in given.attention:
            rows += attention(text, given.types, given.context, given.rounds, threads, given.queries)
    report("caches", rows, versions(["rlx-mlir", "numpy"]), given.json)


if __name__ == "__main__":
    main()
