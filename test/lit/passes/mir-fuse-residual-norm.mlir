// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-keep-wide,mir-fuse-residual-norm)' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-fuse-residual-norm)' | FileCheck %s --check-prefix=ROUNDED

// CHECK-LABEL: func @rms_norm
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[R:.+]]: tensor<?x8xf32>, %[[G:.+]]: tensor<8xf32>, %[[B:.+]]: tensor<8xf32>)
//  CHECK-NEXT:   %[[Y:.+]] = mir.fused_residual_rms_norm %[[X]], %[[R]], %[[G]] beta(%[[B]] : tensor<8xf32>) eps 2.500000e-01
//  CHECK-NEXT:   return %[[Y]]
func.func @rms_norm(%x: tensor<?x8xf32>, %r: tensor<?x8xf32>, %g: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<?x8xf32> {
  %s = mir.add %x, %r : tensor<?x8xf32>
  %y = mir.rms_norm %s, %g beta(%b : tensor<8xf32>) eps 0.25 : tensor<?x8xf32>, tensor<8xf32>
  return %y : tensor<?x8xf32>
}

/// By default values of bf16 are rounded where the graph has them: what would round less often isn't done.
// ROUNDED-LABEL: func @layer_norm(
//       ROUNDED:   mir.add
//       ROUNDED:   mir.layer_norm
// CHECK-LABEL: func @layer_norm
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x4x8xbf16>, %[[R:.+]]: tensor<2x4x8xbf16>, %[[G:.+]]: tensor<8xbf16>)
//  CHECK-NEXT:   %[[Y:.+]] = mir.fused_residual_layer_norm %[[R]], %[[X]], %[[G]] : tensor<2x4x8xbf16>
//  CHECK-NEXT:   return %[[Y]]
func.func @layer_norm(%x: tensor<2x4x8xbf16>, %r: tensor<2x4x8xbf16>, %g: tensor<8xbf16>) -> tensor<2x4x8xbf16> {
  %s = mir.add %r, %x : tensor<2x4x8xbf16>
  %y = mir.layer_norm %s, %g axis 2 : tensor<2x4x8xbf16>, tensor<8xbf16>
  return %y : tensor<2x4x8xbf16>
}

/// The sum is the next block's residual: the fused operation would compute it twice.
// CHECK-LABEL: func @no_fuse_sum_returned
//       CHECK:   %[[S:.+]] = mir.add
//       CHECK:   %[[Y:.+]] = mir.rms_norm %[[S]]
//       CHECK:   return %[[Y]], %[[S]]
func.func @no_fuse_sum_returned(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>, %g: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %s = mir.add %x, %r : tensor<4x8xf32>
  %y = mir.rms_norm %s, %g : tensor<4x8xf32>, tensor<8xf32>
  return %y, %s : tensor<4x8xf32>, tensor<4x8xf32>
}

// CHECK-LABEL: func @no_fuse_sum_read_twice
//       CHECK:   %[[S:.+]] = mir.add
//       CHECK:   mir.layer_norm %[[S]]
//       CHECK:   mir.rms_norm %[[S]]
func.func @no_fuse_sum_read_twice(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>, %g: tensor<8xf32>) -> tensor<4x8xf32> {
  %s = mir.add %x, %r : tensor<4x8xf32>
  %y = mir.layer_norm %s, %g : tensor<4x8xf32>, tensor<8xf32>
  %z = mir.rms_norm %s, %g : tensor<4x8xf32>, tensor<8xf32>
  %t = mir.mul %y, %z : tensor<4x8xf32>
  return %t : tensor<4x8xf32>
}

/// The fused operation doesn't broadcast: a bias is no residual, nor is a single row.
// CHECK-LABEL: func @no_fuse_broadcast
//       CHECK:   %[[S:.+]] = mir.add %{{.+}}, %{{.+}} : tensor<4x8xf32>, tensor<8xf32>
//       CHECK:   %[[Y:.+]] = mir.rms_norm %[[S]]
//       CHECK:   %[[T:.+]] = mir.add %{{.+}}, %[[Y]] : tensor<1x8xf32>, tensor<4x8xf32>
//       CHECK:   mir.layer_norm %[[T]]
func.func @no_fuse_broadcast(%x: tensor<4x8xf32>, %r: tensor<8xf32>, %one: tensor<1x8xf32>, %g: tensor<8xf32>) -> tensor<4x8xf32> {
  %s = mir.add %x, %r : tensor<4x8xf32>, tensor<8xf32>
  %y = mir.rms_norm %s, %g : tensor<4x8xf32>, tensor<8xf32>
  %t = mir.add %one, %y : tensor<1x8xf32>, tensor<4x8xf32>
  %z = mir.layer_norm %t, %g : tensor<4x8xf32>, tensor<8xf32>
  return %z : tensor<4x8xf32>
}

// CHECK-LABEL: func @no_fuse_other_axis
//       CHECK:   %[[S:.+]] = mir.add
//       CHECK:   mir.rms_norm %[[S]], %{{.+}} axis 0
func.func @no_fuse_other_axis(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>, %g: tensor<4xf32>) -> tensor<4x8xf32> {
  %s = mir.add %x, %r : tensor<4x8xf32>
  %y = mir.rms_norm %s, %g axis 0 : tensor<4x8xf32>, tensor<4xf32>
  return %y : tensor<4x8xf32>
}
