# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients and steps of training compiled for GPUs, which the emulator of PTX runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases_blocks import BLOCKS
from cases_core import CORE
from cases_images import PICTURES
from cuda_harness import emulated_device
from derivatives import Case, arrays_of, given, module_of
from derivatives import normal as drawn
from test_splats import scene

import rlx_mlir as rlx
from rlx_mlir import GraphModule, optim
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.finetuning.graph import LossGraph
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.models import decoder
from rlx_mlir.models.adapter import new_adapter
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.layers import adapter_names
from rlx_mlir.tools.ops import operation_names

F32 = np.float32


def normal(*shape: int, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.4).astype(F32)


def check(module: GraphModule, values: dict[str, np.ndarray]) -> None:
    """What the emulated device computes, which is what the module means."""
    expected = rlx.interpret(module, values)
    params = {own.name for own in module.params}
    with emulated_device():
        executable = rlx.compile(module, target="cuda", cache=False)
        executable.set_params({name: values[name] for name in params})
        found: dict[str, Any] = executable.run({k: v for k, v in values.items() if k not in params})
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=2e-3, atol=2e-4, err_msg=name)


def layer() -> GraphModule:
    """One layer of a decoder, and the loss of what it says of tokens."""
    m = GraphModule.hir("layer")
    tokens, following = m.input("tokens", [2, 5], "i32"), m.input("following", [10], "i32")
    h = m.param("embedding", [7, 16])[tokens]
    shapes = {
        "ln1_gamma": (16,),
        **dict.fromkeys(("q_w", "o_w"), (16, 16)),
        **dict.fromkeys(("k_w", "v_w"), (16, 8)),
        "ln2_gamma": (16,),
        **dict.fromkeys(("gate_w", "up_w"), (16, 24)),
        "down_w": (24, 16),
    }
    cos, sin = m.input("cos", [5, 4]), m.input("sin", [5, 4])
    own = {name: m.param(name, list(shape)) for name, shape in shapes.items()}
    h = m.llama_decoder_block(h, **own, cos=cos, sin=sin, num_heads=2, num_kv_heads=1, head_dim=8)
    logits = m.reshape(m.linear(h, m.param("head", [16, 7])), [10, 7])
    m.set_outputs({"loss": m.mean(m.softmax_cross_entropy_with_logits(logits, following))})
    return m


#: Cases of derivatives, of which those of operations that are gradients run here, too.
CASES: dict[str, Case] = {**CORE, **BLOCKS, **PICTURES}
VIEW = {"width": 5, "height": 3, "tile_size": 2, "max_list_entries": 16}
CASES["gaussian_splat_render_backward"] = Case(
    lambda b, *given: b.gaussian_splat_render_backward(*given, **VIEW),
    {**{name: given(array, "f32") for name, array in scene(3, 1).items()}, "dy": drawn(60)},
)

#: Of complex numbers, for which there is no code for GPUs.
ON_CPUS = {"mir.complex_norm_sq_backward"}


@pytest.mark.parametrize("op", [name for name in operation_names() if "_backward" in name])
@pytest.mark.quick(18)
def test_every_gradient_that_is_an_operation(op: str):
    """An operation of this kind without a case is a failure: it has to have one."""
    cases = [own for name, own in CASES.items() if name.split(" ")[0] == op.removeprefix("mir.")]
    assert cases, f"{op} has no case among those of derivatives"
    case = replace(
        cases[0], inputs={name: own.of("f32") if own.dtype == "f64" else own for name, own in cases[0].inputs.items()}
    )
    module = module_of(case)
    assert any(node.op == op for node in module.nodes())
    if op in ON_CPUS:
        with pytest.raises(UnsupportedError, match="no code for GPUs"):
            rlx.compile(module, target="nvptx", cache=False)
        return
    check(module, arrays_of(case, op))


@pytest.mark.wide
def test_gradients_of_a_layer():
    module = rlx.value_and_grad(layer())
    values: dict[str, np.ndarray] = {own.name: normal(*own.shape, seed=n) for n, own in enumerate(module.params)}
    angles = np.arange(5)[:, None] / 100.0 ** (np.arange(4) / 4)
    values |= {"cos": np.cos(angles).astype(F32), "sin": np.sin(angles).astype(F32)}
    values["tokens"] = np.random.default_rng(1).integers(0, 7, (2, 5)).astype(np.int32)
    values["following"] = np.random.default_rng(2).integers(0, 7, 10).astype(np.int32)
    check(module, values)


def test_gradients_of_a_convolution():
    m = GraphModule.mir("images")
    x, w = m.input("x", [1, 2, 6, 6]), m.param("w", [3, 2, 3, 3])
    y = m.pool(m.relu(m.conv2d(x, w, padding=1)), "max", 2, stride=2)
    m.set_outputs({"loss": m.mean(y * y)})
    check(rlx.grad(m, ["x", "w"]), {"x": normal(1, 2, 6, 6, seed=1), "w": normal(3, 2, 3, 3, seed=2)})


def test_gradients_of_a_scan():
    m = GraphModule.mir("scan")
    x, h = m.input("x", [4, 8]), m.param("h", [8])
    last, _ = m.scan(lambda state, entry: (m.tanh(state * entry), None), h, x)
    m.set_outputs({"loss": m.sum(last * last)})
    check(rlx.grad(m, ["x", "h"]), {"x": normal(4, 8, seed=1), "h": normal(8, seed=2)})


def test_a_step_of_training():
    m = GraphModule.mir("step")
    x, w = m.input("x", [5, 6]), m.param("w", [6, 3])
    y = m.tanh(m.matmul(x, w))
    m.set_outputs({"loss": m.mean(y * y)})
    step = optim.train_step(m, optim.adamw(), clip_norm=0.1)
    values = {"x": normal(5, 6, seed=1), "w": normal(6, 3, seed=2), "optim.rate": F32(0.01), **step.state}
    check(step.module, {name: np.asarray(array) for name, array in values.items()})


@pytest.mark.slow  # its layers are those of test_gradients_of_a_layer, its optimiser that of test_a_step_of_training
def test_a_step_of_a_low_rank_adapter(tiny_llama: Path) -> None:
    """Of a model whose weights are packed."""
    file = GGUFFile(tiny_llama)
    config = ModelConfig.from_gguf(file)
    adapter = new_adapter(config, ("attn_q", "attn_v"), 2, 4.0, seed=1)
    trained = {
        name: array + normal(*array.shape, seed=1) / 10  # one of the two begins as zeros
        for product, factors in adapter.factors.items()
        for name, array in zip(adapter_names(product), factors, strict=True)
    }
    loss = LossGraph(config, 1, 5, adapter.ranks, adapter.scales).build()
    step = optim.train_step(loss, optim.adamw(), list(trained), clip_norm=1.0)
    tokens = np.random.default_rng(1).integers(0, config.vocab, (1, 6)).astype(np.int32)
    values = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "weights": np.full((1, 5), 0.2, F32)}
    values |= {**decoder.parameters(config, file, 5), **trained, "optim.rate": F32(0.01), **step.state}
    check(step.module, {name: np.asarray(array) for name, array in values.items()})
