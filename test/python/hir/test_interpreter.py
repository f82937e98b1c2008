# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The interpreter: blocks by their definitions agree with the primitives they lower to; inputs are checked."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx_mlir import GraphModule, Value, formats, interpret
from rlx_mlir.errors import ExecutionError, InputError, UnsupportedError
from rlx_mlir.formats import quantize_scaled
from rlx_mlir.mir import PackedWeight
from rlx_mlir.mir.registry import REFERENCES

B, S, P, H, HKV, D = 2, 3, 8, 4, 2, 8
E, F = H * D, 64
DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f64": np.float64}
#: Relative to the largest element: a few roundings to the element type, between parts of a block.
TOLERANCE = {"f32": 2e-6, "bf16": 3e-2, "f16": 4e-3, "f64": 1e-14}


class Case:
    """A module of one block, with random inputs."""

    def __init__(self, dtype: str) -> None:
        self.m = GraphModule.hir("case")
        self.dtype = dtype
        self.rng = np.random.default_rng(0)
        self.inputs: dict[str, np.ndarray] = {}

    def tensor(self, name: str, *shape: int, scale: float = 1.0) -> Value:
        self.inputs[name] = (self.rng.standard_normal(shape) * scale).astype(DTYPES[self.dtype])
        return self.m.input(name, shape, self.dtype)

    def weight(self, name: str, k: int, n: int, packed: str | None = None, transpose: bool = False) -> Value:
        scale = k**-0.5
        if packed is None:
            return self.tensor(name, *((n, k) if transpose else (k, n)), scale=scale)
        self.inputs[name] = formats.encode(packed, (self.rng.standard_normal((n, k)) * scale).astype(np.float32))
        return self.m.param(name, [n, k], packed=packed)

    def array(self, name: str, value: Any, dtype: str) -> Value:
        self.inputs[name] = np.asarray(value)
        return self.m.input(name, self.inputs[name].shape, dtype)

    def tables(self) -> dict[str, Value]:
        angles = np.arange(P)[:, None] * 100.0 ** (-np.arange(D // 2) / (D // 2))
        return {
            "cos": self.array("cos", np.cos(angles).astype(np.float32), "f32"),
            "sin": self.array("sin", np.sin(angles).astype(np.float32), "f32"),
        }

    def caches(self) -> dict[str, Value]:
        pos = self.array("pos", np.array([0, 4], np.int32), "i32")
        keys, values = (self.tensor(name, B, P, HKV * D) for name in ("k_cache", "v_cache"))
        return {"k_cache": keys, "v_cache": values, "pos": pos}


def linear(c: Case) -> Any:
    return c.m.linear(c.tensor("x", B, S, E), c.weight("w", E, F), c.tensor("b", F), activation="silu")


def linear_plain(c: Case) -> Any:
    return c.m.linear(c.tensor("x", S, E), c.weight("w", E, F, transpose=True), transpose_weight=True)


def linear_packed(c: Case) -> Any:
    return c.m.linear(c.tensor("x", B, S, E), c.weight("w", E, F, "q4_1"), c.tensor("b", F), activation="gelu")


def linear_fused(c: Case) -> Any:
    return c.m.linear_fused(c.tensor("x", S, E), c.weight("w", E, F), c.tensor("b", F), activation="gelu_approx")


def shared_linear_pair(c: Case) -> Any:
    return c.m.shared_linear_pair(c.tensor("x", B, S, E), c.weight("w", E, F), c.weight("v", E, 5))


def swiglu(c: Case) -> Any:
    return c.m.swiglu(
        c.tensor("x", B, S, E), gate_w=c.weight("g", E, F), up_w=c.weight("u", E, F), down_w=c.weight("d", F, E)
    )


def swiglu_packed(c: Case) -> Any:
    return c.m.swiglu(
        c.tensor("x", B, S, E),
        gate_w=c.weight("g", E, F, "q8_0"),
        up_w=c.weight("u", E, F, "q5_1"),
        down_w=c.weight("d", F, E, transpose=True),
        transpose_weight=True,
    )


def residual_rms_norm(c: Case) -> Any:
    return c.m.residual_rms_norm(c.tensor("x", B, S, E), c.tensor("r", B, S, E), c.tensor("g", E), c.tensor("b", E))


def rms_norm(c: Case) -> Any:
    return c.m.rms_norm(c.tensor("x", B, S, E), c.tensor("g", E), eps=0.5)


def dequant_matmul(c: Case) -> Any:
    return c.m.dequant_matmul(c.tensor("x", B, S, E), c.weight("w", E, F, "q5_0"))


def dequant_matmul_int4(c: Case) -> Any:
    weight = quantize_scaled("int4/8", np.random.default_rng(3).standard_normal((E, F)) * E**-0.5)
    codes, scale = c.array("codes", weight.codes, "i8"), c.array("scale", weight.scale, "f32")
    return c.m.dequant_matmul(c.tensor("x", B, S, E), codes, scale, scheme="int4/8")


def rope(c: Case, style: str, n_rot: int | None) -> Any:
    pos = c.array("pos", np.array([1, 4], np.int32), "i32")
    return c.m.rope(c.tensor("x", B, S, E), **c.tables(), head_dim=D, style=style, n_rot=n_rot, pos=pos)


def rope_half(c: Case) -> Any:
    return rope(c, "half", 4)


def rope_interleaved(c: Case) -> Any:
    return rope(c, "interleaved", None)


def attention(c: Case, sk: int = S, mask: Any = None, caches: bool = False, **options: Any) -> Any:
    q = c.tensor("q", B, S, E)
    k, v = (c.tensor(name, B, sk, HKV * D) for name in ("k", "v"))
    cached = c.caches() if caches else {}
    return c.m.attention(q, k, v, mask, num_heads=H, num_kv_heads=HKV, head_dim=D, **cached, **options)


def attention_none(c: Case) -> Any:
    return attention(c, 5)


def attention_causal(c: Case) -> Any:
    return attention(c, 5, mask_kind="causal", scale=0.5, softcap=2.0)


def attention_causal_long(c: Case) -> Any:
    return attention(c, 2, mask_kind="causal")  # the first query sees no key


def attention_window(c: Case) -> Any:
    return attention(c, 6, mask_kind="sliding_window", window=2)


def attention_sinks(c: Case) -> Any:
    return attention(c, caches=True, mask_kind="sliding_window", window=2, sinks=c.tensor("sinks", H))


def attention_custom(c: Case) -> Any:
    shown = c.rng.random((B, 5)) < 0.5
    shown[1] = False  # nothing is seen
    return attention(c, 5, c.array("mask", shown, "i1"), mask_kind="custom")


def attention_bias(c: Case) -> Any:
    return attention(c, 5, c.tensor("mask", B, 1, S, 5), mask_kind="bias")


def attention_cached(c: Case) -> Any:
    return attention(c, caches=True, mask_kind="causal")


def attention_cached_all(c: Case) -> Any:
    return attention(c, caches=True)


def decoder(c: Case, packed: str | None, cached: bool) -> Any:
    return c.m.llama_decoder_block(
        c.tensor("x", B, S, E),
        ln1_gamma=c.tensor("ln1", E),
        q_w=c.weight("q", E, E, packed),
        k_w=c.weight("k", E, HKV * D),
        v_w=c.weight("v", E, HKV * D),
        o_w=c.weight("o", E, E, packed),
        ln2_gamma=c.tensor("ln2", E),
        ln2_beta=c.tensor("ln2_beta", E),
        gate_w=c.weight("gate", E, F, packed),
        up_w=c.weight("up", E, F),
        down_w=c.weight("down", F, E, packed),
        **c.tables(),
        **(c.caches() if cached else {}),
        num_heads=H,
        num_kv_heads=HKV,
        head_dim=D,
    )


def decoder_dense(c: Case) -> Any:
    return decoder(c, None, False)


def decoder_packed_cached(c: Case) -> Any:
    return decoder(c, "q4_1", True)


def depthwise_conv(c: Case) -> Any:
    return c.m.depthwise_conv1d_causal(c.tensor("x", B, 5, 6), c.tensor("w", 6, 1, 1, 3), c.tensor("pad", B, 2, 6))


def delta(c: Case, state: bool) -> Any:
    rows = [c.tensor(name, B, S, 2, D, scale=D**-0.5) for name in ("q", "k", "v")]
    gates = [c.tensor(name, B, S, 2, scale=0.3) for name in ("g", "beta")]
    if not state:
        return c.m.gated_delta_net(*rows, *gates)
    dtype = "f64" if c.dtype == "f64" else "f32"
    first = c.array("state", c.rng.standard_normal((B, 2, D, D)).astype(DTYPES[dtype]), dtype)
    return c.m.gated_delta_net_carry(*rows, *gates, first)


def gated_delta_net(c: Case) -> Any:
    return delta(c, False)


def gated_delta_net_carry(c: Case) -> Any:
    return delta(c, True)


def mtp_head(c: Case) -> Any:
    norms = {name: c.tensor(name, E) for name in ("hnorm_w", "enorm_w", "enorm_b", "attn_norm_w", "head_norm_w")}
    return c.m.qwen35_mtp_head(
        c.tensor("x", B, S, E),
        input_ids=c.array("ids", np.array([[1, 0, 2], [9, 4, 4]], np.int32), "i32"),
        last_token_idx=c.array("last", np.array([2, 0], np.int32), "i32"),
        embed_w=c.weight("embed_w", E, 10, "q8_0"),
        eh_w=c.weight("eh_w", 2 * E, E, "q8_0"),
        q_gate_w=c.weight("q_gate_w", E, 2 * E),
        k_w=c.weight("k_w", E, HKV * D),
        v_w=c.weight("v_w", E, HKV * D),
        o_w=c.weight("o_w", E, E),
        gate_w=c.weight("gate_w", E, F),
        up_w=c.weight("up_w", E, F),
        down_w=c.weight("down_w", F, E),
        lm_head_w=c.weight("lm_head_w", E, 10, "q4_1"),
        q_norm_w=c.tensor("q_norm_w", D),
        k_norm_w=c.tensor("k_norm_w", D),
        post_norm_w=c.tensor("post_norm_w", E),
        **norms,
        **c.tables(),
        num_heads=H,
        num_kv_heads=HKV,
        head_dim=D,
        n_rot=4,
    )


CASES = [
    linear,
    linear_plain,
    linear_packed,
    linear_fused,
    shared_linear_pair,
    swiglu,
    swiglu_packed,
    residual_rms_norm,
    rms_norm,
    dequant_matmul,
    dequant_matmul_int4,
    rope_half,
    rope_interleaved,
    attention_none,
    attention_causal,
    attention_causal_long,
    attention_window,
    attention_sinks,
    attention_custom,
    attention_bias,
    attention_cached,
    attention_cached_all,
    decoder_dense,
    decoder_packed_cached,
    depthwise_conv,
    gated_delta_net,
    gated_delta_net_carry,
    mtp_head,
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("build", CASES)
@pytest.mark.quick(21)
def test_blocks_agree_with_what_they_lower_to(build, dtype):
    c = Case(dtype)
    built = build(c)
    c.m.set_outputs(built)
    expected = interpret(c.m, c.inputs)
    assert all(np.isfinite(value.astype(np.float64)).all() for value in expected.values())
    for lowered in (c.m.lower(), c.m.lower_for_autodiff()):
        found = interpret(lowered, c.inputs)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert found[name].dtype == value.dtype
            assert value.dtype == DTYPES[dtype] or (name != "output0" and value.dtype == np.float32)
            wide, other = value.astype(np.float64), found[name].astype(np.float64)
            assert np.abs(wide - other).max() <= TOLERANCE[dtype] * max(np.abs(wide).max(), 1.0), name


def test_every_block_has_a_case_and_a_reference():
    from rlx_mlir.semantics.ops import operation_classes

    c = [Case("f32") for _ in CASES]
    for build, case in zip(CASES, c, strict=True):
        build(case)
    tested = {node.op for case in c for node in case.m.nodes()} | {"hir.constant"}
    blocks = {name for name in operation_classes() if name.startswith("hir.")}
    assert blocks <= tested
    assert blocks <= REFERENCES.keys()


def test_a_query_that_sees_nothing_gives_zeros():
    c = Case("f32")
    c.m.set_outputs(attention_causal_long(c))
    assert not interpret(c.m, c.inputs)["output0"][:, 0].any()


def test_known_values():
    m = GraphModule.hir("m")
    x, g = m.input("x", [1, 2]), m.param("g", [2])
    m.set_outputs({"norm": m.rms_norm(x, g, eps=0.5), "silu": m.silu(x)})
    found = interpret(m, {"x": np.array([[3.0, 4.0]], np.float32), "g": np.array([1.0, 2.0], np.float32)})
    np.testing.assert_allclose(found["norm"], np.array([[3.0, 8.0]]) / np.sqrt(12.5 + 0.5), rtol=1e-6)
    np.testing.assert_allclose(found["silu"], np.array([[3.0, 4.0]]) / (1 + np.exp([-3.0, -4.0])), rtol=1e-6)


def test_cached_steps_give_what_one_call_gives():
    """Prefill of 2 tokens and a step of 1 equal one call of 3, through the caches."""

    def model(steps: int) -> GraphModule:
        m = GraphModule.hir("m")
        x, pos = m.input("x", [1, steps, E]), m.input("pos", [1], "i32")
        keys, values = m.input("keys", [1, P, HKV * D]), m.input("values", [1, P, HKV * D])
        k, v = (m.linear(x, m.param(name, [E, HKV * D])) for name in ("k_w", "v_w"))
        y, k2, v2 = m.attention(
            x,
            k,
            v,
            num_heads=H,
            num_kv_heads=HKV,
            head_dim=D,
            mask_kind="causal",
            k_cache=keys,
            v_cache=values,
            pos=pos,
        )
        m.set_outputs({"y": y, "keys": k2, "values": v2})
        return m

    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 3, E), np.float32)
    weights = {name: rng.standard_normal((E, HKV * D), np.float32) for name in ("k_w", "v_w")}
    state = {name: np.full((1, P, HKV * D), np.nan, np.float32) for name in ("keys", "values")}
    whole = interpret(model(3), {"x": x, "pos": np.array([0], np.int32), **state, **weights})
    first = interpret(model(2), {"x": x[:, :2], "pos": np.array([0], np.int32), **state, **weights})
    state = {name: first[name] for name in state}
    second = interpret(model(1), {"x": x[:, 2:], "pos": np.array([2], np.int32), **state, **weights})
    np.testing.assert_allclose(np.concatenate([first["y"], second["y"]], 1), whole["y"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(second["keys"], whole["keys"], rtol=1e-4, atol=1e-5)


# -- inputs ----------------------------------------------------------------------------------------------------------


def two_inputs() -> GraphModule:
    m = GraphModule.mir("m")
    x, y = m.input("x", ["batch", 4]), m.input("y", ["batch", 4])
    w = m.param("weight", [8, 32], packed="q4_0")
    m.set_outputs({"sum": x + y, "rows": m.gather(w, m.input("i", ["n"], "i32"))})
    return m


def good() -> dict[str, Any]:
    return {
        "x": np.ones((2, 4), np.float32),
        "y": np.ones((2, 4), np.float32),
        "i": np.array([1], np.int32),
        "weight": np.zeros((8, 18), np.uint8),
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"z": np.ones(1)}, "'m' has no argument 'z', it has x, y, weight, i"),
        ({"wieght": np.ones(1)}, "'m' has no argument 'wieght', did you mean 'weight'?"),
        ({"x": None, "weight": None}, "'m' needs a value for input 'x', param 'weight'"),
        ({"x": np.ones((2, 5), np.float32)}, r"input 'x' has shape \[batch, 4\], but got \[2, 5\]"),
        ({"x": np.ones(4, np.float32)}, r"input 'x' has shape \[batch, 4\], but got \[4\]"),
        ({"x": np.ones((2, 4))}, "input 'x' has element type float32, but got float64"),
        ({"i": np.array([1])}, "input 'i' has element type int32, but got int64"),
        ({"weight": np.zeros((8, 18), np.int16)}, "param 'weight' has element type int8 or uint8, but got int16"),
        ({"weight": np.zeros((8, 17), np.uint8)}, r"param 'weight' has shape \[8, 18\], but got \[8, 17\]"),
        (
            {"weight": PackedWeight.encode("q8_0", np.ones((8, 32), np.float32))},
            "param 'weight' is of .*q4_0.*, but got q8_0 rows, k = 32",
        ),
        (
            {"y": np.ones((3, 4), np.float32)},
            r"symbol 'batch' is 2 in input 'x', but 3 in input 'y' \(dimension 0 of \[3, 4\]\)",
        ),
    ],
)
def test_inputs_that_are_refused(change, message):
    inputs = {name: value for name, value in {**good(), **change}.items() if value is not None}
    with pytest.raises(InputError, match=message):
        interpret(two_inputs(), inputs)


def test_packed_weights_may_be_int8_uint8_or_packed():
    values = np.arange(256, dtype=np.float32).reshape(8, 32) - 100
    packed = PackedWeight.encode("q4_0", values)
    for weight in (packed, packed.bytes, packed.bytes.view(np.int8)):
        found = interpret(two_inputs(), {**good(), "weight": weight})
        np.testing.assert_array_equal(found["rows"], packed.dequantize()[1:2])


def test_constants_of_every_type():
    m = GraphModule.hir("m")
    arrays = {
        "f32": np.array([[1.5, -np.inf]], np.float32),
        "bf16": np.array([1.5, -2.0, 3.0], ml_dtypes.bfloat16),
        "bf16_special": np.array([np.inf, -np.inf, np.nan, 1e-40], ml_dtypes.bfloat16),
        "bf16_many": np.arange(-200, 200).astype(ml_dtypes.bfloat16),
        "splat": np.full((2, 2), 0.5, ml_dtypes.bfloat16),
        "f16": np.array(0.25, np.float16),
        "bool": np.array([True, False, True] * 5),
        "i8": np.array([-1, 2], np.int8),
        "i64": np.array([2**40], np.int64),
        "empty": np.zeros((0, 3), np.float32),
    }
    m.set_outputs({name: m.constant(array) for name, array in arrays.items()})
    found = interpret(m, {})
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_functions():
    module = GraphModule.from_text(
        """
        func.func private @twice(%x: tensor<?xf32>) -> tensor<?xf32> {
          %y = mir.add %x, %x : tensor<?xf32>, tensor<?xf32>
          return %y : tensor<?xf32>
        }
        func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
          %y = call @twice(%x) : (tensor<?xf32>) -> tensor<?xf32>
          %z = call @twice(%y) : (tensor<?xf32>) -> tensor<?xf32>
          return %z : tensor<?xf32>
        }"""
    )
    x = np.array([1.0, 2.0], np.float32)
    np.testing.assert_array_equal(interpret(module, {"arg0": x})["output0"], 4 * x)
    np.testing.assert_array_equal(interpret(module.ir_module, {"arg0": x}, function="twice")["output0"], 2 * x)
    with pytest.raises(InputError, match="no function 'g', it has twice, f"):
        interpret(module, {}, function="g")


def test_conditions_at_run_time_name_the_operation():
    m = GraphModule.mir("m")
    cache, new, pos = m.input("cache", [1, 4, 2]), m.input("new", [1, 2, 2]), m.input("pos", [1], "i32")
    m.set_outputs(m.cache_update(cache, new, pos, name="blk.3.k"))
    values = {"cache": np.zeros((1, 4, 2), np.float32), "new": np.ones((1, 2, 2), np.float32)}
    assert interpret(m, {**values, "pos": np.array([2], np.int32)})["output0"][0, 2:].all()
    with pytest.raises(InputError, match=r"'blk\.3\.k'.*test_interpreter\.py.*rows 3 to 4 of batch 0"):
        interpret(m, {**values, "pos": np.array([3], np.int32)})


def test_operations_without_a_reference():
    module = GraphModule.from_text("func.func @f() { %c = arith.constant 0 : index return }", stage="lir")
    with pytest.raises(UnsupportedError, match=r"'arith.constant' in line 1.*: it has no numpy reference"):
        interpret(module, {})


def test_references_must_fit_their_types(monkeypatch):
    m = GraphModule.mir("m")
    m.set_outputs(m.silu(m.input("x", [2])))
    monkeypatch.setitem(REFERENCES, "mir.silu", lambda x: x.astype(np.float64))
    with pytest.raises(ExecutionError, match=r"reference of 'mir.silu' at .* gave float64 \[2\] for tensor<2xf32>"):
        interpret(m, {"x": np.ones(2, np.float32)})


def test_results_without_dimensions_are_arrays() -> None:
    m = GraphModule.mir("f")
    x = m.input("x", [], "bf16")
    m.set_outputs({"y": m.activation_backward("sqrt", x, x), "z": m.add(x, x)})
    found = interpret(m, {"x": np.array(1, ml_dtypes.bfloat16)})
    assert [type(found[name]) for name in "yz"] == [np.ndarray, np.ndarray]
