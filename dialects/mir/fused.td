// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fused operations that belong to no other family.

#ifndef RLX_MIR_FUSED
#define RLX_MIR_FUSED

include "mir/base.td"

def MIR_FusedSwigluOp : MIR_InferredOp<"fused_swiglu"> {
  let summary = "SiLU-gated product of the two halves of a row";
  let description = [{
    `x` is [..., 2 f]; each row holds f values "up" and f values "gate":

        result[..., i] = up[i] * silu(gate[i])

    Up comes first; with `gate_first`, gate does. Computed in f32 (f64 for f64) and
    rounded once.

    - (C1) `x` has at least one dimension, and the last is even.

    ```mlir
    func.func @f(%x: tensor<?x16xf32>) -> tensor<?x8xf32> {
      %y = mir.fused_swiglu %x gate_first : tensor<?x16xf32>
      return %y : tensor<?x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, UnitAttr:$gate_first);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = "$x (`gate_first` $gate_first^)? attr-dict `:` type($x)";
}

def MIR_FusedAttentionBlockOp : MIR_InferredOp<"fused_attention_block", [AttrSizedOperandSegments]> {
  let summary = "self-attention with its projections";
  let description = [{
    With H = `num_heads` and D = `head_dim`, `hidden` [B, S, h], `qkv_w` [h, 3 * H * D] and
    `out_w` [H * D, h]:

        q, k, v = the thirds of hidden qkv_w + qkv_b along the last dimension
        q, k    = rope(q, cos, sin), rope(k, cos, sin)        with cos and sin
        result  = attention(q, k, v, mask) out_w + out_b

    `mir.rope` rotates whole heads, in halves, by their positions in the sequence;
    `mir.attention` is of kind custom: `mask`, [B, S] or [B, H, S, S], says which keys a query
    sees, and a query that sees none gives zeros. Without a bias nothing is added. All is
    computed in f32 (f64 for f64) and rounded once.

    - (C1) `hidden` has three dimensions.
    - (C2) `num_heads` and `head_dim` are positive, and 3 * H * D is below 2^31.
    - (C3) `qkv_w` and `out_w` have the shapes above; `qkv_b` is [3 * H * D] and `out_b` [h]. All
      are of the element type of `hidden`.
    - (C4) `mask` is [B, S] or [B, H, S, S], of which all but the last may be 1, and of i1 or the
      element type of `hidden`.
    - (C5) `cos` and `sin` are there together, of one type, and D is even. They are [P, D / 2], P
      being at least S, of f32 or the element type of `hidden`.

    ```mlir
    func.func @f(%h: tensor<1x?x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %m: tensor<1x?xi1>,
                 %ob: tensor<8xf32>, %cos: tensor<16x2xf32>, %sin: tensor<16x2xf32>) -> tensor<1x?x8xf32> {
      %y = mir.fused_attention_block %h, %qkv, %o, %m out_b %ob cos %cos sin %sin heads 2 head_dim 4
          : tensor<1x?x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<1x?xi1>, tensor<8xf32>,
            tensor<16x2xf32>, tensor<16x2xf32>
      return %y : tensor<1x?x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$hidden, MIR_FloatTensor:$qkv_w, MIR_FloatTensor:$out_w,
      MIR_MaskTensor:$mask, Optional<MIR_FloatTensor>:$qkv_b, Optional<MIR_FloatTensor>:$out_b,
      Optional<MIR_FloatTensor>:$cos, Optional<MIR_FloatTensor>:$sin,
      I64Attr:$num_heads, I64Attr:$head_dim);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $hidden `,` $qkv_w `,` $out_w `,` $mask (`qkv_b` $qkv_b^)? (`out_b` $out_b^)? (`cos` $cos^)?
    (`sin` $sin^)? `heads` $num_heads `head_dim` $head_dim attr-dict `:` type(operands)
  }];
}

def MIR_FusedTransformerLayerOp
    : MIR_InferredOp<"fused_transformer_layer", [AttrSizedOperandSegments]> {
  let summary = "encoder layer with normalisation after each half";
  let description = [{
    With `hidden` [B, S, h], `fc1_w` [h, f] and `fc2_w` [f, h]:

        h1     = layer_norm(fused_attention_block(hidden, ...) + hidden, ln1_g, ln1_b, eps1)
        result = layer_norm(activation(h1 fc1_w + fc1_b) fc2_w + fc2_b + h1, ln2_g, ln2_b, eps2)

    with `mir.fused_attention_block` of `qkv_w`, `out_w`, `mask`, `qkv_b` and `out_b`, without
    rope, and `mir.layer_norm` along the last dimension. Without a bias, `ln1_b` and `ln2_b`
    among them, nothing is added. All is computed in f32 (f64 for f64) and rounded once.

    - (C1) `hidden` has three dimensions, and `fc1_w` two.
    - (C2) `num_heads` and `head_dim` are positive, and 3 * H * D is below 2^31.
    - (C3) `qkv_w`, `out_w`, `qkv_b` and `out_b` have the shapes that the attention block asks
      for; `fc1_w` and `fc2_w` those above; `fc1_b` is [f]; `fc2_b`, `ln1_g`, `ln1_b`, `ln2_g` and
      `ln2_b` are [h]. All are of the element type of `hidden`.
    - (C4) `mask` is [B, S] or [B, H, S, S], of which all but the last may be 1, and of i1 or the
      element type of `hidden`.
    - (C5) `eps1` and `eps2` are positive and finite.

    ```mlir
    func.func @f(%h: tensor<1x?x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %g: tensor<8xf32>,
                 %w1: tensor<8x16xf32>, %w2: tensor<16x8xf32>, %m: tensor<1x?xi1>) -> tensor<1x?x8xf32> {
      %y = mir.fused_transformer_layer %h, %qkv, %o, %g, %w1, %w2, %g, %m fc2_b %g
          heads 2 head_dim 4 activation gelu eps2 0.25
          : tensor<1x?x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
            tensor<16x8xf32>, tensor<8xf32>, tensor<1x?xi1>, tensor<8xf32>
      return %y : tensor<1x?x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$hidden, MIR_FloatTensor:$qkv_w, MIR_FloatTensor:$out_w,
      MIR_FloatTensor:$ln1_g, MIR_FloatTensor:$fc1_w, MIR_FloatTensor:$fc2_w, MIR_FloatTensor:$ln2_g,
      MIR_MaskTensor:$mask, Optional<MIR_FloatTensor>:$qkv_b, Optional<MIR_FloatTensor>:$out_b,
      Optional<MIR_FloatTensor>:$ln1_b, Optional<MIR_FloatTensor>:$fc1_b,
      Optional<MIR_FloatTensor>:$fc2_b, Optional<MIR_FloatTensor>:$ln2_b,
      I64Attr:$num_heads, I64Attr:$head_dim, MIR_ActivationAttr:$activation,
      DefaultValuedAttr<F32Attr, "1e-5f">:$eps1, DefaultValuedAttr<F32Attr, "1e-5f">:$eps2);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $hidden `,` $qkv_w `,` $out_w `,` $ln1_g `,` $fc1_w `,` $fc2_w `,` $ln2_g `,` $mask
    (`qkv_b` $qkv_b^)? (`out_b` $out_b^)? (`ln1_b` $ln1_b^)? (`fc1_b` $fc1_b^)? (`fc2_b` $fc2_b^)?
    (`ln2_b` $ln2_b^)? `heads` $num_heads `head_dim` $head_dim `activation` `` $activation
    (`eps1` $eps1^)? (`eps2` $eps2^)? attr-dict `:` type(operands)
  }];
}

#endif // RLX_MIR_FUSED
