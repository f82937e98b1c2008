// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolutions, transposed ones, and their gradients.

#ifndef RLX_MIR_CONV
#define RLX_MIR_CONV

include "mir/base.td"

def MIR_ConvOp : MIR_InferredOp<"conv", [AllElementTypesMatch<["x", "weight"]>]> {
  let summary = "two-dimensional convolution, in groups of channels";
  let description = [{
    Slides the kernels of `weight`, [Co, Ci / groups, kH, kW], over `x`, [N, Ci, H, W],
    without turning them around (a cross-correlation):

        result[n, o, i, j] = sum over c, u, v of weight[o, c, u, v]
            * x[n, f * Ci / groups + c, i * stride[0] - padding[0] + u * dilation[0],
                                        j * stride[1] - padding[1] + v * dilation[1]]

    with f = floor(o / (Co / groups)), the group of channel o; `x` is 0 outside. The
    result is [N, Co, Ho, Wo]:

        Ho = floor((H + 2 * padding[0] - dilation[0] * (kH - 1) - 1) / stride[0]) + 1

    and Wo likewise: 0 where `x` is one short of the kernel. Where H or W is dynamic, C6
    is a condition at run time. A depthwise convolution has as many groups as channels.
    Accumulated in f32 (f64 for f64) and rounded once.

    - (C1) `x` and `weight` have four dimensions.
    - (C2) `stride`, `padding` and `dilation` have two entries below 2^31; those of
      `stride` and `dilation` are positive, those of `padding` aren't negative.
    - (C3) `groups` is positive and divides Co.
    - (C4) `x` has `groups` times as many channels as `weight` has in dimension 1.
    - (C5) kH and kW are static, positive and below 2^31.
    - (C6) `x` with its padding is at most one short of the kernel, spread by `dilation`,
      and its sizes are below 2^63.

    ```mlir
    func.func @f(%x: tensor<?x8x?x32xf32>, %w: tensor<16x2x3x3xf32>) -> tensor<?x16x?x16xf32> {
      %y = mir.conv %x, %w stride [1, 2] padding [1, 1] groups 4 : tensor<?x8x?x32xf32>, tensor<16x2x3x3xf32>
      return %y : tensor<?x16x?x16xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$weight,
      DefaultValuedAttr<DenseI64ArrayAttr, "{1, 1}">:$stride,
      DefaultValuedAttr<DenseI64ArrayAttr, "{0, 0}">:$padding,
      DefaultValuedAttr<DenseI64ArrayAttr, "{1, 1}">:$dilation,
      DefaultValuedAttr<I64Attr, "1">:$groups);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $weight (`stride` $stride^)? (`padding` $padding^)? (`dilation` $dilation^)?
    (`groups` $groups^)? attr-dict `:` type($x) `,` type($weight)
  }];
}

def MIR_ConvTranspose2dOp : MIR_InferredOp<"conv_transpose2d", [
    AllElementTypesMatch<["x", "weight"]>]> {
  let summary = "two-dimensional transposed convolution, in groups of channels";
  let description = [{
    Each pixel of `x`, [N, Ci, H, W], adds its kernel of `weight`, [Ci, Co / groups, kH, kW],
    to the result, [N, Co, Ho, Wo], in steps of `stride`:

        result[n, o, y, z] = sum over c, i, j, u, v of x[n, c, i, j] * weight[c, o', u, v]
            where i * stride[0] + u * dilation[0] - padding[0] = y
            and   j * stride[1] + v * dilation[1] - padding[1] = z

    with c from the channels of the group of o, floor(o / (Co / groups)), which are Ci / groups
    in a row, and o' = o mod (Co / groups). Only pixels that exist have a part in a sum: no
    zeros are put between them, whose products with infinite weights would be NaN.

        Ho = (H - 1) * stride[0] - 2 * padding[0] + dilation[0] * (kH - 1) + 1 + output_padding[0]

    and Wo likewise. Where H or W is dynamic, C6 is a condition at run time. Accumulated in f32
    (f64 for f64) and rounded once.

    - (C1) `x` and `weight` have four dimensions.
    - (C2) `stride`, `padding`, `output_padding` and `dilation` have two entries below 2^31;
      those of `stride` and `dilation` are positive, the others aren't negative.
    - (C3) `x` has as many channels as `weight` has in dimension 0.
    - (C4) `groups` is positive and divides the channels of `x`, and Co is below 2^63.
    - (C5) kH and kW are static, positive and below 2^31.
    - (C6) Ho and Wo aren't negative, and below 2^63.

    ```mlir
    func.func @f(%x: tensor<?x8x?x32xf32>, %w: tensor<8x4x2x2xf32>) -> tensor<?x16x?x64xf32> {
      %y = mir.conv_transpose2d %x, %w stride [2, 2] groups 4 : tensor<?x8x?x32xf32>, tensor<8x4x2x2xf32>
      return %y : tensor<?x16x?x64xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$weight,
      DefaultValuedAttr<DenseI64ArrayAttr, "{1, 1}">:$stride,
      DefaultValuedAttr<DenseI64ArrayAttr, "{0, 0}">:$padding,
      DefaultValuedAttr<DenseI64ArrayAttr, "{0, 0}">:$output_padding,
      DefaultValuedAttr<DenseI64ArrayAttr, "{1, 1}">:$dilation,
      DefaultValuedAttr<I64Attr, "1">:$groups);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $weight (`stride` $stride^)? (`padding` $padding^)?
    (`output_padding` $output_padding^)? (`dilation` $dilation^)?
    (`groups` $groups^)? attr-dict `:` type($x) `,` type($weight)
  }];
}

def MIR_Conv2dBackwardInputOp : MIR_Op<"conv2d_backward_input", [
    AllTypesMatch<["x", "result"]>, AllElementTypesMatch<["dy", "weight", "x"]>]> {
  let summary = "gradient of a convolution with respect to its image";
  let description = [{
    The gradient of what the convolution of `x`, [N, Ci, H, W], with `weight`,
    [Co, Ci / groups, kH, kW], goes into, where `dy`, [N, Co, Ho, Wo], is that with respect to
    the convolution's result:

        result[n, f * Ci / groups + c, y, z] = sum over o, i, j, u, v of dy[n, o, i, j] * weight[o, c, u, v]
            where i * stride[0] + u * dilation[0] - padding[0] = y
            and   j * stride[1] + v * dilation[1] - padding[1] = z

    with o from the channels of group f. It is the transposed convolution of `dy` with the
    kernels, of the shape of `x`, of which no element is read. Accumulated in f32 (f64 for f64)
    and rounded once.

    - (C1) `dy`, `weight` and `x` have four dimensions.
    - (C2) `stride`, `padding` and `dilation` have two entries below 2^31; those of `stride` and
      `dilation` are positive, those of `padding` aren't negative.
    - (C3) `weight` and `groups` fit `x`, and `dy` has the shape of their `mir.conv`. Where sizes
      are dynamic, this is a condition at run time.

    ```mlir
    func.func @f(%dy: tensor<?x16x?x16xf32>, %w: tensor<16x2x3x3xf32>, %x: tensor<?x8x?x32xf32>) -> tensor<?x8x?x32xf32> {
      %dx = mir.conv2d_backward_input %dy, %w like %x stride [1, 2] padding [1, 1] groups 4
          : tensor<?x16x?x16xf32>, tensor<16x2x3x3xf32>, tensor<?x8x?x32xf32>
      return %dx : tensor<?x8x?x32xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$dy, MIR_FloatTensor:$weight, MIR_FloatTensor:$x,
      DefaultValuedAttr<DenseI64ArrayAttr, "{1, 1}">:$stride,
      DefaultValuedAttr<DenseI64ArrayAttr, "{0, 0}">:$padding,
      DefaultValuedAttr<DenseI64ArrayAttr, "{1, 1}">:$dilation,
      DefaultValuedAttr<I64Attr, "1">:$groups);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $dy `,` $weight `like` $x (`stride` $stride^)? (`padding` $padding^)?
    (`dilation` $dilation^)? (`groups` $groups^)? attr-dict
    `:` type($dy) `,` type($weight) `,` type($x)
  }];
  let hasVerifier = 1;
}

def MIR_Conv2dBackwardWeightOp : MIR_InferredOp<"conv2d_backward_weight", [
    AllElementTypesMatch<["x", "dy"]>]> {
  let summary = "gradient of a convolution with respect to its kernels";
  let description = [{
    The gradient of what the convolution of `x`, [N, Ci, H, W], goes into, with respect to its
    kernels, [Co, Ci / groups, kH, kW], where `dy`, [N, Co, Ho, Wo], is that with respect to the
    convolution's result:

        result[o, c, u, v] = sum over n, i, j of dy[n, o, i, j]
            * x[n, f * Ci / groups + c, i * stride[0] - padding[0] + u * dilation[0],
                                        j * stride[1] - padding[1] + v * dilation[1]]

    with f = floor(o / (Co / groups)); `x` is 0 outside. kH and kW are `kernel_size`.
    Accumulated in f32 (f64 for f64) and rounded once.

    - (C1) `x` and `dy` have four dimensions.
    - (C2) `kernel_size`, `stride`, `padding` and `dilation` have two entries below 2^31; those
      of `padding` aren't negative, the others are positive.
    - (C3) `groups` is positive, and divides the channels of `x` and those of `dy`.
    - (C4) `dy` has the batch of `x`, and the height and width of its `mir.conv`. Where sizes are
      dynamic, this is a condition at run time.

    ```mlir
    func.func @f(%x: tensor<?x8x?x32xf32>, %dy: tensor<?x16x?x16xf32>) -> tensor<16x2x3x3xf32> {
      %dw = mir.conv2d_backward_weight %x, %dy kernel [3, 3] stride [1, 2] padding [1, 1] groups 4
          : tensor<?x8x?x32xf32>, tensor<?x16x?x16xf32>
      return %dw : tensor<16x2x3x3xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$dy, DenseI64ArrayAttr:$kernel_size,
      DefaultValuedAttr<DenseI64ArrayAttr, "{1, 1}">:$stride,
      DefaultValuedAttr<DenseI64ArrayAttr, "{0, 0}">:$padding,
      DefaultValuedAttr<DenseI64ArrayAttr, "{1, 1}">:$dilation,
      DefaultValuedAttr<I64Attr, "1">:$groups);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $dy `kernel` $kernel_size (`stride` $stride^)? (`padding` $padding^)?
    (`dilation` $dilation^)? (`groups` $groups^)? attr-dict `:` type($x) `,` type($dy)
  }];
}

#endif // RLX_MIR_CONV
