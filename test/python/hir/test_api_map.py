# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every member of `GraphModule` that docs/api-map.md names exists, and every builder in it builds."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx_mlir import Artifact, CompileOptions, Executable, GraphModule, Value
from rlx_mlir.frontends.gguf import GGUFFile
from rlx_mlir.hir.algebra import AlgebraBuilders
from rlx_mlir.hir.backward import Gradients
from rlx_mlir.hir.blocks import Blocks
from rlx_mlir.hir.chains import Chains
from rlx_mlir.hir.complexes import ComplexBuilders
from rlx_mlir.hir.draws import Draws
from rlx_mlir.hir.elementwise import ElementwiseBuilders
from rlx_mlir.hir.images import Images
from rlx_mlir.hir.primitives import Primitives
from rlx_mlir.hir.quantization import QuantizationBuilders
from rlx_mlir.hir.scans import ScanBuilders
from rlx_mlir.hir.shapes import Shapes
from rlx_mlir.hir.spectra import Spectra
from rlx_mlir.hir.splats import Splats

MAP = Path(__file__).parents[3] / "docs" / "api-map.md"


class Graph:
    """A module with values to build from."""

    def __init__(self, stage: str) -> None:
        self.m: GraphModule = getattr(GraphModule, stage)("map")
        self.x = self.m.input_batch_seq("x", 32)
        self.y = self.m.input("y", ["batch", "seq", 32])
        self.w, self.t = self.m.param("w", [32, 64]), self.m.param("t", [64, 32])
        self.packed = self.m.param("packed", [64, 32], packed="q8_0")
        self.bias, self.gamma = self.m.param("bias", [64]), self.m.param("gamma", [32])
        self.cos, self.sin = self.m.param("cos", [16, 4]), self.m.param("sin", [16, 4])
        self.cache, self.pos = self.m.input("cache", ["batch", 16, 32]), self.m.input("pos", ["batch"], "i32")
        self.mask = self.m.input("mask", ["batch", "seq"], "i1")
        self.ids = self.m.input("ids", ["batch", "seq"], "i32")
        self.image, self.small = self.m.input("image", ["batch", 4, "height", 6]), self.m.param("small", [4])
        self.kernel = self.m.param("kernel", [4, 2, 3, 3])
        self.state = self.m.input("state", ["batch", 2, 8, 8])
        self.codes = self.m.input("codes", ["batch", 4], "i8")
        self.rows, self.experts = self.m.input("rows", ["batch", 32]), self.m.input("experts", ["batch"], "i32")
        rows = [self.m.input(name, ["batch", "seq", 2, 8]) for name in ("dq", "dk", "dv")]
        self.delta = [*rows, *(self.m.input(name, ["batch", "seq", 2]) for name in ("dg", "dbeta"))]

    @property
    def steps(self) -> Value:
        """Eight of what a loop carries."""
        return self.m.param(f"steps{len(self.m.params)}", [8, 32])

    def twice(self, carried: Value, by: Value) -> Value:
        """The gradient of 2 x."""
        return self.m.primitives.add(by, by)

    @property
    def rates(self) -> Value:
        return self.m.param("rates", [32, 32])

    @property
    def scene(self) -> list[Value]:
        sizes = {"positions": 6, "scales": 6, "rotations": 8, "opacities": 2, "colors": 6, "sh_coeffs": 0, "meta": 23}
        values = {value.name: value for value in self.m.inputs}
        return [values[name] if name in values else self.m.input(name, [size]) for name, size in sizes.items()]

    @property
    def heads(self) -> dict[str, int]:
        return {"num_heads": 4, "head_dim": 8}

    @property
    def nvfp4(self) -> list[Value]:
        return [self.m.param("nc", [1024], "i8"), self.m.param("ns", [2, 64], "i8"), self.m.param("ng", [1])]

    @property
    def ffn(self) -> dict[str, Value]:
        return {"gate_w": self.w, "up_w": self.w, "down_w": self.t}

    @property
    def decoder(self) -> dict[str, Any]:
        square = self.m.param(f"square{len(self.m.params)}", [32, 32])
        names = ("q_w", "k_w", "v_w", "o_w")
        norms = {"ln1_gamma": self.gamma, "ln2_gamma": self.gamma}
        tables = {"cos": self.cos, "sin": self.sin}
        return {**norms, **dict.fromkeys(names, square), **self.ffn, **tables, **self.heads, "num_kv_heads": 4}

    @property
    def draft(self) -> dict[str, Any]:
        shapes = {"eh_w": (64, 32), "q_gate_w": (32, 64), "k_w": (32, 16), "v_w": (32, 16), "o_w": (32, 32)}
        weights = {name: self.m.param(name, shape) for name, shape in shapes.items()}
        norms = dict.fromkeys(("hnorm_w", "enorm_w", "attn_norm_w", "post_norm_w", "head_norm_w"), self.gamma)
        norms |= dict.fromkeys(("q_norm_w", "k_norm_w"), self.m.param("per_head", [8]))
        tables = {"cos": self.cos, "sin": self.sin, "embed_w": self.packed, "lm_head_w": self.packed}
        return {**weights, **norms, **tables, **self.ffn, "input_ids": self.ids, "last_token_idx": self.pos}

    def sampled(self, b: Any) -> Any:
        values, indices = b.top_k(self.m.input("last", ["batch", 32]), 3)
        floats = [self.m.input(name, ["batch", size]) for name, size in (("controls", 3), ("draws", 16))]
        return b.sample(values, indices, *floats, self.m.input("chosen", ["batch", 16], "i32"), self.pos)[0]

    def encoder(self) -> list[Value]:
        return [self.m.param(name, shape) for name, shape in (("qkv", [32, 96]), ("out", [32, 32]))]

    def quantized(self, b: Any) -> Any:
        return b.block_dot(*b.block_quantize(self.x), self.packed)


UNARY = ["gelu", "gelu_approx", "silu", "relu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "neg", "abs"]
UNARY += ["sin", "cos", "tan", "atan", "round", "erfc", "gelu_slope"]
INTEGER_BINARY = ["floor_div", "floor_rem", "trunc_div", "trunc_rem", "bitwise_and", "bitwise_or", "bitwise_xor"]
BINARY = ["add", "sub", "mul", "div", "pow", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"]
REDUCTIONS = ["sum", "mean", "max", "min", "prod"]

PRIMITIVES: dict[str, Any] = {
    **{name: lambda g, b, name=name: getattr(b, name)(g.x) for name in UNARY},
    **{name: lambda g, b, name=name: getattr(b, name)(g.x, g.y) for name in BINARY},
    **{name: lambda g, b, name=name: getattr(b, name)(g.ids, g.ids) for name in INTEGER_BINARY},
    **{name: lambda g, b, name=name: getattr(b, name)(g.x, -1, keep_dims=True) for name in REDUCTIONS},
    **{name: lambda g, b, name=name: getattr(b, name)(g.mask, -1, keep_dims=True) for name in ("any", "all")},
    "activation": lambda g, b: b.activation("silu", g.x),
    "attention": lambda g, b: b.attention(g.x, g.x, g.x, g.mask, mask_kind="custom", **g.heads),
    "binary": lambda g, b: b.binary("max", g.x, 0),
    "bitwise_not": lambda g, b: b.bitwise_not(g.mask),
    "complex": lambda g, b: b.complex(g.x, g.x),
    **{
        name: lambda g, b, name=name: getattr(b, name)(b.complex(g.x, g.x))
        for name in ("complex_norm_sq", "conjugate", "imag", "real")
    },
    "block_dot": lambda g, b: g.quantized(b),
    "block_quantize": lambda g, b: b.block_quantize(g.x),
    "cache_update": lambda g, b: b.cache_update(g.cache, b.narrow(g.x, 1, 0, 1), g.pos),
    "cast": lambda g, b: b.cast(g.x, "bf16"),
    "compare": lambda g, b: b.compare("ne", g.x, 0.5),
    "concat": lambda g, b: b.concat([g.x, g.y], -1),
    "quantize": lambda g, b: b.quantize(g.x, 0.5, 3),
    "quantize_per_channel": lambda g, b: b.quantize_per_channel(g.image, [0.5] * 4, np.arange(4), axis=1),
    "dequantize": lambda g, b: b.dequantize(g.codes, 0.5),
    "dequantize_per_channel": lambda g, b: b.dequantize_per_channel(g.codes, np.ones(4), [0] * 4, axis=1),
    "fake_quantize": lambda g, b: b.fake_quantize(g.image, g.small, axis=1, scale_mode="ema", decay=0.9)[1],
    "fake_quantize_backward": lambda g, b: b.fake_quantize_backward(g.image, g.small, g.image, axis=1, ste="tanh"),
    "fake_quantize_lsq": lambda g, b: b.fake_quantize_lsq(g.image, g.small, bits=2, axis=1),
    "fake_quantize_lsq_backward_x": lambda g, b: b.fake_quantize_lsq_backward_x(g.image, g.small, g.image, axis=1),
    "fake_quantize_lsq_backward_scale": lambda g, b: b.fake_quantize_lsq_backward_scale(
        g.image, g.small, g.image, axis=1
    ),
    "q_matmul": lambda g, b: b.q_matmul(g.codes, g.m.param("qw", [4, 3], "i8"), mult=0.5, x_zp=1),
    "q_conv2d": lambda g, b: b.q_conv2d(
        g.m.input("qi", ["batch", 4, 5, 6], "i8"), g.m.param("qk", [4, 2, 3, 3], "i8"), mult=0.5, groups=2
    ),
    "conv2d": lambda g, b: b.conv2d(g.image, g.kernel, stride=2, padding=[1, 0], groups=2),
    "cumsum": lambda g, b: b.cumsum(g.x, 1, exclusive=True),
    "scaled_matmul": lambda g, b: b.scaled_matmul(b.cast(g.x, "f8E4M3FN"), b.cast(g.w, "f8E4M3FN")),
    "dequant_matmul": lambda g, b: b.dequant_matmul(g.x, g.packed),
    "dim": lambda g, b: b.dim(g.x, 1, "f32"),
    "top_k": lambda g, b: b.top_k(g.x, 3)[0],
    "sample": lambda g, b: g.sampled(b),
    "dequant_matmul_nvfp4": lambda g, b: b.dequant_matmul_nvfp4(g.x, *g.nvfp4),
    "dynamic_slice": lambda g, b: b.dynamic_slice(g.x, 2, "floordiv(seq, 2)", 1),
    "dynamic_update_slice": lambda g, b: b.dynamic_update_slice(g.x, b.narrow(g.y, 1, 0, 1), 3, 1),
    "expand": lambda g, b: b.expand(g.gamma, [3, 32]),
    "fused_matmul_bias_act": lambda g, b: b.fused_matmul_bias_act(g.x, g.w, g.bias, activation="gelu"),
    "fused_residual_layer_norm": lambda g, b: b.fused_residual_layer_norm(g.x, g.y, g.gamma, g.gamma, bias=g.gamma),
    "fused_residual_rms_norm": lambda g, b: b.fused_residual_rms_norm(g.x, g.y, g.gamma, eps=1e-6),
    "fused_swiglu": lambda g, b: b.fused_swiglu(g.x, gate_first=True),
    "fused_swiglu_ffn": lambda g, b: b.fused_swiglu_ffn(g.x, **g.ffn),
    "gated_delta_net": lambda g, b: b.gated_delta_net(*g.delta, g.state),
    "complex_norm_sq_backward": lambda g, b: b.complex_norm_sq_backward(b.complex(g.x, g.y), g.x),
    "selective_scan": lambda g, b: b.selective_scan(g.x, g.y, g.rates, g.x, g.y)[0],
    "gather": lambda g, b: b.gather(g.packed, g.ids),
    "iota": lambda g, b: b.iota([3, "seq"], -1, "f32"),
    "layer_norm": lambda g, b: b.layer_norm(g.x, g.gamma, g.gamma),
    "linear_bias": lambda g, b: b.linear_bias(g.x, g.w, g.bias),
    "linear_bias_act": lambda g, b: b.linear_bias_act(g.x, g.t, g.bias, activation="relu", transpose_rhs=True),
    "ln": lambda g, b: b.ln(g.x, g.gamma),
    "matmul": lambda g, b: b.matmul(g.x, g.packed),
    "mm": lambda g, b: b.mm(g.x, g.t, transpose_rhs=True),
    "barrier": lambda g, b: b.barrier(g.x),
    "narrow": lambda g, b: b.narrow(g.x, -1, 0, 16),
    "reduce": lambda g, b: b.reduce(g.x, "mean", [0, 1]),
    "repack": lambda g, b: b.repack(g.packed),
    "reshape": lambda g, b: b.reshape(g.x, ["batch", "seq", 4, 8]),
    "rms_norm": lambda g, b: b.rms_norm(g.x, g.gamma, eps=1e-6),
    "rope": lambda g, b: b.rope(g.x, g.cos, g.sin, head_dim=8, style="half", n_rot=4, pos=g.pos),
    "shared_matmul_pair": lambda g, b: b.shared_matmul_pair(g.x, g.w, g.packed),
    "slice": lambda g, b: b.slice(g.x, -1, 1, None, 2),
    "sm": lambda g, b: b.sm(g.x),
    "softmax": lambda g, b: b.softmax(g.x, 1),
    "swiglu_ffn": lambda g, b: b.swiglu_ffn(g.x, **g.ffn),
    "transpose": lambda g, b: b.transpose(g.x, [1, 0, 2]),
    "where": lambda g, b: b.where(b.lt(g.x, 0), 0.0, g.x),
}

ALGEBRA: dict[str, Any] = {
    "batched_dense_solve": lambda g, b: b.batched_dense_solve(b.matmul(g.x, g.y, transpose_rhs=True), g.x),
    "dense_solve": lambda g, b: b.dense_solve(b.narrow(g.w, 1, 0, 32), g.w),
    "dequant_grouped_matmul": lambda g, b: b.dequant_grouped_matmul(g.rows, g.packed, g.experts, experts=4),
    "dequant_moe_weights": lambda g, b: b.dequant_moe_weights(g.packed, experts=4),
    "dot_general": lambda g, b: b.dot_general(g.x, g.w, lhs_contracting=[2], rhs_contracting=[0]),
    "fused_attention_block": lambda g, b: b.fused_attention_block(g.x, *g.encoder(), g.mask, **g.heads),
    "fused_transformer_layer": lambda g, b: b.fused_transformer_layer(
        g.x, *g.encoder(), g.gamma, g.w, g.t, g.gamma, g.mask, ln1_b=g.gamma, **g.heads
    ),
    "gather_backward": lambda g, b: b.gather_backward(g.x, g.ids, g.cos),
    "grouped_block_dot": lambda g, b: b.grouped_block_dot(*b.block_quantize(g.rows), g.packed, g.experts, experts=4),
    "grouped_matmul": lambda g, b: b.grouped_matmul(g.rows, b.reshape(g.w, [4, 32, 16]), g.experts),
    "lora_matmul": lambda g, b: b.lora_matmul(g.x, g.w, b.narrow(g.w, 1, 0, 4), b.narrow(g.w, 0, 0, 4), scale=0.5),
    "scatter_add": lambda g, b: b.scatter_add(g.x, g.ids, 7),
    "softmax_cross_entropy_backward": lambda g, b: b.softmax_cross_entropy_backward(
        g.rows, g.experts, b.sum(g.rows, 1)
    ),
    "softmax_cross_entropy_with_logits": lambda g, b: b.softmax_cross_entropy_with_logits(g.rows, g.experts),
}

IMAGES: dict[str, Any] = {
    "axial_rope2d": lambda g, b: b.axial_rope2d(g.m.input("tokens", ["batch", 6, 32]), end_x=3, end_y=2, head_dim=8),
    "conv2d_backward_input": lambda g, b: b.conv2d_backward_input(
        b.conv2d(g.image, g.kernel, groups=2), g.kernel, g.image, groups=2
    ),
    "conv2d_backward_weight": lambda g, b: b.conv2d_backward_weight(
        g.image, b.conv2d(g.image, g.kernel, groups=2), kernel_size=3, groups=2
    ),
    "conv_transpose2d": lambda g, b: b.conv_transpose2d(g.image, g.kernel, stride=2, groups=4),
    "group_norm": lambda g, b: b.group_norm(g.image, g.small, g.small, num_groups=2),
    "group_norm_backward_beta": lambda g, b: b.group_norm_backward_beta(g.image),
    "group_norm_backward_gamma": lambda g, b: b.group_norm_backward_gamma(g.image, g.image, num_groups=2),
    "group_norm_backward_input": lambda g, b: b.group_norm_backward_input(g.image, g.small, g.image, num_groups=2),
    "layer_norm2d": lambda g, b: b.layer_norm2d(g.image, g.small, g.small),
    "maxpool2d_backward": lambda g, b: b.maxpool2d_backward(g.image, b.pool(g.image, "max", 2), kernel_size=2),
    "pool": lambda g, b: b.pool(g.image, "mean", 2, stride=2),
    "resize_nearest_2x": lambda g, b: b.resize_nearest_2x(g.image),
}

SPECTRA: dict[str, Any] = {
    **{name: lambda g, b, name=name: getattr(b, name)(g.x) for name in ("fft", "pad_last_axis_to_pow2", "psd_real")},
    **{name: lambda g, b, name=name: getattr(b, name)(g.x)[0] for name in ("fft_real", "fft_batch_real", "rfft")},
    **{name: lambda g, b, name=name: getattr(b, name)(g.x, [-1]) for name in ("fftn", "ifftn")},
    **{name: lambda g, b, name=name: getattr(b, name)(8) for name in ("fftfreq_tensor", "rfftfreq_tensor")},
    **{
        name: lambda g, b, name=name: getattr(b, name)(g.x, g.y)
        for name in ("fft_conv1d", "ifft_spectrum", "irfft", "psd")
    },
    "fft_axis": lambda g, b: b.fft_axis(g.image, 1, inverse=True),
    "fft_norm": lambda g, b: b.fft_norm(g.x, "ortho"),
    "split_spectrum": lambda g, b: b.split_spectrum(g.x)[1],
    "stft": lambda g, b: b.stft(g.x, 8, 4),
}

SPLATS: dict[str, Any] = {
    **{
        f"gaussian_splat_{name}": lambda g, b, name=name: getattr(b, f"gaussian_splat_{name}")(*g.scene, width=8)
        for name in ("prepare", "render", "render_decomposed")
    },
    "gaussian_splat_rasterize": lambda g, b: b.gaussian_splat_rasterize(
        b.gaussian_splat_prepare(*g.scene), g.scene[-1]
    ),
    "gaussian_splat_render_backward": lambda g, b: b.gaussian_splat_render_backward(*g.scene, g.m.input("d", [16384])),
    "gaussian_splat_render_meta": lambda g, b: b.gaussian_splat_render_meta((0, 0, -3), (0, 0, 0)),
}

GRADIENTS: dict[str, Any] = {
    **{
        name: lambda g, b, name=name: getattr(b, name)(g.x, g.y)
        for name in ("relu_backward", "rms_norm_backward_gamma")
    },
    "activation_backward": lambda g, b: b.activation_backward("silu", g.x, g.y),
    "attention_backward": lambda g, b: b.attention_backward(g.x, g.x, g.x, g.y, wrt="key", **g.heads),
    "attention_backward_all": lambda g, b: b.attention_backward_all(g.x, g.x, g.x, g.y, mask_kind="causal", **g.heads)[
        0
    ],
    "cumsum_backward": lambda g, b: b.cumsum_backward(g.x, 1),
    "flip": lambda g, b: b.flip(g.x, 1),
    "layer_norm_backward_beta": lambda g, b: b.layer_norm_backward_beta(g.x),
    "layer_norm_backward_gamma": lambda g, b: b.layer_norm_backward_gamma(g.x, g.y),
    "layer_norm_backward_input": lambda g, b: b.layer_norm_backward_input(g.x, g.gamma, g.y),
    "rms_norm_backward_beta": lambda g, b: b.rms_norm_backward_beta(g.x, axis=1),
    "rms_norm_backward_input": lambda g, b: b.rms_norm_backward_input(g.x, g.gamma, g.y),
    "rope_backward": lambda g, b: b.rope_backward(g.x, g.cos, g.sin, head_dim=8, style="half"),
}

SCANS: dict[str, Any] = {
    "scan_backward": lambda g, b: b.scan_backward(g.twice, g.gamma, g.steps, g.gamma),
    "scan_backward_all": lambda g, b: b.scan_backward_all(g.twice, g.gamma, g.steps, g.gamma)[0],
    "scan_backward_with_checkpoints": lambda g, b: b.scan_backward_with_checkpoints(
        g.twice, lambda carried: b.add(carried, carried), g.gamma, g.steps, g.gamma, length=8
    ),
    "scan_backward_xs": lambda g, b: b.scan_backward_xs(
        lambda carried, own, by: (by, by), g.gamma, g.steps, g.gamma, g.steps, index=0
    ),
    "scan_backward_xs_with_checkpoints": lambda g, b: b.scan_backward_xs_with_checkpoints(
        lambda carried, own, by: (by, by), b.add, g.gamma, b.narrow(g.steps, 0, 0, 2), g.gamma, g.steps, index=0
    ),
    "scan_checkpointed": lambda g, b: b.scan_checkpointed(lambda carried: b.add(carried, carried), g.gamma, 4, 2),
    "scan_trajectory": lambda g, b: b.scan_trajectory(lambda carried: b.add(carried, carried), g.gamma, 4),
    "scan_with_bcasts_and_xs": lambda g, b: b.scan_with_bcasts_and_xs(
        lambda carried, own, entry: b.add(b.mul(carried, own), entry), g.gamma, [g.gamma], [g.steps]
    ),
    "scan_with_xs": lambda g, b: b.scan_with_xs(lambda carried, entry: b.add(carried, entry), g.gamma, g.steps),
}

DRAWS: dict[str, Any] = {
    "elementwise_region": lambda g, b: b.elementwise_region([g.x, g.y], [("add", "i0", "i1"), ("silu", "s0")]),
    "sample_logits": lambda g, b: b.sample_logits(g.rows, top_k=3, top_p=0.9, seed=1),
    "uniform": lambda g, b: b.uniform(g.x, 1, seed=1),
}

#: Builders that give primitives, by family.
EVERY_PRIMITIVE: dict[str, Any] = PRIMITIVES | ALGEBRA | IMAGES | SPECTRA | SPLATS | GRADIENTS | SCANS | DRAWS

BLOCKS: dict[str, Any] = {
    "attention": lambda g, b: b.attention(
        g.x, g.x, g.x, mask_kind="causal", k_cache=g.cache, v_cache=g.cache, pos=g.pos, **g.heads
    ),
    "depthwise_conv1d_causal": lambda g, b: b.depthwise_conv1d_causal(
        g.x, g.m.param("taps", [32, 1, 1, 3]), g.m.input("before", ["batch", 2, 32])
    ),
    "dequant_matmul": lambda g, b: b.dequant_matmul(g.x, g.packed),
    "dequant_matmul_nvfp4": lambda g, b: b.dequant_matmul_nvfp4(g.x, *g.nvfp4),
    "gated_delta_net": lambda g, b: b.gated_delta_net(*g.delta),
    "gated_delta_net_carry": lambda g, b: b.gated_delta_net_carry(*g.delta, g.state),
    "linear": lambda g, b: b.linear(g.x, g.w, g.bias, activation="silu"),
    "linear_fused": lambda g, b: b.linear_fused(g.x, g.w, g.bias, activation="silu"),
    "llama_decoder_block": lambda g, b: b.llama_decoder_block(g.x, **g.decoder),
    "qwen35_mtp_head": lambda g, b: b.qwen35_mtp_head(g.x, **g.draft, **g.heads, num_kv_heads=2),
    "residual_rms_norm": lambda g, b: b.residual_rms_norm(g.x, g.y, g.gamma, g.gamma),
    "rms_norm": lambda g, b: b.rms_norm(g.x, g.gamma, g.gamma),
    "rope": lambda g, b: b.rope(g.x, g.cos, g.sin, head_dim=8, style="half"),
    "shared_linear_pair": lambda g, b: b.shared_linear_pair(g.x, g.w, g.packed),
    "swiglu": lambda g, b: b.swiglu(g.x, **g.ffn),
    "transformer_block": lambda g, b: b.transformer_block(g.x, **g.decoder),
}


def builders(owner: type) -> set[str]:
    return {name for name in vars(owner) if not name.startswith("_")}


def test_every_builder_is_called_here():
    own = (Primitives, Shapes, ElementwiseBuilders, ComplexBuilders, QuantizationBuilders)
    assert set().union(*map(builders, own)) == PRIMITIVES.keys()
    assert builders(AlgebraBuilders) == ALGEBRA.keys()
    assert builders(Images) == IMAGES.keys()
    assert builders(Spectra) == SPECTRA.keys()
    assert builders(Splats) == SPLATS.keys()
    assert builders(Gradients) == GRADIENTS.keys()
    assert builders(ScanBuilders) == SCANS.keys()
    assert builders(Draws) | builders(Chains) == DRAWS.keys()
    assert builders(Blocks) == BLOCKS.keys()


@pytest.mark.parametrize("stage", ["hir", "mir"])
@pytest.mark.parametrize("name", EVERY_PRIMITIVE)
@pytest.mark.quick(27)
def test_primitives_build_at_both_stages(name, stage):
    g = Graph(stage)
    before = len(g.m)
    built = EVERY_PRIMITIVE[name](g, g.m.primitives)
    assert all(node.op.startswith("mir.") or node.op == "hir.constant" for node in g.m.nodes()[before:])
    g.m.set_outputs(built)
    g.m.verify()
    lowered = g.m.lower()
    assert {node.op.partition(".")[0] for node in lowered.nodes()} <= {"mir"}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_build_and_lower(name):
    g = Graph("hir")
    g.m.set_outputs(BLOCKS[name](g, g.m))
    assert g.m.nodes()[-1].op.startswith("hir.")
    for policy in ("direct", "fusable"):
        g.m.with_fusion_policy(policy).lower().verify()


def test_every_member_that_the_map_names_exists():
    text = MAP.read_text()
    named = set(re.findall(r"\bm\.(?:primitives\.)?([a-z0-9_]+)", text))
    static = set(re.findall(r"\bGraphModule\.([a-z0-9_]+)", text))
    assert len(named) > 80
    for name in named | static:
        assert hasattr(GraphModule, name), name
    for name in re.findall(r"\bm\.primitives\.([a-z0-9_]+)", text):
        assert hasattr(Primitives, name), name
    for name in re.findall(r"\bvalue\.([a-z0-9_]+)", text):
        assert hasattr(Value, name), name


def test_members_of_executables_in_the_map_exist(tiny_llama: Path):
    text = MAP.read_text()
    for name in set(re.findall(r"`ex\.([a-z0-9_]+)", text)):
        assert hasattr(Executable, name) or name == "artifact", name
    for name in set(re.findall(r"`ex\.artifact\.([a-z0-9_]+)", text)):
        assert hasattr(Artifact, name), name
    (gguf,) = re.findall(r"`rlx_mlir.frontends.gguf.GGUFFile\(path\)`: (.*) \|", text)
    opened = vars(GGUFFile(tiny_llama))
    for name in re.findall(r"`(\w+)", gguf):
        assert hasattr(GGUFFile, name) or name in opened, name
    options = {field.name for field in dataclasses.fields(CompileOptions)} | {"threads", "cache", "wait"}
    rows = re.findall(r"`(\w+)=[^`]*`", text[text.index("## Compiling and running") :])
    assert set(rows) <= options | {"x"}
    assert len(rows) >= 5


def test_every_public_member_is_in_the_map():
    text = MAP.read_text()
    internal = {"entry", "invalidate", "ir_module"}  # for the compiler's own code
    missing = [
        name
        for name in dir(GraphModule)
        if not name.startswith("_") and name not in internal and not re.search(rf"[m.]\.?{name}\b", text)
    ]
    assert not missing
