// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @sample_c1_rank(%v: tensor<8xf32>, %i: tensor<8xi32>,
    %c: tensor<2x3xf32>, %d: tensor<2x16xf32>, %s: tensor<2x16xi32>, %p: tensor<2xi32>) {
  // expected-error @below {{expects 'values' to be [B, k] with a static k of at least 1, but it is [8]}}
  %t, %n, %o = mir.sample %v, %i by %c, %d in %s at %p : tensor<8xf32>, tensor<8xi32>, tensor<2x3xf32>, tensor<2x16xf32>, tensor<2x16xi32>, tensor<2xi32>
  return
}

// -----

func.func @sample_c1_dynamic(%v: tensor<2x?xf32>, %i: tensor<2x?xi32>,
    %c: tensor<2x3xf32>, %d: tensor<2x16xf32>, %s: tensor<2x16xi32>, %p: tensor<2xi32>) {
  // expected-error @below {{expects 'values' to be [B, k] with a static k of at least 1, but it is [2, ?]}}
  %t, %n, %o = mir.sample %v, %i by %c, %d in %s at %p : tensor<2x?xf32>, tensor<2x?xi32>, tensor<2x3xf32>, tensor<2x16xf32>, tensor<2x16xi32>, tensor<2xi32>
  return
}

// -----

func.func @sample_c1_none(%v: tensor<2x0xf32>, %i: tensor<2x0xi32>,
    %c: tensor<2x3xf32>, %d: tensor<2x16xf32>, %s: tensor<2x16xi32>, %p: tensor<2xi32>) {
  // expected-error @below {{expects 'values' to be [B, k] with a static k of at least 1, but it is [2, 0]}}
  %t, %n, %o = mir.sample %v, %i by %c, %d in %s at %p : tensor<2x0xf32>, tensor<2x0xi32>, tensor<2x3xf32>, tensor<2x16xf32>, tensor<2x16xi32>, tensor<2xi32>
  return
}

// -----

func.func @sample_c2_shape(%v: tensor<2x8xf32>, %i: tensor<2x7xi32>,
    %c: tensor<2x3xf32>, %d: tensor<2x16xf32>, %s: tensor<2x16xi32>, %p: tensor<2xi32>) {
  // expected-error @below {{expects 'indices' to have the shape of 'values', [2, 8], but it is [2, 7]}}
  %t, %n, %o = mir.sample %v, %i by %c, %d in %s at %p : tensor<2x8xf32>, tensor<2x7xi32>, tensor<2x3xf32>, tensor<2x16xf32>, tensor<2x16xi32>, tensor<2xi32>
  return
}

// -----

func.func @sample_c3_columns(%v: tensor<2x8xf32>, %i: tensor<2x8xi32>,
    %c: tensor<2x4xf32>, %d: tensor<2x16xf32>, %s: tensor<2x16xi32>, %p: tensor<2xi32>) {
  // expected-error @below {{expects 'controls' to be [2, 3], but it is [2, 4]}}
  %t, %n, %o = mir.sample %v, %i by %c, %d in %s at %p : tensor<2x8xf32>, tensor<2x8xi32>, tensor<2x4xf32>, tensor<2x16xf32>, tensor<2x16xi32>, tensor<2xi32>
  return
}

// -----

func.func @sample_c3_batch(%v: tensor<2x8xf32>, %i: tensor<2x8xi32>,
    %c: tensor<1x3xf32>, %d: tensor<2x16xf32>, %s: tensor<2x16xi32>, %p: tensor<2xi32>) {
  // expected-error @below {{expects 'controls' to be [2, 3], but it is [1, 3]}}
  %t, %n, %o = mir.sample %v, %i by %c, %d in %s at %p : tensor<2x8xf32>, tensor<2x8xi32>, tensor<1x3xf32>, tensor<2x16xf32>, tensor<2x16xi32>, tensor<2xi32>
  return
}

// -----

func.func @sample_c4_differ(%v: tensor<2x8xf32>, %i: tensor<2x8xi32>,
    %c: tensor<2x3xf32>, %d: tensor<2x15xf32>, %s: tensor<2x16xi32>, %p: tensor<2xi32>) {
  // expected-error @below {{expects 'chosen' and 'draws' to be [2, P] with P of at least 1, but they are [2, 16] and [2, 15]}}
  %t, %n, %o = mir.sample %v, %i by %c, %d in %s at %p : tensor<2x8xf32>, tensor<2x8xi32>, tensor<2x3xf32>, tensor<2x15xf32>, tensor<2x16xi32>, tensor<2xi32>
  return
}

// -----

func.func @sample_c4_empty(%v: tensor<2x8xf32>, %i: tensor<2x8xi32>,
    %c: tensor<2x3xf32>, %d: tensor<2x0xf32>, %s: tensor<2x0xi32>, %p: tensor<2xi32>) {
  // expected-error @below {{expects 'chosen' and 'draws' to be [2, P] with P of at least 1, but they are [2, 0] and [2, 0]}}
  %t, %n, %o = mir.sample %v, %i by %c, %d in %s at %p : tensor<2x8xf32>, tensor<2x8xi32>, tensor<2x3xf32>, tensor<2x0xf32>, tensor<2x0xi32>, tensor<2xi32>
  return
}

// -----

func.func @sample_c4_batch(%v: tensor<2x8xf32>, %i: tensor<2x8xi32>,
    %c: tensor<2x3xf32>, %d: tensor<2x16xf32>, %s: tensor<3x16xi32>, %p: tensor<2xi32>) {
  // expected-error @below {{expects 'chosen' and 'draws' to be [2, P] with P of at least 1, but they are [3, 16] and [2, 16]}}
  %t, %n, %o = mir.sample %v, %i by %c, %d in %s at %p : tensor<2x8xf32>, tensor<2x8xi32>, tensor<2x3xf32>, tensor<2x16xf32>, tensor<3x16xi32>, tensor<2xi32>
  return
}

// -----

func.func @sample_c5_batch(%v: tensor<2x8xf32>, %i: tensor<2x8xi32>,
    %c: tensor<2x3xf32>, %d: tensor<2x16xf32>, %s: tensor<2x16xi32>, %p: tensor<3xi32>) {
  // expected-error @below {{expects 'pos' to have one entry per sequence, 2, but it is [3]}}
  %t, %n, %o = mir.sample %v, %i by %c, %d in %s at %p : tensor<2x8xf32>, tensor<2x8xi32>, tensor<2x3xf32>, tensor<2x16xf32>, tensor<2x16xi32>, tensor<3xi32>
  return
}

// -----

func.func @sample_element(%v: tensor<2x8xf64>, %i: tensor<2x8xi32>,
    %c: tensor<2x3xf32>, %d: tensor<2x16xf32>, %s: tensor<2x16xi32>, %p: tensor<2xi32>) {
  // expected-error @below {{operand #0 must be dense tensor of 32-bit float values}}
  %t, %n, %o = mir.sample %v, %i by %c, %d in %s at %p : tensor<2x8xf64>, tensor<2x8xi32>, tensor<2x3xf32>, tensor<2x16xf32>, tensor<2x16xi32>, tensor<2xi32>
  return
}
