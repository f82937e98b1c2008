# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of the domain com.microsoft, which ONNX's evaluator doesn't have: against numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto
from onnx_models import Builder

import rlx_mlir as rlx
from rlx_mlir.errors import OnnxUnsupportedError

DOMAIN = "com.microsoft"
B, S, H, HEADS = 2, 5, 32, 4
D = H // HEADS
RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def run(
    op: str,
    inputs: dict[str, np.ndarray],
    operands: list[Any],
    outputs: int = 1,
    shapes: dict[str, list[Any]] | None = None,
    types: Any = (),
    **attributes: Any,
) -> list[np.ndarray]:
    """The results of one node."""
    b = Builder()
    names = b.node(op, *operands, outputs=outputs, domain=DOMAIN, **attributes)
    names = [names] if isinstance(names, str) else names
    kinds = types or [TensorProto.FLOAT] * len(names)
    given = {name: (array.dtype, (shapes or {}).get(name, array.shape)) for name, array in inputs.items()}
    model = rlx.from_onnx(b.model(given, names, 17, [DOMAIN], kinds))
    found = model.compile(threads=1).run(inputs)
    return [found[name] for name in names]


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = 2e-5) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, tolerance, tolerance)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def split(x: np.ndarray, heads: int = HEADS) -> np.ndarray:
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(0, 2, 1, 3)


def joined(x: np.ndarray) -> np.ndarray:
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: Any = 0.0) -> np.ndarray:
    groups = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, groups, 1) for x in (k, v))
    return joined(softmax(q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[3]) + bias) @ v)


def causal(queries: int, keys: int) -> np.ndarray:
    return np.where(np.arange(keys) <= np.arange(queries)[:, None] + keys - queries, 0.0, -np.inf)


def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-12) * gamma + beta


def rms_norm(x: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-12) * gamma


# Elements and norms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["Gelu", "BiasGelu", "FastGelu", "QuickGelu"])
def test_gelu(op: str) -> None:
    x, bias = normal(B, S, H), normal(H)
    biased = op in ("BiasGelu", "FastGelu")
    (found,) = run(op, {"x": x}, ["x", bias] if biased else ["x"])
    y = x + bias if biased else x
    if op == "QuickGelu":
        expected = y / (1 + np.exp(-1.702 * y))
    elif op == "FastGelu":
        expected = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
    else:
        expected = 0.5 * y * (1 + np.vectorize(math.erf)(y / math.sqrt(2)))
    close(found, expected)


@pytest.mark.parametrize("simple", [False, True])
def test_skip_norms(simple: bool) -> None:
    x, y, gamma, beta, bias = normal(B, S, H), normal(B, S, H), normal(H), normal(H), normal(H)
    shapes = {name: ["b", "s", H] for name in "xy"}
    total = x + y + bias
    b = Builder()
    if simple:
        names = b.node("SkipSimplifiedLayerNormalization", "x", "y", gamma, bias, outputs=4, domain=DOMAIN)
    else:
        names = b.node("SkipLayerNormalization", "x", "y", gamma, beta, bias, outputs=4, domain=DOMAIN)
    wanted = [names[0], names[2], names[3]]
    model = rlx.from_onnx(b.model({name: (np.float32, shape) for name, shape in shapes.items()}, wanted, 17, [DOMAIN]))
    normed, inverse, sums = model.compile(threads=1).run({"x": x, "y": y}).values()
    close(normed, rms_norm(total, gamma) if simple else layer_norm(total, gamma, beta))
    close(sums, total)
    squares = (total.astype(np.float64) ** 2).mean(-1) if simple else total.astype(np.float64).var(-1)
    close(inverse, 1 / np.sqrt(squares[..., None] + 1e-12))


@pytest.mark.parametrize("segments", [False, True])
def test_embed_layer_norm(segments: bool) -> None:
    ids = RANDOM.integers(0, 20, (B, S)).astype(np.int32)
    inputs = {"ids": ids, "mask": (ids > 3).astype(np.int32)} | ({"types": ids % 2} if segments else {})
    words, places, types, gamma, beta = normal(20, H), normal(16, H), normal(2, H), normal(H), normal(H)
    kinds = [TensorProto.FLOAT, TensorProto.INT32]
    operands = ["ids", "types" if segments else "", words, places, types, gamma, beta, "mask"]
    shapes = {name: ["b", "s"] for name in inputs}
    normed, counts = run("EmbedLayerNormalization", inputs, operands, 2, shapes, types=kinds)
    close(normed, layer_norm(words[ids] + places[:S] + types[ids % 2 if segments else 0], gamma, beta))
    np.testing.assert_array_equal(counts, inputs["mask"].sum(1))


# Attention ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", ["none", "keys", "lengths", "pairs", "causal", "keys, causal", "bias"])
@pytest.mark.quick(4)
def test_attention_of_one_weight(mask: str) -> None:
    x, weight, bias = normal(B, S, H), normal(H, 3 * H) / 4, normal(3 * H)
    inputs, operands, hidden = {"x": x}, ["x", weight, bias], np.zeros((B, 1, S, S))
    shapes: dict[str, list[Any]] = {"x": ["b", "s", H]}
    keys = np.ones((B, S), np.int32)
    keys[0, 3:] = 0
    if mask.startswith("keys"):
        inputs["m"], shapes["m"] = keys, ["b", "s"]
        hidden = np.where(keys[:, None, None] == 0, -np.inf, 0) + hidden
    elif mask == "lengths":
        inputs["m"], shapes["m"] = keys.sum(1).astype(np.int32), ["b"]
        hidden = np.where(keys[:, None, None] == 0, -np.inf, 0) + hidden
    elif mask == "pairs":
        inputs["m"], shapes["m"] = np.tril(np.ones((B, S, S), np.int32)), ["b", "s", "s"]
        hidden = hidden + causal(S, S)
    elif mask == "bias":
        inputs["b"], shapes["b"] = normal(1, HEADS, S, S), [1, HEADS, "s", "s"]
        operands, hidden = [*operands, "", "", "b"], inputs["b"]
    operands = [*operands, "m"] if "m" in inputs else operands
    hidden = hidden + causal(S, S) if "causal" in mask else hidden
    (found,) = run("Attention", inputs, operands, 1, shapes, num_heads=HEADS, unidirectional=int("causal" in mask))
    close(found, attention(*(split(part) for part in np.split(x @ weight + bias, 3, -1)), hidden))


def test_attention_with_a_past() -> None:
    x, weight, past = normal(B, S, H), normal(H, 3 * H) / 4, normal(2, B, HEADS, 3, D)
    shapes = {"x": ["b", "s", H], "past": [2, "b", HEADS, "p", D]}
    operands = ["x", weight, "", "", "past"]
    y, present = run("Attention", {"x": x, "past": past}, operands, 2, shapes, num_heads=HEADS, unidirectional=1)
    q, k, v = (split(part) for part in np.split(x @ weight, 3, -1))
    k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    close(present, np.stack([k, v]))
    close(y, attention(q, k, v, causal(S, S + 3)))


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kinds", [(np.uint8, np.int8), (np.int8, np.uint8)])
def test_attention_of_bytes(kinds: tuple[Any, Any], zeros: bool) -> None:
    """The product is exact; with a past, a mask of keys, and scales of each column."""
    x, weight = (
        RANDOM.integers(20, 90, shape).astype(kind) for shape, kind in zip([(B, S, H), (H, 3 * H)], kinds, strict=True)
    )
    bias, past, scale = normal(3 * H), normal(2, B, HEADS, 3, D), np.float32(0.03)
    scales = np.abs(normal(3 * H)) / 99 + np.float32(1e-4)
    points = [np.array(61, kinds[0]), np.array(43, kinds[1])] if zeros else ["", ""]
    keys = np.ones((B, S + 3), np.int32)
    keys[0, 5:] = 0
    shapes = {"x": ["b", "s", H], "past": [2, "b", HEADS, "p", D], "m": ["b", "t"]}
    operands = ["x", weight, bias, scale, scales, "m", *points, "past"]
    given = {"x": x, "past": past, "m": keys}
    y, present = run("QAttention", given, operands, 2, shapes, num_heads=HEADS)
    less = [own.astype(np.int64) - (int(point) if zeros else 0) for own, point in zip((x, weight), points, strict=True)]
    joined_ = (less[0] @ less[1]).astype(np.float32) * (scale * scales) + bias
    q, k, v = (split(part) for part in np.split(joined_, 3, -1))
    k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    close(present, np.stack([k, v]))
    close(y, attention(q, k, v, np.where(keys[:, None, None] == 0, -np.inf, 0)))


@pytest.mark.parametrize("mask", ["none", "keys", "bias", "both", "past"])
@pytest.mark.quick(3)
def test_attention_of_three_operands(mask: str) -> None:
    keys = S if mask == "past" else 7
    inputs = {"q": normal(B, S, H), "k": normal(B, keys, H), "v": normal(B, keys, H)}
    operands: list[Any] = ["q", "k", "v", normal(3 * H)]
    q, k, v = (split(inputs[name] + part) for name, part in zip("qkv", np.split(operands[3], 3), strict=True))
    hidden: Any = 0.0
    held = np.ones((B, keys), np.int32)
    held[1, 4:] = 0
    if mask in ("keys", "both"):
        inputs["m"], hidden = held, np.where(held[:, None, None] == 0, -np.inf, 0.0)
    if mask in ("bias", "both"):
        inputs["b"] = normal(B, HEADS, S, keys)
        hidden = hidden + inputs["b"]
    operands += ["m" if "m" in inputs else "", "b" if "b" in inputs else ""]
    if mask == "past":
        inputs |= {"pk": normal(B, HEADS, 3, D), "pv": normal(B, HEADS, 3, D)}
        operands += ["pk", "pv"]
        k, v = np.concatenate([inputs["pk"], k], 2), np.concatenate([inputs["pv"], v], 2)
        hidden = causal(S, S + 3)
    found = run("MultiHeadAttention", inputs, operands, 3, num_heads=HEADS, unidirectional=int(mask == "past"))
    close(found[0], attention(q, k, v, hidden))
    close(found[1], k)
    close(found[2], v)


def turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, places: np.ndarray, interleaved: bool) -> np.ndarray:
    """Rotation of [B, heads, S, D] at places [B, S]."""
    c, s = (np.asarray(table)[places][:, None] for table in (cos, sin))
    half = cos.shape[1]
    y = x.copy()
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    )
    a, b = x[..., first], x[..., second]
    y[..., first], y[..., second] = a * c - b * s, b * c + a * s
    return y


@pytest.mark.parametrize(("interleaved", "width", "places"), [(0, D, "each"), (1, D, "first"), (0, D // 2, "first")])
def test_rotary_embedding(interleaved: int, width: int, places: str) -> None:
    x, cos, sin = normal(B, S, H), normal(16, width // 2), normal(16, width // 2)
    each = np.array([[3], [7]]) + np.arange(S)
    inputs = {"x": x, "p": each if places == "each" else np.array([3])}
    more = {"num_heads": HEADS, "rotary_embedding_dim": width} if width != D else {}
    (found,) = run("RotaryEmbedding", inputs, ["x", "p", cos, sin], interleaved=interleaved, **more)
    wanted = each if places == "each" else np.broadcast_to(3 + np.arange(S), (B, S))
    close(found, joined(turned(split(x), cos, sin, wanted, bool(interleaved))))


@pytest.mark.parametrize(
    ("new", "past", "lengths", "options"),
    [
        (1, 6, [7, 7], {}),
        (1, 6, [7, 4], {"do_rotary": 1}),
        (4, 0, [4, 4], {"do_rotary": 1, "rotary_interleaved": 1}),
        (3, 5, [8, 6], {"packed": True, "do_rotary": 1}),
        (1, 6, [7, 7], {"local_window_size": 3}),
    ],
)
def test_group_query_attention(new: int, past: int, lengths: list[int], options: dict[str, Any]) -> None:
    groups, total = 2, past + new
    q, k, v = normal(B, new, H), normal(B, new, groups * D), normal(B, new, groups * D)
    caches = [normal(B, groups, past, D) for _ in range(2)]
    cos, sin = normal(32, D // 2), normal(32, D // 2)
    inputs = {"pk": caches[0], "pv": caches[1], "n": np.array(lengths, np.int32) - 1, "t": np.array(total, np.int32)}
    packed = options.pop("packed", False)
    inputs |= {"q": np.concatenate([q, k, v], -1)} if packed else {"q": q, "k": k, "v": v}
    operands: list[Any] = ["q", *(["", ""] if packed else ["k", "v"]), "pk", "pv", "n", "t", cos, sin]
    attributes = {"num_heads": HEADS, "kv_num_heads": groups, **options}
    found, present, _ = run("GroupQueryAttention", inputs, operands, 3, **attributes)
    for item, length in enumerate(lengths):
        before = length - new
        parts = [split(x[item : item + 1], n) for x, n in ((q, HEADS), (k, groups), (v, groups))]
        if options.get("do_rotary"):
            places = before + np.arange(new)[None]
            parts[:2] = [turned(x, cos, sin, places, bool(options.get("rotary_interleaved"))) for x in parts[:2]]
        own = [np.concatenate([c[item : item + 1, :, :before], x], 2) for c, x in zip(caches, parts[1:], strict=True)]
        hidden = causal(new, length)
        if "local_window_size" in options:
            hidden[:, : length - options["local_window_size"]] = -np.inf
        close(found[item : item + 1], attention(parts[0], own[0], own[1], hidden))
        close(present[item : item + 1, :, :length], own[0])


# Weights of few bits --------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("points", ["none", "codes", "floats"])
@pytest.mark.quick(9)
def test_weights_of_few_bits(bits: int, block: int, points: str) -> None:
    k, n = 72, 12
    count, each = -(-k // block), 8 // bits
    codes = RANDOM.integers(0, 1 << bits, (n, count * block))
    stored = np.zeros((n, count * block // each), np.uint8)
    for i in range(each):
        stored |= (codes[:, i::each] << (bits * i)).astype(np.uint8)
    scales = np.abs(normal(n, count)) / 8
    zero = np.full((n, count), 1 << (bits - 1), np.float32)
    more: list[Any] = []
    if points == "floats":
        zero = np.abs(normal(n, count)) * 3
        more = [zero.reshape(-1)]
    elif points == "codes":
        zero = RANDOM.integers(0, 1 << bits, (n, count)).astype(np.float32)
        wide = np.zeros((n, -(-count // each) * each), np.int64)
        wide[:, :count] = zero
        more = [sum((wide[:, i::each] << (bits * i)) for i in range(each)).astype(np.uint8).reshape(-1)]
    x = normal(3, k)
    operands = ["x", stored.reshape(n, count, -1), scales.reshape(-1), *more]
    shapes = {"x": ["m", k]}
    (found,) = run("MatMulNBits", {"x": x}, operands, 1, shapes, K=k, N=n, bits=bits, block_size=block)
    weight = (codes - np.repeat(zero, block, 1)) * np.repeat(scales, block, 1)
    close(found, x @ weight[:, :k].T.astype(np.float32), 1e-4)


def test_what_contrib_operators_do_not_have_is_said() -> None:
    b = Builder()
    y = b.node("MatMulNBits", "x", "w", np.ones(4, np.float32), K=32, N=4, bits=4, block_size=32, domain=DOMAIN)
    model = b.model({"x": (np.float32, [2, 32]), "w": (np.uint8, [4, 1, 16])}, [y], 17, [DOMAIN])
    with pytest.raises(OnnxUnsupportedError, match="the codes of a weight, operand 1, must be known"):
        rlx.from_onnx(model)
