// RUN: rlx-opt %s --pass-pipeline='builtin.module(func.func(gpu-free-destinations))' | FileCheck %s

// CHECK-LABEL: func @frees(
//  CHECK-SAME:   %[[X:.+]]: tensor<4xf32>, %[[D:.+]]: tensor<4xf32>
//       CHECK:   %[[E:.+]] = tensor.empty() : tensor<4xf32>
//       CHECK:   %[[R:.+]] = linalg.generic {{.+}} ins(%[[X]], %[[D]] : {{.+}}) outs(%[[E]] :
//  CHECK-NEXT:   ^bb0(%[[A:.+]]: f32, %[[B:.+]]: f32, %{{.+}}: f32):
//  CHECK-NEXT:     arith.subf %[[A]], %[[B]]
//       CHECK:   linalg.generic {{.+}} ins(%[[R]] :
#id = affine_map<(d0) -> (d0)>
#row = affine_map<(d0, d1) -> (d1)>
#both = affine_map<(d0, d1) -> (d0, d1)>
func.func @frees(%x: tensor<4xf32>, %d: tensor<4xf32>) -> tensor<3x4xf32> {
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<4xf32>) outs(%d : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.subf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  %e = tensor.empty() : tensor<3x4xf32>
  %o = linalg.generic {indexing_maps = [#row, #both], iterator_types = ["parallel", "parallel"]} ins(%r : tensor<4xf32>) outs(%e : tensor<3x4xf32>) {
  ^bb0(%a: f32, %b: f32):
    linalg.yield %a : f32
  } -> tensor<3x4xf32>
  return %o : tensor<3x4xf32>
}

/// Nothing that fusion could join reads the result: it may be written in place.
// CHECK-LABEL: func @no_free(
//  CHECK-SAME:   %[[X:.+]]: tensor<4xf32>, %[[D:.+]]: tensor<4xf32>
//   CHECK-NOT:   tensor.empty
//       CHECK:   linalg.generic {{.+}} ins(%[[X]] : {{.+}}) outs(%[[D]] :
func.func @no_free(%x: tensor<4xf32>, %d: tensor<4xf32>) -> tensor<4xf32> {
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<4xf32>) outs(%d : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.subf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  return %r : tensor<4xf32>
}
