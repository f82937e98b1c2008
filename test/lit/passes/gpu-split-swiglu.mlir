// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-split-swiglu)' | FileCheck %s

// CHECK-LABEL: func @split_rows
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xbf16>, %[[U:.+]]: tensor<16x8xbf16>, %[[G:.+]]: tensor<16x8xbf16>)
//   CHECK-NOT:   mir.concat
//       CHECK:   %[[A:.+]] = mir.matmul %[[X]], %[[G]] transpose_rhs
//       CHECK:   %[[B:.+]] = mir.matmul %[[X]], %[[U]] transpose_rhs
//       CHECK:   %[[S:.+]] = mir.silu %[[A]]
//       CHECK:   %[[Y:.+]] = mir.mul %[[S]], %[[B]]
//       CHECK:   return %[[Y]]
func.func @split_rows(%x: tensor<?x8xbf16>, %u: tensor<16x8xbf16>, %g: tensor<16x8xbf16>) -> tensor<?x16xbf16> {
  %w = mir.concat %u, %g axis 0 : tensor<16x8xbf16>, tensor<16x8xbf16>
  %p = mir.matmul %x, %w transpose_rhs : tensor<?x8xbf16>, tensor<32x8xbf16>
  %y = mir.fused_swiglu %p : tensor<?x32xbf16>
  return %y : tensor<?x16xbf16>
}

// CHECK-LABEL: func @split_columns_gate_first
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[G:.+]]: tensor<8x16xf32>, %[[U:.+]]: tensor<8x16xf32>)
//       CHECK:   %[[A:.+]] = mir.matmul %[[X]], %[[G]] :
//       CHECK:   %[[B:.+]] = mir.matmul %[[X]], %[[U]] :
//       CHECK:   %[[S:.+]] = mir.silu %[[A]]
//       CHECK:   mir.mul %[[S]], %[[B]]
func.func @split_columns_gate_first(%x: tensor<?x8xf32>, %g: tensor<8x16xf32>, %u: tensor<8x16xf32>) -> tensor<?x16xf32> {
  %w = mir.concat %g, %u axis 1 : tensor<8x16xf32>, tensor<8x16xf32>
  %p = mir.matmul %x, %w : tensor<?x8xf32>, tensor<8x32xf32>
  %y = mir.fused_swiglu %p gate_first : tensor<?x32xf32>
  return %y : tensor<?x16xf32>
}

/// The product is needed as it is.
// CHECK-LABEL: func @no_split_shared_product
//       CHECK:   mir.concat
//       CHECK:   mir.fused_swiglu
func.func @no_split_shared_product(%x: tensor<?x8xf32>, %g: tensor<8x16xf32>, %u: tensor<8x16xf32>) -> (tensor<?x16xf32>, tensor<?x32xf32>) {
  %w = mir.concat %g, %u axis 1 : tensor<8x16xf32>, tensor<8x16xf32>
  %p = mir.matmul %x, %w : tensor<?x8xf32>, tensor<8x32xf32>
  %y = mir.fused_swiglu %p gate_first : tensor<?x32xf32>
  return %y, %p : tensor<?x16xf32>, tensor<?x32xf32>
}

/// Halves of unequal weights, and weights joined along K, aren't gate and up.
// CHECK-LABEL: func @no_split_unequal
// CHECK-COUNT-2: mir.fused_swiglu
func.func @no_split_unequal(%x: tensor<?x16xf32>, %a: tensor<16x8xf32>, %b: tensor<16x24xf32>, %c: tensor<8x32xf32>, %d: tensor<8x32xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
  %w = mir.concat %a, %b axis 1 : tensor<16x8xf32>, tensor<16x24xf32>
  %p = mir.matmul %x, %w : tensor<?x16xf32>, tensor<16x32xf32>
  %y = mir.fused_swiglu %p : tensor<?x32xf32>
  %v = mir.concat %c, %d axis 0 : tensor<8x32xf32>, tensor<8x32xf32>
  %q = mir.matmul %x, %v : tensor<?x16xf32>, tensor<16x32xf32>
  %z = mir.fused_swiglu %q : tensor<?x32xf32>
  return %y, %z : tensor<?x16xf32>, tensor<?x16xf32>
}

/// A joined weight that comes from elsewhere stays joined.
// CHECK-LABEL: func @no_split_given
//       CHECK:   mir.fused_swiglu
func.func @no_split_given(%x: tensor<?x8xf32>, %w: tensor<8x32xf32>) -> tensor<?x16xf32> {
  %p = mir.matmul %x, %w : tensor<?x8xf32>, tensor<8x32xf32>
  %y = mir.fused_swiglu %p : tensor<?x32xf32>
  return %y : tensor<?x16xf32>
}
