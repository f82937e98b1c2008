// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @reduce
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x4x8xf32>)
//       CHECK:   %[[A:.+]] = mir.reduce sum %[[X]] axes [2, 0] : tensor<?x4x8xf32>
//       CHECK:   %[[B:.+]] = mir.reduce mean %[[X]] axes [1] keep_dims : tensor<?x4x8xf32>
//       CHECK:   %[[C:.+]] = mir.reduce max %[[X]] axes [0, 1, 2] : tensor<?x4x8xf32>
//       CHECK:   %[[D:.+]] = mir.reduce min %[[X]] axes [] : tensor<?x4x8xf32>
//       CHECK:   %[[E:.+]] = mir.reduce prod %[[X]] axes [0] keep_dims : tensor<?x4x8xf32>
//       CHECK:   return %[[A]], %[[B]], %[[C]], %[[D]], %[[E]] : tensor<4xf32>, tensor<?x1x8xf32>, tensor<f32>, tensor<?x4x8xf32>, tensor<1x4x8xf32>
func.func @reduce(%x: tensor<?x4x8xf32>)
    -> (tensor<4xf32>, tensor<?x1x8xf32>, tensor<f32>, tensor<?x4x8xf32>, tensor<1x4x8xf32>) {
  %a = mir.reduce sum %x axes [2, 0] : tensor<?x4x8xf32>
  %b = mir.reduce mean %x axes [1] keep_dims : tensor<?x4x8xf32>
  %c = mir.reduce max %x axes [0, 1, 2] : tensor<?x4x8xf32>
  %d = mir.reduce min %x axes [] : tensor<?x4x8xf32>
  %e = mir.reduce prod %x axes [0] keep_dims : tensor<?x4x8xf32>
  return %a, %b, %c, %d, %e : tensor<4xf32>, tensor<?x1x8xf32>, tensor<f32>, tensor<?x4x8xf32>, tensor<1x4x8xf32>
}

// CHECK-LABEL: func @reduce_integers
//  CHECK-SAME:   (%[[X:.+]]: tensor<4xi32>)
//       CHECK:   mir.reduce sum %[[X]] axes [0] : tensor<4xi32>
func.func @reduce_integers(%x: tensor<4xi32>) -> tensor<i32> {
  %a = mir.reduce sum %x axes [0] : tensor<4xi32>
  return %a : tensor<i32>
}

// CHECK-LABEL: func @reduce_conditions
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x4xi1>)
//       CHECK:   mir.reduce any %[[X]] axes [0] : tensor<?x4xi1>
//       CHECK:   mir.reduce all %[[X]] axes [0, 1] keep_dims : tensor<?x4xi1>
func.func @reduce_conditions(%x: tensor<?x4xi1>) -> (tensor<4xi1>, tensor<1x1xi1>) {
  %a = mir.reduce any %x axes [0] : tensor<?x4xi1>
  %b = mir.reduce all %x axes [0, 1] keep_dims : tensor<?x4xi1>
  return %a, %b : tensor<4xi1>, tensor<1x1xi1>
}

// CHECK-LABEL: func @softmax
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf16>)
//       CHECK:   %[[A:.+]] = mir.softmax %[[X]] : tensor<?x8xf16>
//       CHECK:   mir.softmax %[[A]] axis 0 : tensor<?x8xf16>
func.func @softmax(%x: tensor<?x8xf16>) -> tensor<?x8xf16> {
  %a = mir.softmax %x axis -1 : tensor<?x8xf16>
  %b = mir.softmax %a axis 0 : tensor<?x8xf16>
  return %b : tensor<?x8xf16>
}

// CHECK-LABEL: func @cumsum
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xi64>)
//       CHECK:   %[[A:.+]] = mir.cumsum %[[X]] : tensor<?x8xi64>
//       CHECK:   mir.cumsum %[[A]] axis -2 exclusive : tensor<?x8xi64>
func.func @cumsum(%x: tensor<?x8xi64>) -> tensor<?x8xi64> {
  %a = mir.cumsum %x : tensor<?x8xi64>
  %b = mir.cumsum %a axis -2 exclusive : tensor<?x8xi64>
  return %b : tensor<?x8xi64>
}

// CHECK-LABEL: func @top_k_orders
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xi32>, %[[Y:.+]]: tensor<3xf32>)
//       CHECK:   mir.top_k 8 smallest of %[[X]] : tensor<?x8xi32>
//       CHECK:   mir.top_k 2 smallest nan_largest of %[[Y]] : tensor<3xf32>
//       CHECK:   mir.top_k 1 nan_largest of %[[Y]] : tensor<3xf32>
func.func @top_k_orders(%x: tensor<?x8xi32>, %y: tensor<3xf32>) -> (tensor<?x8xi32>, tensor<2xf32>, tensor<1xi32>) {
  %a, %i = mir.top_k 8 smallest of %x : tensor<?x8xi32>
  %b, %j = mir.top_k 2 smallest nan_largest of %y : tensor<3xf32>
  %c, %k = mir.top_k 1 nan_largest of %y : tensor<3xf32>
  return %a, %b, %k : tensor<?x8xi32>, tensor<2xf32>, tensor<1xi32>
}

// CHECK-LABEL: func @top_k_of_sizes
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?xf32>, %[[Y:.+]]: tensor<?x5xi8>)
//       CHECK:   mir.top_k "d0" smallest of %[[X]] like %[[X]] dims [1] : tensor<2x?xf32>, tensor<2x?xf32>
//       CHECK:   mir.top_k "min(d0, 7)" of %[[X]] like %[[Y]] dims [0] : tensor<2x?xf32>, tensor<?x5xi8>
//       CHECK:   mir.top_k 0 of %[[X]] : tensor<2x?xf32>
func.func @top_k_of_sizes(%x: tensor<2x?xf32>, %y: tensor<?x5xi8>) -> (tensor<2x?xf32>, tensor<2x?xi32>, tensor<2x0xf32>) {
  %a, %i = mir.top_k "d0" smallest of %x like %x dims [1] : tensor<2x?xf32>, tensor<2x?xf32>
  %b, %j = mir.top_k "min(d0, 7)" of %x like %y dims [0] : tensor<2x?xf32>, tensor<?x5xi8>
  %c, %k = mir.top_k 0 of %x : tensor<2x?xf32>
  return %a, %j, %c : tensor<2x?xf32>, tensor<2x?xi32>, tensor<2x0xf32>
}

// CHECK-LABEL: func @top_k
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xbf16>)
//       CHECK:   mir.top_k 3 of %[[X]] : tensor<?x8xbf16>
func.func @top_k(%x: tensor<?x8xbf16>) -> (tensor<?x3xbf16>, tensor<?x3xi32>) {
  %values, %indices = mir.top_k 3 of %x : tensor<?x8xbf16>
  return %values, %indices : tensor<?x3xbf16>, tensor<?x3xi32>
}
