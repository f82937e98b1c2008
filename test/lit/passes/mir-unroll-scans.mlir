// RUN: rlx-opt %s --mir-unroll-scans | FileCheck %s --check-prefixes=CHECK,ALL
// RUN: rlx-opt %s --mir-unroll-scans=steps=1 | FileCheck %s --check-prefixes=CHECK,FEW

/// Entries are read in their order, what is carried goes from step to step, and what is stacked is joined.
// CHECK-LABEL: func @products
//  CHECK-SAME:   (%[[C:.+]]: tensor<1x4xf32>, %[[X:.+]]: tensor<2x1x4xf32>, %[[W:.+]]: tensor<4x4xf32>)
//   ALL-NEXT:   %[[N0:.+]] = mir.narrow %[[X]] axis 0 start 0 length 1
//   ALL-NEXT:   %[[X0:.+]] = mir.reshape %[[N0]]
//   ALL-NEXT:   %[[S0:.+]] = mir.add %[[C]], %[[X0]]
//   ALL-NEXT:   %[[Y0:.+]] = mir.matmul %[[S0]], %[[W]]
//   ALL-NEXT:   %[[N1:.+]] = mir.narrow %[[X]] axis 0 start 1 length 1
//   ALL-NEXT:   %[[X1:.+]] = mir.reshape %[[N1]]
//   ALL-NEXT:   %[[S1:.+]] = mir.add %[[Y0]], %[[X1]]
//   ALL-NEXT:   %[[Y1:.+]] = mir.matmul %[[S1]], %[[W]]
//        ALL:   %[[ALL:.+]] = mir.concat %{{.+}}, %{{.+}} axis 0
//        ALL:   return %[[Y1]], %[[ALL]]
//        FEW:   mir.scan
func.func @products(%c: tensor<1x4xf32>, %x: tensor<2x1x4xf32>, %w: tensor<4x4xf32>) -> (tensor<1x4xf32>, tensor<2x1x4xf32>) {
  %y:2 = mir.scan (%c) over (%x) with (%w) : (tensor<1x4xf32>, tensor<2x1x4xf32>, tensor<4x4xf32>) -> (tensor<1x4xf32>, tensor<2x1x4xf32>) {
  ^bb0(%a: tensor<1x4xf32>, %own: tensor<1x4xf32>, %v: tensor<4x4xf32>):
    %s = mir.add %a, %own : tensor<1x4xf32>
    %p = mir.matmul %s, %v : tensor<1x4xf32>, tensor<4x4xf32>
    mir.yield %p, %p : tensor<1x4xf32>, tensor<1x4xf32>
  }
  return %y#0, %y#1 : tensor<1x4xf32>, tensor<2x1x4xf32>
}

/// A small body is one kernel with the loop in it, and a number of steps that isn't known can't be written down.
// CHECK-LABEL: func @small
//       CHECK:   mir.scan
func.func @small(%c: tensor<4xf32>) -> tensor<4xf32> {
  %y = mir.scan (%c) length 1 : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %n = mir.neg %a : tensor<4xf32>
    mir.yield %n : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// CHECK-LABEL: func @unknown
//       CHECK:   mir.scan
func.func @unknown(%c: tensor<4x4xf32>, %x: tensor<?x4x4xf32>) -> tensor<4x4xf32> {
  %y = mir.scan (%c) over (%x) : (tensor<4x4xf32>, tensor<?x4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>, %own: tensor<4x4xf32>):
    %p = mir.matmul %a, %own : tensor<4x4xf32>, tensor<4x4xf32>
    mir.yield %p : tensor<4x4xf32>
  }
  return %y : tensor<4x4xf32>
}
