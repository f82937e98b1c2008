// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions, and what is computed from a whole row.

#ifndef RLX_MIR_REDUCTION
#define RLX_MIR_REDUCTION

include "mir/base.td"

def MIR_ReduceOp : MIR_InferredOp<"reduce"> {
  let summary = "sum, mean, largest, smallest, product, any or all along dimensions";
  let description = [{
    Combines all elements of `x` along `axes`. Those dimensions are removed, or kept
    with size 1 by `keep_dims`.

    | kind | value | of no element |
    |---|---|---|
    | sum | sum | 0 |
    | mean | sum / count | NaN |
    | max, min | largest, smallest; NaN where any element is NaN | -inf, inf |
    | prod | product | 1 |
    | any | whether an element holds | false |
    | all | whether all elements hold | true |

    Floats are accumulated in f32 (f64 for f64) and rounded once, integers in their own
    type, wrapping around. The order is free. The largest of no integers is the smallest
    integer, and the other way round.

    Complex numbers have sum and mean, whose parts are those of the parts.

    - (C1) each of `axes` is a dimension of `x`, from 0, and none stands twice.
    - (C2) `mean` is of floats or complex numbers.
    - (C3) `any` and `all` are of i1, other kinds of numbers.
    - (C4) complex numbers have sum and mean alone.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>) -> tensor<?x1xf32> {
      %y = mir.reduce mean %x axes [1] keep_dims : tensor<?x8xf32>
      return %y : tensor<?x1xf32>
    }
    ```
  }];
  let arguments = (ins MIR_ValueTensor:$x, MIR_ReduceKindAttr:$kind, DenseI64ArrayAttr:$axes,
      UnitAttr:$keep_dims);
  let results = (outs MIR_ValueTensor:$result);
  let assemblyFormat = [{
    `` $kind $x `axes` $axes (`keep_dims` $keep_dims^)? attr-dict `:` type($x)
  }];
  let hasVerifier = 1;
}

def MIR_SoftmaxOp : MIR_Op<"softmax", [AllTypesMatch<["x", "result"]>]> {
  let summary = "softmax along one dimension";
  let description = [{
    Along `axis`, which counts from the end where it is negative:

        result = exp(x - max(x)) / sum(exp(x - max(x)))

    Computed in f32 (f64 for f64) and rounded once. A row with NaN or inf, and one of
    -inf only, gives NaN.

    - (C1) `axis` is a dimension of `x`.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
      %y = mir.softmax %x : tensor<?x8xf32>
      return %y : tensor<?x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, DefaultValuedAttr<I64Attr, "-1">:$axis);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = "$x (`axis` $axis^)? attr-dict `:` type($x)";
  let hasVerifier = 1;
}

def MIR_CumsumOp : MIR_Op<"cumsum", [AllTypesMatch<["x", "result"]>]> {
  let summary = "running sum along one dimension";
  let description = [{
    Along `axis`, which counts from the end where it is negative:

        result[t] = sum_{u <= t} x[u]

    With `exclusive` the sum is over u < t, so it starts with 0. Floats are accumulated
    in f32 (f64 for f64), integers in their own type, wrapping around.

    - (C1) `axis` is a dimension of `x`.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
      %y = mir.cumsum %x axis 0 exclusive : tensor<?x8xf32>
      return %y : tensor<?x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_ArithTensor:$x, DefaultValuedAttr<I64Attr, "-1">:$axis,
      UnitAttr:$exclusive);
  let results = (outs MIR_ArithTensor:$result);
  let assemblyFormat = [{
    $x (`axis` $axis^)? (`exclusive` $exclusive^)? attr-dict `:` type($x)
  }];
  let hasVerifier = 1;
}

def MIR_TopKOp : MIR_InferredOp<"top_k"> {
  let summary = "largest elements along the last dimension, and where they are";
  let description = [{
    Of each row of `x`, [..., n], the `k` largest elements in descending order, with
    `smallest` the `k` smallest in ascending order: `values`, [..., k], and their
    positions, `indices`, from 0. With k = n, rows are sorted. Of equal elements, the one
    with the smaller position is first; -0 counts as 0, and is given as 0. NaN is smaller
    than every number, with `nan_largest` larger than every number.

    `k` is a number, or text that says how it follows from sizes of `like`. That n is at
    least as large is a condition at run time where sizes are dynamic.

    - (C1) `x` has at least one dimension.
    - (C2) `like_dims` has a dimension of each of `like`.
    - (C3) `k` is a number, or a size that follows from those of `like`.
    - (C4) where it is known, `k` isn't negative, and at most n.

    ```mlir
    func.func @f(%x: tensor<?x64xf32>, %y: tensor<?x?xf32>) -> (tensor<?x4xf32>, tensor<?x4xi32>, tensor<?x?xi32>) {
      %values, %indices = mir.top_k 4 smallest nan_largest of %x : tensor<?x64xf32>
      %sorted, %order = mir.top_k "d0" of %y like %y dims [1] : tensor<?x?xf32>, tensor<?x?xf32>
      return %values, %indices, %order : tensor<?x4xf32>, tensor<?x4xi32>, tensor<?x?xi32>
    }
    ```
  }];
  let arguments = (ins MIR_ArithTensor:$x, Variadic<MIR_StoredTensor>:$like, MIR_SizeAttr:$k,
      UnitAttr:$smallest, UnitAttr:$nan_largest, OptionalAttr<DenseI64ArrayAttr>:$like_dims);
  let results = (outs MIR_ArithTensor:$values, MIR_I32Tensor:$indices);
  let assemblyFormat = [{
    custom<SizeOrNumber>($k) (`smallest` $smallest^)? (`nan_largest` $nan_largest^)? `of` $x
    (`like` $like^)? (`dims` $like_dims^)? attr-dict `:` type($x) (`,` type($like)^)?
  }];
  let hasFolder = 1;
}

#endif // RLX_MIR_REDUCTION
