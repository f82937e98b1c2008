# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs that have broken other compilers, and what must hold bit for bit."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from compile_harness import Program, Ways, check, compile_fresh, every, integers, normal, scaled, templates_of

from rlx_mlir import Artifact, Executable, GraphModule, Value, emit, formats, interpret


def everywhere(
    build: Any, inputs: dict[str, np.ndarray], params: dict[str, np.ndarray] | None = None
) -> dict[str, Any]:
    """The results of a module by the way in which they were computed."""
    ways = Ways(GraphModule.define("case", build))
    ways.set_params(params or {})
    return ways.run(inputs)


def qkv(rng: np.random.Generator, queries: int, keys: int, heads: int = 1, kv: int = 1, width: int = 2) -> Any:
    shapes = {"q": (1, queries, heads * width), "k": (1, keys, kv * width), "v": (1, keys, kv * width)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


# -- attention -------------------------------------------------------------------------------------------------------


def test_a_row_whose_keys_are_all_masked_is_zero() -> None:
    """4 queries and keys of one head of 2; query 1 sees no key."""
    inputs = qkv(np.random.default_rng(0), 4, 4)
    shown = np.ones((1, 1, 4, 4), np.bool_)
    shown[0, 0, 1] = False

    def build(m: GraphModule) -> Any:
        q, k, v = (m.input(name, array.shape) for name, array in inputs.items())
        mask = m.input("mask", [1, 1, 4, 4], "i1")
        return {"y": m.attention(q, k, v, mask, num_heads=1, head_dim=2, mask_kind="custom")}

    scores = inputs["q"][0] @ inputs["k"][0].T / np.sqrt(2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ inputs["v"][0]
    for way, results in everywhere(build, {**inputs, "mask": shown}).items():
        assert not results["y"][0, 1].any(), way
        np.testing.assert_allclose(results["y"][0, [0, 2, 3]], expected[[0, 2, 3]], rtol=1e-5, err_msg=way)


def test_masked_rows_are_zero_for_every_kind_of_mask() -> None:
    """Results of templates and of generic code, of references at both stages: zeros, never NaN."""
    rng = np.random.default_rng(1)
    inputs = qkv(rng, 5, 2, heads=4, kv=2, width=8)
    inputs |= {
        "keys": np.zeros((1, 2), np.float32),
        "bools": np.zeros((1, 2), np.bool_),
        "bias": np.full((1, 1, 1, 2), -np.inf, np.float32),
    }
    heads: dict[str, Any] = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8}

    def build(m: GraphModule) -> Any:
        q, k, v, keys, bools, bias = (m.input(name, array.shape, str(array.dtype)) for name, array in inputs.items())
        return {
            "keys": m.attention(q, k, v, keys, mask_kind="custom", **heads),
            "bools": m.attention(q, k, v, bools, mask_kind="custom", **heads),
            "bias": m.attention(q, k, v, bias, mask_kind="bias", **heads),
            "causal": m.attention(q, k, v, mask_kind="causal", **heads),
            "window": m.attention(q, k, v, mask_kind="sliding_window", window=1, **heads),
        }

    ways = Ways(GraphModule.define("masked", build))
    templates = {name.removesuffix("_amx") for name in templates_of(ways.templates).values()}
    assert templates == {"attention", "broadcast"}  # bools become numbers
    ways.set_params({})
    for way, results in ways.run(inputs).items():
        for name, y in results.items():
            zero = slice(0, 3) if name in ("causal", "window") else slice(0, 5)
            assert not y[0, zero].any(), (way, name)
            assert np.isfinite(y).all(), (way, name)
            assert name not in ("causal", "window") or y[0, 3:].all(), (way, name)


@pytest.mark.parametrize(("queries", "keys"), [(2, 5), (5, 2)])
@pytest.mark.quick(1)
def test_causal_masks_stand_at_the_bottom_right(queries: int, keys: int) -> None:
    """The last query sees all keys: of 2 queries and 5 keys the first sees 4; of 5 queries and 2 keys 3 see none."""
    inputs = qkv(np.random.default_rng(2), queries, keys)
    inputs["q"][:] = 0  # equal scores: the result is the mean of the keys' values
    inputs["v"][:] = 2.0 ** np.arange(keys)[None, :, None]

    def build(m: GraphModule) -> Any:
        q, k, v = (m.input(name, array.shape) for name, array in inputs.items())
        return {"y": m.attention(q, k, v, num_heads=1, head_dim=2, mask_kind="causal")}

    seen = [max(0, i + 1 + keys - queries) for i in range(queries)]
    expected = [sum(2.0**j for j in range(n)) / n if n else 0.0 for n in seen]
    for way, results in everywhere(build, inputs).items():
        np.testing.assert_allclose(results["y"][0, :, 0], expected, rtol=1e-6, err_msg=way)


@pytest.mark.parametrize(("heads", "kv"), [(4, 2), (12, 12), (32, 8), (28, 4), (9, 3), (4, 1)])
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.quick(1)
def test_query_heads_share_neighbouring_kv_heads(heads: int, kv: int, queries: int) -> None:
    """The value of kv head c is c: of 4 query heads over 2, heads read [0, 0, 1, 1]."""
    inputs = qkv(np.random.default_rng(3), queries, 3, heads, kv, 4)
    inputs["v"][:] = np.repeat(np.arange(kv), 4)

    def build(m: GraphModule) -> Any:
        q, k, v = (m.input(name, array.shape) for name, array in inputs.items())
        return {"y": m.attention(q, k, v, num_heads=heads, num_kv_heads=kv, head_dim=4)}

    expected = np.repeat(np.arange(heads) // (heads // kv), 4)
    for way, results in everywhere(build, inputs).items():
        np.testing.assert_allclose(results["y"][0], np.broadcast_to(expected, (queries, heads * 4)), 1e-6, err_msg=way)


@pytest.mark.slow
def test_both_layouts_of_rope_are_one_model() -> None:
    """Weights for pairs (i, i + d/2), and the same with columns reordered for pairs (2i, 2i + 1), as in GGUF files."""
    heads, kv, d, hidden = 4, 2, 8, 32

    def model(style: str) -> GraphModule:
        m = GraphModule.hir(style)
        x, pos = m.input("x", [1, "seq", hidden]), m.input("pos", [1], "i32")
        cos, sin = m.param("cos", [16, d // 2]), m.param("sin", [16, d // 2])
        shapes = {
            "q_w": [hidden, heads * d],
            "k_w": [hidden, kv * d],
            "v_w": [hidden, kv * d],
            "o_w": [heads * d, hidden],
        }
        shapes |= {"gate_w": [hidden, 48], "up_w": [hidden, 48], "down_w": [48, hidden]}
        weights = {name: m.param(name, shape) for name, shape in shapes.items()}
        gammas = {name: m.param(name, [hidden]) for name in ("ln1_gamma", "ln2_gamma")}
        sizes: dict[str, Any] = {"num_heads": heads, "num_kv_heads": kv, "head_dim": d, "style": style}
        m.set_outputs({"y": m.llama_decoder_block(x, **weights, **gammas, cos=cos, sin=sin, pos=pos, **sizes)})
        return m

    rng = np.random.default_rng(6)
    half = model("half")
    params = {v.name: rng.standard_normal(v.shape).astype(np.float32) / 4 for v in half.params}
    angles = np.arange(16)[:, None] * 100.0 ** (-np.arange(d // 2) / (d // 2))
    params |= {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    order = np.arange(d).reshape(2, d // 2).T.reshape(-1)  # 0, d/2, 1, d/2 + 1, ...
    turned = dict(params)
    for name in ("q_w", "k_w"):
        turned[name] = params[name].reshape(hidden, -1, d)[:, :, order].reshape(params[name].shape)
    inputs = {"x": rng.standard_normal((1, 5, hidden)).astype(np.float32), "pos": np.array([3], np.int32)}
    expected = interpret(half, {**inputs, **params})["y"]
    for module, own in ((half, params), (model("interleaved"), turned)):
        ways = Ways(module)
        ways.set_params(own)
        for way, results in ways.run(inputs).items():
            np.testing.assert_allclose(results["y"], expected, rtol=1e-4, atol=1e-5, err_msg=f"{module.name} {way}")
    wrong = interpret(model("interleaved"), {**inputs, **params})["y"]
    assert np.abs(wrong - expected).max() > 0.01


# -- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activations", ["exact", "int8"])
@pytest.mark.quick(1)
def test_blocks_whose_sum_is_beyond_f16(activations: str) -> None:
    """32 activations of 2500 sum to 80 000: finite, and the product with decoded weights but for rounding to 8 bits."""
    rng = np.random.default_rng(4)
    values = rng.standard_normal((17, 32)).astype(np.float32)
    data = formats.encode("q4_1", values)
    m = GraphModule.hir("large")
    m.set_outputs({"y": m.linear(m.input("x", ["rows", 32]), m.param("w", [17, 32], packed="q4_1"))})
    ways = Ways(m, activations=activations)
    ways.set_params({"w": data})
    x = np.full((3, 32), 2500, np.float32)
    expected = x @ formats.decode("q4_1", data, 32).T
    for way, results in ways.run({"x": x}).items():
        assert np.isfinite(results["y"]).all(), way
        np.testing.assert_allclose(results["y"], expected, rtol=1e-3, atol=80_000 / 127 / 100, err_msg=way)


def test_maxima_of_what_is_no_number() -> None:
    x = np.array([[np.nan, 1], [2, np.nan], [3, -np.inf]], np.float32)

    def build(m: GraphModule) -> Any:
        v = m.input("x", x.shape)
        return {"max": m.max(v, 1), "min": m.min(v, 1), "pair": m.maximum(v, 0.0), "relu": m.relu(v)}

    for way, results in everywhere(build, {"x": x}).items():
        np.testing.assert_array_equal(results["max"], [np.nan, np.nan, 3], err_msg=way)
        np.testing.assert_array_equal(results["min"], [np.nan, np.nan, -np.inf], err_msg=way)
        np.testing.assert_array_equal(results["pair"], [[np.nan, 1], [2, np.nan], [3, 0]], err_msg=way)
        np.testing.assert_array_equal(results["relu"], [[np.nan, 1], [2, np.nan], [3, 0]], err_msg=way)


# -- memory ----------------------------------------------------------------------------------------------------------


def test_a_second_run_gives_what_the_first_gave() -> None:
    """Nothing that a run leaves in the arena, in scratch memory or in outputs is seen by the next one."""
    p = Program()
    x, w = p.input("x", ["a", 24]), p.param("w", [24, 24])
    hidden = p.m.gelu(p.m.mm(x, w))
    p.output(sum=p.m.sum(hidden, 0), softmax=p.m.softmax(hidden, 0), cumsum=p.m.cumsum(p.m.mm(hidden, w), 0))
    for options in ({}, {"disable_templates": ("all",)}):
        executable = compile_fresh(p.finish(), **options)
        small, params = p.values({"a": 3})
        executable.set_params(params)
        first = executable.run(small)
        executable.run(p.values({"a": 40}, seed=9)[0])
        executable.run({"x": np.full((40, 24), np.nan, np.float32)})
        again = executable.run(small)
        assert {n: y.tobytes() for n, y in first.items()} == {n: y.tobytes() for n, y in again.items()}


def test_an_operand_that_is_read_again_stays() -> None:
    """%0 = a + a; %1 = %0 + a."""
    p = Program()
    a = p.input("a", ["n", 6])
    twice = a + a
    p.output(thrice=twice + a, a=a)
    ways = check(p, every(n=[0, 1, 4]))
    x = np.arange(6, dtype=np.float32)[None]
    for results in ways.run({"a": x}).values():
        np.testing.assert_array_equal(results["thrice"], 3 * x)
        np.testing.assert_array_equal(results["a"], x)


def test_batched_products_of_dynamic_matrices() -> None:
    """[32, ?, 64] times [32, 64, ?], with no buffer on the stack whose size isn't known."""
    p = Program()
    p.output(y=p.m.mm(p.input("x", [32, "a", 64]), p.input("w", [32, 64, "b"])))
    check(p, every(a=[0, 1, 5, 17], b=[0, 1, 5, 17]))
    stack = re.findall(r"= alloca .*", emit(p.m, "llvm", disable_templates=("all",)))
    assert not [line for line in stack if re.search(r"i64 %", line)]


def largest_constant(llvm: str) -> int:
    """Bytes of the largest constant in LLVM IR, at least: counts of elements, times the last one's width."""
    sizes = [0]
    for counts, width in re.findall(r"constant ((?:\[\d+ x )+)[a-z]+(\d*)", llvm):
        sizes.append(int(np.prod([int(n) for n in re.findall(r"\d+", counts)])) * max(int(width or 32) // 8, 1))
    return max(sizes)


def test_no_constant_grows_by_folding() -> None:
    """Tables of rope and the pieces of a mask of 1024 x 1024 are constants; nothing folds them to a megabyte."""
    length, heads, width = 1024, 2, 8
    angles = np.arange(length)[:, None] * 0.5 ** np.arange(width // 2)
    m = GraphModule.hir("layer")
    rows, columns = (m.reshape(m.constant(np.arange(length, dtype=np.float32)), s) for s in ([length, 1], [1, length]))
    mask = m.reshape(m.cast(m.compare("ge", rows, columns), "f32"), [1, 1, length, length])
    size = heads * width
    weights: dict[str, Any] = {
        f"{name}_w": m.param(f"{name}_w", [size, size]) for name in ("q", "k", "v", "o", "gate", "up", "down")
    }
    y = m.llama_decoder_block(
        m.input("x", [1, length, size]),
        ln1_gamma=m.constant(np.ones(size, np.float32)),
        ln2_gamma=m.constant(np.ones(size, np.float32)),
        cos=m.constant(np.cos(angles).astype(np.float32)),
        sin=m.constant(np.sin(angles).astype(np.float32)),
        mask=mask,
        mask_kind="custom",
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=width,
        **weights,
    )
    m.set_outputs({"y": y})
    for options in ({}, {"disable_templates": ("all",)}):
        text = emit(m, "llvm", **options)
        assert largest_constant(text) <= 1 << 20
        assert len(text) < 4 << 20


# -- the same bits ---------------------------------------------------------------------------------------------------


def test_runs_give_the_same_bits() -> None:
    """Unit dimensions, 20 runs each, with optimised and with plain code."""
    shapes = [(1, 2, 6), (1, 22, 10), (1, 15, 2), (1, 4, 4)]
    m = GraphModule.hir("unit")
    outputs: dict[str, Value] = {}
    for number, shape in enumerate(shapes):
        x = m.input(f"x{number}", shape)
        outputs |= {
            f"softmax{number}": m.softmax(x, 1),
            f"cumsum{number}": m.cumsum(x, 0),
            f"silu{number}": m.silu(x) * x,
            f"mean{number}": m.mean(m.exp(x), [0, 2], keep_dims=True) + x,
        }
    m.set_outputs(outputs)
    rng = np.random.default_rng(5)
    inputs = {f"x{i}": rng.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)}
    expected = interpret(m, inputs)
    for options in ({}, {"disable_templates": ("all",)}, {"disable_templates": ("all",), "level": 0}):
        executable = compile_fresh(m, **options)
        first = executable.run(inputs)
        for name, y in first.items():
            np.testing.assert_allclose(y, expected[name], rtol=2e-6, atol=1e-6)
        for _ in range(19):
            for name, y in executable.run(inputs).items():
                assert y.tobytes() == first[name].tobytes(), name


def kernels_of_every_class(activations: str) -> Program:
    """A module with products of dense and packed weights, rows, and attention with a cache."""
    p = Program()
    m = p.m
    x, pos = p.input("x", ["b", "s", 64], make=normal), p.input("pos", ["b"], "i32", integers(0, 1))
    gamma, bias = p.param("gamma", [64]), p.param("bias", [96])
    dense, packed = p.param("dense", [64, 96]), p.param("packed", [64, 96], packed="q4_1")
    qkv_w, cos, sin = p.param("qkv_w", [64, 64], packed="q8_0"), p.param("cos", [64, 4]), p.param("sin", [64, 4])
    n = m.rms_norm(x, gamma)
    y = x + m.linear(m.linear(n, dense, bias, activation="silu"), packed)
    q = m.rope(m.linear(y, qkv_w), cos, sin, head_dim=8, style="half", pos=pos)
    k, v = (p.input(f"{name}_cache", ["b", 64, 16], make=scaled(0)) for name in "kv")
    new = m.narrow(m.softmax(y), -1, 0, 16)
    attended, keys, values = m.attention(
        q, new, new, k_cache=k, v_cache=v, pos=pos, num_heads=8, num_kv_heads=2, head_dim=8, mask_kind="causal"
    )
    p.output(y=y, attended=attended, keys=keys, values=values)
    return p


@cache
def artifact_of_every_class(activations: str, *disabled: str) -> Artifact:
    """What it compiles to, which several tests run."""
    module = kernels_of_every_class(activations).finish()
    return compile_fresh(module, activations=activations, disable_templates=disabled).artifact


@pytest.mark.parametrize("activations", ["exact", "int8"])
@pytest.mark.quick(1)
def test_threads_do_not_change_bits(activations: str) -> None:
    p = kernels_of_every_class(activations)
    p.finish()
    inputs, params = p.values({"b": 3, "s": 37})
    for disabled in ((), ("all",)):
        artifact = artifact_of_every_class(activations, *disabled)
        results = []
        for threads in (1, 2, 3):
            executable = Executable(artifact, threads=threads)
            executable.set_params(params)
            assert executable.threads == threads
            results.append({name: y.tobytes() for name, y in executable.run(inputs).items()})
        assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("activations", ["exact", "int8"])
@pytest.mark.quick(1)
def test_batches_and_chunks_do_not_change_bits(activations: str) -> None:
    """An item of a batch gives what it gives alone, and a prompt in chunks what it gives at once."""
    p = kernels_of_every_class(activations)
    p.finish()
    executable = Executable(artifact_of_every_class(activations), threads=2)
    assert "generic" not in templates_of(executable).values()
    inputs, params = p.values({"b": 5, "s": 19})
    executable.set_params(params)
    whole = executable.run(inputs)
    for item in range(5):
        alone = executable.run({name: array[item : item + 1] for name, array in inputs.items()})
        for name, y in alone.items():
            assert y[0].tobytes() == whole[name][item].tobytes(), (name, item)
    for cuts in ([1, 2, 3, 19], [8, 16, 19], [18, 19], list(range(1, 20))):
        state, parts, start = dict(inputs), [], 0
        for stop in cuts:
            state |= {"x": inputs["x"][:, start:stop], "pos": inputs["pos"] + np.int32(start)}
            results = executable.run(state)
            state |= {"k_cache": results["keys"], "v_cache": results["values"]}
            parts.append(results["attended"])
            start = stop
        assert np.concatenate(parts, 1).tobytes() == whole["attended"].tobytes(), cuts
        assert results["keys"].tobytes() == whole["keys"].tobytes(), cuts
