// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @custom
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[W:.+]]: tensor<8xf32>)
//       CHECK:   %[[Y:.+]] = mir.custom "my.gelu2"(%[[X]], %[[W]])
//  CHECK-SAME:     with {mode = "exact", scale = 2.000000e+00 : f64} : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
//       CHECK:   return %[[Y]] : tensor<?x8xf32>
func.func @custom(%x: tensor<?x8xf32>, %w: tensor<8xf32>) -> tensor<?x8xf32> {
  %y = mir.custom "my.gelu2"(%x, %w) with {scale = 2.0, mode = "exact"}
      : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// CHECK-LABEL: func @custom_results
//  CHECK-SAME:   (%[[X:.+]]: tensor<4xi1>)
//       CHECK:   %[[R:.+]]:2 = mir.custom "a.b.c_2"(%[[X]]) : (tensor<4xi1>) -> (tensor<4xf8E5M2>, tensor<i64>)
//       CHECK:   return %[[R]]#0, %[[R]]#1
func.func @custom_results(%x: tensor<4xi1>) -> (tensor<4xf8E5M2>, tensor<i64>) {
  %a, %b = mir.custom "a.b.c_2"(%x) : (tensor<4xi1>) -> (tensor<4xf8E5M2>, tensor<i64>)
  return %a, %b : tensor<4xf8E5M2>, tensor<i64>
}

// CHECK-LABEL: func @custom_parameters
//       CHECK:   with {flags = [true, false], words = ["a", 3, 5.000000e-01]}
func.func @custom_parameters(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = mir.custom "my.op"(%x) with {flags = [true, false], words = ["a", 3, 0.5]} : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
