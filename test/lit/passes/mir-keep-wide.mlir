// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-keep-wide,mir-fuse-residual-norm)' | FileCheck %s

/// The sum may stay in f32: it has no value of its own any more.
//       CHECK: module attributes {mir.wide}
// CHECK-LABEL: func @f(
//  CHECK-NEXT:   mir.fused_residual_rms_norm
func.func @f(%x: tensor<4x8xbf16>, %r: tensor<4x8xbf16>, %g: tensor<8xbf16>) -> tensor<4x8xbf16> {
  %s = mir.add %x, %r : tensor<4x8xbf16>
  %y = mir.rms_norm %s, %g : tensor<4x8xbf16>, tensor<8xbf16>
  return %y : tensor<4x8xbf16>
}
