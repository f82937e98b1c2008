// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @gaussian_splat_prepare_c1_scales(%p: tensor<6xf32>, %s: tensor<9xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_prepare' op expects 'scales' to have 3 numbers for each of 2 splats, but got 9}}
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m : tensor<6xf32>, tensor<9xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_prepare_c1_positions(%p: tensor<7xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_prepare' op expects 'positions' to have 3 numbers for each of ? splats, but got 7}}
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m : tensor<7xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_prepare_c1_rotations(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<9xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_prepare' op expects 'rotations' to have 4 numbers for each of 2 splats, but got 9}}
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m : tensor<6xf32>, tensor<6xf32>, tensor<9xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_prepare_c1_opacities(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<3xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_prepare' op expects 'opacities' to have 1 numbers for each of 2 splats, but got 3}}
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<3xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_prepare_c1_rank(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2x1xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_prepare' op expects 'opacities' to be a vector, but its rank is 2}}
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2x1xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_prepare_c2_coefficients(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<8xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_prepare' op expects 'sh_coeffs' to have a multiple of 3 numbers for each of 2 splats, but got 8}}
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<8xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_prepare_c2_of_nothing(%p: tensor<0xf32>, %s: tensor<0xf32>, %q: tensor<0xf32>, %o: tensor<0xf32>, %c: tensor<0xf32>, %sh: tensor<3xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_prepare' op expects 'sh_coeffs' to have a multiple of 3 numbers for each of 0 splats, but got 3}}
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m : tensor<0xf32>, tensor<0xf32>, tensor<0xf32>, tensor<0xf32>, tensor<0xf32>, tensor<3xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_prepare_c3_meta(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<22xf32>) {
  // expected-error @below {{'mir.gaussian_splat_prepare' op expects 'meta' to have 23 numbers, but got 22}}
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<22xf32>
  return
}

// -----

func.func @gaussian_splat_prepare_c4_width(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_prepare' op expects 'width' to be from 1 to 16384, but got 0}}
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m width 0 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_prepare_c4_height(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_prepare' op expects 'height' to be from 1 to 16384, but got 16385}}
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m height 16385 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_prepare_c4_tile_size(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_prepare' op expects 'tile_size' to be from 1 to 16384, but got -1}}
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m tile_size -1 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_prepare_c4_entries(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_prepare' op expects 'max_list_entries' to be from 1 to 4194304, but got 0}}
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m max_list_entries 0 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_prepare_c5_cutoff(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_prepare' op expects 'alpha_cutoff' to be above 0 and at most 1, but got 0.000000}}
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m alpha_cutoff 0.0 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_prepare_c6_radius(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_prepare' op expects 'radius_scale' to be positive and finite, but got inf}}
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m radius_scale 0x7F800000 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_prepare_c7_threshold(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_prepare' op expects 'transmittance_threshold' to be from 0 to 1, but got 1.500000}}
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m transmittance_threshold 1.5 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_render_c1_scales(%p: tensor<6xf32>, %s: tensor<9xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render' op expects 'scales' to have 3 numbers for each of 2 splats, but got 9}}
  %y = mir.gaussian_splat_render %p, %s, %q, %o, %c, %sh, %m : tensor<6xf32>, tensor<9xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_render_c2_coefficients(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<8xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render' op expects 'sh_coeffs' to have a multiple of 3 numbers for each of 2 splats, but got 8}}
  %y = mir.gaussian_splat_render %p, %s, %q, %o, %c, %sh, %m : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<8xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_render_c3_meta(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<22xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render' op expects 'meta' to have 23 numbers, but got 22}}
  %y = mir.gaussian_splat_render %p, %s, %q, %o, %c, %sh, %m : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<22xf32>
  return
}

// -----

func.func @gaussian_splat_render_c4_width(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render' op expects 'width' to be from 1 to 16384, but got 0}}
  %y = mir.gaussian_splat_render %p, %s, %q, %o, %c, %sh, %m width 0 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_render_c5_cutoff(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render' op expects 'alpha_cutoff' to be above 0 and at most 1, but got 0.000000}}
  %y = mir.gaussian_splat_render %p, %s, %q, %o, %c, %sh, %m alpha_cutoff 0.0 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_render_c6_radius(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render' op expects 'radius_scale' to be positive and finite, but got inf}}
  %y = mir.gaussian_splat_render %p, %s, %q, %o, %c, %sh, %m radius_scale 0x7F800000 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_render_c7_threshold(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render' op expects 'transmittance_threshold' to be from 0 to 1, but got 1.500000}}
  %y = mir.gaussian_splat_render %p, %s, %q, %o, %c, %sh, %m transmittance_threshold 1.5 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_render_backward_c1_scales(%p: tensor<6xf32>, %s: tensor<9xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>, %d: tensor<16384xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render_backward' op expects 'scales' to have 3 numbers for each of 2 splats, but got 9}}
  %y = mir.gaussian_splat_render_backward %p, %s, %q, %o, %c, %sh, %m, %d : tensor<6xf32>, tensor<9xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>, tensor<16384xf32>
  return
}

// -----

func.func @gaussian_splat_render_backward_c2_coefficients(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<8xf32>, %m: tensor<23xf32>, %d: tensor<16384xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render_backward' op expects 'sh_coeffs' to have a multiple of 3 numbers for each of 2 splats, but got 8}}
  %y = mir.gaussian_splat_render_backward %p, %s, %q, %o, %c, %sh, %m, %d : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<8xf32>, tensor<23xf32>, tensor<16384xf32>
  return
}

// -----

func.func @gaussian_splat_render_backward_c3_meta(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<22xf32>, %d: tensor<16384xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render_backward' op expects 'meta' to have 23 numbers, but got 22}}
  %y = mir.gaussian_splat_render_backward %p, %s, %q, %o, %c, %sh, %m, %d : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<22xf32>, tensor<16384xf32>
  return
}

// -----

func.func @gaussian_splat_render_backward_c4_width(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>, %d: tensor<16384xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render_backward' op expects 'width' to be from 1 to 16384, but got 0}}
  %y = mir.gaussian_splat_render_backward %p, %s, %q, %o, %c, %sh, %m, %d width 0 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>, tensor<16384xf32>
  return
}

// -----

func.func @gaussian_splat_render_backward_c5_cutoff(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>, %d: tensor<16384xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render_backward' op expects 'alpha_cutoff' to be above 0 and at most 1, but got 0.000000}}
  %y = mir.gaussian_splat_render_backward %p, %s, %q, %o, %c, %sh, %m, %d alpha_cutoff 0.0 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>, tensor<16384xf32>
  return
}

// -----

func.func @gaussian_splat_render_backward_c6_radius(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>, %d: tensor<16384xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render_backward' op expects 'radius_scale' to be positive and finite, but got inf}}
  %y = mir.gaussian_splat_render_backward %p, %s, %q, %o, %c, %sh, %m, %d radius_scale 0x7F800000 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>, tensor<16384xf32>
  return
}

// -----

func.func @gaussian_splat_render_backward_c7_threshold(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>, %d: tensor<16384xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render_backward' op expects 'transmittance_threshold' to be from 0 to 1, but got 1.500000}}
  %y = mir.gaussian_splat_render_backward %p, %s, %q, %o, %c, %sh, %m, %d transmittance_threshold 1.5 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>, tensor<16384xf32>
  return
}

// -----

func.func @gaussian_splat_render_backward_c8_d_rgba(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>, %d: tensor<16383xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render_backward' op expects 'd_rgba' to have 4 numbers for each pixel, 16384, but got 16383}}
  %y = mir.gaussian_splat_render_backward %p, %s, %q, %o, %c, %sh, %m, %d : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>, tensor<16383xf32>
  return
}

// -----

func.func @gaussian_splat_render_backward_c9_clip(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>, %d: tensor<16384xf32>) {
  // expected-error @below {{'mir.gaussian_splat_render_backward' op expects 'loss_grad_clip' to be positive and finite, but got 0.000000}}
  %y = mir.gaussian_splat_render_backward %p, %s, %q, %o, %c, %sh, %m, %d loss_grad_clip 0.0 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<0xf32>, tensor<23xf32>, tensor<16384xf32>
  return
}

// -----

func.func @gaussian_splat_rasterize_c1_length(%p: tensor<12936xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_rasterize' op expects 'prepared' to have 12907 numbers and 15 for each splat, but got 12936}}
  %y = mir.gaussian_splat_rasterize %p, %m : tensor<12936xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_rasterize_c1_no_splat(%p: tensor<12907xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_rasterize' op expects 'prepared' to have 12907 numbers and 15 for each splat, but got 12907}}
  %y = mir.gaussian_splat_rasterize %p, %m : tensor<12907xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_rasterize_c2_meta(%p: tensor<12937xf32>, %m: tensor<24xf32>) {
  // expected-error @below {{'mir.gaussian_splat_rasterize' op expects 'meta' to have 23 numbers, but got 24}}
  %y = mir.gaussian_splat_rasterize %p, %m : tensor<12937xf32>, tensor<24xf32>
  return
}

// -----

func.func @gaussian_splat_rasterize_c3_width(%p: tensor<?xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_rasterize' op expects 'width' to be from 1 to 16384, but got 0}}
  %y = mir.gaussian_splat_rasterize %p, %m width 0 : tensor<?xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_rasterize_c4_cutoff(%p: tensor<?xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_rasterize' op expects 'alpha_cutoff' to be above 0 and at most 1, but got 2.000000}}
  %y = mir.gaussian_splat_rasterize %p, %m alpha_cutoff 2.0 : tensor<?xf32>, tensor<23xf32>
  return
}

// -----

func.func @gaussian_splat_rasterize_c5_threshold(%p: tensor<?xf32>, %m: tensor<23xf32>) {
  // expected-error @below {{'mir.gaussian_splat_rasterize' op expects 'transmittance_threshold' to be from 0 to 1, but got -1.000000}}
  %y = mir.gaussian_splat_rasterize %p, %m transmittance_threshold -1.0 : tensor<?xf32>, tensor<23xf32>
  return
}
