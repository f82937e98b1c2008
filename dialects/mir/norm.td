// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Normalisations, alone and fused with a residual sum.

#ifndef RLX_MIR_NORM
#define RLX_MIR_NORM

include "mir/base.td"

class MIR_NormOp<string mnemonic> : MIR_Op<mnemonic, [
    AllTypesMatch<["x", "result"]>, AllElementTypesMatch<["x", "gamma"]>]> {
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatVector:$gamma, Optional<MIR_FloatVector>:$beta,
      DefaultValuedAttr<I64Attr, "-1">:$axis, DefaultValuedAttr<F32Attr, "1e-5f">:$eps);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $gamma (`beta` `(` $beta^ `:` type($beta) `)`)? (`axis` $axis^)? (`eps` $eps^)?
    attr-dict `:` type($x) `,` type($gamma)
  }];
  let hasVerifier = 1;
}

def MIR_LayerNormOp : MIR_NormOp<"layer_norm"> {
  let summary = "normalisation to mean 0 and variance 1 along one dimension";
  let description = [{
    Along `axis`, which counts from the end where it is negative:

        result = (x - mean(x)) / sqrt(variance(x) + eps) * gamma + beta

    The variance is the mean of squared differences (divided by the count), taken from
    the differences, not from the mean of squares. All is computed in f32 (f64 for f64)
    and rounded once. `eps` has the unit of `x` squared. Without `beta` nothing is added.

    - (C1) `axis` is a dimension of `x`.
    - (C2) `gamma` is as long as that dimension.
    - (C3) `beta` is as long as that dimension, and of the element type of `x`.
    - (C4) `eps` is positive and finite.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %g: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<?x8xf32> {
      %y = mir.layer_norm %x, %g beta(%b : tensor<8xf32>) eps 0.25 : tensor<?x8xf32>, tensor<8xf32>
      return %y : tensor<?x8xf32>
    }
    ```
  }];
}

def MIR_RmsNormOp : MIR_NormOp<"rms_norm"> {
  let summary = "normalisation to root mean square 1 along one dimension";
  let description = [{
    Along `axis`, which counts from the end where it is negative:

        result = x / sqrt(mean(x^2) + eps) * gamma + beta

    All is computed in f32 (f64 for f64) and rounded once. `eps` has the unit of `x`
    squared and goes under the root. Without `beta` nothing is added.

    - (C1) `axis` is a dimension of `x`.
    - (C2) `gamma` is as long as that dimension.
    - (C3) `beta` is as long as that dimension, and of the element type of `x`.
    - (C4) `eps` is positive and finite.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %g: tensor<8xf32>) -> tensor<?x8xf32> {
      %y = mir.rms_norm %x, %g eps 0.25 : tensor<?x8xf32>, tensor<8xf32>
      return %y : tensor<?x8xf32>
    }
    ```
  }];
}

class MIR_FusedResidualNormOp<string mnemonic> : MIR_Op<mnemonic, [
    AttrSizedOperandSegments, AllTypesMatch<["x", "residual", "result"]>,
    AllElementTypesMatch<["x", "gamma"]>]> {
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$residual,
      Optional<MIR_FloatVector>:$bias, MIR_FloatVector:$gamma, Optional<MIR_FloatVector>:$beta,
      DefaultValuedAttr<F32Attr, "1e-5f">:$eps);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $residual `,` $gamma (`bias` `(` $bias^ `:` type($bias) `)`)?
    (`beta` `(` $beta^ `:` type($beta) `)`)? (`eps` $eps^)?
    attr-dict `:` type($x) `,` type($gamma)
  }];
  let hasVerifier = 1;
}

def MIR_FusedResidualLayerNormOp : MIR_FusedResidualNormOp<"fused_residual_layer_norm"> {
  let summary = "layer normalisation of a sum";
  let description = [{
    `layer_norm(x + residual + bias, gamma, beta)` over the last dimension. The sum
    stays in f32 (f64 for f64): f16 and bf16 results may differ in the last bit from
    those of separate operations. `bias`, `gamma` and `beta` are as long as the last
    dimension; without `bias` or `beta` nothing is added there.

    - (C1) `x` has at least one dimension.
    - (C2) `gamma` is as long as the last dimension of `x`.
    - (C3) `bias` and `beta` are as long as the last dimension of `x`, and of its
      element type.
    - (C4) `eps` is positive and finite.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %r: tensor<?x8xf32>, %g: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<?x8xf32> {
      %y = mir.fused_residual_layer_norm %x, %r, %g beta(%b : tensor<8xf32>)
          : tensor<?x8xf32>, tensor<8xf32>
      return %y : tensor<?x8xf32>
    }
    ```
  }];
}

def MIR_FusedResidualRmsNormOp : MIR_FusedResidualNormOp<"fused_residual_rms_norm"> {
  let summary = "root-mean-square normalisation of a sum";
  let description = [{
    `rms_norm(x + residual + bias, gamma, beta)` over the last dimension. The sum stays
    in f32 (f64 for f64): f16 and bf16 results may differ in the last bit from those of
    separate operations. `bias`, `gamma` and `beta` are as long as the last dimension;
    without `bias` or `beta` nothing is added there.

    - (C1) `x` has at least one dimension.
    - (C2) `gamma` is as long as the last dimension of `x`.
    - (C3) `bias` and `beta` are as long as the last dimension of `x`, and of its
      element type.
    - (C4) `eps` is positive and finite.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %r: tensor<?x8xf32>, %g: tensor<8xf32>) -> tensor<?x8xf32> {
      %y = mir.fused_residual_rms_norm %x, %r, %g eps 0.25 : tensor<?x8xf32>, tensor<8xf32>
      return %y : tensor<?x8xf32>
    }
    ```
  }];
}

#endif // RLX_MIR_NORM
