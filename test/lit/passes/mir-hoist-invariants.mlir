// RUN: rlx-opt %s --mir-keep-regions --mir-hoist-invariants | FileCheck %s

/// What follows from captures alone is the same in every step: it is computed once, and captured.
// CHECK-LABEL: func @scan
//  CHECK-SAME:   (%[[C:.+]]: tensor<1x4xf32>, %[[W:.+]]: tensor<4x4xf32>)
//  CHECK-NEXT:   %[[N:.+]] = mir.neg %[[W]]
//  CHECK-NEXT:   mir.scan(%[[C]]) with(%[[W]], %[[N]]) length 100 {mir.kept}
//  CHECK-NEXT:   ^bb0(%[[A:.+]]: tensor<1x4xf32>, %{{.+}}: tensor<4x4xf32>, %[[M:.+]]: tensor<4x4xf32>):
//  CHECK-NEXT:     %[[P:.+]] = mir.matmul %[[A]], %[[M]]
//  CHECK-NEXT:     mir.yield %[[P]]
func.func @scan(%c: tensor<1x4xf32>, %w: tensor<4x4xf32>) -> tensor<1x4xf32> {
  %y = mir.scan (%c) with (%w) length 100 : (tensor<1x4xf32>, tensor<4x4xf32>) -> tensor<1x4xf32> {
  ^bb0(%a: tensor<1x4xf32>, %v: tensor<4x4xf32>):
    %n = mir.neg %v : tensor<4x4xf32>
    %p = mir.matmul %a, %n : tensor<1x4xf32>, tensor<4x4xf32>
    mir.yield %p : tensor<1x4xf32>
  }
  return %y : tensor<1x4xf32>
}

/// Out of branches what follows from parameters alone moves: it is prepared once, whether the branch runs or not.
// CHECK-LABEL: func @branches
//  CHECK-SAME:   (%[[T:.+]]: tensor<i1>, %[[X:.+]]: tensor<1x4xf32>, %[[W:[^ ]+]]: tensor<4x4xf32>
//  CHECK-NEXT:   %[[V:.+]] = mir.transpose %[[W]]
//  CHECK-NEXT:   mir.if %[[T]](%[[X]], %[[W]], %[[V]]) {mir.kept}
//       CHECK:     mir.neg
//       CHECK:     mir.matmul
//       CHECK:   } else {
func.func @branches(%t: tensor<i1>, %x: tensor<1x4xf32>, %w: tensor<4x4xf32> {mir.kind = "param", mir.name = "w"}) -> tensor<1x4xf32> {
  %y = mir.if %t(%x, %w) : (tensor<1x4xf32>, tensor<4x4xf32>) -> tensor<1x4xf32> {
  ^bb0(%a: tensor<1x4xf32>, %v: tensor<4x4xf32>):
    %n = mir.neg %a : tensor<1x4xf32>
    %r = mir.transpose %v permutation [1, 0] : tensor<4x4xf32>
    %p = mir.matmul %n, %r : tensor<1x4xf32>, tensor<4x4xf32>
    mir.yield %p : tensor<1x4xf32>
  } else {
  ^bb0(%a: tensor<1x4xf32>, %v: tensor<4x4xf32>):
    mir.yield %a : tensor<1x4xf32>
  }
  return %y : tensor<1x4xf32>
}
