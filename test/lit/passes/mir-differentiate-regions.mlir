// RUN: rlx-opt %s --verify-diagnostics --pass-pipeline='builtin.module(mir-differentiate{mode=vjp wrt=x+u})' | FileCheck %s

/// The forward loop keeps what each step began with; the other one goes back along it.
// CHECK-LABEL: func @scan(
//  CHECK-SAME:   %[[X:[^ ]+]]: tensor<?x4xf32> {{.*}}, %[[H:[^ ]+]]: tensor<4xf32> {mir.name = "h"}, %{{.+}}: tensor<4xf32> {mir.name = "u"}, %[[D:[^ ]+]]: tensor<4xf32> {mir.kind = "input", mir.name = "d_last"})
//       CHECK:   %[[F:.+]]:2 = mir.scan(%[[H]]) over(%[[X]])
//       CHECK:   ^bb0(%[[A:.+]]: tensor<4xf32>, %[[B:.+]]: tensor<4xf32>):
//       CHECK:     %[[C:.+]] = mir.mul %[[A]], %[[B]]
//       CHECK:     mir.yield %[[C]], %[[A]]
//       CHECK:   %[[R:.+]]:2 = mir.scan(%[[D]]) over(%[[F]]#1, %[[X]]) reverse
//       CHECK:   ^bb0(%[[L:.+]]: tensor<4xf32>, %[[A:.+]]: tensor<4xf32>, %[[B:.+]]: tensor<4xf32>):
//       CHECK:     %[[DA:.+]] = mir.mul %[[L]], %[[B]]
//       CHECK:     %[[DB:.+]] = mir.mul %[[L]], %[[A]]
//       CHECK:     mir.yield %[[DA]], %[[DB]]
//       CHECK:   return %[[F]]#0, %[[R]]#1,
func.func @scan(%x: tensor<?x4xf32> {mir.dims = ["n", ""], mir.name = "x"}, %h: tensor<4xf32> {mir.name = "h"},
    // expected-remark @below {{no output that is differentiated depends on argument 'u' of module 'scan': its gradient is zeros}}
    %u: tensor<4xf32> {mir.name = "u"}) -> (tensor<4xf32> {mir.name = "last"}) {
  %last = mir.scan(%h) over(%x) : (tensor<4xf32>, tensor<?x4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %c = mir.mul %a, %b : tensor<4xf32>
    mir.yield %c : tensor<4xf32>
  }
  return %last : tensor<4xf32>
}
