# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers that follow from a seed, tokens that are drawn by them, and chains of steps that are data."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_mlir import GraphModule, compile, interpret
from rlx_mlir.errors import BuildError

#: The first words of streams, as the generator's definition has them.
STREAMS = {
    0: "ab45d93f 7d18eb7f 4ba0ff59 6af5bcc1 8fedb70a 67ff8a25",
    42: "6f7f8f0f 3aba8be4 e86385de 11f82253 3182283f 2953043f",
    0xDEADBEEF: "e521d285 1257b335 4b20321f d9249ec2 05d80045 b9e82140",
}


def words(seed: int, count: int) -> list[int]:
    """Philox, word by word."""
    found: list[int] = []
    for block in range(-(-count // 4)):
        s, k = [block, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
        for _ in range(10):
            p, q = 0xD2561A75 * s[0], 0xCD9E8D57 * s[2]
            s = [(q >> 32) ^ s[1] ^ k[0], q & 0xFFFFFFFF, (p >> 32) ^ s[3] ^ k[1], p & 0xFFFFFFFF]
            k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
        found += s
    return found[:count]


def uniform(seed: int, count: int) -> np.ndarray:
    return np.array([(word >> 8) * 2.0**-24 for word in words(seed, count)], np.float32)


@pytest.mark.parametrize("seed", [*STREAMS, (1 << 64) - 1])
def test_uniform(seed):
    if seed in STREAMS:
        assert [f"{word:08x}" for word in words(seed, 6)] == STREAMS[seed].split()
    m = GraphModule.mir("m")
    m.set_outputs({"u": m.uniform(m.input("x", [2, "n"]), 1, seed=seed)})
    executable = compile(m)
    for count in (0, 1, 6, 33):
        x = np.zeros((2, count), np.float32)
        np.testing.assert_array_equal(interpret(m, {"x": x})["u"], uniform(seed, count))
        np.testing.assert_array_equal(executable.run({"x": x})["u"], uniform(seed, count))


def drawn(logits: np.ndarray, top_k: int, top_p: float, temperature: float, seed: int) -> list[int]:
    """The token of each row, as the definition goes."""
    found = []
    for row, draw in zip(logits, uniform(seed or 0xDEADBEEF, len(logits)), strict=True):
        z = row / np.float32(max(temperature, 1e-6))
        if 0 < top_k < len(z):
            z = np.where(z >= np.sort(z)[-top_k], z, -np.inf)
        p = np.exp(z - z.max())
        p = p / p.sum()
        if top_p < 1:
            order = np.argsort(-p, kind="stable")
            kept = int(np.searchsorted(np.cumsum(p[order]), np.float32(top_p))) + 1
            chosen = np.zeros_like(p)
            chosen[order[:kept]] = p[order[:kept]]
            p = chosen / chosen.sum()
        reached = np.nonzero(draw <= np.cumsum(p))[0]
        found.append(int(reached[0]) if len(reached) else len(p) - 1)
    return found


@pytest.mark.parametrize(
    ("top_k", "top_p", "temperature", "seed"),
    [(0, 1.0, 1.0, 0), (5, 1.0, 0.7, 1), (0, 0.6, 1.0, 2), (7, 0.5, 1.5, 3), (1, 1.0, 1.0, 4), (0, 0.0, 1.0, 5)],
)
def test_tokens(top_k, top_p, temperature, seed):
    m = GraphModule.mir("m")
    options = {"top_k": top_k, "top_p": top_p, "temperature": temperature, "seed": seed}
    m.set_outputs({"ids": m.sample_logits(m.input("x", ["n", 40]), **options)})
    executable = compile(m)
    for rows in (0, 1, 50):
        x = np.random.default_rng(rows).standard_normal((rows, 40)).astype(np.float32) * 2
        x[:, 3] = x[:, 9] if rows else x[:, 3]  # ties
        expected = drawn(x, top_k, top_p, temperature, seed)
        assert interpret(m, {"x": x})["ids"].tolist() == expected
        assert executable.run({"x": x})["ids"].tolist() == expected


def test_one_row():
    m = GraphModule.mir("m")
    ids = m.sample_logits(m.input("x", [8], "bf16"), top_k=1)
    assert ids.shape == ()
    m.set_outputs({"ids": ids})
    x = np.arange(8, dtype=np.float32)
    assert compile(m).run({"x": x.astype(m.value("x").dtype)})["ids"] == 7


def test_arguments():
    m = GraphModule.mir("m")
    x = m.input("x", ["n", 8])
    for options, message in (
        ({"top_k": -1}, "'top_k' isn't negative"),
        ({"top_p": 1.5}, "'top_p' is from 0 to 1"),
        ({"temperature": -1.0}, "'temperature' isn't negative"),
        ({"seed": 1 << 64}, "'seed' is a whole number from 0 to"),
    ):
        with pytest.raises(BuildError, match=message):
            m.sample_logits(x, **options)
    with pytest.raises(BuildError, match="with a known V"):
        m.sample_logits(m.input("y", [2, "v"]))


# -- chains ------------------------------------------------------------------------------------------------------------


def test_chains():
    m = GraphModule.mir("m")
    x, y = m.input("x", ["n", 4]), m.input("y", [4])
    steps = [
        ("add", "i0", "i1"),
        ("silu", "s0"),
        ("lt", "s0", "i1"),
        ("where", "s2", "s1", "i0"),
        ("cast", "f64", "s3"),
    ]
    m.set_outputs({"z": m.elementwise_region([x, y], steps, name="chain")})
    assert {node.name for node in m} == {"add", "silu", "compare", "where", "chain"}
    a, b = (np.random.default_rng(i).standard_normal(s).astype(np.float32) for i, s in enumerate([(3, 4), (4,)]))
    total = a + b
    expected = np.where(total < b, total / (1 + np.exp(-total)), a)
    found = compile(m).run({"x": a, "y": b})["z"]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "has a step at least"),
        ([("ad", "i0", "i0")], r"step 0 of 'elementwise_region' is a word and its operands, but got \('ad'"),
        ([("add", "i0")], "is a word and its operands"),
        (["add"], "is a word and its operands, but got 'add'"),
        ([("neg", "i1")], "reads an input, i0 to i0, or an earlier step, but got 'i1'"),
        ([("neg", "s0")], "but got 's0'"),
        ([("neg", "i0"), ("add", "s0", "s1")], "step 1 .* but got 's1'"),
    ],
)
def test_chains_that_are_wrong(steps, message):
    m = GraphModule.mir("m")
    with pytest.raises(BuildError, match=message):
        m.elementwise_region([m.input("x", [4])], steps)
