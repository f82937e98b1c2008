// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors of 8 bits with given scales, their products, and what stands for them in training.

#ifndef RLX_MIR_QUANTIZE
#define RLX_MIR_QUANTIZE

include "mir/base.td"

def MIR_SteEnum : MIR_EnumAttr<"Ste", "gradient that stands for that of a rounding", [
  I32EnumAttrCase<"Identity", 0, "identity">,
  I32EnumAttrCase<"ClippedIdentity", 1, "clipped_identity">,
  I32EnumAttrCase<"Tanh", 2, "tanh">, I32EnumAttrCase<"HardTanh", 3, "hard_tanh">]>;
def MIR_SteAttr : EnumAttr<MIR_Dialect, MIR_SteEnum, "ste">;

def MIR_ScaleModeEnum : MIR_EnumAttr<"ScaleMode", "where the scale of a rounding comes from", [
  I32EnumAttrCase<"PerBatch", 0, "per_batch">, I32EnumAttrCase<"Ema", 1, "ema">,
  I32EnumAttrCase<"Fixed", 2, "fixed">]>;
def MIR_ScaleModeAttr : EnumAttr<MIR_Dialect, MIR_ScaleModeEnum, "scale_mode">;

//===----------------------------------------------------------------------===//
// Quantised tensors
//===----------------------------------------------------------------------===//

def MIR_QuantizeOp : MIR_InferredOp<"quantize"> {
  let summary = "8 bit integers of floats, by given scales";
  let description = [{
    With c the index along `axis`, and 0 where there is none:

        result = clamp(round(x * (1 / scales[c])) + zero_points[c], -128, 127)

    rounded to nearest, ties away from zero, which `mir.round` doesn't do. Computed in f32
    (f64 for f64), the reciprocal too; the sum with the zero point is one of integers.
    NaN counts as 0, infinities saturate.

    - (C1) `axis` is a dimension of `x`; a negative one counts from the end.
    - (C2) `scales` and `zero_points` have an entry for each index along `axis`, and one
      where there is no `axis`.
    - (C3) the entries of `scales` are finite and positive.
    - (C4) the entries of `zero_points` are from -128 to 127.

    ```mlir
    func.func @f(%x: tensor<?x3x?xf32>) -> tensor<?x3x?xi8> {
      %q = mir.quantize %x scales [0.5, 0.25, 0.125] zero_points [0, 3, -128] axis 1
          : tensor<?x3x?xf32>
      return %q : tensor<?x3x?xi8>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, F32ArrayAttr:$scales,
      DenseI32ArrayAttr:$zero_points, OptionalAttr<I64Attr>:$axis);
  let results = (outs MIR_I8Tensor:$result);
  let assemblyFormat = [{
    $x `scales` custom<Floats>($scales) `zero_points` $zero_points (`axis` $axis^)? attr-dict `:` type($x)
  }];
}

def MIR_DequantizeOp : MIR_InferredOp<"dequantize"> {
  let summary = "floats of 8 bit integers, by given scales";
  let description = [{
    With c the index along `axis`, and 0 where there is none:

        result = (q - zero_points[c]) * scales[c]

    of f32, rounded once: the difference is one of integers.

    - (C1) `axis` is a dimension of `q`; a negative one counts from the end.
    - (C2) `scales` and `zero_points` have an entry for each index along `axis`, and one
      where there is no `axis`.
    - (C3) the entries of `scales` are finite and positive.
    - (C4) the entries of `zero_points` are from -128 to 127.

    ```mlir
    func.func @f(%q: tensor<?x3xi8>) -> tensor<?x3xf32> {
      %x = mir.dequantize %q scales [0.5] zero_points [-7] : tensor<?x3xi8>
      return %x : tensor<?x3xf32>
    }
    ```
  }];
  let arguments = (ins MIR_I8Tensor:$q, F32ArrayAttr:$scales,
      DenseI32ArrayAttr:$zero_points, OptionalAttr<I64Attr>:$axis);
  let results = (outs MIR_F32Tensor:$result);
  let assemblyFormat = [{
    $q `scales` custom<Floats>($scales) `zero_points` $zero_points (`axis` $axis^)? attr-dict `:` type($q)
  }];
}

//===----------------------------------------------------------------------===//
// Rounding as in quantised tensors, for training
//===----------------------------------------------------------------------===//

def MIR_FakeQuantizeOp : MIR_InferredOp<"fake_quantize"> {
  let summary = "floats as quantisation would leave them";
  let description = [{
    With c the index along `axis`, and 0 where there is none, C their number, and qmax
    127, 7 or 1 where `bits` is 8, 4 or 2:

        result = clamp(round(x / scale[c]), -qmax, qmax) * scale[c]

    rounded to nearest, ties away from zero. `scale`, the second result, f32 [C], is by
    `scale_mode`, with m[c] the largest |x| of c, 0 where there is none:

        per_batch  scale[c] = max(m[c] / qmax, 1e-12)
        ema        scale[c] = decay * state[c] + (1 - decay) * max(m[c] / qmax, 1e-12),
                   and that maximum where state[c] <= 0
        fixed      scale[c] = max(state[c], 1e-12)

    With `ema`, `scale` is what the next call passes as `state`. Scales are computed in f32,
    results in f32 (f64 for f64) and rounded once. NaN makes a scale NaN, and all that has it.

    `ste` says what `mir.fake_quantize_backward` gives as gradient; the result doesn't
    depend on it.

    - (C1) `bits` is 8, 4 or 2.
    - (C2) `axis` is a dimension of `x`; a negative one counts from the end.
    - (C3) `state` is there exactly with ema and fixed, `decay` exactly with ema.
    - (C4) `state` is [C].
    - (C5) `decay` is from 0 to 1.

    ```mlir
    func.func @f(%x: tensor<?x3xf32>, %s: tensor<3xf32>) -> (tensor<?x3xf32>, tensor<3xf32>) {
      %y, %next = mir.fake_quantize %x state %s bits 4 axis 1 scale_mode ema decay 0.9
          : tensor<?x3xf32>, tensor<3xf32>
      return %y, %next : tensor<?x3xf32>, tensor<3xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, Optional<MIR_F32Tensor>:$state, I64Attr:$bits,
      OptionalAttr<I64Attr>:$axis, DefaultValuedAttr<MIR_SteAttr, "Ste::Identity">:$ste,
      DefaultValuedAttr<MIR_ScaleModeAttr, "ScaleMode::PerBatch">:$scale_mode,
      OptionalAttr<F32Attr>:$decay);
  let results = (outs MIR_FloatTensor:$result, MIR_F32Tensor:$scale);
  let assemblyFormat = [{
    $x (`state` $state^)? `bits` $bits (`axis` $axis^)? (`ste` `` $ste^)?
    (`scale_mode` `` $scale_mode^)? (`decay` $decay^)? attr-dict `:` type(operands)
  }];
}

def MIR_FakeQuantizeBackwardOp
    : MIR_InferredOp<"fake_quantize_backward", [AllTypesMatch<["x", "g"]>]> {
  let summary = "gradient of a rounding as in quantised tensors";
  let description = [{
    What `g`, the gradient of the first result of `mir.fake_quantize`, is for its `x`.
    `scale` is the second result of that, whatever its mode. With s = scale[c], c the
    index along `axis` and 0 where there is none, and qmax 127, 7 or 1 where `bits` is 8,
    4 or 2:

        identity          g
        clipped_identity  g where |x| <= qmax * s, else 0
        tanh              g * (1 - tanh(x / s)^2)
        hard_tanh         g * max(0, 1 - |x / (qmax * s)|)

    Computed in f32 (f64 for f64) and rounded once. `state` of `mir.fake_quantize` has no
    gradient.

    - (C1) `bits` is 8, 4 or 2.
    - (C2) `axis` is a dimension of `x`; a negative one counts from the end.
    - (C3) `scale` is [C], with C the size of `axis`, and 1 where there is none.

    ```mlir
    func.func @f(%x: tensor<?x3xf32>, %s: tensor<1xf32>, %g: tensor<?x3xf32>) -> tensor<?x3xf32> {
      %dx = mir.fake_quantize_backward %x, %s, %g bits 8 ste tanh : tensor<?x3xf32>, tensor<1xf32>
      return %dx : tensor<?x3xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_F32Tensor:$scale, MIR_FloatTensor:$g, I64Attr:$bits,
      OptionalAttr<I64Attr>:$axis, DefaultValuedAttr<MIR_SteAttr, "Ste::Identity">:$ste);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $scale `,` $g `bits` $bits (`axis` $axis^)? (`ste` `` $ste^)?
    attr-dict `:` type($x) `,` type($scale)
  }];
}

def MIR_FakeQuantizeLsqOp : MIR_InferredOp<"fake_quantize_lsq"> {
  let summary = "floats as quantisation by a learned scale would leave them";
  let description = [{
    With s = max(scale[c], 1e-12), c the index along `axis` and 0 where there is none, and
    qmax 127, 7 or 1 where `bits` is 8, 4 or 2:

        result = clamp(round(x / s), -qmax, qmax) * s

    rounded to nearest, ties away from zero. Computed in f32 (f64 for f64) and rounded
    once. NaN stays NaN.

    - (C1) `bits` is 8, 4 or 2.
    - (C2) `axis` is a dimension of `x`; a negative one counts from the end.
    - (C3) `scale` is [C], with C the size of `axis`, and 1 where there is none.

    ```mlir
    func.func @f(%x: tensor<?x3xf32>, %s: tensor<3xf32>) -> tensor<?x3xf32> {
      %y = mir.fake_quantize_lsq %x, %s bits 2 axis -1 : tensor<?x3xf32>, tensor<3xf32>
      return %y : tensor<?x3xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_F32Tensor:$scale, I64Attr:$bits,
      OptionalAttr<I64Attr>:$axis);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $scale `bits` $bits (`axis` $axis^)? attr-dict `:` type($x) `,` type($scale)
  }];
}

class MIR_LsqBackwardOp<string mnemonic>
    : MIR_InferredOp<mnemonic, [AllTypesMatch<["x", "g"]>]> {
  let arguments = (ins MIR_FloatTensor:$x, MIR_F32Tensor:$scale, MIR_FloatTensor:$g, I64Attr:$bits,
      OptionalAttr<I64Attr>:$axis);
  let assemblyFormat = [{
    $x `,` $scale `,` $g `bits` $bits (`axis` $axis^)? attr-dict `:` type($x) `,` type($scale)
  }];
}

def MIR_FakeQuantizeLsqBackwardXOp : MIR_LsqBackwardOp<"fake_quantize_lsq_backward_x"> {
  let summary = "gradient of a rounding by a learned scale, for what is rounded";
  let description = [{
    What `g`, the gradient of the result of `mir.fake_quantize_lsq`, is for its `x`, with s
    and qmax as there:

        result = g where |x / s| <= qmax, else 0

    - (C1) `bits` is 8, 4 or 2.
    - (C2) `axis` is a dimension of `x`; a negative one counts from the end.
    - (C3) `scale` is [C], with C the size of `axis`, and 1 where there is none.

    ```mlir
    func.func @f(%x: tensor<?x3xf32>, %s: tensor<3xf32>, %g: tensor<?x3xf32>) -> tensor<?x3xf32> {
      %dx = mir.fake_quantize_lsq_backward_x %x, %s, %g bits 8 axis 1 : tensor<?x3xf32>, tensor<3xf32>
      return %dx : tensor<?x3xf32>
    }
    ```
  }];
  let results = (outs MIR_FloatTensor:$result);
}

def MIR_FakeQuantizeLsqBackwardScaleOp : MIR_LsqBackwardOp<"fake_quantize_lsq_backward_scale"> {
  let summary = "gradient of a rounding by a learned scale, for the scale";
  let description = [{
    What `g`, the gradient of the result of `mir.fake_quantize_lsq`, is for its `scale`,
    with s and qmax as there and the sum over all elements of index c along `axis`:

        result[c] = sum of w(x / s) * g
        w(z)      = round(z) - z where |z| <= qmax, else sign(z) * qmax

    rounded to nearest, ties away from zero. The sum isn't divided by the square root of
    its length times qmax, as some authors do. Computed in f32 (f64 for f64) and rounded
    once.

    - (C1) `bits` is 8, 4 or 2.
    - (C2) `axis` is a dimension of `x`; a negative one counts from the end.
    - (C3) `scale` is [C], with C the size of `axis`, and 1 where there is none.

    ```mlir
    func.func @f(%x: tensor<?x3xf32>, %s: tensor<3xf32>, %g: tensor<?x3xf32>) -> tensor<3xf32> {
      %ds = mir.fake_quantize_lsq_backward_scale %x, %s, %g bits 8 axis 1
          : tensor<?x3xf32>, tensor<3xf32>
      return %ds : tensor<3xf32>
    }
    ```
  }];
  let results = (outs MIR_F32Tensor:$result);
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

def MIR_QMatmulOp : MIR_InferredOp<"q_matmul"> {
  let summary = "product of quantised matrices, quantised again";
  let description = [{
    Of integers, `x` [M, K], `weight` [K, N] and, where it is there, `bias` [N]:

        sum[m, n]    = bias[n] + sum over k of (x[m, k] - x_zp) * (weight[k, n] - w_zp)
        result[m, n] = clamp(round(sum[m, n] * mult) + out_zp, -128, 127)

    The sum is one of i32, which wraps around. It becomes an f32, rounded to even; its
    product with `mult` is one of f32, and is rounded to nearest, ties away from zero.
    `mult` is scale of `x` * scale of `weight` / scale of the result, and the scale of
    `bias` is that of `x` times that of `weight`.

    - (C1) `x` and `weight` have two dimensions, and K is the same of both.
    - (C2) `bias` is [N].
    - (C3) `x_zp`, `w_zp` and `out_zp` are from -128 to 127.
    - (C4) `mult` is finite and positive.

    ```mlir
    func.func @f(%x: tensor<?x8xi8>, %w: tensor<8x4xi8>, %b: tensor<4xi32>) -> tensor<?x4xi8> {
      %y = mir.q_matmul %x, %w bias %b x_zp -3 mult 0.01 : tensor<?x8xi8>, tensor<8x4xi8>, tensor<4xi32>
      return %y : tensor<?x4xi8>
    }
    ```
  }];
  let arguments = (ins MIR_I8Tensor:$x, MIR_I8Tensor:$weight, Optional<MIR_I32Tensor>:$bias,
      DefaultValuedAttr<I32Attr, "0">:$x_zp, DefaultValuedAttr<I32Attr, "0">:$w_zp,
      DefaultValuedAttr<I32Attr, "0">:$out_zp, F32Attr:$mult);
  let results = (outs MIR_I8Tensor:$result);
  let assemblyFormat = [{
    $x `,` $weight (`bias` $bias^)? (`x_zp` $x_zp^)? (`w_zp` $w_zp^)? (`out_zp` $out_zp^)?
    `mult` $mult attr-dict `:` type(operands)
  }];
}

def MIR_QConv2dOp : MIR_InferredOp<"q_conv2d"> {
  let summary = "convolution of quantised images, quantised again";
  let description = [{
    The sum of `mir.conv`, of integers: of `x` - `x_zp`, which is 0 outside of `x`, and of
    `weight` - `w_zp`, with `bias` [Co] added where it is there:

        result = clamp(round(sum * mult) + out_zp, -128, 127)

    The sum and its rounding are those of `mir.q_matmul`.

    - (C1) `x` and `weight` have four dimensions.
    - (C2) `stride`, `padding` and `dilation` have two entries below 2^31; those of
      `stride` and `dilation` are positive, those of `padding` aren't negative.
    - (C3) `groups` is positive and divides Co.
    - (C4) `x` has `groups` times as many channels as `weight` has in dimension 1.
    - (C5) kH and kW are static, positive and below 2^31.
    - (C6) `x` with its padding is at most one short of the kernel, spread by `dilation`,
      and its sizes are below 2^63.
    - (C7) `bias` is [Co].
    - (C8) `x_zp`, `w_zp` and `out_zp` are from -128 to 127.
    - (C9) `mult` is finite and positive.

    ```mlir
    func.func @f(%x: tensor<?x8x?x32xi8>, %w: tensor<16x2x3x3xi8>) -> tensor<?x16x?x32xi8> {
      %y = mir.q_conv2d %x, %w padding [1, 1] groups 4 x_zp 5 mult 0.01
          : tensor<?x8x?x32xi8>, tensor<16x2x3x3xi8>
      return %y : tensor<?x16x?x32xi8>
    }
    ```
  }];
  let arguments = (ins MIR_I8Tensor:$x, MIR_I8Tensor:$weight, Optional<MIR_I32Tensor>:$bias,
      DefaultValuedAttr<DenseI64ArrayAttr, "{1, 1}">:$stride,
      DefaultValuedAttr<DenseI64ArrayAttr, "{0, 0}">:$padding,
      DefaultValuedAttr<DenseI64ArrayAttr, "{1, 1}">:$dilation,
      DefaultValuedAttr<I64Attr, "1">:$groups,
      DefaultValuedAttr<I32Attr, "0">:$x_zp, DefaultValuedAttr<I32Attr, "0">:$w_zp,
      DefaultValuedAttr<I32Attr, "0">:$out_zp, F32Attr:$mult);
  let results = (outs MIR_I8Tensor:$result);
  let assemblyFormat = [{
    $x `,` $weight (`bias` $bias^)? (`stride` $stride^)? (`padding` $padding^)?
    (`dilation` $dilation^)? (`groups` $groups^)? (`x_zp` $x_zp^)? (`w_zp` $w_zp^)?
    (`out_zp` $out_zp^)? `mult` $mult attr-dict `:` type(operands)
  }];
}

#endif // RLX_MIR_QUANTIZE
