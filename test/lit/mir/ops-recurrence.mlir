// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

/// The state is the second result, also where none comes in.
// CHECK-LABEL: func @gated_delta_net
//  CHECK-SAME:   (%[[Q:.+]]: tensor<2x?x4x8xf16>, %[[K:.+]]: tensor<2x?x4x8xf16>, %[[V:.+]]: tensor<2x?x4x8xf16>, %[[G:.+]]: tensor<2x?x4xf16>, %[[B:.+]]: tensor<2x?x4xf16>)
//       CHECK:   %[[Y:.+]], %[[S:.+]] = mir.gated_delta_net %[[Q]], %[[K]], %[[V]] decay %[[G]] beta %[[B]] : tensor<2x?x4x8xf16>, tensor<2x?x4xf16>
//       CHECK:   return %[[Y]], %[[S]] : tensor<2x?x4x8xf16>, tensor<2x4x8x8xf32>
func.func @gated_delta_net(%q: tensor<2x?x4x8xf16>, %k: tensor<2x?x4x8xf16>, %v: tensor<2x?x4x8xf16>, %g: tensor<2x?x4xf16>, %b: tensor<2x?x4xf16>) -> (tensor<2x?x4x8xf16>, tensor<2x4x8x8xf32>) {
  %y, %s = mir.gated_delta_net %q, %k, %v decay %g beta %b : tensor<2x?x4x8xf16>, tensor<2x?x4xf16>
  return %y, %s : tensor<2x?x4x8xf16>, tensor<2x4x8x8xf32>
}

// CHECK-LABEL: func @gated_delta_net_state
//  CHECK-SAME:   (%[[Q:.+]]: tensor<?x3x?x?xf64>, %[[G:.+]]: tensor<2x?x4xf64>, %[[S:.+]]: tensor<?x4x8x?xf64>)
//       CHECK:   %[[Y:.+]], %[[T:.+]] = mir.gated_delta_net %[[Q]], %[[Q]], %[[Q]] decay %[[G]] beta %[[G]] state %[[S]] : tensor<?x3x?x?xf64>, tensor<2x?x4xf64>, tensor<?x4x8x?xf64>
//       CHECK:   return %[[Y]], %[[T]] : tensor<?x3x?x?xf64>, tensor<?x4x8x?xf64>
func.func @gated_delta_net_state(%q: tensor<?x3x?x?xf64>, %g: tensor<2x?x4xf64>, %s: tensor<?x4x8x?xf64>) -> (tensor<?x3x?x?xf64>, tensor<?x4x8x?xf64>) {
  %y, %t = mir.gated_delta_net %q, %q, %q decay %g beta %g state %s : tensor<?x3x?x?xf64>, tensor<2x?x4xf64>, tensor<?x4x8x?xf64>
  return %y, %t : tensor<?x3x?x?xf64>, tensor<?x4x8x?xf64>
}

// CHECK-LABEL: func @gated_delta_net_chunk
//       CHECK:   mir.gated_delta_net %{{.+}}, %{{.+}}, %{{.+}} decay %{{.+}} beta %{{.+}} state %{{.+}} chunk 64 : tensor<2x?x4x8xf32>, tensor<2x?x4xf32>, tensor<2x4x8x8xf32>
func.func @gated_delta_net_chunk(%q: tensor<2x?x4x8xf32>, %g: tensor<2x?x4xf32>, %s: tensor<2x4x8x8xf32>) -> tensor<2x?x4x8xf32> {
  %y, %t = mir.gated_delta_net %q, %q, %q decay %g beta %g state %s chunk 64 : tensor<2x?x4x8xf32>, tensor<2x?x4xf32>, tensor<2x4x8x8xf32>
  return %y : tensor<2x?x4x8xf32>
}

// CHECK-LABEL: func @selective_scan
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x8xf16>, %[[A:.+]]: tensor<8x4xf16>, %[[B:.+]]: tensor<2x?x4xf16>)
//       CHECK:   %[[Y:.+]], %[[S:.+]] = mir.selective_scan %[[X]], %[[X]], %[[A]], %[[B]], %[[B]] : tensor<2x?x8xf16>, tensor<8x4xf16>, tensor<2x?x4xf16>
//       CHECK:   return %[[Y]], %[[S]] : tensor<2x?x8xf16>, tensor<2x8x4xf32>
func.func @selective_scan(%x: tensor<2x?x8xf16>, %a: tensor<8x4xf16>, %b: tensor<2x?x4xf16>) -> (tensor<2x?x8xf16>, tensor<2x8x4xf32>) {
  %y, %s = mir.selective_scan %x, %x, %a, %b, %b : tensor<2x?x8xf16>, tensor<8x4xf16>, tensor<2x?x4xf16>
  return %y, %s : tensor<2x?x8xf16>, tensor<2x8x4xf32>
}

/// Sizes that one operand doesn't know are those of another.
// CHECK-LABEL: func @selective_scan_state
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x3x?xf64>, %[[A:.+]]: tensor<8x?xf64>, %[[B:.+]]: tensor<2x?x4xf64>, %[[S:.+]]: tensor<2x8x?xf64>)
//       CHECK:   %[[Y:.+]], %[[T:.+]] = mir.selective_scan %[[X]], %[[X]], %[[A]], %[[B]], %[[B]] state %[[S]] : tensor<?x3x?xf64>, tensor<8x?xf64>, tensor<2x?x4xf64>, tensor<2x8x?xf64>
//       CHECK:   return %[[Y]], %[[T]] : tensor<?x3x?xf64>, tensor<2x8x?xf64>
func.func @selective_scan_state(%x: tensor<?x3x?xf64>, %a: tensor<8x?xf64>, %b: tensor<2x?x4xf64>, %s: tensor<2x8x?xf64>) -> (tensor<?x3x?xf64>, tensor<2x8x?xf64>) {
  %y, %t = mir.selective_scan %x, %x, %a, %b, %b state %s : tensor<?x3x?xf64>, tensor<8x?xf64>, tensor<2x?x4xf64>, tensor<2x8x?xf64>
  return %y, %t : tensor<?x3x?xf64>, tensor<2x8x?xf64>
}
