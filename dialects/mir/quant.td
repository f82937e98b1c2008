// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products with packed weights, and the quantisation of activations that serves them.

#ifndef RLX_MIR_QUANT
#define RLX_MIR_QUANT

include "mir/base.td"

def MIR_DequantMatmulOp : MIR_InferredOp<"dequant_matmul"> {
  let summary = "product with a packed weight";
  let description = [{
    With W the decoded weight of n rows and k columns:

        result[..., n] = sum_k x[..., k] * W[n, k]

    The sum is in f32 (f64 for f64) and rounded once. A lowering may quantise `x` to
    8 bits per block only where its precision policy says so (see `mir.block_dot`).

    - (C1) `x` has at least one dimension.
    - (C2) the last dimension of `x` is the k of `weight`.

    ```mlir
    func.func @f(%x: tensor<?x32xf32>, %w: tensor<16x20xi8, #mir.packed<q4_1, k = 32>>) -> tensor<?x16xf32> {
      %y = mir.dequant_matmul %x, %w : tensor<?x32xf32>, tensor<16x20xi8, #mir.packed<q4_1, k = 32>>
      return %y : tensor<?x16xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_PackedTensor:$weight);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = "$x `,` $weight attr-dict `:` type($x) `,` type($weight)";
}

def MIR_DequantMatmulScaledOp : MIR_InferredOp<"dequant_matmul_scaled", [AttrSizedOperandSegments]> {
  let summary = "product with a weight whose scales are a tensor";
  let description = [{
    With W the decoded weight of K inputs and N outputs:

        result[..., n] = sum_k x[..., k] * W[k, n]

    The scheme says how W follows from the codes in `weight`, q, and from `scale`, with
    b = floor(k / block); nvfp4 has blocks of 16:

        int8     W[k, n] = q[k, n] * scale[b, n]
        int8a    W[k, n] = (q[k, n] - zero_point[b, n]) * scale[b, n]
        int4     W[k, n] = q[k, n] * scale[b, n], q from -8 to 7
        fp8e4m3  W[k, n] = q[k, n] * scale[n], q a float of 1, 4 and 3 bits without infinities
        fp8e5m2  W[k, n] = q[k, n] * scale[n], q a float of 1, 5 and 2 bits
        nvfp4    W[k, n] = q[k, n] * scale[b, n] * global_scale[0],
                 q one of 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, scale as q of fp8e4m3

    Codes of int8, int8a and the two fp8 are bytes [K, N]. Codes of int4 and nvfp4 have 4
    bits: the one of (k, n) is in byte floor(f / 2), f = k * N + n, in the low bits where f
    is even; a row doesn't begin a new byte. The highest bit of a code is its sign. NaN as
    a float of 8 bits, a scale of nvfp4 included, decodes to 0.

    W is decoded in f32, in the order written. The sum is in f32 (f64 for f64), over
    ascending k, and rounded once.

    - (C1) `x` has at least one dimension, and the last, K, is static.
    - (C2) `block` is there, and positive, exactly with int8, int8a and int4.
    - (C3) `zero_point` is there exactly with int8a, `global_scale` exactly with nvfp4.
    - (C4) `weight` is [K, N], static; with int4 and nvfp4 it is [ceil(K * N / 2)].
    - (C5) `scale` is f32 [ceil(K / block), N], static; f32 [N] with both fp8; i8
      [ceil(K / 16), N] with nvfp4.
    - (C6) `zero_point` has the type of `scale`.
    - (C7) `global_scale` is [1].

    ```mlir
    func.func @f(%x: tensor<?x40xf32>, %w: tensor<340xi8>, %s: tensor<2x17xf32>) -> tensor<?x17xf32> {
      %y = mir.dequant_matmul_scaled %x, %w scale %s scheme int4 block 32
          : tensor<?x40xf32>, tensor<340xi8>, tensor<2x17xf32>
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

def MIR_BlockQuantizeOp : MIR_InferredOp<"block_quantize"> {
  let summary = "quantisation of rows to integers, block by block";
  let description = [{
    Cuts the last dimension of `x`, [..., k], into blocks of `block` elements. With
    limit = 127 * 2^(bits - 8), for each block:

        scale = max|x| / limit
        q     = x / scale, rounded to nearest, ties to even; 0 where scale is 0
        sum   = the sum of q

    `q` is [..., k] of i8 with 8 bits, of i16 with 15 and of i32 with 22; `scale` is
    [..., k / block] of f32 and `sum` [..., k / block] of i32. Computed in f32. The sum is
    an integer, so it neither rounds nor overflows. A block that holds NaN or an infinity
    has scale NaN and q 0, so what is computed from it is NaN. `q` saturates at -limit and
    limit, which matters only where the scale is subnormal.

    The bits are those of one, two and three digits to the base 128, of which each is a
    signed byte: products of `q` are products of bytes.

    - (C1) `x` has at least one dimension, and the last is static.
    - (C2) `block` is a positive multiple of 32.
    - (C3) `block` divides the last dimension of `x`.
    - (C4) `bits` is 8, 15 or 22.
    - (C5) `block` * limit is below 2^31.

    ```mlir
    func.func @f(%x: tensor<?x64xf32>) -> (tensor<?x64xi8>, tensor<?x2xf32>, tensor<?x2xi32>) {
      %q, %scale, %sum = mir.block_quantize %x : tensor<?x64xf32>
      return %q, %scale, %sum : tensor<?x64xi8>, tensor<?x2xf32>, tensor<?x2xi32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, DefaultValuedAttr<I64Attr, "32">:$block,
      DefaultValuedAttr<I64Attr, "8">:$bits);
  let results = (outs MIR_BlockIntegers:$q, MIR_F32Tensor:$scale, MIR_I32Tensor:$sum);
  let assemblyFormat = "$x (`block` $block^)? (`bits` $bits^)? attr-dict `:` type($x)";
}

def MIR_BlockDotOp : MIR_InferredOp<"block_dot", [
    TypesMatchWith<"'scale' is of f32 and has one entry for each 32 elements of 'q'",
        "q", "scale", "::rlx::mir::getBlockType($_self, ::rlx::mir::BlockField::Scale)">,
    TypesMatchWith<"'sum' is of i32 and has one entry for each 32 elements of 'q'",
        "q", "sum", "::rlx::mir::getBlockType($_self, ::rlx::mir::BlockField::Sum)">]> {
  let summary = "product of quantised rows with a packed weight";
  let description = [{
    The operands are what `mir.block_quantize` gives with blocks of 32, of any of its
    bits, and a weight W of n rows and k columns whose blocks hold values d_w * q_w + m_w:

        result[..., n] = sum over blocks of scale * (d_w * <q_w, q> + m_w * sum)

    where <q_w, q> is the sum of products over the block. It is an exact integer; the
    rest is in f32, and the order of the outer sum is free. A scheme whose scale changes
    within 32 elements is summed in the parts that share one.

    - (C1) `q` has at least one dimension, and the last is the k of `weight`.
    - (C2) the scheme of `weight` holds integers, which f32, f16 and bf16 don't, with one
      scale for 32 elements, for a multiple or for an even part of them.

    ```mlir
    func.func @f(%q: tensor<?x64xi8>, %scale: tensor<?x2xf32>, %sum: tensor<?x2xi32>,
                 %w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>) -> tensor<?x16xf32> {
      %y = mir.block_dot %q, %scale, %sum, %w
          : tensor<?x64xi8>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>
      return %y : tensor<?x16xf32>
    }
    ```
  }];
  let arguments = (ins MIR_BlockIntegers:$q, MIR_F32Tensor:$scale, MIR_I32Tensor:$sum,
      MIR_PackedTensor:$weight);
  let results = (outs MIR_F32Tensor:$result);
  let assemblyFormat = [{
    $q `,` $scale `,` $sum `,` $weight attr-dict `:` type($q) `,` type($weight)
  }];
  let hasVerifier = 1;
}

def MIR_RepackOp : MIR_InferredOp<"repack"> {
  let summary = "a weight in the order that kernels read";
  let description = [{
    The same weight with another `layout`: panels, for vector units of CPUs, by default,
    or planes, for GPUs (see the `packed` attribute). `weight` is packed in rows, or dense
    in the order [n, k]: then the scheme is its element type. Runs once, when parameters
    are set.

    - (C1) `weight` is packed in rows, or a dense [n, k] of f32, f16 or bf16.
    - (C2) the dimensions of `weight` are static, positive and below 2^31.
    - (C3) the scheme of `weight` has the layout: q8_k has no panels, schemes of tables, grids
      and digits of base 3 have no planes.
    - (C4) `layout` is panels or planes.

    ```mlir
    func.func @f(%w: tensor<24x40xi8, #mir.packed<q4_1, k = 64>>)
        -> tensor<2x640xi8, #mir.packed<q4_1, k = 64, n = 24, layout = panels>> {
      %p = mir.repack %w : tensor<24x40xi8, #mir.packed<q4_1, k = 64>>
      return %p : tensor<2x640xi8, #mir.packed<q4_1, k = 64, n = 24, layout = panels>>
    }
    ```
  }];
  let arguments = (ins MIR_Weight:$weight,
      DefaultValuedAttr<MIR_LayoutAttr, "Layout::Panels">:$layout);
  let results = (outs MIR_PackedTensor:$result);
  let assemblyFormat = "$weight (`layout` `` $layout^)? attr-dict `:` type($weight)";
}

#endif // RLX_MIR_QUANT
