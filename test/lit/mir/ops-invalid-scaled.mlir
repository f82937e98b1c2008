// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @dequant_matmul_scaled_c1_rank(%x: tensor<f32>, %w: tensor<40x17xi8>, %s: tensor<2x17xf32>) {
  // expected-error @below {{expects 'x' to have a static last dimension, but it is []}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s scheme int8 block 32 : tensor<f32>, tensor<40x17xi8>, tensor<2x17xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c1_dynamic(%x: tensor<4x?xf32>, %w: tensor<40x17xi8>, %s: tensor<2x17xf32>) {
  // expected-error @below {{expects 'x' to have a static last dimension, but it is [4, ?]}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s scheme int8 block 32 : tensor<4x?xf32>, tensor<40x17xi8>, tensor<2x17xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c2_missing(%x: tensor<4x40xf32>, %w: tensor<40x17xi8>, %s: tensor<2x17xf32>) {
  // expected-error @below {{expects a positive 'block' with int8}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s scheme int8 : tensor<4x40xf32>, tensor<40x17xi8>, tensor<2x17xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c2_zero(%x: tensor<4x40xf32>, %w: tensor<40x17xi8>, %s: tensor<2x17xf32>) {
  // expected-error @below {{expects a positive 'block' with int4, but got 0}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s scheme int4 block 0 : tensor<4x40xf32>, tensor<40x17xi8>, tensor<2x17xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c2_fp8(%x: tensor<4x40xf32>, %w: tensor<40x17xi8>, %s: tensor<17xf32>) {
  // expected-error @below {{has no 'block' with fp8e5m2, but got 32}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s scheme fp8e5m2 block 32 : tensor<4x40xf32>, tensor<40x17xi8>, tensor<17xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c3_zero_point_missing(%x: tensor<4x40xf32>, %w: tensor<40x17xi8>, %s: tensor<2x17xf32>) {
  // expected-error @below {{expects 'zero_point' with int8a}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s scheme int8a block 32 : tensor<4x40xf32>, tensor<40x17xi8>, tensor<2x17xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c3_zero_point(%x: tensor<4x40xf32>, %w: tensor<40x17xi8>, %s: tensor<2x17xf32>, %z: tensor<2x17xf32>) {
  // expected-error @below {{has no 'zero_point' with int8}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s zero_point %z scheme int8 block 32 : tensor<4x40xf32>, tensor<40x17xi8>, tensor<2x17xf32>, tensor<2x17xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c3_global_scale_missing(%x: tensor<4x40xf32>, %w: tensor<340xi8>, %s: tensor<3x17xi8>) {
  // expected-error @below {{expects 'global_scale' with nvfp4}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s scheme nvfp4 : tensor<4x40xf32>, tensor<340xi8>, tensor<3x17xi8>
  return
}

// -----

func.func @dequant_matmul_scaled_c3_global_scale(%x: tensor<4x40xf32>, %w: tensor<40x17xi8>, %s: tensor<2x17xf32>, %g: tensor<1xf32>) {
  // expected-error @below {{has no 'global_scale' with int8}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s global_scale %g scheme int8 block 32 : tensor<4x40xf32>, tensor<40x17xi8>, tensor<2x17xf32>, tensor<1xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c4_rows(%x: tensor<4x40xf32>, %w: tensor<41x17xi8>, %s: tensor<2x17xf32>) {
  // expected-error @below {{expects 'weight' to be [40, 17] x i8 with int8, K = 40 and N = 17, but got 'tensor<41x17xi8>'}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s scheme int8 block 32 : tensor<4x40xf32>, tensor<41x17xi8>, tensor<2x17xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c4_rank(%x: tensor<4x40xf32>, %w: tensor<680xi8>, %s: tensor<2x17xf32>) {
  // expected-error @below {{expects 'weight' to have two static dimensions with int8, but it is [680]}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s scheme int8 block 32 : tensor<4x40xf32>, tensor<680xi8>, tensor<2x17xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c4_nibbles(%x: tensor<4x40xf32>, %w: tensor<40x17xi8>, %s: tensor<2x17xf32>) {
  // expected-error @below {{expects 'weight' to be [340] x i8 with int4, K = 40 and N = 17, but got 'tensor<40x17xi8>'}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s scheme int4 block 32 : tensor<4x40xf32>, tensor<40x17xi8>, tensor<2x17xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c5_blocks(%x: tensor<4x40xf32>, %w: tensor<40x17xi8>, %s: tensor<2x17xf32>) {
  // expected-error @below {{expects 'scale' to be [3, 17] x f32 with int8, K = 40 and N = 17, but got 'tensor<2x17xf32>'}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s scheme int8 block 16 : tensor<4x40xf32>, tensor<40x17xi8>, tensor<2x17xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c5_columns(%x: tensor<4x40xf32>, %w: tensor<40x17xi8>, %s: tensor<2x17xf32>) {
  // expected-error @below {{expects 'scale' to be [17] x f32 with fp8e4m3, K = 40 and N = 17, but got 'tensor<2x17xf32>'}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s scheme fp8e4m3 : tensor<4x40xf32>, tensor<40x17xi8>, tensor<2x17xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c5_nvfp4(%x: tensor<4x40xf32>, %w: tensor<340xi8>, %s: tensor<3x17xf32>, %g: tensor<1xf32>) {
  // expected-error @below {{expects 'scale' to be [3, 17] x i8 with nvfp4, K = 40 and N = 17, but got 'tensor<3x17xf32>'}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s global_scale %g scheme nvfp4 : tensor<4x40xf32>, tensor<340xi8>, tensor<3x17xf32>, tensor<1xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c5_dynamic(%x: tensor<4x40xf32>, %w: tensor<340xi8>, %s: tensor<2x?xf32>) {
  // expected-error @below {{expects 'scale' to have two static dimensions with int4, but it is [2, ?]}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s scheme int4 block 32 : tensor<4x40xf32>, tensor<340xi8>, tensor<2x?xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c6_zero_point(%x: tensor<4x40xf32>, %w: tensor<40x17xi8>, %s: tensor<2x17xf32>, %z: tensor<17xf32>) {
  // expected-error @below {{expects 'zero_point' to have the type of 'scale', 'tensor<2x17xf32>', but got 'tensor<17xf32>'}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s zero_point %z scheme int8a block 32 : tensor<4x40xf32>, tensor<40x17xi8>, tensor<2x17xf32>, tensor<17xf32>
  return
}

// -----

func.func @dequant_matmul_scaled_c7_global_scale(%x: tensor<4x40xf32>, %w: tensor<340xi8>, %s: tensor<3x17xi8>, %g: tensor<17xf32>) {
  // expected-error @below {{expects 'global_scale' to be [1] x f32, but got 'tensor<17xf32>'}}
  %r = mir.dequant_matmul_scaled %x, %w scale %s global_scale %g scheme nvfp4 : tensor<4x40xf32>, tensor<340xi8>, tensor<3x17xi8>, tensor<17xf32>
  return
}
