// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocks that multiply activations by weights.

#ifndef RLX_HIR_LINEAR
#define RLX_HIR_LINEAR

include "hir/base.td"

def HIR_LinearOp : HIR_BlockOp<"linear"> {
  let summary = "linear layer";
  let description = [{
    Multiplies the rows of `x`, [..., K], by a weight with K inputs and N outputs,
    dense or packed, adds `bias`, [N], where there is one, and applies `activation`
    to each element where there is one:

        result[..., n] = activation(sum_k x[..., k] * weight[k, n] + bias[n])

    The result is [..., N], of the element type of `x`; sums are accumulated in f32
    (f64 for f64). Under the policy `direct`, bias and activation become one
    primitive with the product; under `fusable` each is a primitive of its own,
    which rounds to the element type.

    - (C1) `x` has at least two dimensions.
    - (C2) a dense `weight` has two dimensions.
    - (C3) a packed `weight` has `layout = rows`.
    - (C4) `weight` has as many inputs as `x` has columns.
    - (C5) a dense `weight` has the element type of `x`.
    - (C6) `transpose_weight` is there only with a dense `weight`.
    - (C7) `bias` has one dimension, as long as `weight` has outputs.
    - (C8) `bias` has the element type of `x`.

    ```mlir
    func.func @f(%x: tensor<?x8xbf16>, %w: tensor<16x8xbf16>, %b: tensor<16xbf16>) -> tensor<?x16xbf16> {
      %y = hir.linear %x, %w bias %b activation silu transpose_weight
          : tensor<?x8xbf16>, tensor<16x8xbf16>, tensor<16xbf16>
      return %y : tensor<?x16xbf16>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_Weight:$weight, Optional<MIR_FloatTensor>:$bias,
      OptionalAttr<MIR_ActivationAttr>:$activation, UnitAttr:$transpose_weight);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $weight (`bias` $bias^)? (`activation` `` $activation^)?
    (`transpose_weight` $transpose_weight^)? attr-dict `:` type(operands)
  }];
}

def HIR_LinearFusedOp : HIR_BlockOp<"linear_fused"> {
  let summary = "linear layer with bias, one primitive under policy direct";
  let description = [{
    The function of `hir.linear` with a bias:

        result[..., n] = activation(sum_k x[..., k] * weight[k, n] + bias[n])

    Under the fusion policy `direct`, with a dense `weight`, it stays one primitive: the
    product, the sum and the activation are computed in the accumulation type, f32 (f64
    for f64), and rounded once, to the element type of `x`. Under `fusable` it lowers as
    `hir.linear` does, so that differentiation meets primitives alone.

    - (C1) `x` has at least two dimensions.
    - (C2) a dense `weight` has two dimensions.
    - (C3) a packed `weight` has `layout = rows`.
    - (C4) `weight` has as many inputs as `x` has columns.
    - (C5) a dense `weight` has the element type of `x`.
    - (C6) `transpose_weight` is there only with a dense `weight`.
    - (C7) `bias` has one dimension, as long as `weight` has outputs.
    - (C8) `bias` has the element type of `x`.

    ```mlir
    func.func @f(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf32>) -> tensor<4x16xf32> {
      %y = hir.linear_fused %x, %w, %b activation gelu
          : tensor<4x8xf32>, tensor<8x16xf32>, tensor<16xf32>
      return %y : tensor<4x16xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_Weight:$weight, MIR_FloatTensor:$bias,
      OptionalAttr<MIR_ActivationAttr>:$activation, UnitAttr:$transpose_weight);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $weight `,` $bias (`activation` `` $activation^)?
    (`transpose_weight` $transpose_weight^)? attr-dict `:` type(operands)
  }];
}

def HIR_SharedLinearPairOp : HIR_BlockOp<"shared_linear_pair"> {
  let summary = "two linear layers that read the same activations";
  let description = [{
    Multiplies the rows of `x`, [..., K], by two weights, of N1 and N2 outputs:

        first[..., n]  = sum_k x[..., k] * w_first[k, n]
        second[..., n] = sum_k x[..., k] * w_second[k, n]

    The results are [..., N1] and [..., N2], of the element type of `x`; sums are
    accumulated in f32 (f64 for f64). Says to later passes that both products read
    `x` once, for example as one product with the concatenated weights.

    - (C1) `x` has at least two dimensions.
    - (C2) a dense weight has two dimensions.
    - (C3) a packed weight has `layout = rows`.
    - (C4) both weights have as many inputs as `x` has columns.
    - (C5) a dense weight has the element type of `x`.
    - (C6) `transpose_weight` is there only with a dense weight.

    ```mlir
    func.func @f(%x: tensor<4x8xf32>, %k: tensor<8x16xf32>, %v: tensor<8x32xf32>) -> (tensor<4x16xf32>, tensor<4x32xf32>) {
      %first, %second = hir.shared_linear_pair %x, %k, %v
          : tensor<4x8xf32>, tensor<8x16xf32>, tensor<8x32xf32>
      return %first, %second : tensor<4x16xf32>, tensor<4x32xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_Weight:$w_first, MIR_Weight:$w_second,
      UnitAttr:$transpose_weight);
  let results = (outs MIR_FloatTensor:$first, MIR_FloatTensor:$second);
  let assemblyFormat = [{
    $x `,` $w_first `,` $w_second (`transpose_weight` $transpose_weight^)?
    attr-dict `:` type(operands)
  }];
}

def HIR_SwigluOp : HIR_BlockOp<"swiglu"> {
  let summary = "gated feed-forward network";
  let description = [{
    Feed-forward network whose hidden layer of width F is gated by silu:

        hidden = silu(x . gate_w) * (x . up_w)
        result = hidden . down_w

    `x` is [..., K], `gate_w` and `up_w` have K inputs and F outputs, `down_w` has F
    inputs and N outputs; the result is [..., N], of the element type of `x`. Sums
    are accumulated in f32 (f64 for f64). `hidden` is rounded to the element type of
    `x`; under the policy `fusable`, so are both products and silu's result.

    - (C1) `x` has at least two dimensions.
    - (C2) a dense weight has two dimensions.
    - (C3) a packed weight has `layout = rows`.
    - (C4) `gate_w` and `up_w` have as many inputs as `x` has columns.
    - (C5) a dense weight has the element type of `x`.
    - (C6) `transpose_weight` is there only with a dense weight.
    - (C7) `up_w` has as many outputs, and `down_w` as many inputs, as `gate_w` has
      outputs.

    ```mlir
    func.func @f(%x: tensor<1x?x8xf32>, %gate: tensor<8x32xf32>, %up: tensor<8x32xf32>, %down: tensor<32x8xf32>) -> tensor<1x?x8xf32> {
      %y = hir.swiglu %x gate %gate up %up down %down
          : tensor<1x?x8xf32>, tensor<8x32xf32>, tensor<8x32xf32>, tensor<32x8xf32>
      return %y : tensor<1x?x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_Weight:$gate_w, MIR_Weight:$up_w,
      MIR_Weight:$down_w, UnitAttr:$transpose_weight);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `gate` $gate_w `up` $up_w `down` $down_w (`transpose_weight` $transpose_weight^)?
    attr-dict `:` type(operands)
  }];
}

def HIR_DequantMatmulOp : HIR_BlockOp<"dequant_matmul"> {
  let summary = "product with a packed weight";
  let description = [{
    Multiplies the rows of `x`, [..., K], by a packed weight of N rows of K elements,
    whose elements are decoded by the formula of their scheme:

        result[..., n] = sum_k x[..., k] * decode(weight)[n, k]

    The result is [..., N], of the element type of `x`; sums are accumulated in f32
    (f64 for f64). The same as `hir.linear` without bias, for authors who want to say
    that the weight must be packed.

    - (C1) `x` has at least two dimensions.
    - (C2) `weight` has `layout = rows`.
    - (C3) `weight` has as many inputs as `x` has columns.

    ```mlir
    func.func @f(%x: tensor<?x64xf32>, %w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>) -> tensor<?x16xf32> {
      %y = hir.dequant_matmul %x, %w : tensor<?x64xf32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>
      return %y : tensor<?x16xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_PackedTensor:$weight);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = "$x `,` $weight attr-dict `:` type(operands)";
}

def HIR_DequantMatmulScaledOp : HIR_BlockOp<"dequant_matmul_scaled", [AttrSizedOperandSegments]> {
  let summary = "product with a weight whose scales are a tensor";
  let description = [{
    Multiplies the rows of `x`, [..., K], by a weight of K inputs and N outputs, whose
    elements are decoded from the codes in `weight` and from `scale` by the formula of
    their scheme (see `mir.dequant_matmul_scaled`):

        result[..., n] = sum_k x[..., k] * decode(weight)[k, n]

    The result is [..., N], of the element type of `x`; sums are accumulated in f32
    (f64 for f64).

    - (C1) `x` has at least two dimensions, and the last, K, is static.
    - (C2) `block` is there, and positive, exactly with int8, int8a and int4.
    - (C3) `zero_point` is there exactly with int8a, `global_scale` exactly with nvfp4.
    - (C4) `weight` is [K, N], static; with int4 and nvfp4 it is [ceil(K * N / 2)].
    - (C5) `scale` is f32 [ceil(K / block), N], static; f32 [N] with both fp8; i8
      [ceil(K / 16), N] with nvfp4.
    - (C6) `zero_point` has the type of `scale`.
    - (C7) `global_scale` is [1].

    ```mlir
    func.func @f(%x: tensor<?x40xf32>, %w: tensor<40x17xi8>, %s: tensor<2x17xf32>, %z: tensor<2x17xf32>) -> tensor<?x17xf32> {
      %y = hir.dequant_matmul_scaled %x, %w scale %s zero_point %z scheme int8a block 32
          : tensor<?x40xf32>, tensor<40x17xi8>, tensor<2x17xf32>, tensor<2x17xf32>
      return %y : tensor<?x17xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_I8Tensor:$weight, MIR_DenseOf<AnyTypeOf<[F32, I8]>>:$scale,
      Optional<MIR_F32Tensor>:$zero_point, Optional<MIR_F32Tensor>:$global_scale,
      MIR_ScaledSchemeAttr:$scheme, OptionalAttr<I64Attr>:$block);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $weight `scale` $scale (`zero_point` $zero_point^)? (`global_scale` $global_scale^)?
    `scheme` `` $scheme (`block` $block^)? attr-dict `:` type(operands)
  }];
}

#endif // RLX_HIR_LINEAR
