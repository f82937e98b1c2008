// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-batch{inputs=x})' | FileCheck %s --check-prefixes=SHARED
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-batch{inputs=x+w size=7})' | FileCheck %s --check-prefixes=BOTH
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-differentiate{mode=grad wrt=x},mir-batch{inputs=x})' | FileCheck %s --check-prefixes=GRAD
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(mir-batch{inputs=z})' 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(mir-batch)' 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(mir-batch{inputs=x size=n})' 2>&1 | FileCheck %s --check-prefix=TAKEN

// UNKNOWN: module 'layer' has no argument 'z', it has x, w
// NONE: a batch needs an argument that has it, but none is named
// TAKEN: the batch is called 'n', but argument 'x' has a dimension of that name already

/// What all entries share stays as it is.
// SHARED-LABEL: func @layer(
//  SHARED-SAME:   %[[X:[^ ]+]]: tensor<?x?x4xf32> {mir.dims = ["batch", "n", ""]{{.*}}, %[[W:[^ ]+]]: tensor<4x3xf32> {{.*}} -> (tensor<?xf32> {mir.name = "loss"})
//       SHARED:   %[[H:.+]] = mir.matmul %[[X]], %[[W]] : tensor<?x?x4xf32>, tensor<4x3xf32>
//       SHARED:   %[[Y:.+]] = mir.silu %[[H]]
//       SHARED:   mir.reduce sum %[[Y]] axes [1, 2]
//   BOTH-LABEL: func @layer(
//    BOTH-SAME:   %[[X:[^ ]+]]: tensor<7x?x4xf32> {{.*}}, %[[W:[^ ]+]]: tensor<7x4x3xf32>
//         BOTH:   mir.matmul %[[X]], %[[W]] : tensor<7x?x4xf32>, tensor<7x4x3xf32>
/// Gradients of each entry alone.
//   GRAD-LABEL: func @layer(
//    GRAD-SAME:   -> (tensor<?x?x4xf32> {mir.name = "d_x"})
//     GRAD-NOT:   mir.scan
func.func @layer(%x: tensor<?x4xf32> {mir.dims = ["n", ""], mir.name = "x"}, %w: tensor<4x3xf32> {mir.kind = "param", mir.name = "w"})
    -> (tensor<f32> {mir.name = "loss"}) {
  %h = mir.matmul %x, %w : tensor<?x4xf32>, tensor<4x3xf32>
  %y = mir.silu %h : tensor<?x3xf32>
  %loss = mir.reduce sum %y axes [0, 1] : tensor<?x3xf32>
  return %loss : tensor<f32>
}
