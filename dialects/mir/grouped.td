// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of rows with one of several weights each: mixtures of experts.

#ifndef RLX_MIR_GROUPED
#define RLX_MIR_GROUPED

include "mir/base.td"

def MIR_GroupedMatmulOp : MIR_InferredOp<"grouped_matmul", [AllElementTypesMatch<["x", "weight"]>]> {
  let summary = "product of each row with the weight of its expert";
  let description = [{
    With `x` [m, k], the experts' weights [e, k, n] and the number of an expert for each row:

        result[m, n] = sum_k x[m, k] * weight[expert[m], k, n]

    The sum is in f32 (f64 for f64) and rounded once; its order is free. An index outside of
    the experts is clamped to them; an f32 index drops its fraction, and NaN counts as 0.

    - (C1) `x` has two dimensions, `weight` three and `expert` one.
    - (C2) `x` and `weight` have the same k.
    - (C3) `expert` has an entry for each row of `x`.
    - (C4) there is an expert, or `x` has no rows. Where sizes are dynamic, this is a condition
      at run time.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %w: tensor<4x8x16xf32>, %e: tensor<?xi32>) -> tensor<?x16xf32> {
      %y = mir.grouped_matmul %x, %w, %e : tensor<?x8xf32>, tensor<4x8x16xf32>, tensor<?xi32>
      return %y : tensor<?x16xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$weight, MIR_IndicesTensor:$expert);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = "$x `,` $weight `,` $expert attr-dict `:` type(operands)";
}

def MIR_DequantGroupedMatmulOp : MIR_InferredOp<"dequant_grouped_matmul"> {
  let summary = "product of each row with the packed weight of its expert";
  let description = [{
    `weight` holds the rows of `experts` weights [n, k] one after the other, e * n in all. With
    W_e the decoded weight of expert e, and `x` [m, k]:

        result[m, n] = sum_k x[m, k] * W_expert[m][n, k]

    The sum is in f32 (f64 for f64) and rounded once; its order is free. An index outside of
    the experts is clamped to them; an f32 index drops its fraction, and NaN counts as 0.

    - (C1) `x` has two dimensions and `expert` one.
    - (C2) the last dimension of `x` is the k of `weight`.
    - (C3) `expert` has an entry for each row of `x`.
    - (C4) `experts` is positive, and divides the number of rows of `weight`, which is static.

    ```mlir
    func.func @f(%x: tensor<?x32xf32>, %w: tensor<64x20xi8, #mir.packed<q4_1, k = 32>>, %e: tensor<?xi32>)
        -> tensor<?x16xf32> {
      %y = mir.dequant_grouped_matmul %x, %w, %e experts 4
          : tensor<?x32xf32>, tensor<64x20xi8, #mir.packed<q4_1, k = 32>>, tensor<?xi32>
      return %y : tensor<?x16xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_PackedTensor:$weight, MIR_IndicesTensor:$expert,
      I64Attr:$experts);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $weight `,` $expert `experts` $experts attr-dict `:` type(operands)
  }];
}

def MIR_GroupedBlockDotOp : MIR_InferredOp<"grouped_block_dot", [
    TypesMatchWith<"'scale' is of f32 and has one entry for each 32 elements of 'q'",
        "q", "scale", "::rlx::mir::getBlockType($_self, ::rlx::mir::BlockField::Scale)">,
    TypesMatchWith<"'sum' is of i32 and has one entry for each 32 elements of 'q'",
        "q", "sum", "::rlx::mir::getBlockType($_self, ::rlx::mir::BlockField::Sum)">]> {
  let summary = "product of each quantised row with the packed weight of its expert";
  let description = [{
    `weight` holds the rows of `experts` weights [n, k] one after the other, e * n in all. `q`
    [m, k], `scale` and `sum` are what `mir.block_quantize` gives with blocks of 32, of any of
    its bits. With d_w * q_w + m_w the values of the blocks of the weight of expert[m]:

        result[m, n] = sum over blocks of scale * (d_w * <q_w, q> + m_w * sum)

    as `mir.block_dot` computes it: integers are exact, the rest is in f32, and the order of
    the outer sum is free. An index outside of the experts is clamped to them; an f32 index
    drops its fraction, and NaN counts as 0.

    - (C1) `q` has two dimensions and `expert` one.
    - (C2) the last dimension of `q` is the k of `weight`.
    - (C3) `expert` has an entry for each row of `q`.
    - (C4) `experts` is positive, and divides the number of rows of `weight`, which is static.
    - (C5) the scheme of `weight` holds integers, as for `mir.block_dot`.

    ```mlir
    func.func @f(%q: tensor<?x64xi8>, %scale: tensor<?x2xf32>, %sum: tensor<?x2xi32>,
                 %w: tensor<32x40xi8, #mir.packed<q4_1, k = 64>>, %e: tensor<?xi32>) -> tensor<?x16xf32> {
      %y = mir.grouped_block_dot %q, %scale, %sum, %w, %e experts 2
          : tensor<?x64xi8>, tensor<32x40xi8, #mir.packed<q4_1, k = 64>>, tensor<?xi32>
      return %y : tensor<?x16xf32>
    }
    ```
  }];
  let arguments = (ins MIR_BlockIntegers:$q, MIR_F32Tensor:$scale, MIR_I32Tensor:$sum,
      MIR_PackedTensor:$weight, MIR_IndicesTensor:$expert, I64Attr:$experts);
  let results = (outs MIR_F32Tensor:$result);
  let assemblyFormat = [{
    $q `,` $scale `,` $sum `,` $weight `,` $expert `experts` $experts attr-dict
    `:` type($q) `,` type($weight) `,` type($expert)
  }];
  let hasVerifier = 1;
}

def MIR_DequantMoeWeightsOp : MIR_InferredOp<"dequant_moe_weights"> {
  let summary = "the decoded weights of packed experts";
  let description = [{
    `weight` holds the rows of `experts` weights [n, k] one after the other, e * n in all. With
    W_e the decoded weight of expert e, in f32:

        result[e, k, n] = W_e[n, k]

    which is what `mir.grouped_matmul` takes.

    - (C1) `experts` is positive, and divides the number of rows of `weight`, which is static.

    ```mlir
    func.func @f(%w: tensor<64x20xi8, #mir.packed<q4_1, k = 32>>) -> tensor<4x32x16xf32> {
      %y = mir.dequant_moe_weights %w experts 4 : tensor<64x20xi8, #mir.packed<q4_1, k = 32>>
      return %y : tensor<4x32x16xf32>
    }
    ```
  }];
  let arguments = (ins MIR_PackedTensor:$weight, I64Attr:$experts);
  let results = (outs MIR_F32Tensor:$result);
  let assemblyFormat = "$weight `experts` $experts attr-dict `:` type($weight)";
}

#endif // RLX_MIR_GROUPED
