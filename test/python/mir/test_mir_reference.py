# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numpy references of MIR against independent formulas: loops over scalars, published values, NaN rules."""

from __future__ import annotations

import math
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx_mlir.semantics.blocks  # noqa: F401 - registers the meaning of blocks
from rlx_mlir import formats
from rlx_mlir.errors import InputError, UnsupportedError
from rlx_mlir.mir import REFERENCES, PackedWeight
from rlx_mlir.mir.dims import Size, broadcast, minimum
from rlx_mlir.mir.functions import of_arity

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float32), np.dtype(np.float16), BF16, np.dtype(np.float64)]
NAN, INF = math.nan, math.inf

by_dtype = pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)


def ref(name: str, *operands: Any, **attributes: Any) -> Any:
    return REFERENCES[f"mir.{name}"](*operands, **attributes)


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# ----------------------------------------------------------------------------------------------------------------------
# Element-wise
# ----------------------------------------------------------------------------------------------------------------------

UNARY = {
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_approx": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_slope": lambda x: (
        0.5 * (1 + math.erf(x / math.sqrt(2)))
        + (x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) if math.isfinite(x) else 0)
    ),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "relu": lambda x: x if x > 0 else 0.0,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
    "exp": math.exp,
    "erfc": math.erfc,
    "log": lambda x: math.log(x) if x > 0 else (-INF if x == 0 else NAN),
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else NAN,
    "rsqrt": lambda x: 1 / math.sqrt(x) if x > 0 else (INF if x == 0 else NAN),
    "neg": lambda x: -x,
    "abs": abs,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "atan": math.atan,
    "round": round,  # to even
}


def test_each_function_of_one_element_has_another_definition_here():
    assert UNARY.keys() == of_arity(1, "f32").keys()


@by_dtype
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    x = np.array([-3.0, -2.5, -1.25, -0.5, 0.0, 0.5, 0.75, 1.5, 2.5, 3.25], dtype)
    want = np.array([UNARY[name](float(v)) for v in x])
    got = ref(name, x)
    assert got.dtype == dtype
    # One rounding at the end: the result is the narrow number nearest to the exact one, but for the error of f32.
    tolerance = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 1e-6, "float64": 1e-14}[dtype.name] * 1.001
    np.testing.assert_allclose(
        got.astype(np.float64), want, rtol=tolerance, atol=1e-7 if dtype != np.float64 else 1e-15
    )


@pytest.mark.parametrize("name", UNARY)
def test_unary_gives_nan_for_nan(name):
    for dtype in FLOATS:
        assert np.isnan(ref(name, np.array([NAN], dtype)).astype(np.float32)).all()


def test_unary_at_infinities():
    x = np.array([INF, -INF], np.float32)
    assert ref("sigmoid", x).tolist() == [1, 0]
    assert ref("tanh", x).tolist() == [1, -1]
    assert ref("exp", x).tolist() == [INF, 0]
    assert ref("relu", x).tolist() == [INF, 0]
    assert np.isnan(ref("silu", x)[1])
    assert np.isnan(ref("sin", x)).all()


def test_max_and_min_propagate_nan():
    a, b = np.array([1, NAN, 2], np.float32), np.array([NAN, 1, 3], np.float32)
    np.testing.assert_array_equal(ref("max", a, b), [NAN, NAN, 3])
    np.testing.assert_array_equal(ref("min", a, b), [NAN, NAN, 2])


def test_narrow_arithmetic_rounds_once():
    a, b = np.array([1.0], np.float16), np.array([2.0**-11], np.float16)
    assert ref("add", a, b) == 1  # a tie, to even
    assert ref("mul", np.array([256.0], np.float16), np.array([256.0], np.float16)) == INF


def test_integers_wrap_around():
    assert ref("add", np.array([127], np.int8), np.array([1], np.int8)).tolist() == [-128]
    assert ref("mul", np.array([2**31 - 1], np.int32), np.array([2], np.int32)).tolist() == [-2]


def test_pow_follows_c():
    x = np.array([0, NAN, -8, 2, INF], np.float32)
    y = np.array([0, 0, 1 / 3, 10, 0], np.float32)
    np.testing.assert_array_equal(ref("pow", x, y), [1, 1, NAN, 1024, 1])


def test_compare_with_nan():
    a, b = np.array([NAN, 1], np.float32), np.array([NAN, 1], np.float32)
    for kind, want in {"eq": [0, 1], "ne": [1, 0], "lt": [0, 0], "le": [0, 1], "gt": [0, 0], "ge": [0, 1]}.items():
        assert ref("compare", a, b, kind=kind).tolist() == [bool(v) for v in want], kind


def test_cast():
    x = np.array([1.9, -1.9, NAN, INF, -INF, 200, 2.5], np.float32)
    assert ref("cast", x, result_dtype=np.dtype(np.int8)).tolist() == [1, -1, 0, 127, -128, 127, 2]
    assert ref("cast", x, result_dtype=np.dtype(np.bool_)).tolist() == [True] * 7
    assert ref("cast", np.array([2**40, -(2**40)]), result_dtype=np.dtype(np.int32)).tolist() == [2**31 - 1, -(2**31)]
    assert ref("cast", np.array([True, False]), result_dtype=BF16).astype(np.float32).tolist() == [1, 0]
    assert ref("cast", np.array([16777217], np.int32), result_dtype=np.dtype(np.float32)).tolist() == [16777216]


def test_rounding_of_f64_to_bf16_matches_exact_arithmetic():
    """Against the nearer of the two neighbours, found in f64, ties included."""
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [rng.standard_normal(2000) * 10.0 ** rng.integers(-30, 30, 2000), [1 + 2.0**-8, 1 + 3 * 2.0**-8, 1e39, 0]]
    )
    x = np.concatenate([x, np.nextafter(1 + 2.0**-8, [0, 2])])
    got = ref("cast", x, result_dtype=BF16)
    bits = got.view(np.uint16).astype(np.int32)
    distance = np.abs(got.astype(np.float64) - x)
    for step in (-1, 1):
        near = np.where((bits + step) & 0x7FFF <= 0x7F7F, bits + step, bits).astype(np.uint16).view(BF16)
        other = np.abs(near.astype(np.float64) - x)
        worse = np.isfinite(distance) & ((other < distance) | ((other == distance) & (bits % 2 == 1) & (near != got)))
        assert not worse.any()
    assert got[2002] == INF


# ----------------------------------------------------------------------------------------------------------------------
# Shapes, products, reductions
# ----------------------------------------------------------------------------------------------------------------------


def test_reshape():
    x = np.arange(24).reshape(2, 3, 4)
    assert ref("reshape", x, new_shape=[-2, -1]).shape == (2, 12)
    assert ref("reshape", x[:0], new_shape=[-1, 4]).shape == (0, 4)
    with pytest.raises(InputError, match="24 elements"):
        ref("reshape", x, new_shape=[5, 5])


def test_narrow_past_the_end():
    with pytest.raises(InputError, match="dimension 0 has size 3, but the range ends at 4"):
        ref("narrow", np.zeros(3), axis=0, start=2, length=2)


def test_gather_clamps():
    table = np.array([10, 20, 30])
    assert ref("gather", table, np.array([-5, 1, 99]), axis=0).tolist() == [10, 20, 30]
    index = np.array([NAN, 1.9, -INF, INF, 1e30], np.float32)
    assert ref("gather", table, index, axis=0).tolist() == [10, 20, 10, 30, 30]


def test_gather_of_packed_rows():
    values = normal(6, 64)
    weight = PackedWeight.encode("q8_0", values)
    got = ref("gather", weight, np.array([[5, 0]]), axis=0)
    assert got.shape == (1, 2, 64)
    np.testing.assert_array_equal(got[0], weight.dequantize()[[5, 0]])
    assert np.abs(got[0] - values[[5, 0]]).max() < 0.05


@by_dtype
def test_matmul_accumulates_wide(dtype):
    a, b = np.full((1, 4096), 1, dtype), np.full((4096, 1), 0.25, dtype)
    assert float(ref("matmul", a, b)[0, 0]) == 1024


def test_matmul_batches():
    a, b = normal(2, 1, 3, 4), normal(5, 4, 6, seed=1)
    got = ref("matmul", a, b)
    for i in range(2):
        for j in range(5):
            np.testing.assert_allclose(got[i, j], np.einsum("mk,kn->mn", a[i, 0], b[j]), rtol=1e-5, atol=1e-6)
    swapped = ref("matmul", a, np.ascontiguousarray(b.swapaxes(1, 2)), transpose_rhs=True)
    np.testing.assert_allclose(swapped, got, rtol=1e-5, atol=1e-6)


def test_reduce_max_with_nan():
    x = np.array([[NAN, 1], [2, NAN]], np.float32)
    for axis in (0, 1):
        assert np.isnan(ref("reduce", x, kind="max", axes=[axis])).all()
        assert np.isnan(ref("reduce", x, kind="min", axes=[axis])).all()


def test_reduce_of_nothing():
    x = np.zeros((0, 2), np.float32)
    want = {"sum": 0, "prod": 1, "max": -INF, "min": INF, "mean": NAN}
    for kind, value in want.items():
        np.testing.assert_array_equal(ref("reduce", x, kind=kind, axes=[0]), [value, value])
    assert ref("reduce", x.astype(np.int8), kind="max", axes=[0]).tolist() == [-128, -128]


def test_reduce_of_apart_axes():
    x = normal(3, 4, 5)
    want = [sum(float(x[i, j, k]) for i in range(3) for k in range(5)) for j in range(4)]
    np.testing.assert_allclose(ref("reduce", x, kind="sum", axes=[2, 0]), want, rtol=1e-5)
    assert ref("reduce", x, kind="mean", axes=[0, 2], keep_dims=True).shape == (1, 4, 1)


def test_softmax():
    x = np.array([[1, 2, 3], [1000, 1000, -INF], [NAN, 0, 0], [-INF] * 3], np.float32)
    got = ref("softmax", x)
    want = [math.exp(v - 3) / sum(math.exp(u - 3) for u in (1, 2, 3)) for v in (1, 2, 3)]
    np.testing.assert_allclose(got[0], want, rtol=1e-6)
    assert got[1].tolist() == [0.5, 0.5, 0]
    assert np.isnan(got[2:]).all()


def test_cumsum():
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    assert ref("cumsum", x).tolist() == [[1, 3, 6], [4, 9, 15]]
    assert ref("cumsum", x, axis=0, exclusive=True).tolist() == [[0, 0, 0], [1, 2, 3]]
    assert ref("cumsum", x, exclusive=True).tolist() == [[0, 1, 3], [0, 4, 9]]
    assert ref("cumsum", np.array([127, 1], np.int8)).tolist() == [127, -128]


def test_top_k():
    x = np.array([[3, np.nan, 5, 5, -np.inf], [np.nan, -0.0, 0.0, -1, np.inf]], np.float32)
    values, indices = ref("top_k", x, k=4)
    assert values.tolist() == [[5, 5, 3, -np.inf], [np.inf, 0, 0, -1]]
    assert not np.signbit(values[1, 1])
    assert indices.tolist() == [[2, 3, 0, 4], [4, 1, 2, 3]]
    assert indices.dtype == np.int32
    values, indices = ref("top_k", x, k=5)
    assert np.isnan(values[0, 4])
    assert indices[0, 4] == 1


def scalar_norm(row: list[float], gamma: list[float], beta: list[float], eps: float, *, centre: bool) -> list[float]:
    mean = sum(row) / len(row) if centre else 0.0
    variance = sum((v - mean) ** 2 for v in row) / len(row)
    return [(v - mean) / math.sqrt(variance + eps) * g + b for v, g, b in zip(row, gamma, beta, strict=True)]


@pytest.mark.parametrize("name", ["layer", "rms"])
def test_norms(name):
    x, r, gamma, beta = normal(4, 6), normal(4, 6, seed=1), normal(6, seed=2), normal(6, seed=3)
    centre = name == "layer"
    want = [scalar_norm(row.tolist(), gamma.tolist(), beta.tolist(), 0.25, centre=centre) for row in x]
    np.testing.assert_allclose(ref(f"{name}_norm", x, gamma, beta, eps=0.25), want, rtol=1e-5, atol=1e-6)
    first = ref(f"{name}_norm", np.ascontiguousarray(x.T), gamma, beta, axis=0, eps=0.25)
    np.testing.assert_allclose(first.T, want, rtol=1e-5, atol=1e-6)
    fused = ref(f"fused_residual_{name}_norm", x - r - beta, r, beta, gamma, beta, eps=0.25)
    np.testing.assert_allclose(fused, want, rtol=1e-4, atol=1e-5)


def test_layer_norm_far_from_zero():
    """The variance comes from differences: 1e4 + small values keeps its digits."""
    x = (1e4 + np.arange(8) / 8).astype(np.float32)[None]
    got = ref("layer_norm", x, np.ones(8, np.float32), eps=1e-12)
    exact = (np.arange(8) - 3.5) / np.sqrt(np.mean((np.arange(8) - 3.5) ** 2))
    np.testing.assert_allclose(got[0], exact, rtol=1e-4)


def test_fused_residual_norm_keeps_the_sum():
    x, r = np.array([[1.0, 2.0]], np.float16), np.array([[2.0**-11, 2.0**-11]], np.float16)
    gamma = np.array([1.0, 1.0], np.float16)
    exact = (x.astype(np.float64) + r) / np.sqrt(np.mean((x.astype(np.float64) + r) ** 2))
    np.testing.assert_array_equal(
        ref("fused_residual_rms_norm", x, r, None, gamma, eps=1e-12), exact.astype(np.float16)
    )


def test_fused_swiglu():
    x = normal(3, 8)
    want = [[float(u) * UNARY["silu"](float(g)) for u, g in zip(row[:4], row[4:], strict=True)] for row in x]
    np.testing.assert_allclose(ref("fused_swiglu", x), want, rtol=1e-5)
    turned = np.concatenate([x[:, 4:], x[:, :4]], axis=1)
    np.testing.assert_array_equal(ref("fused_swiglu", turned, gate_first=True), ref("fused_swiglu", x))


def test_fused_matmul_bias_act():
    x, w, b = normal(3, 4), normal(4, 5, seed=1), normal(5, seed=2)
    want = np.vectorize(UNARY["gelu"])(x.astype(np.float64) @ w + b)
    np.testing.assert_allclose(ref("fused_matmul_bias_act", x, w, b, activation="gelu"), want, rtol=1e-4, atol=1e-6)


# ----------------------------------------------------------------------------------------------------------------------
# Attention
# ----------------------------------------------------------------------------------------------------------------------


def scalar_attention(q, k, v, seen, *, scale, bias=None, softcap=None, sinks=None):
    """[H, S, D] operands in f64, one query at a time, over the keys that it sees and no others."""
    group = q.shape[0] // k.shape[0]
    result = np.zeros(q.shape)
    for h in range(q.shape[0]):
        for i in range(q.shape[1]):
            keys = [j for j in range(k.shape[1]) if seen(h, i, j)]
            scores = []
            for j in keys:
                s = scale * math.fsum(float(a) * float(b) for a, b in zip(q[h, i], k[h // group, j], strict=True))
                s = s if softcap is None else softcap * math.tanh(s / softcap)
                scores.append(s if bias is None else s + float(bias[h, i, j]))
            if not keys:
                continue
            scores += [] if sinks is None else [float(sinks[h])]
            weights = [math.exp(s - max(scores)) for s in scores]
            for w, j in zip(weights[: len(keys)], keys, strict=True):
                result[h, i] += w / sum(weights) * v[h // group, j]
    return result


def seen_by(kind, rows, columns, *, pos=None, window=None, mask=None):
    offset = columns - rows if pos is None else pos

    def seen(h, i, j):
        p = offset + i
        if pos is not None and j >= pos + rows:
            return False
        if kind in ("causal", "sliding_window") and j > p:
            return False
        if kind == "sliding_window" and j <= p - window:
            return False
        return kind != "custom" or bool(mask[h, i, j] >= 0.5)

    return seen


@pytest.mark.parametrize("sinks", [None, np.array([-np.inf, 4.0, 0.0, -4.0], np.float32)], ids=["plain", "sinks"])
@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (2, 5), (5, 2), (1, 4), (4, 1)])
@pytest.mark.parametrize("kind", ["none", "causal", "sliding_window", "custom", "bias"])
def test_attention(kind, rows, columns, sinks):
    heads, kv_heads, width = 4, 2, 8
    q, k, v = (
        normal(heads, rows, width),
        normal(kv_heads, columns, width, seed=1),
        normal(kv_heads, columns, width, seed=2),
    )
    mask = np.random.default_rng(3).random((heads, rows, columns)).astype(np.float32)
    for pos in (None, max(0, columns - rows), 0):
        if pos is not None and pos + rows > columns:
            continue
        attributes: dict[str, Any] = {"window": 2} if kind == "sliding_window" else {}
        got = ref(
            "attention",
            q[None],
            k[None],
            v[None],
            mask[None] if kind in ("custom", "bias") else None,
            None if pos is None else np.array([pos], np.int32),
            sinks,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=width,
            mask_kind=kind,
            layout="bhsd",
            softcap=3.0,
            **attributes,
        )[0]
        want = scalar_attention(
            q,
            k,
            v,
            seen_by(kind, rows, columns, pos=pos, window=2, mask=mask),
            scale=1 / math.sqrt(width),
            bias=mask if kind == "bias" else None,
            softcap=3.0,
            sinks=sinks,
        )
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


BIASED: dict[str, Any] = {"num_heads": 1, "head_dim": 4, "mask_kind": "bias"}


@pytest.mark.parametrize("stage", ["mir", "hir"])
def test_attention_adds_the_bias_to_capped_scores(stage):
    reference = REFERENCES[f"{stage}.attention"]
    q, k = np.ones((1, 1, 4), np.float32), np.ones((1, 2, 4), np.float32)
    v = np.arange(8, dtype=np.float32).reshape(1, 2, 4)
    bias = np.array([0, -np.inf], np.float32).reshape(1, 1, 1, 2)
    np.testing.assert_array_equal(reference(q, k, v, bias, softcap=5.0, **BIASED), v[:, :1])


def test_attention_of_a_row_of_the_least_bias_is_the_mean():
    q, k, v = normal(1, 3, 4), normal(1, 5, 4, seed=1), normal(1, 5, 4, seed=2)
    least = np.full((1, 1, 1, 5), np.finfo(np.float32).min)
    mean = np.broadcast_to(v.mean(axis=1, keepdims=True), q.shape)
    np.testing.assert_allclose(ref("attention", q, k, v, least, **BIASED), mean, rtol=1e-6)
    np.testing.assert_array_equal(ref("attention", q, k, v, np.full_like(least, -np.inf), **BIASED), np.zeros_like(q))


def test_attention_layouts_agree():
    q, k, v = normal(2, 3, 24), normal(2, 5, 8, seed=1), normal(2, 5, 8, seed=2)
    attributes: dict[str, Any] = {"num_heads": 6, "num_kv_heads": 2, "head_dim": 4, "mask_kind": "causal"}
    want = ref("attention", q, k, v, **attributes)
    wide = [x.reshape(*x.shape[:2], -1, 4) for x in (q, k, v)]
    got = ref("attention", *wide, layout="bshd", **attributes)
    np.testing.assert_array_equal(got.reshape(q.shape), want)
    first = ref("attention", *(x.transpose(0, 2, 1, 3) for x in wide), layout="bhsd", **attributes)
    np.testing.assert_array_equal(first.transpose(0, 2, 1, 3).reshape(q.shape), want)
    np.testing.assert_array_equal(ref("attention", q[0], k[0], v[0], **attributes), want[0])


def test_attention_row_without_keys_is_zero():
    q, k, v = (normal(1, 4, 2, seed=i).reshape(1, 1, 4, 2) for i in range(3))
    mask = np.ones((1, 1, 4, 4), np.bool_)
    mask[0, 0, 1] = False
    got = ref("attention", q, k, v, mask, num_heads=1, head_dim=2, mask_kind="custom", layout="bhsd")[0, 0]
    full = ref("attention", q, k, v, num_heads=1, head_dim=2, layout="bhsd")[0, 0]
    assert got[1].tolist() == [0, 0]
    np.testing.assert_array_equal(got[[0, 2, 3]], full[[0, 2, 3]])
    bias = np.where(mask, 0, -INF).astype(np.float32)
    got = ref("attention", q, k, v, bias, num_heads=1, head_dim=2, mask_kind="bias", layout="bhsd")[0, 0]
    assert got[1].tolist() == [0, 0]


def test_causal_is_aligned_at_the_bottom_right():
    """Values are one-hot, scores equal: the result tells the keys that were seen."""
    for rows, columns, want in [
        (2, 5, [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
        (5, 2, [[0, 0], [0, 0], [0, 0], [1, 0], [1, 1]]),
    ]:
        q, k = np.zeros((1, rows, columns), np.float32), np.zeros((1, columns, columns), np.float32)
        v = np.eye(columns, dtype=np.float32)[None]
        got = ref("attention", q, k, v, num_heads=1, head_dim=columns, mask_kind="causal")[0]
        assert (got > 0).astype(int).tolist() == want
    got = ref(
        "attention",
        np.zeros((1, 5, 5), np.float32),
        k[:, :1].repeat(5, 1)[..., :1].repeat(5, 2),
        np.eye(5, dtype=np.float32)[None],
        num_heads=1,
        head_dim=5,
        mask_kind="sliding_window",
        window=2,
    )[0]
    assert (got > 0).sum(axis=-1).tolist() == [1, 2, 2, 2, 2]


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (12, 12), (32, 8), (28, 4), (9, 3), (4, 1)])
def test_heads_are_grouped(heads, kv_heads):
    """The values of kv head c are c: query head h gives h // group."""
    q, k = normal(1, 2, heads * 4), normal(1, 3, kv_heads * 4, seed=1)
    v = np.repeat(np.arange(kv_heads, dtype=np.float32), 4)[None, None].repeat(3, 1)
    got = ref("attention", q, k, v, num_heads=heads, num_kv_heads=kv_heads, head_dim=4)
    want = np.arange(heads) // (heads // kv_heads)
    np.testing.assert_allclose(got.reshape(2, heads, 4), np.broadcast_to(want[:, None], (2, heads, 4)), atol=1e-5)


def test_what_isnt_seen_may_be_nan():
    q, k, v = normal(1, 2, 8), normal(1, 6, 8, seed=1), normal(1, 6, 8, seed=2)
    attributes: dict[str, Any] = {"num_heads": 2, "head_dim": 4}
    want = ref("attention", q, k[:, :3], v[:, :3], mask_kind="causal", **attributes)
    for junk in (NAN, INF):
        bad_k, bad_v = k.copy(), v.copy()
        bad_k[:, 3:], bad_v[:, 3:] = junk, junk
        got = ref("attention", q, bad_k, bad_v, None, np.array([1], np.int32), mask_kind="causal", **attributes)
        np.testing.assert_allclose(got, want, rtol=1e-6)
        shown = np.arange(6)[None] < 3
        got = ref("attention", q, bad_k, bad_v, shown, mask_kind="custom", **attributes)
        assert np.isfinite(got).all()
    v[0, 0] = NAN  # seen by all
    assert np.isnan(ref("attention", q, k, v, mask_kind="causal", **attributes)).all()


def test_attention_on_600_positions_is_fast():
    q, k, v = normal(1, 600, 9 * 64), normal(1, 600, 3 * 64, seed=1), normal(1, 600, 3 * 64, seed=2)
    start = time.perf_counter()
    ref("attention", q, k, v, num_heads=9, num_kv_heads=3, head_dim=64, mask_kind="causal")
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("style", ["half", "interleaved"])
def test_rope(style):
    heads, width, n_rot = 2, 8, 6
    x = normal(2, 3, heads * width)
    angle = normal(10, width // 2, seed=1)
    pos = np.array([4, 0], np.int32)
    got = ref("rope", x, np.cos(angle), np.sin(angle), pos, head_dim=width, n_rot=n_rot, style=style)
    want = x.astype(np.float64)
    for b, s, h, i in np.ndindex(2, 3, heads, n_rot // 2):
        first, second = (i, i + n_rot // 2) if style == "half" else (2 * i, 2 * i + 1)
        a, c = h * width + first, h * width + second
        turn = complex(x[b, s, a], x[b, s, c]) * np.exp(1j * float(angle[pos[b] + s, i]))
        want[b, s, a], want[b, s, c] = turn.real, turn.imag
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    plain = ref("rope", x, np.cos(angle), np.sin(angle), head_dim=width, n_rot=n_rot, style=style)
    np.testing.assert_array_equal(plain[1], got[1])


def test_cache_update():
    cache, new = np.zeros((2, 5, 1), np.float32), np.ones((2, 2, 1), np.float32)
    got = ref("cache_update", cache, new, np.array([3, 0], np.int32))
    assert got[..., 0].tolist() == [[0, 0, 0, 1, 1], [1, 1, 0, 0, 0]]
    assert not cache.any()
    with pytest.raises(InputError, match="rows 4 to 5 of batch 1 must lie in a cache of 5 rows"):
        ref("cache_update", cache, new, np.array([3, 4], np.int32))


# ----------------------------------------------------------------------------------------------------------------------
# Packed weights
# ----------------------------------------------------------------------------------------------------------------------

SCHEMES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")


@pytest.mark.parametrize("scheme", formats.PANEL_FORMATS)
def test_repack_changes_no_value(scheme):
    fmt, k = formats.get_format(scheme), max(64, formats.get_format(scheme).block)
    try:
        weight = PackedWeight.encode(scheme, normal(21, k))
    except UnsupportedError:  # no quantiser: any bytes are a weight, but for scales that aren't finite
        rows = np.random.default_rng(0).integers(0, 64, (21, fmt.row_bytes(k)), np.uint8)
        weight = PackedWeight(scheme, k, 21, "rows", rows)
    panels = ref("repack", weight)
    assert panels.layout == "panels"
    np.testing.assert_array_equal(panels.dequantize(), weight.dequantize())
    np.testing.assert_array_equal(panels.take(np.array([20, 3])), weight.dequantize()[[20, 3]])


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float16), BF16], ids=lambda d: d.name)
def test_repack_of_dense_weights(dtype):
    weight = normal(18, 24, dtype=dtype)
    panels = ref("repack", weight)
    assert panels.scheme == {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[dtype.name]
    np.testing.assert_array_equal(panels.dequantize(), weight.astype(np.float32))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_dequant_matmul(scheme):
    x, weight = normal(2, 3, 64), PackedWeight.encode(scheme, normal(21, 64, seed=1))
    want = np.einsum("bmk,nk->bmn", x.astype(np.float64), formats.decode(scheme, weight.bytes, 64).astype(np.float64))
    np.testing.assert_allclose(ref("dequant_matmul", x, weight), want, rtol=1e-4, atol=1e-5)


def test_block_quantize():
    x = np.zeros((3, 32), np.float32)
    x[0, :4] = [127, 0.5, 1.5, -2.5]  # scale 1: ties to even
    x[1, 0] = NAN
    q, scale, total = ref("block_quantize", x)
    assert (q.dtype, scale.dtype, total.dtype) == (np.int8, np.float32, np.int32)
    assert q[0, :4].tolist() == [127, 0, 2, -2]
    assert scale[0, 0] == 1
    assert total[:, 0].tolist() == [127, 0, 0]
    assert np.isnan(scale[1, 0])
    assert not q[1].any()
    assert scale[2, 0] == 0
    q, scale, _ = ref("block_quantize", normal(4, 64, seed=5), block=64)
    assert scale.shape == (4, 1)
    assert np.abs(q).max() == 127


@pytest.mark.parametrize("scheme", [*SCHEMES, "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"])
def test_block_dot_is_exact_in_integers(scheme):
    k = max(64, formats.get_format(scheme).block)
    x = normal(2, k, seed=1)
    weight = PackedWeight.encode(scheme, normal(5, k))
    q, scale, total = ref("block_quantize", x)
    parts = weight.parts()
    run = parts.run
    want = np.zeros((2, 5))
    for m, n, s in np.ndindex(2, 5, k // run):
        part = slice(run * s, run * s + run)
        dot = sum(int(u) * int(w) for u, w in zip(q[m, part], parts.integers[n, part], strict=True))
        minimum = 0.0 if parts.minima is None else float(parts.minima[n, s]) * int(q[m, part].sum(dtype=np.int32))
        want[m, n] += float(scale[m, run * s // 32]) * (float(parts.scales[n, s]) * dot + minimum)
    assert np.array_equal(total, q.reshape(2, -1, 32).sum(axis=-1, dtype=np.int32))
    np.testing.assert_allclose(ref("block_dot", q, scale, total, weight), want, rtol=1e-5, atol=1e-6)
    panels = weight.repacked()
    np.testing.assert_array_equal(ref("block_dot", q, scale, total, panels), ref("block_dot", q, scale, total, weight))


def test_block_dot_is_close_to_the_product():
    x, weight = normal(3, 128, seed=1), PackedWeight.encode("q4_1", normal(7, 128))
    want = ref("dequant_matmul", x, weight)
    got = ref("block_dot", *ref("block_quantize", x), weight)
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


def test_block_dot_of_large_activations_is_finite():
    x = np.full((1, 32), 2500, np.float32)
    weight = PackedWeight.encode("q4_1", normal(4, 32, seed=5) + 1)
    q, scale, total = ref("block_quantize", x)
    assert total.tolist() == [[127 * 32]]
    np.testing.assert_allclose(ref("block_dot", q, scale, total, weight), x @ weight.dequantize().T, rtol=5e-3)


@pytest.mark.parametrize("scheme", ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_k", *SCHEMES])
def test_parts_are_the_decoded_weight(scheme):
    fmt = formats.get_format(scheme)
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, (3, fmt.row_bytes(512)), np.uint8)
    blocks = data.reshape(3, -1, fmt.nbytes)
    for field in fmt.fields:
        if "f" in field.dtype:
            size = np.dtype(field.dtype).itemsize
            values = rng.uniform(-1, 1, (3, blocks.shape[1], 1)).astype(field.dtype)
            blocks[..., field.offset : field.offset + size] = values.view(np.uint8)
    weight = PackedWeight(scheme, 512, 3, "rows", data)
    parts = weight.parts()
    value = np.repeat(parts.scales, parts.run, axis=1) * parts.integers.astype(np.float32)
    if parts.minima is not None:
        value += np.repeat(parts.minima, parts.run, axis=1)
    np.testing.assert_array_equal(value, weight.dequantize())


def test_packed_weight_checks_its_bytes():
    with pytest.raises(
        InputError, match=r"q4_1 rows of k = 64, n = 3 are uint8 \[3, 40\], but these are uint8 \[3, 36\]"
    ):
        PackedWeight("q4_1", 64, 3, "rows", np.zeros((3, 36), np.uint8))
    with pytest.raises(UnsupportedError, match="f32 doesn't consist of integers"):
        PackedWeight.encode("f32", normal(2, 32)).parts()


# ----------------------------------------------------------------------------------------------------------------------
# Dimensions
# ----------------------------------------------------------------------------------------------------------------------


def test_broadcast_of_sizes():
    def sizes(*values):
        return tuple(Size.of(value) for value in values)

    assert broadcast(sizes("b", 1, 8), sizes("s", 1)) == sizes("b", "s", 8)
    assert broadcast(sizes("b"), sizes(4)) == sizes(4)
    assert broadcast(sizes(4), sizes("b")) == sizes(4)
    shorter = minimum(Size.of("s"), Size.of(128))
    assert broadcast((shorter,), sizes("s")) == broadcast(sizes("s"), (shorter,)) == sizes("s")
    assert broadcast((shorter,), (Size.of("s") + 1,)) == (shorter,)
    assert broadcast((shorter,), sizes(1)) == (shorter,)
    assert broadcast(sizes(0), sizes(1)) == sizes(0)
    assert broadcast(sizes("b"), sizes("c")) == sizes("b")
    assert broadcast() == ()
