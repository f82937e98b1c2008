// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-turn-float8)' | FileCheck %s

// CHECK-LABEL: func @turn_columns
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x32xf8E4M3FN>, %[[W:.+]]: tensor<32x16xf8E5M2>, %[[S:.+]]: tensor<?xf32>)
//       CHECK:   %[[T:.+]] = mir.transpose %[[W]] permutation [1, 0] : tensor<32x16xf8E5M2>
//       CHECK:   %[[Y:.+]] = mir.scaled_matmul %[[X]], %[[T]] lhs_scale %[[S]] transpose_rhs : tensor<?x32xf8E4M3FN>, tensor<16x32xf8E5M2>, tensor<?xf32> to tensor<?x16xbf16>
//       CHECK:   return %[[Y]]
func.func @turn_columns(%x: tensor<?x32xf8E4M3FN>, %w: tensor<32x16xf8E5M2>, %s: tensor<?xf32>) -> tensor<?x16xbf16> {
  %y = mir.scaled_matmul %x, %w lhs_scale %s : tensor<?x32xf8E4M3FN>, tensor<32x16xf8E5M2>, tensor<?xf32> to tensor<?x16xbf16>
  return %y : tensor<?x16xbf16>
}

// CHECK-LABEL: func @turn_batches
//       CHECK:   mir.transpose %{{.+}} permutation [0, 2, 1]
//       CHECK:   mir.scaled_matmul {{.*}} transpose_rhs
func.func @turn_batches(%x: tensor<3x4x32xf8E4M3FN>, %w: tensor<3x32x16xf8E4M3FN>) -> tensor<3x4x16xf32> {
  %y = mir.scaled_matmul %x, %w : tensor<3x4x32xf8E4M3FN>, tensor<3x32x16xf8E4M3FN> to tensor<3x4x16xf32>
  return %y : tensor<3x4x16xf32>
}

/// What was turned is read as it was.
// CHECK-LABEL: func @turn_back
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x32xf8E4M3FN>, %[[W:.+]]: tensor<16x32xf8E4M3FN>)
//   CHECK-NOT:   mir.transpose
//       CHECK:   mir.scaled_matmul %[[X]], %[[W]] transpose_rhs
func.func @turn_back(%x: tensor<?x32xf8E4M3FN>, %w: tensor<16x32xf8E4M3FN>) -> tensor<?x16xf32> {
  %t = mir.transpose %w permutation [1, 0] : tensor<16x32xf8E4M3FN>
  %y = mir.scaled_matmul %x, %t : tensor<?x32xf8E4M3FN>, tensor<32x16xf8E4M3FN> to tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

// CHECK-LABEL: func @no_turn_rows
//   CHECK-NOT:   mir.transpose
//       CHECK:   mir.scaled_matmul %{{.+}}, %{{.+}} transpose_rhs
func.func @no_turn_rows(%x: tensor<?x32xf8E4M3FN>, %w: tensor<16x32xf8E4M3FN>) -> tensor<?x16xf32> {
  %y = mir.scaled_matmul %x, %w transpose_rhs : tensor<?x32xf8E4M3FN>, tensor<16x32xf8E4M3FN> to tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}
