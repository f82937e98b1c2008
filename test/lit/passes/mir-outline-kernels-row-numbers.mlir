// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-outline-kernels)' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-outline-kernels{gathers=true})' | FileCheck %s --check-prefix=GPU

/// Sums of rows, and what is computed of rows and their sums, are one kernel of rows on CPUs.
// CHECK-LABEL: func private @mul_reduce_sub_0(
//  CHECK-SAME:   mir.kernel = "rows"
//       CHECK:   mir.mul
//       CHECK:   mir.reduce sum {{.+}} axes [1] keep_dims
//       CHECK:   mir.sub {{.+}} : tensor<?x8xf32>, tensor<?x1xf32>
//       CHECK:   mir.mul
// CHECK-LABEL: func @gradient(
//       CHECK:   call @mul_reduce_sub_0
//   CHECK-NOT:   call
//   GPU-LABEL: func private @reduce_0(
//    GPU-SAME:   mir.kernel = "reduce"
func.func @gradient(%y: tensor<?x8xf32> {mir.dims = ["n", ""]}, %dy: tensor<?x8xf32> {mir.dims = ["n", ""]}) -> tensor<?x8xf32> {
  %a = mir.mul %y, %dy : tensor<?x8xf32>
  %s = mir.reduce sum %a axes [1] keep_dims : tensor<?x8xf32>
  %b = mir.sub %dy, %s : tensor<?x8xf32>, tensor<?x1xf32>
  %dx = mir.mul %y, %b : tensor<?x8xf32>
  return %dx : tensor<?x8xf32>
}
