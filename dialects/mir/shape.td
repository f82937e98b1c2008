// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations that move elements and change none.

#ifndef RLX_MIR_SHAPE
#define RLX_MIR_SHAPE

include "mir/base.td"

def MIR_ReshapeOp : MIR_InferredOp<"reshape"> {
  let summary = "the same elements in another shape";
  let description = [{
    The elements of `x`, in row-major order, with the dimensions that `new_shape`
    lists. An entry is a size, or:

    - `-1`, at most once: what the other entries leave;
    - `-2`: the size that `x` has at this position, dynamic or not;
    - `-3`: the next one of `sizes`, each of which follows from sizes of `like`.

    Where `x` is dynamic and no entry says the rest, the number of elements is a
    condition at run time.

    - (C1) each entry of `new_shape` is -3, -2, -1 or a size, and -1 stands at most once.
    - (C2) each -2 stands at a position that `x` has.
    - (C3) `x` and the result have the same number of elements, and -1 isn't asked of none.
    - (C4) the product of the sizes in `new_shape` is below 2^63.
    - (C5) `like_dims` has a dimension of each of `like`.
    - (C6) `sizes` has a size for each -3, which isn't negative where it is known.

    ```mlir
    func.func @f(%x: tensor<?x12xf32>, %y: tensor<?x?xi32>) -> (tensor<?x3x4xf32>, tensor<?x?x12xf32>) {
      %0 = mir.reshape %x to [-2, 3, -1] : tensor<?x12xf32>
      %1 = mir.reshape %x to [-3, -3, 12] sizes ["d0", "d1"] like %y, %y dims [0, 1]
          : tensor<?x12xf32>, tensor<?x?xi32>, tensor<?x?xi32>
      return %0, %1 : tensor<?x3x4xf32>, tensor<?x?x12xf32>
    }
    ```
  }];
  let arguments = (ins MIR_StoredTensor:$x, DenseI64ArrayAttr:$new_shape,
      Variadic<MIR_StoredTensor>:$like, OptionalAttr<StrArrayAttr>:$sizes,
      OptionalAttr<DenseI64ArrayAttr>:$like_dims);
  let results = (outs MIR_StoredTensor:$result);
  let assemblyFormat = [{
    $x `to` $new_shape (`sizes` $sizes^)? (`like` $like^)? (`dims` $like_dims^)? attr-dict
    `:` type($x) (`,` type($like)^)?
  }];
  let hasFolder = 1;
}

def MIR_TransposeOp : MIR_InferredOp<"transpose"> {
  let summary = "permutation of dimensions";
  let description = [{
    Dimension i of the result is dimension `permutation[i]` of `x`:

        result[j_0, ..., j_n] = x[i_0, ..., i_n]  where i_permutation[d] = j_d

    - (C1) `permutation` holds each dimension of `x` once.

    ```mlir
    func.func @f(%x: tensor<2x?x8xf32>) -> tensor<?x2x8xf32> {
      %y = mir.transpose %x permutation [1, 0, 2] : tensor<2x?x8xf32>
      return %y : tensor<?x2x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_StoredTensor:$x, DenseI64ArrayAttr:$permutation);
  let results = (outs MIR_StoredTensor:$result);
  let assemblyFormat = "$x `permutation` $permutation attr-dict `:` type($x)";
  let hasFolder = 1;
}

def MIR_BarrierOp : MIR_Op<"barrier", [AllTypesMatch<["x", "result"]>]> {
  let summary = "the same values, not known to be the same";
  let description = [{
    The elements of `x`. Operations on the result are other operations than those on `x`: they
    aren't recognised as computed already. Differentiation has it where something is computed
    again so that it needn't be kept in memory. It moves nothing, and goes before kernels are
    made.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
      %y = mir.exp %x : tensor<?x8xf32>
      %again = mir.barrier %x : tensor<?x8xf32>
      %z = mir.exp %again : tensor<?x8xf32>
      return %y, %z : tensor<?x8xf32>, tensor<?x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_StoredTensor:$x);
  let results = (outs MIR_StoredTensor:$result);
  let assemblyFormat = "$x attr-dict `:` type($x)";
}

def MIR_NarrowOp : MIR_InferredOp<"narrow"> {
  let summary = "a range of one dimension";
  let description = [{
    The elements of `x` whose position along `axis` is from `start` to
    `start + length - 1`. Where that dimension is dynamic, it reaches
    `start + length` at run time.

    - (C1) `axis` is a dimension of `x`, from 0.
    - (C2) `start` and `length` aren't negative, and the range ends within the dimension.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>) -> tensor<?x4xf32> {
      %y = mir.narrow %x axis 1 start 2 length 4 : tensor<?x8xf32>
      return %y : tensor<?x4xf32>
    }
    ```
  }];
  let arguments = (ins MIR_StoredTensor:$x, I64Attr:$axis, I64Attr:$start, I64Attr:$length);
  let results = (outs MIR_StoredTensor:$result);
  let assemblyFormat = [{
    $x `axis` $axis `start` $start `length` $length attr-dict `:` type($x)
  }];
  let hasFolder = 1;
}

def MIR_SliceOp : MIR_InferredOp<"slice"> {
  let summary = "every so many elements along one dimension";
  let description = [{
    The elements of `x` along `axis` from `start` on, each `step` further, up to `stop`,
    which isn't one of them: those that Python's `x[start:stop:step]` takes. Negative
    bounds count from the end, and bounds outside are moved to the ends. Without `start`,
    they begin at the first element, or at the last for a negative step; without `stop`,
    they go on to the other end. A bound is a number, or text that says how it follows from
    sizes of `like`; it counts from the end, too, where it turns out to be negative.

    The size of a dynamic dimension gives the number of elements at run time. Where
    `length` is there, it is that number, and a size that gives another one is refused
    at run time.

    - (C1) `axis` is a dimension of `x`, from 0.
    - (C2) `step` isn't 0, nor the least integer.
    - (C3) `length` isn't negative, and where the dimension and the bounds are static, it is
      the number of elements.
    - (C4) `like_dims` has a dimension of each of `like`.
    - (C5) `start` and `stop` are numbers, or sizes that follow from those of `like`.

    ```mlir
    func.func @f(%x: tensor<2x?x8xf32>, %y: tensor<?xi32>) -> (tensor<2x?x8xf32>, tensor<2x1x8xf32>, tensor<2x?x8xf32>) {
      %0 = mir.slice %x axis 1 start 1 step 2 : tensor<2x?x8xf32>
      %1 = mir.slice %x axis 1 start -1 length 1 : tensor<2x?x8xf32>
      %2 = mir.slice %x axis 1 start "floordiv(d0, 2)" like %y dims [0] : tensor<2x?x8xf32>, tensor<?xi32>
      return %0, %1, %2 : tensor<2x?x8xf32>, tensor<2x1x8xf32>, tensor<2x?x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_StoredTensor:$x, Variadic<MIR_StoredTensor>:$like, I64Attr:$axis,
      OptionalAttr<MIR_SizeAttr>:$start, OptionalAttr<MIR_SizeAttr>:$stop,
      DefaultValuedAttr<I64Attr, "1">:$step, OptionalAttr<I64Attr>:$length,
      OptionalAttr<DenseI64ArrayAttr>:$like_dims);
  let results = (outs MIR_StoredTensor:$result);
  let assemblyFormat = [{
    $x `axis` $axis (`start` custom<SizeOrNumber>($start)^)? (`stop` custom<SizeOrNumber>($stop)^)?
    (`step` $step^)? (`length` $length^)? (`like` $like^)? (`dims` $like_dims^)? attr-dict
    `:` type($x) (`,` type($like)^)?
  }];
  let hasFolder = 1;
}

def MIR_DynamicSliceOp : MIR_InferredOp<"dynamic_slice"> {
  let summary = "a range of one dimension from a computed position on";
  let description = [{
    As many elements of `x` along `axis` as `length` says, from the position on that `start`
    holds. A position before the first element, or from which fewer elements are left, is
    moved to the nearest one that has all of them:

        result[o..., i, t...] = x[o..., s + i, t...]  with s = max(0, min(start, n - length))

    with n elements along `axis`, o the dimensions before it and t those after it. A negative
    `start` doesn't count from the end. `length` is a number, or text that says how it follows
    from sizes of `like`. That n is at least as large is a condition at run time where sizes
    are dynamic.

    - (C1) `axis` is a dimension of `x`, from 0.
    - (C2) `like_dims` has a dimension of each of `like`.
    - (C3) `length` is a number, or a size that follows from those of `like`.
    - (C4) where it is known, `length` isn't negative, and at most the size of the dimension.

    ```mlir
    func.func @f(%x: tensor<2x?x8xf32>, %start: tensor<i32>, %y: tensor<?xi32>) -> (tensor<2x4x8xf32>, tensor<2x?x8xf32>) {
      %0 = mir.dynamic_slice %x at %start axis 1 length 4 : tensor<2x?x8xf32>, tensor<i32>
      %1 = mir.dynamic_slice %x at %start axis 1 length "d0" like %y dims [0] : tensor<2x?x8xf32>, tensor<i32>, tensor<?xi32>
      return %0, %1 : tensor<2x4x8xf32>, tensor<2x?x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_StoredTensor:$x, MIR_StartTensor:$start,
      Variadic<MIR_StoredTensor>:$like, I64Attr:$axis, MIR_SizeAttr:$length,
      OptionalAttr<DenseI64ArrayAttr>:$like_dims);
  let results = (outs MIR_StoredTensor:$result);
  let assemblyFormat = [{
    $x `at` $start `axis` $axis `length` custom<SizeOrNumber>($length) (`like` $like^)?
    (`dims` $like_dims^)? attr-dict `:` type($x) `,` type($start) (`,` type($like)^)?
  }];
  let hasFolder = 1;
}

def MIR_DynamicUpdateSliceOp : MIR_Op<"dynamic_update_slice", [
    AllTypesMatch<["x", "result"]>, AllElementTypesMatch<["x", "update"]>]> {
  let summary = "a tensor with a range of one dimension replaced, from a computed position on";
  let description = [{
    `x`, whose elements along `axis` are those of `update` from the position on that `start`
    holds. It is moved, as that of `mir.dynamic_slice` is, to where all of `update` is within
    `x`:

        result[o..., s + i, t...] = update[o..., i, t...]  with s = max(0, min(start, n - m))

    with n elements of `x` and m of `update` along `axis`; the other elements are those of `x`.
    That n is at least m is a condition at run time where sizes are dynamic. A lowering may
    write into the memory of `x`.

    - (C1) `axis` is a dimension of `x`, from 0.
    - (C2) `update` has the rank of `x`, and is alike in every dimension but `axis`.
    - (C3) along `axis`, `update` isn't larger than `x`.

    ```mlir
    func.func @f(%x: tensor<2x64x8xf32>, %u: tensor<2x?x8xf32>, %start: tensor<i32>) -> tensor<2x64x8xf32> {
      %y = mir.dynamic_update_slice %x, %u at %start axis 1 : tensor<2x64x8xf32>, tensor<2x?x8xf32>, tensor<i32>
      return %y : tensor<2x64x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_StoredTensor:$x, MIR_StoredTensor:$update, MIR_StartTensor:$start,
      I64Attr:$axis);
  let results = (outs MIR_StoredTensor:$result);
  let assemblyFormat = [{
    $x `,` $update `at` $start `axis` $axis attr-dict `:` type($x) `,` type($update) `,` type($start)
  }];
  let hasVerifier = 1;
}

def MIR_DimOp : MIR_Op<"dim"> {
  let summary = "the size of a dimension as a number";
  let description = [{
    How many elements `x` has along `axis`, as a tensor without dimensions: rounded to
    the nearest number of a floating-point type, and its low bits in an integer type.

    - (C1) `axis` is a dimension of `x`, from 0.
    - (C2) the result has no dimensions.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>) -> tensor<f32> {
      %n = mir.dim %x axis 0 : tensor<?x8xf32> to tensor<f32>
      return %n : tensor<f32>
    }
    ```
  }];
  let arguments = (ins MIR_StoredTensor:$x, I64Attr:$axis);
  let results = (outs MIR_Tensor:$result);
  let assemblyFormat = "$x `axis` $axis attr-dict `:` type($x) `to` type($result)";
  let hasVerifier = 1;
}

def MIR_ConcatOp : MIR_InferredOp<"concat"> {
  let summary = "tensors joined along one dimension";
  let description = [{
    The elements of the inputs one after the other along `axis`, in the order of the
    operands.

    - (C1) there is an input, and all have one rank and one element type.
    - (C2) `axis` is a dimension of the inputs, from 0.
    - (C3) the inputs are alike in every other dimension.
    - (C4) the sizes along `axis` have a sum below 2^63.
    - (C5) all have one encoding, and packed weights have `layout = rows` and are joined
      along `axis` 0: more outputs of one product.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %y: tensor<?x4xf32>) -> tensor<?x12xf32> {
      %z = mir.concat %x, %y axis 1 : tensor<?x8xf32>, tensor<?x4xf32>
      return %z : tensor<?x12xf32>
    }
    ```
  }];
  let arguments = (ins Variadic<MIR_AnyStoredTensor>:$inputs, I64Attr:$axis);
  let results = (outs MIR_AnyStoredTensor:$result);
  let assemblyFormat = "$inputs `axis` $axis attr-dict `:` type($inputs)";
  let hasFolder = 1;
}

def MIR_ExpandOp : MIR_Op<"expand", [AllElementTypesMatch<["x", "result"]>]> {
  let summary = "broadcasting to a shape";
  let description = [{
    Repeats `x` along the dimensions where it has size 1 and the result has another,
    and along those that only the result has, which come first. Where `x` doesn't have a
    dynamic dimension of the result, its size is that of a dimension of `like`: for each
    dimension of the result, `like_dims` has the one of `like`, or -1 where it isn't from
    there. No element of `like` is read.

    - (C1) the result has at least as many dimensions as `x`.
    - (C2) aligned at the last dimension, each size of `x` is 1 or that of the result.
    - (C3) `like` and `like_dims` are there together, and `like_dims` has an entry for each
      dimension of the result.
    - (C4) an entry of `like_dims` is -1, or a dimension of `like` of the size that the result
      has there.
    - (C5) each dynamic dimension of the result is one of `x` that is dynamic, too, or has an
      entry in `like_dims` that isn't -1.

    ```mlir
    func.func @f(%x: tensor<8x1xf32>, %y: tensor<?x9xbf16>) -> (tensor<2x8x4xf32>, tensor<?x8x4xf32>) {
      %0 = mir.expand %x : tensor<8x1xf32> to tensor<2x8x4xf32>
      %1 = mir.expand %x like %y dims [0, -1, -1] : tensor<8x1xf32>, tensor<?x9xbf16> to tensor<?x8x4xf32>
      return %0, %1 : tensor<2x8x4xf32>, tensor<?x8x4xf32>
    }
    ```
  }];
  let arguments = (ins MIR_StoredTensor:$x, Optional<MIR_StoredTensor>:$like,
      OptionalAttr<DenseI64ArrayAttr>:$like_dims);
  let results = (outs MIR_StoredTensor:$result);
  let assemblyFormat = [{
    $x (`like` $like^)? (`dims` $like_dims^)? attr-dict
    `:` type($x) (`,` type($like)^)? `to` type($result)
  }];
  let hasFolder = 1;
  let hasVerifier = 1;
}

def MIR_GatherOp : MIR_InferredOp<"gather"> {
  let summary = "entries of a table, chosen by indices";
  let description = [{
    Replaces dimension `axis` of `table` by the dimensions of `indices`:

        result[o..., i..., t...] = table[o..., indices[i...], t...]

    with o the dimensions before `axis` and t those after it. An index outside the table
    is clamped to its ends; an f32 index drops its fraction, and NaN counts as 0.

    The first `batch_dims` dimensions, 0 unless given, are those of both operands: each
    part of `table` has indices of its own, and b runs along both:

        result[b..., o..., i..., t...] = table[b..., o..., indices[b..., i...], t...]

    So rows of [B, S, E] at indices [B, 1], with axis 1 and batch_dims 1, are [B, 1, E]:
    one row of each batch item. Without `batch_dims` they would be [B, B, 1, E].

    `table` may be a packed weight of n rows and k columns. Then `axis` is 0, only the
    rows that are asked for are decoded, and the result is [i..., k] of f32.

    - (C1) `axis` is a dimension of `table`, from 0.
    - (C2) with a packed `table`, `axis` is 0 and its layout isn't panels.
    - (C3) `batch_dims` isn't negative, and at most `axis` and the rank of `indices`.
    - (C4) the first `batch_dims` dimensions of `table` and `indices` are alike.
    - (C5) `table` has an entry along `axis`, or `indices` is empty. Where sizes are dynamic,
      this is a condition at run time.

    ```mlir
    func.func @f(%t: tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, %i: tensor<2x?xi32>, %last: tensor<2x1xi32>) -> tensor<2x1x32xf32> {
      %y = mir.gather %t, %i axis 0 : tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, tensor<2x?xi32>
      %z = mir.gather %y, %last axis 1 batch_dims 1 : tensor<2x?x32xf32>, tensor<2x1xi32>
      return %z : tensor<2x1x32xf32>
    }
    ```
  }];
  let arguments = (ins MIR_AnyTensor:$table, MIR_IndicesTensor:$indices, I64Attr:$axis,
      DefaultValuedAttr<I64Attr, "0">:$batch_dims);
  let results = (outs MIR_ValueTensor:$result);
  let assemblyFormat = [{
    $table `,` $indices `axis` $axis (`batch_dims` $batch_dims^)? attr-dict
    `:` type($table) `,` type($indices)
  }];
}

#endif // RLX_MIR_SHAPE
