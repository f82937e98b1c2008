// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products of dense tensors. Those with packed weights stand in quant.td.

#ifndef RLX_MIR_MATMUL
#define RLX_MIR_MATMUL

include "mir/base.td"

def MIR_MatmulOp : MIR_InferredOp<"matmul"> {
  let summary = "matrix product";
  let description = [{
    Multiplies the matrices in the last two dimensions, for each batch of the others:

        result[..., m, n] = sum_k lhs[..., m, k] * rhs[..., k, n]

    With `transpose_rhs`, `rhs` is [..., n, k]: the order in which models store their
    weights. The batch dimensions broadcast as numpy's do.

    The sum of floats is in f32 (f64 for f64) and rounded once; its order is free. Products
    and sums of integers are exact, modulo 2^32 or, of i64, 2^64. Those of bytes, i8 and ui8,
    which may be mixed, are of i32.

    - (C1) `lhs` and `rhs` have at least two dimensions.
    - (C2) `lhs` and `rhs` have the same k.
    - (C3) the batch dimensions of `lhs` and `rhs` broadcast.
    - (C4) `lhs` and `rhs` are of one element type, or both of bytes.

    ```mlir
    func.func @f(%x: tensor<2x?x8xf32>, %w: tensor<16x8xf32>) -> tensor<2x?x16xf32> {
      %y = mir.matmul %x, %w transpose_rhs : tensor<2x?x8xf32>, tensor<16x8xf32>
      return %y : tensor<2x?x16xf32>
    }
    ```
  }];
  let arguments = (ins MIR_DenseOf<MIR_Factor>:$lhs, MIR_DenseOf<MIR_Factor>:$rhs,
      UnitAttr:$transpose_rhs);
  let results = (outs MIR_DenseOf<MIR_Product>:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs (`transpose_rhs` $transpose_rhs^)? attr-dict `:` type($lhs) `,` type($rhs)
  }];
}

def MIR_FusedMatmulBiasActOp : MIR_InferredOp<"fused_matmul_bias_act", [
    AllElementTypesMatch<["x", "weight", "bias"]>]> {
  let summary = "matrix product, bias and activation in one";
  let description = [{
    `activation(matmul(x, weight) + bias)`; without `activation`, the sum as it is.
    The product stays in f32 (f64 for f64) until the activation is applied, and is
    rounded once: f16 and bf16 results may differ in the last bit from those of three
    operations.

    `x` is [..., k], `weight` is [k, n], or [n, k] with `transpose_rhs`, `bias` is [n].

    - (C1) `x` has at least one dimension, and `weight` two.
    - (C2) `x` and `weight` have the same k.
    - (C3) `weight` and `bias` have the same n.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf32>) -> tensor<?x16xf32> {
      %y = mir.fused_matmul_bias_act %x, %w, %b activation silu
          : tensor<?x8xf32>, tensor<8x16xf32>, tensor<16xf32>
      return %y : tensor<?x16xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$weight, MIR_FloatVector:$bias,
      OptionalAttr<MIR_ActivationAttr>:$activation, UnitAttr:$transpose_rhs);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $weight `,` $bias (`transpose_rhs` $transpose_rhs^)? (`activation` `` $activation^)?
    attr-dict `:` type($x) `,` type($weight) `,` type($bias)
  }];
}

def MIR_ScaledMatmulOp : MIR_Op<"scaled_matmul", [AttrSizedOperandSegments]> {
  let summary = "matrix product of floats of 8 bits, with scales";
  let description = [{
    Multiplies the matrices in the last two dimensions, for each batch of the others:

        result[..., m, n] = lhs_scale[..., m] * rhs_scale[..., n] * sum_k lhs[..., m, k] * rhs[..., k, n]

    With `transpose_rhs`, `rhs` is [..., n, k]: the order that tensor cores read. Each
    operand is f8E4M3FN or f8E5M2. A scale is one number, or one for each row of `lhs` or
    column of `rhs`, and 1 where it is absent. The batch dimensions broadcast as numpy's do.

    The sum is in f32, and its order is free. It is multiplied by `lhs_scale`, then by
    `rhs_scale`, in f32, and rounded once to the element type of the result.

    This isn't `mir.dequant_matmul_scaled` with an fp8 scheme: there, x isn't of 8 bits, each
    element of the weight is rounded after scaling, and NaN in it counts as 0.

    - (C1) `lhs` and `rhs` have at least two dimensions.
    - (C2) `lhs` and `rhs` have the same k.
    - (C3) the batch dimensions of `lhs` and `rhs` broadcast.
    - (C4) `lhs_scale` is [], [1], or has the dimensions of `lhs` without k.
    - (C5) `rhs_scale` is [], [1], or has the dimensions of `rhs` without k.
    - (C6) the result has the broadcast batch dimensions, then m and n.

    ```mlir
    func.func @f(%x: tensor<?x64xf8E4M3FN>, %w: tensor<16x64xf8E4M3FN>,
                 %xs: tensor<?xf32>, %ws: tensor<16xf32>) -> tensor<?x16xbf16> {
      %y = mir.scaled_matmul %x, %w lhs_scale %xs rhs_scale %ws transpose_rhs
          : tensor<?x64xf8E4M3FN>, tensor<16x64xf8E4M3FN>, tensor<?xf32>, tensor<16xf32> to tensor<?x16xbf16>
      return %y : tensor<?x16xbf16>
    }
    ```
  }];
  let arguments = (ins MIR_Float8Tensor:$lhs, MIR_Float8Tensor:$rhs, Optional<MIR_F32Tensor>:$lhs_scale,
      Optional<MIR_F32Tensor>:$rhs_scale, UnitAttr:$transpose_rhs);
  let results = (outs MIR_DenseOf<AnyTypeOf<[F16, BF16, F32], "f16, bf16 or f32">>:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs (`lhs_scale` $lhs_scale^)? (`rhs_scale` $rhs_scale^)? (`transpose_rhs` $transpose_rhs^)?
    attr-dict `:` type(operands) `to` type($result)
  }];
  let hasVerifier = 1;
}

#endif // RLX_MIR_MATMUL
