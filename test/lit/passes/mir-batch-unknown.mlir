// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-batch{inputs=a})' | FileCheck %s

/// What has no rule goes one entry after the other.
// CHECK-LABEL: func @table(
//  CHECK-SAME:   %[[X:[^ ]+]]: tensor<?x4xf32>
//       CHECK:   %[[Y:.+]] = mir.scan() over(%[[X]]) : (tensor<?x4xf32>) -> tensor<?x4xf32> {
//       CHECK:   ^bb0(%[[A:.+]]: tensor<4xf32>):
//       CHECK:     %[[B:.+]] = mir.custom "unknown.op"(%[[A]])
//       CHECK:     mir.yield %[[B]]
//       CHECK:   return %[[Y]]
func.func @table(%x: tensor<4xf32> {mir.name = "a"}) -> tensor<4xf32> {
  %y = mir.custom "unknown.op"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
