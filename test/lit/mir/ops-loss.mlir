// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @softmax_cross_entropy
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x10xbf16>, %[[L:.+]]: tensor<4xi64>, %[[D:.+]]: tensor<?xbf16>)
//       CHECK:   %[[Y:.+]] = mir.softmax_cross_entropy_with_logits %[[X]], %[[L]] : tensor<?x10xbf16>, tensor<4xi64>
//       CHECK:   %[[Z:.+]] = mir.softmax_cross_entropy_backward %[[X]], %[[L]], %[[D]] : tensor<?x10xbf16>, tensor<4xi64>, tensor<?xbf16>
//       CHECK:   return %[[Y]], %[[Z]] : tensor<4xbf16>, tensor<4x10xbf16>
func.func @softmax_cross_entropy(%x: tensor<?x10xbf16>, %l: tensor<4xi64>, %d: tensor<?xbf16>) -> (tensor<4xbf16>, tensor<4x10xbf16>) {
  %y = mir.softmax_cross_entropy_with_logits %x, %l : tensor<?x10xbf16>, tensor<4xi64>
  %z = mir.softmax_cross_entropy_backward %x, %l, %d : tensor<?x10xbf16>, tensor<4xi64>, tensor<?xbf16>
  return %y, %z : tensor<4xbf16>, tensor<4x10xbf16>
}

/// No row, no class.
// CHECK-LABEL: func @softmax_cross_entropy_of_none
//       CHECK:   mir.softmax_cross_entropy_with_logits %{{.+}}, %{{.+}} : tensor<0x0xf32>, tensor<0xi32>
//       CHECK:   return %{{.+}} : tensor<0xf32>
func.func @softmax_cross_entropy_of_none(%x: tensor<0x0xf32>, %l: tensor<0xi32>) -> tensor<0xf32> {
  %y = mir.softmax_cross_entropy_with_logits %x, %l : tensor<0x0xf32>, tensor<0xi32>
  return %y : tensor<0xf32>
}
