// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @linear_c1_vector(%x: tensor<8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf32>) {
  // expected-error @below {{expects 'x' to have at least two dimensions, but got 1}}
  %y = hir.linear %x, %w bias %b : tensor<8xf32>, tensor<8x16xf32>, tensor<16xf32>
  return
}

// -----

func.func @linear_c2_weight_rank(%x: tensor<4x8xf32>, %w: tensor<1x8x16xf32>, %b: tensor<16xf32>) {
  // expected-error @below {{expects the dense weight 'weight' to have two dimensions, but got 3}}
  %y = hir.linear %x, %w bias %b : tensor<4x8xf32>, tensor<1x8x16xf32>, tensor<16xf32>
  return
}

// -----

func.func @linear_c3_panels(%x: tensor<4x64xf32>, %w: tensor<1x640xi8, #mir.packed<q4_1, k = 64, n = 16, layout = panels>>, %b: tensor<16xf32>) {
  // expected-error @below {{expects the packed weight 'weight' to have layout = rows, but got panels}}
  %y = hir.linear %x, %w bias %b
      : tensor<4x64xf32>, tensor<1x640xi8, #mir.packed<q4_1, k = 64, n = 16, layout = panels>>, tensor<16xf32>
  return
}

// -----

func.func @linear_c4_inputs(%x: tensor<4x8xf32>, %w: tensor<9x16xf32>, %b: tensor<16xf32>) {
  // expected-error @below {{expects 'weight' to have as many inputs as 'x' has columns, 8, but it has 9}}
  %y = hir.linear %x, %w bias %b : tensor<4x8xf32>, tensor<9x16xf32>, tensor<16xf32>
  return
}

// -----

func.func @linear_c4_inputs_transposed(%x: tensor<4x8xf32>, %w: tensor<16x9xf32>, %b: tensor<16xf32>) {
  // expected-error @below {{expects 'weight' to have as many inputs as 'x' has columns, 8, but it has 9}}
  %y = hir.linear %x, %w bias %b transpose_weight : tensor<4x8xf32>, tensor<16x9xf32>, tensor<16xf32>
  return
}

// -----

func.func @linear_c4_inputs_packed(%x: tensor<4x32xf32>, %w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>, %b: tensor<16xf32>) {
  // expected-error @below {{expects 'weight' to have as many inputs as 'x' has columns, 32, but it has 64}}
  %y = hir.linear %x, %w bias %b : tensor<4x32xf32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>, tensor<16xf32>
  return
}

// -----

func.func @linear_c5_weight_element_type(%x: tensor<4x8xf32>, %w: tensor<8x16xbf16>, %b: tensor<16xf32>) {
  // expected-error @below {{expects the dense weight 'weight' to have the element type of 'x', 'f32', but got 'bf16'}}
  %y = hir.linear %x, %w bias %b : tensor<4x8xf32>, tensor<8x16xbf16>, tensor<16xf32>
  return
}

// -----

func.func @linear_c6_transposed_packed(%x: tensor<4x64xf32>, %w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>, %b: tensor<16xf32>) {
  // expected-error @below {{expects 'transpose_weight' only with a dense weight, but every weight is packed}}
  %y = hir.linear %x, %w bias %b transpose_weight
      : tensor<4x64xf32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>, tensor<16xf32>
  return
}

// -----

func.func @linear_c7_bias_rank(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<1x16xf32>) {
  // expected-error @below {{expects 'bias' to have one dimension, but got 2}}
  %y = hir.linear %x, %w bias %b : tensor<4x8xf32>, tensor<8x16xf32>, tensor<1x16xf32>
  return
}

// -----

func.func @linear_c7_bias_length(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<17xf32>) {
  // expected-error @below {{expects 'bias' to be as long as 'weight' has outputs, 16, but its length is 17}}
  %y = hir.linear %x, %w bias %b : tensor<4x8xf32>, tensor<8x16xf32>, tensor<17xf32>
  return
}

// -----

func.func @linear_c8_bias_element_type(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf16>) {
  // expected-error @below {{expects 'bias' to have the element type of 'x', 'f32', but got 'f16'}}
  %y = hir.linear %x, %w bias %b : tensor<4x8xf32>, tensor<8x16xf32>, tensor<16xf16>
  return
}

// -----

func.func @linear_fused_c1_vector(%x: tensor<8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf32>) {
  // expected-error @below {{expects 'x' to have at least two dimensions, but got 1}}
  %y = hir.linear_fused %x, %w, %b : tensor<8xf32>, tensor<8x16xf32>, tensor<16xf32>
  return
}

// -----

func.func @linear_fused_c2_weight_rank(%x: tensor<4x8xf32>, %w: tensor<1x8x16xf32>, %b: tensor<16xf32>) {
  // expected-error @below {{expects the dense weight 'weight' to have two dimensions, but got 3}}
  %y = hir.linear_fused %x, %w, %b : tensor<4x8xf32>, tensor<1x8x16xf32>, tensor<16xf32>
  return
}

// -----

func.func @linear_fused_c3_panels(%x: tensor<4x64xf32>, %w: tensor<1x640xi8, #mir.packed<q4_1, k = 64, n = 16, layout = panels>>, %b: tensor<16xf32>) {
  // expected-error @below {{expects the packed weight 'weight' to have layout = rows, but got panels}}
  %y = hir.linear_fused %x, %w, %b
      : tensor<4x64xf32>, tensor<1x640xi8, #mir.packed<q4_1, k = 64, n = 16, layout = panels>>, tensor<16xf32>
  return
}

// -----

func.func @linear_fused_c4_inputs(%x: tensor<4x8xf32>, %w: tensor<9x16xf32>, %b: tensor<16xf32>) {
  // expected-error @below {{expects 'weight' to have as many inputs as 'x' has columns, 8, but it has 9}}
  %y = hir.linear_fused %x, %w, %b : tensor<4x8xf32>, tensor<9x16xf32>, tensor<16xf32>
  return
}

// -----

func.func @linear_fused_c4_inputs_transposed(%x: tensor<4x8xf32>, %w: tensor<16x9xf32>, %b: tensor<16xf32>) {
  // expected-error @below {{expects 'weight' to have as many inputs as 'x' has columns, 8, but it has 9}}
  %y = hir.linear_fused %x, %w, %b transpose_weight : tensor<4x8xf32>, tensor<16x9xf32>, tensor<16xf32>
  return
}

// -----

func.func @linear_fused_c4_inputs_packed(%x: tensor<4x32xf32>, %w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>, %b: tensor<16xf32>) {
  // expected-error @below {{expects 'weight' to have as many inputs as 'x' has columns, 32, but it has 64}}
  %y = hir.linear_fused %x, %w, %b : tensor<4x32xf32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>, tensor<16xf32>
  return
}

// -----

func.func @linear_fused_c5_weight_element_type(%x: tensor<4x8xf32>, %w: tensor<8x16xbf16>, %b: tensor<16xf32>) {
  // expected-error @below {{expects the dense weight 'weight' to have the element type of 'x', 'f32', but got 'bf16'}}
  %y = hir.linear_fused %x, %w, %b : tensor<4x8xf32>, tensor<8x16xbf16>, tensor<16xf32>
  return
}

// -----

func.func @linear_fused_c6_transposed_packed(%x: tensor<4x64xf32>, %w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>, %b: tensor<16xf32>) {
  // expected-error @below {{expects 'transpose_weight' only with a dense weight, but every weight is packed}}
  %y = hir.linear_fused %x, %w, %b transpose_weight
      : tensor<4x64xf32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>, tensor<16xf32>
  return
}

// -----

func.func @linear_fused_c7_bias_rank(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<1x16xf32>) {
  // expected-error @below {{expects 'bias' to have one dimension, but got 2}}
  %y = hir.linear_fused %x, %w, %b : tensor<4x8xf32>, tensor<8x16xf32>, tensor<1x16xf32>
  return
}

// -----

func.func @linear_fused_c7_bias_length(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<17xf32>) {
  // expected-error @below {{expects 'bias' to be as long as 'weight' has outputs, 16, but its length is 17}}
  %y = hir.linear_fused %x, %w, %b : tensor<4x8xf32>, tensor<8x16xf32>, tensor<17xf32>
  return
}

// -----

func.func @linear_fused_c8_bias_element_type(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf16>) {
  // expected-error @below {{expects 'bias' to have the element type of 'x', 'f32', but got 'f16'}}
  %y = hir.linear_fused %x, %w, %b : tensor<4x8xf32>, tensor<8x16xf32>, tensor<16xf16>
  return
}

// -----

func.func @shared_linear_pair_c1_vector(%x: tensor<8xf32>, %a: tensor<8x16xf32>, %b: tensor<8x32xf32>) {
  // expected-error @below {{expects 'x' to have at least two dimensions, but got 1}}
  %first, %second = hir.shared_linear_pair %x, %a, %b : tensor<8xf32>, tensor<8x16xf32>, tensor<8x32xf32>
  return
}

// -----

func.func @shared_linear_pair_c2_weight_rank(%x: tensor<4x8xf32>, %a: tensor<8x16xf32>, %b: tensor<8xf32>) {
  // expected-error @below {{expects the dense weight 'w_second' to have two dimensions, but got 1}}
  %first, %second = hir.shared_linear_pair %x, %a, %b : tensor<4x8xf32>, tensor<8x16xf32>, tensor<8xf32>
  return
}

// -----

func.func @shared_linear_pair_c3_panels(%x: tensor<4x64xf32>, %a: tensor<1x640xi8, #mir.packed<q4_1, k = 64, n = 16, layout = panels>>, %b: tensor<8x32xf32>) {
  // expected-error @below {{expects the packed weight 'w_first' to have layout = rows, but got panels}}
  %first, %second = hir.shared_linear_pair %x, %a, %b
      : tensor<4x64xf32>, tensor<1x640xi8, #mir.packed<q4_1, k = 64, n = 16, layout = panels>>, tensor<8x32xf32>
  return
}

// -----

func.func @shared_linear_pair_c4_inputs(%x: tensor<4x8xf32>, %a: tensor<8x16xf32>, %b: tensor<9x32xf32>) {
  // expected-error @below {{expects 'w_second' to have as many inputs as 'x' has columns, 8, but it has 9}}
  %first, %second = hir.shared_linear_pair %x, %a, %b : tensor<4x8xf32>, tensor<8x16xf32>, tensor<9x32xf32>
  return
}

// -----

func.func @shared_linear_pair_c5_weight_element_type(%x: tensor<4x8xf32>, %a: tensor<8x16xf16>, %b: tensor<8x32xf32>) {
  // expected-error @below {{expects the dense weight 'w_first' to have the element type of 'x', 'f32', but got 'f16'}}
  %first, %second = hir.shared_linear_pair %x, %a, %b : tensor<4x8xf32>, tensor<8x16xf16>, tensor<8x32xf32>
  return
}

// -----

func.func @shared_linear_pair_c6_transposed_packed(%x: tensor<4x64xf32>, %a: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>, %b: tensor<32x40xi8, #mir.packed<q4_1, k = 64>>) {
  // expected-error @below {{expects 'transpose_weight' only with a dense weight, but every weight is packed}}
  %first, %second = hir.shared_linear_pair %x, %a, %b transpose_weight
      : tensor<4x64xf32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>, tensor<32x40xi8, #mir.packed<q4_1, k = 64>>
  return
}

// -----

func.func @swiglu_c1_vector(%x: tensor<8xf32>, %g: tensor<8x32xf32>, %u: tensor<8x32xf32>, %d: tensor<32x8xf32>) {
  // expected-error @below {{expects 'x' to have at least two dimensions, but got 1}}
  %y = hir.swiglu %x gate %g up %u down %d : tensor<8xf32>, tensor<8x32xf32>, tensor<8x32xf32>, tensor<32x8xf32>
  return
}

// -----

func.func @swiglu_c2_weight_rank(%x: tensor<4x8xf32>, %g: tensor<8x32xf32>, %u: tensor<8x32xf32>, %d: tensor<32xf32>) {
  // expected-error @below {{expects the dense weight 'down_w' to have two dimensions, but got 1}}
  %y = hir.swiglu %x gate %g up %u down %d : tensor<4x8xf32>, tensor<8x32xf32>, tensor<8x32xf32>, tensor<32xf32>
  return
}

// -----

func.func @swiglu_c3_panels(%x: tensor<4x64xf32>, %g: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>, %u: tensor<1x640xi8, #mir.packed<q4_1, k = 64, n = 16, layout = panels>>, %d: tensor<32x8xf32>) {
  // expected-error @below {{expects the packed weight 'up_w' to have layout = rows, but got panels}}
  %y = hir.swiglu %x gate %g up %u down %d
      : tensor<4x64xf32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>, tensor<1x640xi8, #mir.packed<q4_1, k = 64, n =
        16, layout = panels>>, tensor<32x8xf32>
  return
}

// -----

func.func @swiglu_c4_gate_inputs(%x: tensor<4x8xf32>, %g: tensor<9x32xf32>, %u: tensor<8x32xf32>, %d: tensor<32x8xf32>) {
  // expected-error @below {{expects 'gate_w' to have as many inputs as 'x' has columns, 8, but it has 9}}
  %y = hir.swiglu %x gate %g up %u down %d : tensor<4x8xf32>, tensor<9x32xf32>, tensor<8x32xf32>, tensor<32x8xf32>
  return
}

// -----

func.func @swiglu_c4_up_inputs(%x: tensor<4x8xf32>, %g: tensor<8x32xf32>, %u: tensor<9x32xf32>, %d: tensor<32x8xf32>) {
  // expected-error @below {{expects 'up_w' to have as many inputs as 'x' has columns, 8, but it has 9}}
  %y = hir.swiglu %x gate %g up %u down %d : tensor<4x8xf32>, tensor<8x32xf32>, tensor<9x32xf32>, tensor<32x8xf32>
  return
}

// -----

func.func @swiglu_c5_weight_element_type(%x: tensor<4x8xf32>, %g: tensor<8x32xf32>, %u: tensor<8x32xf64>, %d: tensor<32x8xf32>) {
  // expected-error @below {{expects the dense weight 'up_w' to have the element type of 'x', 'f32', but got 'f64'}}
  %y = hir.swiglu %x gate %g up %u down %d : tensor<4x8xf32>, tensor<8x32xf32>, tensor<8x32xf64>, tensor<32x8xf32>
  return
}

// -----

func.func @swiglu_c6_transposed_packed(%x: tensor<4x32xf32>, %g: tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, %u: tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, %d: tensor<32x20xi8, #mir.packed<q4_1, k = 32>>) {
  // expected-error @below {{expects 'transpose_weight' only with a dense weight, but every weight is packed}}
  %y = hir.swiglu %x gate %g up %u down %d transpose_weight
      : tensor<4x32xf32>, tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, tensor<32x20xi8, #mir.packed<q4_1, k = 32>>,
        tensor<32x20xi8, #mir.packed<q4_1, k = 32>>
  return
}

// -----

func.func @swiglu_c7_up_outputs(%x: tensor<4x8xf32>, %g: tensor<8x32xf32>, %u: tensor<8x31xf32>, %d: tensor<32x8xf32>) {
  // expected-error @below {{expects 'up_w' to have as many outputs as 'gate_w' has outputs, 32, but it has 31}}
  %y = hir.swiglu %x gate %g up %u down %d : tensor<4x8xf32>, tensor<8x32xf32>, tensor<8x31xf32>, tensor<32x8xf32>
  return
}

// -----

func.func @swiglu_c7_down_inputs(%x: tensor<4x8xf32>, %g: tensor<8x32xf32>, %u: tensor<8x32xf32>, %d: tensor<33x8xf32>) {
  // expected-error @below {{expects 'down_w' to have as many inputs as 'gate_w' has outputs, 32, but it has 33}}
  %y = hir.swiglu %x gate %g up %u down %d : tensor<4x8xf32>, tensor<8x32xf32>, tensor<8x32xf32>, tensor<33x8xf32>
  return
}

// -----

func.func @dequant_matmul_c1_vector(%x: tensor<64xf32>, %w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>) {
  // expected-error @below {{expects 'x' to have at least two dimensions, but got 1}}
  %y = hir.dequant_matmul %x, %w : tensor<64xf32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>
  return
}

// -----

func.func @dequant_matmul_c2_panels(%x: tensor<4x64xf32>, %w: tensor<1x640xi8, #mir.packed<q4_1, k = 64, n = 16, layout = panels>>) {
  // expected-error @below {{expects the packed weight 'weight' to have layout = rows, but got panels}}
  %y = hir.dequant_matmul %x, %w
      : tensor<4x64xf32>, tensor<1x640xi8, #mir.packed<q4_1, k = 64, n = 16, layout = panels>>
  return
}

// -----

func.func @dequant_matmul_c3_inputs(%x: tensor<4x32xf32>, %w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>) {
  // expected-error @below {{expects 'weight' to have as many inputs as 'x' has columns, 32, but it has 64}}
  %y = hir.dequant_matmul %x, %w : tensor<4x32xf32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>
  return
}

// -----

/// The verifier holds the same rules as inference, which this form doesn't run.
func.func @linear_c4_inputs_generic(%x: tensor<4x8xf32>, %w: tensor<9x16xf32>) {
  // expected-error @below {{expects 'weight' to have as many inputs as 'x' has columns, 8, but it has 9}}
  %y = "hir.linear"(%x, %w) : (tensor<4x8xf32>, tensor<9x16xf32>) -> tensor<4x16xf32>
  return
}

// -----

func.func @linear_result_type(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>) {
  // expected-error @below {{op inferred type(s) 'tensor<4x16xf32>' are incompatible with return type(s) of operation 'tensor<4x17xf32>'}}
  // expected-error @below {{failed to infer returned types}}
  %y = "hir.linear"(%x, %w) : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x17xf32>
  return
}

// -----

func.func @linear_bytes_without_encoding(%x: tensor<4x8xf32>, %w: tensor<16x40xi8>) {
  // expected-error @below {{expects the dense weight 'weight' to have the element type of 'x', 'f32', but got 'i8'}}
  %y = hir.linear %x, %w : tensor<4x8xf32>, tensor<16x40xi8>
  return
}
