# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention blocks and encoder layers that are one operation each, and what they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compile_harness import Program, compile_fresh
from compile_harness import check as check_program
from gpu_harness import compile_emulated
from linalg_harness import normal

from rlx_mlir import GraphModule, interpret
from rlx_mlir.errors import BuildError
from rlx_mlir.mir import REFERENCES

HEADS, WIDTH, INNER, OUTER = 2, 4, 6, 10
ALL = HEADS * WIDTH


def weights(dtype: Any = np.float64) -> dict[str, np.ndarray]:
    shapes = {
        "qkv_w": (INNER, 3 * ALL),
        "out_w": (ALL, INNER),
        "fc1_w": (INNER, OUTER),
        "fc2_w": (OUTER, INNER),
        "qkv_b": (3 * ALL,),
        "out_b": (INNER,),
        "fc1_b": (OUTER,),
        **dict.fromkeys(("fc2_b", "ln1_g", "ln1_b", "ln2_g", "ln2_b"), (INNER,)),
    }
    return {name: normal(*shape, dtype=dtype, seed=i, scale=0.5) for i, (name, shape) in enumerate(shapes.items())}


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Heads [B, S, H, D] turned as complex numbers are, by their positions."""
    half = WIDTH // 2
    turn = (cos + 1j * sin)[: x.shape[1], None]
    turned = (x[..., :half] + 1j * x[..., half:]) * turn
    return np.concatenate([turned.real, turned.imag], axis=-1)


def attended(hidden: np.ndarray, mask: np.ndarray, tables: Any = None, **w: np.ndarray) -> np.ndarray:
    """Position by position, head by head."""
    batch, length, _ = hidden.shape
    qkv = hidden @ w["qkv_w"] + w.get("qkv_b", 0)
    q, k, v = (qkv[..., i * ALL : (i + 1) * ALL].reshape(batch, length, HEADS, WIDTH) for i in range(3))
    if tables is not None:
        q, k = rotated(q, *tables), rotated(k, *tables)
    result = np.zeros((batch, length, HEADS, WIDTH))
    seen = mask[:, None, None] if mask.ndim == 2 else mask
    seen = np.broadcast_to(seen, (batch, HEADS, length, length))
    for b, h, i in np.ndindex(batch, HEADS, length):
        keys = np.flatnonzero(seen[b, h, i])
        if len(keys):
            scores = np.exp(k[b, keys, h] @ q[b, i, h] / np.sqrt(WIDTH))
            result[b, i, h] = scores @ v[b, keys, h] / scores.sum()
    return result.reshape(batch, length, ALL) @ w["out_w"] + w.get("out_b", 0)


def normalised(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray | float, eps: float) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * gamma + beta


def some_mask(batch: int, length: int, *, whole: bool) -> np.ndarray:
    """Keys that are seen; the last batch item, or its first query, sees none."""
    rng = np.random.default_rng(length)
    mask = rng.random((batch, HEADS, length, length) if whole else (batch, length)) < 0.6
    mask[-1] &= False
    return mask


def block(module: GraphModule, arguments: dict[str, Any], **operands: Any) -> Any:
    return module.fused_attention_block(
        *(arguments[name] for name in ("hidden", "qkv_w", "out_w", "mask")), num_heads=HEADS, head_dim=WIDTH, **operands
    )


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("has_rope", [False, True])
def test_reference_of_blocks(whole: bool, has_bias: bool, has_rope: bool) -> None:
    w, hidden, mask = weights(), normal(2, 5, INNER, dtype=np.float64), some_mask(2, 5, whole=whole)
    tables = [normal(7, WIDTH // 2, dtype=np.float64, seed=seed) for seed in (3, 4)] if has_rope else None
    biases = {name: w[name] for name in ("qkv_b", "out_b") if has_bias}
    want = attended(hidden, mask, tables, qkv_w=w["qkv_w"], out_w=w["out_w"], **biases)
    found = REFERENCES["mir.fused_attention_block"](
        hidden, w["qkv_w"], w["out_w"], mask, *(biases.get(name) for name in ("qkv_b", "out_b")),
        *(tables or (None, None)), num_heads=HEADS, head_dim=WIDTH,
    )  # fmt: skip
    np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("has_bias", [False, True])
def test_reference_of_layers(has_bias: bool) -> None:
    w, hidden, mask = weights(), normal(2, 5, INNER, dtype=np.float64), some_mask(2, 5, whole=False)
    if not has_bias:
        w = {name: array for name, array in w.items() if not name.endswith("_b")}
    own = {name: w[name] for name in ("qkv_w", "out_w", "qkv_b", "out_b") if name in w}
    h = normalised(attended(hidden, mask, **own) + hidden, w["ln1_g"], w.get("ln1_b", 0.0), 0.25)
    inner = np.maximum(h @ w["fc1_w"] + w.get("fc1_b", 0), 0) @ w["fc2_w"] + w.get("fc2_b", 0)
    want = normalised(inner + h, w["ln2_g"], w.get("ln2_b", 0.0), 2.0**-10)
    first = [w[name] for name in ("qkv_w", "out_w", "ln1_g", "fc1_w", "fc2_w", "ln2_g")]
    rest = [w.get(name) for name in ("qkv_b", "out_b", "ln1_b", "fc1_b", "fc2_b", "ln2_b")]
    found = REFERENCES["mir.fused_transformer_layer"](
        hidden, *first, mask, *rest, num_heads=HEADS, head_dim=WIDTH, activation="relu", eps1=0.25, eps2=2.0**-10
    )
    np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "dtype", ["f32", pytest.param("bf16", marks=pytest.mark.slow), pytest.param("f64", marks=pytest.mark.slow)]
)
def test_compiled_blocks(dtype: str) -> None:
    p = Program()
    own: dict[str, Any] = {"hidden": p.input("hidden", ["b", "s", INNER], dtype)}
    own["mask"] = p.input("mask", ["b", "s"], "i1", lambda rng, shape: rng.random(shape) < 0.7)
    for name, array in weights().items():
        if name in ("qkv_w", "out_w", "qkv_b"):
            own[name] = p.param(name, array.shape, dtype)
    tables = {name: p.param(name, [9, WIDTH // 2], "f32") for name in ("cos", "sin")}
    p.output(plain=block(p.m, own), full=block(p.m, own, qkv_b=own["qkv_b"], **tables))
    check_program(p, [{"b": b, "s": s} for b, s in ((2, 5), (1, 1), (0, 3), (3, 9))])


@pytest.mark.parametrize(
    "dtype", ["f16", pytest.param("f32", marks=pytest.mark.slow), pytest.param("f64", marks=pytest.mark.slow)]
)
def test_compiled_layers(dtype: str) -> None:
    p = Program()
    hidden = p.input("hidden", ["b", "s", INNER], dtype)
    mask = p.input("mask", ["b", 1, 1, "s"], "i1", lambda rng, shape: rng.random(shape) < 0.7)
    own: dict[str, Any] = {name: p.param(name, array.shape, dtype) for name, array in weights().items()}
    first = [own.pop(name) for name in ("qkv_w", "out_w", "ln1_g", "fc1_w", "fc2_w", "ln2_g")]
    heads = {"num_heads": HEADS, "head_dim": WIDTH}
    p.output(
        plain=p.m.fused_transformer_layer(hidden, *first, mask, **heads, activation="silu"),
        full=p.m.fused_transformer_layer(hidden, *first, mask, **own, **heads, eps1=1e-3),
    )
    check_program(
        p, [{"b": b, "s": s} for b, s in ((2, 5), (1, 1), (0, 3))], tolerance=4e-3 if dtype == "f16" else None
    )


def test_kernels_are_those_of_the_parts() -> None:
    """An attention block is products and attention, with their templates."""
    module = GraphModule.mir("parts")
    own: dict[str, Any] = {
        "hidden": module.input("hidden", ["b", "s", INNER]),
        "mask": module.input("mask", ["b", "s"]),
    }
    own |= {name: module.param(name, weights()[name].shape) for name in ("qkv_w", "out_w")}
    module.set_outputs({"y": block(module, own)})
    assert {"attention"} < set(compile_fresh(module).artifact.templates.values())


@pytest.mark.wide
def test_on_gpus() -> None:
    module = GraphModule.mir("gpu")
    own: dict[str, Any] = {
        "hidden": module.input("hidden", [2, "s", INNER]),
        "mask": module.input("mask", [2, "s"], "i1"),
    }
    own |= {name: module.param(name, weights()[name].shape) for name in ("qkv_w", "out_w")}
    module.set_outputs({"y": block(module, own)})
    executable = compile_emulated(module)
    params = {name: weights(np.float32)[name] for name in ("qkv_w", "out_w")}
    executable.set_params(params)
    given = {"hidden": normal(2, 5, INNER), "mask": some_mask(2, 5, whole=False)}
    want = interpret(module, given | params)["y"]
    np.testing.assert_allclose(executable.run(given)["y"], want, rtol=1e-4, atol=1e-5)


def test_builders_say_what_is_wrong() -> None:
    module = GraphModule.mir("built")
    own: dict[str, Any] = {"hidden": module.input("hidden", [2, 5, INNER]), "mask": module.input("mask", [2, 4], "i1")}
    own |= {name: module.param(name, weights()[name].shape) for name in ("qkv_w", "out_w")}
    with pytest.raises(BuildError, match=r"'mask' to be \[2, 5\]"):
        block(module, own)
    with pytest.raises(BuildError, match="'cos' and 'sin' together"):
        block(module, own | {"mask": module.input("m", [2, 5], "i1")}, cos=module.param("cos", [5, 2]))
