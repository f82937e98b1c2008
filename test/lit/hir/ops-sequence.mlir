// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @depthwise_conv1d_causal
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x16xbf16>, %[[W:.+]]: tensor<16x1x1x4xbf16>, %[[P:.+]]: tensor<2x3x16xbf16>)
//       CHECK:   %[[Y:.+]] = hir.depthwise_conv1d_causal %[[X]], %[[W]] after %[[P]] : tensor<2x?x16xbf16>, tensor<16x1x1x4xbf16>, tensor<2x3x16xbf16>
//       CHECK:   return %[[Y]] : tensor<2x?x16xbf16>
func.func @depthwise_conv1d_causal(%x: tensor<2x?x16xbf16>, %w: tensor<16x1x1x4xbf16>, %p: tensor<2x3x16xbf16>) -> tensor<2x?x16xbf16> {
  %y = hir.depthwise_conv1d_causal %x, %w after %p : tensor<2x?x16xbf16>, tensor<16x1x1x4xbf16>, tensor<2x3x16xbf16>
  return %y : tensor<2x?x16xbf16>
}

/// A kernel of one tap has nothing before it; of two sizes the static one stays.
// CHECK-LABEL: func @depthwise_conv1d_causal_one_tap
//       CHECK:   hir.depthwise_conv1d_causal %{{.+}}, %{{.+}} after %{{.+}} : tensor<?x5x?xf32>, tensor<16x1x1x1xf32>, tensor<2x0x?xf32>
//       CHECK:   return %{{.+}} : tensor<2x5x16xf32>
func.func @depthwise_conv1d_causal_one_tap(%x: tensor<?x5x?xf32>, %w: tensor<16x1x1x1xf32>, %p: tensor<2x0x?xf32>) -> tensor<2x5x16xf32> {
  %y = hir.depthwise_conv1d_causal %x, %w after %p : tensor<?x5x?xf32>, tensor<16x1x1x1xf32>, tensor<2x0x?xf32>
  return %y : tensor<2x5x16xf32>
}

// CHECK-LABEL: func @gated_delta_net
//  CHECK-SAME:   (%[[Q:.+]]: tensor<2x?x4x8xf16>, %[[K:.+]]: tensor<2x?x4x8xf16>, %[[V:.+]]: tensor<2x?x4x8xf16>, %[[G:.+]]: tensor<2x?x4xf16>, %[[B:.+]]: tensor<2x?x4xf16>)
//       CHECK:   %[[Y:.+]], %[[S:.+]] = hir.gated_delta_net %[[Q]], %[[K]], %[[V]] decay %[[G]] beta %[[B]] : tensor<2x?x4x8xf16>, tensor<2x?x4x8xf16>, tensor<2x?x4x8xf16>, tensor<2x?x4xf16>, tensor<2x?x4xf16>
//       CHECK:   %[[Z:.+]], %[[T:.+]] = hir.gated_delta_net %[[Y]], %[[K]], %[[V]] decay %[[G]] beta %[[B]] state %[[S]] : tensor<2x?x4x8xf16>, tensor<2x?x4x8xf16>, tensor<2x?x4x8xf16>, tensor<2x?x4xf16>, tensor<2x?x4xf16>, tensor<2x4x8x8xf32>
//       CHECK:   return %[[Z]], %[[T]] : tensor<2x?x4x8xf16>, tensor<2x4x8x8xf32>
func.func @gated_delta_net(%q: tensor<2x?x4x8xf16>, %k: tensor<2x?x4x8xf16>, %v: tensor<2x?x4x8xf16>, %g: tensor<2x?x4xf16>, %b: tensor<2x?x4xf16>) -> (tensor<2x?x4x8xf16>, tensor<2x4x8x8xf32>) {
  %y, %s = hir.gated_delta_net %q, %k, %v decay %g beta %b : tensor<2x?x4x8xf16>, tensor<2x?x4x8xf16>, tensor<2x?x4x8xf16>, tensor<2x?x4xf16>, tensor<2x?x4xf16>
  %z, %t = hir.gated_delta_net %y, %k, %v decay %g beta %b state %s
      : tensor<2x?x4x8xf16>, tensor<2x?x4x8xf16>, tensor<2x?x4x8xf16>, tensor<2x?x4xf16>, tensor<2x?x4xf16>, tensor<2x4x8x8xf32>
  return %z, %t : tensor<2x?x4x8xf16>, tensor<2x4x8x8xf32>
}
