// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whole layers.

#ifndef RLX_HIR_DECODER
#define RLX_HIR_DECODER

include "hir/base.td"

def HIR_LlamaDecoderBlockOp : HIR_BlockOp<"llama_decoder_block", [AttrSizedOperandSegments]> {
  let summary = "one decoder layer of a LLaMA model";
  let description = [{
    Attention and a gated feed-forward network, each after a norm and added to what
    came in. `x` is [B, S, E]; the head counts are H and Hkv, a head's width is D:

        n1 = rms_norm(x, ln1_gamma, ln1_beta, eps)
        q  = rope(n1 . q_w);  k = rope(n1 . k_w);  v = n1 . v_w
        h  = x + attention(q, k, v) . o_w
        n2 = rms_norm(h, ln2_gamma, ln2_beta, eps)
        result = h + (silu(n2 . gate_w) * (n2 . up_w)) . down_w

    | weight                      | inputs | outputs |
    |-----------------------------|--------|---------|
    | `q_w`                       | E      | H * D   |
    | `k_w`, `v_w`                | E      | Hkv * D |
    | `o_w`                       | H * D  | E       |
    | `gate_w`, `up_w`            | E      | F       |
    | `down_w`                    | F      | E       |

    `hir.rms_norm`, `hir.rope` (whole heads, `style`), `hir.attention` (grouped
    queries, masks, caches at `pos`), `hir.swiglu` say what the parts mean. `pos` is
    read by rope and by the caches. The block lowers to the same primitives as its
    parts do, and rounds where they do.

    The result has the type of `x`; with caches, `caches_out` are the two new ones,
    each tied to its operand.

    - (C1) `x` has three dimensions.
    - (C2) a dense weight has two dimensions.
    - (C3) a packed weight has `layout = rows`.
    - (C4) weights have the inputs of the table.
    - (C5) a dense weight has the element type of `x`.
    - (C6) `transpose_weight` is there only with a dense weight.
    - (C7) weights have the outputs of the table.
    - (C8) gammas and betas have one dimension, as long as the last one of `x`.
    - (C9) gammas and betas have the element type of `x`.
    - (C10) `num_heads`, `num_kv_heads` and `head_dim` are positive, `head_dim` is even.
    - (C11) `num_heads` is a multiple of `num_kv_heads`.
    - (C12) `cos` and `sin` have one type, [P, `head_dim` / 2], of f32 or of the element
      type of `x`.
    - (C13) the tables have at least as many rows as `x` has tokens.
    - (C14) `mask` is there exactly with `mask_kind` `custom` or `bias`.
    - (C15) `mask` has the shape that `hir.attention` gives.
    - (C16) `mask` has the element type of `x`, or for `custom` also i1.
    - (C17) `window` is there exactly with `mask_kind = sliding_window`, and positive.
    - (C18) `k_cache` and `v_cache` are there together or not at all, and not without
      `pos`.
    - (C19) the caches are [B, P, `num_kv_heads` * `head_dim`], with one P, of the
      element type of `x` (each of f16, bf16 or i8, too, where that is f32), and are at
      least as long as `x`.
    - (C20) `pos` is as long as the batch.
    - (C21) `eps` is positive and finite.
    - (C22) `k_scheme` and `v_scheme` are there as `hir.attention` says.

    ```mlir
    func.func @f(%x: tensor<1x?x64xf32>, %g1: tensor<64xf32>, %q: tensor<64x40xi8, #mir.packed<q4_1, k = 64>>, %k: tensor<32x40xi8, #mir.packed<q4_1, k = 64>>,
                 %v: tensor<32x40xi8, #mir.packed<q4_1, k = 64>>, %o: tensor<64x64xf32>, %g2: tensor<64xf32>, %gate: tensor<64x96xf32>,
                 %up: tensor<64x96xf32>, %down: tensor<96x64xf32>, %cos: tensor<512x8xf32>, %sin: tensor<512x8xf32>, %kc: tensor<1x512x32xf32>,
                 %vc: tensor<1x512x32xf32>, %pos: tensor<1xi32>) -> (tensor<1x?x64xf32>, tensor<1x512x32xf32>, tensor<1x512x32xf32>) {
      %y, %caches:2 = hir.llama_decoder_block %x
          norm1 %g1 q %q k %k v %v o %o norm2 %g2 gate %gate up %up down %down
          rope interleaved %cos, %sin heads 4 kv_heads 2 head_dim 16 mask causal caches %kc, %vc at %pos
          : tensor<1x?x64xf32>, tensor<64xf32>, tensor<64x40xi8, #mir.packed<q4_1, k = 64>>, tensor<32x40xi8, #mir.packed<q4_1, k = 64>>,
            tensor<32x40xi8, #mir.packed<q4_1, k = 64>>, tensor<64x64xf32>, tensor<64xf32>, tensor<64x96xf32>, tensor<64x96xf32>,
            tensor<96x64xf32>, tensor<512x8xf32>, tensor<512x8xf32>, tensor<1x512x32xf32>, tensor<1x512x32xf32>, tensor<1xi32>
      return %y, %caches#0, %caches#1 : tensor<1x?x64xf32>, tensor<1x512x32xf32>, tensor<1x512x32xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$ln1_gamma, MIR_Weight:$q_w,
      MIR_Weight:$k_w, MIR_Weight:$v_w, MIR_Weight:$o_w, MIR_FloatTensor:$ln2_gamma,
      MIR_Weight:$gate_w, MIR_Weight:$up_w, MIR_Weight:$down_w, MIR_FloatTensor:$cos,
      MIR_FloatTensor:$sin, Optional<MIR_FloatTensor>:$ln1_beta,
      Optional<MIR_FloatTensor>:$ln2_beta, Optional<MIR_MaskTensor>:$mask,
      Optional<MIR_KeptTensor>:$k_cache, Optional<MIR_KeptTensor>:$v_cache,
      Optional<MIR_PositionTensor>:$pos, I64Attr:$num_heads, I64Attr:$num_kv_heads,
      I64Attr:$head_dim, HIR_EpsAttr:$eps, HIR_MaskKindAttr:$mask_kind,
      OptionalAttr<I64Attr>:$window, HIR_RopeStyleAttr:$style, UnitAttr:$transpose_weight,
      OptionalAttr<MIR_CacheSchemeAttr>:$k_scheme, OptionalAttr<MIR_CacheSchemeAttr>:$v_scheme);
  let results = (outs MIR_FloatTensor:$result, Variadic<MIR_KeptTensor>:$caches_out);
  let assemblyFormat = [{
    $x `norm1` $ln1_gamma (`beta` $ln1_beta^)? `q` $q_w `k` $k_w `v` $v_w `o` $o_w
    `norm2` $ln2_gamma (`beta` $ln2_beta^)? `gate` $gate_w `up` $up_w `down` $down_w
    `rope` `` $style $cos `,` $sin `heads` $num_heads `kv_heads` $num_kv_heads
    `head_dim` $head_dim (`mask` `` $mask_kind^)? ($mask^)? (`window` $window^)?
    (`caches` $k_cache^ `,` $v_cache)? (`at` $pos^)? (`eps` $eps^)?
    (`transpose_weight` $transpose_weight^)? (`k_scheme` `` $k_scheme^)? (`v_scheme` `` $v_scheme^)?
    attr-dict `:` type(operands)
  }];
}

#endif // RLX_HIR_DECODER
