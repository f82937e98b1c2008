# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products compiled for GPUs end to end: which schedule they get, and what they give on an emulated GPU."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from cuda_harness import emulated_device
from gpu_products import CHIPS, TYPES

import rlx_mlir as rlx
from rlx_mlir import GraphModule, formats, interpret

RNG = np.random.default_rng(0)


def dense(element: str) -> tuple[GraphModule, dict[str, np.ndarray]]:
    """gelu(x W + b) + r"""
    m = GraphModule.mir("dense")
    x, r = m.input("x", ["s", 96], dtype=element), m.input("r", ["s", 72], dtype=element)
    w, b = m.param("w", [72, 96], dtype=element), m.param("b", [72], dtype=element)
    m.set_outputs({"y": m.fused_matmul_bias_act(x, w, b, activation="gelu", transpose_rhs=True) + r})
    values = {name: RNG.standard_normal(shape).astype(TYPES[element]) for name, shape in (("w", (72, 96)), ("b", 72))}
    return m, values


def packed(scheme: str) -> tuple[GraphModule, dict[str, np.ndarray]]:
    """x W, W packed"""
    m = GraphModule.mir("packed")
    x, w = m.input("x", ["s", 256]), m.param("w", [72, 256], packed=scheme)
    m.set_outputs({"y": m.dequant_matmul(x, w)})
    return m, {"w": formats.encode(scheme, RNG.standard_normal((72, 256)).astype(np.float32))}


def batched() -> tuple[GraphModule, dict[str, np.ndarray]]:
    """x y, of two activations with batches"""
    m = GraphModule.mir("batched")
    x, y = m.input("x", ["b", "s", 40], dtype="f16"), m.input("y", ["b", 40, "t"], dtype="f16")
    m.set_outputs({"y": m.matmul(x, y)})
    return m, {}


CASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "bf16": (lambda: dense("bf16"), {}, "gemm_mma"),
    "f32": (lambda: dense("f32"), {}, "gemm_fma"),
    "q4_k": (lambda: packed("q4_k"), {}, "gemm_decoded"),
    "q4_1 int8": (lambda: packed("q4_1"), {"activations": "int8"}, "gemm_block_dot"),
    "batched": (batched, {}, "gemm_mma"),
}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.quick(1)
def test_a_compiled_product_on_an_emulated_gpu(name: str, chip: str) -> None:
    build, options, schedule = CASES[name]
    module, params = build()
    options = {**options, "maxima": {"s": 128, "b": 4, "t": 64} if name == "batched" else {"s": 128}}
    text = rlx.emit(module, "linalg", target="nvptx", chip=chip, **options)
    assert schedule in "|".join(re.findall(r'mir\.template = "([^"]*)"', text))
    reference = module
    if options.get("activations") == "int8":
        reference = module.lower().transform("rlx-fuse,mir-quantize-activations,cse")
    with emulated_device(chip):
        executable = rlx.compile(module, target="cuda", chip=chip, cache=False, **options)
        executable.set_params(params)
        for s in (9, 33, 100):
            inputs = random_inputs(name, s)
            want, got = interpret(reference, {**inputs, **params})["y"], executable.run(inputs)["y"]
            # The references of halves round after each operation.
            bound = 2.0**-5 if want.dtype != np.float32 else 1e-4
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=bound, atol=bound)
        del executable


def random_inputs(name: str, s: int) -> dict[str, np.ndarray]:
    if name == "batched":
        shapes: dict[str, tuple[int, ...]] = {"x": (3, s, 40), "y": (3, 40, s // 3)}
        return {key: RNG.standard_normal(shape).astype(np.float16) for key, shape in shapes.items()}
    shapes = {"x": (s, 256)} if name.startswith("q") else {"x": (s, 96), "r": (s, 72)}
    dtype = TYPES["bf16" if name == "bf16" else "f32"]
    return {key: RNG.standard_normal(shape).astype(dtype) for key, shape in shapes.items()}
