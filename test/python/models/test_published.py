# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The behaviour that the library's published tests show, with sizes that are legal: lowering, fusion, planning."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from rlx_mlir import GraphModule, Value, compile, formats, interpret
from rlx_mlir.compiler import Compilation, CompileOptions
from rlx_mlir.errors import PassError, StageError


def kinds(module: GraphModule) -> Counter[str]:
    """How often each operation occurs."""
    return Counter(node.op for node in module.nodes())


def size(module: GraphModule) -> int:
    """Operations, and inputs and parameters, which are nodes of a graph too."""
    return len(module.nodes()) + len(module.inputs) + len(module.params)


def fused(module: GraphModule) -> GraphModule:
    return module.transform("rlx-fuse")


def arena(module: GraphModule, **options: object) -> int:
    """Bytes of intermediate values in the compiled module."""
    compilation = Compilation(module, CompileOptions(**options))  # type: ignore[arg-type]
    compilation.run(until="lir")
    return int(compilation.plan.arena_bytes)


# Lowering -----------------------------------------------------------------------------------------


def linear(m: GraphModule) -> Value:
    x, w, b = m.input("x", [2, 128]), m.param("w", [128, 128]), m.param("b", [128])
    return m.linear(x, w, b)


def test_define_makes_a_module_that_lowers() -> None:
    module = GraphModule.define("model", lambda m: m.linear(m.input("x", [2, 8]), m.param("w", [8, 8])))
    assert (module.stage, module.name, module.fusion_policy) == ("hir", "model", "direct")
    lowered = module.lower()
    assert lowered.stage == "mir"
    assert size(lowered) >= 3
    assert kinds(lowered) == {"mir.matmul": 1}


def test_a_mir_module_with_one_input_has_one_node() -> None:
    module = GraphModule.mir("m")
    module.input("x", [2, 4])
    assert module.stage == "mir"
    assert size(module) == 1
    assert module.lower().stage == "mir"


def test_linear_under_direct_has_at_most_five_nodes_and_runs() -> None:
    module = GraphModule.define("linear", linear)
    lowered = module.lower()
    assert size(lowered) <= 5
    assert kinds(lowered) == {"mir.fused_matmul_bias_act": 1}
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 128), (128, 128), (128,)))
    executable = compile(module, cache=False, level=1)
    executable.set_params({"w": w, "b": b})
    (y,) = executable.run({"x": x}).values()
    np.testing.assert_allclose(y, x @ w + b, rtol=1e-4, atol=1e-4)


def test_two_linears_need_an_arena() -> None:
    """One result goes straight to the caller's buffer; what is between two needs memory of its own."""

    def build(m: GraphModule) -> Value:
        y = linear(m)
        return m.linear(y, m.param("w2", [128, 128]), m.param("b2", [128]))

    assert arena(GraphModule.define("linear", linear)) == 0
    assert arena(GraphModule.define("two", build)) == 2 * 128 * 4


def swiglu(m: GraphModule) -> Value:
    x = m.input("x", [4, 768])
    gate, up = m.param("gate", [768, 2048]), m.param("up", [768, 2048])
    return m.swiglu(x, gate_w=gate, up_w=up, down_w=m.param("down", [2048, 768]))


def test_swiglu_under_fusable_has_nine_nodes() -> None:
    lowered = GraphModule.define("ffn", swiglu).with_fusion_policy("fusable").lower()
    assert kinds(lowered) == {"mir.matmul": 3, "mir.silu": 1, "mir.mul": 1}
    assert size(lowered) == 9


def test_swiglu_under_direct_has_eight_nodes() -> None:
    lowered = GraphModule.define("ffn", swiglu).lower()
    assert kinds(lowered) == {"mir.concat": 1, "mir.matmul": 2, "mir.fused_swiglu": 1}
    assert size(lowered) == 8


def test_lowering_for_autodiff_is_fusable() -> None:
    module = GraphModule.define("ffn", swiglu)
    assert module.lower_for_autodiff() == module.with_fusion_policy("fusable").lower()


def test_depthwise_convolution_is_a_convolution_of_joined_tokens() -> None:
    def build(m: GraphModule) -> Value:
        return m.depthwise_conv1d_causal(
            m.input("x", [2, 8, 16]), m.param("w", [16, 1, 1, 3]), m.input("pad", [2, 2, 16])
        )

    module = GraphModule.define("conv", build)
    lowered = module.lower()
    assert kinds(lowered)["mir.conv"] == 1
    assert kinds(lowered)["mir.concat"] == 1
    rng = np.random.default_rng(0)
    shapes = {"x": (2, 8, 16), "w": (16, 1, 1, 3), "pad": (2, 2, 16)}
    values = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    padded = np.concatenate([values["pad"], values["x"]], axis=1)
    expected = sum(padded[:, j : j + 8] * values["w"][:, 0, 0, j] for j in range(3))
    (y,) = interpret(lowered, values).values()
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_blocks_of_one_module_lower_side_by_side() -> None:
    """With K = 256, rows of 144 bytes, and tables of half a head's width: K = 128 has no block of q4_k."""

    def build(m: GraphModule) -> dict[str, Value]:
        q = m.input("q", [1, 4, 2, 8])
        g = m.input("g", [1, 4, 2])
        x = m.input("x", [4, 256])
        cos, sin = m.param("cos", [4, 4]), m.param("sin", [4, 4])
        delta, state = m.gated_delta_net(q, q, q, g, g)
        return {
            "delta": delta,
            "state": state,
            "rope": m.rope(m.input("r", [1, 4, 16]), cos, sin, head_dim=8, style="half"),
            "norm": m.rms_norm(x, m.param("gamma", [256])),
            "product": m.dequant_matmul(x, m.param("w", [32, 256], packed="q4_k")),
        }

    lowered = GraphModule.define("blocks", build).lower()
    assert kinds(lowered) == {"mir.gated_delta_net": 1, "mir.rope": 1, "mir.rms_norm": 1, "mir.dequant_matmul": 1}
    (product,) = (node for node in lowered.nodes() if node.op == "mir.dequant_matmul")
    assert "mir.packed<q4_k, k = 256>" in lowered.to_text()
    assert product.results[0].shape == (4, 32)
    (delta,) = (node for node in lowered.nodes() if node.op == "mir.gated_delta_net")
    assert len(delta.operands) == 5  # No state is carried in.


@pytest.mark.parametrize(("h", "s", "n"), [(2, 4, 3)])
def test_gated_delta_net_equals_its_recurrence_and_starts_anew_for_each_item(h: int, s: int, n: int) -> None:
    def build(m: GraphModule) -> dict[str, Value]:
        q, k, v = (m.input(name, [2, s, h, n]) for name in "qkv")
        result, state = m.gated_delta_net(q, k, v, m.input("g", [2, s, h]), m.input("beta", [2, s, h]))
        return {"result": result, "state": state}

    module = GraphModule.define("delta", build)
    rng = np.random.default_rng(0)
    values = {name: rng.standard_normal((1, s, h, n)).astype(np.float32) for name in "qkv"}
    values |= {name: rng.uniform(-1, 0, (1, s, h)).astype(np.float32) for name in ("g", "beta")}
    values = {name: np.repeat(value, 2, axis=0) for name, value in values.items()}
    expected = np.zeros((s, h, n))
    for head in range(h):
        memory = np.zeros((n, n))
        q, k, v = (values[name][0, :, head].astype(np.float64) for name in "qkv")
        for t in range(s):
            memory = memory * np.exp(values["g"][0, t, head])
            delta = (v[t] - memory.T @ k[t]) * values["beta"][0, t, head]
            memory = memory + np.outer(k[t], delta)
            expected[t, head] = memory.T @ q[t] / np.sqrt(n)
    for graph in (module, module.lower()):
        result = interpret(graph, values)["result"]
        np.testing.assert_allclose(result[0], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(result[0], result[1])  # The second item doesn't see the first one's state.


# Fusion -------------------------------------------------------------------------------------------


def test_rms_norm_of_a_sum_that_is_an_output_is_not_fused() -> None:
    def build(m: GraphModule) -> dict[str, Value]:
        total = m.add(m.input("x", [4, 8]), m.input("r", [4, 8]))
        return {"norm": m.rms_norm(total, m.param("gamma", [8])), "sum": total}

    assert kinds(fused(GraphModule.define("m", build).lower())) == {"mir.add": 1, "mir.rms_norm": 1}


def test_rms_norm_of_a_sum_is_fused() -> None:
    def build(m: GraphModule) -> Value:
        return m.rms_norm(m.add(m.input("x", [4, 8]), m.input("r", [4, 8])), m.param("gamma", [8]))

    assert kinds(fused(GraphModule.define("m", build).lower())) == {"mir.fused_residual_rms_norm": 1}


def test_a_bias_that_is_declared_after_the_product_is_fused() -> None:
    def build(m: GraphModule) -> Value:
        product = m.matmul(m.input("x", [4, 8]), m.param("w", [8, 16]))
        return m.silu(m.add(product, m.param("b", [16])))

    lowered = fused(GraphModule.define("m", build).lower())
    assert kinds(lowered) == {"mir.fused_matmul_bias_act": 1}
    assert lowered.nodes()[0].attributes["activation"] == "silu"


@pytest.mark.parametrize("activation", ["exp", "log"])
def test_an_activation_that_no_block_has_stays_outside(activation: str) -> None:
    def build(m: GraphModule) -> Value:
        product = m.matmul(m.input("x", [4, 8]), m.param("w", [8, 16]))
        return getattr(m, activation)(m.add(product, m.param("b", [16])))

    expected = {"mir.fused_matmul_bias_act": 1, f"mir.{activation}": 1}
    assert kinds(fused(GraphModule.define("m", build).lower())) == expected


@pytest.mark.parametrize("gate_first", [False, True])
def test_halves_of_a_product_are_fused_in_either_order(gate_first: bool) -> None:
    def build(m: GraphModule) -> Value:
        c = m.matmul(m.input("x", [4, 8]), m.param("w", [8, 32]))
        first, second = (m.narrow(c, axis=1, start=start, length=16) for start in (0, 16))
        gate, up = (first, second) if gate_first else (second, first)
        return m.mul(m.silu(gate), up)

    module = GraphModule.define("m", build).lower()
    lowered = fused(module)
    assert kinds(lowered) == {"mir.matmul": 1, "mir.fused_swiglu": 1}
    assert bool(lowered.nodes()[1].attributes.get("gate_first")) == gate_first
    rng = np.random.default_rng(0)
    values = {"x": rng.standard_normal((4, 8)).astype(np.float32), "w": rng.standard_normal((8, 32)).astype(np.float32)}
    for before, after in zip(interpret(module, values).values(), interpret(lowered, values).values(), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


def test_products_of_one_input_become_one_and_slices() -> None:
    def build(m: GraphModule) -> dict[str, Value]:
        x = m.input("x", [4, 8])
        return {name: m.matmul(x, m.param(f"w{name}", [8, 8])) for name in "qkv"}

    lowered = fused(GraphModule.define("m", build).lower())
    assert kinds(lowered) == {"mir.concat": 1, "mir.matmul": 1, "mir.narrow": 3}


def test_a_product_with_another_reader_is_not_fused() -> None:
    def build(m: GraphModule) -> dict[str, Value]:
        product = m.matmul(m.input("x", [4, 8]), m.param("w", [8, 16]))
        return {"sum": m.add(product, m.param("b", [16])), "exp": m.exp(product)}

    assert kinds(fused(GraphModule.define("m", build).lower())) == {"mir.matmul": 1, "mir.add": 1, "mir.exp": 1}


def test_a_decoder_block_is_joined_products_and_keeps_its_residual_sums() -> None:
    """The first sum feeds a norm and the second sum: fusing it into the norm would compute it twice."""

    def build(m: GraphModule) -> Value:
        weights = {
            "q_w": m.param("q", [64, 64]),
            "k_w": m.param("k", [64, 32]),
            "v_w": m.param("v", [64, 32]),
            "o_w": m.param("o", [64, 64]),
            "gate_w": m.param("gate", [64, 96]),
            "up_w": m.param("up", [64, 96]),
            "down_w": m.param("down", [96, 64]),
        }
        return m.llama_decoder_block(
            m.input("x", [1, "seq", 64]),
            ln1_gamma=m.param("ln1", [64]),
            ln2_gamma=m.param("ln2", [64]),
            cos=m.param("cos", [32, 8]),
            sin=m.param("sin", [32, 8]),
            num_heads=4,
            num_kv_heads=2,
            head_dim=16,
            **weights,
        )

    module = GraphModule.define("block", build)
    lowered = module.lower()
    assert kinds(lowered) == {
        "mir.rms_norm": 2,
        "mir.matmul": 7,
        "mir.rope": 2,
        "mir.attention": 1,
        "mir.add": 2,
        "mir.silu": 1,
        "mir.mul": 1,
    }
    assert kinds(lowered) == kinds(module.with_fusion_policy("fusable").lower())
    after = kinds(fused(lowered))
    assert after["mir.matmul"] == 4  # q, k, v; o; up and gate; down.
    assert (after["mir.narrow"], after["mir.fused_swiglu"], after["mir.concat"]) == (3, 1, 2)
    assert (after["mir.rms_norm"], after["mir.add"], after["mir.fused_residual_rms_norm"]) == (2, 2, 0)


# Stages and sizes ---------------------------------------------------------------------------------


def dynamic(m: GraphModule) -> Value:
    x = m.input_batch_seq("x", 64)
    y = m.linear(x, m.param("w1", [64, 64]), m.param("b1", [64]), activation="silu")
    return m.linear(y, m.param("w2", [64, 64]), m.param("b2", [64]))


def test_a_template_bound_to_more_tokens_needs_a_larger_arena() -> None:
    template = GraphModule.define("template", dynamic)
    assert template.has_dynamic_dims
    assert set(template.dynamic_symbols) == {"batch", "seq"}
    small, large = (template.bind(batch=1, seq=seq) for seq in (8, 128))
    assert not small.has_dynamic_dims
    assert arena(small) == 8 * 64 * 4
    assert arena(large) == 128 * 64 * 4
    # Without binding, the arena is as large as the declared maxima ask for.
    assert arena(template, maxima={"batch": 1, "seq": 128}) == arena(large)


def test_a_template_serves_every_size_up_to_its_maxima() -> None:
    template = GraphModule.define("template", dynamic)
    executable = compile(template, cache=False, level=1, maxima={"batch": 2, "seq": 16})
    rng = np.random.default_rng(0)
    params = {"w1": (64, 64), "b1": (64,), "w2": (64, 64), "b2": (64,)}
    values = {name: rng.standard_normal(shape).astype(np.float32) * 0.1 for name, shape in params.items()}
    executable.set_params(values)
    for batch, seq in ((1, 1), (2, 16), (1, 7)):
        x = rng.standard_normal((batch, seq, 64)).astype(np.float32)
        (y,) = executable.run({"x": x}).values()
        (expected,) = interpret(template, {"x": x, **values}).values()
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_stages_only_go_forward() -> None:
    module = GraphModule.define("linear", linear)
    lowered = module.lower()
    assert (module.stage, lowered.stage) == ("hir", "mir")
    assert lowered.lower() == lowered
    assert lowered.fusion_policy is None
    with pytest.raises(StageError, match="mir"):
        lowered.with_fusion_policy("fusable")


@pytest.mark.parametrize("stage", ["hir", "mir"])
def test_inspect_shows_arguments_operations_and_outputs(stage: str) -> None:
    module = GraphModule.define("linear", lambda m: {"y": linear(m)})
    text = (module if stage == "hir" else module.lower()).inspect()
    assert text.startswith(f"{stage} module @linear")
    for part in ("input  %x", "param  %w", "param  %b", "output y = "):
        assert part in text
    assert {"hir": "linear", "mir": "fused_matmul_bias_act"}[stage] in text
    assert "test_published.py" in text  # Which line made an operation.


def test_packed_weights_lower_alike_under_both_policies() -> None:
    def build(m: GraphModule) -> Value:
        return m.linear(m.input("x", [4, 64]), m.param("w", [16, 64], packed="q4_1"), m.param("b", [16]))

    module = GraphModule.define("m", build)
    lowered = module.lower()
    assert kinds(lowered) == {"mir.dequant_matmul": 1, "mir.add": 1}
    assert kinds(lowered) == kinds(module.with_fusion_policy("fusable").lower())
    rng = np.random.default_rng(0)
    weights = formats.encode("q4_1", rng.standard_normal((16, 64)).astype(np.float32))
    values = {"x": rng.standard_normal((4, 64)).astype(np.float32), "w": weights, "b": np.ones(16, np.float32)}
    expected = values["x"] @ formats.decode("q4_1", weights, 64).T + 1
    np.testing.assert_allclose(next(iter(interpret(lowered, values).values())), expected, rtol=1e-4, atol=1e-4)


def test_everything_that_cannot_lower_is_reported_at_once() -> None:
    """What runs when parameters are set has no code; the report counts every such operation, and says what to do."""
    panels = "tensor<1x512xi8, #mir.packed<f32, k = 8, n = 16, layout = panels>>"
    results = ", ".join(f'{panels} {{mir.name = "{name}"}}' for name in "ab")
    text = f"""
    func.func @main(%w: tensor<16x8xf32> {{mir.name = "w", mir.kind = "input"}}) -> ({results}) {{
      %a = mir.repack %w : tensor<16x8xf32>
      %n = mir.neg %w : tensor<16x8xf32>
      %b = mir.repack %n : tensor<16x8xf32>
      return %a, %b : {panels}, {panels}
    }}
    """
    module = GraphModule.from_text(text, stage="mir")
    with pytest.raises(PassError, match=r"found 2 mir\.repack; .*'mir-hoist-params'"):
        module.transform("func.func(mir-to-linalg)")
