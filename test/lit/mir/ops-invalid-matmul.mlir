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

func.func @matmul_of_i16(%a: tensor<4x8xi16>, %b: tensor<8x16xi16>) {
  // expected-error @below {{operand #0 must be dense tensor of a float, i8, i32, i64, ui8 or ui32 values}}
  %r = mir.matmul %a, %b : tensor<4x8xi16>, tensor<8x16xi16>
  return
}

// -----

func.func @matmul_c4_element_types(%a: tensor<4x8xf32>, %b: tensor<8x16xf16>) {
  // expected-error @below {{'mir.matmul' op expects 'lhs' and 'rhs' to be of one element type or of bytes, but got 'f32' and 'f16'}}
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

// -----

func.func @scaled_matmul_c1_rank(%x: tensor<8xf8E4M3FN>, %w: tensor<8x4xf8E4M3FN>) {
  // expected-error @below {{expects 'lhs' and 'rhs' to have at least two dimensions, but got [8] and [8, 4]}}
  %r = mir.scaled_matmul %x, %w : tensor<8xf8E4M3FN>, tensor<8x4xf8E4M3FN> to tensor<4xf32>
  return
}

// -----

func.func @scaled_matmul_c2_transposed(%x: tensor<2x8xf8E4M3FN>, %w: tensor<8x4xf8E4M3FN>) {
  // expected-error @below {{expects 'lhs' and 'rhs' to have the same k, but got 8 and 4}}
  %r = mir.scaled_matmul %x, %w transpose_rhs : tensor<2x8xf8E4M3FN>, tensor<8x4xf8E4M3FN> to tensor<2x8xf32>
  return
}

// -----

func.func @scaled_matmul_c3_batches(%x: tensor<2x3x8xf8E4M3FN>, %w: tensor<3x8x4xf8E4M3FN>) {
  // expected-error @below {{expects the batch dimensions of 'lhs' and 'rhs' to broadcast, but got [2] and [3]}}
  %r = mir.scaled_matmul %x, %w : tensor<2x3x8xf8E4M3FN>, tensor<3x8x4xf8E4M3FN> to tensor<2x3x4xf32>
  return
}

// -----

func.func @scaled_matmul_c4_lhs_scale(%x: tensor<2x3x8xf8E4M3FN>, %w: tensor<8x4xf8E4M3FN>, %s: tensor<3xf32>) {
  // expected-error @below {{expects 'lhs_scale' to be [], [1] or [2, 3], as 'lhs' without k, but it is [3]}}
  %r = mir.scaled_matmul %x, %w lhs_scale %s : tensor<2x3x8xf8E4M3FN>, tensor<8x4xf8E4M3FN>, tensor<3xf32> to tensor<2x3x4xf32>
  return
}

// -----

func.func @scaled_matmul_c5_rhs_scale(%x: tensor<3x8xf8E4M3FN>, %w: tensor<8x4xf8E4M3FN>, %s: tensor<8xf32>) {
  // expected-error @below {{expects 'rhs_scale' to be [], [1] or [4], as 'rhs' without k, but it is [8]}}
  %r = mir.scaled_matmul %x, %w rhs_scale %s : tensor<3x8xf8E4M3FN>, tensor<8x4xf8E4M3FN>, tensor<8xf32> to tensor<3x4xf32>
  return
}

// -----

func.func @scaled_matmul_c6_result(%x: tensor<?x8xf8E4M3FN>, %w: tensor<8x4xf8E4M3FN>) {
  // expected-error @below {{expects the result to be [?, 4], but it is [2, 4]}}
  %r = mir.scaled_matmul %x, %w : tensor<?x8xf8E4M3FN>, tensor<8x4xf8E4M3FN> to tensor<2x4xf32>
  return
}

// -----

func.func @scaled_matmul_element(%x: tensor<2x8xf8E4M3FN>, %w: tensor<8x4xbf16>) {
  // expected-error @below {{operand #1 must be dense tensor of f8E4M3FN or f8E5M2 values, but got 'tensor<8x4xbf16>'}}
  %r = mir.scaled_matmul %x, %w : tensor<2x8xf8E4M3FN>, tensor<8x4xbf16> to tensor<2x4xf32>
  return
}
