// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-differentiate)' | FileCheck %s --check-prefix=GRAD
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-differentiate{mode=value_and_grad wrt=x+w})' | FileCheck %s --check-prefix=VALUE
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-differentiate{mode=vjp wrt=w})' | FileCheck %s --check-prefix=VJP
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-differentiate{mode=jvp wrt=x})' | FileCheck %s --check-prefix=JVP
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(mir-differentiate{wrt=z})' 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// UNKNOWN: module 'layer' has no argument 'z' to be differentiated by, it has x, w

/// By default the parameters: nothing is computed of what the gradient doesn't need.
//  GRAD-LABEL: func @layer(
//   GRAD-SAME:   %[[X:[^ ]+]]: tensor<?x4xf32> {{.*}}, %[[W:[^ ]+]]: tensor<4x3xf32> {{.*}} -> (tensor<4x3xf32> {mir.name = "d_w"})
//    GRAD-NOT:   mir.silu
//        GRAD:   %[[H:.+]] = mir.matmul %[[X]], %[[W]]
//        GRAD:   %[[ONE:.+]] = mir.constant dense<1.000000e+00>
//        GRAD:   %[[R:.+]] = mir.reshape %[[ONE]] to [1, 1]
//        GRAD:   %[[E:.+]] = mir.expand %[[R]] like %[[X]] dims [0, -1]
//        GRAD:   %[[D:.+]] = mir.activation_backward %[[H]], %[[E]] silu
//        GRAD:   %[[T:.+]] = mir.transpose %[[X]] permutation [1, 0]
//        GRAD:   %[[G:.+]] = mir.matmul %[[T]], %[[D]]
//        GRAD:   return %[[G]]
// VALUE-LABEL: func @layer(
//  VALUE-SAME:   -> (tensor<f32> {mir.name = "loss"}, tensor<?x4xf32> {mir.name = "d_x"}, tensor<4x3xf32> {mir.name = "d_w"})
//       VALUE:   %[[LOSS:.+]] = mir.reduce sum
//       VALUE:   %[[D:.+]] = mir.activation_backward
//       VALUE:   %[[DX:.+]] = mir.matmul %[[D]], %{{.+}} transpose_rhs
//       VALUE:   %[[DW:.+]] = mir.matmul %{{.+}}, %[[D]]
//       VALUE:   return %[[LOSS]], %[[DX]], %[[DW]]
//   VJP-LABEL: func @layer(
//    VJP-SAME:   %[[SEED:[^ ]+]]: tensor<f32> {mir.kind = "input", mir.name = "d_loss"}) -> (tensor<f32> {mir.name = "loss"}, tensor<4x3xf32> {mir.name = "d_w"})
//         VJP:   %[[R:.+]] = mir.reshape %[[SEED]] to [1, 1]
//         VJP:   mir.expand %[[R]]
/// A tangent stands beside what it is of.
//   JVP-LABEL: func @layer(
//    JVP-SAME:   %[[W:[^ ]+]]: tensor<4x3xf32> {{.*}}, %[[S:[^ ]+]]: tensor<?x4xf32> {mir.dims = ["n", ""], mir.kind = "input", mir.name = "t_x"}) -> (tensor<f32> {mir.name = "loss"}, tensor<f32> {mir.name = "t_loss"})
//         JVP:   %[[H:.+]] = mir.matmul
//         JVP:   %[[TH:.+]] = mir.matmul %[[S]], %[[W]]
//         JVP:   mir.silu %[[H]]
//         JVP:   %[[TY:.+]] = mir.activation_backward %[[H]], %[[TH]] silu
//         JVP:   %[[T:.+]] = mir.reduce sum %[[TY]] axes [0, 1]
//         JVP:   return %{{.+}}, %[[T]]
func.func @layer(%x: tensor<?x4xf32> {mir.dims = ["n", ""], mir.name = "x"}, %w: tensor<4x3xf32> {mir.kind = "param", mir.name = "w"})
    -> (tensor<f32> {mir.name = "loss"}) {
  %h = mir.matmul %x, %w : tensor<?x4xf32>, tensor<4x3xf32>
  %y = mir.silu %h : tensor<?x3xf32>
  %loss = mir.reduce sum %y axes [0, 1] : tensor<?x3xf32>
  return %loss : tensor<f32>
}
