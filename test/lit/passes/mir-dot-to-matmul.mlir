// RUN: rlx-opt %s --mir-dot-to-matmul | FileCheck %s

/// Batches first, then what stays, then what is summed; of the right operand the other way round.
// CHECK-LABEL: func @any_dimensions(
//  CHECK-SAME:   %[[X:.+]]: tensor<4x?x8x3xf32> {{.+}}, %[[W:.+]]: tensor<3x?x4x5xf32> {
//       CHECK:   %[[A:.+]] = mir.transpose %[[X]] permutation [0, 2, 1, 3]
//       CHECK:   %[[B:.+]] = mir.reshape %[[A]] to [4, 8, -1] : tensor<4x8x?x3xf32>
//       CHECK:   %[[C:.+]] = mir.transpose %[[W]] permutation [2, 1, 0, 3]
//       CHECK:   %[[D:.+]] = mir.reshape %[[C]] to [4, -1, 5] : tensor<4x?x3x5xf32>
//       CHECK:   %[[P:.+]] = mir.matmul %[[B]], %[[D]] : tensor<4x8x?xf32>, tensor<4x?x5xf32>
//       CHECK:   %[[Y:.+]] = mir.reshape %[[P]] to [4, 8, 5]
//       CHECK:   return %[[Y]]
func.func @any_dimensions(%x: tensor<4x?x8x3xf32> {mir.dims = ["", "n", "", ""]}, %w: tensor<3x?x4x5xf32> {mir.dims = ["", "n", "", ""]}) -> tensor<4x8x5xf32> {
  %y = mir.dot_general %x, %w contracting [1, 3] with [1, 0] batch [0] with [2]
      : tensor<4x?x8x3xf32>, tensor<3x?x4x5xf32>
  return %y : tensor<4x8x5xf32>
}

/// Nothing is summed, or there is nothing.
// CHECK-LABEL: func @stays(
//       CHECK:   mir.dot_general
//       CHECK:   mir.dot_general
func.func @stays(%x: tensor<4xf32>, %y: tensor<3xf32>, %z: tensor<0x4xf32>) -> (tensor<4x3xf32>, tensor<0xf32>) {
  %a = mir.dot_general %x, %y : tensor<4xf32>, tensor<3xf32>
  %b = mir.dot_general %z, %x contracting [1] with [0] : tensor<0x4xf32>, tensor<4xf32>
  return %a, %b : tensor<4x3xf32>, tensor<0xf32>
}
