// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Heads that draft tokens.

#ifndef RLX_HIR_MTP
#define RLX_HIR_MTP

include "hir/base.td"

def HIR_Qwen35MtpHeadOp : HIR_BlockOp<"qwen35_mtp_head", [AttrSizedOperandSegments]> {
  let summary = "draft head of Qwen3.5: the token after the next one";
  let description = [{
    Joins what the model computed for each token with the embedding of the token that
    followed, runs one decoder layer, and gives scores of the token after that.
    `h_pre_norm`, [B, S, E], is the last hidden state before the final norm; `input_ids`,
    [B, S], are the tokens; `embed_w`, [vocabulary, E], has a row for each. D is
    `head_dim`; norms are over E, but for `q_norm` and `k_norm`, which are over D in each
    head:

        x   = concat(norm(embed_w[input_ids], enorm), norm(h_pre_norm, hnorm)) . eh_w
        n   = norm(x, attn_norm)
        q, gate = n . q_gate_w, in each head D columns of q and then D of gate
        q   = rope(norm(q, q_norm))
        k   = rope(norm(n . k_w, k_norm));  v = n . v_w
        h   = x + (attention(q, k, v) * sigmoid(gate)) . o_w
        m   = norm(h, post_norm)
        h   = h + (silu(m . gate_w) * (m . up_w)) . down_w
        result[b] = norm(h[b, last_token_idx[b]], head_norm) . lm_head_w

    | weight         | inputs | outputs   |
    |----------------|--------|-----------|
    | `eh_w`         | 2 E    | E         |
    | `q_gate_w`     | E      | 2 * H * D |
    | `k_w`, `v_w`   | E      | Hkv * D   |
    | `o_w`          | H * D  | E         |
    | `gate_w`, `up_w` | E    | F         |
    | `down_w`       | F      | E         |
    | `lm_head_w`    | E      | V         |

    `norm` is `hir.rms_norm` with a gamma, `NAME_w`, and a beta, `NAME_b`, where there
    is one. Attention is causal over this call's S tokens, from position 0, with grouped
    queries (`hir.attention`); rope turns the first `n_rot` elements of each head by
    `style` (`hir.rope`). Indices are i32, i64, or f32 that drop their fraction; those
    outside of the table are clamped. Each batch item has its own last token.

    The result is [B, 1, V], of the element type of `h_pre_norm`. The block lowers to the
    same primitives under every policy, and rounds after each. Widths E, F and V follow
    from the operands.

    - (C1) `h_pre_norm` has three dimensions.
    - (C2) `input_ids` is [B, S], and `last_token_idx` is [B].
    - (C3) `embed_w` is dense, [vocabulary, E], or packed with `k` = E.
    - (C4) a dense weight has two dimensions.
    - (C5) a packed weight has `layout = rows`.
    - (C6) weights have the inputs of the table.
    - (C7) a dense weight has the element type of `h_pre_norm`.
    - (C8) `transpose_weight` is there only with a dense weight of the table.
    - (C9) weights have the outputs of the table.
    - (C10) gammas and betas have one dimension, as long as what they scale.
    - (C11) gammas and betas have the element type of `h_pre_norm`.
    - (C12) `num_heads`, `num_kv_heads` and `head_dim` are positive, `head_dim` is even.
    - (C13) `num_heads` is a multiple of `num_kv_heads`.
    - (C14) `n_rot`, which is `head_dim` if absent, is positive, even and at most
      `head_dim`.
    - (C15) `cos` and `sin` have one type, [P, `head_dim` / 2], of f32 or of the element
      type of `h_pre_norm`.
    - (C16) the tables have at least as many rows as `h_pre_norm` has tokens.
    - (C17) `eps` is positive and finite.
    - (C18) twice E, and twice `num_heads` * `head_dim`, are below 2^63.

    ```mlir
    func.func @f(%h: tensor<2x?x64xf32>, %ids: tensor<2x?xi32>, %cos: tensor<128x8xf32>, %sin: tensor<128x8xf32>, %last: tensor<2xi32>,
                 %embed: tensor<96x40xi8, #mir.packed<q4_1, k = 64>>, %g: tensor<64xf32>, %eh: tensor<128x64xf32>, %qg: tensor<64x128xf32>,
                 %k: tensor<64x32xf32>, %d: tensor<16xf32>, %o: tensor<64x64xf32>, %gate: tensor<64x96xf32>, %down: tensor<96x64xf32>,
                 %lm: tensor<96x40xi8, #mir.packed<q4_1, k = 64>>) -> tensor<2x1x96xf32> {
      %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %g enorm %g eh %eh
          attn_norm %g q_gate %qg k %k v %k q_norm %d k_norm %d o %o post_norm %g gate %gate up %gate down %down
          head_norm %g lm_head %lm rope half %cos, %sin heads 4 kv_heads 2 head_dim 16 n_rot 8
          : tensor<2x?x64xf32>, tensor<2x?xi32>, tensor<128x8xf32>, tensor<128x8xf32>, tensor<2xi32>,
            tensor<96x40xi8, #mir.packed<q4_1, k = 64>>, tensor<64xf32>, tensor<64xf32>, tensor<128x64xf32>, tensor<64xf32>,
            tensor<64x128xf32>, tensor<64x32xf32>, tensor<64x32xf32>, tensor<16xf32>, tensor<16xf32>, tensor<64x64xf32>, tensor<64xf32>,
            tensor<64x96xf32>, tensor<64x96xf32>, tensor<96x64xf32>, tensor<64xf32>, tensor<96x40xi8, #mir.packed<q4_1, k = 64>>
      return %y : tensor<2x1x96xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$h_pre_norm, MIR_IndexTensor:$input_ids,
      MIR_FloatTensor:$cos, MIR_FloatTensor:$sin, MIR_IndexTensor:$last_token_idx,
      MIR_Weight:$embed_w, MIR_FloatTensor:$hnorm_w, Optional<MIR_FloatTensor>:$hnorm_b,
      MIR_FloatTensor:$enorm_w, Optional<MIR_FloatTensor>:$enorm_b, MIR_Weight:$eh_w,
      MIR_FloatTensor:$attn_norm_w, Optional<MIR_FloatTensor>:$attn_norm_b, MIR_Weight:$q_gate_w,
      MIR_Weight:$k_w, MIR_Weight:$v_w, MIR_FloatTensor:$q_norm_w,
      Optional<MIR_FloatTensor>:$q_norm_b, MIR_FloatTensor:$k_norm_w,
      Optional<MIR_FloatTensor>:$k_norm_b, MIR_Weight:$o_w, MIR_FloatTensor:$post_norm_w,
      Optional<MIR_FloatTensor>:$post_norm_b, MIR_Weight:$gate_w, MIR_Weight:$up_w,
      MIR_Weight:$down_w, MIR_FloatTensor:$head_norm_w, Optional<MIR_FloatTensor>:$head_norm_b,
      MIR_Weight:$lm_head_w, I64Attr:$num_heads, I64Attr:$num_kv_heads, I64Attr:$head_dim,
      OptionalAttr<I64Attr>:$n_rot, HIR_EpsAttr:$eps, HIR_RopeStyleAttr:$style,
      UnitAttr:$transpose_weight);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $h_pre_norm `ids` $input_ids `last` $last_token_idx `embed` $embed_w
    `hnorm` $hnorm_w (`beta` $hnorm_b^)? `enorm` $enorm_w (`beta` $enorm_b^)? `eh` $eh_w
    `attn_norm` $attn_norm_w (`beta` $attn_norm_b^)? `q_gate` $q_gate_w `k` $k_w `v` $v_w
    `q_norm` $q_norm_w (`beta` $q_norm_b^)? `k_norm` $k_norm_w (`beta` $k_norm_b^)? `o` $o_w
    `post_norm` $post_norm_w (`beta` $post_norm_b^)? `gate` $gate_w `up` $up_w `down` $down_w
    `head_norm` $head_norm_w (`beta` $head_norm_b^)? `lm_head` $lm_head_w
    `rope` `` $style $cos `,` $sin `heads` $num_heads `kv_heads` $num_kv_heads
    `head_dim` $head_dim (`n_rot` $n_rot^)? (`eps` $eps^)?
    (`transpose_weight` $transpose_weight^)? attr-dict `:` type(operands)
  }];
}

#endif // RLX_HIR_MTP
