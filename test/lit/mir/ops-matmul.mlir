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
