// RUN: rlx-opt %s --pass-pipeline='builtin.module(func.func(rlx-copies-to-linalg))' | FileCheck %s

//       CHECK: #[[$MAP:.+]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func @strided
//  CHECK-SAME:   (%[[S:.+]]: memref<?x4xf32, strided<[8, 1]>>, %[[T:.+]]: memref<?x4xf32>)
//   CHECK-NOT:   memref.copy
//       CHECK:   linalg.generic {indexing_maps = [#[[$MAP]], #[[$MAP]]], iterator_types = ["parallel", "parallel"]}
//  CHECK-SAME:     ins(%[[S]] : {{.+}}) outs(%[[T]] : {{.+}})
//       CHECK:   ^bb0(%[[X:.+]]: f32, %{{.+}}: f32):
//       CHECK:     linalg.yield %[[X]]
func.func @strided(%s: memref<?x4xf32, strided<[8, 1]>>, %t: memref<?x4xf32>) {
  memref.copy %s, %t : memref<?x4xf32, strided<[8, 1]>> to memref<?x4xf32>
  return
}

// CHECK-LABEL: func @rank_0
//       CHECK:   linalg.generic
func.func @rank_0(%s: memref<f32>, %t: memref<f32>) {
  memref.copy %s, %t : memref<f32> to memref<f32>
  return
}

/// What is where it belongs needn't be copied.
// CHECK-LABEL: func @to_itself
//  CHECK-NEXT:   return
func.func @to_itself(%s: memref<4xf32>) {
  memref.copy %s, %s : memref<4xf32> to memref<4xf32>
  return
}

/// Loops that are linalg already stay as they are.
// CHECK-LABEL: func @no_change_elsewhere
//  CHECK-SAME:   (%[[X:.+]]: memref<4xf32>)
//  CHECK-NEXT:   linalg.abs ins(%[[X]] : {{.+}}) outs(%[[X]] : {{.+}})
//  CHECK-NEXT:   return
func.func @no_change_elsewhere(%x: memref<4xf32>) {
  linalg.abs ins(%x : memref<4xf32>) outs(%x : memref<4xf32>)
  return
}
