// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writing where indices say. Reading there is `mir.gather`, in shape.td.

#ifndef RLX_MIR_INDEXING
#define RLX_MIR_INDEXING

include "mir/base.td"

def MIR_ScatterAddOp : MIR_InferredOp<"scatter_add"> {
  let summary = "sums of entries at the places that indices give";
  let description = [{
    The other direction of `mir.gather`: replaces the dimensions of `indices` in `updates`,
    [o..., i..., t...], which begin at `axis`, by one dimension, whose size is `size` or that of
    `like`. Each entry is added to the one that its index names; all others are 0:

        result[o..., r, t...] = sum over i... with indices[i...] = r of updates[o..., i..., t...]

    Entries with one index are added in row-major order of i..., whatever runs in parallel: the
    result is the same, bit for bit, for any number of threads. It is accumulated in f32 (f64
    for f64) and rounded once; sums of integers are modulo their width.

    **An index outside of the result's dimension drops its entry.** An f32 index drops its
    fraction, and NaN counts as 0. The gradient of `mir.gather` along `axis` is this of its
    result's gradient, with `like` the table.

    - (C1) `axis` is from 0 to the number of dimensions that `updates` has beyond `indices`.
    - (C2) from `axis` on, `updates` has the dimensions of `indices`.
    - (C3) there is either `size`, which isn't negative, or `like`, of which no element is read.
    - (C4) `like` has a dimension `axis`.

    ```mlir
    func.func @f(%u: tensor<2x?x8xf32>, %i: tensor<2x?xi32>, %t: tensor<?x8xf32>)
        -> (tensor<16x8xf32>, tensor<?x8xf32>, tensor<2x4x8xf32>) {
      %0 = mir.scatter_add %u, %i axis 0 size 16 : tensor<2x?x8xf32>, tensor<2x?xi32>
      %1 = mir.scatter_add %u, %i axis 0 like %t : tensor<2x?x8xf32>, tensor<2x?xi32>, tensor<?x8xf32>
      %c = mir.constant dense<[3, 0, 3]> : tensor<3xi64>
      %n = mir.narrow %u axis 1 start 0 length 3 : tensor<2x?x8xf32>
      %2 = mir.scatter_add %n, %c axis 1 size 4 : tensor<2x3x8xf32>, tensor<3xi64>
      return %0, %1, %2 : tensor<16x8xf32>, tensor<?x8xf32>, tensor<2x4x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_RingTensor:$updates, MIR_IndicesTensor:$indices,
      Optional<MIR_StoredTensor>:$like, I64Attr:$axis, OptionalAttr<I64Attr>:$size);
  let results = (outs MIR_RingTensor:$result);
  let assemblyFormat = [{
    $updates `,` $indices `axis` $axis (`size` $size^)? (`like` $like^)? attr-dict
    `:` type(operands)
  }];
  let hasFolder = 1;
}

#endif // RLX_MIR_INDEXING
