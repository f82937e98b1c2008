# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `hir-to-mir`: one pattern for each block.

`fusable` lowers to primitives, which differentiation and fusion passes like to see; `direct` to fused operations where
a block has them. Blocks whose weights are packed lower to `mir.dequant_matmul` under both.
"""

from __future__ import annotations

from typing import Any

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import hir, mir
from rlx_mlir.errors import PassError
from rlx_mlir.rewriting import Option, PatternSet, Rewriter, apply_patterns, compiler_pass, operations

DIRECT, FUSABLE = "direct", "fusable"

PATTERNS = PatternSet()
pattern = PATTERNS.pattern

#: Labels of blocks without a name, where they differ from the name of the operation.
DEFAULT_LABELS = {"hir.swiglu": "swiglu_ffn"}


@compiler_pass(
    "hir-to-mir",
    dependent=("mir",),
    options={"policy": Option("how blocks with a fused operation lower", DIRECT, (DIRECT, FUSABLE))},
)
def hir_to_mir(module: ir.Operation, *, policy: str) -> None:
    """Lower the blocks of HIR to tensor primitives."""
    _label(module)
    apply_patterns(module, PATTERNS.select(policy))
    left = sorted({op.name for op in operations(module) if op.name.startswith("hir.")})
    if left:
        raise PassError(f"no pattern lowers {', '.join(left)}")


def _label(module: ir.Operation) -> None:
    """Gives blocks without a name their default label, so that what they lower to carries it."""
    for op in operations(module):
        if op.name.startswith("hir.") and not op.location.is_a_name():
            label = DEFAULT_LABELS.get(op.name, op.name.removeprefix("hir."))
            op.location = ir.Location.name(label, op.location)


def is_packed(value: ir.Value) -> bool:
    """Whether the value is a packed weight."""
    return ir.RankedTensorType(value.type).encoding is not None


def product(x: ir.Value, weight: ir.Value, transpose: bool) -> ir.Value:
    """x times a weight, dense or packed."""
    if is_packed(weight):
        return mir.dequant_matmul(x, weight)
    return mir.matmul(x, weight, transpose_rhs=transpose or None)


def activate(kind: Any, x: ir.Value) -> ir.Value:
    """The activation of x; x itself where there is none."""
    word = python_value(kind)
    return x if word is None else getattr(mir, word)(x)


@pattern(hir.ConstantOp)
def lower_constant(op: hir.ConstantOp, rewriter: Rewriter) -> None:
    """constant -> mir.constant"""
    rewriter.replace(op, mir.constant(op.value))


@pattern(hir.LinearOp, FUSABLE)
def lower_linear_to_primitives(op: hir.LinearOp, rewriter: Rewriter) -> None:
    """act(x W + b) -> matmul, add, activation"""
    y = product(op.x, op.weight, op.transpose_weight)
    if op.bias is not None:
        y = mir.add(y, op.bias)
    rewriter.replace(op, activate(op.activation, y))


@pattern(hir.LinearOp, DIRECT)
def lower_linear(op: hir.LinearOp, rewriter: Rewriter) -> None:
    """act(x W + b) -> fused_matmul_bias_act; primitives without a bias or with a packed weight"""
    if op.bias is None or is_packed(op.weight):
        lower_linear_to_primitives(op, rewriter)
        return
    rewriter.replace(op, fused_linear(op))


def fused_linear(op: hir.LinearOp | hir.LinearFusedOp) -> ir.Value:
    """The block as one fused operation."""
    return mir.fused_matmul_bias_act(
        op.x, op.weight, op.bias, activation=op.activation, transpose_rhs=op.transpose_weight or None
    )


@pattern(hir.LinearFusedOp, DIRECT)
def lower_linear_fused(op: hir.LinearFusedOp, rewriter: Rewriter) -> None:
    """act(x W + b) -> fused_matmul_bias_act"""
    lower_linear(op, rewriter)


@pattern(hir.LinearFusedOp, FUSABLE)
def lower_linear_fused_to_primitives(op: hir.LinearFusedOp, rewriter: Rewriter) -> None:
    """act(x W + b) -> matmul, add, activation: what differentiates must not meet a fused operation"""
    lower_linear_to_primitives(op, rewriter)


@pattern(hir.SharedLinearPairOp)
def lower_shared_linear_pair(op: hir.SharedLinearPairOp, rewriter: Rewriter) -> None:
    """(x W1, x W2) -> two matmuls"""
    transpose = op.transpose_weight
    rewriter.replace(op, product(op.x, op.w_first, transpose), product(op.x, op.w_second, transpose))


@pattern(hir.SwigluOp, FUSABLE)
def lower_swiglu_to_primitives(op: hir.SwigluOp, rewriter: Rewriter) -> None:
    """(silu(x G) * (x U)) D -> three matmuls, silu, mul"""
    transpose = op.transpose_weight
    gate, up = product(op.x, op.gate_w, transpose), product(op.x, op.up_w, transpose)
    rewriter.replace(op, product(mir.mul(mir.silu(gate), up), op.down_w, transpose))


@pattern(hir.SwigluOp, DIRECT)
def lower_swiglu(op: hir.SwigluOp, rewriter: Rewriter) -> None:
    """(silu(x G) * (x U)) D -> matmul with [U, G], fused_swiglu, matmul; primitives with packed weights"""
    if is_packed(op.gate_w) or is_packed(op.up_w):
        lower_swiglu_to_primitives(op, rewriter)
        return
    transpose = op.transpose_weight
    both = mir.concat([op.up_w, op.gate_w], axis=0 if transpose else 1)
    hidden = mir.fused_swiglu(product(op.x, both, transpose))
    rewriter.replace(op, product(hidden, op.down_w, transpose))


@pattern(hir.ResidualRmsNormOp, FUSABLE)
def lower_residual_rms_norm_to_primitives(op: hir.ResidualRmsNormOp, rewriter: Rewriter) -> None:
    """residual_rms_norm(x, r) -> rms_norm(add(x, r))"""
    rewriter.replace(op, mir.rms_norm(mir.add(op.x, op.residual), op.gamma, beta=op.beta, eps=op.eps))


@pattern(hir.ResidualRmsNormOp, DIRECT)
def lower_residual_rms_norm(op: hir.ResidualRmsNormOp, rewriter: Rewriter) -> None:
    """residual_rms_norm -> fused_residual_rms_norm"""
    rewriter.replace(op, mir.fused_residual_rms_norm(op.x, op.residual, op.gamma, beta=op.beta, eps=op.eps))


@pattern(hir.RmsNormOp)
def lower_rms_norm(op: hir.RmsNormOp, rewriter: Rewriter) -> None:
    """rms_norm -> mir.rms_norm"""
    rewriter.replace(op, mir.rms_norm(op.x, op.gamma, beta=op.beta, eps=op.eps))


@pattern(hir.RopeOp)
def lower_rope(op: hir.RopeOp, rewriter: Rewriter) -> None:
    """rope -> mir.rope"""
    rewriter.replace(
        op,
        mir.rope(op.x, op.cos, op.sin, pos=op.pos, head_dim=op.head_dim, n_rot=op.n_rot, style=op.style),
    )


@pattern(hir.DequantMatmulOp)
def lower_dequant_matmul(op: hir.DequantMatmulOp, rewriter: Rewriter) -> None:
    """dequant_matmul -> mir.dequant_matmul"""
    rewriter.replace(op, mir.dequant_matmul(op.x, op.weight))


@pattern(hir.AttentionOp)
def lower_attention(op: hir.AttentionOp, rewriter: Rewriter) -> None:
    """attention -> mir.attention, after cache updates in the cached form; heads are never repeated"""
    keys, values, caches = op.k, op.v, ()
    if op.k_cache is not None:
        keys = mir.cache_update(op.k_cache, op.k, op.pos)
        values = mir.cache_update(op.v_cache, op.v, op.pos)
        caches = (keys, values)
    result = mir.attention(
        op.q,
        keys,
        values,
        mask=op.mask,
        pos=op.pos,
        num_heads=op.num_heads,
        num_kv_heads=op.num_kv_heads,
        head_dim=op.head_dim,
        mask_kind=op.mask_kind,
        window=op.window,
        scale=op.scale,
        softcap=op.softcap,
    )
    rewriter.replace(op, result, *caches)


@pattern(hir.LlamaDecoderBlockOp)
def lower_llama_decoder_block(op: hir.LlamaDecoderBlockOp, rewriter: Rewriter) -> None:
    """h = x + attention(rms_norm(x)) Wo; y = h + swiglu(rms_norm(h)), by blocks that lower in turn"""
    transpose = op.transpose_weight
    head_dim = op.head_dim
    n1 = mir.rms_norm(op.x, op.ln1_gamma, beta=op.ln1_beta, eps=op.eps)
    q, k, v = (product(n1, weight, transpose) for weight in (op.q_w, op.k_w, op.v_w))
    q, k = (mir.rope(y, op.cos, op.sin, pos=op.pos, head_dim=head_dim, style=op.style) for y in (q, k))
    cached = op.k_cache is not None
    attention = hir.AttentionOp(
        q,
        k,
        v,
        mask=op.mask,
        k_cache=op.k_cache,
        v_cache=op.v_cache,
        pos=op.pos if cached else None,
        num_heads=op.num_heads,
        num_kv_heads=op.num_kv_heads,
        head_dim=head_dim,
        mask_kind=op.mask_kind,
        window=op.window,
    )
    h = mir.add(op.x, product(attention.results[0], op.o_w, transpose))
    n2 = mir.rms_norm(h, op.ln2_gamma, beta=op.ln2_beta, eps=op.eps)
    gate, up = product(n2, op.gate_w, transpose), product(n2, op.up_w, transpose)
    y = mir.add(h, product(mir.mul(mir.silu(gate), up), op.down_w, transpose))
    rewriter.replace(op, y, *list(attention.results)[1:])
