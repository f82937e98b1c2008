// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients of operations with respect to their operands, where they have names of their own.

#ifndef RLX_MIR_BACKWARD
#define RLX_MIR_BACKWARD

include "mir/base.td"

def MIR_ActivationBackwardOp : MIR_Op<"activation_backward", [
    AllTypesMatch<["x", "dy", "result"]>]> {
  let summary = "gradient of a function of one element";
  let description = [{
    Where `dy` is the gradient by the function's result, the gradient by its operand `x`:

        result = dy * kind'(x)

    with the derivative of the function `kind`, of which a product may end with some
    (`mir.fused_matmul_bias_act`): `relu` has 0 at 0, and NaN of `x` stays NaN. Computed in
    f32 (f64 for f64) and rounded once.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %dy: tensor<?x8xf32>) -> tensor<?x8xf32> {
      %dx = mir.activation_backward %x, %dy silu : tensor<?x8xf32>
      return %dx : tensor<?x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$dy, MIR_ActivationAttr:$kind);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = "$x `,` $dy `` $kind attr-dict `:` type($x)";
}

/// Gradients of norms by their operand, and by `gamma`; both normalise along one dimension.
class MIR_NormBackwardInputOp<string mnemonic> : MIR_Op<mnemonic, [
    AllTypesMatch<["x", "dy", "result"]>, AllElementTypesMatch<["x", "gamma"]>]> {
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatVector:$gamma, MIR_FloatTensor:$dy,
      DefaultValuedAttr<I64Attr, "-1">:$axis, DefaultValuedAttr<F32Attr, "1e-5f">:$eps);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $gamma `,` $dy (`axis` $axis^)? (`eps` $eps^)? attr-dict `:` type($x) `,` type($gamma)
  }];
  let hasVerifier = 1;
}

class MIR_NormBackwardGammaOp<string mnemonic> : MIR_InferredOp<mnemonic, [
    AllTypesMatch<["x", "dy"]>]> {
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$dy,
      DefaultValuedAttr<I64Attr, "-1">:$axis, DefaultValuedAttr<F32Attr, "1e-5f">:$eps);
  let results = (outs MIR_FloatVector:$result);
  let assemblyFormat = [{
    $x `,` $dy (`axis` $axis^)? (`eps` $eps^)? attr-dict `:` type($x)
  }];
}

def MIR_LayerNormBackwardInputOp : MIR_NormBackwardInputOp<"layer_norm_backward_input"> {
  let summary = "gradient of layer normalisation by its operand";
  let description = [{
    Where `dy` is the gradient by the result of `mir.layer_norm` of `x` and `gamma`, the
    gradient by `x`. Along `axis`, which counts from the end where it is negative:

        r = 1 / sqrt(variance(x) + eps)
        n = (x - mean(x)) * r
        s = dy * gamma
        result = r * (s - mean(s) - n * mean(s * n))

    All is computed in f32 (f64 for f64) and rounded once.

    - (C1) `axis` is a dimension of `x`.
    - (C2) `gamma` is as long as that dimension.
    - (C3) `eps` is positive and finite.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %g: tensor<8xf32>, %dy: tensor<?x8xf32>) -> tensor<?x8xf32> {
      %dx = mir.layer_norm_backward_input %x, %g, %dy eps 0.25 : tensor<?x8xf32>, tensor<8xf32>
      return %dx : tensor<?x8xf32>
    }
    ```
  }];
}

def MIR_LayerNormBackwardGammaOp : MIR_NormBackwardGammaOp<"layer_norm_backward_gamma"> {
  let summary = "gradient of layer normalisation by its scale";
  let description = [{
    Where `dy` is the gradient by the result of `mir.layer_norm` of `x`, the gradient by
    `gamma`: the sum over all dimensions but `axis` of

        dy * (x - mean(x)) / sqrt(variance(x) + eps)

    The gradient by `beta` is the sum of `dy` over the same dimensions. All is computed in
    f32 (f64 for f64) and rounded once.

    - (C1) `axis` is a dimension of `x`.
    - (C2) `eps` is positive and finite.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %dy: tensor<?x8xf32>) -> tensor<8xf32> {
      %dg = mir.layer_norm_backward_gamma %x, %dy : tensor<?x8xf32>
      return %dg : tensor<8xf32>
    }
    ```
  }];
}

def MIR_RmsNormBackwardInputOp : MIR_NormBackwardInputOp<"rms_norm_backward_input"> {
  let summary = "gradient of root-mean-square normalisation by its operand";
  let description = [{
    Where `dy` is the gradient by the result of `mir.rms_norm` of `x` and `gamma`, the
    gradient by `x`. Along `axis`, which counts from the end where it is negative:

        r = 1 / sqrt(mean(x^2) + eps)
        s = dy * gamma
        result = r * (s - x * r^2 * mean(s * x))

    All is computed in f32 (f64 for f64) and rounded once.

    - (C1) `axis` is a dimension of `x`.
    - (C2) `gamma` is as long as that dimension.
    - (C3) `eps` is positive and finite.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %g: tensor<8xf32>, %dy: tensor<?x8xf32>) -> tensor<?x8xf32> {
      %dx = mir.rms_norm_backward_input %x, %g, %dy eps 0.25 : tensor<?x8xf32>, tensor<8xf32>
      return %dx : tensor<?x8xf32>
    }
    ```
  }];
}

def MIR_RmsNormBackwardGammaOp : MIR_NormBackwardGammaOp<"rms_norm_backward_gamma"> {
  let summary = "gradient of root-mean-square normalisation by its scale";
  let description = [{
    Where `dy` is the gradient by the result of `mir.rms_norm` of `x`, the gradient by
    `gamma`: the sum over all dimensions but `axis` of

        dy * x / sqrt(mean(x^2) + eps)

    The gradient by `beta` is the sum of `dy` over the same dimensions. All is computed in
    f32 (f64 for f64) and rounded once.

    - (C1) `axis` is a dimension of `x`.
    - (C2) `eps` is positive and finite.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %dy: tensor<?x8xf32>) -> tensor<8xf32> {
      %dg = mir.rms_norm_backward_gamma %x, %dy : tensor<?x8xf32>
      return %dg : tensor<8xf32>
    }
    ```
  }];
}

#endif // RLX_MIR_BACKWARD
