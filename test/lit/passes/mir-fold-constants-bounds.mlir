// RUN: rlx-opt %s --rlx-remarks --verify-diagnostics --mir-fold-constants='max-bytes=16 max-cost=60' | FileCheck %s

/// A result of 20 bytes stays; what reads it may be small enough, and goes on from what is known of it.
// CHECK-LABEL: func @too_large
//       CHECK:   %[[A:.+]] = mir.add
//       CHECK:   %[[C:.+]] = mir.constant dense<[2, 3]> : tensor<2xi32>
//       CHECK:   return %[[A]], %[[C]]
func.func @too_large() -> (tensor<5xi32>, tensor<2xi32>) {
  %i = mir.iota axis 0 to tensor<5xi32>
  %one = mir.constant dense<1> : tensor<i32>
  // expected-remark @below {{mir-fold-constants: 'fold' declines 'mir.add': the constant would have 20 B, more than 16 B; option max-bytes is the bound}}
  %a = mir.add %i, %one : tensor<5xi32>, tensor<i32>
  // expected-remark @below {{mir-fold-constants: 'fold' rewrites 'mir.narrow'}}
  %n = mir.narrow %a axis 0 start 1 length 2 : tensor<5xi32>
  return %a, %n : tensor<5xi32>, tensor<2xi32>
}

/// Above, 5 elements and 1 were read, 5 summed and written, and 7 read and written by the slice; of one number repeated
/// it is 1. So 36 are left, less than 5 positions and 1 number that are read, and 25 differences that are written.
// CHECK-LABEL: func @too_costly
//       CHECK:   mir.constant dense<4> : tensor<5x5xi32>
//       CHECK:   mir.sub
func.func @too_costly() -> (tensor<5x5xi32>, tensor<5x5xi32>) {
  %i = mir.iota axis 0 to tensor<5x5xi32>
  %two = mir.constant dense<2> : tensor<5x5xi32>
  // expected-remark @below {{mir-fold-constants: 'fold' rewrites 'mir.mul'}}
  %m = mir.mul %two, %two : tensor<5x5xi32>
  // expected-remark @below {{mir-fold-constants: 'fold' declines 'mir.sub': it costs 56, and of 60 are 36 left; option max-cost is the bound}}
  %s = mir.sub %i, %two : tensor<5x5xi32>
  return %m, %s : tensor<5x5xi32>, tensor<5x5xi32>
}

/// Other reasons are told, too, where all operands are constants.
func.func @inexact(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<f32>, tensor<2xf32>) {
  %c = mir.constant dense<[1.0, 2.0]> : tensor<2xf32>
  // expected-remark @below {{mir-fold-constants: 'fold' declines 'mir.exp': the last bits of exp aren't defined}}
  %e = mir.exp %c : tensor<2xf32>
  // expected-remark @below {{mir-fold-constants: 'fold' declines 'mir.reduce': the order in which floats are combined is free}}
  %r = mir.reduce sum %c axes [0] : tensor<2xf32>
  %y = mir.add %e, %x : tensor<2xf32>
  return %e, %r, %y : tensor<2xf32>, tensor<f32>, tensor<2xf32>
}
