# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass `hir-to-mir`: one pattern for each block.

`fusable` lowers to primitives, which differentiation and fusion passes like to see; `direct` to fused operations where
a block has them. Blocks whose weights are packed lower to `mir.dequant_matmul` under both.
"""

from __future__ import annotations

from rlx_mlir import ir
from rlx_mlir.attributes import python_value
from rlx_mlir.dialects import hir, mir
from rlx_mlir.errors import UnsupportedError
from rlx_mlir.rewriting import Option, PatternSet, Rewriter, apply_patterns, compiler_pass, operations
from rlx_mlir.semantics.ops import default_label
from rlx_mlir.unsupported import list_operations

DIRECT, FUSABLE = "direct", "fusable"

PATTERNS = PatternSet()
pattern = PATTERNS.pattern


@compiler_pass(
    "hir-to-mir",
    dependent=("mir",),
    options={"policy": Option("how blocks with a fused operation lower", DIRECT, (DIRECT, FUSABLE))},
)
def hir_to_mir(module: ir.Operation, *, policy: str) -> None:
    """Lower the blocks of HIR to tensor primitives."""
    _label(module)
    apply_patterns(module, PATTERNS.select(policy))
    left = [(op, "") for op in operations(module) if op.name.startswith("hir.")]
    if left:
        known = [pattern.root for pattern in PATTERNS.select(policy)]
        raise UnsupportedError("\n  ".join(["no pattern lowers", *list_operations(left, known)]))


def _label(module: ir.Operation) -> None:
    """Gives blocks without a name their default label, so that what they lower to carries it."""
    for op in operations(module):
        if op.name.startswith("hir.") and not op.location.is_a_name():
            op.location = ir.Location.name(default_label(op), op.location)


def is_packed(value: ir.Value) -> bool:
    """Whether the value is a packed weight."""
    return ir.RankedTensorType(value.type).encoding is not None


def product(x: ir.Value, weight: ir.Value, transpose: bool) -> ir.Value:
    """x times a weight, dense or packed."""
    if is_packed(weight):
        return mir.dequant_matmul(x, weight)
    return mir.matmul(x, weight, transpose_rhs=transpose or None)


def activate(kind: ir.Attribute | None, x: ir.Value) -> ir.Value:
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


@pattern(hir.DequantMatmulScaledOp)
def lower_dequant_matmul_scaled(op: hir.DequantMatmulScaledOp, rewriter: Rewriter) -> None:
    """dequant_matmul_scaled -> mir.dequant_matmul_scaled"""
    options = {"zero_point": op.zero_point, "global_scale": op.global_scale, "scheme": op.scheme, "block": op.block}
    rewriter.replace(op, mir.dequant_matmul_scaled(op.x, op.weight, op.scale, **options))


@pattern(hir.AttentionOp)
def lower_attention(op: hir.AttentionOp, rewriter: Rewriter) -> None:
    """attention -> mir.attention, after cache updates in the cached form; heads are never repeated"""
    keys, values = op.k, op.v
    caches: tuple[ir.Value, ...] = ()
    if op.k_cache is not None:
        keys = mir.cache_update(op.k_cache, op.k, op.pos, scheme=op.k_scheme)
        values = mir.cache_update(op.v_cache, op.v, op.pos, scheme=op.v_scheme)
        caches = (keys, values)
    heads = ("num_heads", "num_kv_heads", "head_dim")
    scores = ("mask", "mask_kind", "window", "pos", "sinks", "scale", "softcap")
    same = {name: getattr(op, name) for name in (*heads, *scores, "k_scheme", "v_scheme")}
    result = mir.attention(op.q, keys, values, **same)
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
        k_scheme=op.k_scheme,
        v_scheme=op.v_scheme,
    )
    h = mir.add(op.x, product(attention.results[0], op.o_w, transpose))
    n2 = mir.rms_norm(h, op.ln2_gamma, beta=op.ln2_beta, eps=op.eps)
    gate, up = product(n2, op.gate_w, transpose), product(n2, op.up_w, transpose)
    y = mir.add(h, product(mir.mul(mir.silu(gate), up), op.down_w, transpose))
    rewriter.replace(op, y, *list(attention.results)[1:])


@pattern(hir.DepthwiseConv1dCausalOp)
def lower_depthwise_conv1d_causal(op: hir.DepthwiseConv1dCausalOp, rewriter: Rewriter) -> None:
    """conv1d(x, w, pad) -> conv of [pad, x] as one row [B, C, 1, K - 1 + S], with a group for each channel"""
    channels = ir.RankedTensorType(op.weight.type).shape[0]
    padded = mir.concat([op.left_pad, op.input], axis=1)
    row = mir.reshape(mir.transpose(padded, [0, 2, 1]), [-2, -2, 1, -1], [])
    convolved = mir.conv(row, op.weight, groups=channels)
    rewriter.replace(op, mir.transpose(mir.reshape(convolved, [-2, -2, -1], []), [0, 2, 1]))


@pattern(hir.GatedDeltaNetOp)
def lower_gated_delta_net(op: hir.GatedDeltaNetOp, rewriter: Rewriter) -> None:
    """gated_delta_net -> mir.gated_delta_net"""
    rewriter.replace(op, *mir.GatedDeltaNetOp(op.q, op.k, op.v, op.g, op.beta, state=op.state).results)


@pattern(hir.Qwen35MtpHeadOp)
def lower_qwen35_mtp_head(op: hir.Qwen35MtpHeadOp, rewriter: Rewriter) -> None:
    """x = [norm(embedding), norm(h)] We; h = x + (attention(x) * sigmoid(gate)) Wo; h + swiglu(h); scores of a row"""
    transpose, style = op.transpose_weight, op.style
    heads, kv_heads, head_dim = (python_value(a) for a in (op.num_heads, op.num_kv_heads, op.head_dim))
    element = ir.RankedTensorType(op.h_pre_norm.type).element_type

    def norm(x: ir.Value, gamma: ir.Value, beta: ir.Value | None) -> ir.Value:
        return mir.rms_norm(x, gamma, beta=beta, eps=op.eps)

    def merged(x: ir.Value, count: int) -> ir.Value:
        return mir.reshape(x, [-2, -2, count * head_dim], [])

    def rotated(x: ir.Value, count: int) -> ir.Value:
        return mir.rope(merged(x, count), op.cos, op.sin, head_dim=head_dim, n_rot=op.n_rot, style=style)

    embedding = mir.gather(op.embed_w, op.input_ids, axis=0)
    rows = ir.RankedTensorType(embedding.type)
    if rows.element_type != element:  # packed rows are decoded to f32
        embedding = mir.cast(ir.RankedTensorType.get(rows.shape, element), embedding)
    both = [norm(embedding, op.enorm_w, op.enorm_b), norm(op.h_pre_norm, op.hnorm_w, op.hnorm_b)]
    x = product(mir.concat(both, axis=2), op.eh_w, transpose)

    n = norm(x, op.attn_norm_w, op.attn_norm_b)
    gated = mir.reshape(product(n, op.q_gate_w, transpose), [-2, -2, heads, 2 * head_dim], [])
    q, gate = (mir.narrow(gated, axis=3, start=start, length=head_dim) for start in (0, head_dim))
    k = mir.reshape(product(n, op.k_w, transpose), [-2, -2, kv_heads, head_dim], [])
    v = product(n, op.v_w, transpose)
    attended = mir.attention(
        rotated(norm(q, op.q_norm_w, op.q_norm_b), heads),
        rotated(norm(k, op.k_norm_w, op.k_norm_b), kv_heads),
        v,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        mask_kind=ir.Attribute.parse("#mir<mask_kind causal>"),
    )
    opened = mir.mul(attended, mir.sigmoid(merged(gate, heads)))
    h = mir.add(x, product(opened, op.o_w, transpose))

    m = norm(h, op.post_norm_w, op.post_norm_b)
    hidden = mir.mul(mir.silu(product(m, op.gate_w, transpose)), product(m, op.up_w, transpose))
    h = mir.add(h, product(hidden, op.down_w, transpose))

    index = mir.reshape(op.last_token_idx, [-2, 1], [])
    last = mir.gather(h, index, axis=1, batch_dims=1)
    rewriter.replace(op, product(norm(last, op.head_norm_w, op.head_norm_b), op.lm_head_w, transpose))
