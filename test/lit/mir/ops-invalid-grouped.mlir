// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @grouped_matmul_c1_rule(%x: tensor<3x8xf32>, %w: tensor<8x16xf32>, %e: tensor<3xi32>) {
  // expected-error @below {{expects 'x' to have two dimensions, 'weight' three and 'expert' one, but their ranks are 2, 2 and 1}}
  %y = mir.grouped_matmul %x, %w, %e : tensor<3x8xf32>, tensor<8x16xf32>, tensor<3xi32>
  return
}

// -----

func.func @grouped_matmul_c2_rule(%x: tensor<3x8xf32>, %w: tensor<4x9x16xf32>, %e: tensor<3xi32>) {
  // expected-error @below {{expects 'x' and 'weight' to have the same k, but got 8 and 9}}
  %y = mir.grouped_matmul %x, %w, %e : tensor<3x8xf32>, tensor<4x9x16xf32>, tensor<3xi32>
  return
}

// -----

func.func @grouped_matmul_c3_rule(%x: tensor<3x8xf32>, %w: tensor<4x8x16xf32>, %e: tensor<2xi32>) {
  // expected-error @below {{expects 'expert' to have an entry for each of the 3 rows of 'x', but got 2}}
  %y = mir.grouped_matmul %x, %w, %e : tensor<3x8xf32>, tensor<4x8x16xf32>, tensor<2xi32>
  return
}

// -----

func.func @grouped_matmul_c4_rule(%x: tensor<3x8xf32>, %w: tensor<0x8x16xf32>, %e: tensor<3xi32>) {
  // expected-error @below {{expects an expert for the 3 rows of 'x', but 'weight' is [0, 8, 16]}}
  %y = mir.grouped_matmul %x, %w, %e : tensor<3x8xf32>, tensor<0x8x16xf32>, tensor<3xi32>
  return
}

// -----

!weight = tensor<64x20xi8, #mir.packed<q4_1, k = 32>>
func.func @dequant_grouped_matmul_c1_rule(%x: tensor<32xf32>, %w: !weight, %e: tensor<3xi32>) {
  // expected-error @below {{expects 'x' to have two dimensions and 'expert' one, but their ranks are 1 and 1}}
  %y = mir.dequant_grouped_matmul %x, %w, %e experts 4 : tensor<32xf32>, !weight, tensor<3xi32>
  return
}

// -----

!weight = tensor<64x20xi8, #mir.packed<q4_1, k = 32>>
func.func @dequant_grouped_matmul_c2_rule(%x: tensor<3x64xf32>, %w: !weight, %e: tensor<3xi32>) {
  // expected-error @below {{expects the last dimension of 'x' to be the k of 'weight', 32, but got 64}}
  %y = mir.dequant_grouped_matmul %x, %w, %e experts 4 : tensor<3x64xf32>, !weight, tensor<3xi32>
  return
}

// -----

!weight = tensor<64x20xi8, #mir.packed<q4_1, k = 32>>
func.func @dequant_grouped_matmul_c3_rule(%x: tensor<3x32xf32>, %w: !weight, %e: tensor<4xi32>) {
  // expected-error @below {{expects 'expert' to have an entry for each of the 3 rows of 'x', but got 4}}
  %y = mir.dequant_grouped_matmul %x, %w, %e experts 4 : tensor<3x32xf32>, !weight, tensor<4xi32>
  return
}

// -----

!weight = tensor<64x20xi8, #mir.packed<q4_1, k = 32>>
func.func @dequant_grouped_matmul_c4_zero(%x: tensor<3x32xf32>, %w: !weight, %e: tensor<3xi32>) {
  // expected-error @below {{expects a positive 'experts' that divides the 64 rows of 'weight', which are static, but got 0}}
  %y = mir.dequant_grouped_matmul %x, %w, %e experts 0 : tensor<3x32xf32>, !weight, tensor<3xi32>
  return
}

// -----

!weight = tensor<?x20xi8, #mir.packed<q4_1, k = 32>>
func.func @dequant_grouped_matmul_c4_dynamic(%x: tensor<3x32xf32>, %w: !weight, %e: tensor<3xi32>) {
  // expected-error @below {{expects a positive 'experts' that divides the ? rows of 'weight', which are static, but got 4}}
  %y = mir.dequant_grouped_matmul %x, %w, %e experts 4 : tensor<3x32xf32>, !weight, tensor<3xi32>
  return
}

// -----

!weight = tensor<64x20xi8, #mir.packed<q4_1, k = 32>>
func.func @dequant_moe_weights_c1_rule(%w: !weight) {
  // expected-error @below {{expects a positive 'experts' that divides the 64 rows of 'weight', which are static, but got 3}}
  %y = mir.dequant_moe_weights %w experts 3 : !weight
  return
}

// -----

func.func @dequant_moe_packed(%w: tensor<64x20xi8>) {
  // expected-error @below {{expects 'weight' to be packed, but got 'tensor<64x20xi8>'}}
  %y = mir.dequant_moe_weights %w experts 4 : tensor<64x20xi8>
  return
}

// -----

!weight = tensor<32x40xi8, #mir.packed<q4_1, k = 64>>
func.func @grouped_block_dot_c1_rule(%q: tensor<1x3x64xi8>, %d: tensor<1x3x2xf32>, %s: tensor<1x3x2xi32>, %w: !weight, %e: tensor<3xi32>) {
  // expected-error @below {{expects 'q' to have two dimensions and 'expert' one, but their ranks are 3 and 1}}
  %y = mir.grouped_block_dot %q, %d, %s, %w, %e experts 2 : tensor<1x3x64xi8>, !weight, tensor<3xi32>
  return
}

// -----

!weight = tensor<32x40xi8, #mir.packed<q4_1, k = 64>>
func.func @grouped_block_dot_c2_rule(%q: tensor<3x32xi8>, %d: tensor<3x1xf32>, %s: tensor<3x1xi32>, %w: !weight, %e: tensor<3xi32>) {
  // expected-error @below {{expects the last dimension of 'q' to be the k of 'weight', 64, but got 32}}
  %y = mir.grouped_block_dot %q, %d, %s, %w, %e experts 2 : tensor<3x32xi8>, !weight, tensor<3xi32>
  return
}

// -----

!weight = tensor<32x40xi8, #mir.packed<q4_1, k = 64>>
func.func @grouped_block_dot_c3_rule(%q: tensor<3x64xi8>, %d: tensor<3x2xf32>, %s: tensor<3x2xi32>, %w: !weight, %e: tensor<4xi32>) {
  // expected-error @below {{expects 'expert' to have an entry for each of the 3 rows of 'q', but got 4}}
  %y = mir.grouped_block_dot %q, %d, %s, %w, %e experts 2 : tensor<3x64xi8>, !weight, tensor<4xi32>
  return
}

// -----

!weight = tensor<32x40xi8, #mir.packed<q4_1, k = 64>>
func.func @grouped_block_dot_c4_rule(%q: tensor<3x64xi8>, %d: tensor<3x2xf32>, %s: tensor<3x2xi32>, %w: !weight, %e: tensor<3xi32>) {
  // expected-error @below {{expects a positive 'experts' that divides the 32 rows of 'weight', which are static, but got 5}}
  %y = mir.grouped_block_dot %q, %d, %s, %w, %e experts 5 : tensor<3x64xi8>, !weight, tensor<3xi32>
  return
}

// -----

!weight = tensor<32x256xi8, #mir.packed<f32, k = 64>>
func.func @grouped_block_dot_c5_rule(%q: tensor<3x64xi8>, %d: tensor<3x2xf32>, %s: tensor<3x2xi32>, %w: !weight, %e: tensor<3xi32>) {
  // expected-error @below {{expects 'weight' to hold integers, but its scheme is f32}}
  %y = mir.grouped_block_dot %q, %d, %s, %w, %e experts 2 : tensor<3x64xi8>, !weight, tensor<3xi32>
  return
}

// -----

!weight = tensor<32x40xi8, #mir.packed<q4_1, k = 64>>
func.func @grouped_block_dot_scale(%q: tensor<3x64xi8>, %d: tensor<3x1xf32>, %s: tensor<3x2xi32>, %w: !weight, %e: tensor<3xi32>) {
  // expected-error @below {{'scale' is of f32 and has one entry for each 32 elements of 'q'}}
  %y = "mir.grouped_block_dot"(%q, %d, %s, %w, %e) {experts = 2 : i64} : (tensor<3x64xi8>, tensor<3x1xf32>, tensor<3x2xi32>, !weight, tensor<3xi32>) -> tensor<3x16xf32>
  return
}

// -----

!weight = tensor<32x40xi8, #mir.packed<q4_1, k = 64>>
func.func @grouped_block_dot_sum(%q: tensor<3x64xi8>, %d: tensor<3x2xf32>, %s: tensor<3x1xi32>, %w: !weight, %e: tensor<3xi32>) {
  // expected-error @below {{'sum' is of i32 and has one entry for each 32 elements of 'q'}}
  %y = "mir.grouped_block_dot"(%q, %d, %s, %w, %e) {experts = 2 : i64} : (tensor<3x64xi8>, tensor<3x2xf32>, tensor<3x1xi32>, !weight, tensor<3xi32>) -> tensor<3x16xf32>
  return
}
