// RUN: rlx-opt %s --mir-decompose=all=true | FileCheck %s --check-prefixes=CHECK,ALL
// RUN: rlx-opt %s --mir-decompose=only=fused_swiglu | FileCheck %s --check-prefixes=CHECK,ONLY
// RUN: rlx-opt %s --mir-decompose | FileCheck %s --check-prefix=KERNELS

/// f16 and bf16 are rounded once: what is inside is f32.
//   CHECK-LABEL: func @swiglu(
//    CHECK-SAME:   %[[X:.+]]: tensor<?x16xbf16>)
//         CHECK:   %[[W:.+]] = mir.cast %[[X]] : tensor<?x16xbf16> to tensor<?x16xf32>
//         CHECK:   %[[G:.+]] = mir.slice %[[W]] axis 1 start 0 stop 8
//         CHECK:   %[[U:.+]] = mir.slice %[[W]] axis 1 start 8
//         CHECK:   %[[S:.+]] = mir.silu %[[G]]
//         CHECK:   %[[P:.+]] = mir.mul %[[U]], %[[S]]
//         CHECK:   %[[Y:.+]] = mir.cast %[[P]] : tensor<?x8xf32> to tensor<?x8xbf16>
//         CHECK:   return %[[Y]]
// KERNELS-LABEL: func @swiglu(
//       KERNELS:   mir.fused_swiglu
func.func @swiglu(%x: tensor<?x16xbf16>) -> tensor<?x8xbf16> {
  %y = mir.fused_swiglu %x gate_first : tensor<?x16xbf16>
  return %y : tensor<?x8xbf16>
}

/// Operands that are absent aren't built.
//   CHECK-LABEL: func @norm(
//    CHECK-SAME:   %[[X:.+]]: tensor<2x4xf32>, %[[R:.+]]: tensor<2x4xf32>, %[[B:.+]]: tensor<4xf32>, %[[G:.+]]: tensor<4xf32>)
//           ALL:   %[[S:.+]] = mir.add %[[X]], %[[R]]
//           ALL:   %[[T:.+]] = mir.add %[[S]], %[[B]]
//           ALL:   %[[Y:.+]] = mir.rms_norm %[[T]], %[[G]] eps 2.500000e-01
//           ALL:   return %[[Y]]
//          ONLY:   mir.fused_residual_rms_norm
func.func @norm(%x: tensor<2x4xf32>, %r: tensor<2x4xf32>, %b: tensor<4xf32>, %g: tensor<4xf32>) -> tensor<2x4xf32> {
  %y = mir.fused_residual_rms_norm %x, %r, %g bias(%b : tensor<4xf32>) eps 0.25 : tensor<2x4xf32>, tensor<4xf32>
  return %y : tensor<2x4xf32>
}
