// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @matmul
//  CHECK-SAME:   (%[[A:.+]]: tensor<4x8xf32>, %[[B:.+]]: tensor<8x16xf32>)
//       CHECK:   %[[R:.+]] = mir.matmul %[[A]], %[[B]] : tensor<4x8xf32>, tensor<8x16xf32>
//       CHECK:   return %[[R]] : tensor<4x16xf32>
func.func @matmul(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>) -> tensor<4x16xf32> {
  %r = mir.matmul %a, %b : tensor<4x8xf32>, tensor<8x16xf32>
  return %r : tensor<4x16xf32>
}

// CHECK-LABEL: func @matmul_transposed
//  CHECK-SAME:   (%[[A:.+]]: tensor<2x?x8xbf16>, %[[B:.+]]: tensor<16x8xbf16>)
//       CHECK:   %[[R:.+]] = mir.matmul %[[A]], %[[B]] transpose_rhs : tensor<2x?x8xbf16>, tensor<16x8xbf16>
//       CHECK:   return %[[R]] : tensor<2x?x16xbf16>
func.func @matmul_transposed(%a: tensor<2x?x8xbf16>, %b: tensor<16x8xbf16>) -> tensor<2x?x16xbf16> {
  %r = mir.matmul %a, %b transpose_rhs : tensor<2x?x8xbf16>, tensor<16x8xbf16>
  return %r : tensor<2x?x16xbf16>
}

// CHECK-LABEL: func @matmul_batches
//  CHECK-SAME:   (%[[A:.+]]: tensor<1x3x4x?xf32>, %[[B:.+]]: tensor<?x1x8x5xf32>)
//       CHECK:   %[[R:.+]] = mir.matmul %[[A]], %[[B]] : tensor<1x3x4x?xf32>, tensor<?x1x8x5xf32>
//       CHECK:   return %[[R]] : tensor<?x3x4x5xf32>
func.func @matmul_batches(%a: tensor<1x3x4x?xf32>, %b: tensor<?x1x8x5xf32>) -> tensor<?x3x4x5xf32> {
  %r = mir.matmul %a, %b : tensor<1x3x4x?xf32>, tensor<?x1x8x5xf32>
  return %r : tensor<?x3x4x5xf32>
}

/// Sums of i8 are of i32.
// CHECK-LABEL: func @matmul_integers
//       CHECK:   mir.matmul %{{.+}}, %{{.+}} : tensor<?x8xi8>, tensor<8x16xi8>
//       CHECK:   mir.matmul %{{.+}}, %{{.+}} transpose_rhs : tensor<?x16xi32>, tensor<4x16xi32>
//       CHECK:   mir.matmul %{{.+}}, %{{.+}} : tensor<2x3xi64>, tensor<3x2xi64>
func.func @matmul_integers(%a: tensor<?x8xi8>, %b: tensor<8x16xi8>, %c: tensor<4x16xi32>, %d: tensor<2x3xi64>,
    %e: tensor<3x2xi64>) -> (tensor<?x4xi32>, tensor<2x2xi64>) {
  %0 = mir.matmul %a, %b : tensor<?x8xi8>, tensor<8x16xi8>
  %1 = mir.matmul %0, %c transpose_rhs : tensor<?x16xi32>, tensor<4x16xi32>
  %2 = mir.matmul %d, %e : tensor<2x3xi64>, tensor<3x2xi64>
  return %1, %2 : tensor<?x4xi32>, tensor<2x2xi64>
}

// CHECK-LABEL: func @fused_matmul_bias_act
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x8xf32>, %[[W:.+]]: tensor<8x16xf32>, %[[B:.+]]: tensor<16xf32>)
//       CHECK:   %[[R:.+]] = mir.fused_matmul_bias_act %[[X]], %[[W]], %[[B]] : tensor<2x?x8xf32>, tensor<8x16xf32>, tensor<16xf32>
//       CHECK:   return %[[R]] : tensor<2x?x16xf32>
func.func @fused_matmul_bias_act(%x: tensor<2x?x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf32>) -> tensor<2x?x16xf32> {
  %r = mir.fused_matmul_bias_act %x, %w, %b : tensor<2x?x8xf32>, tensor<8x16xf32>, tensor<16xf32>
  return %r : tensor<2x?x16xf32>
}

// CHECK-LABEL: func @fused_matmul_bias_act_transposed
//  CHECK-SAME:   (%[[X:.+]]: tensor<8xf32>, %[[W:.+]]: tensor<?x8xf32>, %[[B:.+]]: tensor<16xf32>)
//       CHECK:   %[[R:.+]] = mir.fused_matmul_bias_act %[[X]], %[[W]], %[[B]] transpose_rhs activation gelu_approx : tensor<8xf32>, tensor<?x8xf32>, tensor<16xf32>
//       CHECK:   return %[[R]] : tensor<16xf32>
func.func @fused_matmul_bias_act_transposed(%x: tensor<8xf32>, %w: tensor<?x8xf32>, %b: tensor<16xf32>) -> tensor<16xf32> {
  %r = mir.fused_matmul_bias_act %x, %w, %b transpose_rhs activation gelu_approx : tensor<8xf32>, tensor<?x8xf32>, tensor<16xf32>
  return %r : tensor<16xf32>
}

// CHECK-LABEL: func @scaled_matmul
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x64xf8E4M3FN>, %[[W:.+]]: tensor<16x64xf8E5M2>, %[[XS:.+]]: tensor<?xf32>, %[[WS:.+]]: tensor<16xf32>)
//       CHECK:   %[[R:.+]] = mir.scaled_matmul %[[X]], %[[W]] lhs_scale %[[XS]] rhs_scale %[[WS]] transpose_rhs : tensor<?x64xf8E4M3FN>, tensor<16x64xf8E5M2>, tensor<?xf32>, tensor<16xf32> to tensor<?x16xbf16>
//       CHECK:   return %[[R]] : tensor<?x16xbf16>
func.func @scaled_matmul(%x: tensor<?x64xf8E4M3FN>, %w: tensor<16x64xf8E5M2>, %xs: tensor<?xf32>, %ws: tensor<16xf32>) -> tensor<?x16xbf16> {
  %r = mir.scaled_matmul %x, %w lhs_scale %xs rhs_scale %ws transpose_rhs : tensor<?x64xf8E4M3FN>, tensor<16x64xf8E5M2>, tensor<?xf32>, tensor<16xf32> to tensor<?x16xbf16>
  return %r : tensor<?x16xbf16>
}

/// One number is a scale, and so is none.
// CHECK-LABEL: func @scaled_matmul_numbers
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x1x3x8xf8E4M3FN>, %[[W:.+]]: tensor<5x8x4xf8E4M3FN>, %[[S:.+]]: tensor<f32>, %[[T:.+]]: tensor<1xf32>)
//       CHECK:   mir.scaled_matmul %[[X]], %[[W]] lhs_scale %[[S]] : tensor<2x1x3x8xf8E4M3FN>, tensor<5x8x4xf8E4M3FN>, tensor<f32> to tensor<2x5x3x4xf32>
//       CHECK:   mir.scaled_matmul %[[X]], %[[W]] rhs_scale %[[T]] : tensor<2x1x3x8xf8E4M3FN>, tensor<5x8x4xf8E4M3FN>, tensor<1xf32> to tensor<2x5x3x4xf16>
func.func @scaled_matmul_numbers(%x: tensor<2x1x3x8xf8E4M3FN>, %w: tensor<5x8x4xf8E4M3FN>, %s: tensor<f32>, %t: tensor<1xf32>) -> (tensor<2x5x3x4xf32>, tensor<2x5x3x4xf16>) {
  %a = mir.scaled_matmul %x, %w lhs_scale %s : tensor<2x1x3x8xf8E4M3FN>, tensor<5x8x4xf8E4M3FN>, tensor<f32> to tensor<2x5x3x4xf32>
  %b = mir.scaled_matmul %x, %w rhs_scale %t : tensor<2x1x3x8xf8E4M3FN>, tensor<5x8x4xf8E4M3FN>, tensor<1xf32> to tensor<2x5x3x4xf16>
  return %a, %b : tensor<2x5x3x4xf32>, tensor<2x5x3x4xf16>
}

/// Floats of 8 bits are stored and moved.
// CHECK-LABEL: func @float8_moves
//       CHECK:   mir.transpose %{{.+}} permutation [1, 0] : tensor<?x4xf8E5M2>
//       CHECK:   mir.narrow %{{.+}} axis 0 start 1 length 2 : tensor<4x?xf8E5M2>
//       CHECK:   mir.concat %{{.+}}, %{{.+}} axis 0 : tensor<2x?xf8E5M2>, tensor<2x?xf8E5M2>
//       CHECK:   mir.reshape %{{.+}} to [4, -1] : tensor<4x?xf8E5M2>
//       CHECK:   mir.cast %{{.+}} : tensor<?x4xf8E5M2> to tensor<?x4xf8E4M3FN>
func.func @float8_moves(%x: tensor<?x4xf8E5M2>) -> (tensor<4x?xf8E5M2>, tensor<?x4xf8E4M3FN>) {
  %t = mir.transpose %x permutation [1, 0] : tensor<?x4xf8E5M2>
  %n = mir.narrow %t axis 0 start 1 length 2 : tensor<4x?xf8E5M2>
  %c = mir.concat %n, %n axis 0 : tensor<2x?xf8E5M2>, tensor<2x?xf8E5M2>
  %r = mir.reshape %c to [4, -1] : tensor<4x?xf8E5M2>
  %k = mir.cast %x : tensor<?x4xf8E5M2> to tensor<?x4xf8E4M3FN>
  return %r, %k : tensor<4x?xf8E5M2>, tensor<?x4xf8E4M3FN>
}
