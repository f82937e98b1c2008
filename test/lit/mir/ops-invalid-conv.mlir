// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @conv_c1_rank(%x: tensor<4x5x6xf32>, %w: tensor<8x4x3x2xf32>) {
  // expected-error @below {{expects 'x' and 'weight' to have four dimensions, but their ranks are 3 and 4}}
  %y = mir.conv %x, %w : tensor<4x5x6xf32>, tensor<8x4x3x2xf32>
  return
}

// -----

func.func @conv_c2_stride_count(%x: tensor<2x4x5x6xf32>, %w: tensor<8x4x3x2xf32>) {
  // expected-error @below {{expects 'stride' to have two entries that are at least 1 and below 2^31, but got [2]}}
  %y = mir.conv %x, %w stride [2] : tensor<2x4x5x6xf32>, tensor<8x4x3x2xf32>
  return
}

// -----

func.func @conv_c2_stride_zero(%x: tensor<2x4x5x6xf32>, %w: tensor<8x4x3x2xf32>) {
  // expected-error @below {{expects 'stride' to have two entries that are at least 1 and below 2^31, but got [1, 0]}}
  %y = mir.conv %x, %w stride [1, 0] : tensor<2x4x5x6xf32>, tensor<8x4x3x2xf32>
  return
}

// -----

func.func @conv_c2_padding_negative(%x: tensor<2x4x5x6xf32>, %w: tensor<8x4x3x2xf32>) {
  // expected-error @below {{expects 'padding' to have two entries that are at least 0 and below 2^31, but got [-1, 0]}}
  %y = mir.conv %x, %w padding [-1, 0] : tensor<2x4x5x6xf32>, tensor<8x4x3x2xf32>
  return
}

// -----

func.func @conv_c2_dilation_huge(%x: tensor<2x4x5x6xf32>, %w: tensor<8x4x3x2xf32>) {
  // expected-error @below {{expects 'dilation' to have two entries that are at least 1 and below 2^31, but got [1, 2147483648]}}
  %y = mir.conv %x, %w dilation [1, 2147483648] : tensor<2x4x5x6xf32>, tensor<8x4x3x2xf32>
  return
}

// -----

func.func @conv_c3_groups_zero(%x: tensor<2x4x5x6xf32>, %w: tensor<8x4x3x2xf32>) {
  // expected-error @below {{expects a positive 'groups' that divides the 8 output channels of 'weight', but got 0}}
  %y = mir.conv %x, %w groups 0 : tensor<2x4x5x6xf32>, tensor<8x4x3x2xf32>
  return
}

// -----

func.func @conv_c3_groups(%x: tensor<2x12x5x6xf32>, %w: tensor<8x4x3x2xf32>) {
  // expected-error @below {{expects a positive 'groups' that divides the 8 output channels of 'weight', but got 3}}
  %y = mir.conv %x, %w groups 3 : tensor<2x12x5x6xf32>, tensor<8x4x3x2xf32>
  return
}

// -----

func.func @conv_c4_channels(%x: tensor<2x4x5x6xf32>, %w: tensor<8x4x3x2xf32>) {
  // expected-error @below {{expects 'x' to have 'groups' times dimension 1 of 'weight' channels, 2 * 4, but got 4}}
  %y = mir.conv %x, %w groups 2 : tensor<2x4x5x6xf32>, tensor<8x4x3x2xf32>
  return
}

// -----

func.func @conv_c4_overflow(%x: tensor<2x?x5x6xf32>, %w: tensor<?x4611686018427387904x3x2xf32>) {
  // expected-error @below {{expects 'x' to have 'groups' times dimension 1 of 'weight' channels, 4 * 4611686018427387904, but got ?}}
  %y = mir.conv %x, %w groups 4 : tensor<2x?x5x6xf32>, tensor<?x4611686018427387904x3x2xf32>
  return
}

// -----

func.func @conv_c5_dynamic_kernel(%x: tensor<2x4x5x6xf32>, %w: tensor<8x4x?x2xf32>) {
  // expected-error @below {{expects dimension 2 of 'weight' to be static, positive and below 2^31, but got ?}}
  %y = mir.conv %x, %w : tensor<2x4x5x6xf32>, tensor<8x4x?x2xf32>
  return
}

// -----

func.func @conv_c5_empty_kernel(%x: tensor<2x4x5x6xf32>, %w: tensor<8x4x3x0xf32>) {
  // expected-error @below {{expects dimension 3 of 'weight' to be static, positive and below 2^31, but got 0}}
  %y = mir.conv %x, %w : tensor<2x4x5x6xf32>, tensor<8x4x3x0xf32>
  return
}

// -----

func.func @conv_c6_too_small(%x: tensor<2x4x5x6xf32>, %w: tensor<8x4x3x2xf32>) {
  // expected-error @below {{expects dimension 2 of 'x', 5, with padding of 1 at both ends to be below 2^63 and at most one short of the kernel, which spreads over 9}}
  %y = mir.conv %x, %w padding [1, 0] dilation [4, 1] : tensor<2x4x5x6xf32>, tensor<8x4x3x2xf32>
  return
}

// -----

func.func @conv_c6_overflow(%x: tensor<2x4x9223372036854775807x6xf32>, %w: tensor<8x4x3x2xf32>) {
  // expected-error @below {{expects dimension 2 of 'x', 9223372036854775807, with padding of 1 at both ends to be below 2^63}}
  %y = mir.conv %x, %w padding [1, 0] : tensor<2x4x9223372036854775807x6xf32>, tensor<8x4x3x2xf32>
  return
}

// -----

func.func @conv_transpose2d_c1_rank(%x: tensor<4x5x6xf32>, %w: tensor<4x8x3x2xf32>) {
  // expected-error @below {{expects 'x' and 'weight' to have four dimensions, but their ranks are 3 and 4}}
  %y = mir.conv_transpose2d %x, %w : tensor<4x5x6xf32>, tensor<4x8x3x2xf32>
  return
}

// -----

func.func @conv_transpose2d_c2_stride_zero(%x: tensor<2x4x5x6xf32>, %w: tensor<4x8x3x2xf32>) {
  // expected-error @below {{expects 'stride' to have two entries that are at least 1 and below 2^31, but got [0, 1]}}
  %y = mir.conv_transpose2d %x, %w stride [0, 1] : tensor<2x4x5x6xf32>, tensor<4x8x3x2xf32>
  return
}

// -----

func.func @conv_transpose2d_c2_padding_negative(%x: tensor<2x4x5x6xf32>, %w: tensor<4x8x3x2xf32>) {
  // expected-error @below {{expects 'padding' to have two entries that are at least 0 and below 2^31, but got [0, -1]}}
  %y = mir.conv_transpose2d %x, %w padding [0, -1] : tensor<2x4x5x6xf32>, tensor<4x8x3x2xf32>
  return
}

// -----

func.func @conv_transpose2d_c2_output_padding_count(%x: tensor<2x4x5x6xf32>, %w: tensor<4x8x3x2xf32>) {
  // expected-error @below {{expects 'output_padding' to have two entries that are at least 0 and below 2^31, but got [1]}}
  %y = mir.conv_transpose2d %x, %w output_padding [1] : tensor<2x4x5x6xf32>, tensor<4x8x3x2xf32>
  return
}

// -----

func.func @conv_transpose2d_c2_dilation_huge(%x: tensor<2x4x5x6xf32>, %w: tensor<4x8x3x2xf32>) {
  // expected-error @below {{expects 'dilation' to have two entries that are at least 1 and below 2^31, but got [1, 2147483648]}}
  %y = mir.conv_transpose2d %x, %w dilation [1, 2147483648] : tensor<2x4x5x6xf32>, tensor<4x8x3x2xf32>
  return
}

// -----

func.func @conv_transpose2d_c3_channels(%x: tensor<2x4x5x6xf32>, %w: tensor<3x8x3x2xf32>) {
  // expected-error @below {{expects 'x' to have as many channels as dimension 0 of 'weight' has, 3, but got 4}}
  %y = mir.conv_transpose2d %x, %w : tensor<2x4x5x6xf32>, tensor<3x8x3x2xf32>
  return
}

// -----

func.func @conv_transpose2d_c4_groups_zero(%x: tensor<2x4x5x6xf32>, %w: tensor<4x8x3x2xf32>) {
  // expected-error @below {{expects a positive 'groups' that divides the 4 channels of 'x' and, times dimension 1 of 'weight', 8, is below 2^63, but got 0}}
  %y = mir.conv_transpose2d %x, %w groups 0 : tensor<2x4x5x6xf32>, tensor<4x8x3x2xf32>
  return
}

// -----

func.func @conv_transpose2d_c4_groups(%x: tensor<2x4x5x6xf32>, %w: tensor<4x8x3x2xf32>) {
  // expected-error @below {{expects a positive 'groups' that divides the 4 channels of 'x' and, times dimension 1 of 'weight', 8, is below 2^63, but got 3}}
  %y = mir.conv_transpose2d %x, %w groups 3 : tensor<2x4x5x6xf32>, tensor<4x8x3x2xf32>
  return
}

// -----

func.func @conv_transpose2d_c4_overflow(%x: tensor<2x4x5x6xf32>, %w: tensor<4x4611686018427387904x3x2xf32>) {
  // expected-error @below {{times dimension 1 of 'weight', 4611686018427387904, is below 2^63, but got 4}}
  %y = mir.conv_transpose2d %x, %w groups 4 : tensor<2x4x5x6xf32>, tensor<4x4611686018427387904x3x2xf32>
  return
}

// -----

func.func @conv_transpose2d_c5_dynamic_kernel(%x: tensor<2x4x5x6xf32>, %w: tensor<4x8x3x?xf32>) {
  // expected-error @below {{expects dimension 3 of 'weight' to be static, positive and below 2^31, but got ?}}
  %y = mir.conv_transpose2d %x, %w : tensor<2x4x5x6xf32>, tensor<4x8x3x?xf32>
  return
}

// -----

func.func @conv_transpose2d_c5_empty_kernel(%x: tensor<2x4x5x6xf32>, %w: tensor<4x8x0x2xf32>) {
  // expected-error @below {{expects dimension 2 of 'weight' to be static, positive and below 2^31, but got 0}}
  %y = mir.conv_transpose2d %x, %w : tensor<2x4x5x6xf32>, tensor<4x8x0x2xf32>
  return
}

// -----

func.func @conv_transpose2d_c6_negative(%x: tensor<2x4x5x6xf32>, %w: tensor<4x8x3x2xf32>) {
  // expected-error @below {{expects dimension 2 of the result not to be negative, and to be below 2^63, but it is (5 - 1) * 1 + -5}}
  %y = mir.conv_transpose2d %x, %w padding [4, 0] : tensor<2x4x5x6xf32>, tensor<4x8x3x2xf32>
  return
}

// -----

func.func @conv_transpose2d_c6_overflow(%x: tensor<2x4x5x4611686018427387904xf32>, %w: tensor<4x8x3x2xf32>) {
  // expected-error @below {{expects dimension 3 of the result not to be negative, and to be below 2^63, but it is (4611686018427387904 - 1) * 3 + 2}}
  %y = mir.conv_transpose2d %x, %w stride [1, 3] : tensor<2x4x5x4611686018427387904xf32>, tensor<4x8x3x2xf32>
  return
}

// -----

func.func @conv2d_backward_input_c1_rank(%dy: tensor<8x3x5xf32>, %w: tensor<8x4x3x2xf32>, %x: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects 'dy', 'weight' and 'x' to have four dimensions, but their ranks are 3, 4 and 4}}
  %y = mir.conv2d_backward_input %dy, %w like %x : tensor<8x3x5xf32>, tensor<8x4x3x2xf32>, tensor<2x4x5x6xf32>
  return
}

// -----

func.func @conv2d_backward_input_c2_stride(%dy: tensor<2x8x3x5xf32>, %w: tensor<8x4x3x2xf32>, %x: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects 'stride' to have two entries that are at least 1 and below 2^31, but got [1, 0]}}
  %y = mir.conv2d_backward_input %dy, %w like %x stride [1, 0] : tensor<2x8x3x5xf32>, tensor<8x4x3x2xf32>, tensor<2x4x5x6xf32>
  return
}

// -----

func.func @conv2d_backward_input_c3_groups(%dy: tensor<2x8x3x5xf32>, %w: tensor<8x4x3x2xf32>, %x: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects 'x' to have 'groups' times dimension 1 of 'weight' channels, 2 * 4, but got 4}}
  %y = mir.conv2d_backward_input %dy, %w like %x groups 2 : tensor<2x8x3x5xf32>, tensor<8x4x3x2xf32>, tensor<2x4x5x6xf32>
  return
}

// -----

func.func @conv2d_backward_input_c3_shape(%dy: tensor<2x8x3x5xf32>, %w: tensor<8x4x3x2xf32>, %x: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects 'dy' to have the shape of the convolution of 'x' with 'weight', [2, 8, 5, 5], but got [2, 8, 3, 5]}}
  %y = mir.conv2d_backward_input %dy, %w like %x padding [1, 0] : tensor<2x8x3x5xf32>, tensor<8x4x3x2xf32>, tensor<2x4x5x6xf32>
  return
}

// -----

func.func @conv2d_backward_weight_c1_rank(%x: tensor<2x4x5x6xf32>, %dy: tensor<8x3x5xf32>) {
  // expected-error @below {{expects 'x' and 'dy' to have four dimensions, but their ranks are 4 and 3}}
  %y = mir.conv2d_backward_weight %x, %dy kernel [3, 2] : tensor<2x4x5x6xf32>, tensor<8x3x5xf32>
  return
}

// -----

func.func @conv2d_backward_weight_c2_kernel(%x: tensor<2x4x5x6xf32>, %dy: tensor<2x8x3x5xf32>) {
  // expected-error @below {{expects 'kernel_size' to have two entries that are at least 1 and below 2^31, but got [3, 0]}}
  %y = mir.conv2d_backward_weight %x, %dy kernel [3, 0] : tensor<2x4x5x6xf32>, tensor<2x8x3x5xf32>
  return
}

// -----

func.func @conv2d_backward_weight_c2_dilation(%x: tensor<2x4x5x6xf32>, %dy: tensor<2x8x3x5xf32>) {
  // expected-error @below {{expects 'dilation' to have two entries that are at least 1 and below 2^31, but got [0, 1]}}
  %y = mir.conv2d_backward_weight %x, %dy kernel [3, 2] dilation [0, 1] : tensor<2x4x5x6xf32>, tensor<2x8x3x5xf32>
  return
}

// -----

func.func @conv2d_backward_weight_c3_groups(%x: tensor<2x4x5x6xf32>, %dy: tensor<2x8x3x5xf32>) {
  // expected-error @below {{expects a positive 'groups' that divides the 4 channels of 'x' and the 8 channels of 'dy', but got 8}}
  %y = mir.conv2d_backward_weight %x, %dy kernel [3, 2] groups 8 : tensor<2x4x5x6xf32>, tensor<2x8x3x5xf32>
  return
}

// -----

func.func @conv2d_backward_weight_c4_short(%x: tensor<2x4x5x6xf32>, %dy: tensor<2x8x3x5xf32>) {
  // expected-error @below {{expects dimension 2 of 'x', 5, with padding of 0 at both ends to be below 2^63 and at most one short of the kernel, which spreads over 7}}
  %y = mir.conv2d_backward_weight %x, %dy kernel [7, 2] : tensor<2x4x5x6xf32>, tensor<2x8x3x5xf32>
  return
}

// -----

func.func @conv2d_backward_weight_c4_shape(%x: tensor<2x4x5x6xf32>, %dy: tensor<2x8x3x5xf32>) {
  // expected-error @below {{expects 'dy' to have the shape of the convolution of 'x', [2, 8, 4, 5], but got [2, 8, 3, 5]}}
  %y = mir.conv2d_backward_weight %x, %dy kernel [2, 2] : tensor<2x4x5x6xf32>, tensor<2x8x3x5xf32>
  return
}
