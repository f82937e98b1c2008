// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-differentiate{mode=vjp wrt=x recompute=first+sec*})' | FileCheck %s
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(mir-differentiate{mode=vjp wrt=x recompute=third})' 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// UNKNOWN: no block of module 'blocks' has a name like 'third'

/// A block is computed again from what it read, behind a barrier, and gradients go through the copy: first the last block.
// CHECK-LABEL: func @blocks(
//  CHECK-SAME:   %[[X:[^ ]+]]: tensor<4xf32> {{.*}}, %[[D:[^ ]+]]: tensor<4xf32> {mir.kind = "input", mir.name = "d_y"})
//       CHECK:   %[[A:.+]] = mir.exp %[[X]]
//       CHECK:   %[[Y:.+]] = mir.sin %[[A]]
//       CHECK:   %[[B1:.+]] = mir.barrier %[[A]]
//       CHECK:   %[[D1:.+]] = mir.activation_backward %[[B1]], %[[D]] sin
//       CHECK:   %[[B0:.+]] = mir.barrier %[[X]]
//       CHECK:   %[[C0:.+]] = mir.exp %[[B0]]
//       CHECK:   %[[DX:.+]] = mir.mul %[[D1]], %[[C0]]
//       CHECK:   return %[[Y]], %[[DX]]
func.func @blocks(%x: tensor<4xf32> {mir.name = "x"}) -> (tensor<4xf32> {mir.name = "y"}) {
  %a = mir.exp %x : tensor<4xf32> loc("first")
  %y = mir.sin %a : tensor<4xf32> loc("second.part")
  return %y : tensor<4xf32>
}
