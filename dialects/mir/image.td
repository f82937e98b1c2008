// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Images: pooling, normalisation in groups of channels, larger images, positions of pixels; and gradients of these.

#ifndef RLX_MIR_IMAGE
#define RLX_MIR_IMAGE

include "mir/base.td"

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

def MIR_PoolOp : MIR_InferredOp<"pool"> {
  let summary = "largest, smallest, sum, mean or product of each window of an image";
  let description = [{
    Combines the elements of each window of `kernel_size` of `x`, [N, C, H, W], channel by
    channel. The windows begin `padding` before the image, in steps of `stride`:

        result[n, c, i, j] = kind over u < kernel_size[0], v < kernel_size[1] of
            x[n, c, i * stride[0] - padding[0] + u, j * stride[1] - padding[1] + v]

    Only elements of the image have a part in it. A window that lies in the padding as a whole
    is one of no element.

    | kind | value | of no element |
    |---|---|---|
    | max, min | largest, smallest; NaN where any element is NaN | -inf, inf |
    | sum | sum | 0 |
    | mean | sum / (kernel_size[0] * kernel_size[1]), with the padding counted | 0 |
    | prod | product | 1 |

    Floats are accumulated in f32 (f64 for f64) and rounded once, integers in their own type,
    wrapping around. The order is free. The largest of no integers is the smallest integer, and
    the other way round. The result is [N, C, Ho, Wo]:

        Ho = floor((H + 2 * padding[0] - kernel_size[0]) / stride[0]) + 1

    and Wo likewise: 0 where `x` is one short of the window. Where H or W is dynamic, C4 is a
    condition at run time.

    - (C1) `x` has four dimensions.
    - (C2) `kernel_size`, `stride` and `padding` have two entries below 2^31; those of `padding`
      aren't negative, the others are positive.
    - (C3) `kind` is max, mean, sum, min or prod, and mean is of floats.
    - (C4) `x` with its padding is at most one short of the kernel, and its sizes are below 2^63.

    ```mlir
    func.func @f(%x: tensor<?x8x?x32xf32>) -> tensor<?x8x?x16xf32> {
      %y = mir.pool max %x kernel [3, 3] stride [2, 2] padding [1, 1] : tensor<?x8x?x32xf32>
      return %y : tensor<?x8x?x16xf32>
    }
    ```
  }];
  let arguments = (ins MIR_ArithTensor:$x, MIR_ReduceKindAttr:$kind,
      DenseI64ArrayAttr:$kernel_size,
      DefaultValuedAttr<DenseI64ArrayAttr, "{1, 1}">:$stride,
      DefaultValuedAttr<DenseI64ArrayAttr, "{0, 0}">:$padding);
  let results = (outs MIR_ArithTensor:$result);
  let assemblyFormat = [{
    `` $kind $x `kernel` $kernel_size (`stride` $stride^)? (`padding` $padding^)? attr-dict
    `:` type($x)
  }];
  let hasFolder = 1;
  let hasVerifier = 1;
}

def MIR_MaxPool2dBackwardOp : MIR_Op<"max_pool2d_backward", [
    AllTypesMatch<["x", "result"]>, AllElementTypesMatch<["x", "dy"]>]> {
  let summary = "gradient of the largest elements of windows";
  let description = [{
    The gradient of what `mir.pool max` of `x` goes into, with respect to `x`, where `dy` is
    that with respect to the pool's result. Each element of `dy` is added to the position of the
    first largest element of its window, in row-major order; where there is a NaN, to that of the
    first NaN. Elements of windows that lie in the padding as a whole are added to nothing.
    Accumulated in f32 (f64 for f64) and rounded once.

    - (C1) `x` and `dy` have four dimensions.
    - (C2) `kernel_size`, `stride` and `padding` have two entries below 2^31; those of `padding`
      aren't negative, the others are positive.
    - (C3) a window has fewer than 2^31 elements.
    - (C4) `dy` has the shape of `mir.pool` of `x`. Where sizes are dynamic, this is a condition
      at run time.

    ```mlir
    func.func @f(%x: tensor<?x8x?x32xf32>, %dy: tensor<?x8x?x16xf32>) -> tensor<?x8x?x32xf32> {
      %dx = mir.max_pool2d_backward %x, %dy kernel [3, 3] stride [1, 2] padding [1, 1]
          : tensor<?x8x?x32xf32>, tensor<?x8x?x16xf32>
      return %dx : tensor<?x8x?x32xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$dy, DenseI64ArrayAttr:$kernel_size,
      DefaultValuedAttr<DenseI64ArrayAttr, "{1, 1}">:$stride,
      DefaultValuedAttr<DenseI64ArrayAttr, "{0, 0}">:$padding);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $dy `kernel` $kernel_size (`stride` $stride^)? (`padding` $padding^)? attr-dict
    `:` type($x) `,` type($dy)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Normalisation
//===----------------------------------------------------------------------===//

def MIR_GroupNormOp : MIR_Op<"group_norm", [
    AllTypesMatch<["x", "result"]>, AllElementTypesMatch<["x", "gamma"]>]> {
  let summary = "normalisation of each group of channels to mean 0 and variance 1";
  let description = [{
    The channels of `x`, [N, C, H, W], are `num_groups` groups of C / num_groups neighbours. Each
    group of each item is normalised as a whole:

        result[n, c, h, w] = (x[n, c, h, w] - mean) / sqrt(variance + eps) * gamma[c] + beta[c]

    with mean and variance of the C / num_groups * H * W elements of the group of c. The variance
    is the mean of squared differences (divided by the count). All is computed in f32 (f64 for
    f64) and rounded once. `eps` has the unit of `x` squared. Without `beta` nothing is added.

    - (C1) `x` has four dimensions.
    - (C2) `num_groups` is positive and divides the channels of `x`. Where these are dynamic, this
      is a condition at run time.
    - (C3) `gamma` is as long as there are channels.
    - (C4) `beta` is as long as there are channels, and of the element type of `x`.
    - (C5) `eps` is positive and finite.

    ```mlir
    func.func @f(%x: tensor<?x8x?x?xf32>, %g: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<?x8x?x?xf32> {
      %y = mir.group_norm %x, %g beta(%b : tensor<8xf32>) groups 4 eps 0.25 : tensor<?x8x?x?xf32>, tensor<8xf32>
      return %y : tensor<?x8x?x?xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatVector:$gamma, Optional<MIR_FloatVector>:$beta,
      I64Attr:$num_groups, DefaultValuedAttr<F32Attr, "1e-5f">:$eps);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $gamma (`beta` `(` $beta^ `:` type($beta) `)`)? `groups` $num_groups (`eps` $eps^)?
    attr-dict `:` type($x) `,` type($gamma)
  }];
  let hasVerifier = 1;
}

def MIR_GroupNormBackwardInputOp : MIR_Op<"group_norm_backward_input", [
    AllTypesMatch<["x", "dy", "result"]>, AllElementTypesMatch<["x", "gamma"]>]> {
  let summary = "gradient of normalised groups with respect to their elements";
  let description = [{
    The gradient of what `mir.group_norm` of `x` goes into, with respect to `x`, where `dy` is
    that with respect to its result. In each group, with r = 1 / sqrt(variance + eps),
    n = (x - mean) r and s = dy * gamma[c]:

        result = r (s - mean(s) - n mean(s n))

    All is computed in f32 (f64 for f64) and rounded once.

    - (C1) `x` has four dimensions.
    - (C2) `num_groups` is positive and divides the channels of `x`. Where these are dynamic, this
      is a condition at run time.
    - (C3) `gamma` is as long as there are channels.
    - (C4) `eps` is positive and finite.

    ```mlir
    func.func @f(%x: tensor<?x8x?x?xf32>, %g: tensor<8xf32>, %dy: tensor<?x8x?x?xf32>) -> tensor<?x8x?x?xf32> {
      %dx = mir.group_norm_backward_input %x, %g, %dy groups 4 : tensor<?x8x?x?xf32>, tensor<8xf32>
      return %dx : tensor<?x8x?x?xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatVector:$gamma, MIR_FloatTensor:$dy,
      I64Attr:$num_groups, DefaultValuedAttr<F32Attr, "1e-5f">:$eps);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $gamma `,` $dy `groups` $num_groups (`eps` $eps^)? attr-dict
    `:` type($x) `,` type($gamma)
  }];
  let hasVerifier = 1;
}

def MIR_GroupNormBackwardGammaOp : MIR_InferredOp<"group_norm_backward_gamma", [
    AllTypesMatch<["x", "dy"]>]> {
  let summary = "gradient of normalised groups with respect to their scales";
  let description = [{
    The gradient of what `mir.group_norm` of `x` goes into, with respect to `gamma`, where `dy` is
    that with respect to its result:

        result[c] = sum over n, h, w of dy[n, c, h, w] * (x[n, c, h, w] - mean) / sqrt(variance + eps)

    with mean and variance of the group of c. All is computed in f32 (f64 for f64) and rounded
    once.

    - (C1) `x` has four dimensions.
    - (C2) `num_groups` is positive and divides the channels of `x`. Where these are dynamic, this
      is a condition at run time.
    - (C3) `eps` is positive and finite.

    ```mlir
    func.func @f(%x: tensor<?x8x?x?xf32>, %dy: tensor<?x8x?x?xf32>) -> tensor<8xf32> {
      %dg = mir.group_norm_backward_gamma %x, %dy groups 4 : tensor<?x8x?x?xf32>
      return %dg : tensor<8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$dy, I64Attr:$num_groups,
      DefaultValuedAttr<F32Attr, "1e-5f">:$eps);
  let results = (outs MIR_FloatVector:$result);
  let assemblyFormat = [{
    $x `,` $dy `groups` $num_groups (`eps` $eps^)? attr-dict `:` type($x)
  }];
  let hasVerifier = 1;
}

def MIR_GroupNormBackwardBetaOp : MIR_InferredOp<"group_norm_backward_beta"> {
  let summary = "gradient of normalised groups with respect to what is added to them";
  let description = [{
    The gradient of what `mir.group_norm` goes into, with respect to `beta`, where `dy`,
    [N, C, H, W], is that with respect to its result:

        result[c] = sum over n, h, w of dy[n, c, h, w]

    Accumulated in f32 (f64 for f64) and rounded once.

    - (C1) `dy` has four dimensions.

    ```mlir
    func.func @f(%dy: tensor<?x8x?x?xf32>) -> tensor<8xf32> {
      %db = mir.group_norm_backward_beta %dy : tensor<?x8x?x?xf32>
      return %db : tensor<8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$dy);
  let results = (outs MIR_FloatVector:$result);
  let assemblyFormat = "$dy attr-dict `:` type($dy)";
}

//===----------------------------------------------------------------------===//
// Pixels
//===----------------------------------------------------------------------===//

def MIR_ResizeNearest2xOp : MIR_InferredOp<"resize_nearest_2x"> {
  let summary = "each pixel of an image as four equal ones";
  let description = [{
    The image `x`, [N, C, H, W], with twice the height and width:

        result[n, c, y, z] = x[n, c, floor(y / 2), floor(z / 2)]

    - (C1) `x` has four dimensions.
    - (C2) twice the height and twice the width of `x` are below 2^63.

    ```mlir
    func.func @f(%x: tensor<?x8x?x32xf32>) -> tensor<?x8x?x64xf32> {
      %y = mir.resize_nearest_2x %x : tensor<?x8x?x32xf32>
      return %y : tensor<?x8x?x64xf32>
    }
    ```
  }];
  let arguments = (ins MIR_StoredTensor:$x);
  let results = (outs MIR_StoredTensor:$result);
  let assemblyFormat = "$x attr-dict `:` type($x)";
}

def MIR_AxialRope2dOp : MIR_Op<"axial_rope2d", [AllTypesMatch<["x", "result"]>]> {
  let summary = "rotary position embedding of the pixels of an image";
  let description = [{
    Rotates pairs of elements of each head of `x`, [B, L, heads * head_dim], by angles that follow
    from the column and the row of a token's pixel. Token t is of the pixel
    p = floor(t / repeat_factor) of an image of `end_y` rows of `end_x` pixels, whose column is
    a = p mod end_x and whose row is b = floor(p / end_x). With q = head_dim / 4, c < q and
    f = theta^(-4 c / head_dim), in each head u of a token:

        result[2c]          = u[2c]          * cos(a f) - u[2c + 1]      * sin(a f)
        result[2c + 1]      = u[2c + 1]      * cos(a f) + u[2c]          * sin(a f)
        result[2q + 2c]     = u[2q + 2c]     * cos(b f) - u[2q + 2c + 1] * sin(b f)
        result[2q + 2c + 1] = u[2q + 2c + 1] * cos(b f) + u[2q + 2c]     * sin(b f)

    Cosines and sines are rounded to f32 (f64 for f64), the rest is computed in that type and
    rounded once.

    - (C1) `x` has three dimensions.
    - (C2) `head_dim` is a positive multiple of 4 and divides the last dimension of `x`.
    - (C3) `end_x`, `end_y` and `repeat_factor` are positive, and their product is below 2^31.
    - (C4) L is that product. Where it is dynamic, this is a condition at run time.
    - (C5) `theta` is positive and finite.

    ```mlir
    func.func @f(%x: tensor<?x12x64xf32>) -> tensor<?x12x64xf32> {
      %y = mir.axial_rope2d %x end_x 4 end_y 3 head_dim 32 theta 1.0e+02 : tensor<?x12x64xf32>
      return %y : tensor<?x12x64xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, I64Attr:$end_x, I64Attr:$end_y, I64Attr:$head_dim,
      DefaultValuedAttr<F32Attr, "1e4f">:$theta, DefaultValuedAttr<I64Attr, "1">:$repeat_factor);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `end_x` $end_x `end_y` $end_y `head_dim` $head_dim (`theta` $theta^)? (`repeat` $repeat_factor^)? attr-dict
    `:` type($x)
  }];
  let hasVerifier = 1;
}

#endif // RLX_MIR_IMAGE
