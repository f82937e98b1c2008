// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @matmul_c1_rank(%a: tensor<8xf32>, %b: tensor<8x16xf32>) {
  // expected-error @below {{expects 'lhs' and 'rhs' to have at least two dimensions, but got [8] and [8, 16]}}
  %r = mir.matmul %a, %b : tensor<8xf32>, tensor<8x16xf32>
  return
}

// -----

func.func @matmul_c2_k(%a: tensor<4x8xf32>, %b: tensor<16x8xf32>) {
  // expected-error @below {{expects 'lhs' and 'rhs' to have the same k, but got 8 and 16}}
  %r = mir.matmul %a, %b : tensor<4x8xf32>, tensor<16x8xf32>
  return
}

// -----

func.func @matmul_c2_k_transposed(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>) {
  // expected-error @below {{expects 'lhs' and 'rhs' to have the same k, but got 8 and 16}}
  %r = mir.matmul %a, %b transpose_rhs : tensor<4x8xf32>, tensor<8x16xf32>
  return
}

// -----

func.func @matmul_c3_batch(%a: tensor<2x4x8xf32>, %b: tensor<3x8x16xf32>) {
  // expected-error @below {{expects the batch dimensions of 'lhs' and 'rhs' to broadcast, but got [2] and [3]}}
  %r = mir.matmul %a, %b : tensor<2x4x8xf32>, tensor<3x8x16xf32>
  return
}

// -----

func.func @matmul_element_types(%a: tensor<4x8xf32>, %b: tensor<8x16xf16>) {
  // expected-error @below {{failed to verify that all of {lhs, rhs} have same element type}}
  %r = mir.matmul %a, %b : tensor<4x8xf32>, tensor<8x16xf16>
  return
}

// -----

func.func @fused_matmul_bias_act_c1_rank(%x: tensor<4x8xf32>, %w: tensor<2x8x16xf32>, %b: tensor<16xf32>) {
  // expected-error @below {{expects 'x' to have at least one dimension and 'weight' two, but their ranks are 2 and 3}}
  %r = mir.fused_matmul_bias_act %x, %w, %b : tensor<4x8xf32>, tensor<2x8x16xf32>, tensor<16xf32>
  return
}

// -----

func.func @fused_matmul_bias_act_c2_k(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %b: tensor<16xf32>) {
  // expected-error @below {{expects 'x' and 'weight' to have the same k, but got 8 and 16}}
  %r = mir.fused_matmul_bias_act %x, %w, %b : tensor<4x8xf32>, tensor<16x8xf32>, tensor<16xf32>
  return
}

// -----

func.func @fused_matmul_bias_act_c3_n(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<8xf32>) {
  // expected-error @below {{expects 'bias' to be as long as the n of 'weight', 16, but its shape is [8]}}
  %r = mir.fused_matmul_bias_act %x, %w, %b : tensor<4x8xf32>, tensor<8x16xf32>, tensor<8xf32>
  return
}
