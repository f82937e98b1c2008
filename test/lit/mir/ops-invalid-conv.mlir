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
