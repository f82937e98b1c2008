// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-fuse-shared-input)' | FileCheck %s

/// Weights are joined in the order of the function's arguments.
// CHECK-LABEL: func @dense
//  CHECK-SAME:   (%[[X:[a-z0-9]+]]: tensor<?x8xf32>, %[[A:[a-z0-9]+]]: tensor<8x4xf32> {{{.+}}}, %[[B:[a-z0-9]+]]: tensor<8x6xf32> {{{.+}}}, %[[C:[a-z0-9]+]]: tensor<8x2xf32> {{{.+}}})
//  CHECK-NEXT:   %[[W:.+]] = mir.concat %[[A]], %[[B]], %[[C]] axis 1 : tensor<8x4xf32>, tensor<8x6xf32>, tensor<8x2xf32>
//  CHECK-NEXT:   %[[P:.+]] = mir.matmul %[[X]], %[[W]] : tensor<?x8xf32>, tensor<8x12xf32>
//   CHECK-DAG:   %[[PA:.+]] = mir.narrow %[[P]] axis 1 start 0 length 4
//   CHECK-DAG:   %[[PB:.+]] = mir.narrow %[[P]] axis 1 start 4 length 6
//   CHECK-DAG:   %[[PC:.+]] = mir.narrow %[[P]] axis 1 start 10 length 2
//       CHECK:   return %[[PB]], %[[PA]], %[[PC]]
func.func @dense(%x: tensor<?x8xf32>, %a: tensor<8x4xf32> {mir.kind = "param"}, %b: tensor<8x6xf32> {mir.kind = "param"}, %c: tensor<8x2xf32> {mir.kind = "param"})
    -> (tensor<?x6xf32>, tensor<?x4xf32>, tensor<?x2xf32>) {
  %pb = mir.matmul %x, %b : tensor<?x8xf32>, tensor<8x6xf32>
  %pa = mir.matmul %x, %a : tensor<?x8xf32>, tensor<8x4xf32>
  %pc = mir.matmul %x, %c : tensor<?x8xf32>, tensor<8x2xf32>
  return %pb, %pa, %pc : tensor<?x6xf32>, tensor<?x4xf32>, tensor<?x2xf32>
}

// CHECK-LABEL: func @transposed
//  CHECK-SAME:   (%[[X:[a-z0-9]+]]: tensor<2x?x8xbf16>, %[[A:[a-z0-9]+]]: tensor<4x8xbf16> {{{.+}}}, %[[B:[a-z0-9]+]]: tensor<6x8xbf16> {{{.+}}})
//  CHECK-NEXT:   %[[W:.+]] = mir.concat %[[A]], %[[B]] axis 0
//  CHECK-NEXT:   %[[P:.+]] = mir.matmul %[[X]], %[[W]] transpose_rhs
//   CHECK-DAG:   %[[PA:.+]] = mir.narrow %[[P]] axis 2 start 0 length 4
//   CHECK-DAG:   %[[PB:.+]] = mir.narrow %[[P]] axis 2 start 4 length 6
//       CHECK:   return %[[PA]], %[[PB]]
func.func @transposed(%x: tensor<2x?x8xbf16>, %a: tensor<4x8xbf16> {mir.kind = "param"}, %b: tensor<6x8xbf16> {mir.kind = "param"}) -> (tensor<2x?x4xbf16>, tensor<2x?x6xbf16>) {
  %pa = mir.matmul %x, %a transpose_rhs : tensor<2x?x8xbf16>, tensor<4x8xbf16>
  %pb = mir.matmul %x, %b transpose_rhs : tensor<2x?x8xbf16>, tensor<6x8xbf16>
  return %pa, %pb : tensor<2x?x4xbf16>, tensor<2x?x6xbf16>
}

// CHECK-LABEL: func @packed
//  CHECK-SAME:   (%[[X:[a-z0-9]+]]: tensor<?x32xf32>, %[[A:[a-z0-9]+]]: tensor<4x20xi8, #mir.packed<q4_1, k = 32>> {{{.+}}}, %[[B:[a-z0-9]+]]: tensor<8x20xi8, #mir.packed<q4_1, k = 32>> {{{.+}}})
//  CHECK-NEXT:   %[[W:.+]] = mir.concat %[[A]], %[[B]] axis 0
//  CHECK-NEXT:   %[[P:.+]] = mir.dequant_matmul %[[X]], %[[W]] : tensor<?x32xf32>, tensor<12x20xi8, #mir.packed<q4_1, k = 32>>
//   CHECK-DAG:   %[[PA:.+]] = mir.narrow %[[P]] axis 1 start 0 length 4
//   CHECK-DAG:   %[[PB:.+]] = mir.narrow %[[P]] axis 1 start 4 length 8
//       CHECK:   return %[[PA]], %[[PB]]
func.func @packed(%x: tensor<?x32xf32>, %a: tensor<4x20xi8, #mir.packed<q4_1, k = 32>> {mir.kind = "param"}, %b: tensor<8x20xi8, #mir.packed<q4_1, k = 32>> {mir.kind = "param"})
    -> (tensor<?x4xf32>, tensor<?x8xf32>) {
  %pa = mir.dequant_matmul %x, %a : tensor<?x32xf32>, tensor<4x20xi8, #mir.packed<q4_1, k = 32>>
  %pb = mir.dequant_matmul %x, %b : tensor<?x32xf32>, tensor<8x20xi8, #mir.packed<q4_1, k = 32>>
  return %pa, %pb : tensor<?x4xf32>, tensor<?x8xf32>
}

/// One member that doesn't fit stays alone, and doesn't keep the others apart.
// CHECK-LABEL: func @some_fit
//  CHECK-SAME:   %[[A:[a-z0-9]+]]: tensor<4x20xi8, #mir.packed<q4_1, k = 32>> {{{.+}}}, %[[B:[a-z0-9]+]]: tensor<4x34xi8, #mir.packed<q8_0, k = 32>> {{{.+}}}, %[[C:[a-z0-9]+]]: tensor<4x20xi8, #mir.packed<q4_1, k = 32>>
//       CHECK:   %[[W:.+]] = mir.concat %[[A]], %[[C]] axis 0
//       CHECK:   mir.dequant_matmul %{{.+}}, %[[W]]
//       CHECK:   mir.dequant_matmul %{{.+}}, %[[B]]
func.func @some_fit(%x: tensor<?x32xf32>, %a: tensor<4x20xi8, #mir.packed<q4_1, k = 32>> {mir.kind = "param"}, %b: tensor<4x34xi8, #mir.packed<q8_0, k = 32>> {mir.kind = "param"},
                    %c: tensor<4x20xi8, #mir.packed<q4_1, k = 32>> {mir.kind = "param"}) -> (tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>) {
  %pa = mir.dequant_matmul %x, %a : tensor<?x32xf32>, tensor<4x20xi8, #mir.packed<q4_1, k = 32>>
  %pb = mir.dequant_matmul %x, %b : tensor<?x32xf32>, tensor<4x34xi8, #mir.packed<q8_0, k = 32>>
  %pc = mir.dequant_matmul %x, %c : tensor<?x32xf32>, tensor<4x20xi8, #mir.packed<q4_1, k = 32>>
  return %pa, %pb, %pc : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>
}

/// Joining activations would copy them at each call.
// CHECK-LABEL: func @no_fuse_inputs
//   CHECK-NOT:   mir.concat
//       CHECK:   return
func.func @no_fuse_inputs(%x: tensor<4x8xf32>, %a: tensor<8x4xf32>, %b: tensor<8x4xf32> {mir.kind = "input"}) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %pa = mir.matmul %x, %a : tensor<4x8xf32>, tensor<8x4xf32>
  %pb = mir.matmul %x, %b : tensor<4x8xf32>, tensor<8x4xf32>
  return %pa, %pb : tensor<4x4xf32>, tensor<4x4xf32>
}

// CHECK-LABEL: func @no_fuse_different_inputs
//   CHECK-NOT:   mir.concat
//       CHECK:   return
func.func @no_fuse_different_inputs(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %a: tensor<8x4xf32> {mir.kind = "param"}, %b: tensor<8x4xf32> {mir.kind = "param"}) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %pa = mir.matmul %x, %a : tensor<4x8xf32>, tensor<8x4xf32>
  %pb = mir.matmul %y, %b : tensor<4x8xf32>, tensor<8x4xf32>
  return %pa, %pb : tensor<4x4xf32>, tensor<4x4xf32>
}

/// The parameter is the right operand here and the left one there.
// CHECK-LABEL: func @no_fuse_other_side
//   CHECK-NOT:   mir.concat
//       CHECK:   return
func.func @no_fuse_other_side(%x: tensor<8x8xf32>, %a: tensor<8x8xf32> {mir.kind = "param"}, %b: tensor<8x8xf32> {mir.kind = "param"}) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %pa = mir.matmul %x, %a : tensor<8x8xf32>, tensor<8x8xf32>
  %pb = mir.matmul %b, %x : tensor<8x8xf32>, tensor<8x8xf32>
  return %pa, %pb : tensor<8x8xf32>, tensor<8x8xf32>
}

// CHECK-LABEL: func @no_fuse_mixed_transpose
//   CHECK-NOT:   mir.concat
//       CHECK:   return
func.func @no_fuse_mixed_transpose(%x: tensor<4x8xf32>, %a: tensor<8x8xf32> {mir.kind = "param"}, %b: tensor<8x8xf32> {mir.kind = "param"}) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %pa = mir.matmul %x, %a : tensor<4x8xf32>, tensor<8x8xf32>
  %pb = mir.matmul %x, %b transpose_rhs : tensor<4x8xf32>, tensor<8x8xf32>
  return %pa, %pb : tensor<4x8xf32>, tensor<4x8xf32>
}

/// A product of a parameter with itself reads it twice, and is one product all the same.
// CHECK-LABEL: func @no_fuse_itself
//  CHECK-SAME:   (%[[A:[a-z0-9]+]]: tensor<8x8xf32>
//  CHECK-NEXT:   %[[P:.+]] = mir.matmul %[[A]], %[[A]]
//  CHECK-NEXT:   return %[[P]]
func.func @no_fuse_itself(%a: tensor<8x8xf32> {mir.kind = "param"}) -> tensor<8x8xf32> {
  %p = mir.matmul %a, %a : tensor<8x8xf32>, tensor<8x8xf32>
  return %p : tensor<8x8xf32>
}

/// The halves of a SwiGLU become one kernel already; the third product has nobody to join.
// CHECK-LABEL: func @no_fuse_swiglu_halves
//   CHECK-NOT:   mir.concat
//       CHECK:   return
func.func @no_fuse_swiglu_halves(%x: tensor<?x32xf32>, %g: tensor<32x34xi8, #mir.packed<q8_0, k = 32>> {mir.kind = "param"}, %u: tensor<32x34xi8, #mir.packed<q8_0, k = 32>> {mir.kind = "param"},
                                 %w: tensor<32x34xi8, #mir.packed<q8_0, k = 32>> {mir.kind = "param"}) -> (tensor<?x32xf32>, tensor<?x32xf32>) {
  %gate = mir.dequant_matmul %x, %g : tensor<?x32xf32>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>
  %up = mir.dequant_matmul %x, %u : tensor<?x32xf32>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>
  %other = mir.dequant_matmul %x, %w : tensor<?x32xf32>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>
  %s = mir.silu %gate : tensor<?x32xf32>
  %y = mir.mul %s, %up : tensor<?x32xf32>
  return %y, %other : tensor<?x32xf32>, tensor<?x32xf32>
}

/// So are those of any other function of the gate.
// CHECK-LABEL: func @no_fuse_geglu_halves
//   CHECK-NOT:   mir.concat
//       CHECK:   return
func.func @no_fuse_geglu_halves(%x: tensor<?x32xf32>, %g: tensor<32x34xi8, #mir.packed<q8_0, k = 32>> {mir.kind = "param"}, %u: tensor<32x34xi8, #mir.packed<q8_0, k = 32>> {mir.kind = "param"}) -> tensor<?x32xf32> {
  %gate = mir.dequant_matmul %x, %g : tensor<?x32xf32>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>
  %up = mir.dequant_matmul %x, %u : tensor<?x32xf32>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>
  %s = mir.gelu_approx %gate : tensor<?x32xf32>
  %y = mir.mul %up, %s : tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}
