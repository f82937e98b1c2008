// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Linear algebra beside matrix products: contractions, low-rank updates, systems of equations.

#ifndef RLX_MIR_LINEAR
#define RLX_MIR_LINEAR

include "mir/base.td"

def MIR_DotGeneralOp : MIR_InferredOp<"dot_general"> {
  let summary = "contraction of two tensors along any dimensions";
  let description = [{
    Pairs dimensions of `lhs` with dimensions of `rhs`. Those of `lhs_batch` and `rhs_batch`
    stay, once; along those of `lhs_contracting` and `rhs_contracting` the products are summed:

        result[b..., l..., r...] = sum over c of lhs[b..., l..., c...] * rhs[b..., r..., c...]

    with each index at its dimension. The result has the batch dimensions in the order of
    `lhs_batch`, then the other dimensions of `lhs` that stay, then those of `rhs`, both in
    ascending order. Without contracted dimensions it holds single products.

    The sum of floats is in f32 (f64 for f64) and rounded once; its order is free. Products
    and sums of integers are exact, modulo 2^32 or, of i64, 2^64. Those of bytes, i8 and ui8,
    which may be mixed, are of i32.

    - (C1) `lhs_contracting` and `rhs_contracting` have equally many entries, and so have
      `lhs_batch` and `rhs_batch`.
    - (C2) the entries for an operand are dimensions of it, from 0, and none stands there twice.
    - (C3) dimensions of a pair are alike.
    - (C4) `lhs` and `rhs` are of one element type, or both of bytes.

    ```mlir
    func.func @f(%x: tensor<4x?x8x3xf32>, %w: tensor<3x?x4x5xf32>) -> tensor<4x8x5xf32> {
      %y = mir.dot_general %x, %w contracting [1, 3] with [1, 0] batch [0] with [2]
          : tensor<4x?x8x3xf32>, tensor<3x?x4x5xf32>
      return %y : tensor<4x8x5xf32>
    }
    ```
  }];
  let arguments = (ins MIR_DenseOf<MIR_Factor>:$lhs, MIR_DenseOf<MIR_Factor>:$rhs,
      DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$lhs_contracting,
      DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$rhs_contracting,
      DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$lhs_batch,
      DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$rhs_batch);
  let results = (outs MIR_DenseOf<MIR_Product>:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs (`contracting` $lhs_contracting^ `with` $rhs_contracting)?
    (`batch` $lhs_batch^ `with` $rhs_batch)? attr-dict `:` type($lhs) `,` type($rhs)
  }];
}

def MIR_LoraMatmulOp : MIR_InferredOp<"lora_matmul", [
    AllElementTypesMatch<["x", "weight", "a", "b"]>]> {
  let summary = "matrix product with a weight and a low-rank update of it";
  let description = [{
    With `x` [..., k], `weight` [k, n], `a` [k, r] and `b` [r, n]:

        result = x weight + (scale * (x a)) b

    All is computed in f32 (f64 for f64), the products in between too, and rounded once.

    - (C1) `x` has at least one dimension; `weight`, `a` and `b` have two.
    - (C2) `x`, `weight` and `a` have the same k.
    - (C3) `a` and `b` have the same r.
    - (C4) `weight` and `b` have the same n.
    - (C5) `scale` is finite.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %w: tensor<8x16xf32>, %a: tensor<8x2xf32>, %b: tensor<2x16xf32>)
        -> tensor<?x16xf32> {
      %y = mir.lora_matmul %x, %w, %a, %b scale 0.5
          : tensor<?x8xf32>, tensor<8x16xf32>, tensor<8x2xf32>, tensor<2x16xf32>
      return %y : tensor<?x16xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$weight, MIR_FloatTensor:$a,
      MIR_FloatTensor:$b, F32Attr:$scale);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $weight `,` $a `,` $b `scale` $scale attr-dict `:` type(operands)
  }];
}

/// A square system of equations, or one for each batch item.
class MIR_SolveOp<string mnemonic> : MIR_InferredOp<mnemonic, [AllElementTypesMatch<["a", "b"]>]> {
  let arguments = (ins MIR_DenseOf<AnyTypeOf<[F32, F64], "f32 or f64">>:$a,
      MIR_DenseOf<AnyTypeOf<[F32, F64], "f32 or f64">>:$b);
  let results = (outs MIR_DenseOf<AnyTypeOf<[F32, F64], "f32 or f64">>:$result);
  let assemblyFormat = "$a `,` $b attr-dict `:` type($a) `,` type($b)";
}

def MIR_DenseSolveOp : MIR_SolveOp<"dense_solve"> {
  let summary = "solution of a system of linear equations";
  let description = [{
    The x for which

        a x = b

    with `a` [n, n], and `b` and x both [n], or both [n, k] for k right sides. Computed in the
    element type by elimination with partial pivoting: the pivot of a column is its largest
    element by magnitude among the rows that are left, the first of equal ones; NaN is none
    where there is a number.

    **Where a pivot is 0, all of x is NaN.** So it is for a matrix that is singular as it
    stands; one that is singular but for rounding may have a pivot near 0, and gives what
    elimination gives, as in other libraries. NaN in `a` makes all of x NaN; NaN in a right
    side makes the x of that side NaN.

    - (C1) `a` is square, of two dimensions.
    - (C2) `b` has one or two dimensions, and the first is n.

    ```mlir
    func.func @f(%a: tensor<8x8xf64>, %b: tensor<8x?xf64>) -> tensor<8x?xf64> {
      %x = mir.dense_solve %a, %b : tensor<8x8xf64>, tensor<8x?xf64>
      return %x : tensor<8x?xf64>
    }
    ```
  }];
}

def MIR_BatchedDenseSolveOp : MIR_SolveOp<"batched_dense_solve"> {
  let summary = "solutions of systems of linear equations";
  let description = [{
    For each batch item, the x for which a x = b, as `mir.dense_solve` gives it: `a` is
    [batch, n, n], and `b` and the result are [batch, n], or [batch, n, k] for k right sides. A
    `b` of two dimensions is always [batch, n]. A singular matrix makes the x of its own batch
    item NaN, and no other.

    - (C1) `a` is square in its last two of three dimensions.
    - (C2) `b` has two or three dimensions, and the first two are batch and n.

    ```mlir
    func.func @f(%a: tensor<?x8x8xf32>, %b: tensor<?x8xf32>) -> tensor<?x8xf32> {
      %x = mir.batched_dense_solve %a, %b : tensor<?x8x8xf32>, tensor<?x8xf32>
      return %x : tensor<?x8xf32>
    }
    ```
  }];
}

#endif // RLX_MIR_LINEAR
