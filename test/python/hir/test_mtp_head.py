# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The draft head of Qwen3.5 against a model of it in plain numpy, in every way to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from compile_harness import DTYPES, Ways

from rlx_mlir import GraphModule, Value, formats
from rlx_mlir.errors import BuildError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Config:
    """Sizes of a head, and how its operands are given.

    Attributes:
        packed: block format of a weight, by its name.
        betas: names of the norms that have one.
        transposed: whether dense weights are [N, K].
    """

    vocabulary: int = 32
    embedding: int = 16
    hidden: int = 32
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 4
    n_rot: int | None = 4
    scores: int = 32
    eps: float = 1e-6
    style: str = "half"
    transposed: bool = False
    packed: Mapping[str, str] | None = None
    betas: tuple[str, ...] = ("hnorm", "enorm", "attn_norm", "q_norm", "k_norm", "post_norm", "head_norm")
    index: str = "f32"
    dtype: str = "f32"

    @property
    def weights(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of each weight."""
        e, f, width, kv = self.embedding, self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "eh_w": (2 * e, e),
            "q_gate_w": (e, 2 * width),
            "k_w": (e, kv),
            "v_w": (e, kv),
            "o_w": (width, e),
            "gate_w": (e, f),
            "up_w": (e, f),
            "down_w": (f, e),
            "lm_head_w": (e, self.scores),
        }

    @property
    def norms(self) -> dict[str, int]:
        """Width of each norm."""
        wide = dict.fromkeys(("hnorm", "enorm", "attn_norm", "post_norm", "head_norm"), self.embedding)
        return wide | dict.fromkeys(("q_norm", "k_norm"), self.head_dim)


#: The configuration of the published smoke test, and others.
PUBLISHED = Config()
CONFIGS = {
    "published": PUBLISHED,
    "part of the head turns": Config(19, 24, 40, 6, 2, 8, 4, 11, betas=()),
    "one kv head": Config(21, 12, 20, 5, 1, 6, 2, 7, eps=0.25, betas=("q_norm", "head_norm"), transposed=True),
    "as many kv heads": Config(9, 8, 16, 3, 3, 4, None, 5, style="interleaved", index="i32"),
    "packed": Config(
        40,
        32,
        64,
        4,
        2,
        8,
        8,
        48,
        packed={
            "embed_w": "q4_1",
            "q_gate_w": "q8_0",
            "v_w": "q4_0",
            "o_w": "q4_1",
            "down_w": "q5_1",
            "lm_head_w": "q4_1",
        },
        index="i64",
    ),
    "all packed": Config(
        40, 32, 32, 4, 2, 8, 6, 48, packed=dict.fromkeys(("embed_w", *PUBLISHED.weights), "q8_0"), betas=()
    ),
}
POSITIONS = 16


def build(config: Config, batch: int | str, tokens: int | str) -> GraphModule:
    """A module of one head."""
    m = GraphModule.hir("mtp")
    packed = config.packed or {}

    def weight(name: str, inputs: int, outputs: int) -> Value:
        if name in packed:
            return m.param(name, [outputs, inputs], packed=packed[name])
        shape = [outputs, inputs] if config.transposed or name == "embed_w" else [inputs, outputs]
        return m.param(name, shape, config.dtype)

    operands = {name: weight(name, *sizes) for name, sizes in config.weights.items()}
    operands["embed_w"] = weight("embed_w", config.embedding, config.vocabulary)
    for name, width in config.norms.items():
        operands[f"{name}_w"] = m.param(f"{name}_w", [width], config.dtype)
        if name in config.betas:
            operands[f"{name}_b"] = m.param(f"{name}_b", [width], config.dtype)
    tables = {name: m.param(name, [POSITIONS, config.head_dim // 2]) for name in ("cos", "sin")}
    scores = m.qwen35_mtp_head(
        m.input("h_pre_norm", [batch, tokens, config.embedding], config.dtype),
        input_ids=m.input("input_ids", [batch, tokens], config.index),
        last_token_idx=m.input("last_token_idx", [batch], config.index),
        **tables,
        **operands,
        num_heads=config.heads,
        num_kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        n_rot=config.n_rot,
        eps=config.eps,
        style=config.style,
        transpose_weight=config.transposed,
    )
    assert scores.shape == (batch, 1, config.scores)
    m.set_outputs({"scores": scores})
    return m


def parameters(config: Config, rng: np.random.Generator) -> tuple[dict[str, Array], dict[str, Array]]:
    """(what is bound, the same with weights decoded, as f64 [inputs, outputs])."""
    dtype = DTYPES[config.dtype]
    bound: dict[str, Array] = {}
    plain: dict[str, Array] = {}
    every = {**config.weights, "embed_w": (config.embedding, config.vocabulary)}
    for name, (inputs, outputs) in every.items():
        values = (rng.standard_normal((outputs, inputs)) * (1 if name == "embed_w" else inputs**-0.5)).astype(
            np.float32
        )
        scheme = (config.packed or {}).get(name)
        if scheme is not None:
            bound[name] = formats.encode(scheme, values)
            plain[name] = formats.decode(scheme, bound[name], inputs).astype(np.float64).T
            continue
        bound[name] = values.astype(dtype)
        plain[name] = bound[name].astype(np.float64).T
        if not config.transposed and name != "embed_w":
            bound[name] = np.ascontiguousarray(bound[name].T)
    for name, width in config.norms.items():
        bound[f"{name}_w"] = rng.uniform(0.5, 1.5, width).astype(dtype)
        if name in config.betas:
            bound[f"{name}_b"] = (rng.standard_normal(width) * 0.2).astype(dtype)
    angle = np.arange(POSITIONS)[:, None] * 1e4 ** (-np.arange(config.head_dim // 2) * 2 / config.head_dim)
    bound |= {"cos": np.cos(angle).astype(np.float32), "sin": np.sin(angle).astype(np.float32)}
    rest = {name: value.astype(np.float64) for name, value in bound.items() if name not in plain}
    return bound, plain | rest


def inputs_of(config: Config, rng: np.random.Generator, last: list[int], tokens: int) -> dict[str, Array]:
    """Hidden states, tokens, and the last token of each item."""
    index = DTYPES[config.index]
    return {
        "h_pre_norm": rng.standard_normal((len(last), tokens, config.embedding)).astype(DTYPES[config.dtype]),
        "input_ids": rng.integers(0, config.vocabulary, (len(last), tokens)).astype(index),
        "last_token_idx": np.array(last, index),
    }


def model(config: Config, p: Mapping[str, Array], values: Mapping[str, Array]) -> Array:
    """The head in f64, one batch item, one head and one query at a time: [B, 1, V]."""
    depth, half = config.head_dim, (config.n_rot or config.head_dim) // 2
    first, second = np.arange(half), np.arange(half, 2 * half)
    if config.style == "interleaved":
        first, second = np.arange(0, 2 * half, 2), np.arange(1, 2 * half, 2)

    def norm(x: Array, name: str) -> Array:
        scaled = x / np.sqrt(np.mean(x**2, -1, keepdims=True) + config.eps) * p[f"{name}_w"]
        return scaled + p.get(f"{name}_b", 0.0)

    def turn(x: Array, position: int) -> Array:
        y, c, s = x.copy(), p["cos"][position, :half], p["sin"][position, :half]
        y[first], y[second] = x[first] * c - x[second] * s, x[second] * c + x[first] * s
        return y

    def sigmoid(x: Array) -> Array:
        return 1 / (1 + np.exp(-x))

    result = []
    for hidden, ids, last in zip(values["h_pre_norm"], values["input_ids"], values["last_token_idx"], strict=True):
        embedded = p["embed_w"].T[ids.astype(int)]
        joined = np.concatenate([norm(embedded, "enorm"), norm(hidden.astype(np.float64), "hnorm")], -1)
        x = joined @ p["eh_w"]
        n = norm(x, "attn_norm")
        attended = np.zeros((len(x), config.heads * depth))
        gated, keys, values_ = n @ p["q_gate_w"], n @ p["k_w"], n @ p["v_w"]
        for head in range(config.heads):
            shared = head // (config.heads // config.kv_heads)
            at, kv = slice(2 * head * depth, (2 * head + 1) * depth), slice(shared * depth, (shared + 1) * depth)
            gate = gated[:, (2 * head + 1) * depth : (2 * head + 2) * depth]
            turned = [turn(row, i) for i, row in enumerate(norm(keys[:, kv], "k_norm"))]
            for i, row in enumerate(norm(gated[:, at], "q_norm")):
                scores = np.array([turn(row, i) @ key for key in turned[: i + 1]]) / np.sqrt(depth)
                weights = np.exp(scores - scores.max())
                mixed = weights @ values_[: i + 1, kv] / weights.sum()
                attended[i, head * depth : (head + 1) * depth] = mixed * sigmoid(gate[i])
        h = x + attended @ p["o_w"]
        m = norm(h, "post_norm")
        gate = m @ p["gate_w"]
        h = h + (gate * sigmoid(gate) * (m @ p["up_w"])) @ p["down_w"]
        result.append(norm(h[[int(last)]], "head_norm") @ p["lm_head_w"])
    return np.stack(result)


#: Both styles, all types of indices with the others of this file, dense and packed weights; others are slow.
QUICK = ("as many kv heads", "packed")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in CONFIGS]
)
@pytest.mark.quick(3)
def test_every_way_to_run(name):
    """One executable for any batch and any sequence; each item has a last token of its own."""
    config = CONFIGS[name]
    rng = np.random.default_rng(len(name))
    bound, plain = parameters(config, rng)
    ways = Ways(build(config, "batch", "seq"))
    ways.set_params(bound)
    for last, tokens in (([0], 1), ([4], 5), ([2, 0, 6], 7), ([0, 0, 0], 1), ([1, 5, 3], 6)):
        values = inputs_of(config, rng, last, tokens)
        want = model(config, plain, values)
        for way, found in ways.run(values).items():
            assert found["scores"].dtype == np.float32
            np.testing.assert_allclose(found["scores"], want, rtol=2e-4, atol=2e-4, err_msg=f"{way} {last} {tokens}")


@pytest.mark.parametrize(
    ("batch", "fixed"),
    [
        pytest.param(batch, fixed, marks=[pytest.mark.slow] * ((batch, fixed) != (3, "both")))
        for batch in (1, 3)
        for fixed in ("both", "batch", "tokens")
    ],
)
@pytest.mark.quick(3)
def test_static_sizes(batch, fixed):
    config = PUBLISHED
    rng = np.random.default_rng(batch)
    bound, plain = parameters(config, rng)
    values = inputs_of(config, rng, [3, 0, 2][:batch], 4)
    want = model(config, plain, values)
    ways = Ways(build(config, "batch" if fixed == "tokens" else batch, "seq" if fixed == "batch" else 4))
    ways.set_params(bound)
    for way, found in ways.run(values).items():
        np.testing.assert_allclose(found["scores"], want, rtol=2e-4, atol=2e-4, err_msg=way)


@pytest.mark.parametrize(
    ("packed", "dtype"),
    [
        pytest.param(packed, dtype, marks=[pytest.mark.slow] * ((packed, dtype) != (True, "bf16")))
        for packed in (False, True)
        for dtype in ("bf16", "f16", "f64")
    ],
)
def test_element_types(packed, dtype):
    """Close to the model in f64; packed rows are decoded to f32 and rounded."""
    config = replace(PUBLISHED, dtype=dtype, embedding=32, heads=4, head_dim=8, n_rot=4)
    if packed:
        config = replace(config, packed={"embed_w": "q8_0", "k_w": "q8_0", "lm_head_w": "q8_0"})
    rng = np.random.default_rng(7)
    bound, plain = parameters(config, rng)
    values = inputs_of(config, rng, [2, 4], 5)
    want = model(config, plain, values)
    ways = Ways(build(config, "batch", "seq"))
    ways.set_params(bound)
    tolerance = {"bf16": 6e-2, "f16": 8e-3, "f64": 1e-5 if packed else 1e-12}[dtype]
    for way, found in ways.run(values).items():
        assert found["scores"].dtype == DTYPES[dtype]
        error = np.abs(found["scores"].astype(np.float64) - want).max()
        assert error <= tolerance * np.abs(want).max(), (way, error)


def test_scores_are_finite_for_indices_out_of_range():
    """Tokens and rows outside are clamped to the ends."""
    config = PUBLISHED
    rng = np.random.default_rng(3)
    bound, plain = parameters(config, rng)
    values = inputs_of(config, rng, [-3, 99], 4)
    values["input_ids"][:] = [[-1, 0, 40, 31]] * 2
    inside = {**values, "last_token_idx": np.array([0, 3]), "input_ids": np.array([[0, 0, 31, 31]] * 2)}
    ways = Ways(build(config, 2, "seq"))
    ways.set_params(bound)
    for found in ways.run(values).values():
        np.testing.assert_allclose(found["scores"], model(config, plain, inside), rtol=2e-4, atol=2e-4)


def test_what_it_lowers_to():
    """Grouped heads without repetition: one attention; the last tokens by one gather of a row each."""
    for policy in ("direct", "fusable"):
        lowered = build(PUBLISHED, "batch", "seq").with_fusion_policy(policy).lower()
        ops = [node.op.removeprefix("mir.") for node in lowered.nodes()]
        assert {node.name for node in lowered.nodes()} == {"qwen35_mtp_head"}
        assert {op: ops.count(op) for op in sorted(set(ops))} == {
            "add": 2,
            "attention": 1,
            "concat": 1,
            "gather": 2,
            "matmul": 9,
            "mul": 2,
            "narrow": 2,
            "reshape": 6,
            "rms_norm": 7,
            "rope": 2,
            "sigmoid": 1,
            "silu": 1,
        }


def test_the_builder_names_the_rule_and_the_line():
    with pytest.raises(BuildError, match=r"test_mtp_head\.py:\d+:.*'n_rot' of at most 'head_dim', 4, but got 6"):
        build(replace(PUBLISHED, n_rot=6), 1, 4)
    with pytest.raises(BuildError, match=r"test_mtp_head\.py:\d+:.*'num_heads' to be a multiple of 'num_kv_heads', 3"):
        build(replace(PUBLISHED, kv_heads=3), 1, 4)
