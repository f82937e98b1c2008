// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @dequant_matmul_c1_rank(%x: tensor<f32>, %w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>) {
  // expected-error @below {{expects 'x' to have at least one dimension, but its rank is 0}}
  %r = mir.dequant_matmul %x, %w : tensor<f32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>
  return
}

// -----

func.func @dequant_matmul_c2_k(%x: tensor<4x32xf32>, %w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>) {
  // expected-error @below {{expects the last dimension of 'x' to be the k of 'weight', 64, but got 32}}
  %r = mir.dequant_matmul %x, %w : tensor<4x32xf32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>
  return
}

// -----

func.func @dequant_matmul_dense(%x: tensor<4x64xf32>, %w: tensor<16x40xi8>) {
  // expected-error @below {{expects 'weight' to be packed, but got 'tensor<16x40xi8>'}}
  %r = mir.dequant_matmul %x, %w : tensor<4x64xf32>, tensor<16x40xi8>
  return
}

// -----

func.func @block_quantize_c1_rank(%x: tensor<f32>) {
  // expected-error @below {{expects 'x' to have a static last dimension, but it is []}}
  %q, %scale, %sum = mir.block_quantize %x : tensor<f32>
  return
}

// -----

func.func @block_quantize_c1_dynamic(%x: tensor<4x?xf32>) {
  // expected-error @below {{expects 'x' to have a static last dimension, but it is [4, ?]}}
  %q, %scale, %sum = mir.block_quantize %x : tensor<4x?xf32>
  return
}

// -----

func.func @block_quantize_c2_block(%x: tensor<4x64xf32>) {
  // expected-error @below {{expects 'block' to be a positive multiple of 32, but got 16}}
  %q, %scale, %sum = mir.block_quantize %x block 16 : tensor<4x64xf32>
  return
}

// -----

func.func @block_quantize_c3_divides(%x: tensor<4x48xf32>) {
  // expected-error @below {{expects the last dimension of 'x' to be a multiple of 'block', 32, but got 48}}
  %q, %scale, %sum = mir.block_quantize %x : tensor<4x48xf32>
  return
}

// -----

func.func @block_quantize_c4_bits(%x: tensor<4x64xf32>) {
  // expected-error @below {{expects 'bits' to be 8, 15 or 22, but got 16}}
  %q, %scale, %sum = mir.block_quantize %x bits 16 : tensor<4x64xf32>
  return
}

// -----

func.func @block_quantize_c5_sums(%x: tensor<4x1056xf32>) {
  // expected-error @below {{expects 'block' to be at most 1032 with 22 bits, as sums are of 32 bits, but got 1056}}
  %q, %scale, %sum = mir.block_quantize %x block 1056 bits 22 : tensor<4x1056xf32>
  return
}

// -----

func.func @block_dot_element(%q: tensor<4x64xi64>, %scale: tensor<4x2xf32>, %sum: tensor<4x2xi32>, %w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>) {
  // expected-error @below {{operand #0 must be}}
  %r = "mir.block_dot"(%q, %scale, %sum, %w) : (tensor<4x64xi64>, tensor<4x2xf32>, tensor<4x2xi32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>) -> tensor<4x16xf32>
  return
}

// -----

func.func @block_dot_c1_k(%q: tensor<4x32xi8>, %scale: tensor<4x1xf32>, %sum: tensor<4x1xi32>, %w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>) {
  // expected-error @below {{expects the last dimension of 'q' to be the k of 'weight', 64, but got 32}}
  %r = mir.block_dot %q, %scale, %sum, %w : tensor<4x32xi8>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>
  return
}

// -----

func.func @block_dot_c2_scheme(%q: tensor<4x64xi8>, %scale: tensor<4x2xf32>, %sum: tensor<4x2xi32>, %w: tensor<16x256xi8, #mir.packed<f32, k = 64>>) {
  // expected-error @below {{expects 'weight' to hold integers, but its scheme is f32}}
  %r = mir.block_dot %q, %scale, %sum, %w : tensor<4x64xi8>, tensor<16x256xi8, #mir.packed<f32, k = 64>>
  return
}

// -----

func.func @block_dot_scale(%q: tensor<4x64xi8>, %scale: tensor<4x1xf32>, %sum: tensor<4x2xi32>, %w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>) {
  // expected-error @below {{'scale' is of f32 and has one entry for each 32 elements of 'q'}}
  %r = "mir.block_dot"(%q, %scale, %sum, %w) : (tensor<4x64xi8>, tensor<4x1xf32>, tensor<4x2xi32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>) -> tensor<4x16xf32>
  return
}

// -----

func.func @block_dot_sum(%q: tensor<4x64xi8>, %scale: tensor<4x2xf32>, %sum: tensor<4x1xi32>, %w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>) {
  // expected-error @below {{'sum' is of i32 and has one entry for each 32 elements of 'q'}}
  %r = "mir.block_dot"(%q, %scale, %sum, %w) : (tensor<4x64xi8>, tensor<4x2xf32>, tensor<4x1xi32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>) -> tensor<4x16xf32>
  return
}

// -----

func.func @repack_c1_panels(%w: tensor<1x640xi8, #mir.packed<q4_1, k = 64, n = 16, layout = panels>>) {
  // expected-error @below {{expects 'weight' to be packed in rows, or to be a dense [n, k] of f32, f16 or bf16, but got}}
  %r = mir.repack %w : tensor<1x640xi8, #mir.packed<q4_1, k = 64, n = 16, layout = panels>>
  return
}

// -----

func.func @repack_c1_rank(%w: tensor<2x16x64xf32>) {
  // expected-error @below {{expects 'weight' to be packed in rows, or to be a dense [n, k] of f32, f16 or bf16, but got 'tensor<2x16x64xf32>'}}
  %r = mir.repack %w : tensor<2x16x64xf32>
  return
}

// -----

func.func @repack_c1_f64(%w: tensor<16x64xf64>) {
  // expected-error @below {{expects 'weight' to be packed in rows, or to be a dense [n, k] of f32, f16 or bf16, but got 'tensor<16x64xf64>'}}
  %r = mir.repack %w : tensor<16x64xf64>
  return
}

// -----

func.func @repack_c2_dynamic(%w: tensor<?x64xf32>) {
  // expected-error @below {{expects 'weight' to have static dimensions from 1 to 2^31 - 1, but got 'tensor<?x64xf32>'}}
  %r = mir.repack %w : tensor<?x64xf32>
  return
}

// -----

func.func @repack_c2_empty(%w: tensor<0x64xf32>) {
  // expected-error @below {{expects 'weight' to have static dimensions from 1 to 2^31 - 1, but got 'tensor<0x64xf32>'}}
  %r = mir.repack %w : tensor<0x64xf32>
  return
}

// -----

func.func @repack_c3_scheme(%w: tensor<16x292xi8, #mir.packed<q8_k, k = 256>>) {
  // expected-error @below {{expects a scheme that has panels, but got q8_k}}
  %r = mir.repack %w : tensor<16x292xi8, #mir.packed<q8_k, k = 256>>
  return
}

// -----

func.func @repack_c4_rows(%w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>) {
  // expected-error @below {{expects 'layout' to be panels or planes, but got rows}}
  %r = mir.repack %w layout rows : tensor<16x40xi8, #mir.packed<q4_1, k = 64>>
  return
}
