// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolutions.

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

#endif // RLX_MIR_CONV
