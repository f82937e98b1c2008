// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What mixes tokens without attention: a causal convolution and a recurrence.

#ifndef RLX_HIR_SEQUENCE
#define RLX_HIR_SEQUENCE

include "hir/base.td"

def HIR_DepthwiseConv1dCausalOp : HIR_BlockOp<"depthwise_conv1d_causal"> {
  let summary = "convolution over the last K tokens, channel by channel";
  let description = [{
    Each channel of `input`, [B, S, C], is convolved over time with its own kernel of K
    taps from `weight`, [C, 1, 1, K]; the last tap multiplies the token itself, the first
    one the token K - 1 steps before it:

        padded = left_pad and then input, [B, K - 1 + S, C]
        result[b, s, c] = sum_j weight[c, 0, 0, j] * padded[b, s + j, c]

    `left_pad`, [B, K - 1, C], is what came before: zeros for a new sequence, the last
    K - 1 tokens of `input` of the call before for one that goes on. There is no bias.

    The result is [B, S, C], of the element type of `input`. Accumulated in f32 (f64 for
    f64) and rounded once.

    - (C1) `input` has three dimensions.
    - (C2) `weight` is [C, 1, 1, K], static, with C and K positive and K below 2^31.
    - (C3) `weight` has as many channels as `input`.
    - (C4) `left_pad` is [B, K - 1, C], and K - 1 is static.
    - (C5) `weight` and `left_pad` have the element type of `input`.

    ```mlir
    func.func @f(%x: tensor<1x?x16xf32>, %w: tensor<16x1x1x4xf32>, %before: tensor<1x3x16xf32>) -> tensor<1x?x16xf32> {
      %y = hir.depthwise_conv1d_causal %x, %w after %before
          : tensor<1x?x16xf32>, tensor<16x1x1x4xf32>, tensor<1x3x16xf32>
      return %y : tensor<1x?x16xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$input, MIR_FloatTensor:$weight, MIR_FloatTensor:$left_pad);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = "$input `,` $weight `after` $left_pad attr-dict `:` type(operands)";
}

def HIR_GatedDeltaNetOp : HIR_BlockOp<"gated_delta_net"> {
  let summary = "linear attention by a gated delta rule";
  let description = [{
    A memory M, [n, n] by key and value, for each batch item and each of H heads. `q`,
    `k` and `v` are [B, S, H, n]; `g`, the logarithm of the decay, and `beta`, the
    strength of the correction, are [B, S, H]. For each token t in turn:

        M        = exp(g[t]) * M
        d        = beta[t] * (v[t] - k[t] . M)
        M        = M + outer(k[t], d)
        result[t] = (q[t] . M) / sqrt(n)

    M starts as `state`, [B, H, n, n], or as zeros without it, in each batch item anew.
    `state_out`, always the second result, is M after the last token: passed as `state`,
    it carries the sequence on in the next call. Callers normalise `q` and `k` to unit
    length, and repeat their heads where there are fewer than of `v`.

    `result` has the type of `q`. It is computed in f32 (f64 for f64) and rounded once;
    `state` and `state_out` are of the type in which it is computed.

    - (C1) `q`, `k` and `v` have four dimensions and one type.
    - (C2) `g` and `beta` have one type, [B, S, H], of the element type of `q`.
    - (C3) `state` is [B, H, n, n].
    - (C4) `state` is of f32, or of f64 where `q` is.

    ```mlir
    func.func @f(%q: tensor<1x?x2x8xbf16>, %k: tensor<1x?x2x8xbf16>, %v: tensor<1x?x2x8xbf16>, %g: tensor<1x?x2xbf16>,
                 %beta: tensor<1x?x2xbf16>, %state: tensor<1x2x8x8xf32>) -> (tensor<1x?x2x8xbf16>, tensor<1x2x8x8xf32>) {
      %y, %next = hir.gated_delta_net %q, %k, %v decay %g beta %beta state %state
          : tensor<1x?x2x8xbf16>, tensor<1x?x2x8xbf16>, tensor<1x?x2x8xbf16>, tensor<1x?x2xbf16>, tensor<1x?x2xbf16>, tensor<1x2x8x8xf32>
      return %y, %next : tensor<1x?x2x8xbf16>, tensor<1x2x8x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$q, MIR_FloatTensor:$k, MIR_FloatTensor:$v,
      MIR_FloatTensor:$g, MIR_FloatTensor:$beta, Optional<MIR_FloatTensor>:$state);
  let results = (outs MIR_FloatTensor:$result, MIR_FloatTensor:$state_out);
  let assemblyFormat = [{
    $q `,` $k `,` $v `decay` $g `beta` $beta (`state` $state^)? attr-dict `:` type(operands)
  }];
}

#endif // RLX_HIR_SEQUENCE
