// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-keep-wide,mir-fuse-swiglu)' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-fuse-swiglu)' | FileCheck %s --check-prefix=ROUNDED

/// fused_swiglu reads up, then gate: the weights are joined in this order, whatever the order of the products.
// CHECK-LABEL: func @dual
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[G:.+]]: tensor<8x16xf32>, %[[U:.+]]: tensor<8x16xf32>)
//  CHECK-NEXT:   %[[W:.+]] = mir.concat %[[U]], %[[G]] axis 1 : tensor<8x16xf32>, tensor<8x16xf32>
//  CHECK-NEXT:   %[[P:.+]] = mir.matmul %[[X]], %[[W]] : tensor<?x8xf32>, tensor<8x32xf32>
//  CHECK-NEXT:   %[[Y:.+]] = mir.fused_swiglu %[[P]] : tensor<?x32xf32>
//  CHECK-NEXT:   return %[[Y]]
func.func @dual(%x: tensor<?x8xf32>, %g: tensor<8x16xf32>, %u: tensor<8x16xf32>) -> tensor<?x16xf32> {
  %gate = mir.matmul %x, %g : tensor<?x8xf32>, tensor<8x16xf32>
  %up = mir.matmul %x, %u : tensor<?x8xf32>, tensor<8x16xf32>
  %s = mir.silu %gate : tensor<?x16xf32>
  %y = mir.mul %s, %up : tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

/// By default values of bf16 are rounded where the graph has them: what would round less often isn't done.
// ROUNDED-LABEL: func @dual_up_first_transposed(
//       ROUNDED:   mir.matmul
//       ROUNDED:   mir.matmul
//       ROUNDED:   mir.silu
//       ROUNDED:   mir.mul
// CHECK-LABEL: func @dual_up_first_transposed
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x8xbf16>, %[[G:.+]]: tensor<16x8xbf16>, %[[U:.+]]: tensor<16x8xbf16>)
//  CHECK-NEXT:   %[[W:.+]] = mir.concat %[[U]], %[[G]] axis 0
//  CHECK-NEXT:   %[[P:.+]] = mir.matmul %[[X]], %[[W]] transpose_rhs
//  CHECK-NEXT:   %[[Y:.+]] = mir.fused_swiglu %[[P]] : tensor<4x32xbf16>
//  CHECK-NEXT:   return %[[Y]]
func.func @dual_up_first_transposed(%x: tensor<4x8xbf16>, %g: tensor<16x8xbf16>, %u: tensor<16x8xbf16>) -> tensor<4x16xbf16> {
  %up = mir.matmul %x, %u transpose_rhs : tensor<4x8xbf16>, tensor<16x8xbf16>
  %gate = mir.matmul %x, %g transpose_rhs : tensor<4x8xbf16>, tensor<16x8xbf16>
  %s = mir.silu %gate : tensor<4x16xbf16>
  %y = mir.mul %up, %s : tensor<4x16xbf16>
  return %y : tensor<4x16xbf16>
}

/// Both factors are gated: no plain product is left.
// CHECK-LABEL: func @no_fuse_both_gated
//       CHECK:   %[[A:.+]] = mir.silu
//       CHECK:   %[[B:.+]] = mir.silu
//       CHECK:   mir.mul %[[A]], %[[B]]
func.func @no_fuse_both_gated(%x: tensor<4x8xf32>, %g: tensor<8x16xf32>, %u: tensor<8x16xf32>) -> tensor<4x16xf32> {
  %gate = mir.matmul %x, %g : tensor<4x8xf32>, tensor<8x16xf32>
  %up = mir.matmul %x, %u : tensor<4x8xf32>, tensor<8x16xf32>
  %s = mir.silu %gate : tensor<4x16xf32>
  %t = mir.silu %up : tensor<4x16xf32>
  %y = mir.mul %s, %t : tensor<4x16xf32>
  return %y : tensor<4x16xf32>
}

// CHECK-LABEL: func @no_fuse_different_inputs
//       CHECK:   mir.matmul
//       CHECK:   mir.matmul
//       CHECK:   mir.silu
//       CHECK:   mir.mul
func.func @no_fuse_different_inputs(%x: tensor<4x8xf32>, %z: tensor<4x8xf32>, %g: tensor<8x16xf32>, %u: tensor<8x16xf32>) -> tensor<4x16xf32> {
  %gate = mir.matmul %x, %g : tensor<4x8xf32>, tensor<8x16xf32>
  %up = mir.matmul %z, %u : tensor<4x8xf32>, tensor<8x16xf32>
  %s = mir.silu %gate : tensor<4x16xf32>
  %y = mir.mul %s, %up : tensor<4x16xf32>
  return %y : tensor<4x16xf32>
}

/// The weights broadcast against each other: halves must be of one width.
// CHECK-LABEL: func @no_fuse_different_widths
//       CHECK:   mir.matmul
//       CHECK:   mir.matmul
//       CHECK:   mir.mul %{{.+}}, %{{.+}} : tensor<4x16xf32>, tensor<4x1xf32>
func.func @no_fuse_different_widths(%x: tensor<4x8xf32>, %g: tensor<8x16xf32>, %u: tensor<8x1xf32>) -> tensor<4x16xf32> {
  %gate = mir.matmul %x, %g : tensor<4x8xf32>, tensor<8x16xf32>
  %up = mir.matmul %x, %u : tensor<4x8xf32>, tensor<8x1xf32>
  %s = mir.silu %gate : tensor<4x16xf32>
  %y = mir.mul %s, %up : tensor<4x16xf32>, tensor<4x1xf32>
  return %y : tensor<4x16xf32>
}

/// Square weights of one type, of which one is transposed.
// CHECK-LABEL: func @no_fuse_one_transposed
//       CHECK:   mir.matmul %{{.+}}, %{{.+}} transpose_rhs
//       CHECK:   mir.matmul
//       CHECK:   mir.mul
func.func @no_fuse_one_transposed(%x: tensor<4x8xf32>, %g: tensor<8x8xf32>, %u: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %gate = mir.matmul %x, %g transpose_rhs : tensor<4x8xf32>, tensor<8x8xf32>
  %up = mir.matmul %x, %u : tensor<4x8xf32>, tensor<8x8xf32>
  %s = mir.silu %gate : tensor<4x8xf32>
  %y = mir.mul %s, %up : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// CHECK-LABEL: func @no_fuse_dynamic_weights
//       CHECK:   mir.matmul
//       CHECK:   mir.matmul
//       CHECK:   mir.mul
func.func @no_fuse_dynamic_weights(%x: tensor<4x8xf32>, %g: tensor<8x?xf32>, %u: tensor<8x?xf32>) -> tensor<4x?xf32> {
  %gate = mir.matmul %x, %g : tensor<4x8xf32>, tensor<8x?xf32>
  %up = mir.matmul %x, %u : tensor<4x8xf32>, tensor<8x?xf32>
  %s = mir.silu %gate : tensor<4x?xf32>
  %y = mir.mul %s, %up : tensor<4x?xf32>
  return %y : tensor<4x?xf32>
}

/// A product, or its silu, is a result too.
// CHECK-LABEL: func @no_fuse_up_returned
//       CHECK:   %[[G:.+]] = mir.matmul
//       CHECK:   %[[U:.+]] = mir.matmul
//       CHECK:   %[[S:.+]] = mir.silu %[[G]]
//       CHECK:   %[[Y:.+]] = mir.mul %[[S]], %[[U]]
//       CHECK:   return %[[Y]], %[[U]]
func.func @no_fuse_up_returned(%x: tensor<4x8xf32>, %g: tensor<8x16xf32>, %u: tensor<8x16xf32>) -> (tensor<4x16xf32>, tensor<4x16xf32>) {
  %gate = mir.matmul %x, %g : tensor<4x8xf32>, tensor<8x16xf32>
  %up = mir.matmul %x, %u : tensor<4x8xf32>, tensor<8x16xf32>
  %s = mir.silu %gate : tensor<4x16xf32>
  %y = mir.mul %s, %up : tensor<4x16xf32>
  return %y, %up : tensor<4x16xf32>, tensor<4x16xf32>
}

// CHECK-LABEL: func @no_fuse_silu_returned
//       CHECK:   %[[S:.+]] = mir.silu
//       CHECK:   %[[Y:.+]] = mir.mul %[[S]]
//       CHECK:   return %[[Y]], %[[S]]
func.func @no_fuse_silu_returned(%x: tensor<4x8xf32>, %g: tensor<8x16xf32>, %u: tensor<8x16xf32>) -> (tensor<4x16xf32>, tensor<4x16xf32>) {
  %gate = mir.matmul %x, %g : tensor<4x8xf32>, tensor<8x16xf32>
  %up = mir.matmul %x, %u : tensor<4x8xf32>, tensor<8x16xf32>
  %s = mir.silu %gate : tensor<4x16xf32>
  %y = mir.mul %s, %up : tensor<4x16xf32>
  return %y, %s : tensor<4x16xf32>, tensor<4x16xf32>
}

/// silu(p) * p: the product gates itself.
// CHECK-LABEL: func @no_fuse_own_gate
//       CHECK:   %[[P:.+]] = mir.matmul
//       CHECK:   %[[S:.+]] = mir.silu %[[P]]
//       CHECK:   mir.mul %[[S]], %[[P]]
func.func @no_fuse_own_gate(%x: tensor<4x8xf32>, %g: tensor<8x16xf32>) -> tensor<4x16xf32> {
  %gate = mir.matmul %x, %g : tensor<4x8xf32>, tensor<8x16xf32>
  %s = mir.silu %gate : tensor<4x16xf32>
  %y = mir.mul %s, %gate : tensor<4x16xf32>
  return %y : tensor<4x16xf32>
}

// CHECK-LABEL: func @halves
//  CHECK-SAME:   (%[[C:.+]]: tensor<?x32xf32>)
//  CHECK-NEXT:   %[[Y:.+]] = mir.fused_swiglu %[[C]] : tensor<?x32xf32>
//  CHECK-NEXT:   return %[[Y]]
func.func @halves(%c: tensor<?x32xf32>) -> tensor<?x16xf32> {
  %up = mir.narrow %c axis 1 start 0 length 16 : tensor<?x32xf32>
  %gate = mir.narrow %c axis 1 start 16 length 16 : tensor<?x32xf32>
  %s = mir.silu %gate : tensor<?x16xf32>
  %y = mir.mul %up, %s : tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

// CHECK-LABEL: func @halves_gate_first
//  CHECK-SAME:   (%[[C:.+]]: tensor<4x32xf32>)
//  CHECK-NEXT:   %[[Y:.+]] = mir.fused_swiglu %[[C]] gate_first : tensor<4x32xf32>
//  CHECK-NEXT:   return %[[Y]]
func.func @halves_gate_first(%c: tensor<4x32xf32>) -> tensor<4x16xf32> {
  %gate = mir.narrow %c axis 1 start 0 length 16 : tensor<4x32xf32>
  %up = mir.narrow %c axis 1 start 16 length 16 : tensor<4x32xf32>
  %s = mir.silu %gate : tensor<4x16xf32>
  %y = mir.mul %s, %up : tensor<4x16xf32>
  return %y : tensor<4x16xf32>
}

/// Both slices are the same half.
// CHECK-LABEL: func @no_fuse_same_half
//   CHECK-NOT:   mir.fused_swiglu
//       CHECK:   return
func.func @no_fuse_same_half(%c: tensor<4x32xf32>) -> tensor<4x16xf32> {
  %gate = mir.narrow %c axis 1 start 0 length 16 : tensor<4x32xf32>
  %up = mir.narrow %c axis 1 start 0 length 16 : tensor<4x32xf32>
  %s = mir.silu %gate : tensor<4x16xf32>
  %y = mir.mul %s, %up : tensor<4x16xf32>
  return %y : tensor<4x16xf32>
}

/// Slices that don't cut in the middle, aren't of the last axis, or come from different values.
// CHECK-LABEL: func @no_fuse_other_slices
//   CHECK-NOT:   mir.fused_swiglu
//       CHECK:   return
func.func @no_fuse_other_slices(%c: tensor<4x32xf32>, %d: tensor<4x32xf32>) -> (tensor<4x8xf32>, tensor<2x32xf32>, tensor<4x16xf32>) {
  %0 = mir.narrow %c axis 1 start 0 length 8 : tensor<4x32xf32>
  %1 = mir.narrow %c axis 1 start 8 length 8 : tensor<4x32xf32>
  %2 = mir.silu %1 : tensor<4x8xf32>
  %3 = mir.mul %0, %2 : tensor<4x8xf32>
  %4 = mir.narrow %c axis 0 start 0 length 2 : tensor<4x32xf32>
  %5 = mir.narrow %c axis 0 start 2 length 2 : tensor<4x32xf32>
  %6 = mir.silu %5 : tensor<2x32xf32>
  %7 = mir.mul %4, %6 : tensor<2x32xf32>
  %8 = mir.narrow %c axis 1 start 0 length 16 : tensor<4x32xf32>
  %9 = mir.narrow %d axis 1 start 16 length 16 : tensor<4x32xf32>
  %10 = mir.silu %9 : tensor<4x16xf32>
  %11 = mir.mul %8, %10 : tensor<4x16xf32>
  return %3, %7, %11 : tensor<4x8xf32>, tensor<2x32xf32>, tensor<4x16xf32>
}

// CHECK-LABEL: func @no_fuse_half_returned
//   CHECK-NOT:   mir.fused_swiglu
//       CHECK:   return
func.func @no_fuse_half_returned(%c: tensor<4x32xf32>) -> (tensor<4x16xf32>, tensor<4x16xf32>) {
  %up = mir.narrow %c axis 1 start 0 length 16 : tensor<4x32xf32>
  %gate = mir.narrow %c axis 1 start 16 length 16 : tensor<4x32xf32>
  %s = mir.silu %gate : tensor<4x16xf32>
  %y = mir.mul %up, %s : tensor<4x16xf32>
  return %y, %up : tensor<4x16xf32>, tensor<4x16xf32>
}
