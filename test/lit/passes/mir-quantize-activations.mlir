// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-quantize-activations)' | FileCheck %s --check-prefixes=CHECK,EXACT
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-quantize-activations{attention=8})' | FileCheck %s --check-prefixes=CHECK,EVERY
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-quantize-activations{attention=15})' | FileCheck %s --check-prefixes=CHECK,WIDE
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-quantize-activations{bits=15 attention=15})' | FileCheck %s --check-prefix=INT16
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-quantize-activations{bits=f32})' | FileCheck %s --check-prefix=FLOAT
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-quantize-activations{experts=15})' | FileCheck %s --check-prefix=EXPERTS
//
//   FLOAT-NOT: mir.block
//   INT16-NOT: mir.block_quantize %{{[^ ]+}} :
// INT16-COUNT-6: mir.block_quantize %{{.+}} bits 15

// CHECK-LABEL: func @product
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x32xf32>, %[[W:.+]]: tensor<16x20xi8, #mir.packed<q4_1, k = 32>>)
//  CHECK-NEXT:   %[[Q:.+]], %[[D:.+]], %[[S:.+]] = mir.block_quantize %[[X]] : tensor<?x32xf32>
//  CHECK-NEXT:   %[[Y:.+]] = mir.block_dot %[[Q]], %[[D]], %[[S]], %[[W]]
//  CHECK-NEXT:   return %[[Y]]
func.func @product(%x: tensor<?x32xf32>, %w: tensor<16x20xi8, #mir.packed<q4_1, k = 32>>) -> tensor<?x16xf32> {
  %y = mir.dequant_matmul %x, %w : tensor<?x32xf32>, tensor<16x20xi8, #mir.packed<q4_1, k = 32>>
  return %y : tensor<?x16xf32>
}

/// Weights of floating-point numbers have no integer dot product, and quantising reads f32.
// CHECK-LABEL: func @no_quantize
//   CHECK-NOT:   mir.block
//       CHECK:   return
func.func @no_quantize(%x: tensor<?x32xf32>, %w: tensor<16x64xi8, #mir.packed<f16, k = 32>>, %z: tensor<?x32xbf16>, %v: tensor<16x34xi8, #mir.packed<q8_0, k = 32>>) -> (tensor<?x16xf32>, tensor<?x16xbf16>) {
  %y = mir.dequant_matmul %x, %w : tensor<?x32xf32>, tensor<16x64xi8, #mir.packed<f16, k = 32>>
  %u = mir.dequant_matmul %z, %v : tensor<?x32xbf16>, tensor<16x34xi8, #mir.packed<q8_0, k = 32>>
  return %y, %u : tensor<?x16xf32>, tensor<?x16xbf16>
}

/// What attention reads, also through a slice, a bias and rope, is exact by default; its result isn't.
// CHECK-LABEL: func @attention
//  CHECK-SAME:   (%[[X:.+]]: tensor<1x?x32xf32>, %[[W:.+]]: tensor<96x34xi8, {{.+}}>, %[[B:.+]]: tensor<96xf32>, %[[O:.+]]: tensor<32x34xi8, {{.+}}>, %{{.+}}: tensor<64x16xf32>)
//       EXACT:   mir.dequant_matmul %[[X]], %[[W]]
//       EVERY:   mir.block_dot %{{.+}}, %{{.+}}, %{{.+}}, %[[W]]
//        WIDE:   %[[Q2:.+]], %[[D2:.+]], %[[S2:.+]] = mir.block_quantize %[[X]] bits 15
//        WIDE:   mir.block_dot %[[Q2]], %[[D2]], %[[S2]], %[[W]]
//       CHECK:   %[[A:.+]] = mir.attention
//       CHECK:   %[[Q:.+]], %[[D:.+]], %[[S:.+]] = mir.block_quantize %[[A]]
//       CHECK:   mir.block_dot %[[Q]], %[[D]], %[[S]], %[[O]]
func.func @attention(%x: tensor<1x?x32xf32>, %w: tensor<96x34xi8, #mir.packed<q8_0, k = 32>>, %b: tensor<96xf32>, %o: tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, %t: tensor<64x16xf32>) -> tensor<1x?x32xf32> {
  %p = mir.dequant_matmul %x, %w : tensor<1x?x32xf32>, tensor<96x34xi8, #mir.packed<q8_0, k = 32>>
  %s = mir.add %p, %b : tensor<1x?x96xf32>, tensor<96xf32>
  %q = mir.narrow %s axis 2 start 0 length 32 : tensor<1x?x96xf32>
  %k = mir.narrow %s axis 2 start 32 length 32 : tensor<1x?x96xf32>
  %v = mir.narrow %s axis 2 start 64 length 32 : tensor<1x?x96xf32>
  %r = mir.rope %q, %t, %t head_dim 32 : tensor<1x?x32xf32>, tensor<64x16xf32>
  %a = mir.attention %r, %k, %v heads 1 head_dim 32 masked causal : tensor<1x?x32xf32>, tensor<1x?x32xf32>
  %y = mir.dequant_matmul %a, %o : tensor<1x?x32xf32>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>
  return %y : tensor<1x?x32xf32>
}

/// The stream of residuals leads to the attention of the next layer, but no product is exact for that.
// CHECK-LABEL: func @residual_stream
//       CHECK:   %[[Y:.+]] = mir.block_dot
//       CHECK:   %[[H:.+]] = mir.add %{{.+}}, %[[Y]]
//       CHECK:   mir.attention %[[H]]
func.func @residual_stream(%x: tensor<1x?x32xf32>, %w: tensor<32x34xi8, #mir.packed<q8_0, k = 32>>) -> tensor<1x?x32xf32> {
  %y = mir.dequant_matmul %x, %w : tensor<1x?x32xf32>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>
  %h = mir.add %x, %y : tensor<1x?x32xf32>
  %a = mir.attention %h, %x, %x heads 1 head_dim 32 masked causal : tensor<1x?x32xf32>, tensor<1x?x32xf32>
  return %a : tensor<1x?x32xf32>
}

/// Of experts, which are exact by default: those with whole pairs of panels, of f32.
// CHECK-LABEL: func @experts
//   CHECK-NOT:   mir.block
//       CHECK:   return
// EXPERTS-LABEL: func @experts
//  EXPERTS-SAME:   (%[[X:.+]]: tensor<?x32xf32>, %[[W:.+]]: tensor<64x34xi8, #mir.packed<q8_0, k = 32>>, %[[E:.+]]: tensor<?xi32>)
//  EXPERTS-NEXT:   %[[Q:.+]], %[[D:.+]], %[[S:.+]] = mir.block_quantize %[[X]] bits 15
//  EXPERTS-NEXT:   mir.grouped_block_dot %[[Q]], %[[D]], %[[S]], %[[W]], %[[E]] experts 2
//  EXPERTS-NEXT:   mir.dequant_grouped_matmul %[[X]], %[[W]], %[[E]] experts 4
func.func @experts(%x: tensor<?x32xf32>, %w: tensor<64x34xi8, #mir.packed<q8_0, k = 32>>, %e: tensor<?xi32>) -> (tensor<?x32xf32>, tensor<?x16xf32>) {
  %y = mir.dequant_grouped_matmul %x, %w, %e experts 2 : tensor<?x32xf32>, tensor<64x34xi8, #mir.packed<q8_0, k = 32>>, tensor<?xi32>
  %z = mir.dequant_grouped_matmul %x, %w, %e experts 4 : tensor<?x32xf32>, tensor<64x34xi8, #mir.packed<q8_0, k = 32>>, tensor<?xi32>
  return %y, %z : tensor<?x32xf32>, tensor<?x16xf32>
}

/// What a selective scan goes into its states by, and reads them, is exact by default; what its steps are made of isn't.
// CHECK-LABEL: func @scan
//  CHECK-SAME:   (%[[X:.+]]: tensor<1x?x32xf32>, %[[W:.+]]: tensor<48x34xi8, {{.+}}>, %[[V:.+]]: tensor<32x34xi8, {{.+}}>, %{{.+}}: tensor<32x16xf32>)
//       EXACT:   mir.dequant_matmul %[[X]], %[[W]]
//       CHECK:   mir.block_dot %{{.+}}, %{{.+}}, %{{.+}}, %[[V]]
//       CHECK:   mir.selective_scan
func.func @scan(%x: tensor<1x?x32xf32>, %w: tensor<48x34xi8, #mir.packed<q8_0, k = 32>>, %v: tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, %a: tensor<32x16xf32>) -> tensor<1x?x32xf32> {
  %m = mir.dequant_matmul %x, %w : tensor<1x?x32xf32>, tensor<48x34xi8, #mir.packed<q8_0, k = 32>>
  %b = mir.narrow %m axis 2 start 0 length 16 : tensor<1x?x48xf32>
  %c = mir.narrow %m axis 2 start 16 length 16 : tensor<1x?x48xf32>
  %d = mir.dequant_matmul %x, %v : tensor<1x?x32xf32>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>
  %y, %n = mir.selective_scan %x, %d, %a, %b, %c : tensor<1x?x32xf32>, tensor<32x16xf32>, tensor<1x?x16xf32>
  return %y : tensor<1x?x32xf32>
}
