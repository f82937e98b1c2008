# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains two small networks from random weights, and draws how their losses fall.

- `mlp` tells the points of two spirals apart.
- `transformer` sorts digits: of "314159 = ", it continues with "113459". It is a decoder of two layers that sees
  nothing but such lines, and is asked for lines that it hasn't seen.

Usage:

    python examples/train.py mlp --steps 400
    python examples/train.py transformer --steps 1500 --plot losses.svg
    python examples/train.py transformer --steps 1500 --checkpoint sorter.safetensors     again: goes on from there
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import rlx_mlir as rlx
from rlx_mlir import optim
from rlx_mlir.training import Batches

Arrays = dict[str, np.ndarray]
F32 = np.float32

DIGITS, EQUALS, LENGTH = 10, 10, 6
WIDTH, LAYERS, HEADS, HEAD, FFN = 64, 2, 4, 16, 128


# -- two spirals -----------------------------------------------------------------------------------------------------


def mlp() -> tuple[rlx.GraphModule, Arrays, Arrays]:
    """The network, its weights, and its data."""
    m = rlx.GraphModule.hir("mlp")
    x, label = m.input("x", ["batch", 2]), m.input("label", ["batch"], "i32")
    shapes = {"w1": (2, 64), "b1": (64,), "w2": (64, 64), "b2": (64,), "w3": (64, 2), "b3": (2,)}
    p = {name: m.param(name, list(shape)) for name, shape in shapes.items()}
    hidden = m.silu(m.linear(x, p["w1"], p["b1"]))
    hidden = m.silu(m.linear(hidden, p["w2"], p["b2"]))
    logits = m.linear(hidden, p["w3"], p["b3"])
    m.set_outputs({"loss": m.mean(m.softmax_cross_entropy_with_logits(logits, label)), "logits": logits})

    rng = np.random.default_rng(0)
    label_of = rng.integers(0, 2, 2048).astype(np.int32)
    angle = rng.uniform(0.5, 2 * np.pi, 2048)
    radius = angle / 2 * np.where(label_of, 1, -1)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1) + rng.normal(0, 0.05, (2048, 2))
    return m, drawn(shapes, rng), {"x": points.astype(F32), "label": label_of}


# -- sorting digits --------------------------------------------------------------------------------------------------


def transformer() -> tuple[rlx.GraphModule, Arrays, Arrays]:
    """The network, its weights, and its data: each token, but the last one, with the one that follows."""
    m = rlx.GraphModule.hir("sorter")
    tokens, following = (m.input(name, ["batch", "seq"], "i32") for name in ("tokens", "following"))
    of_layer = {
        "ln1_gamma": (WIDTH,),
        **dict.fromkeys(("q_w", "k_w", "v_w", "o_w"), (WIDTH, HEADS * HEAD)),
        "ln2_gamma": (WIDTH,),
        **dict.fromkeys(("gate_w", "up_w"), (WIDTH, FFN)),
        "down_w": (FFN, WIDTH),
    }
    shapes = {"embedding": (EQUALS + 1, WIDTH), "gamma": (WIDTH,), "head": (WIDTH, EQUALS + 1)}
    shapes |= {f"{n}.{name}": shape for n in range(LAYERS) for name, shape in of_layer.items()}
    p = {name: m.param(name, list(shape)) for name, shape in shapes.items()}
    angles = np.arange(2 * LENGTH + 1)[:, None] / 100.0 ** (np.arange(HEAD // 2) / (HEAD // 2))
    cos, sin = m.constant(np.cos(angles).astype(F32)), m.constant(np.sin(angles).astype(F32))
    h = p["embedding"][tokens]
    for n in range(LAYERS):
        with m.scope(f"layer{n}"):
            own = {name: p[f"{n}.{name}"] for name in of_layer}
            h = m.llama_decoder_block(h, **own, cos=cos, sin=sin, num_heads=HEADS, num_kv_heads=HEADS, head_dim=HEAD)
    logits = m.linear(m.rms_norm(h, p["gamma"]), p["head"])
    # Only what comes after the sign is asked for: the digits before it are any.
    answers = m.reshape(logits[:, LENGTH:], [-1, EQUALS + 1])
    loss = m.softmax_cross_entropy_with_logits(answers, m.reshape(following[:, LENGTH:], [-1]))
    m.set_outputs({"loss": m.mean(loss), "logits": logits})

    rng = np.random.default_rng(0)
    digits = rng.integers(0, DIGITS, (8192, LENGTH))
    sign = np.full((8192, 1), EQUALS)
    lines = np.concatenate([digits, sign, np.sort(digits, 1)], 1).astype(np.int32)
    weights = drawn(shapes, rng)
    return m, weights, {"tokens": lines[:, :-1].copy(), "following": lines[:, 1:].copy()}


def drawn(shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator) -> Arrays:
    """Random weights: factors of norms are 1, biases 0, others keep the size of what goes through."""
    found = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            found[name] = np.full(shape, "gamma" in name, F32)
        else:
            found[name] = (rng.standard_normal(shape) * (1 / shape[0]) ** 0.5).astype(F32)
    return found


# -- training --------------------------------------------------------------------------------------------------------


def hits(module: rlx.GraphModule, weights: Arrays, held_out: Arrays) -> float:
    """The part of answers that are right, of entries that training hasn't seen."""
    evaluated = rlx.compile(module)
    evaluated.set_params(weights)
    logits = evaluated.run(held_out)["logits"]
    if "label" in held_out:
        return float((logits.argmax(-1) == held_out["label"]).mean())
    return float((logits[:, LENGTH:].argmax(-1) == held_out["following"][:, LENGTH:]).all(1).mean())


def plot(losses: list[float], title: str) -> str:
    """The losses as an SVG, on a logarithmic axis."""
    low, high = np.log10(min(losses)), np.log10(max(losses))
    span = max(high - low, 1e-9)
    x = 60 + 520 * np.arange(len(losses)) / max(len(losses) - 1, 1)
    y = 40 + 240 * (high - np.log10(losses)) / span
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    ticks = "".join(
        f'<text x="52" y="{40 + 240 * (high - power) / span + 4:.1f}" text-anchor="end">{10.0**power:.3g}</text>'
        for power in np.linspace(low, high, 5)
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="600" height="330" font-family="sans-serif" font-size="12">'
        f'<rect width="600" height="330" fill="white"/><text x="300" y="22" text-anchor="middle">{title}</text>{ticks}'
        f'<text x="320" y="312" text-anchor="middle">step, of {len(losses)}</text>'
        '<path d="M60 40V280H580" fill="none" stroke="#888"/>'
        f'<polyline points="{points}" fill="none" stroke="#0868ac" stroke-width="1.5"/></svg>\n'
    )


NETWORKS: dict[str, Callable[[], tuple[rlx.GraphModule, Arrays, Arrays]]] = {"mlp": mlp, "transformer": transformer}


def main() -> None:
    """Trains, prints losses and hits, and draws."""
    parser = argparse.ArgumentParser(description="Trains a small network from random weights.")
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=1e-2, help="the largest learning rate")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--checkpoint", type=Path, help="go on from this file where it is there; write it in the end")
    parser.add_argument("--plot", type=Path, help="an SVG of the losses")
    options = parser.parse_args()

    module, weights, data = NETWORKS[options.network]()
    count = min(512, len(next(iter(data.values()))) // 8)
    held_out, seen = (
        {name: array[part] for name, array in data.items()} for part in (slice(count), slice(count, None))
    )
    batches = Batches(seen, options.batch, seed=0)
    schedule = optim.cosine(options.rate, options.steps + 1, warmup=min(20, options.steps), last=options.rate / 100)
    trainer = rlx.Trainer(module, weights, optim.adamw(), schedule=schedule, clip_norm=1.0, threads=options.threads)
    if options.checkpoint is not None and options.checkpoint.exists():
        trainer.restore(options.checkpoint)
        print(f"goes on at step {trainer.steps}")
    losses = []
    while trainer.steps < options.steps:
        losses.append(float(trainer.step(batches.at(trainer.steps))["loss"]))
        if trainer.steps % max(1, options.steps // 10) == 0:
            print(f"step {trainer.steps:5}  loss {np.mean(losses[-20:]):.4f}")
    print(f"right of what it hasn't seen: {hits(module, trainer.params, held_out):.1%}")
    if options.checkpoint is not None:
        trainer.save(options.checkpoint)
    if options.plot is not None and losses:
        options.plot.write_text(plot(losses, f"loss of {options.network}"), encoding="utf-8")


if __name__ == "__main__":
    main()
