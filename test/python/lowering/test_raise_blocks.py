# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What graphs have written out becomes whole, computes the same, and is left alone where it is something else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rlx_mlir import GraphModule, Value, interpret
from rlx_mlir.reports.fusion import count_operations

SIZES = {"b": 2, "s": 5}
PASS = "mir-raise-blocks"
Build = Callable[[GraphModule], Value]


def raised(build: Build, sizes: dict[str, int] | None = None) -> dict[str, int]:
    """How many operations of each kind are left; what they compute is compared with what was there before."""
    m = GraphModule.mir("graph")
    m.set_outputs({"y": build(m)})
    after = m.transform(PASS)
    for own in (SIZES, {"b": 1, "s": 1}, {"b": 3, "s": 17}) if sizes is None else (sizes,):
        rng = np.random.default_rng(0)
        given = {}
        for argument in (*m.inputs, *m.params):
            shape = [own[size] if isinstance(size, str) else size for size in argument.shape]
            drawn = rng.standard_normal(shape)
            given[argument.name] = drawn.astype(argument.dtype) if argument.dtype.kind != "b" else drawn > 0
        wanted, found = interpret(m, given)["y"], interpret(after, given)["y"]
        assert found.shape == wanted.shape
        tolerance = 3e-6 if wanted.dtype != np.float64 else 1e-12
        np.testing.assert_allclose(found, wanted, atol=tolerance, rtol=tolerance)
    return dict(count_operations(after.ir_module))


def misses(build: Build) -> str:
    """The reasons that the fusion report has for what isn't raised."""
    m = GraphModule.mir("graph")
    m.set_outputs({"y": build(m)})
    return "\n".join(f"{miss.pattern}: {miss.reason}" for name, miss in m.fusion_report().missed if name == PASS)


# -- functions ---------------------------------------------------------------------------------------------------------


def test_sigmoid_and_silu() -> None:
    def build(m: GraphModule) -> Value:
        x, y = m.input("x", ["s", 7]), m.input("y", ["s", 7])
        return x / (m.exp(-x) + 1.0) + 1.0 / (1.0 + m.exp(-y)) + y * m.sigmoid(y)

    left = raised(build)
    assert left["mir.silu"] == 2
    assert left["mir.sigmoid"] == 1
    assert "mir.exp" not in left


@pytest.mark.parametrize("half", ["first", "last"])
def test_gelu_by_the_error_function(half: str) -> None:
    def build(m: GraphModule) -> Value:
        x = m.input("x", ["s", 7])
        erf = 1.0 - m.erfc(x / float(np.sqrt(2.0)))
        return x * 0.5 * (1.0 + erf) if half == "first" else 0.5 * (x * (erf + 1.0))

    assert raised(build) == {"mir.gelu": 1}


@pytest.mark.parametrize("cube", ["power", "product"])
def test_gelu_by_tanh(cube: str) -> None:
    def build(m: GraphModule) -> Value:
        x = m.input("x", ["s", 7])
        power = m.pow(x, 3.0) if cube == "power" else x * x * x
        return 0.5 * x * (1.0 + m.tanh(float(np.sqrt(2.0 / np.pi)) * (x + 0.044715 * power)))

    assert raised(build) == {"mir.gelu_approx": 1}


def test_other_numbers_are_other_functions() -> None:
    def build(m: GraphModule) -> Value:
        x = m.input("x", ["s", 7])
        return x * 0.5 * (1.0 + (1.0 - m.erfc(x * 0.7))) + 0.5 * x * (1.0 + m.tanh(0.8 * (x + 0.05 * (x * x * x))))

    left = raised(build)
    assert "mir.gelu" not in left
    assert "mir.gelu_approx" not in left


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_functions_and_norms_of_16_bits_that_are_computed_in_f32(dtype: str) -> None:
    """Readers of files compute them in f32, and round; one operation rounds less often, which has to be allowed."""
    m = GraphModule.mir("graph")
    x, w = m.input("x", ["s", 24], dtype), m.param("w", [24], dtype)
    inner = m.cast(x / m.constant(np.asarray(np.sqrt(2.0)).astype(x.dtype)), "f32")
    y = x * (m.cast(1.0 - m.erfc(inner), dtype) + 1.0) * 0.5
    squares = m.mean(m.cast(m.pow(y, 2.0), "f32"), -1, keep_dims=True)
    root = m.sqrt(m.cast(squares, dtype) + 1e-3)
    m.set_outputs({"y": y * m.cast(1.0 / m.cast(root, "f32"), dtype) * w})
    assert not {"mir.gelu", "mir.rms_norm"} & set(count_operations(m.transform(PASS).ir_module))
    assert any("round less often" in miss.reason for name, miss in m.fusion_report().missed if name == PASS)
    found = m.transform(f"mir-keep-wide,{PASS}")
    assert {"mir.gelu": 1, "mir.rms_norm": 1}.items() <= dict(count_operations(found.ir_module)).items()


# -- norms -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("form", ["rsqrt", "divided", "reciprocal", "summed"])
def test_rms_norm(dtype: str, form: str) -> None:
    def build(m: GraphModule) -> Value:
        x, w = m.input("x", ["b", "s", 24], dtype), m.param("w", [24], dtype)
        mean = m.sum(x * x, -1, keep_dims=True) / 24.0 if form == "summed" else m.mean(x * x, -1, keep_dims=True)
        if form == "divided":
            return w * (x / m.sqrt(mean + 1e-6))
        scale = 1.0 / m.sqrt(mean + 1e-6) if form == "reciprocal" else m.rsqrt(mean + 1e-6)
        return x * scale * w

    left = raised(build)
    assert left["mir.rms_norm"] == 1
    assert "mir.reduce" not in left
    assert left.keys() <= {"mir.rms_norm", "mir.constant"}


def test_rms_norm_without_weight_and_with_one_beside_it() -> None:
    def build(m: GraphModule) -> Value:
        x, w = m.input("x", ["s", 8]), m.param("w", [8])
        y = x * m.rsqrt(m.mean(m.pow(x, 2.0), 1, keep_dims=True) + 1e-5)
        return y * (w + 1.0)

    assert raised(build)["mir.rms_norm"] == 1


@pytest.mark.parametrize("width", [1, 8, 17])
def test_layer_norm(width: int) -> None:
    def build(m: GraphModule) -> Value:
        x, w, b = m.input("x", ["b", "s", width]), m.param("w", [width]), m.param("c", [1, 1, width])
        centred = x - m.mean(x, -1, keep_dims=True)
        again = x - m.mean(x, -1, keep_dims=True)
        return centred * m.rsqrt(m.mean(again * again, -1, keep_dims=True) + 1e-5) * w + b

    left = raised(build)
    assert left["mir.layer_norm"] == 1
    assert left.keys() <= {"mir.layer_norm", "mir.reshape", "mir.constant"}


def test_what_is_no_norm_stays() -> None:
    def build(m: GraphModule) -> Value:
        x, y = m.input("x", ["s", 8]), m.input("y", ["s", 8])
        return y * m.rsqrt(m.mean(x * x, -1, keep_dims=True) + 1e-5)

    assert "mir.rms_norm" not in raised(build)
    assert "what is divided isn't what the mean of squares is of" in misses(build)


def test_norms_along_other_dimensions_stay() -> None:
    def build(m: GraphModule) -> Value:
        x = m.input("x", [4, 8])
        return x * m.rsqrt(m.mean(x * x, 0, keep_dims=True) + 1e-5)

    assert "mir.rms_norm" not in raised(build)


def test_a_norm_whose_plain_result_is_read_keeps_its_weight_apart() -> None:
    def build(m: GraphModule) -> Value:
        x, w = m.input("x", ["s", 8]), m.param("w", [8])
        y = x * m.rsqrt(m.mean(x * x, -1, keep_dims=True) + 1e-5)
        return y * w + m.tanh(y)

    left = raised(build)
    assert left["mir.rms_norm"] == 1
    assert left["mir.mul"] == 1
    assert "the norm without its weight has other readers" in misses(build)


def test_what_would_round_less_often_stays() -> None:
    def build(m: GraphModule) -> Value:
        x = m.input("x", ["s", 8], "bf16")
        return x * m.rsqrt(m.mean(x * x, -1, keep_dims=True) + 1e-5)

    m = GraphModule.mir("graph")
    m.set_outputs({"y": build(m)})
    assert "mir.rms_norm" not in count_operations(m.transform(PASS).ir_module)
    assert "mir.rms_norm" in count_operations(m.transform(f"mir-keep-wide,{PASS}").ir_module)
    assert "round less often" in misses(build)


# -- rotations ---------------------------------------------------------------------------------------------------------


def tables(m: GraphModule, width: int, rows: str = "s") -> tuple[Value, Value]:
    """Cosines and sines [1, s, width / 2] of positions."""
    angles = m.cast(m.iota([1, rows, 1], 1, "i64"), "f32") * m.param("rates", [width // 2])
    return m.cos(angles), m.sin(angles)


def halves(m: GraphModule, x: Value) -> Value:
    half = x.shape[-1] // 2
    return m.concat([-x[..., half:], x[..., :half]], -1)


def pairs(m: GraphModule, x: Value) -> Value:
    shape = [*x.shape[:-1], x.shape[-1] // 2, 1]
    turned = [m.reshape(-x[..., 1::2], shape), m.reshape(x[..., ::2], shape)]
    return m.reshape(m.concat(turned, len(shape) - 1), list(x.shape))


@pytest.mark.parametrize("heads", ["before", "after", "none"])
def test_rope_by_rotated_halves(heads: str) -> None:
    def build(m: GraphModule) -> Value:
        shape = {"before": ["b", 3, "s", 8], "after": ["b", "s", 3, 8], "none": ["s", 8]}[heads]
        x = m.input("x", shape)
        cos, sin = (m.concat([t, t], -1) * 1.0 for t in tables(m, 8))
        wide = {"before": [1, 1, "s", 8], "after": [1, "s", 1, 8], "none": ["s", 8]}[heads]
        return x * m.reshape(cos, wide) + halves(m, x) * m.reshape(sin, wide)

    left = raised(build)
    assert left["mir.rope"] == 1
    assert "mir.concat" not in left
    assert "mir.neg" not in left


def test_rope_by_rotated_pairs() -> None:
    def build(m: GraphModule) -> Value:
        x = m.input("x", ["b", 3, "s", 8])
        wide = []
        for table in tables(m, 8):
            twice = m.expand(m.reshape(table, [1, "s", 4, 1]), [1, "s", 4, 2])
            wide.append(m.reshape(twice, [1, 1, "s", 8]))
        return x * wide[0] + pairs(m, x) * wide[1]

    left = raised(build)
    assert left["mir.rope"] == 1
    assert "mir.concat" not in left


@pytest.mark.parametrize("style", ["half", "interleaved", "pairs"])
def test_rope_of_parts(style: str) -> None:
    def build(m: GraphModule) -> Value:
        x = m.input("x", ["b", 2, "s", 8])
        cos, sin = (m.reshape(table, [1, 1, "s", 4]) for table in tables(m, 8))
        if style == "half":
            a, b = x[..., :4], x[..., 4:]
            return m.concat([a * cos - b * sin, b * cos + a * sin], -1)
        if style == "pairs":
            split = m.reshape(x, ["b", 2, "s", 4, 2])
            a, b = split[..., 0], split[..., 1]
        else:
            a, b = x[..., ::2], x[..., 1::2]
        first, second = a * cos - b * sin, a * sin + b * cos
        shape = ["b", 2, "s", 4, 1]
        return m.reshape(m.concat([m.reshape(first, shape), m.reshape(second, shape)], 4), ["b", 2, "s", 8])

    left = raised(build)
    assert left["mir.rope"] == 1
    assert "mir.sub" not in left


def test_rope_of_a_part_of_each_head() -> None:
    def build(m: GraphModule) -> Value:
        x = m.input("x", ["b", 3, "s", 12])
        cos, sin = (m.reshape(m.concat([t, t], -1), [1, 1, "s", 8]) for t in tables(m, 8))
        turned = x[..., :8] * cos + halves(m, x[..., :8]) * sin
        return m.concat([turned, x[..., 8:]], -1)

    assert raised(build)["mir.rope"] == 1


@pytest.mark.parametrize("fault", ["halves", "batches", "order"])
def test_what_is_no_rope_stays(fault: str) -> None:
    def build(m: GraphModule) -> Value:
        x = m.input("x", ["b", 3, "s", 8])
        if fault == "halves":
            cos, sin = m.input("cos", [1, 1, "s", 8]), m.input("sin", [1, 1, "s", 8])
        elif fault == "batches":
            half = m.input("angles", ["b", 1, "s", 4])
            cos, sin = (m.concat([t, t], -1) for t in (m.cos(half), m.sin(half)))
        else:
            cos, sin = (m.reshape(m.concat([t, t], -1), [1, 1, "s", 8]) for t in tables(m, 8))
            turned = m.concat([-x[..., :4], x[..., 4:]], -1)
            return x * cos + turned * sin
        return x * cos + halves(m, x) * sin

    assert "mir.rope" not in raised(build)
    reasons = {"halves": "two halves of a table", "batches": "differ between batches", "order": ""}
    assert reasons[fault] in misses(build)


# -- attention ---------------------------------------------------------------------------------------------------------


def heads(m: GraphModule, name: str, count: int, length: str = "s") -> Value:
    """[b, count, s, 8] of rows [b, s, count * 8]."""
    return m.transpose(m.reshape(m.input(name, ["b", length, count * 8]), ["b", length, count, 8]), [0, 2, 1, 3])


def written_out(m: GraphModule, q: Value, k: Value, v: Value, mask: Value | None = None, scale: float = 0.3) -> Value:
    scores = m.matmul(q, m.transpose(k, [0, 1, 3, 2])) * scale
    return m.matmul(m.softmax(scores if mask is None else scores + mask), v)


def together(m: GraphModule, x: Value) -> Value:
    return m.reshape(m.transpose(x, [0, 2, 1, 3]), ["b", "s", x.shape[1] * 8])


def causal(m: GraphModule) -> Value:
    return m.le(m.iota([1, 1, 1, "s"], 3, "i64"), m.iota([1, 1, "s", 1], 2, "i64"))


def test_attention_and_where_its_heads_are() -> None:
    def build(m: GraphModule) -> Value:
        q, k, v = (heads(m, name, 3) for name in "qkv")
        return together(m, written_out(m, q, k, v))

    assert raised(build) == {"mir.attention": 1}


def test_attention_of_other_keys_than_queries() -> None:
    def build(m: GraphModule) -> Value:
        return together(m, written_out(m, heads(m, "q", 3), heads(m, "k", 3, "t"), heads(m, "v", 3, "t")))

    assert raised(build, {"b": 2, "s": 5, "t": 3}) == {"mir.attention": 1}


@pytest.mark.parametrize("low", [-np.inf, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("form", ["added", "chosen"])
def test_a_mask_of_what_comes_later_is_causal(low: float, form: str) -> None:
    def build(m: GraphModule) -> Value:
        q, k, v = (heads(m, name, 2) for name in "qkv")
        hidden = m.constant(np.float32(low))
        if form == "added":
            mask = m.expand(m.where(causal(m), m.constant(np.float32(0)), hidden), ["b", 1, "s", "s"])
            return together(m, written_out(m, q, k, v, mask))
        scores = m.matmul(q, k, transpose_rhs=True) / 2.0
        seen = m.where(m.expand(causal(m), ["b", 2, "s", "s"]), scores, hidden)
        return together(m, m.matmul(m.softmax(seen), v))

    m = GraphModule.mir("graph")
    m.set_outputs({"y": build(m)})
    text = str(m.transform(PASS))
    assert "masked causal" in text
    if np.isfinite(low) or form == "chosen":
        assert raised(build)["mir.attention"] == 1


@pytest.mark.parametrize("shape", [["b", 1, 1, "s"], ["s"]])
def test_a_mask_of_keys_isnt_repeated(shape: list[int | str]) -> None:
    def build(m: GraphModule) -> Value:
        q, k, v = (heads(m, name, 2) for name in "qkv")
        seen = m.input("mask", shape) > 0.5
        mask = (1.0 - m.cast(seen, "f32")) * float(np.finfo(np.float32).min)
        return together(m, written_out(m, q, k, v, m.expand(mask, ["b", 1, "s", "s"])))

    left = raised(build)
    assert left["mir.attention"] == 1
    assert "mir.expand" not in left


@pytest.mark.parametrize("form", ["given", "infinite", "overflows"])
def test_a_mask_that_may_hide_all_keys_stays_as_it_is(form: str) -> None:
    """Softmax of -inf alone is NaN, and attention that sees no key gives zeros."""

    def build(m: GraphModule) -> Value:
        q, k, v = (heads(m, name, 2) for name in "qkv")
        given = m.reshape(m.input("mask", ["b", "s"]), ["b", 1, 1, "s"])
        if form == "infinite":
            given = m.where(given > 0.5, m.constant(np.float32(0)), m.constant(np.float32(-np.inf)))
        elif form == "overflows":
            given = (m.cast(given > 0.5, "f32") + 1.0) * float(np.finfo(np.float32).min)
        return together(m, written_out(m, q, k, v, m.expand(given, ["b", 1, "s", "s"])))

    m = GraphModule.mir("graph")
    m.set_outputs({"y": build(m)})
    assert "mir.attention" not in str(m.transform(PASS))


@pytest.mark.parametrize("form", ["flags", "weights", "looked up"])
def test_a_mask_of_flags_and_weights_leaves_a_key(form: str) -> None:
    """Integers are flags, and no weights hide all keys of a query: each call would give NaN."""

    def build(m: GraphModule) -> Value:
        q, k, v = (heads(m, name, 2) for name in "qkv")
        low = float(np.finfo(np.float32).min)
        if form == "flags":
            flags = m.cast(m.input("flags", ["b", 1, 1, "s"], "i1"), "i64")
            return together(m, written_out(m, q, k, v, (1.0 - m.cast(flags, "f32")) * low))
        if form == "weights":
            bias = m.param("bias", [1, 2, 64, 64])[:, :, :5, :5]
        else:
            places = m.iota([5, 5], 1, "i64")
            bias = m.reshape(m.transpose(m.gather(m.param("table", [9, 2]), places), [2, 0, 1]), [1, 2, 5, 5])
        q, k, v = (x[:, :, :5] for x in (q, k, v))
        hidden = m.where(m.input("seen", [1, 1, 1, 5], "i1"), m.constant(np.float32(0)), m.constant(np.float32(low)))
        return written_out(m, q, k, v, bias + hidden)

    assert raised(build, {"b": 2, "s": 5})["mir.attention"] == 1


@pytest.mark.parametrize("form", ["ne", "eq"])
def test_weights_with_zeros_for_nan(form: str) -> None:
    def build(m: GraphModule) -> Value:
        q, k, v = (heads(m, name, 2) for name in "qkv")
        mask = m.log(m.cast(m.input("seen", ["b", 1, "s", "s"], "i1"), "f32"))  # rows may be -inf throughout
        weights = m.softmax(m.matmul(q, m.transpose(k, [0, 1, 3, 2])) + mask)
        zero = m.constant(np.float32(0))
        if form == "ne":
            guarded = m.where(m.ne(weights, weights), zero, weights)
        else:
            guarded = m.where(m.eq(weights, weights), weights, zero)
        return together(m, m.matmul(guarded, v))

    with np.errstate(divide="ignore", invalid="ignore"):
        assert raised(build)["mir.attention"] == 1


@pytest.mark.parametrize("parted", [False, True])
def test_queries_and_keys_with_parts_of_the_scale(parted: bool) -> None:
    def build(m: GraphModule) -> Value:
        q, k, v = (heads(m, name, 2) for name in "qkv")
        turned = m.transpose(k * 0.5, [0, 1, 3, 2])
        if parted:
            turned = m.reshape(m.transpose(m.reshape(k, ["2*b", "s", 8]), [0, 2, 1]), ["b", 2, 8, "s"]) * 0.5
        return together(m, m.matmul(m.softmax(m.matmul(q / 2.0, turned) * -3.0), v))

    assert raised(build) == {"mir.attention": 1}
    m = GraphModule.mir("graph")
    m.set_outputs({"y": build(m)})
    assert "scale -7.500000e-01" in str(m.transform(PASS))


def test_heads_that_several_queries_share() -> None:
    def build(m: GraphModule) -> Value:
        q, k, v = heads(m, "q", 6), heads(m, "k", 2), heads(m, "v", 2)
        k, v = (
            m.reshape(m.expand(m.reshape(x, ["b", 2, 1, "s", 8]), ["b", 2, 3, "s", 8]), ["b", 6, "s", 8])
            for x in (k, v)
        )
        return together(m, written_out(m, q, k, v))

    assert raised(build) == {"mir.attention": 1}


def test_scores_with_a_cap_and_products_apart() -> None:
    def build(m: GraphModule) -> Value:
        q, k, v = (m.reshape(heads(m, name, 2), ["2*b", "s", 8]) for name in "qkv")
        scores = m.matmul(q, m.transpose(k, [0, 2, 1]))
        return m.matmul(m.softmax(m.tanh(scores * 0.1) * 5.0), v)

    assert raised(build)["mir.attention"] == 1


def test_products_whose_leading_dimensions_are_joined() -> None:
    def build(m: GraphModule) -> Value:
        q, k, v = (heads(m, name, 2) for name in "qkv")
        turned = m.reshape(m.transpose(k, [0, 1, 3, 2]), ["2*b", 8, "s"])
        scores = m.reshape(m.matmul(m.reshape(q, ["2*b", "s", 8]), turned), ["b", 2, "s", "s"]) * 0.5
        weights = m.reshape(m.softmax(scores), ["2*b", "s", "s"])
        found = m.reshape(m.matmul(weights, m.reshape(v, ["2*b", "s", 8])), ["b", 2, "s", 8])
        return together(m, found)

    assert raised(build) == {"mir.attention": 1}


@pytest.mark.parametrize("form", ["scalar", "image"])
def test_what_is_added_to_all_scores_of_a_query_is_no_mask(form: str) -> None:
    def build(m: GraphModule) -> Value:
        q, k, v = (heads(m, name, 2) for name in "qkv")
        mask = m.constant(np.full([] if form == "scalar" else [1, 1, 1, 1], 0.25, np.float32))
        return together(m, written_out(m, q, k, v, mask))

    assert "mir.attention" not in raised(build)
    assert "isn't a mask of batches, heads, queries and keys" in misses(build)


@pytest.mark.parametrize("fault", ["readers", "axis", "width"])
def test_what_is_no_attention_stays(fault: str) -> None:
    def build(m: GraphModule) -> Value:
        q, k = heads(m, "q", 2), heads(m, "k", 2)
        v = heads(m, "v", 2) if fault != "width" else m.input("v", ["b", 2, "s", 5])
        weights = m.softmax(m.matmul(q, k, transpose_rhs=True), 2 if fault == "axis" else 3)
        found = m.matmul(weights, v)
        return found + m.sum(weights) if fault == "readers" else found

    assert "mir.attention" not in raised(build)
    reasons = {"readers": "the weights have other readers", "axis": "", "width": "another length"}
    assert reasons[fault] in misses(build)


def test_views_and_weights() -> None:
    def build(m: GraphModule) -> Value:
        x, w = m.input("x", ["s", 8]), m.param("w", [6, 8])
        twice = m.transpose(m.transpose(x * 1.0, [1, 0]), [1, 0])
        return m.matmul(m.reshape(m.reshape(twice, ["s", 2, 4]), ["s", 8]), m.transpose(w))

    assert raised(build) == {"mir.matmul": 1}


def test_views_of_sizes_that_are_known_but_not_of_types() -> None:
    """Of 1 + s rows there is a first one, which no type of a slice says; the type of a reshape does."""

    def first_row(m: GraphModule) -> Value:
        whole = m.concat([m.param("c", [1, 1, 4]), m.input("x", [1, "s", 4])], axis=1)
        return m.slice(whole, axis=1, start=0, stop=1)

    def reshaped(m: GraphModule) -> Value:
        row = first_row(m)
        y = m.reshape(row, [1, 1, 4])
        return m.concat([y, y + 1.0, m.expand(row, [1, 1, 4])], axis=0)

    def sliced(m: GraphModule) -> Value:
        return m.slice(first_row(m), axis=1, start=0, stop=1)

    def turned(m: GraphModule) -> Value:
        y = m.transpose(m.transpose(m.reshape(first_row(m), [1, 1, 4]), [0, 2, 1]), [0, 2, 1])
        return m.slice(y, axis=1, start=-1)

    sizes = {"s": 3}
    kept = {"mir.concat": 2, "mir.slice": 1, "mir.reshape": 2, "mir.add": 1, "mir.constant": 1}
    assert raised(reshaped, sizes) == kept
    assert raised(sliced, sizes)["mir.slice"] == 1
    raised(turned, sizes)


def test_conversions_to_the_same_type() -> None:
    """One that rounds stays, and one of a value that was rounded before goes."""

    def build(m: GraphModule) -> Value:
        x = m.cast(m.input("x", ["s", 8]), "f32")
        return m.cast(m.cast(m.cast(x, "bf16"), "bf16"), "f32")

    assert raised(build) == {"mir.cast": 2}


def test_rms_norm_of_a_difference_with_what_is_no_mean() -> None:
    def build(m: GraphModule) -> Value:
        x, c = m.input("x", ["s", 8]), m.param("c", [8])
        d = x - c
        return d / m.sqrt(m.mean(d * d, -1, keep_dims=True) + 1e-5)

    found = raised(build)
    assert found["mir.rms_norm"] == 1
    assert found["mir.sub"] == 1
