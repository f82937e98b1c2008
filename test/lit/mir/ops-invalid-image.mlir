// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @pool_c1_rank(%x: tensor<4x5x6xf32>) {
  // expected-error @below {{expects 'x' to have four dimensions, but its rank is 3}}
  %y = mir.pool max %x kernel [1, 1] : tensor<4x5x6xf32>
  return
}

// -----

func.func @pool_c2_kernel(%x: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects 'kernel_size' to have two entries that are at least 1 and below 2^31, but got [0, 1]}}
  %y = mir.pool max %x kernel [0, 1] : tensor<2x4x5x6xf32>
  return
}

// -----

func.func @pool_c2_stride(%x: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects 'stride' to have two entries that are at least 1 and below 2^31, but got [2]}}
  %y = mir.pool max %x kernel [2, 2] stride [2] : tensor<2x4x5x6xf32>
  return
}

// -----

func.func @pool_c2_padding(%x: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects 'padding' to have two entries that are at least 0 and below 2^31, but got [0, -1]}}
  %y = mir.pool max %x kernel [2, 2] padding [0, -1] : tensor<2x4x5x6xf32>
  return
}

// -----

func.func @pool_c3_kind(%x: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects kind max, mean, sum, min or prod, but got any}}
  %y = mir.pool any %x kernel [2, 2] : tensor<2x4x5x6xf32>
  return
}

// -----

func.func @pool_c3_mean_of_integers(%x: tensor<2x4x5x6xi8>) {
  // expected-error @below {{expects 'x' to be of floats with kind mean, but its element type is 'i8'}}
  %y = mir.pool mean %x kernel [2, 2] : tensor<2x4x5x6xi8>
  return
}

// -----

func.func @pool_c4_short(%x: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects dimension 3 of 'x', 6, with padding of 1 at both ends to be below 2^63 and at most one short of the kernel, which spreads over 10}}
  %y = mir.pool max %x kernel [2, 10] padding [0, 1] : tensor<2x4x5x6xf32>
  return
}

// -----

func.func @pool_c4_overflow(%x: tensor<2x4x5x9223372036854775807xf32>) {
  // expected-error @below {{expects dimension 3 of 'x', 9223372036854775807, with padding of 1 at both ends to be below 2^63}}
  %y = mir.pool max %x kernel [2, 2] padding [0, 1] : tensor<2x4x5x9223372036854775807xf32>
  return
}

// -----

func.func @max_pool2d_backward_c1_rank(%x: tensor<2x4x5x6xf32>, %dy: tensor<4x4x5xf32>) {
  // expected-error @below {{expects 'x' and 'dy' to have four dimensions, but their ranks are 4 and 3}}
  %y = mir.max_pool2d_backward %x, %dy kernel [2, 2] : tensor<2x4x5x6xf32>, tensor<4x4x5xf32>
  return
}

// -----

func.func @max_pool2d_backward_c2_stride(%x: tensor<2x4x5x6xf32>, %dy: tensor<2x4x4x5xf32>) {
  // expected-error @below {{expects 'stride' to have two entries that are at least 1 and below 2^31, but got [1, 0]}}
  %y = mir.max_pool2d_backward %x, %dy kernel [2, 2] stride [1, 0] : tensor<2x4x5x6xf32>, tensor<2x4x4x5xf32>
  return
}

// -----

func.func @max_pool2d_backward_c3_elements(%x: tensor<2x4x?x?xf32>, %dy: tensor<2x4x?x?xf32>) {
  // expected-error @below {{expects a window to have fewer than 2^31 elements, but it has 65536 * 32768}}
  %y = mir.max_pool2d_backward %x, %dy kernel [65536, 32768] : tensor<2x4x?x?xf32>, tensor<2x4x?x?xf32>
  return
}

// -----

func.func @max_pool2d_backward_c4_shape(%x: tensor<2x4x5x6xf32>, %dy: tensor<2x4x4x5xf32>) {
  // expected-error @below {{expects 'dy' to have the shape of the pool of 'x', [2, 4, 3, 5], but got [2, 4, 4, 5]}}
  %y = mir.max_pool2d_backward %x, %dy kernel [3, 2] : tensor<2x4x5x6xf32>, tensor<2x4x4x5xf32>
  return
}

// -----

func.func @group_norm_c1_rank(%x: tensor<2x4x5xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{expects 'x' to have four dimensions, but its rank is 3}}
  %y = mir.group_norm %x, %g groups 2 : tensor<2x4x5xf32>, tensor<4xf32>
  return
}

// -----

func.func @group_norm_c2_zero(%x: tensor<2x4x5x6xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{expects a positive 'num_groups' that divides the 4 channels of 'x', but got 0}}
  %y = mir.group_norm %x, %g groups 0 : tensor<2x4x5x6xf32>, tensor<4xf32>
  return
}

// -----

func.func @group_norm_c2_groups(%x: tensor<2x4x5x6xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{expects a positive 'num_groups' that divides the 4 channels of 'x', but got 3}}
  %y = mir.group_norm %x, %g groups 3 : tensor<2x4x5x6xf32>, tensor<4xf32>
  return
}

// -----

func.func @group_norm_c3_gamma(%x: tensor<2x4x5x6xf32>, %g: tensor<5xf32>) {
  // expected-error @below {{expects 'gamma' to have an entry for each of the 4 channels of 'x', but its length is 5}}
  %y = mir.group_norm %x, %g groups 2 : tensor<2x4x5x6xf32>, tensor<5xf32>
  return
}

// -----

func.func @group_norm_c4_beta(%x: tensor<2x4x5x6xf32>, %g: tensor<4xf32>, %b: tensor<3xf32>) {
  // expected-error @below {{expects 'beta' to have an entry for each of the 4 channels of 'x', but its length is 3}}
  %y = mir.group_norm %x, %g beta(%b : tensor<3xf32>) groups 2 : tensor<2x4x5x6xf32>, tensor<4xf32>
  return
}

// -----

func.func @group_norm_c4_beta_type(%x: tensor<2x4x5x6xf32>, %g: tensor<4xf32>, %b: tensor<4xf16>) {
  // expected-error @below {{expects 'beta' to have the element type of 'x', 'f32', but got 'f16'}}
  %y = mir.group_norm %x, %g beta(%b : tensor<4xf16>) groups 2 : tensor<2x4x5x6xf32>, tensor<4xf32>
  return
}

// -----

func.func @group_norm_c5_eps(%x: tensor<2x4x5x6xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got 0.0}}
  %y = mir.group_norm %x, %g groups 2 eps 0.0 : tensor<2x4x5x6xf32>, tensor<4xf32>
  return
}

// -----

func.func @group_norm_backward_input_c1_rank(%x: tensor<2x4x5xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{expects 'x' to have four dimensions, but its rank is 3}}
  %y = mir.group_norm_backward_input %x, %g, %x groups 2 : tensor<2x4x5xf32>, tensor<4xf32>
  return
}

// -----

func.func @group_norm_backward_input_c2_groups(%x: tensor<2x4x5x6xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{expects a positive 'num_groups' that divides the 4 channels of 'x', but got -1}}
  %y = mir.group_norm_backward_input %x, %g, %x groups -1 : tensor<2x4x5x6xf32>, tensor<4xf32>
  return
}

// -----

func.func @group_norm_backward_input_c3_gamma(%x: tensor<2x4x5x6xf32>, %g: tensor<5xf32>) {
  // expected-error @below {{expects 'gamma' to have an entry for each of the 4 channels of 'x', but its length is 5}}
  %y = mir.group_norm_backward_input %x, %g, %x groups 2 : tensor<2x4x5x6xf32>, tensor<5xf32>
  return
}

// -----

func.func @group_norm_backward_input_c4_eps(%x: tensor<2x4x5x6xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got}}
  %y = mir.group_norm_backward_input %x, %g, %x groups 2 eps 0x7F800000 : tensor<2x4x5x6xf32>, tensor<4xf32>
  return
}

// -----

func.func @group_norm_backward_gamma_c1_rank(%x: tensor<2x4x5xf32>) {
  // expected-error @below {{expects 'x' to have four dimensions, but its rank is 3}}
  %y = mir.group_norm_backward_gamma %x, %x groups 2 : tensor<2x4x5xf32>
  return
}

// -----

func.func @group_norm_backward_gamma_c2_groups(%x: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects a positive 'num_groups' that divides the 4 channels of 'x', but got 8}}
  %y = mir.group_norm_backward_gamma %x, %x groups 8 : tensor<2x4x5x6xf32>
  return
}

// -----

func.func @group_norm_backward_gamma_c3_eps(%x: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got -1.0}}
  %y = mir.group_norm_backward_gamma %x, %x groups 2 eps -1.0 : tensor<2x4x5x6xf32>
  return
}

// -----

func.func @group_norm_backward_beta_c1_rank(%dy: tensor<2x4x5xf32>) {
  // expected-error @below {{expects 'dy' to have four dimensions, but its rank is 3}}
  %y = mir.group_norm_backward_beta %dy : tensor<2x4x5xf32>
  return
}

// -----

func.func @resize_nearest_2x_c1_rank(%x: tensor<2x4x5xf32>) {
  // expected-error @below {{expects 'x' to have four dimensions, but its rank is 3}}
  %y = mir.resize_nearest_2x %x : tensor<2x4x5xf32>
  return
}

// -----

func.func @resize_nearest_2x_c2_overflow(%x: tensor<2x4x5x4611686018427387904xf32>) {
  // expected-error @below {{expects twice the height and width of 'x' to be below 2^63, but its shape is [2, 4, 5, 4611686018427387904]}}
  %y = mir.resize_nearest_2x %x : tensor<2x4x5x4611686018427387904xf32>
  return
}

// -----

func.func @axial_rope2d_c1_rank(%x: tensor<12x64xf32>) {
  // expected-error @below {{expects 'x' to have three dimensions, but its rank is 2}}
  %y = mir.axial_rope2d %x end_x 4 end_y 3 head_dim 32 : tensor<12x64xf32>
  return
}

// -----

func.func @axial_rope2d_c2_head_dim(%x: tensor<2x12x64xf32>) {
  // expected-error @below {{expects 'head_dim' to be a positive multiple of 4 that divides the last dimension of 'x', 64, but got 2}}
  %y = mir.axial_rope2d %x end_x 4 end_y 3 head_dim 2 : tensor<2x12x64xf32>
  return
}

// -----

func.func @axial_rope2d_c2_width(%x: tensor<2x12x64xf32>) {
  // expected-error @below {{expects 'head_dim' to be a positive multiple of 4 that divides the last dimension of 'x', 64, but got 12}}
  %y = mir.axial_rope2d %x end_x 4 end_y 3 head_dim 12 : tensor<2x12x64xf32>
  return
}

// -----

func.func @axial_rope2d_c3_positive(%x: tensor<2x12x64xf32>) {
  // expected-error @below {{expects 'end_x', 'end_y' and 'repeat_factor' to be positive, and their product to be below 2^31, but got 4, 3 and -1}}
  %y = mir.axial_rope2d %x end_x 4 end_y 3 head_dim 32 repeat -1 : tensor<2x12x64xf32>
  return
}

// -----

func.func @axial_rope2d_c3_product(%x: tensor<2x12x64xf32>) {
  // expected-error @below {{and their product to be below 2^31, but got 65536, 32768 and 1}}
  %y = mir.axial_rope2d %x end_x 65536 end_y 32768 head_dim 32 : tensor<2x12x64xf32>
  return
}

// -----

func.func @axial_rope2d_c4_tokens(%x: tensor<2x12x64xf32>) {
  // expected-error @below {{expects dimension 1 of 'x' to be end_x * end_y * repeat_factor, 24, but got 12}}
  %y = mir.axial_rope2d %x end_x 4 end_y 3 head_dim 32 repeat 2 : tensor<2x12x64xf32>
  return
}

// -----

func.func @axial_rope2d_c5_theta(%x: tensor<2x12x64xf32>) {
  // expected-error @below {{expects a positive, finite 'theta', but got 0.0}}
  %y = mir.axial_rope2d %x end_x 4 end_y 3 head_dim 32 theta 0.0 : tensor<2x12x64xf32>
  return
}
