// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @layer_norm
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x?xbf16>, %[[G:.+]]: tensor<8xbf16>, %[[B:.+]]: tensor<?xbf16>)
//       CHECK:   %[[R:.+]] = mir.layer_norm %[[X]], %[[G]] beta(%[[B]] : tensor<?xbf16>) : tensor<4x?xbf16>, tensor<8xbf16>
//       CHECK:   mir.layer_norm %[[R]], %[[G]] axis 1 eps 2.500000e-01 : tensor<4x?xbf16>, tensor<8xbf16>
func.func @layer_norm(%x: tensor<4x?xbf16>, %g: tensor<8xbf16>, %b: tensor<?xbf16>) -> tensor<4x?xbf16> {
  %0 = mir.layer_norm %x, %g beta(%b : tensor<?xbf16>) : tensor<4x?xbf16>, tensor<8xbf16>
  %1 = mir.layer_norm %0, %g axis 1 eps 0.25 : tensor<4x?xbf16>, tensor<8xbf16>
  return %1 : tensor<4x?xbf16>
}

// CHECK-LABEL: func @rms_norm
//  CHECK-SAME:   (%[[X:.+]]: tensor<8x4xf32>, %[[G:.+]]: tensor<4xf32>, %[[B:.+]]: tensor<8xf32>)
//       CHECK:   %[[R:.+]] = mir.rms_norm %[[X]], %[[G]] : tensor<8x4xf32>, tensor<4xf32>
//       CHECK:   mir.rms_norm %[[R]], %[[B]] beta(%[[B]] : tensor<8xf32>) axis 0 eps 2.500000e-01 : tensor<8x4xf32>, tensor<8xf32>
func.func @rms_norm(%x: tensor<8x4xf32>, %g: tensor<4xf32>, %b: tensor<8xf32>) -> tensor<8x4xf32> {
  %0 = mir.rms_norm %x, %g : tensor<8x4xf32>, tensor<4xf32>
  %1 = mir.rms_norm %0, %b beta(%b : tensor<8xf32>) axis 0 eps 0.25 : tensor<8x4xf32>, tensor<8xf32>
  return %1 : tensor<8x4xf32>
}

// CHECK-LABEL: func @fused_residual_layer_norm
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[R:.+]]: tensor<?x8xf32>, %[[G:.+]]: tensor<8xf32>, %[[B:.+]]: tensor<8xf32>, %[[C:.+]]: tensor<8xf32>)
//       CHECK:   %[[Y:.+]] = mir.fused_residual_layer_norm %[[X]], %[[R]], %[[G]] bias(%[[B]] : tensor<8xf32>) beta(%[[C]] : tensor<8xf32>) : tensor<?x8xf32>, tensor<8xf32>
//       CHECK:   mir.fused_residual_layer_norm %[[Y]], %[[R]], %[[G]] eps 2.500000e-01 : tensor<?x8xf32>, tensor<8xf32>
func.func @fused_residual_layer_norm(%x: tensor<?x8xf32>, %r: tensor<?x8xf32>, %g: tensor<8xf32>, %b: tensor<8xf32>, %c: tensor<8xf32>) -> tensor<?x8xf32> {
  %0 = mir.fused_residual_layer_norm %x, %r, %g bias(%b : tensor<8xf32>) beta(%c : tensor<8xf32>) : tensor<?x8xf32>, tensor<8xf32>
  %1 = mir.fused_residual_layer_norm %0, %r, %g eps 0.25 : tensor<?x8xf32>, tensor<8xf32>
  return %1 : tensor<?x8xf32>
}

// CHECK-LABEL: func @fused_residual_rms_norm
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[R:.+]]: tensor<?x8xf32>, %[[G:.+]]: tensor<8xf32>, %[[B:.+]]: tensor<8xf32>)
//       CHECK:   %[[Y:.+]] = mir.fused_residual_rms_norm %[[X]], %[[R]], %[[G]] bias(%[[B]] : tensor<8xf32>) : tensor<?x8xf32>, tensor<8xf32>
//       CHECK:   mir.fused_residual_rms_norm %[[Y]], %[[R]], %[[G]] beta(%[[B]] : tensor<8xf32>) eps 2.500000e-01 : tensor<?x8xf32>, tensor<8xf32>
func.func @fused_residual_rms_norm(%x: tensor<?x8xf32>, %r: tensor<?x8xf32>, %g: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<?x8xf32> {
  %0 = mir.fused_residual_rms_norm %x, %r, %g bias(%b : tensor<8xf32>) : tensor<?x8xf32>, tensor<8xf32>
  %1 = mir.fused_residual_rms_norm %0, %r, %g beta(%b : tensor<8xf32>) eps 0.25 : tensor<?x8xf32>, tensor<8xf32>
  return %1 : tensor<?x8xf32>
}
