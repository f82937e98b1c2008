// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-differentiate{mode=grad wrt=x})' | FileCheck %s

/// Fused operations become their parts.
// CHECK-LABEL: func @fused(
//   CHECK-NOT:   mir.fused_swiglu
//       CHECK:   mir.activation_backward {{.+}} silu
func.func @fused(%x: tensor<?x8xf32> {mir.dims = ["n", ""], mir.name = "x"}) -> tensor<f32> {
  %y = mir.fused_swiglu %x : tensor<?x8xf32>
  %s = mir.reduce sum %y axes [0, 1] : tensor<?x4xf32>
  return %s : tensor<f32>
}
