# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds a small decoder from blocks, gives it weights of numpy, and generates with a cache of keys and values.

One compiled module serves prompts and single tokens: the number of tokens is a symbol. The artefact that it writes is
all that a machine without MLIR and without this file needs; examples/deploy.py runs it there.

Usage:

    python examples/transformer.py                       generate, and compare with the definition of the blocks
    python examples/transformer.py --save decoder.rlx    also write the artefact, and decoder.npz with the weights
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import rlx_mlir as rlx

VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, FFN = 256, 64, 2, 4, 2, 16, 128
POSITIONS = 128


def build() -> rlx.GraphModule:
    """Tokens and caches in, the last token's logits and updated caches out."""
    m = rlx.GraphModule.hir("decoder")
    ids, pos = m.input("ids", ["batch", "seq"], "i32"), m.input("pos", ["batch"], "i32")
    embedding = m.param("embedding", [VOCAB, HIDDEN])
    cos, sin = m.param("cos", [POSITIONS, HEAD // 2]), m.param("sin", [POSITIONS, HEAD // 2])
    shapes = {
        "ln1_gamma": [HIDDEN],
        "q_w": [HIDDEN, HEADS * HEAD],
        "k_w": [HIDDEN, KV_HEADS * HEAD],
        "v_w": [HIDDEN, KV_HEADS * HEAD],
        "o_w": [HEADS * HEAD, HIDDEN],
        "ln2_gamma": [HIDDEN],
        "gate_w": [HIDDEN, FFN],
        "up_w": [HIDDEN, FFN],
        "down_w": [FFN, HIDDEN],
    }
    h, caches = embedding[ids], {}
    for layer in range(LAYERS):
        with m.scope(f"layer{layer}"):
            k, v = (m.input(f"{name}{layer}", ["batch", POSITIONS, KV_HEADS * HEAD]) for name in "kv")
            h, caches[f"k{layer}_out"], caches[f"v{layer}_out"] = m.llama_decoder_block(
                h,
                **{name: m.param(f"layer{layer}.{name}", shape) for name, shape in shapes.items()},
                cos=cos,
                sin=sin,
                pos=pos,
                k_cache=k,
                v_cache=v,
                num_heads=HEADS,
                num_kv_heads=KV_HEADS,
                head_dim=HEAD,
            )
    logits = m.linear(m.rms_norm(h, m.param("norm", [HIDDEN])), embedding, transpose_weight=True)
    m.set_outputs({"logits": logits, **caches})
    return m


def weights(params: tuple[object, ...]) -> dict[str, np.ndarray]:
    """Random weights, and tables of rotary position embedding."""
    rng = np.random.default_rng(0)
    angles = np.arange(POSITIONS)[:, None] * 10000.0 ** (-np.arange(HEAD // 2) / (HEAD // 2))
    found = {spec.name: rng.standard_normal(spec.shape, np.float32) / 8 for spec in params}
    return {**found, "cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}


def generate(executable: rlx.Executable, prompt: list[int], count: int) -> list[int]:
    """Continues a prompt by the most likely tokens; caches are updated in place."""
    shape = (1, POSITIONS, KV_HEADS * HEAD)
    caches = {spec.name: executable.zeros(shape) for spec in executable.inputs[2:]}
    ids, pos = np.array([prompt], np.int32), np.zeros(1, np.int32)
    logits = executable.run({"ids": ids, "pos": pos, **caches}, donate=list(caches))["logits"]
    found = [int(logits[0, -1].argmax())]
    # A bound call checks its arrays once: then it is repeated on what they hold.
    token, pos = np.array([found], np.int32), np.array([len(prompt)], np.int32)
    step = executable.bind({"ids": token, "pos": pos, **caches}, donate=list(caches))
    while len(found) < count:
        found.append(int(step()["logits"][0, -1].argmax()))
        token[0, 0] = found[-1]
        pos += 1
    return found


def main() -> None:
    """Generates by compiled code, and the same by the definition of the blocks without a cache."""
    parser = argparse.ArgumentParser(description="A small decoder from blocks.")
    parser.add_argument("--save", type=Path, help="file for the artefact; weights go beside it")
    save = parser.parse_args().save

    m = build()
    print(repr(m))
    executable = rlx.compile(m, maxima={"batch": 1, "seq": 32})
    print(executable)
    params = weights(executable.params)
    executable.set_params(params)
    prompt = [1, 2, 3]
    tokens = generate(executable, prompt, 8)
    print("compiled:   ", *tokens)

    empty = {spec.name: np.zeros((1, POSITIONS, KV_HEADS * HEAD), np.float32) for spec in executable.inputs[2:]}
    text = list(prompt)
    for _ in tokens:
        values = {"ids": np.array([text], np.int32), "pos": np.zeros(1, np.int32), **empty, **params}
        text.append(int(rlx.interpret(m, values)["logits"][0, -1].argmax()))
    print("interpreted:", *text[len(prompt) :])

    if save is not None:
        executable.artifact.save(save)
        np.savez(save.with_suffix(".npz"), **params)
        print(f"wrote {save}, {save.stat().st_size / 1e3:.0f} kB, and {save.with_suffix('.npz').name}")


if __name__ == "__main__":
    main()
