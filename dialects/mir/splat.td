// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gaussian splats: images of ellipsoids whose density falls off as a normal distribution.

#ifndef RLX_MIR_SPLAT
#define RLX_MIR_SPLAT

include "mir/base.td"

def MIR_F32Vector : MIR_VectorOf<F32>;

/// The constraints of the operands and attributes that say what is seen.
defvar splatRules = [{    - (C1) `positions` has 3 N numbers, `scales` and `colors` as many, `rotations` 4 N and
      `opacities` N.
    - (C2) `sh_coeffs` has a multiple of 3 N numbers.
    - (C3) `meta` has 23 numbers.
    - (C4) `width`, `height` and `tile_size` are from 1 to 2^14, `max_list_entries` is from 1 to
      2^22.
    - (C5) `alpha_cutoff` is above 0 and at most 1.
    - (C6) `radius_scale` is positive and finite.
    - (C7) `transmittance_threshold` is from 0 to 1.}];

/// How attributes are written.
defvar splatImageFormat = "(`width` $width^)? (`height` $height^)? (`tile_size` $tile_size^)?"
    "(`max_list_entries` $max_list_entries^)? (`alpha_cutoff` $alpha_cutoff^)?";
defvar splatStopFormat = "(`transmittance_threshold` $transmittance_threshold^)?";

/// The seven operands that say what is seen, and from where; constraints C1 to C3.
class MIR_SceneOp<string mnemonic, dag more, dag attributes, string last = "">
    : MIR_InferredOp<mnemonic> {
  dag scene = (ins MIR_F32Vector:$positions, MIR_F32Vector:$scales, MIR_F32Vector:$rotations,
      MIR_F32Vector:$opacities, MIR_F32Vector:$colors, MIR_F32Vector:$sh_coeffs,
      MIR_F32Vector:$meta);
  let arguments = !con(scene, more, attributes);
  let results = (outs MIR_F32Vector:$result);
  let assemblyFormat = !strconcat("operands ", splatImageFormat,
      "(`radius_scale` $radius_scale^)?", splatStopFormat, last,
      "attr-dict `:` type(operands)");
}

defvar splatImage = (ins DefaultValuedAttr<I64Attr, "64">:$width,
    DefaultValuedAttr<I64Attr, "64">:$height, DefaultValuedAttr<I64Attr, "16">:$tile_size,
    DefaultValuedAttr<I64Attr, "576">:$max_list_entries,
    DefaultValuedAttr<F32Attr, "1.0f / 255.0f">:$alpha_cutoff);
defvar splatRadius = (ins DefaultValuedAttr<F32Attr, "1.6f">:$radius_scale);
defvar splatStop = (ins DefaultValuedAttr<F32Attr, "0.01f">:$transmittance_threshold);

def MIR_GaussianSplatPrepareOp : MIR_SceneOp<"gaussian_splat_prepare", (ins),
    !con(splatImage, splatRadius, splatStop)> {
  let summary = "splats as a camera sees them, in lists of the tiles that they touch";
  let description = !strconcat([{
    N splats, each with a mean position, the natural logarithms of three standard deviations,
    the rotation by a quaternion (w, x, y, z), which isn't normalised, an opacity, which is
    clamped to 0 and 1, and a color: a linear one, or coefficients of spherical harmonics,
    [N, C, 3], of which the first two bands count, for the direction (x, y, z) from the splat
    to the camera:

        rgb = 0.5 + 0.28209479 s0 - 0.48860251 y s1 + 0.48860251 z s2 - 0.48860251 x s3

    Where C is below 16, and 0 or the s0 of all splats are at most 1e-8 in magnitude, s0 is
    (clamp(color, 0, 1) - 0.5) / 0.28209479.

    `meta` is the camera: position, what it looks at and upwards, three numbers each; the
    vertical field of view in degrees, the near end, of which nothing is read, and the far one;
    the color of the background, three numbers. Nothing is read of the other eight.

    A splat is an ellipsoid with axes of e^scale radius_scale k, where its density times the
    opacity is `alpha_cutoff`; k = sqrt(-2 ln(alpha_cutoff / opacity)). One whose opacity is less
    isn't visible, nor is one outside of what the camera sees. Its outline is an ellipse on the
    image, or all of it where the camera is inside or the outline doesn't lie before it. Visible
    ones are entered in the lists of the tiles, of `tile_size` squared pixels, that the ellipse
    touches, in the order of their distances: `max_list_entries` entries, and no more.

    The result is one vector of numbers, for n = max(N, 1) splats and T tiles: color and opacity
    [n, 4], whether it is visible [n], the camera in the splat's frame, in which its axes of
    3 e^scale radius_scale have length one [n, 3], the inverses of these axes [n, 3], rotations
    [n, 4], the lists one after the other
    [max_list_entries], their begins and ends [T, 2] (2^32 and 0 of an empty one), directions of
    the pixels' rays [width height, 3], and 11 parameters: width, height, tile_size, tiles in a
    row, alpha_cutoff, transmittance_threshold, which has no other use here, the color of
    the background to the power of 2.2, and two zeros.

}], splatRules, [{

    ```mlir
    func.func @f(%p: tensor<?xf32>, %q: tensor<?xf32>, %o: tensor<?xf32>, %sh: tensor<0xf32>,
                 %meta: tensor<23xf32>) -> tensor<?xf32> {
      %seen = mir.gaussian_splat_prepare %p, %p, %q, %o, %p, %sh, %meta height 48
          : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<0xf32>, tensor<23xf32>
      return %seen : tensor<?xf32>
    }
    ```
  }]);
}

def MIR_GaussianSplatRasterizeOp : MIR_InferredOp<"gaussian_splat_rasterize"> {
  let summary = "the image of what gaussian_splat_prepare gives";
  let description = [{
    For each pixel, over the entries of its tile's list, the nearest splat first, with T = 1 and
    rgb = 0 before them:

        rgb = rgb + T alpha color
        T = T (1 - alpha)

    where alpha, the opacity times the density of the splat along the pixel's ray, is at least
    `alpha_cutoff`, and the splat is visible; nothing follows once T is below
    `transmittance_threshold`. With P the part of the camera's position, in the splat's frame (see
    `mir.gaussian_splat_prepare`), that is at right angles to the ray there:

        alpha = opacity e^(-4.5 |P|^2)

    and 0 where the nearest point lies behind the camera. The result is [height, width, 4] as a
    vector: max(rgb + T background, 0)^2.2, and 1 - T. A pixel of an empty list is the background
    with an opacity of 1.

    - (C1) `prepared` is as long as the result of `mir.gaussian_splat_prepare` for some number of
      splats, with these attributes.
    - (C2) `meta` has 23 numbers.
    - (C3) `width`, `height` and `tile_size` are from 1 to 2^14, `max_list_entries` is from 1 to
      2^22.
    - (C4) `alpha_cutoff` is above 0 and at most 1.
    - (C5) `transmittance_threshold` is from 0 to 1.

    ```mlir
    func.func @f(%prepared: tensor<?xf32>, %meta: tensor<23xf32>) -> tensor<12288xf32> {
      %image = mir.gaussian_splat_rasterize %prepared, %meta height 48
          : tensor<?xf32>, tensor<23xf32>
      return %image : tensor<12288xf32>
    }
    ```
  }];
  let arguments = !con((ins MIR_F32Vector:$prepared, MIR_F32Vector:$meta), splatImage, splatStop);
  let results = (outs MIR_F32Vector:$result);
  let assemblyFormat = !strconcat("operands ", splatImageFormat, splatStopFormat,
      "attr-dict `:` type(operands)");
}

def MIR_GaussianSplatRenderOp : MIR_SceneOp<"gaussian_splat_render", (ins),
    !con(splatImage, splatRadius, splatStop)> {
  let summary = "an image of Gaussian splats";
  let description = !strconcat([{
    `mir.gaussian_splat_rasterize` of what `mir.gaussian_splat_prepare` gives: [height, width, 4]
    as a vector. Where there is no splat, it is zeros.

}], splatRules, [{

    ```mlir
    func.func @f(%p: tensor<?xf32>, %q: tensor<?xf32>, %o: tensor<?xf32>, %sh: tensor<0xf32>,
                 %meta: tensor<23xf32>) -> tensor<12288xf32> {
      %image = mir.gaussian_splat_render %p, %p, %q, %o, %p, %sh, %meta height 48
          : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<0xf32>, tensor<23xf32>
      return %image : tensor<12288xf32>
    }
    ```
  }]);
}

def MIR_GaussianSplatRenderBackwardOp : MIR_SceneOp<"gaussian_splat_render_backward",
    (ins MIR_F32Vector:$d_rgba),
    !con(splatImage, splatRadius, splatStop, (ins OptionalAttr<F32Attr>:$loss_grad_clip)),
    "(`loss_grad_clip` $loss_grad_clip^)?"> {
  let summary = "gradient of gaussian_splat_render";
  let description = !strconcat([{
    The gradient by `positions`, `scales`, `rotations`, `opacities`, `colors` and `sh_coeffs`, one
    after the other in one vector, of sum(d_rgba * gaussian_splat_render(...)), without the
    opacity's part of `d_rgba`: with entries of `d_rgba` clamped to `loss_grad_clip` where it is
    there. Which splats are in which lists, in what order, which of them count at a pixel, and
    where it ends are taken as constants. The gradient by `sh_coeffs` is 3 N zeros where there
    are none: they count as one coefficient each.

}], splatRules, [{
    - (C8) `d_rgba` has 4 width height numbers.
    - (C9) `loss_grad_clip` is positive and finite.

    ```mlir
    func.func @f(%p: tensor<?xf32>, %q: tensor<?xf32>, %o: tensor<?xf32>, %sh: tensor<0xf32>,
                 %meta: tensor<23xf32>, %d: tensor<12288xf32>) -> tensor<?xf32> {
      %g = mir.gaussian_splat_render_backward %p, %p, %q, %o, %p, %sh, %meta, %d height 48
          : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<0xf32>, tensor<23xf32>, tensor<12288xf32>
      return %g : tensor<?xf32>
    }
    ```
  }]);
}

#endif // RLX_MIR_SPLAT
