// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recurrences over a sequence.

#ifndef RLX_MIR_RECURRENCE
#define RLX_MIR_RECURRENCE

include "mir/base.td"

def MIR_GatedDeltaNetOp : MIR_InferredOp<"gated_delta_net", [
    AllTypesMatch<["q", "k", "v"]>, AllTypesMatch<["g", "beta"]>]> {
  let summary = "linear attention by a gated delta rule";
  let description = [{
    A memory M for each batch item and head, [n, n] by key and value, which decays and
    is corrected at each step. `q`, `k` and `v` are [B, S, H, n]; `g`, the logarithm of
    the decay, and `beta`, the strength of the correction, are [B, S, H]. For t = 0, 1,
    ..., S - 1, at each batch item and head:

        M[i, j] = exp(g[t]) * M[i, j]
        d[j]    = beta[t] * (v[t, j] - sum_i k[t, i] * M[i, j])
        M[i, j] = M[i, j] + k[t, i] * d[j]
        result[t, j] = (sum_i q[t, i] * M[i, j]) / sqrt(n)

    M starts as `state`, [B, H, n, n], and as zeros where there is none. `state_out` is
    M after the last step, so `state` where S is 0: it is what the next call passes as
    `state`. It always is the second result, also where nothing reads it.

    Computed in f32 (f64 for f64); `result` is rounded once, to the element type of `q`.
    `state` and `state_out` are of the type in which it is computed, so that a sequence
    in parts gives what it gives as a whole, to rounding where steps are taken in blocks.
    Callers normalise `q` and `k`. Of values that aren't finite, results are infinite or NaN,
    in no fixed way: forms of the recurrence differ in it.

    `chunk` says how generic code computes, never what: `chunk` steps at a time by matrix
    products, where none of their decays is above one (g <= 0), and step by step where one
    is or is NaN. Kernel templates choose their own blocks, but where `chunk` is 1: then
    they go step by step, too, and a step has the same bits wherever a sequence is cut.
    Absent: step by step.

    - (C1) `q` has four dimensions.
    - (C2) `g` and `beta` are [B, S, H], of the element type of `q`.
    - (C3) `state` is [B, H, n, n].
    - (C4) `state` is of f32, or of f64 where `q` is.
    - (C5) `chunk` is positive.

    ```mlir
    func.func @f(%q: tensor<1x?x2x8xbf16>, %g: tensor<1x?x2xbf16>, %beta: tensor<1x?x2xbf16>,
                 %state: tensor<1x2x8x8xf32>) -> (tensor<1x?x2x8xbf16>, tensor<1x2x8x8xf32>) {
      %y, %next = mir.gated_delta_net %q, %q, %q decay %g beta %beta state %state
          : tensor<1x?x2x8xbf16>, tensor<1x?x2xbf16>, tensor<1x2x8x8xf32>
      return %y, %next : tensor<1x?x2x8xbf16>, tensor<1x2x8x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$q, MIR_FloatTensor:$k, MIR_FloatTensor:$v,
      MIR_FloatTensor:$g, MIR_FloatTensor:$beta, Optional<MIR_FloatTensor>:$state,
      OptionalAttr<I64Attr>:$chunk);
  let results = (outs MIR_FloatTensor:$result, MIR_FloatTensor:$state_out);
  let assemblyFormat = [{
    $q `,` $k `,` $v `decay` $g `beta` $beta (`state` $state^)? (`chunk` $chunk^)?
    attr-dict `:` type($q) `,` type($g) (`,` type($state)^)?
  }];
}

def MIR_SelectiveScanOp : MIR_InferredOp<"selective_scan", [
    AllTypesMatch<["x", "delta"]>, AllTypesMatch<["b", "c"]>]> {
  let summary = "state space model whose input, output and step depend on the token";
  let description = [{
    A state H for each batch item and channel, of n numbers, as in Mamba. `x` and `delta`, the
    step, are [B, S, h], `a` is [h, n], `b` and `c` are [B, S, n]. For t = 0, 1, ..., S - 1, at
    each batch item and channel:

        H[m] = exp(delta[t] * a[m]) * H[m] + delta[t] * b[t, m] * x[t]
        result[t] = sum over m of c[t, m] * H[m]

    H starts as `state`, [B, h, n], and as zeros where there is none. `state_out` is H after the
    last step, so `state` where S is 0: it is what the next call passes as `state`. What models
    have around it isn't part of it: softplus of the step, the term D x, a gate.

    Computed in f32 (f64 for f64); `result` is rounded once, to the element type of `x`. `state`
    and `state_out` are of the type in which it is computed.

    - (C1) `x` has three dimensions.
    - (C2) `a` is [h, n], of the element type of `x`.
    - (C3) `b` and `c` are [B, S, n], of the element type of `x`.
    - (C4) `state` is [B, h, n].
    - (C5) `state` is of f32, or of f64 where `x` is.

    ```mlir
    func.func @f(%x: tensor<1x?x8xbf16>, %a: tensor<8x4xbf16>, %b: tensor<1x?x4xbf16>,
                 %state: tensor<1x8x4xf32>) -> (tensor<1x?x8xbf16>, tensor<1x8x4xf32>) {
      %y, %next = mir.selective_scan %x, %x, %a, %b, %b state %state
          : tensor<1x?x8xbf16>, tensor<8x4xbf16>, tensor<1x?x4xbf16>, tensor<1x8x4xf32>
      return %y, %next : tensor<1x?x8xbf16>, tensor<1x8x4xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$delta, MIR_FloatTensor:$a,
      MIR_FloatTensor:$b, MIR_FloatTensor:$c, Optional<MIR_FloatTensor>:$state);
  let results = (outs MIR_FloatTensor:$result, MIR_FloatTensor:$state_out);
  let assemblyFormat = [{
    $x `,` $delta `,` $a `,` $b `,` $c (`state` $state^)? attr-dict
    `:` type($x) `,` type($a) `,` type($b) (`,` type($state)^)?
  }];
}

#endif // RLX_MIR_RECURRENCE
