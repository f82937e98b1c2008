// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Normalisations.

#ifndef RLX_HIR_NORM
#define RLX_HIR_NORM

include "hir/base.td"

def HIR_RmsNormOp : HIR_BlockOp<"rms_norm"> {
  let summary = "root-mean-square normalisation over the last dimension";
  let description = [{
    Scales each row of `x`, [..., E], to unit root mean square, then by `gamma`, [E],
    and adds `beta`, [E], where there is one:

        result[..., i] = gamma[i] * x[..., i] / sqrt(mean(x[..., :]^2) + eps) + beta[i]

    The result has the type of `x`. It is computed in f32 (f64 for f64) and rounded
    once. `eps` has the unit of `x` squared and goes under the root.

    - (C1) `x` has at least one dimension.
    - (C2) `gamma` and `beta` have one dimension, as long as the last one of `x`.
    - (C3) `gamma` and `beta` have the element type of `x`.
    - (C4) `eps` is positive and finite.

    ```mlir
    func.func @f(%x: tensor<4x8xbf16>, %gamma: tensor<8xbf16>) -> tensor<4x8xbf16> {
      %y = hir.rms_norm %x, %gamma eps 0.25 : tensor<4x8xbf16>, tensor<8xbf16>
      return %y : tensor<4x8xbf16>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$gamma,
      Optional<MIR_FloatTensor>:$beta, HIR_EpsAttr:$eps);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat =
      "$x `,` $gamma (`beta` $beta^)? (`eps` $eps^)? attr-dict `:` type(operands)";
}

def HIR_ResidualRmsNormOp : HIR_BlockOp<"residual_rms_norm"> {
  let summary = "root-mean-square normalisation of a sum";
  let description = [{
    Normalises the sum of `x` and `residual`, both [..., E]:

        t = x + residual
        result[..., i] = gamma[i] * t[..., i] / sqrt(mean(t[..., :]^2) + eps) + beta[i]

    The result has the type of `x`. The sum isn't a result: a block that goes on with
    it adds by itself. Computed in f32 (f64 for f64); under the policy `direct` the
    sum is kept in that type, under `fusable` it is rounded to the element type of
    `x`, which changes bits of f16 and bf16.

    - (C1) `x` has at least one dimension.
    - (C2) `gamma` and `beta` have one dimension, as long as the last one of `x`.
    - (C3) `gamma` and `beta` have the element type of `x`.
    - (C4) `eps` is positive and finite.
    - (C5) `residual` has the type of `x`.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %r: tensor<?x8xf32>, %gamma: tensor<8xf32>, %beta: tensor<8xf32>) -> tensor<?x8xf32> {
      %y = hir.residual_rms_norm %x, %r, %gamma beta %beta
          : tensor<?x8xf32>, tensor<?x8xf32>, tensor<8xf32>, tensor<8xf32>
      return %y : tensor<?x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$residual, MIR_FloatTensor:$gamma,
      Optional<MIR_FloatTensor>:$beta, HIR_EpsAttr:$eps);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $residual `,` $gamma (`beta` $beta^)? (`eps` $eps^)? attr-dict `:` type(operands)
  }];
}

#endif // RLX_HIR_NORM
