// RUN: rlx-opt %s --mir-fold-constants | FileCheck %s

/// Each step rounds as the operation does: 1 + 2^-8 is no number of bf16, and becomes 1 before it is halved.
// CHECK-LABEL: func @rounds_each_time
//  CHECK-NEXT:   %[[C:.+]] = mir.constant dense<5.000000e-01> : tensor<2xbf16>
//  CHECK-NEXT:   return %[[C]]
func.func @rounds_each_time() -> tensor<2xbf16> {
  %one = mir.constant dense<1.0> : tensor<2xbf16>
  %small = mir.constant dense<0.00390625> : tensor<bf16>
  %half = mir.constant dense<0.5> : tensor<2xbf16>
  %s = mir.add %one, %small : tensor<2xbf16>, tensor<bf16>
  %r = mir.mul %s, %half : tensor<2xbf16>
  return %r : tensor<2xbf16>
}

/// 127 + 1 wraps around, a quotient by 0 is 0, and a power of integers is one.
// CHECK-LABEL: func @integers
//   CHECK-DAG:   %[[S:.+]] = mir.constant dense<[-128, 1]> : tensor<2xi8>
//   CHECK-DAG:   %[[Q:.+]] = mir.constant dense<[0, -2]> : tensor<2xi32>
//   CHECK-DAG:   %[[P:.+]] = mir.constant dense<[1, -27]> : tensor<2xi32>
//   CHECK-DAG:   %[[M:.+]] = mir.constant dense<14> : tensor<1x1xi32>
//   CHECK-DAG:   %[[R:.+]] = mir.constant dense<6> : tensor<i32>
//       CHECK:   return %[[S]], %[[Q]], %[[P]], %[[M]], %[[R]]
func.func @integers() -> (tensor<2xi8>, tensor<2xi32>, tensor<2xi32>, tensor<1x1xi32>, tensor<i32>) {
  %a = mir.constant dense<[127, 0]> : tensor<2xi8>
  %one = mir.constant dense<1> : tensor<2xi8>
  %s = mir.add %a, %one : tensor<2xi8>
  %b = mir.constant dense<[7, -3]> : tensor<2xi32>
  %c = mir.constant dense<[0, 2]> : tensor<2xi32>
  %three = mir.constant dense<[0, 3]> : tensor<2xi32>
  %q = mir.floor_div %b, %c : tensor<2xi32>
  %p = mir.pow %b, %three : tensor<2xi32>
  %x = mir.constant dense<[[1, 2, 3]]> : tensor<1x3xi8>
  %m = mir.matmul %x, %x transpose_rhs : tensor<1x3xi8>, tensor<1x3xi8>
  %y = mir.constant dense<[1, 2, 3]> : tensor<3xi32>
  %r = mir.reduce sum %y axes [0] : tensor<3xi32>
  return %s, %q, %p, %m, %r : tensor<2xi8>, tensor<2xi32>, tensor<2xi32>, tensor<1x1xi32>, tensor<i32>
}

/// What moves elements keeps their bits, those of NaN and of -0 too.
// CHECK-LABEL: func @moves
//   CHECK-DAG:   %[[T:.+]] = mir.constant dense<{{\[\[}}0xFFC00001, -0.000000e+00], [1.000000e+00, 2.000000e+00]]> : tensor<2x2xf32>
//   CHECK-DAG:   %[[N:.+]] = mir.constant dense<{{\[\[}}1.000000e+00], [2.000000e+00]]> : tensor<2x1xf32>
//   CHECK-DAG:   %[[S:.+]] = mir.constant dense<{{\[\[}}1.000000e+00, 0xFFC00001], [2.000000e+00, -0.000000e+00]]> : tensor<2x2xf32>
//   CHECK-DAG:   %[[G:.+]] = mir.constant dense<{{\[\[}}-0.000000e+00, 2.000000e+00]]> : tensor<1x2xf32>
//   CHECK-DAG:   %[[R:.+]] = mir.constant dense<[0xFFC00001, 1.000000e+00, -0.000000e+00, 2.000000e+00]> : tensor<4xf32>
//       CHECK:   return %[[T]], %[[N]], %[[S]], %[[G]], %[[R]]
func.func @moves() -> (tensor<2x2xf32>, tensor<2x1xf32>, tensor<2x2xf32>, tensor<1x2xf32>, tensor<4xf32>) {
  %x = mir.constant dense<[[0xFFC00001, 1.0], [-0.0, 2.0]]> : tensor<2x2xf32>
  %i = mir.constant dense<7> : tensor<1xi32>
  %t = mir.transpose %x permutation [1, 0] : tensor<2x2xf32>
  %n = mir.narrow %x axis 1 start 1 length 1 : tensor<2x2xf32>
  %s = mir.slice %x axis 1 step -1 : tensor<2x2xf32>
  %g = mir.gather %x, %i axis 0 : tensor<2x2xf32>, tensor<1xi32>
  %r = mir.reshape %x to [4] : tensor<2x2xf32>
  return %t, %n, %s, %g, %r : tensor<2x2xf32>, tensor<2x1xf32>, tensor<2x2xf32>, tensor<1x2xf32>, tensor<4xf32>
}

/// Conversions saturate, numbers of 8 bits in between too; the square root is rounded correctly.
// CHECK-LABEL: func @converts
//   CHECK-DAG:   %[[I:.+]] = mir.constant dense<[127, -128, 0]> : tensor<3xi8>
//   CHECK-DAG:   %[[F:.+]] = mir.constant dense<[4.480000e+02, -4.480000e+02, 0x7FC00000]> : tensor<3xf32>
//   CHECK-DAG:   %[[R:.+]] = mir.constant dense<1.41421354> : tensor<f32>
//   CHECK-DAG:   %[[B:.+]] = mir.constant dense<[true, false, true]> : tensor<3xi1>
//       CHECK:   return %[[I]], %[[F]], %[[R]], %[[B]]
func.func @converts() -> (tensor<3xi8>, tensor<3xf32>, tensor<f32>, tensor<3xi1>) {
  %x = mir.constant dense<[1.0e9, -1.0e9, 0x7FC00000]> : tensor<3xf32>
  %zero = mir.constant dense<0.0> : tensor<f32>
  %two = mir.constant dense<2.0> : tensor<f32>
  %i = mir.cast %x : tensor<3xf32> to tensor<3xi8>
  %e = mir.cast %x : tensor<3xf32> to tensor<3xf8E4M3FN>
  %f = mir.cast %e : tensor<3xf8E4M3FN> to tensor<3xf32>
  %r = mir.sqrt %two : tensor<f32>
  %b = mir.compare ge %x, %zero : tensor<3xf32>, tensor<f32>
  %n = mir.compare ne %x, %x : tensor<3xf32>
  %o = mir.or %b, %n : tensor<3xi1>
  return %i, %f, %r, %o : tensor<3xi8>, tensor<3xf32>, tensor<f32>, tensor<3xi1>
}

/// Positions and sizes count as constants for what reads them. Alone, positions take no memory, and stay.
// CHECK-LABEL: func @positions
//   CHECK-DAG:   %[[P:.+]] = mir.iota axis 0 to tensor<3xi32>
//   CHECK-DAG:   %[[Q:.+]] = mir.constant dense<{{\[\[}}true, false], [true, true]]> : tensor<2x2xi1>
//   CHECK-DAG:   %[[D:.+]] = mir.constant dense<1.600000e+01> : tensor<f32>
//       CHECK:   return %[[P]], %[[Q]], %[[D]]
func.func @positions(%x: tensor<?x8xf32>) -> (tensor<3xi32>, tensor<2x2xi1>, tensor<f32>) {
  %p = mir.iota axis 0 to tensor<3xi32>
  %i = mir.iota axis 0 to tensor<2x2xi32>
  %j = mir.iota axis 1 to tensor<2x2xi32>
  %q = mir.compare ge %i, %j : tensor<2x2xi32>
  %n = mir.dim %x axis 1 : tensor<?x8xf32> to tensor<f32>
  %d = mir.add %n, %n : tensor<f32>
  return %p, %q, %d : tensor<3xi32>, tensor<2x2xi1>, tensor<f32>
}

/// One number repeated is kept as one, however large; so is what turns out to be one number.
// CHECK-LABEL: func @repeated
//   CHECK-DAG:   %[[E:.+]] = mir.constant dense<3.000000e+00> : tensor<4096x4096xf32>
//   CHECK-DAG:   %[[Z:.+]] = mir.constant dense<0> : tensor<4xi64>
//       CHECK:   return %[[E]], %[[Z]]
func.func @repeated() -> (tensor<4096x4096xf32>, tensor<4xi64>) {
  %c = mir.constant dense<3.0> : tensor<1xf32>
  %e = mir.expand %c : tensor<1xf32> to tensor<4096x4096xf32>
  %x = mir.constant dense<[1, 2, 3, 4]> : tensor<4xi64>
  %z = mir.sub %x, %x : tensor<4xi64>
  return %e, %z : tensor<4096x4096xf32>, tensor<4xi64>
}

/// Compiled code has other last bits, or adds in another order.
// CHECK-LABEL: func @no_fold_inexact
//       CHECK:   mir.exp
//       CHECK:   mir.pow
//       CHECK:   mir.reduce sum
//       CHECK:   mir.matmul
func.func @no_fold_inexact() -> (tensor<2xf32>, tensor<2xf32>, tensor<f32>, tensor<1x1xf32>) {
  %x = mir.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %m = mir.constant dense<[[1.0, 2.0]]> : tensor<1x2xf32>
  %e = mir.exp %x : tensor<2xf32>
  %p = mir.pow %x, %x : tensor<2xf32>
  %r = mir.reduce sum %x axes [0] : tensor<2xf32>
  %y = mir.matmul %m, %m transpose_rhs : tensor<1x2xf32>, tensor<1x2xf32>
  return %e, %p, %r, %y : tensor<2xf32>, tensor<2xf32>, tensor<f32>, tensor<1x1xf32>
}

/// Which of 0 and -0 is larger isn't defined; of other numbers it is.
// CHECK-LABEL: func @no_fold_zeros_of_two_signs
//   CHECK-DAG:   %[[M:.+]] = mir.max
//   CHECK-DAG:   %[[R:.+]] = mir.relu
//   CHECK-DAG:   %[[N:.+]] = mir.constant dense<[0.000000e+00, -1.000000e+00]> : tensor<2xf32>
//       CHECK:   return %[[M]], %[[R]], %[[N]]
func.func @no_fold_zeros_of_two_signs() -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %x = mir.constant dense<[0.0, 1.0]> : tensor<2xf32>
  %y = mir.constant dense<[-0.0, -1.0]> : tensor<2xf32>
  %z = mir.constant dense<[0.0, -1.0]> : tensor<2xf32>
  %m = mir.max %x, %y : tensor<2xf32>
  %r = mir.relu %y : tensor<2xf32>
  %n = mir.min %x, %z : tensor<2xf32>
  return %m, %r, %n : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}

/// A parameter is no constant, nor is a size that a call decides; numbers of 8 bits have no constants.
// CHECK-LABEL: func @no_fold_unknown
//       CHECK:   mir.add %arg1
//       CHECK:   mir.dim
//       CHECK:   mir.expand
//       CHECK:   mir.cast
func.func @no_fold_unknown(%x: tensor<?x2xf32>, %w: tensor<2xf32> {mir.kind = "param"}) -> (tensor<2xf32>, tensor<i32>, tensor<?xf32>, tensor<2xf8E5M2>) {
  %c = mir.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %one = mir.constant dense<1.0> : tensor<1xf32>
  %a = mir.add %w, %c : tensor<2xf32>
  %n = mir.dim %x axis 0 : tensor<?x2xf32> to tensor<i32>
  %e = mir.expand %one like %x dims [0] : tensor<1xf32>, tensor<?x2xf32> to tensor<?xf32>
  %f = mir.cast %c : tensor<2xf32> to tensor<2xf8E5M2>
  return %a, %n, %e, %f : tensor<2xf32>, tensor<i32>, tensor<?xf32>, tensor<2xf8E5M2>
}
